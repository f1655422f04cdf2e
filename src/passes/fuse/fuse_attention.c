/* Attention: found over four axes (attention_scores.c), then over three where the heads are only split off and put back
 * around it, and around what rotates queries and keys. */
#include "passes/fuse/attention_parts.h"

enum { SOURCE, ATTENTION, OUTER, APART };

static const int64_t heads_first[] = {0, 2, 1, 3};

bool puts_heads_first(const Node *transpose) {
  const Attribute *order = node_is(transpose, OP_Transpose) ? node_attribute(transpose, "perm") : NULL;
  return order && order->count == 4 && memcmp(order->integers, heads_first, sizeof heads_first) == 0;
}

void set_heads_first(Node *transpose) { node_set_ints(transpose, "perm", heads_first, 4); }

Node *match_emit_like(Match *match, Value *const *inputs, size_t count) {
  const Node *root = match->root;
  Node *node = match_emit(match, root->op, inputs, count, REWRITE_EMITTER(match->rewriter));
  node_copy_attributes(node, root);
  return node;
}

/* ---- three axes: batch, position, heads times features ---- */

/* A value of batch, head, position, features as one of batch, position, heads times features. */
typedef struct Rows {
  Value *source;
  bool reshaped; /* the source has the heads apart, after the position */
} Rows;

static bool has_constant_heads(Type type, uint32_t heads, uint32_t features) {
  return type.rank == 4 && dim_is_constant(type.dims[heads]) && dim_is_constant(type.dims[features]);
}

static bool is_in_any_order(Type type) { return dim_is(type.dims[1], 1) || dim_is(type.dims[2], 1); }

/* With a single position, or a single head, the order of the two is no matter, and a Reshape does it. */
static bool read_rows(Match *match, Value *value, Rows *rows) {
  Node *node = value->producer;
  Type type = value->type;
  if (!has_constant_heads(type, 1, 3)) return false;
  if (node && puts_heads_first(node)) {
    match_take(match, value, OP_Transpose);
    Value *split = node_input(node, 0);
    Node *reshape = split->producer;
    *rows = (Rows){split, true};
    if (!reshape || !node_is(reshape, OP_Reshape)) return true;
    Value *source = node_input(reshape, 0);
    if (source->type.rank != 3 || !same_dims(source->type, split->type, 0, 2)) return true;
    match_take(match, split, OP_Reshape);
    *rows = (Rows){source, false};
    return true;
  }
  if (!node || (!node_is(node, OP_Reshape) && !node_is(node, OP_Unsqueeze)) || !is_in_any_order(type)) return false;
  Value *source = node_input(node, 0);
  if (source->type.rank != 3 || !dim_equal(source->type.dims[0], type.dims[0]) ||
      !dim_equal(source->type.dims[1], type.dims[2]))
    return false;
  match_take(match, value, node->op);
  *rows = (Rows){source, false};
  return true;
}

static Value *rows_value(Match *match, const Rows *rows) {
  Type type = rows->source->type;
  if (!rows->reshaped) return rows->source;
  int64_t width = type.dims[2].constant * type.dims[3].constant;
  const Dim dims[] = {type.dims[0], type.dims[1], dim_of(width)};
  const int64_t numbers[] = {0, 0, width};
  Value *shape = rewrite_constant_ints(match->rewriter, match->root, numbers, 3, match->root->origin);
  Type merged = type_make(match->rewriter->context, type.dtype, dims, 3);
  return EMIT_BEFORE(match, OP_Reshape, merged, rows->source, shape)->outputs[0];
}

/* [batch, heads, position, features] with heads and features in one axis, behind the position. */
static Type in_rows(Match *match, Type apart) {
  const Dim dims[] = {apart.dims[0], apart.dims[2],
                      dim_multiply(match->rewriter->context, apart.dims[1], apart.dims[3])};
  return type_make(match->rewriter->context, apart.dtype, dims, 3);
}

/* Queries, keys and values, of which those that are joined to a cache stand alone. */
typedef struct RowsOfAll {
  Rows rows[3];
  Caches caches;
  bool is_cached;
} RowsOfAll;

/* Whether the result, perhaps after a Transpose, becomes one of three axes, of this type, and the operands were such.
 */
static bool read_all_rows(Match *match, const Node *inner, const Node *outer, Type type, RowsOfAll *all) {
  Type apart = inner->outputs[0]->type;
  if (node_attribute(inner, "q_num_heads") || apart.rank != 4 || type.rank != 3) return false;
  if (outer ? !puts_heads_first(outer) : !is_in_any_order(apart)) return false;
  if (!dim_equal(type.dims[0], apart.dims[0]) || !dim_equal(type.dims[1], apart.dims[2])) return false;
  all->is_cached = read_caches(match, inner, &all->caches);
  for (size_t i = 0; i < 3; i++) {
    Value *value = all->is_cached && i ? all->caches.fresh[i - 1] : node_input(inner, i);
    if (!read_rows(match, value, &all->rows[i])) return false;
  }
  return outer || !all->rows[0].reshaped || !all->rows[1].reshaped || !all->rows[2].reshaped;
}

bool is_put_in_rows(Match *match, const Node *attention) {
  const Node *user = value_only_user(attention->outputs[0]), *outer = NULL;
  if (user && user->graph == attention->graph && puts_heads_first(user)) {
    outer = user;
    user = value_only_user(outer->outputs[0]);
  }
  if (!user || user->graph != attention->graph || !(node_is(user, OP_Reshape) || node_is(user, OP_Squeeze)))
    return false;
  RowsOfAll all;
  size_t taken = match->node_count;
  bool is_put = read_all_rows(match, attention, outer, user->outputs[0]->type, &all);
  match->node_count = taken;
  return is_put;
}

static void set_heads(Node *node, int64_t heads, int64_t groups) {
  node_set_int(node, "q_num_heads", heads);
  node_set_int(node, "kv_num_heads", groups);
}

static bool fuse_rows(Match *match) {
  Node *inner = match->values[ATTENTION]->producer;
  const Value *outer = match->values[OUTER];
  RowsOfAll all;
  if (!read_all_rows(match, inner, outer ? outer->producer : NULL, match_type(match), &all)) return false;
  int64_t heads = node_input(inner, 0)->type.dims[1].constant, groups = node_input(inner, 1)->type.dims[1].constant;
  Value *inputs[4] = {NULL, NULL, NULL, node_input(inner, 3)};
  for (int i = 0; i < 3; i++) inputs[i] = rows_value(match, &all.rows[i]);
  Node *node;
  if (all.is_cached) {
    node = match_emit_cached(match, inner, &all.caches, inputs);
  } else {
    node = match_emit(match, OP_Attention, inputs, inputs[3] ? 4 : 3, REWRITE_EMITTER(match->rewriter));
    node_copy_attributes(node, inner);
  }
  set_heads(node, heads, groups);
  return true;
}

/* Does a Reshape of three axes, the first two as they were, give the same? A 0 copies the size at its place. */
static bool is_told_sizes(const Node *reshape) {
  const Tensor *sizes = constant_of(node_input(reshape, 1));
  if (!sizes || sizes->dtype != DTYPE_INT64 || node_int_or(reshape, "allowzero", 0)) return false;
  for (size_t i = 2; i < sizes->size / sizeof(int64_t); i++) {
    if (((const int64_t *)sizes->data)[i] == 0) return false;
  }
  return true;
}

/* Heads go among the features on the way to other axes, as those of an image. */
static bool fuse_reshaped_rows(Match *match) {
  Node *inner = match->values[ATTENTION]->producer, *outer = match->values[OUTER]->producer;
  Type apart = inner->outputs[0]->type;
  RowsOfAll all;
  if (apart.rank != 4 || !has_constant_heads(apart, 1, 3) || !is_told_sizes(match->root)) return false;
  Type type = in_rows(match, apart);
  if (!read_all_rows(match, inner, outer, type, &all) || all.is_cached) return false;
  Value *inputs[4] = {NULL, NULL, NULL, node_input(inner, 3)};
  for (int i = 0; i < 3; i++) inputs[i] = rows_value(match, &all.rows[i]);
  Node *node =
      match_node_before(match, OP_Attention, type, inputs, inputs[3] ? 4 : 3, REWRITE_EMITTER(match->rewriter));
  node_copy_attributes(node, inner);
  set_heads(node, node_input(inner, 0)->type.dims[1].constant, node_input(inner, 1)->type.dims[1].constant);
  for (size_t i = 1; i < match->node_count; i++) rewrite_hand_over(match->rewriter, node, match->nodes[i]);
  Value *reshaped[] = {node->outputs[0], node_input(match->root, 1)};
  match_emit_like(match, reshaped, 2);
  return true;
}

/* Queries or keys are rotated before their heads go first, which is then left to Attention. */
static bool fuse_rotated_rows(Match *match) {
  const Node *root = match->root, *outer = match->values[OUTER]->producer;
  Value *apart = match->values[APART], *source = match->values[SOURCE];
  if (!puts_heads_first(outer) || root->input_count > 4 || source->type.rank != 3) return false;
  if (!has_constant_heads(apart->type, 2, 3) || !same_dims(source->type, apart->type, 0, 2)) return false;
  Value *inputs[4] = {source};
  for (size_t i = 1; i < root->input_count; i++) inputs[i] = node_input(root, i);
  Emitter emitter = REWRITE_EMITTER(match->rewriter);
  Node *rotated = match_node_before(match, OP_RotaryEmbedding, source->type, inputs, root->input_count, emitter);
  node_copy_attributes(rotated, root);
  node_set_int(rotated, "num_heads", apart->type.dims[2].constant);
  Node *split = EMIT_BEFORE(match, OP_Reshape, apart->type, rotated->outputs[0], node_input(apart->producer, 1));
  set_heads_first(EMIT_MATCH(match, OP_Transpose, split->outputs[0]));
  return true;
}

#define HEADS OP_AT(ATTENTION, Attention, ANY(SOURCE))

static const FusionRule rules[] = {
    {OP(Attention, ANY(SOURCE)), OP_Attention, fuse_repeated_heads},
    {OP(Attention, ANY(SOURCE)), OP_Attention, fuse_repeated_rows},
    {OP(Attention, ANY(SOURCE)), OP_Attention, fuse_causal_mask},
    {OP(Attention, ANY(SOURCE)), OP_Attention, fuse_caches},
    {OP(Reshape, OP_AT(OUTER, Transpose, HEADS)), OP_Attention, fuse_rows},
    {OP(Reshape, OP_AT(OUTER, Transpose, HEADS)), OP_Attention, fuse_reshaped_rows},
    {OP(Reshape, HEADS), OP_Attention, fuse_rows},
    {OP(Squeeze, HEADS), OP_Attention, fuse_rows},
    {OP(RotaryEmbedding, OP_AT(OUTER, Transpose, OP_AT(APART, Reshape, ANY(SOURCE)))), OP_NONE, fuse_rotated_rows},
    {OP(ReduceSum, ANY(SOURCE)), OP_NONE, fuse_summed_product},
    {OP(MatMul, ANY(SOURCE)), OP_NONE, fuse_vector_product},
    {OP(Div, ANY(SOURCE)), OP_NONE, fuse_late_quotient},
    {OP(MatMul, ANY(SOURCE)), OP_NONE, fuse_attention_scores},
    {OP(Cast, ANY(SOURCE)), OP_NONE, fuse_attention_scores},
    {OP(Narrow, ANY(SOURCE)), OP_NONE, fuse_attention_scores},
    {OP(Transpose, ANY(SOURCE)), OP_NONE, fuse_attention_scores},
    {OP(Reshape, ANY(SOURCE)), OP_NONE, fuse_attention_scores},
    {OP(Squeeze, ANY(SOURCE)), OP_NONE, fuse_attention_scores},
    {OP(Unsqueeze, ANY(SOURCE)), OP_NONE, fuse_attention_scores},
};

bool fuse_attention(Model *model) { return fuse_patterns(model, __func__, rules, sizeof rules / sizeof *rules); }
