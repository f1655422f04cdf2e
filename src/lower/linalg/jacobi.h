/* Jacobi's method: rotations of pairs of rows, many at once.
 *
 * The rows of a matrix sit at the seats of a tournament: in each round every row is rotated with its rival's, then all
 * but one move on by a seat, so that after a sweep of rounds each has met each. A round is one step of a loop, with the
 * same few nodes for any size. A column [..., count, 1] holds a number for each row; the two rows of a pair have
 * numbers of opposite sign where they are turned in opposite directions.
 */
#ifndef J2O_LOWER_LINALG_JACOBI_H
#define J2O_LOWER_LINALG_JACOBI_H

#include "lower/linalg/complex_matrices.h"

typedef struct Seats {
  Dim count;
  Dim rounds;   /* of a sweep */
  Value *from;  /* int64[count]: the row that sits here after the round sat there before */
  Value *rival; /* and its rival there; the seat itself for the one without a rival */
  Value *place; /* where its rival sits after the round */
} Seats;

enum { MOST_SWEEPS = 60 }; /* ten are common; a matrix of equal singular values takes thirty */

Seats seats_for(Lowering *l, Dim count);

/* int64[size]: 0, 1, … */
Value *counted(Lowering *l, Dim size);
/* matrix[rows[i], columns[i]] as a column. */
Value *entries_at(Lowering *l, Value *matrix, Value *rows, Value *columns);
Value *main_diagonal(Lowering *l, Value *matrix);
/* matrix[rows], as many as there are. */
Value *rows_at(Lowering *l, Value *matrix, Value *rows);
/* A matrix that is one but zero where rivals sit after the round, and on the diagonal unless that is kept. */
Value *rivals_mask(Lowering *l, const Seats *seats, DType dtype, bool keep_diagonal);
/* bool columns: has the seat a rival; is its row the first of the pair? */
Value *has_rival(Lowering *l, const Seats *seats);
Value *is_first(Lowering *l, const Seats *seats);

typedef struct Angle {
  Value *tangent;
  Value *cosine, *sine;
} Angle;

/* Half the angle whose tangent is opposite / adjacent, at most a quarter of a turn, in columns. An opposite side up to
 * the tolerance counts as zero. Two rivals have the same opposite side and adjacent sides of opposite signs, also if
 * those are zero; when no seats are given, a right angle is positive. */
Angle half_angle(Lowering *l, const Seats *seats, Value *opposite, Value *adjacent, double tolerance);
/* The same for rivals with the same adjacent side, and opposite sides of opposite signs. */
Angle half_angle_of_same(Lowering *l, const Seats *seats, Value *opposite, Value *adjacent, double tolerance);

/* One round: each row times the cosine, plus its rival's times the sine, and on to the next seat. Real numbers have no
 * imaginary parts. */
Parts rotated_rows(Lowering *l, const Seats *seats, Parts matrix, Parts cosine, Parts sine);

/* Is an element further from zero than that? */
Value *has_larger(Lowering *l, Parts matrix, double limit);

/* The number of rounds in a row without a turn, after this one; and whether that is less than a sweep. */
Value *quiet_rounds(Lowering *l, Value *before, Value *turned);
Value *is_unfinished(Lowering *l, const Seats *seats, Value *quiet);

/* A power of two [..., 1, 1] near the largest element of each matrix, so that the quotients are of the order of one;
 * NaN where an element is not finite. */
Value *matrix_scale(Lowering *l, Parts matrix);
Parts over_scale(Lowering *l, Parts matrix, Value *scale);
/* Each matrix, or all NaN where its scale is. */
Parts spoiled_by(Lowering *l, Parts matrix, Value *scale);

/* A column in ascending or descending order; *places receives where each number stood, for rows_in_order. */
Value *in_order(Lowering *l, Value *column, bool descending, Value **places);
Parts rows_in_order(Lowering *l, Parts matrix, Value *places);

/* Which of the values, in order, the equation asks for. */
typedef struct Subset {
  bool whole;
  int64_t start, limit;
} Subset;

Subset read_subset(Lowering *l, Dim size);
/* The rows that belong to them. */
Value *rows_of_subset(Lowering *l, Value *matrix, Subset subset);
/* Elements start up to limit along an axis. */
Value *part_along(Lowering *l, Value *matrix, int64_t axis, int64_t start, int64_t limit);

/* The relative spacing of the element type's numbers. */
double spacing_of(DType dtype);

#endif
