"""A model streamed from an Orbax checkpoint: memory of the whole process, and time against that of copying the bytes.

usage: bench_10_orbax.py [--gb 1] [--rounds 2] [FOLDER]

The copy reads the files of the checkpoint and writes as many bytes, encoded as they are, and both wait until the disk
has what they wrote. They take turns, the files are in the system's cache for both, and the fastest of each is compared.
The export also decodes the arrays (Orbax compresses them), and imports what that needs, which is shown by itself.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import resource
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import jax
import jax.numpy as jnp
import numpy as np

WIDE, NARROW = 14336, 4096  # the matrices of models with 8 billion parameters: 112 MiB each
MOST_MEMORY, MOST_TIME = 2**30, 1.2


def shapes(count: int) -> dict[str, jax.ShapeDtypeStruct]:
    return {
        f"w{index:02}": jax.ShapeDtypeStruct((NARROW, WIDE) if index % 2 == 0 else (WIDE, NARROW), jnp.bfloat16)
        for index in range(count)
    }


def save(folder: pathlib.Path, count: int) -> None:
    import orbax.checkpoint

    bits = np.random.default_rng(0).integers(0, 1 << 14, NARROW * WIDE, np.uint16)
    numbers = bits.view(jnp.bfloat16)
    tree = {name: numbers.reshape(shape.shape) for name, shape in shapes(count).items()}
    orbax.checkpoint.PyTreeCheckpointer().save(folder, tree)


def export(source: pathlib.Path, path: pathlib.Path, count: int) -> None:
    from jax2onnx import to_onnx

    weights = shapes(count)

    def model(x: jax.Array) -> jax.Array:
        for weight in weights.values():
            x = x @ weight
        return x

    start = time.perf_counter()
    import orbax.checkpoint  # noqa: F401
    import tensorstore  # noqa: F401

    imported = time.perf_counter()
    x = jax.ShapeDtypeStruct((1, NARROW), jnp.bfloat16)
    to_onnx(model, [x], weights=source, return_mode="file", output_path=path)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(imported - start, time.perf_counter() - imported, time.process_time(), peak)


def copied(source: pathlib.Path, to: pathlib.Path) -> float:
    start = time.perf_counter()
    shutil.copytree(source, to)
    for path in to.rglob("*"):
        if path.is_file():
            with open(path, "rb") as file:
                os.fsync(file.fileno())
    return time.perf_counter() - start


def in_own_process(*words: object) -> list[float]:
    command = [sys.executable, __file__, *map(str, words)]
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return [float(word) for word in run.stdout.split()]


def main(gb: float, rounds: int, folder: pathlib.Path) -> None:
    count = max(2, round(gb * 1e9 / (2 * WIDE * NARROW)) // 2 * 2)
    source = folder / "checkpoint"
    in_own_process("--save", count, source)
    size = sum(path.stat().st_size for path in source.rglob("*") if path.is_file())
    exports, copies, imports, memory = [], [], [], 0.0
    for _ in range(rounds):
        copies.append(copied(source, folder / "copy"))
        shutil.rmtree(folder / "copy")
        (folder / "out").mkdir()
        imported, took, processor, peak = in_own_process("--export", count, source, folder / "out" / "model.onnx")
        exports.append((took, processor))
        imports.append(imported)
        memory = max(memory, peak)
        shutil.rmtree(folder / "out")
    took, processor = min(exports)
    ratio = took / min(copies)
    print(f"Orbax checkpoint of {size / 1e9:.1f} GB, {count} arrays: memory of the process {memory / 2**20:.0f} MiB")
    print(f"Orbax and TensorStore imported in {min(imports):.1f} s")
    print(
        f"exported in {took:.1f} s ({processor:.1f} s of the processors, from the start of the process), "
        f"copied in {min(copies):.1f} s: {ratio:.2f} of the copy"
    )
    if memory > MOST_MEMORY or ratio > MOST_TIME:
        raise SystemExit("too much memory or time")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gb", type=float, default=1)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--save", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--export", type=int, help=argparse.SUPPRESS)
    parser.add_argument("folders", nargs="*", type=pathlib.Path)
    given = parser.parse_args()
    if given.save:
        save(given.folders[0], given.save)
    elif given.export:
        export(given.folders[0], given.folders[1], given.export)
    else:
        with tempfile.TemporaryDirectory(dir=next(iter(given.folders), None)) as made:
            main(given.gb, given.rounds, pathlib.Path(made))
