/* Results that nobody uses: stacked outputs of Scan and Loop, outputs of If, carried values that only feed themselves
 * (the counter of a loop whose body does not look at it, what branches only set anew), and slices that no step looks
 * at. What computed them in the bodies is then dead. */
#include "passes/loop_body.h"
#include "passes/passes.h"

static bool is_unused(const Node *node, size_t output) {
  return !node->outputs[output] || !node->outputs[output]->uses;
}

void drop_graph_output(Graph *graph, size_t index) {
  use_set(graph->outputs.items[index], NULL);
  graph->outputs.count--;
  for (size_t i = index; i < graph->outputs.count; i++) graph->outputs.items[i] = graph->outputs.items[i + 1];
}

void drop_node_output(Node *node, size_t index) {
  node->output_count--;
  for (size_t i = index; i < node->output_count; i++) {
    node->outputs[i] = node->outputs[i + 1];
    if (node->outputs[i]) node->outputs[i]->output_index = (uint32_t)i;
  }
}

void drop_node_input(Node *node, size_t index) {
  Value *dropped = node->inputs[index].value;
  for (size_t i = index; i + 1 < node->input_count; i++) use_set(&node->inputs[i], node->inputs[i + 1].value);
  use_set(&node->inputs[--node->input_count], NULL);
  if (dropped && dropped->tensor && !dropped->uses) value_forget(dropped);
}

/* Attributes of Scan with one entry per stacked output. */
static void drop_entry(Node *node, const char *name, size_t index) {
  const Attribute *list = node_attribute(node, name);
  if (!list || list->kind != ATTRIBUTE_INTS || index >= list->count) return;
  int64_t *kept = arena_new_array(&node->graph->model->context->arena, list->count, int64_t);
  size_t count = 0;
  for (size_t i = 0; i < list->count; i++) {
    if (i != index) kept[count++] = list->integers[i];
  }
  node_set_ints(node, name, kept, count);
}

static bool drop_unused_stacked(Node *node) {
  LoopShape shape;
  bool changed = false;
  if (!loop_shape(node, &shape)) return false;
  for (size_t i = node->output_count; i-- > shape.carried;) {
    if (!is_unused(node, i)) continue;
    drop_node_output(node, i);
    drop_graph_output(shape.body, shape.lead + i);
    drop_entry(node, "scan_output_directions", i - shape.carried);
    drop_entry(node, "scan_output_axes", i - shape.carried);
    changed = true;
  }
  return changed;
}

static bool drop_unused_branches(Node *node) {
  Graph *then_branch = subgraph_of(node, "then_branch"), *else_branch = subgraph_of(node, "else_branch");
  size_t count = node->output_count;
  bool changed = false;
  if (!node_is(node, OP_If) || !then_branch || !else_branch) return false;
  if (then_branch->outputs.count != count || else_branch->outputs.count != count) return false;
  for (size_t i = count; i--;) {
    if (!is_unused(node, i)) continue;
    drop_node_output(node, i);
    drop_graph_output(then_branch, i);
    drop_graph_output(else_branch, i);
    changed = true;
  }
  return changed;
}

bool drop_unused_results(Node *node) { return drop_unused_stacked(node) || drop_unused_branches(node); }

/* Is the graph the body, or a branch in it? */
static bool is_within(const Graph *graph, const Graph *body) {
  while (graph != body && graph->owner && node_is(graph->owner, OP_If)) graph = graph->owner->graph;
  return graph == body;
}

/* What an output of a branch is outside of it; NULL for outputs of other graphs. */
static const Value *result_of_branch(const Graph *branch, const Use *output) {
  const Node *choice = branch->owner;
  if (!choice || !node_is(choice, OP_If)) return NULL;
  for (size_t i = 0; i < branch->outputs.count && i < choice->output_count; i++) {
    if (branch->outputs.items[i] == output) return choice->outputs[i];
  }
  return NULL;
}

/* Does everything that is computed from value end in that one output? Looks at no more than *budget nodes. */
static bool feeds_only(const Value *value, const Graph *body, const Use *output, int *budget) {
  for (const Use *use = value->uses; use; use = use->next) {
    if (use == output) continue;
    if (--*budget < 0) return false;
    if (!use->node) {
      const Value *next = value->graph == body ? NULL : result_of_branch(value->graph, use);
      if (!next || !feeds_only(next, body, output, budget)) return false;
      continue;
    }
    if (!is_within(use->node->graph, body)) return false;
    for (uint32_t i = 0; i < use->node->output_count; i++) {
      const Value *next = use->node->outputs[i];
      if (next && !feeds_only(next, body, output, budget)) return false;
    }
  }
  return true;
}

void drop_graph_input(Graph *graph, size_t index) {
  graph->inputs.count--;
  for (size_t i = index; i < graph->inputs.count; i++) graph->inputs.items[i] = graph->inputs.items[i + 1];
}

/* Scan inputs whose slices no step looks at. One must stay: it gives the number of steps. */
static bool drop_unused_slices(Node *node) {
  LoopShape shape;
  bool changed = false;
  if (!node_is(node, OP_Scan) || !loop_shape(node, &shape)) return false;
  if (shape.body->inputs.count != node->input_count) return false;
  for (size_t i = node->input_count; i-- > shape.carried;) {
    if (shape.body->inputs.items[i]->uses || node->input_count - shape.carried == 1) continue;
    drop_node_input(node, i);
    drop_graph_input(shape.body, i);
    drop_entry(node, "scan_input_directions", i - shape.carried);
    drop_entry(node, "scan_input_axes", i - shape.carried);
    node_set_int(node, "num_scan_inputs", (int64_t)(node->input_count - shape.carried));
    changed = true;
  }
  return changed;
}

static bool drop_unused_carried(Node *node) {
  enum { LOOKED_AT = 8 };
  LoopShape shape;
  bool changed = false;
  if (!loop_shape(node, &shape)) return false;
  for (size_t i = shape.carried; i--;) {
    int budget = LOOKED_AT;
    Graph *body = shape.body;
    const Value *inside = body->inputs.items[shape.first_body_input + i];
    if (node->output_count == 1 || !is_unused(node, i)) continue;
    if (!feeds_only(inside, body, body->outputs.items[shape.lead + i], &budget)) continue;
    loop_drop_carried(node, &shape, i);
    changed = true;
  }
  return changed;
}

bool drop_unused_inputs(Node *node) {
  bool carried = drop_unused_carried(node);
  return drop_unused_slices(node) || carried;
}
