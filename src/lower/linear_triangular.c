/* triangular_solve: an unknown row (or column) a step, whose share is taken off the right-hand sides that remain. */
#include "lower/arithmetic.h"
#include "lower/loops.h"
#include "lower/matrices.h"

/* a x = b from the left, x a = b from the right. What the other triangle of a holds reaches only rows of b that are
 * solved already. */
static Value *solve(Lowering *l, Value *a, Value *b, bool left, bool lower, bool unit_diagonal) {
  int64_t unknowns = left ? ROWS : COLUMNS, across = left ? COLUMNS : ROWS;
  Loop *loop = loop_begin(l, "triangular_solve", size_along(a, ROWS), lower != left, &b, 1);
  Value *rest = loop->carried[0];
  Value *factors = slice_of(l, a, across, loop->index);
  Value *solved = slice_of(l, rest, unknowns, loop->index);
  if (!unit_diagonal) solved = EMIT_MATH(l, "Div", solved, slice_of(l, factors, unknowns, loop->index));
  loop_collect(loop, solved, unknowns);
  return EMIT_LOOP(loop, EMIT_MATH(l, "Sub", rest, EMIT_MATH(l, "Mul", factors, solved)))[1];
}

static void lower_triangular_solve(Lowering *l) {
  bool left = param_bool_or(l->equation, "left_side", false), lower = param_bool_or(l->equation, "lower", false);
  bool transpose = param_bool_or(l->equation, "transpose_a", false);
  bool unit_diagonal = param_bool_or(l->equation, "unit_diagonal", false);
  Value *a = matrix_input(l, 0), *b = matrix_input(l, 1);
  if (is_empty(b->type)) {
    bind_as(l, 0, b);
    return;
  }
  if (transpose) a = transposed(l, a);
  bind_as(l, 0, solve(l, a, b, left, lower != transpose, unit_diagonal));
}

/* clang-format off */
const Plugin triangular_plugins[] = {
    PLUGIN("triangular_solve", lower_triangular_solve),
    {0},
};
/* clang-format on */
