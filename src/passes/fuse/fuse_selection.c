/* Selection: a Slice of one element whose axis is then dropped is a Gather, and it picks the position before an axis is
 * turned around. Rows of a table that are picked by a product with rows of zeros and a one are a Gather too. */
#include "onnx/facts/schema.h"
#include "passes/analysis/bounds.h"
#include "passes/analysis/positions.h"
#include "passes/pattern.h"
#include "types/numbers.h"

enum { SOURCE, SLICE, TABLE, POSITIONS };

/* Is `shape` the sizes of `from` without the axis? */
static bool lacks_axis(Type shape, Type from, int64_t axis) {
  if (shape.rank + 1 != from.rank) return false;
  for (uint32_t i = 0; i < shape.rank; i++) {
    if (!dim_equal(shape.dims[i], from.dims[(int64_t)i < axis ? i : i + 1])) return false;
  }
  return true;
}

static Value *scalar_index(Match *match, int64_t index) {
  Arena *arena = &match->rewriter->context->arena;
  Tensor *tensor = arena_new(arena, Tensor);
  *tensor = (Tensor){.dtype = DTYPE_INT64, .size = sizeof index, .data = arena_copy(arena, &index, sizeof index)};
  return match_constant(match, tensor);
}

static bool fuse_slice(Match *match) {
  Value *source = match->values[SOURCE], *slice = match->values[SLICE];
  const Node *node = slice->producer;
  int64_t start, axis, step = 1;
  if (!only_integer(node_input(node, 1), &start) || !only_integer(node_input(node, 3), &axis)) return false;
  if (node_input(node, 4) && (!only_integer(node_input(node, 4), &step) || step != 1)) return false;
  Type from = source->type;
  if (axis < 0) axis += from.rank;
  if (from.dtype == DTYPE_NONE || slice->type.rank != from.rank || axis < 0 || axis >= (int64_t)from.rank) return false;
  Dim size = from.dims[axis];
  if (!dim_is(slice->type.dims[axis], 1) || !lacks_axis(match_type(match), from, axis)) return false;
  if (dim_is_constant(size) && start < 0) start += size.constant;
  if (dim_is_constant(size) && (start < 0 || start >= size.constant)) return false;
  if (!dim_is_constant(size) && start != 0 && start != -1) return false;
  node_set_int(EMIT_MATCH(match, OP_Gather, source, scalar_index(match, start)), "axis", axis);
  return true;
}

/* The other end of an axis that was turned around. */
static bool fuse_before_reversal(Match *match) {
  const Value *turned = match->values[SLICE], *index = node_input(match->root, 1);
  int64_t axis = node_int_or(match->root, "axis", 0), reversed, number;
  if (axis < 0) axis += turned->type.rank;
  if (!reverses_axis(turned->producer, &reversed) || reversed != axis) return false;
  Dim size = turned->type.dims[axis];
  if (index->type.rank != 0 || !only_integer(index, &number) || !dim_is_constant(size)) return false;
  if (number < 0) number += size.constant;
  Value *other = scalar_index(match, size.constant - 1 - number);
  node_set_int(EMIT_MATCH(match, OP_Gather, match->values[SOURCE], other), "axis", axis);
  return true;
}

/* ---- rows of a table ---- */

/* 0, 1, 2, ... */
static bool counts_up(const Tensor *tensor, int64_t count) {
  if (!dtype_is_integer(tensor->dtype)) return false;
  size_t width = dtype_bytes(tensor->dtype, 1);
  if (tensor->size != (size_t)count * width) return false;
  for (int64_t i = 0; i < count; i++) {
    if (number_decode_int(tensor->dtype, (const char *)tensor->data + (size_t)i * width) != i) return false;
  }
  return true;
}

static bool is_identity(const Tensor *tensor) {
  if (tensor->rank != 2 || tensor->dims[0] != tensor->dims[1] || !dtype_is_float(tensor->dtype)) return false;
  int64_t size = tensor->dims[0];
  size_t width = dtype_bytes(tensor->dtype, 1);
  for (int64_t i = 0; i < size * size; i++) {
    double number = number_decode(tensor->dtype, (const char *)tensor->data + (size_t)i * width);
    if (number != (i / size == i % size)) return false;
  }
  return true;
}

/* Without its last axis, of size 1, and of a type that Gather takes. */
static Value *as_indices(Match *match, Value *value) {
  Type type = {.dtype = value->type.dtype, .rank = value->type.rank - 1, .dims = value->type.dims};
  int64_t last = type.rank;
  Value *axes = rewrite_constant_ints(match->rewriter, match->root, &last, 1, match->root->origin);
  Value *indices = EMIT_BEFORE(match, OP_Squeeze, type, value, axes)->outputs[0];
  if (type.dtype == DTYPE_INT32 || type.dtype == DTYPE_INT64) return indices;
  Node *cast = EMIT_BEFORE(match, OP_Cast, type_with(type, DTYPE_INT64), indices);
  node_set_int(cast, "to", onnx_dtype(DTYPE_INT64));
  return cast->outputs[0];
}

static Value *integer(Match *match, DType dtype, int64_t number) {
  return rewrite_constant_number(match->rewriter, match->root, dtype, (double)number, match->root->origin);
}

/* Equal (index, 0 1 2 ...) times the table: the row of the index, and zeros where there is none. */
static bool fuse_rows_of_table(Match *match) {
  Value *index = match->values[SOURCE], *rows = match->values[TABLE];
  const Tensor *table = constant_of(rows);
  Type hot = node_input(match->root, 0)->type, type = index->type;
  if (table->rank != 2 || hot.rank == 0 || type.rank != hot.rank || !dim_is(type.dims[type.rank - 1], 1)) return false;
  for (uint32_t i = 0; i + 1 < type.rank; i++) {
    if (!dim_equal(type.dims[i], hot.dims[i])) return false;
  }
  const Tensor *positions = constant_of(match->values[POSITIONS]);
  if (positions->rank == 0 || positions->dims[positions->rank - 1] != table->dims[0]) return false; /* the last axis */
  if (!counts_up(positions, table->dims[0]) || !is_all_finite(table)) return false;
  if (!schema_runs(OP_Where, NULL, match_opset(match), rows->type.dtype)) return false;
  Bounds bounds;
  bool is_inside = value_bounds(index, &bounds) && bounds.least >= 0 && bounds.greatest < (double)table->dims[0];
  Value *indices = as_indices(match, index);
  if (is_inside) {
    node_set_int(EMIT_MATCH(match, OP_Gather, rows, indices), "axis", 0);
    return true;
  }
  DType integers = indices->type.dtype;
  Value *least = integer(match, integers, 0), *most = integer(match, integers, table->dims[0] - 1);
  Value *near = EMIT_BEFORE(match, OP_Clip, indices->type, indices, least, most)->outputs[0];
  Node *gather = EMIT_BEFORE(match, OP_Gather, match_type(match), rows, near);
  node_set_int(gather, "axis", 0);
  Value *kept = EMIT_BEFORE(match, OP_Equal, type_with(indices->type, DTYPE_BOOL), indices, near)->outputs[0];
  int64_t last = indices->type.rank;
  Value *axes = rewrite_constant_ints(match->rewriter, match->root, &last, 1, match->root->origin);
  kept = EMIT_BEFORE(match, OP_Unsqueeze, type_with(type, DTYPE_BOOL), kept, axes)->outputs[0];
  Value *zero = match_constant(match, match_tensor(match, rows->type.dtype, type_scalar(rows->type.dtype)));
  return EMIT_MATCH(match, OP_Where, kept, gather->outputs[0], zero);
}

/* Rows of the identity times the table. */
static bool fuse_rows_of_identity(Match *match) {
  const Node *gather = match->values[SLICE]->producer;
  const Tensor *table = constant_of(match->values[TABLE]);
  Value *index = node_input(gather, 1);
  if (node_int_or(gather, "axis", 0) != 0 || table->rank != 2 || !is_identity(constant_of(match->values[SOURCE])))
    return false;
  if (!dim_is(match->values[SOURCE]->type.dims[0], table->dims[0]) || !is_all_finite(table)) return false;
  node_set_int(EMIT_MATCH(match, OP_Gather, match->values[TABLE], index), "axis", 0);
  return true;
}

/* ---- points ---- */

/* Points that go along one axis for each of their numbers. */
typedef struct Grid {
  uint32_t rank;
  int64_t starts[MAX_RANK], ends[MAX_RANK], steps[MAX_RANK], axes[MAX_RANK];
} Grid;

/* The number along an axis of the point at this place. */
static int64_t number_at(const Tensor *points, uint32_t axes, int64_t place, uint32_t axis) {
  return ((const int64_t *)points->data)[place * axes + axis];
}

static bool read_grid(const Tensor *points, Grid *grid) {
  if (points->dtype != DTYPE_INT64 || points->rank < 2 || points->dims[points->rank - 1] != points->rank - 1)
    return false;
  int64_t count = (int64_t)(points->size / sizeof(int64_t)) / (points->rank - 1), stride = 1;
  grid->rank = points->rank - 1;
  if (count < 1) return false;
  for (uint32_t i = grid->rank; i--;) {
    int64_t size = points->dims[i], first = number_at(points, grid->rank, 0, i);
    int64_t step = size > 1 ? number_at(points, grid->rank, stride, i) - first : 1;
    if (first < 0 || first > INT32_MAX || step == 0 || step > INT32_MAX || step < -INT32_MAX) return false;
    for (int64_t at = 0; at < count; at++) {
      if (number_at(points, grid->rank, at, i) != first + at / stride % size * step) return false;
    }
    int64_t last = first + (size - 1) * step;
    if (last < 0) return false;
    grid->starts[i] = first;
    grid->ends[i] = step > 0 ? last + 1 : last > 0 ? last - 1 : INT64_MIN;
    grid->steps[i] = step;
    grid->axes[i] = i;
    stride *= size;
  }
  return true;
}

/* All points of a grid are a Slice along its axes. */
static bool fuse_grid(Match *match) {
  Value *source = match->values[SOURCE];
  const Origin *origin = match->root->origin;
  const Tensor *points = constant_of(match->values[POSITIONS]);
  Grid grid;
  if (node_int_or(match->root, "batch_dims", 0) || !points || points->rank > MAX_RANK || !read_grid(points, &grid))
    return false;
  if (source->type.dtype == DTYPE_NONE || source->type.rank < grid.rank) return false;
  for (uint32_t i = 0; i < grid.rank; i++) {
    Dim size = source->type.dims[i];
    int64_t last = grid.starts[i] + (points->dims[i] - 1) * grid.steps[i];
    if (!dim_is_constant(size) || grid.starts[i] >= size.constant || last >= size.constant) return false;
  }
  Rewriter *rewriter = match->rewriter;
  return EMIT_MATCH(match, OP_Slice, source,
                    rewrite_constant_ints(rewriter, match->root, grid.starts, grid.rank, origin),
                    rewrite_constant_ints(rewriter, match->root, grid.ends, grid.rank, origin),
                    rewrite_constant_ints(rewriter, match->root, grid.axes, grid.rank, origin),
                    rewrite_constant_ints(rewriter, match->root, grid.steps, grid.rank, origin));
}

/* What a size is computed of. */
static const Value *as_it_was(const Value *value) {
  while (value->producer && (node_has(value->producer, RENAMES) || node_is(value->producer, OP_Cast)))
    value = node_input(value->producer, 0);
  return value;
}

/* Is it this operator with the number, of the same size? */
static bool is_of_size(const Value *value, Op op, double number, const Value *size) {
  const Node *node = as_it_was(value)->producer;
  if (!node || !node_is(node, op)) return false;
  for (uint32_t i = 0; i < 2; i++) {
    if (is_uniform_number(node_input(node, i), number) && as_it_was(node_input(node, 1 - i)) == size) return true;
  }
  return false;
}

/* Positions that are kept between -size and size - 1, where they are anyway. */
static const Value *unclipped(const Value *value) {
  const Node *clip = as_it_was(value)->producer;
  const Node *range = clip && node_is(clip, OP_Clip) ? as_it_was(node_input(clip, 0))->producer : NULL;
  const Value *low = clip ? node_input(clip, 1) : NULL, *high = clip ? node_input(clip, 2) : NULL;
  double least;
  if (!range || !node_is(range, OP_Range) || !low || !high) return value;
  const Value *size = as_it_was(node_input(range, 1));
  bool from = is_of_size(low, OP_Mul, -1, size) || (uniform_number(low, &least) && least <= 0);
  return from && is_of_size(high, OP_Add, -1, size) ? node_input(clip, 0) : value;
}

static bool counts_rows(const Value *column, Dim rows) {
  const Tensor *tensor = constant_of(column);
  if (tensor)
    return dim_is_constant(rows) && tensor->rank == 2 && tensor->dims[1] == 1 && counts_up(tensor, rows.constant);
  const Value *positions = unclipped(column);
  return counts_positions(positions, positions == column ? 2 : 1, rows);
}

/* Points whose first number counts them: each row of a batch has its own. */
static bool fuse_point_of_row(Match *match) {
  const Node *concat = match->values[SLICE]->producer;
  Value *source = match->values[SOURCE], *points = match->values[SLICE];
  if (node_int_or(match->root, "batch_dims", 0) || points->type.rank != 2 || source->type.rank < 2) return false;
  if (concat->input_count != 2 || !counts_rows(node_input(concat, 0), source->type.dims[0])) return false;
  if (!dim_equal(points->type.dims[0], source->type.dims[0])) return false;
  int64_t axis = node_int_or(concat, "axis", 0);
  if (axis != 1 && axis != -1) return false;
  Value *rest = match_in_type(match, node_input(concat, 1), DTYPE_INT64);
  node_set_int(EMIT_MATCH(match, OP_GatherND, source, rest), "batch_dims", 1);
  return true;
}

#define POINTS EITHER(OP(Cast, OP_AT(SLICE, Concat, ANY(TABLE))), OP_AT(SLICE, Concat, ANY(TABLE)))
#define HOT OP(Cast, OP(Equal, ANY(SOURCE), CONSTANT(POSITIONS)))
#define SLICED OP_AT(SLICE, Slice, ANY(SOURCE))

static const FusionRule rules[] = {
    {OP(Squeeze, SLICED), OP_Gather, fuse_slice},
    {OP(Reshape, SLICED), OP_Gather, fuse_slice},
    {OP(Gather, SLICED), OP_Gather, fuse_before_reversal},
    {OP(GatherND, ANY(SOURCE), CONSTANT(POSITIONS)), OP_NONE, fuse_grid},
    {OP(GatherND, ANY(SOURCE), POINTS), OP_NONE, fuse_point_of_row},
    {OP(MatMul, HOT, CONSTANT(TABLE)), OP_NONE, fuse_rows_of_table},
    {OP(MatMul, OP_AT(SLICE, Gather, CONSTANT(SOURCE)), CONSTANT(TABLE)), OP_NONE, fuse_rows_of_identity},
};

bool fuse_selection(Model *model) { return fuse_patterns(model, __func__, rules, sizeof rules / sizeof *rules); }
