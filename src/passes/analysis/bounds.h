/* Bounds: what is known about the numbers a value holds, from the operators and constants they come from. */
#ifndef J2O_PASSES_ANALYSIS_BOUNDS_H
#define J2O_PASSES_ANALYSIS_BOUNDS_H

#include "onnx/graph/graph.h"

typedef struct Bounds {
  double least, greatest; /* every element that is not a NaN lies between them, ends included */
} Bounds;

/* False when nothing is known. Integers are never assumed to wrap: where they might, nothing is known. */
bool value_bounds(const Value *value, Bounds *bounds);

#endif
