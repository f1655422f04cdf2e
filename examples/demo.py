"""The main job in one file: export a model, print each node with its provenance, check it against JAX."""

import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import jax
import jax.numpy as jnp

from jax2onnx import _core, allclose, to_onnx


def normalise(x):
    return (x - x.mean(axis=-1, keepdims=True)) / jnp.sqrt(x.var(axis=-1, keepdims=True) + 1e-6)


class Block:
    def __init__(self, key, width):
        first, second = jax.random.split(key)
        self.up = jax.random.normal(first, (width, 4 * width)) / width**0.5
        self.down = jax.random.normal(second, (4 * width, width)) / (4 * width) ** 0.5

    def __call__(self, x):
        hidden = jax.nn.silu(normalise(x) @ self.up)
        return x + hidden @ self.down


def main() -> int:
    block = Block(jax.random.key(0), width=8)
    x = jax.random.normal(jax.random.key(1), (3, 8))
    with tempfile.TemporaryDirectory() as folder:
        path = str(pathlib.Path(folder) / "block.onnx")
        to_onnx(block, [x], return_mode="file", output_path=path, stacktrace_metadata="minimal")
        _core.tool(["j2o", "inspect", path])
        agrees, message = allclose(block, path, [x])
    print(f"\nONNX Runtime against JAX: {message}")
    return 0 if agrees else 1


if __name__ == "__main__":
    sys.exit(main())
