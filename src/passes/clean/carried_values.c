/* What loops carry from step to step for nothing.
 *
 * A value that every step hands on as it got it, whichever way the step goes, is what it was before the loop: the body
 * can see it there. Libraries that keep their state in one structure carry much of that, and set some of it to what it
 * has been from the start. Slices that are put together again are the array they were taken from. And two values that
 * begin alike and are changed alike are one value: a counter of the steps beside the caller's own, a condition that is
 * kept beside the one that ends the loop. What must be so for the loop to go on is so in every step.
 */
#include "onnx/graph/same.h"
#include "passes/loop_body.h"
#include "passes/passes.h"
#include "passes/rewrite.h"

enum {
  DEEPEST = 3,    /* operators or choices that are looked through: the work stays linear */
  MOST_TESTS = 6, /* one after the other, that decide whether a loop goes on */
};

/* Of one carried value. */
typedef struct Carried {
  Value *before;       /* the loop */
  Value *inside;       /* at the beginning of a step */
  const Value *result; /* at its end */
} Carried;

static Carried carried_at(const Node *loop, const LoopShape *shape, size_t index) {
  return (Carried){.before = node_input(loop, shape->first_input + index),
                   .inside = shape->body->inputs.items[shape->first_body_input + index],
                   .result = behind_identities(shape->body->outputs.items[shape->lead + index]->value)};
}

static bool is_same(const Value *a, const Value *b) { return a == b || are_same_small(a, b); }

/* ---- what does not change ---- */

static bool is_unchanged(const Carried *carried, Value *now, int depth);

static bool branch_leaves(const Carried *carried, const Node *choice, const char *branch, size_t output, int depth) {
  const Graph *graph = subgraph_of(choice, branch);
  return graph && output < graph->outputs.count && is_unchanged(carried, graph->outputs.items[output]->value, depth);
}

static bool operand_leaves(const Carried *carried, const Node *choice, size_t operand, int depth) {
  Value *value = node_input(choice, operand);
  return value && type_equal(value->type, choice->outputs[0]->type) && is_unchanged(carried, value, depth);
}

/* If it was at the beginning of the step what it was before the loop, is it that now? */
static bool is_unchanged(const Carried *carried, Value *now, int depth) {
  now = behind_identities(now);
  const Node *choice = now->producer;
  if (now == carried->inside || is_same(now, carried->before)) return true;
  if (!choice || depth == 0) return false;
  if (node_is(choice, OP_Where)) {
    return operand_leaves(carried, choice, 1, depth - 1) && operand_leaves(carried, choice, 2, depth - 1);
  }
  return node_is(choice, OP_If) && branch_leaves(carried, choice, "then_branch", now->output_index, depth - 1) &&
         branch_leaves(carried, choice, "else_branch", now->output_index, depth - 1);
}

/* The value of the graph around the loop instead of the loop's result. An output of the graph needs a node of its own;
 * others get one that tells of the loop, until no-ops go. */
static void replace_result(Node *loop, Value *result, Value *source) {
  Model *model = loop->graph->model;
  if (result->uses) {
    const Origin *origin = origin_with_emitter(model->provenance, loop->origin, PASS_EMITTER(model));
    source = rewrite_copy_for(result, source, loop, origin);
  }
  value_replace(result, source);
}

static bool release_unchanged(Node *loop) {
  LoopShape shape;
  bool changed = false;
  if (!loop_shape(loop, &shape)) return false;
  for (size_t i = shape.carried; i-- && loop->output_count > 1;) {
    Carried carried = carried_at(loop, &shape, i);
    if (!carried.before || !type_equal(carried.before->type, carried.inside->type)) continue;
    if (!is_unchanged(&carried, shape.body->outputs.items[shape.lead + i]->value, DEEPEST)) continue;
    if (loop->outputs[i]) replace_result(loop, loop->outputs[i], carried.before);
    value_replace(carried.inside, carried.before);
    loop_drop_carried(loop, &shape, i);
    changed = true;
  }
  return changed;
}

/* ---- what is carried twice ---- */

/* Are they computed alike, if both were the same at the beginning of the step? */
static bool change_alike(const Carried *one, const Carried *other, const Value *a, const Value *b, int depth) {
  if (is_same(a, b) || (a == one->inside && b == other->inside)) return true;
  const Node *left = a->producer, *right = b->producer;
  if (!left || !right || depth == 0 || left->op != right->op || left->op == OP_NONE) return false;
  if (left->graph != right->graph || node_has(left, RANDOM) || node_has_subgraph(left)) return false;
  if (left->input_count != right->input_count || left->output_count != 1 || right->output_count != 1) return false;
  if (!same_attributes(left, right) || !type_equal(a->type, b->type)) return false;
  for (uint32_t i = 0; i < left->input_count; i++) {
    const Value *first = node_input(left, i), *second = node_input(right, i);
    if (!first || !second || !change_alike(one, other, first, second, depth - 1)) return false;
  }
  return true;
}

static bool are_alike(const Carried *one, const Carried *other) {
  return one->before && other->before && is_same(one->before, other->before) &&
         type_equal(one->inside->type, other->inside->type) && type_equal(one->before->type, one->inside->type) &&
         change_alike(one, other, one->result, other->result, DEEPEST);
}

/* The steps look at the first of two alike. Once what computes them is one as well (common_nodes.c), the second goes.
 */
static bool join_two(Node *loop, const LoopShape *shape, size_t first, size_t second) {
  Carried one = carried_at(loop, shape, first), other = carried_at(loop, shape, second);
  if (!are_alike(&one, &other)) return false;
  bool changed = other.inside->uses != NULL;
  value_replace(other.inside, one.inside);
  if (one.result != other.result || !loop->outputs[first] || !loop->outputs[second]) return changed;
  Value *gone = loop->outputs[second];
  if (value_is_output(gone)) return changed;
  value_replace(gone, loop->outputs[first]);
  loop_drop_carried(loop, shape, second);
  return true;
}

static bool join_alike_carried(Node *loop) {
  LoopShape shape;
  bool changed = false;
  if (!loop_shape(loop, &shape)) return false;
  for (size_t second = shape.carried; second-- > 1;) {
    for (size_t first = 0; first < second; first++) {
      size_t count = loop->output_count;
      changed = join_two(loop, &shape, first, second) || changed;
      if (loop->output_count < count) break;
    }
  }
  return changed;
}

/* ---- what the condition says ---- */

/* Is there another step only where the value is the constant? */
static bool goes_on_with(Value *go_on, const Value *value, const Value *constant, int depth) {
  go_on = behind_identities(go_on);
  const Node *test = go_on->producer;
  int64_t wanted, number;
  if (go_on == value) return is_boolean(constant, true);
  if (!test || depth == 0) return false;
  if (node_is(test, OP_And)) {
    return goes_on_with(node_input(test, 0), value, constant, depth - 1) ||
           goes_on_with(node_input(test, 1), value, constant, depth - 1);
  }
  if (behind_identities(node_input(test, 0)) != value) return false;
  if (node_is(test, OP_Not)) return is_boolean(constant, false);
  return node_is(test, OP_Equal) && small_integer(node_input(test, 1), &wanted) && small_integer(constant, &number) &&
         number == wanted;
}

/* A loop that goes on as long as nothing is wrong or done finds in every step that nothing is. */
static bool look_at_condition(Node *loop) {
  LoopShape shape;
  bool changed = false;
  if (!node_is(loop, OP_Loop) || !loop_shape(loop, &shape)) return false;
  for (size_t i = 0; i < shape.carried; i++) {
    Carried carried = carried_at(loop, &shape, i);
    if (!carried.inside->uses || !carried.before || !type_equal(carried.before->type, carried.inside->type)) continue;
    if (!carried.before->tensor || carried.before->type.rank) continue;
    if (!goes_on_with(shape.body->outputs.items[0]->value, carried.result, carried.before, MOST_TESTS)) continue;
    value_replace(carried.inside, carried.before);
    changed = true;
  }
  return changed;
}

/* ---- what is only passed on ---- */

/* The array whose slices are put together as they were taken; or NULL. */
static Value *taken_from(const Node *scan, const LoopShape *shape, size_t output) {
  const Value *slice = behind_identities(shape->body->outputs.items[output]->value);
  for (size_t i = shape->carried; i < scan->input_count && i < shape->body->inputs.count; i++) {
    Value *array = node_input(scan, i);
    if (shape->body->inputs.items[i] != slice || !array || !type_equal(array->type, scan->outputs[output]->type))
      continue;
    bool same_way = node_int_at(scan, "scan_input_directions", i - shape->carried) ==
                    node_int_at(scan, "scan_output_directions", output - shape->carried);
    if (same_way) return array;
  }
  return NULL;
}

static bool release_slices(Node *scan) {
  LoopShape shape;
  bool changed = false;
  if (!node_is(scan, OP_Scan) || !loop_shape(scan, &shape)) return false;
  if (node_attribute(scan, "scan_input_axes") || node_attribute(scan, "scan_output_axes")) return false;
  for (size_t i = shape.carried; i < scan->output_count; i++) {
    if (!scan->outputs[i] || !scan->outputs[i]->uses) continue;
    Value *array = taken_from(scan, &shape, i);
    if (array) replace_result(scan, scan->outputs[i], array);
    changed = changed || array;
  }
  return changed;
}

static void release_of(Graph *graph, void *data) {
  bool *changed = data;
  Node *loop = graph->owner;
  if (!loop || !node_has(loop, LOOPS)) return;
  *changed = release_unchanged(loop) || *changed;
  *changed = join_alike_carried(loop) || *changed;
  *changed = look_at_condition(loop) || *changed;
  *changed = release_slices(loop) || *changed;
}

bool release_carried(Model *model) {
  bool changed = false;
  model_each_graph(model, release_of, &changed);
  return changed;
}
