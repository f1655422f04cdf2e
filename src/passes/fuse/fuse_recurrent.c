/* Recurrent layers: a Scan whose body is an LSTM, GRU or plain cell with constant weights is the operator of that name.
 *
 * The weights are packed anew: gates in ONNX's order, features of the result first. Measured with ONNX Runtime on one
 * core, LSTM against the Scan with its input products hoisted: 33 us against 167 (24 steps, 4 x 32), 45 against 227 (32
 * steps, 1 x 64), 12.1 ms against 15.1 (512 steps, 8 x 128), and the same error against float64.
 */
#include "onnx/facts/schema.h"
#include "passes/analysis/affine.h"
#include "passes/fuse/recurrent.h"
#include "passes/loop_body.h"
#include "passes/pattern.h"
#include "target/target.h"
#include "types/numbers.h"

enum {
  MOST_GATES = 4,
  MOST_ACTIVATIONS = 3,
  DEEPEST_READOUT = 8,       /* operators between a state and what is handed out */
  DEEPEST_BLEND = 6,         /* operators between a GRU's next state and its parts */
  LARGEST_PACKED = 64 << 20, /* bytes of weights that are packed anew */
};

/* A function that an operator applies to its gates or to its candidate. */
typedef struct Activation {
  Op op;
  float alpha, beta; /* HardSigmoid alone */
} Activation;

/* An activation of some features, or one minus it. */
typedef struct Squashed {
  Lane lane;
  Activation by;
  bool complement;
} Squashed;

typedef struct Cell {
  Rewriter *rewriter;
  Node *scan;
  Graph *body;
  uint32_t state_count;
  Op op;
  Value *hidden, *memory; /* the states */
  uint32_t hidden_index, memory_index;
  Value *next_hidden;
  uint32_t gate_count;
  Affine gates[MOST_GATES]; /* in ONNX's order */
  Affine candidate_state;   /* GRU: what the reset gate multiplies; else empty */
  Value *reset_state;       /* GRU: the state times the reset gate, where the product comes after; else NULL */
  Activation activations[MOST_ACTIVATIONS]; /* in ONNX's order */
  bool reverse;
  int64_t width; /* of the state */
  Value *inputs; /* of all steps */
  bool batch_first;
  DType dtype; /* of the operator */
} Cell;

/* ---- activations ---- */

static Value *without_identity(Value *value) {
  while (value->producer && node_is(value->producer, OP_Identity)) value = node_input(value->producer, 0);
  return affine_bare(value);
}

static Node *made_by(const Cell *cell, Value *value, Op op) {
  Node *node = affine_bare(value)->producer;
  return node && node->graph == cell->body && node_is(node, op) ? node : NULL;
}

/* 1 / (1 + exp(-x)) of a lane; NULL when it is not. */
static Value *logistic_argument(const Cell *cell, Node *node) {
  bool reciprocal = node_is(node, OP_Reciprocal);
  if (!reciprocal && (!node_is(node, OP_Div) || !is_uniform_number(node_input(node, 0), 1))) return NULL;
  Node *sum = made_by(cell, node_input(node, reciprocal ? 0 : 1), OP_Add);
  size_t one = sum && is_uniform_number(node_input(sum, 0), 1) ? 0 : 1;
  if (!sum || !is_uniform_number(node_input(sum, one), 1)) return NULL;
  Node *power = made_by(cell, node_input(sum, 1 - one), OP_Exp);
  Node *minus = power ? made_by(cell, node_input(power, 0), OP_Neg) : NULL;
  return minus ? node_input(minus, 0) : NULL;
}

static bool read_activation(const Cell *cell, Value *value, Squashed *squashed) {
  Lane lane = affine_lane(value);
  Node *node = lane.value->producer;
  if (!node || node->graph != cell->body) return false;
  if (node_is(node, OP_Sub) && is_uniform_number(node_input(node, 0), 1) && lane.offset == 0) {
    if (!read_activation(cell, node_input(node, 1), squashed)) return false;
    squashed->complement = !squashed->complement;
    return true;
  }
  Value *argument = logistic_argument(cell, node);
  *squashed = (Squashed){.by.op = argument ? OP_Sigmoid : node->op};
  const Attribute *alpha = node_attribute(node, "alpha"), *beta = node_attribute(node, "beta");
  if (!argument && node_is(node, OP_HardSigmoid)) {
    squashed->by.alpha = alpha ? alpha->real : 0.2f;
    squashed->by.beta = beta ? beta->real : 0.5f;
  } else if (!argument && !node_is(node, OP_Sigmoid) && !node_is(node, OP_Tanh) && !node_is(node, OP_Relu)) {
    return false;
  }
  squashed->lane = affine_lane(argument ? argument : node_input(node, 0));
  squashed->lane.offset += lane.offset;
  return true;
}

static bool same_activation(Activation a, Activation b) {
  return a.op == b.op && a.alpha == b.alpha && a.beta == b.beta;
}

static bool same_lane(Lane a, Lane b) { return a.value == b.value && a.offset == b.offset; }

/* What lies between 0 and 1, and so does one minus it: the same of minus its argument. */
static bool read_gate(const Cell *cell, Value *value, Squashed *gate) {
  if (!read_activation(cell, value, gate)) return false;
  return gate->by.op == OP_Sigmoid || (gate->by.op == OP_HardSigmoid && (!gate->complement || gate->by.beta == 0.5f));
}

static bool read_candidate(const Cell *cell, Value *value, Squashed *candidate) {
  return read_activation(cell, value, candidate) && !candidate->complement &&
         (candidate->by.op == OP_Tanh || candidate->by.op == OP_Relu);
}

/* ---- the shape of a cell ---- */

/* A product of a gate and *other, in the given order of its factors. */
static bool gated(const Cell *cell, Value *value, size_t swapped, Squashed *gate, Value **other) {
  Node *product = made_by(cell, value, OP_Mul);
  if (!product || !read_gate(cell, node_input(product, swapped), gate)) return false;
  *other = affine_bare(node_input(product, 1 - swapped));
  return true;
}

/* The gate times this very other. */
static bool gates_value(const Cell *cell, Value *value, const Value *wanted, Squashed *gate) {
  Value *other;
  for (size_t swapped = 0; swapped < 2; swapped++) {
    if (gated(cell, value, swapped, gate, &other) && other == wanted) return true;
  }
  return false;
}

/* A gate times tanh, or what stands for it, of the candidate. */
static bool gates_candidate(const Cell *cell, Value *value, Squashed *gate, Squashed *candidate) {
  Value *other;
  for (size_t swapped = 0; swapped < 2; swapped++) {
    if (gated(cell, value, swapped, gate, &other) && read_candidate(cell, other, candidate)) return true;
  }
  return false;
}

static bool collect_gate(const Cell *cell, const Squashed *squashed, Affine *gate) {
  return affine_read(cell->scan, squashed->lane, cell->width, squashed->complement ? -1 : 1, gate);
}

/* memory' = f * memory + i * tanh(g), hidden' = o * tanh(memory'). */
static bool is_lstm(Cell *cell, Value *next_memory) {
  Node *sum = made_by(cell, next_memory, OP_Add);
  Squashed output, forget, input, candidate, result;
  if (!sum || !gates_candidate(cell, cell->next_hidden, &output, &result)) return false;
  if (result.lane.value != next_memory || result.lane.offset != 0) return false;
  for (size_t swapped = 0; swapped < 2; swapped++) {
    if (!gates_value(cell, node_input(sum, swapped), cell->memory, &forget)) continue;
    if (!gates_candidate(cell, node_input(sum, 1 - swapped), &input, &candidate)) continue;
    if (!same_activation(forget.by, input.by) || !same_activation(forget.by, output.by)) continue;
    cell->op = OP_LSTM;
    cell->gate_count = 4;
    cell->activations[0] = forget.by;
    cell->activations[1] = candidate.by;
    cell->activations[2] = result.by;
    return collect_gate(cell, &input, &cell->gates[0]) && collect_gate(cell, &output, &cell->gates[1]) &&
           collect_gate(cell, &forget, &cell->gates[2]) && collect_gate(cell, &candidate, &cell->gates[3]);
  }
  return false;
}

/* The next state of a GRU as a sum: state and candidate, each by itself and times the update gate. */
typedef struct Blend {
  Squashed update, candidate; /* with no value: not met yet */
  int state, state_gated, candidate_alone, candidate_gated;
} Blend;

/* Notes what is taken, or compares it with what was noted. */
static bool is_noted(Squashed *noted, const Squashed *found) {
  if (!noted->lane.value) *noted = *found;
  return same_lane(noted->lane, found->lane) && same_activation(noted->by, found->by);
}

/* Adds value * (alone + gated * update), both of which are -1, 0 or 1. */
static bool add_to_blend(const Cell *cell, Value *value, int alone, int gated_by, int depth, Blend *blend) {
  Squashed part;
  value = affine_bare(value);
  Node *node = value->producer;
  if (value == cell->hidden) {
    blend->state += alone;
    blend->state_gated += gated_by;
    return true;
  }
  if (read_candidate(cell, value, &part)) {
    blend->candidate_alone += alone;
    blend->candidate_gated += gated_by;
    return is_noted(&blend->candidate, &part);
  }
  if (!node || node->graph != cell->body || depth == 0) return false;
  if (node_is(node, OP_Add) || node_is(node, OP_Sub)) {
    int sign = node_is(node, OP_Sub) ? -1 : 1;
    return add_to_blend(cell, node_input(node, 0), alone, gated_by, depth - 1, blend) &&
           add_to_blend(cell, node_input(node, 1), sign * alone, sign * gated_by, depth - 1, blend);
  }
  for (size_t swapped = 0; swapped < 2 && gated_by == 0; swapped++) {
    Value *other;
    if (!gated(cell, value, swapped, &part, &other)) continue;
    bool complement = part.complement;
    part.complement = false;
    if (!is_noted(&blend->update, &part)) return false;
    return add_to_blend(cell, other, complement ? alone : 0, complement ? -alone : alone, depth - 1, blend);
  }
  return false;
}

/* hidden' = (1 - z) * tanh(n) + z * hidden, however it is multiplied out; or z where that has 1 - z. */
static bool is_update(const Cell *cell, Squashed *update, Squashed *candidate) {
  Blend blend = {0};
  if (!add_to_blend(cell, cell->next_hidden, 1, 0, DEEPEST_BLEND, &blend)) return false;
  if (!blend.update.lane.value || !blend.candidate.lane.value) return false;
  if (blend.state + blend.candidate_alone != 1 || blend.state_gated + blend.candidate_gated != 0) return false;
  bool complement = blend.state == 1;
  if (blend.state_gated != (complement ? -1 : 1) || (complement && blend.candidate_alone != 0)) return false;
  *update = blend.update;
  *candidate = blend.candidate;
  update->complement = complement;
  return !complement || update->by.op == OP_Sigmoid || update->by.beta == 0.5f;
}

/* The reset gate multiplies the state's part of the candidate, or the state before its product. */
static bool find_reset(Cell *cell, Affine *candidate, Squashed *reset) {
  Value *part;
  for (size_t swapped = 0; candidate->product && swapped < 2; swapped++) {
    if (!gated(cell, candidate->product, swapped, reset, &part)) continue;
    cell->candidate_state = (Affine){0};
    Lane lane = affine_lane(part);
    if (affine_read(cell->scan, lane, cell->width, 1, &cell->candidate_state)) return true;
  }
  for (size_t i = 0; !candidate->product && i < candidate->count; i++) {
    Value *source = candidate->terms[i].source;
    if (!source || source->graph != cell->body || source == cell->hidden) continue;
    cell->reset_state = source;
    return gates_value(cell, source, cell->hidden, reset);
  }
  return false;
}

static bool is_gru(Cell *cell) {
  Squashed update, candidate, reset;
  if (!is_update(cell, &update, &candidate)) return false;
  cell->op = OP_GRU;
  cell->gate_count = 3;
  cell->gates[2].takes_product = true;
  if (!collect_gate(cell, &candidate, &cell->gates[2])) return false;
  if (!find_reset(cell, &cell->gates[2], &reset) || !same_activation(reset.by, update.by)) return false;
  cell->activations[0] = update.by;
  cell->activations[1] = candidate.by;
  return collect_gate(cell, &update, &cell->gates[0]) && collect_gate(cell, &reset, &cell->gates[1]);
}

static bool is_plain(Cell *cell) {
  Squashed result;
  if (!read_activation(cell, cell->next_hidden, &result)) return false;
  if (result.complement && result.by.op != OP_Sigmoid) return false;
  cell->op = OP_RNN;
  cell->gate_count = 1;
  cell->activations[0] = result.by;
  return collect_gate(cell, &result, &cell->gates[0]);
}

/* ---- what its parts must be ---- */

static Value *body_output(const Cell *cell, uint32_t index) {
  return without_identity(cell->body->outputs.items[index]->value);
}

static void forget_gates(Cell *cell) {
  for (uint32_t i = 0; i < MOST_GATES; i++) cell->gates[i] = (Affine){0};
  cell->candidate_state = (Affine){0};
  cell->reset_state = NULL;
}

static bool find_cell(Cell *cell) {
  for (uint32_t hidden = 0; hidden < cell->state_count; hidden++) {
    cell->hidden_index = hidden;
    cell->hidden = cell->body->inputs.items[hidden];
    cell->next_hidden = body_output(cell, hidden);
    Type type = cell->hidden->type;
    if (!dtype_fits_float32(type.dtype) || type.rank < 1 || type.rank > 2) return false;
    if (!dim_is_constant(type.dims[type.rank - 1])) return false;
    cell->width = type.dims[type.rank - 1].constant;
    forget_gates(cell);
    if (cell->state_count == 1) {
      if (is_gru(cell)) return true;
      forget_gates(cell);
      return is_plain(cell);
    }
    cell->memory_index = 1 - hidden;
    cell->memory = cell->body->inputs.items[1 - hidden];
    if (is_lstm(cell, body_output(cell, 1 - hidden))) return type_equal(cell->memory->type, type);
  }
  return false;
}

/* Products are with the state or with one and the same input of all steps, one of each. */
static bool check_sources(Cell *cell, const Affine *sum, bool candidate) {
  size_t of_input = 0, of_state = 0;
  for (size_t i = 0; i < sum->count; i++) {
    const AffineTerm *term = &sum->terms[i];
    const Value *state = candidate && cell->reset_state ? cell->reset_state : cell->hidden;
    if (!term->source) continue;
    if (term->source == state) {
      of_state++;
      continue;
    }
    if (term->source->graph == cell->body || (cell->inputs && cell->inputs != term->source)) return false;
    if (cell->inputs && cell->batch_first != term->batch_first) return false;
    cell->inputs = term->source;
    cell->batch_first = term->batch_first;
    of_input++;
  }
  return of_input <= 1 && of_state <= 1;
}

/* The parts of a GRU's candidate: what the reset gate multiplies has the state, the rest has the input. */
static bool check_candidate(const Cell *cell) {
  if (!cell->gates[2].product) return true;
  for (size_t i = 0; i < cell->gates[2].count; i++) {
    if (cell->gates[2].terms[i].source == cell->hidden) return false;
  }
  for (size_t i = 0; i < cell->candidate_state.count; i++) {
    const Value *source = cell->candidate_state.terms[i].source;
    if (source && source != cell->hidden) return false;
  }
  return true;
}

static bool check_parts(Cell *cell) {
  bool gru = cell->op == OP_GRU;
  for (uint32_t i = 0; i < cell->gate_count; i++) {
    if (!check_sources(cell, &cell->gates[i], gru && i == 2)) return false;
  }
  if (gru && (!check_sources(cell, &cell->candidate_state, false) || !check_candidate(cell))) return false;
  if (!cell->inputs) return false;
  Type inputs = cell->inputs->type, state = cell->hidden->type;
  if (inputs.rank != state.rank + 1 || !dim_is_constant(inputs.dims[inputs.rank - 1])) return false;
  if (state.rank == 2 && !dim_equal(inputs.dims[cell->batch_first ? 0 : 1], state.dims[0])) return false;
  int64_t features = inputs.dims[inputs.rank - 1].constant;
  return (features + cell->width) * cell->width * cell->gate_count <= LARGEST_PACKED / (int64_t)sizeof(float);
}

/* ---- what is computed from each state ---- */

/* What the loop hands out slices of, when the value is a slice; else NULL. */
static Value *all_slices(const Cell *cell, const Value *value) {
  for (uint32_t i = cell->state_count; i < cell->scan->input_count; i++) {
    if (cell->body->inputs.items[i] == value) return cell->scan->inputs[i].value;
  }
  return NULL;
}

static bool is_liftable(const Cell *cell, Value *value, int depth);

/* Operands of the step have the rank and the sizes of the result, and at least one is there: with one more axis in
 * front they broadcast as before. */
static bool lifts_elementwise(const Cell *cell, const Node *node, int depth) {
  Type type = node->outputs[0]->type;
  size_t lifted = 0;
  if (node->output_count != 1) return false;
  for (uint32_t i = 0; i < node->input_count; i++) {
    Value *value = node->inputs[i].value;
    if (!value || value->type.rank > type.rank) return false;
    if (value->graph != cell->body) continue;
    if (!type_same_shape(value->type, type) || !is_liftable(cell, value, depth)) return false;
    lifted++;
  }
  return lifted > 0;
}

static bool lifts_product(const Cell *cell, const Node *node, int depth) {
  Value *left = node_input(node, 0), *matrix = node_input(node, 1), *bias = node_input(node, 2);
  bool gemm = node_is(node, OP_Gemm);
  const Attribute *alpha = node_attribute(node, "alpha"), *beta = node_attribute(node, "beta");
  if (gemm && (node_int_or(node, "transA", 0) || (alpha && alpha->real != 1) || (beta && beta->real != 1)))
    return false;
  if (matrix->graph == cell->body || matrix->type.rank != 2 || left->type.rank != cell->hidden->type.rank) return false;
  if (gemm && bias && (bias->graph == cell->body || bias->type.rank > 1)) return false;
  return is_liftable(cell, left, depth);
}

/* Can the value be computed for all steps at once, from the states and inputs of all? */
static bool is_liftable(const Cell *cell, Value *value, int depth) {
  if (affine_bare(value) == cell->next_hidden || all_slices(cell, value)) return true;
  const Node *node = value->producer;
  if (!node || node->graph != cell->body || depth == 0) return false;
  if (node_is(node, OP_MatMul) || node_is(node, OP_Gemm)) return lifts_product(cell, node, depth - 1);
  return node_has(node, ELEMENTWISE) && lifts_elementwise(cell, node, depth - 1);
}

/* All slices are handed out in one direction, and those put together are the state's or computed from it. */
static bool check_outputs(Cell *cell) {
  const Attribute *in = node_attribute(cell->scan, "scan_input_directions");
  const Attribute *out = node_attribute(cell->scan, "scan_output_directions");
  cell->reverse = in && in->count && in->integers[0] == 1;
  for (size_t i = 0; in && i < in->count; i++) {
    if ((in->integers[i] == 1) != cell->reverse) return false;
  }
  for (uint32_t i = cell->state_count; i < cell->scan->output_count; i++) {
    const Value *value = cell->scan->outputs[i];
    if (!value || !value->uses) continue;
    if (!is_liftable(cell, body_output(cell, i), DEEPEST_READOUT)) return false;
    uint32_t at = i - cell->state_count;
    bool backwards = out && at < out->count && out->integers[at] == 1;
    if (backwards != cell->reverse) return false;
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
  if (!term->source) return false;
  return state == (term->source == cell->hidden || term->source == cell->reset_state);
}

/* The matrices of the input's or of the state's products, one gate below the other. */
static Value *pack_matrices(Cell *cell, bool state) {
  int64_t width = cell->width, columns = width;
  if (!state) columns = cell->inputs->type.dims[cell->inputs->type.rank - 1].constant;
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
      affine_copy(&sum->terms[i], data + row * columns, width, columns);
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
      if (sum->terms[i].source) continue;
      used[count++] = &sum->terms[i];
      affine_add(&sum->terms[i], data + row, width);
    }
  }
  return count ? packed(cell, tensor, used, count, "bias") : NULL;
}

/* ---- the operator ---- */

static const Origin *cell_origin(const Cell *cell, Emitter emitter) {
  const Origin *origin = cell->scan->origin;
  return origin_with_emitter(cell->rewriter->model->provenance, origin, emitter);
}

static Node *emit(Cell *cell, Emitter emitter, Op op, Value *const *inputs, size_t count, Type type) {
  return graph_node(cell->scan->graph, cell_origin(cell, emitter), op, inputs, count, &type, 1, cell->scan);
}

static Value *with_axes(Cell *cell, Value *value, const int64_t *axes, size_t count, Type type, Op op) {
  Value *numbers = rewrite_constant_ints(cell->rewriter, cell->scan, axes, count, cell->scan->origin);
  return emit(cell, REWRITE_EMITTER(cell->rewriter), op, (Value *[]){value, numbers}, 2, type)->outputs[0];
}

static Type make_type(const Cell *cell, const Dim *dims, uint32_t rank) {
  return type_make(cell->rewriter->context, cell->dtype, dims, rank);
}

static Dim batch_of(const Cell *cell) { return cell->hidden->type.rank == 2 ? cell->hidden->type.dims[0] : dim_of(1); }

/* Where the operator is not of the program's type, there is a cast at each border. */
static Value *in_type(Cell *cell, Value *value, DType dtype) {
  return rewrite_in_type(cell->rewriter, cell->scan, cell->scan->origin, value, dtype);
}

/* The inputs as steps, batch, features. */
static Value *steps_first(Cell *cell) {
  Type type = cell->inputs->type;
  Value *inputs = in_type(cell, cell->inputs, cell->dtype);
  const Dim dims[] = {type.dims[cell->batch_first ? 1 : 0], batch_of(cell), type.dims[type.rank - 1]};
  if (type.rank == 2) return with_axes(cell, inputs, (int64_t[]){1}, 1, make_type(cell, dims, 3), OP_Unsqueeze);
  if (!cell->batch_first) return inputs;
  Node *node = emit(cell, REWRITE_EMITTER(cell->rewriter), OP_Transpose, &inputs, 1, make_type(cell, dims, 3));
  node_set_ints(node, "perm", (int64_t[]){1, 0, 2}, 3);
  return node->outputs[0];
}

/* Zeros are what the operator starts with anyway. */
static bool is_zero(Value *value) {
  double number;
  const Node *node = affine_bare(value)->producer;
  if (node && node_is(node, OP_Expand)) value = affine_bare(node_input(node, 0));
  return uniform_number(value, &number) && number == 0;
}

static Value *start_of(Cell *cell, uint32_t state) {
  Value *value = cell->scan->inputs[state].value;
  if (is_zero(value)) return NULL;
  value = in_type(cell, value, cell->dtype);
  const Dim dims[] = {dim_of(1), batch_of(cell), dim_of(cell->width)};
  return with_axes(cell, value, (int64_t[]){0, 1}, value->type.rank == 2 ? 1 : 2, make_type(cell, dims, 3),
                   OP_Unsqueeze);
}

static bool is_used(const Value *value) { return value && value->uses; }

/* The scan's result is the operator's without the axis of directions. */
static void replace_result(Cell *cell, Value *old, Value *result, const int64_t *axes) {
  size_t count = cell->hidden->type.rank == 2 ? 1 : 2;
  Value *value = with_axes(cell, result, axes, count, type_with(old->type, cell->dtype), OP_Squeeze);
  value = in_type(cell, value, old->type.dtype);
  rewrite_take_name(value, old);
  value_replace(old, value);
}

static const int64_t of_steps[] = {1, 2}, of_state[] = {0, 1};

/* The type of the value of all steps. */
static Type of_all(const Cell *cell, Type type, Dim steps) {
  Dim dims[MAX_RANK] = {steps};
  for (uint32_t i = 0; i < type.rank; i++) dims[i + 1] = type.dims[i];
  return type_make(cell->rewriter->context, type.dtype, dims, type.rank + 1);
}

static Value *lifted(Cell *cell, Value *value, Value *states);

static Value *lifted_gemm(Cell *cell, const Node *node, Value *left) {
  Emitter emitter = REWRITE_EMITTER(cell->rewriter);
  Value *matrix = node_input(node, 1), *bias = node_input(node, 2);
  if (node_int_or(node, "transB", 0)) {
    const Dim dims[] = {matrix->type.dims[1], matrix->type.dims[0]};
    Type type = type_make(cell->rewriter->context, matrix->type.dtype, dims, 2);
    Node *transpose = emit(cell, emitter, OP_Transpose, &matrix, 1, type);
    node_set_ints(transpose, "perm", (int64_t[]){1, 0}, 2);
    matrix = transpose->outputs[0];
  }
  Type type = of_all(cell, node->outputs[0]->type, left->type.dims[0]);
  Value *product = emit(cell, emitter, OP_MatMul, (Value *[]){left, matrix}, 2, type)->outputs[0];
  return bias ? emit(cell, emitter, OP_Add, (Value *[]){product, bias}, 2, type)->outputs[0] : product;
}

/* The value of all steps at once, as is_liftable has found that it can be computed. */
static Value *lifted(Cell *cell, Value *value, Value *states) {
  if (affine_bare(value) == cell->next_hidden) return in_type(cell, states, value->type.dtype);
  Value *slices = all_slices(cell, value);
  if (slices) return slices;
  const Node *node = value->producer;
  Value **inputs = arena_new_array(&cell->rewriter->context->arena, node->input_count, Value *);
  for (uint32_t i = 0; i < node->input_count; i++) {
    Value *input = node->inputs[i].value;
    inputs[i] = input && input->graph == cell->body ? lifted(cell, input, states) : input;
  }
  if (node_is(node, OP_Gemm)) return lifted_gemm(cell, node, inputs[0]);
  Type type = of_all(cell, value->type, states->type.dims[0]);
  Node *copy = emit(cell, REWRITE_EMITTER(cell->rewriter), node->op, inputs, node->input_count, type);
  node_copy_attributes(copy, node);
  return copy->outputs[0];
}

/* What the loop computed from each state, now from all of them. */
static void replace_readout(Cell *cell, Value *old, Value *of_body, Value *steps) {
  size_t count = cell->hidden->type.rank == 2 ? 1 : 2;
  Dim dims[3] = {steps->type.dims[0]};
  for (uint32_t i = 0; i < cell->hidden->type.rank; i++) dims[i + 1] = cell->hidden->type.dims[i];
  Type type = make_type(cell, dims, cell->hidden->type.rank + 1);
  Value *states = with_axes(cell, steps, of_steps, count, type, OP_Squeeze);
  Value *value = in_type(cell, lifted(cell, of_body, states), old->type.dtype);
  rewrite_take_name(value, old);
  value_replace(old, value);
}

static void replace_results(Cell *cell, Node *node) {
  for (uint32_t i = 0; i < cell->scan->output_count; i++) {
    Value *old = cell->scan->outputs[i];
    if (!is_used(old)) continue;
    bool state = i < cell->state_count;
    uint32_t output = !state ? 0 : i == cell->hidden_index ? 1 : 2;
    Value *of_body = body_output(cell, i);
    if (!state && of_body != cell->next_hidden) {
      replace_readout(cell, old, of_body, node->outputs[0]);
      continue;
    }
    replace_result(cell, old, node->outputs[output], state ? of_state : of_steps);
  }
  node_leave_out_unused(node);
}

/* What only this loop reads goes with it: the products of all steps before it. */
static void hand_over_products(Cell *cell, Node *node) {
  for (uint32_t i = cell->state_count; i < cell->scan->input_count; i++) {
    Value *value = cell->scan->inputs[i].value;
    while (value->producer && value != cell->inputs && !value->uses->next) {
      rewrite_hand_over(cell->rewriter, node, value->producer);
      value = node_input(value->producer, 0);
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

static void emit_cell(Cell *cell) {
  bool lstm = cell->op == OP_LSTM, gru = cell->op == OP_GRU;
  Value *inputs[] = {steps_first(cell),
                     pack_matrices(cell, false),
                     pack_matrices(cell, true),
                     pack_biases(cell),
                     NULL,
                     start_of(cell, cell->hidden_index),
                     lstm ? start_of(cell, cell->memory_index) : NULL};
  size_t count = 7;
  while (!inputs[count - 1]) count--;
  const Dim steps[] = {inputs[0]->type.dims[0], dim_of(1), batch_of(cell), dim_of(cell->width)};
  const Type types[] = {make_type(cell, steps, 4), make_type(cell, steps + 1, 3), make_type(cell, steps + 1, 3)};
  Node *node = graph_node(cell->scan->graph, cell_origin(cell, REWRITE_EMITTER(cell->rewriter)), cell->op, inputs,
                          count, types, lstm ? 3 : 2, cell->scan);
  node_set_int(node, "hidden_size", cell->width);
  if (cell->reverse) node_set_string(node, "direction", "reverse");
  if (gru && !cell->reset_state) node_set_int(node, "linear_before_reset", 1);
  set_activations(cell, node);
  FOR_EACH_NODE(inner, cell->body) rewrite_hand_over(cell->rewriter, node, inner);
  hand_over_products(cell, node);
  replace_results(cell, node);
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
  bool halves = cell->hidden->type.dtype == DTYPE_FLOAT16 && cell->inputs->type.dtype == DTYPE_FLOAT16;
  for (uint32_t i = 0; i < cell->gate_count; i++) halves = halves && is_of_halves(&cell->gates[i]);
  halves = halves && is_of_halves(&cell->candidate_state);
  return halves && schema_runs(cell->op, NULL, cell->rewriter->model->opset, DTYPE_FLOAT16) ? DTYPE_FLOAT16
                                                                                            : DTYPE_FLOAT32;
}

static void fuse_scan(Rewriter *rewriter, Node *node) {
  if (!node_is_used(node) || target_has(rewriter->model->target, QUIRK_RECURRENT_IS_NOT_READ)) return;
  LoopShape shape;
  if (!loop_shape(node, &shape) || shape.carried == 0 || shape.carried > 2 || shape.carried == node->input_count)
    return;
  if (shape.body->inputs.count != node->input_count) return;
  if (node_attribute(node, "scan_input_axes") || node_attribute(node, "scan_output_axes")) return;
  Cell cell = {.rewriter = rewriter, .scan = node, .body = shape.body, .state_count = (uint32_t)shape.carried};
  if (!find_cell(&cell) || !check_parts(&cell) || !check_outputs(&cell)) return;
  cell.dtype = operator_type(&cell);
  if (schema_runs(cell.op, NULL, rewriter->model->opset, cell.dtype)) emit_cell(&cell);
}

/* ---- the pass ---- */

/* What is left where nothing joins the results. */
static void visit_last(Rewriter *rewriter, Node *node) {
  if (!node->is_gone && node_has(node, RECURRENT)) part_directions(rewriter, node);
}

static void visit(Rewriter *rewriter, Node *node) {
  if (node->is_gone) return; /* with the other results of two directions */
  if (node_is(node, OP_Scan)) fuse_scan(rewriter, node);
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
