/* Operators that do the same whatever the order of their axes is, once their parameters say so.
 *
 * An order of axes is written as Transpose's perm: axis i of the result is axis order.from[i] of the source.
 */
#ifndef J2O_PASSES_LAYOUT_PERMUTE_AXES_H
#define J2O_PASSES_LAYOUT_PERMUTE_AXES_H

#include "passes/rewrite.h"

enum { MOST_PERMUTED = 8 /* axes */ };

typedef struct AxisOrder {
  uint32_t rank;
  int64_t from[MOST_PERMUTED]; /* as perm */
  int64_t to[MOST_PERMUTED];   /* where an axis of the source goes: the inverse */
} AxisOrder;

/* From a Transpose, or from a Reshape that does nothing but move axes of size 1; false: the node is neither, or has too
 * many axes, or unknown ones. */
bool transpose_order(const Node *node, AxisOrder *order);
AxisOrder order_inverse(AxisOrder order);
AxisOrder order_then(AxisOrder first, AxisOrder second);       /* of two Transposes in a row */
AxisOrder order_without(const AxisOrder *order, int64_t axis); /* of those left without an axis of the result */
bool order_equal(const AxisOrder *a, const AxisOrder *b);
bool order_is_identity(const AxisOrder *order);
/* Does a Transpose of this type change nothing? Axes of size 1 may change places among themselves. */
bool order_changes_nothing(Type type, const AxisOrder *order);
Type order_type(Context *context, Type type, const AxisOrder *order);
/* Do the elements keep their places in memory, because only axes of size 1 move? Missing axes lead and are 1. */
bool order_keeps_elements(Type type, const AxisOrder *order);

typedef struct PermuteRow PermuteRow;

/* The row of a node whose axes can be permuted as they are now: all sizes and axes that matter are constants. */
const PermuteRow *permutable(const Node *node);
/* Are the axes of this input those of the result, broadcast? The others (shapes, axes, scalars) are parameters. */
bool input_is_permuted(const PermuteRow *row, uint32_t input);
/* Does the operator run with its axes in this order? */
bool order_is_allowed(const PermuteRow *row, const Node *node, const AxisOrder *order);
/* Changes attributes and parameters for inputs that have been permuted, and the types of the results. */
void permute_node(Rewriter *rewriter, Node *node, const PermuteRow *row, const AxisOrder *order);

/* Can this user read the value with its axes permuted and still give the same? A Reshape or Squeeze that drops the axes
 * of size 1 which move, a reduction that drops the axes that change place. */
bool absorbs_order(const Node *user, const Value *value, const AxisOrder *order);
void absorb_order(Rewriter *rewriter, Node *user, const AxisOrder *order);

#endif
