/* Spelling. */
#include "base/spelling.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"

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

static uint32_t code_point(const char *text, size_t length) {
  const unsigned char *bytes = (const unsigned char *)text;
  static const unsigned char head_bits[] = {0, 0x7F, 0x1F, 0x0F, 0x07};
  uint32_t code = bytes[0] & head_bits[length];
  for (size_t i = 1; i < length; i++) code = code << 6 | (bytes[i] & 0x3F);
  return code;
}

/* What a terminal obeys instead of showing it: controls, marks and overrides of the direction of writing (which make a
 * text read as another), and Unicode's own ends of lines. */
static bool is_control(uint32_t code) {
  if (code < 0x20 || (code >= 0x7F && code < 0xA0)) return true;
  if (code < 0x061C) return false;
  bool turns = code == 0x061C || code == 0x200E || code == 0x200F || (code >= 0x202A && code <= 0x202E) ||
               (code >= 0x2066 && code <= 0x2069);
  return turns || code == 0x2028 || code == 0x2029;
}

size_t spell_step(const char *text, size_t left, char spelled[SPELLED_STEP]) {
  size_t step = utf8_sequence(text, left);
  if (!step) {
    snprintf(spelled, SPELLED_STEP, "\\x%02x", (unsigned char)*text);
    return 1;
  }
  uint32_t code = code_point(text, step);
  if (is_control(code)) {
    snprintf(spelled, SPELLED_STEP, code < 0x80 ? "\\x%02x" : "\\u%04x", (unsigned)code);
  } else {
    copy_bytes(spelled, text, step);
    spelled[step] = '\0';
  }
  return step;
}

static void spell_bytes(Builder *out, const char *bytes, size_t count) {
  for (size_t i = 0; i < count; i++) builder_format(out, "\\x%02x", (unsigned char)bytes[i]);
}

/* How many letters at the beginning are the same in every spelling. */
static size_t plain_run(const char *text, size_t length) {
  size_t count = 0;
  while (count < length && text[count] >= ' ' && text[count] < 0x7F && text[count] != '"' && text[count] != '\\')
    count++;
  return count;
}

static void spell_terminal(Builder *out, const char *text, size_t length) {
  char spelled[SPELLED_STEP];
  for (size_t at = 0; at < length;) {
    size_t plain = plain_run(text + at, length - at);
    builder_add_sized(out, text + at, plain);
    at += plain;
    if (at == length) return;
    at += spell_step(text + at, length - at, spelled);
    builder_add(out, spelled);
  }
}

void print_safely(FILE *stream, const char *text, bool keeps_lines) {
  char spelled[SPELLED_STEP];
  for (size_t left = strlen(text); left;) {
    bool is_end = keeps_lines && *text == '\n';
    size_t step = spell_step(text, left, spelled);
    fputs(is_end ? "\n" : spelled, stream);
    text += step;
    left -= step;
  }
}

static void spell_control(Builder *out, Spelling spelling, const char *text, size_t length) {
  char spelled[SPELLED_STEP];
  if (text[0] == '\n' || text[0] == '\t') {
    if (spelling == SPELL_ONNX) builder_add_sized(out, text, 1);
    else builder_add(out, text[0] == '\n' ? "\\n" : "\\t");
  } else if (spelling == SPELL_PROGRAM) {
    spell_bytes(out, text, length);
  } else if (spelling == SPELL_JSON) {
    builder_format(out, "\\u%04x", (unsigned)code_point(text, length));
  } else {
    spell_step(text, length, spelled);
    builder_add(out, "\\");
    builder_add(out, spelled);
  }
}

void spell_text(Builder *out, Spelling spelling, const char *text, size_t length) {
  if (spelling == SPELL_TERMINAL) {
    spell_terminal(out, text, length);
    return;
  }
  builder_add_sized(out, "\"", 1);
  for (size_t at = 0; at < length;) {
    size_t plain = plain_run(text + at, length - at);
    builder_add_sized(out, text + at, plain);
    at += plain;
    if (at == length) break;
    size_t step = utf8_sequence(text + at, length - at);
    if (step == 0) {
      if (spelling == SPELL_PROGRAM) spell_bytes(out, text + at, 1);
      else builder_add(out, "\xEF\xBF\xBD"); /* U+FFFD */
      at++;
      continue;
    }
    if (is_control(code_point(text + at, step))) {
      spell_control(out, spelling, text + at, step);
    } else {
      if (text[at] == '"' || text[at] == '\\') builder_add_sized(out, "\\", 1);
      builder_add_sized(out, text + at, step);
    }
    at += step;
  }
  builder_add_sized(out, "\"", 1);
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
