/* Context and protected calls. */
#include "base/context.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/entropy.h"

struct Trap {
  jmp_buf jump;
  Trap *outer;
  Cleanup *cleanups; /* those that stay when this call fails */
};

void context_init(Context *context) {
  memset(context, 0, sizeof *context);
  context->arena.context = context;
  context->strings.context = context;
  random_bytes(&context->secret, sizeof context->secret);
}

void context_release(Context *context) {
  strings_release(&context->strings);
  arena_release(&context->arena);
}

void interruption_point(Context *context) {
  if (context->interrupted && context->interrupted(context->interrupted_data)) {
    fail_text(context, ERROR_INTERRUPTED, "interrupted");
  }
}

void cleanup_push(Context *context, Cleanup *cleanup) {
  cleanup->outer = context->cleanups;
  context->cleanups = cleanup;
}

void cleanup_drop(Context *context, Cleanup *cleanup) {
  for (Cleanup **at = &context->cleanups; *at; at = &(*at)->outer) {
    if (*at != cleanup) continue;
    *at = cleanup->outer;
    return;
  }
}

bool context_protect(Context *context, void (*body)(void *), void *argument) {
  Trap trap = {.outer = context->trap, .cleanups = context->cleanups};
  context->trap = &trap;
  if (setjmp(trap.jump) != 0) return false; /* fail_text has taken the trap away */
  body(argument);
  context->trap = trap.outer;
  return true;
}

static void run_cleanups(Context *context, const Cleanup *last) {
  while (context->cleanups != last) {
    Cleanup *cleanup = context->cleanups;
    context->cleanups = cleanup->outer;
    cleanup->run(cleanup);
  }
}

void fail_text(Context *context, ErrorKind kind, const char *message) {
  context->error = kind;
  context->message = message;
  Trap *trap = context->trap;
  if (!trap) {
    fprintf(stderr, "j2o: unprotected error: %s\n", message);
    abort();
  }
  run_cleanups(context, trap->cleanups);
  context->trap = trap->outer;
  longjmp(trap->jump, 1);
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
