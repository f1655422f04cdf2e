/* Attention while it is read: what was found on the way back through the operators, and what becomes of its axes. */
#ifndef J2O_PASSES_FUSE_ATTENTION_READING_H
#define J2O_PASSES_FUSE_ATTENTION_READING_H

#include "passes/fuse/attention_parts.h"

typedef struct Chain {
  Node *nodes[LONGEST_CHAIN]; /* the last operator first */
  Term *terms[LONGEST_CHAIN]; /* what is applied there, or NULL */
  size_t count;
  Value *source; /* what the first of them reads */
} Chain;

typedef struct Reading {
  Match *match;
  Scores scores;
  Chain of_result, of_weights, of_scores;
  Node *first, *second; /* the products */
  size_t query_side, weights_side;
  int64_t softmax_axis;
  Axes score_axes, weight_axes, result_axes;
  Axis query_features, value_features;
  AtomSet missing; /* of the batch, which all have the same queries */
  Term factor;     /* of the queries, not known before run time; no value: there is none */
  bool is_quotient;
  size_t followed; /* operators after the second product whose axes are followed; the others are left as they are */
} Reading;

/* An operand, what its axes stand for, and how it gets those that are wanted. */
typedef struct Operand {
  Value *value;
  Axes axes;
  double scale;     /* that goes out of it */
  bool keeps_scale; /* it does not */
  Arrangement placed;
  int cost; /* operators that do, less those that go */
} Operand;

static inline bool is_scaled(const Node *node) { return node_is(node, OP_Mul) || node_is(node, OP_Div); }
/* The side that is not the number, which a quotient has on the right. attention_scores.c */
bool read_factor(const Node *node, size_t *side, double *factor);
/* From as far back as saves the most operators: moved axes and scales on the way are left out. */
bool place_operand(Reading *reading, Operand *operand, const Axes *want);
/* Which axes Attention gets, and in which order; false when it has none for them. attention_layout.c */
bool choose_layout(Reading *reading, const Operand operands[3], Layout *layout);

#endif
