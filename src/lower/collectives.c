/* Collectives, of which two kinds are left in a program for one device. Over an axis of a mesh they have nothing to
 * exchange, since it has size one (calls.c). Over an axis of the array, where vmap put an axis that has a name, they
 * reduce it. */
#include "lower/lower.h"

/* The axes of the array among those of the collective. */
static size_t array_axes(Lowering *l, uint32_t rank, int64_t *axes) {
  const Param *all = param_find(l->equation, "axes");
  size_t count = 0;
  if (!all || all->kind != PARAM_LIST) return 0;
  for (size_t i = 0; i < all->list.count; i++) {
    const Param *axis = &all->list.items[i];
    if (axis->kind != PARAM_INT) continue;
    rely_on(l, axis->integer >= 0 && axis->integer < (int64_t)rank && count < MAX_RANK);
    axes[count++] = axis->integer;
  }
  return count;
}

static void lower_reducing_collective(Lowering *l) {
  int64_t axes[MAX_RANK];
  for (uint32_t i = 0; i < l->equation->output_count; i++) {
    Type type = output_type(l, i);
    Value *value = input(l, i);
    value = reduce_by(l, l->plugin->op, value, axes, array_axes(l, value->type.rank, axes));
    bind(l, i, reshape_to(l, value, type.dims, type.rank));
  }
}

static void lower_collective(Lowering *l) {
  int64_t axes[MAX_RANK];
  for (uint32_t i = 0; i < l->equation->output_count; i++) {
    Type type = output_type(l, i);
    if (array_axes(l, input(l, i)->type.rank, axes)) unsupported(l, "it exchanges data along an axis of an array");
    bind(l, i, reshape_to(l, input(l, i), type.dims, type.rank));
  }
}

static void lower_axis_index(Lowering *l) { bind(l, 0, constant_integer(l, output_type(l, 0).dtype, 0)); }

/* clang-format off */
const Plugin collective_plugins[] = {
    PLUGIN("psum", lower_reducing_collective, OP_ReduceSum),
    PLUGIN("psum_invariant", lower_reducing_collective, OP_ReduceSum),
    PLUGIN("pmax", lower_reducing_collective, OP_ReduceMax),
    PLUGIN("pmin", lower_reducing_collective, OP_ReduceMin),
    PLUGIN("pvary", lower_collective),
    PLUGIN("pcast", lower_collective),
    PLUGIN("ppermute", lower_collective),
    PLUGIN("all_gather", lower_collective),
    PLUGIN("all_gather_invariant", lower_collective),
    PLUGIN("all_to_all", lower_collective),
    PLUGIN("reduce_scatter", lower_collective),
    PLUGIN("all_gather_reduced", lower_collective),
    PLUGIN("preduced", lower_collective),
    PLUGIN("unreduced_psum", lower_reducing_collective, OP_ReduceSum),
    PLUGIN("unreduced_pmax", lower_reducing_collective, OP_ReduceMax),
    PLUGIN("unreduced_pmin", lower_reducing_collective, OP_ReduceMin),
    PLUGIN("unreduced_reduce_scatter", lower_collective),
    PLUGIN("axis_index", lower_axis_index),
    {0},
};
/* clang-format on */
