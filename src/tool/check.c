/* j2o check: what is wrong with a model, by the standard. */
#include <inttypes.h>

#include "onnx/graph/verify.h"
#include "target/lacks.h"
#include "tool/tool.h"

static Str callsite_of(const Node *node) {
  for (size_t i = 0; node && i < node->metadata.count; i++) {
    if (str_is(node->metadata.items[i].key, METADATA_PREFIX "callsite")) return node->metadata.items[i].value;
  }
  return NULL;
}

static void check_json(Report *report, const char *path, const Model *model, const FaultList *faults) {
  report_add(report, "{\"model\": ");
  json_text(report, path, strlen(path));
  json_key(report, "faults");
  report_add(report, "[");
  for (size_t i = 0; i < faults->count; i++) {
    const Fault *fault = &faults->items[i];
    const char *text = fault_text(model, fault);
    report_add(report, i ? ", {\"fault\": " : "{\"fault\": ");
    json_text(report, text, strlen(text));
    json_key(report, "node");
    json_name(report, fault->node ? fault->node->name : NULL);
    json_key(report, "callsite");
    json_name(report, callsite_of(fault->node));
    report_add(report, "}");
  }
  report_add(report, "]}\n");
}

static void check_text(Report *report, const char *path, const Model *model, const FaultList *faults) {
  for (size_t i = 0; i < faults->count; i++) {
    const char *text = fault_text(model, &faults->items[i]);
    Str callsite = callsite_of(faults->items[i].node);
    report_text(report, text, strlen(text));
    if (callsite) {
      report_add(report, " (at ");
      report_colored(report, COLOR_ORIGIN, callsite);
      report_add(report, ")");
    }
    report_add(report, "\n");
  }
  report_text(report, path, strlen(path));
  if (!faults->count) {
    report_add(report, ": no errors found\n");
  } else {
    const char *more = faults->count == MOST_FAULTS ? "at least " : "";
    builder_format(&report->line, ": %s%zu error%s\n", more, faults->count, faults->count == 1 ? "" : "s");
  }
}

const Target *job_target(Job *job) {
  const Target *target = target_named(job->target);
  if (target) return target;
  Builder names;
  builder_init(&names, &job->context);
  for (size_t i = 0; target_at(i); i++) builder_format(&names, "%s%s", i ? ", " : "", target_at(i)->name);
  fail(&job->context, ERROR_VALUE, "there is no target %s; there are %s", job->target, builder_text(&names));
}

void run_check(Job *job) {
  const Target *target = job->target ? job_target(job) : NULL;
  Model *model = job_model(job, 0);
  FaultList faults = model_verify(model, VERIFY_ALL);
  if (target) {
    FaultList lacks = target_lacks(model, target, model->ir_version);
    for (size_t i = 0; i < lacks.count && faults.count < MOST_FAULTS; i++) {
      array_push(&job->context, &faults, lacks.items[i]);
    }
  }
  if (job->json) check_json(&job->report, job->path, model, &faults);
  else check_text(&job->report, job->path, model, &faults);
  job->code = faults.count ? EXIT_FILE : EXIT_OK;
}
