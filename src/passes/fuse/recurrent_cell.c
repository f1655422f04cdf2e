/* Reading recurrent cells out of the body of a Scan. */
#include "passes/fuse/recurrent_cell.h"

#include "passes/pattern.h"

enum {
  DEEPEST_BLEND = 6,         /* operators between a GRU's next state and its parts */
  LARGEST_PACKED = 64 << 20, /* bytes of weights that are packed anew */
};

/* An activation of what is seen, or one minus it. */
typedef struct Squashed {
  View of;
  Activation by;
  bool complement;
} Squashed;

/* ---- activations ---- */

/* The operator of the step that computes what is seen, when it is this one; the view is settled. */
static Node *made_by(const Cell *cell, View *view, Op op) {
  *view = view_settled(&cell->frame, *view);
  Node *node = view->value->producer;
  return node && node->graph == cell->body && node_is(node, op) ? node : NULL;
}

/* The other operand where one is this number. */
static bool other_than(const View *view, double number, View *other) {
  const Node *node = view->value->producer;
  size_t at = is_uniform_number(node_input(node, 0), number) ? 0 : 1;
  return is_uniform_number(node_input(node, at), number) && view_operand(view, node, 1 - at, other);
}

/* 1 / (1 + exp(-x)) */
static bool logistic_argument(const Cell *cell, const View *view, View *argument) {
  const Node *node = view->value->producer;
  bool reciprocal = node_is(node, OP_Reciprocal);
  View sum, power, minus;
  if (!reciprocal && (!node_is(node, OP_Div) || !is_uniform_number(node_input(node, 0), 1))) return false;
  if (!view_operand(view, node, reciprocal ? 0 : 1, &sum) || !made_by(cell, &sum, OP_Add)) return false;
  if (!other_than(&sum, 1, &power) || !made_by(cell, &power, OP_Exp)) return false;
  if (!view_operand(&power, power.value->producer, 0, &minus) || !made_by(cell, &minus, OP_Neg)) return false;
  return view_operand(&minus, minus.value->producer, 0, argument);
}

static bool read_activation(const Cell *cell, View view, Squashed *squashed) {
  view = view_settled(&cell->frame, view);
  const Node *node = view.value->producer;
  View argument;
  if (!node || node->graph != cell->body) return false;
  if (node_is(node, OP_Sub) && is_uniform_number(node_input(node, 0), 1)) {
    if (!view_operand(&view, node, 1, &argument) || !read_activation(cell, argument, squashed)) return false;
    squashed->complement = !squashed->complement;
    return true;
  }
  bool logistic = logistic_argument(cell, &view, &argument);
  *squashed = (Squashed){.by.op = logistic ? OP_Sigmoid : node->op};
  const Attribute *alpha = node_attribute(node, "alpha"), *beta = node_attribute(node, "beta");
  if (!logistic && node_is(node, OP_HardSigmoid)) {
    squashed->by.alpha = alpha ? alpha->real : 0.2f;
    squashed->by.beta = beta ? beta->real : 0.5f;
  } else if (!logistic && !node_is(node, OP_Sigmoid) && !node_is(node, OP_Tanh) && !node_is(node, OP_Relu)) {
    return false;
  }
  if (!logistic && !view_operand(&view, node, 0, &argument)) return false;
  squashed->of = view_settled(&cell->frame, argument);
  return true;
}

static bool same_activation(Activation a, Activation b) {
  return a.op == b.op && a.alpha == b.alpha && a.beta == b.beta;
}

/* What lies between 0 and 1, and so does one minus it: the same of minus its argument. */
static bool read_gate(const Cell *cell, View view, Squashed *gate) {
  if (!read_activation(cell, view, gate)) return false;
  return gate->by.op == OP_Sigmoid || (gate->by.op == OP_HardSigmoid && (!gate->complement || gate->by.beta == 0.5f));
}

static bool read_candidate(const Cell *cell, View view, Squashed *candidate) {
  return read_activation(cell, view, candidate) && !candidate->complement &&
         (candidate->by.op == OP_Tanh || candidate->by.op == OP_Relu);
}

/* ---- the shape of a cell ---- */

/* A product of a gate and *other, in the given order of its factors. */
static bool gated(const Cell *cell, View view, size_t swapped, Squashed *gate, View *other) {
  View factor;
  const Node *product = made_by(cell, &view, OP_Mul);
  if (!product || !view_operand(&view, product, swapped, &factor) || !read_gate(cell, factor, gate)) return false;
  if (!view_operand(&view, product, 1 - swapped, other)) return false;
  *other = view_settled(&cell->frame, *other);
  return true;
}

/* The gate times this very other. */
static bool gates_view(const Cell *cell, View view, const View *wanted, Squashed *gate) {
  View other;
  for (size_t swapped = 0; swapped < 2; swapped++) {
    if (gated(cell, view, swapped, gate, &other) && view_same(&other, wanted)) return true;
  }
  return false;
}

/* A gate times tanh, or what stands for it, of the candidate. */
static bool gates_candidate(const Cell *cell, View view, Squashed *gate, Squashed *candidate) {
  View other;
  for (size_t swapped = 0; swapped < 2; swapped++) {
    if (gated(cell, view, swapped, gate, &other) && read_candidate(cell, other, candidate)) return true;
  }
  return false;
}

static bool collect_gate(const Cell *cell, const Squashed *squashed, Affine *gate) {
  return affine_read(&cell->frame, &squashed->of, squashed->complement ? -1 : 1, gate);
}

static Value *body_output(const Cell *cell, uint32_t index) { return cell->body->outputs.items[index]->value; }

/* What the step hands on, with its axes as those of the state. */
static View next_of(const Cell *cell, const View *state, uint32_t index) {
  View next = *state;
  next.value = body_output(cell, index);
  return view_settled(&cell->frame, next);
}

/* Is the memory held where the hidden state is? */
static bool is_held_alike(Cell *cell) {
  View condition;
  bool holds_if;
  bool is_held = read_held(cell, &cell->memory, cell->next_memory, &cell->next_memory, &condition, &holds_if);
  if (!is_held || !cell->held.value) return !is_held && !cell->held.value;
  return view_same(&condition, &cell->held) && holds_if == cell->holds_if;
}

/* The state beside the hidden one that hands on what is seen. Where the hidden one is not held, that may be what is
 * made or what is handed on. */
static bool find_memory(Cell *cell, const View *next) {
  for (uint32_t i = 0; i < cell->state_count; i++) {
    if (i == cell->hidden_index || !type_equal(cell->body->inputs.items[i]->type, cell->hidden.value->type)) continue;
    cell->memory = cell->hidden;
    cell->memory.value = cell->body->inputs.items[i];
    cell->memory_index = i;
    cell->next_memory = next_of(cell, &cell->memory, i);
    bool is_handed_on = view_same(&cell->next_memory, next);
    if (is_held_alike(cell) && (is_handed_on || view_same(&cell->next_memory, next))) return true;
  }
  return false;
}

/* memory' = f * memory + i * tanh(g), hidden' = o * tanh(memory'). */
static bool is_lstm(Cell *cell) {
  Squashed output, forget, input, candidate, result;
  if (!gates_candidate(cell, cell->next_hidden, &output, &result) || !find_memory(cell, &result.of)) return false;
  const Node *sum = made_by(cell, &cell->next_memory, OP_Add);
  for (size_t swapped = 0; sum && swapped < 2; swapped++) {
    View kept, added;
    if (!view_operand(&cell->next_memory, sum, swapped, &kept) ||
        !view_operand(&cell->next_memory, sum, 1 - swapped, &added))
      return false;
    if (!gates_view(cell, kept, &cell->memory, &forget) || !gates_candidate(cell, added, &input, &candidate)) continue;
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
  if (!noted->of.value) *noted = *found;
  return view_same(&noted->of, &found->of) && same_activation(noted->by, found->by);
}

/* Adds what is seen * (alone + gated * update), both of which are -1, 0 or 1. */
static bool add_to_blend(const Cell *cell, View view, int alone, int gated_by, int depth, Blend *blend) {
  Squashed part;
  view = view_settled(&cell->frame, view);
  const Node *node = view.value->producer;
  if (view_same(&view, &cell->hidden)) {
    blend->state += alone;
    blend->state_gated += gated_by;
    return true;
  }
  if (read_candidate(cell, view, &part)) {
    blend->candidate_alone += alone;
    blend->candidate_gated += gated_by;
    return is_noted(&blend->candidate, &part);
  }
  if (!node || node->graph != cell->body || depth == 0) return false;
  if (node_is(node, OP_Add) || node_is(node, OP_Sub)) {
    int sign = node_is(node, OP_Sub) ? -1 : 1;
    View one, other;
    return view_operand(&view, node, 0, &one) && view_operand(&view, node, 1, &other) &&
           add_to_blend(cell, one, alone, gated_by, depth - 1, blend) &&
           add_to_blend(cell, other, sign * alone, sign * gated_by, depth - 1, blend);
  }
  for (size_t swapped = 0; swapped < 2 && gated_by == 0; swapped++) {
    View other;
    if (!gated(cell, view, swapped, &part, &other)) continue;
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
  if (!blend.update.of.value || !blend.candidate.of.value) return false;
  if (blend.state + blend.candidate_alone != 1 || blend.state_gated + blend.candidate_gated != 0) return false;
  bool complement = blend.state == 1;
  if (blend.state_gated != (complement ? -1 : 1) || (complement && blend.candidate_alone != 0)) return false;
  *update = blend.update;
  *candidate = blend.candidate;
  update->complement = complement;
  return !complement || update->by.op == OP_Sigmoid || update->by.beta == 0.5f;
}

/* The reset gate multiplies the state's part of the candidate, or the state before its product. */
static bool find_reset(Cell *cell, const Affine *candidate, Squashed *reset) {
  View part;
  for (size_t swapped = 0; candidate->product.value && swapped < 2; swapped++) {
    if (!gated(cell, candidate->product, swapped, reset, &part)) continue;
    cell->candidate_state = (Affine){0};
    if (affine_read(&cell->frame, &part, 1, &cell->candidate_state)) return true;
  }
  for (size_t i = 0; !candidate->product.value && i < candidate->count; i++) {
    const View *source = &candidate->terms[i].source;
    if (!source->value || source->value->graph != cell->body || view_same(source, &cell->hidden)) continue;
    cell->reset_state = *source;
    return gates_view(cell, *source, &cell->hidden, reset);
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

/* Peepholes: the gates of an LSTM that are also told the memory, the last of them what it is then. */
static bool is_peephole(const Cell *cell, const AffineTerm *term, uint32_t gate) {
  return cell->op == OP_LSTM && gate < 3 && view_same(&term->source, gate == 1 ? &cell->next_memory : &cell->memory);
}

/* Products are with the state or with one and the same input of all steps. */
static bool check_sources(Cell *cell, const Affine *sum, uint32_t gate, const View *state) {
  for (size_t i = 0; i < sum->count; i++) {
    const AffineTerm *term = &sum->terms[i];
    if (term->kind == AFFINE_SCALED && !is_peephole(cell, term, gate)) return false;
    if (term->kind != AFFINE_PRODUCT || view_same(&term->source, state)) continue;
    bool in_step = term->source.value->graph == cell->body;
    if (in_step && !cell->inputs.value && !cell_can_lift(cell, term->source.value, false)) return false;
    if (cell->inputs.value && !view_same(&cell->inputs, &term->source)) return false;
    cell->inputs = term->source;
  }
  return true;
}

/* The parts of a GRU's candidate: what the reset gate multiplies has the state, the rest has the input. */
static bool check_candidate(const Cell *cell) {
  if (!cell->gates[2].product.value) return true;
  for (size_t i = 0; i < cell->gates[2].count; i++) {
    if (view_same(&cell->gates[2].terms[i].source, &cell->hidden)) return false;
  }
  for (size_t i = 0; i < cell->candidate_state.count; i++) {
    const AffineTerm *term = &cell->candidate_state.terms[i];
    if (term->kind == AFFINE_PRODUCT && !view_same(&term->source, &cell->hidden)) return false;
  }
  return true;
}

/* The input varies along the steps and the batch, wherever there is more than one. */
static bool check_inputs(const Cell *cell) {
  const View *inputs = &cell->inputs;
  if (!inputs->value) return false;
  uint32_t rank = inputs->value->type.rank;
  for (uint32_t i = 0; i < cell->frame.batches; i++) {
    if (view_axis(inputs, ALONG_BATCH + i) == rank) return false;
  }
  bool is_of_all = inputs->value->graph != cell->body && !dim_is(cell->frame.sizes[ALONG_STEPS], 1);
  if (is_of_all ? view_axis(inputs, ALONG_STEPS) == rank : rank == MOST_VIEWED) return false;
  return (inputs->length + cell->width) * cell->width * cell->gate_count <= LARGEST_PACKED / (int64_t)sizeof(float);
}

static bool check_parts(Cell *cell) {
  bool gru = cell->op == OP_GRU;
  for (uint32_t i = 0; i < cell->gate_count; i++) {
    bool is_reset = gru && i == 2 && cell->reset_state.value;
    if (!check_sources(cell, &cell->gates[i], i, is_reset ? &cell->reset_state : &cell->hidden)) return false;
  }
  if (gru && (!check_sources(cell, &cell->candidate_state, 2, &cell->hidden) || !check_candidate(cell))) return false;
  return check_inputs(cell) && (!cell->held.value || cell_has_lengths(cell));
}

/* ---- looking for one ---- */

static void forget_gates(Cell *cell) {
  for (uint32_t i = 0; i < MOST_GATES; i++) cell->gates[i] = (Affine){0};
  cell->candidate_state = (Affine){0};
  cell->reset_state = cell->inputs = (View){0};
}

/* The state with its features along that axis. */
static bool see_state(Cell *cell, uint32_t features) {
  Value *state = cell->body->inputs.items[cell->hidden_index];
  Type type = state->type;
  ViewFrame *frame = &cell->frame;
  frame->batches = 0;
  if (!is_viewable(state) || !dtype_fits_float32(type.dtype)) return false;
  if (!type_equal(type, body_output(cell, cell->hidden_index)->type)) return false;
  for (uint32_t i = 0; i < type.rank; i++) {
    if (i == features || dim_is(type.dims[i], 1)) continue;
    if (frame->batches == MOST_BATCHES) return false;
    frame->sizes[ALONG_BATCH + frame->batches++] = type.dims[i];
  }
  if (!view_all(frame, state, features, &cell->hidden)) return false;
  cell->width = cell->hidden.length;
  cell->handed_on = cell->next_hidden = next_of(cell, &cell->hidden, cell->hidden_index);
  cell->held = (View){0};
  cell->from_late = false;
  View made, condition;
  if (!read_held(cell, &cell->hidden, cell->handed_on, &made, &condition, &cell->holds_if)) return true;
  cell->next_hidden = made;
  cell->held = condition;
  return true;
}

static bool is_cell(Cell *cell, bool (*is_kind)(Cell *)) {
  forget_gates(cell);
  return is_kind(cell) && check_parts(cell);
}

bool find_cell(Cell *cell) {
  for (uint32_t state = 0; state < cell->state_count; state++) {
    cell->hidden_index = cell->memory_index = state;
    for (uint32_t axis = cell->body->inputs.items[state]->type.rank; axis-- > 0;) {
      if (!see_state(cell, axis)) continue;
      if (is_cell(cell, is_lstm) || is_cell(cell, is_gru) || is_cell(cell, is_plain)) return true;
    }
  }
  return false;
}

/* With some axis for the features, and those of the batch in any order. */
static bool is_seen(const Cell *cell, Value *value, const View *wanted, View *view) {
  if (!is_viewable(value)) return false;
  uint32_t orders = view_orders(&cell->frame);
  for (uint32_t way = value->type.rank * orders; way-- > 0;) {
    if (!view_ordered(&cell->frame, value, way / orders, orders - 1 - way % orders, view)) continue;
    View settled = view_settled(&cell->frame, *view);
    if (view_same(&settled, wanted)) return true;
  }
  return false;
}

bool is_next_hidden(const Cell *cell, Value *value, View *view) { return is_seen(cell, value, &cell->handed_on, view); }

bool is_new_hidden(const Cell *cell, Value *value, View *view) {
  return is_seen(cell, value, &cell->next_hidden, view);
}
