/* Complex arithmetic: parts and pairs, sums, products, quotients, comparisons, and conversions. */
#include <math.h>

#include "lower/complex/complex.h"

static void lower_complex(Lowering *l) {
  Type type = part_type(output_type(l, 0));
  bind_parts(l, 0, (Parts){part_array(l, input(l, 0), type), part_array(l, input(l, 1), type)});
}

enum { IMAGINARY = 1 };

static void lower_part(Lowering *l) {
  Parts parts = input_parts(l, 0);
  Type type = output_type(l, 0);
  bind(l, 0, part_array(l, l->plugin->flags & IMAGINARY ? parts.im : parts.re, type));
}

/* Of real numbers, too: they become complex. */
static void lower_conj(Lowering *l) {
  Parts z = input_parts(l, 0);
  if (!input_is_complex(l, 0)) z.im = number_like(l, z.re, -0.0);
  else z.im = EMIT_MATH(l, OP_Neg, z.im);
  bind_parts(l, 0, z);
}

/* On pairs as they are, unless the parts of one are at hand already. */
static void lower_sum(Lowering *l) {
  Value *a = input(l, 0), *b = input(l, 1);
  Op op = l->plugin->op;
  bool by_parts = (has_known_parts(l, a) && !a->tensor) || (has_known_parts(l, b) && !b->tensor);
  if (!by_parts) {
    bind(l, 0, EMIT_ROW_MATH(l, op, a, b));
    return;
  }
  Parts x = parts_of(l, a), y = parts_of(l, b);
  bind_parts(l, 0, (Parts){EMIT_ROW_MATH(l, op, x.re, y.re), EMIT_ROW_MATH(l, op, x.im, y.im)});
}

static void lower_neg(Lowering *l) {
  Value *pairs = input(l, 0);
  if (!has_known_parts(l, pairs)) {
    bind(l, 0, EMIT_MATH(l, OP_Neg, pairs));
    return;
  }
  Parts z = parts_of(l, pairs);
  bind_parts(l, 0, (Parts){EMIT_MATH(l, OP_Neg, z.re), EMIT_MATH(l, OP_Neg, z.im)});
}

Parts multiply_parts(Lowering *l, Here here, Parts a, Parts b) {
  Value *re = emit_math(l, here, OP_Mul, VALUES(a.re, b.re), 2),
        *im = emit_math(l, here, OP_Mul, VALUES(a.re, b.im), 2);
  Value *minus = emit_math(l, here, OP_Mul, VALUES(a.im, b.im), 2);
  Value *plus = emit_math(l, here, OP_Mul, VALUES(a.im, b.re), 2);
  return (Parts){emit_math(l, here, OP_Sub, VALUES(re, minus), 2), emit_math(l, here, OP_Add, VALUES(im, plus), 2)};
}

static void lower_mul(Lowering *l) { bind_parts(l, 0, EMIT_PRODUCT(l, input_parts(l, 0), input_parts(l, 1))); }

/* (a - b)(a + b) + 2ab i: no digits are lost where the parts are about equal. */
static void lower_square(Lowering *l) {
  Parts z = input_parts(l, 0);
  Value *a = EMIT_MATH(l, OP_Abs, z.re), *b = EMIT_MATH(l, OP_Abs, z.im), *less = EMIT_MATH(l, OP_Sub, a, b);
  Value *re = EMIT_MATH(l, OP_Mul, less, EMIT_MATH(l, OP_Add, a, b));
  re = EMIT_WHERE(l, EMIT_MATH(l, OP_Equal, a, b), less, re);
  Value *im = EMIT_MATH(l, OP_Mul, z.re, z.im);
  bind_parts(l, 0, (Parts){re, EMIT_MATH(l, OP_Add, im, im)});
}

/* R. Smith's quotient: the lesser part of the divisor over the greater one is what the rest is made of. `steep`: the
 * imaginary part is the greater one; NULL: known not to be. */
static Parts smith_quotient(Lowering *l, Parts a, Parts b, Value *steep) {
  Value *most = steep ? EMIT_WHERE(l, steep, b.im, b.re) : b.re,
        *least = steep ? EMIT_WHERE(l, steep, b.re, b.im) : b.im;
  Value *first = steep ? EMIT_WHERE(l, steep, a.im, a.re) : a.re,
        *second = steep ? EMIT_WHERE(l, steep, a.re, a.im) : a.im;
  Value *ratio = EMIT_MATH(l, OP_Div, least, most);
  Value *size = EMIT_MATH(l, OP_Add, most, EMIT_MATH(l, OP_Mul, least, ratio));
  Value *re = EMIT_MATH(l, OP_Add, first, EMIT_MATH(l, OP_Mul, second, ratio));
  Value *im = EMIT_MATH(l, OP_Sub, second, EMIT_MATH(l, OP_Mul, first, ratio));
  if (steep) im = EMIT_WHERE(l, steep, EMIT_MATH(l, OP_Neg, im), im);
  return (Parts){EMIT_MATH(l, OP_Div, re, size), EMIT_MATH(l, OP_Div, im, size)};
}

/* 1 or -1 where x is infinite, else 0. */
static Value *infinite_sign(Lowering *l, Value *x) {
  Value *infinite = EMIT_MATH(l, OP_IsInf, x);
  return EMIT_WHERE(l, infinite, EMIT_MATH(l, OP_Sign, x), number_like(l, x, 0));
}

static Value *either_infinite(Lowering *l, Parts z) {
  return EMIT_MATH(l, OP_Or, EMIT_MATH(l, OP_IsInf, z.re), EMIT_MATH(l, OP_IsInf, z.im));
}

/* What the C standard (annex G) says of quotients that come out as NaN: x / 0 and infinity / x are infinite, x /
 * infinity is 0. */
static Parts mended_quotient(Lowering *l, Parts a, Parts b, Parts quotient) {
  Value *zero = number_like(l, b.re, 0), *infinity = number_like(l, b.re, (double)INFINITY);
  Value *lost = EMIT_MATH(l, OP_And, EMIT_MATH(l, OP_IsNaN, quotient.re), EMIT_MATH(l, OP_IsNaN, quotient.im));
  Parts infinite = {infinite_sign(l, a.re), infinite_sign(l, a.im)};
  Parts direction = EMIT_PRODUCT(l, infinite, (Parts){b.re, EMIT_MATH(l, OP_Neg, b.im)});
  Value *above = either_infinite(l, a), *below = either_infinite(l, b);
  Value *endless = EMIT_MATH(l, OP_And, lost, EMIT_MATH(l, OP_And, above, EMIT_MATH(l, OP_Not, below)));
  Value *re = EMIT_WHERE(l, endless, EMIT_MATH(l, OP_Mul, direction.re, infinity), quotient.re);
  Value *im = EMIT_WHERE(l, endless, EMIT_MATH(l, OP_Mul, direction.im, infinity), quotient.im);
  Value *by_infinity = EMIT_MATH(l, OP_And, lost, EMIT_MATH(l, OP_And, below, EMIT_MATH(l, OP_Not, above)));
  re = EMIT_WHERE(l, by_infinity, zero, re);
  im = EMIT_WHERE(l, by_infinity, zero, im);
  Value *by_zero = EMIT_MATH(l, OP_And, EMIT_MATH(l, OP_Equal, b.re, zero), EMIT_MATH(l, OP_Equal, b.im, zero));
  re = EMIT_WHERE(l, by_zero, EMIT_MATH(l, OP_Div, a.re, b.re), re);
  return (Parts){re, EMIT_WHERE(l, by_zero, EMIT_MATH(l, OP_Div, a.im, b.re), im)};
}

Parts divide_parts(Lowering *l, Parts a, Parts b) {
  double re, im;
  if (literal_double(b.re->tensor, &re) && literal_double(b.im->tensor, &im) && isfinite(re) && isfinite(im) &&
      fabs(re) > fabs(im)) {
    return smith_quotient(l, a, b, NULL);
  }
  Value *steep = EMIT_MATH(l, OP_Less, EMIT_MATH(l, OP_Abs, b.re), EMIT_MATH(l, OP_Abs, b.im));
  return mended_quotient(l, a, b, smith_quotient(l, a, b, steep));
}

static void lower_div(Lowering *l) { bind_parts(l, 0, divide_parts(l, input_parts(l, 0), input_parts(l, 1))); }

/* Repeated squaring, as JAX computes it. */
static void lower_integer_pow(Lowering *l) {
  int64_t exponent = param_int(l->context, l->equation, "y");
  Parts power = input_parts(l, 0), product, one = {number_like(l, power.re, 1), number_like(l, power.re, 0)};
  uint64_t left = exponent < 0 ? 0 - (uint64_t)exponent : (uint64_t)exponent;
  bool any = false;
  for (; left; left >>= 1) {
    if (left & 1) product = any ? EMIT_PRODUCT(l, product, power) : power;
    any = any || left & 1;
    if (left > 1) power = EMIT_PRODUCT(l, power, power);
  }
  if (!any) product = one;
  bind_parts(l, 0, exponent < 0 ? divide_parts(l, one, product) : product);
}

/* polynomial(x, a0, a1, …) = a0 + x (a1 + x …) */
static void lower_polynomial(Lowering *l) {
  uint32_t last = l->equation->input_count - 1;
  Parts x = input_parts(l, 0), sum = input_parts(l, last);
  for (uint32_t i = last - 1; i > 0; i--) {
    Parts product = EMIT_PRODUCT(l, sum, x), next = input_parts(l, i);
    sum = (Parts){EMIT_MATH(l, OP_Add, product.re, next.re), EMIT_MATH(l, OP_Add, product.im, next.im)};
  }
  bind_parts(l, 0, sum);
}

Value *magnitude(Lowering *l, Parts z) {
  Value *a = EMIT_MATH(l, OP_Abs, z.re), *b = EMIT_MATH(l, OP_Abs, z.im);
  Value *most = EMIT_MATH(l, OP_Max, a, b), *least = EMIT_MATH(l, OP_Min, a, b);
  Value *ratio = EMIT_MATH(l, OP_Div, least, most);
  Value *square = EMIT_MATH(l, OP_Add, EMIT_MATH(l, OP_Mul, ratio, ratio), number_like(l, most, 1));
  Value *size = EMIT_MATH(l, OP_Mul, most, EMIT_MATH(l, OP_Sqrt, square));
  /* 0 / 0 and infinity / infinity */
  return EMIT_WHERE(l, EMIT_MATH(l, OP_Equal, a, b), EMIT_MATH(l, OP_Mul, a, number_like(l, a, 1.4142135623730951)),
                    size);
}

static void lower_abs(Lowering *l) { bind(l, 0, part_array(l, magnitude(l, input_parts(l, 0)), output_type(l, 0))); }

static void lower_sign(Lowering *l) {
  Parts z = input_parts(l, 0);
  Value *size = magnitude(l, z), *zero = EMIT_MATH(l, OP_Equal, size, number_like(l, size, 0));
  Value *re = EMIT_WHERE(l, zero, z.re, EMIT_MATH(l, OP_Div, z.re, size));
  bind_parts(l, 0, (Parts){re, EMIT_WHERE(l, zero, z.im, EMIT_MATH(l, OP_Div, z.im, size))});
}

static void lower_equality(Lowering *l) {
  Parts a = input_parts(l, 0), b = input_parts(l, 1);
  Value *re = EMIT_MATH(l, OP_Equal, a.re, b.re), *im = EMIT_MATH(l, OP_Equal, a.im, b.im);
  Value *equal = part_array(l, EMIT_MATH(l, OP_And, re, im), output_type(l, 0));
  bind(l, 0, strcmp(l->equation->primitive, "ne") == 0 ? EMIT_MATH(l, OP_Not, equal) : equal);
}

static Parts chosen(Lowering *l, Value *first, Parts a, Parts b) {
  return (Parts){EMIT_WHERE(l, first, a.re, b.re), EMIT_WHERE(l, first, a.im, b.im)};
}

Parts extreme_parts(Lowering *l, Here here, Op op, Parts a, Parts b) {
  Value *im = emit_math(l, here, op, VALUES(a.im, b.im), 2), *re = emit_math(l, here, op, VALUES(a.re, b.re), 2);
  Value *tie = EMIT_MATH(l, OP_And, EMIT_MATH(l, OP_Equal, a.re, b.re), im);
  return chosen(l, EMIT_MATH(l, OP_Or, re, tie), a, b);
}

static void lower_max_min(Lowering *l) {
  bind_parts(l, 0, extreme_parts(l, ROW_HERE(l), l->plugin->op, input_parts(l, 0), input_parts(l, 1)));
}

/* XLA compares the real parts alone; among equal ones the bound is taken below, and the number above. */
static void lower_clamp(Lowering *l) {
  Parts least = input_parts(l, 0), z = input_parts(l, 1), most = input_parts(l, 2);
  z = chosen(l, EMIT_MATH(l, OP_GreaterOrEqual, least.re, z.re), least, z);
  bind_parts(l, 0, chosen(l, EMIT_MATH(l, OP_LessOrEqual, z.re, most.re), z, most));
}

static Value *converted(Lowering *l, Value *value, DType dtype) {
  return value->type.dtype == dtype ? value : APPLY(l, "convert_element_type", type_with(value->type, dtype), value);
}

/* The imaginary part comes as 0, and goes, also on the way to bool. */
static void lower_convert(Lowering *l) {
  Parts z = input_parts(l, 0);
  Type type = output_type(l, 0);
  if (!output_is_complex(l, 0)) {
    bind(l, 0, part_array(l, converted(l, z.re, type.dtype), type));
    return;
  }
  Value *im = input_is_complex(l, 0) ? converted(l, z.im, type.dtype) : constant_scalar(l, type.dtype, 0);
  bind_parts(l, 0, (Parts){converted(l, z.re, type.dtype), im});
}

/* clang-format off */
const Plugin complex_plugins[] = {
    PLUGIN("complex", lower_complex, OP_NONE),
    PLUGIN("conj", lower_conj, OP_NONE),
    PLUGIN("imag", lower_part, .flags = IMAGINARY),
    PLUGIN("real", lower_part),
    {0},
};

const Plugin complex_arithmetic_plugins[] = {
    PLUGIN("abs", lower_abs, OP_NONE),
    PLUGIN("add", lower_sum, OP_Add),
    PLUGIN("add_any", lower_sum, OP_Add),
    PLUGIN("clamp", lower_clamp, OP_NONE),
    PLUGIN("convert_element_type", lower_convert, OP_NONE),
    PLUGIN("div", lower_div, OP_NONE),
    PLUGIN("eq", lower_equality, OP_NONE),
    PLUGIN("integer_pow", lower_integer_pow, OP_NONE),
    PLUGIN("max", lower_max_min, OP_Greater),
    PLUGIN("min", lower_max_min, OP_Less),
    PLUGIN("mul", lower_mul, OP_NONE),
    PLUGIN("ne", lower_equality, OP_NONE),
    PLUGIN("neg", lower_neg, OP_NONE),
    PLUGIN("polynomial", lower_polynomial, OP_NONE),
    PLUGIN("sign", lower_sign, OP_NONE),
    PLUGIN("square", lower_square, OP_NONE),
    PLUGIN("sub", lower_sum, OP_Sub),
    {0},
};
/* clang-format on */
