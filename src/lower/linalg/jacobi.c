/* Jacobi's method: the seats of the tournament and the rotations of a round. */
#include "lower/linalg/jacobi.h"

#include <float.h>
#include <math.h>

#include "base/bytes.h"
#include "lower/elementwise/arithmetic.h"
#include "lower/linalg/matrices.h"

Value *counted(Lowering *l, Dim size) {
  Value *column = numbers_along(l, ROWS, size);
  return reshape_to(l, column, &size, 1);
}

/* A ring of an odd number of seats: i meets -i, the ring turns by one. With an even number of rows the last stays and
 * meets seat 0, which has no rival otherwise. */
Seats seats_for(Lowering *l, Dim count) {
  Dim parity = dim_binary(l->context, DIM_MOD, count, dim_of(2));
  Dim rounds = dim_subtract(l->context, dim_add(l->context, count, parity), dim_of(1));
  Value *ring = dimension_scalar(l, rounds, DTYPE_INT64), *size = dimension_scalar(l, count, DTYPE_INT64);
  Value *seat = counted(l, count), *zero = integer_like(l, seat, 0), *one = integer_like(l, seat, 1);
  Value *next = EMIT_MATH(l, OP_Mod, EMIT_MATH(l, OP_Add, seat, one), ring);
  Value *from = EMIT_WHERE(l, EMIT_MATH(l, OP_Less, seat, ring), next, seat);
  Value *across = EMIT_MATH(l, OP_Mod, EMIT_MATH(l, OP_Sub, ring, from), ring);
  Value *outside =
      EMIT_MATH(l, OP_Mul, EMIT_MATH(l, OP_Sub, size, ring), ring); /* the last seat, or zero: none stays */
  Value *rival = EMIT_WHERE(l, EMIT_MATH(l, OP_Less, from, ring), across, zero);
  rival = EMIT_WHERE(l, EMIT_MATH(l, OP_Equal, from, zero), outside, rival);
  Value *before = EMIT_MATH(l, OP_Sub, EMIT_MATH(l, OP_Add, rival, ring), one);
  Value *place = EMIT_WHERE(l, EMIT_MATH(l, OP_Less, rival, ring), EMIT_MATH(l, OP_Mod, before, ring), rival);
  return (Seats){count, rounds, from, rival, place};
}

Value *entries_at(Lowering *l, Value *matrix, Value *rows, Value *columns) {
  Dim dims[MAX_RANK], width = size_along(matrix, COLUMNS);
  uint32_t rank = matrix->type.rank;
  copy_bytes(dims, matrix->type.dims, rank * sizeof *dims);
  dims[rank - 2] = dim_multiply(l->context, size_along(matrix, ROWS), width);
  dims[rank - 1] = dim_of(1);
  Value *starts = EMIT_MATH(l, OP_Mul, rows, dimension_scalar(l, width, DTYPE_INT64));
  return rows_at(l, reshape_to(l, matrix, dims, rank), EMIT_MATH(l, OP_Add, starts, columns));
}

Value *main_diagonal(Lowering *l, Value *matrix) {
  Value *all = counted(l, size_along(matrix, ROWS));
  return entries_at(l, matrix, all, all);
}

Value *rows_at(Lowering *l, Value *matrix, Value *rows) {
  Value *result = EMIT(l, OP_Gather, resized(l, matrix->type, ROWS, rows->type.dims[0]), matrix, rows);
  node_set_int(result->producer, "axis", (int64_t)matrix->type.rank - 2);
  return result;
}

/* A number for each seat as a column. */
static Value *seat_column(Lowering *l, Value *numbers) {
  static const int64_t last[] = {1};
  return unsqueeze_at(l, numbers, last, 1);
}

Value *rivals_mask(Lowering *l, const Seats *seats, DType dtype, bool keep_diagonal) {
  Value *columns = numbers_along(l, COLUMNS, seats->count), *rows = numbers_along(l, ROWS, seats->count);
  Value *taken = EMIT_MATH(l, OP_Equal, columns, seat_column(l, seats->place));
  if (keep_diagonal) taken = EMIT_MATH(l, OP_And, taken, has_rival(l, seats));
  else taken = EMIT_MATH(l, OP_Or, taken, EMIT_MATH(l, OP_Equal, columns, rows));
  return cast_to(l, EMIT_MATH(l, OP_Not, taken), dtype);
}

Value *is_first(Lowering *l, const Seats *seats) {
  return EMIT_MATH(l, OP_Less, seat_column(l, seats->from), seat_column(l, seats->rival));
}

Value *has_rival(Lowering *l, const Seats *seats) {
  Value *alone = EMIT_MATH(l, OP_Equal, seat_column(l, seats->from), seat_column(l, seats->rival));
  return EMIT_MATH(l, OP_Not, alone);
}

/* Too small to matter in a sum but with zero. */
static const double TIE = 1e-30;

/* Of two rivals, whose numbers have opposite signs, one is above zero. */
static Value *tie_breaker(Lowering *l, const Seats *seats, DType dtype) {
  return EMIT_WHERE(l, is_first(l, seats), constant_scalar(l, dtype, TIE), constant_scalar(l, dtype, -TIE));
}

enum { FEW_ROWS = 16 };

/* Are there so few rows that nodes cost more than numbers? Then angles are found by their arc tangents, which ONNX
 * Runtime has for float32 alone, and rotations are products with matrices. A round of eigh takes 27 nodes instead of
 * 48, and matrices of 3 x 3 half the time. */
static bool has_few_rows(const Value *matrix) {
  Dim rows = size_along(matrix, ROWS);
  return matrix->type.dtype == DTYPE_FLOAT32 && dim_is_constant(rows) && rows.constant <= FEW_ROWS;
}

/* A matrix that takes each row from that seat. */
static Value *moves_from(Lowering *l, Value *from, DType dtype) {
  Value *columns = numbers_along(l, COLUMNS, from->type.dims[0]);
  return cast_to(l, EMIT_MATH(l, OP_Equal, columns, seat_column(l, from)), dtype);
}

/* The matrices that turn every row with its rival and move it on to the next seat. */
static Value *rotations(Lowering *l, const Seats *seats, Value *cosine, Value *sine) {
  Value *own = EMIT_MATH(l, OP_Mul, moves_from(l, seats->from, cosine->type.dtype), cosine);
  return EMIT_MATH(l, OP_Add, own, EMIT_MATH(l, OP_Mul, moves_from(l, seats->rival, sine->type.dtype), sine));
}

/* Numbers up to the tolerance as zero. */
static Value *without_small(Lowering *l, Value *numbers, double tolerance) {
  Value *result = EMIT(l, OP_Shrink, numbers->type, numbers);
  node_set_float(result->producer, "lambd", (float)tolerance);
  node_set_float(result->producer, "bias", 0);
  return result;
}

/* Half of an arc tangent, of a quotient that is never 0 / 0. */
static Angle half_arc(Lowering *l, Value *tie, Value *opposite, Value *adjacent, double tolerance) {
  Value *divisor = EMIT_MATH(l, OP_Add, adjacent, tie);
  Value *whole = EMIT_MATH(l, OP_Atan, EMIT_MATH(l, OP_Div, without_small(l, opposite, tolerance), divisor));
  Value *half = EMIT_MATH(l, OP_Mul, whole, number_like(l, whole, 0.5));
  Value *cosine = EMIT_MATH(l, OP_Cos, half), *sine = EMIT_MATH(l, OP_Sin, half);
  return (Angle){EMIT_MATH(l, OP_Div, sine, cosine), cosine, sine};
}

/* By square roots, whatever the element type; right angles as the tie, which is added to the cotangent, has it. */
static Angle half_by_roots(Lowering *l, Value *tie, Value *opposite, Value *adjacent, double tolerance) {
  Value *one = number_like(l, opposite, 1);
  Value *cotangent = EMIT_MATH(l, OP_Div, adjacent, opposite);
  cotangent = EMIT_MATH(l, OP_Add, cotangent, tie);
  Value *square = EMIT_MATH(l, OP_Mul, cotangent, cotangent);
  Value *root = EMIT_MATH(l, OP_Sqrt, EMIT_MATH(l, OP_Add, square, one));
  Value *away = EMIT_MATH(l, OP_Mul, root, EMIT_MATH(l, OP_Sign, cotangent));
  Value *tangent = EMIT_MATH(l, OP_Reciprocal, EMIT_MATH(l, OP_Add, cotangent, away));
  Angle angle = {0};
  Value *turned = EMIT_MATH(l, OP_Greater, EMIT_MATH(l, OP_Abs, opposite), number_like(l, opposite, tolerance));
  angle.tangent = EMIT_WHERE(l, turned, tangent, number_like(l, opposite, 0));
  Value *slope = EMIT_MATH(l, OP_Mul, angle.tangent, angle.tangent);
  angle.cosine = EMIT_MATH(l, OP_Reciprocal, EMIT_MATH(l, OP_Sqrt, EMIT_MATH(l, OP_Add, slope, one)));
  angle.sine = EMIT_MATH(l, OP_Mul, angle.tangent, angle.cosine);
  return angle;
}

static Value *tie_for(Lowering *l, const Seats *seats, const Value *side) {
  return seats ? tie_breaker(l, seats, side->type.dtype) : constant_scalar(l, side->type.dtype, TIE);
}

Angle half_angle(Lowering *l, const Seats *seats, Value *opposite, Value *adjacent, double tolerance) {
  Value *tie = tie_for(l, seats, opposite);
  return (has_few_rows(opposite) ? half_arc : half_by_roots)(l, tie, opposite, adjacent, tolerance);
}

Angle half_angle_of_same(Lowering *l, const Seats *seats, Value *opposite, Value *adjacent, double tolerance) {
  if (has_few_rows(opposite)) return half_arc(l, tie_for(l, NULL, opposite), opposite, adjacent, tolerance);
  return half_by_roots(l, tie_for(l, seats, opposite), opposite, adjacent, tolerance);
}

/* A part of a product: a.re b.re - a.im b.im, or with the first parts exchanged and a plus. */
static Value *product_part(Lowering *l, Parts a, Parts b, bool real) {
  Value *first = real ? a.re : a.im, *second = real ? a.im : a.re;
  Value *product = first && b.re ? EMIT_MATH(l, OP_Mul, first, b.re) : NULL;
  if (!second || !b.im) return product;
  Value *other = EMIT_MATH(l, OP_Mul, second, b.im);
  if (product) return EMIT_MATH(l, real ? OP_Sub : OP_Add, product, other);
  return real ? EMIT_MATH(l, OP_Neg, other) : other;
}

static Value *sum_of(Lowering *l, Value *a, Value *b) { return a && b ? EMIT_MATH(l, OP_Add, a, b) : a ? a : b; }

Parts rotated_rows(Lowering *l, const Seats *seats, Parts matrix, Parts cosine, Parts sine) {
  if (!matrix.im && has_few_rows(matrix.re))
    return (Parts){matrix_product(l, rotations(l, seats, cosine.re, sine.re), matrix.re), NULL};
  Parts own = {rows_at(l, matrix.re, seats->from), matrix.im ? rows_at(l, matrix.im, seats->from) : NULL};
  Parts other = {rows_at(l, matrix.re, seats->rival), matrix.im ? rows_at(l, matrix.im, seats->rival) : NULL};
  return (Parts){
      sum_of(l, product_part(l, own, cosine, true), product_part(l, other, sine, true)),
      sum_of(l, product_part(l, own, cosine, false), product_part(l, other, sine, false)),
  };
}

/* Shrink makes zero of NaN: a matrix that is spoiled does not keep the loop from going on with the others. */
static Value *sum_of_larger(Lowering *l, Value *matrix, double limit) {
  Value *sum = EMIT(l, OP_ReduceL1, type_scalar(matrix->type.dtype), without_small(l, matrix, limit));
  node_set_int(sum->producer, "keepdims", 0);
  return sum;
}

Value *has_larger(Lowering *l, Parts matrix, double limit) {
  Value *sum = sum_of_larger(l, matrix.re, limit);
  if (matrix.im) sum = EMIT_MATH(l, OP_Add, sum, sum_of_larger(l, matrix.im, limit));
  return cast_to(l, sum, DTYPE_BOOL);
}

Value *quiet_rounds(Lowering *l, Value *before, Value *turned) {
  Value *turns = EMIT(l, OP_ReduceSum, type_scalar(DTYPE_INT64), cast_to(l, turned, DTYPE_INT64));
  node_set_int(turns->producer, "keepdims", 0);
  Value *none = EMIT_MATH(l, OP_Equal, turns, integer_like(l, turns, 0));
  return EMIT_WHERE(l, none, EMIT_MATH(l, OP_Add, before, integer_like(l, before, 1)), integer_like(l, before, 0));
}

Value *is_unfinished(Lowering *l, const Seats *seats, Value *quiet) {
  return EMIT_MATH(l, OP_Less, quiet, dimension_scalar(l, seats->rounds, DTYPE_INT64));
}

Value *matrix_scale(Lowering *l, Parts parts) {
  Value *matrix = parts.re;
  if (parts.im) {
    Dim both = dim_multiply(l->context, dim_of(2), size_along(matrix, ROWS));
    Type type = resized(l, matrix->type, ROWS, both);
    matrix = concat_at(l, VALUES(parts.re, parts.im), 2, (int64_t)type.rank - 2, type);
  }
  Value *sizes = EMIT_MATH(l, OP_Abs, matrix);
  Value *largest = EMIT_ALONG(l, OP_ReduceMax, EMIT_ALONG(l, OP_ReduceMax, sizes, COLUMNS), ROWS);
  Value *exponent = EMIT_MATH(l, OP_Mul, EMIT_MATH(l, OP_Log, largest), number_like(l, matrix, 1 / log(2)));
  Value *scale = EMIT(l, OP_Pow, largest->type, number_like(l, matrix, 2), EMIT_MATH(l, OP_Floor, exponent));
  Value *zero = number_like(l, matrix, 0);
  scale = EMIT_WHERE(l, EMIT_MATH(l, OP_Greater, largest, zero), scale, number_like(l, matrix, 1));
  /* Zero, or NaN: ReduceMax may pass over NaN. */
  Value *nothing = EMIT_MATH(l, OP_Mul, matrix, zero);
  nothing = EMIT_ALONG(l, OP_ReduceSum, EMIT_ALONG(l, OP_ReduceSum, nothing, COLUMNS), ROWS);
  return EMIT_MATH(l, OP_Add, scale, nothing);
}

Parts over_scale(Lowering *l, Parts matrix, Value *scale) {
  return (Parts){EMIT_MATH(l, OP_Div, matrix.re, scale), matrix.im ? EMIT_MATH(l, OP_Div, matrix.im, scale) : NULL};
}

Parts spoiled_by(Lowering *l, Parts matrix, Value *scale) {
  Value *nothing = EMIT_MATH(l, OP_Mul, scale, number_like(l, scale, 0));
  return (Parts){EMIT_MATH(l, OP_Add, matrix.re, nothing), matrix.im ? EMIT_MATH(l, OP_Add, matrix.im, nothing) : NULL};
}

Value *in_order(Lowering *l, Value *column, bool descending, Value **places) {
  Type types[] = {column->type, type_with(column->type, DTYPE_INT64)};
  Node *node = EMIT_NODE(l, OP_TopK, types, 2, column, dimension_value(l, size_along(column, ROWS)));
  node_set_int(node, "axis", (int64_t)column->type.rank - 2);
  if (!descending) node_set_int(node, "largest", 0);
  *places = node->outputs[1];
  return node->outputs[0];
}

Parts rows_in_order(Lowering *l, Parts matrix, Value *places) {
  return (Parts){reordered(l, matrix.re, ROWS, places), matrix.im ? reordered(l, matrix.im, ROWS, places) : NULL};
}

Value *part_along(Lowering *l, Value *matrix, int64_t axis, int64_t start, int64_t limit) {
  if (start == 0 && dim_is(size_along(matrix, axis), limit)) return matrix;
  Type type = resized(l, matrix->type, axis, dim_of(limit - start));
  int64_t number = axis + matrix->type.rank;
  return slice_at(l, matrix, type, (Dim[]){dim_of(start)}, (Dim[]){dim_of(limit)}, NULL, &number, 1);
}

Subset read_subset(Lowering *l, Dim size) {
  const Param *subset = param_find(l->equation, "subset_by_index");
  if (!subset || subset->kind == PARAM_NONE) return (Subset){.whole = true};
  size_t count;
  const int64_t *bounds = param_list_ints(l->context, subset, &count);
  rely_on(l, count == 2 && bounds[0] >= 0 && bounds[0] <= bounds[1]);
  rely_on(l, !dim_is_constant(size) || bounds[1] <= size.constant);
  return (Subset){bounds[0] == 0 && dim_is(size, bounds[1]), bounds[0], bounds[1]};
}

Value *rows_of_subset(Lowering *l, Value *matrix, Subset subset) {
  return subset.whole ? matrix : part_along(l, matrix, ROWS, subset.start, subset.limit);
}

double spacing_of(DType dtype) { return dtype == DTYPE_FLOAT64 ? DBL_EPSILON : (double)FLT_EPSILON; }
