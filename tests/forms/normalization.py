"""Normalisations over the last axes: by libraries and by hand, the variance in one pass or in two."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from forms import Choices, Form

Array = Any
FEATURES = 16


def make(choices: Choices) -> Form:
    kind = choices.take("kind", "layer", "layer", "rms", "library", "deviation")
    dtype = choices.take("type", "float32", "float32", "float16", "bfloat16")
    shape = choices.take("shape", (5, FEATURES), (2, 5, FEATURES), ("B", FEATURES), ("B", "T", FEATURES), (FEATURES,))
    numbers = choices.normal([3 if isinstance(size, str) else size for size in shape], dtype, 2.0)
    if kind == "library":
        fn, expected = _library(choices)
    else:
        fn, expected = {"layer": _layer, "rms": _rms, "deviation": _deviation}[kind](choices, dtype)
    specs = [jax.ShapeDtypeStruct(shape, numbers.dtype)] if any(isinstance(size, str) for size in shape) else None
    # Halves may be computed in float32, with a Cast at each border; the program's own conversions stay.
    most = 1 if dtype == "float32" and kind != "library" else None
    apart = None
    if choices.made.get("epsilon is added to") == "the deviation":
        apart = "epsilon is added to the deviation, and the operator adds it to the variance"
    return Form(
        lambda x: fn(x).astype(dtype),
        [numbers],
        {expected: 1},
        specs,
        most=most,
        apart=apart,
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
    by = choices.take("divided by", *DIVIDED)
    return lambda d, v: DIVIDED[by](d, v + epsilon)


DIVIDED: dict[str, Callable[[Array, Array], Array]] = {
    "rsqrt": lambda d, v: d * jax.lax.rsqrt(v),
    "rsqrt first": lambda d, v: jax.lax.rsqrt(v) * d,
    "sqrt": lambda d, v: d / jnp.sqrt(v),
    "reciprocal": lambda d, v: d * (1 / jnp.sqrt(v)),
    "jnp.reciprocal": lambda d, v: d * jnp.reciprocal(jnp.sqrt(v)),
    "power": lambda d, v: d * v**-0.5,
    "power of a half": lambda d, v: d / v**0.5,
    "jnp.power": lambda d, v: d * jnp.power(v, -0.5),
    "lax.pow": lambda d, v: d * jax.lax.pow(v, jnp.asarray(-0.5, v.dtype)),
    "reciprocal of a power": lambda d, v: d * (1 / v**0.5),
    "root of a reciprocal": lambda d, v: d * jnp.sqrt(1 / v),
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
    "var of one more axis": lambda x, mean, d: jnp.expand_dims(jnp.var(x, axis=-1), -1),
    "square of the deviation": lambda x, mean, d: jnp.std(x, axis=-1, keepdims=True) ** 2,
    "einsum": lambda x, mean, d: jnp.einsum("...d,...d->...", d, d)[..., None] / FEATURES,
    "corrected": lambda x, mean, d: x.var(-1, ddof=1, keepdims=True),
    "corrected by hand": lambda x, mean, d: jnp.sum(d * d, axis=-1, keepdims=True) / (FEATURES - 1),
}


def _deviation(choices: Choices, dtype: str) -> tuple[Callable[[Array], Array], str]:
    """Divided by the deviation itself."""
    added = choices.take("epsilon is added to", "nothing", "the deviation", "nothing")
    corrected = choices.take("degrees", 0, 0, 1)
    scaled, up = _scaled(choices, dtype, True), _upcast(choices, dtype)

    def fn(x: Array) -> Array:
        x = up(x)
        spread = jnp.std(x, axis=-1, keepdims=True, ddof=corrected)
        spread = spread + 1e-3 if added == "the deviation" else spread
        return scaled(((x - jnp.mean(x, axis=-1, keepdims=True)) / spread).astype(dtype))

    return fn, "LayerNormalization"


def _rms(choices: Choices, dtype: str) -> tuple[Callable[[Array], Array], str]:
    square = choices.take("square", "product", "power", "square", "absolute", "einsum", "norm")
    mean = choices.take("mean", "mean", "sum", "in float32")
    divided, scaled, up = _divided(choices), _scaled(choices, dtype, False), _upcast(choices, dtype)

    def fn(x: Array) -> Array:
        x = up(x)
        y = x.astype(jnp.float32) if mean == "in float32" else x
        if square in _SUMS_OF_SQUARES:
            average = _SUMS_OF_SQUARES[square](y) / FEATURES
        else:
            squares = _SQUARES[square](y)
            average = squares.sum(-1, keepdims=True) / FEATURES if mean == "sum" else squares.mean(-1, keepdims=True)
        return scaled(divided(x, average).astype(dtype))

    return fn, "RMSNormalization"


_SQUARES: dict[str, Callable[[Array], Array]] = {
    "product": lambda y: y * y,
    "power": lambda y: y**2,
    "square": jnp.square,
    "absolute": lambda y: jnp.abs(y) ** 2,
}
_SUMS_OF_SQUARES: dict[str, Callable[[Array], Array]] = {
    "einsum": lambda y: jnp.einsum("...d,...d->...", y, y)[..., None],
    "norm": lambda y: jnp.linalg.norm(y, axis=-1, keepdims=True) ** 2,
}


def _library(choices: Choices) -> tuple[Callable[[Array], Array], str]:
    name = choices.take("library", *_LAYERS)
    return _LAYERS[name](), "RMSNormalization" if "RMS" in name else "LayerNormalization"


@functools.cache
def _nnx(name: str, **options: Any) -> Callable[[Array], Array]:
    from flax import nnx

    return getattr(nnx, name)(FEATURES, rngs=nnx.Rngs(0), **options)


@functools.cache
def _linen(name: str, **options: Any) -> Callable[[Array], Array]:
    from flax import linen

    layer = getattr(linen, name)(**options)
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


@functools.cache
def _keras(name: str, **options: Any) -> Callable[[Array], Array]:
    os.environ.setdefault("KERAS_BACKEND", "jax")
    import keras

    layer = getattr(keras.layers, name)(**options)
    layer.build((None, FEATURES))
    return lambda x: layer(x)


_LAYERS = {
    "nnx.LayerNorm": lambda: _nnx("LayerNorm"),
    "nnx.RMSNorm": lambda: _nnx("RMSNorm"),
    "linen.LayerNorm": lambda: _linen("LayerNorm"),
    "linen.RMSNorm": lambda: _linen("RMSNorm"),
    "equinox.LayerNorm": lambda: _equinox("LayerNorm"),
    "equinox.RMSNorm": lambda: _equinox("RMSNorm"),
    "keras.LayerNormalization": lambda: _keras("LayerNormalization"),
    "keras.LayerNormalization without bias": lambda: _keras("LayerNormalization", center=False),
    "keras.RMSNormalization": lambda: _keras("RMSNormalization"),
    "nnx.LayerNorm in two passes": lambda: _nnx("LayerNorm", use_fast_variance=False),
    "nnx.LayerNorm without scale": lambda: _nnx("LayerNorm", use_scale=False),
    "linen.LayerNorm in two passes": lambda: _linen("LayerNorm", use_fast_variance=False),
    "linen.LayerNorm without bias": lambda: _linen("LayerNorm", use_bias=False),
    "linen.LayerNorm in bfloat16": lambda: _linen("LayerNorm", dtype=jnp.bfloat16),
    "linen.RMSNorm without scale": lambda: _linen("RMSNorm", use_scale=False),
}
