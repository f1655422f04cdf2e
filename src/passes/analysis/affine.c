/* Reading affine sums out of a loop's body and out of what is computed for all its steps before it. */
#include "passes/analysis/affine.h"

#include "passes/pattern.h"
#include "types/moved.h"
#include "types/numbers.h"

enum { DEEPEST = 24 /* operators on the way from a gate to a product */ };

/* What is being added up. */
typedef struct Reading {
  const ViewFrame *frame;
  Affine *sum;
} Reading;

static bool collect(const Reading *reading, View view, double factor, int depth);

static bool add_term(Affine *sum, AffineTerm term) {
  if (sum->count == AFFINE_TERMS) return false;
  sum->terms[sum->count++] = term;
  return true;
}

/* ---- constants ---- */

static bool is_readable(const Tensor *tensor) {
  int64_t count = 1;
  for (uint32_t i = 0; i < tensor->rank; i++) count *= tensor->dims[i];
  return dtype_fits_float32(tensor->dtype) && tensor->size == dtype_bytes(tensor->dtype, (size_t)count);
}

/* Where the elements are that are seen of a constant, which vary with the features alone, and along `contracted` with
 * those of the source. */
static bool place_constant(const View *view, uint32_t contracted, AffineTerm *term) {
  const Tensor *tensor = constant_of(view->value);
  int64_t inner = 1;
  if (!tensor || tensor->rank != view->value->type.rank || !is_readable(tensor)) return false;
  term->matrix = tensor;
  for (uint32_t i = tensor->rank; i-- > 0; inner *= tensor->dims[i]) {
    const ViewAxis *axis = &view->axes[i];
    if (i == contracted) {
      term->by_input = inner;
      continue;
    }
    if (axis->along > ALONG_FEATURES) return false;
    if (axis->start + (axis->along ? (view->length - 1) * axis->stride : 0) >= tensor->dims[i]) return false;
    term->first += axis->start * inner;
    if (axis->along) term->by_feature = axis->stride * inner;
  }
  return true;
}

enum { NO_AXIS = MOST_VIEWED };

static bool collect_bias(Affine *sum, const View *view, double factor) {
  AffineTerm term = {.kind = AFFINE_BIAS, .factor = factor};
  return place_constant(view, NO_AXIS, &term) && add_term(sum, term);
}

/* ---- products ---- */

/* All that a view of the whole varies along, as flags. */
static uint32_t varies_along(const View *view) {
  uint32_t flags = 1;
  for (uint32_t i = 0; i < view->value->type.rank; i++) flags |= 1u << view->axes[i].along;
  return flags;
}

/* As far back as the source is seen as a whole, if it is. What is broadcast is seen afterwards: before it varies less.
 */
static bool see_whole(const ViewFrame *frame, View view, View *whole) {
  bool is_whole = false;
  do {
    if (!view_is_whole(&view)) continue;
    bool leaves = is_whole && whole->value->graph == frame->body && view.value->graph != frame->body;
    if (!is_whole || leaves || varies_along(&view) == varies_along(whole)) *whole = view;
    is_whole = true;
  } while (view_back(frame, &view));
  return is_whole;
}

/* Features that are joined before the product, as inputs and state are, each have rows of the matrix. */
static bool collect_source(const Reading *reading, View view, AffineTerm term) {
  if (!see_whole(reading->frame, view, &term.source)) return false;
  const Node *join = term.source.value->producer;
  uint32_t axis = view_axis(&term.source, ALONG_FEATURES);
  bool is_joined = join && join->graph == reading->frame->body && node_is(join, OP_Concat);
  if (!is_joined || axis == term.source.value->type.rank) return add_term(reading->sum, term);
  int64_t given = node_int_or(join, "axis", 0), rank = term.source.value->type.rank;
  if ((given < 0 ? given + rank : given) != axis) return add_term(reading->sum, term);
  View part = term.source;
  for (uint32_t i = 0; i < join->input_count; i++) {
    part.value = node_input(join, i);
    if (!is_viewable(part.value) || part.value->type.rank != rank || !dim_is_constant(part.value->type.dims[axis]))
      return false;
    part.length = part.value->type.dims[axis].constant;
    part.axes[axis] = (ViewAxis){0};
    if (part.length > 1) part.axes[axis] = (ViewAxis){.along = ALONG_FEATURES, .stride = 1};
    if (!collect_source(reading, part, term)) return false;
    term.first += part.length * term.by_input;
  }
  return true;
}

/* What is seen of one side of a product, and which of its axes is summed over. */
typedef struct Side {
  View view;
  uint32_t contracted;
} Side;

/* `own` is the result's axis that the side gives its last but one or last axis, `leading` the axes before. */
static bool see_side(const View *result, Value *value, uint32_t leading, uint32_t own, bool is_last, Side *side) {
  if (!is_viewable(value) || value->type.rank == 0) return false;
  Type type = value->type, to = result->value->type;
  side->view = (View){.value = value, .length = result->length};
  side->contracted = 0;
  if (type.rank == 1) return true;
  uint32_t at = type.rank - (is_last ? 1 : 2), own_leading = type.rank - 2;
  side->contracted = type.rank - (is_last ? 2 : 1);
  if (own_leading > leading || !dim_equal(type.dims[at], to.dims[own])) return false;
  side->view.axes[at] = result->axes[own];
  for (uint32_t i = 0; i < own_leading; i++) {
    uint32_t axis = leading - own_leading + i;
    if (dim_is(type.dims[i], 1)) continue;
    if (!dim_equal(type.dims[i], to.dims[axis])) return false;
    side->view.axes[i] = result->axes[axis];
  }
  return true;
}

/* The matrix varies with the features and the source does not. */
static bool collect_sides(const Reading *reading, const Side *matrix, Side source, double factor) {
  AffineTerm term = {.kind = AFFINE_PRODUCT, .factor = factor};
  Dim inputs = source.view.value->type.dims[source.contracted];
  if (!dim_is_constant(inputs) || !place_constant(&matrix->view, matrix->contracted, &term)) return false;
  if (term.matrix->dims[matrix->contracted] != inputs.constant) return false;
  if (view_axis(&source.view, ALONG_FEATURES) < source.view.value->type.rank) return false;
  source.view.length = inputs.constant;
  if (inputs.constant > 1) source.view.axes[source.contracted] = (ViewAxis){.along = ALONG_FEATURES, .stride = 1};
  return collect_source(reading, source.view, term);
}

static bool collect_product(const Reading *reading, const View *view, const Node *node, bool left_turned,
                            bool right_turned, double factor) {
  Value *left = node_input(node, 0), *right = node_input(node, 1);
  uint32_t rank = view->value->type.rank, rows = left->type.rank > 1, columns = right->type.rank > 1;
  Side sides[2];
  if (rank < rows + columns) return false;
  uint32_t leading = rank - rows - columns;
  if (!see_side(view, left, leading, leading, left_turned, &sides[0])) return false;
  if (!see_side(view, right, leading, leading + rows, !right_turned, &sides[1])) return false;
  if (constant_of(right)) return collect_sides(reading, &sides[1], sides[0], factor);
  return constant_of(left) && collect_sides(reading, &sides[0], sides[1], factor);
}

static bool collect_gemm(const Reading *reading, const View *view, const Node *node, double factor, int depth) {
  const Attribute *alpha = node_attribute(node, "alpha"), *beta = node_attribute(node, "beta");
  bool left_turned = node_int_or(node, "transA", 0) != 0, right_turned = node_int_or(node, "transB", 0) != 0;
  View bias;
  if (!collect_product(reading, view, node, left_turned, right_turned, factor * (alpha ? alpha->real : 1)))
    return false;
  if (!node_input(node, 2)) return true;
  return view_operand(view, node, 2, &bias) && collect(reading, bias, factor * (beta ? beta->real : 1), depth);
}

/* ---- elementwise ---- */

static bool collect_operand(const Reading *reading, const View *view, size_t index, double factor, int depth) {
  View operand;
  return view_operand(view, view->value->producer, index, &operand) && collect(reading, operand, factor, depth);
}

static bool collect_sum(const Reading *reading, const View *view, double factor, int depth) {
  double other = node_is(view->value->producer, OP_Sub) ? -factor : factor;
  return collect_operand(reading, view, 0, factor, depth) && collect_operand(reading, view, 1, other, depth);
}

/* A number times the rest, or minus it. */
static bool collect_scaled(const Reading *reading, const View *view, double factor, int depth) {
  const Node *node = view->value->producer;
  double number = -1;
  size_t rest = 0;
  if (!node_is(node, OP_Neg) && !uniform_number(node_input(node, 1), &number)) {
    rest = 1;
    if (!node_is(node, OP_Mul) || !uniform_number(node_input(node, 0), &number)) return false;
  }
  return collect_operand(reading, view, rest, node_is(node, OP_Div) ? factor / number : factor * number, depth);
}

/* A number for each feature times a value that has the features as well, or one number for all: a product with one
 * input. */
static bool collect_vector(const Reading *reading, const View *view, double factor) {
  const Node *node = view->value->producer;
  AffineTerm term = {.kind = AFFINE_SCALED, .factor = factor};
  View vector, other;
  size_t constant = constant_of(node_input(node, 0)) ? 0 : 1;
  if (!constant_of(node_input(node, constant)) || !view_operand(view, node, constant, &vector) ||
      !view_operand(view, node, 1 - constant, &other) || !place_constant(&vector, NO_AXIS, &term))
    return false;
  if (view->length > 1 && view_axis(&other, ALONG_FEATURES) == other.value->type.rank) {
    term.kind = AFFINE_PRODUCT;
    other.length = 1;
    return collect_source(reading, other, term);
  }
  term.source = view_settled(reading->frame, other);
  return add_term(reading->sum, term);
}

/* An elementwise product in place of a term. */
static bool take_product(Affine *sum, const View *view, double factor) {
  if (!sum->takes_product || sum->product.value || factor != 1) return false;
  sum->product = *view;
  return true;
}

static bool collect_multiplied(const Reading *reading, const View *view, double factor, int depth) {
  const Node *node = view->value->producer;
  double number;
  if (uniform_number(node_input(node, 0), &number) || uniform_number(node_input(node, 1), &number))
    return collect_scaled(reading, view, factor, depth);
  if (constant_of(node_input(node, 0)) || constant_of(node_input(node, 1)))
    return collect_vector(reading, view, factor);
  return node->graph == reading->frame->body && take_product(reading->sum, view, factor);
}

static bool collect(const Reading *reading, View view, double factor, int depth) {
  view = view_settled(reading->frame, view);
  const Node *node = view.value->producer;
  if (!dtype_fits_float32(view.value->type.dtype)) return false;
  if (constant_of(view.value)) return collect_bias(reading->sum, &view, factor);
  if (!node || depth == 0) return false;
  if (node_is(node, OP_Add) || node_is(node, OP_Sub)) return collect_sum(reading, &view, factor, depth - 1);
  if (node_is(node, OP_MatMul)) return collect_product(reading, &view, node, false, false, factor);
  if (node_is(node, OP_Gemm)) return collect_gemm(reading, &view, node, factor, depth - 1);
  if (node_is(node, OP_Mul)) return collect_multiplied(reading, &view, factor, depth - 1);
  return (node_is(node, OP_Neg) || node_is(node, OP_Div)) && collect_scaled(reading, &view, factor, depth - 1);
}

bool affine_read(const ViewFrame *frame, const View *view, double factor, Affine *sum) {
  return collect(&(Reading){frame, sum}, *view, factor, DEEPEST);
}

/* ---- the numbers ---- */

static float element(const AffineTerm *term, int64_t index) {
  const Tensor *tensor = term->matrix;
  const char *at = (const char *)tensor->data + (size_t)index * dtype_bytes(tensor->dtype, 1);
  return (float)(term->factor * number_decode(tensor->dtype, at));
}

void affine_add_matrix(const AffineTerm *term, float *to, int64_t features, int64_t inputs) {
  tensor_ready(term->matrix);
  for (int64_t feature = 0; feature < features; feature++) {
    int64_t row = term->first + feature * term->by_feature;
    for (int64_t input = 0; input < inputs; input++) *to++ += element(term, row + input * term->by_input);
  }
}

void affine_add(const AffineTerm *term, float *to, int64_t features) {
  tensor_ready(term->matrix);
  for (int64_t i = 0; i < features; i++) to[i] += element(term, term->first + i * term->by_feature);
}
