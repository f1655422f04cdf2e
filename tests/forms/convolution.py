"""Convolutions with what follows them: bias, batch normalisation, activation, written in many ways."""

from __future__ import annotations

import dataclasses
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
SPACES = {1: (8,), 2: (8, 7), 3: (5, 4, 6)}
NAMES = ("H", "W", "D")
AXES = {1: "W", 2: "HW", 3: "DHW"}
TOLERANCE = {"float32": 1e-4, "float16": 2e-2, "bfloat16": 1e-1}


def make(choices: Choices) -> Form:
    kind = choices.take("kind", "plain", "plain", "plain", "library", "library", "transposed", "product")
    dtype = choices.take("type", "float32", "float32", "float32", "float16", "bfloat16")
    batch = choices.take("batch", 1, 2, "symbol")
    axes = choices.take("axes", 1, 2, 2, 2, 3)
    symbolic = choices.take("symbolic space", False, False, True)
    order = choices.take("order", "channels last", "channels first")
    if kind == "library":
        dtype, symbolic = choices.take("type", "float32"), choices.take("symbolic space", False)
        made = _library(choices, axes)
    else:
        if kind == "transposed":
            symbolic = choices.take("symbolic space", False)
        made = {"plain": _lax, "transposed": _transposed, "product": _product}[kind](choices, dtype, order, axes)
    order = made.order or order
    if "Pad" in made.expected:  # by rows of its own, which JAX wants to know the number of
        symbolic = choices.take("symbolic space", False)
    after, nodes = _ACTIVATIONS[choices.take("activation", *_ACTIVATIONS)]
    space: tuple[Any, ...] = SPACES[axes]
    lead, count = ("B" if batch == "symbol" else batch), (3 if batch == "symbol" else batch)
    last = order == "channels last"
    named = NAMES[:axes] if symbolic else space
    shape = [count, *space, CHANNELS] if last else [count, CHANNELS, *space]
    spec = (lead, *named, CHANNELS) if last else (lead, CHANNELS, *named)
    numbers = choices.normal(shape, dtype)
    specs = [jax.ShapeDtypeStruct(spec, TYPES[dtype])] if any(isinstance(size, str) for size in spec) else None
    apart = None
    if symbolic and _pads_by_size(choices.made):
        apart = "how much SAME pads depends on the size, and the runtime's own SAME has no dilation"
    absent = ("Pad", "Concat", "BatchNormalization") + (("Sub", "Div", "Sqrt") if nodes < 2 else ())
    most = made.most + nodes + 2 * last + 2 * (dtype == "bfloat16")
    return Form(
        lambda x: after(made.fn(x)),
        [numbers],
        made.expected,
        specs,
        absent=tuple(name for name in absent if name not in made.expected),
        most=most,
        apart=apart,
        dtype=dtype,
        tolerance=TOLERANCE[dtype],
    )


# What follows it, and in how many nodes.
_ACTIVATIONS: dict[str, tuple[Callable[[Array], Array], int]] = {
    "none": (lambda y: y, 0),
    "relu": (jax.nn.relu, 1),
    "tanh": (jnp.tanh, 1),
    "relu6": (jax.nn.relu6, 1),
    "leaky relu": (lambda y: jax.nn.leaky_relu(y, 0.1), 1),
    "sigmoid": (jax.nn.sigmoid, 1),
    "gelu": (jax.nn.gelu, 1),
    "silu": (jax.nn.silu, 2),
}


@dataclasses.dataclass
class _Made:
    fn: Callable[[Array], Array]
    expected: dict[str, int]
    most: int = 1  # nodes, of channels that come second
    order: str | None = None  # when it has one of its own


def _pads_by_size(made: dict[str, Any]) -> bool:
    return made.get("padding") == "SAME" and made.get("stride", 1) > 1 and made.get("dilation", 1) > 1


def _by_channel(order: str, axes: int) -> Callable[[Array], Array]:
    return (lambda v: v) if order == "channels last" else (lambda v: v.reshape(v.shape[0], *[1] * axes))


def _followed(choices: Choices, dtype: str, by_channel: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """What is added and multiplied by channel."""
    bias = choices.take("bias", "none", "sum", "sum first", "reshaped")
    norm = choices.take("norm", "none", "by hand", "rsqrt", "scale and shift", "folded by hand", "scale", "divided")
    wide = dtype != "float32" and choices.take("norm in", "its own", "float32") == "float32"
    kind = "float32" if wide else dtype
    normal = lambda kind: by_channel(jnp.asarray(choices.normal((FEATURES,), kind)))  # noqa: E731
    shift, mean, scale, offset = normal(dtype), normal(kind), normal(kind), normal(kind)
    variance = by_channel(jnp.asarray(np.abs(choices.normal((FEATURES,), "float32")).astype(TYPES[kind]) + 1))
    inverse = jax.lax.rsqrt(variance + 1e-3)
    norms: dict[str, Callable[[Array], Array]] = {
        "none": lambda y: y,
        "by hand": lambda y: (y - mean) / jnp.sqrt(variance + 1e-3) * scale + offset,
        "rsqrt": lambda y: scale * ((y - mean) * jax.lax.rsqrt(variance + 1e-3)) + offset,
        "scale and shift": lambda y: y * scale + offset,
        "folded by hand": lambda y: y * (scale * inverse) + (offset - mean * (scale * inverse)),
        "scale": lambda y: scale * y,
        "divided": lambda y: (y - mean) / variance,
    }

    def fn(y: Array) -> Array:
        if bias != "none":
            given = shift.reshape(1, *shift.shape) if bias == "reshaped" else shift
            y = given + y if bias == "sum first" else y + given
        return norms[norm](y.astype(jnp.float32)).astype(y.dtype) if wide else norms[norm](y)

    return fn


def _numbers(order: str, axes: int, turned: bool = False) -> tuple[str, str, str]:
    image = f"N{AXES[axes]}C" if order == "channels last" else f"NC{AXES[axes]}"
    return image, f"{AXES[axes]}IO" if order == "channels last" else f"OI{AXES[axes]}", image


def _lax(choices: Choices, dtype: str, order: str, axes: int) -> _Made:
    size, stride = choices.take("window", 1, 3), choices.take("stride", 1, 2)
    padding = choices.take(
        "padding", "VALID", "SAME", "before", "joined", "explicit", "unequal", "edge", "reflect", "wrap"
    )
    dilation = choices.take("dilation", 1, 1, 2) if axes < 3 else choices.take("dilation", 1)
    depthwise = choices.take("depthwise", False, False, True)
    groups = 2 if depthwise else choices.take("groups", 1, 1, 2)
    last = order == "channels last"
    window = (size,) * axes
    shape = (*window, CHANNELS // groups, FEATURES) if last else (FEATURES, CHANNELS // groups, *window)
    kernel = jnp.asarray(choices.normal(shape, dtype, 0.3))
    follow = _followed(choices, dtype, _by_channel(order, axes))
    repeats = padding in ("edge", "reflect", "wrap")
    apart = repeats or padding in ("before", "joined")
    pads: Any = {"explicit": [(1, 1)] * axes, "unequal": [(1, 0)] * axes}.get(padding, "VALID" if apart else padding)

    def fn(x: Array) -> Array:
        if padding == "before" or repeats:
            around = [(1, 1)] * axes
            mode = padding if repeats else "constant"
            x = jnp.pad(x, [(0, 0), *around, (0, 0)] if last else [(0, 0), (0, 0), *around], mode)
        if padding == "joined":
            for axis in range(1 if last else 2, axes + (1 if last else 2)):
                row = jnp.zeros([1 if i == axis else n for i, n in enumerate(x.shape)], x.dtype)
                x = jnp.concatenate([row, x, row], axis)
        return follow(
            jax.lax.conv_general_dilated(
                x,
                kernel,
                (stride,) * axes,
                pads,
                rhs_dilation=(dilation,) * axes,
                dimension_numbers=_numbers(order, axes),
                feature_group_count=groups,
            )
        )

    return _Made(fn, {"Conv": 1, "Pad": 1}, 2) if repeats else _Made(fn, {"Conv": 1})


def _transposed(choices: Choices, dtype: str, order: str, axes: int) -> _Made:
    size, stride = choices.take("window", 2, 3), choices.take("stride", 1, 2, 3)
    padding = choices.take("padding", "VALID", "SAME")
    last = order == "channels last"
    window = (size,) * axes
    shape = (*window, CHANNELS, FEATURES) if last else (FEATURES, CHANNELS, *window)
    kernel = jnp.asarray(choices.normal(shape, dtype, 0.3))
    follow = _followed(choices, dtype, _by_channel(order, axes))
    numbers = _numbers(order, axes)

    def fn(x: Array) -> Array:
        return follow(jax.lax.conv_transpose(x, kernel, (stride,) * axes, padding, dimension_numbers=numbers))

    return _Made(fn, {"Conv": 1} if stride == 1 else {"ConvTranspose": 1})


def _product(choices: Choices, dtype: str, order: str, axes: int) -> _Made:
    """A window of one is a product over the channels. Where these come last it stays one: with a bias a Gemm
    needs a matrix, and an image is none."""
    matrix = jnp.asarray(choices.normal((CHANNELS, FEATURES), dtype, 0.3))
    bias = jnp.asarray(choices.normal((FEATURES,), dtype))
    by_channel = _by_channel(order, axes)
    letters = "xyz"[:axes]
    if order == "channels last":
        by = choices.take("by", "matmul", "einsum", "dot_general", "tensordot")
        ways: dict[str, Callable[[Array], Array]] = {
            "matmul": lambda x: x @ matrix,
            "einsum": lambda x: jnp.einsum(f"b{letters}c,co->b{letters}o", x, matrix),
            "dot_general": lambda x: jax.lax.dot_general(x, matrix, (((x.ndim - 1,), (0,)), ((), ()))),
            "tensordot": lambda x: jnp.tensordot(x, matrix, 1),
        }
        return _Made(lambda x: ways[by](x) + bias, {"MatMul": 1}, 2)
    by = choices.take("by", *_FIRST)
    product = _FIRST[by]
    inside = by == "moved" and choices.take("bias", "inside", "outside") == "inside"

    def first(x: Array) -> Array:
        if inside:
            return jnp.moveaxis(jnp.moveaxis(x, 1, -1) @ matrix + bias, -1, 1)
        return product(x, matrix, letters) + by_channel(bias)

    return _Made(first, {"Conv": 1})


# Products over the channels, which come second.
_FIRST: dict[str, Callable[[Array, Array, str], Array]] = {
    "einsum": lambda x, w, s: jnp.einsum(f"bc{s},co->bo{s}", x, w),
    "einsum of its transpose": lambda x, w, s: jnp.einsum(f"oc,bc{s}->bo{s}", w.T, x),
    "moved": lambda x, w, s: jnp.moveaxis(jnp.moveaxis(x, 1, -1) @ w, -1, 1),
    "swapped": lambda x, w, s: jnp.swapaxes(jnp.swapaxes(x, 1, -1) @ w, 1, -1),
    "flat": lambda x, w, s: (w.T @ x.reshape(*x.shape[:2], -1)).reshape(x.shape[0], w.shape[1], *x.shape[2:]),
    "tensordot": lambda x, w, s: jnp.moveaxis(jnp.tensordot(w, x, ((0,), (1,))), 0, 1),
    "dot_general": lambda x, w, s: jnp.moveaxis(jax.lax.dot_general(x, w, (((1,), (0,)), ((), ()))), -1, 1),
    "vmap": lambda x, w, s: jax.vmap(lambda image: jnp.einsum(f"c{s},co->o{s}", image, w))(x),
}


# ---- libraries ----


def _library(choices: Choices, axes: int) -> _Made:
    library = choices.take("written", "flax.linen", "flax.nnx", "keras", "equinox")
    norm = choices.take("norm", True, False)
    layer = choices.take("layer", "plain", "plain", "strided", "depthwise", "dilated", "transposed")
    fn = _LIBRARIES[library](layer, norm, axes)
    order = "channels first" if library == "equinox" else "channels last"
    choices.take("order", order)
    return _Made(fn, {"ConvTranspose" if layer == "transposed" else "Conv": 1}, order=order)


_OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "strided": {"strides": 2},
    "depthwise": {"groups": 2},
    "dilated": {"dilation": 2},
    "transposed": {"strides": 2},
}


@functools.cache
def _linen(layer: str, norm: bool, axes: int) -> Callable[[Array], Array]:
    from flax import linen

    options = dict(_OPTIONS[layer])
    groups, dilation = options.pop("groups", 1), options.pop("dilation", 1)
    options["strides"] = (options.get("strides", 1),) * axes

    class Block(linen.Module):
        @linen.compact
        def __call__(self, x: Array) -> Array:
            if layer == "transposed":
                y = linen.ConvTranspose(FEATURES, (3,) * axes, **options)(x)
            else:
                y = linen.Conv(
                    FEATURES, (3,) * axes, feature_group_count=groups, kernel_dilation=(dilation,) * axes, **options
                )(x)
            return linen.BatchNorm(use_running_average=True)(y) if norm else y

    block = Block()
    weights = block.init(jax.random.key(0), jnp.zeros((1, *SPACES[axes], CHANNELS)))
    return lambda x: block.apply(weights, x)


@functools.cache
def _nnx(layer: str, norm: bool, axes: int) -> Callable[[Array], Array]:
    from flax import nnx

    options = dict(_OPTIONS[layer])
    groups, dilation = options.pop("groups", 1), options.pop("dilation", 1)
    options["strides"] = (options.get("strides", 1),) * axes
    if layer == "transposed":
        conv = nnx.ConvTranspose(CHANNELS, FEATURES, (3,) * axes, rngs=nnx.Rngs(0), **options)
    else:
        options |= {"feature_group_count": groups, "kernel_dilation": (dilation,) * axes}
        conv = nnx.Conv(CHANNELS, FEATURES, (3,) * axes, rngs=nnx.Rngs(0), **options)
    if not norm:
        return conv
    after = nnx.BatchNorm(FEATURES, use_running_average=True, rngs=nnx.Rngs(0))
    return lambda x: after(conv(x))


@functools.cache
def _keras(layer: str, norm: bool, axes: int) -> Callable[[Array], Array]:
    os.environ.setdefault("KERAS_BACKEND", "jax")
    import keras

    options = dict(_OPTIONS[layer])
    if "dilation" in options:
        options["dilation_rate"] = options.pop("dilation")
    kind = getattr(keras.layers, f"Conv{axes}D{'Transpose' if layer == 'transposed' else ''}")
    layers = [kind(FEATURES, 3, padding="same", **options)]
    if norm:
        layers.append(keras.layers.BatchNormalization())
    model = keras.Sequential([keras.layers.Input((*SPACES[axes], CHANNELS)), *layers])
    return lambda x: model(x, training=False)


@functools.cache
def _equinox(layer: str, norm: bool, axes: int) -> Callable[[Array], Array]:
    import equinox

    del norm  # its statistics are state
    options = dict(_OPTIONS[layer])
    options["stride"] = options.pop("strides", 1)
    kind = getattr(equinox.nn, f"Conv{'Transpose' if layer == 'transposed' else ''}{axes}d")
    return jax.vmap(kind(CHANNELS, FEATURES, 3, padding=1, key=jax.random.key(0), **options))


_LIBRARIES = {"flax.linen": _linen, "flax.nnx": _nnx, "keras": _keras, "equinox": _equinox}
