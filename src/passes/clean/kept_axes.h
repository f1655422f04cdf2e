/* Axes that a reduction drops and that are put back later. */
#ifndef J2O_PASSES_CLEAN_KEPT_AXES_H
#define J2O_PASSES_CLEAN_KEPT_AXES_H

#include "passes/rewrite.h"

/* Has reductions keep the axes that `node`, a Reshape or an Unsqueeze, puts back, and takes the node out. Between them
 * may stand what is computed element by element of them and of scalars, and a Transpose before the node. */
bool keep_reduced_axes(Rewriter *rewriter, Node *node);

#endif
