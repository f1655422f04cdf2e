/* The pipeline: read this function and you know the machine. */
#include "convert.h"

#include "j2o.h"
#include "onnx/file/external.h"

enum { IR_VERSION = 10 /* the first with metadata on nodes; older runtimes refuse newer ones */ };

static void sign(Model *model) {
  model->ir_version = IR_VERSION;
  model->producer_name = str_intern(model->context, PRODUCER);
  model->producer_version = str_intern(model->context, j2o_version());
}

static void write_calls(Program *program, const ConvertOptions *options) {
  const char *text = program_print(program);
  output_bytes(program->context, options->calls, text, strlen(text), &options->output);
}

Model *convert(Program *program, const ConvertOptions *options, UnsupportedList *problems, UnsupportedList *notices) {
  if (options->calls) write_calls(program, options);
  program_outline_functions(program);
  program_drop_unused(program);
  Model *model = lower_program(program, &options->lower, problems, notices);
  run_passes(model, &options->passes);
  functions_take_constants(model);
  model_name(model);
  sign(model);
  return model;
}

const char *j2o_version(void) { return J2O_VERSION; }
