/* One position of an axis: a Slice of one element whose axis is then dropped is a Gather, and it picks the position
 * before a Transpose rather than after it, so that only what is picked is moved. */
#include "passes/analysis/positions.h"
#include "passes/pattern.h"

enum { SOURCE, SLICE };

static bool only_integer(const Value *value, int64_t *number) {
  const Tensor *tensor = constant_of(value);
  if (!tensor || tensor->dtype != DTYPE_INT64 || tensor->size != sizeof *number) return false;
  memcpy(number, tensor->data, sizeof *number);
  return true;
}

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

/* What is left of the permutation without the axis must leave the others in order. */
static bool fuse_before_transpose(Match *match) {
  const Value *turned = match->values[SLICE], *index = node_input(match->root, 1);
  const Attribute *order = node_attribute(turned->producer, "perm");
  int64_t axis = node_int_or(match->root, "axis", 0), rank = turned->type.rank, last = -1;
  int64_t number;
  if (!order || (int64_t)order->count != rank || index->type.rank != 0 || !only_integer(index, &number)) return false;
  if (axis < 0) axis += rank;
  for (int64_t i = 0; i < rank; i++) {
    if (i == axis) continue;
    if (order->integers[i] < last) return false;
    last = order->integers[i];
  }
  int64_t source_axis = order->integers[axis];
  Value *same = match_constant(match, constant_of(index));
  node_set_int(EMIT_MATCH(match, OP_Gather, match->values[SOURCE], same), "axis", source_axis);
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

#define SLICED OP_AT(SLICE, Slice, ANY(SOURCE))

static const FusionRule rules[] = {
    {OP(Squeeze, SLICED), OP_Gather, fuse_slice},
    {OP(Reshape, SLICED), OP_Gather, fuse_slice},
    {OP(Gather, OP_AT(SLICE, Transpose, ANY(SOURCE))), OP_Gather, fuse_before_transpose},
    {OP(Gather, SLICED), OP_Gather, fuse_before_reversal},
};

bool fuse_selection(Model *model) { return fuse_patterns(model, __func__, rules, sizeof rules / sizeof *rules); }
