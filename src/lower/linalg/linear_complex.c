/* The factorisations and solvers on complex matrices: the steps of their namesakes on real ones, by parts. */
#include "lower/linalg/linear_complex.h"

#include <math.h>

#include "lower/control/loops.h"
#include "lower/linalg/complex_matrices.h"
#include "lower/linalg/matrices.h"

static Parts slices(Lowering *l, Parts matrix, int64_t axis, Value *index) {
  return (Parts){slice_of(l, matrix.re, axis, index), slice_of(l, matrix.im, axis, index)};
}

static Parts reordered_parts(Lowering *l, Parts matrix, int64_t axis, Value *places) {
  return (Parts){reordered(l, matrix.re, axis, places), reordered(l, matrix.im, axis, places)};
}

static Parts number_parts(Lowering *l, Parts like, double number) {
  return (Parts){number_like(l, like.re, number), number_like(l, like.re, 0)};
}

static bool bound_empty(Lowering *l, size_t index) {
  if (!is_empty(output_type(l, 0))) return false;
  bind(l, 0, input(l, index));
  return true;
}

/* Diagonals are taken to be real, as LAPACK does. */
void lower_complex_cholesky(Lowering *l) {
  if (bound_empty(l, 0)) return;
  Parts matrix = matrix_parts(l, 0);
  Value *rows = numbers_along(l, ROWS, size_along(matrix.re, ROWS)), *zero = number_like(l, matrix.re, 0);
  Loop *loop = LOOP_BEGIN(l, "complex_cholesky", size_along(matrix.re, ROWS), matrix.re, matrix.im);
  Parts rest = {loop->carried[0], loop->carried[1]}, column = slices(l, rest, COLUMNS, loop->index);
  Value *root = EMIT_MATH(l, OP_Sqrt, slice_of(l, column.re, ROWS, loop->index));
  Value *re = EMIT_MATH(l, OP_Div, column.re, root), *im = EMIT_MATH(l, OP_Div, column.im, root);
  Parts factor = {EMIT_WHERE(l, EMIT_MATH(l, OP_GreaterOrEqual, rows, loop->index), re, zero),
                  EMIT_WHERE(l, EMIT_MATH(l, OP_Greater, rows, loop->index), im, zero)};
  Parts after = parts_difference(l, rest, EMIT_PRODUCT(l, factor, conjugate_transposed(l, factor)));
  loop_collect(loop, factor.re, COLUMNS);
  loop_collect(loop, factor.im, COLUMNS);
  Value **results = EMIT_LOOP(loop, after.re, after.im);
  Value *sum = EMIT_ALONG(l, OP_ReduceSum, EMIT_ALONG(l, OP_ReduceSum, results[2], ROWS), COLUMNS);
  Value *failed = EMIT_MATH(l, OP_IsNaN, sum), *nan = number_like(l, sum, NAN);
  bind_parts(l, 0, parts_where(l, failed, (Parts){nan, nan}, (Parts){results[2], results[3]}));
}

void lower_complex_triangular_solve(Lowering *l) {
  if (bound_empty(l, 1)) return;
  bool transpose = param_bool_or(l->equation, "transpose_a", false);
  bool left = param_bool_or(l->equation, "left_side", false);
  bool lower = param_bool_or(l->equation, "lower", false) != transpose;
  Parts a = matrix_parts(l, 0), b = matrix_parts(l, 1);
  if (param_bool_or(l->equation, "conjugate_a", false)) a.im = EMIT_MATH(l, OP_Neg, a.im);
  if (transpose) a = (Parts){transposed(l, a.re), transposed(l, a.im)};
  int64_t unknowns = left ? ROWS : COLUMNS, across = left ? COLUMNS : ROWS;
  Loop *loop = loop_begin(l, "complex_triangular_solve", size_along(a.re, ROWS), lower != left, VALUES(b.re, b.im), 2);
  Parts rest = {loop->carried[0], loop->carried[1]};
  Parts factors = slices(l, a, across, loop->index), solved = slices(l, rest, unknowns, loop->index);
  if (!param_bool_or(l->equation, "unit_diagonal", false)) {
    solved = EMIT_PRODUCT(l, solved, parts_reciprocal(l, slices(l, factors, unknowns, loop->index)));
  }
  Parts after = parts_difference(l, rest, EMIT_PRODUCT(l, factors, solved));
  loop_collect(loop, solved.re, unknowns);
  loop_collect(loop, solved.im, unknowns);
  Value **results = EMIT_LOOP(loop, after.re, after.im);
  bind_parts(l, 0, (Parts){results[2], results[3]});
}

/* Elements are compared by the sum of the sizes of their parts, as LAPACK does. */
void lower_complex_lu(Lowering *l) {
  Parts matrix = matrix_parts(l, 0);
  Type pivots = output_type(l, 1), column_type = resized(l, matrix.re->type, COLUMNS, dim_of(1));
  Value *rows = numbers_along(l, ROWS, size_along(matrix.re, ROWS));
  Value *initial = expand_to(l, rows, column_type.dims, column_type.rank);
  Loop *loop = LOOP_BEGIN(l, "complex_lu", pivots.dims[pivots.rank - 1], matrix.re, matrix.im, initial);
  Parts rest = {loop->carried[0], loop->carried[1]}, column = slices(l, rest, COLUMNS, loop->index);
  Value *sizes = EMIT_MATH(l, OP_Add, EMIT_MATH(l, OP_Abs, column.re), EMIT_MATH(l, OP_Abs, column.im));
  sizes = reordered(l, sizes, ROWS, loop->carried[2]);
  Value *open = EMIT_MATH(l, OP_GreaterOrEqual, rows, loop->index);
  Value *place = EMIT_ALONG(l, OP_ArgMax, EMIT_WHERE(l, open, sizes, number_like(l, sizes, -1)), ROWS);
  Value *order = reordered(l, loop->carried[2], ROWS, exchanged(l, rows, loop->index, place));
  Parts row = reordered_parts(l, rest, ROWS, slice_of(l, order, ROWS, loop->index));
  Parts pivot = slices(l, row, COLUMNS, loop->index);
  Value *zero = number_like(l, pivot.re, 0);
  Value *vanishes =
      EMIT_MATH(l, OP_And, EMIT_MATH(l, OP_Equal, pivot.re, zero), EMIT_MATH(l, OP_Equal, pivot.im, zero));
  Parts divisor = parts_where(l, vanishes, number_parts(l, pivot, 1), pivot);
  Parts multipliers = EMIT_PRODUCT(l, column, parts_reciprocal(l, divisor));
  Parts after = parts_difference(l, rest, EMIT_PRODUCT(l, multipliers, row));
  Value *const collected[] = {multipliers.re, multipliers.im, row.re, row.im, place};
  static const int64_t axes[] = {COLUMNS, COLUMNS, ROWS, ROWS, COLUMNS};
  for (size_t i = 0; i < 5; i++) loop_collect(loop, collected[i], axes[i]);
  Value **results = EMIT_LOOP(loop, after.re, after.im, order), **pieces = results + 3;
  Parts lower = reordered_parts(l, (Parts){pieces[0], pieces[1]}, ROWS, results[2]);
  bind_parts(l, 0, (Parts){both_triangles(l, lower.re, pieces[2]), both_triangles(l, lower.im, pieces[3])});
  bind_as(l, 1, from_row(l, pieces[4]));
  bind_as(l, 2, from_column(l, results[2]));
}

void lower_complex_geqrf(Lowering *l) {
  if (bound_empty(l, 0)) {
    bind(l, 1, filled(l, output_type(l, 1), tensor_scalar(l, output_type(l, 1).dtype, 0)));
    return;
  }
  Type taus = output_type(l, 1);
  ComplexTriangularized factors = complex_triangularized(l, matrix_parts(l, 0), taus.dims[taus.rank - 2]);
  bind_parts(l, 0,
             (Parts){both_triangles(l, factors.vectors.re, factors.upper.re),
                     both_triangles(l, factors.vectors.im, factors.upper.im)});
  bind_parts(l, 1, (Parts){from_row(l, factors.taus.re), from_row(l, factors.taus.im)});
}

/* The reflections that inputs 0 and 1 of the equation store. */
static ComplexTriangularized stored_reflections(Lowering *l) {
  Parts stored = matrix_parts(l, 0), taus = matrix_parts(l, 1);
  Value *ones = identity_matrix(l, stored.re->type.dtype, size_along(stored.re, ROWS), size_along(stored.re, COLUMNS));
  Parts vectors = {EMIT_MATH(l, OP_Add, triangle(l, stored.re, true, -1), ones), triangle(l, stored.im, true, -1)};
  return (ComplexTriangularized){.vectors = vectors, .taus = {as_row(l, taus.re), as_row(l, taus.im)}};
}

/* The adjoint of the unitary factor times a matrix. */
static Parts reflected_forth(Lowering *l, ComplexTriangularized factors, Parts matrix) {
  Loop *loop = LOOP_BEGIN(l, "complex_reflections", size_along(factors.taus.re, COLUMNS), matrix.re, matrix.im);
  ComplexReflection by = {slices(l, factors.vectors, COLUMNS, loop->index),
                          slices(l, factors.taus, COLUMNS, loop->index)};
  Parts next = complex_reflected(l, (Parts){loop->carried[0], loop->carried[1]}, by, true);
  Value **results = EMIT_LOOP(loop, next.re, next.im);
  return (Parts){results[0], results[1]};
}

void lower_complex_householder_product(Lowering *l) {
  ComplexTriangularized factors = stored_reflections(l);
  Type type = part_type(output_type(l, 0));
  Value *ones = identity_matrix(l, type.dtype, type.dims[type.rank - 2], type.dims[type.rank - 1]);
  Parts matrix = {expand_to(l, ones, type.dims, type.rank), filled(l, type, tensor_scalar(l, type.dtype, 0))};
  bool none = is_empty(output_type(l, 0)) || dim_is(size_along(factors.taus.re, COLUMNS), 0);
  bind_parts(l, 0, none ? matrix : complex_reflected_back(l, factors, matrix));
}

/* From the right by the adjoints of everything. */
void lower_complex_ormqr(Lowering *l) {
  bool left = param_bool_or(l->equation, "left", true), transpose = param_bool_or(l->equation, "transpose", false);
  ComplexTriangularized factors = stored_reflections(l);
  if (dim_is(size_along(factors.taus.re, COLUMNS), 0) || is_empty(output_type(l, 0))) {
    bind(l, 0, input(l, 2));
    return;
  }
  Parts matrix = matrix_parts(l, 2);
  if (!left) matrix = conjugate_transposed(l, matrix);
  bool back = left != transpose;
  matrix = back ? complex_reflected_back(l, factors, matrix) : reflected_forth(l, factors, matrix);
  bind_parts(l, 0, left ? matrix : conjugate_transposed(l, matrix));
}
