"""The LSTM of bench/models/lstm.py in Flax Linen, and as a scan written by hand."""

from __future__ import annotations

from collections import Counter

import jax
import jax.numpy as jnp
from flax import linen
from models.lstm import BATCH, CLASSES, EXPERT, FEATURES, LAYERS, LENGTH, WIDTH
from precision import converted

NAMES = ("lstm_linen", "lstm_by_hand")


class Classifier(linen.Module):
    @linen.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        start = jnp.zeros((x.shape[0], WIDTH), x.dtype)
        for _ in range(LAYERS):
            x = linen.RNN(linen.LSTMCell(WIDTH))(x, initial_carry=(start, start))
        return linen.Dense(CLASSES)(x[:, -1])


def by_hand(dtype):
    keys = iter(jax.random.split(jax.random.key(0), 3 * LAYERS + 2))
    sizes = [FEATURES] + [WIDTH] * (LAYERS - 1)
    shapes = [((size, 4 * WIDTH), (WIDTH, 4 * WIDTH), (4 * WIDTH,)) for size in sizes]
    layers = [[jax.random.normal(next(keys), shape) * 0.2 for shape in three] for three in shapes]
    last = [jax.random.normal(next(keys), shape) * 0.2 for shape in ((WIDTH, CLASSES), (CLASSES,))]
    layers, last = converted((layers, last), dtype)

    def layer(x, weights):
        of_input, of_state, bias = weights

        def step(carry, inputs):
            state, memory = carry
            i, f, g, o = jnp.split(inputs @ of_input + state @ of_state + bias, 4, axis=-1)
            memory = jax.nn.sigmoid(f) * memory + jax.nn.sigmoid(i) * jnp.tanh(g)
            state = jax.nn.sigmoid(o) * jnp.tanh(memory)
            return (state, memory), state

        start = jnp.zeros((x.shape[1], WIDTH), x.dtype)
        return jax.lax.scan(step, (start, start), x)[1]

    def fn(x):
        x = jnp.swapaxes(x, 0, 1)
        for weights in layers:
            x = layer(x, weights)
        return x[-1] @ last[0] + last[1]

    return fn


def expert(name: str) -> Counter[str]:
    return Counter(EXPERT)


def build(name: str, dtype=jnp.float32):
    inputs = [jax.ShapeDtypeStruct((BATCH, LENGTH, FEATURES), dtype)]
    if name == "lstm_by_hand":
        return by_hand(dtype), inputs
    model = Classifier()
    weights = converted(model.init(jax.random.key(0), jnp.zeros((BATCH, LENGTH, FEATURES))), dtype)
    return (lambda x: model.apply(weights, x)), inputs
