/* j2o split, join, and --sidecar of the commands that read a model. */
#include <inttypes.h>
#include <string.h>

#include "base/bytes.h"
#include "onnx/file/sidecar.h"
#include "onnx/file/write.h"
#include "tool/index.h"

/* ---- finding it ---- */

/* model.onnx has its sidecar in model.j2o. */
static const char *path_beside(Job *job, const char *model) {
  static const char ending[] = ".onnx";
  size_t length = strlen(model), tail = sizeof ending - 1;
  bool ends = length > tail && strcmp(model + length - tail, ending) == 0;
  return arena_format(&job->context.arena, "%.*s.j2o", (int)(ends ? length - tail : length), model);
}

static bool expects_sidecar(const Model *model) {
  for (size_t i = 0; i < model->metadata.count; i++) {
    if (str_is(model->metadata.items[i].key, METADATA_IDENTITY)) return true;
  }
  return false;
}

/* Fails when it belongs to another model. */
static const Sidecar *own_sidecar(Job *job, const char *path, const MappedFile *model) {
  const char *model_path = job->path;
  job->path = path;
  file_map(&job->context, path, &job->sidecar_file);
  const Sidecar *sidecar = sidecar_read(&job->context, job->sidecar_file.data, job->sidecar_file.size);
  job->path = model_path;
  char identity[SHA256_TEXT];
  model_identity(&job->context, model->data, model->size, identity);
  if (strcmp(identity, sidecar->identity) == 0) return sidecar;
  fail(&job->context, ERROR_VALUE,
       "%s does not belong to %s, or the model has changed since j2o split wrote both. If a tool changed it, restore "
       "the original model with j2o join and copy its provenance with j2o graft.",
       path, model_path);
}

static void take_sidecar(Job *job, const char *path, Model *model, const MappedFile *file) {
  const Sidecar *sidecar = own_sidecar(job, path, file);
  model_take_sidecar(model, file->data, file->size, sidecar);
  for (size_t i = 0; i < sidecar->sources.count; i++) {
    const CarriedSource *source = &sidecar->sources.items[i];
    sources_carry(&job->context, &job->sources, str_intern_sized(&job->context, source->name, source->name_size),
                  source->text, source->size);
  }
}

Model *job_read(Job *job, const MappedFile *file) {
  const char *path = job->sidecar ? job->sidecar : path_beside(job, job->path);
  if (!job->sidecar && !path_exists(path)) return model_read(&job->context, file->data, file->size);
  Model *model = model_read_marked(&job->context, file->data, file->size);
  if (job->sidecar || expects_sidecar(model)) take_sidecar(job, path, model, file);
  return model;
}

/* ---- split ---- */

static void carry_source(Job *job, Sidecar *sidecar, Str name) {
  const Source *source = source_open(job, name);
  Builder text;
  builder_init(&text, &job->context);
  for (size_t i = 0; source && i < source->lines.count; i++) {
    builder_add_sized(&text, source->lines.items[i].text, source->lines.items[i].length);
    builder_add(&text, "\n");
  }
  CarriedSource carried = {name, builder_text(&text), str_length(name), text.length};
  if (source) array_push(&job->context, &sidecar->sources, carried);
}

/* The text of every file of the user's that the model names and the reader allowed. */
static void carry_sources(Job *job, Model *model, Sidecar *sidecar) {
  Map known = {0};
  const OriginIndex *index = model_index(&job->context, model);
  for (size_t i = 0; i < index->lines.count; i++) {
    const IndexLine *line = &index->lines.items[i];
    if (!line->file || line->is_library) continue;
    void **slot = map_slot_pointer(&job->context, &known, line->file);
    if (*slot) continue;
    *slot = (void *)(uintptr_t)line->file;
    carry_source(job, sidecar, line->file);
  }
}

/* What was taken apart must be what is put together again, byte by byte. */
static void require_round_trip(Job *job, const MappedFile *file, const Rewritten *small, const Sidecar *sidecar) {
  Context *context = &job->context;
  char *bytes = arena_alloc(&context->arena, (size_t)small->size), *to = bytes;
  for (size_t i = 0; i < small->count; to += small->segments[i++].size) {
    copy_bytes(to, small->segments[i].data, small->segments[i].size);
  }
  Rewritten joined = model_join(context, bytes, (size_t)small->size, sidecar);
  const unsigned char *at = file->data;
  bool same = joined.size == file->size;
  for (size_t i = 0; same && i < joined.count; at += joined.segments[i++].size) {
    same = same_bytes(at, joined.segments[i].data, joined.segments[i].size);
  }
  if (same) return;
  fail(context, ERROR_VALUE, "%s has an unusual encoding: joining it again would not give the same bytes", job->path);
}

static void say_split(Job *job, const Rewritten *small, size_t sidecar_size, const Sidecar *sidecar) {
  Report *report = &job->report;
  if (job->json) {
    json_files(job);
    json_key(report, "sidecar");
    json_text(report, job->sidecar, strlen(job->sidecar));
    json_key(report, "identity");
    json_text(report, sidecar->identity, strlen(sidecar->identity));
    json_count(report, "bytes_before", job->files[0].size);
    json_count(report, "bytes_after", small->size);
    json_count(report, "bytes_sidecar", sidecar_size);
    json_count(report, "sources", sidecar->sources.count);
    report_add(report, "}\n");
    return;
  }
  report_text(report, job->output, strlen(job->output));
  report_add(report, ": ");
  report_size(report, job->files[0].size);
  report_add(report, " -> ");
  report_size(report, small->size);
  report_add(report, "; ");
  report_text(report, job->sidecar, strlen(job->sidecar));
  report_add(report, ": ");
  report_size(report, sidecar_size);
  if (sidecar->sources.count) {
    builder_format(&report->line, " with %zu source file%s", sidecar->sources.count,
                   sidecar->sources.count == 1 ? "" : "s");
  }
  report_add(report, "\n");
}

void run_split(Job *job) {
  const MappedFile *file = job_file(job, 0);
  Model *model = model_read(&job->context, file->data, file->size);
  if (expects_sidecar(model)) fail(&job->context, ERROR_VALUE, "%s: the model has already been split", job->path);
  Sidecar sidecar = {.identity = ""};
  if (!job->sidecar) job->sidecar = path_beside(job, job->output);
  if (same_text(job->sidecar, job->output)) {
    fail(&job->context, ERROR_VALUE, "%s cannot be both the model and its sidecar", job->output);
  }
  model_unfold(model, job->limit);
  if (job->with_sources) carry_sources(job, model, &sidecar);
  Rewritten small = model_split(&job->context, file->data, file->size, &sidecar);
  if (!small.changes) fail(&job->context, ERROR_VALUE, "%s: %s", job->path, no_places_help);
  require_round_trip(job, file, &small, &sidecar);
  Builder bytes;
  builder_init(&bytes, &job->context);
  sidecar_write(&bytes, &sidecar);
  Segment segment = {.data = bytes.text, .size = bytes.length};
  segments_write_file(&job->context, &segment, 1, job->sidecar, &(OutputOptions){.skip_sync = job->no_sync});
  if (job_write(job, job->output, small.segments, small.count)) say_split(job, &small, bytes.length, &sidecar);
}

/* ---- join ---- */

void run_join(Job *job) {
  const MappedFile *file = job_file(job, 0);
  model_read(&job->context, file->data, file->size);
  const char *path = job->sidecar ? job->sidecar : path_beside(job, job->path);
  const Sidecar *sidecar = own_sidecar(job, path, file);
  Rewritten result = model_join(&job->context, file->data, file->size, sidecar);
  if (!job_write(job, job->output, result.segments, result.count)) return;
  Report *report = &job->report;
  if (job->json) {
    json_files(job);
    json_count(report, "bytes_before", file->size);
    json_count(report, "bytes_after", result.size);
    report_add(report, "}\n");
    return;
  }
  report_text(report, job->output, strlen(job->output));
  report_add(report, ": ");
  report_size(report, file->size);
  report_add(report, " -> ");
  report_size(report, result.size);
  report_add(report, "\n");
}
