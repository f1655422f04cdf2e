/* Finding counted positions, and axes that are turned around. */
#include "passes/analysis/positions.h"

#include "onnx/evaluate/evaluate.h"
#include "passes/pattern.h"

bool counts_positions(const Value *value, uint32_t from_end, Dim size) {
  Type type = value->type;
  double first, step;
  for (uint32_t i = 1; i <= type.rank; i++) {
    if (!dim_equal(type.dims[type.rank - i], i == from_end ? size : dim_of(1))) return false;
  }
  while (value->producer && (node_is(value->producer, OP_Reshape) || node_is(value->producer, OP_Unsqueeze) ||
                             node_is(value->producer, OP_Squeeze))) {
    value = node_input(value->producer, 0);
  }
  const Node *range = value->producer;
  return type.rank >= from_end && range && node_is(range, OP_Range) && uniform_number(node_input(range, 0), &first) &&
         uniform_number(node_input(range, 2), &step) && first == 0 && step == 1;
}

/* Does the Gather take all positions, from the last to the first? */
static bool gathers_reversed(const Node *node, int64_t *axis) {
  const Value *source = node_input(node, 0);
  const Tensor *places = constant_of(node_input(node, 1));
  *axis = node_int_or(node, "axis", 0);
  if (*axis < 0) *axis += source->type.rank;
  if (!places || places->rank != 1 || !dtype_is_integer(places->dtype) || type_is_unranked(source->type)) return false;
  if (*axis < 0 || *axis >= source->type.rank || !dim_is(source->type.dims[*axis], places->dims[0])) return false;
  for (int64_t i = 0, last = places->dims[0] - 1; i <= last; i++) {
    if (tensor_int_at(places, i) != last - i) return false;
  }
  return type_equal(source->type, node->outputs[0]->type);
}

bool reverses_axis(const Node *node, int64_t *axis) {
  int64_t step;
  if (node && node_is(node, OP_Gather)) return gathers_reversed(node, axis);
  if (!node || !node_is(node, OP_Slice) || !only_integer(node_input(node, 4), &step) || step != -1) return false;
  const Value *source = node_input(node, 0);
  if (!only_integer(node_input(node, 3), axis) || source->type.dtype == DTYPE_NONE) return false;
  if (*axis < 0) *axis += source->type.rank;
  return type_equal(source->type, node->outputs[0]->type); /* as long backwards as forwards */
}
