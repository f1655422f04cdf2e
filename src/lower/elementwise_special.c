/* Functions that take a formula: where ONNX has no operator, or ONNX Runtime no kernel of the precision. */
#include "lower/arithmetic.h"

/* log(1 + x) = log(u) + (x - (u - 1)) / u with u = 1 + x rounded: the last term is what rounding lost. */
static Value *logarithm_of_one_plus(Lowering *l, Value *x) {
  Value *one = number_like(l, x, 1);
  Value *u = EMIT_MATH(l, "Add", x, one);
  Value *kept = EMIT_MATH(l, "Sub", u, one);
  Value *log = EMIT_MATH(l, "Log", u);
  Value *lost = EMIT_MATH(l, "Div", EMIT_MATH(l, "Sub", x, kept), u);
  /* Nothing lost, also at -1 and at infinity, where the correction would be NaN. */
  return EMIT_WHERE(l, EMIT_MATH(l, "Equal", x, kept), log, EMIT_MATH(l, "Add", log, lost));
}

static void lower_log1p(Lowering *l) { bind_narrow(l, logarithm_of_one_plus(l, wide_input(l, 0))); }

/* exp(x) - 1 = tanh(x / 2) * (exp(x) + 1), without cancellation anywhere. */
static void lower_expm1(Lowering *l) {
  Value *x = wide_input(l, 0);
  Value *tanh = EMIT_MATH(l, "Tanh", EMIT_MATH(l, "Mul", x, number_like(l, x, 0.5)));
  Value *sum = EMIT_MATH(l, "Add", EMIT_MATH(l, "Exp", x), number_like(l, x, 1));
  bind_narrow(l, EMIT_MATH(l, "Mul", tanh, sum));
}

static void lower_erf(Lowering *l) {
  Value *x = wide_input(l, 0);
  bind_narrow(l, EMIT_MATH(l, "Erf", x));
}

static void lower_erfc(Lowering *l) {
  Value *x = wide_input(l, 0);
  bind_narrow(l, EMIT_MATH(l, "Sub", number_like(l, x, 1), EMIT_MATH(l, "Erf", x)));
}

const Plugin special_plugins[] = {
    PLUGIN("log1p", lower_log1p, "Log"),
    PLUGIN("expm1", lower_expm1, "Tanh"),
    PLUGIN("erf", lower_erf, "Erf"),
    PLUGIN("erfc", lower_erfc, "Erf"),
    {0},
};
