/* Sliding windows: padding, spreading, and views of the windows as arrays. */
#include "lower/window/sliding_window.h"

#include "base/bytes.h"
#include "lower/data/padding.h"

const int64_t *read_window_ints(Lowering *l, const char *name, size_t count) {
  size_t found;
  const int64_t *values = param_ints(l->context, l->equation, name, &found);
  rely_on(l, found == count);
  return values;
}

void read_window_padding(Lowering *l, WindowAxis *axes, size_t count) {
  const Param *padding = param_get(l->context, l->equation, "padding");
  rely_on(l, padding->kind == PARAM_LIST && padding->list.count == count);
  for (size_t i = 0; i < count; i++) {
    size_t sides;
    const Dim *pair = param_dims(l->context, &padding->list.items[i], &sides);
    rely_on(l, sides == 2);
    axes[i].low = pair[0];
    axes[i].high = pair[1];
  }
}

bool padding_is_constant(const WindowAxis *axis) { return dim_is_constant(axis->low) && dim_is_constant(axis->high); }

bool padding_is_zero(const WindowAxis *axis) { return dim_is(axis->low, 0) && dim_is(axis->high, 0); }

bool window_axis_is_trivial(const WindowAxis *axis) {
  return dim_is(axis->window, 1) && axis->stride == 1 && axis->base_dilation == 1 && padding_is_zero(axis);
}

/* The only symbol that a dimension is made of. */
static bool only_symbol(Dim dim, Str *symbol) {
  if (!dim.expr) return true;
  for (size_t t = 0; t < dim.expr->term_count; t++) {
    for (size_t f = 0; f < dim.expr->terms[t].factor_count; f++) {
      const DimFactor *factor = &dim.expr->terms[t].factors[f];
      if (factor->op != DIM_SYMBOL) {
        if (!only_symbol(factor->left, symbol) || !only_symbol(factor->right, symbol)) return false;
      } else if (!*symbol) {
        *symbol = factor->symbol;
      } else if (*symbol != factor->symbol) {
        return false;
      }
    }
  }
  return true;
}

static int64_t dim_at(Dim dim, int64_t symbol);

static int64_t factor_at(const DimFactor *factor, int64_t symbol) {
  if (factor->op == DIM_SYMBOL) return symbol;
  int64_t left = dim_at(factor->left, symbol), right = dim_at(factor->right, symbol);
  if (factor->op == DIM_MAX) return left > right ? left : right;
  if (factor->op == DIM_MIN) return left < right ? left : right;
  if (right == 0) return 0;
  int64_t quotient = left / right - (left % right != 0 && (left < 0) != (right < 0));
  return factor->op == DIM_FLOORDIV ? quotient : left - right * quotient;
}

/* The dimension where its only symbol has a value. */
static int64_t dim_at(Dim dim, int64_t symbol) {
  if (!dim.expr) return dim.constant;
  int64_t sum = 0;
  for (size_t t = 0; t < dim.expr->term_count; t++) {
    const DimTerm *term = &dim.expr->terms[t];
    int64_t product = term->coefficient;
    for (size_t f = 0; f < term->factor_count; f++) {
      for (int64_t p = 0; p < term->factors[f].power; p++) product *= factor_at(&term->factors[f], symbol);
    }
    sum += product;
  }
  return sum;
}

/* The largest number in a dimension: beyond a few times that, it repeats a pattern. */
static int64_t largest_number(Dim dim) {
  if (!dim.expr) return dim.constant < 0 ? -dim.constant : dim.constant;
  int64_t largest = 0;
  for (size_t t = 0; t < dim.expr->term_count; t++) {
    const DimTerm *term = &dim.expr->terms[t];
    int64_t numbers[] = {term->coefficient < 0 ? -term->coefficient : term->coefficient, 0, 0};
    for (size_t f = 0; f < term->factor_count; f++) {
      if (term->factors[f].op == DIM_SYMBOL) continue;
      numbers[1] = largest_number(term->factors[f].left);
      numbers[2] = largest_number(term->factors[f].right);
      for (int i = 1; i < 3; i++) largest = numbers[i] > largest ? numbers[i] : largest;
    }
    largest = numbers[0] > largest ? numbers[0] : largest;
  }
  return largest;
}

static bool same_padding_at(const WindowAxis *axis, AutoPad kind, int64_t symbol) {
  int64_t size = dim_at(axis->size, symbol), window = axis->window.constant;
  if (size < 1) return true;
  int64_t count = (size + axis->stride - 1) / axis->stride;
  int64_t total = (count - 1) * axis->stride + window - size;
  if (total < 0) total = 0;
  int64_t low = kind == AUTO_PAD_SAME_UPPER ? total / 2 : total - total / 2;
  return dim_at(axis->low, symbol) == low && dim_at(axis->high, symbol) == total - low;
}

/* Padding is a function of the size that repeats with the stride once the size has outgrown the window: agreement over
 * a few such periods is agreement everywhere. */
static bool axis_same_padding(const WindowAxis *axis, AutoPad kind) {
  if (axis->dilation != 1 || axis->base_dilation != 1 || !dim_is_constant(axis->window)) return false;
  Str symbol = NULL;
  if (!only_symbol(axis->size, &symbol) || !only_symbol(axis->low, &symbol) || !only_symbol(axis->high, &symbol)) {
    return false;
  }
  int64_t largest = largest_number(axis->low), other = largest_number(axis->high);
  if (other > largest) largest = other;
  if (largest > 1024 || axis->window.constant > 1024) return false;
  int64_t last = symbol ? 4 * (axis->window.constant + largest) + 64 : 1;
  for (int64_t value = 1; value <= last; value++) {
    if (!same_padding_at(axis, kind, value)) return false;
  }
  return true;
}

static bool leaves_gaps(const WindowAxis *axis) {
  return dim_is_constant(axis->window) && axis->stride > axis->window.constant;
}

AutoPad same_padding(const Lowering *l, const WindowAxis *axes, size_t count) {
  for (size_t i = 0; i < count; i++) {
    if (leaves_gaps(&axes[i]) && target_quirk(l, QUIRK_SAME_MAX_POOL_FAILS_ON_GAPS)) return AUTO_PAD_NONE;
  }
  for (AutoPad kind = AUTO_PAD_SAME_UPPER; kind <= AUTO_PAD_SAME_LOWER; kind++) {
    size_t same = 0;
    while (same < count && axis_same_padding(&axes[same], kind)) same++;
    if (same == count) return kind;
  }
  return AUTO_PAD_NONE;
}

void set_auto_pad(Node *node, AutoPad kind) {
  node_set_string(node, "auto_pad", kind == AUTO_PAD_SAME_UPPER ? "SAME_UPPER" : "SAME_LOWER");
}

Value *pad_edges(Lowering *l, Value *value, const Dim *low, const Dim *high, Value *fill) {
  Padding padding = {.rank = value->type.rank};
  copy_bytes(padding.low, low, padding.rank * sizeof *low);
  copy_bytes(padding.high, high, padding.rank * sizeof *high);
  return pad_array(l, value, padding, NULL, fill);
}

Value *apply_padding(Lowering *l, Value *value, int64_t first, WindowAxis *axes, size_t count, Value *fill) {
  Padding padding = {.rank = value->type.rank};
  for (size_t i = 0; i < count; i++) {
    padding.low[(size_t)first + i] = axes[i].low;
    padding.high[(size_t)first + i] = axes[i].high;
    padding.gap[(size_t)first + i] = axes[i].base_dilation - 1;
  }
  value = pad_array(l, value, padding, NULL, fill);
  for (size_t i = 0; i < count; i++) {
    axes[i].size = value->type.dims[(size_t)first + i];
    axes[i].low = axes[i].high = dim_of(0);
    axes[i].base_dilation = 1;
  }
  return value;
}

Value *arithmetic_sequence(Lowering *l, Dim count, int64_t step) {
  if (!dim_is_constant(count)) {
    Dim limit = dim_multiply(l->context, count, dim_of(step));
    Value *start = constant_integer(l, DTYPE_INT64, 0), *by = constant_integer(l, DTYPE_INT64, step);
    Type type = type_make(l->context, DTYPE_INT64, &count, 1);
    return EMIT(l, OP_Range, type, start, dimension_scalar(l, limit, DTYPE_INT64), by);
  }
  int64_t *values = arena_new_array(&l->context->arena, (size_t)count.constant, int64_t);
  for (int64_t i = 0; i < count.constant; i++) values[i] = i * step;
  return constant_ints(l, values, (size_t)count.constant);
}

/* [window, count]: where each element of each window lies. */
static Value *window_positions(Lowering *l, const WindowAxis *window) {
  Dim dims[] = {window->window, window->count};
  Type type = type_make(l->context, DTYPE_INT64, dims, 2);
  int64_t total;
  if (!type_count(type, &total)) {
    Dim column[] = {window->window, dim_of(1)};
    Value *within = reshape_to(l, arithmetic_sequence(l, window->window, window->dilation), column, 2);
    return EMIT(l, OP_Add, type, within, arithmetic_sequence(l, window->count, window->stride));
  }
  int64_t sizes[] = {window->window.constant, window->count.constant};
  int64_t *values = arena_new_array(&l->context->arena, (size_t)total, int64_t);
  for (int64_t w = 0; w < sizes[0]; w++) {
    for (int64_t i = 0; i < sizes[1]; i++) values[w * sizes[1] + i] = i * window->stride + w * window->dilation;
  }
  return constant(l, tensor_new(l, DTYPE_INT64, sizes, 2, values, (size_t)total * sizeof *values));
}

Value *view_windows(Lowering *l, Value *value, int64_t axis, const WindowAxis *window) {
  uint32_t rank = value->type.rank;
  rely_on(l, rank < MAX_RANK);
  Dim dims[MAX_RANK];
  for (uint32_t i = 0; i < rank; i++) dims[i < axis ? i : i + 1] = value->type.dims[i];
  dims[axis] = window->window;
  dims[axis + 1] = window->count;
  Type type = type_make(l->context, value->type.dtype, dims, rank + 1);
  Value *view = EMIT(l, OP_Gather, type, value, window_positions(l, window));
  node_set_int(view->producer, "axis", axis);
  return view;
}

Value *window_element(Lowering *l, Value *value, int64_t axis, const WindowAxis *window, int64_t offset) {
  Dim dims[MAX_RANK];
  for (uint32_t i = 0; i < value->type.rank; i++) dims[i] = value->type.dims[i];
  dims[axis] = window->count;
  Type type = type_make(l->context, value->type.dtype, dims, value->type.rank);
  Dim start = dim_of(offset * window->dilation);
  /* Past the last element by what is left of the stride: never negative, also where there is no window at all. */
  Dim limit = dim_add(l->context, start, dim_multiply(l->context, window->count, dim_of(window->stride)));
  return slice_at(l, value, type, &start, &limit, &window->stride, &axis, 1);
}
