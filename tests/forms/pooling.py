"""Pooling: windows and whole images, by libraries and by hand, of known and unknown sizes."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from forms import TYPES, Choices, Form

Array = Any
CHANNELS = 3


def make(choices: Choices) -> Form:
    kind = choices.take("kind", "whole", "window", "window")
    dtype = choices.take("type", "float32", "float32", "float32", "float16")
    batch = choices.take("batch", 1, 2, "symbol")
    space = choices.take("size", (8, 8), (9, 7), "symbol") if kind == "whole" else choices.take("size", (8, 8), (9, 7))
    order = choices.take("order", "channels last", "channels last", "channels first")
    fn, expected, absent, most = (_whole if kind == "whole" else _window)(choices, order)
    high, wide = (5, 6) if space == "symbol" else space
    names = ("H", "W") if space == "symbol" else space
    shape = (batch, high, wide, CHANNELS) if order == "channels last" else (batch, CHANNELS, high, wide)
    spec = (batch, *names, CHANNELS) if order == "channels last" else (batch, CHANNELS, *names)
    numbers = choices.normal([3 if size == "symbol" else size for size in shape], dtype)
    spec = tuple("B" if size == "symbol" else size for size in spec)
    specs = [jax.ShapeDtypeStruct(spec, TYPES[dtype])] if any(isinstance(size, str) for size in spec) else None
    return Form(fn, [numbers], expected, specs, absent=absent, most=most, dtype=dtype)


Made = tuple[Callable[[Array], Array], dict[str, int], tuple[str, ...], int | None]


def _whole(choices: Choices, order: str) -> Made:
    what = choices.take("what", "mean", "mean", "max")
    kept = choices.take("axes", "kept", "dropped")
    axes = (1, 2) if order == "channels last" else (2, 3)
    by = choices.take("by", "numpy", "sum and size", "reduce_window", "twice") if what == "mean" else "numpy"

    def fn(x: Array) -> Array:
        keep = kept == "kept"
        if what == "max":
            return jnp.max(x, axis=axes, keepdims=keep)
        if by == "sum and size":
            return jnp.sum(x, axis=axes, keepdims=keep) / (x.shape[axes[0]] * x.shape[axes[1]])
        if by == "twice":
            y = jnp.mean(jnp.mean(x, axis=axes[1], keepdims=True), axis=axes[0], keepdims=True)
            return y if keep else jnp.squeeze(y, axes)
        if by == "reduce_window" and all(isinstance(x.shape[axis], int) for axis in axes):
            window = tuple(x.shape[i] if i in axes else 1 for i in range(4))
            y = jax.lax.reduce_window(x, jnp.zeros((), x.dtype), jax.lax.add, window, (1,) * 4, "VALID")
            y = y / jnp.asarray(x.shape[axes[0]] * x.shape[axes[1]], x.dtype)
            return y if keep else jnp.squeeze(y, axes)
        return jnp.mean(x, axis=axes, keepdims=keep)

    if what == "max":
        return fn, {}, ("ReduceSum", "Where"), 4
    return fn, {}, ("Div", "Shape", "ReduceSum", "Mul"), 4 if by != "twice" else 5


def _window(choices: Choices, order: str) -> Made:
    what = choices.take("what", "mean", "max")
    size = choices.take("window", 2, 3)
    stride = choices.take("stride", 1, 2)
    padding = choices.take("padding", "VALID", "SAME")
    by = choices.take("by", "reduce_window", "flax.linen", "flax.nnx", "keras")
    if by != "reduce_window" and order == "channels first":
        by = choices.take("by", "reduce_window")
    expected = "AveragePool" if what == "mean" else "MaxPool"
    windows = (1, size, size, 1) if order == "channels last" else (1, 1, size, size)
    strides = (1, stride, stride, 1) if order == "channels last" else (1, 1, stride, stride)

    def fn(x: Array) -> Array:
        if by == "keras":
            return _keras(what, size, stride, padding)(x)
        if by == "flax.linen" or by == "flax.nnx":
            library = importlib.import_module(by)
            pool = library.avg_pool if what == "mean" else library.max_pool
            return pool(x, (size, size), strides=(stride, stride), padding=padding)
        if what == "max":
            return jax.lax.reduce_window(x, jnp.asarray(-jnp.inf, x.dtype), jax.lax.max, windows, strides, padding)
        total = jax.lax.reduce_window(x, jnp.zeros((), x.dtype), jax.lax.add, windows, strides, padding)
        return total / (size * size)

    return fn, {expected: 1}, ("Div", "Pad", "Conv"), 1 + 2 * (order == "channels last")


def _keras(what: str, size: int, stride: int, padding: str) -> Callable[[Array], Array]:
    os.environ.setdefault("KERAS_BACKEND", "jax")
    import keras

    kind = keras.layers.AveragePooling2D if what == "mean" else keras.layers.MaxPooling2D
    return kind(size, strides=stride, padding=padding.lower())
