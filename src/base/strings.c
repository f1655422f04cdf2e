/* String table. */
#include "base/strings.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/context.h"
#include "base/map.h"

typedef struct Header {
  uint64_t hash;
  size_t length;
  char text[];
} Header;

static const Header *header_of(Str text) { return (const Header *)(const void *)(text - offsetof(Header, text)); }

size_t str_length(Str text) { return header_of(text)->length; }
uint64_t str_hash(Str text) { return header_of(text)->hash; }

static void grow(Strings *strings) {
  size_t capacity = strings->capacity ? strings->capacity * 2 : 1024;
  Str *slots = calloc(capacity, sizeof *slots);
  if (!slots) fail(strings->context, ERROR_MEMORY, "strings");
  for (size_t i = 0; i < strings->capacity; i++) {
    if (!strings->slots[i]) continue;
    size_t at = str_hash(strings->slots[i]) & (capacity - 1);
    while (slots[at]) at = (at + 1) & (capacity - 1);
    slots[at] = strings->slots[i];
  }
  free(strings->slots);
  strings->slots = slots;
  strings->capacity = capacity;
}

Str str_intern_sized(Context *context, const char *text, size_t length) {
  Strings *strings = &context->strings;
  if (strings->count * 2 >= strings->capacity) grow(strings);
  if (!length) text = ""; /* a field that a file leaves out has no address */
  uint64_t hash = hash_name(context->secret, text, length);
  size_t at = hash & (strings->capacity - 1);
  for (; strings->slots[at]; at = (at + 1) & (strings->capacity - 1)) {
    Str known = strings->slots[at];
    if (str_hash(known) == hash && str_length(known) == length && same_bytes(known, text, length)) return known;
  }
  Header *header = arena_alloc(&context->arena, sizeof(Header) + length + 1);
  header->hash = hash;
  header->length = length;
  copy_bytes(header->text, text, length);
  strings->slots[at] = header->text;
  strings->count++;
  return header->text;
}

Str str_intern(Context *context, const char *text) { return str_intern_sized(context, text, strlen(text)); }

int str_compare(Str a, Str b) {
  if (a == b) return 0;
  size_t one = str_length(a), two = str_length(b);
  int order = compare_bytes(a, b, one < two ? one : two);
  return order ? order : (one > two) - (one < two);
}

bool str_begins(Str text, const char *beginning) {
  size_t length = strlen(beginning);
  return str_length(text) >= length && same_bytes(text, beginning, length);
}

void strings_release(Strings *strings) {
  free(strings->slots);
  strings->slots = NULL;
  strings->capacity = strings->count = 0;
}

const char *find_bytes(const char *text, size_t length, const char *part, size_t part_length) {
  if (!part_length) return text;
  for (const char *end = text + length; (size_t)(end - text) >= part_length; text++) {
    text = find_letter(text, *part, (size_t)(end - text) - part_length + 1);
    if (!text || same_bytes(text, part, part_length)) return text;
  }
  return NULL;
}

const char *find_last(const char *text, size_t length, char letter) {
  while (length--) {
    if (text[length] == letter) return text + length;
  }
  return NULL;
}

static char lower_letter(char letter) { return letter >= 'A' && letter <= 'Z' ? (char)(letter - 'A' + 'a') : letter; }

const char *find_in_any_case(const char *text, const char *part) {
  for (;; text++) {
    size_t same = 0;
    while (part[same] && lower_letter(text[same]) == lower_letter(part[same])) same++;
    if (!part[same]) return text;
    if (!*text) return NULL;
  }
}
