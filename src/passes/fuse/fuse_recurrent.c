/* Recurrent layers: a Scan whose body is an LSTM, GRU or plain cell with constant weights is the operator of that name.
 *
 * The weights are packed anew: gates in ONNX's order, features of the result first. Measured with ONNX Runtime on one
 * core, LSTM against the Scan with its input products hoisted: 33 us against 167 (24 steps, 4 x 32), 45 against 227 (32
 * steps, 1 x 64), 12.1 ms against 15.1 (512 steps, 8 x 128), and the same error against float64.
 */
#include "onnx/facts/schema.h"
#include "passes/fuse/recurrent.h"
#include "passes/fuse/recurrent_cell.h"
#include "passes/loop_body.h"
#include "passes/pattern.h"
#include "target/target.h"
#include "types/numbers.h"

static bool is_used(const Value *value) { return value && value->uses; }

static Value *body_output(const Cell *cell, uint32_t index) { return cell->body->outputs.items[index]->value; }

/* ---- what the loop hands out ---- */

/* Can what is put together of all steps be computed from their states, in the same order? */
static bool is_lifted(const Cell *cell, uint32_t index) {
  const Attribute *out = node_attribute(cell->scan, "scan_output_directions");
  uint32_t at = index - cell->state_count;
  bool backwards = out && at < out->count && out->integers[at] == 1;
  return backwards == cell->reverse && cell_can_lift(cell, body_output(cell, index), true);
}

/* Is the output of the Scan neither a state of the cell nor computed from it alone? */
static bool is_of_rest(const Cell *cell, uint32_t index) {
  if (index < cell->state_count)
    return index != cell->hidden_index && !(cell->op == OP_LSTM && index == cell->memory_index);
  return is_used(cell->scan->outputs[index]) && !is_lifted(cell, index);
}

/* All slices are handed out in one direction. */
static bool check_outputs(Cell *cell) {
  const Attribute *in = node_attribute(cell->scan, "scan_input_directions");
  cell->reverse = in && in->count && in->integers[0] == 1;
  for (size_t i = 0; in && i < in->count; i++) {
    if ((in->integers[i] == 1) != cell->reverse) return false;
  }
  cell->has_rest = false;
  for (uint32_t i = 0; i < cell->scan->output_count; i++) {
    cell->of_rest[i] = is_of_rest(cell, i);
    cell->has_rest = cell->has_rest || cell->of_rest[i];
  }
  return true;
}

/* ---- packing ---- */

/* A name that tells which parameters are packed: theirs when it is one, else what they have in common. */
static Str packed_name(Cell *cell, const AffineTerm *const *terms, size_t count, const char *role) {
  Context *context = cell->rewriter->context;
  Str first = NULL;
  size_t common = 0;
  bool one = true;
  for (size_t i = 0; i < count; i++) {
    Str name = terms[i]->matrix->name;
    if (!name) continue;
    if (!first) {
      first = name;
      common = strlen(name);
    }
    one = one && first == name;
    size_t same = 0;
    while (same < common && first[same] == name[same]) same++;
    common = same;
  }
  if (!first) return NULL;
  while (!one && common && first[common - 1] != '.' && first[common - 1] != '/') common--;
  if (common == 0) return NULL;
  if (one) return str_intern(context, arena_format(&context->arena, "%s_packed", first));
  return str_intern(context, arena_format(&context->arena, "%.*s%s_packed", (int)common, first, role));
}

static void round_to_halves(Cell *cell, Tensor *tensor) {
  const float *numbers = tensor->data;
  size_t count = tensor->size / sizeof *numbers;
  uint16_t *halves = arena_new_array(&cell->rewriter->context->arena, count, uint16_t);
  for (size_t i = 0; i < count; i++) halves[i] = (uint16_t)number_encode(DTYPE_FLOAT16, numbers[i]);
  tensor->dtype = DTYPE_FLOAT16;
  tensor->data = halves;
  tensor->size = count * sizeof *halves;
}

static Value *packed(Cell *cell, Tensor *tensor, const AffineTerm *const *terms, size_t count, const char *role) {
  if (cell->dtype == DTYPE_FLOAT16) round_to_halves(cell, tensor);
  tensor->name = packed_name(cell, terms, count, role);
  tensor->keeps_name = tensor->name;
  for (size_t i = 0; i < count; i++) {
    tensor->made_of = names_with(cell->rewriter->context, tensor->made_of, terms[i]->matrix);
  }
  return rewrite_constant(cell->rewriter, cell->scan, tensor, cell->scan->origin);
}

static Tensor *new_tensor(Cell *cell, int64_t rows, int64_t columns) {
  Arena *arena = &cell->rewriter->context->arena;
  bool matrix = columns > 0;
  int64_t dims[] = {1, rows, columns};
  Tensor *tensor = arena_new(arena, Tensor);
  size_t count = (size_t)(rows * (matrix ? columns : 1));
  *tensor = (Tensor){.dtype = DTYPE_FLOAT32, .rank = matrix ? 3 : 2, .size = count * sizeof(float)};
  tensor->dims = arena_copy(arena, dims, sizeof dims);
  tensor->data = arena_new_array(arena, count, float);
  return tensor;
}

static bool is_product_with(const Cell *cell, const AffineTerm *term, bool state) {
  if (term->kind != AFFINE_PRODUCT) return false;
  return state == (view_same(&term->source, &cell->hidden) || view_same(&term->source, &cell->reset_state));
}

/* The matrices of the input's or of the state's products, one gate below the other. */
static Value *pack_matrices(Cell *cell, bool state) {
  int64_t width = cell->width, columns = width;
  if (!state) columns = cell->inputs.length;
  Tensor *tensor = new_tensor(cell, cell->gate_count * width, columns);
  float *data = (float *)(uintptr_t)tensor->data;
  const AffineTerm *used[2 * MOST_GATES * AFFINE_TERMS];
  size_t count = 0;
  for (uint32_t gate = 0; gate <= cell->gate_count; gate++) {
    const Affine *sum = gate < cell->gate_count ? &cell->gates[gate] : &cell->candidate_state;
    int64_t row = (gate < cell->gate_count ? gate : gate - 1) * width;
    for (size_t i = 0; i < sum->count; i++) {
      if (!is_product_with(cell, &sum->terms[i], state)) continue;
      used[count++] = &sum->terms[i];
      affine_add_matrix(&sum->terms[i], data + row * columns, width, columns);
    }
  }
  return packed(cell, tensor, used, count, state ? "recurrent" : "input");
}

/* All biases of a gate in one; those inside a reset gate's product among the state's. NULL: there are none. */
static Value *pack_biases(Cell *cell) {
  int64_t width = cell->width, half = cell->gate_count * width;
  Tensor *tensor = new_tensor(cell, 2 * half, 0);
  float *data = (float *)(uintptr_t)tensor->data;
  const AffineTerm *used[2 * MOST_GATES * AFFINE_TERMS];
  size_t count = 0;
  for (uint32_t gate = 0; gate <= cell->gate_count; gate++) {
    const Affine *sum = gate < cell->gate_count ? &cell->gates[gate] : &cell->candidate_state;
    int64_t row = gate < cell->gate_count ? gate * width : half + (gate - 1) * width;
    for (size_t i = 0; i < sum->count; i++) {
      if (sum->terms[i].kind != AFFINE_BIAS) continue;
      used[count++] = &sum->terms[i];
      affine_add(&sum->terms[i], data + row, width);
    }
  }
  return count ? packed(cell, tensor, used, count, "bias") : NULL;
}

/* What the input, output and forget gates are told of the memory. NULL: nothing. */
static Value *pack_peepholes(Cell *cell) {
  Tensor *tensor = new_tensor(cell, 3 * cell->width, 0);
  float *data = (float *)(uintptr_t)tensor->data;
  const AffineTerm *used[MOST_GATES * AFFINE_TERMS];
  size_t count = 0;
  for (uint32_t gate = 0; gate < 3; gate++) {
    for (size_t i = 0; i < cell->gates[gate].count; i++) {
      const AffineTerm *term = &cell->gates[gate].terms[i];
      if (term->kind != AFFINE_SCALED) continue;
      used[count++] = term;
      affine_add(term, data + gate * cell->width, cell->width);
    }
  }
  return count ? packed(cell, tensor, used, count, "peephole") : NULL;
}

/* ---- the operator ---- */

static Type make_type(const Cell *cell, const Dim *dims, uint32_t rank) {
  return type_make(cell->rewriter->context, cell->dtype, dims, rank);
}

static Value *without_casts(Value *value) {
  while (value->producer && is_cast_of_floats(value->producer)) value = node_input(value->producer, 0);
  return value;
}

/* Zeros are what the operator starts with anyway. */
static bool is_zero(Value *value) {
  double number;
  const Node *node = without_casts(value)->producer;
  if (node && node_is(node, OP_Expand)) value = without_casts(node_input(node, 0));
  return uniform_number(value, &number) && number == 0;
}

static Value *start_of(Cell *cell, const View *state, uint32_t index) {
  Value *value = cell->scan->inputs[index].value;
  return is_zero(value) ? NULL : cell_for_operator(cell, value, state, ALONG_NOTHING);
}

static void replace_result(Cell *cell, Value *old, Value *value) {
  value = cell_in_type(cell, value, old->type.dtype);
  rewrite_take_name(value, old);
  value_replace(old, value);
}

/* `ends` are the states after the last step. */
static void replace_results(Cell *cell, Value *const ends[2]) {
  for (uint32_t i = 0; i < cell->scan->output_count; i++) {
    Value *old = cell->scan->outputs[i];
    if (!is_used(old) || cell->of_rest[i]) continue;
    if (i >= cell->state_count) {
      replace_result(cell, old, cell_lift(cell, body_output(cell, i)));
    } else {
      bool hidden = i == cell->hidden_index;
      const View *state = hidden ? &cell->hidden : &cell->memory;
      replace_result(cell, old, cell_from_operator(cell, ends[hidden ? 0 : 1], state, false));
    }
  }
}

/* What only this loop reads goes with it: the products of all steps before it. */
static void hand_over_products(Cell *cell, Node *node) {
  for (uint32_t i = cell->state_count; i < cell->scan->input_count; i++) {
    Value *value = cell->scan->inputs[i].value;
    while (value->producer && value != cell->inputs.value && !value->uses->next) {
      rewrite_hand_over(cell->rewriter, node, value->producer);
      bool is_matrix_first = constant_of(node_input(value->producer, 0)) && node_input(value->producer, 1);
      value = node_input(value->producer, is_matrix_first ? 1 : 0);
    }
  }
}

/* Sigmoid, and Tanh where they are not gates, go without saying. */
static void set_activations(const Cell *cell, Node *node) {
  size_t count = cell->op == OP_LSTM ? 3 : cell->op == OP_GRU ? 2 : 1;
  Str names[MOST_ACTIVATIONS];
  bool usual = true;
  for (size_t i = 0; i < count; i++) {
    bool gate = i == 0 && cell->op != OP_RNN;
    names[i] = str_intern(cell->rewriter->context, op_name(cell->activations[i].op));
    usual = usual && cell->activations[i].op == (gate ? OP_Sigmoid : OP_Tanh);
  }
  if (usual) return;
  node_set_strings(node, "activations", names, count);
  if (cell->activations[0].op != OP_HardSigmoid) return;
  node_set_floats(node, "activation_alpha", &cell->activations[0].alpha, 1);
  node_set_floats(node, "activation_beta", &cell->activations[0].beta, 1);
}

/* What each step makes of its slice is made of all of them. */
static void lift_inputs(Cell *cell) {
  View *inputs = &cell->inputs;
  inputs->value = cell_lift(cell, inputs->value);
  for (uint32_t i = inputs->value->type.rank - 1; i > 0; i--) inputs->axes[i] = inputs->axes[i - 1];
  bool is_one = dim_is(cell->frame.sizes[ALONG_STEPS], 1);
  inputs->axes[0] = (ViewAxis){.along = is_one ? ALONG_NOTHING : ALONG_STEPS};
}

/* Where the array has more steps than the loop, those that it goes over. */
static void pick_steps(Cell *cell) {
  View *inputs = &cell->inputs;
  Type type = inputs->value->type;
  Dim steps = cell->frame.sizes[ALONG_STEPS];
  uint32_t axis = view_axis(inputs, ALONG_STEPS);
  if (axis == type.rank || dim_equal(type.dims[axis], steps)) return;
  const int64_t numbers[] = {inputs->axes[axis].start, inputs->axes[axis].start + steps.constant, axis};
  Value *operands[4] = {inputs->value};
  for (size_t i = 0; i < 3; i++)
    operands[i + 1] = rewrite_constant_ints(cell->rewriter, cell->scan, &numbers[i], 1, cell->scan->origin);
  Dim *dims = arena_copy(&cell->rewriter->context->arena, type.dims, type.rank * sizeof *dims);
  dims[axis] = steps;
  type.dims = dims;
  inputs->value = cell_node(cell, REWRITE_EMITTER(cell->rewriter), OP_Slice, operands, 4, type)->outputs[0];
}

static void emit_cell(Cell *cell) {
  bool lstm = cell->op == OP_LSTM, gru = cell->op == OP_GRU;
  if (cell->inputs.value->graph == cell->body) lift_inputs(cell);
  else pick_steps(cell);
  Value *inputs[] = {cell_for_operator(cell, cell->inputs.value, &cell->inputs, ALONG_STEPS),
                     pack_matrices(cell, false),
                     pack_matrices(cell, true),
                     pack_biases(cell),
                     cell->held.value ? cell_lengths(cell) : NULL,
                     start_of(cell, &cell->hidden, cell->hidden_index),
                     lstm ? start_of(cell, &cell->memory, cell->memory_index) : NULL,
                     lstm ? pack_peepholes(cell) : NULL};
  if (cell->from_late) inputs[0] = cell_turned(cell, inputs[0]);
  size_t count = 8;
  while (!inputs[count - 1]) count--;
  const Dim steps[] = {inputs[0]->type.dims[0], dim_of(1), cell_batch(cell), dim_of(cell->width)};
  const Type types[] = {make_type(cell, steps, 4), make_type(cell, steps + 1, 3), make_type(cell, steps + 1, 3)};
  Node *node = graph_node(cell->scan->graph, REWRITE_ORIGIN(cell->rewriter, cell->scan), cell->op, inputs, count, types,
                          lstm ? 3 : 2, cell->scan);
  node_set_int(node, "hidden_size", cell->width);
  if (cell->reverse != cell->from_late) node_set_string(node, "direction", "reverse");
  if (gru && !cell->reset_state.value) node_set_int(node, "linear_before_reset", 1);
  set_activations(cell, node);
  if (!cell->has_rest) {
    FOR_EACH_NODE(inner, cell->body) rewrite_hand_over(cell->rewriter, node, inner);
    hand_over_products(cell, node);
  }
  Value *ends[] = {node->outputs[1], lstm ? node->outputs[2] : NULL};
  cell->outputs = cell->states = node->outputs[0];
  if (inputs[4]) cell_hold_states(cell, node, inputs[4], ends);
  replace_results(cell, ends);
  if (cell->has_rest) leave_rest(cell, node);
  node_leave_out_unused(node);
  cell->rewriter->changed = true;
}

static bool is_of_halves(const Affine *sum) {
  for (size_t i = 0; i < sum->count; i++) {
    if (sum->terms[i].matrix->dtype != DTYPE_FLOAT16) return false;
  }
  return true;
}

/* A cell all of halves is an operator of halves, which ONNX Runtime computes in float32. */
static DType operator_type(const Cell *cell) {
  bool halves = cell->hidden.value->type.dtype == DTYPE_FLOAT16 && cell->inputs.value->type.dtype == DTYPE_FLOAT16;
  for (uint32_t i = 0; i < cell->gate_count; i++) halves = halves && is_of_halves(&cell->gates[i]);
  halves = halves && is_of_halves(&cell->candidate_state);
  return halves && schema_runs(cell->op, NULL, cell->rewriter->model->opset, DTYPE_FLOAT16) ? DTYPE_FLOAT16
                                                                                            : DTYPE_FLOAT32;
}

/* A cell beside which nothing is left in the loop, or one that leaves a rest. */
static void fuse_scan(Rewriter *rewriter, Node *node, bool leaves_rest) {
  if (!node_is_used(node) || target_has(rewriter->model->target, QUIRK_RECURRENT_IS_NOT_READ)) return;
  LoopShape shape;
  if (!loop_shape(node, &shape) || shape.carried == 0 || shape.carried == node->input_count) return;
  if (shape.body->inputs.count != node->input_count) return;
  if (node_attribute(node, "scan_input_axes") || node_attribute(node, "scan_output_axes")) return;
  Cell *cell = arena_new(&rewriter->context->arena, Cell);
  *cell = (Cell){.rewriter = rewriter, .scan = node, .body = shape.body, .state_count = (uint32_t)shape.carried};
  cell->frame = (ViewFrame){.context = rewriter->context, .scan = node, .body = shape.body};
  cell->frame.states = cell->state_count;
  Type slices = node_input(node, shape.carried)->type;
  if (slices.rank == 0) return;
  cell->frame.sizes[ALONG_STEPS] = slices.dims[0];
  cell->of_rest = arena_new_array(&rewriter->context->arena, node->output_count, bool);
  if (!find_cell(cell) || !check_outputs(cell) || !cell_can_part_batch(cell)) return;
  if (cell->has_rest != leaves_rest || (leaves_rest && !can_leave_rest(cell))) return;
  cell->dtype = operator_type(cell);
  if (schema_runs(cell->op, NULL, rewriter->model->opset, cell->dtype)) emit_cell(cell);
}

/* ---- the pass ---- */

/* What is left where nothing joins the results. */
static void visit_last(Rewriter *rewriter, Node *node) {
  if (!node->is_gone && node_has(node, RECURRENT)) part_directions(rewriter, node);
}

static void visit(Rewriter *rewriter, Node *node) {
  if (node->is_gone) return; /* with the other results of two directions */
  if (node_is(node, OP_Scan)) fuse_scan(rewriter, node, false);
  else if (node_is(node, OP_Gather)) pick_state(rewriter, node);
  else if (node_is(node, OP_Slice)) turn_steps(rewriter, node);
  else if (node_is(node, OP_Concat)) merge_directions(rewriter, node);
  else if (node_has(node, RECURRENT) && !is_used(node->outputs[0])) turn_around(rewriter, node);
}

bool fuse_recurrent(Model *model) {
  Rewriter rewriter;
  rewrite_begin(&rewriter, model, __func__);
  rewrite_each_node(&rewriter, visit);
  if (!rewriter.changed) rewrite_each_node(&rewriter, visit_last);
  return rewrite_end(&rewriter);
}

static void visit_scan(Rewriter *rewriter, Node *node) {
  if (node_is(node, OP_Scan)) fuse_scan(rewriter, node, true);
}

bool part_recurrent(Model *model) {
  Rewriter rewriter;
  rewrite_begin(&rewriter, model, __func__);
  rewrite_each_node(&rewriter, visit_scan);
  return rewrite_end(&rewriter);
}
