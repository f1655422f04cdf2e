/* Loops whose number of steps is known become Scans, and what counts their steps is scanned, not carried.
 *
 * A step of Loop takes ONNX Runtime 0.6 us and 0.2 more a carried value beside the nodes of its body; a step of Scan
 * 0.25 and 0.1. Scan needs something to go along: the numbers of the steps, which are a constant. A counter that is
 * carried is such numbers too, and what is computed of it can then be computed for all steps at once (batch_steps.c).
 *
 * A while loop that counts to a bound has a known number of steps as well, and so has one whose end is decided by what
 * can be computed at export: the times of a solver with constant steps (foretold.c). What steps compute of such values
 * is scanned as well: the gains of a filter, whose covariances begin with a constant, need none of their sixty nodes a
 * step. Runtimes for which only Loop was tried keep it.
 *
 * A loop that counts up to a constant from a number that is computed takes as many steps as are left. A solver whose
 * first stage is taken over from the step before begins its stages with the first or the second. Such a loop goes along
 * the rest of a table: the counter itself, and what the steps compute of it alone, such as their coefficients, for
 * every number that it can have. Other counters that end the loop no earlier decide nothing. Where it begins with one
 * of two numbers, the step of the first is taken in a branch before the loop, and the others are known: a table that
 * begins with the second, and steps that can be written out.
 */
#include "base/bytes.h"
#include "onnx/graph/copy.h"
#include "passes/analysis/bounds.h"
#include "passes/analysis/foretold.h"
#include "passes/loop_body.h"
#include "passes/passes.h"
#include "passes/rewrite.h"
#include "target/target.h"
#include "types/numbers.h"

enum {
  MOST_STEPS = 1 << 16, /* as a constant: half a megabyte */
  MOST_ROWS = 1 << 10,  /* of a table */
  MOST_TESTS = 8,       /* that end a loop */
  MOST_COPIED = 512,    /* nodes of a step that is taken in a branch, with those of its own bodies */
};

/* The numbers start, start + step, … of a carried value. */
typedef struct Counter {
  int64_t start, step;
} Counter;

static Value *before_loop(const Node *loop, const LoopShape *shape, size_t carried) {
  return node_input(loop, shape->first_input + carried);
}

/* What is added to it in every step. */
static bool read_step(const LoopShape *shape, size_t carried, int64_t *step) {
  const Value *before = shape->body->inputs.items[shape->first_body_input + carried];
  const Node *add = behind_identities(shape->body->outputs.items[shape->lead + carried]->value)->producer;
  if (!add || !node_is(add, OP_Add) || add->graph != shape->body) return false;
  const Value *left = node_input(add, 0), *right = node_input(add, 1);
  return (left == before && small_integer(right, step)) || (right == before && small_integer(left, step));
}

static bool read_counter(const Node *loop, const LoopShape *shape, size_t carried, Counter *counter) {
  return small_integer(before_loop(loop, shape, carried), &counter->start) && read_step(shape, carried, &counter->step);
}

/* Does it not wrap? The product is 2^31 times 2^16 at the most. */
static bool fits(DType dtype, Counter counter, int64_t length) {
  if (length > MOST_STEPS) return false;
  int64_t last = counter.start + counter.step * length;
  return dtype == DTYPE_INT64 || (last >= INT32_MIN && last <= INT32_MAX);
}

/* Steps of a loop that goes on as long as the counter, as the next step will find it, is below the bound. */
static bool steps_to_bound(const Node *loop, const LoopShape *shape, const Node *test, int64_t *steps) {
  int64_t bound;
  Counter counter;
  bool included = test && node_is(test, OP_LessOrEqual);
  if (!test || (!included && !node_is(test, OP_Less)) || !small_integer(node_input(test, 1), &bound)) return false;
  for (size_t i = 0; i < shape->carried; i++) {
    const Value *next = behind_identities(shape->body->outputs.items[shape->lead + i]->value);
    if (next != behind_identities(node_input(test, 0)) || !read_counter(loop, shape, i, &counter)) continue;
    int64_t way = bound + included - counter.start;
    *steps = counter.step > 0 ? (way + counter.step - 1) / counter.step : 0;
    return fits(next->type.dtype, counter, *steps);
  }
  return false;
}

/* At least one, at most MOST_STEPS. */
static bool known_steps(const Node *loop, const LoopShape *shape, int64_t *steps) {
  const Value *begins = node_input(loop, 1);
  Value *go_on = behind_identities(shape->body->outputs.items[0]->value);
  int64_t limit = INT64_MAX;
  if (node_input(loop, 0) && !only_integer(node_input(loop, 0), &limit)) return false;
  if (begins && !is_boolean(begins, true)) return false;
  *steps = limit;
  if (go_on != shape->body->inputs.items[1] && !is_boolean(go_on, true)) {
    Foretold foretold;
    if (steps_to_bound(loop, shape, go_on->producer, steps)) *steps = *steps > limit ? limit : *steps;
    else if (foretell(loop, shape, limit, &foretold)) *steps = foretold.steps;
    else return false;
  }
  return *steps >= 1 && *steps <= MOST_STEPS;
}

/* Does every carried value keep its type? */
static bool is_regular(const Node *loop, const LoopShape *shape) {
  if (shape->body->inputs.count != loop->input_count || shape->body->initializers.count) return false;
  for (size_t i = 0; i < loop->output_count; i++) {
    const Value *after = shape->body->outputs.items[shape->lead + i]->value;
    if (!loop->outputs[i] || after->type.dtype == DTYPE_NONE || type_is_unranked(after->type)) return false;
    if (i >= shape->carried) continue;
    if (!type_equal(after->type, shape->body->inputs.items[shape->first_body_input + i]->type)) return false;
    if (!type_equal(after->type, node_input(loop, shape->first_input + i)->type)) return false;
  }
  return true;
}

static const Tensor *numbers_tensor(Rewriter *rewriter, DType dtype, Counter counter, int64_t count, bool backwards) {
  Arena *arena = &rewriter->context->arena;
  Tensor *tensor = arena_new(arena, Tensor);
  size_t width = dtype == DTYPE_INT32 ? sizeof(int32_t) : sizeof(int64_t);
  char *data = arena_new_array(arena, (size_t)count * width, char);
  for (int64_t i = 0; i < count; i++) {
    int64_t number = counter.start + counter.step * (backwards ? count - 1 - i : i);
    int32_t narrow = (int32_t)number;
    copy_bytes(data + (size_t)i * width, width == sizeof narrow ? (const void *)&narrow : (const void *)&number, width);
  }
  *tensor = (Tensor){.dtype = dtype, .rank = 1, .size = (size_t)count * width, .data = data};
  tensor->dims = arena_copy(arena, &count, sizeof count);
  return tensor;
}

/* The one number that a counter is behind the last step. */
static const Tensor *number_tensor(Rewriter *rewriter, DType dtype, int64_t number) {
  Tensor *tensor = arena_copy(&rewriter->context->arena,
                              numbers_tensor(rewriter, dtype, (Counter){number, 0}, 1, false), sizeof *tensor);
  tensor->rank = 0;
  return tensor;
}

static const Tensor *true_tensor(Rewriter *rewriter) {
  static const uint8_t yes = 1;
  Tensor *tensor = arena_new(&rewriter->context->arena, Tensor);
  *tensor = (Tensor){.dtype = DTYPE_BOOL, .size = 1, .data = &yes};
  return tensor;
}

/* The loop's body with a slice at the end, where Loop gives the step's number and the condition. */
static void make_scan_body(Rewriter *rewriter, Node *loop, Graph *body, DType slice) {
  Value *index = body->inputs.items[0], *condition = body->inputs.items[1];
  drop_graph_output(body, 0);
  if (condition->uses) value_replace(condition, rewrite_constant(rewriter, loop, true_tensor(rewriter), loop->origin));
  drop_graph_input(body, 1);
  drop_graph_input(body, 0);
  value_replace(index, graph_input(body, (Type){.dtype = slice}, NULL));
}

static Node *scan_along(Rewriter *rewriter, Node *loop, const LoopShape *shape, Value *numbers) {
  Arena *arena = &rewriter->context->arena;
  Value **inputs = arena_new_array(arena, shape->carried + 1, Value *);
  Type *types = arena_new_array(arena, loop->output_count, Type);
  for (size_t i = 0; i < shape->carried; i++) inputs[i] = before_loop(loop, shape, i);
  inputs[shape->carried] = numbers;
  for (uint32_t i = 0; i < loop->output_count; i++) types[i] = loop->outputs[i]->type;
  const Origin *origin = REWRITE_ORIGIN(rewriter, loop);
  Node *scan = graph_node(loop->graph, origin, OP_Scan, inputs, shape->carried + 1, types, loop->output_count, loop);
  node_set_int(scan, "num_scan_inputs", 1);
  make_scan_body(rewriter, loop, shape->body, numbers->type.dtype);
  loop->attributes.count = 0; /* the body is the scan's now */
  node_set_graph(scan, "body", shape->body);
  return scan;
}

static Node *replace_loop(Rewriter *rewriter, Node *loop, const LoopShape *shape, Value *numbers) {
  Node *scan = scan_along(rewriter, loop, shape, numbers);
  for (uint32_t i = 0; i < loop->output_count; i++) {
    rewrite_take_name(scan->outputs[i], loop->outputs[i]);
    value_replace(loop->outputs[i], scan->outputs[i]);
  }
  rewrite_hand_over(rewriter, scan, loop);
  node_remove(loop);
  rewriter->changed = true;
  return scan;
}

static Node *count_loop(Rewriter *rewriter, Node *loop) {
  LoopShape shape;
  int64_t steps;
  if (!loop_shape(loop, &shape) || !is_regular(loop, &shape) || !known_steps(loop, &shape, &steps)) return NULL;
  const Tensor *numbers = numbers_tensor(rewriter, DTYPE_INT64, (Counter){0, 1}, steps, false);
  return replace_loop(rewriter, loop, &shape, rewrite_constant(rewriter, loop, numbers, loop->origin));
}

static bool scan_length(const Node *scan, const LoopShape *shape, int64_t *length) {
  if (shape->carried == scan->input_count || shape->body->inputs.count != scan->input_count) return false;
  Type type = node_input(scan, shape->carried)->type;
  if (type_is_unranked(type) || type.rank == 0 || !dim_is_constant(type.dims[0])) return false;
  *length = type.dims[0].constant;
  return *length >= 1 && *length <= MOST_STEPS && scan_runs_one_way(scan);
}

/* An output of the graph needs a node of its own. */
static void replace_by_last(Rewriter *rewriter, Node *scan, Value *after, const Tensor *number) {
  Value *last = rewrite_constant(rewriter, scan, number, scan->origin);
  if (value_is_output(after)) last = rewrite_copy_for(after, last, scan, REWRITE_ORIGIN(rewriter, scan));
  value_replace(after, last);
}

/* What is carried is what all steps begin with, and one after the other is handed out. */
static void scan_known(Rewriter *rewriter, Node *scan, const LoopShape *shape, size_t carried, const Tensor *known,
                       const Tensor *last) {
  Value *before = shape->body->inputs.items[carried], *after = scan->outputs[carried];
  Value *all = rewrite_constant(rewriter, scan, known, scan->origin);
  value_replace(before, scan_add_input(scan, all, before->type));
  if (after && after->uses) replace_by_last(rewriter, scan, after, last);
  scan_drop_carried(scan, carried);
  rewriter->changed = true;
}

static void scan_counter(Rewriter *rewriter, Node *scan, const LoopShape *shape, size_t carried, Counter counter,
                         int64_t length) {
  DType dtype = shape->body->inputs.items[carried]->type.dtype;
  const Tensor *numbers = numbers_tensor(rewriter, dtype, counter, length, scan_runs_backwards(scan));
  scan_known(rewriter, scan, shape, carried, numbers,
             number_tensor(rewriter, dtype, counter.start + counter.step * length));
}

static void scan_counters(Rewriter *rewriter, Node *scan) {
  LoopShape shape;
  int64_t length;
  Counter counter;
  if (!loop_shape(scan, &shape) || !scan_length(scan, &shape, &length)) return;
  for (size_t i = shape.carried; i-- && scan->output_count > 1;) {
    Type type = shape.body->inputs.items[i]->type;
    if (type.rank || !read_counter(scan, &shape, i, &counter) || !fits(type.dtype, counter, length)) continue;
    scan_counter(rewriter, scan, &shape, i, counter, length);
  }
}

/* The values of all steps, in the order in which the scan reads them. */
static const Tensor *stacked(Rewriter *rewriter, const Tensor *const *values, int64_t length, bool backwards) {
  Arena *arena = &rewriter->context->arena;
  Tensor *all = arena_new(arena, Tensor);
  size_t size = values[0]->size;
  int64_t *dims = arena_new_array(arena, values[0]->rank + 1, int64_t);
  char *data = arena_new_array(arena, (size_t)length * size, char);
  dims[0] = length;
  for (uint32_t i = 0; i < values[0]->rank; i++) dims[i + 1] = values[0]->dims[i];
  for (int64_t i = 0; i < length; i++) {
    copy_bytes(data + (size_t)i * size, values[backwards ? length - 1 - i : i]->data, size);
  }
  *all = (Tensor){.dtype = values[0]->dtype, .rank = values[0]->rank + 1, .dims = dims, .data = data};
  all->size = (size_t)length * size;
  return all;
}

/* What all steps compute of what is known is a constant of each, as if it had been folded there. */
static void scan_computed(Rewriter *rewriter, Node *scan, const Foretold *foretold, int64_t length) {
  for (size_t i = 0; i < foretold->computed.count; i++) {
    ForetoldValue known = foretold->computed.items[i];
    const Tensor *all = stacked(rewriter, known.by_step, length, scan_runs_backwards(scan));
    Node *node = known.value->producer;
    const Origin *origin = REWRITE_ORIGIN(rewriter, node);
    Value *constant = rewrite_constant(rewriter, scan, all, origin);
    node->heir = (Heir){.value = constant};
    rewrite_replace(rewriter, node, scan_add_input(scan, constant, known.value->type));
  }
}

static void scan_foretold(Rewriter *rewriter, Node *scan) {
  LoopShape shape;
  int64_t length;
  Foretold foretold;
  if (!loop_shape(scan, &shape) || !scan_length(scan, &shape, &length) || scan->output_count < 2) return;
  if (!foretell(scan, &shape, length, &foretold)) return;
  scan_computed(rewriter, scan, &foretold, length);
  for (size_t i = shape.carried; i-- && scan->output_count > 1;) {
    const Tensor **values = foretold.carried[i];
    if (!values) continue;
    const Tensor *all = stacked(rewriter, values, length, scan_runs_backwards(scan));
    scan_known(rewriter, scan, &shape, i, all, values[length]);
  }
}

/* ---- from a number that is computed ---- */

/* A Loop that goes on as long as the counter is below `end`. */
typedef struct Rest {
  Rewriter *rewriter;
  Node *loop;
  LoopShape shape;
  const Node *test;   /* that ends it */
  size_t counter;     /* which carried value */
  int64_t least, end; /* that it begins with at the least, and has at the end */
  int64_t rows;       /* of the tables: one for every number that it can have */
  Node *before;       /* what is computed for the loop */
  Value *first;       /* row that is left */
  Dim steps;          /* how many are left */
} Rest;

/* The tests that must all hold for another step. */
static bool read_tests(Value *condition, const Node **tests, size_t *count) {
  const Node *node = behind_identities(condition)->producer;
  if (!node || *count == MOST_TESTS) return false;
  if (node_is(node, OP_And)) {
    return read_tests(node_input(node, 0), tests, count) && read_tests(node_input(node, 1), tests, count);
  }
  tests[(*count)++] = node;
  return node_is(node, OP_Less) || node_is(node, OP_LessOrEqual);
}

/* Of a test that a counter is below a bound: which, how it grows, and the first number that fails. */
static bool read_test(const LoopShape *shape, const Node *test, size_t *carried, int64_t *step, int64_t *end) {
  if (!small_integer(node_input(test, 1), end)) return false;
  *end += node_is(test, OP_LessOrEqual);
  for (size_t i = 0; i < shape->carried; i++) {
    const Value *next = behind_identities(shape->body->outputs.items[shape->lead + i]->value);
    if (next != behind_identities(node_input(test, 0))) continue;
    *carried = i;
    return read_step(shape, i, step) && *step > 0;
  }
  return false;
}

/* Is the test that of a counter in steps of one that begins with what is computed, and never beyond the end? */
static bool read_rest(Rest *rest, const Node *test) {
  int64_t step;
  Bounds start;
  if (!read_test(&rest->shape, test, &rest->counter, &step, &rest->end) || step != 1) return false;
  const Value *before = before_loop(rest->loop, &rest->shape, rest->counter);
  if (constant_of(before) || before->type.rank || !dtype_is_integer(before->type.dtype)) return false;
  if (!value_bounds(before, &start) || start.least < -MOST_ROWS || start.greatest >= (double)rest->end) return false;
  rest->least = (int64_t)start.least;
  rest->rows = rest->end - rest->least;
  return rest->rows <= MOST_ROWS;
}

/* Does it hold after every step but the last of as many as there can be? */
static bool decides_nothing(const Rest *rest, const Node *test) {
  size_t carried;
  int64_t step, end, start;
  if (!read_test(&rest->shape, test, &carried, &step, &end)) return false;
  if (carried == rest->counter) return end >= rest->end;
  return small_integer(before_loop(rest->loop, &rest->shape, carried), &start) && start + step * (rest->rows - 1) < end;
}

static bool find_rest(Rest *rest) {
  const Node *tests[MOST_TESTS];
  size_t count = 0, at = 0;
  int64_t limit = INT64_MAX;
  Graph *body = rest->shape.body;
  const Value *begins = node_input(rest->loop, 1);
  if (rest->loop->output_count != rest->shape.carried || rest->shape.carried < 2) return false;
  if (body->inputs.items[0]->uses || body->inputs.items[1]->uses || (begins && !is_boolean(begins, true))) return false;
  if (!read_tests(body->outputs.items[0]->value, tests, &count)) return false;
  while (at < count && !read_rest(rest, tests[at])) at++;
  if (at == count) return false;
  rest->test = tests[at];
  for (size_t i = 0; i < count; i++) {
    if (!decides_nothing(rest, tests[i])) return false;
  }
  if (node_input(rest->loop, 0) && !only_integer(node_input(rest->loop, 0), &limit)) return false;
  return limit >= rest->rows;
}

static Value *node_before(const Rest *rest, Op op, Type type, Value *const *inputs, size_t count) {
  Rewriter *rewriter = rest->rewriter;
  const Origin *origin = REWRITE_ORIGIN(rewriter, rest->before);
  return graph_node(rest->before->graph, origin, op, inputs, count, &type, 1, rest->before)->outputs[0];
}

static Value *one_integer(const Rest *rest, int64_t number) {
  return rewrite_constant_ints(rest->rewriter, rest->before, &number, 1, rest->before->origin);
}

/* The row of the first step, as an array of one number. */
static Value *first_row(const Rest *rest) {
  Value *start = before_loop(rest->loop, &rest->shape, rest->counter);
  Type type = type_make(rest->rewriter->context, DTYPE_INT64, (Dim[]){dim_of(1)}, 1);
  start = rewrite_in_type(rest->rewriter, rest->before, rest->before->origin, start, DTYPE_INT64);
  start = node_before(rest, OP_Reshape, type, (Value *[]){start, one_integer(rest, 1)}, 2);
  if (rest->least == 0) return start;
  return node_before(rest, OP_Sub, type, (Value *[]){start, one_integer(rest, rest->least)}, 2);
}

static Value *rest_of(const Rest *rest, const Tensor *const *by_row, const Origin *origin) {
  const Tensor *table = stacked(rest->rewriter, by_row, rest->rows, false);
  Value *all = rewrite_constant(rest->rewriter, rest->before, table, origin);
  Dim dims[MAX_RANK] = {rest->steps};
  for (uint32_t i = 1; i < table->rank; i++) dims[i] = dim_of(table->dims[i]);
  Type type = type_make(rest->rewriter->context, table->dtype, dims, table->rank);
  Value *inputs[] = {all, rest->first, one_integer(rest, rest->rows), one_integer(rest, 0)};
  return node_before(rest, OP_Slice, type, inputs, 4);
}

/* What the steps compute of the counter alone is scanned as it is. */
static void scan_tables(const Rest *rest, Node *scan, const Foretold *foretold) {
  for (size_t i = 0; i < foretold->computed.count; i++) {
    ForetoldValue known = foretold->computed.items[i];
    Node *node = known.value->producer;
    Value *left = rest_of(rest, known.by_step, node->origin);
    rewrite_hand_over(rest->rewriter, left->producer, node);
    rewrite_replace(rest->rewriter, node, scan_add_input(scan, left, known.value->type));
  }
}

/* ---- from one of two numbers ---- */

/* A condition by which the counter begins with the least number, or by which it begins with the next. */
typedef struct FirstStep {
  Value *condition;
  bool taken_when;
} FirstStep;

static bool read_first_step(const Rest *rest, FirstStep *first) {
  const Node *choice = before_loop(rest->loop, &rest->shape, rest->counter)->producer;
  int64_t whens[2] = {0, 1};
  if (!choice || (!node_is(choice, OP_Where) && !node_is(choice, OP_Cast))) return false;
  first->condition = node_input(choice, 0);
  if (first->condition->type.dtype != DTYPE_BOOL || first->condition->type.rank) return false;
  if (node_is(choice, OP_Where)) {
    if (!small_integer(node_input(choice, 1), &whens[1]) || !small_integer(node_input(choice, 2), &whens[0]))
      return false;
  }
  first->taken_when = whens[1] < whens[0];
  return whens[first->taken_when] == rest->least && whens[!first->taken_when] == rest->least + 1;
}

static size_t nodes_within(const Graph *graph) {
  size_t count = graph->node_count;
  FOR_EACH_NODE(node, graph) {
    for (size_t i = 0; i < node->attributes.count && count <= MOST_COPIED; i++) {
      if (node->attributes.items[i].kind == ATTRIBUTE_GRAPH) count += nodes_within(node->attributes.items[i].graph);
    }
  }
  return count;
}

static void give(Graph *branch, const Origin *origin, Value *value) {
  graph_output(branch, graph_node(branch, origin, OP_Identity, &value, 1, &value->type, 1, NULL)->outputs[0]);
}

/* The step of the least number, and what there is without it, of all carried values but the counter. */
static void write_branches(const Rest *rest, Graph *taken, Graph *left, const Origin *origin) {
  const LoopShape *shape = &rest->shape;
  Context *context = rest->rewriter->context;
  Map copies = {0};
  for (size_t i = 0; i < shape->carried; i++) {
    Value *inside = shape->body->inputs.items[shape->first_body_input + i], *before = before_loop(rest->loop, shape, i);
    if (i == rest->counter) {
      const Tensor *least = number_tensor(rest->rewriter, inside->type.dtype, rest->least);
      before = rewrite_constant(rest->rewriter, rest->loop, least, rest->loop->origin);
    }
    *map_slot_pointer(context, &copies, inside) = before;
  }
  copy_nodes(shape->body, taken, NULL, &copies);
  for (size_t i = 0; i < shape->carried; i++) {
    if (i == rest->counter) continue;
    give(taken, origin, copy_of(&copies, shape->body->outputs.items[shape->lead + i]->value));
    give(left, origin, before_loop(rest->loop, shape, i));
  }
}

/* The test alone decides; it tells of the others. */
static void end_by_test(const Rest *rest, Node *condition) {
  Node *test = rest->test->outputs[0]->producer;
  if (condition == test) return;
  if (!condition->outputs[0]->uses) rewrite_hand_over(rest->rewriter, test, condition);
  if (!node_is(condition, OP_And) && !node_is(condition, OP_Identity)) return;
  for (uint32_t i = 0; i < condition->input_count; i++) end_by_test(rest, node_input(condition, i)->producer);
}

/* The loop goes on from the next number, with what the branch leaves. */
static void begin_after(const Rest *rest, Node *choice) {
  const LoopShape *shape = &rest->shape;
  Node *loop = rest->loop, *start = before_loop(loop, shape, rest->counter)->producer;
  DType dtype = before_loop(loop, shape, rest->counter)->type.dtype;
  const Tensor *next = number_tensor(rest->rewriter, dtype, rest->least + 1);
  for (size_t i = 0, result = 0; i < shape->carried; i++) {
    bool counts = i == rest->counter;
    Node *maker = before_loop(loop, shape, i)->producer;
    Value *before = counts ? rewrite_constant(rest->rewriter, loop, next, start->origin) : choice->outputs[result++];
    if (maker) rewrite_hand_over(rest->rewriter, choice, maker);
    use_set(&loop->inputs[shape->first_input + i], before);
  }
  rewrite_drop_unused(rest->rewriter, start, choice);
  Node *condition = shape->body->outputs.items[0]->value->producer;
  use_set(shape->body->outputs.items[0], rest->test->outputs[0]);
  end_by_test(rest, condition);
}

static bool take_first_step(const Rest *rest) {
  const LoopShape *shape = &rest->shape;
  Rewriter *rewriter = rest->rewriter;
  Context *context = rewriter->context;
  FirstStep first;
  if (!read_first_step(rest, &first) || nodes_within(shape->body) > MOST_COPIED) return false;
  Graph *taken = graph_new(rewriter->model, str_intern(context, "first_step"));
  Graph *left = graph_new(rewriter->model, str_intern(context, "no_step"));
  Type *types = arena_new_array(&context->arena, shape->carried, Type);
  size_t count = 0;
  for (size_t i = 0; i < shape->carried; i++) {
    if (i != rest->counter) types[count++] = rest->loop->outputs[i]->type;
  }
  const Origin *origin = REWRITE_ORIGIN(rewriter, rest->loop);
  write_branches(rest, taken, left, origin);
  Node *choice = graph_node(rest->loop->graph, origin, OP_If, &first.condition, 1, types, count, rest->loop);
  node_set_graph(choice, "then_branch", first.taken_when ? taken : left);
  node_set_graph(choice, "else_branch", first.taken_when ? left : taken);
  begin_after(rest, choice);
  rewriter->changed = true;
  return true;
}

static void count_rest(Rewriter *rewriter, Node *loop) {
  Rest rest = {.rewriter = rewriter, .loop = loop, .before = loop};
  LoopShape *shape = &rest.shape;
  Foretold foretold;
  if (!loop_shape(loop, shape) || !is_regular(loop, shape) || !find_rest(&rest) || take_first_step(&rest)) return;
  DType dtype = before_loop(loop, shape, rest.counter)->type.dtype;
  const Tensor *least = number_tensor(rewriter, dtype, rest.least), *end = number_tensor(rewriter, dtype, rest.end);
  if (!foretell_counter(loop, shape, rest.counter, least, rest.rows, &foretold)) return;
  Str name = str_intern(rewriter->context,
                        arena_format(&rewriter->context->arena, "steps_%zu", rewriter->model->step_sizes++));
  rest.steps = dim_symbol(rewriter->context, name);
  rest.first = first_row(&rest);
  Value *inside = shape->body->inputs.items[shape->first_body_input + rest.counter];
  Value *numbers = rest_of(&rest, foretold.carried[rest.counter], loop->origin);
  Node *scan = rest.before = replace_loop(rewriter, loop, shape, numbers);
  value_replace(inside, shape->body->inputs.items[shape->carried]);
  if (scan->outputs[rest.counter]->uses) replace_by_last(rewriter, scan, scan->outputs[rest.counter], end);
  scan_tables(&rest, scan, &foretold);
  scan_drop_carried(scan, rest.counter);
}

static void visit(Rewriter *rewriter, Node *node) {
  if (!node_has(node, LOOPS)) return;
  Node *scan = node_is(node, OP_Scan) ? node : count_loop(rewriter, node);
  if (!scan) {
    count_rest(rewriter, node);
    return;
  }
  scan_counters(rewriter, scan);
  scan_foretold(rewriter, scan);
}

bool count_steps(Model *model) {
  Rewriter rewriter;
  if (!target_is_onnx_runtime(model->target) || (!model->made[OP_Loop] && !model->made[OP_Scan])) return false;
  rewrite_begin(&rewriter, model, __func__);
  rewrite_each_node(&rewriter, visit);
  return rewrite_end(&rewriter);
}
