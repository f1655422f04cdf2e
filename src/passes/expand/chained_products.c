/* Two products of a few rows, one after the other, are written so that OpenVINO compiles them.
 *
 * It joins such a pair with what stands between and crashes when what the first one reads is read again behind the
 * second, as in a block with a residual. Seen with 2 to 8 rows, weights that are constant, and float32 asked for. It
 * does not take a product whose weights have three axes for one of the pair; that costs a Squeeze.
 */
#include "passes/rewrite.h"
#include "target/target.h"

enum { MOST_ROWS = 8, FAR = 8 };

static bool is_product(const Node *node) {
  if (!node_is(node, OP_MatMul) && !node_is(node, OP_Gemm)) return false;
  const Value *left = node_input(node, 0), *right = node_input(node, 1);
  Type type = left->type;
  if (type.dtype != DTYPE_FLOAT32 || type.rank != 2 || right->type.rank != 2 || !unread_constant_of(right))
    return false;
  return dim_is_constant(type.dims[0]) && type.dims[0].constant <= MOST_ROWS && !node_int_or(node, "transA", 0);
}

/* Is the value a product on which numbers were computed one by one, with constants at most? */
static bool comes_from_product(const Value *value) {
  for (int i = 0; i < FAR && value->producer; i++) {
    const Node *node = value->producer;
    if (is_product(node)) return true;
    if (!node_has(node, ELEMENTWISE)) return false;
    const Value *from = NULL;
    for (uint32_t input = 0; input < node->input_count; input++) {
      const Value *operand = node_input(node, input);
      if (!operand || unread_constant_of(operand)) continue;
      if (from) return false;
      from = operand;
    }
    if (!from) return false;
    value = from;
  }
  return false;
}

static bool is_plain(const Node *node) { return !node_attribute(node, "alpha") && !node_attribute(node, "beta"); }

static Value *put(Rewriter *rewriter, Node *before, Op op, Type type, Value *first, Value *second) {
  const Origin *origin = REWRITE_ORIGIN(rewriter, before);
  Value *inputs[] = {first, second};
  return graph_node(before->graph, origin, op, inputs, second ? 2 : 1, &type, 1, before)->outputs[0];
}

/* The weights as the right operand of MatMul, with an axis in front. */
static Value *stacked_weights(Rewriter *rewriter, Node *node, Value *axis) {
  Value *weights = node_input(node, 1);
  const int64_t order[] = {0, 2, 1};
  Dim dims[] = {dim_of(1), weights->type.dims[0], weights->type.dims[1]};
  Type type = type_make(rewriter->context, DTYPE_FLOAT32, dims, 3);
  Value *stacked = put(rewriter, node, OP_Unsqueeze, type, weights, axis);
  if (!node_int_or(node, "transB", 0)) return stacked;
  Dim turned[] = {dim_of(1), dims[2], dims[1]};
  stacked = put(rewriter, node, OP_Transpose, type_make(rewriter->context, DTYPE_FLOAT32, turned, 3), stacked, NULL);
  node_set_ints(stacked->producer, "perm", order, 3);
  return stacked;
}

static void part(Rewriter *rewriter, Node *node) {
  if (!is_product(node) || !is_plain(node) || !comes_from_product(node_input(node, 0))) return;
  Type type = node->outputs[0]->type;
  int64_t first = 0;
  Value *axis = rewrite_constant_ints(rewriter, node, &first, 1, node->origin), *bias = node_input(node, 2);
  Dim dims[] = {dim_of(1), type.dims[0], type.dims[1]};
  Value *product = put(rewriter, node, OP_MatMul, type_make(rewriter->context, type.dtype, dims, 3),
                       node_input(node, 0), stacked_weights(rewriter, node, axis));
  product = put(rewriter, node, OP_Squeeze, type, product, axis);
  if (bias) product = put(rewriter, node, OP_Add, type, product, bias);
  rewrite_replace(rewriter, node, product);
  rewriter->changed = true;
}

bool part_chained_products(Model *model) {
  if (!target_has(model->target, QUIRK_CHAINED_PRODUCTS_CRASH)) return false;
  Rewriter rewriter;
  rewrite_begin(&rewriter, model, __func__);
  rewrite_each_node(&rewriter, part);
  return rewrite_end(&rewriter);
}
