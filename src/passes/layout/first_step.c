/* A first step that is written otherwise than those after it.
 *
 * Where a loop is mapped over a batch and begins with a state that the whole batch shares, the first step computes of
 * that state without the axis of the batch, and only what it hands on has it. It is a step like the others of the state
 * spread over the batch: that is shown node by node, leading axes left out of account, and then it is written so. */
#include "onnx/graph/same.h"
#include "passes/layout/permute_axes.h"
#include "passes/layout/roll_steps.h"

typedef struct FirstStep {
  Steps *steps;
  Value *old[LONGEST_STEP];    /* by offset: what the first step has for the first output of that node */
  Value *states[MOST_CARRIED]; /* that it begins with */
  Value *spread[MOST_CARRIED]; /* over the batch */
  Node *made[LONGEST_STEP];
} FirstStep;

static bool relate(FirstStep *first, size_t offset, uint32_t output, Value *value);

/* ---- leading axes ---- */

static Type without_ones(Type type) {
  while (type.rank > 0 && dim_is(type.dims[0], 1)) type.rank--, type.dims++;
  return type;
}

/* The last axes of the one are those of the other, but for leading ones of size 1. */
static bool ends_like(Type longer, Type shorter) {
  shorter = without_ones(shorter);
  if (longer.dtype != shorter.dtype || shorter.rank > longer.rank) return false;
  for (uint32_t i = 1; i <= shorter.rank; i++) {
    if (!dim_equal(longer.dims[longer.rank - i], shorter.dims[shorter.rank - i])) return false;
  }
  return true;
}

/* Does the node nothing but put leading axes in or out, or spread over them? */
static bool only_leads(const Node *node) {
  if (!node || !(node_has(node, RENAMES) || node_is(node, OP_Expand))) return false;
  Type from = node_input(node, 0)->type, to = node->outputs[0]->type;
  return from.dtype != DTYPE_NONE && to.dtype != DTYPE_NONE && (ends_like(to, from) || ends_like(from, to)) &&
         (node_is(node, OP_Expand) || without_ones(from).rank == without_ones(to).rank);
}

static Value *without_leading(Value *value) {
  while (only_leads(value->producer)) value = node_input(value->producer, 0);
  return value;
}

/* ---- is it the same step? ---- */

static int64_t from_end(int64_t axis, Type type) { return axis < 0 ? axis : axis - (int64_t)type.rank; }

static bool same_integers(const Value *a, const Value *b) {
  int64_t one, other;
  return a == b || (a && b && only_integer(a, &one) && only_integer(b, &other) && one == other);
}

static bool same_slice(const Node *node, const Node *other) {
  int64_t one, two;
  if (node->input_count != 4 || other->input_count != 4) return false;
  if (!only_integer(node_input(node, 3), &one) || !only_integer(node_input(other, 3), &two)) return false;
  return same_integers(node_input(node, 1), node_input(other, 1)) &&
         same_integers(node_input(node, 2), node_input(other, 2)) &&
         from_end(one, node_input(node, 0)->type) == from_end(two, node_input(other, 0)->type);
}

/* An axis of the batch stays where it is while the others are renamed. */
static bool same_renaming(const Node *node, const Node *other) {
  Type from = node_input(node, 0)->type, to = node->outputs[0]->type;
  Type own = node_input(other, 0)->type, made = other->outputs[0]->type;
  if (type_equal(from, own) && type_equal(to, made)) return true;
  if (from.rank < 1 || to.rank < 1 || !dim_equal(from.dims[0], to.dims[0])) return false;
  from.rank--, from.dims++, to.rank--, to.dims++;
  return own.rank == from.rank && made.rank == to.rank && ends_like(from, own) && ends_like(to, made);
}

/* The operator and how it works on axes that both have. */
static bool same_operator(const Node *node, const Node *other) {
  if (node->op != other->op || node->output_count != other->output_count) return false;
  if (node_has(node, RENAMES)) return same_renaming(node, other);
  if (node_is(node, OP_Slice)) return same_slice(node, other);
  if (node->attributes.count != other->attributes.count || node->input_count != other->input_count) return false;
  bool has_axis = node_is(node, OP_Split) || node_is(node, OP_Concat) || node_is(node, OP_Gather);
  if (has_axis) {
    if (!node_is(node, OP_Concat) && !same_integers(node_input(node, 1), node_input(other, 1))) return false;
    return from_end(node_int_or(node, "axis", 0), node_input(node, 0)->type) ==
           from_end(node_int_or(other, "axis", 0), node_input(other, 0)->type);
  }
  if (!same_attributes(node, other)) return false;
  if (node_is(node, OP_MatMul)) return node_input(node, 1)->type.rank == 2 && node_input(other, 0)->type.rank > 0;
  return node_has(node, ELEMENTWISE) || type_equal(node->outputs[0]->type, other->outputs[0]->type);
}

static bool relate_input(FirstStep *first, size_t offset, size_t at, Value *value) {
  Steps *steps = first->steps;
  const Input *input = &steps->inputs[offset][at];
  if (!input->value || !value) return input->value == value;
  if (input->source == FROM_STEP) return relate(first, input->offset, input->output, value);
  if (input->source == FROM_AROUND) return without_leading(input->value) == without_leading(value);
  const Result *carried = find_result(steps->carried, steps->carried_count, input->offset, input->output);
  Value **state = &first->states[carried - steps->carried], *bare = without_leading(value);
  if (!*state && ends_like(carried->first->type, bare->type)) *state = bare;
  return *state == bare;
}

/* The row before that of the first of the steps. */
static int64_t row_before(const Steps *steps, const Row *row) {
  return steps->is_ordered ? row->first - 1 : row->first + steps->count;
}

static bool is_row_before(const Steps *steps, size_t offset, const Value *value) {
  const Node *node = value->producer, *like = node_at(steps, 0, offset);
  const Row *row = &steps->rows[steps->row_of[offset] - 1];
  int64_t axis, number;
  return node && node->op == like->op && read_row(node, &axis, &number) && axis == row->axis &&
         node_input(node, 0) == node_input(like, 0) && array_of_row(node, axis, &number) == row->array &&
         number == row_before(steps, row) && type_equal(value->type, like->outputs[0]->type);
}

/* Only the first input of what takes parts or renames axes is data. */
static size_t data_inputs(const Node *node) {
  bool is_single = node_has(node, RENAMES) || node_is(node, OP_Slice) || node_is(node, OP_Split) ||
                   node_is(node, OP_Gather) || node_is(node, OP_Expand);
  return is_single ? 1 : node->input_count;
}

static bool relate_bare(FirstStep *first, size_t offset, uint32_t output, Value *value) {
  Steps *steps = first->steps;
  Node *node = node_at(steps, 0, offset);
  const Node *other = value->producer;
  int64_t step;
  size_t place;
  if (output == 0 && first->old[offset]) return first->old[offset] == value;
  if (!other || other->graph != steps->graph || is_in_steps(steps, other, &step, &place)) return false;
  if (value->output_index != output || !ends_like(node->outputs[output]->type, value->type)) return false;
  if (!same_operator(node, other)) return false;
  for (size_t at = 0; at < data_inputs(node); at++) {
    if (!relate_input(first, offset, at, node_input(other, at))) return false;
  }
  if (output == 0) first->old[offset] = value;
  return true;
}

/* Is the value what the node has in a step of the states, but for leading axes that it is the same along? */
static bool relate(FirstStep *first, size_t offset, uint32_t output, Value *value) {
  Steps *steps = first->steps;
  if (steps->row_of[offset]) return is_row_before(steps, offset, value);
  if (only_leads(node_at(steps, 0, offset))) return relate_input(first, offset, 0, value);
  for (; !relate_bare(first, offset, output, value); value = node_input(value->producer, 0)) {
    if (!only_leads(value->producer)) return false;
  }
  return true;
}

/* Something that the steps' results are joined with is what the first step has of them. */
static void find_old(FirstStep *first, size_t offset) {
  Steps *steps = first->steps;
  const Node *node = node_at(steps, 0, offset);
  for (size_t at = 0; at < node->input_count && !first->old[offset]; at++) {
    const Input *input = &steps->inputs[offset][at];
    Value *source = input->source == FROM_STEP ? first->old[input->offset] : NULL;
    for (const Use *use = source ? source->uses : NULL; use && !first->old[offset]; use = use->next) {
      if (use->node && use->node->op == node->op && use->node->output_count == 1)
        relate(first, offset, 0, use->node->outputs[0]);
    }
  }
}

static bool has_known_sizes(Type type) {
  int64_t count;
  return type.rank > 0 && type.rank <= MOST_PERMUTED && type_count(type, &count);
}

static bool is_first_step(FirstStep *first) {
  Steps *steps = first->steps;
  bool is_other = false;
  for (size_t i = 0; i < steps->carried_count; i++) {
    const Result *carried = &steps->carried[i];
    if (value_is_output(carried->first) || !has_known_sizes(carried->first->type)) return false;
    if (!relate(first, carried->offset, carried->output, carried->first)) return false;
  }
  for (size_t i = 0; i < steps->carried_count; i++) {
    if (!first->states[i]) return false;
    is_other = is_other || !type_equal(first->states[i]->type, steps->carried[i].first->type);
  }
  for (size_t i = 0; i < steps->row_count; i++) {
    const Row *row = &steps->rows[i];
    int64_t before = row_before(steps, row);
    if (before < 0 || before >= row->array->type.dims[row->axis].constant) return false;
  }
  for (size_t i = 0; i < steps->stacked_count; i++) find_old(first, steps->stacked[i].offset);
  return is_other;
}

/* ---- writing it ---- */

#define ORIGIN(steps, node) REWRITE_ORIGIN((steps)->rewriter, node)

static Value *spread(const Steps *steps, Value *state, Type type) {
  Node *before = node_at(steps, 0, 0);
  int64_t sizes[MOST_PERMUTED];
  if (type_equal(state->type, type)) return state;
  for (uint32_t i = 0; i < type.rank; i++) sizes[i] = type.dims[i].constant;
  Value *inputs[] = {state, rewrite_constant_ints(steps->rewriter, before, sizes, type.rank, before->origin)};
  return graph_node(steps->graph, ORIGIN(steps, before), OP_Expand, inputs, 2, &type, 1, before)->outputs[0];
}

static Value *integer(const Steps *steps, int64_t number, bool is_list) {
  Node *before = node_at(steps, 0, 0);
  if (is_list) return rewrite_constant_ints(steps->rewriter, before, &number, 1, before->origin);
  return rewrite_constant_number(steps->rewriter, before, DTYPE_INT64, (double)number, before->origin);
}

static Value *input_of(const FirstStep *first, const Input *input) {
  const Steps *steps = first->steps;
  if (input->source == FROM_AROUND) return input->value;
  if (input->source == FROM_STEP) return first->made[input->offset]->outputs[input->output];
  return first
      ->spread[find_result(steps->carried, steps->carried_count, input->offset, input->output) - steps->carried];
}

static Node *copy_node(FirstStep *first, size_t offset) {
  Steps *steps = first->steps;
  const Node *like = node_at(steps, 0, offset);
  Value *inputs[MOST_INPUTS];
  Type types[MOST_INPUTS];
  for (uint32_t i = 0; i < like->output_count; i++) types[i] = like->outputs[i]->type;
  for (size_t i = 0; i < like->input_count; i++)
    inputs[i] = steps->row_of[offset] ? node_input(like, i) : input_of(first, &steps->inputs[offset][i]);
  if (steps->row_of[offset]) {
    const Row *row = &steps->rows[steps->row_of[offset] - 1];
    int64_t number = row_before(steps, row);
    array_of_row(like, row->axis, &number); /* in what was turned around it is another one */
    bool is_slice = node_is(like, OP_Slice);
    inputs[1] = integer(steps, number, is_slice);
    if (is_slice) inputs[2] = integer(steps, number + 1, true);
  }
  Node *copy = graph_node(steps->graph, like->origin, like->op, inputs, like->input_count, types, like->output_count,
                          node_at(steps, 0, 0));
  node_copy_attributes(copy, like);
  return copy;
}

/* Uses from the steps on become those of what was made. */
static void replace_after(FirstStep *first, const Result *result, Value *old) {
  Steps *steps = first->steps;
  Node *made = first->made[result->offset];
  Value *value = made->outputs[result->output];
  if (!old || value_is_output(old) || !type_equal(old->type, value->type)) return;
  for (Use *use = old->uses, *next; use; use = next) {
    next = use->next;
    const Node *node = use->node;
    size_t index = node && node->graph == steps->graph ? (size_t)(uintptr_t)node->scratch - 1 : SIZE_MAX;
    bool is_known = index < steps->node_count && steps->nodes[index] == node;
    if (is_known && index >= steps->begin) use_set(use, value);
  }
  rewrite_hand_over(steps->rewriter, made, old->producer);
}

bool write_first_step(Steps *steps) {
  Arena *arena = &steps->rewriter->context->arena;
  FirstStep *first = arena_new(arena, FirstStep);
  *first = (FirstStep){.steps = steps};
  if (!is_first_step(first)) return false;
  for (size_t i = 0; i < steps->carried_count; i++)
    first->spread[i] = spread(steps, first->states[i], steps->carried[i].first->type);
  for (size_t offset = 0; offset < steps->length; offset++) {
    first->made[offset] = copy_node(first, offset);
    if (first->old[offset]) rewrite_hand_over(steps->rewriter, first->made[offset], first->old[offset]->producer);
  }
  for (size_t i = 0; i < steps->carried_count; i++) replace_after(first, &steps->carried[i], steps->carried[i].first);
  for (size_t i = 0; i < steps->stacked_count; i++) {
    const Result *stacked = &steps->stacked[i];
    if (stacked->output == 0) replace_after(first, stacked, first->old[stacked->offset]);
  }
  for (size_t i = steps->begin; i-- > 0 && steps->begin - i < 3 * steps->length;)
    rewrite_drop_unused(steps->rewriter, steps->nodes[i], first->made[steps->length - 1]);
  steps->rewriter->changed = true;
  return true;
}
