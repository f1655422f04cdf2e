/* A model held against what a runtime was seen not to run. */
#include "target/lacks.h"

#include <inttypes.h>

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

static const Lack lacks[] = {
#define LACK(op, dtype, runtimes, last, when, what) {OP_##op, DTYPE_##dtype, runtimes, last, when, what},
#include "target/lacks.inc"
#undef LACK
};

const Lack *lack_at(size_t index) { return index < sizeof lacks / sizeof *lacks ? &lacks[index] : NULL; }

typedef struct Search {
  Model *model;
  const Target *target;
  FaultList faults;
} Search;

static DType dtype_of(const Node *node) {
  const Value *value = node_is(node, OP_Where) ? node_input(node, 1) : node_input(node, 0);
  if (!value && node->output_count) value = node->outputs[0];
  return value ? value->type.dtype : DTYPE_NONE;
}

static bool lacks_here(const Lack *lack, const Target *target, const Node *node) {
  if (!node_is(node, lack->op) || (lack->dtype != DTYPE_NONE && lack->dtype != dtype_of(node))) return false;
  if (lack->when && !lack->when(node)) return false;
  if (target->runtime == RUNTIME_ONNX_RUNTIME) {
    return (lack->runtimes & RUNTIME_ONNX_RUNTIME) && (!lack->last || target->version <= lack->last);
  }
  return (lack->runtimes & target->runtime) != 0;
}

static void look(Search *search, const Node *node) {
  for (size_t i = 0; i < sizeof lacks / sizeof *lacks && search->faults.count < MOST_FAULTS; i++) {
    if (!lacks_here(&lacks[i], search->target, node)) continue;
    DType dtype = lacks[i].dtype;
    const char *text = arena_format(&search->model->context->arena, "%s: %s%s%s %s", search->target->title,
                                    node->op_type, dtype ? " of " : "", dtype ? dtype_name(dtype) : "", lacks[i].what);
    array_push(search->model->context, &search->faults, ((Fault){node->graph, node, text}));
    return;
  }
}

static void look_at_all(Graph *graph, void *data) { FOR_EACH_NODE(node, graph) look(data, node); }

FaultList target_lacks(Model *model, const Target *target) {
  Search search = {.model = model, .target = target ? target : target_at(0)};
  if (search.target->opset && model->opset > search.target->opset) {
    const char *text =
        arena_format(&model->context->arena, "%s reads no opset above %" PRId64 "; the model has %" PRId64,
                     search.target->title, search.target->opset, model->opset);
    array_push(model->context, &search.faults, ((Fault){model->graph, NULL, text}));
  }
  model_each_graph(model, look_at_all, &search);
  return search.faults;
}
