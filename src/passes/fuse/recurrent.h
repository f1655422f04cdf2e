/* What the files about recurrent operators share. */
#ifndef J2O_PASSES_FUSE_RECURRENT_H
#define J2O_PASSES_FUSE_RECURRENT_H

#include "passes/rewrite.h"

/* Results of two operators over the same steps, one forwards and one backwards, that `concat` joins by their features
 * are those of one operator in both directions. recurrent_directions.c */
void merge_directions(Rewriter *rewriter, Node *concat);

/* Where nothing joins them: two operators become one, and each result a part of its. `first` is the one that comes
 * first in the graph. recurrent_directions.c */
void part_directions(Rewriter *rewriter, Node *first);

#endif
