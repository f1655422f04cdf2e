"""What the compact level costs: the file against the plain graph, tensors aside, and the export against minimal."""

from __future__ import annotations

import pathlib
import tempfile
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from exporting import ROOT  # noqa: F401  (puts the package of this tree in reach)

from jax2onnx import to_onnx

WIDTH, HEADS, LAYERS, LINES = 64, 4, 12, 4000


def weight(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32) * 0.02


class Norm:
    def __init__(self) -> None:
        self.gain, self.bias = weight(WIDTH), weight(WIDTH)

    def __call__(self, x: jax.Array) -> jax.Array:
        centred = x - x.mean(-1, keepdims=True)
        variance = (centred**2).mean(-1, keepdims=True)
        return centred * jax.lax.rsqrt(variance + 1e-5) * self.gain + self.bias


class Attention:
    def __init__(self) -> None:
        self.query, self.key, self.value, self.out = (weight(WIDTH, WIDTH) for _ in range(4))

    def heads(self, x: jax.Array) -> jax.Array:
        return x.reshape(*x.shape[:2], HEADS, WIDTH // HEADS).transpose(0, 2, 1, 3)

    def __call__(self, x: jax.Array) -> jax.Array:
        query, key, value = (self.heads(x @ matrix) for matrix in (self.query, self.key, self.value))
        scores = jax.nn.softmax(query @ key.swapaxes(-1, -2) / np.sqrt(WIDTH // HEADS))
        return (scores @ value).transpose(0, 2, 1, 3).reshape(x.shape) @ self.out


class Block:
    def __init__(self) -> None:
        self.attention, self.first, self.second = Attention(), Norm(), Norm()
        self.up, self.down = weight(WIDTH, 4 * WIDTH), weight(4 * WIDTH, WIDTH)

    def __call__(self, x: jax.Array) -> jax.Array:
        x = x + self.attention(self.first(x))
        return x + jax.nn.gelu(self.second(x) @ self.up) @ self.down


class Transformer:
    def __init__(self) -> None:
        self.blocks = [Block() for _ in range(LAYERS)]

    def __call__(self, x: jax.Array) -> jax.Array:
        for block in self.blocks:
            x = block(x)
        return x


def straight_program() -> Callable[[jax.Array], jax.Array]:
    """A source line for every equation: the worst case, for no two nodes share a trace."""
    body = "".join("    x = jnp.sin(x)\n    x = x * 2.0\n" for _ in range(LINES // 2))
    space: dict[str, Any] = {"jnp": jnp}
    exec(compile(f"def program(x):\n{body}    return x\n", "program.py", "exec"), space)
    return space["program"]


def tensor_bytes(path: pathlib.Path) -> int:
    import onnx

    return sum(tensor.ByteSize() for tensor in onnx.load(path).graph.initializer)


def measure(name: str, fn: Callable[..., Any], shape: tuple[Any, ...], folder: pathlib.Path) -> None:
    best = dict.fromkeys(("off", "minimal", "compact"), float("inf"))
    for _ in range(7):
        for level in best:
            start = time.process_time()
            to_onnx(fn, [shape], stacktrace_metadata=level, return_mode="file", output_path=folder / level)
            best[level] = min(best[level], time.process_time() - start)
    tensors = tensor_bytes(folder / "off")
    size = ((folder / "compact").stat().st_size - tensors) / ((folder / "off").stat().st_size - tensors)
    print(f"compact, {name}: {size:.2f} of the plain graph's bytes (target <= 1.6), ", end="")
    print(f"{best['compact'] / best['minimal']:.2f} of the time of a minimal export (target <= 1.1)")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder)
        measure(f"a transformer of {LAYERS} layers", Transformer(), ("B", 16, WIDTH), path)
        measure(f"a program of {LINES} lines", straight_program(), ("B", 128), path)


if __name__ == "__main__":
    main()
