/* Facts about runtimes: which target has them, and that asking changes what is made. */
#include "lower/lower.h"
#include "target/target.h"
#include "test.h"

static void rows_hold_for_their_runtime_and_versions(void) {
  const Target standard = {.runtime = RUNTIME_STANDARD}, old = {RUNTIME_ONNX_RUNTIME, RUNTIME_VERSION(1, 17)};
  for (int i = 0; i < QUIRK_COUNT; i++) {
    bool ours = quirk_rows[i].runtime == RUNTIME_ONNX_RUNTIME;
    CHECK(!target_has(&standard, (Quirk)i));
    CHECK(target_has(&old, (Quirk)i) == ours);
    CHECK(target_has(NULL, (Quirk)i) == (ours && !quirk_rows[i].last));
    CHECK(target_has(target_named("portable"), (Quirk)i) == !(ours && quirk_rows[i].last));
  }
  CHECK(target_has(target_named("tract"), QUIRK_PAD_CANNOT_CUT));
  CHECK(!target_has(target_named("openvino"), QUIRK_PAD_CANNOT_CUT));
  CHECK(target_has(target_named("openvino"), QUIRK_MAX_POOL_SKIPS_NAN)); /* as right there */
  CHECK(!target_named("ort"));
  QuirkRow row = {.runtime = RUNTIME_ONNX_RUNTIME, .last = RUNTIME_VERSION(1, 31)};
  CHECK(quirk_applies(&row, &(Target){RUNTIME_ONNX_RUNTIME, RUNTIME_VERSION(1, 31)}));
  CHECK(!quirk_applies(&row, &(Target){RUNTIME_ONNX_RUNTIME, RUNTIME_VERSION(1, 32)}));
  CHECK(!quirk_applies(&row, &(Target){RUNTIME_ONNX_RUNTIME, NEWEST_VERSION}));
}

typedef struct Job {
  Context context;
  const char *text;
  const Target *target;
  Builder operators;
} Job;

static void lower_text(void *argument) {
  Job *job = argument;
  Program *program = program_parse(&job->context, provenance_new(&job->context), job->text, strlen(job->text));
  UnsupportedList problems = {0}, notices = {0};
  Model *model = lower_program(program, &(LowerOptions){.opset = 21, .target = job->target}, &problems, &notices);
  builder_init(&job->operators, &job->context);
  FOR_EACH_NODE(node, model->graph) {
    builder_format(&job->operators, "%s%s", node->previous ? " " : "", node->op_type);
  }
}

/* The operators of one equation, "%1:f32[3] = sign(%0)", made for a target. */
static void check_lowered(const char *input, const char *equation, const Target *target, const char *expected) {
  Job job = {.target = target};
  char text[512];
  context_init(&job.context);
  snprintf(text, sizeof text,
           "program \"p\"\ninputs \"x\"\noutputs \"y\"\n\njaxpr j0 \"f\" (%%0:%s) {\n  %s\n  return %%1\n}\n", input,
           equation);
  job.text = text;
  bool done = context_protect(&job.context, lower_text, &job);
  CHECK_TEXT(done ? builder_text(&job.operators) : job.context.message, expected);
  context_release(&job.context);
}

static void what_a_target_can_do_is_not_worked_around(void) {
  static const struct {
    const char *input, *equation, *now, *plain;
  } rows[] = {
      {"f16[3]", "%1:f16[3] = sign(%0) {}", "Cast Sign Narrow", "Sign"},
      {"f32[3]", "%1:f32[] = reduce_max(%0) {axes=[0], out_sharding=None}", "ReduceMax ReduceL1 Min", "ReduceMax"},
      {"i64[3]", "%1:i64[] = reduce_max(%0) {axes=[0], out_sharding=None}", "TopK Squeeze", "ReduceMax"},
      {"i32[3]", "%1:i32[] = reduce_sum(%0) {axes=[0], out_sharding=None}", "Cast ReduceSum Cast", "ReduceSum"},
      {"i64[3]", "%1:i64[3] = max(%0, 5:i64[]) {}", "Greater Where", "Max"},
      {"u8[3]", "%1:f32[3] = pow(2.0:f32[], %0) {}", "Cast Pow", "Pow"},
  };
  const Target standard = {.runtime = RUNTIME_STANDARD};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    check_lowered(rows[i].input, rows[i].equation, NULL, rows[i].now);
    check_lowered(rows[i].input, rows[i].equation, &standard, rows[i].plain);
  }
}

const Test target_tests[] = {
    {"rows_hold_for_their_runtime_and_versions", rows_hold_for_their_runtime_and_versions},
    {"what_a_target_can_do_is_not_worked_around", what_a_target_can_do_is_not_worked_around},
    {0},
};
