/* What the files about normalisations share. */
#ifndef J2O_PASSES_FUSE_NORMALIZATION_H
#define J2O_PASSES_FUSE_NORMALIZATION_H

#include "passes/pattern.h"

/* x, or x less its mean, divided by the root of the mean square and a little. */
typedef struct Normalized {
  Value *x;     /* before it was widened */
  Value *scale; /* multiplied with it on the way, or NULL */
  double epsilon;
  bool is_centred;
  bool axes[MAX_RANK]; /* that means are taken over */
} Normalized;

/* Reads the match's root, a Mul or a Div, and takes what the match alone reads. normalization_parts.c */
bool read_normalized(Match *match, Normalized *normalized);

#endif
