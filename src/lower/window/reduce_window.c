/* Window reductions. Windows reduce one axis after another: every reduction here is associative, as XLA demands. */
#include "lower/window/reduce_window.h"
#include "base/bytes.h"
#include "lower/complex/complex.h"
#include "lower/reduce/general_reduce.h"
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
  Str primitive = scalar_body_primitive(body, 0);
  for (size_t i = 0; primitive && i < sizeof reductions / sizeof *reductions; i++) {
    if (strcmp(primitive, reductions[i].primitive) != 0) continue;
    return reductions[i].of_bool == (dtype == DTYPE_BOOL) ? reductions[i].reduction : OP_NONE;
  }
  return OP_NONE;
}

/* Windows that start from the reduction's identity. */
static Value *plain_windows(Lowering *l, Op op) {
  Type type = output_type(l, 0);
  const Tensor *identity = reduction_identity(l, op, type.dtype);
  if (is_empty(input_type(l, 0))) return filled(l, type, identity); /* nothing but padding */
  WindowAxis *axes = read_windows(l, input_type(l, 0), type);
  Value *pooled = op != OP_ReduceProd ? pool_windows(l, op, input(l, 0), axes) : NULL;
  return pooled ? pooled : reduce_windows(l, op, input(l, 0), axes, constant(l, identity));
}

static void lower_window_reduction(Lowering *l) { bind(l, 0, plain_windows(l, l->plugin->op)); }

/* Any computation: the arrays padded and spread, and where they are. */
typedef struct FoldedWindows {
  ScalarFold fold;
  Value **arrays;
  Value *inside; /* which elements are not padding; NULL: all */
  WindowAxis *axes;
  uint32_t rank;    /* of the windows; pairs have an axis more */
  int64_t elements; /* of a window */
} FoldedWindows;

/* Padding needs a value, though none that counts. */
static Value *pad_for_fold(Lowering *l, const FoldedWindows *w, Value *value) {
  WindowAxis *axes = arena_copy(&l->context->arena, w->axes, w->rank * sizeof *axes);
  return apply_padding(l, value, 0, axes, w->rank, constant(l, tensor_scalar(l, value->type.dtype, 0)));
}

static FoldedWindows padded_windows(Lowering *l, uint32_t rank) {
  FoldedWindows w = {.fold = read_scalar_fold(l), .rank = rank, .elements = 1};
  Type type = input_type(l, 0), result = output_type(l, 0);
  type.rank = result.rank = rank;
  w.axes = read_windows(l, type, result);
  w.arrays = arena_new_array(&l->context->arena, w.fold.count, Value *);
  bool padded = false;
  for (uint32_t i = 0; i < rank; i++) {
    rely_on(l, !__builtin_mul_overflow(w.elements, w.axes[i].window.constant, &w.elements));
    padded = padded || w.axes[i].base_dilation != 1 || !padding_is_zero(&w.axes[i]);
  }
  for (uint32_t v = 0; v < w.fold.count; v++) w.arrays[v] = pad_for_fold(l, &w, input(l, v));
  if (padded) w.inside = pad_for_fold(l, &w, filled(l, type_with(type, DTYPE_BOOL), tensor_scalar(l, DTYPE_BOOL, 1)));
  return w;
}

/* Element number `which` of every window, counted along the last axis first. */
static Value *element_of_windows(Lowering *l, const FoldedWindows *w, Value *array, int64_t which) {
  Dim dims[MAX_RANK], starts[MAX_RANK], limits[MAX_RANK];
  int64_t steps[MAX_RANK], axes[MAX_RANK];
  copy_bytes(dims, array->type.dims, array->type.rank * sizeof *dims);
  for (uint32_t i = w->rank; i-- > 0; which /= w->axes[i].window.constant) {
    const WindowAxis *axis = &w->axes[i];
    dims[i] = axis->count;
    axes[i] = i;
    steps[i] = axis->stride;
    starts[i] = dim_of(which % axis->window.constant * axis->dilation);
    limits[i] = dim_add(l->context, starts[i], dim_multiply(l->context, axis->count, dim_of(axis->stride)));
  }
  Type type = type_make(l->context, array->type.dtype, dims, array->type.rank);
  return slice_at(l, array, type, starts, limits, steps, axes, w->rank);
}

static void fold_one_by_one(Lowering *l, const FoldedWindows *w, Value **so_far) {
  Value **elements = arena_new_array(&l->context->arena, w->fold.count, Value *);
  for (int64_t e = 0; e < w->elements; e++) {
    for (uint32_t v = 0; v < w->fold.count; v++) elements[v] = element_of_windows(l, w, w->arrays[v], e);
    fold_elements(l, &w->fold, so_far, elements, w->inside ? element_of_windows(l, w, w->inside, e) : NULL);
  }
}

/* [size…] -> [elements of a window, count…] */
static Value *stacked_windows(Lowering *l, const FoldedWindows *w, Value *array) {
  Type type = array->type;
  int64_t order[MAX_RANK];
  Dim dims[MAX_RANK];
  rely_on(l, type.rank + w->rank <= MAX_RANK);
  dims[0] = dim_of(w->elements);
  for (uint32_t i = 0; i < type.rank; i++) {
    bool windowed = i < w->rank;
    dims[i + 1] = windowed ? w->axes[i].count : type.dims[i];
    if (windowed) array = view_windows(l, array, 2 * (int64_t)i, &w->axes[i]);
    if (windowed) order[i] = 2 * (int64_t)i;
    order[w->rank + i] = windowed ? 2 * (int64_t)i + 1 : w->rank + (int64_t)i;
  }
  return reshape_to(l, transpose_by(l, array, order), dims, type.rank + 1);
}

static void fold_stacked(Lowering *l, const FoldedWindows *w, Value **so_far) {
  Value **arrays = arena_new_array(&l->context->arena, w->fold.count, Value *);
  for (uint32_t v = 0; v < w->fold.count; v++) arrays[v] = stacked_windows(l, w, w->arrays[v]);
  fold_arrays(l, &w->fold, so_far, arrays, w->inside ? stacked_windows(l, w, w->inside) : NULL);
}

/* From the initial value through the elements of each window in order, without the padding, as XLA does on the CPU
 * where there is none; else its order depends on the sizes, and JAX promises none. */
static void fold_windows(Lowering *l) {
  enum { FEW = 32 /* elements, each of which becomes a copy of the computation */ };
  uint32_t rank = input_type(l, 0).rank - (input_is_complex(l, 0) ? 1 : 0);
  FoldedWindows w = padded_windows(l, rank);
  Value **so_far = fold_starts(l, &w.fold);
  if (w.elements <= FEW) fold_one_by_one(l, &w, so_far);
  else fold_stacked(l, &w, so_far);
  for (uint32_t v = 0; v < w.fold.count; v++) bind(l, v, so_far[v]);
}

/* Every window starts from the initial value. Padding takes no part in XLA's windows on the CPU. */
static void lower_reduce_window(Lowering *l) {
  ScalarFold fold = read_scalar_fold(l);
  DType dtype = output_type(l, 0).dtype;
  bool one = fold.count == 1 && !input_is_complex(l, 0);
  Op op = one ? body_reduction(fold.body, dtype) : OP_NONE;
  if (!op) {
    fold_windows(l);
    return;
  }
  Value *reduced = plain_windows(l, op);
  if (!starts_from(l, 1, reduction_identity(l, op, dtype))) {
    Value **so_far = fold_starts(l, &fold);
    fold_elements(l, &fold, so_far, &reduced, NULL);
    reduced = so_far[0];
  }
  bind(l, 0, reduced);
}

/* clang-format off */
const Plugin window_plugins[] = {
    PLUGIN("reduce_window", lower_reduce_window, .flags = TAKES_COMPLEX),
    PLUGIN("reduce_window_max", lower_window_reduction, OP_ReduceMax),
    PLUGIN("reduce_window_min", lower_window_reduction, OP_ReduceMin),
    PLUGIN("reduce_window_sum", lower_window_reduction, OP_ReduceSum),
    PLUGIN("select_and_gather_add", lower_select_and_gather_add),
    PLUGIN("select_and_scatter", lower_select_and_scatter),
    PLUGIN("select_and_scatter_add", lower_select_and_scatter_add),
    {0},
};
/* clang-format on */
