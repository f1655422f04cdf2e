/* geqp3: QR decomposition that takes the column of largest norm first, of what the reflections before have left.
 *
 * Columns stay where they are until the end; the order says where they belong. */
#include "lower/control/loops.h"
#include "lower/linalg/complex_matrices.h"
#include "lower/linalg/matrices.h"
#include "lower/linalg/reflections.h"

typedef struct ColumnOrder {
  Value *order; /* int64[..., 1, n]: which column stands in each place */
  Value *fixed; /* int64[..., 1, 1]: how many of the first are not to be exchanged; NULL: none */
} ColumnOrder;

/* Columns whose entry in the input is not zero are brought to the front, one after the other. */
static ColumnOrder initial_order(Lowering *l, Value *chosen) {
  Value *numbers = numbers_along(l, COLUMNS, size_along(chosen, COLUMNS));
  Value *order = expand_to(l, numbers, chosen->type.dims, chosen->type.rank);
  int64_t known;
  const Node *maker = chosen->producer;
  const Value *source = maker && node_is(maker, OP_Unsqueeze) ? node_input(maker, 0) : chosen;
  if (source->producer && node_is(source->producer, OP_Expand)) source = node_input(source->producer, 0);
  if (literal_int(source->tensor, &known) && known == 0) return (ColumnOrder){order, NULL};
  Type single = resized(l, order->type, COLUMNS, dim_of(1));
  Loop *loop = LOOP_BEGIN(l, "fixed_columns", size_along(chosen, COLUMNS), order,
                          filled(l, single, tensor_scalar(l, single.dtype, 0)));
  Value *count = loop->carried[1];
  Value *own = slice_of(l, chosen, COLUMNS, loop->index);
  Value *free = EMIT_MATH(l, OP_Equal, own, integer_like(l, own, 0));
  Value *place = EMIT_WHERE(l, free, loop->index, count);
  Value *next = reordered(l, loop->carried[0], COLUMNS, exchanged(l, numbers, loop->index, place));
  Value *more = cast_to(l, EMIT_MATH(l, OP_Not, free), DTYPE_INT64);
  Value **results = EMIT_LOOP(loop, next, EMIT_MATH(l, OP_Add, count, more));
  return (ColumnOrder){results[0], results[1]};
}

/* The squares of the columns' norms from a row on. */
static Value *squares_below(Lowering *l, Parts rest, Value *rows, Value *index) {
  Value *below = EMIT_MATH(l, OP_GreaterOrEqual, rows, index), *zero = number_like(l, rest.re, 0);
  Value *re = cast_to(l, EMIT_WHERE(l, below, rest.re, zero), DTYPE_FLOAT64);
  Value *squares = EMIT_ALONG(l, OP_ReduceSumSquare, re, ROWS);
  if (!rest.im) return squares;
  Value *im = cast_to(l, EMIT_WHERE(l, below, rest.im, zero), DTYPE_FLOAT64);
  return EMIT_MATH(l, OP_Add, squares, EMIT_ALONG(l, OP_ReduceSumSquare, im, ROWS));
}

/* The order with the column of the largest square, from place `index` on, brought to this place. */
static Value *largest_first(Lowering *l, Value *squares, ColumnOrder columns, Value *numbers, Value *index) {
  squares = reordered(l, squares, COLUMNS, columns.order);
  Value *open = EMIT_MATH(l, OP_GreaterOrEqual, numbers, index);
  Value *place = EMIT_ALONG(l, OP_ArgMax, EMIT_WHERE(l, open, squares, number_like(l, squares, -1)), COLUMNS);
  if (columns.fixed) place = EMIT_WHERE(l, EMIT_MATH(l, OP_Less, index, columns.fixed), index, place);
  return reordered(l, columns.order, COLUMNS, exchanged(l, numbers, index, place));
}

typedef struct Step {
  Parts vector, tau, after;
} Step;

static Step reflect_column(Lowering *l, Parts rest, Value *place, Value *rows, Value *index) {
  Value *re = reordered(l, rest.re, COLUMNS, place);
  if (!rest.im) {
    Reflection by = reflection_of(l, re, rows, index);
    return (Step){{by.vector, NULL}, {by.tau, NULL}, {reflected(l, rest.re, by, true), NULL}};
  }
  Parts column = {re, reordered(l, rest.im, COLUMNS, place)};
  ComplexReflection by = complex_reflection_of(l, column, rows, index);
  return (Step){by.vector, by.tau, complex_reflected(l, rest, by, true)};
}

static void bind_empty(Lowering *l) {
  bind(l, 0, input(l, 0));
  bind(l, 1, input(l, 1));
  bind(l, 2, filled(l, output_type(l, 2), tensor_scalar(l, output_type(l, 2).dtype, 0)));
}

static void lower_geqp3(Lowering *l) {
  if (is_empty(output_type(l, 0))) {
    bind_empty(l);
    return;
  }
  Parts matrix = matrix_parts(l, 0);
  bool complex = matrix.im != NULL;
  Type taus = output_type(l, 2);
  Value *rows = numbers_along(l, ROWS, size_along(matrix.re, ROWS));
  Value *numbers = numbers_along(l, COLUMNS, size_along(matrix.re, COLUMNS));
  ColumnOrder columns = initial_order(l, as_row(l, input(l, 1)));
  Value *initial[] = {columns.order, matrix.re, matrix.im};
  size_t carried = complex ? 3 : 2;
  Loop *loop = loop_begin(l, "geqp3", taus.dims[taus.rank - (complex ? 2 : 1)], false, initial, carried);
  Parts rest = {loop->carried[1], complex ? loop->carried[2] : NULL};
  columns.order = loop->carried[0];
  Value *order = largest_first(l, squares_below(l, rest, rows, loop->index), columns, numbers, loop->index);
  Step step = reflect_column(l, rest, slice_of(l, order, COLUMNS, loop->index), rows, loop->index);
  Value *collected[] = {step.vector.re, step.tau.re, step.vector.im, step.tau.im};
  for (size_t i = 0; i < (complex ? 4 : 2); i++) loop_collect(loop, collected[i], COLUMNS);
  Value **results = emit_loop_end(loop, HERE, VALUES(order, step.after.re, step.after.im), carried);
  Value **pieces = results + carried;
  Parts packed = {both_triangles(l, pieces[0], reordered(l, results[1], COLUMNS, results[0])), NULL};
  if (complex) packed.im = both_triangles(l, pieces[2], reordered(l, results[2], COLUMNS, results[0]));
  bind_matrix(l, 0, packed);
  bind_as(l, 1, from_row(l, EMIT_MATH(l, OP_Add, results[0], integer_like(l, results[0], 1)))); /* counted from one */
  bind_matrix(l, 2, (Parts){from_row(l, pieces[1]), complex ? from_row(l, pieces[3]) : NULL});
}

/* clang-format off */
const Plugin pivoted_qr_plugins[] = {
    PLUGIN("geqp3", lower_geqp3, OP_NONE, TAKES_COMPLEX),
    {0},
};
/* clang-format on */
