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
#include <limits.h>

#include "onnx/graph/same.h"
#include "passes/layout/permute_axes.h"
#include "passes/layout/roll_steps.h"
#include "passes/passes.h"
#include "passes/rewrite.h"

enum {
  FEWEST_STEPS = 3,
  LONGEST_STEP = 256,   /* nodes */
  MOST_INPUTS = 8,      /* of a node */
  MOST_CARRIED = 4,     /* values that a step hands on */
  MOST_ROWS = 16,       /* arrays that a step reads a row of */
  MOST_RESULTS = 8,     /* values of steps that are read around them */
  MOST_TRIED = 12,      /* products that a step may begin again at, and nodes that the first may begin at */
  MOST_LOOPS = 64,      /* of one graph */
  MOST_TRIALS = 16,     /* likewise: of what becomes no operator */
  MOST_NESTED = 4,      /* Concats of Concats */
  MOST_LEAVES = 1 << 12 /* that are joined */
};

typedef enum Source { FROM_AROUND, FROM_STEP, FROM_STEP_BEFORE } Source;

typedef struct Input {
  Source source;
  Value *value; /* around the steps; of FROM_STEP_BEFORE what the first step reads */
  size_t offset;
  uint32_t output;
} Input;

/* An output of the node at an offset of every step. */
typedef struct Result {
  size_t offset;
  uint32_t output;
  Value *first;  /* of what is carried: before all steps */
  Value *inside; /* the body's value for it */
} Result;

typedef struct Row {
  Value *array;
  int64_t axis, first; /* the row that is lowest */
  Value *slice;        /* of the body */
} Row;

typedef struct Steps {
  Rewriter *rewriter;
  Graph *graph;
  Node **nodes;
  uint64_t *kinds;
  size_t node_count;
  size_t begin, length;         /* the first node, and nodes of a step */
  int64_t count, limit;         /* of steps; where they do not fit: how many might */
  Input (*inputs)[MOST_INPUTS]; /* by offset */
  int *row_of;                  /* by offset: one more than the row that it reads; 0: none */
  Row rows[MOST_ROWS];
  Result carried[MOST_CARRIED], stacked[MOST_RESULTS];
  size_t row_count, carried_count, stacked_count;
  int64_t budget;               /* nodes that may yet be compared: the work stays linear */
  int trials;                   /* that came to nothing */
  bool is_ordered, is_reversed; /* which rows the steps read: the first one first, or last */
} Steps;

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

/* ---- what a step reads ---- */

static Node *node_at(const Steps *steps, int64_t step, size_t offset) {
  return steps->nodes[steps->begin + (size_t)step * steps->length + offset];
}

static bool is_in_steps(const Steps *steps, const Node *node, int64_t *step, size_t *offset) {
  if (!node || node->graph != steps->graph) return false;
  size_t index = (size_t)(uintptr_t)node->scratch - 1;
  if (index >= steps->node_count || steps->nodes[index] != node) return false; /* it was made since */
  if (index < steps->begin || index >= steps->begin + steps->length * (size_t)steps->count) return false;
  *step = (int64_t)((index - steps->begin) / steps->length);
  *offset = (index - steps->begin) % steps->length;
  return true;
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
    if (found == wanted) continue;
    steps->limit = step;
    return false;
  }
  return true;
}

/* The one row that a node takes out of an array. */
static bool read_row(const Node *node, int64_t *axis, int64_t *number) {
  int64_t end, step = 1;
  const Value *array = node_input(node, 0), *at = node_input(node, 1);
  if (!array || !at || type_is_unranked(array->type) || array->type.rank > MOST_PERMUTED) return false;
  if (node_is(node, OP_Gather)) {
    *axis = node_int_or(node, "axis", 0);
    return at->type.rank == 0 && only_integer(at, number) && *axis >= 0 && *axis < array->type.rank;
  }
  if (!node_is(node, OP_Slice) || !node_input(node, 2) || !node_input(node, 3)) return false;
  if (node_input(node, 4) && (!only_integer(node_input(node, 4), &step) || step != 1)) return false;
  return only_integer(at, number) && only_integer(node_input(node, 2), &end) && end - 1 == *number &&
         only_integer(node_input(node, 3), axis) && *axis >= 0 && *axis < array->type.rank;
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
  Value *array = node_input(node_at(steps, 0, offset), 0);
  int64_t way = steps->is_reversed ? -1 : 1, other, at, step;
  if (!steps->is_ordered && !steps->is_reversed) {
    if (!read_row(node_at(steps, 1, offset), &other, &at)) return false;
    way = at - number;
    steps->is_ordered = way == 1;
    steps->is_reversed = way == -1;
  }
  if (!dim_is_constant(array->type.dims[axis]) || (way != 1 && way != -1)) return false;
  for (step = 0; step < steps->count; step++) {
    const Node *node = node_at(steps, step, offset);
    bool is_next = node_input(node, 0) == array && read_row(node, &other, &at) && other == axis;
    if (is_next && at == number + way * step && at >= 0 && at < array->type.dims[axis].constant) continue;
    steps->limit = step;
    return false;
  }
  int64_t first = way == 1 ? number : number - (steps->count - 1);
  return (steps->row_of[offset] = find_row(steps, array, axis, first)) != 0;
}

static Result *find_result(Result *results, size_t count, size_t offset, uint32_t output) {
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

static bool is_read_around(const Steps *steps, const Value *value) {
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

/* ---- the Scan ---- */

static const Origin *origin_of(const Steps *steps, const Node *node, Emitter emitter) {
  return origin_with_emitter(steps->rewriter->model->provenance, node->origin, emitter);
}
#define ORIGIN(steps, node) origin_of((steps), (node), REWRITE_EMITTER((steps)->rewriter))

static Type without_axis(const Steps *steps, Type type, int64_t axis) {
  Dim dims[MOST_PERMUTED];
  for (uint32_t i = 0, k = 0; i < type.rank; i++) {
    if (i != axis) dims[k++] = type.dims[i];
  }
  return type_make(steps->rewriter->context, type.dtype, dims, type.rank - 1);
}

static Type of_all_steps(const Steps *steps, Type type) {
  Dim dims[MOST_PERMUTED] = {dim_of(steps->count)};
  for (uint32_t i = 0; i < type.rank; i++) dims[i + 1] = type.dims[i];
  return type_make(steps->rewriter->context, type.dtype, dims, type.rank + 1);
}

static Value *one_integer(const Steps *steps, int64_t number) {
  Node *before = node_at(steps, 0, 0);
  return rewrite_constant_ints(steps->rewriter, before, &number, 1, before->origin);
}

/* Those rows of the array that the steps read. */
static Value *rows_read(const Steps *steps, const Row *row) {
  Node *before = node_at(steps, 0, 0);
  Type type = row->array->type;
  Dim dims[MOST_PERMUTED];
  if (dim_is(type.dims[row->axis], steps->count)) return row->array;
  for (uint32_t i = 0; i < type.rank; i++) dims[i] = i == row->axis ? dim_of(steps->count) : type.dims[i];
  type = type_make(steps->rewriter->context, type.dtype, dims, type.rank);
  Value *inputs[] = {row->array, one_integer(steps, row->first), one_integer(steps, row->first + steps->count),
                     one_integer(steps, row->axis)};
  return graph_node(steps->graph, ORIGIN(steps, before), OP_Slice, inputs, 4, &type, 1, before)->outputs[0];
}

/* The same with their axis first. */
static Value *rows_first(const Steps *steps, const Row *row) {
  Node *before = node_at(steps, 0, 0);
  Value *array = rows_read(steps, row);
  if (row->axis == 0) return array;
  AxisOrder order = {.rank = array->type.rank, .from = {row->axis}};
  for (int64_t i = 0, k = 1; i < array->type.rank; i++) {
    if (i != row->axis) order.from[k++] = i;
  }
  Type type = order_type(steps->rewriter->context, array->type, &order);
  Node *transpose = graph_node(steps->graph, ORIGIN(steps, before), OP_Transpose, &array, 1, &type, 1, before);
  node_set_ints(transpose, "perm", order.from, order.rank);
  return transpose->outputs[0];
}

static Value *inside_of(const Steps *steps, const Input *input, Value *const *made) {
  if (input->source == FROM_AROUND) return input->value;
  if (input->source == FROM_STEP) return made[input->offset * MOST_INPUTS + input->output];
  for (size_t i = 0; i < steps->carried_count; i++) {
    const Result *carried = &steps->carried[i];
    if (carried->offset == input->offset && carried->output == input->output) return carried->inside;
  }
  return NULL;
}

/* A row as the node had it: a Slice keeps the axis. */
static Node *row_node(const Steps *steps, Graph *body, size_t offset) {
  const Node *node = node_at(steps, 0, offset);
  const Row *row = &steps->rows[steps->row_of[offset] - 1];
  Value *inputs[] = {row->slice, NULL};
  bool is_kept = node_is(node, OP_Slice);
  if (is_kept) inputs[1] = one_integer(steps, row->axis);
  return graph_node(body, ORIGIN(steps, node), is_kept ? OP_Unsqueeze : OP_Identity, inputs, is_kept ? 2 : 1,
                    &node->outputs[0]->type, 1, NULL);
}

static Node *body_node(const Steps *steps, Graph *body, size_t offset, Value *const *made) {
  const Node *node = node_at(steps, 0, offset);
  Value *inputs[MOST_INPUTS];
  Type types[MOST_INPUTS];
  if (steps->row_of[offset]) return row_node(steps, body, offset);
  for (size_t i = 0; i < node->input_count; i++) inputs[i] = inside_of(steps, &steps->inputs[offset][i], made);
  for (size_t i = 0; i < node->output_count; i++) types[i] = node->outputs[i]->type;
  Node *copy = graph_node(body, node->origin, node->op, inputs, node->input_count, types, node->output_count, NULL);
  node_copy_attributes(copy, node);
  return copy;
}

static void add_output(Graph *body, Value *value) {
  Node *identity = graph_node(body, value->producer->origin, OP_Identity, &value, 1, &value->type, 1, NULL);
  graph_output(body, identity->outputs[0]);
}

/* The body; `made` receives its nodes by offset. */
static Graph *make_body(Steps *steps, Node **made) {
  Context *context = steps->rewriter->context;
  Graph *body = graph_new(steps->rewriter->model, str_intern(context, "steps"));
  Value **values = arena_new_array(&context->arena, steps->length * MOST_INPUTS, Value *);
  for (size_t i = 0; i < steps->carried_count; i++)
    steps->carried[i].inside = graph_input(body, steps->carried[i].first->type, NULL);
  for (size_t i = 0; i < steps->row_count; i++) {
    Row *row = &steps->rows[i];
    row->slice = graph_input(body, without_axis(steps, row->array->type, row->axis), NULL);
  }
  for (size_t offset = 0; offset < steps->length; offset++) {
    made[offset] = body_node(steps, body, offset, values);
    for (uint32_t i = 0; i < made[offset]->output_count; i++)
      values[offset * MOST_INPUTS + i] = made[offset]->outputs[i];
  }
  for (size_t i = 0; i < steps->carried_count; i++)
    add_output(body, values[steps->carried[i].offset * MOST_INPUTS + steps->carried[i].output]);
  for (size_t i = 0; i < steps->stacked_count; i++)
    add_output(body, values[steps->stacked[i].offset * MOST_INPUTS + steps->stacked[i].output]);
  return body;
}

static Value *result_at(const Steps *steps, const Result *result, int64_t step) {
  return node_at(steps, step, result->offset)->outputs[result->output];
}

static void set_ways(const Steps *steps, Node *scan) {
  int64_t ways[MOST_ROWS + MOST_RESULTS];
  for (size_t i = 0; i < MOST_ROWS + MOST_RESULTS; i++) ways[i] = 1;
  if (steps->is_ordered) return;
  node_set_ints(scan, "scan_input_directions", ways, steps->row_count);
  if (steps->stacked_count) node_set_ints(scan, "scan_output_directions", ways, steps->stacked_count);
}

static Node *make_scan(Steps *steps, Graph *body) {
  Value *inputs[MOST_CARRIED + MOST_ROWS];
  Type types[MOST_CARRIED + MOST_RESULTS];
  size_t input_count = 0, output_count = 0;
  Node *before = node_at(steps, 0, 0);
  for (size_t i = 0; i < steps->carried_count; i++) {
    types[output_count++] = steps->carried[i].first->type;
    inputs[input_count++] = steps->carried[i].first;
  }
  for (size_t i = 0; i < steps->row_count; i++) inputs[input_count++] = rows_first(steps, &steps->rows[i]);
  for (size_t i = 0; i < steps->stacked_count; i++)
    types[output_count++] = of_all_steps(steps, result_at(steps, &steps->stacked[i], 0)->type);
  Node *scan =
      graph_node(steps->graph, ORIGIN(steps, before), OP_Scan, inputs, input_count, types, output_count, before);
  node_set_int(scan, "num_scan_inputs", (int64_t)steps->row_count);
  node_set_graph(scan, "body", body);
  set_ways(steps, scan);
  return scan;
}

/* ---- its results ---- */

/* Which of the steps has this place in what they are stacked to, and back. */
static int64_t place_of(const Steps *steps, int64_t step) { return steps->is_ordered ? step : steps->count - 1 - step; }

/* What a Concat joins, and what Concats along the same axis joined before. */
static bool collect_leaves(const Node *concat, int64_t axis, int depth, Value **leaves, size_t *count, size_t most) {
  if (depth == 0) return false;
  for (uint32_t i = 0; i < concat->input_count; i++) {
    Value *value = node_input(concat, i);
    const Node *inner = value ? value->producer : NULL;
    bool is_joined = inner && node_is(inner, OP_Concat) && node_int_or(inner, "axis", 0) == axis;
    if (is_joined && inner->graph == concat->graph) {
      if (!collect_leaves(inner, axis, depth - 1, leaves, count, most)) return false;
    } else if (!value || *count == most) {
      return false;
    } else {
      leaves[(*count)++] = value;
    }
  }
  return true;
}

/* The Concat that joins all of it in the end. */
static Node *last_concat(const Steps *steps, const Value *value) {
  Node *concat = NULL;
  int64_t step;
  size_t offset;
  for (const Use *use = value->uses; use; use = use->next) {
    bool is_join = use->node && node_is(use->node, OP_Concat) && !is_in_steps(steps, use->node, &step, &offset);
    if (is_join) concat = use->node;
  }
  for (Node *next; concat && (next = value_only_user(concat->outputs[0])) && node_is(next, OP_Concat) &&
                   node_int_or(next, "axis", 0) == node_int_or(concat, "axis", 0);)
    concat = next;
  return concat;
}

/* Is it the result of the step, to which an axis of size 1 was given at the axis along which it is joined, or none? */
static bool is_leaf(const Value *leaf, const Value *result, int64_t axis, bool *has_axis) {
  *has_axis = leaf != result;
  if (leaf == result) return true;
  const Node *node = leaf->producer;
  int64_t added;
  return node && node_is(node, OP_Unsqueeze) && node_input(node, 0) == result &&
         only_integer(node_input(node, 1), &added) && added == axis;
}

/* Joined in the order in which they are stacked, from the leaf on? */
static bool joins_in_order(const Steps *steps, const Result *result, Value *const *leaves, int64_t axis,
                           bool *has_axis) {
  for (int64_t step = 0; step < steps->count; step++) {
    bool here;
    if (!is_leaf(leaves[place_of(steps, step)], result_at(steps, result, step), axis, &here)) return false;
    if (step > 0 && here != *has_axis) return false;
    *has_axis = here;
  }
  return true;
}

/* Sizes for a Reshape that merges the axis with the one before it; false: they are not known. */
static bool merged_sizes(Type type, int64_t axis, int64_t sizes[MOST_PERMUTED]) {
  for (uint32_t i = 0; i < type.rank; i++) {
    bool is_known = dim_is_constant(type.dims[i]);
    if (!is_known && i > axis) return false;
    sizes[i] = is_known ? type.dims[i].constant : i == axis ? -1 : 0;
  }
  return true;
}

/* What is stacked along the first axis, with that axis where the results were joined. */
static Value *with_steps_at(const Steps *steps, Value *stacked, int64_t axis, Node *before) {
  int64_t perm[MOST_PERMUTED];
  Dim dims[MOST_PERMUTED];
  Type type = stacked->type;
  if (axis == 0) return stacked;
  for (uint32_t i = 0; i < type.rank; i++) perm[i] = i < axis ? i + 1 : i == axis ? 0 : i;
  for (uint32_t i = 0; i < type.rank; i++) dims[i] = type.dims[perm[i]];
  type = type_make(steps->rewriter->context, type.dtype, dims, type.rank);
  Node *transpose = graph_node(before->graph, ORIGIN(steps, before), OP_Transpose, &stacked, 1, &type, 1, before);
  node_set_ints(transpose, "perm", perm, type.rank);
  return transpose->outputs[0];
}

/* Where results of all steps are joined, perhaps with others before and behind them. */
typedef struct Join {
  Node *concat;
  int64_t axis;
  Value *leaves[MOST_LEAVES];
  size_t count, first; /* leaves, and the first that is a step's */
  bool has_axis;       /* each was given an axis */
} Join;

static Node *find_concat(const Steps *steps, const Value *value) {
  Node *concat = last_concat(steps, value);
  for (const Use *use = value->uses; use && !concat; use = use->next) {
    if (use->node && node_is(use->node, OP_Unsqueeze)) concat = last_concat(steps, use->node->outputs[0]);
  }
  return concat;
}

static bool read_join(const Steps *steps, const Result *result, Join *join) {
  Node *concat = find_concat(steps, result_at(steps, result, 0));
  if (!concat || concat->graph != steps->graph || type_is_unranked(concat->outputs[0]->type)) return false;
  join->concat = concat;
  join->axis = node_int_or(concat, "axis", 0);
  join->count = 0;
  if (join->axis < 0 || join->axis >= concat->outputs[0]->type.rank || concat->outputs[0]->type.rank > MOST_PERMUTED)
    return false;
  if (!collect_leaves(concat, join->axis, MOST_NESTED, join->leaves, &join->count, MOST_LEAVES)) return false;
  for (join->first = 0; join->first + (size_t)steps->count <= join->count; join->first++) {
    if (joins_in_order(steps, result, join->leaves + join->first, join->axis, &join->has_axis)) return true;
  }
  return false;
}

/* What the Scan stacks as the Concat had it; NULL: its sizes are not known. */
static Value *joined_results(const Steps *steps, const Result *result, const Join *join, Value *stacked) {
  int64_t sizes[MOST_PERMUTED];
  Context *context = steps->rewriter->context;
  Type type = result_at(steps, result, 0)->type;
  if (join->has_axis) return with_steps_at(steps, stacked, join->axis, join->concat);
  Dim *dims = arena_copy(&context->arena, type.dims, type.rank * sizeof *dims);
  dims[join->axis] = dim_multiply(context, dim_of(steps->count), dims[join->axis]);
  type = (Type){.dtype = type.dtype, .rank = type.rank, .dims = dims};
  if (!merged_sizes(type, join->axis, sizes)) return NULL;
  Value *shape = rewrite_constant_ints(steps->rewriter, join->concat, sizes, type.rank, join->concat->origin);
  Value *inputs[] = {with_steps_at(steps, stacked, join->axis, join->concat), shape};
  return graph_node(steps->graph, ORIGIN(steps, join->concat), OP_Reshape, inputs, 2, &type, 1, join->concat)
      ->outputs[0];
}

/* A Concat of the results of all steps is what the Scan stacks. */
static void replace_join(Steps *steps, const Result *result, Value *stacked, Join *join) {
  if (!read_join(steps, result, join)) return;
  Node *concat = join->concat;
  Value *joined = joined_results(steps, result, join, stacked);
  if (!joined) return;
  size_t behind = join->first + (size_t)steps->count, count = join->first;
  join->leaves[count++] = joined;
  for (size_t i = behind; i < join->count; i++) join->leaves[count++] = join->leaves[i];
  for (int64_t step = 0; step < steps->count; step++)
    rewrite_hand_over(steps->rewriter, joined->producer, node_at(steps, step, result->offset));
  if (count > 1) {
    Type type = concat->outputs[0]->type;
    Node *shorter = graph_node(steps->graph, ORIGIN(steps, concat), OP_Concat, join->leaves, count, &type, 1, concat);
    node_copy_attributes(shorter, concat);
    joined = shorter->outputs[0];
  }
  rewrite_replace(steps->rewriter, concat, joined);
}

/* Uses around the steps become those of another value. */
static void replace_around(Steps *steps, Value *old, Value *value) {
  int64_t step;
  size_t offset;
  if (value_is_output(old)) {
    Node *before = node_at(steps, 0, 0);
    value = graph_node(steps->graph, ORIGIN(steps, before), OP_Identity, &value, 1, &old->type, 1, before)->outputs[0];
    rewrite_take_name(value, old);
  }
  for (Use *use = old->uses, *next; use; use = next) {
    next = use->next;
    if (!is_in_steps(steps, use->node, &step, &offset)) use_set(use, value);
  }
  rewrite_hand_over(steps->rewriter, value->producer, old->producer);
}

static Value *picked(Steps *steps, Value *stacked, int64_t step, Type type) {
  Node *before = node_at(steps, 0, 0);
  int64_t place = place_of(steps, step);
  Tensor *tensor = arena_new(&steps->rewriter->context->arena, Tensor);
  *tensor = (Tensor){.dtype = DTYPE_INT64, .size = sizeof place};
  tensor->data = arena_copy(&steps->rewriter->context->arena, &place, sizeof place);
  Value *inputs[] = {stacked, rewrite_constant(steps->rewriter, before, tensor, before->origin)};
  Node *gather = graph_node(steps->graph, ORIGIN(steps, before), OP_Gather, inputs, 2, &type, 1, before);
  node_set_int(gather, "axis", 0);
  return gather->outputs[0];
}

static void replace_results(Steps *steps, Node *scan) {
  Value *const *all = scan->outputs + steps->carried_count;
  Join *join = arena_new(&steps->rewriter->context->arena, Join);
  for (size_t i = 0; i < steps->stacked_count; i++) replace_join(steps, &steps->stacked[i], all[i], join);
  for (size_t i = 0; i < steps->carried_count; i++) {
    Value *last = result_at(steps, &steps->carried[i], steps->count - 1);
    if (is_read_around(steps, last)) replace_around(steps, last, scan->outputs[i]);
  }
  for (size_t i = 0; i < steps->stacked_count; i++) {
    for (int64_t step = 0; step < steps->count; step++) {
      Value *value = result_at(steps, &steps->stacked[i], step);
      if (is_read_around(steps, value)) replace_around(steps, value, picked(steps, all[i], step, value->type));
    }
  }
}

static void roll(Steps *steps) {
  Node *made[LONGEST_STEP];
  Node *scan = make_scan(steps, make_body(steps, made));
  replace_results(steps, scan);
  for (int64_t step = steps->count; step-- > 0;) {
    for (size_t offset = steps->length; offset-- > 0;) {
      Node *node = node_at(steps, step, offset);
      rewrite_hand_over(steps->rewriter, made[offset], node);
      node_remove(node);
    }
  }
  steps->rewriter->changed = true;
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
  read_graph(&steps);
  for (int i = 0; i < MOST_LOOPS && find_steps(&steps); i++) {
    roll(&steps);
    read_graph(&steps);
  }
}

bool roll_steps(Model *model) {
  Rewriter rewriter;
  rewrite_begin(&rewriter, model, __func__);
  model_each_graph(model, visit, &rewriter);
  return rewrite_end(&rewriter);
}
