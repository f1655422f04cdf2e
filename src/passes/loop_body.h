/* Bodies: how the inputs and outputs of a Loop's, a Scan's or an If's subgraph correspond to the node's. */
#ifndef J2O_PASSES_LOOP_BODY_H
#define J2O_PASSES_LOOP_BODY_H

#include "onnx/graph/graph.h"

/* The subgraph of that attribute, or NULL. */
Graph *subgraph_of(const Node *node, const char *name);

/* The value that Identities pass on. */
Value *behind_identities(Value *value);

/* The outputs of a loop's body after `lead` are the node's, `carried` of them carried. */
typedef struct LoopShape {
  Graph *body;
  size_t lead, carried;
  size_t first_input;      /* the first carried one, of the node */
  size_t first_body_input; /* and of the body */
} LoopShape;

/* False where the node is no Loop or Scan, or is not sound. */
bool loop_shape(const Node *node, LoopShape *shape);

/* What a step makes of a carried value: x' = made, or Where(held, made, x). */
typedef struct NextStep {
  Value *x, *made;
  Value *held; /* NULL: always */
} NextStep;

NextStep loop_next(const LoopShape *shape, size_t carried);

/* Is it the body of a loop, or does it stand in one? */
bool stands_in_loop(const Graph *graph);

/* Does nothing end a sound Loop but the number of its steps? */
bool loop_takes_all_steps(const Node *loop, const Graph *body);

/* Does a Scan read all its inputs forwards, or all backwards? Along the first axis, as all that we make. */
bool scan_runs_one_way(const Node *scan);
bool scan_runs_backwards(const Node *scan); /* one that runs one way */
/* One more array to go along, in the direction of the others. Returns the body's slice of it. */
Value *scan_add_input(Node *scan, Value *stacked, Type slice);
/* One more value that a Loop without stacked results carries: what it begins with, an input of the body that was made
 * for it, and what a step makes of it. */
void loop_add_carried(Node *loop, Value *start, Value *inside, Value *next);
/* A carried value that nothing uses any more goes, of node and body. */
void loop_drop_carried(Node *loop, const LoopShape *shape, size_t index);
void scan_drop_carried(Node *scan, size_t index);

#endif
