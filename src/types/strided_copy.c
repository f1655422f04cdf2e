/* Weights of a model are transposed at export, so this walks as much memory as the model has.
 *
 * Axes that run on into each other are one. Of what is left, the last axis is written in order; some axis is read in
 * order. When they are the same, runs are copied whole; when not, the two are walked in blocks, so that lines of the
 * cache are used up on both sides. */
#include "types/strided_copy.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"

enum { BLOCK = 16 /* elements: a line of the cache or two of the common types */ };

/* One axis of the copy: how often, and how far both sides move each time, in elements. */
typedef struct Axis {
  int64_t count, from, to;
} Axis;

/* The axes without those of size 1, neighbours that run on joined. */
static size_t joined_axes(Axis *axes, const int64_t *dims, const int64_t *strides, size_t rank) {
  size_t count = 0;
  int64_t to = 1;
  for (size_t i = rank; i-- > 0;) {
    if (dims[i] == 1) continue;
    Axis *inner = count ? &axes[count - 1] : NULL;
    if (inner && strides[i] == inner->from * inner->count) inner->count *= dims[i];
    else axes[count++] = (Axis){dims[i], strides[i], to};
    to *= dims[i];
  }
  return count; /* the innermost first */
}

/* A plane of two axes, of elements of one C type. */
#define COPY_PLANE(Type)                                                                            \
  static void copy_plane_##Type(Type *to, const Type *from, const Axis *outer, const Axis *inner) { \
    for (int64_t i = 0; i < outer->count; i += BLOCK) {                                             \
      int64_t rows = outer->count - i < BLOCK ? outer->count - i : BLOCK;                           \
      for (int64_t j = 0; j < inner->count; j += BLOCK) {                                           \
        int64_t columns = inner->count - j < BLOCK ? inner->count - j : BLOCK;                      \
        for (int64_t row = i; row < i + rows; row++) {                                              \
          Type *target = to + row * outer->to + j * inner->to;                                      \
          const Type *source = from + row * outer->from + j * inner->from;                          \
          for (int64_t k = 0; k < columns; k++) target[k * inner->to] = source[k * inner->from];    \
        }                                                                                           \
      }                                                                                             \
    }                                                                                               \
  }
COPY_PLANE(uint8_t)
COPY_PLANE(uint16_t)
COPY_PLANE(uint32_t)
COPY_PLANE(uint64_t)

#ifdef __has_builtin
#if __has_builtin(__builtin_shufflevector)
#define IN_REGISTERS
#endif
#endif

/* Four by four elements: what is read in order is written in steps, and the other way round. */
static void copy_tile(uint32_t *to, const uint32_t *from, int64_t to_step, int64_t from_step) {
#ifdef IN_REGISTERS
  typedef uint32_t Four __attribute__((vector_size(16)));
  Four a, b, c, d;
  memcpy(&a, from, sizeof a);
  memcpy(&b, from + from_step, sizeof b);
  memcpy(&c, from + 2 * from_step, sizeof c);
  memcpy(&d, from + 3 * from_step, sizeof d);
  Four low_ab = __builtin_shufflevector(a, b, 0, 4, 1, 5), high_ab = __builtin_shufflevector(a, b, 2, 6, 3, 7);
  Four low_cd = __builtin_shufflevector(c, d, 0, 4, 1, 5), high_cd = __builtin_shufflevector(c, d, 2, 6, 3, 7);
  a = __builtin_shufflevector(low_ab, low_cd, 0, 1, 4, 5);
  b = __builtin_shufflevector(low_ab, low_cd, 2, 3, 6, 7);
  c = __builtin_shufflevector(high_ab, high_cd, 0, 1, 4, 5);
  d = __builtin_shufflevector(high_ab, high_cd, 2, 3, 6, 7);
  memcpy(to, &a, sizeof a);
  memcpy(to + to_step, &b, sizeof b);
  memcpy(to + 2 * to_step, &c, sizeof c);
  memcpy(to + 3 * to_step, &d, sizeof d);
#else
  for (int i = 0; i < 4; i++) {
    for (int j = 0; j < 4; j++) to[i * to_step + j] = from[j * from_step + i];
  }
#endif
}

/* A plane whose outer axis is read in order and whose inner one is written in order, in blocks of tiles. */
static void turn_plane(uint32_t *to, const uint32_t *from, const Axis *outer, const Axis *inner) {
  int64_t rows = outer->count & ~(int64_t)3, columns = inner->count & ~(int64_t)3;
  for (int64_t i = 0; i < rows; i += BLOCK) {
    int64_t end = rows - i < BLOCK ? rows : i + BLOCK;
    for (int64_t j = 0; j < columns; j += 4) {
      for (int64_t row = i; row < end; row += 4) {
        copy_tile(to + row * outer->to + j, from + row + j * inner->from, outer->to, inner->from);
      }
    }
  }
  Axis below = {outer->count - rows, 1, outer->to}, beside = {inner->count - columns, inner->from, 1};
  Axis whole = {rows, 1, outer->to};
  copy_plane_uint32_t(to + columns, from + columns * inner->from, &whole, &beside);
  copy_plane_uint32_t(to + rows * outer->to, from + rows, &below, inner);
}

/* Elements of other widths (complex128), and of data that does not lie as its type asks. */
static void copy_plane_bytes(char *to, const char *from, size_t width, const Axis *outer, const Axis *inner) {
  for (int64_t i = 0; i < outer->count; i++) {
    for (int64_t j = 0; j < inner->count; j++) {
      copy_bytes(to + (i * outer->to + j * inner->to) * (int64_t)width,
                 from + (i * outer->from + j * inner->from) * (int64_t)width, width);
    }
  }
}

static void copy_plane(char *to, const char *from, size_t width, const Axis *outer, const Axis *inner) {
  if (inner->from == 1 && inner->to == 1) {
    for (int64_t i = 0; i < outer->count; i++) {
      copy_bytes(to + i * outer->to * (int64_t)width, from + i * outer->from * (int64_t)width,
                 (size_t)inner->count * width);
    }
  } else if (((uintptr_t)to | (uintptr_t)from) % width != 0) {
    copy_plane_bytes(to, from, width, outer, inner);
  } else if (width == 1) {
    copy_plane_uint8_t((uint8_t *)to, (const uint8_t *)from, outer, inner);
  } else if (width == 2) {
    copy_plane_uint16_t((uint16_t *)(void *)to, (const uint16_t *)(const void *)from, outer, inner);
  } else if (width == 4 && outer->from == 1 && inner->to == 1) {
    turn_plane((uint32_t *)(void *)to, (const uint32_t *)(const void *)from, outer, inner);
  } else if (width == 4) {
    copy_plane_uint32_t((uint32_t *)(void *)to, (const uint32_t *)(const void *)from, outer, inner);
  } else if (width == 8) {
    copy_plane_uint64_t((uint64_t *)(void *)to, (const uint64_t *)(const void *)from, outer, inner);
  } else {
    copy_plane_bytes(to, from, width, outer, inner);
  }
}

/* Which axis besides the innermost makes the plane: the one that is read in the smallest steps. */
static size_t plane_axis(const Axis *axes, size_t count) {
  size_t best = 1;
  for (size_t i = 2; i < count; i++) {
    if (llabs(axes[i].from) < llabs(axes[best].from)) best = i;
  }
  return best;
}

void strided_copy(void *to, const void *from, size_t width, const int64_t *dims, const int64_t *strides, size_t rank) {
  Axis axes[STRIDED_AXES], once = {1, 0, 0};
  int64_t index[STRIDED_AXES] = {0}, at = 0, target = 0;
  size_t count = joined_axes(axes, dims, strides, rank);
  Axis inner = count > 0 ? axes[0] : once, outer = once;
  if (count > 0) axes[0] = once;
  if (count > 1) {
    size_t best = plane_axis(axes, count);
    outer = axes[best];
    axes[best] = once;
  }
  for (;;) {
    copy_plane((char *)to + target * (int64_t)width, (const char *)from + at * (int64_t)width, width, &outer, &inner);
    size_t axis = 1;
    for (; axis < count; axis++) {
      at += axes[axis].from;
      target += axes[axis].to;
      if (++index[axis] < axes[axis].count) break;
      at -= axes[axis].from * axes[axis].count;
      target -= axes[axis].to * axes[axis].count;
      index[axis] = 0;
    }
    if (axis >= count) return;
  }
}

void plain_strides(const int64_t *dims, size_t rank, int64_t *strides) {
  int64_t stride = 1;
  for (size_t axis = rank; axis-- > 0;) {
    strides[axis] = stride;
    stride *= dims[axis];
  }
}
