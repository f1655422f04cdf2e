/* Padding: edges that grow, edges that are cut, and gaps between elements. */
#ifndef J2O_LOWER_DATA_PADDING_H
#define J2O_LOWER_DATA_PADDING_H

#include "lower/lower.h"

typedef struct Padding {
  Dim low[MAX_RANK], high[MAX_RANK]; /* negative: elements cut off */
  int64_t gap[MAX_RANK];             /* padding elements between neighbours */
  uint32_t rank;
} Padding;

/* The value padded along every axis. result: its dimensions, or NULL to have them computed. */
Value *pad_array(Lowering *l, Value *value, Padding padding, const Dim *result, Value *fill);

#endif
