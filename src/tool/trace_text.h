/* Traces as they stand in a file, line by line: this project's and those that PyTorch's exporter writes. */
#ifndef J2O_TOOL_TRACE_TEXT_H
#define J2O_TOOL_TRACE_TEXT_H

#include "onnx/graph/graph.h"

/* An entry's value by its key; NULL when absent. */
Str metadata_get(const MetadataList *list, const char *key);

/* One line of a trace, in the file's own bytes. */
typedef struct TraceFrame {
  const char *file, *function;
  size_t file_length, function_length;
  uint32_t line;
  bool begins_block; /* another source of an item that was merged from several */
} TraceFrame;

typedef struct TraceCursor {
  const char *at, *end;
  bool is_torch; /* outermost first, as Python prints them; else innermost first */
  bool started;
} TraceCursor;

TraceCursor trace_of(const MetadataList *list); /* empty when there is none */
TraceCursor trace_in(Str text);                 /* one of this project's */
bool trace_next(TraceCursor *cursor, TraceFrame *frame);

/* "function:line": false when it has another form. */
bool parse_callsite(const char *text, size_t length, size_t *function_length, uint32_t *line);
/* The number that ends at `end`; its first digit, or NULL when there is none or it is too long. */
const char *number_before(const char *start, const char *end, uint32_t *number);

bool is_library_file(const char *path, size_t length); /* an installed package's or the standard library's */
bool is_jax_file(const char *path, size_t length);     /* of JAX itself: never what a person would name */

#endif
