"""Recurrent layers: LSTM, GRU and plain cells, forwards, backwards and both, by libraries and by a scan."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from forms import TYPES, Choices, Form

Array = Any
FEATURES, WIDTH = 6, 5
OPERATORS = {"lstm": "LSTM", "gru": "GRU", "plain": "RNN"}


def make(choices: Choices) -> Form:
    cell = choices.take("cell", *OPERATORS)
    library = choices.take("written", "scan", "scan", "flax.nnx", "flax.linen", "equinox", "keras")
    directions = choices.take("directions", "forward", "forward", "backward", "both")
    batch = choices.take("batch", None, 1, 3, "symbol") if library in ("scan", "equinox") else choices.take("batch", 3)
    length = choices.take("length", 7, 7, "symbol") if library == "scan" else choices.take("length", 7)
    wanted = choices.take("result", "steps", "last", "state")
    dtype = choices.take("type", "float32", "float32", "float32", "float16", "bfloat16")
    if library != "scan":
        dtype = choices.take("type", "float32")
    make_layer = {"scan": _scanned, "equinox": _equinox}.get(library)
    if make_layer:
        ways = [make_layer(choices, cell, dtype)]
        if directions == "both":
            choices.fixed = {**choices.made, **choices.fixed}  # the other one is written as the first is
            ways.append(make_layer(choices, cell, dtype))
        fn = _directed(ways, directions, wanted, batch is not None)
    else:
        fn = _LIBRARIES[library](cell, directions, wanted)
    named = ["B" if batch == "symbol" else batch, "T" if length == "symbol" else length, FEATURES]
    names = tuple(size for size in named if size is not None)
    shape = [4 if isinstance(size, str) else size for size in names]
    numbers = choices.normal(shape, dtype)
    specs = [jax.ShapeDtypeStruct(names, TYPES[dtype])] if "symbol" in (batch, length) else None
    tolerance = {"float32": 1e-4, "float16": 2e-2, "bfloat16": 1e-1}[dtype]
    return Form(fn, [numbers], {OPERATORS[cell]: 1}, specs, absent=("Scan", "Loop"), dtype=dtype, tolerance=tolerance)


Cell = Callable[[Any, Array], Any]  # from a state and an input to the next state


def _directed(cells: list[tuple[Any, Cell]], directions: str, wanted: str, batched: bool) -> Callable[[Array], Array]:
    """Steps are the first axis while they are scanned over, or the second of what is mapped over a batch."""

    def run(x: Array, cell: tuple[Any, Cell], reverse: bool) -> Array:
        start, step = cell
        x = jnp.swapaxes(x, 0, 1) if batched else x
        zeros = start(x)

        def body(state: Any, now: Array) -> tuple[Any, Array]:
            state = step(state, now)
            return state, state[0] if isinstance(state, tuple) else state

        state, steps = jax.lax.scan(body, zeros, x, reverse=reverse)
        if wanted == "state":
            return state[0] if isinstance(state, tuple) else state
        if wanted == "last":
            return steps[0 if reverse else -1]
        return jnp.swapaxes(steps, 0, 1) if batched else steps

    if directions == "both":
        return lambda x: jnp.concatenate([run(x, cells[0], False), run(x, cells[1], True)], axis=-1)
    return lambda x: run(x, cells[0], directions == "backward")


def _scanned(choices: Choices, cell: str, dtype: str) -> tuple[Any, Cell]:
    count = {"lstm": 4, "gru": 3, "plain": 1}[cell]
    joined = choices.take("weights", "joined", "apart", "input and state in one")
    if cell == "gru" and joined == "input and state in one":
        joined = choices.take("weights", "joined")
    bias = choices.take("bias", "one", "two", "none")
    normal = lambda *shape: jnp.asarray(choices.normal(shape, dtype, 0.4))  # noqa: E731
    w, u = [normal(FEATURES, WIDTH) for _ in range(count)], [normal(WIDTH, WIDTH) for _ in range(count)]
    b, c = [normal(WIDTH) for _ in range(count)], [normal(WIDTH) for _ in range(count)]
    forget = choices.take("forget", "as it is", "one more") if cell == "lstm" else "as it is"
    reset = choices.take("reset", "before the product", "after the product") if cell == "gru" else ""
    update = choices.take("update", "weighted", "difference") if cell == "gru" else ""
    squash = choices.take("squash", "tanh", "relu") if cell == "plain" else "tanh"

    def parts(x: Array, h: Array) -> tuple[list[Array], list[Array]]:
        """What each gate gets from the input and from the state."""
        if joined == "input and state in one":
            both = jnp.concatenate([x, h], axis=-1) @ jnp.concatenate([jnp.concatenate(w, 1), jnp.concatenate(u, 1)], 0)
            of_x, of_h = jnp.split(both, count, axis=-1), [None] * count
        elif joined == "joined":
            of_x = jnp.split(x @ jnp.concatenate(w, 1), count, axis=-1)
            of_h = jnp.split(h @ jnp.concatenate(u, 1), count, axis=-1)
        else:
            of_x, of_h = [x @ one for one in w], [h @ one for one in u]
        if bias != "none":
            of_x = [part + one for part, one in zip(of_x, b, strict=True)]
        if bias == "two":
            of_h = [one if part is None else part + one for part, one in zip(of_h, c, strict=True)]
        return of_x, of_h

    def total(of_x: Array, of_h: Array | None) -> Array:
        return of_x if of_h is None else of_x + of_h

    def lstm(state: tuple[Array, Array], x: Array) -> tuple[Array, Array]:
        h, memory = state
        i, f, g, o = map(total, *parts(x, h))
        if forget == "one more":
            f = f + 1
        memory = jax.nn.sigmoid(f) * memory + jax.nn.sigmoid(i) * jnp.tanh(g)
        return jax.nn.sigmoid(o) * jnp.tanh(memory), memory

    def gru(h: Array, x: Array) -> Array:
        of_x, of_h = parts(x, h)
        r, z = (jax.nn.sigmoid(of_x[k] + of_h[k]) for k in range(2))
        if reset == "before the product":
            extra = c[2] if bias == "two" else 0
            n = jnp.tanh(of_x[2] + (r * h) @ u[2] + extra)
        else:
            n = jnp.tanh(of_x[2] + r * of_h[2])
        return (1 - z) * n + z * h if update == "weighted" else n + z * (h - n)

    def plain(h: Array, x: Array) -> Array:
        (gate,) = map(total, *parts(x, h))
        return jnp.tanh(gate) if squash == "tanh" else jax.nn.relu(gate)

    def start(x: Array) -> Any:
        zeros = jnp.zeros((*x.shape[1:-1], WIDTH), x.dtype)
        return (zeros, zeros) if cell == "lstm" else zeros

    return start, {"lstm": lstm, "gru": gru, "plain": plain}[cell]


def _equinox(choices: Choices, cell: str, dtype: str) -> tuple[Any, Cell]:
    import equinox

    key = jax.random.key(choices.random.randrange(100))
    bias = choices.take("bias", True, False)
    if cell == "plain":
        weights, state_weights = equinox.nn.Linear(FEATURES, WIDTH, key=key), equinox.nn.Linear(WIDTH, WIDTH, key=key)

        def layer(x: Array, h: Array) -> Array:
            return jnp.tanh(weights(x) + state_weights(h))

    else:
        kind = equinox.nn.LSTMCell if cell == "lstm" else equinox.nn.GRUCell
        layer = kind(FEATURES, WIDTH, use_bias=bias, key=key)

    def step(state: Any, x: Array) -> Any:
        return jax.vmap(layer)(x, state) if x.ndim == 2 else layer(x, state)

    def start(x: Array) -> Any:
        zeros = jnp.zeros((*x.shape[1:-1], WIDTH), x.dtype)
        return (zeros, zeros) if cell == "lstm" else zeros

    return start, step


@functools.cache
def _flax_nnx(cell: str, directions: str, wanted: str) -> Callable[[Array], Array]:
    from flax import nnx

    kind = {"lstm": nnx.LSTMCell, "gru": nnx.GRUCell, "plain": nnx.SimpleCell}[cell]
    cells = [kind(FEATURES, WIDTH, rngs=nnx.Rngs(seed)) for seed in range(2)]
    layer = nnx.RNN(cells[0], reverse=directions == "backward", keep_order=True)
    if directions == "both":
        layer = nnx.Bidirectional(nnx.RNN(cells[0]), nnx.RNN(cells[1]))
    graph, state = nnx.split(layer)

    def fn(x: Array) -> Array:  # a carry of its own is made with counted random numbers, which a trace may not change
        zeros = jnp.zeros((x.shape[0], WIDTH))
        carry = (zeros, zeros) if cell == "lstm" else zeros
        return nnx.merge(graph, state, copy=True)(x, initial_carry=(carry, carry) if directions == "both" else carry)

    return _picked(fn, directions, wanted)


@functools.cache
def _flax_linen(cell: str, directions: str, wanted: str) -> Callable[[Array], Array]:
    from flax import linen

    kind = {"lstm": linen.OptimizedLSTMCell, "gru": linen.GRUCell, "plain": linen.SimpleCell}[cell]
    layer = linen.RNN(kind(WIDTH), reverse=directions == "backward", keep_order=True)
    if directions == "both":
        layer = linen.Bidirectional(linen.RNN(kind(WIDTH)), linen.RNN(kind(WIDTH)))
    weights = layer.init(jax.random.key(0), jnp.zeros((3, 7, FEATURES)))
    return _picked(lambda x: layer.apply(weights, x), directions, wanted)


def _picked(layer: Callable[[Array], Array], directions: str, wanted: str) -> Callable[[Array], Array]:
    if wanted == "steps" or directions == "both":
        return layer
    return lambda x: layer(x)[:, 0 if directions == "backward" else -1]


@functools.cache
def _keras(cell: str, directions: str, wanted: str) -> Callable[[Array], Array]:
    os.environ.setdefault("KERAS_BACKEND", "jax")
    import keras

    kind = {"lstm": keras.layers.LSTM, "gru": keras.layers.GRU, "plain": keras.layers.SimpleRNN}[cell]
    layer = kind(WIDTH, return_sequences=wanted == "steps", go_backwards=directions == "backward")
    if directions == "both":
        layer = keras.layers.Bidirectional(kind(WIDTH, return_sequences=wanted == "steps"))
    layer.build((None, 7, FEATURES))
    return lambda x: layer(x)


_LIBRARIES = {"flax.nnx": _flax_nnx, "flax.linen": _flax_linen, "keras": _keras}
