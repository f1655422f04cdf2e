/* cholesky: a column of the factor a step, whose outer product is taken off what is left of the matrix; and
 * cholesky_update, the factor after a vector's outer product is added to the matrix.
 *
 * As LAPACK does, only the lower triangle is read, and a matrix that is not positive definite gives NaN everywhere. */
#include <math.h>

#include "lower/complex/complex.h"
#include "lower/control/loops.h"
#include "lower/elementwise/arithmetic.h"
#include "lower/linalg/blocks.h"
#include "lower/linalg/linear_complex.h"
#include "lower/linalg/matrices.h"

/* NaN in all of a matrix that has one. A pivot that is not positive leaves NaN on the diagonal. */
static Value *nan_throughout(Lowering *l, Value *factor) {
  Value *sum = EMIT_ALONG(l, OP_ReduceSum, EMIT_ALONG(l, OP_ReduceSum, factor, ROWS), COLUMNS);
  return EMIT_WHERE(l, EMIT_MATH(l, OP_IsNaN, sum), number_like(l, factor, NAN), factor);
}

/* The columns of the factor in a block, of what is left of the matrix. */
static BlockWork factored(Lowering *l, Value *const *carried, const Block *block, const void *data) {
  Value *rest = carried[0], *rows = numbers_along(l, ROWS, size_along(rest, ROWS));
  (void)data;
  Loop *loop = LOOP_BEGIN(l, "cholesky", block->size, part_of(l, rest, COLUMNS, block));
  Value *part = loop->carried[0], *place = place_of(l, block, loop->index);
  Value *column = slice_of(l, part, COLUMNS, loop->index);
  Value *pivot = slice_of(l, column, ROWS, place);
  Value *scaled = EMIT_MATH(l, OP_Div, column, EMIT_MATH(l, OP_Sqrt, pivot));
  Value *below = EMIT_MATH(l, OP_GreaterOrEqual, rows, place);
  Value *factor = EMIT_WHERE(l, below, scaled, number_like(l, part, 0));
  Value *across = transposed(l, part_of(l, factor, ROWS, block));
  loop_collect(loop, factor, COLUMNS);
  Value *factors = EMIT_LOOP(loop, EMIT_MATH(l, OP_Sub, part, EMIT_MATH(l, OP_Mul, factor, across)))[1];
  Value *after = EMIT_MATH(l, OP_Sub, rest, matrix_product(l, factors, transposed(l, factors)));
  return (BlockWork){{after}, {factors}};
}

static void lower_cholesky(Lowering *l) {
  if (input_is_complex(l, 0)) {
    lower_complex_cholesky(l);
    return;
  }
  Value *matrix = matrix_input(l, 0);
  if (is_empty(matrix->type)) {
    bind_as(l, 0, matrix);
    return;
  }
  ByBlocks plan = {
      .work = factored, .size = size_along(matrix, COLUMNS), .carried_count = 1, .piece_count = 1, .axes = {COLUMNS}};
  bind_as(l, 0, nan_throughout(l, by_blocks(l, &plan, &matrix).pieces[0]));
}

typedef struct Rotation {
  Value *cosine, *sine; /* [1, 1] */
} Rotation;

/* The rotation that turns (x, y) to (|x, y|, 0), without overflow; none where y is zero. */
static Rotation rotation_of(Lowering *l, Value *x, Value *y) {
  Value *zero = number_like(l, x, 0), *one = number_like(l, x, 1);
  Value *larger = EMIT_MATH(l, OP_Max, EMIT_MATH(l, OP_Abs, x), EMIT_MATH(l, OP_Abs, y));
  Value *along = EMIT_MATH(l, OP_Div, x, larger), *across = EMIT_MATH(l, OP_Div, y, larger);
  Value *square = EMIT_MATH(l, OP_Add, EMIT_MATH(l, OP_Mul, along, along), EMIT_MATH(l, OP_Mul, across, across));
  Value *length = EMIT_MATH(l, OP_Sqrt, square);
  Value *none = EMIT_MATH(l, OP_Equal, y, zero);
  return (Rotation){EMIT_WHERE(l, none, one, EMIT_MATH(l, OP_Div, along, length)),
                    EMIT_WHERE(l, none, zero, EMIT_MATH(l, OP_Div, across, length))};
}

/* The factor is the upper one here. Each of its rows in turn is rotated with the vector, of which nothing is left. */
static void lower_cholesky_update(Lowering *l) {
  Value *factor = matrix_input(l, 0), *vector = matrix_input(l, 1);
  if (is_empty(factor->type)) {
    bind_as(l, 0, factor);
    return;
  }
  Loop *loop = LOOP_BEGIN(l, "cholesky_update", size_along(factor, ROWS), as_row(l, vector));
  Value *rest = loop->carried[0], *row = slice_of(l, factor, ROWS, loop->index);
  Rotation by = rotation_of(l, slice_of(l, row, COLUMNS, loop->index), slice_of(l, rest, COLUMNS, loop->index));
  Value *turned = EMIT_MATH(l, OP_Add, EMIT_MATH(l, OP_Mul, row, by.cosine), EMIT_MATH(l, OP_Mul, rest, by.sine));
  Value *after = EMIT_MATH(l, OP_Sub, EMIT_MATH(l, OP_Mul, rest, by.cosine), EMIT_MATH(l, OP_Mul, row, by.sine));
  loop_collect(loop, turned, ROWS);
  bind_as(l, 0, EMIT_LOOP(loop, after)[1]);
}

/* clang-format off */
const Plugin cholesky_plugins[] = {
    PLUGIN("cholesky", lower_cholesky, OP_NONE, TAKES_COMPLEX),
    PLUGIN("cholesky_update", lower_cholesky_update),
    {0},
};
/* clang-format on */
