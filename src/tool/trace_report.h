/* The traces of an item, for people and for programs. */
#ifndef J2O_TOOL_TRACE_REPORT_H
#define J2O_TOOL_TRACE_REPORT_H

#include "tool/index.h"

/* Every chain once: those with the same callers stand together, with the callers below. Frames of libraries are left
 * out unless everything was asked for, or nothing else is there. */
void report_traces(Job *job, const OriginIndex *index, const Item *item);

/* [{"file", "line", "function", "source", "begins_trace"}, …] as the model has them. */
void json_traces(Job *job, const OriginIndex *index, const Item *item);
/* [{"file", "line", "function", "relation"}, …]: every line that the item belongs to. */
void json_lines(Job *job, const OriginIndex *index, const Item *item);

#endif
