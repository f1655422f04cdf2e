/* j2o targets: what is known about runtimes, row by row. */
#include <inttypes.h>

#include "target/lacks.h"
#include "tool/tool.h"

static const char *version_text(Report *report, int version) {
  if (!version) return "";
  return arena_format(&report->context->arena, "%d.%d", version / 1000, version % 1000);
}

static void targets_json(Report *report) {
  report_add(report, "{\"quirks\": [");
  for (size_t i = 0; i < QUIRK_COUNT; i++) {
    const QuirkRow *row = &quirk_rows[i];
    builder_format(&report->line,
                   "%s{\"name\": \"%s\", \"runtime\": \"%s\", \"first\": \"%s\", \"last\": ", i ? ", " : "", row->name,
                   runtime_names(report->context, row->runtime), version_text(report, row->first));
    if (row->last) builder_format(&report->line, "\"%s\"", version_text(report, row->last));
    else report_add(report, "null");
    json_key(report, "what");
    json_text(report, row->what, strlen(row->what));
    report_add(report, "}");
  }
  report_add(report, "]");
}

static void lacks_json(Report *report) {
  report_add(report, ", \"lacks\": [");
  for (size_t i = 0; lack_at(i); i++) {
    const Lack *lack = lack_at(i);
    builder_format(
        &report->line,
        "%s{\"operator\": \"%s\", \"type\": \"%s\", \"runtime\": \"%s\", \"last\": \"%s\", \"what\": \"%s\"}",
        i ? ", " : "", op_name(lack->op), lack->dtype ? dtype_name(lack->dtype) : "",
        runtime_names(report->context, lack->runtimes), version_text(report, lack->last), lack->what);
  }
  report_add(report, "], \"targets\": [");
  for (size_t i = 0; target_at(i); i++) {
    builder_format(&report->line, "%s{\"name\": \"%s\", \"opset\": %" PRId64 "}", i ? ", " : "", target_at(i)->name,
                   target_at(i)->opset);
  }
  report_add(report, "]");
}

static void lacks_text(Report *report) {
  report_add(report, "\n| runtime | last seen in | operator | of | which |\n|---|---|---|---|---|\n");
  for (size_t i = 0; lack_at(i); i++) {
    const Lack *lack = lack_at(i);
    builder_format(&report->line, "| %s | %s | %s | %s | %s |\n", runtime_names(report->context, lack->runtimes),
                   version_text(report, lack->last), op_name(lack->op),
                   lack->dtype ? dtype_name(lack->dtype) : "any type", lack->what);
  }
  report_add(report, "\n| target | newest opset it reads |\n|---|---|\n");
  for (size_t i = 0; target_at(i); i++) {
    const Target *target = target_at(i);
    builder_format(&report->line, "| `%s` | ", target->name);
    if (target->opset) builder_format(&report->line, "%" PRId64 " |\n", target->opset);
    else report_add(report, "any |\n");
  }
}

/* A table as Markdown has them. */
static void targets_text(Report *report) {
  report_add(report, "| runtime | seen in | fact | row |\n|---|---|---|---|\n");
  for (size_t i = 0; i < QUIRK_COUNT; i++) {
    const QuirkRow *row = &quirk_rows[i];
    const char *until = row->last ? version_text(report, row->last) : "";
    builder_format(&report->line, "| %s | %s%s%s | %s | `%s` |\n", runtime_names(report->context, row->runtime),
                   version_text(report, row->first), row->last ? " to " : "", until, row->what, row->name);
  }
}

void run_targets(Job *job) {
  Report *report = &job->report;
  if (job->json) {
    targets_json(report);
    lacks_json(report);
    report_add(report, "}\n");
  } else {
    targets_text(report);
    lacks_text(report);
  }
}
