/* What the passes around Attention share. */
#ifndef J2O_PASSES_FUSE_ATTENTION_H
#define J2O_PASSES_FUSE_ATTENTION_H

#include "passes/pattern.h"

/* From batch, position, head, features to batch, head, position, features, and back. */
bool puts_heads_first(const Node *transpose);
void set_heads_first(Node *transpose);

/* Attention with other inputs in place of the match, whose root is an Attention: with the root's attributes. */
Node *match_emit_like(Match *match, Value *const *inputs, size_t count);

/* What goes into the softmax. */
typedef struct Scores {
  Value *query, *keys; /* keys as the product reads them, features first */
  double scale;
  Value *mask; /* where scores are kept (or, when inverted, put out), or NULL */
  bool inverted;
  double fill; /* what stands in place of a score that is put out */
  Value *bias; /* added to the scores, or NULL */
  Type type;   /* of the scores: batch and head as far as there are such axes, then query, key */
} Scores;

/* How Attention masks, and what it is then given. */
typedef enum MaskUse { MASK_NONE, MASK_CAUSAL, MASK_KEPT, MASK_ADDED, MASK_UNFIT } MaskUse;

/* What to make of masks and biases. attention_masks.c */
MaskUse mask_use(const Scores *scores);
/* Whatever they hold, numbers can be added that do the same. */
bool can_add_mask(const Scores *scores);
/* The mask that Attention gets, made where it must be: boolean, or of float32 to be added; NULL for none. False when
 * none gives the same. */
bool attention_mask(Match *match, const Scores *scores, MaskUse use, Value **mask);
void set_attention(Node *node, const Scores *scores, bool causal);
/* Features and position, the last two axes, in the other order: the transposition that is there is taken back or turned
 * into another one. */
Value *features_last(Match *match, Value *value);

/* softmax(Q Kᵀ) V over two to four axes. attention_scores.c */
bool fuse_attention_scores(Match *match);
bool fuse_causal_mask(Match *match);
/* Fewer heads of keys and values than of queries. attention_groups.c */
bool fuse_repeated_heads(Match *match);
bool fuse_grouped_heads(Match *match); /* attention_axes.c */

#endif
