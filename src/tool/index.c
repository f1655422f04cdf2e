/* Building the index. */
#include "tool/index.h"

#include <string.h>

#include "base/bytes.h"
#include "tool/source.h"

const char *const relation_names[RELATIONS] = {"none", "through", "within", "fused", "own"};

const char no_places_help[] =
    "no node has provenance. Export the model with JAX2ONNX_ENABLE_STACKTRACE_METADATA=1 in the environment to\nrecord "
    "the line of the program on every node, and with JAX2ONNX_STACKTRACE_DETAIL=full (or compact) to record\nthe whole "
    "trace.";

/* ---- lines and frames ---- */

static uint64_t word(Str text) { return (uint64_t)(uintptr_t)text; }

/* The row that a slot of a map holds, as one more than it; a new one is `count`. */
static bool is_new(void **slot, size_t count, uint32_t *row) {
  bool absent = !*slot;
  if (absent) *slot = (void *)(uintptr_t)(count + 1);
  *row = (uint32_t)((uintptr_t)*slot - 1);
  return absent;
}

static uint32_t line_row(Context *context, OriginIndex *index, Place place) {
  uint32_t row;
  Str key = place.file ? place.file : place.function;
  uint64_t kind = (uint64_t)place.line << 1 | (place.file != NULL);
  if (is_new(map_slot(context, &index->known_lines, word(key), kind), index->lines.count, &row)) {
    IndexLine line = {.file = place.file, .number = place.line};
    line.is_library = place.file && is_library_file(place.file, str_length(place.file));
    array_push(context, &index->lines, line);
  }
  return row;
}

static uint32_t frame_row(Context *context, OriginIndex *index, Place place) {
  uint32_t row, line = line_row(context, index, place);
  if (is_new(map_slot(context, &index->known_frames, line, word(place.function)), index->frames.count, &row)) {
    array_push(context, &index->frames, ((IndexFrame){line, place.function}));
    array_push(context, &index->lines.items[line].functions, place.function);
  }
  return row;
}

/* ---- origins ---- */

typedef ARRAY(uint32_t) Rows;

static const IndexLine *line_of_frame(const OriginIndex *index, uint32_t frame) {
  return &index->lines.items[index->frames.items[frame].line];
}

/* The innermost of the user's frames; else of a library's outside JAX; else the innermost. */
static size_t user_frame(const OriginIndex *index, const uint32_t *frames, size_t count) {
  size_t library = count;
  for (size_t i = 0; i < count; i++) {
    const IndexLine *line = line_of_frame(index, frames[i]);
    if (!line->is_library) return i;
    if (library == count && !is_jax_file(line->file, str_length(line->file))) library = i;
  }
  return library < count ? library : 0;
}

static void add_chain(Context *context, const OriginIndex *index, IndexOrigin *origin, Rows *rows,
                      bool outermost_first) {
  if (!rows->count) return;
  for (size_t i = 0, j = rows->count; outermost_first && i + 1 < j; i++) {
    uint32_t other = rows->items[--j];
    rows->items[j] = rows->items[i];
    rows->items[i] = other;
  }
  Chain chain = {.count = rows->count};
  chain.frames = arena_copy(&context->arena, rows->items, rows->count * sizeof *rows->items);
  chain.end = user_frame(index, chain.frames, chain.count);
  array_push(context, &origin->chains, chain);
  rows->count = 0;
}

static void read_chains(Context *context, OriginIndex *index, IndexOrigin *origin, TraceCursor cursor) {
  Rows rows = {0};
  TraceFrame frame;
  while (trace_next(&cursor, &frame)) {
    if (frame.begins_block) add_chain(context, index, origin, &rows, cursor.is_torch);
    Place place = {.function = str_intern_sized(context, frame.function, frame.function_length),
                   .file = str_intern_sized(context, frame.file, frame.file_length),
                   .line = frame.line};
    array_push(context, &rows, frame_row(context, index, place));
  }
  add_chain(context, index, origin, &rows, cursor.is_torch);
}

/* The file of a callsite is that of the first frame of the traces with its function and line; that frame then stands
 * for the user's line of its chain. */
static void take_callsite(Context *context, OriginIndex *index, IndexOrigin *origin, Str callsite) {
  size_t length = str_length(callsite);
  uint32_t number = 0;
  if (!parse_callsite(callsite, length, &length, &number)) number = 0;
  origin->place = (Place){.function = str_intern_sized(context, callsite, length), .line = number};
  for (size_t i = 0; i < origin->chains.count; i++) {
    Chain *chain = &origin->chains.items[i];
    for (size_t k = 0; k < chain->count; k++) {
      const IndexFrame *frame = &index->frames.items[chain->frames[k]];
      const IndexLine *line = &index->lines.items[frame->line];
      if (frame->function != origin->place.function || line->number != number) continue;
      chain->end = k;
      origin->place.file = line->file;
      origin->frame = chain->frames[k];
      return;
    }
  }
  origin->frame = frame_row(context, index, origin->place);
}

static void find_place(Context *context, OriginIndex *index, IndexOrigin *origin, Str callsite) {
  if (callsite && *callsite) {
    take_callsite(context, index, origin, callsite);
  } else if (origin->chains.count) {
    const Chain *chain = &origin->chains.items[0];
    origin->frame = chain->frames[chain->end];
    const IndexLine *line = line_of_frame(index, origin->frame);
    origin->place = (Place){index->frames.items[origin->frame].function, line->file, line->number};
  }
}

/* The closest relation comes first and counts. An origin's passage is the last of the lines that it passes: one look
 * tells whether a line has it already. */
static void add_passage(Context *context, OriginIndex *index, uint32_t row, uint32_t frame, LineRelation relation) {
  IndexLine *line = &index->lines.items[index->frames.items[frame].line];
  size_t count = line->passages.count;
  if (count && line->passages.items[count - 1].origin == row) return;
  array_push(context, &line->passages, ((Passage){row, relation}));
  array_push(context, &index->origins.items[row].passed, ((Passed){frame, relation}));
}

enum { MOST_LINES_OF_AN_EXPRESSION = 1000 };

/* "line:column-line:column": the lines after the first. */
static bool span_lines(Str span, uint32_t *first, uint32_t *last) {
  const char *dash = find_letter(span, '-', str_length(span)), *end = span + str_length(span);
  const char *colon = find_letter(span, ':', str_length(span)),
             *other = dash ? find_letter(dash, ':', (size_t)(end - dash)) : NULL;
  if (!dash || !colon || colon > dash || !other) return false;
  if (number_before(span, colon, first) != span || number_before(dash + 1, other, last) != dash + 1) return false;
  return *last > *first && *last - *first <= MOST_LINES_OF_AN_EXPRESSION;
}

static void add_span(Context *context, OriginIndex *index, uint32_t row, Str span) {
  const IndexOrigin *origin = &index->origins.items[row];
  uint32_t first, last;
  if (!span || !origin->place.file || !span_lines(span, &first, &last)) return;
  Place place = origin->place;
  for (uint32_t line = first; line <= last; line++) {
    place.line = line;
    add_passage(context, index, row, frame_row(context, index, place), RELATION_WITHIN);
  }
}

static void add_passages(Context *context, OriginIndex *index, uint32_t row, Str span) {
  const IndexOrigin *origin = &index->origins.items[row];
  if (origin->frame != NO_ROW) add_passage(context, index, row, origin->frame, RELATION_OWN);
  for (size_t i = 1; i < origin->chains.count; i++) {
    const Chain *chain = &origin->chains.items[i];
    add_passage(context, index, row, chain->frames[chain->end], RELATION_FUSED);
  }
  add_span(context, index, row, span);
  for (size_t i = 0; i < origin->chains.count; i++) {
    const Chain *chain = &origin->chains.items[i];
    for (size_t k = 0; k < chain->count; k++) add_passage(context, index, row, chain->frames[k], RELATION_THROUGH);
  }
}

/* Operations of one line have one trace; what tells them apart is the expression. */
static Str joined(Context *context, Str callsite, Str span) {
  Builder text;
  builder_init(&text, context);
  if (callsite) builder_add_sized(&text, callsite, str_length(callsite));
  builder_add_sized(&text, "\t", 1);
  builder_add_sized(&text, span, str_length(span));
  return str_intern_sized(context, text.text, text.length);
}

static uint32_t origin_row(Context *context, OriginIndex *index, const MetadataList *metadata) {
  uint32_t row;
  Str callsite = metadata_get(metadata, METADATA_PREFIX "callsite");
  TraceCursor cursor = trace_of(metadata);
  if (!cursor.at && !(callsite && *callsite)) return NO_ROW;
  Str span = metadata_get(metadata, METADATA_PREFIX "span");
  Str end = span ? joined(context, callsite, span) : callsite;
  void **slot = map_slot(context, &index->known_origins, (uint64_t)(uintptr_t)cursor.at, word(end));
  if (!is_new(slot, index->origins.count, &row)) return row;
  IndexOrigin origin = {.frame = NO_ROW};
  read_chains(context, index, &origin, cursor);
  find_place(context, index, &origin, callsite);
  array_push(context, &index->origins, origin);
  add_passages(context, index, row, span);
  return row;
}

/* ---- modules ---- */

/* PyTorch writes the modules' paths from the outermost on, then the node's own name: ['', 'layers.0', 'linear']. */
static Str torch_module(Context *context, Str scopes) {
  const char *end = scopes + str_length(scopes), *last = NULL, *before = NULL;
  size_t last_length = 0, before_length = 0;
  for (const char *at = scopes; (at = find_letter(at, '\'', (size_t)(end - at)));) {
    const char *close = find_letter(at + 1, '\'', (size_t)(end - at - 1));
    if (!close) break;
    before = last, before_length = last_length;
    last = at + 1, last_length = (size_t)(close - last);
    at = close + 1;
  }
  return before ? str_intern_sized(context, before, before_length) : NULL;
}

static Str module_of(Context *context, const MetadataList *metadata) {
  Str path = metadata_get(metadata, METADATA_PREFIX "module");
  if (path) return path;
  Str scopes = metadata_get(metadata, TORCH_PREFIX "name_scopes");
  return scopes ? torch_module(context, scopes) : NULL;
}

/* ---- items ---- */

static void add_item(Context *context, OriginIndex *index, Item item) {
  uint32_t row = (uint32_t)index->items.count;
  item.origin = origin_row(context, index, item.metadata);
  item.module = module_of(context, item.metadata);
  item.fused_modules = metadata_get(item.metadata, METADATA_FUSED_MODULES);
  if (item.origin != NO_ROW) {
    IndexOrigin *origin = &index->origins.items[item.origin];
    item.place = origin->place;
    array_push(context, &origin->items, row);
  }
  index->counts[item.kind]++;
  index->placed_count += item.kind == INDEX_NODE && item.place.function;
  array_push(context, &index->items, item);
}

static void add_nodes(Context *context, OriginIndex *index, const Graph *graph) {
  FOR_EACH_NODE(node, graph) {
    node->scratch = (void *)(uintptr_t)index->items.count;
    add_item(context, index, (Item){.kind = INDEX_NODE, .node = node, .metadata = &node->metadata});
    for (size_t i = 0; i < node->attributes.count; i++) {
      const Attribute *attribute = &node->attributes.items[i];
      if (attribute->kind == ATTRIBUTE_GRAPH) add_nodes(context, index, attribute->graph);
    }
  }
}

static void add_initializers(Graph *graph, void *data) {
  OriginIndex *index = data;
  Context *context = index->model->context;
  for (size_t i = 0; i < graph->initializers.count; i++) {
    const Value *value = graph->initializers.items[i];
    void **slot = map_slot_pointer(context, &index->values, value);
    *slot = (void *)(uintptr_t)(index->items.count + 1);
    add_item(context, index, (Item){.kind = INDEX_INITIALIZER, .value = value, .metadata = &value->metadata});
  }
}

static void count_items(Graph *graph, void *data) {
  size_t *count = data;
  *count += graph->node_count + graph->initializers.count;
}

/* ---- what was removed ---- */

/* The frames of a row, a line each, as a trace has them. */
static Str frames_text(Context *context, const char *at, const char *end) {
  static const char between[] = " < ";
  Builder text;
  builder_init(&text, context);
  while (at < end) {
    const char *stop = find_bytes(at, (size_t)(end - at), between, sizeof between - 1);
    builder_add_sized(&text, at, (size_t)((stop ? stop : end) - at));
    if (!stop) break;
    builder_add_sized(&text, "\n", 1);
    at = stop + sizeof between - 1;
  }
  return str_intern_sized(context, builder_text(&text), text.length);
}

static void add_removed_row(Context *context, OriginIndex *index, const char *row, const char *end) {
  const char *pass = find_letter(row, '\t', (size_t)(end - row));
  const char *frames = pass ? find_letter(pass + 1, '\t', (size_t)(end - pass - 1)) : NULL;
  if (!frames) return;
  Item item = {.kind = INDEX_REMOVED, .reason = str_intern_sized(context, row, (size_t)(pass - row))};
  item.pass = str_intern_sized(context, pass + 1, (size_t)(frames - pass - 1));
  MetadataList *metadata = arena_new(&context->arena, MetadataList);
  Str key = str_intern(context, METADATA_TRACE);
  array_push(context, metadata, ((Metadata){key, frames_text(context, frames + 1, end)}));
  item.metadata = metadata;
  add_item(context, index, item);
}

static void add_removed(Context *context, OriginIndex *index, Str text) {
  for (const char *row = text, *end = text + str_length(text); row < end;) {
    const char *stop = find_letter(row, '\n', (size_t)(end - row));
    add_removed_row(context, index, row, stop ? stop : end);
    row = stop ? stop + 1 : end;
  }
}

OriginIndex *model_index(Context *context, Model *model) {
  OriginIndex *index = arena_new(&context->arena, OriginIndex);
  size_t count = 0;
  index->model = model;
  model_each_graph(model, count_items, &count);
  array_reserve(context, &index->items, count);
  add_nodes(context, index, model->graph);
  for (size_t i = 0; i < model->functions.count; i++) add_nodes(context, index, model->functions.items[i]->body);
  model_each_graph(model, add_initializers, index);
  Str removed = metadata_get(&model->metadata, METADATA_REMOVED);
  if (removed) add_removed(context, index, removed);
  return index;
}

const Item *value_item(const OriginIndex *index, const Value *value) {
  uintptr_t row = (uintptr_t)map_get_pointer(&index->values, value);
  return row ? &index->items.items[row - 1] : NULL;
}

void report_place(Report *report, Place place) {
  report_color(report, COLOR_ORIGIN);
  report_name(report, place.function);
  if (place.line) builder_format(&report->line, ":%u", place.line);
  report_color(report, COLOR_PLAIN);
}

Str item_reason(Context *context, const Item *item) {
  Builder text;
  builder_init(&text, context);
  builder_format(&text, "removed: %s", item->reason);
  return str_intern_sized(context, text.text, text.length);
}

void require_places(Job *job, const OriginIndex *index) {
  if (index->origins.count) return;
  fail(&job->context, ERROR_FORMAT, "%s", no_places_help);
}
