/* What ONNX Runtime can run: casts around operators that have no kernel for an element type. */
#include "lower/lower.h"
#include "onnx/schema.h"

/* Wider types in the order they are tried. uint64 in int64 keeps the bits: right for what does not look at the sign. */
static const DType wider[DTYPE_COUNT][6] = {
    [DTYPE_BOOL] = {DTYPE_UINT8, DTYPE_INT32, DTYPE_INT64},
    [DTYPE_INT8] = {DTYPE_INT16, DTYPE_INT32, DTYPE_INT64, DTYPE_FLOAT32},
    [DTYPE_INT16] = {DTYPE_INT32, DTYPE_INT64, DTYPE_FLOAT32},
    [DTYPE_INT32] = {DTYPE_INT64, DTYPE_FLOAT64},
    [DTYPE_UINT8] = {DTYPE_INT16, DTYPE_INT32, DTYPE_INT64, DTYPE_FLOAT32},
    [DTYPE_UINT16] = {DTYPE_INT32, DTYPE_INT64, DTYPE_FLOAT32},
    [DTYPE_UINT32] = {DTYPE_INT64, DTYPE_FLOAT64},
    [DTYPE_UINT64] = {DTYPE_INT64},
    [DTYPE_INT4] = {DTYPE_INT8, DTYPE_INT32, DTYPE_INT64},
    [DTYPE_UINT4] = {DTYPE_UINT8, DTYPE_INT32, DTYPE_INT64},
    [DTYPE_FLOAT16] = {DTYPE_FLOAT32},
    [DTYPE_BFLOAT16] = {DTYPE_FLOAT32},
    [DTYPE_FLOAT8_E4M3FN] = {DTYPE_FLOAT32},
    [DTYPE_FLOAT8_E4M3FNUZ] = {DTYPE_FLOAT32},
    [DTYPE_FLOAT8_E5M2] = {DTYPE_FLOAT32},
    [DTYPE_FLOAT8_E5M2FNUZ] = {DTYPE_FLOAT32},
};

DType compute_dtype(Lowering *l, const char *op, DType dtype) {
  int64_t opset = l->options->opset;
  if (schema_runs(op, NULL, opset, dtype)) return dtype;
  for (const DType *next = wider[dtype]; *next != DTYPE_NONE; next++) {
    if (schema_runs(op, NULL, opset, *next)) return *next;
  }
  return DTYPE_NONE;
}

Value *emit_around(Lowering *l, Here here, const char *op, Type type, Value *const *inputs, size_t count) {
  DType from = inputs[0]->type.dtype;
  DType compute = compute_dtype(l, op, from);
  if (compute == DTYPE_NONE) {
    unsupported(l, "ONNX Runtime cannot compute %s on %s at opset %lld", op, dtype_name(from),
                (long long)l->options->opset);
  }
  if (compute == from) return emit_value(l, here, op, type, inputs, count);
  Value **cast = arena_new_array(&l->context->arena, count, Value *);
  for (size_t i = 0; i < count; i++) {
    cast[i] = inputs[i] && inputs[i]->type.dtype == from ? cast_to(l, inputs[i], compute) : inputs[i];
  }
  bool back = type.dtype == from;
  Value *result = emit_value(l, here, op, back ? type_with(type, compute) : type, cast, count);
  return cast_to(l, result, type.dtype);
}
