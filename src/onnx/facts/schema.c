/* Lookup of the generated facts about operators and element types. */
#include "onnx/facts/schema.h"

#include <assert.h>
#include <string.h>

typedef struct SchemaRow {
  Op op;
  const char *variant; /* or NULL */
  int32_t version;
  uint32_t standard_types, runtime_types; /* a bit per DType */
} SchemaRow;

/* Sorted by operator, then by variant, then by version. */
static const SchemaRow rows[] = {
#include "onnx/facts/schema_table.inc"
};

enum { ROW_COUNT = sizeof rows / sizeof *rows };

static_assert((int)DTYPE_COUNT == (int)SCHEMA_DTYPE_COUNT, "DType has changed: run tools/generate_schema.py");
static_assert(DTYPE_COUNT <= 32, "a mask has a bit per DType");

static bool same_variant(const char *a, const char *b) { return a == b || (a && b && strcmp(a, b) == 0); }

/* The first row of the operator. */
static const SchemaRow *first_row(Op op) {
  size_t low = 0, high = ROW_COUNT;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (rows[middle].op < op) low = middle + 1;
    else high = middle;
  }
  return &rows[low];
}

/* The row in force at the opset: the last that is not newer. NULL when there is none. */
static const SchemaRow *find_row(Op op, const char *variant, int64_t opset) {
  const SchemaRow *found = NULL;
  for (const SchemaRow *row = first_row(op); row < rows + ROW_COUNT && row->op == op; row++) {
    if (row->version <= opset && same_variant(row->variant, variant)) found = row;
  }
  return found && found->standard_types != 0 ? found : NULL; /* without a type: deprecated */
}

bool schema_runs(Op op, const char *variant, int64_t opset, DType dtype) {
  const SchemaRow *row = find_row(op, variant, opset);
  return row && (row->standard_types & row->runtime_types) >> dtype & 1;
}

int64_t schema_version(Op op, int64_t opset) {
  const SchemaRow *row = find_row(op, NULL, opset);
  return row ? row->version : 0;
}

int64_t ir_version_of(int64_t opset) { return opset <= 18 ? 8 : opset <= 20 ? 9 : IR_WITH_PROVENANCE; }

static const int onnx_numbers[DTYPE_COUNT] = {
    [DTYPE_BOOL] = ONNX_BOOL,
    [DTYPE_INT8] = ONNX_INT8,
    [DTYPE_INT16] = ONNX_INT16,
    [DTYPE_INT32] = ONNX_INT32,
    [DTYPE_INT64] = ONNX_INT64,
    [DTYPE_UINT8] = ONNX_UINT8,
    [DTYPE_UINT16] = ONNX_UINT16,
    [DTYPE_UINT32] = ONNX_UINT32,
    [DTYPE_UINT64] = ONNX_UINT64,
    [DTYPE_FLOAT16] = ONNX_FLOAT16,
    [DTYPE_BFLOAT16] = ONNX_BFLOAT16,
    [DTYPE_FLOAT32] = ONNX_FLOAT,
    [DTYPE_FLOAT64] = ONNX_DOUBLE,
    [DTYPE_COMPLEX64] = ONNX_COMPLEX64,
    [DTYPE_COMPLEX128] = ONNX_COMPLEX128,
    [DTYPE_INT4] = ONNX_INT4,
    [DTYPE_UINT4] = ONNX_UINT4,
    [DTYPE_FLOAT8_E4M3FN] = ONNX_FLOAT8E4M3FN,
    [DTYPE_FLOAT8_E4M3FNUZ] = ONNX_FLOAT8E4M3FNUZ,
    [DTYPE_FLOAT8_E5M2] = ONNX_FLOAT8E5M2,
    [DTYPE_FLOAT8_E5M2FNUZ] = ONNX_FLOAT8E5M2FNUZ,
    [DTYPE_STRING] = ONNX_STRING,
};

int onnx_dtype(DType dtype) { return onnx_numbers[dtype]; }

DType dtype_from_onnx(int number) {
  for (int i = DTYPE_BOOL; i < DTYPE_COUNT; i++)
    if (onnx_numbers[i] == number && number != ONNX_UNDEFINED) return (DType)i;
  return DTYPE_NONE;
}
