"""Checks of decompositions by the equations that define them, at the accuracy of LAPACK.

Vectors have a free sign (or phase, or basis where values are equal), so they are never compared themselves.
"""

from __future__ import annotations

import contextlib

import jax
import numpy as np
import onnxruntime
import pytest
from export_check import check_model

from jax2onnx import to_onnx
from jax2onnx._compare.sessions import complex_as_pairs, run_session

RANDOM = np.random.default_rng(0)
_START = RANDOM.bit_generator.state
FLOATS = [False, True]  # x64


@pytest.fixture(autouse=True)
def same_numbers():
    """The numbers of a test do not depend on which tests ran before it."""
    RANDOM.bit_generator.state = _START


class Exported:
    """A valid model of the function, to be run on many arguments; gives complex numbers where the function does."""

    def __init__(self, fn, specs, x64=False, opset=23):
        with jax.enable_x64(True) if x64 else contextlib.nullcontext():
            options = {"opset": opset, "enable_double_precision": x64}
            self.model = to_onnx(fn, specs, stacktrace_metadata="full", **options)
            check_model(self.model, to_onnx(fn, specs, stacktrace_metadata="off", **options))
        self.session = onnxruntime.InferenceSession(self.model.SerializeToString(), providers=["CPUExecutionProvider"])

    def __call__(self, *args):
        names = [value.name for value in self.session.get_inputs()]
        return run_session(self.session, dict(zip(names, map(complex_as_pairs, args), strict=True)))


def joined(pairs):
    """Pairs of numbers as complex ones."""
    wide = np.complex64 if pairs.dtype == np.float32 else np.complex128
    return (pairs[..., 0] + 1j * pairs[..., 1]).astype(wide)


def dtype_of(x64):
    return np.float64 if x64 else np.float32


def complex_dtype_of(x64):
    return np.complex128 if x64 else np.complex64


def adjoint(matrix):
    return np.conj(np.swapaxes(matrix, -1, -2))


def near(actual, expected, size, unit=1.0):
    """Equal up to what rounding leaves of a matrix of this size and norm."""
    assert actual.shape == expected.shape and actual.dtype == expected.dtype
    bound = 20 * max(size, 1) * np.finfo(actual.dtype).eps * unit
    assert np.abs(actual - expected).max(initial=0) <= bound


def wide(matrix):
    return matrix.astype(np.complex128 if matrix.dtype.kind == "c" else np.float64)


def norm(matrix):
    return float(np.linalg.norm(wide(matrix), 2, axis=(-2, -1)).max(initial=0)) or 1.0


def orthonormal(columns):
    near(adjoint(columns) @ columns, np.eye(columns.shape[-1], dtype=columns.dtype), columns.shape[-2])


def symmetric(matrix):
    return (matrix + adjoint(matrix)) / 2


def square_matrices(size, dtype):
    """Matrices of every kind that a method could stumble over, as one batch."""
    full, rank = RANDOM.standard_normal((size, size)), max(1, size // 3)
    low = RANDOM.standard_normal((size, rank)) @ RANDOM.standard_normal((rank, size))
    kinds = [
        full,
        np.zeros((size, size)),
        np.eye(size),
        np.ones((size, size)),
        np.diag(np.arange(size, dtype=np.float64) - 1),
        np.eye(size)[::-1],
        np.eye(size, k=1),
        np.linalg.qr(full)[0],
        low,
        full - full.T,
        np.triu(full),
        np.arange(size * size, dtype=np.float64).reshape(size, size),
        full * 10.0 ** -np.arange(size),
        full * 1e30,
        full * 1e-30,
    ]
    smallest = np.log10(float(np.finfo(dtype).tiny))
    for _ in range(4):  # digits are lost where squares or quotients are below the smallest number
        kinds += [
            full * 10 ** RANDOM.uniform(smallest, 0, (size, size)),
            np.triu(full) + full * 10 ** (smallest / 2 + 1),
            RANDOM.integers(0, 2, (size, size)) * 10 ** RANDOM.uniform(smallest, 0, (size, 1)),
        ]
        kinds[-1][0, 0] = kinds[-3][0, 0] = 1
    if np.dtype(dtype).kind == "c":
        other = RANDOM.standard_normal((size, size))
        kinds += [full + 1j * other, 1j * np.eye(size), np.linalg.qr(full + 1j * other)[0], low * (1 + 2j)]
    return np.stack(kinds).astype(dtype)


def check_eigh(matrices, values, vectors):
    """Each of the batch: A V = V w, V orthonormal, w ascending and LAPACK's."""
    for matrix, w, v in zip(matrices, values, vectors, strict=True):
        unit, size = norm(matrix), len(matrix)
        near(matrix / unit @ v, v * (w / unit), size)
        orthonormal(v)
        assert np.all(np.diff(w) >= 0)
        near(w / unit, np.linalg.eigvalsh(wide(matrix) / unit).astype(w.dtype), size)


def check_svd(matrices, left, values, right):
    """Each of the batch: A = U s V, U and V orthonormal, s descending and LAPACK's."""
    for matrix, u, s, v in zip(matrices, left, values, right, strict=True):
        unit, size, count = norm(matrix), max(matrix.shape), len(s)
        near(u[:, :count] * (s / unit) @ v[:count], matrix / unit, size)
        orthonormal(u)
        orthonormal(adjoint(v))
        assert np.all(np.diff(s) <= 0) and np.all(s >= 0)
        near(s / unit, np.linalg.svd(wide(matrix) / unit)[1].astype(s.dtype), size)


def check_schur(matrices, forms, bases):
    """Each of the batch: A = Q T Q', Q orthonormal, T triangular but for standard blocks with complex eigenvalues."""
    for matrix, form, basis in zip(matrices, forms, bases, strict=True):
        unit, size = norm(matrix), len(matrix)
        near(basis @ (form / unit) @ adjoint(basis), matrix / unit, size)
        orthonormal(basis)
        assert not np.tril(form, -2).any()
        starts = np.flatnonzero(np.diag(form, -1))
        assert np.all(np.diff(starts) > 1)
        assert matrix.dtype.kind == "f" or not len(starts)
        for i in starts:
            assert form[i, i] == form[i + 1, i + 1] and np.sign(form[i, i + 1]) == -np.sign(form[i + 1, i])


def check_eig(matrices, values, left, right):
    """Each of the batch: A V = V w, U* A = w U*, columns of length one, largest component real, w as LAPACK's."""
    for matrix, w, u, v in zip(matrices, values, left, right, strict=True):
        unit, size = norm(matrix), len(matrix)
        near(matrix / unit @ v, v * (w / unit), size)
        near(adjoint(u) @ (matrix / unit), (w / unit)[:, None] * adjoint(u), size)
        for vectors in (u, v):
            near(np.linalg.norm(vectors, axis=0), np.ones(size, vectors.real.dtype), size)
            largest = np.abs(vectors) > 0.999 * np.abs(vectors).max(axis=0)  # several may be, up to rounding
            assert np.where(largest, np.abs(vectors.imag), 1).min(axis=0).max() < 1e-3
