/* Evaluate: reductions and running sums. Floats accumulate in double and are rounded at the end. */
#include <math.h>

#include "base/bytes.h"
#include "onnx/evaluate/evaluate.h"
#include "types/numbers.h"

typedef enum Reduction { SUM, PRODUCT, LARGEST, SMALLEST, SUM_OF_SIZES } Reduction;

static bool computable(DType dtype) { return dtype > DTYPE_BOOL && dtype <= DTYPE_FLOAT64; }

static bool real_less(double a, double b) { return a < b || (a == b && signbit(a) && !signbit(b)); }

static double reduce_real(Reduction reduction, double a, double b) {
  switch (reduction) {
    case SUM:
    case SUM_OF_SIZES: return a + b;
    case PRODUCT: return a * b;
    case LARGEST: return isnan(a) || real_less(b, a) ? a : b;
    default: return isnan(a) || real_less(a, b) ? a : b;
  }
}

static int64_t reduce_integer(Reduction reduction, DType dtype, int64_t a, int64_t b) {
  bool less = dtype_is_unsigned(dtype) ? (uint64_t)a < (uint64_t)b : a < b;
  switch (reduction) {
    case SUM: return (int64_t)((uint64_t)a + (uint64_t)b);
    case PRODUCT: return (int64_t)((uint64_t)a * (uint64_t)b);
    case LARGEST: return less ? b : a;
    default: return less ? a : b;
  }
}

/* Which axes go: an input or an attribute names them, by default all. False when that cannot be known. */
static bool reduced_axes(const Evaluation *evaluation, size_t rank, bool *reduced) {
  int64_t axes[MAX_RANK];
  size_t count = 0;
  const Attribute *attribute = node_attribute(evaluation->node, "axes");
  if (evaluate_input(evaluation, 1)) {
    if (!tensor_ints(evaluate_input(evaluation, 1), axes, MAX_RANK, &count)) return false;
  } else if (attribute) {
    if (attribute->kind != ATTRIBUTE_INTS || attribute->count > MAX_RANK) return false;
    count = attribute->count;
    copy_bytes(axes, attribute->integers, count * sizeof *axes);
  }
  bool all = count == 0 && node_int_or(evaluation->node, "noop_with_empty_axes", 0) == 0;
  for (size_t i = 0; i < rank; i++) reduced[i] = all;
  for (size_t i = 0; i < count; i++) {
    int64_t axis = evaluate_axis(axes[i], rank);
    if (axis < 0) return false;
    reduced[axis] = true;
  }
  return true;
}

typedef struct Accumulator {
  double real;
  int64_t integer;
  bool started;
} Accumulator;

static void accumulate(Accumulator *to, Reduction reduction, DType dtype, const void *element) {
  if (dtype_is_float(dtype)) {
    double x = number_decode(dtype, element);
    if (reduction == SUM_OF_SIZES) x = fabs(x);
    to->real = to->started ? reduce_real(reduction, to->real, x) : x;
  } else {
    int64_t x = number_decode_int(dtype, element);
    to->integer = to->started ? reduce_integer(reduction, dtype, to->integer, x) : x;
  }
  to->started = true;
}

/* An empty sum is 0 and an empty product 1; the others have no value then. */
static bool finish(const Accumulator *from, Reduction reduction, DType dtype, void *element) {
  uint64_t bits;
  if (!from->started) {
    if (reduction == LARGEST || reduction == SMALLEST) return false;
    bits = number_encode(dtype, reduction == PRODUCT);
  } else {
    bits = dtype_is_float(dtype) ? number_encode(dtype, from->real) : (uint64_t)from->integer;
  }
  copy_bytes(element, &bits, dtype_bits(dtype) / 8);
  return true;
}

static const Tensor *evaluate_reduction(const Evaluation *evaluation, Reduction reduction) {
  const Tensor *x = evaluate_input(evaluation, 0);
  bool reduced[MAX_RANK];
  int64_t dims[MAX_RANK], strides[1][2 * MAX_RANK], offset = 0, stride = 1;
  if (!x || !computable(x->dtype) || !reduced_axes(evaluation, x->rank, reduced)) return NULL;
  bool keep = node_int_or(evaluation->node, "keepdims", 1) != 0;
  size_t rank = 0;
  for (uint32_t i = 0; i < x->rank; i++) {
    if (!reduced[i]) dims[rank++] = x->dims[i];
    else if (keep) dims[rank++] = 1;
  }
  for (size_t axis = x->rank; axis-- > 0;) {
    strides[0][axis] = reduced[axis] ? 0 : stride;
    if (!reduced[axis]) stride *= x->dims[axis];
  }
  Tensor *result = evaluate_result(evaluation, x->dtype, dims, rank);
  if (!result || result->size == 0) return result;
  int64_t count = tensor_count(result);
  Accumulator *sums = arena_new_array(&evaluation->context->arena, (size_t)count, Accumulator);
  size_t width = tensor_width(x);
  const char *from = x->data;
  Walk walk = {.rank = x->rank, .dims = x->dims};
  if (x->size) {
    do {
      accumulate(&sums[offset], reduction, x->dtype, from);
      from += width;
    } while (walk_next(&walk, 1, (const int64_t (*)[2 * MAX_RANK]) strides, &offset));
  }
  for (int64_t i = 0; i < count; i++) {
    if (!finish(&sums[i], reduction, x->dtype, result_data(result) + (size_t)i * width)) return NULL;
  }
  return result;
}

static const Tensor *evaluate_sum(const Evaluation *evaluation) { return evaluate_reduction(evaluation, SUM); }
static const Tensor *evaluate_product(const Evaluation *evaluation) { return evaluate_reduction(evaluation, PRODUCT); }
static const Tensor *evaluate_largest(const Evaluation *evaluation) { return evaluate_reduction(evaluation, LARGEST); }
static const Tensor *evaluate_smallest(const Evaluation *evaluation) {
  return evaluate_reduction(evaluation, SMALLEST);
}

/* Of integers too it is computed in floats by some. */
static const Tensor *evaluate_sum_of_sizes(const Evaluation *evaluation) {
  const Tensor *x = evaluate_input(evaluation, 0);
  return x && dtype_is_float(x->dtype) ? evaluate_reduction(evaluation, SUM_OF_SIZES) : NULL;
}

static const Tensor *evaluate_cumulative_sum(const Evaluation *evaluation) {
  const Tensor *x = evaluate_input(evaluation, 0), *along = evaluate_input(evaluation, 1);
  if (!x || !computable(x->dtype) || !along || !dtype_is_integer(along->dtype) || tensor_count(along) != 1) return NULL;
  int64_t axis = evaluate_axis(tensor_int_at(along, 0), x->rank);
  bool exclusive = node_int_or(evaluation->node, "exclusive", 0) != 0;
  bool reverse = node_int_or(evaluation->node, "reverse", 0) != 0;
  Tensor *result = axis < 0 ? NULL : evaluate_result(evaluation, x->dtype, x->dims, x->rank);
  if (!result || result->size == 0) return result;
  int64_t length = x->dims[axis], inner = 1;
  for (size_t i = (size_t)axis + 1; i < x->rank; i++) inner *= x->dims[i];
  size_t width = tensor_width(x);
  for (int64_t line = 0; line < tensor_count(x) / length; line++) {
    int64_t start = line / inner * inner * length + line % inner;
    Accumulator sum = {0};
    for (int64_t i = 0; i < length; i++) {
      size_t at = (size_t)(start + (reverse ? length - 1 - i : i) * inner) * width;
      if (exclusive) finish(&sum, SUM, x->dtype, result_data(result) + at);
      accumulate(&sum, SUM, x->dtype, (const char *)x->data + at);
      if (!exclusive) finish(&sum, SUM, x->dtype, result_data(result) + at);
    }
  }
  return result;
}

/* Along one axis: `length` elements, `stride` bytes apart. -1 where one of them is NaN, whose place is left open. */
static int64_t place_of_extreme(const Tensor *x, const char *line, int64_t length, size_t stride, Reduction reduction) {
  int64_t place = 0;
  for (int64_t i = 0; i < length; i++, line += stride) {
    const char *best = line - (size_t)(i - place) * stride;
    if (dtype_is_float(x->dtype)) {
      double a = number_decode(x->dtype, best), b = number_decode(x->dtype, line);
      if (isnan(b)) return -1;
      if (reduction == LARGEST ? b > a : b < a) place = i;
    } else {
      int64_t a = number_decode_int(x->dtype, best), b = number_decode_int(x->dtype, line);
      if (a != b && reduce_integer(reduction, x->dtype, a, b) == b) place = i;
    }
  }
  return place;
}

static const Tensor *evaluate_place(const Evaluation *evaluation, Reduction reduction) {
  const Tensor *x = evaluate_input(evaluation, 0);
  const Node *node = evaluation->node;
  int64_t dims[MAX_RANK], axis = x ? evaluate_axis(node_int_or(node, "axis", 0), x->rank) : -1, inner = 1;
  if (axis < 0 || !computable(x->dtype) || x->size == 0 || node_int_or(node, "select_last_index", 0)) return NULL;
  bool keep = node_int_or(node, "keepdims", 1) != 0;
  size_t rank = 0;
  for (int64_t i = 0; i < x->rank; i++) {
    if (i != axis) dims[rank++] = x->dims[i];
    else if (keep) dims[rank++] = 1;
    if (i > axis) inner *= x->dims[i];
  }
  Tensor *result = evaluate_result(evaluation, DTYPE_INT64, dims, rank);
  for (int64_t i = 0; result && i < tensor_count(result); i++) {
    const char *line =
        (const char *)x->data + (size_t)(i / inner * inner * x->dims[axis] + i % inner) * tensor_width(x);
    int64_t place = place_of_extreme(x, line, x->dims[axis], (size_t)inner * tensor_width(x), reduction);
    if (place < 0) return NULL;
    copy_bytes(result_data(result) + (size_t)i * sizeof place, &place, sizeof place);
  }
  return result;
}

static const Tensor *evaluate_arg_max(const Evaluation *evaluation) { return evaluate_place(evaluation, LARGEST); }
static const Tensor *evaluate_arg_min(const Evaluation *evaluation) { return evaluate_place(evaluation, SMALLEST); }

const EvaluateRow evaluate_reductions[] = {
    {OP_ReduceSum, evaluate_sum},      {OP_ReduceProd, evaluate_product},    {OP_ReduceMax, evaluate_largest},
    {OP_ReduceMin, evaluate_smallest}, {OP_ReduceL1, evaluate_sum_of_sizes}, {OP_CumSum, evaluate_cumulative_sum},
    {OP_ArgMax, evaluate_arg_max},     {OP_ArgMin, evaluate_arg_min},        {OP_NONE, NULL},
};
