/* Reading masks backwards, through comparisons and what joins them, to counted positions. */
#include "passes/analysis/masks.h"

#include <math.h>
#include <stdlib.h>

#include "passes/pattern.h"
#include "types/moved.h"
#include "types/numbers.h"

enum { MOST_LOOKED_AT = 32 /* operators for one question: the work stays linear */ };

/* ---- positions ---- */

/* of_row * row + of_column * column + of_size * size + shift */
typedef struct Line {
  int64_t of_row, of_column, shift, of_size;
  Dim size; /* known only at run time; of no matter where of_size is 0 */
} Line;

static const int64_t far_away = INT64_C(1) << 40; /* beyond every position, and far from overflowing */

static bool is_near(Line line) {
  return llabs(line.of_row) < 4 && llabs(line.of_column) < 4 && llabs(line.of_size) < 4 && llabs(line.shift) < far_away;
}

static int64_t size_from_end(const Tensor *tensor, uint32_t from_end) {
  return tensor->rank >= from_end ? tensor->dims[tensor->rank - from_end] : 1;
}

static bool line_of_constant(const Tensor *tensor, Line *line) {
  enum { LARGEST_LOOKED_AT = 1 << 20 };
  if (!dtype_is_integer(tensor->dtype) || dtype_bits(tensor->dtype) < 8 || tensor->size > LARGEST_LOOKED_AT)
    return false;
  size_t width = dtype_bytes(tensor->dtype, 1);
  int64_t rows = size_from_end(tensor, 2), columns = size_from_end(tensor, 1);
  if (tensor->size == 0 || tensor->size / width != (size_t)(rows * columns)) return false;
  tensor_ready(tensor);
  const char *data = tensor->data;
#define AT(row, column) number_decode_int(tensor->dtype, data + (size_t)((row) * columns + (column)) * width)
  *line = (Line){.shift = AT(0, 0)};
  if (llabs(line->shift) >= far_away) return false;
  if (rows > 1) line->of_row = AT(1, 0) - line->shift;
  if (columns > 1) line->of_column = AT(0, 1) - line->shift;
  if (!is_near(*line)) return false;
  for (int64_t row = 0; row < rows; row++) {
    for (int64_t column = 0; column < columns; column++) {
      if (AT(row, column) != line->of_row * row + line->of_column * column + line->shift) return false;
    }
  }
#undef AT
  return true;
}

static bool read_line(const Value *value, int *budget, Line *line);

static bool line_of_range(const Node *node, int *budget, Line *line) {
  double step;
  if (!dtype_is_integer(node->outputs[0]->type.dtype) || !read_line(node_input(node, 0), budget, line)) return false;
  if (!uniform_number(node_input(node, 2), &step) || fabs(step) > 3) return false;
  line->of_column = (int64_t)step;
  return true;
}

/* A size, asked for by itself. */
static bool line_of_size(const Node *node, Line *line) {
  Type type = node_input(node, 0)->type;
  int64_t rank = type.rank, start = node_int_or(node, "start", 0), end = node_int_or(node, "end", rank);
  if (type.dtype == DTYPE_NONE || type_is_unranked(type) || start < 0 || start >= rank || end != start + 1)
    return false;
  *line = (Line){.of_size = 1, .size = type.dims[start]};
  return !dim_is_constant(line->size);
}

/* The places, from the end, of axes that are not of size 1; false when there are more than two. */
static bool long_axes(Type type, uint32_t places[2], Dim sizes[2], size_t *count) {
  *count = 0;
  for (uint32_t i = 1; i <= type.rank; i++) {
    Dim size = type.dims[type.rank - i];
    if (dim_is(size, 1)) continue;
    if (*count == 2) return false;
    places[*count] = i;
    sizes[(*count)++] = size;
  }
  return true;
}

/* Axes of size 1 are put in or left out: the others keep their order. */
static bool renamed(Type from, Type to, Line *line) {
  uint32_t before[2], after[2];
  Dim sizes[2], others[2];
  size_t count, again;
  if (!long_axes(from, before, sizes, &count) || !long_axes(to, after, others, &again) || count != again) return false;
  Line moved = {.shift = line->shift, .of_size = line->of_size, .size = line->size};
  for (size_t i = 0; i < count; i++) {
    if (before[i] > 2 || !dim_equal(sizes[i], others[i])) return false;
    int64_t factor = before[i] == 1 ? line->of_column : line->of_row;
    if (factor && after[i] > 2) return false;
    if (after[i] == 1) moved.of_column = factor;
    if (after[i] == 2) moved.of_row = factor;
  }
  *line = moved;
  return true;
}

/* The one, and the other so often; false when they are of two sizes. */
static bool add_line(Line *line, Line other, int64_t sign) {
  if (line->of_size && other.of_size && !dim_equal(line->size, other.size)) return false;
  if (!line->of_size) line->size = other.size;
  line->of_row += sign * other.of_row;
  line->of_column += sign * other.of_column;
  line->shift += sign * other.shift;
  line->of_size += sign * other.of_size;
  return true;
}

static bool line_of_sum(const Node *node, int *budget, Line *line) {
  Line other;
  if (!read_line(node_input(node, 0), budget, line) || !read_line(node_input(node, 1), budget, &other)) return false;
  return add_line(line, other, node_is(node, OP_Sub) ? -1 : 1);
}

static bool read_line(const Value *value, int *budget, Line *line) {
  const Tensor *constant = unread_constant_of(value);
  const Node *node = value->producer;
  if (constant) return line_of_constant(constant, line);
  if (!node || value->type.dtype == DTYPE_NONE || (*budget)-- <= 0) return false;
  bool known = false;
  if (node_is(node, OP_Range)) known = line_of_range(node, budget, line);
  else if (node_is(node, OP_Shape)) known = line_of_size(node, line);
  else if (node_is(node, OP_Add) || node_is(node, OP_Sub)) known = line_of_sum(node, budget, line);
  else if (node_is(node, OP_Expand) || node_is(node, OP_Cast) || node_is(node, OP_Identity))
    known = dtype_is_integer(value->type.dtype) && dtype_is_integer(node_input(node, 0)->type.dtype) &&
            read_line(node_input(node, 0), budget, line);
  else if (node_has(node, RENAMES))
    known = read_line(node_input(node, 0), budget, line) && renamed(node_input(node, 0)->type, value->type, line);
  else if (node_is(node, OP_Transpose) && value->type.rank == 2 && node_swaps_last_axes(node) &&
           read_line(node_input(node, 0), budget, line)) {
    *line = (Line){line->of_column, line->of_row, line->shift, line->of_size, line->size};
    known = true;
  }
  return known && is_near(*line);
}

/* ---- bands ---- */

static bool keeps_all(Band band) { return band.least == INT64_MIN && band.greatest == INT64_MAX; }

bool band_intersect(Band *band, Band other) {
  if (keeps_all(*band)) *band = other;
  if (keeps_all(other)) return true;
  if (!dim_equal(band->beyond, other.beyond)) return false;
  if (other.least > band->least) band->least = other.least;
  if (other.greatest < band->greatest) band->greatest = other.greatest;
  return true;
}

static bool is_comparison(Op op) {
  return op == OP_Greater || op == OP_GreaterOrEqual || op == OP_Less || op == OP_LessOrEqual || op == OP_Equal;
}

static Op opposite(Op op) {
  switch (op) {
    case OP_Greater: return OP_LessOrEqual;
    case OP_GreaterOrEqual: return OP_Less;
    case OP_Less: return OP_GreaterOrEqual;
    case OP_LessOrEqual: return OP_Greater;
    default: return OP_NONE;
  }
}

static Op swapped(Op op) {
  switch (op) {
    case OP_Greater: return OP_Less;
    case OP_GreaterOrEqual: return OP_LessOrEqual;
    case OP_Less: return OP_Greater;
    case OP_LessOrEqual: return OP_GreaterOrEqual;
    default: return op;
  }
}

static bool band_of_lines(const Node *node, bool inverted, int *budget, Band *band) {
  Line left, right;
  Op op = inverted ? opposite(node->op) : node->op;
  if (!op || !read_line(node_input(node, 0), budget, &left) || !read_line(node_input(node, 1), budget, &right))
    return false;
  Line line = left;
  if (!add_line(&line, right, -1)) return false;
  int64_t shift = -line.shift, sizes = -line.of_size;
  if (line.of_row + line.of_column != 0 || llabs(line.of_column) != 1) return false;
  /* now: column - row OP shift + sizes * size */
  if (line.of_column < 0) op = swapped(op), shift = -shift, sizes = -sizes;
  if (sizes != 0 && sizes != 1) return false;
  *band = (Band){INT64_MIN, INT64_MAX, sizes ? line.size : dim_of(0)};
  if (op == OP_Greater) band->least = shift + 1;
  if (op == OP_GreaterOrEqual || op == OP_Equal) band->least = shift;
  if (op == OP_Less) band->greatest = shift - 1;
  if (op == OP_LessOrEqual || op == OP_Equal) band->greatest = shift;
  return true;
}

static bool holds(Op op, double a, double b) {
  switch (op) {
    case OP_Greater: return a > b;
    case OP_GreaterOrEqual: return a >= b;
    case OP_Less: return a < b;
    case OP_LessOrEqual: return a <= b;
    default: return a == b;
  }
}

/* A mask that became numbers, compared with a number, is a mask again. */
static const Value *mask_of_comparison(const Node *node, bool *inverted) {
  TwoNumbers numbers;
  double number;
  for (size_t side = 0; side < 2; side++) {
    if (!uniform_number(node_input(node, 1 - side), &number) || !read_two_numbers(node_input(node, side), &numbers))
      continue;
    Op op = side ? swapped(node->op) : node->op;
    bool kept = holds(op, numbers.kept, number), put_out = holds(op, numbers.put_out, number);
    if (kept == put_out) return NULL;
    *inverted = put_out;
    return numbers.mask;
  }
  return NULL;
}

/* The columns of a row that are kept must be those of the band. */
static bool band_of_constant(const Tensor *mask, bool inverted, Band *band) {
  int64_t rows = size_from_end(mask, 2), columns = size_from_end(mask, 1);
  if (mask->dtype != DTYPE_BOOL || mask->size != (size_t)(rows * columns)) return false;
  if (rows < 2 || columns < 2) return false; /* what has one row says nothing about others */
  tensor_ready(mask);
  const char *data = mask->data;
  *band = (Band){INT64_MAX, INT64_MIN, dim_of(0)};
#define KEPT(row, column) ((data[(row) * columns + (column)] != 0) != inverted)
  for (int64_t row = 0; row < rows; row++) {
    for (int64_t column = 0; column < columns; column++) {
      if (!KEPT(row, column)) continue;
      if (column - row < band->least) band->least = column - row;
      if (column - row > band->greatest) band->greatest = column - row;
    }
  }
  for (int64_t row = 0; row < rows; row++) {
    for (int64_t column = 0; column < columns; column++) {
      if (KEPT(row, column) != (column - row >= band->least && column - row <= band->greatest)) return false;
    }
  }
#undef KEPT
  return band->least <= band->greatest;
}

bool same_from_end(Type a, Type b) {
  for (uint32_t i = 1; i <= a.rank || i <= b.rank; i++) {
    Dim one = i <= a.rank ? a.dims[a.rank - i] : dim_of(1), other = i <= b.rank ? b.dims[b.rank - i] : dim_of(1);
    if (!dim_equal(one, other)) return false;
  }
  return a.dtype != DTYPE_NONE && b.dtype != DTYPE_NONE;
}

bool spread_number(const Value *value, double *number) {
  while (value->producer && (node_is(value->producer, OP_Expand) || node_has(value->producer, RENAMES)))
    value = node_input(value->producer, 0);
  return uniform_number(value, number);
}

static bool read_mask(const Value *mask, bool inverted, int *budget, Band *band) {
  const Tensor *constant = unread_constant_of(mask);
  const Node *node = mask->producer;
  if (constant) return band_of_constant(constant, inverted, band);
  if (!node || (*budget)-- <= 0) return false;
  if (node_is(node, OP_Not)) return read_mask(node_input(node, 0), !inverted, budget, band);
  if (node_is(node, OP_And) ? !inverted : node_is(node, OP_Or) && inverted) {
    Band other;
    bool both = read_mask(node_input(node, 0), inverted, budget, band) &&
                read_mask(node_input(node, 1), inverted, budget, &other);
    return both && band_intersect(band, other);
  }
  if (node_is(node, OP_Expand)) return read_mask(node_input(node, 0), inverted, budget, band);
  if (node_has(node, RENAMES) || node_is(node, OP_Identity))
    return same_from_end(node_input(node, 0)->type, mask->type) &&
           read_mask(node_input(node, 0), inverted, budget, band);
  if (!is_comparison(node->op)) return false;
  if (band_of_lines(node, inverted, budget, band)) return true;
  bool turned;
  const Value *inner = mask_of_comparison(node, &turned);
  return inner && read_mask(inner, inverted != turned, budget, band);
}

bool read_band(const Value *mask, bool inverted, Band *band) {
  int budget = MOST_LOOKED_AT;
  return read_mask(mask, inverted, &budget, band);
}

bool band_is_causal(Band band, Dim rows, Dim columns) {
  if (!dim_equal(rows, columns) || band.greatest != 0 || !dim_is(band.beyond, 0)) return false;
  return band.least == INT64_MIN || (dim_is_constant(rows) && band.least <= 1 - rows.constant);
}

bool band_keeps_rows(Band band, Dim rows, Dim columns) {
  if (band.least > band.greatest) return false;
  if (!dim_is(band.beyond, 0)) return band.least == INT64_MIN && band.greatest >= 0; /* the first column */
  if (dim_equal(rows, columns) && band.least <= 0 && band.greatest >= 0) return true;
  if (!dim_is_constant(rows) || !dim_is_constant(columns) || columns.constant < 1) return false;
  bool of_last = band.least == INT64_MIN || band.least <= columns.constant - rows.constant;
  return of_last && band.greatest >= 0;
}

/* ---- two numbers ---- */

static double applied(Op op, double a, double b) {
  switch (op) {
    case OP_Add: return a + b;
    case OP_Sub: return a - b;
    case OP_Mul: return a * b;
    default: return a / b;
  }
}

static bool is_arithmetic(Op op) { return op == OP_Add || op == OP_Sub || op == OP_Mul || op == OP_Div; }

static bool read_numbers(const Value *value, bool may_rename, TwoNumbers *numbers);

static bool with_number(const Node *node, bool may_rename, TwoNumbers *numbers) {
  double number;
  for (size_t side = 0; side < 2; side++) {
    const Value *inner = node_input(node, side);
    if (!uniform_number(node_input(node, 1 - side), &number)) continue;
    if (!same_from_end(inner->type, node->outputs[0]->type) || !read_numbers(inner, may_rename, numbers)) return false;
    numbers->kept = side ? applied(node->op, number, numbers->kept) : applied(node->op, numbers->kept, number);
    numbers->put_out = side ? applied(node->op, number, numbers->put_out) : applied(node->op, numbers->put_out, number);
    return true;
  }
  return false;
}

static bool read_numbers(const Value *value, bool may_rename, TwoNumbers *numbers) {
  const Node *node = value->producer;
  if (!node || value->type.dtype == DTYPE_NONE || !node_input(node, 0)) return false;
  Value *first = node_input(node, 0);
  if (node_is(node, OP_Where)) {
    *numbers = (TwoNumbers){.mask = first};
    return same_from_end(first->type, value->type) && spread_number(node_input(node, 1), &numbers->kept) &&
           spread_number(node_input(node, 2), &numbers->put_out);
  }
  if (node_is(node, OP_Cast) || node_is(node, OP_Narrow)) {
    *numbers = (TwoNumbers){first, 1, 0};
    if (first->type.dtype == DTYPE_BOOL) return true;
    if (!dtype_is_float(value->type.dtype) || !dtype_is_float(first->type.dtype)) return false;
    if (!read_numbers(first, may_rename, numbers)) return false;
    if (dtype_is_half(value->type.dtype)) { /* it may hold -inf in place of a low number */
      numbers->kept = number_rounded(value->type.dtype, numbers->kept);
      numbers->put_out = number_rounded(value->type.dtype, numbers->put_out);
    }
    return true;
  }
  if (node_has(node, RENAMES))
    return (may_rename || same_from_end(first->type, value->type)) && read_numbers(first, may_rename, numbers);
  return is_arithmetic(node->op) && dtype_is_float(value->type.dtype) && with_number(node, may_rename, numbers);
}

bool read_two_numbers(const Value *value, TwoNumbers *numbers) { return read_numbers(value, false, numbers); }

bool read_renamed_numbers(const Value *value, TwoNumbers *numbers) { return read_numbers(value, true, numbers); }

Value *numbers_before(const Value *value) {
  const Node *node = value->producer;
  double number;
  return node_input(node, is_arithmetic(node->op) && !uniform_number(node_input(node, 1), &number));
}
