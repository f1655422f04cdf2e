/* Names: stable and readable. A node is its operator and a number (Sin_0), a value its operator in lower case and
 * the same number (sin_0), an initializer its parameter's path or "const_" and its type. What a part of the model made
 * is called by the part's path (blocks.0/attn/MatMul), with a number from the second on. */
#include <ctype.h>
#include <stdio.h>

#include "base/bytes.h"
#include "onnx/graph/graph.h"

typedef struct Namer {
  Context *context;
  uint32_t taken;  /* the mark of names in use */
  Map counters;    /* per base name: the next number plus one, as a pointer-sized integer */
  Map lower_cased; /* operator -> its name in lower case */
  Map bases;       /* (module's path, operator) -> Base */
  bool keep;       /* names that are there stay */
  Map taken_nodes; /* then: names of nodes in use */
} Namer;

typedef struct Base {
  Str node, value; /* "blocks.0/attn/MatMul", "blocks.0/attn/matmul" */
} Base;

static bool is_named(const Namer *namer, const Value *value) {
  return value->name_fixed || (namer->keep && value->name);
}

static bool take(const Namer *namer, Str name) { return str_mark(name, namer->taken); }

static size_t next_number(Namer *namer, Str base) {
  void **slot = map_slot_pointer(namer->context, &namer->counters, base);
  size_t number = *slot ? (size_t)(uintptr_t)*slot - 1 : 0;
  *slot = (void *)(uintptr_t)(number + 2);
  return number;
}

/* "base_number", interned. Without printf: this runs twice for every node. */
static Str numbered(Namer *namer, Str base, size_t number) {
  char digits[24], *at = digits + sizeof digits;
  do *--at = (char)('0' + number % 10);
  while (number /= 10);
  *--at = '_';
  size_t length = str_length(base), tail = (size_t)(digits + sizeof digits - at);
  char small[256];
  char *text = length + tail <= sizeof small ? small : arena_alloc(&namer->context->arena, length + tail);
  copy_bytes(text, base, length);
  copy_bytes(text + length, at, tail);
  return str_intern_sized(namer->context, text, length + tail);
}

/* base itself when it is free, else base_1, base_2, … */
static Str unique(Namer *namer, Str base) {
  if (take(namer, base)) return base;
  for (;;) {
    size_t number = next_number(namer, base) + 1;
    Str name = numbered(namer, base, number);
    if (take(namer, name)) return name;
  }
}

static void take_fixed(Graph *graph, void *data) {
  Namer *namer = data;
  for (size_t i = 0; i < graph->inputs.count; i++) {
    if (graph->inputs.items[i]->name_fixed) take(namer, graph->inputs.items[i]->name);
  }
  for (size_t i = 0; i < graph->outputs.count; i++) {
    Value *value = graph->outputs.items[i]->value;
    if (value && value->name_fixed) take(namer, value->name);
  }
}

static size_t first_length(Str names) { return strcspn(names, ","); }

/* "stem.conv.bias" beside a weight that is, or was made of, "stem.conv.kernel". NULL when that is not known. */
static Str bias_beside(Namer *namer, const Tensor *weight) {
  Str names = !weight ? NULL : weight->made_of ? weight->made_of : weight->name;
  if (!names) return NULL;
  size_t length = first_length(names);
  while (length && names[length - 1] != '.' && names[length - 1] != '/') length--;
  if (!length) return NULL;
  return str_intern(namer->context, arena_format(&namer->context->arena, "%.*sbias", (int)length, names));
}

static bool has_bias(const Node *node) {
  return node_is(node, OP_Conv) || node_is(node, OP_ConvTranspose) || node_is(node, OP_Gemm);
}

/* What was made of weights goes by the name of the first; as the bias of a layer, by the name of the layer's. */
static Str made_name(Namer *namer, const Value *value) {
  Str names = value->tensor->made_of;
  if (!names || value->tensor->keeps_name || value->tensor->name == names) return NULL;
  const Use *use = value->uses;
  bool is_bias = use && use->node && has_bias(use->node) && use == &use->node->inputs[2];
  Str bias = is_bias && use->node->inputs[1].value ? bias_beside(namer, use->node->inputs[1].value->tensor) : NULL;
  return bias ? bias : str_intern_sized(namer->context, names, first_length(names));
}

static void name_initializer(Namer *namer, Value *value) {
  if (is_named(namer, value)) return;
  const Tensor *tensor = value->tensor;
  Str made = made_name(namer, value);
  if (made) {
    value->name = unique(namer, made);
    return;
  }
  if (tensor->name) {
    value->name = unique(namer, tensor->name);
    return;
  }
  Builder out;
  builder_init(&out, namer->context);
  builder_format(&out, CONSTANT_PREFIX "%s", dtype_short(tensor->dtype));
  for (uint32_t i = 0; i < tensor->rank; i++) builder_format(&out, "%c%lld", i ? 'x' : '_', (long long)tensor->dims[i]);
  value->name = unique(namer, str_intern(namer->context, builder_text(&out)));
}

/* An operator's name in lower case; operators are few, so each is converted once. */
static Str lower_case(Namer *namer, Str op) {
  void **slot = map_slot_pointer(namer->context, &namer->lower_cased, op);
  if (!*slot) {
    char *copy = arena_copy_text(&namer->context->arena, op);
    for (char *c = copy; *c; c++) *c = (char)tolower((unsigned char)*c);
    *slot = (void *)(uintptr_t)str_intern(namer->context, copy);
  }
  return *slot;
}

static Str in_folder(Namer *namer, Str folder, Str name) {
  return str_intern(namer->context, arena_format(&namer->context->arena, "%s/%s", folder, name));
}

static const Base *base_in_module(Namer *namer, Str path, Str op) {
  void **slot = map_slot(namer->context, &namer->bases, (uint64_t)(uintptr_t)path, (uint64_t)(uintptr_t)op);
  if (!*slot) {
    Base *base = arena_new(&namer->context->arena, Base);
    *slot = base;
    Str folder = module_namespace(namer->context, path);
    *base = (Base){in_folder(namer, folder, op), in_folder(namer, folder, lower_case(namer, op))};
  }
  return *slot;
}

static Str base_without_module(Namer *namer, Node *node) {
  size_t number = next_number(namer, node->op_type);
  if (!namer->keep) {
    node->name = numbered(namer, node->op_type, number);
  } else if (!node->name) {
    while (map_get_pointer(&namer->taken_nodes, numbered(namer, node->op_type, number))) {
      number = next_number(namer, node->op_type);
    }
    node->name = numbered(namer, node->op_type, number);
  }
  return numbered(namer, lower_case(namer, node->op_type), number);
}

/* Sets the node's name; the name of its values follows from it. */
static Str node_base(Namer *namer, Node *node) {
  Str path = node->origin ? origin_module(node->origin) : NULL;
  if (namer->keep || !path || !path[0]) return base_without_module(namer, node);
  const Base *base = base_in_module(namer, path, node->op_type);
  size_t number = next_number(namer, base->node);
  node->name = number ? numbered(namer, base->node, number) : base->node;
  return number ? numbered(namer, base->value, number) : base->value;
}

static void name_node(Namer *namer, Node *node) {
  Str base = node_base(namer, node);
  for (uint32_t i = 0; i < node->output_count; i++) {
    Value *value = node->outputs[i];
    if (!value || is_named(namer, value)) continue;
    Str name = node->output_count == 1 ? base : numbered(namer, base, i);
    value->name = unique(namer, name);
  }
}

static void name_graph(Graph *graph, void *data) {
  Namer *namer = data;
  strings_reserve(namer->context, 2 * graph->node_count);
  for (size_t i = 0; i < graph->initializers.count; i++) name_initializer(namer, graph->initializers.items[i]);
  for (size_t i = 0; i < graph->inputs.count; i++) {
    Value *value = graph->inputs.items[i];
    if (is_named(namer, value)) continue;
    Str base = value->name ? value->name : str_intern(namer->context, graph->owner ? "body_in" : "in");
    value->name = unique(namer, base); /* a name that is not fixed was proposed */
  }
  FOR_EACH_NODE(node, graph) name_node(namer, node);
}

/* Numbers go on through the model, so that no two nodes are called the same. But a function's values are its own: a
 * parameter has one name inside and outside. */
void model_name(Model *model) {
  Namer namer = {.context = model->context};
  for (size_t i = 0; i < model->functions.count; i++) {
    namer.taken = next_mark(model->context);
    graph_each(model->functions.items[i]->body, name_graph, &namer);
  }
  namer.taken = next_mark(model->context);
  graph_each(model->graph, take_fixed, &namer);
  graph_each(model->graph, name_graph, &namer);
}

static void take_all(Graph *graph, void *data) {
  Namer *namer = data;
  for (size_t i = 0; i < graph->inputs.count; i++) {
    if (graph->inputs.items[i]->name) take(namer, graph->inputs.items[i]->name);
  }
  for (size_t i = 0; i < graph->initializers.count; i++) {
    if (graph->initializers.items[i]->name) take(namer, graph->initializers.items[i]->name);
  }
  FOR_EACH_NODE(node, graph) {
    if (node->name) *map_slot_pointer(namer->context, &namer->taken_nodes, node->name) = node;
    for (uint32_t i = 0; i < node->output_count; i++) {
      if (node->outputs[i] && node->outputs[i]->name) take(namer, node->outputs[i]->name);
    }
  }
}

void model_name_rest(Model *model) {
  Namer namer = {.context = model->context, .taken = next_mark(model->context), .keep = true};
  model_each_graph(model, take_all, &namer);
  model_each_graph(model, name_graph, &namer);
}
