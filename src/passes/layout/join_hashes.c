/* Hashes that do not depend on each other are computed as one, side by side.
 *
 * The hash behind every random key is 110 operators on a few numbers, which take ONNX Runtime 25 us whether they are
 * one or a hundred. Draws of several keys of one split, or of a key and of what another one was split into, are as
 * many numbers of one hash: what is hashed is joined first, and the results are split. The operators of two hashes are
 * paired from their results backwards, as far as they are alike; what is not is what they are computed of.
 */
#include "passes/layout/join_hashes.h"

#include "onnx/graph/same.h"
#include "passes/passes.h"
#include "passes/pattern.h"
#include "passes/rewrite.h"
#include "types/numbers.h"

enum {
  MOST_JOINED = 8,  /* hashes at a time */
  MOST_LANES = 512, /* numbers of all of them */
  LAST_STEP = 5,    /* what is added to the key's word after the last round */
  LEAST_SAVED = 40, /* nodes */
  DEEPEST = 160,    /* of a hash, which is 100 nodes deep */
};

typedef struct Hash {
  Value *y[2];  /* its words; either may be NULL */
  size_t level; /* hashes that it depends on, one after the other */
  int64_t count;
  bool is_joined;
} Hash;

/* Values of as many hashes that stand in the same place. */
typedef struct Lane {
  Value *of[MOST_JOINED];
  Type seen[MOST_JOINED]; /* the shapes in which they are read */
  size_t inputs[2];       /* lanes, of one that is computed */
  bool is_leaf, is_shared;
  Value *joint;
} Lane;

typedef struct Join {
  Rewriter *rewriter;
  Graph *graph;
  ARRAY(Hash) hashes; /* of the graph */
  Map results;        /* Value -> itself: words of hashes */
  Map levels;         /* Value -> its level; absent: 0 */
  /* of those that are joined now */
  Hash *members[MOST_JOINED];
  size_t count;
  int64_t lane_count;
  ARRAY(Lane *) lanes; /* each after its inputs */
  Map known;           /* value of the first -> lane, counted from 1 */
  int depth;
} Join;

/* ---- which are hashes ---- */

static Value *behind_renaming(Value *value) {
  while (value->producer && node_has(value->producer, RENAMES)) value = node_input(value->producer, 0);
  return value;
}

static bool is_word(const Value *value, uint32_t word) {
  const Tensor *tensor = constant_of(value);
  return tensor && tensor->dtype == DTYPE_UINT32 && tensor->size == sizeof word &&
         number_decode_int(DTYPE_UINT32, tensor->data) == word;
}

/* A word of the key, and LAST_STEP? */
static bool is_last_key(Value *value) {
  const Node *node = behind_renaming(value)->producer;
  return node && node_is(node, OP_Add) && node->outputs[0]->type.dtype == DTYPE_UINT32 &&
         (is_word(node_input(node, 0), LAST_STEP) || is_word(node_input(node, 1), LAST_STEP));
}

/* The other word before the last round: what the rotated one is mixed with. */
static Value *mixed_with(const Value *word) {
  const Node *node = word->producer;
  if (!node || !node_is(node, OP_BitwiseXor)) return NULL;
  for (size_t i = 0; i < 2; i++) {
    const Node *rotated = node_input(node, i)->producer;
    if (rotated && node_is(rotated, OP_BitwiseOr)) return node_input(node, 1 - i);
  }
  return NULL;
}

/* The word that the last round began with, when this node adds the key's word to what it made; or NULL. */
static Value *before_last_round(const Node *node) {
  if (!node_is(node, OP_Add) || node->output_count != 1 || node->outputs[0]->type.dtype != DTYPE_UINT32) return NULL;
  for (size_t i = 0; i < 2; i++) {
    Value *other = is_last_key(node_input(node, i)) ? mixed_with(node_input(node, 1 - i)) : NULL;
    if (other) return other;
  }
  return NULL;
}

bool ends_hash(const Node *node) { return before_last_round(node) != NULL; }

/* The second word is the sum of the last round and the key's; the first one is made of what that round began with. */
static bool read_hash(const Join *join, Node *node, Hash *hash) {
  const Value *other = before_last_round(node);
  if (!other || !type_count(node->outputs[0]->type, &hash->count)) return false;
  if (hash->count < 1 || hash->count > MOST_LANES || !node->outputs[0]->uses) return false;
  hash->y[1] = node->outputs[0];
  for (const Use *use = other->uses; use; use = use->next) {
    if (use->node && use->node->graph == join->graph && node_is(use->node, OP_Add)) hash->y[0] = use->node->outputs[0];
  }
  return !hash->y[0] || type_equal(hash->y[0]->type, hash->y[1]->type);
}

static size_t level_of(const Join *join, const Value *value) {
  return value ? (size_t)(uintptr_t)map_get_pointer(&join->levels, value) : 0;
}

static void set_level(Join *join, const Value *value, size_t level) {
  if (level) *map_slot_pointer(join->rewriter->context, &join->levels, value) = (void *)(uintptr_t)level;
}

static void add_hash(Join *join, const Hash *hash) {
  for (size_t i = 0; i < 2; i++) {
    if (hash->y[i]) *map_slot_pointer(join->rewriter->context, &join->results, hash->y[i]) = hash->y[i];
  }
  array_push(join->rewriter->context, &join->hashes, *hash);
}

static bool is_result(const Join *join, const Value *value) { return map_get_pointer(&join->results, value) != NULL; }

/* What has a body may depend on all before it. */
static void find_levels(Join *join) {
  size_t highest = 0;
  FOR_EACH_NODE(node, join->graph) {
    size_t level = node_has_subgraph(node) ? highest : 0;
    for (uint32_t i = 0; i < node->input_count; i++) {
      size_t input = level_of(join, node_input(node, i));
      if (input > level) level = input;
    }
    for (uint32_t i = 0; i < node->output_count; i++) {
      if (node->outputs[i]) set_level(join, node->outputs[i], level + is_result(join, node->outputs[i]));
    }
    if (level + 1 > highest) highest = level + 1;
  }
}

static void find_hashes(Join *join) {
  FOR_EACH_NODE(node, join->graph) {
    Hash hash = {0};
    if (read_hash(join, node, &hash)) add_hash(join, &hash);
  }
  if (join->hashes.count < 2) return;
  find_levels(join);
  for (size_t i = 0; i < join->hashes.count; i++) {
    Hash *hash = &join->hashes.items[i];
    size_t first = level_of(join, hash->y[0]), second = level_of(join, hash->y[1]);
    hash->level = first > second ? first : second;
  }
}

/* ---- what is alike ---- */

static bool is_number(Type type) {
  int64_t count;
  return !type_is_unranked(type) && type_count(type, &count) && count == 1;
}

static bool are_shared(const Join *join, Value *const *values) {
  if (values[0]->type.rank > 1 || !is_number(values[0]->type)) return false;
  for (size_t i = 1; i < join->count; i++) {
    if (values[i] != values[0] && !are_same_small(values[i], values[0])) return false;
  }
  return true;
}

static bool is_in_hash(const Join *join, const Value *value) {
  const Node *node = value->producer;
  if (!node || node->graph != join->graph || node->output_count != 1 || !node_has(node, ELEMENTWISE)) return false;
  if (node_is(node, OP_BitShift)) return true;
  return value->type.dtype == DTYPE_UINT32 && (node_is(node, OP_Add) || node_is(node, OP_BitwiseXor) ||
                                               node_is(node, OP_BitwiseOr) || node_is(node, OP_Cast));
}

static bool same_but_ones(Type a, Type b) {
  uint32_t i = 0, j = 0;
  for (;; i++, j++) {
    while (i < a.rank && dim_is(a.dims[i], 1)) i++;
    while (j < b.rank && dim_is(b.dims[j], 1)) j++;
    if (i == a.rank || j == b.rank) return i == a.rank && j == b.rank;
    if (!dim_equal(a.dims[i], b.dims[j])) return false;
  }
}

/* The value before axes of one element were added or left out: in the shape in which it is seen it is the same. */
static Value *with_any_ones(Value *value) {
  Node *node = value->producer;
  while (node && node_has(node, RENAMES) && same_but_ones(node_input(node, 0)->type, value->type)) {
    value = node_input(node, 0);
    node = value->producer;
  }
  return value;
}

/* In which shape an operand is seen, when the result is seen in one; false where that is not clear. */
static bool seen_operand(const Value *result, Type seen, const Value *operand, Type *shape) {
  if (type_is_unranked(operand->type)) return false;
  if (operand->type.rank == 0) *shape = operand->type;
  else if (type_same_shape(operand->type, result->type)) *shape = type_with(seen, operand->type.dtype);
  else if (type_same_shape(result->type, seen)) *shape = operand->type;
  else return false;
  return true;
}

static bool are_alike(const Join *join, Value *const *values) {
  for (size_t i = 0; i < join->count; i++) {
    const Node *node = values[i]->producer, *first = values[0]->producer;
    if (!is_in_hash(join, values[i]) || node->op != first->op || node->input_count != first->input_count) return false;
    if (!same_attributes(node, first) || node_input(node, 0)->type.dtype != node_input(first, 0)->type.dtype)
      return false;
  }
  return true;
}

static size_t plan(Join *join, Value *const *values, const Type *seen);

/* Is the operand of a sum of the first on the other side in this one? */
static bool is_swapped(const Node *node, const Node *first) {
  if (!node_has(node, COMMUTES) || node->input_count != 2) return false;
  const Node *a = behind_renaming(node_input(node, 0))->producer, *b = behind_renaming(node_input(node, 1))->producer;
  const Node *x = behind_renaming(node_input(first, 0))->producer, *y = behind_renaming(node_input(first, 1))->producer;
  Op ops[] = {a ? a->op : OP_NONE, b ? b->op : OP_NONE, x ? x->op : OP_NONE, y ? y->op : OP_NONE};
  return ops[0] != ops[1] && ops[0] == ops[3] && ops[1] == ops[2];
}

static bool plan_inputs(Join *join, Lane *lane) {
  const Node *first = lane->of[0]->producer;
  for (uint32_t input = 0; input < first->input_count; input++) {
    Value *values[MOST_JOINED];
    Type seen[MOST_JOINED];
    for (size_t i = 0; i < join->count; i++) {
      const Node *node = lane->of[i]->producer;
      values[i] = node_input(node, is_swapped(node, first) ? 1 - input : input);
      if (!values[i] || !seen_operand(lane->of[i], lane->seen[i], values[i], &seen[i])) return false;
    }
    lane->inputs[input] = plan(join, values, seen);
  }
  return true;
}

/* What is made of the same numbers alone is no row. */
static bool has_a_row(const Join *join, const Lane *lane) {
  bool row = false;
  for (uint32_t i = 0; i < lane->of[0]->producer->input_count; i++) {
    row = row || !join->lanes.items[lane->inputs[i]]->is_shared;
  }
  return row;
}

static bool is_same_lane(const Join *join, const Lane *lane, Value *const *values, const Type *seen) {
  for (size_t i = 0; i < join->count; i++) {
    if (lane->of[i] != values[i] || !type_same_shape(lane->seen[i], seen[i])) return false;
  }
  return true;
}

/* The place of these values among the lanes. */
static size_t plan(Join *join, Value *const *given, const Type *seen) {
  Context *context = join->rewriter->context;
  Value *values[MOST_JOINED];
  bool is_end = false;
  for (size_t i = 0; i < join->count; i++) {
    values[i] = with_any_ones(given[i]);
    bool is_own = values[i] == join->members[i]->y[0] || values[i] == join->members[i]->y[1];
    is_end = is_end || (is_result(join, values[i]) && !is_own);
  }
  size_t known = (size_t)(uintptr_t)map_get_pointer(&join->known, values[0]);
  if (known && is_same_lane(join, join->lanes.items[known - 1], values, seen)) return known - 1;
  Lane *lane = arena_new(&context->arena, Lane);
  for (size_t i = 0; i < join->count; i++) {
    lane->of[i] = values[i];
    lane->seen[i] = seen[i];
  }
  lane->is_shared = are_shared(join, values);
  join->depth++;
  is_end = is_end || join->depth > DEEPEST;
  lane->is_leaf =
      !lane->is_shared && (is_end || !are_alike(join, values) || !plan_inputs(join, lane) || !has_a_row(join, lane));
  join->depth--;
  array_push(context, &join->lanes, lane);
  *map_slot_pointer(context, &join->known, values[0]) = (void *)(uintptr_t)join->lanes.count;
  return join->lanes.count - 1;
}

/* ---- joining ---- */

static Value *emit(const Join *join, Node *before, const Node *like, Op op, Type type, Value *const *inputs,
                   size_t count) {
  const Origin *origin = REWRITE_ORIGIN(join->rewriter, like);
  return graph_node(join->graph, origin, op, inputs, count, &type, 1, before)->outputs[0];
}

static Value *in_shape(const Join *join, Node *before, const Node *like, Op op, Value *value, Type type) {
  int64_t sizes[MAX_RANK];
  if (type_same_shape(value->type, type)) return value;
  for (uint32_t i = 0; i < type.rank; i++) sizes[i] = type.dims[i].constant;
  Value *shape = rewrite_constant_ints(join->rewriter, before, sizes, type.rank, like->origin);
  return emit(join, before, like, op, type_with(type, value->type.dtype), (Value *[]){value, shape}, 2);
}

static Type row_type(const Join *join, DType dtype, int64_t count) {
  Dim dim = dim_of(count);
  return type_make(join->rewriter->context, dtype, &dim, 1);
}

/* The value for each number of its hash, in a row. */
static Value *in_a_row(const Join *join, Node *before, Value *value, Type seen, const Hash *hash) {
  Type row = row_type(join, value->type.dtype, hash->count);
  const Node *like = value->producer ? value->producer : hash->y[1]->producer;
  if (is_number(value->type) && value->type.rank <= 1) return in_shape(join, before, like, OP_Expand, value, row);
  value = in_shape(join, before, like, OP_Reshape, value, seen);
  value = in_shape(join, before, like, OP_Expand, value, hash->y[1]->type);
  return in_shape(join, before, like, OP_Reshape, value, row);
}

static Value *join_leaf(const Join *join, Node *before, const Lane *lane) {
  Value *parts[MOST_JOINED];
  for (size_t i = 0; i < join->count; i++) {
    parts[i] = in_a_row(join, before, lane->of[i], lane->seen[i], join->members[i]);
  }
  Type type = row_type(join, lane->of[0]->type.dtype, join->lane_count);
  Value *joint = emit(join, before, before, OP_Concat, type, parts, join->count);
  node_set_int(joint->producer, "axis", 0);
  return joint;
}

static Value *joint_of(Join *join, Node *before, size_t index) {
  Lane *lane = join->lanes.items[index];
  if (lane->joint) return lane->joint;
  if (lane->is_shared) return lane->joint = lane->of[0];
  if (lane->is_leaf) return lane->joint = join_leaf(join, before, lane);
  const Node *first = lane->of[0]->producer;
  Value *inputs[2];
  for (uint32_t i = 0; i < first->input_count; i++) inputs[i] = joint_of(join, before, lane->inputs[i]);
  Type type = row_type(join, lane->of[0]->type.dtype, join->lane_count);
  lane->joint = emit(join, before, first, first->op, type, inputs, first->input_count);
  node_copy_attributes(lane->joint->producer, first);
  for (size_t i = 0; i < join->count; i++) {
    rewrite_hand_over(join->rewriter, lane->joint->producer, lane->of[i]->producer);
  }
  return lane->joint;
}

/* Each hash gets its part of the row. */
static void part_results(const Join *join, Node *before, Value *joint, size_t word) {
  int64_t sizes[MOST_JOINED];
  Type types[MOST_JOINED];
  for (size_t i = 0; i < join->count; i++) {
    sizes[i] = join->members[i]->count;
    types[i] = row_type(join, DTYPE_UINT32, sizes[i]);
  }
  Value *lengths = rewrite_constant_ints(join->rewriter, before, sizes, join->count, before->origin);
  const Origin *origin = REWRITE_ORIGIN(join->rewriter, joint->producer);
  Node *split = graph_node(join->graph, origin, OP_Split, (Value *[]){joint, lengths}, 2, types, join->count, before);
  node_set_int(split, "axis", 0);
  for (size_t i = 0; i < join->count; i++) {
    Value *old = join->members[i]->y[word];
    rewrite_hand_over(join->rewriter, split, old->producer);
    Value *part = in_shape(join, before, old->producer, OP_Reshape, split->outputs[i], old->type);
    rewrite_take_name(part, old);
    value_replace(old, part);
  }
}

/* ---- where ---- */

static size_t position(const Node *node) { return (size_t)(uintptr_t)node->scratch; }

static Node *first_result(const Join *join) {
  Node *first = NULL;
  size_t at = 1;
  FOR_EACH_NODE(node, join->graph) node->scratch = (void *)(uintptr_t)at++;
  for (size_t i = 0; i < 2 * join->count; i++) {
    const Value *word = join->members[i / 2]->y[i % 2];
    if (word && (!first || position(word->producer) < position(first))) first = word->producer;
  }
  return first;
}

static void need(const Join *join, Map *needed, const Value *value, const Node *before) {
  Node *node = value ? value->producer : NULL;
  if (!node || node->graph != join->graph || position(node) < position(before)) return;
  *map_slot_pointer(join->rewriter->context, needed, node) = node;
}

/* What is hashed must stand before all results: nothing of it depends on them. False where a body would have to move.
 */
static bool move_before(const Join *join, Node *before) {
  Map needed = {0};
  for (size_t i = 0; i < join->lanes.count; i++) {
    const Lane *lane = join->lanes.items[i];
    for (size_t j = 0; (lane->is_leaf || lane->is_shared) && j < join->count; j++)
      need(join, &needed, lane->of[j], before);
  }
  for (Node *node = join->graph->last; node != before; node = node->previous) {
    if (!map_get_pointer(&needed, node)) continue;
    if (node_has_subgraph(node)) return false;
    for (uint32_t i = 0; i < node->input_count; i++) need(join, &needed, node_input(node, i), before);
  }
  if (map_get_pointer(&needed, before)) return false;
  for (Node *node = before->next, *next; node; node = next) {
    next = node->next;
    if (map_get_pointer(&needed, node)) node_move(node, before);
  }
  return true;
}

/* ---- groups ---- */

static bool plan_word(Join *join, size_t word, size_t *root) {
  Value *values[MOST_JOINED];
  Type seen[MOST_JOINED];
  for (size_t i = 0; i < join->count; i++) {
    values[i] = join->members[i]->y[word];
    if (!values[i]) return false;
    seen[i] = values[i]->type;
  }
  *root = plan(join, values, seen);
  return !join->lanes.items[*root]->is_leaf && !join->lanes.items[*root]->is_shared;
}

static bool is_saving(const Join *join) {
  size_t alike = 0, leaves = 0;
  for (size_t i = 0; i < join->lanes.count; i++) {
    leaves += join->lanes.items[i]->is_leaf;
    alike += !join->lanes.items[i]->is_leaf && !join->lanes.items[i]->is_shared;
  }
  return alike * (join->count - 1) > leaves * (3 * join->count + 1) + LEAST_SAVED;
}

static void drop_old(const Join *join) {
  for (size_t i = join->lanes.count; i--;) {
    const Lane *lane = join->lanes.items[i];
    for (size_t j = 0; !lane->is_leaf && !lane->is_shared && j < join->count; j++) {
      Node *node = lane->of[j]->producer;
      if (!node->is_gone) rewrite_drop_unused(join->rewriter, node, lane->joint ? lane->joint->producer : NULL);
    }
  }
}

static void join_members(Join *join) {
  size_t roots[2];
  join->lanes.count = 0;
  join->known = (Map){0};
  if (!plan_word(join, 1, &roots[1]) || !plan_word(join, 0, &roots[0]) || !is_saving(join)) return;
  Node *before = first_result(join);
  if (!move_before(join, before)) return;
  for (size_t word = 0; word < 2; word++) part_results(join, before, joint_of(join, before, roots[word]), word);
  drop_old(join);
  join->rewriter->changed = true;
}

/* All of one level, as many at a time as fit. */
static void join_level(Join *join, size_t from) {
  size_t level = join->hashes.items[from].level;
  join->count = 0;
  join->lane_count = 0;
  for (size_t i = from; i < join->hashes.count && join->count < MOST_JOINED; i++) {
    Hash *hash = &join->hashes.items[i];
    if (hash->level != level || hash->is_joined || !hash->y[0]) continue;
    if (join->lane_count + hash->count > MOST_LANES) continue;
    hash->is_joined = true;
    join->members[join->count++] = hash;
    join->lane_count += hash->count;
  }
  if (join->count > 1) join_members(join);
}

static void join_graph(Graph *graph, void *data) {
  Join join = {.rewriter = data, .graph = graph};
  find_hashes(&join);
  if (join.hashes.count < 2) return;
  for (size_t i = 0; i < join.hashes.count; i++) {
    if (!join.hashes.items[i].is_joined) join_level(&join, i);
  }
}

bool join_hashes(Model *model) {
  Rewriter rewriter;
  rewrite_begin(&rewriter, model, __func__);
  model_each_graph(model, join_graph, &rewriter);
  return rewrite_end(&rewriter);
}
