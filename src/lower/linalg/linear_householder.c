/* Orthogonal factors as products of Householder reflections: geqrf, householder_product, ormqr. JAX defines qr by
 * them.
 *
 * Conventions are LAPACK's, so that signs agree: what the vector of a reflection has below its leading one is stored in
 * place of the zeros that it made.
 */
#include "lower/complex/complex.h"
#include "lower/elementwise/arithmetic.h"
#include "lower/linalg/linear_complex.h"
#include "lower/linalg/matrices.h"
#include "lower/linalg/reflections.h"

static void lower_geqrf(Lowering *l) {
  if (input_is_complex(l, 0)) {
    lower_complex_geqrf(l);
    return;
  }
  Value *matrix = matrix_input(l, 0);
  Type taus = output_type(l, 1);
  if (is_empty(matrix->type)) {
    bind_as(l, 0, matrix);
    bind(l, 1, filled(l, taus, tensor_scalar(l, taus.dtype, 0)));
    return;
  }
  Triangularized factors = triangularized(l, matrix, taus.dims[taus.rank - 1]);
  bind_as(l, 0, both_triangles(l, factors.vectors, factors.upper));
  bind_as(l, 1, from_row(l, factors.taus));
}

static void lower_householder_product(Lowering *l) {
  if (input_is_complex(l, 0)) {
    lower_complex_householder_product(l);
    return;
  }
  Value *stored = matrix_input(l, 0), *taus = matrix_input(l, 1);
  Value *ones = identity_matrix(l, stored->type.dtype, size_along(stored, ROWS), size_along(stored, COLUMNS));
  ones = expand_to(l, ones, stored->type.dims, stored->type.rank);
  bind_as(l, 0, reflected_by_all(l, stored, taus, ones, true, true));
}

static void lower_ormqr(Lowering *l) {
  if (input_is_complex(l, 0)) {
    lower_complex_ormqr(l);
    return;
  }
  bool left = param_bool_or(l->equation, "left", true), transpose = param_bool_or(l->equation, "transpose", false);
  Value *stored = matrix_input(l, 0), *taus = matrix_input(l, 1), *matrix = matrix_input(l, 2);
  bind_as(l, 0, reflected_by_all(l, stored, taus, matrix, left, left != transpose));
}

/* clang-format off */
const Plugin householder_plugins[] = {
    PLUGIN("geqrf", lower_geqrf, OP_NONE, TAKES_COMPLEX),
    PLUGIN("householder_product", lower_householder_product, OP_NONE, TAKES_COMPLEX),
    PLUGIN("ormqr", lower_ormqr, OP_NONE, TAKES_COMPLEX),
    {0},
};
/* clang-format on */
