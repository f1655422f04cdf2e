/* Rewriting a model's metadata without understanding the rest: what is not changed is copied byte by byte, fields that
 * are unknown here included. */
#ifndef J2O_ONNX_FILE_METADATA_EDIT_H
#define J2O_ONNX_FILE_METADATA_EDIT_H

#include "onnx/file/encode.h"
#include "onnx/file/metadata_keys.h"
#include "onnx/graph/graph.h"

typedef struct Rewritten {
  const Segment *segments; /* some of them lie in the bytes that were given */
  size_t count;
  uint64_t size;
  uint64_t changes; /* of strip: entries that went; else: nodes that were changed */
} Rewritten;

typedef enum StripWhat {
  STRIP_OURS, /* what this project's exports carry */
  STRIP_ALL,  /* every metadata entry and every doc_string */
} StripWhat;

Rewritten model_strip(Context *context, const void *bytes, size_t size, StripWhat what);

/* From the full level to the compact one and back. A node whose entries are not as an export writes them stays as it
 * is. A model without such nodes comes back unchanged. */
Rewritten model_compact(Context *context, const void *bytes, size_t size);
Rewritten model_expand(Context *context, const void *bytes, size_t size, size_t limit); /* as table_read has it */

/* Has the list an entry of this project's exports? */
bool metadata_has_ours(const MetadataList *list);

/* The bytes of a model that was read, with the provenance that its nodes, initializers, functions and itself have now;
 * `compact`: in the compact form. */
Rewritten model_relabel(Context *context, const void *bytes, size_t size, const Model *model, bool compact);

/* The same for a model that was read: its nodes and initializers get the entries of the full level. */
void model_unfold(Model *model, size_t limit);

#endif
