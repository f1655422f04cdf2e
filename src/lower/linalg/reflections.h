/* Householder reflections I - tau v v', after LAPACK's conventions: v is zero above its own row and one in it, tau is
 * zero where there was nothing to reflect. */
#ifndef J2O_LOWER_LINALG_REFLECTIONS_H
#define J2O_LOWER_LINALG_REFLECTIONS_H

#include "lower/lower.h"

typedef struct Reflection {
  Value *vector; /* [..., m, 1] */
  Value *tau;    /* [..., 1, 1] */
} Reflection;

/* Columns whose squares sum up to less count as zero: a reflection made of them would not be orthogonal, as their
 * quotients or squares have lost their digits. */
double least_square(DType dtype);
/* The reflection that maps a column to zeros below its row `index`; rows are numbers_along the column. */
Reflection reflection_of(Lowering *l, Value *column, Value *rows, Value *index);
/* The matrix reflected: from the left, or its rows from the right. */
Value *reflected(Lowering *l, Value *matrix, Reflection by, bool left);
/* The matrix reflected by all that are stored as the columns of a matrix, the last first when backwards; taus: [...,
 * k]. */
Value *reflected_by_all(Lowering *l, Value *stored, Value *taus, Value *matrix, bool left, bool backwards);

typedef struct Triangularized {
  Value *upper;   /* zero below the diagonal but for rounding error */
  Value *vectors; /* [..., m, count] */
  Value *taus;    /* [..., 1, count] */
} Triangularized;

/* The first columns of a matrix reflected to a triangle, as in QR decomposition. */
Triangularized triangularized(Lowering *l, Value *matrix, Dim count);

#endif
