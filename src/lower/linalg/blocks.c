/* Blocks: a large matrix some columns or rows at a time. */
#include "lower/linalg/blocks.h"

#include "base/bytes.h"
#include "lower/control/loops.h"
#include "lower/elementwise/arithmetic.h"
#include "lower/linalg/matrices.h"

/* Measured with ONNX Runtime on one core in float32, without and with blocks: cholesky of 256 rows takes 8.2 and 6.0
 * ms, of 512 rows 48 and 23 ms, of 1024 rows 351 and 103 ms; inv 25 and 18, 148 and 63, 1079 and 294 ms. At 160 rows
 * there is nothing to gain, and other sizes of blocks gain less. */
enum { BLOCK = 32, LARGE = 256 };

Value *place_of(Lowering *l, const Block *block, Value *index) {
  return block->first ? EMIT_MATH(l, OP_Add, index, block->first) : index;
}

Value *part_of(Lowering *l, Value *matrix, int64_t axis, const Block *block) {
  return block->places ? slice_of(l, matrix, axis, block->places) : matrix;
}

static Block block_at(Lowering *l, Value *first, int64_t size) {
  int64_t *numbers = arena_new_array(&l->context->arena, (size_t)size, int64_t);
  for (int64_t i = 0; i < size; i++) numbers[i] = i;
  Value *places = EMIT_MATH(l, OP_Add, constant_ints(l, numbers, (size_t)size), first);
  return (Block){dim_of(size), first, places};
}

static Value *number(Lowering *l, int64_t value) { return constant_ints(l, &value, 1); }

/* The blocks of equal size, in a loop; the first of them begins at start. */
static BlockWork equal_blocks(Lowering *l, const ByBlocks *plan, int64_t start, int64_t count, Value *const *carried) {
  Loop *loop = loop_begin(l, "blocks", dim_of(count), plan->backwards, carried, plan->carried_count);
  Value *first = EMIT_MATH(l, OP_Mul, loop->index, number(l, BLOCK));
  if (start) first = EMIT_MATH(l, OP_Add, first, number(l, start));
  Block block = block_at(l, first, BLOCK);
  BlockWork work = plan->work(l, loop->carried, &block, plan->data);
  for (size_t i = 0; i < plan->piece_count; i++) loop_collect(loop, work.pieces[i], plan->axes[i]);
  Value **results = emit_loop_end(loop, HERE, work.carried, plan->carried_count);
  copy_bytes(work.carried, results, plan->carried_count * sizeof *results);
  copy_bytes(work.pieces, results + plan->carried_count, plan->piece_count * sizeof *results);
  return work;
}

static Value *joined(Lowering *l, Value *a, Value *b, int64_t axis) {
  Dim size = dim_add(l->context, size_along(a, axis), size_along(b, axis));
  return concat_at(l, VALUES(a, b), 2, axis + a->type.rank, resized(l, a->type, axis, size));
}

BlockWork by_blocks(Lowering *l, const ByBlocks *plan, Value *const *carried) {
  int64_t size = plan->size.constant;
  if (!dim_is_constant(plan->size) || size < LARGE) {
    return plan->work(l, carried, &(Block){.size = plan->size}, plan->data);
  }
  int64_t count = size / BLOCK, remainder = size % BLOCK, start = plan->backwards ? remainder : 0;
  BlockWork equal = equal_blocks(l, plan, start, count, carried);
  if (!remainder) return equal;
  Block block = block_at(l, number(l, plan->backwards ? 0 : size - remainder), remainder);
  BlockWork last = plan->work(l, equal.carried, &block, plan->data);
  for (size_t i = 0; i < plan->piece_count; i++) {
    Value *before = plan->backwards ? last.pieces[i] : equal.pieces[i];
    Value *behind = plan->backwards ? equal.pieces[i] : last.pieces[i];
    last.pieces[i] = joined(l, before, behind, plan->axes[i]);
  }
  return last;
}
