/* Products of attention that are written as sums: sum(q * k) for scores, sum(weights * v) for what is weighed; and
 * products of a vector: a single query, or its weights.
 *
 * Before a softmax, or of its result, they become a MatMul of matrices, which is what Attention is read from. */
#include "onnx/facts/schema.h"
#include "passes/fuse/attention_parts.h"

typedef struct SummedProduct {
  Atoms atoms;
  Axes factors[2], result; /* `result` without the axis that is summed over */
  Arrangement placed[2], back;
  Axes made; /* of the MatMul */
} SummedProduct;

enum { LOOKED_AT = 8 };

static bool is_product(const Node *node) {
  return node_is(node, OP_MatMul) || node_is(node, OP_Gemm) || node_is(node, OP_ReduceSum);
}

/* Also as exp(x - logsumexp(x)). */
static bool is_softmax(const Node *node) {
  const Node *shifted = node_is(node, OP_Exp) ? node_input(node, 0)->producer : NULL;
  if (!shifted || !node_is(shifted, OP_Sub)) return node_is(node, OP_Softmax);
  const Node *total = node_input(shifted, 1)->producer;
  for (int i = 0; i < LOOKED_AT && total && keeps_numbers(total); i++) total = node_input(total, 0)->producer;
  return total && node_is(total, OP_ReduceLogSumExp);
}

/* Who alone reads it, beside the logarithm of a sum that is taken from it. */
static const Node *next_of(const Node *node) {
  const Value *value = node->outputs[0];
  const Node *next = NULL;
  for (const Use *use = value->uses; use; use = use->next) {
    if (use->node && node_is(use->node, OP_ReduceLogSumExp)) continue;
    if (next || !use->node) return NULL;
    next = use->node;
  }
  return next;
}

/* Do they go to a softmax, through what is done to scores, and its result to another product? */
static bool may_be_scores(const Node *root) {
  const Node *node = next_of(root);
  bool is_weighed = false;
  for (int i = 0; i < LOOKED_AT + 2 && node; i++) {
    if (is_weighed && is_product(node)) return true;
    is_weighed = is_weighed || is_softmax(node);
    if (!node_is(node, OP_Softmax) && !keeps_numbers(node) && !node_has(node, ELEMENTWISE)) return false;
    node = next_of(node);
  }
  return false;
}

static bool comes_from_product(const Value *value, int depth) {
  const Node *node = value->producer;
  if (!node || depth == 0) return false;
  if (is_product(node)) return true;
  if (!keeps_numbers(node) && !node_has(node, ELEMENTWISE)) return false;
  for (size_t i = 0; i < node->input_count; i++) {
    if (node_input(node, i) && comes_from_product(node_input(node, i), depth - 1)) return true;
  }
  return false;
}

/* Are they the softmax of what comes from a product, of which some may be put out? */
static bool may_be_shares(const Value *value, int depth) {
  const Node *node = value->producer;
  if (!node || depth == 0) return false;
  if (is_softmax(node)) return comes_from_product(node_input(node, 0), LOOKED_AT);
  if (keeps_numbers(node)) return may_be_shares(node_input(node, 0), depth - 1);
  if (node_is(node, OP_Mul))
    return may_be_shares(node_input(node, 0), depth - 1) || may_be_shares(node_input(node, 1), depth - 1);
  return node_is(node, OP_Where) &&
         (may_be_shares(node_input(node, 1), depth - 1) || may_be_shares(node_input(node, 2), depth - 1));
}

/* One of the two products of attention, by what is around it. */
static bool may_be_of_attention(const Match *match, const Value *left, const Value *right) {
  return schema_runs(OP_Attention, NULL, match_opset(match), DTYPE_FLOAT32) &&
         (may_be_scores(match->root) || may_be_shares(left, LOOKED_AT) || may_be_shares(right, LOOKED_AT));
}

static bool add_axis(Axes *axes, const Axis *axis) {
  if (axes->rank == MOST_AXES) return false;
  axes->axis[axes->rank++] = *axis;
  return true;
}

/* Axes that both factors have are the batch; of those that only one has there may be one each. */
static bool plan_product(SummedProduct *product, const Axes *all, const Axis *summed) {
  Axes wanted[2] = {0};
  Axis own[2] = {0};
  for (uint32_t i = 0; i < all->rank; i++) {
    const Axis *axis = &all->axis[i];
    bool has[2];
    if (!axis->count || same_axis(axis, summed)) continue;
    for (int side = 0; side < 2; side++) has[side] = axes_set(&product->factors[side]) & axis_set(axis);
    if (has[0] && has[1]) {
      if (!add_axis(&wanted[0], axis) || !add_axis(&wanted[1], axis)) return false;
    } else {
      Axis *only = &own[has[0] ? 0 : 1];
      if (only->count) return false;
      *only = *axis;
    }
  }
  product->made = wanted[0];
  return add_axis(&wanted[0], &own[0]) && add_axis(&wanted[0], summed) && add_axis(&wanted[1], summed) &&
         add_axis(&wanted[1], &own[1]) && add_axis(&product->made, &own[0]) && add_axis(&product->made, &own[1]) &&
         plan_arrangement(&product->atoms, product->placed[0].source, &product->factors[0], &wanted[0],
                          &product->placed[0]) &&
         plan_arrangement(&product->atoms, product->placed[1].source, &product->factors[1], &wanted[1],
                          &product->placed[1]);
}

/* The one axis that is summed over; false when there are several, or one factor does not have it. */
static bool find_summed(const SummedProduct *product, const Node *sum, const Axes *all, Axis *summed, Axes *result) {
  bool axes[MAX_RANK], keeps = node_int_or(sum, "keepdims", 1) != 0;
  int found = 0;
  *result = (Axes){0};
  if (!reduced_axes(sum, axes)) return false;
  for (uint32_t i = 0; i < all->rank; i++) {
    found += axes[i];
    if (axes[i]) *summed = all->axis[i];
    if (!axes[i] || keeps) result->axis[result->rank++] = axes[i] ? (Axis){0} : all->axis[i];
  }
  AtomSet set = found == 1 ? axis_set(summed) : 0;
  return set && (axes_set(&product->factors[0]) & set) && (axes_set(&product->factors[1]) & set);
}

bool fuse_summed_product(Match *match) {
  const Node *sum = match->root;
  SummedProduct product = {.atoms = {.context = match->rewriter->context}};
  Value *source = node_input(sum, 0);
  if (source->producer && is_cast_of_half(source->producer) && match_take(match, source, OP_Cast))
    source = node_input(source->producer, 0);
  Node *factors = match_take(match, source, OP_Mul);
  if (!factors || !dtype_is_float(source->type.dtype)) return false;
  Value *left = node_input(factors, 0), *right = node_input(factors, 1);
  if (!may_be_of_attention(match, left, right)) return false;
  Axes all;
  Axis summed;
  if (!axes_begin(&product.atoms, source->type, &all) || !broadcast_axes(&all, left->type, &product.factors[0]) ||
      !broadcast_axes(&all, right->type, &product.factors[1]))
    return false;
  product.placed[0].source = left, product.placed[1].source = right;
  if (!find_summed(&product, sum, &all, &summed, &product.result) || !plan_product(&product, &all, &summed))
    return false;
  Value probe = {.type = axes_type(&product.atoms, &product.made, source->type.dtype)};
  if (!plan_arrangement(&product.atoms, &probe, &product.made, &product.result, &product.back)) return false;
  Value *one = arrange(match, &product.placed[0]), *other = arrange(match, &product.placed[1]);
  product.back.source = EMIT_BEFORE(match, OP_MatMul, probe.type, one, other)->outputs[0];
  match_replace(match, match_in_type(match, arrange(match, &product.back), match_dtype(match)));
  return true;
}

/* Of a vector, which becomes a matrix of one row or one column. */
bool fuse_vector_product(Match *match) {
  Rewriter *rewriter = match->rewriter;
  Node *root = match->root;
  Value *operands[] = {node_input(root, 0), node_input(root, 1)};
  Type result = match_type(match);
  bool is_left = operands[0]->type.dtype != DTYPE_NONE && operands[0]->type.rank == 1;
  const Value *other = operands[is_left];
  if (other->type.dtype == DTYPE_NONE || other->type.rank < 2 || operands[!is_left]->type.rank != 1) return false;
  if (operands[!is_left]->type.dtype == DTYPE_NONE || result.rank + 1 > MOST_AXES) return false;
  if (!may_be_of_attention(match, operands[0], operands[1])) return false;
  Type vector = operands[!is_left]->type;
  const Dim dims[] = {is_left ? dim_of(1) : vector.dims[0], is_left ? vector.dims[0] : dim_of(1)};
  const int64_t at = is_left ? 0 : 1, gone = is_left ? (int64_t)result.rank - 1 : (int64_t)result.rank;
  Value *axes = rewrite_constant_ints(rewriter, root, &at, 1, root->origin);
  Type matrix = type_make(rewriter->context, vector.dtype, dims, 2);
  operands[!is_left] = EMIT_BEFORE(match, OP_Unsqueeze, matrix, operands[!is_left], axes)->outputs[0];
  Dim wide[MOST_AXES];
  for (uint32_t i = 0; i <= result.rank; i++)
    wide[i] = i == (uint32_t)gone ? dim_of(1) : result.dims[i - (i > (uint32_t)gone)];
  Type type = type_make(rewriter->context, result.dtype, wide, result.rank + 1);
  Value *made = EMIT_BEFORE(match, OP_MatMul, type, operands[0], operands[1])->outputs[0];
  Value *one = rewrite_constant_ints(rewriter, root, &gone, 1, root->origin);
  return EMIT_MATCH(match, OP_Squeeze, made, one);
}
