/* Solving with a triangular matrix, for the factorisations that need it. */
#ifndef J2O_LOWER_LINALG_LINEAR_TRIANGULAR_H
#define J2O_LOWER_LINALG_LINEAR_TRIANGULAR_H

#include "lower/lower.h"

typedef struct TriangularSystem {
  Value *matrix;      /* [..., n, n]; the other triangle is not looked at */
  bool left;          /* matrix x = b; else x matrix = b */
  bool lower;         /* which triangle */
  bool unit_diagonal; /* the diagonal is not looked at either: it is one */
} TriangularSystem;

Value *triangular_solution(Lowering *l, TriangularSystem system, Value *b);

#endif
