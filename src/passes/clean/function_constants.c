/* Constants of functions. While passes run they are initializers of the body, as in the main graph; a function of the
 * standard has none, so in the end each becomes a node at the head of the body. */
#include "passes/passes.h"

/* A constant comes from where it was folded, or from where it is first used. */
static const Origin *origin_of(const Value *value, const Graph *body) {
  const Origin *origin = value->origin;
  for (const Use *use = value->uses; use && !value->origin; use = use->next) {
    if (use->node) origin = use->node->origin; /* the first use is the last of the list */
  }
  return origin ? origin : body->last->origin;
}

static void make_nodes(Model *model, Graph *body) {
  Node *before = body->first;
  for (size_t i = 0; i < body->initializers.count; i++) {
    Value *value = body->initializers.items[i];
    if (!value->uses) continue;
    const Origin *origin = origin_with_emitter(model->provenance, origin_of(value, body), PASS_EMITTER(model));
    Node *node = graph_node(body, origin, OP_Constant, NULL, 0, &value->type, 1, before);
    node_set_tensor(node, "value", value->tensor);
    value_replace(value, node->outputs[0]);
  }
  body->initializers.count = 0;
}

void functions_take_constants(Model *model) {
  for (size_t i = 0; i < model->functions.count; i++) make_nodes(model, model->functions.items[i]->body);
}
