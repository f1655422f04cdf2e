/* The command line over models on disk. Knows neither JAX nor Python. */
#ifndef J2O_TOOL_H
#define J2O_TOOL_H

#include <stdio.h>

#include "base/builder.h"
#include "onnx/graph.h"
#include "onnx/metadata.h"

enum { EXIT_OK = 0, EXIT_FILE = 1, EXIT_USAGE = 2 };

/* The whole tool, on given streams. Returns the exit code. */
int j2o_tool_main(int argc, char **argv, FILE *out, FILE *err);

/* Text on its way to a stream, flushed as it grows. A failing write unwinds with ERROR_IO. */
typedef struct Report {
  Context *context;
  FILE *stream;
  Builder line;
  bool color;
  bool full;
  bool pipe_closed; /* the reader of our output is gone: not an error */
} Report;

void report_flush(Report *report);

/* What j2o inspect prints. inspect.c, inspect_json.c */
void inspect_text(Report *report, const char *path, const Model *model);
void inspect_json(Report *report, const char *path, const Model *model);

/* A node's metadata by key, whether it was read or is our own; NULL when absent. */
Str node_metadata(const Node *node, const char *key);

/* "f32[2,B]"; "?" when unknown. */
void inspect_type(Report *report, Type type);

#endif
