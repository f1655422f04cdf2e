/* The data of a page: sources, places, traces, lines, nodes, graphs. */
#include <inttypes.h>
#include <string.h>

#include "base/spelling.h"
#include "tool/page/page.h"
#include "tool/page/page_rows.h"
#include "tool/tally.h"

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

/* The names by which a line of the file may be asked for: every end of its path, whole parts only. */
static void add_names(Page *page, Builder *json, Str file) {
  const char *between = "", *end = file + str_length(file);
  builder_add(json, ",[");
  for (const char *at = end; at > file;) {
    at--;
    if (at != file && at[-1] != '/') continue;
    Str name = str_intern_sized(page->context, at, (size_t)(end - at));
    builder_format(json, "%s%zu", between, text_row(page, name));
    between = ",";
  }
  builder_add(json, "]");
}

/* [path, is it a library's, lines or 0, [names]]. A file that the model spells in several ways is in the page once. */
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
  if (is_library) builder_add(json, ",[]");
  else add_names(page, json, file);
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

static size_t place_row(Page *page, Place place) {
  return place.function ? frame_row(page, &page->places, place) : NONE;
}

static size_t trace_frame(Page *page, const OriginIndex *index, uint32_t row) {
  const IndexFrame *frame = &index->frames.items[row];
  const IndexLine *line = &index->lines.items[frame->line];
  return frame_row(page, &page->frames, (Place){frame->function, line->file, line->number});
}

/* Of every origin its frames innermost first, -1 before a further trace. */
static Builder all_traces(Page *page, const OriginIndex *index) {
  Builder json;
  builder_init(&json, page->context);
  json.limit = job_limit(page->job);
  for (size_t i = 0; i < index->origins.count; i++) {
    const IndexOrigin *origin = &index->origins.items[i];
    builder_add(&json, i ? ",\n[" : "\n[");
    for (size_t k = 0; k < origin->chains.count; k++) {
      const Chain *chain = &origin->chains.items[k];
      if (k) builder_add(&json, ",-1");
      for (size_t f = 0; f < chain->count; f++) {
        if (k || f) builder_add(&json, ",");
        add_row(&json, trace_frame(page, index, chain->frames[f]));
      }
    }
    builder_add(&json, "]");
  }
  return json;
}

/* ---- lines ---- */

/* Numbers of origins, and what of them is no node. */
static void add_passages(Builder *json, const IndexLine *line, LineRelation relation) {
  const char *between = "";
  builder_add(json, ",[");
  for (size_t i = 0; i < line->passages.count; i++) {
    if (line->passages.items[i].relation != relation) continue;
    builder_format(json, "%s%u", between, line->passages.items[i].origin);
    between = ",";
  }
  builder_add(json, "]");
}

static void add_others(Page *page, Builder *json, const OriginIndex *index, const IndexLine *line, ItemKind kind) {
  const char *between = "";
  builder_add(json, ",[");
  for (size_t i = 0; i < line->passages.count; i++) {
    if (line->passages.items[i].relation < RELATION_FUSED) continue;
    const IndexOrigin *origin = &index->origins.items[line->passages.items[i].origin];
    for (size_t k = 0; k < origin->items.count; k++) {
      const Item *item = &index->items.items[origin->items.items[k]];
      if (item->kind != kind) continue;
      Str text = kind == INDEX_REMOVED ? item_reason(page->context, item) : item->value->name;
      builder_format(json, "%s%zu", between, text_row(page, text));
      between = ",";
    }
  }
  builder_add(json, "]");
}

/* [file, number, [function texts], own, fused, through, [constant texts], [removed texts]]: own, fused and through are
 * rows of traces. Of libraries only the lines that something came from. */
static Builder all_lines(Page *page, const OriginIndex *index) {
  Builder json;
  builder_init(&json, page->context);
  json.limit = job_limit(page->job);
  size_t count = 0;
  for (size_t i = 0; i < index->lines.count; i++) {
    const IndexLine *line = &index->lines.items[i];
    bool is_end = false;
    for (size_t k = 0; k < line->passages.count && !is_end; k++) {
      is_end = line->passages.items[k].relation >= RELATION_FUSED;
    }
    if (line->is_library && !is_end) continue;
    builder_add(&json, count++ ? ",\n[" : "\n[");
    add_row(&json, file_row(page, line->file));
    builder_format(&json, ",%u,[", line->number);
    for (size_t k = 0; k < line->functions.count; k++) {
      builder_format(&json, "%s%zu", k ? "," : "", text_row(page, line->functions.items[k]));
    }
    builder_add(&json, "]");
    for (LineRelation relation = RELATION_OWN; relation > RELATION_NONE; relation--)
      add_passages(&json, line, relation);
    add_others(page, &json, index, line, INDEX_INITIALIZER);
    add_others(page, &json, index, line, INDEX_REMOVED);
    builder_add(&json, "]");
  }
  return json;
}

/* ---- nodes ---- */

static bool is_shown_apart(Str key) {
  static const char *const keys[] = {METADATA_PREFIX "callsite", METADATA_PREFIX "plugin",
                                     METADATA_PREFIX "jax_traceback", METADATA_PREFIX "stacktrace",
                                     METADATA_PREFIX "module"};
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

/* [graph, operator, name, place, trace, plugin, calls, [inputs], [outputs], [facts], module] */
static void add_node(Page *page, Builder *json, const Item *item, size_t graph) {
  const Node *node = item->node;
  builder_format(json, "[%zu", graph);
  add_next(json, text_row(page, operator_name(page->context, node)));
  add_next(json, text_row(page, node->name));
  add_next(json, place_row(page, item->place));
  add_next(json, item->origin == NO_ROW ? NONE : item->origin);
  add_next(json, text_row(page, metadata_get(&node->metadata, METADATA_PREFIX "plugin")));
  add_next(json, text_row(page, metadata_get(&node->metadata, METADATA_PREFIX "stacktrace")));
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
  add_next(json, text_row(page, item->module));
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
static Graphs all_graphs(Page *page, const Model *model, const OriginIndex *index) {
  Graphs graphs = {0};
  builder_init(&graphs.json, page->context);
  graphs.json.limit = job_limit(page->job);
  add_graph(page, &graphs, model->graph, model->graph->name, "graph", NONE);
  for (size_t i = 0; i < model->functions.count; i++) {
    const Function *function = model->functions.items[i];
    add_graph(page, &graphs, function->body, function_name(page, function), "function", NONE);
  }
  for (size_t i = 0; i < index->counts[INDEX_NODE]; i++) {
    const Node *node = index->items.items[i].node;
    for (size_t k = 0; k < node->attributes.count; k++) {
      const Attribute *attribute = &node->attributes.items[k];
      if (attribute->kind == ATTRIBUTE_GRAPH) add_graph(page, &graphs, attribute->graph, attribute->name, "body", i);
    }
  }
  return graphs;
}

/* ---- the whole ---- */

static size_t add_times(Page *page, Builder *json, const OriginIndex *index, const Profile *profile) {
  size_t timed = 0;
  builder_add(json, ",\n\"times\": [");
  for (size_t i = 0; i < index->counts[INDEX_NODE]; i++) {
    const double *time = map_get_pointer(&profile->times, index->items.items[i].node->name);
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
  Rows *all[] = {&page.texts, &page.values, &page.frames, &page.places, &page.file_rows};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    builder_init(&all[i]->json, context);
    all[i]->json.limit = job_limit(job);
  }
  builder_init(&page.words.line, context);
  OriginIndex *index = model_index(context, model);
  index_sources(job, index);
  Graphs graphs = all_graphs(&page, model, index);
  Builder rows;
  builder_init(&rows, context);
  rows.limit = job_limit(job);
  for (size_t i = 0; i < index->counts[INDEX_NODE]; i++) {
    const Item *item = &index->items.items[i];
    size_t graph = (size_t)(uintptr_t)map_get_pointer(&graphs.known, item->node->graph) - 1;
    builder_add(&rows, i ? ",\n" : "\n");
    add_node(&page, &rows, item, graph);
  }
  Builder traces = all_traces(&page, index), lines = all_lines(&page, index);
  Builder levels = page_levels(&page, model, index);
  PageData data = {.node_count = index->counts[INDEX_NODE], .placed_count = index->placed_count};
  data.file_count = page.files_with_text;
  uint64_t size = graphs.json.length + rows.length + levels.length + traces.length + lines.length;
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) size += all[i]->json.length;
  if (size > job_limit(job)) fail_too_large(job, "the page", size);
  Builder *json = &data.json;
  builder_init(json, context);
  json->limit = job_limit(job);
  add_head(json, job, model);
  add_rows(json, "texts", &page.texts.json);
  add_rows(json, "values", &page.values.json);
  add_rows(json, "files", &page.file_rows.json);
  add_rows(json, "frames", &page.frames.json);
  add_rows(json, "traces", &traces);
  add_rows(json, "lines", &lines);
  add_rows(json, "places", &page.places.json);
  add_rows(json, "graphs", &graphs.json);
  add_rows(json, "nodes", &rows);
  add_rows(json, "levels", &levels);
  if (profile) data.timed_count = add_times(&page, json, index, profile);
  builder_add(json, "}");
  return data;
}
