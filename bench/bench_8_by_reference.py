"""A model of 70 billion parameters, exported by reference to sparse files of safetensors: what that takes beyond the
trace, in time and memory, and whether a byte of a weight was read.

Traces and exports take turns, and the fastest of each is compared: what else the machine does makes either slower,
never faster.

usage: bench_8_by_reference.py [--layers 80] [--rounds 5] [FOLDER]
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import pathlib
import resource
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import jax
import jax.numpy as jnp
import onnx

from jax2onnx import to_onnx
from jax2onnx._door.abstract_trace import trace_abstract

WIDTH, HIDDEN, HEADS, GROUPS, VOCABULARY = 8192, 28672, 64, 8, 128256
SHARD = 5 * 10**9
MOST_MEMORY = 1.5 * 2**30
MOST_TIME = 1.25  # of the trace


def parameters(layers: int) -> dict[str, tuple[int, ...]]:
    head = WIDTH // HEADS
    shapes: dict[str, tuple[int, ...]] = {"embed": (VOCABULARY, WIDTH)}
    for index in range(layers):
        shapes |= {
            f"layers.{index}.norm": (WIDTH,),
            f"layers.{index}.q": (WIDTH, WIDTH),
            f"layers.{index}.k": (WIDTH, GROUPS * head),
            f"layers.{index}.v": (WIDTH, GROUPS * head),
            f"layers.{index}.o": (WIDTH, WIDTH),
            f"layers.{index}.norm2": (WIDTH,),
            f"layers.{index}.gate": (WIDTH, HIDDEN),
            f"layers.{index}.up": (WIDTH, HIDDEN),
            f"layers.{index}.down": (HIDDEN, WIDTH),
        }
    return shapes | {"norm": (WIDTH,), "head": (WIDTH, VOCABULARY)}


def write_sparse(folder: pathlib.Path, shapes: dict[str, tuple[int, ...]]) -> None:
    """Files whose headers are there and whose data are holes."""
    shards: list[dict[str, tuple[int, ...]]] = [{}]
    filled = 0
    for name, shape in shapes.items():
        size = 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        if filled and filled + size > SHARD:
            shards.append({})
            filled = 0
        shards[-1][name] = shape
        filled += size
    places = {}
    for number, shard in enumerate(shards, 1):
        file = f"model-{number:05}-of-{len(shards):05}.safetensors"
        header, at = {}, 0
        for name, shape in shard.items():
            end = at + 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
            header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [at, end]}
            places[name], at = file, end
        text = json.dumps(header).encode()
        (folder / file).write_bytes(struct.pack("<Q", len(text)) + text)
        os.truncate(folder / file, 8 + len(text) + at)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))


def normalized(x: jax.Array, scale: jax.Array) -> jax.Array:
    wide = x.astype(jnp.float32)
    return (wide * jax.lax.rsqrt(jnp.mean(wide * wide, -1, keepdims=True) + 1e-5)).astype(x.dtype) * scale


def attention(x: jax.Array, layer: dict[str, jax.Array]) -> jax.Array:
    batch, length, _ = x.shape
    head = WIDTH // HEADS
    q = (x @ layer["q"]).reshape(batch, length, HEADS, head)
    k = (x @ layer["k"]).reshape(batch, length, GROUPS, head)
    v = (x @ layer["v"]).reshape(batch, length, GROUPS, head)
    return jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(batch, length, WIDTH) @ layer["o"]


class Llama:
    def __init__(self, layers: int) -> None:
        shapes = {name: jax.ShapeDtypeStruct(shape, jnp.bfloat16) for name, shape in parameters(layers).items()}
        self.embed, self.norm, self.head = shapes["embed"], shapes["norm"], shapes["head"]
        names = ("norm", "q", "k", "v", "o", "norm2", "gate", "up", "down")
        self.layers = [{name: shapes[f"layers.{index}.{name}"] for name in names} for index in range(layers)]

    def __call__(self, tokens: jax.Array) -> jax.Array:
        x = self.embed[tokens]
        for layer in self.layers:
            x = x + attention(normalized(x, layer["norm"]), layer)
            inner = normalized(x, layer["norm2"])
            x = x + (jax.nn.silu(inner @ layer["gate"]) * (inner @ layer["up"])) @ layer["down"]
        return normalized(x, self.norm) @ self.head


def bytes_read() -> tuple[int, int]:
    lines = dict(line.split(": ") for line in pathlib.Path("/proc/self/io").read_text().splitlines())
    return int(lines["rchar"]), int(lines["read_bytes"])


def timed(action: Callable[[], Any]) -> tuple[float, float]:
    """Seconds of the processor, and of the clock."""
    jax.clear_caches()
    gc.collect()
    processor, clock = time.process_time(), time.perf_counter()
    action()
    return time.process_time() - processor, time.perf_counter() - clock


def main(layers: int, rounds: int, folder: pathlib.Path) -> None:
    shapes = parameters(layers)
    write_sparse(folder, shapes)
    count = sum(shape[0] * (shape[1] if len(shape) > 1 else 1) for shape in shapes.values())
    files = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    tokens = jax.ShapeDtypeStruct((1, 128), jnp.int32)
    path = folder / "model.onnx"

    def export() -> None:
        options = {"weights": folder, "weights_by_reference": True, "return_mode": "file", "output_path": path}
        to_onnx(Llama(layers), [tokens], **options)

    to_onnx(Llama(1), [tokens], weights="later")  # what is loaded on first use is no part of either time
    before = bytes_read()
    export()
    after = bytes_read()
    traces, exports = [], []
    for _ in range(rounds):
        traces.append(timed(lambda: trace_abstract(Llama(layers), [tokens], {})))
        exports.append(timed(export))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    onnx.checker.check_model(path)
    print(
        f"{count / 1e9:.1f} billion parameters, {files / 1e9:.1f} GB in {len(list(folder.glob('*.safetensors')))} files"
    )
    ratios = []
    for what, index in (("processor", 0), ("clock", 1)):
        traced, exported = (min(times[index] for times in each) for each in (traces, exports))
        ratios.append(exported / traced)
        print(f"{what}: traced {traced:.2f} s, exported {exported:.2f} s, {ratios[-1]:.2f} of the trace")
    print(f"memory {memory / 2**20:.0f} MiB, model {path.stat().st_size / 2**20:.1f} MiB, checked by onnx.checker")
    print(f"read by calls {(after[0] - before[0]) / 1e6:.2f} MB, from the disk {(after[1] - before[1]) / 1e6:.2f} MB")
    if memory > MOST_MEMORY or after[0] - before[0] > 50e6 or ratios[0] > MOST_TIME:
        raise SystemExit("too much memory or time, or weights were read")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=80)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("folder", nargs="?")
    given = parser.parse_args()
    if given.folder:
        main(given.layers, given.rounds, pathlib.Path(given.folder))
    else:
        with tempfile.TemporaryDirectory() as made:
            main(given.layers, given.rounds, pathlib.Path(made))
