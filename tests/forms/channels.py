"""Normalisations by channels and groups of them: batch, group and instance, by libraries and by hand."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from forms import TYPES, Choices, Form
from normalization import DIVIDED

Array = Any
CHANNELS, GROUPS = 6, 2
SPACES = {1: (7,), 2: (5, 4), 3: (3, 2, 4)}
NAMES = ("H", "W", "D")
TOLERANCE = {"float32": 1e-4, "float16": 2e-2, "bfloat16": 1e-1}


def make(choices: Choices) -> Form:
    kind = choices.take("kind", "batch", "group", "instance")
    dtype = choices.take("type", "float32", "float32", "float16", "bfloat16")
    order = choices.take("order", "channels last", "channels first")
    written = choices.take("written", "hand", "hand", "library")
    batch, symbolic = choices.take("batch", 1, 2, "symbol"), choices.take("symbolic space", False, False, True)
    axes = choices.take("axes", 1, 2, 2, 3)
    if written == "library":
        fn, order = _library(choices, kind, axes, symbolic)
    else:
        fn = _by_hand(choices, kind, order, dtype, axes)
    space: tuple[Any, ...] = SPACES[axes]
    named = NAMES[:axes] if symbolic else space
    count = 3 if batch == "symbol" else batch
    lead = "B" if batch == "symbol" else batch
    last = order == "channels last"
    spec = (lead, *named, CHANNELS) if last else (lead, CHANNELS, *named)
    shape = (count, *space, CHANNELS) if last else (count, CHANNELS, *space)
    specs = [jax.ShapeDtypeStruct(spec, TYPES[dtype])] if any(isinstance(size, str) for size in spec) else None
    times = 1
    if kind != "batch" and specs is None:
        fn, shape, times = _amid(choices, fn, shape)
    apart = None
    if dtype == "float16" and symbolic and choices.made.get("variance") == "sum":
        apart = "float16 has no number for sizes beyond 65504: JAX divides by infinity there"
    return Form(
        lambda x: fn(x).astype(x.dtype),
        [choices.normal(shape, dtype, 2.0)],
        {} if kind == "batch" else {"InstanceNormalization|LayerNormalization": times},
        specs,
        absent=("ReduceMean", "ReduceSum", "Sqrt", "Reciprocal", "Pow", "Expand"),
        most=times * _most(kind, dtype, last, axes if symbolic else 0) + (choices.made.get("amid") != "nothing else"),
        apart=apart,
        dtype=dtype,
        tolerance=TOLERANCE[dtype],
    )


def _most(kind: str, dtype: str, last: bool, unknown: int) -> int:
    """Nodes: of a half two Casts more, and scale and bias apart; by groups two Reshapes, and the shapes they get."""
    half = 2 * (dtype != "float32")
    if kind == "batch":
        return 3 + half + (dtype == "bfloat16")
    shapes = unknown + 3 if unknown else 0
    return 1 + 2 * last + half + shapes + (4 if kind == "group" else 2)


def _amid(choices: Choices, fn: Callable[[Array], Array], shape: tuple[int, ...]) -> Any:
    """The normalisation amid others that change the shape: what is called, its shape, and how often it normalises."""
    rows = (shape[0] * shape[1], *shape[2:])
    ways: dict[str, tuple[Callable[[Array], Array], tuple[int, ...], int]] = {
        "nothing else": (fn, shape, 1),
        "rows before": (lambda x: fn(x.reshape(shape)), rows, 1),
        "rows after": (lambda x: fn(x).reshape(rows), shape, 1),
        "rows before and after": (lambda x: fn(x.reshape(shape)).reshape(rows), rows, 1),
        "all after": (lambda x: fn(x).reshape(shape[0], -1), shape, 1),
        "another": (lambda x: fn(fn(x)), shape, 2),
    }
    return ways[choices.take("amid", "nothing else", "nothing else", *list(ways)[1:])]


Normal = Callable[[Array, tuple[int, ...]], Array]


def _by_hand(choices: Choices, kind: str, order: str, dtype: str, axes: int) -> Callable[[Array], Array]:
    last = order == "channels last"
    by_channel = (lambda v: v) if last else (lambda v: v.reshape(CHANNELS, *[1] * axes))
    if not last and choices.take("vector", "behind", "whole") == "whole":
        by_channel = lambda v: v.reshape(1, CHANNELS, *[1] * axes)  # noqa: E731
    normal = lambda: by_channel(jnp.asarray(choices.normal((CHANNELS,), dtype)))  # noqa: E731
    scale, shift, mean = normal(), normal(), normal()
    variance = by_channel(jnp.asarray(np.abs(choices.normal((CHANNELS,))).astype(TYPES[dtype]) + 1))
    by, epsilon = choices.take("divided by", *DIVIDED), choices.take("epsilon", 1e-5, 1e-3)
    wide = dtype != "float32" and choices.take("computed in", "its own", "float32") == "float32"

    def divided(x: Array, spread: Array) -> Array:
        return DIVIDED[by](x, spread + epsilon)

    if kind == "batch":
        running = _running(choices, divided, (mean, variance, scale, shift))
        return (lambda x: running(x.astype(jnp.float32))) if wide else running
    scaled = _SCALED[choices.take("scaled", *_SCALED)]
    statistics = _VARIANCES[choices.take("variance", *_VARIANCES)]

    taken = choices.take("mean is taken", "first", "first", "after the quotient", "of another sign")

    def normalised(x: Array, over: tuple[int, ...]) -> Array:
        average, spread = statistics(x, over)
        if taken == "after the quotient":
            return divided(x, spread) - divided(average, spread)
        if taken == "of another sign":
            return divided(x, spread) + divided(-average, spread)
        return divided(x - average, spread)

    grouped = _INSTANCE if kind == "instance" else _GROUPED[order]
    way = grouped[choices.take("grouped", *grouped)]
    mapped = choices.take("mapped over the batch", False, False, True)

    def fn(x: Array) -> Array:
        y = x.astype(jnp.float32) if wide else x
        y = jax.vmap(lambda one: way(one[None], normalised, last)[0])(y) if mapped else way(y, normalised, last)
        return scaled(y.astype(x.dtype) if wide else y, scale, shift)

    return fn


def _running(choices: Choices, divided: Callable[[Array, Array], Array], numbers: Any) -> Callable[[Array], Array]:
    """With statistics that are kept, in some order of the formula."""
    mean, variance, scale, shift = numbers

    def factored(x: Array) -> Array:
        factor = divided(scale, variance)
        return x * factor + (shift - mean * factor)

    ways: dict[str, Callable[[Array], Array]] = {
        "in order": lambda x: divided(x - mean, variance) * scale + shift,
        "scale first": lambda x: scale * divided(x - mean, variance) + shift,
        "bias first": lambda x: shift + divided((x - mean) * scale, variance),
        "factor": lambda x: (x - mean) * divided(scale, variance) + shift,
        "factored": factored,
        "no scale": lambda x: divided(x - mean, variance) + shift,
        "no bias": lambda x: divided(x - mean, variance) * scale,
    }
    return ways[choices.take("formula", *ways)]


_SCALED: dict[str, Callable[[Array, Array, Array], Array]] = {
    "not at all": lambda y, scale, shift: y,
    "scale": lambda y, scale, shift: y * scale,
    "scale and bias": lambda y, scale, shift: y * scale + shift,
    "bias and scale": lambda y, scale, shift: shift + scale * y,
    "1 + scale": lambda y, scale, shift: y * (1 + scale) + shift,
}


def _mean(x: Array, over: tuple[int, ...]) -> Array:
    return x.mean(over, keepdims=True)


def _sum(x: Array, over: tuple[int, ...]) -> Array:
    count = 1
    for axis in over:
        count = count * x.shape[axis]
    return x.sum(over, keepdims=True) / count


_VARIANCES: dict[str, Callable[[Array, tuple[int, ...]], tuple[Array, Array]]] = {
    "var": lambda x, over: (_mean(x, over), x.var(over, keepdims=True)),
    "two passes": lambda x, over: (_mean(x, over), _mean((x - _mean(x, over)) ** 2, over)),
    "square": lambda x, over: (_mean(x, over), _mean(jnp.square(x - _mean(x, over)), over)),
    "one pass": lambda x, over: (_mean(x, over), _mean(x * x, over) - _mean(x, over) ** 2),
    "one pass, at least 0": lambda x, over: (
        _mean(x, over),
        jnp.maximum(_mean(jnp.square(x), over) - jnp.square(_mean(x, over)), 0),
    ),
    "sum": lambda x, over: (_sum(x, over), _sum((x - _sum(x, over)) ** 2, over)),
}


def _instance(x: Array, normal: Normal, last: bool) -> Array:
    return normal(x, tuple(range(1, x.ndim - 1)) if last else tuple(range(2, x.ndim)))


def _instance_flat(x: Array, normal: Normal, last: bool) -> Array:
    flat = x.reshape(x.shape[0], -1, CHANNELS) if last else x.reshape(x.shape[0], CHANNELS, -1)
    return normal(flat, (1,) if last else (2,)).reshape(x.shape)


_INSTANCE = {"axes": _instance, "flat": _instance_flat}


def _last_split(x: Array, normal: Normal, last: bool) -> Array:
    grouped = x.reshape(*x.shape[:-1], GROUPS, CHANNELS // GROUPS)
    return normal(grouped, (*range(1, x.ndim - 1), x.ndim)).reshape(x.shape)


def _last_flat(x: Array, normal: Normal, last: bool) -> Array:
    return normal(x.reshape(x.shape[0], -1, GROUPS, CHANNELS // GROUPS), (1, 3)).reshape(x.shape)


def _first_split(x: Array, normal: Normal, last: bool) -> Array:
    grouped = x.reshape(x.shape[0], GROUPS, CHANNELS // GROUPS, *x.shape[2:])
    return normal(grouped, tuple(range(2, x.ndim + 1))).reshape(x.shape)


def _first_flat(x: Array, normal: Normal, last: bool) -> Array:
    return normal(x.reshape(x.shape[0], GROUPS, -1), (2,)).reshape(x.shape)


_GROUPED = {
    "channels last": {"split": _last_split, "flat": _last_flat},
    "channels first": {"split": _first_split, "flat": _first_flat},
}


# ---- libraries ----


def _library(choices: Choices, kind: str, axes: int, symbolic: bool) -> tuple[Callable[[Array], Array], str]:
    names = {"batch": ("flax.linen", "flax.nnx", "keras"), "group": ("flax.linen", "flax.nnx", "keras", "equinox")}
    library = choices.take("library", *names.get(kind, ("flax.linen", "keras", "equinox")))
    order = choices.take("order", "channels first" if library == "equinox" else "channels last")
    return _layer(library, kind, axes), order


@functools.cache
def _layer(library: str, kind: str, axes: int) -> Callable[[Array], Array]:
    return {"flax.linen": _linen, "flax.nnx": _nnx, "keras": _keras, "equinox": _equinox}[library](kind, axes)


def _nnx(kind: str, axes: int) -> Callable[[Array], Array]:
    from flax import nnx

    if kind == "group":
        return nnx.GroupNorm(CHANNELS, GROUPS, rngs=nnx.Rngs(0))
    return nnx.BatchNorm(CHANNELS, use_running_average=True, rngs=nnx.Rngs(0))


def _keras(kind: str, axes: int) -> Callable[[Array], Array]:
    os.environ.setdefault("KERAS_BACKEND", "jax")
    import keras

    layer = {
        "batch": keras.layers.BatchNormalization,
        "group": functools.partial(keras.layers.GroupNormalization, groups=GROUPS),
        "instance": functools.partial(keras.layers.GroupNormalization, groups=-1),
    }[kind]()
    layer.build((None, *SPACES[axes], CHANNELS))
    return lambda x: layer(x)


def _equinox(kind: str, axes: int) -> Callable[[Array], Array]:
    import equinox

    return jax.vmap(equinox.nn.GroupNorm(GROUPS if kind == "group" else CHANNELS, CHANNELS))


def _linen(kind: str, axes: int) -> Callable[[Array], Array]:
    from flax import linen

    module = {
        "batch": linen.BatchNorm(use_running_average=True),
        "group": linen.GroupNorm(GROUPS),
        "instance": linen.InstanceNorm(),
    }[kind]
    weights = module.init(jax.random.key(0), jnp.zeros((1, *SPACES[axes], CHANNELS)))
    return lambda x: module.apply(weights, x)
