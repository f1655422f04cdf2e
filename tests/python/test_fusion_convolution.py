"""What is constant by channel after a convolution, or after a product with a matrix, becomes a part of it."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from export_check import KEYS, check_export, metadata, op_types
from flax import nnx

RNG = np.random.default_rng(0)
X = RNG.standard_normal((2, 4, 6, 8)).astype(np.float32)
KERNEL = (RNG.standard_normal((6, 4, 3, 3)) / 6).astype(np.float32)
CHANNELS = RNG.uniform(0.5, 1.5, (6, 1, 1)).astype(np.float32)
CLOSE = {"rtol": 1e-4, "atol": 1e-5}


def conv(x, kernel=KERNEL, padding="SAME", **options):
    layout = ("NCHW", "OIHW", "NCHW")
    return jax.lax.conv_general_dilated(x, kernel, (1, 1), padding, dimension_numbers=layout, **options)


AFTER = {
    "bias": lambda y: y + CHANNELS,
    "bias before": lambda y: CHANNELS + y,
    "subtraction": lambda y: y - CHANNELS,
    "scale": lambda y: y * CHANNELS,
    "division": lambda y: y / CHANNELS,
    "a number": lambda y: y * 0.5 + 2,
    "batch normalisation": lambda y: (y - CHANNELS) * (jax.lax.rsqrt(CHANNELS + 1e-3) * CHANNELS) + CHANNELS[::-1],
    "far from zero": lambda y: (y - 1000 * CHANNELS) * CHANNELS,
}


@pytest.mark.parametrize("name", AFTER)
def test_after_a_convolution(name):
    close = {"rtol": 1e-4, "atol": 1e-3} if name == "far from zero" else CLOSE
    assert op_types(check_export(lambda x: AFTER[name](conv(x)), [X], **close)) == ["Conv"]


def test_after_a_grouped_convolution():
    def fn(x):
        return conv(x, KERNEL[:, :2], feature_group_count=2) * CHANNELS + CHANNELS

    assert op_types(check_export(fn, [X], **CLOSE)) == ["Conv"]


@pytest.mark.parametrize("groups", [1, 2])
def test_after_a_transposed_convolution(groups):
    kernel = (RNG.standard_normal((6, 4 // groups, 3, 3)) / 6).astype(np.float32)

    def fn(x):
        return conv(x, kernel, [(1, 2), (2, 1)], lhs_dilation=(2, 2), feature_group_count=groups) * CHANNELS - CHANNELS

    assert op_types(check_export(fn, [X], **CLOSE)) == ["ConvTranspose"]


def test_a_block_is_two_nodes():
    class Block(nnx.Module):
        def __init__(self, rngs):
            self.conv = nnx.Conv(4, 6, (3, 3), rngs=rngs)
            self.norm = nnx.BatchNorm(6, use_running_average=True, rngs=rngs)
            self.norm.mean[...] = jnp.arange(6.0)
            self.norm.var[...] = jnp.arange(1.0, 7.0)

        def __call__(self, x):
            return nnx.relu(self.norm(self.conv(x)))

    images = RNG.standard_normal((2, 8, 8, 4)).astype(np.float32)
    model = check_export(Block(nnx.Rngs(0)), [images], **CLOSE)
    assert op_types(model) == ["Transpose", "Conv", "Relu", "Transpose"]
    model = check_export(
        Block(nnx.Rngs(0)), [images], specs=[("B", "H", "W", 4)], more_args=[[images[:1, :5]]], **CLOSE
    )
    assert op_types(model) == ["Transpose", "Conv", "Relu", "Transpose"]


def test_a_bias_keeps_its_name():
    layer = eqx.nn.Conv2d(4, 6, 3, key=jax.random.key(0))
    model = check_export(jax.vmap(layer), [X], **CLOSE)
    assert op_types(model) == ["Conv"]
    assert model.graph.node[0].input[2].endswith("bias")


def test_half_precision():
    half = KERNEL.astype(np.float16)

    def fn(x):
        return conv(x, half) * CHANNELS.astype(np.float16) + CHANNELS.astype(np.float16)

    model = check_export(fn, [X.astype(np.float16)], rtol=2e-2, atol=2e-2)
    assert "Mul" not in op_types(model) or "Cast" in op_types(model)


@pytest.mark.parametrize("transposed", [False, True])
def test_after_a_product(transposed):
    matrix = RNG.standard_normal((5, 8) if transposed else (8, 5)).astype(np.float32)
    bias, scale = (RNG.standard_normal(5).astype(np.float32) for _ in range(2))

    def fn(x):
        return (x @ (matrix.T if transposed else matrix) + bias - scale) * scale + bias

    assert op_types(check_export(fn, [X[0, 0]], **CLOSE)) == ["Gemm"]

    def shifted(x):
        return x @ (matrix.T if transposed else matrix) - bias

    assert op_types(check_export(shifted, [X[0, 0]], **CLOSE)) == ["Gemm"]

    def scaled(x):
        return (x @ (matrix.T if transposed else matrix)) * scale

    assert op_types(check_export(scaled, [X[0, 0]], **CLOSE)) == ["MatMul"]


NEAR_MISSES = [
    lambda x: conv(x) + RNG.standard_normal((1, 6, 1, 8)).astype(np.float32),
    lambda x: conv(x) + RNG.standard_normal(8).astype(np.float32),
    lambda x: conv(x) * RNG.standard_normal((2, 6, 1, 1)).astype(np.float32),
    lambda x: conv(x) + x[:, :1],
    lambda x: conv(x)[:1, :, :1] + np.ones((3, 6, 4, 8), np.float32) * CHANNELS,
    lambda x: CHANNELS - conv(x),
]


@pytest.mark.parametrize("index", range(len(NEAR_MISSES)))
def test_near_misses_stay(index):
    fn = NEAR_MISSES[index]
    constants = jax.make_jaxpr(fn)(X)
    model = check_export(lambda x: jax.core.eval_jaxpr(constants.jaxpr, constants.consts, x)[0], [X], **CLOSE)
    assert len(op_types(model)) >= 2


def test_an_infinite_scale_stays():
    scale = np.array([1, np.inf, 1, 1, 1, 1], np.float32).reshape(6, 1, 1)
    assert op_types(check_export(lambda x: conv(x) * scale, [X], runs=False)) == ["Conv", "Mul"]


def test_what_something_else_reads_stays():
    def fn(x):
        y = conv(x)
        return y * CHANNELS, y

    assert sorted(op_types(check_export(fn, [X], **CLOSE))) == ["Conv", "Mul"]


def test_a_shared_weight_is_not_doubled():
    kernel = RNG.standard_normal((16, 16, 3, 3)).astype(np.float32)
    scale = RNG.standard_normal((16, 1, 1)).astype(np.float32)

    def fn(x):
        return conv(conv(x, kernel) * scale, kernel) * scale + scale

    x = RNG.standard_normal((1, 16, 4, 4)).astype(np.float32)
    assert op_types(check_export(fn, [x], rtol=1e-3, atol=1e-2)) == ["Conv", "Mul", "Conv", "BatchNormalization"]


def test_a_kernel_that_is_an_input_takes_a_bias_elsewhere():
    model = check_export(lambda x, kernel: conv(x, kernel) * CHANNELS, [X, KERNEL], **CLOSE)
    assert op_types(model) == ["Conv", "Mul"]


def test_it_names_all_its_lines():
    def fn(x):
        y = conv(x)
        y = y * CHANNELS
        return y + CHANNELS

    said = metadata(check_export(fn, [X], **CLOSE).graph.node[0])
    first = fn.__code__.co_firstlineno
    assert said[KEYS[0]].endswith(f"fn:{first + 3}")
    assert said[KEYS[1]].startswith("fuse_convolution:")
    for line in range(first + 1, first + 4):
        assert f":{line} (" in said[KEYS[3]]
