/* Moved constants. */
#include "types/moved.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/bytes.h"
#include "types/strided_copy.h"

enum {
  SMALLEST = 64 << 10,   /* bytes: less is copied at once */
  PIECE = 2048 << 10,    /* bytes: stays in the processor's cache */
  LONGEST_ROW = 16 << 20 /* bytes: longer rows would make pieces too large */
};

static int64_t row_elements(const Moved *moved) {
  int64_t count = 1;
  for (size_t i = 1; i < moved->rank; i++) count *= moved->dims[i];
  return count;
}

static size_t row_size(const Moved *moved) { return (size_t)row_elements(moved) * moved->width; }

/* Some steps along the first axis. */
static void make_rows(const Moved *moved, const void *all, int64_t first, int64_t count, void *to) {
  int64_t dims[MAX_RANK], elements = row_elements(moved);
  copy_bytes(dims, moved->dims, moved->rank * sizeof *dims);
  dims[0] = count;
  const char *from = (const char *)all + first * moved->strides[0] * (int64_t)moved->width;
  strided_copy(to, from, moved->width, dims, moved->strides, moved->rank);
  for (int64_t row = 0; moved->scale && row < count; row++) {
    float *numbers = (float *)to + row * elements;
    double factor = moved->scale[first + row];
    for (int64_t i = 0; i < elements; i++) numbers[i] = (float)((double)numbers[i] * factor);
  }
}

static const void *hold_source(const Moved *moved) {
  return moved->fetched ? moved->fetched->hold(moved->fetched) : moved->from;
}

static void let_go_source(const Moved *moved) {
  if (moved->fetched) moved->fetched->let_go(moved->fetched);
}

void tensor_ready(const Tensor *tensor) {
  if (tensor->data) return;
  if (tensor->fetched) ((Tensor *)(uintptr_t)tensor)->data = tensor->fetched->hold(tensor->fetched);
  if (!tensor->moved) return;
  Moved *moved = (Moved *)(uintptr_t)tensor->moved;
  if (!moved->whole) {
    char *whole = arena_alloc(&moved->context->arena, tensor->size);
    make_rows(moved, hold_source(moved), 0, moved->dims[0], whole);
    let_go_source(moved);
    moved->whole = whole;
  }
  ((Tensor *)(uintptr_t)tensor)->data = moved->whole;
}

Segment tensor_segment(const Tensor *tensor) {
  if (tensor->data) return (Segment){.data = tensor->data, .size = tensor->size};
  return (Segment){.size = tensor->size, .moved = tensor->moved, .fetched = tensor->fetched};
}

bool segment_start(const Segment *segment, unsigned distance) {
  if (segment->data || segment->moved || !segment->fetched) return false;
  segment->fetched->start(segment->fetched, distance);
  return true;
}

void pieces_reserve(Pieces *pieces, const Moved *moved) {
  size_t row = row_size(moved), size = row > PIECE ? row : PIECE;
  if (size > pieces->capacity) *pieces = (Pieces){arena_alloc(&moved->context->arena, size), size};
}

static void moved_each_piece(const Moved *moved, Pieces *pieces, PieceFunction *visit, void *data) {
  size_t row = row_size(moved);
  int64_t rows = row > PIECE ? 1 : (int64_t)(PIECE / row);
  pieces_reserve(pieces, moved);
  const void *all = hold_source(moved);
  for (int64_t first = 0; first < moved->dims[0]; first += rows) {
    int64_t count = moved->dims[0] - first < rows ? moved->dims[0] - first : rows;
    make_rows(moved, all, first, count, pieces->buffer);
    visit(pieces->buffer, (size_t)count * row, data);
  }
  let_go_source(moved);
}

void segment_each_piece(const Segment *segment, Pieces *pieces, PieceFunction *visit, void *data) {
  if (segment->moved) moved_each_piece(segment->moved, pieces, visit, data);
  else if (segment->fetched) segment->fetched->each_piece(segment->fetched, visit, data);
  else visit(segment->data, segment->size, data);
}

/* ---- making them ---- */

static Tensor *with_dims(Context *context, const Tensor *x, const int64_t *dims) {
  Tensor *tensor = arena_copy(&context->arena, x, sizeof *x);
  tensor->dims = arena_copy(&context->arena, dims, x->rank * sizeof *dims);
  tensor->name = NULL;
  return tensor;
}

static bool in_place(const int64_t *dims, const int64_t *strides, size_t rank) {
  int64_t plain[MAX_RANK];
  plain_strides(dims, rank, plain);
  for (size_t i = 0; i < rank; i++) {
    if (dims[i] != 1 && strides[i] != plain[i]) return false;
  }
  return true;
}

static Tensor *deferred(Context *context, const Tensor *x, const int64_t *dims, const int64_t *strides) {
  Moved moved = {.context = context, .from = x->data, .fetched = x->data ? NULL : x->fetched};
  moved.width = dtype_bytes(x->dtype, 1);
  moved.rank = x->rank;
  copy_bytes(moved.dims, dims, x->rank * sizeof *dims);
  copy_bytes(moved.strides, strides, x->rank * sizeof *strides);
  if (row_size(&moved) > LONGEST_ROW) return NULL;
  Tensor *tensor = with_dims(context, x, dims);
  tensor->data = NULL;
  tensor->fetched = NULL;
  tensor->stored = NULL;
  tensor->moved = arena_copy(&context->arena, &moved, sizeof moved);
  return tensor;
}

const Tensor *moved_tensor(Context *context, const Tensor *x, const int64_t *dims, const int64_t *strides) {
  if (x->size == 0 || x->rank == 0 || x->rank > MAX_RANK) return NULL;
  if (in_place(dims, strides, x->rank)) return with_dims(context, x, dims);
  if (x->size < SMALLEST || dtype_bits(x->dtype) < 8) return NULL;
  if (!x->fetched) tensor_ready(x);
  return deferred(context, x, dims, strides);
}

/* The largest magnitude among float32 numbers; infinite when one is not finite. */
static float largest_magnitude(const char *numbers, size_t count) {
  uint32_t largest = 0; /* magnitudes have the order of their bits, and those of NaN are above all */
  for (size_t i = 0; i < count; i++) {
    uint32_t bits;
    memcpy(&bits, numbers + i * sizeof bits, sizeof bits);
    bits &= 0x7FFFFFFF;
    largest = bits > largest ? bits : largest;
  }
  float magnitude;
  memcpy(&magnitude, &largest, sizeof magnitude);
  return isfinite(magnitude) ? magnitude : INFINITY;
}

/* The scale of what was scaled before comes to it. */
static double *both_scales(Context *context, const double *first, const double *second, int64_t count) {
  double *both = arena_new_array(&context->arena, (size_t)count, double);
  for (int64_t i = 0; i < count; i++) both[i] = second[i] * (first ? first[i] : 1);
  return both;
}

static bool can_be_scaled(const Tensor *x, const double *scale, int64_t rows) {
  const char *numbers = x->data ? x->data : hold_source(x->moved);
  double largest = 0;
  for (int64_t i = 0; i < rows; i++) largest = fmax(largest, fabs(scale[i]));
  double magnitude = (double)largest_magnitude(numbers, x->size / sizeof(float));
  if (!x->data) let_go_source(x->moved);
  return magnitude * largest <= (double)FLT_MAX;
}

Tensor *moved_scaled(Context *context, const Tensor *x, const double *scale) {
  if (x->dtype != DTYPE_FLOAT32 || x->rank < 1 || x->rank > MAX_RANK || x->size == 0) return NULL;
  if (!x->data && (!x->moved || x->moved->dims[0] != x->dims[0])) tensor_ready(x);
  const Moved *before = x->data ? NULL : x->moved;
  int64_t rows = x->dims[0], strides[MAX_RANK];
  const double *factors = both_scales(context, before ? before->scale : NULL, scale, rows);
  if (!can_be_scaled(x, factors, rows)) return NULL;
  plain_strides(x->dims, x->rank, strides);
  Tensor *tensor = before ? with_dims(context, x, x->dims) : deferred(context, x, x->dims, strides);
  if (!tensor) return NULL;
  Moved *moved = arena_copy(&context->arena, tensor->moved, sizeof *moved);
  moved->scale = factors;
  moved->whole = NULL;
  tensor->moved = moved;
  tensor->name = x->name;
  if (x->size < SMALLEST) tensor_ready(tensor);
  return tensor;
}
