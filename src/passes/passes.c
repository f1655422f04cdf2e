/* The list of passes, and how they are run. */
#include "passes/passes.h"

#include <time.h>

#include "base/output.h"
#include "onnx/file/print.h"
#include "onnx/graph/verify.h"
#include "passes/check_provenance.h"

/* clang-format off */
const Pass all_passes[] = {
    {"roll_steps", "makes steps of a recurrent cell that are written out a Scan", PHASE_BEGIN, roll_steps, .needs = {OP_MatMul}},
    {"spell_rounded_quotients", "divides as XLA does, by the reciprocal, where the quotient is rounded afterwards",
     PHASE_CLEAN, spell_rounded_quotients, .needs = {OP_Round}},
    {"release_carried", "carries from step to step only what changes, and each value once", PHASE_CLEAN, release_carried, .needs = {OP_Loop, OP_Scan}, .removes = "no-op"},
    {"carry_conditions", "carries what a comparison says of a code instead of the code", PHASE_CLEAN, carry_conditions, .needs = {OP_Equal}, .removes = "no-op"},
    {"decide_branches", "takes the branch that is known to be taken, and results that are the same in both", PHASE_CLEAN, decide_branches, .needs = {OP_If}, .removes = "dead"},
    {"hoist_from_loops", "moves computations that every step repeats out of loops", PHASE_CLEAN, hoist_from_loops},
    {"end_loops_early", "ends a loop when the remaining steps do nothing", PHASE_CLEAN, end_loops_early, .needs = {OP_Loop}},
    {"remove_dead_code", "removes nodes and initializers that no output needs", PHASE_CLEAN, remove_dead_code, .removes = "dead"},
    {"leave_out_roundings", "leaves out roundings to half precision between computations in float32",
     PHASE_CLEAN, leave_out_roundings, .removes = "no-op"},
    {"remove_no_ops", "removes nodes that return their input unchanged, and shortens chains",
     PHASE_CLEAN, remove_no_ops, .removes = "no-op"},
    {"simplify_choices", "removes choices that make no difference, and compares what was chosen by its condition",
     PHASE_CLEAN, simplify_choices, .needs = {OP_Where, OP_Cast, OP_Not, OP_And, OP_Or}, .removes = "no-op"},
    {"merge_common_nodes", "computes repeated expressions once", PHASE_CLEAN, merge_common_nodes, .removes = "no-op"},
    {"fold_constants", "computes constant expressions during the export", PHASE_CLEAN, fold_constants, .removes = "no-op"},
    {"fuse_integers", "recognises remainders and quotients that are rounded down, and clips integers once", PHASE_FUSE,
     fuse_integers, .needs = {OP_Where, OP_And, OP_Clip}, .removes = "no-op"},
    {"decide_by_ranges", "simplifies what the ranges of integers decide", PHASE_FUSE, decide_by_ranges, .removes = "no-op"},
    {"fuse_reductions", "recognises means, norms, and reductions that keep their axes", PHASE_FUSE, fuse_reductions},
    {"fuse_softmax", "recognises Softmax, LogSoftmax and ReduceLogSumExp", PHASE_FUSE, fuse_softmax},
    {"fuse_convolution", "folds per-channel constants into the preceding convolution",
     PHASE_FUSE, fuse_convolution},
    {"fuse_borders", "recognises Pad where an array is joined to its own rows, or to a number for a window",
     PHASE_FUSE, fuse_borders, .needs = {OP_Concat, OP_Pad}},
    {"fuse_pooling", "folds padding into convolutions and pooling, and recognises averages", PHASE_FUSE, fuse_pooling},
    {"fuse_normalization", "recognises normalisations", PHASE_FUSE, fuse_normalization, NORMALIZATION_AUTO},
    {"prefer_native_group_normalization", "recognises group normalisations that lose accuracy",
     PHASE_FUSE, prefer_native_group_normalization, NORMALIZATION_NATIVE},
    {"fuse_group_normalization", "recognises group normalisations",
     PHASE_FUSE, fuse_group_normalization, NORMALIZATION_AUTO},
    {"prefer_native_normalization", "recognises normalisations that lose accuracy",
     PHASE_FUSE, prefer_native_normalization, NORMALIZATION_NATIVE},
    {"fuse_activations", "recognises Relu, Clip, Elu, Gelu and other activations", PHASE_FUSE, fuse_activations},
    {"fuse_bytes", "recognises QuantizeLinear where numbers are rounded to bytes", PHASE_FUSE, fuse_bytes, .needs = {OP_Round, OP_QuantizeLinear}},
    {"fuse_quantization", "recognises DequantizeLinear", PHASE_FUSE, fuse_quantization, .needs = {OP_Cast, OP_DequantizeLinear, OP_Mul}},
    {"fuse_matmul", "recognises Gemm, and moves Transposes out of products", PHASE_FUSE, fuse_matmul},
    {"fuse_integer_products", "recognises MatMulInteger", PHASE_FUSE, fuse_integer_products},
    {"fuse_attention", "recognises Attention", PHASE_FUSE, fuse_attention},
    {"use_half_kernels", "computes in half precision what stands alone in float32", PHASE_FUSE, use_half_kernels},
    {"fuse_selection", "recognises Gather where one position is picked", PHASE_FUSE, fuse_selection},
    {"fuse_split", "recognises Split where Slices are adjacent", PHASE_FUSE, fuse_split, .needs = {OP_Slice, OP_Split, OP_Gather}},
    {"fuse_triangles", "recognises Trilu", PHASE_FUSE, fuse_triangles},
    {"fuse_rotary", "recognises RotaryEmbedding", PHASE_FUSE, fuse_rotary},
    {"fuse_recurrent", "recognises LSTM, GRU and RNN in loops", PHASE_FUSE, fuse_recurrent, .needs = {OP_Scan, OP_LSTM, OP_GRU, OP_RNN}},
    {"write_out_layers", "writes out the layers that a loop goes over where recurrent cells are found in them", PHASE_LAYOUT,
     write_out_layers, .needs = {OP_Scan}},
    {"part_states", "carries recurrent states apart that a step joins", PHASE_LAYOUT, part_states, .needs = {OP_Scan}},
    {"fuse_resize", "recognises image resizing", PHASE_LAYOUT, fuse_resize, .needs = {OP_MatMul, OP_Gather, OP_Expand, OP_Tile, OP_Mul, OP_Concat}},
    {"fuse_blocks", "recognises DepthToSpace, SpaceToDepth and means of blocks", PHASE_LAYOUT, fuse_blocks, .needs = {OP_Transpose, OP_ReduceMean}},
    {"fuse_pointwise", "recognises convolutions with a window of one in products over channels", PHASE_LAYOUT, fuse_pointwise, .needs = {OP_MatMul}},
    {"pick_before_order", "picks one position before axes are moved instead of after", PHASE_LAYOUT, pick_before_order, .needs = {OP_Gather}},
    {"cancel_transposes", "chooses the axis orders that need the fewest Transposes",
     PHASE_LAYOUT, cancel_transposes, .removes = "cancelled"},
    {"sink_reshapes", "moves each Reshape towards the next one", PHASE_LAYOUT, sink_reshapes, .removes = "cancelled"},
    {"join_numbers", "leaves numbers their axis where they are joined to an array again", PHASE_LAYOUT, join_numbers, .removes = "no-op"},
    {"join_alike", "computes numbers that are computed alike and joined or added as the joined numbers", PHASE_LAYOUT, join_alike, .needs = {OP_Concat, OP_Add}},
    {"count_steps", "makes loops whose number of steps is known Scans over it", PHASE_LAYOUT, count_steps},
    {"write_out_branching_steps", "writes out a few steps of which it is known which branch each takes", PHASE_LAYOUT, write_out_branching_steps, .needs = {OP_Scan}},
    {"batch_steps", "computes for all steps of a Scan at once what no step carries on", PHASE_LAYOUT, batch_steps},
    {"foretell_chains", "computes before a loop what its steps make of one value alone, and looks it up", PHASE_LAYOUT,
     foretell_chains, .needs = {OP_Scan}, .removes = "dead"},
    {"split_scans", "carries on alone what depends on nothing else, so that the rest can be computed at once",
     PHASE_LAYOUT, split_scans},
    {"scan_positions", "makes rows that steps read and write at their own number slices and results of a Scan",
     PHASE_LAYOUT, scan_positions, .needs = {OP_Scan}},
    {"scan_linear", "recognises RNN where steps multiply a number by a constant and add to it", PHASE_LAYOUT, scan_linear, .needs = {OP_Scan}},
    {"scan_delayed", "scans the slice of the step before instead of carrying it on", PHASE_LAYOUT, scan_delayed, .needs = {OP_Scan}},
    {"part_recurrent", "takes recurrent cells out of loops that do more", PHASE_LAYOUT, part_recurrent, .needs = {OP_Scan}},
    {"rotate_hashes", "splits the key of the next step beside what this one draws", PHASE_LAYOUT, rotate_hashes, .needs = {OP_Loop}},
    {"join_hashes", "computes random bits of several keys at once", PHASE_LAYOUT, join_hashes, .needs = {OP_BitwiseXor}, .removes = "dead"},
    {"spell_root_mean_squares", "divides by root mean squares in the form that the target fuses by itself",
     PHASE_LAYOUT, spell_root_mean_squares, .needs = {OP_ReduceMean}},
    {"merge_factors", "joins the constant factors of a product", PHASE_EXPAND, merge_factors, .needs = {OP_Mul, OP_Div, OP_Neg}},
    {"choose_constants", "picks one of two constants without a Where", PHASE_EXPAND, choose_constants, .needs = {OP_Where}},
    {"widen_steps", "takes several short steps of a Scan at a time", PHASE_EXPAND, widen_steps, .needs = {OP_Scan}},
    {"pick_parts", "picks from a part what was picked from joined parts", PHASE_EXPAND, pick_parts, .needs = {OP_Concat, OP_ScatterND, OP_Slice}, .removes = "cancelled"},
    {"branch_around_loops", "puts a loop that may take no step in a branch, with what only it reads", PHASE_EXPAND, branch_around_loops, .needs = {OP_Loop}},
    {"join_choices", "makes choices by one condition in a step one conditional", PHASE_EXPAND, join_choices, .needs = {OP_Where}},
    {"sink_into_branches", "computes in a branch of an If what nothing else reads", PHASE_EXPAND, sink_into_branches, .needs = {OP_If}},
    {"unroll_loops", "writes out loops for targets that have none", PHASE_EXPAND, unroll_loops, .needs = {OP_Loop, OP_Scan}},
    {"compute_both_branches", "computes both branches for targets that cannot keep them apart", PHASE_EXPAND, compute_both_branches, .needs = {OP_If}},
    {"part_chained_products", "keeps apart products that a target crashes on together", PHASE_EXPAND, part_chained_products, .needs = {OP_MatMul, OP_Gemm}},
    {"keep_products_exact", "writes products with dequantised weights in forms that the runtime does not round",
     PHASE_EXPAND, keep_products_exact, .needs = {OP_DequantizeLinear}},
    {"keep_double_scales", "writes scales of float64 in a form that the runtime does not round",
     PHASE_EXPAND, keep_double_scales, .needs = {OP_MatMul, OP_Gemm}},
    {"expand_composites", "expands operations without an ONNX operator into plain operators", PHASE_EXPAND, expand_composites},
    {"spell_inverse_factors", "writes factors of 1 / y in a form that the runtime leaves as they are",
     PHASE_EXPAND, spell_inverse_factors, .needs = {OP_Mul}},
    {"write_unsigned_as_signed", "computes unsigned numbers as signed ones for targets that do not compute them", PHASE_EXPAND, write_unsigned_as_signed},
    {0},
};
/* clang-format on */

/* More steps than any program takes: passes that undo each other's work would never end. */
enum { MOST_STEPS = 1000 };

typedef struct PassRun {
  Model *model;
  const PassOptions *options;
  int dumped;                                         /* files so far */
  int steps;                                          /* of phases that changed something */
  const char *last;                                   /* pass that did */
  int changes;                                        /* passes that changed something, so far */
  int rested[sizeof all_passes / sizeof *all_passes]; /* by pass: one more than `changes` when it found nothing to do */
} PassRun;

static bool is_disabled(const PassOptions *options, const char *name) {
  for (size_t i = 0; i < options->disabled_count; i++) {
    if (strcmp(options->disabled[i], name) == 0) return true;
  }
  return false;
}

const Pass *find_pass(const char *name) {
  const Pass *pass = all_passes;
  while (pass->name && strcmp(pass->name, name) != 0) pass++;
  return pass->name ? pass : NULL;
}

size_t pass_count(void) { return sizeof all_passes / sizeof *all_passes - 1; }

static void check_names(const Model *model, const PassOptions *options) {
  for (size_t i = 0; i < options->disabled_count; i++) {
    const Pass *pass = find_pass(options->disabled[i]);
    if (!pass) fail(model->context, ERROR_VALUE, "there is no pass '%s' to disable", options->disabled[i]);
    if (pass->phase == PHASE_EXPAND)
      fail(model->context, ERROR_VALUE, "%s cannot be disabled: composites cannot be written to a file", pass->name);
  }
  for (size_t i = 0; i < options->only_count; i++) {
    if (find_pass(options->only[i])) continue;
    fail(model->context, ERROR_VALUE, "there is no pass '%s' to run", options->only[i]);
  }
}

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static bool run_timed(PassRun *run, const Pass *pass) {
  PassCost *cost = run->options->costs ? &run->options->costs[pass - all_passes] : NULL;
  double start = cost ? now() : 0;
  bool changed = pass->run(run->model);
  if (cost) {
    cost->seconds += now() - start;
    cost->runs++;
    cost->changes += changed;
  }
  return changed;
}

/* The model in ONNX's text syntax, numbered in the order of the steps. */
static void dump(PassRun *run, const char *name) {
  Context *context = run->model->context;
  if (!run->options->dump_folder) return;
  Builder out;
  builder_init(&out, context);
  model_print(&out, run->model);
  const char *path =
      arena_format(&context->arena, "%s/%02d_%s.onnx.txt", run->options->dump_folder, run->dumped++, name);
  output_bytes(context, path, builder_text(&out), out.length, &(OutputOptions){.skip_sync = true});
}

static bool has_what_it_needs(const Model *model, const Pass *pass) {
  bool any = !pass->needs[0];
  for (size_t i = 0; i < sizeof pass->needs / sizeof *pass->needs && pass->needs[i]; i++) {
    any = any || model->made[pass->needs[i]];
  }
  return any;
}

static bool run_pass(PassRun *run, const Pass *pass) {
  const PassOptions *options = run->options;
  if (is_disabled(options, pass->name) || pass->from > options->normalization) return false;
  int *rested = &run->rested[pass - all_passes];
  if (*rested == run->changes + 1) return false; /* the model is what it was then */
  bool can_act = has_what_it_needs(run->model, pass);
  if (!can_act && !options->check) return false;
  bool check = options->check && run->model->provenance;
  ProvenanceSnapshot *before = check ? provenance_snapshot(run->model) : NULL;
  run->model->pass = pass->name;
  bool changed = run_timed(run, pass);
  if (changed && !can_act)
    fail(run->model->context, ERROR_INTERNAL, "%s acts without the operators that its row names", pass->name);
  if (check) provenance_check(run->model, before, pass->name);
  if (options->check) require_verified(run->model, VERIFY_ALL, pass->name);
  if (options->after) options->after(run->model, pass->name, options->data);
  if (changed) dump(run, pass->name);
  if (changed) run->changes++;
  else *rested = run->changes + 1;
  return changed;
}

/* Every pass of the phase once, of layout up to the first that acts; true when one of them changed something. */
static bool run_phase(PassRun *run, Phase phase) {
  bool changed = false;
  for (const Pass *pass = all_passes; pass->name; pass++) {
    if (pass->phase != phase || !run_pass(run, pass)) continue;
    changed = true;
    run->last = pass->name;
    if (phase == PHASE_LAYOUT) break; /* what one of them moved another might move back before it meets its match */
  }
  return changed && ++run->steps <= MOST_STEPS;
}

void run_passes(Model *model, const PassOptions *options) {
  PassRun run = {.model = model, .options = options};
  check_names(model, options);
  dump(&run, "lowered");
  if (options->check) require_verified(model, VERIFY_ALL, NULL);
  for (size_t i = 0; i < options->only_count; i++) run_pass(&run, find_pass(options->only[i]));
  if (options->only_count) return;
  run_phase(&run, PHASE_BEGIN);
  do {
    while (run_phase(&run, PHASE_CLEAN)) continue;
  } while (run_phase(&run, PHASE_FUSE) || run_phase(&run, PHASE_LAYOUT));
  if (run_phase(&run, PHASE_EXPAND)) {
    while (run_phase(&run, PHASE_CLEAN)) continue;
  }
  bool ended = run.steps <= MOST_STEPS;
  if (!ended && options->check)
    fail(model->context, ERROR_INTERNAL, "the passes do not terminate: %s keeps changing the graph", run.last);
}
