/* Orthogonal factors as products of Householder reflections: geqrf, geqp3, householder_product, ormqr. JAX defines qr
 * by them.
 *
 * Conventions are LAPACK's, so that signs agree: what the vector of a reflection has below its leading one is stored in
 * place of the zeros that it made.
 */
#include "lower/arithmetic.h"
#include "lower/complex.h"
#include "lower/linear_complex.h"
#include "lower/loops.h"
#include "lower/matrices.h"
#include "lower/reflections.h"

/* The triangular factor, and below its diagonal the vectors. */
static Value *packed(Lowering *l, Value *upper, Value *vectors) {
  Value *below = extended(l, triangle(l, vectors, true, -1), COLUMNS, size_along(upper, COLUMNS));
  return EMIT_MATH(l, "Add", triangle(l, upper, false, 0), below);
}

static Dim last_dim(Type type) { return type.dims[type.rank - 1]; }

static Value *zeros(Lowering *l, Type type) { return filled(l, type, tensor_scalar(l, type.dtype, 0)); }

static void lower_geqrf(Lowering *l) {
  if (input_is_complex(l, 0)) {
    lower_complex_geqrf(l);
    return;
  }
  Value *matrix = matrix_input(l, 0);
  if (is_empty(matrix->type)) {
    bind_as(l, 0, matrix);
    bind(l, 1, zeros(l, output_type(l, 1)));
    return;
  }
  Triangularized factors = triangularized(l, matrix, last_dim(output_type(l, 1)));
  bind_as(l, 0, packed(l, factors.upper, factors.vectors));
  bind_as(l, 1, from_row(l, factors.taus));
}

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
  const Value *source = maker && node_is(maker, "Unsqueeze") ? node_input(maker, 0) : chosen;
  if (source->producer && node_is(source->producer, "Expand")) source = node_input(source->producer, 0);
  if (literal_int(source->tensor, &known) && known == 0) return (ColumnOrder){order, NULL};
  Type single = resized(l, order->type, COLUMNS, dim_of(1));
  Loop *loop = LOOP_BEGIN(l, "fixed_columns", size_along(chosen, COLUMNS), order, zeros(l, single));
  Value *count = loop->carried[1];
  Value *own = slice_of(l, chosen, COLUMNS, loop->index);
  Value *free = EMIT_MATH(l, "Equal", own, integer_like(l, own, 0));
  Value *place = EMIT_WHERE(l, free, loop->index, count);
  Value *next = reordered(l, loop->carried[0], COLUMNS, exchanged(l, numbers, loop->index, place));
  Value *more = cast_to(l, EMIT_MATH(l, "Not", free), DTYPE_INT64);
  Value **results = EMIT_LOOP(loop, next, EMIT_MATH(l, "Add", count, more));
  return (ColumnOrder){results[0], results[1]};
}

/* The order with the column of largest norm, from row and place `index` on, brought to this place. */
static Value *largest_first(Lowering *l, Value *rest, Value *order, Value *fixed, Value *rows, Value *numbers,
                            Value *index) {
  Value *below = EMIT_MATH(l, "GreaterOrEqual", rows, index);
  Value *left = cast_to(l, EMIT_WHERE(l, below, rest, number_like(l, rest, 0)), DTYPE_FLOAT64);
  Value *squares = reordered(l, EMIT_ALONG(l, "ReduceSumSquare", left, ROWS), COLUMNS, order);
  Value *open = EMIT_MATH(l, "GreaterOrEqual", numbers, index);
  Value *place = EMIT_ALONG(l, "ArgMax", EMIT_WHERE(l, open, squares, number_like(l, squares, -1)), COLUMNS);
  if (fixed) place = EMIT_WHERE(l, EMIT_MATH(l, "Less", index, fixed), index, place);
  return reordered(l, order, COLUMNS, exchanged(l, numbers, index, place));
}

/* Columns stay where they are until the end; the order says where they belong. */
static void lower_geqp3(Lowering *l) {
  Value *matrix = matrix_input(l, 0), *chosen = as_row(l, input(l, 1));
  if (is_empty(matrix->type)) {
    bind_as(l, 0, matrix);
    bind(l, 1, input(l, 1));
    bind(l, 2, zeros(l, output_type(l, 2)));
    return;
  }
  Value *rows = numbers_along(l, ROWS, size_along(matrix, ROWS));
  Value *numbers = numbers_along(l, COLUMNS, size_along(matrix, COLUMNS));
  ColumnOrder initial = initial_order(l, chosen);
  Loop *loop = LOOP_BEGIN(l, "geqp3", last_dim(output_type(l, 2)), matrix, initial.order);
  Value *rest = loop->carried[0];
  Value *order = largest_first(l, rest, loop->carried[1], initial.fixed, rows, numbers, loop->index);
  Value *column = reordered(l, rest, COLUMNS, slice_of(l, order, COLUMNS, loop->index));
  Reflection reflection = reflection_of(l, column, rows, loop->index);
  Value *after = reflected(l, rest, reflection, true);
  loop_collect(loop, reflection.vector, COLUMNS);
  loop_collect(loop, reflection.tau, COLUMNS);
  Value **results = EMIT_LOOP(loop, after, order);
  bind_as(l, 0, packed(l, reordered(l, results[0], COLUMNS, results[1]), results[2]));
  bind_as(l, 1, from_row(l, EMIT_MATH(l, "Add", results[1], integer_like(l, results[1], 1))));
  bind_as(l, 2, from_row(l, results[3]));
}

static void lower_householder_product(Lowering *l) {
  if (input_is_complex(l, 0)) {
    lower_complex_householder_product(l);
    return;
  }
  Value *stored = matrix_input(l, 0), *taus = matrix_input(l, 1);
  Value *ones = identity_matrix(l, stored->type.dtype, size_along(stored, ROWS), size_along(stored, COLUMNS));
  ones = expand_to(l, ones, stored->type.dims, stored->type.rank);
  bind_as(l, 0, reflected_by_all(l, stored, taus, ones, true, true));
}

static void lower_ormqr(Lowering *l) {
  if (input_is_complex(l, 0)) {
    lower_complex_ormqr(l);
    return;
  }
  bool left = param_bool_or(l->equation, "left", true), transpose = param_bool_or(l->equation, "transpose", false);
  Value *stored = matrix_input(l, 0), *taus = matrix_input(l, 1), *matrix = matrix_input(l, 2);
  bind_as(l, 0, reflected_by_all(l, stored, taus, matrix, left, left != transpose));
}

/* clang-format off */
const Plugin householder_plugins[] = {
    PLUGIN("geqp3", lower_geqp3),
    PLUGIN("geqrf", lower_geqrf, NULL, TAKES_COMPLEX),
    PLUGIN("householder_product", lower_householder_product, NULL, TAKES_COMPLEX),
    PLUGIN("ormqr", lower_ormqr, NULL, TAKES_COMPLEX),
    {0},
};
/* clang-format on */
