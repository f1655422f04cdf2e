/* hessenberg and tridiagonal: similar matrices that are zero below the subdiagonal, by Householder reflections.
 *
 * Results are LAPACK's: what a reflection's vector has below its leading one is stored in place of the zeros it made.
 */
#include "lower/hessenberg.h"

#include "lower/arithmetic.h"
#include "lower/jacobi.h"
#include "lower/loops.h"
#include "lower/matrices.h"
#include "lower/reflections.h"

/* Column by column; the reflection of the last one but one has nothing to do, as in LAPACK. */
Hessenberg hessenberg_of(Lowering *l, Value *matrix) {
  Dim size = size_along(matrix, ROWS);
  Value *identity = identity_matrix(l, matrix->type.dtype, size, size);
  Value *rows = numbers_along(l, ROWS, size);
  identity = expand_to(l, identity, matrix->type.dims, matrix->type.rank);
  Loop *loop = LOOP_BEGIN(l, "hessenberg", dim_subtract(l->context, size, dim_of(1)), matrix, identity);
  Value *form = loop->carried[0], *basis = loop->carried[1];
  Value *below = EMIT_MATH(l, "Add", loop->index, integer_like(l, loop->index, 1));
  Reflection reflection = reflection_of(l, slice_of(l, form, COLUMNS, loop->index), rows, below);
  form = reflected(l, reflected(l, form, reflection, true), reflection, false);
  basis = reflected(l, basis, reflection, false);
  loop_collect(loop, reflection.vector, COLUMNS);
  loop_collect(loop, reflection.tau, COLUMNS);
  Value **results = EMIT_LOOP(loop, form, basis);
  return (Hessenberg){results[0], results[1], results[2], results[3]};
}

/* The vectors below the subdiagonal, zero elsewhere. */
static Value *stored_vectors(Lowering *l, Hessenberg reduced) {
  return extended(l, triangle(l, reduced.vectors, true, -2), COLUMNS, size_along(reduced.form, COLUMNS));
}

static Value *zeros(Lowering *l, Type type) { return filled(l, type, tensor_scalar(l, type.dtype, 0)); }

static void lower_hessenberg(Lowering *l) {
  Value *matrix = matrix_input(l, 0);
  if (is_empty(output_type(l, 1))) {
    bind_as(l, 0, matrix);
    bind(l, 1, zeros(l, output_type(l, 1)));
    return;
  }
  Hessenberg reduced = hessenberg_of(l, matrix);
  bind_as(l, 0, EMIT_MATH(l, "Add", triangle(l, reduced.form, false, -1), stored_vectors(l, reduced)));
  bind_as(l, 1, from_row(l, reduced.taus));
}

/* Backwards along an axis. */
static Value *reversed(Lowering *l, Value *matrix, int64_t axis) {
  static const int64_t last[] = {-1}, before_first[] = {INT64_MIN};
  int64_t number = axis + matrix->type.rank;
  Value *step = constant_ints(l, last, 1), *end = constant_ints(l, before_first, 1);
  return EMIT(l, "Slice", matrix->type, matrix, step, end, constant_ints(l, &number, 1), step);
}

static Value *turned(Lowering *l, Value *matrix) { return reversed(l, reversed(l, matrix, ROWS), COLUMNS); }

/* matrix[i + offset, i] as a column. */
static Value *diagonal_below(Lowering *l, Value *matrix, int64_t offset) {
  int64_t size = size_along(matrix, ROWS).constant;
  int64_t *rows = arena_new_array(&l->context->arena, (size_t)size, int64_t);
  int64_t *columns = arena_new_array(&l->context->arena, (size_t)size, int64_t);
  for (int64_t i = 0; i < size; i++) {
    rows[i] = i + offset < size ? i + offset : 0;
    columns[i] = i;
  }
  return part_along(l, entries_at(l, matrix, rows, columns), ROWS, 0, size - offset);
}

/* Of the lower triangle: LAPACK starts from the first column with it, and from the last with the upper one. */
static void lower_tridiagonal(Lowering *l) {
  Value *matrix = matrix_input(l, 0);
  bool lower = param_bool_or(l->equation, "lower", true);
  int64_t size = known_size(l, matrix, ROWS);
  if (is_empty(output_type(l, 2))) {
    bind_as(l, 0, matrix);
    bind_as(l, 1, reshape_to(l, matrix, output_type(l, 1).dims, output_type(l, 1).rank));
    for (size_t i = 2; i < 4; i++) bind(l, i, zeros(l, output_type(l, i)));
    return;
  }
  if (!lower) matrix = turned(l, matrix);
  Value *rows = numbers_along(l, ROWS, dim_of(size)), *columns = numbers_along(l, COLUMNS, dim_of(size));
  Value *above = EMIT_MATH(l, "Less", rows, columns);
  Hessenberg reduced = hessenberg_of(l, EMIT_WHERE(l, above, transposed(l, matrix), matrix));
  Value *kept = EMIT_MATH(l, "Add", triangle(l, reduced.form, false, -1), stored_vectors(l, reduced));
  Value *packed = EMIT_WHERE(l, above, matrix, kept);
  Value *diagonal = diagonal_below(l, reduced.form, 0), *beside = diagonal_below(l, reduced.form, 1);
  bind_as(l, 0, lower ? packed : turned(l, packed));
  bind_as(l, 1, from_column(l, lower ? diagonal : reversed(l, diagonal, ROWS)));
  bind_as(l, 2, from_column(l, lower ? beside : reversed(l, beside, ROWS)));
  bind_as(l, 3, from_row(l, lower ? reduced.taus : reversed(l, reduced.taus, COLUMNS)));
}

/* clang-format off */
const Plugin hessenberg_plugins[] = {
    PLUGIN("hessenberg", lower_hessenberg),
    PLUGIN("tridiagonal", lower_tridiagonal),
    {0},
};
/* clang-format on */
