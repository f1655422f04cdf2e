"""Embeddings: rows of a table that are taken by index, in the ways that people take them."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from forms import Choices, Form

Array = Any
ROWS, FEATURES = 11, 4


def make(choices: Choices) -> Form:
    dtype = choices.take("type", "float32", "float16", "bfloat16")
    shape = choices.take("shape", (5,), (2, 5), ("B", 5), ("B", "T"))
    indices = choices.take("indices", "int32", "uint8")
    way = choices.take(
        "written", "index", "take", "clipped", "one_hot", "one_hot einsum", "linen", "nnx", "keras", "vmap"
    )
    if way in ("linen", "nnx", "keras"):
        dtype = choices.take("type", "float32")
    table = jnp.asarray(choices.normal((ROWS, FEATURES), dtype))
    fn = _LAYERS[way]() if way in _LAYERS else _by_hand(way, table)
    args = [choices.numbers.integers(0, ROWS, [3 if isinstance(n, str) else n for n in shape]).astype(indices)]
    specs = [jax.ShapeDtypeStruct(shape, indices)] if any(isinstance(n, str) for n in shape) else None
    absent = ("MatMul", "OneHot", "GatherND", "ScatterND", "Einsum")
    apart = "an index outside gives a row of zeros" if "one_hot" in way else None
    return Form(fn, args, {"Gather": 1}, specs, absent=absent, apart=apart, dtype=dtype)


def _by_hand(way: str, table: Array) -> Callable[[Array], Array]:
    def fn(i: Array) -> Array:
        if way == "index":
            return table[i]
        if way == "take":
            return jnp.take(table, i, axis=0)
        if way == "clipped":
            return jnp.take(table, i, axis=0, mode="clip")
        if way == "vmap":
            flat = jax.vmap(lambda one: table[one])(i.reshape(-1))
            return flat.reshape(*i.shape, FEATURES)
        hot = jax.nn.one_hot(i, ROWS, dtype=table.dtype)
        return hot @ table if way == "one_hot" else jnp.einsum("...v,vf->...f", hot, table)

    return fn


@functools.cache
def _linen() -> Callable[[Array], Array]:
    from flax import linen

    layer = linen.Embed(ROWS, FEATURES)
    weights = layer.init(jax.random.key(0), jnp.zeros((2,), np.int32))
    return lambda i: layer.apply(weights, i)


@functools.cache
def _nnx() -> Callable[[Array], Array]:
    from flax import nnx

    return nnx.Embed(ROWS, FEATURES, rngs=nnx.Rngs(0))


@functools.cache
def _keras() -> Callable[[Array], Array]:
    os.environ.setdefault("KERAS_BACKEND", "jax")
    import keras

    layer = keras.layers.Embedding(ROWS, FEATURES)
    layer.build()
    return lambda i: layer(i)


_LAYERS = {"linen": _linen, "nnx": _nnx, "keras": _keras}
