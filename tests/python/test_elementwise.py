"""Elementwise primitives that are an operator or two: numbers, edge values, element types, pass-throughs."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from export_check import check_export, op_types
from jax import lax

NAN, INF = np.nan, np.inf
EDGES = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.25, NAN, INF, -INF, 1e-3, -1e-3]
FLOATS = [np.float16, ml_dtypes.bfloat16, np.float32, np.float64]
SIGNED = [np.int8, np.int16, np.int32, np.int64]
UNSIGNED = [np.uint8, np.uint16, np.uint32, np.uint64]
INTEGERS = SIGNED + UNSIGNED


def wide(*dtypes):
    """Does the case need 64-bit types?"""
    return any(np.dtype(dtype).itemsize == 8 for dtype in dtypes)


def integer_values(dtype):
    info = np.iinfo(dtype)
    values = [0, 1, 2, 3, 5, 7, 100, info.max, info.max - 1, info.min, info.min + 1]
    return np.array(values + ([-1, -2, -3, -7] if info.min else [9, 10, 11, 12]), dtype)


def check(fn, args, **options):
    """As check_export; one compilation gives all of JAX's results."""
    return check_export(jax.jit(fn), args, **options)


def pairs(values):
    """Every value with every other."""
    return np.repeat(values, len(values)), np.tile(values, len(values))


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: np.dtype(d).name)
def test_float_unary(dtype):
    def fn(x):
        return [
            -x, abs(x), lax.sign(x), lax.floor(x), lax.ceil(x), lax.sqrt(x), lax.rsqrt(x), lax.exp(x), lax.exp2(x),
            lax.log(x), lax.sin(x), lax.cos(x), lax.tanh(x), lax.logistic(x), lax.square(x), lax.is_finite(x),
            lax.round(x), lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN),
        ]  # fmt: skip

    values = [*EDGES, 1.5, -0.5, 2.5, -1.5, 0.49997, 7.0]
    check(fn, [np.array(values, dtype)], x64=wide(dtype))


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: np.dtype(d).name)
def test_float_binary(dtype):
    def fn(x, y):
        return [
            x + y, x - y, x * y, x / y, lax.max(x, y), lax.min(x, y), lax.rem(x, y), x < y, x <= y, x > y, x >= y,
            x == y, x != y, jnp.where(x < y, x, y), lax.clamp(y, x, y), lax.clamp(dtype(-0.5), x, dtype(2)),
        ]  # fmt: skip

    x, y = pairs(np.array(EDGES, dtype))
    check(fn, [x, y], x64=wide(dtype))


@pytest.mark.parametrize("dtype", INTEGERS, ids=lambda d: np.dtype(d).name)
def test_integer_arithmetic(dtype):
    def fn(x, y):
        return [
            x + y, x - y, x * y, lax.max(x, y), lax.min(x, y), -x, jnp.abs(x), lax.sign(x), lax.square(x),
            x < y, x <= y, x > y, x >= y, x == y, x != y, jnp.where(x < y, x, y), lax.clamp(y, x, x),
            lax.integer_pow(x, 5), lax.clamp(dtype(1), x, dtype(9)), x * 3, 2 - x,
        ]  # fmt: skip

    x, y = pairs(integer_values(dtype))
    check(fn, [x, y], x64=wide(dtype))


def test_bool_order_and_choice():
    true = np.ones(4, bool)

    def fn(x, y):
        return [
            lax.lt(x, y), lax.le(x, y), lax.gt(x, y), lax.ge(x, y), lax.eq(x, y), lax.ne(x, y), lax.max(x, y),
            lax.min(x, y), lax.select_n(x, y, x), lax.select_n(x, y, true), lax.select_n(x, y, ~true),
            lax.select_n(x, ~true, y), lax.select_n(x, true, y),
        ]  # fmt: skip

    check(fn, list(pairs(np.array([False, True]))))


@pytest.mark.parametrize("exponent", [-3, -1, 0, 1, 2, 3, 4, 7])
def test_integer_pow(exponent):
    x = np.array(EDGES, np.float32)
    check_export(lambda x: lax.integer_pow(x, exponent), [x])
    check_export(lambda x: lax.integer_pow(x, exponent), [x.astype(ml_dtypes.bfloat16)])


@pytest.mark.parametrize("dtype", [np.bool_, *INTEGERS, *FLOATS], ids=lambda d: np.dtype(d).name)
def test_select_of_every_type(dtype):
    x = np.arange(6).reshape(2, 3).astype(dtype)
    which = np.array([[0, 1, 2], [-5, 7, 1]], np.int32)
    x64 = wide(dtype)
    check_export(lambda which, a, b, c: lax.select_n(which, a, b, c), [which, x, x + x, x * x], x64=x64)
    check_export(lambda which, a, b: lax.select_n(which, a, b), [which > 0, x, x + x], x64=x64)
    check_export(lambda which, a, b: lax.select_n(which, a, b), [np.array(True), x, x + x], x64=x64)


def test_symbolic_batch():
    def fn(x, y):
        chosen = lax.select_n(x > 0, -x, x) + lax.clamp(-1.0, y, 1.0)
        return lax.integer_pow(chosen, 3), lax.rsqrt(y * y + 1), lax.integer_pow(x, 0)

    generator = np.random.default_rng(0)

    def args(batch):
        return [generator.standard_normal((batch, 3)).astype(np.float32) for _ in range(2)]

    check_export(fn, args(2), specs=[("B", 3), ("B", 3)], more_args=[args(5), args(1), args(0)])


def test_empty_and_scalar():
    def fn(x):
        return x / 2, lax.max(x, x), lax.is_finite(x), lax.log1p(x), lax.select_n(x > 0, x, -x)

    check_export(fn, [np.zeros((0, 3), np.float32)])
    check_export(fn, [np.float32(1.5)])


def test_pass_throughs_make_no_nodes():
    def fn(x):
        y, z = lax.optimization_barrier((lax.stop_gradient(x) + 1, x))
        return jnp.copy(jax.device_put(y)) * z

    model = check_export(fn, [np.ones(3, np.float32)])
    assert op_types(model) == ["Add", "Mul"]


def test_gradient_sums():
    check_export(jax.grad(lambda x: x * x * x + x), [np.float32(3)])


def test_common_functions_stay_small():
    def count(fn, *args):
        return op_types(check_export(fn, list(args)))

    x = np.ones(3, np.float32)
    assert count(lambda x: jnp.maximum(x, 0), x) == ["Relu"]
    assert count(lambda x: x**2, x) == ["Mul"]
    assert count(lambda x: lax.select_n(x > 0, -x, x), x) == ["Greater", "Neg", "Where"]
    assert count(lambda x: jnp.clip(x, -1, 1), x) == ["Clip"]
    assert count(lambda x: jax.nn.sigmoid(x), x) == ["Sigmoid"]
    assert count(lambda x: lax.expm1(x), x) == ["Mul", "Tanh", "Exp", "Add", "Mul"]


@pytest.mark.parametrize("opset", [17, 18, 20, 22, 25, 26])
def test_every_opset(opset):
    def fn(x, n):
        return [
            lax.max(x, x), x < 0, lax.is_finite(x), lax.round(x), lax.clamp(0.0, x, 1.0), lax.erf(x), lax.erfc(x),
            lax.log1p(x), lax.expm1(x), lax.atan2(x, x), lax.erf_inv(x), lax.sinh(x), x.astype(jnp.int32),
            lax.bitcast_convert_type(x, jnp.int32), lax.nextafter(x, -x), n // 3, n % 3, n >> 1, n << 1, ~n,
            lax.div(n, n - 5), lax.clz(n), lax.shift_right_logical(n, n), n & 1, n.astype(jnp.bfloat16),
        ]  # fmt: skip

    check(fn, [np.array([0.5, -0.25, 3], np.float32), np.array([5, -7, 0], np.int32)], opset=opset, rtol=1e-4)


def test_symbolic_batch_of_everything():
    functions = [lax.erf, lax.erfc, lax.erf_inv, lax.atan, lax.log1p, lax.expm1, lax.cbrt, lax.is_finite, lax.sign]

    def fn(x):
        return [f(x) for f in functions] + [x.astype(jnp.uint8), lax.bitcast_convert_type(x, jnp.uint8), lax.round(x)]

    x = np.linspace(-0.9, 0.9, 12, dtype=np.float32).reshape(4, 3)
    check(fn, [x], specs=[("B", 3)], more_args=[[x[:1]], [x[:0]]], rtol=1e-4)
