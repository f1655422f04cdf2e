/* Shape and data movement: what changes where an element stands, never its value. padding.c has `pad`. */
#include "base/bytes.h"
#include "lower/lower.h"
#include "onnx/facts/schema.h"
#include "types/numbers.h"

enum { FOLDED_BYTES = 4096 /* filled and counted arrays up to here become initializers; larger ones are computed */ };

/* Number of elements when the shape is constant and the array small enough to be stored in the model. */
static bool is_foldable(Type type, int64_t *count) {
  if (!type_count(type, count)) return false;
  return *count <= FOLDED_BYTES && dtype_bytes(type.dtype, (size_t)*count) <= FOLDED_BYTES;
}

static Value *constant_array(Lowering *l, Type type, const void *data, size_t size) {
  int64_t *dims = arena_new_array(&l->context->arena, type.rank, int64_t);
  for (uint32_t i = 0; i < type.rank; i++) dims[i] = type.dims[i].constant;
  return constant(l, tensor_new(l, type.dtype, dims, type.rank, data, size));
}

Value *filled(Lowering *l, Type type, const Tensor *scalar) {
  int64_t count;
  size_t size = dtype_bytes(scalar->dtype, 1);
  if (dtype_bits(scalar->dtype) < 8 || !is_foldable(type, &count)) {
    return expand_to(l, constant(l, scalar), type.dims, type.rank);
  }
  char *data = arena_alloc_array(&l->context->arena, (size_t)count, size);
  for (int64_t i = 0; i < count; i++) copy_bytes(data + (size_t)i * size, scalar->data, size);
  return constant_array(l, type, data, (size_t)count * size);
}

/* Arrays whose content is undefined: zeros, so that the model is deterministic. */
static void lower_empty(Lowering *l) {
  Type type = output_type(l, 0);
  bind(l, 0, filled(l, type, tensor_scalar(l, type.dtype, 0)));
}

/* The operand with an axis of size 1 for every axis of the result that it lacks. Leading ones are left to Expand,
 * which adds them itself, unless there is nothing to expand. */
static Value *align_axes(Lowering *l, Value *value, Type type, const int64_t *axis_of, uint32_t first_needed) {
  int64_t missing[MAX_RANK];
  size_t count = 0;
  for (uint32_t axis = first_needed, from = 0; axis < type.rank; axis++) {
    if (from < value->type.rank && axis_of[from] == (int64_t)axis) from++;
    else missing[count++] = axis - first_needed;
  }
  return unsqueeze_at(l, value, missing, count);
}

static void lower_broadcast_in_dim(Lowering *l) {
  Type type = output_type(l, 0);
  size_t count;
  const int64_t *axis_of = param_ints(l->context, l->equation, "broadcast_dimensions", &count);
  const Tensor *literal = input_literal(l, 0);
  if (literal && literal->rank == 0 && type.rank) {
    bind(l, 0, filled(l, type, literal));
    return;
  }
  Value *value = input(l, 0);
  rely_on(l, count == value->type.rank && type.rank <= MAX_RANK);
  bool grows = false;
  for (uint32_t axis = 0, from = 0; axis < type.rank; axis++) {
    bool kept = from < count && axis_of[from] == (int64_t)axis;
    Dim before = kept ? value->type.dims[from++] : dim_of(1);
    grows = grows || !dim_equal(before, type.dims[axis]);
  }
  uint32_t first_needed = !grows ? 0 : count ? (uint32_t)axis_of[0] : type.rank;
  value = align_axes(l, value, type, axis_of, first_needed);
  bind(l, 0, expand_to(l, value, type.dims, type.rank));
}

static void lower_broadcast_to(Lowering *l) {
  Type type = output_type(l, 0);
  bind(l, 0, expand_to(l, input(l, 0), type.dims, type.rank));
}

static void lower_reshape(Lowering *l) {
  Type type = output_type(l, 0);
  Value *value = input(l, 0);
  const Param *order = param_find(l->equation, "dimensions");
  if (order && order->kind == PARAM_LIST) {
    size_t count;
    const int64_t *permutation = param_list_ints(l->context, order, &count);
    rely_on(l, count == value->type.rank);
    value = transpose_by(l, value, permutation);
  }
  bind(l, 0, reshape_to(l, value, type.dims, type.rank));
}

static void lower_transpose(Lowering *l) {
  size_t count;
  const int64_t *permutation = param_ints(l->context, l->equation, "permutation", &count);
  rely_on(l, count == input_type(l, 0).rank);
  bind(l, 0, transpose_by(l, input(l, 0), permutation));
}

static void lower_squeeze(Lowering *l) {
  size_t count;
  const int64_t *axes = param_ints(l->context, l->equation, "dimensions", &count);
  bind(l, 0, squeeze_at(l, input(l, 0), axes, count));
}

/* 0, 1, 2, … along the one axis of type that is not 1. */
static Value *counted(Lowering *l, Type type, uint32_t axis) {
  int64_t count;
  size_t size = dtype_bytes(type.dtype, 1);
  bool eight_bit_float = dtype_is_float(type.dtype) && size == 1;
  if (dtype_bits(type.dtype) >= 8 && !eight_bit_float && is_foldable(type, &count)) {
    char *data = arena_alloc_array(&l->context->arena, (size_t)count, size);
    for (int64_t i = 0; i < count; i++) {
      uint64_t bits = number_encode(type.dtype, (double)i);
      copy_bytes(data + (size_t)i * size, &bits, size);
    }
    return constant_array(l, type, data, (size_t)count * size);
  }
  DType dtype = type.dtype == DTYPE_INT32 ? DTYPE_INT32 : DTYPE_INT64;
  Value *zero = constant_integer(l, dtype, 0), *one = constant_integer(l, dtype, 1);
  Value *limit = dimension_scalar(l, type.dims[axis], dtype);
  Value *range = EMIT(l, OP_Range, type_make(l->context, dtype, &type.dims[axis], 1), zero, limit, one);
  return reshape_to(l, cast_to(l, range, type.dtype), type.dims, type.rank);
}

static void lower_iota(Lowering *l) {
  Type type = output_type(l, 0);
  int64_t axis = param_int(l->context, l->equation, "dimension"), count;
  rely_on(l, axis >= 0 && axis < (int64_t)type.rank);
  /* Leading axes come with Expand; only those behind the counted one must be there. */
  uint32_t rank = type.rank - (uint32_t)axis;
  Dim *dims = arena_new_array(&l->context->arena, rank, Dim);
  for (uint32_t i = 0; i < rank; i++) dims[i] = i == 0 ? type.dims[axis] : dim_of(1);
  Value *line = counted(l, type_make(l->context, type.dtype, dims, rank), 0);
  bool small = line->tensor && dtype_bits(type.dtype) >= 8 && is_foldable(type, &count);
  if (!small) {
    bind(l, 0, expand_to(l, line, type.dims, type.rank));
    return;
  }
  int64_t after = 1, size = type.dims[axis].constant;
  for (uint32_t i = (uint32_t)axis + 1; i < type.rank; i++) after *= type.dims[i].constant;
  size_t bytes = dtype_bytes(type.dtype, 1);
  char *data = arena_alloc_array(&l->context->arena, (size_t)count, bytes);
  for (int64_t i = 0; i < count; i++) {
    const char *element = (const char *)line->tensor->data + (size_t)(i / after % size) * bytes;
    copy_bytes(data + (size_t)i * bytes, element, bytes);
  }
  bind(l, 0, constant_array(l, type, data, (size_t)count * bytes));
}

static void lower_concatenate(Lowering *l) {
  uint32_t count = l->equation->input_count;
  int64_t axis = param_int(l->context, l->equation, "dimension");
  Value **values = arena_new_array(&l->context->arena, count, Value *);
  for (uint32_t i = 0; i < count; i++) values[i] = input(l, i);
  bind(l, 0, concat_at(l, values, count, axis, output_type(l, 0)));
}

static void lower_slice(Lowering *l) {
  Value *value = input(l, 0);
  Type type = output_type(l, 0);
  uint32_t rank = type.rank;
  size_t start_count, limit_count, step_count = 0;
  const Dim *starts = param_dims(l->context, param_get(l->context, l->equation, "start_indices"), &start_count);
  const Dim *limits = param_dims(l->context, param_get(l->context, l->equation, "limit_indices"), &limit_count);
  const Param *strides = param_find(l->equation, "strides");
  const int64_t *steps = NULL;
  if (strides && strides->kind == PARAM_LIST) steps = param_list_ints(l->context, strides, &step_count);
  rely_on(l, start_count == rank && limit_count == rank && (!steps || step_count == rank) && rank <= MAX_RANK);
  Dim from[MAX_RANK], to[MAX_RANK];
  int64_t by[MAX_RANK], axes[MAX_RANK];
  size_t count = 0;
  for (uint32_t i = 0; i < rank; i++) {
    int64_t step = steps ? steps[i] : 1;
    bool to_end = dim_equal(limits[i], value->type.dims[i]);
    if (dim_is(starts[i], 0) && to_end && step == 1) continue;
    from[count] = starts[i];
    to[count] = to_end && !dim_is_constant(limits[i]) ? dim_of(INT64_MAX) : limits[i]; /* spares computing the size */
    by[count] = step;
    axes[count++] = i;
  }
  bind(l, 0, slice_at(l, value, type, from, to, by, axes, count));
}

static void lower_rev(Lowering *l) {
  size_t count;
  const int64_t *axes = param_ints(l->context, l->equation, "dimensions", &count);
  Dim from[MAX_RANK], to[MAX_RANK];
  int64_t by[MAX_RANK];
  rely_on(l, count <= MAX_RANK);
  for (size_t i = 0; i < count; i++) {
    from[i] = dim_of(-1);
    to[i] = dim_of(INT64_MIN);
    by[i] = -1;
  }
  bind(l, 0, slice_at(l, input(l, 0), output_type(l, 0), from, to, by, axes, count));
}

static void lower_split(Lowering *l) {
  uint32_t count = l->equation->output_count;
  Value *value = input(l, 0);
  if (count == 1) {
    bind(l, 0, value);
    return;
  }
  size_t size_count;
  const Dim *sizes = param_dims(l->context, param_get(l->context, l->equation, "sizes"), &size_count);
  rely_on(l, size_count == count);
  Type *types = arena_new_array(&l->context->arena, count, Type);
  for (uint32_t i = 0; i < count; i++) types[i] = output_type(l, i);
  Node *node = EMIT_NODE(l, OP_Split, types, count, value, shape_value(l, sizes, count));
  node_set_int(node, "axis", param_int(l->context, l->equation, "axis"));
  for (uint32_t i = 0; i < count; i++) bind(l, i, node->outputs[i]);
}

/* Joining along the axis itself and splitting it by Reshape takes two nodes for any number of operands. It needs an
 * axis at that place, and no size behind it that Reshape cannot find out by itself. */
static bool can_stack_by_reshape(Type operand, int64_t axis) {
  uint32_t symbolic = 0;
  for (uint32_t i = (uint32_t)axis; i < operand.rank; i++) symbolic += !dim_is_constant(operand.dims[i]);
  return axis < (int64_t)operand.rank && symbolic <= 1;
}

static void lower_stack(Lowering *l) {
  uint32_t count = l->equation->input_count;
  int64_t axis = param_int(l->context, l->equation, "axis");
  Type type = output_type(l, 0), operand = input_type(l, 0);
  Value **values = arena_new_array(&l->context->arena, count, Value *);
  for (uint32_t i = 0; i < count; i++) values[i] = input(l, i);
  if (!can_stack_by_reshape(operand, axis) || count == 1) {
    for (uint32_t i = 0; i < count; i++) values[i] = unsqueeze_at(l, values[i], &axis, 1);
    bind(l, 0, concat_at(l, values, count, axis, type));
    return;
  }
  Dim *joined = arena_new_array(&l->context->arena, operand.rank, Dim);
  copy_bytes(joined, operand.dims, operand.rank * sizeof *joined);
  joined[axis] = dim_multiply(l->context, joined[axis], dim_of(count));
  Value *whole = concat_at(l, values, count, axis, type_make(l->context, type.dtype, joined, operand.rank));
  bind(l, 0, reshape_to(l, whole, type.dims, type.rank));
}

static void lower_unstack(Lowering *l) {
  int64_t axis = param_int(l->context, l->equation, "axis");
  Value *value = input(l, 0);
  for (uint32_t i = 0; i < l->equation->output_count; i++) {
    Value *part = EMIT(l, OP_Gather, output_type(l, i), value, constant_integer(l, DTYPE_INT64, i));
    node_set_int(part->producer, "axis", axis);
    bind(l, i, part);
  }
}

static void lower_tile(Lowering *l) {
  Value *value = input(l, 0);
  size_t count;
  const Dim *repeats = param_dims(l->context, param_get(l->context, l->equation, "reps"), &count);
  rely_on(l, count == value->type.rank);
  bool changes = false;
  for (size_t i = 0; i < count; i++) changes = changes || !dim_is(repeats[i], 1);
  if (changes) value = EMIT_AROUND(l, OP_Tile, output_type(l, 0), value, shape_value(l, repeats, count));
  bind(l, 0, value);
}

static void lower_dim_as_value(Lowering *l) {
  const Param *param = param_get(l->context, l->equation, "dim");
  Dim dim = param->kind == PARAM_DIM ? param->dim : dim_of(param_int(l->context, l->equation, "dim"));
  bind(l, 0, dimension_scalar(l, dim, output_type(l, 0).dtype));
}

static void lower_dimension_size(Lowering *l) {
  int64_t axis = param_int(l->context, l->equation, "dimension");
  rely_on(l, axis >= 0 && axis < (int64_t)input_type(l, 0).rank);
  bind(l, 0, dimension_scalar(l, input_type(l, 0).dims[axis], output_type(l, 0).dtype));
}

/* clang-format off */
const Plugin shape_plugins[] = {
    PLUGIN("broadcast_in_dim", lower_broadcast_in_dim, OP_NONE),
    PLUGIN("broadcast_to", lower_broadcast_to, OP_NONE),
    PLUGIN("concatenate", lower_concatenate, OP_NONE),
    PLUGIN("dim_as_value", lower_dim_as_value, OP_NONE),
    PLUGIN("dimension_size", lower_dimension_size, OP_NONE),
    PLUGIN("empty", lower_empty, OP_NONE),
    PLUGIN("empty2", lower_empty, OP_NONE),
    PLUGIN("iota", lower_iota, OP_NONE),
    PLUGIN("reshape", lower_reshape, OP_NONE),
    PLUGIN("rev", lower_rev, OP_NONE),
    PLUGIN("slice", lower_slice, OP_NONE),
    PLUGIN("split", lower_split, OP_NONE),
    PLUGIN("squeeze", lower_squeeze, OP_NONE),
    PLUGIN("stack", lower_stack, OP_NONE),
    PLUGIN("tile", lower_tile, OP_NONE),
    PLUGIN("transpose", lower_transpose, OP_NONE),
    PLUGIN("unstack", lower_unstack, OP_NONE),
    {0},
};
/* clang-format on */
