/* The axis of a running reduction by Scan, as the target can run it.
 *
 * Where its Scan must take a step, an axis that may turn out to be empty gets a step more; where it cannot stack arrays
 * without elements along another axis than the first, what may be empty is stacked in front and moved.
 */
#ifndef J2O_LOWER_CONTROL_SCAN_AXIS_H
#define J2O_LOWER_CONTROL_SCAN_AXIS_H

#include "lower/lower.h"

typedef struct ScanAxis {
  Type type; /* of the whole array */
  int64_t axis;
  bool backwards;
  bool padded;     /* by a step before the first one */
  int64_t stacked; /* the axis that Scan stacks results along */
} ScanAxis;

/* Is it known that the target's Scan runs over so many steps? */
bool scan_can_run(const Lowering *l, Dim steps);

ScanAxis scan_axis(Lowering *l, Type type, int64_t axis, bool backwards);
/* What Scan goes along: the array, and the scalar where there is a step more. */
Value *scan_operand(Lowering *l, const ScanAxis *scan, Value *value, Value *scalar);
Type scan_stacked_type(Lowering *l, const ScanAxis *scan);
/* The results of all steps as an array of the whole type. */
Value *scan_result(Lowering *l, const ScanAxis *scan, Value *stacked);

#endif
