/* schur: the real Schur form, by Francis' double steps on the Hessenberg form.
 *
 * A sweep chases a bulge down the last block of more than two rows that is left, and a step of the sweep is one
 * reflection of three rows. Each matrix of a batch has its own block, marked by masks; the step is the same for all.
 */
#include "lower/linalg/eigen_schur.h"

#include <math.h>

#include "lower/control/loops.h"
#include "lower/elementwise/arithmetic.h"
#include "lower/linalg/hessenberg.h"
#include "lower/linalg/jacobi.h"
#include "lower/linalg/matrices.h"
#include "lower/linalg/reflections.h"

enum { SWEEPS_PER_ROW = 30, SWEEPS_TO_PATIENCE = 11 };

/* Where a Hessenberg form falls apart. */
typedef struct Split {
  Value *form;         /* zero in place of what is negligible */
  Value *joined;       /* as in QuasiTriangle */
  Value *top, *bottom; /* int64[..., 1, 1]: the last block of more than two rows; bottom 0: there is none */
} Split;

/* int64[size]: the numbers of the rows that many further on, zero for those outside. */
static Value *rows_from(Lowering *l, Dim size, int64_t offset) {
  Value *rows = counted(l, size);
  if (!offset) return rows;
  Value *moved = EMIT_MATH(l, OP_Add, rows, integer_like(l, rows, offset)), *zero = integer_like(l, rows, 0);
  Value *outside = offset < 0 ? EMIT_MATH(l, OP_Less, moved, zero)
                              : EMIT_MATH(l, OP_GreaterOrEqual, moved, dimension_scalar(l, size, DTYPE_INT64));
  return EMIT_WHERE(l, outside, zero, moved);
}

static Value *moved(Lowering *l, Value *column, int64_t offset) {
  return rows_at(l, column, rows_from(l, size_along(column, ROWS), offset));
}

Value *of_row_before(Lowering *l, Value *column) { return moved(l, column, -1); }
Value *of_row_after(Lowering *l, Value *column) { return moved(l, column, 1); }

Value *diagonal_at(Lowering *l, Value *matrix, int64_t row, int64_t column) {
  Dim size = size_along(matrix, ROWS);
  return entries_at(l, matrix, rows_from(l, size, row), rows_from(l, size, column));
}

/* bool[size, size]: the elements on a diagonal, counted to the right. */
static Value *diagonal_mask(Lowering *l, Dim size, int64_t offset) {
  Value *rows = numbers_along(l, ROWS, size), *columns = numbers_along(l, COLUMNS, size);
  return EMIT_MATH(l, OP_Equal, EMIT_MATH(l, OP_Add, rows, integer_like(l, rows, offset)), columns);
}

Value *three_diagonals(Lowering *l, Value *diagonal, Value *above, Value *below) {
  Value *const columns[] = {below, diagonal, above};
  Value *sum = NULL;
  for (int64_t i = 0; i < 3; i++) {
    Value *mask = cast_to(l, diagonal_mask(l, size_along(diagonal, ROWS), i - 1), diagonal->type.dtype);
    Value *one = EMIT_MATH(l, OP_Mul, columns[i], mask);
    sum = sum ? EMIT_MATH(l, OP_Add, sum, one) : one;
  }
  return sum;
}

Value *almost_triangle(Lowering *l, Value *form, Value *marked) {
  Dim size = size_along(form, ROWS);
  Value *rows = numbers_along(l, ROWS, size), *columns = numbers_along(l, COLUMNS, size);
  Value *below = EMIT_MATH(l, OP_And, diagonal_mask(l, size, -1), marked);
  Value *kept = EMIT_MATH(l, OP_Or, EMIT_MATH(l, OP_LessOrEqual, rows, columns), below);
  return EMIT_WHERE(l, kept, form, number_like(l, form, 0));
}

/* Negligible is what is lost in the sum of its neighbours on the diagonal, and what is too small to be squared. */
Value *joined_rows(Lowering *l, Value *sizes, Value *below) {
  DType dtype = sizes->type.dtype;
  Value *rows = numbers_along(l, ROWS, size_along(sizes, ROWS));
  Value *sum = EMIT_MATH(l, OP_Add, sizes, of_row_before(l, sizes));
  Value *least = EMIT_MATH(l, OP_Max, sum, number_like(l, sizes, dtype == DTYPE_FLOAT64 ? 1e-60 : 1e-10));
  Value *none = EMIT_MATH(l, OP_Equal, sum, number_like(l, sizes, 0));
  Value *bound = EMIT_WHERE(l, none, number_like(l, sizes, 1), least);
  bound = EMIT_MATH(l, OP_Mul, bound, number_like(l, sizes, spacing_of(dtype)));
  Value *large = EMIT_MATH(l, OP_Greater, below, bound);
  return EMIT_MATH(l, OP_And, large, EMIT_MATH(l, OP_Greater, rows, integer_like(l, rows, 0)));
}

static Split split_of(Lowering *l, Value *form) {
  Value *rows = numbers_along(l, ROWS, size_along(form, ROWS)), *zero = integer_like(l, rows, 0);
  Value *sizes = EMIT_MATH(l, OP_Abs, diagonal_at(l, form, 0, 0));
  Split split = {.joined = joined_rows(l, sizes, EMIT_MATH(l, OP_Abs, diagonal_at(l, form, 0, -1)))};
  split.form = almost_triangle(l, form, split.joined);
  Value *beside = EMIT_MATH(l, OP_Or, of_row_before(l, split.joined), of_row_after(l, split.joined));
  Value *larger = EMIT_MATH(l, OP_And, split.joined, beside);
  split.bottom = EMIT_ALONG(l, OP_ReduceMax, EMIT_WHERE(l, larger, rows, zero), ROWS);
  Value *start =
      EMIT_MATH(l, OP_And, EMIT_MATH(l, OP_Not, split.joined), EMIT_MATH(l, OP_LessOrEqual, rows, split.bottom));
  split.top = EMIT_ALONG(l, OP_ReduceMax, EMIT_WHERE(l, start, rows, zero), ROWS);
  return split;
}

typedef struct Shift {
  Value *real;   /* of the two shifts' common real part */
  Value *square; /* of their imaginary parts */
} Shift;

/* Both eigenvalues of the block's last two rows where they are complex, else twice the one nearer to the last element;
 * now and then something else, for blocks that these leave as they are. */
static Shift shift_for(Lowering *l, Split split, Value *sweep) {
  Value *form = split.form, *rows = numbers_along(l, ROWS, size_along(form, ROWS)), *zero = number_like(l, form, 0);
  Value *before = EMIT_MATH(l, OP_Sub, split.bottom, integer_like(l, rows, 1));
  Value *second = cast_to(l, EMIT_MATH(l, OP_Equal, rows, split.bottom), form->type.dtype);
  Value *first = cast_to(l, EMIT_MATH(l, OP_Equal, rows, before), form->type.dtype);
  Value *first_column = matrix_product(l, form, first), *second_column = matrix_product(l, form, second);
  Value *first_row = transposed(l, first), *second_row = transposed(l, second);
  Value *a = matrix_product(l, first_row, first_column), *b = matrix_product(l, first_row, second_column);
  Value *c = matrix_product(l, second_row, first_column), *d = matrix_product(l, second_row, second_column);
  Value *half = EMIT_MATH(l, OP_Mul, EMIT_MATH(l, OP_Sub, a, d), number_like(l, form, 0.5));
  Value *middle = EMIT_MATH(l, OP_Sub, a, half);
  Value *discriminant = EMIT_MATH(l, OP_Add, EMIT_MATH(l, OP_Mul, half, half), EMIT_MATH(l, OP_Mul, b, c));
  Value *root = EMIT_MATH(l, OP_Sqrt, EMIT_MATH(l, OP_Max, discriminant, zero));
  Value *toward = EMIT_WHERE(l, EMIT_MATH(l, OP_Less, half, zero), root, EMIT_MATH(l, OP_Neg, root));
  Value *turn = EMIT_MATH(l, OP_Mod, sweep, integer_like(l, sweep, SWEEPS_TO_PATIENCE));
  Value *stuck = EMIT_MATH(l, OP_Equal, turn, integer_like(l, sweep, SWEEPS_TO_PATIENCE - 1));
  Value *aside = EMIT_MATH(l, OP_Mul, EMIT_MATH(l, OP_Abs, c), number_like(l, form, 0.75));
  Value *real = EMIT_WHERE(l, stuck, EMIT_MATH(l, OP_Add, d, aside), EMIT_MATH(l, OP_Add, middle, toward));
  Value *square = EMIT_MATH(l, OP_Max, EMIT_MATH(l, OP_Neg, discriminant), zero);
  return (Shift){real, EMIT_WHERE(l, stuck, EMIT_MATH(l, OP_Mul, aside, aside), square)};
}

/* The first column of the product of the form less one shift and the form less the other, in the block. */
static Value *bulge_column(Lowering *l, Split split, Shift shift) {
  Value *form = split.form, *rows = numbers_along(l, ROWS, size_along(form, ROWS));
  Value *unit = cast_to(l, EMIT_MATH(l, OP_Equal, rows, split.top), form->type.dtype);
  Value *once = EMIT_MATH(l, OP_Sub, matrix_product(l, form, unit), EMIT_MATH(l, OP_Mul, unit, shift.real));
  Value *inside = EMIT_MATH(l, OP_GreaterOrEqual, rows, split.top);
  once = EMIT_WHERE(l, inside, once, number_like(l, form, 0));
  Value *twice = EMIT_MATH(l, OP_Sub, matrix_product(l, form, once), EMIT_MATH(l, OP_Mul, once, shift.real));
  return EMIT_MATH(l, OP_Add, twice, EMIT_MATH(l, OP_Mul, unit, shift.square));
}

Value *over_batch(Lowering *l, Op op, Value *numbers, Dim other) {
  Dim count = dim_of(1);
  for (uint32_t i = 0; i < numbers->type.rank; i++) count = dim_multiply(l->context, count, numbers->type.dims[i]);
  Value *flat = reshape_to(l, numbers, &count, 1);
  Dim more = dim_add(l->context, count, dim_of(1));
  Value *all =
      concat_at(l, VALUES(flat, dimension_value(l, other)), 2, 0, type_make(l->context, DTYPE_INT64, &more, 1));
  Value *result = EMIT(l, op, type_scalar(DTYPE_INT64), all);
  node_set_int(result->producer, "keepdims", 0);
  return result;
}

/* One reflection of a sweep: of the rows from `row` on, so that the column before it ends there again. */
static Reflection chase_step(Lowering *l, Split split, Value *bulge, Value *form, Value *row) {
  Value *rows = numbers_along(l, ROWS, size_along(form, ROWS)), *one = integer_like(l, row, 1);
  Value *column = slice_of(l, form, COLUMNS, EMIT_MATH(l, OP_Sub, row, one));
  column = EMIT_WHERE(l, EMIT_MATH(l, OP_Equal, split.top, row), bulge, column);
  Value *inside =
      EMIT_MATH(l, OP_And, EMIT_MATH(l, OP_LessOrEqual, split.top, row), EMIT_MATH(l, OP_Greater, split.bottom, row));
  Value *limit = EMIT_MATH(l, OP_Min, split.bottom, EMIT_MATH(l, OP_Add, row, integer_like(l, row, 2)));
  limit = EMIT_WHERE(l, inside, limit, integer_like(l, row, -1));
  Value *touched = EMIT_MATH(l, OP_LessOrEqual, rows, limit);
  return reflection_of(l, EMIT_WHERE(l, touched, column, number_like(l, form, 0)), rows, row);
}

/* Chases the bulge of every block from its top to its bottom. Rows outside all blocks are passed over. */
static void chase(Lowering *l, Split split, Value *bulge, Value *bottom, Value **form, Value **basis) {
  Dim last = dim_subtract(l->context, size_along(split.form, ROWS), dim_of(1));
  Value *active = EMIT_MATH(l, OP_Greater, split.bottom, integer_like(l, split.bottom, 0));
  Value *tops = EMIT_WHERE(l, active, split.top, dimension_scalar(l, last, DTYPE_INT64));
  Value *top = over_batch(l, OP_ReduceMin, tops, last);
  Loop *loop = LOOP_BEGIN(l, "chase", last, split.form, *basis);
  Value *row = EMIT_MATH(l, OP_Add, loop->index, top);
  Reflection reflection = chase_step(l, split, bulge, loop->carried[0], row);
  Value *next = reflected(l, reflected(l, loop->carried[0], reflection, true), reflection, false);
  Value *turned = reflected(l, loop->carried[1], reflection, false);
  Value *more = EMIT_MATH(l, OP_Less, EMIT_MATH(l, OP_Add, row, integer_like(l, row, 1)), bottom);
  loop->go_on = reshape_to(l, more, NULL, 0);
  Value **results = EMIT_LOOP(loop, next, turned);
  *form = results[0];
  *basis = results[1];
}

QuasiTriangle quasi_triangle(Lowering *l, Value *matrix) {
  Dim size = size_along(matrix, ROWS);
  Value *scale = matrix_scale(l, (Parts){matrix, NULL}), *form = EMIT_MATH(l, OP_Div, matrix, scale);
  Value *basis = identity_matrix(l, matrix->type.dtype, size, size);
  basis = expand_to(l, basis, matrix->type.dims, matrix->type.rank);
  if (!dim_is(size, 1) && !dim_is(size, 2)) {
    Hessenberg reduced = hessenberg_of(l, (Parts){form, NULL});
    Loop *loop = LOOP_BEGIN(l, "schur", dim_multiply(l->context, dim_of(SWEEPS_PER_ROW), size), reduced.form.re,
                            reduced.basis.re);
    Split split = split_of(l, loop->carried[0]);
    Value *bulge = bulge_column(l, split, shift_for(l, split, loop->index));
    Value *bottom = over_batch(l, OP_ReduceMax, split.bottom, dim_of(0));
    basis = loop->carried[1];
    chase(l, split, bulge, bottom, &form, &basis);
    loop->go_on = EMIT_MATH(l, OP_Greater, bottom, integer_like(l, bottom, 0));
    Value **results = EMIT_LOOP(loop, form, basis);
    form = results[0];
    basis = results[1];
  }
  Split split = split_of(l, form);
  Value *failed = EMIT_MATH(l, OP_Greater, split.bottom, integer_like(l, split.bottom, 0));
  scale = EMIT_WHERE(l, failed, number_like(l, scale, (double)NAN), scale);
  return (QuasiTriangle){split.form, basis, split.joined, scale};
}

Blocks blocks_of(Lowering *l, QuasiTriangle schur) {
  Blocks blocks = {.first = of_row_after(l, schur.joined), .second = schur.joined};
  Value *a = blocks.diagonal = diagonal_at(l, schur.form, 0, 0);
  blocks.b = diagonal_at(l, schur.form, 0, 1);
  blocks.c = diagonal_at(l, schur.form, 1, 0);
  blocks.d = of_row_after(l, a);
  blocks.half = EMIT_MATH(l, OP_Mul, EMIT_MATH(l, OP_Sub, a, blocks.d), number_like(l, a, 0.5));
  blocks.middle = EMIT_MATH(l, OP_Sub, a, blocks.half);
  Value *square = EMIT_MATH(l, OP_Mul, blocks.half, blocks.half);
  blocks.discriminant = EMIT_MATH(l, OP_Add, square, EMIT_MATH(l, OP_Mul, blocks.b, blocks.c));
  return blocks;
}

typedef struct Turn {
  Value *cosine, *sine;
} Turn;

/* Makes the block triangular: its first vector becomes an eigenvector. */
static Turn turn_to_triangle(Lowering *l, Blocks blocks) {
  Value *zero = number_like(l, blocks.half, 0);
  Value *root = EMIT_MATH(l, OP_Sqrt, EMIT_MATH(l, OP_Max, blocks.discriminant, zero));
  Value *away = EMIT_WHERE(l, EMIT_MATH(l, OP_Less, blocks.half, zero), EMIT_MATH(l, OP_Neg, root), root);
  Value *x = EMIT_MATH(l, OP_Add, blocks.half, away), *y = blocks.c;
  Value *length = EMIT_MATH(l, OP_Sqrt, EMIT_MATH(l, OP_Add, EMIT_MATH(l, OP_Mul, x, x), EMIT_MATH(l, OP_Mul, y, y)));
  return (Turn){EMIT_MATH(l, OP_Div, x, length), EMIT_MATH(l, OP_Div, y, length)};
}

/* Makes the diagonal elements of the block equal. */
static Turn turn_to_equal(Lowering *l, Blocks blocks) {
  Value *zero = number_like(l, blocks.half, 0), *one = number_like(l, blocks.half, 1);
  Value *sum = EMIT_MATH(l, OP_Add, blocks.b, blocks.c), *twice = EMIT_MATH(l, OP_Add, blocks.half, blocks.half);
  Value *squares = EMIT_MATH(l, OP_Add, EMIT_MATH(l, OP_Mul, sum, sum), EMIT_MATH(l, OP_Mul, twice, twice));
  Value *equal = EMIT_MATH(l, OP_Equal, squares, zero), *length = EMIT_MATH(l, OP_Sqrt, squares);
  Value *part = EMIT_MATH(l, OP_Div, EMIT_MATH(l, OP_Abs, sum), length);
  Value *cosine = EMIT_MATH(l, OP_Add, part, one);
  cosine = EMIT_MATH(l, OP_Sqrt, EMIT_MATH(l, OP_Mul, cosine, number_like(l, sum, 0.5)));
  Value *sine = EMIT_MATH(l, OP_Div, blocks.half, EMIT_MATH(l, OP_Mul, length, cosine));
  sine = EMIT_WHERE(l, EMIT_MATH(l, OP_Less, sum, zero), sine, EMIT_MATH(l, OP_Neg, sine));
  return (Turn){EMIT_WHERE(l, equal, one, cosine), EMIT_WHERE(l, equal, zero, sine)};
}

/* Is the discriminant below zero by more than rounding can make of it? Two eigenvalues that are equal as far as one can
 * tell are real. */
static Value *is_surely_complex(Lowering *l, Blocks blocks) {
  Value *product = EMIT_MATH(l, OP_Abs, EMIT_MATH(l, OP_Mul, blocks.b, blocks.c));
  Value *sum = EMIT_MATH(l, OP_Add, EMIT_MATH(l, OP_Mul, blocks.half, blocks.half), product);
  Value *error = EMIT_MATH(l, OP_Mul, sum, number_like(l, sum, -4 * spacing_of(sum->type.dtype)));
  return EMIT_MATH(l, OP_Less, blocks.discriminant, error);
}

/* Blocks with real eigenvalues become triangular; the others get equal elements on the diagonal, as in LAPACK. */
static void standardize(Lowering *l, QuasiTriangle *schur) {
  Blocks blocks = blocks_of(l, *schur);
  Value *zero = number_like(l, blocks.half, 0), *one = number_like(l, blocks.half, 1);
  Value *complex = is_surely_complex(l, blocks);
  Turn equal = turn_to_equal(l, blocks), triangle = turn_to_triangle(l, blocks);
  Value *cosine = EMIT_WHERE(l, complex, equal.cosine, triangle.cosine);
  Value *sine = EMIT_WHERE(l, complex, equal.sine, triangle.sine);
  cosine = EMIT_WHERE(l, blocks.first, cosine, one);
  sine = EMIT_WHERE(l, blocks.first, sine, zero);
  Value *diagonal = EMIT_WHERE(l, blocks.second, of_row_before(l, cosine), cosine);
  Value *below = EMIT_WHERE(l, blocks.second, of_row_before(l, sine), zero);
  Value *turn = three_diagonals(l, diagonal, EMIT_MATH(l, OP_Neg, sine), below);
  Value *form = matrix_product(l, transposed(l, turn), matrix_product(l, schur->form, turn));
  Value *starts = EMIT_MATH(l, OP_And, blocks.first, complex);
  Value *ends = EMIT_MATH(l, OP_And, blocks.second, of_row_before(l, complex));
  Value *middle = EMIT_WHERE(l, starts, blocks.middle, of_row_before(l, blocks.middle));
  Value *replaced =
      EMIT_MATH(l, OP_And, diagonal_mask(l, size_along(form, ROWS), 0), EMIT_MATH(l, OP_Or, starts, ends));
  schur->form = almost_triangle(l, EMIT_WHERE(l, replaced, middle, form), ends);
  schur->basis = matrix_product(l, schur->basis, turn);
}

static void lower_schur(Lowering *l) {
  Parts matrix = matrix_parts(l, 0), form, basis;
  bool vectors = param_bool_or(l->equation, "compute_schur_vectors", true);
  if (param_bool_or(l->equation, "sort_eig_vals", false)) {
    unsupported(l, "the eigenvalues are ordered by a Python function, which a model cannot call");
  }
  if (is_empty(matrix.re->type) || dim_is(size_along(matrix.re, ROWS), 1)) {
    bind_matrix(l, 0, matrix);
    Value *one = filled(l, matrix.re->type, tensor_scalar(l, matrix.re->type.dtype, 1));
    if (vectors) bind_matrix(l, 1, (Parts){one, matrix.im ? number_like(l, one, 0) : NULL});
    return;
  }
  Value *scale;
  if (matrix.im) {
    ComplexTriangle schur = complex_triangle(l, matrix);
    form = schur.form;
    basis = schur.basis;
    scale = schur.scale;
    form.im = EMIT_MATH(l, OP_Mul, form.im, scale);
  } else {
    QuasiTriangle schur = quasi_triangle(l, matrix.re);
    standardize(l, &schur);
    form = (Parts){schur.form, NULL};
    basis = (Parts){schur.basis, NULL};
    scale = schur.scale;
  }
  form.re = EMIT_MATH(l, OP_Mul, form.re, scale);
  bind_matrix(l, 0, form);
  if (vectors) bind_matrix(l, 1, spoiled_by(l, basis, scale));
}

/* clang-format off */
const Plugin schur_plugins[] = {
    PLUGIN("schur", lower_schur, OP_NONE, TAKES_COMPLEX),
    {0},
};
/* clang-format on */
