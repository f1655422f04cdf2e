"""Assertions about exported graphs, for the tests of programs that are exported.

    expect_graph(model, "Sin:2 -> Mul:2", counts={"Add": 0}, absent=["Transpose"])

docs/testing.md explains the notation.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import onnx

__all__ = ["expect_graph", "graph_text"]

PREFIX = "pkg.jax2onnx."
_ELEMENT = re.compile(r"(?P<operator>\w[\w.]*)(?::(?P<shape>\S+))?")


def expect_graph(
    model: onnx.ModelProto | str | os.PathLike[str],
    *paths: str,
    counts: Mapping[str, int] | None = None,
    absent: Iterable[str] = (),
    metadata: Mapping[str, Mapping[str, str | re.Pattern[str]]] | None = None,
) -> None:
    """Assert that ``model`` (a ``ModelProto`` or a file) is as described; the error lists every difference.

    Args:
        paths: operators along the data flow, such as ``"Sin:2 -> Mul:2"``; each path must exist. After the colon comes
            the shape of the operator's output: sizes and dimension names joined by ``x`` (``Bx10``) or in brackets
            (``[max_length,10]``), ``?`` for any size, ``[]`` for a scalar. ``input`` and ``output`` stand for the
            graph's own inputs and outputs, ``...`` for any number of operators in between.
        counts: the number of nodes of each operator in the whole model.
        absent: operators that must not be in the model.
        metadata: for an operator, or ``"*"`` for all, the expected entries of each of its nodes under ``callsite``,
            ``plugin``, ``stacktrace`` or ``jax_traceback``: text to equal, or a compiled pattern to search for.
    """
    view = _ModelView(model)
    problems = [f"no path {path}{_nearest(view, path)}" for path in paths if not _has_path(view, _parse_path(path))]
    found = Counter(node.op_type for node in view.nodes)
    for operator, expected in (counts or {}).items():
        if found[operator] != expected:
            problems.append(f"{found[operator]} {operator} found, expected {expected}")
    for operator in (absent,) if isinstance(absent, str) else absent:
        if found[operator]:
            problems.append(f"{found[operator]} {operator} found, expected none")
    for operator, entries in (metadata or {}).items():
        problems.extend(_metadata_problems(view, operator, entries))
    if problems:
        raise AssertionError("\n".join(["the graph is not as expected:", *problems, "", graph_text(view.model)]))


def graph_text(model: onnx.ModelProto | str | os.PathLike[str]) -> str:
    """Return the nodes of a model, one per line, with the shapes of their outputs and where they came from."""
    view = _ModelView(model)
    inputs = ", ".join(f"{value.name} {view.shape_text(value.name)}" for value in view.model.graph.input)
    lines = [f"graph {view.model.graph.name}({inputs})"]
    for node in view.nodes:
        outputs = ", ".join(f"{name} {view.shape_text(name)}" for name in node.output)
        said = _metadata(node)
        origin = ", ".join(said[key] for key in ("callsite", "plugin") if key in said)
        lines.append(f"  {node.op_type}({', '.join(node.input)}) -> {outputs}" + (f"    # {origin}" if origin else ""))
    lines.append(f"  return {', '.join(value.name for value in view.model.graph.output)}")
    return "\n".join(lines)


class _ModelView:
    """The nodes of a model in order, including bodies, with the shape and the readers of each value."""

    def __init__(self, model: onnx.ModelProto | str | os.PathLike[str]) -> None:
        if isinstance(model, (str, os.PathLike)):
            model = onnx.load(os.fspath(model), load_external_data=False)
        if not isinstance(model, onnx.ModelProto):
            raise TypeError(f"expected a ModelProto or the path of a model; got {type(model).__name__}")
        self.model = model
        self.nodes: list[onnx.NodeProto] = []
        self.shapes: dict[str, tuple[str, ...]] = {}
        self.readers: dict[str, list[onnx.NodeProto]] = {}
        self.inputs = {value.name for value in model.graph.input}
        self.outputs = {value.name for value in model.graph.output}
        self._add_graph(model.graph)
        for function in model.functions:
            self._add_values(function.value_info)
            self._add_nodes(function.node)

    def _add_graph(self, graph: onnx.GraphProto) -> None:
        self._add_values([*graph.input, *graph.output, *graph.value_info])
        self._add_nodes(graph.node)

    def _add_values(self, values: Iterable[onnx.ValueInfoProto]) -> None:
        for value in values:
            if value.type.tensor_type.HasField("shape"):
                self.shapes[value.name] = tuple(_size(dim) for dim in value.type.tensor_type.shape.dim)

    def _add_nodes(self, nodes: Iterable[onnx.NodeProto]) -> None:
        for node in nodes:
            self.nodes.append(node)
            for name in dict.fromkeys(node.input):
                self.readers.setdefault(name, []).append(node)
            for attribute in node.attribute:
                for graph in (*((attribute.g,) if attribute.HasField("g") else ()), *attribute.graphs):
                    self._add_graph(graph)

    def shape_text(self, name: str) -> str:
        return "[" + ",".join(self.shapes[name]) + "]" if name in self.shapes else "?"


def _size(dim: onnx.TensorShapeProto.Dimension) -> str:
    return dim.dim_param or (str(dim.dim_value) if dim.HasField("dim_value") else "?")


@dataclass(frozen=True)
class _Step:
    operator: str  # an operator's name, "input" or "output"
    shape: tuple[str, ...] | None = None  # None: any
    skips: bool = field(default=False)  # "..." came before it

    def fits(self, view: _ModelView, name: str) -> bool:
        if self.shape is None:
            return True
        actual = view.shapes.get(name)
        return (
            actual is not None
            and len(actual) == len(self.shape)
            and all(want in ("?", size) for want, size in zip(self.shape, actual, strict=True))
        )


def _parse_path(text: str) -> list[_Step]:
    steps: list[_Step] = []
    skips = False
    for part in (part.strip() for part in text.split("->")):
        if part == "...":
            skips = True
            continue
        match = _ELEMENT.fullmatch(part)
        if not match:
            raise ValueError(f"{part!r} in the path {text!r} is not OPERATOR, OPERATOR:SHAPE, input, output or ...")
        steps.append(_Step(match["operator"], _parse_shape(match["shape"]), skips))
        skips = False
    if not steps or skips or steps[0].skips:
        raise ValueError(f"the path {text!r} must begin and end with an operator, input or output")
    return steps


def _parse_shape(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    if text.startswith("[") and text.endswith("]"):
        return tuple(size.strip() for size in text[1:-1].split(",")) if text != "[]" else ()
    return tuple(text.split("x"))


def _has_path(view: _ModelView, steps: Sequence[_Step]) -> bool:
    """Whether the steps can be followed: `at` holds the values in which the steps so far can end."""
    first, *rest = steps
    if first.operator == "input":
        at = {name for name in view.inputs if first.fits(view, name)}
    else:
        at = _outputs(view, view.nodes, first)
    for step in rest:
        if step.skips:
            at = _reachable(view, at)
        if step.operator == "output":
            at = {name for name in at & view.outputs if step.fits(view, name)}
        else:
            at = _outputs(view, (node for name in at for node in view.readers.get(name, ())), step)
    return bool(at)


def _outputs(view: _ModelView, nodes: Iterable[onnx.NodeProto], step: _Step) -> set[str]:
    fitting = (node for node in nodes if node.op_type == step.operator)
    return {name for node in fitting for name in node.output if name and step.fits(view, name)}


def _reachable(view: _ModelView, names: set[str]) -> set[str]:
    seen = set(names)
    waiting = list(names)
    while waiting:
        for node in view.readers.get(waiting.pop(), ()):
            waiting.extend(name for name in node.output if name not in seen)
            seen.update(node.output)
    return seen


def _nearest(view: _ModelView, text: str) -> str:
    """How far the path can be followed, for the message."""
    steps = _parse_path(text)
    for length in range(len(steps) - 1, 0, -1):
        if _has_path(view, steps[:length]):
            return f" (found up to {steps[length - 1].operator}, step {length} of {len(steps)})"
    return " (not even its first step)"


def _metadata(node: onnx.NodeProto) -> dict[str, str]:
    return {entry.key.removeprefix(PREFIX): entry.value for entry in node.metadata_props}


def _metadata_problems(view: _ModelView, operator: str, entries: Mapping[str, str | re.Pattern[str]]) -> Iterator[str]:
    nodes = [node for node in view.nodes if operator in ("*", node.op_type)]
    if not nodes:
        yield f"no {operator} with metadata"
    for node in nodes:
        said = _metadata(node)
        for key, expected in entries.items():
            actual = said.get(key.removeprefix(PREFIX))
            if actual is None:
                yield f"{node.name} has no {key}"
            elif not _matches(actual, expected):
                yield f"{node.name}: {key} is {actual!r}, expected {_shown(expected)}"


def _matches(actual: str, expected: Any) -> bool:
    return bool(expected.search(actual)) if isinstance(expected, re.Pattern) else actual == expected


def _shown(expected: Any) -> str:
    return f"a match of {expected.pattern!r}" if isinstance(expected, re.Pattern) else repr(expected)
