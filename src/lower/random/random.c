/* Random numbers: the threefry2x32 hash, bit by bit as JAX has it. A key is one uint64 (keys.h), its first word in the
 * low half.
 */
#include "lower/random/random.h"

#include "lower/random/keys.h"
#include "onnx/facts/schema.h"
#include "onnx/graph/copy.h"

Value *emit_shift(Lowering *l, Here here, const char *direction, Value *x, Value *by) {
  Value *result = emit_value(l, here, OP_BitShift, x->type, VALUES(x, by), 2);
  node_set_string(result->producer, "direction", direction);
  return result;
}

Value *join_words(Lowering *l, Value *low, Value *high) {
  high = cast_to(l, high, DTYPE_UINT64);
  high = EMIT_SHIFT(l, "LEFT", high, constant_integer(l, DTYPE_UINT64, 32));
  return low ? EMIT_MATH(l, OP_Add, high, cast_to(l, low, DTYPE_UINT64)) : high;
}

Value *low_word(Lowering *l, Value *x) { return cast_to(l, x, DTYPE_UINT32); }

Value *high_word(Lowering *l, Value *x) {
  return low_word(l, EMIT_SHIFT(l, "RIGHT", x, constant_integer(l, DTYPE_UINT64, 32)));
}

/* Four rounds of the hash; the key's words are mixed in afterwards, another pair each time. */
enum {
  X1,
  X2,
  KEY_A,
  KEY_B,
  KEY_C,
  STATES,
  LEFT_SHIFTS = STATES,
  RIGHT_SHIFTS = LEFT_SHIFTS + 4,
  STEP = RIGHT_SHIFTS + 4,
  INPUTS,
  GROUPS = 5 /* of four rounds */
};

/* What an input behind the states is for a group of rounds. */
static uint32_t round_word(int input, int group) {
  static const uint32_t rotations[4][GROUPS] = {
      {13, 17, 13, 17, 13}, {15, 29, 15, 29, 15}, {26, 16, 26, 16, 26}, {6, 24, 6, 24, 6}};
  if (input < RIGHT_SHIFTS) return rotations[input - LEFT_SHIFTS][group];
  return input < STEP ? 32 - rotations[input - RIGHT_SHIFTS][group] : (uint32_t)group + 1;
}

static Value *words_of_groups(Lowering *l, int input) {
  static const int64_t count = GROUPS;
  uint32_t words[GROUPS];
  for (int group = 0; group < GROUPS; group++) words[group] = round_word(input, group);
  return constant(l, tensor_new(l, DTYPE_UINT32, &count, 1, words, sizeof words));
}

static Graph *threefry_rounds(Lowering *l, Value *const *outside) {
  Graph *outer = subgraph_begin(l, "threefry_rounds");
  Value *in[INPUTS];
  for (int i = 0; i < INPUTS; i++) {
    in[i] = graph_input(l->graph, i < STATES ? outside[i]->type : type_scalar(DTYPE_UINT32), NULL);
  }
  Value *x1 = in[X1], *x2 = in[X2];
  for (int round = 0; round < 4; round++) {
    x1 = EMIT_MATH(l, OP_Add, x1, x2);
    Value *left = EMIT_SHIFT(l, "LEFT", x2, in[LEFT_SHIFTS + round]);
    Value *right = EMIT_SHIFT(l, "RIGHT", x2, in[RIGHT_SHIFTS + round]);
    x2 = EMIT_MATH(l, OP_BitwiseXor, EMIT_MATH(l, OP_BitwiseOr, left, right), x1);
  }
  subgraph_output(l, EMIT_MATH(l, OP_Add, x1, in[KEY_B]));
  subgraph_output(l, EMIT_MATH(l, OP_Add, x2, EMIT_MATH(l, OP_Add, in[KEY_C], in[STEP])));
  subgraph_output(l, in[KEY_B]);
  subgraph_output(l, in[KEY_C]);
  subgraph_output(l, in[KEY_A]);
  return subgraph_end(l, outer);
}

void require_bitwise(Lowering *l) {
  if (schema_version(OP_BitwiseXor, l->options->opset)) return;
  unsupported(l, "random numbers use BitwiseXor, which needs opset 18 or later");
}

/* Of a few numbers the hash takes 33 us with its rounds written out and 45 by Scan (ONNX Runtime 1.31 on one core); of
 * many the work counts and not the step. */
static bool is_small(Type type) {
  enum { FEW_NUMBERS = 256 };
  int64_t count;
  return type_count(type, &count) && count <= FEW_NUMBERS;
}

static void hash_written_out(Lowering *l, Graph *rounds, Value *const *in, Value **y) {
  Value *state[STATES];
  memcpy(state, in, sizeof state);
  for (int group = 0; group < GROUPS; group++) {
    Map copies = {0};
    for (int i = 0; i < INPUTS; i++) {
      Value *given = i < STATES ? state[i] : constant_integer(l, DTYPE_UINT32, round_word(i, group));
      *map_slot_pointer(l->context, &copies, rounds->inputs.items[i]) = given;
    }
    copy_nodes(rounds, l->graph, NULL, &copies);
    for (int i = 0; i < STATES; i++) state[i] = copy_of(&copies, rounds->outputs.items[i]->value);
  }
  release_nodes(rounds);
  y[0] = state[X1];
  y[1] = state[X2];
}

void threefry(Lowering *l, Type type, Value *const *key, Value *const *x, Value **y) {
  require_bitwise(l);
  Value *mixed = EMIT_MATH(l, OP_BitwiseXor, EMIT_MATH(l, OP_BitwiseXor, key[0], key[1]),
                           constant_integer(l, DTYPE_UINT32, 0x1BD11BDA));
  Value *x1 = x[0] ? EMIT_MATH(l, OP_Add, x[0], key[0]) : key[0], *x2 = EMIT_MATH(l, OP_Add, x[1], key[1]);
  Value *in[INPUTS] = {expand_to(l, x1, type.dims, type.rank), expand_to(l, x2, type.dims, type.rank), key[0], key[1],
                       mixed};
  Graph *rounds = threefry_rounds(l, in);
  if (is_small(type)) {
    hash_written_out(l, rounds, in, y);
    return;
  }
  for (int i = STATES; i < INPUTS; i++) in[i] = words_of_groups(l, i);
  Type types[STATES];
  for (int i = 0; i < STATES; i++) types[i] = in[i]->type;
  Node *node = emit_node(l, HERE, OP_Scan, types, STATES, in, INPUTS);
  node_set_graph(node, "body", rounds);
  node_set_int(node, "num_scan_inputs", INPUTS - STATES);
  y[0] = node->outputs[X1];
  y[1] = node->outputs[X2];
}

/* 0, 1, 2, … in the shape: the low words, and the high ones or NULL when all are 0. */
static void count_elements(Lowering *l, const Dim *dims, uint32_t rank, Value **words) {
  Dim count = dim_of(1);
  for (uint32_t i = 0; i < rank; i++) count = dim_multiply(l->context, count, dims[i]);
  bool large = dim_is_constant(count) && count.constant >> 32;
  Value *zero = constant_integer(l, DTYPE_INT64, 0), *one = constant_integer(l, DTYPE_INT64, 1);
  Type row = type_make(l->context, DTYPE_INT64, &count, 1);
  Value *numbers = EMIT(l, OP_Range, row, zero, dimension_scalar(l, count, DTYPE_INT64), one);
  numbers = reshape_to(l, numbers, dims, rank);
  words[0] = large ? high_word(l, cast_to(l, numbers, DTYPE_UINT64)) : NULL;
  words[1] = cast_to(l, numbers, DTYPE_UINT32);
}

/* The hashes of 0, 1, 2, … in the shape, for each key. */
static void hash_counts(Lowering *l, Value *key, const Dim *shape, uint32_t rank, Value **y) {
  Dim dims[MAX_RANK];
  int64_t axes[MAX_RANK];
  uint32_t outer = key->type.rank;
  rely_on(l, (uint64_t)outer + rank < MAX_RANK);
  for (uint32_t i = 0; i < outer; i++) dims[i] = key->type.dims[i];
  for (uint32_t i = 0; i < rank; i++) {
    dims[outer + i] = shape[i];
    axes[i] = outer + i;
  }
  if (outer) key = unsqueeze_at(l, key, axes, rank);
  Value *words[] = {low_word(l, key), high_word(l, key)}, *counts[2];
  count_elements(l, shape, rank, counts);
  threefry(l, type_make(l->context, DTYPE_UINT32, dims, outer + rank), words, counts, y);
}

static void require_key(Lowering *l, Type type) {
  if (type.dtype != DTYPE_UINT64)
    unsupported(l, "its keys are not threefry2x32 keys, the only kind that is supported here");
  if (l->options->sequential_bits) {
    unsupported(l, "JAX generates different bits with jax_threefry_partitionable=False; turn it on to export");
  }
}

static Value *key_input(Lowering *l) {
  require_key(l, input_type(l, 0));
  return input(l, 0);
}

static void lower_random_bits(Lowering *l) {
  size_t rank;
  Value *key = key_input(l), *y[2], *bits;
  const Dim *shape = param_dims(l->context, param_get(l->context, l->equation, "shape"), &rank);
  hash_counts(l, key, shape, (uint32_t)rank, y);
  if (output_type(l, 0).dtype == DTYPE_UINT64) bits = join_words(l, y[1], y[0]);
  else bits = cast_to(l, EMIT_MATH(l, OP_BitwiseXor, y[0], y[1]), output_type(l, 0).dtype);
  bind(l, 0, bits);
}

static void lower_random_split(Lowering *l) {
  size_t rank;
  Value *key = key_input(l), *y[2];
  const Dim *shape = param_dims(l->context, param_get(l->context, l->equation, "shape"), &rank);
  hash_counts(l, key, shape, (uint32_t)rank, y);
  bind(l, 0, join_words(l, y[0], y[1]));
}

static void lower_random_fold_in(Lowering *l) {
  Value *key = key_input(l), *y[2];
  Value *words[] = {low_word(l, key), high_word(l, key)}, *x[] = {NULL, cast_to(l, input(l, 1), DTYPE_UINT32)};
  threefry(l, type_with(output_type(l, 0), DTYPE_UINT32), words, x, y);
  bind(l, 0, join_words(l, y[0], y[1]));
}

/* The seed's high word, which 32 bits do not have, is the first. */
static void lower_random_seed(Lowering *l) {
  require_key(l, output_type(l, 0));
  Value *seed = input(l, 0);
  bool wide = dtype_bits(seed->type.dtype) == 64;
  if (!wide && seed->type.dtype != DTYPE_UINT32) {
    bool sign = dtype_kind(seed->type.dtype) == KIND_INT;
    seed = cast_to(l, cast_to(l, seed, sign ? DTYPE_INT32 : DTYPE_UINT32), DTYPE_UINT32);
  }
  if (wide) seed = cast_to(l, seed, DTYPE_UINT64);
  bind(l, 0, wide ? join_words(l, high_word(l, seed), low_word(l, seed)) : join_words(l, NULL, seed));
}

/* Keys that are not threefry2x32 keys are their words. */
static void lower_random_wrap(Lowering *l) {
  if (output_type(l, 0).dtype != DTYPE_UINT32) require_key(l, output_type(l, 0));
  bind(l, 0, output_type(l, 0).dtype == DTYPE_UINT32 ? input(l, 0) : key_from_words(l, input(l, 0)));
}

static void lower_random_unwrap(Lowering *l) {
  bind(l, 0, input_type(l, 0).dtype == DTYPE_UINT32 ? input(l, 0) : words_from_key(l, key_input(l)));
}

/* Of keys of any kind, also of those that are still words. */
static void lower_random_clone(Lowering *l) { bind(l, 0, input(l, 0)); }

static void lower_threefry2x32(Lowering *l) {
  Value *key[] = {input(l, 0), input(l, 1)}, *x[] = {input(l, 2), input(l, 3)}, *y[2];
  threefry(l, output_type(l, 0), key, x, y);
  bind(l, 0, y[0]);
  bind(l, 1, y[1]);
}

static void lower_iota_2x32_shape(Lowering *l) {
  Value *words[2];
  Type type = output_type(l, 0);
  count_elements(l, type.dims, type.rank, words);
  bind(l, 0, words[0] ? words[0] : filled(l, type, tensor_scalar(l, type.dtype, 0)));
  bind(l, 1, words[1]);
}

/* XLA promises no sequence here, so ONNX's own generator does as well. */
static void lower_rng_uniform(Lowering *l) {
  Value *low = wide_input(l, 0), *high = wide_input(l, 1);
  DType dtype = output_type(l, 0).dtype, compute = dtype_is_float(dtype) ? low->type.dtype : DTYPE_FLOAT64;
  Type type = type_with(output_type(l, 0), compute);
  Value *base = filled(l, type, tensor_scalar(l, compute, 0));
  Value *unit = EMIT(l, OP_RandomUniformLike, type, base);
  low = cast_to(l, low, compute);
  Value *span = EMIT_MATH(l, OP_Sub, cast_to(l, high, compute), low);
  Value *result = EMIT_MATH(l, OP_Add, EMIT_MATH(l, OP_Mul, unit, span), low);
  bind_narrow(l, dtype_is_float(dtype) ? result : EMIT_MATH(l, OP_Floor, result));
}

/* clang-format off */
const Plugin random_plugins[] = {
    PLUGIN("random_bits", lower_random_bits, OP_Scan),
    PLUGIN("random_split", lower_random_split, OP_Scan),
    PLUGIN("random_fold_in", lower_random_fold_in, OP_Scan),
    PLUGIN("random_seed", lower_random_seed, OP_BitShift),
    PLUGIN("random_wrap", lower_random_wrap, OP_MatMul),
    PLUGIN("random_unwrap", lower_random_unwrap, OP_BitShift),
    PLUGIN("random_clone", lower_random_clone),
    PLUGIN("threefry2x32", lower_threefry2x32, OP_Scan),
    PLUGIN("iota_2x32_shape", lower_iota_2x32_shape, OP_Range),
    PLUGIN("rng_bit_generator", lower_rng_bit_generator, OP_Loop),
    PLUGIN("rng_uniform", lower_rng_uniform, OP_RandomUniformLike),
    {0},
};
/* clang-format on */
