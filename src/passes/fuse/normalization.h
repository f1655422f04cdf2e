/* What the files about normalisations share. */
#ifndef J2O_PASSES_FUSE_NORMALIZATION_H
#define J2O_PASSES_FUSE_NORMALIZATION_H

#include "passes/pattern.h"

/* x, or x less its mean, divided by the root of the mean square and a little. */
typedef struct Normalized {
  Value *x;     /* before it was widened */
  Value *scale; /* multiplied with it on the way, or NULL */
  double share; /* what the whole is to be multiplied with: 1, but where squares were divided by another number */
  double epsilon;
  bool is_centred;
  bool axes[MAX_RANK]; /* that means are taken over */
  Node *renamed;       /* what gives x axes of size 1 more or less, when it is left to the end; or NULL */
} Normalized;

/* Reads the match's root, a Mul or a Div, and takes what the match alone reads. normalization_parts.c */
bool read_normalized(Match *match, Normalized *normalized);

/* What is normalised over all axes but the first and one other becomes an InstanceNormalization, which has these two
 * first; false: it cannot. normalization_by_channel.c */
bool fuse_by_channel(Match *match, const Normalized *normalized);
/* One axis that is not the last is moved to the end and back. The operator over the last axis has a scale for each of
 * its elements: is that what follows? */
bool fuse_inside(Match *match, const Normalized *normalized, Op op);
bool is_scaled_inside(const Match *match, const Normalized *normalized);
/* The value takes the place of the match: in its type, with its axes, times the scale where there is one. */
void replace_by_normalized(Match *match, const Normalized *normalized, Value *value);
/* A scale or a bias along one axis, around it and the Transpose after it, and Reshapes on both sides of a
 * LayerNormalization that leave alone what is normalised together. */
bool fuse_channel_scale(Match *match);
bool fuse_channel_bias(Match *match);
bool fuse_between_reshapes(Match *match);
/* The same where groups of channels are normalised together. */
bool fuse_groups_between_reshapes(Match *match);

/* Does the user want the operator also where it is less accurate? */
bool prefers_native(const Match *match);
/* The type that an operator is computed in: halves in float32 where the runtime has no kernel for them; or none. */
DType normalized_in(const Match *match, Op op, DType dtype);
/* Sizes in order, but for those of 1. */
bool differs_by_ones(Type a, Type b);
float epsilon_of(const Node *normalization);
/* The elements of a tensor times a number, into another of the same size. */
void tensor_multiply(Tensor *to, const Tensor *from, double number);

#endif
