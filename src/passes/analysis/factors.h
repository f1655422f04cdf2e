/* Factors: what the axes of a value are made of, when it is another value reshaped, transposed and reduced.
 *
 * Each axis of the source is a product of factors, the outermost first. A Reshape parts axes and joins them, a
 * Transpose changes their order, a reduction takes some away. However a program goes about it, the same elements in the
 * same places are the same factors.
 */
#ifndef J2O_PASSES_ANALYSIS_FACTORS_H
#define J2O_PASSES_ANALYSIS_FACTORS_H

#include "passes/rewrite.h"

enum { MOST_FACTORS = 24, MOST_FOLLOWED = 12 /* nodes */ };

typedef struct Factor {
  uint32_t axis; /* of the source */
  uint32_t at;   /* axis of the value */
  Dim size;      /* never 1 */
  Dim stride;    /* along the source's axis */
} Factor;

typedef struct Factors {
  uint32_t rank; /* of the value */
  size_t count, reduced_count;
  Factor all[MOST_FACTORS];     /* in the order of the elements */
  Factor reduced[MOST_FACTORS]; /* `at` means nothing */
} Factors;

/* Those of the source itself; false: its sizes are not known, or there are too many. */
bool factors_of(Type source, Factors *factors);
bool factors_reshape(Context *context, Factors *factors, Type to);
bool factors_transpose(Factors *factors, const int64_t *order, size_t rank);
/* Does the node only reshape, transpose or average its first input? */
bool is_followed(const Node *node);
/* After one more such node; false: its axes are not known. */
bool factors_follow(Context *context, Factors *factors, const Node *node);
/* Factors that lie side by side as they do in the source become one. */
void factors_join(Context *context, Factors *factors);
bool factors_equal(const Factors *a, const Factors *b);

/* A node and those before it that each feed the next alone. */
typedef struct FactorChain {
  Node *nodes[MOST_FOLLOWED]; /* the last first */
  size_t count;
} FactorChain;

FactorChain factor_chain(Node *last);
/* The factors after the last `length` nodes of the chain, joined, of what the first of those reads. */
bool factors_of_chain(Context *context, const FactorChain *chain, size_t length, Factors *factors);

#endif
