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

/* The last of all steps, which `gather` picks, is the state that is left. recurrent_results.c */
void pick_state(Rewriter *rewriter, Node *gather);
/* Steps that are turned around before the operator and by `slice` after it need not be. recurrent_results.c */
void turn_steps(Rewriter *rewriter, Node *slice);
/* Where only the state is read, the operator itself goes the other way, over the steps as they were before they were
 * turned around. recurrent_results.c */
void turn_around(Rewriter *rewriter, Node *recurrent);

#endif
