/* Normalisations by groups of channels, and by single channels: GroupNormalization and InstanceNormalization.
 *
 * Programs that have their channels last get a Transpose before and one after; next to a convolution both cancel.
 *
 * A target may have no kernel for GroupNormalization (QUIRK_GROUP_NORMALIZATION_HAS_NO_KERNEL) and take it apart into
 * some twenty nodes, which compute the variance as the mean of squares less the square of the mean. An
 * InstanceNormalization of the groups is exact and takes half the time, so that it is preferred, unless operators of
 * their own are asked for.
 */
#include <math.h>

#include "base/bytes.h"
#include "onnx/facts/schema.h"
#include "passes/fuse/normalization.h"
#include "passes/layout/permute_axes.h"
#include "passes/pattern.h"
#include "target/target.h"
#include "types/numbers.h"

enum {
  X_SLOT,
  GROUPED, /* with an axis of groups and one of the channels of a group */
  MEAN_OF_X,
  MEAN_OF_SQUARES,
  MEAN, /* by channel */
  MEAN_ROW,
  MEAN_SPREAD, /* from group to channels */
  VARIANCE,
  VARIANCE_ROW,
  VARIANCE_SPREAD,
  EPSILON,
  SCALE,
  BIAS,
  DIFFERENCE, /* set: the variance is taken in two steps */
  MEAN_KEPT,
  INNER,
  SOURCE, /* what x and the groups are both Reshapes of */
};
#define X ANY(X_SLOT)

enum { GROUP_NORMALIZATION = 21 /* the opset since which its scale is by channel */ };

typedef struct Grouping {
  uint32_t axis; /* of the channels */
  int64_t channels, groups;
} Grouping;

/* ---- what is normalised together ---- */

static bool reduces_alike(const Node *a, const Node *b, bool axes[MAX_RANK]) {
  bool others[MAX_RANK];
  if (!reduced_axes(a, axes) || !reduced_axes(b, others)) return false;
  Type type = node_input(a, 0)->type;
  return type_same_shape(type, node_input(b, 0)->type) && same_bytes(axes, others, type.rank * sizeof *axes);
}

/* All axes but the first and this one? */
static bool reduces_all_but(const bool axes[MAX_RANK], uint32_t rank, uint32_t kept) {
  for (uint32_t i = 0; i < rank; i++) {
    if (axes[i] == (i == 0 || i == kept)) return false;
  }
  return true;
}

/* Is the type x's with the channel axis split into groups and what a group has? */
static bool splits_channels(Type x, Type grouped, uint32_t axis, int64_t *groups) {
  if (grouped.rank != x.rank + 1) return false;
  for (uint32_t i = 0; i < x.rank; i++) {
    if (i != axis && !dim_equal(x.dims[i], grouped.dims[i < axis ? i : i + 1])) return false;
  }
  Dim groups_dim = grouped.dims[axis], rest = grouped.dims[axis + 1];
  if (!dim_is_constant(groups_dim) || !dim_is_constant(rest) || groups_dim.constant < 1) return false;
  *groups = groups_dim.constant;
  return groups_dim.constant * rest.constant == x.dims[axis].constant;
}

static bool find_grouping(const Match *match, const bool axes[MAX_RANK], Type reduced, Grouping *grouping) {
  Type x = match->values[X_SLOT]->type;
  if (x.rank < 3 || x.rank > MOST_PERMUTED) return false;
  const uint32_t candidates[] = {x.rank - 1, 1};
  for (size_t i = 0; i < 2; i++) {
    uint32_t axis = candidates[i];
    Dim channels = x.dims[axis];
    if (!dim_is_constant(channels) || channels.constant < 1) continue;
    *grouping = (Grouping){axis, channels.constant, channels.constant};
    bool split = reduced.rank == x.rank + 1 && splits_channels(x, reduced, axis, &grouping->groups);
    if (!split && !type_same_shape(x, reduced)) continue;
    if (reduces_all_but(axes, reduced.rank, axis)) return true;
  }
  return false;
}

/* ---- a number for each channel ---- */

/* The type of a statistic by channel: 1 along all axes but the first and the channels'; leading ones may be missing. */
static bool is_by_channel(Type type, Type x, const Grouping *grouping) {
  bool reduced[MAX_RANK];
  for (uint32_t i = 0; i < x.rank; i++) reduced[i] = i != 0 && i != grouping->axis;
  return is_reduced_shape(type, x, reduced);
}

/* [batch, groups] -> [batch, groups, 1] -> [batch, groups, channels of a group] -> by channel. */
static bool is_spread(const Match *match, int row, int spread, const Grouping *grouping) {
  Dim batch = match->values[X_SLOT]->type.dims[0];
  int64_t share = grouping->channels / grouping->groups;
  if (!match->values[spread]) return grouping->groups == grouping->channels;
  Type from = match->values[row]->type, to = match->values[spread]->type;
  return from.rank == 3 && to.rank == 3 && dim_equal(from.dims[0], batch) && dim_is(from.dims[1], grouping->groups) &&
         dim_is(from.dims[2], 1) && dim_equal(to.dims[0], batch) && dim_is(to.dims[1], grouping->groups) &&
         dim_is(to.dims[2], share);
}

/* The position in the constant of the first element of a channel, by its strides; -1 where it varies along others. */
static bool varies_by_channel_alone(const Tensor *tensor, int64_t inner, int64_t channels) {
  size_t width = dtype_bytes(tensor->dtype, 1), count = tensor->size / width;
  const char *data = tensor->data;
  for (size_t i = 0; i < count; i++) {
    size_t first = i / (size_t)inner % (size_t)channels * (size_t)inner;
    if (!same_bytes(data + i * width, data + first * width, width)) return false;
  }
  return true;
}

/* The value as a vector by channel: a vector along the last axis itself, or a constant, also one that repeats itself
 * along other axes. In the shape with groups, `axis` and the axis after it are the channels. NULL: it is not. */
static Value *channel_vector(Match *match, Value *value, const Grouping *grouping, Type shape, uint32_t axis) {
  const Tensor *tensor = constant_of(value);
  if (value->type.dtype != match_dtype(match)) return NULL;
  bool is_vector = value->type.rank == 1 && dim_is(value->type.dims[0], grouping->channels);
  if (is_vector && axis + 1 == shape.rank) return value;
  if (!tensor || tensor->rank > shape.rank || tensor->size == 0) return NULL;
  uint32_t missing = shape.rank - tensor->rank;
  int64_t inner = 1, along = 1;
  for (uint32_t i = 0; i < tensor->rank; i++) {
    bool channel = i + missing == axis || (shape.rank > match->values[X_SLOT]->type.rank && i + missing == axis + 1);
    if (channel) along *= tensor->dims[i];
    else if (i + missing > axis) inner *= tensor->dims[i];
  }
  if (along != grouping->channels || !varies_by_channel_alone(tensor, inner, along)) return NULL;
  Context *context = match->rewriter->context;
  size_t width = dtype_bytes(tensor->dtype, 1);
  Tensor *vector = arena_copy(&context->arena, tensor, sizeof *tensor);
  vector->rank = 1;
  vector->dims = arena_copy(&context->arena, &along, sizeof along);
  vector->size = (size_t)along * width;
  char *data = arena_new_array(&context->arena, vector->size, char);
  for (int64_t i = 0; i < along; i++) {
    copy_bytes(data + (size_t)i * width, (const char *)tensor->data + (size_t)(i * inner) * width, width);
  }
  vector->data = data;
  return rewrite_constant(match->rewriter, match->root, vector, value->origin);
}

static Value *uniform_vector(Match *match, int64_t channels, double number) {
  const Dim dim = dim_of(channels);
  return match_filled(match, (Type){.dtype = match_dtype(match), .rank = 1, .dims = &dim}, number);
}

/* ---- the operator ---- */

static bool runs(const Match *match, Op op) {
  DType dtype = match_dtype(match);
  return dtype != DTYPE_FLOAT64 && schema_runs(op, NULL, match_opset(match), dtype);
}

static AxisOrder channels_first(uint32_t rank) {
  AxisOrder order = {.rank = rank, .from = {0, rank - 1}};
  for (uint32_t i = 2; i < rank; i++) order.from[i] = i - 1;
  for (uint32_t i = 0; i < rank; i++) order.to[order.from[i]] = i;
  return order;
}

typedef struct Normalization {
  Grouping grouping;
  Value *scale, *bias; /* by channel; NULL: ones and zeros */
  float epsilon;
} Normalization;

/* The operator on channels that come first. */
static Node *emit_operator(Match *match, const Normalization *n, Value *x) {
  int64_t channels = n->grouping.channels;
  bool instance = n->grouping.groups == channels;
  Value *scale = n->scale ? n->scale : uniform_vector(match, channels, 1);
  Value *bias = n->bias ? n->bias : uniform_vector(match, channels, 0);
  Op op = instance ? OP_InstanceNormalization : OP_GroupNormalization;
  Node *node = EMIT_BEFORE(match, op, x->type, x, scale, bias);
  node_set_float(node, "epsilon", n->epsilon);
  if (!instance) node_set_int(node, "num_groups", n->grouping.groups);
  return node;
}

/* The vector as it broadcasts over axes after the channels. */
static Value *column(Match *match, const Value *vector, uint32_t rank) {
  Context *context = match->rewriter->context;
  Tensor *tensor = arena_copy(&context->arena, constant_of(vector), sizeof(Tensor));
  int64_t *dims = arena_new_array(&context->arena, rank, int64_t);
  dims[0] = tensor->dims[0];
  for (uint32_t i = 1; i + 1 < rank; i++) dims[i] = 1;
  tensor->rank = rank - 1;
  tensor->dims = dims;
  return rewrite_constant(match->rewriter, match->root, tensor, vector->origin);
}

/* What Reshape needs to be told to give this type; computed from x where more than one size is not known. */
static Value *shape_of(Match *match, Value *x) {
  int64_t sizes[MOST_PERMUTED];
  uint32_t unknown = 0;
  for (uint32_t i = 0; i < x->type.rank; i++) {
    bool constant = dim_is_constant(x->type.dims[i]);
    sizes[i] = constant ? x->type.dims[i].constant : i == 0 ? 0 : -1;
    unknown += !constant && i != 0;
  }
  if (unknown <= 1) {
    return rewrite_constant_ints(match->rewriter, match->root, sizes, x->type.rank, match->root->origin);
  }
  const Dim rank = dim_of(x->type.rank);
  return EMIT_BEFORE(match, OP_Shape, type_make(match->rewriter->context, DTYPE_INT64, &rank, 1), x)->outputs[0];
}

/* Each group as one channel, and back; scale and bias after that. A single group may have its channels anywhere. */
static Node *emit_by_instance(Match *match, const Normalization *n, Value *x, bool are_last) {
  Context *context = match->rewriter->context;
  int64_t groups = n->grouping.groups, sizes[] = {0, groups, -1};
  Dim rest = dim_of(n->grouping.channels / groups);
  for (uint32_t i = 1; i < x->type.rank; i++) {
    if (i != (are_last ? n->grouping.axis : 1)) rest = dim_multiply(context, rest, x->type.dims[i]);
  }
  const Dim dims[] = {x->type.dims[0], dim_of(groups), rest};
  Type type = type_make(context, x->type.dtype, dims, 3);
  Value *numbers = rewrite_constant_ints(match->rewriter, match->root, sizes, 3, match->root->origin);
  Value *grouped = EMIT_BEFORE(match, OP_Reshape, type, x, numbers)->outputs[0];
  Value *ones = uniform_vector(match, groups, 1), *zeros = uniform_vector(match, groups, 0);
  Node *normal = EMIT_BEFORE(match, OP_InstanceNormalization, type, grouped, ones, zeros);
  node_set_float(normal, "epsilon", n->epsilon);
  Node *node = EMIT_BEFORE(match, OP_Reshape, x->type, normal->outputs[0], shape_of(match, x));
  uint32_t rank = are_last ? 2 : x->type.rank; /* of the channels and what comes after them, and one more */
  if (n->scale) node = EMIT_BEFORE(match, OP_Mul, x->type, node->outputs[0], column(match, n->scale, rank));
  if (n->bias) node = EMIT_BEFORE(match, OP_Add, x->type, node->outputs[0], column(match, n->bias, rank));
  for (size_t i = 0; i < match->node_count; i++) rewrite_hand_over(match->rewriter, normal, match->nodes[i]);
  return node;
}

static bool emit_normalization(Match *match, const Normalization *n) {
  Rewriter *rewriter = match->rewriter;
  Value *x = match->values[X_SLOT];
  bool instance = n->grouping.groups == n->grouping.channels, are_last = n->grouping.axis != 1;
  bool by_instance = (!n->scale || constant_of(n->scale)) && (!n->bias || constant_of(n->bias));
  bool has_kernel = !target_has(rewriter->model->target, QUIRK_GROUP_NORMALIZATION_HAS_NO_KERNEL);
  bool preferred = prefers_native(match) || has_kernel || (!by_instance && !match->values[DIFFERENCE]);
  bool group = match_opset(match) >= GROUP_NORMALIZATION && runs(match, OP_GroupNormalization) && preferred;
  if (!(n->epsilon >= 0) || !isfinite(n->epsilon) || !match_keeps_type(match)) return false;
  if (!group && !runs(match, OP_InstanceNormalization)) return false;
  if (!group && !instance && !by_instance) return false;
  AxisOrder order = channels_first(x->type.rank), inverse = order_inverse(order);
  bool moves = are_last && (instance || group || n->grouping.groups > 1);
  if (moves) {
    Node *first = EMIT_BEFORE(match, OP_Transpose, order_type(rewriter->context, x->type, &order), x);
    node_set_ints(first, "perm", order.from, order.rank);
    x = first->outputs[0];
  }
  Node *node = instance || group ? emit_operator(match, n, x) : emit_by_instance(match, n, x, are_last && !moves);
  for (size_t i = 0; i < match->node_count; i++) rewrite_hand_over(rewriter, node, match->nodes[i]);
  if (moves) {
    node_set_ints(EMIT_MATCH(match, OP_Transpose, node->outputs[0]), "perm", inverse.from, inverse.rank);
    return true;
  }
  match_replace(match, node->outputs[0]);
  return true;
}

/* ---- rules ---- */

/* Scale and bias as vectors by channel, which are that axis of `shape`; false when one is not. */
static bool read_vectors(Match *match, Normalization *n, Type shape, uint32_t axis) {
  Value *scale = match->values[SCALE], *bias = match->values[BIAS];
  n->scale = scale ? channel_vector(match, scale, &n->grouping, shape, axis) : NULL;
  n->bias = bias ? channel_vector(match, bias, &n->grouping, shape, axis) : NULL;
  return !scale == !n->scale && !bias == !n->bias;
}

static bool reads_statistics(Match *match, Normalization *n, Type reduced) {
  const Node *mean = match->values[MEAN_OF_X]->producer, *squares = match->values[MEAN_OF_SQUARES]->producer;
  const Node *before = match->values[X_SLOT]->producer;
  bool axes[MAX_RANK];
  n->epsilon = (float)match_number(match, EPSILON);
  if (match->values[SOURCE] &&
      !(before && node_is(before, OP_Reshape) && node_input(before, 0) == match->values[SOURCE]))
    return false;
  if (!reduces_alike(squares, mean, axes) || !type_same_shape(node_input(mean, 0)->type, reduced)) return false;
  if (match->values[MEAN_KEPT] && !is_reduced_shape(match->values[MEAN_KEPT]->type, reduced, axes)) return false;
  return find_grouping(match, axes, reduced, &n->grouping);
}

/* Statistics that were spread over the channels: (x - mean) * (1 / deviation * scale) + bias. */
static bool fuse_spread(Match *match) {
  Type x = match->values[X_SLOT]->type;
  Normalization n = {0};
  if (!reads_statistics(match, &n, match->values[GROUPED] ? match->values[GROUPED]->type : x)) return false;
  if (!is_by_channel(match->values[MEAN]->type, x, &n.grouping)) return false;
  if (!is_by_channel(match->values[VARIANCE]->type, x, &n.grouping)) return false;
  if (!is_spread(match, MEAN_ROW, MEAN_SPREAD, &n.grouping)) return false;
  if (!is_spread(match, VARIANCE_ROW, VARIANCE_SPREAD, &n.grouping)) return false;
  return read_vectors(match, &n, x, n.grouping.axis) && emit_normalization(match, &n);
}

/* A bias that is added next belongs to it: the rule for the sum takes both. */
static bool fuse_spread_without_bias(Match *match) {
  const Use *use = match->root->outputs[0]->uses;
  if (use && !use->next && use->node && node_is(use->node, OP_Add)) {
    const Value *other = node_input(use->node, use == &use->node->inputs[0] ? 1 : 0);
    if (other && (other->type.rank == 1 || constant_of(other))) return false;
  }
  return fuse_spread(match);
}

/* Groups that a LayerNormalization normalised, channels first: as good, but more than one operator. */
static bool fuse_grouped_layer(Match *match) {
  const Node *inner = match->values[INNER]->producer;
  const Attribute *epsilon = node_attribute(inner, "epsilon");
  Type x = match->values[X_SLOT]->type, grouped = match->values[GROUPED]->type;
  Normalization n = {.grouping.axis = 1, .epsilon = epsilon ? epsilon->real : 1e-5f};
  double number;
  if (!prefers_native(match) || x.rank < 3 || x.rank > MOST_PERMUTED || !dim_is_constant(x.dims[1])) return false;
  if (match_opset(match) < GROUP_NORMALIZATION) return false;
  n.grouping.channels = x.dims[1].constant;
  if (!splits_channels(x, grouped, 1, &n.grouping.groups) || node_int_or(inner, "axis", -1) != 2) return false;
  if (node_input(inner, 2) || !uniform_number(node_input(inner, 1), &number) || number != 1) return false;
  return read_vectors(match, &n, x, n.grouping.axis) && emit_normalization(match, &n);
}

/* Groups of channels that come last, each as one channel between Transposes: channels come first instead, so that the
 * Transposes are those of an image, which cancel next to a convolution. */
static bool fuse_grouped_instance(Match *match) {
  const Node *inner = match->values[INNER]->producer;
  const Attribute *epsilon = node_attribute(inner, "epsilon");
  Type x = match->values[X_SLOT]->type, grouped = match->values[GROUPED]->type;
  Normalization n = {.epsilon = epsilon ? epsilon->real : 1e-5f};
  AxisOrder before, after;
  if (x.rank < 3 || x.rank > MOST_PERMUTED || grouped.rank < 3 || !dim_is_constant(x.dims[x.rank - 1])) return false;
  if (!transpose_order(match->values[MEAN]->producer, &before)) return false;
  if (!transpose_order(match->values[MEAN_ROW]->producer, &after) || before.rank != grouped.rank) return false;
  AxisOrder inverse = order_inverse(after);
  if (!order_equal(&before, &inverse) || before.from[0] != 0 || !dim_equal(grouped.dims[0], x.dims[0])) return false;
  bool is_each = before.from[1] == (int64_t)grouped.rank - 1; /* the axes of the image are one, and no more */
  Dim share = is_each ? dim_of(1) : grouped.dims[grouped.rank - 1], groups = grouped.dims[before.from[1]];
  if (!is_each && before.from[1] != (int64_t)grouped.rank - 2) return false;
  if (!dim_is_constant(groups) || !dim_is_constant(share)) return false;
  n.grouping = (Grouping){x.rank - 1, x.dims[x.rank - 1].constant, groups.constant};
  if (groups.constant * share.constant != n.grouping.channels) return false;
  if (!read_vectors(match, &n, grouped, grouped.rank - (is_each ? 1 : 2))) return false;
  if (!is_uniform_number(node_input(inner, 1), 1) || !is_uniform_number(node_input(inner, 2), 0)) {
    if (share.constant != 1 || n.scale || n.bias) return false;
    n.scale = node_input(inner, 1); /* by group, which is by channel */
    n.bias = node_input(inner, 2);
  }
  return emit_normalization(match, &n);
}

/* The axes of an image as one: the operator takes them as they are. */
static bool fuse_flat_instance(Match *match) {
  const Node *inner = match->values[INNER]->producer;
  Type x = match->values[X_SLOT]->type, flat = match->values[GROUPED]->type;
  if (x.rank < 3 || !type_equal(x, match_type(match)) || !same_dims(x, flat, 0, 2)) return false;
  float epsilon = epsilon_of(inner);
  Node *node =
      EMIT_MATCH(match, OP_InstanceNormalization, match->values[X_SLOT], node_input(inner, 1), node_input(inner, 2));
  node_set_float(node, "epsilon", epsilon);
  return true;
}

/* Groups that fuse_normalization found as LayerNormalizations; the native operator has a rule of its own. */
static bool fuse_groups(Match *match) { return !prefers_native(match) && fuse_groups_between_reshapes(match); }

#define OR_AT_LEAST_0(v) EITHER(v, EITHER(OP(Relu, v), OP(Max, v, NUMBER(0))))
#define REDUCED EITHER(OP_AT(GROUPED, Reshape, X), EITHER(X, OP_AT(GROUPED, Reshape, ANY(SOURCE))))
#define SPREAD(row, spread, v) EITHER(OP_AT(spread, Expand, RESHAPED(row, v)), v)
#define MEAN_BY_CHANNEL RESHAPED(MEAN, SPREAD(MEAN_ROW, MEAN_SPREAD, OP_AT(MEAN_OF_X, ReduceMean, REDUCED)))
#define VARIANCE_AT_ONCE \
  OP(Sub, OP_AT(MEAN_OF_SQUARES, ReduceMean, OP(Mul, REDUCED, REDUCED)), OP(Mul, ANY(MEAN_OF_X), ANY(MEAN_OF_X)))
#define VARIANCE_IN_TWO_STEPS        \
  OP_AT(MEAN_OF_SQUARES, ReduceMean, \
        OP(Mul, OP_AT(DIFFERENCE, Sub, REDUCED, RESHAPED(MEAN_KEPT, ANY(MEAN_OF_X))), ANY(DIFFERENCE)))
#define VARIANCE_OF_REDUCED OR_AT_LEAST_0(EITHER(VARIANCE_AT_ONCE, VARIANCE_IN_TWO_STEPS))
#define ONE_OVER_DEVIATION                                                                                        \
  OP(Reciprocal, OP(Sqrt, OP(Add, RESHAPED(VARIANCE, SPREAD(VARIANCE_ROW, VARIANCE_SPREAD, VARIANCE_OF_REDUCED)), \
                             UNIFORM(EPSILON))))
#define FROM_MEAN OP(Sub, X, MEAN_BY_CHANNEL)
#define UNSCALED OP(Mul, FROM_MEAN, ONE_OVER_DEVIATION)
#define SCALED OP(Mul, FROM_MEAN, OP(Mul, ONE_OVER_DEVIATION, ANY(SCALE)))

#define GROUPED_INSTANCE \
  OP_AT(MEAN_ROW, Transpose, OP_AT(INNER, InstanceNormalization, OP_AT(MEAN, Transpose, OP_AT(GROUPED, Reshape, X))))
#define SCALED_INSTANCE EITHER(OP(Mul, GROUPED_INSTANCE, CONSTANT(SCALE)), GROUPED_INSTANCE)
#define GROUPED_LAYER OP(Reshape, OP_AT(INNER, LayerNormalization, OP_AT(GROUPED, Reshape, X)))

static const FusionRule rules[] = {
    {OP(Add, SCALED, ANY(BIAS)), OP_NONE, fuse_spread},
    {OP(Add, UNSCALED, ANY(BIAS)), OP_NONE, fuse_spread},
    {SCALED, OP_NONE, fuse_spread_without_bias},
    {UNSCALED, OP_NONE, fuse_spread_without_bias},
    {OP(Reshape, OP_AT(INNER, InstanceNormalization, OP_AT(GROUPED, Reshape, X))), OP_NONE, fuse_flat_instance},
    {OP(Reshape, X), OP_NONE, fuse_groups},
    {OP(Reshape, OP(Add, SCALED_INSTANCE, CONSTANT(BIAS))), OP_InstanceNormalization, fuse_grouped_instance},
    {OP(Reshape, SCALED_INSTANCE), OP_InstanceNormalization, fuse_grouped_instance},
    {OP(Add, OP(Mul, GROUPED_LAYER, CONSTANT(SCALE)), CONSTANT(BIAS)), OP_NONE, fuse_grouped_layer},
};

bool fuse_group_normalization(Model *model) {
  return fuse_patterns(model, __func__, rules, sizeof rules / sizeof *rules);
}

/* The same without minding accuracy. */
bool prefer_native_group_normalization(Model *model) {
  return fuse_patterns(model, __func__, rules, sizeof rules / sizeof *rules);
}
