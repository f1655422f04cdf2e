/* Selection: a Slice of one element whose axis is then dropped is a Gather, and it picks the position before an axis is
 * turned around. Rows of a table that are picked by a product with rows of zeros and a one are a Gather too. */
#include "base/bytes.h"
#include "onnx/facts/schema.h"
#include "passes/analysis/bounds.h"
#include "passes/analysis/positions.h"
#include "passes/pattern.h"
#include "types/numbers.h"

enum { SOURCE, SLICE, TABLE, POSITIONS };

/* Is `shape` the sizes of `from` without the axis? */
static bool lacks_axis(Type shape, Type from, int64_t axis) {
  if (shape.rank + 1 != from.rank) return false;
  for (uint32_t i = 0; i < shape.rank; i++) {
    if (!dim_equal(shape.dims[i], from.dims[(int64_t)i < axis ? i : i + 1])) return false;
  }
  return true;
}

static Value *scalar_index(Match *match, int64_t index) {
  Arena *arena = &match->rewriter->context->arena;
  Tensor *tensor = arena_new(arena, Tensor);
  *tensor = (Tensor){.dtype = DTYPE_INT64, .size = sizeof index, .data = arena_copy(arena, &index, sizeof index)};
  return match_constant(match, tensor);
}

static bool fuse_slice(Match *match) {
  Value *source = match->values[SOURCE], *slice = match->values[SLICE];
  const Node *node = slice->producer;
  int64_t start, axis, step = 1;
  if (!only_integer(node_input(node, 1), &start) || !only_integer(node_input(node, 3), &axis)) return false;
  if (node_input(node, 4) && (!only_integer(node_input(node, 4), &step) || step != 1)) return false;
  Type from = source->type;
  if (axis < 0) axis += from.rank;
  if (from.dtype == DTYPE_NONE || slice->type.rank != from.rank || axis < 0 || axis >= (int64_t)from.rank) return false;
  Dim size = from.dims[axis];
  if (!dim_is(slice->type.dims[axis], 1) || !lacks_axis(match_type(match), from, axis)) return false;
  if (dim_is_constant(size) && start < 0) start += size.constant;
  if (dim_is_constant(size) && (start < 0 || start >= size.constant)) return false;
  if (!dim_is_constant(size) && start != 0 && start != -1) return false;
  node_set_int(EMIT_MATCH(match, OP_Gather, source, scalar_index(match, start)), "axis", axis);
  return true;
}

/* The other end of an axis that was turned around. */
static bool fuse_before_reversal(Match *match) {
  const Value *turned = match->values[SLICE], *index = node_input(match->root, 1);
  int64_t axis = node_int_or(match->root, "axis", 0), reversed, number;
  if (axis < 0) axis += turned->type.rank;
  if (!reverses_axis(turned->producer, &reversed) || reversed != axis) return false;
  Dim size = turned->type.dims[axis];
  if (index->type.rank != 0 || !only_integer(index, &number) || !dim_is_constant(size)) return false;
  if (number < 0) number += size.constant;
  Value *other = scalar_index(match, size.constant - 1 - number);
  node_set_int(EMIT_MATCH(match, OP_Gather, match->values[SOURCE], other), "axis", axis);
  return true;
}

/* ---- rows of a table ---- */

/* 0, 1, 2, ... along the last axis, and no other axis. */
static bool counts_up(const Tensor *tensor, int64_t count) {
  if (!dtype_is_integer(tensor->dtype) || tensor->rank == 0 || tensor->dims[tensor->rank - 1] != count) return false;
  size_t width = dtype_bytes(tensor->dtype, 1);
  if (tensor->size != (size_t)count * width) return false;
  for (int64_t i = 0; i < count; i++) {
    if (number_decode_int(tensor->dtype, (const char *)tensor->data + (size_t)i * width) != i) return false;
  }
  return true;
}

/* A product with 0 is 0 for these alone. */
static bool is_all_finite(const Tensor *tensor) {
  static const uint64_t exponents[DTYPE_COUNT] = {[DTYPE_FLOAT16] = 0x7c00,
                                                  [DTYPE_BFLOAT16] = 0x7f80,
                                                  [DTYPE_FLOAT32] = 0x7f800000,
                                                  [DTYPE_FLOAT64] = 0x7ff0000000000000};
  uint64_t exponent = exponents[tensor->dtype], bits = 0;
  size_t width = dtype_bytes(tensor->dtype, 1);
  if (!exponent) return false;
  for (size_t at = 0; at < tensor->size; at += width) {
    copy_bytes(&bits, (const char *)tensor->data + at, width);
    if ((bits & exponent) == exponent) return false;
  }
  return true;
}

static bool is_identity(const Tensor *tensor) {
  if (tensor->rank != 2 || tensor->dims[0] != tensor->dims[1] || !dtype_is_float(tensor->dtype)) return false;
  int64_t size = tensor->dims[0];
  size_t width = dtype_bytes(tensor->dtype, 1);
  for (int64_t i = 0; i < size * size; i++) {
    double number = number_decode(tensor->dtype, (const char *)tensor->data + (size_t)i * width);
    if (number != (i / size == i % size)) return false;
  }
  return true;
}

/* Without its last axis, of size 1, and of a type that Gather takes. */
static Value *as_indices(Match *match, Value *value) {
  Type type = {.dtype = value->type.dtype, .rank = value->type.rank - 1, .dims = value->type.dims};
  int64_t last = type.rank;
  Value *axes = rewrite_constant_ints(match->rewriter, match->root, &last, 1, match->root->origin);
  Value *indices = EMIT_BEFORE(match, OP_Squeeze, type, value, axes)->outputs[0];
  if (type.dtype == DTYPE_INT32 || type.dtype == DTYPE_INT64) return indices;
  Node *cast = EMIT_BEFORE(match, OP_Cast, type_with(type, DTYPE_INT64), indices);
  node_set_int(cast, "to", onnx_dtype(DTYPE_INT64));
  return cast->outputs[0];
}

static Value *integer(Match *match, DType dtype, int64_t number) {
  return rewrite_constant_number(match->rewriter, match->root, dtype, (double)number, match->root->origin);
}

/* Equal (index, 0 1 2 ...) times the table: the row of the index, and zeros where there is none. */
static bool fuse_rows_of_table(Match *match) {
  Value *index = match->values[SOURCE], *rows = match->values[TABLE];
  const Tensor *table = constant_of(rows);
  Type hot = node_input(match->root, 0)->type, type = index->type;
  if (table->rank != 2 || hot.rank == 0 || type.rank != hot.rank || !dim_is(type.dims[type.rank - 1], 1)) return false;
  for (uint32_t i = 0; i + 1 < type.rank; i++) {
    if (!dim_equal(type.dims[i], hot.dims[i])) return false;
  }
  if (!counts_up(constant_of(match->values[POSITIONS]), table->dims[0]) || !is_all_finite(table)) return false;
  if (!schema_runs(OP_Where, NULL, match_opset(match), rows->type.dtype)) return false;
  Bounds bounds;
  bool is_inside = value_bounds(index, &bounds) && bounds.least >= 0 && bounds.greatest < (double)table->dims[0];
  Value *indices = as_indices(match, index);
  if (is_inside) {
    node_set_int(EMIT_MATCH(match, OP_Gather, rows, indices), "axis", 0);
    return true;
  }
  DType integers = indices->type.dtype;
  Value *least = integer(match, integers, 0), *most = integer(match, integers, table->dims[0] - 1);
  Value *near = EMIT_BEFORE(match, OP_Clip, indices->type, indices, least, most)->outputs[0];
  Node *gather = EMIT_BEFORE(match, OP_Gather, match_type(match), rows, near);
  node_set_int(gather, "axis", 0);
  Value *kept = EMIT_BEFORE(match, OP_Equal, type_with(indices->type, DTYPE_BOOL), indices, near)->outputs[0];
  int64_t last = indices->type.rank;
  Value *axes = rewrite_constant_ints(match->rewriter, match->root, &last, 1, match->root->origin);
  kept = EMIT_BEFORE(match, OP_Unsqueeze, type_with(type, DTYPE_BOOL), kept, axes)->outputs[0];
  Value *zero = match_constant(match, match_tensor(match, rows->type.dtype, type_scalar(rows->type.dtype)));
  return EMIT_MATCH(match, OP_Where, kept, gather->outputs[0], zero);
}

/* Rows of the identity times the table. */
static bool fuse_rows_of_identity(Match *match) {
  const Node *gather = match->values[SLICE]->producer;
  const Tensor *table = constant_of(match->values[TABLE]);
  Value *index = node_input(gather, 1);
  if (node_int_or(gather, "axis", 0) != 0 || table->rank != 2 || !is_identity(constant_of(match->values[SOURCE])))
    return false;
  if (!dim_is(match->values[SOURCE]->type.dims[0], table->dims[0]) || !is_all_finite(table)) return false;
  node_set_int(EMIT_MATCH(match, OP_Gather, match->values[TABLE], index), "axis", 0);
  return true;
}

#define HOT OP(Cast, OP(Equal, ANY(SOURCE), CONSTANT(POSITIONS)))
#define SLICED OP_AT(SLICE, Slice, ANY(SOURCE))

static const FusionRule rules[] = {
    {OP(Squeeze, SLICED), OP_Gather, fuse_slice},
    {OP(Reshape, SLICED), OP_Gather, fuse_slice},
    {OP(Gather, SLICED), OP_Gather, fuse_before_reversal},
    {OP(MatMul, HOT, CONSTANT(TABLE)), OP_NONE, fuse_rows_of_table},
    {OP(MatMul, OP_AT(SLICE, Gather, CONSTANT(SOURCE)), CONSTANT(TABLE)), OP_NONE, fuse_rows_of_identity},
};

bool fuse_selection(Model *model) { return fuse_patterns(model, __func__, rules, sizeof rules / sizeof *rules); }
