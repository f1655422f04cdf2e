"""Logits with losses: logarithms of softmax, picked by labels in the ways that people pick them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from forms import TYPES, Choices, Form

Array = Any
CLASSES = 7
TOLERANCE = {"float32": 1e-4, "float16": 2e-2, "bfloat16": 1e-1}
# What is subtracted from logits is a ReduceLogSumExp; beside an infinity it gives -inf where LogSoftmax gives NaN.
LOGARITHM = {
    "log_softmax": "LogSoftmax",
    "by hand": "LogSoftmax",
    "jnp.max of exp": "LogSoftmax",
    "logsumexp": "ReduceLogSumExp",
    "scipy": "ReduceLogSumExp",
}


def make(choices: Choices) -> Form:
    dtype = choices.take("type", "float32", "float32", "float16", "bfloat16")
    shape = choices.take("shape", (5,), ("B",), (2, 5), ("B", "T"))
    kind = choices.take("kind", *["all"] * 3, "difference", "logit", "optax")
    loss, expected, absent = _KINDS[kind](choices)
    reduced = choices.take("reduced", "none", "mean", "sum", "masked mean")
    wide = choices.take("computed in", "its own", "float32") == "float32"

    def fn(x: Array, labels: Array) -> Array:
        x = x.astype(jnp.float32) if wide else x
        return _REDUCED[reduced](loss(x, labels), labels).astype(dtype)

    sizes = [3 if isinstance(n, str) else n for n in shape]
    args = [choices.normal((*sizes, CLASSES), dtype), choices.numbers.integers(0, CLASSES, sizes).astype(np.int32)]
    infinite = args[0].copy()
    infinite.reshape(-1, CLASSES)[0, 1] = np.inf
    infinite.reshape(-1, CLASSES)[-1, 2] = -np.inf
    specs = None
    if any(isinstance(n, str) for n in shape):
        specs = [jax.ShapeDtypeStruct((*shape, CLASSES), TYPES[dtype]), jax.ShapeDtypeStruct(shape, np.int32)]
    form = Form(fn, args, expected, specs, absent=absent, dtype=dtype, tolerance=TOLERANCE[dtype])
    # XLA makes a choice of a product with what was a boolean, so that 0 times infinity is 0 there.
    if choices.made.get("picked by") in ("take_along_axis", "vmap", "none") and reduced != "masked mean":
        form.more_args = [[infinite, args[1]]]
    return form


Made = tuple[Callable[[Array, Array], Array], dict[str, int], tuple[str, ...]]


def _picked(by: str, y: Array, labels: Array) -> Array:
    if by == "take_along_axis":
        return jnp.take_along_axis(y, labels[..., None], axis=-1)[..., 0]
    if by == "vmap":
        flat = jax.vmap(lambda row, label: row[label])(y.reshape(-1, CLASSES), labels.reshape(-1))
        return flat.reshape(labels.shape)
    if by == "indices":
        flat = y.reshape(-1, CLASSES)
        return flat[jnp.arange(flat.shape[0]), labels.reshape(-1)].reshape(labels.shape)
    if by == "where":
        return jnp.where(labels[..., None] == jnp.arange(CLASSES), y, 0).sum(-1)
    hot = jax.nn.one_hot(labels, CLASSES, dtype=y.dtype)
    if by == "compared":
        hot = (labels[..., None] == jnp.arange(CLASSES)).astype(y.dtype)
    if by == "smoothed":
        hot = hot * 0.9 + 0.1 / CLASSES
    return jnp.einsum("...c,...c->...", hot, y) if by == "einsum" else jnp.sum(hot * y, axis=-1)


def _all(choices: Choices) -> Made:
    """The logarithm of every probability first."""
    softmax = choices.take(
        "softmax", "log_softmax", "log of softmax", "logsumexp", "by hand", "scipy", "log of quotient", "jnp.max of exp"
    )
    ways = ("take_along_axis", "vmap", "one_hot", "einsum", "smoothed", "none", "indices", "where", "compared")
    by = choices.take("picked by", *ways)

    def loss(x: Array, labels: Array) -> Array:
        if softmax == "log_softmax":
            y = jax.nn.log_softmax(x)
        elif softmax == "log of softmax":
            y = jnp.log(jax.nn.softmax(x))
        elif softmax == "scipy":
            y = x - jax.scipy.special.logsumexp(x, axis=-1)[..., None]
        elif softmax == "log of quotient":
            e = jnp.exp(x - x.max(-1, keepdims=True))
            y = jnp.log(e / e.sum(-1, keepdims=True))
        elif softmax == "jnp.max of exp":
            largest = jax.lax.stop_gradient(x.max(axis=-1, keepdims=True))
            y = x - largest - jnp.log(jnp.exp(x - largest).sum(axis=-1, keepdims=True))
        elif softmax == "logsumexp":
            y = x - jax.nn.logsumexp(x, axis=-1, keepdims=True)
        else:
            shifted = x - jnp.max(x, axis=-1, keepdims=True)
            y = shifted - jnp.log(jnp.sum(jnp.exp(shifted), axis=-1, keepdims=True))
        return y if by == "none" else -_picked(by, y, labels)

    is_log = softmax in ("log of softmax", "log of quotient")
    expected = {"Softmax": 1, "Log": 1} if is_log else {LOGARITHM[softmax]: 1}
    return loss, expected, ("Exp", "ReduceMax", "Range")


def _difference(choices: Choices) -> Made:
    """The logarithm of the sum, less the logit that is picked."""
    sum_by = choices.take("sum by", "logsumexp", "shifted", "shifted back")
    by = choices.take("picked by", "take_along_axis", "vmap", "one_hot")

    def loss(x: Array, labels: Array) -> Array:
        if sum_by == "logsumexp":
            return jax.nn.logsumexp(x, axis=-1) - _picked(by, x, labels)
        largest = jax.lax.stop_gradient(jnp.max(x, axis=-1, keepdims=True))
        shifted = x - largest
        total = jnp.log(jnp.sum(jnp.exp(shifted), axis=-1))
        if sum_by == "shifted":
            return total - _picked(by, shifted, labels)
        return total + largest[..., 0] - _picked(by, x, labels)

    return loss, {"ReduceLogSumExp": 1}, ("Exp",)


def _logit(choices: Choices) -> Made:
    """A logarithm of two classes for every logit."""
    way = choices.take("two classes by", "softplus", "stable", "log_sigmoid")

    def loss(x: Array, labels: Array) -> Array:
        target = jax.nn.one_hot(labels, CLASSES, dtype=x.dtype)
        if way == "softplus":
            return jax.nn.softplus(x) - x * target
        if way == "stable":
            return jnp.maximum(x, 0) - x * target + jnp.log1p(jnp.exp(-jnp.abs(x)))
        return -(target * jax.nn.log_sigmoid(x) + (1 - target) * jax.nn.log_sigmoid(-x))

    return loss, {"Softplus": 2 if way == "log_sigmoid" else 1}, ("Exp",)


def _optax(choices: Choices) -> Made:
    import optax

    way = choices.take("optax", "integers", "one_hot", "smoothed", "sigmoid")

    def loss(x: Array, labels: Array) -> Array:
        hot = jax.nn.one_hot(labels, CLASSES, dtype=x.dtype)
        if way == "integers":
            return optax.losses.softmax_cross_entropy_with_integer_labels(x, labels)
        if way == "one_hot":
            return optax.losses.softmax_cross_entropy(x, hot)
        if way == "smoothed":
            return optax.losses.softmax_cross_entropy(x, optax.losses.smooth_labels(hot, 0.1))
        return optax.losses.sigmoid_binary_cross_entropy(x, hot)

    expected = {"Softplus": 2} if way == "sigmoid" else {"LogSoftmax|ReduceLogSumExp": 1}
    return loss, expected, ("Exp",)


_KINDS = {"all": _all, "difference": _difference, "logit": _logit, "optax": _optax}


def _masked_mean(y: Array, labels: Array) -> Array:
    kept = (labels != 0).astype(y.dtype)
    kept = kept.reshape(*kept.shape, *[1] * (y.ndim - kept.ndim))
    return jnp.sum(y * kept) / jnp.maximum(jnp.sum(kept), 1)


_REDUCED: dict[str, Callable[[Array, Array], Array]] = {
    "none": lambda y, labels: y,
    "mean": lambda y, labels: jnp.mean(y),
    "sum": lambda y, labels: jnp.sum(y),
    "masked mean": _masked_mean,
}
