/* Quantized: integers of 8 and 4 bits that stand for floats, and the products that they are stored for. */
#ifndef J2O_PASSES_ANALYSIS_QUANTIZED_H
#define J2O_PASSES_ANALYSIS_QUANTIZED_H

#include "onnx/graph/graph.h"

bool is_small_integer(DType dtype);
bool is_small_number(DType dtype); /* or a float of 8 bits */

/* A float32 matrix, or more axes, whose elements are whole numbers that a byte with a sign holds, as weights are that
 * were rounded in floats. Masks and unit matrices are none: what 4 bits hold has both signs and is large. */
bool is_whole_weight(const Value *value);

/* Is a product of matrices or a convolution all that the value is made for, whatever casts, moves, or scales it by
 * constants on the way? */
bool leads_to_product(const Value *value);

/* Is it a constant, or computed of constants alone, in few steps? A runtime makes it one. */
bool is_known_at_export(const Value *value);
/* Its elements; NULL when it is not known, or they cannot be computed here. Nothing is stored. */
const Tensor *known_tensor_of(Context *context, const Value *value, int64_t opset);

#endif
