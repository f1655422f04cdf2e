/* Signature: how many inputs and outputs a version of an operator takes, and of which element types.
 *
 * The rows are generated (tools/generate_operators.py), for the versions in force from opset 13 on.
 */
#ifndef J2O_ONNX_FACTS_SIGNATURE_H
#define J2O_ONNX_FACTS_SIGNATURE_H

#include "onnx/facts/operators.h"
#include "types/dtype.h"

enum { SIGNATURE_OLDEST_OPSET = 13, SIGNATURE_TYPES = 5 };

typedef struct Signature {
  Op op;
  int32_t version;
  uint16_t least_inputs, most_inputs, least_outputs, most_outputs;
  /* A letter for each parameter, inputs then '>' then outputs: those with the same letter have the same element type.
   * Behind it '?': may be left out; '*': any number of them; '+': any number, each with a type of its own. */
  const char *parameters;
  /* Of the letters a, b, …: a bit per DType; that of DTYPE_NONE: also what is not a tensor. */
  uint32_t types[SIGNATURE_TYPES];
} Signature;

/* The row in force at the opset; NULL when there is none, or the operator was withdrawn. */
const Signature *signature_of(Op op, int64_t opset);

/* An attribute of operators.inc, as of an opset. */
typedef struct AttributeFact {
  const char *name;
  size_t length;
  char kind; /* i f s t g, capitals for lists, p a type */
  bool required;
  int64_t first, last; /* opsets that have it */
} AttributeFact;

/* Reads the next one of operators[op].attributes; *at starts there. False after the last. */
bool attribute_fact_next(const char **at, AttributeFact *fact);

#endif
