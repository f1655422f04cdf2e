/* j2o text, passes: texts and models in, texts and models out. */
#include <string.h>

#include "base/beneath.h"
#include "onnx/file/model_text.h"
#include "onnx/file/print.h"
#include "onnx/file/write.h"
#include "onnx/graph/definitions.h"
#include "passes/passes.h"
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

static void require_tensor(const Model *model, const Tensor *tensor, Str name) {
  if (!tensor || tensor->data || tensor->moved || tensor->size == 0) return;
  fail(model->context, ERROR_VALUE, "the data of '%s' are not there: only its type is known", name ? name : "a tensor");
}

static void require_tensors(Graph *graph, void *data) {
  const Model *model = data;
  for (size_t i = 0; i < graph->initializers.count; i++) {
    require_tensor(model, graph->initializers.items[i]->tensor, graph->initializers.items[i]->name);
  }
  FOR_EACH_NODE(node, graph) {
    for (size_t i = 0; i < node->attributes.count; i++) {
      const Attribute *attribute = &node->attributes.items[i];
      if (attribute->kind == ATTRIBUTE_TENSOR) require_tensor(model, attribute->tensor, attribute->name);
    }
  }
}

static void write_model(Job *job, Model *model) {
  model_each_graph(model, require_tensors, model);
  functions_take_constants(model);
  model_name_rest(model);
  model_write_file(model, &(WriteOptions){.metadata = METADATA_OFF}, job->output);
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
  Model *model = read_model(job, file);
  bool is_bare = model_text_is_bare(file->data, file->size);
  PassOptions options = {
      .only = job->door.passes, .only_count = job->door.pass_count, .normalization = NORMALIZATION_AUTO, .check = true};
  if (job->door.time_passes) options.costs = arena_new_array(&job->context.arena, pass_count(), PassCost);
  run_passes(model, &options);
  if (options.costs) report_costs(&job->report, options.costs);
  if (job->output) write_model(job, model);
  else model_print_with(&job->report.line, model, &(PrintOptions){.bare = is_bare, .as_read = true});
}
