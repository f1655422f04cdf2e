/* Hessenberg form: a matrix that is zero below its first subdiagonal, similar to the given one. */
#ifndef J2O_LOWER_LINALG_HESSENBERG_H
#define J2O_LOWER_LINALG_HESSENBERG_H

#include "lower/linalg/complex_matrices.h"

typedef struct Hessenberg {
  Parts form;    /* what is below the subdiagonal is rounding error */
  Parts basis;   /* unitary: basis form basis* is the matrix */
  Parts vectors; /* of the reflections: [..., n, n - 1], each one in the row below its own */
  Parts taus;    /* [..., 1, n - 1] */
} Hessenberg;

/* Of a matrix of at least two rows, real or complex. */
Hessenberg hessenberg_of(Lowering *l, Parts matrix);

#endif
