"""Peak memory of an export of 400 MB of weights, beyond the weights themselves."""

from __future__ import annotations

import pathlib
import resource
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent

PROGRAM = """
import resource, sys
sys.path.insert(0, "{root}")
import jax, jax.numpy as jnp, numpy as np
from jax2onnx import to_onnx
layers = [jnp.asarray(np.full((1024, 1024), 1.0 / (i + 1), np.float32)) for i in range(100)]
jax.block_until_ready(layers)
def fn(x):
    for layer in layers:
        x = jnp.sin(x @ layer)
    return x
to_onnx(lambda x: jnp.sin(x), [jax.ShapeDtypeStruct((4, 1024), jnp.float32)], return_mode="file", output_path="{path}")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
to_onnx(fn, [jax.ShapeDtypeStruct((4, 1024), jnp.float32)], return_mode="file", output_path="{path}")
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def main() -> None:
    assert resource.RUSAGE_SELF == 0
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "model.onnx"
        code = PROGRAM.format(root=ROOT, path=path)
        run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        size = path.stat().st_size
    peak = int(run.stdout) / 1024
    print(f"peak memory beyond the weights, exporting {size / 1e6:.0f} MB: {peak:.1f} MiB (target <= 64)")


if __name__ == "__main__":
    main()
