"""What an exported graph is worth: its nodes beside those an expert would write, its error and its time beside those of
the graph as it was lowered."""

from __future__ import annotations

import importlib
import os
import pathlib
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np
import onnx
import onnxruntime

from jax2onnx import _core, to_onnx
from jax2onnx._compare.sessions import run_session

OPSET = 23
FOLDER = pathlib.Path(__file__).resolve().parent
# A node or two more than an expert would write is no matter.
MOST_NODES = 1.2
# The error of an optimised graph may be twice that of the lowered one; errors within some units in the last place of
# the largest result are those of any order of summation.
MOST_ERROR = 2.0
LAST_PLACES = 8


@dataclass(frozen=True)
class Case:
    """A model: ``build`` gives the function and its inputs, of float32 unless it is given another type, ``expert`` how
    often which operator an expert would use."""

    name: str
    build: Callable[..., tuple[Callable[..., Any], list[Any]]]
    expert: Callable[[], Counter[str]]


def cases(folder: str = "models") -> Iterator[Case]:
    """Every model of bench/models, or of bench/styles, which are the same ones in other styles. A file is one model, or
    some by ``NAMES``."""
    for path in sorted((FOLDER / folder).glob("*.py")):
        module = importlib.import_module(f"{folder}.{path.stem}")
        if not hasattr(module, "NAMES"):
            yield Case(path.stem, module.build, partial(Counter, module.EXPERT))
            continue
        for name in module.NAMES:
            yield Case(name, partial(module.build, name), partial(module.expert, name))


@contextmanager
def no_passes() -> Iterator[None]:
    """Exports inside leave the graph as it is lowered."""
    before = os.environ.get("JAX2ONNX_DISABLE_PASSES")
    os.environ["JAX2ONNX_DISABLE_PASSES"] = ",".join(_core.passes())
    try:
        yield
    finally:
        if before is None:
            del os.environ["JAX2ONNX_DISABLE_PASSES"]
        else:
            os.environ["JAX2ONNX_DISABLE_PASSES"] = before


@dataclass
class Exported:
    fn: Callable[..., Any]
    inputs: list[Any]
    optimised: onnx.ModelProto
    lowered: onnx.ModelProto


def export(case: Case) -> Exported:
    fn, inputs = case.build()
    optimised = to_onnx(fn, inputs, opset=OPSET, return_mode="proto")
    with no_passes():
        lowered = to_onnx(fn, inputs, opset=OPSET, return_mode="proto")
    return Exported(fn, inputs, optimised, lowered)


def operators(model: onnx.ModelProto) -> Counter[str]:
    """How often each operator stands in the model, bodies of loops included."""
    counts: Counter[str] = Counter()
    graphs = [model.graph]
    while graphs:
        for node in graphs.pop().node:
            counts[node.op_type] += 1
            graphs += [attribute.g for attribute in node.attribute if attribute.type == onnx.AttributeProto.GRAPH]
    return counts


def most_nodes(model: onnx.ModelProto, expert: int) -> float:
    """What a graph may have beside an expert's of float32. The runtime has no kernels of bfloat16: there may be a Cast
    at each input and output. Of float16 it is slow at attention with a single query, so that caches may have one."""
    types = [[value.type.tensor_type.elem_type for value in side] for side in (model.graph.input, model.graph.output)]
    float16, bfloat16 = onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16
    has_caches = types[0].count(float16) > 1
    return MOST_NODES * expert + sum(side.count(bfloat16) + has_caches * side.count(float16) for side in types)


def feeds(inputs: list[Any]) -> list[np.ndarray]:
    """Small indices and normal numbers, the same in every run."""
    random = np.random.default_rng(0)
    return [
        random.integers(0, 8, spec.shape).astype(spec.dtype)
        if np.issubdtype(spec.dtype, np.integer)
        else random.standard_normal(spec.shape).astype(spec.dtype)
        for spec in inputs
    ]


def session(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def run(runtime: onnxruntime.InferenceSession, arrays: list[np.ndarray]) -> list[np.ndarray]:
    names = [value.name for value in runtime.get_inputs()]
    return run_session(runtime, dict(zip(names, arrays, strict=True)))


def expected_of(case: Case, fn: Callable[..., Any], arrays: list[np.ndarray]) -> list[np.ndarray]:
    """JAX's results; of the model in float32 where JAX itself has no such product of halves on this processor."""
    try:
        return [np.asarray(leaf) for leaf in jax.tree.leaves(jax.jit(fn)(*arrays))]
    except ValueError as refused:
        if "not supported by dot_general" not in str(refused):
            raise
    wide, inputs = case.build()
    arrays = [array.astype(spec.dtype) for array, spec in zip(arrays, inputs, strict=True)]
    return [np.asarray(leaf) for leaf in jax.tree.leaves(jax.jit(wide)(*arrays))]


def error(found: list[np.ndarray], expected: list[np.ndarray]) -> float:
    """The largest error, in units of the largest expected number of its output."""
    return max(
        float(np.max(np.abs(a.astype(np.float64) - b.astype(np.float64))) / max(float(np.max(np.abs(b))), 1e-30))
        for a, b in zip(found, expected, strict=True)
    )


def errors(exported: Exported) -> tuple[float, float]:
    """Of the optimised and of the lowered graph, against JAX."""
    arrays = feeds(exported.inputs)
    expected = [np.asarray(leaf) for leaf in jax.tree.leaves(jax.jit(exported.fn)(*arrays))]
    return tuple(error(run(session(model), arrays), expected) for model in (exported.optimised, exported.lowered))


def error_ratio(optimised: float, lowered: float) -> float:
    floor = LAST_PLACES * float(np.finfo(np.float32).eps)
    return max(optimised, floor) / max(lowered, floor)


def latencies(exported: Exported, seconds: float = 1.0) -> tuple[float, float]:
    """The best times of a run in ONNX Runtime on one thread, of the optimised and of the lowered graph, in turns."""
    arrays = feeds(exported.inputs)
    sessions = [session(exported.optimised), session(exported.lowered)]
    best = [float("inf")] * 2
    end = time.perf_counter() + seconds
    rounds = 0
    while rounds < 5 or time.perf_counter() < end:
        for which, runtime in enumerate(sessions):
            start = time.perf_counter()
            run(runtime, arrays)
            best[which] = min(best[which], time.perf_counter() - start)
        rounds += 1
    return best[0], best[1]
