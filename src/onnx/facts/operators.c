/* The table of operators. */
#include "onnx/facts/operators.h"

#include <string.h>

const Operator operators[OP_COUNT] = {
    {.name = ""},
#define OPERATOR(name, least_in, most_in, least_out, most_out, attributes, ...) \
  {#name, least_in, most_in, least_out, most_out, attributes, __VA_ARGS__},
#include "onnx/facts/operators.inc"
    {.name = ""},
#include "onnx/facts/composites.inc"
#undef OPERATOR
};

/* The rows of each domain are in the order of strcmp. */
Op op_from_name(const char *name, const char *domain) {
  bool composite = strcmp(domain, COMPOSITE_DOMAIN) == 0;
  if (*domain && !composite) return OP_NONE;
  size_t low = composite ? OP_STANDARD_END + 1 : OP_NONE + 1, high = composite ? OP_COUNT : OP_STANDARD_END;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    int order = strcmp(operators[middle].name, name);
    if (order == 0) return (Op)middle;
    if (order < 0) low = middle + 1;
    else high = middle;
  }
  return OP_NONE;
}
