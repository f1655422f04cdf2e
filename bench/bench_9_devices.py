"""Weights that live on another device: the host's memory that their export takes, what of it stays taken, and its rate
against that of copying to the host alone and of writing alone.

usage: bench_9_devices.py [--gib 1] [--largest 1024] [--rounds 3] [FOLDER]

On a machine with an accelerator its weights are there; elsewhere on a second device of the processor's.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import sys
import tempfile
import time
from collections.abc import Callable

os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=2"
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import jax
import jax.numpy as jnp
import numpy as np

from jax2onnx import to_onnx
from jax2onnx._door.fetching import PIECE, from_devices

WIDTH = 4096
ROWS_OF_MEBIBYTE = (1 << 20) // (4 * WIDTH)


def made_weights(gib: float, largest: int, device: jax.Device) -> list[jax.Array]:
    """In turns one of the largest size and some smaller ones, each with numbers of its own."""
    left, weights = int(gib * 1024), []
    sizes = [largest, *[max(largest // 8, 1)] * 8]
    while left > 0:
        size = min(sizes[len(weights) % len(sizes)], left)
        made = jnp.full((size * ROWS_OF_MEBIBYTE, WIDTH), 1 / (len(weights) + 1), jnp.float32, device=device)
        weights.append(jax.block_until_ready(made))
        left -= size
    return weights


def status(field: str) -> int:
    with open("/proc/self/status") as file:
        return 1024 * next(int(line.split()[1]) for line in file if line.startswith(field))


def exported(weights: list[jax.Array], path: pathlib.Path) -> None:
    def model(row: jax.Array) -> jax.Array:
        return sum(jnp.take(weight, row, axis=0) for weight in weights)

    to_onnx(model, [jax.ShapeDtypeStruct((1,), jnp.int32)], return_mode="file", output_path=path)


def copied(weights: list[jax.Array]) -> None:
    for weight in weights:
        fetched = from_devices(weight)
        if fetched is None:
            raise SystemExit("the weights lie in the host's memory")
        for _ in fetched.pieces():
            pass


def written(size: int, path: pathlib.Path) -> None:
    piece = np.ones(PIECE, np.uint8)
    with open(path, "wb", buffering=0) as file:
        for first in range(0, size, PIECE):
            file.write(piece[: min(PIECE, size - first)])
        os.fsync(file.fileno())


def seconds(action: Callable[[], None]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def removed(folder: pathlib.Path) -> None:
    for path in folder.iterdir():
        path.unlink()
    os.sync()


def main(gib: float, largest: int, rounds: int, folder: pathlib.Path) -> None:
    devices = jax.devices()
    device = devices[0] if devices[0].platform != "cpu" else devices[1]
    exported(made_weights(2 * PIECE / 2**30, PIECE >> 19, device), folder / "first.onnx")  # what is loaded on first use
    weights = made_weights(gib, largest, device)
    size = sum(weight.nbytes for weight in weights)
    copies, writes, exports, peaks = [], [], [], []
    before = status("VmRSS")
    for _ in range(rounds):
        removed(folder)
        pathlib.Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
        start = status("VmRSS")
        exports.append(seconds(lambda: exported(weights, folder / "model.onnx")))
        peaks.append(status("VmHWM") - start)
        removed(folder)
        copies.append(seconds(lambda: copied(weights)))
        writes.append(seconds(lambda: written(size, folder / "copy")))
    left = status("VmRSS") - before
    kept = sum(weight._npy_value is not None for weight in weights)
    print(f"{device.device_kind}, JAX {jax.__version__}: {size / 2**30:.1f} GiB in {len(weights)} weights, ", end="")
    print(f"the largest {max(weight.nbytes for weight in weights) / 2**20:.0f} MiB, pieces of {PIECE >> 20} MiB")
    print(f"memory at most {max(peaks) / 2**20:.0f} MiB (target <= {2 * PIECE >> 20}), ", end="")
    print(f"left afterwards {left / 2**20:.0f} MiB, copies kept by JAX {kept}")
    rates = [size / 1e9 / min(times) for times in (copies, writes, exports)]
    print(f"GB/s: copying alone {rates[0]:.2f}, writing alone {rates[1]:.2f}, exporting {rates[2]:.2f}, ", end="")
    print(f"{rates[2] / min(rates[:2]):.2f} of the slower (target >= 0.9)")
    print("seconds of each round, exporting:", *(f"{took:.2f}" for took in exports), end="; ")
    print("writing:", *(f"{took:.2f}" for took in writes))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gib", type=float, default=1)
    parser.add_argument("--largest", type=int, default=1024, help="MiB of the largest weights")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("folder", nargs="?")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as made:
        main(given.gib, given.largest, given.rounds, pathlib.Path(made))
