/* Weights that are divided by their sum only after the product with the values: exp(x - max) V / sum(exp(x - max)).
 *
 * They are divided before it, which is a Softmax, wherever the axes of the sum are those of the rows. */
#include <math.h>

#include "passes/analysis/masks.h"
#include "passes/fuse/attention_parts.h"

enum { LONGEST = 8, DEEPEST = 12 };

typedef struct Moves {
  Node *nodes[LONGEST];  /* the last first */
  size_t sides[LONGEST]; /* the input of each that is moved */
  size_t count;
  Value *source;
  bool puts_out; /* one of them does */
} Moves;

/* Weights of which some are put out once more: by 0, or above a diagonal. */
static bool puts_out(const Node *node, size_t *side) {
  double number;
  *side = 0;
  if (node_is(node, OP_Trilu)) return true;
  if (!node_is(node, OP_Where)) return false;
  *side = uniform_number(node_input(node, 1), &number) ? 2 : 1;
  return uniform_number(node_input(node, 3 - *side), &number) && number == 0 &&
         type_same_shape(node_input(node, *side)->type, node->outputs[0]->type);
}

/* The same by a product with ones and zeros, of which a NaN stays one: whether they are divided before or after it is
 * no matter. */
static bool multiplies_by_mask(Match *match, const Node *node, size_t *side) {
  Blend kept;
  if (!node_is(node, OP_Mul)) return false;
  for (*side = 0; *side < 2; ++*side) {
    if (type_same_shape(node_input(node, *side)->type, node->outputs[0]->type) &&
        read_kept(match, node_input(node, 1 - *side), &kept))
      return true;
  }
  return false;
}

typedef enum Walk {
  WALK_ANY,
  WALK_ALONE /* what only the match reads */,
  WALK_WEIGHTS /* and what puts them out */
} Walk;

static void walk_back(Match *match, Value *value, Walk walk, Moves *moves) {
  *moves = (Moves){.source = value};
  for (Node *node; moves->count < LONGEST && (node = moves->source->producer);) {
    size_t side = 0;
    bool is_put_out = walk == WALK_WEIGHTS && puts_out(node, &side);
    bool is_multiplied = !is_put_out && walk == WALK_WEIGHTS && multiplies_by_mask(match, node, &side);
    if (!is_multiplied && !is_put_out) side = 0;
    if (!keeps_numbers(node) && !is_put_out && !is_multiplied) return;
    if (walk != WALK_ANY && !match_take(match, moves->source, node->op)) return;
    moves->puts_out = moves->puts_out || is_put_out;
    moves->sides[moves->count] = side;
    moves->nodes[moves->count++] = node;
    moves->source = node_input(node, side);
  }
}

static bool follow(Atoms *atoms, const Moves *moves, Axes *axes) {
  for (size_t i = moves->count; i-- > 0;) {
    if (!follow_axes(atoms, moves->nodes[i], axes)) return false;
  }
  return axes_refine(atoms, axes);
}

/* exp(x - largest), as a hand-written softmax has it. */
static bool is_shifted_exp(const Value *value) {
  const Node *node = value->producer;
  const Node *difference = node && node_is(node, OP_Exp) ? node_input(node, 0)->producer : NULL;
  if (!difference || !node_is(difference, OP_Sub)) return false;
  node = node_input(difference, 1)->producer;
  for (int i = 0; i < LONGEST && node && !node_is(node, OP_ReduceMax); i++) {
    bool is_bounded = node_is(node, OP_Max) || node_is(node, OP_Min);
    if (!node_has(node, RENAMES) && !is_bounded) return false;
    const Node *first = node_input(node, 0)->producer;
    node = first || !is_bounded ? first : node_input(node, 1)->producer;
  }
  return node != NULL;
}

/* May a row be -inf altogether? Then its sum is NaN, and 0 divided by it as well. */
static bool may_be_infinite(const Value *value, int depth) {
  const Node *node = value->producer;
  double number;
  if (uniform_number(value, &number)) return !isfinite(number);
  if (!node || depth == 0) return false;
  if (keeps_numbers(node) || node_is(node, OP_Expand)) return may_be_infinite(node_input(node, 0), depth - 1);
  if (!node_has(node, ELEMENTWISE)) return false;
  for (size_t i = 0; i < node->input_count; i++) {
    if (node_input(node, i) && may_be_infinite(node_input(node, i), depth - 1)) return true;
  }
  return false;
}

typedef struct Quotient {
  Match *match;
  Moves of_result, of_weights, of_total;
  Node *product, *sum;
  size_t side; /* of the weights */
  int64_t axis;
} Quotient;

static bool read_sum(Quotient *quotient, const Value *weights) {
  bool axes[MAX_RANK];
  Node *sum = quotient->of_total.source->producer;
  if (!sum || !node_is(sum, OP_ReduceSum) || !reduced_axes(sum, axes)) return false;
  const Value *source = node_input(sum, 0);
  if (source->producer && is_cast_of_half(source->producer) && source != weights)
    source = node_input(source->producer, 0);
  if (source != weights) return false;
  quotient->sum = sum;
  quotient->axis = -1;
  for (uint32_t i = 0; i < weights->type.rank; i++) {
    if (!axes[i]) continue;
    if (quotient->axis >= 0) return false;
    quotient->axis = i;
  }
  return quotient->axis >= 0;
}

/* Does -inf take the place of scores, or is it added to them, wherever this condition puts weights out? */
static bool is_put_out_before(const Value *scores, const Value *condition, bool inverted, int depth) {
  const Node *node = scores->producer;
  TwoNumbers numbers;
  if (!node || depth == 0) return false;
  if (read_two_numbers(scores, &numbers))
    return numbers.mask == condition && (inverted ? numbers.kept : numbers.put_out) == -INFINITY;
  double number;
  bool is_scaled = (node_is(node, OP_Mul) || node_is(node, OP_Div)) && spread_number(node_input(node, 1), &number);
  if (is_cast_of_half(node) || (is_scaled && number > 0))
    return is_put_out_before(node_input(node, 0), condition, inverted, depth - 1);
  if (node_is(node, OP_Where)) {
    size_t kept = spread_number(node_input(node, 1), &number) ? 2 : 1;
    if (!spread_number(node_input(node, 3 - kept), &number)) return false;
    if (node_input(node, 0) == condition && (kept == 2) == inverted) return number == -INFINITY;
    return is_put_out_before(node_input(node, kept), condition, inverted, depth - 1);
  }
  return node_is(node, OP_Add) && (is_put_out_before(node_input(node, 0), condition, inverted, depth - 1) ||
                                   is_put_out_before(node_input(node, 1), condition, inverted, depth - 1));
}

/* Weights of a row of -inf are NaN, and so is their sum, which 0 is divided by where they are put out once more. The
 * quotient is NaN as it is without that; in other rows they are 0 already. */
static bool leave_out_zeros(Quotient *quotient) {
  Moves *moves = &quotient->of_weights;
  const Node *difference = node_input(moves->source->producer, 0)->producer;
  size_t left = 0;
  for (size_t i = 0; i < moves->count; i++) {
    const Node *node = moves->nodes[i];
    bool is_choice = node_is(node, OP_Where), inverted = moves->sides[i] == 2;
    if (node_is(node, OP_Trilu)) return false;
    if (is_choice && !is_put_out_before(node_input(difference, 0), node_input(node, 0), inverted, LONGEST))
      return false;
    moves->sides[left] = moves->sides[i];
    moves->nodes[left] = moves->nodes[i];
    left += !is_choice;
  }
  moves->count = left;
  return true;
}

static bool find_weights(Quotient *quotient) {
  Match *match = quotient->match;
  size_t before = match->node_count;
  for (size_t side = 0; side < 2; side++) {
    match->node_count = before;
    walk_back(match, node_input(quotient->product, side), WALK_WEIGHTS, &quotient->of_weights);
    quotient->side = side;
    Value *weights = quotient->of_weights.source;
    if (!is_shifted_exp(weights) || !read_sum(quotient, weights)) continue;
    return !quotient->of_weights.puts_out || !may_be_infinite(weights, DEEPEST) || leave_out_zeros(quotient);
  }
  return false;
}

/* Is every row divided by the sum of its own weights? */
static bool lines_up(const Quotient *quotient) {
  Atoms atoms = {.context = quotient->match->rewriter->context};
  Axes weights, total;
  const Value *source = quotient->of_weights.source;
  if (!axes_begin(&atoms, source->type, &weights)) return false;
  Axis key = weights.axis[quotient->axis];
  total = weights;
  total.axis[quotient->axis].count = 0;
  if (!node_int_or(quotient->sum, "keepdims", 1)) {
    total.rank--;
    for (uint32_t i = (uint32_t)quotient->axis; i < total.rank; i++) total.axis[i] = total.axis[i + 1];
  }
  if (!follow(&atoms, &quotient->of_weights, &weights) || weights.rank < 2) return false;
  if (!same_axis(&weights.axis[weights.rank - 1 - quotient->side], &key)) return false;
  Type values = node_input(quotient->product, 1 - quotient->side)->type;
  if (values.dtype == DTYPE_NONE || values.rank < 2 || values.rank > weights.rank) return false;
  Axis rows = weights.axis[weights.rank - 2 + quotient->side];
  Axis features = axis_begin(&atoms, values.dims[values.rank - 1 - quotient->side]);
  Axes result = weights;
  result.axis[result.rank - 2 + quotient->side] = rows;
  result.axis[result.rank - 1 - quotient->side] = features;
  if (!follow(&atoms, &quotient->of_result, &result) || !follow(&atoms, &quotient->of_total, &total)) return false;
  uint32_t more = total.rank > result.rank ? total.rank - result.rank : 0; /* leading axes of size 1 */
  for (uint32_t i = 0; i < more; i++) {
    if (total.axis[i].count) return false;
  }
  for (uint32_t i = 0; more && i < result.rank; i++) total.axis[i] = total.axis[i + more];
  total.rank -= more;
  if (!axes_refine(&atoms, &result)) return false;
  AtomSet features_only = axis_set(&features), missing = axes_set(&result) & ~axes_set(&total);
  for (uint32_t i = 0; i < total.rank; i++) {
    const Axis *axis = &total.axis[i];
    if (axis->count && !same_axis(axis, &result.axis[result.rank - total.rank + i])) return false;
  }
  return (missing & ~features_only) == 0;
}

static Value *copy_moves(Match *match, const Moves *moves, Value *value) {
  for (size_t i = moves->count; i-- > 0;) {
    const Node *node = moves->nodes[i];
    Value *inputs[3] = {0};
    for (size_t k = 0; k < node->input_count && k < 3; k++)
      inputs[k] = k == moves->sides[i] ? value : node_input(node, k);
    Node *copy = match_node_before(match, node->op, node->outputs[0]->type, inputs, node->input_count,
                                   REWRITE_EMITTER(match->rewriter));
    node_copy_attributes(copy, node);
    value = copy->outputs[0];
  }
  return value;
}

/* The sum, in the type of the weights, with an axis of size 1 where it was taken. */
static Value *total_of(Match *match, const Quotient *quotient, Type weights) {
  Dim dims[MOST_AXES];
  Value *total = match_in_type(match, quotient->sum->outputs[0], weights.dtype);
  if (node_int_or(quotient->sum, "keepdims", 1)) return total;
  for (uint32_t i = 0; i < weights.rank; i++) dims[i] = i == (uint32_t)quotient->axis ? dim_of(1) : weights.dims[i];
  Value *axes = rewrite_constant_ints(match->rewriter, match->root, &quotient->axis, 1, match->root->origin);
  Type type = type_make(match->rewriter->context, weights.dtype, dims, weights.rank);
  return EMIT_BEFORE(match, OP_Unsqueeze, type, total, axes)->outputs[0];
}

bool fuse_late_quotient(Match *match) {
  Quotient quotient = {.match = match};
  Value *values[2];
  walk_back(match, node_input(match->root, 0), WALK_ALONE, &quotient.of_result);
  quotient.product = match_take(match, quotient.of_result.source, OP_MatMul);
  if (!quotient.product || !same_from_end(node_input(match->root, 0)->type, match_type(match))) return false;
  walk_back(match, node_input(match->root, 1), WALK_ANY, &quotient.of_total);
  if (!find_weights(&quotient) || !lines_up(&quotient)) return false;
  Value *weights = quotient.of_weights.source;
  Value *shares =
      EMIT_BEFORE(match, OP_Div, weights->type, weights, total_of(match, &quotient, weights->type))->outputs[0];
  values[quotient.side] = copy_moves(match, &quotient.of_weights, shares);
  values[1 - quotient.side] = node_input(quotient.product, 1 - quotient.side);
  Value *made = EMIT_BEFORE(match, OP_MatMul, quotient.product->outputs[0]->type, values[0], values[1])->outputs[0];
  match_replace(match, with_shape(match, copy_moves(match, &quotient.of_result, made), match_type(match)));
  return true;
}
