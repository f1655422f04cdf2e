/* Kogbetliantz' rotations for complex matrices.
 *
 * Of each pair the one with the larger element on the diagonal leads. A unitary rotation of the rows makes the block of
 * the pair triangular, phases make it real, and real rotations of rows and columns make it diagonal. All three are
 * applied at once, as one pair of complex numbers for each row.
 */
#include "lower/linalg/svd_complex.h"
#include "lower/elementwise/arithmetic.h"
#include "lower/linalg/matrices.h"

/* Elements are of the order of one: what is smaller than this has no square, and no phase. */
static Value *tiny_like(Lowering *l, Value *value) {
  return number_like(l, value, value->type.dtype == DTYPE_FLOAT64 ? 1e-140 : 1e-15);
}

Parts phase_of(Lowering *l, Parts z, Value *size) {
  Value *small = EMIT_MATH(l, OP_Less, size, tiny_like(l, size));
  Value *zero = number_like(l, size, 0), *one = number_like(l, size, 1);
  return (Parts){EMIT_WHERE(l, small, one, EMIT_MATH(l, OP_Div, z.re, size)),
                 EMIT_WHERE(l, small, zero, EMIT_MATH(l, OP_Div, z.im, size))};
}

/* The block [[a, b], [c, d]] of each pair, the leader first; both rivals have the same. */
typedef struct Block {
  Parts a, b, c, d;
  Value *leads; /* bool: is this row the leader? */
  Value *turns; /* bool: is there anything to rotate? */
} Block;

static Parts part_entries(Lowering *l, Parts core, Value *rows, Value *columns) {
  return (Parts){entries_at(l, core.re, rows, columns), entries_at(l, core.im, rows, columns)};
}

static Value *is_large(Lowering *l, Parts z, double tolerance) {
  Value *size = EMIT_MATH(l, OP_Add, EMIT_MATH(l, OP_Abs, z.re), EMIT_MATH(l, OP_Abs, z.im));
  return EMIT_MATH(l, OP_Greater, size, number_like(l, size, tolerance));
}

static Block block_of(Lowering *l, const Seats *seats, Parts core) {
  Value *own = seats->from, *rival = seats->rival;
  Parts a = part_entries(l, core, own, own), b = part_entries(l, core, own, rival);
  Parts c = part_entries(l, core, rival, own), d = part_entries(l, core, rival, rival);
  DType dtype = core.re->type.dtype;
  Value *first = parts_square(l, a), *second = parts_square(l, d);
  Value *tie = EMIT_MATH(l, OP_And, EMIT_MATH(l, OP_Equal, first, second), is_first(l, seats));
  Value *leader = EMIT_MATH(l, OP_Or, EMIT_MATH(l, OP_Greater, first, second), tie);
  double tolerance = spacing_of(dtype) / 4;
  Value *turns = EMIT_MATH(l, OP_Or, is_large(l, b, tolerance), is_large(l, c, tolerance));
  return (Block){parts_where(l, leader, a, d),
                 parts_where(l, leader, b, c),
                 parts_where(l, leader, c, b),
                 parts_where(l, leader, d, a),
                 leader,
                 EMIT_MATH(l, OP_And, turns, has_rival(l, seats))};
}

/* What a row and its rival are multiplied by. */
typedef struct Weights {
  Parts own, rival;
} Weights;

/* [[first, second], [third, fourth]] for the leader and its rival; the identity where nothing turns. */
static Weights weights_for(Lowering *l, Block block, Parts first, Parts second, Parts third, Parts fourth) {
  Value *zero = number_like(l, first.re, 0), *one = number_like(l, first.re, 1);
  Parts own = parts_where(l, block.leads, first, fourth), rival = parts_where(l, block.leads, second, third);
  return (Weights){parts_where(l, block.turns, own, (Parts){one, zero}),
                   parts_where(l, block.turns, rival, (Parts){zero, zero})};
}

/* The real rotations that make [[f, g], [0, h]] diagonal, none of them negative. */
typedef struct RealTurns {
  Value *left_cosine, *left_sine, *right_cosine, *right_sine;
} RealTurns;

static RealTurns triangle_turns(Lowering *l, Value *f, Value *g, Value *h) {
  Angle sum = half_angle(l, NULL, g, EMIT_MATH(l, OP_Sub, f, h), 0);
  Angle difference = half_angle(l, NULL, EMIT_MATH(l, OP_Neg, g), EMIT_MATH(l, OP_Add, f, h), 0);
  Value *cosines = EMIT_MATH(l, OP_Mul, sum.cosine, difference.cosine);
  Value *sines = EMIT_MATH(l, OP_Mul, sum.sine, difference.sine);
  Value *first = EMIT_MATH(l, OP_Mul, sum.sine, difference.cosine);
  Value *second = EMIT_MATH(l, OP_Mul, sum.cosine, difference.sine);
  return (RealTurns){EMIT_MATH(l, OP_Sub, cosines, sines), EMIT_MATH(l, OP_Add, first, second),
                     EMIT_MATH(l, OP_Add, cosines, sines), EMIT_MATH(l, OP_Sub, first, second)};
}

static void weights_of(Lowering *l, Block block, Weights *left, Weights *right) {
  Value *length = EMIT_MATH(l, OP_Sqrt, EMIT_MATH(l, OP_Add, parts_square(l, block.a), parts_square(l, block.c)));
  Value *none = EMIT_MATH(l, OP_Less, length, tiny_like(l, length));
  Value *zero = number_like(l, length, 0), *one = number_like(l, length, 1);
  Value *inverse = EMIT_MATH(l, OP_Reciprocal, EMIT_WHERE(l, none, one, length));
  Parts cosine = parts_where(l, none, (Parts){one, zero}, parts_scaled(l, parts_conjugate(l, block.a), inverse));
  Parts sine = parts_where(l, none, (Parts){zero, zero}, parts_scaled(l, parts_conjugate(l, block.c), inverse));
  Parts back_cosine = parts_conjugate(l, cosine),
        back_sine = parts_scaled(l, parts_conjugate(l, sine), number_like(l, length, -1));
  Parts g = parts_sum(l, EMIT_PRODUCT(l, cosine, block.b), EMIT_PRODUCT(l, sine, block.d));
  Parts h = parts_sum(l, EMIT_PRODUCT(l, back_sine, block.b), EMIT_PRODUCT(l, back_cosine, block.d));
  Value *g_size = EMIT_MATH(l, OP_Sqrt, parts_square(l, g)), *h_size = EMIT_MATH(l, OP_Sqrt, parts_square(l, h));
  Parts right_phase = phase_of(l, g, g_size);
  Parts left_phase = EMIT_PRODUCT(l, right_phase, parts_conjugate(l, phase_of(l, h, h_size)));
  RealTurns turns = triangle_turns(l, length, g_size, h_size);
  Value *minus = EMIT_MATH(l, OP_Neg, turns.left_sine);
  Parts third = EMIT_PRODUCT(l, left_phase, back_sine), fourth = EMIT_PRODUCT(l, left_phase, back_cosine);
  *left = weights_for(l, block,
                      parts_sum(l, parts_scaled(l, cosine, turns.left_cosine), parts_scaled(l, third, turns.left_sine)),
                      parts_sum(l, parts_scaled(l, sine, turns.left_cosine), parts_scaled(l, fourth, turns.left_sine)),
                      parts_sum(l, parts_scaled(l, cosine, minus), parts_scaled(l, third, turns.left_cosine)),
                      parts_sum(l, parts_scaled(l, sine, minus), parts_scaled(l, fourth, turns.left_cosine)));
  *right = weights_for(l, block, (Parts){turns.right_cosine, zero}, parts_scaled(l, right_phase, turns.right_sine),
                       (Parts){EMIT_MATH(l, OP_Neg, turns.right_sine), zero},
                       parts_scaled(l, right_phase, turns.right_cosine));
}

Value *complex_turn(Lowering *l, const Seats *seats, Parts *core, Parts *left, Parts *right) {
  Block block = block_of(l, seats, *core);
  Weights rows, columns;
  weights_of(l, block, &rows, &columns);
  Parts half = conjugate_transposed(l, rotated_rows(l, seats, *core, rows.own, rows.rival));
  Parts both = conjugate_transposed(l, rotated_rows(l, seats, half, columns.own, columns.rival));
  *core = parts_scaled(l, both, rivals_mask(l, seats, core->re->type.dtype, true));
  *left = rotated_rows(l, seats, *left, rows.own, rows.rival);
  *right = rotated_rows(l, seats, *right, columns.own, columns.rival);
  return block.turns;
}
