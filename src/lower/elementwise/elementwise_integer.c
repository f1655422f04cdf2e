/* Integers and bits: division, remainder, shifts, logic, with JAX's results where C and ONNX leave them undefined. */
#include "lower/elementwise/arithmetic.h"
#include "onnx/facts/schema.h"

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
    *minus_one = EMIT_MATH(l, OP_Equal, divisor, integer_like(l, divisor, -1));
    trap = EMIT_MATH(l, OP_Or, zero, *minus_one);
  }
  return EMIT_WHERE(l, trap, integer_like(l, divisor, 1), divisor);
}

/* In JAX x / 0 has all bits set, and the least number / -1 is itself. */
static void lower_div(Lowering *l) {
  Value *x = input(l, 0), *divisor = input(l, 1);
  Type type = output_type(l, 0);
  if (!dtype_is_integer(type.dtype) || safe_divisor(l, 1)) {
    bind(l, 0, EMIT_AROUND(l, OP_Div, type, x, divisor));
    return;
  }
  Value *minus_one, *zero = EMIT_MATH(l, OP_Equal, divisor, integer_like(l, divisor, 0));
  Value *quotient = EMIT_MATH(l, OP_Div, x, guarded_divisor(l, divisor, zero, &minus_one));
  if (minus_one) quotient = EMIT_WHERE(l, minus_one, EMIT_MATH(l, OP_Neg, x), quotient);
  bind(l, 0, EMIT_WHERE(l, zero, integer_like(l, x, -1), quotient));
}

static Value *remainder_of(Lowering *l, Value *x, Value *divisor) {
  if (dtype_is_unsigned(x->type.dtype)) return EMIT_MATH(l, OP_Mod, x, divisor);
  if (x->type.dtype == DTYPE_INT64 && target_quirk(l, QUIRK_FMOD_OF_INT64_IN_DOUBLE)) {
    return EMIT_MATH(l, OP_Sub, x, EMIT_MATH(l, OP_Mul, EMIT_MATH(l, OP_Div, x, divisor), divisor));
  }
  Value *result = EMIT_MATH(l, OP_Mod, x, divisor);
  Node *mod = result->producer;
  if (!node_is(mod, OP_Mod)) mod = node_input(mod, 0)->producer; /* behind the cast back */
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
  Value *minus_one, *zero = EMIT_MATH(l, OP_Equal, divisor, integer_like(l, divisor, 0));
  Value *remainder = remainder_of(l, x, guarded_divisor(l, divisor, zero, &minus_one));
  bind(l, 0, EMIT_WHERE(l, zero, x, remainder));
}

static Op bitwise(Op logical) {
  return logical == OP_And ? OP_BitwiseAnd : logical == OP_Or ? OP_BitwiseOr : OP_BitwiseXor;
}

/* Logic on bool is ONNX's And, Or, …; on integers BitwiseAnd, BitwiseOr, … */
static void lower_logic(Lowering *l) {
  Value *x = input(l, 0), *y = input(l, 1);
  Type type = output_type(l, 0);
  if (type.dtype == DTYPE_BOOL) {
    bind(l, 0, EMIT_ROW(l, l->plugin->op, type, x, y));
    return;
  }
  Op op = bitwise(l->plugin->op);
  if (!schema_version(op, l->options->opset)) {
    /* A mask of the low bits is a remainder, which is never negative for a positive divisor. */
    int64_t mask;
    bool low = literal_int(y->tensor, &mask) && mask >= 0 && mask < INT64_MAX && (mask & (mask + 1)) == 0;
    bool fits = low && (uint64_t)mask + 1 < UINT64_C(1) << (dtype_bits(type.dtype) - 1);
    if (op != OP_BitwiseAnd || !fits) unsupported(l, "%s needs opset 18 or later", op_name(op));
    bind(l, 0, EMIT_ROW(l, OP_Mod, type, x, integer_like(l, x, mask + 1)));
    return;
  }
  bind(l, 0, EMIT_ROW(l, op, type, x, y));
}

static void lower_not(Lowering *l) {
  Value *x = input(l, 0);
  Type type = output_type(l, 0);
  if (type.dtype == DTYPE_BOOL) bind(l, 0, EMIT(l, OP_Not, type, x));
  else bind(l, 0, EMIT(l, OP_Sub, type, integer_like(l, x, -1), x)); /* two's complement, at every opset */
}

static DType unsigned_of(DType dtype) {
  switch (dtype_bits(dtype)) {
    case 8: return DTYPE_UINT8;
    case 16: return DTYPE_UINT16;
    case 32: return DTYPE_UINT32;
    default: return DTYPE_UINT64;
  }
}

static DType signed_of(DType dtype) {
  switch (dtype_bits(dtype)) {
    case 8: return DTYPE_INT8;
    case 16: return DTYPE_INT16;
    case 32: return DTYPE_INT32;
    default: return DTYPE_INT64;
  }
}

/* BitShift takes unsigned operands, and gives 0 for amounts of the width or more. */
static Value *bit_shift(Lowering *l, Value *x, Value *amount, const char *direction) {
  Value *shifted = EMIT_MATH(l, OP_BitShift, x, amount);
  node_set_string(shifted->producer, "direction", direction);
  return shifted;
}

static DType shift_dtype(Lowering *l, DType dtype) {
  DType plain = unsigned_of(dtype);
  return schema_runs(OP_BitShift, NULL, l->options->opset, plain) ? plain : DTYPE_UINT32;
}

static Value *shift_right_by(Lowering *l, Value *x, int64_t amount) {
  return bit_shift(l, x, integer_like(l, x, amount), "RIGHT");
}

/* Is the shift's amount known at export? As unsigned, so that a negative one is past every width. */
static bool known_amount(Lowering *l, uint64_t *amount) {
  int64_t value;
  if (!literal_int(input_literal(l, 1), &value)) return false;
  *amount = (uint64_t)value;
  return true;
}

static void lower_shift_left(Lowering *l) {
  Value *x = input(l, 0);
  Type type = output_type(l, 0);
  unsigned width = dtype_bits(type.dtype);
  uint64_t amount;
  if (known_amount(l, &amount)) {
    int64_t factor = amount < width ? (int64_t)(UINT64_C(1) << amount) : 0;
    bind(l, 0, EMIT_AROUND(l, OP_Mul, type, x, integer_like(l, x, factor)));
    return;
  }
  DType through = shift_dtype(l, type.dtype);
  bind_narrow(l, bit_shift(l, cast_to(l, x, through), cast_to(l, input(l, 1), through), "LEFT"));
}

static void lower_shift_right_logical(Lowering *l) {
  DType dtype = output_type(l, 0).dtype, through = shift_dtype(l, dtype);
  Value *x = cast_to(l, cast_to(l, input(l, 0), unsigned_of(dtype)), through); /* without sign bits above the width */
  bind_narrow(l, bit_shift(l, x, cast_to(l, input(l, 1), through), "RIGHT"));
}

/* x shifted right by a known amount, rounded to minus infinity as the arithmetic shift does. */
static Value *shift_right_signed(Lowering *l, Value *x, uint64_t amount) {
  if (amount >= dtype_bits(x->type.dtype) - 1) {
    Value *negative = EMIT_MATH(l, OP_Less, x, integer_like(l, x, 0));
    return EMIT_MATH(l, OP_Neg, cast_to(l, negative, x->type.dtype));
  }
  Value *divisor = integer_like(l, x, INT64_C(1) << amount);
  return EMIT_MATH(l, OP_Div, EMIT_MATH(l, OP_Sub, x, EMIT_MATH(l, OP_Mod, x, divisor)), divisor);
}

/* The top bit fills up, also of unsigned types. With the top bit flipped, x + top counts from 0 up, a logical shift
 * keeps the order, and top shifted the same way is taken off again. */
static void lower_shift_right_arithmetic(Lowering *l) {
  DType dtype = output_type(l, 0).dtype, narrow = signed_of(dtype);
  Value *x = cast_to(l, input(l, 0), narrow);
  uint64_t amount;
  if (known_amount(l, &amount)) {
    bind_narrow(l, shift_right_signed(l, x, amount));
    return;
  }
  DType through = shift_dtype(l, dtype);
  unsigned width = dtype_bits(through);
  Value *last = constant_integer(l, through, (int64_t)width - 1);
  Value *by = EMIT_MATH(l, OP_Min, cast_to(l, cast_to(l, input(l, 1), unsigned_of(dtype)), through), last);
  Value *top = constant_integer(l, through, (int64_t)(UINT64_C(1) << (width - 1)));
  Value *raised = bit_shift(l, EMIT_MATH(l, OP_Add, cast_to(l, x, through), top), by, "RIGHT");
  bind_narrow(l, EMIT_MATH(l, OP_Sub, raised, bit_shift(l, top, by, "RIGHT")));
}

/* Sums of neighbouring bits in ever wider fields, then all bytes at once by a multiplication. */
static Value *count_bits(Lowering *l, Value *x) {
  int64_t ones = dtype_bits(x->type.dtype) == 64 ? 0x0101010101010101 : 0x01010101;
  int64_t top = dtype_bits(x->type.dtype) - 8;
  Value *pairs = integer_like(l, x, ones * 0x55), *fours = integer_like(l, x, ones * 0x33);
  x = EMIT_MATH(l, OP_Sub, x, EMIT_MATH(l, OP_BitwiseAnd, shift_right_by(l, x, 1), pairs));
  Value *high = EMIT_MATH(l, OP_BitwiseAnd, shift_right_by(l, x, 2), fours);
  x = EMIT_MATH(l, OP_Add, EMIT_MATH(l, OP_BitwiseAnd, x, fours), high);
  x = EMIT_MATH(l, OP_Add, x, shift_right_by(l, x, 4));
  x = EMIT_MATH(l, OP_BitwiseAnd, x, integer_like(l, x, ones * 0x0F));
  return shift_right_by(l, EMIT_MATH(l, OP_Mul, x, integer_like(l, x, ones)), top);
}

static void lower_population_count(Lowering *l) {
  DType dtype = output_type(l, 0).dtype;
  if (!schema_version(OP_BitwiseAnd, l->options->opset)) unsupported(l, "BitwiseAnd needs opset 18 or later");
  DType through = dtype_bits(dtype) == 64 ? DTYPE_UINT64 : DTYPE_UINT32;
  bind_narrow(l, count_bits(l, cast_to(l, cast_to(l, input(l, 0), unsigned_of(dtype)), through)));
}

/* floor(log2(x + 1/2)) is the highest bit's place, -1 for 0; half a unit keeps powers of two clear of rounding. */
static Value *leading_zeros(Lowering *l, Value *x, int width) {
  Value *real = cast_to(l, x, DTYPE_FLOAT64);
  Value *log = EMIT_MATH(l, OP_Log, EMIT_MATH(l, OP_Add, real, number_like(l, real, 0.5)));
  Value *place = EMIT_MATH(l, OP_Floor, EMIT_MATH(l, OP_Mul, log, number_like(l, log, 1.4426950408889634)));
  return cast_to(l, EMIT_MATH(l, OP_Sub, number_like(l, place, width - 1), place), DTYPE_INT32);
}

static void lower_clz(Lowering *l) {
  DType dtype = output_type(l, 0).dtype;
  Value *x = cast_to(l, input(l, 0), unsigned_of(dtype));
  if (dtype_bits(dtype) < 64) {
    bind_narrow(l, leading_zeros(l, x, (int)dtype_bits(dtype)));
    return;
  }
  Value *high = cast_to(l, shift_right_by(l, x, 32), DTYPE_UINT32);
  Value *upper = leading_zeros(l, high, 32), *lower = leading_zeros(l, cast_to(l, x, DTYPE_UINT32), 64);
  Value *only_lower = EMIT_MATH(l, OP_Equal, upper, integer_like(l, upper, 32));
  bind_narrow(l, EMIT_WHERE(l, only_lower, lower, upper));
}

/* The upper half of the product of two uint64, from the products of their halves. */
static Value *high_product(Lowering *l, Value *x, Value *y) {
  Value *base = integer_like(l, x, INT64_C(1) << 32);
  Value *x0 = EMIT_MATH(l, OP_Mod, x, base), *x1 = shift_right_by(l, x, 32);
  Value *y0 = EMIT_MATH(l, OP_Mod, y, base), *y1 = shift_right_by(l, y, 32);
  Value *low = EMIT_MATH(l, OP_Mul, x0, y0);
  Value *middle = EMIT_MATH(l, OP_Add, EMIT_MATH(l, OP_Mul, x1, y0), shift_right_by(l, low, 32));
  Value *carry = EMIT_MATH(l, OP_Add, EMIT_MATH(l, OP_Mul, x0, y1), EMIT_MATH(l, OP_Mod, middle, base));
  Value *high = EMIT_MATH(l, OP_Add, EMIT_MATH(l, OP_Mul, x1, y1), shift_right_by(l, middle, 32));
  return EMIT_MATH(l, OP_Add, high, shift_right_by(l, carry, 32));
}

static void lower_mulhi(Lowering *l) {
  Value *x = input(l, 0), *y = input(l, 1);
  DType dtype = output_type(l, 0).dtype;
  unsigned width = dtype_bits(dtype);
  if (width < 64 && dtype_is_unsigned(dtype)) {
    Value *product = EMIT_MATH(l, OP_Mul, cast_to(l, x, DTYPE_UINT64), cast_to(l, y, DTYPE_UINT64));
    bind_narrow(l, shift_right_by(l, product, width));
  } else if (width < 64) {
    Value *product = EMIT_MATH(l, OP_Mul, cast_to(l, x, DTYPE_INT64), cast_to(l, y, DTYPE_INT64));
    bind_narrow(l, shift_right_signed(l, product, width));
  } else if (dtype_is_unsigned(dtype)) {
    bind(l, 0, high_product(l, x, y));
  } else { /* a negative factor counts 2^64 too much */
    Value *zero = integer_like(l, x, 0);
    Value *high = cast_to(l, high_product(l, cast_to(l, x, DTYPE_UINT64), cast_to(l, y, DTYPE_UINT64)), dtype);
    high = EMIT_MATH(l, OP_Sub, high, EMIT_WHERE(l, EMIT_MATH(l, OP_Less, x, zero), y, zero));
    bind(l, 0, EMIT_MATH(l, OP_Sub, high, EMIT_WHERE(l, EMIT_MATH(l, OP_Less, y, zero), x, zero)));
  }
}

/* clang-format off */
const Plugin integer_plugins[] = {
    PLUGIN("div", lower_div, OP_Div),
    PLUGIN("rem", lower_rem, OP_Mod),
    PLUGIN("and", lower_logic, OP_And),
    PLUGIN("or", lower_logic, OP_Or),
    PLUGIN("xor", lower_logic, OP_Xor),
    PLUGIN("not", lower_not, OP_Not),
    PLUGIN("shift_left", lower_shift_left, OP_BitShift),
    PLUGIN("shift_right_logical", lower_shift_right_logical, OP_BitShift),
    PLUGIN("shift_right_arithmetic", lower_shift_right_arithmetic, OP_BitShift),
    PLUGIN("population_count", lower_population_count, OP_BitwiseAnd),
    PLUGIN("clz", lower_clz, OP_Log),
    PLUGIN("mulhi", lower_mulhi, OP_Mul),
    {0},
};
/* clang-format on */
