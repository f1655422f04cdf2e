/* Integers: remainders and quotients that are rounded down, which JAX makes from those that are rounded towards zero.
 *
 * A quotient and a remainder of the same numbers share their parts, and so the parts may be read by others: they are
 * left to be removed as dead code.
 */
#include <math.h>

#include "onnx/facts/schema.h"
#include "passes/pattern.h"

static Node *made_by(const Value *value, Op op) {
  Node *node = value ? value->producer : NULL;
  return node && node_is(node, op) ? node : NULL;
}

/* The same two operands, in either order. */
static bool compares(const Node *node, const Value *a, const Value *b) {
  const Value *first = node_input(node, 0), *second = node_input(node, 1);
  return (first == a && second == b) || (first == b && second == a);
}

/* Is it that the two numbers are not the same? */
static bool is_difference(const Value *value, const Value *a, const Value *b) {
  const Node *negation = made_by(value, OP_Not);
  const Node *equal = negation ? made_by(node_input(negation, 0), OP_Equal) : NULL;
  return equal && compares(equal, a, b);
}

/* Those that nothing reads go, readers first. */
static void drop_unused(Rewriter *rewriter, Node *const *nodes, size_t count, Node *receiver) {
  for (size_t i = 0; i < count; i++) {
    if (nodes[i] && !nodes[i]->is_gone) rewrite_drop_unused(rewriter, nodes[i], receiver);
  }
}

/* What is less than another is not equal to it. */
static void simplify_both(Rewriter *rewriter, Node *node) {
  for (size_t i = 0; i < 2; i++) {
    Value *value = node_input(node, i), *other = node_input(node, 1 - i);
    const Node *order = value->producer;
    if (!order || (!node_is(order, OP_Less) && !node_is(order, OP_Greater))) continue;
    if (!is_difference(other, node_input(order, 0), node_input(order, 1))) continue;
    if (!type_equal(value->type, node->outputs[0]->type)) continue;
    Node *negation = other->producer, *equal = node_input(negation, 0)->producer;
    Node *stays = rewrite_replace(rewriter, node, value);
    drop_unused(rewriter, (Node *[]){negation, equal}, 2, stays);
    return;
  }
}

/* Dividend and divisor, a positive constant. */
typedef struct Division {
  Value *dividend, *divisor;
  double number; /* that the divisor is */
} Division;

static bool read_division(const Node *node, Division *division) {
  if (!node) return false;
  *division = (Division){.dividend = node_input(node, 0), .divisor = node_input(node, 1)};
  if (!uniform_number(division->divisor, &division->number) || !(division->number > 0)) return false;
  return dtype_is_integer(division->dividend->type.dtype);
}

/* A remainder with the sign of the dividend. */
static bool read_remainder(const Value *value, Division *division) {
  const Node *node = made_by(value, OP_Mod);
  return node && node_int_or(node, "fmod", 0) && read_division(node, division);
}

static bool is_uniform(const Value *value, double number) { return value && is_uniform_number(value, number); }

static Value *emit(Rewriter *rewriter, Node *node, Op op, Value *a, Value *b, Type type) {
  Value *inputs[] = {a, b};
  return graph_node(node->graph, REWRITE_ORIGIN(rewriter, node), op, inputs, b ? 2 : 1, &type, 1, node)->outputs[0];
}

/* r + d where r < 0, else r. */
static bool fuse_remainder(Rewriter *rewriter, Node *node) {
  Value *remainder = node_input(node, 2);
  Node *less = made_by(node_input(node, 0), OP_Less), *sum = made_by(node_input(node, 1), OP_Add);
  Division division;
  Type type = node->outputs[0]->type;
  if (!less || !sum || !read_remainder(remainder, &division) || !type_equal(division.dividend->type, type))
    return false;
  if (node_input(less, 0) != remainder || !is_uniform(node_input(less, 1), 0)) return false;
  if (node_input(sum, 0) != remainder || !is_uniform(node_input(sum, 1), division.number)) return false;
  Node *stays =
      rewrite_replace(rewriter, node, emit(rewriter, node, OP_Mod, division.dividend, division.divisor, type));
  drop_unused(rewriter, (Node *[]){less, sum, remainder->producer}, 3, stays);
  return true;
}

/* The remainder that is compared with zero in "the dividend is positive or nothing remains". */
static Value *remainder_of_exact(const Node *either, const Division *division) {
  for (size_t i = 0; i < 2; i++) {
    const Node *positive = made_by(node_input(either, i), OP_Equal);
    const Node *exact = made_by(node_input(either, 1 - i), OP_Equal);
    const Node *sign = positive ? made_by(node_input(positive, 0), OP_Sign) : NULL;
    Division other;
    if (!sign || !exact || node_input(sign, 0) != division->dividend || !is_uniform(node_input(positive, 1), 1))
      continue;
    if (!read_remainder(node_input(exact, 0), &other) || !is_uniform(node_input(exact, 1), 0)) continue;
    if (other.dividend == division->dividend && other.number == division->number) return node_input(exact, 0);
  }
  return NULL;
}

/* Nothing overflows where the smallest number is a multiple of the divisor. */
static Value *quotient_of_multiple(Rewriter *rewriter, Node *node, const Division *division) {
  Type type = node->outputs[0]->type;
  Value *rest = emit(rewriter, node, OP_Mod, division->dividend, division->divisor, type);
  Value *multiple = emit(rewriter, node, OP_Sub, division->dividend, rest, type);
  return emit(rewriter, node, OP_Div, multiple, division->divisor, type);
}

/* One less where something negative remains. */
static Value *quotient_less_one(Rewriter *rewriter, Node *node, Value *quotient, Value *remainder) {
  Type type = node->outputs[0]->type;
  Value *zero = rewrite_constant_number(rewriter, node, type.dtype, 0, node->origin);
  Value *negative = emit(rewriter, node, OP_Less, remainder, zero, type_with(type, DTYPE_BOOL));
  Value *one = emit(rewriter, node, OP_Cast, negative, NULL, type);
  node_set_int(one->producer, "to", onnx_dtype(type.dtype));
  return emit(rewriter, node, OP_Sub, quotient, one, type);
}

/* q where the dividend is positive or nothing remains, else q - 1. */
static void fuse_quotient(Rewriter *rewriter, Node *node) {
  Value *quotient = node_input(node, 1);
  Node *less = made_by(node_input(node, 2), OP_Sub), *either = made_by(node_input(node, 0), OP_Or);
  Division division;
  Type type = node->outputs[0]->type;
  int exponent;
  if (!less || node_input(less, 0) != quotient || !is_uniform(node_input(less, 1), 1)) return;
  if (!read_division(made_by(quotient, OP_Div), &division) || !type_equal(division.dividend->type, type)) return;
  if (type.dtype != DTYPE_INT32 && type.dtype != DTYPE_INT64) return;
  Value *remainder = either ? remainder_of_exact(either, &division) : NULL;
  if (!remainder) return;
  bool is_power = frexp(division.number, &exponent) == 0.5;
  Node *sides[] = {node_input(either, 0)->producer, node_input(either, 1)->producer};
  Node *signs[] = {node_input(sides[0], 0)->producer, node_input(sides[1], 0)->producer};
  Node *stays = rewrite_replace(rewriter, node,
                                is_power ? quotient_of_multiple(rewriter, node, &division)
                                         : quotient_less_one(rewriter, node, quotient, remainder));
  drop_unused(rewriter, (Node *[]){either, sides[0], sides[1], signs[0], signs[1], less, quotient->producer}, 7, stays);
}

/* A Clip that cuts off what is below zero needs no Relu before it, which ONNX Runtime would try to merge into it
 * (CLIP_TAKES_IN_RELU). */
static void clip_once(Rewriter *rewriter, Node *node) {
  Value *value = node_input(node, 0), *low = node_input(node, 1);
  Node *relu = made_by(value, OP_Relu);
  double number = 0;
  if (!relu || relu->graph != node->graph || value_only_user(value) != node) return;
  if (dtype_fits_float32(value->type.dtype) || (low && !uniform_number(low, &number)) || !node_input(node, 2)) return;
  if (!low || number < 0) low = rewrite_constant_number(rewriter, node, value->type.dtype, 0, node->origin);
  Value *inputs[] = {node_input(relu, 0), low, node_input(node, 2)};
  Type type = node->outputs[0]->type;
  Node *clip = graph_node(node->graph, REWRITE_ORIGIN(rewriter, node), OP_Clip, inputs, 3, &type, 1, node);
  rewrite_replace(rewriter, node, clip->outputs[0]);
  rewrite_drop_unused(rewriter, relu, clip);
}

static void visit(Rewriter *rewriter, Node *node) {
  if (node_is(node, OP_And)) simplify_both(rewriter, node);
  else if (node_is(node, OP_Clip)) clip_once(rewriter, node);
  else if (node_is(node, OP_Where) && !fuse_remainder(rewriter, node)) fuse_quotient(rewriter, node);
}

bool fuse_integers(Model *model) {
  Rewriter rewriter;
  rewrite_begin(&rewriter, model, __func__);
  rewrite_each_node(&rewriter, visit);
  return rewrite_end(&rewriter);
}
