/* Functions of a model: which definitions are the same, and how they are shared. */
#ifndef J2O_ONNX_GRAPH_DEFINITIONS_H
#define J2O_ONNX_GRAPH_DEFINITIONS_H

#include "onnx/graph/graph.h"

/* A definition that computes the same as the body: nodes, attributes, constants and types are equal, one by one. */
bool graph_same(const Graph *a, const Graph *b);
uint64_t graph_hash(const Graph *graph);

/* The nodes of definitions that are shared (Function.twins) get the sites of all. */
void unite_shared_functions(Model *model);

/* Tells the nodes of a model that was read which of its functions they call (Node.callee). */
void model_link_calls(Model *model);

#endif
