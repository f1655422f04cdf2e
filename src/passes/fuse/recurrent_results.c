/* What is read of the steps that a recurrent operator gives: the last of them, or all in another order. */
#include "passes/analysis/positions.h"
#include "passes/fuse/recurrent.h"
#include "target/target.h"

/* Then the last step of a sequence is not that of all. */
static bool has_lengths(const Node *recurrent) { return node_input(recurrent, 4) != NULL; }

/* ---- the last step ---- */

/* The steps that a recurrent operator gives, before the axis of directions went; NULL when the value is none. */
static Value *steps_of(const Value *value) {
  const Node *squeeze = value ? value->producer : NULL;
  if (!squeeze || !node_is(squeeze, OP_Squeeze)) return NULL;
  Value *steps = node_input(squeeze, 0);
  const Node *node = steps->producer;
  if (!node || !node_has(node, RECURRENT) || has_lengths(node)) return NULL;
  if (steps->output_index != 0 || steps->type.rank != 4) return NULL;
  return dim_equal(value->type.dims[0], steps->type.dims[0]) ? steps : NULL;
}

/* Is what the node picks the step that was computed last? */
static bool picks_last(const Node *node, const Node *recurrent) {
  const Value *index = node_input(node, 1);
  const Attribute *direction = node_attribute(recurrent, "direction");
  Dim steps = node_input(node, 0)->type.dims[0];
  int64_t number;
  if (index->type.rank != 0 || !only_integer(index, &number) || node_int_or(node, "axis", 0) != 0) return false;
  if (!dim_is_constant(steps) || (direction && strcmp(direction->string, "reverse") != 0)) return false;
  if (number < 0) number += steps.constant;
  return number == (direction ? 0 : steps.constant - 1);
}

void pick_state(Rewriter *rewriter, Node *node) {
  Value *steps = steps_of(node_input(node, 0));
  if (!steps || !picks_last(node, steps->producer) || steps->graph != node->graph) return;
  Node *squeeze = node_input(node, 0)->producer;
  Type all = steps->type, type = node->outputs[0]->type;
  const int64_t axes[] = {0, 1}; /* of directions, and of a batch that the cell did not have */
  Value *state = node_output(steps->producer, 1, (Type){.dtype = all.dtype, .rank = 3, .dims = all.dims + 1});
  const Origin *origin = REWRITE_ORIGIN(rewriter, node);
  Value *inputs[] = {state, rewrite_constant_ints(rewriter, node, axes, type.rank == 2 ? 1 : 2, node->origin)};
  Node *last = graph_node(node->graph, origin, OP_Squeeze, inputs, 2, &type, 1, node);
  rewrite_replace(rewriter, node, last->outputs[0]);
  rewrite_drop_unused(rewriter, squeeze, last);
  node_leave_out_unused(steps->producer);
}

/* ---- steps turned around ---- */

/* What reads the steps after they were turned around: the operator, or what gives them an axis for it alone. */
static Use *turned_use(Node *recurrent) {
  Node *node = node_input(recurrent, 0)->producer;
  bool adds_axis = node && node_is(node, OP_Unsqueeze) && value_only_user(node->outputs[0]) == recurrent &&
                   node_input(node, 0)->type.rank > 0;
  return adds_axis && dim_equal(node_input(node, 0)->type.dims[0], node->outputs[0]->type.dims[0])
             ? &node->inputs[0]
             : &recurrent->inputs[0];
}

static bool reads_reversed(Node *recurrent) {
  int64_t axis;
  const Node *slice = turned_use(recurrent)->value->producer;
  const Attribute *direction = node_attribute(recurrent, "direction");
  if (!direction && target_has(recurrent->graph->model->target, QUIRK_RECURRENT_IS_WRONG_BACKWARDS)) return false;
  if (has_lengths(recurrent) || (direction && strcmp(direction->string, "bidirectional") == 0)) return false;
  return reverses_axis(slice, &axis) && axis == 0 && slice->graph == recurrent->graph;
}

static void turn(Rewriter *rewriter, Node *recurrent) {
  const Attribute *direction = node_attribute(recurrent, "direction");
  bool reverse = direction && strcmp(direction->string, "reverse") == 0;
  Use *use = turned_use(recurrent);
  Node *slice = use->value->producer;
  use_set(use, node_input(slice, 0));
  node_set_string(recurrent, "direction", reverse ? "forward" : "reverse");
  if (use->node != recurrent) rewrite_hand_over(rewriter, use->node, slice); /* what reads past it keeps its trace */
  rewrite_hand_over(rewriter, recurrent, slice);
  rewrite_drop_unused(rewriter, slice, recurrent);
  rewriter->changed = true;
}

void turn_around(Rewriter *rewriter, Node *recurrent) {
  if (reads_reversed(recurrent)) turn(rewriter, recurrent);
}

void turn_steps(Rewriter *rewriter, Node *node) {
  int64_t axis;
  Value *source = node_input(node, 0), *steps = steps_of(source);
  if (!steps || !reverses_axis(node, &axis) || axis != 0 || steps->graph != node->graph) return;
  if (source->uses->next || steps->uses->next || !reads_reversed(steps->producer)) return;
  turn(rewriter, steps->producer);
  rewrite_replace(rewriter, node, source);
}
