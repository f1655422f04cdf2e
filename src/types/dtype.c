/* Element types. */
#include "types/dtype.h"

#include <string.h>

typedef struct DTypeRow {
  const char *name, *short_name;
  DKind kind;
  unsigned bits;
} DTypeRow;

static const DTypeRow rows[DTYPE_COUNT] = {
    [DTYPE_NONE] = {"none", "none", KIND_OTHER, 0},
    [DTYPE_BOOL] = {"bool", "bool", KIND_BOOL, 8},
    [DTYPE_INT8] = {"int8", "i8", KIND_INT, 8},
    [DTYPE_INT16] = {"int16", "i16", KIND_INT, 16},
    [DTYPE_INT32] = {"int32", "i32", KIND_INT, 32},
    [DTYPE_INT64] = {"int64", "i64", KIND_INT, 64},
    [DTYPE_UINT8] = {"uint8", "u8", KIND_UINT, 8},
    [DTYPE_UINT16] = {"uint16", "u16", KIND_UINT, 16},
    [DTYPE_UINT32] = {"uint32", "u32", KIND_UINT, 32},
    [DTYPE_UINT64] = {"uint64", "u64", KIND_UINT, 64},
    [DTYPE_FLOAT16] = {"float16", "f16", KIND_FLOAT, 16},
    [DTYPE_BFLOAT16] = {"bfloat16", "bf16", KIND_FLOAT, 16},
    [DTYPE_FLOAT32] = {"float32", "f32", KIND_FLOAT, 32},
    [DTYPE_FLOAT64] = {"float64", "f64", KIND_FLOAT, 64},
    [DTYPE_COMPLEX64] = {"complex64", "c64", KIND_COMPLEX, 64},
    [DTYPE_COMPLEX128] = {"complex128", "c128", KIND_COMPLEX, 128},
    [DTYPE_INT4] = {"int4", "i4", KIND_INT, 4},
    [DTYPE_UINT4] = {"uint4", "u4", KIND_UINT, 4},
    [DTYPE_FLOAT8_E4M3FN] = {"float8_e4m3fn", "f8e4m3fn", KIND_FLOAT, 8},
    [DTYPE_FLOAT8_E4M3FNUZ] = {"float8_e4m3fnuz", "f8e4m3fnuz", KIND_FLOAT, 8},
    [DTYPE_FLOAT8_E5M2] = {"float8_e5m2", "f8e5m2", KIND_FLOAT, 8},
    [DTYPE_FLOAT8_E5M2FNUZ] = {"float8_e5m2fnuz", "f8e5m2fnuz", KIND_FLOAT, 8},
    [DTYPE_FLOAT0] = {"float0", "float0", KIND_OTHER, 0},
    [DTYPE_KEY] = {"key", "key", KIND_OTHER, 0},
    [DTYPE_STRING] = {"string", "string", KIND_OTHER, 0},
    [DTYPE_KEY_WORDS] = {"key_words", "key_words", KIND_OTHER, 0},
};

const char *dtype_name(DType dtype) { return rows[dtype].name; }
const char *dtype_short(DType dtype) { return rows[dtype].short_name; }
DKind dtype_kind(DType dtype) { return rows[dtype].kind; }
unsigned dtype_bits(DType dtype) { return rows[dtype].bits; }
size_t dtype_bytes(DType dtype, size_t count) { return (count * rows[dtype].bits + 7) / 8; }

DType dtype_from_name(const char *name) {
  for (int i = DTYPE_BOOL; i < DTYPE_COUNT; i++) {
    if (strcmp(rows[i].name, name) == 0 || strcmp(rows[i].short_name, name) == 0) return (DType)i;
  }
  return DTYPE_NONE;
}
