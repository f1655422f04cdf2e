/* Fourier transforms, one axis after the other.
 *
 * Where the target's DFT is exact at powers of two alone (QUIRK_DFT_LOSES_DIGITS), so in its inverse of real signals,
 * short transforms of other lengths are a product with the matrix of the transform, and long ones are L. Bluestein's: a
 * convolution, which transforms of the next power of two compute. Where it has none (QUIRK_DFT_IS_NOT_READ), all are.
 */
#include <math.h>

#include "base/bytes.h"
#include "lower/fft/fft.h"
#include "onnx/facts/schema.h"

enum { MATRIX_LENGTH = 64 /* up to here a matrix: 64 KiB in float32 */, LONGEST = 1 << 24 };

typedef struct Fourier {
  int64_t length;
  int64_t axis; /* of the array, without the axis of the parts */
  bool inverse;
} Fourier;

static bool is_power_of_two(int64_t n) { return (n & (n - 1)) == 0; }
static bool dft_is_exact(const Lowering *l, int64_t n) {
  if (target_quirk(l, QUIRK_DFT_IS_NOT_READ)) return false;
  return is_power_of_two(n) || !target_quirk(l, QUIRK_DFT_LOSES_DIGITS);
}

/* cos or sin of a turn's fraction part / whole; exact at the quarters. */
static double cosine(int64_t part, int64_t whole) {
  part %= whole;
  if (4 * part == whole || 4 * part == 3 * whole) return 0;
  return cos(2 * 3.14159265358979323846 * (double)part / (double)whole);
}

static double sine(int64_t part, int64_t whole) {
  part %= whole;
  if (part == 0 || 2 * part == whole) return 0;
  return sin(2 * 3.14159265358979323846 * (double)part / (double)whole);
}

/* Doubles as a constant of the element type. */
static Value *constant_doubles(Lowering *l, DType dtype, const int64_t *dims, uint32_t rank, const double *numbers) {
  size_t count = 1;
  for (uint32_t i = 0; i < rank; i++) count *= (size_t)dims[i];
  if (dtype == DTYPE_FLOAT64) return constant(l, tensor_new(l, dtype, dims, rank, numbers, count * sizeof *numbers));
  float *narrow = arena_new_array(&l->context->arena, count, float);
  for (size_t i = 0; i < count; i++) narrow[i] = (float)numbers[i];
  return constant(l, tensor_new(l, dtype, dims, rank, narrow, count * sizeof *narrow));
}

static Type with_length(Lowering *l, Type type, int64_t axis, int64_t length) {
  Dim *dims = arena_copy(&l->context->arena, type.dims, type.rank * sizeof *dims);
  dims[axis] = dim_of(length);
  return (Type){.dtype = type.dtype, .rank = type.rank, .dims = dims};
}

static Type with_last(Lowering *l, Type type, int64_t length) {
  return with_length(l, type, (int64_t)type.rank - 1, length);
}

/* value has parts, or one part only, on its last axis. padded: the length that zeros fill up to, or 0. */
static Value *dft(Lowering *l, Value *value, Type type, int64_t axis, bool inverse, int64_t padded, bool onesided) {
  Value *length = padded ? constant_integer(l, DTYPE_INT64, padded) : NULL;
  bool axis_is_input = schema_version(OP_DFT, l->options->opset) >= 20;
  Value *result;
  if (axis_is_input) result = EMIT(l, OP_DFT, type, value, length, constant_integer(l, DTYPE_INT64, axis));
  else if (length) result = EMIT(l, OP_DFT, type, value, length);
  else result = EMIT(l, OP_DFT, type, value);
  if (!axis_is_input) node_set_int(result->producer, "axis", axis);
  if (inverse) node_set_int(result->producer, "inverse", 1);
  if (onesided) node_set_int(result->producer, "onesided", 1);
  return result;
}

/* The last count axes become one of that size; or the last one becomes `count` ones. */
static Value *merged(Lowering *l, Value *value, int64_t size) {
  Dim dims[MAX_RANK];
  uint32_t rank = value->type.rank - 1;
  copy_bytes(dims, value->type.dims, rank * sizeof *dims);
  dims[rank - 1] = dim_of(size);
  return reshape_to(l, value, dims, rank);
}

static Value *matrix_product(Lowering *l, Value *value, const double *matrix, int64_t rows, int64_t columns) {
  Value *right = constant_doubles(l, value->type.dtype, (int64_t[]){rows, columns}, 2, matrix);
  return EMIT(l, OP_MatMul, with_last(l, value->type, columns), value, right);
}

static Value *as_pairs(Lowering *l, Value *value, int64_t length) {
  Dim dims[MAX_RANK];
  uint32_t rank = value->type.rank;
  rely_on(l, rank < MAX_RANK);
  copy_bytes(dims, value->type.dims, rank * sizeof *dims);
  dims[rank - 1] = dim_of(length);
  dims[rank] = dim_of(2);
  return reshape_to(l, value, dims, rank + 1);
}

/* Pairs to pairs: each pair of elements is the matrix (cos, sin; -sin, cos). */
static Value *transform_by_matrix(Lowering *l, Value *pairs, Fourier f) {
  int64_t n = f.length, last = (int64_t)pairs->type.rank - 2;
  double *matrix = arena_new_array(&l->context->arena, (size_t)(4 * n * n), double);
  for (int64_t j = 0; j < n; j++) {
    for (int64_t k = 0; k < n; k++) {
      double scale = f.inverse ? 1 / (double)n : 1, c = cosine(j * k, n) * scale, s = sine(j * k, n) * scale;
      if (!f.inverse) s = -s;
      double *rows[] = {matrix + 2 * j * 2 * n + 2 * k, matrix + (2 * j + 1) * 2 * n + 2 * k};
      rows[0][0] = c, rows[0][1] = s;
      rows[1][0] = -s, rows[1][1] = c;
    }
  }
  Value *moved = axis_moved(l, pairs, f.axis, last);
  Value *product = matrix_product(l, merged(l, moved, 2 * n), matrix, 2 * n, 2 * n);
  return axis_moved(l, as_pairs(l, product, n), last, f.axis);
}

/* exp(i pi j^2 / n): the square is reduced while it is an integer. */
typedef struct Chirp {
  double *cos, *sin;
} Chirp;

static Chirp chirp_of(Lowering *l, int64_t n) {
  Chirp chirp = {arena_new_array(&l->context->arena, (size_t)n, double),
                 arena_new_array(&l->context->arena, (size_t)n, double)};
  for (int64_t j = 0; j < n; j++) {
    chirp.cos[j] = cosine(j * j, 2 * n);
    chirp.sin[j] = sine(j * j, 2 * n);
  }
  return chirp;
}

/* The transform of m = 2^k numbers at export, in place: by halves, after the order of reversed bits. */
static void transform_numbers(double *re, double *im, int64_t m) {
  for (int64_t i = 1, j = 0; i < m; i++) {
    int64_t bit = m >> 1;
    for (; j & bit; bit >>= 1) j ^= bit;
    j ^= bit;
    if (i >= j) continue;
    double a = re[i], b = im[i];
    re[i] = re[j], im[i] = im[j];
    re[j] = a, im[j] = b;
  }
  for (int64_t size = 2; size <= m; size *= 2) {
    for (int64_t k = 0; k < size / 2; k++) {
      double c = cosine(k, size), s = -sine(k, size);
      for (int64_t start = k; start < m; start += size) {
        int64_t other = start + size / 2;
        double a = re[other] * c - im[other] * s, b = re[other] * s + im[other] * c;
        re[other] = re[start] - a, im[other] = im[start] - b;
        re[start] += a, im[start] += b;
      }
    }
  }
}

/* Complex numbers for the positions of one axis, or of two that follow each other. */
typedef struct Factors {
  int64_t axis, sizes[2];
  int axis_count;
  const double *cos, *sin;
} Factors;

/* One of the two arrays of numbers, once for each part; for the first it is multiplied by the sign. */
static Value *factor_constant(Lowering *l, Type pairs, const Factors *factors, const double *numbers, double sign) {
  int64_t dims[MAX_RANK], count = 1;
  uint32_t rank = pairs.rank - (uint32_t)factors->axis;
  for (uint32_t i = 0; i < rank; i++) dims[i] = 1;
  for (int i = 0; i < factors->axis_count; i++) count *= dims[i] = factors->sizes[i];
  dims[rank - 1] = 2;
  double *both = arena_new_array(&l->context->arena, (size_t)(2 * count), double);
  for (int64_t i = 0; i < count; i++) {
    both[2 * i] = sign * numbers[i];
    both[2 * i + 1] = numbers[i];
  }
  return constant_doubles(l, pairs.dtype, dims, rank, both);
}

/* Pairs times c + is: c times the pair, and s times the pair with its parts exchanged and a sign. A product with a
 * matrix exchanges them fastest; that infinity becomes NaN by it does no harm, as it does so in the transform. */
static Value *times_factors(Lowering *l, Value *pairs, const Factors *factors) {
  static const double exchange[] = {0, 1, 1, 0};
  Value *matrix = constant_doubles(l, pairs->type.dtype, (int64_t[]){2, 2}, 2, exchange);
  Value *exchanged = EMIT(l, OP_MatMul, pairs->type, pairs, matrix);
  Value *straight = EMIT_MATH(l, OP_Mul, pairs, factor_constant(l, pairs->type, factors, factors->cos, 1));
  Value *turned = EMIT_MATH(l, OP_Mul, exchanged, factor_constant(l, pairs->type, factors, factors->sin, -1));
  return EMIT_MATH(l, OP_Add, straight, turned);
}

static Value *times_along_axis(Lowering *l, Value *pairs, int64_t axis, const double *c, const double *s,
                               int64_t count) {
  Factors factors = {.axis = axis, .sizes = {count}, .axis_count = 1, .cos = c, .sin = s};
  return times_factors(l, pairs, &factors);
}

static Value *transform(Lowering *l, Value *pairs, Fourier f);

/* The transform of m = 2^k numbers, the first of which are given and the others 0. */
static Value *transform_padded(Lowering *l, Value *pairs, Fourier f) {
  int64_t pads[2 * MAX_RANK] = {0}, rank = pairs->type.rank, m = f.length;
  Type type = with_length(l, pairs->type, f.axis, m);
  if (dft_is_exact(l, m)) return dft(l, pairs, type, f.axis, f.inverse, m, false);
  pads[rank + f.axis] = m - pairs->type.dims[f.axis].constant;
  return transform(l, EMIT(l, OP_Pad, type, pairs, constant_ints(l, pads, (size_t)(2 * rank))), f);
}

/* jk is (j^2 + k^2 - (k - j)^2) / 2: the transform is a convolution with the chirp, between two products with it. The
 * first `kept` results. */
static Value *transform_by_chirp(Lowering *l, Value *pairs, Fourier f, int64_t kept) {
  int64_t n = f.length, m = 1;
  if (n > LONGEST) unsupported(l, "a transform of %lld points is too long", (long long)n);
  while (m < 2 * n - 1) m *= 2;
  Chirp chirp = chirp_of(l, n);
  double *re = arena_new_array(&l->context->arena, (size_t)m, double);
  double *im = arena_new_array(&l->context->arena, (size_t)m, double);
  double *back = arena_new_array(&l->context->arena, (size_t)n, double), *last_cos = chirp.cos, *last_sin = back;
  for (int64_t j = 0; j < n; j++) {
    double sign = f.inverse ? -1 : 1;
    int64_t mirrored = (m - j) % m;
    re[j] = re[mirrored] = chirp.cos[j];
    im[j] = im[mirrored] = sign * chirp.sin[j];
    back[j] = -sign * chirp.sin[j];
  }
  transform_numbers(re, im, m);
  Type type = with_length(l, pairs->type, f.axis, kept);
  Value *value = times_along_axis(l, pairs, f.axis, chirp.cos, back, n);
  value = transform_padded(l, value, (Fourier){.length = m, .axis = f.axis});
  value = times_along_axis(l, value, f.axis, re, im, m);
  value = transform(l, value, (Fourier){.length = m, .axis = f.axis, .inverse = true});
  Dim start = dim_of(0), end = dim_of(kept);
  value = slice_at(l, value, type, &start, &end, NULL, &f.axis, 1);
  if (f.inverse) {
    last_cos = arena_new_array(&l->context->arena, (size_t)n, double);
    last_sin = arena_new_array(&l->context->arena, (size_t)n, double);
    for (int64_t j = 0; j < n; j++) {
      last_cos[j] = chirp.cos[j] / (double)n;
      last_sin[j] = back[j] / (double)n;
    }
  }
  return times_along_axis(l, value, f.axis, last_cos, last_sin, kept);
}

/* The divisor that a transform is taken apart by: the nearest to the root that has a matrix; 1 when a prime factor of
 * the length has none. */
static int64_t divisor_of(int64_t n) {
  int64_t rest = n, best = 1;
  for (int64_t d = 2; d <= MATRIX_LENGTH; d++) {
    while (rest % d == 0) rest /= d;
  }
  if (rest > 1) return 1;
  for (int64_t d = 2; d <= MATRIX_LENGTH && d * d <= n; d++) {
    if (n % d == 0) best = d;
  }
  return best;
}

/* J. Cooley and J. Tukey's: position j = j2 + second * j1 is a place in a matrix. Its columns are transformed, each
 * place is multiplied by a power of the root of unity, the rows are transformed, and read by columns. */
static Value *transform_by_factors(Lowering *l, Value *pairs, Fourier f, int64_t first) {
  int64_t n = f.length, second = n / first, order[MAX_RANK];
  uint32_t rank = pairs->type.rank, axis = (uint32_t)f.axis;
  Dim dims[MAX_RANK];
  if (rank + 1 > MAX_RANK) unsupported(l, "the array has too many dimensions");
  for (uint32_t i = 0, to = 0; i < rank; i++) {
    if (i == axis) dims[to++] = dim_of(first);
    dims[to++] = i == axis ? dim_of(second) : pairs->type.dims[i];
  }
  Value *value = reshape_to(l, pairs, dims, rank + 1);
  value = transform(l, value, (Fourier){.length = first, .axis = f.axis, .inverse = f.inverse});
  double *c = arena_new_array(&l->context->arena, (size_t)n, double);
  double *s = arena_new_array(&l->context->arena, (size_t)n, double);
  for (int64_t k = 0; k < first; k++) {
    for (int64_t j = 0; j < second; j++) {
      c[k * second + j] = cosine(j * k, n);
      s[k * second + j] = f.inverse ? sine(j * k, n) : -sine(j * k, n);
    }
  }
  value = times_factors(l, value,
                        &(Factors){.axis = f.axis, .sizes = {first, second}, .axis_count = 2, .cos = c, .sin = s});
  value = transform(l, value, (Fourier){.length = second, .axis = f.axis + 1, .inverse = f.inverse});
  for (uint32_t i = 0; i <= rank; i++) order[i] = i == axis ? i + 1 : i == axis + 1 ? i - 1 : i;
  return reshape_to(l, transpose_by(l, value, order), pairs->type.dims, rank);
}

static Value *transform(Lowering *l, Value *pairs, Fourier f) {
  if (f.length == 1) return pairs;
  if (dft_is_exact(l, f.length)) return dft(l, pairs, pairs->type, f.axis, f.inverse, 0, false);
  if (f.length <= MATRIX_LENGTH) return transform_by_matrix(l, pairs, f);
  int64_t first = divisor_of(f.length);
  return first > 1 ? transform_by_factors(l, pairs, f, first) : transform_by_chirp(l, pairs, f, f.length);
}

/* Real numbers to the first half of their transform; along the last axis. */
static Value *transform_of_real(Lowering *l, Value *value, int64_t n) {
  int64_t rank = value->type.rank, half = n / 2 + 1;
  Type type = with_last(l, pairs_type(l, value->type), 2);
  type = with_length(l, type, rank - 1, half);
  if (n > 1 && n <= MATRIX_LENGTH && !dft_is_exact(l, n)) {
    double *matrix = arena_new_array(&l->context->arena, (size_t)(2 * n * half), double);
    for (int64_t j = 0; j < n; j++) {
      for (int64_t k = 0; k < half; k++) {
        matrix[j * 2 * half + 2 * k] = cosine(j * k, n);
        matrix[j * 2 * half + 2 * k + 1] = -sine(j * k, n);
      }
    }
    return as_pairs(l, matrix_product(l, value, matrix, n, 2 * half), half);
  }
  if (dft_is_exact(l, n) && n > 1) {
    return dft(l, unsqueeze_at(l, value, &rank, 1), type, rank - 1, false, 0, true);
  }
  Value *pairs = join_parts(l, (Parts){value, number_like(l, value, 0)}, pairs_type(l, value->type));
  Fourier f = {.length = n, .axis = rank - 1};
  if (n == 1) return pairs;
  if (divisor_of(n) == 1) return transform_by_chirp(l, pairs, f, half);
  Dim start = dim_of(0), end = dim_of(half);
  return slice_at(l, transform(l, pairs, f), type, &start, &end, NULL, &f.axis, 1);
}

/* The other half of the transform of real numbers: the first one's conjugates, in reverse. */
static Value *whole_transform(Lowering *l, Value *pairs, int64_t axis, int64_t n) {
  int64_t *places = arena_new_array(&l->context->arena, (size_t)n, int64_t);
  double *signs = arena_new_array(&l->context->arena, (size_t)(2 * n), double);
  for (int64_t k = 0; k < n; k++) {
    places[k] = k <= n / 2 ? k : n - k;
    signs[2 * k] = 1;
    signs[2 * k + 1] = k <= n / 2 ? 1 : -1;
  }
  Type type = with_length(l, pairs->type, axis, n);
  Value *both = EMIT(l, OP_Gather, type, pairs, constant_ints(l, places, (size_t)n));
  node_set_int(both->producer, "axis", axis);
  return EMIT(l, OP_Mul, type, both, constant_doubles(l, type.dtype, (int64_t[]){n, 2}, 2, signs));
}

/* The first half of a transform to the n real numbers; along the last axis. */
static Value *real_from_transform(Lowering *l, Value *pairs, int64_t n) {
  int64_t half = n / 2 + 1, axis = (int64_t)pairs->type.rank - 2;
  if (n <= MATRIX_LENGTH && !(dft_is_exact(l, n) && n > 1)) {
    double *matrix = arena_new_array(&l->context->arena, (size_t)(2 * n * half), double);
    for (int64_t k = 0; k < half; k++) {
      double weight = (k == 0 || 2 * k == n ? 1.0 : 2.0) / (double)n; /* the others stand for two */
      for (int64_t j = 0; j < n; j++) {
        matrix[2 * k * n + j] = weight * cosine(j * k, n);
        matrix[(2 * k + 1) * n + j] = -weight * sine(j * k, n);
      }
    }
    return matrix_product(l, merged(l, pairs, 2 * half), matrix, 2 * half, n);
  }
  Value *whole = whole_transform(l, pairs, axis, n);
  return parts_of(l, transform(l, whole, (Fourier){.length = n, .axis = axis, .inverse = true})).re;
}

typedef enum FourierKind { FOURIER, INVERSE, OF_REAL, TO_REAL } FourierKind; /* as JAX numbers them */

static FourierKind read_kind(Lowering *l) {
  static const char *const names[] = {"FFT", "IFFT", "RFFT", "IRFFT"};
  const Param *kind = param_get(l->context, l->equation, "fft_type");
  for (int i = 0; i < 4; i++) {
    if (param_is(kind, names[i]) || (kind->kind == PARAM_INT && kind->integer == i)) return (FourierKind)i;
  }
  unsupported(l, "the transform is not an FFT, IFFT, RFFT or IRFFT");
}

static Value *transform_along(Lowering *l, Value *pairs, Dim length, int64_t axis, bool inverse) {
  if (!dim_is_constant(length)) return transform_at_run_time(l, pairs, length, axis, inverse);
  return transform(l, pairs, (Fourier){.length = length.constant, .axis = axis, .inverse = inverse});
}

static void lower_fft(Lowering *l) {
  FourierKind kind = read_kind(l);
  size_t count;
  const Dim *lengths = param_dims(l->context, param_get(l->context, l->equation, "fft_lengths"), &count);
  Value *value = input(l, 0);
  int64_t rank = (int64_t)value->type.rank - (kind == OF_REAL ? 0 : 1);
  rely_on(l, (int64_t)count <= rank);
  Dim last = count ? lengths[count - 1] : dim_of(1);
  if (count && kind == OF_REAL) {
    Type type = output_type(l, 0);
    value = dim_is_constant(last) ? transform_of_real(l, value, last.constant)
                                  : transform_of_real_at_run_time(l, value, last, type.dims[type.rank - 2]);
  }
  bool last_is_real = kind == OF_REAL || kind == TO_REAL;
  for (size_t i = count - (count && last_is_real ? 1 : 0); i-- > 0;) {
    bool inverse = kind == INVERSE || kind == TO_REAL;
    value = transform_along(l, value, lengths[i], rank - (int64_t)count + (int64_t)i, inverse);
  }
  if (count && kind == TO_REAL) {
    value = dim_is_constant(last) ? real_from_transform(l, value, last.constant)
                                  : real_from_transform_at_run_time(l, value, last);
  }
  bind(l, 0, value);
}

/* clang-format off */
const Plugin fft_plugins[] = {
    PLUGIN("fft", lower_fft, OP_DFT),
    {0},
};
/* clang-format on */
