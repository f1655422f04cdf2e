"""Rotary embeddings: by halves, by pairs, as complex numbers; angles from positions or given."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from forms import TYPES, Choices, Form

Array = Any
FEATURES, HEADS = 8, 2


def make(choices: Choices) -> Form:
    dtype = choices.take("type", "float32", "float32", "float16", "bfloat16")
    layout = choices.take("pairs", "halves", "halves", "neighbours")
    order = choices.take("order", "thd", "htd")
    batch, length = choices.take("batch", 1, 2, "symbol"), choices.take("length", 6, "symbol")
    angles = choices.take("angles", "from positions", "constant")
    if layout == "halves":
        way = choices.take("written", "split", "rotate_half", "slices", "complex")
    else:
        way = choices.take("written", "strides", "reshape", "complex", "stack")
    if way == "complex":
        dtype = choices.take("type", "float32")
    if angles == "constant":
        length = choices.take("length", 6)
    joined = choices.take("tables", "half", "whole") if way == "rotate_half" else choices.take("tables", "half")
    rates = 1.0 / 10000 ** (np.arange(0, FEATURES, 2) / FEATURES)
    table = np.outer(np.arange(6), rates).astype(np.float32)

    def tables(x: Array) -> tuple[Array, Array]:
        at = 1 if order == "thd" else 2
        if angles == "constant":
            angle = jnp.asarray(table)
        else:
            angle = jnp.arange(x.shape[at], dtype=jnp.float32)[:, None] * jnp.asarray(rates, jnp.float32)
        if joined == "whole":
            angle = jnp.concatenate([angle, angle], axis=-1)
        cosine, sine = jnp.cos(angle), jnp.sin(angle)
        if order == "thd":
            cosine, sine = cosine[:, None, :], sine[:, None, :]
        return cosine.astype(x.dtype), sine.astype(x.dtype)

    def fn(x: Array) -> Array:
        cosine, sine = tables(x)
        half = FEATURES // 2
        if way == "complex":
            pairs = (x[..., :half], x[..., half:]) if layout == "halves" else (x[..., ::2], x[..., 1::2])
            turned = jax.lax.complex(*pairs) * jax.lax.complex(cosine, sine)
            if layout == "halves":
                return jnp.concatenate([turned.real, turned.imag], axis=-1)
            return jnp.stack([turned.real, turned.imag], axis=-1).reshape(x.shape)
        if way == "rotate_half":
            if joined == "half":
                cosine, sine = (jnp.concatenate([part, part], axis=-1) for part in (cosine, sine))
            turned = jnp.concatenate([-x[..., half:], x[..., :half]], axis=-1)
            return x * cosine + turned * sine
        if way == "split":
            a, b = jnp.split(x, 2, axis=-1)
        elif way == "slices":
            a, b = x[..., :half], x[..., half:]
        elif way in ("strides", "stack"):
            a, b = x[..., ::2], x[..., 1::2]
        else:
            apart = x.reshape(*x.shape[:-1], half, 2)
            a, b = apart[..., 0], apart[..., 1]
        first, second = a * cosine - b * sine, b * cosine + a * sine
        if layout == "halves":
            return jnp.concatenate([first, second], axis=-1)
        return jnp.stack([first, second], axis=-1).reshape(x.shape)

    sizes = (3 if batch == "symbol" else batch, 6)
    named = ("B" if batch == "symbol" else batch, "T" if length == "symbol" else length)
    shape = (*sizes, HEADS, FEATURES) if order == "thd" else (sizes[0], HEADS, sizes[1], FEATURES)
    spec = (*named, HEADS, FEATURES) if order == "thd" else (named[0], HEADS, named[1], FEATURES)
    specs = [jax.ShapeDtypeStruct(spec, TYPES[dtype])] if any(isinstance(size, str) for size in spec) else None
    return Form(fn, [choices.normal(shape, dtype)], {"RotaryEmbedding": 1}, specs, absent=("Neg",), dtype=dtype)
