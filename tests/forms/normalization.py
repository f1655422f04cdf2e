"""Normalisations over the last axes: by libraries and by hand, the variance in one pass or in two."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from forms import Choices, Form

Array = Any
FEATURES = 16


def make(choices: Choices) -> Form:
    kind = choices.take("kind", "layer", "layer", "rms", "library")
    dtype = choices.take("type", "float32", "float32", "float16", "bfloat16")
    shape = choices.take("shape", (5, FEATURES), (2, 5, FEATURES), ("B", FEATURES), ("B", "T", FEATURES), (FEATURES,))
    numbers = choices.normal([3 if isinstance(size, str) else size for size in shape], dtype, 2.0)
    if kind == "library":
        fn, expected = _library(choices)
    else:
        fn, expected = (_layer if kind == "layer" else _rms)(choices, dtype)
    specs = [jax.ShapeDtypeStruct(shape, numbers.dtype)] if any(isinstance(size, str) for size in shape) else None
    # Halves may be computed in float32, with a Cast at each border; the program's own conversions stay.
    most = 1 if dtype == "float32" and kind != "library" else None
    return Form(
        lambda x: fn(x).astype(dtype),
        [numbers],
        {expected: 1},
        specs,
        most=most,
        dtype=dtype,
        tolerance=_tolerance(dtype),
    )


def _tolerance(dtype: str) -> float:
    return {"float32": 1e-4, "float16": 1e-2, "bfloat16": 5e-2}[dtype]


def _scaled(choices: Choices, dtype: str, can_shift: bool) -> Callable[[Array], Array]:
    scale = jnp.asarray(choices.normal((FEATURES,), dtype))
    shift = jnp.asarray(choices.normal((FEATURES,), dtype))
    how = choices.take("scaled", "not at all", "scale", *(["scale and shift", "shift and scale"] if can_shift else []))
    if how == "not at all":
        return lambda y: y
    if how == "scale":
        return lambda y: y * scale
    return (lambda y: y * scale + shift) if how == "scale and shift" else (lambda y: shift + scale * y)


def _divided(choices: Choices) -> Callable[[Array, Array], Array]:
    epsilon = choices.take("epsilon", 1e-5, 1e-6, 1e-3)
    by = choices.take("divided by", "rsqrt", "sqrt", "reciprocal", "power")
    if by == "rsqrt":
        return lambda d, v: d * jax.lax.rsqrt(v + epsilon)
    if by == "sqrt":
        return lambda d, v: d / jnp.sqrt(v + epsilon)
    return (
        (lambda d, v: d * (1 / jnp.sqrt(v + epsilon))) if by == "reciprocal" else lambda d, v: d * (v + epsilon) ** -0.5
    )


def _upcast(choices: Choices, dtype: str) -> Callable[[Array], Array]:
    if dtype == "float32" or choices.take("computed in", "float32", "its own") == "its own":
        return lambda x: x
    return lambda x: x.astype(jnp.float32)


def _layer(choices: Choices, dtype: str) -> tuple[Callable[[Array], Array], str]:
    variance = choices.take("variance", "var", "two passes", "power", "one pass", "sum")
    mean = choices.take("mean", "mean", "sum")
    divided, scaled, up = _divided(choices), _scaled(choices, dtype, True), _upcast(choices, dtype)

    def fn(x: Array) -> Array:
        x = up(x)
        average = x.mean(-1, keepdims=True) if mean == "mean" else x.sum(-1, keepdims=True) / FEATURES
        difference = x - average
        if variance == "var":
            spread = x.var(-1, keepdims=True)
        elif variance == "two passes":
            spread = jnp.mean(difference * difference, axis=-1, keepdims=True)
        elif variance == "power":
            spread = jnp.mean(difference**2, axis=-1)[..., None]
        elif variance == "sum":
            spread = jnp.sum(jnp.square(difference), axis=-1, keepdims=True) / FEATURES
        else:
            spread = jnp.mean(x * x, axis=-1, keepdims=True) - average**2
        return scaled(divided(difference, spread).astype(dtype))

    return fn, "LayerNormalization"


def _rms(choices: Choices, dtype: str) -> tuple[Callable[[Array], Array], str]:
    square = choices.take("square", "product", "power", "square")
    divided, scaled, up = _divided(choices), _scaled(choices, dtype, False), _upcast(choices, dtype)

    def fn(x: Array) -> Array:
        x = up(x)
        squares = {"product": lambda: x * x, "power": lambda: x**2, "square": lambda: jnp.square(x)}[square]()
        return scaled(divided(x, squares.mean(-1, keepdims=True)).astype(dtype))

    return fn, "RMSNormalization"


def _library(choices: Choices) -> tuple[Callable[[Array], Array], str]:
    name = choices.take("library", *_LAYERS)
    return _LAYERS[name](), "RMSNormalization" if "RMS" in name else "LayerNormalization"


@functools.cache
def _nnx(name: str) -> Callable[[Array], Array]:
    from flax import nnx

    return getattr(nnx, name)(FEATURES, rngs=nnx.Rngs(0))


@functools.cache
def _linen(name: str) -> Callable[[Array], Array]:
    from flax import linen

    layer = getattr(linen, name)()
    weights = layer.init(jax.random.key(0), jnp.zeros((1, FEATURES)))
    return lambda x: layer.apply(weights, x)


@functools.cache
def _equinox(name: str) -> Callable[[Array], Array]:
    import equinox

    layer = getattr(equinox.nn, name)(FEATURES)

    def fn(x: Array) -> Array:
        mapped = layer
        for _ in range(x.ndim - 1):
            mapped = jax.vmap(mapped)
        return mapped(x)

    return fn


_LAYERS = {
    "nnx.LayerNorm": lambda: _nnx("LayerNorm"),
    "nnx.RMSNorm": lambda: _nnx("RMSNorm"),
    "linen.LayerNorm": lambda: _linen("LayerNorm"),
    "linen.RMSNorm": lambda: _linen("RMSNorm"),
    "equinox.LayerNorm": lambda: _equinox("LayerNorm"),
    "equinox.RMSNorm": lambda: _equinox("RMSNorm"),
}
