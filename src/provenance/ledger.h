/* The ledger: what became of every equation that was traced.
 *
 * An equation is accounted for when its site is one of a node's or an initializer's, when it is a call (the equations
 * inside it are accounted for), or when it was removed: then the model says so under pkg.jax2onnx.removed, a line for
 * each distinct trace:
 *
 *   REASON<TAB>PASS<TAB>FRAME < FRAME < …
 *
 * REASON   dead (nobody reads it), no-op (it gives back what it was given), cancelled (undone by another), left out (an
 *          export cannot hold it)
 * PASS     what removed it: the name of a pass, "unused" for what went before lowering, "lowering"
 * FRAME    "path:line (function)" outside JAX, innermost first
 *
 * Nothing is entered because it is missing elsewhere: a removal is told by who removed it, so that what was lost stays
 * unaccounted for, and the checker (onnx/file/check_ledger.h) finds it.
 */
#ifndef J2O_PROVENANCE_LEDGER_H
#define J2O_PROVENANCE_LEDGER_H

#include "base/array.h"
#include "provenance/trace.h"

typedef struct Removed {
  const Site *site; /* plain */
  const char *pass, *reason;
} Removed;

struct Ledger {
  ARRAY(const Site *) traced; /* plain sites of all equations but calls, each once; empty unless it is to be checked */
  ARRAY(const Site *) passed; /* of equations that gave back what they were given */
  ARRAY(Removed) removed;
  Map removed_sites; /* plain site -> one more than its index in removed */
  Map wholes;        /* plain site -> that of the equation it is a part of */
};

/* NULL for a provenance whose books are not kept. */
void ledger_open(Provenance *provenance);
/* An equation was traced. */
void ledger_traced(Provenance *provenance, const Site *site);
/* Lowering knows what became of it. */
void ledger_book(Provenance *provenance, const Site *site);
bool ledger_is_booked(Provenance *provenance, const Site *site);
/* It gave back what it was given; was read by the plugin of another, whose line is its own; was removed by that pass,
 * for that reason. The latest removal counts. */
void ledger_passed(Provenance *provenance, const Site *site);
void ledger_part_of(Provenance *provenance, const Site *site, const Site *whole);
void ledger_removed(Provenance *provenance, const Site *site, const char *pass, const char *reason);

/* One line of it, without its end. */
void render_removed(Provenance *provenance, Builder *out, const Removed *removed);
/* All lines; NULL when nothing was removed. */
Str render_ledger(Provenance *provenance);

#endif
