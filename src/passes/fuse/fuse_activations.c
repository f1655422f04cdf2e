/* Activations: what JAX's functions spell out becomes ONNX's own operators.
 *
 * Rules build on each other: Relu is found first, Clip in what is left around it, HardSigmoid in a Clip, HardSwish in a
 * HardSigmoid. Each gives back NaN and infinities as its long form does.
 */
#include <math.h>

#include "onnx/facts/schema.h"
#include "passes/fuse/activations.h"
#include "target/target.h"
#include "types/numbers.h"

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

/* Integers keep their Max: ONNX Runtime rejects a Relu of integers before a Clip, which it merges. */
static bool fuse_relu(Match *match) { return dtype_is_float(match_dtype(match)) && fuse_one_operand(match); }

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

/* Where (x > b, b, relu x) */
static bool fuse_clip_from_where_relu(Match *match) {
  return match_number(match, B) == match_number(match, C) && fuse_clip_from_relu(match);
}

static bool emit_leaky_relu(Match *match, double slope) {
  if (!match_keeps_type(match) || !fits_attribute(match, slope)) return false;
  node_set_float(EMIT_MATCH(match, OP_LeakyRelu, match->values[X_SLOT]), "alpha", (float)slope);
  return true;
}

/* A slope of its own for each channel, or one that is a parameter: no attribute holds it. */
static bool fuse_parametric_relu(Match *match) {
  return match_keeps_type(match) && EMIT_MATCH(match, OP_PRelu, match->values[X_SLOT], match->values[A]);
}

static bool is_finite_constant(const Value *value) {
  const Tensor *tensor = constant_of(value);
  return tensor && is_all_finite(tensor);
}

/* relu(x) + a relu(-x), which is NaN for an infinite a: the slope is -a */
static bool fuse_parametric_relu_of_sum(Match *match) {
  Value *factor = match->values[A];
  if (!match_keeps_type(match) || !is_finite_constant(factor)) return false;
  Value *slope = EMIT_BEFORE(match, OP_Neg, factor->type, factor)->outputs[0];
  return EMIT_MATCH(match, OP_PRelu, match->values[X_SLOT], slope);
}

/* The same with a difference, or relu(x) + a min(x, 0) */
static bool fuse_parametric_relu_of_parts(Match *match) {
  return is_finite_constant(match->values[A]) && fuse_parametric_relu(match);
}

static bool fuse_leaky_relu(Match *match) { return emit_leaky_relu(match, match_number(match, A)); }

static bool fuse_leaky_relu_of_quotient(Match *match) { return emit_leaky_relu(match, 1 / match_number(match, B)); }

/* x above a number, and 0 for what is not, NaN among it: Relu would keep NaN. */
static bool fuse_thresholded(Match *match) {
  double threshold = match->values[A] ? match_number(match, A) : 0;
  if (!match_keeps_type(match) || !fits_attribute(match, threshold)) return false;
  node_set_float(EMIT_MATCH(match, OP_ThresholdedRelu, match->values[X_SLOT]), "alpha", (float)threshold);
  return true;
}

/* x less b above a, x and b below -a, and 0 between them and for NaN. */
static bool emit_shrink(Match *match, double beyond, double less) {
  if (!match_keeps_type(match) || !(beyond >= 0) || !fits_attribute(match, beyond) || !fits_attribute(match, less))
    return false;
  Node *node = EMIT_MATCH(match, OP_Shrink, match->values[X_SLOT]);
  node_set_float(node, "lambd", (float)beyond);
  node_set_float(node, "bias", (float)less);
  return true;
}

static bool fuse_shrink_of_size(Match *match) {
  return dtype_is_float(match_dtype(match)) && emit_shrink(match, match_number(match, A), 0);
}

/* Where (x > a, x - b, Where (x < -a, x + b, 0)) */
static bool fuse_shrink(Match *match) {
  double beyond = match_number(match, A), less = match->values[B] ? match_number(match, B) : 0;
  double added = match->values[C + 1] ? match_number(match, C + 1) : 0;
  if (!dtype_is_float(match_dtype(match)) || match_number(match, C) != -beyond || added != less) return false;
  return emit_shrink(match, beyond, less);
}

/* The larger of x and a part of it. */
static bool fuse_leaky_relu_of_largest(Match *match) {
  double slope = match_number(match, A);
  return slope > 0 && slope <= 1 && fuse_leaky_relu(match);
}

/* x with or without a number, and that below another number, else 0. */
#define BESIDE(op, at) EITHER(OP(op, X, UNIFORM(at)), X)
#define BELOW_OR_0(x, below) OP(Where, OP(Less, x, UNIFORM(C)), below, NUMBER(0))

/* ---- Elu, Selu, Celu ---- */

#define ABOVE(v) EITHER(OP(Greater, X, v), OP(Less, v, X))
#define FROM(v) EITHER(OP(GreaterOrEqual, X, v), OP(LessOrEqual, v, X))
#define POSITIVE EITHER(ABOVE(NUMBER(0)), FROM(NUMBER(0)))
#define NEGATIVE EITHER(EITHER(OP(Less, X, NUMBER(0)), OP(Greater, NUMBER(0), X)), OP(LessOrEqual, X, NUMBER(0)))
/* Where x is positive any number is as good, and at 0 it is x: a condition that takes in 0 might pick the number. */
#define NEGATIVE_PART EITHER(OP(Where, OP(Greater, X, NUMBER(0)), UNIFORM(B), X), EITHER(OP(Min, X, NUMBER(0)), X))
#define EXP_LESS_1(v) EITHER(OP(Expm1, v), EITHER(OP(Sub, OP(Exp, v), NUMBER(1)), OP(Add, OP(Exp, v), NUMBER(-1))))
/* x where it is positive, and what stands below. */
#define ELU(below) OP(Where, POSITIVE, X, below)
#define ELU_TURNED(below) OP(Where, NEGATIVE, below, X)
#define ELU_SUM(below) OP(Add, RELU, OP(Min, NUMBER(0), below))
#define BELOW EXP_LESS_1(NEGATIVE_PART)
#define SCALED_BELOW OP(Mul, UNIFORM(A), BELOW)
#define EXPANDED_BELOW OP(Sub, OP(Mul, UNIFORM(A), OP(Exp, NEGATIVE_PART)), UNIFORM(C))

/* The long form guards expm1 from what it does not need: any number is as good where x is positive. */
static bool fuse_elu_of(Match *match, double alpha) {
  if (!match_keeps_type(match) || !fits_attribute(match, alpha)) return false;
  node_set_float(EMIT_MATCH(match, OP_Elu, match->values[X_SLOT]), "alpha", (float)alpha);
  return true;
}

static bool fuse_elu(Match *match) { return fuse_elu_of(match, 1); }

static bool fuse_elu_scaled(Match *match) { return fuse_elu_of(match, match_number(match, A)); }

/* The lesser of 0 and a (exp(x) - 1), which is 0 where x is positive. */
static bool fuse_elu_of_least(Match *match) { return match_number(match, A) > 0 && fuse_elu_scaled(match); }

/* a exp(x) - a */
static bool fuse_elu_expanded(Match *match) {
  return match_number(match, A) == match_number(match, C) && fuse_elu_scaled(match);
}

/* c x, and a (exp(x) - 1) below */
static bool fuse_selu_inside(Match *match) {
  double gamma = match_number(match, C), scaled = match_number(match, A);
  if (!match_keeps_type(match) || !(gamma > 0) || match_dtype(match) == DTYPE_FLOAT64 || !isfinite(scaled / gamma))
    return false;
  Node *selu = EMIT_MATCH(match, OP_Selu, match->values[X_SLOT]);
  node_set_float(selu, "alpha", (float)(scaled / gamma));
  node_set_float(selu, "gamma", (float)gamma);
  return true;
}

static bool fuse_selu(Match *match) {
  const Attribute *alpha = node_attribute(match->values[A]->producer, "alpha");
  double gamma = match_number(match, B);
  if (!match_keeps_type(match) || !alpha || !near_number(DTYPE_BFLOAT16, (double)alpha->real, 1.6732632423543772))
    return false;
  float kept = alpha->real;
  Node *selu = EMIT_MATCH(match, OP_Selu, match->values[X_SLOT]);
  node_set_float(selu, "alpha", kept);
  node_set_float(selu, "gamma", (float)gamma);
  return true;
}

/* In float32 where the runtime has no kernel for a half. */
static bool emit_celu(Match *match, double alpha) {
  Type type = match_type(match);
  bool runs = schema_runs(OP_Celu, NULL, match_opset(match), type.dtype);
  if (!match_keeps_type(match) || !fits_attribute(match, alpha)) return false;
  if (!runs && !(dtype_is_half(type.dtype) && schema_runs(OP_Celu, NULL, match_opset(match), DTYPE_FLOAT32)))
    return false;
  Type made = runs ? type : type_with(type, DTYPE_FLOAT32);
  Node *node = EMIT_BEFORE(match, OP_Celu, made, match_in_type(match, match->values[X_SLOT], made.dtype));
  node_set_float(node, "alpha", (float)alpha);
  for (size_t i = 1; i < match->node_count; i++) rewrite_hand_over(match->rewriter, node, match->nodes[i]);
  if (runs) match_replace(match, node->outputs[0]);
  else EMIT_MATCH(match, OP_Narrow, node->outputs[0]);
  return true;
}

static bool fuse_celu(Match *match) { return emit_celu(match, 1); }

#define CELU_PART OP(Min, X, NUMBER(0))
#define DIVIDED(v) EITHER(OP_AT(C, Div, v, UNIFORM(B)), OP_AT(C, Mul, v, UNIFORM(B)))
#define CELU_BELOW(v) OP(Mul, UNIFORM(A), EXP_LESS_1(DIVIDED(v)))

/* a (exp(x / a) - 1), also with the product by 1 / a */
static bool fuse_celu_scaled(Match *match) {
  double alpha = match_number(match, A), number = match_number(match, B);
  double divisor = node_is(match->values[C]->producer, OP_Div) ? number : 1 / number;
  return alpha > 0 && near_number(match_dtype(match), divisor, alpha) && emit_celu(match, alpha);
}

/* ---- Softplus, Mish, Softsign ---- */

#define EXP_BELOW_0(v) OP(Exp, OP(Neg, OP(Abs, v)))
#define LOG_OF_1_AND(v) EITHER(OP(Log1p, EXP_BELOW_0(v)), OP(Log, OP(Add, NUMBER(1), EXP_BELOW_0(v))))
#define LOG_OF_1_AND_EXP LOG_OF_1_AND(X)
#define SOFTPLUS_INNER OP(Add, RELU, LOG_OF_1_AND_EXP)
/* logaddexp(0, x) */
#define SOFTPLUS_OF_0_AND_X \
  OP(Where, OP(Equal, OP_AT(C, Sub, NUMBER(0), X), ANY(C)), OP(Add, RELU, LOG_OF_1_AND(ANY(C))), OP(Add, X, NUMBER(0)))
#define SOFTPLUS OP(Where, OP(Equal, X, X), SOFTPLUS_INNER, OP(Add, X, NUMBER(0)))

#define SIZE_AND_1 OP(Add, OP(Abs, X), NUMBER(1))

/* relu(x) - b + log(1 + exp(-|x|)), the loss of a logit: the Softplus in it stands apart. */
static bool fuse_softplus_and_rest(Match *match) {
  if (!match_keeps_type(match) || !type_equal(match->values[X_SLOT]->type, match_type(match))) return false;
  Value *softplus = EMIT_BEFORE(match, OP_Softplus, match_type(match), match->values[X_SLOT])->outputs[0];
  return EMIT_MATCH(match, OP_Sub, softplus, match->values[B]);
}

/* The lesser of x and 0, less log(1 + exp(-|x|)): the logarithm of the sigmoid. */
static bool fuse_log_sigmoid(Match *match) {
  Type type = match_type(match);
  if (!match_keeps_type(match)) return false;
  Value *turned = EMIT_BEFORE(match, OP_Neg, type, match->values[X_SLOT])->outputs[0];
  return EMIT_MATCH(match, OP_Neg, EMIT_BEFORE(match, OP_Softplus, type, turned)->outputs[0]);
}

/* ---- Sigmoid ---- */

/* 1 + exp(-x), or with a product by a number below 0. */
#define ONE_AND_EXP OP(Add, NUMBER(1), OP(Exp, EITHER(OP(Neg, X), OP(Mul, X, UNIFORM(A)))))

/* Does anybody read the value who sees how it goes to 0? ONNX Runtime's Sigmoid is 0 from -18 on. */
static bool is_read_near_0(const Value *value) {
  for (const Use *use = value->uses; use; use = use->next) {
    if (!use->node) continue;
    if (node_is(use->node, OP_Log) || node_is(use->node, OP_Reciprocal) || node_is(use->node, OP_Pow)) return true;
    if (node_is(use->node, OP_Div) && node_input(use->node, 1) == value) return true;
    if (node_has(use->node, MOVES) && is_read_near_0(use->node->outputs[0])) return true;
  }
  return false;
}

/* Sigmoid(x), or of x times the number that it was the negative of. */
static Value *emit_sigmoid(Match *match) {
  Type type = match_type(match);
  Value *x = match->values[X_SLOT], *factor = match->values[A];
  if (factor) {
    double number = -match_number(match, A);
    factor = rewrite_constant_number(match->rewriter, match->root, type.dtype, number, factor->origin);
    x = EMIT_BEFORE(match, OP_Mul, type, x, factor)->outputs[0];
  }
  return EMIT_BEFORE(match, OP_Sigmoid, type, x)->outputs[0];
}

static bool has_sigmoid(const Match *match) {
  return match_keeps_type(match) && (!match->values[A] || match_number(match, A) < 0);
}

/* 1 / (1 + exp(-x)) */
static bool fuse_sigmoid(Match *match) {
  if (!has_sigmoid(match) || is_read_near_0(match->root->outputs[0])) return false;
  match_replace(match, emit_sigmoid(match));
  return true;
}

/* Written so that no exponential overflows: exp(-x) above 0, and exp(x) below, or exp(-|x|) on both sides. */
#define EXP_OF_SIZE OP_AT(B, Exp, OP(Neg, OP(Abs, X)))
#define ONE_AND_EXP_OF_SIZE OP_AT(C, Add, NUMBER(1), EXP_OF_SIZE)
#define INVERSE_OF_SUM EITHER(OP(Reciprocal, ONE_AND_EXP_OF_SIZE), OP(Div, NUMBER(1), ONE_AND_EXP_OF_SIZE))
#define SHARE_OF_EXP OP(Div, OP_AT(B, Exp, X), OP(Add, NUMBER(1), ANY(B)))
#define SHARE_OF_SUM OP(Div, ANY(B), ANY(C))
#define ONE_OR_EXP EITHER(OP(Where, POSITIVE, NUMBER(1), EXP_OF_SIZE), OP(Where, NEGATIVE, EXP_OF_SIZE, NUMBER(1)))

static bool fuse_careful_sigmoid(Match *match) {
  return !is_read_near_0(match->root->outputs[0]) && fuse_one_operand(match);
}

/* The logarithm of a sigmoid, which others may read: -log(1 + exp(-x)) is infinite where JAX's is. */
static bool fuse_log_of_sigmoid(Match *match) {
  const Node *sigmoid = match->values[X_SLOT]->producer;
  Type type = match_type(match);
  if (!sigmoid || !node_is(sigmoid, OP_Sigmoid) || !match_keeps_type(match)) return false;
  if (dtype_is_half(type.dtype)) return false; /* whose exponential is infinite from 12 on */
  match_take(match, match->values[X_SLOT], OP_Sigmoid);
  Value *one = rewrite_constant_number(match->rewriter, match->root, type.dtype, 1, match->root->origin);
  Value *power = EMIT_BEFORE(match, OP_Exp, type, EMIT_BEFORE(match, OP_Neg, type, node_input(sigmoid, 0))->outputs[0])
                     ->outputs[0];
  Value *sum = EMIT_BEFORE(match, OP_Add, type, one, power)->outputs[0];
  return EMIT_MATCH(match, OP_Neg, EMIT_BEFORE(match, OP_Log, type, sum)->outputs[0]);
}

/* Is it x, or x times a number? */
static bool is_multiple_of(const Value *value, const Value *x) {
  const Node *node = value->producer;
  double number;
  if (value == x || !node) return value == x;
  if (node_is(node, OP_Mul) && node_input(node, 1) == x) return uniform_number(node_input(node, 0), &number);
  bool is_first = node_is(node, OP_Mul) || node_is(node, OP_Div);
  return is_first && node_input(node, 0) == x && uniform_number(node_input(node, 1), &number);
}

/* x / (1 + exp(-a x)): beside x it is no matter how it goes to 0. */
static bool fuse_quotient_by_sigmoid(Match *match) {
  Value *x = match->values[B];
  if (!has_sigmoid(match) || !is_multiple_of(match->values[X_SLOT], x)) return false;
  return EMIT_MATCH(match, OP_Mul, x, emit_sigmoid(match));
}

/* ---- Erfc ---- */

/* JAX's normal distribution: 1 + erf(x) near 0, and the complement on either side. All of it is erfc(-x). */
#define ERFC_OF_SIZE OP(Erfc, OP(Abs, X))
#define NORMAL_TAILS OP(Where, OP(Greater, X, NUMBER(0)), OP(Sub, NUMBER(2), ERFC_OF_SIZE), ERFC_OF_SIZE)
#define NORMAL OP(Where, OP(Less, OP(Abs, X), UNIFORM(A)), OP(Add, NUMBER(1), OP(Erf, X)), NORMAL_TAILS)

static bool fuse_normal(Match *match) {
  if (!match_keeps_type(match) || match_dtype(match) == DTYPE_FLOAT64) return false;
  return EMIT_MATCH(match, OP_Erfc, EMIT_BEFORE(match, OP_Neg, match_type(match), match->values[X_SLOT])->outputs[0]);
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

static bool fuse_clipped_line(Match *match, double factor, double shift) {
  double least = NAN, most = NAN;
  if (!uniform_number(node_input(match->root, 1), &least) || !uniform_number(node_input(match->root, 2), &most))
    return false;
  if (!match_keeps_type(match) || least != 0 || most != 1 || !(factor > 0) || !isfinite(factor) || !isfinite(shift))
    return false;
  if (match_dtype(match) == DTYPE_FLOAT64) return false;
  Node *node = EMIT_MATCH(match, OP_HardSigmoid, match->values[X_SLOT]);
  node_set_float(node, "alpha", (float)factor);
  node_set_float(node, "beta", (float)shift);
  return true;
}

/* Clip(x / a + b, 0, 1), or with a product */
static bool fuse_hard_sigmoid_of_clip(Match *match) {
  double factor = match_number(match, A);
  bool is_quotient = node_is(match->values[C]->producer, OP_Div);
  return fuse_clipped_line(match, is_quotient ? 1 / factor : factor, match_number(match, B));
}

/* Clip((x + b) / a, 0, 1) */
static bool fuse_hard_sigmoid_of_sum(Match *match) {
  return fuse_clipped_line(match, 1 / match_number(match, A), match_number(match, B) / match_number(match, A));
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

/* ---- Swish ---- */

/* Without a kernel it is computed by the function that defines it, on whatever that runs on. The opset was asked for:
 * it is written nevertheless, unless a runtime was asked for as well. */
static bool takes_swish(const Match *match) {
  enum { SWISH_OPSET = 24 };
  const Target *target = match->rewriter->model->target;
  int64_t opset = match_opset(match);
  if (opset < SWISH_OPSET || !schema_runs(OP_Sigmoid, NULL, opset, match_dtype(match))) return false;
  if (opset > SWISH_OPSET && target_has(target, QUIRK_SWISH_IS_REFUSED_AFTER_24)) return false;
  return target_is_default(target) || !target_has(target, QUIRK_SWISH_HAS_NO_KERNEL);
}

static bool emit_swish(Match *match, double alpha) {
  if (!takes_swish(match) || !match_keeps_type(match) || !fits_attribute(match, alpha)) return false;
  Node *node = EMIT_MATCH(match, OP_Swish, match->values[X_SLOT]);
  if (alpha != 1) node_set_float(node, "alpha", (float)alpha);
  return true;
}

/* x sigmoid(x) */
static bool fuse_swish(Match *match) { return emit_swish(match, 1); }

/* x sigmoid(a x), also with a quotient */
static bool fuse_swish_scaled(Match *match) {
  double number = match_number(match, A);
  return emit_swish(match, node_is(match->values[C]->producer, OP_Div) ? 1 / number : number);
}

/* x sigmoid(-x) */
static bool fuse_swish_turned(Match *match) { return emit_swish(match, -1); }

/* The first that matches is taken. */
static const FusionRule rules[] = {
    {OP(Max, X, NUMBER(0)), OP_Relu, fuse_relu},
    {OP(Where, NEGATIVE, NUMBER(0), X), OP_Relu, fuse_relu},
    {OP(Relu, OP(Min, X, UNIFORM(B))), OP_Clip, fuse_clip_from_relu},
    {OP(Min, RELU, UNIFORM(B)), OP_Clip, fuse_clip_from_relu},
    {OP(Min, OP(Max, X, UNIFORM(A)), UNIFORM(B)), OP_Clip, fuse_clip},
    {OP(Max, OP(Min, X, UNIFORM(B)), UNIFORM(A)), OP_Clip, fuse_clip},
    {OP(Where, OP(Greater, X, UNIFORM(C)), UNIFORM(B), OP(Relu, X)), OP_Clip, fuse_clip_from_where_relu},
    {OP(Where, OP(Greater, X, UNIFORM(C + 1)), UNIFORM(B), OP(Where, OP(Less, X, UNIFORM(C)), UNIFORM(A), X)), OP_Clip,
     fuse_clip_from_where},
    {OP(Where, OP(Less, X, UNIFORM(C)), UNIFORM(A), OP(Where, OP(Greater, X, UNIFORM(C + 1)), UNIFORM(B), X)), OP_Clip,
     fuse_clip_from_where},
    {OP(Where, POSITIVE, X, OP(Mul, UNIFORM(A), X)), OP_LeakyRelu, fuse_leaky_relu},
    {OP(Where, NEGATIVE, OP(Mul, UNIFORM(A), X), X), OP_LeakyRelu, fuse_leaky_relu},
    {OP(Where, POSITIVE, X, OP(Div, X, UNIFORM(B))), OP_LeakyRelu, fuse_leaky_relu_of_quotient},
    {OP(Where, NEGATIVE, OP(Div, X, UNIFORM(B)), X), OP_LeakyRelu, fuse_leaky_relu_of_quotient},
    {OP(Add, RELU, OP(Mul, UNIFORM(A), OP(Min, X, NUMBER(0)))), OP_LeakyRelu, fuse_leaky_relu},
    {OP(Max, X, OP(Mul, UNIFORM(A), X)), OP_LeakyRelu, fuse_leaky_relu_of_largest},
    {OP(Sub, RELU, OP(Mul, UNIFORM(A), OP(Relu, OP(Neg, X)))), OP_LeakyRelu, fuse_leaky_relu},
    {OP(Mul, X, OP(Where, POSITIVE, NUMBER(1), UNIFORM(A))), OP_LeakyRelu, fuse_leaky_relu},
    {OP(Mul, X, OP(Where, NEGATIVE, UNIFORM(A), NUMBER(1))), OP_LeakyRelu, fuse_leaky_relu},
    {OP(Where, POSITIVE, X, OP(Mul, ANY(A), X)), OP_PRelu, fuse_parametric_relu},
    {OP(Where, NEGATIVE, OP(Mul, ANY(A), X), X), OP_PRelu, fuse_parametric_relu},
    {OP(Add, RELU, OP(Mul, CONSTANT(A), OP(Min, X, NUMBER(0)))), OP_PRelu, fuse_parametric_relu_of_parts},
    {OP(Sub, RELU, OP(Mul, CONSTANT(A), OP(Relu, OP(Neg, X)))), OP_PRelu, fuse_parametric_relu_of_parts},
    {OP(Add, RELU, OP(Mul, CONSTANT(A), OP(Relu, OP(Neg, X)))), OP_PRelu, fuse_parametric_relu_of_sum},
    {OP(Where, ABOVE(UNIFORM(A)), X, NUMBER(0)), OP_ThresholdedRelu, fuse_thresholded},
    {OP(Where, FROM(NUMBER(0)), X, NUMBER(0)), OP_ThresholdedRelu, fuse_thresholded},
    {OP(Where, OP(Greater, OP(Abs, X), UNIFORM(A)), X, NUMBER(0)), OP_Shrink, fuse_shrink_of_size},
    {OP(Where, OP(Greater, X, UNIFORM(A)), BESIDE(Sub, B), BELOW_OR_0(X, BESIDE(Add, C + 1))), OP_Shrink, fuse_shrink},
    {ELU(BELOW), OP_Elu, fuse_elu},
    {ELU_TURNED(BELOW), OP_Elu, fuse_elu},
    {ELU_SUM(EXP_LESS_1(EITHER(OP(Min, X, NUMBER(0)), X))), OP_Elu, fuse_elu},
    {ELU_SUM(OP(Mul, UNIFORM(A), EXP_LESS_1(X))), OP_Elu, fuse_elu_of_least},
    {OP(Add, RELU, OP(Mul, UNIFORM(A), EXP_LESS_1(CELU_PART))), OP_Elu, fuse_elu_scaled},
    {ELU(SCALED_BELOW), OP_Elu, fuse_elu_scaled},
    {ELU_TURNED(SCALED_BELOW), OP_Elu, fuse_elu_scaled},
    {ELU(EXPANDED_BELOW), OP_Elu, fuse_elu_expanded},
    {OP(Where, POSITIVE, OP(Mul, UNIFORM(C), X), SCALED_BELOW), OP_Selu, fuse_selu_inside},
    {OP(Mul, UNIFORM(B), OP_AT(A, Elu, X)), OP_Selu, fuse_selu},
    {OP(Add, RELU, OP(Expm1, CELU_PART)), OP_NONE, fuse_celu},
    {OP(Add, RELU, CELU_BELOW(CELU_PART)), OP_NONE, fuse_celu_scaled},
    {ELU(CELU_BELOW(EITHER(CELU_PART, X))), OP_NONE, fuse_celu_scaled},
    {ELU_TURNED(CELU_BELOW(EITHER(CELU_PART, X))), OP_NONE, fuse_celu_scaled},
    {ELU_SUM(CELU_BELOW(X)), OP_NONE, fuse_celu_scaled},
    {SOFTPLUS, OP_Softplus, fuse_one_operand},
    {SOFTPLUS_INNER, OP_Softplus, fuse_one_operand},
    {SOFTPLUS_OF_0_AND_X, OP_Softplus, fuse_one_operand},
    {OP(Sub, OP(Min, X, NUMBER(0)), LOG_OF_1_AND_EXP), OP_Softplus, fuse_log_sigmoid},
    {OP(Add, OP(Sub, RELU, ANY(B)), LOG_OF_1_AND_EXP), OP_Softplus, fuse_softplus_and_rest},
    {OP(Where, OP(Equal, X, X), OP(Softplus, X), OP(Add, X, NUMBER(0))), OP_Softplus, fuse_one_operand},
    {OP(Mul, X, OP(Tanh, OP(Softplus, X))), OP_Mish, fuse_one_operand},
    {OP(Div, X, SIZE_AND_1), OP_Softsign, fuse_one_operand},
    {OP(Mul, X, EITHER(OP(Reciprocal, SIZE_AND_1), OP(Div, NUMBER(1), SIZE_AND_1))), OP_Softsign, fuse_one_operand},
    {OP(Div, OP_AT(B, Clip, OP(Add, X, UNIFORM(A))), UNIFORM(C)), OP_HardSigmoid, fuse_hard_sigmoid},
    {OP(Mul, X, OP_AT(A, HardSigmoid, X)), OP_HardSwish, fuse_hard_swish},
    {OP(Clip, OP(Add, OP_AT(C, Div, X, UNIFORM(A)), UNIFORM(B))), OP_HardSigmoid, fuse_hard_sigmoid_of_clip},
    {OP(Clip, OP(Add, OP_AT(C, Mul, X, UNIFORM(A)), UNIFORM(B))), OP_HardSigmoid, fuse_hard_sigmoid_of_clip},
    {OP(Clip, OP(Div, OP(Add, X, UNIFORM(B)), UNIFORM(A))), OP_HardSigmoid, fuse_hard_sigmoid_of_sum},
    {OP(Div, OP(Mul, X, OP_AT(B, Clip, OP(Add, X, NUMBER(3)))), NUMBER(6)), OP_HardSwish, fuse_hard_swish_of_clip},
    {OP(Mul, OP(Mul, X, OP_AT(B, Clip, OP(Add, X, NUMBER(3)))), NUMBER(1.0 / 6)), OP_HardSwish,
     fuse_hard_swish_of_clip},
    {OP(Mul, ANY(B), OP(Div, NUMBER(1), ONE_AND_EXP)), OP_Sigmoid, fuse_quotient_by_sigmoid},
    {OP(Mul, ANY(B), OP(Reciprocal, ONE_AND_EXP)), OP_Sigmoid, fuse_quotient_by_sigmoid},
    {OP(Div, ANY(B), ONE_AND_EXP), OP_Sigmoid, fuse_quotient_by_sigmoid},
    {OP(Div, NUMBER(1), ONE_AND_EXP), OP_Sigmoid, fuse_sigmoid},
    {OP(Reciprocal, ONE_AND_EXP), OP_Sigmoid, fuse_sigmoid},
    {OP(Where, POSITIVE, OP(Sigmoid, X), SHARE_OF_EXP), OP_Sigmoid, fuse_careful_sigmoid},
    {OP(Where, NEGATIVE, SHARE_OF_EXP, OP(Sigmoid, X)), OP_Sigmoid, fuse_careful_sigmoid},
    {OP(Where, POSITIVE, INVERSE_OF_SUM, SHARE_OF_SUM), OP_Sigmoid, fuse_careful_sigmoid},
    {OP(Where, NEGATIVE, OP(Div, EXP_OF_SIZE, ONE_AND_EXP_OF_SIZE), INVERSE_OF_SUM), OP_Sigmoid, fuse_careful_sigmoid},
    {OP(Div, ONE_OR_EXP, OP(Add, NUMBER(1), ANY(B))), OP_Sigmoid, fuse_careful_sigmoid},
    {OP(Exp, OP(Neg, OP(Softplus, OP(Neg, X)))), OP_Sigmoid, fuse_careful_sigmoid},
    {OP(Sub, OP(Mul, NUMBER(2), OP(Sigmoid, OP(Mul, NUMBER(2), X))), NUMBER(1)), OP_Tanh, fuse_one_operand},
    {OP(Log, X), OP_NONE, fuse_log_of_sigmoid},
    {NORMAL, OP_NONE, fuse_normal},
    {OP(Mul, X, OP(Sigmoid, X)), OP_NONE, fuse_swish},
    {OP(Mul, X, OP(Sigmoid, OP_AT(C, Mul, X, UNIFORM(A)))), OP_NONE, fuse_swish_scaled},
    {OP(Mul, X, OP(Sigmoid, OP_AT(C, Div, X, UNIFORM(A)))), OP_NONE, fuse_swish_scaled},
    {OP(Mul, X, OP(Sigmoid, OP(Neg, X))), OP_NONE, fuse_swish_turned},
    {OP(Mul, X), OP_NONE, fuse_gated},
    {OP(Add, X), OP_NONE, fuse_gated},
    {OP(Div, X), OP_NONE, fuse_gated},
};

bool fuse_activations(Model *model) { return fuse_patterns(model, __func__, rules, sizeof rules / sizeof *rules); }
