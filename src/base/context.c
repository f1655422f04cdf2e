/* Context and protected calls. */
#include "base/context.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct Trap {
  jmp_buf jump;
  Trap *outer;
};

void context_init(Context *context) {
  memset(context, 0, sizeof *context);
  context->arena.context = context;
  context->strings.context = context;
}

void context_release(Context *context) {
  strings_release(&context->strings);
  arena_release(&context->arena);
}

bool context_protect(Context *context, void (*body)(void *), void *argument) {
  Trap trap = {.outer = context->trap};
  context->trap = &trap;
  bool completed = setjmp(trap.jump) == 0;
  if (completed) body(argument);
  context->trap = trap.outer;
  return completed;
}

void fail_text(Context *context, ErrorKind kind, const char *message) {
  context->error = kind;
  context->message = message;
  if (!context->trap) {
    fprintf(stderr, "j2o: unprotected error: %s\n", message);
    abort();
  }
  longjmp(context->trap->jump, 1);
}

void fail(Context *context, ErrorKind kind, const char *format, ...) {
  char buffer[4096];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(buffer, sizeof buffer, format, arguments);
  va_end(arguments);
  if (kind == ERROR_MEMORY) fail_text(context, kind, "out of memory");
  fail_text(context, kind, arena_copy_text(&context->arena, buffer));
}
