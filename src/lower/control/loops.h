/* Loops: an algorithm of counted steps over carried values, written as a begin/end pair around its body.
 *
 *   Loop *loop = LOOP_BEGIN(l, "cholesky", size, matrix);   initial values of what is carried
 *   Value *rest = loop->carried[0];                         the value in this step; loop->index is the step's number
 *   ...                                                     nodes made here are the body's
 *   loop_collect(loop, column, -1);                         what all steps give, joined along an axis
 *   Value **results = EMIT_LOOP(loop, rest_after);           the last carried values, then what was collected
 *
 * Everything between begin and end is evaluated once a step, but what depends on no step is moved out by a pass. Values
 * made in the body are not to be used behind the end.
 */
#ifndef J2O_LOWER_CONTROL_LOOPS_H
#define J2O_LOWER_CONTROL_LOOPS_H

#include "lower/lower.h"

enum { MAX_CARRIED = 12, MAX_COLLECTED = 8 };

typedef struct Loop {
  Lowering *l;
  Graph *outer;   /* the graph around the body */
  Dim count;      /* of steps, at most */
  bool backwards; /* from count - 1 down to 0; what is collected still stands in the order of the index */
  Value *index;   /* int64[1]: which step this is */
  Value *go_on;   /* bool, rank 0: set by the body to stop early; NULL: all steps are taken */
  Value *carried[MAX_CARRIED];
  Value *initial[MAX_CARRIED];
  size_t carried_count;
  Value *collected[MAX_COLLECTED];
  int64_t collected_axes[MAX_COLLECTED];
  size_t collected_count;
} Loop;

Loop *loop_begin(Lowering *l, const char *name, Dim count, bool backwards, Value *const *initial, size_t initial_count);
#define LOOP_BEGIN(l, name, count, ...) \
  loop_begin((l), (name), (count), false, VALUES(__VA_ARGS__), COUNT_OF(__VA_ARGS__))
#define LOOP_BEGIN_BACKWARDS(l, name, count, ...) \
  loop_begin((l), (name), (count), true, VALUES(__VA_ARGS__), COUNT_OF(__VA_ARGS__))

/* The value is kept from each step, and all are joined along the axis (negative: from the end): a column of each step
 * to a matrix, say. Not in a loop that stops early, where the number of steps is not known. */
void loop_collect(Loop *loop, Value *value, int64_t axis);

/* Takes the carried values for the next step, in the order of begin and of the same types. */
Value **emit_loop_end(Loop *loop, Here here, Value *const *next, size_t next_count);
#define EMIT_LOOP(loop, ...) emit_loop_end((loop), HERE, VALUES(__VA_ARGS__), COUNT_OF(__VA_ARGS__))

#endif
