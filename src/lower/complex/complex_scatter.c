/* Complex numbers scattered into arrays: as pairs where they are set, added or subtracted; part by part where they are
 * multiplied or compared. */
#include <math.h>

#include "base/bytes.h"
#include "lower/complex/complex.h"
#include "lower/control/loops.h"
#include "lower/data/indexing.h"

static void lower_scatter(Lowering *l) {
  Equation *equation = real_equation(l);
  Param *numbers = edit_param(l, equation, "dimension_numbers");
  append_int(l, edit_field(l, numbers, "update_window_dims"), input_type(l, 2).rank - 1);
  lower_as_real(l, HERE, equation);
}

/* Is no element updated twice, because that is said or because there is one update? */
static bool updates_once(Lowering *l) {
  Type indices = input_type(l, 1);
  bool one = true;
  for (uint32_t i = 0; i + 1 < indices.rank; i++) one = one && dim_is(indices.dims[i], 1);
  return one || param_bool_or(l->equation, "unique_indices", false);
}

static bool is_zero(const Value *part) {
  double number;
  return part->tensor && literal_double(part->tensor, &number) && number == 0;
}

/* Each element times what is scattered to it, or 1. */
static Parts multiply_once(Lowering *l, Parts z, Value *indices, Parts factors) {
  Type type = z.re->type;
  Value *ones = filled(l, type, tensor_scalar(l, type.dtype, 1));
  Value *zeros = filled(l, type, tensor_scalar(l, type.dtype, 0));
  Parts spread = {APPLY(l, "scatter-mul", type, ones, indices, factors.re),
                  APPLY(l, "scatter-add", type, zeros, indices, factors.im)};
  return EMIT_PRODUCT(l, z, spread);
}

/* The axes of the indices, and of the updates that run along them: those that may meet, then those that the operand
 * has, too, in whose slices each stays. */
typedef struct UpdateAxes {
  int64_t indices[MAX_RANK], updates[2 * MAX_RANK];
  size_t meeting, batched, windows;
  Dim count; /* of updates that may meet */
} UpdateAxes;

static UpdateAxes read_update_axes(Lowering *l) {
  Type indices = input_type(l, 1), updates = part_type(input_type(l, 2));
  UpdateAxes axes = {.count = dim_of(1)};
  size_t batching;
  const int64_t *windows = dimension_list(l, "update_window_dims", &axes.windows);
  const int64_t *batched = dimension_list(l, "scatter_indices_batching_dims", &batching);
  int64_t own[MAX_RANK];
  rely_on(l, indices.rank > 0 && updates.rank == axes.windows + indices.rank - 1);
  for (size_t i = 0; i < axes.windows; i++) rely_on(l, windows[i] >= 0 && windows[i] < (int64_t)updates.rank);
  for (size_t i = 0; i < batching; i++) rely_on(l, batched[i] >= 0 && batched[i] + 1 < (int64_t)indices.rank);
  uint32_t next = 0;
  for (uint32_t i = 0; i < updates.rank; i++) {
    if (!list_holds(windows, axes.windows, i)) own[next++] = i;
  }
  rely_on(l, next + 1 == indices.rank);
  size_t used = 0;
  for (int pass = 0; pass < 2; pass++) {
    for (uint32_t i = 0; i + 1 < indices.rank; i++) {
      if (list_holds(batched, batching, i) != (pass == 1)) continue;
      if (pass == 0) axes.count = dim_multiply(l->context, axes.count, indices.dims[i]);
      axes.indices[used] = i;
      axes.updates[used++] = own[i];
    }
    if (pass == 0) axes.meeting = used;
  }
  axes.batched = used - axes.meeting;
  axes.indices[used] = (int64_t)indices.rank - 1;
  copy_bytes(axes.updates + used, windows, axes.windows * sizeof *windows);
  return axes;
}

/* What may meet on one axis, in front. */
static Value *in_turn(Lowering *l, const UpdateAxes *axes, Value *value, const int64_t *order) {
  Dim dims[MAX_RANK] = {axes->count};
  size_t rank = 1;
  for (size_t i = axes->meeting; i < value->type.rank; i++) dims[rank++] = value->type.dims[order[i]];
  return reshape_to(l, transpose_by(l, value, order), dims, rank);
}

static Param list_from(Lowering *l, Str name, int64_t first, size_t count) {
  Param list = {.kind = PARAM_LIST, .name = name};
  for (size_t i = 0; i < count; i++) append_int(l, &list, first + (int64_t)i);
  return list;
}

/* The equation of one step: the axes that may meet are gone. */
static Equation *step_equation(Lowering *l, const UpdateAxes *axes) {
  Equation *equation = real_equation(l);
  size_t batching;
  const int64_t *batched = dimension_list(l, "scatter_indices_batching_dims", &batching);
  Param *numbers = edit_param(l, equation, "dimension_numbers");
  Param *windows = edit_field(l, numbers, "update_window_dims");
  *windows = list_from(l, windows->name, (int64_t)axes->batched, axes->windows);
  if (!batching) return equation;
  Param *kept = edit_field(l, numbers, "scatter_indices_batching_dims");
  *kept = list_from(l, kept->name, 0, 0);
  for (size_t i = 0; i < batching; i++) {
    int64_t place = 0;
    while (axes->indices[axes->meeting + (size_t)place] != batched[i]) place++;
    append_int(l, kept, place);
  }
  return equation;
}

static Value *of_step(Lowering *l, Value *value, Value *step) {
  return EMIT(l, OP_Gather, type_without_axis(l, value->type, 0), value, step);
}

/* Factors that meet are multiplied one after the other. */
static Parts multiply_in_turn(Lowering *l, Parts z, Value *indices, Parts factors) {
  UpdateAxes axes = read_update_axes(l);
  indices = in_turn(l, &axes, indices, axes.indices);
  factors = (Parts){in_turn(l, &axes, factors.re, axes.updates), in_turn(l, &axes, factors.im, axes.updates)};
  const Equation *whole = l->equation;
  l->equation = step_equation(l, &axes);
  Loop *loop = LOOP_BEGIN(l, "scatter_products", axes.count, z.re, z.im);
  Value *step = reshape_to(l, loop->index, NULL, 0);
  Parts factor = {of_step(l, factors.re, step), of_step(l, factors.im, step)};
  Parts product = multiply_once(l, (Parts){loop->carried[0], loop->carried[1]}, of_step(l, indices, step), factor);
  Value **results = EMIT_LOOP(loop, product.re, product.im);
  l->equation = whole;
  return (Parts){results[0], results[1]};
}

/* By real factors the parts are multiplied alike. */
static void lower_scatter_product(Lowering *l) {
  Parts z = input_part_arrays(l, 0), factors = input_parts(l, 2);
  Type updates = part_type(input_type(l, 2));
  Value *indices = input(l, 1), *factor = part_array(l, factors.re, updates);
  if (is_zero(factors.im)) {
    z.re = APPLY(l, "scatter-mul", z.re->type, z.re, indices, factor);
    z.im = APPLY(l, "scatter-mul", z.im->type, z.im, indices, factor);
    bind_parts(l, 0, z);
    return;
  }
  factors = input_part_arrays(l, 2);
  bool once = updates_once(l) || is_empty(updates);
  bind_parts(l, 0, once ? multiply_once(l, z, indices, factors) : multiply_in_turn(l, z, indices, factors));
}

/* The windows of an array that the updates go to: a gather at the same indices. */
static Value *windows_at(Lowering *l, Value *array, Type updates) {
  static const char *const fields[][2] = {{"update_window_dims", "offset_dims"},
                                          {"inserted_window_dims", "collapsed_slice_dims"},
                                          {"scatter_dims_to_operand_dims", "start_index_map"},
                                          {"operand_batching_dims", "operand_batching_dims"},
                                          {"scatter_indices_batching_dims", "start_indices_batching_dims"}};
  enum { FIELDS = sizeof fields / sizeof *fields };
  size_t inserted_count, batching, window_count, next = 0;
  const int64_t *inserted = dimension_list(l, "inserted_window_dims", &inserted_count);
  const int64_t *batched = dimension_list(l, "operand_batching_dims", &batching);
  const int64_t *windows = dimension_list(l, "update_window_dims", &window_count);
  const Param *given = param_get(l->context, l->equation, "dimension_numbers");
  Param numbers = {.kind = PARAM_RECORD, .name = given->name};
  numbers.list.items = arena_new_array(&l->context->arena, FIELDS, Param);
  for (size_t i = 0; i < FIELDS; i++) {
    const Param *field = param_field(given, fields[i][0]);
    if (!field) continue;
    numbers.list.items[numbers.list.count] = *field;
    numbers.list.items[numbers.list.count++].name = str_intern(l->context, fields[i][1]);
  }
  Param sizes = {.kind = PARAM_LIST, .name = str_intern(l->context, "slice_sizes")};
  for (uint32_t i = 0; i < array->type.rank; i++) {
    bool single = list_holds(inserted, inserted_count, i) || list_holds(batched, batching, i);
    rely_on(l, single || (next < window_count && windows[next] >= 0 && windows[next] < (int64_t)updates.rank));
    append_item(l, &sizes, (Param){.kind = PARAM_DIM, .dim = single ? dim_of(1) : updates.dims[windows[next++]]});
  }
  Equation *equation = real_equation(l);
  Param *params = arena_new_array(&l->context->arena, 3, Param);
  params[0] = numbers;
  params[1] = sizes;
  params[2] = *param_get(l->context, l->equation, "mode");
  Var *result = real_operand(l, array);
  *equation = (Equation){.primitive = str_intern(l->context, "gather"),
                         .inputs = equation->inputs,
                         .input_count = 2,
                         .outputs = arena_new_array(&l->context->arena, 1, Var *),
                         .output_count = 1,
                         .params = params,
                         .param_count = 3,
                         .trace = equation->trace};
  equation->inputs[0] = real_operand(l, array);
  equation->outputs[0] = result;
  result->type = updates;
  lower_as_real(l, HERE, equation);
  return l->values[result->id];
}

/* The extreme of the real parts, and among those that have it, of the imaginary ones: in any order the same. */
static Parts extreme_of_all(Lowering *l, Parts z, Value *indices, Parts updates) {
  const char *primitive = l->equation->primitive;
  Value *worst = number_like(l, z.im, l->plugin->op == OP_Less ? (double)INFINITY : -(double)INFINITY);
  Value *re = APPLY(l, primitive, z.re->type, z.re, indices, updates.re);
  Value *there = windows_at(l, re, updates.re->type);
  Value *kept = EMIT_WHERE(l, EMIT_MATH(l, OP_Equal, z.re, re), z.im, worst);
  Value *scattered = EMIT_WHERE(l, EMIT_MATH(l, OP_Equal, updates.re, there), updates.im, worst);
  Value *im = APPLY(l, primitive, z.im->type, kept, indices, scattered);
  return (Parts){re, EMIT_WHERE(l, EMIT_MATH(l, OP_IsNaN, re), re, im)};
}

/* The equation as one that sets what it is given. */
static Equation *setting_equation(Lowering *l) {
  Equation *equation = real_equation(l);
  Param *function = edit_param(l, equation, "update_jaxpr");
  *function = (Param){.kind = PARAM_NONE, .name = function->name};
  return equation;
}

/* What is scattered, with the element itself where nothing is, against the element. */
static Parts extreme_of_two(Lowering *l, Parts z, Value *indices, Parts updates) {
  const Equation *whole = l->equation;
  l->equation = setting_equation(l);
  Parts spread = {APPLY(l, "scatter", z.re->type, z.re, indices, updates.re),
                  APPLY(l, "scatter", z.im->type, z.im, indices, updates.im)};
  l->equation = whole;
  return extreme_parts(l, ROW_HERE(l), l->plugin->op, z, spread);
}

static void lower_scatter_extreme(Lowering *l) {
  Parts z = input_part_arrays(l, 0), updates = input_part_arrays(l, 2);
  Value *indices = input(l, 1);
  bind_parts(l, 0, updates_once(l) ? extreme_of_two(l, z, indices, updates) : extreme_of_all(l, z, indices, updates));
}

/* clang-format off */
const Plugin complex_scatter_plugins[] = {
    PLUGIN("scatter", lower_scatter, OP_NONE),
    PLUGIN("scatter-add", lower_scatter, OP_NONE),
    PLUGIN("scatter_add", lower_scatter, OP_NONE),
    PLUGIN("scatter-max", lower_scatter_extreme, OP_Greater),
    PLUGIN("scatter_max", lower_scatter_extreme, OP_Greater),
    PLUGIN("scatter-min", lower_scatter_extreme, OP_Less),
    PLUGIN("scatter_min", lower_scatter_extreme, OP_Less),
    PLUGIN("scatter-mul", lower_scatter_product, OP_NONE),
    PLUGIN("scatter_mul", lower_scatter_product, OP_NONE),
    PLUGIN("scatter-sub", lower_scatter, OP_NONE),
    PLUGIN("scatter_sub", lower_scatter, OP_NONE),
    {0},
};
/* clang-format on */
