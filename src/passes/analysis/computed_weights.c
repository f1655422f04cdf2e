/* Weights that are computed: see computed_weights.h.
 *
 * jax.image's matrix: where the middle of each result lies in the source, how far that is from each element, a weight
 * for the distance, the weights of a result divided by their sum, and nothing for results outside. */
#include "passes/analysis/computed_weights.h"

#include "passes/analysis/size_values.h"
#include "passes/pattern.h"

enum { OUT, IN, INVERSE, SCALE, SAMPLE, COLUMN, WIDTH, KERNEL, TOTAL, LEAST, LENGTH, LAST, OUT_END, IN_END, APART };

/* 0, 1, 2, ... as floats; jnp.arange adds where it begins. */
#define COUNTED(at, end) OP(Cast, OP_AT(at, Range, NUMBER(0), ANY(end), NUMBER(1)))
#define PLACES(at, end) EITHER(OP(Add, NUMBER(0), COUNTED(at, end)), COUNTED(at, end))
#define MIDDLES EITHER(OP(Add, PLACES(OUT, OUT_END), NUMBER(0.5)), CONSTANT(OUT))
#define IN_SOURCE OP(Mul, MIDDLES, OP_AT(INVERSE, Div, NUMBER(1), OP_AT(SCALE, Div)))
#define UNSHIFTED EITHER(OP(Sub, IN_SOURCE, OP(Mul, NUMBER(0), ANY(INVERSE))), IN_SOURCE)
#define DISTANCE \
  OP(Abs,        \
     OP(Sub, OP_AT(SAMPLE, Sub, UNSHIFTED, NUMBER(0.5)), EITHER(RESHAPED(COLUMN, PLACES(IN, IN_END)), CONSTANT(IN))))
#define IN_WINDOWS EITHER(OP(Div, DISTANCE, OP_AT(WIDTH, Max, ANY(INVERSE), NUMBER(1))), DISTANCE)
#define TRIANGLE OP_AT(KERNEL, Relu, OP(Sub, NUMBER(1), EITHER(OP(Abs, IN_WINDOWS), IN_WINDOWS)))
/* Keys' cubic polynomials, of distances up to 1 and up to 2. */
#define TIMES(x) OP(Mul, x, ANY(APART))
#define FAR OP(Add, TIMES(OP(Sub, TIMES(OP(Add, TIMES(NUMBER(-0.5)), NUMBER(2.5))), NUMBER(4))), NUMBER(2))
#define NEAR OP(Add, TIMES(TIMES(OP(Sub, TIMES(NUMBER(1.5)), NUMBER(2.5)))), NUMBER(1))
#define WITHIN_2 OP(Where, OP(GreaterOrEqual, ANY(APART), NUMBER(1)), FAR, NEAR)
#define CUBIC OP_AT(KERNEL, Where, OP(GreaterOrEqual, ANY(APART), NUMBER(2)), NUMBER(0), WITHIN_2)
#define SUM OP_AT(TOTAL, ReduceSum, EITHER(TRIANGLE, CUBIC))
#define DIVISOR OP(Where, OP(Equal, ANY(TOTAL), NUMBER(0)), NUMBER(1), ANY(TOTAL))
#define SHARES OP(Where, OP(Greater, OP(Abs, SUM), UNIFORM(LEAST)), OP(Div, ANY(KERNEL), DIVISOR), NUMBER(0))
#define UP_TO EITHER(OP(Sub, ANY(LENGTH), NUMBER(0.5)), UNIFORM(LAST))
#define INSIDE OP(And, OP(GreaterOrEqual, ANY(SAMPLE), NUMBER(-0.5)), OP(LessOrEqual, ANY(SAMPLE), UP_TO))

static const Pattern *const distances = IN_WINDOWS;
static const Pattern *const weights = OP(Where, INSIDE, SHARES, NUMBER(0));

/* Is the constant `first`, `first` + 1, ... as often as the size says? */
static bool counts_from(const Value *value, double first, Dim size) {
  const Tensor *tensor = constant_of(value);
  if (!tensor || tensor->dtype != DTYPE_FLOAT32 || !dim_is_constant(size)) return false;
  if (tensor->size != (size_t)size.constant * sizeof(float)) return false;
  const float *numbers = tensor->data;
  for (int64_t i = 0; i < size.constant; i++) {
    if ((double)numbers[i] != first + (double)i) return false;
  }
  return true;
}

static bool is_counted(const Value *value, double first, Dim size) {
  const Node *range = value->producer;
  if (!range || !node_is(range, OP_Range)) return counts_from(value, first, size);
  return value->type.rank == 1 && dim_equal(value->type.dims[0], size);
}

static bool is_size(Context *context, const Value *value, Dim wanted) {
  Dim size;
  return value && read_size(context, value, &size) && dim_equal(size, wanted);
}

/* The elements of the source are the rows, which the sum is over. */
static bool is_along_rows(const Match *match, Type type) {
  bool axes[MAX_RANK];
  Type column = (match->values[COLUMN] ? match->values[COLUMN] : match->values[IN])->type;
  const Node *total = match->values[TOTAL]->producer;
  if (column.rank != 2 || !dim_is(column.dims[1], 1) || !dim_equal(column.dims[0], type.dims[0])) return false;
  return reduced_axes(total, axes) && axes[0] && !axes[1] && match->values[TOTAL]->type.rank == 2;
}

static bool ends_with_source(Context *context, const Match *match, Dim from) {
  double last;
  if (!match->values[LAST]) return is_size(context, match->values[LENGTH], from);
  return uniform_number(match->values[LAST], &last) && dim_is_constant(from) && last == (double)from.constant - 0.5;
}

/* Before it was cast and its axes named otherwise. */
static const Value *plain(const Value *value) {
  while (value->producer && (node_is(value->producer, OP_Cast) || node_has(value->producer, RENAMES))) {
    value = node_input(value->producer, 0);
  }
  return value;
}

/* Is the value the size, or what the places that are counted end at? */
static bool is_result_size(Context *context, const Match *match, const Value *value, Dim to) {
  const Value *end = match->values[OUT_END];
  return is_size(context, value, to) || (end && plain(end) == plain(value));
}

ResizeKind resize_kind_of_computed(Rewriter *rewriter, Value *matrix, Value **size) {
  Context *context = rewriter->context;
  Match match = {.rewriter = rewriter};
  double least;
  while (matrix->producer && is_cast_of_floats(matrix->producer)) matrix = node_input(matrix->producer, 0);
  Type type = matrix->type;
  if (type.dtype != DTYPE_FLOAT32 || type.rank != 2 || !match_value(&match, weights, matrix)) return RESIZE_NONE;
  bool is_cubic = match.values[APART];
  match.node_count = 0; /* nobody asks for those so far */
  if (is_cubic && !match_value(&match, distances, match.values[APART])) return RESIZE_NONE;
  Dim from = type.dims[0], to = type.dims[1];
  const Node *scale = match.values[SCALE]->producer;
  if (!is_result_size(context, &match, node_input(scale, 0), to)) return RESIZE_NONE;
  if (!is_size(context, node_input(scale, 1), from)) return RESIZE_NONE;
  if (!is_counted(match.values[OUT], match.values[OUT]->producer ? 0 : 0.5, to)) return RESIZE_NONE;
  if (!is_counted(match.values[IN], 0, from) || !is_along_rows(&match, type)) return RESIZE_NONE;
  if (!ends_with_source(context, &match, from)) return RESIZE_NONE;
  if (!uniform_number(match.values[LEAST], &least) || !(least >= 0 && least < 0.5)) return RESIZE_NONE;
  *size = match.values[OUT_END];
  if (is_cubic) return match.values[WIDTH] ? RESIZE_CUBIC_ANTIALIAS : RESIZE_CUBIC;
  return match.values[WIDTH] ? RESIZE_LINEAR_ANTIALIAS : RESIZE_LINEAR;
}

/* ---- the nearest ---- */

enum { LOW_SIZE = COLUMN, HIGH_SIZE = WIDTH };

#define NEAREST OP(Floor, OP(Div, OP(Mul, MIDDLES, ANY(LENGTH)), ANY(SCALE)))
/* As an integer, which NaN and what is too large have to become somehow. */
#define WIDE OP_AT(SAMPLE, Cast, NEAREST)
#define WHOLE OP(Cast, OP(Clip, OP(Where, OP(IsNaN, WIDE), NUMBER(0), ANY(SAMPLE)), UNIFORM(LAST), UNIFORM(LEAST)))
#define NAMED(of) EITHER(OP(Squeeze, OP(Cast, of)), OP(Squeeze, of))
#define IN_BOUNDS OP(Clip, WHOLE, NAMED(OP(Mul, ANY(LOW_SIZE), NUMBER(-1))), NAMED(OP(Add, ANY(HIGH_SIZE), NUMBER(-1))))

static const Pattern *const neighbours = IN_BOUNDS;

bool repeats_by_computed(Rewriter *rewriter, Value *indices, Dim from) {
  Context *context = rewriter->context;
  Match match = {.rewriter = rewriter};
  Type type = indices->type;
  double least, most;
  if (type.rank != 1 || !match_value(&match, neighbours, indices)) return false;
  if (!uniform_number(match.values[LAST], &least) || !uniform_number(match.values[LEAST], &most)) return false;
  if (!(least <= 0) || !(most >= 0x1p30)) return false;
  if (!is_result_size(context, &match, match.values[SCALE], type.dims[0])) return false;
  if (!is_size(context, match.values[LENGTH], from) || !is_size(context, match.values[LOW_SIZE], from)) return false;
  return is_size(context, match.values[HIGH_SIZE], from) &&
         is_counted(match.values[OUT], match.values[OUT]->producer ? 0 : 0.5, type.dims[0]);
}
