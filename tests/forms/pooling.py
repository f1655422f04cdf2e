"""Pooling: windows and whole images, by libraries and by hand, of known and unknown sizes."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import math
import os
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from forms import TYPES, Choices, Form

Array = Any
CHANNELS = 3
SPACES = {1: [(8,), (9,)], 2: [(8, 8), (9, 7)], 3: [(6, 4, 8)]}
NAMES, SIZES = ("H", "W", "D"), (5, 6, 4)


def make(choices: Choices) -> Form:
    kind = choices.take("kind", "whole", "window", "window", "blocks")
    dtype = choices.take("type", "float32", "float32", "float32", "float16", "bfloat16")
    batch = choices.take("batch", 1, 2, "symbol")
    axes = choices.take("axes of space", 1, 2, 2, 2, 3)
    space = choices.take("size", *SPACES[axes], *(["symbol"] if kind == "whole" else []))
    order = choices.take("order", "channels last", "channels last", "channels first")
    if kind == "blocks":
        space = choices.take("size", tuple(8 for _ in range(axes)))
    made = {"whole": _whole, "window": _window, "blocks": _blocks}[kind](choices, order, axes)
    last = order == "channels last"
    sizes = SIZES[:axes] if space == "symbol" else space
    named = NAMES[:axes] if space == "symbol" else space
    shape = (batch, *sizes, CHANNELS) if last else (batch, CHANNELS, *sizes)
    spec = (batch, *named, CHANNELS) if last else (batch, CHANNELS, *named)
    numbers = choices.normal([3 if size == "symbol" else size for size in shape], dtype)
    spec = tuple("B" if size == "symbol" else size for size in spec)
    specs = [jax.ShapeDtypeStruct(spec, TYPES[dtype])] if any(isinstance(size, str) for size in spec) else None
    most = made.most + 2 * (dtype != "float32")
    apart = None
    if dtype == "float16" and space == "symbol" and choices.made.get("by") in ("sum and size", "sum and product"):
        apart = "float16 has no number for sizes beyond 65504: JAX divides by infinity there"
    return Form(made.fn, [numbers], made.expected, specs, absent=made.absent, most=most, apart=apart, dtype=dtype)


@dataclasses.dataclass
class _Made:
    fn: Callable[[Array], Array]
    expected: dict[str, int]
    absent: tuple[str, ...]
    most: int  # nodes in float32


def _axes(order: str, axes: int) -> tuple[int, ...]:
    first = 1 if order == "channels last" else 2
    return tuple(range(first, first + axes))


def _spread(order: str, sizes: tuple[int, ...]) -> tuple[int, ...]:
    return (1, *sizes, 1) if order == "channels last" else (1, 1, *sizes)


# ---- the whole image ----


def _whole(choices: Choices, order: str, axes: int) -> _Made:
    what = choices.take("what", "mean", "mean", "max")
    kept = choices.take("axes", "kept", "dropped")
    means = _WHOLE_MEANS if order == "channels last" else {**_WHOLE_MEANS, "adaptive": _adaptive}
    ways = means if what == "mean" else _WHOLE_MAXIMA
    way_name = choices.take("by", *ways)
    way = ways[way_name]
    over = _axes(order, axes)

    def fn(x: Array) -> Array:
        y = way(x, over)
        return y if kept == "kept" else jnp.squeeze(y, over)

    if what == "max":
        # Beside each ReduceMax two nodes that keep NaN, which the runtime's loses.
        return _Made(fn, {}, ("ReduceSum", "Where"), 3 * (axes if ways[way_name] is _largest_by_one else 1) + 1)
    # Axes by themselves are means of means; what is dropped afterwards is one node more.
    most = 1 if way is _by_window else 6 if way_name == "adaptive" else 5
    return _Made(fn, {}, ("Div", "Shape", "ReduceSum", "Mul"), most)


Whole = Callable[[Array, tuple[int, ...]], Array]


def _by_size(x: Array, over: tuple[int, ...]) -> Array:
    return jnp.sum(x, axis=over, keepdims=True) / math.prod(x.shape[axis] for axis in over)


def _one_by_one(x: Array, over: tuple[int, ...]) -> Array:
    for axis in reversed(over):
        x = jnp.mean(x, axis=axis, keepdims=True)
    return x


def _by_window(x: Array, over: tuple[int, ...]) -> Array:
    if not all(isinstance(x.shape[axis], int) for axis in over):
        return jnp.mean(x, axis=over, keepdims=True)
    window = tuple(x.shape[i] if i in over else 1 for i in range(x.ndim))
    y = jax.lax.reduce_window(x, jnp.zeros((), x.dtype), jax.lax.add, window, (1,) * x.ndim, "VALID")
    return y / jnp.asarray(math.prod(window), x.dtype)


def _flat(x: Array, over: tuple[int, ...]) -> Array:
    """Of channels that come last or second."""
    last = over[0] == 1
    y = x.reshape(x.shape[0], -1, CHANNELS) if last else x.reshape(x.shape[0], CHANNELS, -1)
    return jnp.expand_dims(y.mean(1 if last else 2), over)


def _adaptive(x: Array, over: tuple[int, ...]) -> Array:
    import equinox

    if not all(isinstance(x.shape[axis], int) for axis in over):
        return jnp.mean(x, axis=over, keepdims=True)
    kind = (equinox.nn.AdaptiveAvgPool1d, equinox.nn.AdaptiveAvgPool2d, equinox.nn.AdaptiveAvgPool3d)[len(over) - 1]
    return jax.vmap(kind(1))(x)


def _largest_by_one(x: Array, over: tuple[int, ...]) -> Array:
    return functools.reduce(lambda y, axis: jnp.max(y, axis, keepdims=True), over, x)


_WHOLE_MEANS: dict[str, Whole] = {
    "numpy": lambda x, over: jnp.mean(x, axis=over, keepdims=True),
    "dropped and put back": lambda x, over: jnp.expand_dims(jnp.mean(x, axis=over), over),
    "sum and size": _by_size,
    "sum and product": lambda x, over: jnp.sum(x, axis=over, keepdims=True) * (1 / _count(x, over)),
    "reduce_window": _by_window,
    "one by one": _one_by_one,
    "flat": _flat,
}
_WHOLE_MAXIMA: dict[str, Whole] = {
    "numpy": lambda x, over: jnp.max(x, axis=over, keepdims=True),
    "one by one": _largest_by_one,
    "dropped and put back": lambda x, over: jnp.expand_dims(x.max(over), over),
}


def _count(x: Array, over: tuple[int, ...]) -> Array:
    return math.prod(x.shape[axis] for axis in over)


# ---- windows ----


def _window(choices: Choices, order: str, axes: int) -> _Made:
    what = choices.take("what", "mean", "max")
    size, stride = choices.take("window", 2, 3), choices.take("stride", 1, 2)
    padding = choices.take("padding", "VALID", "SAME", "explicit")
    pads: Any = [(1, 1)] * axes if padding == "explicit" else padding
    by = choices.take("by", "reduce_window", "reduce_window", "flax.linen", "flax.nnx", "keras", "equinox")
    if by == "equinox" and (order == "channels last" or padding == "SAME"):
        by = choices.take("by", "reduce_window")
    if (by in ("flax.linen", "flax.nnx") and order == "channels first") or (by == "keras" and padding == "explicit"):
        by = choices.take("by", "reduce_window")
    if by == "keras" and order == "channels first":
        by = choices.take("by", "reduce_window")
    counted = choices.take("padding counts", True, False) if what == "mean" and by in _COUNTING else True
    can_dilate = what == "max" and by == "reduce_window" and axes < 3
    dilation = choices.take("dilation", 1, 1, 2) if can_dilate else 1
    sizes, strides = (size,) * axes, (stride,) * axes

    def fn(x: Array) -> Array:
        if by == "keras":
            return _keras(what, size, stride, padding, axes)(x)
        if by == "equinox":
            return _equinox(what, size, stride, padding, axes)(x)
        if by.startswith("flax"):
            library = importlib.import_module(by)
            if what == "max":
                return library.max_pool(x, sizes, strides=strides, padding=pads)
            return library.avg_pool(x, sizes, strides=strides, padding=pads, count_include_pad=counted)
        return _reduced(x, what, order, (sizes, strides, pads), counted, dilation)

    expected = {"AveragePool" if what == "mean" else "MaxPool": 1}
    return _Made(fn, expected, ("Div", "Pad", "Conv"), 1 + 2 * (order == "channels last"))


_COUNTING = ("reduce_window", "flax.linen", "flax.nnx")


def _reduced(x: Array, what: str, order: str, window: Any, counted: bool, dilation: int) -> Array:
    sizes, strides, pads = window
    pads = _spread_pads(order, pads)
    sizes, strides = _spread(order, sizes), _spread(order, strides)
    dilations = tuple(dilation if size > 1 else 1 for size in sizes)
    reduce = functools.partial(
        jax.lax.reduce_window, window_dimensions=sizes, window_strides=strides, padding=pads, window_dilation=dilations
    )
    if what == "max":
        return reduce(x, jnp.asarray(-jnp.inf, x.dtype), jax.lax.max)
    total = reduce(x, jnp.zeros((), x.dtype), jax.lax.add)
    if counted:
        return total / math.prod(sizes)
    return total / reduce(jnp.ones_like(x), jnp.zeros((), x.dtype), jax.lax.add)


def _spread_pads(order: str, pads: Any) -> Any:
    if isinstance(pads, str):
        return pads
    return [(0, 0), *pads, (0, 0)] if order == "channels last" else [(0, 0), (0, 0), *pads]


def _keras(what: str, size: int, stride: int, padding: str, axes: int) -> Callable[[Array], Array]:
    os.environ.setdefault("KERAS_BACKEND", "jax")
    import keras

    kind = getattr(keras.layers, f"{'Average' if what == 'mean' else 'Max'}Pooling{axes}D")
    return kind(size, strides=stride, padding=padding.lower())


def _equinox(what: str, size: int, stride: int, padding: str, axes: int) -> Callable[[Array], Array]:
    import equinox

    kind = getattr(equinox.nn, f"{'Avg' if what == 'mean' else 'Max'}Pool{axes}d")
    return jax.vmap(kind(size, stride, padding=1 if padding == "explicit" else 0))


# ---- blocks that do not overlap ----


def _blocks(choices: Choices, order: str, axes: int) -> _Made:
    """Each axis of the image becomes one of blocks and one inside them: a Reshape and a reduction are enough. MaxPool
    would be fewer, but in ONNX Runtime it loses NaN, which a maximum keeps."""
    what = choices.take("what", "mean", "max", "sum and size")
    size = choices.take("window", 2, 4)
    inner = tuple(axis + 1 + k for k, axis in enumerate(_axes(order, axes)))

    def fn(x: Array) -> Array:
        shape: list[Any] = []
        for axis, length in enumerate(x.shape):
            shape += [length // size, size] if axis in _axes(order, axes) else [length]
        y = x.reshape(shape)
        if what == "max":
            return y.max(inner)
        return y.mean(inner) if what == "mean" else y.sum(inner) / size**axes

    expected = {"ReduceMax": 1} if what == "max" else {"ReduceMean|AveragePool": 1}
    return _Made(fn, expected, ("Div", "Mul", "ReduceSum"), 4 if what == "max" else 2)
