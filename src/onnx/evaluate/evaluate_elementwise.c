/* Evaluate: element by element, with NumPy's broadcasting. */
#include <math.h>

#include "base/bytes.h"
#include "onnx/evaluate/evaluate.h"
#include "onnx/facts/schema.h"
#include "types/numbers.h"

/* One element: `integer` holds integers and booleans (a uint64 as its bits), `real` floats. */
typedef struct Element {
  int64_t integer;
  double real;
} Element;

static bool computable(DType dtype) { return dtype >= DTYPE_BOOL && dtype <= DTYPE_FLOAT64; }

static Element load(DType dtype, const void *data) {
  if (dtype_is_float(dtype)) return (Element){.real = number_decode(dtype, data)};
  return (Element){.integer = number_decode_int(dtype, data)};
}

static void store(DType dtype, void *data, Element element) {
  uint64_t bits = dtype_is_float(dtype) ? number_encode(dtype, element.real) : (uint64_t)element.integer;
  copy_bytes(data, &bits, dtype_bits(dtype) / 8);
}

/* The integer as the type holds it: cut to its width, its sign extended. */
static int64_t wrapped(DType dtype, uint64_t value) {
  unsigned width = dtype_bits(dtype);
  if (width >= 64) return (int64_t)value;
  value &= ((uint64_t)1 << width) - 1;
  if (dtype_kind(dtype) == KIND_INT && value >> (width - 1)) value |= ~(uint64_t)0 << width;
  return (int64_t)value;
}

static bool is_float(DType dtype) { return dtype_is_float(dtype); }

static int compare_integers(DType dtype, int64_t a, int64_t b) {
  if (dtype_is_unsigned(dtype)) return ((uint64_t)a > (uint64_t)b) - ((uint64_t)a < (uint64_t)b);
  return (a > b) - (a < b);
}

/* ---- one operand ---- */

typedef double Real(double);

static double rectified(double x) { return x < 0 ? 0 : x; }
static double reciprocal(double x) { return 1 / x; }
static double sigmoid(double x) { return 1 / (1 + exp(-x)); }
static double softplus(double x) { return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x)); }
static double negate(double x) { return -x; }

typedef struct RealRow {
  Op op;
  Real *function;
} RealRow;

static const RealRow real_rows[] = {
    {OP_Exp, exp},        {OP_Log, log},         {OP_Sin, sin},           {OP_Cos, cos},
    {OP_Tan, tan},        {OP_Tanh, tanh},       {OP_Sinh, sinh},         {OP_Cosh, cosh},
    {OP_Asin, asin},      {OP_Acos, acos},       {OP_Atan, atan},         {OP_Asinh, asinh},
    {OP_Acosh, acosh},    {OP_Atanh, atanh},     {OP_Sqrt, sqrt},         {OP_Erf, erf},
    {OP_Floor, floor},    {OP_Ceil, ceil},       {OP_Round, rint},        {OP_Neg, negate},
    {OP_Abs, fabs},       {OP_Sigmoid, sigmoid}, {OP_Softplus, softplus}, {OP_Reciprocal, reciprocal},
    {OP_Relu, rectified},
};

static Real *find_real(Op op) {
  for (size_t i = 0; i < sizeof real_rows / sizeof *real_rows; i++) {
    if (real_rows[i].op == op) return real_rows[i].function;
  }
  return NULL;
}

static bool unary_integer(Op op, DType dtype, int64_t x, int64_t *result) {
  bool negative = !dtype_is_unsigned(dtype) && x < 0;
  if (op == OP_Neg || (negative && op == OP_Abs)) *result = wrapped(dtype, 0 - (uint64_t)x);
  else if (op == OP_Abs) *result = x;
  else if (op == OP_Relu) *result = negative ? 0 : x;
  else if (op == OP_Sign) *result = x == 0 ? 0 : negative ? -1 : 1;
  else if (op == OP_BitwiseNot) *result = wrapped(dtype, ~(uint64_t)x);
  else return false;
  return true;
}

static const Tensor *evaluate_unary(const Evaluation *evaluation) {
  const Tensor *x = evaluate_input(evaluation, 0);
  Op op = evaluation->node->op;
  if (!x || !computable(x->dtype)) return NULL;
  bool to_bool = op == OP_IsNaN, negation = op == OP_Not, sign = op == OP_Sign;
  Real *function = find_real(op);
  bool real = is_float(x->dtype);
  if (real ? !function && !to_bool && !sign : to_bool) return NULL;
  if (negation != (x->dtype == DTYPE_BOOL)) return NULL;
  Tensor *result = evaluate_result(evaluation, to_bool ? DTYPE_BOOL : x->dtype, x->dims, x->rank);
  if (!result) return NULL;
  size_t width = tensor_width(x), step = tensor_width(result);
  for (int64_t i = 0; i < tensor_count(x); i++) {
    Element e = load(x->dtype, (const char *)x->data + (size_t)i * width);
    if (to_bool) e.integer = isnan(e.real);
    else if (negation) e.integer = !e.integer;
    else if (real && sign && isnan(e.real)) return NULL; /* runtimes differ */
    else if (real && sign) e.real = e.real > 0 ? 1 : e.real < 0 ? -1 : e.real;
    else if (real) e.real = function(e.real);
    else if (!unary_integer(op, x->dtype, e.integer, &e.integer)) return NULL;
    store(result->dtype, result_data(result) + (size_t)i * step, e);
  }
  return result;
}

/* ---- two operands ---- */

typedef enum Binary {
  ADD,
  SUB,
  MUL,
  DIV,
  MOD,
  FMOD,
  POW,
  MAX,
  MIN,
  EQUAL,
  LESS,
  GREATER,
  LESS_OR_EQUAL,
  GREATER_OR_EQUAL,
  AND,
  OR,
  XOR,
  SHIFT_LEFT,
  SHIFT_RIGHT,
} Binary;

typedef struct BinaryRow {
  Op op;
  Binary binary;
} BinaryRow;

static const BinaryRow binary_rows[] = {
    {OP_Add, ADD},
    {OP_Sub, SUB},
    {OP_Mul, MUL},
    {OP_Div, DIV},
    {OP_Mod, MOD},
    {OP_Pow, POW},
    {OP_Max, MAX},
    {OP_Min, MIN},
    {OP_Equal, EQUAL},
    {OP_Less, LESS},
    {OP_Greater, GREATER},
    {OP_LessOrEqual, LESS_OR_EQUAL},
    {OP_GreaterOrEqual, GREATER_OR_EQUAL},
    {OP_And, AND},
    {OP_Or, OR},
    {OP_Xor, XOR},
    {OP_BitwiseAnd, AND},
    {OP_BitwiseOr, OR},
    {OP_BitwiseXor, XOR},
    {OP_BitShift, SHIFT_LEFT},
};

static bool is_comparison(Binary binary) { return binary >= EQUAL && binary <= GREATER_OR_EQUAL; }

static int64_t compared(Binary binary, bool less, bool equal, bool greater) {
  switch (binary) {
    case EQUAL: return equal;
    case LESS: return less;
    case GREATER: return greater;
    case LESS_OR_EQUAL: return less || equal;
    default: return greater || equal;
  }
}

/* Truncates towards zero, as C does. The quotient that does not fit, and zero, are left to the runtime. */
static bool divide(DType dtype, int64_t a, int64_t b, int64_t *quotient, int64_t *remainder) {
  if (b == 0) return false;
  if (dtype_is_unsigned(dtype)) {
    *quotient = (int64_t)((uint64_t)a / (uint64_t)b);
    *remainder = (int64_t)((uint64_t)a % (uint64_t)b);
    return true;
  }
  if (b == -1 && a == wrapped(dtype, (uint64_t)1 << (dtype_bits(dtype) - 1))) return false;
  *quotient = a / b;
  *remainder = a % b;
  return true;
}

static bool power(int64_t base, int64_t exponent, int64_t *result) {
  if (exponent < 0) return false;
  if (base >= -1 && base <= 1 && exponent > 2) exponent = 1 + (exponent - 1) % 2;
  int64_t product = 1;
  for (; exponent > 0; exponent--) { /* at most 54 times: then the product is too large */
    if (__builtin_mul_overflow(product, base, &product)) return false;
    if (product > (int64_t)1 << 53 || product < -((int64_t)1 << 53)) return false;
  }
  *result = product;
  return true;
}

static bool binary_integer(Binary binary, DType dtype, int64_t a, int64_t b, int64_t *result) {
  uint64_t x = (uint64_t)a, y = (uint64_t)b, wide = 0;
  int64_t quotient, remainder;
  int order = compare_integers(dtype, a, b);
  switch (binary) {
    case ADD: wide = x + y; break;
    case SUB: wide = x - y; break;
    case MUL: wide = x * y; break;
    case AND: wide = x & y; break;
    case OR: wide = x | y; break;
    case XOR: wide = x ^ y; break;
    case MAX: wide = order >= 0 ? x : y; break;
    case MIN: wide = order <= 0 ? x : y; break;
    case DIV:
      if (!divide(dtype, a, b, &quotient, &remainder)) return false;
      wide = (uint64_t)quotient;
      break;
    case MOD:  /* the sign of the divisor */
    case FMOD: /* the sign of the dividend */
      if (!divide(dtype, a, b, &quotient, &remainder)) return false;
      if (binary == MOD && !dtype_is_unsigned(dtype) && remainder != 0 && (remainder < 0) != (b < 0)) remainder += b;
      wide = (uint64_t)remainder;
      break;
    case SHIFT_LEFT:
    case SHIFT_RIGHT:
      if (!dtype_is_unsigned(dtype) || y >= dtype_bits(dtype)) return false;
      wide = binary == SHIFT_LEFT ? x << y : x >> y;
      break;
    default: wide = (uint64_t)compared(binary, order < 0, order == 0, order > 0);
  }
  *result = wrapped(dtype, wide);
  return true;
}

/* A NaN stays one; of two zeros Max gives 0.0 and Min -0.0. */
static double extreme(bool largest, double a, double b) {
  if (isnan(a) || isnan(b)) return isnan(a) ? a : b;
  if (a == b) return signbit(a) == largest ? b : a;
  return (a > b) == largest ? a : b;
}

static bool binary_real(Binary binary, double a, double b, Element *result) {
  switch (binary) {
    case ADD: result->real = a + b; return true;
    case SUB: result->real = a - b; return true;
    case MUL: result->real = a * b; return true;
    case DIV: result->real = a / b; return true;
    case POW: result->real = pow(a, b); return true;
    case FMOD: result->real = fmod(a, b); return true;
    case MAX: result->real = extreme(true, a, b); return true;
    case MIN: result->real = extreme(false, a, b); return true;
    default:
      if (!is_comparison(binary)) return false;
      result->integer = compared(binary, a<b, a == b, a> b);
      return true;
  }
}

static bool binary_element(Binary binary, const Tensor *x, const Tensor *y, Element a, Element b, Element *result) {
  if (binary == POW && x->dtype != y->dtype) { /* the exponent has a type of its own */
    if (!is_float(x->dtype)) return false;
    if (!is_float(y->dtype)) b.real = y->dtype == DTYPE_UINT64 ? (double)(uint64_t)b.integer : (double)b.integer;
    result->real = pow(a.real, b.real);
    return true;
  }
  if (is_float(x->dtype)) return binary_real(binary, a.real, b.real, result);
  if (binary != POW) return binary_integer(binary, x->dtype, a.integer, b.integer, &result->integer);
  if (!power(a.integer, b.integer, &result->integer)) return false;
  return wrapped(x->dtype, (uint64_t)result->integer) == result->integer;
}

static const Tensor *combine(const Evaluation *evaluation, Binary binary, const Tensor *x, const Tensor *y) {
  const Tensor *operands[] = {x, y};
  int64_t dims[MAX_RANK], strides[2][2 * MAX_RANK], offsets[2] = {0, 0};
  size_t rank;
  if (!computable(x->dtype) || !computable(y->dtype) || (x->dtype != y->dtype && binary != POW)) return NULL;
  if (x->dtype == DTYPE_BOOL && binary != AND && binary != OR && binary != XOR && binary != EQUAL) return NULL;
  if (!broadcast_dims(operands, 2, dims, &rank)) return NULL;
  Tensor *result = evaluate_result(evaluation, is_comparison(binary) ? DTYPE_BOOL : x->dtype, dims, rank);
  if (!result || result->size == 0) return result;
  for (int i = 0; i < 2; i++) broadcast_strides(operands[i], rank, strides[i]);
  size_t width_x = tensor_width(x), width_y = tensor_width(y);
  char *to = result_data(result);
  Walk walk = {.rank = rank, .dims = dims};
  do {
    Element a = load(x->dtype, (const char *)x->data + (size_t)offsets[0] * width_x);
    Element b = load(y->dtype, (const char *)y->data + (size_t)offsets[1] * width_y);
    Element c = {0};
    if (!binary_element(binary, x, y, a, b, &c)) return NULL;
    store(result->dtype, to, c);
    to += tensor_width(result);
  } while (walk_next(&walk, 2, (const int64_t (*)[2 * MAX_RANK]) strides, offsets));
  return result;
}

static const Tensor *evaluate_binary(const Evaluation *evaluation) {
  const Node *node = evaluation->node;
  const BinaryRow *row = binary_rows;
  while (row->op != node->op) row++;
  Binary binary = row->binary;
  if (binary == MOD && node_int_or(node, "fmod", 0)) binary = FMOD;
  if (binary == SHIFT_LEFT) {
    const Attribute *direction = node_attribute(node, "direction");
    if (!direction || direction->kind != ATTRIBUTE_STRING) return NULL;
    if (strcmp(direction->string, "RIGHT") == 0) binary = SHIFT_RIGHT;
  }
  const Tensor *result = evaluate_input(evaluation, 0);
  for (size_t i = 1; result && i < evaluation->input_count; i++) {
    const Tensor *next = evaluate_input(evaluation, i);
    result = next ? combine(evaluation, binary, result, next) : NULL;
  }
  return evaluation->input_count < 2 ? NULL : result;
}

/* ---- Where ---- */

static const Tensor *evaluate_where(const Evaluation *evaluation) {
  const Tensor *operands[3];
  int64_t dims[MAX_RANK], strides[3][2 * MAX_RANK], offsets[3] = {0, 0, 0};
  size_t rank;
  for (size_t i = 0; i < 3; i++) {
    operands[i] = evaluate_input(evaluation, i);
    if (!operands[i]) return NULL;
  }
  if (operands[0]->dtype != DTYPE_BOOL || operands[1]->dtype != operands[2]->dtype) return NULL;
  if (!broadcast_dims(operands, 3, dims, &rank)) return NULL;
  Tensor *result = evaluate_result(evaluation, operands[1]->dtype, dims, rank);
  if (!result || result->size == 0) return result;
  for (int i = 0; i < 3; i++) broadcast_strides(operands[i], rank, strides[i]);
  size_t width = tensor_width(result);
  char *to = result_data(result);
  Walk walk = {.rank = rank, .dims = dims};
  do {
    int taken = ((const char *)operands[0]->data)[offsets[0]] ? 1 : 2;
    copy_bytes(to, (const char *)operands[taken]->data + (size_t)offsets[taken] * width, width);
    to += width;
  } while (walk_next(&walk, 3, (const int64_t (*)[2 * MAX_RANK]) strides, offsets));
  return result;
}

/* ---- Cast ---- */

/* Does the number, its fraction dropped, lie in the type's range? */
static bool fits(DType dtype, double value) {
  unsigned bits = dtype_bits(dtype);
  bool is_signed = dtype_kind(dtype) == KIND_INT;
  double low = is_signed ? -ldexp(1, (int)bits - 1) : 0, high = ldexp(1, (int)(is_signed ? bits - 1 : bits));
  return trunc(value) >= low && trunc(value) < high; /* false for NaN */
}

static bool cast_element(DType from, DType to, Element e, Element *result) {
  bool real = is_float(from);
  if (to == DTYPE_BOOL) {
    result->integer = real ? e.real != 0 : e.integer != 0;
  } else if (is_float(to)) {
    bool big = from == DTYPE_UINT64;
    if (to == DTYPE_FLOAT64) result->real = real ? e.real : big ? (double)(uint64_t)e.integer : (double)e.integer;
    else result->real = (double)(real ? (float)e.real : big ? (float)(uint64_t)e.integer : (float)e.integer);
  } else if (real) {
    if (!fits(to, e.real)) return false;
    result->integer = dtype_is_unsigned(to) ? (int64_t)(uint64_t)e.real : (int64_t)e.real;
  } else {
    result->integer = wrapped(to, (uint64_t)e.integer);
  }
  return true;
}

static const Tensor *evaluate_cast(const Evaluation *evaluation) {
  const Tensor *x = evaluate_input(evaluation, 0);
  const Node *node = evaluation->node;
  DType to = node_is(node, OP_Cast) ? dtype_from_onnx((int)node_int_or(node, "to", 0)) : node->outputs[0]->type.dtype;
  if (!x || !computable(x->dtype) || !computable(to)) return NULL;
  Tensor *result = evaluate_result(evaluation, to, x->dims, x->rank);
  if (!result) return NULL;
  size_t width = tensor_width(x), step = tensor_width(result);
  for (int64_t i = 0; i < tensor_count(x); i++) {
    Element element = {0};
    if (!cast_element(x->dtype, to, load(x->dtype, (const char *)x->data + (size_t)i * width), &element)) return NULL;
    store(to, result_data(result) + (size_t)i * step, element);
  }
  bool widened = dtype_is_float(x->dtype) && dtype_is_float(to) && dtype_bits(to) > dtype_bits(x->dtype);
  if (widened) result->precision = x->dtype;
  return result;
}

/* ---- Clip ---- */

static const Tensor *evaluate_clip(const Evaluation *evaluation) {
  static const Binary bounds[] = {MAX, MIN};
  const Tensor *x = evaluate_input(evaluation, 0);
  for (size_t i = 0; x && i < 2; i++) {
    const Tensor *bound = evaluate_input(evaluation, i + 1);
    if (bound && (bound->rank != 0 || bound->dtype != x->dtype || !computable(x->dtype))) return NULL;
    if (bound) x = combine(evaluation, bounds[i], x, bound);
  }
  return x;
}

#define UNARY(op) {op, evaluate_unary}
#define BINARY(op) {op, evaluate_binary}

const EvaluateRow evaluate_elementwise[] = {
    UNARY(OP_Exp),
    UNARY(OP_Log),
    UNARY(OP_Sin),
    UNARY(OP_Cos),
    UNARY(OP_Tan),
    UNARY(OP_Tanh),
    UNARY(OP_Sinh),
    UNARY(OP_Cosh),
    UNARY(OP_Asin),
    UNARY(OP_Acos),
    UNARY(OP_Atan),
    UNARY(OP_Asinh),
    UNARY(OP_Acosh),
    UNARY(OP_Atanh),
    UNARY(OP_Sqrt),
    UNARY(OP_Erf),
    UNARY(OP_Floor),
    UNARY(OP_Ceil),
    UNARY(OP_Round),
    UNARY(OP_Neg),
    UNARY(OP_Abs),
    UNARY(OP_Sigmoid),
    UNARY(OP_Softplus),
    UNARY(OP_Reciprocal),
    UNARY(OP_Relu),
    UNARY(OP_Sign),
    UNARY(OP_Not),
    UNARY(OP_BitwiseNot),
    UNARY(OP_IsNaN),
    BINARY(OP_Add),
    BINARY(OP_Sub),
    BINARY(OP_Mul),
    BINARY(OP_Div),
    BINARY(OP_Mod),
    BINARY(OP_Pow),
    BINARY(OP_Max),
    BINARY(OP_Min),
    BINARY(OP_Equal),
    BINARY(OP_Less),
    BINARY(OP_Greater),
    BINARY(OP_LessOrEqual),
    BINARY(OP_GreaterOrEqual),
    BINARY(OP_And),
    BINARY(OP_Or),
    BINARY(OP_Xor),
    BINARY(OP_BitwiseAnd),
    BINARY(OP_BitwiseOr),
    BINARY(OP_BitwiseXor),
    BINARY(OP_BitShift),
    {OP_Where, evaluate_where},
    {OP_Cast, evaluate_cast},
    {OP_Narrow, evaluate_cast},
    {OP_Clip, evaluate_clip},
    {OP_NONE, NULL},
};
