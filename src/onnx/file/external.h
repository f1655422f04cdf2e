/* Files beside a model that hold its tensors. */
#ifndef J2O_ONNX_FILE_EXTERNAL_H
#define J2O_ONNX_FILE_EXTERNAL_H

#include "base/output.h"

#define DATA_ENDING "data"
#define PRODUCER "jax2onnx"
/* What stands for the file of weights that are yet to come (`j2o fill`). */
#define WEIGHTS_TO_COME "weights-to-come"

/* Of a model that this program wrote: the files that its initializers name, each as large as the last tensor in it
 * needs, which is how large we make them. Of any other model none. */
void find_external_files(Context *context, const MappedFile *model, CompanionList *found);

/* Of any number of bytes, about as fast as memory gives them; what was hashed before goes in as the seed. */
uint64_t content_hash(uint64_t seed, const void *bytes, size_t size);

#endif
