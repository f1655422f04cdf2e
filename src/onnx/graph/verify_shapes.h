/* What the rules of the verifier share: shapes that may be known in part, constants, axes. */
#ifndef J2O_ONNX_GRAPH_VERIFY_SHAPES_H
#define J2O_ONNX_GRAPH_VERIFY_SHAPES_H

#include "onnx/graph/verify_node.h"

/* A size that nothing is known of is negative. */
typedef struct Shape {
  uint32_t rank;
  Dim dims[MAX_RANK];
} Shape;

typedef struct Ints {
  size_t count;
  int64_t items[2 * MAX_RANK];
} Ints;

/* Works out what it can of the outputs' shapes, and holds it against the shapes that they have. */
typedef void Rule(Verification *verification, const Node *node);

#define ANY_SIZE ((Dim){.constant = -1})
static inline bool is_size(Dim dim) { return dim_is_constant(dim) && dim.constant >= 0; }
static inline bool sizes_clash(Dim a, Dim b) { return is_size(a) && is_size(b) && a.constant != b.constant; }

/* The type, when it says how many axes there are; else NULL. */
const Type *ranked(const Value *value);
const Type *ranked_input(const Node *node, size_t index);
const Type *ranked_output(const Node *node, size_t index);

Shape shape_of(const Type *type);
Shape any_shape(uint32_t rank);
const char *shape_text(Context *context, const Dim *dims, uint32_t rank);
const char *shape_of_type(Verification *verification, const Type *type); /* its text */
bool shape_agrees(const Type *type, const Shape *shape);
/* The shape grows by what broadcasts against it; false when something does not. */
bool shape_broadcast(Shape *shape, const Dim *dims, uint32_t rank);
/* False when a size is not known, or there are too many elements to count. */
bool count_elements(const Dim *dims, uint32_t rank, int64_t *count);

/* An output that is otherwise is a fault. */
void expect_shape(Verification *verification, const Node *node, size_t index, const Shape *shape);
void expect_rank(Verification *verification, const Node *node, size_t index, uint32_t rank);
void expect_like_input(Verification *verification, const Node *node, size_t index, size_t input);
/* True, and a fault, when the input's rank is known and another one. */
bool has_other_rank(Verification *verification, const Node *node, size_t input, uint32_t rank);

/* False when it is no list of integers that is known and short. */
bool known_ints(const Value *value, Ints *ints);
bool attribute_ints(const Node *node, const char *name, Ints *ints);
bool is_reference(const Node *node, const char *name); /* of an attribute of the function around */

/* Counted from the front; false, and a fault, when there is no such axis. */
bool verify_axis(Verification *verification, const Node *node, int64_t axis, uint32_t rank, uint32_t *result);
/* A bit for each axis; false, and a fault, when one is not there or named twice. */
bool verify_axes(Verification *verification, const Node *node, const Ints *axes, uint32_t rank, uint64_t *mask);
/* The attribute axis. */
bool axis_attribute(Verification *verification, const Node *node, int64_t otherwise, uint32_t rank, uint32_t *axis);

/* Rules, by file. verify_shapes.c */
Rule rule_like_first;
/* verify_movement.c */
Rule rule_reshape, rule_transpose, rule_squeeze, rule_unsqueeze, rule_flatten, rule_concat, rule_split, rule_slice,
    rule_expand, rule_tile, rule_pad, rule_gather, rule_gather_elements, rule_gather_nd, rule_scatter_nd,
    rule_scatter_elements;
/* verify_products.c */
Rule rule_matmul, rule_gemm, rule_conv, rule_conv_transpose, rule_pool, rule_by_channel, rule_recurrent;
/* verify_bodies.c */
Rule rule_if, rule_loop, rule_scan;

#endif
