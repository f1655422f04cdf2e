"""Eigenvalues, singular values and what is made of them, for real matrices."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import pytest
from eigen_check import (
    FLOATS,
    RANDOM,
    Exported,
    check_eigh,
    check_schur,
    check_svd,
    dtype_of,
    near,
    norm,
    same_numbers,  # noqa: F401
    square_matrices,
    symmetric,
)
from export_check import check_export, op_types

from jax2onnx import UnsupportedError, to_onnx


@pytest.mark.parametrize("x64", FLOATS)
@pytest.mark.parametrize("size", [1, 2, 3, 4, 7, 16])
def test_eigh_of_every_kind_of_matrix(size, x64):
    matrices = symmetric(square_matrices(size, dtype_of(x64)))
    exported = Exported(jnp.linalg.eigh, [matrices], x64)
    check_eigh(matrices, *exported(matrices))


def test_eigh_of_a_larger_matrix_in_few_nodes():
    matrix = symmetric(RANDOM.standard_normal((1, 48, 48)).astype(np.float32))
    exported = Exported(jnp.linalg.eigh, [matrix])
    check_eigh(matrix, *exported(matrix))
    assert len(op_types(exported.model)) < 90


@pytest.mark.parametrize("size", [17, 18, 25])
def test_in_a_sweep_each_row_meets_each_other_once(size):
    """The tournament of Jacobi's method, read from the model: where rows and their rivals are gathered from.

    Fewer rows are turned by products.
    """
    model = to_onnx(jnp.linalg.eigvalsh, [(size, size)])
    body = next(node for node in model.graph.node if node.op_type == "Loop").attribute[0].g
    constants = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in body.initializer}
    diagonal = body.input[3].name
    gathered = [
        constants[node.input[1]] for node in body.node if node.op_type == "Gather" and node.input[0] == diagonal
    ]
    rows, meetings = np.arange(size), np.zeros((size, size), int)
    own, rival = gathered
    for _ in range(size if size % 2 else size - 1):
        meetings[rows[own], rows[rival]] += 1
        rows = rows[own]
    np.testing.assert_array_equal(meetings, np.ones((size, size), int) - (0 if size % 2 else np.eye(size, dtype=int)))


def test_eigh_with_symbolic_batch():
    exported = Exported(jnp.linalg.eigh, [("B", 3, 3)])
    for batch in (0, 1, 4):
        matrices = symmetric(RANDOM.standard_normal((batch, 3, 3)).astype(np.float32))
        check_eigh(matrices, *exported(matrices))


def test_eigh_of_what_is_not_finite_is_nan_and_leaves_the_others_alone():
    exported = Exported(jnp.linalg.eigh, [("B", 3, 3)])
    matrices = symmetric(RANDOM.standard_normal((4, 3, 3)).astype(np.float32))
    matrices[1, 2, 1] = matrices[1, 1, 2] = np.nan
    matrices[2, 0, 0] = np.inf
    values, vectors = exported(matrices)
    assert np.isnan(values[1:3]).all() and np.isnan(vectors[1:3]).all()
    check_eigh(matrices[::3], values[::3], vectors[::3])


@pytest.mark.parametrize("lower", [True, False])
def test_eigh_looks_at_one_triangle_only(lower):
    matrix = RANDOM.standard_normal((4, 4)).astype(np.float32)
    kept = np.tril(matrix) if lower else np.triu(matrix)
    whole = kept + kept.T - np.diag(np.diag(kept))
    matrix[np.triu_indices(4, 1) if lower else np.tril_indices(4, -1)] = np.nan
    exported = Exported(lambda x: jax.lax.linalg.eigh(x, lower=lower, symmetrize_input=False), [matrix])
    vectors, values = exported(matrix)
    check_eigh(whole[None], values[None], vectors[None])


def test_eigenvalues_alone_carry_no_vectors():
    matrix = symmetric(RANDOM.standard_normal((2, 5, 5)).astype(np.float32))
    model = check_export(jnp.linalg.eigvalsh, [matrix], atol=1e-5)
    whole = check_export(lambda x: jnp.abs(jnp.linalg.eigh(x)[1]), [matrix], atol=1e-4)
    assert len(op_types(model)) + 5 <= len(op_types(whole))


@pytest.mark.parametrize("shape", [(0, 0), (2, 0, 0), (0, 3, 3), (1, 1)])
def test_eigh_of_nothing(shape):
    check_export(jnp.linalg.eigh, [np.full(shape, 2.5, np.float32)])


def test_part_of_the_eigenvalues():
    matrix = symmetric(RANDOM.standard_normal((5, 5)).astype(np.float32))
    fn = lambda x: jax.lax.linalg.eigh(x, subset_by_index=(1, 3))  # noqa: E731
    vectors, values = Exported(fn, [matrix])(matrix)
    near(values, np.linalg.eigvalsh(matrix)[1:3], 5, norm(matrix))
    assert vectors.shape == (5, 2)
    near(matrix @ vectors, vectors * values, 5, norm(matrix))


def test_gradient_through_eigh():
    matrix = np.diag(np.arange(4.0)).astype(np.float32) + RANDOM.standard_normal((4, 4)).astype(np.float32) / 4

    def loss(x):
        values, vectors = jnp.linalg.eigh(x)
        return jnp.sum(values**3) + jnp.sum((vectors**2) @ jnp.arange(4.0))

    check_export(jax.grad(loss), [matrix], rtol=1e-3, atol=1e-3)


def test_eigh_in_vmap_jit_and_scan():
    matrices = symmetric(RANDOM.standard_normal((3, 4, 4)).astype(np.float32))

    def rebuilt(x):
        values, vectors = jnp.linalg.eigh(x)
        return (vectors * jnp.exp(values)) @ vectors.T

    check_export(jax.jit(jax.vmap(rebuilt)), [matrices], rtol=1e-4, atol=1e-4)
    check_export(
        lambda x: jax.lax.scan(lambda c, m: (c + rebuilt(m), 0), jnp.zeros((4, 4)), x)[0],
        [matrices],
        rtol=1e-4,
        atol=1e-4,
    )


@pytest.mark.parametrize("opset", [17, 26])
def test_eigh_at_other_opsets(opset):
    matrix = symmetric(RANDOM.standard_normal((2, 3, 3)).astype(np.float32))
    check_eigh(matrix, *Exported(jnp.linalg.eigh, [matrix], opset=opset)(matrix))


@pytest.mark.parametrize("name", ["eigh", "svd", "schur"])
def test_symbolic_sizes(name):
    """One model for matrices of any size."""
    fn, check = {
        "eigh": (jnp.linalg.eigh, check_eigh),
        "svd": (jnp.linalg.svd, check_svd),
        "schur": (jax.lax.linalg.schur, check_schur),
    }[name]
    exported = Exported(fn, [("B", "N", "N")])
    for batch, size in ((3, 4), (1, 1), (2, 2), (2, 7)):
        matrices = RANDOM.standard_normal((batch, size, size)).astype(np.float32)
        matrices = symmetric(matrices) if name == "eigh" else matrices
        check(matrices, *exported(matrices))


def test_tridiagonal_of_a_symbolic_size():
    matrices = [RANDOM.standard_normal((size, size)) for size in (4, 2, 7)]
    check_export(
        jax.lax.linalg.tridiagonal, matrices[:1], specs=[("N", "N")], more_args=[[m] for m in matrices[1:]], x64=True
    )


def test_a_matrix_that_may_be_tall_or_wide_is_refused():
    with pytest.raises(
        UnsupportedError, match="more rows or more columns must be known during the export, but it is N by 3"
    ):
        to_onnx(jnp.linalg.svd, [("N", 3)])


@pytest.mark.parametrize("x64", FLOATS)
@pytest.mark.parametrize("size", [1, 2, 3, 6, 15])
def test_svd_of_every_kind_of_matrix(size, x64):
    matrices = square_matrices(size, dtype_of(x64))
    check_svd(matrices, *Exported(jnp.linalg.svd, [matrices], x64)(matrices))


@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (1, 4), (4, 1), (7, 2)])
def test_svd_of_tall_and_wide_matrices(shape, full):
    matrices = RANDOM.standard_normal((3, *shape)).astype(np.float32)
    matrices[1, -1] = matrices[1, 0]
    matrices[2] = 0
    left, values, right = Exported(lambda x: jnp.linalg.svd(x, full_matrices=full), [matrices])(matrices)
    rows, columns = shape
    assert left.shape == (3, rows, rows if full else min(shape))
    assert right.shape == (3, columns if full else min(shape), columns)
    check_svd(matrices, left, values, right)


def test_svd_with_symbolic_batch():
    exported = Exported(jnp.linalg.svd, [("B", 2, 4, 3)])
    for batch in (0, 1, 3):
        matrices = RANDOM.standard_normal((batch, 2, 4, 3)).astype(np.float32)
        left, values, right = exported(matrices)
        assert left.shape == (batch, 2, 4, 4) and values.shape == (batch, 2, 3) and right.shape == (batch, 2, 3, 3)
        for each in zip(matrices, left, values, right, strict=True):
            check_svd(*each)


@pytest.mark.parametrize("shape", [(4, 4), (4, 3)])
def test_svd_of_what_is_not_finite_is_nan(shape):
    matrices = RANDOM.standard_normal((3, *shape)).astype(np.float32)
    matrices[0, 3, 1], matrices[1, 0, 2] = np.nan, -np.inf
    results = Exported(jnp.linalg.svd, [matrices])(matrices)
    assert all(np.isnan(result[:2]).all() for result in results)
    check_svd(matrices[2:], *(result[2:] for result in results))


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0), (0, 2, 3)])
@pytest.mark.parametrize("full", [True, False])
def test_svd_of_nothing(shape, full):
    check_export(lambda x: jnp.linalg.svd(x, full_matrices=full), [np.zeros(shape, np.float32)])


def test_part_of_the_singular_values():
    matrix = RANDOM.standard_normal((5, 4)).astype(np.float32)
    fn = lambda x: jax.lax.linalg.svd(x, full_matrices=False, subset_by_index=(0, 2))  # noqa: E731
    left, values, right = Exported(fn, [matrix])(matrix)
    expected = np.linalg.svd(matrix, full_matrices=False)
    near(left * values @ right, (expected[0] * expected[1])[:, :2] @ expected[2][:2], 5, norm(matrix))


FUNCTIONS = {
    "svdvals": jnp.linalg.svdvals,
    "pinv": jnp.linalg.pinv,
    "cond": jnp.linalg.cond,
    "norm_2": lambda x: jnp.linalg.norm(x, ord=2),
    "norm_-2": lambda x: jnp.linalg.norm(x, ord=-2),
    "norm_nuc": lambda x: jnp.linalg.norm(x, ord="nuc"),
    "matrix_rank": jnp.linalg.matrix_rank,
    "rank_one": lambda x: jnp.linalg.matrix_rank(x[:, :1] * x[:1]),
    "lstsq": lambda x: jnp.linalg.lstsq(x, x[:, :2] + 1)[0],
    "null_space": lambda x: (lambda v: v.T @ v)(jnp.linalg.svd(x)[2][3:]),
    "polar_svd": lambda x: jax.scipy.linalg.polar(x, method="svd"),
    "gradient": jax.grad(lambda x: jnp.sum(jnp.linalg.svdvals(x) ** 3)),
    "vmap": jax.vmap(lambda x: jnp.linalg.svd(x[:, None] * x + jnp.eye(4))[1]),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_the_svd(name):
    matrix = RANDOM.standard_normal((5, 4)).astype(np.float32)
    check_export(FUNCTIONS[name], [matrix], rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("x64", FLOATS)
@pytest.mark.parametrize("shape", [(1, 1), (2, 2), (5, 5), (2, 4, 4), (0, 3, 3)])
def test_hessenberg(shape, x64):
    matrix = RANDOM.standard_normal(shape).astype(dtype_of(x64))
    bound = {"rtol": 1e-4, "atol": 1e-4} if not x64 else {}
    check_export(jax.lax.linalg.hessenberg, [matrix], x64=x64, **bound)


def test_hessenberg_with_its_basis():
    check_export(
        lambda x: jax.scipy.linalg.hessenberg(x, calc_q=True),
        [RANDOM.standard_normal((6, 6)).astype(np.float32)],
        rtol=1e-4,
        atol=1e-4,
    )
    check_export(
        jax.lax.linalg.hessenberg,
        [RANDOM.standard_normal((2, 3, 3))],
        specs=[("B", 3, 3)],
        more_args=[[RANDOM.standard_normal((0, 3, 3))]],
        x64=True,
    )


def test_hessenberg_of_a_symbolic_size():
    matrices = [RANDOM.standard_normal((size, size)) for size in (4, 2, 7)]
    check_export(
        jax.lax.linalg.hessenberg, matrices[:1], specs=[("N", "N")], more_args=[[m] for m in matrices[1:]], x64=True
    )


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("shape", [(1, 1), (2, 2), (5, 5), (2, 4, 4), (0, 3, 3)])
def test_tridiagonal(shape, lower):
    matrix = RANDOM.standard_normal(shape)
    check_export(lambda x: jax.lax.linalg.tridiagonal(x, lower=lower), [matrix], x64=True)
    check_export(
        lambda x: jax.lax.linalg.tridiagonal(x, lower=lower), [matrix.astype(np.float32)], rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize("x64", FLOATS)
@pytest.mark.parametrize("size", [1, 2, 3, 4, 9])
def test_schur_of_every_kind_of_matrix(size, x64):
    matrices = square_matrices(size, dtype_of(x64))
    exported = Exported(jax.lax.linalg.schur, [matrices], x64)
    check_schur(matrices, *exported(matrices))


def test_schur_of_a_larger_matrix():
    matrix = RANDOM.standard_normal((1, 32, 32)).astype(np.float32)
    form, basis = Exported(jax.lax.linalg.schur, [matrix])(matrix)
    check_schur(matrix, form, basis)
    near(np.sort(np.linalg.eigvals(form[0]).real), np.sort(np.linalg.eigvals(matrix[0]).real), 32, norm(matrix))


def test_schur_with_symbolic_batch_and_what_is_not_finite():
    exported = Exported(jax.lax.linalg.schur, [("B", 4, 4)])
    for batch in (0, 1, 5):
        matrices = RANDOM.standard_normal((batch, 4, 4)).astype(np.float32)
        matrices[3:, 1, 2] = np.nan
        matrices[4:, 1, 2] = np.inf
        form, basis = exported(matrices)
        check_schur(matrices[:3], form[:3], basis[:3])
        assert np.isnan(form[3:]).all() and np.isnan(basis[3:]).all()


def test_schur_of_scipy():
    matrix = symmetric(RANDOM.standard_normal((5, 5)).astype(np.float32))
    check_export(lambda x: jnp.sort(jnp.diag(jax.scipy.linalg.schur(x)[0])), [matrix], atol=1e-5)
    model = check_export(
        lambda x: jnp.sort(jnp.diag(jax.lax.linalg.schur(x, compute_schur_vectors=False)[0])), [matrix], atol=1e-5
    )
    assert op_types(model).count("Loop") == 2  # the reflections of five rows are written out


@pytest.mark.parametrize("shape", [(0, 0), (0, 3, 3), (1, 1)])
def test_schur_of_nothing(shape):
    check_export(jax.lax.linalg.schur, [np.full(shape, 2, np.float32)])


def test_schur_in_an_order_of_python_is_refused():
    def fn(x):
        return jax.lax.linalg.schur(x, sort_eig_vals=True, select_callable=lambda value: value > 0)

    with pytest.raises(UnsupportedError, match="Python function"):
        to_onnx(fn, [np.eye(3, dtype=np.float32)])
