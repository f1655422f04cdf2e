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
    kind = choices.take("kind", "layer", "layer", "layer", "rms", "rms", "library", "library", "deviation")
    dtype = choices.take("type", "float32", "float32", "float16", "bfloat16")
    shape = choices.take("shape", (5,), (2, 5), ("B",), ("B", "T"), ())
    across = Across(choices, shape) if kind in ("layer", "rms") else Across(choices, shape, "the last")
    numbers = choices.normal([3 if isinstance(size, str) else size for size in across.shape], dtype, 2.0)
    weights = Weights(choices, across, dtype) if kind != "library" else None
    if weights is None:
        fn, expected = _library(choices)
    else:
        fn, expected = {"layer": _layer, "rms": _rms, "deviation": _deviation}[kind](choices, dtype, across, weights)
    specs = _specs(across.shape, numbers, weights)
    # Halves may be computed in float32, with a Cast at each border; the program's own conversions stay. An axis inside
    # is moved to the end and back, where a vector that is given loses its axes of 1; 1 + scale is computed, and so is
    # what makes the variance that of a sample.
    most = 1 if dtype == "float32" and kind != "library" else None
    if most and weights and across.name == "one inside":
        most += 2 + (len(weights.arguments) if choices.made["scaled"] != "not at all" else 0)
    if most and weights and weights.are_given and "scale" in choices.made["scaled"]:
        is_corrected = "corrected" in choices.made.get("variance", "") or choices.made.get("degrees")
        most += (choices.made["scaled"] == "1 + scale") + bool(is_corrected)
    # As good for one axis inside, unless it has a scale for each element.
    is_either = expected == "LayerNormalization" and choices.made.get("scaled") == "not at all"
    apart = None
    if choices.made.get("epsilon is added to") == "the deviation":
        apart = "epsilon is added to the deviation, and the operator adds it to the variance"
    return Form(
        lambda x, *given: fn(x, *given).astype(dtype),
        [numbers, *(weights.arguments if weights else [])],
        {"InstanceNormalization|" * is_either + expected: 1},
        specs,
        most=most,
        apart=apart,
        dtype=dtype,
        tolerance=_tolerance(dtype),
    )


def _specs(shape: tuple[Any, ...], numbers: Array, weights: Weights | None) -> list[Any] | None:
    if not any(isinstance(size, str) for size in shape):
        return None
    return [jax.ShapeDtypeStruct(shape, numbers.dtype), *(weights.arguments if weights else [])]


class Across:
    """Which axes are normalised, and the program's own way to say so."""

    def __init__(self, choices: Choices, outer: tuple[Any, ...], name: str | None = None) -> None:
        self.name = name or choices.take("across", "the last", "the last", "the last", "the last two", "one inside")
        if self.name == "one inside" and len(outer) < 2:
            self.name = choices.take("across", "the last two")
        sizes = {"the last": (FEATURES,), "the last two": (4, FEATURES // 4), "one inside": (FEATURES,)}[self.name]
        self.scale = (FEATURES, 1) if self.name == "one inside" else sizes
        self.axes: Any = {"the last": -1, "the last two": (-2, -1), "one inside": -2}[self.name]
        self.shape = (*outer[:-1], *sizes, outer[-1]) if self.name == "one inside" else (*outer, *sizes)
        self.letters = {"the last": ("...d", "..."), "the last two": ("...cd", "..."), "one inside": ("...dt", "...t")}

    def kept(self, reduced: Array) -> Array:
        """Axes put back that were dropped."""
        return jnp.expand_dims(reduced, self.axes)

    def einsum(self, *numbers: Array) -> Array:
        one, to = self.letters[self.name]
        return self.kept(jnp.einsum(",".join([one] * len(numbers)) + "->" + to, *numbers))


class Weights:
    """A scale and a shift that the function closes over or is given."""

    def __init__(self, choices: Choices, across: Across, dtype: str) -> None:
        self.numbers = [choices.normal(across.scale, dtype) for _ in range(2)]
        self.are_given = choices.take("weights", "constants", "constants", "arguments") == "arguments"
        self.arguments = self.numbers if self.are_given else []

    def of(self, given: tuple[Array, ...]) -> list[Array]:
        return list(given) if self.are_given else [jnp.asarray(one) for one in self.numbers]


def _tolerance(dtype: str) -> float:
    return {"float32": 1e-4, "float16": 1e-2, "bfloat16": 5e-2}[dtype]


Scaled = Callable[[Array, tuple[Array, ...]], Array]


def _scaled(choices: Choices, weights: Weights, can_shift: bool) -> Scaled:
    ways: dict[str, Callable[[Array, Array, Array], Array]] = {
        "not at all": lambda y, scale, shift: y,
        "scale": lambda y, scale, shift: y * scale,
        "1 + scale": lambda y, scale, shift: y * (1 + scale),
    }
    if can_shift:
        ways |= {
            "scale and shift": lambda y, scale, shift: y * scale + shift,
            "shift and scale": lambda y, scale, shift: shift + scale * y,
            "shift": lambda y, scale, shift: y + shift,
        }
    way = ways[choices.take("scaled", *ways)]
    return lambda y, given: way(y, *weights.of(given))


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
    "lax": lambda d, v: jax.lax.div(d, jnp.broadcast_to(jax.lax.sqrt(v).astype(d.dtype), d.shape)),
    "broadcast": lambda d, v: jax.lax.mul(d, jnp.broadcast_to(jax.lax.rsqrt(v).astype(d.dtype), d.shape)),
}


def _upcast(choices: Choices, dtype: str) -> Callable[[Array], Array]:
    if dtype == "float32" or choices.take("computed in", "float32", "its own") == "its own":
        return lambda x: x
    return lambda x: x.astype(jnp.float32)


Made = tuple[Callable[..., Array], str]


def _layer(choices: Choices, dtype: str, across: Across, weights: Weights) -> Made:
    variance, mean = choices.take("variance", *_VARIANCES), choices.take("mean", *_MEANS)
    divided, scaled, up = _divided(choices), _scaled(choices, weights, True), _upcast(choices, dtype)
    apart = choices.take("difference", "divided", "divided", "divided", "spread out") == "spread out"

    def fn(x: Array, *given: Array) -> Array:
        x = up(x)
        average = _MEANS[mean](x, across)
        difference = x - average
        spread = _VARIANCES[variance](x, average, difference, across)
        y = divided(x, spread) - divided(average, spread) if apart else divided(difference, spread)
        return scaled(y.astype(dtype), given)

    return fn, "LayerNormalization"


_MEANS: dict[str, Callable[[Array, Across], Array]] = {
    "mean": lambda x, of: x.mean(of.axes, keepdims=True),
    "dropped and put back": lambda x, of: of.kept(jnp.mean(x, of.axes)),
    "sum": lambda x, of: x.sum(of.axes, keepdims=True) / FEATURES,
    "sum by product": lambda x, of: x.sum(of.axes, keepdims=True) * (1 / FEATURES),
    "einsum": lambda x, of: of.einsum(x) / FEATURES,
    "average": lambda x, of: jnp.average(x, axis=of.axes, keepdims=True),
}
_VARIANCES: dict[str, Callable[[Array, Array, Array, Across], Array]] = {
    "var": lambda x, mean, d, of: x.var(of.axes, keepdims=True),
    "two passes": lambda x, mean, d, of: jnp.mean(d * d, axis=of.axes, keepdims=True),
    "power": lambda x, mean, d, of: of.kept(jnp.mean(d**2, axis=of.axes)),
    "absolute": lambda x, mean, d, of: jnp.mean(jnp.abs(d) ** 2, axis=of.axes, keepdims=True),
    "one pass": lambda x, mean, d, of: jnp.mean(x * x, axis=of.axes, keepdims=True) - mean**2,
    "one pass, at least 0": lambda x, mean, d, of: jnp.maximum(jnp.mean(x**2, of.axes, keepdims=True) - mean * mean, 0),
    "one pass of einsum": lambda x, mean, d, of: of.einsum(x, x) / FEATURES - jnp.square(mean),
    "sum": lambda x, mean, d, of: jnp.sum(jnp.square(d), axis=of.axes, keepdims=True) / FEATURES,
    "sum by product": lambda x, mean, d, of: jnp.sum(jnp.square(d), axis=of.axes, keepdims=True) * (1 / FEATURES),
    "var of one more axis": lambda x, mean, d, of: of.kept(jnp.var(x, axis=of.axes)),
    "square of the deviation": lambda x, mean, d, of: jnp.std(x, axis=of.axes, keepdims=True) ** 2,
    "length": lambda x, mean, d, of: jnp.sqrt(jnp.sum(d * d, axis=of.axes, keepdims=True)) ** 2 / FEATURES,
    "einsum": lambda x, mean, d, of: of.einsum(d, d) / FEATURES,
    "corrected": lambda x, mean, d, of: x.var(of.axes, ddof=1, keepdims=True),
    "corrected by hand": lambda x, mean, d, of: jnp.sum(d * d, axis=of.axes, keepdims=True) / (FEATURES - 1),
}


def _deviation(choices: Choices, dtype: str, across: Across, weights: Weights) -> Made:
    """Divided by the deviation itself."""
    added = choices.take("epsilon is added to", "nothing", "the deviation", "nothing")
    corrected = choices.take("degrees", 0, 0, 1)
    scaled, up = _scaled(choices, weights, True), _upcast(choices, dtype)

    def fn(x: Array, *given: Array) -> Array:
        x = up(x)
        spread = jnp.std(x, axis=across.axes, keepdims=True, ddof=corrected)
        spread = spread + 1e-3 if added == "the deviation" else spread
        return scaled(((x - jnp.mean(x, axis=across.axes, keepdims=True)) / spread).astype(dtype), given)

    return fn, "LayerNormalization"


def _rms(choices: Choices, dtype: str, across: Across, weights: Weights) -> Made:
    square = choices.take("square", *_SQUARES, *_SUMS_OF_SQUARES)
    mean = choices.take("mean", "mean", "sum", "in float32")
    divided, scaled, up = _divided(choices), _scaled(choices, weights, False), _upcast(choices, dtype)

    def fn(x: Array, *given: Array) -> Array:
        x = up(x)
        y = x.astype(jnp.float32) if mean == "in float32" else x
        if square in _SUMS_OF_SQUARES:
            average = _SUMS_OF_SQUARES[square](y, across) / FEATURES
        elif mean == "sum":
            average = _SQUARES[square](y).sum(across.axes, keepdims=True) / FEATURES
        else:
            average = _SQUARES[square](y).mean(across.axes, keepdims=True)
        return scaled(divided(x, average).astype(dtype), given)

    return fn, "RMSNormalization"


_SQUARES: dict[str, Callable[[Array], Array]] = {
    "product": lambda y: y * y,
    "power": lambda y: y**2,
    "square": jnp.square,
    "absolute": lambda y: jnp.abs(y) ** 2,
}
_SUMS_OF_SQUARES: dict[str, Callable[[Array, Across], Array]] = {
    "einsum": lambda y, of: of.einsum(y, y),
    "norm": lambda y, of: jnp.linalg.norm(y, axis=of.axes, keepdims=True) ** 2,
}


def _library(choices: Choices) -> Made:
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
    "jax.nn.standardize": lambda: jax.nn.standardize,
}
