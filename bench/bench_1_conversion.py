"""Conversion time beyond tracing, as a ratio of jax.make_jaxpr's, by program size and level of provenance."""

from __future__ import annotations

import pathlib
import tempfile

import jax
import jax.numpy as jnp
from exporting import conversion_time, disk_time, tracing_time

SIZES = (400, 4_000, 40_000)
LEVELS = ("off", "minimal", "full")


def program(equations: int):
    def step(x, scale):
        y = jnp.sin(x) * scale
        return y + jnp.maximum(x, 0.5)

    def fn(x):
        for index in range(equations // 4):
            x = step(x, 1.0 + index % 7)
        return x

    return fn


def main() -> None:
    inputs = [jax.ShapeDtypeStruct((8, 16), jnp.float32)]
    per_equation = {}
    print("conversion beyond tracing / tracing, wall and processor (targets: off and minimal <= 0.10, full <= 0.15)")
    levels = "".join(f"{level:>15}" for level in LEVELS)
    print(f"{'equations':>10} {'tracing':>10}{levels}{'min/off':>10}{'disk':>9}")
    with tempfile.TemporaryDirectory() as folder:
        path = str(pathlib.Path(folder) / "model.onnx")
        conversion_time(program(40), inputs, path, "full", 1)
        for size in SIZES:
            repeats = 31 if size <= 400 else 7 if size <= 4_000 else 3  # short times take more
            fn = program(size)
            tracing = tracing_time(fn, inputs, min(repeats, 3))
            times = {level: conversion_time(fn, inputs, path, level, repeats, afresh=True) for level in LEVELS}
            per_equation[size] = times["off"].processor / size
            disk = disk_time(path, repeats) / tracing
            ratios = [times[level] / tracing for level in LEVELS]
            print(
                f"{size:>10} {tracing.wall * 1e3:>8.1f}ms"
                + "".join(f"{ratio.wall:>9.3f} {ratio.processor:.3f}" for ratio in ratios)
                + f"{(times['minimal'] / times['off']).processor:>10.2f}{disk.wall:>9.3f}"
            )
    print("disk: of the wall times, what it takes to write the file of full and have the disk keep it, by system calls")
    growth = per_equation[SIZES[-1]] / per_equation[SIZES[0]]
    print(f"time per equation at {SIZES[-1]:,} against {SIZES[0]}: {growth:.2f} (target <= 1.3)")


if __name__ == "__main__":
    main()
