/* The data of a page: sources, places, traces, nodes, graphs. */
#include <inttypes.h>
#include <string.h>

#include "base/spelling.h"
#include "tool/page/page.h"
#include "tool/page/page_rows.h"

/* ---- sources ---- */

static void add_lines(Page *page, Builder *json, const Source *source) {
  page->files_with_text++;
  builder_add(json, "[");
  for (size_t i = 0; i < source->lines.count; i++) {
    if (i) builder_add(json, ",");
    spell_text(json, SPELL_JSON, source->lines.items[i].text, source->lines.items[i].length);
  }
  builder_add(json, "]");
}

/* [path, is it a library's, lines or 0]. A file that the model spells in several ways is in the page once. */
static size_t file_row(Page *page, Str file) {
  size_t row;
  if (!file) return NONE;
  bool is_library = is_library_file(file, str_length(file));
  const Source *source = is_library ? NULL : source_open(page->job, file);
  const void *identity = source ? (const void *)source : file;
  if (!row_of(page, &page->file_rows, (uint64_t)(uintptr_t)identity, 0, &row)) return row;
  Builder *json = &page->file_rows.json;
  builder_format(json, "[%zu,%d,", text_row(page, file), is_library);
  if (source) add_lines(page, json, source);
  else builder_add(json, "0");
  builder_add(json, "]");
  return row;
}

/* ---- places and traces ---- */

static size_t frame_row(Page *page, Rows *rows, Place place) {
  size_t row, file = file_row(page, place.file), function = text_row(page, place.function);
  if (row_of(page, rows, ((uint64_t)(file + 1) << 32) | place.line, function, &row)) {
    builder_add(&rows->json, "[");
    add_row(&rows->json, file);
    builder_format(&rows->json, ",%u,%zu]", place.line, function);
  }
  return row;
}

/* A model with minimal provenance names no files: a given one that defines the function stands in. */
static size_t place_row(Page *page, Place place) {
  const Sources *sources = &page->job->sources;
  if (!place.function) return NONE;
  for (size_t i = 0; i < sources->given_count && !place.file; i++) {
    const Source *source = source_open(page->job, sources->given[i]);
    if (source && source_defines(source, place.function, place.line)) {
      place.file = str_intern(page->context, sources->given[i]);
    }
  }
  return frame_row(page, &page->places, place);
}

/* Frames innermost first, -1 before a further trace of a merged node. */
static size_t trace_row(Page *page, const Node *node) {
  TraceCursor cursor = node_trace(node);
  size_t row;
  if (!cursor.at || cursor.at == cursor.end) return NONE;
  if (!row_of(page, &page->traces, (uint64_t)(uintptr_t)cursor.at, cursor.is_torch, &row)) return row;
  ARRAY(size_t) frames = {0};
  TraceFrame frame;
  while (trace_next(&cursor, &frame)) {
    Place place = {.function = str_intern_sized(page->context, frame.function, frame.function_length),
                   .file = str_intern_sized(page->context, frame.file, frame.file_length),
                   .line = frame.line};
    if (frame.begins_block && frames.count) array_push(page->context, &frames, NONE);
    array_push(page->context, &frames, frame_row(page, &page->frames, place));
  }
  Builder *json = &page->traces.json;
  builder_add(json, "[");
  for (size_t i = 0; i < frames.count; i++) {
    if (i) builder_add(json, ",");
    add_row(json, frames.items[cursor.is_torch ? frames.count - 1 - i : i]);
  }
  builder_add(json, "]");
  return row;
}

/* ---- nodes ---- */

static bool is_shown_apart(Str key) {
  static const char *const keys[] = {METADATA_PREFIX "callsite", METADATA_PREFIX "plugin",
                                     METADATA_PREFIX "jax_traceback", METADATA_PREFIX "stacktrace"};
  if (str_is(key, TORCH_TRACE) || str_is(key, METADATA_REFERENCE)) return true;
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    if (str_is(key, keys[i])) return true;
  }
  return false;
}

static void add_facts(Page *page, Builder *json, const Node *node) {
  Report *words = &page->words;
  const char *between = "";
  builder_add(json, ",[");
  for (size_t i = 0; i < node->attributes.count; i++) {
    const Attribute *attribute = &node->attributes.items[i];
    if (attribute->kind == ATTRIBUTE_GRAPH) continue;
    report_name(words, attribute->name);
    report_add(words, " = ");
    report_attribute(words, attribute);
    builder_format(json, "%s%zu", between, spelled_row(page));
    between = ",";
  }
  for (size_t i = 0; i < node->metadata.count; i++) {
    const Metadata *entry = &node->metadata.items[i];
    if (is_shown_apart(entry->key)) continue;
    report_name(words, entry->key);
    report_add(words, ": ");
    report_name(words, entry->value);
    builder_format(json, "%s%zu", between, spelled_row(page));
    between = ",";
  }
  builder_add(json, "]");
}

/* [graph, operator, name, place, trace, plugin, calls, [inputs], [outputs], [facts]] */
static void add_node(Page *page, Builder *json, const PlacedNode *placed, size_t graph) {
  const Node *node = placed->node;
  builder_format(json, "[%zu", graph);
  add_next(json, text_row(page, operator_name(page->context, node)));
  add_next(json, text_row(page, node->name));
  add_next(json, place_row(page, placed->place));
  add_next(json, trace_row(page, node));
  add_next(json, text_row(page, node_metadata(node, METADATA_PREFIX "plugin")));
  add_next(json, text_row(page, node_metadata(node, METADATA_PREFIX "stacktrace")));
  builder_add(json, ",[");
  for (uint32_t i = 0; i < node->input_count; i++) {
    if (i) builder_add(json, ",");
    add_row(json, value_row(page, node->inputs[i].value));
  }
  builder_add(json, "],[");
  for (uint32_t i = 0; i < node->output_count; i++) {
    if (i) builder_add(json, ",");
    add_row(json, value_row(page, node->outputs[i]));
  }
  builder_add(json, "]");
  add_facts(page, json, node);
  builder_add(json, "]");
}

/* ---- graphs ---- */

typedef struct Graphs {
  Map known; /* the number of a graph, plus one */
  Builder json;
  size_t count;
} Graphs;

static void add_graph(Page *page, Graphs *graphs, const Graph *graph, Str name, const char *kind, size_t owner) {
  Builder *json = &graphs->json;
  void **slot = map_slot_pointer(page->context, &graphs->known, graph);
  *slot = (void *)(uintptr_t)++graphs->count;
  builder_format(json, "%s[\"%s\",%zu,", graphs->count == 1 ? "\n" : ",\n", kind, text_row(page, name));
  add_row(json, owner);
  builder_add(json, ",[");
  for (size_t i = 0; i < graph->inputs.count; i++) {
    if (i) builder_add(json, ",");
    add_row(json, value_row(page, graph->inputs.items[i]));
  }
  builder_add(json, "],[");
  for (size_t i = 0; i < graph->outputs.count; i++) {
    if (i) builder_add(json, ",");
    add_row(json, value_row(page, graph->outputs.items[i]->value));
  }
  builder_add(json, "]]");
}

static Str function_name(Page *page, const Function *function) {
  Node like_a_call = {.op_type = function->name, .domain = function->domain};
  return operator_name(page->context, &like_a_call);
}

/* ["graph" | "body" | "function", name, the node it is a body of, [inputs], [outputs]] */
static Graphs all_graphs(Page *page, const Model *model, const NodeList *nodes) {
  Graphs graphs = {0};
  builder_init(&graphs.json, page->context);
  add_graph(page, &graphs, model->graph, model->graph->name, "graph", NONE);
  for (size_t i = 0; i < model->functions.count; i++) {
    const Function *function = model->functions.items[i];
    add_graph(page, &graphs, function->body, function_name(page, function), "function", NONE);
  }
  for (size_t i = 0; i < nodes->nodes.count; i++) {
    const Node *node = nodes->nodes.items[i].node;
    for (size_t k = 0; k < node->attributes.count; k++) {
      const Attribute *attribute = &node->attributes.items[k];
      if (attribute->kind == ATTRIBUTE_GRAPH) add_graph(page, &graphs, attribute->graph, attribute->name, "body", i);
    }
  }
  return graphs;
}

/* ---- the whole ---- */

static size_t add_times(Page *page, Builder *json, const NodeList *nodes, const Profile *profile) {
  size_t timed = 0;
  builder_add(json, ",\n\"times\": [");
  for (size_t i = 0; i < nodes->nodes.count; i++) {
    const double *time = map_get_pointer(&profile->times, nodes->nodes.items[i].node->name);
    if (time) builder_format(json, "%s[%zu,%.3f]", timed++ ? "," : "", i, *time);
  }
  builder_add(json, "]");
  if (!timed) {
    fail(page->context, ERROR_VALUE, "%s: none of its %zu names is a node of %s", page->job->profile, profile->count,
         page->job->path);
  }
  return timed;
}

static void add_rows(Builder *json, const char *key, const Builder *rows) {
  builder_format(json, ",\n\"%s\": [", key);
  if (rows->length) builder_add_sized(json, rows->text, rows->length);
  builder_add(json, "]");
}

static void add_head(Builder *json, const Job *job, const Model *model) {
  const char *slash = strrchr(job->path, '/');
  const char *name = slash ? slash + 1 : job->path;
  builder_add(json, "{\"model\": ");
  spell_text(json, SPELL_JSON, name, strlen(name));
  builder_add(json, ", \"producer\": ");
  spell_text(json, SPELL_JSON, model->producer_name, str_length(model->producer_name));
  builder_format(json, ", \"opset\": %" PRId64 ", \"help\": ", model->opset);
  spell_text(json, SPELL_JSON, no_places_help, strlen(no_places_help));
}

PageData page_data(Job *job, Model *model, const Profile *profile) {
  Context *context = &job->context;
  Page page = {.job = job, .context = context, .words = {.context = context}};
  Rows *all[] = {&page.texts, &page.values, &page.frames, &page.traces, &page.places, &page.file_rows};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) builder_init(&all[i]->json, context);
  builder_init(&page.words.line, context);
  const NodeList *nodes = model_nodes(context, model);
  match_sources(job, nodes);
  Graphs graphs = all_graphs(&page, model, nodes);
  Builder rows;
  builder_init(&rows, context);
  for (size_t i = 0; i < nodes->nodes.count; i++) {
    const PlacedNode *placed = &nodes->nodes.items[i];
    size_t graph = (size_t)(uintptr_t)map_get_pointer(&graphs.known, placed->node->graph) - 1;
    builder_add(&rows, i ? ",\n" : "\n");
    add_node(&page, &rows, placed, graph);
  }
  Builder levels = page_levels(&page, model, nodes);
  PageData data = {.node_count = nodes->nodes.count, .placed_count = nodes->placed_count};
  data.file_count = page.files_with_text;
  Builder *json = &data.json;
  builder_init(json, context);
  add_head(json, job, model);
  add_rows(json, "texts", &page.texts.json);
  add_rows(json, "values", &page.values.json);
  add_rows(json, "files", &page.file_rows.json);
  add_rows(json, "frames", &page.frames.json);
  add_rows(json, "traces", &page.traces.json);
  add_rows(json, "places", &page.places.json);
  add_rows(json, "graphs", &graphs.json);
  add_rows(json, "nodes", &rows);
  add_rows(json, "levels", &levels);
  if (profile) data.timed_count = add_times(&page, json, nodes, profile);
  builder_add(json, "}");
  return data;
}
