/* A sidecar: the provenance of a model in a file of its own, and the identity of the model it belongs to.
 *
 * It is a protobuf message: a heading; the identity; one message per place that entries were taken from, with the
 * number of the model's message (counted as messages_walk visits them, given as the difference to the one before), how
 * many fields of it stand in front, and the entries' bytes; and source files, each a name and its text. */
#ifndef J2O_ONNX_FILE_SIDECAR_H
#define J2O_ONNX_FILE_SIDECAR_H

#include "base/sha256.h"
#include "onnx/file/metadata_edit.h"

#define METADATA_IDENTITY METADATA_PREFIX "identity" /* of a model without its sidecar: which one is its own */

typedef struct CarriedSource {
  const char *name, *text; /* as long as the sizes say */
  size_t name_size, size;
} CarriedSource;

typedef struct Insertion {
  uint64_t message, fields;
  const unsigned char *bytes;
  size_t size;
} Insertion;

typedef struct Sidecar {
  char identity[SHA256_TEXT];
  ARRAY(Insertion) insertions; /* in the order of their messages */
  ARRAY(CarriedSource) sources;
} Sidecar;

/* The digest of a model without its metadata; of large tensors, samples stand for all bytes. */
void model_identity(Context *context, const void *bytes, size_t size, char text[SHA256_TEXT]);

/* The model without provenance, with its identity, and the sidecar that gives it back. */
Rewritten model_split(Context *context, const void *bytes, size_t size, Sidecar *sidecar);
/* The model as it was. The sidecar must be its own. */
Rewritten model_join(Context *context, const void *bytes, size_t size, const Sidecar *sidecar);
/* The same for a model that was read. */
void model_take_sidecar(Model *model, const void *bytes, size_t size, const Sidecar *sidecar);

Sidecar *sidecar_read(Context *context, const void *bytes, size_t size); /* fails with ERROR_FORMAT */
void sidecar_write(Builder *out, const Sidecar *sidecar);

#endif
