/* Softmax, LogSoftmax and ReduceLogSumExp, as JAX writes them: shifted by the largest element so that exp does not
 * overflow. ONNX Runtime shifts as well, and gives the same for NaN and for rows of infinities, but for one case. */
#include <math.h>

#include "base/bytes.h"
#include "onnx/facts/schema.h"
#include "passes/analysis/masks.h"
#include "passes/pattern.h"
#include "target/target.h"

enum { X_SLOT, MAXIMUM, LENGTH, SUM, SHIFT, SHIFTED, TOTAL, LARGEST, EXP, DIFFERENCE, MASK, KEPT };
#define X ANY(X_SLOT)

/* The largest element, NaN when there is one: ReduceMax alone would drop it, and a maximum is never above the sum of
 * absolute values. jax.nn takes the maximum with -inf on top. */
#define MAXIMUM_OF_X \
  EITHER(OP(Min, OP_AT(MAXIMUM, ReduceMax, X), OP_AT(LENGTH, ReduceL1, X)), OP_AT(MAXIMUM, ReduceMax, X))
#define LARGEST_OF_X EITHER(OP(Max, NUMBER(-INFINITY), MAXIMUM_OF_X), MAXIMUM_OF_X)
#define DIFFERENCE_OF(shift) OP_AT(DIFFERENCE, Sub, X, RESHAPED(SHIFTED, shift))
/* JAX adds halves up in float32. */
#define EXP_OF(shift) OP_AT(EXP, Exp, DIFFERENCE_OF(shift))
#define WIDE_TOTAL_OF(shift) OP_AT(SUM, ReduceSum, OP(Cast, EXP_OF(shift)))
#define TOTAL_OF(shift) \
  EITHER(OP_AT(SUM, ReduceSum, EXP_OF(shift)), EITHER(OP(Narrow, WIDE_TOTAL_OF(shift)), OP(Cast, WIDE_TOTAL_OF(shift))))
/* A maximum that is not finite shifts by 0 instead. */
#define FINITE_OR_0                                                                                               \
  OP_AT(SHIFT, Where, OP(Equal, OP(Sub, ANY(LARGEST), ANY(LARGEST)), NUMBER(0)), RESHAPED(LARGEST, LARGEST_OF_X), \
        NUMBER(0))

static bool same_axes(const Value *reduced, const bool axes[MAX_RANK], uint32_t rank) {
  bool others[MAX_RANK];
  if (!reduced) return true;
  return reduced_axes(reduced->producer, others) && same_bytes(axes, others, rank * sizeof *axes);
}

/* All reductions are over the same axes, and the shift lines up with them. */
static bool lines_up(const Match *match, bool axes[MAX_RANK]) {
  Type type = match->values[X_SLOT]->type;
  DType added = match->values[SUM]->type.dtype;
  if (!dtype_is_float(added) || dtype_bits(added) < dtype_bits(type.dtype)) return false;
  return reduced_axes(match->values[SUM]->producer, axes) && same_axes(match->values[MAXIMUM], axes, type.rank) &&
         same_axes(match->values[LENGTH], axes, type.rank) &&
         is_reduced_shape(match->values[SHIFTED]->type, type, axes);
}

/* The one axis; -1 when there are several. */
static int64_t single_axis(const Match *match) {
  Type type = match->values[X_SLOT]->type;
  bool axes[MAX_RANK];
  int64_t found = -1;
  if (!match_keeps_type(match) || !lines_up(match, axes)) return -1;
  if (!is_reduced_shape(match->values[TOTAL]->type, type, axes)) return -1;
  for (uint32_t i = 0; i < type.rank; i++) {
    if (!axes[i]) continue;
    if (found >= 0) return -1;
    found = i;
  }
  return found;
}

static bool fuse_single_axis(Match *match) {
  int64_t axis = single_axis(match), rank = match_type(match).rank;
  if (axis < 0) return false;
  node_set_int(EMIT_MATCH(match, match->rule->op, match->values[X_SLOT]), "axis", axis == rank - 1 ? -1 : axis);
  return true;
}

static bool emit_log_sum_exp(Match *match, Value *x, const bool axes[MAX_RANK]) {
  Type type = x->type;
  const Node *sum = match->values[SUM]->producer;
  int64_t numbers[MAX_RANK];
  size_t count = 0;
  if (match_type(match).dtype != type.dtype) return false;
  if (!type_same_shape(match_type(match), match->values[SUM]->type)) return false;
  for (uint32_t i = 0; i < type.rank; i++) {
    if (axes[i]) numbers[count++] = i;
  }
  bool keep = node_int_or(sum, "keepdims", 1) != 0,
       as_attribute = schema_version(OP_ReduceLogSumExp, match_opset(match)) < 18;
  Value *given =
      as_attribute ? NULL : rewrite_constant_ints(match->rewriter, match->root, numbers, count, match->root->origin);
  Value *inputs[] = {x, given};
  bool is_half = dtype_is_half(type.dtype); /* added up in float32, as JAX does */
  if (is_half) {
    Node *cast = EMIT_BEFORE(match, OP_Cast, type_with(type, DTYPE_FLOAT32), x);
    node_set_int(cast, "to", onnx_dtype(DTYPE_FLOAT32));
    inputs[0] = cast->outputs[0];
  }
  Emitter emitter = REWRITE_EMITTER(match->rewriter);
  Type wide = type_with(match_type(match), DTYPE_FLOAT32);
  Node *node = is_half ? match_node_before(match, OP_ReduceLogSumExp, wide, inputs, as_attribute ? 1 : 2, emitter)
                       : match_emit(match, OP_ReduceLogSumExp, inputs, as_attribute ? 1 : 2, emitter);
  if (as_attribute) node_set_ints(node, "axes", numbers, count);
  node_set_int(node, "keepdims", keep);
  return !is_half || EMIT_MATCH(match, OP_Narrow, node->outputs[0]);
}

static bool fuse_log_sum_exp(Match *match) {
  bool axes[MAX_RANK];
  return lines_up(match, axes) && emit_log_sum_exp(match, match->values[X_SLOT], axes);
}

/* Is it the largest element of x along the axes, as LARGEST_OF_X is written? */
static bool is_largest(const Value *value, const Value *x, const bool axes[MAX_RANK]) {
  const Node *node = value->producer;
  double number;
  while (node && node_has(node, RENAMES)) node = node_input(node, 0)->producer;
  if (node && node_is(node, OP_Max) && uniform_number(node_input(node, 0), &number) && number == -INFINITY)
    node = node_input(node, 1)->producer;
  if (node && node_is(node, OP_Min)) {
    const Node *first = node_input(node, 0)->producer;
    node = first && node_is(first, OP_ReduceMax) ? first : node_input(node, 1)->producer;
  }
  return node && node_is(node, OP_ReduceMax) && node_input(node, 0) == x &&
         same_axes(node->outputs[0], axes, x->type.rank) && is_reduced_shape(value->type, x->type, axes);
}

/* May the value be what is taken from the shifted elements for a LogSoftmax? */
static bool is_taken_from(const Value *value, const Value *shifted, int depth) {
  for (const Use *use = value->uses; use; use = use->next) {
    if (!use->node) continue;
    if (node_is(use->node, OP_Sub) && node_input(use->node, 0) == shifted) return true;
    bool is_moved = node_has(use->node, RENAMES) || node_is(use->node, OP_Narrow) || node_is(use->node, OP_Cast);
    if (is_moved && depth > 0 && is_taken_from(use->node->outputs[0], shifted, depth - 1)) return true;
  }
  return false;
}

/* Of elements that were shifted by their largest, and are read by others as well. */
static bool fuse_log_sum_exp_of_shifted(Match *match) {
  Value *shifted = match->values[DIFFERENCE];
  const Node *difference = shifted->producer;
  bool axes[MAX_RANK];
  if (!difference || !node_is(difference, OP_Sub) || !reduced_axes(match->values[SUM]->producer, axes)) return false;
  if (!is_largest(node_input(difference, 1), node_input(difference, 0), axes)) return false;
  if (is_taken_from(match->root->outputs[0], shifted, 2)) return false;
  return emit_log_sum_exp(match, shifted, axes);
}

/* The same, the shifted elements left to those who read them. */
#define SHIFTED_EXP OP_AT(EXP, Exp, ANY(DIFFERENCE))
#define SHIFTED_SUM OP_AT(SUM, ReduceSum, EITHER(OP(Cast, SHIFTED_EXP), SHIFTED_EXP))
#define SHIFTED_TOTAL EITHER(OP(Narrow, SHIFTED_SUM), SHIFTED_SUM)
#define LOG_TOTAL OP(Log, RESHAPED(TOTAL, TOTAL_OF(LARGEST_OF_X)))
/* jax.nn.logsumexp takes the absolute value, for its signed form. */
#define LOG_OF(total) OP(Log, EITHER(OP(Abs, total), total))

static bool fuse_log_softmax(Match *match) {
  bool hides_nan = target_has(match->rewriter->model->target, QUIRK_LOG_SOFTMAX_OF_DOUBLE_HIDES_NAN);
  return (match_dtype(match) != DTYPE_FLOAT64 || !hides_nan) && fuse_single_axis(match);
}

/* exp(log(softmax)) */
static bool fuse_exp_of_log(Match *match) {
  const Node *log = match->values[SUM]->producer;
  int64_t axis = node_int_or(log, "axis", -1);
  if (!match_keeps_type(match)) return false;
  node_set_int(EMIT_MATCH(match, OP_Softmax, match->values[X_SLOT]), "axis", axis);
  return true;
}

/* Elements that were shifted by their largest are shifted once more. */
static bool fuse_shifted_twice(Match *match) {
  Type type = match->values[X_SLOT]->type;
  bool axes[MAX_RANK] = {0};
  int64_t axis = node_int_or(match->root, "axis", -1);
  axis += axis < 0 ? type.rank : 0;
  if (!match_keeps_type(match) || axis < 0 || axis >= (int64_t)type.rank) return false;
  axes[axis] = true;
  if (!same_axes(match->values[MAXIMUM], axes, type.rank) || !same_axes(match->values[LENGTH], axes, type.rank) ||
      !is_reduced_shape(match->values[SHIFTED]->type, type, axes))
    return false;
  node_set_int(EMIT_MATCH(match, match->rule->op, match->values[X_SLOT]), "axis", node_int_or(match->root, "axis", -1));
  return true;
}

/* jax.nn.softmax(x, where=mask): x is -inf elsewhere, and what that becomes is left out of the sum once more. */
#define ANY_EXP EITHER(OP(Cast, EXP_OF(LARGEST_OF_X)), EXP_OF(LARGEST_OF_X))
#define KEPT_EXP \
  EITHER(OP_AT(KEPT, Where, ANY(MASK), ANY_EXP, NUMBER(0)), OP_AT(KEPT, Where, ANY(MASK), NUMBER(0), ANY_EXP))
#define WIDE_KEPT_TOTAL OP_AT(SUM, ReduceSum, EITHER(OP(Cast, KEPT_EXP), KEPT_EXP))
#define KEPT_TOTAL EITHER(OP(Narrow, WIDE_KEPT_TOTAL), EITHER(OP(Cast, WIDE_KEPT_TOTAL), WIDE_KEPT_TOTAL))

/* Has x -inf wherever the sum leaves something out? A row of nothing else is NaN either way. */
static bool fuse_where(Match *match) {
  const Node *kept = match->values[KEPT]->producer, *x = match->values[X_SLOT]->producer;
  double number;
  if (!x || !node_is(x, OP_Where) || node_input(x, 0) != match->values[MASK]) return false;
  size_t left_out = uniform_number(node_input(kept, 1), &number) ? 1 : 2;
  if (!spread_number(node_input(x, left_out), &number) || number != -INFINITY) return false;
  return fuse_single_axis(match);
}

#define TOTAL_OF_EXP RESHAPED(TOTAL, TOTAL_OF(LARGEST_OF_X))
#define INVERSE_TOTAL EITHER(OP(Reciprocal, TOTAL_OF_EXP), OP(Div, NUMBER(1), TOTAL_OF_EXP))

static const FusionRule rules[] = {
    {OP(Mul, ANY(EXP), INVERSE_TOTAL), OP_Softmax, fuse_single_axis},
    {OP(Exp, OP_AT(SUM, LogSoftmax, X)), OP_Softmax, fuse_exp_of_log},
    {OP(Div, ANY(EXP), TOTAL_OF_EXP), OP_Softmax, fuse_single_axis},
    {OP(Div, ANY(EXP), RESHAPED(TOTAL, KEPT_TOTAL)), OP_Softmax, fuse_where},
    {OP(Sub, ANY(DIFFERENCE), LOG_TOTAL), OP_LogSoftmax, fuse_log_softmax},
    {OP(Sub, ANY(DIFFERENCE), RESHAPED(TOTAL, OP(Log, TOTAL_OF(LARGEST_OF_X)))), OP_LogSoftmax, fuse_log_softmax},
    {OP(Add, LOG_OF(TOTAL_OF(FINITE_OR_0)), ANY(SHIFT)), OP_ReduceLogSumExp, fuse_log_sum_exp},
    {OP(Log, SHIFTED_TOTAL), OP_NONE, fuse_log_sum_exp_of_shifted},
    {OP(Softmax, DIFFERENCE_OF(LARGEST_OF_X)), OP_Softmax, fuse_shifted_twice},
    {OP(LogSoftmax, DIFFERENCE_OF(LARGEST_OF_X)), OP_LogSoftmax, fuse_shifted_twice},
};

bool fuse_softmax(Model *model) { return fuse_patterns(model, __func__, rules, sizeof rules / sizeof *rules); }
