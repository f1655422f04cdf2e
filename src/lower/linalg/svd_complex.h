/* Kogbetliantz' rotations for complex matrices. */
#ifndef J2O_LOWER_LINALG_SVD_COMPLEX_H
#define J2O_LOWER_LINALG_SVD_COMPLEX_H

#include "lower/linalg/jacobi.h"

/* One round for all pairs of rows and columns of the core, which changes to left core right*; gives the turned ones. */
Value *complex_turn(Lowering *l, const Seats *seats, Parts *core, Parts *left, Parts *right);
/* z over its size; one for numbers too small to have a phase. */
Parts phase_of(Lowering *l, Parts z, Value *size);

#endif
