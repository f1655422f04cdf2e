/* Copies of a body's nodes. */
#include "onnx/graph/copy.h"

Value *copy_of(const Map *copies, Value *value) {
  Value *copy = value ? map_get_pointer(copies, value) : NULL;
  return copy ? copy : value;
}

static void pair(Context *context, Map *copies, const Value *value, Value *copy) {
  *map_slot_pointer(context, copies, value) = copy;
}

static Graph *copy_subgraph(const Graph *graph, Model *model, Map *copies) {
  Context *context = model->context;
  Graph *copy = graph_new(model, graph->name);
  for (size_t i = 0; i < graph->inputs.count; i++) {
    pair(context, copies, graph->inputs.items[i], graph_input(copy, graph->inputs.items[i]->type, NULL));
  }
  for (size_t i = 0; i < graph->initializers.count; i++) {
    pair(context, copies, graph->initializers.items[i], graph_initializer(copy, graph->initializers.items[i]->tensor));
  }
  copy_nodes(graph, copy, NULL, copies);
  for (size_t i = 0; i < graph->outputs.count; i++) {
    graph_output(copy, copy_of(copies, graph->outputs.items[i]->value));
  }
  return copy;
}

static void copy_attributes(const Node *node, Node *copy, Map *copies) {
  for (size_t i = 0; i < node->attributes.count; i++) {
    const Attribute *attribute = &node->attributes.items[i];
    if (attribute->kind == ATTRIBUTE_GRAPH) {
      node_set_graph(copy, attribute->name, copy_subgraph(attribute->graph, copy->graph->model, copies));
    } else {
      array_push(node->graph->model->context, &copy->attributes, *attribute);
    }
  }
}

static void copy_node(const Node *node, Graph *into, Node *before, Map *copies) {
  Context *context = into->model->context;
  Value **inputs = arena_new_array(&context->arena, node->input_count, Value *);
  Type *types = arena_new_array(&context->arena, node->output_count, Type);
  for (uint32_t i = 0; i < node->input_count; i++) inputs[i] = copy_of(copies, node->inputs[i].value);
  for (uint32_t i = 0; i < node->output_count; i++) {
    if (node->outputs[i]) types[i] = node->outputs[i]->type;
  }
  Node *copy = graph_named_node(into, node->origin, node->op_type, node->domain, inputs, node->input_count, types,
                                node->output_count, before);
  copy->callee = node->callee;
  for (uint32_t i = 0; i < node->output_count; i++) {
    if (node->outputs[i]) pair(context, copies, node->outputs[i], copy->outputs[i]);
    else copy->outputs[i] = NULL;
  }
  copy_attributes(node, copy, copies);
}

void release_nodes(Graph *graph) {
  for (size_t i = 0; i < graph->outputs.count; i++) use_set(graph->outputs.items[i], NULL);
  FOR_EACH_NODE(node, graph) {
    for (uint32_t i = 0; i < node->input_count; i++) use_set(&node->inputs[i], NULL);
    for (size_t i = 0; i < node->attributes.count; i++) {
      const Attribute *attribute = &node->attributes.items[i];
      if (attribute->kind == ATTRIBUTE_GRAPH) release_nodes(attribute->graph);
    }
  }
}

void copy_nodes_of(const Graph *from, Graph *into, Node *before, Map *copies, const Map *chosen) {
  FOR_EACH_NODE(node, from) {
    if (map_get_pointer(chosen, node)) copy_node(node, into, before, copies);
  }
}

void copy_nodes(const Graph *from, Graph *into, Node *before, Map *copies) {
  FOR_EACH_NODE(node, from) copy_node(node, into, before, copies);
}
