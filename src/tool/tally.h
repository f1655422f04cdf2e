/* Counts by name: operators, functions, files, metadata keys. */
#ifndef J2O_TOOL_TALLY_H
#define J2O_TOOL_TALLY_H

#include "tool/report.h"

typedef struct Tally Tally;
typedef struct Tallies {
  Map known;
  ARRAY(Tally *) items; /* in order of first appearance until sorted */
} Tallies;

struct Tally {
  Str key;
  uint64_t key_number; /* a line, where keys are places; else 0 */
  size_t count;
  uint64_t bytes, more_bytes; /* the user's own */
  Tallies operators;
};

Tally *tally_count(Context *context, Tallies *tallies, Str key, uint64_t key_number);
void tallies_sort(Tallies *tallies);                                    /* largest count first, then by name */
Str operator_name(Context *context, const Node *node);                  /* "Sin", "domain.Op" */
void report_operators(Report *report, Tallies *operators, size_t most); /* "Mul 3, Sin" */
void json_tallies(Report *report, const Tallies *tallies, const char *key, bool with_operators);

#endif
