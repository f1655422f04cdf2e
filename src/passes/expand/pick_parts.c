/* What is picked out of joined parts is picked out of the part that has it, which may be it. A row that is set at a
 * known place, among constants or in joined parts, is a part as well: tables that a few steps fill row by row are made
 * of their rows.
 *
 * One row that a step of a loop cuts out is picked by Gather, which takes ONNX Runtime 0.25 us and a Slice 0.4.
 *
 * It is done last: where numbers are joined, parts of one array are worth more than arrays of their own (join_alike.c).
 */
#include "passes/loop_body.h"
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

/* ---- rows that are set ---- */

enum {
  MOST_PARTS = 4,   /* a Concat of more takes longer than setting a row */
  LARGEST = 1 << 10 /* bytes of constants */
};

/* Where a ScatterND sets one row; -1: it does not. */
static int64_t row_set(const Node *node) {
  Type rows = node_input(node, 0)->type, row = node_input(node, 2)->type;
  int64_t at, count;
  if (node_attribute(node, "reduction") || type_is_unranked(rows) || !type_count(rows, &count) || !rows.rank) return -1;
  if (!only_integer(node_input(node, 1), &at) || node_input(node, 1)->type.rank != 2) return -1;
  if (type_is_unranked(row) || row.rank != rows.rank || !dim_is(row.dims[0], 1)) return -1;
  if (at < 0) at += rows.dims[0].constant;
  return at >= 0 && at < rows.dims[0].constant ? at : -1;
}

static Value *constant_rows(Rewriter *rewriter, Node *node, const Tensor *all, int64_t first, int64_t end) {
  Tensor *part = arena_new(&rewriter->context->arena, Tensor);
  int64_t *dims = arena_copy(&rewriter->context->arena, all->dims, all->rank * sizeof *dims);
  size_t width = all->size / (size_t)all->dims[0];
  dims[0] = end - first;
  *part = (Tensor){.dtype = all->dtype, .rank = all->rank, .dims = dims};
  part->data = (const char *)all->data + (size_t)first * width;
  part->size = (size_t)(end - first) * width;
  return rewrite_constant(rewriter, node, part, node_input(node, 0)->origin);
}

/* The parts that the rows are then, or none. */
static size_t parts_around(Rewriter *rewriter, Node *node, int64_t at, Value **parts) {
  Value *rows = node_input(node, 0), *row = node_input(node, 2);
  const Tensor *all = constant_of(rows);
  size_t count = 0;
  if (all) {
    if (all->name || all->size > LARGEST || dtype_bits(all->dtype) < 8 || all->rank != rows->type.rank) return 0;
    if (at > 0) parts[count++] = constant_rows(rewriter, node, all, 0, at);
    parts[count++] = row;
    if (at + 1 < all->dims[0]) parts[count++] = constant_rows(rewriter, node, all, at + 1, all->dims[0]);
    return count;
  }
  const Node *concat = rows->producer;
  if (!concat || !node_is(concat, OP_Concat) || concat->graph != node->graph) return 0;
  int64_t axis = node_int_or(concat, "axis", 0);
  if ((axis != 0 && axis + rows->type.rank != 0) || concat->input_count > MOST_PARTS) return 0;
  int64_t which = part_at(concat, 0, &at);
  if (which < 0 || node_input(concat, (size_t)which)->type.dims[0].constant != 1) return 0;
  for (; count < concat->input_count; count++) parts[count] = (int64_t)count == which ? row : node_input(concat, count);
  return count;
}

static void join_row(Rewriter *rewriter, Node *node) {
  Value *parts[MOST_PARTS + 2];
  int64_t at = row_set(node);
  size_t count = at < 0 ? 0 : parts_around(rewriter, node, at, parts);
  if (count < 2 || count > MOST_PARTS) return;
  const Origin *origin = REWRITE_ORIGIN(rewriter, node);
  Node *concat = graph_node(node->graph, origin, OP_Concat, parts, count, &node->outputs[0]->type, 1, node);
  Node *before = node_input(node, 0)->producer;
  node_set_int(concat, "axis", 0);
  if (before) rewrite_hand_over(rewriter, concat, before);
  rewrite_replace(rewriter, node, concat->outputs[0]);
}

/* ---- parts ---- */

/* Of a Slice, the part that it is; NULL: none. */
static Value *whole_part(const Node *slice) {
  int64_t axis, start, end;
  if (!read_axis_slice(slice, &axis, &start, &end)) return NULL;
  const Node *concat = node_input(slice, 0)->producer;
  if (!concat || !node_is(concat, OP_Concat)) return NULL;
  Type type = concat->outputs[0]->type;
  int64_t joined = node_int_or(concat, "axis", 0);
  if (type_is_unranked(type) || axis < 0 || axis >= type.rank || (joined != axis && joined + type.rank != axis))
    return NULL;
  if (!dim_is_constant(type.dims[axis])) return NULL;
  int64_t part = part_at(concat, (uint32_t)axis, &start);
  Value *value = part < 0 || start != 0 ? NULL : node_input(concat, (size_t)part);
  return value && type_equal(value->type, slice->outputs[0]->type) ? value : NULL;
}

static void pick(Rewriter *rewriter, Node *node) {
  int64_t index;
  if (!only_integer(node_input(node, 1), &index)) return;
  Node *concat = node_input(node, 0)->producer;
  int64_t axis = concat && node_is(concat, OP_Concat) ? picked_axis(node, concat) : -1;
  int64_t which = axis < 0 ? -1 : part_at(concat, (uint32_t)axis, &index);
  if (which < 0) return;
  Value *from = node_input(concat, (size_t)which);
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

/* ---- rows ---- */

static void pick_row(Rewriter *rewriter, Node *slice) {
  int64_t axis, start, end;
  Type from = node_input(slice, 0)->type, to = slice->outputs[0]->type;
  if (!stands_in_loop(slice->graph) || !read_axis_slice(slice, &axis, &start, &end)) return;
  if (from.dtype == DTYPE_NONE || type_is_unranked(from) || to.rank != from.rank) return;
  if (axis < 0) axis += from.rank;
  if (axis < 0 || axis >= from.rank || !dim_is_constant(from.dims[axis]) || !dim_is(to.dims[axis], 1)) return;
  if (start < 0) start += from.dims[axis].constant;
  if (start < 0 || start >= from.dims[axis].constant) return;
  Value *inputs[] = {node_input(slice, 0), rewrite_constant_ints(rewriter, slice, &start, 1, slice->origin)};
  const Origin *origin = REWRITE_ORIGIN(rewriter, slice);
  Node *gather = graph_node(slice->graph, origin, OP_Gather, inputs, 2, &to, 1, slice);
  node_set_int(gather, "axis", axis);
  rewrite_replace(rewriter, slice, gather->outputs[0]);
}

static void visit(Rewriter *rewriter, Node *node) {
  Value *part = node_is(node, OP_Slice) ? whole_part(node) : NULL;
  if (part) rewrite_replace(rewriter, node, part);
  else if (node_is(node, OP_Slice)) pick_row(rewriter, node);
  else if (node_is(node, OP_Gather)) pick(rewriter, node);
  else if (node_is(node, OP_ScatterND) && node->input_count == 3) join_row(rewriter, node);
}

bool pick_parts(Model *model) {
  Rewriter rewriter;
  rewrite_begin(&rewriter, model, __func__);
  rewrite_each_node(&rewriter, visit);
  return rewrite_end(&rewriter);
}
