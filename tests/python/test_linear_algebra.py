"""Factorisations and solvers: the numbers JAX gives, and the equations that define them."""

from __future__ import annotations

import inspect
import itertools
from functools import partial

import jax
import jax.numpy as jnp
import jax.scipy.linalg
import jax.scipy.sparse.linalg
import jax.scipy.stats
import numpy as np
import pytest
from export_check import all_nodes, check_export, op_types
from jax.lax import linalg

from jax2onnx import to_onnx

LOOSE = {"rtol": 2e-4, "atol": 2e-5}  # where single precision is lost to the condition of the matrix


def matrices(*shape, dtype=np.float32):
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(dtype)


def positive_definite(*shape, dtype=np.float32):
    root = matrices(*shape, dtype=dtype)
    return (root @ np.swapaxes(root, -1, -2) + shape[-1] * np.eye(shape[-1])).astype(dtype)


def regular(*shape, dtype=np.float32):
    return (matrices(*shape, dtype=dtype) + 3 * np.eye(shape[-1])).astype(dtype)


@pytest.mark.parametrize("shape", [(1, 1), (2, 2), (5, 5), (3, 4, 4), (2, 1, 3, 3), (0, 0), (2, 0, 0), (0, 3, 3)])
def test_cholesky(shape):
    check_export(linalg.cholesky, [positive_definite(*shape)])


def test_cholesky_in_double_precision():
    check_export(jnp.linalg.cholesky, [positive_definite(6, 6, dtype=np.float64)], x64=True)


def test_cholesky_of_a_symbolic_batch():
    more = [[positive_definite(1, 4, 4)], [positive_definite(5, 4, 4)]]
    check_export(jnp.linalg.cholesky, [positive_definite(2, 4, 4)], specs=[("B", 4, 4)], more_args=more)


def test_cholesky_reads_the_lower_triangle_only():
    matrix = positive_definite(4, 4)
    matrix[0, 3] = 100
    check_export(lambda a: linalg.cholesky(a, symmetrize_input=False), [matrix])


def test_cholesky_of_what_is_not_positive_definite_is_nan():
    good = positive_definite(3, 3)
    late = np.diag([1, 2, -1]).astype(np.float32)
    check_export(linalg.cholesky, [np.stack([good, -good, 0 * good, late, np.nan * good, good])])


@pytest.mark.parametrize("size", [1, 2, 5])
def test_cholesky_update(size):
    factor = np.linalg.cholesky(positive_definite(size, size)).T.copy()
    vector = matrices(size)
    vector[size // 2] = 0
    check_export(linalg.cholesky_update, [factor, vector])
    check_export(linalg.cholesky_update, [factor * 0, vector])


TRIANGULAR = list(itertools.product([False, True], repeat=4))


@pytest.mark.parametrize(("left", "lower", "transpose", "unit"), TRIANGULAR)
def test_triangular_solve(left, lower, transpose, unit):
    def solve(a, b):
        return linalg.triangular_solve(
            a, b, left_side=left, lower=lower, transpose_a=transpose, conjugate_a=transpose, unit_diagonal=unit
        )

    check_export(solve, [regular(2, 4, 4), matrices(2, 4, 3) if left else matrices(2, 3, 4)], **LOOSE)


@pytest.mark.parametrize(("a", "b"), [((1, 1), (1, 4)), ((0, 0), (0, 2)), ((3, 3), (3, 0)), ((0, 2, 2), (0, 2, 2))])
def test_triangular_solve_of_edge_sizes(a, b):
    check_export(lambda a, b: linalg.triangular_solve(a, b, left_side=True, lower=True), [regular(*a), matrices(*b)])


def test_triangular_solve_leaves_rows_before_a_zero_alone():
    matrix = np.tril(regular(4, 4))
    matrix[2, 2] = 0
    solve = linalg.triangular_solve
    model = check_export(lambda a, b: solve(a, b, left_side=True, lower=True)[:2], [matrix, matrices(4, 2)], **LOOSE)
    assert "Loop" not in op_types(model)


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
def test_triangular_solve_of_other_types(dtype):
    a, b = regular(3, 3, dtype=jnp.dtype(dtype)), matrices(3, 2, dtype=jnp.dtype(dtype))
    solve = linalg.triangular_solve

    def reference(a, b):  # JAX's own result has the rounding errors of the narrow type
        wide = jnp.float64 if dtype == "float64" else jnp.float32
        return solve(a.astype(wide), b.astype(wide), left_side=True, lower=True).astype(a.dtype)

    check_export(
        lambda a, b: solve(a, b, left_side=True, lower=True), [a, b], x64=dtype == "float64", reference=reference
    )


def test_triangular_solve_of_a_symbolic_batch():
    check_export(
        lambda a, b: jax.scipy.linalg.solve_triangular(a, b, lower=True),
        [regular(2, 3, 3), matrices(2, 3, 2)],
        specs=[("B", 3, 3), ("B", 3, 2)],
        more_args=[[regular(4, 3, 3), matrices(4, 3, 2)]],
        **LOOSE,
    )


RECTANGLES = [(4, 4), (5, 3), (3, 5), (2, 4, 3), (1, 1), (1, 4), (4, 1), (0, 3), (3, 0), (0, 2, 2)]


@pytest.mark.parametrize("shape", RECTANGLES)
def test_qr(shape):
    check_export(lambda a: (linalg.qr(a, full_matrices=False), linalg.qr(a)), [matrices(*shape)])


@pytest.mark.parametrize("shape", RECTANGLES)
def test_qr_with_pivoting(shape):
    check_export(lambda a: linalg.qr(a, full_matrices=False, pivoting=True), [matrices(*shape)])


def test_qr_obeys_its_equations():
    def errors(a):
        q, r = jnp.linalg.qr(a)
        pivoted_q, pivoted_r, order = jax.scipy.linalg.qr(a, mode="economic", pivoting=True)
        identity = jnp.eye(q.shape[-1])
        return q @ r - a, q.T @ q - identity, jnp.tril(r, -1), pivoted_q @ pivoted_r - a[:, order]

    check_export(errors, [matrices(9, 6)], reference=lambda a: [0 * error for error in errors(a)], atol=5e-6)


def test_qr_of_columns_with_nothing_to_reflect():
    zeros = np.zeros((4, 3), np.float32)
    triangular = np.triu(matrices(4, 3))
    dependent = np.ones((4, 3), np.float32) * [1, 2, 0]
    raw = lambda a: jnp.linalg.qr(a, mode="raw")  # noqa: E731
    check_export(raw, [np.stack([zeros, triangular, -triangular])])
    check_export(lambda a: linalg.qr(a)[1], [dependent.astype(np.float32)], atol=2e-6)


def test_qr_takes_the_sign_of_a_negative_zero():
    matrix = np.array([[[-0.0, 1], [2, 3]], [[0.0, 1], [2, 3]]], np.float32)
    check_export(linalg.qr, [matrix])
    check_export(linalg.qr, [matrix.astype(np.complex64)])


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_qr_neither_overflows_nor_vanishes(scale):
    check_export(lambda a: linalg.qr(a * scale)[1] / scale, [matrices(4, 4)])


def test_qr_picks_the_first_of_equal_columns():
    check_export(lambda a: linalg.qr(a, pivoting=True), [np.eye(4, dtype=np.float32)[:, [2, 0, 3, 1]]])
    check_export(lambda a: linalg.qr(a, pivoting=True)[2], [np.diag([1, 3, 2, 3]).astype(np.float32)])


def test_qr_in_double_precision():
    check_export(lambda a: (linalg.qr(a), linalg.qr(a, pivoting=True)), [matrices(2, 5, 3, dtype=np.float64)], x64=True)


def test_qr_of_a_symbolic_batch():
    check_export(
        lambda a: (linalg.qr(a), linalg.qr(a, pivoting=True, full_matrices=False)),
        [matrices(2, 4, 3)],
        specs=[("B", 4, 3)],
        more_args=[[matrices(1, 4, 3)], [matrices(3, 4, 3)]],
    )


def test_columns_that_are_to_stay_in_front():
    from jax._src.lax.linalg import geqp3

    chosen = np.array([[0, 1, 0, 0, 1], [1, 0, 1, 1, 1], [0, 0, 0, 0, 0]], np.int32)
    check_export(geqp3, [matrices(3, 4, 5), chosen])
    check_export(geqp3, [matrices(3, 6, 5), chosen])


@pytest.mark.parametrize(("left", "transpose"), list(itertools.product([False, True], repeat=2)))
def test_products_with_the_orthogonal_factor(left, transpose):
    def multiply(a, c):
        stored, taus = jnp.linalg.qr(a, mode="raw")
        return linalg.ormqr(stored.mT, taus, c, left=left, transpose=transpose)

    check_export(multiply, [matrices(2, 4, 3), matrices(2, 4, 5) if left else matrices(2, 5, 4)])


def test_householder_product():
    stored, taus = matrices(2, 5, 3), matrices(2, 2)
    check_export(linalg.householder_product, [stored, taus])
    check_export(linalg.householder_product, [stored, taus[:, :0]])


@pytest.mark.parametrize("shape", RECTANGLES)
def test_lu(shape):
    check_export(linalg.lu, [matrices(*shape)])


def test_lu_with_zeros_and_equal_elements():
    singular = np.array([[0, 0, 1], [0, 0, 2], [0, 3, 1]])
    equal = np.array([[1, -1, 1], [1, 1, 2], [-1, 1, 1]])
    check_export(linalg.lu, [np.stack([singular, equal, np.ones((3, 3)), np.zeros((3, 3))]).astype(np.float32)])


def test_lu_obeys_its_equation():
    def error(a):
        factors, pivots, order = linalg.lu(a)
        product = (jnp.tril(factors, -1) + jnp.eye(6)) @ jnp.triu(factors)
        return product - a[order], linalg.lu_pivots_to_permutation(pivots, 6) - order

    check_export(error, [matrices(6, 6)], reference=lambda a: [0 * part for part in error(a)], atol=5e-6)


def test_lu_in_double_precision_and_of_a_symbolic_batch():
    check_export(linalg.lu, [matrices(2, 4, 5, dtype=np.float64)], x64=True)
    more = [[matrices(1, 4, 4)], [matrices(3, 4, 4)]]
    check_export(linalg.lu, [matrices(2, 4, 4)], specs=[("B", 4, 4)], more_args=more, **LOOSE)


def test_pivots_to_permutation():
    pivots = np.array([[2, 3, 2], [0, 1, 4]], np.int32)
    check_export(lambda p: linalg.lu_pivots_to_permutation(p, 5), [pivots])
    check_export(lambda p: linalg.lu_pivots_to_permutation(p, 3), [pivots[:, :0]])


@pytest.mark.parametrize("shape", [(1, 2), (2, 1), (6, 3), (2, 5, 2), (0, 2), (3, 0), (0, 3, 2)])
def test_tridiagonal_solve(shape):
    diagonals = [matrices(*shape[:-1]) + offset for offset in (0, 0.1, 0.2)]
    check_export(linalg.tridiagonal_solve, [*diagonals, matrices(*shape)], **LOOSE)


def test_tridiagonal_solve_exchanges_rows():
    lower, diagonal, upper = np.array([[9, 1, 1, 2], [0, 0, 3, 0], [1, 1, 1, np.nan]], np.float32)
    check_export(linalg.tridiagonal_solve, [lower, diagonal, upper, matrices(4, 2)])


def test_tridiagonal_solve_of_a_singular_matrix_is_nan():
    diagonals = np.array([[[0, 1, 1], [1, 1, 1], [1, 1, 0]], [[0, 1, 1], [2, 3, 2], [1, 1, 0]]], np.float32)
    diagonals[0, 1] = [0, 0, 1]
    diagonals[0, 0] = 0
    check_export(lambda d, b: linalg.tridiagonal_solve(d[:, 0], d[:, 1], d[:, 2], b), [diagonals, matrices(2, 3, 1)])


@pytest.mark.parametrize("size", [256, 270])
@pytest.mark.parametrize("left", [False, True])
def test_large_matrices_by_blocks(size, left):
    def fn(a, b):
        solve = partial(linalg.triangular_solve, a, b, left_side=left)
        return (solve(lower=True), solve(lower=False), linalg.cholesky(a @ a.T)) + (
            (linalg.lu(a[:, :-3]), linalg.lu(a[:-3])) if left else (linalg.qr(a), jnp.linalg.qr(a, mode="raw"))
        )

    rows = np.abs(matrices(size, size, dtype=np.float64)).sum(0)
    matrix = matrices(size, size, dtype=np.float64) + np.diag(rows)
    right = matrices(size, 2, dtype=np.float64)
    model = check_export(fn, [matrix, right if left else right.T.copy()], x64=True)
    assert "blocks" in {attribute.g.name for node in all_nodes(model) for attribute in node.attribute}


def test_blocks_of_a_symbolic_batch():
    batches = [regular(count, 260, 260, dtype=np.float64) + 40 * np.eye(260) for count in (1, 2)]
    check_export(jnp.linalg.inv, [batches[0]], specs=[("B", 260, 260)], more_args=[[batches[1]]], x64=True)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("factor", [linalg.cholesky, linalg.lu, partial(linalg.qr, pivoting=True)])
def test_narrow_types_are_computed_in_single_precision(factor, dtype):
    def reference(a):
        wide = factor(a.astype(jnp.float32))
        return jax.tree.map(lambda x: x.astype(dtype) if jnp.issubdtype(x.dtype, jnp.floating) else x, wide)

    matrix = positive_definite(3, 3).astype(jnp.dtype(dtype))
    try:
        jax.make_jaxpr(factor)(matrix)
    except TypeError:
        pytest.skip("this JAX factors single and double precision only")
    check_export(factor, [matrix], reference=reference)


needs_perturbation = pytest.mark.skipif(
    "perturb_singular" not in inspect.signature(linalg.tridiagonal_solve).parameters,
    reason="JAX has no such option yet",
)


@needs_perturbation
@pytest.mark.parametrize("shape", [(1, 2), (2, 1), (6, 3), (2, 5, 2), (0, 3, 2)])
def test_tridiagonal_solve_with_perturbation(shape):
    diagonals = [matrices(*shape[:-1]) + offset for offset in (0, 0.1, 0.2)]
    solve = partial(linalg.tridiagonal_solve, perturb_singular=True)
    check_export(solve, [*diagonals, matrices(*shape)], **LOOSE)


@needs_perturbation
def test_tridiagonal_solve_perturbs_singular_matrices():
    diagonals = np.array([[[0, 1, 1], [1, 1, 2], [1, 2, 0]], [[0, 1, 0], [1, 1, 2], [1, 0, 0]]], np.float32)
    solve = partial(linalg.tridiagonal_solve, perturb_singular=True)
    check_export(lambda d, b: solve(d[:, 0], d[:, 1], d[:, 2], b), [diagonals, matrices(2, 3, 1)])
    check_export(lambda b: solve(*jnp.zeros((3, 3)), b), [0 * matrices(3, 2)])
    diagonals = np.array([[0, 1, 1], [0, 0, 1], [0, 1, 0]], np.float32)
    check_export(lambda *system: jnp.abs(solve(*system)), [*diagonals, matrices(3, 2)])


@needs_perturbation
def test_eigenvectors_of_a_tridiagonal_matrix():
    def eigenpairs(diagonal, beside):
        values, vectors = jax.scipy.linalg.eigh_tridiagonal(diagonal, beside, eigvals_only=False)
        return values, jnp.abs(vectors)

    check_export(eigenpairs, [matrices(5), matrices(6)[:4]], **LOOSE)


def test_symmetric_product():
    check_export(
        lambda a, c: linalg.symmetric_product(a, c, alpha=2.0, beta=0.5, symmetrize_output=True),
        [matrices(3, 4), positive_definite(3, 3)],
    )


@pytest.mark.parametrize(
    "fn",
    [
        lambda a: jnp.linalg.solve(a, a[..., 0:2]),
        jnp.linalg.inv,
        jnp.linalg.det,
        jnp.linalg.slogdet,
        lambda a: jnp.linalg.matrix_power(a, -3),
        jax.scipy.linalg.lu,
        jax.scipy.linalg.lu_factor,
        lambda a: jax.scipy.linalg.lu_solve(jax.scipy.linalg.lu_factor(a), a[..., 0], trans=1),
        lambda a: jax.scipy.linalg.cho_solve(jax.scipy.linalg.cho_factor(a @ a.mT), a),
        lambda a: jax.scipy.linalg.cho_solve(jax.scipy.linalg.cho_factor(a @ a.mT, lower=True), a),
        lambda a: jax.scipy.linalg.solve(a @ a.mT, a, assume_a="pos"),
        lambda a: jax.scipy.linalg.solve_triangular(a, a[..., 1:], trans=1, unit_diagonal=True),
        jax.scipy.linalg.expm,
        jax.scipy.linalg.det,
    ],
)
def test_functions_of_square_matrices(fn):
    check_export(fn, [regular(4, 4)], **LOOSE)
    if fn not in (jax.scipy.linalg.lu_factor,):
        check_export(jax.vmap(fn), [regular(3, 4, 4)], **LOOSE)


def test_functions_of_more_arguments():
    check_export(jnp.linalg.solve, [regular(2, 3, 3), matrices(2, 3, 1)], **LOOSE)
    check_export(lambda a: jnp.linalg.tensorinv(a, ind=1), [regular(6, 6).reshape(6, 2, 3)], **LOOSE)
    check_export(jnp.linalg.tensorsolve, [regular(6, 6).reshape(2, 3, 6), matrices(2, 3)], **LOOSE)
    check_export(lambda a, b: jax.scipy.linalg.block_diag(a, b), [matrices(2, 3), matrices(1, 2)])
    check_export(jax.scipy.linalg.toeplitz, [matrices(4), matrices(3)])
    check_export(lambda a, c: jax.scipy.linalg.qr_multiply(a, c)[0], [matrices(4, 3), matrices(5, 4)], **LOOSE)


@pytest.mark.parametrize(
    "fn",
    [
        lambda a: jnp.sum(jnp.sin(jnp.linalg.cholesky(a @ a.mT))),
        lambda a: jnp.sum(jnp.sin(jnp.linalg.solve(a, a[:, :2]))),
        lambda a: jnp.sum(jnp.sin(jnp.linalg.inv(a))),
        lambda a: jnp.linalg.slogdet(a)[1],
        lambda a: jnp.sum(jnp.sin(jnp.linalg.qr(a)[0])),
        lambda a: jnp.sum(jnp.sin(linalg.lu(a)[0])),
    ],
)
def test_gradients(fn):
    check_export(jax.grad(fn), [regular(4, 4)], **LOOSE)


def test_inside_a_scan_and_a_condition():
    def fn(a, many):
        def step(carry, matrix):
            solution = jnp.linalg.solve(matrix, carry)
            return jax.lax.cond(solution[0] > 0, lambda: solution, lambda: jnp.linalg.qr(matrix)[1] @ carry), solution

        return jax.jit(lambda x: jax.lax.scan(step, x, many))(a)

    check_export(fn, [matrices(3), regular(4, 3, 3)], **LOOSE)


def test_sizes_of_everyday_stay_small():
    model = to_onnx(linalg.lu, [matrices(64, 64)])
    assert len(list(all_nodes(model))) < 45
    model = to_onnx(jnp.linalg.qr, [matrices(64, 32)])
    assert len(list(all_nodes(model))) < 65
    model = to_onnx(jnp.linalg.solve, [matrices(64, 64), matrices(64, 2)])
    assert len([op for op in op_types(model) if op in ("Loop", "Scan")]) == 3


@pytest.mark.parametrize("opset", [17, 18, 21, 26])
def test_every_opset(opset):
    check_export(lambda a: (jnp.linalg.inv(a), jnp.linalg.qr(a)), [regular(3, 3)], opset=opset, **LOOSE)
    check_export(lambda a: linalg.qr(jnp.linalg.cholesky(a), pivoting=True), [positive_definite(3, 3)], opset=opset)


def complex_matrices(*shape, dtype=np.complex64):
    return (matrices(*shape, dtype=np.float64) + 1j * matrices(*shape, 1, dtype=np.float64)[..., 0]).astype(dtype)


@pytest.mark.parametrize("shape", [(1, 1), (4, 4), (2, 3, 3), (0, 0)])
def test_complex_cholesky(shape):
    root = complex_matrices(*shape)
    matrix = root @ np.swapaxes(root.conj(), -1, -2) + 3 * np.eye(shape[-1], dtype=np.complex64)
    check_export(linalg.cholesky, [matrix], **LOOSE)
    check_export(linalg.cholesky, [-matrix])


@pytest.mark.parametrize(("left", "lower", "transpose", "conjugate"), TRIANGULAR)
def test_complex_triangular_solve(left, lower, transpose, conjugate):
    def solve(a, b):
        return linalg.triangular_solve(
            a, b, left_side=left, lower=lower, transpose_a=transpose, conjugate_a=conjugate, unit_diagonal=left != lower
        )

    matrix = complex_matrices(2, 4, 4) + 3 * np.eye(4, dtype=np.complex64)
    check_export(solve, [matrix, complex_matrices(2, 4, 3) if left else complex_matrices(2, 3, 4)], **LOOSE)


@pytest.mark.parametrize("shape", RECTANGLES)
def test_complex_lu_and_qr(shape):
    check_export(lambda a: (linalg.lu(a), linalg.qr(a, full_matrices=False), linalg.qr(a)), [complex_matrices(*shape)])


@pytest.mark.parametrize(("left", "transpose"), list(itertools.product([False, True], repeat=2)))
def test_complex_products_with_the_unitary_factor(left, transpose):
    def multiply(a, c):
        stored, taus = jnp.linalg.qr(a, mode="raw")
        return linalg.ormqr(stored.mT, taus, c, left=left, transpose=transpose)

    check_export(
        multiply, [complex_matrices(2, 4, 3), complex_matrices(2, 4, 5) if left else complex_matrices(2, 5, 4)]
    )


@pytest.mark.parametrize("fn", [jnp.linalg.inv, jnp.linalg.slogdet, lambda a: jnp.linalg.solve(a, a[..., :2])])
def test_functions_of_complex_matrices(fn):
    matrix = complex_matrices(4, 4, dtype=np.complex128) + 3 * np.eye(4)
    check_export(fn, [matrix.astype(np.complex64)], **LOOSE)
    check_export(fn, [matrix], x64=True)


@pytest.mark.parametrize("shape", RECTANGLES)
def test_complex_qr_with_pivoting(shape):
    check_export(lambda a: linalg.qr(a, full_matrices=False, pivoting=True), [complex_matrices(*shape)])


@pytest.mark.parametrize("shape", [(1, 2), (6, 3), (2, 5, 2), (0, 2)])
def test_complex_tridiagonal_solve(shape):
    diagonals = [complex_matrices(*shape[:-1]) + offset for offset in (0, 0.1, 0.2)]
    check_export(linalg.tridiagonal_solve, [*diagonals, complex_matrices(*shape)], **LOOSE)


def test_complex_tridiagonal_solve_of_a_singular_matrix():
    diagonals = np.array([[0, 1j, 1], [0, 0, 1], [0, 1, 0]], np.complex64)
    right = complex_matrices(3, 2)
    check_export(linalg.tridiagonal_solve, [*diagonals, right])
    if "perturb_singular" in inspect.signature(linalg.tridiagonal_solve).parameters:
        solve = partial(linalg.tridiagonal_solve, perturb_singular=True)
        check_export(lambda *system: jnp.abs(solve(*system)), [*diagonals, right])


def test_iterative_solvers():
    gmres = partial(jax.scipy.sparse.linalg.gmres, solve_method="incremental")
    for solver, matrix in [(jax.scipy.sparse.linalg.cg, positive_definite(4, 4)), (gmres, regular(4, 4))]:
        check_export(lambda a, b, solver=solver: solver(lambda x: a @ x, b)[0], [matrix, matrices(4)], **LOOSE)


def test_gaussian_processes_of_any_number_of_points():
    def log_likelihood_and_prediction(x, y):
        covariance = jnp.exp(-((x[:, None] - x[None]) ** 2)) + 0.1 * jnp.eye(x.shape[0])
        weights = jax.scipy.linalg.cho_solve(jax.scipy.linalg.cho_factor(covariance), y)
        return jax.scipy.stats.multivariate_normal.logpdf(y, jnp.zeros_like(y), covariance), covariance @ weights

    more = [[matrices(size), matrices(size) + 1] for size in (1, 9)]
    args = [matrices(5), matrices(5) + 1]
    check_export(log_likelihood_and_prediction, args, specs=[("N",), ("N",)], more_args=more, **LOOSE)
