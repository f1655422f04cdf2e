/* Activations: what JAX's functions spell out becomes ONNX's own operators.
 *
 * Rules build on each other: Relu is found first, Clip in what is left around it, HardSigmoid in a Clip, HardSwish in a
 * HardSigmoid. Each gives back NaN and infinities as its long form does.
 */
#include <math.h>

#include "passes/pattern.h"

enum { X_SLOT, A, B, C };
#define X ANY(X_SLOT)

/* Attributes are single floats: a number of a double that is none would lose its last places. */
static bool fits_attribute(const Match *match, double number) {
  return isfinite(number) && (match_dtype(match) != DTYPE_FLOAT64 || (double)(float)number == number);
}

static bool fuse_one_operand(Match *match) {
  return match_keeps_type(match) && EMIT_MATCH(match, match->rule->op, match->values[X_SLOT]);
}

/* ---- Relu, Clip, LeakyRelu ---- */

#define RELU EITHER(OP(Relu, X), OP(Max, X, NUMBER(0)))

static Value *scalar(Match *match, const Value *uniform) {
  const Tensor *tensor = constant_of(uniform);
  Tensor *single = arena_copy(&match->rewriter->context->arena, tensor, sizeof *tensor);
  single->rank = 0;
  single->dims = NULL;
  single->size = dtype_bytes(tensor->dtype, 1);
  return match_constant(match, single);
}

static bool fuse_clip_between(Match *match, const Value *low, const Value *high) {
  double least = NAN, most = NAN;
  if (!match_keeps_type(match)) return false;
  if (!uniform_number(low, &least) || !uniform_number(high, &most) || !(least <= most)) return false;
  return EMIT_MATCH(match, OP_Clip, match->values[X_SLOT], scalar(match, low), scalar(match, high));
}

static bool fuse_clip(Match *match) { return fuse_clip_between(match, match->values[A], match->values[B]); }

static bool fuse_clip_from_relu(Match *match) {
  Tensor *zero = match_tensor(match, match_dtype(match), type_scalar(match_dtype(match)));
  if (!match_keeps_type(match) || !(match_number(match, B) >= 0)) return false;
  return EMIT_MATCH(match, OP_Clip, match->values[X_SLOT], match_constant(match, zero),
                    scalar(match, match->values[B]));
}

static bool fuse_clip_from_where(Match *match) {
  double least = NAN, most = NAN, low = NAN, high = NAN;
  if (!uniform_number(match->values[A], &low) || !uniform_number(match->values[B], &high)) return false;
  if (!uniform_number(match->values[C], &least) || !uniform_number(match->values[C + 1], &most)) return false;
  if (low != least || high != most) return false;
  return fuse_clip_between(match, match->values[A], match->values[B]);
}

static bool fuse_leaky_relu(Match *match) {
  double slope = match_number(match, A);
  if (!match_keeps_type(match) || !fits_attribute(match, slope)) return false;
  node_set_float(EMIT_MATCH(match, OP_LeakyRelu, match->values[X_SLOT]), "alpha", (float)slope);
  return true;
}

/* The larger of x and a part of it. */
static bool fuse_leaky_relu_of_largest(Match *match) {
  double slope = match_number(match, A);
  return slope > 0 && slope <= 1 && fuse_leaky_relu(match);
}

/* ---- Elu, Selu, Celu ---- */

#define POSITIVE OP(Greater, X, NUMBER(0))
#define NEGATIVE_PART OP(Where, POSITIVE, UNIFORM(B), X)
#define ELU(below) OP(Where, POSITIVE, X, below)

/* The long form guards expm1 from what it does not need: any number is as good where x is positive. */
static bool fuse_elu_of(Match *match, double alpha) {
  if (!match_keeps_type(match) || !fits_attribute(match, alpha)) return false;
  node_set_float(EMIT_MATCH(match, OP_Elu, match->values[X_SLOT]), "alpha", (float)alpha);
  return true;
}

static bool fuse_elu(Match *match) { return fuse_elu_of(match, 1); }

static bool fuse_elu_scaled(Match *match) { return fuse_elu_of(match, match_number(match, A)); }

static bool fuse_selu(Match *match) {
  const Attribute *alpha = node_attribute(match->values[A]->producer, "alpha");
  double gamma = match_number(match, B);
  if (!match_keeps_type(match) || !alpha || !near_number(match_dtype(match), (double)alpha->real, 1.6732632423543772))
    return false;
  float kept = alpha->real;
  Node *selu = EMIT_MATCH(match, OP_Selu, match->values[X_SLOT]);
  node_set_float(selu, "alpha", kept);
  node_set_float(selu, "gamma", (float)gamma);
  return true;
}

#define CELU_PART OP(Min, X, NUMBER(0))

static bool fuse_celu_scaled(Match *match) {
  double alpha = match_number(match, A), divisor = match_number(match, B);
  if (!match_keeps_type(match) || alpha != divisor || !fits_attribute(match, alpha)) return false;
  node_set_float(EMIT_MATCH(match, OP_Celu, match->values[X_SLOT]), "alpha", (float)alpha);
  return true;
}

/* ---- Softplus, Mish, Softsign ---- */

#define LOG_OF_1_AND_EXP OP(Log1p, OP(Exp, OP(Neg, OP(Abs, X))))
#define SOFTPLUS_INNER OP(Add, RELU, LOG_OF_1_AND_EXP)
#define SOFTPLUS OP(Where, OP(Not, OP(Equal, X, X)), OP(Add, X, NUMBER(0)), SOFTPLUS_INNER)

/* relu(x) - b + log(1 + exp(-|x|)), the loss of a logit: the Softplus in it stands apart. */
static bool fuse_softplus_and_rest(Match *match) {
  if (!match_keeps_type(match) || !type_equal(match->values[X_SLOT]->type, match_type(match))) return false;
  Value *softplus = EMIT_BEFORE(match, OP_Softplus, match_type(match), match->values[X_SLOT])->outputs[0];
  return EMIT_MATCH(match, OP_Sub, softplus, match->values[B]);
}

/* ---- Sigmoid ---- */

#define ONE_AND_EXP OP(Add, NUMBER(1), OP(Exp, OP(Neg, X)))

/* x / (1 + exp(-x)). Not 1 / (1 + exp(-x)) alone: what is exact far below zero, where somebody may take the logarithm,
 * is 0 from -18 on in ONNX Runtime's Sigmoid; beside x that is no matter. */
static bool fuse_quotient_by_sigmoid(Match *match) {
  if (!match_keeps_type(match)) return false;
  Value *sigmoid = EMIT_BEFORE(match, OP_Sigmoid, match_type(match), match->values[X_SLOT])->outputs[0];
  return EMIT_MATCH(match, OP_Mul, match->values[X_SLOT], sigmoid);
}

/* ---- HardSigmoid, HardSwish ---- */

/* Clip(x + a, 0, b) / b */
static bool fuse_hard_sigmoid(Match *match) {
  double shift = match_number(match, A), most = NAN, least = NAN, divisor = match_number(match, C);
  const Node *clip = match->values[B]->producer;
  if (!uniform_number(node_input(clip, 1), &least) || !uniform_number(node_input(clip, 2), &most)) return false;
  if (!match_keeps_type(match) || least != 0 || !(most > 0) || divisor != most || !isfinite(shift / most)) return false;
  if (match_dtype(match) == DTYPE_FLOAT64) return false;
  Node *node = EMIT_MATCH(match, OP_HardSigmoid, match->values[X_SLOT]);
  node_set_float(node, "alpha", (float)(1 / most));
  node_set_float(node, "beta", (float)(shift / most));
  return true;
}

/* Clip(x / a + b, 0, 1), or with a product */
static bool fuse_hard_sigmoid_of_clip(Match *match) {
  double factor = match_number(match, A), shift = match_number(match, B), least = NAN, most = NAN;
  const Node *line = match->values[C]->producer;
  if (!uniform_number(node_input(match->root, 1), &least) || !uniform_number(node_input(match->root, 2), &most))
    return false;
  if (node_is(line, OP_Div)) factor = 1 / factor;
  if (!match_keeps_type(match) || least != 0 || most != 1 || !(factor > 0) || !isfinite(factor) || !isfinite(shift))
    return false;
  if (match_dtype(match) == DTYPE_FLOAT64) return false;
  Node *node = EMIT_MATCH(match, OP_HardSigmoid, match->values[X_SLOT]);
  node_set_float(node, "alpha", (float)factor);
  node_set_float(node, "beta", (float)shift);
  return true;
}

/* x * Clip(x + 3, 0, 6) / 6 */
static bool fuse_hard_swish_of_clip(Match *match) {
  const Node *clip = match->values[B]->producer;
  double least = NAN, most = NAN;
  if (!uniform_number(node_input(clip, 1), &least) || !uniform_number(node_input(clip, 2), &most)) return false;
  return least == 0 && most == 6 && fuse_one_operand(match);
}

static bool attribute_is(const Node *node, const char *name, double wanted) {
  const Attribute *attribute = node_attribute(node, name);
  return attribute && attribute->kind == ATTRIBUTE_FLOAT && near_number(DTYPE_FLOAT32, (double)attribute->real, wanted);
}

static bool fuse_hard_swish(Match *match) {
  const Node *sigmoid = match->values[A]->producer;
  const Attribute *alpha = node_attribute(sigmoid, "alpha");
  bool is_sixth = alpha && near_number(match_dtype(match), (double)alpha->real, 1.0 / 6);
  if (!is_sixth || !attribute_is(sigmoid, "beta", 0.5)) return false;
  return fuse_one_operand(match);
}

/* ---- Gelu ---- */

/* x * 0.5 * p, in the orders that are written. */
#define HALF_PRODUCT_1(p) OP(Mul, X, OP(Mul, NUMBER(0.5), p))
#define HALF_PRODUCT_2(p) OP(Mul, OP(Mul, NUMBER(0.5), X), p)
#define HALF_PRODUCT_3(p) OP(Mul, NUMBER(0.5), OP(Mul, X, p))
#define HALF_PRODUCT_4(p) OP(Div, OP(Mul, X, p), NUMBER(2))

#define CUBE OP(Mul, X, OP(Mul, X, X))
#define GELU_INNER OP(Mul, NUMBER(0.7978845608028654), OP(Add, X, OP(Mul, NUMBER(0.044715), CUBE)))
#define GELU_FACTORED \
  OP(Mul, OP(Mul, NUMBER(0.7978845608028654), X), OP(Add, NUMBER(1), OP(Mul, OP(Mul, NUMBER(0.044715), X), X)))
#define GELU_TANH OP(Add, NUMBER(1), OP(Tanh, EITHER(GELU_INNER, GELU_FACTORED)))
#define ROOT_HALF 0.7071067811865476
#define GELU_ERFC OP(Erfc, OP(Mul, OP(Neg, X), NUMBER(ROOT_HALF)))
/* The runtime has no Erf of halves: it is computed in float32. */
#define ERF_OF(v) EITHER(OP(Erf, v), OP(Narrow, OP(Erf, OP(Cast, v))))
#define GELU_ERF \
  OP(Add, NUMBER(1), ERF_OF(EITHER(OP(Mul, X, NUMBER(ROOT_HALF)), OP(Div, X, NUMBER(1.4142135623730951)))))
#define GELU_EXACT EITHER(GELU_ERFC, GELU_ERF)

static bool fuse_gelu_tanh(Match *match) {
  if (!match_keeps_type(match)) return false;
  node_set_string(EMIT_MATCH(match, OP_Gelu, match->values[X_SLOT]), "approximate", "tanh");
  return true;
}

/* The first that matches is taken. */
static const FusionRule rules[] = {
    {OP(Max, X, NUMBER(0)), OP_Relu, fuse_one_operand},
    {OP(Where, OP(Less, X, NUMBER(0)), NUMBER(0), X), OP_Relu, fuse_one_operand},
    {OP(Relu, OP(Min, X, UNIFORM(B))), OP_Clip, fuse_clip_from_relu},
    {OP(Min, RELU, UNIFORM(B)), OP_Clip, fuse_clip_from_relu},
    {OP(Min, OP(Max, X, UNIFORM(A)), UNIFORM(B)), OP_Clip, fuse_clip},
    {OP(Max, OP(Min, X, UNIFORM(B)), UNIFORM(A)), OP_Clip, fuse_clip},
    {OP(Where, OP(Greater, X, UNIFORM(C + 1)), UNIFORM(B), OP(Where, OP(Less, X, UNIFORM(C)), UNIFORM(A), X)), OP_Clip,
     fuse_clip_from_where},
    {OP(Where, EITHER(OP(GreaterOrEqual, X, NUMBER(0)), POSITIVE), X, OP(Mul, UNIFORM(A), X)), OP_LeakyRelu,
     fuse_leaky_relu},
    {OP(Where, OP(Less, X, NUMBER(0)), OP(Mul, UNIFORM(A), X), X), OP_LeakyRelu, fuse_leaky_relu},
    {OP(Max, X, OP(Mul, UNIFORM(A), X)), OP_LeakyRelu, fuse_leaky_relu_of_largest},
    {ELU(OP(Expm1, EITHER(NEGATIVE_PART, X))), OP_Elu, fuse_elu},
    {ELU(OP(Mul, UNIFORM(A), OP(Expm1, NEGATIVE_PART))), OP_Elu, fuse_elu_scaled},
    {OP(Mul, UNIFORM(B), OP_AT(A, Elu, X)), OP_Selu, fuse_selu},
    {OP(Add, RELU, OP(Expm1, CELU_PART)), OP_Celu, fuse_one_operand},
    {OP(Add, RELU, OP(Mul, UNIFORM(A), OP(Expm1, OP(Div, CELU_PART, UNIFORM(B))))), OP_Celu, fuse_celu_scaled},
    {SOFTPLUS, OP_Softplus, fuse_one_operand},
    {SOFTPLUS_INNER, OP_Softplus, fuse_one_operand},
    {OP(Add, OP(Sub, RELU, ANY(B)), LOG_OF_1_AND_EXP), OP_Softplus, fuse_softplus_and_rest},
    {OP(Where, OP(Not, OP(Equal, X, X)), OP(Add, X, NUMBER(0)), OP(Softplus, X)), OP_Softplus, fuse_one_operand},
    {OP(Mul, X, OP(Tanh, OP(Softplus, X))), OP_Mish, fuse_one_operand},
    {OP(Div, X, OP(Add, OP(Abs, X), NUMBER(1))), OP_Softsign, fuse_one_operand},
    {OP(Div, OP_AT(B, Clip, OP(Add, X, UNIFORM(A))), UNIFORM(C)), OP_HardSigmoid, fuse_hard_sigmoid},
    {OP(Mul, X, OP_AT(A, HardSigmoid, X)), OP_HardSwish, fuse_hard_swish},
    {OP(Clip, OP(Add, OP_AT(C, Div, X, UNIFORM(A)), UNIFORM(B))), OP_HardSigmoid, fuse_hard_sigmoid_of_clip},
    {OP(Clip, OP(Add, OP_AT(C, Mul, X, UNIFORM(A)), UNIFORM(B))), OP_HardSigmoid, fuse_hard_sigmoid_of_clip},
    {OP(Div, OP(Mul, X, OP_AT(B, Clip, OP(Add, X, NUMBER(3)))), NUMBER(6)), OP_HardSwish, fuse_hard_swish_of_clip},
    {OP(Mul, X, OP(Div, NUMBER(1), ONE_AND_EXP)), OP_Sigmoid, fuse_quotient_by_sigmoid},
    {OP(Mul, X, OP(Reciprocal, ONE_AND_EXP)), OP_Sigmoid, fuse_quotient_by_sigmoid},
    {OP(Div, X, ONE_AND_EXP), OP_Sigmoid, fuse_quotient_by_sigmoid},
    {OP(Mul, X, OP(Sigmoid, X)), OP_Swish, fuse_one_operand},
    {HALF_PRODUCT_1(GELU_TANH), OP_Gelu, fuse_gelu_tanh},
    {HALF_PRODUCT_2(GELU_TANH), OP_Gelu, fuse_gelu_tanh},
    {HALF_PRODUCT_3(GELU_TANH), OP_Gelu, fuse_gelu_tanh},
    {HALF_PRODUCT_4(GELU_TANH), OP_Gelu, fuse_gelu_tanh},
    {HALF_PRODUCT_1(GELU_EXACT), OP_Gelu, fuse_one_operand},
    {HALF_PRODUCT_2(GELU_EXACT), OP_Gelu, fuse_one_operand},
    {HALF_PRODUCT_3(GELU_EXACT), OP_Gelu, fuse_one_operand},
    {HALF_PRODUCT_4(GELU_EXACT), OP_Gelu, fuse_one_operand},
};

bool fuse_activations(Model *model) { return fuse_patterns(model, __func__, rules, sizeof rules / sizeof *rules); }
