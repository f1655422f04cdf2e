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
static bool is_only_moved(const Node *node) { return node_has(node, RENAMES) || node_is(node, OP_Transpose); }

const Tensor *evaluate_node(const Evaluation *evaluation) {
  const Node *node = evaluation->node;
  if ((node->domain[0] && !node_is(node, OP_Narrow)) || node->output_count != 1) return NULL;
  for (size_t i = 0; i < evaluation->input_count; i++) {
    if (evaluation->inputs[i] && !plain(evaluation->inputs[i])) return NULL;
    if (evaluation->inputs[i] && !(i == 0 && is_only_moved(node))) tensor_ready(evaluation->inputs[i]);
  }
  const EvaluateRow *const families[] = {evaluate_elementwise, evaluate_movement, evaluate_reductions};
  for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
    EvaluateFunction *function = find(families[i], node->op);
    if (function) return function(evaluation);
  }
  return NULL;
}
