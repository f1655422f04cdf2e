/* j2o blame: source lines with the nodes they became. */
#include <stdlib.h>
#include <string.h>

#include "tool/nodes.h"
#include "tool/source.h"

/* A line that became nodes. */
typedef struct Blamed {
  Str file; /* NULL: the model does not say */
  Str function;
  uint32_t line;
  size_t count;
  Tallies operators;
} Blamed;

typedef struct Listing {
  Map known;
  ARRAY(Blamed *) lines;
} Listing;

static Blamed *blamed_line(Context *context, Listing *listing, Place place) {
  /* Function names are kept apart: without files they are all there is, and with files a line has few. */
  uint64_t where = (uint64_t)(uintptr_t)place.file ^ ((uint64_t)place.line << 48);
  uint64_t who = (uint64_t)(uintptr_t)place.function ^ ((uint64_t)(place.line >> 16) << 48);
  void **slot = map_slot(context, &listing->known, where, who);
  if (!*slot) {
    Blamed *blamed = arena_new(&context->arena, Blamed);
    *blamed = (Blamed){.file = place.file, .function = place.function, .line = place.line};
    *slot = blamed;
    array_push(context, &listing->lines, blamed);
  }
  return *slot;
}

static int by_place(const void *a, const void *b) {
  const Blamed *first = *(Blamed *const *)a, *second = *(Blamed *const *)b;
  bool both = first->file && second->file;
  int order = both ? str_compare(first->file, second->file) : (first->file != NULL) - (second->file != NULL);
  if (order) return order;
  if (!first->file) order = str_compare(first->function, second->function);
  if (order) return order;
  if (first->line != second->line) return first->line < second->line ? -1 : 1;
  return str_compare(first->function, second->function);
}

static Listing list_lines(Context *context, const NodeList *nodes) {
  Listing listing = {0};
  for (size_t i = 0; i < nodes->nodes.count; i++) {
    const PlacedNode *placed = &nodes->nodes.items[i];
    if (!placed->place.function) continue;
    Blamed *blamed = blamed_line(context, &listing, placed->place);
    blamed->count++;
    tally_count(context, &blamed->operators, operator_name(context, placed->node), 0);
  }
  if (listing.lines.count) qsort(listing.lines.items, listing.lines.count, sizeof(Blamed *), by_place);
  return listing;
}

/* ---- one file ---- */

/* The model's name for the file: the one whose end has most in common with what was given; NULL: there is none. */
static Str file_in_model(const Listing *listing, const char *given) {
  Str best = NULL;
  size_t most = 0;
  for (size_t i = 0; i < listing->lines.count; i++) {
    Str file = listing->lines.items[i]->file;
    size_t parts = file ? path_common_parts(file, given) : 0;
    if (parts > most) {
      most = parts;
      best = file;
    }
  }
  return best;
}

static int by_line(const void *a, const void *b) {
  const Blamed *first = *(Blamed *const *)a, *second = *(Blamed *const *)b;
  if (first->line != second->line) return first->line < second->line ? -1 : 1;
  return str_compare(first->function, second->function);
}

static Listing of_file(Job *job, const Listing *all, const Source *source, const char *given) {
  Listing chosen = {0};
  Str file = file_in_model(all, given);
  for (size_t i = 0; i < all->lines.count; i++) {
    Blamed *blamed = all->lines.items[i];
    bool here = blamed->file ? blamed->file == file : source_defines(source, blamed->function, blamed->line);
    if (here) array_push(&job->context, &chosen.lines, blamed);
  }
  if (chosen.lines.count) qsort(chosen.lines.items, chosen.lines.count, sizeof(Blamed *), by_line);
  return chosen;
}

enum { OPERATOR_COLUMN = 36, MOST_OPERATORS = 4 };

/* What one source line became, from several functions where they share it (lambdas). */
static void add_annotation(Report *report, const Blamed *const *blamed, size_t count) {
  size_t start = report->line.length, nodes = 0;
  Tallies operators = {0};
  for (size_t i = 0; i < count; i++) {
    nodes += blamed[i]->count;
    for (size_t k = 0; k < blamed[i]->operators.items.count; k++) {
      const Tally *tally = blamed[i]->operators.items.items[k];
      tally_count(report->context, &operators, tally->key, 0)->count += tally->count - 1;
    }
  }
  if (count) builder_format(&report->line, "%6zu  ", nodes);
  report_operators(report, &operators, MOST_OPERATORS);
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

static size_t same_line(const Listing *listing, size_t at) {
  size_t end = at;
  while (end < listing->lines.count && listing->lines.items[end]->line == listing->lines.items[at]->line &&
         listing->lines.items[end]->file == listing->lines.items[at]->file) {
    end++;
  }
  return end;
}

static void list_source(Job *job, const Listing *listing, const Source *source) {
  size_t at = 0;
  for (uint32_t number = 1; number <= source->lines.count; number++) {
    while (at < listing->lines.count && listing->lines.items[at]->line < number) at++;
    bool hit = at < listing->lines.count && listing->lines.items[at]->line == number;
    size_t end = at;
    while (hit && end < listing->lines.count && listing->lines.items[end]->line == number) end++;
    add_annotation(&job->report, (const Blamed *const *)listing->lines.items + at, end - at);
    add_source(&job->report, number, source_line(source, number));
    at = end;
  }
}

/* ---- the model alone ---- */

static void list_lines_of_model(Job *job, const Listing *listing) {
  Report *report = &job->report;
  Str file = NULL;
  bool begun = false;
  for (size_t at = 0, end; at < listing->lines.count; at = end) {
    const Blamed *blamed = listing->lines.items[at];
    if (!begun || blamed->file != file) {
      if (begun) report_add(report, "\n");
      if (blamed->file) report_colored(report, COLOR_HEAD, blamed->file);
      else report_heading(report, "lines of functions (the model does not name their files)");
      report_add(report, "\n");
      file = blamed->file;
      begun = true;
    }
    const Source *source = file ? source_open(job, file) : NULL;
    end = source ? same_line(listing, at) : at + 1;
    add_annotation(report, (const Blamed *const *)listing->lines.items + at, end - at);
    if (source) {
      add_source(report, blamed->line, source_line(source, blamed->line));
      continue;
    }
    report_color(report, COLOR_ORIGIN);
    report_name(report, blamed->function);
    builder_format(&report->line, ":%u", blamed->line);
    report_color(report, COLOR_PLAIN);
    report_add(report, "\n");
    report_flush(report);
  }
}

static void list_json(Job *job, const Listing *listing, const Source *given) {
  Report *report = &job->report;
  report_add(report, "{\"model\": ");
  json_text(report, job->path, strlen(job->path));
  report_add(report, ", \"lines\": [");
  for (size_t i = 0; i < listing->lines.count; i++) {
    const Blamed *blamed = listing->lines.items[i];
    report_add(report, i ? ",\n{\"file\": " : "\n{\"file\": ");
    json_name(report, blamed->file);
    json_key(report, "function");
    json_name(report, blamed->function);
    json_count(report, "line", blamed->line);
    const Source *source = given ? given : blamed->file ? source_open(job, blamed->file) : NULL;
    const SourceLine *line = source ? source_line(source, blamed->line) : NULL;
    json_key(report, "source");
    if (line) json_text(report, line->text, line->length);
    else report_add(report, "null");
    json_count(report, "nodes", blamed->count);
    json_key(report, "operators");
    json_tallies(report, &blamed->operators, "operator", false);
    report_add(report, "}");
    report_flush(report);
  }
  report_add(report, "]");
  json_sources(job);
  report_add(report, "}\n");
}

void run_blame(Job *job) {
  const NodeList *nodes = model_nodes(&job->context, job_model(job, 0));
  require_places(job, nodes);
  match_sources(job, nodes);
  Listing listing = list_lines(&job->context, nodes);
  const Source *source = NULL;
  if (job->operand_count > 1) {
    const char *given = job->sources.named = job->operands[1];
    source = source_open(job, given);
    if (!source) fail(&job->context, ERROR_IO, "%s: cannot be read, is empty, or is not a .py file", given);
    listing = of_file(job, &listing, source, given);
    if (!listing.lines.count) {
      fail(&job->context, ERROR_VALUE, "%s: no node of %s came from this file; j2o inspect --summary lists the files",
           given, job->path);
    }
  }
  if (job->json) list_json(job, &listing, source);
  else if (source) list_source(job, &listing, source);
  else list_lines_of_model(job, &listing);
  if (!job->json) report_left_out(job);
}
