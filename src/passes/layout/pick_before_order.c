/* What is picked out of an array whose axes were moved is picked before they are moved: one position of an axis, as
 * queries, keys and values are taken out of a joined projection whose axis for the three was moved to the front. The
 * axes that are left often need no Transpose at all, or meet one that follows. */
#include "base/bytes.h"
#include "passes/layout/permute_axes.h"

enum { MOST_PICKS = 16 };

/* The axis from which a Gather takes one position of what the Transpose gives; -1: it is no such Gather. */
static int64_t picked_axis(const Use *use, const Node *transpose) {
  const Node *node = use->node;
  if (!node || node->graph != transpose->graph || !node_is(node, OP_Gather) || use != &node->inputs[0]) return -1;
  const Value *place = node_input(node, 1);
  if (!place || place->type.dtype == DTYPE_NONE || type_is_unranked(place->type) || place->type.rank) return -1;
  int64_t rank = transpose->outputs[0]->type.rank, axis = node_int_or(node, "axis", 0);
  if (axis < 0) axis += rank;
  return axis >= 0 && axis < rank && node->outputs[0]->type.rank + 1 == rank ? axis : -1;
}

static bool feeds_transposes_alone(const Value *value) {
  AxisOrder order;
  for (const Use *use = value->uses; use; use = use->next) {
    if (!use->node || !node_is(use->node, OP_Transpose) || !transpose_order(use->node, &order)) return false;
  }
  return value->uses;
}

/* No more Transposes than before, and those of parts: there is but one part, or its axes are in order, or there is a
 * Transpose that takes up what is left. */
static bool all_pick(const Node *transpose, const AxisOrder *order) {
  const Use *first = transpose->outputs[0]->uses;
  int count = 0;
  for (const Use *use = first; use; use = use->next) {
    int64_t axis = ++count <= MOST_PICKS ? picked_axis(use, transpose) : -1;
    if (axis < 0) return false;
    AxisOrder rest = order_without(order, axis);
    if (first->next && !order_is_identity(&rest) && !feeds_transposes_alone(use->node->outputs[0])) return false;
  }
  return count;
}

static void pick_first(Rewriter *rewriter, Node *node) {
  Value *moved = node_is(node, OP_Gather) ? node_input(node, 0) : NULL;
  Node *transpose = moved ? moved->producer : NULL;
  AxisOrder order;
  if (!transpose || !node_is(transpose, OP_Transpose) || !transpose_order(transpose, &order)) return;
  if (!all_pick(transpose, &order)) return;
  int64_t axis = picked_axis(&node->inputs[0], transpose);
  AxisOrder rest = order_without(&order, axis), back = order_inverse(rest);
  Type type = node->outputs[0]->type, picked = order_type(rewriter->context, type, &back);
  Value *inputs[] = {node_input(transpose, 0), node_input(node, 1)};
  Node *pick = graph_node(node->graph, REWRITE_ORIGIN(rewriter, node), OP_Gather, inputs, 2, &picked, 1, node);
  node_set_int(pick, "axis", order.from[axis]);
  Node *last = pick;
  if (!order_is_identity(&rest)) {
    last = graph_node(node->graph, REWRITE_ORIGIN(rewriter, transpose), OP_Transpose, pick->outputs, 1, &type, 1, node);
    node_set_ints(last, "perm", rest.from, rest.rank);
  } else {
    rewrite_hand_over(rewriter, pick, transpose);
  }
  rewrite_replace(rewriter, node, last->outputs[0]);
  rewrite_drop_unused(rewriter, transpose, last);
  rewriter->changed = true;
}

bool pick_before_order(Model *model) {
  Rewriter rewriter;
  rewrite_begin(&rewriter, model, __func__);
  rewrite_each_node(&rewriter, pick_first);
  return rewrite_end(&rewriter);
}
