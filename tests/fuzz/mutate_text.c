/* Changing texts: programs, records and graphs. Most of a text stays what it was, so that what reads it gets far. */
#include <stdlib.h>
#include <string.h>

#include "mutate.h"

typedef struct Range {
  size_t start, end;
} Range;

static bool is_word(uint8_t c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '.' || c == '-';
}

/* The token around a place: a word, a number, or a single character. */
static Range token_at(const Bytes *text, size_t at) {
  Range token = {at, at + 1};
  if (!is_word(text->data[at])) return token;
  while (token.start && is_word(text->data[token.start - 1])) token.start--;
  while (token.end < text->size && is_word(text->data[token.end])) token.end++;
  return token;
}

static Range some_token(Random *random, const Bytes *text) {
  Range token = {0, 0};
  for (int tries = 0; tries < 16 && text->size; tries++) { /* spaces are most of it, and mean nothing */
    token = token_at(text, random_below(random, text->size));
    if (text->data[token.start] > ' ') break;
  }
  return token;
}

static Range some_line(Random *random, const Bytes *text) {
  if (!text->size) return (Range){0, 0};
  size_t at = random_below(random, text->size);
  Range line = {at, at};
  while (line.start && text->data[line.start - 1] != '\n') line.start--;
  while (line.end < text->size && text->data[line.end] != '\n') line.end++;
  if (line.end < text->size) line.end++;
  return line;
}

static void replace(Bytes *text, Range range, const void *by, size_t size) {
  size_t whole = text->size - (range.end - range.start) + size;
  if (whole > LARGEST_MUTANT) return;
  uint8_t *data = malloc(whole + 1);
  if (!data) abort();
  memcpy(data, text->data, range.start);
  if (size) memcpy(data + range.start, by, size);
  memcpy(data + range.start + size, text->data + range.end, text->size - range.end);
  free(text->data);
  *text = (Bytes){data, whole};
}

/* What every reader of texts knows, and what none expects. */
static const char *const words[] = {"0",
                                    "1",
                                    "-1",
                                    "2",
                                    "3",
                                    "7",
                                    "8",
                                    "127",
                                    "128",
                                    "255",
                                    "65536",
                                    "2147483647",
                                    "4294967296",
                                    "9223372036854775807",
                                    "-9223372036854775808",
                                    "99999999999999999999",
                                    "1e308",
                                    "nan",
                                    "inf",
                                    "-0.0",
                                    "0.5",
                                    "n",
                                    "b",
                                    "None",
                                    "True",
                                    "False",
                                    "f32",
                                    "f16",
                                    "bf16",
                                    "f64",
                                    "i32",
                                    "i64",
                                    "u8",
                                    "u64",
                                    "bool",
                                    "c64",
                                    "key",
                                    "i4",
                                    "f8_e4m3fn",
                                    "float",
                                    "int64",
                                    "[",
                                    "]",
                                    "(",
                                    ")",
                                    "{",
                                    "}",
                                    "<",
                                    ">",
                                    "=",
                                    ",",
                                    ":",
                                    ";",
                                    "\"",
                                    "%0",
                                    "%1",
                                    "%2",
                                    "_",
                                    "@",
                                    "[]",
                                    "[-1]",
                                    "[0]",
                                    "[0, 0]",
                                    "[5]",
                                    "tensor",
                                    "record",
                                    "enum",
                                    "jaxpr",
                                    "j0",
                                    "j1",
                                    "dim(n)",
                                    "dim(2*n - 1)",
                                    "dtype(i32)",
                                    "effects",
                                    "consts",
                                    "\xff",
                                    "\xe2\x80\xae",
                                    "\x1b[31m",
                                    "\\x00",
                                    "\"a\\x1b\"",
                                    "f32[0]",
                                    "f32[]",
                                    "f32[1,1,1,1,1,1]",
                                    "f32[n]",
                                    "f32[2,3]",
                                    "i32[4]",
                                    "bool[3]",
                                    "key[]",
                                    "float[2,3]",
                                    "float[N]",
                                    "int64[2]",
                                    "float",
                                    "{1, 2}",
                                    "=> ()",
                                    "opset_import: [\"\" : 20]"};

static void replace_token(Random *random, Bytes *text, const Bytes *donor) {
  Range token = some_token(random, text);
  size_t choice = random_below(random, 4);
  if (choice == 0) {
    Range other = some_token(random, donor);
    replace(text, token, donor->data + other.start, other.end - other.start);
  } else if (choice == 1) {
    Bytes copy = {malloc(text->size + 1), text->size};
    if (!copy.data) abort();
    memcpy(copy.data, text->data, text->size);
    Range other = some_token(random, text);
    replace(text, token, copy.data + other.start, other.end - other.start);
    free(copy.data);
  } else {
    const char *word = words[random_below(random, sizeof words / sizeof *words)];
    replace(text, token, word, strlen(word));
  }
}

/* A number a little beside itself: an axis, a size, a count that no longer fits. */
static void nudge(Random *random, Bytes *text) {
  for (int tries = 0; tries < 32; tries++) {
    Range token = some_token(random, text);
    if (token.end == token.start || text->data[token.start] < '0' || text->data[token.start] > '9') continue;
    char number[48] = {0};
    size_t size = token.end - token.start;
    if (size >= sizeof number - 24) continue;
    memcpy(number, text->data + token.start, size);
    long long value = strtoll(number, NULL, 10), steps[] = {1, -1, 2, -2, 7, -8, 64, 1 << 20};
    long long step = steps[random_below(random, sizeof steps / sizeof *steps)];
    value = (long long)((unsigned long long)value + (unsigned long long)step);
    char digits[24];
    size_t length = 0;
    unsigned long long left = value < 0 ? 0ull - (unsigned long long)value : (unsigned long long)value;
    do digits[length++] = (char)('0' + left % 10);
    while (left /= 10);
    if (value < 0) digits[length++] = '-';
    for (size_t i = 0; i < length / 2; i++) {
      char swapped = digits[i];
      digits[i] = digits[length - 1 - i];
      digits[length - 1 - i] = swapped;
    }
    replace(text, token, digits, length);
    return;
  }
}

static void insert_line(Random *random, Bytes *text, const Bytes *donor, bool many) {
  Range line = some_line(random, donor);
  size_t size = line.end - line.start, count = 1;
  Range place = some_line(random, text);
  if (many && size) count = 1 + random_below(random, (LARGEST_MUTANT / 8) / size + 1);
  uint8_t *lines = malloc(count * size + 1);
  if (!lines) abort();
  for (size_t i = 0; i < count; i++) memcpy(lines + i * size, donor->data + line.start, size);
  replace(text, (Range){place.start, place.start}, lines, count * size);
  free(lines);
}

void mutate_text(Random *random, Bytes *text, const Bytes *donor) {
  if (!text->size) return;
  size_t choice = random_below(random, 32);
  if (choice == 0) text->data[random_below(random, text->size)] ^= (uint8_t)(1u << random_below(random, 8));
  else if (choice == 1) text->size -= random_below(random, text->size / 2 + 1);
  else if (choice <= 3) replace(text, some_line(random, text), NULL, 0);
  else if (choice <= 5) replace(text, some_token(random, text), NULL, 0);
  else if (choice == 6) insert_line(random, text, donor, false);
  else if (choice == 7) insert_line(random, text, donor, random_below(random, 8) == 0);
  else if (choice <= 16) nudge(random, text);
  else replace_token(random, text, donor);
}
