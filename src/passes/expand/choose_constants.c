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

/* One number, or one for each of `count`; no parameter. */
static const Tensor *read_numbers(const Value *value, int64_t count) {
  const Tensor *tensor = value ? constant_of(value) : NULL;
  if (!tensor || !tensor->data || tensor->name || tensor->made_of || dtype_bits(tensor->dtype) < 8) return NULL;
  size_t width = dtype_bytes(tensor->dtype, 1);
  return tensor->size == width || (count > 1 && tensor->size == width * (size_t)count) ? tensor : NULL;
}

static bool is_number(const Tensor *tensor, double wanted) {
  uint64_t bits = number_encode(tensor->dtype, wanted);
  size_t width = dtype_bytes(tensor->dtype, 1);
  return tensor->size == width && same_bytes(tensor->data, &bits, width);
}

static Value *as_number(Rewriter *rewriter, Node *node, DType dtype) {
  Value *condition = node_input(node, 0);
  Type type = type_with(condition->type, dtype);
  Node *cast = graph_node(node->graph, REWRITE_ORIGIN(rewriter, node), OP_Cast, &condition, 1, &type, 1, node);
  node_set_int(cast, "to", onnx_dtype(dtype));
  return cast->outputs[0];
}

static void put_row(char *row, const Tensor *from, size_t width, int64_t count) {
  for (int64_t i = 0; i < count; i++) {
    const char *number = (const char *)from->data + (from->size == width ? 0 : (size_t)i * width);
    copy_bytes(row + (size_t)i * width, number, width);
  }
}

/* What is chosen where the condition is false, then where it is true: numbers, or rows of that shape. */
static Value *table_of(Rewriter *rewriter, Node *node, const Tensor *no, const Tensor *yes, Type row) {
  Arena *arena = &rewriter->context->arena;
  Tensor *table = arena_new(arena, Tensor);
  int64_t *dims = arena_new_array(arena, row.rank + 1, int64_t), count = 1;
  size_t width = dtype_bytes(no->dtype, 1);
  dims[0] = 2;
  for (uint32_t i = 0; i < row.rank; i++) count *= dims[i + 1] = row.dims[i].constant;
  char *data = arena_alloc(arena, 2 * (size_t)count * width);
  put_row(data, no, width, count);
  put_row(data + (size_t)count * width, yes, width, count);
  *table = (Tensor){.dtype = no->dtype, .rank = row.rank + 1, .dims = dims, .data = data};
  table->size = 2 * (size_t)count * width;
  return rewrite_constant(rewriter, node, table, node->origin);
}

static Value *looked_up(Rewriter *rewriter, Node *node, const Tensor *no, const Tensor *yes, Type row) {
  Value *inputs[] = {table_of(rewriter, node, no, yes, row), as_number(rewriter, node, DTYPE_INT32)};
  Type type = node->outputs[0]->type;
  return graph_node(node->graph, REWRITE_ORIGIN(rewriter, node), OP_Gather, inputs, 2, &type, 1, node)->outputs[0];
}

static void choose(Rewriter *rewriter, Node *node) {
  if (!node_is(node, OP_Where) || node->input_count != 3) return;
  Type type = node->outputs[0]->type, when = node_input(node, 0)->type;
  int64_t count = 0;
  if (type_is_unranked(type) || type_is_unranked(when) || type.dtype == DTYPE_BOOL) return;
  /* One condition chooses a row; several choose a number each. */
  bool is_row = when.rank == 0 && type.rank > 0, is_few = type_count(type, &count) && count > 0 && count <= FEW;
  if (!(is_row && is_few) && !type_same_shape(when, type)) return;
  const Tensor *yes = read_numbers(node_input(node, 1), is_row ? count : 1);
  const Tensor *no = read_numbers(node_input(node, 2), is_row ? count : 1);
  if (!yes || !no) return;
  if (!is_row && is_number(yes, 1) && is_number(no, 0)) {
    rewrite_replace(rewriter, node, as_number(rewriter, node, type.dtype));
  } else if (is_few && stands_in_loop(node->graph)) {
    rewrite_replace(rewriter, node, looked_up(rewriter, node, no, yes, is_row ? type : (Type){.dtype = type.dtype}));
  }
}

bool choose_constants(Model *model) {
  Rewriter rewriter;
  rewrite_begin(&rewriter, model, __func__);
  rewrite_each_node(&rewriter, choose);
  return rewrite_end(&rewriter);
}
