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
    ways: dict[str, Callable[[Array], Array]] = {
        "not at all": lambda y: y,
        "scale": lambda y: y * scale,
        "1 + scale": lambda y: y * (1 + scale),
    }
    if can_shift:
        ways |= {
            "scale and shift": lambda y: y * scale + shift,
            "shift and scale": lambda y: shift + scale * y,
            "shift": lambda y: y + shift,
        }
    return ways[choices.take("scaled", *ways)]


def _divided(choices: Choices) -> Callable[[Array, Array], Array]:
    epsilon = choices.take("epsilon", 1e-5, 1e-6, 1e-3)
    by = choices.take("divided by", *_DIVIDED)
    return lambda d, v: _DIVIDED[by](d, v + epsilon)


_DIVIDED: dict[str, Callable[[Array, Array], Array]] = {
    "rsqrt": lambda d, v: d * jax.lax.rsqrt(v),
    "rsqrt first": lambda d, v: jax.lax.rsqrt(v) * d,
    "sqrt": lambda d, v: d / jnp.sqrt(v),
    "reciprocal": lambda d, v: d * (1 / jnp.sqrt(v)),
    "jnp.reciprocal": lambda d, v: d * jnp.reciprocal(jnp.sqrt(v)),
    "power": lambda d, v: d * v**-0.5,
    "power of a half": lambda d, v: d / v**0.5,
    "jnp.power": lambda d, v: d * jnp.power(v, -0.5),
}


def _upcast(choices: Choices, dtype: str) -> Callable[[Array], Array]:
    if dtype == "float32" or choices.take("computed in", "float32", "its own") == "its own":
        return lambda x: x
    return lambda x: x.astype(jnp.float32)


def _layer(choices: Choices, dtype: str) -> tuple[Callable[[Array], Array], str]:
    variance = choices.take("variance", *_VARIANCES)
    mean = choices.take("mean", "mean", "sum", "sum by product")
    divided, scaled, up = _divided(choices), _scaled(choices, dtype, True), _upcast(choices, dtype)

    def fn(x: Array) -> Array:
        x = up(x)
        average = {
            "mean": lambda: x.mean(-1, keepdims=True),
            "sum": lambda: x.sum(-1, keepdims=True) / FEATURES,
            "sum by product": lambda: x.sum(-1, keepdims=True) * (1 / FEATURES),
        }[mean]()
        difference = x - average
        spread = _VARIANCES[variance](x, average, difference)
        return scaled(divided(difference, spread).astype(dtype))

    return fn, "LayerNormalization"


_VARIANCES: dict[str, Callable[[Array, Array, Array], Array]] = {
    "var": lambda x, mean, d: x.var(-1, keepdims=True),
    "two passes": lambda x, mean, d: jnp.mean(d * d, axis=-1, keepdims=True),
    "power": lambda x, mean, d: jnp.mean(d**2, axis=-1)[..., None],
    "absolute": lambda x, mean, d: jnp.mean(jnp.abs(d) ** 2, axis=-1, keepdims=True),
    "one pass": lambda x, mean, d: jnp.mean(x * x, axis=-1, keepdims=True) - mean**2,
    "one pass, at least 0": lambda x, mean, d: jnp.maximum(jnp.mean(x**2, -1, keepdims=True) - mean * mean, 0),
    "sum": lambda x, mean, d: jnp.sum(jnp.square(d), axis=-1, keepdims=True) / FEATURES,
    "sum by product": lambda x, mean, d: jnp.sum(jnp.square(d), axis=-1, keepdims=True) * (1 / FEATURES),
}


def _rms(choices: Choices, dtype: str) -> tuple[Callable[[Array], Array], str]:
    square = choices.take("square", "product", "power", "square")
    mean = choices.take("mean", "mean", "sum", "in float32")
    divided, scaled, up = _divided(choices), _scaled(choices, dtype, False), _upcast(choices, dtype)

    def fn(x: Array) -> Array:
        x = up(x)
        y = x.astype(jnp.float32) if mean == "in float32" else x
        squares = {"product": lambda: y * y, "power": lambda: y**2, "square": lambda: jnp.square(y)}[square]()
        average = squares.sum(-1, keepdims=True) / FEATURES if mean == "sum" else squares.mean(-1, keepdims=True)
        return scaled(divided(x, average).astype(dtype))

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
