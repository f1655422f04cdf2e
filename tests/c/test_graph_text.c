/* The text form of models: what is printed reads back as the same, and what is damaged is refused. */
#include <stdlib.h>

#include "damage.h"
#include "onnx/file/model_text.h"
#include "onnx/file/print.h"
#include "onnx/file/write.h"
#include "test.h"
#include "unwinding.h"

/* Every kind of attribute, types, nested graphs, functions, metadata, names that need quotes, values without names. */
static const char everything[] =
    "<\n"
    "   ir_version: 10,\n"
    "   opset_import: [\"\": 21, \"d.e\": 1],\n"
    "   producer_name: \"who\",\n"
    "   producer_version: \"1\",\n"
    "   metadata_props: [\"k\": \"v \\\"w\\\"\", \"l\": \"\"]\n"
    ">\n"
    "\"main graph\" (float[2,B] x, bool c, float16[\"2*B - 1\",?] \"odd name\", int64[] any, untyped) => (float[2,B] "
    "y, "
    "int64 z) <\n"
    "      # pkg.c =\n"
    "      #   one\n"
    "      #   two\n"
    "      # pkg.d = 3\n"
    "      float[2] w = {1.5, -0.0},\n"
    "      double[2] const_f64_2 = {inf, nan},\n"
    "      int4[3] _0 = {-8, 7, 1},\n"
    "      uint8[0,3] \"_7\" = {},\n"
    "      complex64[1] k = {1.0, -2.5},\n"
    "      float16[2] h = {15360, 0},\n"
    "      float[9] left_out = ,\n"
    "      float[9] elsewhere = [\"location\": \"m.data\", \"offset\": \"64\", \"length\": \"36\"],\n"
    "      float[2,B] _1>\n"
    "{\n"
    "   # pkg.a = one\n"
    "   # pkg.b =\n"
    "   #   first\n"
    "   #   second\n"
    "   [node] _1 = Op <a: int = -3, b: float = 0.1, c: string = \"s\\\"\", d: ints = [1, -2], e: floats = [], "
    "f: strings = [\"\", \"x\"], g: tensor = float[1] = {2.0}, h: tensor = int32 t = {7}> (x, \"\", w)\n"
    "   y = If <then_branch: graph = then () => (float[2,B] _2) <\n"
    "         float one = {1.0}>\n"
    "   {\n"
    "      _2 = Add (_1, one)\n"
    "   }, else_branch: graph = \"else branch\" () => (float[2,B] _3) {\n"
    "      _3 = Neg (_1)\n"
    "   }> (c)\n"
    "   z, \"\" = d.e.f (any)\n"
    "   = \"odd-op\" ()\n"
    "}\n"
    "\n"
    "# about = the function\n"
    "<domain: \"d.e\", opset_import: [\"\": 21, \"d.e\": 1]>\n"
    "f <alpha> (p) => (q, r) <\n"
    "      int64 p,\n"
    "      int64 q>\n"
    "{\n"
    "   q = Scale <by: float = @alpha> (p)\n"
    "   r = Neg (q)\n"
    "}\n";

typedef struct Work {
  Context context;
  const char *text;
  size_t length;
  bool with_origins;
  Model *model;
  const char *printed;
} Work;

static void read_and_print(void *argument) {
  Work *work = argument;
  TextSource source = {.text = work->text, .length = work->length, .opset = 21};
  if (work->with_origins) {
    source.provenance = provenance_new(&work->context);
    source.file = str_intern(&work->context, "graph.txt");
  }
  work->model = model_read_text(&work->context, &source);
  Builder out;
  builder_init(&out, &work->context);
  model_print_with(&out, work->model, &(PrintOptions){.as_read = true, .bare = work->text[0] == 'g'});
  work->printed = builder_text(&out);
}

static bool round_trip(Work *work, const char *text, size_t length) {
  context_init(&work->context);
  work->text = text;
  work->length = length;
  work->printed = NULL;
  return context_protect(&work->context, read_and_print, work);
}

static void everything_reads_back_as_printed(void) {
  for (int origins = 0; origins < 2; origins++) {
    Work work = {.with_origins = origins};
    CHECK(round_trip(&work, everything, strlen(everything)));
    CHECK_TEXT(work.printed ? work.printed : work.context.message, everything);
    context_release(&work.context);
  }
}

static void what_is_read_is_linked(void) {
  Work work = {.with_origins = true};
  CHECK(round_trip(&work, everything, strlen(everything)));
  const Model *model = work.model;
  const Node *first = model->graph->first, *branch = first->next, *call = branch->next;
  CHECK(model->opset == 21);
  CHECK(first->inputs[0].value == model->graph->inputs.items[0] && first->inputs[1].value == NULL);
  CHECK(first->outputs[0]->name == NULL && value_use_count(first->outputs[0]) == 2);
  CHECK(branch->attributes.items[0].graph->owner == branch);
  CHECK(branch->attributes.items[1].graph->first->inputs[0].value == first->outputs[0]);
  CHECK(call->callee == model->functions.items[0] && call->outputs[1] == NULL);
  CHECK(model->graph->outputs.items[0]->value == branch->outputs[0] && branch->outputs[0]->name_fixed);
  CHECK(first->origin->sites[0]->trace->frame->line == 27);
  const Value *parameter = model->graph->initializers.items[0], *constant = model->graph->initializers.items[1];
  CHECK(parameter->tensor->name && !constant->tensor->name);
  CHECK(((const unsigned char *)model->graph->initializers.items[2]->tensor->data)[0] == 0x78);
  context_release(&work.context);
}

static void free_form_text_is_put_in_order(void) {
  const char *text =
      "graph(float[2]x)=>(float[2]y){# a comment\n t=Sin(x) # another\n\n y = LeakyRelu ( t ) <alpha:float=2>}";
  Work work = {0};
  CHECK(round_trip(&work, text, strlen(text)));
  CHECK_TEXT(work.printed ? work.printed : work.context.message,
             "graph (float[2] x) => (float[2] y) {\n   t = Sin (x)\n   y = LeakyRelu <alpha: float = 2.0> (t)\n}\n");
  context_release(&work.context);
}

typedef struct Damage {
  const char *text;
  const char *message;
} Damage;

static void errors_name_line_and_column(void) {
  static const Damage cases[] = {
      {"", "line 1, column 1: expected a graph's name"},
      {"<ir_version: 10", "line 1, column 16: expected '>'"},
      {"<ir_versoin: 10>", "line 1, column 2: unknown field"},
      {"g (float[2] x) => (y) {\n}", "line 1, column 20: a value that is not defined yet"},
      {"g (x) => (y) {\n  y = Add (x, w)\n}", "line 2, column 15: a value that is not defined yet"},
      {"g (x) => (y) {\n  y = Neg (y)\n}", "line 2, column 12: a value that is not defined yet"},
      {"g (x, x) => () {}", "line 1, column 7: a value that is already defined"},
      {"g (x) => () {\n  x = Neg (x)\n}", "line 2, column 3: a value that is already defined"},
      {"g () => () <float[2] w = {1, 2, 3}> {}", "line 1, column 31: expected '}'"},
      {"g () => () <float[2] w = {1}> {}", "line 1, column 28: expected ','"},
      {"g () => () <float[B] w = {1}> {}", "line 1, column 22: a tensor of unknown size"},
      {"g () => () <int8[1] w = {200}> {}", "line 1, column 26: not an integer with 8 bits"},
      {"g () => () <uint8[1] w = {-1}> {}", "line 1, column 27: not an unsigned integer with 8 bits"},
      {"g () => () <float[99999999999] w = {1}> {}", "line 1, column 37: fewer elements than the type requires"},
      {"g () => () <string[1] w = {\"a\"}> {}", "line 1, column 28: elements of a type that cannot be read"},
      {"g (seq(float[2]) x) => () {}", "line 1, column 4: unsupported type: only tensors can be read"},
      {"g (x) => () { = Op <a: integer = 1> (x) }",
       "line 1, column 24: expected int, float, string, tensor, graph, ints, floats or strings"},
      {"g (x) => () { = Op <a: int = 1, a: int = 2> (x) }",
       "line 1, column 33: an attribute that the node already has"},
      {"g (x) => () { = Op <a: string = \"b> (x) }", "line 1, column 33: unterminated string"},
      {"g () => () <float w = [\"offset\": \"0\"]> {}", "line 1, column 19: data without a location"},
      {"g () => () <float w = [\"location\": \"a\", \"length\": \"3\"]> {}",
       "line 1, column 19: data that does not match the type"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Work work = {0};
    CHECK(!round_trip(&work, cases[i].text, strlen(cases[i].text)));
    CHECK(work.context.error == ERROR_FORMAT);
    CHECK_TEXT(work.context.message, cases[i].message);
    context_release(&work.context);
  }
}

static void nesting_is_bounded(void) {
  enum { DEPTH = 10000 };
  static const char step[] = "g (c) => () { = If <t: graph = ";
  char *text = malloc(DEPTH * sizeof step);
  for (size_t i = 0; i < DEPTH; i++) memcpy(text + i * (sizeof step - 1), step, sizeof step);
  Work work = {0};
  CHECK(!round_trip(&work, text, DEPTH * (sizeof step - 1)));
  CHECK(work.context.error == ERROR_FORMAT && strstr(work.context.message, "nested too deeply"));
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
  static const char others[] = {'\0', '"', '{', '9', '<', '\n', '\xFF', '#', '='};
  check_damaged(everything, others, sizeof others, reads_or_refuses);
}

static bool attempt(int64_t fail_at, void *given) {
  (void)given;
  Work work = {.text = everything, .length = strlen(everything)};
  return attempt_in(&work.context, fail_at, read_and_print, &work);
}

static void every_failing_allocation_unwinds(void) { check_unwinds(attempt, NULL); }

/* Names that are there stay, others are new. */
static void name_rest(void *argument) {
  Work *work = argument;
  read_and_print(work);
  model_name_rest(work->model);
  Builder out;
  builder_init(&out, &work->context);
  model_print_with(&out, work->model, &(PrintOptions){.bare = true, .as_read = true});
  work->printed = builder_text(&out);
}

static void what_has_no_name_gets_one(void) {
  const char *text =
      "g (float x) => (float y) {\n   [Sin_0] _0 = Sin (x)\n   sin_1 = Sin (_0)\n   y = Sin (sin_1)\n}\n";
  Work work = {.text = text, .length = strlen(text)};
  context_init(&work.context);
  CHECK(context_protect(&work.context, name_rest, &work));
  CHECK_TEXT(work.printed ? work.printed : work.context.message,
             "g (float x) => (float y) {\n   [Sin_0] sin_0 = Sin (x)\n   [Sin_1] sin_1 = Sin (sin_0)\n"
             "   [Sin_2] y = Sin (sin_1)\n}\n");
  context_release(&work.context);
}

const Test graph_text_tests[] = {
    {"graph_text: everything_reads_back_as_printed", everything_reads_back_as_printed},
    {"graph_text: what_is_read_is_linked", what_is_read_is_linked},
    {"graph_text: free_form_text_is_put_in_order", free_form_text_is_put_in_order},
    {"graph_text: errors_name_line_and_column", errors_name_line_and_column},
    {"graph_text: nesting_is_bounded", nesting_is_bounded},
    {"graph_text: damaged_text_is_read_or_refused", damaged_text_is_read_or_refused},
    {"graph_text: every_failing_allocation_unwinds", every_failing_allocation_unwinds},
    {"graph_text: what_has_no_name_gets_one", what_has_no_name_gets_one},
    {0},
};
