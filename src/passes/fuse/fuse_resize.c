/* Resize: images that are enlarged or reduced by products with matrices of weights, by gathering rows and columns, or
 * by repeating them.
 *
 * A chain of such operators, with the Transposes and Reshapes between them, is followed from its source: each axis on
 * the way is a run of axes of the source, resized or repeated. Where every axis is one of the source's again, a single
 * Resize says it all. A matrix counts when it equals what Resize computes with, element by element.
 */
#include <math.h>

#include "onnx/evaluate/evaluate.h"
#include "onnx/facts/schema.h"
#include "passes/analysis/computed_weights.h"
#include "passes/analysis/resize_weights.h"
#include "passes/fuse/resize_sizes.h"
#include "passes/layout/permute_axes.h"
#include "passes/pattern.h"

enum {
  LONGEST_CHAIN = 16,
  MOST_ABOVE = 4, /* Transposes and Reshapes before the first product */
  MOST_LABELS = 16,
  ANTIALIAS = 18,         /* the opset since which Resize knows of it */
  MOST_WEIGHT_NODES = 96, /* operators that compute a matrix */
  MOST_TIMES = 32         /* as large as a size that is not known */
};

/* A part of an axis: an axis of the source, or one of size 1 that may have been repeated. Of those it does not matter
 * which is which. */
typedef struct Label {
  int source; /* -1: none */
  Dim size;
} Label;

typedef struct Track {
  Label labels[MOST_LABELS];
  uint32_t count;
  uint32_t ends[MOST_LABELS]; /* of each axis: where its labels end */
  uint32_t rank;
} Track;

typedef struct AxisChange {
  ResizeKind kind;          /* RESIZE_NONE: the axis stays as it is */
  int64_t from, to, factor; /* -1 where it is not known, and 0 times where it is not whole */
  Dim size;                 /* of the result, where it is not known */
  Value *computed;          /* that size, a scalar; or NULL */
} AxisChange;

typedef struct Chain {
  Value *source;
  DType rounded; /* the half that the source is or was before; DTYPE_NONE: it was none */
  Node *nodes[LONGEST_CHAIN];
  size_t count;
  Track track;
  AxisChange changes[MOST_LABELS];
} Chain;

typedef struct Finder {
  Rewriter rewriter; /* first */
  ARRAY(Node *) candidates;
  Map known;   /* Value -> its Tensor, or NOT_KNOWN */
  Chain chain; /* the one that is being followed */
  Map gone;    /* Node -> itself: was part of a chain */
} Finder;

/* ---- constants, also those that are not folded because they are large ---- */

static const Tensor not_known;

static const Tensor *known_tensor(Finder *finder, const Value *value, int *budget) {
  const Tensor *constant = unread_constant_of(value);
  if (constant && tensor_is_far(constant)) return NULL; /* a weight that was put on a device is no table of Resize's */
  if (constant || !value || !value->producer) return constant_of(value);
  const Node *node = value->producer;
  const Tensor *before = map_get_pointer(&finder->known, value);
  if (before) return before == &not_known ? NULL : before;
  const Tensor *result = NULL;
  if (node->output_count == 1 && !node->domain[0] && node->input_count > 0 && --*budget >= 0) {
    const Tensor **inputs = arena_new_array(&finder->rewriter.context->arena, node->input_count, const Tensor *);
    bool known = true;
    for (uint32_t i = 0; known && i < node->input_count; i++) {
      const Value *input = node->inputs[i].value;
      inputs[i] = input ? known_tensor(finder, input, budget) : NULL;
      known = !input || (inputs[i] && !inputs[i]->name); /* nothing is computed from parameters */
    }
    Evaluation evaluation = {.context = finder->rewriter.context,
                             .node = node,
                             .inputs = inputs,
                             .input_count = node->input_count,
                             .opset = finder->rewriter.model->opset,
                             .largest = LARGEST_WEIGHTS};
    if (known) result = evaluate_node(&evaluation);
  }
  *map_slot_pointer(finder->rewriter.context, &finder->known, value) =
      (void *)(uintptr_t)(result ? result : &not_known);
  return result;
}

/* ---- following the axes ---- */

static uint32_t axis_start(const Track *track, uint32_t axis) { return axis ? track->ends[axis - 1] : 0; }

static Track track_source(Type type) {
  Track track = {.count = type.rank, .rank = type.rank};
  for (uint32_t i = 0; i < type.rank; i++) {
    track.labels[i] = (Label){dim_is(type.dims[i], 1) ? -1 : (int)i, type.dims[i]};
    track.ends[i] = i + 1;
  }
  return track;
}

static bool permute_track(Track *track, const Node *transpose) {
  AxisOrder order;
  if (!transpose_order(transpose, &order) || order.rank != track->rank) return false;
  Track result = {.rank = track->rank};
  for (uint32_t i = 0; i < track->rank; i++) {
    uint32_t axis = (uint32_t)order.from[i];
    for (uint32_t at = axis_start(track, axis); at < track->ends[axis]; at++) {
      result.labels[result.count++] = track->labels[at];
    }
    result.ends[i] = result.count;
  }
  *track = result;
  return true;
}

static bool add_label(Track *track, Label label) {
  if (track->count == MOST_LABELS) return false;
  track->labels[track->count++] = label;
  return true;
}

/* The same labels cut into other axes. Those of size 1 that stand for nothing come and go. */
static bool regroup(Context *context, Track *track, Type to) {
  Track result = {.rank = to.rank};
  uint32_t at = 0;
  if (to.dtype == DTYPE_NONE || to.rank > MOST_LABELS) return false;
  for (uint32_t i = 0; i < to.rank; i++) {
    Dim size = dim_of(1);
    bool one = dim_is(to.dims[i], 1), taken = false;
    if (one && (at == track->count || !dim_is(track->labels[at].size, 1))) {
      if (!add_label(&result, (Label){-1, dim_of(1)})) return false;
      taken = true;
    }
    while (one ? !taken : !dim_equal(size, to.dims[i])) {
      if (at == track->count) return false;
      Label label = track->labels[at++];
      bool nothing = label.source < 0 && dim_is(label.size, 1);
      if (nothing && !one) continue;
      if (!add_label(&result, label)) return false;
      size = dim_multiply(context, size, label.size);
      taken = true;
    }
    result.ends[i] = result.count;
  }
  for (; at < track->count; at++) {
    if (!dim_is(track->labels[at].size, 1)) return false;
  }
  *track = result;
  return true;
}

/* The label that is the axis, when it is one of the source's and nothing else; else NULL. */
static Label *single_label(Track *track, uint32_t axis) {
  uint32_t start = axis_start(track, axis);
  if (axis >= track->rank || track->ends[axis] != start + 1 || track->labels[start].source < 0) return NULL;
  return &track->labels[start];
}

static bool change_axis(Chain *chain, uint32_t axis, ResizeKind kind, int64_t from, int64_t to) {
  Label *label = single_label(&chain->track, axis);
  if (!label || kind == RESIZE_NONE || !dim_is(label->size, from)) return false;
  AxisChange *change = &chain->changes[label->source];
  if (change->kind != RESIZE_NONE) return false;
  *change = (AxisChange){kind, from, to, to % from == 0 ? to / from : 0, dim_of(to), NULL};
  label->size = dim_of(to);
  return true;
}

/* How many times as large it is; 0: not a whole number of times. */
static int64_t times_as_large(Context *context, Dim from, Dim to) {
  for (int64_t factor = 1; factor <= MOST_TIMES; factor++) {
    if (dim_equal(dim_multiply(context, from, dim_of(factor)), to)) return factor;
  }
  return 0;
}

/* By weights that are computed of sizes that are not known. */
static bool follow_computed(Finder *finder, Chain *chain, Value *matrix) {
  Type type = matrix->type;
  Label *label = single_label(&chain->track, chain->track.rank - 1);
  Value *size = NULL;
  if (!label || type.dtype == DTYPE_NONE || type.rank != 2 || dim_is_constant(type.dims[0])) return false;
  Dim from = type.dims[0], to = type.dims[1];
  AxisChange *change = &chain->changes[label->source];
  if (!dim_equal(label->size, from) || change->kind != RESIZE_NONE) return false;
  ResizeKind kind = resize_kind_of_computed(&finder->rewriter, matrix, &size);
  int64_t factor = times_as_large(finder->rewriter.context, from, to);
  if (size && (size->type.dtype != DTYPE_INT64 || size->type.rank != 0)) size = NULL;
  if (kind == RESIZE_NONE || (!factor && !dim_is_constant(to) && !size)) return false;
  if (factor) kind = resize_is_cubic(kind) ? RESIZE_CUBIC : RESIZE_LINEAR; /* the same with antialias */
  *change = (AxisChange){kind, -1, dim_is_constant(to) ? to.constant : -1, factor, to, size};
  label->size = to;
  return true;
}

static bool follow_product(Finder *finder, Chain *chain, const Node *node, const Value *value) {
  bool left = node_input(node, 1) == value;
  int budget = MOST_WEIGHT_NODES;
  const Tensor *matrix = known_tensor(finder, node_input(node, left ? 0 : 1), &budget);
  if (chain->track.rank < 2 || node_input(node, 0) == node_input(node, 1)) return false;
  if (!matrix && !left) return follow_computed(finder, chain, node_input(node, 1));
  if (!matrix || matrix->rank != 2) return false;
  int64_t from = matrix->dims[left ? 1 : 0], to = matrix->dims[left ? 0 : 1];
  ResizeKind kind = resize_kind_of_matrix(matrix, left, chain->rounded == DTYPE_NONE ? matrix->dtype : chain->rounded);
  return change_axis(chain, chain->track.rank - (left ? 2 : 1), kind, from, to);
}

/* Neighbours that are computed of sizes that are not known, each a whole number of times. */
static bool follow_repeated(Finder *finder, Chain *chain, Label *label, Value *indices) {
  AxisChange *change = &chain->changes[label->source];
  Type type = indices->type;
  if (type.dtype == DTYPE_NONE || type.rank != 1 || dim_is_constant(label->size) || change->kind != RESIZE_NONE)
    return false;
  int64_t factor = times_as_large(finder->rewriter.context, label->size, type.dims[0]);
  if (!factor || !repeats_by_computed(&finder->rewriter, indices, label->size)) return false;
  *change = (AxisChange){RESIZE_NEAREST, -1, -1, factor, type.dims[0], NULL};
  label->size = type.dims[0];
  return true;
}

static bool follow_gather(Finder *finder, Chain *chain, const Node *node) {
  int budget = MOST_WEIGHT_NODES;
  const Tensor *indices = known_tensor(finder, node_input(node, 1), &budget);
  int64_t axis = node_int_or(node, "axis", 0), rank = chain->track.rank;
  if (axis < 0) axis += rank;
  if (axis < 0 || axis >= rank) return false;
  Label *label = single_label(&chain->track, (uint32_t)axis);
  if (label && !indices) return follow_repeated(finder, chain, label, node_input(node, 1));
  if (!label || indices->rank != 1 || !dim_is_constant(label->size)) return false;
  ResizeKind kind = resize_kind_of_indices(indices, label->size.constant);
  return change_axis(chain, (uint32_t)axis, kind, label->size.constant, indices->dims[0]);
}

/* An axis that was put in right after one of the source's is repeated. */
static bool follow_expand(Chain *chain, const Node *node) {
  Type to = node->outputs[0]->type;
  Track *track = &chain->track;
  if (to.dtype == DTYPE_NONE || to.rank != track->rank) return false;
  for (uint32_t i = 0; i < to.rank; i++) {
    uint32_t start = axis_start(track, i);
    Label *label = &track->labels[start];
    if (track->ends[i] == start + 1 && label->source < 0 && dim_is(label->size, 1)) {
      if (!dim_is_constant(to.dims[i])) return false;
      label->size = to.dims[i];
      continue;
    }
    Dim size = dim_of(1);
    for (uint32_t at = start; at < track->ends[i]; at++) {
      size = dim_multiply(node->graph->model->context, size, track->labels[at].size);
    }
    if (!dim_equal(size, to.dims[i])) return false;
  }
  return true;
}

/* A Concat of one value and itself. */
static bool joins_itself(const Node *node) {
  if (!node_is(node, OP_Concat) || node->output_count != 1 || node->input_count < 2) return false;
  for (uint32_t i = 1; i < node->input_count; i++) {
    if (node->inputs[i].value != node->inputs[0].value) return false;
  }
  return true;
}

/* The value follows itself along an axis: an axis before that one is put in and repeated. */
static bool follow_join(Chain *chain, const Node *node) {
  Track *track = &chain->track, result = {.rank = track->rank};
  int64_t axis = node_int_or(node, "axis", 0);
  if (axis < 0) axis += track->rank;
  if (!joins_itself(node) || axis < 0 || axis >= track->rank) return false;
  for (uint32_t i = 0; i < track->rank; i++) {
    if (i == axis && !add_label(&result, (Label){-1, dim_of(node->input_count)})) return false;
    for (uint32_t at = axis_start(track, i); at < track->ends[i]; at++) {
      if (!add_label(&result, track->labels[at])) return false;
    }
    result.ends[i] = result.count;
  }
  *track = result;
  return true;
}

/* The only node that reads the value, be it several times. */
static Node *only_reader(const Value *value) {
  Node *node = value->uses ? value->uses->node : NULL;
  for (const Use *use = value->uses; use; use = use->next) {
    if (!use->node || use->node != node) return NULL;
  }
  return node && joins_itself(node) ? node : value_only_user(value);
}

static bool moves_elements(const Node *node) {
  return node_is(node, OP_Transpose) || node_is(node, OP_Reshape) || node_is(node, OP_Unsqueeze) ||
         node_is(node, OP_Squeeze);
}

static bool follow(Finder *finder, Chain *chain, Node *node, const Value *value) {
  if (node->output_count != 1 || chain->count == LONGEST_CHAIN) return false;
  bool followed = false;
  if (node_is(node, OP_MatMul)) followed = follow_product(finder, chain, node, value);
  else if (node_input(node, 0) != value) followed = false;
  else if (node_is(node, OP_Transpose)) followed = permute_track(&chain->track, node);
  else if (is_cast_of_floats(node)) followed = true;
  else if (moves_elements(node)) {
    followed = regroup(finder->rewriter.context, &chain->track, node->outputs[0]->type);
  } else if (node_is(node, OP_Gather)) followed = follow_gather(finder, chain, node);
  else if (node_is(node, OP_Expand) || node_is(node, OP_Tile)) followed = follow_expand(chain, node);
  else if (node_is(node, OP_Concat)) followed = follow_join(chain, node);
  else if (node_is(node, OP_Mul)) followed = is_uniform_number(node_input(node, 1), 1) && follow_expand(chain, node);
  if (followed) chain->nodes[chain->count++] = node;
  return followed;
}

/* The next axis of size 1 of the source. */
static int next_one(Type source, int after) {
  do after++;
  while (after < (int)source.rank && !dim_is(source.dims[after], 1));
  return after < (int)source.rank ? after : -1;
}

/* Is every axis one of the source's, each there once, some of them repeated? Their order then is the result's. */
static bool is_complete(const Chain *chain, AxisChange changes[MOST_LABELS], AxisOrder *order) {
  const Track *track = &chain->track;
  uint32_t rank = chain->source->type.rank;
  bool seen[MOST_LABELS] = {false}, any = false;
  int one = -1;
  if (track->rank != rank || rank > MOST_PERMUTED) return false;
  memcpy(changes, chain->changes, sizeof chain->changes);
  *order = (AxisOrder){.rank = rank};
  for (uint32_t i = 0; i < rank; i++) {
    uint32_t at = axis_start(track, i);
    if (at == track->ends[i]) return false;
    int source = track->labels[at].source;
    if (source < 0 && dim_is(track->labels[at].size, 1) && track->ends[i] == at + 1) {
      source = one = next_one(chain->source->type, one);
    }
    if (source < 0 || seen[source]) return false;
    seen[source] = true;
    order->from[i] = source;
    order->to[source] = i;
    int64_t factor = 1;
    for (at++; at < track->ends[i]; at++) {
      if (track->labels[at].source >= 0) return false;
      factor *= track->labels[at].size.constant;
    }
    AxisChange *change = &changes[source];
    if (factor != 1 && change->kind != RESIZE_NONE) return false;
    if (factor != 1) {
      Dim from = chain->source->type.dims[source];
      int64_t size = dim_is_constant(from) ? from.constant : -1;
      *change =
          (AxisChange){.kind = RESIZE_REPEAT, .from = size, .to = size < 0 ? -1 : size * factor, .factor = factor};
    }
    any = any || change->kind != RESIZE_NONE;
  }
  return any;
}

/* ---- the operator ---- */

/* Sizes are said where all are known. Else scales give them, a size that is not known being whole times as large, or
 * they are put together when the model runs. */
typedef enum SizesBy { SIZES_NOT_KNOWN, SIZES_CONSTANT, SIZES_BY_SCALES, SIZES_COMPUTED } SizesBy;

typedef struct Plan {
  Chain *chain;
  size_t length; /* nodes of the chain that it replaces */
  AxisChange changes[MOST_LABELS];
  AxisOrder order; /* of the source's axes in the result */
  ResizeKind kind;
  AxisOrder turn; /* what brings the source into an order that runs */
  bool batched;   /* with a batch of 1 put before its axes, which the runtime wants to be four */
  bool widened;   /* from a half, which the runtime does not take, and back */
  SizesBy sizes_by;
  size_t new_nodes;
} Plan;

static ResizeKind resize_with_antialias(ResizeKind kind) {
  return kind == RESIZE_LINEAR ? RESIZE_LINEAR_ANTIALIAS : kind == RESIZE_CUBIC ? RESIZE_CUBIC_ANTIALIAS : kind;
}

/* What grows is the same with and without: a kind with it is right for all axes that have it or grow. */
static bool grows_without_antialias(const Plan *plan, uint32_t rank) {
  for (uint32_t i = 0; i < rank; i++) {
    const AxisChange *change = &plan->changes[i];
    bool is_other = resize_is_antialias(plan->kind) && change->kind != plan->kind;
    if (change->kind != RESIZE_NONE && is_other && (change->from < 0 || change->to < change->from)) return false;
  }
  return true;
}

/* One kind for all axes: repeating is a nearest neighbour too. What is repeated along one axis is hardly an image. */
static bool find_kind(Plan *plan, uint32_t rank) {
  uint32_t count = 0;
  plan->kind = RESIZE_NONE;
  for (uint32_t i = 0; i < rank; i++) count += plan->changes[i].kind != RESIZE_NONE;
  for (uint32_t i = 0; i < rank; i++) {
    ResizeKind kind = plan->changes[i].kind;
    if (kind == RESIZE_NONE) continue;
    if (kind == RESIZE_REPEAT && count == 1) return false;
    if (kind == plan->kind) continue;
    if (plan->kind == RESIZE_NONE) plan->kind = kind;
    else if (resize_is_nearest(kind) && resize_is_nearest(plan->kind)) plan->kind = RESIZE_NEAREST;
    else if (resize_with_antialias(kind) == resize_with_antialias(plan->kind)) plan->kind = resize_with_antialias(kind);
    else return false;
  }
  return plan->kind != RESIZE_NONE && grows_without_antialias(plan, rank);
}

static SizesBy how_sizes_are_said(const Plan *plan, Type source) {
  bool symbolic = false, scales = true, computed = true;
  for (uint32_t i = 0; i < source.rank; i++) {
    const AxisChange *change = &plan->changes[i];
    bool changes = change->kind != RESIZE_NONE;
    if (dim_is(source.dims[i], 0)) return SIZES_NOT_KNOWN;
    symbolic = symbolic || (changes ? change->to < 0 : !dim_is_constant(source.dims[i]));
    if (!changes) continue;
    computed = computed && (change->to >= 0 || change->computed);
    if (change->factor > 0) continue;
    scales = scales && dim_is_constant(source.dims[i]) && resize_scale(change->from, change->to) > 0;
  }
  return !symbolic ? SIZES_CONSTANT : scales ? SIZES_BY_SCALES : computed ? SIZES_COMPUTED : SIZES_NOT_KNOWN;
}

/* Is the size not known before or after, so that weights or neighbours are computed? */
static bool is_computed(const AxisChange *change) {
  return change->kind != RESIZE_NONE && change->kind != RESIZE_REPEAT && change->from < 0;
}

/* Do the axes that change, in this order of all, run? */
static bool runs_in(const Model *model, const Plan *plan, const AxisOrder *order) {
  bool changed[MOST_PERMUTED + 1] = {false}, shrinks = false;
  uint32_t added = plan->batched;
  for (uint32_t i = 0; i < order->rank; i++) {
    const AxisChange *change = &plan->changes[order->from[i]];
    changed[i + added] = change->kind != RESIZE_NONE;
    shrinks = shrinks || (changed[i + added] && change->to < change->from);
    shrinks = shrinks || (is_computed(change) && !change->factor);
  }
  return resize_runs_on(model, plan->kind, order->rank + added, changed, shrinks);
}

/* The order with the changed axes last, where they have to be. */
static bool find_turn(const Model *model, Plan *plan, uint32_t rank) {
  AxisOrder *turn = &plan->turn;
  *turn = (AxisOrder){.rank = rank};
  for (uint32_t i = 0; i < rank; i++) turn->from[i] = i;
  if (!runs_in(model, plan, turn)) {
    uint32_t at = 0;
    for (uint32_t pass = 0; pass < 2; pass++) {
      for (uint32_t i = 0; i < rank; i++) {
        if ((plan->changes[i].kind != RESIZE_NONE) == (pass == 1)) turn->from[at++] = i;
      }
    }
  }
  for (uint32_t i = 0; i < rank; i++) turn->to[turn->from[i]] = i;
  return runs_in(model, plan, turn);
}

static bool make_plan(Finder *finder, Chain *chain, Plan *plan) {
  Type source = chain->source->type;
  int64_t opset = finder->rewriter.model->opset;
  if (!find_kind(plan, source.rank)) return false;
  const char *variant = resize_is_nearest(plan->kind) ? NULL : resize_is_cubic(plan->kind) ? "cubic" : "linear";
  plan->widened = dtype_is_half(source.dtype) && !schema_runs(OP_Resize, variant, opset, source.dtype);
  if (!schema_runs(OP_Resize, variant, opset, plan->widened ? DTYPE_FLOAT32 : source.dtype)) return false;
  if (chain->nodes[chain->count - 1]->outputs[0]->type.dtype != source.dtype) return false;
  if (resize_is_antialias(plan->kind) && opset < ANTIALIAS) return false;
  plan->sizes_by = how_sizes_are_said(plan, source);
  if (plan->sizes_by == SIZES_NOT_KNOWN) return false;
  plan->batched = source.rank == 3 && plan->kind != RESIZE_LINEAR && !resize_is_nearest(plan->kind);
  if (!find_turn(finder->rewriter.model, plan, source.rank)) return false;
  AxisOrder rest = order_then(order_inverse(plan->turn), plan->order);
  plan->chain = chain;
  plan->length = chain->count;
  plan->new_nodes = 1 + (size_t)!order_is_identity(&plan->turn) + (size_t)!order_is_identity(&rest);
  if (plan->batched) plan->new_nodes += 2;
  if (plan->widened) plan->new_nodes += 2;
  for (uint32_t i = 0; i < source.rank; i++) {
    if (is_computed(&plan->changes[i])) return true; /* by many nodes */
  }
  return plan->new_nodes < plan->length;
}

static Node *new_node(Finder *finder, const Node *root, Op op, Value *const *inputs, size_t count, Type type,
                      Node *before) {
  const Origin *origin = root->origin;
  Rewriter *rewriter = &finder->rewriter;
  origin = origin_with_emitter(rewriter->model->provenance, origin, REWRITE_EMITTER(rewriter));
  return graph_node(root->graph, origin, op, inputs, count, &type, 1, before);
}

static Value *transposed(Finder *finder, Node *root, Value *value, const AxisOrder *order) {
  if (order_is_identity(order)) return value;
  Type type = order_type(finder->rewriter.context, value->type, order);
  Node *node = new_node(finder, root, OP_Transpose, &value, 1, type, root);
  node_set_ints(node, "perm", order->from, order->rank);
  return node->outputs[0];
}

static Value *converted(Finder *finder, Node *root, Value *value, DType dtype) {
  return rewrite_in_type(&finder->rewriter, root, root->origin, value, dtype);
}

static void set_mode(Node *node, ResizeKind kind) {
  bool cubic = resize_is_cubic(kind);
  node_set_string(node, "mode", resize_is_nearest(kind) ? "nearest" : cubic ? "cubic" : "linear");
  node_set_string(node, "coordinate_transformation_mode", kind == RESIZE_REPEAT ? "asymmetric" : "half_pixel");
  if (resize_is_nearest(kind))
    node_set_string(node, "nearest_mode", kind == RESIZE_REPEAT ? "floor" : "round_prefer_ceil");
  if (cubic) node_set_float(node, "cubic_coeff_a", -0.5f);
  if (cubic || resize_is_antialias(kind)) node_set_int(node, "exclude_outside", 1);
  if (resize_is_antialias(kind)) node_set_int(node, "antialias", 1);
}

static Value *scales_input(Finder *finder, Node *root, const float *scales, size_t count) {
  Arena *arena = &finder->rewriter.context->arena;
  Tensor *tensor = arena_new(arena, Tensor);
  int64_t length = (int64_t)count;
  *tensor = (Tensor){.dtype = DTYPE_FLOAT32, .rank = 1, .size = count * sizeof *scales};
  tensor->dims = arena_copy(arena, &length, sizeof length);
  tensor->data = arena_copy(arena, scales, tensor->size);
  return rewrite_constant(&finder->rewriter, root, tensor, root->origin);
}

/* The value with a batch of 1 before its axes, or without it. */
static Value *with_batch(Finder *finder, Node *root, Value *value, Op op) {
  const int64_t axis = 0;
  Dim dims[MOST_PERMUTED + 1] = {dim_of(1)};
  uint32_t rank = value->type.rank;
  for (uint32_t i = 0; i < rank; i++) dims[i + 1] = value->type.dims[i];
  Type type = op == OP_Unsqueeze ? type_make(finder->rewriter.context, value->type.dtype, dims, rank + 1)
                                 : type_make(finder->rewriter.context, value->type.dtype, dims + 2, rank - 1);
  Value *inputs[] = {value, rewrite_constant_ints(&finder->rewriter, root, &axis, 1, root->origin)};
  return new_node(finder, root, op, inputs, 2, type, root)->outputs[0];
}

/* ONNX Runtime's own handling of Transposes takes sizes or scales for all axes: none is left out by `axes`. */
static Node *emit_resize(Finder *finder, const Plan *plan, Node *root, Value *x) {
  Context *context = finder->rewriter.context;
  uint32_t rank = x->type.rank, added = plan->batched;
  int64_t numbers[MOST_PERMUTED + 1];
  float scales[MOST_PERMUTED + 1];
  Dim dims[MOST_PERMUTED + 1];
  ResultSize sizes[MOST_PERMUTED + 1];
  for (uint32_t i = 0; i < rank; i++) {
    dims[i] = x->type.dims[i];
    scales[i] = 1;
    const AxisChange *change = i < added ? NULL : &plan->changes[plan->turn.from[i - added]];
    bool changes = change && change->kind != RESIZE_NONE;
    if (changes) {
      dims[i] = change->to >= 0      ? dim_of(change->to)
                : change->factor > 0 ? dim_multiply(context, dims[i], dim_of(change->factor))
                                     : change->size;
      scales[i] = change->factor > 0 ? (float)change->factor : resize_scale(change->from, change->to);
    }
    numbers[i] = dims[i].constant;
    sizes[i] = (ResultSize){changes, dims[i], changes && !dim_is_constant(dims[i]) ? change->computed : NULL};
  }
  Rewriter *rewriter = &finder->rewriter;
  bool scaled = plan->sizes_by == SIZES_BY_SCALES;
  Value *inputs[] = {x, NULL, NULL, NULL};
  if (scaled) inputs[2] = scales_input(finder, root, scales, rank);
  else if (plan->sizes_by == SIZES_COMPUTED) inputs[3] = emit_result_sizes(rewriter, root, x, sizes);
  else inputs[3] = rewrite_constant_ints(rewriter, root, numbers, rank, root->origin);
  Type type = type_make(context, x->type.dtype, dims, rank);
  Node *node = new_node(finder, root, OP_Resize, inputs, scaled ? 3 : 4, type, root);
  set_mode(node, plan->kind);
  return node;
}

static void hand_over_weights(Finder *finder, Node *receiver, const Value *value, int *budget) {
  Node *node = value ? value->producer : NULL;
  if (!node || unread_constant_of(value) || --*budget < 0) return;
  rewrite_hand_over(&finder->rewriter, receiver, node);
  for (uint32_t i = 0; i < node->input_count; i++) {
    hand_over_weights(finder, receiver, node->inputs[i].value, budget);
  }
}

static void apply(Finder *finder, const Plan *plan) {
  Rewriter *rewriter = &finder->rewriter;
  Node *const *nodes = plan->chain->nodes;
  Node *root = nodes[plan->length - 1];
  Value *x = plan->chain->source;
  DType half = x->type.dtype;
  if (plan->widened) x = converted(finder, root, x, DTYPE_FLOAT32);
  x = transposed(finder, root, x, &plan->turn);
  if (plan->batched) x = with_batch(finder, root, x, OP_Unsqueeze);
  Node *resize = emit_resize(finder, plan, root, x);
  Value *result = resize->outputs[0];
  if (plan->batched) result = with_batch(finder, root, result, OP_Squeeze);
  AxisOrder rest = order_then(order_inverse(plan->turn), plan->order);
  result = transposed(finder, root, result, &rest);
  if (plan->widened) result = converted(finder, root, result, half);
  const Value *value = plan->chain->source;
  for (size_t i = 0; i < plan->length; i++) {
    Node *node = nodes[i];
    rewrite_hand_over(rewriter, resize, node);
    *map_slot_pointer(rewriter->context, &finder->gone, node) = node;
    for (uint32_t k = 0; k < node->input_count; k++) {
      int budget = MOST_WEIGHT_NODES;
      bool matrix = node_is(node, OP_MatMul) || (node_is(node, OP_Gather) && k == 1);
      if (matrix && node->inputs[k].value != value) hand_over_weights(finder, resize, node->inputs[k].value, &budget);
    }
    value = node->outputs[0];
  }
  rewrite_replace(rewriter, root, result);
  for (size_t i = plan->length - 1; i-- > 0;) rewrite_drop_unused(rewriter, nodes[i], resize);
}

/* ---- the walk ---- */

/* Follows the chain from the source through `first` on as far as it goes; the plan is of the last place that is whole.
 */
static bool plan_from(Finder *finder, Value *source, Node *first, Chain *chain, Plan *plan) {
  bool found = false;
  *chain = (Chain){.source = source};
  if (source->type.dtype == DTYPE_NONE || source->type.rank < 2 || source->type.rank > MOST_PERMUTED) return false;
  chain->track = track_source(source->type);
  if (dtype_is_half(source->type.dtype)) chain->rounded = source->type.dtype;
  else if (source->producer && is_cast_of_floats(source->producer)) {
    chain->rounded = node_input(source->producer, 0)->type.dtype;
  }
  Value *value = source;
  for (Node *node = first; node && node->graph == first->graph && follow(finder, chain, node, value);) {
    Plan here = {0};
    if (is_complete(chain, here.changes, &here.order) && make_plan(finder, chain, &here)) {
      *plan = here;
      found = true;
    }
    value = node->outputs[0];
    node = only_reader(value);
  }
  return found;
}

static void try_candidate(Finder *finder, Node *node) {
  if (map_get_pointer(&finder->gone, node)) return;
  bool product = node_is(node, OP_MatMul);
  for (uint32_t input = 0; input < (product ? 2u : 1u); input++) {
    Node *path[MOST_ABOVE + 1] = {node};
    Value *sources[MOST_ABOVE + 1] = {node_input(node, input)};
    size_t count = 1;
    for (Node *above; count <= MOST_ABOVE; count++) {
      above = sources[count - 1] ? sources[count - 1]->producer : NULL;
      if (!above || (!moves_elements(above) && !is_cast_of_floats(above)) || above->graph != node->graph ||
          !value_only_user(above->outputs[0]))
        break;
      path[count] = above;
      sources[count] = node_input(above, 0);
    }
    while (count-- > 0) {
      Plan plan;
      if (!sources[count] || unread_constant_of(sources[count])) continue;
      if (!plan_from(finder, sources[count], path[count], &finder->chain, &plan)) continue;
      apply(finder, &plan);
      return;
    }
  }
}

static void collect(Rewriter *rewriter, Node *node) {
  Finder *finder = (Finder *)rewriter;
  bool candidate = node_is(node, OP_MatMul) || node_is(node, OP_Gather) || node_is(node, OP_Expand) ||
                   node_is(node, OP_Tile) || joins_itself(node) ||
                   (node_is(node, OP_Mul) && is_uniform_number(node_input(node, 1), 1));
  if (candidate && node->output_count == 1) array_push(rewriter->context, &finder->candidates, node);
}

bool fuse_resize(Model *model) {
  Finder finder = {0};
  rewrite_begin(&finder.rewriter, model, __func__);
  rewrite_each_node(&finder.rewriter, collect);
  for (size_t i = 0; i < finder.candidates.count; i++) try_candidate(&finder, finder.candidates.items[i]);
  return rewrite_end(&finder.rewriter);
}
