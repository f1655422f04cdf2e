/* Householder reflections: made from a column, applied to a matrix, one or many. */
#include "lower/reflections.h"

#include "lower/arithmetic.h"
#include "lower/loops.h"
#include "lower/matrices.h"

/* Norms are taken in double precision: squares of float32 neither overflow nor vanish there. */
Reflection reflection_of(Lowering *l, Value *column, Value *rows, Value *index) {
  DType dtype = column->type.dtype;
  Value *tail = EMIT_WHERE(l, EMIT_MATH(l, "Greater", rows, index), column, number_like(l, column, 0));
  Value *head = cast_to(l, slice_of(l, column, ROWS, index), DTYPE_FLOAT64);
  Value *square = EMIT_ALONG(l, "ReduceSumSquare", cast_to(l, tail, DTYPE_FLOAT64), ROWS);
  Value *zero = number_like(l, square, 0), *one = number_like(l, square, 1);
  Value *nothing = EMIT_MATH(l, "Equal", square, zero);
  Value *norm = EMIT_MATH(l, "Sqrt", EMIT_MATH(l, "Add", EMIT_MATH(l, "Mul", head, head), square));
  Value *length = EMIT_MATH(l, "Add", EMIT_MATH(l, "Abs", head), norm);
  Value *tau = EMIT_WHERE(l, nothing, zero, EMIT_MATH(l, "Div", length, norm));
  Value *negative = EMIT_MATH(l, "Less", EMIT_MATH(l, "Reciprocal", head), zero); /* -0 counts as negative */
  Value *difference = EMIT_WHERE(l, negative, EMIT_MATH(l, "Neg", length), length);
  Value *divisor = EMIT_WHERE(l, nothing, one, difference);
  Value *below = EMIT_MATH(l, "Div", tail, cast_to(l, divisor, dtype));
  Value *own = EMIT_MATH(l, "Equal", rows, index);
  return (Reflection){EMIT_WHERE(l, own, number_like(l, column, 1), below), cast_to(l, tau, dtype)};
}

Value *reflected(Lowering *l, Value *matrix, Reflection by, bool left) {
  Value *scaled = EMIT_MATH(l, "Mul", by.vector, by.tau), *share;
  if (left) share = EMIT_MATH(l, "Mul", scaled, matrix_product(l, transposed(l, by.vector), matrix));
  else share = EMIT_MATH(l, "Mul", matrix_product(l, matrix, by.vector), transposed(l, scaled));
  return EMIT_MATH(l, "Sub", matrix, share);
}

Value *reflected_by_all(Lowering *l, Value *stored, Value *taus, Value *matrix, bool left, bool backwards) {
  Dim count = taus->type.dims[taus->type.rank - 1];
  if (dim_is(count, 0) || is_empty(matrix->type)) return matrix;
  Value *ones = identity_matrix(l, stored->type.dtype, size_along(stored, ROWS), size_along(stored, COLUMNS));
  Value *vectors = EMIT_MATH(l, "Add", triangle(l, stored, true, -1), ones);
  Value *factors = as_row(l, taus);
  Loop *loop = loop_begin(l, "reflections", count, backwards, &matrix, 1);
  Reflection by = {slice_of(l, vectors, COLUMNS, loop->index), slice_of(l, factors, COLUMNS, loop->index)};
  return EMIT_LOOP(loop, reflected(l, loop->carried[0], by, left))[0];
}

Triangularized triangularized(Lowering *l, Value *matrix, Dim count) {
  Value *rows = numbers_along(l, ROWS, size_along(matrix, ROWS));
  Loop *loop = LOOP_BEGIN(l, "geqrf", count, matrix);
  Value *rest = loop->carried[0];
  Reflection reflection = reflection_of(l, slice_of(l, rest, COLUMNS, loop->index), rows, loop->index);
  Value *after = reflected(l, rest, reflection, true);
  loop_collect(loop, reflection.vector, COLUMNS);
  loop_collect(loop, reflection.tau, COLUMNS);
  Value **results = EMIT_LOOP(loop, after);
  return (Triangularized){results[0], results[1], results[2]};
}
