/* lu with partial pivoting, and what its pivots mean.
 *
 * A step takes the row with the largest element of its column off the others. Rows stay where they are until the end;
 * the order says which row stands in each place, so that among equal elements the one in the first place is chosen, as
 * LAPACK does. A column of zeros is left as it is. */
#include <math.h>

#include "lower/complex/complex.h"
#include "lower/control/loops.h"
#include "lower/elementwise/arithmetic.h"
#include "lower/linalg/blocks.h"
#include "lower/linalg/linear_complex.h"
#include "lower/linalg/linear_lu_small.h"
#include "lower/linalg/linear_triangular.h"
#include "lower/linalg/matrices.h"

static void bind_empty_lu(Lowering *l) {
  Type order = output_type(l, 2);
  Value *numbers = cast_to(l, numbers_along(l, COLUMNS, order.dims[order.rank - 1]), order.dtype);
  bind(l, 0, input(l, 0));
  bind(l, 1, filled(l, output_type(l, 1), tensor_scalar(l, output_type(l, 1).dtype, 0)));
  bind(l, 2, expand_to(l, from_row(l, numbers), order.dims, order.rank));
}

/* The rows of the upper factor that belong to a block of columns, from those that were chosen for them. */
static Value *upper_rows(Lowering *l, Value *rest, Value *order, Value *multipliers, const Block *block) {
  Value *chosen = part_of(l, order, ROWS, block);
  TriangularSystem system = {reordered(l, multipliers, ROWS, chosen), true, true, true};
  return triangular_solution(l, system, reordered(l, rest, ROWS, chosen));
}

/* Where the largest of the open rows stands. As LAPACK compares, a NaN is never larger than another element, and
 * nothing is larger than a NaN that comes first. */
static Value *largest_of(Lowering *l, Value *sizes, Value *rows, Value *place) {
  Value *first = EMIT_MATH(l, OP_Equal, rows, place), *open = EMIT_MATH(l, OP_GreaterOrEqual, rows, place);
  Value *as_nan = EMIT_WHERE(l, first, number_like(l, sizes, INFINITY), number_like(l, sizes, 0));
  sizes = EMIT_WHERE(l, EMIT_MATH(l, OP_IsNaN, sizes), as_nan, sizes);
  return EMIT_ALONG(l, OP_ArgMax, EMIT_WHERE(l, open, sizes, number_like(l, sizes, -1)), ROWS);
}

/* Carried: what is left of the matrix, and the order of its rows. Pieces: multipliers, rows, pivots. */
static BlockWork factored(Lowering *l, Value *const *carried, const Block *block, const void *data) {
  Value *rest = carried[0], *rows = numbers_along(l, ROWS, size_along(rest, ROWS));
  (void)data;
  Loop *loop = LOOP_BEGIN(l, "lu", block->size, part_of(l, rest, COLUMNS, block), carried[1]);
  Value *part = loop->carried[0], *place = place_of(l, block, loop->index);
  Value *column = slice_of(l, part, COLUMNS, loop->index);
  Value *sizes = EMIT_MATH(l, OP_Abs, reordered(l, column, ROWS, loop->carried[1]));
  Value *largest = largest_of(l, sizes, rows, place);
  Value *order = reordered(l, loop->carried[1], ROWS, exchanged(l, rows, place, largest));
  Value *row = reordered(l, part, ROWS, slice_of(l, order, ROWS, place));
  Value *pivot = slice_of(l, row, COLUMNS, loop->index);
  Value *vanishes = EMIT_MATH(l, OP_Equal, pivot, number_like(l, pivot, 0));
  Value *multipliers = EMIT_MATH(l, OP_Div, column, EMIT_WHERE(l, vanishes, number_like(l, pivot, 1), pivot));
  Value *after = EMIT_MATH(l, OP_Sub, part, EMIT_MATH(l, OP_Mul, multipliers, row));
  loop_collect(loop, multipliers, COLUMNS);
  loop_collect(loop, row, ROWS);
  loop_collect(loop, largest, COLUMNS);
  Value **results = EMIT_LOOP(loop, after, order);
  Value *upper = block->first ? upper_rows(l, rest, results[1], results[2], block) : results[3];
  Value *left = EMIT_MATH(l, OP_Sub, rest, matrix_product(l, results[2], upper));
  return (BlockWork){{left, results[1]}, {results[2], upper, results[4]}};
}

/* Multipliers have their rows as in the matrix, the order says where they belong. */
static void bind_lu(Lowering *l, Value *multipliers, Value *upper, Value *pivots, Value *order) {
  bind_as(l, 0, both_triangles(l, reordered(l, multipliers, ROWS, order), upper));
  bind_as(l, 1, from_row(l, pivots));
  bind_as(l, 2, from_column(l, order));
}

static void factor(Lowering *l) {
  if (is_empty(output_type(l, 0))) {
    bind_empty_lu(l);
    return;
  }
  if (input_is_complex(l, 0)) {
    lower_complex_lu(l);
    return;
  }
  Value *matrix = matrix_input(l, 0);
  rely_on(l, type_same_shape(matrix->type, output_type(l, 0)));
  if (lu_is_small(matrix)) {
    SmallLu small = lu_written_out(l, matrix);
    bind_as(l, 0, small.factors);
    bind_as(l, 1, small.pivots);
    bind_as(l, 2, small.order);
    return;
  }
  Type pivots = output_type(l, 1), column = resized(l, matrix->type, COLUMNS, dim_of(1));
  Value *order = expand_to(l, numbers_along(l, ROWS, size_along(matrix, ROWS)), column.dims, column.rank);
  ByBlocks plan = {.work = factored,
                   .size = pivots.dims[pivots.rank - 1],
                   .carried_count = 2,
                   .piece_count = 3,
                   .axes = {COLUMNS, ROWS, COLUMNS}};
  BlockWork all = by_blocks(l, &plan, VALUES(matrix, order));
  bind_lu(l, all.pieces[0], all.pieces[1], all.pieces[2], all.carried[1]);
}

static Value *result(const Lowering *l, size_t index) { return l->values[l->equation->outputs[index]->id]; }

/* lu gives the order of rows beside its pivots. Who asks later for the order that those make gets the same. */
static void lower_lu(Lowering *l) {
  factor(l);
  rely_on(l, l->equation->output_count == 3);
  *map_slot_pointer(l->context, &l->scope->orders, result(l, 1)) = result(l, 2);
}

/* Of a few rows all orders stand in a table, in which the pivots are the digits of an order's number. */
enum { MOST_ROWS_IN_TABLE = 4 };

static int64_t power(int64_t base, int64_t exponent) { return exponent ? base * power(base, exponent - 1) : 1; }

static Value *table_of_orders(Lowering *l, int64_t rows, int64_t pivots) {
  int64_t dims[] = {power(rows, pivots), rows};
  int32_t *orders = arena_new_array(&l->context->arena, (size_t)(dims[0] * rows), int32_t), *order = orders;
  for (int64_t number = 0; number < dims[0]; number++, order += rows) {
    for (int32_t i = 0; i < rows; i++) order[i] = i;
    for (int64_t i = 0; i < pivots; i++) {
      int64_t pivot = number / power(rows, pivots - 1 - i) % rows;
      int32_t kept = order[i];
      order[i] = order[pivot];
      order[pivot] = kept;
    }
  }
  size_t size = (size_t)(dims[0] * rows) * sizeof *orders;
  return constant(l, tensor_new(l, DTYPE_INT32, dims, 2, orders, size));
}

static bool is_in_table(Type order, Type pivots) {
  Dim rows = order.dims[order.rank - 1], count = pivots.dims[pivots.rank - 1];
  return order.dtype == DTYPE_INT32 && pivots.dtype == DTYPE_INT32 && dim_is_constant(rows) && dim_is_constant(count) &&
         rows.constant <= MOST_ROWS_IN_TABLE && count.constant >= 1 && count.constant <= rows.constant;
}

static void look_order_up(Lowering *l, Type order, Type pivots) {
  int64_t rows = order.dims[order.rank - 1].constant, count = pivots.dims[pivots.rank - 1].constant;
  int32_t places[MOST_ROWS_IN_TABLE];
  for (int64_t i = 0; i < count; i++) places[i] = (int32_t)power(rows, count - 1 - i);
  Value *weights = constant(l, tensor_new(l, DTYPE_INT32, &count, 1, places, (size_t)count * sizeof *places));
  Value *digits = EMIT_MATH(l, OP_Mul, input(l, 0), weights);
  int64_t last = pivots.rank - 1;
  Value *number = EMIT_REDUCED(l, OP_ReduceSum, digits, &last, 1);
  bind(l, 0, EMIT(l, OP_Gather, order, table_of_orders(l, rows, count), number));
}

/* The order of rows after all exchanges: in step i, rows i and pivots[i]. */
static void lower_lu_pivots_to_permutation(Lowering *l) {
  Type type = output_type(l, 0), pivots_type = input_type(l, 0);
  Value *known = map_get_pointer(&l->scope->orders, input(l, 0));
  if (known && type_equal(known->type, type)) {
    bind(l, 0, known);
    return;
  }
  if (is_in_table(type, pivots_type)) {
    look_order_up(l, type, pivots_type);
    return;
  }
  Value *numbers = numbers_along(l, COLUMNS, type.dims[type.rank - 1]);
  Type wide = as_row(l, cast_to(l, input(l, 0), DTYPE_INT64))->type;
  Type row = resized(l, wide, COLUMNS, type.dims[type.rank - 1]);
  Value *initial = expand_to(l, numbers, row.dims, row.rank);
  Dim count = pivots_type.dims[pivots_type.rank - 1];
  if (is_empty(row) || dim_is(count, 0)) {
    bind_as(l, 0, from_row(l, initial));
    return;
  }
  Value *pivots = as_row(l, cast_to(l, input(l, 0), DTYPE_INT64));
  Loop *loop = LOOP_BEGIN(l, "permutation", count, initial);
  Value *pivot = slice_of(l, pivots, COLUMNS, loop->index);
  Value *order = reordered(l, loop->carried[0], COLUMNS, exchanged(l, numbers, loop->index, pivot));
  bind_as(l, 0, from_row(l, EMIT_LOOP(loop, order)[0]));
}

/* clang-format off */
const Plugin lu_plugins[] = {
    PLUGIN("lu", lower_lu, OP_NONE, TAKES_COMPLEX),
    PLUGIN("lu_pivots_to_permutation", lower_lu_pivots_to_permutation),
    {0},
};
/* clang-format on */
