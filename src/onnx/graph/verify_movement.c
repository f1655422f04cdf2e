/* The verifier: operators that move elements, or give them another shape. */
#include "onnx/graph/verify_shapes.h"

/* ---- other shapes for the same elements ---- */

static void expect_count(Verification *verification, const Node *node) {
  const Type *from = ranked_input(node, 0), *to = ranked_output(node, 0);
  int64_t before, after;
  if (!from || !to || !count_elements(from->dims, from->rank, &before) || !count_elements(to->dims, to->rank, &after))
    return;
  if (before == after) return;
  FOUND(verification, node, "input 0 of shape %s does not have the %lld element%s of shape %s",
        shape_of_type(verification, from), (long long)after, after == 1 ? "" : "s", shape_of_type(verification, to));
}

void rule_reshape(Verification *verification, const Node *node) {
  const Type *type = ranked_input(node, 0), *list = ranked_input(node, 1);
  Ints ints;
  if (list && list->rank != 1) {
    FOUND(verification, node, "the shape, input 1, must have rank 1 but has rank %u", list->rank);
    return;
  }
  expect_count(verification, node);
  if (!known_ints(node_input(node, 1), &ints) || ints.count > MAX_RANK) return;
  bool copies = node_int_or(node, "allowzero", 0) == 0;
  Shape shape = {.rank = (uint32_t)ints.count};
  size_t inferred = 0;
  for (uint32_t i = 0; i < shape.rank; i++) {
    int64_t size = ints.items[i];
    if (size < -1) FOUND(verification, node, "%lld is not a valid size", (long long)size);
    inferred += size == -1;
    shape.dims[i] = size == 0 && copies ? (type && i < type->rank ? type->dims[i] : ANY_SIZE) : dim_of(size);
  }
  if (inferred > 1) FOUND(verification, node, "%zu sizes are left open, but at most one can be", inferred);
  expect_shape(verification, node, 0, &shape);
}

void rule_transpose(Verification *verification, const Node *node) {
  const Type *type = ranked_input(node, 0);
  if (!type || is_reference(node, "perm")) return;
  Ints perm = {.count = type->rank};
  for (uint32_t i = 0; i < type->rank; i++) perm.items[i] = type->rank - 1 - i;
  attribute_ints(node, "perm", &perm);
  uint64_t mask;
  if (perm.count != type->rank) {
    FOUND(verification, node, "perm has length %zu but input 0 has rank %u", perm.count, type->rank);
    return;
  }
  if (!verify_axes(verification, node, &perm, type->rank, &mask)) return;
  Shape shape = {.rank = type->rank};
  for (uint32_t i = 0; i < type->rank; i++) {
    shape.dims[i] = type->dims[perm.items[i] < 0 ? perm.items[i] + type->rank : perm.items[i]];
  }
  expect_shape(verification, node, 0, &shape);
}

void rule_squeeze(Verification *verification, const Node *node) {
  const Type *type = ranked_input(node, 0);
  Ints axes;
  uint64_t mask;
  expect_count(verification, node);
  if (!type || !known_ints(node_input(node, 1), &axes)) return;
  if (!verify_axes(verification, node, &axes, type->rank, &mask)) return;
  Shape shape = {0};
  for (uint32_t i = 0; i < type->rank; i++) {
    if (!(mask >> i & 1)) shape.dims[shape.rank++] = type->dims[i];
    else if (sizes_clash(type->dims[i], dim_of(1))) FOUND(verification, node, "axis %u does not have size 1", i);
  }
  expect_shape(verification, node, 0, &shape);
}

void rule_unsqueeze(Verification *verification, const Node *node) {
  const Type *type = ranked_input(node, 0);
  Ints axes;
  uint64_t mask;
  expect_count(verification, node);
  if (!type || !known_ints(node_input(node, 1), &axes) || type->rank + axes.count > MAX_RANK) return;
  Shape shape = {.rank = type->rank + (uint32_t)axes.count};
  if (!verify_axes(verification, node, &axes, shape.rank, &mask)) return;
  for (uint32_t i = 0, from = 0; i < shape.rank; i++) shape.dims[i] = mask >> i & 1 ? dim_of(1) : type->dims[from++];
  expect_shape(verification, node, 0, &shape);
}

void rule_flatten(Verification *verification, const Node *node) {
  expect_count(verification, node);
  expect_rank(verification, node, 0, 2);
}

/* ---- moving elements ---- */

void rule_concat(Verification *verification, const Node *node) {
  const Type *first = ranked_input(node, 0);
  uint32_t axis;
  if (!first || !axis_attribute(verification, node, 0, first->rank, &axis)) return;
  Shape shape = shape_of(first);
  for (uint32_t i = 1; i < node->input_count; i++) {
    const Type *type = ranked_input(node, i);
    if (!type) return;
    Dim along = type->rank == shape.rank ? type->dims[axis] : ANY_SIZE, so_far = shape.dims[axis];
    shape.dims[axis] = ANY_SIZE;
    if (!shape_agrees(type, &shape)) {
      FOUND(verification, node, "input %u of shape %s does not match input 0 of shape %s along axis %u", i,
            shape_of_type(verification, type), shape_of_type(verification, first), axis);
      return;
    }
    int64_t sum;
    if (!is_size(along) || !is_size(so_far)) continue;
    if (!__builtin_add_overflow(so_far.constant, along.constant, &sum)) shape.dims[axis] = dim_of(sum);
  }
  expect_shape(verification, node, 0, &shape);
}

void rule_split(Verification *verification, const Node *node) {
  const Type *type = ranked_input(node, 0);
  uint32_t axis;
  Ints sizes;
  if (!type || !axis_attribute(verification, node, 0, type->rank, &axis)) return;
  bool has_sizes = known_ints(node_input(node, 1), &sizes);
  if (has_sizes && sizes.count != node->output_count) {
    FOUND(verification, node, "%zu sizes for %u outputs", sizes.count, node->output_count);
    return;
  }
  int64_t sum = 0;
  bool adds_up = has_sizes;
  for (uint32_t i = 0; i < node->output_count; i++) {
    Shape shape = shape_of(type);
    shape.dims[axis] = has_sizes ? dim_of(sizes.items[i]) : ANY_SIZE;
    expect_shape(verification, node, i, &shape);
    if (has_sizes) adds_up = adds_up && !__builtin_add_overflow(sum, sizes.items[i], &sum);
  }
  if (adds_up && sizes_clash(dim_of(sum), type->dims[axis])) {
    FOUND(verification, node, "the sizes add up to %lld but axis %u has size %lld", (long long)sum, axis,
          (long long)type->dims[axis].constant);
  }
}

static int64_t clamped(int64_t value, int64_t least, int64_t most) {
  return value < least ? least : value > most ? most : value;
}

/* How many places a slice takes of an axis. */
static Dim sliced(Dim dim, int64_t start, int64_t end, int64_t step) {
  if (!is_size(dim) || dim.constant == 0) return is_size(dim) ? dim : ANY_SIZE;
  int64_t size = dim.constant, reversed = step < 0;
  start = clamped(start < 0 ? start + size : start, 0, reversed ? size - 1 : size);
  end = clamped(end < 0 ? (end < -size ? -1 : end + size) : end, reversed ? -1 : 0, size);
  int64_t span = reversed ? start - end : end - start, stride = reversed ? -(step + 1) + 1 : step;
  return dim_of(span <= 0 ? 0 : (span - 1) / stride + 1);
}

static bool same_lengths(Verification *verification, const Node *node, uint32_t rank) {
  Dim length = ANY_SIZE;
  for (size_t i = 1; i < node->input_count; i++) {
    const Type *list = ranked_input(node, i);
    if (!list) continue;
    if (has_other_rank(verification, node, i, 1)) return false;
    if (sizes_clash(length, list->dims[0])) {
      FOUND(verification, node, "starts, ends, axes and steps differ in length");
      return false;
    }
    if (is_size(list->dims[0])) length = list->dims[0];
  }
  if (is_size(length) && length.constant > rank) {
    FOUND(verification, node, "slices %lld axes of %u", (long long)length.constant, rank);
    return false;
  }
  return true;
}

void rule_slice(Verification *verification, const Node *node) {
  const Type *type = ranked_input(node, 0);
  if (!type || !same_lengths(verification, node, type->rank)) return;
  expect_rank(verification, node, 0, type->rank);
  Ints starts, ends, axes, steps;
  bool has_bounds = known_ints(node_input(node, 1), &starts) && known_ints(node_input(node, 2), &ends);
  bool has_axes = known_ints(node_input(node, 3), &axes), has_steps = known_ints(node_input(node, 4), &steps);
  if (node_input(node, 3) && !has_axes) return;
  size_t count = has_axes ? axes.count : has_bounds ? starts.count : 0;
  Shape shape = shape_of(type);
  for (size_t i = 0; i < count; i++) {
    uint32_t axis;
    if (!verify_axis(verification, node, has_axes ? axes.items[i] : (int64_t)i, type->rank, &axis)) return;
    if (has_steps && steps.items[i] == 0) FOUND(verification, node, "the step along axis %u is 0", axis);
    bool is_constant = has_bounds && (has_steps || !node_input(node, 4)) && !(has_steps && steps.items[i] == 0);
    shape.dims[axis] = is_constant
                           ? sliced(type->dims[axis], starts.items[i], ends.items[i], has_steps ? steps.items[i] : 1)
                           : ANY_SIZE;
  }
  if (count || !node_input(node, 1)) expect_shape(verification, node, 0, &shape);
}

void rule_expand(Verification *verification, const Node *node) {
  const Type *type = ranked_input(node, 0);
  Ints ints;
  if (!type || !known_ints(node_input(node, 1), &ints) || ints.count > MAX_RANK) return;
  Shape shape = {.rank = (uint32_t)ints.count};
  for (uint32_t i = 0; i < shape.rank; i++) shape.dims[i] = dim_of(ints.items[i]);
  const char *wanted = shape_text(verification->model->context, shape.dims, shape.rank);
  if (shape_broadcast(&shape, type->dims, type->rank)) expect_shape(verification, node, 0, &shape);
  else
    FOUND(verification, node, "input 0 of shape %s does not expand to %s", shape_of_type(verification, type), wanted);
}

void rule_tile(Verification *verification, const Node *node) {
  const Type *type = ranked_input(node, 0);
  Ints repeats;
  if (!type) return;
  expect_rank(verification, node, 0, type->rank);
  if (!known_ints(node_input(node, 1), &repeats)) return;
  if (repeats.count != type->rank) {
    FOUND(verification, node, "%zu repeats for %u axes", repeats.count, type->rank);
    return;
  }
  Shape shape = shape_of(type);
  for (uint32_t i = 0; i < type->rank; i++) {
    int64_t size;
    bool fits = is_size(type->dims[i]) && !__builtin_mul_overflow(type->dims[i].constant, repeats.items[i], &size);
    shape.dims[i] = fits ? dim_of(size) : ANY_SIZE;
  }
  expect_shape(verification, node, 0, &shape);
}

void rule_pad(Verification *verification, const Node *node) {
  const Type *type = ranked_input(node, 0);
  Ints pads, axes;
  if (!type) return;
  expect_rank(verification, node, 0, type->rank);
  bool has_axes = known_ints(node_input(node, 3), &axes);
  if (!known_ints(node_input(node, 1), &pads) || (node_input(node, 3) && !has_axes)) return;
  size_t count = has_axes ? axes.count : type->rank;
  if (pads.count != 2 * count) {
    FOUND(verification, node, "%zu pads for %zu axes, which need two each", pads.count, count);
    return;
  }
  Shape shape = shape_of(type);
  for (size_t i = 0; i < count; i++) {
    uint32_t axis;
    if (!verify_axis(verification, node, has_axes ? axes.items[i] : (int64_t)i, type->rank, &axis)) return;
    Dim *dim = &shape.dims[axis];
    *dim = is_size(*dim) ? dim_of(dim->constant + pads.items[i] + pads.items[count + i]) : ANY_SIZE;
  }
  expect_shape(verification, node, 0, &shape);
}

void rule_gather(Verification *verification, const Node *node) {
  const Type *data = ranked_input(node, 0), *indices = ranked_input(node, 1);
  uint32_t axis;
  if (!data || !axis_attribute(verification, node, 0, data->rank, &axis) || !indices) return;
  if (data->rank + indices->rank > MAX_RANK) return;
  Shape shape = {0};
  for (uint32_t i = 0; i < axis; i++) shape.dims[shape.rank++] = data->dims[i];
  for (uint32_t i = 0; i < indices->rank; i++) shape.dims[shape.rank++] = indices->dims[i];
  for (uint32_t i = axis + 1; i < data->rank; i++) shape.dims[shape.rank++] = data->dims[i];
  expect_shape(verification, node, 0, &shape);
}

void rule_gather_elements(Verification *verification, const Node *node) {
  const Type *data = ranked_input(node, 0), *indices = ranked_input(node, 1);
  uint32_t axis;
  if (!data || !axis_attribute(verification, node, 0, data->rank, &axis) || !indices) return;
  if (!has_other_rank(verification, node, 1, data->rank)) expect_like_input(verification, node, 0, 1);
}

/* The axes that indices of a list of places leave over; false when it is not known, or a fault. */
static bool gathered(Verification *verification, const Node *node, uint32_t skipped, Shape *shape) {
  const Type *data = ranked_input(node, 0), *indices = ranked_input(node, 1);
  if (!data || !indices) return false;
  if (!indices->rank) {
    FOUND(verification, node, "the indices, input 1, are a scalar");
    return false;
  }
  Dim depth = indices->dims[indices->rank - 1];
  if (!is_size(depth)) return false;
  if (depth.constant > (int64_t)data->rank - skipped) {
    FOUND(verification, node, "the indices have %lld components each but there are %lld axes",
          (long long)depth.constant, (long long)data->rank - skipped);
    return false;
  }
  if (indices->rank + data->rank > MAX_RANK) return false;
  *shape = (Shape){0};
  for (uint32_t i = 0; i + 1 < indices->rank; i++) shape->dims[shape->rank++] = indices->dims[i];
  for (uint32_t i = skipped + (uint32_t)depth.constant; i < data->rank; i++) shape->dims[shape->rank++] = data->dims[i];
  return true;
}

void rule_gather_nd(Verification *verification, const Node *node) {
  Shape shape;
  int64_t batch = node_int_or(node, "batch_dims", 0);
  if (batch < 0 || batch > MAX_RANK || is_reference(node, "batch_dims")) return;
  if (gathered(verification, node, (uint32_t)batch, &shape)) expect_shape(verification, node, 0, &shape);
}

void rule_scatter_nd(Verification *verification, const Node *node) {
  Shape shape;
  const Type *updates = ranked_input(node, 2);
  rule_like_first(verification, node);
  if (gathered(verification, node, 0, &shape) && updates && !shape_agrees(updates, &shape)) {
    FOUND(verification, node, "the updates have shape %s but must have %s", shape_of_type(verification, updates),
          shape_text(verification->model->context, shape.dims, shape.rank));
  }
}

void rule_scatter_elements(Verification *verification, const Node *node) {
  const Type *data = ranked_input(node, 0), *indices = ranked_input(node, 1), *updates = ranked_input(node, 2);
  uint32_t axis;
  rule_like_first(verification, node);
  if (!data || !axis_attribute(verification, node, 0, data->rank, &axis) || !indices || !updates) return;
  Shape shape = shape_of(indices);
  if (has_other_rank(verification, node, 1, data->rank) || shape_agrees(updates, &shape)) return;
  FOUND(verification, node, "the updates have shape %s but the indices have %s", shape_of_type(verification, updates),
        shape_of_type(verification, indices));
}
