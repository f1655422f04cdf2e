/* rng_bit_generator: bits from a state of two uint64, a key and a counter, by the algorithms that XLA has on a CPU.
 *
 * Philox4x32 takes the counter in its low half and the key once more in its high half, and gives four words a count;
 * threefry2x32 gives two. The counter moves on by as many counts as were taken.
 */
#include "lower/control/loops.h"
#include "lower/random/keys.h"
#include "lower/random/random.h"

enum { ALGORITHM_DEFAULT, ALGORITHM_THREEFRY, ALGORITHM_PHILOX };

typedef struct Generator {
  Value *key, *counter; /* uint64, rank 0 */
  bool state_is_words;  /* the state comes and goes as four uint32 */
} Generator;

static Generator read_state(Lowering *l) {
  Value *state = input(l, 0);
  Generator generator = {.state_is_words = state->type.dtype == DTYPE_UINT32};
  if (generator.state_is_words) {
    Dim pairs[] = {dim_of(2), dim_of(2)};
    state = key_from_words(l, reshape_to(l, state, pairs, 2));
  }
  generator.key = EMIT(l, OP_Gather, type_scalar(DTYPE_UINT64), state, constant_integer(l, DTYPE_INT64, 0));
  generator.counter = EMIT(l, OP_Gather, type_scalar(DTYPE_UINT64), state, constant_integer(l, DTYPE_INT64, 1));
  return generator;
}

static void bind_state(Lowering *l, const Generator *generator, Dim counts) {
  static const int64_t leading = 0;
  Value *next = EMIT_MATH(l, OP_Add, generator->counter, dimension_scalar(l, counts, DTYPE_UINT64));
  Value *parts[] = {unsqueeze_at(l, generator->key, &leading, 1), unsqueeze_at(l, next, &leading, 1)};
  Dim two = dim_of(2);
  Value *state = concat_at(l, parts, 2, 0, type_make(l->context, DTYPE_UINT64, &two, 1));
  if (generator->state_is_words) state = words_from_key(l, state);
  Type type = output_type(l, 0);
  bind(l, 0, reshape_to(l, state, type.dims, type.rank));
}

/* counter, counter + 1, … */
static Value *count_up(Lowering *l, Value *counter, Dim counts) {
  Value *zero = constant_integer(l, DTYPE_INT64, 0), *one = constant_integer(l, DTYPE_INT64, 1);
  Type type = type_make(l->context, DTYPE_INT64, &counts, 1);
  Value *numbers = EMIT(l, OP_Range, type, zero, dimension_scalar(l, counts, DTYPE_INT64), one);
  return EMIT_MATH(l, OP_Add, cast_to(l, numbers, DTYPE_UINT64), counter);
}

static Dim product_of(Lowering *l, const Dim *dims, uint32_t rank) {
  Dim count = dim_of(1);
  for (uint32_t i = 0; i < rank; i++) count = dim_multiply(l->context, count, dims[i]);
  return count;
}

static Dim divided_up(Lowering *l, Dim dim, int64_t by) {
  return dim_binary(l->context, DIM_FLOORDIV, dim_add(l->context, dim, dim_of(by - 1)), dim_of(by));
}

/* ---- Philox4x32 ---- */

static Value *unsigned_number(Lowering *l, int64_t value) { return constant_integer(l, DTYPE_UINT64, value); }

/* The words stay in uint64, where a product of two has room. */
static Value *low_bits(Lowering *l, Value *x) { return EMIT_MATH(l, OP_BitwiseAnd, x, unsigned_number(l, 0xFFFFFFFF)); }

static Value *high_bits(Lowering *l, Value *x) { return EMIT_SHIFT(l, "RIGHT", x, unsigned_number(l, 32)); }

static Value *raised(Lowering *l, Value *key, int64_t by) {
  return low_bits(l, EMIT_MATH(l, OP_Add, key, unsigned_number(l, by)));
}

static Value **philox(Lowering *l, Value *low, Value *high, Value *key) {
  Loop *loop = LOOP_BEGIN(l, "philox_round", dim_of(10), low_bits(l, low), high_bits(l, low), low_bits(l, high),
                          high_bits(l, high), low_bits(l, key), high_bits(l, key));
  Value **x = loop->carried, **k = loop->carried + 4;
  Value *first = EMIT_MATH(l, OP_Mul, x[0], unsigned_number(l, 0xD2511F53));
  Value *second = EMIT_MATH(l, OP_Mul, x[2], unsigned_number(l, 0xCD9E8D57));
  Value *y0 = EMIT_MATH(l, OP_BitwiseXor, EMIT_MATH(l, OP_BitwiseXor, high_bits(l, second), x[1]), k[0]);
  Value *y2 = EMIT_MATH(l, OP_BitwiseXor, EMIT_MATH(l, OP_BitwiseXor, high_bits(l, first), x[3]), k[1]);
  return EMIT_LOOP(loop, y0, low_bits(l, second), y2, low_bits(l, first), raised(l, k[0], 0x9E3779B9),
                   raised(l, k[1], 0xBB67AE85));
}

/* A sum past 2^64 has lost the highest bit that the counter had: the high half takes the carry. */
static Value *with_carry(Lowering *l, Value *high, Value *counter, Value *low) {
  Value *place = unsigned_number(l, 63);
  Value *before = EMIT_SHIFT(l, "RIGHT", counter, place), *after = EMIT_SHIFT(l, "RIGHT", low, place);
  Value *lost = EMIT_MATH(l, OP_BitwiseAnd, EMIT_MATH(l, OP_BitwiseXor, after, unsigned_number(l, 1)), before);
  return EMIT_MATH(l, OP_Add, lost, high);
}

static void philox_bits(Lowering *l, const Generator *generator) {
  Type type = output_type(l, 1);
  bool wide = type.dtype == DTYPE_UINT64;
  size_t each = wide ? 2 : 4; /* elements a count */
  Dim total = product_of(l, type.dims, type.rank), counts = divided_up(l, total, (int64_t)each);
  Value *low = count_up(l, generator->counter, counts);
  Value *high = with_carry(l, generator->key, generator->counter, low);
  Value **words = philox(l, low, high, generator->key), *parts[4];
  for (size_t i = 0; i < each; i++) {
    static const int64_t last = 1;
    Value *element = wide ? join_words(l, words[2 * i], words[2 * i + 1]) : cast_to(l, words[i], type.dtype);
    parts[i] = unsqueeze_at(l, element, &last, 1);
  }
  Dim grid[] = {counts, dim_of((int64_t)each)}, flat = dim_multiply(l->context, counts, grid[1]), start = dim_of(0);
  Value *bits = concat_at(l, parts, each, 1, type_make(l->context, type.dtype, grid, 2));
  bits = reshape_to(l, bits, &flat, 1);
  static const int64_t axis = 0;
  if (!dim_equal(flat, total)) {
    bits = slice_at(l, bits, type_make(l->context, type.dtype, &total, 1), &start, &total, NULL, &axis, 1);
  }
  bind(l, 1, reshape_to(l, bits, type.dims, type.rank));
  bind_state(l, generator, counts);
}

/* ---- threefry2x32 ---- */

/* The axis that pairs of words are laid along: the first of even size, else the first of the largest. */
static uint32_t paired_axis(Lowering *l, Type type) {
  uint32_t largest = 0;
  for (uint32_t i = 0; i < type.rank; i++) {
    if (!dim_is_constant(type.dims[i])) {
      unsupported(l, "with the threefry algorithm the order of the bits depends on the shape, which must be constant");
    }
    if (type.dims[i].constant % 2 == 0) return i;
    if (type.dims[i].constant > type.dims[largest].constant) largest = i;
  }
  return largest;
}

/* The hashes of the counts, in the shape; x1 and x2 are the low and the high word of a count. */
static void hash_up(Lowering *l, const Generator *generator, const Dim *dims, uint32_t rank, Value **y) {
  Dim counts = product_of(l, dims, rank);
  Value *numbers = reshape_to(l, count_up(l, generator->counter, counts), dims, rank);
  Value *key[] = {low_word(l, generator->key), high_word(l, generator->key)};
  Value *x[] = {low_word(l, numbers), high_word(l, numbers)};
  threefry(l, type_make(l->context, DTYPE_UINT32, dims, rank), key, x, y);
  bind_state(l, generator, counts);
}

static void threefry_bits(Lowering *l, const Generator *generator) {
  Type type = output_type(l, 1);
  Value *y[2];
  if (type.dtype == DTYPE_UINT64) {
    hash_up(l, generator, type.dims, type.rank, y);
    bind(l, 1, join_words(l, y[0], y[1]));
    return;
  }
  Dim half[MAX_RANK] = {dim_of(1)}, pairs[MAX_RANK], even[MAX_RANK];
  uint32_t rank = type.rank ? type.rank : 1, axis = paired_axis(l, type);
  rely_on(l, rank < MAX_RANK);
  for (uint32_t i = 0; i < type.rank; i++) half[i] = type.dims[i];
  half[axis] = divided_up(l, half[axis], 2);
  hash_up(l, generator, half, rank, y);
  for (uint32_t i = 0; i <= rank; i++) pairs[i] = i <= axis ? half[i] : i == axis + 1 ? dim_of(2) : half[i - 1];
  int64_t inner = axis + 1;
  Value *parts[] = {unsqueeze_at(l, y[0], &inner, 1), unsqueeze_at(l, y[1], &inner, 1)};
  Value *bits = concat_at(l, parts, 2, inner, type_make(l->context, DTYPE_UINT32, pairs, rank + 1));
  for (uint32_t i = 0; i < rank; i++) even[i] = half[i];
  even[axis] = dim_of(2 * half[axis].constant);
  bits = cast_to(l, reshape_to(l, bits, even, rank), type.dtype);
  Dim size = type.rank ? type.dims[axis] : dim_of(1), start = dim_of(0);
  if (!dim_equal(size, even[axis])) {
    int64_t cut = axis;
    even[axis] = size;
    bits = slice_at(l, bits, type_make(l->context, type.dtype, even, rank), &start, &size, NULL, &cut, 1);
  }
  bind(l, 1, reshape_to(l, bits, type.dims, type.rank));
}

void lower_rng_bit_generator(Lowering *l) {
  require_bitwise(l);
  Generator generator = read_state(l);
  const Param *algorithm = param_get(l->context, l->equation, "algorithm");
  rely_on(l, algorithm->kind == PARAM_ENUM || algorithm->kind == PARAM_INT);
  if (algorithm->integer == ALGORITHM_THREEFRY) threefry_bits(l, &generator);
  else if (algorithm->integer == ALGORITHM_PHILOX || algorithm->integer == ALGORITHM_DEFAULT)
    philox_bits(l, &generator);
  else unsupported(l, "its algorithm is not supported");
}
