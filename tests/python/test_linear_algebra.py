"""Factorisations and solvers: the numbers JAX gives, and the equations that define them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from export_check import check_export


def matrices(*shape, dtype=np.float32):
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(dtype)


def positive_definite(*shape, dtype=np.float32):
    root = matrices(*shape, dtype=dtype)
    return (root @ np.swapaxes(root, -1, -2) + shape[-1] * np.eye(shape[-1])).astype(dtype)


@pytest.mark.parametrize("shape", [(1, 1), (2, 2), (5, 5), (3, 4, 4), (2, 1, 3, 3), (0, 0), (2, 0, 0), (0, 3, 3)])
def test_cholesky(shape):
    check_export(jax.lax.linalg.cholesky, [positive_definite(*shape)])


def test_cholesky_in_double_precision():
    check_export(jnp.linalg.cholesky, [positive_definite(6, 6, dtype=np.float64)], x64=True)


def test_cholesky_of_a_symbolic_batch():
    more = [[positive_definite(1, 4, 4)], [positive_definite(5, 4, 4)]]
    check_export(jnp.linalg.cholesky, [positive_definite(2, 4, 4)], specs=[("B", 4, 4)], more_args=more)


def test_cholesky_reads_the_lower_triangle_only():
    matrix = positive_definite(4, 4)
    matrix[0, 3] = 100
    check_export(lambda a: jax.lax.linalg.cholesky(a, symmetrize_input=False), [matrix])


def test_cholesky_of_what_is_not_positive_definite_is_nan():
    good = positive_definite(3, 3)
    late = np.diag([1, 2, -1]).astype(np.float32)
    check_export(jax.lax.linalg.cholesky, [np.stack([good, -good, 0 * good, late, np.nan * good, good])])
