/* Tensor: constant data and where it lies. */
#ifndef J2O_TYPES_TENSOR_H
#define J2O_TYPES_TENSOR_H

#include "types/type.h"

/* Constant data. Never copied: data points to where the array lies, which the owner keeps alive. */
typedef struct Tensor {
  DType dtype;
  uint32_t rank;
  const int64_t *dims;
  const void *data; /* little-endian, C order; NULL when size is 0, or when it is yet to be made (types/moved.h) */
  const struct Moved *moved; /* how to make it, or NULL */
  size_t size;               /* bytes */
  Str name;                  /* readable name (a parameter's path), or NULL */
  DType precision;           /* of the program, where a lower one was widened; DTYPE_NONE: that of dtype */
  Str made_of; /* of one that was computed at export: the names of the weights, separated by commas; or NULL */
} Tensor;

Type tensor_type(Context *context, const Tensor *tensor);

#endif
