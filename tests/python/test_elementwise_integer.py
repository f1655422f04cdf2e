"""Integers and bits: every result that C or ONNX leaves undefined is JAX's."""

import jax.numpy as jnp
import numpy as np
import pytest
from export_check import check_export, op_types
from jax import ShapeDtypeStruct, lax
from jax._src.lax import lax as lax_primitives
from jax.export import symbolic_shape
from test_elementwise import INTEGERS, check, integer_values, pairs, wide


def name(dtype):
    return np.dtype(dtype).name


@pytest.mark.parametrize("dtype", INTEGERS, ids=name)
def test_division(dtype):
    def fn(x, y):
        return lax.div(x, y), lax.rem(x, y), lax.div(x, dtype(3)), lax.rem(x, dtype(3)), lax.div(x, dtype(1))

    x, y = pairs(integer_values(dtype))
    check(fn, [x, y], x64=wide(dtype))


@pytest.mark.parametrize("divisor", [0, -1, -3])
def test_division_by_a_known_number(divisor):
    x = integer_values(np.int32)
    check(lambda x: (lax.div(x, np.int32(divisor)), lax.rem(x, np.int32(divisor))), [x])


@pytest.mark.parametrize("dtype", INTEGERS, ids=name)
def test_bits(dtype):
    def fn(x, y):
        counts = lax.population_count(x), lax.clz(x), lax_primitives.mulhi_p.bind(x, y)
        return x & y, x | y, x ^ y, ~x, x & 1, x & 3, *counts

    x, y = pairs(integer_values(dtype))
    check(fn, [x, y], x64=wide(dtype))


@pytest.mark.parametrize("dtype", INTEGERS, ids=name)
def test_shifts(dtype):
    width = np.dtype(dtype).itemsize * 8
    shifts = [lax.shift_left, lax.shift_right_logical, lax.shift_right_arithmetic]
    known = [0, 1, width // 2, width - 1, width, 100]
    amounts = [*known, np.iinfo(dtype).max, 3] + ([-1] if np.iinfo(dtype).min else [])

    def fn(x, y):
        return [shift(x, y) for shift in shifts] + [shift(x, dtype(n)) for shift in shifts for n in known]

    values = integer_values(dtype)
    x, y = np.repeat(values, len(amounts)), np.tile(np.array(amounts, dtype), len(values))
    check(fn, [x, y], x64=wide(dtype))


def test_logic_on_bool():
    check(lambda x, y: (x & y, x | y, x ^ y, ~x), list(pairs(np.array([False, True]))))


def test_low_bits_need_no_bitwise_operator():
    x = integer_values(np.int32)
    model = check_export(lambda x: (x & 7, ~x, x >> 2, x << 3), [x], opset=17)
    assert op_types(model) == ["Mod", "Sub", "Mod", "Sub", "Div", "Mul"]


def test_floor_division_and_modulo():
    x = integer_values(np.int32)
    check(lambda x: (x // 4, x % 4, jnp.floor_divide(x, -3), jnp.remainder(x, 7)), [x])


def test_symbolic_batch():
    def fn(x, y):
        return lax.div(x, y), lax.rem(x, y), x >> y, x ^ y, lax.clz(x)

    def args(batch):
        return [np.arange(-3, batch * 2 - 3, dtype=np.int32).reshape(batch, 2), np.ones((batch, 2), np.int32)]

    (batch,) = symbolic_shape("B")
    spec = ShapeDtypeStruct((batch, 2), np.int32)
    check_export(fn, args(3), specs=[spec, spec], more_args=[args(1), args(0)])


@pytest.mark.parametrize("dtype", [jnp.int4, jnp.uint4], ids=name)
def test_floats_to_four_bits_are_cut_off(dtype):
    x = np.array([-3.7, -0.2, 2.6, 9.5, -11, 1.5, 20, np.nan], np.float32)
    check_export(lambda x: x.astype(dtype).astype(jnp.int32), [x])
