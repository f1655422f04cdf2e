/* Loops: an algorithm of counted steps over carried values, as ONNX Loop, or written out where the steps are few.
 *
 * What a step costs beside its nodes was measured with ONNX Runtime 1.31 on one core: 0.4 us and 0.4 more a carried
 * value, after 2 us to enter the loop. A node on a few numbers takes 0.2 to 0.3, and what depends on the step's number
 * alone becomes a constant where the number is known. A 3 x 3 system solved, of four loops, takes 45 us so and 62 us by
 * loops; with larger matrices the work counts and not the step, and the graph would be one that nobody can read.
 */
#include "lower/control/loops.h"

#include "base/bytes.h"
#include "onnx/graph/copy.h"

enum {
  MOST_STEPS_WRITTEN_OUT = 8,
  MOST_NODES_WRITTEN_OUT = 200 /* of all steps together */
};

/* int64[1], so that a Gather by it keeps the axis. */
static Value *step_index(Lowering *l, Value *step, Dim count, bool backwards) {
  static const Dim one[] = {{.constant = 1}};
  Value *index = reshape_to(l, step, one, 1);
  if (!backwards) return index;
  Value *last = dimension_value(l, dim_subtract(l->context, count, dim_of(1)));
  return EMIT(l, OP_Sub, index->type, last, index);
}

/* One step needs no loop: the body stands in its place. */
static bool is_single(const Loop *loop) { return dim_is(loop->count, 1); }

Loop *loop_begin(Lowering *l, const char *name, Dim count, bool backwards, Value *const *initial,
                 size_t initial_count) {
  Loop *loop = arena_new(&l->context->arena, Loop);
  require(l->context, initial_count <= MAX_CARRIED);
  *loop = (Loop){.l = l, .count = count, .backwards = backwards, .carried_count = initial_count};
  if (is_single(loop)) {
    static const int64_t first[] = {0};
    copy_bytes(loop->carried, initial, initial_count * sizeof *initial);
    loop->index = constant_ints(l, first, 1);
    return loop;
  }
  loop->outer = subgraph_begin(l, name);
  Value *step = graph_input(l->graph, type_scalar(DTYPE_INT64), NULL);
  graph_input(l->graph, type_scalar(DTYPE_BOOL), NULL);
  for (size_t i = 0; i < initial_count; i++) {
    loop->initial[i] = initial[i];
    loop->carried[i] = graph_input(l->graph, initial[i]->type, NULL);
  }
  loop->index = step_index(l, step, count, backwards);
  return loop;
}

void loop_collect(Loop *loop, Value *value, int64_t axis) {
  Context *context = loop->l->context;
  if (axis < 0) axis += value->type.rank;
  require(context, loop->collected_count < MAX_COLLECTED && axis >= 0 && axis < (int64_t)value->type.rank);
  loop->collected[loop->collected_count] = value;
  loop->collected_axes[loop->collected_count++] = axis;
}

/* What Loop gives of a collected value: all steps stacked in front. */
static Type stacked_type(const Loop *loop, Type type) {
  Dim dims[MAX_RANK + 1];
  require(loop->l->context, type.rank < MAX_RANK);
  dims[0] = loop->count;
  for (uint32_t i = 0; i < type.rank; i++) dims[i + 1] = type.dims[i];
  return type_make(loop->l->context, type.dtype, dims, type.rank + 1);
}

/* The steps go where the axis is, in the order of the index. */
static Value *joined(const Loop *loop, Value *stacked, int64_t axis) {
  static const int64_t backwards[] = {-1}, to_start[] = {INT64_MIN}, leading[] = {0};
  Lowering *l = loop->l;
  if (loop->backwards) {
    Value *steps = constant_ints(l, backwards, 1);
    stacked = EMIT(l, OP_Slice, stacked->type, stacked, steps, constant_ints(l, to_start, 1),
                   constant_ints(l, leading, 1), steps);
  }
  int64_t permutation[MAX_RANK], within[] = {axis + 1};
  bool single = dim_is(stacked->type.dims[axis + 1], 1);
  if (single) stacked = squeeze_at(l, stacked, within, 1);
  for (int64_t i = 0; i < (int64_t)stacked->type.rank; i++) permutation[i] = i < axis ? i + 1 : i == axis ? 0 : i;
  Value *moved = transpose_by(l, stacked, permutation);
  if (single) return moved;
  Dim dims[MAX_RANK];
  uint32_t rank = 0;
  for (uint32_t i = 0; i < moved->type.rank; i++) {
    Dim dim = moved->type.dims[i];
    if ((int64_t)i == axis + 1) dims[rank - 1] = dim_multiply(l->context, dims[rank - 1], dim);
    else dims[rank++] = dim;
  }
  return reshape_to(l, moved, dims, rank);
}

/* A body with a loop of its own works on much. */
static bool is_written_out(const Loop *loop, const Graph *body) {
  if (loop->go_on || !dim_is_constant(loop->count) || loop->count.constant > MOST_STEPS_WRITTEN_OUT) return false;
  FOR_EACH_NODE(node, body) {
    if (node_has(node, HAS_BODY)) return false;
  }
  return loop->count.constant > 0 && body->node_count * (size_t)loop->count.constant <= MOST_NODES_WRITTEN_OUT;
}

/* What was collected in all steps, in the order of the index. */
static Value *side_by_side(const Loop *loop, Value *const *parts, int64_t axis) {
  Dim dims[MAX_RANK];
  Type type = parts[0]->type;
  copy_bytes(dims, type.dims, type.rank * sizeof *dims);
  dims[axis] = dim_multiply(loop->l->context, dims[axis], loop->count);
  size_t count = (size_t)loop->count.constant;
  return concat_at(loop->l, parts, count, axis, type_make(loop->l->context, type.dtype, dims, type.rank));
}

/* The body once a step, where the loop would stand. */
static void write_out(const Loop *loop, Graph *body, Value *const *next, Value **results) {
  Lowering *l = loop->l;
  Value *parts[MAX_COLLECTED][MOST_STEPS_WRITTEN_OUT], *carried[MAX_CARRIED];
  int64_t count = loop->count.constant;
  memcpy(carried, loop->initial, sizeof carried);
  for (int64_t step = 0; step < count; step++) {
    Map copies = {0};
    *map_slot_pointer(l->context, &copies, body->inputs.items[0]) = constant_integer(l, DTYPE_INT64, step);
    for (size_t i = 0; i < loop->carried_count; i++) {
      *map_slot_pointer(l->context, &copies, loop->carried[i]) = carried[i];
    }
    copy_nodes(body, l->graph, NULL, &copies);
    for (size_t i = 0; i < loop->carried_count; i++) carried[i] = copy_of(&copies, next[i]);
    for (size_t i = 0; i < loop->collected_count; i++) {
      parts[i][loop->backwards ? count - 1 - step : step] = copy_of(&copies, loop->collected[i]);
    }
  }
  release_nodes(body);
  copy_bytes(results, carried, loop->carried_count * sizeof *results);
  for (size_t i = 0; i < loop->collected_count; i++) {
    results[loop->carried_count + i] = side_by_side(loop, parts[i], loop->collected_axes[i]);
  }
}

Value **emit_loop_end(Loop *loop, Here here, Value *const *next, size_t next_count) {
  Lowering *l = loop->l;
  require(l->context, next_count == loop->carried_count);
  require(l->context, !loop->go_on || !loop->collected_count);
  size_t result_count = next_count + loop->collected_count;
  Value **results = arena_new_array(&l->context->arena, result_count, Value *);
  if (is_single(loop)) {
    for (size_t i = 0; i < result_count; i++) results[i] = i < next_count ? next[i] : loop->collected[i - next_count];
    return results;
  }
  if (is_written_out(loop, l->graph)) {
    write_out(loop, subgraph_end(l, loop->outer), next, results);
    return results;
  }
  Value *inputs[MAX_CARRIED + 2] = {NULL};
  Type types[MAX_CARRIED + MAX_COLLECTED];
  subgraph_output(l, loop->go_on ? loop->go_on : l->graph->inputs.items[1]);
  for (size_t i = 0; i < next_count; i++) {
    require(l->context, type_equal(next[i]->type, loop->initial[i]->type));
    inputs[i + 2] = loop->initial[i];
    types[i] = loop->initial[i]->type;
    subgraph_output(l, next[i]);
  }
  for (size_t i = 0; i < loop->collected_count; i++) {
    types[next_count + i] = stacked_type(loop, loop->collected[i]->type);
    subgraph_output(l, loop->collected[i]);
  }
  Graph *body = subgraph_end(l, loop->outer);
  inputs[0] = dimension_scalar(l, loop->count, DTYPE_INT64);
  inputs[1] = constant_integer(l, DTYPE_BOOL, 1); /* may be left out, but not every reader knows */
  Node *node = emit_node(l, here, OP_Loop, types, result_count, inputs, next_count + 2);
  node_set_graph(node, "body", body);
  for (size_t i = 0; i < next_count; i++) results[i] = node->outputs[i];
  for (size_t i = next_count; i < result_count; i++) {
    results[i] = joined(loop, node->outputs[i], loop->collected_axes[i - next_count]);
  }
  return results;
}
