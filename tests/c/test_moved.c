/* Constants that are transposed and scaled while they are written. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "test.h"
#include "types/moved.h"

enum { FIRST = 70, SECOND = 9, THIRD = 2100 /* more than one piece, and the last one is not whole */ };

static Tensor numbers(Context *context, const int64_t *dims, size_t rank) {
  size_t count = 1;
  for (size_t i = 0; i < rank; i++) count *= (size_t)dims[i];
  float *data = arena_new_array(&context->arena, count, float);
  for (size_t i = 0; i < count; i++) data[i] = (float)((double)i * 0.37 - 1000);
  return (Tensor){
      .dtype = DTYPE_FLOAT32, .rank = (uint32_t)rank, .dims = dims, .data = data, .size = count * sizeof *data};
}

typedef struct Collected {
  char *bytes;
  size_t size, pieces;
} Collected;

static void collect(const void *bytes, size_t size, void *data) {
  Collected *collected = data;
  memcpy(collected->bytes + collected->size, bytes, size);
  collected->size += size;
  collected->pieces++;
}

static Collected in_pieces(Context *context, const Tensor *tensor) {
  Pieces pieces = {0};
  Collected collected = {.bytes = arena_alloc(&context->arena, tensor->size)};
  Segment segment = {.size = tensor->size, .moved = tensor->moved};
  segment_each_piece(&segment, &pieces, collect, &collected);
  return collected;
}

/* [FIRST, SECOND, THIRD] with its last axis first. */
static const Tensor *last_axis_first(Context *context, const Tensor *x) {
  static const int64_t dims[] = {THIRD, FIRST, SECOND}, strides[] = {1, SECOND * THIRD, THIRD};
  return moved_tensor(context, x, dims, strides);
}

static void moved_constants_are_made_in_pieces(void) {
  static const int64_t dims[] = {FIRST, SECOND, THIRD};
  Context context;
  context_init(&context);
  Tensor x = numbers(&context, dims, 3);
  const Tensor *moved = last_axis_first(&context, &x);
  CHECK(moved && !moved->data && moved->moved && moved->dims[0] == THIRD && moved->size == x.size);
  CHECK(tensor_segment(moved).moved == moved->moved && tensor_segment(&x).data == x.data);
  Collected collected = in_pieces(&context, moved);
  CHECK(collected.pieces > 1 && collected.size == x.size);
  const float *from = x.data, *found = (const float *)(void *)collected.bytes;
  for (int64_t i = 0; i < THIRD; i++) {
    for (int64_t j = 0; j < FIRST * SECOND; j++) CHECK(found[i * FIRST * SECOND + j] == from[j * THIRD + i]);
  }
  tensor_ready(moved);
  CHECK(moved->data && memcmp(moved->data, found, x.size) == 0 && tensor_segment(moved).data == moved->data);
  context_release(&context);
}

static void what_stays_in_place_is_not_moved(void) {
  static const int64_t dims[] = {1, FIRST, THIRD}, turned[] = {FIRST, THIRD, 1}, strides[] = {THIRD, 1, FIRST * THIRD};
  static const int64_t few[] = {2, 3}, few_turned[] = {3, 2}, few_strides[] = {1, 3};
  Context context;
  context_init(&context);
  Tensor x = numbers(&context, dims, 3), small = numbers(&context, few, 2);
  const Tensor *same = moved_tensor(&context, &x, turned, strides);
  CHECK(same && same->data == x.data && same->dims[2] == 1);
  CHECK(!moved_tensor(&context, &small, few_turned, few_strides)); /* the caller copies */
  context_release(&context);
}

static void moved_constants_are_scaled_by_row(void) {
  static const int64_t dims[] = {FIRST, SECOND, THIRD};
  double scale[THIRD], again[THIRD];
  Context context;
  context_init(&context);
  for (int i = 0; i < THIRD; i++) {
    scale[i] = 1.0 / (i + 3);
    again[i] = i - 7;
  }
  Tensor x = numbers(&context, dims, 3);
  const Tensor *moved = last_axis_first(&context, &x);
  const Tensor *scaled = moved_scaled(&context, moved, scale);
  const Tensor *twice = moved_scaled(&context, scaled, again);
  CHECK(scaled && twice && !moved->data && !scaled->data && !twice->data);
  tensor_ready(moved);
  tensor_ready(scaled);
  const float *from = moved->data, *once = scaled->data,
              *found = (const float *)(void *)in_pieces(&context, twice).bytes;
  for (int64_t i = 0; i < THIRD * FIRST * SECOND; i++) {
    int64_t row = i / (FIRST * SECOND);
    CHECK(once[i] == (float)((double)from[i] * scale[row]));
    CHECK(found[i] == (float)((double)from[i] * (again[row] * scale[row])));
  }
  context_release(&context);
}

static void what_would_leave_its_range_is_not_scaled(void) {
  static const int64_t dims[] = {3, 2};
  static const double large[] = {1, 1e36, 1}, ordinary[] = {1, 2, 3};
  Context context;
  context_init(&context);
  Tensor x = numbers(&context, dims, 2);
  CHECK(!moved_scaled(&context, &x, large));
  const Tensor *scaled = moved_scaled(&context, &x, ordinary);
  CHECK(scaled && scaled->data && ((const float *)scaled->data)[4] == 3 * ((const float *)x.data)[4]);
  ((float *)(uintptr_t)x.data)[5] = NAN;
  CHECK(!moved_scaled(&context, &x, ordinary));
  x.dtype = DTYPE_INT32;
  CHECK(!moved_scaled(&context, &x, ordinary));
  context_release(&context);
}

const Test moved_tests[] = {
    {"moved_constants_are_made_in_pieces", moved_constants_are_made_in_pieces},
    {"what_stays_in_place_is_not_moved", what_stays_in_place_is_not_moved},
    {"moved_constants_are_scaled_by_row", moved_constants_are_scaled_by_row},
    {"what_would_leave_its_range_is_not_scaled", what_would_leave_its_range_is_not_scaled},
    {0},
};
