/* Source files that a model's traces name, read where they are there. */
#ifndef J2O_TOOL_SOURCE_H
#define J2O_TOOL_SOURCE_H

#include "tool/tool.h"

typedef struct SourceLine {
  const char *text;
  size_t length;
} SourceLine;

typedef struct SourceFunction {
  Str name; /* qualified, as Python has it: Block.__call__, outer.<locals>.inner */
  uint32_t first, last;
} SourceFunction;

typedef struct Source {
  ARRAY(SourceLine) lines;         /* from index 0; line numbers begin at 1 */
  ARRAY(SourceFunction) functions; /* in the order of their first lines */
} Source;

/* NULL when it cannot be read. Only plain files whose names end in .py are opened: a model may name anything. */
const Source *source_open(Job *job, const char *path);
const SourceLine *source_line(const Source *source, uint32_t line); /* NULL: there is no such line */
/* Could this function have a frame at this line of the file? */
bool source_defines(const Source *source, Str function, uint32_t line);
/* The line without the spaces around it; nothing when it cannot be read. */
void report_source_line(Job *job, const char *path, uint32_t line);

#endif
