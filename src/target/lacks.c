/* A model held against what a runtime was seen not to run. */
#include "target/lacks.h"

#include "types/numbers.h"

#include <inttypes.h>

static DType dtype_of(const Node *node) {
  const Value *value = node_is(node, OP_Where) ? node_input(node, 1) : node_input(node, 0);
  if (!value && node->output_count) value = node->outputs[0];
  return value ? value->type.dtype : DTYPE_NONE;
}

/* Does a loop put the values of its steps together? */
static bool stacks(const Node *node) { return node->output_count + 2 > node->input_count; }

/* Does Resize change another axis than the last two? Its result says it. */
static bool resizes_first_axes(const Node *node) {
  const Value *from = node_input(node, 0), *to = node->outputs[0];
  for (uint32_t i = 0; i + 2 < from->type.rank && from->type.rank == to->type.rank; i++) {
    if (!dim_equal(from->type.dims[i], to->type.dims[i])) return true;
  }
  return false;
}

/* Is an operand a number that int32 does not hold? */
static bool takes_large_number(const Node *node) {
  for (uint32_t i = 0; i < node->input_count; i++) {
    const Tensor *tensor = node_input(node, i) ? node_input(node, i)->tensor : NULL;
    if (!tensor || tensor->dtype != DTYPE_INT64 || !tensor->data) continue;
    for (size_t at = 0; at < tensor->size / sizeof(int64_t); at++) {
      int64_t number; /* of a file, and so at any address */
      memcpy(&number, (const char *)tensor->data + at * sizeof number, sizeof number);
      if (number != (int32_t)number) return true;
    }
  }
  return false;
}

/* Is it the end of a round: what was turned around by shifts, and something else? */
static bool mixes_rotation(const Node *node) {
  const Node *maker = node_input(node, 0) ? node_input(node, 0)->producer : NULL;
  return maker && node_is(maker, OP_BitwiseOr);
}

/* Does the body of a loop compute whether there is another step? */
static bool stops_early(const Node *node) {
  const Attribute *body = node_attribute(node, "body");
  if (!body || body->kind != ATTRIBUTE_GRAPH || !body->graph->outputs.count) return false;
  const Value *go_on = body->graph->outputs.items[0]->value;
  while (go_on->producer && node_is(go_on->producer, OP_Identity)) go_on = node_input(go_on->producer, 0);
  return go_on->producer && !node_is(go_on->producer, OP_Constant);
}

static bool is_nested(const Node *node) { return node->graph->owner && node_is(node->graph->owner, node->op); }

static bool is_second(const Node *node) {
  for (const Node *other = node->graph->first; other && other != node; other = other->next) {
    if (node_is(other, node->op)) return true;
  }
  return false;
}

/* Is what it divides by the number of elements along some axis, or made of it? */
static bool divides_by_size(const Node *node) {
  enum { FAR = 8 };
  const Value *value = node_input(node, 1);
  for (int i = 0; i < FAR && value && value->producer; i++) {
    if (node_is(value->producer, OP_Shape)) return true;
    value = node_input(value->producer, 0);
  }
  return false;
}

/* Is some step of a Slice other than 1, or below 0? */
static bool steps(const Node *node, bool backwards) {
  const Tensor *tensor = node_input(node, 4) ? node_input(node, 4)->tensor : NULL;
  size_t size = tensor && tensor->data ? tensor->size : 0, one = tensor ? dtype_bytes(tensor->dtype, 1) : 1;
  for (size_t at = 0; at + one <= size; at += one) {
    int64_t step = number_decode_int(tensor->dtype, (const char *)tensor->data + at);
    if (backwards ? step < 0 : step != 1) return true;
  }
  return false;
}

static bool turns_around_steps(const Node *node) {
  const Node *before = node_input(node, 0) ? node_input(node, 0)->producer : NULL;
  return before && node_is(before, OP_Slice) && steps(before, false) && !steps(before, true) && steps(node, true);
}

static bool is_one_number(const Value *value) {
  int64_t count;
  return value && value->tensor && type_count(value->type, &count) && count == 1;
}

/* Are integers multiplied by a known number in every step? */
static bool scales_in_scan(const Node *node) {
  bool known = is_one_number(node_input(node, 0)) || is_one_number(node_input(node, 1));
  return known && dtype_is_integer(dtype_of(node)) && node->graph->owner && node_is(node->graph->owner, OP_Scan);
}

static bool casts_bytes(const Node *node) {
  return dtype_of(node) == DTYPE_UINT8 || (node->output_count && node->outputs[0]->type.dtype == DTYPE_UINT8);
}

static bool is_least(const Value *value) {
  const Tensor *tensor = is_one_number(value) ? value->tensor : NULL;
  return tensor && tensor->dtype == DTYPE_INT32 && tensor->data &&
         number_decode_int(DTYPE_INT32, tensor->data) == INT32_MIN;
}

/* Is what it compares moved by half of the range, as unsigned numbers are to be ordered? */
static bool compares_moved(const Node *node) {
  if (!node_has(node, COMPARES)) return false;
  for (uint32_t i = 0; i < node->input_count; i++) {
    const Node *sum = node_input(node, i) ? node_input(node, i)->producer : NULL;
    if (sum && node_is(sum, OP_Add) && (is_least(node_input(sum, 0)) || is_least(node_input(sum, 1)))) return true;
  }
  return false;
}

/* Is what it changes a copy of read by others? */
static bool shares_data(const Node *node) {
  const Value *data = node_input(node, 0);
  return data && data->uses && data->uses->next;
}

static bool combines(const Node *node) {
  const Attribute *reduction = node_attribute(node, "reduction");
  return reduction && reduction->kind == ATTRIBUTE_STRING && strcmp(reduction->string, "none") != 0;
}

static const Lack lacks[] = {
#define LACK(op, dtype, runtimes, last, when, what) {OP_##op, DTYPE_##dtype, runtimes, last, when, what},
#include "target/lacks.inc"
#undef LACK
};

enum { LACK_COUNT = sizeof lacks / sizeof *lacks };

const Lack *lack_at(size_t index) { return index < LACK_COUNT ? &lacks[index] : NULL; }

typedef struct Search {
  Model *model;
  const Target *target;
  const Lack *rows[LACK_COUNT]; /* those of the target */
  size_t count;
  FaultList faults;
} Search;

static bool is_of_target(const Lack *lack, const Target *target) {
  if (target->runtime == RUNTIME_ONNX_RUNTIME) {
    return (lack->runtimes & RUNTIME_ONNX_RUNTIME) && (!lack->last || target->version <= lack->last);
  }
  return (lack->runtimes & target->runtime) != 0;
}

static bool lacks_here(const Lack *lack, const Node *node) {
  if ((lack->op != OP_NONE && !node_is(node, lack->op)) || (lack->dtype != DTYPE_NONE && lack->dtype != dtype_of(node)))
    return false;
  return !lack->when || lack->when(node);
}

static void look(Search *search, const Node *node) {
  for (size_t i = 0; i < search->count && search->faults.count < MOST_FAULTS; i++) {
    const Lack *lack = search->rows[i];
    if (!lacks_here(lack, node)) continue;
    DType dtype = lack->dtype;
    const char *text = arena_format(&search->model->context->arena, "%s: %s%s%s %s", search->target->title,
                                    node->op_type, dtype ? " of " : "", dtype ? dtype_name(dtype) : "", lack->what);
    array_push(search->model->context, &search->faults, ((Fault){node->graph, node, text}));
    return;
  }
}

static void look_at_all(Graph *graph, void *data) { FOR_EACH_NODE(node, graph) look(data, node); }

static void look_at_version(Search *search, const char *what, int64_t most, int64_t has) {
  if (!most || has <= most) return;
  const char *text =
      arena_format(&search->model->context->arena, "%s reads no %s above %" PRId64 "; the model has %" PRId64,
                   search->target->title, what, most, has);
  array_push(search->model->context, &search->faults, ((Fault){search->model->graph, NULL, text}));
}

FaultList target_lacks(Model *model, const Target *target, int64_t ir_version) {
  Search search = {.model = model, .target = target ? target : target_at(0)};
  look_at_version(&search, "opset", search.target->opset, model->opset);
  look_at_version(&search, "IR version", search.target->ir_version, ir_version);
  for (size_t i = 0; i < LACK_COUNT; i++) {
    if (is_of_target(&lacks[i], search.target)) search.rows[search.count++] = &lacks[i];
  }
  if (search.count) model_each_graph(model, look_at_all, &search);
  return search.faults;
}
