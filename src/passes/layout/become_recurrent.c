/* Whether steps that are written out become a recurrent operator: it is tried.
 *
 * Passes take steps together and find the operator in what is left of them. Where they find none, the steps would have
 * to be written out again, of which each would then be said to come from the lines of all. So the steps are copied
 * first, with what their weights are made of, into a model of their own that has no origins, and the passes tell.
 */
#include "base/array.h"
#include "onnx/graph/copy.h"
#include "passes/layout/roll_steps.h"

enum { MOST_AROUND = 256 }; /* nodes that are copied along, which make what the steps read */

typedef struct Trial {
  Model *model;
  const Graph *graph; /* of the steps */
  Map chosen, copies;
  ARRAY(Node *) unread; /* chosen nodes whose inputs were not looked at yet */
  size_t around;
} Trial;

static void choose(Trial *trial, Node *node) {
  void **slot = map_slot_pointer(trial->model->context, &trial->chosen, node);
  if (*slot) return;
  *slot = node;
  array_push(trial->model->context, &trial->unread, node);
}

/* The trial's own value for one that is not made in it. */
static void stand_in(Trial *trial, const Value *value) {
  void **copy = map_slot_pointer(trial->model->context, &trial->copies, value);
  if (*copy) return;
  Graph *graph = trial->model->graph;
  *copy = value->tensor ? graph_initializer(graph, value->tensor) : graph_input(graph, value->type, NULL);
}

static bool can_come_along(const Trial *trial, const Node *node) {
  return node && node->graph == trial->graph && node->op && !node_has_subgraph(node);
}

static void choose_value(Trial *trial, const Value *value) {
  if (!value || (value->producer && map_get_pointer(&trial->chosen, value->producer))) return;
  if (can_come_along(trial, value->producer) && trial->around++ < MOST_AROUND) choose(trial, value->producer);
  else stand_in(trial, value);
}

/* What a body reads of the graph that the steps are in. */
static void choose_captured(Trial *trial, const Graph *body) {
  FOR_EACH_NODE(node, body) {
    for (uint32_t i = 0; i < node->input_count; i++) {
      const Value *value = node_input(node, i);
      if (value && value->graph == trial->graph) choose_value(trial, value);
    }
    for (size_t i = 0; i < node->attributes.count; i++) {
      if (node->attributes.items[i].kind == ATTRIBUTE_GRAPH) choose_captured(trial, node->attributes.items[i].graph);
    }
  }
  for (size_t i = 0; i < body->outputs.count; i++) {
    const Value *value = body->outputs.items[i]->value;
    if (value && value->graph == trial->graph) choose_value(trial, value);
  }
}

static void choose_inputs(Trial *trial, const Node *node) {
  for (uint32_t i = 0; i < node->input_count; i++) choose_value(trial, node_input(node, i));
  for (size_t i = 0; i < node->attributes.count; i++) {
    if (node->attributes.items[i].kind == ATTRIBUTE_GRAPH) choose_captured(trial, node->attributes.items[i].graph);
  }
}

static void forget_origins(Graph *graph) {
  FOR_EACH_NODE(node, graph) {
    node->origin = NULL;
    for (size_t i = 0; i < node->attributes.count; i++) {
      if (node->attributes.items[i].kind == ATTRIBUTE_GRAPH) forget_origins(node->attributes.items[i].graph);
    }
  }
}

static bool is_read_elsewhere(const Trial *trial, const Value *value) {
  for (const Use *use = value->uses; use; use = use->next) {
    if (!use->node || !map_get_pointer(&trial->chosen, use->node)) return true;
  }
  return false;
}

static void add_outputs(Trial *trial, const Node *node) {
  for (uint32_t i = 0; i < node->output_count; i++) {
    Value *value = node->outputs[i];
    if (value && is_read_elsewhere(trial, value)) graph_output(trial->model->graph, copy_of(&trial->copies, value));
  }
}

static bool has_recurrent(const Graph *graph) {
  FOR_EACH_NODE(node, graph) {
    if (node_is(node, OP_LSTM) || node_is(node, OP_GRU) || node_is(node, OP_RNN)) return true;
  }
  return false;
}

bool become_recurrent(Node *const *nodes, size_t count) {
  const Model *model = nodes[0]->graph->model;
  Trial trial = {.model = model_new(model->context, NULL, model->opset), .graph = nodes[0]->graph};
  trial.model->target = model->target;
  trial.model->is_trial = true;
  trial.model->graph = graph_new(trial.model, str_intern(model->context, "trial"));
  for (size_t i = 0; i < count; i++) choose(&trial, nodes[i]);
  for (size_t i = 0; i < trial.unread.count; i++) choose_inputs(&trial, trial.unread.items[i]);
  copy_nodes_of(trial.graph, trial.model->graph, NULL, &trial.copies, &trial.chosen);
  forget_origins(trial.model->graph);
  for (size_t i = 0; i < count; i++) add_outputs(&trial, nodes[i]);
  run_passes(trial.model, &(PassOptions){0});
  return has_recurrent(trial.model->graph);
}

bool is_worth_a_trial(Node *loop) {
  Model *model = loop->graph->model;
  if (model->is_trial) return true;
  while (loop->graph->owner) loop = loop->graph->owner;
  if (loop->graph != model->graph || map_get_pointer(&model->failed_trials, loop)) return false;
  if (become_recurrent(&loop, 1)) return true;
  *map_slot_pointer(model->context, &model->failed_trials, loop) = loop;
  return false;
}
