/* Types of values and of constants. */
#include "base/bytes.h"
#include "types/tensor.h"

const Dim UNRANKED[1];

Type type_make(Context *context, DType dtype, const Dim *dims, uint32_t rank) {
  Type type = {.dtype = dtype, .rank = rank};
  if (rank) type.dims = arena_copy(&context->arena, dims, rank * sizeof *dims);
  return type;
}

Type type_constant(Context *context, DType dtype, const int64_t *dims, uint32_t rank) {
  Dim *copy = arena_new_array(&context->arena, rank, Dim);
  for (uint32_t i = 0; i < rank; i++) copy[i] = dim_of(dims[i]);
  return (Type){.dtype = dtype, .rank = rank, .dims = copy};
}

bool type_same_shape(Type a, Type b) {
  if (a.rank != b.rank) return false;
  for (uint32_t i = 0; i < a.rank; i++) {
    if (!dim_equal(a.dims[i], b.dims[i])) return false;
  }
  return true;
}

Type type_append(Context *context, Type type, int64_t size) {
  Dim dims[MAX_RANK];
  require(context, type.rank < MAX_RANK);
  copy_bytes(dims, type.dims, type.rank * sizeof *dims);
  dims[type.rank] = dim_of(size);
  return type_make(context, type.dtype, dims, type.rank + 1);
}

bool type_equal(Type a, Type b) { return a.dtype == b.dtype && type_same_shape(a, b); }

bool type_count(Type type, int64_t *count) {
  int64_t product = 1;
  bool empty = false;
  for (uint32_t i = 0; i < type.rank; i++) {
    if (!dim_is_constant(type.dims[i])) return false;
    if (type.dims[i].constant == 0) empty = true;
  }
  for (uint32_t i = 0; !empty && i < type.rank; i++) {
    if (__builtin_mul_overflow(product, type.dims[i].constant, &product)) return false;
  }
  *count = empty ? 0 : product;
  return true;
}

Type tensor_type(Context *context, const Tensor *tensor) {
  return type_constant(context, tensor->dtype, tensor->dims, tensor->rank);
}
