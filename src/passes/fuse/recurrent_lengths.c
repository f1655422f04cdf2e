/* Sequences of different lengths in one batch: states that stay as they are from some step on.
 *
 * ONNX Runtime gives 0 for the steps after the length of a sequence and the state of the last step that counts, which
 * is 0 where none does; lengths below 0 or beyond the steps it refuses. A loop hands the state on instead, and where no
 * step counts it is the first one. The lengths are counted from the condition, so they are never out of bounds. Where
 * the steps that count are the last ones, the operator goes the other way, over the steps from the last to the first.
 */
#include "passes/analysis/positions.h"
#include "passes/fuse/recurrent_cell.h"
#include "passes/pattern.h"
#include "target/target.h"
#include "types/numbers.h"

/* ---- reading ---- */

/* Behind negations, of which *flipped tells whether there is an odd number. */
static View settled_condition(const Cell *cell, View view, bool *flipped) {
  *flipped = false;
  view = view_settled(&cell->frame, view);
  for (View operand; view.value->producer && node_is(view.value->producer, OP_Not); view = operand) {
    if (!view_operand(&view, view.value->producer, 0, &operand)) break;
    operand = view_settled(&cell->frame, operand);
    *flipped = !*flipped;
  }
  return view;
}

bool read_held(const Cell *cell, const View *state, View next, View *made, View *condition, bool *holds_if) {
  next = view_settled(&cell->frame, next);
  const Node *choice = next.value->producer;
  if (!choice || choice->graph != cell->body || !node_is(choice, OP_Where)) return false;
  for (size_t at = 1; at <= 2; at++) {
    View kept;
    bool flipped;
    if (!view_operand(&next, choice, at, &kept)) return false;
    kept = view_settled(&cell->frame, kept);
    if (!view_same(&kept, state)) continue;
    if (!view_operand(&next, choice, 0, condition) || !view_operand(&next, choice, 3 - at, made)) return false;
    *made = view_settled(&cell->frame, *made);
    *condition = settled_condition(cell, *condition, &flipped);
    *holds_if = (at == 1) != flipped;
    return true;
  }
  return false;
}

bool is_held_by(const Cell *cell, View condition, bool *holds_if) {
  bool flipped;
  condition = settled_condition(cell, condition, &flipped);
  *holds_if = cell->holds_if != flipped;
  return view_same(&condition, &cell->held);
}

/* ---- which steps count ---- */

/* Which way the numbers along the value's axis go; false: both. */
static bool read_slope(const Value *value, bool *falls) {
  double step;
  while (value->producer && (node_has(value->producer, RENAMES) || node_is(value->producer, OP_Cast)) &&
         dtype_is_integer(node_input(value->producer, 0)->type.dtype))
    value = node_input(value->producer, 0);
  const Node *range = value->producer;
  if (range && node_is(range, OP_Range) && uniform_number(node_input(range, 2), &step)) {
    *falls = step < 0;
    return true;
  }
  const Tensor *tensor = constant_of(value);
  size_t bytes = tensor ? dtype_bytes(tensor->dtype, 1) : 0;
  const char *data = tensor ? tensor->data : NULL;
  for (size_t at = bytes; bytes && at < tensor->size; at += bytes) {
    double before = number_decode(tensor->dtype, data + at - bytes), number = number_decode(tensor->dtype, data + at);
    bool first = at == bytes;
    if (first) *falls = before > number;
    if (!(*falls ? before >= number : before <= number)) return false;
  }
  return bytes > 0;
}

/* Is the value the number of the step, or what grows or falls with it? */
static bool counts_steps(const View *view, bool *falls) {
  Type type = view->value->type;
  uint32_t axis = view_axis(view, ALONG_STEPS);
  for (uint32_t i = 0; i < type.rank; i++) {
    if (i != axis && !dim_is(type.dims[i], 1)) return false;
  }
  return axis < type.rank && read_slope(view->value, falls);
}

/* The first value around the loop that is seen whole; false: there is none. */
static bool leave_loop(const Cell *cell, View *view) {
  while (view->value->graph == cell->body && !view->value->tensor && view_back(&cell->frame, view)) continue;
  Type type = view->value->type;
  uint32_t steps = view_axis(view, ALONG_STEPS);
  bool is_outside = view->value->graph != cell->body || view->value->tensor;
  bool has_more = steps < type.rank && !dim_equal(type.dims[steps], cell->frame.sizes[ALONG_STEPS]);
  return is_outside && !has_more && view_is_whole(view);
}

/* The operands of the comparison, as they are around the loop. */
static bool read_operands(const Cell *cell, View operands[2]) {
  const Node *node = cell->held.value->producer;
  for (size_t i = 0; i < 2; i++) {
    if (!view_operand(&cell->held, node, i, &operands[i]) || !leave_loop(cell, &operands[i])) return false;
  }
  return true;
}

static bool is_comparison(const Node *node) {
  return node_is(node, OP_Less) || node_is(node, OP_LessOrEqual) || node_is(node, OP_Greater) ||
         node_is(node, OP_GreaterOrEqual);
}

static bool varies_with_all(const Cell *cell, const View *view) {
  uint32_t rank = view->value->type.rank;
  for (uint32_t i = 0; i < cell->frame.batches; i++) {
    if (view_axis(view, ALONG_BATCH + i) == rank) return false;
  }
  return view_axis(view, ALONG_FEATURES) == rank;
}

bool cell_has_lengths(Cell *cell) {
  if (target_has(cell->rewriter->model->target, QUIRK_RECURRENT_IGNORES_LENGTHS)) return false;
  const Node *node = cell->held.value->producer;
  View operands[2];
  if (!node || !is_comparison(node) || !varies_with_all(cell, &cell->held) || !read_operands(cell, operands))
    return false;
  for (size_t at = 0; at < 2; at++) {
    const View *limit = &operands[1 - at];
    View position = view_settled(&cell->frame, operands[at]);
    bool falls = false;
    if (!counts_steps(&position, &falls) || view_axis(limit, ALONG_STEPS) < limit->value->type.rank) continue;
    bool is_less = node_is(node, OP_Less) || node_is(node, OP_LessOrEqual);
    cell->from_late = (is_less == (at == 0)) == (cell->holds_if != falls);
    return true;
  }
  return false;
}

/* ---- writing ---- */

static Value *emit(Cell *cell, Emitter emitter, Op op, Value *const *inputs, size_t count, DType dtype, const Dim *dims,
                   uint32_t rank) {
  Type type = type_make(cell->rewriter->context, dtype, dims, rank);
  return cell_node(cell, emitter, op, inputs, count, type)->outputs[0];
}

static Value *ints(Cell *cell, const int64_t *numbers, size_t count) {
  return rewrite_constant_ints(cell->rewriter, cell->scan, numbers, count, cell->scan->origin);
}

/* Which steps of which sequences count, [steps, batch, 1]. */
static Value *valid_steps(Cell *cell) {
  Emitter emitter = REWRITE_EMITTER(cell->rewriter);
  Value *inputs[2];
  View operands[2];
  Dim dims[MOST_VIEWED + 1];
  if (!read_operands(cell, operands)) return NULL; /* cell_has_lengths has read them */
  for (size_t i = 0; i < 2; i++) inputs[i] = cell_arranged(cell, operands[i].value, &operands[i], ALONG_STEPS);
  uint32_t rank = inputs[0]->type.rank;
  for (uint32_t i = 0; i < rank; i++) dims[i] = inputs[dim_is(inputs[0]->type.dims[i], 1) ? 1 : 0]->type.dims[i];
  Value *valid = emit(cell, emitter, cell->held.value->producer->op, inputs, 2, DTYPE_BOOL, dims, rank);
  if (cell->holds_if) valid = emit(cell, emitter, OP_Not, &valid, 1, DTYPE_BOOL, dims, rank);
  return cell_with_one_batch(cell, valid);
}

Value *cell_lengths(Cell *cell) {
  Emitter emitter = REWRITE_EMITTER(cell->rewriter);
  Value *valid = valid_steps(cell);
  const Dim *dims = valid->type.dims, with_directions[] = {dims[0], dim_of(1), dims[1], dims[2]};
  cell->valid = emit(cell, emitter, OP_Unsqueeze, (Value *[]){valid, ints(cell, (int64_t[]){1}, 1)}, 2, DTYPE_BOOL,
                     with_directions, 4);
  Value *inputs[] = {cell_in_type(cell, valid, DTYPE_INT32), ints(cell, (int64_t[]){0, 2}, 2)};
  Value *lengths = emit(cell, emitter, OP_ReduceSum, inputs, 2, DTYPE_INT32, dims + 1, 1);
  node_set_int(lengths->producer, "keepdims", 0);
  return lengths;
}

static Value *choose(Cell *cell, Value *condition, Value *one, Value *other) {
  Node *node =
      cell_node(cell, REWRITE_EMITTER(cell->rewriter), OP_Where, (Value *[]){condition, one, other}, 3, one->type);
  return node->outputs[0];
}

/* Which sequences have any step, [batch, 1]. */
static Value *has_steps(Cell *cell, Value *lengths) {
  Emitter emitter = REWRITE_EMITTER(cell->rewriter);
  const Dim dims[] = {lengths->type.dims[0], dim_of(1)};
  Value *zero = rewrite_constant_number(cell->rewriter, cell->scan, DTYPE_INT32, 0, cell->scan->origin);
  Value *any = emit(cell, emitter, OP_Greater, (Value *[]){lengths, zero}, 2, DTYPE_BOOL, dims, 1);
  return emit(cell, emitter, OP_Unsqueeze, (Value *[]){any, ints(cell, (int64_t[]){1}, 1)}, 2, DTYPE_BOOL, dims, 2);
}

Value *cell_turned(Cell *cell, Value *steps) {
  int64_t axis;
  Node *node = steps->producer;
  if (node && node->graph == cell->scan->graph && reverses_axis(node, &axis) && axis == 0) return node_input(node, 0);
  const int64_t numbers[] = {-1, INT64_MIN, 0, -1};
  Value *inputs[5] = {steps};
  for (size_t i = 0; i < 4; i++) inputs[i + 1] = ints(cell, &numbers[i], 1);
  return cell_node(cell, REWRITE_EMITTER(cell->rewriter), OP_Slice, inputs, 5, steps->type)->outputs[0];
}

void cell_hold_states(Cell *cell, Node *recurrent, Value *lengths, Value *ends[2]) {
  enum { FIRST_STATE = 5 };
  Value *any = NULL, *start = node_input(recurrent, FIRST_STATE);
  for (size_t i = 0; i < 2; i++) {
    Value *first = node_input(recurrent, FIRST_STATE + i);
    if (!ends[i] || !first) continue;
    if (!any) any = has_steps(cell, lengths);
    ends[i] = choose(cell, any, ends[i], first);
  }
  if (cell->from_late) cell->outputs = cell->states = cell_turned(cell, cell->outputs);
  bool counts_first = cell->reverse == cell->from_late;
  Value *held = counts_first ? ends[0] : start;
  if (held) cell->states = choose(cell, cell->valid, cell->outputs, held);
}
