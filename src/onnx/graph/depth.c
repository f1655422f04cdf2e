/* How deeply bodies are nested. */
#include "onnx/graph/graph.h"

static const Node *deepest_in(const Graph *graph, int depth, int *deepest) {
  const Node *found = NULL;
  FOR_EACH_NODE(node, graph) {
    for (size_t i = 0; i < node->attributes.count; i++) {
      const Attribute *attribute = &node->attributes.items[i];
      if (attribute->kind != ATTRIBUTE_GRAPH || attribute->reference) continue;
      if (depth + 1 > *deepest) {
        *deepest = depth + 1;
        found = node;
      }
      const Node *inner = deepest_in(attribute->graph, depth + 1, deepest);
      if (inner) found = inner;
    }
  }
  return found;
}

const Node *model_deepest_node(const Model *model, int *depth) {
  *depth = 0;
  const Node *found = deepest_in(model->graph, 0, depth);
  for (size_t i = 0; i < model->functions.count; i++) {
    const Node *inner = deepest_in(model->functions.items[i]->body, 0, depth);
    if (inner) found = inner;
  }
  return found;
}
