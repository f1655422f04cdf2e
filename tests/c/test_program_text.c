/* The text form of programs: what is printed reads back as the same, and what is damaged is refused. */
#include <stdlib.h>

#include "damage.h"
#include "program/program.h"
#include "test.h"
#include "unwinding.h"

/* Every kind of parameter, shared jaxprs, constants, literals of many types, traces. */
static const char everything[] =
    "program \"model \\\"x\\\"\"\n"
    "inputs \"x\", -\n"
    "outputs \"y\", -\n"
    "root @ \"model.py\":3 \"fn\"\n"
    "entry @ \"script.py\":20 \"main\"\n"
    "entry @ \"lib/run.py\":7 \"run\"[lib]\n"
    "\n"
    "jaxpr j0 \"body\" (%0:f32[2,B]) consts (%1:f32[2] = {1.5, -0.0}:f32[2] \"params.w\", %2:i32[]) {\n"
    "  %3:f32[2,B] = mul(%0, 2.0:f32[]) {out_dtype=None} @ \"file.py\":5 \"fn\" < \"lib.py\":10 \"g\"[jax]\n"
    "  %4:f32[2,B], _ = pair(%3) @ \"file.py\":6 \"<lambda>\" in \"blocks.0\" of \"Block\" scope \"scores\"\n"
    "  = effect()\n"
    "  return %4\n"
    "}\n"
    "\n"
    "jaxpr j1 (%0:f32[2,2*B - 1], %1:i32[]) {\n"
    "  %2:f32[2,floordiv(T, 2)] = scan(%0, {1, -2, 3}:i8[3], True:bool[], (1.0, -2.5):c64[], 0x3c00:f16[]) "
    "{a=True, b=-3, c=1.5, d=\"s\\n\\x01\\xff\", e=dtype(f32), f=[1, [], [None]], "
    "g=record GatherDimensionNumbers{offset_dims=[0], \"odd name\"=False}, h=enum GatherScatterMode.CLIP(1), "
    "i=dim(2*B + 1), j=jaxpr j0, k=tensor {}:f64[0,3], l=opaque \"a.b<c>\", m=[jaxpr j0, jaxpr j0], n=inf, "
    "o=record -{}, p=nan, q=1e+300}\n"
    "  %3:key[] = seed(hex(00ff):i4[3], 0x7fc00001:f32[], 7:u64[] as key[])\n"
    "  return %2, 2:i32[]\n"
    "}\n";

typedef struct Work {
  Context context;
  const char *text;
  size_t length;
  const char *printed;
} Work;

static void parse_and_print(void *argument) {
  Work *work = argument;
  Provenance *provenance = provenance_new(&work->context);
  work->printed = program_print(program_parse(&work->context, provenance, work->text, work->length));
}

static bool round_trip(Work *work, const char *text, size_t length) {
  context_init(&work->context);
  work->text = text;
  work->length = length;
  work->printed = NULL;
  return context_protect(&work->context, parse_and_print, work);
}

static void everything_reads_back_as_printed(void) {
  Work work;
  CHECK(round_trip(&work, everything, strlen(everything)));
  CHECK_TEXT(work.printed ? work.printed : work.context.message, everything);
  context_release(&work.context);
}

static void free_form_text_is_put_in_order(void) {
  const char *text =
      "program - # a comment\n jaxpr main (%x : f32 [ 3 ]) { %y:f32[3]=sin( %x ){accuracy = None}\nreturn %y }";
  Work work;
  CHECK(round_trip(&work, text, strlen(text)));
  CHECK_TEXT(work.printed ? work.printed : work.context.message,
             "program -\ninputs -\noutputs -\n\njaxpr j0 (%0:f32[3]) {\n  %1:f32[3] = sin(%0) {accuracy=None}\n"
             "  return %1\n}\n");
  context_release(&work.context);
}

typedef struct Damage {
  const char *text;
  const char *message;
} Damage;

static void errors_name_line_and_column(void) {
  static const Damage cases[] = {
      {"", "line 1, column 1: expected 'program' and its name"},
      {"program \"a", "line 1, column 9: unterminated string"},
      {"program -\n", "line 2, column 1: expected a jaxpr"},
      {"program -\njaxpr a () {\n  return %q }", "line 3, column 10: a variable that is not defined"},
      {"program -\njaxpr a () {\n  %1:f32[] = f(%1)\n return }", "line 3, column 16: a variable that is not defined"},
      {"program -\njaxpr a (%1:f32[], %1:f32[]) { return }", "line 2, column 20: a variable that is already defined"},
      {"program -\njaxpr a (%1:f33[]) { return }", "line 2, column 13: unknown element type"},
      {"program -\njaxpr a (%1:f32[B+]) { return }", "line 2, column 17: not a dimension"},
      {"program -\njaxpr a () { return data(0, 36):f32[9] }",
       "line 2, column 21: a tensor whose data is not in the text"},
      {"program -\njaxpr a () { return {1, 2}:i8[3] }", "line 2, column 26: expected ','"},
      {"program -\njaxpr a () { return {1, 2, 3}:i8[2] }", "line 2, column 26: expected '}'"},
      {"program -\njaxpr a () { return 300:i8[] }", "line 2, column 21: not an integer with 8 bits"},
      {"program -\njaxpr a () { return 1:f32[99999999999] }",
       "line 2, column 21: elements that do not match the tensor's type"},
      {"program -\njaxpr a () { = f() {j=jaxpr a} return }", "line 2, column 29: a jaxpr that is not defined yet"},
      {"program -\ninputs \"a\"\njaxpr a () { return }", "line 3, column 22: more input names than inputs"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Work work;
    CHECK(!round_trip(&work, cases[i].text, strlen(cases[i].text)));
    CHECK(work.context.error == ERROR_FORMAT);
    CHECK_TEXT(work.context.message, cases[i].message);
    context_release(&work.context);
  }
}

static void nesting_is_bounded(void) {
  enum { DEPTH = 100000 };
  char *text = malloc(DEPTH + 100);
  int head = sprintf(text, "program -\njaxpr a () { = f() {p=");
  memset(text + head, '[', DEPTH);
  Work work;
  CHECK(!round_trip(&work, text, (size_t)head + DEPTH));
  CHECK(work.context.error == ERROR_FORMAT);
  context_release(&work.context);
  free(text);
}

static bool reads_or_refuses(const char *text, size_t length) {
  Work work = {0};
  bool right = round_trip(&work, text, length) || work.context.error == ERROR_FORMAT;
  context_release(&work.context);
  return right;
}

static void damaged_text_is_read_or_refused(void) {
  static const char others[] = {'\0', '"', '{', '9', '%', '\n', '\xFF'};
  check_damaged(everything, others, sizeof others, reads_or_refuses);
}

static bool attempt(int64_t fail_at, void *given) {
  (void)given;
  Work work = {.text = everything, .length = strlen(everything)};
  return attempt_in(&work.context, fail_at, parse_and_print, &work);
}

static void every_failing_allocation_unwinds(void) { check_unwinds(attempt, NULL); }

const Test program_text_tests[] = {
    {"everything_reads_back_as_printed", everything_reads_back_as_printed},
    {"free_form_text_is_put_in_order", free_form_text_is_put_in_order},
    {"errors_name_line_and_column", errors_name_line_and_column},
    {"nesting_is_bounded", nesting_is_bounded},
    {"damaged_text_is_read_or_refused", damaged_text_is_read_or_refused},
    {"program_text: every_failing_allocation_unwinds", every_failing_allocation_unwinds},
    {0},
};
