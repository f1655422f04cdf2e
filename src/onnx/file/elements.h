/* The elements of a tensor that was read, in whatever form its file has them, as the bytes that raw_data would hold:
 * raw, in typed fields, packed or one by one or in several chunks, or in another file. A string is its length in eight
 * bytes, then its letters. They are never all in memory: they come piece by piece. */
#ifndef J2O_ONNX_FILE_ELEMENTS_H
#define J2O_ONNX_FILE_ELEMENTS_H

#include "base/beneath.h"
#include "onnx/file/read.h"
#include "onnx/file/wire.h"

typedef struct Elements {
  const char *trouble;        /* why they cannot be read; NULL: they can */
  Wire message;               /* typed fields that are still to come */
  Wire packed;                /* numbers of a packed field that are still to come */
  uint64_t key;               /* of the typed field: its number */
  size_t width;               /* bytes of a number */
  const unsigned char *ready; /* bytes that are still to be handed on */
  size_t ready_size;
  const unsigned char *text; /* of a string whose length is ready */
  size_t text_size;
  unsigned char scratch[8];
  OpenFile file; /* of external data */
  uint64_t offset, left;
} Elements;

/* folder: of the model's file; external data are read in it or below, nowhere else. */
void elements_open(Elements *elements, Context *context, const Model *model, const Tensor *tensor, const char *folder);
/* Fills the room; less only at the end, or when `trouble` came up. */
size_t elements_next(Elements *elements, unsigned char *bytes, size_t room);
void elements_close(Elements *elements);

/* The field of a TensorProto that has elements of this type, where they are not raw; 0: there is none. */
int typed_field(DType dtype);

#endif
