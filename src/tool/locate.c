/* j2o locate: one node or value, its trace, its neighbours. */
#include <inttypes.h>
#include <string.h>

#include "tool/nodes.h"
#include "tool/source.h"

typedef struct Found {
  const Node *node;   /* by its name, or the maker of the value */
  const Value *value; /* the value of that name; NULL: it was a node's name */
  const NodeList *nodes;
} Found;

static const Value *named_value(const Graph *graph, Str name) {
  for (size_t i = 0; i < graph->inputs.count; i++) {
    if (graph->inputs.items[i]->name == name) return graph->inputs.items[i];
  }
  for (size_t i = 0; i < graph->initializers.count; i++) {
    if (graph->initializers.items[i]->name == name) return graph->initializers.items[i];
  }
  return NULL;
}

/* Node names first, then what nodes make, then inputs and initializers of any graph. */
static Found find(Job *job, Model *model, Str name) {
  Found found = {.nodes = model_nodes(&job->context, model)};
  const PlacedNode *items = found.nodes->nodes.items;
  size_t count = found.nodes->nodes.count;
  for (size_t i = 0; i < count && !found.node; i++) {
    if (items[i].node->name == name) found.node = items[i].node;
  }
  for (size_t i = 0; i < count && !found.node; i++) {
    for (uint32_t k = 0; k < items[i].node->output_count; k++) {
      const Value *value = items[i].node->outputs[k];
      if (!value || value->name != name) continue;
      found.node = items[i].node;
      found.value = value;
    }
  }
  if (found.node) return found;
  found.value = named_value(model->graph, name);
  const Graph *last = NULL;
  for (size_t i = 0; i < count && !found.value; i++) {
    if (items[i].node->graph != last) found.value = named_value(items[i].node->graph, name);
    last = items[i].node->graph;
  }
  return found;
}

/* Some names that hold what was asked for. */
static _Noreturn void fail_unknown(Job *job, const NodeList *nodes, const char *name) {
  Builder text;
  builder_init(&text, &job->context);
  size_t shown = 0;
  for (size_t i = 0; i < nodes->nodes.count && shown < 5; i++) {
    const Node *node = nodes->nodes.items[i].node;
    if (!*node->name || !strcasestr(node->name, name)) continue;
    builder_format(&text, "%s%s", shown++ ? ", " : "; there are ", node->name);
  }
  fail(&job->context, ERROR_VALUE, "%s: no node or value is called %s%s", job->path, name, builder_text(&text));
}

static Place place_of(const NodeList *nodes, const Node *node) { return nodes->nodes.items[node_index(node)].place; }

/* ---- for people ---- */

static void add_value(Report *report, const Value *value) {
  report_name(report, value->name);
  report_add(report, " ");
  report_type(report, value->type);
}

static void add_neighbour(Report *report, const Found *found, const Node *node) {
  report_operator(report, node);
  if (*node->name) {
    report_add(report, " ");
    report_name(report, node->name);
  }
  Place place = place_of(found->nodes, node);
  if (!place.function) return;
  report_add(report, "  at ");
  report_color(report, COLOR_ORIGIN);
  report_name(report, place.function);
  builder_format(&report->line, ":%u", place.line);
  report_color(report, COLOR_PLAIN);
}

static void add_source_of(Report *report, const Found *found, const Value *value) {
  if (value->producer) {
    report_add(report, "  from ");
    add_neighbour(report, found, value->producer);
  } else if (value->tensor) {
    report_add(report, "  initializer of ");
    report_size(report, value->tensor->size);
  } else {
    report_add(report, value->graph->owner ? "  of the graph around" : "  graph input");
  }
  report_add(report, "\n");
}

enum { MOST_READERS = 20 };

/* In the order of the graph; a list of uses begins with the newest. NULL stands for an output of the graph. */
typedef ARRAY(const Node *) Readers;

static Readers readers_of(Report *report, const Value *value) {
  Readers readers = {0};
  for (const Use *use = value->uses; use; use = use->next) array_push(report->context, &readers, use->node);
  for (size_t i = 0, j = readers.count; i + 1 < j; i++) {
    const Node *other = readers.items[--j];
    readers.items[j] = readers.items[i];
    readers.items[i] = other;
  }
  return readers;
}

static void add_readers(Report *report, const Found *found, const Value *value) {
  Readers readers = readers_of(report, value);
  for (size_t i = 0; i < readers.count && i < MOST_READERS; i++) {
    report_add(report, "      to ");
    if (readers.items[i]) add_neighbour(report, found, readers.items[i]);
    else report_add(report, "an output of the graph");
    report_add(report, "\n");
  }
  if (!readers.count) report_add(report, "      read by nothing\n");
  if (readers.count > MOST_READERS) {
    builder_format(&report->line, "      … and %zu more\n", readers.count - MOST_READERS);
  }
}

static void add_frame(Job *job, const TraceFrame *frame) {
  Report *report = &job->report;
  bool library = is_library_file(frame->file, frame->file_length);
  report_add(report, "  ");
  report_color(report, library ? COLOR_FAINT : COLOR_ORIGIN);
  report_text(report, frame->file, frame->file_length);
  builder_format(&report->line, ":%u", frame->line);
  report_color(report, COLOR_PLAIN);
  report_add(report, " in ");
  report_text(report, frame->function, frame->function_length);
  report_add(report, "\n");
  Str path = str_intern_sized(&job->context, frame->file, frame->file_length);
  const Source *source = source_open(job, path);
  if (!source || !source_line(source, frame->line)) return;
  report_add(report, "      ");
  report_source_line(job, path, frame->line);
  report_add(report, "\n");
}

/* Frames of libraries are left out unless asked for, or nothing else is there. */
static void add_trace(Job *job, const Node *node) {
  Report *report = &job->report;
  TraceCursor cursor = node_trace(node);
  TraceFrame frame;
  size_t count = 0, own = 0, hidden = 0, shown = 0;
  for (TraceCursor counter = cursor; trace_next(&counter, &frame); count++) {
    own += !is_library_file(frame.file, frame.file_length);
  }
  if (!count) return;
  report_add(report, "\n");
  report_heading(report, cursor.is_torch ? "trace, innermost last" : "trace, innermost first");
  report_add(report, "\n");
  bool another = false;
  while (trace_next(&cursor, &frame)) {
    if (frame.begins_block && shown) another = true;
    if (!report->full && own && is_library_file(frame.file, frame.file_length)) {
      hidden++;
      continue;
    }
    if (another) report_add(report, "  and\n");
    another = false;
    add_frame(job, &frame);
    shown++;
  }
  if (hidden) builder_format(&report->line, "  (%zu frames inside libraries: --full)\n", hidden);
}

static void add_attributes(Report *report, const Node *node) {
  for (size_t i = 0; i < node->attributes.count; i++) {
    const Attribute *attribute = &node->attributes.items[i];
    report_add(report, "  ");
    report_name(report, attribute->name);
    report_add(report, " = ");
    report_attribute(report, attribute);
    report_add(report, "\n");
  }
}

static void add_origin(Job *job, const Found *found) {
  Report *report = &job->report;
  const Node *node = found->node;
  Place place = place_of(found->nodes, node);
  Str plugin = node_metadata(node, METADATA_PREFIX "plugin");
  if (place.function) {
    report_add(report, "  at ");
    report_color(report, COLOR_ORIGIN);
    report_name(report, place.function);
    builder_format(&report->line, ":%u", place.line);
    report_color(report, COLOR_PLAIN);
    if (place.file) {
      report_add(report, " in ");
      report_name(report, place.file);
    }
    report_add(report, "\n");
  } else {
    builder_format(&report->line, "  N%s\n", no_places_help + 1);
  }
  if (plugin) {
    report_add(report, "  by ");
    report_colored(report, COLOR_FAINT, plugin);
    report_add(report, "\n");
  }
  for (size_t i = 0; i < node->metadata.count; i++) {
    const Metadata *entry = &node->metadata.items[i];
    if (str_begins(entry->key, METADATA_PREFIX) || str_is(entry->key, TORCH_TRACE)) continue;
    report_add(report, "  ");
    report_name(report, entry->key);
    report_add(report, ": ");
    report_name(report, entry->value);
    report_add(report, "\n");
  }
}

static void add_stack(Report *report, const Node *node) {
  Str stack = node_metadata(node, METADATA_PREFIX "stacktrace");
  if (!stack || !report->full) return;
  report_add(report, "\n");
  report_heading(report, "the converter's calls, outermost first");
  report_add(report, "\n");
  for (const char *line = stack, *end = stack + str_length(stack); line < end;) {
    const char *stop = memchr(line, '\n', (size_t)(end - line));
    if (!stop) stop = end;
    report_add(report, "  ");
    report_text(report, line, (size_t)(stop - line));
    report_add(report, "\n");
    line = stop + 1;
  }
}

static void add_node(Job *job, const Found *found) {
  Report *report = &job->report;
  const Node *node = found->node;
  report_heading(report, *node->name ? "" : "(no name)");
  report_colored(report, COLOR_HEAD, node->name);
  report_add(report, ": ");
  report_operator(report, node);
  report_add(report, "\n");
  add_origin(job, found);
  for (const Node *owner = node->graph->owner; owner; owner = owner->graph->owner) {
    report_add(report, "  inside ");
    add_neighbour(report, found, owner);
    report_add(report, "\n");
  }
  add_attributes(report, node);
  add_trace(job, node);
  add_stack(report, node);
  report_add(report, "\n");
  report_heading(report, "inputs");
  report_add(report, "\n");
  for (uint32_t i = 0; i < node->input_count; i++) {
    const Value *value = node->inputs[i].value;
    report_add(report, value ? "  " : "  -\n");
    if (!value) continue;
    add_value(report, value);
    add_source_of(report, found, value);
  }
  report_add(report, "\n");
  report_heading(report, "outputs");
  report_add(report, "\n");
  for (uint32_t i = 0; i < node->output_count; i++) {
    const Value *value = node->outputs[i];
    report_add(report, value ? "  " : "  -\n");
    if (!value) continue;
    add_value(report, value);
    report_add(report, "\n");
    add_readers(report, found, value);
    report_flush(report);
  }
}

static void add_lone_value(Report *report, const Found *found) {
  const Value *value = found->value;
  report_colored(report, COLOR_HEAD, value->name);
  report_add(report, " ");
  report_type(report, value->type);
  add_source_of(report, found, value);
  add_readers(report, found, value);
}

/* ---- for programs ---- */

static void json_neighbour(Report *report, const Found *found, const Node *node) {
  Place place = place_of(found->nodes, node);
  report_add(report, "{\"name\": ");
  json_name(report, node->name);
  json_key(report, "op_type");
  json_name(report, node->op_type);
  json_key(report, "function");
  json_name(report, place.function);
  json_count(report, "line", place.line);
  report_add(report, "}");
}

static void json_value(Report *report, const Found *found, const Value *value, bool with_readers) {
  if (!value) {
    report_add(report, "null");
    return;
  }
  report_add(report, "{\"name\": ");
  json_name(report, value->name);
  json_key(report, "type");
  json_type(report, value->type);
  json_key(report, "kind");
  report_add(report, value->producer ? "\"node\"" : value->tensor ? "\"initializer\"" : "\"input\"");
  json_key(report, "producer");
  if (value->producer) json_neighbour(report, found, value->producer);
  else report_add(report, "null");
  if (with_readers) {
    json_key(report, "consumers");
    report_add(report, "[");
    bool first = true;
    Readers readers = readers_of(report, value);
    for (size_t i = 0; i < readers.count; i++) {
      if (!readers.items[i]) continue;
      report_add(report, first ? "" : ", ");
      json_neighbour(report, found, readers.items[i]);
      first = false;
    }
    report_add(report, "]");
    json_key(report, "is_output");
    report_add(report, value_is_output(value) ? "true" : "false");
  }
  report_add(report, "}");
}

static void json_trace(Job *job, const Node *node) {
  Report *report = &job->report;
  TraceCursor cursor = node_trace(node);
  TraceFrame frame;
  bool first = true;
  report_add(report, "[");
  while (trace_next(&cursor, &frame)) {
    Str path = str_intern_sized(&job->context, frame.file, frame.file_length);
    report_add(report, first ? "{\"file\": " : ",\n{\"file\": ");
    json_name(report, path);
    json_count(report, "line", frame.line);
    json_key(report, "function");
    json_text(report, frame.function, frame.function_length);
    const Source *source = source_open(job, path);
    const SourceLine *line = source ? source_line(source, frame.line) : NULL;
    json_key(report, "source");
    if (line) json_text(report, line->text, line->length);
    else report_add(report, "null");
    report_add(report, frame.begins_block ? ", \"begins_trace\": true}" : ", \"begins_trace\": false}");
    first = false;
  }
  report_add(report, "]");
}

static void json_found(Job *job, const Found *found) {
  Report *report = &job->report;
  report_add(report, "{\"file\": ");
  json_text(report, job->path, strlen(job->path));
  if (!found->node) {
    json_key(report, "value");
    json_value(report, found, found->value, true);
    report_add(report, "}\n");
    return;
  }
  const Node *node = found->node;
  Place place = place_of(found->nodes, node);
  json_key(report, "node");
  inspect_json_node(report, node);
  json_key(report, "place");
  report_add(report, "{\"function\": ");
  json_name(report, place.function);
  json_key(report, "source_file");
  json_name(report, place.file);
  json_count(report, "line", place.line);
  report_add(report, "}, \"trace\": ");
  json_trace(job, node);
  report_add(report, ", \"inputs\": [");
  for (uint32_t i = 0; i < node->input_count; i++) {
    report_add(report, i ? ",\n" : "\n");
    json_value(report, found, node->inputs[i].value, false);
  }
  report_add(report, "], \"outputs\": [");
  for (uint32_t i = 0; i < node->output_count; i++) {
    report_add(report, i ? ",\n" : "\n");
    json_value(report, found, node->outputs[i], true);
  }
  report_add(report, "]");
  json_sources(job);
  report_add(report, "}\n");
}

/* The files of the node's own trace are what --source can stand for. */
static void match_frames(Job *job, const Node *node) {
  Context *context = &job->context;
  ARRAY(Str) names = {0};
  TraceCursor cursor = node_trace(node);
  for (TraceFrame frame; trace_next(&cursor, &frame);) {
    array_push(context, &names, str_intern_sized(context, frame.file, frame.file_length));
  }
  sources_match(context, &job->sources, names.items, names.count);
}

void run_locate(Job *job) {
  Model *model = job_model(job, 0);
  const char *name = job->operands[1];
  Found found = find(job, model, str_intern(&job->context, name));
  if (!found.node && !found.value) fail_unknown(job, found.nodes, name);
  if (found.node) match_frames(job, found.node);
  if (job->json) json_found(job, &found);
  else if (found.node) add_node(job, &found), report_left_out(job);
  else add_lone_value(&job->report, &found);
}
