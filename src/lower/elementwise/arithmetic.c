/* Arithmetic: nodes of a formula, typed by their operands. */
#include "lower/elementwise/arithmetic.h"

#include "onnx/facts/schema.h"

/* The shape that the operands broadcast to. */
static Type broadcast_shape(Lowering *l, Value *const *values, size_t count) {
  Type type = values[0]->type;
  for (size_t i = 1; i < count; i++) {
    if (values[i]->type.rank > type.rank) type = values[i]->type;
  }
  Dim dims[MAX_RANK];
  bool stretched = false;
  for (uint32_t axis = 0; axis < type.rank; axis++) {
    dims[axis] = type.dims[axis];
    for (size_t i = 0; i < count && dim_is(dims[axis], 1); i++) {
      uint32_t missing = type.rank - values[i]->type.rank;
      if (axis >= missing) dims[axis] = values[i]->type.dims[axis - missing];
    }
    stretched = stretched || !dim_equal(dims[axis], type.dims[axis]);
  }
  return stretched ? type_make(l->context, type.dtype, dims, type.rank) : type;
}

Value *emit_math(Lowering *l, Here here, Op op, Value *const *inputs, size_t count) {
  DType dtype = op_has(op, PREDICATE) ? DTYPE_BOOL : inputs[0]->type.dtype;
  return emit_around(l, here, op, type_with(broadcast_shape(l, inputs, count), dtype), inputs, count);
}

static bool known_bool(const Value *value, bool *known) {
  int64_t number;
  if (!literal_int(value->tensor, &number)) return false;
  *known = number != 0;
  return true;
}

/* Where there is no Where on bool, logic needs no casts. */
static Value *where_bool(Lowering *l, Here here, Value *condition, Value *a, Value *b) {
  bool known;
  if (known_bool(a, &known) && known) return emit_math(l, here, OP_Or, VALUES(condition, b), 2);
  if (known_bool(b, &known) && !known) return emit_math(l, here, OP_And, VALUES(condition, a), 2);
  Value *otherwise = emit_math(l, here, OP_Not, VALUES(condition), 1);
  if (known_bool(b, &known)) return emit_math(l, here, OP_Or, VALUES(otherwise, a), 2);
  otherwise = emit_math(l, here, OP_And, VALUES(otherwise, b), 2);
  if (known_bool(a, &known)) return otherwise;
  return emit_math(l, here, OP_Or, VALUES(emit_math(l, here, OP_And, VALUES(condition, a), 2), otherwise), 2);
}

Value *emit_where(Lowering *l, Here here, Value *condition, Value *a, Value *b) {
  DType dtype = a->type.dtype, compute = compute_dtype(l, OP_Where, dtype);
  if (dtype == DTYPE_BOOL && compute != dtype) return where_bool(l, here, condition, a, b);
  if (compute == DTYPE_NONE) unsupported(l, "ONNX Runtime cannot select between values of type %s", dtype_name(dtype));
  Value *const values[] = {condition, cast_to(l, a, compute), cast_to(l, b, compute)};
  Type type = type_with(broadcast_shape(l, values, 3), compute);
  return narrow_to(l, emit_value(l, here, OP_Where, type, values, 3), dtype);
}

Value *emit_polynomial(Lowering *l, Here here, Value *x, const double *coefficients, size_t count) {
  Value *sum = number_like(l, x, coefficients[count - 1]);
  for (size_t i = count - 1; i-- > 0;) {
    Value *product = emit_math(l, here, OP_Mul, VALUES(x, sum), 2);
    sum = emit_math(l, here, OP_Add, VALUES(product, number_like(l, x, coefficients[i])), 2);
  }
  return sum;
}

Value *sign_bit(Lowering *l, Value *x) {
  Value *zero = number_like(l, x, 0);
  Value *below = EMIT_MATH(l, OP_Less, EMIT_MATH(l, OP_Reciprocal, x), zero);
  return EMIT_MATH(l, OP_Or, EMIT_MATH(l, OP_Less, x, zero), below);
}

Value *number_like(Lowering *l, const Value *value, double number) {
  return constant_scalar(l, value->type.dtype, number);
}

Value *integer_like(Lowering *l, const Value *value, int64_t number) {
  return constant_integer(l, value->type.dtype, number);
}

Value *wide_input(Lowering *l, size_t index) {
  DType dtype = input_type(l, index).dtype;
  bool narrow = dtype_is_float(dtype) && dtype_bits(dtype) < 32;
  return narrow ? cast_to(l, input(l, index), DTYPE_FLOAT32) : input(l, index);
}

Value *native_input(Lowering *l, size_t index) {
  return input_type(l, index).dtype == DTYPE_FLOAT16 ? input(l, index) : wide_input(l, index);
}

void bind_narrow(Lowering *l, Value *value) { bind(l, 0, narrow_to(l, value, output_type(l, 0).dtype)); }
