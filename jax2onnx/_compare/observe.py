"""A model in ONNX Runtime with every value visible: those of the graph in one run, those of bodies step by step.

ONNX Runtime's own optimisations are off: each node is computed as in the file.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from jax2onnx._compare.feeds import runtime
from jax2onnx._compare.sessions import run_session


@dataclass
class Scope:
    """The values that the nodes of a graph can read, in one execution of it."""

    graph: onnx.GraphProto
    constants: dict[str, onnx.TensorProto] = field(default_factory=dict)
    values: MutableMapping[str, np.ndarray] = field(default_factory=dict)

    def get(self, name: str) -> np.ndarray | None:
        if name in self.values:
            return self.values[name]
        return numpy_helper.to_array(self.constants[name]) if name in self.constants else None


class Observer:
    """``memory``: bytes that the values of the graph may take; if they need more, they are computed in parts."""

    def __init__(self, model: onnx.ModelProto, memory: int | None = None) -> None:
        self._model, self._memory = model, memory

    def run(self, feeds: Mapping[str, np.ndarray]) -> Scope:
        graph = self._model.graph
        scope = Scope(graph, {tensor.name: tensor for tensor in graph.initializer})
        if self._memory is not None:
            scope.values = _Windows(self._model, feeds, self._memory)
            for value in graph.output:  # a model that does not run fails here
                scope.get(value.name)
            return scope
        return self._prepare(graph, Scope(graph))(feeds, scope)

    def steps(self, node: onnx.NodeProto, outer: Scope) -> Iterator[Scope]:
        """Each execution of a node's body, in order; nothing for a node without a body of a known kind."""
        walk = {"Scan": self._scan, "Loop": self._loop, "If": self._branch}.get(node.op_type)
        if walk and node.domain in ("", "ai.onnx"):
            attributes = {item.name: helper.get_attribute_value(item) for item in node.attribute}
            yield from walk(node, attributes, outer)

    def _scan(self, node: onnx.NodeProto, attributes: dict[str, Any], outer: Scope) -> Iterator[Scope]:
        body = attributes["body"]
        scanned = attributes["num_scan_inputs"]
        axes = attributes.get("scan_input_axes") or [0] * scanned
        directions = attributes.get("scan_input_directions") or [0] * scanned
        inputs = [outer.get(name) for name in node.input]
        split = len(inputs) - scanned
        states = inputs[:split]
        rows = [
            np.flip(np.moveaxis(array, axis, 0), 0) if backwards else np.moveaxis(array, axis, 0)
            for array, axis, backwards in zip(inputs[split:], axes, directions, strict=True)
        ]
        names = [value.name for value in body.input]
        execute = self._prepare(body, outer)
        for index in range(len(rows[0]) if rows else 0):
            feeds = dict(zip(names, [*states, *(np.asarray(array[index]) for array in rows)], strict=True))
            scope = execute(feeds, _inner(body, outer))
            yield scope
            states = [scope.get(value.name) for value in body.output[:split]]

    def _loop(self, node: onnx.NodeProto, attributes: dict[str, Any], outer: Scope) -> Iterator[Scope]:
        body = attributes["body"]
        inputs = [outer.get(name) if name else None for name in node.input]
        most = np.iinfo(np.int64).max if inputs[0] is None else int(inputs[0].reshape(()))
        condition = np.array(True) if len(inputs) < 2 or inputs[1] is None else inputs[1]
        states = inputs[2:]
        names = [value.name for value in body.input]
        execute = self._prepare(body, outer)
        index = 0
        while index < most and bool(condition.reshape(())):
            feeds = dict(zip(names, [np.array(index, np.int64), condition, *states], strict=True))
            scope = execute(feeds, _inner(body, outer))
            yield scope
            condition, *states = (scope.get(value.name) for value in body.output[: len(states) + 1])
            index += 1

    def _branch(self, node: onnx.NodeProto, attributes: dict[str, Any], outer: Scope) -> Iterator[Scope]:
        chosen = attributes["then_branch" if bool(outer.get(node.input[0]).reshape(())) else "else_branch"]
        yield self._prepare(chosen, outer)({}, _inner(chosen, outer))

    def _prepare(self, graph: onnx.GraphProto, outer: Scope) -> _Prepared:
        return _Prepared(self._model, graph, outer)


class _Windows(MutableMapping[str, np.ndarray]):
    """The values of a graph, one range of nodes at a time: read in order, each is computed once."""

    def __init__(self, model: onnx.ModelProto, feeds: Mapping[str, np.ndarray], memory: int) -> None:
        self._model, self._feeds, self._memory = model, dict(feeds), memory
        self._index = {name: at for at, node in enumerate(model.graph.node) for name in node.output if name}
        self._held: dict[str, np.ndarray] = {}
        self._length = 1  # nodes in a range; the memory of the last range decides the length of the next

    def __getitem__(self, name: str) -> np.ndarray:
        if name in self._feeds:
            return self._feeds[name]
        if name not in self._held:
            self._compute(self._index[name])
        return self._held[name]

    def _compute(self, first: int) -> None:
        graph = self._model.graph
        nodes = graph.node[first : first + self._length]
        wanted = [name for node in nodes for name in node.output if name]
        # Only the nodes that these need are run.
        needed, kept = set(wanted), []
        for node in reversed(graph.node[: first + self._length]):
            if needed & set(node.output):
                kept.append(node)
                needed |= set(_reads(node))
        alone = onnx.GraphProto(name=graph.name, node=kept[::-1], input=graph.input)
        alone.initializer.extend(tensor for tensor in graph.initializer if tensor.name in needed)
        execute = _Prepared(self._model, alone, Scope(alone), wanted)
        values = execute({name: self._feeds[name] for name in self._feeds}, Scope(alone)).values
        self._held = {name: values[name] for name in wanted}
        taken = sum(array.nbytes for array in self._held.values()) or 1
        self._length = max(1, min(2 * self._length, self._length * self._memory // taken))

    def __setitem__(self, name: str, value: np.ndarray) -> None:
        self._feeds[name] = value

    def __delitem__(self, name: str) -> None:
        del self._feeds[name]

    def __contains__(self, name: object) -> bool:
        return name in self._feeds or name in self._index

    def __iter__(self) -> Iterator[str]:
        return iter([*self._feeds, *self._index])

    def __len__(self) -> int:
        return len(self._feeds) + len(self._index)


class _Prepared:
    """A graph on its own, compiled once; values that it reads from outside come from the scope."""

    def __init__(
        self, model: onnx.ModelProto, graph: onnx.GraphProto, outer: Scope, outputs: list[str] | None = None
    ) -> None:
        made = {name for node in graph.node for name in node.output} | {tensor.name for tensor in graph.initializer}
        captured = sorted(_read_by(graph) - made - {value.name for value in graph.input} - {""})
        self._fixed = {name: outer.values[name] for name in captured if name in outer.values}
        self._outputs = outputs or [name for node in graph.node for name in node.output if name]
        alone = onnx.GraphProto(name=graph.name or "graph", node=graph.node, initializer=graph.initializer)
        alone.initializer.extend(outer.constants[name] for name in captured if name not in self._fixed)
        alone.output.extend(onnx.ValueInfoProto(name=name) for name in self._outputs)
        self._model = onnx.ModelProto(ir_version=model.ir_version, opset_import=model.opset_import, graph=alone)
        self._model.functions.extend(model.functions)
        self._session: Any = None

    def __call__(self, feeds: Mapping[str, np.ndarray], scope: Scope) -> Scope:
        scope.values.update(feeds)
        if self._outputs:
            everything = {**self._fixed, **feeds}
            if self._session is None:
                self._session = self._compiled(everything)
            results = run_session(self._session, everything)
            scope.values.update(zip(self._outputs, results, strict=True))
        return scope

    def _compiled(self, feeds: Mapping[str, np.ndarray]) -> Any:
        for name, array in feeds.items():
            kind = helper.np_dtype_to_tensor_dtype(array.dtype)
            self._model.graph.input.append(helper.make_tensor_value_info(name, kind, array.shape))
        onnxruntime = runtime()
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.intra_op_num_threads = 1  # sums in the same order every time
        options.log_severity_level = 4  # the exceptions repeat it
        return onnxruntime.InferenceSession(
            self._model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )


def _inner(body: onnx.GraphProto, outer: Scope) -> Scope:
    own = {tensor.name: tensor for tensor in body.initializer}
    return Scope(body, {**outer.constants, **own}, ChainMap({}, outer.values))


def _read_by(graph: onnx.GraphProto) -> set[str]:
    """The names that a graph's nodes and their bodies read, including those that they define themselves."""
    names = {value.name for value in graph.output}
    for node in graph.node:
        names.update(_reads(node))
    return names


def _reads(node: onnx.NodeProto) -> set[str]:
    names = set(node.input)
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            body = attribute.g
            own = {name for inner in body.node for name in inner.output}
            own |= {value.name for value in (*body.input, *body.initializer)}
            names |= _read_by(body) - own
    return names
