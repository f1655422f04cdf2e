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
    way = choices.take("written", *_HANDS, *_LAYERS)
    if way in _LAYERS:
        dtype = choices.take("type", "float32")
    table = jnp.asarray(choices.normal((ROWS, FEATURES), dtype))
    given = way not in _LAYERS and choices.take("table", "constant", "constant", "input") == "input"
    tied = way not in _LAYERS and choices.take("tied to logits", None, None, "product", "einsum", "dot_general")
    fn = _LAYERS[way]() if way in _LAYERS else _by_hand(_HANDS[way], table, tied)
    after, more = _AFTER[choices.take("after", *_AFTER)] if not tied else _AFTER["nothing"]
    sizes = [3 if isinstance(n, str) else n for n in shape]
    args = [choices.numbers.integers(0, ROWS, sizes).astype(indices)]
    specs = [jax.ShapeDtypeStruct(shape, indices)]
    outside = [np.full(sizes, ROWS + 2, indices)]
    if given:
        args, outside = [*args, np.asarray(table)], [*outside, np.asarray(table)]
        specs.append(jax.ShapeDtypeStruct(table.shape, table.dtype))
    absent = ("OneHot", "GatherND", "ScatterND", "Einsum", "Reshape")
    expected = {"Gather": 1, "MatMul|Gemm": int(bool(tied)), **more}
    apart = "0 times what the table may hold is NaN" if given and way in _PRODUCTS else None
    symbolic = any(isinstance(n, str) for n in shape)
    form = Form(
        lambda *given: after(fn(*given)),
        args,
        expected,
        specs if symbolic else None,
        absent=absent,
        apart=apart,
        dtype=dtype,
    )
    if way in _PRODUCTS or way in ("clipped", "wrapped", "filled", "got", "dynamic"):
        form.more_args = [outside]
    return form


_POSITIONS = np.linspace(-1, 1, 5 * FEATURES, dtype=np.float32).reshape(5, FEATURES)
# What is done with the rows, and the operators for it.
_AFTER: dict[str, tuple[Callable[[Array], Array], dict[str, int]]] = {
    "nothing": (lambda y: y, {}),
    "scaled": (lambda y: y * FEATURES**0.5, {}),
    "positions": (lambda y: y + _POSITIONS[: y.shape[-2]].astype(y.dtype) if y.shape[-2] == 5 else y, {}),
    "sum": (lambda y: y.sum(-2), {"ReduceSum": 1}),
}


def _by_hand(way: Callable[[Array, Array], Array], table: Array, tied: str | None) -> Callable[..., Array]:
    def fn(i: Array, *given: Array) -> Array:
        weights = given[0] if given else table
        rows = way(weights, i)
        if tied == "einsum":
            return jnp.einsum("...f,vf->...v", rows, weights)
        if tied == "dot_general":
            return jax.lax.dot_general(rows, weights, (((rows.ndim - 1,), (1,)), ((), ())))
        return rows @ weights.T if tied else rows

    return fn


def _hot(table: Array, i: Array) -> Array:
    return jax.nn.one_hot(i, ROWS, dtype=table.dtype)


def _mapped(table: Array, i: Array) -> Array:
    flat = jax.vmap(lambda one: table[one])(i.reshape(-1))
    return flat.reshape(*i.shape, FEATURES)


def _dynamic(table: Array, i: Array) -> Array:
    pick = jax.vmap(lambda one: jax.lax.dynamic_index_in_dim(table, one, 0, keepdims=False))
    return pick(i.reshape(-1)).reshape(*i.shape, FEATURES)


_PRODUCTS: dict[str, Callable[[Array, Array], Array]] = {
    "one_hot": lambda table, i: _hot(table, i) @ table,
    "one_hot einsum": lambda table, i: jnp.einsum("...v,vf->...f", _hot(table, i), table),
    "one_hot dot": lambda table, i: jnp.dot(_hot(table, i), table),
    "compared": lambda table, i: (i[..., None] == jnp.arange(ROWS)).astype(table.dtype) @ table,
}
_HANDS: dict[str, Callable[[Array, Array], Array]] = {
    "index": lambda table, i: table[i],
    "take": lambda table, i: jnp.take(table, i, axis=0),
    "clipped": lambda table, i: jnp.take(table, i, axis=0, mode="clip"),
    "wrapped": lambda table, i: jnp.take(table, i, axis=0, mode="wrap"),
    "filled": lambda table, i: jnp.take(table, i, axis=0, mode="fill", fill_value=0),
    "got": lambda table, i: table.at[i].get(mode="fill", fill_value=0),
    "vmap": _mapped,
    "dynamic": _dynamic,
    "flat": lambda table, i: table[i.reshape(-1)].reshape(*i.shape, FEATURES),
    "promised": lambda table, i: table.at[i].get(mode="promise_in_bounds"),
    "take of axis": lambda table, i: jnp.take(table.T, i, axis=1).transpose(*range(1, i.ndim + 1), 0),
    "mapped twice": lambda table, i: functools.reduce(lambda f, _: jax.vmap(f), i.shape, lambda one: table[one])(i),
    "lax": lambda table, i: jax.lax.gather(
        table,
        i[..., None].astype(np.int32),
        jax.lax.GatherDimensionNumbers((i.ndim,), (0,), (0,)),
        (1, FEATURES),
        mode="clip",
    ),
    **_PRODUCTS,
}


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


@functools.cache
def _equinox() -> Callable[[Array], Array]:
    import equinox

    layer = equinox.nn.Embedding(ROWS, FEATURES, key=jax.random.key(0))
    return lambda i: functools.reduce(lambda f, _: jax.vmap(f), i.shape, layer)(i)


_LAYERS = {"linen": _linen, "nnx": _nnx, "keras": _keras, "equinox": _equinox}
