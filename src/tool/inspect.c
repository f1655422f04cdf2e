/* j2o inspect, for people. */
#include <inttypes.h>
#include <string.h>

#include "base/spelling.h"
#include "onnx/read.h"
#include "tool/tool.h"

typedef enum Color { COLOR_PLAIN, COLOR_HEAD, COLOR_OPERATOR, COLOR_TYPE, COLOR_ORIGIN, COLOR_FAINT } Color;

typedef struct Inspector {
  Report *report;
  const Model *model;
  int depth;
  bool has_origin; /* some node says where it came from */
} Inspector;

static void color(Report *report, Color which) {
  static const char *const codes[] = {
      [COLOR_PLAIN] = "0", [COLOR_HEAD] = "1", [COLOR_OPERATOR] = "36", [COLOR_TYPE] = "33",
      [COLOR_ORIGIN] = "32", [COLOR_FAINT] = "2",
  };
  if (report->color) builder_format(&report->line, "\x1b[%sm", codes[which]);
}

static void add(Report *report, const char *text) { builder_add(&report->line, text); }
static void add_text(Report *report, const char *text, size_t length) {
  spell_text(&report->line, SPELL_TERMINAL, text, length);
}
static void add_name(Report *report, Str name) { add_text(report, name, str_length(name)); }

static void add_colored(Report *report, Color which, Str text) {
  color(report, which);
  add_name(report, text);
  color(report, COLOR_PLAIN);
}

static void indent(Inspector *inspector, int more) {
  builder_format(&inspector->report->line, "%*s", inspector->depth * 4 + more, "");
}

Str node_metadata(const Node *node, const char *key) {
  for (size_t i = 0; i < node->metadata.count; i++) {
    if (strcmp(node->metadata.items[i].key, key) == 0) return node->metadata.items[i].value;
  }
  return NULL;
}

void inspect_type(Report *report, Type type) {
  if (type.dtype == DTYPE_NONE) {
    add(report, "?");
    return;
  }
  add(report, dtype_short(type.dtype));
  add(report, type_is_unranked(type) ? "[..." : "[");
  for (uint32_t i = 0; i < type.rank; i++) {
    if (i) add(report, ",");
    const char *text = dim_text(report->context, type.dims[i]);
    add_text(report, text, strlen(text));
  }
  add(report, "]");
}

static void add_type(Report *report, Type type) {
  color(report, COLOR_TYPE);
  inspect_type(report, type);
  color(report, COLOR_PLAIN);
}

static void add_heading(Inspector *inspector, const char *text) {
  add(inspector->report, "\n");
  indent(inspector, 0);
  color(inspector->report, COLOR_HEAD);
  add(inspector->report, text);
  color(inspector->report, COLOR_PLAIN);
  add(inspector->report, "\n");
}

static void add_size(Report *report, uint64_t bytes) {
  static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  double size = (double)bytes;
  for (; size >= 1024 && unit + 1 < sizeof units / sizeof *units; unit++) size /= 1024;
  builder_format(&report->line, unit ? "%.1f %s" : "%.0f %s", size, units[unit]);
}

/* ---- nodes ---- */

/* A text of several lines, each indented. */
static void add_block(Inspector *inspector, const char *title, Str text) {
  Report *report = inspector->report;
  indent(inspector, 6);
  color(report, COLOR_FAINT);
  add(report, title);
  add(report, ":\n");
  const char *end = text + str_length(text);
  for (const char *line = text; line <= end;) {
    const char *stop = line < end ? memchr(line, '\n', (size_t)(end - line)) : NULL;
    if (!stop) stop = end;
    indent(inspector, 8);
    add_text(report, line, (size_t)(stop - line));
    add(report, "\n");
    line = stop + 1;
  }
  color(report, COLOR_PLAIN);
}

static void add_origin(Inspector *inspector, const Node *node) {
  Report *report = inspector->report;
  for (size_t i = 0; i < node->metadata.count; i++) {
    bool is_ours = strncmp(node->metadata.items[i].key, METADATA_PREFIX, strlen(METADATA_PREFIX)) == 0;
    inspector->has_origin = inspector->has_origin || is_ours;
  }
  Str callsite = node_metadata(node, METADATA_PREFIX "callsite");
  Str plugin = node_metadata(node, METADATA_PREFIX "plugin");
  if (callsite || plugin) {
    indent(inspector, 6);
    if (callsite) {
      add(report, "at ");
      add_colored(report, COLOR_ORIGIN, callsite);
    }
    if (plugin) {
      add(report, callsite ? ", by " : "by ");
      add_colored(report, COLOR_FAINT, plugin);
    }
    add(report, "\n");
  }
  if (!report->full) return;
  Str stacktrace = node_metadata(node, METADATA_PREFIX "stacktrace");
  Str traceback = node_metadata(node, METADATA_PREFIX "jax_traceback");
  if (stacktrace) add_block(inspector, "stacktrace, outermost first", stacktrace);
  if (traceback) add_block(inspector, "JAX traceback, innermost first", traceback);
}

static void add_values(Report *report, const Node *node) {
  add(report, "(");
  for (uint32_t i = 0; i < node->input_count; i++) {
    if (i) add(report, ", ");
    const Value *value = node->inputs[i].value;
    if (value) add_name(report, value->name);
    else add(report, "-");
  }
  add(report, ") -> ");
  for (uint32_t i = 0; i < node->output_count; i++) {
    const Value *value = node->outputs[i];
    if (i) add(report, ", ");
    if (!value) {
      add(report, "-");
      continue;
    }
    add_name(report, value->name);
    add(report, " ");
    add_type(report, value->type);
  }
}

static void inspect_graph(Inspector *inspector, const Graph *graph);

static void inspect_node(Inspector *inspector, const Node *node) {
  Report *report = inspector->report;
  indent(inspector, 2);
  if (node->name && *node->name) {
    add_colored(report, COLOR_HEAD, node->name);
    add(report, ": ");
  }
  color(report, COLOR_OPERATOR);
  if (*node->domain) {
    add_name(report, node->domain);
    add(report, ".");
  }
  add_name(report, node->op);
  color(report, COLOR_PLAIN);
  add_values(report, node);
  add(report, "\n");
  add_origin(inspector, node);
  report_flush(report);
  for (size_t i = 0; i < node->attributes.count; i++) {
    const Attribute *attribute = &node->attributes.items[i];
    if (attribute->kind != ATTRIBUTE_GRAPH) continue;
    inspector->depth++;
    indent(inspector, 0);
    add_colored(report, COLOR_FAINT, attribute->name);
    inspect_graph(inspector, attribute->graph);
    inspector->depth--;
  }
}

/* ---- graphs ---- */

static void add_interface(Report *report, const Graph *graph) {
  add(report, " (");
  for (size_t i = 0; i < graph->inputs.count; i++) {
    if (i) add(report, ", ");
    add_name(report, graph->inputs.items[i]->name);
    add(report, " ");
    add_type(report, graph->inputs.items[i]->type);
  }
  add(report, ") -> (");
  for (size_t i = 0; i < graph->outputs.count; i++) {
    if (i) add(report, ", ");
    add_name(report, graph->outputs.items[i]->value->name);
    add(report, " ");
    add_type(report, graph->outputs.items[i]->value->type);
  }
  add(report, ")\n");
}

static void inspect_graph(Inspector *inspector, const Graph *graph) {
  add_interface(inspector->report, graph);
  FOR_EACH_NODE(node, graph) inspect_node(inspector, node);
  report_flush(inspector->report);
}

static void inspect_value(Inspector *inspector, const Value *value) {
  indent(inspector, 2);
  add_name(inspector->report, value->name);
  add(inspector->report, "  ");
  add_type(inspector->report, value->type);
  if (value->tensor) add(inspector->report, "  with a default");
  add(inspector->report, "\n");
}

/* ---- the model ---- */

static void add_weights(Report *report, const Graph *graph) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < graph->initializers.count; i++) {
    if (__builtin_add_overflow(bytes, graph->initializers.items[i]->tensor->size, &bytes)) bytes = UINT64_MAX;
  }
  builder_format(&report->line, "%zu %s, %zu %s of ", graph->node_count, graph->node_count == 1 ? "node" : "nodes",
                 graph->initializers.count, graph->initializers.count == 1 ? "initializer" : "initializers");
  add_size(report, bytes);
  add(report, "\n");
}

static void inspect_head(Inspector *inspector, const char *path) {
  Report *report = inspector->report;
  const Model *model = inspector->model;
  color(report, COLOR_HEAD);
  add_text(report, path, strlen(path));
  color(report, COLOR_PLAIN);
  builder_format(&report->line, "\n  ir_version  %" PRId64 "\n  opset       ", model->ir_version);
  for (size_t i = 0; i < model->opsets.count; i++) {
    const OpsetImport *import = &model->opsets.items[i];
    if (i) add(report, ", ");
    if (*import->domain) {
      add_name(report, import->domain);
      add(report, " ");
    }
    builder_format(&report->line, "%" PRId64, import->version);
  }
  add(report, "\n  producer    ");
  add_name(report, model->producer_name);
  if (*model->producer_version) add(report, " ");
  add_name(report, model->producer_version);
  add(report, "\n  graph       ");
  add_name(report, model->graph->name);
  add(report, *model->graph->name ? ": " : "");
  add_weights(report, model->graph);
  for (size_t i = 0; i < model->metadata.count; i++) {
    add(report, "  ");
    add_name(report, model->metadata.items[i].key);
    add(report, " = ");
    add_name(report, model->metadata.items[i].value);
    add(report, "\n");
  }
}

static void inspect_function(Inspector *inspector, const Function *function) {
  Report *report = inspector->report;
  add(report, "\n");
  color(report, COLOR_HEAD);
  add(report, "function ");
  if (*function->domain) {
    add_name(report, function->domain);
    add(report, ".");
  }
  add_name(report, function->name);
  color(report, COLOR_PLAIN);
  for (size_t i = 0; i < function->attributes.count; i++) {
    add(report, i ? ", " : " <");
    add_name(report, function->attributes.items[i]);
  }
  if (function->attributes.count) add(report, ">");
  inspect_graph(inspector, function->body);
}

void inspect_text(Report *report, const char *path, const Model *model) {
  Inspector inspector = {.report = report, .model = model};
  inspect_head(&inspector, path);
  add_heading(&inspector, "inputs");
  for (size_t i = 0; i < model->graph->inputs.count; i++) inspect_value(&inspector, model->graph->inputs.items[i]);
  add_heading(&inspector, "outputs");
  for (size_t i = 0; i < model->graph->outputs.count; i++) {
    inspect_value(&inspector, model->graph->outputs.items[i]->value);
  }
  add_heading(&inspector, "nodes");
  FOR_EACH_NODE(node, model->graph) inspect_node(&inspector, node);
  for (size_t i = 0; i < model->functions.count; i++) inspect_function(&inspector, model->functions.items[i]);
  if (!inspector.has_origin) {
    add(report,
        "\nNo node says where it came from. Export the model with JAX2ONNX_ENABLE_STACKTRACE_METADATA=1 in the\n"
        "environment to have the line of the program written on every node.\n");
  }
  report_flush(report);
}
