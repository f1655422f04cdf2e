/* Functions that take a formula: where ONNX has no operator, or ONNX Runtime no kernel of the precision. */
#include <float.h>
#include <math.h>

#include "lower/elementwise/arithmetic.h"
#include "lower/elementwise/special_tables.inc"

static const double pi = 3.14159265358979323846, log_of_two = 0.69314718055994530942;

static bool is_double(const Value *x) { return x->type.dtype == DTYPE_FLOAT64; }

/* Stays whole for the passes, which write what is left as a formula last, in single precision at least. */
/* In its own type, but for bfloat16, whose neighbours are computed in float32 as well. */
static void lower_composite(Lowering *l) {
  Value *x = input(l, 0);
  if (x->type.dtype == DTYPE_BFLOAT16) x = cast_to(l, x, DTYPE_FLOAT32);
  bind_narrow(l, EMIT_ROW(l, l->plugin->op, x->type, x));
}

static Value *logarithm_of_one_plus(Lowering *l, Value *x) { return EMIT(l, OP_Log1p, x->type, x); }

/* In float64, so that the logarithms of powers of two come out whole. */
static void lower_log2(Lowering *l) {
  Value *log = EMIT_MATH(l, OP_Log, cast_to(l, wide_input(l, 0), DTYPE_FLOAT64));
  bind_narrow(l, EMIT_MATH(l, OP_Div, log, number_like(l, log, log_of_two)));
}

/* polynomial(x, a0, a1, …) = a0 + x (a1 + x …) */
static void lower_polynomial(Lowering *l) {
  uint32_t last = l->equation->input_count - 1;
  Value *x = native_input(l, 0), *sum = native_input(l, last);
  for (uint32_t i = last - 1; i > 0; i--) {
    sum = EMIT_MATH(l, OP_Add, EMIT_MATH(l, OP_Mul, sum, x), native_input(l, i));
  }
  bind_narrow(l, sum);
}

/* The row's operator: true where there is a kernel of the precision. */
static bool lower_by_operator(Lowering *l, Value *x) {
  if (compute_dtype(l, l->plugin->op, x->type.dtype) != x->type.dtype) return false;
  bind_narrow(l, EMIT_ROW_MATH(l, l->plugin->op, x));
  return true;
}

static void lower_tan(Lowering *l) {
  Value *x = wide_input(l, 0);
  if (lower_by_operator(l, x)) return;
  bind(l, 0, EMIT_MATH(l, OP_Div, EMIT_MATH(l, OP_Sin, x), EMIT_MATH(l, OP_Cos, x)));
}

/* exp(x/2) + exp(-x/2), which overflows only far beyond sinh and cosh. */
static Value *twice_cosh_of_half(Lowering *l, Value *half) {
  Value *exp = EMIT_MATH(l, OP_Exp, half);
  return EMIT_MATH(l, OP_Add, exp, EMIT_MATH(l, OP_Reciprocal, exp));
}

/* sinh(x) = 2 tanh(x/2) cosh(x/2)^2 */
static void lower_sinh(Lowering *l) {
  Value *x = wide_input(l, 0);
  if (lower_by_operator(l, x)) return;
  Value *half = EMIT_MATH(l, OP_Mul, x, number_like(l, x, 0.5)), *cosh = twice_cosh_of_half(l, half);
  Value *tanh = EMIT_MATH(l, OP_Mul, EMIT_MATH(l, OP_Tanh, half), number_like(l, x, 0.5));
  bind(l, 0, EMIT_MATH(l, OP_Mul, EMIT_MATH(l, OP_Mul, tanh, cosh), cosh));
}

/* cosh(x) = 2 cosh(x/2)^2 - 1 */
static void lower_cosh(Lowering *l) {
  Value *x = wide_input(l, 0);
  if (lower_by_operator(l, x)) return;
  Value *half = EMIT_MATH(l, OP_Mul, x, number_like(l, x, 0.5)), *cosh = twice_cosh_of_half(l, half);
  Value *square = EMIT_MATH(l, OP_Mul, EMIT_MATH(l, OP_Mul, cosh, number_like(l, x, 0.5)), cosh);
  bind(l, 0, EMIT_MATH(l, OP_Sub, square, number_like(l, x, 1)));
}

/* log(2 x), where x^2 would be out of reach of x^2 + 1. */
static Value *logarithm_of_twice(Lowering *l, Value *x) {
  return EMIT_MATH(l, OP_Add, EMIT_MATH(l, OP_Log, x), number_like(l, x, log_of_two));
}

/* asinh(x) = log1p(x + x^2 / (1 + sqrt(1 + x^2))) for x >= 0, odd. */
static void lower_asinh(Lowering *l) {
  Value *x = wide_input(l, 0);
  if (lower_by_operator(l, x)) return;
  Value *one = number_like(l, x, 1), *size = EMIT_MATH(l, OP_Abs, x);
  Value *large = EMIT_MATH(l, OP_Greater, size, number_like(l, x, 0x1p28));
  Value *square = EMIT_MATH(l, OP_Mul, size, size);
  Value *root = EMIT_MATH(l, OP_Add, EMIT_MATH(l, OP_Sqrt, EMIT_MATH(l, OP_Add, square, one)), one);
  Value *small = logarithm_of_one_plus(l, EMIT_MATH(l, OP_Add, size, EMIT_MATH(l, OP_Div, square, root)));
  Value *result = EMIT_WHERE(l, large, logarithm_of_twice(l, size), small);
  bind(l, 0, EMIT_MATH(l, OP_Mul, EMIT_MATH(l, OP_Sign, x), result));
}

/* acosh(1 + t) = log1p(t + sqrt(t) sqrt(t + 2)) */
static void lower_acosh(Lowering *l) {
  Value *x = wide_input(l, 0);
  if (lower_by_operator(l, x)) return;
  Value *large = EMIT_MATH(l, OP_Greater, x, number_like(l, x, 0x1p28));
  Value *t = EMIT_MATH(l, OP_Sub, x, number_like(l, x, 1));
  Value *other = EMIT_MATH(l, OP_Add, t, number_like(l, x, 2));
  Value *root = EMIT_MATH(l, OP_Mul, EMIT_MATH(l, OP_Sqrt, t), EMIT_MATH(l, OP_Sqrt, other)); /* NaN for t < 0 */
  Value *small = logarithm_of_one_plus(l, EMIT_MATH(l, OP_Add, t, root));
  bind(l, 0, EMIT_WHERE(l, large, logarithm_of_twice(l, x), small));
}

/* atanh(x) = log1p(2 x / (1 - x)) / 2 for x >= 0, odd. */
static void lower_atanh(Lowering *l) {
  Value *x = wide_input(l, 0);
  if (lower_by_operator(l, x)) return;
  Value *size = EMIT_MATH(l, OP_Abs, x), *rest = EMIT_MATH(l, OP_Sub, number_like(l, x, 1), size);
  Value *ratio = EMIT_MATH(l, OP_Div, EMIT_MATH(l, OP_Add, size, size), rest);
  Value *half = EMIT_MATH(l, OP_Mul, EMIT_MATH(l, OP_Sign, x), number_like(l, x, 0.5));
  bind(l, 0, EMIT_MATH(l, OP_Mul, half, logarithm_of_one_plus(l, ratio)));
}

/* In float64 from the angle y in float32: atan(x) - y is the arctangent of (x cos y - sin y) / (cos y + x sin y), which
 * is so small that it equals its tangent. */
static Value *arctangent(Lowering *l, Value *x) {
  if (!is_double(x)) return EMIT_MATH(l, OP_Atan, x);
  x = EMIT_MATH(l, OP_Clip, x, number_like(l, x, -1e300), number_like(l, x, 1e300)); /* infinity, but finite */
  Value *y = cast_to(l, EMIT_MATH(l, OP_Atan, cast_to(l, x, DTYPE_FLOAT32)), DTYPE_FLOAT64);
  Value *sin = EMIT_MATH(l, OP_Sin, y), *cos = EMIT_MATH(l, OP_Cos, y);
  Value *above = EMIT_MATH(l, OP_Sub, EMIT_MATH(l, OP_Mul, x, cos), sin);
  Value *below = EMIT_MATH(l, OP_Add, cos, EMIT_MATH(l, OP_Mul, x, sin));
  return EMIT_MATH(l, OP_Add, y, EMIT_MATH(l, OP_Div, above, below));
}

static void lower_atan(Lowering *l) { bind_narrow(l, arctangent(l, wide_input(l, 0))); }

/* asin(x) = atan(x / sqrt(1 - x^2)) */
static void lower_asin(Lowering *l) {
  Value *x = wide_input(l, 0), *one = number_like(l, x, 1);
  if (lower_by_operator(l, x)) return;
  Value *square = EMIT_MATH(l, OP_Mul, EMIT_MATH(l, OP_Sub, one, x), EMIT_MATH(l, OP_Add, one, x));
  bind(l, 0, arctangent(l, EMIT_MATH(l, OP_Div, x, EMIT_MATH(l, OP_Sqrt, square))));
}

/* acos(x) = 2 atan(sqrt((1 - x) / (1 + x))) */
static void lower_acos(Lowering *l) {
  Value *x = wide_input(l, 0), *one = number_like(l, x, 1);
  if (lower_by_operator(l, x)) return;
  Value *ratio = EMIT_MATH(l, OP_Div, EMIT_MATH(l, OP_Sub, one, x), EMIT_MATH(l, OP_Add, one, x));
  Value *half = arctangent(l, EMIT_MATH(l, OP_Sqrt, ratio));
  bind(l, 0, EMIT_MATH(l, OP_Add, half, half));
}

/* The angle within the first half quadrant, unfolded over the diagonal, over the vertical, over the horizontal. */
static void lower_atan2(Lowering *l) {
  Value *y = wide_input(l, 0), *x = wide_input(l, 1);
  Value *up = EMIT_MATH(l, OP_Abs, y), *right = EMIT_MATH(l, OP_Abs, x);
  Value *ratio = EMIT_MATH(l, OP_Div, EMIT_MATH(l, OP_Min, up, right), EMIT_MATH(l, OP_Max, up, right));
  /* 0 / 0 counts as 0, and infinity / infinity as 1. */
  ratio = EMIT_WHERE(l, EMIT_MATH(l, OP_Equal, up, right), EMIT_MATH(l, OP_Sign, right), ratio);
  Value *angle = arctangent(l, ratio);
  Value *steep = EMIT_MATH(l, OP_Greater, up, right);
  angle = EMIT_WHERE(l, steep, EMIT_MATH(l, OP_Sub, number_like(l, x, pi / 2), angle), angle);
  angle = EMIT_WHERE(l, sign_bit(l, x), EMIT_MATH(l, OP_Sub, number_like(l, x, pi), angle), angle);
  bind_narrow(l, EMIT_WHERE(l, sign_bit(l, y), EMIT_MATH(l, OP_Neg, angle), angle));
}

/* In float64 a polynomial in x^2 near 0, and 1 - erfc elsewhere. */
static Value *error_function(Lowering *l, Value *x) {
  if (!is_double(x)) return EMIT_MATH(l, OP_Erf, x);
  Value *one = number_like(l, x, 1), *size = EMIT_MATH(l, OP_Abs, x);
  Value *square = EMIT_MATH(l, OP_Mul, x, x);
  Value *t = EMIT_MATH(l, OP_Sub, EMIT_MATH(l, OP_Add, square, square), one);
  Value *near = EMIT_MATH(l, OP_Mul, x, EMIT_POLYNOMIAL(l, t, erf_float64));
  Value *far =
      EMIT_MATH(l, OP_Mul, EMIT_MATH(l, OP_Sign, x), EMIT_MATH(l, OP_Sub, one, EMIT(l, OP_Erfc, size->type, size)));
  return EMIT_WHERE(l, EMIT_MATH(l, OP_Less, size, one), near, far);
}

static void lower_erf(Lowering *l) { bind_narrow(l, error_function(l, wide_input(l, 0))); }

/* x P(w) with w = -log(1 - x^2), and for large w in the variable sqrt(w). */
static void lower_erf_inv(Lowering *l) {
  Value *x = wide_input(l, 0), *one = number_like(l, x, 1);
  bool wide = is_double(x);
  Value *rest = EMIT_MATH(l, OP_Mul, EMIT_MATH(l, OP_Sub, one, x), EMIT_MATH(l, OP_Add, one, x));
  Value *w = EMIT_MATH(l, OP_Neg, EMIT_MATH(l, OP_Log, rest));
  Value *t = EMIT_MATH(l, OP_Sub, EMIT_MATH(l, OP_Mul, w, number_like(l, x, 1.0 / 3)), one);
  Value *center = wide ? EMIT_POLYNOMIAL(l, t, erf_inv_center_float64) : EMIT_POLYNOMIAL(l, t, erf_inv_center_float32);
  double low = sqrt(6), high = wide ? 6.1 : 4.1;
  t = EMIT_MATH(l, OP_Mul, EMIT_MATH(l, OP_Sqrt, w), number_like(l, x, 2 / (high - low)));
  t = EMIT_MATH(l, OP_Sub, t, number_like(l, x, (high + low) / (high - low)));
  Value *tail = wide ? EMIT_POLYNOMIAL(l, t, erf_inv_tail_float64) : EMIT_POLYNOMIAL(l, t, erf_inv_tail_float32);
  Value *ratio = EMIT_WHERE(l, EMIT_MATH(l, OP_Less, w, number_like(l, x, 6)), center, tail);
  Value *ends = EMIT_MATH(l, OP_Equal, EMIT_MATH(l, OP_Abs, x), one);
  bind_narrow(l, EMIT_MATH(l, OP_Mul, x, EMIT_WHERE(l, ends, number_like(l, x, INFINITY), ratio)));
}

/* In float64, where a third of the logarithm is exact enough. */
static void lower_cbrt(Lowering *l) {
  Value *x = cast_to(l, wide_input(l, 0), DTYPE_FLOAT64);
  Value *root = EMIT_MATH(l, OP_Pow, EMIT_MATH(l, OP_Abs, x), number_like(l, x, 1.0 / 3));
  bind_narrow(l, EMIT_MATH(l, OP_Mul, EMIT_MATH(l, OP_Sign, x), root));
}

/* The type that an exponent is given in: it may be an integer. */
static DType exponent_dtype(const Lowering *l, DType dtype) {
  if (!dtype_is_integer(dtype) || !target_quirk(l, QUIRK_POW_TAKES_FEW_EXPONENTS)) return dtype;
  if (dtype == DTYPE_UINT64) return DTYPE_FLOAT64;
  if (dtype == DTYPE_UINT32) return DTYPE_INT64;
  return dtype_bits(dtype) < 32 ? DTYPE_INT32 : dtype;
}

static void lower_pow(Lowering *l) {
  Value *x = native_input(l, 0), *exponent = native_input(l, 1);
  exponent = cast_to(l, exponent, exponent_dtype(l, exponent->type.dtype));
  bind_narrow(l, EMIT_MATH(l, OP_Pow, x, exponent));
}

/* clang-format off */
const Plugin special_plugins[] = {
    PLUGIN("log1p", lower_composite, OP_Log1p),
    PLUGIN("expm1", lower_composite, OP_Expm1),
    PLUGIN("log2", lower_log2, OP_Log),
    PLUGIN("polynomial", lower_polynomial, OP_Mul),
    PLUGIN("pow", lower_pow, OP_Pow),
    PLUGIN("cbrt", lower_cbrt, OP_Pow),
    PLUGIN("tan", lower_tan, OP_Tan),
    PLUGIN("sinh", lower_sinh, OP_Sinh),
    PLUGIN("cosh", lower_cosh, OP_Cosh),
    PLUGIN("asinh", lower_asinh, OP_Asinh),
    PLUGIN("acosh", lower_acosh, OP_Acosh),
    PLUGIN("atanh", lower_atanh, OP_Atanh),
    PLUGIN("asin", lower_asin, OP_Asin),
    PLUGIN("acos", lower_acos, OP_Acos),
    PLUGIN("atan", lower_atan, OP_Atan),
    PLUGIN("atan2", lower_atan2, OP_Atan),
    PLUGIN("erf", lower_erf, OP_Erf),
    PLUGIN("erfc", lower_composite, OP_Erfc),
    PLUGIN("erf_inv", lower_erf_inv, OP_Log),
    {0},
};
/* clang-format on */
