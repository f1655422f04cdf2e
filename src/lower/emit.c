/* What ONNX Runtime can run, and runs rightly: casts around operators without a kernel for an element type. */
#include "lower/lower.h"
#include "onnx/facts/schema.h"

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

DType compute_dtype(Lowering *l, Op op, DType dtype) {
  int64_t opset = l->options->opset;
  if (schema_runs(op, NULL, opset, dtype)) return dtype;
  for (const DType *next = wider[dtype]; *next != DTYPE_NONE; next++) {
    if (schema_runs(op, NULL, opset, *next)) return *next;
  }
  return DTYPE_NONE;
}

static bool is_wrong_extreme(const Lowering *l, Op op, DType dtype) {
  bool is_extreme = dtype == DTYPE_INT64 && (op == OP_Max || op == OP_Min || op == OP_Clip);
  return is_extreme && target_quirk(l, QUIRK_CLIP_OF_INT64_BY_HALVES);
}

static Value *chosen(Lowering *l, Here here, Op comparison, Type type, Value *a, Value *b) {
  Value *first = emit_value(l, here, comparison, type_with(type, DTYPE_BOOL), VALUES(a, b), 2);
  return emit_value(l, here, OP_Where, type, VALUES(first, a, b), 3);
}

static Value *extreme_by_comparison(Lowering *l, Here here, Op op, Type type, Value *const *inputs, size_t count) {
  Value *result = inputs[0];
  for (size_t i = 1; i < count; i++) {
    bool larger = op == OP_Max || (op == OP_Clip && i == 1);
    if (inputs[i]) result = chosen(l, here, larger ? OP_Greater : OP_Less, type, result, inputs[i]);
  }
  return result;
}

Value *emit_around(Lowering *l, Here here, Op op, Type type, Value *const *inputs, size_t count) {
  DType from = inputs[0]->type.dtype;
  if (is_wrong_extreme(l, op, from)) return extreme_by_comparison(l, here, op, type, inputs, count);
  DType compute = compute_dtype(l, op, from);
  if (compute == DTYPE_NONE) {
    unsupported(l, "ONNX Runtime cannot compute %s on %s at opset %lld", op_name(op), dtype_name(from),
                (long long)l->options->opset);
  }
  if (compute == from) return emit_value(l, here, op, type, inputs, count);
  Value **cast = arena_new_array(&l->context->arena, count, Value *);
  for (size_t i = 0; i < count; i++) {
    cast[i] = inputs[i] && inputs[i]->type.dtype == from ? cast_to(l, inputs[i], compute) : inputs[i];
  }
  bool back = type.dtype == from;
  Value *result = emit_value(l, here, op, back ? type_with(type, compute) : type, cast, count);
  return narrow_to(l, result, type.dtype);
}
