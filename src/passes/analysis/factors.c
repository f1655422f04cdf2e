/* Factors of axes: see factors.h. */
#include "passes/analysis/factors.h"

#include "passes/pattern.h"

bool factors_of(Type source, Factors *factors) {
  *factors = (Factors){.rank = source.rank};
  if (source.dtype == DTYPE_NONE || type_is_unranked(source) || source.rank > MOST_FACTORS) return false;
  for (uint32_t i = 0; i < source.rank; i++) {
    if (dim_is(source.dims[i], 0)) return false;
    if (dim_is(source.dims[i], 1)) continue;
    factors->all[factors->count++] = (Factor){.axis = i, .at = i, .size = source.dims[i], .stride = dim_of(1)};
  }
  return true;
}

/* The factor becomes two, of which the outer has this size. */
static bool part_factor(Context *context, Factors *factors, size_t at, Dim outer, Dim inner) {
  if (factors->count == MOST_FACTORS) return false;
  for (size_t i = factors->count++; i > at; i--) factors->all[i] = factors->all[i - 1];
  factors->all[at].size = outer;
  factors->all[at].stride = dim_multiply(context, factors->all[at].stride, inner);
  factors->all[at + 1].size = inner;
  return true;
}

/* Parts the factor if the axis, `taken` of whose elements are there, ends inside it. */
static bool part_at_end(Context *context, Factors *factors, size_t at, Dim taken, const Dim *axis, bool is_last) {
  Dim size = factors->all[at].size;
  if (dim_is_constant(size) && dim_is_constant(taken) && dim_is_constant(*axis)) {
    int64_t left = axis->constant % taken.constant ? 0 : axis->constant / taken.constant;
    if (left <= 1 || left >= size.constant || size.constant % left) return true;
    return part_factor(context, factors, at, dim_of(left), dim_of(size.constant / left));
  }
  if (is_last || !dim_is(taken, 1) || !dim_is_constant(axis[1]) || axis[1].constant < 2) return true;
  if (!dim_equal(dim_multiply(context, axis[0], axis[1]), size)) return true;
  return part_factor(context, factors, at, axis[0], axis[1]);
}

bool factors_reshape(Context *context, Factors *factors, Type to) {
  size_t next = 0;
  if (to.dtype == DTYPE_NONE || type_is_unranked(to)) return false;
  for (uint32_t i = 0; i < to.rank; i++) {
    Dim taken = dim_of(1);
    if (dim_is(to.dims[i], 0)) return false;
    while (!dim_equal(taken, to.dims[i])) {
      if (next == factors->count) return false;
      if (!part_at_end(context, factors, next, taken, to.dims + i, i + 1 == to.rank)) return false;
      taken = dim_multiply(context, taken, factors->all[next].size);
      factors->all[next++].at = i;
      bool is_known = dim_is_constant(taken) && dim_is_constant(to.dims[i]);
      if (is_known && to.dims[i].constant % taken.constant) return false;
    }
  }
  factors->rank = to.rank;
  return next == factors->count;
}

bool factors_transpose(Factors *factors, const int64_t *order, size_t rank) {
  Factors result = *factors;
  if (rank != factors->rank) return false;
  result.count = 0;
  for (uint32_t i = 0; i < rank; i++) {
    for (size_t k = 0; k < factors->count; k++) {
      if (factors->all[k].at != order[i]) continue;
      result.all[result.count] = factors->all[k];
      result.all[result.count++].at = i;
    }
  }
  *factors = result;
  return true;
}

static bool reduce(Factors *factors, const Node *node) {
  bool axes[MAX_RANK];
  uint32_t moved[MAX_RANK], rank = 0;
  bool keeps = node_int_or(node, "keepdims", 1) != 0;
  size_t count = 0;
  if (factors->rank > MAX_RANK || !reduced_axes(node, axes)) return false;
  for (uint32_t i = 0; i < factors->rank; i++) {
    moved[i] = rank;
    rank += keeps || !axes[i];
  }
  for (size_t i = 0; i < factors->count; i++) {
    Factor factor = factors->all[i];
    if (axes[factor.at]) {
      if (factors->reduced_count == MOST_FACTORS) return false;
      factors->reduced[factors->reduced_count++] = factor;
      continue;
    }
    factor.at = moved[factor.at];
    factors->all[count++] = factor;
  }
  factors->count = count;
  factors->rank = rank;
  return true;
}

/* A Loop without a step leaves shapes that are not what their types say, which a Reshape to computed sizes mends. */
bool is_followed(const Node *node) {
  if (node_is(node, OP_Reshape)) return !node_int_or(node, "allowzero", 0) || constant_of(node_input(node, 1));
  return node_has(node, RENAMES) || node_is(node, OP_Transpose) || node_is(node, OP_ReduceMean);
}

bool factors_follow(Context *context, Factors *factors, const Node *node) {
  if (node_is(node, OP_Transpose)) {
    const Attribute *order = node_attribute(node, "perm");
    return order && factors_transpose(factors, order->integers, order->count);
  }
  if (node_is(node, OP_ReduceMean)) return reduce(factors, node);
  return is_followed(node) && factors_reshape(context, factors, node->outputs[0]->type);
}

static size_t join(Context *context, Factor *all, size_t count, bool within_axes) {
  size_t kept = 0;
  for (size_t i = 0; i < count; i++) {
    Factor *last = kept ? &all[kept - 1] : NULL;
    bool beside = last && last->axis == all[i].axis && (!within_axes || last->at == all[i].at) &&
                  dim_equal(last->stride, dim_multiply(context, all[i].stride, all[i].size));
    if (beside) {
      last->size = dim_multiply(context, last->size, all[i].size);
      last->stride = all[i].stride;
    } else {
      all[kept++] = all[i];
    }
  }
  return kept;
}

void factors_join(Context *context, Factors *factors) {
  factors->count = join(context, factors->all, factors->count, true);
  factors->reduced_count = join(context, factors->reduced, factors->reduced_count, false);
}

static bool same_factors(const Factor *a, const Factor *b, size_t count) {
  for (size_t i = 0; i < count; i++) {
    if (a[i].axis != b[i].axis || a[i].at != b[i].at) return false;
    if (!dim_equal(a[i].size, b[i].size) || !dim_equal(a[i].stride, b[i].stride)) return false;
  }
  return true;
}

bool factors_equal(const Factors *a, const Factors *b) {
  return a->rank == b->rank && a->count == b->count && !a->reduced_count && !b->reduced_count &&
         same_factors(a->all, b->all, a->count);
}

FactorChain factor_chain(Node *last) {
  FactorChain chain = {.count = 0};
  for (Node *node = last; node && is_followed(node) && chain.count < MOST_FOLLOWED;) {
    chain.nodes[chain.count++] = node;
    Value *read = node_input(node, 0);
    Node *before = read ? read->producer : NULL;
    node = before && before->graph == last->graph && value_only_user(read) == node ? before : NULL;
  }
  return chain;
}

bool factors_of_chain(Context *context, const FactorChain *chain, size_t length, Factors *factors) {
  if (!factors_of(node_input(chain->nodes[length - 1], 0)->type, factors)) return false;
  for (size_t i = length; i-- > 0;) {
    if (!factors_follow(context, factors, chain->nodes[i])) return false;
  }
  factors_join(context, factors);
  return true;
}
