/* The verifier: shapes that agree, one rule an operator, for those whose rule is simple.
 *
 * A rule works out what it can of an output's shape and holds it against the shape that the value has. A size that is
 * symbolic or not known agrees with every size.
 */
#include "onnx/graph/verify_shapes.h"
#include "base/bytes.h"
#include "onnx/facts/schema.h"
#include "types/numbers.h"

/* ---- sizes ---- */

/* The type, when it says how many axes there are. */
const Type *ranked(const Value *value) {
  if (!value || value->type.dtype == DTYPE_NONE || type_is_unranked(value->type)) return NULL;
  return value->type.rank <= MAX_RANK ? &value->type : NULL;
}

const Type *ranked_input(const Node *node, size_t index) { return ranked(node_input(node, index)); }
const Type *ranked_output(const Node *node, size_t index) {
  return index < node->output_count ? ranked(node->outputs[index]) : NULL;
}

Shape shape_of(const Type *type) {
  Shape shape = {.rank = type->rank};
  for (uint32_t i = 0; i < type->rank; i++) shape.dims[i] = type->dims[i];
  return shape;
}

Shape any_shape(uint32_t rank) {
  Shape shape = {.rank = rank};
  for (uint32_t i = 0; i < rank; i++) shape.dims[i] = ANY_SIZE;
  return shape;
}

const char *shape_text(Context *context, const Dim *dims, uint32_t rank) {
  Builder out;
  builder_init(&out, context);
  builder_add(&out, "[");
  for (uint32_t i = 0; i < rank; i++) {
    bool is_known = !dim_is_constant(dims[i]) || is_size(dims[i]);
    builder_format(&out, "%s%s", i ? "," : "", is_known ? dim_text(context, dims[i]) : "?");
  }
  builder_add(&out, "]");
  return builder_text(&out);
}

const char *shape_of_type(Verification *verification, const Type *type) {
  return shape_text(verification->model->context, type->dims, type->rank);
}

bool shape_agrees(const Type *type, const Shape *shape) {
  if (type->rank != shape->rank) return false;
  for (uint32_t i = 0; i < type->rank; i++) {
    if (sizes_clash(type->dims[i], shape->dims[i])) return false;
  }
  return true;
}

void expect_shape(Verification *verification, const Node *node, size_t index, const Shape *shape) {
  const Type *type = ranked_output(node, index);
  if (!type || shape_agrees(type, shape)) return;
  FOUND(verification, node, "output %zu has shape %s but must have %s", index, shape_of_type(verification, type),
        shape_text(verification->model->context, shape->dims, shape->rank));
}

void expect_rank(Verification *verification, const Node *node, size_t index, uint32_t rank) {
  const Type *type = ranked_output(node, index);
  if (!type || type->rank == rank) return;
  FOUND(verification, node, "output %zu has rank %u but must have rank %u", index, type->rank, rank);
}

void expect_like_input(Verification *verification, const Node *node, size_t index, size_t input) {
  const Type *type = ranked_input(node, input);
  if (!type) return;
  Shape shape = shape_of(type);
  expect_shape(verification, node, index, &shape);
}

/* True when the rank is known and another one. */
bool has_other_rank(Verification *verification, const Node *node, size_t input, uint32_t rank) {
  const Type *type = ranked_input(node, input);
  if (!type || type->rank == rank) return false;
  FOUND(verification, node, "input %zu has rank %u but must have rank %u", input, type->rank, rank);
  return true;
}

bool count_elements(const Dim *dims, uint32_t rank, int64_t *count) {
  *count = 1;
  for (uint32_t i = 0; i < rank; i++) {
    if (!is_size(dims[i]) || __builtin_mul_overflow(*count, dims[i].constant, count)) return false;
  }
  return true;
}

/* ---- constants and axes ---- */

static bool tensor_ints(const Tensor *tensor, Ints *ints) {
  size_t count = tensor->rank ? (size_t)tensor->dims[0] : 1;
  bool is_list = tensor->rank <= 1 && count <= sizeof ints->items / sizeof *ints->items;
  if (!is_list || (tensor->dtype != DTYPE_INT64 && tensor->dtype != DTYPE_INT32)) return false;
  size_t width = dtype_bytes(tensor->dtype, 1);
  if (tensor->size != count * width || (count && !tensor->data)) return false;
  ints->count = count;
  for (size_t i = 0; i < count; i++) {
    ints->items[i] = number_decode_int(tensor->dtype, (const char *)tensor->data + i * width);
  }
  return true;
}

bool known_ints(const Value *value, Ints *ints) {
  if (!value) return false;
  if (value->tensor) return tensor_ints(value->tensor, ints);
  if (!value->producer || !node_is(value->producer, OP_Constant)) return false;
  const Attribute *attribute = node_attribute(value->producer, "value");
  return attribute && attribute->kind == ATTRIBUTE_TENSOR && attribute->tensor && tensor_ints(attribute->tensor, ints);
}

bool attribute_ints(const Node *node, const char *name, Ints *ints) {
  const Attribute *attribute = node_attribute(node, name);
  if (!attribute || attribute->kind != ATTRIBUTE_INTS || attribute->reference) return false;
  if (attribute->count > sizeof ints->items / sizeof *ints->items) return false;
  ints->count = attribute->count;
  for (size_t i = 0; i < ints->count; i++) ints->items[i] = attribute->integers[i];
  return true;
}

/* Counted from the front; false, and a fault, when there is no such axis. */
bool verify_axis(Verification *verification, const Node *node, int64_t axis, uint32_t rank, uint32_t *result) {
  int64_t from_front = axis < 0 ? axis + rank : axis;
  if (from_front < 0 || from_front >= rank) {
    FOUND(verification, node, "axis %lld is out of range for rank %u", (long long)axis, rank);
    return false;
  }
  *result = (uint32_t)from_front;
  return true;
}

bool is_reference(const Node *node, const char *name) {
  const Attribute *attribute = node_attribute(node, name);
  return attribute && attribute->reference;
}

/* The axis that an attribute names, of the first input. */
bool axis_attribute(Verification *verification, const Node *node, int64_t otherwise, uint32_t rank, uint32_t *axis) {
  if (is_reference(node, "axis")) return false;
  return verify_axis(verification, node, node_int_or(node, "axis", otherwise), rank, axis);
}

/* A bit for each axis; false when one is not there or named twice. */
bool verify_axes(Verification *verification, const Node *node, const Ints *axes, uint32_t rank, uint64_t *mask) {
  *mask = 0;
  for (size_t i = 0; i < axes->count; i++) {
    uint32_t axis;
    if (!verify_axis(verification, node, axes->items[i], rank, &axis)) return false;
    if (*mask >> axis & 1) {
      FOUND(verification, node, "axis %u is listed twice", axis);
      return false;
    }
    *mask |= (uint64_t)1 << axis;
  }
  return true;
}

/* ---- elementwise ---- */

/* The shape grows by what broadcasts against it; false when something does not. */
bool shape_broadcast(Shape *shape, const Dim *dims, uint32_t rank) {
  while (shape->rank < rank) {
    move_bytes(shape->dims + 1, shape->dims, shape->rank++ * sizeof *shape->dims);
    shape->dims[0] = dim_of(1);
  }
  for (uint32_t i = 0; i < rank; i++) {
    Dim *mine = &shape->dims[shape->rank - rank + i], other = dims[i];
    if (dim_is(other, 1)) continue;
    if (dim_is(*mine, 1)) *mine = other;
    else if (sizes_clash(*mine, other)) return false;
    else if (!is_size(*mine) && is_size(other)) *mine = other;
    else if (!is_size(*mine) && !dim_equal(*mine, other)) *mine = ANY_SIZE;
  }
  return true;
}

static void rule_broadcast(Verification *verification, const Node *node) {
  Shape shape = {0};
  for (uint32_t i = 0; i < node->input_count; i++) {
    const Type *type = ranked_input(node, i);
    if (!type) return;
    if (!shape_broadcast(&shape, type->dims, type->rank)) {
      FOUND(verification, node, "input %u of shape %s does not broadcast with the inputs before it", i,
            shape_of_type(verification, type));
      return;
    }
  }
  expect_shape(verification, node, 0, &shape);
}

void rule_like_first(Verification *verification, const Node *node) { expect_like_input(verification, node, 0, 0); }

static void rule_all_like_first(Verification *verification, const Node *node) {
  for (uint32_t i = 0; i < node->output_count; i++) expect_like_input(verification, node, i, 0);
}

static void expect_dtype(Verification *verification, const Node *node, DType dtype, const char *what) {
  const Value *value = node->outputs[0];
  if (dtype == DTYPE_NONE || !value || value->type.dtype == DTYPE_NONE || value->type.dtype == dtype) return;
  FOUND(verification, node, "output 0 is %s but %s says %s", dtype_name(value->type.dtype), what, dtype_name(dtype));
}

static void rule_cast(Verification *verification, const Node *node) {
  expect_dtype(verification, node, dtype_from_onnx((int)node_int_or(node, "to", 0)), "the attribute to");
  rule_like_first(verification, node);
}

static void rule_cast_like(Verification *verification, const Node *node) {
  expect_dtype(verification, node, node_input(node, 1)->type.dtype, "input 1");
  rule_like_first(verification, node);
}

/* The axis is there, and the shape stays. */
static void rule_along_axis(Verification *verification, const Node *node) {
  const Type *type = ranked_input(node, 0);
  uint32_t axis;
  if (!type || (type->rank && !axis_attribute(verification, node, -1, type->rank, &axis))) return;
  rule_all_like_first(verification, node);
}

/* ---- reductions ---- */

static void expect_reduced(Verification *verification, const Node *node, const Type *type, uint64_t mask) {
  bool keeps = node_int_or(node, "keepdims", 1) != 0;
  if (is_reference(node, "keepdims")) return;
  Shape shape = {0};
  for (uint32_t i = 0; i < type->rank; i++) {
    if (!(mask >> i & 1)) shape.dims[shape.rank++] = type->dims[i];
    else if (keeps) shape.dims[shape.rank++] = dim_of(1);
  }
  expect_shape(verification, node, 0, &shape);
}

static void rule_reduce(Verification *verification, const Node *node) {
  const Type *type = ranked_input(node, 0);
  Ints axes = {0};
  if (!type || is_reference(node, "axes")) return;
  bool is_input = node_input(node, 1) != NULL;
  if (is_input ? !known_ints(node_input(node, 1), &axes) : false) return;
  if (!is_input) attribute_ints(node, "axes", &axes);
  uint64_t mask;
  if (!verify_axes(verification, node, &axes, type->rank, &mask)) return;
  bool all = !axes.count && node_int_or(node, "noop_with_empty_axes", 0) == 0;
  expect_reduced(verification, node, type, all ? UINT64_MAX : mask);
}

static void rule_arg_reduce(Verification *verification, const Node *node) {
  const Type *type = ranked_input(node, 0);
  uint32_t axis;
  if (!type || !axis_attribute(verification, node, 0, type->rank, &axis)) return;
  expect_reduced(verification, node, type, (uint64_t)1 << axis);
}

static void rule_top_k(Verification *verification, const Node *node) {
  const Type *type = ranked_input(node, 0);
  uint32_t axis;
  Ints count;
  if (!type || !axis_attribute(verification, node, -1, type->rank, &axis)) return;
  Shape shape = shape_of(type);
  bool is_constant = known_ints(node_input(node, 1), &count) && count.count == 1;
  if (is_constant && is_size(type->dims[axis]) && count.items[0] > type->dims[axis].constant) {
    FOUND(verification, node, "requests %lld of %lld elements", (long long)count.items[0],
          (long long)type->dims[axis].constant);
    return;
  }
  shape.dims[axis] = is_constant ? dim_of(count.items[0]) : ANY_SIZE;
  for (uint32_t i = 0; i < node->output_count; i++) expect_shape(verification, node, i, &shape);
}

/* ---- sizes as numbers ---- */

static int64_t clamped(int64_t value, int64_t least, int64_t most) {
  return value < least ? least : value > most ? most : value;
}

static void rule_shape(Verification *verification, const Node *node) {
  const Type *type = ranked_input(node, 0);
  if (!type || is_reference(node, "start") || is_reference(node, "end")) return;
  int64_t rank = type->rank, start = node_int_or(node, "start", 0), end = node_int_or(node, "end", rank);
  start = clamped(start < 0 ? start + rank : start, 0, rank);
  end = clamped(end < 0 ? end + rank : end, 0, rank);
  Shape shape = {1, {dim_of(end > start ? end - start : 0)}};
  expect_shape(verification, node, 0, &shape);
}

static void rule_constant(Verification *verification, const Node *node) {
  const Attribute *value = node_attribute(node, "value");
  if (!value || value->kind != ATTRIBUTE_TENSOR || !value->tensor || value->tensor->rank > MAX_RANK) return;
  expect_dtype(verification, node, value->tensor->dtype, "the attribute value");
  Shape shape = {.rank = value->tensor->rank};
  for (uint32_t i = 0; i < shape.rank; i++) shape.dims[i] = dim_of(value->tensor->dims[i]);
  expect_shape(verification, node, 0, &shape);
}

static void rule_constant_of_shape(Verification *verification, const Node *node) {
  const Attribute *value = node_attribute(node, "value");
  bool is_given = value && value->kind == ATTRIBUTE_TENSOR && value->tensor;
  if (!value || is_given) {
    expect_dtype(verification, node, is_given ? value->tensor->dtype : DTYPE_FLOAT32, "the attribute value");
  }
  Ints ints;
  const Type *list = ranked_input(node, 0);
  if (has_other_rank(verification, node, 0, 1)) return;
  if (list && is_size(list->dims[0]) && list->dims[0].constant <= MAX_RANK) {
    expect_rank(verification, node, 0, (uint32_t)list->dims[0].constant);
  }
  if (!known_ints(node_input(node, 0), &ints) || ints.count > MAX_RANK) return;
  Shape shape = {.rank = (uint32_t)ints.count};
  for (uint32_t i = 0; i < shape.rank; i++) shape.dims[i] = dim_of(ints.items[i]);
  expect_shape(verification, node, 0, &shape);
}

static void rule_range(Verification *verification, const Node *node) { expect_rank(verification, node, 0, 1); }

static void rule_one_hot(Verification *verification, const Node *node) {
  const Type *indices = ranked_input(node, 0);
  if (indices) expect_rank(verification, node, 0, indices->rank + 1);
}

static void rule_matrix(Verification *verification, const Node *node) {
  const Type *type = ranked_input(node, 0);
  if (type && type->rank < 2) FOUND(verification, node, "input 0 has rank %u but must have rank 2 or more", type->rank);
  else rule_like_first(verification, node);
}

static void rule_same_rank(Verification *verification, const Node *node) {
  const Type *type = ranked_input(node, 0);
  if (type) expect_rank(verification, node, 0, type->rank);
}

/* ---- the table ---- */

static Rule *const rules[OP_COUNT] = {
    [OP_ArgMax] = rule_arg_reduce,
    [OP_ArgMin] = rule_arg_reduce,
    [OP_BatchNormalization] = rule_by_channel,
    [OP_Cast] = rule_cast,
    [OP_CastLike] = rule_cast_like,
    [OP_Concat] = rule_concat,
    [OP_Constant] = rule_constant,
    [OP_ConstantOfShape] = rule_constant_of_shape,
    [OP_Conv] = rule_conv,
    [OP_ConvTranspose] = rule_conv_transpose,
    [OP_CumProd] = rule_like_first,
    [OP_CumSum] = rule_like_first,
    [OP_Expand] = rule_expand,
    [OP_Flatten] = rule_flatten,
    [OP_GRU] = rule_recurrent,
    [OP_Gather] = rule_gather,
    [OP_GatherElements] = rule_gather_elements,
    [OP_GatherND] = rule_gather_nd,
    [OP_Gemm] = rule_gemm,
    [OP_GroupNormalization] = rule_like_first,
    [OP_Hardmax] = rule_along_axis,
    [OP_If] = rule_if,
    [OP_InstanceNormalization] = rule_by_channel,
    [OP_LSTM] = rule_recurrent,
    [OP_LayerNormalization] = rule_like_first,
    [OP_LogSoftmax] = rule_along_axis,
    [OP_Loop] = rule_loop,
    [OP_LpNormalization] = rule_along_axis,
    [OP_MatMul] = rule_matmul,
    [OP_OneHot] = rule_one_hot,
    [OP_Pad] = rule_pad,
    [OP_RMSNormalization] = rule_like_first,
    [OP_RNN] = rule_recurrent,
    [OP_Range] = rule_range,
    [OP_Reshape] = rule_reshape,
    [OP_Resize] = rule_same_rank,
    [OP_RotaryEmbedding] = rule_like_first,
    [OP_Scan] = rule_scan,
    [OP_ScatterElements] = rule_scatter_elements,
    [OP_ScatterND] = rule_scatter_nd,
    [OP_Shape] = rule_shape,
    [OP_Slice] = rule_slice,
    [OP_Softmax] = rule_along_axis,
    [OP_Split] = rule_split,
    [OP_Squeeze] = rule_squeeze,
    [OP_Tile] = rule_tile,
    [OP_TopK] = rule_top_k,
    [OP_Transpose] = rule_transpose,
    [OP_Trilu] = rule_matrix,
    [OP_Unsqueeze] = rule_unsqueeze,
};

/* Those that their traits describe need no row. */
static Rule *rule_of(Op op) {
  if (rules[op]) return rules[op];
  if (op_has(op, ELEMENTWISE | BROADCASTS)) return rule_broadcast;
  if (op_has(op, ELEMENTWISE)) return rule_like_first;
  if (op_has(op, REDUCES)) return rule_reduce;
  return op_has(op, POOLS) ? rule_pool : NULL;
}

void verify_shapes(Verification *verification, const Node *node) {
  Rule *rule = rule_of(node->op);
  if (rule) rule(verification, node);
}
