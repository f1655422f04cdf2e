/* Bytes and items of which there may be none. The C library wants an address even then, and what a file leaves out or
 * an empty array has none: every copy, comparison, search and sort of a size that is not a constant goes through here,
 * which `make lint` proves. */
#ifndef J2O_BASE_BYTES_H
#define J2O_BASE_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static inline void copy_bytes(void *to, const void *from, size_t size) {
  if (size) memcpy(to, from, size);
}

/* The two may overlap. */
static inline void move_bytes(void *to, const void *from, size_t size) {
  if (size) memmove(to, from, size);
}

static inline void fill_bytes(void *to, int byte, size_t size) {
  if (size) memset(to, byte, size);
}

static inline int compare_bytes(const void *a, const void *b, size_t size) { return size ? memcmp(a, b, size) : 0; }

static inline bool same_bytes(const void *a, const void *b, size_t size) { return compare_bytes(a, b, size) == 0; }

/* NULL when it is not among them. */
static inline const char *find_letter(const void *text, char letter, size_t length) {
  return length ? memchr(text, letter, length) : NULL;
}

static inline void sort_items(void *items, size_t count, size_t size, int (*compare)(const void *, const void *)) {
  if (count > 1) qsort(items, count, size, compare);
}

#endif
