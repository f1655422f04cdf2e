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

/* [path, is it a library's, lines or 0, [names], is it another one than was exported]. A file that the model spells in
 * several ways is in the page once. */
static size_t file_row(Page *page, Str file) {
  size_t row;
  if (!file) return NONE;
  bool is_library = is_library_file(file, str_length(file));
  const Source *source = is_library && !page->job->libraries ? NULL : source_open(page->job, file);
  const void *identity = source ? (const void *)source : file;
  if (!row_of(page, &page->file_rows, (uint64_t)(uintptr_t)identity, 0, &row)) return row;
  Builder *json = &page->file_rows.json;
  builder_format(json, "[%zu,%d,", text_row(page, file), is_library);
  if (source) add_lines(page, json, source);
  else builder_add(json, "0");
  if (is_library) builder_add(json, ",[]");
  else add_names(page, json, file);
  builder_format(json, ",%d", source && source->is_changed);
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
static void add_traces(Page *page, Builder *json, const OriginIndex *index) {
  for (size_t i = 0; i < index->origins.count; i++) {
    const IndexOrigin *origin = &index->origins.items[i];
    builder_add(json, json->length ? ",\n[" : "\n[");
    for (size_t k = 0; k < origin->chains.count; k++) {
      const Chain *chain = &origin->chains.items[k];
      if (k) builder_add(json, ",-1");
      for (size_t f = 0; f < chain->count; f++) {
        if (k || f) builder_add(json, ",");
        add_row(json, trace_frame(page, index, chain->frames[f]));
      }
    }
    builder_add(json, "]");
  }
}

/* ---- lines ---- */

/* Numbers of origins, and what of them is no node. */
static void add_passages(Builder *json, const IndexLine *line, LineRelation relation, size_t first_trace) {
  const char *between = "";
  builder_add(json, ",[");
  for (size_t i = 0; i < line->passages.count; i++) {
    if (line->passages.items[i].relation != relation) continue;
    builder_format(json, "%s%zu", between, line->passages.items[i].origin + first_trace);
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

/* [file, number, [function texts], own, fused, within, through, [constant texts], [removed texts]]: own to through are
 * rows of traces, of which the index's begin at first_trace. */
static void add_line(Page *page, Builder *json, const OriginIndex *index, const IndexLine *line, size_t first_trace) {
  builder_add(json, json->length ? ",\n[" : "\n[");
  add_row(json, file_row(page, line->file));
  builder_format(json, ",%u,[", line->number);
  for (size_t k = 0; k < line->functions.count; k++) {
    builder_format(json, "%s%zu", k ? "," : "", text_row(page, line->functions.items[k]));
  }
  builder_add(json, "]");
  for (LineRelation relation = RELATION_OWN; relation > RELATION_NONE; relation--) {
    add_passages(json, line, relation, first_trace);
  }
  add_others(page, json, index, line, INDEX_INITIALIZER);
  add_others(page, json, index, line, INDEX_REMOVED);
  builder_add(json, "]");
}

/* Of libraries only the lines that something came from. */
static void add_index_lines(Page *page, Builder *json, const OriginIndex *index, size_t first_trace) {
  for (size_t i = 0; i < index->lines.count; i++) {
    const IndexLine *line = &index->lines.items[i];
    bool is_end = false;
    for (size_t k = 0; k < line->passages.count && !is_end; k++) {
      is_end = line->passages.items[k].relation >= RELATION_FUSED;
    }
    if (!line->is_library || is_end) add_line(page, json, index, line, first_trace);
  }
}

/* ---- nodes ---- */

static bool is_shown_apart(Str key) {
  static const char *const keys[] = {METADATA_PREFIX "callsite",      METADATA_PREFIX "plugin",
                                     METADATA_PREFIX "jax_traceback", METADATA_PREFIX "stacktrace",
                                     METADATA_PREFIX "module",        METADATA_PREFIX "span",
                                     METADATA_FUSED_MODULES};
  if (str_is(key, TORCH_TRACE) || is_reference_key(key, str_length(key))) return true;
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

/* [first line, first column, last line, last column] of the expression that became the node, columns in bytes; or 0. */
static void add_span(Builder *json, const Node *node) {
  Str span = metadata_get(&node->metadata, METADATA_PREFIX "span");
  unsigned first, start, last, stop;
  int read = 0;
  bool good = span && sscanf(span, "%7u:%7u-%7u:%7u%n", &first, &start, &last, &stop, &read) == 4 && !span[read];
  if (good) builder_format(json, ",[%u,%u,%u,%u]", first, start, last, stop);
  else builder_add(json, ",0");
}

/* [graph, operator, name, place, trace, plugin, calls, [inputs], [outputs], [facts], module, span, fused modules] */
static void add_node(Page *page, Builder *json, const Item *item, size_t graph, size_t first_trace) {
  const Node *node = item->node;
  builder_format(json, "[%zu", graph);
  add_next(json, text_row(page, operator_name(page->context, node)));
  add_next(json, text_row(page, node->name));
  add_next(json, place_row(page, item->place));
  add_next(json, item->origin == NO_ROW ? NONE : item->origin + first_trace);
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
  add_span(json, node);
  add_next(json, text_row(page, item->fused_modules));
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
static Graphs all_graphs(Page *page, const PageModels *models) {
  Graphs graphs = {0};
  builder_init(&graphs.json, page->context);
  graphs.json.limit = job_limit(page->job);
  for (size_t i = 0; i < models->count; i++) {
    const Model *model = models->indexes[i]->model;
    add_graph(page, &graphs, model->graph, model->graph->name, "graph", NONE);
    for (size_t k = 0; k < model->functions.count; k++) {
      const Function *function = model->functions.items[k];
      add_graph(page, &graphs, function->body, function_name(page, function), "function", NONE);
    }
  }
  for (size_t i = 0; i < models->node_count; i++) {
    const Node *node = page_item(models, i)->node;
    for (size_t k = 0; k < node->attributes.count; k++) {
      const Attribute *attribute = &node->attributes.items[k];
      if (attribute->kind == ATTRIBUTE_GRAPH) add_graph(page, &graphs, attribute->graph, attribute->name, "body", i);
    }
  }
  return graphs;
}

/* ---- two models ---- */

static void add_match(Builder *json, const Side *side, size_t node, size_t offset) {
  size_t match = side->match[node];
  if (json->length) builder_add(json, ",");
  add_row(json, match ? match - 1 + offset : NONE);
}

static size_t detail_row(Page *page, Str detail) {
  report_add(&page->words, detail);
  return spelled_row(page);
}

static void add_change(Page *page, Builder *json, const Change *change, const Node *node) {
  static const char *const kinds[] = {[CHANGE_REMOVED] = "gone", [CHANGE_ADDED] = "new", [CHANGE_ALTERED] = "changed"};
  builder_format(json, "%s[%zu,\"%s\",[", json->length ? ",\n" : "\n", node_index(node), kinds[change->kind]);
  for (size_t i = 0; i < change->details.count; i++) {
    builder_format(json, "%s%zu", i ? "," : "", detail_row(page, change->details.items[i]));
  }
  builder_add(json, "]]");
}

/* matches: of each node the one of the other model that it is, or -1; changes: [node, "new" | "gone" | "changed",
 * [what changed]] */
static void compare_models(Page *page, const PageModels *models, Builder *matches, Builder *changes) {
  const Diff *diff = models->diff;
  for (size_t i = 0; i < models->node_count; i++) {
    bool is_first = i < models->first_count;
    add_match(matches, is_first ? &diff->b : &diff->a, is_first ? i : i - models->first_count,
              is_first ? models->first_count : 0);
  }
  for (size_t i = 0; i < models->changes->count; i++) {
    const Change *change = &models->changes->items[i];
    if (change->b) add_change(page, changes, change, change->b);
    if (change->a) add_change(page, changes, change, change->a);
  }
}

/* ---- the whole ---- */

static size_t add_times(Page *page, Builder *json, const PageModels *models, const Profile *profile) {
  size_t timed = 0;
  builder_add(json, ",\n\"times\": [");
  for (size_t i = 0; i < models->first_count; i++) {
    const double *time = map_get_pointer(&profile->times, page_item(models, i)->node->name);
    if (time) builder_format(json, "%s[%zu,%.3f]", timed++ ? "," : "", i, *time);
  }
  builder_add(json, "]");
  if (!timed) {
    fail(page->context, ERROR_VALUE, "%s: none of its %zu names is the name of a node in %s", page->job->profile,
         profile->count, page->job->path);
  }
  return timed;
}

static void add_rows(Builder *json, const char *key, const Builder *rows) {
  builder_format(json, ",\n\"%s\": [", key);
  if (rows->length) builder_add_sized(json, rows->text, rows->length);
  builder_add(json, "]");
}

static void add_name(Builder *json, const char *path) {
  const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
  spell_text(json, SPELL_JSON, name, strlen(name));
}

static void add_head(Builder *json, const PageModels *models) {
  const Model *model = models->indexes[0]->model;
  builder_add(json, "{\"model\": ");
  add_name(json, models->paths[0]);
  if (models->count > 1) {
    builder_add(json, ", \"against\": ");
    add_name(json, models->paths[1]);
    builder_format(json, ", \"first\": %zu", models->first_count);
  }
  builder_add(json, ", \"producer\": ");
  spell_text(json, SPELL_JSON, model->producer_name, str_length(model->producer_name));
  builder_format(json, ", \"opset\": %" PRId64 ", \"help\": ", model->opset);
  spell_text(json, SPELL_JSON, no_places_help, strlen(no_places_help));
}

/* The parts that the models have, one after the other. */
typedef struct Parts {
  Builder nodes, traces, lines, matches, changes;
} Parts;

static void add_models(Page *page, const PageModels *models, const Graphs *graphs, Parts *parts) {
  size_t first_trace = 0, node = 0;
  for (size_t i = 0; i < models->count; i++) {
    const OriginIndex *index = models->indexes[i];
    for (size_t k = 0; k < index->counts[INDEX_NODE]; k++, node++) {
      const Item *item = &index->items.items[k];
      size_t graph = (size_t)(uintptr_t)map_get_pointer(&graphs->known, item->node->graph) - 1;
      builder_add(&parts->nodes, node ? ",\n" : "\n");
      add_node(page, &parts->nodes, item, graph, first_trace);
    }
    add_traces(page, &parts->traces, index);
    add_index_lines(page, &parts->lines, index, first_trace);
    first_trace += index->origins.count;
  }
  if (models->diff) compare_models(page, models, &parts->matches, &parts->changes);
}

PageData page_data(Job *job, const PageModels *models, const Profile *profile) {
  Context *context = &job->context;
  Page page = {.job = job, .context = context, .words = {.context = context}};
  Parts parts;
  Builder *all[] = {&page.texts.json,     &page.values.json, &page.frames.json, &page.places.json,
                    &page.file_rows.json, &page.words.line,  &parts.nodes,      &parts.traces,
                    &parts.lines,         &parts.matches,    &parts.changes};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    builder_init(all[i], context);
    all[i]->limit = job_limit(job);
  }
  Graphs graphs = all_graphs(&page, models);
  add_models(&page, models, &graphs, &parts);
  Builder levels = page_levels(&page, models);
  PageData data = {.node_count = models->node_count, .file_count = page.files_with_text};
  for (size_t i = 0; i < models->count; i++) data.placed_count += models->indexes[i]->placed_count;
  uint64_t size = graphs.json.length + levels.length;
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) size += all[i]->length;
  if (size > job_limit(job)) fail_too_large(job, "the page", size);
  Builder *json = &data.json;
  builder_init(json, context);
  json->limit = job_limit(job);
  add_head(json, models);
  add_rows(json, "texts", &page.texts.json);
  add_rows(json, "values", &page.values.json);
  add_rows(json, "files", &page.file_rows.json);
  add_rows(json, "frames", &page.frames.json);
  add_rows(json, "traces", &parts.traces);
  add_rows(json, "lines", &parts.lines);
  add_rows(json, "places", &page.places.json);
  add_rows(json, "graphs", &graphs.json);
  add_rows(json, "nodes", &parts.nodes);
  add_rows(json, "levels", &levels);
  if (models->diff) add_rows(json, "matches", &parts.matches);
  if (models->diff) add_rows(json, "changes", &parts.changes);
  if (profile) data.timed_count = add_times(&page, json, models, profile);
  builder_add(json, "}");
  return data;
}
