/* Complex matrices: products and reflections of matrices given by their parts. */
#include "lower/linalg/complex_matrices.h"

#include "lower/control/loops.h"
#include "lower/linalg/matrices.h"
#include "lower/linalg/reflections.h"

Parts matrix_parts(Lowering *l, size_t index) {
  if (!input_is_complex(l, index)) return (Parts){matrix_input(l, index), NULL};
  Parts parts = input_parts(l, index);
  Type type = part_type(input_type(l, index));
  return (Parts){part_array(l, parts.re, type), part_array(l, parts.im, type)};
}

void bind_matrix(Lowering *l, size_t index, Parts matrix) {
  if (matrix.im) bind_parts(l, index, matrix);
  else bind_as(l, index, matrix.re);
}

Parts parts_sum(Lowering *l, Parts a, Parts b) {
  return (Parts){EMIT_MATH(l, OP_Add, a.re, b.re), EMIT_MATH(l, OP_Add, a.im, b.im)};
}

Parts parts_difference(Lowering *l, Parts a, Parts b) {
  return (Parts){EMIT_MATH(l, OP_Sub, a.re, b.re), EMIT_MATH(l, OP_Sub, a.im, b.im)};
}

Parts parts_where(Lowering *l, Value *condition, Parts a, Parts b) {
  return (Parts){EMIT_WHERE(l, condition, a.re, b.re), EMIT_WHERE(l, condition, a.im, b.im)};
}

Parts parts_conjugate(Lowering *l, Parts z) { return (Parts){z.re, EMIT_MATH(l, OP_Neg, z.im)}; }

Parts parts_scaled(Lowering *l, Parts z, Value *factor) {
  return (Parts){EMIT_MATH(l, OP_Mul, z.re, factor), EMIT_MATH(l, OP_Mul, z.im, factor)};
}

Value *parts_square(Lowering *l, Parts z) {
  return EMIT_MATH(l, OP_Add, EMIT_MATH(l, OP_Mul, z.re, z.re), EMIT_MATH(l, OP_Mul, z.im, z.im));
}

/* By squares in double precision, where those of float32 neither overflow nor vanish. */
Parts parts_reciprocal(Lowering *l, Parts z) {
  DType dtype = z.re->type.dtype;
  Value *re = cast_to(l, z.re, DTYPE_FLOAT64), *im = cast_to(l, z.im, DTYPE_FLOAT64);
  Value *square = EMIT_MATH(l, OP_Add, EMIT_MATH(l, OP_Mul, re, re), EMIT_MATH(l, OP_Mul, im, im));
  return (Parts){cast_to(l, EMIT_MATH(l, OP_Div, re, square), dtype),
                 cast_to(l, EMIT_MATH(l, OP_Neg, EMIT_MATH(l, OP_Div, im, square)), dtype)};
}

Parts conjugate_transposed(Lowering *l, Parts matrix) {
  return (Parts){transposed(l, matrix.re), matrix.im ? EMIT_MATH(l, OP_Neg, transposed(l, matrix.im)) : NULL};
}

Parts symmetric_from(Lowering *l, Parts matrix, bool lower) {
  Dim size = size_along(matrix.re, ROWS);
  Value *rows = numbers_along(l, ROWS, size), *columns = numbers_along(l, COLUMNS, size);
  Value *kept = EMIT_MATH(l, lower ? OP_GreaterOrEqual : OP_LessOrEqual, rows, columns);
  Parts other = conjugate_transposed(l, matrix);
  Value *real = EMIT_WHERE(l, kept, matrix.re, other.re);
  if (!matrix.im) return (Parts){real, NULL};
  Value *diagonal = EMIT_MATH(l, OP_Equal, rows, columns), *zero = number_like(l, real, 0);
  return (Parts){real, EMIT_WHERE(l, diagonal, zero, EMIT_WHERE(l, kept, matrix.im, other.im))};
}

Parts complex_product(Lowering *l, Parts a, Parts b) {
  Value *re = EMIT_MATH(l, OP_Sub, matrix_product(l, a.re, b.re), matrix_product(l, a.im, b.im));
  return (Parts){re, EMIT_MATH(l, OP_Add, matrix_product(l, a.re, b.im), matrix_product(l, a.im, b.re))};
}

static Value *square_of(Lowering *l, Value *x) { return EMIT_MATH(l, OP_Mul, x, x); }

/* In double precision, where squares and reciprocals of float32 neither overflow nor vanish. */
ComplexReflection complex_reflection_of(Lowering *l, Parts column, Value *rows, Value *index) {
  if (!column.im) {
    Reflection real = reflection_of(l, column.re, rows, index);
    return (ComplexReflection){{real.vector, NULL}, {real.tau, NULL}};
  }
  DType dtype = column.re->type.dtype, wide = DTYPE_FLOAT64;
  column = (Parts){cast_to(l, column.re, wide), cast_to(l, column.im, wide)};
  Value *zero = number_like(l, column.re, 0), *one = number_like(l, column.re, 1);
  Value *below = EMIT_MATH(l, OP_Greater, rows, index);
  Parts tail = parts_where(l, below, column, (Parts){zero, zero});
  Parts head = {slice_of(l, column.re, ROWS, index), slice_of(l, column.im, ROWS, index)};
  Value *square = EMIT_MATH(l, OP_Add, EMIT_ALONG(l, OP_ReduceSumSquare, tail.re, ROWS),
                            EMIT_ALONG(l, OP_ReduceSumSquare, tail.im, ROWS));
  square = EMIT_MATH(l, OP_Add, square, square_of(l, head.im));
  Value *nothing = EMIT_MATH(l, OP_Less, square, number_like(l, square, least_square(dtype)));
  Value *norm = EMIT_MATH(l, OP_Sqrt, EMIT_MATH(l, OP_Add, square, square_of(l, head.re)));
  Value *negative = EMIT_MATH(l, OP_Less, EMIT_MATH(l, OP_Reciprocal, head.re), zero); /* -0 counts as negative */
  Value *length = EMIT_WHERE(l, negative, norm, EMIT_MATH(l, OP_Neg, norm));
  length = EMIT_WHERE(l, nothing, one, length);
  Value *real = EMIT_MATH(l, OP_Div, EMIT_MATH(l, OP_Sub, length, head.re), length);
  Parts tau = {EMIT_WHERE(l, nothing, zero, real), EMIT_MATH(l, OP_Neg, EMIT_MATH(l, OP_Div, head.im, length))};
  Parts divisor = {EMIT_WHERE(l, nothing, one, EMIT_MATH(l, OP_Sub, head.re, length)), head.im};
  Value *size = parts_square(l, divisor);
  Parts factor = {EMIT_MATH(l, OP_Div, divisor.re, size), EMIT_MATH(l, OP_Neg, EMIT_MATH(l, OP_Div, divisor.im, size))};
  Parts vector = EMIT_PRODUCT(l, tail, factor);
  Value *own = EMIT_MATH(l, OP_Equal, rows, index);
  vector.re = EMIT_WHERE(l, own, one, vector.re);
  return (ComplexReflection){{cast_to(l, vector.re, dtype), cast_to(l, vector.im, dtype)},
                             {cast_to(l, tau.re, dtype), cast_to(l, tau.im, dtype)}};
}

Parts complex_reflected(Lowering *l, Parts matrix, ComplexReflection by, bool left) {
  if (!matrix.im) return (Parts){reflected(l, matrix.re, (Reflection){by.vector.re, by.tau.re}, left), NULL};
  Parts tau = {by.tau.re, left ? EMIT_MATH(l, OP_Neg, by.tau.im) : by.tau.im};
  Parts row = conjugate_transposed(l, by.vector), column = by.vector;
  if (left) row = complex_product(l, row, matrix);
  else column = complex_product(l, matrix, column);
  Parts share = EMIT_PRODUCT(l, EMIT_PRODUCT(l, column, tau), row);
  return (Parts){EMIT_MATH(l, OP_Sub, matrix.re, share.re), EMIT_MATH(l, OP_Sub, matrix.im, share.im)};
}

static Parts slice_parts(Lowering *l, Parts matrix, int64_t axis, Value *index) {
  return (Parts){slice_of(l, matrix.re, axis, index), slice_of(l, matrix.im, axis, index)};
}

ComplexTriangularized complex_triangularized(Lowering *l, Parts matrix, Dim count) {
  if (!matrix.im) {
    Triangularized real = triangularized(l, matrix.re, count);
    return (ComplexTriangularized){{real.upper, NULL}, {real.vectors, NULL}, {real.taus, NULL}};
  }
  Value *rows = numbers_along(l, ROWS, size_along(matrix.re, ROWS));
  Loop *loop = LOOP_BEGIN(l, "complex_geqrf", count, matrix.re, matrix.im);
  Parts rest = {loop->carried[0], loop->carried[1]};
  ComplexReflection reflection =
      complex_reflection_of(l, slice_parts(l, rest, COLUMNS, loop->index), rows, loop->index);
  rest = complex_reflected(l, rest, reflection, true);
  loop_collect(loop, reflection.vector.re, COLUMNS);
  loop_collect(loop, reflection.vector.im, COLUMNS);
  loop_collect(loop, reflection.tau.re, COLUMNS);
  loop_collect(loop, reflection.tau.im, COLUMNS);
  Value **results = EMIT_LOOP(loop, rest.re, rest.im);
  return (ComplexTriangularized){{results[0], results[1]}, {results[2], results[3]}, {results[4], results[5]}};
}

Parts complex_reflected_back(Lowering *l, ComplexTriangularized factors, Parts matrix) {
  if (!matrix.im) {
    Value *taus = from_row(l, factors.taus.re);
    return (Parts){reflected_by_all(l, factors.vectors.re, taus, matrix.re, true, true), NULL};
  }
  Dim count = size_along(factors.taus.re, COLUMNS);
  Loop *loop = LOOP_BEGIN_BACKWARDS(l, "complex_reflections", count, matrix.re, matrix.im);
  ComplexReflection by = {slice_parts(l, factors.vectors, COLUMNS, loop->index),
                          slice_parts(l, factors.taus, COLUMNS, loop->index)};
  by.tau.im = EMIT_MATH(l, OP_Neg, by.tau.im); /* complex_reflected takes the adjoint again */
  Parts next = complex_reflected(l, (Parts){loop->carried[0], loop->carried[1]}, by, true);
  Value **results = EMIT_LOOP(loop, next.re, next.im);
  return (Parts){results[0], results[1]};
}
