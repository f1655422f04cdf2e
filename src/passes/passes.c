/* The list of passes, and how they are run. */
#include "passes/passes.h"

#include <errno.h>
#include <stdio.h>

#include "onnx/file/print.h"
#include "passes/check_provenance.h"

/* clang-format off */
const Pass all_passes[] = {
    {"hoist_from_loops", "computes before a loop what every step repeats", hoist_from_loops},
    {"remove_dead_code", "removes nodes and initializers that no output needs", remove_dead_code},
    {"remove_no_ops", "removes nodes that give back what they were given, and shortens chains", remove_no_ops},
    {"merge_common_nodes", "computes once what is computed twice", merge_common_nodes},
    {"fold_constants", "computes what is known at export", fold_constants},
    {"fuse_integers", "finds remainders with the sign of the divisor", fuse_integers},
    {"decide_by_ranges", "decides what the range of integers says", decide_by_ranges},
    {"fuse_reductions", "finds means, lengths, and reductions that keep their axes", fuse_reductions},
    {"fuse_softmax", "finds Softmax, LogSoftmax and ReduceLogSumExp", fuse_softmax},
    {"fuse_convolution", "makes what is constant by channel a part of the convolution before it", fuse_convolution},
    {"fuse_pooling", "makes padding a part of convolutions and pooling, and finds averages", fuse_pooling},
    {"fuse_normalization", "finds normalisations", fuse_normalization, NORMALIZATION_AUTO},
    {"prefer_native_group_normalization", "finds normalisations by groups that lose accuracy",
     prefer_native_group_normalization, NORMALIZATION_NATIVE},
    {"fuse_group_normalization", "finds normalisations by groups of channels", fuse_group_normalization,
     NORMALIZATION_AUTO},
    {"prefer_native_normalization", "finds normalisations that lose accuracy", prefer_native_normalization,
     NORMALIZATION_NATIVE},
    {"fuse_activations", "finds Relu, Clip, Elu, Gelu and their kind", fuse_activations},
    {"fuse_matmul", "finds Gemm, and turns transposes of a product around", fuse_matmul},
    {"fuse_attention", "finds Attention", fuse_attention},
    {"fuse_selection", "finds Gather where one position is picked", fuse_selection},
    {"fuse_split", "finds Split where Slices lie side by side", fuse_split},
    {"fuse_triangles", "finds Trilu", fuse_triangles},
    {"fuse_rotary", "finds RotaryEmbedding", fuse_rotary},
    {"fuse_recurrent", "finds LSTM, GRU and RNN in loops", fuse_recurrent},
    {"fuse_resize", "finds images that are enlarged or reduced", fuse_resize, .late = true},
    {"cancel_transposes", "gives operators the order of axes that needs the fewest Transposes", cancel_transposes,
     .late = true},
    {"sink_reshapes", "moves a Reshape down to the next one", sink_reshapes, .late = true},
    {NULL, NULL, NULL},
};
/* clang-format on */

/* What one pass leaves may be something for another; most programs are done in two rounds. */
enum { MOST_ROUNDS = 12 };

typedef struct PassRun {
  Model *model;
  const PassOptions *options;
  int step; /* of the dumps */
} PassRun;

static bool is_disabled(const PassOptions *options, const char *name) {
  for (size_t i = 0; i < options->disabled_count; i++) {
    if (strcmp(options->disabled[i], name) == 0) return true;
  }
  return false;
}

static void check_names(const Model *model, const PassOptions *options) {
  for (size_t i = 0; i < options->disabled_count; i++) {
    const Pass *pass = all_passes;
    while (pass->name && strcmp(pass->name, options->disabled[i]) != 0) pass++;
    if (!pass->name) fail(model->context, ERROR_VALUE, "there is no pass '%s' to disable", options->disabled[i]);
  }
}

/* The model in ONNX's text syntax, numbered in the order of the steps. */
static void dump(PassRun *run, const char *name) {
  Context *context = run->model->context;
  if (!run->options->dump_folder) return;
  Builder out;
  builder_init(&out, context);
  model_print(&out, run->model);
  const char *path = arena_format(&context->arena, "%s/%02d_%s.onnx.txt", run->options->dump_folder, run->step++, name);
  FILE *file = fopen(path, "w");
  if (!file) fail(context, ERROR_IO, "cannot write '%s': %s", path, strerror(errno));
  bool written = fputs(builder_text(&out), file) >= 0;
  if (fclose(file) != 0 || !written) fail(context, ERROR_IO, "cannot write '%s': %s", path, strerror(errno));
}

static bool run_pass(PassRun *run, const Pass *pass) {
  const PassOptions *options = run->options;
  if (is_disabled(options, pass->name) || pass->from > options->normalization) return false;
  bool check = options->check && run->model->provenance;
  ProvenanceSnapshot *before = check ? provenance_snapshot(run->model) : NULL;
  bool changed = pass->run(run->model);
  if (check) provenance_check(run->model, before, pass->name);
  if (options->after) options->after(run->model, pass->name, options->data);
  if (changed) dump(run, pass->name);
  return changed;
}

void run_passes(Model *model, const PassOptions *options) {
  PassRun run = {.model = model, .options = options};
  check_names(model, options);
  dump(&run, "lowered");
  bool changed = true;
  for (int round = 0; changed && round < MOST_ROUNDS; round++) {
    changed = false;
    for (const Pass *pass = all_passes; pass->name; pass++) {
      if (!pass->late || !changed) changed = run_pass(&run, pass) || changed;
    }
  }
  for (const Pass *pass = all_passes; changed && pass->name; pass++) {
    if (pass->run == remove_dead_code) run_pass(&run, pass); /* what the last round left */
  }
}
