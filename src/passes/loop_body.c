/* Bodies of loops. */
#include "passes/loop_body.h"

#include "base/bytes.h"
#include "onnx/graph/copy.h"
#include "passes/rewrite.h"

Graph *subgraph_of(const Node *node, const char *name) {
  const Attribute *attribute = node_attribute(node, name);
  return attribute && attribute->kind == ATTRIBUTE_GRAPH ? attribute->graph : NULL;
}

Value *behind_identities(Value *value) {
  while (value->producer && node_is(value->producer, OP_Identity)) value = node_input(value->producer, 0);
  return value;
}

bool loop_shape(const Node *node, LoopShape *shape) {
  if (!node_has(node, LOOPS)) return false;
  *shape = (LoopShape){.body = subgraph_of(node, "body")};
  if (!shape->body) return false;
  if (node_is(node, OP_Loop) && node->input_count >= 2) {
    *shape = (LoopShape){shape->body, 1, node->input_count - 2, 2, 2};
  } else if (node_is(node, OP_Scan)) {
    int64_t scanned = node_int_or(node, "num_scan_inputs", -1);
    if (scanned < 0 || (uint64_t)scanned > node->input_count) return false;
    shape->carried = node->input_count - (size_t)scanned;
  } else {
    return false;
  }
  return shape->body->outputs.count == shape->lead + node->output_count && shape->carried <= node->output_count &&
         shape->body->inputs.count >= shape->first_body_input + shape->carried;
}

/* What a Cast there and back hides: ONNX Runtime chooses between no uint64. */
static Value *behind_cast(Value *value, DType dtype) {
  Node *node = value->producer;
  if (!node || !node_is(node, OP_Cast) || value->type.dtype != DTYPE_INT64) return value;
  return dtype == DTYPE_UINT64 && node_input(node, 0)->type.dtype == dtype ? node_input(node, 0) : value;
}

NextStep loop_next(const LoopShape *shape, size_t carried) {
  NextStep step = {.x = shape->body->inputs.items[shape->first_body_input + carried]};
  step.made = behind_identities(shape->body->outputs.items[shape->lead + carried]->value);
  DType dtype = step.x->type.dtype;
  Node *node = step.made->producer;
  if (node && node_is(node, OP_Cast) && dtype == DTYPE_UINT64 && node_input(node, 0)->type.dtype == DTYPE_INT64)
    node = node_input(node, 0)->producer;
  if (!node || !node_is(node, OP_Where)) return step;
  Value *made = behind_cast(node_input(node, 1), dtype);
  if (behind_cast(node_input(node, 2), dtype) != step.x || !type_equal(made->type, step.x->type)) return step;
  step.made = made;
  step.held = node_input(node, 0);
  return step;
}

bool stands_in_loop(const Graph *graph) {
  while (graph->owner && !node_has(graph->owner, LOOPS)) graph = graph->owner->graph;
  return graph->owner != NULL;
}

bool loop_takes_all_steps(const Node *loop, const Graph *body) {
  const Value *begins = node_input(loop, 1), *go_on = behind_identities(body->outputs.items[0]->value);
  return (!begins || is_boolean(begins, true)) && (go_on == body->inputs.items[1] || is_boolean(go_on, true));
}

bool scan_runs_one_way(const Node *scan) {
  const Attribute *directions = node_attribute(scan, "scan_input_directions");
  if (node_attribute(scan, "scan_input_axes")) return false;
  if (!directions) return true;
  if (directions->kind != ATTRIBUTE_INTS) return false;
  for (size_t i = 1; i < directions->count; i++) {
    if (directions->integers[i] != directions->integers[0]) return false;
  }
  return (int64_t)directions->count == node_int_or(scan, "num_scan_inputs", -1);
}

bool scan_runs_backwards(const Node *scan) {
  const Attribute *directions = node_attribute(scan, "scan_input_directions");
  return directions && directions->count && directions->integers[0] != 0;
}

/* Adds an input at the end of the node's list. */
static void add_input(Node *node, Value *value) {
  Use *inputs = arena_new_array(&node->graph->model->context->arena, node->input_count + 1, Use);
  for (uint32_t i = 0; i < node->input_count; i++) {
    Value *old = node->inputs[i].value;
    inputs[i].node = node;
    use_set(&node->inputs[i], NULL);
    use_set(&inputs[i], old);
  }
  inputs[node->input_count].node = node;
  use_set(&inputs[node->input_count], value);
  node->inputs = inputs;
  node->input_count++;
}

Value *scan_add_input(Node *scan, Value *stacked, Type slice) {
  Context *context = scan->graph->model->context;
  Value *input = graph_input(subgraph_of(scan, "body"), slice, NULL);
  add_input(scan, stacked);
  node_set_int(scan, "num_scan_inputs", node_int_or(scan, "num_scan_inputs", 0) + 1);
  const Attribute *directions = node_attribute(scan, "scan_input_directions");
  if (!directions) return input;
  int64_t *longer = arena_new_array(&context->arena, directions->count + 1, int64_t);
  copy_bytes(longer, directions->integers, directions->count * sizeof *longer);
  longer[directions->count] = longer[0];
  node_set_ints(scan, "scan_input_directions", longer, directions->count + 1);
  return input;
}

void loop_add_carried(Node *loop, Value *start, Value *inside, Value *next) {
  add_input(loop, start);
  graph_output(inside->graph, next);
  node_output(loop, loop->output_count, inside->type);
}

void loop_drop_carried(Node *loop, const LoopShape *shape, size_t index) {
  drop_node_output(loop, index);
  drop_node_input(loop, shape->first_input + index);
  drop_graph_output(shape->body, shape->lead + index);
  drop_graph_input(shape->body, shape->first_body_input + index);
}

void scan_drop_carried(Node *scan, size_t index) {
  LoopShape shape = {.body = subgraph_of(scan, "body")};
  loop_drop_carried(scan, &shape, index);
}
