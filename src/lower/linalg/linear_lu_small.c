/* lu of a few rows, its steps written out.
 *
 * The steps are those that linear_lu.c takes in a loop, but each knows its place. It compares only the rows that are
 * still open, looks the exchange of two rows up in a table, and the last row needs neither a choice nor multipliers.
 */
#include "lower/linalg/linear_lu_small.h"

#include <math.h>

#include "base/bytes.h"
#include "lower/elementwise/arithmetic.h"
#include "lower/linalg/matrices.h"
#include "types/numbers.h"

enum { MOST_ROWS = 8 };

static bool is_short(Dim size) { return dim_is_constant(size) && size.constant <= MOST_ROWS; }

bool lu_is_small(const Value *matrix) {
  return is_short(size_along(matrix, ROWS)) && is_short(size_along(matrix, COLUMNS));
}

static Value *index_value(Lowering *l, int64_t index) { return constant_ints(l, &index, 1); }

/* What a NaN counts as, compared as LAPACK does: in the first row as more than everything, else as nothing. */
static Value *sizes_of_nan(Lowering *l, DType dtype, int64_t rows) {
  uint64_t data[MOST_ROWS];
  int64_t dims[] = {rows, 1};
  char *bytes = (char *)data;
  size_t width = (size_t)dtype_bits(dtype) / 8;
  for (int64_t i = 0; i < rows; i++) {
    uint64_t bits = number_encode(dtype, i ? 0 : INFINITY);
    copy_bytes(bytes + (size_t)i * width, &bits, width);
  }
  return constant(l, tensor_new(l, dtype, dims, 2, bytes, (size_t)rows * width));
}

/* Which of the rows has the largest element: int64[..., 1, 1]. */
static Value *largest_of(Lowering *l, Value *column) {
  Value *sizes = EMIT_MATH(l, OP_Abs, column);
  Value *as_nan = sizes_of_nan(l, sizes->type.dtype, size_along(sizes, ROWS).constant);
  return EMIT_ALONG(l, OP_ArgMax, EMIT_WHERE(l, EMIT_MATH(l, OP_IsNaN, sizes), as_nan, sizes), ROWS);
}

/* By which of the open rows it is: the numbers of all rows, with the place and that row for each other. */
static Value *exchange_table(Lowering *l, int64_t rows, int64_t place) {
  int64_t numbers[MOST_ROWS * MOST_ROWS], dims[] = {rows - place, rows, 1}, *next = numbers;
  for (int64_t other = place; other < rows; other++) {
    for (int64_t row = 0; row < rows; row++) *next++ = row == place ? other : row == other ? place : row;
  }
  return constant(l, tensor_new(l, DTYPE_INT64, dims, 3, numbers, (size_t)(next - numbers) * sizeof *numbers));
}

static Value *exchange(Lowering *l, Value *chosen, int64_t rows, int64_t place) {
  uint32_t rank = chosen->type.rank;
  int64_t axes[] = {rank - 2, rank - 1};
  Type type = resized(l, chosen->type, ROWS, dim_of(rows));
  return EMIT(l, OP_Gather, type, exchange_table(l, rows, place), squeeze_at(l, chosen, axes, 2));
}

typedef struct Elimination {
  Value *rest;  /* rows in their first order */
  Value *order; /* which row stands in each place; NULL: in its own */
  int64_t rows, steps;
  Value *multipliers[MOST_ROWS], *upper[MOST_ROWS], *pivots[MOST_ROWS];
} Elimination;

/* Where a pivot of zero divides, all that it divides is zero. */
static Value *without_zero(Lowering *l, Value *pivot) {
  Value *vanishes = EMIT_MATH(l, OP_Equal, pivot, number_like(l, pivot, 0));
  return EMIT_MATH(l, OP_Add, pivot, cast_to(l, vanishes, pivot->type.dtype));
}

/* Chooses the row that stands in this place from now on. */
static void choose_row(Lowering *l, Elimination *work, int64_t place, Value *column) {
  int64_t open[MOST_ROWS];
  for (int64_t i = place; i < work->rows; i++) open[i - place] = i;
  Value *places = constant_ints(l, open, (size_t)(work->rows - place));
  if (work->order) column = reordered(l, column, ROWS, slice_of(l, work->order, ROWS, places));
  Value *chosen = largest_of(l, column), *exchanged = exchange(l, chosen, work->rows, place);
  work->pivots[place] = EMIT_MATH(l, OP_Add, chosen, constant_integer(l, DTYPE_INT64, place));
  work->order = work->order ? reordered(l, work->order, ROWS, exchanged) : exchanged;
}

static Value *row_in(Lowering *l, const Elimination *work, int64_t place) {
  if (!work->order) return slice_of(l, work->rest, ROWS, index_value(l, place));
  return reordered(l, work->rest, ROWS, slice_of(l, work->order, ROWS, index_value(l, place)));
}

static void eliminate(Lowering *l, Elimination *work, int64_t place) {
  Value *column = slice_of(l, work->rest, COLUMNS, index_value(l, place));
  choose_row(l, work, place, column);
  Value *row = row_in(l, work, place), *pivot = slice_of(l, row, COLUMNS, index_value(l, place));
  Value *multipliers = EMIT_MATH(l, OP_Div, column, without_zero(l, pivot));
  work->upper[place] = row;
  work->multipliers[place] = multipliers;
  if (place + 1 == work->steps) return;
  work->rest = EMIT_MATH(l, OP_Sub, work->rest, EMIT_MATH(l, OP_Mul, multipliers, row));
}

/* The last row of all stands where it is left. Its multipliers would be below the matrix: any column will do. */
static void take_last_row(Lowering *l, Elimination *work, int64_t place) {
  Type element = resized(l, resized(l, work->rest->type, ROWS, dim_of(1)), COLUMNS, dim_of(1));
  work->upper[place] = row_in(l, work, place);
  work->multipliers[place] = slice_of(l, work->rest, COLUMNS, index_value(l, place));
  if (place) work->multipliers[place] = work->multipliers[place - 1];
  work->pivots[place] = expand_to(l, constant_integer(l, DTYPE_INT64, place), element.dims, element.rank);
}

static Value *joined(Lowering *l, Value *const *parts, int64_t count, int64_t axis) {
  if (count == 1) return parts[0];
  Type type = resized(l, parts[0]->type, axis, dim_of(count));
  return concat_at(l, parts, (size_t)count, type.rank + axis, type);
}

SmallLu lu_written_out(Lowering *l, Value *matrix) {
  int64_t rows = size_along(matrix, ROWS).constant, columns = size_along(matrix, COLUMNS).constant;
  Elimination work = {.rest = matrix, .rows = rows, .steps = rows < columns ? rows : columns};
  for (int64_t place = 0; place < work.steps; place++) {
    if (place + 1 < rows) eliminate(l, &work, place);
    else take_last_row(l, &work, place);
  }
  Type column = type_with(resized(l, matrix->type, COLUMNS, dim_of(1)), DTYPE_INT64);
  Value *order = work.order;
  if (!order) order = expand_to(l, numbers_along(l, ROWS, dim_of(rows)), column.dims, column.rank);
  return (SmallLu){.multipliers = joined(l, work.multipliers, work.steps, COLUMNS),
                   .upper = joined(l, work.upper, work.steps, ROWS),
                   .pivots = joined(l, work.pivots, work.steps, COLUMNS),
                   .order = order};
}
