/* Fuzzing: whatever the bytes are, reading, printing and inspecting ends, without touching memory it does not own.
 * With -DSTANDALONE it replays the files named as arguments. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "onnx/file/print.h"
#include "onnx/file/read.h"
#include "tool/index.h"

typedef struct Reading {
  Context context;
  const uint8_t *data;
  size_t size;
  FILE *sink;
} Reading;

static void run(void *argument) {
  Reading *job = argument;
  Model *model = model_read(&job->context, job->data, job->size);
  Builder text;
  builder_init(&text, &job->context);
  model_print(&text, model);
  Report report = {.context = &job->context, .stream = job->sink, .full = true, .color = true};
  builder_init(&report.line, &job->context);
  const OriginIndex *index = model_index(&job->context, model);
  inspect_text(&report, "model.onnx", index);
  inspect_json(&report, "model.onnx", index);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static FILE *sink;
  if (!sink) sink = fopen("/dev/null", "w");
  if (!sink) abort();
  Reading job = {.data = data, .size = size, .sink = sink};
  context_init(&job.context);
  bool completed = context_protect(&job.context, run, &job);
  if (!completed && job.context.error != ERROR_FORMAT) {
    fprintf(stderr, "unexpected error: %s\n", job.context.message);
    abort();
  }
  context_release(&job.context);
  return 0;
}

#include "replay.h"
