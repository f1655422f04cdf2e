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
  if (dtype_is_unsigned(x->type.dtype)) bind(l, 0, EMIT(l, "Sub", output_type(l, 0), integer_like(l, x, 0), x));
  else bind(l, 0, EMIT_AROUND(l, "Neg", output_type(l, 0), x));
}

/* ONNX Runtime's Sign of a float16 NaN is 0. */
static void lower_sign(Lowering *l) { bind_narrow(l, EMIT_MATH(l, "Sign", wide_input(l, 0))); }

/* NaN wins in ONNX Runtime's Max and Min as it does in JAX. */
static void lower_max_min(Lowering *l) {
  bool max = l->plugin->op[1] == 'a';
  const char *op = output_type(l, 0).dtype == DTYPE_BOOL ? (max ? "Or" : "And") : l->plugin->op;
  bind(l, 0, EMIT_ROW_AROUND(l, op, output_type(l, 0), input(l, 0), input(l, 1)));
}

static void lower_square(Lowering *l) {
  Value *x = native_input(l, 0);
  bind_narrow(l, EMIT_MATH(l, "Mul", x, x));
}

/* (1 + x)(1 - x), as JAX defines it: more exact than 1 - x * x where |x| is close to 1. */
static void lower_one_minus_square(Lowering *l) {
  Value *x = native_input(l, 0), *one = number_like(l, x, 1);
  bind_narrow(l, EMIT_MATH(l, "Mul", EMIT_MATH(l, "Add", one, x), EMIT_MATH(l, "Sub", one, x)));
}

static void lower_rsqrt(Lowering *l) {
  bind_narrow(l, EMIT_MATH(l, "Reciprocal", EMIT_MATH(l, "Sqrt", native_input(l, 0))));
}

static void lower_exp2(Lowering *l) {
  Value *x = native_input(l, 0);
  bind_narrow(l, EMIT_MATH(l, "Pow", number_like(l, x, 2), x));
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
    if (left & 1) product = product ? EMIT_MATH(l, "Mul", product, power) : power;
    left >>= 1;
    if (!left) break;
    power = EMIT_MATH(l, "Mul", power, power);
  }
  bind_narrow(l, exponent < 0 ? EMIT_MATH(l, "Reciprocal", product) : product);
}

/* ONNX orders numbers only: on bool, a < b is !a && b. The row's flags say how. */
enum { NOT_LEFT = 1, NOT_RIGHT = 2, EITHER = 4, NOT_RESULT = 8 };

static void lower_compare(Lowering *l) {
  Value *a = input(l, 0), *b = input(l, 1);
  Type type = output_type(l, 0);
  int flags = l->plugin->flags;
  if (a->type.dtype == DTYPE_BOOL) {
    if (flags & NOT_LEFT) a = EMIT_ROW(l, "Not", a->type, a);
    if (flags & NOT_RIGHT) b = EMIT_ROW(l, "Not", b->type, b);
    bind(l, 0, EMIT_ROW(l, flags & EITHER ? "Or" : "And", type, a, b));
    return;
  }
  bind(l, 0, EMIT_ROW_AROUND(l, l->plugin->op, type, a, b));
}

static void lower_equality(Lowering *l) {
  Value *a = input(l, 0), *b = input(l, 1);
  Type type = output_type(l, 0);
  bool differ = (l->plugin->flags & NOT_RESULT) != 0;
  if (a->type.dtype == DTYPE_BOOL && differ) {
    bind(l, 0, EMIT_ROW(l, "Xor", type, a, b));
    return;
  }
  Value *equal = EMIT_ROW_AROUND(l, "Equal", type, a, b);
  bind(l, 0, differ ? EMIT_ROW(l, "Not", type, equal) : equal);
}

/* select_n(which, case0, case1, …): which is bool for two cases, else an int32 that counts as clamped to the cases. */
static void lower_select_n(Lowering *l) {
  Value *which = input(l, 0);
  uint32_t count = l->equation->input_count - 1;
  Value *result = input(l, count);
  if (which->type.dtype == DTYPE_BOOL && count == 2) result = EMIT_WHERE(l, which, result, input(l, 1));
  for (uint32_t i = count - 1; i > 0 && which->type.dtype != DTYPE_BOOL; i--) {
    Value *before = EMIT_MATH(l, "Less", which, integer_like(l, which, i));
    result = EMIT_WHERE(l, before, input(l, i), result);
  }
  Type type = output_type(l, 0);
  bind(l, 0, expand_to(l, result, type.dims, type.rank));
}

/* clamp(low, x, high) = min(max(low, x), high); NaN in any of them wins. */
static void lower_clamp(Lowering *l) {
  Value *low = native_input(l, 0), *x = native_input(l, 1), *high = native_input(l, 2);
  bool scalars = low->type.rank == 0 && high->type.rank == 0;
  if (scalars && low->tensor && high->tensor && schema_runs("Clip", NULL, l->options->opset, x->type.dtype)) {
    bind_narrow(l, EMIT_MATH(l, "Clip", x, low, high));
    return;
  }
  bind_narrow(l, EMIT_MATH(l, "Min", EMIT_MATH(l, "Max", x, low), high));
}

/* Round halfway cases to even as ONNX does, or away from zero: half is added to the magnitude of the exact halves. */
static void lower_round(Lowering *l) {
  const Param *method = param_find(l->equation, "rounding_method");
  bool even = !method || param_is(method, "TO_NEAREST_EVEN") || (method->kind == PARAM_INT && method->integer == 1);
  Value *x = native_input(l, 0);
  if (even) {
    bind_narrow(l, EMIT_MATH(l, "Round", x));
    return;
  }
  Value *whole = EMIT_MATH(l, "Floor", EMIT_MATH(l, "Abs", x));
  Value *rest = EMIT_MATH(l, "Sub", EMIT_MATH(l, "Abs", x), whole);
  Value *up = EMIT_MATH(l, "GreaterOrEqual", rest, number_like(l, x, 0.5));
  Value *magnitude = EMIT_MATH(l, "Add", whole, cast_to(l, up, x->type.dtype));
  bind_narrow(l, EMIT_MATH(l, "Mul", EMIT_MATH(l, "Sign", x), magnitude));
}

/* x - x is 0 exactly where x is finite. */
static void lower_is_finite(Lowering *l) {
  Value *x = native_input(l, 0);
  bind(l, 0, EMIT_MATH(l, "Equal", EMIT_MATH(l, "Sub", x, x), number_like(l, x, 0)));
}

/* clang-format off */
const Plugin elementwise_plugins[] = {
    PLUGIN("add", lower_binary, "Add"),
    PLUGIN("add_any", lower_binary, "Add"),
    PLUGIN("sub", lower_binary, "Sub"),
    PLUGIN("mul", lower_binary, "Mul"),
    PLUGIN("max", lower_max_min, "Max"),
    PLUGIN("min", lower_max_min, "Min"),
    PLUGIN("neg", lower_neg, "Neg"),
    PLUGIN("abs", lower_unary, "Abs"),
    PLUGIN("sign", lower_sign, "Sign"),
    PLUGIN("floor", lower_unary, "Floor"),
    PLUGIN("ceil", lower_unary, "Ceil"),
    PLUGIN("round", lower_round, "Round"),
    PLUGIN("clamp", lower_clamp, "Clip"),
    PLUGIN("square", lower_square, "Mul"),
    PLUGIN("one_minus_square", lower_one_minus_square, "Mul"),
    PLUGIN("integer_pow", lower_integer_pow, "Mul"),
    PLUGIN("sqrt", lower_unary, "Sqrt"),
    PLUGIN("rsqrt", lower_rsqrt, "Sqrt"),
    PLUGIN("exp", lower_unary, "Exp"),
    PLUGIN("exp2", lower_exp2, "Pow"),
    PLUGIN("log", lower_unary, "Log"),
    PLUGIN("sin", lower_unary, "Sin"),
    PLUGIN("cos", lower_unary, "Cos"),
    PLUGIN("tanh", lower_unary, "Tanh"),
    PLUGIN("logistic", lower_unary, "Sigmoid"),
    PLUGIN("is_finite", lower_is_finite, "Equal"),
    PLUGIN("eq", lower_equality, "Equal"),
    PLUGIN("ne", lower_equality, "Equal", NOT_RESULT),
    PLUGIN("lt", lower_compare, "Less", NOT_LEFT),
    PLUGIN("le", lower_compare, "LessOrEqual", NOT_LEFT | EITHER),
    PLUGIN("gt", lower_compare, "Greater", NOT_RIGHT),
    PLUGIN("ge", lower_compare, "GreaterOrEqual", NOT_RIGHT | EITHER),
    PLUGIN("select_n", lower_select_n, "Where"),

    PLUGIN("copy", lower_identity, NULL),
    PLUGIN("stage", lower_identity, NULL),
    PLUGIN("copy_p", lower_identity, NULL),
    PLUGIN("stop_gradient", lower_identity, NULL),
    PLUGIN("optimization_barrier", lower_identity, NULL),
    PLUGIN("device_put", lower_identity, NULL),
    PLUGIN("sharding_constraint", lower_identity, NULL),
    PLUGIN("layout_constraint", lower_identity, NULL),
    PLUGIN("reshard", lower_identity, NULL),
    PLUGIN("name", lower_identity, NULL),
    PLUGIN("pbroadcast", lower_identity, NULL),
    PLUGIN("pin", lower_identity, NULL),
    PLUGIN("unpin", lower_identity, NULL),
    PLUGIN("relayout", lower_identity, NULL),
    PLUGIN("with_memory_space_constraint", lower_identity, NULL),
    PLUGIN("reduced_vary_cast", lower_identity, NULL),
    PLUGIN("reduced_vary_cast_p", lower_identity, NULL),
    PLUGIN("vary_unreduced_cast", lower_identity, NULL),
    PLUGIN("vary_unreduced_cast_p", lower_identity, NULL),
    PLUGIN("tie", lower_tie, NULL),
    {0},
};
/* clang-format on */
