/* Common nodes: what is computed twice is computed once.
 *
 * Two nodes are the same when operator, attributes and inputs are, in one graph or in a graph and one around it. One
 * walk: when a node is reached its inputs are merged already, so inputs compare by address. Constants are the same
 * when their bytes are. Nothing random is merged, and no node with a graph of its own.
 */
#include "onnx/graph/same.h"
#include "passes/passes.h"
#include "passes/rewrite.h"

/* A node that was seen in a graph inside another one. */
typedef struct Inner {
  Node *node;
  uint64_t hash;
} Inner;

typedef struct Merger {
  Rewriter rewriter;
  Map seen;            /* hash -> the newest Node; its scratch is the one before */
  ARRAY(Inner) inside; /* of the graphs around the walk but the outermost, to be forgotten at their end */
} Merger;

/* Max and Min of floats tell 0.0 from -0.0 by the order of their operands. */
static bool commutes(const Node *node) {
  if (node->input_count != 2 || !node_has(node, COMMUTES)) return false;
  return !(node_is(node, OP_Max) || node_is(node, OP_Min)) || dtype_is_integer(node->inputs[0].value->type.dtype);
}

/* a > b is b < a: what a node is with its two inputs in the other order, OP_NONE for most. */
static Op turned_around(const Node *node) {
  if (node_is(node, OP_Greater)) return OP_Less;
  if (node_is(node, OP_GreaterOrEqual)) return OP_LessOrEqual;
  return OP_NONE;
}

static bool can_merge(const Node *node) {
  if (node->domain[0] && !node_has(node, COMPOSITE)) return false;
  if (node_has(node, RANDOM) || node->output_count == 0) return false;
  for (size_t i = 0; i < node->attributes.count; i++) {
    const Attribute *attribute = &node->attributes.items[i];
    if (attribute->kind == ATTRIBUTE_GRAPH || attribute->kind == ATTRIBUTE_OTHER) return false;
  }
  return true;
}

static uint64_t node_hash(const Node *node) {
  Op turned = turned_around(node);
  uint64_t hash = hash_mix((uint64_t)(turned ? turned : node->op), node->output_count);
  uint64_t unordered = 0;
  hash = hash_mix(hash, attributes_hash(node, tensor_hash));
  bool any_order = commutes(node);
  for (uint32_t i = 0; i < node->input_count; i++) {
    uint64_t input = (uint64_t)(uintptr_t)node->inputs[turned ? 1 - i : i].value;
    if (any_order) unordered += hash_mix(input, 1);
    else hash = hash_mix(hash, input);
  }
  return hash_mix(hash, unordered);
}

static bool same_inputs(const Node *a, const Node *b) {
  if (a->input_count != b->input_count) return false;
  if (commutes(a) && a->inputs[0].value == b->inputs[1].value && a->inputs[1].value == b->inputs[0].value) return true;
  for (uint32_t i = 0; i < a->input_count; i++) {
    if (a->inputs[i].value != b->inputs[i].value) return false;
  }
  return true;
}

static bool is_turned_around(const Node *a, const Node *b) {
  Op one = turned_around(a), other = turned_around(b);
  if ((!one || one != b->op) && (!other || other != a->op)) return false;
  return a->inputs[0].value == b->inputs[1].value && a->inputs[1].value == b->inputs[0].value;
}

static bool same_node(const Node *a, const Node *b) {
  if (a->domain != b->domain || a->output_count != b->output_count) return false;
  if (a->op == b->op ? !same_inputs(a, b) : !is_turned_around(a, b)) return false;
  if (!same_attributes(a, b)) return false;
  for (uint32_t i = 0; i < a->output_count; i++) {
    if (!a->outputs[i] != !b->outputs[i]) return false;
    if (a->outputs[i] && !type_equal(a->outputs[i]->type, b->outputs[i]->type)) return false;
  }
  return true;
}

/* The second node goes; where an output of a graph needs it, it stays. */
static void merge(Merger *merger, Node *first, Node *second) {
  Rewriter *rewriter = &merger->rewriter;
  if (second->output_count == 1) {
    if (node_is(second, OP_Identity) && !rewrite_can_replace(second->outputs[0], first->outputs[0])) return;
    rewrite_replace(rewriter, second, first->outputs[0]);
    return;
  }
  for (uint32_t i = 0; i < second->output_count; i++) {
    if (second->outputs[i] && !rewrite_can_replace(second->outputs[i], first->outputs[i])) return;
  }
  for (uint32_t i = 0; i < second->output_count; i++) {
    Value *old = second->outputs[i], *kept = first->outputs[i];
    if (!old) continue;
    if (old->name_fixed) {
      kept->name = old->name;
      kept->name_fixed = true;
    }
    value_replace(old, kept);
  }
  rewrite_drop_unused(rewriter, second, first);
}

static void find_and_merge(Merger *merger, Node *node) {
  uint64_t hash = node_hash(node);
  void **slot = map_slot(merger->rewriter.context, &merger->seen, hash, 0);
  Node *newest = *slot;
  node->scratch = newest;
  *slot = node;
  for (Node *seen = newest; seen; seen = seen->scratch) {
    if (!same_node(seen, node)) continue;
    *slot = newest;
    merge(merger, seen, node);
    return;
  }
  if (node->graph->owner) array_push(merger->rewriter.context, &merger->inside, ((Inner){node, hash}));
}

/* What the graph holds is not seen by those beside it. */
static void forget_inside(Merger *merger, size_t count) {
  while (merger->inside.count > count) {
    Inner last = merger->inside.items[--merger->inside.count];
    if (last.node->scratch) *map_slot(merger->rewriter.context, &merger->seen, last.hash, 0) = last.node->scratch;
    else map_remove(&merger->seen, last.hash, 0);
  }
}

static void merge_graph(Merger *merger, Graph *graph) {
  size_t outside = merger->inside.count;
  map_reserve(merger->rewriter.context, &merger->seen, graph->node_count);
  for (Node *node = graph->first, *next; node; node = next) {
    next = node->next;
    for (size_t i = 0; i < node->attributes.count; i++) {
      if (node->attributes.items[i].kind == ATTRIBUTE_GRAPH) merge_graph(merger, node->attributes.items[i].graph);
    }
    if (can_merge(node)) find_and_merge(merger, node);
  }
  if (graph->owner) forget_inside(merger, outside);
  else map_release(merger->rewriter.context, &merger->seen); /* nothing is around it */
}

static void merge_initializers(Merger *merger, Graph *graph) {
  Rewriter *rewriter = &merger->rewriter;
  Map known = {0};
  map_reserve(rewriter->context, &known, graph->initializers.count);
  for (size_t i = 0; i < graph->initializers.count; i++) {
    Value *value = graph->initializers.items[i];
    if (!value->uses || value->name_fixed || !unread_constant_of(value)) continue;
    for (uint64_t hash = tensor_hash(value->tensor);; hash++) {
      void **slot = map_slot(rewriter->context, &known, hash, 1);
      Value *first = *slot;
      if (!first) {
        *slot = value;
        break;
      }
      if (!same_tensor(first->tensor, value->tensor)) continue;
      if (value_is_output(value)) break;
      value_keep_users(first);
      value_keep_users(value);
      value_replace(value, first);
      rewriter->changed = true;
      break;
    }
  }
  map_release(rewriter->context, &known);
}

static void merge_initializers_of(Graph *graph, void *data) { merge_initializers(data, graph); }

bool merge_common_nodes(Model *model) {
  Merger merger = {0};
  rewrite_begin(&merger.rewriter, model, __func__);
  model_each_graph(model, merge_initializers_of, &merger);
  for (size_t i = 0; i < model->functions.count; i++) merge_graph(&merger, model->functions.items[i]->body);
  merge_graph(&merger, model->graph);
  return rewrite_end(&merger.rewriter);
}
