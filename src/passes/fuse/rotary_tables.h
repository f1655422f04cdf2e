/* Tables of cosines and sines that hold everything twice. */
#ifndef J2O_PASSES_FUSE_ROTARY_TABLES_H
#define J2O_PASSES_FUSE_ROTARY_TABLES_H

#include "passes/pattern.h"

/* How often a cosine or a sine stands in its table. */
typedef enum Doubling {
  ONCE,
  IN_HALVES,       /* the second half of the features is the first again */
  IN_PAIRS,        /* every second one is the one before it */
  OPPOSITE_HALVES, /* the first half is the second, negative */
  OPPOSITE_PAIRS,  /* every second one is the one after it, negative */
} Doubling;

bool is_last_axis(int64_t axis, const Value *value);
/* Can half of the value be told, from no more than `depth` operators? */
bool is_double(Match *match, const Value *value, Doubling doubling, int depth);
Value *half_of(Match *match, Value *value, Doubling doubling);

#endif
