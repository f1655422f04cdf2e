/* Interval arithmetic, backwards from a value to what bounds it. */
#include "passes/analysis/bounds.h"

#include <math.h>

#include "passes/loop_body.h"
#include "passes/rewrite.h"
#include "types/moved.h"
#include "types/numbers.h"

enum {
  MOST_LOOKED_AT = 256,       /* operators for one question: the work stays linear */
  MOST_LOOPS = 4,             /* whose values depend on each other */
  MOST_ROUNDS = 3,            /* until what a step makes of a range is found to lie in it */
  LARGEST_LOOKED_AT = 1 << 16 /* bytes of a constant */
};

/* What is assumed of a value that a loop carries, while it is looked at what a step makes of it. */
typedef struct Assumption {
  const Value *value;
  Bounds bounds;
  const struct Assumption *outer;
} Assumption;

typedef struct Search {
  int budget;
  const Assumption *assumed; /* the newest, or NULL */
  int loops;                 /* so many */
} Search;

static bool find(Search *search, const Value *value, Bounds *bounds);

static bool of_constant(const Tensor *tensor, Bounds *bounds) {
  size_t width = dtype_bytes(tensor->dtype, 1);
  bool numbers = dtype_is_float(tensor->dtype) || dtype_is_integer(tensor->dtype) || tensor->dtype == DTYPE_BOOL;
  if (!numbers || dtype_bits(tensor->dtype) < 8 || tensor->dtype >= DTYPE_COMPLEX64) return false;
  if (tensor->dtype == DTYPE_UINT64) return false;
  if (tensor->size == 0 || tensor->size > LARGEST_LOOKED_AT) return false;
  tensor_ready(tensor);
  *bounds = (Bounds){INFINITY, -INFINITY};
  for (size_t at = 0; at + width <= tensor->size; at += width) {
    const char *element = (const char *)tensor->data + at;
    double number = dtype_is_float(tensor->dtype) ? number_decode(tensor->dtype, element)
                    : tensor->dtype == DTYPE_BOOL ? (double)(*element != 0)
                                                  : (double)number_decode_int(tensor->dtype, element);
    if (isnan(number)) return false;
    bounds->least = fmin(bounds->least, number);
    bounds->greatest = fmax(bounds->greatest, number);
  }
  return true;
}

/* What the element type alone says. */
static bool of_dtype(DType dtype, Bounds *bounds) {
  unsigned bits = dtype_bits(dtype);
  switch (dtype_kind(dtype)) {
    case KIND_BOOL: *bounds = (Bounds){0, 1}; return true;
    case KIND_INT: *bounds = (Bounds){-ldexp(1, (int)bits - 1), ldexp(1, (int)bits - 1) - 1}; return bits <= 32;
    case KIND_UINT: *bounds = (Bounds){0, ldexp(1, (int)bits) - 1}; return bits <= 32;
    default: return false;
  }
}

/* Integers beyond what doubles hold exactly, or beyond their type, are not known. */
static bool fits(DType dtype, Bounds bounds) {
  Bounds all;
  if (!dtype_is_integer(dtype)) return true;
  if (of_dtype(dtype, &all)) return bounds.least >= all.least && bounds.greatest <= all.greatest;
  return bounds.least >= -0x1p53 && bounds.greatest <= 0x1p53 && (dtype_kind(dtype) == KIND_INT || bounds.least >= 0);
}

static Bounds unite(Bounds a, Bounds b) { return (Bounds){fmin(a.least, b.least), fmax(a.greatest, b.greatest)}; }

/* A half may be rounded, beyond its range to infinity, or stay as it was computed in float32. */
static Bounds of_half(DType dtype, Bounds bounds) {
  return unite(bounds, (Bounds){number_rounded(dtype, bounds.least), number_rounded(dtype, bounds.greatest)});
}

static bool of_input(Search *search, const Node *node, size_t index, Bounds *bounds) {
  const Value *value = node_input(node, index);
  return value && find(search, value, bounds);
}

/* ---- operators ---- */

static bool of_moved(Search *search, const Node *node, Bounds *bounds) { return of_input(search, node, 0, bounds); }

static bool of_concat(Search *search, const Node *node, Bounds *bounds) {
  Bounds part;
  for (uint32_t i = 0; i < node->input_count; i++) {
    if (!of_input(search, node, i, &part)) return false;
    *bounds = i ? unite(*bounds, part) : part;
  }
  return node->input_count > 0;
}

/* What is there and what is written; not what is added to it. */
static bool of_scattered(Search *search, const Node *node, Bounds *bounds) {
  Bounds written;
  const Attribute *reduction = node_attribute(node, "reduction");
  if (reduction && (reduction->kind != ATTRIBUTE_STRING || strcmp(reduction->string, "none") != 0)) return false;
  if (!of_input(search, node, 0, bounds) || !of_input(search, node, 2, &written)) return false;
  *bounds = unite(*bounds, written);
  return true;
}

static bool of_where(Search *search, const Node *node, Bounds *bounds) {
  Bounds other;
  if (!of_input(search, node, 1, bounds) || !of_input(search, node, 2, &other)) return false;
  *bounds = unite(*bounds, other);
  return true;
}

static bool of_clip(Search *search, const Node *node, Bounds *bounds) {
  Bounds low = {-INFINITY, -INFINITY}, high = {INFINITY, INFINITY};
  if (node_input(node, 1) && !of_input(search, node, 1, &low)) return false;
  if (node_input(node, 2) && !of_input(search, node, 2, &high)) return false;
  if (!of_input(search, node, 0, bounds)) *bounds = (Bounds){-INFINITY, INFINITY};
  bounds->least = fmin(fmax(bounds->least, low.least), high.least);
  bounds->greatest = fmin(fmax(bounds->greatest, low.greatest), high.greatest);
  return isfinite(bounds->least) || isfinite(bounds->greatest);
}

static bool of_cast(Search *search, const Node *node, Bounds *bounds) {
  DType from = node_input(node, 0)->type.dtype, to = node->outputs[0]->type.dtype;
  if (!of_input(search, node, 0, bounds)) return false;
  if (dtype_is_float(from) && !dtype_is_float(to)) { /* towards zero */
    *bounds = (Bounds){floor(bounds->least), ceil(bounds->greatest)};
  }
  return dtype_is_half(to) || to == DTYPE_FLOAT32 || to == DTYPE_FLOAT64 || dtype_is_integer(to);
}

static bool of_add(Search *search, const Node *node, Bounds *bounds) {
  Bounds other;
  if (!of_input(search, node, 0, bounds) || !of_input(search, node, 1, &other)) return false;
  *bounds = (Bounds){bounds->least + other.least, bounds->greatest + other.greatest};
  return true;
}

static bool of_sub(Search *search, const Node *node, Bounds *bounds) {
  Bounds other;
  if (!of_input(search, node, 0, bounds) || !of_input(search, node, 1, &other)) return false;
  *bounds = (Bounds){bounds->least - other.greatest, bounds->greatest - other.least};
  return true;
}

/* Of the least of them, or of the greatest. */
static bool of_extreme(Search *search, const Node *node, Bounds *bounds) {
  bool is_max = node_is(node, OP_Max);
  Bounds other;
  if (!dtype_is_integer(node->outputs[0]->type.dtype)) return false; /* a NaN may count or not */
  for (uint32_t i = 0; i < node->input_count; i++) {
    if (!of_input(search, node, i, &other)) return false;
    if (i == 0) *bounds = other;
    else if (is_max) *bounds = (Bounds){fmax(bounds->least, other.least), fmax(bounds->greatest, other.greatest)};
    else *bounds = (Bounds){fmin(bounds->least, other.least), fmin(bounds->greatest, other.greatest)};
  }
  return true;
}

static bool of_mul(Search *search, const Node *node, Bounds *bounds) {
  Bounds a, b;
  if (!of_input(search, node, 0, &a) || !of_input(search, node, 1, &b)) return false;
  double ends[] = {a.least * b.least, a.least * b.greatest, a.greatest * b.least, a.greatest * b.greatest};
  *bounds = (Bounds){ends[0], ends[0]};
  for (int i = 0; i < 4; i++) {
    if (isnan(ends[i])) return false;
    *bounds = unite(*bounds, (Bounds){ends[i], ends[i]});
  }
  return true;
}

static bool of_neg(Search *search, const Node *node, Bounds *bounds) {
  Bounds from;
  if (!of_input(search, node, 0, &from)) return false;
  *bounds = (Bounds){-from.greatest, -from.least};
  return true;
}

/* With a positive divisor the remainder has its sign, unless asked for C's. */
static bool of_mod(Search *search, const Node *node, Bounds *bounds) {
  Bounds divisor;
  if (node_int_or(node, "fmod", 0) || !of_input(search, node, 1, &divisor) || divisor.least < 1) return false;
  if (!dtype_is_integer(node->outputs[0]->type.dtype)) return false;
  *bounds = (Bounds){0, divisor.greatest - 1};
  return true;
}

static bool of_position(Search *search, const Node *node, Bounds *bounds) {
  (void)search;
  Type from = node_input(node, 0)->type;
  int64_t axis = node_int_or(node, "axis", 0);
  if (axis < 0) axis += from.rank;
  if (axis < 0 || axis >= (int64_t)from.rank || !dim_is_constant(from.dims[axis])) return false;
  *bounds = (Bounds){0, (double)from.dims[axis].constant - 1};
  return true;
}

static bool of_unit(Search *search, const Node *node, Bounds *bounds) {
  (void)search, (void)node;
  *bounds = (Bounds){0, 1};
  return true;
}

static bool of_tanh(Search *search, const Node *node, Bounds *bounds) {
  (void)search, (void)node;
  *bounds = (Bounds){-1, 1};
  return true;
}

typedef struct BoundsRow {
  Op op;
  bool (*find)(Search *search, const Node *node, Bounds *bounds);
} BoundsRow;

static const BoundsRow rows[] = {
    {OP_Identity, of_moved},
    {OP_Reshape, of_moved},
    {OP_Transpose, of_moved},
    {OP_Squeeze, of_moved},
    {OP_Expand, of_moved},
    {OP_Slice, of_moved},
    {OP_Unsqueeze, of_moved},
    {OP_Flatten, of_moved},
    {OP_Gather, of_moved},
    {OP_GatherND, of_moved},
    {OP_GatherElements, of_moved},
    {OP_Tile, of_moved},
    {OP_Split, of_moved},
    {OP_Compress, of_moved},
    {OP_ScatterND, of_scattered},
    {OP_ScatterElements, of_scattered},
    {OP_Concat, of_concat},
    {OP_Where, of_where},
    {OP_Clip, of_clip},
    {OP_Cast, of_cast},
    {OP_Narrow, of_cast},
    {OP_Add, of_add},
    {OP_Sub, of_sub},
    {OP_Mul, of_mul},
    {OP_Max, of_extreme},
    {OP_Min, of_extreme},
    {OP_Neg, of_neg},
    {OP_Mod, of_mod},
    {OP_ArgMax, of_position},
    {OP_ArgMin, of_position},
    {OP_Sigmoid, of_unit},
    {OP_Softmax, of_unit},
    {OP_Tanh, of_tanh},
    {OP_NONE, NULL},
};

/* ---- what a loop's body is given ---- */

/* Where the loop only goes on while the value is below a bound, the next step finds it there. */
static bool is_kept_below(const Value *condition, const Value *value, int depth, double *bound) {
  const Node *node = condition->producer;
  int64_t number;
  if (!node || depth == 0) return false;
  if (node_is(node, OP_And)) {
    return is_kept_below(node_input(node, 0), value, depth - 1, bound) ||
           is_kept_below(node_input(node, 1), value, depth - 1, bound);
  }
  bool included = node_is(node, OP_LessOrEqual);
  if ((!included && !node_is(node, OP_Less)) || behind_identities(node_input(node, 0)) != value) return false;
  if (!small_integer(node_input(node, 1), &number)) return false;
  *bound = (double)number - (included ? 0 : 1);
  return true;
}

/* What starts somewhere and grows by a constant, as long as it is below a bound. */
static bool of_counter(Search *search, const Node *loop, const LoopShape *shape, size_t carried, Bounds *bounds) {
  enum { DEEPEST = 8 };
  const Value *before = shape->body->inputs.items[shape->first_body_input + carried];
  const Value *after = behind_identities(shape->body->outputs.items[shape->lead + carried]->value);
  const Node *add = after->producer;
  double bound;
  int64_t step;
  if (!shape->lead || !add || !node_is(add, OP_Add) || node_input(add, 0) != before) return false;
  if (!small_integer(node_input(add, 1), &step) || step < 0 || !dtype_is_integer(before->type.dtype)) return false;
  if (!is_kept_below(behind_identities(shape->body->outputs.items[0]->value), after, DEEPEST, &bound)) return false;
  if (!find(search, node_input(loop, shape->first_input + carried), bounds)) return false;
  bounds->greatest = fmax(bounds->greatest, bound);
  return fits(before->type.dtype, (Bounds){bounds->least, bounds->greatest + (double)step}); /* it never wraps */
}

/* What it starts with, and what a step makes of such a number: by induction, what any step makes. */
static bool of_any_step(Search *search, const Node *loop, const LoopShape *shape, size_t carried, Bounds *bounds) {
  Assumption assumption = {.value = shape->body->inputs.items[shape->first_body_input + carried],
                           .outer = search->assumed};
  const Value *next = shape->body->outputs.items[shape->lead + carried]->value;
  bool known = false;
  if (search->loops == MOST_LOOPS || !of_input(search, loop, shape->first_input + carried, &assumption.bounds))
    return false;
  search->assumed = &assumption;
  search->loops++;
  for (int round = 0; round < MOST_ROUNDS && !known && find(search, next, bounds); round++) {
    known = bounds->least >= assumption.bounds.least && bounds->greatest <= assumption.bounds.greatest;
    assumption.bounds = unite(assumption.bounds, *bounds);
  }
  search->assumed = assumption.outer;
  search->loops--;
  *bounds = assumption.bounds;
  return known;
}

static bool is_assumed(const Search *search, const Value *value, Bounds *bounds) {
  const Assumption *assumption = search->assumed;
  while (assumption && assumption->value != value) assumption = assumption->outer;
  if (assumption) *bounds = assumption->bounds;
  return assumption != NULL;
}

static bool of_body_input(Search *search, const Value *value, Bounds *bounds) {
  const Node *loop = value->graph->owner;
  LoopShape shape;
  size_t at = 0;
  if (is_assumed(search, value, bounds)) return true;
  if (!loop || search->budget-- <= 0 || !loop_shape(loop, &shape)) return false;
  while (at < shape.body->inputs.count && shape.body->inputs.items[at] != value) at++;
  if (at == shape.body->inputs.count || at < shape.first_body_input) return false;
  size_t carried = at - shape.first_body_input;
  if (carried >= shape.carried) return of_input(search, loop, at, bounds); /* a slice */
  return of_counter(search, loop, &shape, carried, bounds) || of_any_step(search, loop, &shape, carried, bounds);
}

/* What a loop gives: as it was carried, or of any step. */
static bool of_loop(Search *search, const Value *value, Bounds *bounds) {
  LoopShape shape;
  size_t at = value->output_index;
  if (search->budget-- <= 0 || !loop_shape(value->producer, &shape)) return false;
  if (at >= shape.carried) return find(search, shape.body->outputs.items[shape.lead + at]->value, bounds);
  return of_any_step(search, value->producer, &shape, at, bounds) && fits(value->type.dtype, *bounds);
}

static bool find(Search *search, const Value *value, Bounds *bounds) {
  const Tensor *constant = unread_constant_of(value);
  if (constant) return of_constant(constant, bounds);
  const Node *node = value->producer;
  if (!node && of_body_input(search, value, bounds)) return true;
  if (node && node_has(node, LOOPS) && of_loop(search, value, bounds)) return true;
  DType dtype = value->type.dtype;
  if (node && (!node->domain[0] || node_has(node, COMPOSITE)) && search->budget-- > 0 && node_input(node, 0)) {
    const BoundsRow *row = rows;
    while (row->op && row->op != node->op) row++;
    if (row->op && row->find(search, node, bounds) && fits(dtype, *bounds)) {
      if (dtype_is_half(dtype)) *bounds = of_half(dtype, *bounds);
      return true;
    }
  }
  return of_dtype(dtype, bounds);
}

bool value_bounds(const Value *value, Bounds *bounds) {
  Search search = {.budget = MOST_LOOKED_AT};
  return find(&search, value, bounds);
}
