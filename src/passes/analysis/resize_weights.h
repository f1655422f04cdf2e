/* What Resize computes with: the weights of each method, the neighbours, and the orders of axes that run. */
#ifndef J2O_PASSES_ANALYSIS_RESIZE_WEIGHTS_H
#define J2O_PASSES_ANALYSIS_RESIZE_WEIGHTS_H

#include "onnx/graph/graph.h"

typedef enum ResizeKind {
  RESIZE_NONE,
  RESIZE_REPEAT,          /* every element a whole number of times */
  RESIZE_NEAREST,         /* the element whose middle is nearest, the later one when there are two */
  RESIZE_LINEAR,          /* between the two around it */
  RESIZE_CUBIC,           /* between the four around it; weights outside are left out */
  RESIZE_CUBIC_ANTIALIAS, /* over as many more as the image is reduced by */
  RESIZE_LINEAR_ANTIALIAS,
} ResizeKind;

static inline bool resize_is_cubic(ResizeKind kind) { return kind == RESIZE_CUBIC || kind == RESIZE_CUBIC_ANTIALIAS; }
static inline bool resize_is_antialias(ResizeKind kind) {
  return kind == RESIZE_CUBIC_ANTIALIAS || kind == RESIZE_LINEAR_ANTIALIAS;
}
static inline bool resize_is_nearest(ResizeKind kind) { return kind == RESIZE_REPEAT || kind == RESIZE_NEAREST; }

enum { LARGEST_WEIGHTS = 2 << 20 /* bytes of a matrix */ };

/* The method whose weights the matrix is, [to, from] when rows are results, else [from, to]; RESIZE_NONE: of none. Its
 * elements may have been rounded to `rounded`. */
ResizeKind resize_kind_of_matrix(const Tensor *matrix, bool rows_are_results, DType rounded);
/* The same of the indices of an axis of size `from`. */
ResizeKind resize_kind_of_indices(const Tensor *indices, int64_t from);
/* The scale that gives this size; 0: there is none. */
float resize_scale(int64_t from, int64_t to);
/* Does the target resize these axes of so many, also when it moves Transposes past it? It does not interpolate
 * cubically over channels last when one of them gets smaller. */
bool resize_runs_on(const Model *model, ResizeKind kind, uint32_t rank, const bool *changed, bool shrinks);

#endif
