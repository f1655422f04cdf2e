/* Numbers that every step multiplies by a constant and adds to are RNN: x' = a x + u, with u known before the loop.
 *
 * Moving averages, discounted sums, filters of first order and equations with a constant rate are such loops, however
 * they are written: x + 0.1 * (u - x), 0.9 * x + 0.1 * u. RNN without an activation (Affine, 1 and 0) takes ONNX
 * Runtime 12 us for 100 steps, a Scan with two nodes 60. Each number is an element of the batch with a state of its
 * own, so that an infinite one does not spoil others.
 *
 * A factor that float32 cannot hold, as 1 - 0.1, would be off by half a unit in its last place in every step, and the
 * result by ten times that. It is kept as two numbers, 1 and -0.1, and the state twice: 2,000 steps at rates of 0.5 to
 * 0.05 are off by 0.8 to 1.5 times as much as JAX's own, and those at smaller rates, which are off by more, stay a
 * loop. Where the program adds
 * and subtracts the state, an infinite one becomes NaN; there the two have opposite signs.
 */
#include <math.h>

#include "onnx/facts/schema.h"
#include "passes/layout/batch_steps.h"
#include "passes/loop_body.h"
#include "passes/pattern.h"
#include "target/target.h"

enum {
  FEWEST_STEPS = 8,
  MOST_NUMBERS = 64, /* that a step carries on: of more, the arithmetic counts */
  DEEPEST = 6,       /* operators between a state and the next */
};

/* Of a factor in two numbers, how far it is from one: two roundings a step would add up to more than JAX's. */
static const double SMALLEST_RATE = 0.0499;

typedef struct Recurrence {
  Batch *batch;
  Value *state, *next;
  Node *made[1 << DEEPEST]; /* operators that the RNN stands for */
  size_t made_count;
  bool is_added, is_subtracted; /* the state, somewhere */
  bool is_trial;                /* nothing is emitted yet */
} Recurrence;

/* factor * state + rest; rest is of all steps, NULL for none. */
typedef struct Linear {
  double factor;
  Value *rest;
} Linear;

/* A node before the Scan; in a trial, one of the operands that vary with the steps if one does. */
static Value *put(const Recurrence *recurrence, Op op, Type type, Value *first, Value *second) {
  if (recurrence->is_trial) return second && second->type.rank > 0 ? second : first;
  Node *scan = recurrence->batch->scan;
  Value *inputs[] = {first, second};
  const Origin *origin = REWRITE_ORIGIN(recurrence->batch->rewriter, scan);
  return graph_node(scan->graph, origin, op, inputs, second ? 2 : 1, &type, 1, scan)->outputs[0];
}

static Type type_of_all(const Recurrence *recurrence) {
  Type step = recurrence->state->type;
  return stacked_type(recurrence->batch, step, step.rank);
}

/* What every step is given, a slice of its own or the same for all. */
static bool read_given(const Recurrence *recurrence, Value *value, Linear *linear) {
  const Batch *batch = recurrence->batch;
  Value *all = value->graph == batch->body ? map_get_pointer(&batch->stacked, value) : NULL;
  *linear = (Linear){.rest = all ? all : value};
  if (value->graph == batch->body && !all) return false;
  return value->type.dtype == DTYPE_FLOAT32 &&
         (all ? type_equal(value->type, recurrence->state->type) : value->type.rank == 0);
}

/* The sum or difference of what is given. */
static Value *joined(const Recurrence *recurrence, Op op, Value *first, Value *second) {
  if (!second) return first;
  if (!first) return op == OP_Add ? second : put(recurrence, OP_Neg, second->type, second, NULL);
  bool all = first->type.rank > 0 || second->type.rank > 0;
  return put(recurrence, op, all ? type_of_all(recurrence) : first->type, first, second);
}

static bool read_linear(Recurrence *recurrence, Value *value, double sign, int depth, Linear *linear);

static bool read_sum(Recurrence *recurrence, const Node *node, double sign, int depth, Linear *linear) {
  Linear other;
  double turned = node_is(node, OP_Sub) ? -1 : 1;
  if (!read_linear(recurrence, node_input(node, 0), sign, depth - 1, linear)) return false;
  if (!read_linear(recurrence, node_input(node, 1), turned * sign, depth - 1, &other)) return false;
  linear->factor += turned * other.factor;
  linear->rest = joined(recurrence, node->op, linear->rest, other.rest);
  return true;
}

/* A multiple by a number. */
static bool read_multiple(Recurrence *recurrence, const Node *node, double sign, int depth, Linear *linear) {
  bool divides = node_is(node, OP_Div);
  for (size_t i = 0; i < 2; i++) {
    double number;
    Value *by = node_input(node, i);
    if ((divides && i == 0) || by->type.rank > 0 || !uniform_number(by, &number)) continue;
    if (!isfinite(number) || number == 0) return false;
    if (!read_linear(recurrence, node_input(node, 1 - i), number < 0 ? -sign : sign, depth - 1, linear)) return false;
    linear->factor = divides ? linear->factor / number : linear->factor * number;
    if (linear->rest) linear->rest = put(recurrence, node->op, linear->rest->type, linear->rest, by);
    return true;
  }
  return false;
}

/* sign: of the state in the whole. */
static bool read_linear(Recurrence *recurrence, Value *value, double sign, int depth, Linear *linear) {
  Node *node = value->producer;
  if (value == recurrence->state) {
    *linear = (Linear){.factor = 1};
    if (sign > 0) recurrence->is_added = true;
    else recurrence->is_subtracted = true;
    return true;
  }
  if (read_given(recurrence, value, linear)) return true;
  if (!node || node->graph != recurrence->batch->body || depth == 0) return false;
  if (!type_equal(value->type, recurrence->state->type)) return false;
  recurrence->made[recurrence->made_count++] = node;
  switch (node->op) {
    case OP_Add:
    case OP_Sub: return read_sum(recurrence, node, sign, depth, linear);
    case OP_Mul:
    case OP_Div: return read_multiple(recurrence, node, sign, depth, linear);
    case OP_Neg:
      if (!read_linear(recurrence, node_input(node, 0), -sign, depth - 1, linear)) return false;
      linear->factor = -linear->factor;
      if (linear->rest) linear->rest = put(recurrence, OP_Neg, linear->rest->type, linear->rest, NULL);
      return true;
    default: return false;
  }
}

/* ---- the operator ---- */

/* The factor in one or two numbers; how many, or 0 if neither would be as accurate. The first of two is a power of two,
 * by which products are exact. */
static int64_t split_factor(const Recurrence *recurrence, double factor, float parts[2]) {
  int exponent;
  bool cancels = recurrence->is_added && recurrence->is_subtracted;
  double below = copysign(ldexp(1, (frexp(factor, &exponent), exponent - 1)), factor);
  parts[0] = (float)factor;
  if (!cancels && (double)parts[0] == factor) return 1;
  parts[0] = (float)(cancels ? 2 * below : below);
  parts[1] = (float)(factor - (double)parts[0]);
  if (fabs(fabs(factor) - 1) < SMALLEST_RATE) return 0;
  return parts[1] == 0 ? 1 : 2;
}

static Value *weights(const Recurrence *recurrence, int64_t rows, int64_t columns, const float *row) {
  Context *context = recurrence->batch->rewriter->context;
  const int64_t dims[] = {1, rows, columns};
  float *data = arena_new_array(&context->arena, (size_t)(rows * columns), float);
  for (int64_t i = 0; i < rows * columns; i++) data[i] = row[i % columns];
  Tensor *tensor = arena_new(&context->arena, Tensor);
  *tensor = (Tensor){.dtype = DTYPE_FLOAT32,
                     .rank = 3,
                     .dims = arena_copy(&context->arena, dims, sizeof dims),
                     .data = data,
                     .size = (size_t)(rows * columns) * sizeof(float)};
  Node *scan = recurrence->batch->scan;
  return rewrite_constant(recurrence->batch->rewriter, scan, tensor, scan->origin);
}

static Value *reshaped(const Recurrence *recurrence, Value *value, const int64_t *dims, uint32_t rank) {
  Batch *batch = recurrence->batch;
  Value *shape = rewrite_constant_ints(batch->rewriter, batch->scan, dims, rank, batch->scan->origin);
  Type type = type_constant(batch->rewriter->context, DTYPE_FLOAT32, dims, rank);
  return put(recurrence, OP_Reshape, type, value, shape);
}

/* What the steps begin with, once for each part of the factor; NULL for zeros. */
static Value *beginning(const Recurrence *recurrence, Value *start, int64_t count, int64_t width) {
  Batch *batch = recurrence->batch;
  const int64_t dims[] = {1, count, 1}, wide[] = {1, count, width};
  if (is_uniform_number(start, 0)) return NULL;
  Value *result = reshaped(recurrence, start, dims, 3);
  if (width == 1) return result;
  Value *shape = rewrite_constant_ints(batch->rewriter, batch->scan, wide, 3, batch->scan->origin);
  return put(recurrence, OP_Expand, type_constant(batch->rewriter->context, DTYPE_FLOAT32, wide, 3), result, shape);
}

/* The states after all steps, [steps, 1, numbers, width]. */
static Value *emit_steps(const Recurrence *recurrence, const Linear *linear, Value *start, int64_t count) {
  static const float alpha = 1, beta = 0;
  Batch *batch = recurrence->batch;
  Context *context = batch->rewriter->context;
  float parts[2];
  int64_t width = split_factor(recurrence, linear->factor, parts), steps = batch->length.constant;
  const int64_t given[] = {steps, count, 1}, states[] = {steps, 1, count, width};
  Type type = type_constant(context, DTYPE_FLOAT32, states, 4);
  Value *inputs[] = {reshaped(recurrence, linear->rest, given, 3),
                     weights(recurrence, width, 1, &alpha),
                     weights(recurrence, width, width, parts),
                     NULL,
                     NULL,
                     beginning(recurrence, start, count, width)};
  const Origin *origin = REWRITE_ORIGIN(batch->rewriter, batch->scan);
  Node *node = graph_node(batch->scan->graph, origin, OP_RNN, inputs, inputs[5] ? 6 : 3, &type, 1, batch->scan);
  Str activation = str_intern(context, "Affine");
  node_set_strings(node, "activations", &activation, 1);
  node_set_floats(node, "activation_alpha", &alpha, 1);
  node_set_floats(node, "activation_beta", &beta, 1);
  node_set_int(node, "hidden_size", width);
  if (scan_runs_backwards(batch->scan)) node_set_string(node, "direction", "reverse");
  for (size_t i = 0; i < recurrence->made_count; i++) rewrite_hand_over(batch->rewriter, node, recurrence->made[i]);
  return node->outputs[0];
}

/* One of each number's states, in the shape of what is scanned. */
static Value *as_scanned(const Recurrence *recurrence, Value *states) {
  Type all = type_of_all(recurrence);
  int64_t dims[MAX_RANK];
  for (uint32_t i = 0; i < all.rank; i++) dims[i] = all.dims[i].constant;
  if (!dim_is(states->type.dims[3], 1)) {
    Batch *batch = recurrence->batch;
    Value *first = rewrite_constant_number(batch->rewriter, batch->scan, DTYPE_INT64, 0, batch->scan->origin);
    Type type = {.dtype = DTYPE_FLOAT32, .rank = 3, .dims = states->type.dims};
    states = put(recurrence, OP_Gather, type, states, first);
    node_set_int(states->producer, "axis", 3);
  }
  return reshaped(recurrence, states, dims, all.rank);
}

/* What the loop ends with is the last of all states. */
static void replace_last(const Recurrence *recurrence, Value *after, Value *all) {
  Batch *batch = recurrence->batch;
  if (!after || !after->uses) return;
  int64_t place = scan_runs_backwards(batch->scan) ? 0 : batch->length.constant - 1;
  Value *index = rewrite_constant_number(batch->rewriter, batch->scan, DTYPE_INT64, (double)place, batch->scan->origin);
  Value *last = put(recurrence, OP_Gather, after->type, all, index);
  node_set_int(last->producer, "axis", 0);
  rewrite_take_name(last, after);
  value_replace(after, last);
}

static void fuse_carried(Batch *batch, size_t index) {
  Recurrence recurrence = {.batch = batch, .state = batch->body->inputs.items[index]};
  recurrence.next = behind_identities(batch->body->outputs.items[index]->value);
  Type type = recurrence.state->type;
  Linear linear;
  int64_t count;
  if (type.dtype != DTYPE_FLOAT32 || !type_count(type, &count) || count == 0 || count > MOST_NUMBERS) return;
  if (recurrence.next->graph != batch->body || map_get_pointer(&batch->stacked, recurrence.next)) return;
  if (recurrence.next == recurrence.state || !type_equal(recurrence.next->type, type)) return;
  recurrence.is_trial = true;
  if (!read_linear(&recurrence, recurrence.next, 1, DEEPEST, &linear)) return;
  double size = fabs(linear.factor);
  float parts[2];
  if (!linear.rest || linear.rest->type.rank == 0 || !(size > 1e-30 && size < 1e30)) return;
  if (!split_factor(&recurrence, linear.factor, parts)) return;
  recurrence.is_trial = false;
  recurrence.made_count = 0;
  read_linear(&recurrence, recurrence.next, 1, DEEPEST, &linear);
  Value *states = emit_steps(&recurrence, &linear, node_input(batch->scan, index), count);
  Value *all = as_scanned(&recurrence, states);
  replace_last(&recurrence, batch->scan->outputs[index], all);
  value_replace(recurrence.next, scan_add_input(batch->scan, all, type));
  batch->rewriter->changed = true;
}

static void visit(Rewriter *rewriter, Node *node) {
  Batch batch = {.rewriter = rewriter, .scan = node};
  if (target_has(rewriter->model->target, QUIRK_RECURRENT_IS_NOT_READ)) return;
  if (!batch_begin(&batch) || batch.length.constant < FEWEST_STEPS) return;
  for (size_t i = 0; i < batch.carried; i++) fuse_carried(&batch, i);
}

bool scan_linear(Model *model) {
  Rewriter rewriter;
  if (!target_is_onnx_runtime(model->target)) return false;
  rewrite_begin(&rewriter, model, __func__);
  rewrite_each_node(&rewriter, visit);
  return rewrite_end(&rewriter);
}
