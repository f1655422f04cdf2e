#include "passes/analysis/grids.h"

#include <math.h>

#include "types/moved.h"

enum {
  LEAST = -128,
  MOST = 127,
  FEWEST = 16 /* numbers of a channel, which cannot all be multiples by chance */
};

/* The numbers of a tensor along all axes but one. */
typedef struct Channels {
  const float *numbers;
  int64_t count, inner, outer; /* channels; elements behind and before their axis */
} Channels;

static float number_at(const Channels *channels, int64_t channel, int64_t i) {
  int64_t row = i / channels->inner;
  return channels->numbers[(row * channels->count + channel) * channels->inner + i % channels->inner];
}

/* Are all numbers of the channel whole multiples of the scale that 8 bits hold? */
static bool are_multiples(const Channels *channels, int64_t channel, float scale, float slack) {
  for (int64_t i = 0; i < channels->inner * channels->outer; i++) {
    float number = number_at(channels, channel, i), whole = rintf(number / scale), multiple = whole * scale;
    if (!(whole >= LEAST && whole <= MOST) || !(fabsf(multiple - number) <= slack)) return false;
  }
  return true;
}

/* The largest number is a multiple too, and the scale its quotient, up to the last places. The largest scale is the one
 * with the smallest integers. 0: there is none. */
static float find_scale(const Channels *channels, int64_t channel, bool near) {
  static const float tiny = 0x1p-100F, huge = 0x1p100F;
  float largest = 0;
  for (int64_t i = 0; i < channels->inner * channels->outer; i++) {
    float size = fabsf(number_at(channels, channel, i));
    if (!(size <= huge)) return 0;
    largest = fmaxf(largest, size);
  }
  if (largest == 0) return 1;
  if (largest < tiny) return 0;
  for (int steps = 1; steps <= -LEAST; steps++) {
    float quotient = largest / (float)steps, below = nextafterf(quotient, 0), above = nextafterf(quotient, huge);
    const float scales[] = {quotient, below, above};
    for (size_t i = 0; i < sizeof scales / sizeof *scales; i++) {
      if (are_multiples(channels, channel, scales[i], near ? largest * 0x1p-22F : 0)) return scales[i];
    }
  }
  return 0;
}

static bool see_channels(const Tensor *tensor, int64_t axis, Channels *channels) {
  if (tensor->dtype != DTYPE_FLOAT32 || tensor->rank < 2 || axis < 0 || axis >= tensor->rank) return false;
  *channels = (Channels){.count = tensor->dims[axis], .inner = 1, .outer = 1};
  for (int64_t i = 0; i < axis; i++) channels->outer *= tensor->dims[i];
  for (int64_t i = axis + 1; i < tensor->rank; i++) channels->inner *= tensor->dims[i];
  if (channels->count < 1 || channels->inner * channels->outer < FEWEST) return false;
  if (tensor->size != sizeof(float) * (size_t)(channels->count * channels->inner * channels->outer)) return false;
  tensor_ready(tensor);
  channels->numbers = tensor->data;
  return channels->numbers != NULL;
}

static Tensor *like(Context *context, const Tensor *tensor, DType dtype, size_t count) {
  Tensor *result = arena_copy(&context->arena, tensor, sizeof *tensor);
  result->dtype = dtype;
  result->moved = NULL;
  result->size = dtype_bytes(dtype, count);
  result->data = arena_alloc(&context->arena, result->size);
  return result;
}

/* The whole numbers, still in floats, and whether 4 bits hold them; false: they all have one sign, as those of a mask.
 */
static bool find_integers(const Channels *channels, const float *scales, float *whole, bool *is_small) {
  float least = 0, greatest = 0;
  int64_t size = channels->inner * channels->outer;
  for (int64_t c = 0; c < channels->count; c++) {
    for (int64_t i = 0; i < size; i++) {
      float number = rintf(number_at(channels, c, i) / scales[c]);
      whole[(i / channels->inner * channels->count + c) * channels->inner + i % channels->inner] = number;
      least = fminf(least, number);
      greatest = fmaxf(greatest, number);
    }
  }
  *is_small = least >= -8 && greatest <= 7;
  return least < 0 && greatest > 0;
}

bool read_grid(Context *context, const Tensor *tensor, int64_t axis, bool near, bool half_bytes, Grid *grid) {
  Channels channels;
  bool is_small;
  if (!see_channels(tensor, axis, &channels)) return false;
  float *scales = arena_new_array(&context->arena, (size_t)channels.count, float);
  for (int64_t c = 0; c < channels.count; c++) {
    scales[c] = find_scale(&channels, c, false);
    if (scales[c] == 0 && near) scales[c] = find_scale(&channels, c, true);
    if (scales[c] == 0) return false;
  }
  size_t count = tensor->size / sizeof(float);
  float *whole = arena_new_array(&context->arena, count, float);
  if (!find_integers(&channels, scales, whole, &is_small)) return false;
  bool packs = half_bytes && is_small;
  Tensor *integers = like(context, tensor, packs ? DTYPE_INT4 : DTYPE_INT8, count);
  uint8_t *bytes = (uint8_t *)(uintptr_t)integers->data;
  for (size_t i = 0; i < count; i++) {
    unsigned bits = (unsigned)(int)whole[i];
    if (packs) bytes[i / 2] |= (uint8_t)((bits & 0xF) << i % 2 * 4);
    else bytes[i] = (uint8_t)bits;
  }
  Tensor *row = arena_new(&context->arena, Tensor);
  *row = (Tensor){.dtype = DTYPE_FLOAT32, .rank = 1, .data = scales, .size = sizeof(float) * (size_t)channels.count};
  row->dims = arena_copy(&context->arena, &tensor->dims[axis], sizeof *row->dims);
  *grid = (Grid){.integers = integers, .scales = row, .axis = axis};
  return true;
}
