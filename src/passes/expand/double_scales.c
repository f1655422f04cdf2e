/* Scales of float64 in a form that the runtime leaves as they are.
 *
 * ONNX Runtime takes a Mul or a Div by one number that stands beside a MatMul into the product, as an attribute in
 * float32: of float64 eight digits are left (QUIRK_SCALE_BESIDE_PRODUCT_IS_SINGLE). It does so neither with several
 * numbers, even if they are the same, nor with one that is computed. So the number is repeated along the shortest axis,
 * or expanded at run time along one whose size is not known.
 */
#include "base/bytes.h"
#include "passes/rewrite.h"
#include "target/target.h"

enum { LONGEST = 4096 }; /* numbers */

/* The axis of the fewest elements, of more than one; -1: none is known to have so many. */
static int64_t shortest_axis(Type type) {
  int64_t shortest = -1;
  for (uint32_t i = 0; i < type.rank; i++) {
    int64_t size = dim_is_constant(type.dims[i]) ? type.dims[i].constant : 0;
    if (size > 1 && size <= LONGEST && (shortest < 0 || size < type.dims[shortest].constant)) shortest = i;
  }
  return shortest;
}

static int64_t open_axis(Type type) {
  for (int64_t i = (int64_t)type.rank - 1; i >= 0; i--) {
    if (!dim_is_constant(type.dims[i])) return i;
  }
  return -1;
}

static Value *repeated(Rewriter *rewriter, Node *node, const Value *scale, Type type, int64_t axis) {
  Arena *arena = &rewriter->context->arena;
  const Tensor *from = constant_of(scale);
  Tensor *tensor = arena_copy(arena, from, sizeof *from);
  int64_t *dims = arena_new_array(arena, type.rank, int64_t), size = type.dims[axis].constant;
  char *data = arena_alloc_array(arena, (size_t)size, sizeof(double));
  tensor->rank = type.rank - (uint32_t)axis;
  for (uint32_t i = 0; i < tensor->rank; i++) dims[i] = i == 0 ? size : 1;
  for (int64_t i = 0; i < size; i++) copy_bytes(data + (size_t)i * sizeof(double), from->data, sizeof(double));
  tensor->dims = dims;
  tensor->data = data;
  tensor->size = (size_t)size * sizeof(double);
  return rewrite_constant(rewriter, node, tensor, scale->origin);
}

static Value *expanded(Rewriter *rewriter, Node *node, Value *scale, Value *whole, int64_t axis) {
  Type type = whole->type;
  Dim length = dim_of((int64_t)type.rank - axis);
  Type sizes = type_make(rewriter->context, DTYPE_INT64, &length, 1);
  Type part = type_make(rewriter->context, type.dtype, type.dims + axis, type.rank - (uint32_t)axis);
  const Origin *origin = REWRITE_ORIGIN(rewriter, node);
  Node *shape = graph_node(node->graph, origin, OP_Shape, &whole, 1, &sizes, 1, node);
  node_set_int(shape, "start", axis);
  Value *inputs[] = {scale, shape->outputs[0]};
  return graph_node(node->graph, origin, OP_Expand, inputs, 2, &part, 1, node)->outputs[0];
}

static void keep_scale(Rewriter *rewriter, Node *node, uint32_t index) {
  Value *scale = node_input(node, index), *whole = node_input(node, 1 - index);
  const Tensor *tensor = constant_of(scale);
  if (!tensor || tensor->dtype != DTYPE_FLOAT64 || tensor->size != sizeof(double)) return;
  if (type_is_unranked(whole->type) || whole->type.dtype != DTYPE_FLOAT64) return;
  if (whole->type.rank == 0 || tensor->rank > whole->type.rank || constant_of(whole)) return;
  int64_t axis = shortest_axis(whole->type), open = open_axis(whole->type);
  if (axis < 0 && open < 0) return;
  if (open > (int64_t)(whole->type.rank - tensor->rank)) open = whole->type.rank - tensor->rank;
  Value *kept =
      axis >= 0 ? repeated(rewriter, node, scale, whole->type, axis) : expanded(rewriter, node, scale, whole, open);
  use_set(&node->inputs[index], kept);
  rewriter->changed = true;
}

static void keep_scales(Rewriter *rewriter, Node *node) {
  if ((!node_is(node, OP_Mul) && !node_is(node, OP_Div)) || node->outputs[0]->type.dtype != DTYPE_FLOAT64) return;
  for (uint32_t i = node_is(node, OP_Div) ? 1 : 0; i < 2; i++) keep_scale(rewriter, node, i);
}

bool keep_double_scales(Model *model) {
  Rewriter rewriter;
  if (!target_has(model->target, QUIRK_SCALE_BESIDE_PRODUCT_IS_SINGLE)) return false;
  if (!model->made[OP_MatMul] && !model->made[OP_Gemm]) return false;
  rewrite_begin(&rewriter, model, __func__);
  rewrite_each_node(&rewriter, keep_scales);
  return rewrite_end(&rewriter);
}
