/* j2o report: writes the page. What it looks like is in page.html, page.css, page_list.js and page.js, which the build
 * puts into page_parts.inc as texts of C. */
#include "tool/page/page.h"

#include <inttypes.h>
#include <string.h>

#include "base/bytes.h"
#include "onnx/file/metadata_edit.h"
#include "page_parts.inc"

/* No text of the data can end the script element that holds it: a "<" can only stand inside a JSON string. */
static const char *without_tags(Context *context, const Builder *json, size_t *length) {
  Builder safe;
  builder_init(&safe, context);
  safe.limit = json->limit;
  const char *at = json->text, *end = json->text + json->length;
  for (const char *tag; (tag = find_letter(at, '<', (size_t)(end - at)));) {
    builder_add_sized(&safe, at, (size_t)(tag - at));
    builder_add(&safe, "\\u003c");
    at = tag + 1;
  }
  builder_add_sized(&safe, at, (size_t)(end - at));
  *length = safe.length;
  return builder_text(&safe);
}

static void say_done(Job *job, const PageData *data, uint64_t size) {
  Report *report = &job->report;
  if (job->json) {
    json_files(job);
    json_count(report, "nodes", data->node_count);
    json_count(report, "nodes_with_origin", data->placed_count);
    json_count(report, "nodes_with_time", data->timed_count);
    json_count(report, "source_files", data->file_count);
    json_count(report, "bytes", size);
    json_sources(job);
    report_add(report, "}\n");
    return;
  }
  report_text(report, job->output, strlen(job->output));
  builder_format(&report->line, ": %zu %s, %zu source %s, ", data->node_count, data->node_count == 1 ? "node" : "nodes",
                 data->file_count, data->file_count == 1 ? "file" : "files");
  report_size(report, size);
  report_add(report, "\n");
  for (size_t i = 0; i < job->sources.read.count; i++) {
    report_add(report, "  includes ");
    report_path(report, job->sources.read.items[i]);
    report_add(report, "\n");
  }
  report_left_out(job);
  if (!data->placed_count) builder_format(&report->line, "N%s\n", no_places_help + 1);
}

/* ---- what the page is about ---- */

static void add_model(Job *job, PageModels *models, OriginIndex *index, const char *path) {
  for (size_t i = 0; i < index->counts[INDEX_NODE]; i++) {
    Node *node = (Node *)(uintptr_t)index->items.items[i].node;
    node->scratch = (void *)(uintptr_t)models->node_count++;
  }
  if (!models->count) models->first_count = models->node_count;
  models->indexes[models->count] = index;
  models->paths[models->count++] = path;
  index_sources(job, index);
}

/* The changes are those from the other model to this one; they are found by numbers that each model has for itself. */
static PageModels compared_models(Job *job, Model *model) {
  PageModels models = {0};
  job->original = NULL; /* is of the first model */
  Model *other = job_model(job, 1);
  Diff *diff = arena_new(&job->context.arena, Diff);
  Changes *changes = arena_new(&job->context.arena, Changes);
  *diff = diff_align(job, other, model);
  *changes = diff_changes(diff, &(Question){0});
  add_model(job, &models, diff->b.index, job->operands[0]);
  add_model(job, &models, diff->a.index, job->operands[1]);
  models.diff = diff;
  models.changes = changes;
  return models;
}

static PageModels page_models(Job *job) {
  PageModels models = {0};
  Model *model = job_model(job, 0);
  if (job->against) return compared_models(job, model);
  add_model(job, &models, model_index(&job->context, model), job->operands[0]);
  return models;
}

static void write_page(Job *job, const PageModels *models, const Profile *profile) {
  PageData data = page_data(job, models, profile);
  size_t length = data.json.length;
  if (!builder_is_whole(&data.json)) fail_too_large(job, "the page", length);
  const char *safe = without_tags(&job->context, &data.json, &length);
  if (length > job_limit(job)) fail_too_large(job, "the page", length);
  const Segment segments[] = {
      {page_before, sizeof page_before - 1}, {safe, length}, {page_after, sizeof page_after - 1}};
  enum { COUNT = sizeof segments / sizeof *segments };
  uint64_t size = 0;
  for (size_t i = 0; i < COUNT; i++) size += segments[i].size;
  if (job_write(job, job->output, segments, COUNT)) say_done(job, &data, size);
}

void run_report(Job *job) {
  PageModels models = page_models(job);
  job->path = job->operands[0];
  const Profile *profile = job->profile ? profile_read(job, job->profile) : NULL;
  if (job->model_explorer) model_explorer_write(job, &models, profile);
  if (job->output) write_page(job, &models, profile);
}
