"""Functions that take a formula: accurate in relative terms, near zero and far out, in every float type."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from export_check import check_export, op_types
from jax import lax
from test_elementwise import check, pairs, wide

NAN, INF = np.nan, np.inf
ACCURACY = {np.float16: 4e-3, ml_dtypes.bfloat16: 2e-2, np.float32: 3e-6, np.float64: 1e-13}
FLOATS = list(ACCURACY)


def name(dtype):
    return np.dtype(dtype).name


def numbers(dtype, low, high):
    """Both signs, magnitudes from low to high, and the ends."""
    size = np.geomspace(low, high, 60)
    with np.errstate(over="ignore"):
        return np.concatenate([size, -size, [0.0, 1.0, -1.0, INF, -INF, NAN]]).astype(dtype)


def check_accurate(fn, args, dtype, slack=1.0):
    smallest = float(ml_dtypes.finfo(dtype).tiny)
    check(fn, args, x64=wide(dtype), rtol=ACCURACY[dtype] * slack, atol=smallest * 2)


@pytest.mark.parametrize("dtype", FLOATS, ids=name)
def test_exponentials(dtype):
    with np.errstate(over="ignore"):
        x = numbers(dtype, 1e-6, 80)
    check_accurate(lambda x: (lax.expm1(x), lax.sinh(x), lax.cosh(x), lax.tanh(x)), [x], dtype)
    far = np.array([88.5, 89, 11.2, 710.2], dtype)
    check_accurate(lambda x: (lax.expm1(x), lax.sinh(x), lax.cosh(x)), [far], dtype, 20)


@pytest.mark.parametrize("dtype", FLOATS, ids=name)
def test_logarithms(dtype):
    x = numbers(dtype, 1e-6, 1e4)
    check_accurate(lambda x: (lax.log1p(x), lax.asinh(x), lax.acosh(x)), [x], dtype)
    check_accurate(lambda x: lax.acosh(x), [1 + abs(x)], dtype)
    check_accurate(lambda x: lax.atanh(x), [numbers(dtype, 1e-6, 1.5)], dtype)
    far = np.array([1e30, -1e30, 1e4, -0.99] if np.dtype(dtype).itemsize > 2 else [1e4, -1e4], dtype)
    check_accurate(lambda x: (lax.log1p(x), lax.asinh(x), lax.acosh(x)), [far], dtype)


@pytest.mark.parametrize("dtype", FLOATS, ids=name)
def test_angles(dtype):
    check_accurate(lambda x: (lax.atan(x), lax.tan(x / 64)), [numbers(dtype, 1e-6, 60)], dtype)
    check_accurate(lambda x: (lax.asin(x), lax.acos(x)), [numbers(dtype, 1e-6, 1.5)], dtype)
    if dtype is np.float64:
        check_accurate(lambda x: lax.atan(x), [np.array([1e40, -1e300, 1e-300, 1e-40], dtype)], dtype)


@pytest.mark.parametrize("dtype", FLOATS, ids=name)
def test_atan2_in_every_direction(dtype):
    y, x = pairs(np.array([0.0, -0.0, 1, -1, 3, -3, 0.01, -0.01, INF, -INF, NAN], dtype))
    check_accurate(lambda y, x: lax.atan2(y, x), [y, x], dtype)


@pytest.mark.parametrize("dtype", FLOATS, ids=name)
def test_error_functions(dtype):
    largest = 26 if dtype is np.float64 else 9
    slack = 1 if dtype in (np.float16, ml_dtypes.bfloat16) else 10
    check_accurate(lambda x: (lax.erf(x), lax.erfc(x)), [numbers(dtype, 1e-6, largest)], dtype, slack)
    x = numbers(dtype, 1e-6, 0.99999)
    check_accurate(lambda x: lax.erf_inv(x), [np.concatenate([x, np.array([1.5, 0.999999], dtype)])], dtype, slack)


def test_erf_inv_close_to_one():
    x = 1 - np.geomspace(6e-8, 0.5, 50).astype(np.float32)
    check_export(lambda x: lax.erf_inv(x), [x], rtol=1e-5)  # JAX itself is 5e-6 off here
    x = 1 - np.geomspace(1.2e-16, 0.5, 50)
    check_export(lambda x: lax.erf_inv(x), [x], rtol=1e-9, x64=True)  # and here 8e-11


@pytest.mark.parametrize("dtype", FLOATS, ids=name)
def test_powers(dtype):
    x, y = pairs(np.array([0.0, -0.0, 1, -1, 2, -2, 0.5, 3, -3, 1 / 3, INF, -INF, NAN], dtype))
    check_accurate(lambda x, y: lax.pow(x, y), [x, y], dtype, 3)
    check_accurate(lambda x: lax.cbrt(x), [numbers(dtype, 1e-6, 6e4)], dtype)
    for exponent in (np.int8, np.int32, np.uint32):
        z = np.tile(np.array([0, 1, 2, 3, 4], exponent), 13)
        check_accurate(lambda x, y: lax.pow(x, y), [np.repeat(x[::13], 5), z], dtype)


def test_gelu_is_small_and_its_tail_stays_zero():
    x = numbers(np.float32, 1e-3, 8)[:-3]
    model = check_export(lambda x: jax.nn.gelu(x, approximate=False), [x], opset=19)
    assert sorted(op_types(model)) == ["Erf", "Mul", "Mul", "Mul", "Neg", "Sub"]
    assert op_types(check_export(lambda x: jax.nn.gelu(x, approximate=False), [x])) == ["Gelu"]
    check_export(lambda x: jax.nn.gelu(x, approximate=True), [x])
    model = check_export(lambda x: 0.5 * lax.erfc(-x * 0.7), [x], rtol=3e-5, atol=0)
    assert "Erf" not in op_types(model)


def test_activations():
    x = numbers(np.float32, 1e-3, 80)[:-1]
    check(lambda x: [f(x) for f in (jax.nn.softplus, jax.nn.elu, jax.nn.silu, jax.nn.log_sigmoid, jnp.sinc)], [x])


@pytest.mark.skipif(not hasattr(lax, "polynomial_p"), reason="primitives of JAX 0.12")
@pytest.mark.parametrize("dtype", FLOATS, ids=name)
def test_newer_primitives(dtype):
    def fn(x):
        return lax.log2(x), lax.one_minus_square(x), lax.polynomial(x, [1.0, 5.0, 2.0])

    check_accurate(fn, [np.array([1, 2, 8, 0.5, 0.75, 3, NAN, 0, -1, INF], dtype)], dtype, 3)
