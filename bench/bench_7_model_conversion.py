"""Models of real structure: conversion with all passes against tracing, and what of it is writing their weights."""

from __future__ import annotations

import pathlib
import tempfile
import time

from exporting import conversion_time, tracing_time
from quality import cases

REPEATS = 5
SMALL = 32  # MB of weights: with more, moving their bytes is most of a conversion


def writing_time(content: bytes, path: pathlib.Path) -> float:
    """The best of several writes of the finished model, which any exporter has to do."""
    best = float("inf")
    for _ in range(REPEATS):
        start = time.process_time()
        path.write_bytes(content)
        best = min(best, time.process_time() - start)
    return best


def main() -> None:
    print("conversion beyond tracing / tracing, all passes on, minimal provenance")
    worst = 0.0
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "model.onnx"
        for case in cases():
            fn, inputs = case.build()
            tracing = tracing_time(fn, inputs, 3).processor
            converting = conversion_time(fn, inputs, str(path), "minimal", REPEATS).processor
            content = path.read_bytes()
            writing = writing_time(content, path.with_suffix(".copy"))
            size = len(content) / 1e6
            print(
                f"{case.name:>16}: tracing {tracing * 1e3:.0f} ms, ratio {converting / tracing:.2f}; "
                f"writing its {size:.1f} MB {writing / tracing:.2f}, all else {(converting - writing) / tracing:.2f}",
                flush=True,
            )
            worst = max(worst, converting / tracing if size <= SMALL else 0.0)
    print(f"{'the worst':>16}: {worst:.2f} of those up to {SMALL} MB (target <= 0.25)")


if __name__ == "__main__":
    main()
