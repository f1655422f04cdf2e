/* Grouped queries: several heads of queries to one of keys and values. Where the keys and values are repeated for it,
 * Attention does that itself. */
#include "passes/fuse/attention_parts.h"

/* What is repeated: batch, heads, positions, features, or positions before heads. */
typedef struct Repeated {
  Value *source;
  bool transposed; /* heads stand after positions in it, and a Transpose puts them first */
} Repeated;

/* A batch of one with one head needs no axis put in: [1, 1, ..] to [1, 1, times, ..] to [1, times, ..]. */
static bool is_single_head(Type from, Type many, Type to) {
  if (from.rank != 4 || many.rank != 5 || to.rank != 4) return false;
  for (uint32_t i = 0; i < 2; i++) {
    if (!dim_is(from.dims[i], 1) || !dim_is(many.dims[i], 1)) return false;
    if (!dim_equal(many.dims[3 + i], from.dims[2 + i]) || !dim_equal(to.dims[2 + i], from.dims[2 + i])) return false;
  }
  return dim_is(to.dims[0], 1) && dim_equal(to.dims[1], many.dims[2]);
}

/* [.., heads, ..] to [.., heads, 1, ..] to [.., heads, times, ..] to [.., heads * times, ..] */
static bool read_repeated(Match *match, Value *value, Repeated *repeated) {
  Node *node = value->producer;
  *repeated = (Repeated){.transposed = node && puts_heads_first(node)};
  if (repeated->transposed) {
    if (!match_take(match, value, OP_Transpose)) return false;
    value = node_input(node, 0);
  }
  uint32_t heads = repeated->transposed ? 2 : 1;
  Node *merge = match_take(match, value, OP_Reshape);
  if (!merge) merge = match_take(match, value, OP_Squeeze);
  Node *expand = merge ? match_take(match, node_input(merge, 0), OP_Expand) : NULL;
  if (!expand) return false;
  Value *apart = node_input(expand, 0);
  if (!repeated->transposed && is_single_head(apart->type, expand->outputs[0]->type, value->type)) {
    repeated->source = apart;
    return true;
  }
  Node *part = match_take(match, apart, OP_Unsqueeze);
  if (!part) part = match_take(match, apart, OP_Reshape);
  if (!part) return false;
  Value *source = node_input(part, 0);
  Type from = source->type, one = apart->type, many = expand->outputs[0]->type, to = value->type;
  if (from.rank != 4 || one.rank != 5 || many.rank != 5 || to.rank != 4) return false;
  for (uint32_t i = 0; i < 4; i++) {
    uint32_t at = i > heads ? i + 1 : i;
    if (!dim_equal(one.dims[at], from.dims[i]) || !dim_equal(many.dims[at], from.dims[i])) return false;
    if (i != heads && !dim_equal(to.dims[i], from.dims[i])) return false;
  }
  repeated->source = source;
  return dim_is(one.dims[heads + 1], 1) && dim_is_constant(from.dims[heads]);
}

static Value *as_given(Match *match, const Repeated *repeated) {
  if (!repeated->transposed) return repeated->source;
  Type type = repeated->source->type;
  const Dim dims[] = {type.dims[0], type.dims[2], type.dims[1], type.dims[3]};
  Type turned = type_make(match->rewriter->context, type.dtype, dims, 4);
  Node *node = EMIT_BEFORE(match, OP_Transpose, turned, repeated->source);
  set_heads_first(node);
  return node->outputs[0];
}

bool fuse_repeated_heads(Match *match) {
  Node *old = match->root;
  Repeated keys, values;
  if (node_attribute(old, "q_num_heads") || old->input_count < 3 || old->input_count > 4) return false;
  if (!read_repeated(match, node_input(old, 1), &keys) || !read_repeated(match, node_input(old, 2), &values))
    return false;
  if (!dim_equal(keys.source->type.dims[keys.transposed ? 2 : 1], values.source->type.dims[values.transposed ? 2 : 1]))
    return false;
  Value *inputs[] = {node_input(old, 0), as_given(match, &keys), as_given(match, &values), node_input(old, 3)};
  match_emit_like(match, inputs, inputs[3] ? 4 : 3);
  return true;
}

/* ---- heads in rows ---- */

/* [batch, position, heads * features], each head several times, from the same with each once; NULL: it is no such. */
static Value *repeated_rows(Match *match, Value *value, int64_t heads, int64_t *groups) {
  Node *merge = match_take(match, value, OP_Reshape);
  Node *expand = merge ? match_take(match, node_input(merge, 0), OP_Expand) : NULL;
  Value *apart = expand ? node_input(expand, 0) : NULL;
  Node *part = apart ? match_take(match, apart, OP_Reshape) : NULL;
  if (!part && apart) part = match_take(match, apart, OP_Unsqueeze);
  if (!part) return NULL;
  Value *source = node_input(part, 0);
  Type from = source->type, one = apart->type, many = expand->outputs[0]->type;
  if (from.rank < 3 || from.rank > 4 || one.rank != 5 || many.rank != 5 || value->type.rank != 3) return NULL;
  if (!dim_is(one.dims[3], 1) || !dim_is_constant(one.dims[2]) || !dim_is_constant(one.dims[4])) return NULL;
  if (!same_dims(one, many, 0, 3) || !same_dims(one, many, 4, 1) || !dim_is_constant(many.dims[3])) return NULL;
  if (!same_dims(from, one, 0, from.rank == 3 ? 2 : 3) || !same_dims(from, value->type, 0, 2)) return NULL;
  *groups = one.dims[2].constant;
  return *groups * many.dims[3].constant == heads ? source : NULL;
}

static Value *in_rows(Match *match, Value *value) {
  Type type = value->type;
  if (type.rank == 3) return value;
  const Dim dims[] = {type.dims[0], type.dims[1], dim_of(type.dims[2].constant * type.dims[3].constant)};
  const int64_t numbers[] = {0, 0, dims[2].constant};
  Value *shape = rewrite_constant_ints(match->rewriter, match->root, numbers, 3, match->root->origin);
  Type merged = type_make(match->rewriter->context, type.dtype, dims, 3);
  return EMIT_BEFORE(match, OP_Reshape, merged, value, shape)->outputs[0];
}

bool fuse_repeated_rows(Match *match) {
  Node *old = match->root;
  int64_t heads = node_int_or(old, "kv_num_heads", 0), groups, others;
  if (!heads || old->input_count < 3 || old->input_count > 4) return false;
  Value *keys = repeated_rows(match, node_input(old, 1), heads, &groups);
  Value *values = keys ? repeated_rows(match, node_input(old, 2), heads, &others) : NULL;
  if (!values || groups != others) return false;
  Value *inputs[] = {node_input(old, 0), in_rows(match, keys), in_rows(match, values), node_input(old, 3)};
  node_set_int(match_emit_like(match, inputs, inputs[3] ? 4 : 3), "kv_num_heads", groups);
  return true;
}
