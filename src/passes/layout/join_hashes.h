/* Hashes: the operators behind random keys (join_hashes.c). */
#ifndef J2O_PASSES_LAYOUT_JOIN_HASHES_H
#define J2O_PASSES_LAYOUT_JOIN_HASHES_H

#include "onnx/graph/graph.h"

/* Does the node give a word of a hash, and is it the last one of it? */
bool ends_hash(const Node *node);

#endif
