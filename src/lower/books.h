/* The books of lowering: what becomes of each equation (books.c). All need a ledger. */
#ifndef J2O_LOWER_BOOKS_H
#define J2O_LOWER_BOOKS_H

#include "lower/lower.h"

typedef void JaxprVisit(void *data, const Jaxpr *jaxpr);

/* Of the jaxprs among the parameters those that may be lowered: not the rules for derivatives, nor branches for other
 * platforms. */
void each_carried_jaxpr(const Equation *equation, const Plugin *plugin, JaxprVisit *visit, void *data);

/* The current equation was lowered. Equations that it carries and that were not lowered with it were read by its plugin
 * (the sum of a reduction), or are dead (the other branches of a choice that is known). */
void book_lowered(Lowering *l);
/* The equations that were dropped before lowering, of this call. */
void book_dropped(Lowering *l, const Jaxpr *jaxpr);
/* Every equation that was traced, with those inside: what a checker of the ledger looks for. */
void list_traced(Lowering *l);

#endif
