/* j2o fill. */
#include <inttypes.h>
#include <string.h>

#include "onnx/file/fill.h"
#include "tool/tool.h"

void run_fill(Job *job) {
  const MappedFile *file = job_file(job, 0);
  const char *output = job->output ? job->output : job->path;
  FillOptions options = {.source = job->from,
                         .renames = job->renames,
                         .rename_count = job->rename_count,
                         .by_reference = job->by_reference,
                         .allow_surplus = job->allow_surplus,
                         .skip_sync = job->no_sync,
                         .largest_data_file = job->limit};
  Filled filled = model_fill(&job->context, file->data, file->size, output, &options);
  Report *report = &job->report;
  report_text(report, output, strlen(output));
  builder_format(&report->line, ": %zu weight%s, ", filled.weights, filled.weights == 1 ? "" : "s");
  report_size(report, filled.bytes);
  report_add(report, job->by_reference ? ", by reference\n" : "\n");
}
