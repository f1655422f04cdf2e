/* j2o locate: one node or value, its trace, its neighbours. */
#include <inttypes.h>
#include <string.h>

#include "base/bytes.h"
#include "tool/index.h"
#include "tool/source.h"
#include "tool/trace_report.h"

typedef struct Found {
  const Node *node;   /* by its name, or the maker of the value */
  const Value *value; /* the value of that name; NULL: it was a node's name */
  const OriginIndex *index;
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
static Found find(const OriginIndex *index, Str name) {
  Found found = {.index = index};
  const Item *items = index->items.items;
  size_t count = index->counts[INDEX_NODE];
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
  found.value = named_value(index->model->graph, name);
  const Graph *last = NULL;
  for (size_t i = 0; i < count && !found.value; i++) {
    if (items[i].node->graph != last) found.value = named_value(items[i].node->graph, name);
    last = items[i].node->graph;
  }
  return found;
}

/* Some names that hold what was asked for. */
static _Noreturn void fail_unknown(Job *job, const OriginIndex *index, const char *name) {
  Builder text;
  builder_init(&text, &job->context);
  size_t shown = 0;
  for (size_t i = 0; i < index->counts[INDEX_NODE] && shown < 5; i++) {
    const Node *node = index->items.items[i].node;
    if (!*node->name || !find_in_any_case(node->name, name)) continue;
    builder_format(&text, "%s%s", shown++ ? ", " : "; there are ", node->name);
  }
  fail(&job->context, ERROR_VALUE, "%s: no node or value is named %s%s", job->path, name, builder_text(&text));
}

static Place place_of(const OriginIndex *index, const Node *node) { return node_item(index, node)->place; }

/* Of the node, or of an initializer; NULL for an input. */
static const Item *found_item(const Found *found) {
  return found->node ? node_item(found->index, found->node) : value_item(found->index, found->value);
}

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
  Place place = place_of(found->index, node);
  if (!place.function) return;
  report_add(report, "  at ");
  report_place(report, place);
}

static void add_source_of(Report *report, const Found *found, const Value *value) {
  if (value->producer) {
    report_add(report, "  from ");
    add_neighbour(report, found, value->producer);
  } else if (value->tensor) {
    report_add(report, "  initializer of ");
    report_size(report, value->tensor->size);
  } else {
    report_add(report, value->graph->owner ? "  from the enclosing graph" : "  graph input");
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

static void add_other_metadata(Report *report, const MetadataList *metadata) {
  for (size_t i = 0; i < metadata->count; i++) {
    const Metadata *entry = &metadata->items[i];
    if (str_begins(entry->key, METADATA_PREFIX) || str_is(entry->key, TORCH_TRACE)) continue;
    report_add(report, "  ");
    report_name(report, entry->key);
    report_add(report, ": ");
    report_name(report, entry->value);
    report_add(report, "\n");
  }
}

static void add_fact(Report *report, const char *words, Str text) {
  if (!text || !*text) return;
  report_add(report, words);
  report_colored(report, COLOR_FAINT, text);
  report_add(report, "\n");
}

/* Those of what was fused into it; the model itself has no name. */
static void add_fused_modules(Report *report, Str modules) {
  const char *words = "  fused from module ";
  const char *line = modules, *end = modules ? modules + str_length(modules) : NULL;
  while (line) {
    const char *stop = find_letter(line, '\n', (size_t)(end - line));
    size_t length = (size_t)((stop ? stop : end) - line);
    if (length) {
      report_add(report, words);
      report_text(report, line, length);
      words = ", ";
    }
    line = stop ? stop + 1 : NULL;
  }
  if (*words == ',') report_add(report, "\n");
}

static void add_origin(Job *job, const Item *item) {
  Report *report = &job->report;
  if (item->place.function) {
    report_add(report, "  at ");
    report_place(report, item->place);
    if (item->place.file) {
      report_add(report, " in ");
      report_path(report, item->place.file);
    }
    report_add(report, "\n");
  } else if (item->kind == INDEX_NODE) {
    builder_format(&report->line, "  N%s\n", no_places_help + 1);
  }
  add_fact(report, "  in module ", item->module);
  add_fused_modules(report, item->fused_modules);
  add_fact(report, "  expression ", metadata_get(item->metadata, METADATA_PREFIX "span"));
  add_fact(report, "  by ", metadata_get(item->metadata, METADATA_PREFIX "plugin"));
  add_fact(report, "  made of ", metadata_get(item->metadata, METADATA_PREFIX "made_of"));
  add_other_metadata(report, item->metadata);
}

static void add_stack(Report *report, const Item *item) {
  Str stack = metadata_get(item->metadata, METADATA_PREFIX "stacktrace");
  if (!stack || !report->full) return;
  report_add(report, "\n");
  report_heading(report, "converter call stack, outermost first");
  report_add(report, "\n");
  for (const char *line = stack, *end = stack + str_length(stack); line < end;) {
    const char *stop = find_letter(line, '\n', (size_t)(end - line));
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
  const Item *item = found_item(found);
  add_origin(job, item);
  for (const Node *owner = node->graph->owner; owner; owner = owner->graph->owner) {
    report_add(report, "  inside ");
    add_neighbour(report, found, owner);
    report_add(report, "\n");
  }
  add_attributes(report, node);
  report_traces(job, found->index, item);
  add_stack(report, item);
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

static void add_lone_value(Job *job, const Found *found) {
  Report *report = &job->report;
  const Value *value = found->value;
  const Item *item = found_item(found);
  report_colored(report, COLOR_HEAD, value->name);
  report_add(report, " ");
  report_type(report, value->type);
  add_source_of(report, found, value);
  if (item && item->origin != NO_ROW) add_origin(job, item);
  add_readers(report, found, value);
  if (!item) return;
  report_traces(job, found->index, item);
  add_stack(report, item);
}

/* ---- for programs ---- */

static void json_neighbour(Report *report, const Found *found, const Node *node) {
  Place place = place_of(found->index, node);
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

static void json_origin(Job *job, const Found *found, const Item *item) {
  Report *report = &job->report;
  json_key(report, "place");
  report_add(report, "{\"function\": ");
  json_name(report, item->place.function);
  json_key(report, "source_file");
  json_name(report, item->place.file);
  json_count(report, "line", item->place.line);
  report_add(report, "}, \"module\": ");
  json_name(report, item->module);
  if (item->fused_modules) {
    json_key(report, "fused_modules");
    json_lines_of(report, item->fused_modules);
  }
  report_add(report, ", \"lines\": ");
  json_lines(job, found->index, item);
  report_add(report, ", \"trace\": ");
  json_traces(job, found->index, item);
}

static void json_node(Job *job, const Found *found) {
  Report *report = &job->report;
  const Node *node = found->node;
  const Item *item = found_item(found);
  json_key(report, "node");
  inspect_json_item(report, found->index, item, NULL);
  json_origin(job, found, item);
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
}

static void json_found(Job *job, const Found *found) {
  Report *report = &job->report;
  report_add(report, "{\"file\": ");
  json_text(report, job->path, strlen(job->path));
  if (found->node) {
    json_node(job, found);
  } else if (found->value) {
    const Item *item = found_item(found);
    json_key(report, "value");
    json_value(report, found, found->value, true);
    if (item) json_origin(job, found, item);
  }
  if (job->operand_count > 1) json_sources(job);
  report_add(report, "}");
}

/* ---- one by its name, or all of a line or module ---- */

static void show(Job *job, const Found *found) {
  if (job->json) json_found(job, found);
  else if (found->node) add_node(job, found);
  else add_lone_value(job, found);
}

static void show_removed(Job *job, const OriginIndex *index, const Item *item) {
  if (!job->json) {
    inspect_item(&job->report, index, item);
    report_traces(job, index, item);
    return;
  }
  report_add(&job->report, "{\"removed\": ");
  inspect_json_item(&job->report, index, item, NULL);
  json_origin(job, &(Found){.index = index}, item);
  report_add(&job->report, "}");
}

static void locate_asked(Job *job, const OriginIndex *index) {
  Report *report = &job->report;
  Question question = job_question(job);
  require_places(job, index);
  Answer answer = index_answer(job, index, &question);
  size_t shown = 0;
  if (job->json) report_add(report, "{\"found\": [");
  for (size_t i = 0; i < index->items.count; i++) {
    const Item *item = &index->items.items[i];
    if (!answer.relations[i]) continue;
    if (shown++) report_add(report, job->json ? ",\n" : "\n\n");
    Found found = {.node = item->node, .value = item->value, .index = index};
    if (item->kind == INDEX_REMOVED) show_removed(job, index, item);
    else show(job, &found);
    report_flush(report);
  }
  if (job->json) {
    report_add(report, "]");
    json_sources(job);
    report_add(report, "}\n");
  } else if (!shown) {
    report_nothing(report, job, &question);
  }
  if (!job->json) report_left_out(job);
  job->code = shown ? EXIT_OK : EXIT_FILE;
}

void run_locate(Job *job) {
  OriginIndex *index = model_index(&job->context, job_model(job, 0));
  index_sources(job, index);
  if (job->operand_count < 2) {
    locate_asked(job, index);
    return;
  }
  const char *name = job->operands[1];
  Found found = find(index, str_intern(&job->context, name));
  if (!found.node && !found.value) fail_unknown(job, index, name);
  show(job, &found);
  if (job->json) report_add(&job->report, "\n");
  else report_left_out(job);
}
