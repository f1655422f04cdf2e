/* Graph: making, linking and removing nodes. */
#include "onnx/graph/graph.h"

Model *model_new(Context *context, Provenance *provenance, int64_t opset) {
  Model *model = arena_new(&context->arena, Model);
  model->context = context;
  model->provenance = provenance;
  model->opset = opset;
  model->no_domain = str_intern(context, "");
  return model;
}

Graph *graph_new(Model *model, Str name) {
  Graph *graph = arena_new(&model->context->arena, Graph);
  graph->model = model;
  model->graph_count++;
  graph->name = name;
  return graph;
}

void value_forget(Value *constant) {
  Model *model = constant->graph->model;
  if (!constant->origin || !model->provenance) return;
  array_push(model->context, &model->removals, ((Removal){.value = constant, .pass = model->pass}));
}

static Context *context_of(const Graph *graph) { return graph->model->context; }

static void use_link(Use *use, Value *value) {
  use->value = value;
  if (!value) return;
  use->next = value->uses;
  use->link = &value->uses;
  if (use->next) use->next->link = &use->next;
  value->uses = use;
}

static void use_unlink(Use *use) {
  if (!use->value) return;
  *use->link = use->next;
  if (use->next) use->next->link = use->link;
  use->value = NULL;
  use->next = NULL;
  use->link = NULL;
}

/* A constant whose last use moves to another value leaves its sites to that. */
static void leave_to(Value *constant, Value *value) {
  Model *model = constant->graph->model;
  if (constant->uses || !constant->tensor || !constant->origin || !value || !model->provenance) return;
  constant->heir = value->producer ? (Heir){.node = value->producer} : (Heir){.value = value};
  value_forget(constant);
}

void use_set(Use *use, Value *value) {
  Value *old = use->value;
  use_unlink(use);
  use_link(use, value);
  if (old && old != value) leave_to(old, value);
}

void value_replace(Value *old, Value *replacement) {
  if (old == replacement) return;
  while (old->uses) use_set(old->uses, replacement);
}

bool value_is_output(const Value *value) {
  for (const Use *use = value->uses; use; use = use->next) {
    if (!use->node) return true;
  }
  return false;
}

size_t value_use_count(const Value *value) {
  size_t count = 0;
  for (const Use *use = value->uses; use; use = use->next) count++;
  return count;
}

static void insert(Node *node, Node *before) {
  Graph *graph = node->graph;
  node->next = before;
  node->previous = before ? before->previous : graph->last;
  *(node->previous ? &node->previous->next : &graph->first) = node;
  *(before ? &before->previous : &graph->last) = node;
  graph->node_count++;
}

static void take_out(Node *node) {
  Graph *graph = node->graph;
  *(node->previous ? &node->previous->next : &graph->first) = node->next;
  *(node->next ? &node->next->previous : &graph->last) = node->previous;
  graph->node_count--;
}

static Node *make_node(Graph *graph, const Origin *origin, Value *const *inputs, size_t input_count,
                       const Type *outputs, size_t output_count, Node *before) {
  Context *context = context_of(graph);
  require(context, origin || !graph->model->provenance);
  Model *model = graph->model;
  Node *node = pool_alloc(&context->arena, &model->nodes, sizeof(Node));
  node->origin = origin;
  node->graph = graph;
  node->input_count = (uint32_t)input_count;
  node->output_count = (uint32_t)output_count;
  if (input_count) node->inputs = pool_alloc_array(&context->arena, &model->uses, input_count, sizeof(Use));
  for (size_t i = 0; i < input_count; i++) {
    node->inputs[i].node = node;
    if (inputs) use_link(&node->inputs[i], inputs[i]);
  }
  /* The pointers to its values stand before them. */
  enum { EACH = sizeof(Value *) + sizeof(Value) };
  if (output_count) node->outputs = pool_alloc_array(&context->arena, &model->values, output_count, EACH);
  Value *values = output_count ? (Value *)(void *)(node->outputs + output_count) : NULL;
  for (size_t i = 0; i < output_count; i++) {
    if (outputs) values[i].type = outputs[i];
    values[i].producer = node;
    values[i].graph = graph;
    values[i].output_index = (uint32_t)i;
    node->outputs[i] = &values[i];
  }
  insert(node, before);
  return node;
}

Value *node_output(Node *node, uint32_t index, Type type) {
  Arena *arena = &context_of(node->graph)->arena;
  if (index >= node->output_count) {
    Value **outputs = arena_new_array(arena, index + 1, Value *);
    for (uint32_t i = 0; i < node->output_count; i++) outputs[i] = node->outputs[i];
    node->outputs = outputs;
    node->output_count = index + 1;
  }
  if (!node->outputs[index]) {
    Value *value = node->outputs[index] = arena_new(arena, Value);
    *value = (Value){.type = type, .producer = node, .graph = node->graph, .output_index = index};
  }
  return node->outputs[index];
}

void node_leave_out_unused(Node *node) {
  for (uint32_t i = 0; i < node->output_count; i++) {
    if (node->outputs[i] && !node->outputs[i]->uses) node->outputs[i] = NULL;
  }
  while (node->output_count && !node->outputs[node->output_count - 1]) node->output_count--;
}

Node *graph_node(Graph *graph, const Origin *origin, Op op, Value *const *inputs, size_t input_count,
                 const Type *outputs, size_t output_count, Node *before) {
  Node *node = make_node(graph, origin, inputs, input_count, outputs, output_count, before);
  Str *op_type = &graph->model->op_types[op];
  require(context_of(graph), op != OP_NONE);
  if (!*op_type) *op_type = str_intern(context_of(graph), op_name(op));
  node->op = op;
  graph->model->made[op] = true;
  node->op_type = *op_type;
  node->domain = op_has(op, COMPOSITE) ? str_intern(context_of(graph), COMPOSITE_DOMAIN) : graph->model->no_domain;
  return node;
}

Node *graph_named_node(Graph *graph, const Origin *origin, const char *op_type, const char *domain,
                       Value *const *inputs, size_t input_count, const Type *outputs, size_t output_count,
                       Node *before) {
  Node *node = make_node(graph, origin, inputs, input_count, outputs, output_count, before);
  node->op = op_from_name(op_type, domain);
  graph->model->made[node->op] = true;
  node->op_type = str_intern(context_of(graph), op_type);
  node->domain = str_intern(context_of(graph), domain);
  return node;
}

Value *graph_input(Graph *graph, Type type, Str name) {
  Context *context = context_of(graph);
  Value *value = arena_new(&context->arena, Value);
  value->type = type;
  value->graph = graph;
  value->name = name;
  value->name_fixed = name != NULL;
  array_push(context, &graph->inputs, value);
  return value;
}

Value *graph_initializer(Graph *graph, const Tensor *tensor) {
  Context *context = context_of(graph);
  Value *value = arena_new(&context->arena, Value);
  value->type = tensor_type(context, tensor);
  value->graph = graph;
  value->tensor = tensor;
  array_push(context, &graph->initializers, value);
  return value;
}

void graph_output(Graph *graph, Value *value) {
  Context *context = context_of(graph);
  Use *use = arena_new(&context->arena, Use);
  use_link(use, value);
  array_push(context, &graph->outputs, use);
}

bool node_swaps_last_axes(const Node *transpose) {
  const Attribute *order = node_attribute(transpose, "perm");
  uint32_t rank = transpose->outputs[0]->type.rank;
  if (rank < 2 || (order ? order->count != rank : rank != 2)) return false;
  for (uint32_t i = 0; order && i < rank; i++) {
    int64_t swapped = i + 2 < rank ? i : i + 2 == rank ? i + 1 : i - 1;
    if (order->integers[i] != swapped) return false;
  }
  return true;
}

bool node_moves_first_axis(const Node *transpose) {
  const Attribute *order = node_attribute(transpose, "perm");
  uint32_t rank = transpose->outputs[0]->type.rank, to = 0;
  if (!order || order->count != rank || rank < 3 || rank > MAX_RANK) return false;
  while (to < rank && order->integers[to] != 0) to++;
  for (uint32_t i = 0; i < rank; i++) {
    if (i != to && order->integers[i] != (i < to ? (int64_t)i + 1 : (int64_t)i)) return false;
  }
  return to + 2 >= rank && to < rank;
}

bool node_is_used(const Node *node) {
  for (uint32_t i = 0; i < node->output_count; i++) {
    if (node->outputs[i] && node->outputs[i]->uses) return true;
  }
  return false;
}

static bool is_nobody(Heir heir) { return !heir.node && !heir.value; }

static void add_heir(Context *context, Heirs *heirs, Heir heir) {
  enum { MOST_HEIRS = 256 }; /* so that a value of many uses costs no more than their number */
  if (is_nobody(heir) || heirs->count == MOST_HEIRS) return;
  for (size_t i = heirs->count; i--;) {
    if (heirs->items[i].node == heir.node && heirs->items[i].value == heir.value) return;
  }
  array_push(context, heirs, heir);
}

/* A constant of some elements: a single number is the same in many places, and says nothing about most of them. */
static bool is_array(const Value *value) {
  enum { LONGEST_NUMBER = 16 };
  return value->tensor && value->origin && !value->is_merged && value->tensor->size > LONGEST_NUMBER;
}

/* Where a user of the value went, which may be in several places. */
static void note_user(Value *value, const Node *user) {
  Model *model = user->graph->model;
  if (!(value->producer || is_array(value)) || !model->provenance->ledger || (is_nobody(user->heir) && !user->others))
    return;
  if (!value->users) value->users = arena_new(&model->context->arena, Heirs);
  add_heir(model->context, value->users, user->heir);
  for (size_t i = 0; user->others && i < user->others->count; i++) {
    add_heir(model->context, value->users, user->others->items[i]);
  }
}

void value_keep_users(Value *constant) {
  Model *model = constant->graph->model;
  if (constant->is_merged || !constant->origin || !model->provenance || !model->provenance->ledger) return;
  constant->is_merged = true;
  constant->users = arena_new(&model->context->arena, Heirs);
  for (const Use *use = constant->uses; use; use = use->next) {
    if (use->node) array_push(model->context, constant->users, ((Heir){.node = use->node}));
  }
}

/* A value that was used for the last time goes where its users went. */
static void bequeath(Value *value, const Node *user) {
  Model *model = user->graph->model;
  if (!model->provenance) return;
  if (value->uses || value->users || user->others) note_user(value, user); /* a shared one, now or before */
  if (value->uses) return;
  Node *producer = value->producer;
  if (producer && is_nobody(producer->heir) && !node_is_used(producer)) {
    producer->heir = user->heir;
    producer->others = value->users;
  }
  if (!value->tensor || !value->origin) return;
  if (is_nobody(value->heir)) value->heir = user->heir;
  value_forget(value);
}

void node_remove(Node *node) {
  Model *model = node->graph->model;
  require(model->context, !node_is_used(node));
  for (uint32_t i = 0; i < node->input_count; i++) {
    Value *value = node->inputs[i].value;
    use_unlink(&node->inputs[i]);
    if (value) bequeath(value, node);
  }
  take_out(node);
  node->is_gone = true;
  if (model->provenance) {
    array_push(model->context, &model->removals, ((Removal){.node = node, .pass = model->pass}));
  }
}

void node_move(Node *node, Node *before) {
  if (node == before) return;
  take_out(node);
  if (before && before->graph != node->graph) {
    node->graph = before->graph;
    for (uint32_t i = 0; i < node->output_count; i++) {
      if (node->outputs[i]) node->outputs[i]->graph = node->graph;
    }
  }
  insert(node, before);
}

Value *node_input(const Node *node, size_t index) {
  return index < node->input_count ? node->inputs[index].value : NULL;
}

bool node_has_subgraph(const Node *node) {
  for (size_t i = 0; i < node->attributes.count; i++) {
    if (node->attributes.items[i].kind == ATTRIBUTE_GRAPH) return true;
  }
  return false;
}

void node_copy_attributes(Node *copy, const Node *node) {
  for (size_t i = 0; i < node->attributes.count; i++) {
    array_push(context_of(copy->graph), &copy->attributes, node->attributes.items[i]);
  }
}

static Attribute *attribute_slot(Node *node, const char *name) {
  Context *context = context_of(node->graph);
  Str key = str_intern(context, name);
  for (size_t i = 0; i < node->attributes.count; i++) {
    Attribute *known = &node->attributes.items[i];
    if (known->name == key) {
      *known = (Attribute){.name = key};
      return known;
    }
  }
  array_reserve(context, &node->attributes, 2); /* most have no more */
  array_push(context, &node->attributes, ((Attribute){.name = key}));
  return &node->attributes.items[node->attributes.count - 1];
}

void node_set_int(Node *node, const char *name, int64_t value) {
  Attribute *attribute = attribute_slot(node, name);
  attribute->kind = ATTRIBUTE_INT;
  attribute->integer = value;
}

void node_set_float(Node *node, const char *name, float value) {
  Attribute *attribute = attribute_slot(node, name);
  attribute->kind = ATTRIBUTE_FLOAT;
  attribute->real = value;
}

void node_set_string(Node *node, const char *name, const char *value) {
  Attribute *attribute = attribute_slot(node, name);
  attribute->kind = ATTRIBUTE_STRING;
  attribute->string = str_intern(context_of(node->graph), value);
  attribute->count = strlen(value);
}

void node_set_ints(Node *node, const char *name, const int64_t *values, size_t count) {
  Attribute *attribute = attribute_slot(node, name);
  attribute->kind = ATTRIBUTE_INTS;
  attribute->integers = arena_copy(&context_of(node->graph)->arena, values, count * sizeof *values);
  attribute->count = count;
}

void node_set_floats(Node *node, const char *name, const float *values, size_t count) {
  Attribute *attribute = attribute_slot(node, name);
  attribute->kind = ATTRIBUTE_FLOATS;
  attribute->reals = arena_copy(&context_of(node->graph)->arena, values, count * sizeof *values);
  attribute->count = count;
}

void node_set_strings(Node *node, const char *name, const Str *values, size_t count) {
  Attribute *attribute = attribute_slot(node, name);
  attribute->kind = ATTRIBUTE_STRINGS;
  attribute->strings = arena_copy(&context_of(node->graph)->arena, values, count * sizeof *values);
  attribute->count = count;
}

void node_set_graph(Node *node, const char *name, Graph *graph) {
  Attribute *attribute = attribute_slot(node, name);
  attribute->kind = ATTRIBUTE_GRAPH;
  attribute->graph = graph;
  graph->owner = node;
}

void node_set_tensor(Node *node, const char *name, const Tensor *tensor) {
  Attribute *attribute = attribute_slot(node, name);
  attribute->kind = ATTRIBUTE_TENSOR;
  attribute->tensor = tensor;
}

const Attribute *node_attribute(const Node *node, const char *name) {
  for (size_t i = 0; i < node->attributes.count; i++) {
    if (strcmp(node->attributes.items[i].name, name) == 0) return &node->attributes.items[i];
  }
  return NULL;
}

int64_t node_int_or(const Node *node, const char *name, int64_t otherwise) {
  const Attribute *attribute = node_attribute(node, name);
  return attribute && attribute->kind == ATTRIBUTE_INT ? attribute->integer : otherwise;
}

int64_t node_int_at(const Node *node, const char *name, size_t index) {
  const Attribute *list = node_attribute(node, name);
  return list && list->kind == ATTRIBUTE_INTS && index < list->count ? list->integers[index] : 0;
}

static void each_body(Graph *graph, void (*visit)(Graph *graph, void *data), void *data) {
  FOR_EACH_NODE(node, graph) {
    for (size_t i = 0; i < node->attributes.count; i++) {
      const Attribute *attribute = &node->attributes.items[i];
      if (attribute->kind == ATTRIBUTE_GRAPH) graph_each(attribute->graph, visit, data);
    }
  }
}

void graph_each(Graph *graph, void (*visit)(Graph *graph, void *data), void *data) {
  if (graph->model->graph_count > 1) each_body(graph, visit, data);
  visit(graph, data);
}

void model_each_graph(Model *model, void (*visit)(Graph *graph, void *data), void *data) {
  for (size_t i = 0; i < model->functions.count; i++) graph_each(model->functions.items[i]->body, visit, data);
  graph_each(model->graph, visit, data);
}
