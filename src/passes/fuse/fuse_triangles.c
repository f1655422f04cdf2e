/* Trilu: what JAX keeps of a matrix by comparing the positions of rows and columns, known at export or counted at run
 * time. Measured with ONNX Runtime, 8 x 512 x 512: 291 us against 958 for Where. */
#include "passes/analysis/positions.h"
#include "passes/pattern.h"

enum { MATRIX, MASK };

/* What the mask is true for: column <= row + offset, or column >= row + offset. */
typedef struct Triangle {
  bool upper;
  int64_t offset;
} Triangle;

/* Are the elements those of the triangle? */
static bool is_triangle(const char *data, int64_t rows, int64_t columns, Triangle triangle) {
  for (int64_t row = 0; row < rows; row++) {
    for (int64_t column = 0; column < columns; column++) {
      int64_t edge = row + triangle.offset;
      bool inside = triangle.upper ? column >= edge : column <= edge;
      if ((data[row * columns + column] != 0) != inside) return false;
    }
  }
  return true;
}

/* The first column, or where it is all alike the first row, tells the only offset that a triangle can have. */
static int64_t edge_of(const char *data, int64_t rows, int64_t columns, bool upper) {
  int64_t row = 0, kept = 0;
  while (row < rows && (data[row * columns] != 0) == upper) row++;
  if (row > 0 && row < rows) return upper ? 1 - row : -row;
  for (int64_t column = 0; column < columns; column++) kept += data[column] != 0;
  return upper ? columns - kept : kept - 1;
}

static bool read_constant(const Tensor *mask, Type matrix, Triangle *triangle) {
  if (mask->dtype != DTYPE_BOOL || mask->rank < 2 || mask->rank > matrix.rank) return false;
  int64_t rows = mask->dims[mask->rank - 2], columns = mask->dims[mask->rank - 1];
  if (!dim_is(matrix.dims[matrix.rank - 2], rows) || !dim_is(matrix.dims[matrix.rank - 1], columns)) return false;
  if (rows < 2 || columns < 2 || mask->size != (size_t)(rows * columns)) return false;
  for (int upper = 0; upper < 2; upper++) {
    *triangle = (Triangle){upper, edge_of(mask->data, rows, columns, upper)};
    if (is_triangle(mask->data, rows, columns, *triangle)) return true;
  }
  return false;
}

/* Counted positions with a number added to all of them. */
static bool read_positions(const Value *value, uint32_t from_end, Dim size, int64_t *shift) {
  double number;
  *shift = 0;
  for (const Node *node; (node = value->producer);) {
    if (node_is(node, OP_Expand)) {
      value = node_input(node, 0);
    } else if (node_is(node, OP_Add) && uniform_number(node_input(node, 1), &number)) {
      *shift += (int64_t)number;
      value = node_input(node, 0);
    } else {
      break;
    }
  }
  return counts_positions(value, from_end, size);
}

/* row >= column and its kin. */
static bool read_comparison(const Node *node, Type matrix, Triangle *triangle) {
  static const struct {
    Op op;
    Triangle triangle; /* when rows are the first operand */
  } forms[] = {
      {OP_GreaterOrEqual, {false, 0}}, {OP_Greater, {false, -1}}, {OP_LessOrEqual, {true, 0}}, {OP_Less, {true, 1}}};
  Dim rows = matrix.dims[matrix.rank - 2], columns = matrix.dims[matrix.rank - 1];
  for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
    if (!node_is(node, forms[i].op)) continue;
    int64_t of_rows, of_columns;
    if (!read_positions(node_input(node, 0), 2, rows, &of_rows)) return false;
    if (!read_positions(node_input(node, 1), 1, columns, &of_columns)) return false;
    *triangle = forms[i].triangle;
    triangle->offset += of_rows - of_columns;
    return true;
  }
  return false;
}

/* What is left of the triangle is the other one, up to the edge. */
static Triangle opposite(Triangle triangle) {
  return (Triangle){!triangle.upper, triangle.upper ? triangle.offset - 1 : triangle.offset + 1};
}

static bool fuse(Match *match, bool inverted) {
  const Value *mask = match->values[MASK];
  Type type = match->values[MATRIX]->type;
  Triangle triangle;
  if (!match_keeps_type(match) || type.rank < 2) return false;
  if (constant_of(mask) ? !read_constant(constant_of(mask), type, &triangle)
                        : !mask->producer || !read_comparison(mask->producer, type, &triangle))
    return false;
  if (inverted) triangle = opposite(triangle);
  Arena *arena = &match->rewriter->context->arena;
  Tensor *offset = arena_new(arena, Tensor);
  *offset = (Tensor){.dtype = DTYPE_INT64, .size = sizeof triangle.offset};
  offset->data = arena_copy(arena, &triangle.offset, sizeof triangle.offset);
  Value *inputs[] = {match->values[MATRIX], triangle.offset ? match_constant(match, offset) : NULL};
  Node *node = match_emit(match, OP_Trilu, inputs, inputs[1] ? 2 : 1, REWRITE_EMITTER(match->rewriter));
  node_set_int(node, "upper", triangle.upper);
  return true;
}

static bool fuse_kept(Match *match) { return fuse(match, false); }

static bool fuse_put_out(Match *match) { return fuse(match, true); }

static const FusionRule rules[] = {
    {OP(Where, ANY(MASK), ANY(MATRIX), NUMBER(0)), OP_Trilu, fuse_kept},
    {OP(Where, ANY(MASK), NUMBER(0), ANY(MATRIX)), OP_Trilu, fuse_put_out},
};

bool fuse_triangles(Model *model) { return fuse_patterns(model, __func__, rules, sizeof rules / sizeof *rules); }
