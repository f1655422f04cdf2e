/* Affine sums: what a step of a loop adds up from products with constant matrices, and from constants.
 *
 * A recurrent cell computes each gate so, in many spellings: one product for all gates or one for each, the products of
 * all steps before the loop, matrices from either side, biases anywhere. Read as a list of terms they are all alike. */
#ifndef J2O_PASSES_ANALYSIS_AFFINE_H
#define J2O_PASSES_ANALYSIS_AFFINE_H

#include "passes/rewrite.h"

enum { AFFINE_TERMS = 8 };

/* factor times features of source times matrix, or with no source the matrix itself: a bias. */
typedef struct AffineTerm {
  Value *source;        /* a value of the step, or one of all steps around the loop, steps first */
  bool batch_first;     /* ... or its batch axis first */
  const Tensor *matrix; /* features of the source by features of the sum */
  bool transposed;      /* the other way round */
  int64_t offset;       /* the features wanted begin here */
  int64_t first_input;  /* and the features of the source here, where it was joined with others */
  double factor;        /* of the whole term */
} AffineTerm;

typedef struct Affine {
  AffineTerm terms[AFFINE_TERMS];
  size_t count;
  Value *product; /* one summand may be an elementwise product in place of a term, when it is asked for */
  bool takes_product;
} Affine;

/* Some features of a value of the Scan's body, which has them last. */
typedef struct Lane {
  Value *value;
  int64_t offset; /* of the first */
} Lane;

/* Reads factor times the `length` features of a lane. False when it is anything but an affine sum. */
bool affine_read(const Node *scan, Lane lane, int64_t length, double factor, Affine *sum);

/* The value before it was cast between float32 and a half. */
Value *affine_bare(Value *value);
/* The same of a lane, and the value that Split and Slice took its features from. */
Lane affine_lane(Value *value);

/* Copies the term's matrix, features of the sum first: `features` rows of `inputs` numbers. */
void affine_copy(const AffineTerm *term, float *to, int64_t features, int64_t inputs);
/* Adds the term, a bias, to `features` numbers. */
void affine_add(const AffineTerm *term, float *to, int64_t features);

#endif
