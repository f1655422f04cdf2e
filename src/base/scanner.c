/* Scanner. */
#include "base/scanner.h"

#include <errno.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"

enum { MAX_NUMBER_LENGTH = 63 };

void scanner_init(Scanner *scanner, Context *context, const char *text, size_t length, Escapes escapes) {
  *scanner = (Scanner){.context = context, .text = text, .at = text, .end = text + length, .escapes = escapes};
}

/* ---- messages ---- */

void scan_fail(const Scanner *scanner, const char *where, const char *what) {
  size_t line = 1, column = 1;
  for (const char *c = scanner->text; c < where; c++) {
    column = *c == '\n' ? 1 : column + 1;
    line += *c == '\n';
  }
  fail(scanner->context, ERROR_FORMAT, "line %zu, column %zu: %s", line, column, what);
}

void scan_fail_expected(const Scanner *scanner, const char *what) {
  scan_fail(scanner, scanner->at, arena_format(&scanner->context->arena, "expected %s", what));
}

size_t scan_line(const Scanner *scanner, const char *where) {
  size_t line = 1;
  for (const char *c = scanner->text; (c = find_letter(c, '\n', (size_t)(where - c))); c++) line++;
  return line;
}

/* ---- characters and words ---- */

void scan_space(Scanner *scanner) {
  for (; scanner->at < scanner->end; scanner->at++) {
    char c = *scanner->at;
    if (c == '#') {
      while (scanner->at < scanner->end && *scanner->at != '\n') scanner->at++;
      if (scanner->at == scanner->end) return;
    } else if (c != ' ' && c != '\t' && c != '\n' && c != '\r') {
      return;
    }
  }
}

bool scan_ended(Scanner *scanner) {
  scan_space(scanner);
  return scanner->at == scanner->end;
}

bool scan_sees(Scanner *scanner, char c) {
  scan_space(scanner);
  return scanner->at < scanner->end && *scanner->at == c;
}

bool scan_accept(Scanner *scanner, char c) {
  if (!scan_sees(scanner, c)) return false;
  scanner->at++;
  return true;
}

void scan_expect(Scanner *scanner, char c) {
  if (!scan_accept(scanner, c)) scan_fail_expected(scanner, (char[]){'\'', c, '\'', '\0'});
}

bool scan_is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

size_t scan_word_length(Scanner *scanner) {
  scan_space(scanner);
  const char *c = scanner->at;
  while (c < scanner->end && scan_is_word(*c)) c++;
  return (size_t)(c - scanner->at);
}

bool scan_accept_word(Scanner *scanner, const char *word) {
  size_t length = scan_word_length(scanner);
  if (length != strlen(word) || !same_bytes(scanner->at, word, length)) return false;
  scanner->at += length;
  return true;
}

Str scan_word(Scanner *scanner, const char *what) {
  size_t length = scan_word_length(scanner);
  if (!length) scan_fail_expected(scanner, what);
  Str word = str_intern_sized(scanner->context, scanner->at, length);
  scanner->at += length;
  return word;
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

/* The byte that is meant by what stands after a backslash. */
static char escaped(Scanner *scanner) {
  char c = *scanner->at++;
  if (scanner->escapes == ESCAPES_NONE || c == '"' || c == '\\') return c;
  if (c == 'n') return '\n';
  if (c == 't') return '\t';
  const char *digits = scanner->at;
  if (c == 'x' && scanner->end - digits >= 2 && hex_digit(digits[0]) >= 0 && hex_digit(digits[1]) >= 0) {
    scanner->at += 2;
    return (char)(hex_digit(digits[0]) * 16 + hex_digit(digits[1]));
  }
  scan_fail(scanner, scanner->at - 1, "unknown escape sequence");
}

Str scan_quoted(Scanner *scanner, const char *what) {
  if (!scan_accept(scanner, '"')) scan_fail_expected(scanner, what);
  const char *start = scanner->at, *close = start;
  while (close < scanner->end && *close != '"') close += *close == '\\' ? 2 : 1;
  if (close >= scanner->end) scan_fail(scanner, start - 1, "unterminated string");
  char *text = arena_alloc(&scanner->context->arena, (size_t)(close - start) + 1);
  size_t length = 0;
  while (scanner->at < close) {
    char c = *scanner->at++;
    text[length++] = c == '\\' ? escaped(scanner) : c;
  }
  scanner->at = close + 1;
  return str_intern_sized(scanner->context, text, length);
}

/* ---- numbers ---- */

/* Copies the characters of a number to where it can be converted; gives where they stood. */
static const char *number_token(Scanner *scanner, char token[MAX_NUMBER_LENGTH + 1]) {
  scan_space(scanner);
  const char *start = scanner->at;
  size_t length = 0;
  while (scanner->at < scanner->end && length < MAX_NUMBER_LENGTH) {
    char c = *scanner->at;
    if (!scan_is_word(c) && c != '.' && c != '-' && c != '+') break;
    token[length++] = c;
    scanner->at++;
  }
  token[length] = '\0';
  if (!length) scan_fail_expected(scanner, "a number");
  return start;
}

uint64_t scan_sized_integer(Scanner *scanner, unsigned bits, bool is_unsigned) {
  char token[MAX_NUMBER_LENGTH + 1], *stop;
  const char *start = number_token(scanner, token);
  errno = 0;
  uint64_t value;
  bool fits;
  if (is_unsigned) {
    value = strtoull(token, &stop, 10);
    fits = token[0] != '-' && (bits == 64 || value >> bits == 0);
  } else {
    int64_t number = strtoll(token, &stop, 10);
    fits = bits == 64 || (number >= -((int64_t)1 << (bits - 1)) && number < (int64_t)1 << (bits - 1));
    value = (uint64_t)number;
  }
  if (*stop || errno || !fits) {
    const char *what = is_unsigned ? "an unsigned integer" : "an integer";
    scan_fail(scanner, start, arena_format(&scanner->context->arena, "not %s with %u bits", what, bits));
  }
  return value;
}

int64_t scan_integer(Scanner *scanner) { return (int64_t)scan_sized_integer(scanner, 64, false); }

uint64_t scan_bits(Scanner *scanner, unsigned bits) {
  char token[MAX_NUMBER_LENGTH + 1], *stop;
  const char *start = number_token(scanner, token);
  errno = 0;
  unsigned long long value = strtoull(token, &stop, 16);
  bool fits = bits == 64 || (bits < 64 && value >> bits == 0);
  if (*stop || errno || !fits) scan_fail(scanner, start, "not the bit pattern of an element");
  return value;
}

/* strtod reads the decimal point of the locale; ours is always a dot. */
static void localize(char *token) {
  const char *point = localeconv()->decimal_point;
  char *dot = strchr(token, '.');
  if (dot && point[0] && !point[1]) *dot = point[0];
}

static double number(Scanner *scanner, bool single) {
  char token[MAX_NUMBER_LENGTH + 1], *stop;
  const char *start = number_token(scanner, token);
  localize(token);
  double value = single ? (double)strtof(token, &stop) : strtod(token, &stop);
  if (*stop) scan_fail(scanner, start, "not a number");
  return value;
}

float scan_float(Scanner *scanner) { return (float)number(scanner, true); }
double scan_double(Scanner *scanner) { return number(scanner, false); }
