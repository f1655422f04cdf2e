/* Window reductions. Windows reduce one axis after another: every reduction here is associative, as XLA demands. */
#include "lower/window/reduce_window.h"
#include "base/bytes.h"
#include "lower/reduce/scalar_body.h"
#include "lower/window/pooling.h"

WindowAxis *read_windows(Lowering *l, Type type, Type result) {
  WindowAxis *axes = arena_new_array(&l->context->arena, type.rank, WindowAxis);
  const int64_t *windows = read_window_ints(l, "window_dimensions", type.rank);
  const int64_t *strides = read_window_ints(l, "window_strides", type.rank);
  bool dilates = param_find(l->equation, "window_dilation") != NULL;
  const int64_t *dilations = dilates ? read_window_ints(l, "window_dilation", type.rank) : NULL;
  const int64_t *base_dilations = dilates ? read_window_ints(l, "base_dilation", type.rank) : NULL;
  read_window_padding(l, axes, type.rank);
  for (uint32_t i = 0; i < type.rank; i++) {
    axes[i].size = type.dims[i];
    axes[i].window = dim_of(windows[i]);
    axes[i].count = result.dims[i];
    axes[i].stride = strides[i];
    axes[i].dilation = dilates ? dilations[i] : 1;
    axes[i].base_dilation = dilates ? base_dilations[i] : 1;
    rely_on(l, windows[i] >= 1 && strides[i] >= 1 && axes[i].dilation >= 1 && axes[i].base_dilation >= 1);
  }
  return axes;
}

/* Max and Min, unlike the reducing operators, keep NaN and know uint64. */
static Value *extreme_along(Lowering *l, Op op, Value *value, int64_t axis, const WindowAxis *window) {
  enum { MOST = 1 << 16 };
  size_t count = (size_t)window->window.constant;
  if (count > MOST)
    unsupported(l, "a window has more than %d elements along an axis, and each would become a node", MOST);
  Value **elements = arena_new_array(&l->context->arena, count, Value *);
  for (size_t i = 0; i < count; i++) elements[i] = window_element(l, value, axis, window, (int64_t)i);
  return emit_around(l, HERE, op, elements[0]->type, elements, count);
}

/* The operand is padded. */
static Value *reduce_axis(Lowering *l, Op op, Value *value, int64_t axis, const WindowAxis *window) {
  if (dim_is(window->window, 1)) return window->stride == 1 ? value : window_element(l, value, axis, window, 0);
  if (op == OP_ReduceMax) return extreme_along(l, OP_Max, value, axis, window);
  if (op == OP_ReduceMin) return extreme_along(l, OP_Min, value, axis, window);
  Value *view = view_windows(l, value, axis, window);
  if (!dtype_is_float(view->type.dtype)) return reduce_integers(l, op, view, &axis, 1);
  return EMIT_REDUCED(l, op, view, &axis, 1);
}

static Value *reduce_windows(Lowering *l, Op op, Value *operand, WindowAxis *axes, Value *fill) {
  uint32_t rank = operand->type.rank;
  Value *value = apply_padding(l, operand, 0, axes, rank, fill);
  for (uint32_t i = 0; i < rank; i++) value = reduce_axis(l, op, value, i, &axes[i]);
  return value;
}

/* The reducing operator of a body that is one primitive, else OP_NONE. */
static Op body_reduction(const Jaxpr *body, DType dtype) {
  static const struct {
    const char *primitive;
    Op reduction;
    bool of_bool;
  } reductions[] = {
      {"add", OP_ReduceSum, false}, {"mul", OP_ReduceProd, false}, {"max", OP_ReduceMax, false},
      {"min", OP_ReduceMin, false}, {"and", OP_ReduceMin, true},   {"or", OP_ReduceMax, true},
  };
  Str primitive = scalar_body_primitive(body);
  for (size_t i = 0; primitive && i < sizeof reductions / sizeof *reductions; i++) {
    if (strcmp(primitive, reductions[i].primitive) != 0) continue;
    return reductions[i].of_bool == (dtype == DTYPE_BOOL) ? reductions[i].reduction : OP_NONE;
  }
  return OP_NONE;
}

/* Folds the elements of each window, all operands together. */
static void fold_axis(Lowering *l, const Jaxpr *body, Value **values, size_t count, int64_t axis,
                      const WindowAxis *window) {
  const Param *consts = param_find(l->equation, "consts");
  Value **arguments = arena_new_array(&l->context->arena, 2 * count, Value *);
  Value **folded = arena_new_array(&l->context->arena, count, Value *);
  for (size_t v = 0; v < count; v++) folded[v] = window_element(l, values[v], axis, window, 0);
  for (int64_t i = 1; i < window->window.constant; i++) {
    for (size_t v = 0; v < count; v++) {
      arguments[v] = folded[v];
      arguments[count + v] = window_element(l, values[v], axis, window, i);
    }
    apply_scalar_body(l, HERE, body, consts, arguments, 2 * count, folded);
  }
  copy_bytes(values, folded, count * sizeof *values);
}

static WindowAxis *copy_windows(Lowering *l, const WindowAxis *axes, uint32_t rank) {
  return arena_copy(&l->context->arena, axes, rank * sizeof *axes);
}

/* Does the only operand's initial value change nothing? Then it need not be folded in. */
static bool starts_from_identity(Lowering *l, Op op, DType dtype) {
  const Tensor *initial = input_literal(l, 1), *identity = reduction_identity(l, op, dtype);
  return initial && initial->size == identity->size && same_bytes(initial->data, identity->data, identity->size);
}

/* Windows that start from the reduction's identity. */
static void lower_plain_windows(Lowering *l, Op op) {
  Type type = output_type(l, 0);
  if (is_empty(input_type(l, 0))) { /* nothing but padding */
    bind(l, 0, filled(l, type, reduction_identity(l, op, type.dtype)));
    return;
  }
  WindowAxis *axes = read_windows(l, input_type(l, 0), type);
  Value *result = op != OP_ReduceProd ? pool_windows(l, op, input(l, 0), axes) : NULL;
  if (!result) {
    Value *fill = constant(l, reduction_identity(l, op, type.dtype));
    result = reduce_windows(l, op, input(l, 0), axes, fill);
  }
  bind(l, 0, result);
}

static void lower_window_reduction(Lowering *l) { lower_plain_windows(l, l->plugin->op); }

/* Every window starts from the initial value. Padding takes no part in XLA's windows on the CPU: it is the identity
 * where that is known, and else the initial value, which XLA asks to be the identity. */
static void lower_reduce_window(Lowering *l) {
  const Jaxpr *body = param_jaxpr(l->context, l->equation, "jaxpr");
  size_t count = l->equation->input_count / 2;
  Type type = output_type(l, 0);
  const WindowAxis *axes = read_windows(l, input_type(l, 0), type);
  Value **values = arena_new_array(&l->context->arena, 2 * count, Value *);
  Value **results = arena_new_array(&l->context->arena, count, Value *);
  Op op = count == 1 ? body_reduction(body, type.dtype) : OP_NONE;
  if (op && starts_from_identity(l, op, type.dtype)) {
    lower_plain_windows(l, op);
    return;
  }
  for (size_t v = 0; v < count; v++) {
    Value *initial = input(l, count + v);
    WindowAxis *own = copy_windows(l, axes, type.rank);
    Value *fill = op ? constant(l, reduction_identity(l, op, type.dtype)) : initial;
    if (op) values[count] = reduce_windows(l, op, input(l, 0), own, fill);
    else values[count + v] = apply_padding(l, input(l, v), 0, own, type.rank, fill);
    values[v] = expand_to(l, initial, type.dims, type.rank);
  }
  for (uint32_t i = 0; !op && i < type.rank; i++) {
    if (dim_is(axes[i].window, 1) && axes[i].stride == 1) continue;
    fold_axis(l, body, values + count, count, i, &axes[i]);
  }
  apply_scalar_body(l, HERE, body, param_find(l->equation, "consts"), values, 2 * count, results);
  for (size_t v = 0; v < count; v++) bind(l, v, results[v]);
}

/* clang-format off */
const Plugin window_plugins[] = {
    PLUGIN("reduce_window", lower_reduce_window),
    PLUGIN("reduce_window_max", lower_window_reduction, OP_ReduceMax),
    PLUGIN("reduce_window_min", lower_window_reduction, OP_ReduceMin),
    PLUGIN("reduce_window_sum", lower_window_reduction, OP_ReduceSum),
    PLUGIN("select_and_gather_add", lower_select_and_gather_add),
    PLUGIN("select_and_scatter", lower_select_and_scatter),
    PLUGIN("select_and_scatter_add", lower_select_and_scatter_add),
    {0},
};
/* clang-format on */
