/* Dead code: nodes and initializers that no output needs. One walk backwards per graph, inner graphs with their node.
 */
#include "passes/passes.h"

static bool sweep_nodes(Graph *graph);

void remove_all_nodes(Graph *graph) {
  for (size_t i = 0; i < graph->outputs.count; i++) use_set(graph->outputs.items[i], NULL);
  graph->outputs.count = 0;
  sweep_nodes(graph);
}

static bool sweep_subgraphs(Node *node, bool used) {
  bool changed = false;
  for (size_t i = 0; i < node->attributes.count; i++) {
    const Attribute *attribute = &node->attributes.items[i];
    if (attribute->kind != ATTRIBUTE_GRAPH) continue;
    if (used) changed = sweep_nodes(attribute->graph) || changed;
    else remove_all_nodes(attribute->graph);
  }
  return changed;
}

static bool sweep_nodes(Graph *graph) {
  bool changed = false;
  for (Node *node = graph->last; node;) {
    Node *previous = node->previous;
    bool used = node_is_used(node);
    if (used) changed = drop_unused_results(node) || changed;
    changed = sweep_subgraphs(node, used) || changed;
    if (used && drop_unused_inputs(node)) {
      sweep_subgraphs(node, used);
      changed = true;
    }
    if (!used) {
      node_remove(node);
      changed = true;
    }
    node = previous;
  }
  return changed;
}

static void sweep_initializers(Graph *graph, void *data) {
  bool *changed = data;
  size_t kept = 0;
  for (size_t i = 0; i < graph->initializers.count; i++) {
    Value *value = graph->initializers.items[i];
    if (value->uses) graph->initializers.items[kept++] = value;
    else value_forget(value);
  }
  *changed = *changed || kept != graph->initializers.count;
  graph->initializers.count = kept;
}

bool remove_dead_code(Model *model) {
  bool changed = drop_unused_arguments(model);
  for (size_t i = 0; i < model->functions.count; i++) changed = sweep_nodes(model->functions.items[i]->body) || changed;
  changed = sweep_nodes(model->graph) || changed;
  model_each_graph(model, sweep_initializers, &changed);
  return changed;
}
