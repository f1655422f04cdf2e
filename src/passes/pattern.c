/* Matching patterns and replacing what matches. */
#include "passes/pattern.h"

#include <math.h>

#include "base/bytes.h"
#include "onnx/facts/schema.h"
#include "types/moved.h"
#include "types/numbers.h"

/* ---- constants ---- */

enum { LARGEST_UNIFORM = 1 << 16 /* bytes: longer constants are not looked through */ };

bool uniform_number(const Value *value, double *number) {
  const Tensor *tensor = unread_constant_of(value);
  if (!tensor || tensor->name || tensor->size == 0 || tensor->size > LARGEST_UNIFORM) return false;
  if (!dtype_is_float(tensor->dtype) && !dtype_is_integer(tensor->dtype)) return false;
  if (dtype_bits(tensor->dtype) < 16 && dtype_is_float(tensor->dtype)) return false;
  size_t width = dtype_bytes(tensor->dtype, 1);
  if (dtype_bits(tensor->dtype) < 8 || tensor->size % width) return false;
  tensor_ready(tensor);
  for (size_t at = width; at < tensor->size; at += width) {
    if (!same_bytes(tensor->data, (const char *)tensor->data + at, width)) return false;
  }
  *number = number_decode(tensor->dtype, tensor->data);
  return true;
}

static double last_place(DType dtype) {
  switch (dtype) {
    case DTYPE_BFLOAT16: return 0x1p-8;
    case DTYPE_FLOAT16: return 0x1p-11;
    case DTYPE_FLOAT32: return 0x1p-24;
    case DTYPE_FLOAT64: return 0x1p-53;
    default: return 0;
  }
}

bool is_all_finite(const Tensor *tensor) {
  static const uint64_t exponents[DTYPE_COUNT] = {[DTYPE_FLOAT16] = 0x7c00,
                                                  [DTYPE_BFLOAT16] = 0x7f80,
                                                  [DTYPE_FLOAT32] = 0x7f800000,
                                                  [DTYPE_FLOAT64] = 0x7ff0000000000000};
  uint64_t exponent = exponents[tensor->dtype], bits = 0;
  size_t width = dtype_bytes(tensor->dtype, 1);
  if (!exponent) return false;
  for (size_t at = 0; at < tensor->size; at += width) {
    copy_bytes(&bits, (const char *)tensor->data + at, width);
    if ((bits & exponent) == exponent) return false;
  }
  return true;
}

bool is_uniform_number(const Value *value, double wanted) {
  double number;
  return uniform_number(value, &number) && number == wanted;
}

bool near_number(DType dtype, double number, double wanted) {
  if (number == wanted) return true;
  return isfinite(number) && fabs(number - wanted) <= 4 * last_place(dtype) * fabs(wanted);
}

/* ---- matching ---- */

/* What is still to be matched, the next first. Lists share their ends, so a choice taken back costs nothing. */
typedef struct Goal Goal;
struct Goal {
  const Pattern *pattern;
  Value *value;
  const Goal *rest;
};

static bool match_goals(Match *match, const Goal *goal);

/* The value goes into the pattern's slot, and the slot is emptied again when the rest does not match. */
static bool match_with_slot(Match *match, const Goal *goal, const Goal *next) {
  int slot = goal->pattern->slot;
  if (!slot) return match_goals(match, next);
  Value **place = &match->values[slot - 1];
  if (*place) return *place == goal->value && match_goals(match, next);
  *place = goal->value;
  if (match_goals(match, next)) return true;
  *place = NULL;
  return false;
}

static bool match_inputs(Match *match, const Goal *goal, const Node *node, bool swapped) {
  Goal goals[PATTERN_INPUTS];
  const Goal *next = goal->rest;
  for (size_t i = PATTERN_INPUTS; i--;) {
    const Pattern *pattern = goal->pattern->inputs[i];
    if (!pattern) continue;
    Value *value = node_input(node, swapped && i < 2 ? 1 - i : i);
    if (!value) return false;
    goals[i] = (Goal){pattern, value, next};
    next = &goals[i];
  }
  return match_with_slot(match, goal, next);
}

bool match_has(const Match *match, const Node *node) {
  for (size_t i = 0; i < match->node_count; i++) {
    if (match->nodes[i] == node) return true;
  }
  return false;
}

static bool match_node(Match *match, const Goal *goal) {
  Node *node = goal->value->producer;
  const Pattern *pattern = goal->pattern;
  if (!node || !node_is(node, pattern->op) || node->graph != match->root->graph || node->output_count != 1)
    return false;
  size_t before = match->node_count;
  if (!match_has(match, node)) {
    if (before == MATCH_NODES) return false;
    match->nodes[match->node_count++] = node;
  }
  if (match_inputs(match, goal, node, false)) return true;
  if (op_has(pattern->op, COMMUTES) && node->input_count == 2 && match_inputs(match, goal, node, true)) return true;
  match->node_count = before;
  return false;
}

static bool match_reshaped(Match *match, const Goal *goal) {
  Goal inner = {goal->pattern->inputs[0], goal->value, goal->rest};
  if (match_with_slot(match, goal, &inner)) return true;
  Node *node = goal->value->producer;
  if (!node || (!node_is(node, OP_Reshape) && !node_is(node, OP_Unsqueeze)) || node->graph != match->root->graph)
    return false;
  size_t before = match->node_count;
  if (before == MATCH_NODES || !node_input(node, 0)) return false;
  if (!match_has(match, node)) match->nodes[match->node_count++] = node;
  inner.value = node_input(node, 0);
  if (match_with_slot(match, goal, &inner)) return true;
  match->node_count = before;
  return false;
}

static DType precision_of(const Value *constant) {
  const Tensor *tensor = unread_constant_of(constant);
  return tensor && tensor->precision ? tensor->precision : constant->type.dtype;
}

static bool match_goals(Match *match, const Goal *goal) {
  if (!goal) return true;
  const Pattern *pattern = goal->pattern;
  double number;
  switch (pattern->kind) {
    case PATTERN_ANY: return match_with_slot(match, goal, goal->rest);
    case PATTERN_CONSTANT: return unread_constant_of(goal->value) && match_with_slot(match, goal, goal->rest);
    case PATTERN_UNIFORM: return uniform_number(goal->value, &number) && match_with_slot(match, goal, goal->rest);
    case PATTERN_NUMBER:
      return uniform_number(goal->value, &number) && near_number(precision_of(goal->value), number, pattern->number) &&
             match_with_slot(match, goal, goal->rest);
    case PATTERN_NODE: return match_node(match, goal);
    case PATTERN_EITHER:
      for (size_t i = 0; i < 2; i++) {
        Goal choice = {pattern->inputs[i], goal->value, goal->rest};
        if (match_goals(match, &choice)) return true;
      }
      return false;
    case PATTERN_RESHAPED: return match_reshaped(match, goal);
  }
  return false;
}

bool match_value(Match *match, const Pattern *pattern, Value *value) {
  Goal goal = {pattern, value, NULL};
  match->root = value->producer;
  return match->root && match_goals(match, &goal);
}

/* Nothing but the match reads what goes. */
static bool is_closed(const Match *match) {
  for (size_t i = 1; i < match->node_count; i++) {
    for (const Use *use = match->nodes[i]->outputs[0]->uses; use; use = use->next) {
      if (!use->node || !match_has(match, use->node)) return false;
    }
  }
  return true;
}

/* ---- replacing ---- */

void match_replace(Match *match, Value *value) {
  Rewriter *rewriter = match->rewriter;
  for (size_t i = 1; i < match->node_count; i++) rewrite_hand_over(rewriter, value->producer, match->nodes[i]);
  rewrite_replace(rewriter, match->root, value);
  for (bool removed = true; removed;) {
    removed = false;
    for (size_t i = 1; i < match->node_count; i++) {
      if (!match->nodes[i] || match->nodes[i]->outputs[0]->uses) continue;
      node_remove(match->nodes[i]);
      match->nodes[i] = NULL;
      removed = true;
    }
  }
  rewriter->changed = true;
}

Node *match_node_before(Match *match, Op op, Type type, Value *const *inputs, size_t count, Emitter emitter) {
  const Origin *origin = match->root->origin;
  origin = origin_with_emitter(match->rewriter->model->provenance, origin, emitter);
  return graph_node(match->root->graph, origin, op, inputs, count, &type, 1, match->root);
}

Node *match_emit(Match *match, Op op, Value *const *inputs, size_t input_count, Emitter emitter) {
  Node *root = match->root;
  const Origin *origin = root->origin;
  Type type = match_type(match);
  origin = origin_with_emitter(match->rewriter->model->provenance, origin, emitter);
  Node *node = graph_node(root->graph, origin, op, inputs, input_count, &type, 1, root);
  match_replace(match, node->outputs[0]);
  return node;
}

bool match_keeps_type(const Match *match) { return type_equal(match_type(match), match->values[0]->type); }

double match_number(const Match *match, int slot) {
  double number = NAN;
  uniform_number(match->values[slot], &number);
  return number;
}

Value *match_constant(Match *match, const Tensor *tensor) {
  return rewrite_constant(match->rewriter, match->root, tensor, match->root->origin);
}

Tensor *match_tensor(Match *match, DType dtype, Type shape) {
  Arena *arena = &match->rewriter->context->arena;
  int64_t count;
  if (!type_count(shape, &count) || count > 1 << 24) return NULL;
  int64_t *dims = arena_new_array(arena, shape.rank, int64_t);
  for (uint32_t i = 0; i < shape.rank; i++) dims[i] = shape.dims[i].constant;
  Tensor *tensor = arena_new(arena, Tensor);
  *tensor = (Tensor){.dtype = dtype, .rank = shape.rank, .dims = dims, .size = dtype_bytes(dtype, (size_t)count)};
  tensor->data = arena_new_array(arena, tensor->size, char);
  return tensor;
}

Value *match_filled(Match *match, Type shape, double number) {
  Tensor *tensor = match_tensor(match, match_dtype(match), shape);
  if (!tensor) return NULL;
  uint64_t bits = number_encode(tensor->dtype, number);
  size_t width = dtype_bytes(tensor->dtype, 1);
  for (size_t at = 0; at < tensor->size; at += width) copy_bytes((char *)(uintptr_t)tensor->data + at, &bits, width);
  return match_constant(match, tensor);
}

/* ---- reductions ---- */

bool reduced_axes(const Node *reduce, bool axes[MAX_RANK]) {
  const Value *source = node_input(reduce, 0);
  if (!source || source->type.dtype == DTYPE_NONE || source->type.rank > MAX_RANK) return false;
  int64_t rank = source->type.rank;
  const Attribute *attribute = node_attribute(reduce, "axes");
  const Tensor *tensor = constant_of(node_input(reduce, 1));
  if (node_input(reduce, 1) && (!tensor || tensor->dtype != DTYPE_INT64)) return false;
  bool none = !attribute && !tensor;
  size_t count = tensor ? tensor->size / sizeof(int64_t) : attribute ? attribute->count : 0;
  const int64_t *numbers = tensor ? tensor->data : attribute ? attribute->integers : NULL;
  if (tensor && count == 0) return false;
  for (int64_t i = 0; i < rank; i++) axes[i] = none;
  if (none && node_int_or(reduce, "noop_with_empty_axes", 0)) return false;
  for (size_t i = 0; i < count; i++) {
    int64_t axis = numbers[i] < 0 ? numbers[i] + rank : numbers[i];
    if (axis < 0 || axis >= rank) return false;
    axes[axis] = true;
  }
  return true;
}

bool is_reduced_shape(Type type, Type from, const bool axes[MAX_RANK]) {
  if (type.rank > from.rank) return false;
  uint32_t left_out = from.rank - type.rank;
  for (uint32_t i = 0; i < from.rank; i++) {
    Dim wanted = axes[i] ? dim_of(1) : from.dims[i];
    if (i < left_out ? !dim_is(wanted, 1) : !dim_equal(type.dims[i - left_out], wanted)) return false;
  }
  return true;
}

/* ---- the walk ---- */

typedef struct Fusion {
  Rewriter rewriter; /* first: the walk hands it to every node */
  const FusionRule *rules;
  size_t count;
  size_t first[OP_COUNT]; /* by operator: the index of its first rule, plus one */
  size_t *next;           /* the next rule for the same operator, plus one; 0: none */
  bool made[OP_COUNT];    /* the operators that the model had when these were chosen */
} Fusion;

static bool rule_runs(const Match *match) {
  Op op = match->rule->op;
  if (!op) return true;
  return match->values[0] && schema_runs(op, NULL, match_opset(match), match_dtype(match));
}

static bool might_match(const Pattern *pattern, const Node *node);

/* Could this value be what the pattern says, slots and numbers apart? Cheap: most rules fail here at most nodes. */
static bool might_be(const Pattern *pattern, const Value *value) {
  const Node *node = value->producer;
  switch (pattern->kind) {
    case PATTERN_NODE: return node && node_is(node, pattern->op) && might_match(pattern, node);
    case PATTERN_CONSTANT:
    case PATTERN_NUMBER:
    case PATTERN_UNIFORM: return !node || node_is(node, OP_Constant);
    case PATTERN_EITHER: return might_be(pattern->inputs[0], value) || might_be(pattern->inputs[1], value);
    case PATTERN_RESHAPED:
      if (might_be(pattern->inputs[0], value)) return true;
      return node && node_has(node, RENAMES) && node_input(node, 0) &&
             might_be(pattern->inputs[0], node_input(node, 0));
    case PATTERN_ANY: break;
  }
  return true;
}

/* Has the node, for each input of the pattern, one that it could be? */
static bool might_match(const Pattern *pattern, const Node *node) {
  bool either = op_has(pattern->op, COMMUTES) && node->input_count == 2;
  for (size_t i = 0; i < PATTERN_INPUTS && pattern->inputs[i]; i++) {
    const Value *value = node_input(node, i);
    if (value && might_be(pattern->inputs[i], value)) continue;
    if (!either || i > 1 || !(value = node_input(node, 1 - i)) || !might_be(pattern->inputs[i], value)) return false;
  }
  return true;
}

static bool try_rule(Fusion *fusion, const FusionRule *rule, Node *node) {
  if (!might_match(rule->pattern, node)) return false;
  Match match = {.rewriter = &fusion->rewriter, .rule = rule, .root = node};
  Goal goal = {rule->pattern, node->outputs[0], NULL};
  return match_goals(&match, &goal) && is_closed(&match) && rule_runs(&match) && rule->fuse(&match);
}

/* Has the model, or had it, a node of each operator that the pattern cannot do without? */
static bool may_occur(const Pattern *pattern, const Model *model) {
  if (pattern->kind == PATTERN_EITHER) {
    return may_occur(pattern->inputs[0], model) || may_occur(pattern->inputs[1], model);
  }
  if (pattern->kind == PATTERN_NODE && !model->made[pattern->op]) return false;
  for (size_t i = 0; i < PATTERN_INPUTS; i++) {
    if (pattern->inputs[i] && !may_occur(pattern->inputs[i], model)) return false;
  }
  return true;
}

/* The rules that can match. False: there is none. */
static bool choose_rules(Fusion *fusion) {
  const Model *model = fusion->rewriter.model;
  bool any = false;
  memcpy(fusion->made, model->made, sizeof fusion->made);
  memset(fusion->first, 0, sizeof fusion->first);
  for (size_t i = fusion->count; i--;) {
    const FusionRule *rule = &fusion->rules[i];
    if ((rule->op && !schema_version(rule->op, model->opset)) || !may_occur(rule->pattern, model)) continue;
    size_t *first = &fusion->first[rule->pattern->op];
    fusion->next[i] = *first;
    *first = i + 1;
    any = true;
  }
  return any;
}

static void visit(Rewriter *rewriter, Node *node) {
  Fusion *fusion = (Fusion *)rewriter;
  size_t rule = fusion->first[node->op];
  if (!rule || node->op == OP_NONE || node->output_count != 1 || !node->outputs[0]) return;
  for (; rule; rule = fusion->next[rule - 1]) {
    if (!try_rule(fusion, &fusion->rules[rule - 1], node)) continue;
    if (memcmp(fusion->made, rewriter->model->made, sizeof fusion->made) != 0) choose_rules(fusion);
    return;
  }
}

bool fuse_patterns(Model *model, const char *pass, const FusionRule *rules, size_t count) {
  Fusion fusion = {.rules = rules, .count = count};
  rewrite_begin(&fusion.rewriter, model, pass);
  fusion.next = arena_new_array(&model->context->arena, count, size_t);
  if (choose_rules(&fusion)) rewrite_each_node(&fusion.rewriter, visit);
  return rewrite_end(&fusion.rewriter);
}

/* ---- what rules find beyond their patterns ---- */

bool is_cast_of_floats(const Node *node) {
  if (!node_is(node, OP_Cast) && !node_is(node, OP_Narrow)) return false;
  return dtype_fits_float32(node_input(node, 0)->type.dtype) && dtype_fits_float32(node->outputs[0]->type.dtype);
}

bool is_cast_of_half(const Node *node) {
  if (!node_is(node, OP_Cast) && !node_is(node, OP_Narrow)) return false;
  DType from = node_input(node, 0)->type.dtype, to = node->outputs[0]->type.dtype;
  return (dtype_is_half(from) && to == DTYPE_FLOAT32) || (from == DTYPE_FLOAT32 && dtype_is_half(to));
}

bool same_dims(Type a, Type b, uint32_t first, uint32_t count) {
  uint64_t end = (uint64_t)first + count;
  if (a.rank < end || b.rank < end) return false;
  for (uint32_t i = first; i < end; i++) {
    if (!dim_equal(a.dims[i], b.dims[i])) return false;
  }
  return true;
}

Node *match_take(Match *match, Value *value, Op op) {
  Node *node = value->producer;
  if (!node || !node_is(node, op) || node->graph != match->root->graph || node->output_count != 1) return NULL;
  if (match_has(match, node)) return node;
  for (const Use *use = value->uses; use; use = use->next) {
    if (!use->node || !match_has(match, use->node)) return NULL;
  }
  if (match->node_count == MATCH_NODES) return NULL;
  match->nodes[match->node_count++] = node;
  return node;
}

bool match_closes_over(Match *match, const Value *x) {
  for (size_t i = 1; i < match->node_count; i++) {
    bool is_read = false;
    for (const Use *use = match->nodes[i]->outputs[0]->uses; use; use = use->next) {
      is_read = is_read || !use->node || !match_has(match, use->node);
    }
    if (!is_read) continue;
    if (!is_cast_of_half(match->nodes[i]) || node_input(match->nodes[i], 0) != x) return false;
    match->nodes[i--] = match->nodes[--match->node_count];
  }
  return true;
}

Value *match_in_type(Match *match, Value *value, DType dtype) {
  if (value->type.dtype == dtype) return value;
  Node *inner = value->producer;
  if (inner && node_is(inner, OP_Cast) && node_input(inner, 0)->type.dtype == dtype) return node_input(inner, 0);
  return rewrite_in_type(match->rewriter, match->root, match->root->origin, value, dtype);
}
