/* Attention: softmax(scale * Q Kᵀ, masked) V as one operator, first over four axes, then over three where the heads are
 * only split off and put back around it.
 *
 * ONNX Runtime gives 0 for a row whose scores are all masked, JAX NaN or a mean: a mask must be known, with no such
 * row.
 */
#include <math.h>

#include "passes/pattern.h"
#include "program/numbers.h"

enum { QUERY, KEYS, VALUES, MASK, FACTOR, DIVISOR, FILL, SOFTMAX, WHERE, OUTER, ATTENTION };

/* ---- four axes: batch, head, position, feature ---- */

#define PRODUCT OP("MatMul", ANY(QUERY), ANY(KEYS))
#define SCALED_QUERY EITHER(OP("Mul", ANY(QUERY), UNIFORM(FACTOR)), OP("Div", ANY(QUERY), UNIFORM(DIVISOR)))
#define SCORES_OF_SCALED EITHER(OP("MatMul", SCALED_QUERY, ANY(KEYS)), SCORES)
#define SCORES EITHER(OP("Mul", PRODUCT, UNIFORM(FACTOR)), EITHER(OP("Div", PRODUCT, UNIFORM(DIVISOR)), PRODUCT))
#define MASKED                                                                   \
  EITHER(OP_AT(WHERE, "Where", CONSTANT(MASK), SCORES_OF_SCALED, UNIFORM(FILL)), \
         EITHER(OP("Add", SCORES_OF_SCALED, CONSTANT(MASK)), SCORES_OF_SCALED))

enum { LOWEST_KEPT = -1000000000 /* what is added below this leaves nothing of a score */ };

static const int64_t heads_first[] = {0, 2, 1, 3};

static bool same_dims(Type a, Type b, uint32_t first, uint32_t count) {
  for (uint32_t i = first; i < first + count; i++) {
    if (!dim_equal(a.dims[i], b.dims[i])) return false;
  }
  return true;
}

static bool fits_together(const Match *match) {
  Type query = match->values[QUERY]->type, keys = match->values[KEYS]->type, values = match->values[VALUES]->type;
  if (query.rank != 4 || keys.rank != 4 || values.rank != 4 || match_type(match).rank != 4) return false;
  if (!type_equal(match->values[SOFTMAX]->type, match->values[SOFTMAX]->producer->inputs[0].value->type)) return false;
  return same_dims(query, keys, 0, 2) && same_dims(query, values, 0, 2) && dim_equal(keys.dims[3], values.dims[2]) &&
         match->values[SOFTMAX]->type.rank == 4;
}

/* Is the element one that takes its score out? */
static bool is_masked(const Tensor *mask, int64_t index) {
  size_t width = dtype_bytes(mask->dtype, 1);
  const char *element = (const char *)mask->data + (size_t)index * width;
  if (mask->dtype == DTYPE_BOOL) return !*element;
  return !(number_decode(mask->dtype, element) > LOWEST_KEPT);
}

typedef struct MaskKind {
  bool usable; /* of the two last axes of the scores, and every row keeps something */
  bool causal; /* keeps just what is not later */
} MaskKind;

static MaskKind look_at_mask(const Match *match) {
  Type scores = match->values[SOFTMAX]->type;
  const Tensor *mask = constant_of(match->values[MASK]);
  MaskKind kind = {.causal = mask->dtype == DTYPE_BOOL && dim_equal(scores.dims[2], scores.dims[3])};
  if (mask->rank < 2 || mask->rank > 4 || mask->size == 0) return kind;
  int64_t columns = mask->dims[mask->rank - 1], rows = mask->dims[mask->rank - 2];
  if (!dim_is(scores.dims[2], rows) || !dim_is(scores.dims[3], columns)) return kind;
  int64_t count = (int64_t)(mask->size / dtype_bytes(mask->dtype, 1));
  for (int64_t row = 0; row < count / columns; row++) {
    bool keeps = false;
    for (int64_t column = 0; column < columns; column++) {
      bool masked = is_masked(mask, row * columns + column);
      keeps = keeps || !masked;
      kind.causal = kind.causal && masked == (column > row % rows);
    }
    if (!keeps) return (MaskKind){0};
  }
  kind.usable = true;
  return kind;
}

/* 1 / sqrt of the number of features is what the operator does by itself. */
static bool is_default_scale(const Match *match, double scale) {
  Dim features = match->values[QUERY]->type.dims[3];
  return dim_is_constant(features) && near_number(match_dtype(match), scale, 1 / sqrt((double)features.constant));
}

static double scale_of(const Match *match) {
  if (match->values[FACTOR]) return match_number(match, FACTOR);
  return match->values[DIVISOR] ? 1 / match_number(match, DIVISOR) : 1;
}

/* The keys with their features last: the transposition that is there is taken back or turned into another one. */
static Value *keys_by_position(Match *match) {
  Value *value = match->values[KEYS];
  int64_t order[] = {0, 1, 3, 2};
  Node *transpose = value->producer;
  const Attribute *given = transpose && node_is(transpose, "Transpose") ? node_attribute(transpose, "perm") : NULL;
  if (given && given->count == 4) {
    for (int i = 0; i < 4; i++) order[i] = given->integers[i == 3 ? 2 : i == 2 ? 3 : i];
    if (value_use_count(value) == 1 && transpose->graph == match->root->graph && match->node_count < MATCH_NODES) {
      match->nodes[match->node_count++] = transpose;
    }
    value = node_input(transpose, 0);
  }
  if (order[0] == 0 && order[1] == 1 && order[2] == 2) return value;
  Dim dims[4];
  for (int i = 0; i < 4; i++) dims[i] = value->type.dims[order[i]];
  Type type = type_make(match->rewriter->context, value->type.dtype, dims, 4);
  const Origin *origin = given ? transpose->origin : match->root->origin;
  if (origin) {
    origin = origin_with_emitter(match->rewriter->model->provenance, origin, REWRITE_EMITTER(match->rewriter));
  }
  Node *node = graph_node(match->root->graph, origin, "Transpose", "", &value, 1, &type, 1, match->root);
  node_set_ints(node, "perm", order, 4);
  return node->outputs[0];
}

static bool fuse_attention_heads(Match *match) {
  double scale = scale_of(match);
  Value *mask = match->values[MASK];
  MaskKind kind = {0};
  if (match_dtype(match) != DTYPE_FLOAT32 || !fits_together(match) || !(scale > 0) || !isfinite(scale)) return false;
  int64_t axis = node_int_or(match->values[SOFTMAX]->producer, "axis", -1);
  if (axis != -1 && axis != 3) return false;
  if (mask) {
    kind = look_at_mask(match);
    DType wanted = match->values[WHERE] ? DTYPE_BOOL : match_dtype(match);
    if (!kind.usable || mask->type.dtype != wanted) return false;
    if (match->values[WHERE] && !(match_number(match, FILL) <= LOWEST_KEPT)) return false;
  }
  bool default_scale = is_default_scale(match, scale);
  Value *inputs[] = {match->values[QUERY], keys_by_position(match), match->values[VALUES], mask};
  Node *node = match_emit(match, "Attention", inputs, mask && !kind.causal ? 4 : 3, REWRITE_EMITTER(match->rewriter));
  if (kind.causal) node_set_int(node, "is_causal", 1);
  if (!default_scale) node_set_float(node, "scale", (float)scale);
  return true;
}

/* ---- three axes: batch, position, heads times features ---- */

#define SPLIT_HEADS(at) OP("Transpose", OP("Reshape", ANY(at)))
#define MERGED_HEADS \
  OP_AT(OUTER, "Transpose", OP_AT(ATTENTION, "Attention", SPLIT_HEADS(QUERY), SPLIT_HEADS(KEYS), SPLIT_HEADS(VALUES)))

static bool puts_heads_first(const Node *transpose) {
  const Attribute *order = node_attribute(transpose, "perm");
  return order && order->count == 4 && memcmp(order->integers, heads_first, sizeof heads_first) == 0;
}

/* From batch, position, features to batch, head, position, features, by splitting the last axis. */
static bool splits_heads(const Value *source, const Node *transpose) {
  Type split = node_input(transpose, 0)->type;
  return puts_heads_first(transpose) && source->type.rank == 3 && split.rank == 4 &&
         same_dims(source->type, split, 0, 2) && dim_is_constant(split.dims[2]) && dim_is_constant(split.dims[3]) &&
         dim_is_constant(source->type.dims[2]);
}

static bool fuse_attention_rows(Match *match) {
  const Node *inner = match->values[ATTENTION]->producer, *outer = match->values[OUTER]->producer;
  Type type = match_type(match), merged = match->values[OUTER]->type;
  if (node_attribute(inner, "q_num_heads") || !puts_heads_first(outer)) return false;
  if (type.rank != 3 || !same_dims(type, merged, 0, 2)) return false;
  for (int i = 0; i < 3; i++) {
    if (!splits_heads(match->values[i], node_input(inner, (size_t)i)->producer)) return false;
  }
  Type query = node_input(inner, 0)->type, keys = node_input(inner, 1)->type;
  const Attribute *scale = node_attribute(inner, "scale");
  bool scaled = scale != NULL, causal = node_int_or(inner, "is_causal", 0) != 0;
  float factor = scaled ? scale->real : 1;
  Value *inputs[] = {match->values[QUERY], match->values[KEYS], match->values[VALUES], node_input(inner, 3)};
  Node *node = match_emit(match, "Attention", inputs, inputs[3] ? 4 : 3, REWRITE_EMITTER(match->rewriter));
  node_set_int(node, "q_num_heads", query.dims[1].constant);
  node_set_int(node, "kv_num_heads", keys.dims[1].constant);
  if (causal) node_set_int(node, "is_causal", 1);
  if (scaled) node_set_float(node, "scale", factor);
  return true;
}

/* Queries are often scaled before their heads are put first: the scale moves to where the scores are. */
static bool fuse_scale_below_transpose(Match *match) {
  const Node *user = match->root->outputs[0]->uses ? match->root->outputs[0]->uses->node : NULL;
  Node *scaled = match->values[OUTER]->producer;
  Value *source = match->values[QUERY];
  if (!user || !node_is(user, "MatMul") || match_type(match).rank != 4 || source->type.rank != 4) return false;
  if (!constant_of(match->values[FACTOR]) || match->values[FACTOR]->type.rank != 0 || !puts_heads_first(match->root))
    return false;
  const Origin *origin = match->root->origin;
  if (origin) {
    origin = origin_with_emitter(match->rewriter->model->provenance, origin, REWRITE_EMITTER(match->rewriter));
  }
  Type type = match_type(match);
  const char *op = scaled->op;
  Node *node = graph_node(match->root->graph, origin, "Transpose", "", &source, 1, &type, 1, match->root);
  node_set_ints(node, "perm", heads_first, 4);
  return EMIT_MATCH(match, op, node->outputs[0], match->values[FACTOR]);
}

static const FusionRule rules[] = {
    {OP("Transpose", OP_AT(OUTER, "Div", ANY(QUERY), UNIFORM(FACTOR))), "Attention", fuse_scale_below_transpose},
    {OP("Transpose", OP_AT(OUTER, "Mul", ANY(QUERY), UNIFORM(FACTOR))), "Attention", fuse_scale_below_transpose},
    {OP("MatMul", OP_AT(SOFTMAX, "Softmax", MASKED), ANY(VALUES)), "Attention", fuse_attention_heads},
    {OP("Reshape", MERGED_HEADS), "Attention", fuse_attention_rows},
};

bool fuse_attention(Model *model) { return fuse_patterns(model, __func__, rules, sizeof rules / sizeof *rules); }
