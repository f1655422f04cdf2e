/* Printing a model in the ONNX text syntax, as onnx.parser.parse_model reads it.
 *
 * The syntax has no place for a node's metadata: they are comment lines above the node. Large tensors are printed
 * without their elements, attributes of kinds that the syntax cannot say as comments.
 */
#ifndef J2O_ONNX_FILE_PRINT_H
#define J2O_ONNX_FILE_PRINT_H

#include "base/builder.h"
#include "onnx/graph/graph.h"

void model_print(Builder *out, const Model *model);

#endif
