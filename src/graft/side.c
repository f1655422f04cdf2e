/* Flattening a model. Values carry their number in their scratch while their graph is walked. */
#include "graft/side.h"

#include <string.h>

#include "base/bytes.h"
#include "onnx/graph/same.h"

enum {
  MOST_CALLS_DEEP = 32,
  MOST_NODES = 1 << 26,
};

typedef struct Flattening {
  Side *side;
  Map own, others; /* functions by name and domain */
  size_t room;     /* nodes that bodies in place of calls may still take */
  int depth;
} Flattening;

static void flatten_graph(Flattening *flattening, const Graph *graph, SideBody *body);

/* ---- values ---- */

static Index index_of(Flattening *flattening, Value *value) {
  Side *side = flattening->side;
  if (!value->scratch) {
    SideValue made = {.value = value, .tensor = value->tensor, .is_constant = value->tensor != NULL};
    value->scratch = (void *)(uintptr_t)side->values.count;
    made.same = (Index)side->values.count;
    array_push(side->context, &side->values, made);
  }
  return (Index)(uintptr_t)value->scratch;
}

static void forget_graph(Graph *graph, void *data) {
  (void)data;
  for (size_t i = 0; i < graph->inputs.count; i++) graph->inputs.items[i]->scratch = NULL;
  for (size_t i = 0; i < graph->initializers.count; i++) graph->initializers.items[i]->scratch = NULL;
  for (size_t i = 0; i < graph->outputs.count; i++) graph->outputs.items[i]->value->scratch = NULL;
  FOR_EACH_NODE(node, graph) {
    for (uint32_t i = 0; i < node->input_count; i++) {
      if (node->inputs[i].value) node->inputs[i].value->scratch = NULL;
    }
    for (uint32_t i = 0; i < node->output_count; i++) {
      if (node->outputs[i]) node->outputs[i]->scratch = NULL;
    }
  }
}

/* ---- operators ---- */

static bool begins_with(const char *text, const char *start) { return strncmp(text, start, strlen(start)) == 0; }

/* FusedMatMul, QLinearMatMul and MatMulInteger are MatMuls. */
static Str family_of(Context *context, Str op) {
  static const char *const heads[] = {"Fused", "QLinear", "Dynamic"}, *const tails[] = {"Integer", "IntegerToFloat"};
  const char *start = op;
  size_t length = str_length(op);
  for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
    size_t head = strlen(heads[i]);
    if (!begins_with(start, heads[i]) || length <= head) continue;
    start += head;
    length -= head;
  }
  for (size_t i = 0; i < sizeof tails / sizeof *tails; i++) {
    size_t tail = strlen(tails[i]);
    if (length > tail && same_bytes(start + length - tail, tails[i], tail)) length -= tail;
  }
  return length == str_length(op) ? op : str_intern_sized(context, start, length);
}

bool is_carrier(const SideNode *node) {
  static const char *const names[] = {"Identity",         "Cast",         "CastLike",      "QuantizeLinear",
                                      "DequantizeLinear", "ReorderInput", "ReorderOutput", "DynamicQuantizeLinear",
                                      "MemcpyFromHost",   "MemcpyToHost"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    if (same_text(node->node->op_type, names[i])) return node->node->input_count > 0 && node->node->output_count > 0;
  }
  return false;
}

bool is_constant_node(const SideNode *node) {
  return node_is(node->node, OP_Constant) && !node->node->input_count && node->node->output_count == 1;
}

static uint64_t small_tensor_hash(const Tensor *tensor) {
  uint64_t hash = hash_mix((uint64_t)tensor->dtype, tensor->rank);
  for (uint32_t i = 0; i < tensor->rank; i++) hash = hash_mix(hash, (uint64_t)tensor->dims[i]);
  return tensor->data && tensor->size <= 1024 ? hash_mix(hash, hash_bytes(tensor->data, tensor->size)) : hash;
}

/* ---- functions ---- */

static Map functions_of(Context *context, const Model *model) {
  Map map = {0};
  for (size_t i = 0; i < model->functions.count; i++) {
    Function *function = model->functions.items[i];
    *map_slot(context, &map, (uint64_t)(uintptr_t)function->name, (uint64_t)(uintptr_t)function->domain) = function;
  }
  return map;
}

static Function *function_named(const Map *functions, Str name, Str domain) {
  return map_get(functions, (uint64_t)(uintptr_t)name, (uint64_t)(uintptr_t)domain);
}

static size_t node_count(const Graph *graph) {
  size_t count = graph->node_count;
  FOR_EACH_NODE(node, graph) {
    for (size_t i = 0; i < node->attributes.count; i++) {
      const Attribute *attribute = &node->attributes.items[i];
      if (attribute->kind == ATTRIBUTE_GRAPH) count += node_count(attribute->graph);
    }
  }
  return count;
}

/* The function whose body goes in place of the call, or NULL: the other model has it too, or there is no room. */
static Function *put_in_place(Flattening *flattening, const Node *node) {
  Function *function = function_named(&flattening->own, node->op_type, node->domain);
  if (!function || function_named(&flattening->others, node->op_type, node->domain)) return NULL;
  if (flattening->depth >= MOST_CALLS_DEEP) return NULL;
  size_t count = node_count(function->body);
  if (count > flattening->room) return NULL;
  flattening->room -= count;
  return function;
}

/* ---- nodes ---- */

static void add_bodies(Flattening *flattening, Index owner) {
  Side *side = flattening->side;
  const Node *node = side_node(side, owner)->node;
  for (size_t i = node->attributes.count; i--;) {
    const Attribute *attribute = &node->attributes.items[i];
    if (attribute->kind != ATTRIBUTE_GRAPH) continue;
    SideBody *body = arena_new(&side->context->arena, SideBody);
    body->name = attribute->name;
    body->next = side_node(side, owner)->bodies;
    side_node(side, owner)->bodies = body;
    flatten_graph(flattening, attribute->graph, body);
  }
}

static void add_call_body(Flattening *flattening, Index call, const Function *function) {
  Side *side = flattening->side;
  const Graph *graph = function->body;
  graph_each(function->body, forget_graph, NULL);
  const SideNode *caller = side_node(side, call);
  const Node *node = caller->node;
  const Index *inputs = caller->inputs, *outputs = caller->outputs;
  for (size_t i = 0; i < graph->inputs.count && i < node->input_count; i++) {
    if (inputs[i]) graph->inputs.items[i]->scratch = (void *)(uintptr_t)inputs[i];
  }
  /* What the body gives out is what the call does; an input that is given out stays itself. */
  for (size_t i = 0; i < graph->outputs.count && i < node->output_count; i++) {
    Value *value = graph->outputs.items[i]->value;
    if (outputs[i] && !value->scratch && value->producer) value->scratch = (void *)(uintptr_t)outputs[i];
  }
  flattening->depth++;
  SideBody ignored = {0};
  flatten_graph(flattening, graph, &ignored);
  flattening->depth--;
}

static void add_node(Flattening *flattening, Node *node) {
  Side *side = flattening->side;
  Arena *arena = &side->context->arena;
  if (side->nodes.count > MOST_NODES) fail(side->context, ERROR_FORMAT, "the model has too many nodes");
  Index index = (Index)side->nodes.count;
  SideNode made = {.node = node,
                   .family = family_of(side->context, node->op_type),
                   .attributes = attributes_hash(node, small_tensor_hash)};
  made.inputs = arena_new_array(arena, node->input_count, Index);
  made.outputs = arena_new_array(arena, node->output_count, Index);
  bool constant = true;
  for (uint32_t i = 0; i < node->input_count; i++) {
    if (!node->inputs[i].value) continue;
    made.inputs[i] = index_of(flattening, node->inputs[i].value);
    constant = constant && side_value(side, made.inputs[i])->is_constant;
  }
  for (uint32_t i = 0; i < node->output_count; i++) {
    if (node->outputs[i]) made.outputs[i] = index_of(flattening, node->outputs[i]);
  }
  const Function *function = put_in_place(flattening, node);
  made.in_place = function != NULL;
  array_push(side->context, &side->nodes, made);
  if (function) {
    add_call_body(flattening, index, function);
    return;
  }
  for (uint32_t i = 0; i < node->output_count; i++) {
    if (!made.outputs[i]) continue;
    SideValue *value = side_value(side, made.outputs[i]);
    value->producer = index;
    value->is_constant = constant && !op_has(node->op, RANDOM);
  }
  if (is_constant_node(&made)) {
    const Attribute *attribute = node_attribute(node, "value");
    bool tensor = attribute && attribute->kind == ATTRIBUTE_TENSOR;
    if (made.outputs[0]) side_value(side, made.outputs[0])->tensor = tensor ? attribute->tensor : NULL;
  }
  add_bodies(flattening, index);
}

static void flatten_graph(Flattening *flattening, const Graph *graph, SideBody *body) {
  Side *side = flattening->side;
  Arena *arena = &side->context->arena;
  body->graph = graph;
  body->input_count = (uint32_t)graph->inputs.count;
  body->inputs = arena_new_array(arena, graph->inputs.count, Index);
  for (size_t i = 0; i < graph->inputs.count; i++) body->inputs[i] = index_of(flattening, graph->inputs.items[i]);
  for (size_t i = 0; i < graph->initializers.count; i++) index_of(flattening, graph->initializers.items[i]);
  FOR_EACH_NODE(node, graph) add_node(flattening, node);
  body->output_count = (uint32_t)graph->outputs.count;
  body->outputs = arena_new_array(arena, graph->outputs.count, Index);
  for (size_t i = 0; i < graph->outputs.count; i++) {
    body->outputs[i] = index_of(flattening, graph->outputs.items[i]->value);
    side_value(side, body->outputs[i])->is_output = true;
  }
}

/* ---- names and uses ---- */

static void add_name(Context *context, Map *names, Str name, Index index) {
  if (!name || !*name) return;
  void **slot = map_slot_pointer(context, names, name);
  *slot = (void *)(uintptr_t)(*slot ? AMBIGUOUS : index);
}

static Index named(const Map *names, Str name) {
  uintptr_t found = (uintptr_t)map_get_pointer(names, name);
  return found == AMBIGUOUS ? NONE : (Index)found;
}

Index side_value_named(const Side *side, Str name) { return named(&side->value_names, name); }
Index side_node_named(const Side *side, Str name) { return named(&side->node_names, name); }

static void add_names(Side *side) {
  for (Index i = 1; i < side->values.count; i++) {
    add_name(side->context, &side->value_names, side_value(side, i)->value->name, i);
  }
  for (Index i = 1; i < side->nodes.count; i++) {
    if (!side_node(side, i)->in_place) add_name(side->context, &side->node_names, side_node(side, i)->node->name, i);
  }
}

static void add_uses(Side *side) {
  size_t total = 0;
  for (Index i = 1; i < side->nodes.count; i++) {
    const SideNode *node = side_node(side, i);
    for (uint32_t k = 0; !node->in_place && k < node->node->input_count; k++) {
      if (node->inputs[k]) side_value(side, node->inputs[k])->use_count++, total++;
    }
  }
  if (total >= UINT32_MAX) fail(side->context, ERROR_FORMAT, "the model has too many nodes");
  side->uses = arena_new_array(&side->context->arena, total, Index);
  Index at = 0;
  for (Index i = 1; i < side->values.count; i++) {
    SideValue *value = side_value(side, i);
    value->first_use = at;
    at += value->use_count;
    value->use_count = 0;
  }
  for (Index i = 1; i < side->nodes.count; i++) {
    const SideNode *node = side_node(side, i);
    for (uint32_t k = 0; !node->in_place && k < node->node->input_count; k++) {
      if (!node->inputs[k]) continue;
      SideValue *value = side_value(side, node->inputs[k]);
      side->uses[value->first_use + value->use_count++] = i;
    }
  }
}

Side *side_new(Model *model, const Model *other) {
  Context *context = model->context;
  Side *side = arena_new(&context->arena, Side);
  side->context = context;
  side->model = model;
  array_push(context, &side->nodes, (SideNode){0});
  array_push(context, &side->values, (SideValue){0});
  model_each_graph(model, forget_graph, NULL);
  size_t count = node_count(model->graph);
  Flattening flattening = {.side = side, .room = 8 * count + 100000};
  flattening.own = functions_of(context, model);
  flattening.others = functions_of(context, other);
  flatten_graph(&flattening, model->graph, &side->main);
  for (uint32_t i = 0; i < side->main.input_count; i++) side_value(side, side->main.inputs[i])->is_input = true;
  for (size_t i = 0; i < model->functions.count; i++) {
    const Function *function = model->functions.items[i];
    if (!function_named(&flattening.others, function->name, function->domain)) continue;
    SideBody *body = arena_new(&context->arena, SideBody);
    body->name = str_intern(context, arena_format(&context->arena, "%s:%s", function->domain, function->name));
    graph_each(function->body, forget_graph, NULL);
    flatten_graph(&flattening, function->body, body);
    array_push(context, &side->functions, body);
  }
  add_names(side);
  add_uses(side);
  side_read_constants(side);
  return side;
}
