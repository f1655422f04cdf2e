/* Masks of Attention: what is known of them (attention_masks.c), and what is made of it (attention_mask_values.c). */
#ifndef J2O_PASSES_FUSE_ATTENTION_MASKS_H
#define J2O_PASSES_FUSE_ATTENTION_MASKS_H

#include "passes/fuse/attention_parts.h"

/* What is known of the numbers that a bias adds. */
typedef enum Range { RANGE_SMALL, RANGE_LOW /* lower than Attention takes for a number */, RANGE_ANY } Range;

extern const double least_added; /* the lowest that Attention takes for a number, and not for a mask */

Range range_of(const Term *term);
/* Is something left of what is added to the number? Halves go less low. */
bool is_weak(const Term *term);
/* Is the bias nothing but a mask? Then it is put where Attention wants it. */
bool places_as_mask(const Scores *scores, const Term *term, Condition *mask, double *fill);
/* Has some mask the rows, and some the columns? */
bool has_rows(const Scores *scores);
bool has_columns(const Scores *scores);

#endif
