/* Normalisations: LayerNormalization, RMSNormalization, InstanceNormalization, BatchNormalization.
 *
 * What is divided by its deviation is found first, with a scale of ones; a product and a sum around it then become its
 * scale and bias. ONNX Runtime computes the variance in two passes: no less accurate than either form JAX programs use.
 */
#include <math.h>

#include "base/bytes.h"
#include "onnx/facts/schema.h"
#include "passes/fuse/normalization.h"
#include "target/target.h"
#include "types/numbers.h"

enum { X_SLOT, MEAN, SCALE = 4, INNER = 8, BIAS };
#define X ANY(X_SLOT)

/* Epsilon is a float attribute, and the standard keeps means in single precision: not for doubles. */
static bool is_accurate(const Match *match) { return match_dtype(match) != DTYPE_FLOAT64 || prefers_native(match); }

/* The first of the axes when those are the last ones, else -1. */
static int64_t first_of_last(const bool axes[MAX_RANK], int64_t rank) {
  int64_t first = rank;
  while (first > 0 && axes[first - 1]) first--;
  for (int64_t i = 0; i < first; i++) {
    if (axes[i]) return -1;
  }
  return first < rank ? first : -1;
}

static Type axes_from(Type type, int64_t first) {
  return (Type){.dtype = type.dtype, .rank = type.rank - (uint32_t)first, .dims = type.dims + first};
}

/* The value in exactly this shape: itself, or a constant that differs in axes of size 1 only; else NULL. */
static Value *shaped(Match *match, Value *value, Type shape) {
  if (value->type.dtype != match_dtype(match)) return NULL;
  if (type_same_shape(value->type, shape)) return value;
  const Tensor *tensor = constant_of(value);
  Tensor *other = match_tensor(match, match_dtype(match), shape);
  if (!tensor || !other || other->size != tensor->size) return NULL;
  other->data = tensor->data;
  other->name = tensor->name;
  return rewrite_constant(match->rewriter, match->root, other, value->origin);
}

/* Does the value broadcast to `to` along the axes from first on alone? */
static bool varies_along(Type type, Type to, int64_t first) {
  Type wanted = axes_from(to, first);
  uint32_t more = type.rank > wanted.rank ? type.rank - wanted.rank : 0;
  for (uint32_t i = 0; i < more; i++) {
    if (!dim_is(type.dims[i], 1)) return false;
  }
  return type.rank >= wanted.rank && type_same_shape(axes_from(type, more), wanted);
}

/* Does the value broadcast along axis 1, the channels, alone? */
static bool varies_by_channel(Type type, Type to) {
  if (to.rank < 2 || type.rank < to.rank - 1 || type.rank > to.rank) return false;
  uint32_t channel = type.rank + 1 - to.rank;
  for (uint32_t i = 0; i < type.rank; i++) {
    if (i == channel ? !dim_equal(type.dims[i], to.dims[1]) : !dim_is(type.dims[i], 1)) return false;
  }
  return true;
}

/* ---- finding them ---- */

DType normalized_in(const Match *match, Op op, DType dtype) {
  if (!schema_version(op, match_opset(match))) return DTYPE_NONE;
  if (schema_runs(op, NULL, match_opset(match), dtype)) return dtype;
  bool is_wide = dtype_is_half(dtype) && schema_runs(op, NULL, match_opset(match), DTYPE_FLOAT32);
  return is_wide ? DTYPE_FLOAT32 : DTYPE_NONE;
}

static bool is_half_or(DType dtype, DType wide) { return dtype == wide || dtype_is_half(dtype); }

static bool has_constant_sizes(Type type) {
  for (uint32_t i = 0; i < type.rank; i++) {
    if (!dim_is_constant(type.dims[i])) return false;
  }
  return true;
}

/* Can the value be put into the shape of the axes from first on? */
static bool can_scale(const Value *scale, Type type, int64_t first) {
  Type shape = axes_from(type, first);
  return scale->type.dtype == type.dtype && varies_along(scale->type, type, first) &&
         (type_same_shape(scale->type, shape) || (constant_of(scale) && has_constant_sizes(shape)));
}

enum { MOST_ONES = 1 << 16 }; /* in a scale that the program has not: the file must not grow by whole images */

/* Are the last axes normalised, and is the scale one of them? */
static bool has_scale_of(const Normalized *found, Type type, int64_t first) {
  return first >= 0 && found->scale && found->share == 1 && can_scale(found->scale, type, first);
}

/* Are the last axes normalised, and not too many for a scale of ones? */
static bool takes_ones(Type type, int64_t first) {
  int64_t count;
  return first >= 0 && type_count(axes_from(type, first), &count) && count <= MOST_ONES;
}

/* What is divided by its deviation, as normalization_parts.c finds it. */
static bool fuse_divided(Match *match) {
  Normalized found;
  if (!read_normalized(match, &found)) return false;
  Op op = found.is_centred ? OP_LayerNormalization : OP_RMSNormalization;
  Type type = type_with(found.x->type, match_type(match).dtype);
  float epsilon = (float)found.epsilon;
  int64_t first = first_of_last(found.axes, type.rank);
  match->values[X_SLOT] = match->root->outputs[0]; /* the type that accuracy is asked for */
  if (!is_accurate(match) || !(epsilon >= 0) || !isfinite(epsilon)) return false;
  bool is_scaled = has_scale_of(&found, type, first);
  if (!is_scaled && (found.scale || !takes_ones(type, first))) {
    if (found.is_centred && !is_scaled_inside(match, &found) && fuse_by_channel(match, &found)) return true;
    if (fuse_inside(match, &found, op)) return true;
    if (!takes_ones(type, first)) return false; /* else a scale along fewer axes comes after it */
  }
  DType dtype = normalized_in(match, op, type.dtype);
  if (dtype == DTYPE_NONE || !is_half_or(found.x->type.dtype, dtype)) return false;
  Type shape = axes_from(type, first);
  match->values[X_SLOT] = match_in_type(match, found.x, dtype);
  Value *scale = is_scaled ? shaped(match, match_in_type(match, found.scale, dtype), shape)
                           : match_filled(match, shape, found.share);
  Value *inputs[] = {match->values[X_SLOT], scale};
  Node *node = match_node_before(match, op, type_with(type, dtype), inputs, 2, REWRITE_EMITTER(match->rewriter));
  node_set_int(node, "axis", first == (int64_t)type.rank - 1 ? -1 : first);
  node_set_float(node, "epsilon", epsilon);
  for (size_t i = 1; i < match->node_count; i++) rewrite_hand_over(match->rewriter, node, match->nodes[i]);
  if (is_scaled) found.scale = NULL;
  replace_by_normalized(match, &found, node->outputs[0]);
  return true;
}

void replace_by_normalized(Match *match, const Normalized *n, Value *value) {
  Type type = match_type(match);
  if (value->type.dtype != type.dtype)
    value = EMIT_BEFORE(match, OP_Narrow, type_with(value->type, type.dtype), value)->outputs[0];
  if (n->renamed) {
    Value *inputs[] = {value, node_input(n->renamed, 1)};
    Node *node =
        match_node_before(match, n->renamed->op, type, inputs, inputs[1] ? 2 : 1, REWRITE_EMITTER(match->rewriter));
    node_copy_attributes(node, n->renamed);
    rewrite_hand_over(match->rewriter, node, n->renamed);
    value = node->outputs[0];
  }
  if (n->scale) EMIT_MATCH(match, OP_Mul, value, n->scale);
  else match_replace(match, value);
}

/* ---- scale and bias around them ---- */

static int64_t axis_of(const Node *node) {
  int64_t axis = node_int_or(node, "axis", -1), rank = node_input(node, 0)->type.rank;
  return axis < 0 ? axis + rank : axis;
}

/* Is it scaled by one number, and nothing added? */
static bool has_uniform_scale(const Node *node, double *number) {
  return !node_input(node, 2) && uniform_number(node_input(node, 1), number);
}

void tensor_multiply(Tensor *to, const Tensor *from, double number) {
  size_t width = dtype_bytes(from->dtype, 1);
  for (size_t at = 0; at < from->size; at += width) {
    uint64_t bits = number_encode(from->dtype, number_decode(from->dtype, (const char *)from->data + at) * number);
    copy_bytes((char *)(uintptr_t)to->data + at, &bits, width);
  }
}

/* The value times the number, computed here where it is a constant; NULL when it cannot be. */
static Value *multiplied(Match *match, Value *value, double number) {
  if (number == 1) return value;
  const Tensor *from = constant_of(value);
  Tensor *tensor = from ? match_tensor(match, from->dtype, value->type) : NULL;
  if (!from) {
    Value *factor =
        rewrite_constant_number(match->rewriter, match->root, value->type.dtype, number, match->root->origin);
    return EMIT_BEFORE(match, OP_Mul, value->type, value, factor)->outputs[0];
  }
  if (!tensor) return NULL;
  tensor_multiply(tensor, from, number);
  tensor->made_of = names_with(match->rewriter->context, NULL, from);
  return match_constant(match, tensor);
}

static void copy_settings(Node *to, int64_t axis, float epsilon) {
  node_set_int(to, "axis", axis == (int64_t)to->outputs[0]->type.rank - 1 ? -1 : axis);
  node_set_float(to, "epsilon", epsilon);
}

float epsilon_of(const Node *node) {
  const Attribute *attribute = node_attribute(node, "epsilon");
  return attribute ? attribute->real : 1e-5f;
}

/* Normalised over all axes after the channels and scaled by channel: an InstanceNormalization. */
static bool fuse_instance_scale(Match *match, const Node *inner, Value *scale) {
  Type type = match_type(match), channel = {.dtype = type.dtype, .rank = 1, .dims = type.dims + 1};
  if (type.rank < 3 || axis_of(inner) != 2 || !node_is(inner, OP_LayerNormalization)) return false;
  if (!varies_by_channel(scale->type, type) || !constant_of(scale)) return false;
  if (!schema_runs(OP_InstanceNormalization, NULL, match_opset(match), type.dtype)) return false;
  float epsilon = epsilon_of(inner);
  Value *weight = shaped(match, scale, channel), *bias = match_filled(match, channel, 0);
  if (!weight || !bias) return false;
  node_set_float(EMIT_MATCH(match, OP_InstanceNormalization, match->values[X_SLOT], weight, bias), "epsilon", epsilon);
  return true;
}

static bool fuse_scale(Match *match) {
  const Node *inner = match->values[INNER]->producer;
  Value *scale = match->values[SCALE];
  double number;
  if (!match_keeps_type(match) || !has_uniform_scale(inner, &number)) return false;
  int64_t axis = axis_of(inner);
  Type shape = axes_from(match_type(match), axis);
  float epsilon = epsilon_of(inner);
  bool is_whole = varies_along(scale->type, match_type(match), axis);
  bool is_given = is_whole && type_same_shape(scale->type, shape) && scale->type.dtype == shape.dtype;
  if (!constant_of(scale) && !is_given) return false;
  scale = multiplied(match, scale, number);
  if (!scale) return false;
  if (!is_whole) return fuse_instance_scale(match, inner, scale);
  Value *weight = shaped(match, scale, shape);
  if (!weight) return false;
  copy_settings(EMIT_MATCH(match, match->rule->op, match->values[X_SLOT], weight), axis, epsilon);
  return true;
}

static bool fuse_bias(Match *match) {
  const Node *inner = match->values[INNER]->producer;
  Value *bias = match->values[BIAS], *scale = node_input(inner, 1);
  if (!match_keeps_type(match) || node_input(inner, 2)) return false;
  int64_t axis = axis_of(inner);
  float epsilon = epsilon_of(inner);
  if (!varies_along(bias->type, match_type(match), axis)) return false;
  bias = shaped(match, bias, axes_from(match_type(match), axis));
  if (!bias) return false;
  copy_settings(EMIT_MATCH(match, OP_LayerNormalization, match->values[X_SLOT], scale, bias), axis, epsilon);
  return true;
}

/* ---- BatchNormalization ---- */

/* x * scale + (bias - mean * scale) is as good while the mean is of the size of the deviation. */
static bool is_well_conditioned(const Tensor *mean, const Tensor *scale, const Tensor *bias) {
  size_t width = dtype_bytes(mean->dtype, 1);
  if (mean->size != scale->size || bias->size != mean->size) return false;
  for (size_t at = 0; at < mean->size; at += width) {
    double shift = number_decode(mean->dtype, (const char *)mean->data + at) *
                   number_decode(mean->dtype, (const char *)scale->data + at);
    double added = number_decode(mean->dtype, (const char *)bias->data + at);
    if (!(fabs(shift) <= 2 + 2 * fabs(added))) return false;
  }
  return true;
}

/* (x - mean) * scale + bias with constants by channel; scale has the deviation in it already. */
static bool fuse_batch(Match *match) {
  Type type = match_type(match), channel = {.dtype = type.dtype, .rank = 1, .dims = type.dims + 1};
  const int slots[] = {SCALE, BIAS, MEAN};
  Value *inputs[5] = {match->values[X_SLOT]};
  if (!match_keeps_type(match) || !is_accurate(match)) return false;
  for (size_t i = 0; i < 3; i++) {
    Value *value = match->values[slots[i]];
    if (!varies_by_channel(value->type, type) || value->type.dtype != type.dtype) return false;
  }
  const Tensor *mean = constant_of(match->values[MEAN]), *scale = constant_of(match->values[SCALE]);
  bool centred = !target_has(match->rewriter->model->target, QUIRK_BATCH_NORMALIZATION_IS_NOT_CENTRED);
  if (!centred && !prefers_native(match) && !is_well_conditioned(mean, scale, constant_of(match->values[BIAS])))
    return false;
  for (size_t i = 0; i < 3; i++) inputs[i + 1] = shaped(match, match->values[slots[i]], channel);
  inputs[4] = match_filled(match, channel, 1);
  if (!inputs[1] || !inputs[2] || !inputs[3] || !inputs[4]) return false;
  node_set_float(match_emit(match, OP_BatchNormalization, inputs, 5, REWRITE_EMITTER(match->rewriter)), "epsilon", 0);
  return true;
}

/* The factor that dividing or multiplying by two constants in a row is; NULL where it is out of the ordinary. */
static Tensor *joined_factor(Match *match, const Tensor *one, bool divides, const Tensor *other, bool divides_again) {
  Tensor *tensor = match_tensor(match, one->dtype, match->values[SCALE]->type);
  size_t width = dtype_bytes(one->dtype, 1);
  if (!tensor || !dtype_is_float(one->dtype) || one->size != other->size) return NULL;
  for (size_t at = 0; at < one->size; at += width) {
    double left = number_decode(one->dtype, (const char *)one->data + at);
    double right = number_decode(one->dtype, (const char *)other->data + at);
    double factor = (divides ? 1 / left : left) * (divides_again ? 1 / right : right);
    if (!(fabs(factor) < 0x1p60) || (fabs(factor) < 0x1p-60 && factor != 0)) return NULL;
    uint64_t bits = number_encode(one->dtype, factor);
    copy_bytes((char *)(uintptr_t)tensor->data + at, &bits, width);
  }
  Context *context = match->rewriter->context;
  tensor->made_of = names_with(context, names_with(context, NULL, one), other);
  return tensor;
}

/* (x - mean) * a * b with constants by channel: the deviation and the scale are one factor. */
static bool join_factors(Match *match) {
  const Value *a = match->values[SCALE], *b = match->values[BIAS];
  const Node *less = match->values[X_SLOT]->producer;
  if (!less || !node_is(less, OP_Sub) || !unread_constant_of(node_input(less, 1))) return false;
  if (!is_accurate(match) || !match_keeps_type(match) || !type_equal(a->type, b->type) || a->type.rank == 0)
    return false;
  bool divides = node_is(match->nodes[1], OP_Div);
  Tensor *factor = joined_factor(match, constant_of(a), divides, constant_of(b), node_is(match->root, OP_Div));
  return factor && EMIT_MATCH(match, OP_Mul, match->values[X_SLOT], match_constant(match, factor));
}

/* May the scale of x be that of a normalisation which other rules know, now or once all of it is found? */
static bool may_be_normalised(const Value *x) {
  const Node *node = x->producer;
  if (!node || node_has(node, NORMALIZES)) return node != NULL;
  return node_is(node, OP_Reshape) || node_is(node, OP_Sub) || node_is(node, OP_Mul) || node_is(node, OP_Div);
}

/* x * scale + bias with constants by channel of an image: what is left of a batch normalisation whose mean was put into
 * the bias. */
static bool fuse_batch_scale(Match *match) {
  Type type = match_type(match), channel = {.dtype = type.dtype, .rank = 1, .dims = type.dims + 1};
  const Value *scale = match->values[SCALE], *bias = match->values[BIAS];
  if (!match_keeps_type(match) || !is_accurate(match) || type.rank < 4 || dim_is(type.dims[1], 1)) return false;
  if (may_be_normalised(match->values[X_SLOT])) return false;
  if (scale->type.dtype != type.dtype || bias->type.dtype != type.dtype) return false;
  if (!varies_by_channel(scale->type, type) || !varies_by_channel(bias->type, type)) return false;
  Value *inputs[] = {match->values[X_SLOT], shaped(match, match->values[SCALE], channel),
                     shaped(match, match->values[BIAS], channel), match_filled(match, channel, 0),
                     match_filled(match, channel, 1)};
  if (!inputs[1] || !inputs[2] || !inputs[3] || !inputs[4]) return false;
  node_set_float(match_emit(match, OP_BatchNormalization, inputs, 5, REWRITE_EMITTER(match->rewriter)), "epsilon", 0);
  return true;
}

static const FusionRule rules[] = {
    {OP(Mul, X), OP_NONE, fuse_divided},
    {OP(Div, X), OP_NONE, fuse_divided},
    {OP(Mul, OP_AT(INNER, LayerNormalization, X), ANY(SCALE)), OP_LayerNormalization, fuse_scale},
    {OP(Add, OP_AT(INNER, LayerNormalization, X), ANY(BIAS)), OP_LayerNormalization, fuse_bias},
    {OP(Mul, OP_AT(INNER, RMSNormalization, X), ANY(SCALE)), OP_RMSNormalization, fuse_scale},
    {OP(Mul, OP_AT(INNER, InstanceNormalization, X), CONSTANT(SCALE)), OP_NONE, fuse_channel_scale},
    {OP(Mul, OP(Transpose, OP_AT(INNER, InstanceNormalization, X)), CONSTANT(SCALE)), OP_NONE, fuse_channel_scale},
    {OP(Mul, OP(Reshape, OP_AT(INNER, InstanceNormalization, X)), CONSTANT(SCALE)), OP_NONE, fuse_channel_scale},
    {OP(Add, OP_AT(INNER, InstanceNormalization, X), CONSTANT(BIAS)), OP_NONE, fuse_channel_bias},
    {OP(Add, OP(Transpose, OP_AT(INNER, InstanceNormalization, X)), CONSTANT(BIAS)), OP_NONE, fuse_channel_bias},
    {OP(Add, OP(Reshape, OP_AT(INNER, InstanceNormalization, X)), CONSTANT(BIAS)), OP_NONE, fuse_channel_bias},
    {OP(Mul, OP(Transpose, OP_AT(INNER, LayerNormalization, X)), ANY(SCALE)), OP_NONE, fuse_channel_scale},
    {OP(Add, OP(Transpose, OP_AT(INNER, LayerNormalization, X)), ANY(BIAS)), OP_NONE, fuse_channel_bias},
    {OP(Mul, OP(Transpose, OP_AT(INNER, RMSNormalization, X)), ANY(SCALE)), OP_NONE, fuse_channel_scale},
    {OP(Reshape, X), OP_NONE, fuse_between_reshapes},
    {OP(Squeeze, X), OP_NONE, fuse_between_reshapes},
    {OP(Unsqueeze, X), OP_NONE, fuse_between_reshapes},
    {OP(Mul, OP(Mul, X, CONSTANT(SCALE)), CONSTANT(BIAS)), OP_NONE, join_factors},
    {OP(Mul, OP(Div, X, CONSTANT(SCALE)), CONSTANT(BIAS)), OP_NONE, join_factors},
    {OP(Div, OP(Mul, X, CONSTANT(SCALE)), CONSTANT(BIAS)), OP_NONE, join_factors},
    {OP(Add, OP(Mul, OP(Sub, X, CONSTANT(MEAN)), CONSTANT(SCALE)), CONSTANT(BIAS)), OP_BatchNormalization, fuse_batch},
    {OP(Add, OP(Mul, X, CONSTANT(SCALE)), CONSTANT(BIAS)), OP_BatchNormalization, fuse_batch_scale},
};

bool fuse_normalization(Model *model) { return fuse_patterns(model, __func__, rules, sizeof rules / sizeof *rules); }

/* The same without minding accuracy. */
bool prefer_native_normalization(Model *model) {
  return fuse_patterns(model, __func__, rules, sizeof rules / sizeof *rules);
}
