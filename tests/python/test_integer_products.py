"""Products of bytes in 32 bits: MatMulInteger, exact whatever the signs."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from export_check import check_export, op_types
from jax import lax

TYPES = ["int8", "uint8"]


def product(a, b):
    return lax.dot_general(a, b, (((a.ndim - 1,), (0,)), ((), ())), preferred_element_type=jnp.int32)


def extremes(shape, dtype):
    """Random bytes between rows of the least and of the largest."""
    info = np.iinfo(dtype)
    array = np.random.default_rng(0).integers(info.min, info.max + 1, shape).astype(dtype)
    array[:1], array[-1:] = info.min, info.max
    array[:, :1] = info.max
    return array


@pytest.mark.parametrize("right", TYPES)
@pytest.mark.parametrize("left", TYPES)
def test_of_two_inputs(left, right):
    model = check_export(product, [extremes((5, 65), left), extremes((65, 17), right)])
    assert op_types(model).count("MatMulInteger") == 1 and "MatMul" not in op_types(model)


@pytest.mark.parametrize("right", TYPES)
@pytest.mark.parametrize("left", TYPES)
def test_by_a_weight_which_is_stored_in_bytes(left, right):
    weight = jnp.asarray(extremes((128, 96), right))
    model = check_export(lambda a: product(a, weight), [extremes((5, 128), left)])
    assert op_types(model).count("MatMulInteger") == 1
    assert sum(len(t.raw_data) for t in model.graph.initializer) < 128 * 96 + 64


@pytest.mark.parametrize("right", ["int4", "uint4"])
@pytest.mark.parametrize("left", TYPES)
def test_by_a_weight_of_four_bits(left, right):
    least, most = (-8, 7) if right == "int4" else (0, 15)
    numbers = np.random.default_rng(0).integers(least, most + 1, (128, 96))
    numbers[:1], numbers[-1:] = least, most
    weight = jnp.asarray(numbers, jnp.int32).astype(right)
    model = check_export(lambda a: product(a, weight), [extremes((5, 128), left)])
    assert op_types(model).count("MatMulInteger") == 1 and "MatMul" not in op_types(model)
    assert sum(len(t.raw_data) for t in model.graph.initializer) < 128 * 96 // 2 + 64


def test_of_a_symbolic_batch():
    weight = jnp.asarray(extremes((64, 80), "int8"))
    more = [[extremes((1, 64), "int8")], [extremes((9, 64), "int8")]]
    specs = [jax.ShapeDtypeStruct(("B", 64), jnp.int8)]
    model = check_export(lambda a: product(a, weight), [extremes((3, 64), "int8")], specs=specs, more_args=more)
    assert "MatMulInteger" in op_types(model)


def test_of_batches():
    multiply = lambda a, b: jnp.matmul(a, b, preferred_element_type=jnp.int32)  # noqa: E731
    model = check_export(multiply, [extremes((2, 3, 64), "int8"), extremes((2, 64, 4), "uint8")])
    assert "MatMulInteger" in op_types(model)


def test_a_layer_that_quantises_its_inputs():
    weight, scale = jnp.asarray(extremes((64, 32), "int8")), np.float32(0.02)

    def layer(x):
        step = jnp.max(jnp.abs(x)) / 127
        bytes_of_x = jnp.clip(jnp.round(x / step), -127, 127).astype(jnp.int8)
        return product(bytes_of_x, weight).astype(jnp.float32) * (step * scale)

    model = check_export(layer, [np.random.default_rng(1).normal(size=(4, 64)).astype(np.float32)])
    assert "MatMulInteger" in op_types(model)


@pytest.mark.parametrize("dtype", ["int16", "int32", "uint32"])
def test_other_integers_stay(dtype):
    a, b = np.ones((2, 3), dtype), np.ones((3, 4), dtype)
    assert "MatMulInteger" not in op_types(check_export(product, [a, b]))


def test_a_product_that_wraps_around_in_bytes():
    multiply = lambda a, b: lax.dot_general(a, b, (((1,), (0,)), ((), ())))  # noqa: E731
    assert "MatMulInteger" in op_types(check_export(multiply, [extremes((2, 3), "int8"), extremes((3, 4), "int8")]))


def test_before_bitwise_operators():
    model = check_export(product, [extremes((5, 65), "int8"), extremes((65, 17), "int8")], opset=17)
    assert "MatMulInteger" not in op_types(model)
