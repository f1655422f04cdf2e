/* Text on its way to a stream: words of ours, names from a file, types and sizes, in colours or as JSON. */
#ifndef J2O_TOOL_REPORT_H
#define J2O_TOOL_REPORT_H

#include <stdio.h>

#include "base/builder.h"
#include "onnx/graph/graph.h"

typedef struct Report {
  Context *context;
  FILE *stream;
  Builder line;
  bool color;
  bool full;
  const char *folder; /* paths inside it are shown without it; NULL: all are shown whole */
  uint64_t written;   /* bytes, so far */
  bool pipe_closed;   /* the reader of our output is gone: not an error */
} Report;

/* Hands on what was added. A failing write unwinds with ERROR_IO. */
void report_flush(Report *report);
void report_finish(Report *report);

typedef enum Color {
  COLOR_PLAIN,
  COLOR_HEAD,
  COLOR_OPERATOR,
  COLOR_TYPE,
  COLOR_ORIGIN,
  COLOR_FAINT,
  COLOR_ADDED,
  COLOR_REMOVED,
  COLOR_CHANGED,
} Color;

void report_color(Report *report, Color color);
void report_add(Report *report, const char *words);                /* our own: printed as they are */
void report_text(Report *report, const char *text, size_t length); /* from a file: safe for a terminal */
void report_name(Report *report, Str name);
void report_path(Report *report, Str path); /* of a file on disk */
void report_colored(Report *report, Color color, Str name);
void report_heading(Report *report, const char *words);
void report_operator(Report *report, const Node *node);            /* "Sin", "domain.Op" */
void report_type(Report *report, Type type);                       /* "f32[2,B]"; "?" when unknown */
void report_size(Report *report, uint64_t bytes);                  /* "1.5 MiB" */
void report_attribute(Report *report, const Attribute *attribute); /* its value; of large ones what they are */
void report_columns(Report *report, size_t start, size_t width); /* spaces until the line that began there is as wide */

void json_text(Report *report, const char *text, size_t length);
void json_name(Report *report, Str text);       /* NULL is null */
void json_lines_of(Report *report, Str text);   /* its lines, as a list */
void json_key(Report *report, const char *key); /* a key after others; an object's first is written by hand */
void json_count(Report *report, const char *key, uint64_t count);
void json_type(Report *report, Type type);

#endif
