/* Growable arrays in the arena: struct { T *items; size_t count, capacity; } and array_push. */
#ifndef J2O_BASE_ARRAY_H
#define J2O_BASE_ARRAY_H

#include <string.h>

#include "base/bytes.h"
#include "base/context.h"

#define ARRAY(type)         \
  struct {                  \
    type *items;            \
    size_t count, capacity; \
  }

/* Old storage stays in the arena until the conversion ends: growth by doubling bounds the waste to once the size. */
static inline void *array_grown(Context *context, const void *items, size_t count, size_t *capacity, size_t size) {
  size_t larger = *capacity ? *capacity * 2 : 8;
  void *grown = arena_alloc_array(&context->arena, larger, size);
  copy_bytes(grown, items, count * size);
  *capacity = larger;
  return grown;
}

/* Room for exactly so many, where that is known beforehand. */
#define array_reserve(context, array, count)                                                  \
  do {                                                                                        \
    if (!(array)->capacity && (count)) {                                                      \
      (array)->items = arena_alloc_array(&(context)->arena, (count), sizeof *(array)->items); \
      (array)->capacity = (count);                                                            \
    }                                                                                         \
  } while (0)

#define array_push(context, array, item)                                                                      \
  do {                                                                                                        \
    if ((array)->count == (array)->capacity)                                                                  \
      (array)->items =                                                                                        \
          array_grown((context), (array)->items, (array)->count, &(array)->capacity, sizeof *(array)->items); \
    (array)->items[(array)->count++] = (item);                                                                \
  } while (0)

#endif
