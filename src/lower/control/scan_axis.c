/* The axis of a running reduction by Scan, as the target can run it. */
#include "lower/control/scan_axis.h"

#include "base/bytes.h"

bool scan_can_run(const Lowering *l, Dim steps) {
  return is_positive(steps) || !target_quirk(l, QUIRK_SCAN_NEEDS_A_STEP);
}

ScanAxis scan_axis(Lowering *l, Type type, int64_t axis, bool backwards) {
  rely_on(l, axis >= 0 && axis < (int64_t)type.rank);
  bool elements = true, any = !target_quirk(l, QUIRK_SCAN_CRASHES_ON_NOTHING);
  for (uint32_t i = 0; i < type.rank; i++) elements = elements && ((int64_t)i == axis || is_positive(type.dims[i]));
  return (ScanAxis){.type = type,
                    .axis = axis,
                    .backwards = backwards,
                    .padded = !scan_can_run(l, type.dims[axis]),
                    .stacked = elements || any ? axis : 0};
}

/* The type with the step more. */
static Type padded_type(Lowering *l, const ScanAxis *scan) {
  if (!scan->padded) return scan->type;
  Dim dims[MAX_RANK];
  rely_on(l, scan->type.rank <= MAX_RANK);
  copy_bytes(dims, scan->type.dims, scan->type.rank * sizeof *dims);
  dims[scan->axis] = dim_add(l->context, dims[scan->axis], dim_of(1));
  return type_make(l->context, scan->type.dtype, dims, scan->type.rank);
}

Value *scan_operand(Lowering *l, const ScanAxis *scan, Value *value, Value *scalar) {
  if (!scan->padded) return value;
  int64_t pads[2 * MAX_RANK] = {0};
  uint32_t rank = scan->type.rank;
  pads[scan->backwards ? rank + scan->axis : scan->axis] = 1;
  return EMIT(l, OP_Pad, padded_type(l, scan), value, constant_ints(l, pads, 2 * (size_t)rank), scalar);
}

Type scan_stacked_type(Lowering *l, const ScanAxis *scan) {
  Type type = padded_type(l, scan);
  if (scan->stacked == scan->axis) return type;
  Dim dims[MAX_RANK] = {type.dims[scan->axis]};
  for (int64_t i = 0, next = 1; i < (int64_t)type.rank; i++) {
    if (i != scan->axis) dims[next++] = type.dims[i];
  }
  return type_make(l->context, type.dtype, dims, type.rank);
}

Value *scan_result(Lowering *l, const ScanAxis *scan, Value *stacked) {
  int64_t order[MAX_RANK];
  for (int64_t i = 0, next = 1; i < (int64_t)scan->type.rank; i++) order[i] = i == scan->axis ? 0 : next++;
  if (scan->stacked != scan->axis) stacked = transpose_by(l, stacked, order);
  if (!scan->padded) return stacked;
  Dim size = scan->type.dims[scan->axis], first = dim_of(scan->backwards ? 0 : 1);
  Dim behind = dim_add(l->context, size, first);
  return slice_at(l, stacked, scan->type, &first, &behind, NULL, &scan->axis, 1);
}
