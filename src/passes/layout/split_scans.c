/* A Scan that carries a value which depends on nothing else carried becomes two: one for that value, one for the rest.
 *
 * A random key that every step splits is such a value. The keys of all steps come first; what is computed of them then
 * depends on no carried value of the second Scan, and batch_steps computes it for all steps at once. Done where enough
 * nodes leave the steps to make up for going over them twice.
 *
 * Of all that a step makes of a key, only the next key is carried on: that number alone is computed in the steps, as a
 * scalar, on which a node takes ONNX Runtime 0.22 us and not the 0.28 of two numbers.
 */
#include "onnx/graph/copy.h"
#include "passes/layout/batch_steps.h"
#include "passes/loop_body.h"
#include "passes/passes.h"

enum {
  LEAST_NODES = 8,  /* 0.2 us each; a step more takes half a microsecond */
  MOST_CARRIED = 63 /* so that a set of them is a word */
};

typedef struct Split {
  Batch batch;
  Map needs;                  /* value of the body -> the set of carried values that it depends on */
  uint64_t alone;             /* those that depend on themselves alone */
  Map chain;                  /* nodes of the body that compute these */
  ARRAY(Value *) handed_over; /* what the rest reads of them */
} Split;

enum { EVERYTHING = -1 };

static uint64_t needs_of(const Split *split, const Value *value) {
  return (uint64_t)(uintptr_t)map_get_pointer(&split->needs, value);
}

/* Bodies may read anything. */
static uint64_t node_needs(const Split *split, const Node *node) {
  uint64_t needs = 0;
  if (node_has(node, HAS_BODY) || node_has(node, RANDOM) || node->op == OP_NONE) return (uint64_t)EVERYTHING;
  for (uint32_t i = 0; i < node->input_count; i++) {
    if (node_input(node, i)) needs |= needs_of(split, node_input(node, i));
  }
  return needs;
}

static void set_needs(Split *split, const Value *value, uint64_t needs) {
  if (needs) *map_slot_pointer(split->batch.rewriter->context, &split->needs, value) = (void *)(uintptr_t)needs;
}

static void find_needs(Split *split) {
  const Batch *batch = &split->batch;
  for (size_t i = 0; i < batch->carried; i++) set_needs(split, batch->body->inputs.items[i], UINT64_C(1) << i);
  FOR_EACH_NODE(node, batch->body) {
    uint64_t needs = node_needs(split, node);
    for (uint32_t i = 0; i < node->output_count; i++) {
      if (node->outputs[i]) set_needs(split, node->outputs[i], needs);
    }
  }
  for (size_t i = 0; i < batch->carried; i++) {
    const Value *next = batch->body->outputs.items[i]->value;
    if (needs_of(split, next) == UINT64_C(1) << i && next->producer) split->alone |= UINT64_C(1) << i;
  }
}

static bool is_alone(const Split *split, size_t carried) { return split->alone >> carried & 1; }

static void add_to_chain(Split *split, Node *node) {
  if (!node || node->graph != split->batch.body || map_get_pointer(&split->chain, node)) return;
  *map_slot_pointer(split->batch.rewriter->context, &split->chain, node) = node;
}

/* Backwards over the body: whatever a node of the chain reads is of the chain. */
static void find_chain(Split *split) {
  const Batch *batch = &split->batch;
  for (size_t i = 0; i < batch->carried; i++) {
    if (is_alone(split, i)) add_to_chain(split, batch->body->outputs.items[i]->value->producer);
  }
  for (Node *node = batch->body->last; node; node = node->previous) {
    if (!map_get_pointer(&split->chain, node)) continue;
    for (uint32_t i = 0; i < node->input_count; i++) {
      if (node_input(node, i)) add_to_chain(split, node_input(node, i)->producer);
    }
  }
}

/* Is the value read outside the chain? Being carried on is not. */
static bool is_handed_over(const Split *split, const Value *value) {
  const Batch *batch = &split->batch;
  for (const Use *use = value->uses; use; use = use->next) {
    bool carried_on = false;
    for (size_t i = 0; i < batch->carried; i++) {
      carried_on = carried_on || (is_alone(split, i) && use == batch->body->outputs.items[i]);
    }
    if (!carried_on && !(use->node && map_get_pointer(&split->chain, use->node))) return true;
  }
  return false;
}

static void hand_over(Split *split, Value *value) {
  Context *context = split->batch.rewriter->context;
  if (!value || !is_handed_over(split, value)) return;
  array_push(context, &split->handed_over, value);
  *map_slot_pointer(context, &split->batch.stacked, value) = value;
}

/* ---- one number of several ---- */

/* Is what the body has around it one number, or a constant of as many as are computed? */
static bool is_known_outside(const Value *value, int64_t count) {
  if (value->type.rank == 0) return true;
  const Tensor *tensor = constant_of(value);
  if (!tensor || tensor->rank != 1 || dtype_bits(tensor->dtype) < 8) return false;
  return (tensor->dims[0] == 1 || tensor->dims[0] == count) &&
         tensor->size == dtype_bytes(tensor->dtype, (size_t)tensor->dims[0]);
}

/* The number at a place of it. */
static Value *picked_outside(const Batch *batch, Value *value, int64_t place) {
  if (value->type.rank == 0) return value;
  const Tensor *tensor = constant_of(value);
  size_t width = dtype_bytes(tensor->dtype, 1), at = tensor->dims[0] == 1 ? 0 : (size_t)place;
  Tensor *number = arena_new(&batch->rewriter->context->arena, Tensor);
  *number = (Tensor){.dtype = tensor->dtype, .size = width, .data = (const char *)tensor->data + at * width};
  return rewrite_constant(batch->rewriter, batch->scan, number, batch->scan->origin);
}

/* Is each number of the result computed of one number of each input? */
static bool is_number_by_number(const Batch *batch, const Node *node, int64_t count) {
  if (node->domain[0] || node->output_count != 1 || node_has(node, HAS_BODY) || node_has(node, RANDOM)) return false;
  Type type = node->outputs[0]->type;
  if (!node_has(node, ELEMENTWISE) || type_is_unranked(type) || type.rank > 1) return false;
  if (type.rank && !dim_is(type.dims[0], count)) return false;
  for (uint32_t i = 0; i < node->input_count; i++) {
    const Value *input = node_input(node, i);
    if (!input || type_is_unranked(input->type)) return false;
    if (input->graph != batch->body && !is_known_outside(input, count)) return false;
    if (input->graph == batch->body && !input->producer && input->type.rank) return false;
  }
  return true;
}

static void add_producer(const Batch *batch, Map *nodes, const Value *value) {
  Node *node = value->producer;
  if (node && node->graph == batch->body) *map_slot_pointer(batch->rewriter->context, nodes, node) = node;
}

/* The nodes that compute what the node picks from; false where one number cannot be told from the others. */
static bool find_computing(const Batch *batch, const Node *pick, Map *nodes) {
  const Value *all = node_input(pick, 0);
  size_t count = 0;
  add_producer(batch, nodes, all);
  for (Node *node = pick->previous; node; node = node->previous) {
    if (!map_get_pointer(nodes, node)) continue;
    if (!is_number_by_number(batch, node, all->type.dims[0].constant)) return false;
    for (uint32_t i = 0; i < node->input_count; i++) add_producer(batch, nodes, node_input(node, i));
    count++;
  }
  return count >= LEAST_NODES;
}

static Value *picked_node(const Batch *batch, const Node *node, Node *pick, Map *picked, int64_t place) {
  Value **inputs = arena_new_array(&batch->rewriter->context->arena, node->input_count, Value *);
  for (uint32_t i = 0; i < node->input_count; i++) {
    Value *input = node_input(node, i), *known = map_get_pointer(picked, input);
    inputs[i] = known ? known : input->graph == batch->body ? input : picked_outside(batch, input, place);
  }
  Type type = {.dtype = node->outputs[0]->type.dtype};
  Node *copy = graph_node(batch->body, node->origin, node->op, inputs, node->input_count, &type, 1, pick);
  node_copy_attributes(copy, node);
  return copy->outputs[0];
}

/* What is carried on as one of several numbers is computed alone, beside all of them. */
static void compute_alone(Split *split, size_t carried) {
  const Batch *batch = &split->batch;
  Use *next = batch->body->outputs.items[carried];
  Node *pick = next->value->producer;
  Map computing = {0}, picked = {0};
  int64_t place;
  if (!pick || !node_is(pick, OP_Gather) || pick->graph != batch->body || !only_integer(node_input(pick, 1), &place))
    return;
  Value *all = node_input(pick, 0);
  if (type_is_unranked(all->type) || all->type.rank != 1 || next->value->type.rank) return;
  if (!dim_is_constant(all->type.dims[0]) || place < 0 || place >= all->type.dims[0].constant) return;
  if (!find_computing(batch, pick, &computing)) return;
  for (Node *node = batch->body->first, *end = pick; node != end; node = node->next) {
    if (!map_get_pointer(&computing, node)) continue;
    Value *number = picked_node(batch, node, pick, &picked, place);
    *map_slot_pointer(batch->rewriter->context, &picked, node->outputs[0]) = number;
  }
  Value *number = map_get_pointer(&picked, all);
  use_set(next, number);
  batch->rewriter->changed = true;
  rewrite_hand_over(batch->rewriter, number->producer, pick);
  rewrite_drop_unused(batch->rewriter, pick, NULL);
}

/* How many nodes could be computed at once were the chain known? */
static size_t count_gained(Split *split) {
  Batch *batch = &split->batch;
  size_t count = 0;
  for (size_t i = 0; i < batch->carried; i++) {
    if (is_alone(split, i)) hand_over(split, batch->body->inputs.items[i]);
  }
  FOR_EACH_NODE(node, batch->body) {
    if (map_get_pointer(&split->chain, node)) {
      for (uint32_t i = 0; i < node->output_count; i++) hand_over(split, node->outputs[i]);
    } else if (can_be_batched(batch, node)) {
      *map_slot_pointer(batch->rewriter->context, &batch->stacked, node->outputs[0]) = node->outputs[0];
      count++;
    }
  }
  return count;
}

/* The body once more, of which only the chain is looked at. */
static Graph *chain_body(const Split *split) {
  const Batch *batch = &split->batch;
  Map copies = {0};
  Graph *body = graph_new(batch->rewriter->model, batch->body->name);
  for (size_t i = 0; i < batch->body->inputs.count; i++) {
    Value *input = batch->body->inputs.items[i];
    if (i < batch->carried && !is_alone(split, i)) continue;
    *map_slot_pointer(batch->rewriter->context, &copies, input) = graph_input(body, input->type, NULL);
  }
  copy_nodes_of(batch->body, body, NULL, &copies, &split->chain);
  for (size_t i = 0; i < batch->carried; i++) {
    if (is_alone(split, i)) graph_output(body, copy_of(&copies, batch->body->outputs.items[i]->value));
  }
  for (size_t i = 0; i < split->handed_over.count; i++) {
    Value *value = copy_of(&copies, split->handed_over.items[i]);
    Node *identity = graph_node(body, batch->scan->origin, OP_Identity, &value, 1, &value->type, 1, NULL);
    graph_output(body, identity->outputs[0]);
  }
  return body;
}

static Node *chain_scan(const Split *split) {
  const Batch *batch = &split->batch;
  Node *scan = batch->scan;
  Rewriter *rewriter = batch->rewriter;
  Arena *arena = &rewriter->context->arena;
  size_t input_count = 0, output_count = 0, handed_over = split->handed_over.count;
  Value **inputs = arena_new_array(arena, scan->input_count, Value *);
  Type *types = arena_new_array(arena, batch->carried + handed_over, Type);
  for (size_t i = 0; i < scan->input_count; i++) {
    if (i < batch->carried && !is_alone(split, i)) continue;
    if (i < batch->carried) types[output_count++] = batch->body->inputs.items[i]->type;
    inputs[input_count++] = node_input(scan, i);
  }
  for (size_t i = 0; i < handed_over; i++) {
    Type type = split->handed_over.items[i]->type;
    types[output_count++] = stacked_type(batch, type, type.rank);
  }
  const Origin *origin = REWRITE_ORIGIN(rewriter, scan);
  Node *chain = graph_node(scan->graph, origin, OP_Scan, inputs, input_count, types, output_count, scan);
  node_set_graph(chain, "body", chain_body(split));
  node_set_int(chain, "num_scan_inputs", node_int_or(scan, "num_scan_inputs", 0));
  const Attribute *directions = node_attribute(scan, "scan_input_directions");
  if (!directions) return chain;
  int64_t *ways = arena_new_array(arena, handed_over, int64_t);
  for (size_t i = 0; i < handed_over; i++) ways[i] = directions->integers[0];
  node_set_ints(chain, "scan_input_directions", directions->integers, directions->count);
  if (handed_over) node_set_ints(chain, "scan_output_directions", ways, handed_over);
  return chain;
}

/* Readers in the chain stay: it is dead once nothing is carried by it. Results tell of what computes them. */
static void read_slice(const Split *split, Value *value, Value *slice) {
  const Origin *origin = value->producer ? value->producer->origin : split->batch.scan->origin;
  for (Use *use = value->uses, *next; use; use = next) {
    next = use->next;
    if (use->node && !map_get_pointer(&split->chain, use->node)) use_set(use, slice);
    if (use->node) continue;
    Node *identity = graph_node(split->batch.body, origin, OP_Identity, &slice, 1, &value->type, 1, NULL);
    use_set(use, identity->outputs[0]);
  }
}

static void split_scan(Split *split) {
  const Batch *batch = &split->batch;
  Node *scan = batch->scan, *chain = chain_scan(split);
  size_t carried = 0;
  for (size_t i = 0; i < batch->carried; i++) {
    if (!is_alone(split, i)) continue;
    Value *old = scan->outputs[i], *now = chain->outputs[carried++];
    if (!old) continue;
    rewrite_take_name(now, old);
    value_replace(old, now);
  }
  for (size_t i = batch->carried; i--;) {
    if (is_alone(split, i)) scan_drop_carried(scan, i);
  }
  for (size_t i = 0; i < split->handed_over.count; i++) {
    Value *value = split->handed_over.items[i];
    read_slice(split, value, scan_add_input(scan, chain->outputs[carried + i], value->type));
  }
  for (Node *node = batch->body->last, *previous; node; node = previous) {
    previous = node->previous;
    if (map_get_pointer(&split->chain, node)) node_remove(node);
  }
  batch->rewriter->changed = true;
}

static bool leaves_something(const Split *split) {
  size_t alone = 0;
  for (size_t i = 0; i < split->batch.carried; i++) alone += is_alone(split, i);
  return alone && alone < split->batch.scan->output_count;
}

static void visit(Rewriter *rewriter, Node *node) {
  Split split = {.batch = {.rewriter = rewriter, .scan = node}};
  if (!batch_begin(&split.batch) || split.batch.carried > MOST_CARRIED) return;
  find_needs(&split);
  if (!leaves_something(&split)) return;
  for (size_t i = 0; i < split.batch.carried; i++) {
    if (is_alone(&split, i)) compute_alone(&split, i);
  }
  find_chain(&split);
  if (count_gained(&split) >= LEAST_NODES) split_scan(&split);
}

bool split_scans(Model *model) {
  Rewriter rewriter;
  if (!model->made[OP_Scan]) return false;
  rewrite_begin(&rewriter, model, __func__);
  rewrite_each_node(&rewriter, visit);
  return rewrite_end(&rewriter);
}
