/* Operators: one row each (operators.inc) gives an enum, arity, attributes and traits.
 *
 * Lowering and passes name an operator by its enum, so that a misspelt one does not compile, and ask about its traits
 * instead of keeping lists.
 */
#ifndef J2O_ONNX_FACTS_OPERATORS_H
#define J2O_ONNX_FACTS_OPERATORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum Op {
  OP_NONE, /* of another domain, or newer than this table: only its name is known */
#define OPERATOR(name, ...) OP_##name,
#include "onnx/facts/operators.inc"
  OP_STANDARD_END, /* no operator */
#include "onnx/facts/composites.inc"
#undef OPERATOR
  OP_COUNT
} Op;

/* Composites (composites.inc) have a domain of their own, so that no text takes them for operators of the standard. */
#define COMPOSITE_DOMAIN "jax2onnx.composite"

typedef enum OpTrait {
  ELEMENTWISE = 1 << 0, /* an element of the result depends on one element of each input, those of its place */
  BROADCASTS = 1 << 1,  /* all inputs broadcast against each other, as NumPy's do */
  COMMUTES = 1 << 2,    /* its inputs may change places; of floats Max and Min choose among NaNs and zeros by order */
  INVOLUTION = 1 << 3,  /* applied twice it gives back its input, exactly */
  COMPARES = 1 << 4,    /* two inputs, a boolean */
  PREDICATE = 1 << 5,   /* a boolean of numbers */
  RENAMES = 1 << 6,     /* the elements of the first input in the same order, in another shape */
  MOVES = 1 << 7,       /* elements of the first input in other places, none computed */
  REDUCES = 1 << 8,     /* axes (an input or an attribute) and keepdims */
  HAS_BODY = 1 << 9,    /* an attribute is a graph */
  LOOPS = 1 << 10,      /* and it may run more than once */
  RANDOM = 1 << 11,     /* two runs differ */
  RECURRENT = 1 << 12,  /* LSTM and its kin */
  NORMALIZES = 1 << 13, /* mean and variance, or length, become 0 and 1 */
  CONVOLVES = 1 << 14,  /* a window of weights slides over the axes behind the first two */
  COMPOSITE = 1 << 16,  /* of our own: expanded before a model is written */
  POOLS = 1 << 15,      /* a window without weights */
} OpTrait;

/* The element that changes nothing, as the second operand or, where the operator commutes, as either. */
typedef enum Neutral { NO_NEUTRAL, ZERO, POSITIVE_ZERO, NEGATIVE_ZERO, ONE, ALL_BITS, LOWEST, HIGHEST } Neutral;

enum { MANY = UINT16_MAX };

typedef struct Operator {
  const char *name;
  uint16_t least_inputs, most_inputs, least_outputs, most_outputs;
  const char *attributes;                /* as operators.inc says */
  uint32_t traits;                       /* of OpTrait */
  Neutral neutral_integer, neutral_real; /* of integers and booleans, and of floats */
} Operator;

extern const Operator operators[OP_COUNT];

Op op_from_name(const char *name, const char *domain); /* OP_NONE when there is no such operator */

static inline const char *op_name(Op op) { return operators[op].name; }
static inline bool op_has(Op op, uint32_t traits) { return (operators[op].traits & traits) == traits; }

#endif
