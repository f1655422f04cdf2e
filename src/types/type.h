/* Type: an element type and the sizes of the axes, constant or symbolic. */
#ifndef J2O_TYPES_TYPE_H
#define J2O_TYPES_TYPE_H

#include "types/dimension.h"
#include "types/dtype.h"

enum { MAX_RANK = 32 };

typedef struct Type {
  DType dtype;
  uint32_t rank;
  const Dim *dims; /* rank of them */
} Type;

/* A type whose number of dimensions is not known, as files may have: rank 0 with these dims. */
extern const Dim UNRANKED[1];
static inline bool type_is_unranked(Type type) { return type.dims == UNRANKED; }

Type type_make(Context *context, DType dtype, const Dim *dims, uint32_t rank);
Type type_constant(Context *context, DType dtype, const int64_t *dims, uint32_t rank);
static inline Type type_with(Type type, DType dtype) {
  type.dtype = dtype;
  return type;
}
Type type_append(Context *context, Type type, int64_t size); /* with one more axis, the last */
static inline Type type_scalar(DType dtype) { return (Type){.dtype = dtype}; }
bool type_equal(Type a, Type b);
bool type_same_shape(Type a, Type b);
/* Number of elements; false when a dimension is symbolic or the product overflows. */
bool type_count(Type type, int64_t *count);

#endif
