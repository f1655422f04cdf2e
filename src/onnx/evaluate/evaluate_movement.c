/* Evaluate: elements moved, none computed. */
#include "base/bytes.h"
#include "onnx/evaluate/evaluate.h"
#include "types/moved.h"
#include "types/numbers.h"
#include "types/strided_copy.h"

/* The same data in another shape: nothing is copied. */
static const Tensor *with_dims(const Evaluation *evaluation, const Tensor *x, const int64_t *dims, size_t rank) {
  int64_t count = 1;
  if (rank > MAX_RANK) return NULL;
  for (size_t i = 0; i < rank; i++) {
    if (dims[i] < 0 || __builtin_mul_overflow(count, dims[i], &count)) return NULL;
  }
  if (count != tensor_count(x)) return NULL;
  Arena *arena = &evaluation->context->arena;
  Tensor *tensor = arena_copy(arena, x, sizeof *x);
  tensor->rank = (uint32_t)rank;
  tensor->dims = arena_copy(arena, dims, rank * sizeof *dims);
  tensor->name = NULL;
  return tensor;
}

static const Tensor *evaluate_reshape(const Evaluation *evaluation) {
  const Tensor *x = evaluate_input(evaluation, 0);
  int64_t dims[MAX_RANK], known = 1;
  size_t rank, open = MAX_RANK;
  if (!x || !tensor_ints(evaluate_input(evaluation, 1), dims, MAX_RANK, &rank)) return NULL;
  bool allow_zero = node_int_or(evaluation->node, "allowzero", 0) != 0;
  for (size_t i = 0; i < rank; i++) {
    if (dims[i] == 0 && !allow_zero) {
      if (i >= x->rank) return NULL;
      dims[i] = x->dims[i];
    }
    if (dims[i] == -1) open = i;
    else if (dims[i] < 0 || __builtin_mul_overflow(known, dims[i], &known)) return NULL;
  }
  if (open < MAX_RANK) {
    if (known == 0) return NULL;
    dims[open] = tensor_count(x) / known;
  }
  return with_dims(evaluation, x, dims, rank);
}

/* Marks the axes that a second input names; false when they are not known. */
static bool mark_axes(const Evaluation *evaluation, size_t rank, bool *marked, size_t *count) {
  int64_t axes[MAX_RANK];
  if (!tensor_ints(evaluate_input(evaluation, 1), axes, MAX_RANK, count)) return false;
  for (size_t i = 0; i < *count; i++) {
    int64_t axis = evaluate_axis(axes[i], rank);
    if (axis < 0 || axis >= MAX_RANK || marked[axis]) return false;
    marked[axis] = true;
  }
  return true;
}

static const Tensor *evaluate_unsqueeze(const Evaluation *evaluation) {
  const Tensor *x = evaluate_input(evaluation, 0), *axes = evaluate_input(evaluation, 1);
  bool marked[MAX_RANK] = {false};
  int64_t dims[MAX_RANK];
  size_t added;
  if (!x || !axes || tensor_count(axes) > MAX_RANK - (int64_t)x->rank) return NULL;
  size_t rank = x->rank + (size_t)tensor_count(axes);
  if (!mark_axes(evaluation, rank, marked, &added)) return NULL;
  for (size_t i = 0, from = 0; i < rank; i++) dims[i] = marked[i] ? 1 : x->dims[from++];
  return with_dims(evaluation, x, dims, rank);
}

static const Tensor *evaluate_squeeze(const Evaluation *evaluation) {
  const Tensor *x = evaluate_input(evaluation, 0);
  bool marked[MAX_RANK] = {false};
  int64_t dims[MAX_RANK];
  size_t dropped, rank = 0;
  if (!x) return NULL;
  if (!evaluate_input(evaluation, 1)) {
    for (size_t i = 0; i < x->rank; i++) marked[i] = x->dims[i] == 1;
  } else if (!mark_axes(evaluation, x->rank, marked, &dropped)) {
    return NULL;
  }
  for (size_t i = 0; i < x->rank; i++) {
    if (!marked[i]) dims[rank++] = x->dims[i];
    else if (x->dims[i] != 1) return NULL;
  }
  return with_dims(evaluation, x, dims, rank);
}

static const Tensor *evaluate_flatten(const Evaluation *evaluation) {
  const Tensor *x = evaluate_input(evaluation, 0);
  if (!x) return NULL;
  int64_t axis = node_int_or(evaluation->node, "axis", 1), dims[2] = {1, 1};
  if (axis < 0) axis += x->rank;
  if (axis < 0 || axis > (int64_t)x->rank) return NULL;
  for (int64_t i = 0; i < (int64_t)x->rank; i++) dims[i >= axis] *= x->dims[i];
  return with_dims(evaluation, x, dims, 2);
}

/* ---- views: every element of the result lies at a stride in the input ---- */

static const Tensor *copy_view(const Evaluation *evaluation, const Tensor *x, const int64_t *walked, size_t walked_rank,
                               const int64_t *strides, int64_t offset, const int64_t *dims, size_t rank) {
  Tensor *result = evaluate_result(evaluation, x->dtype, dims, rank);
  if (!result || result->size == 0) return result;
  size_t width = tensor_width(x);
  strided_copy(result_data(result), (const char *)x->data + (size_t)offset * width, width, walked, strides,
               walked_rank);
  return result;
}

static const Tensor *evaluate_transpose(const Evaluation *evaluation) {
  const Tensor *x = evaluate_input(evaluation, 0);
  const Attribute *attribute = node_attribute(evaluation->node, "perm");
  int64_t from[MAX_RANK], dims[MAX_RANK], strides[MAX_RANK];
  if (!x || (attribute && (attribute->kind != ATTRIBUTE_INTS || attribute->count != x->rank))) return NULL;
  plain_strides(x->dims, x->rank, from);
  for (size_t i = 0; i < x->rank; i++) {
    int64_t axis = attribute ? attribute->integers[i] : (int64_t)(x->rank - 1 - i);
    if (axis < 0 || axis >= (int64_t)x->rank) return NULL;
    dims[i] = x->dims[axis];
    strides[i] = from[axis];
  }
  if (x->size > evaluation->largest) return NULL;
  const Tensor *moved = moved_tensor(evaluation->context, x, dims, strides);
  if (moved) return moved;
  tensor_ready(x);
  return copy_view(evaluation, x, dims, x->rank, strides, 0, dims, x->rank);
}

static const Tensor *evaluate_expand(const Evaluation *evaluation) {
  const Tensor *x = evaluate_input(evaluation, 0);
  int64_t target[MAX_RANK], dims[MAX_RANK], strides[MAX_RANK];
  size_t count, rank;
  if (!x || !tensor_ints(evaluate_input(evaluation, 1), target, MAX_RANK, &count)) return NULL;
  for (size_t i = 0; i < count; i++) {
    if (target[i] < 0) return NULL;
  }
  const Tensor shape = {.rank = (uint32_t)count, .dims = target};
  const Tensor *operands[] = {x, &shape};
  if (!broadcast_dims(operands, 2, dims, &rank)) return NULL;
  broadcast_strides(x, rank, strides);
  return copy_view(evaluation, x, dims, rank, strides, 0, dims, rank);
}

static const Tensor *evaluate_tile(const Evaluation *evaluation) {
  const Tensor *x = evaluate_input(evaluation, 0);
  int64_t repeats[MAX_RANK], from[MAX_RANK], dims[MAX_RANK], walked[2 * MAX_RANK], strides[2 * MAX_RANK];
  size_t count;
  if (!x || !tensor_ints(evaluate_input(evaluation, 1), repeats, MAX_RANK, &count) || count != x->rank) return NULL;
  plain_strides(x->dims, x->rank, from);
  for (size_t i = 0; i < count; i++) {
    if (repeats[i] < 0 || __builtin_mul_overflow(repeats[i], x->dims[i], &dims[i])) return NULL;
    walked[2 * i] = repeats[i];
    walked[2 * i + 1] = x->dims[i];
    strides[2 * i] = 0;
    strides[2 * i + 1] = from[i];
  }
  return copy_view(evaluation, x, walked, 2 * count, strides, 0, dims, count);
}

/* Start and length of a slice along one axis, cut to it as ONNX says. */
static bool slice_axis(int64_t size, int64_t start, int64_t end, int64_t step, int64_t *first, int64_t *length) {
  if (step == 0 || step == INT64_MIN) return false;
  *first = *length = 0;
  if (size == 0) return true; /* backwards, there is no last element to begin with */
  if (start < 0) start += size;
  if (end < 0 && end >= INT64_MIN + size) end += size;
  int64_t low = 0, high = step > 0 ? size : size - 1;
  int64_t end_low = step > 0 ? 0 : -1;
  *first = start < low ? low : start > high ? high : start;
  end = end < end_low ? end_low : end > size ? size : end;
  int64_t span = step > 0 ? end - *first : *first - end;
  int64_t stride = step > 0 ? step : -step;
  *length = span <= 0 ? 0 : 1 + (span - 1) / stride;
  return true;
}

static const Tensor *evaluate_slice(const Evaluation *evaluation) {
  const Tensor *x = evaluate_input(evaluation, 0);
  int64_t starts[MAX_RANK], ends[MAX_RANK], axes[MAX_RANK], steps[MAX_RANK];
  int64_t dims[MAX_RANK], strides[MAX_RANK], offset = 0;
  size_t count, end_count, axis_count, step_count;
  if (!x || !tensor_ints(evaluate_input(evaluation, 1), starts, MAX_RANK, &count)) return NULL;
  if (!tensor_ints(evaluate_input(evaluation, 2), ends, MAX_RANK, &end_count)) return NULL;
  for (size_t i = 0; i < count; i++) {
    axes[i] = (int64_t)i;
    steps[i] = 1;
  }
  axis_count = step_count = count;
  const Tensor *named = evaluate_input(evaluation, 3), *stepped = evaluate_input(evaluation, 4);
  if (named && !tensor_ints(named, axes, MAX_RANK, &axis_count)) return NULL;
  if (stepped && !tensor_ints(stepped, steps, MAX_RANK, &step_count)) return NULL;
  if (end_count != count || axis_count != count || step_count != count) return NULL;
  plain_strides(x->dims, x->rank, strides);
  copy_bytes(dims, x->dims, x->rank * sizeof *dims);
  for (size_t i = 0; i < count; i++) {
    int64_t axis = evaluate_axis(axes[i], x->rank), first;
    if (axis < 0 || !slice_axis(x->dims[axis], starts[i], ends[i], steps[i], &first, &dims[axis])) return NULL;
    if (dims[axis] == 0) first = 0;
    offset += first * strides[axis];
    if (__builtin_mul_overflow(strides[axis], dims[axis] > 1 ? steps[i] : 1, &strides[axis])) return NULL;
  }
  return copy_view(evaluation, x, dims, x->rank, strides, offset, dims, x->rank);
}

/* ---- pieces ---- */

static size_t product(const int64_t *dims, size_t from, size_t to) {
  size_t count = 1;
  for (size_t i = from; i < to; i++) count *= (size_t)dims[i];
  return count;
}

static const Tensor *evaluate_concat(const Evaluation *evaluation) {
  const Tensor *x = evaluate_input(evaluation, 0);
  int64_t dims[MAX_RANK];
  if (!x) return NULL;
  int64_t axis = evaluate_axis(node_int_or(evaluation->node, "axis", 0), x->rank);
  if (axis < 0) return NULL;
  copy_bytes(dims, x->dims, x->rank * sizeof *dims);
  for (size_t k = 1; k < evaluation->input_count; k++) {
    const Tensor *piece = evaluate_input(evaluation, k);
    if (!piece || piece->dtype != x->dtype || piece->rank != x->rank) return NULL;
    for (size_t i = 0; i < x->rank; i++) {
      if ((int64_t)i == axis) dims[i] += piece->dims[i];
      else if (piece->dims[i] != dims[i]) return NULL;
    }
  }
  Tensor *result = evaluate_result(evaluation, x->dtype, dims, x->rank);
  if (!result || result->size == 0) return result;
  size_t blocks = product(dims, 0, (size_t)axis), block = result->size / blocks, at = 0;
  for (size_t k = 0; k < evaluation->input_count; k++) {
    const Tensor *piece = evaluate_input(evaluation, k);
    size_t part = piece->size / blocks;
    for (size_t b = 0; part && b < blocks; b++) {
      copy_bytes(result_data(result) + b * block + at, (const char *)piece->data + b * part, part);
    }
    at += part;
  }
  return result;
}

static const Tensor *evaluate_gather(const Evaluation *evaluation) {
  const Tensor *x = evaluate_input(evaluation, 0), *indices = evaluate_input(evaluation, 1);
  int64_t dims[2 * MAX_RANK];
  if (!x || !indices || !dtype_is_integer(indices->dtype)) return NULL;
  int64_t axis = evaluate_axis(node_int_or(evaluation->node, "axis", 0), x->rank);
  size_t rank = 0;
  if (axis < 0) return NULL;
  for (int64_t i = 0; i < axis; i++) dims[rank++] = x->dims[i];
  for (uint32_t i = 0; i < indices->rank; i++) dims[rank++] = indices->dims[i];
  for (uint32_t i = (uint32_t)axis + 1; i < x->rank; i++) dims[rank++] = x->dims[i];
  Tensor *result = evaluate_result(evaluation, x->dtype, dims, rank);
  if (!result || result->size == 0) return result;
  size_t blocks = product(x->dims, 0, (size_t)axis);
  size_t part = product(x->dims, (size_t)axis + 1, x->rank) * tensor_width(x);
  char *to = result_data(result);
  for (size_t b = 0; b < blocks; b++) {
    for (int64_t i = 0; i < tensor_count(indices); i++) {
      int64_t index = evaluate_axis(tensor_int_at(indices, i), (size_t)x->dims[axis]);
      if (index < 0) return NULL;
      copy_bytes(to, (const char *)x->data + (b * (size_t)x->dims[axis] + (size_t)index) * part, part);
      to += part;
    }
  }
  return result;
}

/* The indices name where each element of the result lies along the axis; along the others it lies where it is. */
static const Tensor *evaluate_gather_elements(const Evaluation *evaluation) {
  const Tensor *x = evaluate_input(evaluation, 0), *indices = evaluate_input(evaluation, 1);
  int64_t strides[MAX_RANK], offset[1] = {0}, steps[1][2 * MAX_RANK];
  if (!x || !indices || !dtype_is_integer(indices->dtype) || indices->rank != x->rank) return NULL;
  int64_t axis = evaluate_axis(node_int_or(evaluation->node, "axis", 0), x->rank);
  if (axis < 0) return NULL;
  plain_strides(x->dims, x->rank, strides);
  for (uint32_t i = 0; i < x->rank; i++) {
    if ((int64_t)i != axis && indices->dims[i] > x->dims[i]) return NULL;
    steps[0][i] = (int64_t)i == axis ? 0 : strides[i];
  }
  Tensor *result = evaluate_result(evaluation, x->dtype, indices->dims, indices->rank);
  if (!result || result->size == 0) return result;
  size_t width = tensor_width(x);
  int64_t at = 0;
  Walk walk = {.rank = indices->rank, .dims = indices->dims};
  do {
    int64_t index = evaluate_axis(tensor_int_at(indices, at), (size_t)x->dims[axis]);
    if (index < 0) return NULL;
    size_t from = (size_t)(offset[0] + index * strides[axis]);
    copy_bytes(result_data(result) + (size_t)at * width, (const char *)x->data + from * width, width);
    at++;
  } while (walk_next(&walk, 1, (const int64_t (*)[2 * MAX_RANK]) steps, offset));
  return result;
}

/* The last axis of the indices holds the place along as many axes; what lies behind those is taken whole. */
static const Tensor *evaluate_gather_nd(const Evaluation *evaluation) {
  const Tensor *x = evaluate_input(evaluation, 0), *indices = evaluate_input(evaluation, 1);
  int64_t dims[2 * MAX_RANK];
  if (!x || !indices || !dtype_is_integer(indices->dtype) || indices->rank == 0) return NULL;
  int64_t deep = indices->dims[indices->rank - 1];
  size_t rank = 0;
  if (deep < 1 || deep > (int64_t)x->rank || node_int_or(evaluation->node, "batch_dims", 0) != 0) return NULL;
  for (uint32_t i = 0; i + 1 < indices->rank; i++) dims[rank++] = indices->dims[i];
  for (uint32_t i = (uint32_t)deep; i < x->rank; i++) dims[rank++] = x->dims[i];
  Tensor *result = evaluate_result(evaluation, x->dtype, dims, rank);
  if (!result || result->size == 0) return result;
  size_t part = product(x->dims, (size_t)deep, x->rank) * tensor_width(x);
  char *to = result_data(result);
  for (int64_t at = 0; at < tensor_count(indices); at += deep, to += part) {
    size_t from = 0;
    for (int64_t i = 0; i < deep; i++) {
      int64_t index = evaluate_axis(tensor_int_at(indices, at + i), (size_t)x->dims[i]);
      if (index < 0) return NULL;
      from = from * (size_t)x->dims[i] + (size_t)index;
    }
    copy_bytes(to, (const char *)x->data + from * part, part);
  }
  return result;
}

/* Only with a constant around: the amounts before every axis, then after. */
static const Tensor *evaluate_pad(const Evaluation *evaluation) {
  const Tensor *x = evaluate_input(evaluation, 0), *fill = evaluate_input(evaluation, 2);
  const Attribute *mode = node_attribute(evaluation->node, "mode");
  int64_t amounts[2 * MAX_RANK], dims[MAX_RANK], strides[2][2 * MAX_RANK], offsets[2] = {0, 0};
  size_t count;
  if (!x || (mode && (mode->kind != ATTRIBUTE_STRING || strcmp(mode->string, "constant") != 0))) return NULL;
  if (evaluate_input(evaluation, 3) || (fill && (fill->dtype != x->dtype || tensor_count(fill) != 1))) return NULL;
  if (!tensor_ints(evaluate_input(evaluation, 1), amounts, 2 * MAX_RANK, &count)) return NULL;
  if (count != 2 * (size_t)x->rank) return NULL;
  for (uint32_t i = 0; i < x->rank; i++) {
    if (amounts[i] < 0 || amounts[x->rank + i] < 0) return NULL;
    if (__builtin_add_overflow(x->dims[i], amounts[i], &dims[i])) return NULL;
    if (__builtin_add_overflow(dims[i], amounts[x->rank + i], &dims[i])) return NULL;
  }
  Tensor *result = evaluate_result(evaluation, x->dtype, dims, x->rank);
  if (!result || result->size == 0) return result;
  size_t width = tensor_width(x);
  for (size_t at = 0; fill && at < result->size; at += width) copy_bytes(result_data(result) + at, fill->data, width);
  if (x->size == 0) return result;
  plain_strides(x->dims, x->rank, strides[0]);
  plain_strides(result->dims, result->rank, strides[1]);
  for (uint32_t i = 0; i < x->rank; i++) offsets[1] += amounts[i] * strides[1][i];
  Walk walk = {.rank = x->rank, .dims = x->dims};
  do {
    copy_bytes(result_data(result) + (size_t)offsets[1] * width, (const char *)x->data + (size_t)offsets[0] * width,
               width);
  } while (walk_next(&walk, 2, (const int64_t (*)[2 * MAX_RANK]) strides, offsets));
  return result;
}

static const Tensor *evaluate_trilu(const Evaluation *evaluation) {
  const Tensor *x = evaluate_input(evaluation, 0), *diagonal = evaluate_input(evaluation, 1);
  if (!x || x->rank < 2 || (diagonal && (diagonal->dtype != DTYPE_INT64 || tensor_count(diagonal) != 1))) return NULL;
  int64_t k = diagonal ? tensor_int_at(diagonal, 0) : 0;
  int64_t rows = x->dims[x->rank - 2], columns = x->dims[x->rank - 1];
  bool upper = node_int_or(evaluation->node, "upper", 1) != 0;
  Tensor *result = evaluate_result(evaluation, x->dtype, x->dims, x->rank);
  if (!result || result->size == 0) return result;
  if (k > columns) k = columns + 1;
  if (k < -rows) k = -rows - 1;
  size_t width = tensor_width(x);
  for (int64_t i = 0; i < tensor_count(x); i++) {
    int64_t row = i / columns % rows, column = i % columns;
    if (upper ? column - row < k : column - row > k) continue;
    copy_bytes(result_data(result) + (size_t)i * width, (const char *)x->data + (size_t)i * width, width);
  }
  return result;
}

/* ---- made of nothing ---- */

static const Tensor *evaluate_constant_of_shape(const Evaluation *evaluation) {
  const Attribute *attribute = node_attribute(evaluation->node, "value");
  int64_t dims[MAX_RANK];
  size_t rank;
  if (!tensor_ints(evaluate_input(evaluation, 0), dims, MAX_RANK, &rank)) return NULL;
  if (attribute && (attribute->kind != ATTRIBUTE_TENSOR || !attribute->tensor->data)) return NULL;
  const Tensor *value = attribute ? attribute->tensor : NULL;
  if (value && (dtype_bits(value->dtype) < 8 || value->size != tensor_width(value))) return NULL;
  Tensor *result = evaluate_result(evaluation, value ? value->dtype : DTYPE_FLOAT32, dims, rank);
  for (size_t at = 0; result && value && at < result->size; at += value->size) {
    copy_bytes(result_data(result) + at, value->data, value->size);
  }
  return result;
}

static const Tensor *evaluate_range(const Evaluation *evaluation) {
  int64_t numbers[3];
  for (size_t i = 0; i < 3; i++) {
    const Tensor *tensor = evaluate_input(evaluation, i);
    if (!tensor || tensor_count(tensor) != 1) return NULL;
    if (tensor->dtype != DTYPE_INT64 && tensor->dtype != DTYPE_INT32) return NULL;
    numbers[i] = tensor_int_at(tensor, 0);
  }
  int64_t start = numbers[0], step = numbers[2], span;
  if (step == 0 || step == INT64_MIN || __builtin_sub_overflow(numbers[1], start, &span)) return NULL;
  if (step < 0) span = span == INT64_MIN ? INT64_MAX : -span;
  int64_t size = step < 0 ? -step : step, length = span <= 0 ? 0 : 1 + (span - 1) / size;
  Tensor *result = evaluate_result(evaluation, evaluation->inputs[0]->dtype, &length, 1);
  for (int64_t i = 0; result && i < length; i++) {
    int64_t number = start + i * step;
    copy_bytes(result_data(result) + (size_t)i * tensor_width(result), &number, tensor_width(result));
  }
  return result;
}

const EvaluateRow evaluate_movement[] = {
    {OP_Reshape, evaluate_reshape},
    {OP_Unsqueeze, evaluate_unsqueeze},
    {OP_Squeeze, evaluate_squeeze},
    {OP_Flatten, evaluate_flatten},
    {OP_Transpose, evaluate_transpose},
    {OP_Expand, evaluate_expand},
    {OP_Tile, evaluate_tile},
    {OP_Slice, evaluate_slice},
    {OP_Concat, evaluate_concat},
    {OP_Gather, evaluate_gather},
    {OP_GatherElements, evaluate_gather_elements},
    {OP_GatherND, evaluate_gather_nd},
    {OP_Pad, evaluate_pad},
    {OP_Trilu, evaluate_trilu},
    {OP_ConstantOfShape, evaluate_constant_of_shape},
    {OP_Range, evaluate_range},
    {OP_NONE, NULL},
};
