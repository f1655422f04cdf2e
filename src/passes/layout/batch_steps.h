/* Batches: what all steps of a Scan compute at once (batch_steps.c). */
#ifndef J2O_PASSES_LAYOUT_BATCH_STEPS_H
#define J2O_PASSES_LAYOUT_BATCH_STEPS_H

#include "passes/rewrite.h"

typedef struct Batch {
  Rewriter *rewriter;
  Node *scan;
  Graph *body;
  size_t carried; /* inputs before the slices */
  Dim length;     /* constant */
  Map stacked;    /* value of the body -> all steps of it: a value before the scan, with one axis more in front */
} Batch;

/* Reads the scan, whose slices are stacked; false where its steps cannot be batched. */
bool batch_begin(Batch *batch);

/* Can the node be computed for all steps at once, once its inputs are stacked? */
bool can_be_batched(const Batch *batch, const Node *node);

/* Such a node for all steps, before the scan. */
Value *batch_node(const Batch *batch, const Node *node);

/* Is a value of the body read by what stays there, or given out by it? */
bool is_needed_inside(const Value *value, const Map *leaving);

/* The type of all steps of a value, its own axes lined up with the last ones of the rank. */
Type stacked_type(const Batch *batch, Type type, uint32_t rank);

#endif
