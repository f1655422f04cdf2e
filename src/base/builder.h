/* Builder: text that grows at its end, in the arena. */
#ifndef J2O_BASE_BUILDER_H
#define J2O_BASE_BUILDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct Context Context;

typedef struct Builder {
  Context *context;
  char *text; /* NUL-terminated once anything was added */
  size_t length, capacity;
  size_t limit; /* text beyond it is counted and not kept; 0: there is none */
} Builder;

void builder_init(Builder *builder, Context *context);
void builder_add(Builder *builder, const char *text);
void builder_add_sized(Builder *builder, const char *text, size_t length);
void builder_add_number(Builder *builder, uint64_t number); /* in decimal digits */
void builder_format(Builder *builder, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool builder_is_whole(const Builder *builder); /* nothing went beyond the limit */
const char *builder_text(Builder *builder);    /* "" when empty; lives in the arena */

#endif
