"""What the benchmarks share: the package from this tree, and the time that conversion takes beyond tracing.

Both times are taken, of the wall and of the processor: the first is what a user waits, the second is what other work on
the machine does not change.
"""

from __future__ import annotations

import functools
import gc
import os
import pathlib
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import jax  # noqa: E402

from jax2onnx import to_onnx  # noqa: E402
from jax2onnx._door import export  # noqa: E402


@dataclass(frozen=True)
class Times:
    """Seconds."""

    wall: float
    processor: float

    @classmethod
    def now(cls) -> Times:
        return cls(time.perf_counter(), time.process_time())

    def __sub__(self, other: Times) -> Times:
        return Times(self.wall - other.wall, self.processor - other.processor)

    def __add__(self, other: Times) -> Times:
        return Times(self.wall + other.wall, self.processor + other.processor)

    def __truediv__(self, other: Times) -> Times:
        return Times(self.wall / other.wall, self.processor / other.processor)

    def least(self, other: Times) -> Times:
        return Times(min(self.wall, other.wall), min(self.processor, other.processor))


FOREVER = Times(float("inf"), float("inf"))
NOTHING = Times(0, 0)


def tracing_time(fn: Callable[..., Any], inputs: list[Any], repeats: int) -> Times:
    """The best of several runs of jax.make_jaxpr, each from empty caches."""
    best = FOREVER
    for _ in range(repeats):
        jax.clear_caches()
        gc.collect()
        start = Times.now()
        jax.make_jaxpr(fn)(*inputs)
        best = best.least(Times.now() - start)
    return best


def conversion_time(
    fn: Callable[..., Any], inputs: list[Any], path: str, level: str, repeats: int, *, afresh: bool = False
) -> Times:
    """The best of several exports, less the tracing inside them: everything to_onnx does besides jax.make_jaxpr.

    Letting go of what JAX kept for the tracing is part of it, as it is in tracing_time. With ``afresh`` every export
    traces the function, as a program that exports it does; otherwise JAX has kept the trace, and a collection of
    garbage before the export has emptied the processor's caches.
    """
    best = FOREVER
    make_jaxpr = jax.make_jaxpr
    traced = [NOTHING]

    def timed_make_jaxpr(*args: Any, **options: Any) -> Any:
        start = Times.now()
        trace = make_jaxpr(*args, **options)
        making = Times.now() - start

        def run(*inputs: Any, **named: Any) -> Any:
            nonlocal trace
            start = Times.now()
            result = trace(*inputs, **named)
            trace = None
            traced[0] = Times.now() - start + making
            return result

        return run

    export.jax.make_jaxpr = timed_make_jaxpr
    try:
        for _ in range(repeats):
            exported = functools.partial(fn) if afresh else fn  # to JAX another function, without a frame of its own
            if not afresh:
                gc.collect()
            start = Times.now()
            to_onnx(exported, inputs, return_mode="file", output_path=path, stacktrace_metadata=level)
            best = best.least(Times.now() - start - traced[0])
    finally:
        export.jax.make_jaxpr = make_jaxpr
    return best


def disk_time(path: str, repeats: int) -> Times:
    """The best of several times that the bytes of a file are written and made to last by plain system calls: what no
    converter can be faster than where it keeps to that."""
    best = FOREVER
    content = pathlib.Path(path).read_bytes()
    folder, beside = os.path.dirname(path), path + ".beside"
    for _ in range(repeats):
        start = Times.now()
        file = os.open(beside, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        os.write(file, content)
        os.fsync(file)
        os.close(file)
        os.rename(beside, path)
        file = os.open(folder, os.O_RDONLY)
        os.fsync(file)
        os.close(file)
        best = best.least(Times.now() - start)
    return best
