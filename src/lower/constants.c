/* Constants: tensors known at export become initializers of the scope, equal small ones only once.
 *
 * A function's parameters are its inputs, so that one definition serves many layers and the tensors lie in the main
 * graph; what else it needs is its own. */
#include <math.h>

#include "base/bytes.h"
#include "lower/lower.h"
#include "onnx/facts/schema.h"
#include "types/numbers.h"

enum { SMALL = 256 /* bytes: constants up to here are compared by content */ };

const Tensor *tensor_new(Lowering *l, DType dtype, const int64_t *dims, uint32_t rank, const void *data, size_t size) {
  Arena *arena = &l->context->arena;
  Tensor *tensor = arena_new(arena, Tensor);
  *tensor = (Tensor){.dtype = dtype, .rank = rank, .size = size};
  tensor->dims = arena_copy(arena, dims, rank * sizeof *dims);
  tensor->data = arena_copy(arena, data, size);
  return tensor;
}

const Tensor *tensor_scalar(Lowering *l, DType dtype, double value) {
  uint64_t bits = number_encode(dtype, value);
  return tensor_new(l, dtype, NULL, 0, &bits, dtype_bytes(dtype, 1));
}

static bool same_constant(const Tensor *a, const Tensor *b) {
  return a->dtype == b->dtype && a->rank == b->rank && a->size == b->size && a->name == b->name &&
         same_bytes(a->dims, b->dims, a->rank * sizeof *a->dims) && same_bytes(a->data, b->data, a->size);
}

/* Open addressing over the map's keys: a hash that another constant holds moves on by one. */
static Value *small_constant(Lowering *l, const Tensor *tensor) {
  uint64_t hash = hash_mix(hash_bytes(tensor->data, tensor->size), (uint64_t)tensor->dtype);
  for (;; hash++) {
    void **slot = map_slot(l->context, &l->scope->constants, hash, tensor->rank);
    Value *known = *slot;
    if (!known) return *slot = graph_initializer(l->scope->graph, tensor);
    if (same_constant(known->tensor, tensor)) return known;
  }
}

static Value *captured_parameter(Lowering *l, const Tensor *tensor) {
  Value *value = graph_input(l->scope->graph, tensor_type(l->context, tensor), NULL);
  value->name = tensor->name;
  array_push(l->context, &l->scope->captures, ((Capture){.tensor = tensor}));
  return value;
}

Value *constant(Lowering *l, const Tensor *tensor) {
  if (onnx_dtype(tensor->dtype) == 0) {
    unsupported(l, "a constant of type %s cannot be stored in an ONNX model", dtype_name(tensor->dtype));
  }
  Scope *scope = l->scope;
  bool captured = scope->is_function && (tensor->name || tensor->size > SMALL);
  if (tensor->size <= SMALL && !captured && (tensor->data || !tensor->size)) return small_constant(l, tensor);
  void **slot = map_slot(l->context, &scope->tensors, (uint64_t)(uintptr_t)tensor->data, (uint64_t)(uintptr_t)tensor);
  if (!*slot) *slot = captured ? captured_parameter(l, tensor) : graph_initializer(scope->graph, tensor);
  return *slot;
}

Value *constant_scalar(Lowering *l, DType dtype, double value) { return constant(l, tensor_scalar(l, dtype, value)); }

Value *constant_integer(Lowering *l, DType dtype, int64_t value) {
  if (!dtype_is_integer(dtype)) return constant_scalar(l, dtype, (double)value);
  return constant(l, tensor_new(l, dtype, NULL, 0, &value, dtype_bytes(dtype, 1)));
}

Value *constant_cast(Lowering *l, const Tensor *tensor, DType to) {
  int64_t integer;
  double real;
  if (!tensor || tensor->rank != 0 || tensor->name) return NULL;
  if (literal_int(tensor, &integer)) {
    if (to == DTYPE_BOOL) return constant_integer(l, to, integer != 0);
    bool exact = integer >= -(INT64_C(1) << 53) && integer <= INT64_C(1) << 53 && tensor->dtype != DTYPE_UINT64;
    return dtype_is_integer(to) || (exact && dtype_is_float(to)) ? constant_integer(l, to, integer) : NULL;
  }
  if (!dtype_is_float(tensor->dtype) || !dtype_is_float(to)) return NULL;
  if (!literal_double(tensor, &real)) return NULL;
  Tensor *cast = arena_copy(&l->context->arena, tensor_scalar(l, to, real), sizeof *cast);
  if (dtype_bits(to) > dtype_bits(tensor->dtype)) cast->precision = tensor->dtype;
  return constant(l, cast);
}

Value *constant_ints(Lowering *l, const int64_t *values, size_t count) {
  int64_t dims[] = {(int64_t)count};
  return constant(l, tensor_new(l, DTYPE_INT64, dims, 1, values, count * sizeof *values));
}

Value *constant_like(Lowering *l, Type type, double value) { return constant_scalar(l, type.dtype, value); }

static bool all_elements_equal(const Tensor *tensor) {
  size_t size = dtype_bytes(tensor->dtype, 1);
  if (tensor->size < size || size == 0 || !tensor->data) return false;
  const char *data = tensor->data;
  for (size_t at = size; at + size <= tensor->size; at += size) {
    if (!same_bytes(data, data + at, size)) return false;
  }
  return true;
}

bool literal_double(const Tensor *tensor, double *value) {
  if (!tensor || !all_elements_equal(tensor)) return false;
  *value = number_decode(tensor->dtype, tensor->data);
  return true;
}

bool literal_int(const Tensor *tensor, int64_t *value) {
  if (!tensor || !all_elements_equal(tensor)) return false;
  if (dtype_kind(tensor->dtype) != KIND_BOOL && !dtype_is_integer(tensor->dtype)) return false;
  *value = number_decode_int(tensor->dtype, tensor->data);
  return true;
}
