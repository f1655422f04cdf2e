/* What the files about steps that are written out share. */
#ifndef J2O_PASSES_LAYOUT_ROLL_STEPS_H
#define J2O_PASSES_LAYOUT_ROLL_STEPS_H

#include "onnx/graph/graph.h"

/* Would these nodes of one graph, in its order, become a recurrent operator? become_recurrent.c */
bool become_recurrent(Node *const *nodes, size_t count);

#endif
