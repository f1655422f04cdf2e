/* Constants of bodies. While passes run, a body of a Loop, Scan or If uses the constants of the graph around it. Tools
 * that rename or cut out parts of a graph (onnx.compose, onnx.utils) follow what a body computes with, but not such
 * constants: in the end each body gets its own. Large weights stay where they are looked for, and so does what is large
 * and used in several places. */
#include "passes/passes.h"

enum { SMALL = 1024 /* bytes */ };

static bool is_shared(const Value *value) {
  for (const Use *use = value->uses; use; use = use->next) {
    if (!use->node || use->node->graph != value->uses->node->graph) return true;
  }
  return false;
}

/* The first body that uses what its own graph does not takes it as it is; others get copies. */
static Value *taken(Graph *graph, Value *value) {
  Context *context = graph->model->context;
  const Tensor *tensor = value->tensor;
  bool is_weight = tensor->name || tensor->made_of;
  if (tensor->stored || tensor->fetched) return value;
  if (tensor->size > SMALL && (is_weight || is_shared(value))) return value;
  for (const Use *use = value->uses; use; use = use->next) {
    if (use->node && use->node->graph != value->graph) continue;
    Value *copy = graph_initializer(graph, tensor);
    copy->origin = value->origin;
    copy->literal = value->literal;
    return copy;
  }
  value->graph = graph;
  array_push(context, &graph->initializers, value);
  return value;
}

static void take_constants(Graph *graph, void *data) {
  Map own = {0}; /* constant of a graph around this one -> of this one */
  (void)data;
  if (!graph->owner) return;
  FOR_EACH_NODE(node, graph) {
    for (uint32_t i = 0; i < node->input_count; i++) {
      Value *value = node->inputs[i].value;
      if (!value || !value->tensor || value->graph == graph || value->name_fixed) continue;
      void **slot = map_slot_pointer(graph->model->context, &own, value);
      if (!*slot) *slot = taken(graph, value);
      if (*slot != value) use_set(&node->inputs[i], *slot);
    }
  }
}

static void keep_own(Graph *graph, void *data) {
  size_t kept = 0;
  (void)data;
  for (size_t i = 0; i < graph->initializers.count; i++) {
    Value *value = graph->initializers.items[i];
    if (value->graph == graph) graph->initializers.items[kept++] = value;
  }
  graph->initializers.count = kept;
}

void bodies_take_constants(Model *model) {
  graph_each(model->graph, take_constants, NULL);
  graph_each(model->graph, keep_own, NULL);
}
