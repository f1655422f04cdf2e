/* Operators in another order of axes. */
#include "passes/layout/permute_axes.h"

#include "base/bytes.h"
#include "passes/analysis/resize_weights.h"
#include "passes/pattern.h"

/* ---- orders ---- */

static void set_inverse(AxisOrder *order) {
  for (uint32_t i = 0; i < order->rank; i++) order->to[order->from[i]] = i;
}

static bool order_of_transpose(const Node *transpose, AxisOrder *order) {
  const Attribute *given = node_attribute(transpose, "perm");
  uint32_t rank = order->rank;
  bool seen[MOST_PERMUTED] = {false};
  if (given && (given->kind != ATTRIBUTE_INTS || given->count != rank)) return false;
  for (uint32_t i = 0; i < rank; i++) {
    int64_t axis = given ? given->integers[i] : (int64_t)(rank - 1 - i);
    if (axis < 0 || axis >= (int64_t)rank || seen[axis]) return false;
    seen[axis] = true;
    order->from[i] = axis;
  }
  return true;
}

static int64_t next_axis(Type type, int64_t after, bool of_size_1) {
  do after++;
  while (after < (int64_t)type.rank && dim_is(type.dims[after], 1) != of_size_1);
  return after;
}

/* The other axes come in their order, and so do those of size 1. */
static bool order_of_reshape(const Node *reshape, AxisOrder *order) {
  Type from = node_input(reshape, 0)->type, to = reshape->outputs[0]->type;
  int64_t one = -1, other = -1;
  if (from.dtype == DTYPE_NONE || from.rank != to.rank || !constant_of(node_input(reshape, 1))) return false;
  for (uint32_t i = 0; i < to.rank; i++) {
    bool of_size_1 = dim_is(to.dims[i], 1);
    int64_t *at = of_size_1 ? &one : &other;
    *at = next_axis(from, *at, of_size_1);
    if (*at >= (int64_t)from.rank || !dim_equal(from.dims[*at], to.dims[i])) return false;
    order->from[i] = *at;
  }
  return true;
}

bool transpose_order(const Node *node, AxisOrder *order) {
  if (!node->outputs[0] || !node_input(node, 0)) return false;
  Type type = node->outputs[0]->type;
  if (type.dtype == DTYPE_NONE || type.rank > MOST_PERMUTED) return false;
  *order = (AxisOrder){.rank = type.rank};
  bool found = node_is(node, OP_Transpose) ? order_of_transpose(node, order)
               : node_is(node, OP_Reshape) ? order_of_reshape(node, order)
                                           : false;
  if (found) set_inverse(order);
  return found;
}

AxisOrder order_inverse(AxisOrder order) {
  AxisOrder inverse = {.rank = order.rank};
  memcpy(inverse.from, order.to, sizeof order.to);
  memcpy(inverse.to, order.from, sizeof order.from);
  return inverse;
}

AxisOrder order_without(const AxisOrder *order, int64_t axis) {
  AxisOrder rest = {.rank = 0};
  for (uint32_t i = 0; i < order->rank; i++) {
    if (i == axis) continue;
    int64_t from = order->from[i] - (order->from[i] > order->from[axis]);
    rest.to[from] = rest.rank;
    rest.from[rest.rank++] = from;
  }
  return rest;
}

AxisOrder order_then(AxisOrder first, AxisOrder second) {
  AxisOrder both = {.rank = first.rank};
  for (uint32_t i = 0; i < first.rank; i++) both.from[i] = first.from[second.from[i]];
  set_inverse(&both);
  return both;
}

bool order_equal(const AxisOrder *a, const AxisOrder *b) {
  return a->rank == b->rank && same_bytes(a->from, b->from, a->rank * sizeof *a->from);
}

bool order_is_identity(const AxisOrder *order) {
  for (uint32_t i = 0; i < order->rank; i++) {
    if (order->from[i] != (int64_t)i) return false;
  }
  return true;
}

bool order_changes_nothing(Type type, const AxisOrder *order) {
  int64_t last = -1;
  if (type.rank != order->rank) return false; /* a file need not say the types in between */
  for (uint32_t i = 0; i < order->rank; i++) {
    if (!dim_equal(type.dims[i], type.dims[order->from[i]])) return false;
    if (dim_is(type.dims[i], 1)) continue;
    if (order->from[i] < last) return false;
    last = order->from[i];
  }
  return true;
}

Type order_type(Context *context, Type type, const AxisOrder *order) {
  Dim dims[MOST_PERMUTED];
  if (type.rank != order->rank) return type;
  for (uint32_t i = 0; i < order->rank; i++) dims[i] = type.dims[order->from[i]];
  return type_make(context, type.dtype, dims, type.rank);
}

bool order_keeps_elements(Type type, const AxisOrder *order) {
  int64_t missing = (int64_t)order->rank - (int64_t)type.rank, last = -1;
  for (uint32_t i = 0; i < order->rank; i++) {
    int64_t axis = order->from[i] - missing;
    if (axis < 0 || dim_is(type.dims[axis], 1)) continue;
    if (axis < last) return false;
    last = axis;
  }
  return true;
}

/* ---- the table ---- */

typedef bool CheckFunction(const Node *node);
typedef bool AllowFunction(const Node *node, const AxisOrder *order);
typedef void PermuteFunction(Rewriter *rewriter, Node *node, const AxisOrder *order);

struct PermuteRow {
  bool all_inputs;          /* else the first alone has the axes of the result */
  CheckFunction *check;     /* or NULL */
  PermuteFunction *permute; /* or NULL: nothing names an axis */
  AllowFunction *allows;    /* or NULL: any order */
};

static int64_t rank_of(const Node *node) { return node_input(node, 0)->type.rank; }

static bool axis_is_valid(int64_t axis, int64_t rank) { return axis >= -rank && axis < rank; }

static int64_t permuted_axis(int64_t axis, const AxisOrder *order) {
  return order->to[axis < 0 ? axis + (int64_t)order->rank : axis];
}

/* The integers of a constant input, or NULL. */
static const int64_t *constant_ints(const Node *node, uint32_t input, size_t *count) {
  const Tensor *tensor = constant_of(node_input(node, input));
  if (!tensor || tensor->dtype != DTYPE_INT64) return NULL;
  *count = tensor->size / sizeof(int64_t);
  return tensor->data;
}

static bool are_axes(const int64_t *axes, size_t count, int64_t rank) {
  if (!axes || count > MOST_PERMUTED) return false;
  for (size_t i = 0; i < count; i++) {
    if (!axis_is_valid(axes[i], rank)) return false;
  }
  return true;
}

static void set_ints(Rewriter *rewriter, Node *node, uint32_t input, const int64_t *values, size_t count) {
  use_set(&node->inputs[input], rewrite_constant_ints(rewriter, node, values, count, node->origin));
}

static void permute_axes_input(Rewriter *rewriter, Node *node, uint32_t input, const AxisOrder *order) {
  size_t count = 0;
  const int64_t *axes = constant_ints(node, input, &count);
  int64_t permuted[MOST_PERMUTED];
  for (size_t i = 0; i < count; i++) permuted[i] = permuted_axis(axes[i], order);
  set_ints(rewriter, node, input, permuted, count);
}

static void permute_axes_attribute(Node *node, const AxisOrder *order) {
  const Attribute *axes = node_attribute(node, "axes");
  int64_t permuted[MOST_PERMUTED];
  for (size_t i = 0; i < axes->count; i++) permuted[i] = permuted_axis(axes->integers[i], order);
  node_set_ints(node, "axes", permuted, axes->count);
}

/* ---- an axis: Concat, Softmax, … ---- */

static bool has_axis(const Node *node) {
  const Attribute *axis = node_attribute(node, "axis");
  return axis && axis->kind == ATTRIBUTE_INT && !axis->reference && axis_is_valid(axis->integer, rank_of(node));
}

static bool has_axis_and_keeps_it(const Node *node) { return has_axis(node) && node_int_or(node, "keepdims", 1) != 0; }

static void permute_axis(Rewriter *rewriter, Node *node, const AxisOrder *order) {
  (void)rewriter;
  node_set_int(node, "axis", permuted_axis(node_int_or(node, "axis", 0), order));
}

/* The indices have one axis, so the rank stays. */
static bool gathers_along_axis(const Node *node) {
  return has_axis(node) && node_input(node, 1) && node_input(node, 1)->type.rank == 1 &&
         node_input(node, 1)->type.dtype != DTYPE_NONE;
}

/* CumSum's axis is a constant scalar. */
static bool has_axis_input(const Node *node) {
  size_t count = 0;
  const int64_t *axis = constant_ints(node, 1, &count);
  return axis && count == 1 && axis_is_valid(*axis, rank_of(node));
}

static void permute_axis_input(Rewriter *rewriter, Node *node, const AxisOrder *order) {
  Arena *arena = &rewriter->context->arena;
  Tensor *tensor = arena_copy(arena, constant_of(node_input(node, 1)), sizeof(Tensor));
  int64_t axis = permuted_axis(*(const int64_t *)tensor->data, order);
  tensor->data = arena_copy(arena, &axis, sizeof axis);
  use_set(&node->inputs[1], rewrite_constant(rewriter, node, tensor, node->origin));
}

/* ---- reductions ---- */

static bool names_its_axes(const Node *node) {
  const Attribute *attribute = node_attribute(node, "axes");
  size_t count = 0;
  if (attribute) {
    return attribute->kind == ATTRIBUTE_INTS && are_axes(attribute->integers, attribute->count, rank_of(node));
  }
  const int64_t *axes = constant_ints(node, 1, &count);
  return count > 0 && are_axes(axes, count, rank_of(node));
}

static bool keeps_named_axes(const Node *node) { return node_int_or(node, "keepdims", 1) != 0 && names_its_axes(node); }

static void permute_reduction(Rewriter *rewriter, Node *node, const AxisOrder *order) {
  if (node_attribute(node, "axes")) permute_axes_attribute(node, order);
  else permute_axes_input(rewriter, node, 1, order);
}

/* ---- sizes for every axis: Slice, Pad, Expand, Tile, Resize ---- */

static bool slices_named_axes(const Node *node) {
  size_t count = 0;
  const int64_t *axes = constant_ints(node, 3, &count);
  return are_axes(axes, count, rank_of(node));
}

static void permute_slice(Rewriter *rewriter, Node *node, const AxisOrder *order) {
  permute_axes_input(rewriter, node, 3, order);
}

static bool pads_constantly(const Node *node) {
  size_t count = 0, named = 0;
  if (node_input(node, 3)) return are_axes(constant_ints(node, 3, &named), named, rank_of(node));
  return constant_ints(node, 1, &count) && count == 2 * (size_t)rank_of(node);
}

static void permute_pads(Rewriter *rewriter, Node *node, const AxisOrder *order) {
  size_t count = 0;
  if (node_input(node, 3)) {
    permute_axes_input(rewriter, node, 3, order);
    return;
  }
  const int64_t *pads = constant_ints(node, 1, &count);
  int64_t permuted[2 * MOST_PERMUTED];
  for (uint32_t i = 0; i < order->rank; i++) {
    permuted[i] = pads[order->from[i]];
    permuted[order->rank + i] = pads[(int64_t)order->rank + order->from[i]];
  }
  set_ints(rewriter, node, 1, permuted, count);
}

static bool has_size_per_axis(const Node *node) {
  size_t count = 0;
  return constant_ints(node, 1, &count) && count == node->outputs[0]->type.rank;
}

static bool repeats_every_axis(const Node *node) {
  return has_size_per_axis(node) && node->outputs[0]->type.rank == (uint32_t)rank_of(node);
}

static void permute_sizes_at(Rewriter *rewriter, Node *node, uint32_t input, const AxisOrder *order) {
  size_t count = 0;
  const int64_t *sizes = constant_ints(node, input, &count);
  int64_t permuted[MOST_PERMUTED];
  for (uint32_t i = 0; i < order->rank; i++) permuted[i] = sizes[order->from[i]];
  set_ints(rewriter, node, input, permuted, count);
}

static void permute_sizes(Rewriter *rewriter, Node *node, const AxisOrder *order) {
  permute_sizes_at(rewriter, node, 1, order);
}

/* Resize by sizes or by scales, with no region of interest. */
static bool resizes_constantly(const Node *node) {
  size_t count = 0;
  const Attribute *axes = node_attribute(node, "axes");
  if (node_input(node, 1)) return false;
  if (axes) return axes->kind == ATTRIBUTE_INTS && are_axes(axes->integers, axes->count, rank_of(node));
  if (node_input(node, 3)) return constant_ints(node, 3, &count) && count == (size_t)rank_of(node);
  const Tensor *scales = constant_of(node_input(node, 2));
  return scales && scales->dtype == DTYPE_FLOAT32 && scales->size == (size_t)rank_of(node) * sizeof(float);
}

static ResizeKind resize_kind(const Node *node) {
  const Attribute *mode = node_attribute(node, "mode");
  if (!mode || strcmp(mode->string, "nearest") == 0) return RESIZE_NEAREST;
  if (strcmp(mode->string, "linear") == 0) return RESIZE_LINEAR;
  return node_int_or(node, "antialias", 0) ? RESIZE_CUBIC_ANTIALIAS : RESIZE_CUBIC;
}

static bool resizes_in_order(const Node *node, const AxisOrder *order) {
  bool changed[MOST_PERMUTED];
  Type from = node_input(node, 0)->type, to = node->outputs[0]->type;
  for (uint32_t i = 0; i < order->rank; i++) {
    changed[i] = !dim_equal(from.dims[order->from[i]], to.dims[order->from[i]]);
  }
  return resize_runs_on(node->graph->model, resize_kind(node), order->rank, changed, false);
}

static bool has_one_scale(const Node *node) { return node_input(node, 1) && node_input(node, 1)->type.rank == 0; }

static void permute_resize(Rewriter *rewriter, Node *node, const AxisOrder *order) {
  if (node_attribute(node, "axes")) {
    permute_axes_attribute(node, order);
    return;
  }
  if (node_input(node, 3)) {
    permute_sizes_at(rewriter, node, 3, order);
    return;
  }
  const Tensor *scales = constant_of(node_input(node, 2));
  float permuted[MOST_PERMUTED];
  for (uint32_t i = 0; i < order->rank; i++) permuted[i] = ((const float *)scales->data)[order->from[i]];
  Tensor *tensor = arena_copy(&rewriter->context->arena, scales, sizeof *scales);
  tensor->data = arena_copy(&rewriter->context->arena, permuted, scales->size);
  use_set(&node->inputs[2], rewrite_constant(rewriter, node, tensor, node->origin));
}

/* clang-format off */
static const PermuteRow elementwise = {true, NULL, NULL, NULL};
static const PermuteRow reduction = {false, keeps_named_axes, permute_reduction, NULL};

static const PermuteRow rows[OP_COUNT] = {
    [OP_ArgMax] = {false, has_axis_and_keeps_it, permute_axis, NULL},
    [OP_ArgMin] = {false, has_axis_and_keeps_it, permute_axis, NULL},
    [OP_Concat] = {true, has_axis, permute_axis, NULL},
    [OP_CumSum] = {false, has_axis_input, permute_axis_input, NULL},
    [OP_DequantizeLinear] = {false, has_one_scale, NULL, NULL},
    [OP_Expand] = {false, has_size_per_axis, permute_sizes, NULL},
    [OP_Gather] = {false, gathers_along_axis, permute_axis, NULL},
    [OP_Hardmax] = {false, has_axis, permute_axis, NULL},
    [OP_LogSoftmax] = {false, has_axis, permute_axis, NULL},
    [OP_LpNormalization] = {false, has_axis, permute_axis, NULL},
    [OP_Pad] = {false, pads_constantly, permute_pads, NULL},
    [OP_QuantizeLinear] = {false, has_one_scale, NULL, NULL},
    [OP_Resize] = {false, resizes_constantly, permute_resize, resizes_in_order},
    [OP_Slice] = {false, slices_named_axes, permute_slice, NULL},
    [OP_Softmax] = {false, has_axis, permute_axis, NULL},
    [OP_Split] = {false, has_axis, permute_axis, NULL},
    [OP_Tile] = {false, repeats_every_axis, permute_sizes, NULL},
    [OP_TopK] = {false, has_axis, permute_axis, NULL},
};
/* clang-format on */

static const PermuteRow *row_of(const Node *node) {
  if (node_has(node, ELEMENTWISE)) return &elementwise;
  if (node_has(node, REDUCES)) return &reduction;
  return rows[node->op].check ? &rows[node->op] : NULL;
}

const PermuteRow *permutable(const Node *node) {
  const PermuteRow *row = row_of(node);
  if (!row || !node->outputs[0] || !node_input(node, 0)) return NULL;
  uint32_t rank = node->outputs[0]->type.rank;
  if (rank < 2 || rank > MOST_PERMUTED) return NULL;
  for (uint32_t i = 0; i < node->output_count; i++) {
    const Value *value = node->outputs[i];
    if (value && (value->type.dtype == DTYPE_NONE || value->type.rank != rank)) return NULL;
  }
  for (uint32_t i = 0; i < node->input_count; i++) {
    const Value *value = node->inputs[i].value;
    if (value && input_is_permuted(row, i) && (value->type.dtype == DTYPE_NONE || value->type.rank > rank)) return NULL;
  }
  return !row->check || row->check(node) ? row : NULL;
}

bool input_is_permuted(const PermuteRow *row, uint32_t input) { return row->all_inputs || input == 0; }

bool order_is_allowed(const PermuteRow *row, const Node *node, const AxisOrder *order) {
  return !row->allows || row->allows(node, order);
}

void permute_node(Rewriter *rewriter, Node *node, const PermuteRow *row, const AxisOrder *order) {
  if (row->permute) row->permute(rewriter, node, order);
  for (uint32_t i = 0; i < node->output_count; i++) {
    Value *value = node->outputs[i];
    if (value) value->type = order_type(rewriter->context, value->type, order);
  }
  rewriter->changed = true;
}

/* ---- users that a permutation is lost on ---- */

/* A 0 copies the size of the input in its place; -1 is what is left over. */
static bool reshapes_alike(const Node *reshape, Type type, const AxisOrder *order) {
  size_t count = 0;
  const int64_t *sizes = constant_ints(reshape, 1, &count);
  if (!sizes) return false;
  for (size_t i = 0; i < count; i++) {
    if (sizes[i] != 0) continue;
    if (node_int_or(reshape, "allowzero", 0)) return false;
    if (i >= type.rank || !dim_equal(type.dims[i], type.dims[order->from[i]])) return false;
  }
  return order_keeps_elements(type, order);
}

/* Do the axes that are left come in the order they had? */
static bool left_in_order(const bool dropped[MAX_RANK], const AxisOrder *order) {
  int64_t last = -1;
  for (uint32_t i = 0; i < order->rank; i++) {
    if (dropped[order->from[i]]) continue;
    if (order->from[i] < last) return false;
    last = order->from[i];
  }
  return true;
}

static bool drops_moved_axes(const Node *node, const AxisOrder *order) {
  bool dropped[MAX_RANK];
  if (!node_is(node, OP_Squeeze) && node_int_or(node, "keepdims", 1) != 0) return false;
  return names_its_axes(node) && reduced_axes(node, dropped) && left_in_order(dropped, order);
}

bool absorbs_order(const Node *user, const Value *value, const AxisOrder *order) {
  if (user->domain[0] || node_input(user, 0) != value || user->output_count != 1) return false;
  for (uint32_t i = 1; i < user->input_count; i++) {
    if (user->inputs[i].value == value) return false;
  }
  if (node_is(user, OP_Reshape)) return reshapes_alike(user, value->type, order);
  bool drops = node_is(user, OP_Squeeze) || node_has(user, REDUCES);
  return drops && drops_moved_axes(user, order);
}

void absorb_order(Rewriter *rewriter, Node *user, const AxisOrder *order) {
  if (!node_is(user, OP_Reshape)) permute_reduction(rewriter, user, order);
  rewriter->changed = true;
}
