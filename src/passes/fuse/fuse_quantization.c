/* Integers of 8 and 4 bits, and floats of 8, that are made wider floats: DequantizeLinear, whose scale is one number,
 * one for each step along an axis, or one for each block along an axis.
 *
 * (w - z) * s is computed alike: the difference of two such integers is exact in every float, and the product is
 * rounded once. What only moves a constant weight moves its integers, and its scales with them. A scale that a product
 * is multiplied by, column by column, belongs to the weight: W x * s = (W s) x. Weights that a program has rounded and
 * scaled in floats are whole numbers before the scale, and are stored as such.
 */
#include <math.h>

#include "base/bytes.h"
#include "onnx/facts/schema.h"
#include "passes/analysis/quantized.h"
#include "passes/pattern.h"
#include "types/numbers.h"

enum { WEIGHT, SCALE, POINT, WIDE, FACTOR };
enum { WITH_HALVES = 19, WITH_BLOCKS = 21 }; /* opsets; floats of 8 bits come with the halves */

/* How a scale goes along a weight. */
typedef struct Grain {
  bool along[MAX_RANK]; /* axes in whose steps it differs */
  uint32_t count;
  int64_t axis;  /* of the steps or of the blocks; -1: one number for all */
  int64_t block; /* elements along the axis that share a number; 0: one for each step along the axis alone */
  bool repeated; /* the constant has the number of a block once for each of its elements */
} Grain;

/* ---- shapes ---- */

static int64_t product_of(Type type, int64_t first, int64_t end) {
  int64_t product = 1;
  for (int64_t i = first; i < end; i++) {
    if (__builtin_mul_overflow(product, type.dims[i].constant, &product)) return -1;
  }
  return product;
}

/* Are the blocks along an axis of their own, which becomes one with the axis before it? */
static bool joins_blocks(Type from, Type to, int64_t axis) {
  if (axis < 1 || to.rank + 1 != from.rank) return false;
  for (int64_t i = 0; i < to.rank; i++) {
    int64_t size = i == axis - 1 ? product_of(from, i, i + 2) : from.dims[i < axis ? i : i + 1].constant;
    if (!dim_is(to.dims[i], size)) return false;
  }
  return true;
}

/* ---- scales and zero points ---- */

/* Adds the axes of the whole along which the part differs; false: it does not lie along it. */
static bool add_axes(Type part, Type whole, bool along[MAX_RANK]) {
  if (part.rank > whole.rank || whole.rank > MAX_RANK) return false;
  uint32_t missing = whole.rank - part.rank;
  for (uint32_t i = 0; i < part.rank; i++) {
    if (dim_is(part.dims[i], 1)) continue;
    if (!dim_equal(part.dims[i], whole.dims[i + missing])) return false;
    along[i + missing] = true;
  }
  return true;
}

/* False: no DequantizeLinear has such scales. */
static bool settle_grain(Grain *grain, Type whole, int64_t opset) {
  int64_t same = -1;
  grain->axis = -1;
  for (uint32_t i = 0; i < whole.rank; i++) {
    grain->count += grain->along[i];
    if (grain->along[i]) grain->axis = i;
    else if (!dim_is(whole.dims[i], 1)) same = same < 0 ? (int64_t)i : MAX_RANK;
  }
  if (grain->count < 2) return true;
  int64_t count;
  if (same < 0 || same == MAX_RANK || opset < WITH_BLOCKS || !type_count(whole, &count)) return false;
  grain->axis = same;
  grain->block = whole.dims[same].constant;
  return true;
}

static int64_t common_divisor(int64_t a, int64_t b) {
  while (b) {
    int64_t rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

/* How many elements in a row along the axis of the whole have the same numbers, in blocks of one size. */
static int64_t shared_along(const Tensor *part, Type whole, int64_t axis) {
  int64_t own = axis - (int64_t)(whole.rank - part->rank), block = whole.dims[axis].constant, inner = 1, outer = 1;
  if (own < 0 || part->dims[own] == 1) return block;
  for (int64_t i = 0; i < own; i++) outer *= part->dims[i];
  for (int64_t i = own + 1; i < part->rank; i++) inner *= part->dims[i];
  size_t row = dtype_bytes(part->dtype, (size_t)inner);
  for (int64_t i = 1; i < part->dims[own] && block > 1; i++) {
    for (int64_t j = 0; j < outer && block > 1; j++) {
      const char *at = (const char *)part->data + (size_t)(j * part->dims[own] + i) * row;
      if (!same_bytes(at, at - row, row)) block = common_divisor(block, i);
    }
  }
  return block;
}

/* Scales that differ along every axis, but are repeated along one. */
static bool settle_repeated(Grain *grain, const Tensor *scale, const Tensor *zero, Type whole, int64_t opset) {
  int64_t count;
  if (opset < WITH_BLOCKS || !scale || grain->count != whole.rank || !type_count(whole, &count)) return false;
  if (dtype_bits(scale->dtype) < 8 || (zero && dtype_bits(zero->dtype) < 8)) return false;
  for (uint32_t i = 0; i < whole.rank; i++) {
    int64_t block = shared_along(scale, whole, i);
    if (zero) block = common_divisor(block, shared_along(zero, whole, i));
    if (block <= grain->block || block < 2) continue;
    grain->axis = i;
    grain->block = block;
    grain->repeated = true;
  }
  return grain->repeated;
}

/* The shape of the scales: that of the weight with 1 at the blocks, or one axis, or none. */
static Type scale_type(Match *match, const Grain *grain, Type whole, DType dtype) {
  Dim dims[MAX_RANK];
  uint32_t rank = 0;
  for (uint32_t i = 0; i < whole.rank; i++) {
    bool repeated = grain->repeated && grain->axis == (int64_t)i;
    if (repeated) dims[rank++] = dim_of(whole.dims[i].constant / grain->block);
    else if (grain->block) dims[rank++] = grain->along[i] ? whole.dims[i] : dim_of(1);
    else if (grain->along[i]) dims[rank++] = whole.dims[i];
  }
  return type_make(match->rewriter->context, dtype, dims, rank);
}

static void put_number(Tensor *tensor, int64_t index, double number) {
  uint8_t *bytes = (uint8_t *)(uintptr_t)tensor->data;
  uint64_t bits = number_encode(tensor->dtype == DTYPE_INT4 ? DTYPE_INT8 : tensor->dtype, number);
  if (dtype_bits(tensor->dtype) < 8) bytes[index / 2] |= (uint8_t)((bits & 0xF) << index % 2 * 4);
  else copy_bytes(bytes + dtype_bytes(tensor->dtype, (size_t)index), &bits, dtype_bytes(tensor->dtype, 1));
}

/* Where in a constant that lies along the whole the element at this place of the scales is. */
static int64_t place_in(const Tensor *part, const Grain *grain, Type whole, int64_t place) {
  int64_t at = 0, stride = 1;
  for (uint32_t i = whole.rank; i--;) {
    bool repeated = grain->repeated && grain->axis == (int64_t)i;
    int64_t size = grain->along[i] ? whole.dims[i].constant : 1;
    if (repeated) size /= grain->block;
    int64_t step = place % size * (repeated ? grain->block : 1);
    place /= size;
    if (i < whole.rank - part->rank) continue;
    int64_t own = part->dims[i - (whole.rank - part->rank)];
    if (own != 1) at += step * stride;
    stride *= own;
  }
  return at;
}

static bool holds_number(DType dtype, double number) {
  unsigned bits = dtype_bits(dtype);
  double most = (double)((1 << (dtype_is_unsigned(dtype) ? bits : bits - 1)) - 1);
  double least = dtype_is_unsigned(dtype) ? 0 : -most - 1;
  return number >= least && number <= most && number == floor(number);
}

/* The constant as one number for each scale, in this type; NULL: it has not got them, or they do not fit. */
static Value *spread_constant(Match *match, const Value *value, const Grain *grain, Type whole, DType dtype) {
  const Tensor *from = constant_of(value);
  Tensor *tensor = from ? match_tensor(match, dtype, scale_type(match, grain, whole, dtype)) : NULL;
  int64_t count;
  if (!tensor || !type_count(tensor_type(match->rewriter->context, tensor), &count)) return NULL;
  for (int64_t i = 0; i < count; i++) {
    size_t at = dtype_bytes(from->dtype, (size_t)place_in(from, grain, whole, i));
    double number = number_decode(from->dtype, (const char *)from->data + at);
    if (is_small_integer(dtype) && !holds_number(dtype, number)) return NULL;
    put_number(tensor, i, number);
  }
  tensor->name = from->name;
  tensor->made_of = names_with(match->rewriter->context, NULL, from);
  return rewrite_constant(match->rewriter, match->root, tensor, value->origin);
}

/* A scale that is computed has its axes as they must be already, or gets them by a Reshape. */
static Value *spread_scale(Match *match, Value *scale, const Grain *grain, Type whole) {
  Type type = scale_type(match, grain, whole, scale->type.dtype);
  bool own[MAX_RANK] = {false};
  if (type_equal(scale->type, type)) return scale;
  if (unread_constant_of(scale)) return spread_constant(match, scale, grain, whole, scale->type.dtype);
  if (!add_axes(scale->type, whole, own) || memcmp(own, grain->along, sizeof own) != 0) return NULL;
  int64_t dims[MAX_RANK];
  for (uint32_t i = 0; i < type.rank; i++) dims[i] = grain->block ? type.dims[i].constant : -1;
  Value *shape = rewrite_constant_ints(match->rewriter, match->root, dims, type.rank, NULL);
  return EMIT_BEFORE(match, OP_Reshape, type, scale, shape)->outputs[0];
}

/* What is computed of constants, as one, for the time of the match: scales that are repeated for each row of a block,
 * zero points that are unpacked. */
static Value *as_constant(Match *match, Value *value) {
  if (unread_constant_of(value)) return value;
  const Tensor *tensor = known_tensor_of(match->rewriter->context, value, match_opset(match));
  return tensor ? rewrite_constant(match->rewriter, match->root, tensor, value->origin) : NULL;
}

/* ---- (w - z) * s ---- */

static Node *emit_dequantized(Match *match, Value *weight, Value *scale, Value *zero, const Grain *grain,
                              bool replaces) {
  Value *inputs[] = {weight, scale, zero};
  Emitter emitter = REWRITE_EMITTER(match->rewriter);
  Type type = type_with(weight->type, scale->type.dtype);
  Node *node = replaces ? match_emit(match, OP_DequantizeLinear, inputs, zero ? 3 : 2, emitter)
                        : match_node_before(match, OP_DequantizeLinear, type, inputs, zero ? 3 : 2, emitter);
  if (grain->axis >= 0) node_set_int(node, "axis", grain->axis);
  if (grain->block) node_set_int(node, "block_size", grain->block);
  return node;
}

/* float32, or float16 where the opset has it; ONNX Runtime runs no other. */
static bool has_scale_type(const Match *match, const Value *scale) {
  DType dtype = scale->type.dtype;
  return dtype == DTYPE_FLOAT32 || (dtype == DTYPE_FLOAT16 && match_opset(match) >= WITH_HALVES);
}

/* Is it a type of weights that DequantizeLinear reads? */
static bool is_stored(const Match *match, DType dtype) {
  return is_small_integer(dtype) || (is_small_number(dtype) && match_opset(match) >= WITH_HALVES);
}

/* Do all integers of one type have their place in the other? */
static bool holds_all(DType to, DType from) {
  unsigned more = dtype_is_unsigned(from) && !dtype_is_unsigned(to); /* a sign takes a bit */
  return dtype_is_unsigned(from) >= dtype_is_unsigned(to) && dtype_bits(to) >= dtype_bits(from) + more;
}

/* Do the casts of the match keep the integers and their differences as they are? Every float and every wider integer
 * with a sign holds those of 9 bits. */
static bool casts_are_exact(const Match *match) {
  for (size_t i = 0; i < match->node_count; i++) {
    const Node *node = match->nodes[i];
    DType to = node->outputs[0]->type.dtype, from = node_input(node, 0)->type.dtype;
    if (dtype_is_float(to) || (!dtype_is_unsigned(to) && dtype_bits(to) >= 16)) continue;
    if (!node_is(node, OP_Cast) || !is_small_integer(from) || !holds_all(to, from)) return false;
  }
  return true;
}

/* The scale, and the zero point if there is one, of the shape that the grain gives them. */
static bool fuse_with_grain(Match *match, Value *scale, Value *zero) {
  Value *weight = match->values[WEIGHT];
  Type whole = weight->type;
  Grain grain = {0};
  if (!add_axes(scale->type, whole, grain.along) || (zero && !add_axes(zero->type, whole, grain.along))) return false;
  if (!settle_grain(&grain, whole, match_opset(match)) &&
      !settle_repeated(&grain, constant_of(scale), zero ? constant_of(zero) : NULL, whole, match_opset(match)))
    return false;
  scale = spread_scale(match, scale, &grain, whole);
  if (!scale) return false;
  if (zero && !(zero = spread_constant(match, zero, &grain, whole, whole.dtype))) return false;
  return emit_dequantized(match, weight, scale, zero, &grain, true);
}

static bool fuse_scaled(Match *match) {
  Value *scale = match->values[SCALE], *zero = match->values[POINT];
  Type whole = match->values[WEIGHT]->type;
  if (!is_stored(match, whole.dtype) || type_is_unranked(whole) || !has_scale_type(match, scale)) return false;
  if (zero && !is_small_integer(whole.dtype)) return false;
  if (!type_equal(match_type(match), type_with(whole, scale->type.dtype))) return false;
  if (!casts_are_exact(match) || !leads_to_product(match->root->outputs[0])) return false;
  Value *known = as_constant(match, scale);
  if (zero && !(zero = as_constant(match, zero))) return false;
  return fuse_with_grain(match, known ? known : scale, zero);
}

/* ---- weights that were rounded in floats ---- */

/* The whole numbers of a constant as bytes; NULL when they are none. */
static Value *stored_as_bytes(Match *match, const Value *value) {
  if (!is_whole_weight(value)) return NULL;
  const Tensor *from = constant_of(value);
  Tensor *tensor = match_tensor(match, DTYPE_INT8, value->type);
  if (!tensor) return NULL;
  for (size_t i = 0; i < tensor->size; i++) {
    put_number(tensor, (int64_t)i, number_decode(DTYPE_FLOAT32, (const char *)from->data + i * sizeof(float)));
  }
  tensor->name = from->name;
  tensor->made_of = names_with(match->rewriter->context, NULL, from);
  return rewrite_constant(match->rewriter, match->root, tensor, value->origin);
}

static bool fuse_whole(Match *match) {
  Value *other = match->values[SCALE], *weight;
  if (!leads_to_product(match->root->outputs[0])) return false;
  if (is_whole_weight(other)) match->values[SCALE] = match->values[WEIGHT];
  else other = match->values[WEIGHT];
  if (!has_scale_type(match, match->values[SCALE]) || !(weight = stored_as_bytes(match, other))) return false;
  match->values[WEIGHT] = weight;
  return fuse_scaled(match);
}

/* ---- scales after the product ---- */

/* One number, or one for each column of what is multiplied by the matrix. */
static bool is_by_column(const Value *scale, Type product, Type matrix) {
  for (uint32_t i = 0; i + 1 < scale->type.rank; i++) {
    if (!dim_is(scale->type.dims[i], 1)) return false;
  }
  if (scale->type.rank == 0) return true;
  Dim last = scale->type.dims[scale->type.rank - 1];
  bool fits = scale->type.rank <= product.rank && dim_equal(product.dims[product.rank - 1], matrix.dims[1]);
  return dim_is(last, 1) || (fits && dim_equal(last, matrix.dims[1]));
}

static bool fuse_scaled_product(Match *match) {
  Value *weight = match->values[WEIGHT], *scale = match->values[SCALE], *factor = match->values[FACTOR];
  Type type = match_type(match), matrix = weight->type;
  Grain grain = {.axis = -1};
  if (!is_stored(match, matrix.dtype) || matrix.rank != 2 || !has_scale_type(match, scale)) return false;
  if (!casts_are_exact(match)) return false;
  if (factor->type.dtype != scale->type.dtype || type.dtype != scale->type.dtype) return false;
  if (factor->type.rank < 1 || !type_equal(type, match->values[WIDE]->type)) return false;
  if (!is_by_column(scale, type, matrix)) return false;
  const Tensor *tensor = constant_of(scale);
  uint32_t last = tensor->rank ? tensor->rank - 1 : 0;
  grain.along[1] = tensor->rank && tensor->dims[last] != 1;
  if (!settle_grain(&grain, matrix, match_opset(match))) return false;
  Value *numbers = scale;
  if (tensor->rank != grain.count) {
    Tensor *row = arena_copy(&match->rewriter->context->arena, tensor, sizeof *tensor);
    row->rank = grain.count;
    row->dims = grain.count ? tensor->dims + last : NULL;
    numbers = rewrite_constant(match->rewriter, match->root, row, scale->origin);
  }
  Node *node = emit_dequantized(match, weight, numbers, NULL, &grain, false);
  return EMIT_MATCH(match, OP_MatMul, factor, node->outputs[0]);
}

/* One number, or one for each channel of what a convolution makes. */
static bool is_by_channel(Type scale, Type result, bool *varies) {
  *varies = false;
  if (scale.rank > result.rank) return false;
  for (uint32_t i = 0; i < scale.rank; i++) {
    if (dim_is(scale.dims[i], 1)) continue;
    if (i + result.rank - scale.rank != 1 || !dim_equal(scale.dims[i], result.dims[1])) return false;
    *varies = true;
  }
  return true;
}

static bool fuse_scaled_convolution(Match *match) {
  Value *weight = match->values[WEIGHT], *scale = match->values[SCALE], *factor = match->values[FACTOR];
  const Node *conv = match->values[WIDE]->producer;
  Type type = match_type(match), filters = weight->type;
  Grain grain = {.axis = -1};
  if (!is_stored(match, filters.dtype) || filters.rank < 3 || conv->input_count != 2) return false;
  if (!has_scale_type(match, scale) || !casts_are_exact(match)) return false;
  if (factor->type.dtype != scale->type.dtype || !type_equal(type, match->values[WIDE]->type)) return false;
  if (type.rank != filters.rank || !dim_equal(type.dims[1], filters.dims[0])) return false;
  if (!is_by_channel(scale->type, type, &grain.along[0])) return false;
  if (!settle_grain(&grain, filters, match_opset(match))) return false;
  const Tensor *tensor = constant_of(scale);
  Tensor *row = arena_copy(&match->rewriter->context->arena, tensor, sizeof *tensor);
  row->rank = grain.count;
  row->dims = filters.rank && grain.count ? unread_constant_of(weight)->dims : NULL;
  Value *numbers = rewrite_constant(match->rewriter, match->root, row, scale->origin);
  Node *node = emit_dequantized(match, weight, numbers, NULL, &grain, false);
  node_copy_attributes(EMIT_MATCH(match, OP_Conv, factor, node->outputs[0]), conv);
  return true;
}

/* ---- what moves a weight ---- */

/* The same node for another value; what it does to the first axes of the type it does to this. */
static Value *moved_like(Match *match, const Node *root, Value *value, Type type) {
  Value *inputs[] = {value, node_input(root, 1)};
  Node *node = match_node_before(match, root->op, type, inputs, inputs[1] ? 2 : 1, REWRITE_EMITTER(match->rewriter));
  node_copy_attributes(node, root);
  return node->outputs[0];
}

static bool is_own_constant(const Value *value) {
  return unread_constant_of(value) && value->uses && !value->uses->next;
}

/* Narrow elements are moved rather than wide ones; of a constant at export. */
static bool move_before_cast(Match *match) {
  Value *weight = match->values[WEIGHT];
  Type type = match_type(match);
  if (!is_small_number(weight->type.dtype) || !is_own_constant(weight)) return false;
  Value *moved = moved_like(match, match->root, weight, type_with(type, weight->type.dtype));
  Node *cast = EMIT_MATCH(match, OP_Cast, moved);
  node_set_int(cast, "to", onnx_dtype(type.dtype));
  return true;
}

/* ---- what moves a weight with its scales ---- */

/* The axis of another shape of the same elements that has the steps of this one; -1: none has. */
static int64_t axis_after_reshape(Type from, Type to, int64_t axis) {
  int64_t before = product_of(from, 0, axis), done = 1;
  for (int64_t i = 0; i < to.rank; i++) {
    if (done == before && dim_equal(to.dims[i], from.dims[axis])) return i;
    if (__builtin_mul_overflow(done, to.dims[i].constant, &done)) return -1;
  }
  return -1;
}

static int64_t axis_after_transpose(const Node *transpose, int64_t axis) {
  const Attribute *order = node_attribute(transpose, "perm");
  int64_t rank = transpose->outputs[0]->type.rank;
  for (int64_t i = 0; i < rank; i++) {
    if (order ? order->count == (size_t)rank && order->integers[i] == axis : rank - 1 - i == axis) return i;
  }
  return -1;
}

/* The grain of the weight in the shape that the root gives it; false: it has none. */
static bool moved_grain(const Node *root, const Node *inner, Grain *grain) {
  Type from = node_input(inner, 0)->type, to = root->outputs[0]->type;
  int64_t rank = node_input(inner, 1)->type.rank, axis = node_int_or(inner, "axis", 1), count;
  grain->block = node_int_or(inner, "block_size", 0);
  grain->axis = -1;
  if (rank == 0) return true;
  if (axis < 0) axis += from.rank;
  if (axis < 0 || axis >= from.rank || !type_count(from, &count) || !type_count(to, &count)) return false;
  bool own_axis = grain->block && dim_is(from.dims[axis], grain->block);
  if (node_is(root, OP_Transpose)) grain->axis = axis_after_transpose(root, axis);
  else if (own_axis && joins_blocks(from, to, axis)) grain->axis = axis - 1;
  else if (!grain->block || own_axis) grain->axis = axis_after_reshape(from, to, axis);
  return grain->axis >= 0;
}

/* Scales, or zero points, where the weight has another shape. */
static Value *moved_scales(Match *match, const Node *root, Value *scales, const Grain *grain) {
  if (!scales || !grain->block) return scales;
  Type to = match_type(match);
  Dim dims[MAX_RANK];
  int64_t sizes[MAX_RANK];
  for (uint32_t i = 0; i < to.rank; i++) {
    sizes[i] = i == grain->axis ? to.dims[i].constant / grain->block : to.dims[i].constant;
    dims[i] = dim_of(sizes[i]);
  }
  Type type = type_make(match->rewriter->context, scales->type.dtype, dims, to.rank);
  if (node_is(root, OP_Transpose)) return moved_like(match, root, scales, type);
  Value *shape = rewrite_constant_ints(match->rewriter, match->root, sizes, to.rank, NULL);
  return EMIT_BEFORE(match, OP_Reshape, type, scales, shape)->outputs[0];
}

static bool move_before_scales(Match *match) {
  Node *root = match->root, *inner = match->values[WIDE]->producer;
  Value *weight = match->values[WEIGHT], *zero = node_input(inner, 2);
  Grain grain = {0};
  if (!is_own_constant(weight) || (zero && !unread_constant_of(zero)) || match_type(match).rank > MAX_RANK)
    return false;
  if (!moved_grain(root, inner, &grain)) return false;
  Value *moved = moved_like(match, root, weight, type_with(match_type(match), weight->type.dtype));
  Value *scale = moved_scales(match, root, match->values[SCALE], &grain);
  return emit_dequantized(match, moved, scale, moved_scales(match, root, zero, &grain), &grain, true);
}

/* Once, or by way of a half. */
#define CASTED(of) EITHER(OP(Cast, OP(Cast, of)), OP(Cast, of))
#define DEQUANTIZED OP_AT(WIDE, DequantizeLinear, CONSTANT(WEIGHT), CONSTANT(SCALE))

static const FusionRule rules[] = {
    {OP(Transpose, DEQUANTIZED), OP_DequantizeLinear, move_before_scales},
    {OP(Reshape, DEQUANTIZED), OP_DequantizeLinear, move_before_scales},
    {OP(Unsqueeze, DEQUANTIZED), OP_DequantizeLinear, move_before_scales},
    {OP(Squeeze, DEQUANTIZED), OP_DequantizeLinear, move_before_scales},
    {OP(Transpose, OP(Cast, CONSTANT(WEIGHT))), OP_NONE, move_before_cast},
    {OP(Reshape, OP(Cast, CONSTANT(WEIGHT))), OP_NONE, move_before_cast},
    {OP(Unsqueeze, OP(Cast, CONSTANT(WEIGHT))), OP_NONE, move_before_cast},
    {OP(Squeeze, OP(Cast, CONSTANT(WEIGHT))), OP_NONE, move_before_cast},
    {OP(Mul, CASTED(OP(Sub, CASTED(ANY(WEIGHT)), ANY(POINT))), ANY(SCALE)), OP_DequantizeLinear, fuse_scaled},
    {OP(Mul, OP(Sub, CASTED(ANY(WEIGHT)), ANY(POINT)), ANY(SCALE)), OP_DequantizeLinear, fuse_scaled},
    {OP(Mul, CASTED(ANY(WEIGHT)), ANY(SCALE)), OP_DequantizeLinear, fuse_scaled},
    {OP(Mul, CONSTANT(WEIGHT), CONSTANT(SCALE)), OP_NONE, fuse_whole},
    {OP(Mul, OP_AT(WIDE, MatMul, ANY(FACTOR), CASTED(CONSTANT(WEIGHT))), CONSTANT(SCALE)), OP_DequantizeLinear,
     fuse_scaled_product},
    {OP(Mul, OP_AT(WIDE, Conv, ANY(FACTOR), CASTED(CONSTANT(WEIGHT))), CONSTANT(SCALE)), OP_DequantizeLinear,
     fuse_scaled_convolution},
};

bool fuse_quantization(Model *model) { return fuse_patterns(model, __func__, rules, sizeof rules / sizeof *rules); }
