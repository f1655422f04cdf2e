/* Equality of tensors and attributes. */
#ifndef J2O_ONNX_GRAPH_SAME_H
#define J2O_ONNX_GRAPH_SAME_H

#include "onnx/graph/graph.h"

/* By content up to LARGEST_COMPARED bytes, else by where the data lies. Names count: parameters are told apart. */
enum { LARGEST_COMPARED = 1 << 20 };
bool same_tensor(const Tensor *a, const Tensor *b);
uint64_t tensor_hash(const Tensor *tensor);

/* Graphs are never the same here, and count for nothing in a hash: who compares them does so node by node. */
bool same_attribute(const Attribute *a, const Attribute *b);
bool same_attributes(const Node *a, const Node *b); /* in whatever order they stand */

/* Of what a tensor counts for: tensor_hash, or one's own. Names count by their text, so that models of two contexts
 * can be compared. */
typedef uint64_t TensorHash(const Tensor *tensor);
uint64_t attribute_hash(const Attribute *attribute, TensorHash *hash_tensor);
uint64_t attributes_hash(const Node *node, TensorHash *hash_tensor); /* in whatever order they stand */

#endif
