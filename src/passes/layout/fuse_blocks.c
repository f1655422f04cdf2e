/* Images taken apart into blocks by Reshapes and Transposes: DepthToSpace, SpaceToDepth, and means of the blocks as
 * AveragePool, in whichever order the axes are parted, moved and joined. Means of one axis after the other are one.
 *
 * The operators want the channels second. Where a program has them last, a Transpose stands before or after, which
 * pays off where it meets another one: nothing is replaced by as many nodes. */
#include "base/bytes.h"
#include "onnx/facts/schema.h"
#include "passes/analysis/factors.h"
#include "passes/layout/permute_axes.h"
#include "target/target.h"

enum { IMAGE = 4 /* axes: batch, channels, rows, columns */, MOST_POOLED = 5 };

/* What takes the place of a chain: an operator between two orders of axes. */
typedef struct Replacement {
  AxisOrder before, after;
} Replacement;

static AxisOrder order_from(const int64_t *from, uint32_t rank) {
  AxisOrder order = {.rank = rank};
  for (uint32_t i = 0; i < rank; i++) {
    order.from[i] = from[i];
    order.to[from[i]] = i;
  }
  return order;
}

static size_t node_count(const Replacement *replacement) {
  return 1u + !order_is_identity(&replacement->before) + !order_is_identity(&replacement->after);
}

static Value *emit_order(Rewriter *rewriter, Node *root, Value *value, const AxisOrder *order) {
  if (order_is_identity(order)) return value;
  Type type = order_type(rewriter->context, value->type, order);
  Node *node = graph_node(root->graph, REWRITE_ORIGIN(rewriter, root), OP_Transpose, &value, 1, &type, 1, root);
  node_set_ints(node, "perm", order->from, order->rank);
  return node->outputs[0];
}

/* The value in the place of the first `length` nodes of the chain, whose sites the node gets. */
static void replace_by(Rewriter *rewriter, const FactorChain *chain, size_t length, Node *node, Value *value) {
  rewrite_replace(rewriter, chain->nodes[0], value);
  for (size_t i = 1; i < length; i++) rewrite_drop_unused(rewriter, chain->nodes[i], node);
  rewriter->changed = true;
}

/* The operator, without its attributes, in the place of the first `length` nodes of the chain. */
static Node *replace_chain(Rewriter *rewriter, const FactorChain *chain, size_t length, Op op, const Replacement *by) {
  Node *root = chain->nodes[0];
  AxisOrder back = order_inverse(by->after);
  Type type = order_type(rewriter->context, root->outputs[0]->type, &back);
  Value *source = emit_order(rewriter, root, node_input(chain->nodes[length - 1], 0), &by->before);
  Node *node = graph_node(root->graph, REWRITE_ORIGIN(rewriter, root), op, &source, 1, &type, 1, root);
  replace_by(rewriter, chain, length, node, emit_order(rewriter, root, node->outputs[0], &by->after));
  return node;
}

/* How many nodes there are for the first `length` of the chain, with those that put a shape together. */
static size_t nodes_replaced(const FactorChain *chain, size_t length) {
  enum { FOR_A_SHAPE = 2 /* a Shape and a Concat at least */ };
  size_t count = length;
  for (size_t i = 0; i < length; i++) {
    const Node *node = chain->nodes[i];
    if (node_is(node, OP_Reshape) && !unread_constant_of(node_input(node, 1))) count += FOR_A_SHAPE;
  }
  return count;
}

/* ---- blocks that become channels, and channels that become blocks ---- */

typedef enum BlockMove { DEPTH_FIRST, COLUMNS_FIRST, TO_DEPTH, BLOCK_MOVES } BlockMove;

/* As ONNX defines them. */
static const int64_t move_orders[BLOCK_MOVES][IMAGE + 2] = {
    [DEPTH_FIRST] = {0, 3, 4, 1, 5, 2},
    [COLUMNS_FIRST] = {0, 1, 4, 2, 5, 3},
    [TO_DEPTH] = {0, 3, 5, 1, 2, 4},
};

static void parted_sizes(BlockMove move, const Dim *narrow, const Dim *wide, int64_t size, Dim parted[IMAGE + 2]) {
  Dim block = dim_of(size);
  Dim all[BLOCK_MOVES][IMAGE + 2] = {
      [DEPTH_FIRST] = {narrow[0], block, block, wide[1], narrow[2], narrow[3]},
      [COLUMNS_FIRST] = {narrow[0], wide[1], block, block, narrow[2], narrow[3]},
      [TO_DEPTH] = {narrow[0], wide[1], narrow[2], block, narrow[3], block},
  };
  copy_bytes(parted, all[move], sizeof all[move]);
}

/* Has the one image `size` times the rows and columns of the other, and else the same? As many elements are not enough:
 * the operator reads each axis by itself. */
static bool are_sizes_of_move(Context *context, const Dim *narrow, const Dim *wide, int64_t size) {
  for (uint32_t i = 2; i < IMAGE; i++) {
    if (!dim_equal(dim_multiply(context, narrow[i], dim_of(size)), wide[i])) return false;
  }
  return dim_equal(narrow[0], wide[0]);
}

/* Are the factors those of the move, between images whose channels come last or second? */
static bool is_block_move(Context *context, const Factors *found, BlockMove move, Type from, Type to, int64_t size,
                          const Replacement *orders) {
  Factors factors;
  Dim parted[IMAGE + 2];
  Type first = order_type(context, from, &orders->before);
  AxisOrder back = order_inverse(orders->after);
  Type second = order_type(context, to, &back);
  bool widens = move != TO_DEPTH;
  const Dim *narrow = widens ? first.dims : second.dims, *wide = widens ? second.dims : first.dims;
  if (!are_sizes_of_move(context, narrow, wide, size)) return false;
  parted_sizes(move, narrow, wide, size, parted);
  if (!factors_of(from, &factors) || !factors_transpose(&factors, orders->before.from, IMAGE)) return false;
  if (!factors_reshape(context, &factors, type_make(context, from.dtype, parted, IMAGE + 2))) return false;
  if (!factors_transpose(&factors, move_orders[move], IMAGE + 2)) return false;
  if (!factors_reshape(context, &factors, second)) return false;
  if (!factors_transpose(&factors, orders->after.from, IMAGE)) return false;
  factors_join(context, &factors);
  return factors_equal(found, &factors);
}

/* The side of the blocks, of which there is one where there were as many channels; 0: none. */
static int64_t block_size(Dim many, Dim few) {
  if (!dim_is_constant(many) || !dim_is_constant(few) || few.constant < 1 || many.constant % few.constant) return 0;
  int64_t ratio = many.constant / few.constant, size = 2;
  while (size * size < ratio) size++;
  return size * size == ratio ? size : 0;
}

static bool try_move(Rewriter *rewriter, const FactorChain *chain, size_t length, const Factors *found,
                     BlockMove move) {
  static const int64_t orders[][IMAGE] = {{0, 1, 2, 3}, {0, 3, 1, 2}, {0, 2, 3, 1}};
  Type from = node_input(chain->nodes[length - 1], 0)->type, to = chain->nodes[0]->outputs[0]->type;
  for (uint32_t layout = 0; layout < 4; layout++) {
    bool was_last = layout & 1, is_last = layout & 2;
    Replacement by = {order_from(orders[was_last ? 1 : 0], IMAGE), order_from(orders[is_last ? 2 : 0], IMAGE)};
    Dim before = from.dims[was_last ? 3 : 1], after = to.dims[is_last ? 3 : 1];
    int64_t size = move == TO_DEPTH ? block_size(after, before) : block_size(before, after);
    if (size == 0 || node_count(&by) >= nodes_replaced(chain, length)) continue;
    if (!is_block_move(rewriter->context, found, move, from, to, size, &by)) continue;
    Node *node = replace_chain(rewriter, chain, length, move == TO_DEPTH ? OP_SpaceToDepth : OP_DepthToSpace, &by);
    node_set_int(node, "blocksize", size);
    if (move == COLUMNS_FIRST) node_set_string(node, "mode", "CRD");
    return true;
  }
  return false;
}

static bool fuse_move(Rewriter *rewriter, const FactorChain *chain) {
  Type to = chain->nodes[0]->outputs[0]->type;
  Factors found;
  if (to.rank != IMAGE || !schema_runs(OP_DepthToSpace, NULL, rewriter->model->opset, to.dtype)) return false;
  for (size_t length = chain->count; length > 1; length--) {
    Type from = node_input(chain->nodes[length - 1], 0)->type;
    if (from.rank != IMAGE || !factors_of_chain(rewriter->context, chain, length, &found) || found.reduced_count)
      continue;
    for (BlockMove move = 0; move < BLOCK_MOVES; move++) {
      if (try_move(rewriter, chain, length, &found, move)) return true;
    }
  }
  return false;
}

/* ---- means of blocks ---- */

typedef struct Blocks {
  int64_t sizes[MOST_POOLED]; /* along the axes of the source */
  AxisOrder order;            /* of the means, from the source */
} Blocks;

/* Of each axis the inner factor is reduced, or nothing. */
static bool read_sizes(const Factors *factors, uint32_t rank, Blocks *blocks) {
  for (uint32_t i = 0; i < rank; i++) blocks->sizes[i] = 1;
  for (size_t i = 0; i < factors->reduced_count; i++) {
    Factor factor = factors->reduced[i];
    if (!dim_is(factor.stride, 1) || !dim_is_constant(factor.size) || blocks->sizes[factor.axis] != 1) return false;
    blocks->sizes[factor.axis] = factor.size.constant;
  }
  return factors->reduced_count > 0;
}

/* Each axis of the means is one of the source; those of size 1 go where there is room. At least one is shorter, but
 * not 1: over whole axes it is a plain mean. */
static bool read_order(const Factors *factors, uint32_t rank, Blocks *blocks) {
  bool used[MOST_POOLED] = {false}, parted = false;
  int64_t from[MOST_POOLED] = {-1, -1, -1, -1, -1};
  for (size_t i = 0; i < factors->count; i++) {
    Factor factor = factors->all[i];
    if (!dim_is(factor.stride, blocks->sizes[factor.axis]) || used[factor.axis] || from[factor.at] >= 0) return false;
    used[factor.axis] = true;
    from[factor.at] = factor.axis;
    parted = parted || blocks->sizes[factor.axis] > 1;
  }
  for (uint32_t i = 0, next = 0; i < rank; i++) {
    while (next < rank && used[next]) next++;
    if (from[i] < 0) from[i] = next++;
  }
  blocks->order = order_from(from, rank);
  return parted;
}

/* Batch and channels first; false: every axis but one at most is parted. */
static bool pooled_order(const Blocks *blocks, uint32_t rank, AxisOrder *order) {
  int64_t from[MOST_POOLED], first = -1, second = -1;
  for (uint32_t i = 0; i < rank; i++) {
    if (blocks->sizes[i] > 1) continue;
    if (first < 0) first = i;
    else if (second < 0 || !(first == 0 && second == 1)) second = i;
  }
  if (second < 0) return false;
  from[0] = first;
  from[1] = second;
  for (uint32_t i = 0, at = 2; i < rank; i++) {
    if (i != first && i != second) from[at++] = i;
  }
  *order = order_from(from, rank);
  return true;
}

/* Neighbours in memory are added up faster by a ReduceMean of what was only reshaped. */
static bool is_of_neighbours(const Blocks *blocks, uint32_t rank) {
  for (uint32_t i = 0; i + 1 < rank; i++) {
    if (blocks->sizes[i] > 1) return false;
  }
  return true;
}

static bool fuse_means(Rewriter *rewriter, const FactorChain *chain, size_t length) {
  Type from = node_input(chain->nodes[length - 1], 0)->type, to = chain->nodes[0]->outputs[0]->type;
  Factors factors;
  Blocks blocks;
  Replacement by;
  int64_t windows[MOST_POOLED];
  if (!schema_runs(OP_AveragePool, NULL, rewriter->model->opset, to.dtype)) return false;
  if (from.rank < 3 || from.rank > MOST_POOLED || from.rank != to.rank) return false;
  if (!factors_of_chain(rewriter->context, chain, length, &factors)) return false;
  if (!read_sizes(&factors, from.rank, &blocks) || !read_order(&factors, from.rank, &blocks)) return false;
  if (length == 2 && is_of_neighbours(&blocks, from.rank)) return false;
  if (!pooled_order(&blocks, from.rank, &by.before)) return false;
  by.after = order_then(order_inverse(by.before), blocks.order);
  if (node_count(&by) >= nodes_replaced(chain, length)) return false;
  Node *pool = replace_chain(rewriter, chain, length, OP_AveragePool, &by);
  for (uint32_t i = 2; i < from.rank; i++) windows[i - 2] = blocks.sizes[by.before.from[i]];
  node_set_ints(pool, "kernel_shape", windows, from.rank - 2);
  node_set_ints(pool, "strides", windows, from.rank - 2);
  return true;
}

/* ---- means of one axis after the other ---- */

/* The axes that are gone; false: not all of each, or the others are not in their order any more. */
static bool read_whole_axes(const Factors *factors, Type from, bool reduced[MOST_FACTORS]) {
  int64_t last = -1;
  for (size_t i = 0; i < factors->reduced_count; i++) {
    Factor factor = factors->reduced[i];
    if (!dim_equal(factor.size, from.dims[factor.axis])) return false;
    reduced[factor.axis] = true;
  }
  for (size_t i = 0; i < factors->count; i++) {
    Factor factor = factors->all[i];
    if (!dim_equal(factor.size, from.dims[factor.axis]) || factor.axis <= last) return false;
    last = factor.axis;
  }
  return factors->reduced_count > 0;
}

static Type reduced_type(Context *context, Type from, const bool reduced[MOST_FACTORS], bool keeps) {
  Dim dims[MOST_FACTORS];
  uint32_t rank = 0;
  for (uint32_t i = 0; i < from.rank; i++) {
    if (keeps || !reduced[i]) dims[rank++] = reduced[i] ? dim_of(1) : from.dims[i];
  }
  return type_make(context, from.dtype, dims, rank);
}

static bool join_means(Rewriter *rewriter, const FactorChain *chain, size_t length) {
  Context *context = rewriter->context;
  Node *root = chain->nodes[0];
  Value *source = node_input(chain->nodes[length - 1], 0);
  Type from = source->type, to = root->outputs[0]->type;
  Factors factors;
  bool reduced[MOST_FACTORS] = {false};
  int64_t axes[MOST_FACTORS];
  size_t count = 0;
  if (schema_version(OP_ReduceMean, rewriter->model->opset) < 18) return false;
  if (!factors_of_chain(context, chain, length, &factors) || !read_whole_axes(&factors, from, reduced)) return false;
  bool keeps = type_equal(to, reduced_type(context, from, reduced, true));
  if (!keeps && !type_equal(to, reduced_type(context, from, reduced, false))) return false;
  for (uint32_t i = 0; i < from.rank; i++) {
    if (reduced[i]) axes[count++] = i;
  }
  const Origin *origin = REWRITE_ORIGIN(rewriter, root);
  Value *inputs[] = {source, rewrite_constant_ints(rewriter, root, axes, count, root->origin)};
  Node *mean = graph_node(root->graph, origin, OP_ReduceMean, inputs, 2, &to, 1, root);
  node_set_int(mean, "keepdims", keeps);
  replace_by(rewriter, chain, length, mean, mean->outputs[0]);
  return true;
}

static bool fuse_end(Rewriter *rewriter, const FactorChain *chain) {
  const Node *root = chain->nodes[0];
  size_t first_mean = 0;
  if (!node_is(root, OP_ReduceMean) && fuse_move(rewriter, chain)) return true;
  for (size_t i = 0; i < chain->count; i++) {
    if (node_is(chain->nodes[i], OP_ReduceMean)) first_mean = i + 1;
  }
  for (size_t length = chain->count; first_mean && length >= first_mean && length > 1; length--) {
    if (fuse_means(rewriter, chain, length) || join_means(rewriter, chain, length)) return true;
  }
  return false;
}

/* From the end of a chain: as much of it as can be. */
static void fuse_chain(Rewriter *rewriter, Node *node) {
  if (!is_followed(node)) return;
  const Node *user = value_only_user(node->outputs[0]);
  if (user && user->graph == node->graph && is_followed(user)) return;
  FactorChain chain = factor_chain(node);
  for (FactorChain rest = chain; rest.count > 1; rest.count--) {
    if (fuse_end(rewriter, &rest)) return;
    for (size_t i = 1; i < rest.count; i++) rest.nodes[i - 1] = rest.nodes[i];
  }
}

bool fuse_blocks(Model *model) {
  Rewriter rewriter;
  rewrite_begin(&rewriter, model, __func__);
  rewrite_each_node(&rewriter, fuse_chain);
  return rewrite_end(&rewriter);
}
