"""Padding becomes a part of what it pads for, and sums of windows become averages."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from export_check import KEYS, check_export, metadata, op_types
from flax import nnx

RNG = np.random.default_rng(0)
X = RNG.standard_normal((2, 4, 6, 8)).astype(np.float32)
IMAGES = RNG.standard_normal((2, 6, 8, 4)).astype(np.float32)
KERNEL = (RNG.standard_normal((6, 4, 3, 3)) / 6).astype(np.float32)
EDGES = ((0, 0), (0, 0), (1, 2), (2, 0))


def conv(x, padding="VALID"):
    return jax.lax.conv_general_dilated(x, KERNEL, (1, 1), padding, dimension_numbers=("NCHW", "OIHW", "NCHW"))


def max_pool(x, window=3):
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 1, window, window), (1, 1, 2, 2), "VALID")


def average_pool(x, window=3):
    sums = jax.lax.reduce_window(x, 0.0, jax.lax.add, (1, 1, window, window), (1, 1, 2, 2), "VALID")
    return sums / (window * window)


def pads(model, op):
    node = next(node for node in model.graph.node if node.op_type == op)
    return next(list(attribute.ints) for attribute in node.attribute if attribute.name == "pads")


def padded(x, value=0.0, edges=EDGES):
    return jnp.pad(x, edges, constant_values=value)


def test_convolution():
    model = check_export(lambda x: conv(padded(x)), [X], rtol=1e-4, atol=1e-5)
    assert op_types(model) == ["Conv"] and pads(model, "Conv") == [1, 2, 2, 0]
    model = check_export(lambda x: conv(padded(x), "SAME"), [X], rtol=1e-4, atol=1e-5)
    assert op_types(model) == ["Conv"] and pads(model, "Conv") == [2, 3, 3, 1]
    check_export(lambda x: conv(padded(x)), [X], specs=[("B", 4, 6, 8)], more_args=[[X[:1]]], rtol=1e-4, atol=1e-5)


def test_convolution_over_channels_last():
    kernel = KERNEL.transpose(2, 3, 1, 0)

    def fn(x):
        x = jnp.pad(x, ((0, 0), (3, 1), (0, 2), (0, 0)))
        return jax.lax.conv_general_dilated(x, kernel, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    model = check_export(fn, [IMAGES], rtol=1e-4, atol=1e-5)
    assert op_types(model) == ["Transpose", "Conv", "Transpose"] and pads(model, "Conv") == [3, 0, 1, 2]


def test_maximum():
    model = check_export(lambda x: max_pool(padded(x, -np.inf)), [X])
    assert op_types(model) == ["MaxPool"] and pads(model, "MaxPool") == [1, 2, 2, 0]
    assert op_types(check_export(lambda x: max_pool(padded(jax.nn.relu(x))), [X])) == ["Relu", "MaxPool"]
    assert op_types(check_export(lambda x: max_pool(padded(jnp.clip(x, 0, 6))), [X])) == ["Clip", "MaxPool"]


def test_average():
    model = check_export(lambda x: average_pool(padded(x)), [X])
    assert op_types(model) == ["AveragePool"] and pads(model, "AveragePool") == [1, 2, 2, 0]
    assert op_types(check_export(lambda x: average_pool(x) * 1.0, [X])) == ["AveragePool"]


NEAR_MISSES = {
    "a convolution pads with zeros": lambda x: conv(padded(x, 1.0)),
    "channels": lambda x: conv(jnp.pad(x[:, 1:], ((0, 0), (1, 0), (0, 0), (0, 0)))),
    "reflected": lambda x: conv(jnp.pad(x, EDGES, mode="reflect")),
    "a maximum of negative elements": lambda x: max_pool(padded(x)),
    "a maximum padded with more than it may have": lambda x: max_pool(padded(jax.nn.relu(x), 1.0)),
    "padding as large as a window": lambda x: max_pool(padded(x, -np.inf), 2),
    "an average pads with zeros": lambda x: average_pool(padded(x, 1.0)),
}


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_near_misses_stay(name):
    model = check_export(NEAR_MISSES[name], [X], rtol=1e-4, atol=1e-5)
    assert {"Pad", "Concat"} & set(op_types(model))


def test_what_something_else_reads_stays():
    def fn(x):
        y = padded(x)
        return conv(y), y

    assert "Pad" in op_types(check_export(fn, [X], rtol=1e-4, atol=1e-5))


def test_average_pooling_of_layers():
    assert op_types(check_export(lambda x: nnx.avg_pool(x, (2, 2), (2, 2)), [IMAGES])) == [
        "Transpose",
        "AveragePool",
        "Transpose",
    ]


@pytest.mark.parametrize("symbolic", [False, True])
def test_average_of_what_is_there(symbolic):
    def fn(x):
        return nnx.avg_pool(x, (3, 3), (2, 2), "SAME", count_include_pad=False)

    options = {"specs": [("B", 6, 8, 4)], "more_args": [[IMAGES[:1]]]} if symbolic else {}
    assert op_types(check_export(fn, [IMAGES], **options)) == ["Transpose", "AveragePool", "Transpose"]
    large = RNG.standard_normal((1, 160, 120, 1)).astype(np.float32)
    assert "Div" not in op_types(check_export(fn, [large]))


def test_another_divisor_stays():
    def fn(x):
        return average_pool(x) * 9 / 8

    assert op_types(check_export(fn, [X]))[0] == "AveragePool"
    assert len(op_types(check_export(fn, [X]))) > 1

    def other_window(x):
        sums = jax.lax.reduce_window(x, 0.0, jax.lax.add, (1, 1, 3, 3), (1, 1, 2, 2), "SAME")
        ones = jnp.ones_like(x)
        return sums / jax.lax.reduce_window(ones, 0.0, jax.lax.add, (1, 1, 2, 2), (1, 1, 2, 2), "SAME")

    assert "Div" in op_types(check_export(other_window, [X]))


def test_it_names_all_its_lines():
    def fn(x):
        y = jnp.pad(x, EDGES)
        return conv(y)

    said = metadata(check_export(fn, [X], rtol=1e-4, atol=1e-5).graph.node[0])
    first = fn.__code__.co_firstlineno
    assert said[KEYS[1]].startswith("fuse_pooling:")
    for line in (first + 1, first + 2):
        assert f":{line} (" in said[KEYS[3]]
