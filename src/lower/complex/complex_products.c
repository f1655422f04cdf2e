/* Sums and products of many complex numbers: dot products, convolutions, reductions. */
#include <math.h>

#include "base/bytes.h"
#include "lower/complex/complex.h"
#include "lower/control/scan_axis.h"
#include "lower/data/padding.h"

/* (re, im) times i. */
static Value *turned(Lowering *l, Value *pairs) {
  Node *parts = split_pairs(l, pairs);
  Value *negated = EMIT_MATH(l, OP_Neg, parts->outputs[1]);
  return concat_at(l, VALUES(negated, parts->outputs[0]), 2, (int64_t)pairs->type.rank - 1, pairs->type);
}

enum { TURNED_BYTES = 1 << 16 /* constants up to here are turned at export */ };

/* Each pair, and i times it, on one more axis before the last. */
static Value *with_turned(Lowering *l, Value *pairs) {
  int64_t axis = (int64_t)pairs->type.rank - 1;
  Dim dims[MAX_RANK];
  rely_on(l, pairs->type.rank < MAX_RANK);
  copy_bytes(dims, pairs->type.dims, pairs->type.rank * sizeof *dims);
  dims[axis + 1] = dim_of(2);
  Type type = type_make(l->context, pairs->type.dtype, dims, pairs->type.rank + 1);
  const Tensor *tensor = pairs->tensor;
  if (!tensor || !tensor->data || tensor->size > TURNED_BYTES) {
    Value *rows[] = {unsqueeze_at(l, pairs, &axis, 1), unsqueeze_at(l, turned(l, pairs), &axis, 1)};
    return concat_at(l, rows, 2, axis, type);
  }
  size_t size = dtype_bytes(tensor->dtype, 1), count = tensor->size / (2 * size);
  char *data = arena_alloc_array(&l->context->arena, 4 * count, size);
  int64_t sizes[MAX_RANK];
  copy_bytes(sizes, tensor->dims, tensor->rank * sizeof *sizes);
  sizes[axis + 1] = 2;
  for (size_t i = 0; i < count; i++) {
    const char *pair = (const char *)tensor->data + 2 * i * size;
    char *to = data + 4 * i * size;
    copy_bytes(to, pair, 2 * size);
    copy_bytes(to + 2 * size, pair + size, size);
    to[3 * size - 1] = (char)(to[3 * size - 1] ^ 0x80); /* the sign, in the last byte of a float */
    copy_bytes(to + 3 * size, pair, size);
  }
  return constant(l, tensor_new(l, tensor->dtype, sizes, tensor->rank + 1, data, 4 * count * size));
}

/* Of real and complex numbers: the parts of these are multiplied alike. */
static void lower_mixed_dot_general(Lowering *l) {
  bool left = input_is_complex(l, 0);
  Type type = part_type(output_type(l, 0));
  Parts z = input_part_arrays(l, left ? 0 : 1);
  Value *real = cast_to(l, input(l, left ? 1 : 0), type.dtype);
  Value *re = cast_to(l, z.re, type.dtype), *im = cast_to(l, z.im, type.dtype);
  re = left ? APPLY(l, "dot_general", type, re, real) : APPLY(l, "dot_general", type, real, re);
  im = left ? APPLY(l, "dot_general", type, im, real) : APPLY(l, "dot_general", type, real, im);
  bind_parts(l, 0, (Parts){re, im});
}

static Value *multiplied(Lowering *l, Type type, Value *a, Value *b) {
  return APPLY(l, "dot_general", type, cast_to(l, a, type.dtype), cast_to(l, b, type.dtype));
}

/* A real result is asked for: the imaginary part is dropped. */
static void lower_real_dot_general(Lowering *l) {
  Parts parts[2];
  for (size_t i = 0; i < 2; i++) {
    Type type = input_is_complex(l, i) ? part_type(input_type(l, i)) : input_type(l, i);
    parts[i] = input_parts(l, i);
    parts[i] = (Parts){part_array(l, parts[i].re, type), part_array(l, parts[i].im, type)};
  }
  Type type = output_type(l, 0);
  Value *re = multiplied(l, type, parts[0].re, parts[1].re);
  if (input_is_complex(l, 0) && input_is_complex(l, 1)) {
    re = EMIT_MATH(l, OP_Sub, re, multiplied(l, type, parts[0].im, parts[1].im));
  }
  bind(l, 0, re);
}

/* One real product: the parts of the left operand are summed over as a further axis, against the right operand and i
 * times the right operand. */
static void lower_dot_general(Lowering *l) {
  Value *right = input(l, 1);
  if (!output_is_complex(l, 0)) {
    lower_real_dot_general(l);
    return;
  }
  if (!input_is_complex(l, 0) || !input_is_complex(l, 1)) {
    lower_mixed_dot_general(l);
    return;
  }
  Equation *equation = real_equation(l);
  equation->inputs[1] = real_operand(l, with_turned(l, right));
  Param *numbers = edit_param(l, equation, "dimension_numbers");
  rely_on(l, numbers->kind == PARAM_LIST && numbers->list.count == 2);
  numbers->list.items = arena_copy(&l->context->arena, numbers->list.items, 2 * sizeof(Param));
  Param *contract = &numbers->list.items[0];
  rely_on(l, contract->kind == PARAM_LIST && contract->list.count == 2);
  contract->list.items = arena_copy(&l->context->arena, contract->list.items, 2 * sizeof(Param));
  append_int(l, &contract->list.items[0], (int64_t)input_type(l, 0).rank - 1);
  append_int(l, &contract->list.items[1], (int64_t)right->type.rank - 1);
  lower_as_real(l, HERE, equation);
}

static Value *convolved(Lowering *l, Value *a, Value *b) {
  return APPLY(l, "conv_general_dilated", part_type(output_type(l, 0)), a, b);
}

static void lower_convolution(Lowering *l) {
  Parts a = input_part_arrays(l, 0), b = input_part_arrays(l, 1);
  Value *re = EMIT_MATH(l, OP_Sub, convolved(l, a.re, b.re), convolved(l, a.im, b.im));
  Value *im = EMIT_MATH(l, OP_Add, convolved(l, a.re, b.im), convolved(l, a.im, b.re));
  bind_parts(l, 0, (Parts){re, im});
}

/* What is linear does the same to both parts. */
static void lower_linear(Lowering *l) {
  Parts z = input_part_arrays(l, 0);
  Type type = part_type(output_type(l, 0));
  Value *re = APPLY(l, l->equation->primitive, type, z.re);
  bind_parts(l, 0, (Parts){re, APPLY(l, l->equation->primitive, type, z.im)});
}

/* Part of the positions along an axis. */
static Value *cut(Lowering *l, Value *part, int64_t axis, int64_t from, int64_t to) {
  Dim *dims = arena_copy(&l->context->arena, part->type.dims, part->type.rank * sizeof *dims);
  dims[axis] = dim_of(to - from);
  Type type = {.dtype = part->type.dtype, .rank = part->type.rank, .dims = dims};
  Dim start = dim_of(from), end = dim_of(to);
  return slice_at(l, part, type, &start, &end, NULL, &axis, 1);
}

static Parts cut_parts(Lowering *l, Parts z, int64_t axis, int64_t from, int64_t to) {
  return (Parts){cut(l, z.re, axis, from, to), cut(l, z.im, axis, from, to)};
}

/* The first half times the second, until one is left; odd ones out wait for the end. */
static Parts product_by_halves(Lowering *l, Parts z, int64_t axis, int64_t size) {
  Parts rest;
  bool any = false;
  for (; size > 1; size /= 2) {
    if (size % 2) {
      Parts odd = cut_parts(l, z, axis, size - 1, size);
      rest = any ? EMIT_PRODUCT(l, rest, odd) : odd;
      any = true;
    }
    Parts first = cut_parts(l, z, axis, 0, size / 2), second = cut_parts(l, z, axis, size / 2, size / 2 * 2);
    z = EMIT_PRODUCT(l, first, second);
  }
  if (any) z = EMIT_PRODUCT(l, z, rest);
  return (Parts){squeeze_at(l, z.re, &axis, 1), squeeze_at(l, z.im, &axis, 1)};
}

/* Along an axis of any size, in order: the last product, or every one. */
static Parts product_by_scan(Lowering *l, Parts z, int64_t axis, bool every, bool reverse) {
  ScanAxis scan = scan_axis(l, z.re->type, axis, reverse);
  Type element = type_without_axis(l, z.re->type, axis), stacked = scan_stacked_type(l, &scan);
  Value *one = number_like(l, z.re, 1), *zero = number_like(l, z.re, 0);
  z = (Parts){scan_operand(l, &scan, z.re, one), scan_operand(l, &scan, z.im, zero)};
  one = expand_to(l, one, element.dims, element.rank);
  zero = expand_to(l, zero, element.dims, element.rank);
  Graph *outer = subgraph_begin(l, "product");
  Parts so_far = {graph_input(l->graph, element, NULL), graph_input(l->graph, element, NULL)};
  Parts next = {graph_input(l->graph, element, NULL), graph_input(l->graph, element, NULL)};
  Parts product = EMIT_PRODUCT(l, so_far, next);
  subgraph_output(l, product.re);
  subgraph_output(l, product.im);
  if (every) {
    subgraph_output(l, product.re);
    subgraph_output(l, product.im);
  }
  Graph *body = subgraph_end(l, outer);
  Type types[] = {element, element, stacked, stacked};
  Node *node = EMIT_NODE(l, OP_Scan, types, every ? 4 : 2, one, zero, z.re, z.im);
  node_set_graph(node, "body", body);
  node_set_int(node, "num_scan_inputs", 2);
  int64_t axes[] = {axis, axis}, stacked_axes[] = {scan.stacked, scan.stacked}, directions[] = {reverse, reverse};
  node_set_ints(node, "scan_input_axes", axes, 2);
  node_set_ints(node, "scan_input_directions", directions, 2);
  if (!every) return (Parts){node->outputs[0], node->outputs[1]};
  node_set_ints(node, "scan_output_axes", stacked_axes, 2);
  node_set_ints(node, "scan_output_directions", directions, 2);
  return (Parts){scan_result(l, &scan, node->outputs[2]), scan_result(l, &scan, node->outputs[3])};
}

/* The axes that are reduced, each of which the parts have. */
static const int64_t *reduced_axes(Lowering *l, size_t *count) {
  const int64_t *axes = param_ints(l->context, l->equation, "axes", count);
  for (size_t i = 0; i < *count; i++) rely_on(l, axes[i] >= 0 && axes[i] + 1 < (int64_t)input_type(l, 0).rank);
  return axes;
}

static void lower_reduce_prod(Lowering *l) {
  size_t count;
  const int64_t *axes = reduced_axes(l, &count);
  Parts z = input_part_arrays(l, 0);
  bool dropped[MAX_RANK] = {false};
  for (size_t i = 0; i < count; i++) dropped[axes[i]] = true;
  for (int64_t axis = (int64_t)z.re->type.rank; axis-- > 0;) {
    if (!dropped[axis]) continue;
    Dim size = z.re->type.dims[axis];
    if (dim_is(size, 0)) {
      z = (Parts){number_like(l, z.re, 1), number_like(l, z.re, 0)};
      break;
    }
    z = dim_is_constant(size) ? product_by_halves(l, z, axis, size.constant)
                              : product_by_scan(l, z, axis, false, false);
  }
  bind_parts(l, 0, z);
}

/* A part moved along the axis; the number comes in at the edge that it leaves. */
static Value *moved(Lowering *l, Value *part, int64_t axis, int64_t distance, double fill) {
  return shift_array(l, part, axis, distance, number_like(l, part, fill));
}

static void lower_cumprod(Lowering *l) {
  int64_t axis = param_int(l->context, l->equation, "axis");
  bool reverse = param_bool_or(l->equation, "reverse", false);
  Parts z = input_part_arrays(l, 0);
  rely_on(l, axis >= 0 && axis < (int64_t)z.re->type.rank);
  Dim size = z.re->type.dims[axis];
  bool empty = is_empty(z.re->type);
  if (!empty && !dim_is_constant(size)) {
    bind_parts(l, 0, product_by_scan(l, z, axis, true, reverse));
    return;
  }
  for (int64_t reach = 1; !empty && reach < size.constant; reach *= 2) {
    int64_t distance = reverse ? -reach : reach;
    z = EMIT_PRODUCT(l, z, (Parts){moved(l, z.re, axis, distance, 1), moved(l, z.im, axis, distance, 0)});
  }
  bind_parts(l, 0, z);
}

/* The extreme of the real parts, and among those that have it, of the imaginary ones. */
static void lower_reduce_extreme(Lowering *l) {
  size_t count;
  const int64_t *axes = reduced_axes(l, &count);
  const char *primitive = l->equation->primitive;
  Parts z = input_part_arrays(l, 0);
  Type type = part_type(output_type(l, 0));
  Value *re = APPLY(l, primitive, type, z.re);
  Dim *dims = arena_new_array(&l->context->arena, z.re->type.rank, Dim);
  copy_bytes(dims, z.re->type.dims, z.re->type.rank * sizeof *dims);
  for (size_t i = 0; i < count; i++) dims[axes[i]] = dim_of(1);
  Value *best = EMIT_MATH(l, OP_Equal, z.re, reshape_to(l, re, dims, z.re->type.rank));
  double worst = l->plugin->flags ? (double)INFINITY : -(double)INFINITY;
  Value *im = APPLY(l, primitive, type, EMIT_WHERE(l, best, z.im, number_like(l, z.im, worst)));
  bind_parts(l, 0, (Parts){re, im});
}

/* clang-format off */
const Plugin complex_product_plugins[] = {
    PLUGIN("conv_general_dilated", lower_convolution, OP_NONE),
    PLUGIN("cumprod", lower_cumprod, OP_NONE),
    PLUGIN("dot_general", lower_dot_general, OP_NONE),
    PLUGIN("reduce_max", lower_reduce_extreme, OP_NONE, false),
    PLUGIN("reduce_min", lower_reduce_extreme, OP_NONE, true),
    PLUGIN("reduce_prod", lower_reduce_prod, OP_NONE),
    PLUGIN("reduce_window_sum", lower_linear, OP_NONE),
    {0},
};
/* clang-format on */
