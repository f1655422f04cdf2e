/* Loops whose number of steps is known are written out: all of them for targets that have no loop, and short steps,
 * several at a time, where the runtime takes as long to begin a step as to compute it.
 *
 * It is done last, when nothing is left to be recognised in a body, and only as far as the model does not grow beyond
 * measure: what stays a loop is told at export as what the target lacks.
 */
#include "onnx/graph/copy.h"
#include "passes/layout/roll_steps.h"
#include "passes/loop_body.h"
#include "passes/rewrite.h"
#include "target/target.h"
#include "types/moved.h"

enum { MOST_NODES = 4096 }; /* that a loop is written out as */

typedef struct Unrolling {
  Rewriter *rewriter;
  Node *loop;
  LoopShape shape;
  Graph *body;
  uint32_t carried, stacked, sliced; /* values carried on, results of all steps, inputs that each step gets a part of */
  int64_t steps;
  Graph *into;    /* where the steps are written */
  Node *before;   /* which node; NULL: at the end */
  Value **slices; /* what each step gets a part of, by input */
  Value **state;  /* carried values, before the step at hand */
  Value **parts;  /* results of all steps, of one after the other */
} Unrolling;

static int64_t axis_of(const Unrolling *u, const char *name, uint32_t index, uint32_t rank) {
  int64_t axis = node_int_at(u->loop, name, index);
  return axis < 0 ? axis + rank : axis;
}

static bool read_loop(Unrolling *u) {
  return only_integer(node_input(u->loop, 0), &u->steps) && loop_takes_all_steps(u->loop, u->body);
}

static bool read_scan(Unrolling *u) {
  Node *scan = u->loop;
  u->sliced = scan->input_count - u->carried;
  if (u->sliced == 0) return false;
  Type type = node_input(scan, u->carried)->type;
  int64_t axis = axis_of(u, "scan_input_axes", 0, type.rank);
  if (axis < 0 || axis >= type.rank || !dim_is_constant(type.dims[axis])) return false;
  u->steps = type.dims[axis].constant;
  return true;
}

static const Origin *origin_of(const Unrolling *u, Emitter emitter) {
  return origin_with_emitter(u->rewriter->model->provenance, u->loop->origin, emitter);
}
#define ORIGIN(u) origin_of((u), REWRITE_EMITTER((u)->rewriter))

static Value *scalar(Unrolling *u, DType dtype, int64_t value) {
  return rewrite_constant_number(u->rewriter, u->loop, dtype, (double)value, u->loop->origin);
}

/* The same of a small constant, which is one itself; NULL: it is none. */
static Value *constant_part_at(Unrolling *u, uint32_t sliced, int64_t place) {
  enum { LARGEST = 1 << 12 /* bytes */ };
  const Tensor *all = unread_constant_of(u->slices[sliced]);
  if (!all || all->name || all->size > LARGEST || dtype_bits(all->dtype) < 8 || !all->rank) return NULL;
  if (axis_of(u, "scan_input_axes", sliced, all->rank) != 0 || all->dims[0] != u->steps) return NULL;
  Tensor *part = arena_new(&u->rewriter->context->arena, Tensor);
  tensor_ready(all);
  *part = (Tensor){.dtype = all->dtype, .rank = all->rank - 1, .dims = all->dims + 1};
  part->size = all->size / (size_t)u->steps;
  part->data = (const char *)all->data + (size_t)place * part->size;
  return rewrite_constant(u->rewriter, u->loop, part, u->loop->origin);
}

/* What the step at `place` gets of an input. */
static Value *part_at(Unrolling *u, uint32_t sliced, int64_t place) {
  Value *constant = constant_part_at(u, sliced, place);
  if (constant) return constant;
  Value *all = u->slices[sliced], *index = scalar(u, DTYPE_INT64, place);
  Type type = u->body->inputs.items[u->carried + sliced]->type;
  Node *gather = graph_node(u->into, ORIGIN(u), OP_Gather, (Value *[]){all, index}, 2, &type, 1, u->before);
  node_set_int(gather, "axis", axis_of(u, "scan_input_axes", sliced, all->type.rank));
  return gather->outputs[0];
}

static int64_t place_of(const Unrolling *u, const char *directions, uint32_t index, int64_t step) {
  return node_int_at(u->loop, directions, index) ? u->steps - 1 - step : step;
}

static int64_t stacking_axis(const Unrolling *u, uint32_t stacked) {
  return axis_of(u, "scan_output_axes", stacked, u->loop->outputs[u->carried + stacked]->type.rank);
}

/* A step's result with an axis of one element, along which those of all steps are joined. */
static Value *with_axis(Unrolling *u, Value *part, uint32_t stacked) {
  int64_t axis = stacking_axis(u, stacked);
  Type all = u->loop->outputs[u->carried + stacked]->type;
  Dim *dims = arena_copy(&u->rewriter->context->arena, all.dims, all.rank * sizeof *dims);
  dims[axis] = dim_of(1);
  Type type = {.dtype = all.dtype, .rank = all.rank, .dims = dims};
  Value *inputs[] = {part, rewrite_constant_ints(u->rewriter, u->loop, &axis, 1, u->loop->origin)};
  return graph_node(u->into, ORIGIN(u), OP_Unsqueeze, inputs, 2, &type, 1, u->before)->outputs[0];
}

static void take_step(Unrolling *u, int64_t step) {
  size_t first_input = u->shape.first_body_input, first_output = u->shape.lead;
  Context *context = u->rewriter->context;
  Map copies = {0};
  if (node_is(u->loop, OP_Loop)) {
    *map_slot_pointer(context, &copies, u->body->inputs.items[0]) = scalar(u, DTYPE_INT64, step);
    *map_slot_pointer(context, &copies, u->body->inputs.items[1]) = scalar(u, DTYPE_BOOL, 1);
  }
  for (uint32_t i = 0; i < u->carried; i++) {
    *map_slot_pointer(context, &copies, u->body->inputs.items[first_input + i]) = u->state[i];
  }
  for (uint32_t i = 0; i < u->sliced; i++) {
    int64_t place = place_of(u, "scan_input_directions", i, step);
    Value *slice = u->body->inputs.items[u->carried + i];
    if (slice->uses) *map_slot_pointer(context, &copies, slice) = part_at(u, i, place);
  }
  copy_nodes(u->body, u->into, u->before, &copies);
  for (uint32_t i = 0; i < u->carried; i++) {
    u->state[i] = copy_of(&copies, u->body->outputs.items[first_output + i]->value);
  }
  for (uint32_t i = 0; i < u->stacked; i++) {
    Value *part = copy_of(&copies, u->body->outputs.items[first_output + u->carried + i]->value);
    u->parts[i * u->steps + place_of(u, "scan_output_directions", i, step)] = with_axis(u, part, i);
  }
}

static Value *joined(Unrolling *u, uint32_t stacked) {
  Type type = u->loop->outputs[u->carried + stacked]->type;
  Value **parts = u->parts + stacked * u->steps;
  Node *join = graph_node(u->into, ORIGIN(u), OP_Concat, parts, (size_t)u->steps, &type, 1, u->before);
  node_set_int(join, "axis", stacking_axis(u, stacked));
  return join->outputs[0];
}

/* One of the loop's results is this from now on; an output of a graph keeps a node of its own. */
static void replace_output(Unrolling *u, Value *old, Value *value) {
  if (!rewrite_can_replace(old, value)) value = rewrite_copy_for(old, value, u->loop, ORIGIN(u));
  rewrite_take_name(value, old);
  value_replace(old, value);
  if (value->producer) rewrite_hand_over(u->rewriter, value->producer, u->loop);
}

static bool can_unroll(Unrolling *u) {
  if (!loop_shape(u->loop, &u->shape) || u->shape.body->inputs.count != u->loop->input_count) return false;
  u->body = u->shape.body;
  u->carried = (uint32_t)u->shape.carried;
  u->stacked = u->loop->output_count - u->carried;
  if (!(node_is(u->loop, OP_Loop) ? read_loop(u) : read_scan(u))) return false;
  if (u->body->initializers.count || u->steps < 1) return false;
  for (uint32_t i = 0; i < u->loop->output_count; i++) {
    if (!u->loop->outputs[i]) return false;
  }
  for (uint32_t i = 0; i < u->stacked; i++) {
    int64_t axis = stacking_axis(u, i), rank = u->loop->outputs[u->carried + i]->type.rank;
    if (axis < 0 || axis >= rank) return false;
  }
  return u->steps <= MOST_NODES / (int64_t)(u->body->node_count + 1);
}

static bool is_not_read(const Target *target, const Node *node) {
  if (node_is(node, OP_Loop)) return target_has(target, QUIRK_LOOP_IS_NOT_READ);
  bool turns = node_attribute(node, "scan_input_directions") || node_attribute(node, "scan_output_directions");
  return target_has(target, QUIRK_SCAN_IS_NOT_READ) || (turns && target_has(target, QUIRK_SCAN_CANNOT_GO_BACKWARDS));
}

static void take_steps(Unrolling *u) {
  u->parts = arena_new_array(&u->rewriter->context->arena, (size_t)u->stacked * (size_t)u->steps, Value *);
  for (int64_t step = 0; step < u->steps; step++) take_step(u, step);
}

static void write_out(Unrolling *u) {
  Node *node = u->loop;
  Arena *arena = &u->rewriter->context->arena;
  u->into = node->graph;
  u->before = node;
  u->state = arena_new_array(arena, u->carried, Value *);
  u->slices = arena_new_array(arena, u->sliced, Value *);
  for (uint32_t i = 0; i < u->carried; i++) u->state[i] = node_input(node, u->shape.first_input + i);
  for (uint32_t i = 0; i < u->sliced; i++) u->slices[i] = node_input(node, u->carried + i);
  take_steps(u);
  for (uint32_t i = 0; i < node->output_count; i++) {
    Value *value = i < u->carried ? u->state[i] : joined(u, i - u->carried);
    replace_output(u, node->outputs[i], value);
  }
  release_nodes(u->body);
  node_remove(node);
  u->rewriter->changed = true;
}

static void unroll(Rewriter *rewriter, Node *node) {
  Unrolling u = {.rewriter = rewriter, .loop = node};
  if (node_has(node, LOOPS) && is_not_read(rewriter->model->target, node) && can_unroll(&u)) write_out(&u);
}

bool unroll_loops(Model *model) {
  Rewriter rewriter;
  rewrite_begin(&rewriter, model, __func__);
  rewrite_each_node(&rewriter, unroll);
  return rewrite_end(&rewriter);
}

/* ---- steps whose branches are known ---- */

/* Is there a constant by which steps choose a branch? */
static bool table_decides(const Unrolling *u) {
  for (uint32_t i = 0; i < u->sliced; i++) {
    const Value *slice = u->body->inputs.items[u->carried + i];
    if (slice->type.dtype != DTYPE_BOOL || !unread_constant_of(node_input(u->loop, u->carried + i))) continue;
    for (const Use *use = slice->uses; use; use = use->next) {
      if (use->node && node_is(use->node, OP_If)) return true;
    }
  }
  return false;
}

static int64_t nodes_within(const Graph *graph) {
  int64_t count = (int64_t)graph->node_count;
  FOR_EACH_NODE(node, graph) {
    for (size_t i = 0; i < node->attributes.count && count <= MOST_NODES; i++) {
      if (node->attributes.items[i].kind == ATTRIBUTE_GRAPH) count += nodes_within(node->attributes.items[i].graph);
    }
  }
  return count;
}

/* A few steps inside another loop, of which a table says which branch each takes: written out, each is the one that it
 * takes, and what none of them reads is not computed. An implicit solver factorises its matrix in the first stage
 * alone. */
static void write_out_decided(Rewriter *rewriter, Node *node) {
  enum { MOST_STEPS = 8, MOST_COPIED = 1024 };
  Unrolling u = {.rewriter = rewriter, .loop = node};
  if (!node_is(node, OP_Scan) || !stands_in_loop(node->graph) || !can_unroll(&u) || u.stacked) return;
  if (u.steps > MOST_STEPS || !table_decides(&u) || nodes_within(u.body) * u.steps > MOST_COPIED) return;
  write_out(&u);
}

bool write_out_branching_steps(Model *model) {
  Rewriter rewriter;
  if (!model->made[OP_If] || !target_is_onnx_runtime(model->target)) return false;
  rewrite_begin(&rewriter, model, __func__);
  rewrite_each_node(&rewriter, write_out_decided);
  return rewrite_end(&rewriter);
}

/* ---- short steps ---- */

/* What ONNX Runtime 1.31 takes on few numbers, in us:
 *
 * | to begin a Scan                                    | 1.5        |
 * | a step of two carried values, beside its nodes     | 0.35       |
 * | a node                                             | 0.2 to 0.3 |
 * | a part that Gather takes of what is sliced         | 0.3        |
 * | a part that Unsqueeze and Concat stack             | 0.3        |
 *
 * So steps that only carry on are written out one after the other, and those that get or give parts are not, unless a
 * few steps are all that there is of a Scan inside another loop. */
enum {
  MOST_STEP_NODES = 16,  /* of a step: it takes about a tenth less then */
  MOST_WIDE_NODES = 128, /* that steps are written out as */
  MOST_ELEMENTS = 256,   /* of each value: beyond, nodes take their time */
};

/* Nodes of the body and of the branches in it; more than any bound where there is a loop or much work in it. */
static int64_t small_nodes(const Graph *body) {
  int64_t count = 0, elements;
  FOR_EACH_NODE(node, body) {
    if (node_has(node, LOOPS) || node->callee) return INT32_MAX;
    for (uint32_t i = 0; i < node->output_count; i++) {
      const Value *value = node->outputs[i];
      bool is_known = value && !type_is_unranked(value->type) && type_count(value->type, &elements);
      if (value && (!is_known || elements > MOST_ELEMENTS)) return INT32_MAX;
    }
    for (size_t i = 0; i < node->attributes.count; i++) {
      if (node->attributes.items[i].kind == ATTRIBUTE_GRAPH) count += small_nodes(node->attributes.items[i].graph);
    }
    count++;
  }
  return count;
}

/* How many steps at a time: a divisor of their number. 1: there is none. */
static int64_t steps_at_a_time(int64_t steps, int64_t nodes) {
  int64_t most = MOST_WIDE_NODES / (nodes ? nodes : 1);
  for (int64_t count = most < steps ? most : steps; count > 1; count--) {
    if (steps % count == 0) return count;
  }
  return 1;
}

/* Several steps as one; a Scan needs something to go along, which none of them reads. */
static Graph *wide_body(Unrolling *u, DType along) {
  u->into = graph_new(u->rewriter->model, u->body->name);
  u->before = NULL;
  u->state = arena_new_array(&u->rewriter->context->arena, u->carried, Value *);
  for (uint32_t i = 0; i < u->carried; i++) u->state[i] = graph_input(u->into, u->body->inputs.items[i]->type, NULL);
  graph_input(u->into, (Type){.dtype = along}, NULL);
  take_steps(u);
  for (uint32_t i = 0; i < u->carried; i++) graph_output(u->into, u->state[i]);
  return u->into;
}

static void widen(Unrolling *u, int64_t width) {
  Node *scan = u->loop;
  Arena *arena = &u->rewriter->context->arena;
  int64_t steps = u->steps / width, *numbers = arena_new_array(arena, (size_t)steps, int64_t);
  Value **inputs = arena_new_array(arena, u->carried + 1, Value *);
  Type *types = arena_new_array(arena, u->carried, Type);
  for (int64_t i = 0; i < steps; i++) numbers[i] = i;
  for (uint32_t i = 0; i < u->carried; i++) {
    inputs[i] = node_input(scan, i);
    types[i] = scan->outputs[i]->type;
  }
  inputs[u->carried] = rewrite_constant_ints(u->rewriter, scan, numbers, (size_t)steps, scan->origin);
  Node *wider = graph_node(scan->graph, ORIGIN(u), OP_Scan, inputs, u->carried + 1, types, u->carried, scan);
  u->steps = width;
  node_set_graph(wider, "body", wide_body(u, DTYPE_INT64));
  node_set_int(wider, "num_scan_inputs", 1);
  for (uint32_t i = 0; i < u->carried; i++) {
    rewrite_take_name(wider->outputs[i], scan->outputs[i]);
    value_replace(scan->outputs[i], wider->outputs[i]);
  }
  rewrite_hand_over(u->rewriter, wider, scan);
  release_nodes(u->body);
  node_remove(scan);
  u->rewriter->changed = true;
}

/* Inputs of which the steps read parts. */
static int64_t parts_of_a_step(const Unrolling *u) {
  int64_t count = 0;
  for (uint32_t i = 0; i < u->sliced; i++) count += u->body->inputs.items[u->carried + i]->uses != NULL;
  return count;
}

/* All steps of a Scan that begins anew in every step of another loop: what the parts take is less than what Scan does,
 * in hundredths of a microsecond. Those of constants are constants; those of what is computed before the other loop
 * would leave it, and be taken where it may take no step. */
static bool pays_inside(const Unrolling *u) {
  enum { BEGINNING = 150, STEP = 35, PART = 30 };
  const Node *around = u->loop->graph->owner;
  int64_t cost = 0;
  if (!around || !node_has(around, LOOPS)) return false;
  for (uint32_t i = 0; i < u->sliced; i++) {
    const Value *all = node_input(u->loop, u->carried + i);
    if (!u->body->inputs.items[u->carried + i]->uses || unread_constant_of(all)) continue;
    if (all->graph != u->loop->graph) return false;
    cost += PART * u->steps;
  }
  return cost < BEGINNING + STEP * u->steps;
}

static void widen_steps_of(Rewriter *rewriter, Node *node) {
  Unrolling u = {.rewriter = rewriter, .loop = node};
  if (!node_is(node, OP_Scan) || !can_unroll(&u) || !u.carried || u.stacked) return;
  int64_t nodes = small_nodes(u.body), width = steps_at_a_time(u.steps, nodes);
  if (width < 2 || nodes > MOST_STEP_NODES) return;
  bool only_carries = !parts_of_a_step(&u);
  if (width == u.steps && (only_carries || pays_inside(&u))) write_out(&u);
  else if (only_carries) widen(&u, width);
}

bool widen_steps(Model *model) {
  Rewriter rewriter;
  if (!target_is_onnx_runtime(model->target)) return false;
  rewrite_begin(&rewriter, model, __func__);
  rewrite_each_node(&rewriter, widen_steps_of);
  return rewrite_end(&rewriter);
}

/* ---- layers ---- */

enum { MOST_LAYERS = 16, LARGEST_LAYERS = 64 << 20 /* bytes of weights */ };

static bool has_loop(const Graph *body) {
  FOR_EACH_NODE(node, body) {
    if (node_has(node, LOOPS)) return true;
  }
  return false;
}

/* Does each step get constant matrices, as the layers of a network do? */
static bool goes_over_layers(const Unrolling *u) {
  for (uint32_t i = 0; i < u->sliced; i++) {
    const Tensor *all = unread_constant_of(node_input(u->loop, u->carried + i));
    bool is_float = all && (dtype_is_float(all->dtype) || dtype_is_half(all->dtype));
    if (is_float && all->rank == 3 && all->size <= LARGEST_LAYERS && u->body->inputs.items[u->carried + i]->uses)
      return true;
  }
  return false;
}

/* Layers around a loop over steps, or inside of one. */
static void write_out_layers_of(Rewriter *rewriter, Node *node) {
  Unrolling u = {.rewriter = rewriter, .loop = node};
  if (!node_is(node, OP_Scan) || !can_unroll(&u) || u.steps > MOST_LAYERS || !goes_over_layers(&u)) return;
  if (!stands_in_loop(node->graph) && !has_loop(u.body)) return;
  if (is_worth_a_trial(node)) write_out(&u);
}

bool write_out_layers(Model *model) {
  Rewriter rewriter;
  rewrite_begin(&rewriter, model, __func__);
  rewrite_each_node(&rewriter, write_out_layers_of);
  return rewrite_end(&rewriter);
}
