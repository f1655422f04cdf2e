/* Interned strings: equal text is one pointer, so names compare by address. */
#ifndef J2O_BASE_STRINGS_H
#define J2O_BASE_STRINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/bytes.h"

typedef struct Context Context;
typedef const char *Str; /* interned, NUL-terminated */

typedef struct StringSlot {
  uint64_t hash; /* so that what else stands in a slot is told apart without reading it */
  Str text;      /* NULL: free */
} StringSlot;

typedef struct Strings {
  Context *context;
  StringSlot *slots; /* open addressing, power of two */
  size_t capacity, count;
  uint32_t marks; /* that were given */
} Strings;

Str str_intern(Context *context, const char *text);
Str str_intern_sized(Context *context, const char *text, size_t length);
/* Makes room for so many more, where that is known beforehand. */
void strings_reserve(Context *context, size_t more);
size_t str_length(Str text); /* stored, not counted */
uint64_t str_hash(Str text); /* stored */
/* Sets the mark of a text, 0 at first; false when it has it. Marks are those that next_mark gives: each use has its
 * own. */
bool str_mark(Str text, uint32_t mark);
uint32_t next_mark(Context *context);
void strings_release(Strings *strings);

/* Names from a file may hold a NUL: of an interned text every byte counts. */
static inline bool str_is(Str text, const char *literal) {
  size_t length = strlen(literal);
  return str_length(text) == length && same_bytes(text, literal, length);
}
/* What GNU's library has, and others have not: NULL when it is not there. */
const char *find_bytes(const char *text, size_t length, const char *part, size_t part_length);
const char *find_last(const char *text, size_t length, char letter);
const char *find_in_any_case(const char *text, const char *part);

int str_compare(Str a, Str b);
bool str_begins(Str text, const char *beginning);

/* Of any two texts. Names looked up in a table mostly differ in their first letter, and a call costs more than that. */
static inline bool same_text(const char *a, const char *b) { return *a == *b && strcmp(a, b) == 0; }

#endif
