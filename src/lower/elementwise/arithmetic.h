/* Arithmetic: nodes of a formula, typed by their operands.
 *
 * Operands have equal shapes or rank 0, as in JAX's elementwise equations. The result has the shape of the operand of
 * highest rank, and the first operand's element type, or bool where the operator is a question. Element types that
 * ONNX Runtime has no kernel for are cast around.
 */
#ifndef J2O_LOWER_ELEMENTWISE_ARITHMETIC_H
#define J2O_LOWER_ELEMENTWISE_ARITHMETIC_H

#include "lower/lower.h"

Value *emit_math(Lowering *l, Here here, Op op, Value *const *inputs, size_t count);
#define EMIT_MATH(l, op, ...) emit_math((l), HERE, (op), VALUES(__VA_ARGS__), COUNT_OF(__VA_ARGS__))
#define EMIT_ROW_MATH(l, op, ...) emit_math((l), ROW_HERE(l), (op), VALUES(__VA_ARGS__), COUNT_OF(__VA_ARGS__))

/* condition ? a : b, for any element type. */
Value *emit_where(Lowering *l, Here here, Value *condition, Value *a, Value *b);
#define EMIT_WHERE(l, condition, a, b) emit_where((l), HERE, (condition), (a), (b))

/* coefficients[0] + x * (coefficients[1] + x * …) */
Value *emit_polynomial(Lowering *l, Here here, Value *x, const double *coefficients, size_t count);
#define EMIT_POLYNOMIAL(l, x, coefficients) \
  emit_polynomial((l), HERE, (x), (coefficients), sizeof(coefficients) / sizeof *(coefficients))

/* Is the sign bit of the float set? -0 shows it by its reciprocal, -infinity does not. */
Value *sign_bit(Lowering *l, Value *x);

/* A rank-0 constant of value's element type. */
Value *number_like(Lowering *l, const Value *value, double number);
Value *integer_like(Lowering *l, const Value *value, int64_t number);

/* Input index; float16 and bfloat16 as float32, for formulas of several nodes. */
Value *wide_input(Lowering *l, size_t index);
/* As wide_input, but float16 stays: for a few nodes that all run on it. */
Value *native_input(Lowering *l, size_t index);
/* Binds output 0 to the value in the output's element type. */
void bind_narrow(Lowering *l, Value *value);

#endif
