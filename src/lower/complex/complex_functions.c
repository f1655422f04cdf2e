/* Functions of complex numbers: formulas on the two parts that keep their digits and stay on the right side of the
 * branch cuts, as JAX draws them. */
#include <math.h>

#include "lower/complex/complex.h"

#define ADD(a, b) EMIT_MATH(l, OP_Add, a, b)
#define SUB(a, b) EMIT_MATH(l, OP_Sub, a, b)
#define MUL(a, b) EMIT_MATH(l, OP_Mul, a, b)
#define DIV(a, b) EMIT_MATH(l, OP_Div, a, b)
#define NEG(a) EMIT_MATH(l, OP_Neg, a)
#define ABS(a) EMIT_MATH(l, OP_Abs, a)
#define SQRT(a) EMIT_MATH(l, OP_Sqrt, a)
#define EQUAL(a, b) EMIT_MATH(l, OP_Equal, a, b)
#define LESS(a, b) EMIT_MATH(l, OP_Less, a, b)
#define WHERE(condition, a, b) EMIT_WHERE(l, condition, a, b)
/* A real function with a plugin of its own. */
#define REAL(primitive, a) APPLY(l, primitive, (a)->type, a)
#define ATAN2(y, x) APPLY(l, "atan2", (y)->type.rank < (x)->type.rank ? (x)->type : (y)->type, y, x)

static Parts times_i(Lowering *l, Parts z) { return (Parts){NEG(z.im), z.re}; }
static Parts over_i(Lowering *l, Parts z) { return (Parts){z.im, NEG(z.re)}; }

/* |size| with the sign of another number. */
static Value *with_sign(Lowering *l, Value *size, Value *of) { return WHERE(sign_bit(l, of), NEG(size), size); }

/* x * y, where 0 times anything is 0. */
static Value *times_or_zero(Lowering *l, Value *x, Value *y) {
  return WHERE(EQUAL(y, number_like(l, y, 0)), y, MUL(x, y));
}

/* exp(a) in two factors, so that it overflows no sooner than the result. */
static Parts exp_parts(Lowering *l, Parts z) {
  Value *root = REAL("exp", MUL(z.re, number_like(l, z.re, 0.5)));
  Value *re = MUL(MUL(root, REAL("cos", z.im)), root);
  return (Parts){re, times_or_zero(l, root, times_or_zero(l, root, REAL("sin", z.im)))};
}

static void lower_exp(Lowering *l) { bind_parts(l, 0, exp_parts(l, input_parts(l, 0))); }

static void lower_exp2(Lowering *l) {
  Parts z = input_parts(l, 0), scale = {number_like(l, z.re, 0.6931471805599453), number_like(l, z.re, 0)};
  bind_parts(l, 0, exp_parts(l, EMIT_PRODUCT(l, scale, z)));
}

/* cos b - 1 is -2 sin^2(b / 2). */
static void lower_expm1(Lowering *l) {
  Parts z = input_parts(l, 0);
  Value *half = REAL("sin", MUL(z.im, number_like(l, z.im, 0.5)));
  Value *re = SUB(MUL(REAL("expm1", z.re), REAL("cos", z.im)), MUL(number_like(l, half, 2), MUL(half, half)));
  bind_parts(l, 0, (Parts){re, times_or_zero(l, REAL("exp", z.re), REAL("sin", z.im))});
}

/* log |z| from the greater part and the ratio of the two, which no square overflows in. */
static Value *log_magnitude(Lowering *l, Parts z) {
  Value *a = ABS(z.re), *b = ABS(z.im), *most = EMIT_MATH(l, OP_Max, a, b);
  Value *ratio = DIV(EMIT_MATH(l, OP_Min, a, b), most);
  ratio = WHERE(EQUAL(a, b), number_like(l, ratio, 1), ratio);
  Value *rest = MUL(number_like(l, ratio, 0.5), REAL("log1p", MUL(ratio, ratio)));
  return ADD(REAL("log", most), rest);
}

static Parts log_parts(Lowering *l, Parts z) { return (Parts){log_magnitude(l, z), ATAN2(z.im, z.re)}; }

static void lower_log(Lowering *l) { bind_parts(l, 0, log_parts(l, input_parts(l, 0))); }

/* Near 0, |1 + z|^2 - 1 is computed without the 1. */
static void lower_log1p(Lowering *l) {
  Parts z = input_parts(l, 0);
  Value *one = number_like(l, z.re, 1), *two = number_like(l, z.re, 2);
  Value *excess = ADD(MUL(z.re, ADD(z.re, two)), MUL(z.im, z.im));
  Value *near = MUL(number_like(l, z.re, 0.5), REAL("log1p", excess));
  Parts moved = {ADD(z.re, one), z.im};
  Value *is_far = EMIT_MATH(l, OP_Greater, EMIT_MATH(l, OP_Max, ABS(z.re), ABS(z.im)), two);
  Value *re = WHERE(is_far, log_magnitude(l, moved), near);
  bind_parts(l, 0, (Parts){re, ATAN2(z.im, moved.re)});
}

/* The root of the half of |re| + |z| is one part, and gives the other. */
static Parts sqrt_parts(Lowering *l, Parts z) {
  Value *a = ABS(z.re), *b = ABS(z.im), *most = EMIT_MATH(l, OP_Max, a, b), *least = EMIT_MATH(l, OP_Min, a, b);
  Value *one = number_like(l, a, 1), *ratio = DIV(least, most);
  Value *sum = ADD(DIV(a, most), SQRT(ADD(one, MUL(ratio, ratio))));
  Value *root = MUL(SQRT(most), SQRT(MUL(number_like(l, a, 0.5), sum)));
  Value *other = DIV(b, ADD(root, root));
  Value *infinity = number_like(l, a, (double)INFINITY), *zero = number_like(l, a, 0);
  Value *nothing = EQUAL(most, zero);
  root = WHERE(nothing, zero, root);
  other = WHERE(nothing, zero, other);
  root = WHERE(EQUAL(a, infinity), infinity, root);
  other = WHERE(EQUAL(a, infinity), WHERE(EMIT_MATH(l, OP_IsNaN, b), b, zero), other);
  root = WHERE(EQUAL(b, infinity), infinity, root);
  other = WHERE(EQUAL(b, infinity), infinity, other);
  Value *left = LESS(z.re, zero), *im = WHERE(left, root, other);
  return (Parts){WHERE(left, other, root), WHERE(LESS(z.im, zero), NEG(im), im)}; /* -0 counts as 0, as in JAX */
}

static void lower_sqrt(Lowering *l) { bind_parts(l, 0, sqrt_parts(l, input_parts(l, 0))); }

/* 1 / s is conj(s) / |z|. */
static void lower_rsqrt(Lowering *l) {
  Parts z = input_parts(l, 0), root = sqrt_parts(l, z);
  Value *size = magnitude(l, z), *zero = number_like(l, size, 0), *infinity = number_like(l, size, (double)INFINITY);
  Value *re = WHERE(EQUAL(size, zero), infinity, DIV(root.re, size)),
        *im = with_sign(l, ABS(DIV(root.im, size)), NEG(z.im));
  Value *endless = EQUAL(size, infinity);
  bind_parts(l, 0, (Parts){WHERE(endless, zero, re), WHERE(endless, zero, im)});
}

/* cosh(a + bi) = cosh a cos b + i sinh a sin b */
static Parts cosh_parts(Lowering *l, Parts z) {
  Value *re = MUL(REAL("cosh", z.re), REAL("cos", z.im));
  return (Parts){re, times_or_zero(l, REAL("sinh", z.re), REAL("sin", z.im))};
}

/* sinh(a + bi) = sinh a cos b + i cosh a sin b */
static Parts sinh_parts(Lowering *l, Parts z) {
  Value *re = MUL(REAL("sinh", z.re), REAL("cos", z.im));
  return (Parts){re, times_or_zero(l, REAL("cosh", z.re), REAL("sin", z.im))};
}

/* With t = tan b and s = sinh a; far from 0 the real part is 1 and the imaginary one 4 sin b cos b exp(-2 |a|). */
static Parts tanh_parts(Lowering *l, Parts z) {
  Value *one = number_like(l, z.re, 1), *size = ABS(z.re);
  Value *is_far = LESS(number_like(l, size, 20), size);
  Value *t = REAL("tan", z.im), *s = REAL("sinh", WHERE(is_far, one, z.re));
  Value *square = ADD(one, MUL(t, t)), *rho = SQRT(ADD(one, MUL(s, s)));
  Value *below = ADD(one, MUL(square, MUL(s, s)));
  Value *re = DIV(MUL(MUL(square, rho), s), below), *im = DIV(t, below);
  Value *decay = REAL("exp", NEG(size));
  Value *far = MUL(MUL(REAL("sin", z.im), REAL("cos", z.im)), number_like(l, t, 4));
  Value *zero = number_like(l, t, 0);
  im = WHERE(is_far, MUL(MUL(far, decay), decay), im);
  im = WHERE(EQUAL(decay, zero), zero, im);
  return (Parts){WHERE(is_far, ADD(EMIT_MATH(l, OP_Sign, z.re), MUL(im, zero)), re), im}; /* NaN stays */
}

static void lower_cosh(Lowering *l) { bind_parts(l, 0, cosh_parts(l, input_parts(l, 0))); }
static void lower_sinh(Lowering *l) { bind_parts(l, 0, sinh_parts(l, input_parts(l, 0))); }
static void lower_tanh(Lowering *l) { bind_parts(l, 0, tanh_parts(l, input_parts(l, 0))); }
static void lower_cos(Lowering *l) { bind_parts(l, 0, cosh_parts(l, times_i(l, input_parts(l, 0)))); }
static void lower_sin(Lowering *l) { bind_parts(l, 0, over_i(l, sinh_parts(l, times_i(l, input_parts(l, 0))))); }
static void lower_tan(Lowering *l) { bind_parts(l, 0, over_i(l, tanh_parts(l, times_i(l, input_parts(l, 0))))); }

/* (1 + tanh(z / 2)) / 2 */
static void lower_logistic(Lowering *l) {
  Parts z = input_parts(l, 0);
  Value *half = number_like(l, z.re, 0.5);
  Parts t = tanh_parts(l, (Parts){MUL(z.re, half), MUL(z.im, half)});
  bind_parts(l, 0, (Parts){ADD(half, MUL(half, t.re)), MUL(half, t.im)});
}

/* asin and acos of a number in the first quadrant: the two angles, and the height that both have. As T. Hull, T.
 * Fairgrieve and P. Tang compute them, from the distances to 1 and -1; far from both, from the number alone. */
typedef struct Arc {
  Value *sine, *cosine, *height;
} Arc;

static Arc arc_of(Lowering *l, Value *a, Value *b) {
  Value *one = number_like(l, a, 1), *half = number_like(l, a, 0.5), *square = MUL(b, b);
  Value *above = ADD(a, one), *beyond = SUB(a, one), *right = EMIT_MATH(l, OP_Greater, a, one);
  Value *r = magnitude(l, (Parts){above, b}), *s = magnitude(l, (Parts){beyond, b});
  Value *size = MUL(half, ADD(r, s)), *edge = DIV(square, ADD(r, above));
  Value *outside = ADD(s, beyond), *inside = SUB(s, beyond);
  /* (r + s) / 2 less 1 and less a, where the difference is taken before the rounding */
  Value *less_one = MUL(half, ADD(edge, WHERE(LESS(a, one), DIV(square, inside), outside)));
  Value *less_a = MUL(half, ADD(edge, WHERE(right, DIV(square, outside), inside)));
  Value *base = SQRT(MUL(ADD(size, a), less_a));
  Value *height = REAL("log1p", ADD(less_one, SQRT(MUL(less_one, ADD(size, one)))));
  Value *limit = number_like(l, a, a->type.dtype == DTYPE_FLOAT64 ? 1e10 : 1e5);
  Value *is_far = EMIT_MATH(l, OP_Greater, EMIT_MATH(l, OP_Max, a, b), limit);
  base = WHERE(is_far, b, base);
  height = WHERE(is_far, ADD(log_magnitude(l, (Parts){a, b}), number_like(l, a, 0.6931471805599453)), height);
  return (Arc){.sine = ATAN2(a, base), .cosine = ATAN2(base, a), .height = height};
}

/* The other quadrants follow by symmetry. On the cuts JAX takes the side above, whatever the sign of 0. */
static Parts asin_parts(Lowering *l, Parts z) {
  Arc arc = arc_of(l, ABS(z.re), ABS(z.im));
  Value *below = LESS(z.im, number_like(l, z.im, 0));
  return (Parts){with_sign(l, arc.sine, z.re), WHERE(below, NEG(arc.height), arc.height)};
}

static void lower_asin(Lowering *l) { bind_parts(l, 0, asin_parts(l, input_parts(l, 0))); }

static void lower_asinh(Lowering *l) {
  Parts z = input_parts(l, 0), turned = asin_parts(l, (Parts){z.im, z.re});
  bind_parts(l, 0, (Parts){turned.im, turned.re});
}

static Parts acos_parts(Lowering *l, Parts z) {
  Arc arc = arc_of(l, ABS(z.re), ABS(z.im));
  Value *zero = number_like(l, z.re, 0), *pi = number_like(l, z.re, 3.141592653589793);
  Value *angle = WHERE(LESS(z.re, zero), SUB(pi, arc.cosine), arc.cosine);
  return (Parts){angle, WHERE(LESS(z.im, zero), arc.height, NEG(arc.height))};
}

static void lower_acos(Lowering *l) { bind_parts(l, 0, acos_parts(l, input_parts(l, 0))); }

static void lower_acosh(Lowering *l) {
  Parts z = input_parts(l, 0), arc = acos_parts(l, z);
  Value *below = LESS(z.im, number_like(l, z.im, 0));
  bind_parts(l, 0, (Parts){ABS(arc.im), WHERE(below, NEG(arc.re), arc.re)});
}

/* From past ENDLESS on, where squares overflow, it is i pi / 2 to the last digit. */
static Parts atanh_parts(Lowering *l, Parts z) {
  const double ENDLESS = 1e18, quarter_turn = 1.5707963267948966;
  Value *a = ABS(z.re), *b = ABS(z.im), *one = number_like(l, a, 1), *rest = SUB(one, a), *square = MUL(b, b);
  Value *ratio = DIV(MUL(number_like(l, a, 4), a), ADD(MUL(rest, rest), square));
  Value *size = MUL(number_like(l, a, 0.25), REAL("log1p", ratio));
  Value *angle = MUL(number_like(l, a, 0.5), ATAN2(ADD(b, b), SUB(MUL(rest, ADD(one, a)), square)));
  Value *is_far = EMIT_MATH(l, OP_Greater, EMIT_MATH(l, OP_Max, a, b), number_like(l, a, ENDLESS));
  size = WHERE(is_far, number_like(l, a, 0), size);
  angle = WHERE(is_far, number_like(l, a, quarter_turn), angle);
  /* JAX heeds the sign of 0 only where it computes. */
  Value *below = WHERE(is_far, LESS(z.im, number_like(l, a, 0)), sign_bit(l, z.im));
  return (Parts){with_sign(l, size, z.re), WHERE(below, NEG(angle), angle)};
}

static void lower_atanh(Lowering *l) { bind_parts(l, 0, atanh_parts(l, input_parts(l, 0))); }

static void lower_atan(Lowering *l) {
  Parts z = input_parts(l, 0), turned = atanh_parts(l, (Parts){z.im, z.re});
  bind_parts(l, 0, (Parts){turned.im, turned.re});
}

/* -i log((x + i y) / sqrt(x^2 + y^2)) */
static void lower_atan2(Lowering *l) {
  Parts y = input_parts(l, 0), x = input_parts(l, 1), turned = times_i(l, y);
  Parts xx = EMIT_PRODUCT(l, x, x), yy = EMIT_PRODUCT(l, y, y);
  Parts root = sqrt_parts(l, (Parts){ADD(xx.re, yy.re), ADD(xx.im, yy.im)});
  Parts sum = {ADD(x.re, turned.re), ADD(x.im, turned.im)};
  bind_parts(l, 0, over_i(l, log_parts(l, divide_parts(l, sum, root))));
}

/* exp(y log x). Anything to the power of 0 is 1; 0 to a positive power is 0, and to any other NaN. */
static void lower_pow(Lowering *l) {
  Parts x = input_parts(l, 0), y = input_parts(l, 1);
  if (y.re->type.dtype != x.re->type.dtype) { /* JAX takes integers for exponents */
    DType dtype = x.re->type.dtype;
    y = (Parts){cast_to(l, y.re, dtype), constant_scalar(l, dtype, 0)};
  }
  Value *zero = number_like(l, x.re, 0), *one = number_like(l, x.re, 1);
  Parts power = exp_parts(l, EMIT_PRODUCT(l, y, log_parts(l, x)));
  Value *base = EMIT_MATH(l, OP_And, EQUAL(x.re, zero), EQUAL(x.im, zero)), *real = EQUAL(y.im, zero);
  Value *nothing = EMIT_MATH(l, OP_And, base, EMIT_MATH(l, OP_And, LESS(zero, y.re), real));
  Value *unit = EMIT_MATH(l, OP_And, EQUAL(y.re, zero), real);
  Value *re = WHERE(nothing, zero, power.re), *im = WHERE(EMIT_MATH(l, OP_Or, nothing, unit), zero, power.im);
  bind_parts(l, 0, (Parts){WHERE(unit, one, re), im});
}

/* clang-format off */
const Plugin complex_function_plugins[] = {
    PLUGIN("acos", lower_acos, OP_NONE),
    PLUGIN("acosh", lower_acosh, OP_NONE),
    PLUGIN("asin", lower_asin, OP_NONE),
    PLUGIN("asinh", lower_asinh, OP_NONE),
    PLUGIN("atan", lower_atan, OP_NONE),
    PLUGIN("atan2", lower_atan2, OP_NONE),
    PLUGIN("atanh", lower_atanh, OP_NONE),
    PLUGIN("cos", lower_cos, OP_NONE),
    PLUGIN("cosh", lower_cosh, OP_NONE),
    PLUGIN("exp", lower_exp, OP_NONE),
    PLUGIN("exp2", lower_exp2, OP_NONE),
    PLUGIN("expm1", lower_expm1, OP_NONE),
    PLUGIN("log", lower_log, OP_NONE),
    PLUGIN("log1p", lower_log1p, OP_NONE),
    PLUGIN("logistic", lower_logistic, OP_NONE),
    PLUGIN("pow", lower_pow, OP_NONE),
    PLUGIN("rsqrt", lower_rsqrt, OP_NONE),
    PLUGIN("sin", lower_sin, OP_NONE),
    PLUGIN("sinh", lower_sinh, OP_NONE),
    PLUGIN("sqrt", lower_sqrt, OP_NONE),
    PLUGIN("tan", lower_tan, OP_NONE),
    PLUGIN("tanh", lower_tanh, OP_NONE),
    {0},
};
/* clang-format on */
