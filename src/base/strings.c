/* String table. */
#include "base/strings.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/context.h"
#include "base/map.h"

typedef struct Header {
  uint64_t hash;
  uint32_t length;
  uint32_t mark;
  char text[];
} Header;

static const Header *header_of(Str text) { return (const Header *)(const void *)(text - offsetof(Header, text)); }

size_t str_length(Str text) { return header_of(text)->length; }
uint64_t str_hash(Str text) { return header_of(text)->hash; }

bool str_mark(Str text, uint32_t mark) {
  Header *header = (Header *)(uintptr_t)header_of(text);
  bool is_new = header->mark != mark;
  header->mark = mark;
  return is_new;
}

uint32_t next_mark(Context *context) { return ++context->strings.marks; }

static StringSlot *take_slots(Strings *strings, size_t capacity) {
  size_t size = capacity * sizeof(StringSlot);
  StringSlot *slots = size < LARGE_PAGE ? calloc(capacity, sizeof *slots) : large_pages(size);
  if (!slots) fail(strings->context, ERROR_MEMORY, "strings");
  return slots;
}

static void give_back_slots(const Strings *strings) {
  size_t size = strings->capacity * sizeof(StringSlot);
  if (size < LARGE_PAGE) free(strings->slots);
  else large_pages_free(strings->slots, size);
}

static void grow(Strings *strings, size_t capacity) {
  StringSlot *slots = take_slots(strings, capacity);
  for (size_t i = 0; i < strings->capacity; i++) {
    if (!strings->slots[i].text) continue;
    size_t at = strings->slots[i].hash & (capacity - 1);
    while (slots[at].text) at = (at + 1) & (capacity - 1);
    slots[at] = strings->slots[i];
  }
  give_back_slots(strings);
  strings->slots = slots;
  strings->capacity = capacity;
}

/* At most half of the slots are taken. */
void strings_reserve(Context *context, size_t more) {
  Strings *strings = &context->strings;
  size_t capacity = strings->capacity ? strings->capacity : 1024;
  while (capacity / 2 < strings->count + more) capacity *= 2;
  if (capacity > strings->capacity) grow(strings, capacity);
}

Str str_intern_sized(Context *context, const char *text, size_t length) {
  Strings *strings = &context->strings;
  if (strings->count * 2 >= strings->capacity) strings_reserve(context, 1);
  if (length > UINT32_MAX) fail(context, ERROR_MEMORY, "a text of 4 GiB");
  if (!length) text = ""; /* a field that a file leaves out has no address */
  uint64_t hash = hash_name(context->secret, text, length);
  size_t at = hash & (strings->capacity - 1);
  for (const StringSlot *slot; (slot = &strings->slots[at])->text; at = (at + 1) & (strings->capacity - 1)) {
    if (slot->hash == hash && str_length(slot->text) == length && same_bytes(slot->text, text, length))
      return slot->text;
  }
  Header *header = arena_alloc(&context->arena, sizeof(Header) + length + 1);
  header->hash = hash;
  header->length = (uint32_t)length;
  copy_bytes(header->text, text, length);
  strings->slots[at] = (StringSlot){hash, header->text};
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
  give_back_slots(strings);
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
