/* Extremes of complex numbers over windows, by the real parts and then by the imaginary ones. The order is total, so
 * one axis follows another, and a window is two that overlap: a handful of comparisons for windows of any size. */
#include <math.h>

#include "base/bytes.h"
#include "lower/complex/complex.h"
#include "lower/window/reduce_window.h"
#include "lower/window/sliding_window.h"

/* Every step-th element along the axis, so many of them. */
static Value *taken(Lowering *l, Value *part, int64_t axis, Dim start, Dim count, int64_t step) {
  Dim *dims = arena_copy(&l->context->arena, part->type.dims, part->type.rank * sizeof *dims);
  dims[axis] = count;
  Type type = type_make(l->context, part->type.dtype, dims, part->type.rank);
  Dim limit = dim_add(l->context, start, dim_multiply(l->context, count, dim_of(step)));
  return slice_at(l, part, type, &start, &limit, &step, &axis, 1);
}

/* Each element against the one at a distance behind it. */
static Parts against_later(Lowering *l, Parts z, int64_t axis, int64_t distance) {
  Dim rest = dim_add(l->context, z.re->type.dims[axis], dim_of(-distance)), start = dim_of(0), later = dim_of(distance);
  Parts first = {taken(l, z.re, axis, start, rest, 1), taken(l, z.im, axis, start, rest, 1)};
  Parts second = {taken(l, z.re, axis, later, rest, 1), taken(l, z.im, axis, later, rest, 1)};
  return extreme_parts(l, ROW_HERE(l), l->plugin->op, first, second);
}

static Parts extremes_along(Lowering *l, Parts z, int64_t axis, const WindowAxis *window) {
  int64_t size = window->window.constant, reach = 1;
  for (; reach * 2 <= size; reach *= 2) z = against_later(l, z, axis, reach * window->dilation);
  if (reach < size) z = against_later(l, z, axis, (size - reach) * window->dilation);
  if (window->stride == 1) return z;
  Dim start = dim_of(0);
  return (Parts){taken(l, z.re, axis, start, window->count, window->stride),
                 taken(l, z.im, axis, start, window->count, window->stride)};
}

static void lower_extreme_windows(Lowering *l) {
  Type type = part_type(input_type(l, 0)), result = part_type(output_type(l, 0));
  Parts z = input_parts(l, 0);
  Value *worst = number_like(l, z.re, l->plugin->op == OP_Less ? (double)INFINITY : -(double)INFINITY);
  if (is_empty(result) || is_empty(type)) { /* nothing but padding */
    bind_parts(l, 0, (Parts){worst, number_like(l, z.re, 0)});
    return;
  }
  WindowAxis *axes = read_windows(l, type, result);
  WindowAxis *same = arena_copy(&l->context->arena, axes, type.rank * sizeof *axes);
  z.re = apply_padding(l, part_array(l, z.re, type), 0, axes, type.rank, worst);
  z.im = apply_padding(l, part_array(l, z.im, type), 0, same, type.rank, number_like(l, z.re, 0));
  for (uint32_t i = 0; i < type.rank; i++) z = extremes_along(l, z, i, &axes[i]);
  bind_parts(l, 0, (Parts){part_array(l, z.re, result), part_array(l, z.im, result)});
}

/* clang-format off */
const Plugin complex_window_plugins[] = {
    PLUGIN("reduce_window_max", lower_extreme_windows, OP_Greater),
    PLUGIN("reduce_window_min", lower_extreme_windows, OP_Less),
    {0},
};
/* clang-format on */
