/* Factors that are 1 / y, in a form that the runtime leaves as they are.
 *
 * ONNX Runtime makes one Div of a Mul and the Div of 1 that it reads. If the other factor comes from a node that it has
 * just removed, such as an Add of 0, the new Div still reads that node and the model is rejected
 * (QUIRK_FACTOR_OF_INVERSE_IS_LOST). Besides, x * (1 / y) and x / y differ in the last place, and JAX computes the
 * former. Reciprocal is left alone; in half precision, where it has no kernel, the product becomes a Div here.
 */
#include "passes/pattern.h"
#include "passes/rewrite.h"
#include "target/target.h"

/* The Div of 1 that makes a factor of the product and that nothing else reads. */
static Node *inverse_of(const Node *product, const Value *factor) {
  Node *node = factor->producer;
  if (!node || node->graph != product->graph || value_only_user(factor) != product) return NULL;
  if (!node_is(node, OP_Div) || !is_uniform_number(node_input(node, 0), 1)) return NULL;
  return type_equal(node_input(node, 1)->type, factor->type) ? node : NULL;
}

static void spell_inverse(Rewriter *rewriter, Node *inverse) {
  Value *divisor = node_input(inverse, 1);
  Node *made = graph_node(inverse->graph, REWRITE_ORIGIN(rewriter, inverse), OP_Reciprocal, &divisor, 1,
                          &inverse->outputs[0]->type, 1, inverse);
  rewrite_replace(rewriter, inverse, made->outputs[0]);
}

static void spell_quotient(Rewriter *rewriter, Node *product, uint32_t factor, Node *inverse) {
  Value *operands[] = {node_input(product, 1 - factor), node_input(inverse, 1)};
  Node *made = graph_node(product->graph, REWRITE_ORIGIN(rewriter, product), OP_Div, operands, 2,
                          &product->outputs[0]->type, 1, product);
  rewrite_replace(rewriter, product, made->outputs[0]);
  rewrite_drop_unused(rewriter, inverse, made);
}

static void spell_factors(Rewriter *rewriter, Node *node) {
  if (!node_is(node, OP_Mul)) return;
  for (uint32_t i = 0; i < 2; i++) {
    Node *inverse = inverse_of(node, node_input(node, i));
    if (!inverse) continue;
    DType dtype = node->outputs[0]->type.dtype;
    bool has_kernel = dtype == DTYPE_FLOAT32 || dtype == DTYPE_FLOAT64;
    if (has_kernel) spell_inverse(rewriter, inverse);
    if (!has_kernel) spell_quotient(rewriter, node, i, inverse);
    return;
  }
}

bool spell_inverse_factors(Model *model) {
  Rewriter rewriter;
  if (!target_has(model->target, QUIRK_FACTOR_OF_INVERSE_IS_LOST)) return false;
  rewrite_begin(&rewriter, model, __func__);
  rewrite_each_node(&rewriter, spell_factors);
  return rewrite_end(&rewriter);
}
