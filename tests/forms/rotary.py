"""Rotary embeddings: by halves, by pairs, as complex numbers; angles from positions, looked up, or given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from forms import TYPES, Choices, Form

Array = Any
FEATURES, HEADS, MOST = 8, 2, 32
HALF = FEATURES // 2
RATES = 1.0 / 10000 ** (np.arange(0, FEATURES, 2) / FEATURES)


def make(choices: Choices) -> Form:
    dtype = choices.take("type", "float32", "float32", "float16", "bfloat16")
    layout = choices.take("pairs", "halves", "halves", "neighbours")
    order = choices.take("order", "thd", "htd")
    batch, length = choices.take("batch", None, 1, 2, "symbol"), choices.take("length", 6, "symbol")
    ways = _HALVES if layout == "halves" else _NEIGHBOURS
    way = choices.take("written", *[way for way in ways if way not in _SELDOM] * 8, *[w for w in ways if w in _SELDOM])
    angles = choices.take("angles", "from positions", "constant", "table", "given", "looked up")
    if angles in ("constant", "given", "looked up"):
        length = choices.take("length", 6)
    if angles in ("given", "looked up") and batch is None:
        batch = choices.take("batch", 2)
    wide = choices.take("computed in", "its own", "float32") == "float32" or way.startswith("complex")
    turn = ways[way]
    tables = _tables(choices, angles, order)
    part = choices.take("turned", *["all"] * 6, "half of the features", "half of the features", "half, joined at once")

    def fn(x: Array, *given: Array) -> Array:
        cosine, sine = tables(x, *given)
        kept = x.dtype
        if wide:
            x = x.astype(jnp.float32)
        cosine, sine = cosine.astype(x.dtype), sine.astype(x.dtype)
        if part == "all":
            return turn(x, cosine, sine).astype(kept)
        if part == "half, joined at once":
            a, b, rest = jnp.split(x, [HALF // 2, HALF], axis=-1)
            turned = _turned(a, b, cosine[..., : HALF // 2], sine[..., : HALF // 2])
            return jnp.concatenate([*turned, rest], axis=-1).astype(kept)
        few = turn(x[..., :HALF], cosine[..., : HALF // 2], sine[..., : HALF // 2])
        return jnp.concatenate([few, x[..., HALF:]], axis=-1).astype(kept)

    sizes = (3 if batch == "symbol" else batch, 6)
    named = ("B" if batch == "symbol" else batch, "T" if length == "symbol" else length)
    args = [choices.normal(_shape(sizes, order), dtype)]
    names: list[Any] = [_shape(named, order)]
    if angles in ("given", "looked up"):
        args.append(np.arange(3, 9, dtype=np.int32) + np.zeros((sizes[0], 1), np.int32))
        names.append(named)
    symbolic = any(isinstance(size, str) for shape in names for size in shape)
    types = [TYPES[dtype], np.int32]
    specs = [jax.ShapeDtypeStruct(*spec) for spec in zip(names, types, strict=False)] if symbolic else None
    form = Form(fn, args, {"RotaryEmbedding": 1}, specs, absent=("Neg",), dtype=dtype)
    if way == "complex viewed":
        form.apart = "1j * x has a real part of 0 * x, which is NaN where x is infinite"
    if way == "rows of two" and angles in ("constant", "table"):
        form.apart = "cosines and sines are a single constant"
    return form


def _shape(sizes: tuple[Any, Any], order: str) -> tuple[Any, ...]:
    batch, length = sizes
    inner = (length, HEADS, FEATURES) if order == "thd" else (HEADS, length, FEATURES)
    return inner if batch is None else (batch, *inner)


def _tables(choices: Choices, angles: str, order: str) -> Callable[..., tuple[Array, Array]]:
    table = np.outer(np.arange(MOST), RATES).astype(np.float32)
    rates = np.asarray(RATES, np.float32)

    def angle(x: Array, *given: Array) -> Array:
        length = x.shape[-3 if order == "thd" else -2]
        if angles == "constant":
            return jnp.asarray(table[:6])
        if angles == "from positions":
            return jnp.arange(length, dtype=jnp.float32)[:, None] * rates
        return given[0][..., None] * rates

    def tables(x: Array, *given: Array) -> tuple[Array, Array]:
        if angles == "table":
            length = x.shape[-3 if order == "thd" else -2]
            parts = [jnp.asarray(turned)[:length] for turned in (np.cos(table), np.sin(table))]
        elif angles == "looked up":
            parts = [jnp.asarray(turned)[given[0]] for turned in (np.cos(table), np.sin(table))]
        else:
            parts = [jnp.cos(angle(x, *given)), jnp.sin(angle(x, *given))]
        at = -2 if order == "thd" else -3
        if order == "thd" or angles in ("given", "looked up"):
            parts = [jnp.expand_dims(part, at) for part in parts]
        return parts[0], parts[1]

    return tables


# ---- halves ----


def _joined(a: Array, b: Array) -> Array:
    return jnp.concatenate([a, b], axis=-1)


def _turned(a: Array, b: Array, cosine: Array, sine: Array) -> tuple[Array, Array]:
    return a * cosine - b * sine, b * cosine + a * sine


def _split(x: Array, cosine: Array, sine: Array) -> Array:
    return _joined(*_turned(*jnp.split(x, 2, axis=-1), cosine, sine))


def _slices(x: Array, cosine: Array, sine: Array) -> Array:
    half = x.shape[-1] // 2
    a, b = x[..., :half], x[..., half:]
    return jnp.concatenate((cosine * a - sine * b, sine * a + cosine * b), axis=-1)


def _signs(x: Array, cosine: Array, sine: Array) -> Array:
    a, b = jnp.split(x, 2, axis=-1)
    return _joined(a * cosine + (-b) * sine, b * cosine + a * sine)


def _rows(x: Array, cosine: Array, sine: Array) -> Array:
    apart = x.reshape(*x.shape[:-1], 2, -1)
    return jnp.stack(_turned(apart[..., 0, :], apart[..., 1, :], cosine, sine), axis=-2).reshape(x.shape)


def _rotate_half(x: Array, cosine: Array, sine: Array) -> Array:
    a, b = jnp.split(x, 2, axis=-1)
    return x * _joined(cosine, cosine) + _joined(-b, a) * _joined(sine, sine)


def _halves_exchanged(x: Array, cosine: Array, sine: Array) -> Array:
    half = x.shape[-1] // 2
    turned = jnp.concatenate((-x[..., half:], x[..., :half]), axis=-1)
    return x * _joined(cosine, cosine) + turned * _joined(sine, sine)


def _mapped(x: Array, cosine: Array, sine: Array) -> Array:
    """One row of features after the other."""
    turn = _split
    cosine, sine = (jnp.broadcast_to(part, (*x.shape[:-1], part.shape[-1])) for part in (cosine, sine))
    for _ in range(x.ndim - 1):
        turn = jax.vmap(turn)
    return turn(x, cosine, sine)


def _rolled(x: Array, cosine: Array, sine: Array) -> Array:
    return x * _joined(cosine, cosine) + jnp.roll(x, x.shape[-1] // 2, axis=-1) * _joined(-sine, sine)


def _tiled(x: Array, cosine: Array, sine: Array) -> Array:
    a, b = jnp.split(x, 2, axis=-1)
    twice = (1,) * (cosine.ndim - 1) + (2,)
    return x * jnp.tile(cosine, twice) + _joined(-b, a) * jnp.tile(sine, twice)


def _halves_by_sign(x: Array, cosine: Array, sine: Array) -> Array:
    """Halves change places, and a vector of signs says which of them is taken away."""
    signs = jnp.asarray(np.repeat([-1, 1], x.shape[-1] // 2), x.dtype)
    exchanged = jnp.flip(x.reshape(*x.shape[:-1], 2, -1), axis=-2).reshape(x.shape)
    return x * _joined(cosine, cosine) + exchanged * signs * _joined(sine, sine)


def _halves_of_sine(x: Array, cosine: Array, sine: Array) -> Array:
    signs = jnp.asarray(np.repeat([-1, 1], x.shape[-1] // 2), x.dtype)
    a, b = x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2 :]
    return _joined(cosine, cosine) * x + (signs * _joined(sine, sine)) * _joined(b, a)


def _halves_by_index(x: Array, cosine: Array, sine: Array) -> Array:
    order = np.roll(np.arange(x.shape[-1]), x.shape[-1] // 2)
    return x * _joined(cosine, cosine) + x[..., order] * _joined(-sine, sine)


def _halves_set(x: Array, cosine: Array, sine: Array) -> Array:
    half = x.shape[-1] // 2
    first, second = _turned(x[..., :half], x[..., half:], cosine, sine)
    return jnp.zeros_like(x).at[..., :half].set(first).at[..., half:].set(second)


def _halves_by_rows_of_two(x: Array, cosine: Array, sine: Array) -> Array:
    """A matrix of two rows and columns for each angle."""
    apart = x.reshape(*x.shape[:-1], 2, -1)
    turn = jnp.stack([jnp.stack([cosine, -sine], -2), jnp.stack([sine, cosine], -2)], -3)
    return (turn * apart[..., None, :, :]).sum(-2).reshape(x.shape)


def _complex_halves(x: Array, cosine: Array, sine: Array) -> Array:
    turned = jax.lax.complex(*jnp.split(x, 2, axis=-1)) * jax.lax.complex(cosine, sine)
    return _joined(turned.real, turned.imag)


# ---- neighbours ----


def _woven(x: Array, first: Array, second: Array) -> Array:
    return jnp.stack([first, second], axis=-1).reshape(x.shape)


def _strides(x: Array, cosine: Array, sine: Array) -> Array:
    return _woven(x, *_turned(x[..., ::2], x[..., 1::2], cosine, sine))


def _reshaped(x: Array, cosine: Array, sine: Array) -> Array:
    apart = x.reshape(*x.shape[:-1], -1, 2)
    return _woven(x, *_turned(apart[..., 0], apart[..., 1], cosine, sine))


def _every_two(x: Array, cosine: Array, sine: Array) -> Array:
    turned = _woven(x, -x[..., 1::2], x[..., ::2])
    return x * jnp.repeat(cosine, 2, axis=-1) + turned * jnp.repeat(sine, 2, axis=-1)


def _neighbours_set(x: Array, cosine: Array, sine: Array) -> Array:
    first, second = _turned(x[..., ::2], x[..., 1::2], cosine, sine)
    return jnp.zeros_like(x).at[..., ::2].set(first).at[..., 1::2].set(second)


def _neighbours_set_in_place(x: Array, cosine: Array, sine: Array) -> Array:
    first, second = _turned(x[..., 0::2], x[..., 1::2], cosine, sine)
    return x.at[..., 0::2].set(first).at[..., 1::2].set(second)


def _neighbours_by_sign(x: Array, cosine: Array, sine: Array) -> Array:
    signs = jnp.asarray(np.tile([-1, 1], x.shape[-1] // 2), x.dtype)
    exchanged = x.reshape(*x.shape[:-1], -1, 2)[..., ::-1].reshape(x.shape)
    return x * jnp.repeat(cosine, 2, axis=-1) + exchanged * (signs * jnp.repeat(sine, 2, axis=-1))


def _pairs_kept(x: Array, cosine: Array, sine: Array) -> Array:
    """The pair is an axis, along which the other one is found by turning it around."""
    apart = x.reshape(*x.shape[:-1], -1, 2)
    turned = jnp.stack([-apart[..., 1], apart[..., 0]], axis=-1)
    return (apart * cosine[..., None] + turned * sine[..., None]).reshape(x.shape)


def _neighbours_by_index(x: Array, cosine: Array, sine: Array) -> Array:
    order = np.arange(x.shape[-1]) ^ 1
    signs = jnp.asarray(np.tile([-1, 1], x.shape[-1] // 2), x.dtype)
    return x * jnp.repeat(cosine, 2, axis=-1) + x[..., order] * signs * jnp.repeat(sine, 2, axis=-1)


def _neighbours_split(x: Array, cosine: Array, sine: Array) -> Array:
    a, b = jnp.split(x.reshape(*x.shape[:-1], -1, 2), 2, axis=-1)
    cosine, sine = cosine[..., None], sine[..., None]
    return jnp.concatenate(_turned(a, b, cosine, sine), axis=-1).reshape(x.shape)


def _complex_viewed(x: Array, cosine: Array, sine: Array) -> Array:
    apart = x.reshape(*x.shape[:-1], -1, 2)
    turned = (apart[..., 0] + 1j * apart[..., 1]) * (cosine + 1j * sine)
    return jnp.stack([turned.real, turned.imag], axis=-1).reshape(x.shape)


def _complex_neighbours(x: Array, cosine: Array, sine: Array) -> Array:
    turned = jax.lax.complex(x[..., ::2], x[..., 1::2]) * jax.lax.complex(cosine, sine)
    return _woven(x, turned.real, turned.imag)


_SELDOM = ("complex viewed", "rows of two")
_HALVES = {
    "split": _split,
    "slices": _slices,
    "signs": _signs,
    "rows": _rows,
    "rotate_half": _rotate_half,
    "halves exchanged": _halves_exchanged,
    "mapped": _mapped,
    "roll": _rolled,
    "complex halves": _complex_halves,
    "tiled tables": _tiled,
    "halves by sign": _halves_by_sign,
    "signs of the sine": _halves_of_sine,
    "halves by index": _halves_by_index,
    "halves set": _halves_set,
    "rows of two": _halves_by_rows_of_two,
}
_NEIGHBOURS = {
    "strides": _strides,
    "reshape": _reshaped,
    "every two": _every_two,
    "complex neighbours": _complex_neighbours,
    "neighbours set": _neighbours_set,
    "neighbours set in place": _neighbours_set_in_place,
    "neighbours by sign": _neighbours_by_sign,
    "pairs kept": _pairs_kept,
    "neighbours by index": _neighbours_by_index,
    "neighbours split": _neighbours_split,
    "complex viewed": _complex_viewed,
}
