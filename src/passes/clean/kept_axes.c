/* Axes that are dropped and put back are kept by the reduction itself, so that what is written with the axes kept and
 * what is mapped over rows are one form. */
#include "passes/clean/kept_axes.h"

#include "passes/pattern.h"

enum { MOST_LOOKED_AT = 12 /* operators on the way to the reductions: the work stays linear */ };

typedef enum Keeping { CANNOT_KEEP, IS_SCALAR, KEEPS } Keeping;

static bool drops_axes(const Node *node) { return node_has(node, REDUCES) && node_int_or(node, "keepdims", 1) == 0; }

static Keeping can_keep(const Value *value, Type to, int *budget);

static Keeping can_keep_operands(const Node *node, Type to, int *budget) {
  Keeping all = IS_SCALAR;
  for (uint32_t i = 0; i < node->input_count; i++) {
    const Value *operand = node_input(node, i);
    Keeping one = operand ? can_keep(operand, to, budget) : IS_SCALAR;
    if (one == CANNOT_KEEP) return CANNOT_KEEP;
    if (one == KEEPS) all = KEEPS;
  }
  return all;
}

/* Can the value have this shape, in which its dropped axes are of size 1? Scalars stay as they are. */
static Keeping can_keep(const Value *value, Type to, int *budget) {
  const Node *node = value->producer;
  bool reduced[MAX_RANK] = {false};
  Keeping otherwise = value->type.rank == 0 && value->type.dtype != DTYPE_NONE ? IS_SCALAR : CANNOT_KEEP;
  if (!node || node->output_count != 1 || !value_only_user(value)) return otherwise;
  if (drops_axes(node)) {
    Type from = node_input(node, 0)->type;
    if (from.rank != to.rank || !reduced_axes(node, reduced)) return otherwise;
    return is_reduced_shape(to, from, reduced) ? KEEPS : otherwise;
  }
  if (!node_has(node, ELEMENTWISE) || (*budget)-- <= 0) return otherwise;
  return can_keep_operands(node, to, budget) == KEEPS ? KEEPS : otherwise;
}

/* What can_keep has found: scalars and the types of elements stay. */
static void keep(Rewriter *rewriter, Value *value, Type to, int *budget) {
  Node *node = value->producer;
  int looked_at = *budget;
  if (can_keep(value, to, &looked_at) != KEEPS) return;
  value->type = type_with(to, value->type.dtype);
  rewriter->changed = true;
  if (drops_axes(node)) {
    node_set_int(node, "keepdims", 1);
    return;
  }
  --*budget;
  for (uint32_t i = 0; i < node->input_count; i++) {
    if (node_input(node, i)) keep(rewriter, node_input(node, i), to, budget);
  }
}

/* The first reduction on the way back, by the first operand that has one. */
static const Node *reduction_of(const Value *value, int *budget) {
  const Node *node = value->producer;
  if (!node || (*budget)-- <= 0) return NULL;
  if (drops_axes(node)) return node;
  if (!node_has(node, ELEMENTWISE)) return NULL;
  for (uint32_t i = 0; i < node->input_count; i++) {
    const Node *found = node_input(node, i) ? reduction_of(node_input(node, i), budget) : NULL;
    if (found) return found;
  }
  return NULL;
}

/* A Transpose of what is kept that gives the type: dropped axes go where the node puts axes in, in their order. */
typedef struct Turned {
  uint32_t rank;
  int64_t order[MAX_RANK];
  Dim kept[MAX_RANK]; /* sizes before it */
} Turned;

static bool turn(const Node *transpose, const Node *reduction, Type to, Turned *turned) {
  const Attribute *order = node_attribute(transpose, "perm");
  Type from = node_input(reduction, 0)->type, apart = transpose->outputs[0]->type;
  bool reduced[MAX_RANK] = {false};
  int64_t kept[MAX_RANK], dropped[MAX_RANK];
  uint32_t kept_count = 0, dropped_count = 0, next_kept = 0, next_dropped = 0;
  if (!order || from.rank != to.rank || to.rank > MAX_RANK || !reduced_axes(reduction, reduced)) return false;
  for (uint32_t i = 0; i < from.rank; i++) {
    if (reduced[i]) dropped[dropped_count++] = i;
    else kept[kept_count++] = i;
    turned->kept[i] = reduced[i] ? dim_of(1) : from.dims[i];
  }
  if (kept_count != apart.rank || order->count != apart.rank) return false;
  turned->rank = to.rank;
  for (uint32_t i = 0; i < to.rank; i++) {
    bool is_next = next_kept < kept_count && dim_equal(to.dims[i], apart.dims[next_kept]);
    if (is_next) turned->order[i] = kept[order->integers[next_kept++]];
    else if (dim_is(to.dims[i], 1) && next_dropped < dropped_count) turned->order[i] = dropped[next_dropped++];
    else return false;
  }
  return next_kept == kept_count && next_dropped == dropped_count;
}

static bool keep_below_transpose(Rewriter *rewriter, Node *node, Node *transpose) {
  Turned turned;
  int budget = MOST_LOOKED_AT;
  Value *source = node_input(transpose, 0);
  const Node *reduction = reduction_of(source, &budget);
  Type to = node->outputs[0]->type;
  if (!reduction || !value_only_user(transpose->outputs[0]) || !turn(transpose, reduction, to, &turned)) return false;
  Type kept = type_make(rewriter->context, to.dtype, turned.kept, turned.rank);
  budget = MOST_LOOKED_AT;
  if (can_keep(source, kept, &budget) != KEEPS) return false;
  budget = MOST_LOOKED_AT;
  keep(rewriter, source, kept, &budget);
  node_set_ints(transpose, "perm", turned.order, turned.rank);
  transpose->outputs[0]->type = to;
  rewrite_replace(rewriter, node, transpose->outputs[0]);
  return true;
}

bool keep_reduced_axes(Rewriter *rewriter, Node *node) {
  Value *value = node_input(node, 0);
  Type to = node->outputs[0]->type;
  int budget = MOST_LOOKED_AT;
  if (!value->producer || to.dtype == DTYPE_NONE || to.rank > MAX_RANK || to.rank <= value->type.rank) return false;
  if (node_is(value->producer, OP_Transpose)) return keep_below_transpose(rewriter, node, value->producer);
  if (can_keep(value, to, &budget) != KEEPS) return false;
  budget = MOST_LOOKED_AT;
  keep(rewriter, value, to, &budget);
  rewrite_replace(rewriter, node, value);
  return true;
}
