/* tridiagonal_solve: elimination with partial pivoting, as LAPACK's gtsv does it, then substitution from the end.
 *
 * A step has two rows at hand, the one that is left of the steps before and the next one of the matrix; the one with
 * the larger first element is kept, and taken off the other. A kept row has up to three elements. A matrix that turns
 * out to be singular gives NaN everywhere. */
#include <math.h>

#include "lower/arithmetic.h"
#include "lower/loops.h"
#include "lower/matrices.h"

typedef struct System {
  Value *lower, *diagonal, *upper; /* [..., n, 1] */
  Value *right;                    /* [..., n, k] */
} System;

typedef struct Eliminated {
  Value *diagonal, *upper, *second; /* [..., n, 1]: row i has elements in columns i, i + 1, i + 2 */
  Value *right;
} Eliminated;

/* The rows moved up by one; zeros come in at the end. */
static Value *moved_up(Lowering *l, Value *rows) {
  int64_t pads[2 * MAX_RANK] = {0}, rank = rows->type.rank;
  pads[rank - 2] = -1;
  pads[2 * rank - 2] = 1;
  return EMIT(l, "Pad", rows->type, rows, constant_ints(l, pads, 2 * (size_t)rank));
}

static Value *first_row(Lowering *l, Value *rows) {
  static const int64_t first[] = {0};
  return slice_of(l, rows, ROWS, constant_ints(l, first, 1));
}

static Eliminated eliminated(Lowering *l, System system) {
  Value *lower = moved_up(l, system.lower), *diagonal = moved_up(l, system.diagonal);
  Value *upper = moved_up(l, system.upper), *right = moved_up(l, system.right);
  Value *zero = number_like(l, lower, 0);
  Loop *loop = LOOP_BEGIN(l, "elimination", size_along(lower, ROWS), first_row(l, system.diagonal),
                          first_row(l, system.upper), first_row(l, system.right));
  Value *first = loop->carried[0], *second = loop->carried[1], *known = loop->carried[2];
  Value *next_first = slice_of(l, lower, ROWS, loop->index), *next_second = slice_of(l, diagonal, ROWS, loop->index);
  Value *next_third = slice_of(l, upper, ROWS, loop->index), *next_known = slice_of(l, right, ROWS, loop->index);
  Value *exchange = EMIT_MATH(l, "Greater", EMIT_MATH(l, "Abs", next_first), EMIT_MATH(l, "Abs", first));
  Value *kept_first = EMIT_WHERE(l, exchange, next_first, first);
  Value *factor = EMIT_MATH(l, "Div", EMIT_WHERE(l, exchange, first, next_first), kept_first);
  Value *kept_second = EMIT_WHERE(l, exchange, next_second, second);
  Value *kept_third = EMIT_WHERE(l, exchange, next_third, zero);
  Value *kept_known = EMIT_WHERE(l, exchange, next_known, known);
  Value *left_second = EMIT_WHERE(l, exchange, second, next_second);
  Value *left_third = EMIT_WHERE(l, exchange, zero, next_third);
  Value *left_known = EMIT_WHERE(l, exchange, known, next_known);
  loop_collect(loop, kept_first, ROWS);
  loop_collect(loop, kept_second, ROWS);
  loop_collect(loop, kept_third, ROWS);
  loop_collect(loop, kept_known, ROWS);
  Value **results = EMIT_LOOP(loop, EMIT_MATH(l, "Sub", left_second, EMIT_MATH(l, "Mul", factor, kept_second)),
                              EMIT_MATH(l, "Sub", left_third, EMIT_MATH(l, "Mul", factor, kept_third)),
                              EMIT_MATH(l, "Sub", left_known, EMIT_MATH(l, "Mul", factor, kept_known)));
  return (Eliminated){results[3], results[4], results[5], results[6]};
}

static Value *substituted(Lowering *l, Eliminated system) {
  Value *none =
      filled(l, resized(l, system.right->type, ROWS, dim_of(1)), tensor_scalar(l, system.right->type.dtype, 0));
  Loop *loop = LOOP_BEGIN_BACKWARDS(l, "substitution", size_along(system.right, ROWS), none, none);
  Value *after = loop->carried[0], *second_after = loop->carried[1];
  Value *upper = slice_of(l, system.upper, ROWS, loop->index), *second = slice_of(l, system.second, ROWS, loop->index);
  Value *shares = EMIT_MATH(l, "Add", EMIT_MATH(l, "Mul", after, upper), EMIT_MATH(l, "Mul", second_after, second));
  Value *rest = EMIT_MATH(l, "Sub", slice_of(l, system.right, ROWS, loop->index), shares);
  Value *solved = EMIT_MATH(l, "Div", rest, slice_of(l, system.diagonal, ROWS, loop->index));
  loop_collect(loop, solved, ROWS);
  return EMIT_LOOP(loop, solved, after)[2];
}

static void lower_tridiagonal_solve(Lowering *l) {
  if (param_bool_or(l->equation, "perturb_singular", false)) {
    unsupported(l, "how JAX perturbs a singular matrix is known to its own kernels only; use perturb_singular=False");
  }
  if (is_empty(output_type(l, 0))) {
    bind(l, 0, input(l, 3));
    return;
  }
  System system = {.right = matrix_input(l, 3)};
  Value **diagonals[] = {&system.lower, &system.diagonal, &system.upper};
  for (size_t i = 0; i < 3; i++) *diagonals[i] = as_column(l, matrix_input(l, i));
  Dim size = size_along(system.right, ROWS);
  Value *last = dimension_value(l, dim_subtract(l->context, size, dim_of(1)));
  Value *inside = EMIT_MATH(l, "Less", numbers_along(l, ROWS, size), last);
  system.upper = EMIT_WHERE(l, inside, system.upper, number_like(l, system.upper, 0)); /* nothing stands there */
  Eliminated rows = eliminated(l, system);
  Value *vanishes = EMIT_MATH(l, "Equal", rows.diagonal, number_like(l, rows.diagonal, 0));
  Value *singular = EMIT_ALONG(l, "ReduceMax", cast_to(l, vanishes, DTYPE_INT32), ROWS);
  Value *solution = substituted(l, rows);
  bind_as(l, 0, EMIT_WHERE(l, cast_to(l, singular, DTYPE_BOOL), number_like(l, solution, NAN), solution));
}

/* clang-format off */
const Plugin tridiagonal_plugins[] = {
    PLUGIN("tridiagonal_solve", lower_tridiagonal_solve),
    {0},
};
/* clang-format on */
