/* j2o blame: source lines with what they became. */
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "tool/index.h"
#include "tool/source.h"
#include "tool/tally.h"

typedef struct Listing {
  Job *job;
  const OriginIndex *index;
  Question question;
  Answer answer; /* what counts: everything, or a module's */
  ARRAY(const IndexLine *) lines;
} Listing;

static int by_place(const void *a, const void *b) {
  const IndexLine *first = *(const IndexLine *const *)a, *second = *(const IndexLine *const *)b;
  bool both = first->file && second->file;
  int order = both ? str_compare(first->file, second->file) : (first->file != NULL) - (second->file != NULL);
  if (!order && !first->file) order = str_compare(first->functions.items[0], second->functions.items[0]);
  if (!order && first->number != second->number) order = first->number < second->number ? -1 : 1;
  return order ? order : str_compare(first->functions.items[0], second->functions.items[0]);
}

static bool any(const size_t counts[INDEX_KINDS]) {
  return counts[INDEX_NODE] || counts[INDEX_INITIALIZER] || counts[INDEX_REMOVED];
}

/* Of libraries only the lines that something came from, unless the file or line was asked for. */
static bool is_listed(const Listing *listing, const IndexLine *line, Str file) {
  if (!line_is_asked(listing->job, line, &listing->question)) return false;
  LineCounts counts = line_counts(&listing->answer, line);
  if (file) return line->file == file && any(counts.inclusive);
  bool all = !line->is_library || listing->question.where;
  return any(all ? counts.inclusive : counts.self);
}

/* Of one file, or of all when that is NULL. */
static void list_lines(Listing *listing, Str file) {
  const OriginIndex *index = listing->index;
  for (size_t i = 0; i < index->lines.count; i++) {
    const IndexLine *line = &index->lines.items[i];
    if (is_listed(listing, line, file)) array_push(&listing->job->context, &listing->lines, line);
  }
  sort_items(listing->lines.items, listing->lines.count, sizeof(IndexLine *), by_place);
}

/* ---- what a line became ---- */

/* Several lines where functions without a file share a number. */
typedef struct Became {
  LineCounts counts;
  Tallies operators, reasons;
} Became;

static void add_item(Context *context, Became *became, const Item *item) {
  if (item->kind == INDEX_NODE) tally_count(context, &became->operators, operator_name(context, item->node), 0);
  else if (item->kind == INDEX_REMOVED) tally_count(context, &became->reasons, item_reason(context, item), 0);
}

static void add_line(const Listing *listing, Became *became, const IndexLine *line) {
  Context *context = &listing->job->context;
  LineCounts counts = line_counts(&listing->answer, line);
  for (ItemKind kind = 0; kind < INDEX_KINDS; kind++) {
    became->counts.self[kind] += counts.self[kind];
    became->counts.fused[kind] += counts.fused[kind];
    became->counts.inclusive[kind] += counts.inclusive[kind];
  }
  for (size_t i = 0; i < line->passages.count; i++) {
    const Passage *passage = &line->passages.items[i];
    if (passage->relation < RELATION_FUSED) continue;
    const IndexOrigin *origin = &listing->index->origins.items[passage->origin];
    for (size_t k = 0; k < origin->items.count; k++) {
      uint32_t row = origin->items.items[k];
      if (listing->answer.relations[row]) add_item(context, became, &listing->index->items.items[row]);
    }
  }
  tallies_sort(&became->operators);
  tallies_sort(&became->reasons);
}

/* ---- for people ---- */

enum { OPERATOR_COLUMN = 44, MOST_OPERATORS = 4 };

static void add_count(Report *report, size_t count) {
  if (count) builder_format(&report->line, "%6zu", count);
  else report_add(report, "      ");
}

static void add_annotation(Report *report, Became *became) {
  size_t start = report->line.length;
  const size_t *self = became->counts.self;
  add_count(report, self[INDEX_NODE]);
  add_count(report, became->counts.inclusive[INDEX_NODE]);
  report_add(report, "  ");
  report_operators(report, &became->operators, MOST_OPERATORS);
  const char *between = became->operators.items.count ? ", " : "";
  if (self[INDEX_INITIALIZER]) {
    const char *word = self[INDEX_INITIALIZER] == 1 ? "constant" : "constants";
    builder_format(&report->line, "%s%zu %s", between, self[INDEX_INITIALIZER], word);
    between = ", ";
  }
  for (size_t i = 0; i < became->reasons.items.count; i++, between = ", ") {
    report_add(report, between);
    report_colored(report, COLOR_FAINT, became->reasons.items.items[i]->key);
  }
  report_columns(report, start, OPERATOR_COLUMN);
}

static void add_source(Report *report, uint32_t number, const SourceLine *line) {
  report_color(report, COLOR_FAINT);
  builder_format(&report->line, "%5u", number);
  report_color(report, COLOR_PLAIN);
  if (line) {
    report_add(report, "  ");
    report_text(report, line->text, line->length);
  }
  report_add(report, "\n");
  report_flush(report);
}

static void add_heading(Report *report) {
  report_color(report, COLOR_FAINT);
  report_add(report, "  self incl.");
  report_color(report, COLOR_PLAIN);
  report_add(report, "\n");
}

/* A whole file; with --line its lines alone. */
static void list_source(const Listing *listing, const Source *source) {
  Report *report = &listing->job->report;
  const Question *question = &listing->question;
  size_t at = 0;
  add_heading(report);
  for (uint32_t number = 1; number <= source->lines.count; number++) {
    Became became = {0};
    while (at < listing->lines.count && listing->lines.items[at]->number < number) at++;
    for (; at < listing->lines.count && listing->lines.items[at]->number == number; at++) {
      add_line(listing, &became, listing->lines.items[at]);
    }
    if (question->where && (number < question->first || number > question->last)) continue;
    add_annotation(report, &became);
    add_source(report, number, source_line(source, number));
  }
}

static void add_file(Listing *listing, Str file) {
  Report *report = &listing->job->report;
  if (file) {
    report_color(report, COLOR_HEAD);
    report_path(report, file);
    report_color(report, COLOR_PLAIN);
  } else {
    report_heading(report, "lines by function (the model does not record file names)");
  }
  report_add(report, "\n");
  add_heading(report);
}

static void list_lines_of_model(Listing *listing) {
  Report *report = &listing->job->report;
  for (size_t i = 0; i < listing->lines.count; i++) {
    const IndexLine *line = listing->lines.items[i];
    if (!i || line->file != listing->lines.items[i - 1]->file) {
      if (i) report_add(report, "\n");
      add_file(listing, line->file);
    }
    Became became = {0};
    add_line(listing, &became, line);
    add_annotation(report, &became);
    const Source *source = line->file ? source_open(listing->job, line->file) : NULL;
    if (source) {
      add_source(report, line->number, source_line(source, line->number));
      continue;
    }
    report_color(report, COLOR_ORIGIN);
    report_name(report, line->functions.items[0]);
    builder_format(&report->line, ":%u", line->number);
    report_color(report, COLOR_PLAIN);
    report_add(report, "\n");
    report_flush(report);
  }
}

/* ---- for programs ---- */

static void json_line(const Listing *listing, const IndexLine *line, const Source *given) {
  Report *report = &listing->job->report;
  Became became = {0};
  add_line(listing, &became, line);
  report_add(report, "{\"file\": ");
  json_name(report, line->file);
  json_key(report, "function");
  json_name(report, line->functions.items[0]);
  json_key(report, "functions");
  report_add(report, "[");
  for (size_t i = 0; i < line->functions.count; i++) {
    if (i) report_add(report, ", ");
    json_name(report, line->functions.items[i]);
  }
  report_add(report, "]");
  json_count(report, "line", line->number);
  const Source *source = given ? given : line->file ? source_open(listing->job, line->file) : NULL;
  const SourceLine *text = source ? source_line(source, line->number) : NULL;
  json_key(report, "source");
  if (text) json_text(report, text->text, text->length);
  else report_add(report, "null");
  json_count(report, "nodes", became.counts.self[INDEX_NODE]);
  json_count(report, "fused_nodes", became.counts.fused[INDEX_NODE]);
  json_count(report, "inclusive_nodes", became.counts.inclusive[INDEX_NODE]);
  json_count(report, "initializers", became.counts.self[INDEX_INITIALIZER]);
  json_count(report, "removed", became.counts.self[INDEX_REMOVED]);
  json_key(report, "operators");
  json_tallies(report, &became.operators, "operator", false);
  report_add(report, "}");
  report_flush(report);
}

static void list_json(const Listing *listing, const Source *given) {
  Report *report = &listing->job->report;
  report_add(report, "{\"model\": ");
  json_text(report, listing->job->path, strlen(listing->job->path));
  report_add(report, ", \"lines\": [");
  for (size_t i = 0; i < listing->lines.count; i++) {
    report_add(report, i ? ",\n" : "\n");
    json_line(listing, listing->lines.items[i], given);
  }
  report_add(report, "]");
  json_sources(listing->job);
  report_add(report, "}\n");
}

void run_blame(Job *job) {
  OriginIndex *index = model_index(&job->context, job_model(job, 0));
  require_places(job, index);
  index_sources(job, index);
  Listing listing = {.job = job, .index = index, .question = job_question(job)};
  Question of_module = listing.question;
  of_module.where = NULL;
  listing.answer = index_answer(job, index, &of_module);
  const Source *source = NULL;
  Str file = NULL;
  if (job->operand_count > 1) {
    const char *given = job->sources.named = job->operands[1];
    source = source_open(job, given);
    if (!source) fail(&job->context, ERROR_IO, "%s: cannot be read, is empty, or is not a .py file", given);
    index_adopt(job, index, given);
    file = index_file(index, given);
  }
  if (!source || file) list_lines(&listing, file);
  if (!listing.lines.count && source && !asks_anything(&listing.question)) {
    fail(&job->context, ERROR_VALUE, "%s: nothing in %s comes from this file; j2o inspect --summary lists the files",
         job->operands[1], job->path);
  }
  if (!listing.lines.count) job->code = EXIT_FILE;
  if (job->json) list_json(&listing, source);
  else if (!listing.lines.count) report_nothing(&job->report, job, &listing.question);
  else if (source) list_source(&listing, source);
  else list_lines_of_model(&listing);
  if (!job->json) report_left_out(job);
}
