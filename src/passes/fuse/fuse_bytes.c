/* Numbers that are rounded, kept to the range of a byte and cast to it: QuantizeLinear, which does all three.
 *
 * It rounds halves to even, as JAX does, and stays within the range of its type; the bounds of a narrower range are
 * whole numbers, so it makes no difference whether they are kept to before. Of a NaN the standard says nothing, and
 * ONNX Runtime makes -128 or 0 of it, where JAX makes 0: the numbers are looked through for it before, unless they are
 * computed of integers, as products are that are rounded again.
 *
 * The scale is 1, and what divides or multiplies the numbers stays in front. ONNX Runtime divides by the scale, whereas
 * XLA multiplies by its reciprocal (clean/rounded_quotients.c): where the quotient is about a half, one of the two
 * rounds it up and the other down.
 *
 * 256 x 1,024 numbers take 250 us so with the product before them, and 440 us otherwise (ONNX Runtime 1.31, one core).
 */
#include <float.h>
#include <math.h>

#include "passes/analysis/quantized.h"
#include "passes/pattern.h"
#include "types/numbers.h"

enum { WHOLE, SCALE, POINT, BYTE, MOVED };
enum { MOVED_UP = 128 }; /* the highest bit, which is the sign, turned over */

typedef struct Rounding {
  Value *value;       /* what is rounded */
  double least, most; /* before the zero point is added */
  double point;       /* added to the rounded number */
  double for_nan;     /* the byte that NaN becomes, where it is looked for, less what is added after that */
  bool rounds, guards;
} Rounding;

/* A whole number that bounds it; an input left out bounds nothing. */
static bool read_bound(const Value *bound, double *number) {
  return !bound || (uniform_number(bound, number) && *number == floor(*number));
}

static bool take_clip(Match *match, Rounding *rounding) {
  double least = -INFINITY, most = INFINITY;
  const Node *clip = match_take(match, rounding->value, OP_Clip);
  if (!clip || !read_bound(node_input(clip, 1), &least) || !read_bound(node_input(clip, 2), &most)) return false;
  if (!(least <= most) || most < rounding->least || least > rounding->most) return false;
  rounding->least = fmax(rounding->least, least);
  rounding->most = fmin(rounding->most, most);
  rounding->value = node_input(clip, 0);
  return true;
}

/* Where(IsNaN(x), 0, x). */
static bool take_guard(Match *match, Rounding *rounding) {
  const Node *where = match_take(match, rounding->value, OP_Where);
  if (!where || !is_uniform_number(node_input(where, 1), 0)) return false;
  const Node *test = match_take(match, node_input(where, 0), OP_IsNaN);
  if (!test || node_input(test, 0) != node_input(where, 2)) return false;
  rounding->value = node_input(where, 2);
  rounding->for_nan = rounding->point;
  rounding->guards = true;
  return true;
}

/* A zero point. Sums of whole numbers are exact as long as a byte might hold them. */
static bool take_point(Match *match, Rounding *rounding) {
  const Node *add = rounding->rounds ? NULL : match_take(match, rounding->value, OP_Add);
  const Node *minus = rounding->rounds || add ? NULL : match_take(match, rounding->value, OP_Sub);
  double number;
  if (!add && !minus) return false;
  bool left = add && uniform_number(node_input(add, 0), &number);
  if (minus) add = minus;
  if ((!left && !uniform_number(node_input(add, 1), &number)) || number != floor(number) || fabs(number) > 255)
    return false;
  if (minus) number = -number;
  rounding->value = node_input(add, left);
  rounding->point += number;
  rounding->least -= number;
  rounding->most -= number;
  return true;
}

static bool take_round(Match *match, Rounding *rounding) {
  const Node *round = match_take(match, rounding->value, OP_Round);
  if (!round || rounding->rounds) return false;
  rounding->value = node_input(round, 0);
  rounding->rounds = true;
  return true;
}

typedef struct Range {
  double least, most;
} Range;

static Range range_of(DType dtype) {
  int bits = (int)dtype_bits(dtype);
  if (dtype_is_unsigned(dtype)) return (Range){0, ldexp(1, bits) - 1};
  return (Range){-ldexp(1, bits - 1), ldexp(1, bits - 1) - 1};
}

/* Integers of other widths on the way, 4 bits or 32, change nothing that they hold. */
static void take_casts(Match *match, Rounding *rounding, Range *range) {
  while (dtype_is_integer(rounding->value->type.dtype)) {
    const Node *cast = match_take(match, rounding->value, OP_Cast);
    if (!cast) return;
    Range other = range_of(rounding->value->type.dtype);
    *range = (Range){fmax(range->least, other.least), fmin(range->most, other.most)};
    rounding->value = node_input(cast, 0);
  }
}

static bool read_rounding(Match *match, Rounding *rounding) {
  enum { MOST_STEPS = 6 };
  for (int step = 0; step < MOST_STEPS; step++) {
    if (!take_round(match, rounding) && !take_clip(match, rounding) && !take_guard(match, rounding) &&
        !take_point(match, rounding))
      break;
  }
  rounding->for_nan -= rounding->point;
  /* What NaN becomes is clipped after it, not before. */
  bool holds_it = rounding->least <= rounding->for_nan && rounding->most >= rounding->for_nan;
  return rounding->rounds && (holds_it || !rounding->guards) && rounding->value->type.dtype == DTYPE_FLOAT32;
}

static Value *number(Match *match, DType dtype, double value) {
  return rewrite_constant_number(match->rewriter, match->root, dtype, value, match->root->origin);
}

static double largest_of_constant(const Tensor *tensor) {
  size_t width = dtype_bytes(tensor->dtype, 1);
  double largest = 0;
  for (size_t at = 0; at < tensor->size; at += width) {
    double number = fabs(number_decode(tensor->dtype, (const char *)tensor->data + at));
    if (!isfinite(number)) return INFINITY;
    largest = fmax(largest, number);
  }
  return largest;
}

/* What no element is larger than, if it is computed of integers and finite constants in float32; infinite where that is
 * not known, and the elements may be NaN. */
static double largest_size(const Value *value, int steps) {
  const Node *node = value->producer;
  const Tensor *constant = constant_of(value);
  double size = INFINITY;
  if (constant) return value->type.dtype == DTYPE_FLOAT32 ? largest_of_constant(constant) : INFINITY;
  if (!node || !steps || value->type.dtype != DTYPE_FLOAT32) return INFINITY;
  const Value *first = node_input(node, 0);
  if (node_is(node, OP_Cast)) {
    if (dtype_is_integer(first->type.dtype)) size = ldexp(1, (int)dtype_bits(first->type.dtype));
  } else if (node_is(node, OP_Mul)) {
    size = largest_size(first, steps - 1) * largest_size(node_input(node, 1), steps - 1);
  } else if (node_is(node, OP_Add) || node_is(node, OP_Sub)) {
    size = largest_size(first, steps - 1) + largest_size(node_input(node, 1), steps - 1);
  } else if (node_is(node, OP_Relu) || node_has(node, RENAMES) || node_is(node, OP_Transpose)) {
    size = largest_size(first, steps - 1);
  }
  return size < FLT_MAX / 2 ? size : INFINITY;
}

static bool may_be_nan(const Value *value) {
  enum { MOST_STEPS = 8 };
  return isinf(largest_size(value, MOST_STEPS));
}

static Value *without_nan(Match *match, Value *value, double instead) {
  Value *test = EMIT_BEFORE(match, OP_IsNaN, type_with(value->type, DTYPE_BOOL), value)->outputs[0];
  return EMIT_BEFORE(match, OP_Where, value->type, test, number(match, DTYPE_FLOAT32, instead), value)->outputs[0];
}

static bool fuse_rounded(Match *match) {
  Type type = match_type(match);
  Rounding rounding = {.value = match->values[WHOLE], .least = -INFINITY, .most = INFINITY};
  if (type.dtype != DTYPE_INT8 && type.dtype != DTYPE_UINT8) return false;
  Range whole = range_of(type.dtype), range = whole;
  take_casts(match, &rounding, &range);
  if (!read_rounding(match, &rounding)) return false;
  Value *value = rounding.value;
  double least = rounding.least + rounding.point, most = rounding.most + rounding.point;
  if (least < range.least || most > range.most) return false;
  if (rounding.point < whole.least || rounding.point > whole.most) return false;
  if (!type_equal(value->type, type_with(type, DTYPE_FLOAT32))) return false;
  if (rounding.guards && may_be_nan(value)) value = without_nan(match, value, rounding.for_nan);
  if (least > whole.least || most < whole.most) {
    Value *low = number(match, DTYPE_FLOAT32, rounding.least), *high = number(match, DTYPE_FLOAT32, rounding.most);
    value = EMIT_BEFORE(match, OP_Clip, value->type, value, low, high)->outputs[0];
  }
  Value *point = number(match, type.dtype, rounding.point);
  return EMIT_MATCH(match, OP_QuantizeLinear, value, number(match, DTYPE_FLOAT32, 1), point);
}

/* ---- bytes that lose their sign ---- */

/* What is rounded to a byte with a sign and moved up by 128, as products want it, is rounded to one without. */
static bool fuse_moved_up(Match *match) {
  Node *quantize = match->values[BYTE]->producer;
  double from;
  if (match->values[BYTE]->type.dtype != DTYPE_INT8 || !type_equal(match_type(match), match->values[MOVED]->type))
    return false;
  if (!uniform_number(match->values[POINT], &from) || match->values[POINT]->type.rank != 0) return false;
  Value *point = number(match, DTYPE_UINT8, from + MOVED_UP);
  Node *node = EMIT_MATCH(match, OP_QuantizeLinear, match->values[WHOLE], match->values[SCALE], point);
  node_copy_attributes(node, quantize);
  return true;
}

/* ---- products that are rounded to bytes again ---- */

/* One number, or one for each column, as a constant of that many axes. */
static Value *by_column(Match *match, const Value *scale, Dim columns, bool *varies) {
  const Tensor *tensor = constant_of(scale);
  for (uint32_t i = 0; i + 1 < tensor->rank; i++) {
    if (tensor->dims[i] != 1) return NULL;
  }
  int64_t last = tensor->rank ? tensor->dims[tensor->rank - 1] : 1;
  if (last != 1 && !dim_is(columns, last)) return NULL;
  *varies = last != 1;
  Tensor *row = arena_copy(&match->rewriter->context->arena, tensor, sizeof *tensor);
  row->rank = *varies;
  row->dims = *varies ? tensor->dims + tensor->rank - 1 : NULL;
  return rewrite_constant(match->rewriter, match->root, row, scale->origin);
}

/* The zero point of a factor, one for each column where its scale is so. */
static Value *point_of(Match *match, Value *point, DType dtype, Dim columns, bool varies) {
  double from = 0;
  if (point && !uniform_number(point, &from)) return NULL;
  if (!varies) return number(match, dtype, from);
  Tensor *row = match_tensor(match, dtype, type_make(match->rewriter->context, dtype, &columns, 1));
  if (!row) return NULL;
  for (size_t i = 0; i < row->size; i++) ((uint8_t *)(uintptr_t)row->data)[i] = (uint8_t)number_encode(dtype, from);
  return match_constant(match, row);
}

/* QLinearMatMul multiplies the sum by the quotient of the scales and rounds it as QuantizeLinear does: with scales of 1
 * but for the program's own, that is the same number. */
static bool fuse_requantized(Match *match) {
  const Node *product = match->values[WHOLE]->producer, *round = match->root;
  Value *a = node_input(product, 0), *b = node_input(product, 1), *point = node_input(round, 2);
  Type type = match_type(match);
  bool varies = false;
  if (!point || point->type.rank || b->type.rank != 2 || a->type.rank < 2 || node_int_or(round, "saturate", 1) != 1)
    return false;
  /* ONNX Runtime has no kernel for bytes with a sign and without. */
  if (a->type.dtype != DTYPE_UINT8 || b->type.dtype != DTYPE_UINT8 || type.dtype != DTYPE_UINT8) return false;
  if (!is_uniform_number(node_input(round, 1), 1) || node_input(round, 1)->type.rank) return false;
  if (match->values[SCALE]->type.dtype != DTYPE_FLOAT32 || !type_same_shape(type, match->values[WHOLE]->type))
    return false;
  if (isinf(largest_of_constant(constant_of(match->values[SCALE])))) return false;
  Value *scale = by_column(match, match->values[SCALE], b->type.dims[1], &varies);
  Value *from = point_of(match, node_input(product, 2), DTYPE_UINT8, dim_of(1), false);
  Value *to = scale ? point_of(match, node_input(product, 3), DTYPE_UINT8, b->type.dims[1], varies) : NULL;
  if (!scale || !from || !to) return false;
  Value *one = number(match, DTYPE_FLOAT32, 1);
  return EMIT_MATCH(match, OP_QLinearMatMul, a, one, from, b, scale, to, one, point);
}

#define QUANTIZED OP_AT(BYTE, QuantizeLinear, ANY(WHOLE), ANY(SCALE), CONSTANT(POINT))

static const FusionRule rules[] = {
    {OP(BitwiseXor, OP_AT(MOVED, Cast, QUANTIZED), NUMBER(MOVED_UP)), OP_QuantizeLinear, fuse_moved_up},
    {OP(QuantizeLinear, OP(Mul, OP(Cast, OP_AT(WHOLE, MatMulInteger, ANY(BYTE), ANY(MOVED))), CONSTANT(SCALE)),
        ANY(POINT)),
     OP_NONE, fuse_requantized},
    {OP(Cast, ANY(WHOLE)), OP_NONE, fuse_rounded},
};

bool fuse_bytes(Model *model) { return fuse_patterns(model, __func__, rules, sizeof rules / sizeof *rules); }
