/* eigh: the eigenvalues and eigenvectors of symmetric or Hermitian matrices, by Jacobi's method.
 *
 * The diagonal is kept apart from the rest: a rotation takes its pair's element from one end of the diagonal to the
 * other, exactly, and the element is zero from then on. What is left fades quadratically, so the eigenvalues are as
 * accurate as the size of the matrix allows.
 */
#include "lower/control/loops.h"
#include "lower/elementwise/arithmetic.h"
#include "lower/linalg/jacobi.h"
#include "lower/linalg/matrices.h"

typedef struct Pairs {
  Value *values; /* a column */
  Parts vectors; /* conjugated, as rows */
} Pairs;

/* The element of each pair: of the two that are equal but for rounding (and conjugation), both rivals take the same. */
static Parts pair_elements(Lowering *l, const Seats *seats, Parts matrix) {
  Value *rows = EMIT_MATH(l, OP_Min, seats->from, seats->rival),
        *columns = EMIT_MATH(l, OP_Max, seats->from, seats->rival);
  Parts elements = {entries_at(l, matrix.re, rows, columns), NULL};
  if (!matrix.im) return elements;
  Value *imaginary = entries_at(l, matrix.im, rows, columns);
  elements.im = EMIT_WHERE(l, is_first(l, seats), imaginary, EMIT_MATH(l, OP_Neg, imaginary));
  return elements;
}

/* The size of complex elements; their phases remain. Real ones keep their sign. */
static Value *split_phases(Lowering *l, Parts *elements) {
  if (!elements->im) return elements->re;
  Value *size = magnitude(l, *elements), *zero = number_like(l, size, 0), *one = number_like(l, size, 1);
  Value *none = EMIT_MATH(l, OP_Equal, size, zero), *divisor = EMIT_WHERE(l, none, one, size);
  elements->re = EMIT_MATH(l, OP_Div, elements->re, divisor);
  elements->im = EMIT_MATH(l, OP_Div, elements->im, divisor);
  return size;
}

/* One round for all pairs. Elements of up to half the tolerance count as zero. */
static void turn(Lowering *l, const Seats *seats, Value **diagonal, Parts *rest, Parts *vectors, double tolerance) {
  DType dtype = (*diagonal)->type.dtype;
  Parts phases = pair_elements(l, seats, *rest);
  Value *element = split_phases(l, &phases);
  Value *own = rows_at(l, *diagonal, seats->from), *other = rows_at(l, *diagonal, seats->rival);
  Value *twice = EMIT_MATH(l, OP_Add, element, element);
  Angle angle = half_angle(l, seats, twice, EMIT_MATH(l, OP_Sub, own, other), tolerance);
  *diagonal = EMIT_MATH(l, OP_Add, own, EMIT_MATH(l, OP_Mul, angle.tangent, element));
  Parts cosine = {angle.cosine, NULL}, sine = {angle.sine, NULL};
  if (phases.im) {
    sine = (Parts){EMIT_MATH(l, OP_Mul, phases.re, angle.sine), EMIT_MATH(l, OP_Mul, phases.im, angle.sine)};
  }
  Parts rows = conjugate_transposed(l, rotated_rows(l, seats, *rest, cosine, sine));
  Parts both = rotated_rows(l, seats, rows, cosine, sine);
  Value *mask = rivals_mask(l, seats, dtype, false);
  *rest = (Parts){EMIT_MATH(l, OP_Mul, both.re, mask), both.im ? EMIT_MATH(l, OP_Mul, both.im, mask) : NULL};
  *vectors = rotated_rows(l, seats, *vectors, cosine, sine);
}

/* In the order of the seats that the rows end in. */
static Pairs diagonalized(Lowering *l, Parts matrix) {
  Dim size = size_along(matrix.re, ROWS);
  Seats seats = seats_for(l, size);
  Type type = matrix.re->type;
  bool complex = matrix.im != NULL;
  Value *identity = identity_matrix(l, type.dtype, size, size);
  Value *off = EMIT_MATH(l, OP_Sub, number_like(l, identity, 1), identity);
  Value *start[] = {main_diagonal(l, matrix.re), EMIT_MATH(l, OP_Mul, matrix.re, off),
                    expand_to(l, identity, type.dims, type.rank), complex ? EMIT_MATH(l, OP_Mul, matrix.im, off) : NULL,
                    complex ? filled(l, type, tensor_scalar(l, type.dtype, 0)) : NULL};
  Dim most = dim_multiply(l->context, dim_of(MOST_SWEEPS), seats.rounds);
  Loop *loop = loop_begin(l, "jacobi", most, false, start, complex ? 5 : 3);
  Value *diagonal = loop->carried[0];
  Parts rest = {loop->carried[1], complex ? loop->carried[3] : NULL};
  Parts vectors = {loop->carried[2], complex ? loop->carried[4] : NULL};
  double tolerance = spacing_of(type.dtype) / 2;
  turn(l, &seats, &diagonal, &rest, &vectors, tolerance);
  loop->go_on = has_larger(l, rest, tolerance / 2);
  Value *next[] = {diagonal, rest.re, vectors.re, rest.im, vectors.im};
  Value **results = emit_loop_end(loop, HERE, next, complex ? 5 : 3);
  return (Pairs){results[0], {results[2], complex ? results[4] : NULL}};
}

static void lower_eigh(Lowering *l) {
  Parts matrix = matrix_parts(l, 0);
  Type vector_type = output_type(l, 0), value_type = output_type(l, 1);
  int64_t last = (int64_t)matrix.re->type.rank - 1;
  Subset subset = read_subset(l, size_along(matrix.re, ROWS));
  if (dim_is(size_along(matrix.re, ROWS), 1) || is_empty(vector_type)) {
    Type ones = matrix.im ? part_type(vector_type) : vector_type;
    Value *one = filled(l, ones, tensor_scalar(l, ones.dtype, 1));
    bind_matrix(l, 0, (Parts){one, matrix.im ? number_like(l, one, 0) : NULL});
    bind_as(l, 1, reshape_to(l, matrix.re, value_type.dims, value_type.rank));
    return;
  }
  matrix = symmetric_from(l, matrix, param_bool_or(l->equation, "lower", true));
  Value *scale = matrix_scale(l, matrix), *places;
  Pairs pairs = diagonalized(l, over_scale(l, matrix, scale));
  Value *values = EMIT_MATH(l, OP_Mul, in_order(l, pairs.values, false, &places), scale);
  Parts vectors = spoiled_by(l, rows_in_order(l, pairs.vectors, places), scale);
  vectors.re = rows_of_subset(l, vectors.re, subset);
  if (vectors.im) vectors.im = rows_of_subset(l, vectors.im, subset);
  bind_matrix(l, 0, conjugate_transposed(l, vectors));
  bind_as(l, 1, squeeze_at(l, rows_of_subset(l, values, subset), &last, 1));
}

/* clang-format off */
const Plugin eigh_plugins[] = {
    PLUGIN("eigh", lower_eigh, OP_NONE, TAKES_COMPLEX),
    {0},
};
/* clang-format on */
