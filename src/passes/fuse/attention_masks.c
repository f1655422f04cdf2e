/* What masks scores, as Attention takes it.
 *
 * QUIRK_ATTENTION_OF_MASKED_ROW_IS_ZERO: a row whose scores are all masked, by false or by the lowest number or -inf
 * added, gives 0, where JAX gives NaN or the mean of the values; with any other number added it gives the mean as well.
 * So a mask becomes a boolean input only where it is known that every row keeps something; else, where JAX would put a
 * large number in place of a score, a number is added that the score vanishes in. A mask must have the last two axes of
 * the scores; it is broadcast over the others. */
#include <float.h>
#include <math.h>

#include "passes/analysis/bounds.h"
#include "passes/analysis/masks.h"
#include "passes/fuse/attention.h"
#include "types/moved.h"
#include "types/numbers.h"

static const double lowest_kept = -9.9e8; /* what is this low, as -1e9 in bfloat16, leaves nothing of a score */
static const double swallows = -1e30;     /* what a score vanishes in that is added to it */
static const double not_quite_lowest = -0.7 * FLT_MAX;
static const double least_added = -0.9 * FLT_MAX;

static Dim rows_of(const Scores *scores) { return scores->type.dims[scores->type.rank - 2]; }
static Dim columns_of(const Scores *scores) { return scores->type.dims[scores->type.rank - 1]; }

/* Halves go less low. */
static bool is_masking(const Scores *scores, double number) {
  return number <= (scores->type.dtype == DTYPE_FLOAT16 ? -3e4 : lowest_kept);
}

/* ---- constants ---- */

/* Is the element one that takes its score out? */
static bool is_masked(const Tensor *mask, bool inverted, int64_t index, bool *is_zero) {
  size_t width = dtype_bytes(mask->dtype, 1);
  const char *element = (const char *)mask->data + (size_t)index * width;
  *is_zero = true;
  if (mask->dtype == DTYPE_BOOL) return !*element != inverted;
  double number = number_decode(mask->dtype, element);
  *is_zero = number == 0;
  return !(number > lowest_kept);
}

/* A known mask over the last two axes of the scores with something left in every row. */
static MaskUse use_of_constant(const Tensor *mask, bool inverted, const Scores *scores) {
  bool causal = dim_equal(rows_of(scores), columns_of(scores));
  if (mask->rank < 2 || mask->rank > 4 || mask->size == 0) return MASK_ADDED;
  int64_t columns = mask->dims[mask->rank - 1], rows = mask->dims[mask->rank - 2];
  if (!dim_is(rows_of(scores), rows) || !dim_is(columns_of(scores), columns)) return MASK_ADDED;
  int64_t count = (int64_t)(mask->size / dtype_bytes(mask->dtype, 1));
  tensor_ready(mask);
  for (int64_t row = 0; row < count / columns; row++) {
    bool keeps = false;
    for (int64_t column = 0; column < columns; column++) {
      bool is_zero, masked = is_masked(mask, inverted, row * columns + column, &is_zero);
      keeps = keeps || !masked;
      causal = causal && masked == (column > row % rows) && (masked || is_zero);
    }
    if (!keeps) return MASK_ADDED;
  }
  return causal ? MASK_CAUSAL : MASK_KEPT;
}

/* ---- choosing ---- */

/* Is it finite? Of what is lower than Attention takes for a number, so much is left. */
static bool is_finite(const Value *value, bool *is_too_low) {
  Bounds bounds;
  if (!value_bounds(value, &bounds) || bounds.least < -FLT_MAX || bounds.greatest >= FLT_MAX) return false;
  *is_too_low = bounds.least <= least_added;
  return true;
}

/* A bias that is nothing but a mask: 0 where it keeps, and a number that leaves nothing of a score. */
static bool masks_by_adding(const Scores *scores, TwoNumbers *numbers, bool *inverted) {
  if (!scores->bias || !read_two_numbers(scores->bias, numbers)) return false;
  *inverted = numbers->put_out == 0;
  double fill = *inverted ? numbers->kept : numbers->put_out;
  return (*inverted ? numbers->put_out : numbers->kept) == 0 && is_masking(scores, fill);
}

/* Axes that the mask has beyond leading ones of size 1. */
static uint32_t own_rank(Type type) {
  uint32_t rank = type.rank;
  while (rank > 2 && dim_is(type.dims[type.rank - rank], 1)) rank--;
  return rank;
}

static bool is_of_scores(const Scores *scores, const Value *mask) {
  Type type = mask->type;
  return type.rank >= 2 && own_rank(type) <= scores->type.rank &&
         dim_equal(type.dims[type.rank - 2], rows_of(scores)) &&
         dim_equal(type.dims[type.rank - 1], columns_of(scores));
}

/* Masks that compare positions say by themselves what every row keeps. */
static MaskUse use_of_bands(const Scores *scores) {
  Band all = {INT64_MIN, INT64_MAX}, band;
  TwoNumbers numbers;
  bool inverted;
  if (scores->mask) {
    if (!is_masking(scores, scores->fill) || !is_of_scores(scores, scores->mask)) return MASK_ADDED;
    if (!read_band(scores->mask, scores->inverted, &all)) return MASK_ADDED;
  }
  if (scores->bias) {
    if (!masks_by_adding(scores, &numbers, &inverted) || !is_of_scores(scores, numbers.mask)) return MASK_ADDED;
    if (!read_band(numbers.mask, inverted, &band)) return MASK_ADDED;
    all = band_intersect(all, band);
  }
  if (band_is_causal(all, rows_of(scores), columns_of(scores))) return MASK_CAUSAL;
  return band_keeps_rows(all, rows_of(scores), columns_of(scores)) ? MASK_KEPT : MASK_ADDED;
}

bool can_add_mask(const Scores *scores) {
  bool is_too_low;
  if (scores->mask && !(is_masking(scores, scores->fill) && isfinite(scores->fill))) return false;
  return !scores->bias || is_finite(scores->bias, &is_too_low);
}

MaskUse mask_use(const Scores *scores) {
  const Value *mask = scores->mask, *bias = scores->bias;
  MaskUse use = MASK_ADDED;
  if (!mask && !bias) return MASK_NONE;
  if (mask && mask->type.dtype != DTYPE_BOOL) return MASK_UNFIT;
  if (mask && !bias && is_masking(scores, scores->fill) && constant_of(mask))
    use = use_of_constant(constant_of(mask), scores->inverted, scores);
  else if (!mask && constant_of(bias)) use = use_of_constant(constant_of(bias), false, scores);
  if (use == MASK_ADDED) use = use_of_bands(scores);
  return use != MASK_ADDED || can_add_mask(scores) ? use : MASK_UNFIT;
}

/* ---- a mask that is kept ---- */

static Value *turned(Match *match, Value *mask, bool inverted) {
  return inverted ? EMIT_BEFORE(match, OP_Not, mask->type, mask)->outputs[0] : mask;
}

/* Of masks that fit the same scores: where sizes differ, one is 1. */
static Type broadcast_type(Context *context, Type a, Type b) {
  Type longer = a.rank >= b.rank ? a : b, shorter = a.rank >= b.rank ? b : a;
  Dim dims[MAX_RANK];
  for (uint32_t i = 0; i < longer.rank; i++) dims[i] = longer.dims[i];
  for (uint32_t i = 0; i < shorter.rank; i++) {
    Dim *dim = &dims[i + longer.rank - shorter.rank];
    if (dim_is(*dim, 1)) *dim = shorter.dims[i];
  }
  return type_make(context, a.dtype, dims, longer.rank);
}

static Value *kept_mask(Match *match, const Scores *scores) {
  TwoNumbers numbers;
  bool inverted;
  if (!scores->mask && constant_of(scores->bias)) return scores->bias;
  Value *mask = scores->mask ? turned(match, scores->mask, scores->inverted) : NULL;
  if (!masks_by_adding(scores, &numbers, &inverted)) return mask;
  Value *other = turned(match, numbers.mask, inverted);
  if (!mask) return other;
  Type type = broadcast_type(match->rewriter->context, mask->type, other->type);
  return EMIT_BEFORE(match, OP_And, type, mask, other)->outputs[0];
}

/* ---- a mask that is added ---- */

static Value *number_like(Match *match, double number, int64_t rows) {
  Arena *arena = &match->rewriter->context->arena;
  float element = (float)number;
  int64_t dims[] = {rows, 1};
  Tensor *tensor = arena_new(arena, Tensor);
  *tensor = (Tensor){.dtype = DTYPE_FLOAT32, .rank = rows ? 2 : 0, .size = (size_t)(rows ? rows : 1) * sizeof element};
  tensor->dims = arena_copy(arena, dims, sizeof dims);
  float *data = arena_new_array(arena, tensor->size / sizeof element, float);
  for (int64_t i = 0; i < rows || i == 0; i++) data[i] = element;
  tensor->data = data;
  return match_constant(match, tensor);
}

/* Every size is 1 or that of the scores, and the columns are there. */
static bool has_shape_of_scores(const Scores *scores) {
  const Value *parts[] = {scores->mask, scores->bias};
  bool has_columns = dim_is(columns_of(scores), 1);
  for (size_t p = 0; p < 2; p++) {
    if (!parts[p]) continue;
    Type type = parts[p]->type;
    if (own_rank(type) > scores->type.rank) return false;
    for (uint32_t i = 1; i <= type.rank && i <= scores->type.rank; i++) {
      Dim size = type.dims[type.rank - i];
      if (dim_is(size, 1)) continue;
      if (!dim_equal(size, scores->type.dims[scores->type.rank - i])) return false;
      has_columns = has_columns || i == 1;
    }
  }
  return has_columns;
}

/* The shape of what is computed from both. */
static uint32_t mask_shape(const Scores *scores, Dim dims[4]) {
  uint32_t rank = 2;
  for (int i = 0; i < 4; i++) dims[i] = dim_of(1);
  const Value *parts[] = {scores->mask, scores->bias};
  for (size_t p = 0; p < 2; p++) {
    if (!parts[p]) continue;
    Type type = parts[p]->type;
    if (type.rank > rank) rank = type.rank;
    for (uint32_t i = 1; i <= type.rank; i++) {
      if (!dim_is(type.dims[type.rank - i], 1)) dims[4 - i] = type.dims[type.rank - i];
    }
  }
  return rank;
}

/* A column of zeros, one for each query, whose number is known only at run time. */
static Value *zero_rows(Match *match, const Scores *scores) {
  Context *context = match->rewriter->context;
  Type query = scores->query->type;
  const int64_t one[] = {1};
  const Dim dims[] = {rows_of(scores), dim_of(1)};
  Value *count =
      EMIT_BEFORE(match, OP_Shape, type_make(context, DTYPE_INT64, (Dim[]){dim_of(1)}, 1), scores->query)->outputs[0];
  uint32_t axis = query.rank - 2; /* or where else the positions are */
  for (uint32_t i = 0; i < query.rank; i++) axis = dim_equal(query.dims[i], rows_of(scores)) ? i : axis;
  node_set_int(count->producer, "start", axis);
  node_set_int(count->producer, "end", axis + 1);
  Value *last = rewrite_constant_ints(match->rewriter, match->root, one, 1, match->root->origin);
  Node *shape = EMIT_BEFORE(match, OP_Concat, type_make(context, DTYPE_INT64, (Dim[]){dim_of(2)}, 1), count, last);
  node_set_int(shape, "axis", 0);
  Type type = type_make(context, DTYPE_FLOAT32, dims, 2);
  return EMIT_BEFORE(match, OP_Expand, type, number_like(match, 0, 0), shape->outputs[0])->outputs[0];
}

static Value *in_float32(Match *match, Value *value) {
  if (value->type.dtype == DTYPE_FLOAT32) return value;
  Type type = {.dtype = DTYPE_FLOAT32, .rank = value->type.rank, .dims = value->type.dims};
  Node *cast = EMIT_BEFORE(match, OP_Cast, type, value);
  node_set_int(cast, "to", 1);
  return cast->outputs[0];
}

/* The bias, but for numbers that Attention takes for a mask. */
static Value *added_bias(Match *match, const Scores *scores) {
  TwoNumbers numbers;
  bool inverted, is_too_low = false;
  if (!scores->bias) return NULL;
  is_finite(scores->bias, &is_too_low);
  if (!is_too_low) return in_float32(match, scores->bias);
  Value *least = number_like(match, not_quite_lowest, 0), *zero = number_like(match, 0, 0);
  if (!masks_by_adding(scores, &numbers, &inverted) || numbers.mask->type.rank != scores->bias->type.rank) {
    Value *bias = in_float32(match, scores->bias);
    return EMIT_BEFORE(match, OP_Max, bias->type, bias, least)->outputs[0];
  }
  Type type = type_with(numbers.mask->type, DTYPE_FLOAT32);
  return EMIT_BEFORE(match, OP_Where, type, numbers.mask, inverted ? least : zero, inverted ? zero : least)->outputs[0];
}

/* The bias, with the fill where the mask puts scores out. */
static Value *added_mask(Match *match, const Scores *scores) {
  Dim dims[4];
  uint32_t rank = mask_shape(scores, dims);
  uint32_t given = scores->mask ? scores->mask->type.rank : 0;
  if (scores->bias && scores->bias->type.rank > given) given = scores->bias->type.rank;
  bool has_rows = dim_equal(dims[2], rows_of(scores)) && given >= 2;
  Dim rows = rows_of(scores);
  dims[2] = rows;
  Value *zeros = has_rows                ? number_like(match, 0, 0)
                 : dim_is_constant(rows) ? number_like(match, 0, rows.constant)
                                         : zero_rows(match, scores);
  Type type = type_make(match->rewriter->context, DTYPE_FLOAT32, dims + 4 - rank, rank);
  Value *bias = added_bias(match, scores);
  if (bias && !has_rows) bias = EMIT_BEFORE(match, OP_Add, type, bias, zeros)->outputs[0];
  if (!scores->mask) return bias;
  double number = scores->fill < least_added ? not_quite_lowest : fmin(scores->fill, swallows);
  Value *fill = number_like(match, number, 0), *kept = bias ? bias : zeros;
  if (scores->inverted) return EMIT_BEFORE(match, OP_Where, type, scores->mask, fill, kept)->outputs[0];
  return EMIT_BEFORE(match, OP_Where, type, scores->mask, kept, fill)->outputs[0];
}

/* Leading axes of size 1 beyond those of the scores are left out. */
static Value *of_rank_of_scores(Match *match, const Scores *scores, Value *mask) {
  int64_t axes[MAX_RANK];
  if (!mask || mask->type.rank <= scores->type.rank || mask->type.rank > MAX_RANK) return mask;
  uint32_t more = mask->type.rank - scores->type.rank;
  for (uint32_t i = 0; i < more; i++) axes[i] = i;
  Type type = {.dtype = mask->type.dtype, .rank = scores->type.rank, .dims = mask->type.dims + more};
  Value *left_out = rewrite_constant_ints(match->rewriter, match->root, axes, more, match->root->origin);
  return EMIT_BEFORE(match, OP_Squeeze, type, mask, left_out)->outputs[0];
}

bool attention_mask(Match *match, const Scores *scores, MaskUse use, Value **mask) {
  *mask = NULL;
  if (use == MASK_KEPT) *mask = of_rank_of_scores(match, scores, kept_mask(match, scores));
  if (use == MASK_ADDED && has_shape_of_scores(scores)) {
    Scores own = *scores;
    own.mask = of_rank_of_scores(match, scores, scores->mask);
    own.bias = of_rank_of_scores(match, scores, scores->bias);
    *mask = added_mask(match, &own);
  }
  return use != MASK_UNFIT && (*mask || (use != MASK_ADDED && use != MASK_KEPT));
}

/* A mask that turns out to be causal once it is simplified. */
bool fuse_causal_mask(Match *match) {
  Node *old = match->root;
  Value *mask = node_input(old, 3);
  Type query = node_input(old, 0)->type, keys = node_input(old, 1)->type;
  if (!mask || node_int_or(old, "is_causal", 0) || query.rank < 3 || query.rank != keys.rank) return false;
  const Dim dims[] = {dim_of(1), dim_of(1), query.dims[query.rank - 2], keys.dims[keys.rank - 2]};
  Scores scores = {.type = {.dtype = DTYPE_FLOAT32, .rank = 4, .dims = dims}, .fill = -INFINITY};
  bool is_mask = mask->type.dtype == DTYPE_BOOL;
  *(is_mask ? &scores.mask : &scores.bias) = mask;
  match_take(match, mask, OP_Where); /* unless others need it */
  if (mask_use(&scores) != MASK_CAUSAL) return false;
  Value *inputs[] = {node_input(old, 0), node_input(old, 1), node_input(old, 2)};
  node_set_int(match_emit_like(match, inputs, 3), "is_causal", 1);
  return true;
}
