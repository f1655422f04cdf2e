/* Roundings to half precision between computations in float32 are left out, as XLA does.
 *
 * A runtime without the half's own kernels computes in float32 and narrows each result. Where the next operator widens
 * it again, both go. Operators that only move elements do so in float32 between the two: so a region of float32 has one
 * Cast where it begins and one where it ends. What moves all elements at a border does so in float32 as well, where
 * those who look for an operator with its moves see both. A rounding that the program asked for, and reads back, stays.
 */
#include "onnx/facts/schema.h"
#include "passes/passes.h"
#include "passes/rewrite.h"

enum {
  MOST_VISITS = 64,      /* nodes that are looked at for one that widens */
  SMALL_WEIGHT = 1 << 12 /* bytes of a constant that is widened along with what it is joined to */
};

static bool is_widening(const Node *node) {
  return node && node_is(node, OP_Cast) && node->outputs[0]->type.dtype == DTYPE_FLOAT32 &&
         dtype_is_half(node_input(node, 0)->type.dtype);
}

static bool is_narrowed(const Value *value, const Graph *graph) {
  const Node *node = value->producer;
  return node && node_is(node, OP_Narrow) && node->graph == graph && node_int_or(node, "asked", 0) != NARROW_KEPT;
}

static bool is_small_weight(const Value *value) {
  const Tensor *tensor = unread_constant_of(value);
  return tensor && tensor->size <= SMALL_WEIGHT;
}

/* What a node moves about: of Concat all inputs, of others the first. */
static uint32_t moved_inputs(const Node *node) { return node_is(node, OP_Concat) ? node->input_count : 1; }

static bool can_be_moved_wide(const Value *value, const Graph *graph, int *visits);

/* Can it move what was not rounded, if `given` were it? With visits left, what others move to it counts as well. */
static bool can_move_wide(const Node *node, const Value *given, int *visits) {
  if (!node_has(node, MOVES)) return false;
  for (uint32_t i = 0; i < moved_inputs(node); i++) {
    const Value *value = node_input(node, i);
    if (!value || !dtype_is_half(value->type.dtype)) return false;
    if (value != given && !can_be_moved_wide(value, node->graph, visits)) return false;
  }
  return true;
}

static bool can_be_moved_wide(const Value *value, const Graph *graph, int *visits) {
  if (is_narrowed(value, graph) || is_small_weight(value)) return true;
  const Node *node = value->producer;
  return node && node->graph == graph && visits && --*visits >= 0 && can_move_wide(node, NULL, visits);
}

static bool is_wanted_wide(const Value *value, const Graph *graph, int *visits);

static bool are_wanted_wide(const Node *node, int *visits) {
  for (uint32_t i = 0; i < node->output_count; i++) {
    const Value *value = node->outputs[i];
    if (value && value->uses && !is_wanted_wide(value, node->graph, visits)) return false;
  }
  return true;
}

static bool is_wanted_wide(const Value *value, const Graph *graph, int *visits) {
  for (const Use *use = value->uses; use; use = use->next) {
    if (--*visits < 0) return false;
    if (!use->node || use->node->graph != graph) continue;
    if (is_widening(use->node)) return true;
    if (can_move_wide(use->node, value, visits) && are_wanted_wide(use->node, visits)) return true;
  }
  return false;
}

static Value *unrounded(Rewriter *rewriter, Node *node, Value *value) {
  if (is_narrowed(value, node->graph)) {
    rewrite_hand_over(rewriter, node, value->producer);
    return node_input(value->producer, 0);
  }
  const Origin *origin = value->producer ? value->producer->origin : node->origin;
  Value *wide = rewrite_in_type(rewriter, node, origin, value, DTYPE_FLOAT32);
  /* What the producer was handed in this pass is not yet part of its origin. */
  if (value->producer && wide->producer) rewrite_hand_over(rewriter, wide->producer, value->producer);
  return wide;
}

/* The value becomes float32; whoever read it reads it narrowed. */
static void narrow_after(Rewriter *rewriter, Node *node, Value *value) {
  Type half = value->type;
  const Origin *origin = REWRITE_ORIGIN(rewriter, node);
  value->type = type_with(half, DTYPE_FLOAT32);
  Node *narrow = graph_node(node->graph, origin, OP_Narrow, &value, 1, &half, 1, node->next);
  for (Use *use = value->uses, *next; use; use = next) {
    next = use->next;
    if (use != &narrow->inputs[0]) use_set(use, narrow->outputs[0]);
  }
  rewrite_take_name(narrow->outputs[0], value);
}

static void move_unrounded(Rewriter *rewriter, Node *node) {
  for (uint32_t i = 0; i < moved_inputs(node); i++) {
    Value *value = node_input(node, i);
    use_set(&node->inputs[i], unrounded(rewriter, node, value));
    if (value->producer) rewrite_drop_unused(rewriter, value->producer, NULL);
  }
  for (uint32_t i = 0; i < node->output_count; i++) {
    if (node->outputs[i]) narrow_after(rewriter, node, node->outputs[i]);
  }
  rewriter->changed = true;
}

static bool moves_narrowed(const Node *node) {
  bool narrowed = false;
  if (!can_move_wide(node, NULL, NULL)) return false;
  for (uint32_t i = 0; i < moved_inputs(node); i++)
    narrowed = narrowed || is_narrowed(node_input(node, i), node->graph);
  return narrowed;
}

/* Does nobody else read what was narrowed for it, so that it may be narrowed behind it? */
static bool can_be_narrowed_behind(const Node *move) {
  if (!node_moves_all(move) && !moves_fewer(move)) return false;
  const Value *value = node_input(move, 0);
  return is_narrowed(value, move->graph) && !value->uses->next;
}

/* Another reader that widens the value. */
static bool is_widened_too(const Value *value, const Node *node) {
  for (const Use *use = value->uses; use; use = use->next) {
    if (use->node && use->node->graph == node->graph && is_widening(use->node)) return true;
  }
  return false;
}

/* A large weight keeps its size. */
static bool can_be_widened_before(const Node *move) {
  const Value *value = node_input(move, 0);
  return unread_constant_of(value) ? is_small_weight(value) : node_moves_all(move) || is_widened_too(value, move);
}

/* What is widened as it is and after it was moved is widened first: one Cast, and one value that all is computed of. A
 * constant is widened at export, and what it was moved for is seen by those who read it. */
static bool widen_first(Rewriter *rewriter, Node *node) {
  Value *moved = node_input(node, 0);
  Node *move = moved->producer;
  if (!move || !node_has(move, MOVES) || move->graph != node->graph || moved_inputs(move) != 1) return false;
  if (move->output_count != 1 || moved->uses->next || !can_be_widened_before(move)) return false;
  use_set(&move->inputs[0], unrounded(rewriter, move, node_input(move, 0)));
  moved->type = type_with(moved->type, DTYPE_FLOAT32);
  rewrite_replace(rewriter, node, moved);
  return true;
}

/* Are all parts of it widened, and read by nothing else? */
static bool are_all_widened(const Node *node) {
  for (uint32_t i = 0; i < node->output_count; i++) {
    const Value *part = node->outputs[i];
    const Node *user = part ? value_only_user(part) : NULL;
    if (!is_widening(user) || user->graph != node->graph) return false;
  }
  return true;
}

/* What is parted and then widened is widened first: one Cast. Those of the parts change nothing any more. */
static bool widen_before_parts(Rewriter *rewriter, Node *node) {
  if (node->output_count < 2 || !node_has(node, MOVES) || moved_inputs(node) != 1 || !are_all_widened(node))
    return false;
  const Value *whole = node_input(node, 0);
  if (!dtype_is_half(whole->type.dtype) || unread_constant_of(whole)) return false;
  use_set(&node->inputs[0], unrounded(rewriter, node, node_input(node, 0)));
  for (uint32_t i = 0; i < node->output_count; i++)
    node->outputs[i]->type = type_with(node->outputs[i]->type, DTYPE_FLOAT32);
  return true;
}

static bool is_half_widened(const Value *value, const Node *narrow) {
  const Node *cast = value->producer;
  return is_widening(cast) && cast->graph == narrow->graph &&
         node_input(cast, 0)->type.dtype == narrow->outputs[0]->type.dtype;
}

/* The first of the nodes that move what was widened, for the Narrow alone, from the half that it becomes; NULL: it is
 * no such half. */
static Node *first_mover(const Node *narrow) {
  const Value *value = node_input(narrow, 0);
  Node *first = NULL;
  for (int visits = MOST_VISITS; visits > 0 && value->producer && !value->uses->next; visits--) {
    Node *node = value->producer;
    if (node->graph != narrow->graph || !node_moves_all(node)) break;
    first = node;
    value = node_input(node, 0);
  }
  return first && is_half_widened(value, narrow) ? first : NULL;
}

/* What was only moved in float32 is moved as the half that it was and becomes again. */
static bool move_as_half(Rewriter *rewriter, Node *narrow) {
  Node *first = first_mover(narrow);
  if (!first) return false;
  Node *cast = node_input(first, 0)->producer;
  DType half = narrow->outputs[0]->type.dtype;
  use_set(&first->inputs[0], node_input(cast, 0));
  for (Value *value = first->outputs[0];; value = value->uses->node->outputs[0]) {
    value->type = type_with(value->type, half);
    if (value->uses->node == narrow) break;
  }
  rewrite_drop_unused(rewriter, cast, first);
  rewrite_replace(rewriter, narrow, node_input(narrow, 0));
  return true;
}

/* An input of the graph has no node that could take over where the rounding came from: its readers do. */
static void replace_by_half(Rewriter *rewriter, Node *narrow) {
  Value *half = node_input(node_input(narrow, 0)->producer, 0);
  for (const Use *use = narrow->outputs[0]->uses; use && !half->producer; use = use->next)
    rewrite_hand_over(rewriter, use->node, narrow);
  rewrite_replace(rewriter, narrow, half);
}

static void leave_out(Rewriter *rewriter, Node *node) {
  int visits = MOST_VISITS;
  if (is_widening(node) && is_narrowed(node_input(node, 0), node->graph)) {
    Node *narrow = node_input(node, 0)->producer;
    Node *stays = rewrite_replace(rewriter, node, node_input(narrow, 0));
    rewrite_drop_unused(rewriter, narrow, stays);
  } else if (is_widening(node) && widen_first(rewriter, node)) {
    rewriter->changed = true;
  } else if (widen_before_parts(rewriter, node)) {
    rewriter->changed = true;
  } else if (node_is(node, OP_Narrow) && is_half_widened(node_input(node, 0), node)) {
    replace_by_half(rewriter, node);
  } else if (node_is(node, OP_Narrow) && move_as_half(rewriter, node)) {
    rewriter->changed = true;
  } else if (can_be_narrowed_behind(node) || (moves_narrowed(node) && are_wanted_wide(node, &visits))) {
    move_unrounded(rewriter, node);
  }
}

bool leave_out_roundings(Model *model) {
  Rewriter rewriter;
  rewrite_begin(&rewriter, model, __func__);
  rewrite_each_node(&rewriter, leave_out);
  return rewrite_end(&rewriter);
}
