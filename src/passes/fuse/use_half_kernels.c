/* An operator of float32 that halves are widened for and whose result is rounded to a half again: where the runtime has
 * the half's own kernel for it, which computes in float32 within, it is given the halves themselves. What only moves
 * elements between it and the casts moves halves then, and a scale and a bias after it that halves can hold are applied
 * to halves. */
#include <math.h>

#include "base/bytes.h"
#include "onnx/facts/schema.h"
#include "passes/pattern.h"
#include "types/numbers.h"

enum { MOST_STEPS = 6, MOST_INPUTS = 5 };

static const Op own_kernels[] = {OP_Attention,          OP_AveragePool, OP_BatchNormalization, OP_InstanceNormalization,
                                 OP_LayerNormalization, OP_LogSoftmax,  OP_RMSNormalization,   OP_ReduceMean,
                                 OP_ReduceSum,          OP_Softmax};

/* What moves elements, or scales or shifts them by a constant. */
typedef struct Step {
  Node *node;
  Value *constant; /* as a half, or NULL */
} Step;

/* Steps, the last first. */
typedef struct Steps {
  Step items[MOST_STEPS];
  size_t count;
} Steps;

typedef struct Operand {
  Steps steps;
  Node *cast;   /* to float32, or NULL: it has no steps */
  Value *fixed; /* a constant as a half, or what keeps its type */
} Operand;

/* Rounded as the result is, and no further: not out of the half's range. */
static bool half_holds(DType half, double number, double rounded) {
  double most = half == DTYPE_FLOAT16 ? 0x1p-11 : 0x1p-8;
  return rounded == number || fabs(rounded - number) <= most * fabs(number);
}

/* A constant of float32 in halves; NULL: an element is too large or too small. */
static Value *halved(Match *match, const Value *value, DType half) {
  const Tensor *from = constant_of(value);
  Tensor *tensor = from && from->dtype == DTYPE_FLOAT32 ? match_tensor(match, half, value->type) : NULL;
  if (!tensor) return NULL;
  Context *context = match->rewriter->context;
  for (size_t i = 0; i < from->size / sizeof(float); i++) {
    double number = number_decode(DTYPE_FLOAT32, (const float *)from->data + i);
    uint64_t bits = number_encode(half, number);
    if (!half_holds(half, number, number_decode(half, &bits))) return NULL;
    copy_bytes((char *)(uintptr_t)tensor->data + i * 2, &bits, 2);
  }
  size_t length = from->name ? strlen(from->name) : 0;
  if (length > 4 && strcmp(from->name + length - 4, "_f32") == 0) length -= 4;
  if (length) tensor->name = str_intern_sized(context, from->name, length);
  tensor->made_of = names_with(context, NULL, from);
  return match_constant(match, tensor);
}

/* ---- steps ---- */

static bool scales_or_shifts(const Node *node) {
  return node_is(node, OP_Add) || node_is(node, OP_Sub) || node_is(node, OP_Mul) || node_is(node, OP_Div);
}

/* Its input that is no constant. */
static uint32_t followed(const Node *node) {
  bool commutes = node_is(node, OP_Add) || node_is(node, OP_Mul);
  return commutes && constant_of(node_input(node, 0)) ? 1 : 0;
}

static bool read_step(Match *match, const Node *node, bool scaled, Value **constant) {
  *constant = NULL;
  if (!schema_runs(node->op, NULL, match_opset(match), match_type(match).dtype)) return false;
  if (node_moves_all(node) || moves_fewer(node)) return true;
  if (!scaled || !scales_or_shifts(node)) return false;
  *constant = halved(match, node_input(node, 1 - followed(node)), match_type(match).dtype);
  return *constant != NULL;
}

/* The steps that lead to the value, for the match alone; returns what they begin with. */
static Value *take_steps(Match *match, Value *value, bool scaled, Steps *steps) {
  for (steps->count = 0; steps->count < MOST_STEPS && value->producer; steps->count++) {
    Step *step = &steps->items[steps->count];
    if (!read_step(match, value->producer, scaled, &step->constant)) break;
    step->node = match_take(match, value, value->producer->op);
    if (!step->node) break;
    value = node_input(step->node, followed(step->node));
  }
  return value;
}

static Value *step_again(Match *match, const Step *step, Value *value) {
  const Node *node = step->node;
  Value *inputs[MOST_INPUTS];
  for (uint32_t i = 0; i < node->input_count; i++) inputs[i] = step->constant ? step->constant : node_input(node, i);
  inputs[followed(node)] = value;
  Type type = type_with(node->outputs[0]->type, value->type.dtype);
  Node *again = match_node_before(match, node->op, type, inputs, node->input_count, REWRITE_EMITTER(match->rewriter));
  node_copy_attributes(again, node);
  return again->outputs[0];
}

static Value *steps_again(Match *match, const Steps *steps, Value *value) {
  for (size_t i = steps->count; i > 0; i--) value = step_again(match, &steps->items[i - 1], value);
  return value;
}

/* ---- operands ---- */

static bool is_widened(const Match *match, const Node *cast) {
  return cast && node_is(cast, OP_Cast) && cast->graph == match->root->graph &&
         node_input(cast, 0)->type.dtype == match_type(match).dtype;
}

/* Axes, what is masked or not, and the scales and statistics of batches, which may be of float32 beside halves. */
static bool keeps_type(const Node *node, uint32_t input) {
  const Value *value = node_input(node, input);
  if (node_is(node, OP_BatchNormalization) && input > 0) return unread_constant_of(value) != NULL;
  return value->type.dtype != DTYPE_FLOAT32;
}

static bool read_operand(Match *match, const Node *node, uint32_t input, Operand *operand) {
  Value *value = node_input(node, input);
  *operand = (Operand){.fixed = value && keeps_type(node, input) ? value : NULL};
  if (!value || operand->fixed) return true;
  if (constant_of(value)) return (operand->fixed = halved(match, value, match_type(match).dtype)) != NULL;
  operand->cast = take_steps(match, value, false, &operand->steps)->producer;
  return is_widened(match, operand->cast);
}

static Value *as_half(Match *match, const Operand *operand) {
  if (!operand->cast) return operand->fixed;
  match_take(match, operand->cast->outputs[0], OP_Cast); /* unless others read it */
  return steps_again(match, &operand->steps, node_input(operand->cast, 0));
}

/* ---- the operator ---- */

/* A single query, as in a decoding step: measured with ONNX Runtime 1.31, Attention of 8 heads over 512 keys of float16
 * takes 0.56 ms and the same in float32 with its Casts 0.15 ms. With as many queries as keys they are close. */
static bool is_slow_of_halves(const Node *node) {
  Type query = node_input(node, 0)->type;
  return node_is(node, OP_Attention) && query.rank >= 3 && dim_is(query.dims[query.rank - 2], 1);
}

/* Numbers that are added to scores: halves do not hold them, and of float32 beside halves ONNX Runtime takes Attention
 * apart into some sixty nodes, which takes two to three times as long as the kernel of float32 with its Casts. */
static bool adds_mask(const Node *node) {
  const Value *mask = node_is(node, OP_Attention) ? node_input(node, 3) : NULL;
  return mask && mask->type.dtype != DTYPE_BOOL;
}

static bool has_own_kernel(const Match *match, const Node *node) {
  if (!node || is_slow_of_halves(node) || adds_mask(node)) return false;
  for (size_t i = 0; i < sizeof own_kernels / sizeof *own_kernels; i++) {
    if (node_is(node, own_kernels[i])) return schema_runs(node->op, NULL, match_opset(match), match_type(match).dtype);
  }
  return false;
}

static bool fuse_own_kernel(Match *match) {
  Operand operands[MOST_INPUTS];
  Steps steps;
  Value *result = take_steps(match, node_input(match->root, 0), true, &steps), *inputs[MOST_INPUTS];
  Node *wide = has_own_kernel(match, result->producer) ? match_take(match, result, result->producer->op) : NULL;
  if (!wide || wide->input_count > MOST_INPUTS) return false;
  for (uint32_t i = 0; i < wide->input_count; i++) {
    if (!read_operand(match, wide, i, &operands[i])) return false;
  }
  for (uint32_t i = 0; i < wide->input_count; i++) inputs[i] = as_half(match, &operands[i]);
  Type type = type_with(result->type, match_type(match).dtype);
  Node *node = match_node_before(match, wide->op, type, inputs, wide->input_count, REWRITE_EMITTER(match->rewriter));
  node_copy_attributes(node, wide);
  for (size_t i = 1; i < match->node_count; i++) rewrite_hand_over(match->rewriter, node, match->nodes[i]);
  match_replace(match, steps_again(match, &steps, node->outputs[0]));
  return true;
}

enum { RESULT };

static const FusionRule rules[] = {{OP(Narrow, ANY(RESULT)), OP_NONE, fuse_own_kernel}};

bool use_half_kernels(Model *model) { return fuse_patterns(model, __func__, rules, sizeof rules / sizeof *rules); }
