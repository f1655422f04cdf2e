"""The same three functions through this package and through the Python package of the same name: nodes, time, error.

Usage: other_exporters.py [PYTHON]. PYTHON is an interpreter that has the other package; without it an environment is
made in build/other-exporters. Times are of the processor and include tracing.
"""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
import tempfile
import time
import venv

ROOT = pathlib.Path(__file__).resolve().parent.parent
REPEATS = 5


def measure() -> dict[str, object]:
    """With whichever jax2onnx this interpreter imports."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    import onnx
    import onnxruntime

    from jax2onnx import to_onnx

    weights = {name: jax.random.normal(jax.random.key(i), (64, 64)) / 8 for i, name in enumerate("qkvof")}

    def perceptron(x):
        mean, spread = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
        return x + jax.nn.gelu(((x - mean) / jnp.sqrt(spread + 1e-5)) @ weights["f"]) @ weights["o"]

    def attention(x):
        q, k, v = (x @ weights[name] for name in "qkv")
        scores = q @ k.T / 8.0
        scores = jnp.where(jnp.tril(jnp.ones((16, 16), bool)), scores, -1e9)
        return x + jax.nn.softmax(scores, axis=-1) @ v @ weights["o"]

    def recurrent(x):
        def step(carry, row):
            carry = jnp.tanh(row @ weights["q"] + carry @ weights["k"])
            return carry, carry

        return jax.lax.scan(step, jnp.zeros(64), x)[1]

    results: dict[str, object] = {}
    data = np.asarray(jax.random.normal(jax.random.key(9), (16, 64)))
    for fn in (perceptron, attention, recurrent):
        with tempfile.TemporaryDirectory() as folder:
            path = str(pathlib.Path(folder) / "model.onnx")
            times = []
            for _ in range(REPEATS):
                jax.clear_caches()
                start = time.process_time()
                to_onnx(fn, [jax.ShapeDtypeStruct((16, 64), jnp.float32)], return_mode="file", output_path=path)
                times.append(time.process_time() - start)
            model = onnx.load(path)
            (out,) = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(
                None, {model.graph.input[0].name: data}
            )
        error = float(np.abs(out - np.asarray(fn(data))).max())
        results[fn.__name__] = {"nodes": len(model.graph.node), "ms": min(times) * 1e3, "error": error}
    return results


def measured_by(python: str, ours: bool) -> dict[str, dict[str, float]]:
    folder = str(ROOT) if ours else tempfile.gettempdir()
    command = [python, "-P", str(pathlib.Path(__file__).resolve()), "--measure", *([folder] if ours else [])]
    return json.loads(subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout)


def other_python() -> str:
    folder = ROOT / "build" / "other-exporters"
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        venv.create(folder, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "-q", "jax2onnx", "onnxruntime", "equinox"], check=True)
        (folder / "ready").touch()
    return str(python)


def main() -> None:
    other = sys.argv[1] if len(sys.argv) > 1 else other_python()
    version = "import importlib.metadata as m; print(m.version('jax2onnx'), m.version('jax'))"
    words = subprocess.run([other, "-P", "-c", version], capture_output=True, text=True, check=True).stdout.split()
    ours, others = measured_by(sys.executable, True), measured_by(other, False)
    print(f"this package, and the Python jax2onnx {words[0]} (JAX {words[1]}); best of {REPEATS}, processor time")
    print(f"{'':12}{'nodes':>14}{'export':>22}{'largest error':>24}")
    for name in ours:
        a, b = ours[name], others[name]
        times = f"{a['ms']:.1f} / {b['ms']:.1f} ms"
        print(f"{name:12}{a['nodes']:>6} / {b['nodes']:<5}{times:>22}{a['error']:>13.1e} / {b['error']:.1e}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        sys.path[:0] = sys.argv[2:]
        print(json.dumps(measure()))
    else:
        main()
