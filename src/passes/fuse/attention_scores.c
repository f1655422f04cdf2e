/* softmax(scale * Q Kᵀ + bias, masked) V as one operator.
 *
 * Scores have two to four axes. With a batch and heads they are the operator's own; the first of three is a batch of
 * single heads, or the heads where positions stand before them; two are a single head. Halves are computed in float32
 * where ONNX Runtime has no kernel for them, and where a mask is added, which they are not precise enough for. */
#include <float.h>
#include <math.h>

#include "base/bytes.h"
#include "onnx/facts/schema.h"
#include "passes/analysis/masks.h"
#include "passes/fuse/attention.h"

/* ---- reading ---- */

/* Nor are leading axes of size 1. */
static bool is_no_matter(const Node *node) {
  const Value *source = node_input(node, 0), *value = node->outputs[0];
  if (!source || !value) return false; /* an If, or one whose first output nobody reads */
  if (node_has(node, RENAMES)) return same_from_end(source->type, value->type);
  return is_cast_of_half(node);
}

static Value *without_cast(Match *match, Value *value) {
  for (Node *node; (node = value->producer) && is_no_matter(node);) {
    if (!match_take(match, value, node->op)) return value;
    value = node_input(node, 0);
  }
  return value;
}

/* A factor that is the same everywhere leaves the value and goes into the scale. */
static Value *without_scale(Match *match, Value *value, double *scale) {
  for (;;) {
    value = without_cast(match, value);
    Node *node = value->producer;
    double number;
    if (!node || (!node_is(node, OP_Mul) && !node_is(node, OP_Div))) return value;
    bool swapped = node_is(node, OP_Mul) && uniform_number(node_input(node, 0), &number);
    Value *source = node_input(node, swapped);
    if (!uniform_number(node_input(node, !swapped), &number) || !type_equal(source->type, value->type)) return value;
    if (!match_take(match, value, node->op)) return value;
    *scale = node_is(node, OP_Div) ? *scale / number : *scale * number;
    value = source;
  }
}

/* The same for an operand: as far as it keeps its rank. */
static Value *of_rank(Match *match, Value *value, uint32_t rank, double *scale) {
  size_t before = match->node_count;
  double saved = *scale;
  Value *bare = without_scale(match, value, scale);
  if (bare->type.rank == rank) return bare;
  match->node_count = before;
  *scale = saved;
  return value;
}

static bool read_product(Match *match, Value *value, Scores *scores) {
  value = without_scale(match, value, &scores->scale);
  Node *product = match_take(match, value, OP_MatMul);
  if (!product) return false;
  uint32_t rank = value->type.rank;
  scores->query = of_rank(match, node_input(product, 0), rank, &scores->scale);
  scores->keys = of_rank(match, node_input(product, 1), rank, &scores->scale);
  scores->type = value->type;
  return true;
}

static bool read_biased(Match *match, Value *value, Scores *scores) {
  size_t before = match->node_count;
  Scores saved = *scores;
  if (read_product(match, value, scores)) return true;
  match->node_count = before;
  *scores = saved;
  value = without_cast(match, value);
  Node *sum = match_take(match, value, OP_Add);
  for (size_t side = 0; sum && side < 2; side++) {
    before = match->node_count;
    *scores = saved;
    scores->bias = node_input(sum, 1 - side);
    if (read_product(match, node_input(sum, side), scores)) return true;
    match->node_count = before;
  }
  return false;
}

static bool read_scores(Match *match, Value *value, Scores *scores) {
  value = without_cast(match, value);
  Node *choice = match_take(match, value, OP_Where);
  *scores = (Scores){.scale = 1};
  if (!choice) return read_biased(match, value, scores);
  for (size_t kept = 1; kept <= 2; kept++) {
    if (!spread_number(node_input(choice, 3 - kept), &scores->fill)) continue;
    scores->mask = node_input(choice, 0);
    scores->inverted = kept == 2;
    return read_biased(match, node_input(choice, kept), scores);
  }
  return false;
}

/* ---- the operator ---- */

/* Leading axes the same, features and positions where they belong. */
static bool fits_together(const Match *match, const Scores *scores, const Value *values) {
  Type query = scores->query->type, keys = scores->keys->type, type = values->type;
  uint32_t rank = scores->type.rank;
  if (rank < 2 || rank > 4 || query.rank != rank || keys.rank != rank || type.rank != rank) return false;
  return match_type(match).rank == rank && same_dims(query, keys, 0, rank - 2) && same_dims(query, type, 0, rank - 2) &&
         dim_equal(keys.dims[rank - 1], type.dims[rank - 2]);
}

/* 1 / sqrt of the number of features is what the operator does by itself. */
static bool is_default_scale(const Scores *scores) {
  Dim features = scores->query->type.dims[scores->query->type.rank - 1];
  return dim_is_constant(features) && near_number(DTYPE_FLOAT32, scores->scale, 1 / sqrt((double)features.constant));
}

Value *features_last(Match *match, Value *value) {
  uint32_t rank = value->type.rank;
  int64_t order[4] = {0, 1, 2, 3};
  Node *transpose = value->producer;
  const Attribute *given = transpose && node_is(transpose, OP_Transpose) ? node_attribute(transpose, "perm") : NULL;
  bool is_same = true;
  if (given && given->count == rank) {
    copy_bytes(order, given->integers, rank * sizeof *order);
    match_take(match, value, OP_Transpose);
    value = node_input(transpose, 0);
  } else {
    given = NULL;
  }
  int64_t last = order[rank - 1];
  order[rank - 1] = order[rank - 2];
  order[rank - 2] = last;
  for (uint32_t i = 0; i < rank; i++) is_same = is_same && order[i] == (int64_t)i;
  if (is_same) return value;
  Dim dims[4];
  for (uint32_t i = 0; i < rank; i++) dims[i] = value->type.dims[order[i]];
  Type type = type_make(match->rewriter->context, value->type.dtype, dims, rank);
  Node *node = EMIT_BEFORE(match, OP_Transpose, type, value);
  if (given) rewrite_hand_over(match->rewriter, node, transpose);
  node_set_ints(node, "perm", order, rank);
  return node->outputs[0];
}

void set_attention(Node *node, const Scores *scores, bool causal) {
  if (causal) node_set_int(node, "is_causal", 1);
  if (!is_default_scale(scores)) node_set_float(node, "scale", (float)scores->scale);
}

static Value *reshaped(Match *match, Value *value, Type type) {
  int64_t numbers[4];
  size_t unknown = 0;
  for (uint32_t i = 0; i < type.rank; i++) {
    numbers[i] = dim_is_constant(type.dims[i]) ? type.dims[i].constant : -1;
    unknown += numbers[i] < 0;
  }
  for (uint32_t i = 0; i < type.rank && unknown > 1; i++) { /* at most one is left for the operator to find */
    bool is_kept = i < value->type.rank && dim_equal(value->type.dims[i], type.dims[i]);
    if (numbers[i] < 0 && is_kept) numbers[i] = 0, unknown--;
  }
  Value *shape = rewrite_constant_ints(match->rewriter, match->root, numbers, type.rank, match->root->origin);
  return EMIT_BEFORE(match, OP_Reshape, type, value, shape)->outputs[0];
}

/* Where the value was positions, heads, features: 1, positions, heads times features. */
static Value *heads_in_rows(Match *match, Value *value) {
  const Node *node = value->producer;
  const Attribute *order = node && node_is(node, OP_Transpose) ? node_attribute(node, "perm") : NULL;
  if (!order || order->count != 3 || order->integers[0] != 1 || order->integers[1] != 0) return NULL;
  Type type = node_input(node, 0)->type;
  if (!dim_is_constant(type.dims[1]) || !dim_is_constant(type.dims[2])) return NULL;
  const Dim dims[] = {dim_of(1), type.dims[0], dim_of(type.dims[1].constant * type.dims[2].constant)};
  match_take(match, value, OP_Transpose);
  return reshaped(match, node_input(node, 0), type_make(match->rewriter->context, type.dtype, dims, 3));
}

/* Three axes of which the first is the heads, and positions stood before them. */
static bool emit_heads_in_rows(Match *match, const Scores *scores, Value *const inputs[4], bool causal, DType dtype) {
  Context *context = match->rewriter->context;
  Value *given[4] = {NULL, NULL, NULL, inputs[3]};
  Type type = match_type(match);
  if (!dim_is_constant(type.dims[0]) || !dim_is_constant(type.dims[2])) return false;
  for (int i = 0; i < 3; i++) {
    const Node *node = inputs[i]->producer;
    const Attribute *order = node && node_is(node, OP_Transpose) ? node_attribute(node, "perm") : NULL;
    if (!order || order->count != 3 || order->integers[0] != 1 || order->integers[1] != 0) return false;
  }
  for (int i = 0; i < 3; i++) {
    if (!(given[i] = heads_in_rows(match, inputs[i]))) return false;
    given[i] = match_in_type(match, given[i], dtype);
  }
  int64_t heads = type.dims[0].constant;
  const Dim rows[] = {dim_of(1), type.dims[1], dim_of(heads * type.dims[2].constant)};
  const Dim apart[] = {type.dims[1], type.dims[0], type.dims[2]};
  Type flat = type_make(context, dtype, rows, 3);
  Node *node = match_node_before(match, OP_Attention, flat, given, given[3] ? 4 : 3, REWRITE_EMITTER(match->rewriter));
  set_attention(node, scores, causal);
  node_set_int(node, "q_num_heads", heads);
  node_set_int(node, "kv_num_heads", heads);
  for (size_t i = 1; i < match->node_count; i++) rewrite_hand_over(match->rewriter, node, match->nodes[i]);
  Value *result = match_in_type(match, node->outputs[0], type.dtype);
  result = reshaped(match, result, type_make(context, type.dtype, apart, 3));
  node_set_ints(EMIT_MATCH(match, OP_Transpose, result), "perm", (const int64_t[]){1, 0, 2}, 3);
  return true;
}

/* One axis more: 1 before two, or after the batch of a mask. */
static Value *with_axis(Match *match, Value *value, uint32_t at) {
  Dim dims[4];
  int64_t axis = at;
  Type from = value->type;
  for (uint32_t i = 0; i <= from.rank; i++) dims[i] = i == at ? dim_of(1) : from.dims[i - (i > at)];
  Type type = type_make(match->rewriter->context, from.dtype, dims, from.rank + 1);
  Value *axes = rewrite_constant_ints(match->rewriter, match->root, &axis, 1, match->root->origin);
  return EMIT_BEFORE(match, OP_Unsqueeze, type, value, axes)->outputs[0];
}

static void emit(Match *match, const Scores *scores, Value *const inputs[4], bool causal, DType dtype) {
  Type type = match_type(match);
  Value *given[4] = {inputs[0], inputs[1], inputs[2], inputs[3]};
  for (int i = 0; i < 3; i++) {
    given[i] = match_in_type(match, given[i], dtype);
    if (type.rank == 2) given[i] = with_axis(match, given[i], 0);
  }
  if (type.rank == 3 && given[3] && given[3]->type.rank == 3) given[3] = with_axis(match, given[3], 1);
  Type made = type_with(type, dtype);
  if (type.rank == 2)
    made = type_make(match->rewriter->context, dtype, (Dim[]){dim_of(1), type.dims[0], type.dims[1]}, 3);
  Node *node = match_node_before(match, OP_Attention, made, given, given[3] ? 4 : 3, REWRITE_EMITTER(match->rewriter));
  set_attention(node, scores, causal);
  if (type.rank < 4) {
    node_set_int(node, "q_num_heads", 1);
    node_set_int(node, "kv_num_heads", 1);
  }
  Value *result = node->outputs[0];
  for (size_t i = 1; i < match->node_count; i++) rewrite_hand_over(match->rewriter, node, match->nodes[i]);
  if (type.rank == 2) result = reshaped(match, result, type_with(type, dtype));
  match_replace(match, match_in_type(match, result, type.dtype));
}

/* The type that it is computed in; DTYPE_NONE when there is none. */
static DType computed_in(const Match *match, DType dtype, MaskUse use) {
  bool is_known = use == MASK_NONE || use == MASK_CAUSAL || use == MASK_KEPT;
  if (!schema_runs(OP_Attention, NULL, match_opset(match), DTYPE_FLOAT32)) return DTYPE_NONE;
  if (!dtype_fits_float32(dtype)) return DTYPE_NONE;
  if (dtype == DTYPE_FLOAT32 || (is_known && schema_runs(OP_Attention, NULL, match_opset(match), dtype))) return dtype;
  return DTYPE_FLOAT32;
}

bool fuse_attention_scores(Match *match) {
  Scores scores;
  Value *weights = without_cast(match, node_input(match->root, 0));
  const Node *softmax = match_take(match, weights, OP_Softmax);
  if (!softmax) return false;
  Value *value = node_input(softmax, 0), *values = node_input(match->root, 1), *mask;
  int64_t axis = node_int_or(softmax, "axis", -1);
  if (axis != -1 && axis != (int64_t)value->type.rank - 1) return false;
  if (!read_scores(match, value, &scores) || !fits_together(match, &scores, values)) return false;
  if (!same_from_end(value->type, scores.type) || !(scores.scale > 0) || !isfinite(scores.scale)) return false;
  MaskUse use = mask_use(&scores);
  DType dtype = computed_in(match, match_type(match).dtype, use);
  if (dtype == DTYPE_NONE || !attention_mask(match, &scores, use, &mask)) return false;
  if (mask && mask->type.dtype != DTYPE_BOOL) mask = match_in_type(match, mask, dtype);
  bool causal = use == MASK_CAUSAL;
  Value *inputs[] = {scores.query, features_last(match, scores.keys), values, mask};
  if (scores.type.rank != 3 || !emit_heads_in_rows(match, &scores, inputs, causal, dtype))
    emit(match, &scores, inputs, causal, dtype);
  return true;
}
