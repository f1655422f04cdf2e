/* Grouped queries written as contractions over five axes: batch, position, head of keys, head within the group,
 * features.
 *
 * Transposes and Reshapes around such contractions come in many orders. So the axes are followed by what they stand
 * for: from the queries through both products to the result. Axes of size 1 stand for nothing. */
#include <math.h>

#include "base/bytes.h"
#include "onnx/facts/schema.h"
#include "passes/analysis/bounds.h"
#include "passes/analysis/masks.h"
#include "passes/fuse/attention.h"

typedef enum Part { BATCH, QUERY, HEAD, GROUP, FEATURE, KEY, PART_COUNT } Part;

enum { MOST_AXES = 8, MOST_MERGED = 4, LONGEST = 12, DEEPEST = 4 };

/* What each axis of a value stands for: several parts when they are merged, the first the slowest. */
typedef struct Axes {
  uint32_t rank;
  uint32_t count[MOST_AXES];
  Part parts[MOST_AXES][MOST_MERGED];
} Axes;

/* A mask or a bias, and what each of its axes stands for; NO_PART where its size is 1. */
typedef struct Spread {
  Value *value;
  int parts[MOST_AXES];
} Spread;

enum { NO_PART = -1 };

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
  Spread mask, bias; /* as they are applied; those of the scores are what they were spread from */
  Value *query;      /* batch, position, head, features; or heads and features in one; or no batch */
  bool heads_first;  /* of the query: head before position */
  bool no_batch;     /* of the result */
  Axes query_axes;   /* where the product reads it */
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

static bool keeps_numbers(const Node *node) { return is_moved(node) || is_cast_of_half(node); }

/* Back through what only moves axes. */
static void walk_back(Match *match, Value *value, Chain *chain) {
  *chain = (Chain){.source = value};
  while (chain->source->producer && keeps_numbers(chain->source->producer)) {
    if (!extend(match, chain, chain->source->producer)) return;
  }
}

static bool is_scaled(const Node *node) { return node_is(node, OP_Mul) || node_is(node, OP_Div); }

/* Which input of a sum is a product, moved and scaled? */
static bool comes_from_product(const Value *value) {
  double number;
  const Node *node = value->producer;
  while (node && (keeps_numbers(node) || is_scaled(node))) {
    bool swapped = node_is(node, OP_Mul) && uniform_number(node_input(node, 0), &number);
    node = node_input(node, swapped)->producer;
  }
  return node && node_is(node, OP_MatMul);
}

static bool step_over_scale(const Node *node, Scores *scores, Chain *chain) {
  double number;
  bool swapped = node_is(node, OP_Mul) && uniform_number(node_input(node, 0), &number);
  if (!uniform_number(node_input(node, !swapped), &number)) return false;
  scores->scale = node_is(node, OP_Div) ? scores->scale / number : scores->scale * number;
  chain->source = node_input(node, swapped);
  return true;
}

/* Before the bias is added, and what is put in place of a score is scaled with it. */
static bool step_over_mask(const Node *node, Scores *scores, Chain *chain) {
  if (scores->mask || scores->bias) return false;
  for (size_t kept = 1; kept <= 2; kept++) {
    if (!spread_number(node_input(node, 3 - kept), &scores->fill)) continue;
    scores->fill *= scores->scale;
    scores->inverted = kept == 2;
    scores->mask = node_input(node, 0);
    chain->source = node_input(node, kept);
    return true;
  }
  return false;
}

static bool step_over_bias(const Node *node, Scores *scores, Chain *chain) {
  size_t side = comes_from_product(node_input(node, 0)) ? 0 : 1;
  if (scores->bias || scores->scale != 1) return false;
  scores->bias = node_input(node, 1 - side);
  chain->source = node_input(node, side);
  return true;
}

/* Back from the softmax to the product: through scales, one mask and one bias as well. */
static bool walk_scores(Grouped *grouped) {
  Match *match = grouped->match;
  Chain *chain = &grouped->of_scores;
  Scores *scores = &grouped->scores;
  *chain = (Chain){.source = node_input(grouped->softmax, 0)};
  *scores = (Scores){.scale = 1};
  for (Node *node; (node = chain->source->producer) && !node_is(node, OP_MatMul);) {
    if (!extend(match, chain, node)) return false;
    if (keeps_numbers(node)) continue;
    bool is_passed = is_scaled(node)           ? step_over_scale(node, scores, chain)
                     : node_is(node, OP_Where) ? step_over_mask(node, scores, chain)
                     : node_is(node, OP_Add)   ? step_over_bias(node, scores, chain)
                                               : false;
    if (!is_passed || !type_same_shape(chain->source->type, node->outputs[0]->type)) return false;
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

/* A mask that was only spread from one over keys, as it was before; or NULL. */
static Value *mask_of_keys(const Grouped *grouped, Value *value) {
  Dim keys = grouped->sizes[KEY];
  for (;;) {
    Type type = value->type;
    bool only_keys = type.rank > 0 && type.rank <= 4 && dim_equal(type.dims[type.rank - 1], keys);
    for (uint32_t i = 0; i + 1 < type.rank; i++) only_keys = only_keys && dim_is(type.dims[i], 1);
    if (only_keys) return value;
    const Node *node = value->producer;
    if (!node || (!is_moved(node) && !node_is(node, OP_Expand))) return NULL;
    const Attribute *order = node_attribute(node, "perm");
    if (order && order->integers[order->count - 1] != (int64_t)order->count - 1) return NULL;
    Type from = node_input(node, 0)->type;
    if (from.rank == 0 || !dim_equal(from.dims[from.rank - 1], keys)) return NULL;
    value = node_input(node, 0);
  }
}

static bool has_part(const Spread *spread, Part part) {
  for (uint32_t i = 0; i < spread->value->type.rank; i++) {
    if (spread->parts[i] == (int)part) return true;
  }
  return false;
}

/* What the axes of an input stand for, by those of what is made of it: counted from the last. */
static bool spread_from(const Spread *spread, Value *input, Spread *from) {
  uint32_t rank = spread->value->type.rank, own = input->type.rank;
  if (own > rank) return false;
  *from = (Spread){.value = input};
  for (uint32_t i = 0; i < own; i++)
    from->parts[i] = dim_is(input->type.dims[i], 1) ? NO_PART : spread->parts[rank - own + i];
  return true;
}

/* Back to before it was spread over heads. */
static void undo_spread(Spread *spread) {
  for (Node *node; (node = spread->value->producer) && (has_part(spread, HEAD) || has_part(spread, GROUP));) {
    Spread from = {.value = node_input(node, 0)};
    if (node_is(node, OP_Transpose)) {
      const Attribute *order = node_attribute(node, "perm");
      if (!order) return;
      for (size_t i = 0; i < order->count; i++) from.parts[order->integers[i]] = spread->parts[i];
    } else if (!node_is(node, OP_Expand) || !spread_from(spread, node_input(node, 0), &from)) {
      return;
    }
    *spread = from;
  }
}

/* Is it over batch, one head, query and key already, as far as it has axes? */
static bool is_in_place(const Spread *spread) {
  static const int places[] = {KEY, QUERY, NO_PART, BATCH}; /* from the last */
  uint32_t rank = spread->value->type.rank;
  for (uint32_t i = 0; i < rank; i++) {
    uint32_t from_end = rank - 1 - i;
    if (from_end > 3 || (spread->parts[i] != NO_PART && spread->parts[i] != places[from_end])) return false;
  }
  return true;
}

static bool is_true(const Value *value) {
  Bounds bounds;
  return value_bounds(value, &bounds) && bounds.least >= 1;
}

/* Can it be put over batch, one head, query and key? Conditions that both must hold are put there each by itself. */
static bool can_place(Spread spread, int depth) {
  Spread one, other;
  undo_spread(&spread);
  Node *node = spread.value->producer;
  if (!has_part(&spread, HEAD) && !has_part(&spread, GROUP)) return has_part(&spread, KEY);
  if (depth == DEEPEST || !node || !node_is(node, OP_And)) return false;
  if (!spread_from(&spread, node_input(node, 0), &one) || !spread_from(&spread, node_input(node, 1), &other))
    return false;
  if (is_true(one.value)) return can_place(other, depth + 1);
  return can_place(one, depth + 1) && (is_true(other.value) || can_place(other, depth + 1));
}

/* Axes of size 1 are left out, or put in. */
static Value *with_ones(Match *match, Op op, Value *value, const int64_t *axes, size_t count, Type type) {
  if (count == 0) return value;
  Value *list = rewrite_constant_ints(match->rewriter, match->root, axes, count, match->root->origin);
  return EMIT_BEFORE(match, op, type, value, list)->outputs[0];
}

/* The value with four axes: those that stand for something in order, 1 between them. */
static Value *put_in_place(Match *match, const Spread *spread) {
  static const Part places[] = {BATCH, PART_COUNT, QUERY, KEY};
  Context *context = match->rewriter->context;
  Type from = spread->value->type;
  int64_t left_out[MOST_AXES], put_in[4], order[4];
  Dim bare[4], ordered[4], dims[4];
  int parts[4];
  uint32_t count = 0, out = 0, in = 0, next = 0;
  bool is_ordered = true;
  for (uint32_t i = 0; i < from.rank; i++) {
    if (spread->parts[i] == NO_PART) left_out[out++] = i;
    else parts[count] = spread->parts[i], bare[count++] = from.dims[i];
  }
  for (uint32_t place = 0; place < 4; place++) {
    uint32_t at = 0;
    while (at < count && parts[at] != (int)places[place]) at++;
    dims[place] = at < count ? bare[at] : dim_of(1);
    if (at == count) put_in[in++] = place;
    else is_ordered = is_ordered && at == next, ordered[next] = bare[at], order[next++] = at;
  }
  Value *value =
      with_ones(match, OP_Squeeze, spread->value, left_out, out, type_make(context, from.dtype, bare, count));
  if (!is_ordered) {
    Node *node = EMIT_BEFORE(match, OP_Transpose, type_make(context, from.dtype, ordered, count), value);
    node_set_ints(node, "perm", order, count);
    value = node->outputs[0];
  }
  return with_ones(match, OP_Unsqueeze, value, put_in, in, type_make(context, from.dtype, dims, 4));
}

static Value *place(Match *match, Spread spread) {
  undo_spread(&spread);
  if (is_in_place(&spread)) return spread.value;
  if (!has_part(&spread, HEAD) && !has_part(&spread, GROUP)) return put_in_place(match, &spread);
  Spread parts[2];
  Value *placed[2];
  Dim dims[4];
  for (size_t i = 0; i < 2; i++) spread_from(&spread, node_input(spread.value->producer, i), &parts[i]);
  for (size_t i = 0; i < 2; i++) {
    if (is_true(parts[i].value)) return place(match, parts[1 - i]);
  }
  for (size_t i = 0; i < 2; i++) placed[i] = place(match, parts[i]);
  for (uint32_t i = 0; i < 4; i++) { /* where sizes differ, one is 1 */
    dims[i] = dim_of(1);
    for (size_t p = 0; p < 2; p++) {
      Type type = placed[p]->type;
      if (i + type.rank >= 4 && !dim_is(type.dims[i + type.rank - 4], 1)) dims[i] = type.dims[i + type.rank - 4];
    }
  }
  Type type = type_make(match->rewriter->context, DTYPE_BOOL, dims, 4);
  return EMIT_BEFORE(match, OP_And, type, placed[0], placed[1])->outputs[0];
}

/* What a mask or bias that is applied to scores of these axes stands for. */
static bool read_spread(const Grouped *grouped, const Axes *axes, Value *value, Spread *spread) {
  Type type = value->type;
  Axes last = AXES(grouped, KEY, -1);
  if (type.rank > axes->rank || !same_axis(axes, axes->rank - 1, &last, 0)) return false;
  *spread = (Spread){.value = value};
  Value *keys = mask_of_keys(grouped, value);
  if (keys) {
    spread->value = keys;
    for (uint32_t i = 0; i < keys->type.rank; i++) spread->parts[i] = i + 1 == keys->type.rank ? KEY : NO_PART;
    return true;
  }
  for (uint32_t i = 0; i < type.rank; i++) {
    uint32_t at = axes->rank - type.rank + i;
    spread->parts[i] = dim_is(type.dims[i], 1) ? NO_PART : (int)axes->parts[at][0];
    if (spread->parts[i] != NO_PART && axes->count[at] != 1) return false;
  }
  return can_place(*spread, 0);
}

/* Follows the scores from the product to the softmax; mask and bias are read where they are applied. */
static bool follow_scores(Grouped *grouped, Axes *axes) {
  for (size_t i = grouped->of_scores.count; i-- > 0;) {
    Chain one = {.nodes = {grouped->of_scores.nodes[i]}, .count = 1};
    if (!follow(grouped, &one, axes)) return false;
    const Scores *scores = &grouped->scores;
    if (node_is(one.nodes[0], OP_Where) && !read_spread(grouped, axes, scores->mask, &grouped->mask)) return false;
    if (node_is(one.nodes[0], OP_Add) && !read_spread(grouped, axes, scores->bias, &grouped->bias)) return false;
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
  if (axes.rank == 3 && same_axes(&axes, AXES(grouped, BATCH, -1, QUERY, -1, HEAD, GROUP, FEATURE, -1))) return true;
  grouped->no_batch = same_axes(&axes, AXES(grouped, QUERY, -1, HEAD, GROUP, -1, FEATURE, -1));
  if (grouped->no_batch) return dim_is(grouped->sizes[BATCH], 1);
  return same_axes(&axes, AXES(grouped, BATCH, -1, QUERY, -1, HEAD, GROUP, -1, FEATURE, -1)) ||
         same_axes(&axes, AXES(grouped, BATCH, -1, QUERY, -1, HEAD, -1, GROUP, -1, FEATURE, -1));
}

/* Do queries with these axes get to the product, and what becomes of them to the result? */
static bool leads_through(Grouped *grouped, const Chain *chain, Axes axes) {
  uint32_t rows = grouped->query_side == 0 ? 2 : 3;
  Axes ends = AXES(grouped, BATCH, -1, HEAD, -1, FEATURE, -1);
  if (!follow(grouped, chain, &axes) || axes.rank != 4 || !is_rows(grouped, &axes, rows)) return false;
  if (!same_axis(&axes, 0, &ends, 0) || !same_axis(&axes, 1, &ends, 1)) return false;
  if (!same_axis(&axes, 5 - rows, &ends, 2)) return false;
  grouped->query_axes = axes;
  return reaches_result(grouped);
}

/* Position, head, features, and no batch. */
static bool is_query_without_batch(Grouped *grouped, Type type, const Chain *chain) {
  Dim *sizes = grouped->sizes;
  int64_t heads = sizes[HEAD].constant;
  if (type.rank != 3 || !dim_is(sizes[BATCH], 1) || !dim_equal(type.dims[2], sizes[FEATURE])) return false;
  if (!dim_is_constant(type.dims[1]) || type.dims[1].constant % heads || type.dims[1].constant == heads) return false;
  sizes[GROUP] = dim_of(type.dims[1].constant / heads);
  sizes[QUERY] = type.dims[0];
  grouped->heads_first = false;
  return leads_through(grouped, chain, AXES(grouped, QUERY, -1, HEAD, GROUP, -1, FEATURE, -1));
}

/* Is the value one of the ways that queries come in, and what becomes of them the result? */
static bool is_query(Grouped *grouped, Value *value, const Chain *chain) {
  Type type = value->type;
  if (is_query_without_batch(grouped, type, chain)) return true;
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
    grouped->heads_first = type.rank == 4 && at == 1;
    if (leads_through(grouped, chain, axes)) return true;
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
    bool no_batch = dim_equal(value->type.dims[2], type.dims[3]); /* there are several heads */
    const Dim dims[] = {type.dims[0], type.dims[2], type.dims[1], type.dims[3]};
    const int64_t numbers[] = {no_batch ? 1 : 0, no_batch ? -1 : 0, dims[2].constant, dims[3].constant};
    value = reshaped(match, value, numbers, type_make(match->rewriter->context, value->type.dtype, dims, 4));
  }
  Node *node = EMIT_BEFORE(match, OP_Transpose, type_with(type, value->type.dtype), value);
  set_heads_first(node);
  return node->outputs[0];
}

/* Keys or values as the operator takes them; `turned` where the product reads their features first. */
static Value *operand(Match *match, Value *value, bool turned) {
  if (value->producer && is_cast_of_half(value->producer)) {
    match_take(match, value, value->producer->op);
    value = node_input(value->producer, 0);
  }
  return match_in_type(match, turned ? features_last(match, value) : value, DTYPE_FLOAT32);
}

static void emit_result(const Grouped *grouped, Value *value) {
  Match *match = grouped->match;
  Type result = match_type(match);
  int64_t numbers[5] = {0, 0};
  for (uint32_t i = grouped->no_batch ? 1 : 2; i < result.rank; i++) numbers[i] = result.dims[i].constant;
  if (grouped->no_batch) numbers[0] = -1;
  Value *shape = rewrite_constant_ints(match->rewriter, match->root, numbers, result.rank, match->root->origin);
  EMIT_MATCH(match, OP_Reshape, match_in_type(match, value, result.dtype), shape);
}

static void emit(Grouped *grouped, Value *mask, bool causal) {
  Match *match = grouped->match;
  Context *context = match->rewriter->context;
  const Dim *sizes = grouped->sizes;
  Dim heads = dim_of(sizes[HEAD].constant * sizes[GROUP].constant);
  const Dim dims[] = {sizes[BATCH], heads, sizes[QUERY], sizes[FEATURE]};
  const Dim turned[] = {sizes[BATCH], sizes[QUERY], heads, sizes[FEATURE]};
  Type type = type_make(context, DTYPE_FLOAT32, dims, 4), back = type_make(context, DTYPE_FLOAT32, turned, 4);
  Value *keys = operand(match, node_input(grouped->first, 1 - grouped->query_side), grouped->query_side == 0);
  Value *values = operand(match, node_input(grouped->second, 1 - grouped->weights_side), grouped->weights_side == 1);
  grouped->scores.query = match_in_type(match, query_heads_first(grouped, type), DTYPE_FLOAT32);
  Value *inputs[] = {grouped->scores.query, keys, values, mask};
  Node *node = match_node_before(match, OP_Attention, type, inputs, mask ? 4 : 3, REWRITE_EMITTER(match->rewriter));
  set_attention(node, &grouped->scores, causal);
  for (size_t i = 1; i < match->node_count; i++) rewrite_hand_over(match->rewriter, node, match->nodes[i]);
  Node *last = EMIT_BEFORE(match, OP_Transpose, back, node->outputs[0]);
  set_heads_first(last);
  emit_result(grouped, last->outputs[0]);
}

/* Mask and bias over batch, one head, query and key. Nothing is made before it is known that they fit. */
static bool place_masks(Grouped *grouped) {
  Scores *scores = &grouped->scores;
  Spread *spreads[] = {scores->mask ? &grouped->mask : NULL, scores->bias ? &grouped->bias : NULL};
  Value **places[] = {&scores->mask, &scores->bias};
  for (size_t i = 0; i < 2; i++) {
    if (!spreads[i]) continue;
    undo_spread(spreads[i]);
    if (!is_in_place(spreads[i]) && !can_add_mask(scores)) return false;
  }
  for (size_t i = 0; i < 2; i++) {
    if (spreads[i]) *places[i] = place(grouped->match, *spreads[i]);
  }
  return true;
}

bool fuse_grouped_heads(Match *match) {
  Grouped grouped = {.match = match};
  Value *mask;
  Type type = match_type(match);
  if (!schema_runs(OP_Attention, NULL, match_opset(match), DTYPE_FLOAT32) || type.rank < 3 || type.rank > 5)
    return false;
  walk_back(match, match->root->outputs[0], &grouped.of_result);
  grouped.second = match_take(match, grouped.of_result.source, OP_MatMul);
  if (!grouped.second || !find_softmax(&grouped) || !find_query(&grouped)) return false;
  const Dim *sizes = grouped.sizes;
  const Dim dims[] = {sizes[BATCH], dim_of(sizes[HEAD].constant * sizes[GROUP].constant), sizes[QUERY], sizes[KEY]};
  DType dtype = node_input(grouped.softmax, 0)->type.dtype;
  if (!dtype_is_half(type.dtype) && type.dtype != DTYPE_FLOAT32) return false;
  grouped.scores.type = type_make(match->rewriter->context, dtype, dims, 4);
  grouped.scores.query = grouped.query;
  if (!place_masks(&grouped)) return false;
  MaskUse use = mask_use(&grouped.scores);
  if (!attention_mask(match, &grouped.scores, use, &mask)) return false;
  emit(&grouped, mask, use == MASK_CAUSAL);
  return true;
}
