"""What is true, from numbers: both models are run with every value as an output, and a node of the processed one whose
value equals exactly one of the original's came from that one's line.

usage: truth.py MODELS PROCESSED writes TOOL/NAME.truth.json beside each TOOL/NAME.onnx.
"""

from __future__ import annotations

import json
import pathlib
import sys
from typing import Any

import numpy as np
import onnx
import onnx.inliner
import onnxruntime
from foreign_tools import random_inputs

SEEDS = (11, 12)
# Tools that only rewrite compute the same but for the order of sums. Others round everything to half precision or to
# eight bits: there a value must be near one of the original's and far from all others.
EXACT, ROUNDED, FARTHER = 2e-5, 0.08, 5.0
ROUNDING_TOOLS = ("float16", "quantize")

Values = dict[str, list[np.ndarray]]


def metadata(node: onnx.NodeProto) -> dict[str, str]:
    return {entry.key: entry.value for entry in node.metadata_props}


def all_values(model: onnx.ModelProto, names: list[str]) -> Values:
    """The values of these names on some random inputs, as far as ONNX Runtime gives them."""
    model = onnx.ModelProto.FromString(model.SerializeToString())
    outputs = {value.name for value in model.graph.output}
    made = {name for node in model.graph.node for name in node.output}
    wanted = [name for name in names if name in made]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in wanted if name not in outputs)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    values: Values = {name: [] for name in wanted}
    for seed in SEEDS:
        for name, value in zip(wanted, session.run(wanted, random_inputs(model, seed)), strict=True):
            values[name].append(value)
    return values


def distance(a: list[np.ndarray], b: list[np.ndarray]) -> float:
    """How far apart two values are, of the size of the first; infinity where they cannot be compared."""
    most = 0.0
    for one, two in zip(a, b, strict=True):
        if not isinstance(one, np.ndarray) or not isinstance(two, np.ndarray) or one.shape != two.shape:
            return np.inf
        if "O" in (one.dtype.kind, two.dtype.kind) or (one.dtype.kind == "b") != (two.dtype.kind == "b"):
            return np.inf
        x, y = one.astype(np.float64), two.astype(np.float64)
        same = (x == y) | (np.isnan(x) & np.isnan(y))
        if same.all():
            continue
        if not np.isfinite(x[~same]).all() or not np.isfinite(y[~same]).all():
            return np.inf
        scale = np.sqrt(np.mean(x[np.isfinite(x)] ** 2)) or 1.0
        most = max(most, float(np.sqrt(np.mean((x[~same] - y[~same]) ** 2)) / scale))
    return most


def tells_apart(value: list[np.ndarray]) -> bool:
    """A value of few bits, or one that does not depend on the inputs, equals others by chance."""
    if not all(isinstance(item, np.ndarray) and item.dtype.kind in "fiu" for item in value):
        return False
    return len(np.unique(value[0])) > 2 and not np.array_equal(value[0], value[-1])


def original_values(model: onnx.ModelProto) -> tuple[Values, dict[str, dict[str, str]]]:
    """Of the model with its functions in place: its values, and the metadata of the nodes that make them."""
    calls = {name for node in model.graph.node if node.domain for name in node.output}
    model = onnx.inliner.inline_local_functions(model)
    made = {name: metadata(node) for node in model.graph.node for name in node.output if name}
    for name in calls & made.keys():
        made[name] = {}  # the call, or the last node of the body: both are right
    return all_values(model, list(made)), made


def truth(original: tuple[Values, dict[str, dict[str, str]]], processed: onnx.ModelProto, rounds: bool) -> list[Any]:
    """For each node of the processed main graph what it should carry, or None where the numbers do not say."""
    values, made = original
    names = [name for node in processed.graph.node for name in node.output if name]
    other = all_values(processed, names)
    inputs = {name: [feed] for name, feed in random_inputs(processed, SEEDS[0]).items()}
    known = {name: value for name, value in values.items() if tells_apart(value)}
    result: list[Any] = []
    for node in processed.graph.node:
        value = other.get(node.output[0]) if node.output else None
        result.append(_source(value, known, made, inputs, rounds) if value and tells_apart(value) else None)
    return result


def _source(value: Any, known: Values, made: Any, inputs: Any, rounds: bool) -> dict[str, str] | None:
    limit = ROUNDED if rounds else EXACT
    if any(distance(value[:1], given) <= limit for given in inputs.values()):
        return None
    distances = {name: distance(other, value) for name, other in known.items()}
    near = [name for name, far in distances.items() if far <= limit]
    if rounds and near:
        best = min(distances[name] for name in near)
        near = [name for name in near if distances[name] <= max(best * FARTHER, EXACT)]
    sources = {(made[name].get("pkg.jax2onnx.callsite"), trace_of(made[name])) for name in near}
    if len(sources) != 1:
        return None
    callsite, trace = sources.pop()
    if callsite is None:
        return None
    return {"callsite": callsite, "trace": trace}


def trace_of(entries: dict[str, str]) -> str:
    return entries.get("pkg.jax2onnx.jax_traceback", "").split("\n\n")[0]


def main(models: str, processed: str) -> None:
    originals: dict[str, Any] = {}
    for path in sorted(pathlib.Path(processed).glob("*/*.onnx")):
        target = path.with_suffix(".truth.json")
        if target.exists():
            continue
        if path.stem not in originals:
            originals[path.stem] = original_values(onnx.load(f"{models}/{path.name}"))
        try:
            found = truth(
                originals[path.stem], onnx.load(path), any(tool in path.parent.name for tool in ROUNDING_TOOLS)
            )
        except Exception as error:  # a model that the tool broke: nothing can be said of it
            print(f"{path.parent.name}/{path.name}: {str(error).splitlines()[0][:150]}", flush=True)
            found = []
        target.write_text(json.dumps(found, indent=0))


if __name__ == "__main__":
    main(*sys.argv[1:])
