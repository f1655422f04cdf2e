"""Numbers rounded to bytes on the way to a product: QuantizeLinear, integer kernels, and the numbers of JAX."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from export_check import check_export, op_types
from jax import lax

from jax2onnx import to_onnx

RNG = np.random.default_rng(0)
RANGES = {"int8": (-128, 127), "uint8": (0, 255)}


def normal(*shape):
    return np.asarray(RNG.standard_normal(shape), np.float32)


def integers(kind, *shape):
    least, most = RANGES[kind]
    return jnp.asarray(RNG.integers(least, most + 1, shape), kind)


def rounded(x, scale, kind="int8", order="round, clip", zero=0):
    q = x / scale
    if order == "round, shift, clip":
        return jnp.clip(jnp.round(q) + zero, *RANGES[kind]).astype(kind)
    q = q if zero == 0 else q + zero
    q = jnp.clip(jnp.round(q), *RANGES[kind]) if order == "round, clip" else jnp.round(jnp.clip(q, *RANGES[kind]))
    return q.astype(kind)


SPECIAL = np.asarray(
    [np.nan, np.inf, -np.inf, 3e38, -3e38, 1e-40, 0.0, -0.0, 0.5, 1.5, 2.5, -0.5, -1.5, 127.5, -128.5, 255.5],
    np.float32,
)


@pytest.mark.parametrize("order", ["round, clip", "clip, round", "round, shift, clip"])
@pytest.mark.parametrize("kind", RANGES)
@pytest.mark.parametrize("scale", [1.0, 0.037, 2.0**-4])
@pytest.mark.parametrize("zero", [0, 3])
def test_rounding_to_bytes_is_quantize_linear(kind, order, scale, zero):
    x = np.concatenate([SPECIAL, SPECIAL * np.float32(scale), normal(500) * 60])
    model = check_export(lambda x: rounded(x, scale, kind, order, zero), [x], rtol=0, atol=0)
    assert "QuantizeLinear" in op_types(model)
    assert not {"Round", "Cast", "Clip"} & set(op_types(model))


@pytest.mark.parametrize("axis", [None, -1])
@pytest.mark.parametrize("most", [127.0, 127.5])
def test_scales_of_the_numbers_themselves(axis, most):
    """The largest number is a tie if there are 127.5 steps: the last place of the quotient decides."""
    weight = integers("int8", 64, 48)

    def fn(x):
        scale = jnp.max(jnp.abs(x), axis=axis, keepdims=True) / most
        scale = jnp.where(scale < 1e-19, 1.0, scale)
        return jnp.matmul(rounded(x, scale), weight, preferred_element_type=jnp.int32) * (scale * 0.01)

    zeros = np.zeros((32, 64), np.float32)
    more = [[-normal(32, 64)], [zeros]]
    model = check_export(jax.jit(fn), [normal(32, 64)], opset=21, more_args=more, rtol=1e-6, atol=1e-6)
    assert op_types(model).count("MatMulInteger") == op_types(model).count("QuantizeLinear") == 1
    assert not {"BitwiseXor", "Round", "Div"} & set(op_types(model))


def test_one_rounding_for_several_products():
    weights = [integers("int8", 64, 16) for _ in range(3)]

    def fn(x):
        q = rounded(x, 0.03)
        return [jnp.matmul(q, w, preferred_element_type=jnp.int32) for w in weights]

    ops = op_types(check_export(fn, [normal(5, 64)], opset=21, rtol=0, atol=0))
    assert ops.count("QuantizeLinear") == 1 and ops.count("MatMulInteger") == 3 and len(ops) == 7


CONVOLUTIONS = {
    "same": {"padding": "SAME"},
    "strides and pads": {"window_strides": (2, 1), "padding": ((0, 1), (2, 1))},
    "dilated": {"padding": "SAME", "rhs_dilation": (2, 2)},
    "groups": {"padding": "VALID", "feature_group_count": 4},
    "spread": {"padding": ((2, 2), (2, 2)), "lhs_dilation": (2, 2)},
    "cropped": {"padding": ((-1, 0), (0, -1))},
}


@pytest.mark.parametrize("kind", RANGES)
@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_convolutions_of_bytes(case, kind):
    options = {"window_strides": (1, 1), "dimension_numbers": ("NHWC", "HWIO", "NHWC"), **CONVOLUTIONS[case]}
    kernel = integers(kind, 3, 3, 8 // options.get("feature_group_count", 1), 16)
    fn = lambda x: lax.conv_general_dilated(x, kernel, preferred_element_type=jnp.int32, **options)  # noqa: E731
    model = check_export(fn, [np.asarray(integers(kind, 2, 9, 9, 8))], opset=21, rtol=0, atol=0)
    assert "ConvInteger" in op_types(model) and "MatMul" not in op_types(model)


@pytest.mark.parametrize("rank", [1, 3])
def test_convolutions_of_bytes_along_other_numbers_of_axes(rank):
    kernel = integers("int8", 4, 3, *[3] * rank)
    fn = lambda x: lax.conv(x, kernel, (1,) * rank, "SAME", preferred_element_type=jnp.int32)  # noqa: E731
    model = check_export(fn, [np.asarray(integers("int8", 2, 3, *[5] * rank))], opset=21, rtol=0, atol=0)
    assert "ConvInteger" in op_types(model)


def test_a_convolution_of_bytes_with_a_symbolic_batch_and_size():
    kernel = integers("int8", 3, 3, 4, 8)
    options = {"dimension_numbers": ("NHWC", "HWIO", "NHWC"), "preferred_element_type": jnp.int32}
    fn = lambda x: lax.conv_general_dilated(rounded(x, 0.05), kernel, (1, 1), "SAME", **options)  # noqa: E731
    more = [[normal(1, 7, 5, 4)]]
    model = check_export(fn, [normal(2, 6, 6, 4)], specs=[("B", "H", "W", 4)], more_args=more, opset=21, rtol=0, atol=0)
    assert "ConvInteger" in op_types(model) and "QuantizeLinear" in op_types(model)


def test_older_opsets_convolve_bytes_in_int32():
    kernel = integers("int8", 4, 3, 3, 3)
    fn = lambda x: lax.conv(x, kernel, (1, 1), "SAME", preferred_element_type=jnp.int32)  # noqa: E731
    model = check_export(fn, [np.asarray(integers("int8", 2, 3, 5, 5))], opset=17, rtol=0, atol=0)
    assert "ConvInteger" not in op_types(model)


WEIGHTS = normal(96, 80)


def in_integers(w):
    scale = jnp.max(jnp.abs(w), axis=0, keepdims=True) / 127.5
    return jnp.round(w / scale).astype(jnp.int8).astype(jnp.float32) * scale


def in_four_bits(w):
    scale = jnp.max(jnp.abs(w), axis=0, keepdims=True) / 7
    return jnp.clip(jnp.round(w / scale), -8, 7).astype(jnp.int4).astype(jnp.float32) * scale


def in_floats(w):
    scale = jnp.max(jnp.abs(w)) / 127
    return w + lax.stop_gradient(jnp.clip(jnp.round(w / scale), -127, 127) * scale - w)


def in_floats_by_column(w):
    inverse = 127 / jnp.max(jnp.abs(w), axis=0, keepdims=True)
    return jnp.clip(jnp.round(w * inverse), -127, 127) * (1 / inverse)


@pytest.mark.parametrize("way", [in_integers, in_four_bits, in_floats_by_column])
def test_weights_that_the_program_rounds_are_stored_as_integers(way):
    weight = jnp.asarray(WEIGHTS)
    model = check_export(lambda x: x @ way(weight), [normal(4, 96)], opset=21, rtol=1e-5, atol=1e-5)
    assert "DequantizeLinear" in op_types(model) and not {"Round", "Div", "Abs"} & set(op_types(model))
    bits = 4 if way is in_four_bits else 8
    assert sum(len(tensor.raw_data) for tensor in model.graph.initializer) < WEIGHTS.size * bits / 8 + 1024


def in_ternary(w):
    most = 0.7 * jnp.mean(jnp.abs(w))
    return jnp.where(w > most, 1.0, jnp.where(w < -most, -1.0, 0.0)) * jnp.mean(jnp.abs(w))


def in_signs(w):
    return jnp.sign(w) * jnp.mean(jnp.abs(w), axis=0)


@pytest.mark.parametrize("way", [in_floats, in_ternary, in_signs])
def test_rounded_weights_are_known_by_their_numbers(way):
    """w + (q - w), as gradients pass straight through, and numbers that were chosen and not rounded."""
    weight = jnp.asarray(WEIGHTS)
    model = check_export(lambda x: x @ way(weight), [normal(4, 96)], opset=21, rtol=1e-5, atol=1e-5)
    assert op_types(model).count("DequantizeLinear") == 1 and not {"Round", "Where", "Sign"} & set(op_types(model))
    bits = 8 if way is in_floats else 4
    assert sum(len(tensor.raw_data) for tensor in model.graph.initializer) < WEIGHTS.size * bits / 8 + 1024


def test_weights_that_are_no_multiples_stay_floats():
    weight = jnp.asarray(WEIGHTS)
    fn = lambda x: x @ (jnp.round(weight * 20) / 20 + 1e-3 * weight)  # noqa: E731
    assert op_types(check_export(fn, [normal(4, 96)], opset=21, rtol=1e-5, atol=1e-5)) == ["MatMul"]


def test_rounded_filters():
    filters = jnp.asarray(normal(3, 3, 32, 24))

    def fn(x):
        scale = jnp.max(jnp.abs(filters), axis=(0, 1, 2)) / 127
        w = jnp.clip(jnp.round(filters / scale), -127, 127) * scale
        return lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    model = check_export(fn, [normal(1, 6, 6, 32)], opset=21, rtol=1e-4, atol=1e-4)
    assert "DequantizeLinear" in op_types(model)
    assert sum(len(tensor.raw_data) for tensor in model.graph.initializer) < filters.size + 1024


@pytest.mark.parametrize("kind", RANGES)
@pytest.mark.parametrize("points", [(0, 0), (117, 3)])
def test_zero_points_of_products(kind, points):
    points = points if kind == "uint8" else (points[0] - 100, -points[1])
    weight = integers(kind, 64, 48)
    fn = lambda x: (x.astype(jnp.int32) - points[0]) @ (weight.astype(jnp.int32) - points[1])  # noqa: E731
    model = check_export(fn, [np.asarray(integers(kind, 5, 64))], opset=21, rtol=0, atol=0)
    assert "MatMulInteger" in op_types(model) and not {"MatMul", "Sub"} & set(op_types(model))


def test_a_zero_point_that_is_computed():
    weight = integers("int8", 64, 48)

    def fn(x):
        low, high = jnp.minimum(jnp.min(x), 0), jnp.maximum(jnp.max(x), 0)
        scale = (high - low) / 255
        zero = jnp.clip(jnp.round(-low / scale), 0, 255)
        q = jnp.clip(jnp.round(x / scale) + zero, 0, 255).astype(jnp.uint8)
        return (q.astype(jnp.int32) - zero.astype(jnp.int32)) @ weight.astype(jnp.int32)

    model = check_export(fn, [normal(5, 64)], opset=21, more_args=[[normal(5, 64) - 1]], rtol=0, atol=0)
    assert "MatMulInteger" in op_types(model) and "MatMul" not in op_types(model)


@pytest.mark.parametrize("kind", RANGES)
@pytest.mark.parametrize("by", ["tensor", "column"])
@pytest.mark.parametrize("size", [1e-6, 2.0**-9, 0.00371, 0.5 / 127, 3.0, 1e12])
@pytest.mark.parametrize("zero", [0, 3])
def test_products_that_are_rounded_again(kind, by, size, zero):
    first, second = integers(kind, 64, 48), integers(kind, 48, 8)
    scale = jnp.asarray(np.abs(normal(48) if by == "column" else np.ones(())) * size, jnp.float32)

    def fn(x):
        y = jnp.matmul(x, first, preferred_element_type=jnp.int32).astype(jnp.float32) * scale
        q = jnp.clip(jnp.round(y) + zero, *RANGES[kind]).astype(kind)
        return jnp.matmul(q, second, preferred_element_type=jnp.int32)

    model = check_export(fn, [np.asarray(integers(kind, 33, 64))], opset=21, rtol=0, atol=0)
    assert op_types(model).count("QLinearMatMul") == op_types(model).count("MatMulInteger") == 1
    assert not {"IsNaN", "QuantizeLinear"} & set(op_types(model))


def test_masks_are_no_weights():
    mask = jnp.tril(jnp.ones((64, 64), np.float32))
    assert op_types(to_onnx(lambda x: x @ (mask * 0.125), [normal(4, 64)])) == ["MatMul"]


def test_numbers_rounded_in_floats_keep_nan():
    x = np.concatenate([SPECIAL, normal(200) * 9])
    check_export(lambda x: jnp.clip(jnp.round(x / 0.1), -128, 127) * 0.1, [x], rtol=1e-6, atol=1e-6)


def test_gradients_of_rounded_numbers():
    def loss(x):
        return jnp.sum((x + lax.stop_gradient(jnp.round(x / 0.1) * 0.1 - x)) ** 2)

    check_export(jax.grad(loss), [normal(5, 7)], rtol=1e-5, atol=1e-5)
