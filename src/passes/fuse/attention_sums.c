/* Products of attention that are written as sums: sum(q * k) for scores, sum(weights * v) for what is weighed.
 *
 * Before a softmax, or of its result, they become a MatMul, which is what Attention is read from. */
#include "passes/fuse/attention_parts.h"

typedef struct SummedProduct {
  Atoms atoms;
  Axes factors[2], result; /* `result` without the axis that is summed over */
  Arrangement placed[2], back;
  Axes made; /* of the MatMul */
} SummedProduct;

/* Do they go to a softmax, through what is done to scores? */
static bool may_be_scores(const Node *node) {
  enum { LOOKED_AT = 8 };
  for (int i = 0; i < LOOKED_AT && node; i++) {
    if (node_is(node, OP_Softmax)) return true;
    if (i && !keeps_numbers(node) && !node_has(node, ELEMENTWISE)) return false;
    node = value_only_user(node->outputs[0]);
  }
  return false;
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
  if (!may_be_scores(sum) && !may_be_weights(left) && !may_be_weights(right)) return false;
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
