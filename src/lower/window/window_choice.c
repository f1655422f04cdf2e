/* One element chosen from each window: where it lies, and what is gathered from or scattered to there. These are the
 * derivatives of maxima and minima over windows.
 *
 * The chosen place is a position in the padded operand as one row of elements.
 */
#include "lower/elementwise/arithmetic.h"
#include "lower/reduce/scalar_body.h"
#include "lower/window/reduce_window.h"
#include "onnx/facts/schema.h"

/* How an element is chosen: the first largest (ge), the first smallest (le), or by a predicate on two scalars. */
typedef struct Choice {
  bool largest, smallest;
  const Jaxpr *predicate; /* keep the first of its arguments? */
  const Param *consts;
} Choice;

typedef struct Windows {
  WindowAxis *axes;                  /* of the padded operand */
  Dim low[MAX_RANK], high[MAX_RANK]; /* the padding that was applied */
  uint32_t rank;
} Windows;

static Dim elements_of(Lowering *l, const Dim *dims, uint32_t from, uint32_t rank) {
  Dim count = dim_of(1);
  for (uint32_t i = from; i < rank; i++) count = dim_multiply(l->context, count, dims[i]);
  return count;
}

/* [size…] -> [count…, elements of a window] */
static Value *windows_in_rows(Lowering *l, Value *operand, const Windows *w, int64_t elements) {
  Value *view = operand;
  int64_t permutation[MAX_RANK];
  Dim dims[MAX_RANK];
  uint32_t views = 0, first_window = w->rank;
  for (uint32_t i = 0; i < w->rank; i++) {
    dims[i] = w->axes[i].count;
    bool windowed = !dim_is(w->axes[i].window, 1) || w->axes[i].stride != 1;
    if (windowed) {
      rely_on(l, w->rank + views + 1 < MAX_RANK);
      view = view_windows(l, view, i + views, &w->axes[i]);
      permutation[first_window + views] = i + views;
      views++;
    }
    permutation[i] = i + views;
  }
  dims[w->rank] = dim_of(elements);
  return reshape_to(l, transpose_by(l, view, permutation), dims, w->rank + 1);
}

/* Keeps or replaces the choice element by element, in the order XLA does. */
static Value *choose_by_predicate(Lowering *l, Value *rows, const Choice *choice, int64_t elements) {
  Type type = rows->type;
  int64_t axis = (int64_t)type.rank - 1;
  WindowAxis element = {.count = dim_of(1), .stride = 1, .dilation = 1};
  Value *chosen = window_element(l, rows, axis, &element, 0), *place = NULL;
  for (int64_t i = 1; i < elements; i++) {
    Value *candidate = window_element(l, rows, axis, &element, i), *keep;
    Value *pair[] = {chosen, candidate};
    Type answer = type_with(candidate->type, DTYPE_BOOL);
    if (choice->predicate) apply_scalar_body(l, HERE, choice->predicate, choice->consts, pair, 2, &keep);
    else keep = EMIT(l, choice->largest ? OP_GreaterOrEqual : OP_LessOrEqual, answer, chosen, candidate);
    Value *here = constant_integer(l, DTYPE_INT64, i), *before = place ? place : constant_integer(l, DTYPE_INT64, 0);
    place = EMIT(l, OP_Where, type_with(answer, DTYPE_INT64), keep, before, here);
    chosen = EMIT_WHERE(l, keep, chosen, candidate);
  }
  Type result = type_make(l->context, DTYPE_INT64, type.dims, type.rank - 1);
  if (!place) return filled(l, result, tensor_scalar(l, DTYPE_INT64, 0));
  return squeeze_at(l, place, &axis, 1);
}

/* The number of the chosen element within each window. */
static Value *choose(Lowering *l, Value *operand, const Windows *w, const Choice *choice) {
  int64_t elements = 1;
  for (uint32_t i = 0; i < w->rank; i++) elements *= w->axes[i].window.constant;
  Value *rows = windows_in_rows(l, operand, w, elements);
  DType dtype = operand->type.dtype;
  Op op = choice->largest ? OP_ArgMax : OP_ArgMin;
  DType compute = compute_dtype(l, op, dtype);
  if (choice->predicate || dtype == DTYPE_UINT64 || compute == DTYPE_NONE) {
    return choose_by_predicate(l, rows, choice, elements);
  }
  Type type = type_make(l->context, DTYPE_INT64, rows->type.dims, w->rank);
  Value *place = EMIT(l, op, type, cast_to(l, rows, compute));
  node_set_int(place->producer, "axis", w->rank);
  node_set_int(place->producer, "keepdims", 0);
  return place;
}

static Value *add_scaled(Lowering *l, Value *sum, Value *value, Dim scale) {
  if (!dim_is(scale, 1)) value = EMIT_MATH(l, OP_Mul, value, dimension_scalar(l, scale, DTYPE_INT64));
  return sum ? EMIT(l, OP_Add, sum->type, sum, value) : value;
}

/* Where in the padded operand, as one row, each element of the window at the origin lies. */
static Value *offsets_in_window(Lowering *l, const Windows *w, const Dim *sizes, int64_t elements) {
  Value *sum = NULL;
  int64_t *offsets = arena_new_array(&l->context->arena, (size_t)elements, int64_t);
  int64_t inner = elements;
  for (uint32_t i = 0; i < w->rank; i++) {
    int64_t window = w->axes[i].window.constant;
    inner /= window;
    if (window == 1) continue;
    for (int64_t e = 0; e < elements; e++) offsets[e] = e / inner % window * w->axes[i].dilation;
    sum = add_scaled(l, sum, constant_ints(l, offsets, (size_t)elements), elements_of(l, sizes, i + 1, w->rank));
  }
  offsets[0] = 0;
  return sum ? sum : constant_ints(l, offsets, 1);
}

/* Where the first element of each window lies: [count…]. */
static Value *window_origins(Lowering *l, const Windows *w, const Dim *sizes) {
  Value *sum = NULL;
  Dim dims[MAX_RANK];
  for (uint32_t i = 0; i < w->rank; i++) dims[i] = dim_of(1);
  for (uint32_t i = w->rank; i-- > 0;) {
    Dim column[MAX_RANK];
    for (uint32_t k = 0; k < w->rank - i; k++) column[k] = k == 0 ? w->axes[i].count : dim_of(1);
    Value *starts = arithmetic_sequence(l, w->axes[i].count, w->axes[i].stride);
    starts = add_scaled(l, NULL, starts, elements_of(l, sizes, i + 1, w->rank));
    starts = reshape_to(l, starts, column, w->rank - i);
    dims[i] = w->axes[i].count;
    Type type = type_make(l->context, DTYPE_INT64, dims + i, w->rank - i);
    sum = sum ? EMIT(l, OP_Add, type, sum, starts) : starts;
  }
  return sum ? sum : constant_integer(l, DTYPE_INT64, 0);
}

/* The position of the chosen element in the padded operand as one row: [count…]. */
static Value *chosen_positions(Lowering *l, Value *padded, const Windows *w, const Choice *choice) {
  int64_t elements = 1;
  for (uint32_t i = 0; i < w->rank; i++) elements *= w->axes[i].window.constant;
  Value *place = choose(l, padded, w, choice);
  Value *offset = EMIT(l, OP_Gather, place->type, offsets_in_window(l, w, padded->type.dims, elements), place);
  return EMIT(l, OP_Add, place->type, window_origins(l, w, padded->type.dims), offset);
}

static Value *pad_operand(Lowering *l, Windows *w, Value *operand, Type result, Value *fill) {
  w->rank = operand->type.rank;
  w->axes = read_windows(l, operand->type, result);
  for (uint32_t i = 0; i < w->rank; i++) {
    w->low[i] = w->axes[i].low;
    w->high[i] = w->axes[i].high;
  }
  return apply_padding(l, operand, 0, w->axes, w->rank, fill);
}

static Value *in_a_row(Lowering *l, Value *value) {
  Dim count = elements_of(l, value->type.dims, 0, value->type.rank);
  return reshape_to(l, value, &count, 1);
}

/* initial everywhere, with source put at positions of the padded operand; then without the padding. */
static Value *scatter(Lowering *l, const Windows *w, Type padded, Value *positions, Value *source, Value *initial,
                      const char *reduction) {
  DType dtype = source->type.dtype, compute = dtype;
  if (!schema_runs(OP_ScatterElements, reduction, l->options->opset, dtype)) compute = DTYPE_FLOAT32;
  if (dtype_bits(compute) < dtype_bits(dtype)) unsupported(l, "ONNX Runtime cannot scatter %s", dtype_name(dtype));
  Dim count = elements_of(l, padded.dims, 0, padded.rank);
  Value *base = expand_to(l, cast_to(l, initial, compute), &count, 1);
  Value *updates = in_a_row(l, cast_to(l, source, compute));
  Value *result = EMIT(l, OP_ScatterElements, base->type, base, in_a_row(l, positions), updates);
  node_set_int(result->producer, "axis", 0);
  node_set_string(result->producer, "reduction", reduction);
  result = reshape_to(l, narrow_to(l, result, dtype), padded.dims, padded.rank);
  Dim low[MAX_RANK], high[MAX_RANK];
  for (uint32_t i = 0; i < w->rank; i++) {
    low[i] = dim_subtract(l->context, dim_of(0), w->low[i]);
    high[i] = dim_subtract(l->context, dim_of(0), w->high[i]);
  }
  return pad_edges(l, result, low, high, initial);
}

static Choice named_choice(Str primitive) {
  Choice choice = {.largest = primitive && strcmp(primitive, "ge") == 0,
                   .smallest = primitive && strcmp(primitive, "le") == 0};
  return choice;
}

static Choice read_choice(Lowering *l) {
  const Param *select = param_get(l->context, l->equation, "select_prim");
  Choice choice = named_choice(select->kind == PARAM_STRING ? select->text : NULL);
  if (!choice.largest && !choice.smallest) unsupported(l, "it selects elements with something other than ge or le");
  return choice;
}

static Value *choice_identity(Lowering *l, const Choice *choice, DType dtype) {
  return constant(l, reduction_identity(l, choice->largest ? OP_ReduceMax : OP_ReduceMin, dtype));
}

void lower_select_and_scatter_add(Lowering *l) {
  Value *source = input(l, 0), *operand = input(l, 1);
  Choice choice = read_choice(l);
  Windows w;
  Value *padded = pad_operand(l, &w, operand, source->type, choice_identity(l, &choice, operand->type.dtype));
  Value *positions = chosen_positions(l, padded, &w, &choice);
  Value *zero = constant_scalar(l, source->type.dtype, 0);
  bind(l, 0, scatter(l, &w, padded->type, positions, source, zero, "add"));
}

void lower_select_and_gather_add(Lowering *l) {
  Value *tangents = input(l, 0), *operand = input(l, 1);
  Choice choice = read_choice(l);
  Type type = output_type(l, 0);
  Windows w, other;
  Value *padded = pad_operand(l, &w, operand, type, choice_identity(l, &choice, operand->type.dtype));
  tangents = pad_operand(l, &other, tangents, type, constant_scalar(l, type.dtype, 0));
  bind(l, 0, EMIT(l, OP_Gather, type, in_a_row(l, tangents), chosen_positions(l, padded, &w, &choice)));
}

/* The ScatterElements reduction of a body that is one primitive. */
static const char *scatter_reduction(Lowering *l, const Jaxpr *body) {
  static const char *const reductions[] = {"add", "mul", "min", "max"};
  Str primitive = scalar_body_primitive(body, 0);
  for (size_t i = 0; primitive && i < sizeof reductions / sizeof *reductions; i++) {
    if (strcmp(primitive, reductions[i]) == 0) return reductions[i];
  }
  unsupported(l, "ONNX can only scatter with add, mul, min and max, not with a custom computation");
}

void lower_select_and_scatter(Lowering *l) {
  Value *operand = input(l, 0), *source = input(l, 1), *initial = input(l, 2);
  const Jaxpr *predicate = param_jaxpr(l->context, l->equation, "select_jaxpr");
  const char *reduction = scatter_reduction(l, param_jaxpr(l->context, l->equation, "scatter_jaxpr"));
  Choice choice = named_choice(scalar_body_primitive(predicate, 0));
  Windows w;
  Value *fill = initial;
  if (choice.largest || choice.smallest) {
    fill = choice_identity(l, &choice, operand->type.dtype);
  } else {
    choice.predicate = predicate;
    choice.consts = param_find(l->equation, "select_consts");
  }
  Value *padded = pad_operand(l, &w, operand, source->type, fill);
  if (choice.predicate && padded != operand) unsupported(l, "no element is known that its predicate never selects");
  Value *positions = chosen_positions(l, padded, &w, &choice);
  bind(l, 0, scatter(l, &w, padded->type, positions, source, initial, reduction));
}
