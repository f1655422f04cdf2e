/* Running reductions: cumsum by CumSum; the others by doubling, in log2(size) steps of two nodes, or by Scan where the
 * size is not known at export. */
#include <math.h>

#include "lower/control/scan_axis.h"
#include "lower/data/padding.h"
#include "onnx/facts/schema.h"

/* log(exp(a) + exp(b)). Their difference is not a number when both are the same infinity: then the sum is right. */
static Value *log_add_exp(Lowering *l, Value *a, Value *b) {
  Type type = a->type;
  Value *difference = EMIT(l, OP_Sub, type, a, b);
  Value *size = EMIT(l, OP_Abs, type, difference);
  Value *ratio = EMIT(l, OP_Exp, type, EMIT(l, OP_Neg, type, size));
  Value *excess = EMIT(l, OP_Log, type, EMIT(l, OP_Add, type, ratio, constant_like(l, type, 1)));
  Value *usual = EMIT(l, OP_Add, type, EMIT(l, OP_Max, type, a, b), excess);
  Value *same = EMIT(l, OP_IsNaN, type_with(type, DTYPE_BOOL), difference);
  return EMIT(l, OP_Where, type, same, EMIT(l, OP_Add, type, a, b), usual);
}

static Value *combine(Lowering *l, Op op, Value *a, Value *b) {
  if (op == OP_ReduceLogSumExp) return log_add_exp(l, a, b);
  return EMIT_ROW_AROUND(l, op, a->type, a, b);
}

static const Tensor *identity(Lowering *l, Op op, DType dtype) {
  if (op == OP_Mul) return reduction_identity(l, OP_ReduceProd, dtype);
  return reduction_identity(l, op == OP_Min ? OP_ReduceMin : OP_ReduceMax, dtype);
}

static Value *run_by_doubling(Lowering *l, Op op, Value *value, int64_t axis, bool reverse) {
  const Tensor *fill = identity(l, op, value->type.dtype);
  for (int64_t reach = 1; reach < value->type.dims[axis].constant; reach *= 2) {
    value = combine(l, op, value, shift_array(l, value, axis, reverse ? -reach : reach, constant(l, fill)));
  }
  return value;
}

/* The state is the reduction so far; what is kept of it is every one, or the last. */
static Node *scan_along(Lowering *l, Op op, Value *value, const ScanAxis *scan, bool every) {
  Type element = type_without_axis(l, value->type, scan->axis);
  Value *first = constant(l, identity(l, op, element.dtype));
  Value *start = expand_to(l, first, element.dims, element.rank);
  Value *operand = scan_operand(l, scan, value, first);
  Graph *outer = subgraph_begin(l, "running");
  Graph *body = l->graph;
  Value *state = graph_input(body, element, NULL), *next = graph_input(body, element, NULL);
  Value *total = combine(l, op, state, next);
  graph_output(body, total);
  if (every) graph_output(body, EMIT(l, OP_Identity, element, total));
  subgraph_end(l, outer);
  Type types[] = {element, scan_stacked_type(l, scan)};
  Node *node = EMIT_NODE(l, OP_Scan, types, every ? 2 : 1, start, operand);
  node_set_graph(node, "body", body);
  node_set_int(node, "num_scan_inputs", 1);
  node_set_ints(node, "scan_input_axes", &scan->axis, 1);
  return node;
}

static Value *run_by_scan(Lowering *l, Op op, Value *value, int64_t axis, bool reverse) {
  ScanAxis scan = scan_axis(l, value->type, axis, reverse);
  Node *node = scan_along(l, op, value, &scan, true);
  int64_t direction = reverse;
  node_set_ints(node, "scan_input_directions", &direction, 1);
  node_set_ints(node, "scan_output_axes", &scan.stacked, 1);
  node_set_ints(node, "scan_output_directions", &direction, 1);
  return scan_result(l, &scan, node->outputs[1]);
}

Value *fold_by_scan(Lowering *l, Op op, Value *value, int64_t axis) {
  ScanAxis scan = scan_axis(l, value->type, axis, false);
  return scan_along(l, op, value, &scan, false)->outputs[0];
}

/* An operator of ONNX's own: the axis is an input, the direction an attribute. */
static Value *run_by_operator(Lowering *l, Op op, Value *value, int64_t axis, bool reverse) {
  Value *result = EMIT_ROW(l, op, value->type, value, constant_integer(l, DTYPE_INT64, axis));
  if (reverse) node_set_int(result->producer, "reverse", 1);
  return result;
}

static void lower_cumulative(Lowering *l) {
  Op op = l->plugin->op;
  int64_t axis = param_int(l->context, l->equation, "axis");
  bool reverse = param_bool_or(l->equation, "reverse", false);
  Value *value = input(l, 0);
  DType dtype = value->type.dtype;
  rely_on(l, axis >= 0 && axis < (int64_t)value->type.rank);
  Dim size = value->type.dims[axis];
  if (is_empty(value->type) || dim_is(size, 1)) {
    bind(l, 0, value);
    return;
  }
  bool sum = op == OP_CumSum;
  bool product = op == OP_Mul && compute_dtype(l, OP_CumProd, dtype) != DTYPE_NONE;
  Op own = sum ? OP_CumSum : product ? OP_CumProd : OP_NONE;
  DType compute = compute_dtype(l, own ? own : OP_Pad, dtype); /* Pad runs on what Mul, Max and Min run on */
  if (op == OP_ReduceLogSumExp && dtype_bits(dtype) < 32) compute = DTYPE_FLOAT32;
  if (compute == DTYPE_NONE) unsupported(l, "ONNX Runtime cannot run it on %s", dtype_name(dtype));
  value = cast_to(l, value, compute);
  if (own) value = run_by_operator(l, own, value, axis, reverse);
  else if (dim_is_constant(size)) value = run_by_doubling(l, op, value, axis, reverse);
  else value = run_by_scan(l, op, value, axis, reverse);
  bind(l, 0, narrow_to(l, value, dtype));
}

/* clang-format off */
const Plugin cumulative_plugins[] = {
    PLUGIN("cumlogsumexp", lower_cumulative, OP_ReduceLogSumExp),
    PLUGIN("cummax", lower_cumulative, OP_Max),
    PLUGIN("cummin", lower_cumulative, OP_Min),
    PLUGIN("cumprod", lower_cumulative, OP_Mul),
    PLUGIN("cumsum", lower_cumulative, OP_CumSum),
    {0},
};
/* clang-format on */
