"""Fourier transforms: every kind, every way of computing them, and the functions of jax.numpy.fft."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from export_check import check_export, op_types
from jax import lax

from jax2onnx import to_onnx

rng = np.random.default_rng(0)
# Every way: nothing to do, ONNX's own DFT, the matrix, factors of two and more kinds, the chirp (odd and even).
LENGTHS = [1, 2, 3, 8, 12, 64, 65, 100, 127, 134, 480, 6000]


def real(*shape, dtype=np.float32):
    return rng.standard_normal(shape).astype(dtype)


def numbers(*shape, dtype=np.complex64):
    return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(dtype)


def close(fn, args, length, **options):
    """Errors of a transform are relative to the largest result, which grows with the root of the length."""
    return check_export(fn, args, atol=2e-6 * max(1, length) ** 0.5, **options)


@pytest.mark.parametrize("length", LENGTHS)
def test_every_kind(length):
    def fn(z, x):
        half = z[:, : length // 2 + 1]
        return jnp.fft.fft(z), jnp.fft.ifft(z), jnp.fft.rfft(x), jnp.fft.irfft(half, n=length)

    close(fn, [numbers(2, length), real(2, length)], length)


@pytest.mark.parametrize("length", [3, 8, 60, 100, 1021])
def test_every_kind_in_double_precision(length):
    def fn(z, x):
        half = z[:, : length // 2 + 1]
        return jnp.fft.fft(z), jnp.fft.ifft(z), jnp.fft.rfft(x), jnp.fft.irfft(half, n=length)

    args = [numbers(2, length, dtype=np.complex128), real(2, length, dtype=np.float64)]
    check_export(fn, args, x64=True, rtol=1e-10, atol=1e-12 * length**0.5)


@pytest.mark.parametrize("opset", [17, 19, 20])
def test_older_opsets(opset):
    def fn(z):
        return jnp.fft.fft(z, axis=0), jnp.fft.ifft(z), jnp.fft.irfft(z), jnp.fft.fft(z, n=70)

    close(fn, [numbers(6, 8)], 70, opset=opset)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_every_axis(axis):
    z = numbers(5, 8, 66)

    def fn(z):
        return jnp.fft.fft(z, axis=axis), jnp.fft.rfft(z.real, axis=axis), jnp.fft.irfft(z, axis=axis)

    close(fn, [z], 66)


@pytest.mark.parametrize("n", [4, 7, 16, 80])
def test_longer_and_shorter(n):
    def fn(z):
        return jnp.fft.fft(z, n=n), jnp.fft.ifft(z, n=n), jnp.fft.rfft(z.real, n=n), jnp.fft.irfft(z, n=n)

    close(fn, [numbers(3, 9)], 80)


def test_several_axes():
    def fn(z):
        both = jnp.fft.fft2(z), jnp.fft.ifft2(z), jnp.fft.fftn(z), jnp.fft.ifftn(z, axes=(0, 2))
        return *both, jnp.fft.rfft2(z.real), jnp.fft.irfft2(z), jnp.fft.rfftn(z.real), jnp.fft.irfftn(z)

    close(fn, [numbers(3, 8, 10)], 240)


@pytest.mark.parametrize("norm", ["ortho", "forward", "backward"])
def test_norms(norm):
    def fn(z):
        return jnp.fft.fft(z, norm=norm), jnp.fft.irfft(z, norm=norm)

    close(fn, [numbers(3, 6)], 6)


def test_hermitian_signals():
    close(lambda z: (jnp.fft.hfft(z), jnp.fft.ihfft(z.real)), [numbers(3, 9)], 16)


def test_imaginary_parts_that_count_for_nothing():
    """Of the transform of real numbers, the first and the middle element are real; JAX ignores what else is there."""
    z = np.full((2, 5), 1 + 3j, np.complex64)
    close(lambda z: (jnp.fft.irfft(z, n=8), jnp.fft.irfft(z, n=9)), [z], 9)
    long = np.full((2, 51), 1 + 3j, np.complex64)
    close(lambda z: (jnp.fft.irfft(z, n=100), jnp.fft.irfft(z, n=101)), [long], 101)


def test_shifts_and_frequencies():
    def fn(z):
        return jnp.fft.fftshift(z), jnp.fft.ifftshift(z, axes=1), z * jnp.fft.fftfreq(7), jnp.fft.rfftfreq(8)

    check_export(fn, [numbers(4, 7)])


def test_there_and_back():
    x = real(4, 96)
    close(lambda x: jnp.fft.irfft(jnp.fft.rfft(x)), [x], 96)
    close(lambda z: jnp.fft.ifft(jnp.fft.fft(z)), [numbers(4, 81)], 81)


def test_filter_by_convolution():
    def fn(x, kernel):
        return jnp.fft.irfft(jnp.fft.rfft(x, n=32) * jnp.fft.rfft(kernel, n=32), n=32)

    close(fn, [real(3, 25), real(8)], 32)
    close(lambda x, k: jax.scipy.signal.fftconvolve(x, k), [real(25), real(8)], 32)


def test_symbolic_batch():
    def fn(z, x):
        return jnp.fft.fft(z), jnp.fft.fft(z, axis=1), jnp.fft.rfft(x), jnp.fft.irfft(z), jnp.fft.fft(z, n=90)

    specs = [
        jax.ShapeDtypeStruct(jax.export.symbolic_shape("B, 8, 12"), np.complex64),
        jax.ShapeDtypeStruct(jax.export.symbolic_shape("B, 16"), np.float32),
    ]
    args = [numbers(2, 8, 12), real(2, 16)]
    close(fn, args, 90, specs=specs, more_args=[[numbers(1, 8, 12), real(1, 16)], [numbers(5, 8, 12), real(5, 16)]])


def test_several_symbolic_sizes():
    spec = jax.ShapeDtypeStruct(jax.export.symbolic_shape("B, T, 6"), np.complex64)
    fn = lambda z: (jnp.fft.fft(z), jnp.fft.irfft(z, n=11))  # noqa: E731
    close(fn, [numbers(2, 3, 6)], 11, specs=[spec], more_args=[[numbers(4, 1, 6)]])


def test_symbolic_length():
    def fn(z, x):
        back = lax.fft(jnp.fft.rfft(x), lax.FftType.IRFFT, (x.shape[1],))
        return jnp.fft.fft(z), jnp.fft.ifft(z, axis=0), jnp.fft.fft2(z), jnp.fft.rfft(x), back, jnp.fft.rfft(x[0])

    sizes = jax.export.symbolic_shape("B, N")
    specs = [jax.ShapeDtypeStruct(sizes, np.complex64), jax.ShapeDtypeStruct(sizes, np.float32)]
    more = [[numbers(*shape), real(*shape)] for shape in ((1, 1), (3, 2), (4, 9), (2, 100))]
    close(fn, [numbers(2, 6), real(2, 6)], 100, specs=specs, more_args=more, rtol=1e-4)


def test_symbolic_length_in_double_precision():
    spec = jax.ShapeDtypeStruct(jax.export.symbolic_shape("N"), np.float64)
    more = [[real(7, dtype=np.float64)], [real(64, dtype=np.float64)]]
    fn = lambda x: (jnp.fft.rfft(x), jnp.fft.ifft(x).real)  # noqa: E731
    check_export(fn, [real(6, dtype=np.float64)], specs=[spec], more_args=more, x64=True, atol=1e-12)


def test_inside_scan_vmap_and_grad():
    def fn(x):
        carry, rows = lax.scan(
            lambda c, row: (c + jnp.fft.fft(row), jnp.abs(jnp.fft.fft(row))), jnp.zeros(6, np.complex64), x
        )
        return carry, rows, jax.vmap(jnp.fft.rfft)(x.real)

    close(fn, [numbers(4, 6)], 6)
    close(jax.grad(lambda x: jnp.sum(jnp.abs(jnp.fft.rfft(x)) ** 2)), [real(12)], 12)
    close(jax.grad(lambda x: jnp.sum(jnp.fft.irfft(jnp.fft.rfft(x) * 2j) * x)), [real(16)], 16)


def test_a_power_of_two_is_one_node():
    assert op_types(to_onnx(jnp.fft.fft, [numbers(3, 256)])) == ["DFT"]
    assert op_types(to_onnx(jnp.fft.rfft, [real(3, 256)])) == ["Unsqueeze", "DFT"]
    assert op_types(to_onnx(jnp.fft.rfft, [real(3, 12)])) == ["MatMul", "Reshape"]


def test_a_long_transform_stays_small():
    model = to_onnx(jnp.fft.fft, [numbers(1, 4999)])
    assert model.ByteSize() < 32 * 16384
    assert op_types(model).count("DFT") == 2


def test_spectrogram():
    def fn(x):
        frames = jnp.stack([x[:, i : i + 400] for i in range(0, 1200, 160)], 1)
        return jnp.log(jnp.abs(jnp.fft.rfft(frames * jnp.hanning(400))) ** 2 + 1e-6)

    check_export(fn, [real(2, 1600)], atol=1e-4)
