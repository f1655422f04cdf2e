/* A product over the channels of images that have them second is a convolution with a window of one.
 *
 * Programs write it with the channels moved last and back, or as a matrix times the image with its space made one axis.
 * The convolution needs neither, takes the bias with it, and what is constant by channel after it (fuse_convolution):
 * one node for three to five, and 3 to 12 % faster in ONNX Runtime in the blocks that it was measured in. Sequences
 * keep their MatMul: there the features come last.
 */
#include "passes/layout/permute_axes.h"
#include "passes/pattern.h"

enum { INNER, WEIGHT, BIAS };

enum {
  FEWEST_AXES = 3, /* batch, channels, time */
  IMAGE_AXES = 4,  /* batch, channels, height, width */
  MOST_AXES = 5    /* and depth */
};

static bool is_image(Type type) {
  return !type_is_unranked(type) && type.rank >= FEWEST_AXES && type.rank <= MOST_AXES && dim_is_constant(type.dims[1]);
}

/* Does one move the second axis to the end, and the other everything back to its place? */
static bool move_channels_and_back(const Node *there, const Node *back, uint32_t rank) {
  AxisOrder first, second;
  if (!there || !back || !transpose_order(there, &first) || !transpose_order(back, &second)) return false;
  if (first.rank != rank || second.rank != rank || first.from[rank - 1] != 1) return false;
  AxisOrder inverse = order_inverse(first);
  return order_equal(&inverse, &second);
}

/* A result of that many channels, with the batch and the space of the image. */
static bool is_result_of(Type result, Type image, Dim channels) {
  return result.rank == image.rank && dim_equal(result.dims[0], image.dims[0]) && dim_equal(result.dims[1], channels) &&
         same_dims(result, image, 2, image.rank - 2);
}

static bool may_reshape(const Value *weight) {
  const Tensor *tensor = unread_constant_of(weight);
  return tensor->rank == 2 && dtype_is_float(tensor->dtype) && may_store_otherwise(weight);
}

/* One number for each channel, or none. */
static bool is_bias(const Value *bias, Dim channels) {
  return !bias || (bias->type.rank == 1 && dim_equal(bias->type.dims[0], channels));
}

/* The weight, one row for each channel of the result, as a kernel. */
static Value *kernel_of(Match *match, Value *rows, uint32_t rank) {
  int64_t sizes[MOST_AXES];
  Dim dims[MOST_AXES];
  for (uint32_t i = 0; i < rank; i++) {
    sizes[i] = i < 2 ? rows->type.dims[i].constant : 1;
    dims[i] = dim_of(sizes[i]);
  }
  Type type = type_make(match->rewriter->context, rows->type.dtype, dims, rank);
  Value *shape = rewrite_constant_ints(match->rewriter, match->root, sizes, rank, match->root->origin);
  return EMIT_BEFORE(match, OP_Reshape, type, rows, shape)->outputs[0];
}

static Value *turned_weight(Match *match) {
  static const int64_t perm[] = {1, 0};
  Value *weight = match->values[WEIGHT];
  Dim dims[] = {weight->type.dims[1], weight->type.dims[0]};
  Type type = type_make(match->rewriter->context, weight->type.dtype, dims, 2);
  Node *node = EMIT_BEFORE(match, OP_Transpose, type, weight);
  node_set_ints(node, "perm", perm, 2);
  return node->outputs[0];
}

static bool emit_convolution(Match *match, Value *x, Value *rows) {
  static const int64_t ones[MOST_AXES - 2] = {1, 1, 1}, zeros[2 * (MOST_AXES - 2)] = {0};
  uint32_t space = x->type.rank - 2;
  Value *kernel = match_in_type(match, kernel_of(match, rows, x->type.rank), x->type.dtype);
  Value *inputs[] = {x, kernel, match->values[BIAS]};
  Node *node = match_emit(match, OP_Conv, inputs, inputs[2] ? 3 : 2, REWRITE_EMITTER(match->rewriter));
  node_set_ints(node, "kernel_shape", ones, space);
  node_set_ints(node, "strides", ones, space);
  node_set_ints(node, "pads", zeros, 2 * (size_t)space);
  return true;
}

/* Is it an image whose space was made one axis before, and is an image again afterwards? */
static bool was_flattened(const Value *x, const Node *root) {
  const Node *user = value_only_user(root->outputs[0]);
  return x->producer && node_is(x->producer, OP_Reshape) && user && node_is(user, OP_Reshape);
}

/* x @ W, with the channels moved to the end and back. */
static bool fuse_turned(Match *match) {
  Node *turn = match->values[INNER]->producer;
  if (!turn || turn->graph != match->root->graph) return false;
  Value *x = node_input(turn, 0), *weight = match->values[WEIGHT];
  if (!is_image(x->type) || !may_reshape(weight) || !is_bias(match->values[BIAS], weight->type.dims[1])) return false;
  if (!move_channels_and_back(turn, match->root, x->type.rank) || was_flattened(x, match->root)) return false;
  if (!dim_equal(weight->type.dims[0], x->type.dims[1])) return false;
  if (!is_result_of(match_type(match), x->type, weight->type.dims[1])) return false;
  match_take(match, match->values[INNER], turn->op);
  return emit_convolution(match, x, turned_weight(match));
}

static bool is_before_bias(const Value *value) {
  const Node *user = value_only_user(value);
  return user && node_is(user, OP_Add) && (constant_of(node_input(user, 0)) || constant_of(node_input(user, 1)));
}

/* The channels are moved back alone, as after a normalisation over them: there is as much to move before the product,
 * and the convolution has the bias. */
static bool fuse_before_bias(Match *match) {
  Value *rows = match->values[INNER], *weight = match->values[WEIGHT];
  Type type = match_type(match);
  AxisOrder back;
  if (type.rank < IMAGE_AXES || !may_reshape(weight) || !is_before_bias(match->root->outputs[0])) return false;
  if (!transpose_order(match->root, &back) || back.rank != type.rank || back.from[1] != (int64_t)back.rank - 1)
    return false;
  if (rows->type.rank != type.rank || !dim_equal(weight->type.dims[0], rows->type.dims[type.rank - 1])) return false;
  Type image = order_type(match->rewriter->context, rows->type, &back);
  if (!is_image(image) || !is_result_of(type, image, weight->type.dims[1])) return false;
  Node *turn = EMIT_BEFORE(match, OP_Transpose, image, rows);
  node_set_ints(turn, "perm", back.from, back.rank);
  return emit_convolution(match, turn->outputs[0], turned_weight(match));
}

/* The image that has become a matrix of channels by space, with its batch or without a batch of one. */
static Value *image_of(Match *match, Value *matrix) {
  Node *node = matrix->producer;
  if (!node || !node_has(node, RENAMES) || node->graph != match->root->graph) return NULL;
  Value *x = node_input(node, 0);
  uint32_t batch = matrix->type.rank - 2;
  if (type_is_unranked(matrix->type) || matrix->type.rank < 2 || batch > 1 || !is_image(x->type)) return NULL;
  if (!dim_equal(matrix->type.dims[batch], x->type.dims[1])) return NULL;
  bool same_batch = batch ? dim_equal(matrix->type.dims[0], x->type.dims[0]) : dim_is(x->type.dims[0], 1);
  return same_batch ? x : NULL;
}

/* W @ x, with the space as one axis. */
static bool fuse_flat(Match *match) {
  Value *weight = match->values[WEIGHT], *flat = match->values[INNER], *x = image_of(match, flat);
  if (!x || !may_reshape(weight) || !dim_equal(weight->type.dims[1], x->type.dims[1])) return false;
  if (!is_result_of(match_type(match), x->type, weight->type.dims[0])) return false;
  match_take(match, flat, flat->producer->op);
  return emit_convolution(match, x, weight);
}

/* The same, with the channels moved to the end and back. */
static bool fuse_flat_turned(Match *match) {
  Node *turn = match->values[INNER]->producer, *back = node_input(match->root, 0)->producer;
  if (!turn || turn->graph != match->root->graph) return false;
  if (!move_channels_and_back(turn, back, 3)) return false;
  Value *weight = match->values[WEIGHT], *x = image_of(match, node_input(turn, 0));
  if (!x || !may_reshape(weight) || !is_bias(match->values[BIAS], weight->type.dims[1])) return false;
  if (!dim_equal(weight->type.dims[0], x->type.dims[1])) return false;
  if (!is_result_of(match_type(match), x->type, weight->type.dims[1])) return false;
  if (match_take(match, match->values[INNER], turn->op)) {
    match_take(match, node_input(turn, 0), node_input(turn, 0)->producer->op);
  }
  return emit_convolution(match, x, turned_weight(match));
}

/* A large weight of halves stays one. */
#define STORED EITHER(CONSTANT(WEIGHT), OP(Cast, CONSTANT(WEIGHT)))
#define ROWS OP(MatMul, ANY(INNER), STORED)
#define FLAT OP(MatMul, STORED, ANY(INNER))
#define BIASED_ROWS EITHER(ROWS, OP(Add, ROWS, CONSTANT(BIAS)))

static const FusionRule rules[] = {
    {OP(Transpose, BIASED_ROWS), OP_Conv, fuse_turned},
    {OP(Transpose, ROWS), OP_Conv, fuse_before_bias},
    {OP(Reshape, OP(Transpose, BIASED_ROWS)), OP_Conv, fuse_flat_turned},
    {OP(Reshape, EITHER(FLAT, OP(Reshape, FLAT))), OP_Conv, fuse_flat},
    {OP(Unsqueeze, FLAT), OP_Conv, fuse_flat},
};

bool fuse_pointwise(Model *model) { return fuse_patterns(model, __func__, rules, sizeof rules / sizeof *rules); }
