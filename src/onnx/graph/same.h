/* Equality of tensors and attributes. */
#ifndef J2O_ONNX_GRAPH_SAME_H
#define J2O_ONNX_GRAPH_SAME_H

#include "onnx/graph/graph.h"

/* By content up to LARGEST_COMPARED bytes, else by where the data lies. Names count: parameters are told apart. */
enum { LARGEST_COMPARED = 1 << 20 };
bool same_tensor(const Tensor *a, const Tensor *b);
uint64_t tensor_hash(const Tensor *tensor);

/* Graphs are never the same here. */
bool same_attribute(const Attribute *a, const Attribute *b);
uint64_t attribute_hash(const Attribute *attribute);

#endif
