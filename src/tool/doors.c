/* j2o convert, text, passes: texts, records and models in, texts and models out. */
#include <stdlib.h>
#include <string.h>

#include "base/beneath.h"
#include "onnx/facts/schema.h"
#include "onnx/file/model_text.h"
#include "onnx/file/print.h"
#include "onnx/file/write.h"
#include "onnx/graph/definitions.h"
#include "onnx/graph/verify.h"
#include "record.h"
#include "tool/tool.h"

/* ---- reading ---- */

static const char *folder_of(Job *job, const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? arena_format(&job->context.arena, "%.*s", (int)(slash - path) + 1, path) : ".";
}

/* The one data file that belongs to a text, beside it or below. */
static void map_data(Job *job, Str location) {
  job->door.data_location = location;
  OpenFile file = open_beneath(folder_of(job, job->path), location);
  if (file.descriptor < 0) return;
  file_map_descriptor(file.descriptor, &job->files[1]);
  close_file(&file);
}

static const void *text_data(void *owner, Str location, uint64_t offset, uint64_t length) {
  Job *job = owner;
  const MappedFile *file = &job->files[1];
  if (!job->door.data_location) map_data(job, location);
  if (location != job->door.data_location) return NULL;
  return offset <= file->size && length <= file->size - offset ? file->data + offset : NULL;
}

/* What passes hand on when a model was read from a file: which of its nodes became what. */
static void give_origins(Graph *graph, void *data) {
  Provenance *provenance = graph->model->provenance;
  int *number = data;
  FOR_EACH_NODE(node, graph) {
    Frame *frame =
        frame_intern(provenance, node->op_type, node->name ? node->name : node->op_type, ++*number, FRAME_USER);
    const Site *site = site_intern(provenance, trace_intern(provenance, frame, NULL), NULL);
    node->origin =
        origin_new(provenance, site, (Emitter){.name = node->op_type, .file = "model", .line = *number}, NULL);
  }
}

static Model *read_model(Job *job, const MappedFile *file) {
  Context *context = &job->context;
  Provenance *provenance = provenance_new(context);
  if (looks_like_model_text(file->data, file->size)) {
    TextSource source = {.text = (const char *)file->data,
                         .length = file->size,
                         .opset = DEFAULT_OPSET,
                         .provenance = provenance,
                         .file = str_intern(context, job->path),
                         .data = text_data,
                         .owner = job};
    return model_read_text(context, &source);
  }
  Model *model = model_read(context, file->data, file->size);
  model_link_calls(model);
  model->provenance = provenance;
  model_each_graph(model, give_origins, &(int){0});
  return model;
}

/* ---- writing ---- */

static void write_model(Job *job, Model *model) {
  model_require_data(model);
  functions_take_constants(model);
  model_name_rest(model);
  model_write_file(model, &(WriteOptions){.metadata = METADATA_OFF}, job->output);
}

/* A few letters can ask for a transform of a billion elements, or for a thousand windows. */
static void limit_memory(Job *job) {
  enum { PER_BYTE = 1024, USUAL = 1 << 30 };
  Arena *arena = &job->context.arena;
  arena->limit = job->limit ? job->limit : (job->files[0].size + job->files[1].size) * PER_BYTE + USUAL;
  arena->beyond = "it needs more memory than the limit; allow more with, for example, --limit=8G";
}

/* ---- j2o convert ---- */

/* The file of tensors beside a record; there is none when it needs none. */
static ProgramData record_data(Job *job) {
  const char *path = arena_format(&job->context.arena, "%s.data", job->path);
  OpenFile file = open_named(path);
  if (file.descriptor >= 0) file_map_descriptor(file.descriptor, &job->files[1]);
  close_file(&file);
  return (ProgramData){.bytes = job->files[1].data, .size = job->files[1].size};
}

static int named_choice(Job *job, const char *option, const char *given, const char *const *choices, int count) {
  for (int i = 0; i < count; i++) {
    if (strcmp(given, choices[i]) == 0) return i;
  }
  fail(&job->context, ERROR_VALUE, "%s cannot be %s", option, given);
}

/* "x,y" in place of the names that the record has, as many as it has. */
static void rename_all(Job *job, const char *option, const char *given, Str *names, uint32_t count) {
  uint32_t found = 0;
  for (const char *at = given, *stop; *at; at = *stop ? stop + 1 : stop) {
    stop = at + strcspn(at, ",");
    if (found < count) names[found] = str_intern_sized(&job->context, at, (size_t)(stop - at));
    found++;
  }
  if (found == count) return;
  fail(&job->context, ERROR_VALUE, "%s: expected %u name%s but got %u", option, count, count == 1 ? "" : "s", found);
}

static const bool *chosen_flags(Job *job, const char *option, const char *given, uint32_t count) {
  bool *flags = arena_new_array(&job->context.arena, count, bool);
  for (const char *at = given; *at; at += strspn(at, ",")) {
    char *stop;
    unsigned long index = strtoul(at, &stop, 10);
    if (stop == at || (*stop && *stop != ',') || index >= count) {
      fail(&job->context, ERROR_VALUE, "%s: '%s' must be numbers below %u", option, given, count);
    }
    flags[index] = true;
    at = stop;
  }
  return flags;
}

static bool is_number(const char *text) { return strlen(text) < 16 && strspn(text, "0123456789") == strlen(text); }

const char *door_mistake(const DoorOptions *options) {
  if (options->opset && strcmp(options->opset, "auto") != 0 && !is_number(options->opset)) {
    return "--opset must be a number or auto";
  }
  if (options->external_threshold && !is_number(options->external_threshold)) {
    return "--external-threshold must be a number of bytes";
  }
  return NULL;
}

/* What the command line says goes before what the record says. */
static void override(Job *job, Record *record) {
  static const char *const levels[] = {"off", "minimal", "full", "compact"};
  static const char *const modes[] = {"force_decomposed", "auto", "prefer_native"};
  Program *program = record->program;
  LowerOptions *lower = &record->options.lower;
  const Jaxpr *main = program->main;
  if (job->target) lower->target = job_target(job);
  if (job->door.opset) lower->opset = strcmp(job->door.opset, "auto") ? atoll(job->door.opset) : OPSET_AUTO;
  if (job->door.stacktrace)
    record->write.metadata = (MetadataLevel)named_choice(job, "--stacktrace", job->door.stacktrace, levels, 4);
  if (job->door.normalization) {
    record->options.passes.normalization =
        (NormalizationMode)named_choice(job, "--normalization", job->door.normalization, modes, 3);
  }
  if (job->name) program->name = str_intern(&job->context, job->name);
  if (job->door.input_names)
    rename_all(job, "--input-names", job->door.input_names, program->input_names, main->input_count);
  if (job->door.output_names)
    rename_all(job, "--output-names", job->door.output_names, program->output_names, main->output_count);
  if (job->door.nchw_inputs)
    lower->input_nchw = chosen_flags(job, "--nchw-inputs", job->door.nchw_inputs, main->input_count);
  if (job->door.nchw_outputs)
    lower->output_nchw = chosen_flags(job, "--nchw-outputs", job->door.nchw_outputs, main->output_count);
  if (job->door.external_threshold) record->write.external_threshold = (size_t)atoll(job->door.external_threshold);
  if (job->door.web) record->write.single_file = true;
  if (job->door.disabled_count) {
    record->options.passes.disabled = job->door.disabled;
    record->options.passes.disabled_count = job->door.disabled_count;
  }
  record->options.passes.dump_folder = job->door.dump_passes;
  record->write.output.skip_sync = job->no_sync;
}

static void report_notices(Report *report, const UnsupportedList *notices, const ProgramData *data) {
  for (size_t i = 0; i < notices->count; i++) {
    builder_format(&report->line, "%s\n", notices->items[i].reason);
  }
  if (!data->placeholders) return;
  builder_format(&report->line,
                 "the record has only the type of %zu tensor%s, whose values in the model are placeholders\n",
                 data->placeholders, data->placeholders == 1 ? "" : "s");
}

static void convert_record(Job *job, const MappedFile *file) {
  ProgramData data = record_data(job);
  limit_memory(job);
  Record record = record_read(&job->context, (const char *)file->data, file->size, &data);
  UnsupportedList problems = {0}, notices = {0};
  override(job, &record);
  record_complete_names(&record);
  record.options.metadata = record.write.metadata;
  Model *model = convert(record.program, &record.options, &problems, &notices);
  model_write_file(model, &record.write, job->output);
  report_notices(&job->report, &notices, &data);
}

void run_convert(Job *job) {
  const MappedFile *file = job_file(job, 0);
  if (looks_like_record(file->data, file->size)) convert_record(job, file);
  else if (looks_like_model_text(file->data, file->size)) write_model(job, read_model(job, file));
  else fail(&job->context, ERROR_FORMAT, "line 1, column 1: expected a record, a program, or a graph in text form");
}

/* ---- j2o text ---- */

void run_text(Job *job) {
  const MappedFile *file = job_file(job, 0);
  const Model *model = model_read(&job->context, file->data, file->size);
  DataPlan plan;
  PrintOptions options = {0};
  if (job->door.data) {
    const char *slash = strrchr(job->door.data, '/');
    data_plan_init(&plan, &job->context, str_intern(&job->context, slash ? slash + 1 : job->door.data));
    options.data = &plan;
  }
  model_print_with(&job->report.line, model, &options);
  if (!job->door.data) return;
  size_t count;
  const Segment *segments = data_segments(&plan, &count);
  segments_write_file(&job->context, segments, count, job->door.data, &(OutputOptions){.skip_sync = job->no_sync});
}

/* ---- j2o passes ---- */

static void report_costs(Report *report, const PassCost *costs) {
  report_add(report, "#      runs  changes  milliseconds\n");
  for (size_t i = 0; i < pass_count(); i++) {
    if (!costs[i].runs) continue;
    builder_format(&report->line, "# %9zu %8zu %13.3f  %s\n", costs[i].runs, costs[i].changes, costs[i].seconds * 1e3,
                   all_passes[i].name);
  }
}

void run_passes_command(Job *job) {
  const MappedFile *file = job_file(job, 0);
  limit_memory(job);
  Model *model = read_model(job, file);
  require_sound(model);
  bool is_bare = model_text_is_bare(file->data, file->size);
  PassOptions options = {
      .only = job->door.passes, .only_count = job->door.pass_count, .normalization = NORMALIZATION_AUTO, .check = true};
  if (job->door.time_passes) options.costs = arena_new_array(&job->context.arena, pass_count(), PassCost);
  run_passes(model, &options);
  if (options.costs) report_costs(&job->report, options.costs);
  if (job->output) write_model(job, model);
  else model_print_with(&job->report.line, model, &(PrintOptions){.bare = is_bare, .as_read = true});
}
