"""A perceptron: two hidden layers with GELU between a normalised input and logits (Flax NNX)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx
from precision import of_type

EXPERT = {"LayerNormalization": 1, "Gemm": 3, "Gelu": 2}


class Perceptron(nnx.Module):
    def __init__(self, width: int, hidden: int, classes: int, rngs: nnx.Rngs):
        self.norm = nnx.LayerNorm(width, epsilon=1e-5, rngs=rngs)
        self.first = nnx.Linear(width, hidden, rngs=rngs)
        self.second = nnx.Linear(hidden, hidden, rngs=rngs)
        self.last = nnx.Linear(hidden, classes, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        x = nnx.gelu(self.first(self.norm(x)), approximate=False)
        x = nnx.gelu(self.second(x), approximate=False)
        return self.last(x)


def build(dtype=jnp.float32):
    return of_type(Perceptron(64, 128, 10, nnx.Rngs(0)), dtype), [jax.ShapeDtypeStruct((8, 64), dtype)]
