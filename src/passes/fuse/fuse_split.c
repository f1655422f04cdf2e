/* Slices that lie side by side and cover an axis are one Split. */
#include "onnx/facts/schema.h"
#include "passes/passes.h"
#include "passes/rewrite.h"

enum { MOST_PARTS = 64 /* uses of a value that are looked at: the work stays linear */ };

typedef struct Part {
  Node *node;
  int64_t axis, start, end;
} Part;

/* A Slice along one axis whose size is known, without gaps. */
static bool read_part(Node *node, Part *part) {
  int64_t step = 1, axis, start, end;
  const Value *source = node_input(node, 0);
  if (!node_is(node, OP_Slice) || !node->outputs[0]->uses || source->type.dtype == DTYPE_NONE) return false;
  if (!only_integer(node_input(node, 1), &start) || !only_integer(node_input(node, 2), &end)) return false;
  if (!only_integer(node_input(node, 3), &axis)) return false;
  if (node_input(node, 4) && (!only_integer(node_input(node, 4), &step) || step != 1)) return false;
  if (axis < 0) axis += source->type.rank;
  if (axis < 0 || axis >= (int64_t)source->type.rank || !dim_is_constant(source->type.dims[axis])) return false;
  int64_t size = source->type.dims[axis].constant;
  if (start < 0) start += size;
  if (end < 0) end += size;
  if (end > size) end = size;
  *part = (Part){node, axis, start, end};
  return start >= 0 && start < end;
}

/* From the part that begins the axis to its end; how many, or 0. */
static size_t line_up(const Part *first, Part *parts) {
  const Value *source = node_input(first->node, 0);
  int64_t size = source->type.dims[first->axis].constant;
  Part others[MOST_PARTS];
  size_t count = 0, found = 0;
  for (const Use *use = source->uses; use; use = use->next) {
    if (count == MOST_PARTS) return 0;
    if (!use->node || use->node == first->node || use->node->graph != first->node->graph) continue;
    if (read_part(use->node, &others[count]) && others[count].axis == first->axis) count++;
  }
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

/* The slices are left without a use: the walk goes on from one of them. */
static void emit_split(Rewriter *rewriter, const Part *parts, size_t count) {
  Value *source = node_input(parts[0].node, 0);
  Graph *graph = parts[0].node->graph;
  bool made_here = source->producer && source->graph == graph;
  Node *before = made_here ? source->producer->next : graph->first;
  Type types[MOST_PARTS];
  int64_t sizes[MOST_PARTS];
  for (size_t i = 0; i < count; i++) {
    types[i] = parts[i].node->outputs[0]->type;
    sizes[i] = parts[i].end - parts[i].start;
  }
  const Origin *origin = parts[0].node->origin;
  origin = origin_with_emitter(rewriter->model->provenance, origin, REWRITE_EMITTER(rewriter));
  Value *inputs[] = {source, rewrite_constant_ints(rewriter, before, sizes, count, parts[0].node->origin)};
  Node *split = graph_node(graph, origin, OP_Split, inputs, 2, types, count, before);
  node_set_int(split, "axis", parts[0].axis);
  for (size_t i = 0; i < count; i++) {
    rewrite_hand_over(rewriter, split, parts[i].node);
    take_over(parts[i].node->outputs[0], split->outputs[i]);
  }
  rewriter->changed = true;
}

static void visit(Rewriter *rewriter, Node *node) {
  Part first, parts[MOST_PARTS];
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
