/* Errors: every failure unwinds to one protected call, so ordinary code is straight-line. */
#ifndef J2O_BASE_ERROR_H
#define J2O_BASE_ERROR_H

#include <setjmp.h>
#include <stdbool.h>

typedef struct Context Context;

typedef enum ErrorKind {
  ERROR_NONE,
  ERROR_MEMORY,      /* an allocation failed */
  ERROR_INTERNAL,    /* a broken invariant: our bug */
  ERROR_VALUE,       /* an argument has the right type and a wrong value */
  ERROR_UNSUPPORTED, /* the program needs something that cannot be expressed */
  ERROR_FORMAT,      /* a file is malformed */
  ERROR_IO,          /* reading or writing failed; errno text is in the message */
  ERROR_INTERRUPTED, /* the user asked to stop */
  ERROR_PYTHON,      /* a Python exception is set; only src/python raises this */
} ErrorKind;

/* Unwinds to the innermost context_protect. Never returns. */
_Noreturn void fail(Context *context, ErrorKind kind, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Like fail, with a message of any length that lives in the context's arena. */
_Noreturn void fail_text(Context *context, ErrorKind kind, const char *message);

/* Runs body(argument); false when it failed, with the context's error set. Protected calls nest. */
bool context_protect(Context *context, void (*body)(void *), void *argument);

#define require(context, condition) \
  ((condition) ? (void)0            \
               : fail((context), ERROR_INTERNAL, "%s:%d: broken invariant: %s", __FILE__, __LINE__, #condition))

#endif
