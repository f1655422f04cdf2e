/* j2o inspect --summary and the filters: which nodes there are, counted or listed. */
#include <fnmatch.h>
#include <inttypes.h>
#include <string.h>

#include "tool/index.h"
#include "tool/tally.h"

/* ---- choosing ---- */

/* A pattern, or the very text: names may hold brackets. */
static bool is_like(const char *pattern, Str text) { return str_is(text, pattern) || fnmatch(pattern, text, 0) == 0; }

static bool has_name(const Item *item, const char *pattern) {
  if (item->kind == INDEX_INITIALIZER) return is_like(pattern, item->value->name);
  if (item->kind != INDEX_NODE) return false;
  if (is_like(pattern, item->node->name)) return true;
  for (uint32_t i = 0; i < item->node->output_count; i++) {
    const Value *value = item->node->outputs[i];
    if (value && is_like(pattern, value->name)) return true;
  }
  return false;
}

static bool has_operator(Context *context, const Item *item, const char *pattern) {
  if (item->kind != INDEX_NODE) return false;
  return is_like(pattern, item->node->op_type) || is_like(pattern, operator_name(context, item->node));
}

/* What --op and --name leave of an answer; without --line and --module, of the nodes. */
static bool is_chosen(Job *job, const OriginIndex *index, const Answer *answer, size_t row) {
  const Item *item = &index->items.items[row];
  bool asked = job->line || job->module;
  if (!answer->relations[row] || (!asked && item->kind != INDEX_NODE)) return false;
  if (job->op && !has_operator(&job->context, item, job->op)) return false;
  return !job->name || has_name(item, job->name);
}

/* ---- counting ---- */

typedef struct Summary {
  Tallies operators, functions, files, modules;
  size_t count;
} Summary;

static void count_place(Context *context, Tallies *tallies, Str key, Str op) {
  if (key && *key) tally_count(context, &tally_count(context, tallies, key, 0)->operators, op, 0);
}

static Summary summarize(Job *job, const OriginIndex *index, const Answer *answer) {
  Context *context = &job->context;
  Summary summary = {.count = 0};
  for (size_t i = 0; i < index->counts[INDEX_NODE]; i++) {
    const Item *item = &index->items.items[i];
    if (!is_chosen(job, index, answer, i)) continue;
    Str op = operator_name(context, item->node);
    summary.count++;
    tally_count(context, &summary.operators, op, 0);
    count_place(context, &summary.functions, item->place.function, op);
    count_place(context, &summary.files, item->place.file, op);
    count_place(context, &summary.modules, item->module, op);
  }
  Tallies *all[] = {&summary.operators, &summary.functions, &summary.files, &summary.modules};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) tallies_sort(all[i]);
  return summary;
}

typedef void Print(Report *report, Str text);

static void add_table(Report *report, const char *heading, Tallies *tallies, Print *print, bool with_operators) {
  if (!tallies->items.count) return;
  report_add(report, "\n");
  report_heading(report, heading);
  report_add(report, "\n");
  size_t width = 0;
  for (size_t i = 0; i < tallies->items.count; i++) {
    size_t start = report->line.length;
    print(report, tallies->items.items[i]->key);
    size_t length = report->line.length - start;
    report->line.length = start;
    if (length > width && length <= 60) width = length;
  }
  for (size_t i = 0; i < tallies->items.count; i++) {
    Tally *tally = tallies->items.items[i];
    size_t start = report->line.length;
    builder_format(&report->line, "%8zu  ", tally->count);
    report_color(report, with_operators ? COLOR_ORIGIN : COLOR_OPERATOR);
    print(report, tally->key);
    report_color(report, COLOR_PLAIN);
    if (with_operators) {
      report_columns(report, start, width + 12);
      report_operators(report, &tally->operators, 6);
    }
    report_add(report, "\n");
  }
  report_flush(report);
}

static void add_counts(Report *report, const char *path, const Summary *summary) {
  const struct {
    size_t count;
    const char *one, *many;
  } parts[] = {{summary->count, "node", "nodes"},
               {summary->operators.items.count, "operator", "operators"},
               {summary->functions.items.count, "function", "functions"},
               {summary->files.items.count, "file", "files"}};
  report_color(report, COLOR_HEAD);
  report_text(report, path, strlen(path));
  report_color(report, COLOR_PLAIN);
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
    builder_format(&report->line, "%s%zu %s", i ? ", " : ": ", parts[i].count,
                   parts[i].count == 1 ? parts[i].one : parts[i].many);
  }
  report_add(report, "\n");
}

static void json_summary(Job *job, const Summary *summary) {
  Report *report = &job->report;
  report_add(report, "{\"file\": ");
  json_text(report, job->path, strlen(job->path));
  json_count(report, "nodes", summary->count);
  report_add(report, ", \"operators\": ");
  json_tallies(report, &summary->operators, "operator", false);
  report_add(report, ", \"functions\": ");
  json_tallies(report, &summary->functions, "function", true);
  report_add(report, ", \"files\": ");
  json_tallies(report, &summary->files, "path", true);
  report_add(report, ", \"modules\": ");
  json_tallies(report, &summary->modules, "module", true);
  report_add(report, "}\n");
}

void inspect_summary(Job *job, const OriginIndex *index) {
  Report *report = &job->report;
  Question question = job_question(job);
  if (asks_anything(&question)) require_places(job, index);
  Answer answer = index_answer(job, index, &question);
  Summary summary = summarize(job, index, &answer);
  if (job->json) {
    json_summary(job, &summary);
    return;
  }
  add_counts(report, job->path, &summary);
  add_table(report, "operators", &summary.operators, report_name, false);
  add_table(report, "functions", &summary.functions, report_name, true);
  add_table(report, "files", &summary.files, report_path, true);
  add_table(report, "modules", &summary.modules, report_name, true);
  if (!index->placed_count) {
    report_add(report, "\n");
    builder_format(&report->line, "N%s\n", no_places_help + 1);
  }
}

/* ---- listing ---- */

static size_t json_kind(Job *job, const OriginIndex *index, const Answer *answer, ItemKind kind) {
  static const char *const keys[] = {"nodes", "initializers", "removed"};
  Report *report = &job->report;
  size_t found = 0;
  builder_format(&report->line, ", \"%s\": [", keys[kind]);
  for (size_t i = 0; i < index->items.count; i++) {
    if (index->items.items[i].kind != kind || !is_chosen(job, index, answer, i)) continue;
    report_add(report, found++ ? ",\n" : "\n");
    inspect_json_item(report, index, &index->items.items[i], relation_names[answer->relations[i]]);
    report_flush(report);
  }
  report_add(report, "]");
  return found;
}

static size_t list_json(Job *job, const OriginIndex *index, const Answer *answer) {
  Report *report = &job->report;
  size_t found = 0;
  report_add(report, "{\"file\": ");
  json_text(report, job->path, strlen(job->path));
  for (ItemKind kind = 0; kind < INDEX_KINDS; kind++) found += json_kind(job, index, answer, kind);
  report_add(report, "}\n");
  return found;
}

/* Why the answer is not what came from the line itself. */
static const char *explanation(LineRelation closest) {
  if (closest == RELATION_WITHIN) return "this line is part of an expression that became\n";
  return closest == RELATION_THROUGH ? "nothing comes from this line itself; the code it called became\n" : "";
}

static size_t list_text(Job *job, const OriginIndex *index, const Answer *answer) {
  size_t found = 0;
  for (size_t i = 0; i < index->items.count; i++) {
    if (!is_chosen(job, index, answer, i)) continue;
    if (!found && !job->inclusive) report_add(&job->report, explanation(answer->closest));
    inspect_item(&job->report, index, &index->items.items[i]);
    report_flush(&job->report);
    found++;
  }
  return found;
}

void inspect_selected(Job *job, const OriginIndex *index) {
  Question question = job_question(job);
  if (asks_anything(&question)) require_places(job, index);
  Answer answer = index_answer(job, index, &question);
  size_t found = job->json ? list_json(job, index, &answer) : list_text(job, index, &answer);
  if (!found && !job->json) report_nothing(&job->report, job, &question);
  job->code = found ? EXIT_OK : EXIT_FILE;
}
