/* Traces of an item. */
#include "tool/trace_report.h"

#include <string.h>

#include "tool/source.h"

/* Rows of frames, interned as bytes: equal ones have one address. */
typedef Str Rows;

static Rows rows_of(Context *context, const uint32_t *rows, size_t count) {
  return str_intern_sized(context, count ? (const char *)rows : "", count * sizeof *rows);
}

static size_t row_count(Rows rows) { return str_length(rows) / sizeof(uint32_t); }

static uint32_t row_at(Rows rows, size_t i) {
  uint32_t row;
  memcpy(&row, rows + i * sizeof row, sizeof row);
  return row;
}

/* Chains with the same callers. */
typedef struct Group {
  Rows callers;
  ARRAY(Rows) heads; /* up to the user's line */
} Group;

typedef struct Groups {
  Map known, seen;
  ARRAY(Group *) items;
  size_t hidden; /* frames of libraries */
} Groups;

static const IndexLine *line_of(const OriginIndex *index, uint32_t frame) {
  return &index->lines.items[index->frames.items[frame].line];
}

typedef struct Part {
  ARRAY(uint32_t) rows;
} Part;

static Rows shown_part(Context *context, const OriginIndex *index, const uint32_t *frames, size_t count, bool all) {
  Part part = {0};
  for (size_t i = 0; i < count; i++) {
    if (all || !line_of(index, frames[i])->is_library) array_push(context, &part.rows, frames[i]);
  }
  return rows_of(context, part.rows.items, part.rows.count);
}

static size_t library_frames(const OriginIndex *index, const Chain *chain) {
  size_t count = 0;
  for (size_t i = 0; i < chain->count; i++) count += line_of(index, chain->frames[i])->is_library;
  return count;
}

static Group *group_of(Context *context, Groups *groups, Rows callers) {
  void **slot = map_slot_pointer(context, &groups->known, callers);
  if (!*slot) {
    Group *group = arena_new(&context->arena, Group);
    group->callers = callers;
    *slot = group;
    array_push(context, &groups->items, group);
  }
  return *slot;
}

static void add_chain(Context *context, const OriginIndex *index, Groups *groups, const Chain *chain, bool all) {
  size_t head = chain->end + 1;
  Rows inner = shown_part(context, index, chain->frames, head, all);
  Rows callers = shown_part(context, index, chain->frames + head, chain->count - head, all);
  void **slot = map_slot(context, &groups->seen, (uint64_t)(uintptr_t)inner, (uint64_t)(uintptr_t)callers);
  if (*slot) return;
  *slot = (void *)(uintptr_t)1;
  if (!all) groups->hidden += library_frames(index, chain);
  Group *group = group_of(context, groups, callers);
  array_push(context, &group->heads, inner);
}

static void add_frame(Job *job, const OriginIndex *index, uint32_t row, const char *word) {
  Report *report = &job->report;
  const IndexLine *line = line_of(index, row);
  builder_format(&report->line, "  %s", word);
  report_color(report, line->is_library ? COLOR_FAINT : COLOR_ORIGIN);
  if (line->file) report_path(report, line->file);
  builder_format(&report->line, ":%u", line->number);
  report_color(report, COLOR_PLAIN);
  report_add(report, " in ");
  report_name(report, index->frames.items[row].function);
  report_add(report, "\n");
  const Source *source = line->file ? source_open(job, line->file) : NULL;
  if (!source || !source_line(source, line->number)) return;
  report_add(report, "      ");
  report_source_line(job, line->file, line->number);
  report_add(report, "\n");
}

static void add_group(Job *job, const OriginIndex *index, const Group *group) {
  for (size_t i = 0; i < group->heads.count; i++) {
    Rows head = group->heads.items[i];
    for (size_t k = 0; k < row_count(head); k++) add_frame(job, index, row_at(head, k), i && !k ? "with " : "");
  }
  size_t callers = row_count(group->callers);
  bool several = group->heads.count > 1 && callers;
  if (several) report_add(&job->report, "  all called from\n");
  for (size_t k = 0; k < callers; k++) add_frame(job, index, row_at(group->callers, k), "");
}

void report_traces(Job *job, const OriginIndex *index, const Item *item) {
  Report *report = &job->report;
  const IndexOrigin *origin = item->origin == NO_ROW ? NULL : &index->origins.items[item->origin];
  if (!origin || !origin->chains.count) return;
  size_t own = 0;
  for (size_t i = 0; i < origin->chains.count; i++) {
    own += origin->chains.items[i].count - library_frames(index, &origin->chains.items[i]);
  }
  Groups groups = {0};
  for (size_t i = 0; i < origin->chains.count; i++) {
    add_chain(&job->context, index, &groups, &origin->chains.items[i], report->full || !own);
  }
  report_add(report, "\n");
  report_heading(report, "trace, innermost first");
  report_add(report, "\n");
  for (size_t i = 0; i < groups.items.count; i++) {
    if (i) report_add(report, "  and\n");
    add_group(job, index, groups.items.items[i]);
  }
  if (!groups.hidden) return;
  const char *word = groups.hidden == 1 ? "frame" : "frames";
  builder_format(&report->line, "  (%zu %s inside libraries: --full)\n", groups.hidden, word);
}

/* ---- for programs ---- */

static void json_frame(Job *job, const OriginIndex *index, uint32_t row) {
  Report *report = &job->report;
  const IndexLine *line = line_of(index, row);
  report_add(report, "{\"file\": ");
  json_name(report, line->file);
  json_count(report, "line", line->number);
  json_key(report, "function");
  json_name(report, index->frames.items[row].function);
}

void json_traces(Job *job, const OriginIndex *index, const Item *item) {
  Report *report = &job->report;
  const IndexOrigin *origin = item->origin == NO_ROW ? NULL : &index->origins.items[item->origin];
  const char *between = "";
  report_add(report, "[");
  for (size_t i = 0; origin && i < origin->chains.count; i++) {
    const Chain *chain = &origin->chains.items[i];
    for (size_t k = 0; k < chain->count; k++, between = ",\n") {
      report_add(report, between);
      json_frame(job, index, chain->frames[k]);
      const IndexLine *line = line_of(index, chain->frames[k]);
      const Source *source = line->file ? source_open(job, line->file) : NULL;
      const SourceLine *text = source ? source_line(source, line->number) : NULL;
      json_key(report, "source");
      if (text) json_text(report, text->text, text->length);
      else report_add(report, "null");
      report_add(report, k ? ", \"begins_trace\": false}" : ", \"begins_trace\": true}");
    }
  }
  report_add(report, "]");
}

void json_lines(Job *job, const OriginIndex *index, const Item *item) {
  Report *report = &job->report;
  const IndexOrigin *origin = item->origin == NO_ROW ? NULL : &index->origins.items[item->origin];
  report_add(report, "[");
  for (size_t i = 0; origin && i < origin->passed.count; i++) {
    const Passed *passed = &origin->passed.items[i];
    if (i) report_add(report, ",\n");
    json_frame(job, index, passed->frame);
    builder_format(&report->line, ", \"relation\": \"%s\"}", relation_names[passed->relation]);
  }
  report_add(report, "]");
}
