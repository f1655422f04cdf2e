/* Scatter: windows of the operand replaced by updates, or combined with them, one per index tuple.
 *
 * One window is read, combined and put back. Several are ScatterND or ScatterElements: ONNX Runtime runs ScatterND in
 * parallel, so that two updates of one element may lose one another; where updates are combined, and indices may be
 * equal and the work is large enough to be divided, it is ScatterElements, which goes through the updates in order.
 */
#include "lower/data/indexing.h"

#include <math.h>

#include "lower/control/loops.h"
#include "lower/elementwise/arithmetic.h"
#include "lower/reduce/scalar_body.h"
#include "onnx/facts/schema.h"
#include "types/numbers.h"

/* What a row's flags say. */
typedef enum Combiner {
  COMBINE_SET,
  COMBINE_ADD,
  COMBINE_SUB,
  COMBINE_MUL,
  COMBINE_MIN,
  COMBINE_MAX,
  COMBINE_APPLY, /* a function of the element takes its place; there is no update */
} Combiner;

static const struct {
  const char *reduction;
  Op op;
} combiners[] = {
    [COMBINE_SET] = {NULL, OP_NONE}, [COMBINE_ADD] = {"add", OP_Add}, [COMBINE_SUB] = {"add", OP_Sub},
    [COMBINE_MUL] = {"mul", OP_Mul}, [COMBINE_MIN] = {"min", OP_Min}, [COMBINE_MAX] = {"max", OP_Max},
};

typedef struct Scatter {
  Access access;
  Combiner combiner;
  const int64_t *windows; /* the axes of the updates that are windows, ascending */
  size_t window_count;
  Value *operand, *updates;
  bool unique;           /* no element is updated twice */
  const Jaxpr *function; /* to apply, or NULL */
} Scatter;

/* A sum is also what JAX makes of the gradient of plain x[i], with the mode of promised bounds though no one promised
 * them: in practice it drops what is out of bounds, where ONNX Runtime would refuse to run. */
static BoundsMode scatter_mode(Lowering *l) {
  BoundsMode mode = access_mode(l);
  return mode == BOUNDS_PROMISED && l->plugin->flags == COMBINE_ADD ? BOUNDS_DROPPED : mode;
}

static void read_scatter(Lowering *l, Scatter *s) {
  Type operand = input_type(l, 0), indices = input_type(l, 1), updates = input_type(l, 2);
  Access *access = &s->access;
  rely_on(l, indices.rank > 0);
  access_init(l, access, operand, scatter_mode(l), indices.dims, indices.rank - 1);
  size_t inserted_count, batching, count, mapped;
  const int64_t *inserted = dimension_list(l, "inserted_window_dims", &inserted_count);
  const int64_t *of_operand = dimension_list(l, "operand_batching_dims", &batching);
  const int64_t *of_indices = dimension_list(l, "scatter_indices_batching_dims", &count);
  rely_on(l, count == batching);
  s->windows = dimension_list(l, "update_window_dims", &s->window_count);
  rely_on(l, updates.rank == s->window_count + indices.rank - 1);
  size_t window = 0;
  for (uint32_t d = 0; d < operand.rank; d++) {
    access->dropped[d] = list_holds(inserted, inserted_count, d) || list_holds(of_operand, batching, d);
    rely_on(l, access->dropped[d] || window < s->window_count);
    access->size[d] = access->dropped[d] ? dim_of(1) : updates.dims[s->windows[window++]];
  }
  for (size_t i = 0; i < batching; i++) {
    if (dim_is(operand.dims[of_operand[i]], 1)) continue; /* its only position */
    access->batch_of[of_operand[i]] = (int32_t)of_indices[i];
  }
  const int64_t *map = dimension_list(l, "scatter_dims_to_operand_dims", &mapped);
  access_columns(l, access, input(l, 1), map, mapped);
  const Param *function = param_find(l->equation, "update_jaxpr");
  s->combiner = (Combiner)l->plugin->flags;
  if (s->combiner == COMBINE_SET && function && function->kind == PARAM_JAXPR) {
    s->combiner = COMBINE_APPLY;
    s->function = function->jaxpr;
  }
  s->unique = param_bool_or(l->equation, "unique_indices", false);
}

/* The element type to combine in: of the type itself, or the next that ONNX Runtime has a kernel for. */
static DType scatter_dtype(Lowering *l, Op op, Combiner combiner, DType dtype) {
  const char *reduction = combiners[combiner].reduction;
  int64_t opset = l->options->opset;
  if (schema_runs(op, reduction, opset, dtype)) return dtype;
  static const DType wider[] = {DTYPE_INT32, DTYPE_FLOAT32};
  for (size_t i = 0; i < 2; i++) {
    bool fits = i == 0 ? !dtype_is_float(dtype) && dtype_bits(dtype) < 32 : dtype_is_float(dtype);
    if (fits && schema_runs(op, reduction, opset, wider[i])) return wider[i];
  }
  if (reduction && schema_version(op, opset) < 18) {
    unsupported(l, "scattering with %s needs opset 18 or later, but opset %lld was requested", reduction,
                (long long)opset);
  }
  unsupported(l, "ONNX Runtime cannot scatter elements of type %s", dtype_name(dtype));
}

static Value *applied(Lowering *l, const Scatter *s, Value *current) {
  Value *arguments[] = {current, constant_like(l, current->type, 0)}, *result;
  const Param *consts = param_find(l->equation, "update_consts");
  arguments[1] = expand_to(l, arguments[1], current->type.dims, current->type.rank);
  apply_scalar_body(l, HERE, s->function, consts, arguments, 2, &result);
  return result;
}

static Value *combine(Lowering *l, const Scatter *s, Value *current, Value *update) {
  if (s->combiner == COMBINE_SET) return update;
  if (s->combiner == COMBINE_APPLY) return applied(l, s, current);
  return EMIT_ROW_AROUND(l, combiners[s->combiner].op, current->type, current, update);
}

/* One window: no two updates can meet. Written over itself when it is out of bounds. */
static Value *scatter_one(Lowering *l, Scatter *s) {
  const Access *access = &s->access;
  Value *update = reshape_to(l, s->updates, access->size, access->operand.rank);
  Value *current = NULL;
  if (s->combiner != COMBINE_SET || access->in_bounds) current = window_read(l, access, s->operand);
  if (current) update = combine(l, s, current, update);
  if (access->in_bounds) {
    Value *mask = reshape_to(l, access->in_bounds, NULL, 0);
    update = choose(l, mask, update, current, update->type);
  }
  return window_replace(l, access, s->operand, update);
}

/* An update that changes nothing. */
static Value *identity_of(Lowering *l, Combiner combiner, DType dtype) {
  switch (combiner) {
    case COMBINE_MUL: return constant_integer(l, dtype, 1);
    case COMBINE_MIN: return constant(l, reduction_identity(l, OP_ReduceMin, dtype));
    case COMBINE_MAX: return constant(l, reduction_identity(l, OP_ReduceMax, dtype));
    default: return dtype_is_float(dtype) ? constant_scalar(l, dtype, -0.0) : constant_integer(l, dtype, 0);
  }
}

static Value *negated(Lowering *l, Value *value) {
  if (dtype_is_unsigned(value->type.dtype)) {
    return EMIT_AROUND(l, OP_Sub, value->type, constant_integer(l, value->type.dtype, 0), value);
  }
  return EMIT_AROUND(l, OP_Neg, value->type, value);
}

/* The axes of the updates that the batch runs along. */
static void batch_axes(const Scatter *s, int64_t *axes) {
  for (uint32_t p = 0, b = 0; p < s->updates->type.rank; p++) {
    if (!list_holds(s->windows, s->window_count, p)) axes[b++] = p;
  }
}

/* Updates that are out of bounds become such that change nothing; there is nothing to drop afterwards. */
static void neutralise(Lowering *l, Scatter *s) {
  if (!s->access.in_bounds || s->combiner == COMBINE_SET) return;
  int64_t axes[2 * MAX_RANK];
  batch_axes(s, axes);
  Value *mask = align_axes(l, s->access.in_bounds, axes, s->updates->type.rank);
  Value *identity = identity_of(l, s->combiner, s->updates->type.dtype);
  s->updates = choose(l, mask, s->updates, identity, s->updates->type);
  s->access.in_bounds = NULL;
}

/* axis: of ScatterElements; ScatterND has none. */
static Value *emit_scatter(Lowering *l, const Scatter *s, Op op, Value *operand, Value *indices, Value *updates,
                           int64_t axis) {
  DType dtype = scatter_dtype(l, op, s->combiner, operand->type.dtype);
  Type type = type_with(operand->type, dtype);
  Value *result = EMIT_ROW(l, op, type, cast_to(l, operand, dtype), indices, cast_to(l, updates, dtype));
  const char *reduction = combiners[s->combiner].reduction;
  if (reduction) node_set_string(result->producer, "reduction", reduction);
  if (axis) node_set_int(result->producer, "axis", axis);
  return narrow_to(l, result, operand->type.dtype);
}

/* Is this much done in one thread? (ONNX Runtime divides work from about 100 thousand cycles on.) */
static bool is_small(Type type) {
  enum { SMALL = 1 << 15 };
  int64_t count;
  return type_count(type, &count) && count <= SMALL;
}

/* May two updates meet, in work large enough to be divided? */
static bool needs_order(const Lowering *l, const Scatter *s) {
  bool may_meet = s->combiner != COMBINE_SET && !s->unique;
  return may_meet && !is_small(s->updates->type) && target_quirk(l, QUIRK_SCATTER_COMBINES_IN_THREADS);
}

/* Where each position along the axis is found behind the operand, or in it; NULL: too few are set, or one twice. */
static const Tensor *set_positions(Lowering *l, const Scatter *s, Dim size) {
  const Tensor *numbers = known_numbers(l, s->access.columns[0].value);
  if (!numbers || !dim_is_constant(size) || s->combiner != COMBINE_SET) return NULL;
  size_t width = dtype_bytes(numbers->dtype, 1), count = numbers->size / width;
  if ((int64_t)count < size.constant / 2) return NULL;
  int64_t all = size.constant, *order = arena_new_array(&l->context->arena, (size_t)all, int64_t);
  for (int64_t i = 0; i < all; i++) order[i] = i;
  for (size_t i = 0; i < count; i++) {
    int64_t at = number_decode_int(numbers->dtype, (const char *)numbers->data + i * width);
    if (at < 0) at += all;
    if (at < 0 || at >= all || order[at] != at) return NULL;
    order[at] = all + (int64_t)i;
  }
  return tensor_new(l, DTYPE_INT64, &all, 1, order, (size_t)all * sizeof *order);
}

/* Half of an axis or more at positions known at export: operand and updates side by side, of which each is picked. */
static Value *pick_set(Lowering *l, const Scatter *s, uint32_t axis) {
  Type type = s->operand->type;
  const Tensor *order = set_positions(l, s, type.dims[axis]);
  if (!order) return NULL;
  Dim *dims = arena_copy(&l->context->arena, type.dims, type.rank * sizeof *dims);
  dims[axis] = dim_add(l->context, type.dims[axis], s->updates->type.dims[axis]);
  Value *both =
      concat_at(l, VALUES(s->operand, s->updates), 2, axis, type_make(l->context, type.dtype, dims, type.rank));
  Value *picked = EMIT(l, OP_Gather, type, both, constant(l, order));
  node_set_int(picked->producer, "axis", axis);
  return picked;
}

/* One position along one axis, everything else either whole or batched at the same place: ScatterElements. */
static Value *scatter_along_axis(Lowering *l, Scatter *s) {
  const Access *access = &s->access;
  uint32_t rank = access->operand.rank;
  if (access->in_bounds || access->column_count != 1 || s->updates->type.rank != rank) return NULL;
  uint32_t axis = access->columns[0].dim;
  if (!dim_is(access->size[axis], 1) || !access->dropped[axis]) return NULL;
  int64_t axes[2 * MAX_RANK];
  batch_axes(s, axes);
  for (uint32_t d = 0; d < rank; d++) {
    bool whole = dim_equal(access->size[d], access->operand.dims[d]);
    bool batched = access->batch_of[d] >= 0 && axes[access->batch_of[d]] == (int64_t)d;
    if (d != axis && !batched && !(whole && access->batch_of[d] < 0)) return NULL;
    if (d != axis && whole && !batched && access->dropped[d] && !dim_is(s->updates->type.dims[d], 1)) return NULL;
  }
  bool alone = access->batch_rank == 1 && axes[0] == (int64_t)axis; /* the same positions for all the rest */
  if (!alone && access->batch_rank != rank) return NULL;
  if (alone && axis == 0 && !needs_order(l, s)) return NULL; /* ScatterND takes whole rows */
  Value *picked = alone ? pick_set(l, s, axis) : NULL;
  if (picked) return picked;
  Value *index = align_axes(l, access->columns[0].value, axes, rank);
  index = expand_to(l, index, s->updates->type.dims, rank);
  return emit_scatter(l, s, OP_ScatterElements, s->operand, index, s->updates, axis);
}

/* The point form: one column of numbers per operand dimension up to the last that is not whole, over the axes of the
 * updates that are not whole rows. */
typedef struct Points {
  uint32_t prefix;        /* operand dimensions addressed */
  uint32_t rank;          /* axes of the updates that number points */
  Dim dims[2 * MAX_RANK]; /* their sizes */
  Value *columns[MAX_RANK];
  Value *updates; /* points × rows */
} Points;

static uint32_t addressed_prefix(const Access *access) {
  uint32_t prefix = 0;
  for (uint32_t d = 0; d < access->operand.rank; d++) {
    bool whole = access->batch_of[d] < 0 && dim_equal(access->size[d], access->operand.dims[d]) && !access->dropped[d];
    if (!whole) prefix = d + 1;
  }
  return prefix ? prefix : 1;
}

/* The updates with the axes of whole rows last. */
static void arrange_updates(Lowering *l, const Scatter *s, Points *points, int64_t *axis_of_window,
                            int64_t *axis_of_batch) {
  uint32_t rank = s->updates->type.rank, operand_rank = s->access.operand.rank;
  int64_t permutation[2 * MAX_RANK] = {0}, place[2 * MAX_RANK] = {0};
  bool row[2 * MAX_RANK] = {false};
  size_t window = 0;
  int64_t update_axis[MAX_RANK];
  for (uint32_t d = 0; d < operand_rank; d++) {
    update_axis[d] = s->access.dropped[d] ? -1 : s->windows[window++];
    if (update_axis[d] >= 0 && d >= points->prefix) row[update_axis[d]] = true;
  }
  uint32_t next = 0;
  for (int pass = 0; pass < 2; pass++) {
    for (uint32_t p = 0; p < rank; p++) {
      if (row[p] != (pass == 1)) continue;
      place[p] = next;
      if (!pass) points->dims[next] = s->updates->type.dims[p];
      permutation[next++] = p;
    }
    if (!pass) points->rank = next;
  }
  points->updates = transpose_by(l, s->updates, permutation);
  for (uint32_t d = 0; d < operand_rank; d++) axis_of_window[d] = update_axis[d] < 0 ? -1 : place[update_axis[d]];
  int64_t axes[2 * MAX_RANK];
  batch_axes(s, axes);
  for (uint32_t b = 0; b < s->access.batch_rank; b++) axis_of_batch[b] = place[axes[b]];
}

static Value *point_column(Lowering *l, const Scatter *s, const Points *points, uint32_t dim, int64_t window_axis,
                           const int64_t *axis_of_batch, bool negative) {
  const Access *access = &s->access;
  int32_t c = access_column_of(access, dim);
  uint32_t rank = points->rank;
  if (access->batch_of[dim] >= 0) {
    uint32_t axis = (uint32_t)axis_of_batch[access->batch_of[dim]];
    return axis_numbers(l, dim_of(0), access->operand.dims[dim], axis, rank);
  }
  uint32_t axis = window_axis < 0 ? 0 : (uint32_t)window_axis;
  Value *numbers = axis_numbers(l, c < 0 ? access->start[dim] : dim_of(0), access->size[dim], axis, rank);
  if (c < 0) return numbers;
  const IndexColumn *column = &access->columns[c];
  Value *starts = negative ? column->value : nonnegative_starts(l, access, column);
  starts = align_axes(l, starts, axis_of_batch, rank);
  if (dim_is(access->size[dim], 1)) return starts;
  Dim *dims = arena_new_array(&l->context->arena, rank, Dim);
  for (uint32_t i = 0; i < rank; i++) dims[i] = starts->type.dims[i];
  dims[axis] = access->size[dim];
  Type type = type_make(l->context, DTYPE_INT64, dims, rank);
  return EMIT(l, OP_Add, type, cast_to(l, starts, DTYPE_INT64), numbers);
}

static Dim product(Lowering *l, const Dim *dims, size_t count) {
  Dim result = dim_of(1);
  for (size_t i = 0; i < count; i++) result = dim_multiply(l->context, result, dims[i]);
  return result;
}

/* Leaves the points that are within bounds: their number is known only at run time. */
static Value *drop_points(Lowering *l, const Scatter *s, Points *points, const int64_t *axis_of_batch, Value *tuples) {
  Dim count = product(l, points->dims, points->rank), left = data_dimension(l);
  uint32_t row_rank = points->updates->type.rank - points->rank;
  Dim dims[2 * MAX_RANK] = {count, dim_of(points->prefix)};
  tuples = reshape_to(l, tuples, dims, 2);
  for (uint32_t i = 0; i < row_rank; i++) dims[1 + i] = points->updates->type.dims[points->rank + i];
  Value *updates = reshape_to(l, points->updates, dims, row_rank + 1);
  DType dtype = compute_dtype(l, OP_Compress, updates->type.dtype);
  if (dtype != DTYPE_NONE) updates = cast_to(l, updates, dtype);
  Value *mask = align_axes(l, s->access.in_bounds, axis_of_batch, points->rank);
  mask = expand_to(l, mask, points->dims, points->rank);
  mask = reshape_to(l, mask, &count, 1);
  dims[0] = left;
  points->updates = EMIT(l, OP_Compress, type_make(l->context, updates->type.dtype, dims, row_rank + 1), updates, mask);
  node_set_int(points->updates->producer, "axis", 0);
  dims[1] = dim_of(points->prefix);
  tuples = EMIT(l, OP_Compress, type_make(l->context, DTYPE_INT64, dims, 2), tuples, mask);
  node_set_int(tuples->producer, "axis", 0);
  return tuples;
}

/* Dimensions addressed become one, so that ScatterElements can go through the updates in order. */
static Value *scatter_flat(Lowering *l, const Scatter *s, const Points *points) {
  Type type = s->operand->type;
  Value *flat = NULL;
  Dim rows = product(l, type.dims, points->prefix);
  Dim row = product(l, type.dims + points->prefix, type.rank - points->prefix);
  Dim dims[2] = {rows, row};
  Dim count = product(l, points->dims, points->rank);
  for (uint32_t d = 0; d < points->prefix; d++) {
    Dim stride = product(l, type.dims + d + 1, points->prefix - d - 1);
    Value *part = cast_to(l, points->columns[d], DTYPE_INT64);
    if (!dim_is(stride, 1)) part = EMIT(l, OP_Mul, part->type, part, dimension_scalar(l, stride, DTYPE_INT64));
    if (!flat) {
      flat = part;
      continue;
    }
    Dim *sum = arena_new_array(&l->context->arena, points->rank, Dim);
    for (uint32_t i = 0; i < points->rank; i++) {
      sum[i] = dim_is(flat->type.dims[i], 1) ? part->type.dims[i] : flat->type.dims[i];
    }
    flat = EMIT(l, OP_Add, type_make(l->context, DTYPE_INT64, sum, points->rank), flat, part);
  }
  flat = expand_to(l, flat, points->dims, points->rank);
  Value *operand = reshape_to(l, s->operand, dims, 2);
  Dim update_dims[2] = {count, row}, column[2] = {count, dim_of(1)};
  Value *updates = reshape_to(l, points->updates, update_dims, 2);
  flat = expand_to(l, reshape_to(l, flat, column, 2), update_dims, 2);
  return reshape_to(l, emit_scatter(l, s, OP_ScatterElements, operand, flat, updates, 0), type.dims, type.rank);
}

/* Points out of bounds go to a row behind the last one, which is cut off again: where there is no Compress. */
static Value *scatter_with_spare_row(Lowering *l, const Scatter *s, Points *points, const int64_t *axis_of_batch) {
  Type type = s->operand->type;
  Dim *dims = arena_copy(&l->context->arena, type.dims, type.rank * sizeof *dims), first = dims[0], zero = dim_of(0);
  int64_t axis = 0;
  Value *mask = align_axes(l, s->access.in_bounds, axis_of_batch, points->rank);
  for (uint32_t d = 0; d < points->prefix; d++) {
    Value *away = dimension_scalar(l, d ? zero : first, DTYPE_INT64);
    points->columns[d] = EMIT_WHERE(l, mask, cast_to(l, points->columns[d], DTYPE_INT64), away);
  }
  Value *tuples = index_tuples(l, points->columns, points->prefix, points->dims, points->rank);
  dims[0] = dim_of(1);
  Value *spare = filled(l, type_make(l->context, type.dtype, dims, type.rank), tensor_scalar(l, type.dtype, 0));
  dims[0] = dim_add(l->context, first, dim_of(1));
  Type longer = type_make(l->context, type.dtype, dims, type.rank);
  Value *operand = concat_at(l, VALUES(s->operand, spare), 2, 0, longer);
  Value *result = emit_scatter(l, s, OP_ScatterND, operand, tuples, points->updates, 0);
  return slice_at(l, result, type, &zero, &first, NULL, &axis, 1);
}

static Value *scatter_points(Lowering *l, Scatter *s) {
  const Access *access = &s->access;
  Points points = {.prefix = addressed_prefix(access)};
  int64_t axis_of_window[MAX_RANK], axis_of_batch[2 * MAX_RANK];
  arrange_updates(l, s, &points, axis_of_window, axis_of_batch);
  bool in_order = needs_order(l, s);
  bool spare = access->in_bounds && target_quirk(l, QUIRK_COMPRESS_IS_NOT_READ);
  for (uint32_t d = 0; d < points.prefix; d++) {
    points.columns[d] = point_column(l, s, &points, d, axis_of_window[d], axis_of_batch, !in_order && !spare);
  }
  if (in_order) return scatter_flat(l, s, &points);
  if (spare) return scatter_with_spare_row(l, s, &points, axis_of_batch);
  bool leading = points.rank == access->batch_rank && points.prefix == access->column_count;
  Value *tuples = access->tuples && leading ? cast_to(l, access->tuples, DTYPE_INT64)
                                            : index_tuples(l, points.columns, points.prefix, points.dims, points.rank);
  if (access->in_bounds) tuples = drop_points(l, s, &points, axis_of_batch, tuples);
  return emit_scatter(l, s, OP_ScatterND, s->operand, tuples, points.updates, 0);
}

/* A window of each of a batch; NULL when it is something else. */
static Value *scatter_by_batch(Lowering *l, const Scatter *s) {
  const Access *access = &s->access;
  if (s->combiner != COMBINE_SET || !written_axis(l, access)) return NULL;
  if (!dim_equal(s->updates->type.dims[0], access->operand.dims[0])) return NULL;
  for (size_t i = 0; i < s->window_count; i++) {
    if (s->windows[i] != (int64_t)i + 1) return NULL;
  }
  Dim dims[MAX_RANK];
  for (uint32_t d = 0; d < access->operand.rank; d++) dims[d] = d ? access->size[d] : access->operand.dims[0];
  return write_along(l, access, s->operand, reshape_to(l, s->updates, dims, access->operand.rank));
}

static Value *scatter_all(Lowering *l, Scatter *s) {
  Value *result = scatter_by_batch(l, s);
  if (!result) result = scatter_along_axis(l, s);
  return result ? result : scatter_points(l, s);
}

static Value *is_nan(Lowering *l, Value *value) {
  return EMIT_AROUND(l, OP_IsNaN, type_with(value->type, DTYPE_BOOL), value);
}

/* The NaNs of value, 0 elsewhere. */
static Value *only_nans(Lowering *l, Value *value) {
  return choose(l, is_nan(l, value), value, constant_like(l, value->type, 0), value->type);
}

/* Where the least and greatest forget a NaN when a number follows: a sum of the NaNs alone does not. */
static Value *keep_nans(Lowering *l, const Scatter *s, Value *result) {
  Scatter nans = *s;
  nans.combiner = COMBINE_ADD;
  nans.operand = only_nans(l, s->operand);
  nans.updates = only_nans(l, s->updates);
  Value *marks = scatter_all(l, &nans);
  return choose(l, is_nan(l, marks), marks, result, result->type);
}

/* How often each element is chosen. */
static Value *count_choices(Lowering *l, const Scatter *s) {
  Scatter counting = *s;
  counting.combiner = COMBINE_ADD;
  counting.operand = filled(l, type_with(s->operand->type, DTYPE_INT32), tensor_scalar(l, DTYPE_INT32, 0));
  counting.updates = filled(l, type_with(s->updates->type, DTYPE_INT32), tensor_scalar(l, DTYPE_INT32, 1));
  neutralise(l, &counting);
  return scatter_all(l, &counting);
}

/* The function goes over all elements, and its results are kept where it is due; as often as an element is chosen. */
static Value *apply_where_chosen(Lowering *l, const Scatter *s) {
  int64_t axes[MAX_RANK];
  for (uint32_t i = 0; i < s->operand->type.rank; i++) axes[i] = i;
  Value *counts = cast_to(l, count_choices(l, s), DTYPE_INT64);
  Value *most = EMIT_REDUCED(l, OP_ReduceMax, counts, axes, counts->type.rank);
  Dim steps = s->unique ? dim_of(1) : product(l, s->access.batch, s->access.batch_rank);
  Loop *loop = LOOP_BEGIN(l, "apply", steps, s->operand);
  Value *step = reshape_to(l, loop->index, NULL, 0), *now = loop->carried[0];
  Value *due = EMIT(l, OP_Greater, type_with(counts->type, DTYPE_BOOL), counts, step);
  Value *next = EMIT(l, OP_Add, step->type, step, constant_integer(l, DTYPE_INT64, 1));
  loop->go_on = EMIT(l, OP_Greater, type_scalar(DTYPE_BOOL), most, next);
  return EMIT_LOOP(loop, choose(l, due, applied(l, s, now), now, now->type))[0];
}

static void lower_scatter(Lowering *l) {
  if (is_empty(input_type(l, 0)) || is_empty(input_type(l, 2))) {
    bind(l, 0, input(l, 0));
    return;
  }
  Scatter s = {0};
  read_scatter(l, &s);
  s.operand = input(l, 0);
  s.updates = input(l, 2);
  bool batched = false;
  for (uint32_t d = 0; d < s.access.operand.rank; d++) batched = batched || s.access.batch_of[d] >= 0;
  if (access_is_single(&s.access) && !batched) {
    bind(l, 0, scatter_one(l, &s));
    return;
  }
  if (s.combiner == COMBINE_APPLY) {
    bind(l, 0, apply_where_chosen(l, &s));
    return;
  }
  neutralise(l, &s);
  if (s.combiner == COMBINE_SUB) s.updates = negated(l, s.updates);
  Value *result = scatter_all(l, &s);
  bool ordered = s.combiner == COMBINE_MIN || s.combiner == COMBINE_MAX;
  bool forgets = ordered && target_quirk(l, QUIRK_SCATTER_FORGETS_NAN);
  bind(l, 0, forgets && dtype_is_float(result->type.dtype) ? keep_nans(l, &s, result) : result);
}

/* clang-format off */
const Plugin scatter_plugins[] = {
    PLUGIN("scatter", lower_scatter, OP_ScatterND, COMBINE_SET),
    PLUGIN("scatter-add", lower_scatter, OP_ScatterND, COMBINE_ADD),
    PLUGIN("scatter_add", lower_scatter, OP_ScatterND, COMBINE_ADD),
    PLUGIN("scatter-sub", lower_scatter, OP_ScatterND, COMBINE_SUB),
    PLUGIN("scatter_sub", lower_scatter, OP_ScatterND, COMBINE_SUB),
    PLUGIN("scatter-mul", lower_scatter, OP_ScatterND, COMBINE_MUL),
    PLUGIN("scatter_mul", lower_scatter, OP_ScatterND, COMBINE_MUL),
    PLUGIN("scatter-min", lower_scatter, OP_ScatterND, COMBINE_MIN),
    PLUGIN("scatter_min", lower_scatter, OP_ScatterND, COMBINE_MIN),
    PLUGIN("scatter-max", lower_scatter, OP_ScatterND, COMBINE_MAX),
    PLUGIN("scatter_max", lower_scatter, OP_ScatterND, COMBINE_MAX),
    {0},
};
/* clang-format on */
