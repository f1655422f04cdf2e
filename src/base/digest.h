/* SHA-256, by which a source file is known again. */
#ifndef J2O_BASE_DIGEST_H
#define J2O_BASE_DIGEST_H

#include <stddef.h>

enum { DIGEST_LETTERS = 64 };

/* In lower-case hexadecimal digits, with a NUL behind them. */
void digest_text(const void *data, size_t size, char text[DIGEST_LETTERS + 1]);

#endif
