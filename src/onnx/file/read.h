/* Reading a model: the graph's structure from a mapped file. Tensor data stays where it lies, in the mapping or in
 * another file, so that a model of any size costs the memory of its nodes. */
#ifndef J2O_ONNX_FILE_READ_H
#define J2O_ONNX_FILE_READ_H

#include "base/platform.h"
#include "onnx/graph/graph.h"

/* Any producer's ModelProto. Fails with ERROR_FORMAT and names the byte. */
Model *model_read(Context *context, const void *bytes, size_t size);
/* The same, and what was read can be found again in the bytes: Model.messages. */
Model *model_read_marked(Context *context, const void *bytes, size_t size);

/* Of a tensor whose data are not plain bytes in the mapping: where they are. Its Tensor has data NULL and the size that
 * its shape asks for (0 for strings). A tensor of a type that is not known here has one always, one of no type never.
 */
typedef struct StoredTensor {
  Str location;                /* of external data: the file, relative to the model's; else NULL */
  uint64_t offset, length;     /* in that file; length 0: not said */
  const unsigned char *packed; /* typed integers as they are in the message, packed varints; else NULL */
  size_t packed_size;
  int onnx_type;                /* as the file says: it may be one that is not known here */
  const unsigned char *message; /* the whole TensorProto */
  size_t message_size;
} StoredTensor;

/* NULL for a tensor with plain data. */
const StoredTensor *tensor_stored(const Model *model, const Tensor *tensor);

/* The elements of a string tensor one by one; *cursor starts at 0. False after the last. */
bool stored_next_string(Context *context, const StoredTensor *stored, size_t *cursor, const char **text,
                        size_t *length);

/* The dimension of which nothing is known prints as this. */
#define UNKNOWN_DIMENSION "?"

#endif
