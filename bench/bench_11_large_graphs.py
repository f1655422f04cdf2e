"""Large graphs: what the conversion takes per equation and per layer, in time and memory, at ten times the size.

usage: bench_11_large_graphs.py [--equations 400000] [--layers 10000]
"""

from __future__ import annotations

import argparse
import functools
import os
import pathlib
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import jax
import jax.numpy as jnp
import numpy as np

from jax2onnx import to_onnx
from jax2onnx._door import export

ROUNDS = 5
MOST_GROWTH = 1.3  # of time or memory for each, at ten times the number


def equations(count: int):
    def fn(x):
        for index in range(count // 4):
            x = jnp.sin(x) * (1.0 + index % 7) + jnp.maximum(x, 0.5)
        return x

    return fn


def layers(count: int):
    """Each has weights of its own, of which no two are equal."""
    rng = np.random.default_rng(0)
    model = [
        {
            "kernel": rng.normal(size=(16, 16)).astype(np.float32),
            "bias": rng.normal(size=16).astype(np.float32),
            "scale": rng.normal(size=16).astype(np.float32),
        }
        for _ in range(count)
    ]

    def fn(x):
        for layer in model:
            y = jnp.tanh(x @ layer["kernel"] + layer["bias"])
            x = x + y * layer["scale"] / jnp.sqrt(jnp.mean(y * y, -1, keepdims=True) + 1e-5)
        return x

    return fn


def memory(field: str) -> int:
    with open("/proc/self/status") as file:
        return 1024 * next(int(line.split()[1]) for line in file if line.startswith(field))


def measured(kind: str, count: int) -> None:
    """Prints the processor's seconds of the trace and of the conversion, and the bytes that the conversion takes."""
    took = {}

    @functools.wraps(export._convert)
    def convert(*args, **kwargs):
        pathlib.Path("/proc/self/clear_refs").write_text("5")
        before = memory("VmRSS")
        times = []
        for _ in range(ROUNDS):  # what else the machine does makes some of them slower
            start = time.process_time()
            result = original(*args, **kwargs)
            times.append(time.process_time() - start)
            took.setdefault("memory", memory("VmHWM") - before)
        took["conversion"], took["all"] = min(times), sum(times)
        return result

    x = jax.ShapeDtypeStruct((4, 16), jnp.float32)
    with tempfile.TemporaryDirectory() as folder:
        options = {"return_mode": "file", "output_path": os.path.join(folder, "model.onnx")}
        to_onnx(jnp.sin, [x], **options)
        original, export._convert = export._convert, convert
        start = time.process_time()
        to_onnx({"equations": equations, "layers": layers}[kind](count), [x], **options)
        whole = time.process_time() - start
    print(whole - took["all"], took["conversion"], took["memory"])


def in_own_process(kind: str, count: int) -> tuple[float, float, float]:
    command = [sys.executable, __file__, "--measure", kind, str(count)]
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    tracing, conversion, peak = map(float, run.stdout.split())
    return tracing / count, conversion / count, peak / count


def main(sizes: dict[str, int]) -> None:
    growths = []
    print(f"{'':>18} {'tracing':>12} {'conversion':>12} {'memory':>12}   for each")
    for kind, size in sizes.items():
        rows = [in_own_process(kind, count) for count in (size // 10, size)]
        for count, (tracing, conversion, peak) in zip((size // 10, size), rows, strict=True):
            print(f"{count:>9,} {kind:<8} {tracing * 1e6:>9.1f} us {conversion * 1e6:>9.2f} us {peak:>10.0f} B")
        growths += [rows[1][1] / rows[0][1], rows[1][2] / rows[0][2]]
        print(
            f"at ten times the {kind}: time for each {growths[-2]:.2f}, memory {growths[-1]:.2f}, "
            f"target <= {MOST_GROWTH}"
        )
    if max(growths) > MOST_GROWTH:
        raise SystemExit("not linear")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--equations", type=int, default=400_000)
    parser.add_argument("--layers", type=int, default=10_000)
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        measured(given.measure[0], int(given.measure[1]))
    else:
        main({"equations": given.equations, "layers": given.layers})
