/* Reductions: a sum divided by its size is a mean, and what puts back the reduced axes is a reduction that keeps them.
 */
#include <math.h>

#include "onnx/facts/schema.h"
#include "passes/analysis/size_values.h"
#include "passes/pattern.h"

enum { X_SLOT, SUM, SIZE, DIVISOR, ADDED };
#define X ANY(X_SLOT)

/* ReduceSum takes its axes as an input since opset 13, the others since 18. */
static bool axes_are_attribute(const Match *match, Op op) {
  return schema_version(op, match_opset(match)) < (op == OP_ReduceSum ? 13 : 18);
}

/* The reduction `op` of source over the axes of `like`, in place of the match. */
static bool emit_reduction(Match *match, Op op, Value *source, const Node *like, bool keep, Emitter emitter) {
  bool axes[MAX_RANK];
  int64_t numbers[MAX_RANK];
  size_t count = 0;
  if (!reduced_axes(like, axes)) return false;
  for (uint32_t i = 0; i < source->type.rank; i++) {
    if (axes[i]) numbers[count++] = i;
  }
  if (count == 0) return false;
  Value *given = node_input(like, 1);
  bool as_attribute = axes_are_attribute(match, op);
  if (!as_attribute && !given)
    given = rewrite_constant_ints(match->rewriter, match->root, numbers, count, match->root->origin);
  Value *inputs[] = {source, given};
  Node *node = match_emit(match, op, inputs, as_attribute ? 1 : 2, emitter);
  if (as_attribute) node_set_ints(node, "axes", numbers, count);
  node_set_int(node, "keepdims", keep);
  return true;
}
#define EMIT_REDUCTION(match, op, source, like, keep) \
  emit_reduction((match), (op), (source), (like), (keep), REWRITE_EMITTER((match)->rewriter))

static bool keeps_axes(const Node *reduce) { return node_int_or(reduce, "keepdims", 1) != 0; }

/* The pattern cannot name every reduction: the one under the Reshape joins the match here. */
static bool fuse_kept_axes(Match *match) {
  Node *reduce = match->values[X_SLOT]->producer;
  bool axes[MAX_RANK];
  if (!reduce || !node_has(reduce, REDUCES) || reduce->graph != match->root->graph || keeps_axes(reduce)) return false;
  if (value_use_count(match->values[X_SLOT]) != 1 || !reduced_axes(reduce, axes)) return false;
  Value *source = node_input(reduce, 0);
  if (match_type(match).rank != source->type.rank || !is_reduced_shape(match_type(match), source->type, axes))
    return false;
  match->nodes[match->node_count++] = reduce;
  return EMIT_REDUCTION(match, reduce->op, source, reduce, true);
}

/* Has the type the sizes that are not reduced, and no others? */
static bool lacks_axes(Type type, Type from, const bool axes[MAX_RANK]) {
  uint32_t kept = 0;
  for (uint32_t i = 0; i < from.rank; i++) {
    if (axes[i]) continue;
    if (kept == type.rank || !dim_equal(type.dims[kept++], from.dims[i])) return false;
  }
  return kept == type.rank;
}

/* The axes that a reduction keeps, left out afterwards. */
static bool fuse_dropped_axes(Match *match) {
  Node *reduce = match->values[X_SLOT]->producer;
  bool axes[MAX_RANK];
  if (!reduce || !node_has(reduce, REDUCES) || reduce->graph != match->root->graph || !keeps_axes(reduce)) return false;
  if (value_use_count(match->values[X_SLOT]) != 1 || !reduced_axes(reduce, axes)) return false;
  Value *source = node_input(reduce, 0);
  if (source->type.dtype == DTYPE_NONE || !lacks_axes(match_type(match), source->type, axes)) return false;
  match->nodes[match->node_count++] = reduce;
  return EMIT_REDUCTION(match, reduce->op, source, reduce, false);
}

/* How many elements go into each sum; 0 when that is not known. */
static int64_t summed(const Node *sum) {
  bool axes[MAX_RANK];
  int64_t count = 1;
  if (!reduced_axes(sum, axes)) return 0;
  Type type = node_input(sum, 0)->type;
  for (uint32_t i = 0; i < type.rank; i++) {
    if (!axes[i]) continue;
    if (!dim_is_constant(type.dims[i]) || __builtin_mul_overflow(count, type.dims[i].constant, &count)) return 0;
  }
  return count;
}

static bool fuse_mean_of(Match *match, double size) {
  const Node *sum = match->values[SUM]->producer;
  int64_t count = summed(sum);
  DType dtype = match_dtype(match);
  if (count == 0 || !dtype_is_float(dtype) || !type_equal(match_type(match), match->values[SUM]->type)) return false;
  DType precision = constant_of(match->values[SIZE])->precision; /* of a half that was widened */
  if (!near_number(precision ? precision : dtype, size, (double)count)) return false;
  return EMIT_REDUCTION(match, OP_ReduceMean, match->values[X_SLOT], sum, keeps_axes(sum));
}

static bool fuse_mean(Match *match) { return fuse_mean_of(match, match_number(match, SIZE)); }

static bool fuse_mean_by_product(Match *match) { return fuse_mean_of(match, 1 / match_number(match, SIZE)); }

/* Is the sum read by nothing but what divides it by a number? */
static bool is_only_divided(const Value *sum) {
  for (const Use *use = sum->uses; use; use = use->next) {
    double number;
    if (!use->node || (!node_is(use->node, OP_Div) && !node_is(use->node, OP_Mul))) return false;
    const Value *other = node_input(use->node, node_is(use->node, OP_Div) || node_input(use->node, 0) == sum);
    if (other == sum || !uniform_number(other, &number)) return false;
  }
  return true;
}

/* A sum that becomes a mean in several ways: each takes it for itself. */
static bool fuse_shared_mean(Match *match) {
  Node *sum = match->values[SUM]->producer;
  if (!sum || !node_is(sum, OP_ReduceSum) || value_use_count(match->values[SUM]) < 2) return false;
  if (!is_only_divided(match->values[SUM])) return false;
  match->values[X_SLOT] = node_input(sum, 0);
  if (!schema_runs(OP_ReduceMean, NULL, match_opset(match), match_dtype(match))) return false;
  match->nodes[match->node_count++] = sum; /* it goes with the last that reads it */
  double size = match_number(match, SIZE);
  return fuse_mean_of(match, node_is(match->root, OP_Div) ? size : 1 / size);
}

/* What the value is 1 by, or NULL. */
static const Value *beneath_one(const Value *value) {
  const Node *node = value->producer;
  if (node && node_is(node, OP_Reciprocal)) return node_input(node, 0);
  return node && node_is(node, OP_Div) && is_uniform_number(node_input(node, 0), 1) ? node_input(node, 1) : NULL;
}

/* Is the value how many elements go into each result of the reduction? */
static bool is_size_of(Match *match, const Value *value, const Node *reduce) {
  Context *context = match->rewriter->context;
  bool axes[MAX_RANK];
  Dim count = dim_of(1), size;
  if (!reduced_axes(reduce, axes) || !read_size(context, value, &size)) return false;
  Type type = node_input(reduce, 0)->type;
  for (uint32_t i = 0; i < type.rank; i++) {
    if (axes[i]) count = dim_multiply(context, count, type.dims[i]);
  }
  return dim_equal(count, size);
}

/* Over a size that is known only when the model runs, or times 1 by it. */
static bool fuse_mean_of_computed_size(Match *match) {
  const Node *sum = match->values[SUM]->producer;
  const Value *size = match->values[SIZE];
  if (node_is(match->root, OP_Mul) && !(size = beneath_one(size))) return false;
  if (match_dtype(match) != DTYPE_FLOAT32 || !type_equal(match_type(match), match->values[SUM]->type)) return false;
  if (!is_size_of(match, size, sum)) return false;
  return EMIT_REDUCTION(match, OP_ReduceMean, match->values[X_SLOT], sum, keeps_axes(sum));
}

/* A mean where there is something to take it of, else NaN, which the mean of nothing is itself. */
static bool fuse_guarded_mean(Match *match) {
  const Node *mean = match->values[X_SLOT]->producer;
  if (mean && node_is(mean, OP_Narrow)) mean = node_input(mean, 0)->producer;
  if (!mean || !node_is(mean, OP_ReduceMean) || !match_keeps_type(match)) return false;
  if (!isnan(match_number(match, SUM)) || !is_size_of(match, match->values[SIZE], mean)) return false;
  match_replace(match, match->values[X_SLOT]);
  return true;
}

/* JAX adds halves up in float32: the size is divided by there as well. */
static bool emit_mean_of_halves(Match *match) {
  const Node *sum = match->values[SUM]->producer;
  Type type = type_with(match_type(match), DTYPE_FLOAT32);
  if (!dtype_is_half(match_type(match).dtype) || !type_equal(match->values[SUM]->type, type)) return false;
  Value *inputs[] = {match->values[X_SLOT], node_input(sum, 1)};
  if (!inputs[1] || axes_are_attribute(match, OP_ReduceMean)) return false;
  Node *mean = match_node_before(match, OP_ReduceMean, type, inputs, 2, REWRITE_EMITTER(match->rewriter));
  node_set_int(mean, "keepdims", keeps_axes(sum));
  return EMIT_MATCH(match, OP_Narrow, mean->outputs[0]);
}

static bool fuse_mean_of_halves_by(Match *match, double size) {
  int64_t count = summed(match->values[SUM]->producer);
  return count > 0 && near_number(match_type(match).dtype, size, (double)count) && emit_mean_of_halves(match);
}

static bool fuse_mean_of_halves(Match *match) { return fuse_mean_of_halves_by(match, match_number(match, SIZE)); }

static bool fuse_mean_of_halves_by_product(Match *match) {
  return fuse_mean_of_halves_by(match, 1 / match_number(match, SIZE));
}

/* float16 has no number for sizes beyond 65504: by what becomes infinite there, JAX divides. */
static bool fuse_mean_of_halves_of_computed_size(Match *match) {
  const Value *size = match->values[SIZE];
  if (node_is(match->root, OP_Mul)) size = beneath_one(size);
  return size && match_type(match).dtype == DTYPE_BFLOAT16 && is_size_of(match, size, match->values[SUM]->producer) &&
         emit_mean_of_halves(match);
}

/* A mean of squares is left to the normalisations. */
static bool becomes_mean(Context *context, const Value *value, int depth) {
  for (const Use *use = value->uses; use; use = use->next) {
    if (!use->node) continue;
    double number;
    Dim size;
    if (node_is(use->node, OP_Div) && read_size(context, node_input(use->node, 1), &size)) return true;
    if (node_is(use->node, OP_Div) && uniform_number(node_input(use->node, 1), &number)) return true;
    if (node_is(use->node, OP_Mul) &&
        (uniform_number(node_input(use->node, 0), &number) || uniform_number(node_input(use->node, 1), &number)) &&
        number > 0)
      return true;
    bool moved = node_is(use->node, OP_Unsqueeze) || node_is(use->node, OP_Reshape);
    if (moved && depth > 0 && becomes_mean(context, use->node->outputs[0], depth - 1)) return true;
  }
  return false;
}

static bool fuse_sum_of_squares(Match *match) {
  if (becomes_mean(match->rewriter->context, match->root->outputs[0], 1)) return false;
  return EMIT_REDUCTION(match, OP_ReduceSumSquare, match->values[X_SLOT], match->root, keeps_axes(match->root));
}

/* A vector times itself; what was made a vector for it is summed over all its axes. */
static bool fuse_product_with_itself(Match *match) {
  Value *x = match->values[X_SLOT];
  int64_t numbers[MAX_RANK];
  if (x->type.rank != 1 || axes_are_attribute(match, OP_ReduceSum)) return false;
  if (!dtype_is_float(x->type.dtype)) return false; /* INTEGER_SUM_IN_DOUBLE */
  Node *before = x->producer;
  bool was_made = before && node_has(before, RENAMES) && node_input(before, 0)->type.dtype == x->type.dtype;
  if (was_made && node_input(before, 0)->type.rank > 0 && node_input(before, 0)->type.rank <= MAX_RANK) {
    x = node_input(before, 0);
    match_take(match, before->outputs[0], before->op);
  }
  for (uint32_t i = 0; i < x->type.rank; i++) numbers[i] = i;
  Value *squares = EMIT_BEFORE(match, OP_Mul, x->type, x, x)->outputs[0];
  Value *axes = rewrite_constant_ints(match->rewriter, match->root, numbers, x->type.rank, match->root->origin);
  node_set_int(EMIT_MATCH(match, OP_ReduceSum, squares, axes), "keepdims", 0);
  return true;
}

static bool fuse_length(Match *match) {
  const Node *sum = match->values[SUM]->producer;
  return EMIT_REDUCTION(match, OP_ReduceL2, match->values[X_SLOT], sum, keeps_axes(sum));
}

/* Before halves were widened. */
static const Value *unwidened(const Value *value) {
  while (value->producer && is_cast_of_half(value->producer)) value = node_input(value->producer, 0);
  return value;
}

enum { MOST_STEPS = 6 /* from a mean back to what it is the mean of */ };

/* Is the value a mean of x, or a sum of it times a number? */
static bool is_mean_of(const Value *value, const Value *x) {
  double number;
  for (int steps = 0; steps < MOST_STEPS && value->producer; steps++) {
    const Node *node = value->producer;
    bool is_share = node_is(node, OP_Div) || node_is(node, OP_Mul);
    bool is_passed = is_cast_of_half(node) || node_has(node, RENAMES);
    if (node_is(node, OP_ReduceMean) || node_is(node, OP_ReduceSum))
      return unwidened(node_input(node, 0)) == unwidened(x);
    if (!is_passed && !(is_share && uniform_number(node_input(node, 1), &number))) return false;
    value = node_input(node, 0);
  }
  return false;
}

/* x / s - mean / s, or with products, and perhaps something added: the difference comes first, where normalisations
 * look for it. Nothing is lost by that: what is subtracted last may be two large numbers. */
static bool join_difference(Match *match, Op op) {
  Value *x = match->values[X_SLOT], *mean = match->values[SUM], *by = match->values[DIVISOR];
  if (!match_keeps_type(match) || !is_mean_of(mean, x) || mean->type.dtype != by->type.dtype) return false;
  Value *difference = EMIT_BEFORE(match, OP_Sub, x->type, x, mean)->outputs[0];
  if (!match->values[ADDED]) return EMIT_MATCH(match, op, difference, by);
  Value *scaled = EMIT_BEFORE(match, op, x->type, difference, by)->outputs[0];
  return EMIT_MATCH(match, OP_Add, scaled, match->values[ADDED]);
}

static bool join_products(Match *match) { return join_difference(match, OP_Mul); }
static bool join_quotients(Match *match) { return join_difference(match, OP_Div); }

/* x - x is 0 or NaN, and so is its sum: whether all are finite is one comparison. */
static bool fuse_finite(Match *match, bool any_is_not) {
  const Node *reduce = match->root;
  Value *x = match->values[X_SLOT];
  DType dtype = match_dtype(match);
  if (dtype != DTYPE_FLOAT32 && dtype != DTYPE_FLOAT64) return false;
  if (match->nodes[1]->outputs[0]->type.dtype != DTYPE_UINT8 || axes_are_attribute(match, OP_ReduceSum)) return false;
  if (!node_input(reduce, 1)) return false;
  Type type = type_with(match_type(match), dtype), truth = type_with(type, DTYPE_BOOL);
  Value *difference = EMIT_BEFORE(match, OP_Sub, x->type, x, x)->outputs[0];
  Value *sum = EMIT_BEFORE(match, OP_ReduceSum, type, difference, node_input(reduce, 1))->outputs[0];
  node_set_int(sum->producer, "keepdims", keeps_axes(reduce));
  Value *zero = rewrite_constant_number(match->rewriter, match->root, dtype, 0, match->root->origin);
  Value *result = EMIT_BEFORE(match, OP_Equal, truth, sum, zero)->outputs[0];
  if (any_is_not) result = EMIT_BEFORE(match, OP_Not, truth, result)->outputs[0];
  node_set_int(EMIT_MATCH(match, OP_Cast, result), "to", onnx_dtype(DTYPE_UINT8));
  return true;
}

static bool fuse_all_finite(Match *match) { return fuse_finite(match, false); }
static bool fuse_any_not_finite(Match *match) { return fuse_finite(match, true); }

#define PRODUCT_OF(value) OP(Mul, value, ANY(DIVISOR))
#define QUOTIENT_OF(value) OP(Div, value, ANY(DIVISOR))
#define PRODUCT_OF_X PRODUCT_OF(X)
#define QUOTIENT_OF_X QUOTIENT_OF(X)
#define LESS_MEAN OP(Neg, ANY(SUM))
#define LESS_AND_MORE(share_of) \
  EITHER(OP(Add, share_of(LESS_MEAN), ANY(ADDED)), OP(Sub, ANY(ADDED), share_of(ANY(SUM))))
#define IS_FINITE OP(Equal, OP(Sub, X, X), NUMBER(0))

static const FusionRule rules[] = {
    {OP(Unsqueeze, X), OP_NONE, fuse_kept_axes},
    {OP(Reshape, X), OP_NONE, fuse_kept_axes},
    {OP(Reshape, X), OP_NONE, fuse_dropped_axes},
    {OP(Squeeze, X), OP_NONE, fuse_dropped_axes},
    {OP(Div, OP_AT(SUM, ReduceSum, X), UNIFORM(SIZE)), OP_ReduceMean, fuse_mean},
    {OP(Div, OP_AT(SUM, ReduceSum, X), ANY(SIZE)), OP_ReduceMean, fuse_mean_of_computed_size},
    {OP(Mul, OP_AT(SUM, ReduceSum, X), UNIFORM(SIZE)), OP_ReduceMean, fuse_mean_by_product},
    {OP(Mul, OP_AT(SUM, ReduceSum, X), ANY(SIZE)), OP_ReduceMean, fuse_mean_of_computed_size},
    {OP(Div, ANY(SUM), UNIFORM(SIZE)), OP_NONE, fuse_shared_mean},
    {OP(Mul, ANY(SUM), UNIFORM(SIZE)), OP_NONE, fuse_shared_mean},
    {OP(Div, OP(Narrow, OP_AT(SUM, ReduceSum, X)), UNIFORM(SIZE)), OP_ReduceMean, fuse_mean_of_halves},
    {OP(Mul, OP(Narrow, OP_AT(SUM, ReduceSum, X)), UNIFORM(SIZE)), OP_ReduceMean, fuse_mean_of_halves_by_product},
    {OP(Div, OP(Narrow, OP_AT(SUM, ReduceSum, X)), ANY(SIZE)), OP_ReduceMean, fuse_mean_of_halves_of_computed_size},
    {OP(Mul, OP(Narrow, OP_AT(SUM, ReduceSum, X)), ANY(SIZE)), OP_ReduceMean, fuse_mean_of_halves_of_computed_size},
    {OP(Where, OP(Greater, ANY(SIZE), NUMBER(0)), X, UNIFORM(SUM)), OP_NONE, fuse_guarded_mean},
    {OP(Sub, PRODUCT_OF_X, PRODUCT_OF(ANY(SUM))), OP_NONE, join_products},
    {OP(Sub, QUOTIENT_OF_X, QUOTIENT_OF(ANY(SUM))), OP_NONE, join_quotients},
    {OP(Add, PRODUCT_OF_X, PRODUCT_OF(LESS_MEAN)), OP_NONE, join_products},
    {OP(Add, QUOTIENT_OF_X, QUOTIENT_OF(LESS_MEAN)), OP_NONE, join_quotients},
    {OP(Add, PRODUCT_OF_X, LESS_AND_MORE(PRODUCT_OF)), OP_NONE, join_products},
    {OP(Add, QUOTIENT_OF_X, LESS_AND_MORE(QUOTIENT_OF)), OP_NONE, join_quotients},
    {OP(MatMul, X, X), OP_ReduceSum, fuse_product_with_itself},
    {OP(ReduceMin, OP(Cast, IS_FINITE)), OP_ReduceSum, fuse_all_finite},
    {OP(ReduceMax, OP(Cast, OP(Not, IS_FINITE))), OP_ReduceSum, fuse_any_not_finite},
    {OP(ReduceSum, OP(Mul, X, X)), OP_ReduceSumSquare, fuse_sum_of_squares},
    {OP(Sqrt, OP_AT(SUM, ReduceSumSquare, X)), OP_ReduceL2, fuse_length},
};

bool fuse_reductions(Model *model) { return fuse_patterns(model, __func__, rules, sizeof rules / sizeof *rules); }
