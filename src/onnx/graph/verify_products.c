/* The verifier: products of matrices, windows of weights and without, recurrent cells. */
#include "onnx/graph/verify_shapes.h"

/* ---- products ---- */

static void inner_sizes_differ(Verification *verification, const Node *node, const Type *a, const Type *b) {
  FOUND(verification, node, "inputs of shapes %s and %s cannot be multiplied", shape_of_type(verification, a),
        shape_of_type(verification, b));
}

void rule_matmul(Verification *verification, const Node *node) {
  const Type *a = ranked_input(node, 0), *b = ranked_input(node, 1);
  if (!a || !b) return;
  if (!a->rank || !b->rank) {
    FOUND(verification, node, "input %d is a scalar", a->rank ? 1 : 0);
    return;
  }
  Dim inner = b->dims[b->rank == 1 ? 0 : b->rank - 2];
  if (sizes_clash(a->dims[a->rank - 1], inner)) {
    inner_sizes_differ(verification, node, a, b);
    return;
  }
  Shape shape = {0};
  bool fits = shape_broadcast(&shape, a->dims, a->rank > 2 ? a->rank - 2 : 0) &&
              shape_broadcast(&shape, b->dims, b->rank > 2 ? b->rank - 2 : 0);
  if (!fits) {
    inner_sizes_differ(verification, node, a, b);
    return;
  }
  if (a->rank > 1) shape.dims[shape.rank++] = a->dims[a->rank - 2];
  if (b->rank > 1) shape.dims[shape.rank++] = b->dims[b->rank - 1];
  expect_shape(verification, node, 0, &shape);
}

void rule_gemm(Verification *verification, const Node *node) {
  const Type *a = ranked_input(node, 0), *b = ranked_input(node, 1), *c = ranked_input(node, 2);
  if (has_other_rank(verification, node, 0, 2) || has_other_rank(verification, node, 1, 2) || !a || !b) return;
  if (is_reference(node, "transA") || is_reference(node, "transB")) return;
  bool turned_a = node_int_or(node, "transA", 0) != 0, turned_b = node_int_or(node, "transB", 0) != 0;
  if (sizes_clash(a->dims[!turned_a], b->dims[turned_b])) {
    inner_sizes_differ(verification, node, a, b);
    return;
  }
  Shape shape = {2, {a->dims[turned_a], b->dims[!turned_b]}};
  Shape with_c = shape;
  if (c && (c->rank > 2 || !shape_broadcast(&with_c, c->dims, c->rank) || sizes_clash(with_c.dims[0], shape.dims[0]) ||
            sizes_clash(with_c.dims[1], shape.dims[1]))) {
    FOUND(verification, node, "input 2 of shape %s does not broadcast to %s", shape_of_type(verification, c),
          shape_text(verification->model->context, shape.dims, 2));
    return;
  }
  expect_shape(verification, node, 0, &shape);
}

/* ---- windows ---- */

static bool has_length(Verification *verification, const Node *node, const char *name, size_t wanted) {
  Ints ints;
  if (!attribute_ints(node, name, &ints) || ints.count == wanted) return true;
  FOUND(verification, node, "%s has %zu value%s but must have %zu", name, ints.count, ints.count == 1 ? "" : "s",
        wanted);
  return false;
}

/* How many axes the window slides over, when the attributes agree on it. */
static bool window_axes(Verification *verification, const Node *node, uint32_t *spatial) {
  const Type *type = ranked_input(node, 0);
  if (!type) return false;
  if (type->rank < 3) {
    FOUND(verification, node, "input 0 has rank %u but must have rank 3 or more", type->rank);
    return false;
  }
  *spatial = type->rank - 2;
  return has_length(verification, node, "kernel_shape", *spatial) &&
         has_length(verification, node, "strides", *spatial) && has_length(verification, node, "dilations", *spatial) &&
         has_length(verification, node, "pads", 2 * (size_t)*spatial);
}

static int64_t at_or(const Ints *ints, bool given, size_t index, int64_t otherwise) {
  return given ? ints->items[index] : otherwise;
}

/* The elements that a padded axis has, less those that one window covers. False beyond 64 bits. */
static bool room_for_windows(int64_t size, const int64_t pads[2], int64_t kernel, int64_t dilation, int64_t *room) {
  int64_t padded, covered, all;
  if (__builtin_add_overflow(size, pads[0], &padded) || __builtin_add_overflow(padded, pads[1], &all)) return false;
  if (__builtin_sub_overflow(kernel, 1, &covered) || __builtin_mul_overflow(dilation, covered, &covered)) return false;
  return !__builtin_add_overflow(covered, 1, &covered) && !__builtin_sub_overflow(all, covered, room);
}

/* The places of a window of `kernel`; ANY_SIZE where rounding or automatic padding decides. */
static Dim window_places(const Node *node, Dim dim, Dim kernel, uint32_t axis, uint32_t spatial) {
  const Attribute *automatic = node_attribute(node, "auto_pad");
  bool is_plain = !automatic || (automatic->kind == ATTRIBUTE_STRING && same_text(automatic->string, "NOTSET"));
  if (!is_plain || node_int_or(node, "ceil_mode", 0) || !is_size(dim) || !is_size(kernel)) return ANY_SIZE;
  Ints strides, dilations, pads;
  int64_t stride = at_or(&strides, attribute_ints(node, "strides", &strides), axis, 1);
  int64_t dilation = at_or(&dilations, attribute_ints(node, "dilations", &dilations), axis, 1);
  bool padded = attribute_ints(node, "pads", &pads);
  int64_t around[2] = {at_or(&pads, padded, axis, 0), at_or(&pads, padded, axis + spatial, 0)}, room;
  if (stride < 1 || dilation < 1) return ANY_SIZE;
  if (!room_for_windows(dim.constant, around, kernel.constant, dilation, &room)) return ANY_SIZE;
  return room < 0 || room == INT64_MAX ? ANY_SIZE : dim_of(room / stride + 1);
}

static bool is_product(int64_t number, int64_t a, int64_t b) {
  int64_t product;
  return !__builtin_mul_overflow(a, b, &product) && product == number;
}

void rule_conv(Verification *verification, const Node *node) {
  const Type *x = ranked_input(node, 0), *w = ranked_input(node, 1), *bias = ranked_input(node, 2);
  uint32_t spatial;
  if (!window_axes(verification, node, &spatial) || !w || has_other_rank(verification, node, 1, x->rank)) return;
  int64_t group = node_int_or(node, "group", 1);
  if (is_reference(node, "group")) return;
  if (is_size(x->dims[1]) && is_size(w->dims[1]) && !is_product(x->dims[1].constant, w->dims[1].constant, group)) {
    FOUND(verification, node, "%lld channels, but the weights expect %lld in %lld group%s",
          (long long)x->dims[1].constant, (long long)w->dims[1].constant, (long long)group, group == 1 ? "" : "s");
    return;
  }
  if (bias && (bias->rank != 1 || sizes_clash(bias->dims[0], w->dims[0]))) {
    FOUND(verification, node, "the bias has shape %s but the weights have %s", shape_of_type(verification, bias),
          shape_of_type(verification, w));
  }
  Shape shape = {.rank = x->rank, .dims = {x->dims[0], w->dims[0]}};
  for (uint32_t i = 0; i < spatial; i++) {
    shape.dims[2 + i] = window_places(node, x->dims[2 + i], w->dims[2 + i], i, spatial);
  }
  expect_shape(verification, node, 0, &shape);
}

void rule_conv_transpose(Verification *verification, const Node *node) {
  const Type *x = ranked_input(node, 0), *w = ranked_input(node, 1);
  uint32_t spatial;
  if (!window_axes(verification, node, &spatial) || !w || has_other_rank(verification, node, 1, x->rank)) return;
  if (sizes_clash(x->dims[1], w->dims[0])) {
    FOUND(verification, node, "%lld channels, but the weights expect %lld", (long long)x->dims[1].constant,
          (long long)w->dims[0].constant);
    return;
  }
  Shape shape = any_shape(x->rank);
  shape.dims[0] = x->dims[0];
  int64_t group = node_int_or(node, "group", 1), channels;
  bool is_known = is_size(w->dims[1]) && !is_reference(node, "group");
  if (is_known && !__builtin_mul_overflow(w->dims[1].constant, group, &channels)) shape.dims[1] = dim_of(channels);
  expect_shape(verification, node, 0, &shape);
}

void rule_pool(Verification *verification, const Node *node) {
  const Type *x = ranked_input(node, 0);
  uint32_t spatial;
  Ints kernel;
  if (!window_axes(verification, node, &spatial)) return;
  Shape shape = any_shape(x->rank);
  shape.dims[0] = x->dims[0];
  shape.dims[1] = x->dims[1];
  bool has_kernel = attribute_ints(node, "kernel_shape", &kernel);
  for (uint32_t i = 0; i < spatial; i++) {
    if (has_kernel) shape.dims[2 + i] = window_places(node, x->dims[2 + i], dim_of(kernel.items[i]), i, spatial);
    else shape.dims[2 + i] = dim_of(1); /* over all places */
  }
  for (uint32_t i = 0; i < node->output_count; i++) expect_shape(verification, node, i, &shape);
}

void rule_by_channel(Verification *verification, const Node *node) {
  const Type *x = ranked_input(node, 0);
  rule_like_first(verification, node);
  for (uint32_t i = 1; x && x->rank > 1 && i < node->input_count; i++) {
    const Type *type = ranked_input(node, i);
    if (type && (type->rank != 1 || sizes_clash(type->dims[0], x->dims[1]))) {
      FOUND(verification, node, "input %u of shape %s does not have one value for each channel of %s", i,
            shape_of_type(verification, type), shape_of_type(verification, x));
    }
  }
}

/* ---- sequences of vectors ---- */

void rule_recurrent(Verification *verification, const Node *node) {
  const Type *x = ranked_input(node, 0), *w = ranked_input(node, 1), *r = ranked_input(node, 2);
  for (size_t i = 0; i < 3; i++) {
    if (has_other_rank(verification, node, i, 3)) return;
  }
  if (!x || !w || !r) return;
  int64_t gates = node_is(node, OP_LSTM) ? 4 : node_is(node, OP_GRU) ? 3 : 1;
  if (sizes_clash(x->dims[2], w->dims[2])) inner_sizes_differ(verification, node, x, w);
  if (sizes_clash(w->dims[1], r->dims[1]) ||
      (is_size(r->dims[1]) && is_size(r->dims[2]) && r->dims[1].constant != gates * r->dims[2].constant)) {
    FOUND(verification, node, "the weights %s and %s do not match %lld gate%s", shape_of_type(verification, w),
          shape_of_type(verification, r), (long long)gates, gates == 1 ? "" : "s");
  }
  expect_rank(verification, node, 0, 4);
  expect_rank(verification, node, 1, 3);
}
