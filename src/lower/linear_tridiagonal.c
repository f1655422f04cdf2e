/* tridiagonal_solve: elimination with partial pivoting, as LAPACK's gtsv does it, then substitution from the end.
 *
 * A step has two rows at hand, the one that is left of the steps before and the next one of the matrix; the one with
 * the larger first element is kept, and taken off the other. A kept row has up to three elements. A matrix that turns
 * out to be singular gives NaN everywhere.
 *
 * With perturb_singular elements are compared relative to their rows, and a pivot too small to divide by is moved away
 * from zero by the rounding error of the largest: what inverse iteration wants.
 */
#include <float.h>
#include <math.h>

#include "lower/arithmetic.h"
#include "lower/loops.h"
#include "lower/matrices.h"

typedef struct Row {
  Value *first, *second, *third; /* elements: [..., 1, 1], or [..., n, 1] of all rows */
  Value *right;                  /* [..., 1, k], or [..., n, k] */
} Row;

/* The rows moved up by one; zeros come in at the end. */
static Value *moved_up(Lowering *l, Value *rows) {
  int64_t pads[2 * MAX_RANK] = {0}, rank = rows->type.rank;
  pads[rank - 2] = -1;
  pads[2 * rank - 2] = 1;
  return EMIT(l, "Pad", rows->type, rows, constant_ints(l, pads, 2 * (size_t)rank));
}

static Row row_at(Lowering *l, Row rows, Value *index) {
  return (Row){slice_of(l, rows.first, ROWS, index), slice_of(l, rows.second, ROWS, index),
               slice_of(l, rows.third, ROWS, index), slice_of(l, rows.right, ROWS, index)};
}

static Row chosen_row(Lowering *l, Value *condition, Row a, Row b) {
  return (Row){EMIT_WHERE(l, condition, a.first, b.first), EMIT_WHERE(l, condition, a.second, b.second),
               EMIT_WHERE(l, condition, a.third, b.third), EMIT_WHERE(l, condition, a.right, b.right)};
}

static Value *sum_of_sizes(Lowering *l, Row row) {
  Value *sum = EMIT_MATH(l, "Add", EMIT_MATH(l, "Abs", row.first), EMIT_MATH(l, "Abs", row.second));
  return EMIT_MATH(l, "Add", sum, EMIT_MATH(l, "Abs", row.third));
}

/* a - factor * b */
static Value *without(Lowering *l, Value *a, Value *factor, Value *b) {
  return EMIT_MATH(l, "Sub", a, EMIT_MATH(l, "Mul", factor, b));
}

/* Every row with what stands in its column and to the right of it, from the rows as they are in the matrix: the first
 * row, from its diagonal on, and those that follow, from below the diagonal on. */
static Row eliminated(Lowering *l, Row first, Row following, bool relative) {
  Value *zero = number_like(l, first.first, 0);
  Value *initial[] = {first.first, first.second, first.right, relative ? sum_of_sizes(l, first) : NULL};
  Loop *loop = loop_begin(l, "elimination", size_along(following.first, ROWS), false, initial, relative ? 4 : 3);
  Row left = {loop->carried[0], loop->carried[1], zero, loop->carried[2]};
  Row next = row_at(l, following, loop->index);
  Value *left_size = EMIT_MATH(l, "Abs", left.first), *next_size = EMIT_MATH(l, "Abs", next.first);
  Value *next_scale = relative ? sum_of_sizes(l, next) : NULL;
  if (relative) {
    left_size = EMIT_MATH(l, "Mul", left_size, next_scale);
    next_size = EMIT_MATH(l, "Mul", next_size, loop->carried[3]);
  }
  Value *exchange = EMIT_MATH(l, "Greater", next_size, left_size);
  Row kept = chosen_row(l, exchange, next, left), other = chosen_row(l, exchange, left, next);
  Value *divisor = kept.first;
  if (relative) { /* a zero pivot is left for later when there is nothing to take off */
    divisor = EMIT_WHERE(l, EMIT_MATH(l, "Equal", divisor, zero), number_like(l, zero, 1), divisor);
  }
  Value *factor = EMIT_MATH(l, "Div", other.first, divisor);
  Value *second = without(l, other.second, factor, kept.second);
  Value *third = without(l, other.third, factor, kept.third);
  loop_collect(loop, kept.first, ROWS);
  loop_collect(loop, kept.second, ROWS);
  loop_collect(loop, kept.third, ROWS);
  loop_collect(loop, kept.right, ROWS);
  Value *after[] = {second, third, without(l, other.right, factor, kept.right), NULL};
  if (relative) {
    Value *sum = EMIT_MATH(l, "Add", EMIT_MATH(l, "Abs", second), EMIT_MATH(l, "Abs", third));
    after[3] = EMIT_WHERE(l, exchange, sum, next_scale);
  }
  Value **results = emit_loop_end(loop, HERE, after, loop->carried_count) + loop->carried_count;
  return (Row){results[0], results[1], results[2], results[3]};
}

/* The rounding error of the largest element: [..., 1, 1]. */
static Value *perturbation_of(Lowering *l, Row rows) {
  Value *sizes = EMIT_MATH(l, "Max", EMIT_MATH(l, "Abs", rows.first), EMIT_MATH(l, "Abs", rows.second));
  sizes = EMIT_MATH(l, "Max", sizes, EMIT_MATH(l, "Abs", rows.third));
  bool wide = sizes->type.dtype == DTYPE_FLOAT64;
  Value *error = EMIT_MATH(l, "Mul", EMIT_ALONG(l, "ReduceMax", sizes, ROWS),
                           number_like(l, sizes, wide ? DBL_EPSILON : (double)FLT_EPSILON));
  return EMIT_MATH(l, "Max", error, number_like(l, sizes, wide ? DBL_MIN : (double)FLT_MIN));
}

/* The pivot, or, where a quotient by it would overflow, one that is further from zero. */
static Value *safe_pivot(Lowering *l, Value *pivot, Value *right, Value *perturbation) {
  bool wide = pivot->type.dtype == DTYPE_FLOAT64;
  Value *largest = EMIT_ALONG(l, "ReduceMax", EMIT_MATH(l, "Abs", right), COLUMNS);
  Value *reach =
      EMIT_MATH(l, "Mul", EMIT_MATH(l, "Abs", pivot), number_like(l, pivot, wide ? 1 / DBL_MIN : 1 / (double)FLT_MIN));
  Value *negative = EMIT_MATH(l, "Less", pivot, number_like(l, pivot, 0));
  Value *change = EMIT_WHERE(l, negative, EMIT_MATH(l, "Neg", perturbation), perturbation);
  Value *small = EMIT_MATH(l, "LessOrEqual", reach, largest);
  return EMIT_WHERE(l, small, EMIT_MATH(l, "Add", pivot, change), pivot);
}

static Value *substituted(Lowering *l, Row rows, Value *perturbation) {
  Type type = resized(l, rows.right->type, ROWS, dim_of(1));
  Value *none = filled(l, type, tensor_scalar(l, type.dtype, 0));
  Loop *loop = LOOP_BEGIN_BACKWARDS(l, "substitution", size_along(rows.right, ROWS), none, none);
  Value *after = loop->carried[0], *second_after = loop->carried[1];
  Row row = row_at(l, rows, loop->index);
  Value *rest = without(l, without(l, row.right, row.second, after), row.third, second_after);
  Value *pivot = perturbation ? safe_pivot(l, row.first, rest, perturbation) : row.first;
  Value *solved = EMIT_MATH(l, "Div", rest, pivot);
  loop_collect(loop, solved, ROWS);
  return EMIT_LOOP(loop, solved, after)[2];
}

static void lower_tridiagonal_solve(Lowering *l) {
  bool perturb = param_bool_or(l->equation, "perturb_singular", false);
  if (is_empty(output_type(l, 0))) {
    bind(l, 0, input(l, 3));
    return;
  }
  Value *diagonals[3], *right = matrix_input(l, 3);
  for (size_t i = 0; i < 3; i++) diagonals[i] = as_column(l, matrix_input(l, i));
  Dim size = size_along(right, ROWS);
  Value *last = dimension_value(l, dim_subtract(l->context, size, dim_of(1)));
  Value *inside = EMIT_MATH(l, "Less", numbers_along(l, ROWS, size), last), *zero = number_like(l, right, 0);
  Value *upper = EMIT_WHERE(l, inside, diagonals[2], zero); /* what stands outside of the matrix does not count */
  static const int64_t start[] = {0};
  Row first = row_at(l, (Row){diagonals[1], upper, diagonals[0], right}, constant_ints(l, start, 1));
  first.third = zero;
  Row following = {moved_up(l, diagonals[0]), moved_up(l, diagonals[1]), moved_up(l, upper), moved_up(l, right)};
  Row rows = eliminated(l, first, following, perturb);
  Value *solution = substituted(l, rows, perturb ? perturbation_of(l, rows) : NULL);
  if (!perturb) {
    Value *vanishes = EMIT_MATH(l, "Equal", rows.first, zero);
    Value *singular = EMIT_ALONG(l, "ReduceMax", cast_to(l, vanishes, DTYPE_INT32), ROWS);
    solution = EMIT_WHERE(l, cast_to(l, singular, DTYPE_BOOL), number_like(l, solution, NAN), solution);
  }
  bind_as(l, 0, solution);
}

/* clang-format off */
const Plugin tridiagonal_plugins[] = {
    PLUGIN("tridiagonal_solve", lower_tridiagonal_solve),
    {0},
};
/* clang-format on */
