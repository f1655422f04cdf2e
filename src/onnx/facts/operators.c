/* The table of operators. */
#include "onnx/facts/operators.h"

#include <string.h>

const Operator operators[OP_COUNT] = {
    {.name = ""},
#define OPERATOR(name, least_in, most_in, least_out, most_out, attributes, ...) \
  {#name, least_in, most_in, least_out, most_out, attributes, __VA_ARGS__},
#include "onnx/facts/operators.inc"
#undef OPERATOR
};

/* The rows are in the order of strcmp. */
Op op_from_name(const char *name) {
  size_t low = OP_NONE + 1, high = OP_COUNT;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    int order = strcmp(operators[middle].name, name);
    if (order == 0) return (Op)middle;
    if (order < 0) low = middle + 1;
    else high = middle;
  }
  return OP_NONE;
}
