/* What Resize computes with. */
#include "passes/analysis/resize_weights.h"

#include <math.h>

#include "target/target.h"
#include "types/numbers.h"

static double triangle(double distance) { return distance < 1 ? 1 - distance : 0; }

/* Keys' cubic with a = -1/2. */
static double cubic(double distance) {
  if (distance < 1) return (1.5 * distance - 2.5) * distance * distance + 1;
  if (distance < 2) return ((-0.5 * distance + 2.5) * distance - 4) * distance + 2;
  return 0;
}

typedef struct Method {
  ResizeKind kind;
  double (*weight)(double distance);
  double width; /* of the weights, in elements */
  bool spreads; /* over more elements when the image gets smaller */
} Method;

static const Method methods[] = {
    {RESIZE_LINEAR, triangle, 1, false},
    {RESIZE_CUBIC, cubic, 2, false},
    {RESIZE_CUBIC_ANTIALIAS, cubic, 2, true},
    {RESIZE_LINEAR_ANTIALIAS, triangle, 1, true},
};

typedef struct Matrix {
  const Tensor *tensor;
  bool rows_are_results;
  int64_t from, to;
  size_t width;
} Matrix;

static double element(const Matrix *matrix, int64_t result, int64_t source) {
  int64_t at = matrix->rows_are_results ? result * matrix->from + source : source * matrix->to + result;
  return number_decode(matrix->tensor->dtype, (const char *)matrix->tensor->data + (size_t)at * matrix->width);
}

/* The weights of one element of the result; those outside are left out, and the rest sums to 1. */
static bool row_is(const Matrix *matrix, const Method *method, int64_t result, double tolerance) {
  double scale = (double)matrix->from / (double)matrix->to, wide = method->spreads && scale > 1 ? scale : 1;
  double place = ((double)result + 0.5) * scale - 0.5, sum = 0;
  int64_t first = (int64_t)floor(place - method->width * wide), last = (int64_t)ceil(place + method->width * wide);
  for (int64_t i = first < 0 ? 0 : first; i <= last && i < matrix->from; i++) {
    sum += method->weight(fabs(place - (double)i) / wide);
  }
  if (!(sum > 1e-3)) return false;
  for (int64_t i = 0; i < matrix->from; i++) {
    bool near = i >= first && i <= last;
    double wanted = near ? method->weight(fabs(place - (double)i) / wide) / sum : 0;
    if (!(fabs(element(matrix, result, i) - wanted) <= tolerance)) return false;
  }
  return true;
}

ResizeKind resize_kind_of_matrix(const Tensor *tensor, bool rows_are_results, DType rounded) {
  if (tensor->rank != 2 || !dtype_is_float(tensor->dtype)) return RESIZE_NONE;
  Matrix matrix = {tensor, rows_are_results, tensor->dims[rows_are_results ? 1 : 0],
                   tensor->dims[rows_are_results ? 0 : 1], dtype_bytes(tensor->dtype, 1)};
  if (matrix.from < 2 || matrix.to < 1 || matrix.from == matrix.to || tensor->size > LARGEST_WEIGHTS)
    return RESIZE_NONE;
  /* Places are computed in single precision on either side. */
  double tolerance = 1e-6 + 3e-7 * (double)(matrix.from > matrix.to ? matrix.from : matrix.to);
  if (dtype_is_half(rounded)) tolerance += rounded == DTYPE_FLOAT16 ? 0x1p-11 : 0x1p-8;
  for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
    int64_t result = 0;
    while (result < matrix.to && row_is(&matrix, &methods[i], result, tolerance)) result++;
    if (result == matrix.to) return methods[i].kind;
  }
  return RESIZE_NONE;
}

/* Places are computed in single precision, by a division or by a product; both must round to the index. */
static bool rounds_to(int64_t result, int64_t from, int64_t to, int64_t index) {
  float scale = (float)to / (float)from, middle = (float)result + 0.5f;
  const float places[] = {middle / scale - 0.5f, middle * ((float)from / (float)to) - 0.5f};
  for (size_t i = 0; i < 2; i++) {
    int64_t nearest = (int64_t)floorf(places[i] + 0.5f);
    if ((nearest < 0 ? 0 : nearest >= from ? from - 1 : nearest) != index) return false;
  }
  return true;
}

ResizeKind resize_kind_of_indices(const Tensor *indices, int64_t from) {
  size_t width = dtype_bytes(indices->dtype, 1);
  int64_t to = indices->rank == 1 ? indices->dims[0] : 0;
  if (!dtype_is_integer(indices->dtype) || to < 1 || from < 1 || from == to || to > 1 << 20) return RESIZE_NONE;
  bool repeated = to % from == 0, nearest = true;
  for (int64_t i = 0; i < to; i++) {
    int64_t index = number_decode_int(indices->dtype, (const char *)indices->data + (size_t)i * width);
    repeated = repeated && index == i / (to / from);
    nearest = nearest && rounds_to(i, from, to, index);
    if (!repeated && !nearest) return RESIZE_NONE;
  }
  return repeated ? RESIZE_REPEAT : RESIZE_NEAREST;
}

float resize_scale(int64_t from, int64_t to) {
  float scale = (float)to / (float)from;
  if (floorf((float)from * scale) < (float)to) scale = nextafterf(scale, INFINITY);
  return floorf((float)from * scale) == (float)to ? scale : 0;
}

bool resize_runs_on(const Model *model, ResizeKind kind, uint32_t rank, const bool *changed, bool shrinks) {
  bool cubic = resize_is_cubic(kind);
  bool leaves_out = cubic || resize_is_antialias(kind);
  if (leaves_out && target_has(model->target, QUIRK_CUBIC_RESIZE_IS_WRONG)) return false;
  /* On the last axes neither: the runtime itself moves Transposes through a Resize. */
  if (cubic && target_has(model->target, QUIRK_CUBIC_RESIZE_TAKES_LAST_AXES_ALONE)) return false;
  if (target_has(model->target, QUIRK_RESIZE_TAKES_LAST_AXES_ALONE) && (rank != 4 || changed[0] || changed[1]))
    return false;
  if (!target_has(model->target, QUIRK_RESIZE_ALONG_SOME_AXES)) return true;
  if (resize_is_nearest(kind) || rank == 2) return true;
  if (rank < 2 || rank > 5 || (kind != RESIZE_LINEAR && rank != 4)) return false;
  if (kind == RESIZE_CUBIC && shrinks) return false;
  if (rank == 4 && !changed[0] && !changed[3]) return true;
  for (uint32_t i = 0; i < (rank == 3 ? 1u : 2u); i++) {
    if (changed[i]) return false;
  }
  return true;
}
