/* Numbers that are computed alike and then joined are computed joined.
 *
 * A cross product, a product of quaternions or a system of equations is often written number by number: every number
 * of the result has its own products and sums, and a Concat joins them. A node on three numbers takes a runtime no
 * longer than one on a single number, so Concat(Mul(a, x), Mul(b, y)) becomes Mul(Concat(a, b), Concat(x, y)), and so
 * on towards the operands: parts that were taken out of one array are taken out by one Gather, constants become one
 * constant, and what all lanes share broadcasts. Where some lanes add what others subtract, it is multiplied by a sign.
 *
 * Terms of a sum that are computed alike are one array as well, along an axis that the sum then reduces: the products
 * of a quaternion's numbers with those of another are one product. It is the last axis, along which ONNX Runtime
 * reduces fastest, and negative zeros alone to a negative zero, as their sum is.
 *
 * A plan for the whole tree comes first, with what it would save. Arrays of more than a few numbers are left alone:
 * their elements cost more than their nodes.
 */
#include "base/bytes.h"
#include "onnx/evaluate/evaluate.h"
#include "onnx/facts/schema.h"
#include "onnx/graph/same.h"
#include "passes/passes.h"
#include "passes/rewrite.h"
#include "types/numbers.h"

enum {
  MOST_LANES = 16,
  MOST_ELEMENTS = 64, /* of one lane */
  MOST_ROWS = 128,    /* of one plan */
  MOST_OPERANDS = 3,
  FEWEST_TERMS = 3,
};

typedef enum RowKind {
  ROW_SHARED,    /* the same value in all lanes */
  ROW_NUMBERS,   /* a constant of one element each */
  ROW_CONSTANTS, /* a constant of one type each */
  ROW_PARTS,     /* parts of one array */
  ROW_PICKS,     /* several parts of one array in each lane, or all of it */
  ROW_WITH_AXIS, /* each lane only adds the axis that is joined along */
  ROW_BESIDE,    /* each lane only adds another axis */
  ROW_ALIKE,     /* the same operator in all lanes */
  ROW_NEGATED,   /* some lanes are the negative of something, the others are like that something */
  ROW_FACTORED,  /* some lanes are a constant times something, the others are like that something */
  ROW_JOINED,    /* anything else: a Concat */
} RowKind;

/* One value a lane, which are to be one value. */
typedef struct Row Row;
struct Row {
  RowKind kind;
  bool stacks;    /* along an axis that the lanes do not have; else along one of size 1 */
  int64_t axis;   /* where it is or will be; below 0: the lanes have too few axes to reach so far */
  int64_t beside; /* another axis, that each lane adds */
  int gain;       /* of the nodes that go over those that come, in tenths of a microsecond */
  uint32_t count; /* operands */
  Row *operands[MOST_OPERANDS];
  bool subtracts[MOST_LANES]; /* lanes that subtract where others add, or that are negated */
  bool stays[MOST_LANES];     /* lanes that are read by what is not joined as well */
  bool ones[MOST_LANES];      /* lanes of constants that have none: it is one */
  int64_t places[MOST_LANES]; /* of parts */
  Value *lanes[MOST_LANES];
};

typedef struct Join {
  Rewriter *rewriter;
  Node *root; /* the Concat, or the last Add of a sum */
  uint32_t lanes;
  uint32_t behind; /* axes of the result behind the one that is joined along */
  int rows;        /* that may yet be planned */
} Join;

/* What ONNX Runtime takes for a node of few numbers, in tenths of a microsecond (docs/graphs.md). */
static int cost_of(const Node *node) {
  if (node_is(node, OP_Where)) return 6;
  return node_is(node, OP_Concat) ? 2 + (int)node->input_count / 2 : 2;
}

static int cost_of_joining(const Join *join, const Row *row) {
  return 2 + (int)join->lanes / 2 + (row->stacks ? 2 * (int)join->lanes : 0);
}

/* Does one node alone read it? Then it goes with that node. */
static bool has_one_reader(const Value *value) {
  for (const Use *use = value->uses; use; use = use->next) {
    if (!use->node || use->node != value->uses->node) return false;
  }
  return value->uses != NULL;
}

static bool goes(const Row *row, uint32_t lane) { return !row->stays[lane] && has_one_reader(row->lanes[lane]); }

/* Each node is saved once, however many lanes it makes. */
static int saved_with(const Join *join, const Row *row) {
  int saved = 0;
  for (uint32_t i = 0; i < join->lanes; i++) {
    uint32_t first = 0;
    while (row->lanes[first]->producer != row->lanes[i]->producer) first++;
    if (first == i && goes(row, i)) saved += cost_of(row->lanes[i]->producer);
  }
  return saved;
}

/* ---- what the lanes have in common ---- */

static bool is_shared(const Join *join, const Row *row) {
  for (uint32_t i = 1; i < join->lanes; i++) {
    if (row->lanes[i] == row->lanes[0]) continue;
    const Tensor *first = constant_of(row->lanes[0]), *other = constant_of(row->lanes[i]);
    if (!first || !other || !same_tensor(first, other)) return false;
  }
  return true;
}

static bool are_constants(const Join *join, const Row *row) {
  for (uint32_t i = 0; i < join->lanes; i++) {
    const Tensor *tensor = constant_of(row->lanes[i]);
    if (!tensor || dtype_bits(tensor->dtype) < 8 || tensor->dtype != row->lanes[0]->type.dtype) return false;
  }
  return true;
}

static bool are_numbers(const Join *join, const Row *row) {
  if (!are_constants(join, row)) return false;
  for (uint32_t i = 0; i < join->lanes; i++) {
    if (constant_of(row->lanes[i])->size != dtype_bytes(row->lanes[0]->type.dtype, 1)) return false;
  }
  return true;
}

/* Where the value stands in an array that it was taken out of along the axis that is joined along; NULL: nowhere. */
static Value *part_of(const Row *row, const Value *value, int64_t *place) {
  const Node *node = value->producer;
  if (!node || type_is_unranked(value->type)) return NULL;
  Value *whole = node_input(node, 0);
  bool splits = node_is(node, OP_Split) && !row->stacks;
  if (!splits && !node_is(node, OP_Gather)) return NULL;
  int64_t axis = node_int_or(node, "axis", 0), rank = whole->type.rank;
  if (type_is_unranked(whole->type) || (axis < 0 ? axis + rank : axis) != row->axis) return NULL;
  Dim size = whole->type.dims[row->axis];
  *place = 0;
  for (uint32_t i = 0; splits && i < value->output_index; i++) {
    if (!node->outputs[i] || !dim_is(node->outputs[i]->type.dims[row->axis], 1)) return NULL;
    ++*place;
  }
  if (splits) return dim_is(value->type.dims[row->axis], 1) ? whole : NULL;
  const Tensor *index = constant_of(node_input(node, 1));
  if (!index || index->rank != (row->stacks ? 0 : 1) || !only_integer(node_input(node, 1), place)) return NULL;
  if (*place < 0 && dim_is_constant(size)) *place += size.constant;
  return *place < 0 ? NULL : whole;
}

static Value *whole_of(const Join *join, Row *row) {
  Value *whole = part_of(row, row->lanes[0], &row->places[0]);
  for (uint32_t i = 1; whole && i < join->lanes; i++) {
    if (part_of(row, row->lanes[i], &row->places[i]) != whole) return NULL;
  }
  return whole;
}

static bool are_all_parts(const Join *join, const Row *row, const Value *whole) {
  for (uint32_t i = 0; i < join->lanes; i++) {
    if (row->places[i] != i) return false;
  }
  return dim_is(whole->type.dims[row->axis], join->lanes);
}

/* The places along the axis that several parts of an array have, which are picked before they are joined; NULL: the
 * value is none. */
static const Tensor *picked_places(const Row *row, const Value *value, Value **whole) {
  const Node *node = value->producer;
  if (!row->stacks || !node || !node_is(node, OP_Gather) || type_is_unranked(node_input(node, 0)->type)) return NULL;
  *whole = node_input(node, 0);
  int64_t axis = node_int_or(node, "axis", 0);
  const Tensor *places = constant_of(node_input(node, 1));
  if (axis < 0) axis += (*whole)->type.rank;
  if (axis != row->axis && axis + 1 != row->axis) return NULL;
  return places && places->rank == 1 && dtype_is_integer(places->dtype) ? places : NULL;
}

static int64_t axis_of(const Value *picked) {
  int64_t axis = node_int_or(picked->producer, "axis", 0);
  return axis < 0 ? axis + picked->type.rank : axis;
}

/* The array that all lanes are picked from, along one axis. One of them may be the array itself. */
static Value *picked_from(const Join *join, const Row *row, int64_t *axis) {
  Value *from = NULL, *whole;
  for (uint32_t i = 0; i < join->lanes && !from; i++) {
    if (!picked_places(row, row->lanes[i], &whole)) continue;
    from = whole;
    *axis = axis_of(row->lanes[i]);
  }
  for (uint32_t i = 0; from && i < join->lanes; i++) {
    bool picked = picked_places(row, row->lanes[i], &whole) && whole == from && axis_of(row->lanes[i]) == *axis;
    if (!picked && row->lanes[i] != from) return NULL;
    if (!type_equal(row->lanes[i]->type, row->lanes[0]->type)) return NULL;
  }
  return from;
}

static int saved_by_picking(const Join *join, const Row *row, const Value *from) {
  int saved = 0;
  for (uint32_t i = 0; i < join->lanes; i++) saved += row->lanes[i] != from && goes(row, i) ? 2 : 0;
  return saved;
}

/* The value before it got this axis, and nothing else. */
static Value *without_axis(const Join *join, int64_t axis, const Value *value) {
  const Node *node = value->producer;
  if (!node || node->graph != join->root->graph || (!node_is(node, OP_Unsqueeze) && !node_is(node, OP_Reshape)))
    return NULL;
  Value *inner = node_input(node, 0);
  Type from = inner->type, to = value->type;
  if (type_is_unranked(from) || type_is_unranked(to) || to.rank != from.rank + 1) return NULL;
  for (uint32_t i = 0; i < to.rank; i++) {
    Dim before = i == axis ? dim_of(1) : from.dims[i - (i > axis)];
    if (!dim_equal(to.dims[i], before)) return NULL;
  }
  return inner;
}

static bool is_number_by_number(const Node *node) {
  return node_has(node, ELEMENTWISE) && node->output_count == 1 && node->input_count <= MOST_OPERANDS &&
         (node_has(node, BROADCASTS) || node->input_count == 1) && !node_is(node, OP_Identity);
}

static bool has_exact_signs(const Node *node) {
  DType dtype = node->outputs[0]->type.dtype;
  return dtype == DTYPE_FLOAT32 || dtype == DTYPE_FLOAT64 || dtype == DTYPE_INT32 || dtype == DTYPE_INT64;
}

static bool adds_or_subtracts(const Node *node) {
  return (node_is(node, OP_Add) || node_is(node, OP_Sub)) && has_exact_signs(node);
}

static bool are_alike(const Join *join, const Row *row) {
  const Node *first = row->lanes[0]->producer;
  if (!first || first->graph != join->root->graph || !is_number_by_number(first)) return false;
  for (uint32_t i = 1; i < join->lanes; i++) {
    const Node *node = row->lanes[i]->producer;
    if (!node || node->graph != first->graph || node->input_count != first->input_count) return false;
    bool same = node->op == first->op || (adds_or_subtracts(node) && adds_or_subtracts(first));
    if (!same || !same_attributes(node, first)) return false;
  }
  return true;
}

/* ---- the plan ---- */

static Row *plan(Join *join, Row *row);

/* How well two operands would share a row. */
static int likeness(const Value *a, const Value *b) {
  const Node *left = a->producer, *right = b->producer;
  if (a == b || (constant_of(a) && constant_of(b))) return 3;
  if (!left || !right || left->op != right->op) return 0;
  return node_input(left, 0) == node_input(right, 0) ? 2 : 1;
}

/* Operands that may change places stand as those of the first lane do. */
static bool reads_better_swapped(const Node *first, const Node *node) {
  bool ordered = node_is(node, OP_Max) || node_is(node, OP_Min); /* among zeros and NaNs */
  if (!node_has(node, COMMUTES) || ordered || node->input_count != 2) return false;
  const Value *a = node_input(first, 0), *b = node_input(first, 1), *c = node_input(node, 0), *d = node_input(node, 1);
  return likeness(a, d) + likeness(b, c) > likeness(a, c) + likeness(b, d);
}

static Row *operand_row(Join *join, const Row *row, uint32_t operand) {
  Row *result = arena_new(&join->rewriter->context->arena, Row);
  *result = (Row){.stacks = row->stacks, .axis = row->axis};
  for (uint32_t i = 0; i < join->lanes; i++) {
    const Node *first = row->lanes[0]->producer, *node = row->lanes[i]->producer;
    uint32_t at = reads_better_swapped(first, node) ? 1 - operand : operand;
    result->lanes[i] = node_input(node, at);
    result->stays[i] = !goes(row, i);
    if (!result->lanes[i] || type_is_unranked(result->lanes[i]->type)) return NULL;
  }
  result->axis += (int64_t)result->lanes[0]->type.rank - row->lanes[0]->type.rank;
  return result;
}

/* Lanes that differ in shape could not be one array. */
static bool are_of_one_type(const Join *join, const Row *row) {
  Type first = row->lanes[0]->type;
  int64_t count;
  if (type_is_unranked(first) || first.dtype == DTYPE_NONE || row->axis < 0) return false;
  if (!type_count(first, &count) || count > MOST_ELEMENTS) return false;
  for (uint32_t i = 1; i < join->lanes; i++) {
    if (!type_equal(row->lanes[i]->type, first)) return false;
  }
  return row->stacks || dim_is(first.dims[row->axis], 1);
}

/* Do some lanes add and others subtract? */
static bool has_signs(const Join *join, const Row *row) {
  for (uint32_t i = 1; i < join->lanes; i++) {
    if (row->subtracts[i] != row->subtracts[0]) return true;
  }
  return false;
}

static bool plan_operands(Join *join, Row *row) {
  const Node *first = row->lanes[0]->producer;
  bool grows = false;
  row->gain = saved_with(join, row) - cost_of(first);
  row->count = first->input_count;
  for (uint32_t i = 0; i < join->lanes; i++) row->subtracts[i] = node_is(row->lanes[i]->producer, OP_Sub);
  if (has_signs(join, row)) row->gain -= 2;
  for (uint32_t i = 0; i < row->count; i++) {
    Row *operand = operand_row(join, row, i);
    if (!operand) return false;
    bool single = is_shared(join, operand) || are_numbers(join, operand);
    if ((!single && !are_of_one_type(join, operand)) || !(row->operands[i] = plan(join, operand))) return false;
    row->gain += operand->gain;
    grows = grows || operand->kind != ROW_SHARED;
  }
  return grows;
}

/* Before the first axis broadcasting puts one anyway. */
static bool shared_needs_axis(const Row *row) { return row->stacks && row->axis > 0; }

/* The same row of values that have the axis not yet. */
static Row *plan_without_axis(Join *join, Row *row) {
  Row *inner = arena_new(&join->rewriter->context->arena, Row);
  *inner = (Row){.stacks = true, .axis = row->axis};
  for (uint32_t i = 0; i < join->lanes; i++) {
    if (row->stacks || !(inner->lanes[i] = without_axis(join, row->axis, row->lanes[i]))) return NULL;
    inner->stays[i] = !goes(row, i);
  }
  if (!are_of_one_type(join, inner) || !plan(join, inner)) return NULL;
  return inner->kind == ROW_PARTS || inner->kind == ROW_ALIKE ? inner : NULL;
}

/* The same row of values that have not yet another axis, which the joined value gets. */
static Row *plan_beside(Join *join, Row *row) {
  Row *inner = arena_new(&join->rewriter->context->arena, Row);
  uint32_t rank = row->lanes[0]->type.rank;
  if (row->stacks) return NULL;
  for (int64_t axis = rank; axis-- > 0;) {
    if (axis == row->axis || !without_axis(join, axis, row->lanes[0])) continue;
    *inner = (Row){.axis = row->axis - (axis < row->axis)};
    for (uint32_t i = 0; i < join->lanes; i++) {
      if (!(inner->lanes[i] = without_axis(join, axis, row->lanes[i]))) return NULL;
      inner->stays[i] = !goes(row, i);
    }
    row->beside = axis;
    return are_of_one_type(join, inner) && whole_of(join, inner) ? plan(join, inner) : NULL;
  }
  return NULL;
}

/* The same row of what is negated. */
static Row *plan_negated(Join *join, Row *row) {
  Row *inner = arena_new(&join->rewriter->context->arena, Row);
  bool any = false;
  *inner = (Row){.stacks = row->stacks, .axis = row->axis};
  row->gain = -2;
  for (uint32_t i = 0; i < join->lanes; i++) {
    const Node *node = row->lanes[i]->producer;
    row->subtracts[i] = node && node_is(node, OP_Neg) && has_exact_signs(node);
    inner->lanes[i] = row->subtracts[i] ? node_input(node, 0) : row->lanes[i];
    inner->stays[i] = row->subtracts[i] ? !goes(row, i) : row->stays[i];
    if (row->subtracts[i] && goes(row, i)) row->gain += cost_of(node);
    any = any || row->subtracts[i];
  }
  if (!any || !has_signs(join, row) || !plan(join, inner)) return NULL;
  return inner->kind == ROW_PARTS || inner->kind == ROW_ALIKE ? inner : NULL;
}

/* The other factor of a product with a constant; NULL: the value is none. */
static Value *factored(const Join *join, const Value *value, Value **factor) {
  const Node *node = value->producer;
  if (!node || !node_is(node, OP_Mul) || node->graph != join->root->graph || !dtype_is_float(value->type.dtype))
    return NULL;
  for (size_t i = 0; i < 2; i++) {
    Value *rest = node_input(node, 1 - i);
    *factor = node_input(node, i);
    if (constant_of(*factor) && type_equal(rest->type, value->type)) return rest;
  }
  return NULL;
}

/* The constant that the last of the lanes with one has: the first is often multiplied by less. */
static Value *usual_factor(const Join *join, const Row *row) {
  Value *factor;
  for (uint32_t i = join->lanes; i-- > 0;) {
    if (factored(join, row->lanes[i], &factor)) return factor;
  }
  return NULL;
}

/* The rows of what is multiplied and of the constants, one where a lane has none. */
static bool plan_factored(Join *join, Row *row) {
  Arena *arena = &join->rewriter->context->arena;
  Value *usual = usual_factor(join, row);
  uint32_t without = 0;
  int64_t count;
  if (!usual || !type_count(usual->type, &count) || count > MOST_ELEMENTS) return false;
  Row *inner = arena_new(arena, Row), *factors = arena_new(arena, Row);
  *inner = *factors = (Row){.stacks = row->stacks, .axis = row->axis};
  row->gain = -2;
  for (uint32_t i = 0; i < join->lanes; i++) {
    Value *factor, *rest = factored(join, row->lanes[i], &factor);
    if (rest && !type_equal(factor->type, usual->type)) rest = NULL;
    inner->lanes[i] = rest ? rest : row->lanes[i];
    inner->stays[i] = rest ? !goes(row, i) : row->stays[i];
    factors->lanes[i] = rest ? factor : usual;
    factors->ones[i] = !rest;
    without += !rest;
    if (rest && goes(row, i)) row->gain += 2;
  }
  factors->axis += (int64_t)usual->type.rank - row->lanes[0]->type.rank;
  if (!without || (factors->axis < 0 && count > 1)) return false;
  if (!are_of_one_type(join, inner) || !are_constants(join, factors)) return false;
  if (!plan(join, inner) || inner->kind == ROW_JOINED) return false;
  factors->kind = are_numbers(join, factors) ? ROW_NUMBERS : ROW_CONSTANTS;
  row->kind = ROW_FACTORED;
  row->operands[0] = inner;
  row->operands[1] = factors;
  row->count = 2;
  row->gain += inner->gain;
  return true;
}

static Row *plan_leaf(const Join *join, Row *row) {
  row->kind = ROW_JOINED;
  row->count = 0;
  row->gain = -cost_of_joining(join, row);
  return row;
}

static Row *plan(Join *join, Row *row) {
  if (join->rows-- <= 0) return NULL;
  const Value *whole;
  int64_t axis;
  Row *inner;
  if (is_shared(join, row)) {
    row->kind = ROW_SHARED;
    row->gain = shared_needs_axis(row) ? -2 : 0;
  } else if (are_constants(join, row)) {
    row->kind = are_numbers(join, row) ? ROW_NUMBERS : ROW_CONSTANTS;
  } else if ((whole = whole_of(join, row))) {
    row->kind = ROW_PARTS;
    row->gain = node_is(row->lanes[0]->producer, OP_Split) ? 0 : saved_with(join, row);
    row->gain -= are_all_parts(join, row, whole) ? 0 : 2;
  } else if ((whole = picked_from(join, row, &axis))) {
    row->kind = ROW_PICKS;
    row->gain = saved_by_picking(join, row, whole) - 3;
  } else if ((inner = plan_without_axis(join, row))) {
    row->kind = ROW_WITH_AXIS;
    row->operands[0] = inner;
    row->count = 1;
    row->gain = inner->gain + saved_with(join, row);
  } else if ((inner = plan_beside(join, row))) {
    row->kind = ROW_BESIDE;
    row->operands[0] = inner;
    row->count = 1;
    row->gain = inner->gain + saved_with(join, row) - 2;
  } else if (are_alike(join, row) && plan_operands(join, row) && row->gain > -cost_of_joining(join, row)) {
    row->kind = ROW_ALIKE;
  } else if ((inner = plan_negated(join, row)) && row->gain + inner->gain > -cost_of_joining(join, row)) {
    row->kind = ROW_NEGATED;
    row->operands[0] = inner;
    row->count = 1;
    row->gain += inner->gain;
  } else {
    plan_leaf(join, row);
  }
  bool open = row->kind == ROW_ALIKE || row->kind == ROW_JOINED;
  Row other = {.stacks = row->stacks, .axis = row->axis};
  if (!open) return row;
  copy_bytes(other.stays, row->stays, sizeof other.stays);
  copy_bytes(other.lanes, row->lanes, sizeof other.lanes);
  if (plan_factored(join, &other) && other.gain > row->gain) *row = other;
  return row;
}

/* ---- carrying it out ---- */

static Type joined_type(const Join *join, const Row *row) {
  Type lane = row->lanes[0]->type;
  Dim dims[MAX_RANK];
  uint32_t rank = lane.rank + row->stacks;
  for (uint32_t i = 0; i < rank; i++) {
    if (i == row->axis) dims[i] = dim_of(join->lanes);
    else dims[i] = lane.dims[i - (row->stacks && i > row->axis)];
  }
  return type_make(join->rewriter->context, lane.dtype, dims, rank);
}

static Value *make(const Join *join, const Node *like, Op op, Type type, Value *const *inputs, size_t count) {
  Rewriter *rewriter = join->rewriter;
  const Origin *origin = like && like->graph == join->root->graph ? like->origin : join->root->origin;
  origin = origin_with_emitter(rewriter->model->provenance, origin, REWRITE_EMITTER(rewriter));
  return graph_node(join->root->graph, origin, op, inputs, count, &type, 1, join->root)->outputs[0];
}

static Value *constant_row(const Join *join, const Row *row, Type type, const char *data) {
  Context *context = join->rewriter->context;
  Tensor *tensor = arena_new(&context->arena, Tensor);
  int64_t *dims = arena_new_array(&context->arena, type.rank, int64_t), count = 1;
  for (uint32_t i = 0; i < type.rank; i++) count *= dims[i] = type.dims[i].constant;
  *tensor = (Tensor){.dtype = type.dtype, .rank = type.rank, .dims = dims, .data = data};
  tensor->size = dtype_bytes(type.dtype, (size_t)count);
  for (uint32_t i = 0; i < join->lanes; i++) {
    const Tensor *lane = constant_of(row->lanes[i]);
    tensor->made_of = names_with(context, tensor->made_of, lane);
    if (lane && lane->name && !tensor->name) tensor->name = lane->name;
  }
  if (tensor->name) tensor->name = str_intern(context, arena_format(&context->arena, "%s_joined", tensor->name));
  const Value *first = row->lanes[0];
  return rewrite_constant(join->rewriter, join->root, tensor, first->origin ? first->origin : join->root->origin);
}

/* One element a lane, along the axis, in as few axes as broadcasting needs. */
static Type type_of_numbers(const Join *join, DType dtype) {
  Dim dims[MAX_RANK];
  for (uint32_t i = 0; i <= join->behind; i++) dims[i] = dim_of(i == 0 ? join->lanes : 1);
  return type_make(join->rewriter->context, dtype, dims, 1 + join->behind);
}

static void put_ones(DType dtype, char *to, size_t size) {
  uint64_t one = number_encode(dtype, 1);
  size_t width = dtype_bytes(dtype, 1);
  for (size_t at = 0; at < size; at += width) copy_bytes(to + at, &one, width);
}

/* The elements of the lanes in turn, as many at a time as lie behind the axis. */
static Value *emit_constants(const Join *join, const Row *row) {
  Type lane = row->lanes[0]->type;
  size_t turn = dtype_bytes(lane.dtype, 1), all = constant_of(row->lanes[0])->size;
  for (int64_t i = row->axis; row->kind == ROW_CONSTANTS && i < lane.rank; i++) turn *= (size_t)lane.dims[i].constant;
  char *data = arena_new_array(&join->rewriter->context->arena, all * join->lanes, char), *to = data;
  for (size_t at = 0; at < all; at += turn) {
    for (uint32_t i = 0; i < join->lanes; i++, to += turn) {
      if (row->ones[i]) put_ones(lane.dtype, to, turn);
      else copy_bytes(to, (const char *)constant_of(row->lanes[i])->data + at, turn);
    }
  }
  bool numbers = row->kind == ROW_NUMBERS;
  return constant_row(join, row, numbers ? type_of_numbers(join, lane.dtype) : joined_type(join, row), data);
}

static Value *emit_signs(const Join *join, const Row *row) {
  Type type = type_of_numbers(join, row->lanes[0]->type.dtype);
  size_t width = dtype_bytes(type.dtype, 1);
  char *data = arena_new_array(&join->rewriter->context->arena, width * join->lanes, char);
  for (uint32_t i = 0; i < join->lanes; i++) {
    uint64_t bits = number_encode(type.dtype, row->subtracts[i] ? -1 : 1);
    copy_bytes(data + i * width, &bits, width);
  }
  return constant_row(join, row, type, data);
}

static Value *with_axis(const Join *join, Value *value, int64_t axis) {
  Dim dims[MAX_RANK];
  for (uint32_t i = 0; i <= value->type.rank; i++) {
    dims[i] = i == axis ? dim_of(1) : value->type.dims[i - (i > axis)];
  }
  Type type = type_make(join->rewriter->context, value->type.dtype, dims, value->type.rank + 1);
  Value *inputs[] = {value, rewrite_constant_ints(join->rewriter, join->root, &axis, 1, join->root->origin)};
  return make(join, value->producer, OP_Unsqueeze, type, inputs, 2);
}

static Value *emit_parts(const Join *join, const Row *row, Value *whole, const int64_t *places, uint32_t count) {
  Type type = joined_type(join, row);
  Dim *dims = arena_copy(&join->rewriter->context->arena, type.dims, type.rank * sizeof *dims);
  dims[row->axis] = dim_of(count);
  type.dims = dims;
  Value *inputs[] = {whole, rewrite_constant_ints(join->rewriter, join->root, places, count, join->root->origin)};
  Value *result = make(join, row->lanes[0]->producer, OP_Gather, type, inputs, 2);
  node_set_int(result->producer, "axis", row->axis);
  return result;
}

/* By places of all lanes, along an axis for each lane before or behind that of its parts. */
static Value *emit_picks(const Join *join, const Row *row) {
  Context *context = join->rewriter->context;
  int64_t axis = 0;
  Value *whole = picked_from(join, row, &axis), *from;
  int64_t picked = row->lanes[0]->type.dims[axis].constant, lanes = join->lanes;
  int64_t before[] = {lanes, picked}, behind[] = {picked, lanes}, *dims = row->axis == axis ? before : behind;
  int64_t *places = arena_new_array(&context->arena, (size_t)(lanes * picked), int64_t);
  for (int64_t i = 0; i < lanes; i++) {
    const Tensor *own = row->lanes[i] == whole ? NULL : picked_places(row, row->lanes[i], &from);
    for (int64_t k = 0; k < picked; k++) {
      places[row->axis == axis ? i * picked + k : k * lanes + i] = own ? tensor_int_at(own, k) : k;
    }
  }
  Tensor *tensor = arena_new(&context->arena, Tensor);
  *tensor = (Tensor){.dtype = DTYPE_INT64, .rank = 2, .data = places};
  tensor->dims = arena_copy(&context->arena, dims, sizeof before);
  tensor->size = (size_t)(lanes * picked) * sizeof *places;
  Value *inputs[] = {whole, rewrite_constant(join->rewriter, join->root, tensor, join->root->origin)};
  Value *result = make(join, NULL, OP_Gather, joined_type(join, row), inputs, 2);
  node_set_int(result->producer, "axis", axis);
  return result;
}

/* The axis that is joined along has size 1 and broadcasts. A part is taken out anew with its axis. */
static Value *emit_shared(const Join *join, const Row *row) {
  Value *value = row->lanes[0];
  int64_t place;
  if (!shared_needs_axis(row)) return value;
  Value *whole = part_of(row, value, &place);
  return whole ? emit_parts(join, row, whole, &place, 1) : with_axis(join, value, row->axis);
}

static Value *emit_joined(const Join *join, const Row *row) {
  Value *inputs[MOST_LANES];
  for (uint32_t i = 0; i < join->lanes; i++) {
    inputs[i] = row->stacks ? with_axis(join, row->lanes[i], row->axis) : row->lanes[i];
  }
  Value *result = make(join, NULL, OP_Concat, joined_type(join, row), inputs, join->lanes);
  node_set_int(result->producer, "axis", row->axis);
  return result;
}

/* The value times the sign of each lane. */
static Value *emit_signed(const Join *join, const Row *row, Value *value) {
  Value *factors[] = {value, emit_signs(join, row)};
  Type type = value->type, signs = factors[1]->type;
  uint32_t rank = type.rank > signs.rank ? type.rank : signs.rank;
  Dim dims[MAX_RANK];
  for (uint32_t i = 0; i < rank; i++) { /* from the last axis on */
    bool is_one = i >= type.rank || dim_is(type.dims[type.rank - 1 - i], 1);
    Dim sign = i < signs.rank ? signs.dims[signs.rank - 1 - i] : dim_of(1);
    dims[rank - 1 - i] = is_one ? sign : type.dims[type.rank - 1 - i];
  }
  type = type_make(join->rewriter->context, type.dtype, dims, rank);
  return make(join, row->lanes[0]->producer, OP_Mul, type, factors, 2);
}

static Value *emit(const Join *join, Row *row);

static Value *emit_alike(const Join *join, Row *row) {
  const Node *first = row->lanes[0]->producer;
  Value *inputs[MOST_OPERANDS];
  bool signs = has_signs(join, row);
  for (uint32_t i = 0; i < row->count; i++) inputs[i] = emit(join, row->operands[i]);
  if (signs) inputs[1] = emit_signed(join, row, inputs[1]);
  Value *result = make(join, first, signs ? OP_Add : first->op, joined_type(join, row), inputs, row->count);
  node_copy_attributes(result->producer, first);
  return result;
}

static Value *emit_factored(const Join *join, Row *row) {
  Value *inputs[] = {emit(join, row->operands[0]), emit(join, row->operands[1])};
  return make(join, row->operands[0]->lanes[0]->producer, OP_Mul, joined_type(join, row), inputs, 2);
}

static Value *emit(const Join *join, Row *row) {
  switch (row->kind) {
    case ROW_SHARED: return emit_shared(join, row);
    case ROW_NUMBERS:
    case ROW_CONSTANTS: return emit_constants(join, row);
    case ROW_PARTS: {
      Value *whole = whole_of(join, row);
      return are_all_parts(join, row, whole) ? whole : emit_parts(join, row, whole, row->places, join->lanes);
    }
    case ROW_PICKS: return emit_picks(join, row);
    case ROW_WITH_AXIS: return emit(join, row->operands[0]);
    case ROW_BESIDE: return with_axis(join, emit(join, row->operands[0]), row->beside);
    case ROW_ALIKE: return emit_alike(join, row);
    case ROW_NEGATED: return emit_signed(join, row, emit(join, row->operands[0]));
    case ROW_FACTORED: return emit_factored(join, row);
    case ROW_JOINED: break;
  }
  return emit_joined(join, row);
}

/* What nothing reads any more goes, and what it came from is known of what takes its place. */
static void drop_row(const Join *join, const Row *row, Node *heir) {
  bool goes = row->count > 0 || row->kind == ROW_PARTS || row->kind == ROW_PICKS;
  for (uint32_t i = 0; goes && i < join->lanes; i++) {
    Node *node = row->lanes[i]->producer;
    if (node && !node->is_gone && node->graph == join->root->graph) rewrite_drop_unused(join->rewriter, node, heir);
  }
  for (uint32_t i = 0; i < row->count; i++) drop_row(join, row->operands[i], heir);
}

static bool begin(Join *join, Row *row) {
  Node *concat = join->root;
  int64_t axis = node_int_or(concat, "axis", 0);
  Type type = concat->outputs[0]->type;
  if (concat->input_count < 2 || concat->input_count > MOST_LANES || type_is_unranked(type)) return false;
  row->axis = axis < 0 ? axis + type.rank : axis;
  if (row->axis < 0 || row->axis >= type.rank) return false;
  join->behind = type.rank - 1 - (uint32_t)row->axis;
  join->lanes = concat->input_count;
  for (uint32_t i = 0; i < join->lanes; i++) row->lanes[i] = node_input(concat, i);
  return are_of_one_type(join, row);
}

static void join_parts(Rewriter *rewriter, Node *node) {
  Join join = {.rewriter = rewriter, .root = node, .rows = MOST_ROWS};
  Row row = {0};
  if (!node_is(node, OP_Concat) || !begin(&join, &row)) return;
  if (!plan(&join, &row) || row.count == 0) return;
  if (row.gain + cost_of(node) <= 0) return;
  Value *joined = emit(&join, &row);
  if (!joined->producer) return;
  rewrite_replace(rewriter, node, joined);
  drop_row(&join, &row, joined->producer);
}

/* ---- sums ---- */

/* A sum whose terms are all of its own type. */
static bool is_sum(const Node *node) {
  Type type = node->outputs[0]->type;
  if (!node_is(node, OP_Add) || !node_input(node, 0) || !node_input(node, 1) || type.dtype == DTYPE_NONE ||
      type_is_unranked(type))
    return false;
  return dtype_is_float(type.dtype) && type_equal(node_input(node, 0)->type, type) &&
         type_equal(node_input(node, 1)->type, type);
}

/* The sum before the last term was added, which nothing else reads; NULL: none. */
static Node *sum_before(const Node *node, size_t operand) {
  const Value *value = node_input(node, operand);
  Node *sum = value->producer;
  return sum && sum->graph == node->graph && is_sum(sum) && value_only_user(value) == node ? sum : NULL;
}

/* The terms in the order in which they are added; 0 where there are too many. */
static uint32_t terms_of(const Node *root, Value **terms) {
  Value *backwards[MOST_LANES];
  uint32_t count = 0;
  for (const Node *node = root, *before; node; node = before) {
    bool second = !sum_before(node, 0) && sum_before(node, 1);
    before = sum_before(node, second);
    if (count + 2 > MOST_LANES) return 0;
    backwards[count++] = node_input(node, !second);
    if (!before) backwards[count++] = node_input(node, second);
  }
  for (uint32_t i = 0; i < count; i++) terms[i] = backwards[count - 1 - i];
  return count;
}

static void drop_sums(const Join *join, Node *node, Node *heir) {
  while (node && !node->is_gone) {
    Node *before = sum_before(node, 0);
    if (!before) before = sum_before(node, 1);
    rewrite_drop_unused(join->rewriter, node, heir);
    node = before;
  }
}

static Row *plan_terms(Join *join, Value *const *terms) {
  Row *row = arena_new(&join->rewriter->context->arena, Row);
  *row = (Row){.stacks = true, .axis = terms[0]->type.rank};
  copy_bytes(row->lanes, terms, join->lanes * sizeof *terms);
  if (row->axis >= MAX_RANK || !are_of_one_type(join, row) || !plan(join, row)) return NULL;
  return row->kind == ROW_ALIKE || row->kind == ROW_FACTORED ? row : NULL;
}

static void join_terms(Rewriter *rewriter, Node *node) {
  enum { OF_REDUCTION = 3, OF_SUM = 2 }; /* what they take */
  Join join = {.rewriter = rewriter, .root = node, .rows = MOST_ROWS};
  Value *terms[MOST_LANES];
  if (!node_is(node, OP_Add) || !is_sum(node)) return;
  const Node *reader = value_only_user(node->outputs[0]);
  if (reader && reader->graph == node->graph && is_sum(reader)) return;
  join.lanes = terms_of(node, terms);
  if (join.lanes < FEWEST_TERMS || schema_version(OP_ReduceSum, rewriter->model->opset) < 13) return;
  Row *row = plan_terms(&join, terms);
  if (!row || row->gain + OF_SUM * ((int)join.lanes - 1) <= OF_REDUCTION) return;
  Value *inputs[] = {emit(&join, row), rewrite_constant_ints(rewriter, node, &row->axis, 1, node->origin)};
  Value *sum = make(&join, node, OP_ReduceSum, node->outputs[0]->type, inputs, 2);
  node_set_int(sum->producer, "keepdims", 0);
  Node *before = sum_before(node, 0) ? sum_before(node, 0) : sum_before(node, 1);
  rewrite_replace(rewriter, node, sum);
  if (before) drop_sums(&join, before, sum->producer);
  drop_row(&join, row, sum->producer);
}

/* Sums come last: that of one lane, which has no signs, would be unlike those of the others. */
bool join_alike(Model *model) {
  Rewriter rewriter;
  rewrite_begin(&rewriter, model, __func__);
  rewrite_each_node(&rewriter, join_parts);
  if (!rewriter.changed) rewrite_each_node(&rewriter, join_terms);
  return rewrite_end(&rewriter);
}
