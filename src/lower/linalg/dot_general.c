/* Contractions: dot_general as MatMul, with the fewest transposes and reshapes around it. */
#include "base/bytes.h"
#include "lower/lower.h"
#include "onnx/facts/schema.h"

/* The axes of one operand by what becomes of them. */
typedef struct Axes {
  int64_t batch[MAX_RANK], contract[MAX_RANK], free[MAX_RANK];
  size_t batch_count, contract_count, free_count;
} Axes;

typedef struct Dot {
  Axes left, right;
  Value *lhs, *rhs;
  Type type;          /* of the result: batch axes, free axes of lhs, free axes of rhs */
  uint32_t left_rank; /* how many of them are of lhs, those of size 1 included that were dropped from it */
  DType dtype;        /* computed in */
} Dot;

static void mark_used(Lowering *l, bool *used, uint32_t rank, const int64_t *axes, size_t count) {
  for (size_t i = 0; i < count; i++) {
    rely_on(l, axes[i] >= 0 && axes[i] < (int64_t)rank && !used[axes[i]]);
    used[axes[i]] = true;
  }
}

static void read_axes(Lowering *l, Axes *axes, uint32_t rank, const Param *contract, const Param *batch) {
  const int64_t *list = param_list_ints(l->context, contract, &axes->contract_count);
  rely_on(l, rank <= MAX_RANK && axes->contract_count <= rank);
  copy_bytes(axes->contract, list, axes->contract_count * sizeof *list);
  list = param_list_ints(l->context, batch, &axes->batch_count);
  rely_on(l, axes->batch_count + axes->contract_count <= rank);
  copy_bytes(axes->batch, list, axes->batch_count * sizeof *list);
  bool used[MAX_RANK] = {false};
  mark_used(l, used, rank, axes->contract, axes->contract_count);
  mark_used(l, used, rank, axes->batch, axes->batch_count);
  for (uint32_t i = 0; i < rank; i++) {
    if (!used[i]) axes->free[axes->free_count++] = i;
  }
}

static const Param *pair_item(Lowering *l, const Param *pair, size_t index) {
  rely_on(l, pair->kind == PARAM_LIST && pair->list.count == 2);
  return &pair->list.items[index];
}

/* Integers wrap, so any type as wide as the result's will do; floats are computed in the widest of the three. */
static DType dot_dtype(Lowering *l, DType lhs, DType rhs, DType result) {
  DType dtype = result;
  if (dtype_is_float(result)) {
    if (dtype_is_float(lhs) && dtype_bits(lhs) > dtype_bits(dtype)) dtype = lhs;
    if (dtype_is_float(rhs) && dtype_bits(rhs) > dtype_bits(dtype)) dtype = rhs;
    bool differ = (lhs == DTYPE_FLOAT16 && rhs == DTYPE_BFLOAT16) || (lhs == DTYPE_BFLOAT16 && rhs == DTYPE_FLOAT16);
    if (differ && dtype_bits(dtype) < 32) dtype = DTYPE_FLOAT32;
  }
  DType compute = compute_dtype(l, OP_MatMul, dtype);
  if (compute == DTYPE_NONE) unsupported(l, "ONNX Runtime has no matrix multiplication for %s", dtype_name(dtype));
  return compute;
}

static void append(int64_t *order, size_t *count, const int64_t *axes, size_t axis_count) {
  copy_bytes(order + *count, axes, axis_count * sizeof *axes);
  *count += axis_count;
}

static bool is_identity(const int64_t *order, size_t count) {
  for (size_t i = 0; i < count; i++) {
    if (order[i] != (int64_t)i) return false;
  }
  return true;
}

static void lhs_order(const Axes *axes, int64_t *order) {
  size_t count = 0;
  append(order, &count, axes->batch, axes->batch_count);
  append(order, &count, axes->free, axes->free_count);
  append(order, &count, axes->contract, axes->contract_count);
}

static void rhs_order(const Axes *axes, int64_t *order) {
  size_t count = 0;
  append(order, &count, axes->batch, axes->batch_count);
  append(order, &count, axes->contract, axes->contract_count);
  append(order, &count, axes->free, axes->free_count);
}

static void renumber(int64_t *axes, size_t count, int64_t removed) {
  for (size_t i = 0; i < count; i++) axes[i] -= axes[i] > removed;
}

/* Free axes of size 1 beside another would have to be merged into it: they are dropped instead, before anything else,
 * the first ones first: what is left of them stands where MatMul wants it more often. */
static Value *drop_ones(Lowering *l, Value *value, Axes *axes) {
  for (size_t i = 0; i < axes->free_count && axes->free_count > 1;) {
    int64_t axis = axes->free[i];
    if (!dim_is(value->type.dims[axis], 1)) {
      i++;
      continue;
    }
    value = squeeze_at(l, value, &axis, 1);
    for (size_t k = i; k + 1 < axes->free_count; k++) axes->free[k] = axes->free[k + 1];
    axes->free_count--;
    renumber(axes->free, axes->free_count, axis);
    renumber(axes->batch, axes->batch_count, axis);
    renumber(axes->contract, axes->contract_count, axis);
  }
  return value;
}

/* A constant, or one that is only moved or cast: it will be stored. */
static bool is_stored(const Value *value) {
  const Node *node = value->producer;
  while (node && (node_moves_all(node) || node_is(node, OP_Cast))) {
    value = node_input(node, 0);
    node = value->producer;
  }
  return value->tensor;
}

/* How many operands must be transposed; those computed at run time count more than stored ones. */
static int transpose_cost(const Dot *dot) {
  int64_t order[MAX_RANK];
  int cost = 0;
  lhs_order(&dot->left, order);
  if (!is_identity(order, dot->lhs->type.rank)) cost += is_stored(dot->lhs) ? 1 : 2;
  rhs_order(&dot->right, order);
  if (!is_identity(order, dot->rhs->type.rank)) cost += is_stored(dot->rhs) ? 1 : 2;
  return cost;
}

/* Sorts the pairs of contracted axes by the axis of one operand. */
static void sort_pairs(int64_t *keys, int64_t *others, size_t count) {
  for (size_t i = 1; i < count; i++) {
    for (size_t k = i; k > 0 && keys[k - 1] > keys[k]; k--) {
      int64_t key = keys[k], other = others[k];
      keys[k] = keys[k - 1], others[k] = others[k - 1];
      keys[k - 1] = key, others[k - 1] = other;
    }
  }
}

/* The order of the contracted axes is free: take the one that spares a transpose. */
static void choose_contract_order(Dot *dot) {
  Dot by_left = *dot, by_right = *dot;
  sort_pairs(by_left.left.contract, by_left.right.contract, dot->left.contract_count);
  sort_pairs(by_right.right.contract, by_right.left.contract, dot->left.contract_count);
  *dot = transpose_cost(&by_right) < transpose_cost(&by_left) ? by_right : by_left;
}

static Dim product(Lowering *l, Type type, size_t start, size_t count) {
  Dim size = dim_of(1);
  for (size_t i = 0; i < count; i++) size = dim_multiply(l->context, size, type.dims[start + i]);
  return size;
}

/* An operand as MatMul wants it: batch axes, then two groups, each as it is or as one axis (of size 1 when empty). */
typedef struct Layout {
  size_t batch, first, second; /* how many axes */
  bool merge_first, merge_second;
} Layout;

static Value *arrange(Lowering *l, Value *value, const int64_t *order, Layout layout) {
  size_t batch = layout.batch, first = layout.first, second = layout.second;
  bool merge_first = layout.merge_first, merge_second = layout.merge_second;
  value = transpose_by(l, value, order);
  Type type = value->type;
  Dim dims[MAX_RANK + 2];
  size_t rank = 0;
  for (size_t i = 0; i < batch; i++) dims[rank++] = type.dims[i];
  if (merge_first) dims[rank++] = product(l, type, batch, first);
  for (size_t i = 0; !merge_first && i < first; i++) dims[rank++] = type.dims[batch + i];
  if (merge_second) dims[rank++] = product(l, type, batch + first, second);
  for (size_t i = 0; !merge_second && i < second; i++) dims[rank++] = type.dims[batch + first + i];
  bool only_adds_one = rank == type.rank + 1 && (first == 0) != (second == 0);
  if (only_adds_one && (merge_first || merge_second)) {
    int64_t axis = (int64_t)(first == 0 ? batch : batch + first);
    return unsqueeze_at(l, value, &axis, 1);
  }
  return reshape_to(l, value, dims, rank);
}

/* Without batch axes MatMul itself takes a vector on either side and any number of leading axes on the left. */
static Value *matrix_product(Lowering *l, const Dot *dot) {
  const Axes *left = &dot->left, *right = &dot->right;
  size_t batch = left->batch_count, contract = left->contract_count;
  int64_t order[MAX_RANK];
  lhs_order(left, order);
  Value *lhs = arrange(l, dot->lhs, order, (Layout){batch, left->free_count, contract, batch > 0, true});
  rhs_order(right, order);
  bool columns = batch > 0 || right->free_count > 0;
  Value *rhs = arrange(l, dot->rhs, order, (Layout){batch, contract, right->free_count, true, columns});
  lhs = cast_to(l, lhs, dot->dtype);
  rhs = cast_to(l, rhs, dot->dtype);
  Dim dims[2 * MAX_RANK];
  size_t rank = 0;
  for (uint32_t i = 0; i + 1 < lhs->type.rank; i++) dims[rank++] = lhs->type.dims[i];
  if (rhs->type.rank > 1) dims[rank++] = rhs->type.dims[rhs->type.rank - 1];
  Value *result = EMIT(l, OP_MatMul, type_make(l->context, dot->dtype, dims, (uint32_t)rank), lhs, rhs);
  result = narrow_to(l, result, dot->type.dtype);
  bool adds_one = batch && left->free_count + right->free_count == 1;
  if (adds_one && dot->type.rank + 1 == result->type.rank) {
    int64_t axis = (int64_t)(batch + left->free_count);
    return squeeze_at(l, result, &axis, 1);
  }
  return reshape_to(l, result, dot->type.dims, dot->type.rank);
}

/* The product of the operands in the other order. order receives how to transpose it into that in the given one. */
static Dot swapped_dot(Lowering *l, const Dot *dot, int64_t *order) {
  Dot swapped = {.left = dot->right, .right = dot->left, .lhs = dot->rhs, .rhs = dot->lhs, .dtype = dot->dtype};
  uint32_t rank = dot->type.rank, batch = (uint32_t)dot->left.batch_count, left = dot->left_rank;
  Dim dims[MAX_RANK];
  rely_on(l, rank <= MAX_RANK && batch + left <= rank);
  for (uint32_t i = 0; i < rank; i++) {
    uint32_t to = i < batch ? i : i < batch + left ? i + rank - batch - left : i - left;
    dims[to] = dot->type.dims[i];
    order[i] = to;
  }
  swapped.type = type_make(l->context, dot->type.dtype, dims, rank);
  choose_contract_order(&swapped);
  return swapped;
}

/* Of the operands computed at run time: a stored one is transposed once and for all. */
typedef struct RunTimeCost {
  int transposed;
  int torn; /* those of them whose last axis goes elsewhere: nothing is moved in rows */
} RunTimeCost;

static void add_run_time_cost(RunTimeCost *cost, const Value *operand, const int64_t *order) {
  uint32_t rank = operand->type.rank;
  if (is_stored(operand) || is_identity(order, rank)) return;
  cost->transposed++;
  cost->torn += order[rank - 1] != (int64_t)rank - 1;
}

static RunTimeCost run_time_cost(const Dot *dot) {
  int64_t order[MAX_RANK];
  RunTimeCost cost = {0};
  lhs_order(&dot->left, order);
  add_run_time_cost(&cost, dot->lhs, order);
  rhs_order(&dot->right, order);
  add_run_time_cost(&cost, dot->rhs, order);
  return cost;
}

/* A weight of several axes times what is computed, as einsum has it where the weight's axes come first in the result:
 * on the right it is a matrix, and what is computed stays as it is. */
static bool is_weight_on_the_left(const Dot *dot) {
  return is_stored(dot->lhs) && !is_stored(dot->rhs) && !dot->left.batch_count && dot->left.free_count > 1 &&
         dot->right.free_count > 0;
}

/* Transposing the result instead of both operands pays off. So it does instead of one: what JAX swaps for its own
 * reasons, as a matrix times the vectors of a batch, it transposes afterwards, and then the two transposes are one or
 * none. With a batch it swaps the weights of grouped heads and their values, and either order transposes both: then
 * the one that moves rows. Several free axes on the right would be merged into one and parted again; on the left they
 * stay as they are where there is no batch. */
static bool is_better_swapped(const Dot *dot, const Dot *swapped) {
  RunTimeCost given = run_time_cost(dot), other = run_time_cost(swapped);
  bool batched = dot->left.batch_count > 0, spreads = dot->right.free_count > 1 && !batched;
  if (other.transposed + 1 <= given.transposed + spreads) return true;
  return batched && given.torn == 2 && !other.torn;
}

static Value *cheapest_product(Lowering *l, const Dot *dot) {
  bool turns = is_weight_on_the_left(dot), may_swap = dot->left.free_count == 1 && dot->right.free_count > 0;
  if (!turns && !may_swap) return matrix_product(l, dot);
  int64_t order[MAX_RANK];
  Dot swapped = swapped_dot(l, dot, order);
  if (!turns && !is_better_swapped(dot, &swapped)) return matrix_product(l, dot);
  return transpose_by(l, matrix_product(l, &swapped), order);
}

static Value *add_ones(Lowering *l, Value *value, size_t at, size_t count) {
  int64_t axes[MAX_RANK];
  rely_on(l, count <= MAX_RANK);
  for (size_t i = 0; i < count; i++) axes[i] = (int64_t)(at + i);
  return unsqueeze_at(l, value, axes, count);
}

/* Nothing is summed: the operands are lined up and multiplied. */
static Value *outer_product(Lowering *l, const Dot *dot) {
  int64_t order[MAX_RANK];
  size_t batch = dot->left.batch_count;
  lhs_order(&dot->left, order);
  Value *lhs = cast_to(l, transpose_by(l, dot->lhs, order), dot->dtype);
  rhs_order(&dot->right, order);
  Value *rhs = cast_to(l, transpose_by(l, dot->rhs, order), dot->dtype);
  if (lhs->type.rank) lhs = add_ones(l, lhs, lhs->type.rank, dot->right.free_count);
  if (batch) rhs = add_ones(l, rhs, batch, dot->left.free_count);
  Value *result = EMIT(l, OP_Mul, type_with(dot->type, dot->dtype), lhs, rhs);
  return narrow_to(l, result, dot->type.dtype);
}

/* A product of vectors for each batch element: multiplied and summed, which needs no axes of size 1. Of floats only:
 * see reductions.c on sums of integers. */
static Value *vector_products(Lowering *l, const Dot *dot) {
  int64_t order[MAX_RANK], axes[MAX_RANK];
  size_t batch = dot->left.batch_count, contract = dot->left.contract_count;
  lhs_order(&dot->left, order);
  Value *lhs = cast_to(l, transpose_by(l, dot->lhs, order), dot->dtype);
  rhs_order(&dot->right, order);
  Value *rhs = cast_to(l, transpose_by(l, dot->rhs, order), dot->dtype);
  Value *products = EMIT(l, OP_Mul, lhs->type, lhs, rhs);
  for (size_t i = 0; i < contract; i++) axes[i] = (int64_t)(batch + i);
  return narrow_to(l, EMIT_REDUCED(l, OP_ReduceSum, products, axes, contract), dot->type.dtype);
}

static bool sums_over_empty_axis(const Dot *dot) {
  for (size_t i = 0; i < dot->left.contract_count; i++) {
    if (dim_is(dot->lhs->type.dims[dot->left.contract[i]], 0)) return true;
  }
  return false;
}

static void lower_dot_general(Lowering *l) {
  const Param *numbers = param_get(l->context, l->equation, "dimension_numbers");
  const Param *contract = pair_item(l, numbers, 0), *batch = pair_item(l, numbers, 1);
  Dot dot = {.lhs = input(l, 0), .rhs = input(l, 1), .type = output_type(l, 0)};
  read_axes(l, &dot.left, dot.lhs->type.rank, pair_item(l, contract, 0), pair_item(l, batch, 0));
  read_axes(l, &dot.right, dot.rhs->type.rank, pair_item(l, contract, 1), pair_item(l, batch, 1));
  rely_on(l, dot.left.contract_count == dot.right.contract_count);
  rely_on(l, dot.left.batch_count == dot.right.batch_count);
  dot.dtype = dot_dtype(l, dot.lhs->type.dtype, dot.rhs->type.dtype, dot.type.dtype);
  dot.left_rank = (uint32_t)dot.left.free_count;
  if (dot.left.contract_count) {
    if (dot.left.batch_count) dot.lhs = drop_ones(l, dot.lhs, &dot.left);
    dot.rhs = drop_ones(l, dot.rhs, &dot.right);
  }
  choose_contract_order(&dot);
  if (sums_over_empty_axis(&dot)) {
    bind(l, 0, filled(l, dot.type, tensor_scalar(l, dot.type.dtype, 0)));
  } else if (!dot.left.contract_count) {
    bind(l, 0, outer_product(l, &dot));
  } else if (dot.left.batch_count && !dot.left.free_count && !dot.right.free_count && dtype_is_float(dot.dtype)) {
    bind(l, 0, vector_products(l, &dot));
  } else {
    bind(l, 0, cheapest_product(l, &dot));
  }
}

/* clang-format off */
const Plugin dot_plugins[] = {
    PLUGIN("dot_general", lower_dot_general, OP_MatMul),
    {0},
};
/* clang-format on */
