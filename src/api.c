/* The public functions (include/j2o.h): each is one protected call on a model's own context. */
#include <stdio.h>
#include <stdlib.h>

#include "base/beneath.h"
#include "j2o.h"
#include "onnx/file/metadata_edit.h"
#include "onnx/file/metadata_keys.h"
#include "onnx/file/model_text.h"
#include "onnx/file/print.h"
#include "onnx/file/read.h"
#include "onnx/graph/definitions.h"
#include "onnx/graph/verify.h"
#include "record.h"

struct J2oModel {
  Context context;
  MappedFile file, data;
  Model *model;
  WriteOptions write;
};

/* A call in progress: what it was given, and what it gives. */
typedef struct Call {
  J2oModel *handle;
  const char *path, *text, *name;
  size_t length;
  const char *result;
} Call;

static J2oStatus status_of(ErrorKind kind) {
  switch (kind) {
    case ERROR_NONE: return J2O_OK;
    case ERROR_MEMORY: return J2O_MEMORY;
    case ERROR_VALUE: return J2O_VALUE;
    case ERROR_UNSUPPORTED: return J2O_UNSUPPORTED;
    case ERROR_FORMAT: return J2O_FORMAT;
    case ERROR_IO: return J2O_IO;
    default: return J2O_INTERNAL;
  }
}

static void say(J2oError *error, const Call *call) {
  if (!error) return;
  const Context *context = &call->handle->context;
  bool names_file = context->error == ERROR_FORMAT && call->path;
  error->status = status_of(context->error);
  snprintf(error->message, sizeof error->message, "%s%s%s", names_file ? call->path : "", names_file ? ": " : "",
           context->message);
}

static bool run(Call *call, void (*body)(void *), J2oError *error) {
  if (error) *error = (J2oError){.status = J2O_OK};
  bool completed = context_protect(&call->handle->context, body, call);
  if (!completed) say(error, call);
  return completed;
}

static J2oModel *make(Call *call, void (*body)(void *), J2oError *error) {
  J2oModel *handle = calloc(1, sizeof *handle);
  if (!handle) {
    if (error) *error = (J2oError){J2O_MEMORY, "out of memory"};
    return NULL;
  }
  context_init(&handle->context);
  call->handle = handle;
  if (run(call, body, error)) return handle;
  j2o_model_free(handle);
  return NULL;
}

void j2o_model_free(J2oModel *handle) {
  if (!handle) return;
  file_unmap(&handle->file);
  file_unmap(&handle->data);
  context_release(&handle->context);
  free(handle);
}

/* ---- making ---- */

static void convert_record(Call *call, ProgramData *data) {
  J2oModel *handle = call->handle;
  Record record = record_read(&handle->context, call->text, call->length, data);
  record_complete_names(&record);
  UnsupportedList problems = {0}, notices = {0};
  record.options.metadata = record.write.metadata;
  handle->model = convert(record.program, &record.options, &problems, &notices);
  handle->write = record.write;
}

static void convert_text(void *argument) {
  Call *call = argument;
  Context *context = &call->handle->context;
  ProgramData data = {.bytes = call->handle->data.data, .size = call->handle->data.size};
  if (looks_like_record(call->text, call->length)) {
    convert_record(call, call->path ? &data : NULL);
  } else if (looks_like_model_text(call->text, call->length)) {
    TextSource source = {.text = call->text,
                         .length = call->length,
                         .opset = DEFAULT_OPSET,
                         .provenance = provenance_new(context),
                         .file = str_intern(context, call->path ? call->path : "text")};
    call->handle->model = model_read_text(context, &source);
  } else {
    fail(context, ERROR_FORMAT, "line 1, column 1: expected a record, a program, or a graph in text form");
  }
}

static void convert_file(void *argument) {
  Call *call = argument;
  J2oModel *handle = call->handle;
  file_map(&handle->context, call->path, &handle->file);
  OpenFile data = open_named(arena_format(&handle->context.arena, "%s.data", call->path));
  if (data.descriptor >= 0) file_map_descriptor(data.descriptor, &handle->data);
  close_file(&data);
  call->text = (const char *)handle->file.data;
  call->length = handle->file.size;
  convert_text(call);
}

static void read_file(void *argument) {
  Call *call = argument;
  J2oModel *handle = call->handle;
  file_map(&handle->context, call->path, &handle->file);
  handle->model = model_read(&handle->context, handle->file.data, handle->file.size);
  model_unfold(handle->model, 0);
  model_link_calls(handle->model);
}

J2oModel *j2o_convert_file(const char *path, J2oError *error) {
  return make(&(Call){.path = path}, convert_file, error);
}

J2oModel *j2o_convert_text(const char *text, size_t length, J2oError *error) {
  return make(&(Call){.text = text, .length = length}, convert_text, error);
}

J2oModel *j2o_read_file(const char *path, J2oError *error) { return make(&(Call){.path = path}, read_file, error); }

/* ---- asking ---- */

static const Node *node_at(const J2oModel *handle, size_t index) {
  const Node *node = handle->model->graph->first;
  while (node && index--) node = node->next;
  return node;
}

size_t j2o_node_count(const J2oModel *handle) { return handle->model->graph->node_count; }

const char *j2o_node_name(const J2oModel *handle, size_t index) {
  const Node *node = node_at(handle, index);
  return node && node->name && *node->name ? node->name : NULL;
}

const char *j2o_node_operator(const J2oModel *handle, size_t index) {
  const Node *node = node_at(handle, index);
  return node ? node->op_type : NULL;
}

static const char *rendered(J2oModel *handle, const Node *node, const char *key) {
  Provenance *provenance = handle->model->provenance;
  Builder text;
  builder_init(&text, &handle->context);
  if (strcmp(key, METADATA_PREFIX "callsite") == 0) render_callsite(provenance, &text, node->origin);
  else if (strcmp(key, METADATA_PREFIX "plugin") == 0) render_plugin(&text, node->origin);
  else if (strcmp(key, METADATA_PREFIX "jax_traceback") == 0) render_traceback(provenance, &text, node->origin);
  else if (strcmp(key, METADATA_PREFIX "stacktrace") == 0) render_stacktrace(provenance, &text, node->origin);
  else return NULL;
  return builder_text(&text);
}

typedef struct Question {
  J2oModel *handle;
  const Node *node;
  const char *key, *answer;
} Question;

static void ask(void *argument) {
  Question *question = argument;
  const Node *node = question->node;
  for (size_t i = 0; i < node->metadata.count; i++) {
    if (strcmp(node->metadata.items[i].key, question->key) == 0) question->answer = node->metadata.items[i].value;
  }
  if (!question->answer && node->origin) question->answer = rendered(question->handle, node, question->key);
}

const char *j2o_node_origin(J2oModel *handle, size_t index, const char *key) {
  Question question = {.handle = handle, .node = node_at(handle, index), .key = key};
  if (!question.node || !context_protect(&handle->context, ask, &question)) return NULL;
  return question.answer;
}

/* ---- passes, printing, writing ---- */

static void run_named(void *argument) {
  Call *call = argument;
  PassOptions options = {.only = &call->name, .only_count = call->name ? 1 : 0, .normalization = NORMALIZATION_AUTO};
  require_sound(call->handle->model);
  run_passes(call->handle->model, &options);
}

int j2o_run_pass(J2oModel *handle, const char *pass, J2oError *error) {
  return run(&(Call){.handle = handle, .name = pass}, run_named, error);
}

static void print(void *argument) {
  Call *call = argument;
  Builder out;
  builder_init(&out, &call->handle->context);
  model_print(&out, call->handle->model);
  call->result = builder_text(&out);
}

const char *j2o_print(J2oModel *handle, J2oError *error) {
  Call call = {.handle = handle};
  return run(&call, print, error) ? call.result : NULL;
}

static void write_model(void *argument) {
  Call *call = argument;
  Model *model = call->handle->model;
  model_require_data(model);
  functions_take_constants(model);
  model_name_rest(model);
  model_write_file(model, &call->handle->write, call->path);
}

int j2o_write(J2oModel *handle, const char *path, J2oError *error) {
  return run(&(Call){.handle = handle, .path = path}, write_model, error);
}
