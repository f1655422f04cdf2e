/* j2o inspect, for people. */
#include <inttypes.h>
#include <string.h>

#include "base/bytes.h"
#include "tool/index.h"

typedef struct Inspector {
  Report *report;
  const OriginIndex *index;
  int depth;
  bool flat; /* without the bodies of nodes */
} Inspector;

static void indent(Inspector *inspector, int more) {
  builder_format(&inspector->report->line, "%*s", inspector->depth * 4 + more, "");
}

static void add_heading(Inspector *inspector, const char *text) {
  report_add(inspector->report, "\n");
  indent(inspector, 0);
  report_heading(inspector->report, text);
  report_add(inspector->report, "\n");
}

/* ---- nodes ---- */

/* A text of several lines, each indented. */
static void add_block(Inspector *inspector, const char *title, Str text) {
  Report *report = inspector->report;
  indent(inspector, 6);
  report_color(report, COLOR_FAINT);
  report_add(report, title);
  report_add(report, ":\n");
  const char *end = text + str_length(text);
  for (const char *line = text; line <= end;) {
    const char *stop = line < end ? find_letter(line, '\n', (size_t)(end - line)) : NULL;
    if (!stop) stop = end;
    indent(inspector, 8);
    report_text(report, line, (size_t)(stop - line));
    report_add(report, "\n");
    line = stop + 1;
  }
  report_color(report, COLOR_PLAIN);
}

enum { MOST_LINES = 8 };

/* The lines whose work the item does besides that of its own. */
static void add_fused(Inspector *inspector, const Item *item) {
  Report *report = inspector->report;
  const OriginIndex *index = inspector->index;
  const IndexOrigin *origin = &index->origins.items[item->origin];
  size_t shown = 0;
  for (size_t i = 0; i < origin->passed.count && shown <= MOST_LINES; i++) {
    if (origin->passed.items[i].relation != RELATION_FUSED) continue;
    const IndexFrame *frame = &index->frames.items[origin->passed.items[i].frame];
    if (!shown) indent(inspector, 6);
    report_add(report, shown ? ", " : "with ");
    if (shown++ == MOST_LINES) report_add(report, "…");
    else report_place(report, (Place){.function = frame->function, .line = index->lines.items[frame->line].number});
  }
  if (shown) report_add(report, "\n");
}

static void add_texts(Inspector *inspector, const MetadataList *metadata) {
  Str stacktrace = metadata_get(metadata, METADATA_PREFIX "stacktrace");
  Str traceback = metadata_get(metadata, METADATA_PREFIX "jax_traceback");
  Str torch = metadata_get(metadata, TORCH_TRACE);
  if (stacktrace) add_block(inspector, "stacktrace, outermost first", stacktrace);
  if (traceback) add_block(inspector, "JAX traceback, innermost first", traceback);
  if (torch) add_block(inspector, "PyTorch stack trace, innermost last", torch);
}

static void add_origin(Inspector *inspector, const Item *item) {
  Report *report = inspector->report;
  Str plugin = metadata_get(item->metadata, METADATA_PREFIX "plugin");
  const char *between = "";
  if (!item->place.function && !plugin && !item->module) return;
  indent(inspector, 6);
  if (item->place.function) {
    report_add(report, "at ");
    report_place(report, item->place);
    between = ", ";
  }
  if (plugin) {
    builder_format(&report->line, "%sby ", between);
    report_colored(report, COLOR_FAINT, plugin);
    between = ", ";
  }
  if (item->module && *item->module) {
    builder_format(&report->line, "%sin ", between);
    report_colored(report, COLOR_FAINT, item->module);
  }
  report_add(report, "\n");
  if (item->origin != NO_ROW) add_fused(inspector, item);
  if (report->full) add_texts(inspector, item->metadata);
}

static void add_values(Report *report, const Node *node) {
  report_add(report, "(");
  for (uint32_t i = 0; i < node->input_count; i++) {
    if (i) report_add(report, ", ");
    const Value *value = node->inputs[i].value;
    if (value) report_name(report, value->name);
    else report_add(report, "-");
  }
  report_add(report, ") -> ");
  for (uint32_t i = 0; i < node->output_count; i++) {
    const Value *value = node->outputs[i];
    if (i) report_add(report, ", ");
    if (!value) {
      report_add(report, "-");
      continue;
    }
    report_name(report, value->name);
    report_add(report, " ");
    report_type(report, value->type);
  }
}

static void inspect_graph(Inspector *inspector, const Graph *graph);

static void add_node(Inspector *inspector, const Node *node) {
  Report *report = inspector->report;
  indent(inspector, 2);
  if (node->name && *node->name) {
    report_colored(report, COLOR_HEAD, node->name);
    report_add(report, ": ");
  }
  report_operator(report, node);
  add_values(report, node);
  report_add(report, "\n");
  add_origin(inspector, node_item(inspector->index, node));
  report_flush(report);
  for (size_t i = 0; i < node->attributes.count && !inspector->flat; i++) {
    const Attribute *attribute = &node->attributes.items[i];
    if (attribute->kind != ATTRIBUTE_GRAPH) continue;
    inspector->depth++;
    indent(inspector, 0);
    report_colored(report, COLOR_FAINT, attribute->name);
    inspect_graph(inspector, attribute->graph);
    inspector->depth--;
  }
}

static void add_initializer(Inspector *inspector, const Item *item) {
  Report *report = inspector->report;
  indent(inspector, 2);
  report_colored(report, COLOR_HEAD, item->value->name);
  report_add(report, " ");
  report_type(report, item->value->type);
  report_add(report, ", an initializer of ");
  report_size(report, item->value->tensor->size);
  report_add(report, "\n");
  add_origin(inspector, item);
}

static void add_removed(Inspector *inspector, const Item *item) {
  Report *report = inspector->report;
  indent(inspector, 2);
  report_name(report, item_reason(report->context, item));
  if (item->pass) {
    report_add(report, ", by ");
    report_name(report, item->pass);
  }
  report_add(report, "\n");
  add_origin(inspector, item);
}

void inspect_item(Report *report, const OriginIndex *index, const Item *item) {
  Inspector inspector = {.report = report, .index = index, .flat = true};
  if (item->kind == INDEX_NODE) add_node(&inspector, item->node);
  else if (item->kind == INDEX_INITIALIZER) add_initializer(&inspector, item);
  else add_removed(&inspector, item);
}

/* ---- graphs ---- */

static void add_interface(Report *report, const Graph *graph) {
  report_add(report, " (");
  for (size_t i = 0; i < graph->inputs.count; i++) {
    if (i) report_add(report, ", ");
    report_name(report, graph->inputs.items[i]->name);
    report_add(report, " ");
    report_type(report, graph->inputs.items[i]->type);
  }
  report_add(report, ") -> (");
  for (size_t i = 0; i < graph->outputs.count; i++) {
    if (i) report_add(report, ", ");
    report_name(report, graph->outputs.items[i]->value->name);
    report_add(report, " ");
    report_type(report, graph->outputs.items[i]->value->type);
  }
  report_add(report, ")\n");
}

static void inspect_graph(Inspector *inspector, const Graph *graph) {
  add_interface(inspector->report, graph);
  FOR_EACH_NODE(node, graph) add_node(inspector, node);
  report_flush(inspector->report);
}

static void inspect_value(Inspector *inspector, const Value *value) {
  indent(inspector, 2);
  report_name(inspector->report, value->name);
  report_add(inspector->report, "  ");
  report_type(inspector->report, value->type);
  if (value->tensor) report_add(inspector->report, "  with a default");
  report_add(inspector->report, "\n");
}

/* ---- the model ---- */

static void add_weights(Report *report, const Graph *graph) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < graph->initializers.count; i++) {
    if (__builtin_add_overflow(bytes, graph->initializers.items[i]->tensor->size, &bytes)) bytes = UINT64_MAX;
  }
  builder_format(&report->line, "%zu %s, %zu %s of ", graph->node_count, graph->node_count == 1 ? "node" : "nodes",
                 graph->initializers.count, graph->initializers.count == 1 ? "initializer" : "initializers");
  report_size(report, bytes);
  report_add(report, "\n");
}

static void inspect_head(Inspector *inspector, const char *path) {
  Report *report = inspector->report;
  const Model *model = inspector->index->model;
  report_color(report, COLOR_HEAD);
  report_text(report, path, strlen(path));
  report_color(report, COLOR_PLAIN);
  builder_format(&report->line, "\n  ir_version  %" PRId64 "\n  opset       ", model->ir_version);
  for (size_t i = 0; i < model->opsets.count; i++) {
    const OpsetImport *import = &model->opsets.items[i];
    if (i) report_add(report, ", ");
    if (*import->domain) {
      report_name(report, import->domain);
      report_add(report, " ");
    }
    builder_format(&report->line, "%" PRId64, import->version);
  }
  report_add(report, "\n  producer    ");
  report_name(report, model->producer_name);
  if (*model->producer_version) report_add(report, " ");
  report_name(report, model->producer_version);
  report_add(report, "\n  graph       ");
  report_name(report, model->graph->name);
  report_add(report, *model->graph->name ? ": " : "");
  add_weights(report, model->graph);
  for (size_t i = 0; i < model->metadata.count; i++) {
    if (str_begins(model->metadata.items[i].key, METADATA_PREFIX) && !report->full) continue;
    report_add(report, "  ");
    report_name(report, model->metadata.items[i].key);
    report_add(report, " = ");
    report_name(report, model->metadata.items[i].value);
    report_add(report, "\n");
  }
}

static void inspect_function(Inspector *inspector, const Function *function) {
  Report *report = inspector->report;
  report_add(report, "\n");
  report_color(report, COLOR_HEAD);
  report_add(report, "function ");
  if (*function->domain) {
    report_name(report, function->domain);
    report_add(report, ".");
  }
  report_name(report, function->name);
  report_color(report, COLOR_PLAIN);
  for (size_t i = 0; i < function->attributes.count; i++) {
    report_add(report, i ? ", " : " <");
    report_name(report, function->attributes.items[i]);
  }
  if (function->attributes.count) report_add(report, ">");
  inspect_graph(inspector, function->body);
}

void inspect_text(Report *report, const char *path, const OriginIndex *index) {
  Inspector inspector = {.report = report, .index = index};
  const Model *model = index->model;
  inspect_head(&inspector, path);
  add_heading(&inspector, "inputs");
  for (size_t i = 0; i < model->graph->inputs.count; i++) inspect_value(&inspector, model->graph->inputs.items[i]);
  add_heading(&inspector, "outputs");
  for (size_t i = 0; i < model->graph->outputs.count; i++) {
    inspect_value(&inspector, model->graph->outputs.items[i]->value);
  }
  add_heading(&inspector, "nodes");
  FOR_EACH_NODE(node, model->graph) add_node(&inspector, node);
  for (size_t i = 0; i < model->functions.count; i++) inspect_function(&inspector, model->functions.items[i]);
  if (!index->placed_count) {
    builder_format(&report->line, "\nN%s\n", no_places_help + 1);
  }
  report_flush(report);
}
