/* Root mean squares, where there is no RMSNormalization yet, in the form that the target fuses by itself:
 * x / sqrt(mean(x ^ 2) + epsilon), and then the scale. */
#include <math.h>

#include "onnx/facts/schema.h"
#include "passes/fuse/normalization.h"
#include "target/target.h"
#include "types/numbers.h"

static Value *number(Match *match, double value) {
  return rewrite_constant_number(match->rewriter, match->root, DTYPE_FLOAT32, value, match->root->origin);
}

static Node *made_by(const Value *value, Op op) {
  return value && value->producer && node_is(value->producer, op) ? value->producer : NULL;
}

/* Is it in that form? */
static bool is_spelled(const Node *root) {
  const Node *sqrt = node_is(root, OP_Div) ? made_by(node_input(root, 1), OP_Sqrt) : NULL;
  const Node *add = sqrt ? made_by(node_input(sqrt, 0), OP_Add) : NULL;
  const Node *mean = add ? made_by(node_input(add, 0), OP_ReduceMean) : NULL;
  const Node *square = mean ? made_by(node_input(mean, 0), OP_Pow) : NULL;
  return square && node_input(square, 0) == node_input(root, 0);
}

static Value *mean_over(Match *match, Value *value, const bool axes[MAX_RANK]) {
  int64_t numbers[MAX_RANK];
  Dim dims[MAX_RANK];
  size_t count = 0;
  Type type = value->type;
  for (uint32_t i = 0; i < type.rank; i++) {
    dims[i] = axes[i] ? dim_of(1) : type.dims[i];
    if (axes[i]) numbers[count++] = (int64_t)i - type.rank; /* from the end: it fuses no others */
  }
  type = type_make(match->rewriter->context, type.dtype, dims, type.rank);
  bool as_attribute = schema_version(OP_ReduceMean, match_opset(match)) < 18;
  Value *inputs[] = {value, NULL};
  if (!as_attribute) {
    inputs[1] = rewrite_constant_ints(match->rewriter, match->root, numbers, count, match->root->origin);
  }
  Emitter emitter = REWRITE_EMITTER(match->rewriter);
  Node *mean = match_node_before(match, OP_ReduceMean, type, inputs, as_attribute ? 1 : 2, emitter);
  if (as_attribute) node_set_ints(mean, "axes", numbers, count);
  node_set_int(mean, "keepdims", 1);
  return mean->outputs[0];
}

static bool spell(Match *match) {
  Normalized found;
  Type type = match_type(match);
  if (type.dtype != DTYPE_FLOAT32 || is_spelled(match->root) || !read_normalized(match, &found)) return false;
  if (found.is_centred || !(found.epsilon >= 0) || !isfinite(found.epsilon)) return false;
  if (!type_same_shape(found.x->type, type) || !dtype_fits_float32(found.x->type.dtype)) return false;
  if (found.scale && found.scale->type.dtype != type.dtype) return false;
  Value *x = match_in_type(match, found.x, type.dtype);
  Value *square = EMIT_BEFORE(match, OP_Pow, type, x, number(match, 2))->outputs[0];
  Value *mean = mean_over(match, square, found.axes);
  Value *sum = EMIT_BEFORE(match, OP_Add, mean->type, mean, number(match, found.epsilon))->outputs[0];
  Value *root = EMIT_BEFORE(match, OP_Sqrt, mean->type, sum)->outputs[0];
  if (!found.scale) {
    EMIT_MATCH(match, OP_Div, x, root);
    return true;
  }
  Node *quotient = EMIT_BEFORE(match, OP_Div, type, x, root);
  EMIT_MATCH(match, OP_Mul, quotient->outputs[0], found.scale);
  return true;
}

static const FusionRule rules[] = {
    {OP(Mul, ANY(0)), OP_NONE, spell},
    {OP(Div, ANY(0)), OP_NONE, spell},
};

bool spell_root_mean_squares(Model *model) {
  if (!target_is_onnx_runtime(model->target) || !target_has(model->target, QUIRK_ROOT_MEAN_SQUARE_IS_FUSED_AS_QUOTIENT))
    return false;
  if (schema_version(OP_RMSNormalization, model->opset)) return false;
  return fuse_patterns(model, __func__, rules, sizeof rules / sizeof *rules);
}
