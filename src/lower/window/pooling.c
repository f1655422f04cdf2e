/* Pooling: window reductions as MaxPool and AveragePool.
 *
 * A minimum is the negated maximum of negated elements, a sum the average times the size of the window. With
 * QUIRK_MAX_POOL_SKIPS_NAN a NaN is ignored, and a window of nothing but -inf gives the lowest finite float32: that is
 * lived with, for whoever pools wants MaxPool.
 */
#include "lower/window/pooling.h"
#include "onnx/facts/schema.h"

enum { AVERAGE_DILATION = 19 };

/* Spatial axes that the target pools over. */
static uint32_t most_pooled(const Lowering *l) {
  return target_quirk(l, QUIRK_POOLS_OVER_THREE_AXES) ? 3 : MAX_RANK - 2;
}

/* The order of axes that puts the ones to pool over last. */
typedef struct PoolLayout {
  int64_t order[MAX_RANK];
  size_t outer; /* axes before the spatial ones */
  size_t space;
} PoolLayout;

/* Has the second axis been put in for a program that has its channels last? It is no axis of channels then. */
static bool has_channels_last(const Value *operand, const WindowAxis *axes, uint32_t rank) {
  const Node *node = operand->producer;
  return rank > 3 && node && node_has(node, RENAMES) && node_input(node, 0)->type.rank < rank &&
         dim_is(axes[1].size, 1) && window_axis_is_trivial(&axes[rank - 1]) && !dim_is(axes[rank - 1].size, 1);
}

/* Axes that no window moves along may stand among the spatial ones: better than moving data. */
static bool find_layout(const Lowering *l, const Value *operand, const WindowAxis *axes, PoolLayout *layout) {
  uint32_t rank = operand->type.rank;
  size_t outer = 0, space = 0;
  for (uint32_t i = 0; i < rank; i++) {
    if (window_axis_is_trivial(&axes[i])) layout->order[outer++] = i;
  }
  for (uint32_t i = 0; i < rank; i++) {
    if (!window_axis_is_trivial(&axes[i])) layout->order[outer + space++] = i;
  }
  bool fits = rank >= 3 && rank <= 2 + most_pooled(l) && window_axis_is_trivial(&axes[0]);
  fits = fits && !(window_axis_is_trivial(&axes[1]) && has_channels_last(operand, axes, rank));
  bool channels_first = fits && window_axis_is_trivial(&axes[1]);
  if (channels_first || (fits && window_axis_is_trivial(&axes[rank - 1]))) {
    layout->order[0] = 0;
    layout->order[1] = channels_first ? 1 : (int64_t)rank - 1;
    for (uint32_t i = 2; i < rank; i++) layout->order[i] = channels_first ? i : i - 1;
    outer = 2;
    space = rank - 2;
  }
  layout->outer = outer;
  layout->space = space;
  return space >= 1 && space <= most_pooled(l);
}

/* The element type to pool in; DTYPE_NONE: none does it exactly. */
static DType pool_dtype(Lowering *l, Op op, DType dtype) {
  bool sum = op == OP_ReduceSum;
  if (sum && (!dtype_is_float(dtype) || dtype == DTYPE_FLOAT64)) return DTYPE_NONE;
  DType compute = compute_dtype(l, sum ? OP_AveragePool : OP_MaxPool, dtype);
  bool narrow = compute == DTYPE_INT8 || compute == DTYPE_UINT8; /* negated they may leave their range */
  return narrow && op == OP_ReduceMin ? DTYPE_FLOAT32 : compute;
}

/* Can the operator itself pad like this? Its padding must be smaller than the window. */
static bool pads_itself(const WindowAxis *axis) {
  if (!padding_is_constant(axis) || axis->low.constant < 0 || axis->high.constant < 0) return false;
  return axis->low.constant < axis->window.constant && axis->high.constant < axis->window.constant;
}

/* Does every window with gaps hold an element? It does when the gaps cannot step over all of them, of which there are
 * as many as the last window reaches, and the padding is smaller than the window, which is checked elsewhere. */
static bool gaps_meet_elements(const WindowAxis *axis) {
  const int64_t most = 1 << 30; /* so that no product here overflows */
  if (padding_is_zero(axis)) return true;
  if (!padding_is_constant(axis) || !dim_is_constant(axis->count)) return false;
  int64_t low = axis->low.constant, high = axis->high.constant, count = axis->count.constant;
  if (low < 0 || low > most || high < 0 || high > most || count < 1 || count > most) return false;
  if (axis->stride > most || axis->dilation > most || axis->window.constant > most) return false;
  int64_t reach = (count - 1) * axis->stride + (axis->window.constant - 1) * axis->dilation + 1;
  return reach - low - high >= axis->dilation;
}

/* Sums may be padded before with zeros, unless a whole window fits in where the target merges such a Pad into the
 * pooling. A maximum over padding alone would not be -inf: such windows are not pooled. */
static bool can_pool(Lowering *l, bool sum, const WindowAxis *axes, size_t space, AutoPad automatic, bool *pad_before) {
  *pad_before = false;
  for (size_t i = 0; i < space; i++) {
    const WindowAxis *axis = &axes[i];
    if (axis->base_dilation != 1 && !sum) return false;
    if (axis->dilation != 1) {
      if (sum && schema_version(OP_AveragePool, l->options->opset) < AVERAGE_DILATION) return false;
      if (!sum && !gaps_meet_elements(axis)) return false;
    }
    if (automatic != AUTO_PAD_NONE || (pads_itself(axis) && axis->base_dilation == 1)) continue;
    bool cut = padding_is_constant(axis) && axis->low.constant <= 0 && axis->high.constant <= 0;
    bool wide = padding_is_constant(axis) &&
                (axis->low.constant >= axis->window.constant || axis->high.constant >= axis->window.constant);
    if (sum ? wide && target_quirk(l, QUIRK_AVERAGE_POOL_TAKES_IN_PADS) : !cut) return false;
    *pad_before = true;
  }
  return true;
}

static void set_pool_attributes(Node *node, const WindowAxis *axes, size_t space, AutoPad automatic) {
  int64_t windows[MAX_RANK], strides[MAX_RANK], dilations[MAX_RANK], pads[2 * MAX_RANK];
  bool dilated = false;
  for (size_t i = 0; i < space; i++) {
    windows[i] = axes[i].window.constant;
    strides[i] = axes[i].stride;
    dilations[i] = axes[i].dilation;
    dilated = dilated || dilations[i] != 1;
    pads[i] = axes[i].low.constant;
    pads[space + i] = axes[i].high.constant;
  }
  node_set_ints(node, "kernel_shape", windows, space);
  node_set_ints(node, "strides", strides, space);
  if (dilated) node_set_ints(node, "dilations", dilations, space);
  if (automatic != AUTO_PAD_NONE) set_auto_pad(node, automatic);
  else node_set_ints(node, "pads", pads, 2 * space);
}

/* value: [a, b, space…] */
static Value *pool(Lowering *l, Op op, Value *value, const WindowAxis *axes, size_t space, AutoPad automatic) {
  bool sum = op == OP_ReduceSum, negate = op == OP_ReduceMin;
  Dim dims[MAX_RANK] = {value->type.dims[0], value->type.dims[1]};
  double size = 1;
  for (size_t i = 0; i < space; i++) {
    dims[i + 2] = axes[i].count;
    size *= (double)axes[i].window.constant;
  }
  Type type = type_make(l->context, value->type.dtype, dims, (uint32_t)space + 2);
  if (negate) value = EMIT(l, OP_Neg, value->type, value);
  Value *result = EMIT(l, sum ? OP_AveragePool : OP_MaxPool, type, value);
  set_pool_attributes(result->producer, axes, space, automatic);
  if (sum) node_set_int(result->producer, "count_include_pad", 1);
  if (sum && size != 1) return EMIT(l, OP_Mul, type, result, constant_like(l, type, size));
  return negate ? EMIT(l, OP_Neg, type, result) : result;
}

/* The outer axes as exactly two. */
static Value *merge_outer(Lowering *l, Value *value, const PoolLayout *layout) {
  if (layout->outer == 2) return value;
  const Dim *from = value->type.dims;
  Dim dims[MAX_RANK] = {dim_of(1), dim_of(1)};
  if (layout->outer == 1) dims[1] = from[0];
  if (layout->outer > 2) dims[0] = from[0];
  for (size_t i = 1; layout->outer > 2 && i < layout->outer; i++) dims[1] = dim_multiply(l->context, dims[1], from[i]);
  for (size_t i = 0; i < layout->space; i++) dims[i + 2] = from[layout->outer + i];
  return reshape_to(l, value, dims, layout->space + 2);
}

Value *pool_windows(Lowering *l, Op op, Value *operand, const WindowAxis *axes) {
  PoolLayout layout;
  Type type = operand->type;
  DType compute = pool_dtype(l, op, type.dtype);
  if (compute == DTYPE_NONE || !find_layout(l, operand, axes, &layout)) return NULL;
  WindowAxis space[MAX_RANK];
  bool symbolic = false, pad_before, sum = op == OP_ReduceSum;
  for (size_t i = 0; i < layout.space; i++) {
    space[i] = axes[layout.order[layout.outer + i]];
    symbolic = symbolic || !padding_is_constant(&space[i]);
    if (dim_is(space[i].count, 0)) return NULL;
  }
  AutoPad automatic = symbolic ? same_padding(l, space, layout.space) : AUTO_PAD_NONE;
  if (!can_pool(l, sum, space, layout.space, automatic, &pad_before)) return NULL;
  Value *value = cast_to(l, merge_outer(l, transpose_by(l, operand, layout.order), &layout), compute);
  if (pad_before) {
    Value *fill = constant(l, reduction_identity(l, op, compute));
    value = apply_padding(l, value, 2, space, layout.space, fill);
  }
  value = narrow_to(l, pool(l, op, value, space, layout.space, automatic), type.dtype);
  Dim dims[MAX_RANK];
  int64_t inverse[MAX_RANK];
  for (uint32_t i = 0; i < type.rank; i++) {
    int64_t axis = layout.order[i];
    dims[i] = axes[axis].count;
    inverse[axis] = i;
  }
  return transpose_by(l, reshape_to(l, value, dims, type.rank), inverse);
}
