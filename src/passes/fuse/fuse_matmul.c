/* Products of matrices: MatMul with a bias is Gemm, and the transpose of a product is the product of the transposes,
 * which of constants cost nothing. A bias after a product over three axes stays an Add: measured with ONNX Runtime,
 * Gemm between two Reshapes takes as long. */
#include "base/bytes.h"
#include "onnx/facts/schema.h"
#include "passes/pattern.h"
#include "target/target.h"

enum { LEFT, RIGHT, PRODUCT, BIAS, SPLIT, TURNED, OTHER };

static bool is_matrix(const Value *value) { return value->type.dtype != DTYPE_NONE && value->type.rank == 2; }

/* What the value is the transpose of; NULL: of nothing. A Transpose that others read too stays for them. */
static Value *untransposed(Match *match, Value *value) {
  Node *node = value->producer;
  if (!node || node->graph != match->root->graph || !node_is(node, OP_Transpose)) return NULL;
  if (!is_matrix(value) || !node_swaps_last_axes(node)) return NULL;
  if (match->node_count == MATCH_NODES) return NULL;
  if (!match_has(match, node)) match->nodes[match->node_count++] = node;
  return node_input(node, 0);
}

/* A bias is one row for all rows: anything else is a sum of two matrices. */
static bool is_bias(Type bias, Type product) {
  uint32_t rank = bias.rank;
  if (rank == 0 || rank > 2 || !dim_equal(bias.dims[rank - 1], product.dims[1])) return false;
  return rank == 1 || dim_is(bias.dims[0], 1);
}

/* The result of attention, to which a bias is added: Attention is read back from a MatMul. */
static bool may_be_weighed(const Match *match) {
  enum { LOOKED_AT = 4 };
  if (unread_constant_of(match->values[LEFT]) || unread_constant_of(match->values[RIGHT])) return false;
  if (!schema_version(OP_Attention, match_opset(match))) return false;
  for (int side = LEFT; side <= RIGHT; side++) {
    const Node *node = match->values[side]->producer;
    for (int i = 0; i < LOOKED_AT && node && (node_moves_all(node) || node_is(node, OP_Cast)); i++)
      node = node_input(node, 0)->producer;
    if (node && (node_is(node, OP_Softmax) || node_is(node, OP_Exp))) return true;
  }
  return false;
}

static bool fuse_gemm(Match *match) {
  Value *left = match->values[LEFT], *right = match->values[RIGHT], *bias = match->values[BIAS];
  Type type = match_type(match);
  if (may_be_weighed(match)) return false;
  if (!is_matrix(left) || !is_matrix(right) || type.rank != 2 || !is_bias(bias->type, type)) return false;
  if (!type_equal(type, match->values[PRODUCT]->type)) return false;
  bool single = type.dtype == DTYPE_FLOAT32;
  if (!single && target_has(match->rewriter->model->target, QUIRK_GEMM_TAKES_FLOAT32_ALONE)) return false;
  Value *left_source = untransposed(match, left), *right_source = untransposed(match, right);
  Node *gemm = EMIT_MATCH(match, OP_Gemm, left_source ? left_source : left, right_source ? right_source : right, bias);
  if (left_source) node_set_int(gemm, "transA", 1);
  if (right_source) node_set_int(gemm, "transB", 1);
  return true;
}

/* A bias that is added after something else, as a residual, is added to the product first, for Gemm. */
static bool fuse_bias_before_sum(Match *match) {
  Value *product = match->values[PRODUCT], *other = match->values[OTHER], *bias = match->values[BIAS];
  Type type = match_type(match);
  if (!is_matrix(match->values[LEFT]) || !is_matrix(match->values[RIGHT]) || unread_constant_of(other)) return false;
  if (!dtype_is_float(type.dtype) || !type_equal(type, product->type) || !type_equal(type, other->type)) return false;
  if (type.rank != 2 || !is_bias(bias->type, type)) return false;
  Value *sum = EMIT_BEFORE(match, OP_Add, type, product, bias)->outputs[0];
  EMIT_MATCH(match, OP_Add, other, sum);
  return true;
}

/* A Transpose of a constant, for constant folding. */
static Value *transposed(Match *match, Value *value) {
  const int64_t order[] = {1, 0};
  const Dim dims[] = {value->type.dims[1], value->type.dims[0]};
  Type type = type_make(match->rewriter->context, value->type.dtype, dims, 2);
  Node *node = EMIT_BEFORE(match, OP_Transpose, type, value);
  node_set_ints(node, "perm", order, 2);
  return node->outputs[0];
}

/* (A Bᵀ)ᵀ = B Aᵀ, where one is a transpose already and the other a constant, or both are transposes. */
static bool fuse_transposed_product(Match *match) {
  Value *left = match->values[LEFT], *right = match->values[RIGHT];
  if (!is_matrix(left) || !is_matrix(right) || !node_swaps_last_axes(match->root)) return false;
  Value *left_source = untransposed(match, left), *right_source = untransposed(match, right);
  if (!left_source && !right_source) return false;
  if ((!left_source && !unread_constant_of(left)) || (!right_source && !unread_constant_of(right))) return false;
  Value *first = right_source ? right_source : transposed(match, right);
  Value *second = left_source ? left_source : transposed(match, left);
  return EMIT_MATCH(match, OP_MatMul, first, second);
}

/* Aᵀ v = v A, which spares the Transpose; where others read that as well, it spares only a target its fault. */
static bool fuse_transposed_times_vector(Match *match) {
  Value *left = match->values[LEFT], *vector = match->values[RIGHT];
  if (left->type.dtype == DTYPE_NONE || vector->type.dtype == DTYPE_NONE || vector->type.rank != 1) return false;
  Node *cast = left->producer && node_is(left->producer, OP_Cast) ? left->producer : NULL;
  Node *transpose = cast ? node_input(cast, 0)->producer : left->producer;
  if (!transpose || !node_is(transpose, OP_Transpose) || !node_swaps_last_axes(transpose)) return false;
  bool shared = transpose->outputs[0]->uses->next || (cast && cast->outputs[0]->uses->next);
  if (shared && !target_has(match->rewriter->model->target, QUIRK_MATMUL_MERGES_TRANSPOSE)) return false;
  Value *matrix = node_input(transpose, 0);
  if (matrix->type.dtype == DTYPE_NONE || match->node_count + 2 > MATCH_NODES) return false;
  if (transpose->graph != match->root->graph || (cast && cast->graph != match->root->graph)) return false;
  if (cast) match->nodes[match->node_count++] = cast;
  match->nodes[match->node_count++] = transpose;
  return EMIT_MATCH(match, OP_MatMul, vector, match_in_type(match, matrix, left->type.dtype));
}

/* The operand with its Cast before its Transpose, in single precision; NULL: it is no such operand. */
static Value *cast_first(Match *match, Value *operand) {
  Node *cast = operand->producer && node_is(operand->producer, OP_Cast) ? operand->producer : NULL;
  Node *transpose = cast ? node_input(cast, 0)->producer : operand->producer;
  if (!transpose || !node_is(transpose, OP_Transpose) || !node_moves_first_axis(transpose)) return NULL;
  if (transpose->graph != match->root->graph || (cast && cast->graph != match->root->graph)) return NULL;
  Value *source = node_input(transpose, 0);
  if (source->type.dtype == DTYPE_FLOAT32 || source->type.dtype == DTYPE_NONE) return NULL;
  if (!cast && source->type.dtype != DTYPE_FLOAT16) return NULL;
  if (match->node_count + 2 > MATCH_NODES) return NULL;
  if (cast) match->nodes[match->node_count++] = cast;
  match->nodes[match->node_count++] = transpose;
  DType dtype = cast ? operand->type.dtype : DTYPE_FLOAT32;
  const Attribute *order = node_attribute(transpose, "perm");
  Value *wide = match_in_type(match, source, dtype);
  Node *moved = EMIT_BEFORE(match, OP_Transpose, type_with(operand->type, dtype), wide);
  node_set_ints(moved, "perm", order->integers, order->count);
  return moved->outputs[0];
}

/* Rows of halves that are put in another order before a product with a matrix are so behind it: no Cast is needed. */
static bool turn_rows_behind(Match *match) {
  Value *left = match->values[LEFT], *right = match->values[RIGHT];
  Node *transpose = left->producer;
  uint32_t rank = left->type.rank;
  if (left->type.dtype != DTYPE_FLOAT16 || !is_matrix(right) || match->node_count == MATCH_NODES) return false;
  if (!transpose || !node_is(transpose, OP_Transpose) || !node_moves_first_axis(transpose)) return false;
  const Attribute *order = node_attribute(transpose, "perm");
  if (transpose->graph != match->root->graph || order->integers[rank - 1] != (int64_t)rank - 1) return false;
  Value *source = node_input(transpose, 0);
  Dim dims[MAX_RANK];
  for (uint32_t i = 0; i < rank; i++) dims[i] = i + 1 < rank ? source->type.dims[i] : right->type.dims[1];
  Type type = type_make(match->rewriter->context, left->type.dtype, dims, rank);
  match->nodes[match->node_count++] = transpose;
  Node *product = EMIT_BEFORE(match, OP_MatMul, type, source, right);
  node_set_ints(EMIT_MATCH(match, OP_Transpose, product->outputs[0]), "perm", order->integers, rank);
  return true;
}

/* Half precision is cast by the runtime itself, so that there the Cast is written out. */
static bool fuse_cast_before_transpose(Match *match) {
  if (!target_has(match->rewriter->model->target, QUIRK_MATMUL_MERGES_TRANSPOSE_THROUGH_CAST)) return false;
  Value *left = match->values[LEFT], *right = match->values[RIGHT];
  if (left->type.dtype == DTYPE_NONE || right->type.dtype == DTYPE_NONE) return false;
  if (turn_rows_behind(match)) return true;
  if (!is_matrix(left) && !is_matrix(right)) return false;
  Value *first = is_matrix(left) ? NULL : cast_first(match, left);
  Value *second = is_matrix(right) ? NULL : cast_first(match, right);
  if (!first && !second) return false;
  DType dtype = (first ? first : second)->type.dtype;
  first = first ? first : match_in_type(match, left, dtype);
  second = second ? second : match_in_type(match, right, dtype);
  if (dtype == match_type(match).dtype) return EMIT_MATCH(match, OP_MatMul, first, second);
  Value *product = EMIT_BEFORE(match, OP_MatMul, type_with(match_type(match), dtype), first, second)->outputs[0];
  match_replace(match, match_in_type(match, product, match_type(match).dtype));
  return true;
}

/* A bias over axes that a Reshape split off the last one of a product, by a Transpose in another order or not. */
typedef struct SplitBias {
  const Tensor *bias;
  int64_t order[MAX_RANK]; /* of the axes that were split, where they are in the result */
  int64_t dims[MAX_RANK];  /* of the bias, in the order of the split axes; 1 before them */
  int64_t steps[MAX_RANK]; /* from one element of it to the next along them */
} SplitBias;

static bool read_order(const Match *match, SplitBias *split, uint32_t rank) {
  const Value *turned = match->values[TURNED];
  const Attribute *order = turned ? node_attribute(turned->producer, "perm") : NULL;
  if (turned && (!order || order->count != rank)) return false;
  for (uint32_t i = 0; i < rank; i++) {
    split->order[i] = order ? order->integers[i] : (int64_t)i;
    if (split->order[i] < 0 || split->order[i] >= (int64_t)rank) return false;
  }
  return true;
}

/* The bias has an element for each of the axes that were split off, and one for the others. */
static bool read_split_bias(const Match *match, Type from, Type to, SplitBias *split) {
  const Tensor *bias = split->bias = constant_of(match->values[BIAS]);
  int64_t step = 1;
  if (bias->dtype != from.dtype || bias->rank > to.rank || !read_order(match, split, to.rank)) return false;
  for (uint32_t i = to.rank; i-- > 0;) { /* from the last axis of the result on, which the bias ends with */
    uint32_t missing = to.rank - bias->rank;
    int64_t axis = split->order[i], size = i < missing ? 1 : bias->dims[i - missing];
    split->dims[axis] = size;
    split->steps[axis] = step;
    step *= size;
  }
  for (uint32_t i = 0; i < to.rank; i++) {
    bool leading = i + 1 < from.rank;
    if (leading ? !dim_equal(from.dims[i], to.dims[i]) || split->dims[i] != 1 : !dim_is(to.dims[i], split->dims[i]))
      return false;
  }
  return dim_is(from.dims[from.rank - 1], step);
}

/* As one row again, in the order of the split axes. */
static Value *as_row(Match *match, const SplitBias *split, uint32_t rank, Dim count) {
  const Tensor *bias = split->bias;
  Type type = type_make(match->rewriter->context, bias->dtype, &count, 1);
  Tensor *row = match_tensor(match, bias->dtype, type);
  size_t width = dtype_bytes(bias->dtype, 1);
  int64_t at[MAX_RANK] = {0}, from = 0;
  for (int64_t i = 0; i < count.constant; i++) {
    copy_bytes((char *)(uintptr_t)row->data + (size_t)i * width, (const char *)bias->data + (size_t)from * width,
               width);
    for (uint32_t axis = rank; axis-- > 0;) {
      from += split->steps[axis];
      if (++at[axis] < split->dims[axis]) break;
      from -= split->steps[axis] * split->dims[axis];
      at[axis] = 0;
    }
  }
  row->name = bias->name;
  row->made_of = bias->made_of;
  return rewrite_constant(match->rewriter, match->root, row, match->values[BIAS]->origin);
}

/* It is added before them, where it is one row again. */
static bool fuse_bias_before_reshape(Match *match) {
  Value *product = match->values[PRODUCT], *parts = match->values[SPLIT], *turned = match->values[TURNED];
  Type from = product->type, to = parts->type;
  SplitBias split = {0};
  if (!product->producer || !node_is(product->producer, OP_MatMul)) return false;
  if (!type_equal((turned ? turned : parts)->type, match_type(match)) || from.rank < 2 || to.rank <= from.rank)
    return false;
  if (to.rank > MAX_RANK || !read_split_bias(match, from, to, &split)) return false;
  Value *row = as_row(match, &split, to.rank, from.dims[from.rank - 1]);
  Value *sum = EMIT_BEFORE(match, OP_Add, from, product, row)->outputs[0], *shape = node_input(parts->producer, 1);
  if (!turned) return EMIT_MATCH(match, OP_Reshape, sum, shape);
  sum = EMIT_BEFORE(match, OP_Reshape, to, sum, shape)->outputs[0];
  node_set_ints(EMIT_MATCH(match, OP_Transpose, sum), "perm", split.order, to.rank);
  return true;
}

#define SPLIT_PRODUCT OP_AT(SPLIT, Reshape, ANY(PRODUCT))

static const FusionRule rules[] = {
    {OP(Add, SPLIT_PRODUCT, CONSTANT(BIAS)), OP_NONE, fuse_bias_before_reshape},
    {OP(Add, OP_AT(TURNED, Transpose, SPLIT_PRODUCT), CONSTANT(BIAS)), OP_NONE, fuse_bias_before_reshape},
    {OP(Add, OP_AT(PRODUCT, MatMul, ANY(LEFT), ANY(RIGHT)), ANY(BIAS)), OP_Gemm, fuse_gemm},
    {OP(Add, OP(Add, OP_AT(PRODUCT, MatMul, ANY(LEFT), ANY(RIGHT)), ANY(OTHER)), CONSTANT(BIAS)), OP_Gemm,
     fuse_bias_before_sum},
    {OP(Transpose, OP(MatMul, ANY(LEFT), ANY(RIGHT))), OP_MatMul, fuse_transposed_product},
    {OP(MatMul, ANY(LEFT), ANY(RIGHT)), OP_MatMul, fuse_transposed_times_vector},
    {OP(MatMul, ANY(LEFT), ANY(RIGHT)), OP_Transpose, fuse_cast_before_transpose},
};

bool fuse_matmul(Model *model) { return fuse_patterns(model, __func__, rules, sizeof rules / sizeof *rules); }
