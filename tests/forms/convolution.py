"""Convolutions with what follows them: bias, batch normalisation, activation, written in many ways."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from forms import TYPES, Choices, Form

Array = Any
CHANNELS, FEATURES = 4, 6


def make(choices: Choices) -> Form:
    dtype = choices.take("type", "float32", "float32", "float32", "float16")
    library = choices.take("written", "lax", "lax", "flax.linen", "flax.nnx", "keras", "equinox")
    batch = choices.take("batch", 1, 2, "symbol") if library != "equinox" else None
    space = choices.take("size", 8, "symbol")
    if library != "lax":
        dtype = choices.take("type", "float32")
        space = choices.take("size", 8)
    order = choices.take("order", "channels last", "channels first") if library == "lax" else "channels last"
    if library == "equinox":
        order = choices.take("order", "channels first")
    activation = choices.take("activation", "none", "relu", "relu", "tanh")
    layer = _lax(choices, dtype, order) if library == "lax" else _LIBRARIES[library](choices.take("norm", True, False))
    after = {"none": lambda y: y, "relu": jax.nn.relu, "tanh": jnp.tanh}[activation]
    sizes = [5 if space == "symbol" else space] * 2
    names = ["H", "W"] if space == "symbol" else sizes
    lead, named = ([] if batch is None else [3 if batch == "symbol" else batch]), []
    if batch is not None:
        named = ["B" if batch == "symbol" else batch]
    shape = [*lead, *sizes, CHANNELS] if order == "channels last" else [*lead, CHANNELS, *sizes]
    spec = (*named, *names, CHANNELS) if order == "channels last" else (*named, CHANNELS, *names)
    numbers = choices.normal(shape, dtype)
    specs = [jax.ShapeDtypeStruct(spec, TYPES[dtype])] if any(isinstance(size, str) for size in spec) else None
    most = 1 + (activation != "none") + (2 if order == "channels last" or batch is None else 0)
    absent = ("Pad", "BatchNormalization", "Mul", "Add", "Sub", "Div", "Sqrt")
    return Form(
        lambda x: after(layer(x)),
        [numbers],
        {"Conv": 1},
        specs,
        absent=absent,
        most=most,
        dtype=dtype,
        tolerance={"float32": 1e-4, "float16": 2e-2}[dtype],
    )


def _lax(choices: Choices, dtype: str, order: str) -> Callable[[Array], Array]:
    size, stride = choices.take("window", 1, 3), choices.take("stride", 1, 2)
    padding = choices.take("padding", "VALID", "SAME", "before")
    bias = choices.take("bias", "none", "sum", "sum first")
    norm = choices.take("norm", "none", "by hand", "scale and shift", "folded by hand")
    dilation = choices.take("dilation", 1, 1, 2)
    groups = choices.take("groups", 1, 1, 2)
    last = order == "channels last"
    numbers = ("NHWC", "HWIO", "NHWC") if last else ("NCHW", "OIHW", "NCHW")
    shape = (size, size, CHANNELS // groups, FEATURES) if last else (FEATURES, CHANNELS // groups, size, size)
    kernel = jnp.asarray(choices.normal(shape, dtype, 0.3))
    by_channel = (lambda v: v) if last else (lambda v: v[:, None, None])
    normal = lambda: by_channel(jnp.asarray(choices.normal((FEATURES,), dtype)))  # noqa: E731
    shift, mean, scale, offset = normal(), normal(), normal(), normal()
    variance = by_channel(jnp.asarray(np.abs(choices.normal((FEATURES,), "float32")).astype(TYPES[dtype]) + 1))

    def fn(x: Array) -> Array:
        pads = padding
        if padding == "before":
            around = [(0, 0), (1, 1), (1, 1), (0, 0)] if last else [(0, 0), (0, 0), (1, 1), (1, 1)]
            x, pads = jnp.pad(x, around), "VALID"
        y = jax.lax.conv_general_dilated(
            x,
            kernel,
            (stride, stride),
            pads,
            rhs_dilation=(dilation, dilation),
            dimension_numbers=numbers,
            feature_group_count=groups,
        )
        if bias != "none":
            y = y + shift if bias == "sum" else shift + y
        if norm == "by hand":
            y = (y - mean) / jnp.sqrt(variance + 1e-3) * scale + offset
        elif norm == "scale and shift":
            y = y * scale + offset
        elif norm == "folded by hand":
            factor = scale * jax.lax.rsqrt(variance + 1e-3)
            y = y * factor + (offset - mean * factor)
        return y

    return fn


@functools.cache
def _linen(norm: bool) -> Callable[[Array], Array]:
    from flax import linen

    class Block(linen.Module):
        @linen.compact
        def __call__(self, x: Array) -> Array:
            y = linen.Conv(FEATURES, (3, 3))(x)
            return linen.BatchNorm(use_running_average=True)(y) if norm else y

    block = Block()
    weights = block.init(jax.random.key(0), jnp.zeros((1, 8, 8, CHANNELS)))
    return lambda x: block.apply(weights, x)


@functools.cache
def _nnx(norm: bool) -> Callable[[Array], Array]:
    from flax import nnx

    conv = nnx.Conv(CHANNELS, FEATURES, (3, 3), rngs=nnx.Rngs(0))
    if not norm:
        return conv
    after = nnx.BatchNorm(FEATURES, use_running_average=True, rngs=nnx.Rngs(0))
    return lambda x: after(conv(x))


@functools.cache
def _keras(norm: bool) -> Callable[[Array], Array]:
    os.environ.setdefault("KERAS_BACKEND", "jax")
    import keras

    layers = [keras.layers.Conv2D(FEATURES, 3, padding="same")]
    if norm:
        layers.append(keras.layers.BatchNormalization())
    model = keras.Sequential([keras.layers.Input((8, 8, CHANNELS)), *layers])
    return lambda x: model(x, training=False)


@functools.cache
def _equinox(norm: bool) -> Callable[[Array], Array]:
    import equinox

    del norm  # its statistics are state
    return equinox.nn.Conv2d(CHANNELS, FEATURES, 3, padding=1, key=jax.random.key(0))


_LIBRARIES = {"flax.linen": _linen, "flax.nnx": _nnx, "keras": _keras, "equinox": _equinox}
