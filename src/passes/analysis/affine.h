/* Affine sums: what a step of a loop adds up from products with constant matrices, and from constants.
 *
 * A recurrent cell computes each gate so, in many spellings: one product for all gates or one for each, the products of
 * all steps before the loop, matrices from either side, biases anywhere. Read as a list of terms they are all alike. */
#ifndef J2O_PASSES_ANALYSIS_AFFINE_H
#define J2O_PASSES_ANALYSIS_AFFINE_H

#include "passes/rewrite.h"

enum { AFFINE_TERMS = 8 };

/* features of source times matrix, or with no source the matrix itself: a bias. */
typedef struct AffineTerm {
  Value *source;        /* a value of the step, or one of all steps around the loop, steps first */
  bool batch_first;     /* ... or its batch axis first */
  const Tensor *matrix; /* features of the source by features of the sum */
  bool transposed;      /* the other way round */
  int64_t offset;       /* the features wanted begin here */
  int64_t first_input;  /* and the features of the source here, where it was joined with others */
} AffineTerm;

typedef struct Affine {
  AffineTerm terms[AFFINE_TERMS];
  size_t count;
  Value *product; /* one summand may be an elementwise product in place of a term, when it is asked for */
  bool takes_product;
} Affine;

/* Reads the `length` features of value, a value of the Scan's body with its features last, from `offset` on. False when
 * it is anything but an affine sum. */
bool affine_read(const Node *scan, Value *value, int64_t offset, int64_t length, Affine *sum);

/* The value before it was cast between float32 and a half. */
Value *affine_bare(Value *value);

/* Copies the term's matrix, features of the sum first: `features` rows of `inputs` numbers. */
void affine_copy(const AffineTerm *term, float *to, int64_t features, int64_t inputs);
/* Adds the term, a bias, to `features` numbers. */
void affine_add(const AffineTerm *term, float *to, int64_t features);

#endif
