/* Indexing: what gather, scatter and the dynamic slices share.
 *
 * An Access says, for every dimension of an array, which window is read or written: the whole of it, a window at a
 * start known at export, one position per batch entry, or a window whose start is computed at run time (a column).
 */
#ifndef J2O_LOWER_DATA_INDEXING_H
#define J2O_LOWER_DATA_INDEXING_H

#include "lower/lower.h"

typedef enum BoundsMode { BOUNDS_CLIPPED, BOUNDS_DROPPED, BOUNDS_PROMISED } BoundsMode;

typedef struct IndexColumn {
  uint32_t dim;    /* of the operand */
  Value *value;    /* the start of the window, one per batch entry: int32 or int64, shaped as the batch */
  Value *original; /* the start that never is negative, where value may count from the end; else NULL */
} IndexColumn;

typedef struct Access {
  Type operand;
  BoundsMode mode;
  uint32_t batch_rank;
  const Dim *batch;           /* the dimensions of the indices but the last */
  Dim size[MAX_RANK];         /* of the window, by operand dimension */
  Dim start[MAX_RANK];        /* of the window where there is neither a column nor a batch dimension */
  int32_t batch_of[MAX_RANK]; /* the batch dimension that selects the position, or -1 */
  bool dropped[MAX_RANK];     /* the window's dimension is not in the gathered array or the updates */
  IndexColumn columns[MAX_RANK];
  uint32_t column_count; /* ascending by dim */
  Value *tuples;         /* the indices as they came: batch × columns; NULL once a column differs */
  Value *in_bounds;      /* bool, shaped as the batch; NULL: every window is within the operand */
} Access;

/* Fills an Access from the indices, given operand, mode, batch and windows: columns with their bounds taken care of,
 * so that every start is safe to use. map[i] is the operand dimension that indices[..., i] addresses. */
void access_columns(Lowering *l, Access *access, Value *indices, const int64_t *map, size_t count);
/* As access_columns, for starts given as one scalar each. */
void access_scalars(Lowering *l, Access *access, Value *const *starts, size_t count);
void access_init(Lowering *l, Access *access, Type operand, BoundsMode mode, const Dim *batch, uint32_t batch_rank);
BoundsMode access_mode(Lowering *l); /* the equation's mode */
/* A list of the equation's dimension_numbers; empty when it has none of that name. */
const int64_t *dimension_list(Lowering *l, const char *field, size_t *count);
bool list_holds(const int64_t *numbers, size_t count, int64_t number);
bool access_is_single(const Access *access);                  /* one batch entry only */
int32_t access_column_of(const Access *access, uint32_t dim); /* -1: none */

/* The elements of integers that are known at export, as they lie; NULL: they are not. */
const Tensor *known_numbers(Lowering *l, const Value *value);

/* The starts of a column, none of them negative. */
Value *nonnegative_starts(Lowering *l, const Access *access, const IndexColumn *column);

/* 0, 1, …, size - 1 plus first, as int64 along one axis of an array of that rank whose other axes are 1. */
Value *axis_numbers(Lowering *l, Dim first, Dim size, uint32_t axis, uint32_t rank);
/* Moves the axes of value, all of them in ascending order, to the given axes of an array of that rank. */
Value *align_axes(Lowering *l, Value *value, const int64_t *axes, uint32_t rank);
/* Index tuples: int64 values, each broadcastable to dims, become dims × count. */
Value *index_tuples(Lowering *l, Value *const *columns, size_t count, const Dim *dims, uint32_t rank);
/* Where, in a type that runs. */
Value *choose(Lowering *l, Value *condition, Value *yes, Value *no, Type type);

/* One window of operand rank (dynamic_slice.c): read it, or replace it. Starts are single numbers. */
Value *window_read(Lowering *l, const Access *access, Value *operand);
Value *window_replace(Lowering *l, const Access *access, Value *operand, Value *update);

/* Caches that are written along one axis (cache_writes.c): the axis, where the target has an operator for it and all
 * other windows are whole, perhaps but for the first axis, whose every position has a start of its own; else 0. */
uint32_t written_axis(const Lowering *l, const Access *access);
/* The operand with the update, of the operand's rank, from the starts of that axis on. */
Value *write_along(Lowering *l, const Access *access, Value *operand, Value *update);

#endif
