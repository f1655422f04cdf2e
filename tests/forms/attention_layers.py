"""Attention of libraries: JAX's own function, the layers of Flax, Equinox and Keras, and steps with a cache."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from forms import Choices, Form

Array = Any
FEATURES = 8
SYMBOLS = {"b": "B", "t": "T"}


def _form(fn: Any, args: list[Any], specs: list[Any] | None, dtype: str) -> Form:
    tolerance = {"float16": 2e-2, "bfloat16": 1e-1}.get(dtype)
    return Form(fn, args, {"Attention": 1}, specs, absent=("Softmax",), dtype=dtype, tolerance=tolerance)


# ---- jax.nn.dot_product_attention ----


def function_of_jax(choices: Choices) -> Form:
    dtype = choices.take("type", "float32", "float32", "bfloat16")  # JAX has no float16 for it on processors
    batch = choices.take("batch", None, 1, 2, "symbol")
    length = choices.take("length", *[10, 128, "symbol"] * 4, 2048)
    sizes = {"b": batch if isinstance(batch, int) else 2, "t": length if isinstance(length, int) else 6}
    sizes |= {"h": 4, "d": FEATURES, "g": choices.take("heads of keys", 4, 2, 1)}
    sizes["b"] = 1 if length == 2048 else sizes["b"]
    symbols = {axis for axis, size in (("b", batch), ("t", length)) if size == "symbol"}
    lead = "b" if batch is not None else ""
    inputs = [
        (names, choices.normal([sizes[n] for n in names], dtype)) for names in (lead + "thd", *[lead + "tgd"] * 2)
    ]
    options: dict[str, Any] = {
        "is_causal": choices.take("causal", True, False),
        "scale": choices.take("scale", None, 0.5),
    }
    window = choices.take("local window", None, None, None, 3, (2, 1))
    if window is not None and length != "symbol":  # JAX counts the positions of a window in Python
        options["local_window_size"] = window
    made: dict[str, Callable[[Array], Array]] = {}
    if lead:
        _more_inputs(choices, sizes, inputs, made)
    names_of_more = list(made)

    def fn(q: Array, k: Array, v: Array, *given: Array) -> Array:
        more = {name: made[name](array) for name, array in zip(names_of_more, given, strict=True)}
        return jax.nn.dot_product_attention(q, k, v, **options, **more)

    specs = [
        jax.ShapeDtypeStruct(tuple(SYMBOLS[n] if n in symbols else sizes[n] for n in names), array.dtype)
        for names, array in inputs
    ]
    return _form(fn, [array for _, array in inputs], specs if symbols else None, dtype)


def _more_inputs(choices: Choices, sizes: dict[str, int], inputs: list[Any], made: dict[str, Any]) -> None:
    batch, length = sizes["b"], sizes["t"]
    mask = choices.take("mask", None, None, "padding", "whole")
    if mask == "padding":
        inputs.append(("bt", choices.numbers.random((batch, length)) > 0.3))
        made["mask"] = lambda array: array[:, None, None, :]
    elif mask == "whole":
        inputs.append(("btt", choices.numbers.random((batch, length, length)) > 0.3))
        made["mask"] = lambda array: array[:, None]
    bias = choices.take("bias", None, None, "of keys", "of heads")
    if bias == "of keys":
        inputs.append(("bt", choices.normal((batch, length))))
        made["bias"] = lambda array: array[:, None, None, :]
    elif bias == "of heads":
        inputs.append(("htt", choices.normal((4, length, length))))
        made["bias"] = lambda array: array[None]
    for name in ("query_seq_lengths", "key_value_seq_lengths"):
        if choices.take(name, False, False, False, True):
            inputs.append(("b", choices.numbers.integers(1, length + 1, (batch,)).astype(np.int32)))
            made[name] = lambda array: array


# ---- caches ----


def step_with_cache(choices: Choices) -> Form:
    """One position at a time; keys and values of those before are given, and given back with the new one."""
    dtype = choices.take("type", "float32", "float32", "float32", "float16", "bfloat16")
    batch, length = choices.take("batch", 1, 2, "symbol"), choices.take("length", 10, 128)
    heads, order = choices.take("heads", 1, 4, "grouped"), choices.take("order", "thd", "htd")
    ways = ("dynamic_update_slice", "dynamic_update_slice", "each at its own", "concatenate", "at[].set")
    way, opset = choices.take("cache by", *ways), choices.take("opset", 23, 24)
    number = choices.take("put out by", "-1e9", "least", "-inf", "-1e4")
    fill = {"-1e9": -1e9, "least": float(jnp.finfo(dtype).min), "-inf": -math.inf, "-1e4": -1e4}[number]
    if dtype == "float16":
        fill = max(fill, float(jnp.finfo(dtype).min))
    size, count = 2 if batch == "symbol" else batch, 4 if heads == "grouped" else heads
    groups = 2 if heads == "grouped" else count
    cache = (size, length, groups, FEATURES) if order == "thd" else (size, groups, length, FEATURES)
    x = choices.normal((size, 1, (count + 2 * groups) * FEATURES), dtype)
    position = np.asarray(length // 2, np.int32)
    if way == "each at its own":
        position = choices.numbers.integers(0, length, (size,)).astype(np.int32)
    args = [x, position, choices.normal(cache, dtype), choices.normal(cache, dtype)]
    axis = 1 if order == "thd" else 2

    def put(cache: Array, new: Array, position: Array) -> Array:
        if way == "concatenate":
            return jnp.concatenate([cache, new], axis)
        if way == "at[].set":
            return cache.at[:, position].set(new[:, 0]) if axis == 1 else cache.at[:, :, position].set(new[:, :, 0])
        if way == "each at its own":
            return jax.vmap(lambda one, row, at: jax.lax.dynamic_update_slice_in_dim(one, row, at, axis - 1))(
                cache, new, position
            )
        return jax.lax.dynamic_update_slice(cache, new, (0, position, 0, 0) if axis == 1 else (0, 0, position, 0))

    def fn(x: Array, position: Array, keys: Array, values: Array) -> tuple[Array, Array, Array]:
        parts = jnp.split(x, [count * FEATURES, (count + groups) * FEATURES], axis=-1)
        q, k, v = (part.reshape(-1, 1, n, FEATURES) for part, n in zip(parts, (count, groups, groups), strict=True))
        if order == "htd":
            q, k, v = (part.transpose(0, 2, 1, 3) for part in (q, k, v))
        keys, values = put(keys, k, position), put(values, v, position)
        full_keys, full_values = keys, values
        if groups != count:
            full_keys, full_values = (jnp.repeat(a, count // groups, 3 - axis) for a in (keys, values))
        names = "bqhd,bkhd->bhqk" if order == "thd" else "bhqd,bhkd->bhqk"
        scores = jnp.einsum(names, q, full_keys) / math.sqrt(FEATURES)
        if way != "concatenate":
            last = position[:, None, None, None] if position.ndim else position
            scores = jnp.where(jnp.arange(length) <= last, scores, jnp.asarray(fill, scores.dtype))
        weights = jax.nn.softmax(scores, axis=-1)
        mixed = jnp.einsum("bhqk,bkhd->bqhd" if order == "thd" else "bhqk,bhkd->bqhd", weights, full_values)
        return mixed.reshape(-1, 1, count * FEATURES), keys, values

    specs = None
    if batch == "symbol":
        specs = [jax.ShapeDtypeStruct(("B", *arg.shape[1:]), arg.dtype) if arg.ndim else arg for arg in args]
    form = _form(fn, args, specs, dtype)
    form.opset = opset
    if opset == 24 and way in ("dynamic_update_slice", "each at its own"):
        form.expected["TensorScatter"] = 2
    if batch != "symbol" and way == "each at its own":
        form.more_args = [[x, np.full_like(position, at), *args[2:]] for at in (0, length - 1, length)]
    return form


def joined_cache(choices: Choices) -> Form:
    """A few new positions; their keys and values are joined to those of earlier ones, and given back."""
    dtype = choices.take("type", "float32", "float32", "float32", "float16", "bfloat16")
    batch, past = choices.take("batch", None, 1, 2, 2, "symbol"), choices.take("earlier", 1, 10, 60, "symbol")
    fresh, order = choices.take("positions", 1, 1, 2, 7), choices.take("order", "htd", "htd", "thd")
    count, groups = choices.take("heads", (1, 1), (4, 4), (4, 4), (4, 2), (6, 1))
    masks = ("none", "comparison", "tril", "padding") if past != "symbol" else ("none", "comparison")
    mask = choices.take("mask", *masks)
    given_back = choices.take("given back", True, True, True, False)
    by = choices.take("products by", "einsum", "matmul")
    projected = choices.take("projected", True, False)
    fill = choices.take("put out by", -1e9 if dtype != "float16" else -6e4, -math.inf)
    sizes = {"b": 2 if batch == "symbol" else batch, "p": 6 if past == "symbol" else past, "t": fresh, "d": FEATURES}
    sizes |= {"h": count, "g": groups, "f": 16}
    sizes["s"] = sizes["p"] + fresh
    lead = "" if batch is None else "b"
    axis = len(lead) + (order == "htd")
    heads_axis = len(lead) + (order == "thd")
    weights = [jnp.asarray(choices.normal((16, n * FEATURES), dtype, 0.3)) for n in (count, groups, groups)]

    def names(positions: str, heads: str) -> str:
        return lead + (heads + positions if order == "htd" else positions + heads) + "d"

    def kept(length: Any) -> Array:
        columns, rows = jnp.arange(length)[None, :], jnp.arange(fresh)[:, None]
        if mask == "tril":
            return jnp.tril(jnp.ones((fresh, length), bool), length - fresh)
        return columns <= rows + (length - fresh)

    def attend(q: Array, k: Array, v: Array, *padding: Array) -> Array:
        if groups != count:
            k, v = (jnp.repeat(a, count // groups, heads_axis) for a in (k, v))
        if by == "matmul" and order == "thd":
            q, k, v = (jnp.swapaxes(a, axis, heads_axis) for a in (q, k, v))
        of_q, of_k = names("q", "h"), names("k", "h")
        if by == "einsum":
            scores = jnp.einsum(f"{of_q},{of_k}->{lead}hqk", q, k) / math.sqrt(FEATURES)
        else:
            scores = q @ jnp.swapaxes(k, -1, -2) / math.sqrt(FEATURES)
        if mask in ("comparison", "tril"):
            scores = jnp.where(kept(scores.shape[-1]), scores, jnp.asarray(fill, scores.dtype))
        elif padding:
            scores = jnp.where(padding[0][..., None, None, :], scores, jnp.asarray(fill, scores.dtype))
        shares = jax.nn.softmax(scores, axis=-1)
        if by == "einsum":
            return jnp.einsum(f"{lead}hqk,{of_k}->{of_q}", shares, v)
        mixed = shares @ v
        return jnp.swapaxes(mixed, axis, heads_axis) if order == "thd" else mixed

    def fn(*args: Array) -> Any:
        if projected:
            parts = [args[0] @ weight for weight in weights]
            parts = [part.reshape(*part.shape[:-1], -1, FEATURES) for part in parts]
            new = [jnp.swapaxes(part, -2, -3) if order == "htd" else part for part in parts]
        else:
            new = args[:3]
        keys, values = (jnp.concatenate([old, one], axis) for old, one in zip(args[-2:], new[1:], strict=True))
        mixed = attend(new[0], keys, values, *args[len(given) : -2])
        if projected:
            mixed = jnp.swapaxes(mixed, -2, -3) if order == "htd" else mixed
            mixed = mixed.reshape(*mixed.shape[:-2], -1)
        return (mixed, keys, values) if given_back else mixed

    given = [lead + "tf"] if projected else [names("t", "h"), names("t", "g"), names("t", "g")]
    shapes = [*given, *([lead + "s"] if mask == "padding" else []), names("p", "g"), names("p", "g")]
    args = [choices.normal([sizes[n] for n in one], dtype) for one in shapes]
    if mask == "padding":
        padding = choices.numbers.random([sizes[n] for n in lead + "s"]) > 0.3
        padding[..., 0] = True
        args[len(given)] = padding
    symbols = {"b": "B"} if batch == "symbol" else {}
    symbols |= {"p": "P"} if past == "symbol" else {}
    specs = None
    if symbols:
        specs = [
            jax.ShapeDtypeStruct(tuple(symbols.get(n, sizes[n]) for n in one), array.dtype)
            for one, array in zip(shapes, args, strict=True)
        ]
    form = _form(fn, args, specs, dtype)
    # Its caches have a batch, and heads before positions. Single queries of halves, and scores to which a number for
    # what may be a whole row is added, are computed in float32.
    runs = dtype == "float32" or (dtype == "float16" and fresh > 1 and mask != "padding")
    if lead and order == "htd" and given_back and runs:
        form.expected["Concat"] = 0
    return form


@functools.cache
def _decoding(heads: int, length: int, size: int) -> tuple[Any, Any, Any]:
    from flax import linen

    layer = linen.MultiHeadDotProductAttention(heads, qkv_features=32, decode=True)
    made = layer.init(jax.random.key(0), jnp.zeros((size, length, 16)))
    return layer, {"params": made["params"]}, made["cache"]


def decoding_layer(choices: Choices) -> Form:
    """A layer of Flax that keeps a cache of its own."""
    size, length, heads = choices.take("batch", 1, 2), choices.take("length", 10, 128), choices.take("heads", 1, 4)
    layer, weights, cache = _decoding(heads, length, size)
    position = np.asarray(length // 2, np.int32)
    shape = cache["cached_key"].shape
    args = [choices.normal((size, 1, 16)), position, choices.normal(shape), choices.normal(shape)]

    def fn(x: Array, position: Array, keys: Array, values: Array) -> tuple[Array, Any]:
        cache = {"cache_index": position, "cached_key": keys, "cached_value": values}
        return layer.apply({**weights, "cache": cache}, x, mutable=["cache"])

    return _form(fn, args, None, "float32")


# ---- layers ----


def library_layer(choices: Choices) -> Form:
    library = choices.take("library", *_LAYERS)
    batch = choices.take("batch", 1, 2, "symbol") if library != "equinox" else None
    length = choices.take("length", 10, 128, "symbol")
    heads = choices.take("heads", 1, 4)
    mask = choices.take("mask", "none", "causal", "padding", "both")
    size, positions = (2 if batch == "symbol" else batch), (6 if length == "symbol" else length)
    shape = (positions, 16) if batch is None else (size, positions, 16)
    names = ("T" if length == "symbol" else positions, 16)
    names = names if batch is None else ("B" if batch == "symbol" else size, *names)
    layer = _LAYERS[library](heads)
    args: list[Any] = [choices.normal(shape)]
    specs: list[Any] = [jax.ShapeDtypeStruct(names, "float32")]
    padded = mask in ("padding", "both")
    if padded:
        kept = choices.numbers.random(shape[:-1]) > 0.3
        kept[..., 0] = True
        args.append(kept)
        specs.append(jax.ShapeDtypeStruct(names[:-1], "bool"))

    def fn(x: Array, kept: Array | None = None) -> Array:
        return layer(x, kept, mask in ("causal", "both"))

    symbolic = any(isinstance(name, str) for name in names)
    form = Form(fn, args, {"Attention": 1}, specs if symbolic else None, absent=("Softmax",), tolerance=1e-4)
    if padded:
        form.more_args = [[args[0], np.zeros_like(args[1])]]
    return form


@functools.cache
def _flax_nnx(heads: int) -> Callable[..., Array]:
    from flax import nnx

    layer = nnx.MultiHeadAttention(heads, 16, 32, decode=False, rngs=nnx.Rngs(0))

    def call(x: Array, kept: Array | None, causal: bool) -> Array:
        lower = nnx.make_causal_mask(x[..., 0]) if causal else None
        padding = nnx.make_attention_mask(kept, kept) if kept is not None else None
        return layer(x, mask=nnx.combine_masks(lower, padding))

    return call


@functools.cache
def _flax_linen(heads: int) -> Callable[..., Array]:
    from flax import linen

    layer = linen.MultiHeadDotProductAttention(heads, qkv_features=32)
    weights = layer.init(jax.random.key(0), jnp.zeros((1, 2, 16)))

    def call(x: Array, kept: Array | None, causal: bool) -> Array:
        lower = linen.make_causal_mask(x[..., 0]) if causal else None
        padding = linen.make_attention_mask(kept, kept) if kept is not None else None
        return layer.apply(weights, x, mask=linen.combine_masks(lower, padding))

    return call


@functools.cache
def _equinox(heads: int) -> Callable[..., Array]:
    import equinox

    layer = equinox.nn.MultiheadAttention(heads, 16, key=jax.random.key(0))

    def call(x: Array, kept: Array | None, causal: bool) -> Array:
        mask = jnp.tril(jnp.ones((x.shape[0],) * 2, bool)) if causal else None
        if kept is not None:
            whole = jnp.broadcast_to(kept[None, :], (x.shape[0],) * 2)
            mask = whole if mask is None else mask & whole
        return layer(x, x, x, mask=mask)

    return call


@functools.cache
def _equinox_mapped(heads: int) -> Callable[..., Array]:
    one = _equinox(heads)

    def call(x: Array, kept: Array | None, causal: bool) -> Array:
        if kept is None:
            return jax.vmap(lambda row: one(row, None, causal))(x)
        return jax.vmap(lambda row, mask: one(row, mask, causal))(x, kept)

    return call


def _by_function(attend: Callable[..., Array]) -> Callable[[int], Callable[..., Array]]:
    """A function of queries, keys, values and a mask of batch, heads, queries and keys."""

    def make(heads: int) -> Callable[..., Array]:
        def call(x: Array, kept: Array | None, causal: bool) -> Array:
            q = x.reshape(*x.shape[:-1], heads, -1)
            length = x.shape[1]
            mask = jnp.tril(jnp.ones((length, length), bool))[None, None] if causal else None
            if kept is not None:
                padding = kept[:, None, None, :]
                mask = padding if mask is None else mask & padding
            return attend(q, jnp.sin(q), jnp.cos(q), mask)

        return call

    return make


def _linen_function(q: Array, k: Array, v: Array, mask: Array | None) -> Array:
    from flax import linen

    return linen.dot_product_attention(q, k, v, mask=mask)


def _nnx_function(q: Array, k: Array, v: Array, mask: Array | None) -> Array:
    from flax import nnx

    return nnx.dot_product_attention(q, k, v, mask=mask)


def _keras_function(q: Array, k: Array, v: Array, mask: Array | None) -> Array:
    if mask is not None:  # of the shape of the scores
        mask = jnp.broadcast_to(mask, (q.shape[0], q.shape[2], q.shape[1], q.shape[1]))
    return _keras().ops.dot_product_attention(q, k, v, mask=mask)


def _keras() -> Any:
    import os

    os.environ.setdefault("KERAS_BACKEND", "jax")
    import keras

    return keras


@functools.cache
def _keras_layer(heads: int) -> Callable[..., Array]:
    layer = _keras().layers.MultiHeadAttention(heads, 8)
    layer.build((None, 4, 16), (None, 4, 16))
    return _called(layer)


@functools.cache
def _keras_groups(heads: int) -> Callable[..., Array]:
    layer = _keras().layers.GroupQueryAttention(8, 2 * heads, heads)
    layer.build((None, 4, 16), (None, 4, 16))
    return _called(layer)


def _called(layer: Any) -> Callable[..., Array]:
    def call(x: Array, kept: Array | None, causal: bool) -> Array:
        mask = kept[:, None, :] if kept is not None else None
        return layer(x, x, attention_mask=mask, use_causal_mask=causal)

    return call


_LAYERS = {
    "flax.nnx": _flax_nnx,
    "flax.linen": _flax_linen,
    "equinox": _equinox,
    "equinox, mapped": _equinox_mapped,
    "function of linen": _by_function(_linen_function),
    "function of nnx": _by_function(_nnx_function),
    "function of keras": _by_function(_keras_function),
    "keras": _keras_layer,
    "keras, grouped": _keras_groups,
}
