/* Indexing: start indices taken apart into columns, and their bounds.
 *
 * JAX writes x[i] as a chain that first adds the size to negative indices. ONNX's gathering and scattering operators
 * count negative indices from the end themselves, so that chain is looked through where only single positions are
 * addressed. Numbers known at export need no arithmetic at all.
 */
#include "lower/data/indexing.h"

#include "onnx/evaluate/evaluate.h"
#include "onnx/facts/schema.h"
#include "types/numbers.h"

enum { LOOK_THROUGH = 16 /* nodes between an index and what it is made of */ };

static bool is_reshaping(const Node *node) { return node_is(node, OP_Identity) || node_has(node, RENAMES); }

/* The number that every element of value is, where that can be told. */
static bool uniform_integer(const Value *value, int64_t *number, int depth) {
  if (!value || depth == 0) return false;
  if (value->tensor) return literal_int(value->tensor, number);
  const Node *node = value->producer;
  if (!node) return false;
  if (is_reshaping(node) || node_is(node, OP_Expand)) return uniform_integer(node_input(node, 0), number, depth - 1);
  if (node_is(node, OP_Cast) && dtype_is_integer(value->type.dtype)) {
    return uniform_integer(node_input(node, 0), number, depth - 1);
  }
  int64_t a, b;
  if (!uniform_integer(node_input(node, 0), &a, depth - 1)) return false;
  if (node_is(node, OP_Where)) return uniform_integer(node_input(node, a ? 1 : 2), number, depth - 1);
  if (node->input_count != 2 || !uniform_integer(node_input(node, 1), &b, depth - 1)) return false;
  if (node_is(node, OP_Less)) return *number = a < b, true;
  if (node_is(node, OP_Add)) return !__builtin_add_overflow(a, b, number);
  if (node_is(node, OP_Sub)) return !__builtin_sub_overflow(a, b, number);
  if (node_is(node, OP_Mul)) return !__builtin_mul_overflow(a, b, number);
  return false;
}

/* Past casts and reshapes of a single number. */
static const Value *single_source(const Value *value) {
  for (int depth = LOOK_THROUGH; depth && value->producer; depth--) {
    if (!is_reshaping(value->producer) && !node_is(value->producer, OP_Cast)) break;
    value = node_input(value->producer, 0);
  }
  return value;
}

static bool is_dimension(Lowering *l, const Value *value, Dim dim) {
  int64_t number;
  if (dim_is_constant(dim)) return uniform_integer(value, &number, LOOK_THROUGH) && number == dim.constant;
  return single_source(value) == map_get_pointer(&l->scope->dimensions, dim.expr);
}

/* select(x < 0, x + size, x): x. Anything else: NULL. */
static Value *counted_from_end(Lowering *l, const Value *value, Dim size) {
  const Node *node = value->producer;
  if (!node || !node_is(node, OP_Where)) return NULL;
  const Value *condition = node_input(node, 0), *shifted = node_input(node, 1);
  Value *plain = node_input(node, 2);
  DType dtype = plain->type.dtype;
  if (dtype != DTYPE_INT32 && dtype != DTYPE_INT64) return NULL;
  if (!condition->producer || !node_is(condition->producer, OP_Less)) return NULL;
  if (!shifted->producer || !node_is(shifted->producer, OP_Add)) return NULL;
  int64_t zero;
  if (node_input(condition->producer, 0) != plain || node_input(shifted->producer, 0) != plain) return NULL;
  if (!uniform_integer(node_input(condition->producer, 1), &zero, LOOK_THROUGH) || zero != 0) return NULL;
  return is_dimension(l, node_input(shifted->producer, 1), size) ? plain : NULL;
}

/* The value of that shape that the given one is a reshape of, else the given one reshaped. */
static Value *shaped(Lowering *l, Value *value, const Dim *dims, uint32_t rank) {
  Type wanted = type_make(l->context, value->type.dtype, dims, rank);
  Value *source = value;
  for (int depth = LOOK_THROUGH; depth; depth--) {
    if (type_same_shape(source->type, wanted)) return source;
    if (!source->producer || !is_reshaping(source->producer)) break;
    source = node_input(source->producer, 0);
  }
  return reshape_to(l, value, dims, rank);
}

/* Indices are compared and clipped as int32 or int64. A uint64 past int64's range is out of bounds all the same. */
static Value *signed_index(Lowering *l, Value *value) {
  DType dtype = value->type.dtype;
  if (dtype == DTYPE_INT32 || dtype == DTYPE_INT64) return value;
  if (dtype == DTYPE_UINT64) value = EMIT(l, OP_Min, value->type, value, constant_integer(l, dtype, INT64_MAX));
  return cast_to(l, value, DTYPE_INT64);
}

static bool keeps_integers(const Node *node) {
  return is_reshaping(node) || node_is(node, OP_Cast) || node_is(node, OP_Add) || node_is(node, OP_Sub) ||
         node_is(node, OP_Mul);
}

static const Tensor *known_to_depth(Lowering *l, const Value *value, int depth) {
  enum { MOST_INPUTS = 2, LARGEST = 1 << 16 };
  const Tensor *inputs[MOST_INPUTS];
  if (value->tensor) return value->tensor->data ? value->tensor : NULL;
  const Node *node = value->producer;
  if (!node || depth == 0 || node->input_count > MOST_INPUTS || !keeps_integers(node)) return NULL;
  for (uint32_t i = 0; i < node->input_count; i++) {
    inputs[i] = node_input(node, i) ? known_to_depth(l, node_input(node, i), depth - 1) : NULL;
    if (!inputs[i] || !dtype_is_integer(inputs[i]->dtype)) return NULL;
  }
  Evaluation evaluation = {.context = l->context, .node = node, .inputs = inputs, .input_count = node->input_count};
  evaluation.opset = l->options->opset;
  evaluation.largest = LARGEST;
  return evaluate_node(&evaluation);
}

const Tensor *known_numbers(Lowering *l, const Value *value) { return known_to_depth(l, value, LOOK_THROUGH); }

/* A symbolic size is at least 1: 0 and -1 are always within. */
static bool known_within(Lowering *l, const Value *value, Dim first, Dim last) {
  const Tensor *tensor = known_numbers(l, value);
  if (!tensor || !dtype_is_integer(tensor->dtype)) return false;
  int64_t low = dim_is_constant(first) ? first.constant : -1, high = dim_is_constant(last) ? last.constant : 0;
  size_t step = dtype_bytes(tensor->dtype, 1);
  for (size_t at = 0; at + step <= tensor->size; at += step) {
    int64_t number = number_decode_int(tensor->dtype, (const char *)tensor->data + at);
    if (number < low || number > high) return false;
  }
  return true;
}

static void and_in_bounds(Lowering *l, Access *access, Value *mask) {
  Value *known = access->in_bounds;
  access->in_bounds = known ? EMIT(l, OP_And, mask->type, known, mask) : mask;
}

static bool was_uint32(const Value *value) {
  const Node *node = value->producer;
  bool widened = value->type.dtype == DTYPE_INT64 && node && node_is(node, OP_Cast);
  return widened && node_input(node, 0)->type.dtype == DTYPE_UINT32;
}

/* low is not above 0. Where Clip goes by halves it takes numbers from 2^31 to 2^32 for negative ones, which only what
 * was unsigned holds in practice: there the least is by comparison (emit.c). */
static Value *clipped_index(Lowering *l, Value *value, Value *low, Value *high) {
  bool by_halves = target_quirk(l, QUIRK_CLIP_OF_INT64_BY_HALVES);
  if (!by_halves || !was_uint32(value)) return EMIT(l, OP_Clip, value->type, value, low, high);
  return EMIT_AROUND(l, OP_Min, value->type, value, high);
}

/* Clips a column to [low, high]; in the dropping mode the entries that this changes are out of bounds. */
static Value *bounded(Lowering *l, Access *access, Value *value, Value *low, Value *high) {
  Value *clipped = clipped_index(l, value, low, high);
  if (access->mode == BOUNDS_DROPPED) {
    and_in_bounds(l, access, EMIT(l, OP_Equal, type_with(value->type, DTYPE_BOOL), clipped, value));
  }
  return clipped;
}

/* A start that is one number known at export, brought within bounds: no column is left. */
static bool add_known_start(Access *access, uint32_t dim, Dim last, int64_t number) {
  bool fits = number == 0 || (number > 0 && dim_is_constant(last) && number <= last.constant);
  if (!fits && access->mode == BOUNDS_DROPPED) return false;
  if (!fits && !dim_is_constant(last)) {
    if (number > 0) return false;
    number = 0;
  }
  if (number < 0) number = 0;
  if (dim_is_constant(last) && number > last.constant) number = last.constant;
  access->start[dim] = dim_of(number);
  return true;
}

/* One start per batch entry for one operand dimension. */
static void add_column(Lowering *l, Access *access, uint32_t dim, Value *value) {
  Dim size = access->operand.dims[dim], window = access->size[dim];
  Dim last = dim_subtract(l->context, size, window); /* the last start that fits */
  int64_t number;
  if (uniform_integer(value, &number, LOOK_THROUGH) && add_known_start(access, dim, last, number)) {
    access->tuples = NULL;
    return;
  }
  if (dim_equal(size, window) && access->mode != BOUNDS_DROPPED) {
    access->tuples = NULL;
    return; /* a whole window starts at 0, or is clipped to that */
  }
  Value *plain = dim_is(window, 1) ? counted_from_end(l, value, size) : NULL;
  Value *start = signed_index(l, plain ? plain : value);
  Value *used = start;
  Dim first = plain ? dim_subtract(l->context, dim_of(0), size) : dim_of(0);
  if (access->mode != BOUNDS_PROMISED && !known_within(l, start, first, last)) {
    DType dtype = start->type.dtype;
    used = bounded(l, access, start, dimension_scalar(l, first, dtype), dimension_scalar(l, last, dtype));
  }
  if (used != value) access->tuples = NULL;
  if (dim_equal(size, window)) return;
  uint32_t at = access->column_count++;
  for (; at && access->columns[at - 1].dim > dim; at--) access->columns[at] = access->columns[at - 1];
  access->columns[at] = (IndexColumn){dim, used, plain ? value : NULL};
}

Value *nonnegative_starts(Lowering *l, const Access *access, const IndexColumn *column) {
  if (!column->original) return column->value;
  Value *value = signed_index(l, column->original);
  if (access->mode == BOUNDS_PROMISED) return value;
  DType dtype = value->type.dtype;
  Dim last = dim_subtract(l->context, access->operand.dims[column->dim], access->size[column->dim]);
  return clipped_index(l, value, constant_integer(l, dtype, 0), dimension_scalar(l, last, dtype));
}

void access_init(Lowering *l, Access *access, Type operand, BoundsMode mode, const Dim *batch, uint32_t batch_rank) {
  rely_on(l, operand.rank <= MAX_RANK && batch_rank <= MAX_RANK);
  *access = (Access){.operand = operand, .mode = mode, .batch = batch, .batch_rank = batch_rank};
  for (uint32_t d = 0; d < operand.rank; d++) access->batch_of[d] = -1;
}

/* indices[..., i] as it went into a concatenation, else cut out. */
static Value *index_piece(Lowering *l, const Access *access, Value *indices, size_t i, size_t count) {
  if (count == 1) return shaped(l, indices, access->batch, access->batch_rank);
  const Node *node = indices->producer;
  bool split = node && node_is(node, OP_Concat) && node->input_count == count;
  for (size_t p = 0; split && p < count; p++) {
    Type type = node_input(node, p)->type;
    split = type.rank == access->batch_rank + 1 && dim_is(type.dims[type.rank - 1], 1);
  }
  if (split) return shaped(l, node_input(node, i), access->batch, access->batch_rank);
  int64_t number = (int64_t)i, axis = access->batch_rank;
  Value *position = constant_integer(l, DTYPE_INT64, number);
  Type type = type_make(l->context, indices->type.dtype, access->batch, access->batch_rank);
  Value *piece = EMIT(l, OP_Gather, type, indices, position);
  node_set_int(piece->producer, "axis", axis);
  return piece;
}

void access_columns(Lowering *l, Access *access, Value *indices, const int64_t *map, size_t count) {
  rely_on(l, indices->type.rank == access->batch_rank + 1);
  access->tuples = indices;
  const Tensor *tensor = known_numbers(l, indices);
  for (size_t i = 0; i < count; i++) {
    if (i && map[i] < map[i - 1]) access->tuples = NULL;
    rely_on(l, map[i] >= 0 && map[i] < (int64_t)access->operand.rank);
    size_t step = tensor ? dtype_bytes(tensor->dtype, 1) : 0;
    if (tensor && tensor->size == count * step) { /* a single tuple known at export */
      int64_t number = number_decode_int(tensor->dtype, (const char *)tensor->data + i * step);
      Value *value = constant_integer(l, DTYPE_INT64, number);
      add_column(l, access, (uint32_t)map[i], expand_to(l, value, access->batch, access->batch_rank));
      continue;
    }
    add_column(l, access, (uint32_t)map[i], index_piece(l, access, indices, i, count));
  }
}

void access_scalars(Lowering *l, Access *access, Value *const *starts, size_t count) {
  for (size_t i = 0; i < count; i++) add_column(l, access, (uint32_t)i, starts[i]);
  access->tuples = NULL;
}

const int64_t *dimension_list(Lowering *l, const char *field, size_t *count) {
  const Param *list = param_field(param_get(l->context, l->equation, "dimension_numbers"), field);
  *count = 0;
  return list ? param_list_ints(l->context, list, count) : NULL;
}

bool list_holds(const int64_t *numbers, size_t count, int64_t number) {
  for (size_t i = 0; i < count; i++) {
    if (numbers[i] == number) return true;
  }
  return false;
}

BoundsMode access_mode(Lowering *l) {
  const Param *mode = param_find(l->equation, "mode");
  if (!mode || param_is(mode, "FILL_OR_DROP")) return BOUNDS_DROPPED;
  if (param_is(mode, "CLIP")) return BOUNDS_CLIPPED;
  if (param_is(mode, "PROMISE_IN_BOUNDS")) return BOUNDS_PROMISED;
  unsupported(l, "the indexing mode is not clip, fill_or_drop or promise_in_bounds");
}

bool access_is_single(const Access *access) {
  for (uint32_t b = 0; b < access->batch_rank; b++) {
    if (!dim_is(access->batch[b], 1)) return false;
  }
  return true;
}

int32_t access_column_of(const Access *access, uint32_t dim) {
  for (uint32_t c = 0; c < access->column_count; c++) {
    if (access->columns[c].dim == dim) return (int32_t)c;
  }
  return -1;
}

Value *axis_numbers(Lowering *l, Dim first, Dim size, uint32_t axis, uint32_t rank) {
  int64_t *dims = arena_new_array(&l->context->arena, rank + 1, int64_t);
  for (uint32_t i = 0; i < rank; i++) dims[i] = 1;
  enum { MOST = 1 << 20 /* numbers that a model holds; more are made when it runs */ };
  if (dim_is_constant(first) && dim_is_constant(size) && size.constant <= MOST) {
    int64_t *numbers = arena_new_array(&l->context->arena, (size_t)size.constant, int64_t);
    for (int64_t i = 0; i < size.constant; i++) numbers[i] = first.constant + i;
    if (rank) dims[axis] = size.constant;
    size_t bytes = (size_t)size.constant * sizeof *numbers;
    return constant(l, tensor_new(l, DTYPE_INT64, dims, rank, numbers, bytes));
  }
  Dim end = dim_add(l->context, first, size);
  Value *from = dimension_scalar(l, first, DTYPE_INT64), *to = dimension_scalar(l, end, DTYPE_INT64);
  Type type = type_make(l->context, DTYPE_INT64, &size, 1);
  Value *numbers = EMIT(l, OP_Range, type, from, to, constant_integer(l, DTYPE_INT64, 1));
  int64_t at = axis;
  return align_axes(l, numbers, &at, rank);
}

Value *align_axes(Lowering *l, Value *value, const int64_t *axes, uint32_t rank) {
  int64_t missing[2 * MAX_RANK];
  size_t count = 0;
  for (uint32_t i = 0, next = 0; i < rank; i++) {
    if (next < value->type.rank && axes[next] == (int64_t)i) next++;
    else missing[count++] = i;
  }
  return unsqueeze_at(l, value, missing, count);
}

/* Tuples of columns that are all known, when they are few enough to store. */
static const Tensor *known_tuples(Lowering *l, Value *const *columns, size_t count, const Dim *dims, uint32_t rank) {
  enum { MOST = 1 << 14 };
  Type type = type_make(l->context, DTYPE_INT64, dims, rank);
  int64_t total;
  if (!type_count(type, &total) || total > MOST / (int64_t)(count ? count : 1)) return NULL;
  for (size_t c = 0; c < count; c++) {
    if (!columns[c]->tensor || columns[c]->type.rank != rank) return NULL;
  }
  int64_t *shape = arena_new_array(&l->context->arena, rank + 1, int64_t);
  for (uint32_t i = 0; i < rank; i++) shape[i] = dims[i].constant;
  shape[rank] = (int64_t)count;
  int64_t *numbers = arena_new_array(&l->context->arena, (size_t)total * count, int64_t);
  for (int64_t t = 0; t < total; t++) {
    for (size_t c = 0; c < count; c++) {
      int64_t at = 0, left = t, stride = 1;
      for (uint32_t i = rank; i-- > 0;) { /* the element that broadcasts to tuple t */
        int64_t size = columns[c]->type.dims[i].constant, here = left % shape[i];
        left /= shape[i];
        if (size > 1) at += here * stride;
        stride *= size;
      }
      const Tensor *column = columns[c]->tensor;
      const char *element = (const char *)column->data + (size_t)at * dtype_bytes(column->dtype, 1);
      numbers[t * (int64_t)count + (int64_t)c] = number_decode_int(column->dtype, element);
    }
  }
  return tensor_new(l, DTYPE_INT64, shape, rank + 1, numbers, (size_t)total * count * sizeof *numbers);
}

Value *index_tuples(Lowering *l, Value *const *columns, size_t count, const Dim *dims, uint32_t rank) {
  const Tensor *known = known_tuples(l, columns, count, dims, rank);
  if (known) return constant(l, known);
  Dim *tuple = arena_new_array(&l->context->arena, rank + 1, Dim);
  for (uint32_t i = 0; i < rank; i++) tuple[i] = dims[i];
  tuple[rank] = dim_of(1);
  Value **pieces = arena_new_array(&l->context->arena, count, Value *);
  int64_t last = rank;
  DType dtype = columns[0]->type.dtype;
  for (size_t c = 1; c < count; c++) {
    if (columns[c]->type.dtype != dtype) dtype = DTYPE_INT64;
  }
  for (size_t c = 0; c < count; c++) {
    Value *piece = unsqueeze_at(l, cast_to(l, columns[c], dtype), &last, 1);
    pieces[c] = expand_to(l, piece, tuple, rank + 1);
  }
  tuple[rank] = dim_of((int64_t)count);
  return cast_to(l, concat_at(l, pieces, count, last, type_make(l->context, dtype, tuple, rank + 1)), DTYPE_INT64);
}

Value *choose(Lowering *l, Value *condition, Value *yes, Value *no, Type type) {
  DType dtype = compute_dtype(l, OP_Where, type.dtype);
  if (dtype == DTYPE_NONE) unsupported(l, "ONNX Runtime cannot select elements of type %s", dtype_name(type.dtype));
  Value *chosen = EMIT(l, OP_Where, type_with(type, dtype), condition, cast_to(l, yes, dtype), cast_to(l, no, dtype));
  return narrow_to(l, chosen, type.dtype);
}
