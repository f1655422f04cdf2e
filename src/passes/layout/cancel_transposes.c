/* Transposes that meet their inverse: operators that do not care about the order of their axes take the order of what
 * is around them.
 *
 * Such operators that are joined by values of one rank are a region. Written in another order, a region needs a
 * Transpose on each value that comes in and on each that goes out, unless there is one already that it undoes. The
 * whole region takes the order that leaves the fewest nodes; where none is better, single operators may still let a
 * Transpose through that stands after a convolution, which then meets what can become a part of it. Every step leaves
 * fewer Transposes, or as many further down, so the passes come to an end. Each region is looked at once: the work is
 * linear.
 */
#include "passes/layout/permute_axes.h"
#include "passes/pattern.h"
#include "target/target.h"

enum {
  MOST_ORDERS = 4, /* candidates of a region */
  MOST_USES = 16,  /* looked at for a Transpose that is there already */
};

typedef struct Mark {
  const PermuteRow *row;
  uint32_t region; /* 0: none yet */
} Mark;

typedef struct Region {
  uint32_t number; /* in the marks of its nodes */
  uint32_t rank;
  ARRAY(Node *) nodes;
  ARRAY(Value *) entering; /* each once; also of lower rank, and constants */
  ARRAY(Value *) leaving;  /* each once: read by something outside */
  AxisOrder orders[MOST_ORDERS];
  size_t order_count;
} Region;

typedef struct Layout {
  Rewriter rewriter; /* first */
  Graph *graph;
  uint32_t regions;
  Map sunk; /* Transposes that came from after a convolution in this pass */
} Layout;

typedef struct Cost {
  int64_t nodes;
  int64_t after_convolutions; /* Transposes there */
} Cost;

static Mark *mark_of(const Node *node) { return node->scratch; }

static bool is_in(const Region *region, const Node *node, const Graph *graph) {
  return node && node->graph == graph && node->scratch && mark_of(node)->region == region->number;
}

static bool is_transpose(const Node *node, AxisOrder *order) {
  return node && !node->domain[0] && transpose_order(node, order);
}

/* Does this use read the value's axes as those of a node of the region? */
static bool is_inner_use(const Layout *layout, const Region *region, const Use *use) {
  if (!is_in(region, use->node, layout->graph)) return false;
  return input_is_permuted(mark_of(use->node)->row, (uint32_t)(use - use->node->inputs));
}

/* Or the sum of a window, which is an average times its size and waits for a division. Its halves may be widened. */
static bool is_convolution(const Node *node) {
  if (node && is_cast_of_half(node)) node = node_input(node, 0)->producer;
  if (!node) return false;
  if (node_is(node, OP_Conv) || node_is(node, OP_ConvTranspose)) return true;
  const Value *first = node_is(node, OP_Mul) ? node_input(node, 0) : NULL;
  return first && first->producer && node_is(first->producer, OP_AveragePool);
}

static bool is_after_convolution(const Layout *layout, const Node *transpose) {
  return is_convolution(node_input(transpose, 0)->producer) || map_get_pointer(&layout->sunk, transpose);
}

static bool is_all_ones(Type type) {
  for (uint32_t i = 0; i < type.rank; i++) {
    if (!dim_is(type.dims[i], 1)) return false;
  }
  return true;
}

/* ---- finding regions ---- */

static void add_node(Layout *layout, Region *region, Node *node) {
  Mark *mark = node->graph == layout->graph ? mark_of(node) : NULL;
  if (!mark || mark->region || node->outputs[0]->type.rank != region->rank) return;
  mark->region = region->number;
  array_push(layout->rewriter.context, &region->nodes, node);
}

/* Nodes that read the value as one of their own rank. */
static void add_users(Layout *layout, Region *region, const Value *value) {
  for (const Use *use = value->uses; use; use = use->next) {
    const Mark *mark = use->node && use->node->graph == layout->graph ? mark_of(use->node) : NULL;
    if (mark && input_is_permuted(mark->row, (uint32_t)(use - use->node->inputs))) {
      add_node(layout, region, use->node);
    }
  }
}

static bool joins(const Region *region, const Value *value) {
  return value && value->type.rank == region->rank && !unread_constant_of(value);
}

static void grow_region(Layout *layout, Region *region) {
  AxisOrder order;
  for (size_t at = 0; at < region->nodes.count; at++) {
    Node *node = region->nodes.items[at];
    for (uint32_t i = 0; i < node->output_count; i++) {
      if (node->outputs[i]) add_users(layout, region, node->outputs[i]);
    }
    for (uint32_t i = 0; i < node->input_count; i++) {
      Value *value = node->inputs[i].value;
      if (!input_is_permuted(mark_of(node)->row, i) || !joins(region, value) || !value->producer) continue;
      add_node(layout, region, value->producer);
      if (value->scratch != region && is_transpose(value->producer, &order)) {
        value->scratch = region;
        add_users(layout, region, value);
      }
    }
  }
}

/* The orders that would undo a Transpose at the region's border. */
static void add_order(Region *region, AxisOrder order) {
  if (order.rank != region->rank || order_is_identity(&order)) return;
  for (size_t i = 0; i < region->order_count; i++) {
    if (order_equal(&region->orders[i], &order)) return;
  }
  if (region->order_count < MOST_ORDERS) region->orders[region->order_count++] = order;
}

static void find_entering(Layout *layout, Region *region, const Node *node) {
  for (uint32_t i = 0; i < node->input_count; i++) {
    Value *value = node->inputs[i].value;
    AxisOrder order;
    if (!value || !input_is_permuted(mark_of(node)->row, i) || is_in(region, value->producer, layout->graph)) continue;
    if (value->scratch == &region->entering || is_all_ones(value->type)) continue;
    value->scratch = &region->entering;
    array_push(layout->rewriter.context, &region->entering, value);
    if (is_transpose(value->producer, &order)) {
      add_order(region, order_inverse(order));
    }
  }
}

static void find_leaving(Layout *layout, Region *region, Value *value) {
  bool leaves = false;
  AxisOrder order;
  for (const Use *use = value->uses; use; use = use->next) {
    if (is_inner_use(layout, region, use)) continue;
    leaves = true;
    if (is_transpose(use->node, &order)) add_order(region, order);
  }
  if (leaves) array_push(layout->rewriter.context, &region->leaving, value);
}

static void find_border(Layout *layout, Region *region) {
  for (size_t at = 0; at < region->nodes.count; at++) {
    const Node *node = region->nodes.items[at];
    find_entering(layout, region, node);
    for (uint32_t i = 0; i < node->output_count; i++) {
      if (node->outputs[i]) find_leaving(layout, region, node->outputs[i]);
    }
  }
}

/* ---- what an order would cost ---- */

static Node *transpose_that_is_there(const Layout *layout, const Value *value, const AxisOrder *order) {
  int budget = MOST_USES;
  AxisOrder found;
  if (value->graph != layout->graph) return NULL;
  for (const Use *use = value->uses; use && budget--; use = use->next) {
    bool same_graph = use->node && use->node->graph == layout->graph;
    if (same_graph && is_transpose(use->node, &found) && order_equal(&found, order)) return use->node;
  }
  return NULL;
}

static bool makes_shape(const Node *node) { return node && (node_is(node, OP_Reshape) || node_is(node, OP_Unsqueeze)); }

static bool read_by_region_alone(const Layout *layout, const Region *region, const Value *value) {
  for (const Use *use = value->uses; use; use = use->next) {
    if (!is_inner_use(layout, region, use)) return false;
  }
  return true;
}

/* Sizes that Reshape can be told: one that is known only at run time is what is left over. */
static bool known_sizes(Type type, int64_t *sizes) {
  uint32_t symbolic = 0;
  for (uint32_t i = 0; i < type.rank; i++) {
    bool constant = dim_is_constant(type.dims[i]);
    if (constant && type.dims[i].constant == 0) return false;
    symbolic += !constant;
    sizes[i] = constant ? type.dims[i].constant : -1;
  }
  return symbolic <= 1;
}

/* Does a Reshape do, because the elements keep their places? What `permuted` makes and what it costs is decided here.
 */
static bool becomes_reshape(const Value *value, const AxisOrder *order) {
  int64_t sizes[MOST_PERMUTED];
  return order_keeps_elements(value->type, order) && known_sizes(value->type, sizes);
}

/* ---- rows of products ---- */

/* Rows of a product that were merged behind a Transpose and are parted again: they are as well merged in another order.
 * So are the queries of grouped heads, several to one of keys. */
typedef struct ProductRows {
  Node *transpose; /* before they are merged */
  Node *part;      /* the Reshape after the product */
} ProductRows;

/* What makes the value, which nothing else reads; NULL: another operator. */
static Node *made_for_one(const Layout *layout, const Value *value, Op op) {
  Node *node = value->producer;
  return node && node->graph == layout->graph && node_is(node, op) && value_has_one_use(value) ? node : NULL;
}

/* The product before it was scaled by a number. */
static const Value *unscaled(const Layout *layout, const Value *value) {
  for (;;) {
    const Node *scale = made_for_one(layout, value, OP_Mul);
    if (!scale) scale = made_for_one(layout, value, OP_Div);
    if (!scale || !unread_constant_of(node_input(scale, 1)) || !is_all_ones(node_input(scale, 1)->type)) return value;
    if (node_input(scale, 0)->type.rank != value->type.rank) return value;
    value = node_input(scale, 0);
  }
}

static bool same_sizes(Type a, Type b, uint32_t first, uint32_t count) {
  for (uint32_t i = first; i < first + count; i++) {
    if (!dim_equal(a.dims[i], b.dims[i])) return false;
  }
  return true;
}

/* Does the Reshape say no size from `first` on by the place of an axis? */
static bool says_sizes(const Node *reshape, uint32_t first) {
  const Tensor *shape = constant_of(node_input(reshape, 1));
  if (!shape || shape->dtype != DTYPE_INT64) return false;
  for (size_t i = first; i < shape->size / sizeof(int64_t); i++) {
    if (((const int64_t *)shape->data)[i] == 0) return false;
  }
  return true;
}

static bool read_product_rows(const Layout *layout, const Value *value, ProductRows *rows) {
  rows->part = value->producer;
  if (!rows->part || rows->part->graph != layout->graph || !node_is(rows->part, OP_Reshape)) return false;
  const Value *product = unscaled(layout, node_input(rows->part, 0));
  const Node *matmul = made_for_one(layout, product, OP_MatMul);
  const Value *left = matmul ? node_input(matmul, 0) : NULL;
  const Node *merge = left ? made_for_one(layout, left, OP_Reshape) : NULL;
  rows->transpose = merge ? made_for_one(layout, node_input(merge, 0), OP_Transpose) : NULL;
  return rows->transpose;
}

/* The rows alone change places: the batch before them and the columns after them stay. */
static bool orders_rows(const Layout *layout, const Value *value, const AxisOrder *order, ProductRows *rows) {
  AxisOrder before;
  int64_t sizes[MOST_PERMUTED];
  if (!read_product_rows(layout, value, rows) || !transpose_order(rows->transpose, &before)) return false;
  const Value *turned = rows->transpose->outputs[0];
  const Node *merge = turned->uses->node;
  Type parted = value->type, from = turned->type, merged = merge->outputs[0]->type;
  Type product = node_input(rows->part, 0)->type;
  uint32_t rank = parted.rank, batch = product.rank - 2;
  if (product.rank < 2 || merged.rank != product.rank || from.rank != rank || rank <= product.rank) return false;
  if (order->rank != rank || !same_sizes(parted, from, 0, rank - 1) || !same_sizes(parted, product, 0, batch))
    return false;
  if (!same_sizes(parted, merged, 0, batch) || !dim_equal(parted.dims[rank - 1], product.dims[product.rank - 1]))
    return false;
  if (!dim_equal(from.dims[rank - 1], merged.dims[product.rank - 1]) || !says_sizes(merge, batch)) return false;
  for (uint32_t i = 0; i < rank; i++) {
    if ((i < batch || i == rank - 1) && order->from[i] != (int64_t)i) return false;
  }
  return known_sizes(parted, sizes);
}

static Value *order_rows(Layout *layout, Value *value, const AxisOrder *order, const ProductRows *rows) {
  Rewriter *rewriter = &layout->rewriter;
  AxisOrder before;
  int64_t sizes[MOST_PERMUTED];
  transpose_order(rows->transpose, &before);
  AxisOrder both = order_then(before, *order);
  Value *turned = rows->transpose->outputs[0];
  node_set_ints(rows->transpose, "perm", both.from, both.rank);
  turned->type = order_type(rewriter->context, turned->type, order);
  value->type = order_type(rewriter->context, value->type, order);
  known_sizes(value->type, sizes);
  use_set(&rows->part->inputs[1],
          rewrite_constant_ints(rewriter, rows->part, sizes, value->type.rank, rows->part->origin));
  return value;
}

/* ---- what comes in and goes out ---- */

static bool reads_region(const Layout *layout, const Region *region, const Node *node) {
  return is_in(region, node_input(node, 0)->producer, layout->graph);
}

/* The Transpose at the border whose input a region in this order can read instead; or NULL. */
static Node *entering_transpose(const Layout *layout, const Region *region, const Value *value, AxisOrder *order) {
  Node *node = value->producer;
  if (value->type.rank != region->rank || !is_transpose(node, order)) return NULL;
  return reads_region(layout, region, node) ? NULL : node;
}

static Cost entering_cost(const Layout *layout, const Region *region, const Value *value, const AxisOrder *order) {
  AxisOrder before;
  const Node *transpose = entering_transpose(layout, region, value, &before);
  if (transpose) {
    AxisOrder both = order_then(before, *order);
    bool goes = read_by_region_alone(layout, region, value);
    Cost cost = {(order_changes_nothing(node_input(transpose, 0)->type, &both) ? 0 : 1) - goes, 0};
    if (goes && is_after_convolution(layout, transpose)) cost.after_convolutions--;
    return cost;
  }
  ProductRows rows;
  if (read_by_region_alone(layout, region, value) && orders_rows(layout, value, order, &rows)) return (Cost){0};
  bool in_place = order_keeps_elements(value->type, order), reshape = becomes_reshape(value, order);
  const Tensor *constant = unread_constant_of(value);
  if (constant) return (Cost){in_place || value_has_one_use(value) || constant->size < 4096 ? 0 : 1, 0};
  if (reshape && makes_shape(value->producer) && value_has_one_use(value)) {
    return (Cost){reads_region(layout, region, value->producer), 0}; /* what leaves counts that one as gone */
  }
  if (value->type.rank < region->rank) return (Cost){reshape ? 1 : 2, 0};
  const Node *there = transpose_that_is_there(layout, value, order);
  if (there) return (Cost){read_by_region_alone(layout, region, there->outputs[0]), 0}; /* it would have gone */
  return (Cost){1, is_convolution(value->producer)};
}

/* Does a Transpose that reads the value have nothing left to do once the value has this order? */
static bool is_undone(Rewriter *rewriter, const Value *value, const AxisOrder *order, const AxisOrder *after) {
  if (order_equal(after, order)) return true;
  AxisOrder rest = order_then(order_inverse(*order), *after);
  return order_changes_nothing(order_type(rewriter->context, value->type, order), &rest);
}

static Cost leaving_cost(Layout *layout, const Region *region, const Value *value, const AxisOrder *order) {
  int64_t removed = 0, back = 0;
  AxisOrder after;
  for (const Use *use = value->uses; use; use = use->next) {
    if (is_inner_use(layout, region, use)) continue;
    if (is_transpose(use->node, &after)) removed += is_undone(&layout->rewriter, value, order, &after);
    else if (!use->node || !absorbs_order(use->node, value, order)) back = 1;
  }
  return (Cost){back - removed, 0};
}

static bool is_operand(const Value *value) {
  for (const Use *use = value->uses; use; use = use->next) {
    if (use->node && node_is(use->node, OP_MatMul)) return true;
  }
  return false;
}

/* Would the order put a Cast behind a Transpose that is there for others, right before a product? fuse_matmul, which
 * knows why that must not be, would put it back. */
static bool brings_cast_to_product(const Layout *layout, const Region *region, const AxisOrder *order) {
  const Node *cast = region->nodes.items[0];
  if (region->nodes.count != 1 || !node_is(cast, OP_Cast)) return false;
  if (!target_has(layout->rewriter.model->target, QUIRK_MATMUL_MERGES_TRANSPOSE_THROUGH_CAST)) return false;
  if (!transpose_that_is_there(layout, node_input(cast, 0), order)) return false;
  for (const Use *use = cast->outputs[0]->uses; use; use = use->next) {
    bool moves = use->node && node_is(use->node, OP_Transpose) && node_moves_first_axis(use->node);
    AxisOrder after;
    if (moves && is_transpose(use->node, &after) && order_equal(&after, order) && is_operand(use->node->outputs[0]))
      return true;
  }
  return false;
}

static Cost region_cost(Layout *layout, const Region *region, const AxisOrder *order) {
  Cost cost = {0};
  if (brings_cast_to_product(layout, region, order)) return (Cost){.nodes = INT64_MAX};
  for (size_t i = 0; i < region->nodes.count; i++) {
    const Node *node = region->nodes.items[i];
    if (!order_is_allowed(mark_of(node)->row, node, order)) return (Cost){.nodes = INT64_MAX};
  }
  for (size_t i = 0; i < region->entering.count; i++) {
    Cost more = entering_cost(layout, region, region->entering.items[i], order);
    cost.nodes += more.nodes;
    cost.after_convolutions += more.after_convolutions;
  }
  for (size_t i = 0; i < region->leaving.count; i++) {
    cost.nodes += leaving_cost(layout, region, region->leaving.items[i], order).nodes;
  }
  return cost;
}

/* ---- taking an order ---- */

static Node *after(const Layout *layout, const Node *producer) {
  return producer && producer->graph == layout->graph ? producer->next : layout->graph->first;
}

static Node *new_transpose(Layout *layout, Value *value, const AxisOrder *order, const Origin *origin, Node *before) {
  Rewriter *rewriter = &layout->rewriter;
  Type type = order_type(rewriter->context, value->type, order);
  origin = origin_with_emitter(rewriter->model->provenance, origin, REWRITE_EMITTER(rewriter));
  Node *node = graph_node(layout->graph, origin, OP_Transpose, &value, 1, &type, 1, before);
  node_set_ints(node, "perm", order->from, order->rank);
  return node;
}

/* All axes of the region's rank, those that were missing leading. */
static Type full_type(Context *context, Type type, uint32_t rank) {
  Dim dims[MOST_PERMUTED];
  uint32_t missing = rank - type.rank;
  for (uint32_t i = 0; i < rank; i++) dims[i] = i < missing ? dim_of(1) : type.dims[i - missing];
  return type_make(context, type.dtype, dims, rank);
}

/* A constant whose elements stay where they are: other sizes over the same data. One that was spread to more axes has
 * no more of them than it needs for that. */
static Value *reshaped_constant(Layout *layout, const Value *value, Type type, const Origin *origin) {
  Rewriter *rewriter = &layout->rewriter;
  Arena *arena = &rewriter->context->arena;
  const Tensor *from = constant_of(value);
  uint32_t first = 0, spread = type.rank - value->type.rank;
  while (first < spread && first + 1 < type.rank && dim_is(type.dims[first], 1)) first++;
  int64_t *dims = arena_new_array(arena, type.rank, int64_t);
  for (uint32_t i = first; i < type.rank; i++) dims[i - first] = type.dims[i].constant;
  Tensor *tensor = arena_copy(arena, from, sizeof *from);
  tensor->rank = type.rank - first;
  tensor->dims = dims;
  if (from->name && !strstr(from->name, "_reshaped")) {
    tensor->name = str_intern(rewriter->context, arena_format(arena, "%s_reshaped", from->name));
    tensor->made_of = names_with(rewriter->context, NULL, from);
  }
  return rewrite_constant(rewriter, layout->graph->first, tensor, origin);
}

static Value *with_all_axes(Layout *layout, Region *region, Value *value, const Origin *origin) {
  Rewriter *rewriter = &layout->rewriter;
  Type type = full_type(rewriter->context, value->type, region->rank);
  if (value->type.rank == region->rank) return value;
  int64_t axes[MOST_PERMUTED];
  uint32_t missing = region->rank - value->type.rank;
  for (uint32_t i = 0; i < missing; i++) axes[i] = i;
  Node *before = after(layout, value->producer);
  Value *inputs[] = {value, rewrite_constant_ints(rewriter, before, axes, missing, origin)};
  origin = origin_with_emitter(rewriter->model->provenance, origin, REWRITE_EMITTER(rewriter));
  return graph_node(layout->graph, origin, OP_Unsqueeze, inputs, 2, &type, 1, before)->outputs[0];
}

/* The value with its axes in the new order: its elements stay in place. NULL: that takes a Transpose. */
static Value *reshaped_to(Layout *layout, Value *value, Type type, const Origin *origin) {
  Rewriter *rewriter = &layout->rewriter;
  int64_t sizes[MOST_PERMUTED];
  if (!known_sizes(type, sizes)) return NULL;
  Node *before = after(layout, value->producer);
  Value *inputs[] = {value, rewrite_constant_ints(rewriter, before, sizes, type.rank, origin)};
  origin = origin_with_emitter(rewriter->model->provenance, origin, REWRITE_EMITTER(rewriter));
  return graph_node(layout->graph, origin, OP_Reshape, inputs, 2, &type, 1, before)->outputs[0];
}

/* What the region reads in place of the output of a Transpose at its border. */
static Value *read_past(Layout *layout, Node *transpose, AxisOrder before, const AxisOrder *order) {
  AxisOrder both = order_then(before, *order);
  Value *source = node_input(transpose, 0);
  Node *receiver = source->producer;
  if (!order_changes_nothing(source->type, &both)) {
    Node *place = transpose->graph == layout->graph ? transpose : layout->graph->first;
    receiver = new_transpose(layout, source, &both, transpose->origin, place);
    source = receiver->outputs[0];
  }
  rewrite_hand_over(&layout->rewriter, receiver, transpose);
  return source;
}

/* What permutes a value is said to come from what makes it; a weight has no such node, but one of the region reads it.
 */
static const Origin *origin_beside(const Layout *layout, const Region *region, const Value *value) {
  if (value->producer || value->origin) return value->producer ? value->producer->origin : value->origin;
  for (const Use *use = value->uses; use; use = use->next) {
    if (is_in(region, use->node, layout->graph)) return use->node->origin;
  }
  return region->nodes.items[0]->origin;
}

static Value *permuted(Layout *layout, Region *region, Value *value, const AxisOrder *order) {
  Context *context = layout->rewriter.context;
  AxisOrder before;
  Node *transpose = entering_transpose(layout, region, value, &before);
  if (transpose) return read_past(layout, transpose, before, order);
  ProductRows rows;
  if (read_by_region_alone(layout, region, value) && orders_rows(layout, value, order, &rows))
    return order_rows(layout, value, order, &rows);
  const Origin *origin = origin_beside(layout, region, value);
  Type type = order_type(context, full_type(context, value->type, region->rank), order);
  if (order_keeps_elements(value->type, order) && constant_of(value))
    return reshaped_constant(layout, value, type, origin);
  bool shapes = value->type.rank < region->rank || makes_shape(value->producer);
  if (shapes && becomes_reshape(value, order)) return reshaped_to(layout, value, type, origin);
  Node *there = value->type.rank == region->rank ? transpose_that_is_there(layout, value, order) : NULL;
  if (there) {
    Node *place = after(layout, value->producer);
    if (there != place) node_move(there, place);
    if (value->producer) rewrite_hand_over(&layout->rewriter, there, value->producer);
    return there->outputs[0];
  }
  value = with_all_axes(layout, region, value, origin);
  return new_transpose(layout, value, order, origin, after(layout, value->producer))->outputs[0];
}

static void enter(Layout *layout, Region *region, const AxisOrder *order) {
  Rewriter *rewriter = &layout->rewriter;
  AxisOrder before;
  for (size_t i = 0; i < region->entering.count; i++) {
    Value *value = region->entering.items[i];
    value->scratch = permuted(layout, region, value, order);
  }
  for (size_t at = 0; at < region->nodes.count; at++) {
    Node *node = region->nodes.items[at];
    for (uint32_t i = 0; i < node->input_count; i++) {
      Value *value = node->inputs[i].value;
      bool outside = value && input_is_permuted(mark_of(node)->row, i) && !is_all_ones(value->type) &&
                     !is_in(region, value->producer, layout->graph);
      if (outside) use_set(&node->inputs[i], value->scratch);
    }
  }
  for (size_t i = 0; i < region->entering.count; i++) {
    Value *value = region->entering.items[i];
    value->scratch = NULL;
    if (is_transpose(value->producer, &before)) rewrite_drop_unused(rewriter, value->producer, NULL);
  }
}

/* A reader outside a region that cares about the order of axes. */
typedef struct Exit {
  Use *use;
  bool transposes;
  AxisOrder after; /* what it does when it transposes */
} Exit;

typedef ARRAY(Exit) Exits;

/* Readers outside the region that do not care are told; the others are collected, while the value has its old type. */
static void absorb_leaving(Layout *layout, Region *region, Value *value, const AxisOrder *order, Exits *exits) {
  Rewriter *rewriter = &layout->rewriter;
  for (Use *use = value->uses; use; use = use->next) {
    if (is_inner_use(layout, region, use)) continue;
    Exit exit = {.use = use};
    exit.transposes = is_transpose(use->node, &exit.after);
    bool undone = exit.transposes && is_undone(rewriter, value, order, &exit.after);
    if (!undone && use->node && absorbs_order(use->node, value, order)) absorb_order(rewriter, use->node, order);
    else array_push(rewriter->context, exits, exit);
  }
}

/* A Transpose back to the order that others want the value in, under its name. */
static Node *transpose_back(Layout *layout, Value *value, const AxisOrder *order) {
  Node *producer = value->producer;
  AxisOrder inverse = order_inverse(*order);
  Node *back = new_transpose(layout, value, &inverse, producer->origin, producer->next);
  *map_slot_pointer(layout->rewriter.context, &layout->sunk, back) = back;
  rewrite_take_name(back->outputs[0], value);
  return back;
}

/* A Reshape that moved axes of size 1 has others to move now. */
static void replace_by_transpose(Layout *layout, Node *reshape, Value *value, const AxisOrder *order) {
  Node *place = reshape->graph == layout->graph ? reshape : value->producer->next;
  rewrite_replace(&layout->rewriter, reshape, new_transpose(layout, value, order, reshape->origin, place)->outputs[0]);
}

/* Transposes last: the name of an output may go to the value that a Transpose back has just been freed of. */
static void leave(Layout *layout, Value *value, const AxisOrder *order, const Exits *exits) {
  AxisOrder inverse = order_inverse(*order);
  Node *back = NULL;
  for (size_t i = 0; i < exits->count; i++) {
    const Exit *exit = &exits->items[i];
    if (exit->transposes) continue;
    if (!back) back = transpose_back(layout, value, order);
    use_set(exit->use, back->outputs[0]);
  }
  for (size_t i = 0; i < exits->count; i++) {
    const Exit *exit = &exits->items[i];
    Node *user = exit->use->node;
    if (!exit->transposes) continue;
    AxisOrder rest = order_then(inverse, exit->after);
    if (order_changes_nothing(value->type, &rest)) rewrite_replace(&layout->rewriter, user, value);
    else if (node_is(user, OP_Transpose)) node_set_ints(user, "perm", rest.from, rest.rank);
    else replace_by_transpose(layout, user, value, &rest);
  }
}

static void take_order(Layout *layout, Region *region, const AxisOrder *order) {
  Rewriter *rewriter = &layout->rewriter;
  Exits *exits = arena_new_array(&rewriter->context->arena, region->leaving.count, Exits);
  for (size_t i = 0; i < region->leaving.count; i++) {
    absorb_leaving(layout, region, region->leaving.items[i], order, &exits[i]);
  }
  enter(layout, region, order);
  for (size_t i = 0; i < region->nodes.count; i++) {
    Node *node = region->nodes.items[i];
    permute_node(rewriter, node, mark_of(node)->row, order);
  }
  for (size_t i = 0; i < region->leaving.count; i++) leave(layout, region->leaving.items[i], order, &exits[i]);
}

static bool is_better(Cost cost, Cost than) {
  return cost.nodes < than.nodes || (cost.nodes == than.nodes && cost.after_convolutions < than.after_convolutions);
}

/* A Narrow stays behind whatever moves elements, as leave_out_roundings puts it. */
static bool is_narrow_alone(const Region *region) {
  return region->nodes.count == 1 && node_is(region->nodes.items[0], OP_Narrow);
}

static void choose_order(Layout *layout, Region *region) {
  Cost best = {0};
  const AxisOrder *chosen = NULL;
  for (size_t i = 0; i < region->order_count; i++) {
    Cost cost = region_cost(layout, region, &region->orders[i]);
    if (!is_better(cost, best) || (cost.nodes == 0 && is_narrow_alone(region))) continue;
    best = cost;
    chosen = &region->orders[i];
  }
  if (chosen) take_order(layout, region, chosen);
}

/* ---- the walk ---- */

static Region *new_region(Layout *layout, Node *node) {
  Region *region = arena_new(&layout->rewriter.context->arena, Region);
  *region = (Region){.number = ++layout->regions, .rank = node->outputs[0]->type.rank};
  mark_of(node)->region = 0;
  add_node(layout, region, node);
  return region;
}

static bool reads_transpose_after_convolution(const Layout *layout, const Node *node) {
  AxisOrder order;
  for (uint32_t i = 0; i < node->input_count; i++) {
    const Value *value = node->inputs[i].value;
    const Node *producer = value ? value->producer : NULL;
    if (is_transpose(producer, &order) && is_after_convolution(layout, producer)) return true;
  }
  return false;
}

/* A Transpose of axes of size 1 beside a Reshape is a Reshape, and the two become one. */
static void make_reshape(Layout *layout, Node *transpose) {
  AxisOrder order;
  Value *source = node_input(transpose, 0), *value = transpose->outputs[0];
  if (!node_is(transpose, OP_Transpose) || !transpose_order(transpose, &order)) return;
  if (!order_keeps_elements(source->type, &order)) return;
  const Node *user = value_only_user(value);
  bool before = user && (node_is(user, OP_Reshape) || node_is(user, OP_Squeeze)) && node_input(user, 0) == value;
  bool behind = makes_shape(source->producer) && value_has_one_use(source);
  if (source->type.dtype == DTYPE_NONE || (!before && !behind)) return;
  Value *reshaped = reshaped_to(layout, source, value->type, transpose->origin);
  if (reshaped) rewrite_replace(&layout->rewriter, transpose, reshaped);
}

/* Readers that the order is lost on read what was transposed. */
static void read_before(Layout *layout, Node *transpose) {
  Rewriter *rewriter = &layout->rewriter;
  Value *source = node_input(transpose, 0), *value = transpose->outputs[0];
  AxisOrder order;
  if (source->type.dtype == DTYPE_NONE || !transpose_order(transpose, &order)) return;
  order = order_inverse(order);
  for (Use *use = value->uses, *next; use; use = next) {
    next = use->next;
    if (!use->node || !absorbs_order(use->node, value, &order)) continue;
    absorb_order(rewriter, use->node, &order);
    rewrite_hand_over(rewriter, use->node, transpose);
    use_set(use, source);
  }
  if (!value->uses) rewrite_drop_unused(rewriter, transpose, NULL);
}

static void clear_scratch(Graph *graph) {
  FOR_EACH_NODE(node, graph) {
    node->scratch = NULL;
    for (uint32_t i = 0; i < node->input_count; i++) {
      if (node->inputs[i].value) node->inputs[i].value->scratch = NULL;
    }
    for (uint32_t i = 0; i < node->output_count; i++) {
      if (node->outputs[i]) node->outputs[i]->scratch = NULL;
    }
  }
}

static void lay_out(Graph *graph, void *data) {
  Layout *layout = data;
  Context *context = layout->rewriter.context;
  AxisOrder order;
  bool any = false;
  layout->graph = graph;
  clear_scratch(graph);
  for (Node *node = graph->first, *next; node; node = next) {
    next = node->next;
    if (!is_transpose(node, &order)) continue;
    any = true;
    if (node->outputs[0]->uses) read_before(layout, node);
    if (node->outputs[0]->uses) make_reshape(layout, node);
  }
  if (!any) return;
  FOR_EACH_NODE(node, graph) {
    const PermuteRow *row = permutable(node);
    if (!row) continue;
    Mark *mark = arena_new(&context->arena, Mark);
    *mark = (Mark){.row = row};
    node->scratch = mark;
  }
  FOR_EACH_NODE(node, graph) {
    if (!mark_of(node) || mark_of(node)->region) continue;
    Region *region = new_region(layout, node);
    grow_region(layout, region);
    find_border(layout, region);
    choose_order(layout, region);
  }
  FOR_EACH_NODE(node, graph) {
    if (!mark_of(node) || !reads_transpose_after_convolution(layout, node)) continue;
    Region *region = new_region(layout, node);
    find_border(layout, region);
    choose_order(layout, region);
  }
}

bool cancel_transposes(Model *model) {
  Layout layout = {0};
  rewrite_begin(&layout.rewriter, model, __func__);
  model_each_graph(model, lay_out, &layout);
  return rewrite_end(&layout.rewriter);
}
