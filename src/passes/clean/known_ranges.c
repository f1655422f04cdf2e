/* What bounds decide: a Clip that clips nothing, comparisons whose outcome is known, the width of an index.
 *
 * Indices are made safe when they are used; those that come from an ArgMax, a remainder or a Clip, or whose type is too
 * small to be out of bounds, are safe already. */
#include "base/bytes.h"
#include "passes/analysis/bounds.h"
#include "passes/rewrite.h"

enum { LARGEST_MADE = 1 << 16 /* elements of a known comparison */ };

static bool bounds_of(const Node *node, size_t index, Bounds *bounds) {
  const Value *value = node_input(node, index);
  return value && value_bounds(value, bounds);
}

static void decide_clip(Rewriter *rewriter, Node *node) {
  Bounds inner, low, high;
  if (!bounds_of(node, 0, &inner) || !type_equal(node_input(node, 0)->type, node->outputs[0]->type)) return;
  if (node_input(node, 1) && (!bounds_of(node, 1, &low) || inner.least < low.greatest)) return;
  if (node_input(node, 2) && (!bounds_of(node, 2, &high) || inner.greatest > high.least)) return;
  rewrite_replace(rewriter, node, node_input(node, 0));
}

typedef enum Outcome { UNKNOWN, NEVER, ALWAYS } Outcome;

static Outcome compare(const Node *node) {
  Bounds a, b;
  bool same = node_input(node, 0) == node_input(node, 1);
  if (node_is(node, OP_Equal) && same) return ALWAYS;
  if (!bounds_of(node, 0, &a) || !bounds_of(node, 1, &b)) return UNKNOWN;
  if (node_is(node, OP_Less)) return a.greatest < b.least ? ALWAYS : a.least >= b.greatest ? NEVER : UNKNOWN;
  if (node_is(node, OP_LessOrEqual)) return a.greatest <= b.least ? ALWAYS : a.least > b.greatest ? NEVER : UNKNOWN;
  if (node_is(node, OP_Greater)) return a.least > b.greatest ? ALWAYS : a.greatest <= b.least ? NEVER : UNKNOWN;
  if (node_is(node, OP_GreaterOrEqual)) return a.least >= b.greatest ? ALWAYS : a.greatest < b.least ? NEVER : UNKNOWN;
  return a.least > b.greatest || a.greatest < b.least ? NEVER : UNKNOWN;
}

/* Of integers: a NaN is unlike anything, itself too. */
static void decide_comparison(Rewriter *rewriter, Node *node) {
  const Value *value = node->outputs[0];
  int64_t count;
  if (!node_input(node, 0) || !dtype_is_integer(node_input(node, 0)->type.dtype)) return;
  if (!type_count(value->type, &count) || count > LARGEST_MADE) return;
  Outcome outcome = compare(node);
  if (outcome == UNKNOWN) return;
  Arena *arena = &rewriter->context->arena;
  Tensor *tensor = arena_new(arena, Tensor);
  char *data = arena_new_array(arena, (size_t)count, char);
  fill_bytes(data, outcome == ALWAYS, (size_t)count);
  int64_t *dims = arena_new_array(arena, value->type.rank, int64_t);
  for (uint32_t i = 0; i < value->type.rank; i++) dims[i] = value->type.dims[i].constant;
  *tensor = (Tensor){.dtype = DTYPE_BOOL, .rank = value->type.rank, .dims = dims, .data = data, .size = (size_t)count};
  rewrite_replace(rewriter, node, rewrite_constant(rewriter, node, tensor, node->origin));
}

/* Gather takes indices of either width: a Cast that changes none of them is in vain. */
static void decide_index(Rewriter *rewriter, Node *node) {
  Value *index = node_input(node, 1);
  Node *cast = index ? index->producer : NULL;
  Bounds bounds;
  if (!cast || !node_is(cast, OP_Cast) || cast->graph != node->graph) return;
  Value *source = node_input(cast, 0);
  DType from = source->type.dtype;
  if (from != DTYPE_INT32 && from != DTYPE_INT64) return;
  if (!value_bounds(source, &bounds) || bounds.least < INT32_MIN || bounds.greatest > INT32_MAX) return;
  use_set(&node->inputs[1], source);
  rewrite_hand_over(rewriter, node, cast);
  rewriter->changed = true;
}

static void decide(Rewriter *rewriter, Node *node) {
  if (node->output_count != 1) return;
  if (node_is(node, OP_Clip)) {
    decide_clip(rewriter, node);
    return;
  }
  if (node_is(node, OP_Gather) || node_is(node, OP_GatherElements)) decide_index(rewriter, node);
  if (node_has(node, COMPARES)) decide_comparison(rewriter, node);
}

bool decide_by_ranges(Model *model) {
  Rewriter rewriter;
  rewrite_begin(&rewriter, model, __func__);
  rewrite_each_node(&rewriter, decide);
  return rewrite_end(&rewriter);
}
