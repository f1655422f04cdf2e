/* The provenance checker: proves that a pass kept its books.
 *
 * Taken before a pass and compared after it: every node has an origin; a node that stays keeps its sites; and where a
 * use reads another value than before, the sites of the node that made the old value are on what makes the new one,
 * or on the user itself. Where it read a weight and reads a constant that was made since, that one says that it was
 * made of the weight. A value that nothing reads any more may go with its sites, and so may a no-op on an input or a
 * constant: there is no node to hand them to.
 */
#ifndef J2O_PASSES_CHECK_PROVENANCE_H
#define J2O_PASSES_CHECK_PROVENANCE_H

#include "onnx/graph/graph.h"

typedef struct ProvenanceSnapshot ProvenanceSnapshot;

ProvenanceSnapshot *provenance_snapshot(Model *model);
/* Fails with ERROR_INTERNAL, naming the pass and the trace that was lost. */
void provenance_check(Model *model, const ProvenanceSnapshot *before, const char *pass);

#endif
