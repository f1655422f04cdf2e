/* Composites become plain operators: one function a formula. Values are float32 or float64, as lowering widens them. */
#include <float.h>

#include "passes/rewrite.h"
#include "types/numbers.h"

typedef struct Expansion {
  Rewriter *rewriter;
  Node *composite;
  Value *x;
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
  DType dtype = e->x->type.dtype;
  uint64_t bits = number_encode(dtype, value);
  Tensor *tensor = arena_new(&e->rewriter->context->arena, Tensor);
  *tensor = (Tensor){.dtype = dtype, .size = dtype_bytes(dtype, 1)};
  tensor->data = arena_copy(&e->rewriter->context->arena, &bits, tensor->size);
  return rewrite_constant(e->rewriter, e->composite, tensor, e->composite->origin);
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

typedef Value *Expand(Expansion *expansion);

static Expand *const expansions[OP_COUNT] = {
    [OP_Expm1] = expand_expm1,
    [OP_Log1p] = expand_log1p,
};

static void expand(Rewriter *rewriter, Node *node) {
  if (!node_has(node, COMPOSITE)) return;
  Expansion expansion = {rewriter, node, node_input(node, 0)};
  require(rewriter->context, expansions[node->op]);
  rewrite_replace(rewriter, node, expansions[node->op](&expansion));
  rewriter->changed = true;
}

bool expand_composites(Model *model) {
  Rewriter rewriter;
  rewrite_begin(&rewriter, model, __func__);
  rewrite_each_node(&rewriter, expand);
  return rewrite_end(&rewriter);
}
