/* Composites become plain operators: one function a formula, in float32 where the composite is narrower. So do
 * operators that the target does not have. */
#include <float.h>

#include "onnx/facts/schema.h"
#include "passes/expand/erfc_tables.inc"
#include "passes/pattern.h"
#include "target/target.h"
#include "types/numbers.h"

typedef struct Expansion {
  Rewriter *rewriter;
  Node *composite;
  Value *x; /* float32 or float64 */
} Expansion;

static Value *step(Expansion *e, Emitter emitter, Op op, Value *const *inputs, size_t count) {
  const Origin *origin = origin_with_emitter(e->rewriter->model->provenance, e->composite->origin, emitter);
  Type type = op_has(op, PREDICATE) ? type_with(e->x->type, DTYPE_BOOL) : e->x->type;
  return graph_node(e->composite->graph, origin, op, inputs, count, &type, 1, e->composite)->outputs[0];
}
#define EMIT_STEP(e, op, ...)                                                    \
  step((e), REWRITE_EMITTER((e)->rewriter), (op), (Value *const[]){__VA_ARGS__}, \
       sizeof((Value *[]){__VA_ARGS__}) / sizeof(Value *))

static Value *number(Expansion *e, double value) {
  return rewrite_constant_number(e->rewriter, e->composite, e->x->type.dtype, value, e->composite->origin);
}

/* exp(x) - 1 = tanh(x / 2) * (exp(x) + 1), without cancellation anywhere. */
static Value *expand_expm1(Expansion *e) {
  Value *tanh = EMIT_STEP(e, OP_Tanh, EMIT_STEP(e, OP_Mul, e->x, number(e, 0.5)));
  return EMIT_STEP(e, OP_Mul, tanh, EMIT_STEP(e, OP_Add, EMIT_STEP(e, OP_Exp, e->x), number(e, 1)));
}

/* log(1 + x) = x (log(u) / (u - 1)) with u = 1 + x rounded: the quotient is hardly moved by what rounding lost, and is
 * 1 where that was all of x. A product keeps the sign of -0, which ONNX Runtime's Where does not. */
static Value *expand_log1p(Expansion *e) {
  Value *one = number(e, 1), *u = EMIT_STEP(e, OP_Add, e->x, one);
  Value *largest = number(e, e->x->type.dtype == DTYPE_FLOAT64 ? DBL_MAX : (double)FLT_MAX);
  Value *kept = EMIT_STEP(e, OP_Min, EMIT_STEP(e, OP_Sub, u, one), largest); /* finite at infinity */
  Value *ratio = EMIT_STEP(e, OP_Div, EMIT_STEP(e, OP_Log, u), kept);
  Value *lost = EMIT_STEP(e, OP_Equal, kept, number(e, 0));
  return EMIT_STEP(e, OP_Mul, e->x, EMIT_STEP(e, OP_Where, lost, one, ratio));
}

static Value *polynomial(Expansion *e, Value *t, const double *coefficients, size_t count) {
  Value *sum = number(e, coefficients[count - 1]);
  for (size_t i = count - 1; i-- > 0;) {
    sum = EMIT_STEP(e, OP_Add, EMIT_STEP(e, OP_Mul, t, sum), number(e, coefficients[i]));
  }
  return sum;
}
#define POLYNOMIAL(e, t, table) polynomial((e), (t), (table), sizeof(table) / sizeof *(table))

/* erfc(x) for x >= 0, to the last digits of its relative size: exp(-x^2) u P(2 u - 1) with u = 4 / (x + 4). */
static Value *erfc_of_positive(Expansion *e, Value *x) {
  Value *four = number(e, 4), *u = EMIT_STEP(e, OP_Div, four, EMIT_STEP(e, OP_Add, x, four));
  Value *t = EMIT_STEP(e, OP_Sub, EMIT_STEP(e, OP_Add, u, u), number(e, 1));
  bool wide = x->type.dtype == DTYPE_FLOAT64;
  Value *series = wide ? POLYNOMIAL(e, t, erfc_float64) : POLYNOMIAL(e, t, erfc_float32);
  Value *exp = EMIT_STEP(e, OP_Exp, EMIT_STEP(e, OP_Neg, EMIT_STEP(e, OP_Mul, x, x)));
  return EMIT_STEP(e, OP_Mul, exp, EMIT_STEP(e, OP_Mul, u, series));
}

/* x when the value is x times a number or -x (or both), else the value itself. */
static const Value *without_factors(const Value *value) {
  double number;
  for (int depth = 0; depth < 3 && value->producer; depth++) {
    const Node *node = value->producer;
    bool product = node_is(node, OP_Mul);
    if (node_is(node, OP_Neg) || (product && uniform_number(node_input(node, 1), &number))) value = node_input(node, 0);
    else if (product && uniform_number(node_input(node, 0), &number)) value = node_input(node, 1);
    else break;
  }
  return value;
}

/* Is erfc(a x) used only in a product with x, as by an activation function? Where erfc is tiny, so is the product
 * beside its other values: erfc's absolute error is what counts. */
static bool scales_its_argument(const Node *erfc) {
  const Value *result = erfc->outputs[0];
  const Node *user = result->uses && !result->uses->next ? result->uses->node : NULL;
  if (!user || !node_is(user, OP_Mul)) return false;
  const Value *other = node_input(user, node_input(user, 0) == result ? 1 : 0);
  return without_factors(other) == without_factors(node_input(erfc, 0));
}

static Value *expand_erfc(Expansion *e) {
  bool wide = e->x->type.dtype == DTYPE_FLOAT64, positive = e->x->producer && node_is(e->x->producer, OP_Abs);
  if (!wide && scales_its_argument(e->composite)) {
    return EMIT_STEP(e, OP_Sub, number(e, 1), EMIT_STEP(e, OP_Erf, e->x));
  }
  if (positive) return erfc_of_positive(e, e->x);
  Value *mirror = erfc_of_positive(e, EMIT_STEP(e, OP_Abs, e->x));
  Value *below = EMIT_STEP(e, OP_Less, e->x, number(e, 0));
  return EMIT_STEP(e, OP_Where, below, EMIT_STEP(e, OP_Sub, number(e, 2), mirror), mirror);
}

/* The value as the formula works on it, or its result as the composite gives it. */
static Value *cast(Expansion *e, Value *value, DType dtype) {
  if (value->type.dtype == dtype) return value;
  Type type = type_with(value->type, dtype);
  Emitter emitter = REWRITE_EMITTER(e->rewriter);
  const Origin *origin = origin_with_emitter(e->rewriter->model->provenance, e->composite->origin, emitter);
  Node *node = graph_node(e->composite->graph, origin, OP_Cast, &value, 1, &type, 1, e->composite);
  node_set_int(node, "to", onnx_dtype(dtype));
  return node->outputs[0];
}

/* What it narrows is there: it is only rounded. */
static Value *expand_narrow(Expansion *e) { return e->x; }

typedef Value *Expand(Expansion *expansion);

static Expand *const expansions[OP_COUNT] = {
    [OP_Erfc] = expand_erfc,
    [OP_Expm1] = expand_expm1,
    [OP_Log1p] = expand_log1p,
    [OP_Narrow] = expand_narrow,
};

/* A NaN is what does not equal itself. */
static void expand_is_nan(Rewriter *rewriter, Node *node) {
  Expansion expansion = {rewriter, node, node_input(node, 0)};
  Value *equal = EMIT_STEP(&expansion, OP_Equal, expansion.x, expansion.x);
  expansion.x = equal;
  rewrite_replace(rewriter, node, EMIT_STEP(&expansion, OP_Not, equal));
}

/* The first of two vectors as a matrix of one row. */
static void expand_inner_product(Rewriter *rewriter, Node *node) {
  static const int64_t leading = 0;
  Value *vector = node_input(node, 0), *axis = rewrite_constant_ints(rewriter, node, &leading, 1, node->origin);
  Dim dims[] = {dim_of(1), vector->type.dims[0]};
  Type row = type_make(rewriter->context, vector->type.dtype, dims, 2),
       one = type_make(rewriter->context, row.dtype, dims, 1);
  Expansion expansion = {rewriter, node, &(Value){.type = row}};
  Value *matrix = EMIT_STEP(&expansion, OP_Unsqueeze, vector, axis);
  expansion.x = &(Value){.type = one};
  Value *product = EMIT_STEP(&expansion, OP_MatMul, matrix, node_input(node, 1));
  expansion.x = node->outputs[0];
  rewrite_replace(rewriter, node, EMIT_STEP(&expansion, OP_Squeeze, product, axis));
}

static bool is_inner_product(const Node *node) {
  return node_is(node, OP_MatMul) && node_input(node, 0)->type.rank == 1 && node_input(node, 1)->type.rank == 1;
}

static void expand(Rewriter *rewriter, Node *node) {
  if (is_inner_product(node) && target_has(rewriter->model->target, QUIRK_MATMUL_REFUSES_TWO_VECTORS)) {
    expand_inner_product(rewriter, node);
    return;
  }
  if (node_is(node, OP_IsNaN) && target_has(rewriter->model->target, QUIRK_IS_NAN_IS_NOT_READ)) {
    expand_is_nan(rewriter, node);
    return;
  }
  if (!node_has(node, COMPOSITE)) return;
  Expansion expansion = {rewriter, node, node_input(node, 0)};
  DType dtype = node->outputs[0]->type.dtype;
  require(rewriter->context, expansions[node->op]);
  expansion.x = cast(&expansion, expansion.x, dtype_bits(dtype) < 32 ? DTYPE_FLOAT32 : dtype);
  rewrite_replace(rewriter, node, cast(&expansion, expansions[node->op](&expansion), dtype));
  rewriter->changed = true;
}

bool expand_composites(Model *model) {
  Rewriter rewriter;
  rewrite_begin(&rewriter, model, __func__);
  rewrite_each_node(&rewriter, expand);
  return rewrite_end(&rewriter);
}
