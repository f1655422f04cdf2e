/* Elementwise primitives: rows where a row can say it, short functions where it can't. */
#include "lower/elementwise/arithmetic.h"
#include "onnx/facts/schema.h"

static void lower_unary(Lowering *l) { bind(l, 0, EMIT_ROW_AROUND(l, l->plugin->op, output_type(l, 0), input(l, 0))); }

static void lower_binary(Lowering *l) {
  bind(l, 0, EMIT_ROW_AROUND(l, l->plugin->op, output_type(l, 0), input(l, 0), input(l, 1)));
}

/* Every output is the input of the same position. */
static void lower_identity(Lowering *l) {
  for (uint32_t i = 0; i < l->equation->output_count; i++) bind(l, i, input(l, i));
}

/* tie(x, y) is y, made to depend on x. */
static void lower_tie(Lowering *l) { bind(l, 0, input(l, l->equation->input_count - 1)); }

static void lower_neg(Lowering *l) {
  Value *x = input(l, 0);
  if (dtype_is_unsigned(x->type.dtype)) bind(l, 0, EMIT(l, OP_Sub, output_type(l, 0), integer_like(l, x, 0), x));
  else bind(l, 0, EMIT_AROUND(l, OP_Neg, output_type(l, 0), x));
}

static void lower_sign(Lowering *l) {
  Value *x = target_quirk(l, QUIRK_SIGN_OF_HALF_NAN_IS_ZERO) ? wide_input(l, 0) : native_input(l, 0);
  bind_narrow(l, EMIT_MATH(l, OP_Sign, x));
}

/* NaN wins in Max and Min as it does in JAX. */
static void lower_max_min(Lowering *l) {
  bool max = l->plugin->op == OP_Max;
  Op op = output_type(l, 0).dtype == DTYPE_BOOL ? (max ? OP_Or : OP_And) : l->plugin->op;
  bind(l, 0, EMIT_ROW_AROUND(l, op, output_type(l, 0), input(l, 0), input(l, 1)));
}

static void lower_square(Lowering *l) {
  Value *x = native_input(l, 0);
  bind_narrow(l, EMIT_MATH(l, OP_Mul, x, x));
}

/* (1 + x)(1 - x), as JAX defines it: more exact than 1 - x * x where |x| is close to 1. */
static void lower_one_minus_square(Lowering *l) {
  Value *x = native_input(l, 0), *one = number_like(l, x, 1);
  bind_narrow(l, EMIT_MATH(l, OP_Mul, EMIT_MATH(l, OP_Add, one, x), EMIT_MATH(l, OP_Sub, one, x)));
}

static void lower_rsqrt(Lowering *l) {
  bind_narrow(l, EMIT_MATH(l, OP_Reciprocal, EMIT_MATH(l, OP_Sqrt, native_input(l, 0))));
}

static void lower_exp2(Lowering *l) {
  Value *x = native_input(l, 0);
  bind_narrow(l, EMIT_MATH(l, OP_Pow, number_like(l, x, 2), x));
}

/* Repeated squaring, as JAX computes it. */
static void lower_integer_pow(Lowering *l) {
  int64_t exponent = param_int(l->context, l->equation, "y");
  Value *power = native_input(l, 0), *product = NULL;
  if (exponent == 0) {
    Type type = output_type(l, 0);
    bind_narrow(l, expand_to(l, number_like(l, power, 1), type.dims, type.rank));
    return;
  }
  uint64_t left = exponent < 0 ? 0 - (uint64_t)exponent : (uint64_t)exponent;
  for (;;) {
    if (left & 1) product = product ? EMIT_MATH(l, OP_Mul, product, power) : power;
    left >>= 1;
    if (!left) break;
    power = EMIT_MATH(l, OP_Mul, power, power);
  }
  bind_narrow(l, exponent < 0 ? EMIT_MATH(l, OP_Reciprocal, product) : product);
}

/* ONNX orders numbers only: on bool, a < b is !a && b. The row's flags say how. */
enum { NOT_LEFT = 1, NOT_RIGHT = 2, EITHER = 4, NOT_RESULT = 8 };

static void lower_compare(Lowering *l) {
  Value *a = input(l, 0), *b = input(l, 1);
  Type type = output_type(l, 0);
  int flags = l->plugin->flags;
  if (a->type.dtype == DTYPE_BOOL) {
    if (flags & NOT_LEFT) a = EMIT_ROW(l, OP_Not, a->type, a);
    if (flags & NOT_RIGHT) b = EMIT_ROW(l, OP_Not, b->type, b);
    bind(l, 0, EMIT_ROW(l, flags & EITHER ? OP_Or : OP_And, type, a, b));
    return;
  }
  bind(l, 0, EMIT_ROW_AROUND(l, l->plugin->op, type, a, b));
}

static void lower_equality(Lowering *l) {
  Value *a = input(l, 0), *b = input(l, 1);
  Type type = output_type(l, 0);
  bool differ = (l->plugin->flags & NOT_RESULT) != 0;
  if (a->type.dtype == DTYPE_BOOL && differ) {
    bind(l, 0, EMIT_ROW(l, OP_Xor, type, a, b));
    return;
  }
  Value *equal = EMIT_ROW_AROUND(l, OP_Equal, type, a, b);
  bind(l, 0, differ ? EMIT_ROW(l, OP_Not, type, equal) : equal);
}

/* select_n(which, case0, case1, …): which is bool for two cases, else an int32 that counts as clamped to the cases. */
static void lower_select_n(Lowering *l) {
  Value *which = input(l, 0);
  uint32_t count = l->equation->input_count - 1;
  Value *result = input(l, count);
  if (which->type.dtype == DTYPE_BOOL && count == 2) result = EMIT_WHERE(l, which, result, input(l, 1));
  for (uint32_t i = count - 1; i > 0 && which->type.dtype != DTYPE_BOOL; i--) {
    Value *before = EMIT_MATH(l, OP_Less, which, integer_like(l, which, i));
    result = EMIT_WHERE(l, before, input(l, i), result);
  }
  Type type = output_type(l, 0);
  bind(l, 0, expand_to(l, result, type.dims, type.rank));
}

/* clamp(low, x, high) = min(max(low, x), high); NaN in any of them wins. */
static void lower_clamp(Lowering *l) {
  Value *low = native_input(l, 0), *x = native_input(l, 1), *high = native_input(l, 2);
  bool scalars = low->type.rank == 0 && high->type.rank == 0;
  if (scalars && low->tensor && high->tensor && schema_runs(OP_Clip, NULL, l->options->opset, x->type.dtype)) {
    bind_narrow(l, EMIT_MATH(l, OP_Clip, x, low, high));
    return;
  }
  bind_narrow(l, EMIT_MATH(l, OP_Min, EMIT_MATH(l, OP_Max, x, low), high));
}

/* Round halfway cases to even as ONNX does, or away from zero: half is added to the magnitude of the exact halves. */
static void lower_round(Lowering *l) {
  const Param *method = param_find(l->equation, "rounding_method");
  bool even = !method || param_is(method, "TO_NEAREST_EVEN") || (method->kind == PARAM_INT && method->integer == 1);
  Value *x = native_input(l, 0);
  if (even) {
    bind_narrow(l, EMIT_MATH(l, OP_Round, x));
    return;
  }
  Value *whole = EMIT_MATH(l, OP_Floor, EMIT_MATH(l, OP_Abs, x));
  Value *rest = EMIT_MATH(l, OP_Sub, EMIT_MATH(l, OP_Abs, x), whole);
  Value *up = EMIT_MATH(l, OP_GreaterOrEqual, rest, number_like(l, x, 0.5));
  Value *magnitude = EMIT_MATH(l, OP_Add, whole, cast_to(l, up, x->type.dtype));
  bind_narrow(l, EMIT_MATH(l, OP_Mul, EMIT_MATH(l, OP_Sign, x), magnitude));
}

/* x - x is 0 exactly where x is finite. */
static void lower_is_finite(Lowering *l) {
  Value *x = native_input(l, 0);
  bind(l, 0, EMIT_MATH(l, OP_Equal, EMIT_MATH(l, OP_Sub, x, x), number_like(l, x, 0)));
}

/* clang-format off */
const Plugin elementwise_plugins[] = {
    PLUGIN("add", lower_binary, OP_Add),
    PLUGIN("add_any", lower_binary, OP_Add),
    PLUGIN("sub", lower_binary, OP_Sub),
    PLUGIN("mul", lower_binary, OP_Mul),
    PLUGIN("max", lower_max_min, OP_Max),
    PLUGIN("min", lower_max_min, OP_Min),
    PLUGIN("neg", lower_neg, OP_Neg),
    PLUGIN("abs", lower_unary, OP_Abs),
    PLUGIN("sign", lower_sign, OP_Sign),
    PLUGIN("floor", lower_unary, OP_Floor),
    PLUGIN("ceil", lower_unary, OP_Ceil),
    PLUGIN("round", lower_round, OP_Round),
    PLUGIN("clamp", lower_clamp, OP_Clip),
    PLUGIN("square", lower_square, OP_Mul),
    PLUGIN("one_minus_square", lower_one_minus_square, OP_Mul),
    PLUGIN("integer_pow", lower_integer_pow, OP_Mul),
    PLUGIN("sqrt", lower_unary, OP_Sqrt),
    PLUGIN("rsqrt", lower_rsqrt, OP_Sqrt),
    PLUGIN("exp", lower_unary, OP_Exp),
    PLUGIN("exp2", lower_exp2, OP_Pow),
    PLUGIN("log", lower_unary, OP_Log),
    PLUGIN("sin", lower_unary, OP_Sin),
    PLUGIN("cos", lower_unary, OP_Cos),
    PLUGIN("tanh", lower_unary, OP_Tanh),
    PLUGIN("logistic", lower_unary, OP_Sigmoid),
    PLUGIN("is_finite", lower_is_finite, OP_Equal),
    PLUGIN("eq", lower_equality, OP_Equal),
    PLUGIN("ne", lower_equality, OP_Equal, NOT_RESULT),
    PLUGIN("lt", lower_compare, OP_Less, NOT_LEFT),
    PLUGIN("le", lower_compare, OP_LessOrEqual, NOT_LEFT | EITHER),
    PLUGIN("gt", lower_compare, OP_Greater, NOT_RIGHT),
    PLUGIN("ge", lower_compare, OP_GreaterOrEqual, NOT_RIGHT | EITHER),
    PLUGIN("select_n", lower_select_n, OP_Where),

    PLUGIN("copy", lower_identity, OP_NONE),
    PLUGIN("stage", lower_identity, OP_NONE),
    PLUGIN("copy_p", lower_identity, OP_NONE),
    PLUGIN("stop_gradient", lower_identity, OP_NONE),
    PLUGIN("optimization_barrier", lower_identity, OP_NONE),
    PLUGIN("device_put", lower_identity, OP_NONE),
    PLUGIN("sharding_constraint", lower_identity, OP_NONE),
    PLUGIN("layout_constraint", lower_identity, OP_NONE),
    PLUGIN("reshard", lower_identity, OP_NONE),
    PLUGIN("name", lower_identity, OP_NONE),
    PLUGIN("pbroadcast", lower_identity, OP_NONE),
    PLUGIN("pin", lower_identity, OP_NONE),
    PLUGIN("unpin", lower_identity, OP_NONE),
    PLUGIN("relayout", lower_identity, OP_NONE),
    PLUGIN("with_memory_space_constraint", lower_identity, OP_NONE),
    PLUGIN("reduced_vary_cast", lower_identity, OP_NONE),
    PLUGIN("reduced_vary_cast_p", lower_identity, OP_NONE),
    PLUGIN("vary_unreduced_cast", lower_identity, OP_NONE),
    PLUGIN("vary_unreduced_cast_p", lower_identity, OP_NONE),
    PLUGIN("tie", lower_tie, OP_NONE),
    {0},
};
/* clang-format on */
