"""The models of bench/models, and the same written in other styles (bench/styles), in float32, float16 and bfloat16:
nodes beside an expert's of float32, error against JAX, ONNX Runtime's time. An arrow marks graphs of more than 1.2
times the expert's nodes, beside a Cast for each input and output of bfloat16, and for each cache of float16.

    python bench/bench_13_precisions.py [NAME ...] [--keep FOLDER] [--beside FOLDER]

--keep writes the models into a folder. --beside times them in turns with those that an earlier run kept, so that two
versions of this package are compared by one run.
"""

from __future__ import annotations

import argparse
import pathlib
import sys
import time

import exporting  # noqa: F401  (finds the package in this tree)
import jax.numpy as jnp
import numpy as np
import onnx
from quality import OPSET, Case, cases, error, expected_of, feeds, most_nodes, operators, run, session

from jax2onnx import to_onnx

DTYPES = (jnp.float32, jnp.float16, jnp.bfloat16)
SECONDS = 0.5
# Of a type's last place: a half's sum of products in another order, through some twenty layers.
MOST_ERROR = 64


def best_times(models: list[onnx.ModelProto], arrays: list[np.ndarray]) -> list[float]:
    """In milliseconds, on one thread, in turns; what bfloat16 costs on the way into Python and out of it is in all."""
    sessions = [session(model) for model in models]
    best = [float("inf")] * len(models)
    end = time.perf_counter() + SECONDS * len(models)
    rounds = 0
    while rounds < 5 or time.perf_counter() < end:
        for which, runtime in enumerate(sessions):
            start = time.perf_counter()
            run(runtime, arrays)
            best[which] = min(best[which], (time.perf_counter() - start) * 1e3)
        rounds += 1
    return best


def measure(case: Case, dtype: type, expert: int, options: argparse.Namespace) -> bool:
    """Prints a line; is the graph as good as it should be?"""
    fn, inputs = case.build(dtype)
    model = to_onnx(fn, inputs, opset=OPSET, return_mode="proto")
    name = jnp.dtype(dtype).name
    file = f"{case.name}.{name}.onnx"
    if options.keep:
        options.keep.mkdir(parents=True, exist_ok=True)
        onnx.save(model, options.keep / file)
    arrays = feeds(inputs)
    expected = expected_of(case, fn, arrays)
    counts = operators(model)
    count, casts = counts.total(), counts["Cast"]
    lost = error(run(session(model), arrays), expected) / float(jnp.finfo(dtype).eps)
    models = [model]
    if options.beside and (options.beside / file).exists():
        models.append(onnx.load(options.beside / file))
    milliseconds, *before = best_times(models, arrays)
    good = count <= most_nodes(model, expert) and lost <= MOST_ERROR
    beside = f" ({before[0]:.3f}, ratio {milliseconds / before[0]:.2f})" if before else ""
    print(
        f"{case.name:>24} {name:>8}: {count:4} nodes, {casts:3} Casts (an expert's {expert:4}, "
        f"ratio {count / expert:.2f}), error {lost:5.1f} eps, {milliseconds:.3f} ms{beside}{'' if good else '  <-'}",
        flush=True,
    )
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="of models; all if there are none")
    parser.add_argument("--keep", type=pathlib.Path, metavar="FOLDER", help="where the models are written to")
    parser.add_argument("--beside", type=pathlib.Path, metavar="FOLDER", help="models that they are timed with")
    options = parser.parse_args()
    good = True
    for case in (*cases(), *cases("styles")):
        if options.names and case.name not in options.names:
            continue
        expert = case.expert().total()
        for dtype in DTYPES:
            good = measure(case, dtype, expert, options) and good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
