/* What masks scores, as Attention takes it.
 *
 * QUIRK_ATTENTION_OF_MASKED_ROW_IS_ZERO: a row whose scores are all masked, by false or by the lowest number or -inf
 * added, gives 0, where JAX gives NaN or the mean of the values; with any other number added it gives the mean as well.
 * So a mask becomes a boolean input where it is known that every row keeps something, or where such a row is 0 in JAX
 * too. Else numbers are added: one that the score vanishes in where JAX puts a large number in place of it, and NaN in
 * all of a row where JAX puts -inf in all of it. A mask must have the last two axes of the scores; it is broadcast over
 * the others. */
#include <float.h>
#include <math.h>

#include "onnx/facts/schema.h"
#include "passes/analysis/bounds.h"
#include "passes/analysis/masks.h"
#include "passes/fuse/attention_masks.h"
#include "target/target.h"
#include "types/moved.h"
#include "types/numbers.h"

static const double weak = -9.9e3;        /* what is this low, as -1e4 in bfloat16, leaves no weight */
static const double lowest_kept = -9.9e8; /* what is this low, as -1e9 in bfloat16, leaves nothing of a score */
const double least_added = -0.9 * FLT_MAX;

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
  bool causal = dim_equal(scores->rows, scores->columns);
  if (mask->rank < 2 || mask->size == 0) return MASK_ADDED;
  int64_t columns = mask->dims[mask->rank - 1], rows = mask->dims[mask->rank - 2];
  if (!dim_is(scores->rows, rows) || !dim_is(scores->columns, columns)) return MASK_ADDED;
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

/* ---- conditions ---- */

/* Back to before it was moved or spread. */
static void undo_moves(Atoms *atoms, Condition *condition) {
  for (const Node *node; (node = condition->value->producer);) {
    Axes axes = condition->axes;
    bool is_moved = node_moves_all(node) || node_is(node, OP_Expand);
    if (!is_moved || !follow_axes_back(atoms, node, &axes)) return;
    condition->axes = axes;
    condition->value = node_input(node, 0);
  }
}

/* All that must hold where this does, each by itself. */
static bool collect(Scores *scores, Condition condition, Term *term, int depth) {
  bool is_kept = false;
  undo_moves(&scores->atoms, &condition);
  const Node *node = condition.value->producer;
  if (is_boolean(condition.value, !condition.inverted)) return true;
  if (node && depth > 0 && node_is(node, OP_Not)) {
    condition.value = node_input(node, 0);
    condition.inverted = !condition.inverted;
    return collect(scores, condition, term, depth - 1);
  }
  if (node && depth > 0 && node_is(node, condition.inverted ? OP_Or : OP_And)) {
    is_kept = true;
    for (size_t i = 0; i < 2 && is_kept; i++) {
      Condition part = {.value = node_input(node, i), .inverted = condition.inverted};
      is_kept = broadcast_axes(&condition.axes, part.value->type, &part.axes) && collect(scores, part, term, depth - 1);
    }
    return is_kept;
  }
  if (term->part_count == MOST_CONDITIONS) return false;
  term->parts[term->part_count++] = condition;
  return true;
}

/* The same axes, but for leading ones of size 1. */
static bool same_axes(const Scores *scores, Axes a, Axes b) {
  if (!axes_refine(&scores->atoms, &a) || !axes_refine(&scores->atoms, &b)) return false;
  for (uint32_t i = 1; i <= a.rank || i <= b.rank; i++) {
    const Axis none = {0}, *one = i <= a.rank ? &a.axis[a.rank - i] : &none;
    if (!same_axis(one, i <= b.rank ? &b.axis[b.rank - i] : &none)) return false;
  }
  return true;
}

static bool same_condition(const Scores *scores, const Condition *a, const Condition *b) {
  return a->value == b->value && a->inverted == b->inverted && same_axes(scores, a->axes, b->axes);
}

static bool is_among(const Scores *scores, const Condition *condition, const Term *term) {
  for (size_t i = 0; i < term->part_count; i++) {
    if (same_condition(scores, condition, &term->parts[i])) return true;
  }
  return false;
}

/* Is whatever the first puts out put out by the second, both of them constants over the same axes? */
static bool is_covered(const Scores *scores, const Condition *condition, const Condition *other) {
  const Tensor *one = constant_of(condition->value), *two = constant_of(other->value);
  if (!one || !two || !same_axes(scores, condition->axes, other->axes)) return false;
  int64_t count = (int64_t)(one->size / dtype_bytes(one->dtype, 1));
  if (count != (int64_t)(two->size / dtype_bytes(two->dtype, 1))) return false;
  tensor_ready(one);
  tensor_ready(two);
  for (int64_t i = 0; i < count; i++) {
    bool is_zero;
    if (is_masked(one, condition->inverted, i, &is_zero) && !is_masked(two, other->inverted, i, &is_zero)) return false;
  }
  return true;
}

static bool is_covered_by_some(const Scores *scores, const Condition *condition, const Term *term) {
  for (size_t i = 0; i < term->part_count; i++) {
    if (is_covered(scores, condition, &term->parts[i])) return true;
  }
  return false;
}

/* Does some constant condition over the same axes put out the element that this one does? */
static bool is_put_out(const Scores *scores, const Condition *condition, int64_t index, size_t count) {
  const Term *terms = scores->terms;
  for (size_t i = 0; i < scores->term_count; i++) {
    size_t conditions = terms[i].is_mask ? terms[i].part_count : 1;
    for (size_t k = 0; k < conditions; k++) {
      const Condition *other = terms[i].is_mask ? &terms[i].parts[k] : &terms[i].condition;
      const Tensor *constant = constant_of(other->value);
      bool is_zero;
      if (!constant || constant->size / dtype_bytes(constant->dtype, 1) != count) continue;
      if (!same_axes(scores, condition->axes, other->axes)) continue;
      if (is_masked(constant, other->inverted, index, &is_zero)) return true;
    }
  }
  return false;
}

/* Is whatever it puts out put out by one constant or another? */
static bool is_covered_by_all(const Scores *scores, const Condition *condition) {
  const Tensor *constant = constant_of(condition->value);
  if (!constant) return false;
  tensor_ready(constant);
  size_t count = constant->size / dtype_bytes(constant->dtype, 1);
  for (size_t i = 0; i < count; i++) {
    bool is_zero, masked = is_masked(constant, condition->inverted, (int64_t)i, &is_zero);
    if (masked && !is_put_out(scores, condition, (int64_t)i, count)) return false;
  }
  return true;
}

/* Does a constant bias put nothing out? */
static bool masks_nothing(const Term *term) {
  const Tensor *constant = constant_of(term->condition.value);
  if (term->is_mask || !constant) return false;
  tensor_ready(constant);
  for (int64_t i = 0; i < (int64_t)(constant->size / dtype_bytes(constant->dtype, 1)); i++) {
    bool is_zero;
    if (is_masked(constant, false, i, &is_zero)) return false;
  }
  return true;
}

/* Weights that are put out once more were put out before, and a row of which nothing is left is 0. */
typedef enum Zeroing { ZEROES_NOTHING, ZEROES_MASKED, ZEROES_SOME_MASKED, ZEROES_OTHERS } Zeroing;

static Zeroing read_zeroing(Scores *scores) {
  const Term *zeroed = &scores->zeroed;
  if (!zeroed->value) return ZEROES_NOTHING;
  bool all = true;
  for (size_t i = 0; i < zeroed->part_count; i++) {
    bool found = false;
    for (size_t k = 0; k < scores->term_count && !found; k++) {
      const Term *term = &scores->terms[k];
      found = (term->is_mask && is_among(scores, &zeroed->parts[i], term)) ||
              is_covered(scores, &zeroed->parts[i], &term->condition);
    }
    if (!found && !is_covered_by_all(scores, &zeroed->parts[i])) return ZEROES_OTHERS;
  }
  for (size_t k = 0; k < scores->term_count; k++) {
    const Term *term = &scores->terms[k];
    if (!term->is_mask && constant_of(term->condition.value)) all = all && masks_nothing(term);
    for (size_t i = 0; term->is_mask && i < term->part_count; i++)
      all = all && (is_among(scores, &term->parts[i], zeroed) || is_covered_by_some(scores, &term->parts[i], zeroed));
  }
  return all ? ZEROES_MASKED : ZEROES_SOME_MASKED;
}

/* ---- what every row keeps ---- */

static bool is_masking(const Term *term) { return term->fill <= weak; }

/* Is something left of what is added to the number? Halves go less low. */
bool is_weak(const Term *term) { return term->fill > (term->dtype == DTYPE_FLOAT16 ? -3e4 : lowest_kept); }

bool follow_back_to_mask(Atoms *atoms, const Value *numbers, const Value *mask, Axes *axes) {
  for (const Value *value = numbers; value != mask; value = numbers_before(value)) {
    bool is_followed = node_has(value->producer, RENAMES) ? follow_axes_back(atoms, value->producer, axes)
                                                          : broadcast_axes(axes, numbers_before(value)->type, axes);
    if (!is_followed) return false;
  }
  return true;
}

/* A bias that is nothing but a mask: 0 where it keeps, and a number at least this low elsewhere. */
static bool masks_by_adding(const Term *term, double low, Condition *mask, double *fill) {
  TwoNumbers numbers;
  const Condition *bias = &term->condition;
  if (term->is_mask || !(term->factor > 0) || !read_two_numbers(bias->value, &numbers)) return false;
  *mask = (Condition){.value = numbers.mask, .inverted = numbers.put_out == 0};
  *fill = (mask->inverted ? numbers.kept : numbers.put_out) * term->factor;
  if ((mask->inverted ? numbers.put_out : numbers.kept) != 0 || *fill > low) return false;
  return broadcast_axes(&bias->axes, numbers.mask->type, &mask->axes);
}

/* The same, put where Attention wants it. */
bool places_as_mask(const Scores *scores, const Term *term, Condition *mask, double *fill) {
  double number;
  return masks_by_adding(term, lowest_kept, mask, fill ? fill : &number) &&
         plan_arrangement(&scores->atoms, mask->value, &mask->axes, &scores->wanted, &mask->placed);
}

/* Rows and columns of the scores are the last axes, and the only ones; `turned`: columns before rows. */
static bool is_of_scores(const Scores *scores, const Condition *condition, bool *turned) {
  Axes axes = condition->axes;
  uint32_t rank = axes.rank;
  if (rank < 2 || !axes_refine(&scores->atoms, &axes)) return false;
  const Axis *last = &axes.axis[rank - 1], *before = &axes.axis[rank - 2];
  *turned = same_axis(last, &scores->row);
  if (!same_axis(last, *turned ? &scores->row : &scores->key) ||
      !same_axis(before, *turned ? &scores->key : &scores->row))
    return false;
  for (uint32_t i = 0; i + 2 < rank; i++) {
    if (axes.axis[i].count) return false;
  }
  return true;
}

static bool band_of(const Scores *scores, const Condition *condition, Band *band) {
  bool turned;
  if (!is_of_scores(scores, condition, &turned) || !read_band(condition->value, condition->inverted, band))
    return false;
  if (turned) {
    *band = (Band){band->greatest == INT64_MAX ? INT64_MIN : -band->greatest,
                   band->least == INT64_MIN ? INT64_MAX : -band->least, band->beyond};
  }
  return !turned || dim_is(band->beyond, 0);
}

/* The same, or a band of which all is kept, and perhaps more: what must hold is this or something else. */
static bool band_within(Scores *scores, const Condition *condition, int depth, Band *band, bool *is_exact) {
  if (band_of(scores, condition, band)) return true;
  const Node *node = condition->value->producer;
  if (!node || depth == 0 || !node_is(node, condition->inverted ? OP_And : OP_Or)) return false;
  for (size_t i = 0; i < 2; i++) {
    Condition part = {.value = node_input(node, i), .inverted = condition->inverted};
    if (!broadcast_axes(&condition->axes, part.value->type, &part.axes)) return false;
    undo_moves(&scores->atoms, &part);
    *is_exact = false;
    if (band_within(scores, &part, depth - 1, band, is_exact) && band_keeps_rows(*band, scores->rows, scores->columns))
      return true;
  }
  return false;
}

/* The band that a mask keeps, as a whole or of all that must hold; or at least. */
static bool band_of_term(Scores *scores, const Term *given, Band *band, bool *is_exact) {
  enum { DEEP = 4 };
  Term added = {.is_mask = true};
  const Term *term = given->is_mask ? given : &added;
  Band other;
  if (given->is_mask && !is_masking(given)) return false;
  if (!given->is_mask && (!places_as_mask(scores, given, &added.condition, NULL) ||
                          !collect(scores, added.condition, &added, MOST_CONDITIONS)))
    return false;
  if (band_of(scores, &term->condition, band)) return true;
  *band = (Band){INT64_MIN, INT64_MAX, dim_of(0)};
  for (size_t i = 0; i < term->part_count; i++) {
    if (!band_within(scores, &term->parts[i], DEEP, &other, is_exact) || !band_intersect(band, other)) return false;
  }
  return term->part_count > 0;
}

static bool bounds_of_constant(const Tensor *constant, Bounds *bounds) {
  size_t width = dtype_bytes(constant->dtype, 1);
  *bounds = (Bounds){INFINITY, -INFINITY};
  for (size_t at = 0; at + width <= constant->size; at += width) {
    double number = number_decode(constant->dtype, (const char *)constant->data + at);
    if (isnan(number)) return false;
    bounds->least = fmin(bounds->least, number);
    bounds->greatest = fmax(bounds->greatest, number);
  }
  return constant->size > 0;
}

Range range_of(const Term *term) {
  Bounds bounds;
  const Tensor *constant = constant_of(term->condition.value);
  if (constant ? !bounds_of_constant(constant, &bounds) : !value_bounds(term->condition.value, &bounds))
    return RANGE_ANY;
  double one = bounds.least * term->factor, other = bounds.greatest * term->factor;
  if (!(fmin(one, other) >= -FLT_MAX && fmax(one, other) < FLT_MAX)) return RANGE_ANY;
  return fmin(one, other) <= least_added ? RANGE_LOW : RANGE_SMALL;
}

/* May it leave nothing of a row? */
static bool may_mask(const Term *term) {
  Condition mask;
  double fill;
  return term->is_mask || range_of(term) != RANGE_SMALL || masks_by_adding(term, weak, &mask, &fill);
}

/* What all masks together keep, where they compare positions; biases may be added to it. */
typedef struct Kept {
  bool is_known; /* of each mask it is known */
  bool is_all;   /* and there is nothing but masks */
  bool is_exact; /* nothing but the band is kept */
  Band band;
} Kept;

static Kept kept_by_bands(Scores *scores) {
  Kept kept = {true, true, true, {INT64_MIN, INT64_MAX, dim_of(0)}};
  for (size_t i = 0; i < scores->term_count; i++) {
    Band band;
    bool is_band = band_of_term(scores, &scores->terms[i], &band, &kept.is_exact);
    if (is_band && band_intersect(&kept.band, band)) continue;
    if (may_mask(&scores->terms[i])) kept.is_known = kept.is_all = false;
    else kept.is_all = false;
  }
  return kept;
}

/* Its last axes are rows and columns, whatever it has before them. */
static bool ends_in_scores(const Scores *scores, const Condition *condition) {
  Condition end = *condition;
  bool turned;
  if (end.axes.rank < 2) return false;
  for (uint32_t i = 0; i + 2 < end.axes.rank; i++) end.axes.axis[i].count = 0;
  return is_of_scores(scores, &end, &turned) && !turned;
}

static MaskUse use_of_only_term(const Scores *scores) {
  const Term *term = &scores->terms[0];
  const Tensor *constant = constant_of(term->condition.value);
  if (scores->term_count != 1 || !constant || !ends_in_scores(scores, &term->condition)) return MASK_ADDED;
  if (term->is_mask ? !is_masking(term) : term->factor != 1) return MASK_ADDED;
  return use_of_constant(constant, term->inverted, scores);
}

/* ---- what can be added ---- */

/* Can numbers be added that do the same, whatever the masks hold? Of several numbers that take the place of scores the
 * lowest would win in a row that keeps nothing; and what is added to a low number is seen there, if that is not so low
 * that it vanishes. */
static bool can_add(const Scores *scores) {
  const Term *first = NULL;
  for (size_t i = 0; i < scores->term_count; i++) {
    const Term *term = &scores->terms[i];
    if (!term->is_mask) continue;
    if (!is_masking(term)) return false;
    if (scores->is_masked_row_zero || scores->has_kept_rows) continue;
    if (i > 0 && !first && is_weak(term)) return false;
    if (first && first->fill != term->fill) return false;
    first = term;
  }
  return true;
}

AtomSet term_atoms(const Term *term) {
  AtomSet set = 0;
  for (size_t i = 0; i < term->part_count; i++) set |= axes_set(&term->parts[i].axes);
  return term->part_count ? set : axes_set(&term->condition.axes);
}

AtomSet masked_atoms(const Scores *scores) {
  AtomSet set = 0;
  for (size_t i = 0; i < scores->term_count; i++) set |= term_atoms(&scores->terms[i]);
  return set;
}

static bool place_term(Scores *scores, Term *term, const Axes *layout) {
  Atoms *atoms = &scores->atoms;
  Condition *whole = &term->condition;
  bool fits = plan_arrangement(atoms, whole->value, &whole->axes, layout, &whole->placed);
  bool is_bare = (axes_set(&whole->axes) & ~term_atoms(term)) == 0; /* not spread over what no part of it varies with */
  if (!term->is_mask || (fits && is_bare && arrangement_cost(&whole->placed) < 2)) {
    term->part_count = 0;
    return fits;
  }
  for (size_t i = 0; i < term->part_count; i++) {
    Condition *part = &term->parts[i];
    if (plan_arrangement(atoms, part->value, &part->axes, layout, &part->placed)) continue;
    term->part_count = 0;
    return fits;
  }
  return term->part_count > 0 || fits;
}

/* Has some mask the rows, and some the columns? */
bool has_rows(const Scores *scores) {
  return scores->row.count == 0 || (masked_atoms(scores) & axis_set(&scores->row));
}
bool has_columns(const Scores *scores) { return (masked_atoms(scores) & axis_set(&scores->key)) != 0; }

static bool are_all_masks(const Scores *scores) {
  for (size_t i = 0; i < scores->term_count; i++) {
    if (!scores->terms[i].is_mask || !is_masking(&scores->terms[i])) return false;
  }
  return true;
}

/* Of leading axes that no mask has, nothing is left. */
static Axes without_leading(const Scores *scores, Axes layout) {
  Axes made = {.rank = layout.rank};
  AtomSet set = masked_atoms(scores);
  uint32_t gone = 0;
  /* Zeros that take the place of scores bring in the axis of a single row, or of rows that no mask has. */
  uint32_t least = !has_rows(scores) || (scores->row.count == 0 && are_all_masks(scores)) ? 1 : 2;
  while (gone + least < layout.rank && (axis_set(&layout.axis[gone]) & set) == 0) gone++;
  made.rank = layout.rank - gone;
  for (uint32_t i = 0; i < made.rank; i++) made.axis[i] = layout.axis[gone + i];
  return made;
}

static bool read_term(Scores *scores, Term *term) {
  term->condition = (Condition){.value = term->value, .axes = term->axes, .inverted = term->inverted};
  bool is_read = !term->is_mask || collect(scores, term->condition, term, MOST_CONDITIONS);
  if (!is_read) term->parts[0] = term->condition, term->part_count = 1;
  undo_moves(&scores->atoms, &term->condition);
  bool is_refined = axes_refine(&scores->atoms, &term->condition.axes);
  for (size_t i = 0; i < term->part_count; i++)
    is_refined = is_refined && axes_refine(&scores->atoms, &term->parts[i].axes);
  return is_refined;
}

bool read_masks(Scores *scores) {
  if (scores->zeroed.value && !read_term(scores, &scores->zeroed)) return false;
  scores->triangle.condition = (Condition){.value = scores->triangle.value, .axes = scores->triangle.axes};
  for (size_t i = 0; i < scores->term_count; i++) {
    Term *term = &scores->terms[i];
    DType dtype = term->value->type.dtype;
    if (term->is_mask ? dtype != DTYPE_BOOL : !dtype_fits_float32(dtype)) return false;
    if (!read_term(scores, term)) return false;
  }
  return true;
}

/* The mask that a constant of zeros and one low number is, with that number; NULL: it is none. */
static Value *mask_of_constant(Match *match, const Term *term, double *fill) {
  const Tensor *bias = constant_of(term->condition.value);
  if (term->is_mask || !bias || !dtype_is_float(bias->dtype)) return NULL;
  Tensor *mask = match_tensor(match, DTYPE_BOOL, term->condition.value->type);
  size_t width = dtype_bytes(bias->dtype, 1);
  if (!mask || mask->size != bias->size / width) return NULL;
  *fill = 0;
  for (size_t i = 0; i < mask->size; i++) {
    double number = number_decode(bias->dtype, (const char *)bias->data + i * width) * term->factor;
    if (number != 0 && *fill == 0) *fill = number;
    if (number != 0 && number != *fill) return NULL;
    ((char *)(uintptr_t)mask->data)[i] = number == 0;
  }
  return *fill <= weak ? match_constant(match, mask) : NULL;
}

/* Are there several terms, and all of them masks that are added to halves? */
static bool are_sums_of_halves(Scores *scores) {
  for (size_t i = 0; i < scores->term_count; i++) {
    Condition mask;
    double fill;
    const Term *term = &scores->terms[i];
    if (!dtype_is_half(term->dtype) || scores->zeroed.value || scores->triangle.value) return false;
    if (!masks_by_adding(term, weak, &mask, &fill) && !mask_of_constant(scores->match, term, &fill)) return false;
    if (!(fill > lowest_kept)) return false;
  }
  return scores->term_count > 1;
}

/* Nothing is left of a score of halves that -1e4 is added to, but a second -1e4 is seen: numbers that are larger by the
 * same factor do that in float32. */
static void add_larger_numbers(Scores *scores) {
  const double larger = 1e26;
  for (size_t i = 0; i < scores->term_count; i++) scores->terms[i].factor *= larger;
}

/* With weights that are put out once more, a bias that masks is a mask: how low it goes is no matter. And so it is
 * where it is added to halves, of which nothing is left then. */
static void read_biases_as_masks(Scores *scores) {
  bool is_put_out_again = scores->zeroed.value || scores->triangle.value;
  for (size_t i = 0; i < scores->term_count; i++) {
    Condition mask;
    double fill;
    Term *term = &scores->terms[i];
    if (!is_put_out_again && !dtype_is_half(term->dtype)) continue;
    if (!masks_by_adding(term, weak, &mask, &fill)) {
      mask = (Condition){.value = mask_of_constant(scores->match, term, &fill), .axes = term->condition.axes};
      if (!is_put_out_again || !mask.value) continue;
    }
    *term = (Term){.value = mask.value,
                   .axes = mask.axes,
                   .is_mask = true,
                   .inverted = mask.inverted,
                   .fill = fill,
                   .dtype = term->dtype};
    read_term(scores, term);
  }
}

/* Triangles of weights that are left over by a band: all that it keeps. */
static bool is_within_triangle(const Scores *scores, const Kept *kept) {
  const Condition *triangle = &scores->triangle.condition;
  if (!scores->triangle.value) return true;
  return kept->is_known && kept->is_exact && ends_in_scores(scores, triangle) && dim_is(kept->band.beyond, 0) &&
         kept->band.greatest <= scores->diagonal;
}

/* Atoms may have been split since the masks were read. */
static bool refine_masks(Scores *scores) {
  const Atoms *atoms = &scores->atoms;
  Axes ends = {2, {scores->row, scores->key}};
  bool is_refined = axes_refine(atoms, &ends);
  scores->row = ends.axis[0], scores->key = ends.axis[1];
  for (size_t i = 0; i < scores->term_count; i++) {
    Term *term = &scores->terms[i];
    is_refined = is_refined && axes_refine(atoms, &term->condition.axes);
    for (size_t k = 0; k < term->part_count; k++) is_refined = is_refined && axes_refine(atoms, &term->parts[k].axes);
  }
  return is_refined;
}

/* May a row be of nothing but low numbers, beside which the logarithm of its sum is lost? */
static bool loses_logarithm(const Scores *scores) {
  if (!scores->is_by_logarithm || scores->has_kept_rows || scores->is_masked_row_zero) return false;
  for (size_t i = 0; i < scores->term_count; i++) {
    const Term *term = &scores->terms[i];
    if (term->is_mask ? isfinite(term->fill) : may_mask(term)) return true;
  }
  return false;
}

/* What stands in place of scores, where it is no number that they would vanish in; else 0. */
static double least_of_masks(const Scores *scores) {
  for (size_t i = 0; i < scores->term_count; i++) {
    if (scores->terms[i].is_mask && is_weak(&scores->terms[i])) return scores->terms[i].fill;
  }
  return 0;
}

static bool can_be_boolean(const Scores *scores) {
  return are_all_masks(scores) && has_rows(scores) && has_columns(scores) && scores->wanted.rank >= 2;
}

/* Is -inf in place of all scores whose weights this puts out? */
static bool is_put_out_by_infinity(const Scores *scores, const Condition *condition) {
  for (size_t i = 0; i < scores->term_count; i++) {
    const Term *term = &scores->terms[i];
    if (term->is_mask && isinf(term->fill) &&
        (is_among(scores, condition, term) || is_covered_by_some(scores, condition, term)))
      return true;
  }
  return false;
}

/* Weights of a row of -inf are NaN, and 0 times them too; so a product puts out nothing more where -inf masks, to which
 * anything may be added. */
static Zeroing zeroing_by_product(const Scores *scores, Zeroing zeroing) {
  size_t infinite = 0, masks = 0;
  bool is_always_infinite = true;
  for (size_t i = 0; i < scores->term_count; i++) {
    const Term *term = &scores->terms[i];
    masks += term->is_mask;
    infinite += term->is_mask && isinf(term->fill);
  }
  for (size_t i = 0; i < scores->zeroed.part_count; i++)
    is_always_infinite = is_always_infinite && is_put_out_by_infinity(scores, &scores->zeroed.parts[i]);
  if (zeroing == ZEROES_OTHERS || infinite == 0) return zeroing;
  return infinite == masks && is_always_infinite ? ZEROES_NOTHING : ZEROES_SOME_MASKED;
}

static MaskUse choose_use(Scores *scores) {
  if (are_sums_of_halves(scores)) add_larger_numbers(scores);
  else read_biases_as_masks(scores);
  MaskUse use = use_of_only_term(scores);
  Kept kept = kept_by_bands(scores);
  Zeroing zeroing = read_zeroing(scores);
  if (scores->is_zeroed_by_product) zeroing = zeroing_by_product(scores, zeroing);
  bool has_kept_rows =
      use != MASK_ADDED || (kept.is_known && band_keeps_rows(kept.band, scores->rows, scores->columns));
  if (use == MASK_CAUSAL) kept = (Kept){true, true, true, {INT64_MIN, 0, dim_of(0)}};
  if (zeroing == ZEROES_OTHERS || !is_within_triangle(scores, &kept)) return MASK_UNFIT;
  if (zeroing == ZEROES_SOME_MASKED && !has_kept_rows) return MASK_UNFIT;
  if (use != MASK_ADDED) return use;
  bool is_causal = kept.is_exact && band_is_causal(kept.band, scores->rows, scores->columns);
  if (has_kept_rows && kept.is_all) return is_causal ? MASK_CAUSAL : MASK_KEPT;
  bool is_quirk = target_has(scores->match->rewriter->model->target, QUIRK_ATTENTION_OF_MASKED_ROW_IS_ZERO);
  scores->has_kept_rows = has_kept_rows;
  scores->is_masked_row_zero = zeroing == ZEROES_MASKED && !has_kept_rows;
  if (scores->is_masked_row_zero && !is_quirk) return MASK_UNFIT;
  if (scores->is_masked_row_zero && can_be_boolean(scores)) return MASK_KEPT;
  scores->loses_logarithm = loses_logarithm(scores);
  if (scores->loses_logarithm) scores->least = least_of_masks(scores);
  return can_add(scores) ? MASK_ADDED : MASK_UNFIT;
}

MaskUse plan_masks(Scores *scores, const Axes *layout) {
  if (scores->term_count == 0) return scores->zeroed.value || scores->triangle.value ? MASK_UNFIT : MASK_NONE;
  Axes refined = *layout;
  if (!refine_masks(scores) || !axes_refine(&scores->atoms, &refined)) return MASK_UNFIT;
  scores->wanted = without_leading(scores, refined);
  MaskUse use = choose_use(scores);
  if (use == MASK_UNFIT || use == MASK_CAUSAL) return use;
  for (size_t i = 0; i < scores->term_count; i++) {
    if (!place_term(scores, &scores->terms[i], &scores->wanted)) return MASK_UNFIT;
  }
  return use;
}

/* A mask that turns out to be causal once it is simplified. */
bool fuse_causal_mask(Match *match) {
  Node *old = match->root;
  Value *mask = node_input(old, 3);
  Type query = node_input(old, 0)->type, keys = node_input(old, 1)->type;
  if (!mask || node_int_or(old, "is_causal", 0) || query.rank < 3 || query.rank != keys.rank) return false;
  Scores scores = {.match = match, .atoms = {.context = match->rewriter->context}, .term_count = 1};
  scores.rows = query.dims[query.rank - 2], scores.columns = keys.dims[keys.rank - 2];
  scores.row = axis_begin(&scores.atoms, scores.rows), scores.key = axis_begin(&scores.atoms, scores.columns);
  Axes axes = {.rank = 4, .axis = {{0}, {0}, scores.row, scores.key}};
  Term *term = &scores.terms[0];
  *term = (Term){.value = mask, .is_mask = mask->type.dtype == DTYPE_BOOL, .fill = -INFINITY, .factor = 1};
  for (uint32_t i = 0; i + 2 < mask->type.rank; i++) {
    if (!dim_is(mask->type.dims[i], 1)) return false;
  }
  if (!broadcast_axes(&axes, mask->type, &term->axes)) return false;
  match_take(match, mask, OP_Where); /* unless others need it */
  if (!read_masks(&scores) || plan_masks(&scores, &axes) != MASK_CAUSAL) return false;
  Value *inputs[] = {node_input(old, 0), node_input(old, 1), node_input(old, 2)};
  node_set_int(match_emit_like(match, inputs, 3), "is_causal", 1);
  return true;
}
