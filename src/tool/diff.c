/* Aligning two models. Nodes that compute the same from the same are matched first, wherever they came from; what is
 * left is matched by what the node is and the line it came from, then by the function, then by operator alone within
 * a line or a function. */
#include "tool/diff.h"

#include <string.h>

#include "base/bytes.h"
#include "onnx/graph/same.h"
#include "tool/tally.h"

static uint64_t mix_text(uint64_t hash, Str text) { return hash_mix(hash, text ? str_hash(text) : 0); }

static uint64_t type_hash(Context *context, Type type) {
  uint64_t hash = hash_mix((uint64_t)type.dtype, type_is_unranked(type) ? UINT64_MAX : type.rank);
  for (uint32_t i = 0; i < type.rank; i++) {
    hash = hash_mix(hash, str_hash(dim_text(context, type.dims[i])));
  }
  return hash;
}

static uint64_t compared_tensor_hash(const Tensor *tensor) {
  uint64_t hash = hash_mix((uint64_t)tensor->dtype, tensor->size);
  for (uint32_t i = 0; i < tensor->rank; i++) hash = hash_mix(hash, (uint64_t)tensor->dims[i]);
  if (tensor->data && tensor->size <= COMPARED_BYTES) hash = hash_mix(hash, hash_bytes(tensor->data, tensor->size));
  return hash;
}

static uint64_t local_hash(Context *context, const Node *node) {
  uint64_t hash = mix_text(str_hash(node->op_type), node->domain);
  hash = hash_mix(hash, attributes_hash(node, compared_tensor_hash));
  for (uint32_t i = 0; i < node->output_count; i++) {
    hash = hash_mix(hash, node->outputs[i] ? type_hash(context, node->outputs[i]->type) : 1);
  }
  return hash;
}

static void set_hash(Value *value, uint64_t hash) { value->scratch = (void *)(uintptr_t)(hash | 1); }

/* Values carry what they are in their scratch; one that is used before it is made counts as unknown. */
static void hash_graph(Context *context, Side *side, const Graph *graph) {
  for (size_t i = 0; i < graph->inputs.count; i++) {
    set_hash(graph->inputs.items[i], hash_mix(i, type_hash(context, graph->inputs.items[i]->type)));
  }
  for (size_t i = 0; i < graph->initializers.count; i++) {
    Value *value = graph->initializers.items[i];
    set_hash(value, compared_tensor_hash(value->tensor));
  }
  FOR_EACH_NODE(node, graph) {
    size_t index = node_index(node);
    uint64_t hash = side->local[index] = local_hash(context, node);
    for (uint32_t i = 0; i < node->input_count; i++) {
      const Value *value = node->inputs[i].value;
      hash = hash_mix(hash, value ? (uint64_t)(uintptr_t)value->scratch : 2);
    }
    side->deep[index] = hash;
    for (uint32_t i = 0; i < node->output_count; i++) {
      if (node->outputs[i]) set_hash(node->outputs[i], hash_mix(hash, i));
    }
    for (size_t i = 0; i < node->attributes.count; i++) {
      if (node->attributes.items[i].kind == ATTRIBUTE_GRAPH) hash_graph(context, side, node->attributes.items[i].graph);
    }
  }
}

static void forget(Graph *graph, void *data) {
  (void)data;
  for (size_t i = 0; i < graph->inputs.count; i++) graph->inputs.items[i]->scratch = NULL;
  FOR_EACH_NODE(node, graph) {
    for (uint32_t i = 0; i < node->input_count; i++) {
      if (node->inputs[i].value) node->inputs[i].value->scratch = NULL;
    }
  }
}

/* "" for the working folder. */
static const char *folder_of(Context *context, const char *path) {
  const char *slash = strrchr(path, '/');
  size_t length = slash ? (size_t)(slash - path) + 1 : 0;
  char *folder = arena_alloc(&context->arena, length + 1);
  copy_bytes(folder, path, length);
  return folder;
}

typedef struct Marking {
  Context *context;
  Side *side;
} Marking;

static void mark_graph(Graph *graph, void *data) {
  const Marking *marking = data;
  for (size_t i = 0; i < graph->inputs.count; i++) {
    *map_slot_pointer(marking->context, &marking->side->positions, graph->inputs.items[i]) = (void *)(uintptr_t)(i + 1);
  }
  FOR_EACH_NODE(node, graph) {
    for (size_t i = 0; i < node->attributes.count; i++) {
      const Attribute *attribute = &node->attributes.items[i];
      if (attribute->kind != ATTRIBUTE_GRAPH) continue;
      *map_slot_pointer(marking->context, &marking->side->parts, attribute->graph) = (void *)(uintptr_t)attribute->name;
    }
  }
}

static void mark_graphs(Context *context, Side *side) {
  Marking marking = {context, side};
  model_each_graph(side->model, mark_graph, &marking);
  for (size_t i = 0; i < side->model->functions.count; i++) {
    const Function *function = side->model->functions.items[i];
    Node like_a_call = {.op_type = function->name, .domain = function->domain};
    Str name = operator_name(context, &like_a_call);
    *map_slot_pointer(context, &side->parts, function->body) = (void *)(uintptr_t)name;
  }
}

static Side make_side(Job *job, Model *model, const char *path) {
  Context *context = &job->context;
  Side side = {.path = path, .model = model, .index = model_index(context, model)};
  size_t count = side.count = side.index->counts[INDEX_NODE];
  side.deep = arena_new_array(&context->arena, count, uint64_t);
  side.local = arena_new_array(&context->arena, count, uint64_t);
  side.match = arena_new_array(&context->arena, count, size_t);
  model_each_graph(model, forget, NULL);
  hash_graph(context, &side, model->graph);
  for (size_t i = 0; i < model->functions.count; i++) hash_graph(context, &side, model->functions.items[i]->body);
  side.folder = folder_of(context, path);
  mark_graphs(context, &side);
  return side;
}

/* ---- matching ---- */

typedef enum Likeness {
  SAME_DEEP_AND_LINE,
  SAME_DEEP,
  SAME_LINE,
  SAME_FUNCTION,
  OPERATOR_AND_LINE,
  OPERATOR_AND_FUNCTION,
  LIKENESSES,
} Likeness;

static uint64_t likeness_key(const Side *side, size_t index, Likeness likeness) {
  const Item *placed = &side->index->items.items[index];
  uint64_t function = placed->place.function ? str_hash(placed->place.function) : 0;
  uint64_t line = hash_mix(function, placed->place.line);
  uint64_t op = mix_text(str_hash(placed->node->op_type), placed->node->domain);
  switch (likeness) {
    case SAME_DEEP_AND_LINE: return hash_mix(side->deep[index], line);
    case SAME_DEEP: return side->deep[index];
    case SAME_LINE: return hash_mix(side->local[index], line);
    case SAME_FUNCTION: return hash_mix(side->local[index], function);
    case OPERATOR_AND_LINE: return hash_mix(op, line);
    default: return hash_mix(op, function);
  }
}

typedef struct Waiting {
  size_t index;
  struct Waiting *next, *last; /* last: of the queue that this one heads */
} Waiting;

/* Nodes with the same key are matched in order. */
static void match_like(Context *context, Side *a, Side *b, Likeness likeness) {
  Map queues = {0};
  for (size_t i = 0; i < b->count; i++) {
    if (b->match[i]) continue;
    Waiting *waiting = arena_new(&context->arena, Waiting);
    waiting->index = i;
    waiting->last = waiting;
    void **slot = map_slot(context, &queues, likeness_key(b, i, likeness), 0);
    Waiting *head = *slot;
    if (head) head->last->next = waiting, head->last = waiting;
    else *slot = waiting;
  }
  for (size_t i = 0; i < a->count; i++) {
    if (a->match[i]) continue;
    Waiting *head = map_get(&queues, likeness_key(a, i, likeness), 0);
    if (!head || head->index == SIZE_MAX) continue;
    a->match[i] = head->index + 1;
    b->match[head->index] = i + 1;
    /* The head keeps its place in the map and takes over what the next one holds. */
    if (head->next) head->index = head->next->index, head->next = head->next->next;
    else head->index = SIZE_MAX;
  }
}

Diff diff_align(Job *job, Model *a, Model *b) {
  Diff diff = {.job = job, .a = make_side(job, a, job->operands[0]), .b = make_side(job, b, job->operands[1])};
  for (Likeness likeness = 0; likeness < LIKENESSES; likeness++) match_like(&job->context, &diff.a, &diff.b, likeness);
  return diff;
}

/* ---- comparing ---- */

bool diff_same_type(Type a, Type b) {
  if (a.dtype != b.dtype || a.rank != b.rank || type_is_unranked(a) != type_is_unranked(b)) return false;
  for (uint32_t i = 0; i < a.rank; i++) {
    if (!dim_equal(a.dims[i], b.dims[i])) return false; /* interned together */
  }
  return true;
}

/* The type as the file says it: DTYPE_NONE stands for all that are not known here. */
static int stored_type(const Side *side, const Tensor *tensor) {
  const StoredTensor *stored = tensor_stored(side->model, tensor);
  return stored ? stored->onnx_type : 0;
}

bool diff_same_tensor(Diff *diff, const Tensor *a, const Tensor *b) {
  if (!a || !b) return a == b;
  if (a->dtype != b->dtype || a->rank != b->rank || a->size != b->size) return false;
  if (!same_bytes(a->dims, b->dims, a->rank * sizeof *a->dims)) return false;
  if (a->dtype == DTYPE_NONE && stored_type(&diff->a, a) != stored_type(&diff->b, b)) return false;
  return diff_same_contents(diff, a, b);
}

bool diff_same_attribute(Diff *diff, const Attribute *a, const Attribute *b) {
  if (a->kind != b->kind || a->reference != b->reference) return false;
  if (a->reference) return true;
  switch (a->kind) {
    case ATTRIBUTE_INT: return a->integer == b->integer;
    case ATTRIBUTE_FLOAT: return same_bytes(&a->real, &b->real, sizeof a->real);
    case ATTRIBUTE_TENSOR: return diff_same_tensor(diff, a->tensor, b->tensor);
    case ATTRIBUTE_GRAPH: return diff_same_interface(diff, a->graph, b->graph);
    case ATTRIBUTE_OTHER: return true; /* diff_rest.c */
    default: break;
  }
  if (a->count != b->count) return false;
  if (a->kind == ATTRIBUTE_STRING) return same_bytes(a->string, b->string, a->count);
  if (a->kind == ATTRIBUTE_INTS) return same_bytes(a->integers, b->integers, a->count * sizeof(int64_t));
  if (a->kind == ATTRIBUTE_FLOATS) return same_bytes(a->reals, b->reals, a->count * sizeof(float));
  return same_bytes(a->strings, b->strings, a->count * sizeof(Str)); /* interned together */
}

bool diff_same_graph(const Diff *diff, const Graph *a, const Graph *b) {
  if (map_get_pointer(&diff->a.parts, a) != map_get_pointer(&diff->b.parts, b)) return false; /* interned together */
  if (!a->owner || !b->owner) return a->owner == b->owner;
  return diff->a.match[node_index(a->owner)] == node_index(b->owner) + 1;
}

bool diff_same_value(Diff *diff, const Value *a, const Value *b) {
  if (!a || !b) return a == b;
  if (a->producer && b->producer) {
    return diff->a.match[node_index(a->producer)] == node_index(b->producer) + 1 && a->output_index == b->output_index;
  }
  if (a->producer || b->producer) return false;
  const void *one = map_get_pointer(&diff->a.positions, a), *two = map_get_pointer(&diff->b.positions, b);
  bool both_inputs = one && two, same_input = one == two && diff_same_graph(diff, a->graph, b->graph);
  if (a->tensor || b->tensor) {
    if (both_inputs ? !same_input : one != two) return false; /* a default is not a constant */
    return diff_same_tensor(diff, a->tensor, b->tensor);
  }
  return both_inputs ? same_input : one == two && a->name == b->name;
}

bool diff_same_interface(Diff *diff, const Graph *a, const Graph *b) {
  if (a->inputs.count != b->inputs.count || a->outputs.count != b->outputs.count) return false;
  for (size_t i = 0; i < a->inputs.count; i++) {
    if (!diff_same_type(a->inputs.items[i]->type, b->inputs.items[i]->type)) return false;
  }
  for (size_t i = 0; i < a->outputs.count; i++) {
    if (!diff_same_value(diff, a->outputs.items[i]->value, b->outputs.items[i]->value)) return false;
  }
  return true;
}
