/* Steps of a recurrent cell that Python has written out, one after the other, are a Scan again.
 *
 * A Python loop over positions leaves no loop behind, only the nodes of its steps. As they are lowered they are the
 * same nodes once and again: each reads what lies around the steps, what its own step computes, what the step before it
 * computed, or a row of an array by the number of the step. That is the body of a Scan, and recurrent layers are found
 * in Scans (fuse_recurrent.c). Only what can be a cell is looked at, which multiplies what it carries and squashes it,
 * and only what becomes an operator is changed (become_recurrent.c).
 *
 * Nodes are compared by a hash first, and what repeats at a distance is looked at from one product to the next, so the
 * work is the number of nodes times the number of products that are tried.
 */
#include "passes/layout/roll_steps.h"

#include <limits.h>

#include "onnx/graph/same.h"
#include "passes/analysis/positions.h"
#include "passes/layout/permute_axes.h"

enum {
  FEWEST_STEPS = 3,
  MOST_TRIED = 12,  /* products that a step may begin again at, and nodes that the first may begin at */
  MOST_LOOPS = 64,  /* of one graph */
  MOST_TRIALS = 16, /* likewise: of what becomes no operator */
};

/* ---- nodes that are the same ---- */

static bool can_be_of_cell(const Node *node) {
  bool is_simple = node_has(node, ELEMENTWISE) || node_has(node, RENAMES) || node_has(node, MOVES);
  return (is_simple || node_is(node, OP_MatMul)) && node->op && node->input_count <= MOST_INPUTS &&
         node->output_count <= MOST_INPUTS && !node_has_subgraph(node);
}

static uint64_t mixed(uint64_t hash, uint64_t number) { return (hash ^ number) * UINT64_C(0x100000001b3); }

/* 0: of no step. */
static uint64_t kind_of(const Node *node) {
  if (!can_be_of_cell(node)) return 0;
  uint64_t hash = mixed(UINT64_C(0xcbf29ce484222325), node->op);
  hash = mixed(mixed(hash, node->input_count), node->output_count);
  for (uint32_t i = 0; i < node->output_count; i++) {
    if (!node->outputs[i]) return 0;
    hash = mixed(mixed(hash, node->outputs[i]->type.dtype), node->outputs[i]->type.rank);
  }
  return mixed(hash, attributes_hash(node, tensor_hash)) | 1;
}

static bool same_nodes(const Node *a, const Node *b) {
  if (a->op != b->op || a->input_count != b->input_count || a->output_count != b->output_count) return false;
  if (a->attributes.count != b->attributes.count) return false;
  for (size_t i = 0; i < a->attributes.count; i++) {
    if (!same_attribute(&a->attributes.items[i], &b->attributes.items[i])) return false;
  }
  for (uint32_t i = 0; i < a->output_count; i++) {
    if (!type_equal(a->outputs[i]->type, b->outputs[i]->type)) return false;
  }
  return true;
}

static void read_graph(Steps *steps) {
  Arena *arena = &steps->rewriter->context->arena;
  size_t i = 0;
  steps->node_count = steps->graph->node_count;
  steps->budget = (int64_t)steps->node_count * 64;
  steps->nodes = arena_new_array(arena, steps->node_count, Node *);
  steps->kinds = arena_new_array(arena, steps->node_count, uint64_t);
  FOR_EACH_NODE(node, steps->graph) {
    steps->nodes[i] = node;
    steps->kinds[i++] = kind_of(node);
    node->scratch = (void *)(uintptr_t)i; /* one more than its place */
  }
}

/* ---- rows that are read beforehand ---- */

/* The array whose row the node reads, or gives another shape; NULL where it does neither. */
static const Value *array_read(const Node *node) {
  int64_t axis, number;
  if (node && node_has(node, RENAMES) && node_input(node, 0)) node = node_input(node, 0)->producer;
  return node && read_row(node, &axis, &number) ? node_input(node, 0) : NULL;
}

/* Is it one of several rows that are read one after the other? */
static bool is_unstacked(const Node *node) {
  const Value *array = array_read(node);
  if (!array || node->output_count != 1) return false;
  for (const Node *other = node->next; other && array_read(other) == array; other = other->next) {
    if (other->op == node->op) return true;
  }
  for (const Node *other = node->previous; other && array_read(other) == array; other = other->previous) {
    if (other->op == node->op) return true;
  }
  return false;
}

/* The first node that uses the value, when all are of its graph and stay where they are, or it is the only one. */
static Node *first_user(const Value *value) {
  Node *first = NULL;
  for (const Use *use = value->uses; use; use = use->next) {
    if (!use->node || use->node->graph != value->graph) return NULL;
    if (value->uses->next && array_read(use->node)) return NULL;
    if (!first || (uintptr_t)use->node->scratch < (uintptr_t)first->scratch) first = use->node;
  }
  return first;
}

/* `for row in array` reads all rows before the first step: each is read where it is used. */
static void sink_rows(Arena *arena, Graph *graph) {
  bool *sinks = arena_new_array(arena, graph->node_count + 1, bool);
  size_t place = 0;
  FOR_EACH_NODE(node, graph) {
    node->scratch = (void *)(uintptr_t)++place;
    sinks[place] = is_unstacked(node);
  }
  for (Node *node = graph->last, *previous; node; node = previous) {
    previous = node->previous;
    Node *user = sinks[(uintptr_t)node->scratch] ? first_user(node->outputs[0]) : NULL;
    if (user && user->previous != node) node_move(node, user);
  }
}

/* ---- what a step reads ---- */

bool is_in_steps(const Steps *steps, const Node *node, int64_t *step, size_t *offset) {
  if (!node || node->graph != steps->graph) return false;
  size_t index = (size_t)(uintptr_t)node->scratch - 1;
  if (index >= steps->node_count || steps->nodes[index] != node) return false; /* it was made since */
  if (index < steps->begin || index >= steps->begin + steps->length * (size_t)steps->count) return false;
  *step = (int64_t)((index - steps->begin) / steps->length);
  *offset = (index - steps->begin) % steps->length;
  return true;
}

/* Weights that each step got anew. */
static bool is_same_constant(const Value *a, const Value *b) {
  const Tensor *one = unread_constant_of(a), *other = unread_constant_of(b);
  return one && other && same_tensor(one, other);
}

/* What the node at the offset reads in the second step tells what it reads in all of them. */
static bool read_input(Steps *steps, size_t offset, size_t at, Input *input) {
  Value *second = node_input(node_at(steps, 1, offset), at), *first = node_input(node_at(steps, 0, offset), at);
  int64_t step, place;
  size_t other;
  if (!first || !second) {
    *input = (Input){0};
    return !first && !second;
  }
  *input = (Input){.value = first};
  if (is_in_steps(steps, second->producer, &step, &input->offset)) {
    input->source = step == 1 ? FROM_STEP : FROM_STEP_BEFORE;
    input->output = second->output_index;
    if (step > 1) return false;
  }
  bool is_around = !is_in_steps(steps, first->producer, &place, &other);
  if (input->source == FROM_STEP ? is_around : !is_around) return false;
  if (input->source == FROM_STEP_BEFORE && !type_equal(first->type, second->type)) return false;
  for (step = input->source == FROM_STEP_BEFORE; step < steps->count; step++) {
    const Value *wanted = first, *found = node_input(node_at(steps, step, offset), at);
    int64_t from = step - (input->source == FROM_STEP_BEFORE);
    if (input->source != FROM_AROUND) wanted = node_at(steps, from, input->offset)->outputs[input->output];
    if (found == wanted || (input->source == FROM_AROUND && is_same_constant(found, wanted))) continue;
    steps->limit = step;
    return false;
  }
  return true;
}

bool read_row(const Node *node, int64_t *axis, int64_t *number) {
  int64_t end;
  const Value *array = node_input(node, 0), *at = node_input(node, 1);
  if (!array || !at || type_is_unranked(array->type) || array->type.rank > MOST_PERMUTED) return false;
  if (node_is(node, OP_Gather)) {
    *axis = node_int_or(node, "axis", 0);
    return at->type.rank == 0 && only_integer(at, number) && *axis >= 0 && *axis < array->type.rank;
  }
  return read_axis_slice(node, axis, number, &end) && end - 1 == *number && *axis >= 0 && *axis < array->type.rank;
}

Value *array_of_row(const Node *node, int64_t axis, int64_t *number) {
  Value *array = node_input(node, 0);
  int64_t turned;
  if (!reverses_axis(array->producer, &turned) || turned != axis || !dim_is_constant(array->type.dims[axis]))
    return array;
  *number = array->type.dims[axis].constant - 1 - *number;
  return node_input(array->producer, 0);
}

static int find_row(Steps *steps, Value *array, int64_t axis, int64_t first) {
  for (size_t i = 0; i < steps->row_count; i++) {
    const Row *row = &steps->rows[i];
    if (row->array == array && row->axis == axis && row->first == first) return (int)i + 1;
  }
  if (steps->row_count == MOST_ROWS) return 0;
  steps->rows[steps->row_count++] = (Row){.array = array, .axis = axis, .first = first};
  return (int)steps->row_count;
}

/* Do the first two steps take different rows of one array, from around the steps? */
static bool may_read_rows(const Steps *steps, size_t offset, int64_t *axis, int64_t *number) {
  int64_t other, next, step;
  size_t place;
  const Node *first = node_at(steps, 0, offset), *second = node_at(steps, 1, offset);
  return read_row(first, axis, number) && read_row(second, &other, &next) && other == *axis && next != *number &&
         node_input(first, 0) == node_input(second, 0) &&
         !is_in_steps(steps, node_input(first, 0)->producer, &step, &place);
}

/* Every step reads the row after that of the step before it, or the one before. */
static bool read_rows(Steps *steps, size_t offset, int64_t axis, int64_t number) {
  const Value *read = node_input(node_at(steps, 0, offset), 0);
  Value *array = array_of_row(node_at(steps, 0, offset), axis, &number);
  int64_t way = steps->is_reversed ? -1 : 1, other, at, step;
  if (!steps->is_ordered && !steps->is_reversed) {
    if (!read_row(node_at(steps, 1, offset), &other, &at)) return false;
    array_of_row(node_at(steps, 1, offset), axis, &at);
    way = at - number;
    steps->is_ordered = way == 1;
    steps->is_reversed = way == -1;
  }
  if (!dim_is_constant(array->type.dims[axis]) || (way != 1 && way != -1)) return false;
  for (step = 0; step < steps->count; step++) {
    const Node *node = node_at(steps, step, offset);
    bool is_next = node_input(node, 0) == read && read_row(node, &other, &at) && other == axis;
    if (is_next) array_of_row(node, axis, &at);
    if (is_next && at == number + way * step && at >= 0 && at < array->type.dims[axis].constant) continue;
    steps->limit = step;
    return false;
  }
  int64_t first = way == 1 ? number : number - (steps->count - 1);
  return (steps->row_of[offset] = find_row(steps, array, axis, first)) != 0;
}

const Result *find_result(const Result *results, size_t count, size_t offset, uint32_t output) {
  for (size_t i = 0; i < count; i++) {
    if (results[i].offset == offset && results[i].output == output) return &results[i];
  }
  return NULL;
}

static bool carry(Steps *steps, const Input *input) {
  const Result *known = find_result(steps->carried, steps->carried_count, input->offset, input->output);
  if (known) return known->first == input->value;
  if (steps->carried_count == MOST_CARRIED) return false;
  steps->carried[steps->carried_count++] =
      (Result){.offset = input->offset, .output = input->output, .first = input->value};
  return true;
}

static bool read_inputs(Steps *steps) {
  for (size_t offset = 0; offset < steps->length; offset++) {
    int64_t axis, number;
    if (may_read_rows(steps, offset, &axis, &number)) {
      if (!read_rows(steps, offset, axis, number)) return false;
      continue;
    }
    for (size_t at = 0; at < node_at(steps, 0, offset)->input_count; at++) {
      Input *input = &steps->inputs[offset][at];
      if (!read_input(steps, offset, at, input)) return false;
      if (input->source == FROM_STEP_BEFORE && !carry(steps, input)) return false;
    }
  }
  return true;
}

/* ---- is it a cell? ---- */

static bool squashes(const Node *node) {
  static const Op squashing[] = {OP_Tanh, OP_Sigmoid, OP_Exp, OP_Relu, OP_Max, OP_HardSigmoid, OP_Clip};
  for (size_t i = 0; i < sizeof squashing / sizeof *squashing; i++) {
    if (node_is(node, squashing[i])) return true;
  }
  return false;
}

/* Rows are read, and what is carried is multiplied and squashed. */
static bool is_cell(const Steps *steps) {
  bool carries[LONGEST_STEP] = {false}, multiplies[LONGEST_STEP] = {false}, is_squashed = false;
  if (steps->row_count == 0 || steps->carried_count == 0) return false;
  for (size_t offset = 0; offset < steps->length; offset++) {
    const Node *node = node_at(steps, 0, offset);
    for (size_t at = 0; !steps->row_of[offset] && at < node->input_count; at++) {
      const Input *input = &steps->inputs[offset][at];
      bool is_own = input->source == FROM_STEP;
      carries[offset] = carries[offset] || input->source == FROM_STEP_BEFORE || (is_own && carries[input->offset]);
      multiplies[offset] = multiplies[offset] || (is_own && multiplies[input->offset]);
    }
    multiplies[offset] = multiplies[offset] || (node_is(node, OP_MatMul) && carries[offset]);
    is_squashed = is_squashed || (squashes(node) && multiplies[offset]);
  }
  return is_squashed;
}

/* ---- what is read around the steps ---- */

bool is_read_around(const Steps *steps, const Value *value) {
  int64_t step;
  size_t offset;
  for (const Use *use = value->uses; use; use = use->next) {
    if (!is_in_steps(steps, use->node, &step, &offset)) return true;
  }
  return false;
}

static bool read_results(Steps *steps) {
  for (size_t offset = 0; offset < steps->length; offset++) {
    for (uint32_t output = 0; output < node_at(steps, 0, offset)->output_count; output++) {
      int64_t first = 0;
      while (first < steps->count && !is_read_around(steps, node_at(steps, first, offset)->outputs[output])) first++;
      bool is_carried = find_result(steps->carried, steps->carried_count, offset, output);
      if (first == steps->count || (first == steps->count - 1 && is_carried)) continue;
      Type type = node_at(steps, 0, offset)->outputs[output]->type;
      if (steps->stacked_count == MOST_RESULTS || type_is_unranked(type) || type.rank >= MOST_PERMUTED) return false;
      steps->stacked[steps->stacked_count++] = (Result){.offset = offset, .output = output};
    }
  }
  return true;
}

/* ---- finding them ---- */

static bool is_worth_it(Steps *steps) {
  if (steps->rewriter->model->is_trial) return true;
  if (steps->trials == MOST_TRIALS) return false;
  if (become_recurrent(steps->nodes + steps->begin, steps->length * (size_t)steps->count)) return true;
  steps->trials++;
  return false;
}

static bool are_steps(Steps *steps) {
  if (steps->count < FEWEST_STEPS) return false;
  steps->row_count = steps->carried_count = steps->stacked_count = 0;
  steps->is_ordered = steps->is_reversed = false;
  steps->limit = 0;
  for (size_t offset = 0; offset < steps->length; offset++) {
    steps->row_of[offset] = 0;
    for (int64_t step = 1; step < steps->count; step++) {
      steps->limit = step;
      if (!same_nodes(node_at(steps, 0, offset), node_at(steps, step, offset))) return false;
    }
  }
  steps->limit = 0;
  return read_inputs(steps) && is_cell(steps) && read_results(steps) && is_worth_it(steps);
}

/* The steps of another loop may follow that are the same up to what they read. */
static bool are_first_steps(Steps *steps, size_t begin, size_t end) {
  steps->begin = begin;
  steps->count = (int64_t)((end - begin) / steps->length);
  while (steps->budget > 0) {
    steps->budget -= (int64_t)steps->length * steps->count;
    if (are_steps(steps)) return true;
    if (steps->limit < FEWEST_STEPS || steps->limit >= steps->count) return false;
    steps->count = steps->limit;
  }
  return false;
}

/* ---- where a step begins ---- */

/* By node of a step from `begin` on: how many values are handed on where a step begins at that node. */
static void count_handed_on(const Steps *steps, size_t begin, size_t end, int handed_on[LONGEST_STEP]) {
  int change[LONGEST_STEP + 1] = {0};
  size_t first = begin + steps->length, last = first + steps->length - 1;
  for (size_t at = begin; at < last && at < end; at++) {
    const Node *node = steps->nodes[at];
    for (uint32_t i = 0; i < node->output_count; i++) {
      size_t until = at;
      for (const Use *use = node->outputs[i]->uses; use; use = use->next) {
        size_t user = use->node && use->node->graph == steps->graph ? (size_t)(uintptr_t)use->node->scratch - 1 : 0;
        if (user > until && user < end) until = user;
      }
      if (until < first || until == at) continue;
      change[at < first ? 0 : at + 1 - first]++;
      if (until < last) change[until + 1 - first]--;
    }
  }
  for (size_t i = 0, sum = 0; i < steps->length; i++) handed_on[i] = (int)(sum += (size_t)change[i]);
}

/* The first node of this sort among those where the fewest values are handed on. */
typedef enum Sort { READS_ROW, MULTIPLIES, IS_FIRST, SORTS } Sort;

static bool is_of_sort(const Steps *steps, size_t begin, size_t offset, Sort sort) {
  const Node *node = steps->nodes[begin + steps->length + offset];
  int64_t axis, number;
  if (sort == READS_ROW) return read_row(node, &axis, &number);
  if (sort == MULTIPLIES) return node_is(node, OP_MatMul);
  return offset == 0;
}

static bool find_begin(Steps *steps, size_t begin, size_t end) {
  int handed_on[LONGEST_STEP], fewest = INT_MAX;
  count_handed_on(steps, begin, end, handed_on);
  for (size_t i = 0; i < steps->length; i++) fewest = handed_on[i] < fewest ? handed_on[i] : fewest;
  bool is_whole = handed_on[0] == fewest && !node_has(steps->nodes[begin], ELEMENTWISE);
  if (is_whole && are_first_steps(steps, begin, end)) return true;
  for (Sort sort = READS_ROW; sort < SORTS; sort++) {
    size_t at = 0;
    while (at < steps->length && !(handed_on[at] == fewest && is_of_sort(steps, begin, at, sort))) at++;
    if (at < steps->length && are_first_steps(steps, begin + at, end)) return true;
  }
  return false;
}

/* Are the nodes from `at` on the same as those after them? Then as far as that goes, on both sides, are the steps. */
static bool repeats(Steps *steps, size_t at, size_t length) {
  const uint64_t *kinds = steps->kinds;
  size_t begin = at, end = at + length;
  while (end < steps->node_count && kinds[end] && kinds[end] == kinds[end - length]) end++;
  steps->budget -= (int64_t)(end - at);
  if (end - at < (FEWEST_STEPS - 1) * length) return false;
  while (begin > 0 && kinds[begin - 1] && kinds[begin - 1] == kinds[begin - 1 + length]) begin--;
  steps->length = length;
  steps->budget -= (int64_t)(end - begin);
  return steps->budget > 0 && find_begin(steps, begin, end);
}

/* The same weights, or some that a node of each step makes. */
static bool same_weights(const Node *product, const Node *other) {
  const Value *one = node_input(product, 1), *two = node_input(other, 1);
  return one == two || (one->producer && two->producer);
}

static bool find_steps(Steps *steps) {
  for (size_t at = 0; at < steps->node_count && steps->budget > 0; at++) {
    if (!steps->kinds[at] || !node_is(steps->nodes[at], OP_MatMul)) continue;
    size_t tried = 0;
    for (size_t next = at + 1; next < steps->node_count && next - at <= LONGEST_STEP && steps->kinds[next]; next++) {
      if (steps->kinds[next] != steps->kinds[at] || !same_weights(steps->nodes[at], steps->nodes[next])) continue;
      if (tried++ == MOST_TRIED) break;
      if (repeats(steps, at, next - at)) return true;
    }
  }
  return false;
}

static void visit(Graph *graph, void *data) {
  Steps steps = {.rewriter = data, .graph = graph};
  Arena *arena = &steps.rewriter->context->arena;
  if (graph->owner || graph->node_count < FEWEST_STEPS) return;
  steps.inputs = arena_alloc(arena, LONGEST_STEP * sizeof *steps.inputs);
  steps.row_of = arena_new_array(arena, LONGEST_STEP, int);
  sink_rows(arena, graph);
  read_graph(&steps);
  for (int i = 0; i < MOST_LOOPS && find_steps(&steps); i++) {
    if (!write_first_step(&steps)) roll(&steps);
    read_graph(&steps);
  }
}

bool roll_steps(Model *model) {
  Rewriter rewriter;
  if (!model->made[OP_MatMul]) return false; /* rows would be moved for nothing */
  rewrite_begin(&rewriter, model, __func__);
  model_each_graph(model, visit, &rewriter);
  return rewrite_end(&rewriter);
}
