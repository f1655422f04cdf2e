/* Jacobi's method: the seats of the tournament and the rotations of a round. */
#include "lower/jacobi.h"

#include <float.h>
#include <math.h>

#include "lower/arithmetic.h"
#include "lower/matrices.h"

int64_t known_size(Lowering *l, const Value *matrix, int64_t axis) {
  Dim size = size_along(matrix, axis);
  if (!dim_is_constant(size)) {
    unsupported(l, "the size of the matrix must be known at export, and it is %s; only the batch may be symbolic",
                dim_text(l->context, size));
  }
  return size.constant;
}

/* A ring of an odd number of seats: i meets -i, the ring turns by one. With an even number of rows the last stays and
 * meets seat 0, which has no rival otherwise. */
Seats seats_for(Lowering *l, int64_t count) {
  require(l->context, count > 0);
  int64_t ring = count % 2 ? count : count - 1;
  int64_t *from = arena_new_array(&l->context->arena, (size_t)count, int64_t);
  int64_t *rival = arena_new_array(&l->context->arena, (size_t)count, int64_t);
  int64_t *place = arena_new_array(&l->context->arena, (size_t)count, int64_t);
  for (int64_t i = 0; i < count; i++) {
    from[i] = i < ring ? (i + 1) % ring : i;
    rival[i] = from[i] < ring ? (ring - from[i]) % ring : 0;
    if (from[i] == 0) rival[i] = count - ring ? ring : 0;
    place[i] = rival[i] < ring ? (rival[i] + ring - 1) % ring : rival[i];
  }
  return (Seats){.count = count, .rounds = ring, .from = from, .rival = rival, .place = place};
}

Value *entries_at(Lowering *l, Value *matrix, const int64_t *rows, const int64_t *columns) {
  Dim dims[MAX_RANK];
  uint32_t rank = matrix->type.rank;
  int64_t count = size_along(matrix, ROWS).constant, width = size_along(matrix, COLUMNS).constant;
  require(l->context, dim_is_constant(size_along(matrix, ROWS)) && dim_is_constant(size_along(matrix, COLUMNS)));
  memcpy(dims, matrix->type.dims, rank * sizeof *dims);
  dims[rank - 2] = dim_of(count * width);
  dims[rank - 1] = dim_of(1);
  int64_t *places = arena_new_array(&l->context->arena, (size_t)count, int64_t);
  for (int64_t i = 0; i < count; i++) places[i] = rows[i] * width + columns[i];
  Value *flat = reshape_to(l, matrix, dims, rank), *indices = constant_ints(l, places, (size_t)count);
  Value *entries = EMIT(l, "Gather", resized(l, flat->type, ROWS, dim_of(count)), flat, indices);
  node_set_int(entries->producer, "axis", (int64_t)rank - 2);
  return entries;
}

/* [rows, columns] of numbers given as doubles. */
static Value *constant_matrix(Lowering *l, DType dtype, const double *numbers, int64_t rows, int64_t columns) {
  int64_t dims[] = {rows, columns};
  size_t count = (size_t)(rows * columns);
  if (dtype == DTYPE_FLOAT64) return constant(l, tensor_new(l, dtype, dims, 2, numbers, count * sizeof *numbers));
  require(l->context, dtype == DTYPE_FLOAT32);
  float *singles = arena_new_array(&l->context->arena, count, float);
  for (size_t i = 0; i < count; i++) singles[i] = (float)numbers[i];
  return constant(l, tensor_new(l, dtype, dims, 2, singles, count * sizeof *singles));
}

Value *rivals_mask(Lowering *l, const Seats *seats, DType dtype, bool keep_diagonal) {
  size_t count = (size_t)seats->count;
  double *numbers = arena_new_array(&l->context->arena, count * count, double);
  for (size_t i = 0; i < count * count; i++) numbers[i] = 1;
  for (size_t i = 0; i < count; i++) {
    if (!keep_diagonal) numbers[i * count + i] = 0;
    if (seats->place[i] != (int64_t)i) numbers[i * count + (size_t)seats->place[i]] = 0;
  }
  return constant_matrix(l, dtype, numbers, seats->count, seats->count);
}

Value *leads(Lowering *l, const Seats *seats, DType dtype) {
  double *numbers = arena_new_array(&l->context->arena, (size_t)seats->count, double);
  for (int64_t i = 0; i < seats->count; i++) numbers[i] = seats->from[i] < seats->rival[i] ? 1 : -1;
  return constant_matrix(l, dtype, numbers, seats->count, 1);
}

Value *has_rival(Lowering *l, const Seats *seats, DType dtype) {
  double *numbers = arena_new_array(&l->context->arena, (size_t)seats->count, double);
  for (int64_t i = 0; i < seats->count; i++) numbers[i] = seats->place[i] != i;
  return constant_matrix(l, dtype, numbers, seats->count, 1);
}

/* Too small to matter in a sum but with zero. */
static const double TIE = 1e-30;

/* Of two rivals, whose numbers have opposite signs, one is above zero. */
static Value *tie_breaker(Lowering *l, const Seats *seats, DType dtype) {
  double *numbers = arena_new_array(&l->context->arena, (size_t)seats->count, double);
  for (int64_t i = 0; i < seats->count; i++) numbers[i] = seats->place[i] < i ? -TIE : TIE;
  return constant_matrix(l, dtype, numbers, seats->count, 1);
}

Angle half_angle(Lowering *l, const Seats *seats, Value *opposite, Value *adjacent, double tolerance) {
  Value *one = number_like(l, opposite, 1);
  Value *cotangent = EMIT_MATH(l, "Div", adjacent, opposite);
  Value *tie = seats ? tie_breaker(l, seats, opposite->type.dtype) : number_like(l, opposite, TIE);
  cotangent = EMIT_MATH(l, "Add", cotangent, tie);
  Value *square = EMIT_MATH(l, "Mul", cotangent, cotangent);
  Value *root = EMIT_MATH(l, "Sqrt", EMIT_MATH(l, "Add", square, one));
  Value *away = EMIT_MATH(l, "Mul", root, EMIT_MATH(l, "Sign", cotangent));
  Value *tangent = EMIT_MATH(l, "Reciprocal", EMIT_MATH(l, "Add", cotangent, away));
  Angle angle = {0};
  angle.turned = EMIT_MATH(l, "Greater", EMIT_MATH(l, "Abs", opposite), number_like(l, opposite, tolerance));
  angle.tangent = EMIT_WHERE(l, angle.turned, tangent, number_like(l, opposite, 0));
  Value *slope = EMIT_MATH(l, "Mul", angle.tangent, angle.tangent);
  angle.cosine = EMIT_MATH(l, "Reciprocal", EMIT_MATH(l, "Sqrt", EMIT_MATH(l, "Add", slope, one)));
  angle.sine = EMIT_MATH(l, "Mul", angle.tangent, angle.cosine);
  return angle;
}

Value *rows_at(Lowering *l, Value *matrix, const int64_t *rows) {
  size_t count = (size_t)size_along(matrix, ROWS).constant;
  Value *result = EMIT(l, "Gather", matrix->type, matrix, constant_ints(l, rows, count));
  node_set_int(result->producer, "axis", (int64_t)matrix->type.rank - 2);
  return result;
}

/* A part of a product: a.re b.re - a.im b.im, or with the first parts exchanged and a plus. */
static Value *product_part(Lowering *l, Parts a, Parts b, bool real) {
  Value *first = real ? a.re : a.im, *second = real ? a.im : a.re;
  Value *product = first && b.re ? EMIT_MATH(l, "Mul", first, b.re) : NULL;
  if (!second || !b.im) return product;
  Value *other = EMIT_MATH(l, "Mul", second, b.im);
  if (product) return EMIT_MATH(l, real ? "Sub" : "Add", product, other);
  return real ? EMIT_MATH(l, "Neg", other) : other;
}

static Value *sum_of(Lowering *l, Value *a, Value *b) { return a && b ? EMIT_MATH(l, "Add", a, b) : a ? a : b; }

Parts rotated_rows(Lowering *l, const Seats *seats, Parts matrix, Parts cosine, Parts sine) {
  Parts own = {rows_at(l, matrix.re, seats->from), matrix.im ? rows_at(l, matrix.im, seats->from) : NULL};
  Parts other = {rows_at(l, matrix.re, seats->rival), matrix.im ? rows_at(l, matrix.im, seats->rival) : NULL};
  return (Parts){
      sum_of(l, product_part(l, own, cosine, true), product_part(l, other, sine, true)),
      sum_of(l, product_part(l, own, cosine, false), product_part(l, other, sine, false)),
  };
}

Value *quiet_rounds(Lowering *l, Value *before, Value *turned) {
  Value *turns = EMIT(l, "ReduceSum", type_scalar(DTYPE_INT64), cast_to(l, turned, DTYPE_INT64));
  node_set_int(turns->producer, "keepdims", 0);
  Value *none = EMIT_MATH(l, "Equal", turns, integer_like(l, turns, 0));
  return EMIT_WHERE(l, none, EMIT_MATH(l, "Add", before, integer_like(l, before, 1)), integer_like(l, before, 0));
}

Value *matrix_scale(Lowering *l, Parts parts) {
  Value *matrix = parts.re;
  if (parts.im) {
    Type type = resized(l, matrix->type, ROWS, dim_of(2 * size_along(matrix, ROWS).constant));
    matrix = concat_at(l, VALUES(parts.re, parts.im), 2, (int64_t)type.rank - 2, type);
  }
  Value *sizes = EMIT_MATH(l, "Abs", matrix);
  Value *largest = EMIT_ALONG(l, "ReduceMax", EMIT_ALONG(l, "ReduceMax", sizes, COLUMNS), ROWS);
  Value *exponent = EMIT_MATH(l, "Mul", EMIT_MATH(l, "Log", largest), number_like(l, matrix, 1 / log(2)));
  Value *scale = EMIT(l, "Pow", largest->type, number_like(l, matrix, 2), EMIT_MATH(l, "Floor", exponent));
  Value *zero = number_like(l, matrix, 0);
  scale = EMIT_WHERE(l, EMIT_MATH(l, "Greater", largest, zero), scale, number_like(l, matrix, 1));
  /* Zero, or NaN: ReduceMax may pass over NaN. */
  Value *nothing = EMIT_MATH(l, "Mul", matrix, zero);
  nothing = EMIT_ALONG(l, "ReduceSum", EMIT_ALONG(l, "ReduceSum", nothing, COLUMNS), ROWS);
  return EMIT_MATH(l, "Add", scale, nothing);
}

Parts over_scale(Lowering *l, Parts matrix, Value *scale) {
  return (Parts){EMIT_MATH(l, "Div", matrix.re, scale), matrix.im ? EMIT_MATH(l, "Div", matrix.im, scale) : NULL};
}

Parts spoiled_by(Lowering *l, Parts matrix, Value *scale) {
  Value *nothing = EMIT_MATH(l, "Mul", scale, number_like(l, scale, 0));
  return (Parts){EMIT_MATH(l, "Add", matrix.re, nothing), matrix.im ? EMIT_MATH(l, "Add", matrix.im, nothing) : NULL};
}

Value *in_order(Lowering *l, Value *column, bool descending, Value **places) {
  Type types[] = {column->type, type_with(column->type, DTYPE_INT64)};
  Node *node = EMIT_NODE(l, "TopK", types, 2, column, dimension_value(l, size_along(column, ROWS)));
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

double spacing_of(DType dtype) { return dtype == DTYPE_FLOAT64 ? DBL_EPSILON : (double)FLT_EPSILON; }
