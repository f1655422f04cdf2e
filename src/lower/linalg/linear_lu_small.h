/* lu of a few rows, its steps written out. */
#ifndef J2O_LOWER_LINALG_LINEAR_LU_SMALL_H
#define J2O_LOWER_LINALG_LINEAR_LU_SMALL_H

#include "lower/lower.h"

typedef struct SmallLu {
  Value *factors; /* both in one matrix */
  Value *pivots;  /* [..., steps]: which row each step exchanged with its own */
  Value *order;   /* [..., rows]: which row stands in each place */
} SmallLu;

/* Are both sizes known and small? */
bool lu_is_small(const Value *matrix);
SmallLu lu_written_out(Lowering *l, Value *matrix);

#endif
