"""The perceptron of bench/models/mlp.py in Equinox, mapped over the batch, and by hand."""

from __future__ import annotations

from collections import Counter

import equinox
import jax
import jax.numpy as jnp
from models.mlp import EXPERT
from precision import converted

NAMES = ("mlp_equinox", "mlp_by_hand")
WIDTH, HIDDEN, CLASSES, BATCH = 64, 128, 10, 8


class Perceptron(equinox.Module):
    norm: equinox.nn.LayerNorm
    layers: list[equinox.nn.Linear]

    def __init__(self, key: jax.Array):
        sizes = ((WIDTH, HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, CLASSES))
        keys = jax.random.split(key, 3)
        self.norm = equinox.nn.LayerNorm(WIDTH)
        self.layers = [equinox.nn.Linear(*pair, key=part) for pair, part in zip(sizes, keys, strict=True)]

    def __call__(self, x: jax.Array) -> jax.Array:
        first, second, last = self.layers
        x = jax.nn.gelu(first(self.norm(x)), approximate=False)
        return last(jax.nn.gelu(second(x), approximate=False))


def gelu(x: jax.Array) -> jax.Array:
    return 0.5 * x * (1 + jax.lax.erf(x / jnp.sqrt(2).astype(x.dtype)))


def by_hand(dtype):
    keys = iter(jax.random.split(jax.random.key(0), 8))
    sizes = ((WIDTH, HIDDEN), (HIDDEN,), (HIDDEN, HIDDEN), (HIDDEN,), (HIDDEN, CLASSES), (CLASSES,), (WIDTH,), (WIDTH,))
    weights = converted([jax.random.normal(next(keys), size) * 0.1 for size in sizes], dtype)

    def fn(x: jax.Array) -> jax.Array:
        w1, b1, w2, b2, w3, b3, scale, bias = weights
        centred = x - jnp.mean(x, axis=1, keepdims=True)
        x = centred * jax.lax.rsqrt(jnp.var(x, axis=1, keepdims=True) + 1e-5) * scale + bias
        x = gelu(jnp.dot(x, w1) + b1)
        return jnp.dot(gelu(jnp.dot(x, w2) + b2), w3) + b3

    return fn


def expert(name: str) -> Counter[str]:
    return Counter(EXPERT)


def build(name: str, dtype=jnp.float32):
    inputs = [jax.ShapeDtypeStruct((BATCH, WIDTH), dtype)]
    if name == "mlp_by_hand":
        return by_hand(dtype), inputs
    arrays, rest = equinox.partition(Perceptron(jax.random.key(0)), equinox.is_array)
    return jax.vmap(equinox.combine(converted(arrays, dtype), rest)), inputs
