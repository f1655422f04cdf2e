/* Random keys: one uint64 inside the graph, two uint32 words outside. */
#include "lower/random/keys.h"

Type key_words_type(Lowering *l, Type type) { return type_append(l->context, type_with(type, DTYPE_UINT32), 2); }

/* A product with (1, 2^32) puts the words side by side. */
Value *key_from_words(Lowering *l, Value *words) {
  static const uint64_t places[] = {1, UINT64_C(1) << 32};
  static const int64_t two = 2;
  Value *factors = constant(l, tensor_new(l, DTYPE_UINT64, &two, 1, places, sizeof places));
  Type type = type_make(l->context, DTYPE_UINT64, words->type.dims, words->type.rank - 1);
  return EMIT(l, OP_MatMul, type, cast_to(l, words, DTYPE_UINT64), factors);
}

Value *words_from_key(Lowering *l, Value *key) {
  static const uint64_t places[] = {0, 32};
  static const int64_t two = 2;
  Value *by = constant(l, tensor_new(l, DTYPE_UINT64, &two, 1, places, sizeof places));
  int64_t axis = key->type.rank;
  Type type = type_append(l->context, type_with(key->type, DTYPE_UINT64), 2);
  Value *words = EMIT(l, OP_BitShift, type, unsqueeze_at(l, key, &axis, 1), by);
  node_set_string(words->producer, "direction", "RIGHT");
  return cast_to(l, words, DTYPE_UINT32);
}
