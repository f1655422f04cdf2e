/* eig: the eigenvalues and eigenvectors of any square matrices, which are complex.
 *
 * The blocks of the real Schur form are made triangular by complex rotations, all at once. The eigenvectors of a
 * triangle are found row by row, for all eigenvalues at a time, and turned by the basis.
 */
#include "lower/control/loops.h"
#include "lower/linalg/eigen_schur.h"
#include "lower/linalg/jacobi.h"
#include "lower/linalg/matrices.h"

/* The complex eigenvectors (z, c) of the blocks' first eigenvalues d + z. */
typedef struct BlockVectors {
  Value *real, *imaginary; /* of z */
  Value *complex;          /* bool: are the eigenvalues complex? */
} BlockVectors;

static BlockVectors block_vectors(Lowering *l, Blocks blocks) {
  Value *zero = number_like(l, blocks.half, 0);
  Value *root = EMIT_MATH(l, OP_Sqrt, EMIT_MATH(l, OP_Abs, blocks.discriminant));
  Value *away = EMIT_WHERE(l, EMIT_MATH(l, OP_Less, blocks.half, zero), EMIT_MATH(l, OP_Neg, root), root);
  Value *complex = EMIT_MATH(l, OP_Less, blocks.discriminant, zero);
  Value *real = EMIT_WHERE(l, complex, blocks.half, EMIT_MATH(l, OP_Add, blocks.half, away));
  return (BlockVectors){real, EMIT_WHERE(l, complex, root, zero), complex};
}

/* Those of a block stand one below the other; the one with positive imaginary part first. */
static Parts block_values(Lowering *l, Value *diagonal, Blocks blocks, BlockVectors vectors) {
  Value *zero = number_like(l, diagonal, 0);
  Value *apart = EMIT_MATH(l, OP_Mul, EMIT_MATH(l, OP_Div, blocks.b, vectors.real), blocks.c);
  apart = EMIT_WHERE(l, EMIT_MATH(l, OP_Equal, vectors.real, zero), zero, apart);
  Value *first = EMIT_MATH(l, OP_Add, blocks.d, vectors.real), *second = EMIT_MATH(l, OP_Sub, blocks.d, apart);
  first = EMIT_WHERE(l, vectors.complex, blocks.middle, first);
  second = of_row_before(l, EMIT_WHERE(l, vectors.complex, blocks.middle, second));
  Value *other = EMIT_WHERE(l, blocks.second, second, diagonal);
  Value *below = EMIT_MATH(l, OP_Neg, of_row_before(l, vectors.imaginary));
  Value *imaginary = EMIT_WHERE(l, blocks.second, below, zero);
  return (Parts){EMIT_WHERE(l, blocks.first, first, other), EMIT_WHERE(l, blocks.first, vectors.imaginary, imaginary)};
}

/* The unitary matrix [[z, -c], [c, z*]] over its length in place of each block, ones elsewhere. */
static Parts block_turns(Lowering *l, Blocks blocks, BlockVectors vectors) {
  Value *zero = number_like(l, blocks.half, 0), *one = number_like(l, blocks.half, 1);
  Value *squares = EMIT_MATH(l, OP_Add, EMIT_MATH(l, OP_Mul, vectors.real, vectors.real),
                             EMIT_MATH(l, OP_Mul, vectors.imaginary, vectors.imaginary));
  Value *length = EMIT_MATH(l, OP_Sqrt, EMIT_MATH(l, OP_Add, squares, EMIT_MATH(l, OP_Mul, blocks.c, blocks.c)));
  Value *real = EMIT_WHERE(l, blocks.first, EMIT_MATH(l, OP_Div, vectors.real, length), one);
  Value *imaginary = EMIT_WHERE(l, blocks.first, EMIT_MATH(l, OP_Div, vectors.imaginary, length), zero);
  Value *sine = EMIT_WHERE(l, blocks.first, EMIT_MATH(l, OP_Div, blocks.c, length), zero);
  real = EMIT_WHERE(l, blocks.second, of_row_before(l, real), real);
  Value *conjugate = EMIT_MATH(l, OP_Neg, of_row_before(l, imaginary));
  imaginary = EMIT_WHERE(l, blocks.second, conjugate, imaginary);
  Value *below = EMIT_WHERE(l, blocks.second, of_row_before(l, sine), zero);
  Dim size = size_along(real, ROWS);
  Value *turn = three_diagonals(l, real, EMIT_MATH(l, OP_Neg, sine), below);
  return (Parts){turn, EMIT_MATH(l, OP_Mul, imaginary, identity_matrix(l, real->type.dtype, size, size))};
}

static ComplexTriangle triangle_of_real(Lowering *l, Value *matrix) {
  QuasiTriangle schur = quasi_triangle(l, matrix);
  Blocks blocks = blocks_of(l, schur);
  BlockVectors vectors = block_vectors(l, blocks);
  Parts turn = block_turns(l, blocks, vectors);
  Parts right = {matrix_product(l, schur.form, turn.re), matrix_product(l, schur.form, turn.im)};
  Parts back = {transposed(l, turn.re), EMIT_MATH(l, OP_Neg, transposed(l, turn.im))};
  Parts basis = {matrix_product(l, schur.basis, turn.re), matrix_product(l, schur.basis, turn.im)};
  Parts values = block_values(l, blocks.diagonal, blocks, vectors);
  return (ComplexTriangle){complex_product(l, back, right), basis, values, schur.scale};
}

/* a over b, where b is replaced by a small number when it is smaller than that; elements are of the order of one. */
static Parts guarded_quotient(Lowering *l, Parts a, Parts b, Value *least) {
  Value *size = EMIT_MATH(l, OP_Add, EMIT_MATH(l, OP_Abs, b.re), EMIT_MATH(l, OP_Abs, b.im));
  Value *small = EMIT_MATH(l, OP_Less, size, least), *zero = number_like(l, size, 0);
  b = (Parts){EMIT_WHERE(l, small, least, b.re), EMIT_WHERE(l, small, zero, b.im)};
  Value *square = parts_square(l, b);
  Parts product = EMIT_PRODUCT(l, a, parts_conjugate(l, b));
  return (Parts){EMIT_MATH(l, OP_Div, product.re, square), EMIT_MATH(l, OP_Div, product.im, square)};
}

/* The eigenvectors of an upper triangle as columns, found from the last row up; of a lower one when not upper. Column j
 * belongs to eigenvalue j and is scaled down where it grows. */
static Parts triangle_vectors(Lowering *l, Parts form, Parts values, bool upper) {
  DType dtype = form.re->type.dtype;
  Dim size = size_along(form.re, ROWS);
  Value *rows = numbers_along(l, ROWS, size), *columns = numbers_along(l, COLUMNS, size);
  Value *zero = number_like(l, form.re, 0), *one = number_like(l, form.re, 1);
  Parts own = {transposed(l, values.re), transposed(l, values.im)};
  Value *sizes = EMIT_MATH(l, OP_Add, EMIT_MATH(l, OP_Abs, own.re), EMIT_MATH(l, OP_Abs, own.im));
  Value *least = EMIT_MATH(l, OP_Mul, sizes, number_like(l, sizes, spacing_of(dtype)));
  least = EMIT_MATH(l, OP_Max, least, number_like(l, sizes, dtype == DTYPE_FLOAT64 ? 1e-100 : 1e-15));
  Value *ones = expand_to(l, identity_matrix(l, dtype, size, size), form.re->type.dims, form.re->type.rank);
  Value *zeros = expand_to(l, zero, form.re->type.dims, form.re->type.rank);
  Loop *loop = loop_begin(l, "triangle_vectors", size, upper, VALUES(ones, zeros), 2);
  Parts found = {loop->carried[0], loop->carried[1]};
  Parts row = {slice_of(l, form.re, ROWS, loop->index), slice_of(l, form.im, ROWS, loop->index)};
  Parts sum = complex_product(l, row, found);
  Parts distance = {EMIT_MATH(l, OP_Sub, own.re, slice_of(l, own.re, COLUMNS, loop->index)),
                    EMIT_MATH(l, OP_Sub, own.im, slice_of(l, own.im, COLUMNS, loop->index))};
  Parts next = guarded_quotient(l, sum, distance, least);
  Value *beyond = EMIT_MATH(l, upper ? OP_Greater : OP_Less, columns, loop->index);
  next = (Parts){EMIT_WHERE(l, beyond, next.re, zero), EMIT_WHERE(l, beyond, next.im, zero)};
  Value *largest = EMIT_MATH(l, OP_Add, EMIT_MATH(l, OP_Abs, next.re), EMIT_MATH(l, OP_Abs, next.im));
  Value *shrink = EMIT_MATH(l, OP_Reciprocal, EMIT_MATH(l, OP_Max, largest, one));
  Value *here = EMIT_MATH(l, OP_And, EMIT_MATH(l, OP_Equal, rows, loop->index), beyond);
  Value *real = EMIT_MATH(l, OP_Mul, EMIT_WHERE(l, here, next.re, found.re), shrink);
  Value *imaginary = EMIT_MATH(l, OP_Mul, EMIT_WHERE(l, here, next.im, found.im), shrink);
  Value **results = EMIT_LOOP(loop, real, imaginary);
  return (Parts){results[0], results[1]};
}

/* Columns of length one whose largest component is real, as LAPACK has them. Those of real eigenvalues of real matrices
 * are real. */
static Parts normalized(Lowering *l, Parts vectors, Value *real_values) {
  if (real_values) {
    vectors.im = EMIT_WHERE(l, transposed(l, real_values), number_like(l, vectors.im, 0), vectors.im);
  }
  Value *squares = parts_square(l, vectors), *place = EMIT_ALONG(l, OP_ArgMax, squares, ROWS);
  Parts largest = {reordered(l, vectors.re, ROWS, place), reordered(l, vectors.im, ROWS, place)};
  Value *length = EMIT_MATH(l, OP_Sqrt, EMIT_ALONG(l, OP_ReduceSum, squares, ROWS));
  Value *size = EMIT_MATH(l, OP_Mul, length, EMIT_MATH(l, OP_Sqrt, parts_square(l, largest)));
  Parts phase = {EMIT_MATH(l, OP_Div, largest.re, size), EMIT_MATH(l, OP_Neg, EMIT_MATH(l, OP_Div, largest.im, size))};
  Parts turned = EMIT_PRODUCT(l, vectors, phase);
  /* Rounding is all that is left of the imaginary part there. */
  Value *rows = numbers_along(l, ROWS, size_along(vectors.re, ROWS));
  Value *own = EMIT_MATH(l, OP_Equal, rows, place);
  return (Parts){turned.re, EMIT_WHERE(l, own, number_like(l, turned.im, 0), turned.im)};
}

static void bind_vectors(Lowering *l, size_t index, ComplexTriangle triangle, Value *real_values, bool left) {
  Parts form = triangle.form;
  if (left) form = (Parts){transposed(l, form.re), transposed(l, form.im)};
  Parts vectors = triangle_vectors(l, form, triangle.values, !left);
  if (left) vectors.im = EMIT_MATH(l, OP_Neg, vectors.im);
  vectors = normalized(l, complex_product(l, triangle.basis, vectors), real_values);
  bind_parts(l, index, spoiled_by(l, vectors, triangle.scale));
}

static void lower_eig(Lowering *l) {
  Parts matrix = matrix_parts(l, 0);
  bool left = param_bool_or(l->equation, "compute_left_eigenvectors", true);
  bool right = param_bool_or(l->equation, "compute_right_eigenvectors", true);
  if (is_empty(matrix.re->type)) {
    for (size_t i = 0; i < l->equation->output_count; i++) {
      bind(l, i, filled(l, output_type(l, i), tensor_scalar(l, output_type(l, i).dtype, 0)));
    }
    return;
  }
  ComplexTriangle triangle = matrix.im ? complex_triangle(l, matrix) : triangle_of_real(l, matrix.re);
  Value *zero = number_like(l, matrix.re, 0);
  Value *real_values = matrix.im ? NULL : EMIT_MATH(l, OP_Equal, triangle.values.im, zero);
  Parts values = {EMIT_MATH(l, OP_Mul, triangle.values.re, triangle.scale),
                  EMIT_MATH(l, OP_Mul, triangle.values.im, triangle.scale)};
  bind_parts(l, 0, (Parts){from_column(l, values.re), from_column(l, values.im)});
  if (left) bind_vectors(l, 1, triangle, real_values, true);
  if (right) bind_vectors(l, left ? 2 : 1, triangle, real_values, false);
}

/* clang-format off */
const Plugin eig_plugins[] = {
    PLUGIN("eig", lower_eig, OP_NONE, TAKES_COMPLEX),
    {0},
};
/* clang-format on */
