/* Which node of a processed model is which of the original, and what stood where it has nodes of its own.
 *
 * Three kinds of evidence, in the order of their strength: a value that is computed in the same way of the same values;
 * a name, where names have proved to mean the same in both models; and the place of a value in a node that is known.
 * Unsure is unmatched: a wrong line is worse than none. */
#ifndef J2O_GRAFT_MATCH_H
#define J2O_GRAFT_MATCH_H

#include "graft/side.h"

/* What a node of the processed model came from. */
typedef struct Descent {
  Found found;
  Index primary;       /* the node of the original whose value it gives, or that it is a part of; NONE: unknown */
  const Index *others; /* further nodes that went into it */
  size_t other_count;
  const struct Descent *region; /* of a node in a region: what stood there as a whole */
} Descent;

typedef struct Match {
  Context *context;
  Side *original, *processed;
  Map alike, loose;               /* the original's nodes by what they compute, and of what alone */
  Map contents, likenesses;       /* its constants */
  ARRAY(Str) prefixes;            /* that the processed model has in front of the original's names */
  bool trust_values, trust_nodes; /* do names of values, of nodes, mean the same in both? */
  bool changed;
  Descent *descents; /* by node of the processed model */
} Match;

Match *match_models(Model *original, Model *processed);

/* How much of the processed model was found: nodes that compute, and those of them that are known by name or structure
 * or give a value of the original's. */
typedef struct Relation {
  size_t nodes, known;
} Relation;
Relation match_relation(const Match *match);
bool match_is_related(const Match *match);

/* The original's value of this name, in front of which the processed model may have put a prefix. */
Index match_value_named(const Match *match, Str name);
Index match_node_named(const Match *match, Str name);

/* match_regions fills in the descents. region.c */
void match_regions(Match *match);

#endif
