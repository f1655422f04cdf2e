/* Products of matrices: MatMul with a bias is Gemm, and the transpose of a product is the product of the transposes,
 * which of constants cost nothing. A bias after a product over three axes stays an Add: measured with ONNX Runtime,
 * Gemm between two Reshapes takes as long. */
#include "passes/pattern.h"

enum { LEFT, RIGHT, PRODUCT, BIAS, SPLIT };

static bool swaps_two_axes(const Node *node) {
  const Attribute *order = node_attribute(node, "perm");
  return node->outputs[0]->type.rank == 2 && (!order || (order->count == 2 && order->integers[0] == 1));
}

static bool is_matrix(const Value *value) { return value->type.dtype != DTYPE_NONE && value->type.rank == 2; }

/* What the value is the transpose of; NULL: of nothing. A Transpose that others read too stays for them. */
static Value *untransposed(Match *match, Value *value) {
  Node *node = value->producer;
  if (!node || node->graph != match->root->graph || !node_is(node, "Transpose") || !swaps_two_axes(node)) return NULL;
  if (match->node_count == MATCH_NODES) return NULL;
  bool known = false;
  for (size_t i = 0; i < match->node_count; i++) known = known || match->nodes[i] == node;
  if (!known) match->nodes[match->node_count++] = node;
  return node_input(node, 0);
}

/* A bias is one row for all rows: anything else is a sum of two matrices. */
static bool is_bias(Type bias, Type product) {
  uint32_t rank = bias.rank;
  if (rank == 0 || rank > 2 || !dim_equal(bias.dims[rank - 1], product.dims[1])) return false;
  return rank == 1 || dim_is(bias.dims[0], 1);
}

static bool fuse_gemm(Match *match) {
  Value *left = match->values[LEFT], *right = match->values[RIGHT], *bias = match->values[BIAS];
  Type type = match_type(match);
  if (!is_matrix(left) || !is_matrix(right) || type.rank != 2 || !is_bias(bias->type, type)) return false;
  if (!type_equal(type, match->values[PRODUCT]->type)) return false;
  Value *left_source = untransposed(match, left), *right_source = untransposed(match, right);
  Node *gemm = EMIT_MATCH(match, "Gemm", left_source ? left_source : left, right_source ? right_source : right, bias);
  if (left_source) node_set_int(gemm, "transA", 1);
  if (right_source) node_set_int(gemm, "transB", 1);
  return true;
}

/* A Transpose of a constant, for constant folding. */
static Value *transposed(Match *match, Value *value) {
  const int64_t order[] = {1, 0};
  const Dim dims[] = {value->type.dims[1], value->type.dims[0]};
  Type type = type_make(match->rewriter->context, value->type.dtype, dims, 2);
  const Origin *origin = match->root->origin;
  if (origin) {
    origin = origin_with_emitter(match->rewriter->model->provenance, origin, REWRITE_EMITTER(match->rewriter));
  }
  Node *node = graph_node(match->root->graph, origin, "Transpose", "", &value, 1, &type, 1, match->root);
  node_set_ints(node, "perm", order, 2);
  return node->outputs[0];
}

/* (A Bᵀ)ᵀ = B Aᵀ, where one is a transpose already and the other a constant, or both are transposes. */
static bool fuse_transposed_product(Match *match) {
  Value *left = match->values[LEFT], *right = match->values[RIGHT];
  if (!is_matrix(left) || !is_matrix(right) || !swaps_two_axes(match->root)) return false;
  Value *left_source = untransposed(match, left), *right_source = untransposed(match, right);
  if (!left_source && !right_source) return false;
  if ((!left_source && !constant_of(left)) || (!right_source && !constant_of(right))) return false;
  Value *first = right_source ? right_source : transposed(match, right);
  Value *second = left_source ? left_source : transposed(match, left);
  return EMIT_MATCH(match, "MatMul", first, second);
}

static bool swaps_last_axes(const Node *node) {
  const Attribute *order = node_attribute(node, "perm");
  uint32_t rank = node->outputs[0]->type.rank;
  if (rank < 2 || (order ? order->count != rank : rank != 2)) return false;
  for (uint32_t i = 0; order && i < rank; i++) {
    int64_t swapped = i + 2 < rank ? i : i + 2 == rank ? i + 1 : i - 1;
    if (order->integers[i] != swapped) return false;
  }
  return true;
}

static Value *cast_as(Match *match, const Node *cast, Value *value) {
  Type type = type_with(value->type, cast->outputs[0]->type.dtype);
  const Origin *origin = match->root->origin;
  if (origin) {
    origin = origin_with_emitter(match->rewriter->model->provenance, origin, REWRITE_EMITTER(match->rewriter));
  }
  Node *node = graph_node(match->root->graph, origin, "Cast", "", &value, 1, &type, 1, match->root);
  node_set_int(node, "to", node_int_or(cast, "to", 0));
  return node->outputs[0];
}

/* Aᵀ v = v A, which spares the Transpose. ONNX Runtime, which would make it a part of the product, also through a Cast,
 * is wrong about a vector on the right. */
static bool fuse_transposed_times_vector(Match *match) {
  Value *left = match->values[LEFT], *vector = match->values[RIGHT];
  if (left->type.dtype == DTYPE_NONE || vector->type.dtype == DTYPE_NONE || vector->type.rank != 1) return false;
  Node *cast = left->producer && node_is(left->producer, "Cast") ? left->producer : NULL;
  Node *transpose = cast ? node_input(cast, 0)->producer : left->producer;
  if (!transpose || !node_is(transpose, "Transpose") || !swaps_last_axes(transpose)) return false;
  Value *matrix = node_input(transpose, 0);
  if (matrix->type.dtype == DTYPE_NONE || match->node_count + 2 > MATCH_NODES) return false;
  if (transpose->graph != match->root->graph || (cast && cast->graph != match->root->graph)) return false;
  if (cast) match->nodes[match->node_count++] = cast;
  match->nodes[match->node_count++] = transpose;
  return EMIT_MATCH(match, "MatMul", vector, cast ? cast_as(match, cast, matrix) : matrix);
}

/* The first axis to the place before the last, the others in order. */
static bool moves_first_axis(const Node *node) {
  const Attribute *order = node_attribute(node, "perm");
  uint32_t rank = node->outputs[0]->type.rank;
  if (!order || order->count != rank || rank < 3 || rank > MAX_RANK) return false;
  for (uint32_t i = 0; i < rank; i++) {
    int64_t moved = i + 2 < rank ? i + 1 : i + 2 == rank ? 0 : i;
    if (order->integers[i] != moved) return false;
  }
  return true;
}

/* Leading axes may as well be transposed after a product with a matrix. In half precision they must be: ONNX Runtime
 * would make the Transpose a part of the product, and crashes. */
static bool fuse_moved_leading_axis(Match *match) {
  Value *left = match->values[LEFT], *right = match->values[RIGHT];
  Node *transpose = left->producer;
  if (left->type.dtype != DTYPE_FLOAT16 || !is_matrix(right) || !transpose) return false;
  if (!node_is(transpose, "Transpose") || transpose->graph != match->root->graph || !moves_first_axis(transpose))
    return false;
  Value *inputs[] = {node_input(transpose, 0), right};
  Type type = inputs[0]->type;
  if (type.dtype != DTYPE_FLOAT16 || match->node_count == MATCH_NODES) return false;
  Dim dims[MAX_RANK];
  memcpy(dims, type.dims, type.rank * sizeof *dims);
  dims[type.rank - 1] = right->type.dims[1];
  type = type_make(match->rewriter->context, type.dtype, dims, type.rank);
  const Origin *origin = match->root->origin;
  if (origin)
    origin = origin_with_emitter(match->rewriter->model->provenance, origin, REWRITE_EMITTER(match->rewriter));
  Node *product = graph_node(match->root->graph, origin, "MatMul", "", inputs, 2, &type, 1, match->root);
  const Attribute *order = node_attribute(transpose, "perm");
  match->nodes[match->node_count++] = transpose;
  Node *moved = EMIT_MATCH(match, "Transpose", product->outputs[0]);
  node_set_ints(moved, "perm", order->integers, order->count);
  return true;
}

/* A bias over axes that a Reshape split off the last one: it is added before them, where it is one row again. */
static bool fuse_bias_before_reshape(Match *match) {
  Value *product = match->values[PRODUCT], *split = match->values[SPLIT];
  const Tensor *bias = constant_of(match->values[BIAS]);
  Type from = product->type, to = split->type;
  int64_t count;
  if (!product->producer || !node_is(product->producer, "MatMul")) return false;
  if (!type_equal(to, match_type(match)) || from.rank < 2 || to.rank <= from.rank ||
      bias->rank != to.rank - from.rank + 1)
    return false;
  Dim last = from.dims[from.rank - 1];
  if (bias->dtype != from.dtype || !type_count(match->values[BIAS]->type, &count) || !dim_is(last, count)) return false;
  for (uint32_t i = 0; i < to.rank; i++) {
    bool leading = i + 1 < from.rank;
    if (leading ? !dim_equal(from.dims[i], to.dims[i]) : !dim_is(to.dims[i], bias->dims[i + 1 - from.rank]))
      return false;
  }
  Context *context = match->rewriter->context;
  Tensor *row = arena_copy(&context->arena, bias, sizeof *bias);
  row->rank = 1;
  row->dims = arena_copy(&context->arena, &count, sizeof count);
  Value *inputs[] = {product, rewrite_constant(match->rewriter, match->root, row, match->values[BIAS]->origin)};
  const Origin *origin = match->root->origin;
  if (origin)
    origin = origin_with_emitter(match->rewriter->model->provenance, origin, REWRITE_EMITTER(match->rewriter));
  Node *sum = graph_node(match->root->graph, origin, "Add", "", inputs, 2, &from, 1, match->root);
  return EMIT_MATCH(match, "Reshape", sum->outputs[0], node_input(split->producer, 1));
}

static const FusionRule rules[] = {
    {OP("Add", OP_AT(SPLIT, "Reshape", ANY(PRODUCT)), CONSTANT(BIAS)), NULL, fuse_bias_before_reshape},
    {OP("Add", OP_AT(PRODUCT, "MatMul", ANY(LEFT), ANY(RIGHT)), ANY(BIAS)), "Gemm", fuse_gemm},
    {OP("Transpose", OP("MatMul", ANY(LEFT), ANY(RIGHT))), "MatMul", fuse_transposed_product},
    {OP("MatMul", ANY(LEFT), ANY(RIGHT)), "MatMul", fuse_transposed_times_vector},
    {OP("MatMul", ANY(LEFT), ANY(RIGHT)), "Transpose", fuse_moved_leading_axis},
};

bool fuse_matmul(Model *model) { return fuse_patterns(model, __func__, rules, sizeof rules / sizeof *rules); }
