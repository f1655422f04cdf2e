/* Constant folding: what is known at export is computed at export.
 *
 * The result takes the place of the node as a constant that keeps the node's origin. A fold never makes the model much
 * larger: a large result is allowed only in place of inputs that nothing else uses. A half that is used in float32 is
 * stored in float32 where it is no large weight; a large one keeps its size in the file and has a Cast.
 *
 * Weights that the program rounds to integers, as training with quantisation does, are read several times on the way:
 * none of the steps may be stored. What they end in may: the integers, which are smaller, and numbers over a whole
 * axis, their scales. So such a step is computed when the end of its chain is, and kept in memory alone.
 *
 * Integers of 4 bits that the program takes out of wider ones, by shifts and masks, are stored as what they are: they
 * take no more room than before.
 */
#include "onnx/evaluate/evaluate.h"
#include "passes/analysis/grids.h"
#include "passes/analysis/quantized.h"
#include "passes/passes.h"
#include "passes/rewrite.h"
#include "types/moved.h"
#include "types/numbers.h"

enum {
  SMALL_RESULT = 1 << 12,       /* bytes that any fold may add to the model */
  LARGEST_WIDENED = 1 << 20,    /* bytes of a half in float32 */
  LARGEST_RESULT = 8 << 20,     /* bytes of a computed result */
  LARGEST_STEP = 64 << 20,      /* bytes of a result on the way to one that is stored */
  LARGEST_TRANSPOSED = 64 << 20 /* bytes of a weight that is only moved */
};

typedef struct Folding {
  Rewriter rewriter;
  Map steps; /* Node -> Step */
} Folding;

/* Does the node take a part of a constant, known at export? */
static bool takes_part(const Node *node, const Value *whole) {
  if (!node || (!node_is(node, OP_Slice) && !node_is(node, OP_Gather)) || node_input(node, 0) != whole) return false;
  for (uint32_t i = 1; i < node->input_count; i++) {
    if (node->inputs[i].value && !constant_of(node->inputs[i].value)) return false;
  }
  return true;
}

/* Bytes that go with the constant, as this use's share: all of them for its only use; where all uses take parts of it,
 * as stacked weights are taken apart, an equal part. */
static size_t share_of(const Value *value) {
  enum { MOST_PARTS = 16 };
  const Tensor *tensor = unread_constant_of(value);
  size_t count = 0;
  if (!tensor) return 0;
  if (value_has_one_use(value)) return tensor->size;
  for (const Use *use = value->uses; use; use = use->next) {
    if (++count > MOST_PARTS || !takes_part(use->node, value)) return 0;
  }
  return tensor->size / count;
}

static bool is_widened_half(const Node *node) {
  return node_is(node, OP_Cast) && dtype_is_half(node_input(node, 0)->type.dtype) &&
         node->outputs[0]->type.dtype == DTYPE_FLOAT32;
}

/* Numbers of few bits that weigh a product keep them: they are stored so, and have operators of their own. */
static bool is_stored_weight(const Node *node) {
  enum { FEWEST = 64 }; /* elements */
  const Value *value = node_input(node, 0);
  int64_t count;
  if (!node_is(node, OP_Cast) || !is_small_number(value->type.dtype) || value->type.rank < 2) return false;
  bool widens = dtype_bits(node->outputs[0]->type.dtype) > dtype_bits(value->type.dtype);
  return widens && type_count(value->type, &count) && count >= FEWEST && leads_to_product(node->outputs[0]);
}

/* Weights that were rounded in floats, before their scale. */
static bool is_whole_weight_scaled(const Node *node) {
  if (!node_is(node, OP_Mul) || !leads_to_product(node->outputs[0])) return false;
  return is_whole_weight(node_input(node, 0)) || is_whole_weight(node_input(node, 1));
}

static size_t largest_result(const Node *node) {
  size_t replaced = SMALL_RESULT;
  if (is_widened_half(node)) return LARGEST_WIDENED;
  for (uint32_t i = 0; i < node->input_count; i++) {
    if (node->inputs[i].value) replaced += share_of(node->inputs[i].value);
  }
  size_t bound = node_has(node, RENAMES) ? SIZE_MAX : node_moves_all(node) ? LARGEST_TRANSPOSED : LARGEST_RESULT;
  return replaced < bound ? replaced : bound;
}

/* Shape looks at the type alone: constant where the sizes asked for are. */
static const Tensor *fold_shape(Rewriter *rewriter, const Node *node) {
  const Value *value = node_input(node, 0);
  if (!value || value->type.dtype == DTYPE_NONE) return NULL;
  int64_t rank = value->type.rank, start = node_int_or(node, "start", 0), end = node_int_or(node, "end", rank);
  if (start < 0) start += rank;
  if (end < 0) end += rank;
  start = start < 0 ? 0 : start > rank ? rank : start;
  end = end < start ? start : end > rank ? rank : end;
  int64_t length = end - start;
  Arena *arena = &rewriter->context->arena;
  int64_t *sizes = arena_new_array(arena, (size_t)length, int64_t);
  for (int64_t i = 0; i < length; i++) {
    Dim dim = value->type.dims[start + i];
    if (!dim_is_constant(dim)) return NULL;
    sizes[i] = dim.constant;
  }
  Tensor *result = arena_new(arena, Tensor);
  *result = (Tensor){.dtype = DTYPE_INT64, .rank = 1, .data = sizes, .size = (size_t)length * sizeof length};
  result->dims = arena_copy(arena, &length, sizeof length);
  return result;
}

/* Told by the type: weights are not read for a result that is not wanted. */
static bool is_too_large(const Node *node, size_t largest) {
  Type type = node->outputs[0]->type;
  int64_t count;
  if (type.dtype == DTYPE_NONE || !dtype_bits(type.dtype) || !type_count(type, &count)) return false;
  return (uint64_t)count > SIZE_MAX / 16 || dtype_bytes(type.dtype, (size_t)count) > largest;
}

static const Tensor *fold_node(Rewriter *rewriter, const Node *node) {
  const Tensor **inputs = arena_new_array(&rewriter->context->arena, node->input_count, const Tensor *);
  for (uint32_t i = 0; i < node->input_count; i++) {
    const Value *value = node->inputs[i].value;
    inputs[i] = unread_constant_of(value);
    if (value && !inputs[i]) return NULL;
  }
  Evaluation evaluation = {.context = rewriter->context,
                           .node = node,
                           .inputs = inputs,
                           .input_count = node->input_count,
                           .opset = rewriter->model->opset,
                           .largest = largest_result(node)};
  if (is_too_large(node, evaluation.largest) || is_stored_weight(node) || is_whole_weight_scaled(node)) return NULL;
  const Tensor *result = evaluate_node(&evaluation);
  return result && result->size <= evaluation.largest ? result : NULL;
}

/* ---- chains ---- */

/* A node whose inputs are known, and which is not folded itself. */
typedef struct Step {
  int depth; /* of known nodes before it, and itself */
  bool failed;
  const Tensor *result; /* NULL: nobody has asked */
} Step;

static Step *step_at(const Folding *folding, const Value *value) {
  return value->producer ? map_get_pointer(&folding->steps, value->producer) : NULL;
}

static void remember_step(Folding *folding, const Node *node) {
  enum { LONGEST_CHAIN = 32 };
  Context *context = folding->rewriter.context;
  int depth = 0;
  if (!node->input_count || node_has_subgraph(node)) return;
  for (uint32_t i = 0; i < node->input_count; i++) {
    const Value *value = node_input(node, i);
    if (!value || unread_constant_of(value)) continue;
    const Step *before = step_at(folding, value);
    if (!before || before->depth >= LONGEST_CHAIN) return;
    if (before->depth > depth) depth = before->depth;
  }
  Step *step = arena_new(&context->arena, Step);
  step->depth = depth + 1;
  *map_slot_pointer(context, &folding->steps, node) = step;
}

static const Tensor *compute_step(Folding *folding, const Node *node);

static const Tensor *known_tensor(Folding *folding, const Value *value) {
  const Tensor *constant = unread_constant_of(value);
  Step *step = constant ? NULL : step_at(folding, value);
  if (!step || step->failed || step->result) return step ? step->result : constant;
  step->result = compute_step(folding, value->producer);
  step->failed = !step->result;
  return step->result;
}

static const Tensor *compute_step(Folding *folding, const Node *node) {
  Context *context = folding->rewriter.context;
  const Tensor **inputs = arena_new_array(&context->arena, node->input_count, const Tensor *);
  for (uint32_t i = 0; i < node->input_count; i++) {
    inputs[i] = node_input(node, i) ? known_tensor(folding, node_input(node, i)) : NULL;
    if (node_input(node, i) && !inputs[i]) return NULL;
  }
  Evaluation evaluation = {.context = context,
                           .node = node,
                           .inputs = inputs,
                           .input_count = node->input_count,
                           .opset = folding->rewriter.model->opset,
                           .largest = LARGEST_STEP};
  return is_too_large(node, evaluation.largest) ? NULL : evaluate_node(&evaluation);
}

/* Integers of few bits are smaller than what they are rounded from, and so are numbers over an axis. */
static bool ends_chain(const Node *node) {
  Type type = node->outputs[0]->type;
  int64_t count, from;
  if (node_is(node, OP_Cast)) return is_small_integer(type.dtype) && dtype_bits(node_input(node, 0)->type.dtype) > 8;
  if (!node_has(node, REDUCES) || !type_count(type, &count)) return false;
  return type_count(node_input(node, 0)->type, &from) && count <= from / 2;
}

enum { MOST_VISITS = 64 };

/* Is the value used on the way to the node alone? */
static bool leads_only_to(const Folding *folding, const Value *value, const Node *node, int *visits) {
  for (const Use *use = value->uses; use; use = use->next) {
    if (use->node == node) continue;
    if (!use->node || (*visits)++ >= MOST_VISITS || !map_get_pointer(&folding->steps, use->node)) return false;
    if (!leads_only_to(folding, use->node->outputs[0], node, visits)) return false;
  }
  return true;
}

/* Bytes of large constants that go when the node is folded; none if one of them would stay. */
static size_t replaced_by(const Folding *folding, const Node *node) {
  const Node *waiting[MOST_VISITS] = {node};
  size_t replaced = 0;
  int visits = 0;
  for (size_t count = 1, next = 0; next < count; next++) {
    for (uint32_t i = 0; i < waiting[next]->input_count; i++) {
      const Value *value = node_input(waiting[next], i);
      const Tensor *tensor = value ? unread_constant_of(value) : NULL;
      if (!value || (tensor && tensor->size <= SMALL_RESULT)) continue;
      if (tensor && !leads_only_to(folding, value, node, &visits)) return 0;
      if (tensor && tensor->size > replaced) replaced = tensor->size;
      if (tensor) continue;
      if (count == MOST_VISITS) return 0;
      waiting[count++] = value->producer;
    }
  }
  return replaced;
}

/* A part of an array, as of a mask for more positions than there are, or what a comparison says of it: small enough to
 * be stored beside it. */
static bool is_small_part(const Node *node, size_t size) {
  bool is_part = node_is(node, OP_Slice) || node->outputs[0]->type.dtype == DTYPE_BOOL;
  return size <= SMALL_RESULT && is_part && !leads_to_product(node->outputs[0]);
}

static const Tensor *fold_chain(Folding *folding, const Node *node) {
  Type type = node->outputs[0]->type;
  int64_t count;
  remember_step(folding, node);
  const Step *step = step_at(folding, node->outputs[0]);
  if (!step) return NULL;
  if (ends_chain(node)) return known_tensor(folding, node->outputs[0]);
  if (step->depth < 2 || is_whole_weight_scaled(node) || is_stored_weight(node)) return NULL;
  if (type.dtype == DTYPE_NONE || !dtype_bits(type.dtype) || !type_count(type, &count)) return NULL;
  size_t size = dtype_bytes(type.dtype, (size_t)count);
  if (size > LARGEST_RESULT || (!is_small_part(node, size) && size > replaced_by(folding, node))) return NULL;
  return known_tensor(folding, node->outputs[0]);
}

/* ---- integers of 4 bits, packed by the program ---- */

enum { WITH_HALF_BYTES = 21 }; /* opset */

static int64_t integer_at(const Tensor *tensor, size_t index) {
  return number_decode_int(tensor->dtype, (const char *)tensor->data + dtype_bytes(tensor->dtype, index));
}

/* The integers in 4 bits, with a sign if one has it; NULL: they are larger. */
static const Tensor *in_half_bytes(Context *context, const Tensor *tensor, size_t count) {
  int64_t least = 0, most = 0;
  tensor_ready(tensor);
  for (size_t i = 0; i < count; i++) {
    int64_t number = integer_at(tensor, i);
    least = number < least ? number : least;
    most = number > most ? number : most;
    if (least < -8 || most > (least < 0 ? 7 : 15)) return NULL;
  }
  Tensor *result = arena_copy(&context->arena, tensor, sizeof *tensor);
  result->dtype = least < 0 ? DTYPE_INT4 : DTYPE_UINT4;
  result->size = dtype_bytes(result->dtype, count);
  uint8_t *bytes = arena_alloc(&context->arena, result->size);
  for (size_t i = 0; i < count; i++) bytes[i / 2] |= (uint8_t)((integer_at(tensor, i) & 0xF) << i % 2 * 4);
  result->data = bytes;
  return result;
}

/* NULL where the integers, packed, are larger than what they were taken from, or than 4 bits hold. */
static const Tensor *fold_half_bytes(Folding *folding, const Node *node) {
  enum { FEWEST = 64 }; /* elements */
  Type type = node->outputs[0]->type;
  int64_t count;
  const Step *step = step_at(folding, node->outputs[0]);
  if (!step || !dtype_is_integer(type.dtype) || dtype_bits(type.dtype) < 8 || node_is(node, OP_Cast)) return NULL;
  if (folding->rewriter.model->opset < WITH_HALF_BYTES || !type_count(type, &count) || count < FEWEST) return NULL;
  size_t size = dtype_bytes(DTYPE_UINT4, (size_t)count);
  if (size > LARGEST_RESULT || size > replaced_by(folding, node)) return NULL;
  const Tensor *result = known_tensor(folding, node->outputs[0]);
  if (!result || result->size != dtype_bytes(type.dtype, (size_t)count)) return NULL;
  return in_half_bytes(folding->rewriter.context, result, (size_t)count);
}

/* ---- weights that were rounded, in floats ---- */

static const Origin *folded_origin(Rewriter *rewriter, const Node *node) {
  const Origin *origin = node->origin;
  if (!origin) return NULL;
  return origin_with_emitter(rewriter->model->provenance, origin, REWRITE_EMITTER(rewriter));
}

/* Is something rounded, or chosen among few, on the way to the node? */
static bool is_rounded(const Folding *folding, const Node *node, int *visits) {
  if (node_is(node, OP_Round) || node_is(node, OP_Sign) || node_is(node, OP_Where)) return true;
  if (is_whole_weight_scaled(node)) return true;
  for (uint32_t i = 0; i < node->input_count && (*visits)++ < MOST_VISITS; i++) {
    const Value *value = node_input(node, i);
    if (value && step_at(folding, value) && is_rounded(folding, value->producer, visits)) return true;
  }
  return false;
}

/* Steps of a loop with constant weights may be a recurrent layer, which is known by them. */
static bool is_used_in_steps(const Node *node) {
  for (const Use *use = node->outputs[0]->uses; use; use = use->next) {
    if (use->node && use->node->graph != node->graph) return true;
  }
  return node->graph->owner != NULL;
}

/* The weight as integers with a scale for each step along an axis, before the node; NULL: it is not so. The last axis
 * that fits is taken: columns of a matrix. */
static Value *as_rounded_weight(Folding *folding, Node *node, const Tensor *tensor) {
  enum { FEWEST = 1024, WITH_AXIS = 13 }; /* elements; opset */
  Rewriter *rewriter = &folding->rewriter;
  int64_t opset = rewriter->model->opset;
  int visits = 0;
  Grid grid;
  if (tensor->dtype != DTYPE_FLOAT32 || tensor->rank < 2 || tensor->size < FEWEST * sizeof(float)) return NULL;
  if (opset < WITH_AXIS || is_used_in_steps(node) || !is_rounded(folding, node, &visits) ||
      !leads_to_product(node->outputs[0]))
    return NULL;
  int64_t axis = tensor->rank;
  while (axis-- > 0) {
    if (read_grid(rewriter->context, tensor, axis, true, opset >= WITH_HALF_BYTES, &grid)) break;
  }
  if (axis < 0) return NULL;
  const Origin *origin = folded_origin(rewriter, node);
  Value *inputs[] = {rewrite_constant(rewriter, node, grid.integers, origin),
                     rewrite_constant(rewriter, node, grid.scales, origin)};
  Type type = node->outputs[0]->type;
  const Origin *made = REWRITE_ORIGIN(rewriter, node);
  Node *weigh = graph_node(node->graph, made, OP_DequantizeLinear, inputs, 2, &type, 1, node);
  node_set_int(weigh, "axis", grid.axis);
  return weigh->outputs[0];
}

static const char *how_folded(const Node *node, const Tensor *result) {
  if (node_is(node, OP_Transpose)) return "transposed";
  if (node_has(node, RENAMES)) return "reshaped";
  if (node_is(node, OP_Cast) || node_is(node, OP_Narrow)) return dtype_short(result->dtype);
  return node_is(node, OP_Expand) ? "expanded" : "folded";
}

/* What is made of one weight, whatever constants help, keeps a name that tells which it is. */
static const Tensor *named_after_input(Rewriter *rewriter, const Node *node, const Tensor *result) {
  Str name = NULL, names = NULL;
  bool several = false;
  for (uint32_t i = 0; i < node->input_count; i++) {
    const Tensor *from = unread_constant_of(node_input(node, i));
    names = names_with(rewriter->context, names, from);
    if (!from || !from->name || from->name == name) continue;
    several = several || name;
    name = from->name;
  }
  if (!names) return result;
  Arena *arena = &rewriter->context->arena;
  Tensor *named = arena_copy(arena, result, sizeof *result);
  named->made_of = names;
  if (!several && name)
    named->name = str_intern(rewriter->context, arena_format(arena, "%s_%s", name, how_folded(node, result)));
  return named;
}

static bool has_constant_inputs(const Node *node) {
  for (uint32_t i = 0; i < node->input_count; i++) {
    const Value *value = node->inputs[i].value;
    if (value && !value->tensor && !(value->producer && node_is(value->producer, OP_Constant))) return false;
  }
  return node->input_count > 0;
}

static bool is_empty(Type type) {
  bool empty = false;
  for (uint32_t i = 0; i < type.rank; i++) {
    if (!dim_is_constant(type.dims[i])) return false;
    empty = empty || type.dims[i].constant == 0;
  }
  return empty;
}

/* An array without elements is known whatever it is made of; runtimes are not at home with them. */
static const Tensor *fold_empty(Rewriter *rewriter, const Node *node) {
  Type type = node->outputs[0]->type;
  if (!is_empty(type) || type.dtype == DTYPE_NONE || !dtype_bits(type.dtype) || node_has_subgraph(node)) return NULL;
  if (node_is(node, OP_Constant) || node_is(node, OP_Identity)) return NULL;
  int64_t *dims = arena_new_array(&rewriter->context->arena, type.rank, int64_t);
  for (uint32_t i = 0; i < type.rank; i++) dims[i] = type.dims[i].constant;
  Tensor *result = arena_new(&rewriter->context->arena, Tensor);
  *result = (Tensor){.dtype = type.dtype, .rank = type.rank, .dims = dims};
  return result;
}

/* Does it spread a constant over sizes that are known at run time only? */
static bool is_spread_constant(const Value *value) {
  enum { DEEPEST = 4 };
  for (int depth = 0; depth < DEEPEST && value->producer; depth++) {
    const Node *node = value->producer;
    if (!node_is(node, OP_Expand) && !node_has(node, RENAMES)) return false;
    value = node_input(node, 0);
    if (node_is(node, OP_Expand) && value->type.rank == 0 && unread_constant_of(value)) return true;
  }
  return false;
}

/* The one input that is a spread constant, where all others are numbers; -1: there is none. */
static int spread_input(const Node *node) {
  int found = -1;
  if (!node_has(node, ELEMENTWISE)) return -1;
  for (uint32_t i = 0; i < node->input_count; i++) {
    const Value *value = node_input(node, i);
    if (!value) return -1;
    if (unread_constant_of(value) && value->type.rank == 0) continue;
    if (found >= 0 || !is_spread_constant(value)) return -1;
    found = (int)i;
  }
  return found;
}

/* What is computed of a constant that is spread is computed before it is. */
static void compute_before_spread(Rewriter *rewriter, Node *node) {
  int at = spread_input(node);
  if (at < 0 || node->input_count > 3) return;
  Node *spread = node_input(node, (size_t)at)->producer;
  Type to = node->outputs[0]->type;
  if (to.dtype == DTYPE_NONE || !type_same_shape(to, spread->outputs[0]->type) || spread->input_count > 2) return;
  Value *source = node_input(spread, 0), *inputs[3];
  Type type = type_with(source->type, to.dtype);
  const Origin *origin = REWRITE_ORIGIN(rewriter, node);
  for (uint32_t i = 0; i < node->input_count; i++) inputs[i] = (int)i == at ? source : node_input(node, i);
  Node *first = graph_node(node->graph, origin, node->op, inputs, node->input_count, &type, 1, node);
  node_copy_attributes(first, node);
  Value *moved[] = {first->outputs[0], node_input(spread, 1)};
  Node *last = graph_node(node->graph, origin, spread->op, moved, spread->input_count, &to, 1, node);
  node_copy_attributes(last, spread);
  rewrite_hand_over(rewriter, last, spread);
  rewrite_replace(rewriter, node, last->outputs[0]);
}

static void fold(Rewriter *rewriter, Node *node) {
  if (node->output_count != 1 || !node->outputs[0] || (node->domain[0] && !node_is(node, OP_Narrow))) return;
  const Tensor *result = NULL;
  Folding *folding = (Folding *)rewriter;
  if (node_is(node, OP_Shape)) result = fold_shape(rewriter, node);
  else if (has_constant_inputs(node)) result = fold_node(rewriter, node);
  if (!result) result = fold_chain(folding, node);
  if (!result) result = fold_half_bytes(folding, node);
  if (!result) result = fold_empty(rewriter, node);
  if (!result) {
    compute_before_spread(rewriter, node);
    return;
  }
  Type type = node->outputs[0]->type, made = tensor_type(rewriter->context, result);
  bool packed = dtype_bits(made.dtype) < 8 && dtype_is_integer(type.dtype);
  if (type.dtype != DTYPE_NONE && !type_equal(type, packed ? type_with(made, type.dtype) : made)) return;
  result = named_after_input(rewriter, node, result);
  Value *value = packed ? NULL : as_rounded_weight(folding, node, result);
  if (!value) value = rewrite_constant(rewriter, node, result, folded_origin(rewriter, node));
  if (packed) value = rewrite_in_type(rewriter, node, node->origin, value, type.dtype);
  rewrite_replace(rewriter, node, value);
}

bool fold_constants(Model *model) {
  Folding folding = {0};
  rewrite_begin(&folding.rewriter, model, __func__);
  rewrite_each_node(&folding.rewriter, fold);
  map_release(model->context, &folding.steps);
  return rewrite_end(&folding.rewriter);
}
