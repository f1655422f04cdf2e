/* reduce: several arrays folded along axes by any computation on scalars, element after element from the front. */
#include "base/bytes.h"
#include "lower/control/loops.h"
#include "lower/control/scan_axis.h"
#include "lower/reduce/scalar_body.h"

typedef struct Fold {
  const Jaxpr *body;
  const int64_t *axes;
  size_t axis_count;
  uint32_t count; /* of arrays */
  Dim size;       /* how many elements are folded into one */
} Fold;

/* The folded axes moved to the front and made one. */
static Value *folded_axis_first(Lowering *l, Value *value, const Fold *fold, Type kept) {
  int64_t order[MAX_RANK];
  Dim dims[MAX_RANK];
  uint32_t rank = 0;
  bool folded[MAX_RANK] = {false};
  rely_on(l, kept.rank + 1 <= MAX_RANK);
  for (size_t i = 0; i < fold->axis_count; i++) {
    folded[fold->axes[i]] = true;
    order[rank++] = fold->axes[i];
  }
  for (uint32_t i = 0; i < value->type.rank; i++) {
    if (!folded[i]) order[rank++] = i;
  }
  dims[0] = fold->size;
  copy_bytes(dims + 1, kept.dims, kept.rank * sizeof *dims);
  return reshape_to(l, transpose_by(l, value, order), dims, kept.rank + 1);
}

/* Inside the scan's body: the results so far, and the next elements, through the computation. */
static Graph *fold_body(Lowering *l, const Fold *fold) {
  Graph *outer = subgraph_begin(l, "reduce_body");
  Value **arguments = arena_new_array(&l->context->arena, 2 * fold->count, Value *);
  Value **results = arena_new_array(&l->context->arena, fold->count, Value *);
  for (uint32_t i = 0; i < 2 * fold->count; i++) {
    arguments[i] = graph_input(l->graph, output_type(l, i % fold->count), NULL);
  }
  apply_scalar_body(l, HERE, fold->body, param_find(l->equation, "consts"), arguments, 2 * fold->count, results);
  for (uint32_t i = 0; i < fold->count; i++) subgraph_output(l, results[i]);
  return subgraph_end(l, outer);
}

/* Where a Scan must take a step and there may be none to take. */
static void fold_by_loop(Lowering *l, const Fold *fold, Value *const *inputs) {
  Loop *loop = loop_begin(l, "reduce_body", fold->size, false, inputs, fold->count);
  Value *step = reshape_to(l, loop->index, NULL, 0);
  Value **arguments = arena_new_array(&l->context->arena, 2 * fold->count, Value *);
  Value **results = arena_new_array(&l->context->arena, fold->count, Value *);
  for (uint32_t i = 0; i < fold->count; i++) {
    arguments[i] = loop->carried[i];
    arguments[fold->count + i] = EMIT(l, OP_Gather, output_type(l, i), inputs[fold->count + i], step);
  }
  apply_scalar_body(l, HERE, fold->body, param_find(l->equation, "consts"), arguments, 2 * fold->count, results);
  Value **outputs = emit_loop_end(loop, HERE, results, fold->count);
  for (uint32_t i = 0; i < fold->count; i++) bind(l, i, outputs[i]);
}

static Fold read_fold(Lowering *l) {
  Fold fold = {.body = param_jaxpr(l->context, l->equation, "jaxpr"), .count = l->equation->output_count};
  rely_on(l, l->equation->input_count == 2 * fold.count && fold.count > 0);
  fold.axes = param_ints(l->context, l->equation, "dimensions", &fold.axis_count);
  fold.size = dim_of(1);
  Type type = input_type(l, 0);
  for (size_t i = 0; i < fold.axis_count; i++) {
    rely_on(l, fold.axes[i] >= 0 && fold.axes[i] < (int64_t)type.rank);
    fold.size = dim_multiply(l->context, fold.size, type.dims[fold.axes[i]]);
  }
  return fold;
}

static void lower_reduce(Lowering *l) {
  Fold fold = read_fold(l);
  Value **inputs = arena_new_array(&l->context->arena, 2 * fold.count, Value *);
  Type *types = arena_new_array(&l->context->arena, fold.count, Type);
  for (uint32_t i = 0; i < fold.count; i++) {
    types[i] = output_type(l, i);
    inputs[i] = expand_to(l, input(l, fold.count + i), types[i].dims, types[i].rank);
    if (dim_is(fold.size, 0)) bind(l, i, inputs[i]);
    else inputs[fold.count + i] = folded_axis_first(l, input(l, i), &fold, types[i]);
  }
  if (dim_is(fold.size, 0)) return;
  if (!scan_can_run(l, fold.size)) {
    fold_by_loop(l, &fold, inputs);
    return;
  }
  Graph *body = fold_body(l, &fold);
  Node *node = emit_node(l, HERE, OP_Scan, types, fold.count, inputs, 2 * fold.count);
  node_set_graph(node, "body", body);
  node_set_int(node, "num_scan_inputs", fold.count);
  for (uint32_t i = 0; i < fold.count; i++) bind(l, i, node->outputs[i]);
}

/* clang-format off */
const Plugin reduce_plugins[] = {
    PLUGIN("reduce", lower_reduce, OP_Scan),
    {0},
};
/* clang-format on */
