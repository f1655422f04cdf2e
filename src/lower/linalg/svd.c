/* svd: singular values and vectors, by Kogbetliantz' method, Jacobi's for matrices that are not symmetric.
 *
 * Rows and columns of a pair are rotated by angles of their own, so that both elements off the diagonal vanish. The
 * vectors are products of rotations and stay orthonormal whatever the rank is. A matrix that is not square is first
 * reduced to the triangular factor of its QR decomposition.
 */
#include "lower/control/loops.h"
#include "lower/elementwise/arithmetic.h"
#include "lower/linalg/jacobi.h"
#include "lower/linalg/matrices.h"
#include "lower/linalg/svd_complex.h"

typedef struct Singular {
  Value *values; /* a column */
  Parts left;    /* conjugated vectors as rows */
  Parts right;   /* likewise */
} Singular;

static Value *rotated(Lowering *l, const Seats *seats, Value *matrix, Value *cosine, Value *sine) {
  return rotated_rows(l, seats, (Parts){matrix, NULL}, (Parts){cosine, NULL}, (Parts){sine, NULL}).re;
}

static Singular without_phases(Lowering *l, Parts diagonal, Parts left, Parts right) {
  if (diagonal.im) {
    Value *size = magnitude(l, diagonal);
    Parts phase = phase_of(l, diagonal, size);
    phase.im = EMIT_MATH(l, OP_Neg, phase.im);
    return (Singular){size, EMIT_PRODUCT(l, left, phase), right};
  }
  Value *negative = EMIT_MATH(l, OP_Less, diagonal.re, number_like(l, diagonal.re, 0));
  Value *sign = EMIT_WHERE(l, negative, number_like(l, diagonal.re, -1), number_like(l, diagonal.re, 1));
  left.re = EMIT_MATH(l, OP_Mul, left.re, sign);
  return (Singular){EMIT_MATH(l, OP_Abs, diagonal.re), left, right};
}

/* One round for all pairs. With a, b / c, d for the elements of a pair, half the sum and half the difference of the two
 * angles have the tangents (c + b) / (a - d) and (c - b) / (a + d). */
static void turn(Lowering *l, const Seats *seats, Value **core, Value **left, Value **right) {
  DType dtype = (*core)->type.dtype;
  Value *own = seats->from, *rival = seats->rival;
  Value *a = entries_at(l, *core, own, own), *b = entries_at(l, *core, own, rival);
  Value *c = entries_at(l, *core, rival, own), *d = entries_at(l, *core, rival, rival);
  Value *together = EMIT_MATH(l, OP_Add, c, b);
  bool even = dim_is_constant(seats->count) && seats->count.constant % 2 == 0;
  if (!even) together = EMIT_MATH(l, OP_Mul, together, cast_to(l, has_rival(l, seats), dtype));
  double tolerance = spacing_of(dtype) / 2;
  Angle sum = half_angle(l, seats, together, EMIT_MATH(l, OP_Sub, a, d), tolerance);
  Angle difference = half_angle_of_same(l, seats, EMIT_MATH(l, OP_Sub, c, b), EMIT_MATH(l, OP_Add, a, d), tolerance);
  Value *cosines = EMIT_MATH(l, OP_Mul, sum.cosine, difference.cosine);
  Value *sines = EMIT_MATH(l, OP_Mul, sum.sine, difference.sine);
  Value *first = EMIT_MATH(l, OP_Mul, sum.sine, difference.cosine);
  Value *second = EMIT_MATH(l, OP_Mul, sum.cosine, difference.sine);
  Value *left_cosine = EMIT_MATH(l, OP_Sub, cosines, sines), *left_sine = EMIT_MATH(l, OP_Add, first, second);
  Value *right_cosine = EMIT_MATH(l, OP_Add, cosines, sines), *right_sine = EMIT_MATH(l, OP_Sub, first, second);
  Value *rows = transposed(l, rotated(l, seats, *core, left_cosine, left_sine));
  Value *both = transposed(l, rotated(l, seats, rows, right_cosine, right_sine));
  *core = EMIT_MATH(l, OP_Mul, both, rivals_mask(l, seats, dtype, true));
  *left = rotated(l, seats, *left, left_cosine, left_sine);
  *right = rotated(l, seats, *right, right_cosine, right_sine);
}

/* Is an element off the diagonal so large that its pair is turned? */
static Value *is_not_diagonal(Lowering *l, Value *matrix) {
  Type type = matrix->type;
  Value *identity = identity_matrix(l, type.dtype, size_along(matrix, ROWS), size_along(matrix, ROWS));
  Value *off = EMIT_MATH(l, OP_Mul, matrix, EMIT_MATH(l, OP_Sub, number_like(l, identity, 1), identity));
  return has_larger(l, (Parts){off, NULL}, spacing_of(type.dtype) / 2);
}

/* The diagonal that is left of a square matrix, and the rotations that led to it, with the signs or phases of the
 * diagonal taken off; in the order of the seats that the rows end in. */
static Singular diagonalized(Lowering *l, Parts matrix) {
  Dim size = size_along(matrix.re, ROWS);
  Seats seats = seats_for(l, size);
  Type type = matrix.re->type;
  bool complex = matrix.im != NULL;
  Value *identity = expand_to(l, identity_matrix(l, type.dtype, size, size), type.dims, type.rank);
  Value *zeros = complex ? filled(l, type, tensor_scalar(l, type.dtype, 0)) : NULL;
  Parts core = matrix, left = {identity, zeros}, right = left;
  if (!dim_is(size, 1)) {
    Value *start[] = {matrix.re, identity, identity, matrix.im, zeros, zeros, constant_integer(l, DTYPE_INT64, 0)};
    size_t carried = complex ? 7 : 3;
    Dim most = dim_multiply(l->context, dim_of(MOST_SWEEPS), seats.rounds);
    Loop *loop = loop_begin(l, "kogbetliantz", most, false, start, carried);
    core = (Parts){loop->carried[0], complex ? loop->carried[3] : NULL};
    left = (Parts){loop->carried[1], complex ? loop->carried[4] : NULL};
    right = (Parts){loop->carried[2], complex ? loop->carried[5] : NULL};
    Value *quiet = NULL;
    if (complex) {
      quiet = quiet_rounds(l, loop->carried[6], complex_turn(l, &seats, &core, &left, &right));
      loop->go_on = is_unfinished(l, &seats, quiet);
    } else {
      turn(l, &seats, &core.re, &left.re, &right.re);
      loop->go_on = is_not_diagonal(l, core.re);
    }
    Value *next[] = {core.re, left.re, right.re, core.im, left.im, right.im, quiet};
    Value **results = emit_loop_end(loop, HERE, next, carried);
    core = (Parts){results[0], complex ? results[3] : NULL};
    left = (Parts){results[1], complex ? results[4] : NULL};
    right = (Parts){results[2], complex ? results[5] : NULL};
  }
  Parts diagonal = {main_diagonal(l, core.re), complex ? main_diagonal(l, core.im) : NULL};
  return without_phases(l, diagonal, left, right);
}

/* Of a square matrix that was divided by the scale. Values in descending order. */
static Singular square_svd(Lowering *l, Parts matrix, Value *scale) {
  Singular found = diagonalized(l, matrix), result;
  Value *places;
  result.values = EMIT_MATH(l, OP_Mul, in_order(l, found.values, true, &places), scale);
  result.left = spoiled_by(l, rows_in_order(l, found.left, places), scale);
  result.right = spoiled_by(l, rows_in_order(l, found.right, places), scale);
  return result;
}

/* Columns of the identity from the first left ones up to the number of rows. */
static Parts completed(Lowering *l, Parts left, int64_t rows, int64_t columns) {
  Value *rest = identity_matrix(l, left.re->type.dtype, dim_of(rows), dim_of(rows));
  Type added = resized(l, left.re->type, COLUMNS, dim_of(rows - columns));
  Type type = resized(l, left.re->type, COLUMNS, dim_of(rows));
  rest = expand_to(l, part_along(l, rest, COLUMNS, columns, rows), added.dims, added.rank);
  left.re = concat_at(l, VALUES(left.re, rest), 2, (int64_t)type.rank - 1, type);
  if (left.im) left.im = extended(l, left.im, COLUMNS, dim_of(rows));
  return left;
}

/* As many rows as columns, or more: the left vectors are those of the triangular factor, reflected back; those that
 * complete them to a basis are the last columns of the orthogonal factor. */
static Singular tall_svd(Lowering *l, Parts matrix, bool full) {
  Value *scale = matrix_scale(l, matrix);
  matrix = over_scale(l, matrix, scale);
  if (dim_equal(size_along(matrix.re, ROWS), size_along(matrix.re, COLUMNS))) return square_svd(l, matrix, scale);
  int64_t rows = size_along(matrix.re, ROWS).constant, columns = size_along(matrix.re, COLUMNS).constant;
  ComplexTriangularized factors = complex_triangularized(l, matrix, dim_of(columns));
  Parts upper = {triangle(l, part_along(l, factors.upper.re, ROWS, 0, columns), false, 0), NULL};
  if (matrix.im) upper.im = triangle(l, part_along(l, factors.upper.im, ROWS, 0, columns), false, 0);
  Singular result = square_svd(l, upper, scale);
  Parts left = conjugate_transposed(l, result.left);
  left.re = extended(l, left.re, ROWS, dim_of(rows));
  if (left.im) left.im = extended(l, left.im, ROWS, dim_of(rows));
  if (full) left = completed(l, left, rows, columns);
  result.left = conjugate_transposed(l, complex_reflected_back(l, factors, left));
  return result;
}

static Parts rows_of(Lowering *l, Parts matrix, Subset subset) {
  return (Parts){rows_of_subset(l, matrix.re, subset), matrix.im ? rows_of_subset(l, matrix.im, subset) : NULL};
}

static void bind_singular(Lowering *l, Singular singular, bool vectors, bool full) {
  Subset subset = read_subset(l, size_along(singular.values, ROWS));
  int64_t last = output_type(l, 0).rank;
  if (full && vectors && !subset.whole) {
    unsupported(l, "a subset of the singular values requires full_matrices=False");
  }
  bind_as(l, 0, squeeze_at(l, rows_of_subset(l, singular.values, subset), &last, 1));
  if (!vectors) return;
  bind_matrix(l, 1, conjugate_transposed(l, rows_of(l, singular.left, subset)));
  bind_matrix(l, 2, rows_of(l, singular.right, subset));
}

static void bind_nothing(Lowering *l, bool vectors, bool complex) {
  Type values = output_type(l, 0);
  bind(l, 0, filled(l, values, tensor_scalar(l, values.dtype, 0)));
  for (size_t i = 1; vectors && i < 3; i++) {
    Type type = complex ? part_type(output_type(l, i)) : output_type(l, i);
    Value *identity = identity_matrix(l, type.dtype, type.dims[type.rank - 2], type.dims[type.rank - 1]);
    identity = expand_to(l, identity, type.dims, type.rank);
    bind_matrix(l, i, (Parts){identity, complex ? number_like(l, identity, 0) : NULL});
  }
}

static void lower_svd(Lowering *l) {
  Parts matrix = matrix_parts(l, 0);
  bool vectors = param_bool_or(l->equation, "compute_uv", true);
  bool full = param_bool_or(l->equation, "full_matrices", true);
  Dim rows = size_along(matrix.re, ROWS), columns = size_along(matrix.re, COLUMNS);
  if (!dim_equal(rows, columns) && !(dim_is_constant(rows) && dim_is_constant(columns))) {
    unsupported(l,
                "whether the matrix has more rows or more columns must be known during the export, but it is %s by %s",
                dim_text(l->context, rows), dim_text(l->context, columns));
  }
  bool wide = !dim_equal(rows, columns) && rows.constant < columns.constant;
  if (is_empty(matrix.re->type)) {
    bind_nothing(l, vectors, matrix.im != NULL);
    return;
  }
  Singular singular = tall_svd(l, wide ? conjugate_transposed(l, matrix) : matrix, full && vectors);
  if (wide) singular = (Singular){singular.values, singular.right, singular.left};
  bind_singular(l, singular, vectors, full);
}

/* clang-format off */
const Plugin svd_plugins[] = {
    PLUGIN("svd", lower_svd, OP_NONE, TAKES_COMPLEX),
    {0},
};
/* clang-format on */
