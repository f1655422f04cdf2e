/* Scalar bodies: the jaxpr of a reduction, written for two scalars, applied to whole arrays element by element. */
#ifndef J2O_LOWER_REDUCE_SCALAR_BODY_H
#define J2O_LOWER_REDUCE_SCALAR_BODY_H

#include "lower/lower.h"

/* Lowers the body with arrays, all of one shape, in place of its scalars. consts: the equation's parameter that holds
 * the values of the body's const variables, or NULL. */
void apply_scalar_body(Lowering *l, Here here, const Jaxpr *jaxpr, const Param *consts, Value *const *arguments,
                       size_t count, Value **results);
/* The body takes the results so far, then as many elements. The primitive when its result of that number is
 * primitive(a, b) of its own two arguments and nothing else, else NULL. */
Str scalar_body_primitive(const Jaxpr *jaxpr, uint32_t index);
/* Is the equation's input of that number this constant, from which a reduction starts as from nothing? */
bool starts_from(Lowering *l, size_t index, const Tensor *identity);

#endif
