/* Context: what one conversion owns: its memory, its interned strings, its error. No globals. */
#ifndef J2O_BASE_CONTEXT_H
#define J2O_BASE_CONTEXT_H

#include "base/arena.h"
#include "base/error.h"
#include "base/map.h"
#include "base/strings.h"

typedef struct Trap Trap; /* a protected call in progress */

struct Context {
  Arena arena;
  Strings strings;
  Map dimensions;      /* dimension expressions, interned by their text */
  Trap *trap;          /* innermost protected call, NULL outside of any */
  ErrorKind error;     /* set by fail */
  const char *message; /* set by fail; in the arena, or a literal when memory ran out */
};

void context_init(Context *context);
void context_release(Context *context);

#endif
