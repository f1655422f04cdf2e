/* Builder: storage comes from the arena, so an unwinding error leaks nothing. */
#include "base/builder.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/context.h"

void builder_init(Builder *builder, Context *context) { *builder = (Builder){.context = context}; }

bool builder_is_whole(const Builder *builder) { return !builder->limit || builder->length <= builder->limit; }

/* False when the text is only counted. */
static bool reserve(Builder *builder, size_t more) {
  if (builder->length + more + 1 <= builder->capacity) return true;
  if (builder->limit && builder->length + more > builder->limit) {
    builder->capacity = 0; /* nothing is kept from here on */
    return false;
  }
  size_t capacity = builder->capacity ? builder->capacity * 2 : 256;
  while (capacity < builder->length + more + 1) capacity *= 2;
  char *text = arena_alloc(&builder->context->arena, capacity);
  copy_bytes(text, builder->text, builder->length);
  builder->text = text;
  builder->capacity = capacity;
  return true;
}

void builder_add_sized(Builder *builder, const char *text, size_t length) {
  bool kept = reserve(builder, length);
  if (kept) copy_bytes(builder->text + builder->length, text, length);
  builder->length += length;
  if (kept) builder->text[builder->length] = '\0';
}

void builder_add(Builder *builder, const char *text) { builder_add_sized(builder, text, strlen(text)); }

void builder_add_number(Builder *builder, uint64_t number) {
  char digits[20], *at = digits + sizeof digits;
  do *--at = (char)('0' + number % 10);
  while (number /= 10);
  builder_add_sized(builder, at, (size_t)(digits + sizeof digits - at));
}

/* Mostly there is room, and the text is made once. */
void builder_format(Builder *builder, const char *format, ...) {
  va_list arguments, again;
  va_start(arguments, format);
  va_copy(again, arguments);
  size_t room = builder->capacity > builder->length ? builder->capacity - builder->length : 0;
  int length = vsnprintf(room ? builder->text + builder->length : NULL, room, format, arguments);
  va_end(arguments);
  if (length > 0) {
    bool fits = (size_t)length < room;
    if (room && !fits) builder->text[builder->length] = '\0'; /* what is kept ends there if this is not */
    if (!fits && reserve(builder, (size_t)length)) {
      vsnprintf(builder->text + builder->length, (size_t)length + 1, format, again);
    }
    builder->length += (size_t)length;
  }
  va_end(again);
}

const char *builder_text(Builder *builder) { return builder->text ? builder->text : ""; }
