/* Changing the element type: JAX's conversions where ONNX leaves the result open. */
#include <math.h>

#include "lower/elementwise/arithmetic.h"
#include "onnx/facts/schema.h"

/* The integers a float is converted to saturate, and NaN becomes 0; ONNX leaves both open. */
static Value *float_to_integer(Lowering *l, Value *x, DType to) {
  bool is_signed = !dtype_is_unsigned(to);
  int bits = (int)dtype_bits(to);
  /* Both ends of the range must be exact in the type of the comparison. */
  DType through = bits < 32 ? DTYPE_FLOAT32 : DTYPE_FLOAT64;
  if (x->type.dtype == DTYPE_FLOAT64) through = DTYPE_FLOAT64;
  if (bits == 64 && x->type.dtype != DTYPE_FLOAT64) through = DTYPE_FLOAT32;
  x = cast_to(l, x, through);
  double limit = 1.0;
  for (int i = is_signed; i < bits; i++) limit *= 2; /* the first number past the end */
  double low = is_signed ? -limit : 0;
  x = EMIT_WHERE(l, EMIT_MATH(l, OP_IsNaN, x), number_like(l, x, 0), x);
  if (bits < 64) {
    x = EMIT_MATH(l, OP_Clip, x, number_like(l, x, low), number_like(l, x, limit - 1));
    if (bits < 8) x = cast_to(l, x, DTYPE_INT32); /* ONNX Runtime rounds to nearest on the way to 4 bits */
    return cast_to(l, x, to);
  }
  Value *past = EMIT_MATH(l, OP_GreaterOrEqual, x, number_like(l, x, limit));
  Value *cast = cast_to(l, EMIT_MATH(l, OP_Max, x, number_like(l, x, low)), to);
  return EMIT_WHERE(l, past, integer_like(l, cast, is_signed ? INT64_MAX : -1), cast);
}

/* JAX adds halves up in float32 and converts the sum, or the mean, back: that is one function of halves, with a
 * rounding at its end as any other, and not one that the program asked for. */
static bool is_sum_of_halves(const Value *value, DType half) {
  const Node *node = value->producer;
  while (node && (node_is(node, OP_Div) || node_is(node, OP_Mul) || node_has(node, RENAMES))) {
    if (node_input(node, 1) && !node_has(node, RENAMES) && !node_input(node, 1)->tensor) return false;
    node = node_input(node, 0)->producer;
  }
  const Node *cast = node && node_has(node, REDUCES) ? node_input(node, 0)->producer : NULL;
  return cast && node_is(cast, OP_Cast) && node_input(cast, 0)->type.dtype == half;
}

/* Gives back one of its inputs, or such a one but for the sign: it rounds nothing. */
static bool is_exact(const Node *node) {
  static const Op exact[] = {OP_Abs, OP_Clip, OP_Max, OP_Min, OP_Neg, OP_Relu, OP_Where};
  for (size_t i = 0; i < sizeof exact / sizeof *exact; i++) {
    if (node_is(node, exact[i])) return true;
  }
  return node_has(node, MOVES) || node_is(node, OP_Cast) || node_is(node, OP_Narrow);
}

/* The program reads back in float32 what it asked to be rounded, as it is or moved or chosen from: it wants to see the
 * rounding. Behind arithmetic, which rounds itself, it cannot tell. */
static void keep_roundings(Value *value) {
  enum { MOST_VISITS = 64 };
  Value *waiting[MOST_VISITS] = {value};
  for (size_t count = 1, visits = 1; count > 0;) {
    Node *node = waiting[--count]->producer;
    if (!node || !is_exact(node)) continue;
    if (node_is(node, OP_Narrow) && node_int_or(node, "asked", 0)) {
      node_set_int(node, "asked", NARROW_KEPT);
      continue;
    }
    for (uint32_t i = 0; i < node->input_count && visits < MOST_VISITS; i++) {
      Value *from = node_input(node, i);
      if (!from || !dtype_is_float(from->type.dtype) || from->tensor) continue;
      waiting[count++] = from;
      visits++;
    }
  }
}

static Value *asked_narrow(Lowering *l, Value *value, DType half) {
  Value *narrow = narrow_to(l, value, half);
  if (narrow->producer && node_is(narrow->producer, OP_Narrow)) node_set_int(narrow->producer, "asked", NARROW_ASKED);
  return narrow;
}

/* Is it kept to numbers below the limit? */
static bool is_clipped_below(const Value *x, double limit) {
  const Node *node = x->producer;
  double number;
  if (!node || (!node_is(node, OP_Clip) && !node_is(node, OP_Min) && !node_is(node, OP_Max))) return false;
  bool low = node_is(node, OP_Max), high = node_is(node, OP_Min);
  for (uint32_t i = 0; i < node->input_count; i++) {
    const Value *bound = node_input(node, i);
    if (!bound || !bound->tensor || !literal_double(bound->tensor, &number)) continue;
    low = low || (number <= 0 && number > -limit);
    high = high || (number >= 0 && number < limit);
  }
  return low && high;
}

/* The first numbers past the range of a float of 8 bits are made infinite where the runtime misses them. */
static Value *float_to_small_float(Lowering *l, Value *x, DType to) {
  double past = to == DTYPE_FLOAT8_E4M3FN ? 480 : to == DTYPE_FLOAT8_E5M2 ? 61440 : 0;
  if (dtype_bits(x->type.dtype) < 16 || !past || !target_quirk(l, QUIRK_CAST_TO_FLOAT8_MISSES_THE_END) ||
      is_clipped_below(x, past))
    return cast_to(l, x, to);
  Value *wide = dtype_is_half(x->type.dtype) ? cast_to(l, x, DTYPE_FLOAT32) : x;
  Value *is_past = EMIT_MATH(l, OP_GreaterOrEqual, EMIT_MATH(l, OP_Abs, wide), number_like(l, wide, past));
  Value *infinite = EMIT_MATH(l, OP_Mul, wide, number_like(l, wide, INFINITY));
  return cast_to(l, EMIT_WHERE(l, is_past, infinite, wide), to);
}

static void lower_convert_element_type(Lowering *l) {
  Value *x = input(l, 0);
  DType from = x->type.dtype, to = output_type(l, 0).dtype;
  if (from == to) {
    bind(l, 0, x);
    return;
  }
  if (dtype_kind(from) == KIND_COMPLEX || dtype_kind(to) == KIND_COMPLEX) {
    unsupported(l, "conversion from %s to %s is not supported", dtype_name(from), dtype_name(to));
  }
  if (onnx_dtype(from) == 0 || onnx_dtype(to) == 0) {
    unsupported(l, "ONNX has no type for a conversion from %s to %s", dtype_name(from), dtype_name(to));
  }
  if (dtype_is_half(from)) keep_roundings(x);
  if (dtype_is_float(from) && dtype_is_integer(to)) bind(l, 0, float_to_integer(l, x, to));
  else if (is_sum_of_halves(x, to)) bind_narrow(l, x);
  else if (from == DTYPE_FLOAT32 && dtype_is_half(to)) bind(l, 0, asked_narrow(l, x, to));
  else if (dtype_is_float(from) && dtype_is_float(to) && dtype_bits(to) == 8)
    bind(l, 0, float_to_small_float(l, x, to));
  else bind(l, 0, cast_to(l, x, to));
}

/* clang-format off */
const Plugin convert_plugins[] = {
    PLUGIN("convert_element_type", lower_convert_element_type, OP_Cast),
    {0},
};
/* clang-format on */
