/* Functions of a model. */
#include "onnx/graph/definitions.h"

#include "onnx/graph/same.h"

/* ---- equality ---- */

typedef struct Comparison {
  Map pairs; /* Value of a -> the Value of b in its place */
  Context *context;
} Comparison;

static void pair(Comparison *comparison, const Value *a, const Value *b) {
  *map_slot_pointer(comparison->context, &comparison->pairs, a) = (void *)(uintptr_t)b;
}

static bool same_value(const Comparison *comparison, const Value *a, const Value *b) {
  if (!a || !b) return a == b;
  return map_get_pointer(&comparison->pairs, a) == b;
}

static bool pair_typed(Comparison *comparison, const Value *a, const Value *b) {
  if (!a || !b) return a == b;
  pair(comparison, a, b);
  return type_equal(a->type, b->type);
}

static bool same_graph(Comparison *comparison, const Graph *a, const Graph *b);

static bool same_attributes_and_bodies(Comparison *comparison, const Node *a, const Node *b) {
  if (a->attributes.count != b->attributes.count) return false;
  for (size_t i = 0; i < a->attributes.count; i++) {
    const Attribute *left = &a->attributes.items[i], *right = &b->attributes.items[i];
    if (left->name != right->name || left->kind != right->kind) return false;
    bool same =
        left->kind == ATTRIBUTE_GRAPH ? same_graph(comparison, left->graph, right->graph) : same_attribute(left, right);
    if (!same) return false;
  }
  return true;
}

/* Calls are the same when what they call is: each body may have come with a definition of its own. */
static bool same_operator(const Node *a, const Node *b) {
  if (a->domain != b->domain) return false;
  if (!a->callee || !b->callee || a->callee == b->callee) return a->op_type == b->op_type;
  return a->callee->body->name == b->callee->body->name && graph_same(a->callee->body, b->callee->body);
}

static bool same_nodes(Comparison *comparison, const Node *a, const Node *b) {
  if (!same_operator(a, b)) return false;
  if (a->input_count != b->input_count || a->output_count != b->output_count) return false;
  for (uint32_t i = 0; i < a->input_count; i++) {
    if (!same_value(comparison, a->inputs[i].value, b->inputs[i].value)) return false;
  }
  if (!same_attributes_and_bodies(comparison, a, b)) return false;
  for (uint32_t i = 0; i < a->output_count; i++) {
    if (!pair_typed(comparison, a->outputs[i], b->outputs[i])) return false;
  }
  return true;
}

static bool same_graph(Comparison *comparison, const Graph *a, const Graph *b) {
  if (a->inputs.count != b->inputs.count || a->outputs.count != b->outputs.count) return false;
  if (a->initializers.count != b->initializers.count || a->node_count != b->node_count) return false;
  for (size_t i = 0; i < a->inputs.count; i++) {
    if (!pair_typed(comparison, a->inputs.items[i], b->inputs.items[i])) return false;
  }
  for (size_t i = 0; i < a->initializers.count; i++) {
    const Value *left = a->initializers.items[i], *right = b->initializers.items[i];
    if (!same_tensor(left->tensor, right->tensor)) return false;
    pair(comparison, left, right);
  }
  const Node *other = b->first;
  FOR_EACH_NODE(node, a) {
    if (!same_nodes(comparison, node, other)) return false;
    other = other->next;
  }
  for (size_t i = 0; i < a->outputs.count; i++) {
    if (!same_value(comparison, a->outputs.items[i]->value, b->outputs.items[i]->value)) return false;
  }
  return true;
}

bool graph_same(const Graph *a, const Graph *b) {
  Comparison comparison = {.context = a->model->context};
  return same_graph(&comparison, a, b);
}

uint64_t graph_hash(const Graph *graph) {
  uint64_t hash = hash_mix(graph->inputs.count, graph->outputs.count);
  for (size_t i = 0; i < graph->initializers.count; i++) {
    hash = hash_mix(hash, tensor_hash(graph->initializers.items[i]->tensor));
  }
  FOR_EACH_NODE(node, graph) {
    Str op = node->callee ? node->callee->body->name : node->op_type;
    hash = hash_mix(hash, (uint64_t)(uintptr_t)op);
    for (size_t i = 0; i < node->attributes.count; i++) {
      const Attribute *attribute = &node->attributes.items[i];
      bool is_graph = attribute->kind == ATTRIBUTE_GRAPH;
      hash = hash_mix(hash, is_graph ? graph_hash(attribute->graph) : attribute_hash(attribute, tensor_hash));
    }
  }
  return hash;
}

/* ---- the sites of shared definitions ---- */

static void unite_callees(Model *model, Node *node, const Node *const *twins, size_t count);

/* Walks the same graphs side by side. */
static void unite_graphs(Model *model, Graph *graph, Graph *const *twins, size_t count) {
  Arena *arena = &model->context->arena;
  const Node **nodes = arena_new_array(arena, count, const Node *);
  const Origin **origins = arena_new_array(arena, count, const Origin *);
  Graph **bodies = arena_new_array(arena, count, Graph *);
  for (size_t t = 0; t < count; t++) nodes[t] = twins[t]->first;
  FOR_EACH_NODE(node, graph) {
    for (size_t t = 0; t < count; t++) origins[t] = nodes[t]->origin;
    node->origin = origin_unite(model->provenance, node->origin, origins, count);
    for (size_t i = 0; i < node->attributes.count; i++) {
      if (node->attributes.items[i].kind != ATTRIBUTE_GRAPH) continue;
      for (size_t t = 0; t < count; t++) bodies[t] = nodes[t]->attributes.items[i].graph;
      unite_graphs(model, node->attributes.items[i].graph, bodies, count);
    }
    if (node->callee) unite_callees(model, node, nodes, count);
    for (size_t t = 0; t < count; t++) nodes[t] = nodes[t]->next;
  }
}

static void unite_callees(Model *model, Node *node, const Node *const *twins, size_t count) {
  Graph **bodies = arena_new_array(&model->context->arena, count, Graph *);
  size_t others = 0;
  for (size_t t = 0; t < count; t++) {
    if (twins[t]->callee != node->callee) bodies[others++] = twins[t]->callee->body;
  }
  if (others) unite_graphs(model, node->callee->body, bodies, others);
}

void unite_shared_functions(Model *model) {
  for (size_t i = 0; i < model->functions.count; i++) {
    Function *function = model->functions.items[i];
    if (function->twins.count) unite_graphs(model, function->body, function->twins.items, function->twins.count);
    function->twins.count = 0;
  }
}

/* ---- calls ---- */

static void link_calls(Graph *graph, void *data) {
  const Map *functions = data;
  FOR_EACH_NODE(node, graph) {
    node->callee = map_get(functions, (uint64_t)(uintptr_t)node->op_type, (uint64_t)(uintptr_t)node->domain);
  }
}

void model_link_calls(Model *model) {
  Map functions = {0};
  for (size_t i = 0; i < model->functions.count; i++) {
    Function *function = model->functions.items[i];
    void **slot = map_slot(model->context, &functions, (uint64_t)(uintptr_t)function->name,
                           (uint64_t)(uintptr_t)function->domain);
    if (!*slot) *slot = function;
  }
  if (functions.count) model_each_graph(model, link_calls, &functions);
}
