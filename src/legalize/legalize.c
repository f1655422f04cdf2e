/* Types that ONNX lacks: complex numbers and random keys. */
#include "legalize/legalize.h"

#include "base/bytes.h"

typedef struct Legalizer {
  Program *program;
  Map tensors; /* complex tensor -> the same data as pairs */
  Map visited; /* jaxprs */
} Legalizer;

static DType part_dtype(DType dtype) { return dtype == DTYPE_COMPLEX64 ? DTYPE_FLOAT32 : DTYPE_FLOAT64; }

/* The data of a complex array are pairs already. */
static const Tensor *pairs_of_tensor(Legalizer *legalizer, const Tensor *tensor) {
  Context *context = legalizer->program->context;
  void **slot = map_slot_pointer(context, &legalizer->tensors, tensor);
  if (*slot) return *slot;
  int64_t *dims = arena_new_array(&context->arena, tensor->rank + 1, int64_t);
  copy_bytes(dims, tensor->dims, tensor->rank * sizeof *dims);
  dims[tensor->rank] = 2;
  Tensor *pairs = arena_new(&context->arena, Tensor);
  *pairs = *tensor;
  pairs->dtype = part_dtype(tensor->dtype);
  pairs->rank = tensor->rank + 1;
  pairs->dims = dims;
  *slot = pairs;
  return pairs;
}

static void complex_to_pairs(Legalizer *legalizer, Var *var) {
  Context *context = legalizer->program->context;
  if (var->type.rank >= MAX_RANK)
    fail(context, ERROR_UNSUPPORTED, "a complex array has %d dimensions, which is too many", MAX_RANK);
  var->form = FORM_PAIRS;
  var->type = type_append(context, type_with(var->type, part_dtype(var->type.dtype)), 2);
  if (var->literal) var->literal = pairs_of_tensor(legalizer, var->literal);
}

static void key_to_integer(Legalizer *legalizer, Var *var) {
  var->form = FORM_KEY;
  var->type.dtype = DTYPE_UINT64;
  if (!var->literal || var->literal->dtype != DTYPE_KEY) return;
  Tensor *words = arena_new(&legalizer->program->context->arena, Tensor);
  *words = *var->literal;
  words->dtype = DTYPE_UINT64;
  var->literal = words;
}

static void legalize_var(Legalizer *legalizer, Var *var) {
  if (dtype_kind(var->type.dtype) == KIND_COMPLEX) {
    complex_to_pairs(legalizer, var);
  } else if (var->type.dtype == DTYPE_KEY_WORDS) {
    var->form = FORM_PAIRS; /* moved as complex numbers are */
    var->type.dtype = DTYPE_UINT32;
  } else if (var->type.dtype == DTYPE_KEY) {
    key_to_integer(legalizer, var);
  }
}

static bool legalize_vars(Legalizer *legalizer, Var *const *vars, size_t count) {
  bool pairs = false;
  for (size_t i = 0; i < count; i++) {
    legalize_var(legalizer, vars[i]);
    pairs = pairs || vars[i]->form == FORM_PAIRS;
  }
  return pairs;
}

static void legalize_jaxpr(Legalizer *legalizer, const Jaxpr *jaxpr);

static void legalize_param(Legalizer *legalizer, const Param *param) {
  if (param->kind == PARAM_JAXPR) legalize_jaxpr(legalizer, param->jaxpr);
  if (param->kind != PARAM_LIST && param->kind != PARAM_RECORD) return;
  for (size_t i = 0; i < param->list.count; i++) legalize_param(legalizer, &param->list.items[i]);
}

static void count_operands(Program *program, const Equation *equation) {
  uint32_t operands = equation->input_count + equation->output_count;
  if (operands > program->most_operands) program->most_operands = operands;
}

static void legalize_jaxpr(Legalizer *legalizer, const Jaxpr *jaxpr) {
  void **slot = map_slot_pointer(legalizer->program->context, &legalizer->visited, jaxpr);
  if (*slot) return;
  *slot = legalizer;
  legalize_vars(legalizer, jaxpr->consts, jaxpr->const_count);
  legalize_vars(legalizer, jaxpr->inputs, jaxpr->input_count);
  legalize_vars(legalizer, jaxpr->outputs, jaxpr->output_count);
  for (size_t i = 0; i < jaxpr->equation_count; i++) {
    Equation *equation = jaxpr->equations[i];
    bool reads = legalize_vars(legalizer, equation->inputs, equation->input_count);
    bool gives = legalize_vars(legalizer, equation->outputs, equation->output_count);
    equation->on_pairs = reads || gives;
    count_operands(legalizer->program, equation);
    for (uint32_t p = 0; p < equation->param_count; p++) legalize_param(legalizer, &equation->params[p]);
  }
}

void legalize_program(Program *program) {
  if (!program->has_complex && !program->has_keys) return;
  Legalizer legalizer = {.program = program};
  legalize_jaxpr(&legalizer, program->main);
}
