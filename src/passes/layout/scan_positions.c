/* Arrays that a step reads or writes at its own number are slices and stacked results of the Scan.
 *
 * A loop that counts, reads row t of an array and writes row t of another is a scan over the one that stacks the other.
 * Written out, every step looks up and copies: the rows of all steps are carried. As a Scan nothing is carried but the
 * state, and recurrent cells are found in it (fuse_recurrent.c). Rows that are counted down make a Scan that runs
 * backwards. Each row is written once, so that what the array held before is of no interest; a step that reads it keeps
 * it carried.
 */
#include "base/bytes.h"
#include "passes/layout/permute_axes.h"
#include "passes/loop_body.h"
#include "passes/passes.h"
#include "passes/rewrite.h"
#include "types/numbers.h"

enum { MOST_BYTES = 1 << 20 /* of the numbers of all steps */ };

typedef struct Steps {
  Rewriter *rewriter;
  Node *scan;
  Graph *body;
  size_t carried;
  int64_t length;
} Steps;

/* What numbers the steps have, along the array that they are slices of. */
typedef enum Order { NO_ORDER, IN_ORDER, REVERSED } Order;

static bool read_steps(Steps *steps) {
  LoopShape shape;
  Node *scan = steps->scan;
  if (!node_is(scan, OP_Scan) || !loop_shape(scan, &shape) || !scan_runs_one_way(scan)) return false;
  if (shape.carried == scan->input_count || shape.body->inputs.count != scan->input_count) return false;
  if (shape.body->outputs.count != scan->output_count || node_attribute(scan, "scan_output_axes")) return false;
  for (uint32_t i = 0; i < scan->output_count; i++) {
    if (!scan->outputs[i]) return false;
  }
  Type type = node_input(scan, shape.carried)->type;
  if (type_is_unranked(type) || type.rank == 0 || !dim_is_constant(type.dims[0])) return false;
  steps->body = shape.body;
  steps->carried = shape.carried;
  steps->length = type.dims[0].constant;
  return steps->length > 0;
}

/* The constant that the body's input is a slice of; NULL: it is no such slice. */
static const Tensor *slices_of(const Steps *steps, const Value *value) {
  for (size_t i = steps->carried; i < steps->body->inputs.count; i++) {
    if (steps->body->inputs.items[i] != value) continue;
    const Tensor *tensor = constant_of(node_input(steps->scan, i));
    return tensor && tensor->size <= MOST_BYTES ? tensor : NULL;
  }
  return NULL;
}

static Order order_of(const Steps *steps, const Value *value) {
  const Tensor *tensor = slices_of(steps, value);
  if (!tensor || (tensor->dtype != DTYPE_INT32 && tensor->dtype != DTYPE_INT64)) return NO_ORDER;
  size_t width = dtype_bytes(tensor->dtype, 1);
  if (tensor->size != width * (size_t)steps->length) return NO_ORDER;
  bool in_order = true, reversed = true;
  for (int64_t i = 0; i < steps->length; i++) {
    int64_t number = number_decode_int(tensor->dtype, (const char *)tensor->data + (size_t)i * width);
    in_order = in_order && number == i;
    reversed = reversed && number == steps->length - 1 - i;
  }
  return in_order ? IN_ORDER : reversed ? REVERSED : NO_ORDER;
}

/* ---- slices ---- */

/* Slices that are the same in every step are a constant. */
static void join_same_slices(const Steps *steps) {
  Rewriter *rewriter = steps->rewriter;
  for (size_t i = steps->carried; i < steps->body->inputs.count; i++) {
    Value *slice = steps->body->inputs.items[i];
    const Tensor *all = slice->uses ? slices_of(steps, slice) : NULL;
    if (!all || all->rank == 0 || all->size == 0) continue;
    size_t size = all->size / (size_t)steps->length;
    bool same = true;
    for (int64_t k = 1; k < steps->length && same; k++)
      same = same_bytes(all->data, (const char *)all->data + (size_t)k * size, size);
    if (!same || dtype_bits(all->dtype) < 8) continue;
    Tensor *one = arena_copy(&rewriter->context->arena, all, sizeof *all);
    one->rank = all->rank - 1;
    one->dims = all->dims + 1;
    one->size = size;
    one->name = NULL;
    one->made_of = names_with(rewriter->context, NULL, all);
    value_replace(slice, rewrite_constant(rewriter, steps->scan, one, node_input(steps->scan, i)->origin));
    rewriter->changed = true;
  }
}

/* Is it a row, at the number of the step, of an array from outside? */
static Order row_order(const Steps *steps, const Node *node) {
  const Value *x = node_input(node, 0), *index = node_input(node, 1);
  if (!node_is(node, OP_Gather) || x->graph == steps->body || index->type.rank) return NO_ORDER;
  if (type_is_unranked(x->type) || x->type.rank == 0 || x->type.rank > MOST_PERMUTED) return NO_ORDER;
  int64_t axis = node_int_or(node, "axis", 0);
  if (axis < 0) axis += x->type.rank;
  return dim_is(x->type.dims[axis], steps->length) ? order_of(steps, index) : NO_ORDER;
}

/* The array with this axis first. */
static Value *with_axis_first(const Steps *steps, const Node *node, Value *x, int64_t axis) {
  if (axis == 0) return x;
  AxisOrder order = {.rank = x->type.rank, .from = {axis}};
  for (int64_t i = 0, k = 1; i < x->type.rank; i++) {
    if (i != axis) order.from[k++] = i;
  }
  Rewriter *rewriter = steps->rewriter;
  const Origin *origin = REWRITE_ORIGIN(rewriter, node);
  Type type = order_type(rewriter->context, x->type, &order);
  Node *transpose = graph_node(steps->scan->graph, origin, OP_Transpose, &x, 1, &type, 1, steps->scan);
  node_set_ints(transpose, "perm", order.from, order.rank);
  return transpose->outputs[0];
}

static void scan_row(const Steps *steps, Node *node) {
  Value *x = node_input(node, 0), *row = node->outputs[0];
  int64_t axis = node_int_or(node, "axis", 0);
  if (axis < 0) axis += x->type.rank;
  Value *slice = scan_add_input(steps->scan, with_axis_first(steps, node, x, axis), row->type);
  if (value_is_output(row)) slice = rewrite_copy_for(row, slice, node, REWRITE_ORIGIN(steps->rewriter, node));
  value_replace(row, slice);
  rewrite_hand_over(steps->rewriter, steps->scan, node);
  node_remove(node);
  steps->rewriter->changed = true;
}

/* ---- results ---- */

/* A row that a step writes into a carried array, at its number along an axis. */
typedef struct Write {
  Node *node; /* ScatterND */
  uint32_t axis;
  Order order;
  Type row; /* the array's without the axis */
} Write;

/* Are the indices of a step all those along the axes before, in order, and behind them this number? */
static bool is_everywhere_at(Type type, const char *indices, size_t count, uint32_t axis, int64_t number) {
  for (size_t k = 0; k < count; k++, indices += (axis + 1) * sizeof number) {
    size_t rest = k;
    for (uint32_t i = axis; i-- > 0;) {
      size_t size = (size_t)type.dims[i].constant;
      if (number_decode_int(DTYPE_INT64, indices + i * sizeof number) != (int64_t)(rest % size)) return false;
      rest /= size;
    }
    if (number_decode_int(DTYPE_INT64, indices + axis * sizeof number) != number) return false;
  }
  return true;
}

/* Of indices, whose last axis has those of one place; sets the axis that the number of the step is along. */
static Order order_of_places(const Steps *steps, const Value *indices, Type type, uint32_t *axis) {
  const Tensor *tensor = slices_of(steps, indices);
  if (!tensor || tensor->dtype != DTYPE_INT64 || tensor->rank < 2) return NO_ORDER;
  int64_t depth = tensor->dims[tensor->rank - 1];
  size_t count = 1;
  if (depth < 1 || depth > type.rank || !dim_is(type.dims[depth - 1], steps->length)) return NO_ORDER;
  *axis = (uint32_t)depth - 1;
  for (uint32_t i = 0; i < *axis; i++) {
    if (!dim_is_constant(type.dims[i]) || type.dims[i].constant < 1 || type.dims[i].constant > MOST_BYTES)
      return NO_ORDER;
    count *= (size_t)type.dims[i].constant;
    if (count > MOST_BYTES) return NO_ORDER;
  }
  size_t step = count * (size_t)depth;
  if (tensor->size != step * sizeof(int64_t) * (size_t)steps->length) return NO_ORDER;
  bool in_order = true, reversed = true;
  for (int64_t i = 0; i < steps->length && (in_order || reversed); i++) {
    const char *at = (const char *)tensor->data + (size_t)i * step * sizeof(int64_t);
    in_order = in_order && is_everywhere_at(type, at, count, *axis, i);
    reversed = reversed && is_everywhere_at(type, at, count, *axis, steps->length - 1 - i);
  }
  return in_order ? IN_ORDER : reversed ? REVERSED : NO_ORDER;
}

static bool same_count(Type a, Type b) {
  int64_t one, other;
  return type_count(a, &one) && type_count(b, &other) && one == other;
}

/* Is it the row, to which axes of size 1 were given? */
static bool is_row(const Steps *steps, const Value *update, Type row) {
  const Node *node = update->producer;
  return node && node->graph == steps->body && node_has(node, RENAMES) && type_equal(node_input(node, 0)->type, row);
}

/* The axes of size 1 that the update has more than the row; false: it differs elsewhere. */
static bool axes_more(Type update, Type row, int64_t axes[MAX_RANK], size_t *count) {
  uint32_t at = 0;
  *count = 0;
  if (type_is_unranked(update) || update.rank > MAX_RANK) return false;
  for (uint32_t i = 0; i < update.rank; i++) {
    if (at < row.rank && dim_equal(update.dims[i], row.dims[at])) at++;
    else if (dim_is(update.dims[i], 1)) axes[(*count)++] = i;
    else return false;
  }
  return at == row.rank;
}

static bool holds_row(const Value *update, Type row) {
  int64_t axes[MAX_RANK];
  size_t count;
  return same_count(update->type, row) || axes_more(update->type, row, axes, &count);
}

/* What the step writes into the carried array, when nothing else is done with the array. */
static bool read_write(const Steps *steps, size_t carried, Write *write) {
  const Value *before = steps->body->inputs.items[carried], *after = steps->body->outputs.items[carried]->value;
  Node *node = after->producer;
  *write = (Write){.node = node};
  if (!node || !node_is(node, OP_ScatterND) || node->graph != steps->body) return false;
  if (node_input(node, 0) != before || value_use_count(before) != 1 || value_use_count(after) != 1) return false;
  const Attribute *reduction = node_attribute(node, "reduction");
  if (reduction && strcmp(reduction->string, "none") != 0) return false;
  Type type = before->type;
  if (type_is_unranked(type) || type.rank == 0 || type.rank > MOST_PERMUTED) return false;
  write->order = order_of_places(steps, node_input(node, 1), type, &write->axis);
  Dim dims[MOST_PERMUTED];
  for (uint32_t i = 0, k = 0; i < type.rank; i++) {
    if (i != write->axis) dims[k++] = type.dims[i];
  }
  write->row = type_make(steps->rewriter->context, type.dtype, dims, type.rank - 1);
  return write->order != NO_ORDER &&
         (is_row(steps, node_input(node, 2), write->row) || holds_row(node_input(node, 2), write->row));
}

/* The row in its own shape. */
static Value *written(const Steps *steps, const Write *write) {
  Value *update = node_input(write->node, 2);
  if (is_row(steps, update, write->row)) return node_input(update->producer, 0);
  int64_t numbers[MAX_RANK];
  size_t count;
  bool is_squeezed = axes_more(update->type, write->row, numbers, &count);
  if (is_squeezed && count == 0) return update;
  if (!is_squeezed) {
    for (count = 0; count < write->row.rank; count++) numbers[count] = write->row.dims[count].constant;
  }
  Rewriter *rewriter = steps->rewriter;
  Value *inputs[] = {update, rewrite_constant_ints(rewriter, steps->scan, numbers, count, write->node->origin)};
  const Origin *origin = REWRITE_ORIGIN(rewriter, write->node);
  Op op = is_squeezed ? OP_Squeeze : OP_Reshape;
  return graph_node(steps->body, origin, op, inputs, 2, &write->row, 1, write->node)->outputs[0];
}

/* The last of the stacked results goes the way of the slices. */
static void set_last_way(const Steps *steps, Node *scan, size_t stacked) {
  const Attribute *given = node_attribute(scan, "scan_output_directions");
  if (!given && !scan_runs_backwards(scan)) return;
  int64_t *ways = arena_new_array(&steps->rewriter->context->arena, stacked, int64_t);
  for (size_t i = 0; given && i < given->count && i + 1 < stacked; i++) ways[i] = given->integers[i];
  ways[stacked - 1] = scan_runs_backwards(scan);
  node_set_ints(scan, "scan_output_directions", ways, stacked);
}

/* All rows, their axis where it was. */
static Value *with_axis_back(const Steps *steps, Value *stacked, Type type, uint32_t axis, Node *before) {
  if (axis == 0) return stacked;
  int64_t perm[MOST_PERMUTED];
  for (uint32_t i = 0; i < type.rank; i++) perm[i] = i < axis ? i + 1 : i == axis ? 0 : i;
  Rewriter *rewriter = steps->rewriter;
  const Origin *origin = REWRITE_ORIGIN(rewriter, before);
  Node *transpose = graph_node(before->graph, origin, OP_Transpose, &stacked, 1, &type, 1, before);
  node_set_ints(transpose, "perm", perm, type.rank);
  return transpose->outputs[0];
}

/* The scan with one stacked result more, which the rows of all steps are. */
static Node *scan_with_rows(const Steps *steps, const Write *write) {
  Rewriter *rewriter = steps->rewriter;
  Node *old = steps->scan;
  Arena *arena = &rewriter->context->arena;
  uint32_t count = old->output_count;
  Value **inputs = arena_new_array(arena, old->input_count, Value *);
  Type *types = arena_new_array(arena, count + 1, Type);
  Dim dims[MOST_PERMUTED] = {dim_of(steps->length)};
  for (uint32_t i = 0; i < old->input_count; i++) inputs[i] = node_input(old, i);
  for (uint32_t i = 0; i < count; i++) types[i] = old->outputs[i]->type;
  for (uint32_t i = 0; i < write->row.rank; i++) dims[i + 1] = write->row.dims[i];
  types[count] = type_make(rewriter->context, write->row.dtype, dims, write->row.rank + 1);
  const Origin *origin = REWRITE_ORIGIN(rewriter, old);
  Node *scan = graph_node(old->graph, origin, OP_Scan, inputs, old->input_count, types, count + 1, old);
  node_copy_attributes(scan, old);
  old->attributes.count = 0; /* the body is the new one's */
  node_set_graph(scan, "body", steps->body);
  set_last_way(steps, scan, count + 1 - steps->carried);
  return scan;
}

static void stack_rows(Steps *steps, size_t carried, const Write *write) {
  Rewriter *rewriter = steps->rewriter;
  Node *old = steps->scan;
  uint32_t count = old->output_count;
  Value *row = written(steps, write);
  const Origin *origin = REWRITE_ORIGIN(rewriter, write->node);
  Node *identity = graph_node(steps->body, origin, OP_Identity, &row, 1, &row->type, 1, NULL);
  rewrite_hand_over(rewriter, identity, write->node);
  graph_output(steps->body, identity->outputs[0]);
  Node *scan = scan_with_rows(steps, write);
  Value *rows = with_axis_back(steps, scan->outputs[count], old->outputs[carried]->type, write->axis, old);
  for (uint32_t i = 0; i < count; i++) {
    Value *now = i == carried ? rows : scan->outputs[i];
    rewrite_take_name(now, old->outputs[i]);
    value_replace(old->outputs[i], now);
  }
  rewrite_hand_over(rewriter, scan, old);
  node_remove(old);
  scan_drop_carried(scan, carried);
  node_remove(write->node);
  steps->scan = scan;
  steps->carried--;
  rewriter->changed = true;
}

/* ---- counted down ---- */

static bool counts_down(const Steps *steps) {
  bool reversed = false;
  Order order = NO_ORDER;
  FOR_EACH_NODE(node, steps->body) {
    order = row_order(steps, node);
    if (order == IN_ORDER) return false;
    reversed = reversed || order == REVERSED;
  }
  for (size_t i = 0; i < steps->carried; i++) {
    Write write;
    if (!read_write(steps, i, &write)) continue;
    if (write.order == IN_ORDER) return false;
    reversed = true;
  }
  return reversed;
}

static const Tensor *turned_around(const Steps *steps, const Tensor *all) {
  Arena *arena = &steps->rewriter->context->arena;
  Tensor *turned = arena_copy(arena, all, sizeof *all);
  size_t count = (size_t)steps->length, size = all->size / count;
  char *data = arena_new_array(arena, all->size, char);
  for (size_t i = 0; i < count; i++)
    copy_bytes(data + i * size, (const char *)all->data + (count - 1 - i) * size, size);
  turned->data = data;
  turned->name = NULL;
  turned->made_of = names_with(steps->rewriter->context, NULL, all);
  return turned;
}

/* The same steps of a Scan that runs the other way. All its slices must be constants, and nothing be stacked yet. */
static void turn_around(const Steps *steps) {
  Node *scan = steps->scan;
  size_t slices = scan->input_count - steps->carried;
  if (scan->output_count != steps->carried || scan_runs_backwards(scan)) return;
  for (size_t i = steps->carried; i < scan->input_count; i++) {
    const Tensor *all = slices_of(steps, steps->body->inputs.items[i]);
    if (!all || dtype_bits(all->dtype) < 8) return;
  }
  for (size_t i = steps->carried; i < scan->input_count; i++) {
    Value *stacked = node_input(scan, i);
    const Tensor *turned = turned_around(steps, constant_of(stacked));
    use_set(&scan->inputs[i], rewrite_constant(steps->rewriter, scan, turned, stacked->origin));
  }
  int64_t *ways = arena_new_array(&steps->rewriter->context->arena, slices, int64_t);
  for (size_t i = 0; i < slices; i++) ways[i] = 1;
  node_set_ints(scan, "scan_input_directions", ways, slices);
  steps->rewriter->changed = true;
}

static void visit(Rewriter *rewriter, Node *node) {
  Steps steps = {.rewriter = rewriter, .scan = node};
  if (!read_steps(&steps)) return;
  join_same_slices(&steps);
  if (counts_down(&steps)) turn_around(&steps);
  for (Node *next = NULL, *row = steps.body->first; row; row = next) {
    next = row->next;
    if (row_order(&steps, row) == IN_ORDER) scan_row(&steps, row);
  }
  for (size_t i = steps.carried; i-- && steps.carried > 1;) {
    Write write;
    if (read_write(&steps, i, &write) && write.order == IN_ORDER) stack_rows(&steps, i, &write);
  }
}

bool scan_positions(Model *model) {
  Rewriter rewriter;
  if (!model->made[OP_Scan]) return false;
  rewrite_begin(&rewriter, model, __func__);
  rewrite_each_node(&rewriter, visit);
  return rewrite_end(&rewriter);
}
