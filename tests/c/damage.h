/* What is damaged is read or refused: a text cut short at every place, and with another character at every place. */
#ifndef J2O_TESTS_C_DAMAGE_H
#define J2O_TESTS_C_DAMAGE_H

#include <stdlib.h>

#include "test.h"

/* Reads a text; true when that went well, or when it was refused as it should be. */
typedef bool ReadsOrRefuses(const char *text, size_t length);

/* A copy of exactly this size, so that reading one byte too far is seen. */
static inline char *exact_copy(const char *text, size_t length) {
  char *copy = malloc(length ? length : 1);
  memcpy(copy, text, length);
  return copy;
}

static inline void check_damaged(const char *text, const char *others, size_t other_count, ReadsOrRefuses *read) {
  size_t length = strlen(text);
  for (size_t cut = 0; cut < length; cut++) {
    char *copy = exact_copy(text, cut);
    CHECK(read(copy, cut));
    free(copy);
  }
  for (size_t at = 0; at < length; at++) {
    char *copy = exact_copy(text, length);
    copy[at] = others[at % other_count];
    CHECK(read(copy, length));
    free(copy);
  }
}

#endif
