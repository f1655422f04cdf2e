/* Dynamic slices: one window of an array, read or replaced. Windows that would reach outside are moved inside. */
#include "lower/data/indexing.h"

static Value *start_vector(Lowering *l, Value *start) {
  Dim one = dim_of(1);
  return reshape_to(l, start, &one, 1);
}

static Value *binary_like(Lowering *l, Op op, Value *a, Value *b) { return EMIT(l, op, a->type, a, b); }

static bool is_whole(const Access *access, uint32_t dim) {
  return dim_equal(access->size[dim], access->operand.dims[dim]);
}

/* The windows whose starts are known at export. */
static Value *cut_known(Lowering *l, const Access *access, Value *value) {
  Dim dims[MAX_RANK], starts[MAX_RANK], limits[MAX_RANK];
  int64_t axes[MAX_RANK];
  size_t count = 0;
  rely_on(l, value->type.rank == access->operand.rank);
  for (uint32_t d = 0; d < access->operand.rank; d++) {
    dims[d] = value->type.dims[d];
    if (is_whole(access, d) || access->batch_of[d] >= 0 || access_column_of(access, d) >= 0) continue;
    dims[d] = access->size[d];
    starts[count] = access->start[d];
    limits[count] = dim_add(l->context, access->start[d], access->size[d]);
    axes[count++] = d;
  }
  Type type = type_make(l->context, value->type.dtype, dims, access->operand.rank);
  return slice_at(l, value, type, starts, limits, NULL, axes, count);
}

/* A window of so many elements, by their places: for targets whose Slice must know at export where it starts. */
static Value *gather_window(Lowering *l, Value *value, uint32_t dim, Value *start, Dim size) {
  int64_t *places = arena_new_array(&l->context->arena, (size_t)size.constant, int64_t);
  Dim *dims = arena_copy(&l->context->arena, value->type.dims, value->type.rank * sizeof *dims);
  for (int64_t i = 0; i < size.constant; i++) places[i] = i;
  Value *from_zero = constant_ints(l, places, (size_t)size.constant);
  Value *at = EMIT(l, OP_Add, from_zero->type, from_zero, start_vector(l, cast_to(l, start, DTYPE_INT64)));
  dims[dim] = size;
  Value *window = EMIT(l, OP_Gather, type_make(l->context, value->type.dtype, dims, value->type.rank), value, at);
  node_set_int(window->producer, "axis", dim);
  return window;
}

static bool slices_by_place(const Lowering *l, Dim size) {
  enum { MOST_PLACES = 1 << 16 };
  return target_quirk(l, QUIRK_SLICE_NEEDS_KNOWN_STARTS) && dim_is_constant(size) && size.constant <= MOST_PLACES;
}

/* The windows of more than one element, by one Slice. */
static Value *cut_computed(Lowering *l, const Access *access, Value *value) {
  Dim dims[MAX_RANK], sizes[MAX_RANK];
  int64_t axes[MAX_RANK];
  Value *starts[MAX_RANK];
  size_t count = 0;
  for (uint32_t d = 0; d < value->type.rank; d++) dims[d] = value->type.dims[d];
  for (uint32_t c = 0; c < access->column_count; c++) {
    uint32_t d = access->columns[c].dim;
    if (dim_is(access->size[d], 1)) continue;
    if (slices_by_place(l, access->size[d])) {
      value = gather_window(l, value, d, access->columns[c].value, access->size[d]);
      dims[d] = access->size[d];
      continue;
    }
    dims[d] = sizes[count] = access->size[d];
    starts[count] = start_vector(l, cast_to(l, access->columns[c].value, DTYPE_INT64));
    axes[count++] = d;
  }
  if (!count) return value;
  Dim length = dim_of((int64_t)count);
  Value *from = concat_at(l, starts, count, 0, type_make(l->context, DTYPE_INT64, &length, 1));
  Value *to = binary_like(l, OP_Add, from, shape_value(l, sizes, count));
  Type type = type_make(l->context, value->type.dtype, dims, value->type.rank);
  return EMIT(l, OP_Slice, type, value, from, to, constant_ints(l, axes, count));
}

/* Single positions, by Gather: it drops the dimension, which is put back at the end where it is cheap to drop again. */
static Value *pick_computed(Lowering *l, const Access *access, Value *value) {
  int64_t axes[MAX_RANK];
  size_t count = 0;
  for (uint32_t c = 0; c < access->column_count; c++) {
    uint32_t d = access->columns[c].dim;
    if (!dim_is(access->size[d], 1)) continue;
    uint32_t axis = d - (uint32_t)count, rank = value->type.rank - 1;
    Dim dims[MAX_RANK];
    for (uint32_t i = 0; i < rank; i++) dims[i] = value->type.dims[i < axis ? i : i + 1];
    Value *index = reshape_to(l, access->columns[c].value, NULL, 0);
    value = EMIT(l, OP_Gather, type_make(l->context, value->type.dtype, dims, rank), value, index);
    node_set_int(value->producer, "axis", axis);
    axes[count++] = d;
  }
  return unsqueeze_at(l, value, axes, count);
}

Value *window_read(Lowering *l, const Access *access, Value *operand) {
  return pick_computed(l, access, cut_computed(l, access, cut_known(l, access, operand)));
}

/* Operand with [start, start + size) of one dimension replaced, by what stands before and after. */
static Value *splice(Lowering *l, const Access *access, uint32_t dim, Value *operand, Value *update) {
  Dim *dims = arena_new_array(&l->context->arena, operand->type.rank, Dim);
  for (uint32_t i = 0; i < operand->type.rank; i++) dims[i] = operand->type.dims[i];
  int64_t axis = dim;
  int32_t c = access_column_of(access, dim);
  Value *pieces[3];
  size_t count = 0;
  if (c < 0) {
    Dim none = dim_of(0), start = access->start[dim], end = dim_add(l->context, start, access->size[dim]);
    dims[dim] = start;
    Type before = type_make(l->context, operand->type.dtype, dims, operand->type.rank);
    if (!dim_is(start, 0)) pieces[count++] = slice_at(l, operand, before, &none, &start, NULL, &axis, 1);
    pieces[count++] = update;
    dims[dim] = dim_subtract(l->context, operand->type.dims[dim], end);
    Type after = type_make(l->context, operand->type.dtype, dims, operand->type.rank);
    if (!dim_is(dims[dim], 0)) {
      pieces[count++] = slice_at(l, operand, after, &end, &operand->type.dims[dim], NULL, &axis, 1);
    }
  } else {
    Value *start = cast_to(l, nonnegative_starts(l, access, &access->columns[c]), DTYPE_INT64);
    start = start_vector(l, start);
    Value *end = binary_like(l, OP_Add, start, dimension_value(l, access->size[dim]));
    Value *along = constant_ints(l, &axis, 1), *zero = constant_ints(l, (int64_t[]){0}, 1);
    dims[dim] = data_dimension(l);
    Type before = type_make(l->context, operand->type.dtype, dims, operand->type.rank);
    dims[dim] = data_dimension(l);
    Type after = type_make(l->context, operand->type.dtype, dims, operand->type.rank);
    pieces[count++] = EMIT(l, OP_Slice, before, operand, zero, start, along);
    pieces[count++] = update;
    pieces[count++] = EMIT(l, OP_Slice, after, operand, end, dimension_value(l, operand->type.dims[dim]), along);
  }
  return concat_at(l, pieces, count, axis, operand->type);
}

/* From the given dimension on: a window in several dimensions is replaced in the rows that it lies in. */
static Value *splice_from(Lowering *l, const Access *access, uint32_t dim, Value *operand, Value *update) {
  while (dim < access->operand.rank && is_whole(access, dim)) dim++;
  if (dim == access->operand.rank) return update;
  uint32_t next = dim + 1;
  while (next < access->operand.rank && is_whole(access, next)) next++;
  if (next < access->operand.rank) {
    Access rows = *access;
    for (uint32_t d = next; d < access->operand.rank; d++) rows.size[d] = access->operand.dims[d];
    rows.column_count = 0;
    for (uint32_t c = 0; c < access->column_count; c++) {
      if (access->columns[c].dim == dim) rows.columns[rows.column_count++] = access->columns[c];
    }
    for (uint32_t d = 0; d < dim; d++) rows.size[d] = access->operand.dims[d];
    update = splice_from(l, access, next, window_read(l, &rows, operand), update);
  }
  return splice(l, access, dim, operand, update);
}

/* One number per dimension: computed starts where there are columns, elsewhere known ones. */
static Value *start_tuple(Lowering *l, const Access *access, uint32_t prefix, bool known_starts) {
  Value *pieces[MAX_RANK];
  for (uint32_t d = 0; d < prefix; d++) {
    int32_t c = access_column_of(access, d);
    Dim start = known_starts ? access->start[d] : dim_of(0);
    pieces[d] = c < 0 ? dimension_value(l, start) : start_vector(l, cast_to(l, access->columns[c].value, DTYPE_INT64));
  }
  Dim length = dim_of(prefix);
  return concat_at(l, pieces, prefix, 0, type_make(l->context, DTYPE_INT64, &length, 1));
}

/* The same where only one start is computed and the others are 0: that start times a unit vector. */
static Value *single_start(Lowering *l, const Access *access, uint32_t prefix) {
  int64_t unit[MAX_RANK] = {0};
  const IndexColumn *column = &access->columns[0];
  if (access->column_count != 1 || column->value->type.rank != 0) return start_tuple(l, access, prefix, false);
  unit[column->dim] = 1;
  Value *direction = constant_ints(l, unit, prefix);
  return EMIT(l, OP_Mul, direction->type, cast_to(l, column->value, DTYPE_INT64), direction);
}

/* ScatterND over the dimensions up to the last that is not whole: tuples known at export, moved by the starts. */
static Value *scatter_window(Lowering *l, const Access *access, Value *operand, Value *update, uint32_t prefix) {
  Dim dims[MAX_RANK + 1];
  bool single = true;
  for (uint32_t d = 0; d < prefix; d++) {
    dims[d] = access->size[d];
    single = single && dim_is(access->size[d], 1);
  }
  dims[prefix] = dim_of(prefix);
  Value *tuples;
  if (single) {
    tuples = reshape_to(l, start_tuple(l, access, prefix, true), dims, prefix + 1);
  } else {
    Value *columns[MAX_RANK];
    for (uint32_t d = 0; d < prefix; d++) {
      Dim start = access_column_of(access, d) < 0 ? access->start[d] : dim_of(0);
      columns[d] = axis_numbers(l, start, access->size[d], d, prefix);
    }
    tuples = index_tuples(l, columns, prefix, dims, prefix);
    if (access->column_count) {
      tuples = EMIT(l, OP_Add, tuples->type, tuples, single_start(l, access, prefix));
    }
  }
  return EMIT(l, OP_ScatterND, operand->type, operand, tuples, update);
}

/* Half of one dimension or more, at one of its ends: there is less to copy beside it than to address. */
static bool is_large_end(const Access *access) {
  uint32_t partial = 0;
  for (uint32_t d = 0; d < access->operand.rank; d++) {
    Dim all = access->operand.dims[d], size = access->size[d], start = access->start[d];
    if (is_whole(access, d)) continue;
    if (partial++ || !dim_is_constant(all) || !dim_is_constant(size) || !dim_is_constant(start)) return false;
    if (size.constant < all.constant / 2) return false;
    if (start.constant != 0 && start.constant != all.constant - size.constant) return false;
  }
  return partial == 1 && access->column_count == 0;
}

Value *window_replace(Lowering *l, const Access *access, Value *operand, Value *update) {
  enum { FEW = 4096 /* tuples; past that, copying what is around the window is cheaper than addressing it */ };
  uint32_t prefix = 0;
  for (uint32_t d = 0; d < access->operand.rank; d++) {
    if (!is_whole(access, d)) prefix = d + 1;
    if (dim_is(access->size[d], 0)) return operand;
  }
  if (prefix == 0) return update;
  if (written_axis(l, access)) return write_along(l, access, operand, update);
  int64_t tuples;
  bool few = type_count(type_make(l->context, DTYPE_INT64, access->size, prefix), &tuples) && tuples <= FEW;
  bool is_scattered = prefix == 1 || (few && !is_large_end(access));
  if (is_scattered) return scatter_window(l, access, operand, update, prefix);
  return splice_from(l, access, 0, operand, update);
}

static void read_starts(Lowering *l, Access *access, size_t first) {
  uint32_t rank = access->operand.rank;
  rely_on(l, l->equation->input_count == first + rank);
  Value **starts = arena_new_array(&l->context->arena, rank, Value *);
  for (uint32_t d = 0; d < rank; d++) starts[d] = input(l, first + d);
  access_scalars(l, access, starts, rank);
}

static void lower_dynamic_slice(Lowering *l) {
  Type type = input_type(l, 0);
  Access access;
  access_init(l, &access, type, BOUNDS_CLIPPED, NULL, 0);
  for (uint32_t d = 0; d < type.rank; d++) access.size[d] = output_type(l, 0).dims[d];
  read_starts(l, &access, 1);
  bind(l, 0, window_read(l, &access, input(l, 0)));
}

static void lower_dynamic_update_slice(Lowering *l) {
  Type type = input_type(l, 0);
  Access access;
  access_init(l, &access, type, BOUNDS_CLIPPED, NULL, 0);
  for (uint32_t d = 0; d < type.rank; d++) access.size[d] = input_type(l, 1).dims[d];
  read_starts(l, &access, 2);
  bind(l, 0, window_replace(l, &access, input(l, 0), input(l, 1)));
}

/* clang-format off */
const Plugin dynamic_slice_plugins[] = {
    PLUGIN("dynamic_slice", lower_dynamic_slice, OP_Slice),
    PLUGIN("dynamic_update_slice", lower_dynamic_update_slice, OP_ScatterND),
    {0},
};
/* clang-format on */
