/* softmax(scale * Q Kᵀ + bias, masked) V as one operator over four axes: batch, head, position, feature.
 *
 * QUIRK_ATTENTION_OF_MASKED_ROW_IS_ZERO: a row whose scores are all masked, by false or by the lowest number or -inf
 * added, gives 0, where JAX gives NaN or the mean of the values; with any other number added it gives the mean as well.
 * So a mask becomes an input of its own only where it is known that every row keeps something; else, where JAX would
 * put a large number in place of a score, that number is added to it: what it is added to vanishes in it. A mask must
 * have the last two axes of the scores; it is broadcast over the others.
 *
 * Only of float32: with halves, whose scores JAX computes in float32, the operator has four times the error of the
 * single steps and is no faster. */
#include <float.h>
#include <math.h>

#include "passes/analysis/bounds.h"
#include "passes/analysis/positions.h"
#include "passes/fuse/attention.h"
#include "types/numbers.h"

static const double lowest_kept = -1e9; /* what is added below this leaves nothing of a score beside another */
static const double swallows = -1e30;   /* what a score vanishes in that is added to it */
static const double not_quite_lowest = -0.7 * FLT_MAX;
static const double least_added = -0.9 * FLT_MAX;

/* ---- reading ---- */

/* A factor that is the same everywhere leaves the value and goes into the scale. */
static Value *without_scale(Match *match, Value *value, double *scale) {
  for (;;) {
    Node *node = value->producer;
    double number;
    if (!node || (!node_is(node, OP_Mul) && !node_is(node, OP_Div))) return value;
    bool swapped = node_is(node, OP_Mul) && uniform_number(node_input(node, 0), &number);
    Value *source = node_input(node, swapped);
    if (!uniform_number(node_input(node, !swapped), &number) || !type_equal(source->type, value->type)) return value;
    if (!match_take(match, value, node->op)) return value;
    *scale = node_is(node, OP_Div) ? *scale / number : *scale * number;
    value = source;
  }
}

static bool read_product(Match *match, Value *value, Scores *scores) {
  value = without_scale(match, value, &scores->scale);
  Node *product = match_take(match, value, OP_MatMul);
  if (!product) return false;
  scores->query = without_scale(match, node_input(product, 0), &scores->scale);
  scores->keys = without_scale(match, node_input(product, 1), &scores->scale);
  scores->type = value->type;
  return true;
}

static bool read_biased(Match *match, Value *value, Scores *scores) {
  size_t before = match->node_count;
  Scores saved = *scores;
  if (read_product(match, value, scores)) return true;
  match->node_count = before;
  Node *sum = match_take(match, value, OP_Add);
  for (size_t side = 0; sum && side < 2; side++) {
    before = match->node_count;
    *scores = saved;
    scores->bias = node_input(sum, 1 - side);
    if (read_product(match, node_input(sum, side), scores)) return true;
    match->node_count = before;
  }
  return false;
}

static bool read_scores(Match *match, Value *value, Scores *scores) {
  Node *choice = match_take(match, value, OP_Where);
  *scores = (Scores){.scale = 1};
  if (!choice) return read_biased(match, value, scores);
  for (size_t kept = 1; kept <= 2; kept++) {
    if (!uniform_number(node_input(choice, 3 - kept), &scores->fill)) continue;
    scores->mask = node_input(choice, 0);
    scores->inverted = kept == 2;
    return read_biased(match, node_input(choice, kept), scores);
  }
  return false;
}

/* ---- masks ---- */

typedef enum MaskUse { MASK_NONE, MASK_CAUSAL, MASK_AS_IT_IS, MASK_ADDED, MASK_UNFIT } MaskUse;

/* Is the element one that takes its score out? */
static bool is_masked(const Tensor *mask, bool inverted, int64_t index) {
  size_t width = dtype_bytes(mask->dtype, 1);
  const char *element = (const char *)mask->data + (size_t)index * width;
  if (mask->dtype == DTYPE_BOOL) return !*element != inverted;
  return !(number_decode(mask->dtype, element) > lowest_kept);
}

/* A known mask over the last two axes of the scores with something left in every row. */
static MaskUse use_of_constant(const Tensor *mask, bool inverted, Type scores) {
  bool causal = mask->dtype == DTYPE_BOOL && dim_equal(scores.dims[2], scores.dims[3]);
  if (mask->rank < 2 || mask->rank > 4 || mask->size == 0) return MASK_ADDED;
  int64_t columns = mask->dims[mask->rank - 1], rows = mask->dims[mask->rank - 2];
  if (!dim_is(scores.dims[2], rows) || !dim_is(scores.dims[3], columns)) return MASK_ADDED;
  int64_t count = (int64_t)(mask->size / dtype_bytes(mask->dtype, 1));
  for (int64_t row = 0; row < count / columns; row++) {
    bool keeps = false;
    for (int64_t column = 0; column < columns; column++) {
      bool masked = is_masked(mask, inverted, row * columns + column);
      keeps = keeps || !masked;
      causal = causal && masked == (column > row % rows);
    }
    if (!keeps) return MASK_ADDED;
  }
  return causal ? MASK_CAUSAL : inverted ? MASK_ADDED : MASK_AS_IT_IS;
}

/* Is it computed that the query's position is not before the key's? */
static bool is_causal_at_run_time(const Value *mask, bool inverted, Type scores) {
  static const struct {
    Op op;
    bool inverted;
    size_t queries; /* which operand counts queries */
  } forms[] = {{OP_GreaterOrEqual, false, 0}, {OP_LessOrEqual, false, 1}, {OP_Less, true, 0}, {OP_Greater, true, 1}};
  const Node *node = mask->producer;
  if (!node || !dim_equal(scores.dims[2], scores.dims[3])) return false;
  for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
    if (!node_is(node, forms[i].op) || forms[i].inverted != inverted) continue;
    return counts_positions(node_input(node, forms[i].queries), 2, scores.dims[2]) &&
           counts_positions(node_input(node, 1 - forms[i].queries), 1, scores.dims[3]);
  }
  return false;
}

static bool is_safe_to_add(const Value *value) {
  Bounds bounds;
  return value_bounds(value, &bounds) && bounds.least > least_added && bounds.greatest < FLT_MAX;
}

static MaskUse mask_use(const Scores *scores) {
  const Value *mask = scores->mask, *bias = scores->bias;
  if (!mask && !bias) return MASK_NONE;
  MaskUse use = MASK_ADDED;
  if (mask && mask->type.dtype != DTYPE_BOOL) return MASK_UNFIT;
  if (mask && !bias && scores->fill <= lowest_kept) {
    if (constant_of(mask)) use = use_of_constant(constant_of(mask), scores->inverted, scores->type);
    else if (is_causal_at_run_time(mask, scores->inverted, scores->type)) use = MASK_CAUSAL;
  }
  if (!mask && constant_of(bias)) use = use_of_constant(constant_of(bias), false, scores->type);
  if (use != MASK_ADDED) return use;
  if (mask && !(scores->fill <= swallows && isfinite(scores->fill))) return MASK_UNFIT;
  return !bias || is_safe_to_add(bias) ? MASK_ADDED : MASK_UNFIT;
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

/* The shape of what is computed from both; false when it is more than the scores', or not over their last axes. */
static bool mask_shape(const Scores *scores, bool whole_rows, Dim dims[4], uint32_t *rank) {
  *rank = 2;
  for (int i = 0; i < 4; i++) dims[i] = dim_of(1);
  if (whole_rows) dims[2] = scores->type.dims[2];
  const Value *parts[] = {scores->mask, scores->bias};
  for (size_t p = 0; p < 2; p++) {
    if (!parts[p]) continue;
    Type type = parts[p]->type;
    if (type.rank > 4) return false;
    if (type.rank > *rank) *rank = type.rank;
    for (uint32_t i = 0; i < type.rank; i++) {
      uint32_t at = i + 4 - type.rank;
      if (dim_is(type.dims[i], 1)) continue;
      if (!dim_equal(type.dims[i], scores->type.dims[at])) return false;
      dims[at] = type.dims[i];
    }
  }
  return dim_equal(dims[2], scores->type.dims[2]) && dim_equal(dims[3], scores->type.dims[3]);
}

/* The bias, with the fill where the mask puts scores out. NULL when it cannot be made. */
static Value *added_mask(Match *match, const Scores *scores) {
  Dim dims[4];
  uint32_t rank;
  bool as_it_is = mask_shape(scores, false, dims, &rank);
  bool shared = scores->type.rank == 4 && dim_is_constant(scores->type.dims[2]);
  if (!as_it_is && !(shared && mask_shape(scores, true, dims, &rank))) return NULL;
  uint32_t given = scores->mask ? scores->mask->type.rank : 0;
  if (scores->bias && scores->bias->type.rank > given) given = scores->bias->type.rank;
  as_it_is = as_it_is && given >= 2;
  if (!as_it_is && !shared) return NULL;
  if (!scores->mask && as_it_is) return scores->bias;
  int64_t rows = as_it_is ? 0 : scores->type.dims[2].constant;
  Type type = type_make(match->rewriter->context, DTYPE_FLOAT32, dims + 4 - rank, rank);
  if (!scores->mask) return EMIT_BEFORE(match, OP_Add, type, scores->bias, number_like(match, 0, rows))->outputs[0];
  Value *fill =
      number_like(match, scores->fill < least_added ? not_quite_lowest : scores->fill, scores->bias ? rows : 0);
  Value *kept = scores->bias ? scores->bias : number_like(match, 0, rows);
  if (scores->inverted) return EMIT_BEFORE(match, OP_Where, type, scores->mask, fill, kept)->outputs[0];
  return EMIT_BEFORE(match, OP_Where, type, scores->mask, kept, fill)->outputs[0];
}

/* ---- the operator ---- */

static bool fits_together(const Match *match, const Scores *scores, const Value *values) {
  Type query = scores->query->type, keys = scores->keys->type;
  if (query.rank != 4 || keys.rank != 4 || values->type.rank != 4 || match_type(match).rank != 4) return false;
  if (scores->type.rank != 4) return false;
  return same_dims(query, keys, 0, 2) && same_dims(query, values->type, 0, 2) &&
         dim_equal(keys.dims[3], values->type.dims[2]);
}

/* 1 / sqrt of the number of features is what the operator does by itself. */
static bool is_default_scale(const Scores *scores) {
  Dim features = scores->query->type.dims[3];
  return dim_is_constant(features) && near_number(DTYPE_FLOAT32, scores->scale, 1 / sqrt((double)features.constant));
}

Value *features_last(Match *match, Value *value) {
  int64_t order[] = {0, 1, 3, 2};
  Node *transpose = value->producer;
  const Attribute *given = transpose && node_is(transpose, OP_Transpose) ? node_attribute(transpose, "perm") : NULL;
  if (given && given->count == 4) {
    for (int i = 0; i < 4; i++) order[i] = given->integers[i == 3 ? 2 : i == 2 ? 3 : i];
    match_take(match, value, OP_Transpose);
    value = node_input(transpose, 0);
  }
  if (order[0] == 0 && order[1] == 1 && order[2] == 2) return value;
  Dim dims[4];
  for (int i = 0; i < 4; i++) dims[i] = value->type.dims[order[i]];
  Type type = type_make(match->rewriter->context, value->type.dtype, dims, 4);
  Node *node = EMIT_BEFORE(match, OP_Transpose, type, value);
  if (given) rewrite_hand_over(match->rewriter, node, transpose);
  node_set_ints(node, "perm", order, 4);
  return node->outputs[0];
}

bool attention_mask(Match *match, const Scores *scores, Value **mask, bool *causal) {
  MaskUse use = mask_use(scores);
  *causal = use == MASK_CAUSAL;
  *mask = NULL;
  if (use == MASK_AS_IT_IS) *mask = scores->mask ? scores->mask : scores->bias;
  if (use == MASK_ADDED) *mask = added_mask(match, scores);
  return use != MASK_UNFIT && (use != MASK_ADDED || *mask);
}

void set_attention(Node *node, const Scores *scores, bool causal) {
  if (causal) node_set_int(node, "is_causal", 1);
  if (!is_default_scale(scores)) node_set_float(node, "scale", (float)scores->scale);
}

bool fuse_attention_scores(Match *match) {
  Scores scores;
  const Node *softmax = node_input(match->root, 0)->producer;
  Value *value = node_input(softmax, 0), *values = node_input(match->root, 1), *mask;
  bool causal;
  int64_t axis = node_int_or(softmax, "axis", -1);
  if ((axis != -1 && axis != 3) || values->type.dtype != DTYPE_FLOAT32) return false;
  if (!read_scores(match, value, &scores) || !fits_together(match, &scores, values)) return false;
  if (!type_equal(value->type, scores.type) || !(scores.scale > 0) || !isfinite(scores.scale)) return false;
  if (!attention_mask(match, &scores, &mask, &causal)) return false;
  Value *inputs[] = {scores.query, features_last(match, scores.keys), values, mask};
  set_attention(match_emit(match, OP_Attention, inputs, mask ? 4 : 3, REWRITE_EMITTER(match->rewriter)), &scores,
                causal);
  return true;
}

/* A mask that turns out to be causal once it is simplified. */
bool fuse_causal_mask(Match *match) {
  Node *old = match->root;
  double kept, fill;
  Value *added = node_input(old, 3);
  if (!added || node_int_or(old, "is_causal", 0)) return false;
  Node *choice = added->producer && node_is(added->producer, OP_Where) ? added->producer : NULL;
  match_take(match, added, OP_Where); /* unless others need it */
  if (!choice || !uniform_number(node_input(choice, 1), &kept) || !uniform_number(node_input(choice, 2), &fill))
    return false;
  Type query = node_input(old, 0)->type, keys = node_input(old, 1)->type;
  if (kept != 0 || fill > lowest_kept || query.rank < 3 || query.rank != keys.rank) return false;
  const Dim dims[] = {dim_of(1), dim_of(1), query.dims[query.rank - 2], keys.dims[keys.rank - 2]};
  Type scores = {.dtype = DTYPE_FLOAT32, .rank = 4, .dims = dims};
  if (!is_causal_at_run_time(node_input(choice, 0), false, scores)) return false;
  Value *inputs[] = {node_input(old, 0), node_input(old, 1), node_input(old, 2)};
  Node *node = match_emit_like(match, inputs, 3);
  node_set_int(node, "is_causal", 1);
  return true;
}
