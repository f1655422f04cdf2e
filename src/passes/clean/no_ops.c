/* No-ops: nodes that give back what they were given, and chains that one node can say.
 *
 * Only what is exact for the element type goes: x * 1 and x - 0 do, x + 0.0 does not (it turns -0.0 into 0.0). Sizes
 * known only at run time are equal when their expressions are.
 */
#include <math.h>

#include "base/bytes.h"
#include "onnx/evaluate/evaluate.h"
#include "onnx/facts/schema.h"
#include "passes/analysis/positions.h"
#include "passes/clean/computed_shapes.h"
#include "passes/clean/kept_axes.h"
#include "passes/layout/permute_axes.h"
#include "passes/passes.h"
#include "passes/pattern.h"
#include "passes/rewrite.h"
#include "types/moved.h"
#include "types/numbers.h"

static Type input_type(const Node *node, size_t index) {
  const Value *value = node_input(node, index);
  return value ? value->type : (Type){0};
}

static Type output_type(const Node *node) { return node->outputs[0]->type; }

static bool known(Type type) { return type.dtype != DTYPE_NONE; }

static bool same_type(Type a, Type b) { return known(a) && type_equal(a, b); }

static Node *producer(const Node *node, size_t index) {
  const Value *value = node_input(node, index);
  return value ? value->producer : NULL;
}

/* A constant has no node to hand sites to and may be replaced by another later: where it was a node's value is then
 * known to those who read it. */
static Node *replace(Rewriter *rewriter, Node *node, Value *replacement) {
  for (const Use *use = node->outputs[0]->uses; use && replacement->tensor; use = use->next) {
    rewrite_hand_over(rewriter, use->node, node);
  }
  return rewrite_replace(rewriter, node, replacement);
}

/* Takes the place of the node that made the first input: the node reads that one's input itself, and does its work even
 * where others keep it. */
static void read_past(Rewriter *rewriter, Node *node, Node *inner) {
  use_set(&node->inputs[0], node_input(inner, 0));
  rewrite_hand_over(rewriter, node, inner);
  rewrite_drop_unused(rewriter, inner, NULL);
  rewriter->changed = true;
}

/* The node and the one before it undo each other. */
static void cancel(Rewriter *rewriter, Node *node, Node *inner) {
  Value *source = node_input(inner, 0);
  Node *stays = replace(rewriter, node, source);
  rewrite_drop_unused(rewriter, inner, stays);
}

static void simplify_identity(Rewriter *rewriter, Node *node) { replace(rewriter, node, node_input(node, 0)); }

/* ---- Cast ---- */

/* Bits of an integer that a float type holds exactly. */
static unsigned exact_bits(DType dtype) {
  switch (dtype) {
    case DTYPE_BFLOAT16: return 8;
    case DTYPE_FLOAT16: return 11;
    case DTYPE_FLOAT32: return 24;
    case DTYPE_FLOAT64: return 53;
    default: return 0;
  }
}

/* Does every value of one type have its exact equal in the other? */
static bool widens(DType from, DType to) {
  DKind a = dtype_kind(from), b = dtype_kind(to);
  unsigned bits = dtype_bits(from);
  if (from >= DTYPE_COMPLEX64 || to >= DTYPE_COMPLEX64 || from == to) return false; /* and 8-bit floats */
  if (a == KIND_BOOL) return true;
  if (b == KIND_FLOAT) {
    if (a == KIND_FLOAT) return dtype_bits(to) > bits;
    return exact_bits(to) >= bits; /* an int8 needs 7 bits and -128 is a power of two: being strict costs nothing */
  }
  if (a == KIND_INT) return b == KIND_INT && dtype_bits(to) > bits;
  return a == KIND_UINT && (b == KIND_INT || b == KIND_UINT) && dtype_bits(to) > bits;
}

/* Signed and unsigned numbers of one width, such as words of keys, are the same bits, and come back as they were. */
static bool changes_sign_alone(DType from, DType to) {
  DKind a = dtype_kind(from), b = dtype_kind(to);
  bool both = (a == KIND_INT && b == KIND_UINT) || (a == KIND_UINT && b == KIND_INT);
  return both && dtype_bits(from) == dtype_bits(to) && dtype_bits(from) >= 32;
}

/* A truth value as a number, or the largest or smallest of some. */
static bool is_zero_or_one(const Value *value) {
  enum { MOST_REDUCTIONS = 4 };
  const Node *node = value->producer;
  for (int i = 0; node && i < MOST_REDUCTIONS && (node_is(node, OP_ReduceMax) || node_is(node, OP_ReduceMin)); i++) {
    node = node_input(node, 0)->producer;
  }
  return node && node_is(node, OP_Cast) && input_type(node, 0).dtype == DTYPE_BOOL;
}

static void simplify_cast(Rewriter *rewriter, Node *node) {
  if (same_type(input_type(node, 0), output_type(node))) {
    replace(rewriter, node, node_input(node, 0));
    return;
  }
  Node *inner = producer(node, 0);
  if (inner && node_is(inner, OP_Cast) && output_type(inner).dtype == DTYPE_BOOL &&
      same_type(input_type(inner, 0), output_type(node)) && is_zero_or_one(node_input(inner, 0))) {
    cancel(rewriter, node, inner);
    return;
  }
  if (inner && node_is(inner, OP_Cast) && same_type(input_type(inner, 0), output_type(node)) &&
      changes_sign_alone(input_type(inner, 0).dtype, output_type(inner).dtype)) {
    cancel(rewriter, node, inner);
    return;
  }
  if (!inner || !node_is(inner, OP_Cast) || !widens(input_type(inner, 0).dtype, output_type(inner).dtype)) return;
  if (output_type(node).dtype >= DTYPE_COMPLEX64) return;
  if (same_type(input_type(inner, 0), output_type(node))) cancel(rewriter, node, inner);
  else read_past(rewriter, node, inner);
}

/* ---- Transpose ---- */

static void permutation_of(const Node *node, int64_t *permutation) {
  uint32_t rank = output_type(node).rank;
  const Attribute *attribute = node_attribute(node, "perm");
  for (uint32_t i = 0; i < rank; i++) {
    bool given = attribute && attribute->kind == ATTRIBUTE_INTS && attribute->count == rank;
    permutation[i] = given ? attribute->integers[i] : (int64_t)(rank - 1 - i);
  }
}

static bool is_identity(const int64_t *permutation, uint32_t rank) {
  for (uint32_t i = 0; i < rank; i++) {
    if (permutation[i] != (int64_t)i) return false;
  }
  return true;
}

static void simplify_transpose(Rewriter *rewriter, Node *node) {
  uint32_t rank = output_type(node).rank;
  if (!known(input_type(node, 0)) || input_type(node, 0).rank != rank || rank > MAX_RANK) return;
  int64_t outer[MAX_RANK], first[MAX_RANK], both[MAX_RANK];
  permutation_of(node, outer);
  if (is_identity(outer, rank)) {
    replace(rewriter, node, node_input(node, 0));
    return;
  }
  Node *inner = producer(node, 0);
  if (!inner || !node_is(inner, OP_Transpose) || !known(input_type(inner, 0)) || output_type(inner).rank != rank)
    return;
  permutation_of(inner, first);
  for (uint32_t i = 0; i < rank; i++) {
    if (outer[i] < 0 || outer[i] >= (int64_t)rank) return;
    both[i] = first[outer[i]];
  }
  if (is_identity(both, rank)) {
    cancel(rewriter, node, inner);
    return;
  }
  node_set_ints(node, "perm", both, rank);
  read_past(rewriter, node, inner);
}

/* ---- Reshape, Squeeze, Unsqueeze, Flatten ---- */

/* What to tell Reshape: 0 for a size known only at run time that stays in its place, -1 for one alone among constants
 * (beside another that turns out to be 0 it would be ambiguous). */
static bool reshape_numbers(Type from, Type to, int64_t *numbers) {
  uint32_t symbolic = 0;
  for (uint32_t i = 0; i < to.rank; i++) symbolic += !dim_is_constant(to.dims[i]);
  for (uint32_t i = 0; i < to.rank; i++) {
    if (dim_is_constant(to.dims[i])) numbers[i] = to.dims[i].constant;
    else if (i < from.rank && dim_equal(from.dims[i], to.dims[i])) numbers[i] = 0;
    else if (symbolic == 1) numbers[i] = -1;
    else return false;
    if (dim_is(to.dims[i], 0)) return false; /* 0 has a meaning of its own */
  }
  return true;
}

static bool same_numbers(const Tensor *tensor, const int64_t *numbers, size_t count) {
  return tensor && tensor->dtype == DTYPE_INT64 && tensor->size == count * sizeof *numbers &&
         same_bytes(tensor->data, numbers, tensor->size);
}

/* Is one shape the other with axes of size 1 put in? axes receives which. */
static bool puts_in_axes(Type shorter, Type longer, int64_t *axes, size_t *count) {
  uint32_t next = 0;
  *count = 0;
  for (uint32_t i = 0; i < longer.rank; i++) {
    if (next < shorter.rank && dim_equal(longer.dims[i], shorter.dims[next])) next++;
    else if (dim_is(longer.dims[i], 1)) axes[(*count)++] = i;
    else return false;
  }
  return next == shorter.rank;
}

/* Several sizes known only at run time, which no Reshape to constant numbers can say: axes are put in or left out. */
static void change_axes_at_once(Rewriter *rewriter, Node *node, Node *inner) {
  Type from = input_type(inner, 0), to = output_type(node);
  int64_t axes[MAX_RANK];
  size_t count;
  bool longer = to.rank > from.rank;
  if (from.rank > MAX_RANK || node_input(node, 0)->uses->next) return;
  if (!puts_in_axes(longer ? from : to, longer ? to : from, axes, &count) || count == 0) return;
  const Origin *origin = REWRITE_ORIGIN(rewriter, node);
  Value *inputs[] = {node_input(inner, 0), rewrite_constant_ints(rewriter, node, axes, count, node->origin)};
  Node *change = graph_node(node->graph, origin, longer ? OP_Unsqueeze : OP_Squeeze, inputs, 2, &to, 1, node);
  replace(rewriter, node, change->outputs[0]);
  rewrite_drop_unused(rewriter, inner, change);
}

/* The same where the sizes of a Reshape are computed: axes of size 1 before it are no matter to it, and those after it
 * it leaves out itself. */
static void reshape_by_computed_sizes(Rewriter *rewriter, Node *node, Node *inner) {
  Type to = output_type(node);
  if (node_is(node, OP_Reshape) && !node_is(inner, OP_Reshape) && gives_the_same(node, input_type(inner, 0))) {
    read_past(rewriter, node, inner);
    return;
  }
  bool is_squeezed = node_is(node, OP_Squeeze) && node_is(inner, OP_Reshape) && value_only_user(node_input(node, 0));
  Value *shape = is_squeezed ? shape_without_ones(rewriter, inner, node) : NULL;
  if (!shape) return;
  const Origin *origin = REWRITE_ORIGIN(rewriter, node);
  Value *inputs[] = {node_input(inner, 0), shape};
  Node *reshape = graph_node(node->graph, origin, OP_Reshape, inputs, 2, &to, 1, node);
  replace(rewriter, node, reshape->outputs[0]);
  rewrite_drop_unused(rewriter, inner, reshape);
}

/* One Reshape of what the first node read. */
static void reshape_at_once(Rewriter *rewriter, Node *node, Node *inner) {
  Type from = input_type(inner, 0), to = output_type(node);
  int64_t numbers[MAX_RANK];
  if (to.rank > MAX_RANK) return;
  if (!reshape_numbers(from, to, numbers)) {
    change_axes_at_once(rewriter, node, inner);
    if (!node->is_gone) reshape_by_computed_sizes(rewriter, node, inner);
    return;
  }
  const Tensor *told = node_is(node, OP_Reshape) ? constant_of(node_input(node, 1)) : NULL;
  bool is_told = same_numbers(told, numbers, to.rank);
  if (node_is(node, OP_Reshape) && (is_told || !told || !told->name)) { /* a name is not one of other numbers */
    if (!is_told) use_set(&node->inputs[1], rewrite_constant_ints(rewriter, node, numbers, to.rank, node->origin));
    if (node_int_or(node, "allowzero", 0)) node_set_int(node, "allowzero", 0);
    read_past(rewriter, node, inner);
    return;
  }
  if (node_input(node, 0)->uses->next) return; /* the first one stays: nothing would be won */
  const Origin *origin = REWRITE_ORIGIN(rewriter, node);
  Value *inputs[] = {node_input(inner, 0), rewrite_constant_ints(rewriter, node, numbers, to.rank, node->origin)};
  Node *reshape = graph_node(node->graph, origin, OP_Reshape, inputs, 2, &to, 1, node);
  replace(rewriter, node, reshape->outputs[0]);
  rewrite_drop_unused(rewriter, inner, reshape);
}

/* A Loop that takes no step gives its stacked results shapes that are not what their types say; a Reshape to sizes
 * computed at run time, zeros among them, mends that. */
static bool mends_shape(const Node *node) {
  return node_is(node, OP_Reshape) && node_int_or(node, "allowzero", 0) && !constant_of(node_input(node, 1));
}

/* A Transpose that moves nothing but axes of size 1. */
static bool keeps_elements(const Node *node) {
  AxisOrder order;
  return node_is(node, OP_Transpose) && transpose_order(node, &order) &&
         order_keeps_elements(input_type(node, 0), &order);
}

static void simplify_reshape(Rewriter *rewriter, Node *node) {
  Type to = output_type(node);
  if (mends_shape(node)) return;
  if (same_type(input_type(node, 0), to)) {
    replace(rewriter, node, node_input(node, 0));
    return;
  }
  Node *inner = producer(node, 0);
  if (!inner || !known(input_type(inner, 0)) || !known(to)) return;
  if (keeps_elements(inner)) change_axes_at_once(rewriter, node, inner);
  if (!node_has(inner, RENAMES) || mends_shape(inner)) return;
  if (same_type(input_type(inner, 0), to)) cancel(rewriter, node, inner);
  else reshape_at_once(rewriter, node, inner);
}

/* ---- Slice, Concat ---- */

/* With steps forward, a slice as long as its input is the input; turned around twice it is as it was. */
static void simplify_slice(Rewriter *rewriter, Node *node) {
  int64_t axis, other;
  if (!same_type(input_type(node, 0), output_type(node))) return;
  if (reverses_axis(node, &axis) && reverses_axis(producer(node, 0), &other) && axis == other) {
    cancel(rewriter, node, producer(node, 0));
    return;
  }
  const Value *steps = node_input(node, 4);
  if (steps) {
    const Tensor *tensor = constant_of(steps);
    if (!tensor || !dtype_is_integer(tensor->dtype)) return;
    size_t width = dtype_bytes(tensor->dtype, 1);
    for (size_t at = 0; at + width <= tensor->size; at += width) {
      if (number_decode_int(tensor->dtype, (const char *)tensor->data + at) <= 0) return;
    }
  }
  replace(rewriter, node, node_input(node, 0));
}

/* An input as long as the result: there are no others, or they are empty. */
static void simplify_concat(Rewriter *rewriter, Node *node) {
  Value *whole = NULL;
  for (uint32_t i = 0; i < node->input_count && !whole; i++) {
    if (same_type(input_type(node, i), output_type(node))) whole = node_input(node, i);
  }
  if (!whole) return;
  for (uint32_t i = 0; i < node->input_count; i++) {
    Node *empty = producer(node, i);
    if (!empty || node_input(node, i) == whole) continue;
    use_set(&node->inputs[i], whole);
    rewrite_drop_unused(rewriter, empty, node);
  }
  replace(rewriter, node, whole);
}

/* ---- arithmetic with a neutral element ---- */

enum { LARGEST_NEUTRAL = 1 << 16 /* bytes: longer constants are not looked through */ };

/* The bits of the one element that the whole constant consists of. Not of a parameter: its name says that its value
 * may be another tomorrow, and a scale of ones is one of a kind that readers look for. */
static bool uniform_bits(const Value *value, uint64_t *bits) {
  const Tensor *tensor = unread_constant_of(value);
  if (!tensor || tensor->name || tensor->size == 0 || tensor->size > LARGEST_NEUTRAL) return false;
  size_t width = dtype_bytes(tensor->dtype, 1);
  if (width > sizeof *bits || dtype_bits(tensor->dtype) < 8 || tensor->size % width) return false;
  tensor_ready(tensor);
  *bits = 0;
  copy_bytes(bits, tensor->data, width);
  const char *data = tensor->data;
  for (size_t at = width; at < tensor->size; at += width) {
    if (!same_bytes(data, data + at, width)) return false;
  }
  return true;
}

/* What is spread over more axes, or has them in another order, has the elements that it had before. */
static const Value *before_spread(const Value *value) {
  enum { DEEPEST = 4 };
  for (int depth = 0; depth < DEEPEST && value && value->producer; depth++) {
    const Node *node = value->producer;
    if (!node_is(node, OP_Expand) && !node_has(node, RENAMES) && !node_is(node, OP_Transpose)) break;
    value = node_input(node, 0);
  }
  return value;
}

static bool is_neutral(const Value *value, Neutral neutral) {
  uint64_t bits;
  value = before_spread(value);
  if (!uniform_bits(value, &bits)) return false;
  DType dtype = constant_of(value)->dtype;
  if (dtype >= DTYPE_COMPLEX64) return false;
  switch (neutral) {
    case ZERO:
    case POSITIVE_ZERO: return bits == 0;
    case NEGATIVE_ZERO: return bits == (uint64_t)1 << (dtype_bits(dtype) - 1);
    case ONE: return bits == number_encode(dtype, 1);
    case ALL_BITS: return bits == UINT64_MAX >> (64 - dtype_bits(dtype));
    case LOWEST: return bits == number_encode(dtype, -INFINITY);
    case HIGHEST: return bits == number_encode(dtype, INFINITY);
    default: return false;
  }
}

/* A neutral constant may be the larger operand: what it does to the shape is left to those who read the result. */
static bool leave_to_broadcasting(Rewriter *rewriter, Node *node, Value *source);

static bool is_annihilated(const Node *node, const Value *value) {
  uint64_t bits;
  bool conjunction = node_is(node, OP_And);
  if ((!conjunction && !node_is(node, OP_Or)) || !uniform_bits(value, &bits)) return false;
  return (bits == 0) == conjunction;
}

static void simplify_arithmetic(Rewriter *rewriter, Node *node) {
  const Operator *operator = &operators[node->op];
  if (node->input_count != 2) return;
  Neutral neutral = dtype_is_float(output_type(node).dtype) ? operator->neutral_real : operator->neutral_integer;
  for (size_t side = node_has(node, COMMUTES) ? 0 : 1; side < 2; side++) {
    Value *value = node_input(node, side), *other = node_input(node, 1 - side);
    if (is_annihilated(node, value)) other = value;
    else if (!is_neutral(value, neutral)) continue;
    if (!known(other->type)) continue;
    if (same_type(other->type, output_type(node))) replace(rewriter, node, other);
    else if (!leave_to_broadcasting(rewriter, node, other)) continue;
    return;
  }
}

/* With axes of size 1 in front. */
static void replace_with_axes(Rewriter *rewriter, Node *node, Value *value) {
  Type from = value->type, to = output_type(node);
  int64_t axes[MAX_RANK];
  uint32_t missing = to.rank - from.rank;
  for (uint32_t i = 0; i < to.rank; i++) {
    axes[i] = i;
    if (i < missing ? !dim_is(to.dims[i], 1) : !dim_equal(to.dims[i], from.dims[i - missing])) return;
  }
  Value *inputs[] = {value, rewrite_constant_ints(rewriter, node, axes, missing, node->origin)};
  const Origin *origin = REWRITE_ORIGIN(rewriter, node);
  replace(rewriter, node, graph_node(node->graph, origin, OP_Unsqueeze, inputs, 2, &to, 1, node)->outputs[0]);
}

static void simplify_where(Rewriter *rewriter, Node *node) {
  uint64_t condition;
  if (!uniform_bits(node_input(node, 0), &condition)) return;
  size_t taken = condition ? 1 : 2;
  Type from = input_type(node, taken), to = output_type(node);
  if (same_type(from, to)) replace(rewriter, node, node_input(node, taken));
  else if (known(from) && known(to) && from.rank < to.rank && to.rank <= MAX_RANK)
    replace_with_axes(rewriter, node, node_input(node, taken));
}

/* Of operators that are their own inverse, exactly. */
static void simplify_involution(Rewriter *rewriter, Node *node) {
  Node *inner = producer(node, 0);
  if (inner && node_is(inner, node->op) && same_type(input_type(inner, 0), output_type(node))) {
    cancel(rewriter, node, inner);
  }
}

/* ---- what broadcasting does anyway ---- */

/* Does the node give the same shape when it reads `instead` wherever it reads `value`? */
static bool broadcasts_to_the_same(const Node *node, const Value *value, const Value *instead) {
  Type to = output_type(node);
  bool covered[MAX_RANK] = {false};
  uint32_t most = 0;
  if (to.rank > MAX_RANK || !known(to)) return false;
  for (uint32_t i = 0; i < node->input_count; i++) {
    const Value *operand = node->inputs[i].value == value ? instead : node->inputs[i].value;
    if (!operand || !known(operand->type) || operand->type.rank > to.rank) return false;
    if (operand->type.rank > most) most = operand->type.rank;
    uint32_t shift = to.rank - operand->type.rank;
    for (uint32_t axis = 0; axis < operand->type.rank; axis++) {
      Dim dim = operand->type.dims[axis];
      if (dim_equal(dim, to.dims[shift + axis])) covered[shift + axis] = true;
      else if (!dim_is(dim, 1)) return false;
    }
  }
  for (uint32_t axis = 0; axis < to.rank; axis++) {
    if (!covered[axis]) return false;
  }
  return most == to.rank;
}

/* A number that keep_double_scales has repeated along one axis, for the runtime's sake. */
static bool is_kept_scale(const Node *node, const Value *value) {
  uint32_t axes = 0;
  if ((!node_is(node, OP_Mul) && !node_is(node, OP_Div)) || value->type.dtype != DTYPE_FLOAT64) return false;
  for (uint32_t i = 0; i < value->type.rank; i++) axes += !dim_is(value->type.dims[i], 1);
  return axes == 1;
}

/* Expand broadcasts its first input as well, when its target names every axis. */
static bool expands_to_the_same(const Node *node, const Value *value) {
  Type target = input_type(node, 1);
  return node_is(node, OP_Expand) && node_input(node, 1) != value && target.rank == 1 &&
         dim_is(target.dims[0], output_type(node).rank);
}

/* The uses of the node's value read the value before it, if all of them broadcast it anyway. */
static bool leave_to_broadcasting(Rewriter *rewriter, Node *node, Value *source) {
  Value *value = node->outputs[0];
  for (const Use *use = value->uses; use; use = use->next) {
    if (!use->node || (unread_constant_of(source) && is_kept_scale(use->node, value))) return false;
    bool does = node_has(use->node, BROADCASTS) ? broadcasts_to_the_same(use->node, value, source)
                                                : expands_to_the_same(use->node, value);
    if (!does) return false;
  }
  if (!value->uses) return false;
  replace(rewriter, node, source);
  return true;
}

/* A constant all of whose elements are alike is one element to an operator that broadcasts. */
static void shrink_uniform(Rewriter *rewriter, Node *node) {
  Arena *arena = &rewriter->context->arena;
  uint64_t bits;
  for (uint32_t i = 0; i < node->input_count; i++) {
    Value *value = node->inputs[i].value;
    if (!value || value->type.rank == 0 || !uniform_bits(value, &bits) || !node_has(node, BROADCASTS)) continue;
    Value scalar = {.type = {.dtype = value->type.dtype}};
    if (!broadcasts_to_the_same(node, value, &scalar) || is_kept_scale(node, value)) continue;
    Tensor *tensor = arena_copy(arena, constant_of(value), sizeof *tensor);
    tensor->rank = 0;
    tensor->size = dtype_bytes(tensor->dtype, 1);
    use_set(&node->inputs[i], rewrite_constant(rewriter, node, tensor, value->origin ? value->origin : node->origin));
    rewriter->changed = true;
  }
}

static bool adds_leading_ones(const Node *node) {
  Type from = input_type(node, 0), to = output_type(node);
  if (!known(from) || !known(to) || to.rank <= from.rank) return false;
  uint32_t more = to.rank - from.rank;
  for (uint32_t i = 0; i < more; i++) {
    if (!dim_is(to.dims[i], 1)) return false;
  }
  return type_same_shape(from, (Type){.rank = from.rank, .dims = to.dims + more});
}

static void simplify_expand(Rewriter *rewriter, Node *node) {
  Type from = input_type(node, 0);
  if (same_type(from, output_type(node))) replace(rewriter, node, node_input(node, 0));
  else if (known(from) && known(output_type(node))) leave_to_broadcasting(rewriter, node, node_input(node, 0));
}

static void simplify_reshape_or_leave(Rewriter *rewriter, Node *node) {
  if (adds_leading_ones(node) && leave_to_broadcasting(rewriter, node, node_input(node, 0))) return;
  if (keep_reduced_axes(rewriter, node)) return;
  simplify_reshape(rewriter, node);
}

/* Of axes with one element each nothing is reduced; where they are not kept, they are left out. */
static void reduce_nothing(Rewriter *rewriter, Node *node) {
  Type from = input_type(node, 0), to = output_type(node);
  bool axes[MAX_RANK] = {false};
  int64_t gone[MAX_RANK];
  size_t count = 0;
  if (!known(from) || !known(to) || from.dtype != to.dtype || type_is_unranked(from) || !reduced_axes(node, axes))
    return;
  for (uint32_t i = 0; i < from.rank; i++) {
    if (axes[i] && !dim_is(from.dims[i], 1)) return;
    if (axes[i]) gone[count++] = i;
  }
  if (same_type(from, to)) {
    replace(rewriter, node, node_input(node, 0));
    return;
  }
  if (to.rank + count != from.rank) return;
  Value *inputs[] = {node_input(node, 0), rewrite_constant_ints(rewriter, node, gone, count, node->origin)};
  Node *squeeze = graph_node(node->graph, REWRITE_ORIGIN(rewriter, node), OP_Squeeze, inputs, 2, &to, 1, node);
  replace(rewriter, node, squeeze->outputs[0]);
}

/* Along axes that were reduced and kept, each of one element, the same reduction only drops them. */
static bool reduce_once(Rewriter *rewriter, Node *node) {
  Node *inner = producer(node, 0);
  bool axes[MAX_RANK] = {false}, again[MAX_RANK] = {false};
  if (!inner || inner->op != node->op || inner->graph != node->graph || node_int_or(inner, "keepdims", 1) != 1)
    return false;
  if (!known(input_type(inner, 0)) || type_is_unranked(input_type(inner, 0))) return false;
  if (!reduced_axes(inner, axes) || !reduced_axes(node, again) || memcmp(axes, again, sizeof axes) != 0) return false;
  read_past(rewriter, node, inner);
  return true;
}

static void simplify_reduction(Rewriter *rewriter, Node *node) {
  if (!reduce_once(rewriter, node)) reduce_nothing(rewriter, node);
}

static bool are_all_true(const Tensor *mask) {
  for (size_t i = 0; mask && mask->dtype == DTYPE_BOOL && i < mask->size; i++) {
    if (!((const char *)mask->data)[i]) return false;
  }
  return mask && mask->dtype == DTYPE_BOOL;
}

/* What is kept altogether has the size that it had: so have those that are cast from it. */
static void simplify_compress(Rewriter *rewriter, Node *node) {
  const Tensor *mask = constant_of(node_input(node, 1));
  Type from = input_type(node, 0), to = output_type(node);
  int64_t axis = node_int_or(node, "axis", -1);
  if (!known(from) || type_is_unranked(to) || from.rank != to.rank || axis < 0 || axis >= (int64_t)from.rank) return;
  if (!are_all_true(mask) || mask->rank != 1 || !dim_is(from.dims[axis], mask->dims[0])) return;
  for (const Use *use = node->outputs[0]->uses; use; use = use->next) {
    if (!use->node || (!node_is(use->node, OP_ScatterND) && !node_is(use->node, OP_Cast))) return;
  }
  for (const Use *use = node->outputs[0]->uses; use; use = use->next) {
    if (!node_is(use->node, OP_Cast)) continue;
    Value *cast = use->node->outputs[0];
    cast->type = type_with(from, cast->type.dtype);
  }
  replace(rewriter, node, node_input(node, 0));
}

static bool are_all_positions(const Value *value, Dim size) {
  const Tensor *tensor = constant_of(value);
  if (!tensor || !dim_is(size, tensor_count(tensor)) || !dtype_is_integer(tensor->dtype)) return false;
  for (int64_t i = 0; i < size.constant; i++) {
    if (tensor_int_at(tensor, i) != i) return false;
  }
  return true;
}

/* All positions along an axis, in their order. */
static void simplify_gather(Rewriter *rewriter, Node *node) {
  Type from = input_type(node, 0), places = input_type(node, 1);
  int64_t axis = node_int_or(node, "axis", 0);
  if (axis < 0) axis += from.rank;
  if (!same_type(from, output_type(node)) || !known(places) || places.rank != 1 || axis < 0 || axis >= from.rank)
    return;
  if (are_all_positions(node_input(node, 1), from.dims[axis])) replace(rewriter, node, node_input(node, 0));
}

/* ---- Shape ---- */

/* An input of the node that makes the value with an axis of this size; axis receives which. */
static Value *input_of_size(const Node *node, Dim size, int64_t *axis) {
  for (uint32_t i = 0; i < node->input_count; i++) {
    Value *value = node_input(node, i);
    if (!value || !known(value->type) || type_is_unranked(value->type)) continue;
    for (uint32_t k = 0; k < value->type.rank; k++) {
      if (!dim_equal(value->type.dims[k], size)) continue;
      *axis = k;
      return value;
    }
  }
  return NULL;
}

/* A size known only at run time is that of the input that has it: what was made of that is not kept for it. */
static void simplify_shape(Rewriter *rewriter, Node *node) {
  enum { FARTHEST = 32 };
  Value *value = node_input(node, 0);
  int64_t rank = value->type.rank, start = node_int_or(node, "start", 0), end = node_int_or(node, "end", rank);
  if (!known(value->type) || type_is_unranked(value->type) || start < 0 || start >= rank || end != start + 1) return;
  Dim size = value->type.dims[start];
  if (dim_is_constant(size)) return;
  Value *first = value;
  for (int i = 0; i < FARTHEST && first->producer; i++) {
    if (node_has_subgraph(first->producer) || mends_shape(first->producer)) break;
    Value *before = input_of_size(first->producer, size, &start);
    if (!before) break;
    first = before;
  }
  if (first == value || first->producer) return; /* a node would have to tell of those that it stands for */
  use_set(&node->inputs[0], first);
  node_set_int(node, "start", start);
  node_set_int(node, "end", start + 1);
  rewriter->changed = true;
}

typedef void Simplify(Rewriter *rewriter, Node *node);

static Simplify *const rules[OP_COUNT] = {
    [OP_Identity] = simplify_identity,
    [OP_Cast] = simplify_cast,
    [OP_Transpose] = simplify_transpose,
    [OP_Reshape] = simplify_reshape_or_leave,
    [OP_Unsqueeze] = simplify_reshape_or_leave,
    [OP_Squeeze] = simplify_reshape,
    [OP_Flatten] = simplify_reshape,
    [OP_Expand] = simplify_expand,
    [OP_Slice] = simplify_slice,
    [OP_Shape] = simplify_shape,
    [OP_Gather] = simplify_gather,
    [OP_Concat] = simplify_concat,
    [OP_Compress] = simplify_compress,
    [OP_Where] = simplify_where,
    [OP_ReduceMax] = simplify_reduction,
    [OP_ReduceMin] = simplify_reduction,
    [OP_ReduceSum] = simplify_reduction,
    [OP_ReduceMean] = simplify_reduction,
    [OP_ReduceProd] = simplify_reduction,
};

static void simplify(Rewriter *rewriter, Node *node) {
  if (node->op == OP_NONE || node->output_count != 1 || !node->outputs[0] || !node_input(node, 0)) return;
  shrink_uniform(rewriter, node);
  if (rules[node->op]) rules[node->op](rewriter, node);
  else if (node_has(node, INVOLUTION)) simplify_involution(rewriter, node);
  else if (operators[node->op].neutral_real) simplify_arithmetic(rewriter, node);
}

bool remove_no_ops(Model *model) {
  Rewriter rewriter;
  rewrite_begin(&rewriter, model, __func__);
  rewrite_each_node(&rewriter, simplify);
  return rewrite_end(&rewriter);
}
