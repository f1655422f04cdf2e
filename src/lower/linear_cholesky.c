/* cholesky: a column of the factor a step, whose outer product is taken off what is left of the matrix.
 *
 * As LAPACK does, only the lower triangle is read, and a matrix that is not positive definite gives NaN everywhere. */
#include <math.h>

#include "lower/arithmetic.h"
#include "lower/loops.h"
#include "lower/matrices.h"

/* NaN in all of a matrix whose pivots [..., 1, n] are not all positive. */
static Value *nan_unless_positive(Lowering *l, Value *factor, Value *pivots) {
  Value *failed = EMIT_MATH(l, "Not", EMIT_MATH(l, "Greater", pivots, number_like(l, pivots, 0)));
  Value *any = EMIT_ALONG(l, "ReduceMax", cast_to(l, failed, DTYPE_INT32), COLUMNS);
  return EMIT_WHERE(l, cast_to(l, any, DTYPE_BOOL), number_like(l, factor, NAN), factor);
}

static void lower_cholesky(Lowering *l) {
  Value *matrix = matrix_input(l, 0);
  if (is_empty(matrix->type)) {
    bind_as(l, 0, matrix);
    return;
  }
  Dim size = size_along(matrix, COLUMNS);
  Value *rows = numbers_along(l, ROWS, size);
  Loop *loop = LOOP_BEGIN(l, "cholesky", size, matrix);
  Value *rest = loop->carried[0];
  Value *column = slice_of(l, rest, COLUMNS, loop->index);
  Value *pivot = slice_of(l, column, ROWS, loop->index);
  Value *scaled = EMIT_MATH(l, "Div", column, EMIT_MATH(l, "Sqrt", pivot));
  Value *below = EMIT_MATH(l, "GreaterOrEqual", rows, loop->index);
  Value *factor = EMIT_WHERE(l, below, scaled, number_like(l, rest, 0));
  Value *after = EMIT_MATH(l, "Sub", rest, EMIT_MATH(l, "Mul", factor, transposed(l, factor)));
  loop_collect(loop, factor, COLUMNS);
  loop_collect(loop, pivot, COLUMNS);
  Value **results = EMIT_LOOP(loop, after);
  bind_as(l, 0, nan_unless_positive(l, results[1], results[2]));
}

/* clang-format off */
const Plugin cholesky_plugins[] = {
    PLUGIN("cholesky", lower_cholesky),
    {0},
};
/* clang-format on */
