/* One element of a tensor, as its bytes lie there. */
#ifndef J2O_TYPES_SCALAR_H
#define J2O_TYPES_SCALAR_H

#include <stdint.h>

#include "base/bytes.h"
#include "types/dtype.h"

typedef union Scalar {
  int8_t i8;
  int16_t i16;
  int32_t i32;
  int64_t i64;
  uint16_t u16;
  uint32_t u32;
  uint64_t u64;
  float f;
  double d;
} Scalar;

/* The first bytes of one that is wider, as complex numbers are. */
static inline Scalar scalar_at(const unsigned char *bytes, DType dtype) {
  Scalar scalar = {.u64 = 0};
  size_t width = dtype_bits(dtype) / 8;
  copy_bytes(&scalar, bytes, width < sizeof scalar ? width : sizeof scalar);
  return scalar;
}

#endif
