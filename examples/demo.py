"""The main job in one file: export a model, look at it beside its source, check it against JAX.

Leaves demo/model.onnx and demo/report.html in the working folder. Usage: demo.py [--j2o PROGRAM]
"""

import argparse
import os
import pathlib
import sys
import time

START = time.monotonic()
HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))


def step(text: str) -> None:
    print(f"[{time.monotonic() - START:5.1f} s] {text}", flush=True)


if __name__ == "__main__":
    step("importing JAX")

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402

from jax2onnx import _core, allclose, explore, to_onnx  # noqa: E402

WIDTH = 8


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


def make_block():
    return Block(jax.random.key(0), WIDTH)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--j2o", default="j2o", help="the program j2o, for the commands that are printed at the end")
    options = parser.parse_args()
    folder = pathlib.Path("demo")
    folder.mkdir(exist_ok=True)
    model, page = str(folder / "model.onnx"), str(folder / "report.html")

    step("making a small model: normalisation, two matrices, SiLU")
    block = make_block()
    step("exporting it, with the Python line on every node")
    to_onnx(block, [("B", WIDTH)], return_mode="file", output_path=model, stacktrace_metadata="full")
    step("showing each node with its line")
    _core.tool(["j2o", "inspect", model])
    step("comparing ONNX Runtime's results with JAX's")
    agrees, message = allclose(block, model, [jax.random.normal(jax.random.key(1), (3, WIDTH))])
    print(f"          {message}")
    step("writing the page: source, graph and nodes side by side")
    explore(model, source_roots=[HERE]).save(page)
    step("done")

    python, source = (os.path.relpath(path) for path in (sys.executable, HERE / "demo.py"))
    print(
        f"\n{model} ({os.path.getsize(model):,} bytes) is the model: any ONNX tool reads it.\n"
        f"{page} opens in a browser: {pathlib.Path(page).resolve().as_uri()}\n"
        f"\nNow try:\n"
        f"  {options.j2o} inspect {model}\n"
        f"  {options.j2o} blame {model} {source}\n"
        f"  {python} -m jax2onnx verify '{source}:make_block()' {model}"
    )
    return 0 if agrees else 1


if __name__ == "__main__":
    sys.exit(main())
