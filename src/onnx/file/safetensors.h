/* Safetensors: files of weights, one or several with an index, whose bytes lie as ONNX wants them.
 *
 * A file is eight bytes, little-endian, with the length of a header; the header, in JSON: name -> dtype, shape and
 * where the data begin and end; then the data, without gaps. Nothing in it is trusted: a file that says anything else,
 * is cut short, or leads out of its folder is refused, and a reader never finds two tensors in one place.
 */
#ifndef J2O_ONNX_FILE_SAFETENSORS_H
#define J2O_ONNX_FILE_SAFETENSORS_H

#include "base/array.h"
#include "base/beneath.h"
#include "base/map.h"
#include "types/type.h"

typedef struct Weight {
  Str name;
  Str spelled; /* the element type as the file says it */
  DType dtype; /* DTYPE_NONE: ONNX has none for it */
  uint32_t rank;
  const int64_t *dims;
  size_t file;
  uint64_t offset, size; /* bytes, in that file */
} Weight;

typedef struct Checkpoint {
  Context *context;
  const char *named;     /* the only file, when the user named it: it may be a link; or NULL */
  Str folder;            /* that all files are in */
  ARRAY(Str) files;      /* their names in it */
  ARRAY(Weight) weights; /* in the order of the files */
  Map by_name;           /* name -> 1 + index */
} Checkpoint;

/* The path of a file, of an index (*.json), or of a folder with one of either. Reads the headers alone. Fails with
 * ERROR_IO or ERROR_VALUE; the message names the file. */
void checkpoint_open(Checkpoint *checkpoint, Context *context, const char *path);
/* The file of that number, as it was found then; its descriptor is -1 when it is no more. */
OpenFile checkpoint_file(const Checkpoint *checkpoint, size_t index);
const Weight *checkpoint_find(const Checkpoint *checkpoint, Str name); /* NULL: it has none */

#endif
