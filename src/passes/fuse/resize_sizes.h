/* Sizes of an image that is resized, put together when the model runs. */
#ifndef J2O_PASSES_FUSE_RESIZE_SIZES_H
#define J2O_PASSES_FUSE_RESIZE_SIZES_H

#include "passes/rewrite.h"

enum { MOST_SIZES = 9 };

typedef struct ResultSize {
  bool changes;
  Dim size;
  Value *computed; /* where it changes to a size that is not known: a scalar */
} ResultSize;

/* A vector of them for x, made before root. */
Value *emit_result_sizes(Rewriter *rewriter, Node *root, Value *x, const ResultSize *sizes);

#endif
