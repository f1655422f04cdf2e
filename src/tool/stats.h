/* j2o stats: bytes, and how much of a model says where it came from. */
#ifndef J2O_TOOL_STATS_H
#define J2O_TOOL_STATS_H

#include "tool/index.h"

/* bytes: of the metadata that say where things came from. stats_provenance.c */
void stats_provenance(Job *job, Model *model, uint64_t bytes);

#endif
