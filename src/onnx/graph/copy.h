/* Copies of a body's nodes, where its steps are written out. */
#ifndef J2O_ONNX_GRAPH_COPY_H
#define J2O_ONNX_GRAPH_COPY_H

#include "onnx/graph/graph.h"

/* The nodes of a graph once more, in another one, before `before` or at the end when that is NULL. copies says which
 * values stand for the graph's inputs, and is told those that stand for what its nodes give; values around the graph
 * stand for themselves. Each copy has the origin of its node. */
void copy_nodes(const Graph *from, Graph *into, Node *before, Map *copies);
/* The same of those nodes alone that the map holds. */
void copy_nodes_of(const Graph *from, Graph *into, Node *before, Map *copies, const Map *chosen);
/* What stands for a value. */
Value *copy_of(const Map *copies, Value *value);

/* Lets go of a graph that was only there to be copied: its nodes use nothing any more. */
void release_nodes(Graph *graph);

#endif
