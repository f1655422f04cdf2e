/* Schur form: a matrix turned by an orthogonal basis until it is triangular but for blocks of two rows. */
#ifndef J2O_LOWER_LINALG_EIGEN_SCHUR_H
#define J2O_LOWER_LINALG_EIGEN_SCHUR_H

#include "lower/complex/complex.h"

typedef struct QuasiTriangle {
  Value *form;   /* the matrix, over its scale */
  Value *basis;  /* orthogonal: basis form basis' is the matrix */
  Value *joined; /* bool column: has the row an element below the diagonal, in the column of the row before? */
  Value *scale;  /* [..., 1, 1]; NaN where the matrix is not finite or no form was found */
} QuasiTriangle;

/* Of square matrices with at least one row. */
QuasiTriangle quasi_triangle(Lowering *l, Value *matrix);

/* The blocks of two rows, as columns that hold for the first row of each: [[a, b], [c, d]]. */
typedef struct Blocks {
  Value *first, *second; /* bool: is the row the first, the second of a block? */
  Value *diagonal;       /* of the form: a for the first row, d for the second */
  Value *b, *c, *d;
  Value *middle;       /* (a + d) / 2 */
  Value *half;         /* (a - d) / 2 */
  Value *discriminant; /* half^2 + b c: below zero where the eigenvalues are complex */
} Blocks;

Blocks blocks_of(Lowering *l, QuasiTriangle schur);

typedef struct ComplexTriangle {
  Parts form;   /* triangular; the matrix, over its scale */
  Parts basis;  /* unitary: basis form basis* is the matrix */
  Parts values; /* eigenvalues of the form, a column */
  Value *scale; /* as in QuasiTriangle */
} ComplexTriangle;

/* Of complex matrices (eigen_schur_complex.c). */
ComplexTriangle complex_triangle(Lowering *l, Parts matrix);

/* matrix[i + row, i + column] as a column; where that is outside, something of the matrix. */
Value *diagonal_at(Lowering *l, Value *matrix, int64_t row, int64_t column);
/* bool column: which rows are joined to the row before, by the sizes of the elements on and below the diagonal? */
Value *joined_rows(Lowering *l, Value *sizes, Value *below);
/* What is on and above the diagonal, and the elements just below it in the marked rows. */
Value *almost_triangle(Lowering *l, Value *form, Value *marked);
/* The least or greatest over the batch, which may be empty, and another number. Rank 0. */
Value *over_batch(Lowering *l, Op op, Value *numbers, Dim other);
/* A column moved by one row: each row gets what the row before, or the one after it, has; the last gets the first's. */
Value *of_row_before(Lowering *l, Value *column);
Value *of_row_after(Lowering *l, Value *column);
/* Columns along the diagonal, and the diagonals above and below it. */
Value *three_diagonals(Lowering *l, Value *diagonal, Value *above, Value *below);

#endif
