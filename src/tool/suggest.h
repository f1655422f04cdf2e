/* Suggestion: of all names that are offered, the one that is nearest to what was given, if any is near. */
#ifndef J2O_TOOL_SUGGEST_H
#define J2O_TOOL_SUGGEST_H

#include <stdbool.h>
#include <stddef.h>

typedef struct Suggestion {
  const char *given;
  const char *name; /* NULL: none is near */
  size_t apart;
} Suggestion;

void suggest_one(Suggestion *suggestion, const char *name);

#endif
