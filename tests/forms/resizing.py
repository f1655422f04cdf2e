"""Images that are enlarged or reduced, by libraries and by hand."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import jax
import jax.image
import jax.numpy as jnp
from forms import TYPES, Choices, Form

Array = Any
CHANNELS = 3
_REPEATING = ("Einsum", "Expand", "Tile")


def make(choices: Choices) -> Form:
    dtype = choices.take("type", "float32", "float32", "float16", "bfloat16")
    order = choices.take("order", "channels last", "channels last", "channels first")
    method = choices.take("method", "nearest", "bilinear", "bicubic", "linear", "cubic", "lanczos3")
    batch = choices.take("batch", None, 1, 2, "symbol")
    high, wide = choices.take("from", (4, 6), (8, 8))
    to = choices.take("to", (8, 12), (16, 16), (4, 4), (5, 9))
    ways = (*["jax.image"] * 3, "repeat", "keras", "indices", "indexing", "stack", "one by one", *_REPEATED)
    way = choices.take("written", *ways)
    antialias = choices.take("antialias", False, True) if way == "jax.image" else False
    last = order == "channels last"
    if way == "one by one" and method == "nearest":
        method = choices.take("method", "bilinear", "bicubic")
    if way in ("repeat", "indices", "indexing", "stack") or way in _REPEATED:
        method, to = choices.take("method", "nearest"), choices.take("to", (2 * high, 2 * wide))
    if way == "keras":
        to, order, last = choices.take("to", (2 * high, 2 * wide)), choices.take("order", "channels last"), True
        batch = 2 if batch is None else batch
        method = choices.take("method", "nearest", "bilinear")
    if way == "jax.image" and method != "lanczos3" and choices.take("symbolic space", False, False, True):
        return _of_any_size(choices, dtype, last, method, batch, antialias)
    lead = () if batch is None else (3 if batch == "symbol" else batch,)
    shape = (*lead, high, wide, CHANNELS) if last else (*lead, CHANNELS, high, wide)
    at = len(shape) - (3 if last else 2)
    fn = _resized(way, method, antialias, at, to)
    named = ("B" if batch == "symbol" else shape[0], *shape[1:])
    specs = [jax.ShapeDtypeStruct(named, TYPES[dtype])] if batch == "symbol" else None
    picked = method == "nearest" and way in ("jax.image", "indices", "indexing")
    same = to == (high, wide) or picked  # picking is a Gather for each axis
    same = same or (method == "nearest" and dtype == "bfloat16")  # which the runtime moves, but does not resize
    # Resize has no such weights; and the runtime interpolates cubically over channels last, where it puts them, only
    # what grows: each axis is a product then.
    shrinks = to[0] < high or to[1] < wide
    by_products = method == "lanczos3" or (method in ("bicubic", "cubic") and not antialias and shrinks)
    if method != "nearest" and sum(one != other for one, other in zip(to, (high, wide), strict=True)) == 1:
        same = True  # one product is one node
    return Form(
        fn,
        [choices.normal(shape, dtype)],
        {} if same or by_products else {"Resize": 1},
        specs,
        absent=_REPEATING if by_products else () if same else ("MatMul", "Gemm", *_REPEATING),
        most=7 + 2 * (dtype != "float32") if by_products else 5,
        dtype=dtype,
        tolerance={"float32": 1e-4, "float16": 2e-2, "bfloat16": 1e-1}[dtype],
    )


def _of_any_size(choices: Choices, dtype: str, last: bool, method: str, batch: Any, antialias: bool) -> Form:
    """Whole times as large, or of one size whatever it was before."""
    to = choices.take("to", "twice", "three times", *([] if method == "nearest" else [(7, 9)]))
    lead = () if batch is None else (batch,)
    sizes = [(5, 6), (12, 4), (1, 9)]

    def given(space: tuple[Any, ...]) -> tuple[Any, ...]:
        return (*lead, *space, CHANNELS) if last else (*lead, CHANNELS, *space)

    at = len(lead) + (0 if last else 1)

    def fn(x: Array) -> Array:
        times = {"twice": 2, "three times": 3}.get(to, 0)
        space = (times * x.shape[at], times * x.shape[at + 1]) if times else to
        return jax.image.resize(x, (*x.shape[:at], *space, *x.shape[at + 2 :]), method, antialias=antialias)

    spec = tuple("B" if size == "symbol" else size for size in given(("H", "W")))
    args = [choices.normal([3 if size == "symbol" else size for size in given(space)], dtype) for space in sizes]
    # The runtime interpolates cubically over channels last, where it puts them, only what grows.
    by_products = method in ("bicubic", "cubic") and not antialias and not isinstance(to, str)
    return Form(
        fn,
        args[:1],
        {} if by_products else {"Resize": 1},
        [jax.ShapeDtypeStruct(spec, TYPES[dtype])],
        most=None if by_products else 7,
        dtype=dtype,
        tolerance={"float32": 1e-4, "float16": 2e-2, "bfloat16": 1e-1}[dtype],
        more_args=[[more] for more in args[1:]],
    )


# Each element twice along two axes, of what has an axis of size 1 after each of them.
_REPEATED: dict[str, Callable[[Array, tuple[int, ...]], Array]] = {
    "broadcast": jnp.broadcast_to,
    "tile": lambda x, sizes: jnp.tile(x, tuple(2 if a != b else 1 for a, b in zip(x.shape, sizes, strict=True))),
    "ones": lambda x, sizes: (
        x * jnp.ones(tuple(2 if a != b else 1 for a, b in zip(x.shape, sizes, strict=True)), x.dtype)
    ),
}


def _resized(way: str, method: str, antialias: bool, at: int, to: tuple[int, int]) -> Callable[[Array], Array]:
    def fn(x: Array) -> Array:
        shape = (*x.shape[:at], *to, *x.shape[at + 2 :])
        if way == "jax.image":
            return jax.image.resize(x, shape, method, antialias=antialias)
        if way == "one by one":
            middle = (*x.shape[:at], to[0], *x.shape[at + 1 :])
            return jax.image.resize(
                jax.image.resize(x, middle, method, antialias=False), shape, method, antialias=False
            )
        if way == "indices":
            rows, columns = jnp.arange(to[0]) // 2, jnp.arange(to[1]) // 2
            return jnp.take(jnp.take(x, rows, axis=at), columns, axis=at + 1)
        if way == "indexing":
            before = (slice(None),) * at
            return x[(*before, (jnp.arange(to[0]) // 2)[:, None], (jnp.arange(to[1]) // 2)[None, :])]
        if way == "stack":
            for axis in (at, at + 1):
                doubled = (*x.shape[:axis], 2 * x.shape[axis], *x.shape[axis + 1 :])
                x = jnp.stack([x, x], axis + 1).reshape(doubled)
            return x
        if way == "repeat":
            return jnp.repeat(jnp.repeat(x, 2, axis=at), 2, axis=at + 1)
        if way in _REPEATED:
            spread = x.reshape(*x.shape[: at + 1], 1, x.shape[at + 1], 1, *x.shape[at + 2 :])
            sizes = (*x.shape[: at + 1], 2, x.shape[at + 1], 2, *x.shape[at + 2 :])
            return _REPEATED[way](spread, sizes).reshape(shape)
        os.environ.setdefault("KERAS_BACKEND", "jax")
        import keras

        return keras.layers.UpSampling2D(2, interpolation=method)(x)

    return fn
