/* Complex matrices: products and reflections of matrices given by their parts. Real ones have no imaginary part. */
#ifndef J2O_LOWER_LINALG_COMPLEX_MATRICES_H
#define J2O_LOWER_LINALG_COMPLEX_MATRICES_H

#include "lower/complex/complex.h"

/* The input of the equation, real or complex. */
Parts matrix_parts(Lowering *l, size_t index);
/* Binds an output to the matrix. */
void bind_matrix(Lowering *l, size_t index, Parts matrix);

/* Element by element; all are complex. */
Parts parts_sum(Lowering *l, Parts a, Parts b);
Parts parts_difference(Lowering *l, Parts a, Parts b);
Parts parts_where(Lowering *l, Value *condition, Parts a, Parts b);
Parts parts_conjugate(Lowering *l, Parts z);
Parts parts_scaled(Lowering *l, Parts z, Value *factor);
Value *parts_square(Lowering *l, Parts z);    /* |z|^2 */
Parts parts_reciprocal(Lowering *l, Parts z); /* 1 / z */

Parts conjugate_transposed(Lowering *l, Parts matrix);
/* The symmetric or Hermitian matrix of which one triangle is given. What is imaginary on its diagonal is to be ignored.
 */
Parts symmetric_from(Lowering *l, Parts matrix, bool lower);
Parts complex_product(Lowering *l, Parts a, Parts b); /* both must be complex */

/* I - tau v v*, after LAPACK's conventions (reflections.h); its adjoint maps the column it was made of to a real number
 * and zeros. */
typedef struct ComplexReflection {
  Parts vector; /* [..., m, 1] */
  Parts tau;    /* [..., 1, 1] */
} ComplexReflection;

ComplexReflection complex_reflection_of(Lowering *l, Parts column, Value *rows, Value *index);
/* The adjoint of the reflection times the matrix, or the matrix times the reflection. */
Parts complex_reflected(Lowering *l, Parts matrix, ComplexReflection by, bool left);

typedef struct ComplexTriangularized {
  Parts upper;   /* zero below the diagonal but for rounding error */
  Parts vectors; /* [..., m, count] */
  Parts taus;    /* [..., 1, count] */
} ComplexTriangularized;

/* The first columns of a matrix reflected to a triangle, as in QR decomposition. */
ComplexTriangularized complex_triangularized(Lowering *l, Parts matrix, Dim count);
/* The unitary factor of that decomposition times a matrix. */
Parts complex_reflected_back(Lowering *l, ComplexTriangularized factors, Parts matrix);

#endif
