/* Random keys: one uint64 inside the graph, two uint32 words outside. */
#include "lower/random/keys.h"

static void convert_var(Lowering *l, Var *var) {
  if (var->type.dtype == DTYPE_KEY) var->type.dtype = DTYPE_UINT64;
  if (!var->literal || var->literal->dtype != DTYPE_KEY) return;
  Tensor *words = arena_new(&l->context->arena, Tensor);
  *words = *var->literal;
  words->dtype = DTYPE_UINT64;
  var->literal = words;
}

static void convert_vars(Lowering *l, Var *const *vars, size_t count) {
  for (size_t i = 0; i < count; i++) convert_var(l, vars[i]);
}

static void convert_param(Lowering *l, Map *visited, const Param *param) {
  if (param->kind == PARAM_JAXPR) keys_to_integers(l, visited, param->jaxpr);
  if (param->kind != PARAM_LIST && param->kind != PARAM_RECORD) return;
  for (size_t i = 0; i < param->list.count; i++) convert_param(l, visited, &param->list.items[i]);
}

void keys_to_integers(Lowering *l, Map *visited, const Jaxpr *jaxpr) {
  void **slot = map_slot_pointer(l->context, visited, jaxpr);
  if (*slot) return;
  *slot = l;
  convert_vars(l, jaxpr->consts, jaxpr->const_count);
  convert_vars(l, jaxpr->inputs, jaxpr->input_count);
  convert_vars(l, jaxpr->outputs, jaxpr->output_count);
  for (size_t i = 0; i < jaxpr->equation_count; i++) {
    const Equation *equation = jaxpr->equations[i];
    convert_vars(l, equation->inputs, equation->input_count);
    convert_vars(l, equation->outputs, equation->output_count);
    for (uint32_t p = 0; p < equation->param_count; p++) convert_param(l, visited, &equation->params[p]);
  }
}

static Type with_last_axis(Lowering *l, Type type, DType dtype) {
  Dim dims[MAX_RANK];
  require(l->context, type.rank < MAX_RANK);
  if (type.rank) memcpy(dims, type.dims, type.rank * sizeof *dims);
  dims[type.rank] = dim_of(2);
  return type_make(l->context, dtype, dims, type.rank + 1);
}

Type key_words_type(Lowering *l, Type type) { return with_last_axis(l, type, DTYPE_UINT32); }

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
  Type type = with_last_axis(l, key->type, DTYPE_UINT64);
  Value *words = EMIT(l, OP_BitShift, type, unsqueeze_at(l, key, &axis, 1), by);
  node_set_string(words->producer, "direction", "RIGHT");
  return cast_to(l, words, DTYPE_UINT32);
}
