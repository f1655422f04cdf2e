/* Matrices: rows, columns and triangles of the last two axes of an array. */
#include "lower/linalg/matrices.h"

#include "base/bytes.h"
#include "lower/elementwise/arithmetic.h"
#include "onnx/facts/schema.h"

Value *matrix_input(Lowering *l, size_t index) {
  rely_on(l, input_type(l, index).rank <= MAX_RANK);
  return wide_input(l, index);
}

void bind_as(Lowering *l, size_t index, Value *value) {
  bind(l, index, cast_to(l, value, output_type(l, index).dtype));
}

static uint32_t axis_number(Lowering *l, Type type, int64_t axis) {
  rely_on(l, axis < 0 && axis >= -(int64_t)type.rank);
  return (uint32_t)(axis + type.rank);
}

Dim size_along(const Value *matrix, int64_t axis) { return matrix->type.dims[axis + matrix->type.rank]; }

Type resized(Lowering *l, Type type, int64_t axis, Dim size) {
  Dim dims[MAX_RANK];
  copy_bytes(dims, type.dims, type.rank * sizeof *dims);
  dims[axis_number(l, type, axis)] = size;
  return type_make(l->context, type.dtype, dims, type.rank);
}

Value *numbers_along(Lowering *l, int64_t axis, Dim size) {
  Value *zero = constant_integer(l, DTYPE_INT64, 0), *one = constant_integer(l, DTYPE_INT64, 1);
  Value *limit = dimension_scalar(l, size, DTYPE_INT64);
  Value *numbers = EMIT(l, OP_Range, type_make(l->context, DTYPE_INT64, &size, 1), zero, limit, one);
  int64_t added = axis == ROWS;
  return unsqueeze_at(l, numbers, &added, 1);
}

Value *slice_of(Lowering *l, Value *matrix, int64_t axis, Value *index) {
  Value *slice = EMIT(l, OP_Gather, resized(l, matrix->type, axis, index->type.dims[0]), matrix, index);
  node_set_int(slice->producer, "axis", axis_number(l, matrix->type, axis));
  return slice;
}

Value *reordered(Lowering *l, Value *matrix, int64_t axis, Value *places) {
  Type type = resized(l, matrix->type, axis, size_along(places, axis));
  Value *result = EMIT(l, OP_GatherElements, type, matrix, expand_to(l, places, type.dims, type.rank));
  node_set_int(result->producer, "axis", axis_number(l, type, axis));
  return result;
}

Value *exchanged(Lowering *l, Value *numbers, Value *a, Value *b) {
  Value *once = EMIT_WHERE(l, EMIT_MATH(l, OP_Equal, numbers, b), a, numbers);
  return EMIT_WHERE(l, EMIT_MATH(l, OP_Equal, numbers, a), b, once);
}

Value *extended(Lowering *l, Value *matrix, int64_t axis, Dim size) {
  Dim before = size_along(matrix, axis), pads[2 * MAX_RANK] = {{0}};
  if (dim_equal(before, size)) return matrix;
  uint32_t rank = matrix->type.rank;
  pads[rank + axis_number(l, matrix->type, axis)] = dim_subtract(l->context, size, before);
  Value *amounts = shape_value(l, pads, 2 * (size_t)rank);
  return EMIT(l, OP_Pad, resized(l, matrix->type, axis, size), matrix, amounts);
}

Value *both_triangles(Lowering *l, Value *lower, Value *upper) {
  Value *below = extended(l, triangle(l, lower, true, -1), COLUMNS, size_along(upper, COLUMNS));
  Value *above = extended(l, triangle(l, upper, false, 0), ROWS, size_along(lower, ROWS));
  return EMIT_MATH(l, OP_Add, below, above);
}

Value *as_row(Lowering *l, Value *vector) {
  int64_t axis = (int64_t)vector->type.rank - 1;
  return unsqueeze_at(l, vector, &axis, 1);
}

Value *as_column(Lowering *l, Value *vector) {
  int64_t axis = vector->type.rank;
  return unsqueeze_at(l, vector, &axis, 1);
}

Value *from_column(Lowering *l, Value *column) {
  int64_t axis = (int64_t)column->type.rank - 1;
  return squeeze_at(l, column, &axis, 1);
}

Value *from_row(Lowering *l, Value *row) {
  int64_t axis = (int64_t)row->type.rank - 2;
  return squeeze_at(l, row, &axis, 1);
}

Value *transposed(Lowering *l, Value *matrix) {
  int64_t permutation[MAX_RANK], rank = matrix->type.rank;
  for (int64_t i = 0; i < rank; i++) permutation[i] = i;
  permutation[rank - 2] = rank - 1;
  permutation[rank - 1] = rank - 2;
  return transpose_by(l, matrix, permutation);
}

Value *matrix_product(Lowering *l, Value *a, Value *b) {
  Type longer = a->type.rank >= b->type.rank ? a->type : b->type;
  Type type = resized(l, resized(l, longer, ROWS, size_along(a, ROWS)), COLUMNS, size_along(b, COLUMNS));
  return EMIT(l, OP_MatMul, type_with(type, a->type.dtype), a, b);
}

Value *reduced_along(Lowering *l, Here here, Op op, Value *matrix, int64_t axis) {
  enum { INPUT_AXES = 18, INPUT_AXES_SUM = 13 }; /* the versions from which axes are an input */
  bool sum = op == OP_ReduceSum, place = op == OP_ArgMax || op == OP_ArgMin;
  bool as_input = !place && schema_version(op, l->options->opset) >= (sum ? INPUT_AXES_SUM : INPUT_AXES);
  int64_t number = axis_number(l, matrix->type, axis);
  Type type = resized(l, matrix->type, axis, dim_of(1));
  if (place) type.dtype = DTYPE_INT64;
  Value *inputs[] = {matrix, as_input ? constant_ints(l, &number, 1) : NULL};
  Value *result = emit_value(l, here, op, type, inputs, as_input ? 2 : 1);
  if (place) node_set_int(result->producer, "axis", number);
  else if (!as_input) node_set_ints(result->producer, "axes", &number, 1);
  return result;
}

Value *triangle(Lowering *l, Value *matrix, bool lower, int64_t offset) {
  Value *result = EMIT(l, OP_Trilu, matrix->type, matrix, constant_integer(l, DTYPE_INT64, offset));
  node_set_int(result->producer, "upper", !lower);
  return result;
}

Value *identity_matrix(Lowering *l, DType dtype, Dim rows, Dim columns) {
  Value *diagonal = EMIT_MATH(l, OP_Equal, numbers_along(l, ROWS, rows), numbers_along(l, COLUMNS, columns));
  return cast_to(l, diagonal, dtype);
}
