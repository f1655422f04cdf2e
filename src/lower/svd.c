/* svd: singular values and vectors, by Kogbetliantz' method, Jacobi's for matrices that are not symmetric.
 *
 * Rows and columns of a pair are rotated by angles of their own, so that both elements off the diagonal vanish. The
 * vectors are products of rotations and stay orthonormal whatever the rank is. A matrix that is not square is first
 * reduced to the triangular factor of its QR decomposition.
 */
#include "lower/arithmetic.h"
#include "lower/jacobi.h"
#include "lower/loops.h"
#include "lower/matrices.h"
#include "lower/reflections.h"

typedef struct Singular {
  Value *values; /* a column, in descending order */
  Value *left;   /* vectors as rows */
  Value *right;  /* vectors as rows */
} Singular;

/* One round for all pairs; gives the turned ones. With a, b / c, d for the elements of a pair, half the sum and half
 * the difference of the two angles have the tangents (c + b) / (a - d) and (c - b) / (a + d). */
static Value *turn(Lowering *l, const Seats *seats, Value **core, Value **left, Value **right) {
  DType dtype = (*core)->type.dtype;
  const int64_t *own = seats->from, *rival = seats->rival;
  Value *a = entries_at(l, *core, own, own), *b = entries_at(l, *core, own, rival);
  Value *c = entries_at(l, *core, rival, own), *d = entries_at(l, *core, rival, rival);
  Value *together = EMIT_MATH(l, "Add", c, b);
  if (seats->count % 2) together = EMIT_MATH(l, "Mul", together, has_rival(l, seats, dtype));
  double tolerance = spacing_of(dtype) / 2;
  Angle sum = half_angle(l, seats, together, EMIT_MATH(l, "Sub", a, d), tolerance);
  Angle difference = half_angle(l, seats, EMIT_MATH(l, "Sub", c, b), EMIT_MATH(l, "Add", a, d), tolerance);
  Value *cosines = EMIT_MATH(l, "Mul", sum.cosine, difference.cosine);
  Value *sines = EMIT_MATH(l, "Mul", sum.sine, difference.sine);
  Value *first = EMIT_MATH(l, "Mul", sum.sine, difference.cosine);
  Value *second = EMIT_MATH(l, "Mul", sum.cosine, difference.sine);
  Value *left_cosine = EMIT_MATH(l, "Sub", cosines, sines), *left_sine = EMIT_MATH(l, "Add", first, second);
  Value *right_cosine = EMIT_MATH(l, "Add", cosines, sines), *right_sine = EMIT_MATH(l, "Sub", first, second);
  Value *rows = transposed(l, rotated_rows(l, seats, *core, left_cosine, left_sine));
  Value *both = transposed(l, rotated_rows(l, seats, rows, right_cosine, right_sine));
  *core = EMIT_MATH(l, "Mul", both, rivals_mask(l, seats, dtype, true));
  *left = rotated_rows(l, seats, *left, left_cosine, left_sine);
  *right = rotated_rows(l, seats, *right, right_cosine, right_sine);
  return EMIT_MATH(l, "Or", sum.turned, difference.turned);
}

/* The values have signs and stand in the order of the seats that the rows end in. */
static Singular diagonalized(Lowering *l, Value *matrix) {
  Seats seats = seats_for(l, size_along(matrix, ROWS).constant);
  Dim size = dim_of(seats.count);
  int64_t *all = arena_new_array(&l->context->arena, (size_t)seats.count, int64_t);
  for (int64_t i = 0; i < seats.count; i++) all[i] = i;
  Value *identity = identity_matrix(l, matrix->type.dtype, size, size);
  identity = expand_to(l, identity, matrix->type.dims, matrix->type.rank);
  if (seats.count == 1) return (Singular){matrix, identity, identity};
  Value *quiet = constant_integer(l, DTYPE_INT64, 0);
  Loop *loop = LOOP_BEGIN(l, "kogbetliantz", dim_of(seats.rounds * MOST_SWEEPS), quiet, matrix, identity, identity);
  Value *core = loop->carried[1], *left = loop->carried[2], *right = loop->carried[3];
  quiet = quiet_rounds(l, loop->carried[0], turn(l, &seats, &core, &left, &right));
  loop->go_on = EMIT_MATH(l, "Less", quiet, integer_like(l, quiet, seats.rounds));
  Value **results = EMIT_LOOP(loop, quiet, core, left, right);
  return (Singular){entries_at(l, results[1], all, all), results[2], results[3]};
}

static Singular square_svd(Lowering *l, Value *matrix, Value *scale) {
  Singular found = diagonalized(l, matrix), result;
  Value *negative = EMIT_MATH(l, "Less", found.values, number_like(l, matrix, 0)), *places;
  Value *sign = EMIT_WHERE(l, negative, number_like(l, matrix, -1), number_like(l, matrix, 1));
  Value *left = EMIT_MATH(l, "Mul", found.left, sign);
  result.values = EMIT_MATH(l, "Mul", in_order(l, EMIT_MATH(l, "Abs", found.values), true, &places), scale);
  result.left = spoiled_by(l, rows_in_order(l, left, places), scale);
  result.right = spoiled_by(l, rows_in_order(l, found.right, places), scale);
  return result;
}

/* As many rows as columns, or more: the left vectors are those of the triangular factor, reflected back; those that
 * complete them to a basis are the last columns of the orthogonal factor. */
static Singular tall_svd(Lowering *l, Value *matrix, bool full) {
  Value *scale = matrix_scale(l, matrix);
  matrix = EMIT_MATH(l, "Div", matrix, scale);
  int64_t rows = size_along(matrix, ROWS).constant, columns = size_along(matrix, COLUMNS).constant;
  if (rows == columns) return square_svd(l, matrix, scale);
  Triangularized factors = triangularized(l, matrix, dim_of(columns));
  Value *upper = triangle(l, part_along(l, factors.upper, ROWS, 0, columns), false, 0);
  Singular result = square_svd(l, upper, scale);
  Value *left = extended(l, transposed(l, result.left), ROWS, dim_of(rows));
  if (full) {
    Value *rest = identity_matrix(l, matrix->type.dtype, dim_of(rows), dim_of(rows));
    Type type = resized(l, left->type, COLUMNS, dim_of(rows - columns));
    rest = expand_to(l, part_along(l, rest, COLUMNS, columns, rows), type.dims, type.rank);
    type = resized(l, left->type, COLUMNS, dim_of(rows));
    left = concat_at(l, VALUES(left, rest), 2, (int64_t)type.rank - 1, type);
  }
  left = reflected_by_all(l, factors.vectors, from_row(l, factors.taus), left, true, true);
  result.left = transposed(l, left);
  return result;
}

/* Elements of the values' axis that are asked for; all by default. */
static void bind_singular(Lowering *l, Singular singular, bool vectors, bool full) {
  const Param *subset = param_find(l->equation, "subset_by_index");
  uint32_t rank = output_type(l, 0).rank;
  int64_t last = rank;
  if (subset && subset->kind != PARAM_NONE) {
    size_t count;
    const int64_t *bounds = param_list_ints(l->context, subset, &count);
    int64_t size = size_along(singular.values, ROWS).constant;
    require(l->context, count == 2 && bounds[0] >= 0 && bounds[0] <= bounds[1] && bounds[1] <= size);
    bool whole = bounds[0] == 0 && bounds[1] == size;
    if (full && vectors && !whole) unsupported(l, "a part of the singular values goes with full_matrices=False only");
    singular.values = part_along(l, singular.values, ROWS, bounds[0], bounds[1]);
    if (!whole) singular.left = part_along(l, singular.left, ROWS, bounds[0], bounds[1]);
    if (!whole) singular.right = part_along(l, singular.right, ROWS, bounds[0], bounds[1]);
  }
  bind_as(l, 0, squeeze_at(l, singular.values, &last, 1));
  if (!vectors) return;
  bind_as(l, 1, transposed(l, singular.left));
  bind_as(l, 2, singular.right);
}

static void bind_nothing(Lowering *l, bool vectors) {
  Type values = output_type(l, 0);
  bind(l, 0, filled(l, values, tensor_scalar(l, values.dtype, 0)));
  for (size_t i = 1; vectors && i < 3; i++) {
    Type type = output_type(l, i);
    Value *identity = identity_matrix(l, type.dtype, type.dims[type.rank - 2], type.dims[type.rank - 1]);
    bind(l, i, expand_to(l, identity, type.dims, type.rank));
  }
}

static void lower_svd(Lowering *l) {
  Value *matrix = matrix_input(l, 0);
  bool vectors = param_bool_or(l->equation, "compute_uv", true);
  bool full = param_bool_or(l->equation, "full_matrices", true);
  bool wide = known_size(l, matrix, ROWS) < known_size(l, matrix, COLUMNS);
  if (is_empty(matrix->type)) {
    bind_nothing(l, vectors);
    return;
  }
  Singular singular = tall_svd(l, wide ? transposed(l, matrix) : matrix, full && vectors);
  if (wide) singular = (Singular){singular.values, singular.right, singular.left};
  bind_singular(l, singular, vectors, full);
}

/* clang-format off */
const Plugin svd_plugins[] = {
    PLUGIN("svd", lower_svd),
    {0},
};
/* clang-format on */
