"""Two GRU layers over a series of measurements, a value for every step (Flax NNX)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx
from precision import of_type

BATCH, LENGTH, FEATURES, WIDTH, LAYERS = 4, 24, 6, 32, 2

# Steps come first in ONNX Runtime's GRU, and its result has an axis of directions, which goes.
EXPERT = {"Transpose": 2, "GRU": 2, "Squeeze": 2, "MatMul": 1, "Add": 1}


class Regression(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        sizes = [FEATURES] + [WIDTH] * LAYERS
        self.layers = nnx.List([nnx.RNN(nnx.GRUCell(size, WIDTH, rngs=rngs)) for size in sizes[:-1]])
        self.head = nnx.Linear(WIDTH, 1, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        for layer in self.layers:
            x = layer(x, initial_carry=jnp.zeros((x.shape[0], WIDTH), x.dtype))
        return self.head(x)


def build(dtype=jnp.float32):
    # NNX scans over modules that belong to the trace: the model is put together again inside it.
    definition, state = nnx.split(of_type(Regression(nnx.Rngs(0)), dtype))
    inputs = [jax.ShapeDtypeStruct((BATCH, LENGTH, FEATURES), dtype)]
    return lambda x: nnx.merge(definition, state, copy=True)(x), inputs
