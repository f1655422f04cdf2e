/* j2o targets: what is known about runtimes, row by row. */
#include "target/target.h"
#include "tool/tool.h"

static const char *version_text(Report *report, int version) {
  return arena_format(&report->context->arena, "%d.%d", version / 1000, version % 1000);
}

static void targets_json(Report *report) {
  report_add(report, "{\"quirks\": [");
  for (size_t i = 0; i < QUIRK_COUNT; i++) {
    const QuirkRow *row = &quirk_rows[i];
    builder_format(&report->line,
                   "%s{\"name\": \"%s\", \"runtime\": \"%s\", \"first\": \"%s\", \"last\": ", i ? ", " : "", row->name,
                   runtime_name(row->runtime), version_text(report, row->first));
    if (row->last) builder_format(&report->line, "\"%s\"", version_text(report, row->last));
    else report_add(report, "null");
    json_key(report, "what");
    json_text(report, row->what, strlen(row->what));
    report_add(report, "}");
  }
  report_add(report, "]}\n");
}

/* A table as Markdown has them. */
static void targets_text(Report *report) {
  report_add(report, "| runtime | seen in | fact | row |\n|---|---|---|---|\n");
  for (size_t i = 0; i < QUIRK_COUNT; i++) {
    const QuirkRow *row = &quirk_rows[i];
    const char *until = row->last ? version_text(report, row->last) : "";
    builder_format(&report->line, "| %s | %s%s%s | %s | `%s` |\n", runtime_name(row->runtime),
                   version_text(report, row->first), row->last ? " to " : "", until, row->what, row->name);
  }
}

void run_targets(Job *job) {
  if (job->json) targets_json(&job->report);
  else targets_text(&job->report);
}
