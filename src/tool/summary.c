/* j2o inspect --summary and the filters: which nodes there are, counted or listed. */
#include <inttypes.h>
#include <string.h>

#include "tool/nodes.h"

typedef struct Summary {
  Tallies operators, functions, files;
  size_t count;
} Summary;

static Summary summarize(Job *job, const NodeList *list, const Filter *filter) {
  Context *context = &job->context;
  Summary summary = {.count = 0};
  for (size_t i = 0; i < list->nodes.count; i++) {
    const PlacedNode *placed = &list->nodes.items[i];
    if (!filter_passes(job, filter, placed)) continue;
    Str op = operator_name(context, placed->node);
    summary.count++;
    tally_count(context, &summary.operators, op, 0);
    if (!placed->place.function) continue;
    tally_count(context, &tally_count(context, &summary.functions, placed->place.function, 0)->operators, op, 0);
    if (!placed->place.file) continue;
    tally_count(context, &tally_count(context, &summary.files, placed->place.file, 0)->operators, op, 0);
  }
  tallies_sort(&summary.operators);
  tallies_sort(&summary.functions);
  tallies_sort(&summary.files);
  return summary;
}

static void add_table(Report *report, const char *heading, Tallies *tallies, bool with_operators) {
  if (!tallies->items.count) return;
  report_add(report, "\n");
  report_heading(report, heading);
  report_add(report, "\n");
  size_t width = 0;
  for (size_t i = 0; i < tallies->items.count; i++) {
    size_t length = str_length(tallies->items.items[i]->key);
    if (length > width && length <= 60) width = length;
  }
  for (size_t i = 0; i < tallies->items.count; i++) {
    Tally *tally = tallies->items.items[i];
    size_t start = report->line.length;
    builder_format(&report->line, "%8zu  ", tally->count);
    report_colored(report, with_operators ? COLOR_ORIGIN : COLOR_OPERATOR, tally->key);
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

void inspect_summary(Job *job, Model *model) {
  Report *report = &job->report;
  NodeList *list = model_nodes(&job->context, model);
  Filter filter = job_filter(job);
  if (filter.where) require_places(job, list);
  Summary summary = summarize(job, list, &filter);
  if (job->json) {
    report_add(report, "{\"file\": ");
    json_text(report, job->path, strlen(job->path));
    json_count(report, "nodes", summary.count);
    report_add(report, ", \"operators\": ");
    json_tallies(report, &summary.operators, "operator", false);
    report_add(report, ", \"functions\": ");
    json_tallies(report, &summary.functions, "function", true);
    report_add(report, ", \"files\": ");
    json_tallies(report, &summary.files, "path", true);
    report_add(report, "}\n");
    return;
  }
  add_counts(report, job->path, &summary);
  add_table(report, "operators", &summary.operators, false);
  add_table(report, "functions", &summary.functions, true);
  add_table(report, "files", &summary.files, true);
  if (!list->placed_count) {
    report_add(report, "\n");
    builder_format(&report->line, "N%s\n", no_places_help + 1);
  }
}

void inspect_selected(Job *job, Model *model) {
  Report *report = &job->report;
  NodeList *list = model_nodes(&job->context, model);
  Filter filter = job_filter(job);
  if (filter.where) require_places(job, list);
  size_t found = 0;
  if (job->json) {
    report_add(report, "{\"file\": ");
    json_text(report, job->path, strlen(job->path));
    report_add(report, ", \"nodes\": [");
  }
  for (size_t i = 0; i < list->nodes.count; i++) {
    const PlacedNode *placed = &list->nodes.items[i];
    if (!filter_passes(job, &filter, placed)) continue;
    if (job->json) {
      report_add(report, found ? ",\n" : "\n");
      inspect_json_node(report, placed->node);
    } else {
      inspect_node(report, placed->node);
    }
    found++;
    report_flush(report);
  }
  if (job->json) report_add(report, "]}\n");
  else if (!found) report_add(report, "no node is like that\n");
  job->code = found ? EXIT_OK : EXIT_FILE;
}
