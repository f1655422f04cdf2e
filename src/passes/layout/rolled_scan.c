/* The Scan that steps which were written out become, and what is read of it. */
#include "passes/layout/permute_axes.h"
#include "passes/layout/roll_steps.h"

enum {
  MOST_NESTED = 4,      /* Concats of Concats */
  MOST_LEAVES = 1 << 12 /* that are joined */
};

/* ---- the Scan ---- */

#define ORIGIN(steps, node) REWRITE_ORIGIN((steps)->rewriter, node)

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
  return find_result(steps->carried, steps->carried_count, input->offset, input->output)->inside;
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

/* Joined in the order in which they are stacked, or in the other, from the leaf on? */
static bool joins_in_order(const Steps *steps, const Result *result, Value *const *leaves, int64_t axis, bool turned,
                           bool *has_axis) {
  for (int64_t step = 0; step < steps->count; step++) {
    bool here;
    int64_t place = place_of(steps, turned ? steps->count - 1 - step : step);
    if (!is_leaf(leaves[place], result_at(steps, result, step), axis, &here)) return false;
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
  bool turned;         /* the last is joined first */
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
    for (int turned = 0; turned < 2; turned++) {
      join->turned = turned;
      if (joins_in_order(steps, result, join->leaves + join->first, join->axis, turned, &join->has_axis)) return true;
    }
  }
  return false;
}

static Value *turned_around(const Steps *steps, Value *stacked, Node *before) {
  const int64_t numbers[] = {-1, INT64_MIN, 0, -1};
  Value *inputs[5] = {stacked};
  for (size_t i = 0; i < 4; i++)
    inputs[i + 1] = rewrite_constant_ints(steps->rewriter, before, &numbers[i], 1, before->origin);
  return graph_node(steps->graph, ORIGIN(steps, before), OP_Slice, inputs, 5, &stacked->type, 1, before)->outputs[0];
}

/* What the Scan stacks as the Concat had it; NULL: its sizes are not known. */
static Value *joined_results(const Steps *steps, const Result *result, const Join *join, Value *stacked) {
  int64_t sizes[MOST_PERMUTED];
  Context *context = steps->rewriter->context;
  Type type = result_at(steps, result, 0)->type;
  if (!join->has_axis && !merged_sizes(type, join->axis, sizes)) return NULL;
  if (join->turned) stacked = turned_around(steps, stacked, join->concat);
  if (join->has_axis) return with_steps_at(steps, stacked, join->axis, join->concat);
  Dim *dims = arena_copy(&context->arena, type.dims, type.rank * sizeof *dims);
  dims[join->axis] = dim_multiply(context, dim_of(steps->count), dims[join->axis]);
  type = (Type){.dtype = type.dtype, .rank = type.rank, .dims = dims};
  merged_sizes(type, join->axis, sizes);
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
    value = rewrite_copy_for(old, value, before, ORIGIN(steps, before));
  }
  for (Use *use = old->uses, *next; use; use = next) {
    next = use->next;
    if (!is_in_steps(steps, use->node, &step, &offset)) use_set(use, value);
  }
  rewrite_hand_over(steps->rewriter, value->producer, old->producer);
}

static Value *picked(Steps *steps, Value *stacked, int64_t step, Type type) {
  Node *before = node_at(steps, 0, 0);
  double place = (double)place_of(steps, step);
  Value *inputs[] = {stacked, rewrite_constant_number(steps->rewriter, before, DTYPE_INT64, place, before->origin)};
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

void roll(Steps *steps) {
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
