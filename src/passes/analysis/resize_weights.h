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
} ResizeKind;

static inline bool resize_is_nearest(ResizeKind kind) { return kind == RESIZE_REPEAT || kind == RESIZE_NEAREST; }

enum { LARGEST_WEIGHTS = 2 << 20 /* bytes of a matrix */ };

/* The method whose weights the matrix is, [to, from] when rows are results, else [from, to]; RESIZE_NONE: of none. ONNX
 * Runtime's linear antialiasing is another than JAX's, and is left out. */
ResizeKind resize_kind_of_matrix(const Tensor *matrix, bool rows_are_results);
/* The same of the indices of an axis of size `from`. */
ResizeKind resize_kind_of_indices(const Tensor *indices, int64_t from);
/* The scale that gives this size; 0: there is none. */
float resize_scale(int64_t from, int64_t to);
/* Does the target resize these axes of so many, also when it moves Transposes past it? It does not interpolate
 * cubically over channels last when one of them gets smaller. */
bool resize_runs_on(const Model *model, ResizeKind kind, uint32_t rank, const bool *changed, bool shrinks);

#endif
