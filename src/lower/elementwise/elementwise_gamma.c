/* The gamma function's family, in float64: Stirling's series from 8 on, recurrence and reflection before that. */
#include <math.h>

#include "lower/elementwise/arithmetic.h"
#include "lower/elementwise/bessel_tables.inc"

static const double pi = 3.14159265358979323846;

static Value *double_input(Lowering *l, size_t index) { return cast_to(l, wide_input(l, index), DTYPE_FLOAT64); }

static Value *plus(Lowering *l, Value *x, double number) { return EMIT_MATH(l, OP_Add, x, number_like(l, x, number)); }

static Value *times(Lowering *l, Value *x, double number) { return EMIT_MATH(l, OP_Mul, x, number_like(l, x, number)); }

/* Where the series stands for a positive x: at x + 8 when x < 8. Then the product x (x + 1) … (x + 7) leads back, which
 * in u = x (x + 7) is u (u + 6) (u + 10) (u + 12). */
typedef struct Shift {
  Value *near; /* is x < 8? */
  Value *at;   /* at least 8 */
  Value *u;
} Shift;

static Shift shift_to_series(Lowering *l, Value *x) {
  Value *eight = number_like(l, x, 8), *near = EMIT_MATH(l, OP_Less, x, eight);
  Value *at = EMIT_WHERE(l, near, plus(l, x, 8), x);
  return (Shift){.near = near, .at = at, .u = EMIT_MATH(l, OP_Mul, x, plus(l, x, 7))};
}

static Value *inverse_square(Lowering *l, Value *x) { return EMIT_MATH(l, OP_Reciprocal, EMIT_MATH(l, OP_Mul, x, x)); }

/* log(gamma(x)) for x >= 0 */
static Value *positive_lgamma(Lowering *l, Value *x) {
  static const double series[] = {1.0 / 12,   -1.0 / 360,        1.0 / 1260, -1.0 / 1680,
                                  1.0 / 1188, -691.0 / 360360.0, 1.0 / 156,  -3617.0 / 122400};
  Shift shift = shift_to_series(l, x);
  Value *rest = EMIT_MATH(l, OP_Div, EMIT_POLYNOMIAL(l, inverse_square(l, shift.at), series), shift.at);
  Value *slope = plus(l, EMIT_MATH(l, OP_Log, shift.at), -1);
  Value *main = EMIT_MATH(l, OP_Mul, plus(l, shift.at, -0.5), slope);
  Value *sum = EMIT_MATH(l, OP_Add, main, plus(l, rest, 0.91893853320467274178 - 0.5)); /* log(2 pi) / 2 */
  Value *product = EMIT_MATH(l, OP_Mul, shift.u, plus(l, shift.u, 6));
  product = EMIT_MATH(l, OP_Mul, EMIT_MATH(l, OP_Mul, product, plus(l, shift.u, 10)), plus(l, shift.u, 12));
  Value *back = EMIT_MATH(l, OP_Sub, sum, EMIT_MATH(l, OP_Log, product));
  return EMIT_WHERE(l, shift.near, back, sum);
}

/* digamma(x) for x >= 0 */
static Value *positive_digamma(Lowering *l, Value *x) {
  static const double series[] = {1.0 / 12,  -1.0 / 120,     1.0 / 252, -1.0 / 240,
                                  1.0 / 132, -691.0 / 32760, 1.0 / 12,  -3617.0 / 8160};
  static const double offsets[] = {6, 10, 12};
  Shift shift = shift_to_series(l, x);
  Value *square = inverse_square(l, shift.at);
  Value *half = times(l, EMIT_MATH(l, OP_Reciprocal, shift.at), 0.5);
  Value *rest = EMIT_MATH(l, OP_Add, half, EMIT_MATH(l, OP_Mul, square, EMIT_POLYNOMIAL(l, square, series)));
  Value *value = EMIT_MATH(l, OP_Sub, EMIT_MATH(l, OP_Log, shift.at), rest);
  Value *sum = EMIT_MATH(l, OP_Reciprocal, shift.u); /* pairs of 1 / (x + k) */
  for (int i = 0; i < 3; i++) {
    sum = EMIT_MATH(l, OP_Add, sum, EMIT_MATH(l, OP_Reciprocal, plus(l, shift.u, offsets[i])));
  }
  Value *pairs = EMIT_MATH(l, OP_Mul, sum, plus(l, EMIT_MATH(l, OP_Add, x, x), 7));
  return EMIT_WHERE(l, shift.near, EMIT_MATH(l, OP_Sub, value, pairs), value);
}

/* How far x is above the nearest integer, exactly; x - x is NaN where x is infinite. */
static Value *above_nearest(Lowering *l, Value *x) { return EMIT_MATH(l, OP_Sub, x, EMIT_MATH(l, OP_Round, x)); }

/* gamma(x) gamma(1 - x) = pi / sin(pi x) */
static Value *log_gamma(Lowering *l, Value *x) {
  Value *one = number_like(l, x, 1), *mirrored = EMIT_MATH(l, OP_Less, x, number_like(l, x, 0));
  Value *value = positive_lgamma(l, EMIT_WHERE(l, mirrored, EMIT_MATH(l, OP_Sub, one, x), x));
  Value *sine = EMIT_MATH(l, OP_Abs, EMIT_MATH(l, OP_Sin, times(l, above_nearest(l, x), pi)));
  Value *log = EMIT_MATH(l, OP_Sub, number_like(l, x, 1.1447298858494001741), EMIT_MATH(l, OP_Log, sine)); /* log(pi) */
  value = EMIT_WHERE(l, mirrored, EMIT_MATH(l, OP_Sub, log, value), value);
  return EMIT_WHERE(l, EMIT_MATH(l, OP_IsInf, cast_to(l, x, DTYPE_FLOAT32)), number_like(l, x, INFINITY), value);
}

/* digamma(1 - x) - digamma(x) = pi / tan(pi x); there is no value at -1, -2, …, and at 0 it is -infinity, as in JAX
 * from 0.11 on (NaN before). */
static Value *digamma(Lowering *l, Value *x) {
  Value *one = number_like(l, x, 1), *mirrored = EMIT_MATH(l, OP_Less, x, number_like(l, x, 0));
  Value *value = positive_digamma(l, EMIT_WHERE(l, mirrored, EMIT_MATH(l, OP_Sub, one, x), EMIT_MATH(l, OP_Abs, x)));
  Value *rest = above_nearest(l, x), *angle = times(l, rest, pi);
  Value *cotangent = EMIT_MATH(l, OP_Div, EMIT_MATH(l, OP_Cos, angle), EMIT_MATH(l, OP_Sin, angle));
  Value *reflected = EMIT_MATH(l, OP_Sub, value, times(l, cotangent, pi));
  Value *pole = EMIT_MATH(l, OP_Equal, rest, number_like(l, x, 0));
  reflected = EMIT_WHERE(l, pole, number_like(l, x, NAN), reflected);
  return EMIT_WHERE(l, mirrored, reflected, value);
}

/* The rest of the sum over (q + k)^-x from a = q + 10 on, by Euler and Maclaurin, divided by a^-x. As many terms as in
 * XLA: where q is below -7, a is too small for them, and no other number of them gives what JAX gives. */
static Value *zeta_tail(Lowering *l, Value *x, Value *a) {
  static const double bernoulli[] = {/* B(2j) / (2j)! */
                                     1.0 / 12,
                                     -1.0 / 720,
                                     1.0 / 30240,
                                     -1.0 / 1209600,
                                     1.0 / 47900160,
                                     -5.284190138687493e-10,
                                     1.3382536530684679e-11,
                                     -3.3896802963225829e-13,
                                     8.5860620562778446e-15,
                                     -2.1748686985580619e-16,
                                     5.5090028283602295e-18,
                                     -1.3954464685812522e-19};
  int last = (int)(sizeof bernoulli / sizeof *bernoulli) - 1;
  Value *square = inverse_square(l, a), *sum = number_like(l, x, bernoulli[last]);
  for (int j = last; j > 0; j--) {
    Value *factors = EMIT_MATH(l, OP_Mul, plus(l, x, 2 * j - 1), plus(l, x, 2 * j));
    sum = EMIT_MATH(l, OP_Mul, EMIT_MATH(l, OP_Mul, factors, square), sum);
    sum = plus(l, sum, bernoulli[j - 1]);
  }
  sum = EMIT_MATH(l, OP_Mul, EMIT_MATH(l, OP_Div, x, a), sum);
  Value *integral = EMIT_MATH(l, OP_Div, a, plus(l, x, -1));
  return EMIT_MATH(l, OP_Add, plus(l, integral, 0.5), sum);
}

static Value *is_even(Lowering *l, Value *x) {
  Value *half = EMIT_MATH(l, OP_Mul, x, number_like(l, x, 0.5));
  return EMIT_MATH(l, OP_Equal, half, EMIT_MATH(l, OP_Floor, half));
}

/* The sum over (q + k)^-x, k = 0, 1, …; at a pole both sides meet only where x is even. */
static Value *hurwitz_zeta(Lowering *l, Value *x, Value *q) {
  static const double first[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  static const int64_t count = 10;
  Value *terms = constant(l, tensor_new(l, DTYPE_FLOAT64, &count, 1, first, sizeof first));
  int64_t ranks[] = {x->type.rank, q->type.rank}; /* one may be a single number */
  int64_t axis = ranks[0] > ranks[1] ? ranks[0] : ranks[1];
  Value *power = EMIT_MATH(l, OP_Neg, x);
  Value *bases = EMIT_MATH(l, OP_Add, unsqueeze_at(l, q, &ranks[1], 1), terms);
  Value *exponents = unsqueeze_at(l, power, &ranks[0], 1);
  Value *sum = EMIT_REDUCED(l, OP_ReduceSum, EMIT_MATH(l, OP_Pow, bases, exponents), &axis, 1);
  Value *a = plus(l, q, 10);
  Value *tail = EMIT_MATH(l, OP_Mul, EMIT_MATH(l, OP_Pow, a, power), zeta_tail(l, x, a));
  Value *value = EMIT_MATH(l, OP_Add, sum, tail);
  Value *zero = number_like(l, q, 0), *one = number_like(l, x, 1), *nan = number_like(l, x, NAN);
  Value *left = EMIT_MATH(l, OP_LessOrEqual, q, zero), *infinity = number_like(l, x, INFINITY);
  Value *whole = EMIT_MATH(l, OP_Equal, x, EMIT_MATH(l, OP_Floor, x));
  Value *fails = EMIT_MATH(l, OP_And, left, EMIT_MATH(l, OP_Not, whole));
  value = EMIT_WHERE(l, EMIT_MATH(l, OP_Or, fails, EMIT_MATH(l, OP_Less, x, one)), nan, value);
  Value *pole = EMIT_MATH(l, OP_And, left, EMIT_MATH(l, OP_Equal, q, EMIT_MATH(l, OP_Floor, q)));
  value = EMIT_WHERE(l, pole, EMIT_WHERE(l, is_even(l, x), infinity, nan), value);
  return EMIT_WHERE(l, EMIT_MATH(l, OP_Equal, x, one), infinity, value);
}

static void lower_lgamma(Lowering *l) { bind_narrow(l, log_gamma(l, double_input(l, 0))); }

static void lower_digamma(Lowering *l) { bind_narrow(l, digamma(l, double_input(l, 0))); }

static void lower_zeta(Lowering *l) { bind_narrow(l, hurwitz_zeta(l, double_input(l, 0), double_input(l, 1))); }

/* (-1)^(n + 1) n! zeta(n + 1, x), and digamma for n = 0. */
static void lower_polygamma(Lowering *l) {
  Value *n = double_input(l, 0), *x = double_input(l, 1), *next = plus(l, n, 1);
  double order;
  bool known = literal_double(input_literal(l, 0), &order);
  if (known && order == 0) {
    bind_narrow(l, digamma(l, x));
    return;
  }
  Value *size = EMIT_MATH(l, OP_Mul, EMIT_MATH(l, OP_Exp, log_gamma(l, next)), hurwitz_zeta(l, next, x));
  Value *half = times(l, n, 0.5);
  Value *even = EMIT_MATH(l, OP_Equal, half, EMIT_MATH(l, OP_Floor, half));
  Value *value = EMIT_WHERE(l, even, EMIT_MATH(l, OP_Neg, size), size);
  Value *zero = number_like(l, n, 0);
  if (!known) value = EMIT_WHERE(l, EMIT_MATH(l, OP_Equal, n, zero), digamma(l, x), value);
  Value *natural = EMIT_MATH(l, OP_Equal, n, EMIT_MATH(l, OP_Floor, EMIT_MATH(l, OP_Abs, n)));
  bind_narrow(l, EMIT_WHERE(l, natural, value, number_like(l, n, NAN)));
}

enum { FIRST_ORDER = 1 };

/* Polynomials in x / 4 - 1 up to 8, and in 16 / x - 1 from there on, scaled by the root of x. */
static void lower_scaled_bessel(Lowering *l) {
  Value *x = double_input(l, 0), *size = EMIT_MATH(l, OP_Abs, x), *eight = number_like(l, x, 8);
  bool first = l->plugin->flags & FIRST_ORDER;
  Value *t = plus(l, times(l, EMIT_MATH(l, OP_Min, size, eight), 0.25), -1);
  Value *near = first ? EMIT_POLYNOMIAL(l, t, bessel_i1e_near) : EMIT_POLYNOMIAL(l, t, bessel_i0e_near);
  Value *far_size = EMIT_MATH(l, OP_Max, size, eight);
  Value *s = plus(l, EMIT_MATH(l, OP_Div, number_like(l, x, 16), far_size), -1);
  Value *far = first ? EMIT_POLYNOMIAL(l, s, bessel_i1e_far) : EMIT_POLYNOMIAL(l, s, bessel_i0e_far);
  far = EMIT_MATH(l, OP_Div, far, EMIT_MATH(l, OP_Sqrt, far_size));
  if (first) {
    near = EMIT_MATH(l, OP_Mul, x, near);
    far = EMIT_MATH(l, OP_Mul, EMIT_MATH(l, OP_Sign, x), far);
  }
  Value *value = EMIT_WHERE(l, EMIT_MATH(l, OP_Greater, size, eight), far, near);
  bind_narrow(l, EMIT_WHERE(l, EMIT_MATH(l, OP_IsNaN, x), x, value));
}

/* clang-format off */
const Plugin gamma_plugins[] = {
    PLUGIN("lgamma", lower_lgamma, OP_Log),
    PLUGIN("digamma", lower_digamma, OP_Log),
    PLUGIN("zeta", lower_zeta, OP_Pow),
    PLUGIN("polygamma", lower_polygamma, OP_Pow),
    PLUGIN("bessel_i0e", lower_scaled_bessel),
    PLUGIN("bessel_i1e", lower_scaled_bessel, .flags = FIRST_ORDER),
    {0},
};
/* clang-format on */
