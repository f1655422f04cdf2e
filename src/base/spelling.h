/* Spelling: how numbers, names and strings look in the texts that we print. The same on every machine and in every
 * locale, and safe for whatever bytes a file held. */
#ifndef J2O_BASE_SPELLING_H
#define J2O_BASE_SPELLING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/builder.h"

typedef enum Spelling {
  SPELL_PROGRAM,  /* C escapes; every byte can be read back */
  SPELL_JSON,     /* valid JSON and valid UTF-8 */
  SPELL_ONNX,     /* the ONNX text syntax, valid UTF-8. It has no escape for control characters: all but line ends and
                     tabs become the letters that a terminal would be shown */
  SPELL_TERMINAL, /* no quotes; control characters and broken UTF-8 are shown as \xNN and \uNNNN */
} Spelling;

void spell_text(Builder *out, Spelling spelling, const char *text, size_t length);

/* What a terminal is shown of the next character, in place of one that it would obey. This is the only place that
 * decides it, for C and for Python. Returns how many bytes were read: at least 1. */
enum { SPELLED_STEP = 8 };
size_t spell_step(const char *text, size_t left, char spelled[SPELLED_STEP]);
/* The same to a stream, without memory of its own: for messages. Line ends may be ours and stay, or not. */
void print_safely(FILE *stream, const char *text, bool keeps_lines);

/* The shortest decimal that reads back as the same number, never to be taken for an integer: 2.0, 1e+30, inf, nan. */
void spell_float(Builder *out, float value);
void spell_double(Builder *out, double value);

/* Length of the well-formed UTF-8 sequence at text, 0 when it is broken. */
size_t utf8_sequence(const char *text, size_t left);

/* A letter or underscore, then letters, digits and underscores. */
bool is_identifier(const char *text, size_t length);

#endif
