/* Element types, as rows of one table. */
#ifndef J2O_TYPES_DTYPE_H
#define J2O_TYPES_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum DType {
  DTYPE_NONE, /* unknown, or not an array type */
  DTYPE_BOOL,
  DTYPE_INT8,
  DTYPE_INT16,
  DTYPE_INT32,
  DTYPE_INT64,
  DTYPE_UINT8,
  DTYPE_UINT16,
  DTYPE_UINT32,
  DTYPE_UINT64,
  DTYPE_FLOAT16,
  DTYPE_BFLOAT16,
  DTYPE_FLOAT32,
  DTYPE_FLOAT64,
  DTYPE_COMPLEX64,
  DTYPE_COMPLEX128,
  DTYPE_INT4,
  DTYPE_UINT4,
  DTYPE_FLOAT8_E4M3FN,
  DTYPE_FLOAT8_E4M3FNUZ,
  DTYPE_FLOAT8_E5M2,
  DTYPE_FLOAT8_E5M2FNUZ,
  DTYPE_FLOAT0,    /* JAX's type of tangents that do not exist; no data */
  DTYPE_KEY,       /* a random key; its data are two uint32 words */
  DTYPE_STRING,    /* only in models that we read */
  DTYPE_KEY_WORDS, /* a word of a random key of another kind: the last axis is the key's */
  DTYPE_COUNT
} DType;

typedef enum DKind { KIND_OTHER, KIND_BOOL, KIND_INT, KIND_UINT, KIND_FLOAT, KIND_COMPLEX } DKind;

const char *dtype_name(DType dtype);  /* "float32" as NumPy spells it */
const char *dtype_short(DType dtype); /* "f32" as JAX spells it */
DKind dtype_kind(DType dtype);
unsigned dtype_bits(DType dtype);              /* 0 where there is no fixed size */
size_t dtype_bytes(DType dtype, size_t count); /* size of packed data; caller has bounded count */
DType dtype_from_name(const char *name);       /* either spelling; DTYPE_NONE when unknown */

static inline bool dtype_is_float(DType dtype) { return dtype_kind(dtype) == KIND_FLOAT; }
static inline bool dtype_is_half(DType dtype) { return dtype == DTYPE_FLOAT16 || dtype == DTYPE_BFLOAT16; }
/* Of float32 and the halves, which are computed in float32 where a runtime lacks them. */
static inline bool dtype_fits_float32(DType dtype) { return dtype == DTYPE_FLOAT32 || dtype_is_half(dtype); }
static inline bool dtype_is_integer(DType dtype) {
  return dtype_kind(dtype) == KIND_INT || dtype_kind(dtype) == KIND_UINT;
}
static inline bool dtype_is_unsigned(DType dtype) { return dtype_kind(dtype) == KIND_UINT; }
/* Of a complex type, that of its two parts; of any other, itself. */
static inline DType dtype_part(DType dtype) {
  return dtype == DTYPE_COMPLEX64 ? DTYPE_FLOAT32 : dtype == DTYPE_COMPLEX128 ? DTYPE_FLOAT64 : dtype;
}

#endif
