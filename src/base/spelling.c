/* Spelling. */
#include "base/spelling.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
static bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool is_identifier(const char *text, size_t length) {
  if (!length || !is_letter(text[0])) return false;
  for (size_t i = 1; i < length; i++) {
    if (!is_letter(text[i]) && !is_digit(text[i])) return false;
  }
  return true;
}

size_t utf8_sequence(const char *text, size_t left) {
  const unsigned char *bytes = (const unsigned char *)text;
  if (!left) return 0;
  if (bytes[0] < 0x80) return 1;
  size_t length = bytes[0] >= 0xF0 ? 4 : bytes[0] >= 0xE0 ? 3 : 2;
  if (bytes[0] < 0xC2 || bytes[0] > 0xF4 || length > left) return 0;
  for (size_t i = 1; i < length; i++) {
    if ((bytes[i] & 0xC0) != 0x80) return 0;
  }
  /* Overlong forms, surrogates and numbers above U+10FFFF. */
  if (bytes[0] == 0xE0 && bytes[1] < 0xA0) return 0;
  if (bytes[0] == 0xED && bytes[1] > 0x9F) return 0;
  if (bytes[0] == 0xF0 && bytes[1] < 0x90) return 0;
  if (bytes[0] == 0xF4 && bytes[1] > 0x8F) return 0;
  return length;
}

static bool is_control(const char *text, size_t length) {
  unsigned char c = (unsigned char)text[0];
  if (length == 1) return c < 0x20 || c == 0x7F;
  return length == 2 && c == 0xC2 && (unsigned char)text[1] < 0xA0; /* U+0080 to U+009F */
}

static void spell_bytes(Builder *out, const char *bytes, size_t count) {
  for (size_t i = 0; i < count; i++) builder_format(out, "\\x%02x", (unsigned char)bytes[i]);
}

static void spell_control(Builder *out, Spelling spelling, const char *text, size_t length) {
  if (spelling == SPELL_ONNX) {
    builder_add_sized(out, text, length); /* the syntax has no escape for them */
  } else if (spelling == SPELL_TERMINAL) {
    spell_bytes(out, text, length);
  } else if (text[0] == '\n' || text[0] == '\t') {
    builder_add(out, text[0] == '\n' ? "\\n" : "\\t");
  } else if (spelling == SPELL_PROGRAM) {
    spell_bytes(out, text, length);
  } else {
    builder_format(out, "\\u%04x", (unsigned char)text[length - 1]);
  }
}

void spell_text(Builder *out, Spelling spelling, const char *text, size_t length) {
  if (spelling != SPELL_TERMINAL) builder_add_sized(out, "\"", 1);
  for (size_t at = 0; at < length;) {
    size_t step = utf8_sequence(text + at, length - at);
    if (step == 0) {
      if (spelling == SPELL_JSON || spelling == SPELL_ONNX) builder_add(out, "\xEF\xBF\xBD"); /* U+FFFD */
      else spell_bytes(out, text + at, 1);
      at++;
      continue;
    }
    if (is_control(text + at, step)) {
      spell_control(out, spelling, text + at, step);
    } else {
      bool escaped = spelling != SPELL_TERMINAL && (text[at] == '"' || text[at] == '\\');
      if (escaped) builder_add_sized(out, "\\", 1);
      builder_add_sized(out, text + at, step);
    }
    at += step;
  }
  if (spelling != SPELL_TERMINAL) builder_add_sized(out, "\"", 1);
}

/* digits holds what printf wrote: the decimal point may be the locale's. */
static void add_digits(Builder *out, char *digits) {
  bool fraction = false;
  for (char *c = digits; *c; c++) {
    if (!is_digit(*c) && *c != '-' && *c != '+' && *c != 'e') *c = '.';
    if (*c == '.' || *c == 'e') fraction = true;
  }
  builder_add(out, digits);
  if (!fraction) builder_add(out, ".0");
}

static bool spell_special(Builder *out, double value) {
  if (isfinite(value)) return false;
  builder_add(out, isnan(value) ? "nan" : value > 0 ? "inf" : "-inf");
  return true;
}

void spell_float(Builder *out, float value) {
  if (spell_special(out, (double)value)) return;
  char digits[64];
  for (int precision = 6; precision <= 9; precision++) {
    snprintf(digits, sizeof digits, "%.*g", precision, (double)value);
    if (strtof(digits, NULL) == value) break;
  }
  add_digits(out, digits);
}

void spell_double(Builder *out, double value) {
  if (spell_special(out, value)) return;
  char digits[64];
  for (int precision = 15; precision <= 17; precision++) {
    snprintf(digits, sizeof digits, "%.*g", precision, value);
    if (strtod(digits, NULL) == value) break;
  }
  add_digits(out, digits);
}
