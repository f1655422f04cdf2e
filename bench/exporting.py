"""What the benchmarks share: the package from this tree, and the time that conversion takes beyond tracing.

Times are of the processor, not of the wall: both sides of a ratio run on one thread, and other work on the machine must
not count.
"""

from __future__ import annotations

import gc
import pathlib
import sys
import time
from collections.abc import Callable
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import jax  # noqa: E402

from jax2onnx import to_onnx  # noqa: E402
from jax2onnx._door import export as _export  # noqa: E402


def tracing_time(fn: Callable[..., Any], inputs: list[Any], repeats: int) -> float:
    """The best of several runs of jax.make_jaxpr, each from empty caches."""
    best = float("inf")
    for _ in range(repeats):
        jax.clear_caches()
        gc.collect()
        start = time.process_time()
        jax.make_jaxpr(fn)(*inputs)
        best = min(best, time.process_time() - start)
    return best


def conversion_time(fn: Callable[..., Any], inputs: list[Any], path: str, level: str, repeats: int) -> float:
    """The best of several exports, less the tracing inside them: everything to_onnx does besides jax.make_jaxpr."""
    best = float("inf")
    make_jaxpr = jax.make_jaxpr
    traced = [0.0]

    def timed_make_jaxpr(*args: Any, **options: Any) -> Any:
        start = time.process_time()
        trace = make_jaxpr(*args, **options)
        making = time.process_time() - start

        def run(*inputs: Any, **named: Any) -> Any:
            start = time.process_time()
            result = trace(*inputs, **named)
            traced[0] = time.process_time() - start + making
            return result

        return run

    _export.jax.make_jaxpr = timed_make_jaxpr
    try:
        for _ in range(repeats):
            gc.collect()
            start = time.process_time()
            to_onnx(fn, inputs, return_mode="file", output_path=path, stacktrace_metadata=level)
            best = min(best, time.process_time() - start - traced[0])
    finally:
        _export.jax.make_jaxpr = make_jaxpr
    return best
