/* Gather: windows of the operand, one per index tuple.
 *
 * One addressed dimension is a Gather, whole rows along an axis a GatherElements, points a GatherND. Everything else is
 * GatherND over tuples that also number the elements of the windows.
 */
#include "lower/data/indexing.h"

#include <math.h>

/* What the axes of a gathered array stand for: an operand dimension's window, or a dimension of the batch. */
enum { BATCH_AXIS = 1 << 16 };

typedef struct Gathered {
  Value *value;
  uint32_t axes[2 * MAX_RANK]; /* operand dimension, or BATCH_AXIS + batch dimension */
} Gathered;

/* JAX gives plain x[i] the mode of promised bounds and, in practice, clamps what breaks the promise, where ONNX Runtime
 * would refuse to run. One Clip keeps the two alike. */
static BoundsMode gather_mode(Lowering *l) {
  BoundsMode mode = access_mode(l);
  return mode == BOUNDS_PROMISED ? BOUNDS_CLIPPED : mode;
}

static void read_access(Lowering *l, Access *access) {
  Type operand = input_type(l, 0), indices = input_type(l, 1);
  rely_on(l, indices.rank > 0);
  access_init(l, access, operand, gather_mode(l), indices.dims, indices.rank - 1);
  size_t count, batching, collapsed, mapped;
  const Dim *sizes = param_dims(l->context, param_get(l->context, l->equation, "slice_sizes"), &count);
  rely_on(l, count == operand.rank);
  const int64_t *dropped = dimension_list(l, "collapsed_slice_dims", &collapsed);
  const int64_t *of_operand = dimension_list(l, "operand_batching_dims", &batching);
  const int64_t *of_indices = dimension_list(l, "start_indices_batching_dims", &count);
  rely_on(l, count == batching);
  for (uint32_t d = 0; d < operand.rank; d++) {
    access->size[d] = sizes[d];
    access->dropped[d] = list_holds(dropped, collapsed, d) || list_holds(of_operand, batching, d);
  }
  for (size_t i = 0; i < batching; i++) {
    if (dim_is(operand.dims[of_operand[i]], 1)) continue; /* its only position */
    access->batch_of[of_operand[i]] = (int32_t)of_indices[i];
  }
  const int64_t *map = dimension_list(l, "start_index_map", &mapped);
  access_columns(l, access, input(l, 1), map, mapped);
}

static Value *lower_window(Lowering *l, const Access *access, Value *operand) {
  Access known = *access;
  known.column_count = 0;
  for (uint32_t d = 0; d < access->operand.rank; d++) {
    if (access->batch_of[d] >= 0 || access_column_of(access, d) >= 0) known.size[d] = access->operand.dims[d];
  }
  return window_read(l, &known, operand);
}

/* The starts of a column with the elements of its window along a further axis. */
static Value *window_numbers(Lowering *l, const Access *access, const IndexColumn *column, const int64_t *axes,
                             uint32_t axis, uint32_t rank, const Dim *dims) {
  Value *starts = align_axes(l, column->value, axes, rank);
  if (dim_is(access->size[column->dim], 1)) return starts;
  starts = cast_to(l, starts, DTYPE_INT64);
  Value *numbers = axis_numbers(l, dim_of(0), access->size[column->dim], axis, rank);
  Dim *result = arena_new_array(&l->context->arena, rank, Dim);
  for (uint32_t i = 0; i < rank; i++) result[i] = dim_is(starts->type.dims[i], 1) ? dim_of(1) : dims[i];
  result[axis] = access->size[column->dim];
  return EMIT(l, OP_Add, type_make(l->context, DTYPE_INT64, result, rank), starts, numbers);
}

/* One addressed dimension: Gather along it. */
static void gather_axis(Lowering *l, const Access *access, Value *operand, Gathered *gathered) {
  const IndexColumn *column = &access->columns[0];
  uint32_t axis = column->dim, batch_rank = access->batch_rank;
  bool window = !dim_is(access->size[axis], 1);
  Dim dims[2 * MAX_RANK];
  int64_t axes[MAX_RANK];
  for (uint32_t b = 0; b < batch_rank; b++) {
    axes[b] = b;
    dims[b] = access->batch[b];
  }
  if (window) dims[batch_rank] = access->size[axis];
  Value *index = window_numbers(l, access, column, axes, batch_rank, batch_rank + window, dims);
  uint32_t rank = 0;
  for (uint32_t d = 0; d < operand->type.rank; d++) {
    if (d != axis) {
      gathered->axes[rank] = d;
      dims[rank++] = operand->type.dims[d];
      continue;
    }
    for (uint32_t b = 0; b < batch_rank; b++) {
      gathered->axes[rank] = BATCH_AXIS + b;
      dims[rank++] = access->batch[b];
    }
    if (window) {
      gathered->axes[rank] = d;
      dims[rank++] = access->size[d];
    }
  }
  gathered->value = EMIT(l, OP_Gather, type_make(l->context, operand->type.dtype, dims, rank), operand, index);
  node_set_int(gathered->value->producer, "axis", axis);
}

/* Every other dimension is batched with the dimension of the indices at the same place: GatherElements. */
static bool gather_along_axis(Lowering *l, const Access *access, Value *operand, Gathered *gathered) {
  uint32_t rank = operand->type.rank;
  if (access->column_count != 1 || access->batch_rank != rank) return false;
  uint32_t axis = access->columns[0].dim;
  if (!dim_is(access->size[axis], 1)) return false;
  for (uint32_t d = 0; d < rank; d++) {
    bool only = dim_is(operand->type.dims[d], 1) && dim_is(access->batch[d], 1);
    if (d != axis && access->batch_of[d] != (int32_t)d && !(only && access->dropped[d])) return false;
    gathered->axes[d] = BATCH_AXIS + d;
  }
  Type type = type_make(l->context, operand->type.dtype, access->batch, rank);
  gathered->value = EMIT(l, OP_GatherElements, type, operand, access->columns[0].value);
  node_set_int(gathered->value->producer, "axis", axis);
  return true;
}

/* GatherND on the operand with the addressed dimensions in front. Those that are batched are addressed by numbers as
 * well: symbolic_shape_infer, and with it quant_pre_process, does not know batch_dims, which would save a Concat. */
typedef struct PointGather {
  uint32_t rank;            /* axes that number points: the batch's, then those of windows taken apart */
  Dim dims[3 * MAX_RANK];   /* of the result: those, then the operand's that are whole */
  int64_t order[MAX_RANK];  /* of the operand's axes: addressed, whole */
  Value *columns[MAX_RANK]; /* a number per point for each that is addressed */
  uint32_t column_count;
} PointGather;

static void number_points(const Access *access, PointGather *points, Gathered *gathered) {
  points->rank = access->batch_rank;
  for (uint32_t b = 0; b < access->batch_rank; b++) {
    points->dims[b] = access->batch[b];
    gathered->axes[b] = BATCH_AXIS + b;
  }
  for (uint32_t c = 0; c < access->column_count; c++) {
    uint32_t d = access->columns[c].dim;
    if (dim_is(access->size[d], 1)) continue;
    gathered->axes[points->rank] = d;
    points->dims[points->rank++] = access->size[d];
  }
}

/* The numbers along an axis that is addressed by a column, or by where a point stands in the batch. */
static void address(Lowering *l, const Access *access, PointGather *points) {
  uint32_t window_axis = access->batch_rank;
  int64_t axes[MAX_RANK];
  for (uint32_t b = 0; b < access->batch_rank; b++) axes[b] = b;
  for (uint32_t d = 0; d < access->operand.rank; d++) {
    int32_t c = access_column_of(access, d), b = access->batch_of[d];
    if (c < 0 && b < 0) continue;
    points->order[points->column_count] = d;
    points->columns[points->column_count++] =
        c < 0 ? axis_numbers(l, dim_of(0), access->operand.dims[d], (uint32_t)b, points->rank)
              : window_numbers(l, access, &access->columns[c], axes, window_axis, points->rank, points->dims);
    window_axis += c >= 0 && !dim_is(access->size[d], 1);
  }
}

static Value *point_tuples(Lowering *l, const Access *access, const PointGather *points) {
  bool as_given = points->column_count == access->column_count && points->rank == access->batch_rank;
  if (access->tuples && as_given) return cast_to(l, access->tuples, DTYPE_INT64);
  return index_tuples(l, points->columns, points->column_count, points->dims, points->rank);
}

/* Points, or windows taken apart into points. */
static void gather_points(Lowering *l, const Access *access, Value *operand, Gathered *gathered) {
  PointGather points = {0};
  number_points(access, &points, gathered);
  address(l, access, &points);
  Value *tuples = point_tuples(l, access, &points);
  uint32_t last = points.column_count, rank = points.rank;
  for (uint32_t d = 0; d < access->operand.rank; d++) {
    if (list_holds(points.order, points.column_count, d)) continue;
    gathered->axes[rank] = d;
    points.dims[rank++] = operand->type.dims[d];
    points.order[last++] = d;
  }
  Type type = type_make(l->context, operand->type.dtype, points.dims, rank);
  gathered->value = EMIT(l, OP_GatherND, type, transpose_by(l, operand, points.order), tuples);
}

/* Nothing is addressed at run time: the windows are the same for all, or the batch's own. */
static void gather_whole(const Access *access, Value *operand, Gathered *gathered) {
  gathered->value = operand;
  for (uint32_t d = 0; d < access->operand.rank; d++) {
    gathered->axes[d] = access->batch_of[d] >= 0 ? BATCH_AXIS + (uint32_t)access->batch_of[d] : d;
  }
}

/* What output axis p stands for, given the axes that windows take. */
static uint32_t output_axis(Lowering *l, const Access *access, const int64_t *offsets, size_t count, uint32_t p) {
  uint32_t before = 0;
  for (uint32_t i = 0; i < p; i++) before += list_holds(offsets, count, i);
  if (!list_holds(offsets, count, p)) return BATCH_AXIS + p - before;
  for (uint32_t d = 0; d < access->operand.rank; d++) {
    if (!access->dropped[d] && before-- == 0) return d;
  }
  fail(l->context, ERROR_INTERNAL, "gather has more offset dimensions than windows");
}

/* The axes in the order of the output; those of size 1 that are gone come back, those too many go. */
static Value *arrange(Lowering *l, const Access *access, const Gathered *gathered, const int64_t *offsets,
                      size_t count) {
  Type type = output_type(l, 0);
  uint32_t rank = gathered->value->type.rank, kept = 0;
  int64_t permutation[2 * MAX_RANK], missing[2 * MAX_RANK];
  size_t missing_count = 0;
  for (uint32_t p = 0; p < type.rank; p++) {
    uint32_t wanted = output_axis(l, access, offsets, count, p), at = 0;
    while (at < rank && gathered->axes[at] != wanted) at++;
    if (at < rank) permutation[kept++] = at;
    else missing[missing_count++] = p;
  }
  uint32_t extra = rank - kept, next = kept;
  int64_t squeezed[2 * MAX_RANK];
  for (uint32_t i = 0; i < rank; i++) {
    if (!list_holds(permutation, kept, i)) permutation[next++] = i;
  }
  for (uint32_t i = 0; i < extra; i++) squeezed[i] = kept + i;
  Value *value = transpose_by(l, gathered->value, permutation);
  value = squeeze_at(l, value, squeezed, extra);
  value = unsqueeze_at(l, value, missing, missing_count);
  return expand_to(l, value, type.dims, type.rank);
}

/* What stands for windows that are out of bounds: NaN, the least signed or greatest unsigned number, or true. */
static Value *fill_value(Lowering *l, DType dtype) {
  const Param *given = param_find(l->equation, "fill_value");
  if (given && given->kind == PARAM_TENSOR) return cast_to(l, constant(l, given->tensor), dtype);
  if (given && given->kind == PARAM_FLOAT) return constant_scalar(l, dtype, given->real);
  if (given && (given->kind == PARAM_INT || given->kind == PARAM_BOOL)) {
    return constant_integer(l, dtype, given->integer);
  }
  switch (dtype_kind(dtype)) {
    case KIND_FLOAT: return constant_scalar(l, dtype, (double)NAN);
    case KIND_INT: return constant_integer(l, dtype, (int64_t)(-1) * ((int64_t)1 << (dtype_bits(dtype) - 2)) * 2);
    case KIND_UINT: return constant_integer(l, dtype, -1);
    default: return constant_scalar(l, dtype, 1);
  }
}

static Value *fill_out_of_bounds(Lowering *l, const Access *access, Value *value, const int64_t *offsets,
                                 size_t count) {
  if (!access->in_bounds) return value;
  int64_t axes[2 * MAX_RANK];
  size_t batch = 0;
  for (uint32_t p = 0; p < value->type.rank; p++) {
    if (!list_holds(offsets, count, p)) axes[batch++] = p;
  }
  Value *mask = align_axes(l, access->in_bounds, axes, value->type.rank);
  return choose(l, mask, value, fill_value(l, value->type.dtype), value->type);
}

static void lower_gather(Lowering *l) {
  Type type = output_type(l, 0);
  if (is_empty(type)) {
    bind(l, 0, expand_to(l, constant_like(l, type, 0), type.dims, type.rank));
    return;
  }
  Access access;
  read_access(l, &access);
  DType dtype = compute_dtype(l, OP_GatherND, type.dtype);
  if (dtype == DTYPE_NONE) unsupported(l, "ONNX Runtime cannot gather elements of type %s", dtype_name(type.dtype));
  Value *operand = lower_window(l, &access, cast_to(l, input(l, 0), dtype));
  size_t count;
  const int64_t *offsets = dimension_list(l, "offset_dims", &count);
  bool batched = false;
  for (uint32_t d = 0; d < access.operand.rank; d++) batched = batched || access.batch_of[d] >= 0;
  bool window = access.column_count == 1 && !dim_is(access.size[access.columns[0].dim], 1);
  Gathered gathered;
  if (access.column_count == 0) {
    gather_whole(&access, operand, &gathered);
  } else if (window && !batched && access_is_single(&access)) {
    gather_whole(&access, window_read(l, &access, operand), &gathered);
  } else if (!gather_along_axis(l, &access, operand, &gathered)) {
    if (access.column_count == 1 && !batched) gather_axis(l, &access, operand, &gathered);
    else gather_points(l, &access, operand, &gathered);
  }
  Value *value = cast_to(l, arrange(l, &access, &gathered, offsets, count), type.dtype);
  bind(l, 0, fill_out_of_bounds(l, &access, value, offsets, count));
}

/* clang-format off */
const Plugin gather_plugins[] = {
    PLUGIN("gather", lower_gather, OP_Gather),
    {0},
};
/* clang-format on */
