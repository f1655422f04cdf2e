/* lu of a few rows, its steps written out. */
#ifndef J2O_LOWER_LINALG_LINEAR_LU_SMALL_H
#define J2O_LOWER_LINALG_LINEAR_LU_SMALL_H

#include "lower/lower.h"

typedef struct SmallLu {
  Value *multipliers;    /* rows as in the matrix */
  Value *upper, *pivots; /* a row a step, and which row it was then, as a row */
  Value *order;          /* which row stands in each place, as a column */
} SmallLu;

/* Are both sizes known and small? */
bool lu_is_small(const Value *matrix);
SmallLu lu_written_out(Lowering *l, Value *matrix);

#endif
