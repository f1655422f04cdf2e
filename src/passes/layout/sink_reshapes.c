/* Reshapes that wait for another one: a Reshape moves below elementwise operators, Softmax and Transpose until it meets
 * the next, and both become one or none. Mapped functions leave such pairs around axes of size 1.
 *
 * Nothing moves that has no other Reshape to meet, so a round of passes ends.
 */
#include "passes/pattern.h"

enum { LOOKED_AT = 16 /* operators on the way to another Reshape */ };

static bool is_reshape(const Node *node) { return node_has(node, RENAMES) && !node_is(node, OP_Flatten); }

/* A Loop without a step leaves shapes that are not what their types say; a Reshape to sizes computed at run time, zeros
 * among them, mends that and stays where it is. */
static bool may_move(const Node *node) {
  return !node_is(node, OP_Reshape) || !node_int_or(node, "allowzero", 0) || constant_of(node_input(node, 1));
}

/* Not a Narrow, before which other passes put whatever moves elements. */
static bool lets_through(const Node *node) {
  return node->output_count == 1 && !node_is(node, OP_Narrow) &&
         (node_has(node, ELEMENTWISE) || node_is(node, OP_Softmax) || node_is(node, OP_Transpose));
}

/* Does some way down from the node end at a Reshape? Looks at no more than *budget nodes. */
static bool leads_to_reshape(const Node *node, int *budget) {
  for (const Use *use = node->outputs[0]->uses; use; use = use->next) {
    const Node *user = use->node;
    if (--*budget < 0) return false;
    if (!user || user->graph != node->graph) continue;
    if (is_reshape(user) && user->inputs[0].value == node->outputs[0]) return true;
    bool is_place = node_is(user, OP_Gather) && user->input_count > 1 && user->inputs[1].value == node->outputs[0];
    if ((is_place || lets_through(user)) && leads_to_reshape(user, budget)) return true;
  }
  return false;
}

static bool same_last_dims(Type a, Type b, uint32_t count) {
  if (count > a.rank || count > b.rank) return false;
  for (uint32_t i = 1; i <= count; i++) {
    if (!dim_equal(a.dims[a.rank - i], b.dims[b.rank - i])) return false;
  }
  return true;
}

/* The other operands see the same axes before and after the reshape. */
static bool others_agree(const Node *node, uint32_t at, Type before, Type after) {
  for (uint32_t i = 0; i < node->input_count; i++) {
    const Value *other = node->inputs[i].value;
    if (i == at || !other) continue;
    if (other->type.dtype == DTYPE_NONE || !same_last_dims(before, after, other->type.rank)) return false;
  }
  return type_same_shape(node->outputs[0]->type, after);
}

/* A node as `like`, reading `source` in place of its input `at`. */
static Node *copy_reading(Rewriter *rewriter, Node *like, uint32_t at, Value *source, Type type, Node *before) {
  Value **inputs = arena_new_array(&rewriter->context->arena, like->input_count, Value *);
  for (uint32_t i = 0; i < like->input_count; i++) inputs[i] = i == at ? source : like->inputs[i].value;
  const Origin *origin = like->origin;
  origin = origin_with_emitter(rewriter->model->provenance, origin, REWRITE_EMITTER(rewriter));
  Node *node = graph_node(before->graph, origin, like->op, inputs, like->input_count, &type, 1, before);
  node_copy_attributes(node, like);
  return node;
}

static void move_below(Rewriter *rewriter, Node *node, uint32_t at, Node *reshape) {
  Value *source = node_input(reshape, 0), *result = node->outputs[0];
  Type type = type_with(source->type, result->type.dtype);
  Node *first = copy_reading(rewriter, node, at, source, type, node);
  Node *second = copy_reading(rewriter, reshape, 0, first->outputs[0], result->type, node);
  rewrite_replace(rewriter, node, second->outputs[0]);
  rewrite_hand_over(rewriter, first, reshape);
  rewrite_drop_unused(rewriter, reshape, second);
}

/* Leading axes of size 1 that the reshape puts in, when it does nothing else; else 0. */
static uint32_t leading_ones(Type before, Type after) {
  uint32_t more = after.rank > before.rank ? after.rank - before.rank : 0;
  for (uint32_t i = 0; i < more; i++) {
    if (!dim_is(after.dims[i], 1)) return 0;
  }
  return same_last_dims(before, after, before.rank) ? more : 0;
}

/* Leading ones are put in after the operator even where another operand is larger along other axes. */
static bool move_leading_ones(Rewriter *rewriter, Node *node, uint32_t at, Node *reshape) {
  Value *source = node_input(reshape, 0), *value = node->outputs[0];
  Type before = source->type, result = value->type;
  uint32_t more = leading_ones(before, reshape->outputs[0]->type);
  if (more == 0 || result.rank != before.rank + more || result.rank > MAX_RANK) return false;
  int64_t axes[MAX_RANK];
  for (uint32_t i = 0; i < more; i++) {
    if (!dim_is(result.dims[i], 1)) return false;
    axes[i] = i;
  }
  for (uint32_t i = 0; i < node->input_count; i++) {
    const Value *other = node->inputs[i].value;
    if (i != at && other && (other->type.dtype == DTYPE_NONE || other->type.rank > before.rank)) return false;
  }
  Type type = {.dtype = result.dtype, .rank = before.rank, .dims = result.dims + more};
  Node *first = copy_reading(rewriter, node, at, source, type, node);
  Value *inputs[] = {first->outputs[0], rewrite_constant_ints(rewriter, node, axes, more, node->origin)};
  Node *second = graph_node(node->graph, first->origin, OP_Unsqueeze, inputs, 2, &result, 1, node);
  rewrite_replace(rewriter, node, second->outputs[0]);
  rewrite_hand_over(rewriter, first, reshape);
  rewrite_drop_unused(rewriter, reshape, second);
  return true;
}

/* ---- leading axes of size 1 that a constant brought in ---- */

static Type without_leading(Type type, uint32_t count) {
  return (Type){.dtype = type.dtype, .rank = type.rank - count, .dims = type.dims + count};
}

static bool has_leading_ones(Type type, uint32_t count) {
  for (uint32_t i = 0; i < count; i++) {
    if (!dim_is(type.dims[i], 1)) return false;
  }
  return true;
}

/* The operand without its first axes: a constant's are taken off, and what a Reshape gives is reshaped otherwise. */
static Value *operand_without_leading(Rewriter *rewriter, Node *node, Value *operand, uint32_t count) {
  Context *context = rewriter->context;
  Type type = without_leading(operand->type, count);
  const Tensor *tensor = constant_of(operand);
  if (tensor) {
    Tensor *shorter = arena_copy(&context->arena, tensor, sizeof *tensor);
    shorter->rank = type.rank;
    shorter->dims = tensor->dims + count;
    return rewrite_constant(rewriter, node, shorter, operand->origin ? operand->origin : node->origin);
  }
  Node *reshape = operand->producer;
  int64_t numbers[MAX_RANK];
  for (uint32_t i = 0; i < type.rank; i++) numbers[i] = type.dims[i].constant;
  const Origin *origin = reshape->origin;
  origin = origin_with_emitter(rewriter->model->provenance, origin, REWRITE_EMITTER(rewriter));
  Value *inputs[] = {node_input(reshape, 0),
                     rewrite_constant_ints(rewriter, node, numbers, type.rank, reshape->origin)};
  return graph_node(node->graph, origin, OP_Reshape, inputs, 2, &type, 1, node)->outputs[0];
}

static bool can_lose_leading(const Node *node, const Value *operand, uint32_t count) {
  int64_t elements;
  if (!has_leading_ones(operand->type, count)) return false;
  if (unread_constant_of(operand)) return true;
  const Node *reshape = operand->producer;
  return reshape && is_reshape(reshape) && may_move(reshape) && reshape->graph == node->graph &&
         value_only_user(operand) && type_count(operand->type, &elements) && elements > 0;
}

/* Of the axes that the result has more than what is computed: constants and Reshapes brought them in. */
static void drop_leading_ones(Rewriter *rewriter, Node *node) {
  Type result = node->outputs[0]->type;
  uint32_t rank = 0;
  int budget = LOOKED_AT;
  if (result.rank > MAX_RANK || result.rank == 0 || !dim_is(result.dims[0], 1)) return;
  for (uint32_t i = 0; i < node->input_count; i++) {
    const Value *operand = node->inputs[i].value;
    if (!operand || operand->type.dtype == DTYPE_NONE) return;
    if (!can_lose_leading(node, operand, operand->type.rank ? 1 : 0) && operand->type.rank > rank)
      rank = operand->type.rank;
  }
  uint32_t more = result.rank - rank;
  if (rank == 0 || more == 0 || !has_leading_ones(result, more) || !leads_to_reshape(node, &budget)) return;
  Value **inputs = arena_new_array(&rewriter->context->arena, node->input_count, Value *);
  for (uint32_t i = 0; i < node->input_count; i++) {
    const Value *operand = node->inputs[i].value;
    uint32_t extra = operand->type.rank > rank ? operand->type.rank - rank : 0;
    if (extra && !can_lose_leading(node, operand, extra)) return;
  }
  for (uint32_t i = 0; i < node->input_count; i++) {
    Value *operand = node->inputs[i].value;
    uint32_t extra = operand->type.rank > rank ? operand->type.rank - rank : 0;
    inputs[i] = extra ? operand_without_leading(rewriter, node, operand, extra) : operand;
  }
  Node *first = copy_reading(rewriter, node, node->input_count, NULL, without_leading(result, more), node);
  for (uint32_t i = 0; i < node->input_count; i++) use_set(&first->inputs[i], inputs[i]);
  int64_t axes[MAX_RANK];
  for (uint32_t i = 0; i < more; i++) axes[i] = i;
  Value *read[] = {first->outputs[0], rewrite_constant_ints(rewriter, node, axes, more, node->origin)};
  Node *second = graph_node(node->graph, first->origin, OP_Unsqueeze, read, 2, &result, 1, node);
  rewrite_replace(rewriter, node, second->outputs[0]);
}

/* ---- Transpose ---- */

/* Which axes of size 1 the reshape puts in; false when it does anything else. */
static bool inserted_axes(Type before, Type after, bool inserted[MAX_RANK]) {
  uint32_t at = 0;
  if (after.rank > MAX_RANK || after.rank <= before.rank) return false;
  for (uint32_t i = 0; i < after.rank; i++) {
    uint32_t left = after.rank - i, needed = before.rank - at;
    inserted[i] = dim_is(after.dims[i], 1) && left > needed && !(at < before.rank && dim_is(before.dims[at], 1));
    if (inserted[i]) continue;
    if (at == before.rank || !dim_equal(before.dims[at++], after.dims[i])) return false;
  }
  return at == before.rank;
}

/* The axes are put in after the others were permuted. */
static void move_below_transpose(Rewriter *rewriter, Node *node, Node *reshape) {
  Value *source = node_input(reshape, 0);
  Type before = source->type, after = reshape->outputs[0]->type, result = node->outputs[0]->type;
  const Attribute *order = node_attribute(node, "perm");
  bool inserted[MAX_RANK];
  int64_t number[MAX_RANK], permutation[MAX_RANK], axes[MAX_RANK];
  Dim dims[MAX_RANK];
  uint32_t kept = 0, added = 0;
  if (!order || order->count != after.rank || !inserted_axes(before, after, inserted)) return;
  for (uint32_t i = 0, at = 0; i < after.rank; i++) number[i] = inserted[i] ? -1 : (int64_t)at++;
  for (uint32_t i = 0; i < after.rank; i++) {
    int64_t from = order->integers[i];
    if (number[from] < 0) axes[added++] = i;
    else permutation[kept] = number[from], dims[kept] = before.dims[number[from]], kept++;
  }
  Type type = type_make(rewriter->context, before.dtype, dims, kept);
  Node *first = copy_reading(rewriter, node, 0, source, type, node);
  node_set_ints(first, "perm", permutation, kept);
  const Origin *origin = reshape->origin;
  origin = origin_with_emitter(rewriter->model->provenance, origin, REWRITE_EMITTER(rewriter));
  Value *inputs[] = {first->outputs[0], rewrite_constant_ints(rewriter, node, axes, added, node->origin)};
  Node *second = graph_node(node->graph, origin, OP_Unsqueeze, inputs, 2, &result, 1, node);
  rewrite_replace(rewriter, node, second->outputs[0]);
  rewrite_hand_over(rewriter, first, reshape);
  rewrite_drop_unused(rewriter, reshape, second);
}

/* Rows that are picked along an axis before those that are put in are picked before that, where a Reshape follows. */
static bool move_below_gather(Rewriter *rewriter, Node *node, Node *reshape) {
  Value *source = node_input(reshape, 0), *indices = node_input(node, 1);
  Type before = source->type, after = reshape->outputs[0]->type, result = node->outputs[0]->type;
  const Node *user = value_only_user(node->outputs[0]);
  Dim dims[MAX_RANK];
  int64_t axis = node_int_or(node, "axis", 0);
  if (axis < 0) axis += after.rank;
  if (!user || !is_reshape(user)) return false;
  if (!node_is(reshape, OP_Unsqueeze) || indices->type.dtype == DTYPE_NONE || indices->type.rank != 1) return false;
  if (axis < 0 || axis >= before.rank || before.rank > MAX_RANK || result.rank != after.rank) return false;
  for (uint32_t i = 0; i < before.rank; i++) {
    if (i <= axis && !dim_equal(before.dims[i], after.dims[i])) return false;
    dims[i] = i == axis ? indices->type.dims[0] : before.dims[i];
  }
  Node *first =
      copy_reading(rewriter, node, 0, source, type_make(rewriter->context, before.dtype, dims, before.rank), node);
  node_set_int(first, "axis", axis);
  Node *second = copy_reading(rewriter, reshape, 0, first->outputs[0], result, node);
  rewrite_replace(rewriter, node, second->outputs[0]);
  rewrite_hand_over(rewriter, first, reshape);
  rewrite_drop_unused(rewriter, reshape, second);
  return true;
}

/* Rows that are looked up by places in another shape, and reshaped again: by the places as they were. */
static void look_up_before(Rewriter *rewriter, Node *node, Node *reshape) {
  Value *data = node_input(node, 0), *places = node_input(reshape, 0);
  Type rows = data->type, result = node->outputs[0]->type;
  const Node *user = value_only_user(node->outputs[0]);
  Dim dims[MAX_RANK];
  int64_t axis = node_int_or(node, "axis", 0), sizes[MAX_RANK];
  size_t unknown = 0;
  uint32_t rank = 0;
  if (!user || user->graph != node->graph || !is_reshape(user) || rows.dtype == DTYPE_NONE) return;
  if (axis < 0) axis += rows.rank;
  if (axis < 0 || axis >= rows.rank || rows.rank + places->type.rank > MAX_RANK || result.rank > MAX_RANK) return;
  for (uint32_t i = 0; i < rows.rank; i++) {
    if (i != axis) dims[rank++] = rows.dims[i];
    for (uint32_t k = 0; i == axis && k < places->type.rank; k++) dims[rank++] = places->type.dims[k];
  }
  for (uint32_t i = 0; i < result.rank; i++) {
    bool is_known = dim_is_constant(result.dims[i]) && result.dims[i].constant > 0;
    sizes[i] = is_known ? result.dims[i].constant : -1;
    unknown += !is_known;
  }
  if (unknown > 1) return;
  Node *first = copy_reading(rewriter, node, 1, places, type_make(rewriter->context, rows.dtype, dims, rank), node);
  Value *inputs[] = {first->outputs[0], rewrite_constant_ints(rewriter, node, sizes, result.rank, node->origin)};
  const Origin *origin = REWRITE_ORIGIN(rewriter, reshape);
  Node *second = graph_node(node->graph, origin, OP_Reshape, inputs, 2, &result, 1, node);
  rewrite_replace(rewriter, node, second->outputs[0]);
  rewrite_hand_over(rewriter, first, reshape);
  rewrite_drop_unused(rewriter, reshape, second);
}

/* ---- reductions ---- */

/* Reads past axes of size 1 that were put in: the other axes are reduced by their numbers before that, and kept. */
static void reduce_before(Rewriter *rewriter, Node *node, Node *reshape) {
  Value *source = node_input(reshape, 0);
  Type before = source->type, after = reshape->outputs[0]->type, result = node->outputs[0]->type;
  bool inserted[MAX_RANK], reduced[MAX_RANK];
  int64_t axes[MAX_RANK], missing[MAX_RANK];
  Dim dims[MAX_RANK];
  size_t count = 0;
  if (!node_input(node, 1) || !inserted_axes(before, after, inserted) || !reduced_axes(node, reduced)) return;
  for (uint32_t i = 0, at = 0; i < after.rank; i++) {
    if (inserted[i]) continue;
    dims[at] = reduced[i] ? dim_of(1) : before.dims[at];
    if (reduced[i]) axes[count++] = at;
    at++;
  }
  Type kept = type_make(rewriter->context, result.dtype, dims, before.rank);
  bool leading[MAX_RANK];
  bool same = type_same_shape(kept, result);
  if (count == 0 || (!same && !inserted_axes(kept, result, leading))) return;
  Value *numbers = rewrite_constant_ints(rewriter, node, axes, count, node->origin);
  Node *first = copy_reading(rewriter, node, 0, source, kept, node);
  use_set(&first->inputs[1], numbers);
  node_set_int(first, "keepdims", 1);
  Node *last = first;
  if (!same) {
    size_t more = 0;
    for (uint32_t i = 0; i < result.rank; i++) {
      if (leading[i]) missing[more++] = i;
    }
    Value *inputs[] = {first->outputs[0], rewrite_constant_ints(rewriter, node, missing, more, node->origin)};
    last = graph_node(node->graph, first->origin, OP_Unsqueeze, inputs, 2, &result, 1, node);
  }
  rewrite_hand_over(rewriter, first, reshape);
  rewrite_replace(rewriter, node, last->outputs[0]);
  rewrite_drop_unused(rewriter, reshape, first);
}

/* One of two in a row that stay two, because what the first is given is not known: it would be moved back. */
static bool is_stuck(const Node *reshape) {
  const Node *inner = node_input(reshape, 0) ? node_input(reshape, 0)->producer : NULL;
  return inner && node_is(inner, OP_Reshape) && node_input(inner, 0) && node_input(inner, 0)->type.dtype == DTYPE_NONE;
}

static bool is_movable_reshape(const Node *reshape, const Node *node) {
  return reshape && is_reshape(reshape) && may_move(reshape) && reshape->graph == node->graph && !is_stuck(reshape);
}

static bool is_over_last_axis(const Node *node) {
  int64_t axis = node_int_or(node, "axis", -1);
  return axis == -1 || axis == (int64_t)node->outputs[0]->type.rank - 1;
}

static void sink(Rewriter *rewriter, Node *node) {
  if (node_has(node, REDUCES) && node->outputs[0]->type.dtype != DTYPE_NONE) {
    Node *reshape = node_input(node, 0)->producer;
    if (is_movable_reshape(reshape, node)) reduce_before(rewriter, node, reshape);
    return;
  }
  if ((!lets_through(node) && !node_is(node, OP_Gather)) || !node->outputs[0] ||
      node->outputs[0]->type.dtype == DTYPE_NONE)
    return;
  bool only_first = node_is(node, OP_Clip) || node_is(node, OP_Gather); /* the bounds of Clip must stay scalars */
  uint32_t movable = only_first ? 1 : node->input_count;
  for (uint32_t at = 0; at < movable; at++) {
    Node *reshape = node->inputs[at].value ? node->inputs[at].value->producer : NULL;
    if (!is_movable_reshape(reshape, node) || !value_only_user(reshape->outputs[0])) continue;
    Type before = node_input(reshape, 0)->type, after = reshape->outputs[0]->type;
    int budget = LOOKED_AT;
    if (before.dtype == DTYPE_NONE || after.dtype == DTYPE_NONE || !leads_to_reshape(node, &budget)) continue;
    if (node_is(node, OP_Transpose)) {
      move_below_transpose(rewriter, node, reshape);
    } else if (node_is(node, OP_Gather)) {
      if (!move_below_gather(rewriter, node, reshape)) continue;
    } else if (node_is(node, OP_Softmax)) {
      if (!is_over_last_axis(node) || !before.rank || !same_last_dims(before, after, 1)) continue;
      node_set_int(node, "axis", -1);
      move_below(rewriter, node, at, reshape);
    } else if (others_agree(node, at, before, after)) {
      move_below(rewriter, node, at, reshape);
    } else if (!move_leading_ones(rewriter, node, at, reshape)) {
      continue;
    }
    return;
  }
  if (node_has(node, ELEMENTWISE)) drop_leading_ones(rewriter, node);
  Node *places = node_is(node, OP_Gather) && node_input(node, 1) ? node_input(node, 1)->producer : NULL;
  if (is_movable_reshape(places, node) && node_input(places, 0)->type.dtype != DTYPE_NONE)
    look_up_before(rewriter, node, places);
}

bool sink_reshapes(Model *model) {
  Rewriter rewriter;
  rewrite_begin(&rewriter, model, __func__);
  rewrite_each_node(&rewriter, sink);
  return rewrite_end(&rewriter);
}
