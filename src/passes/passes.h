/* Passes: graph to graph, one file and one entry point each.
 *
 * What a pass owes to provenance: a node replaced by one moves its origin over; nodes fused into one unite their
 * sites, the primary one from the node whose value is kept; nodes expanded from one each get its origin; equal nodes
 * merged unite their sites; a folded constant keeps the origin on its value. No pass looks at an origin to decide.
 */
#ifndef J2O_PASSES_PASSES_H
#define J2O_PASSES_PASSES_H

#include "onnx/graph/graph.h"

/* Whether normalisations become operators of their own: never; where that is no less accurate; wherever it can be. */
typedef enum NormalizationMode { NORMALIZATION_DECOMPOSED, NORMALIZATION_AUTO, NORMALIZATION_NATIVE } NormalizationMode;

/* A phase works until its passes find nothing more, and whatever a later one changes begins with the first again. */
typedef enum Phase {
  PHASE_BEGIN,  /* sees the graph as it was lowered, once */
  PHASE_CLEAN,  /* removes, merges, folds */
  PHASE_FUSE,   /* finds operators in what stands for them */
  PHASE_EXPAND, /* writes composites as plain operators, once; then the first phase has the last word */
  PHASE_LAYOUT, /* moves Transposes and Reshapes, which would hide what the others look for */
} Phase;

typedef struct Pass {
  const char *name;
  const char *summary;
  Phase phase;
  bool (*run)(Model *model); /* true when it changed something */
  NormalizationMode from;    /* runs in this mode and those after it */
  Op needs[6];               /* in a model without any of these it does nothing; OP_NONE: no such operator is known */
  const char *removes;       /* why what it takes out may have no heir, for the ledger; NULL: it always has one */
} Pass;

extern const Pass all_passes[];          /* in the order they run; closed by a row without a name */
const Pass *find_pass(const char *name); /* NULL when there is none */
size_t pass_count(void);

/* What a pass cost in all its runs. */
typedef struct PassCost {
  size_t runs, changes; /* changes: runs that changed something */
  double seconds;
} PassCost;

typedef struct PassOptions {
  const char *const *disabled; /* names, or NULL */
  size_t disabled_count;
  const char *const *only; /* these alone, each once, in this order; or NULL */
  size_t only_count;
  NormalizationMode normalization;
  bool check;                                                /* check the graph and its origins after every pass */
  void (*after)(Model *model, const char *pass, void *data); /* called after every pass, or NULL */
  void *data;
  PassCost *costs;         /* as many as there are passes, zeroed; or NULL */
  const char *dump_folder; /* receives the model as lowered and after every pass that changed it, or NULL */
} PassOptions;

void run_passes(Model *model, const PassOptions *options);
/* After all passes: the sites of what went are handed to its heirs, and where there are none the ledger says so
 * (accounts.c). Nothing when the provenance has no ledger. */
void settle_accounts(Model *model);
/* After all passes, where no opset was asked for: the lowest that holds the nodes (settle_opset.c). */
void settle_opset(Model *model);
/* After all passes: bodies of the main graph hold their own constants (body_constants.c). */
void bodies_take_constants(Model *model);
/* After all passes: functions hold no initializers (function_constants.c). */
void functions_take_constants(Model *model);

/* One file each. */
bool hoist_from_loops(Model *model);
bool release_carried(Model *model);
bool carry_conditions(Model *model);
bool decide_branches(Model *model);
bool end_loops_early(Model *model);
bool remove_dead_code(Model *model);
bool merge_common_nodes(Model *model);
bool fold_constants(Model *model);
bool remove_no_ops(Model *model);
bool leave_out_roundings(Model *model);
bool spell_rounded_quotients(Model *model);
bool sink_reshapes(Model *model);
bool expand_composites(Model *model);
bool keep_products_exact(Model *model);
bool choose_constants(Model *model);
bool merge_factors(Model *model);
bool pick_before_order(Model *model);
bool pick_parts(Model *model);
bool branch_around_loops(Model *model);
bool join_choices(Model *model);
bool sink_into_branches(Model *model);
bool keep_double_scales(Model *model);
bool spell_inverse_factors(Model *model);
bool unroll_loops(Model *model);
bool widen_steps(Model *model);               /* of unroll_loops.c */
bool write_out_branching_steps(Model *model); /* likewise */
bool compute_both_branches(Model *model);
bool spell_root_mean_squares(Model *model);
bool part_chained_products(Model *model);
bool write_unsigned_as_signed(Model *model);
bool fuse_reductions(Model *model);
bool fuse_activations(Model *model);
bool fuse_softmax(Model *model);
bool fuse_blocks(Model *model);
bool fuse_borders(Model *model);
bool fuse_bytes(Model *model);
bool fuse_convolution(Model *model);
bool fuse_pointwise(Model *model);
bool fuse_pooling(Model *model);
bool fuse_resize(Model *model);
bool fuse_normalization(Model *model);
bool fuse_group_normalization(Model *model);
bool prefer_native_group_normalization(Model *model);
bool prefer_native_normalization(Model *model);
bool fuse_matmul(Model *model);
bool fuse_quantization(Model *model);
bool fuse_attention(Model *model);
bool fuse_recurrent(Model *model);
bool part_recurrent(Model *model);
bool part_states(Model *model);
bool write_out_layers(Model *model);
bool fuse_selection(Model *model);
bool fuse_split(Model *model);
bool fuse_triangles(Model *model);
bool fuse_rotary(Model *model);
bool use_half_kernels(Model *model);
bool fuse_integers(Model *model);
bool fuse_integer_products(Model *model);
bool decide_by_ranges(Model *model);
bool cancel_transposes(Model *model);
bool count_steps(Model *model);
bool batch_steps(Model *model);
bool roll_steps(Model *model);
bool scan_positions(Model *model);
bool scan_delayed(Model *model);
bool scan_linear(Model *model);
bool split_scans(Model *model);
bool foretell_chains(Model *model);
bool rotate_hashes(Model *model);
bool join_hashes(Model *model);
bool simplify_choices(Model *model);
bool join_numbers(Model *model);
bool join_alike(Model *model);

/* Parts of remove_dead_code (unused_results.c): what the node's bodies compute for it in vain. True when changed. */
bool drop_unused_results(Node *node);
bool drop_unused_inputs(Node *node);
/* The same for functions (unused_arguments.c): inputs, outputs, and definitions that nothing calls. */
bool drop_unused_arguments(Model *model);
/* Of a body whose node goes, or of a function that nothing calls: the uses it makes of outer values go as well, and
 * what became of its equations is known. */
void remove_all_nodes(Graph *graph);
/* How both change nodes and bodies; what is dropped must be unused. */
void drop_graph_input(Graph *graph, size_t index);
void drop_graph_output(Graph *graph, size_t index);
void drop_node_input(Node *node, size_t index);
void drop_node_output(Node *node, size_t index);

/* The emitter of what a pass makes. */
#define PASS_EMITTER(model) \
  ((Emitter){.name = str_intern((model)->context, __func__), .file = source_path(__FILE__), .line = __LINE__})

#endif
