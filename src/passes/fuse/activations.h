/* What the files about activations share. */
#ifndef J2O_PASSES_FUSE_ACTIVATIONS_H
#define J2O_PASSES_FUSE_ACTIVATIONS_H

#include "passes/pattern.h"

/* Gelu, and Sigmoid by Tanh, in any order of their products and sums. gated_activations.c */
bool fuse_gated(Match *match);

#endif
