/* Context: what one conversion owns: its memory, its interned strings, its error. No globals. */
#ifndef J2O_BASE_CONTEXT_H
#define J2O_BASE_CONTEXT_H

#include "base/arena.h"
#include "base/error.h"
#include "base/map.h"
#include "base/strings.h"

typedef struct Trap Trap; /* a protected call in progress */

/* What an error must not unwind past without a word: an open file, a name on the disk. */
typedef struct Cleanup {
  void (*run)(struct Cleanup *self); /* must not fail */
  struct Cleanup *outer;
} Cleanup;

struct Context {
  Arena arena;
  Strings strings;
  uint64_t secret;                 /* random: where names fall in tables (map.h) */
  MapEntry *spare_tables[64];      /* by the logarithm of their capacity, each holding the next (map.c) */
  Map dimensions;                  /* dimension expressions, interned by their text */
  Trap *trap;                      /* innermost protected call, NULL outside of any */
  Cleanup *cleanups;               /* run, newest first, when an error unwinds past them */
  bool (*interrupted)(void *data); /* whether the user wants to stop; NULL: there is nobody to ask */
  void *interrupted_data;
  ErrorKind error;     /* set by fail */
  const char *message; /* set by fail; in the arena, or a literal when memory ran out */
};

void context_init(Context *context);
void context_release(Context *context);

/* Unwinds with ERROR_INTERRUPTED when the user wants to stop. Every allocation of a block is such a point; what works
 * long without one asks by itself. */
void interruption_point(Context *context);

void cleanup_push(Context *context, Cleanup *cleanup);
/* Takes it off the list, wherever it is, and does not run it. */
void cleanup_drop(Context *context, Cleanup *cleanup);

#endif
