/* Convolutions of any layout, dilation and grouping.
 *
 * Operands are brought into ONNX's order, [batch, channel, space…] and [output, input, space…]. A convolution that
 * spreads its input is ConvTranspose where it slides by single steps, any other one is Conv. Element types that Conv
 * does not run in (float64 and the integers, which are exact modulo their width) multiply matrices of windows instead.
 * Bytes, summed in 32 bits, are ConvInteger. As for MatMulInteger (passes/fuse/fuse_integer_products.c), they have no
 * sign there, so that no processor saturates: 3 x 3 windows of 32 channels take 0.1 ms, and with signs 0.4 ms.
 */
#include "lower/elementwise/arithmetic.h"
#include "lower/window/sliding_window.h"
#include "onnx/facts/schema.h"

typedef struct Convolution {
  Value *operand; /* [batch, groups * depth, space…] */
  Value *kernel;  /* [features, depth, window…] */
  int64_t groups;
  size_t space; /* number of spatial axes */
  WindowAxis *axes;
  Dim batch, features; /* of the result */
  DType dtype;         /* of the sums */
} Convolution;

static const int64_t *layout(Lowering *l, const char *field) {
  const Param *numbers = param_get(l->context, l->equation, "dimension_numbers");
  const Param *spec = param_field(numbers, field);
  if (!spec) fail(l->context, ERROR_UNSUPPORTED, "%s: dimension_numbers has no %s", l->equation->primitive, field);
  size_t count;
  const int64_t *axes = param_list_ints(l->context, spec, &count);
  rely_on(l, count == input_type(l, 0).rank);
  return axes;
}

static void read_axes(Lowering *l, Convolution *c, const int64_t *out_spec) {
  c->axes = arena_new_array(&l->context->arena, c->space + 1, WindowAxis);
  const int64_t *strides = read_window_ints(l, "window_strides", c->space);
  const int64_t *base_dilations = read_window_ints(l, "lhs_dilation", c->space);
  const int64_t *dilations = read_window_ints(l, "rhs_dilation", c->space);
  read_window_padding(l, c->axes, c->space);
  for (size_t i = 0; i < c->space; i++) {
    WindowAxis *axis = &c->axes[i];
    axis->size = c->operand->type.dims[i + 2];
    axis->window = c->kernel->type.dims[i + 2];
    axis->count = output_type(l, 0).dims[out_spec[i + 2]];
    axis->stride = strides[i];
    axis->dilation = dilations[i];
    axis->base_dilation = base_dilations[i];
    rely_on(l, axis->stride >= 1 && axis->dilation >= 1 && axis->base_dilation >= 1);
  }
}

/* Batch group g meets the g-th share of the output features: the groups become channel groups. */
static void merge_batch_groups(Lowering *l, Convolution *c, int64_t groups) {
  Type type = c->operand->type;
  Dim split[MAX_RANK], merged[MAX_RANK];
  int64_t permutation[MAX_RANK] = {1, 0};
  rely_on(l, type.rank < MAX_RANK);
  split[0] = dim_of(groups);
  split[1] = merged[0] = c->batch;
  for (uint32_t i = 1; i < type.rank; i++) {
    split[i + 1] = merged[i] = type.dims[i];
    permutation[i + 1] = i + 1;
  }
  merged[1] = dim_multiply(l->context, dim_of(groups), type.dims[1]);
  Value *operand = transpose_by(l, reshape_to(l, c->operand, split, type.rank + 1), permutation);
  c->operand = reshape_to(l, operand, merged, type.rank);
  c->groups = groups;
}

static Type result_type(Lowering *l, const Convolution *c) {
  Dim dims[MAX_RANK] = {c->batch, c->features};
  for (size_t i = 0; i < c->space; i++) dims[i + 2] = c->axes[i].count;
  return type_make(l->context, c->dtype, dims, (uint32_t)c->space + 2);
}

/* A convolution without spatial axes is one over a single element. */
static void add_spatial_axis(Lowering *l, Convolution *c) {
  int64_t axis = 2;
  c->operand = unsqueeze_at(l, c->operand, &axis, 1);
  c->kernel = unsqueeze_at(l, c->kernel, &axis, 1);
  c->space = 1;
  c->axes[0] = (WindowAxis){
      .size = dim_of(1), .window = dim_of(1), .count = dim_of(1), .stride = 1, .dilation = 1, .base_dilation = 1};
}

static Value *zero_like(Lowering *l, const Value *value) { return constant_scalar(l, value->type.dtype, 0); }

/* What Conv cannot pad by itself is padded before: negative padding, and sizes known only at run time. */
static AutoPad prepare_padding(Lowering *l, Convolution *c) {
  bool symbolic = false, before = false;
  for (size_t i = 0; i < c->space; i++) {
    const WindowAxis *axis = &c->axes[i];
    bool constant = padding_is_constant(axis);
    symbolic = symbolic || !constant;
    before = before || axis->base_dilation != 1 || !constant || axis->low.constant < 0 || axis->high.constant < 0;
  }
  AutoPad automatic = symbolic ? same_padding(l, c->axes, c->space) : AUTO_PAD_NONE;
  if (automatic == AUTO_PAD_NONE && before) {
    c->operand = apply_padding(l, c->operand, 2, c->axes, c->space, zero_like(l, c->operand));
  }
  return automatic;
}

static void set_sizes(Node *node, const Convolution *c) {
  int64_t windows[MAX_RANK] = {0}, dilations[MAX_RANK] = {0};
  bool known = true, dilated = false;
  for (size_t i = 0; i < c->space; i++) {
    known = known && dim_is_constant(c->axes[i].window);
    windows[i] = c->axes[i].window.constant;
    dilations[i] = c->axes[i].dilation;
    dilated = dilated || dilations[i] != 1;
  }
  if (known) node_set_ints(node, "kernel_shape", windows, c->space);
  if (dilated) node_set_ints(node, "dilations", dilations, c->space);
  if (c->groups != 1) node_set_int(node, "group", c->groups);
}

enum { MOVED_UP = 128 }; /* the highest bit, which is the sign, turned over */

static bool is_byte(DType dtype) { return dtype == DTYPE_INT8 || dtype == DTYPE_UINT8; }

static Value *without_sign(Lowering *l, Value *value) {
  if (value->type.dtype == DTYPE_UINT8) return value;
  Value *bits = cast_to(l, value, DTYPE_UINT8);
  return EMIT_MATH(l, OP_BitwiseXor, bits, constant_integer(l, DTYPE_UINT8, MOVED_UP));
}

static Value *zero_point(Lowering *l, const Value *value) {
  return constant_integer(l, DTYPE_UINT8, value->type.dtype == DTYPE_INT8 ? MOVED_UP : 0);
}

static Value *emit_conv(Lowering *l, const Convolution *c) {
  Type type = result_type(l, c);
  if (!is_byte(c->operand->type.dtype)) return EMIT(l, OP_Conv, type, c->operand, c->kernel);
  return EMIT(l, OP_ConvInteger, type, without_sign(l, c->operand), without_sign(l, c->kernel),
              zero_point(l, c->operand), zero_point(l, c->kernel));
}

static Value *by_conv(Lowering *l, Convolution *c) {
  AutoPad automatic = prepare_padding(l, c);
  Value *result = emit_conv(l, c);
  int64_t strides[MAX_RANK], pads[2 * MAX_RANK];
  for (size_t i = 0; i < c->space; i++) {
    strides[i] = c->axes[i].stride;
    pads[i] = c->axes[i].low.constant;
    pads[c->space + i] = c->axes[i].high.constant;
  }
  set_sizes(result->producer, c);
  node_set_ints(result->producer, "strides", strides, c->space);
  if (automatic != AUTO_PAD_NONE) set_auto_pad(result->producer, automatic);
  else node_set_ints(result->producer, "pads", pads, 2 * c->space);
  return result;
}

/* ConvTranspose slides a flipped kernel in single steps over a spread input whose full overlap it crops. */
static bool is_transposed(const Convolution *c) {
  bool spread = false;
  for (size_t i = 0; i < c->space; i++) {
    const WindowAxis *axis = &c->axes[i];
    spread = spread || axis->base_dilation != 1;
    if (axis->stride != 1 || !padding_is_constant(axis) || !dim_is_constant(axis->window)) return false;
  }
  const Dim *kernel = c->kernel->type.dims;
  return spread && dim_is_constant(kernel[0]) && dim_is_constant(kernel[1]);
}

/* [features, depth, window…] -> [groups * depth, features / groups, flipped window…] */
static Value *transposed_kernel(Lowering *l, const Convolution *c) {
  Type type = c->kernel->type;
  Dim split[MAX_RANK], merged[MAX_RANK], starts[MAX_RANK], limits[MAX_RANK];
  int64_t permutation[MAX_RANK] = {0, 2, 1}, axes[MAX_RANK], steps[MAX_RANK];
  rely_on(l, type.rank < MAX_RANK);
  int64_t depth = type.dims[1].constant, share = type.dims[0].constant / c->groups;
  split[0] = dim_of(c->groups);
  split[1] = merged[1] = dim_of(share);
  split[2] = dim_of(depth);
  merged[0] = dim_of(c->groups * depth);
  size_t flipped = 0;
  for (size_t i = 0; i < c->space; i++) {
    split[i + 3] = merged[i + 2] = type.dims[i + 2];
    permutation[i + 3] = (int64_t)i + 3;
    if (dim_is(type.dims[i + 2], 1)) continue;
    starts[flipped] = dim_of(-1);
    limits[flipped] = dim_of(INT64_MIN);
    steps[flipped] = -1;
    axes[flipped++] = (int64_t)i + 2;
  }
  Value *kernel = slice_at(l, c->kernel, type, starts, limits, steps, axes, flipped);
  if (c->groups == 1) {
    int64_t swap[MAX_RANK] = {1, 0};
    for (uint32_t i = 2; i < type.rank; i++) swap[i] = i;
    return transpose_by(l, kernel, swap);
  }
  kernel = transpose_by(l, reshape_to(l, kernel, split, type.rank + 1), permutation);
  return reshape_to(l, kernel, merged, type.rank);
}

/* Padding beyond the full overlap of kernel and input meets zeros only: it is added to the result. */
static Value *by_conv_transpose(Lowering *l, Convolution *c) {
  Dim low[MAX_RANK] = {0}, high[MAX_RANK] = {0}, dims[MAX_RANK] = {c->batch, c->features};
  int64_t strides[MAX_RANK], pads[2 * MAX_RANK], output_padding[MAX_RANK];
  bool more = false;
  for (size_t i = 0; i < c->space; i++) {
    const WindowAxis *axis = &c->axes[i];
    int64_t overlap = (axis->window.constant - 1) * axis->dilation;
    int64_t crop_low = overlap - axis->low.constant, crop_high = overlap - axis->high.constant;
    strides[i] = axis->base_dilation;
    pads[i] = crop_low > 0 ? crop_low : 0;
    pads[c->space + i] = crop_high > 0 ? crop_high : 0;
    output_padding[i] = crop_high < 0 && -crop_high < strides[i] ? -crop_high : 0;
    more = more || output_padding[i];
    low[i + 2] = dim_of(crop_low < 0 ? -crop_low : 0);
    high[i + 2] = dim_of(crop_high < 0 ? -crop_high - output_padding[i] : 0);
    dims[i + 2] = dim_subtract(l->context, axis->count, dim_add(l->context, low[i + 2], high[i + 2]));
  }
  Type type = type_make(l->context, c->operand->type.dtype, dims, (uint32_t)c->space + 2);
  Value *result = EMIT(l, OP_ConvTranspose, type, c->operand, transposed_kernel(l, c));
  set_sizes(result->producer, c);
  node_set_ints(result->producer, "strides", strides, c->space);
  node_set_ints(result->producer, "pads", pads, 2 * c->space);
  if (more) node_set_ints(result->producer, "output_padding", output_padding, c->space);
  return pad_edges(l, result, low, high, zero_like(l, result));
}

/* [batch, groups * depth, space…] -> [batch, (groups,) depth * window, positions] */
static Value *window_columns(Lowering *l, const Convolution *c, Dim depth) {
  Value *view = c->operand;
  int64_t permutation[MAX_RANK] = {0, 1};
  Dim rows = depth, positions = dim_of(1);
  for (size_t i = 0; i < c->space; i++) {
    view = view_windows(l, view, 2 + 2 * (int64_t)i, &c->axes[i]);
    permutation[2 + i] = 2 + 2 * (int64_t)i;
    permutation[2 + c->space + i] = 3 + 2 * (int64_t)i;
    rows = dim_multiply(l->context, rows, c->axes[i].window);
    positions = dim_multiply(l->context, positions, c->axes[i].count);
  }
  view = transpose_by(l, view, permutation);
  Dim grouped[] = {c->batch, dim_of(c->groups), rows, positions}, plain[] = {c->batch, rows, positions};
  return c->groups == 1 ? reshape_to(l, view, plain, 3) : reshape_to(l, view, grouped, 4);
}

static Value *by_matrix_product(Lowering *l, Convolution *c) {
  c->operand = apply_padding(l, c->operand, 2, c->axes, c->space, zero_like(l, c->operand));
  Value *columns = window_columns(l, c, c->kernel->type.dims[1]);
  Type type = columns->type;
  Dim rows = type.dims[type.rank - 2], positions = type.dims[type.rank - 1];
  Dim share = dim_binary(l->context, DIM_FLOORDIV, c->features, dim_of(c->groups));
  Dim grouped[] = {dim_of(c->groups), share, rows}, plain[] = {c->features, rows};
  Value *kernel = c->groups == 1 ? reshape_to(l, c->kernel, plain, 2) : reshape_to(l, c->kernel, grouped, 3);
  Dim dims[] = {c->batch, c->groups == 1 ? share : dim_of(c->groups), c->groups == 1 ? positions : share, positions};
  Type product = type_make(l->context, type.dtype, dims, type.rank);
  Type result = result_type(l, c);
  return reshape_to(l, EMIT(l, OP_MatMul, product, kernel, columns), result.dims, result.rank);
}

/* The element type of what is multiplied. */
static DType convolution_dtype(Lowering *l, DType dtype) {
  bool conv = dtype_is_float(dtype) && dtype != DTYPE_FLOAT64;
  DType compute = compute_dtype(l, conv ? OP_Conv : OP_MatMul, dtype);
  if (compute == DTYPE_NONE) unsupported(l, "convolutions of %s cannot be expressed in ONNX", dtype_name(dtype));
  return compute;
}

static Value *convolve(Lowering *l, Convolution *c) {
  Type type = result_type(l, c);
  if (is_empty(type) || is_empty(c->operand->type) || is_empty(c->kernel->type)) {
    return expand_to(l, constant_scalar(l, type.dtype, 0), type.dims, type.rank);
  }
  bool flat = c->space == 0;
  if (flat) add_spatial_axis(l, c);
  DType dtype = c->operand->type.dtype;
  bool plain = is_byte(dtype) && c->dtype == DTYPE_INT32;
  Value *result = plain                                              ? by_conv(l, c)
                  : !dtype_is_float(dtype) || dtype == DTYPE_FLOAT64 ? by_matrix_product(l, c)
                  : is_transposed(c)                                 ? by_conv_transpose(l, c)
                                                                     : by_conv(l, c);
  int64_t axis = 2;
  return flat ? squeeze_at(l, result, &axis, 1) : result;
}

static bool convolves_bytes(Lowering *l) {
  bool are_bytes = is_byte(input_type(l, 0).dtype) && is_byte(input_type(l, 1).dtype);
  return are_bytes && output_type(l, 0).dtype == DTYPE_INT32 && schema_version(OP_BitwiseXor, l->options->opset);
}

static void lower_convolution(Lowering *l) {
  Type type = output_type(l, 0);
  const int64_t *out_spec = layout(l, "out_spec");
  DType compute = convolution_dtype(l, type.dtype);
  bool bytes = convolves_bytes(l);
  Convolution c = {
      .operand =
          cast_to(l, transpose_by(l, input(l, 0), layout(l, "lhs_spec")), bytes ? input_type(l, 0).dtype : compute),
      .kernel =
          cast_to(l, transpose_by(l, input(l, 1), layout(l, "rhs_spec")), bytes ? input_type(l, 1).dtype : compute),
      .dtype = compute,
      .groups = param_int(l->context, l->equation, "feature_group_count"),
      .space = type.rank - 2,
      .batch = type.dims[out_spec[0]],
      .features = type.dims[out_spec[1]],
  };
  int64_t batch_groups = param_int(l->context, l->equation, "batch_group_count");
  rely_on(l, c.groups > 0);
  rely_on(l, batch_groups > 0);
  read_axes(l, &c, out_spec);
  if (batch_groups > 1) merge_batch_groups(l, &c, batch_groups);
  Value *result = convolve(l, &c);
  int64_t permutation[MAX_RANK];
  for (uint32_t i = 0; i < type.rank; i++) permutation[out_spec[i]] = i;
  bind(l, 0, transpose_by(l, narrow_to(l, result, type.dtype), permutation));
}

/* clang-format off */
const Plugin convolution_plugins[] = {
    PLUGIN("conv_general_dilated", lower_convolution, OP_Conv),
    {0},
};
/* clang-format on */
