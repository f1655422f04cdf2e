/* Reductions and arg-reductions. cumulative.c has the running ones.
 *
 * JAX never skips a NaN, and its sums and products of integers wrap around: what a target's operators make of it is
 * asked (target/quirks.inc), and worked around.
 */
#include <math.h>

#include "base/bytes.h"
#include "lower/lower.h"
#include "onnx/facts/schema.h"

enum { INPUT_AXES_SUM = 13, INPUT_AXES = 18 /* since_version from which axes are an input, not an attribute */ };

static Type reduced_type(Lowering *l, Type type, const int64_t *axes, size_t count) {
  bool dropped[MAX_RANK] = {false};
  Dim dims[MAX_RANK];
  uint32_t rank = 0;
  rely_on(l, type.rank <= MAX_RANK);
  for (size_t i = 0; i < count; i++) {
    rely_on(l, axes[i] >= 0 && axes[i] < (int64_t)type.rank);
    dropped[axes[i]] = true;
  }
  for (uint32_t i = 0; i < type.rank; i++) {
    if (!dropped[i]) dims[rank++] = type.dims[i];
  }
  return type_make(l->context, type.dtype, dims, rank);
}

Value *reduce_along(Lowering *l, Here here, Op op, Value *value, const int64_t *axes, size_t count) {
  if (!count) return value; /* to ONNX, no axes are all axes */
  DType dtype = value->type.dtype, compute = compute_dtype(l, op, dtype);
  if (compute == DTYPE_NONE) unsupported(l, "ONNX Runtime cannot compute %s on %s", op_name(op), dtype_name(dtype));
  value = cast_to(l, value, compute);
  Type type = reduced_type(l, value->type, axes, count);
  bool sum = op == OP_ReduceSum;
  bool as_input = schema_version(op, l->options->opset) >= (sum ? INPUT_AXES_SUM : INPUT_AXES);
  Value *inputs[] = {value, as_input ? constant_ints(l, axes, count) : NULL};
  Value *result = emit_value(l, here, op, type, inputs, as_input ? 2 : 1);
  if (!as_input) node_set_ints(result->producer, "axes", axes, count);
  node_set_int(result->producer, "keepdims", 0);
  return narrow_to(l, result, dtype);
}

/* What an operator gives when there is nothing to reduce. */
const Tensor *reduction_identity(Lowering *l, Op op, DType dtype) {
  if (op == OP_ReduceSum) return tensor_scalar(l, dtype, 0);
  if (op == OP_ReduceProd) return tensor_scalar(l, dtype, 1);
  bool least = op == OP_ReduceMax;
  if (dtype_is_float(dtype)) return tensor_scalar(l, dtype, least ? -INFINITY : INFINITY);
  uint64_t bits = 0;
  unsigned width = dtype_kind(dtype) == KIND_BOOL ? 1 : dtype_bits(dtype);
  uint64_t ones = width >= 64 ? ~(uint64_t)0 : ((uint64_t)1 << width) - 1, sign = (uint64_t)1 << (width - 1);
  if (dtype_kind(dtype) == KIND_INT) bits = least ? sign : ones ^ sign;
  else bits = least ? 0 : ones;
  return tensor_new(l, dtype, NULL, 0, &bits, dtype_bytes(dtype, 1));
}

/* uint64 has no kernels here, and as int64 its order is wrong from 2^63 on; turning the sign bit over mends that both
 * ways. */
static Value *turn_sign(Lowering *l, Value *value) {
  return EMIT(l, OP_Add, value->type, value, constant_integer(l, DTYPE_INT64, INT64_MIN));
}

static Value *to_ordered(Lowering *l, Value *value) {
  return value->type.dtype == DTYPE_UINT64 ? turn_sign(l, cast_to(l, value, DTYPE_INT64)) : value;
}

static Value *from_ordered(Lowering *l, Value *value, DType dtype) {
  return dtype == DTYPE_UINT64 ? cast_to(l, turn_sign(l, value), dtype) : value;
}

/* The axes moved behind the others and made one. */
static Value *one_last_axis(Lowering *l, Value *value, const int64_t *axes, size_t count) {
  int64_t order[MAX_RANK];
  bool last[MAX_RANK] = {false};
  Type kept = reduced_type(l, value->type, axes, count);
  Dim dims[MAX_RANK], size = dim_of(1);
  uint32_t rank = 0;
  for (size_t i = 0; i < count; i++) last[axes[i]] = true;
  for (int moved = 0; moved < 2; moved++) {
    for (uint32_t i = 0; i < value->type.rank; i++) {
      if (last[i] != (moved != 0)) continue;
      order[rank++] = i;
      if (last[i]) size = dim_multiply(l->context, size, value->type.dims[i]);
    }
  }
  copy_bytes(dims, kept.dims, kept.rank * sizeof *dims);
  dims[kept.rank] = size;
  return reshape_to(l, transpose_by(l, value, order), dims, kept.rank + 1);
}

/* The first of the sorted elements. */
static Value *extreme_by_order(Lowering *l, Op op, Value *value, const int64_t *axes, size_t count) {
  int64_t axis = axes[0];
  if (count > 1) {
    value = one_last_axis(l, value, axes, count);
    axis = value->type.rank - 1;
  }
  Dim *dims = arena_copy(&l->context->arena, value->type.dims, value->type.rank * sizeof *dims);
  dims[axis] = dim_of(1);
  Type one = type_make(l->context, value->type.dtype, dims, value->type.rank);
  int64_t k = 1;
  Node *node = EMIT_NODE(l, OP_TopK, ((Type[]){one, type_with(one, DTYPE_INT64)}), 2, value, constant_ints(l, &k, 1));
  node_set_int(node, "axis", axis);
  node_set_int(node, "largest", op == OP_ReduceMax);
  return squeeze_at(l, node->outputs[0], &axis, 1);
}

/* The sum of magnitudes is NaN exactly when an element is, and else no smaller than any of them, however it is rounded:
 * the smaller of it and the extreme is the extreme or NaN. */
static Value *extreme(Lowering *l, Op op, Value *value, const int64_t *axes, size_t count) {
  DType dtype = value->type.dtype;
  if (dtype == DTYPE_BFLOAT16) value = cast_to(l, value, DTYPE_FLOAT32);
  if (dtype == DTYPE_UINT32) value = cast_to(l, value, DTYPE_FLOAT64);
  value = to_ordered(l, value);
  if (value->type.dtype == DTYPE_INT64 && target_quirk(l, QUIRK_CLIP_OF_INT64_BY_HALVES)) {
    return from_ordered(l, extreme_by_order(l, op, value, axes, count), dtype);
  }
  Value *result = reduce_along(l, ROW_HERE(l), op, value, axes, count);
  if (dtype_is_float(dtype) && target_quirk(l, QUIRK_REDUCE_EXTREME_SKIPS_NAN)) {
    Value *magnitude = EMIT_REDUCED(l, OP_ReduceL1, value, axes, count);
    result = EMIT_AROUND(l, OP_Min, result->type, result, magnitude);
  }
  return narrow_to(l, from_ordered(l, result, dtype), dtype);
}

/* Is the sum of that many 32-bit integers exact in double precision? Unknown sizes are taken to be small. */
static bool sum_fits_double(Type type, const int64_t *axes, size_t count) {
  int64_t elements = 1;
  for (size_t i = 0; i < count; i++) {
    Dim dim = type.dims[axes[i]];
    if (dim_is_constant(dim) && __builtin_mul_overflow(elements, dim.constant, &elements)) return false;
  }
  return elements <= (int64_t)1 << 21;
}

/* Integers wrap around, and MatMul of integers does, too: a product with ones is an exact sum at any size. */
static Value *integer_sum(Lowering *l, Value *value, const int64_t *axes, size_t count) {
  DType dtype = value->type.dtype;
  if (dtype_bits(dtype) <= 32 && sum_fits_double(value->type, axes, count)) {
    Value *wide = cast_to(l, value, DTYPE_INT64);
    return cast_to(l, reduce_along(l, ROW_HERE(l), OP_ReduceSum, wide, axes, count), dtype);
  }
  value = one_last_axis(l, value, axes, count);
  DType compute = compute_dtype(l, OP_MatMul, dtype);
  Dim size = value->type.dims[value->type.rank - 1];
  Value *ones = filled(l, type_make(l->context, compute, &size, 1), tensor_scalar(l, compute, 1));
  Type type = type_make(l->context, compute, value->type.dims, value->type.rank - 1);
  return cast_to(l, EMIT_ROW(l, OP_MatMul, type, cast_to(l, value, compute), ones), dtype);
}

/* Halves an axis by multiplying one half with the other until one is left; odd ones out are multiplied separately. */
static Value *halve_to_product(Lowering *l, Value *value, int64_t axis) {
  Value *odd_ones = NULL;
  for (int64_t size = value->type.dims[axis].constant; size > 1; size /= 2) {
    Dim *half = arena_copy(&l->context->arena, value->type.dims, value->type.rank * sizeof *half);
    half[axis] = dim_of(size / 2);
    Type part = type_make(l->context, value->type.dtype, half, value->type.rank);
    half[axis] = dim_of(1);
    Type one = type_make(l->context, value->type.dtype, half, value->type.rank);
    Value *sizes = constant_ints(l, (int64_t[]){size / 2, size / 2, 1}, size % 2 ? 3 : 2);
    Node *parts = EMIT_NODE(l, OP_Split, ((Type[]){part, part, one}), size % 2 ? 3 : 2, value, sizes);
    node_set_int(parts, "axis", axis);
    value = EMIT_ROW(l, OP_Mul, part, parts->outputs[0], parts->outputs[1]);
    if (size % 2 == 0) continue;
    odd_ones = odd_ones ? EMIT_ROW(l, OP_Mul, one, odd_ones, parts->outputs[2]) : parts->outputs[2];
  }
  if (odd_ones) value = EMIT_ROW(l, OP_Mul, value->type, value, odd_ones);
  return squeeze_at(l, value, &axis, 1);
}

static Value *integer_product(Lowering *l, Value *value, const int64_t *axes, size_t count) {
  bool reduced[MAX_RANK] = {false};
  for (size_t i = 0; i < count; i++) reduced[axes[i]] = true;
  for (int64_t axis = value->type.rank; axis-- > 0;) { /* from behind, so that dropping one does not move the others */
    if (!reduced[axis]) continue;
    bool known = dim_is_constant(value->type.dims[axis]);
    value = known ? halve_to_product(l, value, axis) : fold_by_scan(l, OP_Mul, value, axis);
  }
  return value;
}

Value *reduce_integers(Lowering *l, Op op, Value *value, const int64_t *axes, size_t count) {
  bool sum = op == OP_ReduceSum;
  if (!target_quirk(l, QUIRK_INTEGER_SUM_IN_DOUBLE)) return reduce_along(l, ROW_HERE(l), op, value, axes, count);
  return sum ? integer_sum(l, value, axes, count) : integer_product(l, value, axes, count);
}

Value *reduce_by(Lowering *l, Op op, Value *value, const int64_t *axes, size_t count) {
  Type type = reduced_type(l, value->type, axes, count);
  if (!count) return value;
  if (is_empty(value->type)) return filled(l, type, reduction_identity(l, op, type.dtype));
  if (op == OP_ReduceMax || op == OP_ReduceMin) return extreme(l, op, value, axes, count);
  if (dtype_is_integer(type.dtype)) return reduce_integers(l, op, value, axes, count);
  return reduce_along(l, ROW_HERE(l), op, value, axes, count);
}

static void lower_reduce(Lowering *l) {
  size_t count;
  const int64_t *axes = param_ints(l->context, l->equation, "axes", &count);
  bind(l, 0, reduce_by(l, l->plugin->op, input(l, 0), axes, count));
}

/* 0, 1, 2, … bits - 1, or the powers of two with those exponents. */
static Value *bit_numbers(Lowering *l, DType dtype, unsigned bits, bool powers) {
  uint64_t numbers[64];
  int64_t dims[] = {bits};
  for (unsigned i = 0; i < bits; i++) numbers[i] = powers ? (uint64_t)1 << i : i;
  return constant(l, tensor_new(l, dtype, dims, 1, numbers, bits * sizeof *numbers));
}

/* No operator reduces bits: each bit gets a place on a new last axis, is reduced as a number, and is put back. */
static Value *reduce_bits(Lowering *l, Op op, Value *value, const int64_t *axes, size_t count) {
  DType dtype = value->type.dtype;
  unsigned bits = dtype_bits(dtype);
  int64_t last = value->type.rank;
  rely_on(l, value->type.rank < MAX_RANK && bits >= 8 && bits <= 64);
  Dim dims[MAX_RANK];
  copy_bytes(dims, value->type.dims, value->type.rank * sizeof *dims);
  dims[last] = dim_of(bits);
  Type planes = type_make(l->context, DTYPE_UINT64, dims, (uint32_t)last + 1);
  Value *words = unsqueeze_at(l, cast_to(l, value, DTYPE_UINT64), &last, 1);
  Value *shifted = EMIT(l, OP_BitShift, planes, words, bit_numbers(l, DTYPE_UINT64, bits, false));
  node_set_string(shifted->producer, "direction", "RIGHT");
  Value *single = EMIT(l, OP_Mod, planes, shifted, constant_integer(l, DTYPE_UINT64, 2));
  Value *reduced = reduce_along(l, ROW_HERE(l), op, cast_to(l, single, DTYPE_INT64), axes, count);
  bool parity = op == OP_ReduceSum;
  if (parity) reduced = EMIT(l, OP_Mod, reduced->type, reduced, constant_integer(l, DTYPE_INT64, 2));
  Type type = type_make(l->context, DTYPE_INT64, reduced->type.dims, reduced->type.rank - 1);
  return cast_to(l, EMIT(l, OP_MatMul, type, reduced, bit_numbers(l, DTYPE_INT64, bits, true)), dtype);
}

const Tensor *logical_identity(Lowering *l, Op op, DType dtype) {
  uint64_t bits = op == OP_ReduceMin ? (dtype == DTYPE_BOOL ? 1 : ~(uint64_t)0) : 0;
  return tensor_new(l, dtype, NULL, 0, &bits, dtype_bytes(dtype, 1));
}

/* Bytes take ONNX Runtime a tenth of the time that bool takes, which needs opset 20 besides. */
static Value *reduce_bools(Lowering *l, Op op, Value *value, const int64_t *axes, size_t count) {
  if (op != OP_ReduceSum) {
    DType as = target_quirk(l, QUIRK_BYTES_ARE_NOT_COMPUTED) ? DTYPE_INT32 : DTYPE_UINT8;
    return cast_to(l, reduce_along(l, ROW_HERE(l), op, cast_to(l, value, as), axes, count), DTYPE_BOOL);
  }
  Value *sum = reduce_along(l, ROW_HERE(l), op, cast_to(l, value, DTYPE_INT32), axes, count);
  Value *odd = EMIT(l, OP_Mod, sum->type, sum, constant_integer(l, DTYPE_INT32, 2));
  return cast_to(l, odd, DTYPE_BOOL);
}

Value *reduce_logical_by(Lowering *l, Op op, Value *value, const int64_t *axes, size_t count) {
  if (!count) return value;
  DType dtype = value->type.dtype;
  if (is_empty(value->type)) {
    return filled(l, reduced_type(l, value->type, axes, count), logical_identity(l, op, dtype));
  }
  return dtype == DTYPE_BOOL ? reduce_bools(l, op, value, axes, count) : reduce_bits(l, op, value, axes, count);
}

/* and, or, xor: the row names what gives the same on zeros and ones. */
static void lower_reduce_logical(Lowering *l) {
  size_t count;
  const int64_t *axes = param_ints(l->context, l->equation, "axes", &count);
  bind(l, 0, reduce_logical_by(l, l->plugin->op, input(l, 0), axes, count));
}

static Value *first_extreme(Lowering *l, Here here, Op op, Value *value, int64_t axis) {
  DType compute = compute_dtype(l, op, value->type.dtype);
  if (compute == DTYPE_NONE)
    unsupported(l, "ONNX Runtime cannot compute %s on %s", op_name(op), dtype_name(value->type.dtype));
  Type type = type_with(reduced_type(l, value->type, &axis, 1), DTYPE_INT64);
  value = cast_to(l, value, compute);
  Value *result = emit_value(l, here, op, type, &value, 1);
  node_set_int(result->producer, "axis", axis);
  node_set_int(result->producer, "keepdims", 0);
  return result;
}

/* With NaN as infinity the place found is that of the first NaN or infinity, so never behind the first NaN; where there
 * is no NaN its first place counts as 0. The larger of the two is right in both cases. */
static Value *first_extreme_or_nan(Lowering *l, Op op, Value *value, int64_t axis) {
  bool narrow = value->type.dtype == DTYPE_BFLOAT16 || dtype_bits(value->type.dtype) == 8;
  if (narrow) value = cast_to(l, value, DTYPE_FLOAT32);
  double infinity = op == OP_ArgMax ? INFINITY : -INFINITY;
  Value *is_nan = EMIT(l, OP_IsNaN, type_with(value->type, DTYPE_BOOL), value);
  Value *nan_place = first_extreme(l, ROW_HERE(l), OP_ArgMax, cast_to(l, is_nan, DTYPE_UINT8), axis);
  Value *comparable = EMIT(l, OP_Where, value->type, is_nan, constant_like(l, value->type, infinity), value);
  Value *place = first_extreme(l, ROW_HERE(l), op, comparable, axis);
  return EMIT(l, OP_Max, place->type, place, nan_place);
}

static void lower_arg_extreme(Lowering *l) {
  size_t count;
  const int64_t *axes = param_ints(l->context, l->equation, "axes", &count);
  Type type = output_type(l, 0);
  Value *value = input(l, 0);
  if (count != 1) unsupported(l, "the index of an extreme value over %zu axes is not defined", count);
  if (is_empty(value->type)) {
    bind(l, 0, filled(l, type, tensor_scalar(l, type.dtype, 0)));
  } else if (dtype_is_float(value->type.dtype) && target_quirk(l, QUIRK_ARG_EXTREME_SKIPS_NAN)) {
    bind(l, 0, cast_to(l, first_extreme_or_nan(l, l->plugin->op, value, axes[0]), type.dtype));
  } else {
    Value *place = first_extreme(l, ROW_HERE(l), l->plugin->op, to_ordered(l, value), axes[0]);
    bind(l, 0, cast_to(l, place, type.dtype));
  }
}

/* clang-format off */
const Plugin reduction_plugins[] = {
    PLUGIN("argmax", lower_arg_extreme, OP_ArgMax),
    PLUGIN("argmin", lower_arg_extreme, OP_ArgMin),
    PLUGIN("reduce_and", lower_reduce_logical, OP_ReduceMin),
    PLUGIN("reduce_max", lower_reduce, OP_ReduceMax),
    PLUGIN("reduce_min", lower_reduce, OP_ReduceMin),
    PLUGIN("reduce_or", lower_reduce_logical, OP_ReduceMax),
    PLUGIN("reduce_prod", lower_reduce, OP_ReduceProd),
    PLUGIN("reduce_sum", lower_reduce, OP_ReduceSum),
    PLUGIN("reduce_xor", lower_reduce_logical, OP_ReduceSum),
    {0},
};
/* clang-format on */
