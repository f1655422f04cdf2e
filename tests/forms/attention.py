"""Attention as people write it."""

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
SYMBOLS = {"b": "B", "t": "T"}
FEATURES = 8


def make(choices: Choices) -> Form:
    kind = choices.take("written", *["by hand"] * 7, "library layer", "jax.nn", "cache")
    if kind == "library layer":
        return _library_layer(choices)
    if kind == "jax.nn":
        return _function_of_jax(choices)
    if kind == "cache":
        return _step_with_cache(choices)
    return _by_hand(choices)


# ---- sizes ----


def _type_of(choices: Choices) -> str:
    return choices.take("type", "float32", "float32", "float32", "float16", "bfloat16")


def _sizes(choices: Choices) -> tuple[dict[str, int], set[str], bool]:
    """Sizes of the axes b and t, which of them are symbols, and whether there is a batch axis."""
    batch = choices.take("batch", None, 1, 2, "symbol")
    length = choices.take("length", *[10, 128, "symbol"] * 8, 2048)
    sizes = {"b": batch if isinstance(batch, int) else 2, "t": length if isinstance(length, int) else 6}
    if length == 2048:
        sizes["b"] = 1 if batch is None or batch == "symbol" else batch
    symbols = {axis for axis, size in (("b", batch), ("t", length)) if size == "symbol"}
    return sizes, symbols, batch is not None


def _spec(axes: str, sizes: dict[str, int], symbols: set[str], dtype: str) -> Any:
    shape = tuple(SYMBOLS[axis] if axis in symbols else sizes[axis] for axis in axes)
    return jax.ShapeDtypeStruct(shape, dtype)


def _form(fn: Any, args: list[Any], specs: list[Any] | None, dtype: str, apart: str | None = None) -> Form:
    tolerance = {"float16": 2e-2, "bfloat16": 1e-1}.get(dtype)
    return Form(fn, args, {"Attention": 1}, specs, absent=("Softmax",), apart=apart, dtype=dtype, tolerance=tolerance)


# ---- by hand ----


def _by_hand(choices: Choices) -> Form:
    dtype = _type_of(choices)
    sizes, symbols, batched = _sizes(choices)
    heads = choices.take("heads", "no axis", 1, 2, 4, "grouped")
    sizes |= {"h": heads if isinstance(heads, int) else 4, "d": FEATURES, "g": 2}
    lead = "b" if batched else ""
    axes = lead + ("td" if heads == "no axis" else choices.take("order", "thd", "htd"))
    inputs, split = _projected(choices, axes, lead, sizes, heads, dtype)
    keep = _mask(choices, sizes, lead, dtype)
    scores = _scores(choices, axes, sizes, heads, keep, dtype)
    finish = choices.take("result", "as it is", "merged") if "h" in axes else "as it is"

    def fn(*args: Array) -> Array:
        q, k, v = split(*args[: len(inputs)])
        mixed = scores(q, k, v, *args[len(inputs) :])
        if finish == "as it is":
            return mixed
        if "htd" in axes:
            mixed = jnp.swapaxes(mixed, -2, -3)
        return mixed.reshape(*mixed.shape[:-2], -1)

    args = [array for _, array in inputs] + [array for _, array in keep.inputs]
    specs = [_spec(names, sizes, symbols, str(array.dtype)) for names, array in inputs + keep.inputs]
    form = _form(fn, args, specs if symbols else None, dtype, keep.apart)
    if keep.nothing_kept is not None:
        form.more_args = [[*args[:-1], keep.nothing_kept]]
    return form


def _projected(
    choices: Choices, axes: str, lead: str, sizes: dict[str, int], heads: Any, dtype: str
) -> tuple[list[tuple[str, np.ndarray]], Callable[..., tuple[Array, Array, Array]]]:
    """The arguments, by their axes, and what makes queries, keys and values of them."""
    sizes["f"] = 12
    ways = ["given"] if heads == "grouped" else ["given", "apart", "joined 3hd", "joined h3d", "joined hd3"]
    way = choices.take("projections", *ways)
    shape = lambda names: tuple(sizes[name] for name in names)  # noqa: E731
    if way == "given":
        keys = axes.replace("h", "g") if heads == "grouped" else axes
        return [(name, choices.normal(shape(name), dtype)) for name in (axes, keys, keys)], lambda q, k, v: (q, k, v)
    count = sizes["h"] if "h" in axes else 1
    turned = (lambda a: jnp.swapaxes(a, -2, -3)) if "htd" in axes else (lambda a: a)
    apart = (lambda a: a.reshape(*a.shape[:-1], count, FEATURES)) if "h" in axes else (lambda a: a)
    given = [(lead + "tf", choices.normal(shape(lead + "tf"), dtype))]
    if way == "apart":
        by = choices.take("projected by", "matmul", "einsum")
        weights = [jnp.asarray(choices.normal((12, count * FEATURES), dtype, 0.3)) for _ in range(3)]
        if by == "einsum" and "h" in axes:
            result = axes
            return given, lambda x: tuple(
                jnp.einsum(f"{lead}tf,fhd->{result}", x, weight.reshape(12, count, FEATURES)) for weight in weights
            )
        return given, lambda x: tuple(turned(apart(x @ weight)) for weight in weights)
    weight = jnp.asarray(choices.normal((12, 3 * count * FEATURES), dtype, 0.3))
    bias = jnp.asarray(choices.normal((3 * count * FEATURES,), dtype, 0.3))
    order = {"joined 3hd": (3, count, FEATURES), "joined h3d": (count, 3, FEATURES), "joined hd3": (count, FEATURES, 3)}
    at = {"joined 3hd": -3, "joined h3d": -2, "joined hd3": -1}[way]
    by = choices.take("taken apart by", "split", "index", "moveaxis")

    def split(x: Array) -> tuple[Array, Array, Array]:
        joined = x @ weight + bias
        if by == "split" and way == "joined 3hd":
            return tuple(turned(apart(part)) for part in jnp.split(joined, 3, axis=-1))
        joined = joined.reshape(*joined.shape[:-1], *order[way])
        if by == "moveaxis":
            parts = jnp.moveaxis(joined, at, 0)
            parts = [parts[0], parts[1], parts[2]]
        elif by == "index":
            parts = [jnp.take(joined, i, axis=at) for i in range(3)]
        else:
            parts = [part.reshape(*x.shape[:-1], count, FEATURES) for part in jnp.split(joined, 3, axis=at)]
        return tuple(turned(part) if "h" in axes else part[..., 0, :] for part in parts)

    return given, split


class Mask:
    """What is added to the inputs for masks, and how scores are masked."""

    def __init__(self) -> None:
        self.inputs: list[tuple[str, np.ndarray]] = []
        self.nothing_kept: np.ndarray | None = None  # the same input, with all scores of a row put out
        self.apart: str | None = None
        self.apply: Callable[[Array, Array], Array] = lambda scores, *given: scores


def _mask(choices: Choices, sizes: dict[str, int], lead: str, dtype: str) -> Mask:
    kind = choices.take("mask", "none", "causal", "causal", "padding", "both", "window")
    made = Mask()
    if kind == "none":
        return made
    causal = choices.take("causal by", "tril", "tri", "positions", "constant", "iota") if kind != "padding" else None
    number = choices.take("put out by", "-1e9", "-inf", "least")
    fill = {"-1e9": -1e9, "-inf": -math.inf, "least": float(jnp.finfo(dtype).min)}[number]
    if dtype == "float16" and number == "-1e9":
        fill = -math.inf  # that is what becomes of it
    how = choices.take("applied by", "where", "where not", "addition", "product")
    if kind in ("padding", "both"):
        by = choices.take("padding by", "mask", "lengths")
        if by == "mask":
            mask = choices.numbers.random((sizes["b"], sizes["t"]) if lead else (sizes["t"],)) > 0.3
            mask[..., 0] = True
            made.inputs = [(lead + "t", mask)]
        else:
            count = choices.numbers.integers(1, sizes["t"] + 1, (sizes["b"],) if lead else ())
            count = np.asarray(count, np.int32)
            made.inputs = [(lead, count)]
        if math.isinf(fill):
            made.apart = "a row may be masked altogether, which is NaN in JAX"
        elif dtype == "float32":  # of halves it is not known how much of a score is left, XLA may add in float32
            made.nothing_kept = np.zeros_like(made.inputs[0][1])
    if how == "product" and math.isinf(fill):
        how = "addition"  # 0 times infinity
    if how == "product" and dtype != "float32" and number == "least":
        how = "addition"

    def keep(scores: Array, *given: Array) -> Array:
        queries, keys = scores.shape[-2:]
        mask = None
        if causal:
            mask = _causal(causal, queries, keys)
        if kind == "window":
            near = jnp.arange(queries)[:, None] - jnp.arange(keys)[None, :] < 4
            mask = mask & near
        if made.inputs:
            seen = given[0] if made.inputs[0][0].endswith("t") else jnp.arange(keys) < given[0][..., None]
            seen = seen.reshape(*seen.shape[:-1], *[1] * (scores.ndim - seen.ndim), keys)
            mask = seen if mask is None else mask & seen
        return mask

    def apply(scores: Array, *given: Array) -> Array:
        mask = keep(scores, *given)
        if how == "where":
            return jnp.where(mask, scores, jnp.asarray(fill, scores.dtype))
        if how == "where not":
            return jnp.where(~mask, fill, scores)
        if how == "addition":
            return scores + jnp.where(mask, 0.0, fill).astype(scores.dtype)
        return scores + (1.0 - mask.astype(scores.dtype)) * fill

    made.apply = apply
    return made


def _causal(by: str, queries: int, keys: int) -> Array:
    if by == "tril":
        return jnp.tril(jnp.ones((queries, keys), bool))
    if by == "tri":
        return jnp.tri(queries, keys) > 0
    if by == "positions":
        return jnp.arange(queries)[:, None] >= jnp.arange(keys)[None, :]
    if by == "constant" and isinstance(queries, int):
        return jnp.asarray(np.tril(np.ones((queries, keys), bool)))
    rows = jax.lax.broadcasted_iota(jnp.int32, (queries, keys), 0)
    return jax.lax.broadcasted_iota(jnp.int32, (queries, keys), 1) <= rows


def _softmax(choices: Choices, dtype: str) -> Callable[[Array], Array]:
    by = choices.take("softmax by", "library", "hand", "hand, no shift held", "float32")
    if by == "library":
        return lambda scores: jax.nn.softmax(scores, axis=-1)
    if by == "float32":
        return lambda scores: jax.nn.softmax(scores.astype(jnp.float32), axis=-1).astype(dtype)

    def softmax(scores: Array) -> Array:
        largest = scores.max(axis=-1, keepdims=True)
        if by == "hand":
            largest = jax.lax.stop_gradient(largest)
        weights = jnp.exp(scores - largest)
        return weights / weights.sum(axis=-1, keepdims=True)

    return softmax


def _scaled(choices: Choices) -> tuple[Callable[..., tuple[Array, Array]], Callable[[Array], Array]]:
    """What scales queries and keys, and what scales scores."""
    place = choices.take("scale on", "queries", "keys", "scores", "both", "nothing")
    form = choices.take("scale as", "product", "quotient", "root of array", "power")
    root = FEATURES**0.5

    def scale(array: Array, number: float) -> Array:
        if form == "product":
            return array * (1 / number)
        if form == "quotient":
            return array / number
        if form == "power":
            return array * FEATURES**-0.5 if number == root else array * FEATURES**-0.25
        rooted = jnp.sqrt(jnp.asarray(FEATURES, array.dtype))
        return array / (rooted if number == root else jnp.sqrt(rooted))

    def on_inputs(q: Array, k: Array) -> tuple[Array, Array]:
        if place == "queries":
            return scale(q, root), k
        if place == "keys":
            return q, scale(k, root)
        return (scale(q, root**0.5), scale(k, root**0.5)) if place == "both" else (q, k)

    return on_inputs, (lambda scores: scale(scores, root)) if place == "scores" else (lambda scores: scores)


def _scores(
    choices: Choices, axes: str, sizes: dict[str, int], heads: Any, mask: Mask, dtype: str
) -> Callable[..., Array]:
    on_inputs, on_scores = _scaled(choices)
    softmax = _softmax(choices, dtype)
    if heads == "grouped":
        way = choices.take("products by", "repeat", "broadcast")
    else:
        way = choices.take("products by", "einsum", "matmul", "dot_general", "vmap")

    def weights(scores: Array, *given: Array) -> Array:
        return softmax(mask.apply(on_scores(scores), *given)).astype(dtype)

    def by_einsum(q: Array, k: Array, v: Array, *given: Array) -> Array:
        rows, columns = axes.replace("t", "q"), axes.replace("t", "k")
        lead = axes.replace("t", "").replace("d", "")
        scores = jnp.einsum(f"{rows},{columns}->{lead}qk", q, k)
        return jnp.einsum(f"{lead}qk,{columns}->{rows}", weights(scores, *given), v)

    def heads_first(array: Array) -> Array:
        return jnp.swapaxes(array, -2, -3) if "thd" in axes else array

    def by_matmul(q: Array, k: Array, v: Array, *given: Array) -> Array:
        q, k, v = map(heads_first, (q, k, v))
        return heads_first(weights(q @ jnp.swapaxes(k, -1, -2), *given) @ v)

    def by_dot_general(q: Array, k: Array, v: Array, *given: Array) -> Array:
        q, k, v = map(heads_first, (q, k, v))
        lead = tuple(range(q.ndim - 2))
        last = q.ndim - 1
        scores = jax.lax.dot_general(q, k, (((last,), (last,)), (lead, lead)))
        scores = weights(scores, *given)
        return heads_first(jax.lax.dot_general(scores, v, (((last,), (last - 1,)), (lead, lead))))

    def by_vmap(q: Array, k: Array, v: Array, *given: Array) -> Array:
        def one(q: Array, k: Array, v: Array, *given: Array) -> Array:
            return weights(q @ k.T, *given) @ v

        mapped = one
        if "h" in axes:
            at = (axes.index("h") - ("b" in axes),) * 3
            mapped = jax.vmap(mapped, (*at, *[None] * len(given)), at[0])
        return jax.vmap(mapped)(q, k, v, *given) if "b" in axes else mapped(q, k, v, *given)

    def by_groups(q: Array, k: Array, v: Array, *given: Array) -> Array:
        at = axes.index("h") - len(axes)
        times = sizes["h"] // sizes["g"]
        if way == "repeat":
            k, v = jnp.repeat(k, times, at), jnp.repeat(v, times, at)
        else:
            k, v = (_spread(array, at, times) for array in (k, v))
        return by_einsum(q, k, v, *given)

    ways = {"einsum": by_einsum, "matmul": by_matmul, "dot_general": by_dot_general, "vmap": by_vmap}
    product = ways.get(way, by_groups)

    def fn(q: Array, k: Array, v: Array, *given: Array) -> Array:
        return product(*on_inputs(q, k), v, *given)

    return fn


def _spread(array: Array, at: int, times: int) -> Array:
    at += array.ndim
    spread = jnp.broadcast_to(jnp.expand_dims(array, at + 1), (*array.shape[: at + 1], times, *array.shape[at + 1 :]))
    return spread.reshape(*array.shape[:at], array.shape[at] * times, *array.shape[at + 1 :])


# ---- functions and layers of libraries ----


def _function_of_jax(choices: Choices) -> Form:
    dtype = choices.take("type", "float32", "float32", "bfloat16")  # JAX has no float16 for it on processors
    sizes, symbols, batched = _sizes(choices)
    sizes |= {"h": 4, "d": FEATURES, "g": choices.take("heads of keys", 4, 2, 1)}
    lead = "b" if batched else ""
    causal = choices.take("causal", True, False)
    padded = choices.take("padding", "none", "mask", "bias") if batched else "none"
    scale = choices.take("scale", None, 0.5)
    inputs = [(names, choices.normal(tuple(sizes[n] for n in names), dtype)) for names in (lead + "thd", lead + "tgd")]
    inputs.append((lead + "tgd", choices.normal(inputs[1][1].shape, dtype)))
    if padded == "mask":
        mask = choices.numbers.random((sizes["b"], sizes["t"])) > 0.3
        inputs.append(("bt", mask))
    if padded == "bias":
        inputs.append(("bt", np.where(choices.numbers.random((sizes["b"], sizes["t"])) > 0.3, 0, -1).astype(np.int32)))

    def fn(q: Array, k: Array, v: Array, *given: Array) -> Array:
        options = {}
        if padded == "mask":
            options["mask"] = given[0][:, None, None, :]
        if padded == "bias":
            options["bias"] = (given[0][:, None, None, :] * 100).astype(dtype)
        return jax.nn.dot_product_attention(q, k, v, is_causal=causal, scale=scale, **options)

    specs = [_spec(names, sizes, symbols, str(array.dtype)) for names, array in inputs]
    args = [array for _, array in inputs]
    return _form(fn, args, specs if symbols else None, dtype)


def _step_with_cache(choices: Choices) -> Form:
    """One position at a time; keys and values of those before are given, and given back with the new one."""
    dtype = _type_of(choices)
    batch, length = choices.take("batch", 1, 2, "symbol"), choices.take("length", 10, 128)
    heads, order = choices.take("heads", 1, 4), choices.take("order", "thd", "htd")
    number = choices.take("put out by", "-1e9", "least")
    fill = {"-1e9": -1e9, "least": float(jnp.finfo(dtype).min)}[number]
    if dtype == "float16":
        fill = float(jnp.finfo(dtype).min)
    size = 2 if batch == "symbol" else batch
    cache = (size, length, heads, FEATURES) if order == "thd" else (size, heads, length, FEATURES)
    x = choices.normal((size, 1, 3 * heads * FEATURES), dtype)
    args = [x, np.asarray(length // 2, np.int32), choices.normal(cache, dtype), choices.normal(cache, dtype)]

    def fn(x: Array, position: Array, keys: Array, values: Array) -> tuple[Array, Array, Array]:
        q, k, v = (part.reshape(-1, 1, heads, FEATURES) for part in jnp.split(x, 3, axis=-1))
        at = (0, position, 0, 0)
        if order == "htd":
            q, k, v = (part.transpose(0, 2, 1, 3) for part in (q, k, v))
            at = (0, 0, position, 0)
        keys = jax.lax.dynamic_update_slice(keys, k, at)
        values = jax.lax.dynamic_update_slice(values, v, at)
        names = "bqhd,bkhd->bhqk" if order == "thd" else "bhqd,bhkd->bhqk"
        scores = jnp.einsum(names, q, keys) / math.sqrt(FEATURES)
        scores = jnp.where(jnp.arange(length) <= position, scores, jnp.asarray(fill, scores.dtype))
        weights = jax.nn.softmax(scores, axis=-1)
        mixed = jnp.einsum("bhqk,bkhd->bqhd" if order == "thd" else "bhqk,bhkd->bqhd", weights, values)
        return mixed.reshape(-1, 1, heads * FEATURES), keys, values

    specs = None
    if batch == "symbol":
        specs = [jax.ShapeDtypeStruct(("B", *arg.shape[1:]), arg.dtype) if arg.ndim else arg for arg in args]
    return Form(
        fn,
        args,
        {"Attention": 1},
        specs,
        absent=("Softmax",),
        dtype=dtype,
        tolerance={"float16": 2e-2, "bfloat16": 1e-1}.get(dtype),
    )


def _library_layer(choices: Choices) -> Form:
    library = choices.take("library", "flax.nnx", "flax.linen", "equinox", "keras")
    batch = choices.take("batch", 1, 2, "symbol") if library != "equinox" else None
    length = choices.take("length", 10, 128, "symbol")
    heads = choices.take("heads", 1, 4)
    causal = choices.take("causal", True, False)
    size, positions = (2 if batch == "symbol" else batch), (6 if length == "symbol" else length)
    shape = (positions, 16) if batch is None else (size, positions, 16)
    names = ("T" if length == "symbol" else positions, 16)
    names = names if batch is None else ("B" if batch == "symbol" else size, *names)
    specs = [names] if names != shape else None
    layer = _LAYERS[library](heads, causal)
    return Form(layer, [choices.normal(shape)], {"Attention": 1}, specs, absent=("Softmax",), tolerance=1e-4)


@functools.cache
def _flax_nnx(heads: int, causal: bool) -> Callable[[Array], Array]:
    from flax import nnx

    layer = nnx.MultiHeadAttention(heads, 16, 32, decode=False, rngs=nnx.Rngs(0))
    if not causal:
        return layer
    return lambda x: layer(x, mask=nnx.make_causal_mask(x[..., 0]))


@functools.cache
def _flax_linen(heads: int, causal: bool) -> Callable[[Array], Array]:
    from flax import linen

    layer = linen.MultiHeadDotProductAttention(heads, qkv_features=32)
    weights = layer.init(jax.random.key(0), jnp.zeros((1, 2, 16)))

    def fn(x: Array) -> Array:
        return layer.apply(weights, x, mask=linen.make_causal_mask(x[..., 0]) if causal else None)

    return fn


@functools.cache
def _equinox(heads: int, causal: bool) -> Callable[[Array], Array]:
    import equinox

    layer = equinox.nn.MultiheadAttention(heads, 16, key=jax.random.key(0))

    def fn(x: Array) -> Array:
        return layer(x, x, x, mask=jnp.tril(jnp.ones((x.shape[0],) * 2, bool)) if causal else None)

    return fn


@functools.cache
def _keras(heads: int, causal: bool) -> Callable[[Array], Array]:
    import os

    os.environ.setdefault("KERAS_BACKEND", "jax")
    import keras

    layer = keras.layers.MultiHeadAttention(heads, 8)
    layer.build((None, 4, 16), (None, 4, 16))
    return lambda x: layer(x, x, use_causal_mask=causal)


_LAYERS = {"flax.nnx": _flax_nnx, "flax.linen": _flax_linen, "equinox": _equinox, "keras": _keras}
