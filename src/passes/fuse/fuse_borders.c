/* An array that is joined along an axis to rows of its own is a Pad that repeats its edge, reflects it or wraps around;
 * joined to one number, before a window goes over it, a Pad with that number, which can become the window's own.
 *
 * The rows are known by their positions: whatever slices, turns around, repeats and joins them again is followed down
 * to the array. There are fewer of them than it has itself: cosines beside themselves are no border. Pads of one kind
 * along several axes, one after the other, are one.
 */
#include "onnx/facts/schema.h"
#include "passes/analysis/positions.h"
#include "passes/pattern.h"

enum {
  DEEPEST = 8, /* steps between the array and what is joined to it */
  LONGEST_AXIS = 1 << 16,
  MOST_LOOKED_AT = 16, /* uses, and operands of a Concat */
};

/* Positions along an axis of the array, in the order in which they are joined. */
typedef struct Rows {
  Match *match;
  const Value *array;
  int64_t axis, size;
  int64_t *positions;
  int64_t count, room;
} Rows;

static bool axis_of(const Node *concat, int64_t *axis) {
  Type type = concat->outputs[0]->type;
  *axis = node_int_or(concat, "axis", 0);
  if (*axis < 0) *axis += type.rank;
  return type.dtype != DTYPE_NONE && *axis >= 0 && *axis < (int64_t)type.rank;
}

/* The size along an axis; 0: not known. */
static int64_t size_along(const Value *value, int64_t axis) {
  Type type = value->type;
  if (type.dtype == DTYPE_NONE || axis >= (int64_t)type.rank || !dim_is_constant(type.dims[axis])) return 0;
  return type.dims[axis].constant;
}

/* ---- positions ---- */

static bool read_rows(Rows *rows, Value *value, int depth);

static bool add_position(Rows *rows, int64_t position) {
  if (rows->count == rows->room) return false;
  rows->positions[rows->count++] = position;
  return true;
}

static bool read_slice(Rows *rows, const Node *slice, int depth) {
  int64_t axis, start, end, first = rows->count;
  if (!read_axis_slice(slice, &axis, &start, &end) || !read_rows(rows, node_input(slice, 0), depth)) return false;
  int64_t size = rows->count - first;
  if (axis < 0) axis += slice->outputs[0]->type.rank;
  if (start < 0) start += size;
  if (end < 0) end += size;
  if (end > size) end = size;
  if (axis != rows->axis || start < 0 || start > end) return false;
  for (int64_t i = start; i < end; i++) rows->positions[first + i - start] = rows->positions[first + i];
  rows->count = first + end - start;
  return true;
}

static bool read_turned(Rows *rows, const Node *slice, int depth) {
  int64_t axis, first = rows->count;
  if (!reverses_axis(slice, &axis) || axis != rows->axis || !read_rows(rows, node_input(slice, 0), depth)) return false;
  for (int64_t i = first, j = rows->count - 1; i < j; i++, j--) {
    int64_t position = rows->positions[i];
    rows->positions[i] = rows->positions[j];
    rows->positions[j] = position;
  }
  return true;
}

static bool read_joined(Rows *rows, const Node *concat, int depth) {
  int64_t axis;
  if (!axis_of(concat, &axis) || axis != rows->axis || concat->input_count > MOST_LOOKED_AT) return false;
  for (uint32_t i = 0; i < concat->input_count; i++) {
    if (!read_rows(rows, node_input(concat, i), depth)) return false;
  }
  return true;
}

/* Are all sizes but that along the axis the same? */
static bool differ_along(Type a, Type b, int64_t axis) {
  uint32_t at = (uint32_t)axis;
  return a.rank == b.rank && same_dims(a, b, 0, at) && same_dims(a, b, at + 1, a.rank - at - 1);
}

/* One row that was given an axis beside this one, spread along it, and put into shape again. */
static bool read_repeated(Rows *rows, const Node *reshape, int depth) {
  const Node *expand = node_input(reshape, 0)->producer;
  const Node *apart = expand && node_is(expand, OP_Expand) ? node_input(expand, 0)->producer : NULL;
  int64_t axis, count = size_along(reshape->outputs[0], rows->axis);
  if (!apart || !node_is(apart, OP_Unsqueeze) || !only_integer(node_input(apart, 1), &axis)) return false;
  Value *row = node_input(apart, 0);
  if (axis < 0) axis += apart->outputs[0]->type.rank;
  if ((axis != rows->axis && axis != rows->axis + 1) || size_along(row, rows->axis) != 1) return false;
  if (!differ_along(row->type, reshape->outputs[0]->type, rows->axis) || count < 1) return false;
  if (!match_take(rows->match, node_input(reshape, 0), OP_Expand)) return false;
  if (!match_take(rows->match, node_input(expand, 0), OP_Unsqueeze) || !read_rows(rows, row, depth)) return false;
  for (int64_t i = 1; i < count; i++) {
    if (!add_position(rows, rows->positions[rows->count - 1])) return false;
  }
  return true;
}

/* The rows that the value is, which the match alone reads. */
static bool read_rows(Rows *rows, Value *value, int depth) {
  if (value == rows->array) {
    for (int64_t i = 0; i < rows->size; i++) {
      if (!add_position(rows, i)) return false;
    }
    return true;
  }
  Node *node = value->producer;
  if (!node || depth == DEEPEST || value->type.dtype == DTYPE_NONE) return false;
  if (node_is(node, OP_Concat)) return read_joined(rows, node, depth + 1); /* taken when all that read it are */
  if (!match_take(rows->match, value, node->op)) return false;
  if (node_is(node, OP_Reshape)) return read_repeated(rows, node, depth + 1);
  return read_slice(rows, node, depth + 1) || read_turned(rows, node, depth + 1);
}

/* ---- kinds of padding ---- */

static int64_t at_edge(int64_t before, int64_t size) { return before < 0 ? 0 : size - 1; }
static int64_t reflected(int64_t at, int64_t size) { return at < 0 ? -at : 2 * size - 2 - at; }
static int64_t wrapped(int64_t at, int64_t size) { return at < 0 ? at + size : at - size; }

static const struct {
  const char *mode;
  int64_t (*row)(int64_t at, int64_t size); /* what stands outside, at a position before 0 or from the size on */
} kinds[] = {{"edge", at_edge}, {"reflect", reflected}, {"wrap", wrapped}};

static bool is_kind(const Rows *rows, int64_t before, size_t kind) {
  for (int64_t i = 0; i < rows->count; i++) {
    int64_t at = i - before, row = at >= 0 && at < rows->size ? at : kinds[kind].row(at, rows->size);
    if (row < 0 || row >= rows->size || rows->positions[i] != row) return false;
  }
  return true;
}

/* ---- the node ---- */

typedef struct Border {
  int64_t axis, before, after;
  const char *mode; /* or NULL: with a number */
} Border;

/* The type in which the runtime pads this one: a half may be widened for it. DTYPE_NONE: there is none. */
static DType padded_type(const Match *match, DType dtype, const char *mode) {
  if (schema_runs(OP_Pad, mode, match_opset(match), dtype)) return dtype;
  bool widens = dtype_is_half(dtype) && schema_runs(OP_Pad, mode, match_opset(match), DTYPE_FLOAT32);
  return widens ? DTYPE_FLOAT32 : DTYPE_NONE;
}

static bool emit_pad(Match *match, Value *array, const Border *border, double number) {
  Node *root = match->root;
  Rewriter *rewriter = match->rewriter;
  int64_t amounts[2 * MAX_RANK] = {0}, rank = array->type.rank;
  DType dtype = padded_type(match, array->type.dtype, border->mode);
  if (dtype == DTYPE_NONE) return false;
  amounts[border->axis] = border->before;
  amounts[rank + border->axis] = border->after;
  Value *source = match_in_type(match, array, dtype);
  Value *inputs[3] = {source, rewrite_constant_ints(rewriter, root, amounts, 2 * (size_t)rank, root->origin)};
  if (!border->mode) inputs[2] = rewrite_constant_number(rewriter, root, dtype, number, root->origin);
  Type type = type_with(match_type(match), dtype);
  Node *pad = match_node_before(match, OP_Pad, type, inputs, border->mode ? 2 : 3, REWRITE_EMITTER(rewriter));
  if (border->mode) node_set_string(pad, "mode", border->mode);
  match_replace(match, match_in_type(match, pad->outputs[0], match_type(match).dtype));
  return true;
}

/* ---- joined to its own rows ---- */

/* What is joined to the array is made of it? */
static bool is_made_of(const Value *value, const Value *array, int depth) {
  const Node *node = value->producer;
  if (value == array) return true;
  if (!node || depth == DEEPEST) return false;
  if (node_is(node, OP_Concat))
    return node->input_count > 1 &&
           (is_made_of(node_input(node, 0), array, depth + 1) || is_made_of(node_input(node, 1), array, depth + 1));
  bool moves =
      node_is(node, OP_Slice) || node_is(node, OP_Reshape) || node_is(node, OP_Expand) || node_is(node, OP_Unsqueeze);
  return moves && is_made_of(node_input(node, 0), array, depth + 1);
}

static bool all_are_made_of(const Node *concat, const Value *array) {
  for (uint32_t i = 0; i < concat->input_count; i++) {
    if (!is_made_of(node_input(concat, i), array, 0)) return false;
  }
  return true;
}

static Value *longest_operand(const Node *concat, int64_t axis) {
  Value *longest = node_input(concat, 0);
  for (uint32_t i = 1; i < concat->input_count; i++) {
    if (size_along(node_input(concat, i), axis) > size_along(longest, axis)) longest = node_input(concat, i);
  }
  return longest;
}

/* How much is joined before the array; -1: others read what is joined on the way, too. */
static int64_t size_before(Match *match, const Value *array, int64_t axis) {
  const Node *concat = match->root;
  for (int64_t before = 0;;) {
    Value *longest = longest_operand(concat, axis);
    for (uint32_t i = 0; node_input(concat, i) != longest; i++) before += size_along(node_input(concat, i), axis);
    if (longest == array) return before;
    concat = match_take(match, longest, OP_Concat);
    if (!concat) return -1;
  }
}

static bool pads_with_rows(Match *match, Value *array, int64_t axis) {
  Arena *arena = &match->rewriter->context->arena;
  int64_t size = size_along(array, axis), whole = size_along(match->root->outputs[0], axis);
  Rows rows = {.match = match, .array = array, .axis = axis, .size = size, .room = 3 * whole};
  if (size < 1 || whole <= size || whole >= 2 * size || whole > LONGEST_AXIS || !all_are_made_of(match->root, array))
    return false;
  rows.positions = arena_new_array(arena, (size_t)rows.room, int64_t);
  if (!read_joined(&rows, match->root, 0) || rows.count != whole) return false;
  int64_t before = size_before(match, array, axis);
  for (size_t kind = 0; before >= 0 && kind < sizeof kinds / sizeof *kinds; kind++) {
    Border border = {axis, before, whole - size - before, kinds[kind].mode};
    if (is_kind(&rows, before, kind)) return emit_pad(match, array, &border, 0);
  }
  return false;
}

static bool fuse_own_rows(Match *match) {
  size_t taken = match->node_count;
  int64_t axis;
  if (!axis_of(match->root, &axis) || match->root->input_count > MOST_LOOKED_AT) return false;
  Value *array = longest_operand(match->root, axis);
  for (int depth = 0; depth < 3; depth++) {
    if (pads_with_rows(match, array, axis)) return true;
    match->node_count = taken;
    const Node *inner = array->producer;
    int64_t its;
    if (!inner || !node_is(inner, OP_Concat) || !axis_of(inner, &its) || its != axis) return false;
    array = longest_operand(inner, axis);
  }
  return false;
}

/* ---- joined to a number ---- */

/* A constant of one number, spread or not. */
static bool is_filled(const Value *value, double *number) {
  const Node *node = value->producer;
  if (node && is_cast_of_half(node)) node = node_input(node, 0)->producer;
  if (node && node_is(node, OP_Expand)) value = node_input(node, 0);
  return uniform_number(value, number);
}

static bool is_window(const Node *node) {
  return node_is(node, OP_Conv) || node_is(node, OP_MaxPool) || node_is(node, OP_AveragePool);
}

/* Do windows alone read it, maybe with its axes in another order or widened? */
static bool is_for_windows(const Value *value, int depth) {
  int budget = MOST_LOOKED_AT;
  for (const Use *use = value->uses; use; use = use->next) {
    if (!use->node || !budget--) return false;
    if (is_window(use->node) && node_input(use->node, 0) == value) continue;
    bool passes_on = node_is(use->node, OP_Transpose) || is_cast_of_half(use->node);
    if (!passes_on || depth == 2 || !is_for_windows(use->node->outputs[0], depth + 1)) return false;
  }
  return value->uses != NULL;
}

static bool fuse_number(Match *match) {
  const Node *root = match->root;
  Value *array = NULL;
  double number = 0, other;
  Border border = {0};
  if (!axis_of(root, &border.axis) || root->input_count > 3 || !is_for_windows(root->outputs[0], 0)) return false;
  for (uint32_t i = 0, fills = 0; i < root->input_count; i++) {
    Value *value = node_input(root, i);
    int64_t size = size_along(value, border.axis);
    if (!is_filled(value, &other)) {
      if (array) return false;
      array = value;
      continue;
    }
    if (size < 1 || (fills++ && other != number)) return false;
    number = other;
    match_take(match, value, OP_Expand); /* where it is one */
    *(array ? &border.after : &border.before) += size;
  }
  return array && array->type.rank >= 3 && emit_pad(match, array, &border, number);
}

/* ---- one after the other ---- */

enum { SOURCE, INNER };

static const int64_t *amounts_of(const Node *pad) {
  const Tensor *pads = constant_of(node_input(pad, 1));
  Type type = pad->outputs[0]->type;
  if (!pads || pads->dtype != DTYPE_INT64 || type.dtype == DTYPE_NONE || node_input(pad, 3)) return NULL;
  return pads->size == 2 * type.rank * sizeof(int64_t) ? pads->data : NULL;
}

static bool is_mode(const Node *pad, const char *wanted) {
  const Attribute *mode = node_attribute(pad, "mode");
  return mode && mode->kind == ATTRIBUTE_STRING && strcmp(mode->string, wanted) == 0;
}

/* Are both pads of an axis one? The second may reach no further than the array itself, which wrapping around does. */
static bool add_up(const int64_t *first, const int64_t *second, uint32_t axis, Type between, bool wraps) {
  int64_t before = first[axis], after = first[between.rank + axis];
  int64_t then_before = second[axis], then_after = second[between.rank + axis];
  if (before < 0 || after < 0 || then_before < 0 || then_after < 0) return false;
  if ((before == 0 && after == 0) || (then_before == 0 && then_after == 0)) return true;
  if (wraps || (before && then_before) || (after && then_after) || !dim_is_constant(between.dims[axis])) return false;
  int64_t left = between.dims[axis].constant; /* of the array, without what was padded */
  return before <= left && after <= left - before && then_before < left - before - after &&
         then_after < left - before - after;
}

static bool fuse_both(Match *match) {
  const Node *outer = match->root, *inner = match->values[INNER]->producer;
  const int64_t *first = amounts_of(inner), *second = amounts_of(outer);
  const char *mode = is_mode(outer, "edge") ? "edge" : is_mode(outer, "reflect") ? "reflect" : "wrap";
  Type between = match->values[INNER]->type;
  int64_t sum[2 * MAX_RANK];
  if (!first || !second || !is_mode(outer, mode) || !is_mode(inner, mode) || between.rank != match_type(match).rank)
    return false;
  for (uint32_t i = 0; i < between.rank; i++) {
    if (!add_up(first, second, i, between, strcmp(mode, "wrap") == 0)) return false;
    sum[i] = first[i] + second[i];
    sum[between.rank + i] = first[between.rank + i] + second[between.rank + i];
  }
  Value *pads = rewrite_constant_ints(match->rewriter, match->root, sum, 2 * (size_t)between.rank, outer->origin);
  node_set_string(EMIT_MATCH(match, OP_Pad, match->values[SOURCE], pads), "mode", mode);
  return true;
}

static const FusionRule rules[] = {
    {OP(Concat, ANY(0), ANY(1)), OP_NONE, fuse_number},
    {OP(Concat, ANY(0), ANY(1)), OP_NONE, fuse_own_rows},
    {OP(Pad, OP_AT(INNER, Pad, ANY(SOURCE))), OP_NONE, fuse_both},
};

bool fuse_borders(Model *model) { return fuse_patterns(model, __func__, rules, sizeof rules / sizeof *rules); }
