/* What a normalisation is made of, read from its last operator on.
 *
 * The variance may be taken in one pass or in two, by a mean or by the length of a vector; the root by Sqrt or Pow; the
 * division by a quotient, a reciprocal or a power. Axes of size 1 and casts between a half and float32 may stand
 * anywhere: what is computed in float32 is no less precise. A half that nothing else was is another matter: where
 * something is rounded on the way, x itself must be a half. */
#include <math.h>
#include <string.h>

#include "base/bytes.h"
#include "passes/fuse/normalization.h"

typedef struct Reading {
  Match *match;
  Value *x;
  double epsilon;
  double factor; /* of the mean square */
  bool axes[MAX_RANK];
  bool has_axes;
  bool is_rounded; /* to a half, on the way */
} Reading;

bool prefers_native(const Match *match) {
  static const char passes[] = "prefer_native_";
  return strncmp(match->rewriter->pass, passes, sizeof passes - 1) == 0;
}

/* ---- steps ---- */

static bool take(Reading *reading, Node *node) {
  Match *match = reading->match;
  if (match_has(match, node)) return true;
  if (node->graph != match->root->graph || node->output_count != 1 || match->node_count == MATCH_NODES) return false;
  match->nodes[match->node_count++] = node;
  return true;
}

bool differs_by_ones(Type a, Type b) {
  uint32_t i = 0, k = 0;
  for (;; i++, k++) {
    while (i < a.rank && dim_is(a.dims[i], 1)) i++;
    while (k < b.rank && dim_is(b.dims[k], 1)) k++;
    if (i == a.rank || k == b.rank) return i == a.rank && k == b.rank;
    if (!dim_equal(a.dims[i], b.dims[k])) return false;
  }
}

/* Before casts of halves, and before axes of size 1 came or went. */
static Value *plain(Reading *reading, Value *value) {
  for (Node *node; (node = value->producer) && node_input(node, 0); value = node_input(node, 0)) {
    bool is_cast = is_cast_of_half(node);
    bool is_renamed = node_has(node, RENAMES) && differs_by_ones(node_input(node, 0)->type, value->type);
    if ((!is_cast && !is_renamed) || !take(reading, node)) break;
    if (is_cast && dtype_is_half(value->type.dtype)) reading->is_rounded = true;
  }
  return value;
}

static Node *step(Reading *reading, Value *value, Op op) {
  Node *node = plain(reading, value)->producer;
  return node && node_is(node, op) && take(reading, node) ? node : NULL;
}

/* The other input of a commutative operator where one is this number; else NULL. */
static Value *beside_number(const Node *node, double wanted) {
  double number;
  for (size_t i = 0; node && i < 2; i++) {
    const Value *value = node_input(node, i);
    if (uniform_number(value, &number) && near_number(value->type.dtype, number, wanted))
      return node_input(node, 1 - i);
  }
  return NULL;
}

/* Is the value x, whether or not it was widened? */
static bool is_x(Reading *reading, Value *value) {
  while (value != reading->x && value->producer && is_cast_of_half(value->producer) &&
         !dtype_is_half(value->type.dtype)) {
    take(reading, value->producer);
    value = node_input(value->producer, 0);
  }
  return value == reading->x;
}

/* ---- means ---- */

typedef bool Attempt(Reading *reading, Value *value);

/* What an attempt took is given back where it fails. */
static bool tries(Reading *reading, Attempt *attempt, Value *value) {
  size_t count = reading->match->node_count;
  Reading saved = *reading;
  if (attempt(reading, value)) return true;
  *reading = saved;
  reading->match->node_count = count;
  return false;
}

/* All reductions are over the same axes. */
static bool reduces_alike(Reading *reading, const Node *reduce) {
  bool axes[MAX_RANK] = {false};
  if (!reduced_axes(reduce, axes)) return false;
  if (!reading->has_axes) copy_bytes(reading->axes, axes, sizeof axes);
  reading->has_axes = true;
  return same_bytes(reading->axes, axes, reading->x->type.rank * sizeof *axes);
}

/* How many elements each mean is taken of; 0 when that is not known. */
static double count_of(const Reading *reading) {
  Type type = reading->x->type;
  double count = 1;
  for (uint32_t i = 0; i < type.rank; i++) {
    if (reading->axes[i]) count *= dim_is_constant(type.dims[i]) ? (double)type.dims[i].constant : 0;
  }
  return count;
}

/* What is divided by a number, or multiplied with 1 by it; NULL when there is no number. */
static Value *beside_divisor(Reading *reading, Value *value, double *divisor) {
  Node *quotient = step(reading, value, OP_Div), *product = quotient ? NULL : step(reading, value, OP_Mul);
  if (quotient) return uniform_number(node_input(quotient, 1), divisor) ? node_input(quotient, 0) : NULL;
  for (size_t i = 0; product && i < 2; i++) {
    if (!uniform_number(node_input(product, i), divisor)) continue;
    *divisor = 1 / *divisor;
    return node_input(product, 1 - i);
  }
  return NULL;
}

static bool is_mean_at_once(Reading *reading, Value *value) {
  Node *mean = step(reading, value, OP_ReduceMean);
  return mean && is_x(reading, node_input(mean, 0)) && reduces_alike(reading, mean);
}

/* Sums of halves that are rounded before they are divided. */
static bool is_mean_of_sum(Reading *reading, Value *value) {
  double divisor;
  Value *divided = beside_divisor(reading, value, &divisor);
  Node *sum = divided ? step(reading, divided, OP_ReduceSum) : NULL;
  return sum && is_x(reading, node_input(sum, 0)) && reduces_alike(reading, sum) &&
         near_number(divided->type.dtype, divisor, count_of(reading));
}

static bool is_mean(Reading *reading, Value *value) {
  return tries(reading, is_mean_at_once, value) || tries(reading, is_mean_of_sum, value);
}

/* x less its mean */
static bool is_difference(Reading *reading, Value *value) {
  Node *difference = step(reading, value, OP_Sub);
  return difference && type_same_shape(difference->outputs[0]->type, reading->x->type) &&
         is_x(reading, node_input(difference, 0)) && is_mean(reading, node_input(difference, 1)) &&
         is_reduced_shape(node_input(difference, 1)->type, reading->x->type, reading->axes);
}

static bool is_square_of(Reading *reading, Value *value, bool (*is_what)(Reading *, Value *)) {
  Node *square = step(reading, value, OP_Mul);
  if (!square || node_input(square, 0) != node_input(square, 1)) return false;
  Node *size = step(reading, node_input(square, 0), OP_Abs);
  return is_what(reading, node_input(size ? size : square, 0));
}

/* A sum of squares that is divided by this number is a mean of them times a factor. */
static bool is_divided_by(Reading *reading, double number) {
  reading->factor = count_of(reading) / number;
  return number > 0 && reading->factor > 0 && isfinite(reading->factor);
}

static bool is_sum(Reading *reading, Value *value, bool (*is_what)(Reading *, Value *)) {
  Node *sum = step(reading, value, OP_ReduceSum);
  return sum && is_square_of(reading, node_input(sum, 0), is_what) && reduces_alike(reading, sum);
}

/* The sum of the squares, or the square of a vector's length. */
static bool is_sum_of_squares(Reading *reading, Value *value, bool (*is_what)(Reading *, Value *)) {
  Node *square = step(reading, value, OP_Mul);
  if (!square) return is_sum(reading, value, is_what);
  if (node_input(square, 0) != node_input(square, 1)) return false;
  Node *length = step(reading, node_input(square, 0), OP_ReduceL2);
  if (length) return is_what(reading, node_input(length, 0)) && reduces_alike(reading, length);
  Node *root = step(reading, node_input(square, 0), OP_Sqrt);
  return root && is_sum(reading, node_input(root, 0), is_what);
}

/* The sum of the squares by a number that need not be theirs: one less makes the variance of a sample. */
static bool is_share_of_squares(Reading *reading, Value *value, bool (*is_what)(Reading *, Value *)) {
  double divisor;
  Value *divided = beside_divisor(reading, value, &divisor);
  return divided && is_sum_of_squares(reading, divided, is_what) && is_divided_by(reading, divisor);
}

static bool is_mean_square_of(Reading *reading, Value *value, bool (*is_what)(Reading *, Value *)) {
  Node *mean = step(reading, value, OP_ReduceMean);
  if (!mean) return is_share_of_squares(reading, value, is_what);
  return is_square_of(reading, node_input(mean, 0), is_what) && reduces_alike(reading, mean);
}

/* The mean of the squares less the square of the mean. */
static bool is_variance_at_once(Reading *reading, Value *value) {
  Node *difference = step(reading, value, OP_Sub);
  if (!difference || !is_mean_square_of(reading, node_input(difference, 0), is_x)) return false;
  Node *square = step(reading, node_input(difference, 1), OP_Mul);
  if (!square || node_input(square, 0) != node_input(square, 1)) return false;
  return is_mean(reading, node_input(square, 0));
}

/* ---- roots and quotients ---- */

static bool is_variance_in_two_steps(Reading *reading, Value *value) {
  return is_mean_square_of(reading, value, is_difference);
}

static bool is_mean_square(Reading *reading, Value *value) { return is_mean_square_of(reading, value, is_x); }

/* At least 0, where rounding might have made it less. */
static Value *without_floor(Reading *reading, Value *value) {
  Node *relu = step(reading, value, OP_Relu), *largest = relu ? NULL : step(reading, value, OP_Max);
  Value *other = relu ? node_input(relu, 0) : beside_number(largest, 0);
  return other ? other : value;
}

/* The variance of a deviation is its square. */
static Value *without_root(Reading *reading, Value *value) {
  Node *square = step(reading, value, OP_Mul);
  if (!square || node_input(square, 0) != node_input(square, 1)) return value;
  Node *root = step(reading, node_input(square, 0), OP_Sqrt);
  return root ? node_input(root, 0) : value;
}

/* The variance, or without a mean the mean square, and epsilon, or none. */
static bool is_spread(Reading *reading, Value *value, bool is_centred) {
  Node *sum = step(reading, value, OP_Add);
  Value *spread = value;
  reading->epsilon = 0;
  if (sum) {
    bool is_second = uniform_number(node_input(sum, 1), &reading->epsilon);
    if (!is_second && !uniform_number(node_input(sum, 0), &reading->epsilon)) return false;
    spread = node_input(sum, !is_second);
  }
  spread = without_root(reading, spread);
  if (!is_centred) return tries(reading, is_mean_square, spread);
  spread = without_floor(reading, spread);
  return tries(reading, is_variance_in_two_steps, spread) || tries(reading, is_variance_at_once, spread);
}

static bool is_power(const Node *pow, double exponent) {
  double number;
  return pow && uniform_number(node_input(pow, 1), &number) && number == exponent;
}

static bool is_deviation(Reading *reading, Value *value, bool is_centred) {
  Node *root = step(reading, value, OP_Sqrt);
  Node *pow = root ? NULL : step(reading, value, OP_Pow);
  if (!root && !is_power(pow, 0.5)) return false;
  return is_spread(reading, node_input(root ? root : pow, 0), is_centred);
}

/* The root of 1 by the variance. */
static bool is_root_of_inverse(Reading *reading, Value *value, bool is_centred) {
  Node *node = plain(reading, value)->producer;
  double number;
  if (!node || !take(reading, node)) return false;
  if (node_is(node, OP_Reciprocal)) return is_spread(reading, node_input(node, 0), is_centred);
  return node_is(node, OP_Div) && uniform_number(node_input(node, 0), &number) && number == 1 &&
         is_spread(reading, node_input(node, 1), is_centred);
}

/* 1 by the deviation */
static bool is_inverse(Reading *reading, Value *value, bool is_centred) {
  Node *node = plain(reading, value)->producer;
  double number;
  if (!node || !take(reading, node)) return false;
  if (node_is(node, OP_Reciprocal)) return is_deviation(reading, node_input(node, 0), is_centred);
  if (node_is(node, OP_Pow)) return is_power(node, -0.5) && is_spread(reading, node_input(node, 0), is_centred);
  if (node_is(node, OP_Sqrt)) return is_root_of_inverse(reading, node_input(node, 0), is_centred);
  return node_is(node, OP_Div) && uniform_number(node_input(node, 0), &number) && number == 1 &&
         is_deviation(reading, node_input(node, 1), is_centred);
}

/* ---- the whole ---- */

/* The value that is divided: x or x less its mean, times a scale or not. */
static bool read_divided(Reading *reading, Value *value, bool is_centred) {
  Node *node = is_centred ? step(reading, value, OP_Sub) : NULL;
  Value *x = value;
  if (is_centred && !node) return false;
  if (node) x = node_input(node, 0);
  while (x->producer && is_cast_of_half(x->producer) && !dtype_is_half(x->type.dtype)) x = node_input(x->producer, 0);
  reading->x = x;
  return is_centred ? is_difference(reading, value) : is_x(reading, value);
}

typedef struct Factors {
  Value *divided, *by; /* by the deviation, or times its inverse */
  Value *scale;        /* or NULL */
  bool is_quotient;
} Factors;

static bool read_factors(Reading *reading, Factors factors, bool is_centred) {
  Match *match = reading->match;
  *reading = (Reading){.match = match, .factor = 1};
  match->node_count = 1;
  Value *inner = factors.scale; /* the product that the scale is a factor of */
  if (inner) take(reading, inner->producer);
  if (!read_divided(reading, factors.divided, is_centred)) return false;
  if (reading->x->type.rank > MAX_RANK || !type_same_shape(reading->x->type, match_type(match))) return false;
  if (!(factors.is_quotient ? is_deviation : is_inverse)(reading, factors.by, is_centred)) return false;
  if (!is_reduced_shape(factors.by->type, reading->x->type, reading->axes)) return false;
  return (!reading->is_rounded || dtype_is_half(reading->x->type.dtype)) && match_closes_over(match, reading->x);
}

static bool read_centred_or_not(Reading *reading, Factors factors, Normalized *normalized) {
  for (int is_centred = 1; is_centred >= 0; is_centred--) {
    if (!read_factors(reading, factors, is_centred)) continue;
    *normalized = (Normalized){.x = reading->x, .is_centred = is_centred};
    normalized->share = 1 / sqrt(reading->factor);
    normalized->epsilon = reading->epsilon / reading->factor;
    copy_bytes(normalized->axes, reading->axes, sizeof reading->axes);
    return true;
  }
  return false;
}

/* The same where the divided, or in a product either factor, is a product with a scale itself. */
static bool read_scaled(Reading *reading, Factors factors, bool of_divided, Normalized *normalized) {
  Value *product = of_divided ? factors.divided : factors.by;
  const Node *node = product->producer;
  if (!node || !node_is(node, OP_Mul) || node->graph != reading->match->root->graph) return false;
  for (size_t i = 0; i < 2; i++) {
    Factors inner = factors;
    inner.scale = product;
    *(of_divided ? &inner.divided : &inner.by) = node_input(node, i);
    if (!read_centred_or_not(reading, inner, normalized)) continue;
    normalized->scale = node_input(node, 1 - i);
    return true;
  }
  return false;
}

static bool may_divide(const Value *value, int depth) {
  const Node *node = value->producer;
  if (!node) return false;
  if (node_is(node, OP_Reciprocal) || node_is(node, OP_Pow) || node_is(node, OP_Div) || node_is(node, OP_Sqrt))
    return true;
  bool is_passed = is_cast_of_half(node) || node_has(node, RENAMES);
  if (depth > 0 && node_is(node, OP_Mul) && may_divide(node_input(node, 1), depth - 1)) return true;
  return depth > 0 && (is_passed || node_is(node, OP_Mul)) && may_divide(node_input(node, 0), depth - 1);
}

/* x without axes of size 1 that were put in for it: they come after the whole as well, where others may take them out.
 */
static void leave_ones_to_the_end(Match *match, Normalized *n) {
  Node *before = n->x->producer;
  if (n->scale || !before || !node_has(before, RENAMES) || before->graph != match->root->graph) return;
  Type from = node_input(before, 0)->type, type = n->x->type;
  bool axes[MAX_RANK] = {false};
  if (from.rank >= type.rank || from.rank == 0 || !differs_by_ones(from, type)) return;
  for (const Use *use = n->x->uses; use; use = use->next) {
    if (!match_has(match, use->node)) return;
  }
  for (uint32_t i = 0, k = 0; i < from.rank; i++, k++) {
    while (k < type.rank && !dim_equal(from.dims[i], type.dims[k])) k++;
    if (k == type.rank) return;
    axes[i] = n->axes[k];
  }
  copy_bytes(n->axes, axes, sizeof axes);
  n->x = node_input(before, 0);
  n->renamed = before;
}

static bool read_root(Match *match, Normalized *normalized) {
  Reading reading = {.match = match};
  bool is_quotient = node_is(match->root, OP_Div);
  for (size_t i = 0; i < (is_quotient ? 1 : 2); i++) {
    Factors factors = {.divided = node_input(match->root, i), .by = node_input(match->root, 1 - i)};
    factors.is_quotient = is_quotient;
    if (!may_divide(factors.by, 3)) continue;
    if (read_centred_or_not(&reading, factors, normalized)) return true;
    if (read_scaled(&reading, factors, true, normalized)) return true;
    if (!is_quotient && read_scaled(&reading, factors, false, normalized)) return true;
  }
  return false;
}

bool read_normalized(Match *match, Normalized *normalized) {
  if (!read_root(match, normalized)) return false;
  leave_ones_to_the_end(match, normalized);
  return true;
}
