"""Bits of floats and changes of element type, with and without ONNX's BitCast."""

import ml_dtypes
import numpy as np
import pytest
from export_check import check_export, op_types
from jax import lax
from jax._src.lax import lax as lax_primitives
from test_elementwise import FLOATS, INTEGERS, check, integer_values, pairs, wide

SAME_WIDTH = [
    (np.float16, np.uint16), (ml_dtypes.bfloat16, np.int16), (np.float32, np.int32), (np.float32, np.uint32),
    (np.float64, np.int64), (np.float64, np.uint64),
]  # fmt: skip


def name(dtype):
    return np.dtype(dtype).name


def floats(dtype):
    """Zeros, subnormal numbers, neighbours of powers of two, the largest numbers, infinities."""
    info = ml_dtypes.finfo(dtype)
    powers = 2.0 ** np.arange(info.minexp, info.maxexp, 1 if np.dtype(dtype).itemsize == 2 else 37)
    with np.errstate(all="ignore"):
        near = np.concatenate([powers.astype(dtype), (powers * (1 + float(info.eps))).astype(dtype)])
        near = np.concatenate([near, (powers * (1 - float(info.eps) / 2)).astype(dtype)])
    some = [0.0, 1.0, 1.5, np.pi, float(info.max), float(info.tiny), float(info.smallest_subnormal), np.inf]
    positive = np.concatenate([near, np.array(some, dtype)])
    return np.concatenate([positive, -positive])


@pytest.mark.parametrize(("real", "integer"), SAME_WIDTH, ids=name)
@pytest.mark.parametrize("opset", [18, 26])
def test_bits_of_floats(real, integer, opset):
    x = floats(real)
    check_export(lambda x: lax.bitcast_convert_type(x, integer), [x], x64=wide(real), opset=opset)
    model = check_export(lambda x: lax.bitcast_convert_type(x, real), [x.view(integer)], x64=wide(real), opset=opset)
    assert (op_types(model) == ["BitCast"]) == (opset == 26)


def test_bits_of_nan():
    x = np.array([np.nan, 1], np.float32)
    check_export(lambda x: lax.bitcast_convert_type(x, np.int32), [x])
    check_export(lambda x: lax.bitcast_convert_type(x, np.float32), [x.view(np.uint32)])


def test_bits_of_other_widths():
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    check_export(lambda x: lax.bitcast_convert_type(x, np.uint8), [x])
    check_export(lambda x: lax.bitcast_convert_type(x, np.float16), [x])
    check_export(lambda x: lax.bitcast_convert_type(x, np.uint32), [np.arange(8, dtype=np.uint8).reshape(2, 4)])
    check_export(lambda x: lax.bitcast_convert_type(x, np.float32), [x.view(np.int16).reshape(2, 4, 2)])
    check_export(lambda x: lax.bitcast_convert_type(x, np.int32), [np.array([-1, 5], np.int64)], x64=True)


@pytest.mark.parametrize("dtype", FLOATS, ids=name)
@pytest.mark.parametrize("opset", [18, 26])
def test_nextafter(dtype, opset):
    values = np.concatenate([floats(dtype)[::7], np.array([0.0, -0.0, 1, -1, np.nan, np.inf, -np.inf], dtype)])
    x, y = pairs(values)
    check_export(lambda x, y: lax.nextafter(x, y), [x, y], x64=wide(dtype), opset=opset, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [np.bool_, np.int32, np.uint8, *FLOATS], ids=name)
def test_total_order(dtype):
    orders = [lax_primitives.lt_to_p, lax_primitives.le_to_p, lax_primitives.eq_to_p]
    special = [0.0, -0.0, np.nan, np.inf, -np.inf] if np.dtype(dtype).kind not in "biu" else [0]
    x, y = pairs(np.array([0, 1, 2, *special], dtype))
    check(lambda x, y: [order.bind(x, y) for order in orders], [x, y], x64=wide(dtype))


@pytest.mark.parametrize("source", FLOATS, ids=name)
def test_floats_to_integers_saturate(source):
    values = [np.nan, np.inf, -np.inf, 1e20, -1e20, 3e9, -3e9, 2.0**31, 2.0**63, -(2.0**63), 1.9e19, 300, -300]
    with np.errstate(over="ignore"):
        x = np.array([*values, -1.5, 1.5, 0.99, -0.99, 127.9, -128.9, 255.5, 40000.5, 0.0, -0.0], source)
    check(lambda x: [x.astype(target) for target in (np.bool_, *INTEGERS)], [x], x64=True)


@pytest.mark.parametrize("source", FLOATS, ids=name)
def test_floats_to_floats(source):
    x = np.array([0.1, -0.0, 1e-5, 3e4, np.nan, np.inf, -np.inf], source)
    check(lambda x: [x.astype(target) for target in FLOATS], [x], x64=True)


@pytest.mark.parametrize("source", [np.bool_, *INTEGERS], ids=name)
def test_integers_wrap(source):
    x = np.array([False, True]) if source is np.bool_ else integer_values(source)
    check(lambda x: [x.astype(target) for target in (np.bool_, *INTEGERS, *FLOATS)], [x], x64=True)


@pytest.mark.parametrize("dtype", FLOATS, ids=name)
def test_reduce_precision(dtype):
    formats = [(5, 10), (8, 7), (8, 23), (4, 3), (8, 3), (11, 40), (3, 10)]
    x = np.concatenate([floats(dtype), np.array([np.nan, 0.9999, 1.0625, 1.1875, 240, 247, 248, 249, -1 / 3], dtype)])
    check(lambda x: [lax.reduce_precision(x, *bits) for bits in formats], [x], x64=wide(dtype), rtol=0, atol=0)
