/* pad: edges that grow, edges that are cut, and gaps between elements, of any element type. */
#include "lower/data/padding.h"

static Padding read_padding(Lowering *l, Type type) {
  const Param *config = param_get(l->context, l->equation, "padding_config");
  rely_on(l, config->kind == PARAM_LIST && config->list.count == type.rank && type.rank <= MAX_RANK);
  Padding padding = {.rank = type.rank};
  for (uint32_t i = 0; i < type.rank; i++) {
    size_t count;
    const Dim *triple = param_dims(l->context, &config->list.items[i], &count);
    rely_on(l, count == 3);
    padding.low[i] = triple[0];
    padding.high[i] = triple[1];
    if (!dim_is_constant(triple[2])) unsupported(l, "the padding between elements must be a constant");
    padding.gap[i] = triple[2].constant;
  }
  return padding;
}

/* Pads by low and high, none of which is negative (a symbolic one is taken for granted). */
static Value *grow(Lowering *l, Value *value, const Dim *low, const Dim *high, Value *fill) {
  uint32_t rank = value->type.rank;
  Dim pads[2 * (2 * MAX_RANK)], dims[2 * MAX_RANK];
  bool changes = false;
  for (uint32_t i = 0; i < rank; i++) {
    pads[i] = low[i];
    pads[rank + i] = high[i];
    dims[i] = dim_add(l->context, value->type.dims[i], dim_add(l->context, low[i], high[i]));
    changes = changes || !dim_is(low[i], 0) || !dim_is(high[i], 0);
  }
  if (!changes) return value;
  Type type = type_make(l->context, value->type.dtype, dims, rank);
  return EMIT_AROUND(l, OP_Pad, type, value, shape_value(l, pads, 2 * (size_t)rank), fill);
}

/* Every element becomes itself and a gap behind it, on an axis of its own that is then merged. The gap behind the last
 * element is taken off padding->high. */
static Value *insert_gaps(Lowering *l, Value *value, Padding *padding, Value *fill) {
  Dim low[2 * MAX_RANK], high[2 * MAX_RANK], merged[MAX_RANK];
  int64_t axes[MAX_RANK];
  size_t count = 0, rank = 0;
  for (uint32_t i = 0; i < padding->rank; i++) {
    low[rank] = high[rank] = dim_of(0);
    rank++;
    merged[i] = value->type.dims[i];
    if (!padding->gap[i]) continue;
    axes[count++] = (int64_t)rank;
    low[rank] = dim_of(0);
    high[rank++] = dim_of(padding->gap[i]);
    merged[i] = dim_multiply(l->context, merged[i], dim_of(padding->gap[i] + 1));
    padding->high[i] = dim_subtract(l->context, padding->high[i], dim_of(padding->gap[i]));
  }
  value = grow(l, unsqueeze_at(l, value, axes, count), low, high, fill);
  return reshape_to(l, value, merged, padding->rank);
}

/* An axis of one element or none has no gaps. */
static bool find_gaps(Type type, Padding *padding) {
  bool any = false;
  for (uint32_t i = 0; i < padding->rank; i++) {
    bool neighbours = !dim_is_constant(type.dims[i]) || type.dims[i].constant > 1;
    if (!neighbours) padding->gap[i] = 0;
    any = any || padding->gap[i];
  }
  return any;
}

static bool is_cut(Dim edge) { return dim_is_constant(edge) && edge.constant < 0; }

/* Cuts what negative padding takes away. */
static Value *cut(Lowering *l, Value *value, Type type, const Padding *padding) {
  Dim from[MAX_RANK], to[MAX_RANK];
  int64_t axes[MAX_RANK];
  size_t count = 0;
  for (uint32_t i = 0; i < padding->rank; i++) {
    bool low = is_cut(padding->low[i]), high = is_cut(padding->high[i]);
    if (!low && !high) continue;
    if (low) from[count] = dim_of(padding->low[i].constant == INT64_MIN ? INT64_MAX : -padding->low[i].constant);
    else from[count] = dim_of(0);
    to[count] = high ? padding->high[i] : dim_of(INT64_MAX);
    axes[count++] = i;
  }
  return slice_at(l, value, type, from, to, NULL, axes, count);
}

Value *pad_array(Lowering *l, Value *value, Padding padding, const Dim *result, Value *fill) {
  Dim low[MAX_RANK] = {{0}}, high[MAX_RANK] = {{0}}, dims[MAX_RANK];
  if (find_gaps(value->type, &padding)) value = insert_gaps(l, value, &padding, fill);
  for (uint32_t i = 0; i < padding.rank; i++) {
    Dim change = dim_add(l->context, padding.low[i], padding.high[i]);
    dims[i] = result ? result[i] : dim_add(l->context, value->type.dims[i], change);
    low[i] = is_cut(padding.low[i]) ? dim_of(0) : padding.low[i];
    high[i] = is_cut(padding.high[i]) ? dim_of(0) : padding.high[i];
  }
  /* Growing first: a cut may be longer than the array when the other side grows. */
  value = grow(l, value, low, high, fill);
  return cut(l, value, type_make(l->context, value->type.dtype, dims, padding.rank), &padding);
}

Value *shift_array(Lowering *l, Value *value, int64_t axis, int64_t distance, Value *fill) {
  int64_t pads[2 * MAX_RANK] = {0};
  uint32_t rank = value->type.rank;
  rely_on(l, rank <= MAX_RANK);
  Type type = value->type;
  pads[axis] = distance;
  pads[rank + axis] = -distance;
  if (target_quirk(l, QUIRK_PAD_CANNOT_CUT)) {
    Dim dims[MAX_RANK], from = dim_of(distance < 0 ? -distance : 0), to = dim_of(distance < 0 ? INT64_MAX : -distance);
    copy_bytes(dims, type.dims, rank * sizeof *dims);
    dims[axis] = dim_subtract(l->context, dims[axis], dim_of(distance < 0 ? -distance : distance));
    value = slice_at(l, value, type_make(l->context, type.dtype, dims, rank), &from, &to, NULL, &axis, 1);
    pads[distance < 0 ? axis : rank + axis] = 0;
  }
  Value *amounts = constant_ints(l, pads, 2 * (size_t)rank);
  return fill ? EMIT(l, OP_Pad, type, value, amounts, fill) : EMIT(l, OP_Pad, type, value, amounts);
}

static void lower_pad(Lowering *l) {
  Value *value = input(l, 0);
  bind(l, 0, pad_array(l, value, read_padding(l, value->type), output_type(l, 0).dims, input(l, 1)));
}

/* clang-format off */
const Plugin padding_plugins[] = {
    PLUGIN("pad", lower_pad, OP_Pad),
    {0},
};
/* clang-format on */
