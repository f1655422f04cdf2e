/* eigh: the eigenvalues and eigenvectors of symmetric matrices, by Jacobi's method.
 *
 * The diagonal is kept apart from the rest: a rotation takes its pair's element from one end of the diagonal to the
 * other, exactly, and the element is zero from then on. What is left fades quadratically, so the eigenvalues are as
 * accurate as the size of the matrix allows.
 */
#include "lower/arithmetic.h"
#include "lower/jacobi.h"
#include "lower/loops.h"
#include "lower/matrices.h"

/* Only one triangle is looked at. */
static Value *symmetric_from(Lowering *l, Value *matrix, bool lower) {
  Dim size = size_along(matrix, ROWS);
  Value *rows = numbers_along(l, ROWS, size), *columns = numbers_along(l, COLUMNS, size);
  Value *kept = EMIT_MATH(l, lower ? "GreaterOrEqual" : "LessOrEqual", rows, columns);
  return EMIT_WHERE(l, kept, matrix, transposed(l, matrix));
}

typedef struct Pairs {
  Value *values;  /* a column */
  Value *vectors; /* rows */
} Pairs;

/* The element of each pair: of the two that are equal but for rounding, both rivals take the same. */
static Value *pair_elements(Lowering *l, const Seats *seats, Value *matrix) {
  int64_t *rows = arena_new_array(&l->context->arena, (size_t)seats->count, int64_t);
  int64_t *columns = arena_new_array(&l->context->arena, (size_t)seats->count, int64_t);
  for (int64_t i = 0; i < seats->count; i++) {
    bool before = seats->from[i] < seats->rival[i];
    rows[i] = before ? seats->from[i] : seats->rival[i];
    columns[i] = before ? seats->rival[i] : seats->from[i];
  }
  return entries_at(l, matrix, rows, columns);
}

/* One round for all pairs; gives the turned ones. */
static Value *turn(Lowering *l, const Seats *seats, Value **diagonal, Value **rest, Value **vectors) {
  DType dtype = (*rest)->type.dtype;
  Value *element = pair_elements(l, seats, *rest);
  Value *own = rows_at(l, *diagonal, seats->from), *other = rows_at(l, *diagonal, seats->rival);
  Value *twice = EMIT_MATH(l, "Add", element, element);
  Angle angle = half_angle(l, seats, twice, EMIT_MATH(l, "Sub", own, other), spacing_of(dtype) / 2);
  *diagonal = EMIT_MATH(l, "Add", own, EMIT_MATH(l, "Mul", angle.tangent, element));
  Value *rows = transposed(l, rotated_rows(l, seats, *rest, angle.cosine, angle.sine));
  Value *both = rotated_rows(l, seats, rows, angle.cosine, angle.sine);
  *rest = EMIT_MATH(l, "Mul", both, rivals_mask(l, seats, dtype, false));
  *vectors = rotated_rows(l, seats, *vectors, angle.cosine, angle.sine);
  return angle.turned;
}

/* In the order of the seats that the rows end in. */
static Pairs diagonalized(Lowering *l, Value *matrix) {
  Seats seats = seats_for(l, size_along(matrix, ROWS).constant);
  Dim size = dim_of(seats.count);
  int64_t *all = arena_new_array(&l->context->arena, (size_t)seats.count, int64_t);
  for (int64_t i = 0; i < seats.count; i++) all[i] = i;
  Value *identity = identity_matrix(l, matrix->type.dtype, size, size);
  Value *off = EMIT_MATH(l, "Sub", number_like(l, matrix, 1), identity);
  Value *start[] = {constant_integer(l, DTYPE_INT64, 0), entries_at(l, matrix, all, all),
                    EMIT_MATH(l, "Mul", matrix, off), expand_to(l, identity, matrix->type.dims, matrix->type.rank)};
  Loop *loop = loop_begin(l, "jacobi", dim_of(seats.rounds * MOST_SWEEPS), false, start, 4);
  Value *diagonal = loop->carried[1], *rest = loop->carried[2], *vectors = loop->carried[3];
  Value *quiet = quiet_rounds(l, loop->carried[0], turn(l, &seats, &diagonal, &rest, &vectors));
  loop->go_on = EMIT_MATH(l, "Less", quiet, integer_like(l, quiet, seats.rounds));
  Value **results = EMIT_LOOP(loop, quiet, diagonal, rest, vectors);
  return (Pairs){results[1], results[3]};
}

/* Which of the eigenvalues, in ascending order, are asked for; all by default. */
static void read_subset(Lowering *l, int64_t size, int64_t *start, int64_t *limit) {
  const Param *subset = param_find(l->equation, "subset_by_index");
  *start = 0;
  *limit = size;
  if (!subset || subset->kind == PARAM_NONE) return;
  size_t count;
  const int64_t *bounds = param_list_ints(l->context, subset, &count);
  require(l->context, count == 2 && bounds[0] >= 0 && bounds[0] <= bounds[1] && bounds[1] <= size);
  *start = bounds[0];
  *limit = bounds[1];
}

static void lower_eigh(Lowering *l) {
  Value *matrix = matrix_input(l, 0);
  int64_t size = known_size(l, matrix, ROWS), start, limit, last = (int64_t)matrix->type.rank - 1;
  read_subset(l, size, &start, &limit);
  if (size == 1 || is_empty(output_type(l, 0))) {
    bind(l, 0, filled(l, output_type(l, 0), tensor_scalar(l, output_type(l, 0).dtype, 1)));
    bind_as(l, 1, reshape_to(l, matrix, output_type(l, 1).dims, output_type(l, 1).rank));
    return;
  }
  matrix = symmetric_from(l, matrix, param_bool_or(l->equation, "lower", true));
  Value *scale = matrix_scale(l, matrix), *places;
  Pairs pairs = diagonalized(l, EMIT_MATH(l, "Div", matrix, scale));
  Value *values = EMIT_MATH(l, "Mul", in_order(l, pairs.values, false, &places), scale);
  Value *vectors = spoiled_by(l, rows_in_order(l, pairs.vectors, places), scale);
  bind_as(l, 0, transposed(l, part_along(l, vectors, ROWS, start, limit)));
  bind_as(l, 1, squeeze_at(l, part_along(l, values, ROWS, start, limit), &last, 1));
}

/* clang-format off */
const Plugin eigh_plugins[] = {
    PLUGIN("eigh", lower_eigh),
    {0},
};
/* clang-format on */
