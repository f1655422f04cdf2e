/* What comes after a convolution and is constant by channel becomes part of it: a bias, a scale, a batch normalisation,
 * written as one operator or as arithmetic. The same for a product with a constant matrix.
 *
 * scale * (W x + b) + shift = (scale W) x + (scale b + shift), computed in double and rounded once. A weight that
 * others use too is not scaled: there would be two of it. A result of halves may be widened for it and rounded after
 * it, and a weight of halves widened: both stay halves.
 */
#include <math.h>

#include "base/bytes.h"
#include "onnx/facts/schema.h"
#include "passes/pattern.h"
#include "target/target.h"
#include "types/moved.h"
#include "types/numbers.h"

enum { INNER, SOURCE, WEIGHT, OPERAND };

enum { MOST_STEPS = 4 }; /* between a Cast and a Narrow */

enum { LARGEST_WEIGHT = 64 << 20 /* bytes of a scaled weight */ };

#define KERNEL EITHER(CONSTANT(WEIGHT), OP(Cast, CONSTANT(WEIGHT)))
#define CONV OP_AT(INNER, Conv, ANY(SOURCE), KERNEL)
#define CONV_TRANSPOSE OP_AT(INNER, ConvTranspose, ANY(SOURCE), KERNEL)
#define GEMM OP_AT(INNER, Gemm, ANY(SOURCE), KERNEL)
#define MATMUL OP_AT(INNER, MatMul, ANY(SOURCE), KERNEL)

/* Numbers by channel of the result. */
typedef struct Affine {
  int64_t channels;
  double *scale; /* or NULL: ones */
  double *shift;
} Affine;

/* Which channel of the result each element of a weight goes to: element / inner % channels, within its group. */
typedef struct WeightLayout {
  int64_t inner;    /* elements in a row that go to one channel */
  int64_t channels; /* of one group */
  int64_t group;    /* elements of one group */
} WeightLayout;

/* ---- numbers by channel ---- */

static int64_t channel_axis(const Node *inner) {
  return node_is(inner, OP_Gemm) || node_is(inner, OP_MatMul) ? inner->outputs[0]->type.rank - 1 : 1;
}

/* The constant as one number per channel: it has one element, or varies along the channel axis alone. */
static double *by_channel(Match *match, const Value *value, int64_t axis, int64_t channels) {
  const Tensor *tensor = constant_of(value);
  Type to = match_type(match);
  if (!tensor || !dtype_is_float(tensor->dtype) || tensor->rank > to.rank) return NULL;
  int64_t missing = (int64_t)to.rank - (int64_t)tensor->rank, count = 1;
  for (uint32_t i = 0; i < tensor->rank; i++) {
    if (tensor->dims[i] == 1) continue;
    if ((int64_t)i + missing != axis || tensor->dims[i] != channels) return NULL;
    count = channels;
  }
  size_t width = dtype_bytes(tensor->dtype, 1);
  double *numbers = arena_new_array(&match->rewriter->context->arena, (size_t)channels, double);
  for (int64_t i = 0; i < channels; i++) {
    numbers[i] = number_decode(tensor->dtype, (const char *)tensor->data + (count == 1 ? 0 : (size_t)i * width));
    if (!isfinite(numbers[i])) return NULL;
  }
  return numbers;
}

static double *vector_of(Match *match, const Value *value, int64_t channels) {
  const Tensor *tensor = constant_of(value);
  if (!tensor || tensor->rank != 1 || tensor->dims[0] != channels) return NULL;
  double *numbers = arena_new_array(&match->rewriter->context->arena, (size_t)channels, double);
  size_t width = dtype_bytes(tensor->dtype, 1);
  for (int64_t i = 0; i < channels; i++) {
    numbers[i] = number_decode(tensor->dtype, (const char *)tensor->data + (size_t)i * width);
    if (!isfinite(numbers[i])) return NULL;
  }
  return numbers;
}

/* What a node does to what it reads, with its constant operand. */
static bool read_arithmetic(Match *match, const Node *node, const Value *operand, Affine *affine) {
  const Node *inner = match->values[INNER]->producer;
  double *numbers = by_channel(match, operand, channel_axis(inner), affine->channels);
  if (!numbers) return false;
  bool subtracts = node_is(node, OP_Sub), divides = node_is(node, OP_Div);
  for (int64_t i = 0; i < affine->channels; i++) {
    if (subtracts) numbers[i] = -numbers[i];
    if (divides) numbers[i] = 1 / numbers[i];
    if (!isfinite(numbers[i])) return false;
  }
  if (node_is(node, OP_Add) || subtracts) affine->shift = numbers;
  else affine->scale = numbers;
  return true;
}

static bool read_batch_normalization(Match *match, const Node *node, Affine *affine) {
  const Attribute *attribute = node_attribute(node, "epsilon");
  double epsilon = attribute ? (double)attribute->real : 1e-5;
  double *scale = vector_of(match, node_input(node, 1), affine->channels);
  double *shift = vector_of(match, node_input(node, 2), affine->channels);
  const double *mean = vector_of(match, node_input(node, 3), affine->channels);
  const double *variance = vector_of(match, node_input(node, 4), affine->channels);
  if (!scale || !shift || !mean || !variance || node_int_or(node, "training_mode", 0)) return false;
  for (int64_t i = 0; i < affine->channels; i++) {
    scale[i] /= sqrt(variance[i] + epsilon);
    shift[i] -= mean[i] * scale[i];
    if (!isfinite(scale[i]) || !isfinite(shift[i])) return false;
  }
  affine->scale = scale;
  affine->shift = shift;
  return true;
}

/* ---- the weight and the bias that say it ---- */

static WeightLayout weight_layout(const Node *inner, const Tensor *weight) {
  int64_t count = 1, spatial = 1;
  for (uint32_t i = 0; i < weight->rank; i++) {
    count *= weight->dims[i];
    if (i >= 2) spatial *= weight->dims[i];
  }
  if (node_is(inner, OP_Conv)) return (WeightLayout){weight->dims[1] * spatial, weight->dims[0], count};
  if (node_is(inner, OP_ConvTranspose)) {
    return (WeightLayout){spatial, weight->dims[1], count / node_int_or(inner, "group", 1)};
  }
  if (node_is(inner, OP_Gemm) && node_int_or(inner, "transB", 0)) {
    return (WeightLayout){weight->dims[1], weight->dims[0], count};
  }
  return (WeightLayout){1, weight->dims[weight->rank - 1], count};
}

static Tensor *like(Match *match, const Tensor *tensor) {
  Context *context = match->rewriter->context;
  Tensor *result = arena_copy(&context->arena, tensor, sizeof *tensor);
  result->data = arena_new_array(&context->arena, tensor->size, char);
  result->moved = NULL;
  return result;
}

static bool store(Tensor *tensor, int64_t at, double number) {
  size_t width = dtype_bytes(tensor->dtype, 1);
  uint64_t bits = number_encode(tensor->dtype, number);
  char *place = (char *)(uintptr_t)tensor->data + (size_t)at * width;
  copy_bytes(place, &bits, width);
  return isfinite(number_decode(tensor->dtype, place));
}

/* Each element times the factor of its channel, rounded once; NULL when one is not finite. */
static Tensor *scaled_elements(Match *match, const Tensor *weight, WeightLayout layout, const Affine *affine) {
  tensor_ready(weight);
  size_t width = dtype_bytes(weight->dtype, 1);
  int64_t count = (int64_t)(weight->size / width);
  Tensor *scaled = like(match, weight);
  for (int64_t i = 0; i < count; i++) {
    int64_t channel = i / layout.inner % layout.channels + i / layout.group * layout.channels;
    if (channel >= affine->channels) return NULL;
    double number = number_decode(weight->dtype, (const char *)weight->data + (size_t)i * width);
    if (!store(scaled, i, number * affine->scale[channel])) return NULL;
  }
  return scaled;
}

/* The weight times the scale; NULL when it cannot be. */
static Value *scaled_weight(Match *match, const Node *inner, const Affine *affine) {
  Value *value = match->values[WEIGHT];
  const Tensor *weight = unread_constant_of(value);
  if (!affine->scale) return value;
  if (weight->rank < 2 || weight->size > LARGEST_WEIGHT || !may_store_otherwise(value)) return NULL;
  WeightLayout layout = weight_layout(inner, weight);
  Context *context = match->rewriter->context;
  bool by_row = layout.channels == weight->dims[0] && layout.channels == affine->channels &&
                layout.inner * layout.channels == layout.group;
  Tensor *scaled = by_row ? moved_scaled(context, weight, affine->scale) : NULL;
  if (!scaled) scaled = scaled_elements(match, weight, layout, affine);
  if (!scaled) return NULL;
  if (weight->name) scaled->name = str_intern(context, arena_format(&context->arena, "%s_scaled", weight->name));
  scaled->made_of = names_with(context, names_with(context, NULL, weight), unread_constant_of(match->values[OPERAND]));
  return match_constant(match, scaled);
}

/* A bias that is what was added, and nothing else, keeps its name. */
static Str bias_name(Match *match, const Tensor *from, bool as_it_was) {
  Context *context = match->rewriter->context;
  if (!from || !from->name) return NULL;
  if (!as_it_was) return str_intern(context, arena_format(&context->arena, "%s_folded", from->name));
  static const char suffix[] = "_reshaped";
  size_t length = strlen(from->name), shorter = sizeof suffix - 1;
  bool reshaped = length > shorter && strcmp(from->name + length - shorter, suffix) == 0;
  return reshaped ? str_intern(context, arena_format(&context->arena, "%.*s", (int)(length - shorter), from->name))
                  : from->name;
}

/* The bias in the shape that operators take it in: one number per channel. */
static Value *shifted_bias(Match *match, const Node *inner, const Affine *affine, bool *failed) {
  Value *value = node_input(inner, 2);
  Type type = match_type(match);
  double *old = NULL;
  if (value && !affine->scale && !affine->shift) return value;
  if (value) {
    old = by_channel(match, value, node_is(inner, OP_Gemm) ? 1 : (int64_t)type.rank - 1, affine->channels);
    *failed = *failed || !old;
  }
  if (*failed || (!value && !affine->shift)) return NULL;
  Context *context = match->rewriter->context;
  bool as_it_was = !value && node_is(match->root, OP_Add);
  Tensor *bias = arena_new(&context->arena, Tensor);
  *bias = (Tensor){.dtype = type.dtype, .rank = 1, .size = dtype_bytes(type.dtype, (size_t)affine->channels)};
  bias->dims = arena_copy(&context->arena, &affine->channels, sizeof affine->channels);
  bias->data = arena_new_array(&context->arena, bias->size, char);
  bias->name = bias_name(match, constant_of(value ? value : match->values[OPERAND]), as_it_was);
  Str names = names_with(context, NULL, unread_constant_of(value));
  if (!as_it_was) bias->made_of = names_with(context, names, unread_constant_of(match->values[OPERAND]));
  for (int64_t i = 0; i < affine->channels; i++) {
    double number =
        (old ? old[i] : 0) * (affine->scale ? affine->scale[i] : 1) + (affine->shift ? affine->shift[i] : 0);
    *failed = *failed || !store(bias, i, number);
  }
  return match_constant(match, bias);
}

/* ---- rules ---- */

static bool has_channels(const Match *match, Affine *affine) {
  const Node *inner = match->values[INNER]->producer;
  Type type = match_type(match);
  if (!type_equal(type, match->values[INNER]->type) || type.rank < 2 || !dtype_is_float(type.dtype)) return false;
  Dim channels = type.dims[channel_axis(inner)];
  affine->channels = dim_is_constant(channels) ? channels.constant : 0;
  return affine->channels > 0;
}

static bool affine_of(Match *match, const Node *node, const Value *operand, Affine *affine) {
  if (node_is(node, OP_BatchNormalization)) return read_batch_normalization(match, node, affine);
  return read_arithmetic(match, node, operand, affine);
}

static bool fold_into(Match *match, Op op, const Affine *affine, Emitter emitter) {
  const Node *inner = match->values[INNER]->producer;
  bool failed = false;
  DType stored = match->values[WEIGHT]->type.dtype;
  if (!dtype_is_float(stored) || dtype_bits(stored) < 16) return false; /* it has its scales beside it */
  Value *weight = scaled_weight(match, inner, affine);
  Value *bias = shifted_bias(match, inner, affine, &failed);
  if (!weight || failed) return false;
  weight = weight == match->values[WEIGHT] ? node_input(inner, 1)
                                           : match_in_type(match, weight, node_input(inner, 1)->type.dtype);
  Value *inputs[] = {match->values[SOURCE], weight, bias};
  node_copy_attributes(match_emit(match, op, inputs, bias ? 3 : 2, emitter), inner);
  return true;
}

static bool fuse_convolution_affine(Match *match) {
  Affine affine = {0};
  if (!has_channels(match, &affine) || !affine_of(match, match->root, match->values[OPERAND], &affine)) return false;
  return fold_into(match, match->values[INNER]->producer->op, &affine, REWRITE_EMITTER(match->rewriter));
}

static bool is_uniform(const double *numbers, int64_t count) {
  for (int64_t i = 1; i < count; i++) {
    if (numbers[i] != numbers[0]) return false;
  }
  return true;
}

/* Products with a matrix: a scale that is one number may be meant for what follows, and stays. */
static bool fold_into_product(Match *match, const Affine *affine) {
  const Node *inner = match->values[INNER]->producer;
  const Attribute *alpha = node_attribute(inner, "alpha"), *beta = node_attribute(inner, "beta");
  if (match_type(match).rank != 2 || unread_constant_of(match->values[WEIGHT])->rank != 2) return false;
  if ((alpha && alpha->real != 1) || (beta && beta->real != 1)) return false;
  if (affine->scale && !affine->shift && is_uniform(affine->scale, affine->channels)) return false;
  bool biased = affine->shift || node_input(inner, 2);
  bool single = match_type(match).dtype == DTYPE_FLOAT32;
  if (biased && !single && target_has(match->rewriter->model->target, QUIRK_GEMM_TAKES_FLOAT32_ALONE)) return false;
  if (biased && !schema_runs(OP_Gemm, NULL, match_opset(match), match_type(match).dtype)) return false;
  return fold_into(match, biased ? OP_Gemm : OP_MatMul, affine, REWRITE_EMITTER(match->rewriter));
}

static bool fuse_product_affine(Match *match) {
  Affine affine = {0};
  if (!has_channels(match, &affine) || !affine_of(match, match->root, match->values[OPERAND], &affine)) return false;
  return fold_into_product(match, &affine);
}

/* ---- halves that are widened for it ---- */

/* then.scale * (scale y + shift) + then.shift */
static void follow_with(Match *match, Affine *affine, const Affine *then) {
  Arena *arena = &match->rewriter->context->arena;
  double *scale = arena_new_array(arena, (size_t)affine->channels, double);
  double *shift = arena_new_array(arena, (size_t)affine->channels, double);
  for (int64_t i = 0; i < affine->channels; i++) {
    double factor = then->scale ? then->scale[i] : 1;
    scale[i] = (affine->scale ? affine->scale[i] : 1) * factor;
    shift[i] = (affine->shift ? affine->shift[i] : 0) * factor + (then->shift ? then->shift[i] : 0);
  }
  if (affine->scale || then->scale) affine->scale = scale;
  if (affine->shift || then->shift) affine->shift = shift;
}

/* The constant that a node adds, subtracts, multiplies or divides by; NULL: it does something else. */
static Value *constant_operand(const Node *node) {
  bool commutes = node_is(node, OP_Add) || node_is(node, OP_Mul);
  if (!commutes && !node_is(node, OP_Sub) && !node_is(node, OP_Div)) return NULL;
  if (constant_of(node_input(node, 1))) return node_input(node, 1);
  return commutes && constant_of(node_input(node, 0)) ? node_input(node, 0) : NULL;
}

static Value *taken_apart(Match *match, Value *value, Node *steps[MOST_STEPS], size_t *count) {
  while (value->producer && *count < MOST_STEPS) {
    Value *constant = constant_operand(value->producer);
    if (!constant && !node_is(value->producer, OP_BatchNormalization)) break;
    Node *node = match_take(match, value, value->producer->op);
    if (!node) break;
    steps[(*count)++] = node;
    value = node_input(node, node_input(node, 0) == constant ? 1 : 0);
  }
  return value;
}

static bool is_product(const Node *node) { return node_is(node, OP_Gemm) || node_is(node, OP_MatMul); }

static bool fuse_widened_affine(Match *match) {
  Node *steps[MOST_STEPS];
  size_t count = 0;
  Affine affine = {0};
  const Node *cast = match_take(match, taken_apart(match, node_input(match->root, 0), steps, &count), OP_Cast);
  if (!cast || count == 0) return false;
  Value *result = node_input(cast, 0);
  const Node *inner = result->producer;
  if (!inner || (!is_product(inner) && !node_is(inner, OP_Conv) && !node_is(inner, OP_ConvTranspose))) return false;
  if (!match_take(match, result, inner->op) || !unread_constant_of(node_input(inner, 1))) return false;
  match->values[INNER] = result;
  match->values[SOURCE] = node_input(inner, 0);
  match->values[WEIGHT] = node_input(inner, 1);
  if (!has_channels(match, &affine)) return false;
  for (size_t i = count; i > 0; i--) {
    Affine then = {.channels = affine.channels};
    match->values[OPERAND] = constant_operand(steps[i - 1]);
    if (!affine_of(match, steps[i - 1], match->values[OPERAND], &then)) return false;
    follow_with(match, &affine, &then);
  }
  if (is_product(inner)) return fold_into_product(match, &affine);
  return fold_into(match, inner->op, &affine, REWRITE_EMITTER(match->rewriter));
}

/* ---- an image without a batch ---- */

/* What is constant by channel moves above what leaves out the batch of 1, to the convolution. */
static bool fuse_above_squeeze(Match *match) {
  const Value *inner = match->values[INNER];
  const Node *node = inner->producer;
  Type from = inner->type, type = match_type(match);
  const int64_t axis = 0;
  if (!node || (!node_is(node, OP_Conv) && !node_is(node, OP_ConvTranspose)) || inner->uses->next) return false;
  if (from.rank != type.rank + 1 || !dim_is(from.dims[0], 1) || match->values[OPERAND]->type.rank > type.rank)
    return false;
  Type squeezed = {.dtype = from.dtype, .rank = type.rank, .dims = from.dims + 1};
  if (!type_equal(squeezed, type)) return false;
  Value *batched = EMIT_BEFORE(match, match->root->op, from, match->values[INNER], match->values[OPERAND])->outputs[0];
  Value *axes = rewrite_constant_ints(match->rewriter, match->root, &axis, 1, match->root->origin);
  return EMIT_MATCH(match, OP_Squeeze, batched, axes);
}

#define WITHOUT_BATCH EITHER(OP(Squeeze, ANY(INNER)), OP(Reshape, ANY(INNER)))

/* clang-format off */
#define RULES_AFTER(inner, fuse)                       \
    {OP(Sub, inner, CONSTANT(OPERAND)), OP_NONE, fuse}, \
    {OP(Mul, inner, CONSTANT(OPERAND)), OP_NONE, fuse}, \
    {OP(Div, inner, CONSTANT(OPERAND)), OP_NONE, fuse}, \
    {OP(BatchNormalization, inner), OP_NONE, fuse}

static const FusionRule rules[] = {
    {OP(Add, CONV, CONSTANT(OPERAND)), OP_NONE, fuse_convolution_affine},
    {OP(Add, CONV_TRANSPOSE, CONSTANT(OPERAND)), OP_NONE, fuse_convolution_affine},
    {OP(Add, GEMM, CONSTANT(OPERAND)), OP_NONE, fuse_product_affine},
    {OP(Add, WITHOUT_BATCH, CONSTANT(OPERAND)), OP_NONE, fuse_above_squeeze},
    {OP(Sub, WITHOUT_BATCH, CONSTANT(OPERAND)), OP_NONE, fuse_above_squeeze},
    {OP(Mul, WITHOUT_BATCH, CONSTANT(OPERAND)), OP_NONE, fuse_above_squeeze},
    {OP(Div, WITHOUT_BATCH, CONSTANT(OPERAND)), OP_NONE, fuse_above_squeeze},
    {OP(Narrow, ANY(SOURCE)), OP_NONE, fuse_widened_affine},
    RULES_AFTER(CONV, fuse_convolution_affine),
    RULES_AFTER(CONV_TRANSPOSE, fuse_convolution_affine),
    RULES_AFTER(GEMM, fuse_product_affine),
    RULES_AFTER(MATMUL, fuse_product_affine),
};
/* clang-format on */

bool fuse_convolution(Model *model) { return fuse_patterns(model, __func__, rules, sizeof rules / sizeof *rules); }
