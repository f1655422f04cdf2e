/* Householder reflections: made from a column, applied to a matrix, one or many. */
#include "lower/linalg/reflections.h"

#include "lower/control/loops.h"
#include "lower/elementwise/arithmetic.h"
#include "lower/linalg/blocks.h"
#include "lower/linalg/linear_triangular.h"
#include "lower/linalg/matrices.h"

double least_square(DType dtype) { return dtype == DTYPE_FLOAT64 ? 1e-305 : 1e-75; }

/* Norms are taken in double precision: squares of float32 neither overflow nor vanish there. */
Reflection reflection_of(Lowering *l, Value *column, Value *rows, Value *index) {
  DType dtype = column->type.dtype;
  Value *tail = EMIT_WHERE(l, EMIT_MATH(l, OP_Greater, rows, index), column, number_like(l, column, 0));
  Value *head = cast_to(l, slice_of(l, column, ROWS, index), DTYPE_FLOAT64);
  Value *square = EMIT_ALONG(l, OP_ReduceSumSquare, cast_to(l, tail, DTYPE_FLOAT64), ROWS);
  Value *zero = number_like(l, square, 0), *one = number_like(l, square, 1);
  Value *nothing = EMIT_MATH(l, OP_Less, square, number_like(l, square, least_square(dtype)));
  Value *norm = EMIT_MATH(l, OP_Sqrt, EMIT_MATH(l, OP_Add, EMIT_MATH(l, OP_Mul, head, head), square));
  Value *length = EMIT_MATH(l, OP_Add, EMIT_MATH(l, OP_Abs, head), norm);
  Value *tau = EMIT_WHERE(l, nothing, zero, EMIT_MATH(l, OP_Div, length, norm));
  Value *negative = EMIT_MATH(l, OP_Less, EMIT_MATH(l, OP_Reciprocal, head), zero); /* -0 counts as negative */
  Value *difference = EMIT_WHERE(l, negative, EMIT_MATH(l, OP_Neg, length), length);
  Value *divisor = EMIT_WHERE(l, nothing, one, difference);
  Value *below = EMIT_MATH(l, OP_Div, tail, cast_to(l, divisor, dtype));
  Value *own = EMIT_MATH(l, OP_Equal, rows, index);
  return (Reflection){EMIT_WHERE(l, own, number_like(l, column, 1), below), cast_to(l, tau, dtype)};
}

Value *reflected(Lowering *l, Value *matrix, Reflection by, bool left) {
  Value *scaled = EMIT_MATH(l, OP_Mul, by.vector, by.tau), *share;
  if (left) share = EMIT_MATH(l, OP_Mul, scaled, matrix_product(l, transposed(l, by.vector), matrix));
  else share = EMIT_MATH(l, OP_Mul, matrix_product(l, matrix, by.vector), transposed(l, scaled));
  return EMIT_MATH(l, OP_Sub, matrix, share);
}

/* Of reflections by v1, v2, …, each after those before it, what is taken off a matrix is V W, where row i of W is
 * tau_i vi' applied to the matrix as it is by then: less the shares of the rows before, by the products vi' vj. So W
 * solves a triangular system, and everything else is a MatMul. */
static Value *reflected_at_once(Lowering *l, Value *matrix, Value *vectors, Value *taus, bool backwards) {
  Value *across = transposed(l, vectors), *factors = transposed(l, taus);
  Value *products = EMIT_MATH(l, OP_Mul, matrix_product(l, across, vectors), factors);
  Value *right = EMIT_MATH(l, OP_Mul, matrix_product(l, across, matrix), factors);
  TriangularSystem system = {products, true, !backwards, true};
  return EMIT_MATH(l, OP_Sub, matrix, matrix_product(l, vectors, triangular_solution(l, system, right)));
}

Value *reflected_by_all(Lowering *l, Value *stored, Value *taus, Value *matrix, bool left, bool backwards) {
  Dim count = taus->type.dims[taus->type.rank - 1];
  if (dim_is(count, 0) || is_empty(matrix->type)) return matrix;
  if (!dim_equal(size_along(stored, COLUMNS), count)) {
    static const int64_t axes[] = {COLUMNS};
    Dim zero = dim_of(0);
    stored = slice_at(l, stored, resized(l, stored->type, COLUMNS, count), &zero, &count, NULL, axes, 1);
  }
  Value *ones = identity_matrix(l, stored->type.dtype, size_along(stored, ROWS), count);
  Value *vectors = EMIT_MATH(l, OP_Add, triangle(l, stored, true, -1), ones);
  Value *turned = left ? matrix : transposed(l, matrix);
  Value *result = reflected_at_once(l, turned, vectors, as_row(l, taus), backwards);
  return left ? result : transposed(l, result);
}

/* The vectors and taus of a block of columns; carried is the matrix reflected so far. */
static BlockWork triangularized_block(Lowering *l, Value *const *carried, const Block *block, const void *data) {
  Value *matrix = carried[0], *rows = numbers_along(l, ROWS, size_along(matrix, ROWS));
  (void)data;
  Loop *loop = LOOP_BEGIN(l, "geqrf", block->size, part_of(l, matrix, COLUMNS, block));
  Value *rest = loop->carried[0], *place = place_of(l, block, loop->index);
  Reflection reflection = reflection_of(l, slice_of(l, rest, COLUMNS, loop->index), rows, place);
  loop_collect(loop, reflection.vector, COLUMNS);
  loop_collect(loop, reflection.tau, COLUMNS);
  Value **results = EMIT_LOOP(loop, reflected(l, rest, reflection, true));
  bool whole = !block->first;
  Value *after = whole ? results[0] : reflected_at_once(l, matrix, results[1], results[2], false);
  return (BlockWork){{after}, {results[1], results[2]}};
}

Triangularized triangularized(Lowering *l, Value *matrix, Dim count) {
  ByBlocks plan = {
      .work = triangularized_block, .size = count, .carried_count = 1, .piece_count = 2, .axes = {COLUMNS, COLUMNS}};
  BlockWork all = by_blocks(l, &plan, &matrix);
  return (Triangularized){all.carried[0], all.pieces[0], all.pieces[1]};
}
