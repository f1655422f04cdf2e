/* What a step computes from its slices, and from the state it hands on, computed for all steps at once. */
#include "passes/fuse/recurrent_cell.h"
#include "passes/pattern.h"

enum { DEEPEST_LIFTED = 8 /* operators */ };

typedef struct Lift {
  const Cell *cell;
  bool has_states; /* those of all steps are known */
} Lift;

/* What the loop hands out slices of, when the value is a slice; else NULL. */
static Value *all_slices(const Cell *cell, const Value *value) {
  for (uint32_t i = cell->state_count; i < cell->scan->input_count; i++) {
    if (cell->body->inputs.items[i] == value) return cell->scan->inputs[i].value;
  }
  return NULL;
}

static bool is_liftable(const Lift *lift, Value *value, int depth);

/* Operands of the step have the rank and the sizes of the result, and at least one is there: with one more axis in
 * front they broadcast as before. */
static bool lifts_elementwise(const Lift *lift, const Node *node, int depth) {
  Type type = node->outputs[0]->type;
  size_t lifted = 0;
  if (node->output_count != 1) return false;
  for (uint32_t i = 0; i < node->input_count; i++) {
    Value *value = node->inputs[i].value;
    if (!value || value->type.rank > type.rank) return false;
    if (value->graph != lift->cell->body) continue;
    if (!type_same_shape(value->type, type) || !is_liftable(lift, value, depth)) return false;
    lifted++;
  }
  return lifted > 0;
}

/* A matrix from the left of columns: with one more axis in front of these it is the same. */
static bool lifts_columns(const Lift *lift, const Node *node, int depth) {
  Value *matrix = node_input(node, 0), *right = node_input(node, 1);
  return node_is(node, OP_MatMul) && matrix->graph != lift->cell->body && matrix->type.rank == 2 &&
         right->type.rank == 2 && is_liftable(lift, right, depth);
}

static bool lifts_product(const Lift *lift, const Node *node, int depth) {
  Value *left = node_input(node, 0), *matrix = node_input(node, 1), *bias = node_input(node, 2);
  if (lifts_columns(lift, node, depth)) return true;
  bool gemm = node_is(node, OP_Gemm);
  const Attribute *alpha = node_attribute(node, "alpha"), *beta = node_attribute(node, "beta");
  if (gemm && (node_int_or(node, "transA", 0) || (alpha && alpha->real != 1) || (beta && beta->real != 1)))
    return false;
  if (matrix->graph == lift->cell->body || matrix->type.rank != 2 ||
      left->type.rank != lift->cell->hidden.value->type.rank)
    return false;
  if (gemm && bias && (bias->graph == lift->cell->body || bias->type.rank > 1)) return false;
  return is_liftable(lift, left, depth);
}

/* Rows of a table, by the numbers of each step. */
static bool lifts_rows(const Lift *lift, const Node *node, int depth) {
  const Value *table = node_input(node, 0);
  Value *rows = node_input(node, 1);
  return table->graph != lift->cell->body && rows->graph == lift->cell->body && node_int_or(node, "axis", 0) == 0 &&
         is_liftable(lift, rows, depth);
}

/* ---- what is read only of the steps that count ---- */

/* What the node chooses where the state is not held, if the cell has computed it; `view` is how the step sees it. */
static Value *chosen_valid(const Cell *cell, const Node *node, View *view) {
  if (!cell->held.value || !node || node->graph != cell->body || !node_is(node, OP_Where)) return NULL;
  for (uint32_t at = 1; at <= 2; at++) {
    Value *computed = node_input(node, at);
    bool holds_if;
    if (!type_equal(computed->type, node->outputs[0]->type)) continue;
    if (!is_new_hidden(cell, computed, view) && !is_next_hidden(cell, computed, view)) continue;
    View condition;
    view->value = node->outputs[0];
    if (view_operand(view, node, 0, &condition) && is_held_by(cell, condition, &holds_if) && holds_if == (at == 2))
      return computed;
  }
  return NULL;
}

static Value *other_than(const Node *choice, const Value *computed) {
  return node_input(choice, node_input(choice, 1) == computed ? 2 : 1);
}

static bool lifts_valid(const Lift *lift, const Node *node, int depth) {
  View view;
  const Value *computed = lift->has_states ? chosen_valid(lift->cell, node, &view) : NULL;
  if (!computed) return false;
  Value *other = other_than(node, computed);
  if (other->graph != lift->cell->body) return other->type.rank <= node->outputs[0]->type.rank;
  return type_same_shape(other->type, node->outputs[0]->type) && is_liftable(lift, other, depth);
}

/* Can the value be computed for all steps at once, from the states and inputs of all? */
static bool is_liftable(const Lift *lift, Value *value, int depth) {
  View view;
  if ((lift->has_states && is_next_hidden(lift->cell, value, &view)) || all_slices(lift->cell, value)) return true;
  const Node *node = value->producer;
  if (!node || node->graph != lift->cell->body || depth == 0) return false;
  if (lifts_valid(lift, node, depth - 1)) return true;
  if (node_is(node, OP_Gather)) return lifts_rows(lift, node, depth - 1);
  if (node_is(node, OP_MatMul) || node_is(node, OP_Gemm)) return lifts_product(lift, node, depth - 1);
  return node_has(node, ELEMENTWISE) && lifts_elementwise(lift, node, depth - 1);
}

bool cell_can_lift(const Cell *cell, Value *value, bool has_states) {
  return is_liftable(&(Lift){cell, has_states}, value, DEEPEST_LIFTED);
}

/* ---- all steps ---- */

/* The type of the value of all steps. */
static Type of_all(const Cell *cell, Type type, Dim steps) {
  Dim dims[MAX_RANK] = {steps};
  for (uint32_t i = 0; i < type.rank; i++) dims[i + 1] = type.dims[i];
  return type_make(cell->rewriter->context, type.dtype, dims, type.rank + 1);
}

static Value *lifted_gemm(Cell *cell, const Node *node, Value *left) {
  Emitter emitter = REWRITE_EMITTER(cell->rewriter);
  Value *matrix = node_input(node, 1), *bias = node_input(node, 2);
  if (node_int_or(node, "transB", 0)) {
    const Dim dims[] = {matrix->type.dims[1], matrix->type.dims[0]};
    Type type = type_make(cell->rewriter->context, matrix->type.dtype, dims, 2);
    Node *transpose = cell_node(cell, emitter, OP_Transpose, &matrix, 1, type);
    node_set_ints(transpose, "perm", (int64_t[]){1, 0}, 2);
    matrix = transpose->outputs[0];
  }
  Type type = of_all(cell, node->outputs[0]->type, left->type.dims[0]);
  Value *product = cell_node(cell, emitter, OP_MatMul, (Value *[]){left, matrix}, 2, type)->outputs[0];
  return bias ? cell_node(cell, emitter, OP_Add, (Value *[]){product, bias}, 2, type)->outputs[0] : product;
}

/* What the operator has computed for all steps, seen as the step sees it. */
static Value *from_operator(Cell *cell, Value *all, const View *view) {
  return cell_in_type(cell, cell_from_operator(cell, all, view, true), view->value->type.dtype);
}

static Value *lift_valid(Cell *cell, const Node *choice, const Value *computed, const View *view) {
  Value *other = other_than(choice, computed), *result = choice->outputs[0];
  double number;
  Value *outputs = from_operator(cell, cell->outputs, view);
  if (uniform_number(other, &number) && number == 0) return outputs;
  if (other->graph == cell->body) other = cell_lift(cell, other);
  Value *inputs[] = {cell_from_operator(cell, cell->valid, view, true), outputs, other};
  Type type = of_all(cell, result->type, cell->frame.sizes[ALONG_STEPS]);
  return cell_node(cell, REWRITE_EMITTER(cell->rewriter), OP_Where, inputs, 3, type)->outputs[0];
}

Value *cell_lift(Cell *cell, Value *value) {
  View view;
  if (cell->states && is_next_hidden(cell, value, &view)) return from_operator(cell, cell->states, &view);
  const Value *computed = cell->states ? chosen_valid(cell, value->producer, &view) : NULL;
  if (computed) return lift_valid(cell, value->producer, computed, &view);
  Value *slices = all_slices(cell, value);
  if (slices) return slices;
  const Node *node = value->producer;
  Value **inputs = arena_new_array(&cell->rewriter->context->arena, node->input_count, Value *);
  for (uint32_t i = 0; i < node->input_count; i++) {
    Value *input = node->inputs[i].value;
    inputs[i] = input && input->graph == cell->body ? cell_lift(cell, input) : input;
  }
  if (node_is(node, OP_Gemm)) return lifted_gemm(cell, node, inputs[0]);
  Type type = of_all(cell, value->type, cell->frame.sizes[ALONG_STEPS]);
  Node *copy = cell_node(cell, REWRITE_EMITTER(cell->rewriter), node->op, inputs, node->input_count, type);
  node_copy_attributes(copy, node);
  return copy->outputs[0];
}
