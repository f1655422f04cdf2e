/* Positions along an axis, as they are counted at run time. */
#ifndef J2O_PASSES_ANALYSIS_POSITIONS_H
#define J2O_PASSES_ANALYSIS_POSITIONS_H

#include "onnx/graph/graph.h"

/* Is the value 0, 1, 2, ... along its only axis that is not of size 1, which is the one with this number from the end
 * (1: the last) and has this size? */
bool counts_positions(const Value *value, uint32_t from_end, Dim size);

/* Is the node a Slice or a Gather that turns one axis, this one, around and does nothing else? */
bool reverses_axis(const Node *node, int64_t *axis);

#endif
