/* Functions: programs with marks in, models with functions out; every shape that marks can have. */
#include "convert.h"
#include "onnx/file/print.h"
#include "test.h"
#include "unwinding.h"

typedef struct Work {
  Context context;
  const char *text;
  const char *printed; /* the outlined program, or the model */
  bool convert;
} Work;

static void work_on(void *argument) {
  Work *work = argument;
  Context *context = &work->context;
  Program *program = program_parse(context, provenance_new(context), work->text, strlen(work->text));
  if (!work->convert) {
    program_outline_functions(program);
    work->printed = program_print(program);
    return;
  }
  ConvertOptions options = {.lower.opset = 21, .passes.check = true};
  UnsupportedList problems = {0}, notices = {0};
  Builder out;
  builder_init(&out, context);
  model_print(&out, convert(program, &options, &problems, &notices));
  work->printed = builder_text(&out);
}

static bool run(Work *work, const char *text, bool convert) {
  *work = (Work){.text = text, .convert = convert};
  context_init(&work->context);
  bool done = context_protect(&work->context, work_on, work);
  if (!done) work->printed = work->context.message;
  return done;
}

#define HEAD "program \"m\"\ninputs \"x\"\noutputs \"y\"\nroot @ \"m.py\":1 \"f\"\n\n"
#define BEGIN(token, name, unique) \
  "  " token ":i32[] = onnx_function_begin(%0) {name=\"" name "\", namespace=\"d\", unique=" unique "}\n"

static const char nested[] = HEAD "jaxpr j0 (%0:f32[2]) {\n" BEGIN("%1", "outer", "False") "  %2:f32[2] = sin(%0)\n" BEGIN(
    "%3", "inner", "False") "  %4:f32[2] = mul(%2, %0)\n"
                            "  %5:f32[2] = onnx_function_end(%3, %4)\n"
                            "  %6:f32[2] = onnx_function_end(%1, %5)\n"
                            "  %7:f32[2] = add(%6, %2)\n"
                            "  return %7\n"
                            "}\n";

/* What is read behind a function and is not its result leaves it as one more output. */
static void what_stands_between_marks_is_one_equation(void) {
  Work work;
  CHECK(run(&work, nested, false));
  CHECK_TEXT(work.printed, HEAD
             "jaxpr j0 (%0:f32[2], %1:f32[2]) {\n"
             "  %2:f32[2] = mul(%1, %0)\n"
             "  return %2\n"
             "}\n"
             "\n"
             "jaxpr j1 (%0:f32[2]) {\n"
             "  %1:f32[2] = sin(%0)\n"
             "  %2:f32[2] = onnx_function(%0, %1) {name=\"inner\", namespace=\"d\", unique=False, "
             "jaxpr=jaxpr j0}\n"
             "  return %2, %1\n"
             "}\n"
             "\n"
             "jaxpr j2 (%0:f32[2]) {\n"
             "  %1:f32[2], %2:f32[2] = onnx_function(%0) {name=\"outer\", namespace=\"d\", "
             "unique=False, jaxpr=jaxpr j1}\n"
             "  %3:f32[2] = add(%1, %2)\n"
             "  return %3\n"
             "}\n");
  context_release(&work.context);
}

/* An exception left the first, a transformation pulled the second apart, nobody reads the third. */
static void marks_that_fit_nothing_do_no_harm(void) {
  static const char *const bodies[] = {
      BEGIN("%1", "a", "False") "  %2:f32[2] = sin(%0)\n  return %2\n",
      BEGIN("%1", "a", "False") BEGIN("%2", "b", "False") "  %3:f32[2] = sin(%0)\n"
                                                          "  %4:f32[2] = onnx_function_end(%1, %3)\n"
                                                          "  %5:f32[2] = onnx_function_end(%2, %4)\n  return %5\n",
      BEGIN("%1", "a", "False") "  %2:f32[2] = sin(%0)\n  %3:f32[2] = onnx_function_end(%1, %2)\n  return %0\n",
      BEGIN("%1", "a", "False") "  %2:f32[2] = onnx_function_end(%1, %0)\n  return %2\n",
      "  %1:f32[2] = onnx_function_end(1:i32[], %0)\n  return %1\n",
  };
  for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
    Work work;
    char text[1024];
    snprintf(text, sizeof text, "%sjaxpr j0 (%%0:f32[2]) {\n%s}\n", HEAD, bodies[i]);
    CHECK(run(&work, text, true));
    if (!strstr(work.printed, "m (float[2] x) => (float[2] y)")) check_failed(__FILE__, __LINE__, work.printed);
    context_release(&work.context);
  }
}

/* Two calls with parameters of their own: one definition, which takes them. */
static void the_same_bodies_are_shared(void) {
#define CALL(begin, product, end, from, weight)        \
  "  " begin ":i32[] = onnx_function_begin(" from      \
  ") {name=\"layer\", namespace=\"d\", unique=True}\n" \
  "  " product ":f32[2] = mul(" from ", " weight       \
  ")\n"                                                \
  "  " product "0:f32[2] = add(" product               \
  ", 2.5:f32[])\n"                                     \
  "  " end ":f32[2] = onnx_function_end(" begin ", " product "0)\n"
  Work work;
  CHECK(run(&work,
            HEAD "jaxpr j0 (%0:f32[2]) consts (%1:f32[2] = {1.5, 2.0}:f32[2] \"l.0.w\", "
                 "%2:f32[2] = {1.0, 3.0}:f32[2] \"l.1.w\") {\n" CALL("%3", "%4", "%5", "%0", "%1")
                     CALL("%6", "%7", "%8", "%5", "%2") "  return %8\n}\n",
            true));
  CHECK(strstr(work.printed, "layer_0 = d.layer (x, \"l.0.w\")"));
  CHECK(strstr(work.printed, "y = d.layer (layer_0, \"l.1.w\")"));
  CHECK(strstr(work.printed, "layer (in, w) => (add_0)"));
  CHECK(strstr(work.printed, "constant_0 = Constant <value") && strstr(work.printed, "{2.5}"));
  CHECK(!strstr(work.printed, "layer_2"));
  context_release(&work.context);
}

static bool attempt(int64_t fail_at, void *given) {
  (void)given;
  Work work = {.text = nested, .convert = true};
  return attempt_in(&work.context, fail_at, work_on, &work);
}

static void every_failing_allocation_unwinds(void) { check_unwinds(attempt, NULL); }

const Test function_tests[] = {
    {"what_stands_between_marks_is_one_equation", what_stands_between_marks_is_one_equation},
    {"marks_that_fit_nothing_do_no_harm", marks_that_fit_nothing_do_no_harm},
    {"the_same_bodies_are_shared", the_same_bodies_are_shared},
    {"functions: every_failing_allocation_unwinds", every_failing_allocation_unwinds},
    {0},
};
