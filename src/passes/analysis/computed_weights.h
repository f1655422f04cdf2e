/* The weights of Resize as a program computes them of sizes that are known only when the model runs. */
#ifndef J2O_PASSES_ANALYSIS_COMPUTED_WEIGHTS_H
#define J2O_PASSES_ANALYSIS_COMPUTED_WEIGHTS_H

#include "passes/analysis/resize_weights.h"
#include "passes/rewrite.h"

/* The kind of the matrix [from, to], by its type; RESIZE_NONE: it is computed in no way that is known. `size` is what
 * the graph computes `to` as, a scalar; NULL where that is a constant. */
ResizeKind resize_kind_of_computed(Rewriter *rewriter, Value *matrix, Value **size);
/* Are the indices, of an axis of size `from`, those of the elements whose middles are nearest, when each is there a
 * whole number of times? */
bool repeats_by_computed(Rewriter *rewriter, Value *indices, Dim from);

#endif
