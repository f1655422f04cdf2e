/* What is read of softmax(scale * Q Kᵀ + bias, masked) V, and what becomes of it. */
#ifndef J2O_PASSES_FUSE_ATTENTION_PARTS_H
#define J2O_PASSES_FUSE_ATTENTION_PARTS_H

#include "passes/fuse/attention.h"
#include "passes/fuse/attention_axes.h"

enum { MOST_TERMS = 6, MOST_CONDITIONS = 8, LONGEST_CHAIN = 16 };

/* A condition that must hold for a score to be kept; when inverted, one that must not. */
typedef struct Condition {
  Value *value;
  Axes axes;
  bool inverted;
  Arrangement placed;
} Condition;

/* What is done to scores on their way to the softmax: a number takes the place of some, or a bias is added to all. */
typedef struct Term {
  Value *value; /* the mask or the bias */
  Value
      *numbers; /* that the mask became before it was applied, with axes of size 1 put in; NULL: it is applied itself */
  Axes axes;
  bool is_mask, inverted;
  double fill;                      /* of a mask: what stands in place of a score that is put out */
  DType dtype;                      /* of the scores then */
  double factor;                    /* of a bias */
  Condition condition;              /* the mask, or the bias, as a whole */
  Condition parts[MOST_CONDITIONS]; /* or all that must hold */
  size_t part_count;
} Term;

/* The axes that Attention gets. */
typedef struct Layout {
  Axes query, keys, values, result, mask;
  int64_t heads; /* where heads and features share an axis, else 0 */
} Layout;

typedef struct Scores {
  Match *match;
  Atoms atoms;
  double scale, cap; /* cap: 0 for none */
  Term terms[MOST_TERMS];
  size_t term_count;         /* the last that is applied first */
  Term zeroed;               /* masks the weights once more, after the softmax; no value: nothing does */
  bool is_zeroed_by_product; /* a NaN stays one */
  Term triangle;             /* leaves of the weights what is not above a diagonal; no value: nothing does */
  int64_t diagonal;
  bool is_by_logarithm;    /* the weights are exp(x - logsumexp(x)) */
  bool loses_logarithm;    /* and their sum may be another than 1 */
  double least;            /* where it does: the number that takes the place of scores, if it is not so low; else 0 */
  bool is_masked_row_zero; /* the result of a row of which nothing is kept */
  bool has_kept_rows;      /* there is no such row */
  Dim rows, columns;
  Axis row, key;       /* the atoms of rows and columns */
  Axes wanted;         /* of the mask */
  Value *query, *keys; /* as Attention gets them, once they are made */
  Value *added;        /* what is added to scores, once it is made; rows of -inf are still numbers in it */
} Scores;

/* How Attention masks, and what it is then given. */
typedef enum MaskUse { MASK_NONE, MASK_CAUSAL, MASK_KEPT, MASK_ADDED, MASK_UNFIT } MaskUse;

/* scores * kept + (1 - kept) * fill */
typedef struct Blend {
  Node *product; /* of the scores, which are its input at `side` */
  size_t side;
  Value *mask, *numbers; /* numbers: 1 or 0 by the mask, which may have fewer axes of size 1; NULL for a constant */
  bool inverted;
  double fill;
} Blend;

/* What an Add or a Sub is, when it is that. attention_blend.c */
bool read_blend(Match *match, const Node *sum, Blend *blend);
/* What a factor is that is 1 or 0: its mask, numbers and whether it is inverted. */
bool read_kept(Match *match, Value *factor, Blend *blend);
/* From the axes of numbers to those of the mask that they were made of. attention_masks.c */
bool follow_back_to_mask(Atoms *atoms, const Value *numbers, const Value *mask, Axes *axes);
/* Takes masks apart; false when one cannot be read. attention_masks.c */
bool read_masks(Scores *scores);
/* The atoms that a mask or a bias varies with. */
AtomSet term_atoms(const Term *term);
/* The atoms that all of them vary with. */
AtomSet masked_atoms(const Scores *scores);
/* What to make of masks and biases, which are to get these axes. Nothing is made yet. */
MaskUse plan_masks(Scores *scores, const Axes *layout);
/* The mask that Attention gets: boolean, or of float32 to be added; NULL for none. */
Value *attention_mask(Scores *scores, MaskUse use);
/* The result of Attention times the sum of the weights, where that may be another than 1. attention_logarithm.c */
Value *times_sum_of_weights(Scores *scores, Value *result);
/* softmax(Q Kᵀ) V, however the axes are arranged. attention_scores.c */
bool fuse_attention_scores(Match *match);
/* sum(x * y) before a softmax or of its result, as a MatMul. attention_sums.c */
bool fuse_summed_product(Match *match);
bool fuse_vector_product(Match *match);
bool fuse_causal_mask(Match *match);
/* Fewer heads of keys and values than of queries. attention_groups.c */
bool fuse_repeated_heads(Match *match);
bool fuse_repeated_rows(Match *match);

/* Keys and values as those of earlier positions, and what is joined to them. attention_caches.c */
typedef struct Caches {
  Node *concat[2];
  Value *past[2], *fresh[2];
} Caches;

/* False when an Attention over four axes, of the match, has none that it could join itself. */
bool read_caches(const Match *match, const Node *attention, Caches *caches);
/* It takes the place of the match and joins queries' keys and values to the caches. */
Node *match_emit_cached(Match *match, const Node *attention, const Caches *caches, Value *const operands[3]);
bool fuse_caches(Match *match);
/* Will an Attention over three axes take its place? fuse_attention.c */
bool is_put_in_rows(Match *match, const Node *attention);
/* Dividing by the sum of weights after the product with the values. attention_quotient.c */
bool fuse_late_quotient(Match *match);

#endif
