/* Grids: weights that were rounded and are floats again, so that all numbers of a channel are whole multiples of one.
 */
#ifndef J2O_PASSES_ANALYSIS_GRIDS_H
#define J2O_PASSES_ANALYSIS_GRIDS_H

#include "onnx/graph/graph.h"

typedef struct Grid {
  const Tensor *integers; /* int8, or int4 where that holds them */
  const Tensor *scales;   /* float32: one for each step along the axis */
  int64_t axis;
} Grid;

/* Of float32 constants of both signs. Without `near`, numbers must be multiples to the last bit; with it, they may be
 * off by two units in the last place of the largest of their channel, as w + (q - w) is. */
bool read_grid(Context *context, const Tensor *tensor, int64_t axis, bool near, bool half_bytes, Grid *grid);

#endif
