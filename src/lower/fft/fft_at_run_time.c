/* Fourier transforms of a length that only the run knows: a product with the matrix of the transform, which the model
 * makes. ONNX's DFT would take any length, but ONNX Runtime is exact at powers of two alone. */
#include "lower/fft/fft.h"
#include "lower/linalg/matrices.h"

#define TURN 6.28318530717958647692

/* cos and sin of a turn's fraction jk / length, for j below rows and k below columns. The product is reduced while it
 * is an integer. */
static Parts turns(Lowering *l, DType dtype, Dim rows, Dim columns, Dim length) {
  Dim dims[] = {rows, columns};
  Type numbers = type_make(l->context, DTYPE_INT64, dims, 2), type = type_with(numbers, dtype);
  Value *products = EMIT(l, OP_Mul, numbers, numbers_along(l, ROWS, rows), numbers_along(l, COLUMNS, columns));
  products = EMIT(l, OP_Mod, numbers, products, dimension_scalar(l, length, DTYPE_INT64));
  Value *fraction = EMIT(l, OP_Div, type, cast_to(l, products, dtype), dimension_scalar(l, length, dtype));
  Value *angle = EMIT(l, OP_Mul, type, fraction, constant_scalar(l, dtype, TURN));
  return (Parts){EMIT_AROUND(l, OP_Cos, type, angle), EMIT_AROUND(l, OP_Sin, type, angle)};
}

static Value *product(Lowering *l, Value *value, Value *matrix) {
  Type type = resized(l, value->type, COLUMNS, matrix->type.dims[1]);
  return EMIT(l, OP_MatMul, type, value, matrix);
}

static Value *divided(Lowering *l, Value *value, Dim length) {
  return EMIT(l, OP_Div, value->type, value, dimension_scalar(l, length, value->type.dtype));
}

Value *axis_moved(Lowering *l, Value *value, int64_t from, int64_t to) {
  int64_t order[MAX_RANK];
  uint32_t rank = value->type.rank;
  for (int64_t i = 0, next = 0; i < (int64_t)rank; i++) {
    if (i == to) {
      order[i] = from;
      continue;
    }
    if (next == from) next++;
    order[i] = next++;
  }
  return transpose_by(l, value, order);
}

Value *transform_at_run_time(Lowering *l, Value *pairs, Dim length, int64_t axis, bool inverse) {
  int64_t last = (int64_t)pairs->type.rank - 2;
  Value *moved = axis_moved(l, pairs, axis, last);
  Type type = part_type(moved->type);
  Parts z = parts_of(l, moved), matrix = turns(l, type.dtype, length, length, length);
  Value *re = part_array(l, z.re, type), *im = part_array(l, z.im, type);
  Value *across = product(l, im, matrix.im), *back = product(l, re, matrix.im);
  Parts result = {EMIT(l, inverse ? OP_Sub : OP_Add, type, product(l, re, matrix.re), across),
                  EMIT(l, inverse ? OP_Add : OP_Sub, type, product(l, im, matrix.re), back)};
  if (inverse) result = (Parts){divided(l, result.re, length), divided(l, result.im, length)};
  return axis_moved(l, join_parts(l, result, moved->type), last, axis);
}

Value *transform_of_real_at_run_time(Lowering *l, Value *value, Dim length, Dim half) {
  Parts matrix = turns(l, value->type.dtype, length, half, length);
  Value *re = product(l, value, matrix.re), *im = product(l, value, matrix.im);
  return join_parts(l, (Parts){re, EMIT(l, OP_Neg, im->type, im)}, pairs_type(l, re->type));
}

/* Each number of the half stands for itself and its mirror image, but the first, and the middle of an even length. */
static Value *images(Lowering *l, DType dtype, Dim half, Dim length) {
  Value *numbers = numbers_along(l, COLUMNS, half), *two = constant_integer(l, DTYPE_INT64, 2);
  Value *doubled = EMIT_MATH(l, OP_Mul, numbers, two);
  Value *mirrored = EMIT_MATH(l, OP_Mod, doubled, dimension_scalar(l, length, DTYPE_INT64));
  Value *alone = EMIT_MATH(l, OP_Equal, mirrored, constant_integer(l, DTYPE_INT64, 0));
  Value *counts = EMIT_WHERE(l, alone, constant_scalar(l, dtype, 1), constant_scalar(l, dtype, 2));
  return reshape_to(l, counts, &half, 1);
}

Value *real_from_transform_at_run_time(Lowering *l, Value *pairs, Dim length) {
  Type type = part_type(pairs->type);
  Dim half = type.dims[type.rank - 1];
  Parts z = parts_of(l, pairs), matrix = turns(l, type.dtype, half, length, length);
  Value *weights = images(l, type.dtype, half, length);
  Value *re = EMIT(l, OP_Mul, type, part_array(l, z.re, type), weights);
  Value *im = EMIT(l, OP_Mul, type, part_array(l, z.im, type), weights);
  Value *left = product(l, re, matrix.re), *right = product(l, im, matrix.im);
  return divided(l, EMIT(l, OP_Sub, left->type, left, right), length);
}
