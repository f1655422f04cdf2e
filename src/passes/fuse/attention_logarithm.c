/* Weights exp(x - logsumexp(x)) of rows of which nothing is kept.
 *
 * Beside a number as low as that of a mask the logarithm of a sum is lost: each of the lowest numbers then has a weight
 * of 1, and their sum is not 1 but as many as there are. Attention gives the mean of the values there; times that sum
 * it is what the program computes. In every other row the sum is 1. */
#include "onnx/facts/schema.h"
#include "passes/fuse/attention_parts.h"

static Type row_type(Match *match, Type mask, DType dtype) {
  Dim dims[MOST_AXES];
  for (uint32_t i = 0; i < mask.rank; i++) dims[i] = i + 1 == mask.rank ? dim_of(1) : mask.dims[i];
  return type_make(match->rewriter->context, dtype, dims, mask.rank);
}

static Value *reduced(Match *match, Op op, Value *value, Type type) {
  int64_t last = (int64_t)value->type.rank - 1;
  Value *axes = rewrite_constant_ints(match->rewriter, match->root, &last, 1, match->root->origin);
  Node *node = EMIT_BEFORE(match, op, type, value, axes);
  node_set_int(node, "keepdims", 1);
  return node->outputs[0];
}

/* How many elements of a row are as large as the largest. */
static Value *count_of(Match *match, Value *mask, Value *most) {
  Value *is_most = EMIT_BEFORE(match, OP_Equal, type_with(mask->type, DTYPE_BOOL), mask, most)->outputs[0];
  Node *ones = EMIT_BEFORE(match, OP_Cast, mask->type, is_most);
  node_set_int(ones, "to", onnx_dtype(DTYPE_FLOAT32));
  return reduced(match, OP_ReduceSum, ones->outputs[0], most->type);
}

/* count * exp(most - (most + log(count))), as it is rounded. */
static Value *sum_of_weights(Match *match, Value *most, Value *count) {
  Type type = most->type;
  Value *logarithm = EMIT_BEFORE(match, OP_Log, type, count)->outputs[0];
  Value *total = EMIT_BEFORE(match, OP_Add, type, most, logarithm)->outputs[0];
  Value *difference = EMIT_BEFORE(match, OP_Sub, type, most, total)->outputs[0];
  Value *weight = EMIT_BEFORE(match, OP_Exp, type, difference)->outputs[0];
  return EMIT_BEFORE(match, OP_Mul, type, count, weight)->outputs[0];
}

/* Over the axes of the result; a mask of four has one for the heads, which the three of the result do not have. */
static Value *over_result(Match *match, Value *sums, Type result) {
  const int64_t heads = 1;
  if (sums->type.rank < 4 || result.rank == 4) return sums;
  const Dim dims[] = {sums->type.dims[0], sums->type.dims[2], sums->type.dims[3]};
  Type type = type_make(match->rewriter->context, DTYPE_FLOAT32, dims, 3);
  Value *axes = rewrite_constant_ints(match->rewriter, match->root, &heads, 1, match->root->origin);
  return EMIT_BEFORE(match, OP_Squeeze, type, sums, axes)->outputs[0];
}

Value *times_sum_of_weights(Scores *scores, Value *result) {
  Match *match = scores->match;
  Value *mask = scores->added;
  if (!scores->loses_logarithm) return result;
  Value *most = reduced(match, OP_ReduceMax, mask, row_type(match, mask->type, DTYPE_FLOAT32));
  Value *count = count_of(match, mask, most);
  if (scores->least != 0) { /* what is added is lower, so that the score vanishes in it */
    Value *least =
        rewrite_constant_number(match->rewriter, match->root, DTYPE_FLOAT32, scores->least, match->root->origin);
    most = EMIT_BEFORE(match, OP_Max, most->type, most, least)->outputs[0];
  }
  Value *sums = over_result(match, sum_of_weights(match, most, count), result->type);
  return EMIT_BEFORE(match, OP_Mul, result->type, result, sums)->outputs[0];
}
