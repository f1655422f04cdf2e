/* RotaryEmbedding: pairs of features turned by angles, (a, b) to (a cos - b sin, b cos + a sin), where the pairs are
 * the two halves of the features, or neighbours.
 *
 * It is read from the last operator on: the two turned features put together, or x cos + (-b, a) sin. Signs may stand
 * anywhere, and halves may be widened before the products and rounded after them: what is computed in float32 is no
 * less precise. Heads may stand before the positions or after them: the operator takes the one order over four axes
 * and the other over three, heads and features in one. Cosines and sines come for each element of the batch, or once
 * for all; then the operator wants a number for each position to look them up by. Measured with ONNX Runtime on one
 * core, 2 x 128 positions of 8 heads of 64: 33 us against 191 for the single operators.
 *
 * At opsets without the operator, halves are written as x (cos, cos) + (b, a) (-sin, sin): five operators instead of
 * eight, 194 us against 261 there.
 */
#include "base/bytes.h"
#include "onnx/facts/schema.h"
#include "passes/fuse/attention.h"
#include "target/target.h"
#include "types/numbers.h"

enum { SOURCE };

/* How often a cosine or a sine stands in its table. */
typedef enum Doubling {
  ONCE,
  IN_HALVES,       /* the second half of the features is the first again */
  IN_PAIRS,        /* every second one is the one before it */
  OPPOSITE_HALVES, /* the first half is the second, negative */
} Doubling;

typedef struct Rotation {
  Match *match;
  Value *x;   /* batch, positions, heads, features; or heads before positions; or without a batch */
  Type view;  /* of x with a batch, of 1 where it has none */
  DType type; /* that it is computed in */
  Value *cosine, *sine;
  Node *parted;     /* what takes the pairs apart */
  bool interleaved; /* pairs of neighbours */
  Doubling of_cosine, of_sine;
  bool heads_first;
  bool batched; /* cosines and sines differ over the batch */
} Rotation;

/* A product, or one factor of it. */
typedef struct Term {
  Value *factors[2];
  bool is_negative;
} Term;

/* ---- reading products ---- */

static bool is_rounding(const Node *node) {
  return is_cast_of_half(node) && dtype_is_half(node->outputs[0]->type.dtype);
}

static bool is_widening(const Node *node) { return is_cast_of_half(node) && !is_rounding(node); }

static Value *unrounded(Match *match, Value *value) {
  while (value->producer && is_rounding(value->producer) && match_take(match, value, value->producer->op)) {
    value = node_input(value->producer, 0);
  }
  return value;
}

/* Before it was widened, and without its sign. What the match alone reads becomes part of it. */
static Value *bare(Match *match, Value *value, bool *is_negative) {
  for (Node *node; (node = value->producer) && (is_widening(node) || (node_is(node, OP_Neg) && is_negative));) {
    match_take(match, value, node->op);
    if (node_is(node, OP_Neg)) *is_negative = !*is_negative;
    value = node_input(node, 0);
  }
  return value;
}

static bool read_term(Rotation *rotation, Value *value, Term *term) {
  Match *match = rotation->match;
  value = unrounded(match, value);
  *term = (Term){0};
  for (Node *negated; (negated = match_take(match, value, OP_Neg)); term->is_negative = !term->is_negative) {
    value = unrounded(match, node_input(negated, 0));
  }
  Node *product = match_take(match, value, OP_Mul);
  if (!product) return false;
  rotation->type = value->type.dtype;
  for (int i = 0; i < 2; i++) term->factors[i] = bare(match, node_input(product, (size_t)i), &term->is_negative);
  return true;
}

static bool read_sum(Rotation *rotation, Value *value, Term terms[2]) {
  Match *match = rotation->match;
  value = unrounded(match, value);
  Node *sum = value == match->root->outputs[0] ? match->root : match_take(match, value, OP_Add);
  if (!sum) sum = match_take(match, value, OP_Sub);
  for (int i = 0; sum && i < 2; i++) {
    if (!read_term(rotation, node_input(sum, (size_t)i), &terms[i])) return false;
  }
  if (sum && node_is(sum, OP_Sub)) terms[1].is_negative = !terms[1].is_negative;
  return sum;
}

/* ---- what is turned ---- */

static bool is_last_axis(int64_t axis, const Value *value) {
  return axis == -1 || axis == (int64_t)value->type.rank - 1;
}

/* The part of a Split into two of size 1, by a Squeeze that drops the axis, before which it may have been widened. */
static bool is_part_of_two(const Value *value, int64_t part, int64_t axis, Value **pairs) {
  const Node *squeeze = value->producer;
  if (!node_has(squeeze, RENAMES)) return false;
  const Value *one = node_input(squeeze, 0);
  if (one->producer && is_widening(one->producer)) one = node_input(one->producer, 0);
  const Node *split = one->producer;
  if (!split || !node_is(split, OP_Split) || split->output_count != 2 || one->output_index != (uint32_t)part)
    return false;
  int64_t along = node_int_or(split, "axis", 0);
  *pairs = node_input(split, 0);
  return (along < 0 ? along + (*pairs)->type.rank : along) == axis && one->type.rank == (*pairs)->type.rank;
}

/* The `part`th of two along an axis of *pairs that the value lacks. */
static bool is_one_of_two(const Value *value, int64_t part, int64_t axis, Value **pairs) {
  const Node *node = value->producer;
  int64_t number;
  if (!node || !node_input(node, 0)) return false;
  *pairs = node_input(node, 0);
  if (node_is(node, OP_Gather)) {
    const Value *index = node_input(node, 1);
    int64_t along = node_int_or(node, "axis", 0);
    if ((along < 0 ? along + (*pairs)->type.rank : along) != axis || index->type.rank != 0) return false;
    if (!only_integer(index, &number) || number != part) return false;
  } else if (!is_part_of_two(value, part, axis, pairs)) {
    return false;
  }
  Type of_pairs = (*pairs)->type, type = value->type;
  if (axis < 0 || of_pairs.rank != type.rank + 1 || !dim_is(of_pairs.dims[axis], 2)) return false;
  for (uint32_t i = 0; i < type.rank; i++) {
    if (!dim_equal(type.dims[i], of_pairs.dims[i < (uint32_t)axis ? i : i + 1])) return false;
  }
  return true;
}

/* The features that a Reshape has put into two rows, or into pairs. */
static bool is_of_reshaped(const Value *value, int64_t part, int64_t axis, Value **source) {
  Value *pairs;
  if (!is_one_of_two(value, part, axis, &pairs)) return false;
  const Node *reshape = pairs->producer;
  if (!reshape || !node_is(reshape, OP_Reshape)) return false;
  uint32_t rank = value->type.rank;
  *source = node_input(reshape, 0);
  return rank > 0 && (*source)->type.rank == rank && same_dims((*source)->type, value->type, 0, rank - 1);
}

/* One of two along the axis before the last of features that a Reshape has put into two rows. */
static bool is_row(const Value *value, int64_t row, Value **source) {
  return is_of_reshaped(value, row, (int64_t)value->type.rank - 1, source);
}

static bool are_rows(Rotation *rotation, const Value *first, const Value *second) {
  Value *other;
  if (!is_row(first, 0, &rotation->x) || !is_row(second, 1, &other) || other != rotation->x) return false;
  rotation->parted = first->producer;
  return type_equal(first->type, second->type);
}

/* The first or the second half of the features of *source, by a Slice. */
static bool is_sliced_half(const Value *value, int64_t which, Value **source) {
  const Node *slice = value->producer;
  int64_t start, end, axis;
  if (!slice || !read_axis_slice(slice, &axis, &start, &end) || !is_last_axis(axis, value)) return false;
  *source = node_input(slice, 0);
  Type whole = (*source)->type, half = value->type;
  if (half.rank == 0 || whole.rank != half.rank || !dim_is_constant(half.dims[half.rank - 1])) return false;
  int64_t size = half.dims[half.rank - 1].constant;
  return dim_is(whole.dims[whole.rank - 1], 2 * size) && start == which * size && end >= start + size;
}

/* One of them may be of what was widened. */
static bool are_sliced_halves(Rotation *rotation, const Value *first, const Value *second) {
  Value *other;
  if (!is_sliced_half(first, 0, &rotation->x) || !is_sliced_half(second, 1, &other)) return false;
  rotation->parted = first->producer;
  rotation->x = bare(rotation->match, rotation->x, NULL);
  return bare(rotation->match, other, NULL) == rotation->x && type_same_shape(first->type, second->type);
}

static bool are_halves(Rotation *rotation, const Value *first, const Value *second) {
  Node *split = first->producer;
  if (!split || !node_is(split, OP_Split))
    return are_rows(rotation, first, second) || are_sliced_halves(rotation, first, second);
  if (second->producer != split || split->output_count != 2) return false;
  if (first->output_index != 0 || second->output_index != 1) return false;
  if (!is_last_axis(node_int_or(split, "axis", 0), first) || !type_equal(first->type, second->type)) return false;
  rotation->x = node_input(split, 0);
  rotation->parted = split;
  return true;
}

/* Does the Gather pick start, start + 2, start + 4, ...? */
static bool picks_every_second(const Node *gather, int64_t start) {
  const Tensor *indices = constant_of(node_input(gather, 1));
  if (!indices || indices->rank != 1 || !dtype_is_integer(indices->dtype)) return false;
  size_t width = dtype_bytes(indices->dtype, 1);
  for (size_t i = 0; i * width < indices->size; i++) {
    int64_t index = number_decode_int(indices->dtype, (const char *)indices->data + i * width);
    if (index != start + 2 * (int64_t)i) return false;
  }
  return true;
}

/* Every second feature of *source from `start` on. */
static bool is_every_second(const Value *value, int64_t start, Value **source) {
  const Node *node = value->producer;
  int64_t number;
  if (!node || !node_input(node, 0)) return false;
  *source = node_input(node, 0);
  uint32_t rank = value->type.rank;
  if (node_is(node, OP_Slice)) {
    return only_integer(node_input(node, 1), &number) && number == start &&
           only_integer(node_input(node, 3), &number) && is_last_axis(number, value) &&
           only_integer(node_input(node, 4), &number) && number == 2;
  }
  if (node_is(node, OP_Gather) && (*source)->type.rank == rank)
    return is_last_axis(node_int_or(node, "axis", 0), value) && picks_every_second(node, start);
  return is_of_reshaped(value, start, rank, source); /* ..., features to ..., pairs, 2 */
}

static bool are_neighbours(Rotation *rotation, const Value *first, const Value *second) {
  Value *other;
  if (!is_every_second(first, 0, &rotation->x) || !is_every_second(second, 1, &other)) return false;
  rotation->parted = first->producer;
  rotation->x = bare(rotation->match, rotation->x, NULL); /* one of them may have been widened first */
  other = bare(rotation->match, other, NULL);
  return other == rotation->x && type_same_shape(first->type, second->type) &&
         dim_is_constant(first->type.dims[first->type.rank - 1]) &&
         dim_is(other->type.dims[other->type.rank - 1], 2 * first->type.dims[first->type.rank - 1].constant);
}

static bool are_pairs(Rotation *rotation, const Value *first, const Value *second) {
  return rotation->interleaved ? are_neighbours(rotation, first, second) : are_halves(rotation, first, second);
}

static bool is_product_of(const Term *term, const Value *one, const Value *other) {
  return !term->is_negative && ((term->factors[0] == one && term->factors[1] == other) ||
                                (term->factors[0] == other && term->factors[1] == one));
}

/* first = a cos - b sin, second = b cos + a sin, whichever factors of the products are the pairs. */
static bool are_turned(Rotation *rotation, const Term first[2], const Term second[2]) {
  int positive = first[0].is_negative ? 1 : 0;
  const Term *of_cosine = &first[positive], *of_sine = &first[1 - positive];
  if (of_cosine->is_negative || !of_sine->is_negative) return false;
  for (int i = 0; i < 4; i++) {
    Value *a = of_cosine->factors[i & 1], *b = of_sine->factors[i >> 1];
    rotation->cosine = of_cosine->factors[1 - (i & 1)];
    rotation->sine = of_sine->factors[1 - (i >> 1)];
    if (!are_pairs(rotation, a, b)) continue;
    for (int k = 0; k < 2; k++) {
      if (is_product_of(&second[k], b, rotation->cosine) && is_product_of(&second[1 - k], a, rotation->sine))
        return true;
    }
  }
  return false;
}

/* ---- what it is turned by ---- */

/* Sizes of cosines or sines along the four axes of x. */
static bool read_sizes(const Rotation *rotation, const Value *angles, Doubling doubling, Dim sizes[4]) {
  Type type = angles->type, x = rotation->view;
  if (type.rank == 0 || type.rank > 4) return false;
  for (uint32_t i = 0; i < 4; i++) {
    uint32_t missing = 4 - type.rank;
    sizes[i] = i < missing ? dim_of(1) : type.dims[i - missing];
    if (i < 3 && !dim_is(sizes[i], 1) && !dim_equal(sizes[i], x.dims[i])) return false;
  }
  int64_t features = x.dims[3].constant / (doubling == ONCE ? 2 : 1);
  return dim_is(sizes[3], features);
}

/* With a batch of 1 where there is none. */
static bool read_view(Rotation *rotation) {
  Dim dims[4];
  Type x = rotation->x->type;
  if (x.rank < 3 || x.rank > 4) return false;
  for (uint32_t i = 0; i < 4; i++) dims[i] = i < 4 - x.rank ? dim_of(1) : x.dims[i + x.rank - 4];
  rotation->view = type_make(rotation->match->rewriter->context, x.dtype, dims, 4);
  return true;
}

static bool read_layout(Rotation *rotation) {
  Dim cosine[4], sine[4];
  if (!schema_runs(OP_RotaryEmbedding, NULL, match_opset(rotation->match), rotation->type)) return false;
  if (!read_view(rotation)) return false;
  Type x = rotation->view;
  if (x.dtype != rotation->type && !(dtype_is_half(x.dtype) && rotation->type == DTYPE_FLOAT32)) return false;
  if (!dim_is_constant(x.dims[3]) || x.dims[3].constant % 2) return false;
  if (!read_sizes(rotation, rotation->cosine, rotation->of_cosine, cosine)) return false;
  if (!read_sizes(rotation, rotation->sine, rotation->of_sine, sine)) return false;
  for (int i = 0; i < 3; i++) {
    if (!dim_equal(cosine[i], sine[i])) return false;
  }
  rotation->heads_first = dim_is(cosine[1], 1) && !(dim_is(x.dims[1], 1) && dim_is(cosine[2], 1));
  uint32_t positions = rotation->heads_first ? 2 : 1, heads = 3 - positions;
  if (!dim_equal(cosine[positions], x.dims[positions]) || !dim_is(cosine[heads], 1)) return false;
  if (!rotation->heads_first && !dim_is_constant(x.dims[heads])) return false;
  rotation->batched = dim_equal(cosine[0], x.dims[0]);
  return !rotation->batched || rotation->cosine->type.rank == 4 || dim_is(x.dims[0], 1);
}

/* ---- tables that hold everything twice ---- */

/* Of a row of `count` elements the `half`th of those kept, and the one that it must repeat. */
static void find_twins(Doubling doubling, size_t count, size_t half, size_t *kept, size_t *twin) {
  *kept = doubling == IN_PAIRS ? 2 * half : doubling == OPPOSITE_HALVES ? half + count / 2 : half;
  *twin = doubling == IN_PAIRS ? 2 * half + 1 : doubling == OPPOSITE_HALVES ? half : half + count / 2;
}

static bool is_twin(DType dtype, Doubling doubling, const char *kept, const char *twin) {
  if (doubling != OPPOSITE_HALVES) return same_bytes(kept, twin, dtype_bytes(dtype, 1));
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
  bool is_opposite = negated && node_is(negated, OP_Neg) && node_input(negated, 0) == second;
  return doubling == OPPOSITE_HALVES && is_opposite ? second : NULL;
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

enum { DEEPEST = 6 };

/* Can half of the value be told? */
static bool is_double(Match *match, const Value *value, Doubling doubling, int depth) {
  const Tensor *constant = constant_of(value);
  if (constant) return single_constant(match, constant, doubling);
  const Node *node = value->producer;
  if (!node || depth == 0 || !node_input(node, 0) || node->output_count != 1) return false;
  if (joined_half(value, doubling) || repeated(value, doubling)) return true;
  bool is_even = !node_is(node, OP_Cos) || doubling != OPPOSITE_HALVES;
  return is_even && keeps_features_apart(node) && is_double(match, node_input(node, 0), doubling, depth - 1);
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

static Value *half_of(Match *match, Value *value, Doubling doubling) {
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

/* ---- the operator ---- */

static Value *ints(Match *match, const int64_t *numbers, size_t count) {
  return rewrite_constant_ints(match->rewriter, match->root, numbers, count, match->root->origin);
}

/* Over positions whose number is known only at run time, cosines are spread over the batch. */
static bool is_spread(const Rotation *rotation) {
  return !rotation->batched && !dim_is_constant(rotation->view.dims[rotation->heads_first ? 2 : 1]);
}

/* A value and an axis of it whose size is the same at run time: the model's inputs serve all that ask. */
static Value *sized_like(const Rotation *rotation, Dim size, int64_t *axis) {
  const Graph *graph = rotation->match->root->graph;
  while (graph->owner) graph = graph->owner->graph;
  for (size_t i = 0; i < graph->inputs.count; i++) {
    Value *input = graph->inputs.items[i];
    for (uint32_t k = 0; k < input->type.rank; k++) {
      *axis = k;
      if (dim_equal(input->type.dims[k], size)) return input;
    }
  }
  *axis = 0;
  return rotation->x;
}

/* The size of the batch and then `numbers`, as a shape. */
static Value *batch_shape(const Rotation *rotation, const int64_t *numbers, size_t count) {
  Match *match = rotation->match;
  Context *context = match->rewriter->context;
  int64_t axis;
  Value *like = sized_like(rotation, rotation->view.dims[0], &axis);
  const Dim one = dim_of(1), all = dim_of((int64_t)count + 1);
  Node *size = EMIT_BEFORE(match, OP_Shape, type_make(context, DTYPE_INT64, &one, 1), like);
  node_set_int(size, "start", axis);
  node_set_int(size, "end", axis + 1);
  Value *rest = ints(match, numbers, count);
  Node *shape = EMIT_BEFORE(match, OP_Concat, type_make(context, DTYPE_INT64, &all, 1), size->outputs[0], rest);
  node_set_int(shape, "axis", 0);
  return shape->outputs[0];
}

/* Positions and features, the axes of size 1 dropped, once for each element of the batch. */
static Value *spread(const Rotation *rotation, Value *angles) {
  Match *match = rotation->match;
  Type type = angles->type, x = rotation->view;
  uint32_t positions = type.rank - (rotation->heads_first ? 2 : 3), count = 0;
  int64_t axes[4];
  for (uint32_t i = 0; i + 1 < type.rank; i++) {
    if (i != positions) axes[count++] = i;
  }
  const Dim dims[] = {x.dims[0], type.dims[positions], type.dims[type.rank - 1]};
  Context *context = match->rewriter->context;
  if (count) {
    Type flat = type_make(context, rotation->type, dims + 1, 2);
    angles = EMIT_BEFORE(match, OP_Squeeze, flat, angles, ints(match, axes, count))->outputs[0];
  }
  Value *shape = batch_shape(rotation, (const int64_t[]){1, 1}, 2);
  return EMIT_BEFORE(match, OP_Expand, type_make(context, rotation->type, dims, 3), angles, shape)->outputs[0];
}

/* By batch, position and feature, or by position and feature. */
static Value *as_cache(const Rotation *rotation, Value *angles, Doubling doubling) {
  Match *match = rotation->match;
  Type x = rotation->view;
  if (doubling != ONCE) angles = half_of(match, angles, doubling);
  angles = match_in_type(match, angles, rotation->type);
  if (is_spread(rotation)) return spread(rotation, angles);
  Dim positions = x.dims[rotation->heads_first ? 2 : 1], features = dim_of(x.dims[3].constant / 2);
  const Dim dims[] = {x.dims[0], positions, features};
  if (!rotation->batched || angles->type.rank != 4) {
    uint32_t first = rotation->batched ? 0 : 1;
    const int64_t numbers[] = {1, dim_is_constant(positions) ? positions.constant : -1, features.constant};
    Type type = type_make(match->rewriter->context, rotation->type, dims + first, 3 - first);
    return EMIT_BEFORE(match, OP_Reshape, type, angles, ints(match, numbers + first, 3 - first))->outputs[0];
  }
  const int64_t heads = rotation->heads_first ? 1 : 2;
  Type type = type_make(match->rewriter->context, rotation->type, dims, 3);
  return EMIT_BEFORE(match, OP_Squeeze, type, angles, ints(match, &heads, 1))->outputs[0];
}

/* 0, 1, 2, ... for each element of the batch. */
static Value *position_numbers(const Rotation *rotation) {
  Match *match = rotation->match;
  Context *context = match->rewriter->context;
  Type x = rotation->view;
  int64_t count = x.dims[rotation->heads_first ? 2 : 1].constant;
  int64_t batch = dim_is_constant(x.dims[0]) ? x.dims[0].constant : 1, dims[] = {batch, count};
  int64_t *numbers = arena_new_array(&context->arena, (size_t)(batch * count), int64_t);
  for (int64_t i = 0; i < batch * count; i++) numbers[i] = i % count;
  Tensor *tensor = arena_new(&context->arena, Tensor);
  *tensor =
      (Tensor){.dtype = DTYPE_INT64, .rank = 2, .data = numbers, .size = (size_t)(batch * count) * sizeof *numbers};
  tensor->dims = arena_copy(&context->arena, dims, sizeof dims);
  Value *known = match_constant(match, tensor);
  if (dim_is_constant(x.dims[0])) return known;
  const Dim all[] = {x.dims[0], dim_of(count)};
  Value *shape = batch_shape(rotation, &count, 1);
  return EMIT_BEFORE(match, OP_Expand, type_make(context, DTYPE_INT64, all, 2), known, shape)->outputs[0];
}

/* x in the type that it is computed in, with a batch. */
static Value *viewed(const Rotation *rotation) {
  Match *match = rotation->match;
  Value *x = match_in_type(match, rotation->x, rotation->type);
  const int64_t first = 0;
  if (x->type.rank == 4) return x;
  return EMIT_BEFORE(match, OP_Unsqueeze, type_with(rotation->view, rotation->type), x, ints(match, &first, 1))
      ->outputs[0];
}

/* The node that turns; its value has the axes of the view. */
static Node *emit_operator(Rotation *rotation) {
  Match *match = rotation->match;
  Type x = type_with(rotation->view, rotation->type);
  rotation->x = viewed(rotation);
  Value *inputs[] = {rotation->x, as_cache(rotation, rotation->cosine, rotation->of_cosine),
                     as_cache(rotation, rotation->sine, rotation->of_sine), NULL};
  if (!rotation->batched && !is_spread(rotation)) inputs[3] = position_numbers(rotation);
  size_t count = inputs[3] ? 4 : 3;
  Emitter emitter = REWRITE_EMITTER(match->rewriter);
  if (rotation->heads_first) return match_node_before(match, OP_RotaryEmbedding, x, inputs, count, emitter);
  int64_t heads = x.dims[2].constant, features = x.dims[3].constant;
  const int64_t merged[] = {0, 0, heads * features}, apart[] = {0, 0, heads, features};
  const Dim dims[] = {x.dims[0], x.dims[1], dim_of(heads * features)};
  Type rows = type_make(match->rewriter->context, rotation->type, dims, 3);
  inputs[0] = EMIT_BEFORE(match, OP_Reshape, rows, rotation->x, ints(match, merged, 3))->outputs[0];
  Node *node = match_node_before(match, OP_RotaryEmbedding, rows, inputs, count, emitter);
  node_set_int(node, "num_heads", heads);
  EMIT_BEFORE(match, OP_Reshape, x, node->outputs[0], ints(match, apart, 4));
  return node;
}

static bool emit(Rotation *rotation) {
  Match *match = rotation->match;
  Node *node = emit_operator(rotation);
  Value *result = node->outputs[0];
  if (!rotation->heads_first) result = result->uses->node->outputs[0];
  if (rotation->interleaved) node_set_int(node, "interleaved", 1);
  for (size_t i = 1; i < match->node_count; i++) rewrite_hand_over(match->rewriter, node, match->nodes[i]);
  rewrite_hand_over(match->rewriter, node, rotation->parted);
  Type type = match_type(match);
  if (type.rank == 3) {
    const int64_t first = 0;
    result =
        EMIT_BEFORE(match, OP_Squeeze, type_with(type, rotation->type), result, ints(match, &first, 1))->outputs[0];
  }
  match_replace(match, match_in_type(match, result, type.dtype));
  return true;
}

/* ---- where there is no such operator ---- */

static bool lacks_operator(const Match *match) {
  return target_is_onnx_runtime(match->rewriter->model->target) &&
         !schema_version(OP_RotaryEmbedding, match_opset(match));
}

/* Of a Split and in one type, by cosines and sines that have as many features as they are held to. */
static bool can_be_spelled(const Rotation *rotation) {
  const Value *x = rotation->x, *angles[] = {rotation->cosine, rotation->sine};
  if (!node_is(rotation->parted, OP_Split) || node_input(rotation->parted, 0) != x) return false;
  if (!type_equal(x->type, match_type(rotation->match)) || x->type.dtype != rotation->type) return false;
  Dim half = rotation->parted->outputs[0]->type.dims[x->type.rank - 1];
  if (!dim_is_constant(half) || !dim_is(x->type.dims[x->type.rank - 1], 2 * half.constant)) return false;
  for (int i = 0; i < 2; i++) {
    Type type = angles[i]->type;
    Doubling doubling = i ? rotation->of_sine : rotation->of_cosine;
    if (type.dtype != x->type.dtype || type.rank == 0 || type.rank > x->type.rank) return false;
    if (!dim_is(type.dims[type.rank - 1], (doubling == ONCE ? 1 : 2) * half.constant)) return false;
  }
  return true;
}

static Value *beside(Match *match, Value *first, Value *second) {
  Type type = first->type;
  Dim dims[MAX_RANK];
  for (uint32_t i = 0; i < type.rank; i++) dims[i] = type.dims[i];
  dims[type.rank - 1] = dim_of(2 * type.dims[type.rank - 1].constant);
  Type both = type_make(match->rewriter->context, type.dtype, dims, type.rank);
  Node *node = EMIT_BEFORE(match, OP_Concat, both, first, second);
  node_set_int(node, "axis", (int64_t)type.rank - 1);
  return node->outputs[0];
}

/* The first half of the features negative. */
static Value *with_signs(Match *match, Value *sine) {
  Dim features = sine->type.dims[sine->type.rank - 1];
  Type type = type_make(match->rewriter->context, sine->type.dtype, &features, 1);
  Tensor *signs = match_tensor(match, type.dtype, type);
  if (!signs) return NULL;
  size_t width = dtype_bytes(type.dtype, 1);
  for (int64_t i = 0; i < features.constant; i++) {
    uint64_t bits = number_encode(type.dtype, 2 * i < features.constant ? -1 : 1);
    copy_bytes((char *)(uintptr_t)signs->data + (size_t)i * width, &bits, width);
  }
  return EMIT_BEFORE(match, OP_Mul, sine->type, sine, match_constant(match, signs))->outputs[0];
}

/* What is made of constants here, constant folding computes. */
static bool spell(Rotation *rotation) {
  Match *match = rotation->match;
  if (!can_be_spelled(rotation)) return false;
  Value *cosine = rotation->cosine, *sine = rotation->sine, *x = rotation->x;
  if (rotation->of_sine == ONCE) {
    cosine = beside(match, cosine, cosine);
    sine = beside(match, EMIT_BEFORE(match, OP_Neg, sine->type, sine)->outputs[0], sine);
  } else {
    sine = with_signs(match, sine);
    if (!sine) return false;
  }
  Node *split = rotation->parted;
  Value *turned = beside(match, split->outputs[1], split->outputs[0]);
  Value *of_cosine = EMIT_BEFORE(match, OP_Mul, x->type, x, cosine)->outputs[0];
  Value *of_sine = EMIT_BEFORE(match, OP_Mul, x->type, turned, sine)->outputs[0];
  EMIT_MATCH(match, OP_Add, of_cosine, of_sine);
  return true;
}

/* ---- the forms ---- */

static bool turns(Rotation *rotation) {
  Value *x = rotation->x;
  rotation->x = bare(rotation->match, x, NULL);
  return type_same_shape(x->type, match_type(rotation->match)) && read_layout(rotation);
}

/* x (cos, cos) + (-b, a) (sin, sin), whose sines can take the sign; with (b, a) it has the form already. */
static bool spell_half_turned(Rotation *rotation) {
  return !rotation->interleaved && rotation->of_sine == IN_HALVES && constant_of(rotation->sine) && spell(rotation);
}

/* The two inputs of a Concat along the last axis. */
static bool read_joined(const Node *node, Value *parts[2]) {
  if (!node || !node_is(node, OP_Concat) || node->input_count != 2) return false;
  if (!is_last_axis(node_int_or(node, "axis", 0), node->outputs[0])) return false;
  parts[0] = node_input(node, 0);
  parts[1] = node_input(node, 1);
  return true;
}

/* Two values that are put beside each other, feature by feature: an axis of 1 at the end of each, and merged. */
static bool read_stacked(Match *match, const Node *merge, Value *parts[2]) {
  Value *stacked = unrounded(match, bare(match, node_input(merge, 0), NULL));
  Type type = merge->outputs[0]->type;
  if (!read_joined(match_take(match, stacked, OP_Concat), parts)) return false;
  if (stacked->type.rank != type.rank + 1 || !same_dims(stacked->type, type, 0, type.rank - 1)) return false;
  for (int i = 0; i < 2; i++) {
    Value *part = unrounded(match, parts[i]);
    Node *apart = part->producer;
    if (!apart || !node_has(apart, RENAMES) || !match_take(match, part, apart->op)) return false;
    parts[i] = node_input(apart, 0);
    if (parts[i]->type.rank != type.rank || !same_dims(parts[i]->type, part->type, 0, type.rank)) return false;
    if (part->type.rank != type.rank + 1 || !dim_is(part->type.dims[type.rank], 1)) return false;
  }
  return true;
}

static bool fuse_parts(Rotation *rotation, Value *const parts[2]) {
  Term first[2], second[2];
  if (!read_sum(rotation, parts[0], first) || !read_sum(rotation, parts[1], second)) return false;
  if (!are_turned(rotation, first, second)) return false;
  if (lacks_operator(rotation->match)) return !rotation->interleaved && spell(rotation);
  return turns(rotation) && emit(rotation);
}

static bool fuse_halves(Match *match) {
  Rotation rotation = {.match = match};
  Value *parts[2];
  return read_joined(match->root, parts) && fuse_parts(&rotation, parts);
}

static bool fuse_neighbours(Match *match) {
  Rotation rotation = {.match = match, .interleaved = true};
  Value *parts[2];
  return read_stacked(match, match->root, parts) && fuse_parts(&rotation, parts);
}

/* (-b, a), or (b, a) where the sines have the sign. */
static bool read_quarter_turn(Rotation *rotation, Value *value) {
  Match *match = rotation->match;
  Value *parts[2];
  bool is_negative = false, is_second_negative = false;
  const Node *node = value->producer;
  rotation->interleaved = node && node_is(node, OP_Reshape);
  if (!node || !match_take(match, value, node->op)) return false;
  if (rotation->interleaved ? !read_stacked(match, node, parts) : !read_joined(node, parts)) return false;
  for (int i = 0; i < 2; i++) {
    parts[i] = unrounded(match, parts[i]);
    parts[i] = bare(match, parts[i], i ? &is_second_negative : &is_negative);
  }
  rotation->of_cosine = rotation->interleaved ? IN_PAIRS : IN_HALVES;
  rotation->of_sine = is_negative ? rotation->of_cosine : OPPOSITE_HALVES;
  if (is_second_negative || (!is_negative && rotation->interleaved)) return false;
  return are_pairs(rotation, parts[1], parts[0]);
}

/* x cos + (-b, a) sin. */
static bool fuse_half_turned(Match *match) {
  Term terms[2];
  for (int i = 0; i < 4; i++) { /* the sum and the product in either order */
    match->node_count = 1;
    Rotation rotation = {.match = match};
    if (!read_sum(&rotation, match->root->outputs[0], terms)) return false;
    if (terms[0].is_negative || terms[1].is_negative) return false;
    const Term *turned = &terms[i & 1], *plain = &terms[1 - (i & 1)];
    rotation.sine = turned->factors[1 - (i >> 1)];
    if (!read_quarter_turn(&rotation, turned->factors[i >> 1])) continue;
    const Value *x = bare(match, rotation.x, NULL);
    if (plain->factors[0] != x && plain->factors[1] != x) continue;
    rotation.cosine = plain->factors[plain->factors[0] == x];
    if (lacks_operator(match)) return spell_half_turned(&rotation);
    return turns(&rotation) && is_double(match, rotation.cosine, rotation.of_cosine, DEEPEST) &&
           is_double(match, rotation.sine, rotation.of_sine, DEEPEST) && emit(&rotation);
  }
  return false;
}

static const FusionRule rules[] = {
    {OP(Concat, ANY(SOURCE)), OP_NONE, fuse_halves},
    {OP(Add, OP(Mul, ANY(SOURCE)), OP(Mul, ANY(SOURCE + 1))), OP_NONE, fuse_half_turned},
    {OP(Reshape, ANY(SOURCE)), OP_NONE, fuse_neighbours},
};

bool fuse_rotary(Model *model) { return fuse_patterns(model, __func__, rules, sizeof rules / sizeof *rules); }
