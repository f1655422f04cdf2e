/* The axes of a cell as the operator has them, and back. */
#include "passes/fuse/recurrent_cell.h"

Node *cell_node(Cell *cell, Emitter emitter, Op op, Value *const *inputs, size_t count, Type type) {
  const Origin *origin = origin_with_emitter(cell->rewriter->model->provenance, cell->scan->origin, emitter);
  return graph_node(cell->scan->graph, origin, op, inputs, count, &type, 1, cell->scan);
}

static Value *with_axes(Cell *cell, Value *value, const int64_t *axes, size_t count, Type type, Op op) {
  Value *numbers = rewrite_constant_ints(cell->rewriter, cell->scan, axes, count, cell->scan->origin);
  return cell_node(cell, REWRITE_EMITTER(cell->rewriter), op, (Value *[]){value, numbers}, 2, type)->outputs[0];
}

Dim cell_batch(const Cell *cell) {
  Dim size = dim_of(1);
  for (uint32_t i = 0; i < cell->frame.batches; i++)
    size = dim_multiply(cell->rewriter->context, size, cell->frame.sizes[ALONG_BATCH + i]);
  return size;
}

Value *cell_in_type(Cell *cell, Value *value, DType dtype) {
  return rewrite_in_type(cell->rewriter, cell->scan, cell->scan->origin, value, dtype);
}

/* What each axis of a value is; ALONG_NOTHING for those of size 1 that are none of these. */
typedef struct Layout {
  uint32_t rank;
  uint32_t at[MOST_VIEWED + 1];
} Layout;

static uint32_t layout_find(const Layout *layout, uint32_t along) {
  uint32_t axis = 0;
  while (axis < layout->rank && layout->at[axis] != along) axis++;
  return axis;
}

/* An axis of size 1 stands for what the view does not vary along. */
static void name_axis(Layout *layout, uint32_t along, bool from_end) {
  if (layout_find(layout, along) < layout->rank) return;
  for (uint32_t i = 0; i < layout->rank; i++) {
    uint32_t axis = from_end ? layout->rank - 1 - i : i;
    if (layout->at[axis] != ALONG_NOTHING) continue;
    layout->at[axis] = along;
    return;
  }
}

static Layout layout_of(const View *view, bool has_steps) {
  Layout layout = {.rank = view->value->type.rank};
  for (uint32_t i = 0; i < layout.rank; i++) layout.at[i] = view->axes[i].along;
  name_axis(&layout, ALONG_FEATURES, true);
  if (has_steps) name_axis(&layout, ALONG_STEPS, false);
  name_axis(&layout, ALONG_BATCH, false);
  return layout;
}

/* Steps, batch, features, as the operator has them, with an axis for each axis of the batch. */
static Layout operator_layout(const Cell *cell, uint32_t lead, uint32_t second) {
  Layout layout = {.rank = 1, .at = {lead}};
  uint32_t batches = cell->frame.batches > 1 ? cell->frame.batches : 1;
  if (second != ALONG_ALL) layout.at[layout.rank++] = second;
  for (uint32_t i = 0; i < batches; i++) layout.at[layout.rank++] = ALONG_BATCH + i;
  layout.at[layout.rank++] = ALONG_FEATURES;
  return layout;
}

/* Leaves out, or puts in, axes of size 1. */
static Value *with_layout(Cell *cell, Value *value, const Layout *from, const Layout *to, Op op) {
  const Layout *longer = op == OP_Squeeze ? from : to, *shorter = op == OP_Squeeze ? to : from;
  int64_t axes[MOST_VIEWED + 1];
  Dim dims[MOST_VIEWED + 1];
  size_t count = 0;
  for (uint32_t i = 0; i < longer->rank; i++) {
    uint32_t at = layout_find(shorter, longer->at[i]);
    bool is_single = longer->at[i] == ALONG_NOTHING || at == shorter->rank;
    if (is_single) axes[count++] = i;
    if (op == OP_Squeeze && !is_single) dims[i - count] = value->type.dims[i];
    if (op == OP_Unsqueeze) dims[i] = is_single ? dim_of(1) : value->type.dims[at];
  }
  if (!count) return value;
  uint32_t rank = longer->rank - (op == OP_Squeeze ? (uint32_t)count : 0);
  return with_axes(cell, value, axes, count, type_make(cell->rewriter->context, value->type.dtype, dims, rank), op);
}

/* Those of one layout that the other has too, in its order. */
static Layout layout_shared(const Layout *order, const Layout *other) {
  Layout shared = {0};
  for (uint32_t i = 0; i < order->rank; i++) {
    if (order->at[i] != ALONG_NOTHING && layout_find(other, order->at[i]) < other->rank)
      shared.at[shared.rank++] = order->at[i];
  }
  return shared;
}

static Value *arranged(Cell *cell, Value *value, const Layout *from, const Layout *to) {
  Layout kept = layout_shared(from, to), wanted = layout_shared(to, from);
  int64_t order[MOST_VIEWED + 1];
  Dim dims[MOST_VIEWED + 1];
  bool moves = false;
  value = with_layout(cell, value, from, &kept, OP_Squeeze);
  for (uint32_t i = 0; i < wanted.rank; i++) {
    order[i] = layout_find(&kept, wanted.at[i]);
    dims[i] = value->type.dims[order[i]];
    moves = moves || order[i] != i;
  }
  if (moves) {
    Type type = type_make(cell->rewriter->context, value->type.dtype, dims, wanted.rank);
    Node *node = cell_node(cell, REWRITE_EMITTER(cell->rewriter), OP_Transpose, &value, 1, type);
    node_set_ints(node, "perm", order, wanted.rank);
    value = node->outputs[0];
  }
  return with_layout(cell, value, &wanted, to, OP_Unsqueeze);
}

static Value *reshaped(Cell *cell, Value *value, const Dim *dims, uint32_t rank) {
  int64_t sizes[MOST_VIEWED + 1];
  for (uint32_t i = 0; i < rank; i++) sizes[i] = dim_is_constant(dims[i]) ? dims[i].constant : i == 0 ? 0 : -1;
  Value *shape = rewrite_constant_ints(cell->rewriter, cell->scan, sizes, rank, cell->scan->origin);
  Type type = type_make(cell->rewriter->context, value->type.dtype, dims, rank);
  return cell_node(cell, REWRITE_EMITTER(cell->rewriter), OP_Reshape, (Value *[]){value, shape}, 2, type)->outputs[0];
}

Value *cell_arranged(Cell *cell, Value *value, const View *view, uint32_t lead) {
  Layout from = layout_of(view, lead == ALONG_STEPS), to = operator_layout(cell, lead, ALONG_ALL);
  return arranged(cell, value, &from, &to);
}

Value *cell_with_one_batch(Cell *cell, Value *value) {
  if (cell->frame.batches < 2) return value;
  Type type = value->type;
  return reshaped(cell, value, (Dim[]){type.dims[0], cell_batch(cell), type.dims[type.rank - 1]}, 3);
}

Value *cell_for_operator(Cell *cell, Value *value, const View *view, uint32_t lead) {
  return cell_with_one_batch(cell, cell_arranged(cell, cell_in_type(cell, value, cell->dtype), view, lead));
}

bool cell_can_part_batch(const Cell *cell) {
  uint32_t unknown = 0;
  for (uint32_t i = 0; i < cell->frame.batches; i++) unknown += !dim_is_constant(cell->frame.sizes[ALONG_BATCH + i]);
  return cell->frame.batches < 2 || unknown < 2;
}

Value *cell_from_operator(Cell *cell, Value *result, const View *view, bool has_steps) {
  Layout from = operator_layout(cell, has_steps ? ALONG_STEPS : ALONG_NOTHING, has_steps ? ALONG_NOTHING : ALONG_ALL);
  Layout to = layout_of(view, false);
  if (has_steps) {
    for (uint32_t i = to.rank++; i > 0; i--) to.at[i] = to.at[i - 1];
    to.at[0] = ALONG_STEPS;
  }
  if (cell->frame.batches > 1) {
    Dim dims[MOST_VIEWED + 1];
    for (uint32_t i = 0; i < from.rank; i++) {
      bool of_batch = from.at[i] >= ALONG_BATCH;
      dims[i] = of_batch ? cell->frame.sizes[from.at[i]] : result->type.dims[i < 2 ? i : result->type.rank - 1];
    }
    result = reshaped(cell, result, dims, from.rank);
  }
  return arranged(cell, result, &from, &to);
}
