/* The mask that Attention gets: boolean, or numbers of float32 to be added (attention_masks.c says which). */
#include <float.h>
#include <math.h>

#include "onnx/facts/schema.h"
#include "passes/fuse/attention_masks.h"

static const double swallows = -1e30; /* what a score vanishes in that is added to it */
static const double not_quite_lowest = -0.7 * FLT_MAX;

/* ---- a mask that is kept ---- */

/* Of masks that fit the same scores: where sizes differ, one is 1. */
static Type broadcast_type(Context *context, Type a, Type b, DType dtype) {
  Type longer = a.rank >= b.rank ? a : b, shorter = a.rank >= b.rank ? b : a;
  Dim dims[MOST_AXES];
  for (uint32_t i = 0; i < longer.rank; i++) dims[i] = longer.dims[i];
  for (uint32_t i = 0; i < shorter.rank; i++) {
    Dim *dim = &dims[i + longer.rank - shorter.rank];
    if (dim_is(*dim, 1)) *dim = shorter.dims[i];
  }
  return type_make(context, dtype, dims, longer.rank);
}

/* What must hold, and as which: inverted or not. */
static Value *placed_condition(Match *match, const Condition *condition, bool as_it_is) {
  Value *mask = arrange(match, &condition->placed);
  return condition->inverted && !as_it_is ? EMIT_BEFORE(match, OP_Not, mask->type, mask)->outputs[0] : mask;
}

static Value *both(Match *match, Value *mask, Value *other) {
  if (!mask) return other;
  Type type = broadcast_type(match->rewriter->context, mask->type, other->type, DTYPE_BOOL);
  return EMIT_BEFORE(match, OP_And, type, mask, other)->outputs[0];
}

/* Where a mask keeps scores; a single condition may stay inverted. */
static Value *placed_mask(Match *match, const Term *term, bool *inverted) {
  if (term->part_count == 0) {
    bool as_it_is = inverted != NULL;
    if (inverted) *inverted = term->inverted;
    return placed_condition(match, &term->condition, as_it_is);
  }
  Value *mask = NULL;
  if (inverted) *inverted = false;
  for (size_t i = 0; i < term->part_count; i++)
    mask = both(match, mask, placed_condition(match, &term->parts[i], false));
  return mask;
}

static Value *kept_mask(Scores *scores) {
  Match *match = scores->match;
  Value *mask = NULL;
  for (size_t i = 0; i < scores->term_count; i++) {
    const Term *term = &scores->terms[i];
    Condition added;
    if (term->is_mask) mask = both(match, mask, placed_mask(match, term, NULL));
    else if (places_as_mask(scores, term, &added, NULL))
      mask = both(match, mask, placed_condition(match, &added, false));
    else return arrange(match, &term->condition.placed); /* a constant, alone */
  }
  return mask;
}

/* ---- a mask that is added ---- */

static Value *number_like(Match *match, double number) {
  return rewrite_constant_number(match->rewriter, match->root, DTYPE_FLOAT32, number, match->root->origin);
}

static Value *zeros_of(Match *match, int64_t rows, int64_t columns) {
  const Dim dims[] = {dim_of(rows), dim_of(columns)};
  Type type = type_make(match->rewriter->context, DTYPE_FLOAT32, dims, 2);
  return match_constant(match, match_tensor(match, DTYPE_FLOAT32, type));
}

static Value *sum(Match *match, Value *a, Value *b) {
  if (!a || !b) return a ? a : b;
  return EMIT_BEFORE(match, OP_Add, broadcast_type(match->rewriter->context, a->type, b->type, DTYPE_FLOAT32), a, b)
      ->outputs[0];
}

/* A column of zeros, one for each query, or a row of them, one for each key, whose number is known only at run time. */
static Value *zeros_at_run_time(const Scores *scores, Value *operand, bool is_row) {
  Match *match = scores->match;
  Context *context = match->rewriter->context;
  uint32_t axis = operand->type.rank - 2;
  const int64_t one[] = {1};
  Type single = type_make(context, DTYPE_INT64, (Dim[]){dim_of(1)}, 1);
  Value *count = EMIT_BEFORE(match, OP_Shape, single, operand)->outputs[0];
  node_set_int(count->producer, "start", axis);
  node_set_int(count->producer, "end", axis + 1);
  Value *shape = count;
  Type type =
      type_make(context, DTYPE_FLOAT32, (Dim[]){is_row ? scores->columns : scores->rows, dim_of(1)}, is_row ? 1 : 2);
  if (!is_row) {
    Value *last = rewrite_constant_ints(match->rewriter, match->root, one, 1, match->root->origin);
    Node *node = EMIT_BEFORE(match, OP_Concat, type_make(context, DTYPE_INT64, (Dim[]){dim_of(2)}, 1), count, last);
    node_set_int(node, "axis", 0);
    shape = node->outputs[0];
  }
  return EMIT_BEFORE(match, OP_Expand, type, number_like(match, 0), shape)->outputs[0];
}

/* A constant, unless it would be large. */
static bool can_be_stored(Dim size) { return dim_is_constant(size) && size.constant <= 1 << 16; }

/* Zeros for rows and columns that no mask has; NULL when all are there. */
static Value *missing_zeros(const Scores *scores) {
  Match *match = scores->match;
  Value *rows = NULL, *columns = NULL;
  if (!has_rows(scores))
    rows = can_be_stored(scores->rows) ? zeros_of(match, scores->rows.constant, 1)
                                       : zeros_at_run_time(scores, scores->query, false);
  if (!has_columns(scores))
    columns = can_be_stored(scores->columns) ? zeros_of(match, 1, scores->columns.constant)
                                             : zeros_at_run_time(scores, scores->keys, true);
  return sum(match, rows, columns);
}

static Value *at_least(Match *match, Value *value, double least) {
  return EMIT_BEFORE(match, OP_Max, value->type, value, number_like(match, least))->outputs[0];
}

/* Rounded to halves where it was: that may be -inf. */
static Value *in_float32(Match *match, Value *value) {
  if (value->type.dtype == DTYPE_FLOAT32) return value;
  Node *cast = EMIT_BEFORE(match, OP_Cast, type_with(value->type, DTYPE_FLOAT32), value);
  node_set_int(cast, "to", onnx_dtype(DTYPE_FLOAT32));
  return cast->outputs[0];
}

/* A bias that is nothing but a mask with the lowest number is made anew with another, and with zeros that it lacks. */
static Value *added_bias(const Scores *scores, const Term *term, Value **zeros, bool *is_clamped) {
  Match *match = scores->match;
  Condition added;
  double fill = not_quite_lowest;
  bool is_low = range_of(term) == RANGE_LOW;
  if (scores->term_count == 1 && (is_low || *zeros) && places_as_mask(scores, term, &added, is_low ? NULL : &fill)) {
    Value *mask = arrange(match, &added.placed), *least = number_like(match, fill);
    Value *zero = *zeros ? *zeros : number_like(match, 0);
    Type type = broadcast_type(match->rewriter->context, mask->type, zero->type, DTYPE_FLOAT32);
    bool inverted = added.inverted;
    *is_clamped = is_low;
    *zeros = NULL;
    return EMIT_BEFORE(match, OP_Where, type, mask, inverted ? least : zero, inverted ? zero : least)->outputs[0];
  }
  Value *bias = in_float32(match, arrange(match, &term->condition.placed));
  if (term->factor == 1) return bias;
  if (term->factor == -1) return EMIT_BEFORE(match, OP_Neg, bias->type, bias)->outputs[0];
  return EMIT_BEFORE(match, OP_Mul, bias->type, bias, number_like(match, term->factor))->outputs[0];
}

/* The number that is added where a mask puts a score out. */
static double added_number(const Scores *scores, const Term *term) {
  if (scores->is_masked_row_zero) return -INFINITY;
  if (isinf(term->fill)) return term->fill;
  if (term->fill < least_added) return not_quite_lowest;
  return scores->term_count == 1 || is_weak(term) ? fmin(term->fill, swallows) : term->fill;
}

/* A row of nothing but -inf, or with a +inf, is NaN altogether. */
static Value *with_nan_rows(Scores *scores, Value *mask, bool is_known, bool is_low) {
  Match *match = scores->match;
  Context *context = match->rewriter->context;
  Type type = mask->type;
  Dim dims[MOST_AXES];
  int64_t last = (int64_t)type.rank - 1;
  for (uint32_t i = 0; i < type.rank; i++) dims[i] = i == (uint32_t)last ? dim_of(1) : type.dims[i];
  Value *axes = rewrite_constant_ints(match->rewriter, match->root, &last, 1, match->root->origin);
  Node *node = EMIT_BEFORE(match, OP_ReduceMax, type_make(context, DTYPE_FLOAT32, dims, type.rank), mask, axes);
  node_set_int(node, "keepdims", 1);
  Value *most = node->outputs[0];
  if (is_known && !is_low) return EMIT_BEFORE(match, OP_Sub, type, mask, most)->outputs[0];
  Value *nothing = EMIT_BEFORE(match, OP_Sub, most->type, most, most)->outputs[0]; /* 0 or NaN */
  return sum(match, at_least(match, mask, not_quite_lowest), nothing);
}

/* The sum of biases, with the fill where masks put scores out, in the order in which they are applied. */
static Value *added_mask(Scores *scores) {
  Match *match = scores->match;
  Context *context = match->rewriter->context;
  Value *zeros = missing_zeros(scores), *mask = NULL;
  bool is_known = true, is_infinite = false, is_clamped = false;
  size_t low = 0;
  for (size_t i = scores->term_count; i-- > 0;) {
    const Term *term = &scores->terms[i];
    if (!term->is_mask) {
      Range range = range_of(term);
      is_known = is_known && range != RANGE_ANY;
      low += range == RANGE_LOW;
      mask = sum(match, mask, added_bias(scores, term, &zeros, &is_clamped));
      continue;
    }
    bool inverted;
    double number = added_number(scores, term);
    is_infinite = is_infinite || isinf(number);
    Value *kept = placed_mask(match, term, &inverted), *fill = number_like(match, number);
    if (!mask) mask = zeros ? zeros : kept->type.rank < 2 ? zeros_of(match, 1, 1) : number_like(match, 0), zeros = NULL;
    Type type = broadcast_type(context, kept->type, mask->type, DTYPE_FLOAT32);
    mask = EMIT_BEFORE(match, OP_Where, type, kept, inverted ? fill : mask, inverted ? mask : fill)->outputs[0];
  }
  if (zeros) mask = sum(match, mask, zeros);
  scores->added = mask;
  if (scores->is_masked_row_zero) return mask;
  is_infinite = is_infinite && !scores->has_kept_rows;
  if (!is_known || is_infinite || low > 1) return with_nan_rows(scores, mask, is_known, low > 0);
  return low && !is_clamped ? at_least(match, mask, not_quite_lowest) : mask;
}

/* Attention takes no mask of fewer than two axes. */
static Value *with_rows(Match *match, Value *mask) {
  const Dim dims[] = {dim_of(1), mask->type.rank ? mask->type.dims[0] : dim_of(1)};
  if (mask->type.rank >= 2) return mask;
  return with_shape(match, mask, type_make(match->rewriter->context, mask->type.dtype, dims, 2));
}

Value *attention_mask(Scores *scores, MaskUse use) {
  if (use != MASK_KEPT && use != MASK_ADDED) return NULL;
  return with_rows(scores->match, use == MASK_KEPT ? kept_mask(scores) : added_mask(scores));
}
