/* Grouped queries written as contractions over five axes: batch, position, head of keys, head within the group,
 * features.
 *
 * Transposes and Reshapes around such contractions come in many orders. So the axes are followed by what they stand
 * for: from the queries through both products to the result. Axes of size 1 stand for nothing. */
#include <math.h>

#include "base/bytes.h"
#include "passes/fuse/attention.h"

typedef enum Part { BATCH, QUERY, HEAD, GROUP, FEATURE, KEY, PART_COUNT } Part;

enum { MOST_AXES = 8, MOST_MERGED = 4, LONGEST = 8 };

/* What each axis of a value stands for: several parts when they are merged, the first the slowest. */
typedef struct Axes {
  uint32_t rank;
  uint32_t count[MOST_AXES];
  Part parts[MOST_AXES][MOST_MERGED];
} Axes;

typedef struct Chain {
  Node *nodes[LONGEST]; /* the last operator first */
  size_t count;
  Value *source; /* what the first of them reads */
} Chain;

typedef struct Grouped {
  Match *match;
  Dim sizes[PART_COUNT];
  Chain of_query, of_scores, of_weights, of_result;
  Node *first, *second; /* the products: scores, and the result */
  Node *softmax;
  size_t query_side, weights_side;
  Scores scores;
  Value *mask;  /* as it is applied; scores.mask is what it was spread from */
  Value *query; /* batch, position, head, features; or head before position; or heads and features in one */
  bool heads_first;
  Axes query_axes; /* where the product reads it */
} Grouped;

/* ---- following axes ---- */

static bool is_moved(const Node *node) {
  return node_is(node, OP_Reshape) || node_is(node, OP_Transpose) || node_is(node, OP_Squeeze) ||
         node_is(node, OP_Unsqueeze);
}

static bool append(Axes *axes, const Grouped *grouped, uint32_t axis, Part part) {
  if (dim_is(grouped->sizes[part], 1)) return true;
  if (axes->count[axis] == MOST_MERGED) return false;
  axes->parts[axis][axes->count[axis]++] = part;
  return true;
}

/* Reads the parts in order and deals them out to axes of the given sizes. */
static bool regroup(const Grouped *grouped, Axes *axes, Type type) {
  Context *context = grouped->match->rewriter->context;
  Part flat[MOST_AXES * MOST_MERGED];
  size_t count = 0, next = 0;
  for (uint32_t i = 0; i < axes->rank; i++) {
    for (uint32_t k = 0; k < axes->count[i]; k++) flat[count++] = axes->parts[i][k];
  }
  if (type.rank > MOST_AXES) return false;
  *axes = (Axes){.rank = type.rank};
  for (uint32_t i = 0; i < type.rank; i++) {
    Dim size = dim_of(1);
    while (!dim_equal(size, type.dims[i])) {
      if (next == count) return false;
      size = dim_multiply(context, size, grouped->sizes[flat[next]]);
      if (!append(axes, grouped, i, flat[next++])) return false;
    }
  }
  return next == count;
}

static bool permute(const Node *node, Axes *axes) {
  const Attribute *order = node_attribute(node, "perm");
  Axes from = *axes;
  if (!order || order->count != axes->rank) return false;
  for (uint32_t i = 0; i < axes->rank; i++) {
    axes->count[i] = from.count[order->integers[i]];
    memcpy(axes->parts[i], from.parts[order->integers[i]], sizeof axes->parts[i]);
  }
  return true;
}

static bool follow(const Grouped *grouped, const Chain *chain, Axes *axes) {
  for (size_t i = chain->count; i-- > 0;) {
    const Node *node = chain->nodes[i];
    Type type = node->outputs[0]->type;
    if (node_is(node, OP_Transpose) ? !permute(node, axes) : is_moved(node) && !regroup(grouped, axes, type))
      return false;
    if (axes->rank != type.rank) return false;
  }
  return true;
}

/* Parts as a list that ends with PART_COUNT, each axis ended by -1 in `wanted`. */
static Axes make_axes(const Grouped *grouped, const int *wanted) {
  Axes axes = {0};
  for (; *wanted != PART_COUNT; wanted++) {
    if (*wanted < 0) axes.rank++;
    else append(&axes, grouped, axes.rank, (Part)*wanted);
  }
  return axes;
}

#define AXES(grouped, ...) make_axes((grouped), (const int[]){__VA_ARGS__, PART_COUNT})

static bool same_axis(const Axes *a, uint32_t i, const Axes *b, uint32_t k) {
  return a->count[i] == b->count[k] && same_bytes(a->parts[i], b->parts[k], a->count[i] * sizeof(Part));
}

static bool same_axes(const Axes *a, Axes b) {
  if (a->rank != b.rank) return false;
  for (uint32_t i = 0; i < b.rank; i++) {
    if (!same_axis(a, i, &b, i)) return false;
  }
  return true;
}

/* Positions and groups in one axis, in either order. */
static bool is_rows(const Grouped *grouped, const Axes *axes, uint32_t axis) {
  Axes one = AXES(grouped, QUERY, GROUP, -1), other = AXES(grouped, GROUP, QUERY, -1);
  return same_axis(axes, axis, &one, 0) || same_axis(axes, axis, &other, 0);
}

/* ---- finding the parts ---- */

static bool extend(Match *match, Chain *chain, Node *node) {
  if (chain->count == LONGEST || (node != match->root && !match_take(match, node->outputs[0], node->op))) return false;
  chain->nodes[chain->count++] = node;
  chain->source = node_input(node, 0);
  return true;
}

/* Back through what only moves axes. */
static bool walk_back(Match *match, Value *value, Chain *chain) {
  *chain = (Chain){.source = value};
  while (chain->source->producer && is_moved(chain->source->producer)) {
    if (!extend(match, chain, chain->source->producer)) return true;
  }
  return true;
}

/* Back from the softmax to the product: through scales and one mask as well. */
static bool walk_scores(Grouped *grouped) {
  Match *match = grouped->match;
  Chain *chain = &grouped->of_scores;
  Scores *scores = &grouped->scores;
  *chain = (Chain){.source = node_input(grouped->softmax, 0)};
  *scores = (Scores){.scale = 1};
  for (Node *node; (node = chain->source->producer) && !node_is(node, OP_MatMul);) {
    double number;
    bool scaled = node_is(node, OP_Mul) || node_is(node, OP_Div);
    if (!is_moved(node) && !scaled && !node_is(node, OP_Where)) return false;
    if (!extend(match, chain, node)) return false;
    if (node_is(node, OP_Where)) {
      if (scores->mask || !uniform_number(node_input(node, 2), &scores->fill)) return false;
      scores->mask = grouped->mask = node_input(node, 0);
      chain->source = node_input(node, 1);
    } else if (scaled) {
      bool swapped = node_is(node, OP_Mul) && uniform_number(node_input(node, 0), &number);
      if (!uniform_number(node_input(node, !swapped), &number)) return false;
      scores->scale = node_is(node, OP_Div) ? scores->scale / number : scores->scale * number;
      chain->source = node_input(node, swapped);
    }
    if (!is_moved(node) && !type_same_shape(chain->source->type, node->outputs[0]->type)) return false;
  }
  grouped->first = match_take(match, chain->source, OP_MatMul);
  return grouped->first && scores->scale > 0 && isfinite(scores->scale);
}

static bool find_softmax(Grouped *grouped) {
  Match *match = grouped->match;
  for (size_t side = 0; side < 2; side++) {
    size_t before = match->node_count;
    walk_back(match, node_input(grouped->second, side), &grouped->of_weights);
    grouped->softmax = match_take(match, grouped->of_weights.source, OP_Softmax);
    grouped->weights_side = side;
    if (grouped->softmax && walk_scores(grouped)) return true;
    match->node_count = before;
  }
  return false;
}

/* ---- from the queries to the result ---- */

/* The mask over batch, head (of size 1), query and key, as far as it has axes. One that was only spread over heads is
 * taken as it was before. */
static bool read_mask(Grouped *grouped, const Axes *axes) {
  Value *mask = grouped->mask;
  Axes last = AXES(grouped, KEY, -1), query = AXES(grouped, QUERY, -1), batch = AXES(grouped, BATCH, -1);
  if (!same_axis(axes, axes->rank - 1, &last, 0)) return false;
  Dim keys = grouped->sizes[KEY];
  for (Value *value = mask;;) {
    Type type = value->type;
    bool only_keys = type.rank > 0 && type.rank <= 4 && dim_equal(type.dims[type.rank - 1], keys);
    for (uint32_t i = 0; i + 1 < type.rank; i++) only_keys = only_keys && dim_is(type.dims[i], 1);
    if (only_keys) {
      grouped->scores.mask = value;
      return true;
    }
    const Node *node = value->producer;
    if (!node || (!is_moved(node) && !node_is(node, OP_Expand))) break;
    const Attribute *order = node_attribute(node, "perm");
    if (order && order->integers[order->count - 1] != (int64_t)order->count - 1) break;
    Type from = node_input(node, 0)->type;
    if (from.rank == 0 || !dim_equal(from.dims[from.rank - 1], keys)) break;
    value = node_input(node, 0);
  }
  Type type = mask->type;
  grouped->scores.mask = mask;
  if (type.rank > 4 || type.rank > axes->rank) return false;
  for (uint32_t i = 0; i < type.rank; i++) {
    uint32_t from_end = type.rank - i, at = axes->rank - from_end;
    if (dim_is(type.dims[i], 1)) continue;
    const Axes *wanted = from_end == 1 ? &last : from_end == 2 ? &query : from_end == 4 ? &batch : NULL;
    if (!wanted || !same_axis(axes, at, wanted, 0)) return false;
  }
  return true;
}

/* Follows the scores from the product to the softmax; the mask is read where it is applied. */
static bool follow_scores(Grouped *grouped, Axes *axes) {
  for (size_t i = grouped->of_scores.count; i-- > 0;) {
    Chain one = {.nodes = {grouped->of_scores.nodes[i]}, .count = 1};
    if (!follow(grouped, &one, axes)) return false;
    if (node_is(one.nodes[0], OP_Where) && !read_mask(grouped, axes)) return false;
  }
  int64_t axis = node_int_or(grouped->softmax, "axis", -1);
  if (axis < 0) axis += axes->rank;
  Axes keys = AXES(grouped, KEY, -1);
  return axis >= 0 && axis < (int64_t)axes->rank && same_axis(axes, (uint32_t)axis, &keys, 0);
}

static void copy_axis(Axes *to, uint32_t axis, const Axes *from, uint32_t source) {
  to->count[axis] = from->count[source];
  memcpy(to->parts[axis], from->parts[source], sizeof to->parts[axis]);
}

/* batch, head of keys, then rows and something else in the order that is given. */
static Axes product_axes(const Grouped *grouped, Part other, uint32_t rows_at, const Axes *rows, uint32_t rows_axis) {
  Axes axes = AXES(grouped, BATCH, -1, HEAD, -1, (int)other, -1, (int)other, -1);
  copy_axis(&axes, rows_at, rows, rows_axis);
  return axes;
}

static bool is_values(const Grouped *grouped, const Value *values) {
  const Dim *sizes = grouped->sizes;
  Type type = values->type;
  uint32_t keys = grouped->weights_side == 1 ? 3 : 2;
  return type.rank == 4 && dim_equal(type.dims[0], sizes[BATCH]) && dim_equal(type.dims[1], sizes[HEAD]) &&
         dim_equal(type.dims[keys], sizes[KEY]) && dim_equal(type.dims[5 - keys], sizes[FEATURE]);
}

static bool reaches_result(Grouped *grouped) {
  if (!is_values(grouped, node_input(grouped->second, 1 - grouped->weights_side))) return false;
  uint32_t rows = grouped->query_side == 0 ? 2 : 3;
  Axes axes = product_axes(grouped, KEY, rows, &grouped->query_axes, rows);
  if (!follow_scores(grouped, &axes) || !follow(grouped, &grouped->of_weights, &axes)) return false;
  rows = grouped->weights_side == 1 ? 3 : 2;
  if (axes.rank != 4 || !is_rows(grouped, &axes, rows)) return false;
  if (!same_axes(&axes, product_axes(grouped, KEY, rows, &axes, rows))) return false;
  axes = product_axes(grouped, FEATURE, rows, &axes, rows);
  if (!follow(grouped, &grouped->of_result, &axes)) return false;
  if (axes.rank == 3) return same_axes(&axes, AXES(grouped, BATCH, -1, QUERY, -1, HEAD, GROUP, FEATURE, -1));
  return same_axes(&axes, AXES(grouped, BATCH, -1, QUERY, -1, HEAD, GROUP, -1, FEATURE, -1)) ||
         same_axes(&axes, AXES(grouped, BATCH, -1, QUERY, -1, HEAD, -1, GROUP, -1, FEATURE, -1));
}

/* Is the value one of the three ways that queries come in, and what becomes of them the result? */
static bool is_query(Grouped *grouped, Value *value, const Chain *chain) {
  Type type = value->type;
  Dim *sizes = grouped->sizes;
  int64_t heads = sizes[HEAD].constant, features = sizes[FEATURE].constant;
  if (type.rank < 3 || type.rank > 4 || !dim_equal(type.dims[0], sizes[BATCH])) return false;
  for (uint32_t at = 2; at >= 1; at--) { /* where the heads are: with one head of keys both may fit so far */
    uint32_t position = type.rank == 3 ? 1 : 3 - at;
    Dim all = type.dims[type.rank == 3 ? 2 : at];
    int64_t unit = type.rank == 3 ? heads * features : heads;
    if (!dim_is_constant(all) || all.constant % unit || all.constant == unit) continue;
    if (type.rank == 4 && !dim_equal(type.dims[3], sizes[FEATURE])) continue;
    sizes[GROUP] = dim_of(all.constant / unit);
    sizes[QUERY] = type.dims[position];
    Axes axes = type.rank == 3 ? AXES(grouped, BATCH, -1, QUERY, -1, HEAD, GROUP, FEATURE, -1)
                : at == 2      ? AXES(grouped, BATCH, -1, QUERY, -1, HEAD, GROUP, -1, FEATURE, -1)
                               : AXES(grouped, BATCH, -1, HEAD, GROUP, -1, QUERY, -1, FEATURE, -1);
    uint32_t rows = grouped->query_side == 0 ? 2 : 3;
    Axes ends = AXES(grouped, BATCH, -1, HEAD, -1, FEATURE, -1);
    if (!follow(grouped, chain, &axes) || axes.rank != 4 || !is_rows(grouped, &axes, rows)) continue;
    if (!same_axis(&axes, 0, &ends, 0) || !same_axis(&axes, 1, &ends, 1)) continue;
    if (!same_axis(&axes, 5 - rows, &ends, 2)) continue;
    grouped->heads_first = type.rank == 4 && at == 1;
    grouped->query_axes = axes;
    if (reaches_result(grouped)) return true;
  }
  return false;
}

static bool find_query(Grouped *grouped) {
  Match *match = grouped->match;
  for (size_t side = 0; side < 2; side++) {
    size_t before = match->node_count;
    Type keys = node_input(grouped->first, 1 - side)->type;
    if (keys.rank != 4 || !dim_is_constant(keys.dims[1]) || !dim_is_constant(keys.dims[side ? 3 : 2])) return false;
    grouped->query_side = side;
    grouped->sizes[BATCH] = keys.dims[0];
    grouped->sizes[HEAD] = keys.dims[1];
    grouped->sizes[FEATURE] = keys.dims[side ? 3 : 2];
    grouped->sizes[KEY] = keys.dims[side ? 2 : 3];
    walk_back(match, node_input(grouped->first, side), &grouped->of_query);
    for (Chain chain = grouped->of_query;; chain.count--) { /* from as far back as there is */
      Value *value = chain.count ? node_input(chain.nodes[chain.count - 1], 0) : node_input(grouped->first, side);
      if (is_query(grouped, value, &chain)) {
        grouped->query = value;
        match->node_count = before + chain.count;
        return !dim_is(grouped->sizes[KEY], 1);
      }
      if (chain.count == 0) break;
    }
    match->node_count = before;
  }
  return false;
}

/* ---- the operator ---- */

static Value *reshaped(Match *match, Value *value, const int64_t *numbers, Type type) {
  Value *shape = rewrite_constant_ints(match->rewriter, match->root, numbers, type.rank, match->root->origin);
  return EMIT_BEFORE(match, OP_Reshape, type, value, shape)->outputs[0];
}

static Value *query_heads_first(const Grouped *grouped, Type type) {
  Match *match = grouped->match;
  Value *value = grouped->query;
  if (grouped->heads_first) return value;
  if (value->type.rank == 3) {
    const Dim dims[] = {type.dims[0], type.dims[2], type.dims[1], type.dims[3]};
    const int64_t numbers[] = {0, 0, dims[2].constant, dims[3].constant};
    value = reshaped(match, value, numbers, type_make(match->rewriter->context, type.dtype, dims, 4));
  }
  Node *node = EMIT_BEFORE(match, OP_Transpose, type, value);
  set_heads_first(node);
  return node->outputs[0];
}

static bool emit(Grouped *grouped, Value *mask, bool causal) {
  Match *match = grouped->match;
  Context *context = match->rewriter->context;
  const Dim *sizes = grouped->sizes;
  Dim heads = dim_of(sizes[HEAD].constant * sizes[GROUP].constant);
  const Dim dims[] = {sizes[BATCH], heads, sizes[QUERY], sizes[FEATURE]};
  const Dim turned[] = {sizes[BATCH], sizes[QUERY], heads, sizes[FEATURE]};
  Type type = type_make(context, DTYPE_FLOAT32, dims, 4), back = type_make(context, DTYPE_FLOAT32, turned, 4);
  Value *keys = node_input(grouped->first, 1 - grouped->query_side);
  Value *values = node_input(grouped->second, 1 - grouped->weights_side);
  if (grouped->query_side == 0) keys = features_last(match, keys);
  if (grouped->weights_side == 1) values = features_last(match, values);
  grouped->scores.query = query_heads_first(grouped, type);
  Value *inputs[] = {grouped->scores.query, keys, values, mask};
  Node *node = match_node_before(match, OP_Attention, type, inputs, mask ? 4 : 3, REWRITE_EMITTER(match->rewriter));
  set_attention(node, &grouped->scores, causal);
  for (size_t i = 1; i < match->node_count; i++) rewrite_hand_over(match->rewriter, node, match->nodes[i]);
  Node *last = EMIT_BEFORE(match, OP_Transpose, back, node->outputs[0]);
  set_heads_first(last);
  Type result = match_type(match);
  int64_t numbers[5] = {0, 0};
  for (uint32_t i = 2; i < result.rank; i++) numbers[i] = result.dims[i].constant;
  Value *shape = rewrite_constant_ints(match->rewriter, match->root, numbers, result.rank, match->root->origin);
  return EMIT_MATCH(match, OP_Reshape, last->outputs[0], shape);
}

bool fuse_grouped_heads(Match *match) {
  Grouped grouped = {.match = match};
  Value *mask;
  Type type = match_type(match);
  if (type.dtype != DTYPE_FLOAT32 || type.rank < 3 || type.rank > 5) return false;
  walk_back(match, match->root->outputs[0], &grouped.of_result);
  grouped.second = match_take(match, grouped.of_result.source, OP_MatMul);
  if (!grouped.second || !find_softmax(&grouped) || !find_query(&grouped)) return false;
  const Dim *sizes = grouped.sizes;
  const Dim dims[] = {sizes[BATCH], dim_of(sizes[HEAD].constant * sizes[GROUP].constant), sizes[QUERY], sizes[KEY]};
  grouped.scores.type = type_make(match->rewriter->context, DTYPE_FLOAT32, dims, 4);
  grouped.scores.query = grouped.query;
  MaskUse use = mask_use(&grouped.scores);
  return attention_mask(match, &grouped.scores, use, &mask) && emit(&grouped, mask, use == MASK_CAUSAL);
}
