/* Folds: several arrays, by a computation on scalars that takes the results so far and the next elements. */
#ifndef J2O_LOWER_REDUCE_GENERAL_REDUCE_H
#define J2O_LOWER_REDUCE_GENERAL_REDUCE_H

#include "lower/lower.h"

typedef struct ScalarFold {
  const Jaxpr *body;
  const Param *consts; /* that the body closes over, or NULL */
  uint32_t count;      /* of arrays */
} ScalarFold;

/* Of the equation: arrays, then what each starts from. */
ScalarFold read_scalar_fold(Lowering *l);
/* What the results start from, as arrays. */
Value **fold_starts(Lowering *l, const ScalarFold *fold);
/* Folds into so_far, which is replaced, one element of each array at every place. Where the mask, which may be NULL,
 * is false, nothing happens. */
void fold_elements(Lowering *l, const ScalarFold *fold, Value **so_far, Value *const *elements, Value *mask);
/* The same with all elements along the first axis, in order. */
void fold_arrays(Lowering *l, const ScalarFold *fold, Value **so_far, Value *const *arrays, Value *mask);

#endif
