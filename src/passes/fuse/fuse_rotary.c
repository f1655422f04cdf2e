/* RotaryEmbedding: pairs of features turned by angles, (a, b) to (a cos - b sin, b cos + a sin), where the pairs are
 * the two halves of the features, or neighbours.
 *
 * It is read from the last operator on: each feature is a sum of two products (features.h), whichever way features were
 * taken apart, exchanged, given signs and put together. Halves may be widened before the products and rounded after
 * them: what is computed in float32 is no less precise. Heads may stand before the positions or after them: the
 * operator takes the one order over four axes and the other over three, heads and features in one. Cosines and sines
 * come for each element of the batch, or once for all; then the operator wants a number for each position to look them
 * up by. Measured with ONNX Runtime on one core, 2 x 128 positions of 8 heads of 64: 33 us against 191 for the single
 * operators.
 *
 * At opsets without the operator, halves are written as x (cos, cos) + (b, a) (-sin, sin): five operators instead of
 * eight, 194 us against 261 there.
 */
#include "base/bytes.h"
#include "onnx/facts/schema.h"
#include "passes/analysis/features.h"
#include "passes/fuse/attention.h"
#include "passes/fuse/rotary_tables.h"
#include "target/target.h"
#include "types/numbers.h"

enum { SOURCE, TURNED };
enum { DEEPEST = 6 /* operators, one behind the other, for one question */ };

/* A value, or how it is made of another; then the value only has its type. */
typedef struct Source {
  Value *value, *base;
  Type merged; /* of the base, its features in one axis */
  int64_t first;
} Source;

typedef struct Rotation {
  Match *match;
  const FeatureReader *reader;
  Source sources[3]; /* x, cosines, sines */
  Value *x;          /* batch, positions, heads, features; or heads before positions; or without a batch */
  Type view;         /* of x with a batch, of 1 where it has none */
  DType type;        /* that it is computed in */
  Value *cosine, *sine;
  Node *parted;     /* the Split of x into halves; NULL: there is none */
  bool interleaved; /* pairs of neighbours */
  Doubling of_cosine, of_sine;
  bool heads_first;
  bool batched; /* cosines and sines differ over the batch */
} Rotation;

static Value *ints(Match *match, const int64_t *numbers, size_t count) {
  return rewrite_constant_ints(match->rewriter, match->root, numbers, count, match->root->origin);
}

/* ---- reading ---- */

/* Before it was widened. What the match alone reads becomes part of it. */
static Value *unwidened(Match *match, Value *value) {
  for (Node *node;
       (node = value->producer) && is_cast_of_half(node) && dtype_is_half(node_input(node, 0)->type.dtype);) {
    match_take(match, value, node->op);
    value = node_input(node, 0);
  }
  return value;
}

/* The features of the root, each a turned one of x; and the tables that they are turned by. */
typedef struct Turn {
  const FeatureReader *reader;
  const Features *features;
  size_t half;
  uint16_t x, first; /* x by the number of its base, and the first of its features */
  bool interleaved;
} Turn;

/* Of a product with x the element of x and the other; false when it is none. */
static bool read_factors(const Product *product, uint16_t x, Element *own, Element *other) {
  if (product->count != 2) return false;
  bool is_second = product->factors[1].base == x;
  if (is_second == (product->factors[0].base == x)) return false;
  *own = product->factors[is_second];
  *other = product->factors[!is_second];
  return true;
}

static bool is_product_with(const Features *features, uint16_t x) {
  Element own, other;
  for (size_t i = 0; i < features->count; i++) {
    const Feature *feature = &features->all[i];
    if (feature->count != 2 || !read_factors(&feature->products[0], x, &own, &other) ||
        !read_factors(&feature->products[1], x, &own, &other))
      return false;
  }
  return true;
}

/* x is what all products have in common. */
static bool find_x(Turn *turn) {
  const Features *features = turn->features;
  Element own = {0}, other;
  for (int i = 0; i < 2; i++) {
    turn->x = features->all[0].products[0].factors[i].base;
    if (is_product_with(features, turn->x)) break;
    if (i == 1) return false;
  }
  turn->first = UINT16_MAX;
  for (size_t i = 0; i < 2 * features->count; i++) {
    read_factors(&features->all[i / 2].products[i % 2], turn->x, &own, &other);
    if (own.index < turn->first) turn->first = own.index;
  }
  read_factors(&features->all[0].products[0], turn->x, &own, &other);
  if (own.index == turn->first) read_factors(&features->all[0].products[1], turn->x, &own, &other);
  turn->interleaved = own.index == turn->first + 1 && turn->half > 1;
  return true;
}

/* The first or the second feature of a pair. */
static size_t feature_of(const Turn *turn, size_t pair, size_t which) {
  return turn->interleaved ? 2 * pair + which : pair + which * turn->half;
}

/* What the pairs are multiplied with. */
typedef struct Table {
  Element elements[2][MOST_FEATURES / 2]; /* for the first features of all pairs, and for the second ones */
  bool is_negative[2];                    /* the same for all of them */
} Table;

/* Each feature times its cosine, and the other of its pair times a sine. */
static bool read_tables(const Turn *turn, Table *cosine, Table *sine) {
  Element own, other;
  for (size_t i = 0; i < 2 * turn->half; i++) {
    size_t pair = i / 2, which = i % 2;
    const Feature *feature = &turn->features->all[feature_of(turn, pair, which)];
    bool is_found[2] = {false, false};
    for (size_t k = 0; k < 2; k++) {
      const Product *product = &feature->products[k];
      if (!read_factors(product, turn->x, &own, &other)) return false;
      bool is_sine = own.index == turn->first + feature_of(turn, pair, 1 - which);
      if (!is_sine && own.index != turn->first + feature_of(turn, pair, which)) return false;
      if (is_found[is_sine]) return false;
      is_found[is_sine] = true;
      Table *table = is_sine ? sine : cosine;
      table->elements[which][pair] = other;
      if (pair == 0) table->is_negative[which] = product->is_negative;
      if (product->is_negative != table->is_negative[which]) return false;
    }
  }
  return true;
}

static bool same_elements(const Element *a, const Element *b, size_t count) {
  return same_bytes(a, b, count * sizeof *a);
}

/* The value that has these features and no others along its last axis; NULL: none was read. */
static Value *find_value(const FeatureReader *reader, const Element *elements, size_t count) {
  for (size_t i = reader->read_count; i-- > 0;) {
    const Features *read = &reader->read[i];
    bool is_it = read->axes == 1 && read->count == count && read->reading == READ_ELEMENTS;
    for (size_t k = 0; k < count && is_it; k++) {
      const Product *product = &read->all[k].products[0];
      is_it = read->all[k].count == 1 && product->count == 1 && !product->is_negative &&
              same_elements(product->factors, &elements[k], 1);
    }
    if (is_it) return read->value;
  }
  return NULL;
}

/* Or it can be made of a base: of features with several axes, which become one, or of some that stand together. */
static bool plan_source(Match *match, const FeatureReader *reader, const Element *elements, size_t count,
                        Source *source) {
  Context *context = match->rewriter->context;
  const Features *base = &reader->read[reader->bases[elements[0].base]];
  Dim dims[MAX_RANK];
  *source = (Source){.value = find_value(reader, elements, count)};
  if (source->value) return true;
  for (size_t i = 0; i < count; i++) {
    if (elements[i].base != elements[0].base || elements[i].index != elements[0].index + i) return false;
  }
  Type type = base->value->type;
  uint32_t rank = type.rank - base->axes + 1;
  if (rank > MAX_RANK) return false;
  for (uint32_t i = 0; i + 1 < rank; i++) dims[i] = type.dims[i];
  dims[rank - 1] = dim_of((int64_t)base->count);
  source->base = base->value;
  source->first = elements[0].index;
  source->merged = type_make(context, type.dtype, dims, rank);
  dims[rank - 1] = dim_of((int64_t)count);
  source->value = arena_new(&context->arena, Value);
  *source->value = (Value){.type = type_make(context, type.dtype, dims, rank)};
  return true;
}

static Value *made(Match *match, const Source *source) {
  Value *value = source->base;
  Type type = source->value->type;
  if (!value) return source->value;
  if (!type_same_shape(value->type, source->merged)) {
    int64_t sizes[MAX_RANK] = {0};
    sizes[type.rank - 1] = source->merged.dims[type.rank - 1].constant;
    value = EMIT_BEFORE(match, OP_Reshape, source->merged, value, ints(match, sizes, type.rank))->outputs[0];
  }
  if (type_same_shape(value->type, type)) return value;
  const int64_t first = source->first, end = first + type.dims[type.rank - 1].constant, axis = (int64_t)type.rank - 1;
  return EMIT_BEFORE(match, OP_Slice, type, value, ints(match, &first, 1), ints(match, &end, 1), ints(match, &axis, 1))
      ->outputs[0];
}

/* The numbers once, or a value that holds them twice. */
static bool plan_table(Match *match, const Turn *turn, const Table *table, Source *source, Doubling *doubling) {
  Element all[MOST_FEATURES];
  *doubling = ONCE;
  if (same_elements(table->elements[0], table->elements[1], turn->half))
    return plan_source(match, turn->reader, table->elements[0], turn->half, source);
  *doubling = turn->interleaved ? IN_PAIRS : IN_HALVES;
  for (size_t i = 0; i < 2 * turn->half; i++) all[feature_of(turn, i / 2, i % 2)] = table->elements[i % 2][i / 2];
  return plan_source(match, turn->reader, all, 2 * turn->half, source) && !source->base;
}

static bool plan_tables(Rotation *rotation, const Turn *turn) {
  Match *match = rotation->match;
  Arena *arena = &match->rewriter->context->arena;
  Table *cosine = arena_new(arena, Table), *sine = arena_new(arena, Table);
  if (!read_tables(turn, cosine, sine) || cosine->is_negative[0] || cosine->is_negative[1]) return false;
  if (sine->is_negative[1] || !plan_table(match, turn, cosine, &rotation->sources[1], &rotation->of_cosine) ||
      !plan_table(match, turn, sine, &rotation->sources[2], &rotation->of_sine))
    return false;
  if (!sine->is_negative[0]) {
    if (rotation->of_sine == ONCE) return false;
    rotation->of_sine = turn->interleaved ? OPPOSITE_PAIRS : OPPOSITE_HALVES;
  }
  return true;
}

static bool has_products(const Features *features) {
  for (size_t i = 0; i < features->count; i++) {
    if (features->all[i].count == 2 || features->all[i].products[0].count == 2) return true;
  }
  return false;
}

/* Sums and products are of no use to others, and all of one type. What only moves elements may be. */
static bool take_operators(Rotation *rotation) {
  Match *match = rotation->match;
  const FeatureReader *reader = rotation->reader;
  for (size_t i = 0; i < reader->read_count; i++) {
    const Features *read = &reader->read[i];
    const Node *node = read->value->producer;
    if (read->is_base) continue;
    bool is_taken = node == match->root || match_take(match, read->value, node->op);
    if (!has_products(read)) continue;
    if (!is_taken) return false;
    if (!node_is(node, OP_Mul) || read->all[0].products[0].count != 2) continue;
    DType dtype = read->value->type.dtype;
    if (rotation->type != DTYPE_NONE && rotation->type != dtype) return false;
    rotation->type = dtype;
  }
  return true;
}

static Node *split_of(const Value *x) {
  for (const Use *use = x->uses; use; use = use->next) {
    Node *node = use->node;
    bool is_split = node && node_is(node, OP_Split) && node->output_count == 2;
    if (is_split && is_last_axis(node_int_or(node, "axis", 0), x)) return node;
  }
  return NULL;
}

/* Not every axis of size 2 is one of pairs: the features that it is merged into come next. */
static bool is_merged_next(const Value *value) {
  const Node *next = value_only_user(value);
  if (!next || !node_has(next, RENAMES)) return false;
  Type type = value->type, merged = next->outputs[0]->type;
  return merged.dtype != DTYPE_NONE && merged.rank > 0 &&
         !dim_equal(merged.dims[merged.rank - 1], type.dims[type.rank - 1]);
}

static bool only_moves(const Node *node) {
  return node_moves_all(node) || node_is(node, OP_Slice) || node_is(node, OP_Gather) || node_is(node, OP_Neg) ||
         is_cast_of_half(node);
}

/* A cheap look: a sum of a product, moved and joined. */
static bool may_be_turned(const Value *value, bool is_added, int depth) {
  const Node *node = value->producer;
  if (!node || depth == 0) return false;
  if (node_is(node, OP_Mul)) return is_added;
  bool adds = node_is(node, OP_Add) || node_is(node, OP_Sub) || node_is(node, OP_ReduceSum);
  if (adds) return !is_added && may_be_turned(node_input(node, 0), true, depth - 1);
  if (only_moves(node)) return may_be_turned(node_input(node, 0), is_added, depth - 1);
  if (!node_is(node, OP_Concat) || node->input_count != 2) return false;
  return may_be_turned(node_input(node, 1), is_added, depth - 1) ||
         may_be_turned(node_input(node, 0), is_added, depth - 1);
}

static bool read_rotation(Rotation *rotation, FeatureReader *reader) {
  Match *match = rotation->match;
  Value *value = match->root->outputs[0];
  const Features *features = read_features(reader, value, 1, READ_SUMS);
  Turn turn = {.reader = reader, .features = features};
  Element all[MOST_FEATURES];
  if (!features || features->is_base || features->count % 2 || features->all[0].count != 2) return false;
  turn.half = features->count / 2;
  rotation->reader = reader;
  if (!find_x(&turn) || turn.first + features->count > UINT16_MAX || !plan_tables(rotation, &turn)) return false;
  for (size_t i = 0; i < features->count; i++) all[i] = (Element){turn.x, (uint16_t)(turn.first + i)};
  if (!plan_source(match, reader, all, features->count, &rotation->sources[0])) return false;
  if (!take_operators(rotation)) return false;
  rotation->interleaved = turn.interleaved;
  rotation->x = rotation->sources[0].value;
  rotation->cosine = rotation->sources[1].value;
  rotation->sine = rotation->sources[2].value;
  rotation->parted = rotation->sources[0].base ? NULL : split_of(rotation->x);
  return rotation->type != DTYPE_NONE;
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

/* ---- the operator ---- */

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
  if (rotation->sources[0].base) rotation->x = made(match, &rotation->sources[0]);
  if (rotation->sources[1].base) rotation->cosine = made(match, &rotation->sources[1]);
  if (rotation->sources[2].base) rotation->sine = made(match, &rotation->sources[2]);
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
  for (size_t i = 0; i < rotation->reader->read_count; i++) {
    const Features *read = &rotation->reader->read[i];
    if (!read->is_base && !match_has(match, read->value->producer))
      rewrite_hand_over(match->rewriter, node, read->value->producer);
  }
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
  if (!rotation->parted || rotation->interleaved) return false;
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

/* x (cos, cos) + (-b, a) (sin, sin) takes the sign into sines that are known; with (b, a) it has the form already. */
static bool may_be_spelled(const Rotation *rotation) {
  if (node_is(rotation->match->root, OP_Concat)) return true;
  return rotation->of_sine == IN_HALVES && constant_of(rotation->sine);
}

static bool fuse_turned(Match *match) {
  Rotation rotation = {.match = match};
  FeatureReader reader = {.context = match->rewriter->context};
  Type type = match_type(match);
  const Value *value = match->root->outputs[0];
  if (type.rank < 3 || type.rank > 4 || !may_be_turned(value, false, DEEPEST) || is_merged_next(value)) return false;
  if (!read_rotation(&rotation, &reader)) return false;
  if (lacks_operator(match)) return may_be_spelled(&rotation) && spell(&rotation);
  Value *x = rotation.x;
  rotation.x = unwidened(match, x);
  if (!type_same_shape(x->type, type) || !read_layout(&rotation)) return false;
  if (rotation.of_cosine != ONCE && !is_double(match, rotation.cosine, rotation.of_cosine, DEEPEST)) return false;
  if (rotation.of_sine != ONCE && !is_double(match, rotation.sine, rotation.of_sine, DEEPEST)) return false;
  return emit(&rotation);
}

/* Features that are not turned, joined to both halves of those that are: the halves are joined first. */
static bool fuse_turned_part(Match *match) {
  Node *root = match->root;
  Type type = match_type(match);
  if (root->input_count != 3 || !is_last_axis(node_int_or(root, "axis", 0), root->outputs[0])) return false;
  if (type.rank < 3 || type.rank > 4 || lacks_operator(match)) return false;
  uint32_t first = may_be_turned(node_input(root, 0), false, DEEPEST) ? 0 : 1;
  Value *parts[] = {node_input(root, 0), node_input(root, 1), node_input(root, 2)};
  Type half = parts[first]->type;
  if (!may_be_turned(parts[first], false, DEEPEST) || !may_be_turned(parts[first + 1], false, DEEPEST)) return false;
  if (half.rank != type.rank || !type_equal(half, parts[first + 1]->type)) return false;
  if (!dim_is_constant(half.dims[type.rank - 1])) return false;
  Value *both = beside(match, parts[first], parts[first + 1]);
  Value *rest = parts[first ? 0 : 2];
  for (uint32_t i = 0; i < 3; i++) use_set(&root->inputs[i], both); /* the parts are for the inner match alone */
  Match inner = {.rewriter = match->rewriter, .rule = match->rule, .root = both->producer, .node_count = 1};
  inner.nodes[0] = both->producer;
  inner.values[SOURCE] = parts[first];
  bool is_turned = fuse_turned(&inner);
  if (!is_turned) {
    for (uint32_t i = 0; i < 3; i++) use_set(&root->inputs[i], parts[i]);
    node_remove(both->producer);
    return false;
  }
  Value *turned = node_input(root, 0), *inputs[] = {first ? rest : turned, first ? turned : rest};
  Node *joined = match_emit(match, OP_Concat, inputs, 2, REWRITE_EMITTER(match->rewriter));
  node_set_int(joined, "axis", (int64_t)type.rank - 1);
  return true;
}

/* The rest of the features goes through the operator as it is. */
static bool fuse_rest(Match *match) {
  Node *root = match->root, *turn = match->values[TURNED]->producer;
  const Node *split = match->values[SOURCE]->producer;
  Type type = match_type(match), part = match->values[SOURCE]->type;
  if (root->input_count != 2 || node_input(root, 0) != match->values[TURNED]) return false;
  if (type.rank != 4 || part.rank != 4) return false;
  if (!split || !node_is(split, OP_Split) || split->output_count != 2 || node_int_or(turn, "rotary_embedding_dim", 0))
    return false;
  Value *whole = node_input(split, 0);
  if (split->outputs[0] != match->values[SOURCE] || split->outputs[1] != node_input(root, 1)) return false;
  if (!type_equal(whole->type, type) || !is_last_axis(node_int_or(split, "axis", 0), whole)) return false;
  if (!is_last_axis(node_int_or(root, "axis", 0), whole) || !dim_is_constant(part.dims[3])) return false;
  if (turn->input_count > 4 || value_use_count(split->outputs[0]) != 1 || value_use_count(split->outputs[1]) != 1)
    return false;
  Value *inputs[4] = {whole};
  for (uint32_t i = 1; i < turn->input_count; i++) inputs[i] = node_input(turn, i);
  Node *node = match_emit(match, OP_RotaryEmbedding, inputs, turn->input_count, REWRITE_EMITTER(match->rewriter));
  node_copy_attributes(node, turn);
  node_set_int(node, "rotary_embedding_dim", part.dims[3].constant);
  rewrite_hand_over(match->rewriter, node, split->outputs[0]->producer);
  return true;
}

static const FusionRule rules[] = {
    {OP(Concat, OP_AT(TURNED, RotaryEmbedding, ANY(SOURCE))), OP_NONE, fuse_rest},
    {OP(Concat, ANY(SOURCE)), OP_NONE, fuse_turned_part},
    {OP(Concat, ANY(SOURCE)), OP_NONE, fuse_turned},
    {OP(Add, ANY(SOURCE), ANY(TURNED)), OP_NONE, fuse_turned},
    {OP(Reshape, ANY(SOURCE)), OP_NONE, fuse_turned},
    {OP(ReduceSum, ANY(SOURCE)), OP_NONE, fuse_turned},
    {OP(Gather, ANY(SOURCE)), OP_NONE, fuse_turned},
};

bool fuse_rotary(Model *model) { return fuse_patterns(model, __func__, rules, sizeof rules / sizeof *rules); }
