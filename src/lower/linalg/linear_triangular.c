/* triangular_solve: an unknown row (or column) a step, whose share is taken off the right-hand sides that remain. */
#include "lower/linalg/linear_triangular.h"

#include "lower/complex/complex.h"
#include "lower/control/loops.h"
#include "lower/elementwise/arithmetic.h"
#include "lower/linalg/blocks.h"
#include "lower/linalg/linear_complex.h"
#include "lower/linalg/matrices.h"

/* What the other triangle of the matrix holds reaches only rows of b that are solved already. */
static Value *solved_one_by_one(Lowering *l, const TriangularSystem *system, Value *matrix, Value *b) {
  int64_t unknowns = system->left ? ROWS : COLUMNS, across = system->left ? COLUMNS : ROWS;
  bool backwards = system->lower != system->left;
  Loop *loop = loop_begin(l, "triangular_solve", size_along(matrix, ROWS), backwards, &b, 1);
  Value *rest = loop->carried[0];
  Value *factors = slice_of(l, matrix, across, loop->index);
  Value *solved = slice_of(l, rest, unknowns, loop->index);
  if (!system->unit_diagonal) solved = EMIT_MATH(l, OP_Div, solved, slice_of(l, factors, unknowns, loop->index));
  loop_collect(loop, solved, unknowns);
  return EMIT_LOOP(loop, EMIT_MATH(l, OP_Sub, rest, EMIT_MATH(l, OP_Mul, factors, solved)))[1];
}

static BlockWork solved_block(Lowering *l, Value *const *carried, const Block *block, const void *data) {
  const TriangularSystem *system = data;
  int64_t unknowns = system->left ? ROWS : COLUMNS, across = system->left ? COLUMNS : ROWS;
  Value *factors = part_of(l, system->matrix, across, block), *own = part_of(l, factors, unknowns, block);
  Value *solved = solved_one_by_one(l, system, own, part_of(l, carried[0], unknowns, block));
  Value *share = system->left ? matrix_product(l, factors, solved) : matrix_product(l, solved, factors);
  return (BlockWork){{EMIT_MATH(l, OP_Sub, carried[0], share)}, {solved}};
}

Value *triangular_solution(Lowering *l, TriangularSystem system, Value *b) {
  ByBlocks plan = {.work = solved_block,
                   .data = &system,
                   .size = size_along(system.matrix, ROWS),
                   .backwards = system.lower != system.left,
                   .carried_count = 1,
                   .piece_count = 1,
                   .axes = {system.left ? ROWS : COLUMNS}};
  return by_blocks(l, &plan, &b).pieces[0];
}

/* One right-hand side of a few rows is a vector, which needs no axis of its own for its only column. */
static bool is_short_vector(const TriangularSystem *system, const Value *b) {
  enum { MOST_ROWS = 8 };
  Dim rows = size_along(b, ROWS);
  return system->left && b->type.rank == 2 && system->matrix->type.rank == 2 && dim_is(size_along(b, COLUMNS), 1) &&
         dim_is_constant(rows) && rows.constant <= MOST_ROWS;
}

static Value *vector_element(Lowering *l, Value *vector, int64_t index) {
  Value *place = constant_ints(l, &index, 1);
  return EMIT(l, OP_Gather, type_with(place->type, vector->type.dtype), vector, place);
}

static Value *matrix_column(Lowering *l, Value *matrix, Type vector, int64_t index) {
  Value *column = EMIT(l, OP_Gather, vector, matrix, constant_integer(l, DTYPE_INT64, index));
  node_set_int(column->producer, "axis", 1);
  return column;
}

/* The quotient of whole vectors takes one element to be picked, that of elements two. */
static Value *vector_solution(Lowering *l, const TriangularSystem *system, Value *b) {
  int64_t rows = size_along(b, ROWS).constant;
  Value *rest = from_column(l, b), **solved = arena_new_array(&l->context->arena, (size_t)rows, Value *);
  Type type = rest->type;
  for (int64_t step = 0; step < rows; step++) {
    int64_t place = system->lower ? step : rows - 1 - step;
    bool last = step + 1 == rows;
    Value *factors = last && system->unit_diagonal ? NULL : matrix_column(l, system->matrix, type, place);
    Value *quotients = system->unit_diagonal ? rest : EMIT_MATH(l, OP_Div, rest, factors);
    solved[place] = vector_element(l, quotients, place);
    if (!last) rest = EMIT_MATH(l, OP_Sub, rest, EMIT_MATH(l, OP_Mul, factors, solved[place]));
  }
  return as_column(l, rows == 1 ? solved[0] : concat_at(l, solved, (size_t)rows, 0, type));
}

static void lower_triangular_solve(Lowering *l) {
  if (input_is_complex(l, 0)) {
    lower_complex_triangular_solve(l);
    return;
  }
  bool transpose = param_bool_or(l->equation, "transpose_a", false);
  Value *a = matrix_input(l, 0), *b = matrix_input(l, 1);
  if (is_empty(b->type)) {
    bind_as(l, 0, b);
    return;
  }
  TriangularSystem system = {.matrix = transpose ? transposed(l, a) : a,
                             .left = param_bool_or(l->equation, "left_side", false),
                             .lower = param_bool_or(l->equation, "lower", false) != transpose,
                             .unit_diagonal = param_bool_or(l->equation, "unit_diagonal", false)};
  bool is_short = is_short_vector(&system, b);
  bind_as(l, 0, is_short ? vector_solution(l, &system, b) : triangular_solution(l, system, b));
}

/* clang-format off */
const Plugin triangular_plugins[] = {
    PLUGIN("triangular_solve", lower_triangular_solve, OP_NONE, TAKES_COMPLEX),
    {0},
};
/* clang-format on */
