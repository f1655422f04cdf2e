/* Evaluate: small products of matrices. Floats accumulate in double and are rounded at the end; a large product is left
 * to the runtime, and so is one of parameters, which stay what they are called. */
#include "base/bytes.h"
#include "onnx/evaluate/evaluate.h"
#include "types/numbers.h"

enum { MOST_PRODUCTS = 1 << 16 }; /* of two numbers */

/* An operand of at least two axes: a vector is a row on the left, a column on the right. */
typedef struct Factor {
  Tensor batch; /* the axes before the last two, whose elements are matrices */
  int64_t rows, columns;
  const Tensor *tensor;
} Factor;

static Factor factor_of(const Tensor *tensor, bool is_left) {
  Factor factor = {.batch = *tensor, .tensor = tensor};
  factor.batch.rank = tensor->rank > 2 ? tensor->rank - 2 : 0;
  factor.columns = tensor->rank > 1 || is_left ? tensor->dims[tensor->rank - 1] : 1;
  factor.rows = tensor->rank > 1 ? tensor->dims[tensor->rank - 2] : is_left ? 1 : tensor->dims[0];
  return factor;
}

/* Of a row of the left operand, over all its matrices, and a column that begins at an element of the right one. */
static uint64_t dot(const Factor *left, const Factor *right, int64_t row, int64_t column) {
  DType dtype = left->tensor->dtype;
  size_t width = tensor_width(left->tensor);
  double real = 0;
  uint64_t integer = 0;
  for (int64_t i = 0; i < left->columns; i++) {
    const char *a = (const char *)left->tensor->data + (size_t)(row * left->columns + i) * width;
    const char *b = (const char *)right->tensor->data + (size_t)(i * right->columns + column) * width;
    if (dtype_is_float(dtype)) real += number_decode(dtype, a) * number_decode(dtype, b);
    else integer += (uint64_t)number_decode_int(dtype, a) * (uint64_t)number_decode_int(dtype, b);
  }
  return dtype_is_float(dtype) ? number_encode(dtype, real) : integer;
}

/* Is it few numbers? The count is of the result. */
static bool is_small(int64_t count, int64_t depth) {
  return count <= MOST_PRODUCTS && depth <= MOST_PRODUCTS / (count ? count : 1);
}

static const Tensor *evaluate_matmul(const Evaluation *evaluation) {
  const Tensor *a = evaluate_input(evaluation, 0), *b = evaluate_input(evaluation, 1);
  int64_t dims[MAX_RANK], strides[2][2 * MAX_RANK], at[2] = {0};
  size_t rank;
  if (!a || !b || !a->rank || !b->rank || a->dtype != b->dtype || a->dtype <= DTYPE_BOOL) return NULL;
  if (a->dtype > DTYPE_FLOAT64 || a->name || b->name || a->made_of || b->made_of) return NULL;
  Factor left = factor_of(a, true), right = factor_of(b, false);
  if (left.columns != right.rows || !a->size || !b->size) return NULL;
  if (!broadcast_dims((const Tensor *[]){&left.batch, &right.batch}, 2, dims, &rank) || rank > MAX_RANK - 2)
    return NULL;
  size_t batch_rank = rank;
  broadcast_strides(&left.batch, rank, strides[0]);
  broadcast_strides(&right.batch, rank, strides[1]);
  if (a->rank > 1) dims[rank++] = left.rows;
  if (b->rank > 1) dims[rank++] = right.columns;
  Tensor *result = evaluate_result(evaluation, a->dtype, dims, rank);
  if (!result || !is_small(tensor_count(result), left.columns)) return NULL;
  char *to = result_data(result);
  Walk walk = {.rank = batch_rank, .dims = dims};
  do {
    for (int64_t i = 0; i < left.rows * right.columns; i++, to += tensor_width(result)) {
      int64_t row = at[0] * left.rows + i / right.columns;
      uint64_t bits = dot(&left, &right, row, at[1] * right.rows * right.columns + i % right.columns);
      copy_bytes(to, &bits, tensor_width(result));
    }
  } while (walk_next(&walk, 2, (const int64_t (*)[2 * MAX_RANK]) strides, at));
  return result;
}

const EvaluateRow evaluate_products[] = {
    {OP_MatMul, evaluate_matmul},
    {OP_NONE, NULL},
};
