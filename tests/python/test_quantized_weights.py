"""Weights of 8 and 4 bits times their scales: DequantizeLinear on the stored integers, and the numbers of JAX."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import onnxruntime
import pytest
from export_check import check_export, op_types

from jax2onnx import to_onnx
from jax2onnx._compare.sessions import run_session

RANGES = {"int8": (-128, 127), "uint8": (0, 255), "int4": (-8, 7), "uint4": (0, 15)}
SCALES = {"tensor": (), "column": (1, 48), "row": (64, 1), "block": (4, 1, 48)}
RNG = np.random.default_rng(0)


def integers(kind, shape):
    """Random ones between the least and the largest, which both occur."""
    least, most = RANGES[kind]
    array = RNG.integers(least, most + 1, shape)
    if array.ndim > 1:
        array[0, 0], array[-1, -1] = least, most
    return jnp.asarray(array, jnp.int32).astype(kind)


def scales(by, dtype="float32"):
    return jnp.asarray(RNG.uniform(0.001, 0.02, SCALES[by]), dtype)


def layer(weight, scale, zero=None):
    def fn(x):
        w = weight.reshape(scale.shape[0], -1, weight.shape[1]) if scale.ndim == 3 else weight
        w = w.astype(scale.dtype)
        w = w if zero is None else w - zero.astype(scale.dtype)
        return x @ (w * scale).reshape(weight.shape)

    return fn


def normal(*shape, dtype="float32"):
    return np.asarray(RNG.standard_normal(shape), dtype)


def session(model):
    return onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


def stored(model, kind):
    number = getattr(onnx.TensorProto, kind.upper())
    return [list(tensor.dims) for tensor in model.graph.initializer if tensor.data_type == number]


@pytest.mark.parametrize("shape", [(5, 64), (2, 5, 64), (64,)])
@pytest.mark.parametrize("by", SCALES)
@pytest.mark.parametrize("kind", RANGES)
def test_weights_stay_integers(kind, by, shape):
    zero = integers(kind, SCALES[by]) if kind.startswith("u") else None
    model = check_export(layer(integers(kind, (64, 48)), scales(by), zero), [normal(*shape)], rtol=1e-4, atol=1e-4)
    assert op_types(model).count("DequantizeLinear") == 1
    assert not {"Cast", "Mul", "Sub"} & set(op_types(model))
    assert sorted(np.prod(dims) for dims in stored(model, kind))[-1] == 64 * 48
    weights = 64 * 48 // (2 if kind.endswith("4") else 1)
    assert weights <= sum(len(tensor.raw_data) for tensor in model.graph.initializer) < weights + 1024


@pytest.mark.parametrize("special", [np.inf, -np.inf, np.nan, 3e38, 1e-40])
def test_factors_that_no_byte_holds(special):
    x = normal(5, 64)
    x[1, 3] = special
    check_export(layer(integers("int8", (64, 48)), scales("column")), [x], rtol=1e-4, atol=1e-4)


def test_a_symbolic_batch():
    fn, more = layer(integers("int4", (64, 48)), scales("column")), [[normal(1, 64)], [normal(7, 64)]]
    model = check_export(fn, [normal(3, 64)], specs=[("B", 64)], more_args=more, rtol=1e-4, atol=1e-4)
    assert "DequantizeLinear" in op_types(model)


def test_one_weight_for_two_products():
    weight, scale = integers("int8", (64, 64)), scales("tensor")

    def fn(x):
        w = weight.astype(jnp.float32) * scale
        return jnp.tanh(x @ w) @ w

    model = check_export(fn, [normal(3, 64)], rtol=1e-4, atol=1e-4)
    assert stored(model, "int8") == [[1, 64, 64]]


def test_tied_weights():
    weight, scale = integers("int8", (64, 64)), scales("tensor")

    def fn(x):
        w = weight.astype(jnp.float32) * scale
        return jnp.tanh(x @ w) @ w.T

    check_export(fn, [normal(3, 64)], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("bias", [False, True])
def test_scales_after_the_product(bias):
    weight, scale = integers("int8", (48, 64)), scales("column").reshape(48)
    fn = lambda x: (x @ weight.T.astype(jnp.float32)) * scale + (scale if bias else 0)  # noqa: E731
    model = check_export(fn, [normal(3, 64)], rtol=1e-4, atol=1e-4)
    assert "DequantizeLinear" in op_types(model)


def test_a_convolution():
    weight = integers("int8", (3, 3, 8, 16))

    def fn(x):
        w = weight.astype(jnp.float32) * jnp.asarray(np.linspace(0.01, 0.02, 16), np.float32)
        return jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    model = check_export(fn, [normal(2, 6, 6, 8)], rtol=1e-4, atol=1e-4)
    assert op_types(model).count("DequantizeLinear") == 1


def test_heads_with_scales_of_their_own():
    weight, scale = integers("int8", (64, 4, 12)), jnp.asarray(RNG.uniform(0.001, 0.02, (1, 4, 12)), np.float32)
    fn = lambda x: jnp.einsum("btd,dhk->bthk", x, weight.astype(jnp.float32) * scale)  # noqa: E731
    model = check_export(fn, [normal(2, 5, 64)], rtol=1e-4, atol=1e-4)
    assert op_types(model).count("DequantizeLinear") == 1 and "Mul" not in op_types(model)


def test_weights_as_inputs():
    args = [normal(5, 64), np.asarray(integers("int8", (64, 48))), np.asarray(scales("column"))]
    model = check_export(lambda x, w, s: x @ (w.astype(jnp.float32) * s), args, rtol=1e-4, atol=1e-4)
    assert "DequantizeLinear" in op_types(model)


def test_older_opsets():
    fn = layer(integers("int8", (64, 48)), scales("column"))
    assert "DequantizeLinear" in op_types(check_export(fn, [normal(2, 5, 64)], opset=13, rtol=1e-4, atol=1e-4))


@pytest.mark.parametrize("by", ["tensor", "column", "block"])
@pytest.mark.parametrize("kind", ["int8", "uint4"])
def test_products_are_rounded_on_request(kind, by, monkeypatch):
    fn, x = layer(integers(kind, (64, 48)), scales(by)), normal(5, 64)
    want = np.asarray(fn(x))

    def error(model):
        return np.max(np.abs(run_session(session(model), {"in_0": x})[0] - want)) / np.max(np.abs(want))

    rounded = to_onnx(fn, [x], quantized_products="rounded")
    assert op_types(rounded) == ["DequantizeLinear", "MatMul"]
    assert error(to_onnx(fn, [x])) < 1e-5 < error(rounded) < 3e-2
    monkeypatch.setenv("JAX2ONNX_QUANTIZED_PRODUCTS", "rounded")
    assert op_types(to_onnx(fn, [x])) == ["DequantizeLinear", "MatMul"]
    with pytest.raises(ValueError, match="quantized_products must be 'exact' or 'rounded'; got 'fast'"):
        to_onnx(fn, [x], quantized_products="fast")
