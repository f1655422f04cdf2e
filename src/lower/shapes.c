/* Changing shapes: the one way to make each of these nodes. Nothing is emitted where nothing changes. */
#include "lower/lower.h"
#include "onnx/facts/schema.h"

static bool same_dims(Type type, const Dim *dims, size_t rank) {
  return type_same_shape(type, (Type){.rank = (uint32_t)rank, .dims = dims});
}

Value *cast_to(Lowering *l, Value *value, DType dtype) {
  if (value->type.dtype == dtype) return value;
  Value *known = constant_cast(l, value->tensor, dtype);
  if (known) return known;
  Value *cast = EMIT(l, OP_Cast, type_with(value->type, dtype), value);
  node_set_int(cast->producer, "to", onnx_dtype(dtype));
  /* What a float of 8 bits cannot hold is NaN or infinite in JAX; the standard keeps it to the largest one otherwise.
   */
  if (dtype_is_float(dtype) && dtype_bits(dtype) == 8) node_set_int(cast->producer, "saturate", 0);
  return cast;
}

Value *narrow_to(Lowering *l, Value *value, DType dtype) {
  if (!dtype_is_half(dtype) || value->type.dtype != DTYPE_FLOAT32 || value->tensor) return cast_to(l, value, dtype);
  return EMIT(l, OP_Narrow, type_with(value->type, dtype), value);
}

/* One unknown dimension is left to Reshape as -1; unchanged leading ones as 0. Only then is a shape computed. */
static Value *reshape_target(Lowering *l, Type from, const Dim *dims, size_t rank) {
  int64_t *numbers = arena_new_array(&l->context->arena, rank, int64_t);
  size_t unknown = 0;
  for (size_t i = 0; i < rank; i++) {
    if (dim_is_constant(dims[i])) {
      numbers[i] = dims[i].constant;
      if (numbers[i] == 0) return shape_value(l, dims, rank); /* 0 has a meaning of its own in Reshape */
    } else if (i < from.rank && dim_equal(from.dims[i], dims[i])) {
      numbers[i] = 0;
    } else {
      numbers[i] = -1;
      unknown++;
    }
  }
  return unknown <= 1 ? constant_ints(l, numbers, rank) : shape_value(l, dims, rank);
}

/* Can Reshape find the sizes without their being computed? */
static bool reshape_knows(Type from, const Dim *dims, size_t rank) {
  size_t unknown = 0;
  for (size_t i = 0; i < rank; i++) {
    bool stays = i < from.rank && dim_equal(from.dims[i], dims[i]);
    unknown += !dim_is_constant(dims[i]) && !stays;
  }
  return unknown <= 1;
}

/* The axes of size 1 that the longer shape has beside the dimensions of the shorter one; false when they differ in
 * anything else. */
static bool extra_ones(const Dim *longer, size_t long_rank, const Dim *shorter, size_t short_rank, int64_t *axes) {
  size_t count = 0, at = 0;
  for (size_t i = 0; i < long_rank; i++) {
    if (at < short_rank && dim_equal(longer[i], shorter[at])) at++;
    else if (dim_is(longer[i], 1) && count < MAX_RANK) axes[count++] = (int64_t)i;
    else return false;
  }
  return at == short_rank;
}

Value *reshape_to(Lowering *l, Value *value, const Dim *dims, size_t rank) {
  if (same_dims(value->type, dims, rank)) return value;
  int64_t axes[MAX_RANK];
  uint32_t before = value->type.rank;
  if (!reshape_knows(value->type, dims, rank)) {
    if (extra_ones(dims, rank, value->type.dims, before, axes)) return unsqueeze_at(l, value, axes, rank - before);
    if (extra_ones(value->type.dims, before, dims, rank, axes)) return squeeze_at(l, value, axes, before - rank);
  }
  bool zero = false;
  for (size_t i = 0; i < rank; i++) zero = zero || dim_is(dims[i], 0);
  Value *target = reshape_target(l, value->type, dims, rank);
  Value *result = EMIT(l, OP_Reshape, type_make(l->context, value->type.dtype, dims, (uint32_t)rank), value, target);
  if (zero) node_set_int(result->producer, "allowzero", 1);
  return result;
}

Value *expand_to(Lowering *l, Value *value, const Dim *dims, size_t rank) {
  if (same_dims(value->type, dims, rank)) return value;
  Type type = type_make(l->context, value->type.dtype, dims, (uint32_t)rank);
  return EMIT_AROUND(l, OP_Expand, type, value, shape_value(l, dims, rank));
}

/* Each is there, and none twice. */
static void require_axes(Lowering *l, const int64_t *axes, size_t count, uint32_t rank) {
  uint64_t seen = 0;
  rely_on(l, rank <= 64);
  for (size_t i = 0; i < count; i++) {
    rely_on(l, axes[i] >= 0 && axes[i] < (int64_t)rank && !(seen >> axes[i] & 1));
    seen |= 1ull << axes[i];
  }
}

/* Do the axes that are not of size 1 keep their order? Then nothing moves in memory. */
static bool moves_only_ones(Type type, const int64_t *permutation) {
  int64_t last = -1;
  for (uint32_t i = 0; i < type.rank; i++) {
    if (dim_is(type.dims[permutation[i]], 1)) continue;
    if (permutation[i] < last) return false;
    last = permutation[i];
  }
  return true;
}

Value *transpose_by(Lowering *l, Value *value, const int64_t *permutation) {
  uint32_t rank = value->type.rank;
  require_axes(l, permutation, rank, rank);
  Dim *dims = arena_new_array(&l->context->arena, rank, Dim);
  bool identity = true;
  for (uint32_t i = 0; i < rank; i++) {
    dims[i] = value->type.dims[permutation[i]];
    identity = identity && permutation[i] == (int64_t)i;
  }
  if (identity) return value;
  if (moves_only_ones(value->type, permutation) && reshape_knows(value->type, dims, rank)) {
    return reshape_to(l, value, dims, rank);
  }
  Value *result = EMIT(l, OP_Transpose, type_make(l->context, value->type.dtype, dims, rank), value);
  node_set_ints(result->producer, "perm", permutation, rank);
  return result;
}

Value *unsqueeze_at(Lowering *l, Value *value, const int64_t *axes, size_t count) {
  if (!count) return value;
  uint32_t rank = value->type.rank + (uint32_t)count;
  require_axes(l, axes, count, rank);
  Dim *dims = arena_new_array(&l->context->arena, rank, Dim);
  for (size_t i = 0; i < count; i++) dims[axes[i]] = dim_of(-1);
  for (uint32_t i = 0, from = 0; i < rank; i++) {
    dims[i] = dim_is(dims[i], -1) ? dim_of(1) : value->type.dims[from++];
  }
  Type type = type_make(l->context, value->type.dtype, dims, rank);
  return EMIT(l, OP_Unsqueeze, type, value, constant_ints(l, axes, count));
}

Value *squeeze_at(Lowering *l, Value *value, const int64_t *axes, size_t count) {
  if (!count) return value;
  require_axes(l, axes, count, value->type.rank);
  uint32_t rank = value->type.rank - (uint32_t)count, to = 0;
  Dim *dims = arena_new_array(&l->context->arena, rank, Dim);
  for (uint32_t i = 0; i < value->type.rank; i++) {
    bool dropped = false;
    for (size_t a = 0; a < count; a++) dropped = dropped || axes[a] == (int64_t)i;
    if (!dropped) dims[to++] = value->type.dims[i];
  }
  Type type = type_make(l->context, value->type.dtype, dims, rank);
  return EMIT(l, OP_Squeeze, type, value, constant_ints(l, axes, count));
}

Value *slice_at(Lowering *l, Value *value, Type type, const Dim *starts, const Dim *limits, const int64_t *steps,
                const int64_t *axes, size_t count) {
  if (!count) return value;
  Value *from = shape_value(l, starts, count), *to = shape_value(l, limits, count);
  Value *along = constant_ints(l, axes, count);
  bool unit = true;
  for (size_t i = 0; steps && i < count; i++) unit = unit && steps[i] == 1;
  if (unit) return EMIT(l, OP_Slice, type, value, from, to, along);
  return EMIT(l, OP_Slice, type, value, from, to, along, constant_ints(l, steps, count));
}

Value *concat_at(Lowering *l, Value *const *values, size_t count, int64_t axis, Type type) {
  if (count == 1) return values[0];
  Value *result = emit_value(l, HERE, OP_Concat, type, values, count);
  node_set_int(result->producer, "axis", axis);
  return result;
}

bool is_empty(Type type) {
  for (uint32_t i = 0; i < type.rank; i++) {
    if (dim_is(type.dims[i], 0)) return true;
  }
  return false;
}

/* JAX takes every dimension symbol to be at least one. */
bool is_positive(Dim dim) {
  if (dim_is_constant(dim)) return dim.constant > 0;
  int64_t least = 0;
  for (size_t t = 0; t < dim.expr->term_count; t++) {
    const DimTerm *term = &dim.expr->terms[t];
    for (size_t f = 0; f < term->factor_count; f++) {
      if (term->factors[f].op != DIM_SYMBOL || term->coefficient < 0) return false;
    }
    if (__builtin_add_overflow(least, term->coefficient, &least)) return false;
  }
  return least > 0;
}

Type type_without_axis(Lowering *l, Type type, int64_t axis) {
  Dim *dims = arena_new_array(&l->context->arena, type.rank, Dim);
  uint32_t rank = 0;
  for (uint32_t i = 0; i < type.rank; i++) {
    if ((int64_t)i != axis) dims[rank++] = type.dims[i];
  }
  return type_make(l->context, type.dtype, dims, rank);
}
