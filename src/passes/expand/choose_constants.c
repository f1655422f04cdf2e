/* A choice between two constants: the condition as a number where they are 1 and 0, else a look-up in a loop's steps.
 *
 * ONNX Runtime takes 0.95 us for a Where of up to four numbers, 0.2 for a Cast and 0.5 for a Cast and a Gather, on one
 * core. It is done last: passes that look for choices know them as Where.
 */
#include "base/bytes.h"
#include "onnx/facts/schema.h"
#include "passes/loop_body.h"
#include "passes/passes.h"
#include "passes/rewrite.h"
#include "types/numbers.h"

enum { FEW = 16 }; /* numbers of which a look-up is faster than a choice */

/* One number, which is no parameter. */
static const Tensor *read_number(const Value *value) {
  const Tensor *tensor = value ? constant_of(value) : NULL;
  if (!tensor || tensor->name || tensor->made_of || dtype_bits(tensor->dtype) < 8) return NULL;
  return tensor->size == dtype_bytes(tensor->dtype, 1) ? tensor : NULL;
}

static bool is_number(const Tensor *tensor, double wanted) {
  uint64_t bits = number_encode(tensor->dtype, wanted);
  return same_bytes(tensor->data, &bits, tensor->size);
}

static Value *as_number(Rewriter *rewriter, Node *node, DType dtype) {
  Value *condition = node_input(node, 0);
  Type type = type_with(condition->type, dtype);
  Node *cast = graph_node(node->graph, REWRITE_ORIGIN(rewriter, node), OP_Cast, &condition, 1, &type, 1, node);
  node_set_int(cast, "to", onnx_dtype(dtype));
  return cast->outputs[0];
}

static Value *looked_up(Rewriter *rewriter, Node *node, const Tensor *no, const Tensor *yes) {
  static const int64_t both[] = {2};
  Context *context = rewriter->context;
  char *data = arena_alloc(&context->arena, 2 * no->size);
  copy_bytes(data, no->data, no->size);
  copy_bytes(data + no->size, yes->data, yes->size);
  Tensor *table = arena_copy(&context->arena, no, sizeof *no);
  table->rank = 1;
  table->dims = both;
  table->data = data;
  table->size = 2 * no->size;
  Value *inputs[] = {rewrite_constant(rewriter, node, table, node->origin), as_number(rewriter, node, DTYPE_INT32)};
  Type type = node->outputs[0]->type;
  return graph_node(node->graph, REWRITE_ORIGIN(rewriter, node), OP_Gather, inputs, 2, &type, 1, node)->outputs[0];
}

static void choose(Rewriter *rewriter, Node *node) {
  if (!node_is(node, OP_Where) || node->input_count != 3) return;
  const Tensor *yes = read_number(node_input(node, 1)), *no = read_number(node_input(node, 2));
  Type type = node->outputs[0]->type;
  int64_t count;
  if (!yes || !no || !type_same_shape(node_input(node, 0)->type, type) || type.dtype == DTYPE_BOOL) return;
  if (is_number(yes, 1) && is_number(no, 0)) {
    rewrite_replace(rewriter, node, as_number(rewriter, node, type.dtype));
  } else if (stands_in_loop(node->graph) && type_count(type, &count) && count <= FEW) {
    rewrite_replace(rewriter, node, looked_up(rewriter, node, no, yes));
  }
}

bool choose_constants(Model *model) {
  Rewriter rewriter;
  rewrite_begin(&rewriter, model, __func__);
  rewrite_each_node(&rewriter, choose);
  return rewrite_end(&rewriter);
}
