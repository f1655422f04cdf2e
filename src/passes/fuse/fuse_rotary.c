/* RotaryEmbedding: pairs of features turned by angles, (a, b) to (a cos - b sin, b cos + a sin), where the pairs are
 * the two halves of the features, or neighbours.
 *
 * Heads may stand before the positions or after them: the operator takes the one order over four axes and the other
 * over three, heads and features in one. Cosines and sines come for each element of the batch, or once for all; then
 * the operator wants a number for each position to look them up by. Measured with ONNX Runtime on one core, 2 x 128
 * positions of 8 heads of 64: 33 us against 191 for the single operators.
 */
#include "base/bytes.h"
#include "onnx/facts/schema.h"
#include "passes/fuse/attention.h"
#include "types/numbers.h"

enum { FIRST, SECOND, COSINE, SINE, WHOLE };

typedef struct Rotation {
  Match *match;
  Value *x; /* batch, positions, heads, features; or heads before positions */
  Value *cosine, *sine;
  Node *parted;     /* what takes the pairs apart */
  bool interleaved; /* pairs of neighbours */
  bool twice;       /* cosines and sines are given for both of a pair */
  bool heads_first;
  bool batched; /* cosines and sines differ over the batch */
} Rotation;

/* ---- what is turned ---- */

static bool only_integer(const Value *value, int64_t *number) {
  const Tensor *tensor = constant_of(value);
  if (!tensor || tensor->dtype != DTYPE_INT64 || tensor->size != sizeof *number) return false;
  memcpy(number, tensor->data, sizeof *number);
  return true;
}

static bool is_last_axis(int64_t axis, const Value *value) {
  return axis == -1 || axis == (int64_t)value->type.rank - 1;
}

static bool are_halves(Rotation *rotation, const Value *first, const Value *second) {
  Node *split = first->producer;
  if (!split || !node_is(split, OP_Split) || second->producer != split || split->output_count != 2) return false;
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
  int64_t axis = node_int_or(node, "axis", 0);
  if (!node_is(node, OP_Gather)) return false;
  if ((*source)->type.rank == rank) return is_last_axis(axis, value) && picks_every_second(node, start);
  Node *parted = (*source)->producer; /* ..., features to ..., pairs, 2 */
  if ((*source)->type.rank != rank + 1 || axis != (int64_t)rank || !only_integer(node_input(node, 1), &number))
    return false;
  if (number != start || !dim_is((*source)->type.dims[rank], 2) || !parted || !node_is(parted, OP_Reshape))
    return false;
  Value *whole = node_input(parted, 0);
  bool fits = whole->type.rank == rank && same_dims(whole->type, value->type, 0, rank - 1);
  *source = whole;
  return fits;
}

static bool are_neighbours(Rotation *rotation, const Value *first, const Value *second) {
  Value *other;
  if (!is_every_second(first, 0, &rotation->x) || !is_every_second(second, 1, &other)) return false;
  rotation->parted = first->producer;
  return other == rotation->x && type_equal(first->type, second->type) &&
         dim_is_constant(first->type.dims[first->type.rank - 1]) &&
         dim_is(other->type.dims[other->type.rank - 1], 2 * first->type.dims[first->type.rank - 1].constant);
}

/* The pairs, whichever factors of the products they are. */
static bool find_pairs(Rotation *rotation, bool (*are_pairs)(Rotation *, const Value *, const Value *)) {
  Value **values = rotation->match->values;
  rotation->cosine = values[COSINE];
  rotation->sine = values[SINE];
  if (are_pairs(rotation, values[FIRST], values[SECOND])) return true;
  rotation->cosine = values[FIRST];
  rotation->sine = values[SECOND];
  return are_pairs(rotation, values[COSINE], values[SINE]);
}

/* ---- what it is turned by ---- */

/* Sizes of cosines or sines along the four axes of x. */
static bool read_sizes(const Rotation *rotation, const Value *angles, Dim sizes[4]) {
  Type type = angles->type, x = rotation->x->type;
  if (type.rank == 0 || type.rank > 4) return false;
  for (uint32_t i = 0; i < 4; i++) {
    uint32_t missing = 4 - type.rank;
    sizes[i] = i < missing ? dim_of(1) : type.dims[i - missing];
    if (i < 3 && !dim_is(sizes[i], 1) && !dim_equal(sizes[i], x.dims[i])) return false;
  }
  int64_t features = x.dims[3].constant / (rotation->twice ? 1 : 2);
  return dim_is(sizes[3], features);
}

static bool read_layout(Rotation *rotation) {
  Type x = rotation->x->type;
  Dim cosine[4], sine[4];
  if (x.rank != 4 || x.dtype != DTYPE_FLOAT32 || !dim_is_constant(x.dims[3]) || x.dims[3].constant % 2) return false;
  if (!read_sizes(rotation, rotation->cosine, cosine) || !read_sizes(rotation, rotation->sine, sine)) return false;
  for (int i = 0; i < 4; i++) {
    if (!dim_equal(cosine[i], sine[i])) return false;
  }
  rotation->heads_first = dim_is(cosine[1], 1) && !(dim_is(x.dims[1], 1) && dim_is(cosine[2], 1));
  uint32_t positions = rotation->heads_first ? 2 : 1, heads = 3 - positions;
  if (!dim_equal(cosine[positions], x.dims[positions]) || !dim_is(cosine[heads], 1)) return false;
  if (!rotation->heads_first && !dim_is_constant(x.dims[heads])) return false;
  rotation->batched = dim_equal(cosine[0], x.dims[0]);
  return !rotation->batched || rotation->cosine->type.rank == 4 || dim_is(x.dims[0], 1);
}

/* Cosines that are given for both halves, once: constants are cut, and what was doubled is taken as it was before. */
static const Tensor *half_of_constant(Match *match, const Tensor *whole) {
  Arena *arena = &match->rewriter->context->arena;
  int64_t columns = whole->dims[whole->rank - 1], half = columns / 2;
  size_t bytes = (size_t)half * sizeof(float), rows = whole->size / ((size_t)columns * sizeof(float));
  char *data = arena_new_array(arena, rows * bytes, char);
  for (size_t row = 0; row < rows; row++) {
    const char *from = (const char *)whole->data + row * 2 * bytes;
    if (!same_bytes(from, from + bytes, bytes)) return NULL;
    copy_bytes(data + row * bytes, from, bytes);
  }
  Tensor *tensor = arena_copy(arena, whole, sizeof *whole);
  int64_t *dims = arena_copy(arena, whole->dims, whole->rank * sizeof *dims);
  dims[whole->rank - 1] = half;
  *tensor = (Tensor){.dtype = whole->dtype, .rank = whole->rank, .dims = dims, .data = data, .size = rows * bytes};
  return tensor;
}

enum { DEEPEST = 4 };

/* Can half of the value be told? */
static bool has_equal_halves(Match *match, const Value *value, int depth) {
  const Tensor *constant = constant_of(value);
  if (constant) return constant->dtype == DTYPE_FLOAT32 && constant->rank && half_of_constant(match, constant);
  const Node *node = value->producer;
  if (!node || depth == 0) return false;
  if (node_is(node, OP_Concat)) {
    return node->input_count == 2 && node_input(node, 0) == node_input(node, 1) &&
           is_last_axis(node_int_or(node, "axis", 0), value);
  }
  bool same = node_is(node, OP_Cos) || node_is(node, OP_Sin);
  if (node_is(node, OP_Unsqueeze))
    same = dim_equal(value->type.dims[value->type.rank - 1],
                     node_input(node, 0)->type.dims[node_input(node, 0)->type.rank - 1]);
  return same && has_equal_halves(match, node_input(node, 0), depth - 1);
}

static Type half_type(Match *match, Type type) {
  Dim dims[MAX_RANK];
  for (uint32_t i = 0; i < type.rank; i++) dims[i] = type.dims[i];
  dims[type.rank - 1] = dim_of(type.dims[type.rank - 1].constant / 2);
  return type_make(match->rewriter->context, type.dtype, dims, type.rank);
}

static Value *half_of(Match *match, Value *value) {
  const Tensor *constant = constant_of(value);
  if (constant) return match_constant(match, half_of_constant(match, constant));
  Node *node = value->producer;
  if (node_is(node, OP_Concat)) return node_input(node, 0);
  Value *source = half_of(match, node_input(node, 0));
  Type type = half_type(match, value->type);
  Node *half = node_input(node, 1) ? EMIT_BEFORE(match, node->op, type, source, node_input(node, 1))
                                   : EMIT_BEFORE(match, node->op, type, source);
  rewrite_hand_over(match->rewriter, half, node);
  return half->outputs[0];
}

/* ---- the operator ---- */

static Value *ints(Match *match, const int64_t *numbers, size_t count) {
  return rewrite_constant_ints(match->rewriter, match->root, numbers, count, match->root->origin);
}

/* Over positions whose number is known only at run time, cosines are spread over the batch. */
static bool is_spread(const Rotation *rotation) {
  return !rotation->batched && !dim_is_constant(rotation->x->type.dims[rotation->heads_first ? 2 : 1]);
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
  Value *like = sized_like(rotation, rotation->x->type.dims[0], &axis);
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
  Type type = angles->type, x = rotation->x->type;
  uint32_t positions = type.rank - (rotation->heads_first ? 2 : 3), count = 0;
  int64_t axes[4];
  for (uint32_t i = 0; i + 1 < type.rank; i++) {
    if (i != positions) axes[count++] = i;
  }
  const Dim dims[] = {x.dims[0], type.dims[positions], type.dims[type.rank - 1]};
  Context *context = match->rewriter->context;
  if (count) {
    Type flat = type_make(context, DTYPE_FLOAT32, dims + 1, 2);
    angles = EMIT_BEFORE(match, OP_Squeeze, flat, angles, ints(match, axes, count))->outputs[0];
  }
  Value *shape = batch_shape(rotation, (const int64_t[]){1, 1}, 2);
  return EMIT_BEFORE(match, OP_Expand, type_make(context, DTYPE_FLOAT32, dims, 3), angles, shape)->outputs[0];
}

/* By batch, position and feature, or by position and feature. */
static Value *as_cache(const Rotation *rotation, Value *angles) {
  Match *match = rotation->match;
  Type x = rotation->x->type;
  if (rotation->twice) angles = half_of(match, angles);
  if (is_spread(rotation)) return spread(rotation, angles);
  Dim positions = x.dims[rotation->heads_first ? 2 : 1], features = dim_of(x.dims[3].constant / 2);
  const Dim dims[] = {x.dims[0], positions, features};
  if (!rotation->batched || angles->type.rank != 4) {
    uint32_t first = rotation->batched ? 0 : 1;
    const int64_t numbers[] = {1, dim_is_constant(positions) ? positions.constant : -1, features.constant};
    Type type = type_make(match->rewriter->context, DTYPE_FLOAT32, dims + first, 3 - first);
    return EMIT_BEFORE(match, OP_Reshape, type, angles, ints(match, numbers + first, 3 - first))->outputs[0];
  }
  const int64_t heads = rotation->heads_first ? 1 : 2;
  Type type = type_make(match->rewriter->context, DTYPE_FLOAT32, dims, 3);
  return EMIT_BEFORE(match, OP_Squeeze, type, angles, ints(match, &heads, 1))->outputs[0];
}

/* 0, 1, 2, ... for each element of the batch. */
static Value *position_numbers(const Rotation *rotation) {
  Match *match = rotation->match;
  Context *context = match->rewriter->context;
  Type x = rotation->x->type;
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

static bool emit(Rotation *rotation) {
  Match *match = rotation->match;
  Type x = rotation->x->type;
  Value *inputs[] = {rotation->x, as_cache(rotation, rotation->cosine), as_cache(rotation, rotation->sine), NULL};
  if (!rotation->batched && !is_spread(rotation)) inputs[3] = position_numbers(rotation);
  size_t count = inputs[3] ? 4 : 3;
  Node *node;
  if (rotation->heads_first) {
    node = match_emit(match, OP_RotaryEmbedding, inputs, count, REWRITE_EMITTER(match->rewriter));
  } else {
    int64_t heads = x.dims[2].constant, features = x.dims[3].constant;
    const int64_t merged[] = {0, 0, heads * features}, apart[] = {0, 0, heads, features};
    const Dim dims[] = {x.dims[0], x.dims[1], dim_of(heads * features)};
    Type rows = type_make(match->rewriter->context, DTYPE_FLOAT32, dims, 3);
    inputs[0] = EMIT_BEFORE(match, OP_Reshape, rows, rotation->x, ints(match, merged, 3))->outputs[0];
    node = match_node_before(match, OP_RotaryEmbedding, rows, inputs, count, REWRITE_EMITTER(match->rewriter));
    node_set_int(node, "num_heads", heads);
    for (size_t i = 1; i < match->node_count; i++) rewrite_hand_over(match->rewriter, node, match->nodes[i]);
    EMIT_MATCH(match, OP_Reshape, node->outputs[0], ints(match, apart, 4));
  }
  rewrite_hand_over(match->rewriter, node, rotation->parted);
  if (rotation->interleaved) node_set_int(node, "interleaved", 1);
  return true;
}

static bool turns(Rotation *rotation) {
  return type_equal(rotation->x->type, match_type(rotation->match)) && read_layout(rotation);
}

static bool fuse_halves(Match *match) {
  Rotation rotation = {.match = match};
  if (!is_last_axis(node_int_or(match->root, "axis", 0), match->root->outputs[0])) return false;
  return match->root->input_count == 2 && find_pairs(&rotation, are_halves) && turns(&rotation) && emit(&rotation);
}

/* x cos + (-second, first) sin. */
static bool fuse_half_turned(Match *match) {
  Value **values = match->values;
  Rotation rotation = {.match = match, .twice = true, .sine = values[SINE]};
  if (!are_halves(&rotation, values[FIRST], values[SECOND])) return false;
  rotation.cosine = values[WHOLE] == rotation.x ? values[COSINE] : values[WHOLE];
  if (rotation.x != (values[WHOLE] == rotation.x ? values[WHOLE] : values[COSINE])) return false;
  if (!turns(&rotation) || !has_equal_halves(match, rotation.cosine, DEEPEST)) return false;
  return has_equal_halves(match, rotation.sine, DEEPEST) && emit(&rotation);
}

static bool fuse_neighbours(Match *match) {
  Rotation rotation = {.match = match, .interleaved = true};
  const Value *stacked = node_input(match->root, 0);
  Type type = match_type(match);
  if (stacked->type.rank != type.rank + 1 || !dim_is(stacked->type.dims[type.rank], 2)) return false;
  if (!is_last_axis(node_int_or(stacked->producer, "axis", 0), stacked)) return false;
  return find_pairs(&rotation, are_neighbours) && same_dims(rotation.x->type, stacked->type, 0, type.rank - 1) &&
         turns(&rotation) && emit(&rotation);
}

#define PRODUCT(x, angle) OP(Mul, ANY(x), ANY(angle))
#define TURNED_FIRST OP(Sub, PRODUCT(FIRST, COSINE), PRODUCT(SECOND, SINE))
#define TURNED_SECOND OP(Add, PRODUCT(SECOND, COSINE), PRODUCT(FIRST, SINE))
#define HALF_TURNED OP(Concat, OP(Neg, ANY(SECOND)), ANY(FIRST))

static const FusionRule rules[] = {
    {OP(Concat, TURNED_FIRST, TURNED_SECOND), OP_RotaryEmbedding, fuse_halves},
    {OP(Add, PRODUCT(WHOLE, COSINE), OP(Mul, HALF_TURNED, ANY(SINE))), OP_RotaryEmbedding, fuse_half_turned},
    {OP(Reshape, OP(Concat, OP(Unsqueeze, TURNED_FIRST), OP(Unsqueeze, TURNED_SECOND))), OP_RotaryEmbedding,
     fuse_neighbours},
};

bool fuse_rotary(Model *model) { return fuse_patterns(model, __func__, rules, sizeof rules / sizeof *rules); }
