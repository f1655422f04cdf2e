"""Small work: ONNX Runtime's time beside JAX's own, on one core and in one run (small_work.py).

The number of nodes that ONNX Runtime runs, those of every step counted, does not depend on the machine or its load.
"""

from __future__ import annotations

import json
import math
import os
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

import exporting  # noqa: E402, F401  (finds the package in this tree)
import jax  # noqa: E402
import numpy as np  # noqa: E402
import onnxruntime  # type: ignore[import-untyped]  # noqa: E402
from small_work import Program, of_libraries, written_here  # noqa: E402

from jax2onnx import to_onnx  # noqa: E402


def best_of(run: Callable[[], Any], seconds: float = 0.5) -> float:
    run()
    best, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
    return best


def options(profile: str = "") -> Any:
    result = onnxruntime.SessionOptions()
    result.intra_op_num_threads = 1
    result.enable_profiling = bool(profile)
    result.profile_file_prefix = profile
    return result


def nodes_run(model: bytes, feeds: dict[str, np.ndarray]) -> int:
    with tempfile.TemporaryDirectory() as folder:
        session = onnxruntime.InferenceSession(model, options(os.path.join(folder, "profile")))
        session.run(None, feeds)
        with open(session.end_profiling(), encoding="utf-8") as events:
            return sum(e.get("cat") == "Node" and e["name"].endswith("_kernel_time") for e in json.load(events))


def difference(wanted: np.ndarray, got: np.ndarray) -> float:
    return float(np.max(np.abs(np.asarray(wanted, np.float64) - got), initial=0))


def difference_of_axes(wanted: np.ndarray, got: np.ndarray) -> float:
    """Eigenvectors, which are the columns, up to their signs."""
    return difference(wanted, got * np.where((np.asarray(wanted) * got).sum(-2, keepdims=True) < 0, -1, 1))


def measure(program: Program) -> float:
    name, fn, arguments = program
    model = to_onnx(fn, [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in arguments], opset=21).SerializeToString()
    session = onnxruntime.InferenceSession(model, options())
    feeds = {i.name: np.asarray(a) for i, a in zip(session.get_inputs(), arguments, strict=True)}
    compiled = jax.jit(fn)
    wanted = jax.tree.leaves(compiled(*arguments))
    compare = difference_of_axes if name == "principal_axes" else difference
    got = session.run(None, feeds)
    error = max((compare if w.ndim > 2 else difference)(w, g) for w, g in zip(wanted, got, strict=True))
    jax_time = best_of(lambda: jax.block_until_ready(compiled(*arguments)))
    runtime = best_of(lambda: session.run(None, feeds))
    print(
        f"{name:>20}: {runtime * 1e3:8.3f} ms in ONNX Runtime, {jax_time * 1e3:7.3f} in JAX, "
        f"{runtime / jax_time:6.1f} times; {nodes_run(model, feeds)} nodes run; error {error:.1e}",
        flush=True,
    )
    return runtime / jax_time


def main() -> None:
    only = sys.argv[1:]
    print("small work: ONNX Runtime's time as a multiple of JAX's (target: 10 at most, geometric mean 4 at most)")
    programs = [p for source in (written_here(), of_libraries()) for p in source]
    ratios = [measure(p) for p in programs if not only or p[0] in only]
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    print(f"{'geometric mean':>20}: {mean:.2f} times, {max(ratios):.1f} at the most")


if __name__ == "__main__":
    main()
