/* Data plan: which tensors go to files of their own, and where in them. */
#ifndef J2O_TYPES_DATA_PLAN_H
#define J2O_TYPES_DATA_PLAN_H

#include "base/array.h"
#include "types/tensor.h"

enum {
  DATA_ALIGNMENT = 64,
  MAPPED_ALIGNMENT = 4096, /* the usual one of large tensors */
  LARGEST_ALIGNMENT = 1 << 16,
  LARGE_TENSOR = 1 << 20 /* bytes: from here on tensors are worth mapping by themselves */
};

typedef struct PlacedTensor {
  const Tensor *tensor;
  size_t file;
  uint64_t offset; /* in that file, a multiple of DATA_ALIGNMENT */
} PlacedTensor;

typedef struct DataPlan {
  Context *context;
  Str location;                  /* the file's name, as those who refer to it say it; NULL: there may be several */
  uint64_t alignment;            /* of large tensors; 0: DATA_ALIGNMENT */
  uint64_t largest_file;         /* bytes; only a tensor that is larger by itself makes one larger. 0: one file */
  Map places;                    /* tensor -> its PlacedTensor */
  ARRAY(PlacedTensor *) tensors; /* in the order of the files */
} DataPlan;

void data_plan_init(DataPlan *plan, Context *context, Str location);
/* What the only file holds, from its start. */
const struct Segment *data_segments(const DataPlan *plan, size_t *count);
uint64_t data_place(DataPlan *plan, const Tensor *tensor); /* its offset: the next free one when it has none yet */
const PlacedTensor *data_placed(const DataPlan *plan, const Tensor *tensor); /* NULL: it has none */
size_t data_file_count(const DataPlan *plan);

#endif
