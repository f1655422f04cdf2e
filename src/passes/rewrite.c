/* Rewriting. */
#include "passes/rewrite.h"

#include "base/bytes.h"
#include "onnx/graph/same.h"

#include "onnx/facts/schema.h"
#include "types/moved.h"
#include "types/numbers.h"

/* Sites that were handed over: a leaf holds an origin, an inner node two ropes. Joining costs nothing. */
struct SiteRope {
  const Origin *origin;
  const SiteRope *left, *right;
};

void rewrite_begin(Rewriter *rewriter, Model *model, const char *pass) {
  *rewriter = (Rewriter){.model = model, .context = model->context, .pass = pass};
}

static const SiteRope *rope_new(Rewriter *rewriter, const Origin *origin, const SiteRope *left, const SiteRope *right) {
  if (!origin && !left) return right;
  if (!origin && !right) return left;
  SiteRope *rope = arena_new(&rewriter->context->arena, SiteRope);
  *rope = (SiteRope){origin, left, right};
  return rope;
}

void rewrite_hand_over(Rewriter *rewriter, Node *receiver, Node *giver) {
  if (receiver && receiver != giver) {
    giver->heir = (Heir){.node = receiver};
    giver->others = NULL;
  }
  if (!receiver || !rewriter->model->provenance || receiver == giver || !giver->origin) return;
  const SiteRope *given = map_get_pointer(&rewriter->received, giver);
  const SiteRope *leaf = rope_new(rewriter, giver->origin, NULL, NULL);
  void **slot = map_slot_pointer(rewriter->context, &rewriter->received, receiver);
  if (!*slot) array_push(rewriter->context, &rewriter->receivers, receiver);
  const SiteRope *more = rope_new(rewriter, NULL, leaf, given);
  *slot = (void *)(uintptr_t)rope_new(rewriter, NULL, *slot, more);
}

/* Left to right without recursion: a rope may be as deep as the program is long. */
static void unite(Rewriter *rewriter, Node *node, const SiteRope *rope) {
  ARRAY(const SiteRope *) stack = {0};
  ARRAY(const Origin *) origins = {0};
  array_push(rewriter->context, &stack, rope);
  while (stack.count) {
    const SiteRope *top = stack.items[--stack.count];
    if (top->origin) array_push(rewriter->context, &origins, top->origin);
    if (top->right) array_push(rewriter->context, &stack, top->right);
    if (top->left) array_push(rewriter->context, &stack, top->left);
  }
  node->origin = origin_unite(rewriter->model->provenance, node->origin, origins.items, origins.count);
}

/* Made for a rewriting that was given up: the last initializers of their graph, for nobody else makes any. */
static void take_back_constants(Rewriter *rewriter) {
  for (size_t i = rewriter->made.count; i--;) {
    Value *value = rewriter->made.items[i];
    Graph *graph = value->graph;
    if (value->uses) continue;
    if (value->producer) node_remove(value->producer);
    else if (graph->initializers.count && graph->initializers.items[graph->initializers.count - 1] == value)
      graph->initializers.count--;
  }
}

bool rewrite_end(Rewriter *rewriter) {
  if (!rewriter->changed) take_back_constants(rewriter);
  for (size_t i = 0; i < rewriter->receivers.count; i++) {
    Node *node = rewriter->receivers.items[i];
    unite(rewriter, node, map_get_pointer(&rewriter->received, node));
  }
  return rewriter->changed;
}

void rewrite_take_name(Value *value, Value *from) {
  if (!from->name_fixed) return;
  value->name = from->name;
  value->name_fixed = true;
  from->name = NULL;
  from->name_fixed = false;
}

Value *rewrite_copy_for(Value *old, Value *source, Node *before, const Origin *origin) {
  Node *copy = graph_node(before->graph, origin, OP_Identity, &source, 1, &old->type, 1, before);
  rewrite_take_name(copy->outputs[0], old);
  return copy->outputs[0];
}

bool rewrite_can_replace(const Value *old, const Value *replacement) {
  if (!value_is_output(old)) return true;
  return replacement->producer && replacement->graph == old->graph && !replacement->name_fixed &&
         type_equal(replacement->type, old->type) && !value_is_output(replacement);
}

static bool move_inner_uses(Value *old, Value *replacement) {
  bool moved = false;
  for (Use *use = old->uses, *next; use; use = next) {
    next = use->next;
    if (!use->node) continue;
    use_set(use, replacement);
    moved = true;
  }
  return moved;
}

/* The outputs that the node's value is stay; an Identity takes the node's place under the same name. */
static Node *keep_output(Rewriter *rewriter, Node *node, Value *source) {
  Value *old = node->outputs[0];
  Value *copy = rewrite_copy_for(old, source, node, REWRITE_ORIGIN(rewriter, node));
  value_replace(old, copy);
  rewrite_hand_over(rewriter, copy->producer, node);
  node_remove(node);
  rewriter->changed = true;
  return copy->producer;
}

Node *rewrite_replace(Rewriter *rewriter, Node *node, Value *replacement) {
  Value *old = node->outputs[0];
  if (!rewrite_can_replace(old, replacement)) {
    bool moved = move_inner_uses(old, replacement);
    rewriter->changed = rewriter->changed || moved;
    if (moved) rewrite_hand_over(rewriter, replacement->producer, node);
    return node_is(node, OP_Identity) ? node : keep_output(rewriter, node, replacement);
  }
  if (old->name_fixed) {
    replacement->name = old->name;
    replacement->name_fixed = true;
  }
  value_replace(old, replacement);
  rewrite_hand_over(rewriter, replacement->producer, node);
  if (replacement->tensor && replacement->origin) node->heir = (Heir){.value = replacement};
  node_remove(node);
  rewriter->changed = true;
  return replacement->producer;
}

void rewrite_replace_by_bytes(Rewriter *rewriter, Node *node, int byte) {
  enum { LARGEST_MADE = 1 << 16 /* elements */ };
  Type type = node->outputs[0]->type;
  int64_t count;
  if (type_is_unranked(type) || !type_count(type, &count) || count > LARGEST_MADE) return;
  Arena *arena = &rewriter->context->arena;
  Tensor *tensor = arena_new(arena, Tensor);
  size_t size = dtype_bytes(type.dtype, (size_t)count);
  char *data = arena_new_array(arena, size, char);
  fill_bytes(data, byte, size);
  int64_t *dims = arena_new_array(arena, type.rank, int64_t);
  for (uint32_t i = 0; i < type.rank; i++) dims[i] = type.dims[i].constant;
  *tensor = (Tensor){.dtype = type.dtype, .rank = type.rank, .dims = dims, .data = data, .size = size};
  rewrite_replace(rewriter, node, rewrite_constant(rewriter, node, tensor, node->origin));
}

void rewrite_drop_unused(Rewriter *rewriter, Node *node, Node *receiver) {
  for (uint32_t i = 0; i < node->output_count; i++) {
    if (node->outputs[i] && node->outputs[i]->uses) return;
  }
  for (size_t i = 0; i < node->attributes.count; i++) {
    if (node->attributes.items[i].kind == ATTRIBUTE_GRAPH) return; /* dead code removal knows how */
  }
  rewrite_hand_over(rewriter, receiver, node);
  node_remove(node);
  rewriter->changed = true;
}

const Tensor *constant_of(const Value *value) {
  const Tensor *tensor = unread_constant_of(value);
  if (tensor) tensor_ready(tensor);
  return tensor;
}

const Tensor *unread_constant_of(const Value *value) {
  if (!value) return NULL;
  const Tensor *tensor = value->tensor;
  if (value->producer && node_is(value->producer, OP_Constant)) {
    const Attribute *attribute = node_attribute(value->producer, "value");
    tensor = attribute && attribute->kind == ATTRIBUTE_TENSOR ? attribute->tensor : NULL;
  }
  return tensor && tensor_is_readable(tensor) && dtype_bits(tensor->dtype) ? tensor : NULL;
}

bool may_store_otherwise(const Value *weight) {
  enum { SMALL = 1 << 12 /* bytes */ };
  return value_has_one_use(weight) || unread_constant_of(weight)->size <= SMALL;
}

bool are_same_small(const Value *a, const Value *b) {
  enum { LARGEST = 1 << 10 }; /* bytes */
  const Tensor *one = unread_constant_of(a), *other = unread_constant_of(b);
  return one && other && one->size <= LARGEST && other->size <= LARGEST && same_tensor(one, other);
}

bool only_integer(const Value *value, int64_t *number) {
  const Tensor *tensor = constant_of(value);
  if (!tensor || tensor->dtype != DTYPE_INT64 || tensor->size != sizeof *number) return false;
  memcpy(number, tensor->data, sizeof *number);
  return true;
}

bool read_axis_slice(const Node *node, int64_t *axis, int64_t *start, int64_t *end) {
  int64_t step = 1;
  if (!node_is(node, OP_Slice) || !only_integer(node_input(node, 1), start) || !only_integer(node_input(node, 2), end))
    return false;
  return only_integer(node_input(node, 3), axis) &&
         (!node_input(node, 4) || (only_integer(node_input(node, 4), &step) && step == 1));
}

bool small_integer(const Value *value, int64_t *number) {
  const Tensor *tensor = value ? constant_of(value) : NULL;
  if (!tensor || tensor->rank || (tensor->dtype != DTYPE_INT32 && tensor->dtype != DTYPE_INT64)) return false;
  *number = number_decode_int(tensor->dtype, tensor->data);
  return *number > INT32_MIN && *number < INT32_MAX; /* so that no sum here overflows */
}

bool is_boolean(const Value *value, bool which) {
  const Tensor *tensor = constant_of(value);
  return tensor && tensor->dtype == DTYPE_BOOL && tensor->size == 1 && (*(const uint8_t *)tensor->data != 0) == which;
}

bool moves_fewer(const Node *node) {
  return node_is(node, OP_Slice) || (node_is(node, OP_Gather) && node_input(node, 1)->type.rank == 0);
}

static bool is_listed(Str list, const char *name, size_t length) {
  for (const char *at = list; (at = strstr(at, name)) != NULL; at += length) {
    if ((at == list || at[-1] == ',') && (at[length] == ',' || !at[length])) return true;
  }
  return false;
}

Str names_with(Context *context, Str names, const Tensor *tensor) {
  Str more = !tensor ? NULL : tensor->made_of ? tensor->made_of : tensor->name;
  if (!names || !more) return names ? names : more;
  for (const char *at = more; *at;) {
    size_t length = strcspn(at, ",");
    Str name = str_intern_sized(context, at, length);
    if (!is_listed(names, name, length)) {
      names = str_intern(context, arena_format(&context->arena, "%s,%s", names, name));
    }
    at += length + (at[length] == ',');
  }
  return names;
}

static Graph *root_of(Graph *graph) {
  while (graph->owner) graph = graph->owner->graph;
  return graph;
}

/* A weight in another shape: it has the weight's name. */
static const Tensor *known_by_its_weight(Context *context, const Tensor *tensor) {
  if (!tensor->name || tensor->made_of) return tensor;
  Tensor *known = arena_copy(&context->arena, tensor, sizeof *tensor);
  known->made_of = tensor->name;
  return known;
}

Value *rewrite_constant(Rewriter *rewriter, Node *before, const Tensor *tensor, const Origin *origin) {
  Model *model = rewriter->model;
  Graph *root = root_of(before->graph);
  tensor = known_by_its_weight(rewriter->context, tensor);
  if (!origin) origin = before->origin;            /* it was made of a weight, which has none */
  if (root == model->graph || model->provenance) { /* functions that we made give their constants up at the end */
    Value *value = graph_initializer(root, tensor);
    value->origin = origin;
    array_push(rewriter->context, &rewriter->made, value);
    return value;
  }
  Type type = tensor_type(rewriter->context, tensor);
  Node *node = graph_node(before->graph, origin, OP_Constant, NULL, 0, &type, 1, before);
  node_set_tensor(node, "value", tensor);
  array_push(rewriter->context, &rewriter->made, node->outputs[0]);
  return node->outputs[0];
}

Value *rewrite_constant_number(Rewriter *rewriter, Node *before, DType dtype, double number, const Origin *origin) {
  Arena *arena = &rewriter->context->arena;
  Tensor *tensor = arena_new(arena, Tensor);
  uint64_t bits = number_encode(dtype, number);
  *tensor = (Tensor){.dtype = dtype, .size = dtype_bytes(dtype, 1)};
  tensor->data = arena_copy(arena, &bits, tensor->size);
  return rewrite_constant(rewriter, before, tensor, origin);
}

Value *rewrite_constant_ints(Rewriter *rewriter, Node *before, const int64_t *values, size_t count,
                             const Origin *origin) {
  Arena *arena = &rewriter->context->arena;
  Tensor *tensor = arena_new(arena, Tensor);
  int64_t length = (int64_t)count;
  *tensor = (Tensor){.dtype = DTYPE_INT64, .rank = 1, .size = count * sizeof *values};
  tensor->dims = arena_copy(arena, &length, sizeof length);
  tensor->data = arena_copy(arena, values, tensor->size);
  return rewrite_constant(rewriter, before, tensor, origin);
}

Value *rewrite_in_type(Rewriter *rewriter, Node *before, const Origin *origin, Value *value, DType dtype) {
  if (value->type.dtype == dtype) return value;
  Type type = type_with(value->type, dtype);
  Op op = value->type.dtype == DTYPE_FLOAT32 && dtype_is_half(dtype) ? OP_Narrow : OP_Cast;
  origin = origin_with_emitter(rewriter->model->provenance, origin, REWRITE_EMITTER(rewriter));
  Node *node = graph_node(before->graph, origin, op, &value, 1, &type, 1, before);
  if (op == OP_Cast) node_set_int(node, "to", onnx_dtype(dtype));
  return node->outputs[0];
}

static void visit_graph(Rewriter *rewriter, Graph *graph, void (*visit)(Rewriter *, Node *)) {
  const Model *model = rewriter->model;
  for (Node *node = graph->first, *next; node; node = next) {
    for (size_t i = 0; model->graph_count > 1 && i < node->attributes.count; i++) {
      const Attribute *attribute = &node->attributes.items[i];
      if (attribute->kind == ATTRIBUTE_GRAPH) visit_graph(rewriter, attribute->graph, visit);
    }
    next = node->next;
    visit(rewriter, node);
  }
}

void rewrite_each_node(Rewriter *rewriter, void (*visit)(Rewriter *rewriter, Node *node)) {
  for (size_t i = 0; i < rewriter->model->functions.count; i++) {
    visit_graph(rewriter, rewriter->model->functions.items[i]->body, visit);
  }
  visit_graph(rewriter, rewriter->model->graph, visit);
}
