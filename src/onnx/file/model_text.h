/* Reading the ONNX text syntax, as print.h writes it and onnx.printer does.
 *
 * What the syntax has no place for is read from where print.c puts it: lines "# key = value" above a node or a function
 * are its metadata. A value called _ and a number has no name. An initializer without elements (float[9] w = ) has a
 * type only. Initializers are parameters, unless their name begins with const_ or they have none.
 */
#ifndef J2O_ONNX_FILE_MODEL_TEXT_H
#define J2O_ONNX_FILE_MODEL_TEXT_H

#include "onnx/graph/graph.h"

typedef struct TextSource {
  const char *text;
  size_t length;
  int64_t opset;          /* of a text that begins with its graph and has no head */
  Provenance *provenance; /* nodes get an origin there, their line of the text; NULL: they get none */
  Str file;               /* in these origins */
  /* The bytes of a file that tensors lie in, NULL when it may not be read or there are fewer than that; or NULL: no
   * file is read, and such tensors have a place only (tensor_stored). */
  const void *(*data)(void *owner, Str location, uint64_t offset, uint64_t length);
  void *owner;
} TextSource;

/* Fails with ERROR_FORMAT and names the line and the column. */
Model *model_read_text(Context *context, const TextSource *source);

/* Fails for a tensor of which only the type is known: such a model cannot be written. */
void model_require_data(Model *model);

/* Does the text begin as one of these does, and not with the bytes of a model file? */
bool looks_like_model_text(const void *bytes, size_t size);
bool model_text_is_bare(const void *bytes, size_t size); /* it does, and has no head */

enum { DEFAULT_OPSET = 23 /* of a text that says none */ };

#endif
