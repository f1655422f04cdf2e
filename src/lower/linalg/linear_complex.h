/* The factorisations and solvers on complex matrices. Each lowers the current equation, whose matrices are complex. */
#ifndef J2O_LOWER_LINALG_LINEAR_COMPLEX_H
#define J2O_LOWER_LINALG_LINEAR_COMPLEX_H

#include "lower/lower.h"

void lower_complex_cholesky(Lowering *l);
void lower_complex_triangular_solve(Lowering *l);
void lower_complex_lu(Lowering *l);
void lower_complex_geqrf(Lowering *l);
void lower_complex_householder_product(Lowering *l);
void lower_complex_ormqr(Lowering *l);

#endif
