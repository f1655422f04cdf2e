/* The pipeline: read this function and you know the machine. */
#include "convert.h"

#include "j2o.h"
#include "legalize/legalize.h"
#include "onnx/facts/schema.h"
#include "onnx/file/external.h"
#include "onnx/graph/verify.h"
#include "provenance/ledger.h"
#include "target/lacks.h"

static void sign(Model *model) {
  model->ir_version = ir_version_of(model->opset);
  model->producer_name = str_intern(model->context, PRODUCER);
  model->producer_version = str_intern(model->context, j2o_version());
}

/* The newest opset whose forms a model may have that was asked for none. */
static int64_t auto_opset(const Target *target) {
  enum { FUSED_FORMS = 23 /* Attention and its kin */ };
  if (!target || !target->opset) return AUTO_OPSET;
  return target->opset < FUSED_FORMS ? target->opset : FUSED_FORMS;
}

/* What the target cannot run, all of it, with the lines. */
static void report_lacks(Model *model, bool has_metadata, UnsupportedList *notices) {
  bool raised = has_metadata && model->ir_version < IR_WITH_PROVENANCE;
  FaultList faults = target_lacks(model, model->target, raised ? IR_WITH_PROVENANCE : model->ir_version);
  for (size_t i = 0; i < faults.count; i++) {
    const Node *node = faults.items[i].node;
    const Site *site = node && node->origin ? node->origin->sites[0] : NULL;
    array_push(model->context, notices, ((Unsupported){node ? node->op_type : NULL, faults.items[i].text, site}));
  }
}

static void write_calls(Program *program, const ConvertOptions *options) {
  const char *text = program_print(program);
  output_bytes(program->context, options->calls, text, strlen(text), &options->output);
}

/* Readers of protobuf take 100 messages inside each other. A body of depth d is the 3d + 1st (node, attribute, graph),
 * and the size of a dimension of one of its values the 5th inside it: onnx.load and ONNX Runtime read 31, and not 32.
 */
static void refuse_deep_bodies(const Model *model, UnsupportedList *problems) {
  enum { DEEPEST = 31 };
  int depth;
  const Node *node = model_deepest_node(model, &depth);
  if (depth <= DEEPEST) return;
  Context *context = model->context;
  const Site *site = node->origin ? node->origin->sites[0] : NULL;
  const Frame *frame = site ? site_user_frame(model->provenance, site) : NULL;
  const char *reason = arena_format(&context->arena,
                                    "loops and conditionals are nested %d levels deep, but ONNX readers accept at most "
                                    "%d; merge some of them or unroll the inner ones",
                                    depth, DEEPEST);
  array_push(context, problems, ((Unsupported){node->op_type, reason, site}));
  if (!frame) fail(context, ERROR_UNSUPPORTED, "%s", reason);
  fail(context, ERROR_UNSUPPORTED, "%s:%d in %s: %s", frame->file, frame->line, frame->function, reason);
}

/* What a text says of its types may be wrong; passes, and what is made of their result, take a sound graph for granted.
 */
static void refuse_unsound_text(const Program *program, Model *model) {
  FaultList faults = program->is_text ? model_verify(model, VERIFY_ALL) : (FaultList){0};
  if (!faults.count) return;
  fail(model->context, ERROR_FORMAT, "the program does not hold together: %s", fault_text(model, &faults.items[0]));
}

Model *convert(Program *program, const ConvertOptions *options, UnsupportedList *problems, UnsupportedList *notices) {
  if (options->calls) write_calls(program, options);
  if (options->keep_ledger) ledger_open(program->provenance);
  legalize_checks(program);
  if (!target_has(options->lower.target, QUIRK_FUNCTIONS_ARE_NOT_READ)) program_outline_functions(program);
  program_drop_unused(program);
  legalize_program(program);
  LowerOptions lower = options->lower;
  lower.list_traced = options->passes.check;
  if (lower.opset == OPSET_AUTO) lower.opset = auto_opset(lower.target);
  Model *model = lower_program(program, &lower, problems, notices);
  refuse_deep_bodies(model, problems);
  refuse_unsound_text(program, model);
  run_passes(model, &options->passes);
  if (options->lower.opset == OPSET_AUTO) settle_opset(model);
  settle_accounts(model);
  bodies_take_constants(model);
  functions_take_constants(model);
  model_name(model);
  require_verified(model, options->passes.check ? VERIFY_ALL : VERIFY_QUICKLY, NULL);
  sign(model);
  report_lacks(model, options->metadata != METADATA_OFF, notices);
  return model;
}

const char *j2o_version(void) { return J2O_VERSION; }
