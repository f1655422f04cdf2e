/* Provenance from an original model, put on a processed one in memory: on nodes, initializers, functions and the model.
 */
#ifndef J2O_GRAFT_LABELS_H
#define J2O_GRAFT_LABELS_H

#include "graft/match.h"

typedef struct GraftCounts {
  size_t nodes;                /* of the processed model, bodies and functions included */
  size_t by[FOUND_REGION + 1]; /* of them by how they were found; FOUND_NOT: those that say nothing */
  size_t kept;                 /* nodes that were not found and had provenance of their own, which stays */
} GraftCounts;

/* Both were read, and unfolded, in one context. */
GraftCounts graft_model(const Match *match);

#endif
