/* What the steps of an inner loop make of one value alone is computed for all steps of the loop around it at once, and
 * looked up by how often it was made.
 *
 * A random key that every step of a search splits is such a value, also where it is kept as it is once an element of
 * the batch has come to its end: x' = Where(c, f(x), x) depends only on how often c held so far. Where the steps are at
 * most a known number, x, f(x), f(f(x)), … stand in a table before the loop, with all that the steps compute of them,
 * and a step carries its place in the table in place of x. The table depends on slices of the Scan around the loop
 * only, so that batch_steps computes it for all of them at once, each f one time for all.
 */
#include <math.h>

#include "onnx/facts/schema.h"
#include "onnx/graph/copy.h"
#include "passes/analysis/bounds.h"
#include "passes/layout/batch_steps.h"
#include "passes/loop_body.h"
#include "passes/passes.h"
#include "passes/pattern.h"

enum {
  LEAST_CHAIN = 16,     /* nodes of f, 0.2 us each; the place takes three and what is looked up one each */
  MOST_STEPS = 64,      /* f is written out as often */
  MOST_NODES = 1 << 13, /* of all that is written out */
  DEEPEST = 8,          /* of a condition */
  LARGEST_COUNT = 1 << 20
};

typedef struct Chain {
  Batch batch; /* of the loop's own steps; before it stands what they share */
  Node *loop;
  LoopShape shape;
  size_t carried; /* which of the values */
  Value *x;       /* in the body */
  Value *made;    /* f(x) */
  Value *held;    /* c; NULL: always */
  bool carries;   /* the place in the table; else it is the number of the step */
  Map nodes;      /* that compute f(x) of x */
  size_t node_count;
  uint32_t lanes; /* leading axes of x along which c may differ */
} Chain;

/* ---- how many steps ---- */

static Value *body_input(const Chain *chain, size_t carried) {
  return chain->shape.body->inputs.items[chain->shape.first_body_input + carried];
}

static Value *body_output(const Chain *chain, size_t carried) {
  return behind_identities(chain->shape.body->outputs.items[chain->shape.lead + carried]->value);
}

/* Which carried value is that of the body's inputs? */
static bool find_carried(const Chain *chain, const Value *input, size_t *carried) {
  for (*carried = 0; *carried < chain->shape.carried; ++*carried) {
    if (body_input(chain, *carried) == input) return true;
  }
  return false;
}

static bool is_part_of(const Value *condition, const Value *part, int depth) {
  const Node *node = condition->producer;
  if (condition == part) return true;
  return node && depth && node_is(node, OP_And) &&
         (is_part_of(node_input(node, 0), part, depth - 1) || is_part_of(node_input(node, 1), part, depth - 1));
}

static bool is_count(double number) {
  return number == floor(number) && number > -LARGEST_COUNT && number < LARGEST_COUNT;
}

/* The most steps that are taken while d + step < end, where every step that may be followed by another adds to d. */
static bool count_steps_of(const Chain *chain, const Node *less, const Value *lasting, int64_t *most) {
  const Node *add = node_input(less, 0)->producer;
  size_t carried;
  Bounds start, step, end;
  if (!add || !node_is(add, OP_Add) || !find_carried(chain, node_input(add, 0), &carried)) return false;
  const Value *d = body_input(chain, carried), *sum = add->outputs[0], *next = body_output(chain, carried);
  const Node *where = next->producer;
  bool kept = where && node_is(where, OP_Where) && lasting && node_input(where, 0) == lasting &&
              node_input(where, 1) == sum && node_input(where, 2) == d;
  if (next != sum && !kept) return false;
  if (!value_bounds(node_input(add, 1), &step) || !value_bounds(node_input(less, 1), &end)) return false;
  if (!value_bounds(node_input(chain->loop, chain->shape.first_input + carried), &start)) return false;
  if (!is_count(start.least) || !is_count(step.least) || !is_count(end.greatest) || step.least < 1) return false;
  double room = end.greatest - start.least + (node_is(less, OP_LessOrEqual) ? 1 : 0);
  *most = room <= step.least ? 1 : (int64_t)ceil(room / step.least);
  return true;
}

static bool count_in(const Chain *chain, const Value *condition, const Value *lasting, int depth, int64_t *most) {
  const Node *node = condition->producer;
  if (!node || !depth) return false;
  if (node_is(node, OP_And)) {
    return count_in(chain, node_input(node, 0), lasting, depth - 1, most) ||
           count_in(chain, node_input(node, 1), lasting, depth - 1, most);
  }
  return (node_is(node, OP_Less) || node_is(node, OP_LessOrEqual)) && count_steps_of(chain, node, lasting, most);
}

/* Of which the loop goes on as long as one holds. */
static const Value *predicates_of(const Value *any) {
  const Node *node = any->producer;
  while (node && node_is(node, OP_Cast)) node = node_input(node, 0)->producer;
  if (!node || !node_is(node, OP_ReduceMax) || node->outputs[0]->type.rank) return any;
  const Value *all = node_input(node, 0);
  while (all->producer && node_is(all->producer, OP_Cast)) all = node_input(all->producer, 0);
  return all->type.dtype == DTYPE_BOOL ? all : any;
}

/* How many steps does the loop take at the most? A predicate that holds only where it held before lasts: what is
 * counted where it holds was counted in every step. */
static bool most_steps(const Chain *chain, int64_t *most) {
  const Value *go_on = predicates_of(behind_identities(chain->shape.body->outputs.items[0]->value)), *lasting = NULL;
  for (size_t i = 0; i < chain->shape.carried; i++) {
    if (body_output(chain, i) == go_on && is_part_of(go_on, body_input(chain, i), DEEPEST))
      lasting = body_input(chain, i);
  }
  if (lasting && !type_equal(lasting->type, go_on->type)) return false;
  return count_in(chain, go_on, lasting, DEEPEST, most);
}

/* ---- the chain ---- */

static bool is_slice(const Graph *body, const Value *value) {
  LoopShape around;
  if (!body->owner || !node_is(body->owner, OP_Scan) || !loop_shape(body->owner, &around)) return false;
  for (size_t i = around.carried; i < body->inputs.count; i++) {
    if (body->inputs.items[i] == value) return true;
  }
  return false;
}

/* Is it known before the Scan around the loop? */
static bool is_known_before(const Chain *chain, const Value *value) {
  return value->graph != chain->loop->graph || is_slice(chain->loop->graph, value);
}

/* Are the first axes of a value those of x? */
static bool has_lanes(const Chain *chain, const Value *value) {
  Type type = value->type, x = chain->x->type;
  if (type_is_unranked(type) || type.rank < chain->lanes) return false;
  for (uint32_t i = 0; i < chain->lanes; i++) {
    if (!dim_is_constant(type.dims[i]) || type.dims[i].constant != x.dims[i].constant) return false;
  }
  return true;
}

/* Do the axes that the node works along come after those of the lanes? */
static bool spares_lanes(const Chain *chain, const Node *node) {
  bool flags[MAX_RANK] = {0};
  int64_t axis = node_int_or(node, "axis", 0), start, end, rank = node_input(node, 0)->type.rank;
  const Attribute *order = node_attribute(node, "perm");
  if (node_has(node, REDUCES)) {
    if (!reduced_axes(node, flags)) return false;
    for (uint32_t i = 0; i < chain->lanes; i++) {
      if (flags[i]) return false;
    }
    return true;
  }
  for (uint32_t i = 0; node_is(node, OP_Transpose) && i < chain->lanes; i++) {
    if (!order || order->count <= i || order->integers[i] != (int64_t)i) return false;
  }
  if (node_is(node, OP_Slice) && !read_axis_slice(node, &axis, &start, &end)) return false;
  if (!node_is(node, OP_Slice) && !node_is(node, OP_Gather) && !node_is(node, OP_Concat)) return true;
  return (axis < 0 ? axis + rank : axis) >= (int64_t)chain->lanes;
}

static bool is_of_chain(const Chain *chain, const Value *value) {
  return value && map_get_pointer(&chain->batch.stacked, value);
}

/* Does each lane of the result depend on the same lane of x alone? */
static bool keeps_lanes(const Chain *chain, const Node *node) {
  const Value *result = node->outputs[0];
  if (!chain->lanes) return true;
  if (node_is(node, OP_MatMul) || !has_lanes(chain, result)) return false;
  bool broadcasts = node_has(node, ELEMENTWISE) || node_has(node, BROADCASTS) || node_is(node, OP_Expand);
  for (uint32_t i = 0; i < node->input_count; i++) {
    const Value *input = node_input(node, i);
    if (!is_of_chain(chain, input)) continue;
    if (!has_lanes(chain, input) || (broadcasts && input->type.rank != result->type.rank)) return false;
  }
  return spares_lanes(chain, node);
}

/* Can all that the node makes of x be computed in the table? */
static bool is_foretold(const Chain *chain, const Node *node) {
  if (!can_be_batched(&chain->batch, node) || !keeps_lanes(chain, node)) return false;
  for (uint32_t i = 0; i < node->input_count; i++) {
    const Value *input = node_input(node, i);
    if (input && input->graph != chain->shape.body && !is_known_before(chain, input)) return false;
  }
  return true;
}

static void foretell(Chain *chain, const Value *value) {
  *map_slot_pointer(chain->batch.rewriter->context, &chain->batch.stacked, value) = (void *)value;
}

/* The nodes that leave the body, in order. */
static size_t find_foretold(Chain *chain, Node **nodes) {
  size_t count = 0;
  foretell(chain, chain->x);
  FOR_EACH_NODE(node, chain->shape.body) {
    if (!is_foretold(chain, node)) continue;
    foretell(chain, node->outputs[0]);
    nodes[count++] = node;
  }
  return count;
}

/* Backwards from f(x): all that it is computed of. */
static void find_nodes(Chain *chain, Node *const *foretold, size_t count) {
  Context *context = chain->batch.rewriter->context;
  Map wanted = {0};
  *map_slot_pointer(context, &wanted, chain->made) = chain->made;
  for (size_t i = count; i--;) {
    Node *node = foretold[i];
    if (!map_get_pointer(&wanted, node->outputs[0])) continue;
    *map_slot_pointer(context, &chain->nodes, node) = node;
    chain->node_count++;
    for (uint32_t j = 0; j < node->input_count; j++) {
      Value *input = node_input(node, j);
      if (input) *map_slot_pointer(context, &wanted, input) = input;
    }
  }
}

/* ---- the table ---- */

static Value *emit(const Chain *chain, const Node *like, Op op, Type type, Value *const *inputs, size_t count) {
  const Origin *origin = REWRITE_ORIGIN(chain->batch.rewriter, like);
  return graph_node(chain->loop->graph, origin, op, inputs, count, &type, 1, chain->loop)->outputs[0];
}

static Value *made_of(const Chain *chain, Value *x) {
  Map copies = {0};
  *map_slot_pointer(chain->batch.rewriter->context, &copies, chain->x) = x;
  copy_nodes_of(chain->shape.body, chain->loop->graph, chain->loop, &copies, &chain->nodes);
  return copy_of(&copies, chain->made);
}

/* x, f(x), f(f(x)), … along a new first axis, or the other way round; what the last step makes where it is asked for.
 */
static Value *stacked_chain(const Chain *chain, bool backwards, Value **last) {
  Rewriter *rewriter = chain->batch.rewriter;
  const Node *like = chain->made->producer;
  int64_t first = 0, count = chain->batch.length.constant;
  Value **parts = arena_new_array(&rewriter->context->arena, (size_t)count, Value *);
  Value *x = node_input(chain->loop, chain->shape.first_input + chain->carried);
  Value *axis = rewrite_constant_ints(rewriter, chain->loop, &first, 1, like->origin);
  Type all = stacked_type(&chain->batch, chain->x->type, chain->x->type.rank);
  Dim dims[MAX_RANK] = {dim_of(1)};
  for (uint32_t i = 1; i < all.rank; i++) dims[i] = all.dims[i];
  Type one = type_make(rewriter->context, all.dtype, dims, all.rank);
  for (int64_t i = 0; i < count; i++) {
    parts[backwards ? count - 1 - i : i] = emit(chain, like, OP_Unsqueeze, one, (Value *[]){x, axis}, 2);
    if (i + 1 < count || last) x = made_of(chain, x);
  }
  if (last) *last = x;
  Value *table = emit(chain, like, OP_Concat, all, parts, (size_t)count);
  node_set_int(table->producer, "axis", 0);
  return table;
}

/* A stacked value whose lanes stand before the steps, all of them along one axis. */
static Value *by_place(const Chain *chain, const Node *like, Value *stacked) {
  uint32_t lanes = chain->lanes, rank = stacked->type.rank;
  int64_t order[MAX_RANK], sizes[MAX_RANK], places = chain->batch.length.constant;
  Dim dims[MAX_RANK] = {{0}};
  if (!lanes) return stacked;
  for (uint32_t i = 0; i < rank; i++) {
    order[i] = i < lanes ? i + 1 : i == lanes ? 0 : i;
    dims[i] = stacked->type.dims[order[i]];
    if (i < lanes) places *= dims[i].constant;
  }
  Rewriter *rewriter = chain->batch.rewriter;
  Type type = type_make(rewriter->context, stacked->type.dtype, dims, rank);
  Value *turned = emit(chain, like, OP_Transpose, type, &stacked, 1);
  node_set_ints(turned->producer, "perm", order, rank);
  dims[lanes] = dim_of(places);
  for (uint32_t i = lanes; i < rank; i++) sizes[i] = dims[i].constant;
  type = type_make(rewriter->context, type.dtype, dims + lanes, rank - lanes);
  Value *shape = rewrite_constant_ints(rewriter, chain->loop, sizes + lanes, rank - lanes, like->origin);
  return emit(chain, like, OP_Reshape, type, (Value *[]){turned, shape}, 2);
}

/* ---- the places ---- */

/* The type of a place, of each lane. */
static Type place_type(const Chain *chain) {
  return type_make(chain->batch.rewriter->context, DTYPE_INT64, chain->x->type.dims, chain->lanes);
}

/* Where the steps of each lane begin. */
static Value *first_places(const Chain *chain) {
  Arena *arena = &chain->batch.rewriter->context->arena;
  int64_t count = 1, *dims = arena_new_array(arena, chain->lanes, int64_t);
  for (uint32_t i = 0; i < chain->lanes; i++) count *= dims[i] = chain->x->type.dims[i].constant;
  int64_t *places = arena_new_array(arena, (size_t)count, int64_t);
  for (int64_t i = 0; i < count; i++) places[i] = i * chain->batch.length.constant;
  Tensor *tensor = arena_new(arena, Tensor);
  *tensor = (Tensor){.dtype = DTYPE_INT64, .rank = chain->lanes, .size = (size_t)count * sizeof *places};
  tensor->dims = dims;
  tensor->data = places;
  return rewrite_constant(chain->batch.rewriter, chain->loop, tensor, chain->made->producer->origin);
}

/* By how much the place moves on in a step. */
static Value *moved_by(const Chain *chain) {
  Rewriter *rewriter = chain->batch.rewriter;
  const Node *like = chain->made->producer;
  Type type = place_type(chain);
  if (!chain->held) return rewrite_constant_number(rewriter, chain->loop, DTYPE_INT64, 1, like->origin);
  Value *held = chain->held;
  Node *cast = graph_node(chain->shape.body, REWRITE_ORIGIN(rewriter, like), OP_Cast, &held, 1, &type, 1, NULL);
  node_set_int(cast, "to", onnx_dtype(DTYPE_INT64));
  return cast->outputs[0];
}

/* The place is carried where x was, and moves on where c holds. Until the readers of x read the table, both are one. */
static void carry_place(const Chain *chain) {
  Graph *body = chain->shape.body;
  const Origin *origin = REWRITE_ORIGIN(chain->batch.rewriter, chain->made->producer);
  Use *next = body->outputs.items[chain->shape.lead + chain->carried];
  Type type = place_type(chain);
  Node *old = next->value->producer, *where = NULL;
  Node *add = graph_node(body, origin, OP_Add, (Value *[]){chain->x, moved_by(chain)}, 2, &type, 1, NULL);
  use_set(next, add->outputs[0]);
  use_set(&chain->loop->inputs[chain->shape.first_input + chain->carried], first_places(chain));
  while (chain->held && old && old->graph == body && !node_is_used(old) && !where) {
    if (node_is(old, OP_Where)) where = old;
    Node *before = node_input(old, 0)->producer;
    rewrite_drop_unused(chain->batch.rewriter, old, add);
    old = before;
  }
}

/* What a step looks up at its place. */
static Value *looked_up(const Chain *chain, const Node *like, const Value *value) {
  Rewriter *rewriter = chain->batch.rewriter;
  Graph *body = chain->shape.body;
  Value *place = chain->carries ? chain->x : body->inputs.items[0];
  Value *inputs[] = {by_place(chain, like, map_get_pointer(&chain->batch.stacked, value)), place};
  Node *gather = graph_node(body, REWRITE_ORIGIN(rewriter, like), OP_Gather, inputs, 2, &value->type, 1, body->first);
  node_set_int(gather, "axis", 0);
  return gather->outputs[0];
}

/* Those that stay in the body read x in the table. */
static void look_up_x(const Chain *chain, const Map *leaving) {
  const Node *like = chain->made->producer, *add = NULL;
  const Use *carried_on = chain->shape.body->outputs.items[chain->shape.lead + chain->carried];
  Value *x = chain->x, *found = NULL;
  if (chain->carries) add = body_output(chain, chain->carried)->producer;
  for (Use *use = x->uses, *next; use; use = next) {
    next = use->next;
    if (use == carried_on || (use->node && (use->node == add || map_get_pointer(leaving, use->node)))) continue;
    if (found && use->node == found->producer) continue;
    if (use->node && node_is(use->node, OP_Gather) && node_input(use->node, 1) == x) continue; /* looks up by it */
    if (!found) found = looked_up(chain, like, x);
    use_set(use, found);
  }
}

/* What x is after the last step. */
static void look_up_last(const Chain *chain) {
  Rewriter *rewriter = chain->batch.rewriter;
  Value *last = chain->loop->outputs[chain->carried];
  if (!last) return;
  Type type = last->type;
  last->type = place_type(chain);
  if (!last->uses) return;
  const Node *like = chain->made->producer;
  Value *inputs[] = {by_place(chain, like, map_get_pointer(&chain->batch.stacked, chain->x)), last};
  Node *gather = graph_node(chain->loop->graph, REWRITE_ORIGIN(rewriter, chain->loop), OP_Gather, inputs, 2, &type, 1,
                            chain->loop->next);
  node_set_int(gather, "axis", 0);
  rewrite_take_name(gather->outputs[0], last);
  for (Use *use = last->uses, *next; use; use = next) {
    next = use->next;
    if (use->node != gather) use_set(use, gather->outputs[0]);
  }
}

static void write_table(Chain *chain, Node **nodes, size_t count) {
  Rewriter *rewriter = chain->batch.rewriter;
  Map leaving = {0};
  *map_slot_pointer(rewriter->context, &chain->batch.stacked, chain->x) = stacked_chain(chain, false, NULL);
  for (size_t i = 0; i < count; i++) {
    Value *all = batch_node(&chain->batch, nodes[i]);
    *map_slot_pointer(rewriter->context, &chain->batch.stacked, nodes[i]->outputs[0]) = all;
    *map_slot_pointer(rewriter->context, &leaving, nodes[i]) = nodes[i];
    rewrite_hand_over(rewriter, all->producer, nodes[i]);
  }
  if (chain->carries) carry_place(chain);
  else use_set(chain->shape.body->outputs.items[chain->shape.lead + chain->carried], chain->x);
  for (size_t i = 0; i < count; i++) {
    Value *value = nodes[i]->outputs[0];
    if (is_needed_inside(value, &leaving)) value_replace(value, looked_up(chain, nodes[i], value));
  }
  look_up_x(chain, &leaving);
  for (size_t i = count; i--;) node_remove(nodes[i]);
  if (!chain->carries) {
    loop_drop_carried(chain->loop, &chain->shape, chain->carried);
  } else {
    chain->x->type = place_type(chain);
    look_up_last(chain);
  }
  rewriter->changed = true;
}

/* ---- the loop ---- */

static bool choose_lanes(Chain *chain) {
  Type x = chain->x->type;
  int64_t count;
  chain->lanes = 0;
  if (!chain->held || chain->held->type.rank == 0) return true;
  if (chain->held->type.dtype != DTYPE_BOOL || !type_count(x, &count)) return false;
  chain->lanes = x.rank;
  return type_equal(type_with(chain->held->type, x.dtype), x);
}

/* Does the Scan around the loop take as many steps as make up for a table that is not used to its end? */
static bool is_repeated(const Chain *chain, int64_t steps) {
  Batch around = {.rewriter = chain->batch.rewriter, .scan = chain->loop->graph->owner};
  return around.scan && node_is(around.scan, OP_Scan) && batch_begin(&around) && steps / 2 <= around.length.constant;
}

/* Which nodes leave the body, and which of them are f? False where it does not pay, or x depends on something else. */
static bool find_chain(Chain *chain, int64_t steps, Node **nodes, size_t *count) {
  if (steps > MOST_STEPS || !is_repeated(chain, steps)) return false;
  *count = find_foretold(chain, nodes);
  find_nodes(chain, nodes, *count);
  return chain->node_count >= LEAST_CHAIN && chain->node_count * (size_t)steps <= MOST_NODES &&
         type_equal(chain->made->type, chain->x->type);
}

static bool visit_loop(Chain *chain, Node **nodes) {
  size_t count;
  int64_t steps;
  const Value *last = chain->loop->outputs[chain->carried];
  bool is_used = last && last->uses;
  if (!choose_lanes(chain) || !most_steps(chain, &steps)) return false;
  chain->carries = chain->held || is_used;
  chain->batch.length = dim_of(steps + is_used);
  if (!find_chain(chain, steps, nodes, &count)) return false;
  write_table(chain, nodes, count);
  return true;
}

/* The steps of a Scan go along the table; batch_steps takes what they compute of it out of them. */
static bool visit_scan(Chain *chain, Node **nodes) {
  size_t count;
  Node *scan = chain->loop;
  Value *old = scan->outputs[chain->carried], *last = NULL;
  Batch steps = {.rewriter = chain->batch.rewriter, .scan = scan};
  if (chain->held || !batch_begin(&steps)) return false;
  chain->batch.length = steps.length;
  if (!find_chain(chain, steps.length.constant, nodes, &count)) return false;
  bool is_used = old && old->uses;
  Value *table = stacked_chain(chain, scan_runs_backwards(scan), is_used ? &last : NULL);
  Value *slice = scan_add_input(scan, table, chain->x->type);
  Use *next = chain->shape.body->outputs.items[chain->shape.lead + chain->carried];
  use_set(next, slice);
  for (Use *use = chain->x->uses, *after; use; use = after) {
    after = use->next;
    if (use->node) use_set(use, slice);
    else
      use_set(use,
              graph_node(chain->shape.body, scan->origin, OP_Identity, &slice, 1, &slice->type, 1, NULL)->outputs[0]);
  }
  if (is_used) {
    rewrite_take_name(last, old);
    rewrite_hand_over(chain->batch.rewriter, last->producer, scan);
    value_replace(old, last);
  }
  scan_drop_carried(scan, chain->carried);
  chain->batch.rewriter->changed = true;
  return true;
}

static bool visit_carried(Chain *chain) {
  chain->x = body_input(chain, chain->carried);
  const Value *start = node_input(chain->loop, chain->shape.first_input + chain->carried);
  if (type_is_unranked(chain->x->type) || !start || !type_equal(start->type, chain->x->type)) return false;
  NextStep next = loop_next(&chain->shape, chain->carried);
  chain->made = next.made;
  chain->held = next.held;
  if (!chain->made->producer || chain->made->graph != chain->shape.body || !is_known_before(chain, start)) return false;
  Node **nodes = arena_new_array(&chain->batch.rewriter->context->arena, chain->shape.body->node_count, Node *);
  return node_is(chain->loop, OP_Loop) ? visit_loop(chain, nodes) : visit_scan(chain, nodes);
}

/* One value at a time: the body is another one afterwards. */
static void visit(Rewriter *rewriter, Node *node) {
  LoopShape shape;
  if (!loop_shape(node, &shape) || !node->graph->owner || !node_is(node->graph->owner, OP_Scan)) return;
  for (size_t i = 0; i < shape.carried; i++) {
    Chain chain = {.batch = {.rewriter = rewriter, .scan = node, .body = shape.body}};
    chain.loop = node;
    chain.shape = shape;
    chain.carried = i;
    if (visit_carried(&chain)) return;
  }
}

bool foretell_chains(Model *model) {
  Rewriter rewriter;
  rewrite_begin(&rewriter, model, __func__);
  rewrite_each_node(&rewriter, visit);
  return rewrite_end(&rewriter);
}
