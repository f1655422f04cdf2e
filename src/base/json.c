/* JSON. */
#include "base/json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"

enum { MAX_DEPTH = 64, LONGEST_NUMBER = 63 };

void json_init(Json *json, Context *context, const void *bytes, size_t size, const char *path, const char *kind) {
  const char *start = bytes;
  *json = (Json){.context = context, .path = path, .kind = kind, .start = start, .at = start, .end = start};
  if (size) json->end += size;
  builder_init(&json->text, context);
}

void json_fail(Json *json, const char *wanted) {
  fail(json->context, ERROR_VALUE, "%s: not %s: expected %s at byte %zu", json->path, json->kind, wanted,
       (size_t)(json->at - json->start));
}

char json_next(Json *json) {
  while (json->at < json->end && memchr(" \t\r\n", *json->at, 4)) json->at++;
  return json->at < json->end ? *json->at : '\0';
}

bool json_take(Json *json, char letter) {
  if (json_next(json) != letter) return false;
  json->at++;
  return true;
}

void json_expect(Json *json, char letter, const char *wanted) {
  if (!json_take(json, letter)) json_fail(json, wanted);
}

static unsigned read_hex(Json *json) {
  unsigned number = 0;
  for (int i = 0; i < 4; i++, json->at++) {
    static const char digits[] = "0123456789abcdefABCDEF";
    const char *digit = json->at < json->end && *json->at ? strchr(digits, *json->at) : NULL;
    if (!digit) json_fail(json, "a hexadecimal digit");
    unsigned value = (unsigned)(digit - digits);
    number = number * 16 + (value < 16 ? value : value - 6);
  }
  return number;
}

static void add_code_point(Builder *text, unsigned code) {
  char bytes[4];
  size_t count = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
  static const unsigned char heads[] = {0, 0, 0xC0, 0xE0, 0xF0};
  for (size_t i = count; i-- > 1; code >>= 6) bytes[i] = (char)(0x80 | (code & 0x3F));
  bytes[0] = (char)(heads[count] | code);
  builder_add_sized(text, bytes, count);
}

static void read_escape(Json *json) {
  static const char letters[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
  char letter = json->at < json->end ? *json->at : '\0';
  const char *known = letter ? strchr(letters, letter) : NULL;
  if (!known && letter != 'u') json_fail(json, "an escape");
  json->at++;
  if (known) {
    builder_add_sized(&json->text, &meant[known - letters], 1);
    return;
  }
  unsigned code = read_hex(json);
  bool is_high = code >= 0xD800 && code < 0xDC00;
  if (is_high && json->end - json->at >= 2 && json->at[0] == '\\' && json->at[1] == 'u') {
    json->at += 2;
    code = 0x10000 + ((code - 0xD800) << 10) + ((read_hex(json) - 0xDC00) & 0x3FF);
  }
  add_code_point(&json->text, code);
}

Str json_string(Json *json) {
  json_expect(json, '"', "a string");
  json->text.length = 0;
  while (json->at < json->end && *json->at != '"') {
    if (*json->at++ == '\\') read_escape(json);
    else builder_add_sized(&json->text, json->at - 1, 1);
  }
  if (json->at == json->end) json_fail(json, "the end of a string");
  json->at++;
  return str_intern_sized(json->context, builder_text(&json->text), json->text.length);
}

static bool is_number_letter(char c) { return (c >= '0' && c <= '9') || memchr("+-.eE", c, 5) != NULL; }

double json_number(Json *json) {
  json_next(json);
  char text[LONGEST_NUMBER + 1] = "";
  size_t length = 0;
  while (json->at + length < json->end && is_number_letter(json->at[length]) && length < LONGEST_NUMBER) {
    text[length] = json->at[length];
    length++;
  }
  char *stop;
  double number = strtod(text, &stop);
  if (!length || *stop || !isfinite(number)) json_fail(json, "a number");
  json->at += length;
  return number;
}

uint64_t json_natural(Json *json) {
  json_next(json);
  const char *first = json->at;
  uint64_t number = 0;
  for (; json->at < json->end && *json->at >= '0' && *json->at <= '9'; json->at++) {
    bool fits = !__builtin_mul_overflow(number, 10, &number);
    if (!fits || __builtin_add_overflow(number, (uint64_t)(*json->at - '0'), &number))
      json_fail(json, "a smaller number");
  }
  if (json->at == first) json_fail(json, "a whole number");
  return number;
}

static void pass_value(Json *json, int depth) {
  char letter = json_next(json);
  if (depth == MAX_DEPTH) json_fail(json, "less nesting");
  if (letter == '"') {
    json_string(json);
  } else if (letter == '{' || letter == '[') {
    char close = letter == '{' ? '}' : ']';
    json->at++;
    if (json_take(json, close)) return;
    do {
      if (letter == '{') {
        json_string(json);
        json_expect(json, ':', "':'");
      }
      pass_value(json, depth + 1);
    } while (json_take(json, ','));
    json_expect(json, close, "',' or the end of the list");
  } else {
    static const char *const words[] = {"true", "false", "null"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
      size_t length = strlen(words[i]);
      if ((size_t)(json->end - json->at) < length || !same_bytes(json->at, words[i], length)) continue;
      json->at += length;
      return;
    }
    json_number(json);
  }
}

void json_pass(Json *json) { pass_value(json, 0); }
