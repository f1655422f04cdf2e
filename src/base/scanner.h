/* Scanner: the words of a text that people write too. White space and line ends separate and mean nothing else; a #
 * outside of quotes starts a comment. Errors name the line and the column. */
#ifndef J2O_BASE_SCANNER_H
#define J2O_BASE_SCANNER_H

#include "base/context.h"

typedef enum Escapes {
  ESCAPES_OF_C, /* \n, \t, \xNN, \" and \\ (SPELL_PROGRAM) */
  ESCAPES_NONE, /* a backslash makes the next byte an ordinary one (SPELL_ONNX) */
} Escapes;

typedef struct Scanner {
  Context *context;
  const char *text, *at, *end;
  Escapes escapes;
} Scanner;

void scanner_init(Scanner *scanner, Context *context, const char *text, size_t length, Escapes escapes);

_Noreturn void scan_fail(const Scanner *scanner, const char *where, const char *what);
_Noreturn void scan_fail_expected(const Scanner *scanner, const char *what); /* where the scanner stands */
size_t scan_line(const Scanner *scanner, const char *where);                 /* counted from 1; costs the text before */

void scan_space(Scanner *scanner);
bool scan_ended(Scanner *scanner);
bool scan_sees(Scanner *scanner, char c); /* is the next thing this character? */
bool scan_accept(Scanner *scanner, char c);
void scan_expect(Scanner *scanner, char c);

/* Words are letters, digits and underscores. */
bool scan_is_word(char c);
size_t scan_word_length(Scanner *scanner); /* of the next thing; 0 when it is no word */
bool scan_accept_word(Scanner *scanner, const char *word);
Str scan_word(Scanner *scanner, const char *what); /* what: how the message names it */
Str scan_quoted(Scanner *scanner, const char *what);

int64_t scan_integer(Scanner *scanner);
/* As many bits as an element of that width has; is_unsigned: no sign and all bits. */
uint64_t scan_sized_integer(Scanner *scanner, unsigned bits, bool is_unsigned);
uint64_t scan_bits(Scanner *scanner, unsigned bits); /* 0x… */
float scan_float(Scanner *scanner);
double scan_double(Scanner *scanner);
int hex_digit(char c); /* -1 when it is none */

#endif
