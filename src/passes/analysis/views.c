/* Following views back through what only moves elements. */
#include "passes/analysis/views.h"

#include "passes/pattern.h"

enum { MOST_MOVES = 64, LARGEST = 1 << 30 /* sizes that are multiplied */ };

bool is_viewable(const Value *value) {
  return value && !type_is_unranked(value->type) && value->type.rank <= MOST_VIEWED;
}

/* One position of an axis, also where it is the only feature. */
static ViewAxis position(int64_t start) { return (ViewAxis){.start = start}; }

uint32_t view_orders(const ViewFrame *frame) { return frame->batches < 2 ? 1 : frame->batches < 3 ? 2 : 6; }

/* Which axis of the batch comes at a place. */
static uint32_t batch_at(uint32_t order, uint32_t place) {
  static const uint8_t orders[][MOST_BATCHES] = {{0, 1, 2}, {1, 0, 2}, {0, 2, 1}, {2, 1, 0}, {1, 2, 0}, {2, 0, 1}};
  return ALONG_BATCH + orders[order][place];
}

bool view_ordered(const ViewFrame *frame, Value *value, uint32_t features, uint32_t order, View *view) {
  uint32_t place = 0;
  Type type = value->type;
  if (!is_viewable(value) || features >= type.rank || !dim_is_constant(type.dims[features])) return false;
  *view = (View){.value = value, .length = type.dims[features].constant};
  for (uint32_t i = 0; i < type.rank; i++) {
    if (dim_is(type.dims[i], 1)) continue;
    if (i == features) {
      view->axes[i] = (ViewAxis){.along = ALONG_FEATURES, .stride = 1};
      continue;
    }
    if (place == frame->batches || !dim_equal(type.dims[i], frame->sizes[batch_at(order, place)])) return false;
    view->axes[i].along = batch_at(order, place++);
  }
  return place == frame->batches;
}

bool view_all(const ViewFrame *frame, Value *value, uint32_t features, View *view) {
  return view_ordered(frame, value, features, 0, view);
}

bool view_same(const View *a, const View *b) {
  if (a->value != b->value || a->length != b->length) return false;
  for (uint32_t i = 0; i < a->value->type.rank; i++) {
    const ViewAxis *one = &a->axes[i], *other = &b->axes[i];
    if (one->along != other->along || one->start != other->start || one->stride != other->stride) return false;
  }
  return true;
}

bool view_is_whole(const View *view) {
  Type type = view->value->type;
  for (uint32_t i = 0; i < type.rank; i++) {
    const ViewAxis *axis = &view->axes[i];
    if (axis->along == ALONG_NOTHING && !dim_is(type.dims[i], 1)) return false;
    if (axis->along == ALONG_FEATURES && (axis->stride != 1 || !dim_is(type.dims[i], view->length))) return false;
    if (axis->along >= ALONG_ALL) return false;
  }
  return true;
}

uint32_t view_axis(const View *view, uint32_t along) {
  uint32_t axis = 0, rank = view->value->type.rank;
  while (axis < rank && view->axes[axis].along != along) axis++;
  return axis;
}

/* ---- axes that are merged and parted ---- */

/* Where the sizes from `at` on, multiplied, are that size; 0: nowhere. */
static uint32_t group_end(Context *context, Type type, uint32_t at, Dim whole) {
  Dim product = dim_of(1);
  while (at < type.rank) {
    Dim size = type.dims[at++];
    if (dim_is_constant(size) && (size.constant <= 0 || size.constant > LARGEST)) return 0;
    if (dim_is_constant(product) && dim_is_constant(size)) product.constant *= size.constant;
    else product = dim_multiply(context, product, size);
    if (dim_equal(product, whole)) return at;
    if (dim_is_constant(product) && product.constant > LARGEST) return 0;
  }
  return 0;
}

/* One axis of what was several from `first` to `end`. */
static bool merge_axes(const View *view, uint32_t first, uint32_t end, ViewAxis *merged) {
  int64_t inner = 1; /* elements of the axes behind; 0: not known */
  uint32_t bits = 0;
  bool picks = false;
  *merged = (ViewAxis){0};
  for (uint32_t i = end; i-- > first;) {
    const ViewAxis *axis = &view->axes[i];
    Dim size = view->value->type.dims[i];
    if (axis->along <= ALONG_FEATURES) {
      if (inner == 0 || (axis->along && merged->along)) return false;
      merged->start += axis->start * inner;
      merged->stride += axis->stride * inner;
      merged->along += axis->along;
      picks = picks || !dim_is(size, 1);
    } else {
      for (uint32_t along = axis->along; along; along >>= ALONG_BITS, bits += ALONG_BITS) {
        if (bits > 24 || axis->start) return false;
        merged->along |= (along & ((1 << ALONG_BITS) - 1)) << bits;
      }
    }
    inner = dim_is_constant(size) ? inner * size.constant : 0;
  }
  return bits == 0 || !picks;
}

/* Digits of a merged axis, the innermost last. */
static bool part_digits(const ViewFrame *frame, ViewAxis axis, Type from, uint32_t first, uint32_t end, View *view) {
  uint32_t along = axis.along;
  for (uint32_t i = end; i-- > first;) {
    if (dim_is(from.dims[i], 1)) continue;
    uint32_t digit = along & ((1 << ALONG_BITS) - 1);
    if (!digit || digit >= ALONG_ALL || !dim_equal(frame->sizes[digit], from.dims[i])) return false;
    view->axes[i].along = digit;
    along >>= ALONG_BITS;
  }
  return along == 0;
}

/* Features of a merged axis go along one of the axes it was merged from, and take one position of the others. */
static bool part_features(ViewAxis axis, int64_t length, Type from, uint32_t first, uint32_t end, View *view) {
  int64_t inner = 1;
  bool is_found = axis.along == ALONG_NOTHING;
  for (uint32_t i = end; i-- > first; inner *= from.dims[i].constant) {
    if (!dim_is_constant(from.dims[i])) return false;
    int64_t at = axis.start / inner % from.dims[i].constant, stride = axis.stride / inner;
    view->axes[i] = position(at);
    if (is_found || axis.stride % inner || stride == 0 || at + (length - 1) * stride >= from.dims[i].constant) continue;
    view->axes[i] = (ViewAxis){.along = ALONG_FEATURES, .start = at, .stride = stride};
    is_found = true;
  }
  return is_found;
}

static bool part_axis(const ViewFrame *frame, ViewAxis axis, Type from, uint32_t first, uint32_t end, View *view) {
  if (axis.along > ALONG_FEATURES) return part_digits(frame, axis, from, first, end, view);
  return part_features(axis, view->length, from, first, end, view);
}

static uint32_t skip_ones(Type type, uint32_t at) {
  while (at < type.rank && dim_is(type.dims[at], 1)) at++;
  return at;
}

/* Through a Reshape: axes are the same, or one of them is several of the other. */
static bool back_through_shape(const ViewFrame *frame, View *view, Value *source) {
  Type from = source->type, to = view->value->type;
  View found = {.value = source, .length = view->length};
  for (uint32_t i = skip_ones(from, 0), k = skip_ones(to, 0); i < from.rank || k < to.rank;) {
    if (i == from.rank || k == to.rank) return false;
    uint32_t end = dim_equal(from.dims[i], to.dims[k]) ? k + 1 : group_end(frame->context, to, k, from.dims[i]);
    if (end == k + 1) {
      found.axes[i++] = view->axes[k++];
    } else if (end) {
      if (!merge_axes(view, k, end, &found.axes[i++])) return false;
      k = end;
    } else {
      end = group_end(frame->context, from, i, to.dims[k]);
      if (!end || !part_axis(frame, view->axes[k++], from, i, end, &found)) return false;
      i = end;
    }
    i = skip_ones(from, i);
    k = skip_ones(to, k);
  }
  *view = found;
  return true;
}

/* ---- other movements ---- */

static bool back_through_transpose(View *view, const Node *node) {
  const Attribute *order = node_attribute(node, "perm");
  uint32_t rank = view->value->type.rank;
  View found = {.value = node_input(node, 0), .length = view->length};
  if (found.value->type.rank != rank || (order && order->count != rank)) return false;
  for (uint32_t i = 0; i < rank; i++) {
    int64_t from = order ? order->integers[i] : rank - 1 - i;
    if (from < 0 || from >= rank) return false;
    found.axes[from] = view->axes[i];
  }
  *view = found;
  return true;
}

/* Where an axis is in its value, negative ones counted from the end; the rank where it is not. */
static uint32_t axis_of(const Value *value, int64_t axis) {
  int64_t rank = value->type.rank;
  if (axis < 0) axis += rank;
  return (uint32_t)(axis < 0 || axis > rank ? rank : axis);
}

static int64_t last_of(const View *view, uint32_t axis) {
  return view->axes[axis].start + (view->length - 1) * view->axes[axis].stride;
}

/* The view sees positions of the axis, `offset` further on in the source. Of steps only some may be gone over. */
static bool move_on(View *view, Value *source, uint32_t axis, int64_t offset) {
  if (axis >= source->type.rank || !dim_is_constant(source->type.dims[axis])) return false;
  bool is_kept = view->axes[axis].along > ALONG_FEATURES && view->axes[axis].along != ALONG_STEPS;
  if (is_kept || offset < 0 || offset > source->type.dims[axis].constant) return false;
  view->axes[axis].start += offset;
  view->value = source;
  return last_of(view, axis) < source->type.dims[axis].constant;
}

static bool back_through_slice(View *view, const Node *node) {
  int64_t given, start, end;
  Value *source = node_input(node, 0);
  if (!read_axis_slice(node, &given, &start, &end) || source->type.rank != view->value->type.rank) return false;
  uint32_t axis = axis_of(source, given);
  if (axis == source->type.rank || !dim_is_constant(source->type.dims[axis])) return false;
  return move_on(view, source, axis, start < 0 ? start + source->type.dims[axis].constant : start);
}

static bool back_through_split(View *view, const Node *node) {
  Value *source = node_input(node, 0);
  uint32_t axis = axis_of(source, node_int_or(node, "axis", 0));
  int64_t start = 0;
  if (source->type.rank != view->value->type.rank || axis == source->type.rank) return false;
  for (uint32_t i = 0; i < view->value->output_index; i++) {
    const Value *part = node->outputs[i];
    if (!is_viewable(part) || part->type.rank <= axis || !dim_is_constant(part->type.dims[axis])) return false;
    if (part->type.dims[axis].constant > LARGEST) return false;
    start += part->type.dims[axis].constant;
  }
  return move_on(view, source, axis, start);
}

/* One position of an axis that goes. */
static bool back_through_gather(View *view, const Node *node) {
  Value *source = node_input(node, 0), *index = node_input(node, 1);
  int64_t at;
  uint32_t axis = axis_of(source, node_int_or(node, "axis", 0)), rank = source->type.rank;
  if (!index || index->type.rank || !only_integer(index, &at)) return false;
  if (axis == rank || rank != view->value->type.rank + 1 || !dim_is_constant(source->type.dims[axis])) return false;
  if (at < 0) at += source->type.dims[axis].constant;
  for (uint32_t i = rank - 1; i > axis; i--) view->axes[i] = view->axes[i - 1];
  view->axes[axis] = position(0);
  return move_on(view, source, axis, at);
}

/* All that is seen is of one part. */
static bool back_through_concat(View *view, const Node *node) {
  uint32_t axis = axis_of(view->value, node_int_or(node, "axis", 0));
  if (axis == view->value->type.rank || view->axes[axis].along > ALONG_FEATURES) return false;
  for (uint32_t i = 0; i < node->input_count; i++) {
    Value *part = node_input(node, i);
    if (!is_viewable(part) || part->type.rank <= axis || !dim_is_constant(part->type.dims[axis])) return false;
    int64_t size = part->type.dims[axis].constant;
    if (view->axes[axis].start < size) {
      view->value = part;
      if (size == 1) view->axes[axis] = position(0);
      return last_of(view, axis) < size;
    }
    view->axes[axis].start -= size;
  }
  return false;
}

/* The axes of a value that is broadcast are the last ones, and its positions the only ones where it has one. */
static bool narrow(View *view, Value *source) {
  Type to = view->value->type, from = source->type;
  if (!is_viewable(source) || from.rank > to.rank) return false;
  View found = {.value = source, .length = view->length};
  for (uint32_t i = 0; i < from.rank; i++) {
    uint32_t at = i + to.rank - from.rank;
    if (dim_is(from.dims[i], 1)) continue;
    if (!dim_equal(from.dims[i], to.dims[at])) return false;
    found.axes[i] = view->axes[at];
  }
  *view = found;
  return true;
}

static bool leave_body(const ViewFrame *frame, View *view) {
  Value *inside = view->value;
  if (inside->graph != frame->body || inside->tensor) return false;
  for (uint32_t i = frame->states; i < frame->scan->input_count; i++) {
    Value *all = frame->scan->inputs[i].value;
    if (frame->body->inputs.items[i] != inside) continue;
    if (!is_viewable(all) || all->type.rank != inside->type.rank + 1) return false;
    for (uint32_t k = all->type.rank - 1; k > 0; k--) view->axes[k] = view->axes[k - 1];
    view->axes[0] = (ViewAxis){.along = dim_is(all->type.dims[0], 1) ? ALONG_NOTHING : ALONG_STEPS};
    view->value = all;
    return true;
  }
  return false;
}

static bool back_through(const ViewFrame *frame, View *view, const Node *node) {
  Value *source = node_input(node, 0);
  if (!is_viewable(source)) return false;
  if (node_is(node, OP_Identity) || is_cast_of_floats(node) || node_is(node, OP_Expand)) return narrow(view, source);
  if (node_is(node, OP_Transpose)) return back_through_transpose(view, node);
  if (node_is(node, OP_Slice)) return back_through_slice(view, node);
  if (node_is(node, OP_Split)) return back_through_split(view, node);
  if (node_is(node, OP_Gather)) return back_through_gather(view, node);
  if (node_is(node, OP_Concat)) return back_through_concat(view, node);
  return node_has(node, RENAMES) && back_through_shape(frame, view, source);
}

bool view_back(const ViewFrame *frame, View *view) {
  View found = *view;
  const Node *node = view->value->producer;
  if (!(node ? back_through(frame, &found, node) : leave_body(frame, &found))) return false;
  *view = found;
  return true;
}

View view_settled(const ViewFrame *frame, View view) {
  for (int moves = 0; moves < MOST_MOVES && view_back(frame, &view);) moves++;
  return view;
}

bool view_operand(const View *view, const Node *node, size_t index, View *operand) {
  *operand = *view;
  Value *value = node_input(node, index);
  return value && narrow(operand, value);
}
