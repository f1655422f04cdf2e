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


# ---- weights that the program packs ----

PACKED_ROWS, PACKED_COLUMNS = 320, 128


def packed_by(way, q):
    """Whole numbers from 0 to 15 in fewer bytes, and the function that takes them out again."""
    if way == "rows in turn":
        p = jnp.asarray(q[0::2] | q[1::2] << 4, jnp.uint8)
        return p, lambda p: jnp.stack([p & 15, p >> 4], axis=1).reshape(q.shape)
    if way == "halves":
        p = jnp.asarray(q[: len(q) // 2] | q[len(q) // 2 :] << 4, jnp.uint8)
        return p, lambda p: jnp.concatenate([p & 15, p >> 4])
    if way == "words":
        shifts = np.arange(0, 32, 4)
        words = np.bitwise_or.reduce(q.reshape(-1, 8, q.shape[1]) << shifts[:, None], axis=1).astype(np.uint32)
        p = jnp.asarray(words.view(np.int32))
        return p, lambda p: (p[:, None] >> jnp.asarray(shifts, jnp.int32)[:, None] & 15).reshape(q.shape)
    if way == "bitcast":
        p = jnp.asarray(q[:, 0::2] | q[:, 1::2] << 4, jnp.uint8)
        return p, lambda p: jax.lax.bitcast_convert_type(p, jnp.uint4).reshape(q.shape).astype(jnp.uint8)
    p = jnp.asarray(np.bitwise_or.reduce([q[i::4] % 4 << 2 * i for i in range(4)]), jnp.uint8)
    return p, lambda p: jnp.stack([p >> 2 * i & 3 for i in range(4)], axis=1).reshape(q.shape)


@pytest.mark.parametrize("zero", [None, 8, "by block"])
@pytest.mark.parametrize("way", ["rows in turn", "halves", "words", "bitcast", "two bits"])
def test_packed_weights(way, zero):
    q = RNG.integers(0, 16, (PACKED_ROWS, PACKED_COLUMNS))
    packed, unpack = packed_by(way, q)
    scale = jnp.asarray(RNG.uniform(0.01, 0.02, (10, PACKED_COLUMNS)), np.float32)
    points = jnp.asarray(RNG.integers(0, 16, (10, PACKED_COLUMNS)), np.uint8)
    group = np.arange(PACKED_ROWS) // 32

    def fn(x):
        w = unpack(packed).astype(jnp.float32)
        w = w if zero is None else w - (points[group].astype(jnp.float32) if zero == "by block" else zero)
        return x @ (w * scale[group])

    x = normal(4, PACKED_ROWS)
    model = to_onnx(fn, [x], opset=21)
    want = np.asarray(fn(x))  # XLA folds a constant's bitcast to 4 bits wrongly; JAX's own steps do not
    got = run_session(session(model), {"in_0": x})[0]
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
    assert op_types(model).count("DequantizeLinear") == 1 and "Mul" not in op_types(model)
    size = sum(len(tensor.raw_data) for tensor in model.graph.initializer)
    assert size < packed.size * packed.dtype.itemsize + 10 * PACKED_COLUMNS * 5 + 1024
    assert bool(stored(model, "uint4")) == (way != "two bits")


def test_packed_weights_that_are_read_as_they_are_stay_packed():
    packed, unpack = packed_by("halves", RNG.integers(0, 16, (PACKED_ROWS, PACKED_COLUMNS)))
    fn = lambda x: (x @ unpack(packed).astype(jnp.float32), packed)  # noqa: E731
    assert not stored(check_export(fn, [normal(4, PACKED_ROWS)], opset=21, rtol=1e-4, atol=1e-4), "uint4")


def test_packed_weights_at_older_opsets():
    packed, unpack = packed_by("halves", RNG.integers(0, 16, (PACKED_ROWS, PACKED_COLUMNS)))
    fn = lambda x: x @ (unpack(packed).astype(jnp.float32) * 0.5)  # noqa: E731
    check_export(fn, [normal(4, PACKED_ROWS)], opset=18, rtol=1e-4, atol=1e-4)


# ---- floats of 8 bits ----

FLOATS = ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"]


@pytest.mark.parametrize("kind", FLOATS)
@pytest.mark.parametrize("after", [False, True])
def test_weights_of_8_bits_with_a_fraction(kind, after):
    weight, scale = jnp.asarray(normal(64, 48)).astype(kind), scales("column")

    def fn(x):
        w = weight.astype(jnp.float32)
        return (x @ w) * scale if after else x @ (w * scale)

    model = check_export(fn, [normal(5, 64)], opset=21, rtol=1e-4, atol=1e-4)
    assert op_types(model).count("DequantizeLinear") == 1 and "Mul" not in op_types(model)
    assert sum(len(tensor.raw_data) for tensor in model.graph.initializer) < 64 * 48 + 1024


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("kind", FLOATS)
def test_numbers_that_8_bits_do_not_hold(kind, dtype):
    x = [0, -0.0, 240, 248, 249, 448, 464, 465, 480, -480, 495, 496, 57344, 61439, 61440, -61440, 65504]
    x = np.asarray([*x, np.inf, -np.inf, np.nan, 2**-9, 2**-10, 2**-10 * 1.01, *normal(300) * 100], dtype)
    check_export(lambda x: x.astype(kind).astype(jnp.float32), [x], opset=21, rtol=0, atol=0)


# ---- bits read as another type ----


@pytest.mark.parametrize("wide", ["int8", "uint8", "int16", "uint32"])
@pytest.mark.parametrize("half", ["int4", "uint4"])
def test_bits_of_four_bits(half, wide):
    info = np.iinfo(wide)
    x = RNG.integers(info.min, info.max, (3, 5), endpoint=True).astype(wide)
    apart = lambda x: jax.lax.bitcast_convert_type(x, half)  # noqa: E731
    check_export(lambda x: apart(x).astype(jnp.int32), [x], opset=21, rtol=0, atol=0)
    check_export(lambda x: jax.lax.bitcast_convert_type(apart(x) * 3, wide), [x], opset=21, rtol=0, atol=0)


@pytest.mark.parametrize("kind", FLOATS)
def test_floats_from_bytes(kind):
    x = np.arange(256).astype(np.uint8)
    check_export(lambda x: jax.lax.bitcast_convert_type(x, kind).astype(jnp.float32), [x], opset=21, rtol=0, atol=0)
    stored_bytes, y = jnp.asarray(x.reshape(16, 16) % 64), normal(3, 16)
    fn = lambda y: y @ (jax.lax.bitcast_convert_type(stored_bytes, kind).astype(jnp.float32) * 0.5)  # noqa: E731
    model = check_export(fn, [y], opset=21, rtol=1e-5, atol=1e-5)
    assert "Gather" not in op_types(model)


@pytest.mark.parametrize("kind", ["float8_e4m3fn", "float8_e5m2"])
def test_bytes_from_floats(kind):
    x = np.arange(256).astype(np.uint8).view(kind).astype(np.float32)
    x = x[np.isfinite(x)]
    check_export(lambda x: jax.lax.bitcast_convert_type(x.astype(kind), jnp.uint8), [x], opset=21, rtol=0, atol=0)
