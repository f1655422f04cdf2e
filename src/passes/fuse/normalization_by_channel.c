/* What is normalised by channel: InstanceNormalization, whose channels are the second axis; and what is normalised over
 * one axis that is not the last, by an operator over the last.
 *
 * Programs that have them elsewhere get a Transpose before and one after; next to a convolution both cancel. The scale
 * and bias of the former are by channel, so that their size does not depend on that of the image, which may be unknown.
 */
#include "passes/fuse/normalization.h"
#include "passes/layout/permute_axes.h"

enum { X_SLOT, SCALE = 4, INNER = 8, BIAS };

/* ---- finding it ---- */

/* The axis beside the first that is not normalised over. Axes of size 1 are as good as normalised over, and one of them
 * may stand for the channels. */
static bool find_channels(const Normalized *n, Type type, uint32_t *channels) {
  uint32_t kept = 0, ones = 0;
  if (type.rank < 3 || type.rank > MOST_PERMUTED || n->axes[0]) return false;
  for (uint32_t i = type.rank - 1; i > 0; i--) {
    if (n->axes[i]) continue;
    bool is_one = dim_is(type.dims[i], 1);
    ones += is_one;
    kept += !is_one;
    if (!is_one || kept == 0) *channels = i;
  }
  return (kept == 1 || (kept == 0 && ones > 0)) && dim_is_constant(type.dims[*channels]) &&
         type.dims[*channels].constant > 0;
}

static AxisOrder second_from(uint32_t rank, uint32_t channels) {
  AxisOrder order = {.rank = rank, .from = {0, channels}};
  for (uint32_t i = 1, k = 2; i < rank; i++) {
    if (i != channels) order.from[k++] = i;
  }
  for (uint32_t i = 0; i < rank; i++) order.to[order.from[i]] = i;
  return order;
}

static Value *transposed(Match *match, Value *value, AxisOrder order) {
  Type type = order_type(match->rewriter->context, value->type, &order);
  Node *node = EMIT_BEFORE(match, OP_Transpose, type, value);
  node_set_ints(node, "perm", order.from, order.rank);
  return node->outputs[0];
}

static Node *emit_instance(Match *match, Value *x, double scale, float epsilon) {
  Type channel = {.dtype = x->type.dtype, .rank = 1, .dims = x->type.dims + 1};
  match->values[X_SLOT] = x;
  Value *scales = match_filled(match, channel, scale), *zeros = match_filled(match, channel, 0);
  Node *node = EMIT_BEFORE(match, OP_InstanceNormalization, x->type, x, scales, zeros);
  node_set_float(node, "epsilon", epsilon);
  for (size_t i = 1; i < match->node_count; i++) rewrite_hand_over(match->rewriter, node, match->nodes[i]);
  return node;
}

/* Over the axes from `first` on. */
static Node *emit_over_last(Match *match, Op op, Value *x, uint32_t first, double scale, float epsilon) {
  Type shape = {.dtype = x->type.dtype, .rank = x->type.rank - first, .dims = x->type.dims + first};
  match->values[X_SLOT] = x;
  Node *node = EMIT_BEFORE(match, op, x->type, x, match_filled(match, shape, scale));
  node_set_int(node, "axis", first + 1 == x->type.rank ? -1 : (int64_t)first);
  node_set_float(node, "epsilon", epsilon);
  for (size_t i = 1; i < match->node_count; i++) rewrite_hand_over(match->rewriter, node, match->nodes[i]);
  return node;
}

/* Axes of size 1 between the first and the channels, when nothing else is there and three axes are left without them.
 */
static uint32_t ones_before(Type type, uint32_t channels) {
  for (uint32_t i = 1; i < channels; i++) {
    if (!dim_is(type.dims[i], 1)) return 0;
  }
  return type.rank - (channels - 1) >= 3 ? channels - 1 : 0;
}

/* The value with `count` axes of size 1 after the first put in or left out. */
static Value *with_ones(Match *match, Value *value, Op op, uint32_t count) {
  int64_t axes[MAX_RANK];
  Dim dims[MAX_RANK] = {value->type.dims[0]};
  bool more = op == OP_Unsqueeze;
  uint32_t rank = more ? value->type.rank + count : value->type.rank - count;
  for (uint32_t i = 0; i < count; i++) {
    axes[i] = i + 1;
    dims[i + 1] = dim_of(1);
  }
  for (uint32_t i = more ? count + 1 : 1; i < rank; i++) dims[i] = value->type.dims[more ? i - count : i + count];
  Type type = type_make(match->rewriter->context, value->type.dtype, dims, rank);
  Value *numbers = rewrite_constant_ints(match->rewriter, match->root, axes, count, match->root->origin);
  return EMIT_BEFORE(match, op, type, value, numbers)->outputs[0];
}

/* The channels become the second axis, or where `back` return to where they were. */
static Value *move_channels(Match *match, Value *value, Type type, uint32_t channels, bool back) {
  AxisOrder order = second_from(type.rank, channels);
  uint32_t ones = ones_before(type, channels);
  if (channels == 1) return value;
  if (ones) return with_ones(match, value, back ? OP_Unsqueeze : OP_Squeeze, ones);
  return transposed(match, value, back ? order_inverse(order) : order);
}

bool fuse_by_channel(Match *match, const Normalized *n) {
  Type type = type_with(n->x->type, match_type(match).dtype);
  uint32_t channels = 0;
  DType dtype = normalized_in(match, OP_InstanceNormalization, type.dtype);
  if (dtype == DTYPE_NONE || (n->x->type.dtype != dtype && !dtype_is_half(n->x->type.dtype))) return false;
  if (!find_channels(n, type, &channels) || (n->scale && n->scale->type.dtype != type.dtype)) return false;
  Value *value = move_channels(match, match_in_type(match, n->x, dtype), type, channels, false);
  value = emit_instance(match, value, n->share, (float)n->epsilon)->outputs[0];
  replace_by_normalized(match, n, move_channels(match, value, type, channels, true));
  return true;
}

/* ---- scale and bias ---- */

/* Does the constant broadcast along this axis of the type alone? */
static bool varies_along_axis(Type type, Type to, uint32_t axis) {
  if (type.rank > to.rank || type.rank + axis < to.rank) return false;
  uint32_t missing = to.rank - type.rank;
  for (uint32_t i = 0; i < type.rank; i++) {
    if (i + missing == axis ? !dim_equal(type.dims[i], to.dims[axis]) : !dim_is(type.dims[i], 1)) return false;
  }
  return true;
}

/* The constant as a vector by channel, times a number. */
static Value *by_channel(Match *match, const Value *value, Type channel, double number) {
  Tensor *tensor = match_tensor(match, channel.dtype, channel);
  const Tensor *from = constant_of(value);
  if (!tensor || from->dtype != tensor->dtype || from->size != tensor->size) return NULL;
  if (number == 1) tensor->data = from->data;
  else tensor_multiply(tensor, from, number);
  tensor->name = number == 1 ? from->name : NULL;
  tensor->made_of = number == 1 ? NULL : names_with(match->rewriter->context, NULL, from);
  return rewrite_constant(match->rewriter, match->root, tensor, value->origin);
}

/* The axis that scale and bias vary along: the channels, or the last where that alone is normalised; else -1. */
static int64_t axis_of_weights(const Node *node) {
  if (node_is(node, OP_InstanceNormalization)) return node->outputs[0]->type.rank > 1 ? 1 : -1;
  return node_int_or(node, "axis", -1) == -1 ? (int64_t)node->outputs[0]->type.rank - 1 : -1;
}

/* The value along one axis as a vector, times a number; what is no constant gets a Reshape. */
static Value *as_vector(Match *match, Value *value, Type vector, double number) {
  if (unread_constant_of(value)) return by_channel(match, value, vector, number);
  if (number != 1 || !dim_is_constant(vector.dims[0])) return NULL;
  if (value->type.rank == 1) return value;
  Value *shape = rewrite_constant_ints(match->rewriter, match->root, &vector.dims[0].constant, 1, value->origin);
  return EMIT_BEFORE(match, OP_Reshape, vector, value, shape)->outputs[0];
}

/* Where an axis of the operator is after the node that follows it: a Transpose, or a Reshape of what is behind the
 * second axis; -1: nowhere. */
static int64_t axis_after(const Node *node, int64_t axis) {
  AxisOrder order;
  Type type = node->outputs[0]->type, from = node_input(node, 0)->type;
  if (node_is(node, OP_Transpose)) return transpose_order(node, &order) ? order.to[axis] : -1;
  return axis == 1 && same_dims(type, from, 0, 2) ? axis : -1;
}

/* The node again, of another value. */
static Value *emit_again(Match *match, const Node *node, Value *value) {
  Value *inputs[] = {value, node_input(node, 1)};
  Node *again = match_node_before(match, node->op, node->outputs[0]->type, inputs, inputs[1] ? 2 : 1,
                                  REWRITE_EMITTER(match->rewriter));
  node_copy_attributes(again, node);
  return again->outputs[0];
}

/* The match is a product or sum with a vector, of the operator or of a Transpose or Reshape after it. */
static bool fuse_channel_vector(Match *match, Value *vector, bool is_scale) {
  Node *inner = match->values[INNER]->producer, *root = match->root;
  Value *around = node_input(root, node_input(root, 0) == vector);
  const Node *after = around != match->values[INNER] ? around->producer : NULL;
  double scale = 1, bias = 0;
  int64_t axis = axis_of_weights(inner), now = axis < 0 || !after ? axis : axis_after(after, axis);
  if (now < 0) return false;
  Type type = inner->outputs[0]->type, along = {.dtype = type.dtype, .rank = 1, .dims = type.dims + axis};
  if (!type_equal(match_type(match), around->type) || vector->type.dtype != type.dtype) return false;
  if (!varies_along_axis(vector->type, match_type(match), (uint32_t)now)) return false;
  if (node_input(inner, 2) && (!uniform_number(node_input(inner, 2), &bias) || bias != 0)) return false;
  if (is_scale && !uniform_number(node_input(inner, 1), &scale)) return false;
  Value *weights = as_vector(match, vector, along, scale);
  if (!weights) return false;
  Value *inputs[] = {node_input(inner, 0), is_scale ? weights : node_input(inner, 1),
                     is_scale ? node_input(inner, 2) : weights};
  Node *node = match_node_before(match, inner->op, type, inputs, inputs[2] ? 3 : 2, REWRITE_EMITTER(match->rewriter));
  node_copy_attributes(node, inner);
  for (size_t i = 0; i < match->node_count; i++) rewrite_hand_over(match->rewriter, node, match->nodes[i]);
  match_replace(match, after ? emit_again(match, after, node->outputs[0]) : node->outputs[0]);
  return true;
}

bool fuse_channel_scale(Match *match) { return fuse_channel_vector(match, match->values[SCALE], true); }

bool fuse_channel_bias(Match *match) { return fuse_channel_vector(match, match->values[BIAS], false); }

/* ---- an axis inside ---- */

/* The only axis that is normalised, when it is not the last and of known size; else -1. */
static int64_t axis_inside(const Normalized *n, Type type) {
  int64_t found = -1;
  for (uint32_t i = 0; i < type.rank; i++) {
    if (!n->axes[i]) continue;
    if (found >= 0) return -1;
    found = i;
  }
  bool is_inside = found >= 0 && found + 1 < type.rank && type.rank <= MOST_PERMUTED;
  return is_inside && dim_is_constant(type.dims[found]) ? found : -1;
}

static AxisOrder last_from(uint32_t rank, int64_t axis) {
  AxisOrder order = {.rank = rank};
  for (uint32_t i = 0, k = 0; i < rank; i++) {
    if (i != axis) order.from[k++] = i;
  }
  order.from[rank - 1] = axis;
  for (uint32_t i = 0; i < rank; i++) order.to[order.from[i]] = i;
  return order;
}

bool is_scaled_inside(const Match *match, const Normalized *n) {
  const Value *value = match->root->outputs[0];
  Type type = match_type(match);
  int64_t axis = axis_inside(n, type);
  if (axis < 0) return false;
  if (n->scale) return varies_along_axis(n->scale->type, type, (uint32_t)axis);
  const Node *user = value_only_user(value);
  while (user && is_cast_of_half(user)) user = value_only_user(value = user->outputs[0]);
  if (!user || (!node_is(user, OP_Mul) && !node_is(user, OP_Add))) return false;
  return varies_along_axis(node_input(user, node_input(user, 0) == value)->type, type, (uint32_t)axis);
}

bool fuse_inside(Match *match, const Normalized *n, Op op) {
  Type type = type_with(n->x->type, match_type(match).dtype);
  int64_t axis = axis_inside(n, type);
  DType dtype = normalized_in(match, op, type.dtype);
  if (axis < 0 || dtype == DTYPE_NONE || n->renamed) return false;
  if (n->x->type.dtype != dtype && !dtype_is_half(n->x->type.dtype)) return false;
  if (n->scale && n->scale->type.dtype != type.dtype) return false;
  AxisOrder order = last_from(type.rank, axis);
  Value *x = transposed(match, match_in_type(match, n->x, dtype), order);
  Node *node = emit_over_last(match, op, x, type.rank - 1, n->share, (float)n->epsilon);
  replace_by_normalized(match, n, transposed(match, node->outputs[0], order_inverse(order)));
  return true;
}

/* ---- between Reshapes ---- */

/* The number of x's first axes that are, but for ones, the first `count` of the other type; 0: there are none. */
static uint32_t same_lead(Type x, Type other, int64_t count) {
  uint32_t at = 0;
  for (int64_t i = 0; i < count; i++) {
    if (dim_is(other.dims[i], 1)) continue;
    while (at < x.rank && dim_is(x.dims[at], 1)) at++;
    if (at == x.rank || !dim_equal(x.dims[at], other.dims[i])) return 0;
    at++;
  }
  return at;
}

static bool has_sizes_from(Type type, uint32_t first) {
  for (uint32_t i = first; i < type.rank; i++) {
    if (!dim_is_constant(type.dims[i])) return false;
  }
  return first < type.rank;
}

/* Groups of channels that a LayerNormalization of the second axis on normalises. */
static bool is_by_groups(Type x, Type grouped, int64_t axis) {
  return x.rank >= 3 && grouped.rank >= 3 && grouped.rank <= x.rank + 1 && axis == 2 &&
         dim_equal(x.dims[0], grouped.dims[0]) && dim_is_constant(grouped.dims[1]) && dim_is_constant(x.dims[1]) &&
         grouped.dims[1].constant > 0 && x.dims[1].constant % grouped.dims[1].constant == 0;
}

/* A LayerNormalization between two Reshapes, of halves perhaps with casts around it. */
typedef struct Enclosed {
  Node *layer, *before; /* and the Reshape before it */
  Value *given;         /* what the Reshape makes */
  int64_t axis;
  double scale;
} Enclosed;

static bool read_enclosed(Match *match, Enclosed *found) {
  Node *narrow = match_take(match, match->values[X_SLOT], OP_Narrow);
  found->layer = match_take(match, narrow ? node_input(narrow, 0) : match->values[X_SLOT], OP_LayerNormalization);
  if (!found->layer || node_input(found->layer, 2)) return false;
  if (!uniform_number(node_input(found->layer, 1), &found->scale)) return false;
  Node *cast = match_take(match, node_input(found->layer, 0), OP_Cast);
  if (cast && !is_cast_of_half(cast)) return false;
  found->given = node_input(cast ? cast : found->layer, 0);
  found->before = found->given->producer;
  found->axis = node_int_or(found->layer, "axis", -1);
  if (found->axis < 0) found->axis += found->given->type.rank;
  return found->before && node_has(found->before, RENAMES) && found->before->graph == match->root->graph &&
         type_same_shape(node_input(found->before, 0)->type, match_type(match));
}

/* On x itself, when what is normalised together is its last axes. */
static bool fuse_on_whole(Match *match, const Enclosed *found) {
  Value *x = node_input(found->before, 0);
  uint32_t first = same_lead(x->type, found->given->type, found->axis);
  DType dtype = found->layer->outputs[0]->type.dtype;
  if (first == 0 || !has_sizes_from(x->type, first)) return false;
  bool is_image = first == 2 && x->type.rank > 3 && dim_is_constant(x->type.dims[1]);
  bool has_instance = normalized_in(match, OP_InstanceNormalization, dtype) == dtype;
  float epsilon = epsilon_of(found->layer);
  match_take(match, found->given, found->before->op);
  x = match_in_type(match, x, dtype);
  Node *node = is_image && has_instance ? emit_instance(match, x, found->scale, epsilon)
                                        : emit_over_last(match, OP_LayerNormalization, x, first, found->scale, epsilon);
  replace_by_normalized(match, &(Normalized){0}, node->outputs[0]);
  return true;
}

/* Groups have a scale each, which is shorter than one for all that is in them. */
static bool fuse_by_groups(Match *match, const Enclosed *found) {
  DType dtype = found->layer->outputs[0]->type.dtype;
  if (normalized_in(match, OP_InstanceNormalization, dtype) != dtype) return false;
  if (!is_by_groups(match_type(match), found->given->type, found->axis)) return false;
  Node *node = emit_instance(match, node_input(found->layer, 0), found->scale, epsilon_of(found->layer));
  rewrite_replace(match->rewriter, found->layer, node->outputs[0]);
  match->rewriter->changed = true;
  return true;
}

bool fuse_between_reshapes(Match *match) {
  Enclosed found = {0};
  return read_enclosed(match, &found) && fuse_on_whole(match, &found);
}

bool fuse_groups_between_reshapes(Match *match) {
  Enclosed found = {0};
  return read_enclosed(match, &found) && fuse_by_groups(match, &found);
}
