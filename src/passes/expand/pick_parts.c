/* What is picked out of joined parts is picked out of the part that has it, which may be it.
 *
 * It is done last: where numbers are joined, parts of one array are worth more than arrays of their own (join_alike.c).
 */
#include "passes/rewrite.h"

/* Which part of the Concat an index points into, and where in it; -1: that is not known. */
static int64_t part_at(const Node *concat, uint32_t axis, int64_t *index) {
  if (*index < 0) *index += concat->outputs[0]->type.dims[axis].constant;
  for (uint32_t i = 0; i < concat->input_count && *index >= 0; i++) {
    Type part = node_input(concat, i)->type;
    if (type_is_unranked(part) || part.rank <= axis || !dim_is_constant(part.dims[axis])) return -1;
    if (*index < part.dims[axis].constant) return i;
    *index -= part.dims[axis].constant;
  }
  return -1;
}

/* The axis along which the node picks from the joined parts; -1: it does not. */
static int64_t picked_axis(const Node *node, const Node *concat) {
  Type type = concat->outputs[0]->type, places = node_input(node, 1)->type;
  if (type.dtype == DTYPE_NONE || type_is_unranked(type) || type_is_unranked(places) || places.rank > 1) return -1;
  int64_t axis = node_int_or(node, "axis", 0), joined = node_int_or(concat, "axis", 0);
  if (axis < 0) axis += type.rank;
  if (joined < 0) joined += type.rank;
  return axis == joined && axis >= 0 && axis < type.rank && dim_is_constant(type.dims[axis]) ? axis : -1;
}

static void pick(Rewriter *rewriter, Node *node) {
  int64_t index;
  if (!node_is(node, OP_Gather) || !only_integer(node_input(node, 1), &index)) return;
  Node *concat = node_input(node, 0)->producer;
  int64_t axis = concat && node_is(concat, OP_Concat) ? picked_axis(node, concat) : -1;
  int64_t part = axis < 0 ? -1 : part_at(concat, (uint32_t)axis, &index);
  if (part < 0) return;
  Value *from = node_input(concat, (size_t)part);
  if (type_equal(from->type, node->outputs[0]->type)) {
    rewrite_replace(rewriter, node, from);
    return;
  }
  Value *place = node_input(node, 1)->type.rank
                     ? rewrite_constant_ints(rewriter, node, &index, 1, node->origin)
                     : rewrite_constant_number(rewriter, node, DTYPE_INT64, (double)index, node->origin);
  use_set(&node->inputs[0], from);
  use_set(&node->inputs[1], place);
  rewrite_hand_over(rewriter, node, concat);
  rewrite_drop_unused(rewriter, concat, NULL);
  rewriter->changed = true;
}

bool pick_parts(Model *model) {
  Rewriter rewriter;
  rewrite_begin(&rewriter, model, __func__);
  rewrite_each_node(&rewriter, pick);
  return rewrite_end(&rewriter);
}
