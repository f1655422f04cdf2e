/* Activations that weigh x by a curve of it: Gelu, Sigmoid by Tanh, and what is made of them.
 *
 * Formulas are read as polynomials in x and in the curve, whatever the order of their products and sums: half of x and
 * half of x times the curve is a Gelu where the curve is Erf(x / sqrt 2), or Tanh of its cubic approximation. */
#include <math.h>

#include "onnx/facts/schema.h"
#include "passes/fuse/activations.h"

enum { DEGREES = 4, DEEPEST = 8 };

/* The sum of numbers[i][k] x^i curve^k. */
typedef struct Polynomial {
  double numbers[DEGREES][2];
} Polynomial;

typedef struct Formula {
  Match *match;
  Value *x;        /* before it was widened; NULL until it is met */
  Value *curve;    /* or NULL inside the curve itself */
  bool is_rounded; /* to a half, on the way */
  DType coarsest;  /* half that its numbers were rounded to; DTYPE_NONE: none was */
} Formula;

static bool is_curve(const Node *node) {
  return node_is(node, OP_Tanh) || node_is(node, OP_Erf) || node_is(node, OP_Erfc);
}

static void take(Formula *formula, Node *node) {
  Match *match = formula->match;
  if (!match_has(match, node) && match->node_count < MATCH_NODES) match->nodes[match->node_count++] = node;
}

static bool multiply(const Polynomial *a, const Polynomial *b, Polynomial *product) {
  *product = (Polynomial){0};
  for (int i = 0; i < DEGREES * 2; i++) {
    for (int k = 0; k < DEGREES * 2; k++) {
      double number = a->numbers[i / 2][i % 2] * b->numbers[k / 2][k % 2];
      int of_x = i / 2 + k / 2, of_curve = i % 2 + k % 2;
      if (number == 0) continue;
      if (of_x >= DEGREES || of_curve > 1) return false;
      product->numbers[of_x][of_curve] += number;
    }
  }
  return true;
}

/* A number of the formula, and how coarse its type is. */
static bool read_number(Formula *formula, const Value *value, double *number) {
  if (!uniform_number(value, number)) return false;
  DType precision = constant_of(value)->precision ? constant_of(value)->precision : value->type.dtype;
  if (dtype_is_half(precision)) formula->coarsest = precision;
  return true;
}

static bool read_polynomial(Formula *formula, Value *value, int depth, Polynomial *result);

static bool read_power(Formula *formula, const Node *node, int depth, Polynomial *result) {
  Polynomial base, product;
  double exponent;
  if (!uniform_number(node_input(node, 1), &exponent) || (exponent != 2 && exponent != 3)) return false;
  if (!read_polynomial(formula, node_input(node, 0), depth, &base)) return false;
  *result = base;
  for (int i = 1; i < (int)exponent; i++) {
    if (!multiply(result, &base, &product)) return false;
    *result = product;
  }
  return true;
}

static bool read_operator(Formula *formula, const Node *node, int depth, Polynomial *result) {
  Polynomial a, b;
  double divisor;
  if (node_is(node, OP_Pow)) return read_power(formula, node, depth, result);
  if (!read_polynomial(formula, node_input(node, 0), depth, &a)) return false;
  if (node_is(node, OP_Div)) {
    if (!read_number(formula, node_input(node, 1), &divisor) || divisor == 0) return false;
    b = (Polynomial){.numbers = {{1 / divisor}}};
    return multiply(&a, &b, result);
  }
  if (node_is(node, OP_Neg)) b = (Polynomial){.numbers = {{-1}}};
  else if (!read_polynomial(formula, node_input(node, 1), depth, &b)) return false;
  if (node_is(node, OP_Mul) || node_is(node, OP_Neg)) return multiply(&a, &b, result);
  double sign = node_is(node, OP_Sub) ? -1 : 1;
  for (int i = 0; i < DEGREES * 2; i++)
    result->numbers[i / 2][i % 2] = a.numbers[i / 2][i % 2] + sign * b.numbers[i / 2][i % 2];
  return true;
}

static bool is_arithmetic(const Node *node) {
  return node_is(node, OP_Add) || node_is(node, OP_Sub) || node_is(node, OP_Mul) || node_is(node, OP_Div) ||
         node_is(node, OP_Neg) || node_is(node, OP_Pow);
}

static bool read_polynomial(Formula *formula, Value *value, int depth, Polynomial *result) {
  double number;
  *result = (Polynomial){0};
  if (read_number(formula, value, &number)) {
    result->numbers[0][0] = number;
    return isfinite(number);
  }
  Node *node = value->producer;
  bool is_inside = node && node->graph == formula->match->root->graph && node->output_count == 1;
  if (value == formula->curve) {
    result->numbers[0][1] = 1;
    return true;
  }
  if (formula->x && value == formula->x) {
    result->numbers[1][0] = 1;
    return true;
  }
  if (is_inside && is_cast_of_half(node) && depth > 0) {
    take(formula, node);
    formula->is_rounded = formula->is_rounded || dtype_is_half(value->type.dtype);
    return read_polynomial(formula, node_input(node, 0), depth - 1, result);
  }
  if (!is_inside || !is_arithmetic(node) || depth == 0) return false;
  take(formula, node);
  return read_operator(formula, node, depth - 1, result);
}

/* ---- what it is a polynomial of ---- */

/* The curve nearest to the value. */
static Value *find_curve(const Match *match, Value *value, int depth) {
  const Node *node = value->producer;
  Value *found = NULL;
  if (!node || node->graph != match->root->graph || node->output_count != 1) return NULL;
  if (is_curve(node)) return value;
  if (depth == 0 || (!is_arithmetic(node) && !is_cast_of_half(node))) return NULL;
  for (size_t i = 0; i < node->input_count && !found; i++) {
    Value *input = node_input(node, i);
    found = input ? find_curve(match, input, depth - 1) : NULL;
  }
  return found;
}

/* ---- what it is ---- */

typedef enum Curve { NO_CURVE, CURVE_ERF, CURVE_ERFC, CURVE_TANH_CUBIC, CURVE_TANH_HALF } Curve;

/* What is left of a number that went through one or two products of the type. */
static bool is_near(DType dtype, double number, double wanted) {
  double share = dtype == DTYPE_BFLOAT16 ? 1.0 / 128 : dtype == DTYPE_FLOAT16 ? 1.0 / 512 : 1e-6;
  if (dtype == DTYPE_FLOAT64) share = 1e-13;
  return fabs(number - wanted) <= share * fabs(wanted);
}

static bool is_polynomial(DType dtype, const Polynomial *polynomial, const Polynomial *wanted) {
  for (int i = 0; i < DEGREES * 2; i++) {
    if (!is_near(dtype, polynomial->numbers[i / 2][i % 2], wanted->numbers[i / 2][i % 2])) return false;
  }
  return true;
}

/* The type that decides how near the numbers of a formula must be. */
static DType type_of_numbers(const Formula *formula) {
  return formula->coarsest ? formula->coarsest : formula->x->type.dtype;
}

#define ROOT_HALF 0.7071067811865476
#define ROOT_2_BY_PI 0.7978845608028654

static Curve curve_of(Op op, DType dtype, const Polynomial *inner) {
  const Polynomial half = {{{0, 0}, {0.5, 0}}}, root = {{{0, 0}, {ROOT_HALF, 0}}}, minus = {{{0, 0}, {-ROOT_HALF, 0}}};
  const Polynomial cubic = {{{0, 0}, {ROOT_2_BY_PI, 0}, {0, 0}, {ROOT_2_BY_PI * 0.044715, 0}}};
  if (op == OP_Erf) return is_polynomial(dtype, inner, &root) ? CURVE_ERF : NO_CURVE;
  if (op == OP_Erfc) return is_polynomial(dtype, inner, &minus) ? CURVE_ERFC : NO_CURVE;
  if (is_polynomial(dtype, inner, &half)) return CURVE_TANH_HALF;
  return is_polynomial(dtype, inner, &cubic) ? CURVE_TANH_CUBIC : NO_CURVE;
}

/* Of the values that the curve is computed from, the one that makes it a known curve; before it was widened, as the
 * half may stand beside the curve. */
static Curve find_x(Formula *formula, Value *value, int depth) {
  double number;
  bool is_widened = value->producer && is_cast_of_half(value->producer) && !dtype_is_half(value->type.dtype);
  Curve narrow = is_widened && depth > 0 ? find_x(formula, node_input(value->producer, 0), depth - 1) : NO_CURVE;
  if (narrow != NO_CURVE) return narrow;
  Polynomial inner;
  Formula tried = {.match = formula->match, .x = value};
  Node *curve = formula->curve->producer;
  if (uniform_number(value, &number)) return NO_CURVE;
  formula->match->node_count = 1;
  if (read_polynomial(&tried, node_input(curve, 0), DEEPEST, &inner)) {
    Curve found = curve_of(curve->op, type_of_numbers(&tried), &inner);
    formula->x = value;
    formula->is_rounded = tried.is_rounded;
    formula->coarsest = tried.coarsest;
    if (found != NO_CURVE) return found;
  }
  const Node *node = value->producer;
  if (!node || depth == 0 || !(is_arithmetic(node) || is_cast_of_half(node))) return NO_CURVE;
  for (size_t i = 0; i < node->input_count; i++) {
    Curve found = node_input(node, i) ? find_x(formula, node_input(node, i), depth - 1) : NO_CURVE;
    if (found != NO_CURVE) return found;
  }
  return NO_CURVE;
}

/* In the type of the root, or in float32 where the runtime has no kernel for a half. */
static bool emit_gated(Match *match, Value *x, Op op, Curve curve, bool is_product) {
  Type type = match_type(match);
  bool runs = schema_runs(op, NULL, match_opset(match), type.dtype);
  if (!runs && !(dtype_is_half(type.dtype) && schema_runs(op, NULL, match_opset(match), DTYPE_FLOAT32))) return false;
  Type made = runs ? type : type_with(type, DTYPE_FLOAT32);
  x = match_in_type(match, x, made.dtype);
  Node *node = EMIT_BEFORE(match, op, made, x);
  if (curve == CURVE_TANH_CUBIC) node_set_string(node, "approximate", "tanh");
  Value *result = node->outputs[0];
  for (size_t i = 1; i < match->node_count; i++) rewrite_hand_over(match->rewriter, node, match->nodes[i]);
  if (is_product) result = EMIT_BEFORE(match, OP_Mul, made, x, result)->outputs[0];
  if (runs) match_replace(match, result);
  else EMIT_MATCH(match, OP_Narrow, result);
  return true;
}

bool fuse_gated(Match *match) {
  const bool *made = match->rewriter->model->made;
  if (!made[OP_Tanh] && !made[OP_Erf] && !made[OP_Erfc]) return false;
  Formula formula = {.match = match, .curve = find_curve(match, match->root->outputs[0], 5)};
  if (!formula.curve) return false;
  Curve curve = find_x(&formula, node_input(formula.curve->producer, 0), DEEPEST);
  if (curve == NO_CURVE || !type_same_shape(formula.x->type, match_type(match))) return false;
  take(&formula, formula.curve->producer);
  Polynomial outer;
  if (!read_polynomial(&formula, match->root->outputs[0], DEEPEST, &outer)) return false;
  const Polynomial gate = {{{0.5, 0.5}}}, product = {{{0, 0}, {0.5, 0.5}}}, complement = {{{0, 0}, {0, 0.5}}};
  DType dtype = type_of_numbers(&formula);
  bool is_gate = curve == CURVE_TANH_HALF && is_polynomial(dtype, &outer, &gate);
  if (!is_gate && !is_polynomial(dtype, &outer, curve == CURVE_ERFC ? &complement : &product)) return false;
  if (formula.is_rounded && !dtype_is_half(formula.x->type.dtype)) return false;
  if (!match_closes_over(match, formula.x)) return false;
  if (curve == CURVE_TANH_HALF) return emit_gated(match, formula.x, OP_Sigmoid, curve, !is_gate);
  return emit_gated(match, formula.x, OP_Gelu, curve, false);
}
