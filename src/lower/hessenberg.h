/* Hessenberg form: a matrix that is zero below its first subdiagonal, similar to the given one. */
#ifndef J2O_HESSENBERG_H
#define J2O_HESSENBERG_H

#include "lower/lower.h"

typedef struct Hessenberg {
  Value *form;    /* what is below the subdiagonal is rounding error */
  Value *basis;   /* orthogonal: basis form basis' is the matrix */
  Value *vectors; /* of the reflections: [..., n, n - 1], each one in the row below its own */
  Value *taus;    /* [..., 1, n - 1] */
} Hessenberg;

/* Of a matrix of at least two rows. */
Hessenberg hessenberg_of(Lowering *l, Value *matrix);

#endif
