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

/* The array moved along an axis by a distance, towards its beginning where that is negative; fill, or
 * zeros where it is NULL, come in at the edge that it leaves. */
Value *shift_array(Lowering *l, Value *value, int64_t axis, int64_t distance, Value *fill);

#endif
