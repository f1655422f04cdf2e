"""The GRU of bench/models/gru.py in Equinox, and as a scan written by hand."""

from __future__ import annotations

from collections import Counter

import equinox
import jax
import jax.numpy as jnp
from models.gru import BATCH, EXPERT, FEATURES, LAYERS, LENGTH, WIDTH
from precision import converted

NAMES = ("gru_equinox", "gru_by_hand")
SIZES = [FEATURES] + [WIDTH] * (LAYERS - 1)


class Regression(equinox.Module):
    """Of one series; the batch is mapped over."""

    cells: list[equinox.nn.GRUCell]
    head: equinox.nn.Linear

    def __init__(self, key: jax.Array):
        keys = jax.random.split(key, LAYERS + 1)
        self.cells = [equinox.nn.GRUCell(size, WIDTH, key=part) for size, part in zip(SIZES, keys[:-1], strict=True)]
        self.head = equinox.nn.Linear(WIDTH, 1, key=keys[-1])

    def __call__(self, x: jax.Array) -> jax.Array:
        for cell in self.cells:
            start = jnp.zeros(WIDTH, x.dtype)
            x = jax.lax.scan(lambda state, inputs, cell=cell: (cell(inputs, state),) * 2, start, x)[1]
        return jax.vmap(self.head)(x)


def by_hand(dtype):
    keys = iter(jax.random.split(jax.random.key(0), 4 * LAYERS + 2))
    shapes = [((3, size, WIDTH), (3, WIDTH, WIDTH), (3, WIDTH), (WIDTH,)) for size in SIZES]
    layers = [[jax.random.normal(next(keys), shape) * 0.2 for shape in four] for four in shapes]
    last = [jax.random.normal(next(keys), shape) * 0.2 for shape in ((WIDTH, 1), (1,))]
    layers, last = converted((layers, last), dtype)

    def layer(x, weights):
        of_input, of_state, bias, inner = weights

        def step(state, inputs):
            reset = jax.nn.sigmoid(inputs @ of_input[0] + state @ of_state[0] + bias[0])
            update = jax.nn.sigmoid(inputs @ of_input[1] + state @ of_state[1] + bias[1])
            new = jnp.tanh(inputs @ of_input[2] + bias[2] + reset * (state @ of_state[2] + inner))
            state = (1 - update) * new + update * state
            return state, state

        return jax.lax.scan(step, jnp.zeros((x.shape[1], WIDTH), x.dtype), x)[1]

    def fn(x):
        x = x.transpose(1, 0, 2)
        for weights in layers:
            x = layer(x, weights)
        return (x @ last[0] + last[1]).transpose(1, 0, 2)

    return fn


def expert(name: str) -> Counter[str]:
    return Counter(EXPERT)


def build(name: str, dtype=jnp.float32):
    inputs = [jax.ShapeDtypeStruct((BATCH, LENGTH, FEATURES), dtype)]
    if name == "gru_by_hand":
        return by_hand(dtype), inputs
    arrays, rest = equinox.partition(Regression(jax.random.key(0)), equinox.is_array)
    return jax.vmap(equinox.combine(converted(arrays, dtype), rest)), inputs
