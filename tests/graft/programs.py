"""The models that foreign tools are let loose on: what people export, in small, every value on a line of its own.

usage: programs.py FOLDER writes NAME.onnx for each, with full provenance.
"""

from __future__ import annotations

import importlib
import os
import pathlib
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jax2onnx import _core, onnx_function, to_onnx

PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = {}


def program(*inputs: Any, **options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Marks a program; ``inputs`` and ``options`` are what ``to_onnx`` is given."""

    def register(fn: Callable[..., Any]) -> Callable[..., Any]:
        PROGRAMS[fn.__name__] = (fn, inputs, options)
        return fn

    return register


def weights(*shape: int, seed: int = 0) -> np.ndarray:
    random = np.random.default_rng([seed, *shape])
    return (random.normal(size=shape) / np.sqrt(shape[0] if len(shape) > 1 else 1)).astype(np.float32)


def normalized(x, scale, bias):
    mean = jnp.mean(x, axis=-1, keepdims=True)
    centered = x - mean
    variance = jnp.mean(centered * centered, axis=-1, keepdims=True)
    unit = centered * lax.rsqrt(variance + 1e-5)
    return unit * scale + bias


@program(("B", 8))
def elementwise(x):
    a = jnp.sin(x)
    b = jnp.cos(x) * 1.5
    c = jnp.exp(-jnp.abs(x))
    d = jnp.where(x > 0.25, a, b)
    e = jnp.tanh(c + d)
    f = jnp.sqrt(jnp.abs(e) + 0.125)
    g = jnp.maximum(f, a) - jnp.minimum(f, b)
    h = jnp.floor(g * 7.0) / 7.0
    return jax.nn.sigmoid(h) * g


@program((4, 16))
def perceptron(x):
    h = x @ weights(16, 32)
    h = h + weights(32)
    h = jax.nn.relu(h)
    h = h @ weights(32, 24)
    h = h + weights(24)
    h = jax.nn.gelu(h)
    y = h @ weights(24, 10)
    y = y + weights(10)
    return jax.nn.softmax(y, axis=-1)


def convolved(x, kernel, stride=1):
    return lax.conv_general_dilated(x, kernel, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


@program((2, 16, 16, 3))
def convolutions(x):
    h = convolved(x, weights(3, 3, 3, 8))
    h = h * weights(8) + weights(8, seed=1)
    h = jax.nn.relu(h)
    h = convolved(h, weights(3, 3, 8, 16), 2)
    h = jax.nn.relu(h)
    skip = convolved(h, weights(1, 1, 16, 16))
    h = jax.nn.silu(skip) + h
    h = lax.reduce_window(h, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    h = jnp.mean(h, axis=(1, 2))
    return h @ weights(16, 5)


def attention(x, layer):
    batch, length, width = x.shape
    heads = lambda seed: (x @ weights(width, width, seed=seed)).reshape(batch, length, 4, width // 4)  # noqa: E731
    q = jnp.transpose(heads(10 * layer), (0, 2, 1, 3))
    k = jnp.transpose(heads(10 * layer + 1), (0, 2, 3, 1))
    v = jnp.transpose(heads(10 * layer + 2), (0, 2, 1, 3))
    scores = (q @ k) / np.float32(np.sqrt(width // 4))
    scores = scores + jnp.where(jnp.tril(jnp.ones((length, length), bool)), 0.0, -1e9)
    mixed = jax.nn.softmax(scores, axis=-1) @ v
    joined = jnp.transpose(mixed, (0, 2, 1, 3)).reshape(batch, length, width)
    return joined @ weights(width, width, seed=10 * layer + 3)


@program((2, 8, 32))
def transformer(x):
    for layer in range(2):
        h = normalized(x, weights(32, seed=layer) + 1, weights(32, seed=layer + 7))
        x = x + attention(h, layer)
        h = normalized(x, weights(32, seed=layer + 3) + 1, weights(32, seed=layer + 5))
        h = h @ weights(32, 64, seed=layer)
        h = jax.nn.gelu(h + weights(64, seed=layer), approximate=False)
        x = x + h @ weights(64, 32, seed=layer)
    return x


@program((12, 4))
def scanned(x):
    def step(state, row):
        mixed = jnp.tanh(state @ weights(4, 4) + row)
        gate = jax.nn.sigmoid(mixed * weights(4))
        return mixed * gate, gate - row

    last, all_gates = lax.scan(step, jnp.zeros(4), x)
    scaled = all_gates * 3.0
    return last + 1.0, scaled


@program((6,))
def looped(x):
    def body(state):
        count, value = state
        halved = value * 0.5
        return count + 1, halved + jnp.sin(halved)

    y = jnp.cos(x) + 2.0
    count, value = lax.while_loop(lambda state: jnp.sum(state[1]) > 1.0, body, (0, y))
    return count, value - x


@program((5,))
def branched(x):
    y = jnp.exp(x)
    chosen = lax.cond(jnp.sum(y) > 5.0, lambda v: jnp.sin(v) * 2.0, lambda v: jnp.cos(v) - 1.0, y)
    return chosen * x


@program((3, 20))
def sorting(x):
    order = jnp.argsort(x, axis=-1)
    ranked = jnp.take_along_axis(x, order, axis=-1)
    best, where = lax.top_k(x, 5)
    spread = ranked[:, -1] - ranked[:, 0]
    return best * spread[:, None], where + 1, jnp.argmax(x, axis=-1)


@program((4, 6, 8))
def movement(x):
    a = jnp.transpose(x, (2, 0, 1))
    b = a[1:7:2, :, ::-1]
    c = jnp.concatenate([b, b * 2.0], axis=0)
    d = jnp.pad(c, ((0, 0), (1, 2), (0, 1)), constant_values=0.5)
    e = d.reshape(6, -1)
    f = jnp.tile(e, (2, 1))
    g = jnp.cumsum(f, axis=1)
    return g[jnp.array([0, 3, 5, 5])] - 1.0


@program((7, 5))
def indexing(x):
    table = jnp.asarray(weights(11, 5))
    index = jnp.clip((x[:, 0] * 5).astype(jnp.int32), 0, 10)
    rows = table[index]
    changed = x.at[2].set(rows[1])
    added = changed.at[jnp.array([1, 4])].add(rows[:2])
    picked = lax.dynamic_slice(added, (jnp.sum(index) % 3, 0), (4, 5))
    return picked * 2.0, jnp.sum(rows, axis=0)


@program((3, 9, 4))
def reductions(x):
    total = jnp.sum(x, axis=1)
    largest = jnp.max(x, axis=(0, 2))
    spread = jnp.std(x, axis=-1)
    logs = jax.nn.logsumexp(x, axis=0)
    product = jnp.prod(x[:, :2], axis=1)
    return total - product, largest[None] + spread, jnp.var(logs, axis=0)


@program((4, 4))
def factorised(x):
    symmetric = x @ x.T + 4.0 * jnp.eye(4)
    lower = jnp.linalg.cholesky(symmetric)
    solved = lax.linalg.triangular_solve(lower, x, left_side=True, lower=True)
    return solved * 0.5, jnp.diagonal(lower) + 1.0


@program((2, 16))
def spectrum(x):
    transformed = jnp.fft.rfft(x)
    power = jnp.abs(transformed) ** 2
    weighted = power * weights(9)
    return jnp.log1p(weighted * weighted), jnp.fft.irfft(transformed)


@program((3, 4))
def integers(x):
    n = (x * 10).astype(jnp.int32)
    shifted = (n << 2) ^ 21
    divided = shifted // 3
    rest = jnp.remainder(divided, 7)
    odd = (rest & 1) == 1
    return jnp.where(odd, rest, -divided), rest.astype(jnp.float32) * x


@onnx_function
def feed_forward(x):
    h = x @ weights(8, 16)
    h = jax.nn.relu(h + 0.5)
    return h @ weights(16, 8)


@program((3, 8))
def functions(x):
    y = feed_forward(x)
    z = feed_forward(jnp.sin(y))
    return y * z + x


@program(("B", "T", 12))
def symbolic(x):
    batch, length, _ = x.shape
    flat = x.reshape(batch * length, 12)
    h = flat @ weights(12, 6)
    h = h.reshape(batch, length, 6)
    positions = jnp.arange(length, dtype=jnp.float32)[:, None]
    h = h + jnp.sin(positions * 0.1)
    return jnp.mean(h, axis=1) * 2.0


@program((4, 8), (4, 8))
def similarity(a, b):
    a = a / jnp.linalg.norm(a, axis=-1, keepdims=True)
    b = b / jnp.linalg.norm(b, axis=-1, keepdims=True)
    scores = jnp.einsum("id,jd->ij", a, b)
    scaled = scores * 14.0
    rows = jax.nn.log_softmax(scaled, axis=1)
    columns = jax.nn.log_softmax(scaled, axis=0)
    return -(jnp.mean(jnp.diagonal(rows)) + jnp.mean(jnp.diagonal(columns))) / 2.0


@program((3, 10))
def training_step(x):
    def loss(w):
        h = jnp.tanh(x @ w)
        out = h @ weights(6, 1)
        return jnp.mean((out - 0.25) ** 2)

    w = jnp.asarray(weights(10, 6))
    value, gradient = jax.value_and_grad(loss)(w)
    return value, w - 0.1 * gradient


@program((4, 12), opset=17)
def older_opset(x):
    h = x @ weights(12, 12)
    h = normalized(h, weights(12) + 1, weights(12, seed=2))
    h = jnp.clip(h, -1.5, 1.5)
    total = jnp.sum(h * h, axis=1, keepdims=True)
    parts = jnp.split(h / (total + 1.0), 3, axis=1)
    return jnp.concatenate([parts[2], parts[0] * 2.0], axis=1)


@program((2, 24))
def recurrent(x):
    width = 8
    state = jnp.zeros((2, width))
    cell = state
    outputs = []
    for step in range(3):
        row = x[:, step * 8 : step * 8 + 8]
        gates = row @ weights(8, 4 * width) + state @ weights(width, 4 * width, seed=1)
        i, f, g, o = jnp.split(gates, 4, axis=1)
        cell = jax.nn.sigmoid(f) * cell + jax.nn.sigmoid(i) * jnp.tanh(g)
        state = jax.nn.sigmoid(o) * jnp.tanh(cell)
        outputs.append(state)
    return jnp.stack(outputs, axis=1)


LARGER = ("gpt", "gpt_cached", "gru", "llama", "lstm", "mlp", "vit")


def all_programs() -> Iterator[tuple[str, Callable[[], tuple[Any, list[Any], dict[str, Any]]]]]:
    """Of each program its name and what makes it: the function, its inputs, options of ``to_onnx``."""
    for name, (fn, inputs, options) in PROGRAMS.items():
        yield name, partial(lambda *made: made, fn, list(inputs), options)
    bench = pathlib.Path(__file__).resolve().parents[2] / "bench"
    sys.path.insert(0, str(bench))
    for name in LARGER:
        yield name, partial(_built, importlib.import_module(f"models.{name}").build)


# As lowered, without passes over the graph: what other exporters write, and what tools find most to do with.
PLAIN = ("perceptron", "convolutions", "transformer", "older_opset", "recurrent", "similarity", "gpt", "vit")


def _built(build: Callable[[], tuple[Any, list[Any]]]) -> tuple[Any, list[Any], dict[str, Any]]:
    return (*build(), {})


def main(folder: str) -> None:
    where = pathlib.Path(folder)
    where.mkdir(parents=True, exist_ok=True)
    for name, make in all_programs():
        path = where / f"{name}.onnx"
        if path.exists():
            continue
        fn, inputs, options = make()
        options = {**options, "return_mode": "file", "stacktrace_metadata": "full", "paths": "relative"}
        to_onnx(fn, inputs, output_path=str(path), **options)
        print(path, flush=True)
        if name in PLAIN:
            os.environ["JAX2ONNX_DISABLE_PASSES"] = ",".join(_core.passes())
            path = where / f"{name}_plain.onnx"
            to_onnx(fn, inputs, output_path=str(path), **(options | {"opset": 17}))
            del os.environ["JAX2ONNX_DISABLE_PASSES"]


if __name__ == "__main__":
    main(*sys.argv[1:])
