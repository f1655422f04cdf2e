/* j2o strip, compact, expand: copies of a model with other metadata. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>

#include "onnx/file/metadata_edit.h"
#include "onnx/file/write.h"
#include "tool/tool.h"

/* A model as a whole is read first, so that a damaged file is told and never copied. */
static const MappedFile *checked_file(Job *job) {
  const MappedFile *file = job_file(job, 0);
  model_read(&job->context, file->data, file->size);
  return file;
}

static void write_to_stream(Job *job, const Segment *segments, size_t count) {
  bool written = true;
  for (size_t i = 0; i < count && written; i++) {
    written = fwrite(segments[i].data, 1, segments[i].size, job->report.stream) == segments[i].size;
  }
  if (written) return;
  job->report.pipe_closed = errno == EPIPE;
  fail(&job->context, ERROR_IO, "cannot write 'standard output': %s", strerror(errno));
}

bool job_write(Job *job, const char *path, const Segment *segments, size_t count) {
  for (size_t i = 0; i < count; i++) job->report.written += segments[i].size;
  job_check_files(job);
  if (same_text(path, "-")) {
    write_to_stream(job, segments, count);
    return false;
  }
  segments_write_file(&job->context, segments, count, path, &(OutputOptions){.skip_sync = job->no_sync});
  return true;
}

void json_files(Job *job) {
  Report *report = &job->report;
  report_add(report, "{\"input\": ");
  json_text(report, job->path, strlen(job->path));
  json_key(report, "output");
  json_text(report, job->output, strlen(job->output));
}

/* words: what was done to `changes` things, in the singular and in the plural. */
static void finish_edit(Job *job, const Rewritten *result, const char *const words[2], const char *nothing) {
  Report *report = &job->report;
  if (result->size > INT_MAX && result->size > job->files[0].size) {
    fail(&job->context, ERROR_VALUE, "%s: the result would be larger than the 2 GiB that ONNX allows", job->path);
  }
  if (!job_write(job, job->output, result->segments, result->count)) return;
  if (job->json) {
    json_files(job);
    json_count(report, "bytes_before", job->files[0].size);
    json_count(report, "bytes_after", result->size);
    json_count(report, "changes", result->changes);
    report_add(report, "}\n");
    return;
  }
  report_text(report, job->output, strlen(job->output));
  report_add(report, ": ");
  if (result->changes) {
    builder_format(&report->line, "%" PRIu64 " ", result->changes);
    report_add(report, words[result->changes != 1]);
  } else {
    report_add(report, nothing);
  }
  report_add(report, ", ");
  report_size(report, job->files[0].size);
  report_add(report, " -> ");
  report_size(report, result->size);
  report_add(report, "\n");
}

void run_strip(Job *job) {
  const MappedFile *file = checked_file(job);
  Rewritten result = model_strip(&job->context, file->data, file->size, job->all ? STRIP_ALL : STRIP_OURS);
  static const char *const words[] = {"entry removed", "entries removed"};
  finish_edit(job, &result, words, "nothing to remove");
}

void run_compact(Job *job) {
  const MappedFile *file = checked_file(job);
  Rewritten result = model_compact(&job->context, file->data, file->size);
  static const char *const words[] = {"origin compacted", "origins compacted"};
  finish_edit(job, &result, words, "copied unchanged: no node has full provenance, or some are compact already");
}

void run_expand(Job *job) {
  const MappedFile *file = checked_file(job);
  Rewritten result = model_expand(&job->context, file->data, file->size, job->limit);
  if (result.size > file->size && result.size - file->size > job_limit(job)) {
    fail_too_large(job, "what is added", result.size - file->size);
  }
  static const char *const words[] = {"origin expanded", "origins expanded"};
  finish_edit(job, &result, words, "copied unchanged: the model is not compact");
}
