/* The Schur form of complex matrices, by single shifts on the Hessenberg form: as eigen_schur.c, but with one shift a
 * sweep, reflections of two rows, and every block of more than one row active. */
#include <math.h>

#include "lower/control/loops.h"
#include "lower/linalg/complex_matrices.h"
#include "lower/linalg/eigen_schur.h"
#include "lower/linalg/hessenberg.h"
#include "lower/linalg/jacobi.h"
#include "lower/linalg/matrices.h"

enum { SWEEPS_PER_ROW = 40, SWEEPS_TO_PATIENCE = 11 };

typedef struct Split {
  Parts form;          /* zero in place of what is negligible */
  Value *top, *bottom; /* int64[..., 1, 1]: the last block of more than one row; bottom 0: there is none */
} Split;

static Parts identity_parts(Lowering *l, Type type) {
  Value *ones = identity_matrix(l, type.dtype, type.dims[type.rank - 2], type.dims[type.rank - 1]);
  return (Parts){expand_to(l, ones, type.dims, type.rank), filled(l, type, tensor_scalar(l, type.dtype, 0))};
}

/* |re| + |im| of the elements on a diagonal. */
static Value *sizes_at(Lowering *l, Parts form, int64_t column) {
  return EMIT_MATH(l, OP_Add, EMIT_MATH(l, OP_Abs, diagonal_at(l, form.re, 0, column)),
                   EMIT_MATH(l, OP_Abs, diagonal_at(l, form.im, 0, column)));
}

static Split split_of(Lowering *l, Parts form) {
  Value *rows = numbers_along(l, ROWS, size_along(form.re, ROWS)), *zero = integer_like(l, rows, 0);
  Value *joined = joined_rows(l, sizes_at(l, form, 0), sizes_at(l, form, -1));
  Split split = {.form = {almost_triangle(l, form.re, joined), almost_triangle(l, form.im, joined)}};
  split.bottom = EMIT_ALONG(l, OP_ReduceMax, EMIT_WHERE(l, joined, rows, zero), ROWS);
  Value *start = EMIT_MATH(l, OP_And, EMIT_MATH(l, OP_Not, joined), EMIT_MATH(l, OP_LessOrEqual, rows, split.bottom));
  split.top = EMIT_ALONG(l, OP_ReduceMax, EMIT_WHERE(l, start, rows, zero), ROWS);
  return split;
}

/* The square root with a real part that is not negative, of numbers of the order of one. */
static Parts root_of(Lowering *l, Parts z) {
  Value *zero = number_like(l, z.re, 0), *half = number_like(l, z.re, 0.5);
  Value *sum = EMIT_MATH(l, OP_Add, magnitude(l, z), EMIT_MATH(l, OP_Abs, z.re));
  Value *large = EMIT_MATH(l, OP_Sqrt, EMIT_MATH(l, OP_Mul, sum, half));
  Value *none = EMIT_MATH(l, OP_Equal, large, zero);
  Value *small = EMIT_MATH(l, OP_Div, EMIT_MATH(l, OP_Mul, z.im, half), large);
  small = EMIT_WHERE(l, none, zero, small);
  Value *right = EMIT_MATH(l, OP_GreaterOrEqual, z.re, zero);
  Value *sign = EMIT_WHERE(l, EMIT_MATH(l, OP_Less, z.im, zero), number_like(l, zero, -1), number_like(l, zero, 1));
  return (Parts){EMIT_WHERE(l, right, large, EMIT_MATH(l, OP_Abs, small)),
                 EMIT_WHERE(l, right, small, EMIT_MATH(l, OP_Mul, large, sign))};
}

/* a over b, or zero over zero: zero. */
static Parts quotient(Lowering *l, Parts a, Parts b) {
  Value *square = parts_square(l, b);
  Value *zero = number_like(l, square, 0), *none = EMIT_MATH(l, OP_Equal, square, zero);
  Parts product = EMIT_PRODUCT(l, a, parts_conjugate(l, b));
  return (Parts){EMIT_WHERE(l, none, zero, EMIT_MATH(l, OP_Div, product.re, square)),
                 EMIT_WHERE(l, none, zero, EMIT_MATH(l, OP_Div, product.im, square))};
}

typedef struct Corner {
  Parts a, b, c, d;
} Corner;

/* The block's last two rows and columns. */
static Corner corner_of(Lowering *l, Split split) {
  Value *rows = numbers_along(l, ROWS, size_along(split.form.re, ROWS)), *parts[2][4];
  DType dtype = split.form.re->type.dtype;
  Value *before = EMIT_MATH(l, OP_Sub, split.bottom, integer_like(l, rows, 1));
  Value *units[] = {cast_to(l, EMIT_MATH(l, OP_Equal, rows, before), dtype),
                    cast_to(l, EMIT_MATH(l, OP_Equal, rows, split.bottom), dtype)};
  for (int part = 0; part < 2; part++) {
    for (int i = 0; i < 4; i++) {
      Value *column = matrix_product(l, part ? split.form.im : split.form.re, units[i % 2]);
      parts[part][i] = matrix_product(l, transposed(l, units[i / 2]), column);
    }
  }
  return (Corner){
      {parts[0][0], parts[1][0]}, {parts[0][1], parts[1][1]}, {parts[0][2], parts[1][2]}, {parts[0][3], parts[1][3]}};
}

/* The corner's eigenvalue that is nearer to its last element; now and then something else. */
static Parts shift_for(Lowering *l, Split split, Value *sweep) {
  Corner corner = corner_of(l, split);
  Value *half = number_like(l, corner.a.re, 0.5), *zero = number_like(l, half, 0);
  Parts mean = parts_difference(l, corner.a, corner.d);
  mean = parts_scaled(l, mean, half);
  Parts product = EMIT_PRODUCT(l, corner.b, corner.c);
  Parts root = root_of(l, parts_sum(l, EMIT_PRODUCT(l, mean, mean), product));
  Value *along = EMIT_MATH(l, OP_Add, EMIT_MATH(l, OP_Mul, mean.re, root.re), EMIT_MATH(l, OP_Mul, mean.im, root.im));
  Value *opposed = EMIT_MATH(l, OP_Less, along, zero);
  Parts sum = parts_sum(l, mean, root), difference = parts_difference(l, mean, root);
  Parts larger = parts_where(l, opposed, difference, sum);
  Parts usual = parts_difference(l, corner.d, quotient(l, product, larger));
  Value *turn = EMIT_MATH(l, OP_Mod, sweep, integer_like(l, sweep, SWEEPS_TO_PATIENCE));
  Value *stuck = EMIT_MATH(l, OP_Equal, turn, integer_like(l, sweep, SWEEPS_TO_PATIENCE - 1));
  Value *size = EMIT_MATH(l, OP_Add, EMIT_MATH(l, OP_Abs, corner.c.re), EMIT_MATH(l, OP_Abs, corner.c.im));
  Value *aside = EMIT_MATH(l, OP_Add, corner.d.re, EMIT_MATH(l, OP_Mul, size, number_like(l, size, 0.75)));
  return parts_where(l, stuck, (Parts){aside, corner.d.im}, usual);
}

/* The form's column at a block's top, less the shift. */
static Parts first_column(Lowering *l, Split split, Parts shift) {
  Value *rows = numbers_along(l, ROWS, size_along(split.form.re, ROWS));
  Value *unit = cast_to(l, EMIT_MATH(l, OP_Equal, rows, split.top), shift.re->type.dtype);
  Parts column = {matrix_product(l, split.form.re, unit), matrix_product(l, split.form.im, unit)};
  return parts_difference(l, column, parts_scaled(l, shift, unit));
}

/* The reflection of rows `row` and the next, in the matrices whose block holds both. */
static ComplexReflection chase_step(Lowering *l, Split split, Parts first, Parts form, Value *row) {
  Value *rows = numbers_along(l, ROWS, size_along(form.re, ROWS)), *one = integer_like(l, row, 1);
  Value *before = EMIT_MATH(l, OP_Sub, row, one), *next = EMIT_MATH(l, OP_Add, row, one);
  Value *starts = EMIT_MATH(l, OP_Equal, split.top, row), *zero = number_like(l, form.re, 0);
  Value *inside =
      EMIT_MATH(l, OP_And, EMIT_MATH(l, OP_LessOrEqual, split.top, row), EMIT_MATH(l, OP_Greater, split.bottom, row));
  Value *pair =
      EMIT_MATH(l, OP_And, EMIT_MATH(l, OP_GreaterOrEqual, rows, row), EMIT_MATH(l, OP_LessOrEqual, rows, next));
  Value *touched = EMIT_MATH(l, OP_And, pair, inside);
  Value *re = EMIT_WHERE(l, starts, first.re, slice_of(l, form.re, COLUMNS, before));
  Value *im = EMIT_WHERE(l, starts, first.im, slice_of(l, form.im, COLUMNS, before));
  Parts column = {EMIT_WHERE(l, touched, re, zero), EMIT_WHERE(l, touched, im, zero)};
  return complex_reflection_of(l, column, rows, row);
}

static void chase(Lowering *l, Split split, Parts first, Value *bottom, Parts *form, Parts *basis) {
  Dim last = dim_subtract(l->context, size_along(form->re, ROWS), dim_of(1));
  Value *active = EMIT_MATH(l, OP_Greater, split.bottom, integer_like(l, split.bottom, 0));
  Value *tops = EMIT_WHERE(l, active, split.top, dimension_scalar(l, last, DTYPE_INT64));
  Value *top = over_batch(l, OP_ReduceMin, tops, last);
  Loop *loop = LOOP_BEGIN(l, "chase", last, split.form.re, split.form.im, basis->re, basis->im);
  Parts matrix = {loop->carried[0], loop->carried[1]}, turned = {loop->carried[2], loop->carried[3]};
  Value *row = EMIT_MATH(l, OP_Add, loop->index, top);
  ComplexReflection reflection = chase_step(l, split, first, matrix, row);
  matrix = complex_reflected(l, complex_reflected(l, matrix, reflection, true), reflection, false);
  turned = complex_reflected(l, turned, reflection, false);
  Value *more = EMIT_MATH(l, OP_Less, EMIT_MATH(l, OP_Add, row, integer_like(l, row, 1)), bottom);
  loop->go_on = reshape_to(l, more, NULL, 0);
  Value **results = EMIT_LOOP(loop, matrix.re, matrix.im, turned.re, turned.im);
  *form = (Parts){results[0], results[1]};
  *basis = (Parts){results[2], results[3]};
}

ComplexTriangle complex_triangle(Lowering *l, Parts matrix) {
  Dim size = size_along(matrix.re, ROWS);
  Value *scale = matrix_scale(l, matrix);
  Parts form = over_scale(l, matrix, scale), basis = identity_parts(l, matrix.re->type);
  if (!dim_is(size, 1) && !dim_is(size, 2)) {
    Hessenberg reduced = hessenberg_of(l, form);
    form = reduced.form;
    basis = reduced.basis;
  }
  if (!dim_is(size, 1)) {
    Dim most = dim_multiply(l->context, dim_of(SWEEPS_PER_ROW), size);
    Loop *loop = LOOP_BEGIN(l, "complex_schur", most, form.re, form.im, basis.re, basis.im);
    Split split = split_of(l, (Parts){loop->carried[0], loop->carried[1]});
    basis = (Parts){loop->carried[2], loop->carried[3]};
    Parts first = first_column(l, split, shift_for(l, split, loop->index));
    Value *bottom = over_batch(l, OP_ReduceMax, split.bottom, dim_of(0));
    chase(l, split, first, bottom, &form, &basis);
    loop->go_on = EMIT_MATH(l, OP_Greater, bottom, integer_like(l, bottom, 0));
    Value **results = EMIT_LOOP(loop, form.re, form.im, basis.re, basis.im);
    form = (Parts){results[0], results[1]};
    basis = (Parts){results[2], results[3]};
  }
  Split split = split_of(l, form);
  Value *failed = EMIT_MATH(l, OP_Greater, split.bottom, integer_like(l, split.bottom, 0));
  scale = EMIT_WHERE(l, failed, number_like(l, scale, (double)NAN), scale);
  Parts values = {diagonal_at(l, split.form.re, 0, 0), diagonal_at(l, split.form.im, 0, 0)};
  return (ComplexTriangle){split.form, basis, values, scale};
}
