/* A part of a stacked constant: one step along its first axis, where it lies. */
#ifndef J2O_TYPES_TENSOR_PART_H
#define J2O_TYPES_TENSOR_PART_H

#include "types/tensor.h"

/* NULL where parts do not begin at bytes, or the elements are neither in memory nor in a file that the model refers to.
 * Nothing is copied; the name of the part is that of the whole and the number of the step. */
const Tensor *tensor_part(Context *context, const Tensor *stacked, int64_t index);

#endif
