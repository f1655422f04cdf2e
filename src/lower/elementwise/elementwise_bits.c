/* The bits of floats: reinterpretation, neighbours, total order.
 *
 * ONNX has BitCast from opset 26 on. Before that the bits are computed: exponent and fraction by exact arithmetic in
 * float64 and int64. Every NaN then has the bits of the positive quiet one.
 */
#include <math.h>

#include "lower/elementwise/arithmetic.h"
#include "onnx/facts/schema.h"
#include "types/moved.h"
#include "types/numbers.h"

typedef struct FloatLayout {
  int fraction_bits, bias;
  int nan; /* the bits that come after the largest number are those of NaN, where there is no infinity; else 0 */
} FloatLayout;

static FloatLayout layout_of(Lowering *l, DType dtype) {
  switch (dtype) {
    case DTYPE_FLOAT8_E4M3FN: return (FloatLayout){3, 7, 0x7F};
    case DTYPE_FLOAT8_E5M2: return (FloatLayout){2, 15, 0};
    case DTYPE_FLOAT16: return (FloatLayout){10, 15, 0};
    case DTYPE_BFLOAT16: return (FloatLayout){7, 127, 0};
    case DTYPE_FLOAT32: return (FloatLayout){23, 127, 0};
    case DTYPE_FLOAT64: return (FloatLayout){52, 1023, 0};
    default: unsupported(l, "access to the bits of %s is not supported", dtype_name(dtype));
  }
}

static int64_t top_bit(unsigned width) { return (int64_t)(UINT64_C(1) << (width - 1)); }

static int64_t infinity_bits(FloatLayout layout) { return (int64_t)(2 * layout.bias + 1) << layout.fraction_bits; }

static bool has_bitcast(Lowering *l, DType dtype) { return schema_runs(OP_BitCast, NULL, l->options->opset, dtype); }

static DType integer_of_width(unsigned width, bool is_signed) {
  switch (width) {
    case 4:
    case 8: return is_signed ? DTYPE_INT8 : DTYPE_UINT8;
    case 16: return is_signed ? DTYPE_INT16 : DTYPE_UINT16;
    case 32: return is_signed ? DTYPE_INT32 : DTYPE_UINT32;
    default: return is_signed ? DTYPE_INT64 : DTYPE_UINT64;
  }
}

static Value *bitcast_node(Lowering *l, Value *x, DType to) {
  Value *result = EMIT(l, OP_BitCast, type_with(x->type, to), x);
  node_set_int(result->producer, "to", onnx_dtype(to));
  return result;
}

/* The bits of |x|, x in float64, for layouts narrower than float64: exponent and significand are exact, and as
 * 1 <= significand < 2, or the exponent is the least, exponent + significand grows as the bits do. */
static Value *narrow_magnitude_bits(Lowering *l, Value *x, FloatLayout layout) {
  /* Has the bits of infinity; without it, all numbers have a power of two above them. */
  double past = ldexp(1, layout.bias + (layout.nan ? 2 : 1));
  Value *size = EMIT_MATH(l, OP_Min, EMIT_MATH(l, OP_Abs, x), number_like(l, x, past));
  /* The nearest number below a power of two is 1e-7 away from it: a shift by 1e-9 only undoes rounding. */
  Value *log = EMIT_MATH(l, OP_Mul, EMIT_MATH(l, OP_Log, size), number_like(l, x, 1.4426950408889634));
  Value *place = EMIT_MATH(l, OP_Floor, EMIT_MATH(l, OP_Add, log, number_like(l, x, 1e-9)));
  place = EMIT_MATH(l, OP_Max, place, number_like(l, x, 1 - layout.bias));
  Value *power = EMIT_MATH(l, OP_Pow, number_like(l, x, 2), EMIT_MATH(l, OP_Neg, place));
  Value *significand = EMIT_MATH(l, OP_Mul, size, power);
  Value *sum = EMIT_MATH(l, OP_Add, EMIT_MATH(l, OP_Add, place, number_like(l, x, layout.bias - 1)), significand);
  Value *bits = EMIT_MATH(l, OP_Mul, sum, number_like(l, x, (double)(INT64_C(1) << layout.fraction_bits)));
  int64_t quiet = layout.nan ? layout.nan : infinity_bits(layout) | INT64_C(1) << (layout.fraction_bits - 1);
  Value *nan = number_like(l, x, (double)quiet);
  return cast_to(l, EMIT_WHERE(l, EMIT_MATH(l, OP_IsNaN, x), nan, bits), DTYPE_INT64);
}

/* The same for float64 itself: the logarithm may miss the exponent by one, which the significand then shows. */
static Value *double_magnitude_bits(Lowering *l, Value *x) {
  Value *one = number_like(l, x, 1), *two = number_like(l, x, 2), *least = number_like(l, x, -1022);
  Value *size = EMIT_MATH(l, OP_Min, EMIT_MATH(l, OP_Abs, x), number_like(l, x, 0x1.fffffffffffffp1023));
  Value *log = EMIT_MATH(l, OP_Mul, EMIT_MATH(l, OP_Log, size), number_like(l, x, 1.4426950408889634));
  Value *place = EMIT_MATH(l, OP_Max, EMIT_MATH(l, OP_Floor, log), least);
  Value *power = EMIT_MATH(l, OP_Pow, two, EMIT_MATH(l, OP_Neg, place));
  Value *significand = EMIT_MATH(l, OP_Mul, size, power);
  Value *high = cast_to(l, EMIT_MATH(l, OP_GreaterOrEqual, significand, two), DTYPE_FLOAT64);
  Value *is_low = EMIT_MATH(l, OP_And, EMIT_MATH(l, OP_Less, significand, one), EMIT_MATH(l, OP_Greater, place, least));
  Value *shift = EMIT_MATH(l, OP_Sub, high, cast_to(l, is_low, DTYPE_FLOAT64));
  significand = EMIT_MATH(l, OP_Mul, significand, EMIT_MATH(l, OP_Pow, two, EMIT_MATH(l, OP_Neg, shift)));
  Value *biased = EMIT_MATH(l, OP_Add, EMIT_MATH(l, OP_Add, place, shift), number_like(l, x, 1022));
  biased = cast_to(l, biased, DTYPE_INT64);
  Value *fraction = cast_to(l, EMIT_MATH(l, OP_Mul, significand, number_like(l, x, 0x1p52)), DTYPE_INT64);
  Value *bits = EMIT_MATH(l, OP_Add, EMIT_MATH(l, OP_Mul, biased, integer_like(l, biased, INT64_C(1) << 52)), fraction);
  Value *infinite = EMIT_MATH(l, OP_Greater, EMIT_MATH(l, OP_Abs, x), size);
  bits = EMIT_WHERE(l, infinite, integer_like(l, bits, INT64_C(0x7FF0000000000000)), bits);
  return EMIT_WHERE(l, EMIT_MATH(l, OP_IsNaN, x), integer_like(l, bits, INT64_C(0x7FF8000000000000)), bits);
}

/* The bits of a float as int64; without a sign for types narrower than 64 bits. */
static Value *float_bits(Lowering *l, Value *x) {
  DType dtype = x->type.dtype;
  unsigned width = dtype_bits(dtype);
  if (has_bitcast(l, dtype)) return cast_to(l, bitcast_node(l, x, integer_of_width(width, false)), DTYPE_INT64);
  FloatLayout layout = layout_of(l, dtype);
  Value *wide = cast_to(l, x, DTYPE_FLOAT64);
  Value *bits = width == 64 ? double_magnitude_bits(l, wide) : narrow_magnitude_bits(l, wide, layout);
  Value *with_sign = EMIT_MATH(l, OP_Add, bits, integer_like(l, bits, top_bit(width)));
  return EMIT_WHERE(l, sign_bit(l, wide), with_sign, bits);
}

/* Is the sign set in the bits of a float of this type? */
static Value *is_negative(Lowering *l, Value *bits, DType dtype) {
  unsigned width = dtype_bits(dtype);
  if (width == 64) return EMIT_MATH(l, OP_Less, bits, integer_like(l, bits, 0));
  return EMIT_MATH(l, OP_GreaterOrEqual, bits, integer_like(l, bits, top_bit(width)));
}

/* The float whose bits are the low ones of an int64. */
static Value *float_from_bits(Lowering *l, Value *bits, DType to) {
  unsigned width = dtype_bits(to);
  if (has_bitcast(l, to)) return bitcast_node(l, cast_to(l, bits, integer_of_width(width, false)), to);
  FloatLayout layout = layout_of(l, to);
  Value *top = integer_like(l, bits, top_bit(width)), *one = integer_like(l, bits, 1);
  Value *negative = is_negative(l, bits, to);
  Value *size = EMIT_WHERE(l, negative, EMIT_MATH(l, OP_Sub, bits, top), bits);
  Value *unit = integer_like(l, bits, INT64_C(1) << layout.fraction_bits);
  Value *exponent = EMIT_MATH(l, OP_Div, size, unit), *fraction = EMIT_MATH(l, OP_Mod, size, unit);
  /* Subnormal numbers lack the leading one and have the exponent of the least normal ones. */
  Value *leading = EMIT_MATH(l, OP_Mul, EMIT_MATH(l, OP_Min, exponent, one), unit);
  Value *significand = cast_to(l, EMIT_MATH(l, OP_Add, fraction, leading), DTYPE_FLOAT64);
  Value *place = cast_to(l, EMIT_MATH(l, OP_Max, exponent, one), DTYPE_FLOAT64);
  place = EMIT_MATH(l, OP_Sub, place, number_like(l, place, layout.bias + layout.fraction_bits));
  Value *x = EMIT_MATH(l, OP_Mul, significand, EMIT_MATH(l, OP_Pow, number_like(l, place, 2), place));
  Value *is_nan = EMIT_MATH(l, OP_Greater, size, integer_like(l, bits, infinity_bits(layout)));
  x = EMIT_WHERE(l, is_nan, number_like(l, x, NAN), x);
  return cast_to(l, EMIT_WHERE(l, negative, EMIT_MATH(l, OP_Neg, x), x), to);
}

enum { HALF_BYTE = 0xF, HALF_SIGN = 8 };

/* The bits of 4 as a byte, and bytes as the 4 bits that they hold. */
static Value *byte_of_half(Lowering *l, Value *x) {
  if (x->type.dtype == DTYPE_UINT4) return cast_to(l, x, DTYPE_UINT8);
  Value *byte = cast_to(l, cast_to(l, x, DTYPE_INT8), DTYPE_UINT8);
  return EMIT_MATH(l, OP_BitwiseAnd, byte, integer_like(l, byte, HALF_BYTE));
}

static Value *half_of_byte(Lowering *l, Value *byte, DType to) {
  if (to == DTYPE_UINT4) return cast_to(l, byte, to);
  Value *turned = EMIT_MATH(l, OP_BitwiseXor, byte, integer_like(l, byte, HALF_SIGN));
  turned = cast_to(l, turned, DTYPE_INT8);
  return cast_to(l, EMIT_MATH(l, OP_Sub, turned, integer_like(l, turned, HALF_SIGN)), to);
}

/* The float of 8 bits for each byte, looked up; in float32, which holds them all. */
static Value *small_float_of_byte(Lowering *l, Value *byte, DType to) {
  enum { BYTES = 256 };
  static const int64_t dims[] = {BYTES};
  float numbers[BYTES];
  for (unsigned i = 0; i < BYTES; i++) {
    uint8_t bits = (uint8_t)i;
    numbers[i] = (float)number_decode(to, &bits);
  }
  Value *table = constant(l, tensor_new(l, DTYPE_FLOAT32, dims, 1, numbers, sizeof numbers));
  Value *index = cast_to(l, byte, DTYPE_INT32);
  return cast_to(l, EMIT(l, OP_Gather, type_with(byte->type, DTYPE_FLOAT32), table, index), to);
}

/* An element becomes count narrower ones along a new last axis, the lowest bits first. */
static Value *split_bits(Lowering *l, Value *x, unsigned width, unsigned count) {
  int64_t axis = x->type.rank;
  Value **pieces = arena_new_array(&l->context->arena, count, Value *);
  Value *wide = cast_to(l, x, DTYPE_UINT64);
  for (unsigned i = 0; i < count; i++) {
    Value *piece = EMIT_MATH(l, OP_BitShift, wide, integer_like(l, wide, (int64_t)width * i));
    node_set_string(piece->producer, "direction", "RIGHT");
    if (width < 8) piece = EMIT_MATH(l, OP_BitwiseAnd, piece, integer_like(l, wide, HALF_BYTE));
    pieces[i] = unsqueeze_at(l, cast_to(l, piece, integer_of_width(width, false)), &axis, 1);
  }
  Type type = output_type(l, 0);
  return concat_at(l, pieces, count, axis, type_with(type, integer_of_width(width, false)));
}

/* The elements along the last axis become one. */
static Value *join_bits(Lowering *l, Value *x, unsigned width, unsigned count) {
  int64_t axis = (int64_t)x->type.rank - 1;
  Value *sum = NULL;
  for (unsigned i = 0; i < count; i++) {
    Value *index = constant_integer(l, DTYPE_INT64, i);
    Value *piece = EMIT(l, OP_Gather, type_with(output_type(l, 0), x->type.dtype), x, index);
    node_set_int(piece->producer, "axis", axis);
    piece = cast_to(l, piece, DTYPE_UINT64);
    if (i) piece = EMIT_MATH(l, OP_Mul, piece, integer_like(l, piece, (int64_t)(UINT64_C(1) << (width * i))));
    sum = sum ? EMIT_MATH(l, OP_Add, sum, piece) : piece;
  }
  return sum;
}

static bool is_literal(const Var *var, int64_t bits) {
  int64_t value;
  return literal_int(var->literal, &value) && value == bits;
}

/* Random numbers are made so: the bits of 1 with others for its fraction, a number from 1 to 2. The variable that holds
 * the fraction, else NULL. */
static const Var *fraction_behind_one(Lowering *l, FloatLayout layout, unsigned width) {
  const Equation *join = l->equation->inputs[0]->definition;
  if (!join || strcmp(join->primitive, "or") != 0) return NULL;
  const Var *fraction = join->inputs[0], *one = join->inputs[1];
  if (!is_literal(one, (int64_t)layout.bias << layout.fraction_bits)) return NULL;
  const Equation *shift = fraction->definition;
  if (!shift || strcmp(shift->primitive, "shift_right_logical") != 0) return NULL;
  return is_literal(shift->inputs[1], width - (unsigned)layout.fraction_bits) ? fraction : NULL;
}

static Value *one_and_fraction(Lowering *l, Value *fraction, FloatLayout layout, DType to) {
  DType compute = to == DTYPE_FLOAT64 ? to : DTYPE_FLOAT32;
  Value *x = cast_to(l, fraction, compute);
  x = EMIT_MATH(l, OP_Mul, x, number_like(l, x, ldexp(1, -layout.fraction_bits)));
  return cast_to(l, EMIT_MATH(l, OP_Add, x, number_like(l, x, 1)), to);
}

/* A weight whose bytes are read as those of another type is that weight. */
static bool bind_same_bytes(Lowering *l, const Value *x, DType to) {
  const Tensor *tensor = x->tensor;
  if (!tensor || !tensor_is_readable(tensor) || dtype_bits(tensor->dtype) != dtype_bits(to)) return false;
  tensor_ready(tensor);
  Tensor *other = arena_copy(&l->context->arena, tensor, sizeof *tensor);
  other->dtype = to;
  bind(l, 0, constant(l, other));
  return true;
}

static bool is_small_float(DType dtype) { return dtype_is_float(dtype) && dtype_bits(dtype) == 8; }

static void lower_bitcast_convert_type(Lowering *l) {
  Value *x = input(l, 0);
  DType from = x->type.dtype, to = output_type(l, 0).dtype;
  unsigned width = dtype_bits(from), new_width = dtype_bits(to);
  bool floats = dtype_is_float(from) || dtype_is_float(to);
  if (from == to) {
    bind(l, 0, x);
    return;
  }
  bool bytes = width >= 4 && new_width >= 4 && width <= 64 && new_width <= 64;
  if (!bytes || from == DTYPE_BOOL || to == DTYPE_BOOL) {
    unsupported(l, "%s cannot be reinterpreted as %s", dtype_name(from), dtype_name(to));
  }
  if ((width == 4 || is_small_float(from) || is_small_float(to)) && bind_same_bytes(l, x, to)) return;
  if (width == 4) {
    x = byte_of_half(l, x);
    from = x->type.dtype;
  }
  if (width == new_width && dtype_is_float(to) && !is_small_float(to) && dtype_is_unsigned(from) &&
      !has_bitcast(l, from)) {
    FloatLayout layout = layout_of(l, to);
    const Var *fraction = fraction_behind_one(l, layout, width);
    if (fraction) {
      bind(l, 0, one_and_fraction(l, l->values[fraction->id], layout, to));
      return;
    }
  }
  if (width == 4 && new_width == 4) {
    bind(l, 0, half_of_byte(l, x, to));
    return;
  }
  if (width == new_width && (!floats || has_bitcast(l, from))) {
    bind(l, 0, floats ? bitcast_node(l, x, to) : cast_to(l, x, to));
    return;
  }
  Value *bits = dtype_is_float(from) ? float_bits(l, x) : cast_to(l, x, integer_of_width(width, false));
  if (width > new_width) bits = split_bits(l, bits, new_width, width / new_width);
  if (width < new_width) {
    bits = cast_to(l, bits, integer_of_width(width, false));
    bits = join_bits(l, bits, width, new_width / width);
  }
  bool to_float = dtype_is_float(to);
  if (new_width == 4) bind(l, 0, half_of_byte(l, bits, to));
  else if (is_small_float(to)) bind(l, 0, small_float_of_byte(l, bits, to));
  else bind(l, 0, to_float ? float_from_bits(l, cast_to(l, bits, DTYPE_INT64), to) : cast_to(l, bits, to));
}

/* Read as a number with a sign, the bits of floats count in the floats' order: the neighbour is one away. */
static void lower_nextafter(Lowering *l) {
  Value *x = input(l, 0), *y = input(l, 1);
  DType dtype = x->type.dtype;
  Value *bits = float_bits(l, x), *top = integer_like(l, bits, top_bit(dtype_bits(dtype)));
  Value *zero = integer_like(l, bits, 0);
  Value *negative = is_negative(l, bits, dtype);
  Value *place = EMIT_WHERE(l, negative, EMIT_MATH(l, OP_Sub, top, bits), bits);
  Value *up = cast_to(l, EMIT_MATH(l, OP_Greater, y, x), DTYPE_INT64);
  Value *down = cast_to(l, EMIT_MATH(l, OP_Less, y, x), DTYPE_INT64);
  place = EMIT_MATH(l, OP_Add, place, EMIT_MATH(l, OP_Sub, up, down));
  Value *below = EMIT_MATH(l, OP_Less, place, zero);
  Value *moved = float_from_bits(l, EMIT_WHERE(l, below, EMIT_MATH(l, OP_Sub, top, place), place), dtype);
  Value *keep = EMIT_MATH(l, OP_Or, EMIT_MATH(l, OP_Equal, x, y), EMIT_MATH(l, OP_IsNaN, y));
  bind(l, 0, EMIT_WHERE(l, keep, y, moved));
}

/* a before b in the total order: -0 before 0, and NaN behind all numbers. */
static Value *totally_less(Lowering *l, Value *a, Value *b) {
  Value *zeros = EMIT_MATH(l, OP_Less, EMIT_MATH(l, OP_Reciprocal, a), EMIT_MATH(l, OP_Reciprocal, b));
  zeros = EMIT_MATH(l, OP_And, EMIT_MATH(l, OP_Equal, a, b), zeros);
  Value *less = EMIT_MATH(l, OP_Or, EMIT_MATH(l, OP_Less, a, b), zeros);
  Value *number = EMIT_MATH(l, OP_Not, EMIT_MATH(l, OP_IsNaN, a));
  return EMIT_MATH(l, OP_Or, less, EMIT_MATH(l, OP_And, number, EMIT_MATH(l, OP_IsNaN, b)));
}

static Value *totally_equal(Lowering *l, Value *a, Value *b) {
  Value *zeros = EMIT_MATH(l, OP_Equal, EMIT_MATH(l, OP_Reciprocal, a), EMIT_MATH(l, OP_Reciprocal, b));
  Value *nans = EMIT_MATH(l, OP_And, EMIT_MATH(l, OP_IsNaN, a), EMIT_MATH(l, OP_IsNaN, b));
  return EMIT_MATH(l, OP_Or, EMIT_MATH(l, OP_And, EMIT_MATH(l, OP_Equal, a, b), zeros), nans);
}

static void lower_total_order(Lowering *l) {
  Value *a = wide_input(l, 0), *b = wide_input(l, 1);
  Op op = l->plugin->op;
  if (a->type.dtype == DTYPE_BOOL && op != OP_Equal) {
    a = cast_to(l, a, DTYPE_UINT8);
    b = cast_to(l, b, DTYPE_UINT8);
  }
  if (!dtype_is_float(a->type.dtype)) bind(l, 0, EMIT_ROW_MATH(l, op, a, b));
  else if (op == OP_Equal) bind(l, 0, totally_equal(l, a, b));
  else if (op == OP_Less) bind(l, 0, totally_less(l, a, b));
  else bind(l, 0, EMIT_MATH(l, OP_Not, totally_less(l, b, a)));
}

/* x rounded to so many bits of fraction, half to even: in units of its last kept bit, which subnormal numbers share
 * with the least normal ones. Power and scale are normal numbers, which a unit need not be: a runtime may be told to
 * take others for 0. */
static Value *round_fraction(Lowering *l, Value *x, FloatLayout layout, int64_t fraction_bits) {
  Value *log =
      EMIT_MATH(l, OP_Mul, EMIT_MATH(l, OP_Log, EMIT_MATH(l, OP_Abs, x)), number_like(l, x, 1.4426950408889634));
  Value *least = number_like(l, x, 1 - layout.bias), *most = number_like(l, x, layout.bias);
  Value *place = EMIT_MATH(l, OP_Clip, EMIT_MATH(l, OP_Floor, log), least, most);
  Value *power = EMIT_MATH(l, OP_Pow, number_like(l, x, 2), place);
  Value *scale = number_like(l, x, ldexp(1, (int)fraction_bits));
  Value *units = EMIT_MATH(l, OP_Round, EMIT_MATH(l, OP_Mul, EMIT_MATH(l, OP_Div, x, power), scale));
  return EMIT_MATH(l, OP_Mul, EMIT_MATH(l, OP_Div, units, scale), power);
}

/* Numbers past the exponent's range become infinite, and below its normal numbers 0. */
static void lower_reduce_precision(Lowering *l) {
  int64_t exponent_bits = param_int(l->context, l->equation, "exponent_bits");
  int64_t fraction_bits = param_int(l->context, l->equation, "mantissa_bits");
  rely_on(l, exponent_bits >= 1 && fraction_bits >= 0);
  Value *x = input(l, 0);
  FloatLayout layout = layout_of(l, x->type.dtype);
  bool same_range = exponent_bits >= 11 || (1 << (exponent_bits - 1)) - 1 >= layout.bias;
  bool same_fraction = fraction_bits >= layout.fraction_bits;
  if (same_range && x->type.dtype == DTYPE_FLOAT32 && fraction_bits == 7) {
    bind_narrow(l, cast_to(l, x, DTYPE_BFLOAT16));
    return;
  }
  if (same_range && same_fraction) {
    bind(l, 0, x);
    return;
  }
  Value *wide = cast_to(l, x, DTYPE_FLOAT64);
  Value *rounded = same_fraction ? wide : round_fraction(l, wide, layout, fraction_bits);
  if (!same_range) {
    int bias = (1 << (exponent_bits - 1)) - 1;
    Value *size = EMIT_MATH(l, OP_Abs, rounded);
    Value *past = EMIT_MATH(l, OP_GreaterOrEqual, size, number_like(l, wide, ldexp(1, bias + 1)));
    Value *tiny = EMIT_MATH(l, OP_Less, size, number_like(l, wide, ldexp(1, 1 - bias)));
    Value *infinite = EMIT_MATH(l, OP_Mul, rounded, number_like(l, wide, INFINITY));
    rounded = EMIT_WHERE(l, past, infinite, rounded);
    rounded = EMIT_WHERE(l, tiny, EMIT_MATH(l, OP_Mul, wide, number_like(l, wide, 0)), rounded);
  }
  bind_narrow(l, rounded);
}

/* clang-format off */
const Plugin bit_plugins[] = {
    PLUGIN("bitcast_convert_type", lower_bitcast_convert_type, OP_BitCast),
    PLUGIN("nextafter", lower_nextafter, OP_BitCast),
    PLUGIN("reduce_precision", lower_reduce_precision, OP_Round),
    PLUGIN("eq_to", lower_total_order, OP_Equal),
    PLUGIN("le_to", lower_total_order, OP_LessOrEqual),
    PLUGIN("lt_to", lower_total_order, OP_Less),
    {0},
};
/* clang-format on */
