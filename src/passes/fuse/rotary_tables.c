/* Tables of cosines and sines that hold everything twice: half of them is what RotaryEmbedding takes. */
#include "passes/fuse/rotary_tables.h"

#include "base/bytes.h"
#include "types/numbers.h"

bool is_last_axis(int64_t axis, const Value *value) { return axis == -1 || axis == (int64_t)value->type.rank - 1; }

static bool is_opposite(Doubling doubling) { return doubling == OPPOSITE_HALVES || doubling == OPPOSITE_PAIRS; }

/* Of a row of `count` elements the `half`th of those kept, and the one that it must repeat. */
static void find_twins(Doubling doubling, size_t count, size_t half, size_t *kept, size_t *twin) {
  bool in_pairs = doubling == IN_PAIRS || doubling == OPPOSITE_PAIRS;
  size_t first = in_pairs ? 2 * half : half, second = in_pairs ? first + 1 : half + count / 2;
  *kept = is_opposite(doubling) ? second : first;
  *twin = is_opposite(doubling) ? first : second;
}

static bool is_twin(DType dtype, Doubling doubling, const char *kept, const char *twin) {
  if (!is_opposite(doubling)) return same_bytes(kept, twin, dtype_bytes(dtype, 1));
  return number_decode(dtype, kept) == -number_decode(dtype, twin);
}

/* Constants are cut; NULL when they do not hold everything twice. */
static const Tensor *single_constant(Match *match, const Tensor *whole, Doubling doubling) {
  Arena *arena = &match->rewriter->context->arena;
  if (whole->rank == 0 || whole->dims[whole->rank - 1] == 0) return NULL;
  size_t width = dtype_bytes(whole->dtype, 1), columns = (size_t)whole->dims[whole->rank - 1];
  size_t rows = whole->size / (columns * width), half = columns / 2;
  if (columns % 2) return NULL;
  char *data = arena_new_array(arena, rows * half * width, char);
  for (size_t i = 0; i < rows * half; i++) {
    size_t kept, twin;
    find_twins(doubling, columns, i % half, &kept, &twin);
    const char *row = (const char *)whole->data + i / half * columns * width;
    if (!is_twin(whole->dtype, doubling, row + kept * width, row + twin * width)) return NULL;
    copy_bytes(data + i * width, row + kept * width, width);
  }
  Tensor *tensor = arena_copy(arena, whole, sizeof *whole);
  int64_t *dims = arena_copy(arena, whole->dims, whole->rank * sizeof *dims);
  dims[whole->rank - 1] = (int64_t)half;
  *tensor =
      (Tensor){.dtype = whole->dtype, .rank = whole->rank, .dims = dims, .data = data, .size = rows * half * width};
  return tensor;
}

/* The half that a Concat puts beside itself, or beside its negative; else NULL. */
static Value *joined_half(const Value *value, Doubling doubling) {
  const Node *node = value->producer;
  if (!node_is(node, OP_Concat) || node->input_count != 2 || !is_last_axis(node_int_or(node, "axis", 0), value))
    return NULL;
  Value *first = node_input(node, 0), *second = node_input(node, 1);
  if (doubling == IN_HALVES) return first == second ? first : NULL;
  const Node *negated = first->producer;
  bool is_negative = negated && node_is(negated, OP_Neg) && node_input(negated, 0) == second;
  return doubling == OPPOSITE_HALVES && is_negative ? second : NULL;
}

/* What makes the value, before it was rounded or widened. */
static const Node *before_casts(const Value *value) {
  const Node *node = value->producer;
  while (node && is_cast_of_half(node)) node = node_input(node, 0)->producer;
  return node;
}

/* The axes of size 1 that a value has more than its source, whose last axis is half as long; -1: it differs elsewhere.
 */
static int axes_put_in(Type from, Type to, int64_t axes[MAX_RANK]) {
  int count = 0;
  uint32_t at = 0;
  if (from.rank == 0 || to.rank > MAX_RANK) return -1;
  for (uint32_t i = 0; i + 1 < to.rank; i++) {
    if (at + 1 < from.rank && dim_equal(from.dims[at], to.dims[i])) at++;
    else if (dim_is(to.dims[i], 1)) axes[count++] = i;
    else return -1;
  }
  return at + 1 == from.rank ? count : -1;
}

/* Every element beside itself: [.., n] to [.., n, 1] to [.., n, 2] to [.., 2 n]; axes of size 1 may come in between. */
static Value *repeated(const Value *value, Doubling doubling) {
  const Node *merge = value->producer;
  int64_t axes[MAX_RANK];
  if (doubling != IN_PAIRS || !node_is(merge, OP_Reshape)) return NULL;
  const Node *expand = before_casts(node_input(merge, 0));
  const Node *apart = expand && node_is(expand, OP_Expand) ? before_casts(node_input(expand, 0)) : NULL;
  if (!apart || !node_has(apart, RENAMES)) return NULL;
  Value *source = node_input(apart, 0);
  Type from = source->type, one = apart->outputs[0]->type, two = expand->outputs[0]->type;
  uint32_t rank = value->type.rank;
  if (rank == 0 || one.rank != rank + 1 || two.rank != rank + 1 || from.rank == 0) return NULL;
  Dim features = from.dims[from.rank - 1];
  if (!dim_equal(one.dims[rank - 1], features) || !dim_is(one.dims[rank], 1) || !dim_is(two.dims[rank], 2)) return NULL;
  if (!same_dims(one, two, 0, rank) || !same_dims(one, value->type, 0, rank - 1)) return NULL;
  return axes_put_in(from, value->type, axes) >= 0 ? source : NULL;
}

/* Does the operator make the same of each half of the features as of the whole? */
static bool keeps_features_apart(const Node *node) {
  const Value *source = node_input(node, 0), *value = node->outputs[0];
  uint32_t rank = value->type.rank, from = source->type.rank;
  if (from == 0 || rank == 0 || !dim_equal(value->type.dims[rank - 1], source->type.dims[from - 1])) return false;
  if (node_is(node, OP_Gather)) {
    int64_t axis = node_int_or(node, "axis", 0);
    return (axis < 0 ? axis + from : axis) < (int64_t)from - 1;
  }
  int64_t axis;
  if (node_is(node, OP_Slice)) return only_integer(node_input(node, 3), &axis) && !is_last_axis(axis, source);
  return node_is(node, OP_Cos) || node_is(node, OP_Sin) || node_is(node, OP_Cast) || node_is(node, OP_Unsqueeze) ||
         node_is(node, OP_Squeeze);
}

bool is_double(Match *match, const Value *value, Doubling doubling, int depth) {
  const Tensor *constant = constant_of(value);
  if (constant) return single_constant(match, constant, doubling);
  const Node *node = value->producer;
  if (!node || depth == 0 || !node_input(node, 0) || node->output_count != 1) return false;
  if (joined_half(value, doubling) || repeated(value, doubling)) return true;
  bool is_odd = !node_is(node, OP_Cos) || !is_opposite(doubling);
  return is_odd && keeps_features_apart(node) && is_double(match, node_input(node, 0), doubling, depth - 1);
}

static Type half_type(Match *match, Type type) {
  Dim dims[MAX_RANK];
  for (uint32_t i = 0; i < type.rank; i++) dims[i] = type.dims[i];
  dims[type.rank - 1] = dim_of(type.dims[type.rank - 1].constant / 2);
  return type_make(match->rewriter->context, type.dtype, dims, type.rank);
}

/* The half with the axes of size 1 that the whole has. */
static Value *with_axes(Match *match, Value *half, Type whole) {
  int64_t axes[MAX_RANK];
  int count = axes_put_in(half->type, whole, axes);
  if (count == 0) return half;
  Value *numbers = rewrite_constant_ints(match->rewriter, match->root, axes, (size_t)count, match->root->origin);
  return EMIT_BEFORE(match, OP_Unsqueeze, half_type(match, whole), half, numbers)->outputs[0];
}

Value *half_of(Match *match, Value *value, Doubling doubling) {
  const Tensor *constant = constant_of(value);
  if (constant) return match_constant(match, single_constant(match, constant, doubling));
  Node *node = value->producer;
  Value *half = joined_half(value, doubling), *inputs[8];
  if (half) return half;
  half = repeated(value, doubling);
  if (half) return with_axes(match, match_in_type(match, half, value->type.dtype), value->type);
  inputs[0] = half_of(match, node_input(node, 0), doubling);
  for (uint32_t i = 1; i < node->input_count; i++) inputs[i] = node_input(node, i);
  Type type = half_type(match, value->type);
  Emitter emitter = REWRITE_EMITTER(match->rewriter);
  Node *made = match_node_before(match, node->op, type, inputs, node->input_count, emitter);
  node_copy_attributes(made, node);
  rewrite_hand_over(match->rewriter, made, node);
  return made->outputs[0];
}
