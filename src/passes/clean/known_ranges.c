/* What bounds decide: a Clip that clips nothing, comparisons whose outcome is known, the width of an index, a table of
 * numbers that are their own positions, products with zero, integers that become narrower and wider again.
 *
 * Indices are made safe when they are used; those that come from an ArgMax, a remainder or a Clip, or whose type is too
 * small to be out of bounds, are safe already. */
#include "passes/analysis/bounds.h"
#include "passes/rewrite.h"
#include "types/moved.h"
#include "types/numbers.h"

enum {
  LARGEST_ZERO = 1 << 16, /* bytes */
  LARGEST_TABLE = 1 << 8, /* numbers that are compared with their positions */
  MOST_MOVES = 4,         /* that are looked through */
};

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
  if (!node_input(node, 0) || !dtype_is_integer(node_input(node, 0)->type.dtype)) return;
  Outcome outcome = compare(node);
  if (outcome != UNKNOWN) rewrite_replace_by_bytes(rewriter, node, outcome == ALWAYS);
}

/* A constant of zeros, none of them negative. */
static bool is_zero(const Value *value) {
  const Tensor *tensor = unread_constant_of(value);
  if (!tensor || tensor->name || tensor->size > LARGEST_ZERO || dtype_bits(tensor->dtype) < 8) return false;
  tensor_ready(tensor);
  for (size_t i = 0; i < tensor->size; i++) {
    if (((const char *)tensor->data)[i]) return false;
  }
  return tensor->size > 0;
}

/* Is it an integer or a truth value as a number, not negative, moved or not? So it is neither infinite nor NaN. */
static bool is_natural(const Value *value) {
  const Node *node = value ? value->producer : NULL;
  Bounds bounds;
  for (int moves = 0; node && node_moves_all(node) && moves < MOST_MOVES; moves++) {
    value = node_input(node, 0);
    node = value->producer;
  }
  if (!node || !node_is(node, OP_Cast)) return false;
  const Value *source = node_input(node, 0);
  DType from = source->type.dtype, to = value->type.dtype;
  if (from == DTYPE_BOOL) return true;
  return dtype_is_integer(from) && (to == DTYPE_FLOAT32 || to == DTYPE_FLOAT64) && value_bounds(source, &bounds) &&
         bounds.least >= 0;
}

/* No number times a number that may be infinite is known to be zero. */
static void decide_product(Rewriter *rewriter, Node *node) {
  for (size_t i = 0; i < 2 && !node->is_gone; i++) {
    const Value *other = node_input(node, 1 - i);
    if (!other || !is_zero(node_input(node, i))) continue;
    if (dtype_is_integer(other->type.dtype) || is_natural(other)) rewrite_replace_by_bytes(rewriter, node, 0);
  }
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

/* Integers that were made narrower and are made as wide as before, and were small enough all the time. */
static void decide_cast(Rewriter *rewriter, Node *node) {
  Node *inner = node_input(node, 0)->producer;
  Bounds bounds;
  if (!inner || !node_is(inner, OP_Cast) || inner->graph != node->graph) return;
  Value *source = node_input(inner, 0);
  if (source->type.dtype != DTYPE_INT64 || inner->outputs[0]->type.dtype != DTYPE_INT32) return;
  if (!type_equal(source->type, node->outputs[0]->type) || !value_bounds(source, &bounds)) return;
  if (bounds.least < INT32_MIN || bounds.greatest > INT32_MAX) return;
  Node *stays = rewrite_replace(rewriter, node, source);
  if (stays) rewrite_hand_over(rewriter, stays, inner);
}

/* Numbers that are their own positions, from 0 on. */
static bool is_own_position(const Tensor *table) {
  if (table->rank != 1 || table->name || (table->dtype != DTYPE_INT32 && table->dtype != DTYPE_INT64)) return false;
  if (table->dims[0] < 1 || table->dims[0] > LARGEST_TABLE) return false;
  size_t width = dtype_bytes(table->dtype, 1);
  tensor_ready(table);
  for (int64_t i = 0; i < table->dims[0]; i++) {
    if (number_decode_int(table->dtype, (const char *)table->data + (size_t)i * width) != i) return false;
  }
  return true;
}

/* What is looked up in such a table is the index itself. */
static void decide_lookup(Rewriter *rewriter, Node *node) {
  const Tensor *table = unread_constant_of(node_input(node, 0));
  Value *index = node_input(node, 1);
  Bounds bounds;
  if (!table || !index || !type_equal(index->type, node->outputs[0]->type) || !is_own_position(table)) return;
  if (!value_bounds(index, &bounds) || bounds.least < 0 || bounds.greatest >= (double)table->dims[0]) return;
  rewrite_replace(rewriter, node, index);
}

static void decide(Rewriter *rewriter, Node *node) {
  if (node->output_count != 1) return;
  if (node_is(node, OP_Clip)) {
    decide_clip(rewriter, node);
    return;
  }
  if (node_is(node, OP_Gather) || node_is(node, OP_GatherElements)) decide_index(rewriter, node);
  if (node_is(node, OP_Gather)) decide_lookup(rewriter, node);
  else if (node_is(node, OP_Cast)) decide_cast(rewriter, node);
  else if (node_is(node, OP_Mul)) decide_product(rewriter, node);
  else if (node_has(node, COMPARES)) decide_comparison(rewriter, node);
}

bool decide_by_ranges(Model *model) {
  Rewriter rewriter;
  rewrite_begin(&rewriter, model, __func__);
  rewrite_each_node(&rewriter, decide);
  return rewrite_end(&rewriter);
}
