/* Slices that lie side by side and cover an axis are one Split; those that were rounded to halves before are rounded
 * behind it. Parts of an axis that a Reshape took apart, and that are reshaped again, are parts of the axis as it was:
 * so are queries, keys and values that are picked out of a joined projection, whatever order their axes get.
 */
#include "base/bytes.h"
#include "onnx/facts/schema.h"
#include "passes/fuse/attention.h"
#include "passes/layout/permute_axes.h"
#include "passes/pattern.h"

enum { MOST_PARTS = 64 /* uses of a value that are looked at: the work stays linear */ };

typedef struct Part {
  Node *node;
  int64_t axis, start, end;
} Part;

/* A Slice along one axis whose size is known, without gaps. */
static bool read_part(Node *node, Part *part) {
  int64_t axis, start, end;
  if (!read_axis_slice(node, &axis, &start, &end) || !node->outputs[0]->uses) return false;
  const Value *source = node_input(node, 0);
  if (source->type.dtype == DTYPE_NONE) return false;
  if (axis < 0) axis += source->type.rank;
  if (axis < 0 || axis >= (int64_t)source->type.rank || !dim_is_constant(source->type.dims[axis])) return false;
  int64_t size = source->type.dims[axis].constant;
  if (start < 0) start += size;
  if (end < 0) end += size;
  if (end > size) end = size;
  *part = (Part){node, axis, start, end};
  return start >= 0 && start < end;
}

static bool is_rounding(const Node *node, const Graph *graph) {
  return node && node_is(node, OP_Narrow) && node->graph == graph;
}

/* Slices of the value along the axis of the first. */
static bool find_others(const Part *first, const Value *source, Part *others, size_t *count) {
  for (const Use *use = source->uses; use; use = use->next) {
    if (*count == MOST_PARTS) return false;
    if (!use->node || use->node == first->node || use->node->graph != first->node->graph) continue;
    if (read_part(use->node, &others[*count]) && others[*count].axis == first->axis) ++*count;
  }
  return true;
}

/* The same, and of the value before or after it was rounded. */
static bool find_all_others(const Part *first, Part *others, size_t *count) {
  const Value *source = node_input(first->node, 0);
  const Graph *graph = first->node->graph;
  bool rounded = is_rounding(source->producer, graph);
  if (!find_others(first, source, others, count)) return false;
  if (rounded) return find_others(first, node_input(source->producer, 0), others, count);
  for (const Use *use = source->uses; use; use = use->next) {
    if (is_rounding(use->node, graph) && !find_others(first, use->node->outputs[0], others, count)) return false;
  }
  return true;
}

/* From the part that begins the axis to its end; how many, or 0. */
static size_t line_up(const Part *first, Part *parts) {
  const Value *source = node_input(first->node, 0);
  int64_t size = source->type.dims[first->axis].constant;
  Part others[MOST_PARTS];
  size_t count = 0, found = 0;
  if (!find_all_others(first, others, &count)) return 0;
  parts[found++] = *first;
  for (int64_t at = first->end; at < size;) {
    size_t next = 0;
    while (next < count && others[next].start != at) next++;
    if (next == count || found == MOST_PARTS) return 0;
    parts[found++] = others[next];
    at = others[next].end;
  }
  return found;
}

static void take_over(Value *old, Value *value) {
  rewrite_take_name(value, old);
  value_replace(old, value);
}

/* What the slices are parts of: if some are of what was not rounded, that. */
static Value *source_of(const Part *parts, size_t count) {
  Value *source = node_input(parts[0].node, 0);
  for (size_t i = 1; i < count; i++) {
    Value *other = node_input(parts[i].node, 0);
    if (is_rounding(source->producer, parts[i].node->graph) && node_input(source->producer, 0) == other) source = other;
  }
  return source;
}

/* The part, rounded as the slice's source was. */
static Value *rounded_part(Rewriter *rewriter, Value *part, Node *slice, Node *before) {
  Value *source = node_input(slice, 0);
  if (source->type.dtype == part->type.dtype) return part;
  Type type = type_with(part->type, source->type.dtype);
  const Origin *origin = source->producer->origin;
  origin = origin_with_emitter(rewriter->model->provenance, origin, REWRITE_EMITTER(rewriter));
  Node *narrow = graph_node(slice->graph, origin, OP_Narrow, &part, 1, &type, 1, before);
  node_copy_attributes(narrow, source->producer);
  rewrite_hand_over(rewriter, narrow, slice);
  return narrow->outputs[0];
}

/* The slices are left without a use: the walk goes on from one of them. */
static void emit_split(Rewriter *rewriter, const Part *parts, size_t count) {
  Value *source = source_of(parts, count);
  Graph *graph = parts[0].node->graph;
  bool made_here = source->producer && source->graph == graph;
  Node *before = made_here ? source->producer->next : graph->first;
  Type types[MOST_PARTS];
  int64_t sizes[MOST_PARTS];
  for (size_t i = 0; i < count; i++) {
    types[i] = type_with(parts[i].node->outputs[0]->type, source->type.dtype);
    sizes[i] = parts[i].end - parts[i].start;
  }
  const Origin *origin = parts[0].node->origin;
  origin = origin_with_emitter(rewriter->model->provenance, origin, REWRITE_EMITTER(rewriter));
  Value *inputs[] = {source, rewrite_constant_ints(rewriter, before, sizes, count, parts[0].node->origin)};
  Node *split = graph_node(graph, origin, OP_Split, inputs, 2, types, count, before);
  node_set_int(split, "axis", parts[0].axis);
  for (size_t i = 0; i < count; i++) {
    rewrite_hand_over(rewriter, split, parts[i].node);
    take_over(parts[i].node->outputs[0], rounded_part(rewriter, split->outputs[i], parts[i].node, before));
  }
  rewriter->changed = true;
}

/* ---- parts of an axis that was taken apart ---- */

static bool is_only_renamed(const Value *value) {
  for (const Use *use = value->uses; use; use = use->next) {
    if (!use->node || !node_has(use->node, RENAMES) || use->node->graph != value->graph) return false;
  }
  return value->uses != NULL;
}

static bool are_only_renamed(const Node *split) {
  for (uint32_t i = 0; i < split->output_count; i++) {
    if (!split->outputs[i] || !is_only_renamed(split->outputs[i])) return false;
  }
  return true;
}

/* Elements of the source's axis for each position of the axis that is split; 0 when it does not begin that axis, or
 * other axes differ. */
static int64_t elements_for_one(Type from, Type to, int64_t axis) {
  int64_t block = 1;
  if (axis >= (int64_t)from.rank || !dim_is_constant(from.dims[axis]) || !same_dims(from, to, 0, (uint32_t)axis))
    return 0;
  int64_t whole = from.dims[axis].constant, after = (int64_t)from.rank - axis - 1;
  for (int64_t i = axis + 1; i < (int64_t)to.rank - after; i++) {
    if (!dim_is_constant(to.dims[i]) || to.dims[i].constant < 1 || block > whole / to.dims[i].constant) return 0;
    block *= to.dims[i].constant;
  }
  for (int64_t i = 1; i <= after; i++) {
    if (!dim_equal(from.dims[from.rank - i], to.dims[to.rank - i])) return 0;
  }
  return dim_is_constant(to.dims[axis]) && block * to.dims[axis].constant == whole ? block : 0;
}

/* The part in the shape that it had; sizes before the axis are as they are in it. */
static Value *taken_apart(Rewriter *rewriter, Node *before, const Origin *origin, Value *part, Type type) {
  int64_t numbers[MAX_RANK];
  for (uint32_t i = 0; i < type.rank; i++) numbers[i] = dim_is_constant(type.dims[i]) ? type.dims[i].constant : 0;
  Value *inputs[] = {part, rewrite_constant_ints(rewriter, before, numbers, type.rank, origin)};
  return graph_node(before->graph, origin, OP_Reshape, inputs, 2, &type, 1, before)->outputs[0];
}

/* The same, with its axes moved as they were. */
static Value *taken_apart_in_order(Rewriter *rewriter, Node *before, const Origin *origin, Value *part, Type type,
                                   const AxisOrder *order) {
  if (!order || order_is_identity(order)) return taken_apart(rewriter, before, origin, part, type);
  AxisOrder back = order_inverse(*order);
  Value *apart = taken_apart(rewriter, before, origin, part, order_type(rewriter->context, type, &back));
  Node *transpose = graph_node(before->graph, origin, OP_Transpose, &apart, 1, &type, 1, before);
  node_set_ints(transpose, "perm", order->from, order->rank);
  return transpose->outputs[0];
}

/* In the place of `old` values, parts of the source along an axis, of these sizes; `order`: of axes of the old values
 * that were moved, or NULL. */
static Node *split_source(Rewriter *rewriter, Node *before, const Origin *origin, Value *source, int64_t axis,
                          const int64_t *sizes, Value *const *old, uint32_t count, const AxisOrder *order) {
  Type types[MOST_PARTS];
  for (uint32_t i = 0; i < count; i++) {
    Dim dims[MAX_RANK];
    copy_bytes(dims, source->type.dims, source->type.rank * sizeof *dims);
    dims[axis] = dim_of(sizes[i]);
    types[i] = type_make(rewriter->context, source->type.dtype, dims, source->type.rank);
  }
  Value *inputs[2] = {source, rewrite_constant_ints(rewriter, before, sizes, count, origin)};
  origin = origin_with_emitter(rewriter->model->provenance, origin, REWRITE_EMITTER(rewriter));
  Node *parts = graph_node(before->graph, origin, OP_Split, inputs, 2, types, count, before);
  node_set_int(parts, "axis", axis);
  for (uint32_t i = 0; i < count; i++) {
    origin = origin_with_emitter(rewriter->model->provenance, old[i]->producer->origin, REWRITE_EMITTER(rewriter));
    value_replace(old[i], taken_apart_in_order(rewriter, before, origin, parts->outputs[i], old[i]->type, order));
  }
  rewriter->changed = true;
  return parts;
}

/* Are the sizes of the axis and of those after it known? */
static bool is_known_from(Type type, int64_t axis) {
  for (uint32_t i = (uint32_t)axis; i < type.rank; i++) {
    if (!dim_is_constant(type.dims[i])) return false;
  }
  return true;
}

/* The Reshape that makes the value for its readers alone; `block` is how much of its source's axis each position of
 * this one is. */
static Node *reshape_behind(const Value *value, const Graph *graph, int64_t axis, int64_t *block) {
  Node *reshape = value->producer;
  if (!reshape || !node_is(reshape, OP_Reshape) || reshape->graph != graph) return NULL;
  Type from = node_input(reshape, 0)->type, to = value->type;
  if (from.dtype == DTYPE_NONE || axis < 0 || axis >= (int64_t)to.rank || to.rank <= from.rank) return NULL;
  if (!schema_runs(OP_Split, NULL, graph->model->opset, from.dtype) || !is_known_from(to, axis)) return NULL;
  *block = elements_for_one(from, to, axis);
  return *block > 0 ? reshape : NULL;
}

static void part_before_reshape(Rewriter *rewriter, Node *split) {
  int64_t axis = node_int_or(split, "axis", 0), block, sizes[MOST_PARTS];
  const Value *whole = node_input(split, 0);
  if (axis < 0) axis += whole->type.rank;
  Node *reshape = whole->uses->next ? NULL : reshape_behind(whole, split->graph, axis, &block);
  if (!reshape || split->output_count > MOST_PARTS || !are_only_renamed(split)) return;
  for (uint32_t i = 0; i < split->output_count; i++) {
    if (!is_known_from(split->outputs[i]->type, axis)) return;
    sizes[i] = split->outputs[i]->type.dims[axis].constant * block;
  }
  Node *parts = split_source(rewriter, split, split->origin, node_input(reshape, 0), axis, sizes, split->outputs,
                             split->output_count, NULL);
  rewrite_hand_over(rewriter, parts, split);
  node_remove(split);
  rewrite_drop_unused(rewriter, reshape, parts);
}

/* ---- positions of such an axis that are picked one by one ---- */

static bool picks(const Node *node, const Value *source, int64_t *axis, int64_t *index) {
  const Value *which = node_is(node, OP_Gather) ? node_input(node, 1) : NULL;
  if (!which || which->type.rank != 0 || node_input(node, 0) != source || !only_integer(which, index)) return false;
  *axis = node_int_or(node, "axis", 0);
  if (*axis < 0) *axis += source->type.rank;
  return *axis >= 0 && *axis < (int64_t)source->type.rank;
}

/* Are Reshapes and Transposes all that reads the value? Then a Reshape more before them costs nothing. */
static bool is_only_moved(const Value *value) {
  for (const Use *use = value->uses; use; use = use->next) {
    if (!use->node || !node_moves_all(use->node) || use->node->graph != value->graph) return false;
  }
  return value->uses != NULL;
}

/* Does nothing but an Attention read it, perhaps rotated, whose heads are put back among the features? It moves the
 * axes itself then. */
static bool is_moved_by_attention(const Value *value) {
  const Node *attention = value_only_user(value);
  if (attention && node_is(attention, OP_RotaryEmbedding) && node_input(attention, 0) == value)
    attention = value_only_user(attention->outputs[0]);
  if (!attention || !node_is(attention, OP_Attention) || attention->graph != value->graph) return false;
  const Node *back = value_only_user(attention->outputs[0]);
  return !node_attribute(attention, "q_num_heads") && back && puts_heads_first(back);
}

/* Are its heads put back behind the positions by all that reads it? */
static bool is_moved_back(const Value *value) {
  for (const Use *use = value->uses; use; use = use->next) {
    if (!use->node || use->node->graph != value->graph || !puts_heads_first(use->node)) return false;
  }
  return value->uses != NULL;
}

static bool is_heads_first(const AxisOrder *order) {
  return order->rank == 4 && order->from[0] == 0 && order->from[1] == 2 && order->from[2] == 1;
}

/* Every position of the axis is picked once, only to be moved, and the value is not read otherwise; how many. `order`:
 * of the axes of what is picked. */
static uint32_t read_picks(const Value *source, const Graph *graph, int64_t axis, const AxisOrder *order,
                           Value *picked[MOST_PARTS]) {
  Dim size = source->type.dims[axis];
  bool is_in_order = !order || order_is_identity(order);
  uint32_t found = 0;
  if (!dim_is_constant(size) || size.constant < 2 || size.constant > MOST_PARTS) return 0;
  for (int64_t i = 0; i < size.constant; i++) picked[i] = NULL;
  for (const Use *use = source->uses; use; use = use->next, found++) {
    int64_t at, index;
    if (!use->node || use->node->graph != graph || !picks(use->node, source, &at, &index) || at != axis) return 0;
    if (index < 0) index += size.constant;
    if (index < 0 || index >= size.constant || picked[index]) return 0;
    Value *value = use->node->outputs[0];
    bool is_moved = is_moved_by_attention(value) || is_moved_back(value);
    if (is_in_order ? !is_only_moved(value) : !is_heads_first(order) || !is_moved) return 0;
    picked[index] = value;
  }
  return (int64_t)found == size.constant ? found : 0;
}

static void join_picks(Rewriter *rewriter, Node *node) {
  Value *source = node_input(node, 0), *picked[MOST_PARTS];
  Node *transpose = source->producer && node_is(source->producer, OP_Transpose) ? source->producer : NULL;
  int64_t axis, index, block, sizes[MOST_PARTS];
  AxisOrder order, rest;
  if (!picks(node, source, &axis, &index) || index != 0) return;
  if (transpose && (transpose->graph != node->graph || !transpose_order(transpose, &order))) return;
  if (transpose) rest = order_without(&order, axis);
  const Value *whole = transpose ? node_input(transpose, 0) : source;
  int64_t own = transpose ? order.from[axis] : axis;
  Node *reshape = transpose && whole->uses->next ? NULL : reshape_behind(whole, node->graph, own, &block);
  uint32_t count = reshape ? read_picks(source, node->graph, axis, transpose ? &rest : NULL, picked) : 0;
  if (!count) return;
  for (uint32_t i = 0; i < count; i++) sizes[i] = block;
  Node *last = transpose ? transpose : reshape;
  Node *parts = split_source(rewriter, last->next, node->origin, node_input(reshape, 0), own, sizes, picked, count,
                             transpose ? &rest : NULL);
  for (uint32_t i = 0; i < count; i++) rewrite_hand_over(rewriter, parts, picked[i]->producer);
  rewrite_hand_over(rewriter, parts, last);
  if (transpose) rewrite_hand_over(rewriter, parts, reshape);
}

static void visit(Rewriter *rewriter, Node *node) {
  Part first, parts[MOST_PARTS];
  if (node_is(node, OP_Split)) part_before_reshape(rewriter, node);
  if (node_is(node, OP_Gather)) join_picks(rewriter, node);
  if (!node_is(node, OP_Slice) || !read_part(node, &first) || first.start != 0) return;
  if (!schema_runs(OP_Split, NULL, rewriter->model->opset, node_input(node, 0)->type.dtype)) return;
  size_t count = line_up(&first, parts);
  if (count > 1) emit_split(rewriter, parts, count);
}

bool fuse_split(Model *model) {
  Rewriter rewriter;
  rewrite_begin(&rewriter, model, __func__);
  rewrite_each_node(&rewriter, visit);
  return rewrite_end(&rewriter);
}
