/* Affine sums: what a step of a loop adds up from products with constant matrices, and from constants.
 *
 * A recurrent cell computes each gate so, in many spellings: one product for all gates or one for each, the products of
 * all steps before the loop, matrices from either side, biases anywhere. Read as a list of terms they are all alike. */
#ifndef J2O_PASSES_ANALYSIS_AFFINE_H
#define J2O_PASSES_ANALYSIS_AFFINE_H

#include "passes/analysis/views.h"

enum { AFFINE_TERMS = 8 };

typedef enum AffineKind {
  AFFINE_BIAS,    /* the constant itself */
  AFFINE_PRODUCT, /* the features of the source times a matrix */
  AFFINE_SCALED,  /* each feature of the source times a number of its own */
} AffineKind;

typedef struct AffineTerm {
  AffineKind kind;
  View source;          /* of a product: all of a value of the step, or of all steps around the loop */
  const Tensor *matrix; /* where its elements are: */
  int64_t first;        /* the first one, */
  int64_t by_feature;   /* how far the next feature of the sum is, */
  int64_t by_input;     /* and the next of the source */
  double factor;        /* of the whole term */
} AffineTerm;

typedef struct Affine {
  AffineTerm terms[AFFINE_TERMS];
  size_t count;
  View product; /* one summand may be an elementwise product in place of a term, when it is asked for; or no value */
  bool takes_product;
} Affine;

/* Reads factor times what is seen. False when it is anything but an affine sum. */
bool affine_read(const ViewFrame *frame, const View *view, double factor, Affine *sum);

/* Adds the term's matrix, features of the sum first, to `features` rows of `inputs` numbers. */
void affine_add_matrix(const AffineTerm *term, float *to, int64_t features, int64_t inputs);
/* Adds the term, one number a feature, to `features` numbers. */
void affine_add(const AffineTerm *term, float *to, int64_t features);

#endif
