/* Data plan: which tensors go to a file of their own, and where in it. */
#ifndef J2O_TYPES_DATA_PLAN_H
#define J2O_TYPES_DATA_PLAN_H

#include "base/array.h"
#include "types/tensor.h"

enum { DATA_ALIGNMENT = 64 };

typedef struct PlacedTensor {
  const Tensor *tensor;
  uint64_t offset; /* a multiple of DATA_ALIGNMENT */
} PlacedTensor;

typedef struct DataPlan {
  Context *context;
  Str location;                  /* the file's name, as those who refer to it say it */
  Map places;                    /* tensor -> its PlacedTensor */
  ARRAY(PlacedTensor *) tensors; /* in the order of the file */
} DataPlan;

void data_plan_init(DataPlan *plan, Context *context, Str location);
/* What the file holds, from its start. */
const struct Segment *data_segments(const DataPlan *plan, size_t *count);
uint64_t data_place(DataPlan *plan, const Tensor *tensor); /* its offset: the next free one when it has none yet */

#endif
