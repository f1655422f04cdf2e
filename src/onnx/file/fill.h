/* Filling: the weights of a model that was written without them (WEIGHTS_TO_COME), from safetensors.
 *
 * Everything else in the model stays as it is, byte by byte. Nothing is written unless every weight is found. */
#ifndef J2O_ONNX_FILE_FILL_H
#define J2O_ONNX_FILE_FILL_H

#include "base/output.h"

typedef struct FillOptions {
  const char *source;         /* of safetensors: a file, an index, or a folder with one of either */
  const char *const *renames; /* PATH=KEY; * stands for one step of a path, the same on both sides */
  size_t rename_count;
  bool by_reference;  /* refer to the data where they lie, in the folder of the model or below */
  bool allow_surplus; /* there may be weights that the model has no place for */
  bool skip_sync;
  uint64_t largest_data_file; /* bytes; 0: one file */
} FillOptions;

typedef struct Filled {
  size_t weights;
  uint64_t bytes;
} Filled;

/* Fails with ERROR_VALUE and a message that lists everything that does not fit; also when nothing is to come. */
Filled model_fill(Context *context, const void *bytes, size_t size, const char *path, const FillOptions *options);

#endif
