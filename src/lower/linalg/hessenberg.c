/* hessenberg and tridiagonal: similar matrices that are zero below the subdiagonal, by Householder reflections.
 *
 * Results are LAPACK's: what a reflection's vector has below its leading one is stored in place of the zeros it made.
 */
#include "lower/linalg/hessenberg.h"

#include "lower/control/loops.h"
#include "lower/elementwise/arithmetic.h"
#include "lower/linalg/jacobi.h"
#include "lower/linalg/matrices.h"
#include "lower/linalg/reflections.h"

static Value *zeros(Lowering *l, Type type) { return filled(l, type, tensor_scalar(l, type.dtype, 0)); }

/* Column by column. The reflection of the last one but one has nothing to do, or makes its element real, as in LAPACK.
 */
Hessenberg hessenberg_of(Lowering *l, Parts matrix) {
  Type type = matrix.re->type;
  Dim size = size_along(matrix.re, ROWS);
  bool complex = matrix.im != NULL;
  Value *identity = expand_to(l, identity_matrix(l, type.dtype, size, size), type.dims, type.rank);
  Value *start[] = {matrix.re, identity, matrix.im, complex ? zeros(l, type) : NULL};
  Value *rows = numbers_along(l, ROWS, size);
  Dim count = dim_subtract(l->context, size, dim_of(1));
  Loop *loop = loop_begin(l, "hessenberg", count, false, start, complex ? 4 : 2);
  Parts form = {loop->carried[0], complex ? loop->carried[2] : NULL};
  Parts basis = {loop->carried[1], complex ? loop->carried[3] : NULL};
  Value *below = EMIT_MATH(l, OP_Add, loop->index, integer_like(l, loop->index, 1));
  Parts column = {slice_of(l, form.re, COLUMNS, loop->index),
                  complex ? slice_of(l, form.im, COLUMNS, loop->index) : NULL};
  ComplexReflection by = complex_reflection_of(l, column, rows, below);
  form = complex_reflected(l, complex_reflected(l, form, by, true), by, false);
  basis = complex_reflected(l, basis, by, false);
  Value *collected[] = {by.vector.re, by.tau.re, by.vector.im, by.tau.im};
  for (size_t i = 0; i < (complex ? 4 : 2); i++) loop_collect(loop, collected[i], COLUMNS);
  Value *next[] = {form.re, basis.re, form.im, basis.im};
  Value **results = emit_loop_end(loop, HERE, next, complex ? 4 : 2);
  if (!complex) return (Hessenberg){{results[0], NULL}, {results[1], NULL}, {results[2], NULL}, {results[3], NULL}};
  return (Hessenberg){
      {results[0], results[2]}, {results[1], results[3]}, {results[4], results[6]}, {results[5], results[7]}};
}

/* A part of the form, and below its subdiagonal the vectors. */
static Value *packed(Lowering *l, Value *form, Value *vectors) {
  Value *stored = extended(l, triangle(l, vectors, true, -2), COLUMNS, size_along(form, COLUMNS));
  return EMIT_MATH(l, OP_Add, triangle(l, form, false, -1), stored);
}

static void lower_hessenberg(Lowering *l) {
  Parts matrix = matrix_parts(l, 0);
  if (is_empty(output_type(l, 1))) {
    bind_matrix(l, 0, matrix);
    bind(l, 1, zeros(l, output_type(l, 1)));
    return;
  }
  Hessenberg reduced = hessenberg_of(l, matrix);
  Parts stored = {packed(l, reduced.form.re, reduced.vectors.re), NULL};
  if (matrix.im) stored.im = packed(l, reduced.form.im, reduced.vectors.im);
  bind_matrix(l, 0, stored);
  bind_matrix(l, 1, (Parts){from_row(l, reduced.taus.re), matrix.im ? from_row(l, reduced.taus.im) : NULL});
}

/* Backwards along an axis. */
static Value *reversed(Lowering *l, Value *matrix, int64_t axis) {
  static const int64_t last[] = {-1}, before_first[] = {INT64_MIN};
  int64_t number = axis + matrix->type.rank;
  Value *step = constant_ints(l, last, 1), *end = constant_ints(l, before_first, 1);
  return EMIT(l, OP_Slice, matrix->type, matrix, step, end, constant_ints(l, &number, 1), step);
}

static Value *turned(Lowering *l, Value *matrix) { return reversed(l, reversed(l, matrix, ROWS), COLUMNS); }

/* matrix[i + offset, i] as a column. */
static Value *diagonal_below(Lowering *l, Value *matrix, int64_t offset) {
  Value *columns = counted(l, dim_subtract(l->context, size_along(matrix, ROWS), dim_of(offset)));
  return entries_at(l, matrix, EMIT_MATH(l, OP_Add, columns, integer_like(l, columns, offset)), columns);
}

/* Results of the equation for one part of the matrix, turned back. */
typedef struct Tridiagonal {
  Value *packed; /* the other triangle is that of the input */
  Value *taus;
} Tridiagonal;

static Tridiagonal part_results(Lowering *l, Value *matrix, Value *form, Value *vectors, Value *taus, bool lower) {
  Dim size = size_along(matrix, ROWS);
  Value *above = EMIT_MATH(l, OP_Less, numbers_along(l, ROWS, size), numbers_along(l, COLUMNS, size));
  Value *stored = EMIT_WHERE(l, above, matrix, packed(l, form, vectors));
  return (Tridiagonal){lower ? stored : turned(l, stored), from_row(l, lower ? taus : reversed(l, taus, COLUMNS))};
}

/* Of the lower triangle: LAPACK starts from the first column with it, and from the last with the upper one. */
static void lower_tridiagonal(Lowering *l) {
  Parts matrix = matrix_parts(l, 0);
  bool lower = param_bool_or(l->equation, "lower", true);
  if (is_empty(output_type(l, 2))) { /* of one row: what is on the diagonal is real */
    bind_matrix(l, 0, (Parts){matrix.re, matrix.im ? number_like(l, matrix.re, 0) : NULL});
    bind_as(l, 1, reshape_to(l, matrix.re, output_type(l, 1).dims, output_type(l, 1).rank));
    for (size_t i = 2; i < 4; i++) bind(l, i, zeros(l, output_type(l, i)));
    return;
  }
  if (!lower) matrix = (Parts){turned(l, matrix.re), matrix.im ? turned(l, matrix.im) : NULL};
  Hessenberg reduced = hessenberg_of(l, symmetric_from(l, matrix, true));
  Tridiagonal real = part_results(l, matrix.re, reduced.form.re, reduced.vectors.re, reduced.taus.re, lower);
  Tridiagonal imaginary = {0};
  if (matrix.im) {
    Value *form = triangle(l, reduced.form.im, false, 2); /* what is left of the tridiagonal part is rounding error */
    imaginary = part_results(l, matrix.im, form, reduced.vectors.im, reduced.taus.im, lower);
  }
  Value *diagonal = diagonal_below(l, reduced.form.re, 0), *beside = diagonal_below(l, reduced.form.re, 1);
  bind_matrix(l, 0, (Parts){real.packed, imaginary.packed});
  bind_as(l, 1, from_column(l, lower ? diagonal : reversed(l, diagonal, ROWS)));
  bind_as(l, 2, from_column(l, lower ? beside : reversed(l, beside, ROWS)));
  bind_matrix(l, 3, (Parts){real.taus, imaginary.taus});
}

/* clang-format off */
const Plugin hessenberg_plugins[] = {
    PLUGIN("hessenberg", lower_hessenberg, OP_NONE, TAKES_COMPLEX),
    PLUGIN("tridiagonal", lower_tridiagonal, OP_NONE, TAKES_COMPLEX),
    {0},
};
/* clang-format on */
