/* The ledger's checker: what is lost on purpose, in every place where a trace can be, is found in the written model. */
#include "convert.h"
#include "onnx/file/check_ledger.h"
#include "test.h"

typedef void Plant(Model *model, const char *pass);

typedef struct Work {
  Context context;
  const char *text;
  Plant *plant; /* loses something after a pass, or NULL */
} Work;

static void after_pass(Model *model, const char *pass, void *data) {
  const Work *work = data;
  if (work->plant) work->plant(model, pass);
}

static void convert_and_check(void *argument) {
  Work *work = argument;
  Context *context = &work->context;
  Program *program = program_parse(context, provenance_new(context), work->text, strlen(work->text));
  ConvertOptions options = {
      .lower.opset = 21, .passes = {.check = true, .after = after_pass, .data = work}, .keep_ledger = true};
  UnsupportedList problems = {0}, notices = {0};
  Model *model = convert(program, &options, &problems, &notices);
  size_t count;
  uint64_t size;
  const Segment *segments = model_encode(model, &(WriteOptions){.metadata = METADATA_FULL}, &count, &size);
  Builder bytes;
  builder_init(&bytes, context);
  for (size_t i = 0; i < count; i++) builder_add_sized(&bytes, segments[i].data, segments[i].size);
  check_ledger(context, program->provenance, builder_text(&bytes), bytes.length);
}

/* Every way that an equation can go: nodes, a constant, a reducer's body, a call, no-ops, dead ones with a body. */
static const char text[] =
    "program \"m\"\n"
    "inputs \"x\"\n"
    "outputs \"y\"\n"
    "root @ \"m.py\":1 \"f\"\n"
    "\n"
    "jaxpr j0 (%0:f32[4], %1:f32[4]) {\n"
    "  %2:f32[4] = max(%0, %1) @ \"m.py\":20 \"larger\"\n"
    "  return %2\n"
    "}\n"
    "\n"
    "jaxpr j1 (%0:f32[4]) {\n"
    "  %1:f32[4] = cos(%0) @ \"m.py\":30 \"helper\"\n"
    "  %2:f32[4] = tan(%0) @ \"m.py\":31 \"helper\"\n"
    "  return %1\n"
    "}\n"
    "\n"
    "jaxpr j2 (%0:f32[4]) {\n"
    "  return %0\n"
    "}\n"
    "\n"
    "jaxpr j3 (%0:f32[4]) {\n"
    "  %1:f32[4] = sin(%0) @ \"m.py\":2 \"f\"\n"
    "  %2:f32[4] = exp({1, 2, 3, 4}:f32[4]) @ \"m.py\":3 \"f\"\n"
    "  %3:f32[4] = mul(%1, %2) @ \"m.py\":4 \"f\"\n"
    "  %4:f32[4] = jit(%3) {jaxpr=jaxpr j1} @ \"m.py\":5 \"f\"\n"
    "  %5:f32[4] = jit(%4) {jaxpr=jaxpr j2} @ \"m.py\":6 \"f\"\n"
    "  %6:f32[4] = copy(%5) @ \"m.py\":7 \"f\"\n"
    "  %7:f32[4] = jit(%6) {jaxpr=jaxpr j1} @ \"m.py\":8 \"f\"\n"
    "  %8:f32[4] = tanh(%6) @ \"m.py\":9 \"f\"\n"
    "  return %8\n"
    "}\n";

static bool run(Work *work, const char *program, Plant *plant) {
  *work = (Work){.text = program, .plant = plant};
  context_init(&work->context);
  return context_protect(&work->context, convert_and_check, work);
}

static void a_model_that_lost_nothing_passes(void) {
  Work work;
  CHECK(run(&work, text, NULL));
  CHECK_TEXT(work.context.message ? work.context.message : "", "");
  context_release(&work.context);
}

static Node *first_of(Model *model, Op op) {
  FOR_EACH_NODE(node, model->graph) {
    if (node_is(node, op)) return node;
  }
  return NULL;
}

/* Losses, each planted once. */

static void forget_a_trace(Model *model, const char *pass) {
  Node *sine = first_of(model, OP_Sin), *tanh = first_of(model, OP_Tanh);
  if (strcmp(pass, "expand_composites") == 0 && sine) sine->origin = tanh->origin;
}

static void drop_without_an_heir(Model *model, const char *pass) {
  Node *cosine = first_of(model, OP_Cos);
  if (strcmp(pass, "fuse_matmul") != 0 || !cosine) return;
  value_replace(cosine->outputs[0], cosine->inputs[0].value);
  node_remove(cosine);
}

static void drop_in_secret(Model *model, const char *pass) {
  drop_without_an_heir(model, pass);
  if (strcmp(pass, "fuse_matmul") == 0) model->removals.count = 0;
}

static void forget_a_constant(Model *model, const char *pass) {
  (void)pass;
  model->removals.count = 0; /* what was folded would tell */
  for (size_t i = 0; i < model->graph->initializers.count; i++) model->graph->initializers.items[i]->origin = NULL;
}

static void forget_what_was_removed(Model *model, const char *pass) {
  (void)pass;
  model->provenance->ledger->removed.count = 0;
  model->provenance->ledger->removed_sites = (Map){0};
}

static void forget_what_passed(Model *model, const char *pass) {
  (void)pass;
  model->provenance->ledger->passed.count = 0;
}

static void check_found(Plant *plant, const char *line) {
  Work work;
  CHECK(!run(&work, text, plant));
  const char *message = work.context.message ? work.context.message : "";
  CHECK(strstr(message, "does not say what became of an equation") != NULL);
  CHECK(strstr(message, line) != NULL);
  context_release(&work.context);
}

static void every_planted_loss_is_found(void) {
  check_found(forget_a_trace, "m.py:2 (f)");
  check_found(drop_without_an_heir, "m.py:30 (helper)\nm.py:5 (f)");
  check_found(drop_in_secret, "m.py:30 (helper)\nm.py:5 (f)");
  check_found(forget_a_constant, "m.py:3 (f)");
  check_found(forget_what_was_removed, "m.py:31 (helper)");
  check_found(forget_what_passed, "m.py:6 (f)");
}

const Test ledger_tests[] = {
    {"ledger: a model that lost nothing passes", a_model_that_lost_nothing_passes},
    {"ledger: every planted loss is found", every_planted_loss_is_found},
    {0},
};
