/* lu of a few rows, its steps written out.
 *
 * The steps are those that linear_lu.c takes in a loop, but each knows its place. It compares only the rows that are
 * still open, looks the exchange of two rows up in a table, and the last row needs neither a choice nor multipliers.
 * Of a matrix without a batch, places are a vector by which Gather takes whole rows; of each matrix of a batch they are
 * a column, by which GatherElements takes every element.
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

static bool is_alone(const Value *matrix) { return matrix->type.rank == 2; }

static Type vector_of_places(Lowering *l, int64_t count) { return type_constant(l->context, DTYPE_INT64, &count, 1); }

/* The rows of a matrix, or of a column, that stand in these places. */
static Value *rows_at(Lowering *l, Value *matrix, Value *places) {
  return is_alone(matrix) ? slice_of(l, matrix, ROWS, places) : reordered(l, matrix, ROWS, places);
}

/* Some of the places: of a vector, or of the columns of a batch. */
static Value *places_at(Lowering *l, Value *order, const int64_t *which, size_t count) {
  Value *numbers = constant_ints(l, which, count);
  if (order->type.rank > 1) return slice_of(l, order, ROWS, numbers);
  return EMIT(l, OP_Gather, numbers->type, order, numbers);
}

/* The places of the first in the order of the second. */
static Value *places_in_order(Lowering *l, Value *order, Value *by) {
  return order->type.rank > 1 ? reordered(l, order, ROWS, by) : EMIT(l, OP_Gather, order->type, order, by);
}

/* Which of the rows has the largest element: int64[1], or int64[..., 1, 1]. */
static Value *largest_of(Lowering *l, Value *column) {
  Value *sizes = EMIT_MATH(l, OP_Abs, column);
  Value *as_nan = sizes_of_nan(l, sizes->type.dtype, size_along(sizes, ROWS).constant);
  Value *compared = EMIT_WHERE(l, EMIT_MATH(l, OP_IsNaN, sizes), as_nan, sizes);
  if (!is_alone(column)) return EMIT_ALONG(l, OP_ArgMax, compared, ROWS);
  Value *largest = EMIT(l, OP_ArgMax, vector_of_places(l, 1), compared);
  node_set_int(largest->producer, "axis", 0);
  node_set_int(largest->producer, "keepdims", 0);
  return largest;
}

/* By which of the open rows it is: the numbers of all rows, with the place and that row for each other. */
static Value *exchange_table(Lowering *l, int64_t rows, int64_t place, uint32_t rank) {
  int64_t numbers[MOST_ROWS * MOST_ROWS], dims[] = {rows - place, rows, 1}, *next = numbers;
  for (int64_t other = place; other < rows; other++) {
    for (int64_t row = 0; row < rows; row++) *next++ = row == place ? other : row == other ? place : row;
  }
  return constant(l, tensor_new(l, DTYPE_INT64, dims, rank, numbers, (size_t)(next - numbers) * sizeof *numbers));
}

static Value *exchange(Lowering *l, Value *chosen, int64_t rows, int64_t place) {
  uint32_t rank = chosen->type.rank;
  if (rank == 1) return EMIT(l, OP_GatherND, vector_of_places(l, rows), exchange_table(l, rows, place, 2), chosen);
  int64_t axes[] = {rank - 2, rank - 1};
  Type type = resized(l, chosen->type, ROWS, dim_of(rows));
  return EMIT(l, OP_Gather, type, exchange_table(l, rows, place, 3), squeeze_at(l, chosen, axes, 2));
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

static Value *row_in(Lowering *l, const Elimination *work, int64_t place) {
  if (!work->order) return slice_of(l, work->rest, ROWS, index_value(l, place));
  return rows_at(l, work->rest, places_at(l, work->order, &place, 1));
}

/* Chooses the row that stands in this place from now on. */
static Value *choose_row(Lowering *l, Elimination *work, int64_t place, Value *column) {
  int64_t open[MOST_ROWS];
  for (int64_t i = place; i < work->rows; i++) open[i - place] = i;
  if (work->order) column = rows_at(l, column, places_at(l, work->order, open, (size_t)(work->rows - place)));
  Value *chosen = largest_of(l, column), *exchanged = exchange(l, chosen, work->rows, place);
  work->pivots[place] = EMIT_MATH(l, OP_Add, chosen, constant_integer(l, DTYPE_INT64, place));
  work->order = work->order ? places_in_order(l, work->order, exchanged) : exchanged;
  return place ? row_in(l, work, place) : rows_at(l, work->rest, chosen);
}

static void eliminate(Lowering *l, Elimination *work, int64_t place) {
  Value *column = slice_of(l, work->rest, COLUMNS, index_value(l, place));
  Value *row = choose_row(l, work, place, column), *pivot = slice_of(l, row, COLUMNS, index_value(l, place));
  Value *multipliers = EMIT_MATH(l, OP_Div, column, without_zero(l, pivot));
  work->upper[place] = row;
  work->multipliers[place] = multipliers;
  if (place + 1 == work->steps) return;
  work->rest = EMIT_MATH(l, OP_Sub, work->rest, EMIT_MATH(l, OP_Mul, multipliers, row));
}

/* The last row of all stands where it is left. Its multipliers would be below the matrix: any column will do. */
static void take_last_row(Lowering *l, Elimination *work, int64_t place) {
  Type element = resized(l, resized(l, work->rest->type, ROWS, dim_of(1)), COLUMNS, dim_of(1));
  if (is_alone(work->rest)) element = vector_of_places(l, 1);
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

/* No step has chosen where there is but one row. */
static Value *order_of_rows(Lowering *l, const Elimination *work) {
  Type column = type_with(resized(l, work->rest->type, COLUMNS, dim_of(1)), DTYPE_INT64);
  if (work->order) return work->order;
  if (is_alone(work->rest)) return constant_ints(l, &(int64_t){0}, 1);
  return expand_to(l, numbers_along(l, ROWS, dim_of(work->rows)), column.dims, column.rank);
}

SmallLu lu_written_out(Lowering *l, Value *matrix) {
  int64_t rows = size_along(matrix, ROWS).constant, columns = size_along(matrix, COLUMNS).constant;
  Elimination work = {.rest = matrix, .rows = rows, .steps = rows < columns ? rows : columns};
  for (int64_t place = 0; place < work.steps; place++) {
    if (place + 1 < rows) eliminate(l, &work, place);
    else take_last_row(l, &work, place);
  }
  Value *order = order_of_rows(l, &work), *pivots = joined(l, work.pivots, work.steps, COLUMNS);
  Value *lower = rows_at(l, joined(l, work.multipliers, work.steps, COLUMNS), order);
  return (SmallLu){.factors = both_triangles(l, lower, joined(l, work.upper, work.steps, ROWS)),
                   .pivots = is_alone(matrix) ? pivots : from_row(l, pivots),
                   .order = is_alone(matrix) ? order : from_column(l, order)};
}
