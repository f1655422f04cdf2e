"""Two LSTM layers over the frames of a recording, logits from the last step (Flax NNX)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx
from precision import of_type

BATCH, LENGTH, FEATURES, WIDTH, LAYERS, CLASSES = 4, 24, 13, 32, 2, 5

# Steps come first in ONNX Runtime's LSTM, and its results have an axis of directions, which goes. The last step is the
# state that is left.
EXPERT = {"Transpose": 1, "LSTM": 2, "Squeeze": 2, "Gemm": 1}


class Classifier(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        sizes = [FEATURES] + [WIDTH] * (LAYERS - 1)
        self.layers = nnx.List([nnx.RNN(nnx.OptimizedLSTMCell(size, WIDTH, rngs=rngs)) for size in sizes])
        self.head = nnx.Linear(WIDTH, CLASSES, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        start = jnp.zeros((x.shape[0], WIDTH), x.dtype)
        for layer in self.layers:
            x = layer(x, initial_carry=(start, start))
        return self.head(x[:, -1])


def build(dtype=jnp.float32):
    # NNX scans over modules that belong to the trace: the model is put together again inside it.
    definition, state = nnx.split(of_type(Classifier(nnx.Rngs(0)), dtype))
    inputs = [jax.ShapeDtypeStruct((BATCH, LENGTH, FEATURES), dtype)]
    return lambda x: nnx.merge(definition, state, copy=True)(x), inputs
