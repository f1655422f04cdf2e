/* scan: a body repeated over the leading axis of arrays, with carried values.
 *
 * It becomes ONNX Scan, which hands out the slices of xs and writes the slices of ys in place; ONNX Loop needs a Gather
 * per step and array, and joins the stacked slices at the end. Measured with ONNX Runtime on one core, a body of two
 * MatMul, two Add and a Tanh: 32 steps of width 32 take 76 us as Scan, 99 us as Loop, 77 us unrolled; 512 steps take
 * 1104, 1541 and 1209 us; 512 steps of 8 x 128 take 3968, 4642 and 5326 us. So a scan is not unrolled, whatever JAX's
 * `unroll` says; what every step repeats is hoisted by a pass (passes/clean/loop_hoist.c). Who wants the layers of a
 * model one by one, for a runtime that has no Scan or a tool that looks at single weights, asks for it: then scans over
 * stacked weights are unrolled, and each step has its own part of them.
 *
 * Loop is used where Scan cannot be: without xs, and when the length may be zero at run time and the target's Scan
 * needs a step. Where the length is known, a pass makes that a Scan after all (passes/layout/count_steps.c), once loops
 * that may end early were looked for. Length one is inlined, and length zero known at export needs no body at all.
 */
#include "lower/control/scan_axis.h"
#include "types/moved.h"
#include "types/tensor_part.h"

typedef struct ScanLoop {
  const Jaxpr *body; /* constants, carries, slices of xs -> carries, slices of ys */
  uint32_t const_count, carry_count, x_count, y_count;
  Dim length;
  bool reverse;
  Value **arguments; /* of the body */
  Value **results;   /* of the body */
} ScanLoop;

/* Leaves of a tree of lists. */
static uint32_t leaf_count(const Param *tree) {
  if (tree->kind != PARAM_LIST) return 1;
  uint32_t count = 0;
  for (size_t i = 0; i < tree->list.count; i++) count += leaf_count(&tree->list.items[i]);
  return count;
}

/* Up to JAX 0.10 the inputs are split by two counts, later by a tree (constants, carries, xs). */
static void read_counts(Lowering *l, ScanLoop *loop) {
  const Equation *equation = l->equation;
  const Param *tree = param_find(equation, "ft_in");
  if (tree && tree->kind == PARAM_LIST && tree->list.count == 3) {
    loop->const_count = leaf_count(&tree->list.items[0]);
    loop->carry_count = leaf_count(&tree->list.items[1]);
  } else {
    loop->const_count = (uint32_t)param_int(l->context, equation, "num_consts");
    loop->carry_count = (uint32_t)param_int(l->context, equation, "num_carry");
  }
  rely_on(l, (uint64_t)loop->const_count + loop->carry_count <= equation->input_count);
  rely_on(l, loop->carry_count <= equation->output_count);
  loop->x_count = equation->input_count - loop->const_count - loop->carry_count;
  loop->y_count = equation->output_count - loop->carry_count;
}

static ScanLoop read_scan(Lowering *l) {
  const Equation *equation = l->equation;
  ScanLoop loop = {.body = param_jaxpr(l->context, equation, "jaxpr"),
                   .reverse = param_bool_or(equation, "reverse", false)};
  read_counts(l, &loop);
  rely_on(l, loop.body->input_count == equation->input_count);
  rely_on(l, loop.body->output_count == equation->output_count);
  const Param *length = param_get(l->context, equation, "length");
  loop.length = length->kind == PARAM_DIM ? length->dim : dim_of(param_int(l->context, equation, "length"));
  loop.arguments = arena_new_array(&l->context->arena, equation->input_count, Value *);
  loop.results = arena_new_array(&l->context->arena, equation->output_count, Value *);
  for (uint32_t i = 0; i < equation->input_count; i++) loop.arguments[i] = input(l, i);
  return loop;
}

/* A carry that the body returns as it got it is captured, not carried. */
static bool is_fixed(const ScanLoop *loop, uint32_t carry) {
  return loop->body->inputs[loop->const_count + carry] == loop->body->outputs[carry];
}

/* Inside the subgraph: its inputs for the carries. The initial values are added to the node's inputs. */
static uint32_t enter_carries(Lowering *l, ScanLoop *loop, Value **inputs) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < loop->carry_count; i++) {
    Value **argument = &loop->arguments[loop->const_count + i];
    if (is_fixed(loop, i)) continue;
    inputs[count++] = *argument;
    *argument = graph_input(l->graph, output_type(l, i), NULL);
  }
  return count;
}

/* Inside the subgraph: its outputs for what the body returned. Gives the types of the node's outputs. */
static Type *leave_results(Lowering *l, ScanLoop *loop, uint32_t *count) {
  Type *types = arena_new_array(&l->context->arena, loop->body->output_count, Type);
  *count = 0;
  for (uint32_t i = 0; i < loop->body->output_count; i++) {
    if (i < loop->carry_count && is_fixed(loop, i)) continue;
    types[(*count)++] = output_type(l, i);
    subgraph_output(l, loop->results[i]);
  }
  return types;
}

static void bind_outputs(Lowering *l, const ScanLoop *loop, Value *const *outputs) {
  for (uint32_t i = 0; i < loop->body->output_count; i++) {
    bool fixed = i < loop->carry_count && is_fixed(loop, i);
    bind(l, i, fixed ? loop->arguments[loop->const_count + i] : *outputs++);
  }
}

static void set_directions(Lowering *l, Node *node, const char *name, uint32_t count) {
  int64_t *backwards = arena_new_array(&l->context->arena, count, int64_t);
  for (uint32_t i = 0; i < count; i++) backwards[i] = 1;
  if (count) node_set_ints(node, name, backwards, count);
}

static void emit_scan(Lowering *l, ScanLoop *loop) {
  const Jaxpr *body = loop->body;
  Value **inputs = arena_new_array(&l->context->arena, body->input_count, Value *);
  Graph *outer = subgraph_begin(l, "scan_body");
  uint32_t input_count = enter_carries(l, loop, inputs), output_count;
  for (uint32_t i = loop->const_count + loop->carry_count; i < body->input_count; i++) {
    inputs[input_count++] = loop->arguments[i];
    loop->arguments[i] = graph_input(l->graph, body->inputs[i]->type, NULL);
  }
  lower_call(l, HERE, body, loop->arguments, loop->results);
  const Type *types = leave_results(l, loop, &output_count);
  Graph *subgraph = subgraph_end(l, outer);
  Node *node = emit_node(l, HERE, OP_Scan, types, output_count, inputs, input_count);
  node_set_int(node, "num_scan_inputs", loop->x_count);
  if (loop->reverse) {
    set_directions(l, node, "scan_input_directions", loop->x_count);
    set_directions(l, node, "scan_output_directions", loop->y_count);
  }
  node_set_graph(node, "body", subgraph);
  bind_outputs(l, loop, node->outputs);
}

/* Inside the loop's body: the slices of xs at this step. */
static void gather_slices(Lowering *l, ScanLoop *loop, Value *step, Value *last) {
  Value *index = last ? EMIT(l, OP_Sub, step->type, last, step) : step;
  for (uint32_t i = loop->const_count + loop->carry_count; i < loop->body->input_count; i++) {
    loop->arguments[i] = EMIT(l, OP_Gather, loop->body->inputs[i]->type, loop->arguments[i], index);
  }
}

/* Loop stacks forwards only, and knows of symbolic dimensions in ys only when it took a step. */
static Value *finish_stacked(Lowering *l, const ScanLoop *loop, Value *stacked) {
  static const int64_t backwards[] = {-1}, to_start[] = {INT64_MIN}, axes[] = {0};
  Type type = stacked->type;
  if (loop->reverse) {
    stacked = EMIT_AROUND(l, OP_Slice, type, stacked, constant_ints(l, backwards, 1), constant_ints(l, to_start, 1),
                          constant_ints(l, axes, 1), constant_ints(l, backwards, 1));
  }
  bool symbolic = false;
  for (uint32_t i = 1; i < type.rank; i++) symbolic = symbolic || !dim_is_constant(type.dims[i]);
  if (!symbolic || is_positive(loop->length)) return stacked;
  Value *shaped = EMIT(l, OP_Reshape, type, stacked, shape_value(l, type.dims, type.rank));
  node_set_int(shaped->producer, "allowzero", 1);
  return shaped;
}

static void emit_loop(Lowering *l, ScanLoop *loop) {
  const Jaxpr *body = loop->body;
  Value **inputs = arena_new_array(&l->context->arena, body->input_count + 2, Value *);
  Value *last = NULL;
  if (loop->reverse && loop->x_count) {
    last = dimension_scalar(l, dim_subtract(l->context, loop->length, dim_of(1)), DTYPE_INT64);
  }
  inputs[0] = dimension_scalar(l, loop->length, DTYPE_INT64);
  inputs[1] = constant_integer(l, DTYPE_BOOL, 1); /* may be left out, but not every reader knows */
  Graph *outer = subgraph_begin(l, "loop_body");
  Value *step = graph_input(l->graph, type_scalar(DTYPE_INT64), NULL);
  Value *go_on = graph_input(l->graph, type_scalar(DTYPE_BOOL), NULL);
  uint32_t carried = enter_carries(l, loop, inputs + 2), output_count;
  if (loop->x_count) gather_slices(l, loop, step, last);
  lower_call(l, HERE, body, loop->arguments, loop->results);
  subgraph_output(l, go_on);
  const Type *types = leave_results(l, loop, &output_count);
  Graph *subgraph = subgraph_end(l, outer);
  Node *node = emit_node(l, HERE, OP_Loop, types, output_count, inputs, carried + 2);
  node_set_graph(node, "body", subgraph);
  Value **outputs = arena_new_array(&l->context->arena, output_count, Value *);
  for (uint32_t i = 0; i < output_count; i++) {
    outputs[i] = i < carried ? node->outputs[i] : finish_stacked(l, loop, node->outputs[i]);
  }
  bind_outputs(l, loop, outputs);
}

static void inline_single(Lowering *l, ScanLoop *loop) {
  const Jaxpr *body = loop->body;
  static const int64_t leading[] = {0};
  for (uint32_t i = loop->const_count + loop->carry_count; i < body->input_count; i++) {
    loop->arguments[i] = squeeze_at(l, loop->arguments[i], leading, 1);
  }
  lower_call(l, HERE, body, loop->arguments, loop->results);
  for (uint32_t i = 0; i < body->output_count; i++) {
    bind(l, i, i < loop->carry_count ? loop->results[i] : unsqueeze_at(l, loop->results[i], leading, 1));
  }
}

static bool is_over_weights(const ScanLoop *loop) {
  for (uint32_t i = loop->const_count + loop->carry_count; i < loop->body->input_count; i++) {
    if (loop->arguments[i]->tensor && loop->arguments[i]->tensor->name) return true;
  }
  return false;
}

/* What a step gets of an array: a part of a weight is a weight. */
static Value *part_of(Lowering *l, Value *stacked, int64_t index, Type type) {
  const Tensor *weight = stacked->tensor;
  if (weight && !weight->stored && !weight->data) tensor_ready(weight);
  const Tensor *part = weight ? tensor_part(l->context, weight, index) : NULL;
  return part ? constant(l, part) : EMIT(l, OP_Gather, type, stacked, constant_integer(l, DTYPE_INT64, index));
}

static void unroll(Lowering *l, ScanLoop *loop) {
  static const int64_t leading[] = {0};
  const Jaxpr *body = loop->body;
  int64_t length = loop->length.constant;
  uint32_t first_x = loop->const_count + loop->carry_count;
  Value **step = arena_copy(&l->context->arena, loop->arguments, body->input_count * sizeof *step);
  Value **ys = arena_new_array(&l->context->arena, (size_t)length * loop->y_count, Value *); /* of each y all steps */
  for (int64_t taken = 0; taken < length; taken++) {
    int64_t index = loop->reverse ? length - 1 - taken : taken;
    for (uint32_t i = first_x; i < body->input_count; i++) {
      step[i] = part_of(l, loop->arguments[i], index, body->inputs[i]->type);
    }
    lower_call(l, HERE, body, step, loop->results);
    for (uint32_t i = 0; i < loop->carry_count; i++) step[loop->const_count + i] = loop->results[i];
    for (uint32_t i = 0; i < loop->y_count; i++) {
      ys[i * length + index] = unsqueeze_at(l, loop->results[loop->carry_count + i], leading, 1);
    }
  }
  for (uint32_t i = 0; i < loop->carry_count; i++) bind(l, i, step[loop->const_count + i]);
  for (uint32_t i = 0; i < loop->y_count; i++) {
    uint32_t output = loop->carry_count + i;
    bind(l, output, concat_at(l, ys + i * length, (size_t)length, 0, output_type(l, output)));
  }
}

static Value *empty_array(Lowering *l, Type type) {
  int64_t dims[MAX_RANK], count;
  if (!type_count(type, &count)) { /* symbolic dimensions besides the length */
    Value *nothing = expand_to(l, constant_scalar(l, DTYPE_FLOAT32, 0), type.dims, type.rank);
    return cast_to(l, nothing, type.dtype);
  }
  for (uint32_t i = 0; i < type.rank; i++) dims[i] = type.dims[i].constant;
  return constant(l, tensor_new(l, type.dtype, dims, type.rank, "", 0));
}

/* No step is taken: carries keep their values, ys have no elements. */
static void bind_empty(Lowering *l, const ScanLoop *loop) {
  for (uint32_t i = 0; i < loop->body->output_count; i++) {
    bool carried = i < loop->carry_count;
    bind(l, i, carried ? loop->arguments[loop->const_count + i] : empty_array(l, output_type(l, i)));
  }
}

static void lower_scan(Lowering *l) {
  ScanLoop loop = read_scan(l);
  bool steps = loop.y_count > 0;
  for (uint32_t i = 0; i < loop.carry_count; i++) steps = steps || !is_fixed(&loop, i);
  if (!steps) bind_outputs(l, &loop, NULL);
  else if (dim_is(loop.length, 0)) bind_empty(l, &loop);
  else if (dim_is(loop.length, 1)) inline_single(l, &loop);
  else if (l->options->unroll_scans && dim_is_constant(loop.length) && is_over_weights(&loop)) unroll(l, &loop);
  else if (loop.x_count && scan_can_run(l, loop.length)) emit_scan(l, &loop);
  else emit_loop(l, &loop);
}

/* clang-format off */
const Plugin scan_plugins[] = {
    PLUGIN("scan", lower_scan),
    {0},
};
/* clang-format on */
