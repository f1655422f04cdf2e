/* Sizes that a graph computes: see size_values.h. */
#include "passes/analysis/size_values.h"

#include <math.h>

#include "passes/pattern.h"

enum { DEEPEST_SIZE = 12 /* operators between Shape and what is divided by */ };

/* Exactly, whatever the symbols are. */
static bool divide(Context *context, Dim size, Dim by, Dim *quotient) {
  enum { MOST_TERMS = 8 };
  DimTerm terms[MOST_TERMS];
  if (!dim_is_constant(by) || by.constant < 1) return false;
  if (dim_is_constant(size)) {
    *quotient = dim_of(size.constant / by.constant);
    return size.constant % by.constant == 0;
  }
  if (size.expr->term_count > MOST_TERMS) return false;
  for (size_t i = 0; i < size.expr->term_count; i++) {
    terms[i] = size.expr->terms[i];
    if (terms[i].coefficient % by.constant) return false;
    terms[i].coefficient /= by.constant;
  }
  *quotient = dim_from_terms(context, terms, size.expr->term_count);
  return true;
}

static bool read_from(Context *context, const Value *value, int depth, Dim *size) {
  double number;
  Dim one, other;
  if (uniform_number(value, &number) && number >= 1 && number == floor(number) && number < 0x1p53) {
    *size = dim_of((int64_t)number);
    return true;
  }
  const Node *node = value->producer;
  if (!node || depth == 0) return false;
  if (node_is(node, OP_Mul)) {
    if (!read_from(context, node_input(node, 0), depth - 1, &one)) return false;
    if (!read_from(context, node_input(node, 1), depth - 1, &other)) return false;
    *size = dim_multiply(context, one, other);
    return true;
  }
  if (node_is(node, OP_Div) && dtype_is_integer(value->type.dtype)) {
    if (!read_from(context, node_input(node, 0), depth - 1, &one)) return false;
    return read_from(context, node_input(node, 1), depth - 1, &other) && divide(context, one, other, size);
  }
  if (node_is(node, OP_Shape)) {
    Type type = node_input(node, 0)->type;
    int64_t start = node_int_or(node, "start", 0), end = node_int_or(node, "end", type.rank);
    if (type.dtype == DTYPE_NONE || start < 0 || end != start + 1 || end > type.rank) return false;
    *size = type.dims[start];
    return true;
  }
  bool same = node_is(node, OP_Cast) || node_has(node, RENAMES);
  return same && read_from(context, node_input(node, 0), depth - 1, size);
}

bool read_size(Context *context, const Value *value, Dim *size) {
  return read_from(context, value, DEEPEST_SIZE, size);
}
