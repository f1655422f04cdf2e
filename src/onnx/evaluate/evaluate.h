/* Evaluate: computes one node whose inputs are known, as ONNX defines it.
 *
 * Integers are exact and wrap around; floats are computed in double and rounded once to their type, which for the
 * basic operations is the same as computing in the type itself. What the standard leaves open (a division by zero, a
 * NaN cast to an integer, a shift beyond the width) is not computed.
 */
#ifndef J2O_ONNX_EVALUATE_EVALUATE_H
#define J2O_ONNX_EVALUATE_EVALUATE_H

#include "onnx/graph/graph.h"

typedef struct Evaluation {
  Context *context;
  const Node *node;
  const Tensor *const *inputs; /* NULL entries: optional inputs left out */
  size_t input_count;
  int64_t opset;
  size_t largest; /* bytes of the result */
} Evaluation;

/* The value of the node's only output; NULL when it cannot be known here or would be too large. */
const Tensor *evaluate_node(const Evaluation *evaluation);

/* Families (evaluate_*.c), each closed by a row without an operator. */
typedef const Tensor *EvaluateFunction(const Evaluation *evaluation);

typedef struct EvaluateRow {
  Op op;
  EvaluateFunction *evaluate;
} EvaluateRow;

extern const EvaluateRow evaluate_elementwise[], evaluate_movement[], evaluate_reductions[], evaluate_products[];

/* What families share: reading arguments and making results. */
const Tensor *evaluate_input(const Evaluation *evaluation, size_t index); /* NULL past the end */
size_t tensor_width(const Tensor *tensor);                                /* bytes of an element; 0: packed or none */
int64_t tensor_count(const Tensor *tensor);
int64_t tensor_int_at(const Tensor *tensor, int64_t index);
/* The numbers of an integer tensor; false when it is not one of at most `most`. */
bool tensor_ints(const Tensor *tensor, int64_t *numbers, size_t most, size_t *count);
/* A zeroed result; NULL when it would be too large. Its data may be written until it is returned. */
Tensor *evaluate_result(const Evaluation *evaluation, DType dtype, const int64_t *dims, size_t rank);
static inline char *result_data(Tensor *tensor) { return (char *)(uintptr_t)tensor->data; }
/* An axis that may be negative, made valid; -1 when it is not. */
int64_t evaluate_axis(int64_t axis, size_t rank);
/* The shape that NumPy gives operands together; false when they do not fit. */
bool broadcast_dims(const Tensor *const *operands, size_t count, int64_t *dims, size_t *rank);
/* Strides in elements of an operand read in a shape that it broadcasts to: 0 along repeated axes. */
void broadcast_strides(const Tensor *operand, size_t rank, int64_t *strides);

/* Walks all positions of a shape in order, the last axis fastest. */
typedef struct Walk {
  size_t rank;
  const int64_t *dims;
  int64_t index[2 * MAX_RANK];
} Walk;
/* Moves on; false at the end. offsets[k] += the stride of operand k, for each of `operands` operands. */
bool walk_next(Walk *walk, size_t operands, const int64_t (*strides)[2 * MAX_RANK], int64_t *offsets);

#endif
