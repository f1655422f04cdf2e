/* Integers and bits: division, remainder, shifts, logic, with JAX's results where C and ONNX leave them undefined. */
#include "lower/arithmetic.h"
#include "onnx/schema.h"

/* Is the divisor known at export and neither 0 nor -1? */
static bool safe_divisor(Lowering *l, size_t index) {
  int64_t value;
  return literal_int(input_literal(l, index), &value) && value != 0 && value != -1;
}

/* A quotient's divisor with 0 (and -1, whose quotient may overflow) replaced by 1, so that no division traps. */
static Value *guarded_divisor(Lowering *l, Value *divisor, Value *zero, Value **minus_one) {
  *minus_one = NULL;
  Value *trap = zero;
  if (!dtype_is_unsigned(divisor->type.dtype)) {
    *minus_one = EMIT_MATH(l, "Equal", divisor, integer_like(l, divisor, -1));
    trap = EMIT_MATH(l, "Or", zero, *minus_one);
  }
  return EMIT_WHERE(l, trap, integer_like(l, divisor, 1), divisor);
}

/* In JAX x / 0 has all bits set, and the least number / -1 is itself. */
static void lower_div(Lowering *l) {
  Value *x = input(l, 0), *divisor = input(l, 1);
  Type type = output_type(l, 0);
  if (!dtype_is_integer(type.dtype) || safe_divisor(l, 1)) {
    bind(l, 0, EMIT_AROUND(l, "Div", type, x, divisor));
    return;
  }
  Value *minus_one, *zero = EMIT_MATH(l, "Equal", divisor, integer_like(l, divisor, 0));
  Value *quotient = EMIT_MATH(l, "Div", x, guarded_divisor(l, divisor, zero, &minus_one));
  if (minus_one) quotient = EMIT_WHERE(l, minus_one, EMIT_MATH(l, "Neg", x), quotient);
  bind(l, 0, EMIT_WHERE(l, zero, integer_like(l, x, -1), quotient));
}

static Value *remainder_of(Lowering *l, Value *x, Value *divisor) {
  Value *result = EMIT_MATH(l, "Mod", x, divisor);
  Node *mod = result->producer;
  if (!node_is(mod, "Mod")) mod = node_input(mod, 0)->producer; /* behind the cast back */
  node_set_int(mod, "fmod", 1);
  return result;
}

/* The remainder has the sign of x, as in C; in JAX x rem 0 is x. */
static void lower_rem(Lowering *l) {
  Value *x = native_input(l, 0), *divisor = native_input(l, 1);
  if (!dtype_is_integer(x->type.dtype) || safe_divisor(l, 1)) {
    bind_narrow(l, remainder_of(l, x, divisor));
    return;
  }
  Value *minus_one, *zero = EMIT_MATH(l, "Equal", divisor, integer_like(l, divisor, 0));
  Value *remainder = remainder_of(l, x, guarded_divisor(l, divisor, zero, &minus_one));
  bind(l, 0, EMIT_WHERE(l, zero, x, remainder));
}

const Plugin integer_plugins[] = {
    PLUGIN("div", lower_div, "Div"),
    PLUGIN("rem", lower_rem, "Mod"),
    {0},
};
