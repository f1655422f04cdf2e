/* Grouped queries: several heads of queries to one of keys and values. Where the keys and values are repeated for it,
 * Attention does that itself. */
#include "passes/fuse/attention_parts.h"

/* What is repeated: batch, heads, positions, features, or positions before heads. Halves may be cast on the way. */
typedef struct Repeated {
  Value *source;
  bool transposed; /* heads stand after positions in it, and a Transpose puts them first */
} Repeated;

/* The axis that an Expand spreads, from the sizes that it begins with; -1: none, or several. */
static int64_t spread_axis(Type one, Type many) {
  int64_t axis = -1;
  if (one.rank > many.rank) return -1;
  for (uint32_t i = 0; i < many.rank; i++) {
    uint32_t leading = many.rank - one.rank;
    bool is_one = i < leading || dim_is(one.dims[i - leading], 1);
    if (is_one ? dim_is(many.dims[i], 1) : dim_equal(one.dims[i - leading], many.dims[i])) continue;
    if (axis >= 0 || !is_one || !dim_is_constant(many.dims[i])) return -1;
    axis = i;
  }
  return axis;
}

/* Are those the same sizes but for axes of size 1, and is the axis that is left out the one behind the heads? */
static bool stands_behind_heads(Type from, Type many, int64_t axis, uint32_t heads) {
  uint32_t next = 0;
  for (uint32_t i = 0; i < many.rank; i++) {
    bool is_left_out = i == (uint32_t)axis;
    if (!is_left_out && dim_is(many.dims[i], 1)) continue;
    while (next < (is_left_out ? heads + 1 : from.rank) && dim_is(from.dims[next], 1)) next++;
    if (is_left_out ? next != heads + 1 : next == from.rank || !dim_equal(from.dims[next], many.dims[i])) return false;
    next += !is_left_out;
  }
  while (next < from.rank && dim_is(from.dims[next], 1)) next++;
  return next == from.rank;
}

/* [.., heads, ..] to [.., heads, 1, ..] to [.., heads, times, ..] to [.., heads * times, ..] */
static bool repeats_heads(Type from, Type one, Type many, Type to, uint32_t heads) {
  int64_t axis = spread_axis(one, many);
  if (axis < 0 || from.rank != 4 || to.rank != 4 || !stands_behind_heads(from, many, axis, heads)) return false;
  if (!dim_is_constant(from.dims[heads]) || !dim_is_constant(to.dims[heads])) return false;
  int64_t few = from.dims[heads].constant, all = to.dims[heads].constant;
  return few > 0 && all % few == 0 && all / few == many.dims[axis].constant && same_dims(from, to, 0, heads) &&
         same_dims(from, to, heads + 1, 3 - heads);
}

static Value *before_cast(Match *match, Value *value) {
  const Node *node = value->producer;
  return node && is_cast_of_half(node) && match_take(match, value, node->op) ? node_input(node, 0) : value;
}

static bool read_repeated(Match *match, Value *value, Repeated *repeated) {
  value = before_cast(match, value);
  Node *node = value->producer;
  *repeated = (Repeated){.transposed = node && puts_heads_first(node)};
  if (repeated->transposed) {
    if (!match_take(match, value, OP_Transpose)) return false;
    value = before_cast(match, node_input(node, 0));
  }
  uint32_t heads = repeated->transposed ? 2 : 1;
  Node *merge = match_take(match, value, OP_Reshape);
  if (!merge) merge = match_take(match, value, OP_Squeeze);
  Node *expand = merge ? match_take(match, before_cast(match, node_input(merge, 0)), OP_Expand) : NULL;
  if (!expand) return false;
  Value *apart = node_input(expand, 0);
  Type one = apart->type, many = expand->outputs[0]->type;
  repeated->source = apart;
  if (repeats_heads(one, one, many, value->type, heads)) return true;
  Node *part = match_take(match, apart, OP_Unsqueeze);
  if (!part) part = match_take(match, apart, OP_Reshape);
  repeated->source = part ? node_input(part, 0) : NULL;
  return part && repeats_heads(repeated->source->type, one, many, value->type, heads);
}

static Value *as_given(Match *match, const Repeated *repeated, DType dtype) {
  Value *source = match_in_type(match, repeated->source, dtype);
  if (!repeated->transposed) return source;
  Type type = source->type;
  const Dim dims[] = {type.dims[0], type.dims[2], type.dims[1], type.dims[3]};
  Type turned = type_make(match->rewriter->context, type.dtype, dims, 4);
  Node *node = EMIT_BEFORE(match, OP_Transpose, turned, source);
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
  DType dtype = node_input(old, 0)->type.dtype;
  Value *inputs[] = {node_input(old, 0), as_given(match, &keys, dtype), as_given(match, &values, dtype),
                     node_input(old, 3)};
  match_emit_like(match, inputs, inputs[3] ? 4 : 3);
  return true;
}

/* ---- heads in rows ---- */

/* [batch, position, heads * features], each head several times, from the same with each once; NULL: it is no such. */
static Value *repeated_rows(Match *match, Value *value, int64_t heads, int64_t *groups) {
  Node *merge = match_take(match, before_cast(match, value), OP_Reshape);
  Node *expand = merge ? match_take(match, before_cast(match, node_input(merge, 0)), OP_Expand) : NULL;
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
  DType dtype = node_input(old, 0)->type.dtype;
  Value *inputs[] = {node_input(old, 0), match_in_type(match, in_rows(match, keys), dtype),
                     match_in_type(match, in_rows(match, values), dtype), node_input(old, 3)};
  node_set_int(match_emit_like(match, inputs, inputs[3] ? 4 : 3), "kv_num_heads", groups);
  return true;
}
