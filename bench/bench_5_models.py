"""A scan-heavy and a convolution-heavy model: conversion against tracing, and a recurrent layer against unrolled."""

from __future__ import annotations

import pathlib
import tempfile
import time

import jax
import jax.numpy as jnp
import numpy as np
import onnxruntime
from exporting import conversion_time, tracing_time

from jax2onnx import to_onnx

LENGTH = 32


def lstm_layers(layers: int, width: int, unroll: bool):
    """Stacked LSTMs over a sequence [batch, time, width], written as Flax and Keras write them."""
    keys = jax.random.split(jax.random.key(0), layers)
    weights = [jax.random.normal(key, (2, width, 4 * width)) / (2 * width) ** 0.5 for key in keys]

    def cell(weight, state, x):
        hidden, memory = state
        gates = x @ weight[0] + hidden @ weight[1]
        i, f, g, o = jnp.split(gates, 4, axis=-1)
        memory = jax.nn.sigmoid(f) * memory + jax.nn.sigmoid(i) * jnp.tanh(g)
        hidden = jax.nn.sigmoid(o) * jnp.tanh(memory)
        return (hidden, memory), hidden

    def fn(x):
        x = jnp.swapaxes(x, 0, 1)
        for weight in weights:
            state = (jnp.zeros((x.shape[1], width)), jnp.zeros((x.shape[1], width)))
            if unroll:
                steps = []
                for step in range(x.shape[0]):
                    state, out = cell(weight, state, x[step])
                    steps.append(out)
                x = jnp.stack(steps)
            else:
                _, x = jax.lax.scan(lambda state, value, weight=weight: cell(weight, state, value), state, x)
        return x[-1]

    return fn


def convolutions(layers: int, width: int):
    """Convolution, scale, activation, residual: over [batch, height, width, channels]."""
    keys = jax.random.split(jax.random.key(1), layers)
    kernels = [jax.random.normal(key, (3, 3, width, width)) / (9 * width) ** 0.5 for key in keys]

    def fn(x):
        for kernel in kernels:
            y = jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
            x = x + jax.nn.relu(y * 0.5 + 0.1)
        return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")

    return fn


def latency(fn, shape, path: str) -> float:
    """The best time of a run in ONNX Runtime on one thread."""
    to_onnx(fn, [jax.ShapeDtypeStruct(shape, jnp.float32)], return_mode="file", output_path=path)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    feeds = {session.get_inputs()[0].name: np.random.default_rng(0).standard_normal(shape).astype(np.float32)}
    best = float("inf")
    for _ in range(60):
        start = time.perf_counter()
        session.run(None, feeds)
        best = min(best, time.perf_counter() - start)
    return best


def main() -> None:
    models = (
        ("4 LSTM layers by scan", lstm_layers(4, 64, unroll=False), (8, LENGTH, 64)),
        ("40 convolutions", convolutions(40, 16), (1, 16, 16, 16)),
    )
    print("conversion beyond tracing / tracing")
    with tempfile.TemporaryDirectory() as folder:
        path = str(pathlib.Path(folder) / "model.onnx")
        for name, fn, shape in models:
            inputs = [jax.ShapeDtypeStruct(shape, jnp.float32)]
            tracing = tracing_time(fn, inputs, 5)
            ratio = conversion_time(fn, inputs, path, "minimal", 7) / tracing
            print(
                f"{name:>24}: tracing {tracing.wall * 1e3:.1f} ms, "
                f"ratio {ratio.wall:.3f}, of the processor {ratio.processor:.3f}"
            )
        for batch, width in ((8, 128), (1, 64)):
            shape = (batch, LENGTH, width)
            scan = latency(lstm_layers(1, width, unroll=False), shape, path)
            unrolled = latency(lstm_layers(1, width, unroll=True), shape, path)
            print(
                f"LSTM {batch}x{width}, {LENGTH} steps, in ONNX Runtime: scan {scan * 1e6:.0f} us, "
                f"unrolled {unrolled * 1e6:.0f} us, ratio {scan / unrolled:.2f} (target <= 1)"
            )


if __name__ == "__main__":
    main()
