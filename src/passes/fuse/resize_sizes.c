/* Sizes that are put together: see resize_sizes.h. */
#include "passes/fuse/resize_sizes.h"

static Value *emit(Rewriter *rewriter, Node *root, Op op, Value *const *inputs, size_t count, int64_t length) {
  Type type = type_constant(rewriter->context, DTYPE_INT64, &length, 1);
  return graph_node(root->graph, REWRITE_ORIGIN(rewriter, root), op, inputs, count, &type, 1, root)->outputs[0];
}

/* Those from `first` on that stay, as they are in x: constants if they can be. */
static Value *sizes_that_stay(Rewriter *rewriter, Node *root, Value *x, uint32_t first, uint32_t end) {
  int64_t numbers[MOST_SIZES];
  bool known = true;
  for (uint32_t i = first; i < end; i++) {
    known = known && dim_is_constant(x->type.dims[i]);
    numbers[i - first] = x->type.dims[i].constant;
  }
  if (known) return rewrite_constant_ints(rewriter, root, numbers, end - first, root->origin);
  Value *shape = emit(rewriter, root, OP_Shape, &x, 1, end - first);
  node_set_int(shape->producer, "start", first);
  node_set_int(shape->producer, "end", end);
  return shape;
}

static Value *changed_size(Rewriter *rewriter, Node *root, const ResultSize *size) {
  const int64_t axis = 0;
  if (!size->computed) return rewrite_constant_ints(rewriter, root, &size->size.constant, 1, root->origin);
  Value *inputs[] = {size->computed, rewrite_constant_ints(rewriter, root, &axis, 1, root->origin)};
  return emit(rewriter, root, OP_Unsqueeze, inputs, 2, 1);
}

Value *emit_result_sizes(Rewriter *rewriter, Node *root, Value *x, const ResultSize *sizes) {
  Value *parts[MOST_SIZES];
  uint32_t rank = x->type.rank;
  size_t count = 0;
  for (uint32_t i = 0, end; i < rank; i = end) {
    end = i + 1;
    while (!sizes[i].changes && end < rank && !sizes[end].changes) end++;
    parts[count++] =
        sizes[i].changes ? changed_size(rewriter, root, &sizes[i]) : sizes_that_stay(rewriter, root, x, i, end);
  }
  Value *all = emit(rewriter, root, OP_Concat, parts, count, rank);
  node_set_int(all->producer, "axis", 0);
  return all;
}
