"""Peak memory of an export of 400 MB of weights, beyond the weights themselves."""

from __future__ import annotations

import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent

PROGRAM = """
import sys
sys.path.insert(0, "{root}")
import jax, jax.numpy as jnp, numpy as np
from jax2onnx import to_onnx
layers = [jnp.asarray(np.full((1024, 1024), 1.0 / (i + 1), np.float32)) for i in range(100)]
jax.block_until_ready(layers)
def fn(x):
    for layer in layers:
        x = jnp.sin(x @ layer)
    return x
def status(field):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(field))
spec = jax.ShapeDtypeStruct((4, 1024), jnp.float32)
to_onnx(lambda x: jnp.sin(x), [spec], return_mode="file", output_path="{path}")
with open("/proc/self/clear_refs", "w") as file:
    file.write("5")  # the peak starts anew
before = status("VmRSS")
to_onnx(fn, [spec], return_mode="file", output_path="{path}")
print(status("VmHWM") - before)
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "model.onnx"
        code = PROGRAM.format(root=ROOT, path=path)
        run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        size = path.stat().st_size
    peak = int(run.stdout) / 1024
    print(f"peak memory beyond the weights, exporting {size / 1e6:.0f} MB: {peak:.1f} MiB (target <= 64)")


if __name__ == "__main__":
    main()
