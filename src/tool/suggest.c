/* "Did you mean": of a few names, the one that was probably meant. */
#include <string.h>

#include "tool/suggest.h"

enum { LONGEST = 32 };

/* How many letters must be changed, added, left out or exchanged with their neighbour to make one of the other. */
static size_t letters_apart(const char *a, const char *b) {
  size_t before[LONGEST + 1], row[LONGEST + 1], next[LONGEST + 1], length = strlen(b);
  for (size_t k = 0; k <= length; k++) before[k] = row[k] = k;
  for (size_t i = 0; a[i]; i++) {
    next[0] = i + 1;
    for (size_t k = 0; k < length; k++) {
      size_t least = row[k] + (a[i] != b[k]);
      if (row[k + 1] + 1 < least) least = row[k + 1] + 1;
      if (next[k] + 1 < least) least = next[k] + 1;
      bool exchanged = i && k && a[i] == b[k - 1] && a[i - 1] == b[k];
      if (exchanged && before[k - 1] + 1 < least) least = before[k - 1] + 1;
      next[k + 1] = least;
    }
    memcpy(before, row, sizeof row);
    memcpy(row, next, sizeof next);
  }
  return row[length];
}

void suggest_one(Suggestion *suggestion, const char *name) {
  size_t length = strlen(suggestion->given);
  if (length > LONGEST || strlen(name) > LONGEST) return;
  size_t apart = letters_apart(suggestion->given, name);
  if (apart > (length + 1) / 3 || (suggestion->name && apart >= suggestion->apart)) return;
  *suggestion = (Suggestion){suggestion->given, name, apart};
}
