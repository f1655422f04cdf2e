/* Foretold: what a loop carries from step to step where that can be known at export.
 *
 * The times of a solver with steps of one size, the powers of a rate, a counter that goes up and down: what is computed
 * of constants alone, step after step, is a constant for each step. */
#ifndef J2O_PASSES_ANALYSIS_FORETOLD_H
#define J2O_PASSES_ANALYSIS_FORETOLD_H

#include "passes/loop_body.h"

/* A value that each step computes. */
typedef struct ForetoldValue {
  Value *value;
  const Tensor **by_step;
} ForetoldValue;

typedef struct Foretold {
  int64_t steps;           /* that the loop takes */
  const Tensor ***carried; /* by carried value: what each step begins with, and what is left at the end; or NULL */
  ARRAY(ForetoldValue) computed; /* of which nodes are computed whose results are not known */
} Foretold;

/* Of a Loop or a Scan of at most `limit` steps. False when how many steps it takes is not known, or it would take long
 * to find out. */
bool foretell(const Node *loop, const LoopShape *shape, int64_t limit, Foretold *foretold);

/* Of a Loop, what a carried value is and what is computed of it alone, over that many steps from `start` on. Nothing is
 * said of when the loop ends. */
bool foretell_counter(const Node *loop, const LoopShape *shape, size_t carried, const Tensor *start, int64_t steps,
                      Foretold *foretold);

#endif
