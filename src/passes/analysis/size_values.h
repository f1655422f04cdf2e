/* Sizes that a graph computes from the shapes of values. */
#ifndef J2O_PASSES_ANALYSIS_SIZE_VALUES_H
#define J2O_PASSES_ANALYSIS_SIZE_VALUES_H

#include "passes/rewrite.h"

/* The size that the value, of one element, is computed as; false: it is none, or not known to be one. */
bool read_size(Context *context, const Value *value, Dim *size);

#endif
