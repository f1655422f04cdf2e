/* Nodes and their places. */
#include "tool/nodes.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "tool/source.h"

Str node_metadata(const Node *node, const char *key) {
  for (size_t i = 0; i < node->metadata.count; i++) {
    if (str_is(node->metadata.items[i].key, key)) return node->metadata.items[i].value;
  }
  return NULL;
}

const char no_places_help[] =
    "no node says where it came from. Export the model with JAX2ONNX_ENABLE_STACKTRACE_METADATA=1 in the\n"
    "environment to have the line of the program written on every node, with JAX2ONNX_STACKTRACE_DETAIL=full (or\n"
    "compact) to have the whole trace.";

/* ---- traces ---- */

TraceCursor node_trace(const Node *node) {
  Str text = node_metadata(node, METADATA_PREFIX "jax_traceback");
  TraceCursor cursor = {.is_torch = !text};
  if (!text) text = node_metadata(node, TORCH_TRACE);
  if (!text) return cursor;
  cursor.at = text;
  cursor.end = text + str_length(text);
  return cursor;
}

/* The number that ends at `end`; its first digit, or NULL when there is none or it is too long. */
static const char *number_before(const char *start, const char *end, uint32_t *number) {
  const char *digits = end;
  while (digits > start && digits[-1] >= '0' && digits[-1] <= '9') digits--;
  if (digits == end || end - digits > 9) return NULL;
  *number = 0;
  for (const char *c = digits; c < end; c++) *number = *number * 10 + (uint32_t)(*c - '0');
  return digits;
}

/* path:line (function) */
static bool parse_jax_frame(const char *line, const char *end, TraceFrame *frame) {
  if (end == line || end[-1] != ')') return false;
  const char *open = end - 1;
  while (open > line && !(open[0] == '(' && open[-1] == ' ')) open--;
  if (open == line) return false;
  const char *digits = number_before(line, open - 1, &frame->line);
  if (!digits || digits == line || digits[-1] != ':') return false;
  frame->file = line;
  frame->file_length = (size_t)(digits - 1 - line);
  frame->function = open + 1;
  frame->function_length = (size_t)(end - 1 - frame->function);
  return true;
}

/* File "path", line 12, in function */
static bool parse_python_frame(const char *line, const char *end, TraceFrame *frame) {
  while (line < end && *line == ' ') line++;
  static const char head[] = "File \"", middle[] = "\", line ", in[] = ", in ";
  size_t left = (size_t)(end - line);
  if (left < sizeof head || memcmp(line, head, sizeof head - 1) != 0) return false;
  frame->file = line + sizeof head - 1;
  const char *after = memmem(frame->file, (size_t)(end - frame->file), middle, sizeof middle - 1);
  if (!after) return false;
  frame->file_length = (size_t)(after - frame->file);
  const char *digits = after + sizeof middle - 1, *stop = digits;
  while (stop < end && *stop >= '0' && *stop <= '9') stop++;
  if (!number_before(digits, stop, &frame->line)) return false;
  bool named = (size_t)(end - stop) >= sizeof in - 1 && memcmp(stop, in, sizeof in - 1) == 0;
  frame->function = named ? stop + sizeof in - 1 : end;
  frame->function_length = (size_t)(end - frame->function);
  return true;
}

bool trace_next(TraceCursor *cursor, TraceFrame *frame) {
  bool blank = !cursor->started;
  while (cursor->at && cursor->at < cursor->end) {
    const char *line = cursor->at;
    const char *stop = memchr(line, '\n', (size_t)(cursor->end - line));
    const char *end = stop ? stop : cursor->end;
    cursor->at = stop ? stop + 1 : cursor->end;
    *frame = (TraceFrame){.begins_block = blank};
    bool found = cursor->is_torch ? parse_python_frame(line, end, frame) : parse_jax_frame(line, end, frame);
    if (found) {
      cursor->started = true;
      return true;
    }
    if (end == line) blank = true;
  }
  return false;
}

bool is_library_file(const char *path, size_t length) {
  static const char *const folders[] = {"/site-packages/", "/dist-packages/", "/lib/python3", "<frozen"};
  for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
    if (memmem(path, length, folders[i], strlen(folders[i]))) return true;
  }
  return false;
}

/* ---- places ---- */

static Place place_of_frame(Context *context, const TraceFrame *frame) {
  return (Place){.function = str_intern_sized(context, frame->function, frame->function_length),
                 .file = str_intern_sized(context, frame->file, frame->file_length),
                 .line = frame->line};
}

/* The file of a callsite is that of the first frame of the trace with its function and line. */
static Place callsite_place(Context *context, const Node *node, Str callsite) {
  Place place = {0};
  const char *end = callsite + str_length(callsite);
  const char *digits = number_before(callsite, end, &place.line);
  bool whole = digits && digits > callsite && digits[-1] == ':';
  place.function = whole ? str_intern_sized(context, callsite, (size_t)(digits - 1 - callsite)) : callsite;
  if (!whole) place.line = 0;
  TraceFrame frame;
  for (TraceCursor cursor = node_trace(node); !cursor.is_torch && trace_next(&cursor, &frame);) {
    if (frame.line != place.line || frame.function_length != str_length(place.function)) continue;
    if (memcmp(frame.function, place.function, frame.function_length) != 0) continue;
    place.file = str_intern_sized(context, frame.file, frame.file_length);
    break;
  }
  return place;
}

/* Of other producers' traces: the innermost frame outside libraries, else the innermost of all. */
static Place trace_place(Context *context, const Node *node) {
  TraceCursor cursor = node_trace(node);
  TraceFrame frame, chosen = {0};
  bool found = false, outside = false;
  while (trace_next(&cursor, &frame)) {
    bool is_outside = !is_library_file(frame.file, frame.file_length);
    bool better = cursor.is_torch ? is_outside || !outside : (is_outside && !outside) || !found;
    if (better) chosen = frame;
    found = true;
    outside = outside || is_outside;
  }
  return found ? place_of_frame(context, &chosen) : (Place){0};
}

static Place node_place(Context *context, const Node *node) {
  Str callsite = node_metadata(node, METADATA_PREFIX "callsite");
  if (callsite && *callsite) return callsite_place(context, node, callsite);
  return trace_place(context, node);
}

static void add_graph(Context *context, NodeList *list, const Graph *graph) {
  FOR_EACH_NODE(node, graph) {
    PlacedNode placed = {node, node_place(context, node)};
    node->scratch = (void *)(uintptr_t)list->nodes.count;
    list->placed_count += placed.place.function != NULL;
    list->file_count += placed.place.file != NULL;
    array_push(context, &list->nodes, placed);
    for (size_t i = 0; i < node->attributes.count; i++) {
      const Attribute *attribute = &node->attributes.items[i];
      if (attribute->kind == ATTRIBUTE_GRAPH) add_graph(context, list, attribute->graph);
    }
  }
}

NodeList *model_nodes(Context *context, Model *model) {
  NodeList *list = arena_new(&context->arena, NodeList);
  add_graph(context, list, model->graph);
  for (size_t i = 0; i < model->functions.count; i++) add_graph(context, list, model->functions.items[i]->body);
  return list;
}

void match_sources(Job *job, const NodeList *list) {
  Tallies files = {0};
  ARRAY(Str) names = {0};
  for (size_t i = 0; i < list->nodes.count; i++) {
    Str file = list->nodes.items[i].place.file;
    if (file && tally_count(&job->context, &files, file, 0)->count == 1) array_push(&job->context, &names, file);
  }
  sources_match(&job->context, &job->sources, names.items, names.count);
}

void require_places(Job *job, const NodeList *list) {
  if (list->placed_count) return;
  fail(&job->context, ERROR_FORMAT, "%s", no_places_help);
}

/* ---- choosing ---- */

bool path_ends_with(const char *path, const char *given) {
  while (given[0] == '.' && given[1] == '/') given += 2;
  size_t length = strlen(path), tail = strlen(given);
  if (!tail || tail > length || strcmp(path + length - tail, given) != 0) return false;
  return tail == length || path[length - tail - 1] == '/' || path[length - tail - 1] == '\\' || given[0] == '/';
}

Filter job_filter(Job *job) {
  Filter filter = {.op = job->op, .name = job->name};
  if (!job->line) return filter;
  const char *end = job->line + strlen(job->line);
  const char *digits = number_before(job->line, end, &filter.last);
  filter.first = filter.last;
  if (digits && digits > job->line && digits[-1] == '-') digits = number_before(job->line, digits - 1, &filter.first);
  if (!digits || digits == job->line || digits[-1] != ':' || filter.first > filter.last) {
    fail(&job->context, ERROR_VALUE, "--line is FILE:LINE, FILE:FIRST-LAST or FUNCTION:LINE, not %s", job->line);
  }
  size_t length = (size_t)(digits - 1 - job->line);
  char *where = arena_alloc(&job->context.arena, length + 1);
  memcpy(where, job->line, length);
  filter.where = job->sources.named = where;
  return filter;
}

static bool is_from(Job *job, const Filter *filter, Place place) {
  if (!place.function || place.line < filter->first || place.line > filter->last) return false;
  if (!*filter->where || str_is(place.function, filter->where)) return true;
  if (place.file) return path_ends_with(place.file, filter->where);
  const Source *source = source_open(job, filter->where);
  return source && source_defines(source, place.function, place.line);
}

/* A pattern, or the very text: names may hold brackets. */
static bool is_like(const char *pattern, Str text) { return str_is(text, pattern) || fnmatch(pattern, text, 0) == 0; }

bool filter_passes(Job *job, const Filter *filter, const PlacedNode *placed) {
  const Node *node = placed->node;
  if (filter->op && !is_like(filter->op, node->op_type) && !is_like(filter->op, operator_name(&job->context, node))) {
    return false;
  }
  if (filter->where && !is_from(job, filter, placed->place)) return false;
  if (!filter->name || is_like(filter->name, node->name)) return true;
  for (uint32_t i = 0; i < node->output_count; i++) {
    if (node->outputs[i] && is_like(filter->name, node->outputs[i]->name)) return true;
  }
  return false;
}

/* ---- counting ---- */

Tally *tally_count(Context *context, Tallies *tallies, Str key, uint64_t key_number) {
  void **slot = map_slot(context, &tallies->known, (uint64_t)(uintptr_t)key, key_number);
  if (!*slot) {
    Tally *tally = arena_new(&context->arena, Tally);
    *tally = (Tally){.key = key, .key_number = key_number};
    *slot = tally;
    array_push(context, &tallies->items, tally);
  }
  Tally *tally = *slot;
  tally->count++;
  return tally;
}

static int by_count(const void *a, const void *b) {
  const Tally *first = *(Tally *const *)a, *second = *(Tally *const *)b;
  if (first->count != second->count) return first->count < second->count ? 1 : -1;
  int order = str_compare(first->key, second->key);
  if (order) return order;
  return (first->key_number > second->key_number) - (first->key_number < second->key_number);
}

void tallies_sort(Tallies *tallies) {
  if (tallies->items.count) qsort(tallies->items.items, tallies->items.count, sizeof(Tally *), by_count);
}

Str operator_name(Context *context, const Node *node) {
  if (!*node->domain) return node->op_type;
  Builder name;
  builder_init(&name, context);
  builder_add_sized(&name, node->domain, str_length(node->domain));
  builder_add(&name, ".");
  builder_add_sized(&name, node->op_type, str_length(node->op_type));
  return str_intern_sized(context, name.text, name.length);
}

void report_operators(Report *report, Tallies *operators, size_t most) {
  tallies_sort(operators);
  for (size_t i = 0; i < operators->items.count; i++) {
    const Tally *tally = operators->items.items[i];
    if (i) report_add(report, ", ");
    if (i == most) {
      report_add(report, "…");
      break;
    }
    report_colored(report, COLOR_OPERATOR, tally->key);
    if (tally->count > 1) builder_format(&report->line, " %zu", tally->count);
  }
}

void json_tallies(Report *report, const Tallies *tallies, const char *key, bool with_operators) {
  report_add(report, "[");
  for (size_t i = 0; i < tallies->items.count; i++) {
    const Tally *tally = tallies->items.items[i];
    builder_format(&report->line, i ? ", {\"%s\": " : "{\"%s\": ", key);
    json_name(report, tally->key);
    json_count(report, "nodes", tally->count);
    if (with_operators) {
      json_key(report, "operators");
      json_tallies(report, &tally->operators, "operator", false);
    }
    report_add(report, "}");
  }
  report_add(report, "]");
}
