/* reduce: several arrays folded along axes by any computation on scalars, element after element from the front, as XLA
 * does on the CPU: JAX asks for an associative computation, but nothing keeps a program from relying on the order. Only
 * what is a reduction of ONNX's own is left to the operator. */
#include "lower/reduce/general_reduce.h"

#include "base/bytes.h"
#include "lower/complex/complex.h"
#include "lower/control/loops.h"
#include "lower/control/scan_axis.h"
#include "lower/reduce/scalar_body.h"

/* What is in the mask keeps the result so far. */
static void fold_step(Lowering *l, const ScalarFold *fold, Value **arguments, Value *mask, Value **results) {
  apply_scalar_body(l, HERE, fold->body, fold->consts, arguments, 2 * fold->count, results);
  for (uint32_t i = 0; mask && i < fold->count; i++) {
    int64_t last = mask->type.rank;
    bool pairs = fold->body->inputs[i]->form == FORM_PAIRS;
    results[i] = EMIT_WHERE(l, pairs ? unsqueeze_at(l, mask, &last, 1) : mask, results[i], arguments[i]);
  }
}

void fold_elements(Lowering *l, const ScalarFold *fold, Value **so_far, Value *const *elements, Value *mask) {
  Value **arguments = arena_new_array(&l->context->arena, 2 * fold->count, Value *);
  copy_bytes(arguments, so_far, fold->count * sizeof *arguments);
  copy_bytes(arguments + fold->count, elements, fold->count * sizeof *arguments);
  fold_step(l, fold, arguments, mask, so_far);
}

/* Where a Scan must take a step and there may be none to take. */
static void fold_by_loop(Lowering *l, const ScalarFold *fold, Value **so_far, Value *const *arrays, Value *mask) {
  Loop *loop = loop_begin(l, "reduce_body", arrays[0]->type.dims[0], false, so_far, fold->count);
  Value *step = reshape_to(l, loop->index, NULL, 0);
  Value **elements = arena_new_array(&l->context->arena, fold->count, Value *);
  Value **carried = arena_new_array(&l->context->arena, fold->count, Value *);
  for (uint32_t i = 0; i < fold->count; i++) {
    carried[i] = loop->carried[i];
    elements[i] = EMIT(l, OP_Gather, so_far[i]->type, arrays[i], step);
  }
  if (mask) mask = EMIT(l, OP_Gather, type_without_axis(l, mask->type, 0), mask, step);
  fold_elements(l, fold, carried, elements, mask);
  copy_bytes(so_far, emit_loop_end(loop, HERE, carried, fold->count), fold->count * sizeof *so_far);
}

static Graph *scan_body(Lowering *l, const ScalarFold *fold, Value *const *so_far, const Value *mask) {
  Graph *outer = subgraph_begin(l, "reduce_body");
  Value **arguments = arena_new_array(&l->context->arena, 2 * fold->count, Value *);
  Value **results = arena_new_array(&l->context->arena, fold->count, Value *);
  for (uint32_t i = 0; i < 2 * fold->count; i++) {
    arguments[i] = graph_input(l->graph, so_far[i % fold->count]->type, NULL);
  }
  Value *step_mask = mask ? graph_input(l->graph, type_without_axis(l, mask->type, 0), NULL) : NULL;
  fold_step(l, fold, arguments, step_mask, results);
  for (uint32_t i = 0; i < fold->count; i++) subgraph_output(l, results[i]);
  return subgraph_end(l, outer);
}

void fold_arrays(Lowering *l, const ScalarFold *fold, Value **so_far, Value *const *arrays, Value *mask) {
  Dim size = arrays[0]->type.dims[0];
  if (dim_is(size, 0)) return;
  if (!scan_can_run(l, size)) {
    fold_by_loop(l, fold, so_far, arrays, mask);
    return;
  }
  size_t scanned = fold->count + (mask ? 1 : 0);
  Value **inputs = arena_new_array(&l->context->arena, fold->count + scanned, Value *);
  Type *types = arena_new_array(&l->context->arena, fold->count, Type);
  for (uint32_t i = 0; i < fold->count; i++) {
    types[i] = so_far[i]->type;
    inputs[i] = so_far[i];
    inputs[fold->count + i] = arrays[i];
  }
  if (mask) inputs[2 * fold->count] = mask;
  Graph *body = scan_body(l, fold, so_far, mask);
  Node *node = emit_node(l, HERE, OP_Scan, types, fold->count, inputs, fold->count + scanned);
  node_set_graph(node, "body", body);
  node_set_int(node, "num_scan_inputs", (int64_t)scanned);
  copy_bytes(so_far, node->outputs, fold->count * sizeof *so_far);
}

ScalarFold read_scalar_fold(Lowering *l) {
  ScalarFold fold = {.body = param_jaxpr(l->context, l->equation, "jaxpr"),
                     .consts = param_find(l->equation, "consts"),
                     .count = l->equation->output_count};
  rely_on(l, fold.count > 0 && l->equation->input_count == 2 * fold.count);
  rely_on(l, fold.body->input_count == 2 * fold.count && fold.body->output_count == fold.count);
  return fold;
}

Value **fold_starts(Lowering *l, const ScalarFold *fold) {
  Value **starts = arena_new_array(&l->context->arena, fold->count, Value *);
  for (uint32_t i = 0; i < fold->count; i++) {
    Type type = output_type(l, i);
    starts[i] = expand_to(l, input(l, fold->count + i), type.dims, type.rank);
  }
  return starts;
}

/* The folded axes moved to the front, in their order, and made one. */
static Value *folded_axis_first(Lowering *l, Value *value, const bool *folded, Type kept) {
  int64_t order[MAX_RANK];
  Dim dims[MAX_RANK], size = dim_of(1);
  uint32_t rank = 0;
  rely_on(l, kept.rank + 1 <= MAX_RANK && value->type.rank <= MAX_RANK);
  for (uint32_t i = 0; i < value->type.rank; i++) {
    if (!folded[i]) continue;
    order[rank++] = i;
    size = dim_multiply(l->context, size, value->type.dims[i]);
  }
  rely_on(l, kept.rank + rank == value->type.rank);
  for (uint32_t i = 0; i < value->type.rank; i++) {
    if (!folded[i]) order[rank++] = i;
  }
  dims[0] = size;
  copy_bytes(dims + 1, kept.dims, kept.rank * sizeof *dims);
  return reshape_to(l, transpose_by(l, value, order), dims, kept.rank + 1);
}

/* Reductions of ONNX's own, and the ones of bits. */
typedef struct OwnReduction {
  const char *primitive;
  Op op;
  bool logical;
} OwnReduction;

static const OwnReduction *own_reduction(Lowering *l, const Jaxpr *body, uint32_t index) {
  static const OwnReduction reductions[] = {
      {"add", OP_ReduceSum, false}, {"mul", OP_ReduceProd, false}, {"max", OP_ReduceMax, false},
      {"min", OP_ReduceMin, false}, {"and", OP_ReduceMin, true},   {"or", OP_ReduceMax, true},
      {"xor", OP_ReduceSum, true},
  };
  Str primitive = scalar_body_primitive(body, index);
  for (size_t i = 0; primitive && i < sizeof reductions / sizeof *reductions; i++) {
    if (strcmp(primitive, reductions[i].primitive) != 0) continue;
    return !input_is_complex(l, index) || reductions[i].op == OP_ReduceSum ? &reductions[i] : NULL;
  }
  return NULL;
}

/* A reduction of one element is that element to XLA, whatever it starts from. */
static bool has_one_element(Lowering *l, const bool *folded) {
  Type type = input_type(l, 0);
  for (uint32_t i = 0; i < type.rank; i++) {
    if (folded[i] && !dim_is(type.dims[i], 1)) return false;
  }
  return true;
}

/* Every operand on its own, and then what it starts from, unless that changes nothing. */
static bool reduce_by_operators(Lowering *l, const ScalarFold *fold, const int64_t *axes, size_t axis_count) {
  Value **values = arena_new_array(&l->context->arena, fold->count, Value *);
  for (uint32_t i = 0; i < fold->count; i++) {
    if (!own_reduction(l, fold->body, i)) return false;
  }
  bool from_nothing = true;
  for (uint32_t i = 0; i < fold->count; i++) {
    const OwnReduction *own = own_reduction(l, fold->body, i);
    DType dtype = output_type(l, i).dtype;
    const Tensor *identity = own->logical ? logical_identity(l, own->op, dtype) : reduction_identity(l, own->op, dtype);
    from_nothing = from_nothing && !input_is_complex(l, i) && starts_from(l, fold->count + i, identity);
    values[i] = own->logical ? reduce_logical_by(l, own->op, input(l, i), axes, axis_count)
                             : reduce_by(l, own->op, input(l, i), axes, axis_count);
  }
  if (!from_nothing) {
    Value **so_far = fold_starts(l, fold);
    fold_elements(l, fold, so_far, values, NULL);
    values = so_far;
  }
  for (uint32_t i = 0; i < fold->count; i++) bind(l, i, values[i]);
  return true;
}

static void lower_reduce(Lowering *l) {
  ScalarFold fold = read_scalar_fold(l);
  size_t axis_count;
  const int64_t *axes = param_ints(l->context, l->equation, "dimensions", &axis_count);
  bool folded[MAX_RANK] = {false};
  for (size_t i = 0; i < axis_count; i++) {
    rely_on(l, axes[i] >= 0 && axes[i] < (int64_t)input_type(l, 0).rank);
    folded[axes[i]] = true;
  }
  for (uint32_t i = 0; i < fold.count && has_one_element(l, folded); i++) {
    Type type = output_type(l, i);
    bind(l, i, reshape_to(l, input(l, i), type.dims, type.rank));
  }
  if (has_one_element(l, folded) || reduce_by_operators(l, &fold, axes, axis_count)) return;
  Value **so_far = fold_starts(l, &fold), **arrays = arena_new_array(&l->context->arena, fold.count, Value *);
  for (uint32_t i = 0; i < fold.count; i++) {
    arrays[i] = folded_axis_first(l, input(l, i), folded, output_type(l, i));
  }
  fold_arrays(l, &fold, so_far, arrays, NULL);
  for (uint32_t i = 0; i < fold.count; i++) bind(l, i, so_far[i]);
}

/* clang-format off */
const Plugin reduce_plugins[] = {
    PLUGIN("reduce", lower_reduce, OP_Scan, TAKES_COMPLEX),
    {0},
};
/* clang-format on */
