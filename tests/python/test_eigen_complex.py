"""Decompositions with complex numbers: eig of any matrix, and eigh, svd and schur of complex ones."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from eigen_check import (
    FLOATS,
    RANDOM,
    Exported,
    adjoint,
    check_eig,
    check_eigh,
    check_schur,
    check_svd,
    complex_dtype_of,
    dtype_of,
    joined,
    near,
    norm,
    same_numbers,  # noqa: F401
    square_matrices,
    symmetric,
)
from export_check import check_export, op_types


def random_complex(shape, dtype=np.complex64):
    return (RANDOM.standard_normal(shape) + 1j * RANDOM.standard_normal(shape)).astype(dtype)


def sorted_values(values):
    """In the order of real parts, those that are equal up to rounding in the order of imaginary parts."""
    return np.array(sorted(values, key=lambda value: (np.round(value.real, 3), value.imag)))


@pytest.mark.parametrize("x64", FLOATS)
@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_eig_of_every_kind_of_matrix(size, x64):
    matrices = square_matrices(size, dtype_of(x64))
    exported = Exported(jax.lax.linalg.eig, [matrices], x64)
    check_eig(matrices, *map(joined, exported(matrices)))


@pytest.mark.parametrize("x64", FLOATS)
@pytest.mark.parametrize("size", [1, 2, 5])
def test_eig_of_every_kind_of_complex_matrix(size, x64):
    matrices = square_matrices(size, complex_dtype_of(x64))
    exported = Exported(jax.lax.linalg.eig, [matrices], x64)
    check_eig(matrices, *map(joined, exported(matrices)))


@pytest.mark.parametrize("dtype", [np.float32, np.complex64])
def test_eigenvalues_are_those_of_jax(dtype):
    matrix = RANDOM.standard_normal((6, 6)).astype(dtype)
    (values,) = map(joined, Exported(jnp.linalg.eigvals, [matrix])(matrix))
    near(sorted_values(values), sorted_values(np.linalg.eigvals(matrix)), 6, 4 * norm(matrix))


def test_real_eigenvalues_are_real_and_complex_ones_come_in_pairs():
    triangle = np.triu(RANDOM.standard_normal((5, 5))).astype(np.float32)
    turn = np.linalg.qr(RANDOM.standard_normal((5, 5)))[0].astype(np.float32)
    triangle[1, 1] = triangle[2, 2]
    triangle[1, 2], triangle[2, 1] = 2, -3
    matrix = turn @ triangle @ turn.T
    values, vectors = map(joined, Exported(jnp.linalg.eig, [matrix])(matrix))
    real = values.imag == 0
    assert real.sum() == 3 and not vectors[:, real].imag.any()
    first, second = values[~real]
    assert first == np.conj(second) and first.imag > 0


def test_eigenvalues_alone_need_no_vectors():
    matrix = RANDOM.standard_normal((4, 4)).astype(np.float32)
    alone, all_of_it = Exported(jnp.linalg.eigvals, [matrix]), Exported(jnp.linalg.eig, [matrix])
    assert len(op_types(alone.model)) + 50 < len(op_types(all_of_it.model))


def test_eig_with_symbolic_batch_and_what_is_not_finite():
    exported = Exported(jax.lax.linalg.eig, [("B", 3, 3)])
    for batch in (0, 1, 4):
        matrices = RANDOM.standard_normal((batch, 3, 3)).astype(np.float32)
        matrices[2:, 0, 1] = np.nan
        matrices[3:, 0, 1] = -np.inf
        results = [joined(result) for result in exported(matrices)]
        check_eig(matrices[:2], *(result[:2] for result in results))
        assert all(np.isnan(result[2:].real).all() and np.isnan(result[2:].imag).all() for result in results)


def test_eig_of_symbolic_sizes():
    exported = Exported(jax.lax.linalg.eig, [("B", "N", "N")])
    for batch, size in ((3, 4), (1, 1), (2, 2), (2, 7)):
        matrices = RANDOM.standard_normal((batch, size, size)).astype(np.float32)
        check_eig(matrices, *map(joined, exported(matrices)))


@pytest.mark.parametrize("decompose", [jnp.linalg.eigh, jnp.linalg.svd, jax.lax.linalg.schur])
def test_complex_matrices_of_symbolic_sizes(decompose):
    def rebuilt(x):
        if decompose is jnp.linalg.eigh:
            values, vectors = decompose(x)
            return (vectors * values) @ vectors.conj().T
        if decompose is jnp.linalg.svd:
            left, values, right = decompose(x)
            return (left * values) @ right
        form, basis = decompose(x)
        return basis @ form @ basis.conj().T

    exported = Exported(lambda x, y: rebuilt(x + 1j * (y - y.T) + x.T), [("N", "N")] * 2)
    for size in (4, 1, 2, 5):
        x, y = RANDOM.standard_normal((2, size, size)).astype(np.float32)
        whole = (x + 1j * (y - y.T) + x.T).astype(np.complex64)
        near(joined(exported(x, y)[0]), whole, size, norm(whole))


@pytest.mark.parametrize("shape", [(0, 0), (0, 3, 3), (1, 1)])
@pytest.mark.parametrize("dtype", [np.float32, np.complex64])
def test_eig_of_nothing(shape, dtype):
    check_export(jax.lax.linalg.eig, [np.full(shape, 2, dtype)])


@pytest.mark.parametrize("x64", FLOATS)
@pytest.mark.parametrize("size", [1, 2, 3, 8])
def test_eigh_of_every_kind_of_hermitian_matrix(size, x64):
    matrices = symmetric(square_matrices(size, complex_dtype_of(x64)))
    values, vectors = Exported(jnp.linalg.eigh, [matrices], x64)(matrices)
    check_eigh(matrices, values, joined(vectors))


@pytest.mark.parametrize("lower", [True, False])
def test_eigh_looks_at_one_triangle_of_a_complex_matrix(lower):
    matrix = random_complex((4, 4))
    kept = np.tril(matrix, -1) if lower else np.triu(matrix, 1)
    whole = kept + adjoint(kept) + np.diag(np.diag(matrix).real)
    exported = Exported(lambda x: jax.lax.linalg.eigh(x, lower=lower, symmetrize_input=False), [matrix])
    vectors, values = exported(matrix)
    check_eigh(whole[None], values[None], joined(vectors)[None])


@pytest.mark.parametrize("x64", FLOATS)
@pytest.mark.parametrize("size", [1, 2, 3, 8])
def test_svd_of_every_kind_of_complex_matrix(size, x64):
    matrices = square_matrices(size, complex_dtype_of(x64))
    left, values, right = Exported(jnp.linalg.svd, [matrices], x64)(matrices)
    check_svd(matrices, joined(left), values, joined(right))


@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (4, 1)])
def test_svd_of_tall_and_wide_complex_matrices(shape, full):
    matrices = random_complex((2, *shape))
    matrices[1, -1] = matrices[1, 0] * 1j
    left, values, right = Exported(lambda x: jnp.linalg.svd(x, full_matrices=full), [matrices])(matrices)
    assert left.shape == (2, shape[0], shape[0] if full else min(shape), 2)
    check_svd(matrices, joined(left), values, joined(right))


@pytest.mark.parametrize("shape", [(0, 3), (3, 0)])
def test_svd_of_no_complex_numbers(shape):
    check_export(jnp.linalg.svd, [np.zeros(shape, np.complex64)])


@pytest.mark.parametrize("x64", FLOATS)
@pytest.mark.parametrize("size", [1, 2, 3, 6])
def test_schur_of_every_kind_of_complex_matrix(size, x64):
    matrices = square_matrices(size, complex_dtype_of(x64))
    check_schur(matrices, *map(joined, Exported(jax.lax.linalg.schur, [matrices], x64)(matrices)))


def test_schur_of_a_complex_matrix_with_elements_that_have_no_reciprocal():
    matrices = (np.triu(RANDOM.integers(1, 3, (8, 4, 4))) + random_complex((8, 4, 4)) * 1e-39).astype(np.complex64)
    check_schur(matrices, *map(joined, Exported(jax.lax.linalg.schur, [matrices])(matrices)))


def test_schur_of_a_complex_matrix_that_is_not_finite():
    matrices = random_complex((3, 4, 4))
    matrices[1, 2, 2] = complex(0, np.nan)
    form, basis = map(joined, Exported(jax.lax.linalg.schur, [matrices])(matrices))
    check_schur(matrices[::2], form[::2], basis[::2])
    assert np.isnan(form[1].real).all() and np.isnan(basis[1].imag).all()


@pytest.mark.parametrize("shape", [(1, 1), (2, 2), (5, 5), (2, 4, 4), (0, 3, 3)])
def test_hessenberg_of_complex_matrices(shape):
    check_export(jax.lax.linalg.hessenberg, [random_complex(shape, np.complex128)], x64=True)


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("shape", [(1, 1), (2, 2), (5, 5), (2, 4, 4)])
def test_tridiagonal_of_complex_matrices(shape, lower):
    matrix = random_complex(shape, np.complex128)
    check_export(lambda x: jax.lax.linalg.tridiagonal(x, lower=lower), [matrix], x64=True)


FUNCTIONS = {
    "roots": lambda x: jnp.sort(jnp.abs(jnp.roots(x[0], strip_zeros=False))),
    "sqrtm": lambda x: jax.scipy.linalg.sqrtm(x @ x.T + jnp.eye(4)),
    "funm": lambda x: jax.scipy.linalg.funm(x, lambda y: y**2, disp=False)[0],
    "rsf2csf": lambda x: (lambda t, z: z @ t @ z.conj().T)(*jax.scipy.linalg.rsf2csf(*jax.scipy.linalg.schur(x))),
    "schur_complex": lambda x: (lambda t, z: z @ t @ z.conj().T)(*jax.scipy.linalg.schur(x, output="complex")),
    "norm": lambda x: jnp.linalg.norm(x + 1j * x.T, ord=2),
    "pinv": lambda x: jnp.linalg.pinv(x[:, :3] + 1j),
    "spectral_radius": lambda x: jnp.max(jnp.abs(jnp.linalg.eigvals(x))),
    "vmap": lambda x: jax.vmap(lambda row: jnp.linalg.eigvals(row[:, None] * row).real.sum())(x),
    "gradient": jax.grad(lambda x: jnp.sum(jnp.abs(jnp.linalg.eigvals(x)) ** 2)),
    "hermitian": lambda x: (lambda w, v: (v * jnp.exp(1j * w)) @ v.conj().T)(*jnp.linalg.eigh(x + 1j * (x - x.T))),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_made_of_complex_decompositions(name):
    matrix = RANDOM.standard_normal((4, 4)).astype(np.float32)
    check_export(FUNCTIONS[name], [matrix], rtol=1e-3, atol=1e-3)
