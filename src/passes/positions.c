/* Finding counted positions. */
#include "passes/positions.h"

#include "passes/pattern.h"

bool counts_positions(const Value *value, uint32_t from_end, Dim size) {
  Type type = value->type;
  double first, step;
  for (uint32_t i = 1; i <= type.rank; i++) {
    if (!dim_equal(type.dims[type.rank - i], i == from_end ? size : dim_of(1))) return false;
  }
  while (value->producer && (node_is(value->producer, "Reshape") || node_is(value->producer, "Unsqueeze") ||
                             node_is(value->producer, "Squeeze"))) {
    value = node_input(value->producer, 0);
  }
  const Node *range = value->producer;
  return type.rank >= from_end && range && node_is(range, "Range") && uniform_number(node_input(range, 0), &first) &&
         uniform_number(node_input(range, 2), &step) && first == 0 && step == 1;
}
