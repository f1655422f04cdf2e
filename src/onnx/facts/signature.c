/* Lookup of signatures, and reading what operators.inc says about attributes. */
#include "onnx/facts/signature.h"

#include <stdlib.h>
#include <string.h>

/* Sorted by operator, then by version. */
static const Signature rows[] = {
#include "onnx/facts/signature.inc"
};

enum { ROW_COUNT = sizeof rows / sizeof *rows };

const Signature *signature_of(Op op, int64_t opset) {
  size_t low = 0, high = ROW_COUNT;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (rows[middle].op < op) low = middle + 1;
    else high = middle;
  }
  const Signature *found = NULL;
  for (; low < ROW_COUNT && rows[low].op == op && rows[low].version <= opset; low++) found = &rows[low];
  return found && *found->parameters ? found : NULL;
}

bool attribute_fact_next(const char **at, AttributeFact *fact) {
  if (!**at) return false;
  const char *equals = strchr(*at, '=');
  *fact = (AttributeFact){.name = *at, .length = (size_t)(equals - *at), .kind = equals[1], .last = INT64_MAX};
  char *next = (char *)(uintptr_t)equals + 2;
  if (*next == '!') {
    fact->required = true;
    next++;
  }
  if (*next && *next != ' ') {
    fact->first = strtoll(next, &next, 10);
    next += strlen("..");
    if (*next >= '0' && *next <= '9') fact->last = strtoll(next, &next, 10);
  }
  *at = next + (*next == ' ');
  return true;
}
