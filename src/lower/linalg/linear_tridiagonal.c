/* tridiagonal_solve: elimination with partial pivoting, as LAPACK's gtsv does it, then substitution from the end.
 *
 * A step has two rows at hand, the one that is left of the steps before and the next one of the matrix; the one with
 * the larger first element is kept, and taken off the other. A kept row has up to three elements. A matrix that turns
 * out to be singular gives NaN everywhere.
 *
 * With perturb_singular elements are compared relative to their rows, and a pivot too small to divide by is moved away
 * from zero by the rounding error of the largest: what inverse iteration wants.
 *
 * Real numbers are parts without an imaginary one.
 */
#include <float.h>
#include <math.h>

#include "lower/control/loops.h"
#include "lower/data/padding.h"
#include "lower/linalg/complex_matrices.h"
#include "lower/linalg/matrices.h"

enum { FIRST, SECOND, THIRD, RIGHT, ROW_PARTS };

typedef struct Row {
  Parts
      at[ROW_PARTS]; /* elements [..., 1, 1], or [..., n, 1] of all rows; right-hand sides [..., 1, k] or [..., n, k] */
} Row;

static Parts product(Lowering *l, Parts a, Parts b) {
  return a.im ? EMIT_PRODUCT(l, a, b) : (Parts){EMIT_MATH(l, OP_Mul, a.re, b.re), NULL};
}

static Parts quotient(Lowering *l, Parts a, Parts b) {
  return a.im ? EMIT_PRODUCT(l, a, parts_reciprocal(l, b)) : (Parts){EMIT_MATH(l, OP_Div, a.re, b.re), NULL};
}

static Parts where(Lowering *l, Value *condition, Parts a, Parts b) {
  return a.im ? parts_where(l, condition, a, b) : (Parts){EMIT_WHERE(l, condition, a.re, b.re), NULL};
}

/* a - factor * b */
static Parts without(Lowering *l, Parts a, Parts factor, Parts b) {
  Parts share = product(l, factor, b);
  return a.im ? parts_difference(l, a, share) : (Parts){EMIT_MATH(l, OP_Sub, a.re, share.re), NULL};
}

static Parts number_parts(Lowering *l, Parts like, double number) {
  return (Parts){number_like(l, like.re, number), like.im ? number_like(l, like.re, 0) : NULL};
}

static Value *is_zero(Lowering *l, Parts z) {
  Value *zero = number_like(l, z.re, 0), *re = EMIT_MATH(l, OP_Equal, z.re, zero);
  return z.im ? EMIT_MATH(l, OP_And, re, EMIT_MATH(l, OP_Equal, z.im, zero)) : re;
}

/* How large a number is: LAPACK compares complex ones by the sum of the sizes of their parts. */
static Value *size_of(Lowering *l, Parts z) {
  Value *re = EMIT_MATH(l, OP_Abs, z.re);
  return z.im ? EMIT_MATH(l, OP_Add, re, EMIT_MATH(l, OP_Abs, z.im)) : re;
}

static Value *modulus(Lowering *l, Parts z) { return z.im ? magnitude(l, z) : EMIT_MATH(l, OP_Abs, z.re); }

/* The rows moved up by one; zeros come in at the end. */
static Value *moved_up(Lowering *l, Value *rows) {
  return shift_array(l, rows, (int64_t)rows->type.rank - 2, -1, NULL);
}

static Parts parts_at(Lowering *l, Parts rows, Value *index) {
  return (Parts){slice_of(l, rows.re, ROWS, index), rows.im ? slice_of(l, rows.im, ROWS, index) : NULL};
}

static Row row_at(Lowering *l, const Row *rows, Value *index) {
  Row row;
  for (size_t i = 0; i < ROW_PARTS; i++) row.at[i] = parts_at(l, rows->at[i], index);
  return row;
}

static Row chosen_row(Lowering *l, Value *condition, const Row *a, const Row *b) {
  Row row;
  for (size_t i = 0; i < ROW_PARTS; i++) row.at[i] = where(l, condition, a->at[i], b->at[i]);
  return row;
}

static Value *sum_of_sizes(Lowering *l, const Row *row, size_t count) {
  Value *sum = modulus(l, row->at[FIRST]);
  for (size_t i = 1; i < count; i++) sum = EMIT_MATH(l, OP_Add, sum, modulus(l, row->at[i]));
  return sum;
}

/* Is the first element of the next row to be kept? */
static Value *is_larger(Lowering *l, Parts next, Parts left, Value *next_scale, Value *left_scale) {
  if (!next_scale) return EMIT_MATH(l, OP_Greater, size_of(l, next), size_of(l, left));
  Value *empty = EMIT_MATH(l, OP_Equal, left_scale, number_like(l, left_scale, 0)); /* anything is larger then */
  left_scale = EMIT_WHERE(l, empty, number_like(l, left_scale, 1), left_scale);
  Value *next_size = EMIT_MATH(l, OP_Mul, modulus(l, next), left_scale);
  return EMIT_MATH(l, OP_Greater, next_size, EMIT_MATH(l, OP_Mul, modulus(l, left), next_scale));
}

/* The parts of several numbers in one list. */
static size_t listed(Value **list, const Parts *parts, size_t count) {
  size_t at = 0;
  for (size_t i = 0; i < count; i++) {
    list[at++] = parts[i].re;
    if (parts[i].im) list[at++] = parts[i].im;
  }
  return at;
}

static Parts unlisted(Value *const *list, size_t index, bool complex) {
  return complex ? (Parts){list[2 * index], list[2 * index + 1]} : (Parts){list[index], NULL};
}

/* Every row with what stands in its column and to the right of it, from the rows as they are in the matrix: the first
 * row, from its diagonal on, and those that follow, from below the diagonal on. */
static Row eliminated(Lowering *l, const Row *first, const Row *following, bool relative) {
  bool complex = first->at[FIRST].im != NULL;
  Value *values[8], **results;
  size_t count = listed(values, (Parts[]){first->at[FIRST], first->at[SECOND], first->at[RIGHT]}, 3);
  if (relative) values[count] = sum_of_sizes(l, first, 2);
  Dim steps = size_along(following->at[FIRST].re, ROWS);
  Loop *loop = loop_begin(l, "elimination", steps, false, values, count + relative);
  Row next = row_at(l, following, loop->index), left;
  for (size_t i = 0; i < ROW_PARTS; i++) {
    if (i != THIRD) left.at[i] = unlisted(loop->carried, i == RIGHT ? 2 : i, complex);
  }
  left.at[THIRD] = number_parts(l, left.at[FIRST], 0);
  Value *next_scale = relative ? sum_of_sizes(l, &next, 3) : NULL;
  Value *exchange = is_larger(l, next.at[FIRST], left.at[FIRST], next_scale, loop->carried[count]);
  Row kept = chosen_row(l, exchange, &next, &left), other = chosen_row(l, exchange, &left, &next);
  Parts divisor = kept.at[FIRST];
  if (relative) { /* a zero pivot is left for later when there is nothing to take off */
    divisor = where(l, is_zero(l, divisor), number_parts(l, divisor, 1), divisor);
  }
  Parts factor = quotient(l, other.at[FIRST], divisor), after[3];
  for (size_t i = 0; i < 3; i++) after[i] = without(l, other.at[i + 1], factor, kept.at[i + 1]);
  size_t collected = listed(values, kept.at, ROW_PARTS);
  for (size_t i = 0; i < collected; i++) loop_collect(loop, values[i], ROWS);
  listed(values, after, 3);
  if (relative) {
    Value *sum = EMIT_MATH(l, OP_Add, modulus(l, after[0]), modulus(l, after[1]));
    values[count] = EMIT_WHERE(l, exchange, sum, next_scale);
  }
  results = emit_loop_end(loop, HERE, values, count + relative);
  for (size_t i = 0; i < ROW_PARTS; i++) kept.at[i] = unlisted(results + count + relative, i, complex);
  return kept;
}

static double epsilon_of(const Value *value) {
  return value->type.dtype == DTYPE_FLOAT64 ? DBL_EPSILON : (double)FLT_EPSILON;
}

static double smallest_of(const Value *value) { return value->type.dtype == DTYPE_FLOAT64 ? DBL_MIN : (double)FLT_MIN; }

/* The rounding error of the largest element: [..., 1, 1]. */
static Value *perturbation_of(Lowering *l, const Row *rows) {
  Value *sizes = EMIT_MATH(l, OP_Max, modulus(l, rows->at[FIRST]), modulus(l, rows->at[SECOND]));
  sizes = EMIT_MATH(l, OP_Max, sizes, modulus(l, rows->at[THIRD]));
  Value *largest = EMIT_ALONG(l, OP_ReduceMax, sizes, ROWS);
  Value *error = EMIT_MATH(l, OP_Mul, largest, number_like(l, sizes, epsilon_of(sizes)));
  return EMIT_MATH(l, OP_Max, error, number_like(l, sizes, smallest_of(sizes)));
}

/* The pivot, or, where a quotient by it would overflow, one that is further from zero. Which way is free where it is
 * zero: ONNX Runtime's Where loses the sign of zeros. */
static Parts safe_pivot(Lowering *l, Parts pivot, Parts right, Value *perturbation) {
  Value *largest = EMIT_ALONG(l, OP_ReduceMax, modulus(l, right), COLUMNS);
  Value *reach = EMIT_MATH(l, OP_Mul, modulus(l, pivot), number_like(l, pivot.re, 1 / smallest_of(pivot.re)));
  Value *negative = EMIT_MATH(l, OP_Less, pivot.re, number_like(l, pivot.re, 0));
  Value *change = EMIT_WHERE(l, negative, EMIT_MATH(l, OP_Neg, perturbation), perturbation);
  Value *small = EMIT_MATH(l, OP_LessOrEqual, reach, largest);
  return (Parts){EMIT_WHERE(l, small, EMIT_MATH(l, OP_Add, pivot.re, change), pivot.re), pivot.im};
}

static Parts substituted(Lowering *l, const Row *rows, Value *perturbation) {
  bool complex = rows->at[FIRST].im != NULL;
  Type type = resized(l, rows->at[RIGHT].re->type, ROWS, dim_of(1));
  Value *none = filled(l, type, tensor_scalar(l, type.dtype, 0)), *values[] = {none, none, none, none};
  size_t carried = complex ? 4 : 2;
  Loop *loop = loop_begin(l, "substitution", size_along(rows->at[RIGHT].re, ROWS), true, values, carried);
  Parts next[] = {unlisted(loop->carried, 0, complex), unlisted(loop->carried, 1, complex)};
  Row row = row_at(l, rows, loop->index);
  Parts rest = without(l, without(l, row.at[RIGHT], row.at[SECOND], next[0]), row.at[THIRD], next[1]);
  Parts pivot = perturbation ? safe_pivot(l, row.at[FIRST], rest, perturbation) : row.at[FIRST];
  next[1] = next[0];
  next[0] = quotient(l, rest, pivot);
  listed(values, next, 2);
  loop_collect(loop, next[0].re, ROWS);
  if (complex) loop_collect(loop, next[0].im, ROWS);
  return unlisted(emit_loop_end(loop, HERE, values, carried) + carried, 0, complex);
}

/* NaN in all of a solution whose matrix has a zero for a pivot. */
static Parts nan_where_singular(Lowering *l, Parts solution, Parts pivots) {
  Value *singular = EMIT_ALONG(l, OP_ReduceMax, cast_to(l, is_zero(l, pivots), DTYPE_INT32), ROWS);
  Value *nan = number_like(l, solution.re, NAN);
  return where(l, cast_to(l, singular, DTYPE_BOOL), (Parts){nan, solution.im ? nan : NULL}, solution);
}

static Parts as_columns(Lowering *l, Parts vectors) {
  return (Parts){as_column(l, vectors.re), vectors.im ? as_column(l, vectors.im) : NULL};
}

static void lower_tridiagonal_solve(Lowering *l) {
  bool perturb = param_bool_or(l->equation, "perturb_singular", false);
  if (is_empty(output_type(l, 0))) {
    bind(l, 0, input(l, 3));
    return;
  }
  static const int64_t start[] = {0};
  Parts diagonals[3], right = matrix_parts(l, 3);
  for (size_t i = 0; i < 3; i++) diagonals[i] = as_columns(l, matrix_parts(l, i));
  Dim size = size_along(right.re, ROWS);
  Value *last = dimension_value(l, dim_subtract(l->context, size, dim_of(1)));
  Value *inside = EMIT_MATH(l, OP_Less, numbers_along(l, ROWS, size), last);
  Parts zero = number_parts(l, right, 0);
  Parts upper = where(l, inside, diagonals[2], zero); /* what stands outside of the matrix does not count */
  Row own = {{diagonals[1], upper, diagonals[0], right}}, following = {{diagonals[0], diagonals[1], upper, right}};
  Row first = row_at(l, &own, constant_ints(l, start, 1));
  for (size_t i = 0; i < ROW_PARTS; i++) {
    Parts *part = &following.at[i];
    *part = (Parts){moved_up(l, part->re), part->im ? moved_up(l, part->im) : NULL};
  }
  Row rows = eliminated(l, &first, &following, perturb);
  Parts solution = substituted(l, &rows, perturb ? perturbation_of(l, &rows) : NULL);
  bind_matrix(l, 0, perturb ? solution : nan_where_singular(l, solution, rows.at[FIRST]));
}

/* clang-format off */
const Plugin tridiagonal_plugins[] = {
    PLUGIN("tridiagonal_solve", lower_tridiagonal_solve, OP_NONE, TAKES_COMPLEX),
    {0},
};
/* clang-format on */
