/* Blocks: a large matrix is factored or solved some columns or rows at a time, so that most of the work is one MatMul a
 * block. A small matrix is one block, and so is one whose size is not known at export. */
#ifndef J2O_LOWER_LINALG_BLOCKS_H
#define J2O_LOWER_LINALG_BLOCKS_H

#include "lower/lower.h"

enum { MAX_PIECES = 4, MAX_BLOCK_CARRIED = 2 };

typedef struct Block {
  Dim size;
  Value *first;  /* int64[1]: which row or column of the matrix it begins with; NULL: it is the whole */
  Value *places; /* int64[size]: all of them; NULL as above */
} Block;

/* Where in the matrix something in the block stands. */
Value *place_of(Lowering *l, const Block *block, Value *index);
/* The rows (ROWS) or columns (COLUMNS) of the block. */
Value *part_of(Lowering *l, Value *matrix, int64_t axis, const Block *block);

/* What a block's work gives: values for the next block, and pieces of the result. */
typedef struct BlockWork {
  Value *carried[MAX_BLOCK_CARRIED];
  Value *pieces[MAX_PIECES];
} BlockWork;

typedef BlockWork BlockFunction(Lowering *l, Value *const *carried, const Block *block, const void *data);

typedef struct ByBlocks {
  BlockFunction *work;
  const void *data; /* for work */
  Dim size;         /* how many rows or columns there are in all */
  bool backwards;   /* from the last to the first */
  size_t carried_count, piece_count;
  int64_t axes[MAX_PIECES]; /* along which the pieces are joined */
} ByBlocks;

/* Works on all blocks, beginning with these carried values; gives the last ones and the pieces joined. */
BlockWork by_blocks(Lowering *l, const ByBlocks *plan, Value *const *carried);

#endif
