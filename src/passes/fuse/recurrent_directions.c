/* Two recurrent operators that go over the same steps, one forwards and one backwards, as one.
 *
 * All that is read of either must be joined with the same of the other along the features: of [steps, directions,
 * batch, features] a Transpose and a Reshape then make what was joined, and with a batch of 1 a Reshape alone. */
#include "base/bytes.h"
#include "onnx/facts/schema.h"
#include "passes/fuse/recurrent.h"
#include "passes/pattern.h"
#include "types/moved.h"

enum {
  MOST_RESULTS = 3,
  X = 0,
  WEIGHTS = 1,
  RECURRENCE = 2,
  BIAS = 3,
  LENGTHS = 4,
  FIRST_STATE = 5,
  PEEPHOLES = 7,
  MOST_INPUTS = 8
};

/* What becomes of one result of both operators. */
typedef struct Joined {
  Node *concat;     /* NULL: nobody reads it */
  Node *turned;     /* a Transpose of the joined steps that puts the batch first, or NULL */
  Node *paths[2];   /* what leaves out the axis of directions, of each operator */
  Node *casts[2];   /* to a half, or NULL */
  Dim steps, batch; /* of results by steps; one step of states */
} Joined;

typedef struct Pair {
  Rewriter *rewriter;
  Node *forward, *backward;
  Joined results[MOST_RESULTS];
} Pair;

/* ---- finding the other direction ---- */

static Node *only_reader(const Value *value) {
  return value && value->uses && !value->uses->next ? value->uses->node : NULL;
}

static bool joins_features(const Node *concat) {
  int64_t axis = node_int_or(concat, "axis", 0), rank = concat->outputs[0]->type.rank;
  return node_is(concat, OP_Concat) && concat->input_count == 2 && rank > 0 &&
         (axis < 0 ? axis + rank : axis) == rank - 1;
}

/* From an operand of the Concat back to a recurrent operator's result: through a cast, and what leaves out its axes. */
static Value *result_behind(const Node *concat, size_t side, Joined *joined) {
  Value *value = node_input(concat, side);
  Node *node = value->producer;
  joined->casts[side] = NULL;
  if (node && is_cast_of_half(node) && dtype_is_half(value->type.dtype)) {
    joined->casts[side] = node;
    value = node_input(node, 0);
    node = value->producer;
  }
  if (!node || !node_has(node, RENAMES) || node->graph != concat->graph) return NULL;
  Value *result = node_input(node, 0);
  if (!result->producer || !node_has(result->producer, RECURRENT) || result->graph != concat->graph) return NULL;
  uint32_t rank = value->type.rank, own = result->type.rank;
  joined->paths[side] = node;
  bool keeps_features = rank > 0 && own >= 3 && dim_equal(value->type.dims[rank - 1], result->type.dims[own - 1]);
  return keeps_features ? result : NULL;
}

static bool is_read_once(const Joined *joined, size_t side, const Value *result) {
  const Node *path = joined->paths[side], *cast = joined->casts[side];
  if (only_reader(result) != path) return false;
  if (cast && only_reader(path->outputs[0]) != cast) return false;
  return only_reader((cast ? cast : path)->outputs[0]) == joined->concat;
}

static Node *reader_of_all(const Value *result) {
  Node *node = only_reader(result);
  if (node && node_has(node, RENAMES)) node = only_reader(node->outputs[0]);
  if (node && is_cast_of_half(node)) node = only_reader(node->outputs[0]);
  return node;
}

static void find_turned(Joined *joined) {
  Node *node = only_reader(joined->concat->outputs[0]);
  const Attribute *order = node && node_is(node, OP_Transpose) ? node_attribute(node, "perm") : NULL;
  if (node && node->graph != joined->concat->graph) return;
  if (order && order->count == 3 && order->integers[0] == 1 && order->integers[1] == 0) joined->turned = node;
}

/* Result `index` of both operators is joined by one Concat, or nobody reads it. */
static bool read_joined(Pair *pair, uint32_t index) {
  Joined *joined = &pair->results[index];
  const Value *results[] = {index < pair->forward->output_count ? pair->forward->outputs[index] : NULL,
                            index < pair->backward->output_count ? pair->backward->outputs[index] : NULL};
  bool used[] = {results[0] && results[0]->uses, results[1] && results[1]->uses};
  if (!used[0] && !used[1]) return true;
  if (!used[0] || !used[1]) return false;
  Node *concat = reader_of_all(results[0]);
  if (!concat || !joins_features(concat) || concat->graph != pair->forward->graph) return false;
  joined->concat = concat;
  for (size_t side = 0; side < 2; side++) {
    if (result_behind(concat, side, joined) != results[side] || !is_read_once(joined, side, results[side]))
      return false;
  }
  if (!joined->casts[0] != !joined->casts[1]) return false;
  Type type = results[0]->type;
  joined->steps = index == 0 ? type.dims[0] : dim_of(1);
  joined->batch = type.dims[type.rank - 2];
  if (index == 0) find_turned(joined);
  return true;
}

/* ---- are they alike? ---- */

static bool goes(const Node *node, const char *way) {
  const Attribute *direction = node_attribute(node, "direction");
  return strcmp(direction ? direction->string : "forward", way) == 0;
}

static bool same_list(const Node *a, const Node *b, const char *name) {
  const Attribute *one = node_attribute(a, name), *other = node_attribute(b, name);
  if (!one || !other) return one == other;
  if (one->kind != other->kind || one->count != other->count) return false;
  for (size_t i = 0; i < one->count; i++) {
    bool same =
        one->kind == ATTRIBUTE_STRINGS ? one->strings[i] == other->strings[i] : one->reals[i] == other->reals[i];
    if (!same) return false;
  }
  return true;
}

static const char *const activation_lists[] = {"activations", "activation_alpha", "activation_beta"};
enum { ACTIVATION_LISTS = 3, MOST_ACTIVATIONS = 4 };

static bool same_activations(const Node *a, const Node *b) {
  for (size_t i = 0; i < ACTIVATION_LISTS; i++) {
    const Attribute *list = node_attribute(a, activation_lists[i]);
    if (!same_list(a, b, activation_lists[i]) || (list && list->count > MOST_ACTIVATIONS)) return false;
  }
  return true;
}

/* Each list twice, for one direction after the other. */
static void set_activations_of_both(Node *node, const Node *from) {
  for (size_t i = 0; i < ACTIVATION_LISTS; i++) {
    const Attribute *list = node_attribute(from, activation_lists[i]);
    Str names[2 * MOST_ACTIVATIONS];
    float numbers[2 * MOST_ACTIVATIONS];
    for (size_t k = 0; list && k < 2 * list->count; k++) {
      if (list->kind == ATTRIBUTE_STRINGS) names[k] = list->strings[k % list->count];
      else numbers[k] = list->reals[k % list->count];
    }
    if (list && list->kind == ATTRIBUTE_STRINGS) node_set_strings(node, activation_lists[i], names, 2 * list->count);
    else if (list) node_set_floats(node, activation_lists[i], numbers, 2 * list->count);
  }
}

static bool is_weight(size_t input) { return (input >= WEIGHTS && input <= BIAS) || input == PEEPHOLES; }
static bool is_start(size_t input) { return input >= FIRST_STATE && input < PEEPHOLES; }

/* Given to both or to neither. */
static bool both_or_neither(const Pair *pair, size_t index) {
  return !node_input(pair->forward, index) == !node_input(pair->backward, index);
}

/* Constants of one shape, as far as they are given. */
static bool are_packable(const Pair *pair) {
  for (size_t i = WEIGHTS; i < MOST_INPUTS; i++) {
    if (!is_weight(i)) continue;
    const Value *one = node_input(pair->forward, i), *other = node_input(pair->backward, i);
    if ((one && !unread_constant_of(one)) || (other && !unread_constant_of(other))) return false;
    if (one && other && !type_equal(one->type, other->type)) return false;
  }
  return true;
}

static bool are_alike(const Pair *pair) {
  const Node *one = pair->forward, *other = pair->backward;
  if (one == other || one->op != other->op || one->graph != other->graph) return false;
  if (!goes(one, "forward") || !goes(other, "reverse") || !same_activations(one, other)) return false;
  if (node_int_or(one, "hidden_size", 0) != node_int_or(other, "hidden_size", 0)) return false;
  if (node_int_or(one, "linear_before_reset", 0) != node_int_or(other, "linear_before_reset", 0)) return false;
  if (node_input(one, X) != node_input(other, X) || node_input(one, LENGTHS) != node_input(other, LENGTHS))
    return false;
  for (size_t i = FIRST_STATE; i < PEEPHOLES; i++) {
    if (!both_or_neither(pair, i)) return false;
  }
  return are_packable(pair);
}

/* ---- the operator of both ---- */

static const Origin *origin_of(const Pair *pair, const Node *node, Emitter emitter) {
  return origin_with_emitter(pair->rewriter->model->provenance, node->origin, emitter);
}

/* One tensor after the other along the directions; of biases and peepholes one may be missing, which are zeros. */
static Value *packed(const Pair *pair, size_t index, Node *before) {
  Context *context = pair->rewriter->context;
  const Node *nodes[] = {pair->forward, pair->backward};
  const Tensor *given[2], *like = NULL;
  for (size_t side = 0; side < 2; side++) {
    const Value *value = node_input(nodes[side], index);
    given[side] = value ? constant_of(value) : NULL;
    if (!like) like = given[side];
  }
  if (!like) return NULL;
  Tensor *tensor = arena_copy(&context->arena, like, sizeof *like);
  int64_t *dims = arena_copy(&context->arena, like->dims, like->rank * sizeof *dims);
  char *data = arena_new_array(&context->arena, 2 * like->size, char);
  for (size_t side = 0; side < 2; side++) {
    if (given[side]) copy_bytes(data + side * like->size, given[side]->data, like->size);
  }
  dims[0] = 2;
  tensor->dims = dims;
  tensor->data = data;
  tensor->moved = NULL;
  tensor->size = 2 * like->size;
  if (like->name) tensor->name = str_intern(context, arena_format(&context->arena, "%s_both", like->name));
  return rewrite_constant(pair->rewriter, before, tensor, pair->forward->origin);
}

static Type of_both(const Pair *pair, Type type) {
  Dim dims[4];
  for (uint32_t i = 0; i < type.rank; i++) dims[i] = i == type.rank - 3 ? dim_of(2) : type.dims[i];
  return type_make(pair->rewriter->context, type.dtype, dims, type.rank);
}

static Value *start_of(const Pair *pair, size_t index, Node *before) {
  Value *inputs[] = {node_input(pair->forward, index), node_input(pair->backward, index)};
  if (!inputs[0]) return NULL;
  Type type = of_both(pair, inputs[0]->type);
  const Origin *origin = origin_of(pair, pair->forward, REWRITE_EMITTER(pair->rewriter));
  Node *node = graph_node(before->graph, origin, OP_Concat, inputs, 2, &type, 1, before);
  node_set_int(node, "axis", 0);
  return node->outputs[0];
}

static Node *emit_both(const Pair *pair, Node *before) {
  Value *inputs[MOST_INPUTS] = {[X] = node_input(pair->forward, X), [LENGTHS] = node_input(pair->forward, LENGTHS)};
  Type types[MOST_RESULTS], state;
  size_t count = MOST_INPUTS, results = pair->forward->op == OP_LSTM ? 3 : 2;
  for (size_t i = WEIGHTS; i < MOST_INPUTS; i++) {
    if (is_weight(i)) inputs[i] = packed(pair, i, before);
    if (is_start(i)) inputs[i] = start_of(pair, i, before);
  }
  while (!inputs[count - 1]) count--;
  int64_t width = node_int_or(pair->forward, "hidden_size", 0);
  Type x = inputs[X]->type;
  const Dim dims[] = {x.dims[0], dim_of(2), x.dims[1], dim_of(width)};
  types[0] = type_make(pair->rewriter->context, x.dtype, dims, 4);
  state = type_make(pair->rewriter->context, x.dtype, dims + 1, 3);
  types[1] = types[2] = state;
  const Origin *origin = origin_of(pair, pair->forward, REWRITE_EMITTER(pair->rewriter));
  Node *node = graph_node(before->graph, origin, pair->forward->op, inputs, count, types, results, before);
  node_set_int(node, "hidden_size", width);
  node_set_string(node, "direction", "bidirectional");
  if (node_int_or(pair->forward, "linear_before_reset", 0)) node_set_int(node, "linear_before_reset", 1);
  set_activations_of_both(node, pair->forward);
  return node;
}

/* ---- what was joined ---- */

/* Directions beside the features, where they are joined. */
static Value *turned_result(const Pair *pair, const Joined *joined, Value *result, Node *before) {
  static const int64_t of_steps[] = {0, 2, 1, 3}, of_batch[] = {2, 0, 1, 3}, of_state[] = {1, 0, 2};
  bool is_state = result->type.rank == 3;
  const int64_t *order = is_state ? of_state : joined->turned ? of_batch : of_steps;
  Dim dims[4];
  if (dim_is(joined->batch, 1)) return result;
  for (uint32_t i = 0; i < result->type.rank; i++) dims[i] = result->type.dims[order[i]];
  Type type = type_make(pair->rewriter->context, result->type.dtype, dims, result->type.rank);
  const Origin *origin = origin_of(pair, joined->concat, REWRITE_EMITTER(pair->rewriter));
  Node *node = graph_node(before->graph, origin, OP_Transpose, &result, 1, &type, 1, before);
  node_set_ints(node, "perm", order, result->type.rank);
  return node->outputs[0];
}

/* What to tell Reshape. Sizes known only at run time are those of the axes before, or one that is left over. */
static bool shape_of(const Joined *joined, Type to, int64_t *numbers) {
  size_t unknown = 0;
  if (to.rank > MAX_RANK) return false;
  for (uint32_t i = 0; i < to.rank; i++) {
    numbers[i] = dim_is_constant(to.dims[i]) ? to.dims[i].constant : -1;
    unknown += numbers[i] < 0;
  }
  bool in_place = to.rank == 3 && !dim_is(joined->batch, 1);
  for (uint32_t i = 0; i < 2 && unknown > 1 && in_place; i++) numbers[i] = 0;
  return unknown < 2 || in_place;
}

static Node *replaced(const Joined *joined) { return joined->turned ? joined->turned : joined->concat; }

static void replace_joined(const Pair *pair, const Joined *joined, Value *result) {
  Rewriter *rewriter = pair->rewriter;
  Node *old = replaced(joined);
  int64_t numbers[MAX_RANK];
  Type to = type_with(old->outputs[0]->type, result->type.dtype);
  shape_of(joined, to, numbers);
  const Origin *origin = origin_of(pair, joined->concat, REWRITE_EMITTER(rewriter));
  Value *inputs[] = {turned_result(pair, joined, result, old),
                     rewrite_constant_ints(rewriter, old, numbers, to.rank, old->origin)};
  Node *node = graph_node(old->graph, origin, OP_Reshape, inputs, 2, &to, 1, old), *reshape = node;
  if (joined->casts[0]) {
    node = rewrite_in_type(rewriter, old, origin, node->outputs[0], old->outputs[0]->type.dtype)->producer;
  }
  rewrite_replace(rewriter, old, node->outputs[0]);
  if (joined->turned) rewrite_drop_unused(rewriter, joined->concat, reshape);
  for (size_t side = 0; side < 2; side++) {
    if (joined->casts[side]) rewrite_drop_unused(rewriter, joined->casts[side], node);
    rewrite_drop_unused(rewriter, joined->paths[side], reshape);
  }
}

static bool can_replace(const Pair *pair) {
  int64_t numbers[MAX_RANK];
  for (size_t i = 0; i < MOST_RESULTS; i++) {
    const Joined *joined = &pair->results[i];
    if (joined->concat && !shape_of(joined, replaced(joined)->outputs[0]->type, numbers)) return false;
  }
  return true;
}

void merge_directions(Rewriter *rewriter, Node *concat) {
  Joined joined = {0};
  if (!joins_features(concat)) return;
  const Value *first = result_behind(concat, 0, &joined), *second = first ? result_behind(concat, 1, &joined) : NULL;
  if (!second || first->output_index != second->output_index) return;
  Pair pair = {.rewriter = rewriter, .forward = first->producer, .backward = second->producer};
  if (!are_alike(&pair)) return;
  for (uint32_t i = 0; i < MOST_RESULTS; i++) {
    if (!read_joined(&pair, i)) return;
  }
  if (!can_replace(&pair)) return;
  Node *both = emit_both(&pair, concat);
  for (uint32_t i = 0; i < MOST_RESULTS; i++) {
    if (pair.results[i].concat) replace_joined(&pair, &pair.results[i], both->outputs[i]);
  }
  rewrite_drop_unused(rewriter, pair.forward, both);
  rewrite_drop_unused(rewriter, pair.backward, both);
  node_leave_out_unused(both);
  rewriter->changed = true;
}

/* ---- results that nothing joins ---- */

/* Can all that the operator starts with, unless the other starts with the same, be computed where the graph begins? */
static bool starts_early(const Node *node, const Node *other) {
  for (size_t i = FIRST_STATE; i < PEEPHOLES; i++) {
    const Value *value = node_input(node, i);
    const Node *producer = value ? value->producer : NULL;
    if (!producer || value == node_input(other, i)) continue;
    if (producer->graph != node->graph || !node_has(producer, RENAMES)) return false;
    for (uint32_t k = 0; k < producer->input_count; k++) {
      if (producer->inputs[k].value && producer->inputs[k].value->producer) return false;
    }
  }
  return true;
}

static bool find_other(Rewriter *rewriter, Node *node, Pair *pair) {
  bool forward = goes(node, "forward");
  for (const Use *use = node_input(node, X)->uses; use; use = use->next) {
    if (!use->node || use->node == node || !node_has(use->node, RECURRENT)) continue;
    *pair = (Pair){rewriter, forward ? node : use->node, forward ? use->node : node, {{0}}};
    if (are_alike(pair) && starts_early(node, use->node) && starts_early(use->node, node)) return true;
  }
  return false;
}

static void start_before(const Pair *pair, Node *first) {
  Node *second = first == pair->forward ? pair->backward : pair->forward;
  for (size_t i = FIRST_STATE; i < PEEPHOLES; i++) {
    const Value *value = node_input(second, i);
    if (value && value->producer && value != node_input(first, i)) node_move(value->producer, first);
  }
}

/* A result of one direction, with its axis, out of that of both. */
static void replace_part(const Pair *pair, Value *old, Value *both, size_t side, Node *before) {
  Rewriter *rewriter = pair->rewriter;
  int64_t axis = both->type.rank - 3;
  Dim dims[3];
  for (uint32_t i = 0, at = 0; i < both->type.rank; i++) {
    if (i != (uint32_t)axis) dims[at++] = both->type.dims[i];
  }
  const Origin *origin = origin_of(pair, old->producer, REWRITE_EMITTER(rewriter));
  Type type = type_make(rewriter->context, both->type.dtype, dims, both->type.rank - 1);
  Value *inputs[] = {both, rewrite_constant_number(rewriter, before, DTYPE_INT64, (double)side, old->producer->origin)};
  Node *part = graph_node(before->graph, origin, OP_Gather, inputs, 2, &type, 1, before);
  node_set_int(part, "axis", axis);
  Value *axes[] = {part->outputs[0], rewrite_constant_ints(rewriter, before, &axis, 1, old->producer->origin)};
  Node *kept = graph_node(before->graph, origin, OP_Unsqueeze, axes, 2, &old->type, 1, before);
  rewrite_take_name(kept->outputs[0], old);
  value_replace(old, kept->outputs[0]);
}

/* The first of the two in the graph comes here first. */
void part_directions(Rewriter *rewriter, Node *first) {
  Pair pair;
  if (!find_other(rewriter, first, &pair)) return;
  Node *nodes[] = {pair.forward, pair.backward};
  start_before(&pair, first);
  Node *both = emit_both(&pair, first);
  for (size_t side = 0; side < 2; side++) {
    for (uint32_t i = 0; i < nodes[side]->output_count; i++) {
      Value *old = nodes[side]->outputs[i];
      if (old && old->uses) replace_part(&pair, old, both->outputs[i], side, first);
    }
  }
  for (size_t side = 0; side < 2; side++) rewrite_drop_unused(rewriter, nodes[side], both);
  node_leave_out_unused(both);
  rewriter->changed = true;
}
