/* What the steps of a Scan compute of their slices alone is computed for all steps at once, before it.
 *
 * A node on a few numbers takes ONNX Runtime 0.2 us whether they are of one step or of fifty; a slice that Scan hands
 * out takes 0.1. So whatever depends on no carried value leaves the body, and what the rest needs of it is scanned:
 * the random numbers of all steps are one draw. Arrays that are large are left where they are, since their elements
 * cost more than their nodes and all steps together would need memory.
 */
#include "passes/layout/batch_steps.h"

#include <math.h>

#include "passes/loop_body.h"
#include "passes/passes.h"
#include "passes/pattern.h"
#include "passes/rewrite.h"
#include "types/numbers.h"

enum {
  MOST_ELEMENTS = 4096,           /* of one step */
  MOST_ELEMENTS_STACKED = 1 << 18 /* of all steps */
};

static bool is_outside(const Batch *batch, const Value *value) { return !value || value->graph != batch->body; }

static bool is_sliced(const Batch *batch, const Value *value) {
  return value && map_get_pointer(&batch->stacked, value) != NULL;
}

static bool is_small(const Batch *batch, Type type) {
  int64_t count;
  return !type_is_unranked(type) && type.rank + 1 < MAX_RANK && type_count(type, &count) && count > 0 &&
         count <= MOST_ELEMENTS && count <= MOST_ELEMENTS_STACKED / batch->length.constant;
}

/* ---- which nodes ---- */

/* Only the first input changes with the steps. */
static bool follows_first(const Batch *batch, const Node *node) {
  for (uint32_t i = 1; i < node->input_count; i++) {
    if (is_sliced(batch, node_input(node, i))) return false;
  }
  return is_sliced(batch, node_input(node, 0));
}

static bool multiplies_vectors(const Batch *batch, const Node *node) {
  const Value *left = node_input(node, 0), *right = node_input(node, 1);
  return is_sliced(batch, left) && is_sliced(batch, right) && left->type.rank == 1 && right->type.rank == 1 &&
         dtype_is_float(left->type.dtype);
}

static bool multiplies_matrices(const Batch *batch, const Node *node) {
  const Value *left = node_input(node, 0), *right = node_input(node, 1);
  if (multiplies_vectors(batch, node)) return true;
  if (!is_sliced(batch, right)) return right->type.rank == 2;
  return is_sliced(batch, left) && left->type.rank >= 2 && left->type.rank == right->type.rank;
}

static bool slices_one_axis(const Node *node) {
  int64_t axis, start, end, rank = node_input(node, 0)->type.rank;
  return read_axis_slice(node, &axis, &start, &end) && axis < rank && axis >= -rank;
}

static bool is_batched_operator(const Batch *batch, const Node *node) {
  bool flags[MAX_RANK];
  if (node_has(node, ELEMENTWISE | BROADCASTS)) return true;
  if (node_is(node, OP_MatMul)) return multiplies_matrices(batch, node);
  if (node_is(node, OP_Concat)) return true;
  if (!follows_first(batch, node)) return false;
  if (node_has(node, ELEMENTWISE)) return !node_is(node, OP_Identity);
  if (node_has(node, REDUCES)) return node_input(node, 0)->type.rank && reduced_axes(node, flags);
  if (node_is(node, OP_Slice)) return slices_one_axis(node);
  return node_has(node, RENAMES) || node_is(node, OP_Gather) || node_is(node, OP_Transpose) || node_is(node, OP_Expand);
}

bool can_be_batched(const Batch *batch, const Node *node) {
  bool sliced = false;
  if (node->op == OP_NONE || node->output_count != 1 || node_has(node, RANDOM) || node_has(node, HAS_BODY))
    return false;
  for (uint32_t i = 0; i < node->input_count; i++) {
    const Value *input = node_input(node, i);
    if (input && (type_is_unranked(input->type) || input->type.dtype == DTYPE_NONE)) return false;
    if (is_sliced(batch, input)) sliced = true;
    else if (!is_outside(batch, input)) return false;
  }
  return sliced && is_small(batch, node->outputs[0]->type) && is_batched_operator(batch, node);
}

/* ---- all steps of a node ---- */

Type stacked_type(const Batch *batch, Type type, uint32_t rank) {
  Dim dims[MAX_RANK];
  uint32_t missing = rank - type.rank;
  dims[0] = batch->length;
  for (uint32_t i = 0; i < rank; i++) dims[i + 1] = i < missing ? dim_of(1) : type.dims[i - missing];
  return type_make(batch->rewriter->context, type.dtype, dims, rank + 1);
}

static Value *node_before(const Batch *batch, const Node *node, Op op, Type type, Value *const *inputs, size_t count) {
  Rewriter *rewriter = batch->rewriter;
  const Origin *origin = REWRITE_ORIGIN(rewriter, node);
  return graph_node(batch->scan->graph, origin, op, inputs, count, &type, 1, batch->scan)->outputs[0];
}

static Value *sizes_of(const Batch *batch, const Node *node, Type type) {
  int64_t sizes[MAX_RANK];
  for (uint32_t i = 0; i < type.rank; i++) sizes[i] = type.dims[i].constant;
  return rewrite_constant_ints(batch->rewriter, batch->scan, sizes, type.rank, node->origin);
}

static Value *in_shape(const Batch *batch, const Node *node, Op op, Value *value, Type type) {
  Value *inputs[] = {value, sizes_of(batch, node, type)};
  return node_before(batch, node, op, type, inputs, 2);
}

/* A value for all steps, its own axes lined up with the last ones of the rank. What is the same in all steps needs no
 * axis for them to broadcast. */
static Value *lined_up(const Batch *batch, const Node *node, Value *value, uint32_t rank) {
  Value *stacked = is_sliced(batch, value) ? map_get_pointer(&batch->stacked, value) : NULL;
  if (!stacked || value->type.rank == rank) return stacked ? stacked : value;
  return in_shape(batch, node, OP_Reshape, stacked, stacked_type(batch, value->type, rank));
}

static int64_t behind_steps(int64_t axis, uint32_t rank) { return (axis < 0 ? axis + rank : axis) + 1; }

/* Of operators that broadcast, the values of the same rank as the result. */
static Value *batch_elements(const Batch *batch, const Node *node, Type type) {
  uint32_t rank = node->outputs[0]->type.rank;
  Value **inputs = arena_new_array(&batch->rewriter->context->arena, node->input_count, Value *);
  for (uint32_t i = 0; i < node->input_count; i++) inputs[i] = lined_up(batch, node, node_input(node, i), rank);
  Value *result = node_before(batch, node, node->op, type, inputs, node->input_count);
  node_copy_attributes(result->producer, node);
  return result;
}

static Value *batch_concat(const Batch *batch, const Node *node, Type type) {
  uint32_t rank = node->outputs[0]->type.rank;
  Value **inputs = arena_new_array(&batch->rewriter->context->arena, node->input_count, Value *);
  for (uint32_t i = 0; i < node->input_count; i++) {
    Value *part = node_input(node, i);
    bool sliced = is_sliced(batch, part);
    inputs[i] = sliced ? map_get_pointer(&batch->stacked, part)
                       : in_shape(batch, node, OP_Expand, part, stacked_type(batch, part->type, rank));
  }
  Value *result = node_before(batch, node, OP_Concat, type, inputs, node->input_count);
  node_set_int(result->producer, "axis", behind_steps(node_int_or(node, "axis", 0), rank));
  return result;
}

static Value *batch_gather(const Batch *batch, const Node *node, Type type) {
  Value *inputs[] = {lined_up(batch, node, node_input(node, 0), node_input(node, 0)->type.rank), node_input(node, 1)};
  Value *result = node_before(batch, node, OP_Gather, type, inputs, 2);
  node_set_int(result->producer, "axis", behind_steps(node_int_or(node, "axis", 0), node_input(node, 0)->type.rank));
  return result;
}

static Value *batch_slice(const Batch *batch, const Node *node, Type type) {
  int64_t axis, ends[2];
  Value *from = node_input(node, 0), *inputs[4] = {lined_up(batch, node, from, from->type.rank)};
  read_axis_slice(node, &axis, &ends[0], &ends[1]);
  axis = behind_steps(axis, from->type.rank);
  for (int i = 0; i < 2; i++) {
    inputs[i + 1] = rewrite_constant_ints(batch->rewriter, batch->scan, &ends[i], 1, node->origin);
  }
  inputs[3] = rewrite_constant_ints(batch->rewriter, batch->scan, &axis, 1, node->origin);
  return node_before(batch, node, OP_Slice, type, inputs, 4);
}

static Value *batch_transpose(const Batch *batch, const Node *node, Type type) {
  int64_t order[MAX_RANK] = {0};
  uint32_t rank = node->outputs[0]->type.rank;
  const Attribute *permutation = node_attribute(node, "perm");
  for (uint32_t i = 0; i < rank; i++) order[i + 1] = 1 + (permutation ? permutation->integers[i] : rank - 1 - i);
  Value *all = lined_up(batch, node, node_input(node, 0), rank);
  Value *result = node_before(batch, node, OP_Transpose, type, &all, 1);
  node_set_ints(result->producer, "perm", order, rank + 1);
  return result;
}

static Value *batch_reduction(const Batch *batch, const Node *node, Type type) {
  bool flags[MAX_RANK];
  int64_t axes[MAX_RANK];
  size_t count = 0;
  Value *from = node_input(node, 0), *all = lined_up(batch, node, from, from->type.rank);
  reduced_axes(node, flags);
  for (uint32_t i = 0; i < from->type.rank; i++) {
    if (flags[i]) axes[count++] = i + 1;
  }
  bool attribute = !node_input(node, 1) && node_attribute(node, "axes");
  Value *inputs[] = {all,
                     attribute ? NULL : rewrite_constant_ints(batch->rewriter, batch->scan, axes, count, node->origin)};
  Value *result = node_before(batch, node, node->op, type, inputs, attribute ? 1 : 2);
  node_set_int(result->producer, "keepdims", node_int_or(node, "keepdims", 1));
  if (attribute) node_set_ints(result->producer, "axes", axes, count);
  return result;
}

/* Of two vectors a step. */
static Value *batch_dots(const Batch *batch, const Node *node, Type type) {
  int64_t last = 1;
  Value *vectors[] = {map_get_pointer(&batch->stacked, node_input(node, 0)),
                      map_get_pointer(&batch->stacked, node_input(node, 1))};
  Value *axis = rewrite_constant_ints(batch->rewriter, batch->scan, &last, 1, node->origin);
  Value *products = node_before(batch, node, OP_Mul, vectors[0]->type, vectors, 2);
  Value *sums = node_before(batch, node, OP_ReduceSum, type, (Value *[]){products, axis}, 2);
  node_set_int(sums->producer, "keepdims", 0);
  return sums;
}

Value *batch_node(const Batch *batch, const Node *node) {
  Type of_step = node->outputs[0]->type, type = stacked_type(batch, of_step, of_step.rank);
  if (node_has(node, RENAMES)) {
    Value *first = node_input(node, 0);
    return in_shape(batch, node, OP_Reshape, lined_up(batch, node, first, first->type.rank), type);
  }
  if (node_is(node, OP_Expand)) {
    return in_shape(batch, node, OP_Expand, lined_up(batch, node, node_input(node, 0), of_step.rank), type);
  }
  if (node_is(node, OP_Concat)) return batch_concat(batch, node, type);
  if (node_is(node, OP_Gather)) return batch_gather(batch, node, type);
  if (node_is(node, OP_Slice)) return batch_slice(batch, node, type);
  if (node_is(node, OP_Transpose)) return batch_transpose(batch, node, type);
  if (node_has(node, REDUCES)) return batch_reduction(batch, node, type);
  if (!node_is(node, OP_MatMul)) return batch_elements(batch, node, type);
  if (multiplies_vectors(batch, node)) return batch_dots(batch, node, type);
  Value *left = node_input(node, 0), *right = node_input(node, 1);
  Value *factors[] = {lined_up(batch, node, left, left->type.rank), lined_up(batch, node, right, right->type.rank)};
  return node_before(batch, node, OP_MatMul, type, factors, 2);
}

/* ---- the scan ---- */

bool batch_begin(Batch *batch) {
  LoopShape shape;
  Node *scan = batch->scan;
  if (!node_is(scan, OP_Scan) || !loop_shape(scan, &shape) || shape.carried == scan->input_count) return false;
  if (node_attribute(scan, "scan_input_axes") || shape.body->inputs.count != scan->input_count) return false;
  batch->body = shape.body;
  batch->carried = shape.carried;
  Type first = node_input(scan, shape.carried)->type;
  if (type_is_unranked(first) || first.rank == 0 || !dim_is_constant(first.dims[0])) return false;
  batch->length = first.dims[0];
  if (batch->length.constant <= 1 || !scan_runs_one_way(scan)) return false;
  for (size_t i = batch->carried; i < scan->input_count; i++) {
    *map_slot_pointer(batch->rewriter->context, &batch->stacked, batch->body->inputs.items[i]) = node_input(scan, i);
  }
  return true;
}

/* ---- factors ---- */

static bool is_known_before(const Batch *batch, const Value *value) {
  return is_outside(batch, value) || is_sliced(batch, value);
}

/* A constant by which a product is exact: of powers of two near one, as signs are. */
static bool is_exact_factor(const Value *value) {
  enum { MOST_NUMBERS = 64, LARGEST_EXPONENT = 8 };
  const Tensor *tensor = constant_of(value);
  if (!tensor || tensor->name || (tensor->dtype != DTYPE_FLOAT32 && tensor->dtype != DTYPE_FLOAT64)) return false;
  size_t width = dtype_bytes(tensor->dtype, 1), count = tensor->size / width;
  for (size_t i = 0; i < count && count <= MOST_NUMBERS; i++) {
    int exponent;
    double number = number_decode(tensor->dtype, (const char *)tensor->data + i * width);
    frexp(number, &exponent);
    if (!is_power_of_two(number) || exponent > LARGEST_EXPONENT || exponent < -LARGEST_EXPONENT) return false;
  }
  return count && count <= MOST_NUMBERS;
}

/* Which operand of a product is known before the loop while the other is not; -1: none, or both. */
static int known_factor(const Batch *batch, const Node *node) {
  if (!node || !node_is(node, OP_Mul) || node->graph != batch->body) return -1;
  bool first = is_known_before(batch, node_input(node, 0)), second = is_known_before(batch, node_input(node, 1));
  return first == second ? -1 : second;
}

/* (x * a) * b, of which a step computes x alone, is x * (a * b), where one of the two is a constant that rounds
 * nothing: a * b is computed for all steps at once. */
static void regroup(const Batch *batch, Node *node) {
  int known = known_factor(batch, node);
  Node *inner = known < 0 ? NULL : node_input(node, !known)->producer;
  int inner_known = known_factor(batch, inner);
  if (inner_known < 0 || value_only_user(inner->outputs[0]) != node) return;
  Value *a = node_input(inner, (size_t)inner_known), *b = node_input(node, (size_t)known);
  if (!is_sliced(batch, a) && !is_sliced(batch, b)) return;
  if (!is_exact_factor(a) && !is_exact_factor(b)) return;
  if (!type_equal(a->type, b->type) && a->type.rank && b->type.rank) return;
  Type type = a->type.rank ? a->type : b->type;
  Rewriter *rewriter = batch->rewriter;
  const Origin *origin = REWRITE_ORIGIN(rewriter, inner);
  Node *factor = graph_node(batch->body, origin, OP_Mul, (Value *[]){a, b}, 2, &type, 1, inner);
  use_set(&node->inputs[!known], node_input(inner, !inner_known));
  use_set(&node->inputs[known], factor->outputs[0]);
  rewrite_drop_unused(rewriter, inner, factor);
  rewriter->changed = true;
}

static void regroup_factors(const Batch *batch) {
  for (Node *node = batch->body->first, *next; node; node = next) {
    next = node->next;
    regroup(batch, node);
  }
}

bool is_needed_inside(const Value *value, const Map *leaving) {
  for (const Use *use = value->uses; use; use = use->next) {
    if (!use->node || !map_get_pointer(leaving, use->node)) return true;
  }
  return false;
}

/* The nodes that leave, in order; none where as many values would have to be handed in. */
static size_t find_leaving(Batch *batch, Map *leaving, Node **nodes) {
  Context *context = batch->rewriter->context;
  size_t count = 0, handed_in = 0;
  FOR_EACH_NODE(node, batch->body) {
    if (!can_be_batched(batch, node)) continue;
    *map_slot_pointer(context, &batch->stacked, node->outputs[0]) = node->outputs[0]; /* until it has left */
    *map_slot_pointer(context, leaving, node) = node;
    nodes[count++] = node;
  }
  for (size_t i = 0; i < count; i++) handed_in += is_needed_inside(nodes[i]->outputs[0], leaving);
  return handed_in <= count ? count : 0;
}

/* The uses of a value that left become those of a slice; an output of the body needs a node. */
static void hand_in(const Batch *batch, Value *old, Value *stacked) {
  Node *producer = old->producer;
  Value *slice = scan_add_input(batch->scan, stacked, old->type);
  if (value_is_output(old)) {
    const Origin *origin = REWRITE_ORIGIN(batch->rewriter, producer);
    Node *identity = graph_node(batch->body, origin, OP_Identity, &slice, 1, &old->type, 1, NULL);
    for (Use *use = old->uses, *next; use; use = next) {
      next = use->next;
      if (!use->node) use_set(use, identity->outputs[0]);
    }
  }
  value_replace(old, slice);
}

static void visit(Rewriter *rewriter, Node *node) {
  Batch batch = {.rewriter = rewriter, .scan = node};
  Map leaving = {0};
  if (!batch_begin(&batch)) return;
  regroup_factors(&batch);
  Node **nodes = arena_new_array(&rewriter->context->arena, batch.body->node_count, Node *);
  size_t count = find_leaving(&batch, &leaving, nodes);
  for (size_t i = 0; i < count; i++) {
    Value *all = batch_node(&batch, nodes[i]);
    *map_slot_pointer(rewriter->context, &batch.stacked, nodes[i]->outputs[0]) = all;
    rewrite_hand_over(rewriter, all->producer, nodes[i]);
  }
  for (size_t i = 0; i < count; i++) {
    Value *value = nodes[i]->outputs[0];
    if (is_needed_inside(value, &leaving)) hand_in(&batch, value, map_get_pointer(&batch.stacked, value));
  }
  for (size_t i = count; i--;) node_remove(nodes[i]);
  rewriter->changed = rewriter->changed || count;
}

bool batch_steps(Model *model) {
  Rewriter rewriter;
  if (!model->made[OP_Scan]) return false;
  rewrite_begin(&rewriter, model, __func__);
  rewrite_each_node(&rewriter, visit);
  return rewrite_end(&rewriter);
}
