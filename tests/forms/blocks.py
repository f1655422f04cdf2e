"""Images taken apart into blocks and put together again: pixel shuffles, their inverses and means of blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from forms import TYPES, Choices, Form

Array = Any
CHANNELS = 3
Way = Callable[[Array], Array]


def make(choices: Choices) -> Form:
    kind = choices.take("kind", "to space", "to depth", "mean")
    dtype = choices.take("type", "float32", "float32", "float16", "bfloat16")
    last = choices.take("order", "channels last", "channels first") == "channels last"
    size = choices.take("size", 2, 3, 4)
    batch, symbolic = choices.take("batch", 1, 2, "symbol"), choices.take("symbolic space", False, False, True)
    ways = {"to space": _to_space, "to depth": _to_depth, "mean": _mean}[kind](size, last)
    way = ways[choices.take("written", *ways)]
    mapped = choices.take("mapped over the batch", False, False, True)
    convolved = choices.take("convolutions", "none", "none", "before", "after", "both")
    channels = CHANNELS * size**2 if kind == "to space" else CHANNELS
    first = _convolution(choices, channels, channels, last, dtype) if convolved in ("before", "both") else None
    inner = {"to space": CHANNELS, "to depth": CHANNELS * size**2, "mean": CHANNELS}[kind]
    second = _convolution(choices, inner, 2, last, dtype) if convolved in ("after", "both") else None

    def fn(x: Array) -> Array:
        x = first(x) if first else x
        x = jax.vmap(lambda one: way(one[None])[0])(x) if mapped else way(x)
        return second(x) if second else x

    factor = 1 if kind == "to space" else size
    space: tuple[Any, ...] = (3 * factor, 4 * factor)
    named = tuple(name if factor == 1 else f"{factor}*{name}" for name in "hw") if symbolic else space
    lead, count = ("B", 3) if batch == "symbol" else (batch, batch)
    spec = (lead, *named, channels) if last else (lead, channels, *named)
    shape = (count, *space, channels) if last else (count, channels, *space)
    specs = [jax.ShapeDtypeStruct(spec, TYPES[dtype])] if any(isinstance(one, str) for one in spec) else None
    expected, most = _expected(kind, last, dtype, (first is not None) + (second is not None))
    if kind != "mean" and dtype == "bfloat16" and not (first or second):
        most = 5 + 6 * symbolic + 2 * mapped
    return Form(
        fn, [choices.normal(shape, dtype)], expected, specs, most=most, dtype=dtype, tolerance=_TOLERANCE[dtype]
    )


_TOLERANCE = {"float32": 1e-4, "float16": 4e-2, "bfloat16": 2e-1}


def _expected(kind: str, last: bool, dtype: str, convolutions: int) -> tuple[dict[str, int], int]:
    """Of an image with its channels last and nothing around, Reshapes are as few; halves without a kernel move so."""
    casts = 2 * (dtype == "bfloat16")
    if not convolutions and (last or (kind != "mean" and dtype == "bfloat16")):
        return {}, 3 + casts
    operator = {"to space": "DepthToSpace", "to depth": "SpaceToDepth", "mean": "AveragePool"}[kind]
    return {operator: 1}, 1 + convolutions + 2 * last + casts


def _convolution(choices: Choices, fewer: int, more: int, last: bool, dtype: str) -> Way:
    weights = jnp.asarray(choices.normal((3, 3, fewer, more), dtype, 0.2))
    order = ("NHWC", "HWIO", "NHWC") if last else ("NCHW", "HWIO", "NCHW")
    return lambda x: jax.lax.conv_general_dilated(x, weights, (1, 1), "SAME", dimension_numbers=order)


# ---- channels to space ----


def _to_space(size: int, last: bool) -> dict[str, Way]:
    return {
        "channels outside": lambda x: _shuffled(x, size, last, True),
        "channels inside": lambda x: _shuffled(x, size, last, False),
        "rows, then columns": lambda x: _shuffled_in_turn(x, size, last),
    }


def _sizes(x: Array, last: bool) -> tuple[Any, ...]:
    n, h, w, c = x.shape if last else (x.shape[0], *x.shape[2:], x.shape[1])
    return n, h, w, c


def _shuffled(x: Array, size: int, last: bool, outside: bool) -> Array:
    n, h, w, c = _sizes(x, last)
    rest = c // size**2
    parts = (rest, size, size) if outside else (size, size, rest)
    if last:
        order = (0, 1, 4, 2, 5, 3) if outside else (0, 1, 3, 2, 4, 5)
        return x.reshape(n, h, w, *parts).transpose(order).reshape(n, h * size, w * size, rest)
    order = (0, 1, 4, 2, 5, 3) if outside else (0, 3, 4, 1, 5, 2)
    return x.reshape(n, *parts, h, w).transpose(order).reshape(n, rest, h * size, w * size)


def _shuffled_in_turn(x: Array, size: int, last: bool) -> Array:
    n, h, w, c = _sizes(x, last)
    some, rest = c // size, c // size**2
    if last:
        y = jnp.moveaxis(x.reshape(n, h, w, size, some), 3, 2).reshape(n, h * size, w, some)
        return y.reshape(n, h * size, w, size, rest).reshape(n, h * size, w * size, rest)
    y = jnp.moveaxis(x.reshape(n, size, some, h, w), 1, 3).reshape(n, some, h * size, w)
    return jnp.moveaxis(y.reshape(n, size, rest, h * size, w), 1, 4).reshape(n, rest, h * size, w * size)


# ---- space to channels ----


def _to_depth(size: int, last: bool) -> dict[str, Way]:
    return {"transpose": lambda x: _gathered(x, size, last), "moveaxis": lambda x: _gathered_in_turn(x, size, last)}


def _parted(x: Array, size: int, last: bool) -> Array:
    n, h, w, c = _sizes(x, last)
    inner = (h // size, size, w // size, size)
    return x.reshape(n, *inner, c) if last else x.reshape(n, c, *inner)


def _gathered(x: Array, size: int, last: bool) -> Array:
    n, h, w, c = _sizes(x, last)
    y = _parted(x, size, last).transpose((0, 1, 3, 2, 4, 5) if last else (0, 3, 5, 1, 2, 4))
    few = (h // size, w // size)
    return y.reshape(n, *few, c * size**2) if last else y.reshape(n, c * size**2, *few)


def _gathered_in_turn(x: Array, size: int, last: bool) -> Array:
    n, h, w, _ = _sizes(x, last)
    y = _parted(x, size, last)
    if last:
        return jnp.swapaxes(y, 2, 3).reshape(n, h // size, w // size, -1)
    return jnp.moveaxis(y, (3, 5), (1, 2)).reshape(n, -1, h // size, w // size)


# ---- means ----


def _mean(size: int, last: bool) -> dict[str, Way]:
    rows, columns = (2, 4) if last else (3, 5)
    return {
        "mean": lambda x: _parted(x, size, last).mean((rows, columns)),
        "sum": lambda x: _parted(x, size, last).sum((rows, columns)) / size**2,
        "product": lambda x: jnp.sum(_parted(x, size, last), (rows, columns)) * (1 / size**2),
        "one by one": lambda x: _parted(x, size, last).mean(columns).mean(rows),
        "einsum": lambda x: jnp.einsum("abcdef->abdf" if last else "abcdef->abce", _parted(x, size, last)) / size**2,
    }
