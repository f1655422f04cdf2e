/* Constant factors of a product become one: (x * 2) * -0.5, x * 0.3 / 2, -(3 * x), 0.5 * x * y * 0.1.
 *
 * The product of two constants is computed at export and rounded once, as the product that goes was, so the result is
 * as accurate as before, and exact where a factor is a power of two. XLA joins such factors as well. Quotients are
 * joined only where that is exact: x * 10 / 3 is a whole number for every third x. It is done last: what is fused has
 * its factors where the program has them. A node on a few numbers takes ONNX Runtime 0.2 us, and derivatives are full
 * of such factors. A constant of signs, as products of quaternions have, is joined to a constant that has a factor for
 * every element.
 */
#include <math.h>

#include "onnx/evaluate/evaluate.h"
#include "passes/rewrite.h"
#include "types/numbers.h"

enum {
  FARTHEST = 4,         /* nodes between two factors */
  LARGEST_EXPONENT = 40 /* of both and of their product: nothing overflows that did not before */
};

static bool is_moderate(double number) {
  int exponent;
  if (!isfinite(number) || number == 0) return false;
  frexp(number, &exponent);
  return exponent > -LARGEST_EXPONENT && exponent < LARGEST_EXPONENT;
}

/* One number, which is no parameter. */
static bool read_number(const Value *value, double *number) {
  const Tensor *tensor = constant_of(value);
  if (!tensor || tensor->name || tensor->made_of) return false;
  if (tensor->dtype != DTYPE_FLOAT32 && tensor->dtype != DTYPE_FLOAT64) return false;
  if (tensor->size != dtype_bytes(tensor->dtype, 1)) return false;
  *number = number_decode(tensor->dtype, tensor->data);
  return is_moderate(*number);
}

/* Which operand of a Mul or Div is a number: 0, 1, or -1 for none. */
static int number_operand(const Node *node, double *number) {
  if (!node_is(node, OP_Mul) && !node_is(node, OP_Div)) return -1;
  for (int i = 0; i < 2; i++) {
    if (read_number(node_input(node, (size_t)i), number)) return i;
  }
  return -1;
}

static void set_number(Rewriter *rewriter, Node *node, int operand, double number) {
  const Tensor *old = constant_of(node_input(node, (size_t)operand));
  Tensor *tensor = arena_copy(&rewriter->context->arena, old, sizeof *old);
  uint64_t bits = number_encode(old->dtype, number);
  tensor->data = arena_copy(&rewriter->context->arena, &bits, old->size);
  use_set(&node->inputs[operand], rewrite_constant(rewriter, node, tensor, node->origin));
}

typedef struct Factor {
  double number;
  bool divides;
} Factor;

/* What the node's number becomes. */
static bool joined(const Node *node, int operand, double number, Factor by, double *joined) {
  bool divides = node_is(node, OP_Div) && operand == 1, is_quotient = divides != by.divides;
  *joined = is_quotient ? number / by.number : number * by.number;
  DType dtype = node->outputs[0]->type.dtype;
  bool only_products = !by.divides && node_is(node, OP_Mul);
  bool exact = dtype == DTYPE_FLOAT32 && number_rounded(dtype, *joined) == *joined;
  return is_moderate(*joined) && (only_products || exact || is_power_of_two(by.number));
}

/* Joins the factor to one of the value, which nothing else reads. */
static bool absorb(Rewriter *rewriter, Value *value, const Node *reader, Factor by, int depth) {
  Node *node = value->producer;
  double number;
  if (!node || node->graph != reader->graph || value_only_user(value) != reader || depth == FARTHEST) return false;
  if (!node_is(node, OP_Mul) && !node_is(node, OP_Div)) return false;
  int operand = number_operand(node, &number);
  if (operand >= 0) {
    bool can = joined(node, operand, number, by, &number);
    if (can) set_number(rewriter, node, operand, number);
    return can;
  }
  Factor below = {by.number, by.divides != node_is(node, OP_Div)};
  return absorb(rewriter, node_input(node, 0), node, by, depth + 1) ||
         absorb(rewriter, node_input(node, 1), node, below, depth + 1);
}

/* ---- signs ---- */

enum { MOST_SIGNED = 256 /* elements of a constant that is made anew */ };

static const Tensor *small_array(const Value *value) {
  const Tensor *tensor = constant_of(value);
  if (!tensor || tensor_count(tensor) > MOST_SIGNED) return NULL;
  return tensor->dtype == DTYPE_FLOAT32 || tensor->dtype == DTYPE_FLOAT64 ? tensor : NULL;
}

static bool holds_signs(const Tensor *tensor) {
  int64_t count = tensor_count(tensor);
  for (int64_t i = 0; i < count; i++) {
    const char *at = (const char *)tensor->data + dtype_bytes(tensor->dtype, (size_t)i);
    if (fabs(number_decode(tensor->dtype, at)) != 1) return false;
  }
  return count > 1;
}

/* Which operand is a small constant, of signs where those are wanted: 0, 1, or -1 for none. */
static int array_operand(const Node *node, bool of_signs) {
  for (int i = 0; i < 2 && node_is(node, OP_Mul); i++) {
    const Tensor *tensor = small_array(node_input(node, (size_t)i));
    if (tensor && (!of_signs || holds_signs(tensor))) return i;
  }
  return -1;
}

/* What it was made of stays known. */
static const Tensor *product_of(Rewriter *rewriter, const Node *node, const Tensor *a, const Tensor *b) {
  Context *context = rewriter->context;
  const Tensor *inputs[] = {a, b};
  const Tensor *product = evaluate_node(&(Evaluation){.context = context,
                                                      .node = node,
                                                      .inputs = inputs,
                                                      .input_count = 2,
                                                      .opset = rewriter->model->opset,
                                                      .largest = MOST_SIGNED * sizeof(double)});
  if (!product) return NULL;
  Tensor *result = arena_copy(&context->arena, product, sizeof *product);
  result->made_of = names_with(context, names_with(context, NULL, a), b);
  return result;
}

/* Signs times a constant that the value is multiplied by are exact. */
static void merge_signs(Rewriter *rewriter, Node *node) {
  int signs = array_operand(node, true);
  Value *rest = signs < 0 ? NULL : node_input(node, signs == 0);
  Node *inner = rest ? rest->producer : NULL;
  if (!inner || inner->graph != node->graph || value_only_user(rest) != node) return;
  int factor = array_operand(inner, false);
  if (factor < 0 || !type_equal(rest->type, node->outputs[0]->type)) return;
  const Tensor *a = constant_of(node_input(node, (size_t)signs)), *b = constant_of(node_input(inner, (size_t)factor));
  const Tensor *product = product_of(rewriter, node, a, b);
  if (!product) return;
  use_set(&inner->inputs[factor], rewrite_constant(rewriter, inner, product, inner->origin));
  rewrite_replace(rewriter, node, rest);
}

/* b + -a is b - a, and b - -a is b + a. */
static bool merge_negation(Rewriter *rewriter, Node *node) {
  bool is_sum = node_is(node, OP_Add);
  for (size_t i = is_sum ? 0 : 1; i < 2 && (is_sum || node_is(node, OP_Sub)); i++) {
    Value *value = node_input(node, i), *other = node_input(node, 1 - i);
    Node *negation = value->producer;
    if (!negation || !node_is(negation, OP_Neg) || negation->graph != node->graph) continue;
    if (value_only_user(value) != node) continue;
    Value *inputs[] = {other, node_input(negation, 0)};
    Type type = node->outputs[0]->type;
    Node *made =
        graph_node(node->graph, REWRITE_ORIGIN(rewriter, node), is_sum ? OP_Sub : OP_Add, inputs, 2, &type, 1, node);
    rewrite_replace(rewriter, node, made->outputs[0]);
    rewrite_drop_unused(rewriter, negation, made);
    return true;
  }
  return false;
}

static void merge(Rewriter *rewriter, Node *node) {
  if (merge_negation(rewriter, node)) return;
  merge_signs(rewriter, node);
  if (node->is_gone) return;
  double number = -1;
  int operand = node_is(node, OP_Neg) ? 1 : number_operand(node, &number);
  if (operand < 0 || (node_is(node, OP_Div) && operand == 0)) return;
  Value *rest = node_input(node, operand == 0);
  if (!dtype_is_float(rest->type.dtype) || !type_equal(rest->type, node->outputs[0]->type)) return;
  if (!absorb(rewriter, rest, node, (Factor){number, node_is(node, OP_Div)}, 0)) return;
  rewrite_replace(rewriter, node, rest);
}

bool merge_factors(Model *model) {
  Rewriter rewriter;
  rewrite_begin(&rewriter, model, __func__);
  rewrite_each_node(&rewriter, merge);
  return rewrite_end(&rewriter);
}
