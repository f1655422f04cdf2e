/* Products with dequantised weights in a form that the runtime leaves as it is.
 *
 * ONNX Runtime takes MatMul and Gemm together with a DequantizeLinear before their right factor, where that is a
 * constant matrix, and rounds the left factor to 8 bits: the results are off by half a percent
 * (QUIRK_PRODUCT_ROUNDS_ITS_LEFT_FACTOR). It does so neither with a matrix that Gemm transposes nor with one that has
 * three axes. A factor that was quantised by the program is not rounded again, so its product stays.
 *
 * Of the forms that stay exact these are the fastest, in milliseconds for 1,024 x 1,024 int8 weights and 1 or 32 rows,
 * scaled by column (ONNX Runtime 1.31 on one core): Gemm with the weights transposed 0.27 and 1.3; three axes and one
 * block for each column 0.27 and 1.1; three axes and an axis of scales, which is all that opsets before 21 have, 3.0
 * and 2.5. Rounded it takes 0.03 and 0.45, and without quantisation 0.07 and 0.67.
 */
#include "onnx/facts/schema.h"
#include "passes/analysis/quantized.h"
#include "passes/rewrite.h"
#include "target/target.h"

enum { WITH_BLOCKS = 21 }; /* opset */

/* A product, and the DequantizeLinear that makes its right factor. */
typedef struct Pair {
  Rewriter *rewriter;
  Node *product, *weigh;
} Pair;

/* A node that stands for one of the two, before the product. */
static Value *emit(const Pair *pair, const Node *stands_for, Op op, Type type, Value *const *inputs, size_t count) {
  Emitter emitter = REWRITE_EMITTER(pair->rewriter);
  const Origin *origin = origin_with_emitter(pair->rewriter->model->provenance, stands_for->origin, emitter);
  return graph_node(pair->product->graph, origin, op, inputs, count, &type, 1, pair->product)->outputs[0];
}

static Value *reshaped(const Pair *pair, Value *value, const int64_t *dims, uint32_t rank) {
  Dim sizes[3];
  for (uint32_t i = 0; i < rank; i++) sizes[i] = dim_of(dims[i]);
  Type type = type_make(pair->rewriter->context, value->type.dtype, sizes, rank);
  Value *inputs[] = {value, rewrite_constant_ints(pair->rewriter, pair->product, dims, rank, pair->weigh->origin)};
  return emit(pair, pair->weigh, OP_Reshape, type, inputs, 2);
}

static int64_t axis_of(const Node *dequantize) {
  int64_t axis = node_int_or(dequantize, "axis", 1), rank = node_input(dequantize, 1)->type.rank;
  return rank == 0 ? -1 : axis < 0 ? axis + 2 : axis;
}

/* Has it an axis of the weight's two, and scales and zero points of the shape that goes with it? A text may say
 * anything. */
static bool is_sound(const Node *dequantize) {
  const Value *scale = node_input(dequantize, 1), *zero = node_input(dequantize, 2);
  uint32_t rank = scale->type.rank;
  if (zero && zero->type.rank != rank) return false;
  return axis_of(dequantize) <= 1 && rank == (node_int_or(dequantize, "block_size", 0) ? 2 : rank == 0 ? 0 : 1);
}

/* The DequantizeLinear whose product with the left factor would be rounded; or NULL. */
static Node *rounding_factor(const Node *product) {
  if (!node_is(product, OP_MatMul) && !node_is(product, OP_Gemm)) return NULL;
  if (node_is(product, OP_Gemm) && (node_int_or(product, "transB", 0) || node_int_or(product, "transA", 0)))
    return NULL;
  const Value *left = node_input(product, 0), *right = node_input(product, 1);
  Node *node = right->producer;
  if (!node || !node_is(node, OP_DequantizeLinear) || (left->producer && node_is(left->producer, OP_DequantizeLinear)))
    return NULL;
  const Value *weight = node_input(node, 0), *zero = node_input(node, 2);
  /* What is computed of constants is a constant to the runtime. */
  if (!is_known_at_export(weight) || !is_known_at_export(node_input(node, 1)) || (zero && !is_known_at_export(zero)))
    return NULL;
  if (!is_sound(node)) return NULL;
  bool by_row = axis_of(node) == 0 && !node_int_or(node, "block_size", 0);
  int64_t count;
  return weight->type.rank == 2 && type_count(weight->type, &count) && !by_row && left->type.dtype != DTYPE_NONE ? node
                                                                                                                 : NULL;
}

static Value *dequantized(const Pair *pair, Value *const inputs[3], int64_t axis, int64_t block) {
  Type type = type_with(inputs[0]->type, inputs[1]->type.dtype);
  Value *value = emit(pair, pair->weigh, OP_DequantizeLinear, type, inputs, inputs[2] ? 3 : 2);
  if (axis >= 0) node_set_int(value->producer, "axis", axis);
  if (block) node_set_int(value->producer, "block_size", block);
  rewrite_hand_over(pair->rewriter, value->producer, pair->weigh);
  return value;
}

/* ---- Gemm with the weights transposed ---- */

static bool can_transpose(const Pair *pair) {
  const Node *product = pair->product, *weigh = pair->weigh;
  const Value *left = node_input(product, 0), *weight = node_input(weigh, 0);
  bool bytes = dtype_bits(weight->type.dtype) == 8 && !node_int_or(weigh, "block_size", 0);
  bool plain = !node_attribute(product, "alpha") && !node_attribute(product, "beta");
  return bytes && plain && left->type.rank == 2 && value_has_one_use(weight) && value_has_one_use(weigh->outputs[0]) &&
         schema_runs(OP_Gemm, NULL, pair->rewriter->model->opset, left->type.dtype);
}

static void transpose_weights(const Pair *pair) {
  Node *product = pair->product, *weigh = pair->weigh;
  Value *weight = node_input(weigh, 0), *bias = node_input(product, 2);
  const Dim dims[] = {weight->type.dims[1], weight->type.dims[0]};
  const int64_t order[] = {1, 0};
  Type type = type_make(pair->rewriter->context, weight->type.dtype, dims, 2);
  Value *moved = emit(pair, weigh, OP_Transpose, type, &weight, 1);
  node_set_ints(moved->producer, "perm", order, 2);
  Value *const inputs[] = {moved, node_input(weigh, 1), node_input(weigh, 2)};
  Value *factors[] = {node_input(product, 0), dequantized(pair, inputs, axis_of(weigh) < 0 ? -1 : 0, 0), bias};
  Value *result = emit(pair, product, OP_Gemm, product->outputs[0]->type, factors, bias ? 3 : 2);
  node_set_int(result->producer, "transB", 1);
  rewrite_replace(pair->rewriter, product, result);
}

/* ---- weights of three axes ---- */

/* Scales, or zero points, for blocks of weights that have one more axis. */
static Value *with_axis(const Pair *pair, Value *scales) {
  if (!scales) return NULL;
  const Dim *dims = scales->type.dims;
  bool is_row = scales->type.rank == 1;
  int64_t sizes[] = {1, is_row ? 1 : dims[0].constant, dims[is_row ? 0 : 1].constant};
  return reshaped(pair, scales, sizes, 3);
}

static void add_axis(const Pair *pair) {
  Node *product = pair->product, *weigh = pair->weigh;
  Value *weight = node_input(weigh, 0), *scale = node_input(weigh, 1), *zero = node_input(weigh, 2);
  int64_t sizes[] = {1, weight->type.dims[0].constant, weight->type.dims[1].constant};
  int64_t axis = axis_of(weigh), block = node_int_or(weigh, "block_size", 0);
  bool by_column = axis == 1 && !block && pair->rewriter->model->opset >= WITH_BLOCKS;
  bool blocks = block || by_column;
  Value *const inputs[] = {reshaped(pair, weight, sizes, 3), blocks ? with_axis(pair, scale) : scale,
                           blocks ? with_axis(pair, zero) : zero};
  int64_t moved = axis < 0 ? -1 : by_column ? 1 : axis + 1;
  Value *value = dequantized(pair, inputs, moved, by_column ? sizes[1] : block);
  bool takes_axes = node_is(product, OP_MatMul) && node_input(product, 0)->type.rank > 2;
  use_set(&product->inputs[1], takes_axes ? value : reshaped(pair, value, sizes + 1, 2));
  pair->rewriter->changed = true;
}

static void visit(Rewriter *rewriter, Node *product) {
  Pair pair = {rewriter, product, rounding_factor(product)};
  if (!pair.weigh) return;
  if (can_transpose(&pair)) transpose_weights(&pair);
  else add_axis(&pair);
}

bool keep_products_exact(Model *model) {
  if (model->rounds_products || !target_has(model->target, QUIRK_PRODUCT_ROUNDS_ITS_LEFT_FACTOR)) return false;
  Rewriter rewriter;
  rewrite_begin(&rewriter, model, __func__);
  rewrite_each_node(&rewriter, visit);
  return rewrite_end(&rewriter);
}
