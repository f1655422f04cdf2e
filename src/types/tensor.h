/* Tensor: constant data and where it lies. */
#ifndef J2O_TYPES_TENSOR_H
#define J2O_TYPES_TENSOR_H

#include "types/type.h"

/* A part of a file. The name is as the model says it, relative to its folder; NULL: the file is yet to come. */
typedef struct StoredAt {
  Str location;
  uint64_t offset;
  const void *data; /* the same bytes in memory, or NULL: a tensor with others was made of this one */
} StoredAt;

/* Constant data. Never copied: data points to where the array lies, which the owner keeps alive. */
typedef struct Tensor {
  DType dtype;
  uint32_t rank;
  const int64_t *dims;
  const void *data;              /* little-endian, C order; NULL when size is 0, when it is yet to be made
                                    (types/moved.h) or fetched, or when it only is stored somewhere */
  const struct Moved *moved;     /* how to make it, or NULL */
  const struct Fetched *fetched; /* how to get it (types/fetched.h), or NULL */
  const struct StoredAt *stored; /* the file that holds it already and that the model refers to, or NULL */
  size_t size;                   /* bytes */
  Str name;                      /* readable name (a parameter's path), or NULL */
  DType precision;               /* of the program, where a lower one was widened; DTYPE_NONE: that of dtype */
  Str made_of;     /* of one that was computed at export: the names of the weights, separated by commas; or NULL */
  bool keeps_name; /* of one that was made of weights: its name says what it is, and is not theirs */
} Tensor;

/* Whether the elements can be had: not those that the model only refers to. */
static inline bool tensor_is_readable(const Tensor *tensor) {
  return tensor->data || tensor->moved || tensor->fetched || tensor->size == 0;
}

/* To look at it, it would have to be brought here. */
static inline bool tensor_is_far(const Tensor *tensor) { return !tensor->data && tensor->fetched; }

/* The file that holds the very bytes of the tensor; NULL: they must be written. */
static inline const StoredAt *tensor_stored_at(const Tensor *tensor) {
  bool as_it_was = tensor->stored && !tensor->moved && tensor->data == tensor->stored->data;
  return as_it_was ? tensor->stored : NULL;
}

Type tensor_type(Context *context, const Tensor *tensor);

#endif
