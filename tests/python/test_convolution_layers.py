"""Convolution and pooling layers of Flax and Equinox, and the operators they become."""

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from export_check import check_export, op_types
from flax import nnx

LAYOUTS = {1: (2, 9, 3), 2: (2, 8, 7, 3), 3: (1, 4, 5, 6, 3)}


def numbers(*shape):
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def batches(shape):
    """Arguments at other batch sizes than the traced one, and the symbolic shape."""
    return [[numbers(batch, *shape[1:])] for batch in (1, 2, 7)], ("B", *shape[1:])


def check_layer(fn, shape, **options):
    args, spec = batches(shape)
    return check_export(fn, args[0], specs=[spec], more_args=args[1:], **options)


@pytest.mark.parametrize(
    "rank,padding",
    [(1, "SAME"), (1, "CAUSAL"), (2, "SAME"), (2, "VALID"), (2, "CIRCULAR"), (2, "REFLECT"), (3, "SAME")],
)
def test_nnx_conv(rank, padding):
    layer = nnx.Conv(3, 4, (3,) * rank, strides=2, padding=padding, rngs=nnx.Rngs(0))
    check_layer(layer, LAYOUTS[rank])


def test_nnx_conv_is_a_convolution():
    layer = nnx.Conv(3, 4, (3, 3), rngs=nnx.Rngs(0))
    operators = op_types(check_layer(layer, LAYOUTS[2]))
    assert operators.count("Conv") == 1
    assert operators == ["Transpose", "Conv", "Transpose"]
    assert not {"Pad", "MatMul", "Slice"} & set(operators)


@pytest.mark.parametrize("options", [{"kernel_dilation": 2}, {"feature_group_count": 3}, {"input_dilation": 2}])
def test_nnx_conv_options(options):
    layer = nnx.Conv(3, 6, (3, 2), padding=((1, 1), (0, 2)), rngs=nnx.Rngs(0), **options)
    check_layer(layer, LAYOUTS[2])


@pytest.mark.parametrize(
    "rank,padding,transpose_kernel",
    [(1, "SAME", False), (2, "SAME", False), (2, "VALID", True), (2, "CIRCULAR", False), (3, "VALID", False)],
)
def test_nnx_conv_transpose(rank, padding, transpose_kernel):
    layer = nnx.ConvTranspose(
        3, 4, (3,) * rank, strides=(2,) * rank, padding=padding, transpose_kernel=transpose_kernel, rngs=nnx.Rngs(0)
    )
    assert "ConvTranspose" in op_types(check_layer(layer, LAYOUTS[rank]))


@pytest.mark.parametrize("module", [nn.Conv(4, (3, 3), strides=(1, 2)), nn.ConvTranspose(4, (3, 3), strides=(2, 2))])
def test_linen(module):
    variables = module.init(jax.random.key(0), jnp.zeros(LAYOUTS[2]))
    check_layer(lambda x: module.apply(variables, x), LAYOUTS[2])


@pytest.mark.parametrize("pool", [nnx.max_pool, nnx.min_pool, nnx.avg_pool])
@pytest.mark.parametrize("padding", ["SAME", "VALID"])
def test_flax_pooling(pool, padding):
    model = check_layer(lambda x: pool(x, (3, 2), strides=(2, 2), padding=padding), LAYOUTS[2])
    assert ("AveragePool" if pool is nnx.avg_pool else "MaxPool") in op_types(model)


def test_flax_average_without_padding():
    check_layer(lambda x: nnx.avg_pool(x, (3, 2), padding="SAME", count_include_pad=False), LAYOUTS[2])


def test_flax_max_pool_operators():
    model = check_export(lambda x: nnx.max_pool(x, (2, 2), strides=(2, 2)), [numbers(*LAYOUTS[2])])
    assert op_types(model) == ["Transpose", "MaxPool", "Transpose"]


EQUINOX = {
    "Conv1d": (lambda key: eqx.nn.Conv1d(3, 4, 3, key=key), (3, 9)),
    "Conv2d": (lambda key: eqx.nn.Conv2d(3, 4, 3, stride=2, padding=1, key=key), (3, 9, 8)),
    "Conv2d groups": (lambda key: eqx.nn.Conv2d(4, 8, 3, padding="SAME", groups=4, key=key), (4, 6, 7)),
    "Conv3d": (lambda key: eqx.nn.Conv3d(3, 4, 2, dilation=2, key=key), (3, 5, 6, 4)),
    "ConvTranspose1d": (lambda key: eqx.nn.ConvTranspose1d(3, 4, 3, stride=2, key=key), (3, 5)),
    "ConvTranspose2d": (
        lambda key: eqx.nn.ConvTranspose2d(3, 4, 3, 2, output_padding=1, padding=1, key=key),
        (3, 5, 4),
    ),
    "MaxPool2d": (lambda key: eqx.nn.MaxPool2d(2, 2), (3, 6, 7)),
    "MaxPool2d ceil": (lambda key: eqx.nn.MaxPool2d(3, 2, padding=1, use_ceil=True), (3, 6, 7)),
    "AvgPool1d": (lambda key: eqx.nn.AvgPool1d(3, 2, padding=1), (3, 9)),
    "AvgPool3d": (lambda key: eqx.nn.AvgPool3d(2, 2), (3, 4, 5, 6)),
    "AdaptiveAvgPool2d": (lambda key: eqx.nn.AdaptiveAvgPool2d(2), (3, 6, 8)),
}


@pytest.mark.parametrize("name", EQUINOX)
def test_equinox(name):
    build, shape = EQUINOX[name]
    layer = build(jax.random.key(0))
    check_export(layer, [numbers(*shape)])
    check_layer(jax.vmap(layer), (2, *shape))
