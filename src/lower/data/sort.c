/* Sorting: TopK orders a key and keeps equal elements in their order; the other operands follow by GatherElements.
 *
 * JAX sorts NaN behind infinity and takes it for the greatest; to ONNX Runtime NaN has no order, so the key has
 * infinity in its place and the greatest finite number in infinity's.
 */
#include <float.h>
#include <math.h>

#include "lower/lower.h"
#include "onnx/facts/schema.h"
#include "types/numbers.h"

/* The element type to compare in, in which every value of dtype has its place. */
static DType key_dtype(Lowering *l, DType dtype) {
  if (dtype == DTYPE_FLOAT16 || dtype == DTYPE_BFLOAT16) return DTYPE_FLOAT32; /* infinity's place must be free */
  DType key = compute_dtype(l, OP_TopK, dtype);
  if (key == DTYPE_NONE) unsupported(l, "ONNX Runtime cannot sort elements of type %s", dtype_name(dtype));
  return key;
}

static Value *sort_key(Lowering *l, Value *value) {
  DType dtype = value->type.dtype, key = key_dtype(l, dtype);
  Value *cast = cast_to(l, value, key);
  if (dtype == DTYPE_UINT64) { /* the upper half of the bits as int64 is negative */
    return EMIT(l, OP_Add, cast->type, cast, constant_integer(l, key, INT64_MIN));
  }
  if (!dtype_is_float(dtype)) return cast;
  Value *nan = EMIT(l, OP_IsNaN, type_with(cast->type, DTYPE_BOOL), cast);
  double most = key == DTYPE_FLOAT64 ? DBL_MAX : (double)FLT_MAX;
  Value *finite = EMIT(l, OP_Min, cast->type, cast, constant_scalar(l, key, most));
  return EMIT(l, OP_Where, cast->type, nan, constant_scalar(l, key, (double)INFINITY), finite);
}

/* The first count of the key's elements along an axis, in order. */
static Node *order(Lowering *l, Value *key, Type type, int64_t axis, bool largest) {
  Type types[] = {type_with(type, key->type.dtype), type_with(type, DTYPE_INT64)};
  Node *node = EMIT_NODE(l, OP_TopK, types, 2, key, dimension_value(l, type.dims[axis]));
  node_set_int(node, "axis", axis);
  if (!largest) node_set_int(node, "largest", 0);
  return node;
}

static Value *pick(Lowering *l, Value *value, Value *places, int64_t axis) {
  DType dtype = compute_dtype(l, OP_GatherElements, value->type.dtype);
  if (dtype == DTYPE_NONE) {
    unsupported(l, "ONNX Runtime cannot reorder elements of type %s", dtype_name(value->type.dtype));
  }
  Type type = type_with(places->type, dtype);
  Value *result = EMIT(l, OP_GatherElements, type, cast_to(l, value, dtype), places);
  node_set_int(result->producer, "axis", axis);
  return narrow_to(l, result, value->type.dtype);
}

/* Are these the numbers 0, 1, 2, … along the axis? Then a value at a place is the place. */
static bool numbers_places(const Value *value, int64_t axis) {
  enum { LOOK_THROUGH = 8 };
  if (!dtype_is_integer(value->type.dtype)) return false;
  for (int depth = LOOK_THROUGH; depth && !value->tensor; depth--) {
    const Node *node = value->producer;
    if (!node) return false;
    if (node_is(node, OP_Range)) {
      int64_t start, step;
      return value->type.rank == 1 && axis == 0 && literal_int(node_input(node, 0)->tensor, &start) && start == 0 &&
             literal_int(node_input(node, 2)->tensor, &step) && step == 1;
    }
    bool keeps = node_is(node, OP_Expand) || node_is(node, OP_Cast) || node_is(node, OP_Identity);
    if (!keeps && !node_is(node, OP_Unsqueeze)) return false;
    const Value *from = node_input(node, 0);
    if (node_is(node, OP_Unsqueeze)) { /* only of a single row, where one axis is left */
      if (from->type.rank != 1 || !dim_equal(from->type.dims[0], value->type.dims[axis])) return false;
      axis = 0;
    } else if (from->type.rank != value->type.rank) {
      axis -= (int64_t)value->type.rank - (int64_t)from->type.rank;
      if (axis < 0) return false;
    } else if (!dim_equal(from->type.dims[axis], value->type.dims[axis])) {
      return false;
    }
    value = from;
  }
  const Tensor *tensor = value->tensor;
  if (!tensor || tensor->rank <= axis || !tensor->data) return false;
  int64_t inner = 1;
  for (uint32_t d = (uint32_t)axis + 1; d < tensor->rank; d++) inner *= tensor->dims[d];
  size_t step = dtype_bytes(tensor->dtype, 1);
  for (size_t i = 0; (i + 1) * step <= tensor->size; i++) {
    int64_t place = inner ? (int64_t)i / inner % tensor->dims[axis] : 0;
    if (number_decode_int(tensor->dtype, (const char *)tensor->data + i * step) != place) return false;
  }
  return true;
}

static bool nothing_to_sort(Type type, int64_t axis) { return is_empty(type) || dim_is(type.dims[axis], 1); }

/* By the last key first: each sort keeps the order of the one before among equals. */
static void lower_sort(Lowering *l) {
  int64_t axis = param_int(l->context, l->equation, "dimension");
  int64_t keys = param_int_or(l->equation, "num_keys", 1);
  uint32_t count = l->equation->output_count;
  Type type = input_type(l, 0);
  rely_on(l, keys >= 1 && keys <= (int64_t)count && axis >= 0 && axis < (int64_t)type.rank);
  if (nothing_to_sort(type, axis)) {
    for (uint32_t i = 0; i < count; i++) bind(l, i, input(l, i));
    return;
  }
  Value *places = NULL, *sorted = NULL;
  for (int64_t k = keys; k-- > 0;) {
    Value *operand = input(l, (size_t)k);
    Value *key = sort_key(l, places ? pick(l, operand, places, axis) : operand);
    Node *node = order(l, key, type, axis, false);
    places = places ? pick(l, places, node->outputs[1], axis) : node->outputs[1];
    sorted = key == operand ? node->outputs[0] : NULL; /* the key is the operand itself */
  }
  for (uint32_t i = 0; i < count; i++) {
    Value *operand = input(l, i);
    if (i == 0 && sorted && keys == 1) bind(l, i, sorted);
    else if (numbers_places(operand, axis)) bind(l, i, cast_to(l, places, operand->type.dtype));
    else bind(l, i, pick(l, operand, places, axis));
  }
}

static void first_of(Lowering *l, int64_t axis, bool largest) {
  Type type = output_type(l, 0);
  Value *operand = input(l, 0);
  if (axis < 0) axis += type.rank;
  rely_on(l, axis >= 0 && axis < (int64_t)type.rank);
  Value *key = sort_key(l, operand);
  Node *node = order(l, key, type, axis, largest);
  bind(l, 0, key == operand ? node->outputs[0] : pick(l, operand, node->outputs[1], axis));
  bind(l, 1, cast_to(l, node->outputs[1], output_type(l, 1).dtype));
}

static void lower_top_k(Lowering *l) { first_of(l, param_int_or(l->equation, "axis", -1), true); }

/* The exact answer is one that the approximation allows. Without aggregation there are more candidates than asked for,
 * which are in order on the CPU. */
static void lower_approx_top_k(Lowering *l) {
  first_of(l, param_int_or(l->equation, "reduction_dimension", -1), param_bool_or(l->equation, "is_max_k", true));
}

/* clang-format off */
const Plugin sort_plugins[] = {
    PLUGIN("sort", lower_sort, OP_TopK),
    PLUGIN("top_k", lower_top_k, OP_TopK),
    PLUGIN("approx_top_k", lower_approx_top_k, OP_TopK),
    {0},
};
/* clang-format on */
