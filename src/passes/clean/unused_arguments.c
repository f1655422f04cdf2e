/* Inputs of functions that their bodies do not look at, outputs that no call uses, and functions that nothing calls.
 *
 * Only of functions that we made: every call of them is known. */
#include "passes/passes.h"

typedef struct Calls {
  ARRAY(Node *) nodes;
} Calls;

typedef struct Collector {
  Context *context;
  Map calls; /* Function -> Calls */
} Collector;

static void collect(Graph *graph, void *data) {
  Collector *collector = data;
  FOR_EACH_NODE(node, graph) {
    if (!node->callee) continue;
    void **slot = map_slot_pointer(collector->context, &collector->calls, node->callee);
    if (!*slot) *slot = arena_new(&collector->context->arena, Calls);
    Calls *calls = *slot;
    array_push(collector->context, &calls->nodes, node);
  }
}

static bool is_output_used(const Calls *calls, size_t index) {
  for (size_t i = 0; i < calls->nodes.count; i++) {
    if (calls->nodes.items[i]->outputs[index]->uses) return true;
  }
  return false;
}

static bool drop_outputs(Graph *body, const Calls *calls) {
  bool changed = false;
  for (size_t i = body->outputs.count; i--;) {
    if (body->outputs.count == 1 || is_output_used(calls, i)) continue;
    drop_graph_output(body, i);
    for (size_t c = 0; c < calls->nodes.count; c++) drop_node_output(calls->nodes.items[c], i);
    changed = true;
  }
  return changed;
}

static bool drop_inputs(Graph *body, const Calls *calls) {
  bool changed = false;
  for (size_t i = body->inputs.count; i--;) {
    if (body->inputs.items[i]->uses) continue;
    drop_graph_input(body, i);
    for (size_t c = 0; c < calls->nodes.count; c++) drop_node_input(calls->nodes.items[c], i);
    changed = true;
  }
  return changed;
}

/* Callees stand before their callers, so a caller that goes takes its calls with it before they are looked at. */
bool drop_unused_arguments(Model *model) {
  bool changed = false;
  if (!model->provenance || !model->functions.count) return false;
  Collector collector = {.context = model->context};
  graph_each(model->graph, collect, &collector);
  size_t first = model->functions.count;
  for (size_t i = model->functions.count; i--;) {
    Function *function = model->functions.items[i];
    const Calls *calls = map_get_pointer(&collector.calls, function);
    if (!calls) {
      remove_all_nodes(function->body);
      changed = true;
      continue;
    }
    changed = drop_outputs(function->body, calls) || changed;
    changed = drop_inputs(function->body, calls) || changed;
    graph_each(function->body, collect, &collector);
    model->functions.items[--first] = function;
  }
  model->functions.items += first;
  model->functions.count -= first;
  model->functions.capacity -= first;
  return changed;
}
