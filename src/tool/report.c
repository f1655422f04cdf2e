/* Reports. */
#include "tool/report.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/spelling.h"
#include "onnx/file/read.h"

static void check_written(Report *report, bool written) {
  if (written) return;
  if (errno == EINTR) interruption_point(report->context);
  report->pipe_closed = errno == EPIPE;
  fail(report->context, ERROR_IO, "cannot write: %s", strerror(errno));
}

void report_flush(Report *report) {
  Builder *line = &report->line;
  size_t length = line->length;
  line->length = 0;
  report->written += length;
  interruption_point(report->context);
  errno = 0;
  check_written(report, !length || fwrite(line->text, 1, length, report->stream) == length);
}

void report_finish(Report *report) {
  report_flush(report);
  errno = 0;
  check_written(report, fflush(report->stream) == 0);
}

void report_color(Report *report, Color color) {
  static const char *const codes[] = {
      [COLOR_PLAIN] = "0", [COLOR_HEAD] = "1",   [COLOR_OPERATOR] = "36", [COLOR_TYPE] = "33",    [COLOR_ORIGIN] = "32",
      [COLOR_FAINT] = "2", [COLOR_ADDED] = "32", [COLOR_REMOVED] = "31",  [COLOR_CHANGED] = "33",
  };
  if (report->color) builder_format(&report->line, "\x1b[%sm", codes[color]);
}

void report_add(Report *report, const char *words) { builder_add(&report->line, words); }

void report_text(Report *report, const char *text, size_t length) {
  spell_text(&report->line, SPELL_TERMINAL, text, length);
}

void report_name(Report *report, Str name) { report_text(report, name, str_length(name)); }

void report_path(Report *report, Str path) {
  size_t length = report->folder ? strlen(report->folder) : 0;
  bool inside = length > 1 && strncmp(path, report->folder, length) == 0 && path[length] == '/' && path[length + 1];
  size_t from = inside ? length + 1 : 0;
  report_text(report, path + from, str_length(path) - from);
}

void report_colored(Report *report, Color color, Str name) {
  report_color(report, color);
  report_name(report, name);
  report_color(report, COLOR_PLAIN);
}

void report_heading(Report *report, const char *words) {
  report_color(report, COLOR_HEAD);
  report_add(report, words);
  report_color(report, COLOR_PLAIN);
}

void report_operator(Report *report, const Node *node) {
  report_color(report, COLOR_OPERATOR);
  if (*node->domain) {
    report_name(report, node->domain);
    report_add(report, ".");
  }
  report_name(report, node->op_type);
  report_color(report, COLOR_PLAIN);
}

void report_type(Report *report, Type type) {
  report_color(report, COLOR_TYPE);
  if (type.dtype == DTYPE_NONE) {
    report_add(report, "?");
  } else {
    report_add(report, dtype_short(type.dtype));
    report_add(report, type_is_unranked(type) ? "[..." : "[");
    for (uint32_t i = 0; i < type.rank; i++) {
      if (i) report_add(report, ",");
      report_name(report, dim_text(report->context, type.dims[i]));
    }
    report_add(report, "]");
  }
  report_color(report, COLOR_PLAIN);
}

void report_size(Report *report, uint64_t bytes) {
  static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  double size = (double)bytes;
  for (; size >= 1024 && unit + 1 < sizeof units / sizeof *units; unit++) size /= 1024;
  builder_format(&report->line, unit ? "%.1f %s" : "%.0f %s", size, units[unit]);
}

enum { MOST_ELEMENTS = 16 };

static void add_list(Report *report, const Attribute *attribute) {
  report_add(report, "[");
  for (size_t i = 0; i < attribute->count; i++) {
    if (i) report_add(report, ", ");
    if (i == MOST_ELEMENTS) {
      report_add(report, "…");
      break;
    }
    if (attribute->kind == ATTRIBUTE_INTS) builder_format(&report->line, "%" PRId64, attribute->integers[i]);
    else if (attribute->kind == ATTRIBUTE_FLOATS) spell_float(&report->line, attribute->reals[i]);
    else report_name(report, attribute->strings[i]);
  }
  report_add(report, "]");
}

void report_attribute(Report *report, const Attribute *attribute) {
  if (attribute->reference) {
    report_add(report, "@");
    report_name(report, attribute->reference);
    return;
  }
  switch (attribute->kind) {
    case ATTRIBUTE_INT: builder_format(&report->line, "%" PRId64, attribute->integer); break;
    case ATTRIBUTE_FLOAT: spell_float(&report->line, attribute->real); break;
    case ATTRIBUTE_STRING: report_text(report, attribute->string, attribute->count); break;
    case ATTRIBUTE_TENSOR:
      if (attribute->tensor) report_type(report, tensor_type(report->context, attribute->tensor));
      break;
    case ATTRIBUTE_GRAPH: builder_format(&report->line, "a graph of %zu nodes", attribute->graph->node_count); break;
    case ATTRIBUTE_OTHER: report_add(report, "(of a kind that is not shown)"); break;
    default: add_list(report, attribute); break;
  }
}

void report_columns(Report *report, size_t start, size_t width) {
  size_t used = 0;
  const char *text = report->line.text;
  for (size_t i = start; i < report->line.length; i++) {
    if (text[i] == '\x1b') {
      while (i < report->line.length && text[i] != 'm') i++;
    } else if (((unsigned char)text[i] & 0xC0) != 0x80) {
      used++;
    }
  }
  if (used < width) builder_format(&report->line, "%*s", (int)(width - used), "");
}

void json_text(Report *report, const char *text, size_t length) { spell_text(&report->line, SPELL_JSON, text, length); }

void json_name(Report *report, Str text) {
  if (text) json_text(report, text, str_length(text));
  else report_add(report, "null");
}

void json_lines_of(Report *report, Str text) {
  report_add(report, "[");
  for (const char *line = text, *end = text + str_length(text); line;) {
    const char *stop = find_letter(line, '\n', (size_t)(end - line));
    json_text(report, line, (size_t)((stop ? stop : end) - line));
    if (stop) report_add(report, ", ");
    line = stop ? stop + 1 : NULL;
  }
  report_add(report, "]");
}

void json_key(Report *report, const char *key) { builder_format(&report->line, ", \"%s\": ", key); }

void json_count(Report *report, const char *key, uint64_t count) {
  builder_format(&report->line, ", \"%s\": %" PRIu64, key, count);
}

void json_type(Report *report, Type type) {
  if (type.dtype == DTYPE_NONE) {
    report_add(report, "null");
    return;
  }
  builder_format(&report->line, "{\"dtype\": \"%s\"", dtype_name(type.dtype));
  json_key(report, "shape");
  if (type_is_unranked(type)) {
    report_add(report, "null}");
    return;
  }
  report_add(report, "[");
  for (uint32_t i = 0; i < type.rank; i++) {
    if (i) report_add(report, ", ");
    Str text = dim_text(report->context, type.dims[i]);
    if (dim_is_constant(type.dims[i])) report_add(report, text);
    else if (str_is(text, UNKNOWN_DIMENSION)) report_add(report, "null");
    else json_name(report, text);
  }
  report_add(report, "]}");
}
