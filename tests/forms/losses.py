"""Logits with losses: logarithms of softmax, picked by labels in the ways that people pick them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from forms import TYPES, Choices, Form

Array = Any
CLASSES = 7


def make(choices: Choices) -> Form:
    dtype = choices.take("type", "float32", "float32", "float16", "bfloat16")
    shape = choices.take("shape", (5,), ("B",), (2, 5), ("B", "T"))
    softmax = choices.take("softmax", "log_softmax", "log of softmax", "logsumexp", "by hand")
    picked = choices.take("picked by", "take_along_axis", "one_hot", "none")
    reduced = choices.take("reduced", "none", "mean", "sum")

    def logarithms(x: Array) -> Array:
        if softmax == "log_softmax":
            return jax.nn.log_softmax(x)
        if softmax == "log of softmax":
            return jnp.log(jax.nn.softmax(x))
        if softmax == "logsumexp":
            return x - jax.nn.logsumexp(x, axis=-1, keepdims=True)
        shifted = x - jnp.max(x, axis=-1, keepdims=True)
        return shifted - jnp.log(jnp.sum(jnp.exp(shifted), axis=-1, keepdims=True))

    def fn(x: Array, labels: Array) -> Array:
        y = logarithms(x)
        if picked == "take_along_axis":
            y = -jnp.take_along_axis(y, labels[..., None], axis=-1)[..., 0]
        elif picked == "one_hot":
            y = -jnp.sum(jax.nn.one_hot(labels, CLASSES, dtype=y.dtype) * y, axis=-1)
        return {"none": lambda v: v, "mean": jnp.mean, "sum": jnp.sum}[reduced](y).astype(dtype)

    sizes = [3 if isinstance(n, str) else n for n in shape]
    args = [choices.normal((*sizes, CLASSES), dtype), choices.numbers.integers(0, CLASSES, sizes).astype(np.int32)]
    specs = None
    if any(isinstance(n, str) for n in shape):
        specs = [jax.ShapeDtypeStruct((*shape, CLASSES), TYPES[dtype]), jax.ShapeDtypeStruct(shape, np.int32)]
    expected = {"Softmax": 1, "Log": 1} if softmax == "log of softmax" else {"LogSoftmax": 1}
    apart = "beside an infinity logsumexp gives -inf, LogSoftmax NaN" if softmax == "logsumexp" else None
    tolerance = {"float32": 1e-4, "float16": 2e-2, "bfloat16": 1e-1}[dtype]
    return Form(fn, args, expected, specs, absent=("Exp", "ReduceMax"), apart=apart, dtype=dtype, tolerance=tolerance)
