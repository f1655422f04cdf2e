/* Reshapes to sizes that are computed at run time, beside axes of size 1 that come and go. */
#ifndef J2O_PASSES_CLEAN_COMPUTED_SHAPES_H
#define J2O_PASSES_CLEAN_COMPUTED_SHAPES_H

#include "passes/rewrite.h"

/* Gives the Reshape the same of what has another shape, and as many elements? Sizes that it is told to keep stay. */
bool gives_the_same(const Node *reshape, Type given);

/* The shape that `reshape` gives, without the axes that `squeeze` leaves out, made before that; NULL when it is not
 * made of parts that are known. */
Value *shape_without_ones(Rewriter *rewriter, const Node *reshape, Node *squeeze);

#endif
