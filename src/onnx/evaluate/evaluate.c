/* Evaluate: dispatch, and what the families share. */
#include "onnx/evaluate/evaluate.h"

#include "types/moved.h"
#include "types/numbers.h"

const Tensor *evaluate_input(const Evaluation *evaluation, size_t index) {
  return index < evaluation->input_count ? evaluation->inputs[index] : NULL;
}

size_t tensor_width(const Tensor *tensor) { return dtype_bits(tensor->dtype) / 8; }

int64_t tensor_count(const Tensor *tensor) { return (int64_t)(tensor->size / tensor_width(tensor)); }

int64_t tensor_int_at(const Tensor *tensor, int64_t index) {
  return number_decode_int(tensor->dtype, (const char *)tensor->data + (size_t)index * tensor_width(tensor));
}

bool tensor_ints(const Tensor *tensor, int64_t *numbers, size_t most, size_t *count) {
  if (!tensor || !dtype_is_integer(tensor->dtype) || tensor->rank > 1) return false;
  *count = (size_t)tensor_count(tensor);
  if (*count > most) return false;
  for (size_t i = 0; i < *count; i++) numbers[i] = tensor_int_at(tensor, (int64_t)i);
  return true;
}

Tensor *evaluate_result(const Evaluation *evaluation, DType dtype, const int64_t *dims, size_t rank) {
  size_t size = dtype_bits(dtype) / 8;
  if (size == 0 || rank > MAX_RANK) return NULL;
  for (size_t i = 0; i < rank; i++) {
    if (dims[i] < 0) return NULL;
    if (dims[i] == 0) size = 0;
  }
  for (size_t i = 0; size && i < rank; i++) {
    if ((uint64_t)dims[i] > evaluation->largest / size) return NULL;
    size *= (size_t)dims[i];
  }
  Arena *arena = &evaluation->context->arena;
  Tensor *tensor = arena_new(arena, Tensor);
  *tensor = (Tensor){.dtype = dtype, .rank = (uint32_t)rank, .size = size};
  tensor->dims = arena_copy(arena, dims, rank * sizeof *dims);
  tensor->data = arena_alloc(arena, size ? size : 1);
  return tensor;
}

int64_t evaluate_axis(int64_t axis, size_t rank) {
  if (axis < 0) axis += (int64_t)rank;
  return axis < 0 || axis >= (int64_t)rank ? -1 : axis;
}

bool broadcast_dims(const Tensor *const *operands, size_t count, int64_t *dims, size_t *rank) {
  *rank = 0;
  for (size_t i = 0; i < count; i++) {
    if (operands[i]->rank > *rank) *rank = operands[i]->rank;
  }
  if (*rank > MAX_RANK) return false;
  for (size_t axis = 0; axis < *rank; axis++) dims[axis] = 1;
  for (size_t i = 0; i < count; i++) {
    size_t shift = *rank - operands[i]->rank;
    for (size_t axis = 0; axis < operands[i]->rank; axis++) {
      int64_t dim = operands[i]->dims[axis], *to = &dims[shift + axis];
      if (*to == 1) *to = dim;
      else if (dim != 1 && dim != *to) return false;
    }
  }
  return true;
}

void broadcast_strides(const Tensor *operand, size_t rank, int64_t *strides) {
  int64_t stride = 1;
  for (size_t axis = 0; axis < rank; axis++) strides[axis] = 0;
  for (size_t axis = operand->rank; axis-- > 0;) {
    if (operand->dims[axis] != 1) strides[rank - operand->rank + axis] = stride;
    stride *= operand->dims[axis];
  }
}

bool walk_next(Walk *walk, size_t operands, const int64_t (*strides)[2 * MAX_RANK], int64_t *offsets) {
  for (size_t axis = walk->rank; axis-- > 0;) {
    walk->index[axis]++;
    for (size_t i = 0; i < operands; i++) offsets[i] += strides[i][axis];
    if (walk->index[axis] < walk->dims[axis]) return true;
    for (size_t i = 0; i < operands; i++) offsets[i] -= strides[i][axis] * walk->dims[axis];
    walk->index[axis] = 0;
  }
  return false;
}

static EvaluateFunction *find(const EvaluateRow *rows, Op op) {
  for (; rows->op; rows++) {
    if (rows->op == op) return rows->evaluate;
  }
  return NULL;
}

/* A whole number of bytes per element, and as many as the shape asks for. */
static bool plain(const Tensor *tensor) {
  if (dtype_bits(tensor->dtype) < 8 || tensor->rank > MAX_RANK) return false;
  uint64_t size = tensor_width(tensor);
  for (uint32_t i = 0; i < tensor->rank; i++) {
    if (tensor->dims[i] < 0 || __builtin_mul_overflow(size, (uint64_t)tensor->dims[i], &size)) return false;
  }
  return size == tensor->size && tensor_is_readable(tensor);
}

/* Rules for these take an operand whose elements are not there yet. */
static const Tensor *evaluate_plain(const Evaluation *evaluation) {
  const Node *node = evaluation->node;
  for (size_t i = 0; i < evaluation->input_count; i++) {
    if (evaluation->inputs[i] && !plain(evaluation->inputs[i])) return NULL;
    if (evaluation->inputs[i] && !(i == 0 && node_moves_all(node))) tensor_ready(evaluation->inputs[i]);
  }
  const EvaluateRow *const families[] = {evaluate_elementwise, evaluate_movement, evaluate_reductions,
                                         evaluate_products};
  for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
    EvaluateFunction *function = find(families[i], node->op);
    if (function) return function(evaluation);
  }
  return NULL;
}

/* ---- two elements to a byte ---- */

static bool is_packed(DType dtype) { return dtype == DTYPE_INT4 || dtype == DTYPE_UINT4; }

static int64_t packed_count(const Tensor *tensor) {
  int64_t count = 1;
  if (tensor->rank > MAX_RANK || !tensor_is_readable(tensor)) return -1;
  for (uint32_t i = 0; i < tensor->rank; i++) {
    if (tensor->dims[i] < 0 || __builtin_mul_overflow(count, tensor->dims[i], &count)) return -1;
  }
  return tensor->size == dtype_bytes(tensor->dtype, (size_t)count) ? count : -1;
}

/* One element to a byte. */
static const Tensor *unpacked(const Evaluation *evaluation, const Tensor *tensor, int64_t count) {
  bool has_sign = tensor->dtype == DTYPE_INT4;
  Evaluation wide = {.context = evaluation->context, .largest = (size_t)count};
  Tensor *result = evaluate_result(&wide, has_sign ? DTYPE_INT8 : DTYPE_UINT8, tensor->dims, tensor->rank);
  if (!result) return NULL;
  tensor_ready(tensor);
  for (size_t i = 0; i < result->size; i++) {
    int half = ((const uint8_t *)tensor->data)[i / 2] >> i % 2 * 4 & 0xF;
    result_data(result)[i] = (char)(has_sign && half > 7 ? half - 16 : half);
  }
  return result;
}

/* The lower halves of bytes. */
static const Tensor *packed(const Evaluation *evaluation, const Tensor *bytes, DType dtype) {
  Arena *arena = &evaluation->context->arena;
  if (!bytes) return NULL;
  tensor_ready(bytes);
  Tensor *result = arena_new(arena, Tensor);
  *result = (Tensor){.dtype = dtype, .rank = bytes->rank, .dims = bytes->dims, .size = dtype_bytes(dtype, bytes->size)};
  result->data = arena_alloc(arena, result->size ? result->size : 1);
  for (size_t i = 0; i < bytes->size; i++) {
    result_data(result)[i / 2] |= (char)((((const uint8_t *)bytes->data)[i] & 0xF) << i % 2 * 4);
  }
  return result;
}

/* Integers of other widths, each of which 4 bits hold; NULL: one is larger, or they are no integers. */
static const Tensor *packed_integers(const Evaluation *evaluation, const Tensor *x, DType dtype) {
  bool has_sign = dtype == DTYPE_INT4;
  if (!dtype_is_integer(x->dtype) || !plain(x)) return NULL;
  Evaluation wide = {.context = evaluation->context, .largest = x->size};
  Tensor *bytes = evaluate_result(&wide, DTYPE_INT8, x->dims, x->rank);
  if (!bytes) return NULL;
  tensor_ready(x);
  for (int64_t i = 0; i < tensor_count(x); i++) {
    int64_t number = tensor_int_at(x, i);
    if (number < (has_sign ? -8 : 0) || number > (has_sign ? 7 : 15)) return NULL;
    result_data(bytes)[i] = (char)number;
  }
  return packed(evaluation, bytes, dtype);
}

/* Another shape for the same data. */
static const Tensor *rename_packed(const Evaluation *evaluation, const Tensor *x, int64_t count) {
  Tensor bytes = {.dtype = DTYPE_INT8, .rank = x->rank, .dims = x->dims, .data = &bytes, .size = (size_t)count};
  const Tensor *inputs[] = {&bytes, evaluate_input(evaluation, 1)};
  Evaluation wide = *evaluation;
  wide.inputs = inputs;
  wide.input_count = evaluation->input_count > 1 ? 2 : 1;
  wide.largest = (size_t)count;
  const Tensor *shape = evaluate_plain(&wide);
  if (!shape) return NULL;
  Tensor *result = arena_copy(&evaluation->context->arena, x, sizeof *x);
  result->rank = shape->rank;
  result->dims = shape->dims;
  result->name = NULL;
  return result;
}

/* Moved, or cast to another type, they are so as bytes. */
static const Tensor *evaluate_packed(const Evaluation *evaluation, const Tensor *x) {
  const Node *node = evaluation->node;
  int64_t count = packed_count(x);
  if (count < 0 || (uint64_t)count > SIZE_MAX / 2) return NULL;
  if (node_has(node, RENAMES)) return rename_packed(evaluation, x, count);
  if (!node_is(node, OP_Transpose) && !node_is(node, OP_Cast)) return NULL;
  const Tensor *bytes = unpacked(evaluation, x, count);
  Evaluation wide = *evaluation;
  wide.inputs = &bytes;
  wide.input_count = 1;
  if (node_is(node, OP_Cast)) return bytes ? evaluate_plain(&wide) : NULL;
  wide.largest = (size_t)count;
  return bytes ? packed(evaluation, evaluate_plain(&wide), x->dtype) : NULL;
}

const Tensor *evaluate_node(const Evaluation *evaluation) {
  const Node *node = evaluation->node;
  if ((node->domain[0] && !node_is(node, OP_Narrow)) || node->output_count != 1) return NULL;
  const Tensor *first = evaluate_input(evaluation, 0);
  DType to = node->outputs[0]->type.dtype;
  bool bytes = first && (first->dtype == DTYPE_INT8 || first->dtype == DTYPE_UINT8) && plain(first);
  if (first && is_packed(first->dtype)) return evaluate_packed(evaluation, first);
  if (node_is(node, OP_Cast) && is_packed(to))
    return bytes ? packed(evaluation, first, to) : first ? packed_integers(evaluation, first, to) : NULL;
  return evaluate_plain(evaluation);
}
