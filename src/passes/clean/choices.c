/* Choices: what is known of values that are one thing or another.
 *
 * Mapped control flow chooses among operands and results, and libraries that keep a status as a number choose among
 * constants and compare what was chosen. A comparison of a choice among constants is the condition of the choice, and
 * a choice between a thing and itself is none. Where takes a runtime three times as long as And or Or. What two
 * conditions are not is what one of them is not, and a condition combined with itself, with its opposite, with what it
 * is a part of or with what follows from it is known; beside a condition, what is combined with it knows it. Masks that
 * were made numbers to be multiplied, subtracted from 1 and scaled are masks again, and one choice between two numbers.
 */
#include <math.h>

#include "onnx/evaluate/evaluate.h"
#include "onnx/facts/schema.h"
#include "passes/loop_body.h"
#include "passes/passes.h"
#include "passes/rewrite.h"
#include "types/numbers.h"

/* A Where, or a boolean as a number. */
typedef struct Choice {
  Node *node;
  Value *condition;
  Value *whens[2]; /* by the condition; NULL: the number 0 or 1 of the boolean */
} Choice;

static bool read_choice(const Value *value, Choice *choice) {
  Node *node = value ? value->producer : NULL;
  if (!node || (!node_is(node, OP_Where) && !node_is(node, OP_Cast)) || node->output_count != 1) return false;
  *choice = (Choice){.node = node, .condition = node_input(node, 0)};
  if (node_is(node, OP_Where)) {
    choice->whens[0] = node_input(node, 2);
    choice->whens[1] = node_input(node, 1);
  }
  return choice->condition->type.dtype == DTYPE_BOOL && type_same_shape(choice->condition->type, value->type);
}

static const Tensor *scalar_constant(const Value *value) {
  const Tensor *tensor = constant_of(value);
  return tensor && tensor->rank == 0 && dtype_bits(tensor->dtype) >= 8 ? tensor : NULL;
}

typedef enum Outcome { FALSE_THEN, TRUE_THEN, OPEN } Outcome;

static const Tensor *evaluated(Rewriter *rewriter, const Node *node, const Tensor *const *inputs, size_t count) {
  return evaluate_node(&(Evaluation){.context = rewriter->context,
                                     .node = node,
                                     .inputs = inputs,
                                     .input_count = count,
                                     .opset = rewriter->model->opset,
                                     .largest = sizeof(double)});
}

/* What the comparison says of the number in the place of its operand. */
static Outcome compare(Rewriter *rewriter, const Node *node, uint32_t operand, const Tensor *number) {
  const Tensor *inputs[2];
  inputs[operand] = number;
  inputs[1 - operand] = scalar_constant(node_input(node, 1 - operand));
  if (!number || !inputs[1 - operand]) return OPEN;
  const Tensor *result = evaluated(rewriter, node, inputs, 2);
  if (!result || result->dtype != DTYPE_BOOL) return OPEN;
  return *(const uint8_t *)result->data ? TRUE_THEN : FALSE_THEN;
}

/* The number that a boolean is then. */
static const Tensor *number_of_truth(Rewriter *rewriter, const Node *cast, bool truth) {
  const Tensor input = {.dtype = DTYPE_BOOL, .size = 1, .data = &(uint8_t){truth}}, *inputs[] = {&input};
  return evaluated(rewriter, cast, inputs, 1);
}

/* What it says of all that the value can be. */
static Outcome compare_all(Rewriter *rewriter, const Node *node, uint32_t operand, const Value *value, int depth) {
  Choice inner;
  if (constant_of(value)) return compare(rewriter, node, operand, scalar_constant(value));
  if (depth == 0 || !read_choice(value, &inner) || !inner.whens[0]) return OPEN;
  Outcome no = compare_all(rewriter, node, operand, inner.whens[0], depth - 1);
  Outcome yes = compare_all(rewriter, node, operand, inner.whens[1], depth - 1);
  return no == yes ? yes : OPEN;
}

static Outcome compare_when(Rewriter *rewriter, const Node *node, uint32_t operand, const Choice *choice, bool when) {
  enum { DEEPEST = 3 /* choices among choices: the work stays linear */ };
  if (choice->whens[when]) return compare_all(rewriter, node, operand, choice->whens[when], DEEPEST);
  return compare(rewriter, node, operand, number_of_truth(rewriter, choice->node, when));
}

static Value *node_before(Rewriter *rewriter, Node *node, Op op, Value *const *inputs, size_t count) {
  const Origin *origin = REWRITE_ORIGIN(rewriter, node);
  return graph_node(node->graph, origin, op, inputs, count, &node->outputs[0]->type, 1, node)->outputs[0];
}

static Value *negated(Rewriter *rewriter, Node *node, Value *condition) {
  return node_before(rewriter, node, OP_Not, &condition, 1);
}

/* The choice goes too when nothing else reads it. Where no node makes the value, those who read it now keep what the
 * two came from. */
static void replace_by(Rewriter *rewriter, Node *node, Value *value, Node *choice) {
  Node *reader = NULL;
  for (const Use *use = node->outputs[0]->uses; use && !value->producer; use = use->next) {
    if (use->node) rewrite_hand_over(rewriter, reader = use->node, node);
  }
  Node *stays = rewrite_replace(rewriter, node, value);
  if (choice) rewrite_drop_unused(rewriter, choice, stays ? stays : reader);
}

static Value *same_comparison(Rewriter *rewriter, Node *node, uint32_t operand, Value *instead) {
  Value *inputs[2];
  inputs[operand] = instead;
  inputs[1 - operand] = node_input(node, 1 - operand);
  Value *result = node_before(rewriter, node, node->op, inputs, 2);
  node_copy_attributes(result->producer, node);
  return result;
}

/* One of the two is open: it is compared itself, and the condition decides whether that counts. */
static void split_comparison(Rewriter *rewriter, Node *node, uint32_t operand, const Choice *choice, bool known,
                             Outcome outcome) {
  Value *condition = choice->condition, *open = choice->whens[!known];
  bool conjunction = outcome == FALSE_THEN;
  if (!type_same_shape(open->type, node->outputs[0]->type) || !value_only_user(choice->node->outputs[0])) return;
  if (known == conjunction) condition = negated(rewriter, node, condition);
  Value *operands[] = {condition, same_comparison(rewriter, node, operand, open)};
  Value *result = node_before(rewriter, node, conjunction ? OP_And : OP_Or, operands, 2);
  replace_by(rewriter, node, result, choice->node);
}

static void compare_choice(Rewriter *rewriter, Node *node, uint32_t operand) {
  Choice choice;
  const Value *value = node_input(node, operand);
  if (!read_choice(value, &choice) || !type_same_shape(value->type, node->outputs[0]->type)) return;
  Outcome no = compare_when(rewriter, node, operand, &choice, false);
  Outcome yes = compare_when(rewriter, node, operand, &choice, true);
  bool decided = no != OPEN && yes != OPEN;
  if (decided && no == FALSE_THEN && yes == TRUE_THEN) replace_by(rewriter, node, choice.condition, choice.node);
  else if (decided && no == TRUE_THEN && yes == FALSE_THEN)
    replace_by(rewriter, node, negated(rewriter, node, choice.condition), choice.node);
  else if (no == OPEN && yes != OPEN) split_comparison(rewriter, node, operand, &choice, true, yes);
  else if (yes == OPEN && no != OPEN) split_comparison(rewriter, node, operand, &choice, false, no);
}

static void simplify_comparison(Rewriter *rewriter, Node *node) {
  if (node->input_count != 2 || node->output_count != 1) return;
  for (uint32_t operand = 0; operand < 2 && !node->is_gone; operand++) {
    if (scalar_constant(node_input(node, 1 - operand))) compare_choice(rewriter, node, operand);
  }
}

/* A choice by what is not chooses the other way round. */
static void turn(Rewriter *rewriter, Node *node, Node *negation) {
  Value *inputs[] = {node_input(negation, 0), node_input(node, 2), node_input(node, 1)};
  Node *turned = rewrite_replace(rewriter, node, node_before(rewriter, node, OP_Where, inputs, 3));
  rewrite_hand_over(rewriter, turned, negation);
  rewrite_drop_unused(rewriter, negation, turned);
}

static void simplify_choice(Rewriter *rewriter, Node *node) {
  const Value *condition = node_input(node, 0);
  Value *chosen = node_input(node, 1);
  if (node->input_count != 3 || !condition || !chosen) return;
  bool same = chosen == node_input(node, 2) && type_equal(chosen->type, node->outputs[0]->type);
  if (same) replace_by(rewriter, node, chosen, NULL);
  else if (condition->producer && node_is(condition->producer, OP_Not)) turn(rewriter, node, condition->producer);
}

/* Numbers are converted before one of them is chosen. */
static void convert_before_choice(Rewriter *rewriter, Node *node) {
  const Value *value = node_input(node, 0);
  Node *choice = value ? value->producer : NULL;
  Type type = node->outputs[0]->type;
  Value *inputs[3];
  if (!choice || !node_is(choice, OP_Where) || choice->graph != node->graph || !value_only_user(value)) return;
  if (choice->input_count != 3 || !schema_runs(OP_Where, NULL, rewriter->model->opset, type.dtype)) return;
  inputs[0] = node_input(choice, 0);
  for (size_t i = 1; i < 3; i++) {
    const Tensor *number = scalar_constant(node_input(choice, i));
    const Tensor *converted = number ? evaluated(rewriter, node, &number, 1) : NULL;
    if (!converted) return;
    inputs[i] = rewrite_constant(rewriter, node, converted, node_input(choice, i)->origin);
  }
  replace_by(rewriter, node, node_before(rewriter, node, OP_Where, inputs, 3), choice);
}

/* ---- what is computed from a choice among numbers ---- */

/* What the node makes of one of the two numbers, in the place of its operand. */
static const Tensor *computed_when(Rewriter *rewriter, const Node *node, uint32_t operand, const Choice *choice,
                                   bool when) {
  const Tensor *inputs[2] = {NULL, NULL};
  inputs[operand] =
      choice->whens[when] ? scalar_constant(choice->whens[when]) : number_of_truth(rewriter, choice->node, when);
  if (node->input_count == 2) inputs[1 - operand] = scalar_constant(node_input(node, 1 - operand));
  if (!inputs[operand] || (node->input_count == 2 && !inputs[1 - operand])) return NULL;
  return evaluated(rewriter, node, inputs, node->input_count);
}

/* Of a few numbers in a step, a conversion and a product take ONNX Runtime less than a Where. */
static bool is_small_step(const Choice *choice, Type type) {
  enum { FEW = 64 };
  int64_t count;
  return node_is(choice->node, OP_Cast) && type_count(type, &count) && count < FEW &&
         stands_in_loop(choice->node->graph);
}

/* Both numbers are computed before one of them is chosen. */
static bool compute_before_choice(Rewriter *rewriter, Node *node, uint32_t operand) {
  Choice choice;
  const Value *value = node_input(node, operand);
  Type type = node->outputs[0]->type;
  Value *inputs[3];
  if (!read_choice(value, &choice) || choice.node->graph != node->graph || !value_only_user(value)) return false;
  if (is_small_step(&choice, type)) return false;
  if (!type_same_shape(value->type, type) || !schema_runs(OP_Where, NULL, rewriter->model->opset, type.dtype))
    return false;
  inputs[0] = choice.condition;
  for (size_t when = 0; when < 2; when++) {
    const Tensor *number = computed_when(rewriter, node, operand, &choice, when);
    if (!number || number->dtype != type.dtype) return false;
    inputs[2 - when] = rewrite_constant(rewriter, node, number, node->origin);
  }
  replace_by(rewriter, node, node_before(rewriter, node, OP_Where, inputs, 3), choice.node);
  return true;
}

/* A mask as numbers: perhaps with axes of size 1 put in, or spread. */
typedef struct Numbers {
  Node *cast, *moved; /* moved: NULL where it is not */
} Numbers;

static bool read_mask_as_numbers(const Value *value, Numbers *numbers) {
  Node *node = value ? value->producer : NULL;
  *numbers = (Numbers){.cast = node};
  if (node && (node_has(node, RENAMES) || node_is(node, OP_Expand))) {
    *numbers = (Numbers){node_input(node, 0)->producer, node};
    node = numbers->cast;
  }
  return node && node_is(node, OP_Cast) && node_input(node, 0)->type.dtype == DTYPE_BOOL &&
         dtype_is_float(node->outputs[0]->type.dtype);
}

static Value *mask_of_numbers(Rewriter *rewriter, Node *node, const Numbers *numbers) {
  Value *mask = node_input(numbers->cast, 0), *inputs[] = {mask, NULL};
  const Node *moved = numbers->moved;
  if (!moved) return mask;
  Type type = type_with(moved->outputs[0]->type, DTYPE_BOOL);
  if (moved->input_count > 1) inputs[1] = node_input(moved, 1);
  Node *copy =
      graph_node(node->graph, REWRITE_ORIGIN(rewriter, moved), moved->op, inputs, moved->input_count, &type, 1, node);
  node_copy_attributes(copy, moved);
  return copy->outputs[0];
}

/* The product of two masks as numbers is one as a number: both hold. */
static void multiply_masks(Rewriter *rewriter, Node *node) {
  Numbers one, other;
  Type type = node->outputs[0]->type;
  if (!read_mask_as_numbers(node_input(node, 0), &one) || !read_mask_as_numbers(node_input(node, 1), &other)) return;
  if (type.dtype != one.cast->outputs[0]->type.dtype || type.dtype != other.cast->outputs[0]->type.dtype) return;
  if (!value_only_user(node_input(node, 0)) || (one.cast != other.cast && !value_only_user(node_input(node, 1))))
    return;
  Value *inputs[] = {mask_of_numbers(rewriter, node, &one), mask_of_numbers(rewriter, node, &other)};
  Type mask = type_with(type, DTYPE_BOOL);
  Value *both = graph_node(node->graph, REWRITE_ORIGIN(rewriter, node), OP_And, inputs, 2, &mask, 1, node)->outputs[0];
  Value *number = node_before(rewriter, node, OP_Cast, &both, 1);
  node_set_int(number->producer, "to", onnx_dtype(type.dtype));
  Node *gone[] = {one.moved, one.cast, other.moved, other.cast};
  Node *stays = rewrite_replace(rewriter, node, number);
  for (size_t i = 0; i < 4; i++) {
    if (gone[i] && !gone[i]->is_gone) rewrite_drop_unused(rewriter, gone[i], stays);
  }
}

static bool is_arithmetic(const Node *node) {
  switch (node->op) {
    case OP_Add:
    case OP_Sub:
    case OP_Mul:
    case OP_Div:
    case OP_Neg:
    case OP_Log:
    case OP_Exp: return true;
    default: return false;
  }
}

static void compute_choice(Rewriter *rewriter, Node *node) {
  if (node->input_count > 2 || node->output_count != 1 || node->outputs[0]->type.dtype == DTYPE_NONE) return;
  for (uint32_t operand = 0; operand < node->input_count; operand++) {
    if (compute_before_choice(rewriter, node, operand)) return;
  }
  if (node_is(node, OP_Mul)) multiply_masks(rewriter, node);
}

/* ---- what is not ---- */

static Node *negation_of_one_reader(const Node *node, size_t index) {
  const Value *value = node_input(node, index);
  Node *negation = value ? value->producer : NULL;
  if (!negation || !node_is(negation, OP_Not) || negation->graph != node->graph) return NULL;
  return value_only_user(value) ? negation : NULL;
}

/* What an operand is not: what it negates, or a constant that nothing else reads, made anew. NULL: neither. */
static Value *negated_operand(Rewriter *rewriter, Node *node, size_t index) {
  Node *negation = negation_of_one_reader(node, index);
  Value *value = node_input(node, index);
  if (negation) return node_input(negation, 0);
  if (!value || !constant_of(value) || !value_has_one_use(value)) return NULL;
  return graph_node(node->graph, REWRITE_ORIGIN(rewriter, node), OP_Not, &value, 1, &value->type, 1, node)->outputs[0];
}

/* Not both is one or the other not: no node more, and one less where both were negated or what reads it can do
 * without. */
static void negate_once(Rewriter *rewriter, Node *node) {
  Node *left = negation_of_one_reader(node, 0), *right = negation_of_one_reader(node, 1);
  if (!left && !right) return;
  if (!(left || constant_of(node_input(node, 0))) || !(right || constant_of(node_input(node, 1)))) return;
  Value *inputs[] = {negated_operand(rewriter, node, 0), negated_operand(rewriter, node, 1)};
  if (!inputs[0] || !inputs[1]) return;
  Value *both = node_before(rewriter, node, node_is(node, OP_And) ? OP_Or : OP_And, inputs, 2);
  Node *stays = rewrite_replace(rewriter, node, negated(rewriter, node, both));
  if (left) rewrite_drop_unused(rewriter, left, stays);
  if (right) rewrite_drop_unused(rewriter, right, stays);
}

static bool is_negation(const Value *value, const Value *of) {
  const Node *node = value->producer;
  return node && node_is(node, OP_Not) && node_input(node, 0) == of;
}

/* Is it the one and something else, or the one or something else? */
static bool combines(const Value *value, Op op, const Value *one) {
  const Node *node = value->producer;
  return node && node_is(node, op) && (node_input(node, 0) == one || node_input(node, 1) == one);
}

/* One condition with itself, with what it is not, or with what it is part of. */
static bool combine_with_itself(Rewriter *rewriter, Node *node) {
  bool both = node_is(node, OP_And);
  for (size_t i = 0; i < 2; i++) {
    Value *one = node_input(node, i), *other = node_input(node, 1 - i);
    if (!type_equal(one->type, node->outputs[0]->type)) continue;
    if (is_negation(other, one)) {
      rewrite_replace_by_bytes(rewriter, node, !both);
      return node->is_gone;
    }
    if (one == other || combines(other, both ? OP_Or : OP_And, one)) {
      replace_by(rewriter, node, one, NULL);
      return true;
    }
  }
  return false;
}

/* The operand of a combination beside that one, or beside what that one is not; NULL: it is no such combination. */
static Value *beside(const Value *value, Op op, const Value *one, bool negated_one) {
  const Node *node = value->producer;
  for (size_t i = 0; node && node_is(node, op) && i < 2; i++) {
    const Value *operand = node_input(node, i);
    if (negated_one ? is_negation(operand, one) : operand == one) return node_input(node, 1 - i);
  }
  return NULL;
}

/* One condition and: the other or not the one, or not both the one and the other. The one is known there. */
static bool leave_out_known(Rewriter *rewriter, Node *node) {
  bool both = node_is(node, OP_And);
  for (size_t i = 0; i < 2; i++) {
    Value *one = node_input(node, i), *combination = node_input(node, 1 - i), *other, *inputs[2] = {one};
    const Node *negation = combination->producer;
    bool is_negated = negation && node_is(negation, OP_Not);
    other = is_negated ? beside(node_input(negation, 0), both ? OP_And : OP_Or, one, false)
                       : beside(combination, both ? OP_Or : OP_And, one, true);
    if (!other || !type_equal(one->type, other->type) || !value_only_user(combination)) continue;
    inputs[1] = is_negated ? negated(rewriter, node, other) : other;
    replace_by(rewriter, node, node_before(rewriter, node, node->op, inputs, 2), combination->producer);
    return true;
  }
  return false;
}

/* ---- what one comparison says of another ---- */

/* The numbers for which a comparison with a constant holds: none of them is NaN. */
typedef struct Interval {
  const Value *of;
  double from, to;
  bool without_from, without_to;
} Interval;

static bool read_bound(const Value *value, double *number) {
  const Tensor *tensor = constant_of(value);
  if (!tensor || (tensor->dtype != DTYPE_FLOAT32 && tensor->dtype != DTYPE_FLOAT64)) return false;
  if (tensor->size != dtype_bytes(tensor->dtype, 1)) return false;
  *number = number_decode(tensor->dtype, tensor->data);
  return !isnan(*number);
}

/* Up to the number, or from it on. */
static bool read_half_line(const Node *node, bool constant_first, double number, Interval *interval) {
  bool less = node_is(node, OP_Less) || node_is(node, OP_LessOrEqual);
  bool open = node_is(node, OP_Less) || node_is(node, OP_Greater);
  if (!less && !node_is(node, OP_Greater) && !node_is(node, OP_GreaterOrEqual)) return false;
  if (less != constant_first) interval->to = number, interval->without_to = open;
  else interval->from = number, interval->without_from = open;
  return true;
}

/* A size up to a number is a number between two. */
static bool read_size(const Node *size, Interval *interval) {
  if (interval->from != -INFINITY || interval->to < 0) return false;
  interval->of = node_input(size, 0);
  interval->from = -interval->to;
  interval->without_from = interval->without_to;
  return true;
}

static bool read_interval(const Value *condition, Interval *interval) {
  const Node *node = condition->producer;
  double number;
  if (!node || !node_has(node, COMPARES) || node->input_count != 2) return false;
  bool first = read_bound(node_input(node, 0), &number);
  if (!first && !read_bound(node_input(node, 1), &number)) return false;
  *interval = (Interval){.of = node_input(node, !first ? 0 : 1), .from = -INFINITY, .to = INFINITY};
  if (node_is(node, OP_Equal)) interval->from = interval->to = number;
  else if (!read_half_line(node, first, number, interval)) return false;
  const Node *made = interval->of->producer;
  return !made || !node_is(made, OP_Abs) || read_size(made, interval);
}

static bool lies_within(const Interval *inner, const Interval *outer) {
  bool from =
      inner->from > outer->from || (inner->from == outer->from && (inner->without_from || !outer->without_from));
  bool to = inner->to < outer->to || (inner->to == outer->to && (inner->without_to || !outer->without_to));
  return inner->of == outer->of && from && to;
}

/* What follows from the other condition is all that one or the other says, and adds nothing to both. */
static bool combine_with_consequence(Rewriter *rewriter, Node *node) {
  Interval sets[2];
  for (size_t i = 0; i < 2; i++) {
    if (!read_interval(node_input(node, i), &sets[i])) return false;
  }
  for (size_t i = 0; i < 2; i++) {
    size_t kept = node_is(node, OP_And) ? i : 1 - i;
    Value *stays = node_input(node, kept), *other = node_input(node, 1 - kept);
    if (!lies_within(&sets[i], &sets[1 - i]) || !type_equal(stays->type, node->outputs[0]->type)) continue;
    replace_by(rewriter, node, stays, other->producer);
    return true;
  }
  return false;
}

static void combine(Rewriter *rewriter, Node *node) {
  if (node->input_count != 2 || combine_with_itself(rewriter, node) || leave_out_known(rewriter, node)) return;
  if (!combine_with_consequence(rewriter, node)) negate_once(rewriter, node);
}

/* ---- all or any, as a number ---- */

/* The node that makes the value, which this one alone reads. */
static Node *only_maker(const Value *value, const Node *reader) {
  Node *node = value ? value->producer : NULL;
  if (!node || node->graph != reader->graph || node->output_count != 1) return NULL;
  return value_only_user(value) == reader ? node : NULL;
}

/* The least or largest of conditions that are counted as bytes, where it is read as a condition and counted again. */
static Node *counted_condition(const Node *node) {
  Node *truth = only_maker(node_input(node, 0), node);
  if (!truth || !node_is(truth, OP_Cast) || truth->outputs[0]->type.dtype != DTYPE_BOOL) return NULL;
  Node *reduction = only_maker(node_input(truth, 0), truth);
  if (!reduction || (!node_is(reduction, OP_ReduceMin) && !node_is(reduction, OP_ReduceMax))) return NULL;
  const Node *bytes = only_maker(node_input(reduction, 0), reduction);
  int64_t count; /* the least of no bytes is another than that of no other numbers */
  bool counts = bytes && node_is(bytes, OP_Cast) && node_input(bytes, 0)->type.dtype == DTYPE_BOOL &&
                type_count(node_input(bytes, 0)->type, &count) && count > 0;
  return counts && reduction->input_count <= 2 ? reduction : NULL;
}

/* They are counted as the last numbers from the start. */
static void count_once(Rewriter *rewriter, Node *node) {
  DType dtype = node->outputs[0]->type.dtype;
  Node *truth = node_input(node, 0)->producer, *reduction = counted_condition(node);
  if (!reduction || dtype != DTYPE_FLOAT32) return;
  Node *bytes = node_input(reduction, 0)->producer;
  Value *condition = node_input(bytes, 0), *numbers = node_before(rewriter, node, OP_Cast, &condition, 1);
  node_copy_attributes(numbers->producer, node);
  numbers->type = type_with(condition->type, dtype);
  Value *inputs[] = {numbers, node_input(reduction, 1)};
  Value *result = node_before(rewriter, node, reduction->op, inputs, reduction->input_count);
  node_copy_attributes(result->producer, reduction);
  rewrite_hand_over(rewriter, numbers->producer, bytes);
  rewrite_hand_over(rewriter, result->producer, reduction);
  replace_by(rewriter, node, result, truth);
}

static void convert(Rewriter *rewriter, Node *node) {
  convert_before_choice(rewriter, node);
  if (!node->is_gone && node_is(node, OP_Cast)) count_once(rewriter, node);
}

static void visit(Rewriter *rewriter, Node *node) {
  if (node_is(node, OP_Where)) simplify_choice(rewriter, node);
  else if (node_is(node, OP_And) || node_is(node, OP_Or)) combine(rewriter, node);
  else if (node_is(node, OP_Cast) || node_is(node, OP_Narrow)) convert(rewriter, node);
  else if (node_has(node, COMPARES)) simplify_comparison(rewriter, node);
  else if (is_arithmetic(node)) compute_choice(rewriter, node);
}

bool simplify_choices(Model *model) {
  Rewriter rewriter;
  rewrite_begin(&rewriter, model, __func__);
  rewrite_each_node(&rewriter, visit);
  return rewrite_end(&rewriter);
}
