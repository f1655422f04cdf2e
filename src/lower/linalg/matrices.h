/* Matrices: the last two axes of an array; the axes before them are a batch, of any sizes.
 *
 * Rows and columns keep both axes: a column is [..., m, 1], a row [..., 1, n], an element [..., 1, 1], so that they
 * broadcast against the matrix and against each other. An index is int64[1], as a loop gives it.
 */
#ifndef J2O_LOWER_LINALG_MATRICES_H
#define J2O_LOWER_LINALG_MATRICES_H

#include "lower/lower.h"

enum { ROWS = -2, COLUMNS = -1 }; /* the axes */

/* Input index of the equation: floats narrower than 32 bits as float32. */
Value *matrix_input(Lowering *l, size_t index);
/* Binds an output to the value in the output's element type. */
void bind_as(Lowering *l, size_t index, Value *value);

Dim size_along(const Value *matrix, int64_t axis);
/* The type with another size along an axis. */
Type resized(Lowering *l, Type type, int64_t axis, Dim size);

/* 0, 1, … along an axis: int64[size, 1] for ROWS, int64[1, size] for COLUMNS. */
Value *numbers_along(Lowering *l, int64_t axis, Dim size);
/* What stands at an index, int64[1], or at several: a row of ROWS, a column of COLUMNS. */
Value *slice_of(Lowering *l, Value *matrix, int64_t axis, Value *index);
Value *transposed(Lowering *l, Value *matrix);
Value *matrix_product(Lowering *l, Value *a, Value *b);
/* Operators that reduce along an axis and keep it, of size 1. */
Value *reduced_along(Lowering *l, Here here, Op op, Value *matrix, int64_t axis);
#define EMIT_ALONG(l, op, matrix, axis) reduced_along((l), HERE, (op), (matrix), (axis))
/* What stands on and below (lower), or on and above the diagonal moved by offset to the right; zero elsewhere. */
Value *triangle(Lowering *l, Value *matrix, bool lower, int64_t offset);
/* Zeros added at the end of an axis, up to a size. */
Value *extended(Lowering *l, Value *matrix, int64_t axis, Dim size);
/* What stands below the diagonal of one, and on and above it of the other: rows are the first's, columns the other's.
 */
Value *both_triangles(Lowering *l, Value *lower, Value *upper);
/* A vector [..., n] as a row [..., 1, n] or a column [..., n, 1], and back. */
Value *as_row(Lowering *l, Value *vector);
Value *as_column(Lowering *l, Value *vector);
Value *from_row(Lowering *l, Value *row);
Value *from_column(Lowering *l, Value *column);
/* The numbers with a and b for each other. */
Value *exchanged(Lowering *l, Value *numbers, Value *a, Value *b);
/* The rows or columns taken from these places, in this order: a column of places for ROWS, a row for COLUMNS. */
Value *reordered(Lowering *l, Value *matrix, int64_t axis, Value *places);
/* Ones on the diagonal: [rows, columns]. */
Value *identity_matrix(Lowering *l, DType dtype, Dim rows, Dim columns);

#endif
