"""``Verifier``: finds the first place where a model and the JAX function it came from differ.

Three things are compared: the file and a fresh export of the function (the same nodes, if nothing was changed), both in
ONNX Runtime with every value visible, and JAX equation by equation. A node of the file that computes something other
than the node of the fresh export is at fault. If both agree with each other but not with JAX, the first equation whose
value no node has is at fault. Nodes and equations belong together if they have the same joined trace.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
import onnx

from jax2onnx._compare.difference import EXACT, Tolerance, describe, first_wrong, node_changes, statistics
from jax2onnx._compare.equations import Equation, run_for_results, run_program
from jax2onnx._compare.equations import steps as equation_steps
from jax2onnx._compare.feeds import runtime
from jax2onnx._compare.observe import Observer, Scope
from jax2onnx._compare.sessions import complex_as_pairs, run_session
from jax2onnx._door.export import to_onnx
from jax2onnx._door.inputs import NamedShape
from jax2onnx._door.origins import Frame, ModelOrigins, NodeOrigin, origins_of
from jax2onnx._door.progress import stage
from jax2onnx._door.tracing import trace

FRESH, JAX = "a fresh export in ONNX Runtime", "JAX"
_MOST_CHANGED = 0.1  # share of the nodes that may differ from a fresh export; beyond it, the program is another one


@dataclass
class Verdict:
    """Whether the model computes what the function computes and, if not, where they differ."""

    agrees: bool
    message: str
    node: NodeOrigin | None = None  # the node at fault
    place: Frame | None = None
    steps: list[tuple[str, int]] = field(default_factory=list)  # the loops and their steps, outermost first
    changes: list[str] = field(default_factory=list)
    actual: np.ndarray | None = None
    expected: np.ndarray | None = None
    source: str = JAX  # where `expected` comes from

    def as_json(self) -> dict[str, Any]:
        document: dict[str, Any] = {"agrees": self.agrees, "message": self.message}
        if self.agrees:
            return document
        document |= self.node.as_json() if self.node else {"node": None, "place": None, "trace": []}
        document["place"] = self.place.as_json() if self.place else None
        document["steps"] = [{"loop": name, "step": step} for name, step in self.steps]
        document["changes"] = self.changes
        for name, array in (("model", self.actual), ("expected", self.expected)):
            document[name] = None if array is None else statistics(array)
        return document | {"expected_from": self.source}


@dataclass
class _Parting:
    node: onnx.NodeProto
    steps: list[tuple[str, int]]
    actual: np.ndarray | None
    expected: np.ndarray | None
    scopes: tuple[Scope, Scope]
    source: str = FRESH
    place: Frame | None = None


def _opset(model: onnx.ModelProto) -> int:
    return next((item.version for item in model.opset_import if item.domain in ("", "ai.onnx")), 0)


class Verifier:
    """A function and the inputs to run it on; ``check`` accepts any number of its models."""

    def __init__(
        self,
        fn: Callable[..., Any],
        inputs: Sequence[np.ndarray],
        params: Mapping[str, np.ndarray] | None = None,
        *,
        rtol: float = 1e-4,
        atol: float = 1e-5,
        x64: bool = False,
        export: bool = True,
        memory: int | None = None,
    ) -> None:
        self._fn, self._inputs, self._params = fn, list(inputs), dict(params or {})
        self._tolerance = Tolerance(rtol, atol)
        self._x64, self._export, self._memory = x64, export, memory
        self._references: dict[str, tuple[onnx.ModelProto, Scope] | None] = {}

    @functools.cached_property
    def _equations(self) -> tuple[list[Equation], list[np.ndarray]]:
        stage("running JAX equation by equation")
        equations, results = run_program(*self._program)
        return equations, [complex_as_pairs(np.asarray(result)) for result in results]

    @functools.cached_property
    def _results(self) -> list[np.ndarray]:
        if self._memory is None:
            return self._equations[1]
        stage("running JAX")
        return [complex_as_pairs(np.asarray(result)) for result in run_for_results(*self._program)]

    @functools.cached_property
    def _program(self) -> tuple[Any, list[Any]]:
        arguments = [jax.numpy.asarray(array) for array in self._inputs]
        params = {name: jax.numpy.asarray(array) for name, array in self._params.items()}
        closed, _, _ = trace(self._fn, arguments, params, self._params)
        return closed, jax.tree.leaves((arguments, params))

    def check(self, model: onnx.ModelProto, origins: ModelOrigins | None = None) -> Verdict:
        """Run the model and compare. Pass ``origins`` if they have been read already."""
        with jax.enable_x64(self._x64 or bool(jax.config.jax_enable_x64)):
            return self._check(model, origins)

    def _check(self, model: onnx.ModelProto, origins: ModelOrigins | None) -> Verdict:
        origins = origins or origins_of(model.SerializeToString())
        feeds = self._feeds(model)
        reference = self._reference(model)
        stage("running the model")
        try:
            scope = Observer(model, self._memory).run(feeds)
        except Exception as error:  # ONNX Runtime's exceptions have no common class
            return self._does_not_run(model, origins, str(error), reference)
        if reference is not None:
            parting = self._against_reference(model, scope, *reference)
            if parting is not None:
                return self._verdict(parting, origins)
        verdict = self._against_jax(model, scope, origins)
        return self._optimised(model, feeds) or verdict if verdict.agrees else verdict

    def _feeds(self, model: onnx.ModelProto) -> dict[str, np.ndarray]:
        arrays = map(complex_as_pairs, (*self._inputs, *self._params.values()))
        return dict(zip(_input_names(model), arrays, strict=True))

    # ---- comparison with a fresh export ----

    def _reference(self, model: onnx.ModelProto) -> tuple[onnx.ModelProto, Scope] | None:
        """A fresh export like that of the file, and its values; None if there is none or its structure differs."""
        if not self._export:
            return None
        key = _interface(model)
        if key not in self._references:
            stage("exporting the function again")
            self._references[key] = self._exported(model)
        reference = self._references[key]
        if reference is None:
            return None
        file_nodes, fresh_nodes = (_shapes_of(side.graph) for side in (model, reference[0]))
        changed = len(fresh_nodes ^ file_nodes) // 2
        return reference if changed <= max(1, _MOST_CHANGED * len(fresh_nodes)) else None

    def _exported(self, model: onnx.ModelProto) -> tuple[onnx.ModelProto, Scope] | None:
        names = _input_names(model)
        values = [value for value in model.graph.input if value.name in set(names)]
        arrays = (*self._inputs, *self._params.values())
        specs = [_spec(value, array.dtype.kind == "c") for value, array in zip(values, arrays, strict=True)]
        positional = len(self._inputs)
        export = functools.partial(
            to_onnx,
            self._fn,
            specs[:positional],
            dict(zip(self._params, specs[positional:], strict=True)),
            enable_double_precision=self._x64,
            input_names=names[:positional],
            output_names=[value.name for value in model.graph.output],
            stacktrace_metadata="full",
        )
        try:
            fresh = export()
            if _opset(fresh) != _opset(model):
                fresh = export(opset=_opset(model))
            return fresh, Observer(fresh, self._memory).run(self._feeds(fresh))
        except Exception:  # the function can no longer be exported like this, or run: compare with JAX only
            return None

    def _against_reference(
        self, model: onnx.ModelProto, scope: Scope, fresh: onnx.ModelProto, expected: Scope
    ) -> _Parting | None:
        """The first node whose value is not exactly that of the fresh export, if any value exceeds the tolerance."""
        pairs = _pairs(scope, expected)
        if all(self._tolerance.agrees(actual, wanted) for *_, actual, wanted in pairs):
            return None
        return _first_parting(Observer(model), Observer(fresh), scope, expected)

    def _does_not_run(
        self,
        model: onnx.ModelProto,
        origins: ModelOrigins,
        message: str,
        reference: tuple[onnx.ModelProto, Scope] | None,
    ) -> Verdict:
        from jax2onnx._compare.messages import find_nodes

        verdict = Verdict(False, f"ONNX Runtime cannot run the model: {message.strip()}")
        changed = _first_change(model, reference[0]) if reference else None
        if changed:
            name, verdict.changes = changed
            verdict.node = origins.by_name.get(name)
        else:
            found = find_nodes(message, origins)
            verdict.node = found[0].node if found else None
        verdict.place = verdict.node.place if verdict.node else None
        return verdict

    # ---- comparison with JAX ----

    def _against_jax(self, model: onnx.ModelProto, scope: Scope, origins: ModelOrigins) -> Verdict:
        results = self._results
        outputs = [(value.name, scope.get(value.name)) for value in model.graph.output]
        if len(outputs) != len(results):
            return Verdict(False, f"the model has {len(outputs)} outputs, the function {len(results)}")
        wrong = [pair for pair in zip(outputs, results, strict=True) if not self._agrees(pair[0][1], pair[1])]
        if not wrong:
            return Verdict(True, "all outputs of the model agree with JAX")
        stage("comparing equations with nodes")
        equations = self._equations[0]
        matcher = _Matcher(Observer(model), origins, self._tolerance)
        parting = matcher.first(equations, scope) or matcher.first(equations, scope, any_shape=True)
        if parting is not None:
            return self._verdict(parting, origins)
        (name, actual), expected = wrong[0]
        node = origins.producers.get(name)
        message = f"output {name} differs from JAX, but every equation that can be compared agrees"
        return Verdict(False, message, node, node.place if node else None, actual=actual, expected=expected)

    def _optimised(self, model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> Verdict | None:
        """Look for a fault of ONNX Runtime's optimisations, which were off until here."""
        settings = runtime().SessionOptions()
        settings.log_severity_level = 4
        try:
            session = runtime().InferenceSession(
                model.SerializeToString(), settings, providers=["CPUExecutionProvider"]
            )
            outputs = run_session(session, feeds)
        except Exception as error:  # ONNX Runtime's exceptions have no common class
            return Verdict(
                False, f"the model agrees node by node, but does not run with ONNX Runtime's optimisations: {error}"
            )
        for value, actual, expected in zip(model.graph.output, outputs, self._results, strict=True):
            if not self._tolerance.agrees(actual, expected):
                message = (
                    f"the model agrees node by node, but output {value.name} differs with ONNX Runtime's optimisations"
                )
                return Verdict(False, message, actual=actual, expected=expected)
        return None

    def _agrees(self, actual: np.ndarray | None, expected: np.ndarray) -> bool:
        return actual is not None and self._tolerance.agrees(actual, expected)

    def _verdict(self, parting: _Parting, origins: ModelOrigins) -> Verdict:
        node = origins.by_name.get(parting.node.name or next(iter(parting.node.output), ""))
        scope, fresh = parting.scopes
        changes = []
        if parting.source == FRESH:
            same = next((item for item in fresh.graph.node if item.name == parting.node.name), None)
            changes = node_changes(parting.node, same, scope.constants, fresh.constants) if same else []
        actual, expected, source = parting.actual, parting.expected, parting.source
        known = self._memory is None and not parting.steps and expected is not None
        if source == FRESH and known and self._jax_has(expected, node):
            source = JAX
        place = parting.place or (node.place if node else None)
        message = f"{parting.node.op_type} {parting.node.name} is the first node that differs from {source}"
        return Verdict(False, message, node, place, parting.steps, changes, actual, expected, source)

    def _jax_has(self, value: np.ndarray, node: NodeOrigin | None) -> bool:
        traces = {_key(trace) for trace in node.traces} if node else set()
        return any(
            self._tolerance.agrees(other, value)
            for equation in self._equations[0]
            if not traces or _key(equation.trace) in traces
            for whole in equation.values
            for other in _forms(whole)
        )


def _interface(model: onnx.ModelProto) -> str:
    values = [value.SerializeToString().hex() for value in (*model.graph.input, *model.graph.output)]
    return ",".join([*values, *(f"{item.domain}{item.version}" for item in model.opset_import)])


def _shapes_of(graph: onnx.GraphProto) -> set[tuple[str, ...]]:
    """Every node with its connections, including bodies."""
    shapes = set()
    for node in graph.node:
        shapes.add((node.name, node.op_type, *node.input, "->", *node.output))
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                shapes |= _shapes_of(attribute.g)
    return shapes


def _input_names(model: onnx.ModelProto) -> list[str]:
    constants = {tensor.name for tensor in model.graph.initializer}
    return [value.name for value in model.graph.input if value.name not in constants]


def _spec(value: onnx.ValueInfoProto, is_complex: bool) -> NamedShape:
    kind = value.type.tensor_type
    shape = tuple(dim.dim_param or dim.dim_value for dim in kind.shape.dim)
    dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
    if is_complex:
        return NamedShape(shape[:-1], str(np.result_type(dtype, np.complex64)))
    return NamedShape(shape, str(dtype))


def _forms(value: np.ndarray) -> list[np.ndarray]:
    """The forms in which a model may hold a value of JAX: for a complex value the pairs, or one part."""
    return [complex_as_pairs(value), value.real, value.imag] if value.dtype.kind == "c" else [value]


def _pairs(scope: Scope, expected: Scope) -> list[tuple[onnx.NodeProto, onnx.NodeProto, np.ndarray, np.ndarray]]:
    """The values of nodes with the same name, in the order of the fresh export."""
    ours = {node.name: node for node in scope.graph.node}
    pairs = []
    for fresh in expected.graph.node:
        node = ours.get(fresh.name)
        for left, right in zip(node.output if node else (), fresh.output, strict=False):
            if left in scope.values and right in expected.values:
                pairs.append((node, fresh, scope.values[left], expected.values[right]))
    return pairs


def _first_parting(observer: Observer, fresh_observer: Observer, scope: Scope, expected: Scope) -> _Parting | None:
    for node, fresh, actual, wanted in _pairs(scope, expected):
        if EXACT.agrees(actual, wanted):
            continue
        walks = zip(observer.steps(node, scope), fresh_observer.steps(fresh, expected), strict=False)
        for step, (inner, inner_expected) in enumerate(walks):
            parting = _first_parting(observer, fresh_observer, inner, inner_expected)
            if parting is not None:
                parting.steps.insert(0, (node.name, step))
                return parting
        return _Parting(node, [], actual, wanted, (scope, expected))
    return None


def _first_change(model: onnx.ModelProto, fresh: onnx.ModelProto) -> tuple[str, list[str]] | None:
    """The first node that differs from the node in a fresh export."""

    def walk(graph: onnx.GraphProto, other: onnx.GraphProto, left: dict, right: dict) -> tuple[str, list[str]] | None:
        left = left | {tensor.name: tensor for tensor in graph.initializer}
        right = right | {tensor.name: tensor for tensor in other.initializer}
        ours = {node.name: node for node in graph.node}
        for node in other.node:
            if node.name not in ours:
                continue
            changes = node_changes(ours[node.name], node, left, right)
            if changes:
                return node.name, changes
            bodies = [[item.g for item in side.attribute if item.g.node] for side in (ours[node.name], node)]
            for body, other_body in zip(*bodies, strict=False):
                if found := walk(body, other_body, left, right):
                    return found
        return None

    return walk(model.graph, fresh.graph, {}, {})


def _key(trace: Sequence[Frame]) -> tuple[tuple[str | None, int], ...]:
    return tuple((frame.file, frame.line) for frame in trace)


class _Matcher:
    """Finds the first equation whose value none of its nodes has."""

    def __init__(self, observer: Observer, origins: ModelOrigins, tolerance: Tolerance) -> None:
        self._observer, self._origins, self._tolerance = observer, origins, tolerance
        self._has_traces = any(node.traces for node in origins.nodes)

    def first(self, equations: list[Equation], scope: Scope, any_shape: bool = False) -> _Parting | None:
        """``any_shape``: also blame nodes whose value has another shape, like most nodes that prepare a result."""
        nodes = self._by_origin(scope)
        keys = [self._equation_key(equation) for equation in equations]
        last = {key: index for index, key in enumerate(keys)}
        for index, equation in enumerate(equations):
            if any_shape and index != last[keys[index]]:
                continue
            candidates = nodes.get(keys[index], [])
            for value in equation.values:
                parting = self._parting(equation, value, candidates, scope, any_shape)
                if parting is not None:
                    return self._inside(equation, candidates, scope, any_shape) or parting
        return None

    def _by_origin(self, scope: Scope) -> dict[Any, list[onnx.NodeProto]]:
        nodes: dict[Any, list[onnx.NodeProto]] = {}
        for node in scope.graph.node:
            origin = self._origins.by_name.get(node.name)
            if origin is None:
                continue
            # For a fused node, only the primary trace tells which equation's value it has.
            if self._has_traces:
                nodes.setdefault(_key(origin.trace), []).append(node)
            elif origin.place:
                nodes.setdefault((origin.place.function, origin.place.line), []).append(node)
        return nodes

    def _equation_key(self, equation: Equation) -> Any:
        if self._has_traces:
            return _key(equation.trace)
        return (equation.place.function, equation.place.line) if equation.place else None

    def _parting(
        self, equation: Equation, value: np.ndarray, candidates: list[onnx.NodeProto], scope: Scope, any_shape: bool
    ) -> _Parting | None:
        if value.dtype.kind == "c":
            return self._parting_of_complex(equation, value, candidates, scope, any_shape)
        alike = [
            (node, scope.values[name])
            for node in candidates
            for name in node.output
            if name in scope.values and (any_shape or _alike(scope.values[name], value))
        ]
        if not alike or any(self._tolerance.agrees(array, value) for _, array in alike):
            return None
        # A pass may have moved the work to another node, or changed the shape on the way.
        flat = value.reshape(-1)
        for array in scope.values.values():
            if _alike(array, value, sizes_only=True) and self._tolerance.agrees(array.reshape(-1), flat):
                return None
        node, actual = alike[-1]
        return _Parting(node, [], actual, value, (scope, scope), JAX, equation.place)

    def _parting_of_complex(
        self, equation: Equation, value: np.ndarray, candidates: list[onnx.NodeProto], scope: Scope, any_shape: bool
    ) -> _Parting | None:
        """The model has the pairs, or both parts; a part whose elements are all equal may not be an array there."""
        pairs, *parts = _forms(value)
        if any(self._tolerance.agrees(array, pairs) for array in scope.values.values()):
            return None
        varied = [part for part in parts if part.size and (part != part.flat[0]).any()]
        found = (self._parting(equation, part, candidates, scope, any_shape) for part in varied)
        return next(filter(None, found), None)

    def _inside(
        self, equation: Equation, candidates: list[onnx.NodeProto], scope: Scope, any_shape: bool
    ) -> _Parting | None:
        for node in candidates:
            walks = zip(self._observer.steps(node, scope), equation_steps(equation), strict=False)
            for step, (inner, equations) in enumerate(walks):
                parting = self.first(equations, inner) or (any_shape and self.first(equations, inner, True)) or None
                if parting is not None:
                    parting.steps.insert(0, (node.name, step))
                    return parting
        return None


def _alike(array: np.ndarray, value: np.ndarray, sizes_only: bool = False) -> bool:
    same = array.size == value.size if sizes_only else array.shape == value.shape
    return same and array.dtype == value.dtype


def report_lines(verdict: Verdict, tolerance: Tolerance) -> list[str]:
    """The numbers of a verdict, one per line."""
    lines = [f"in step {step} of {loop}, counted from 0" for loop, step in verdict.steps]
    lines += verdict.changes
    if verdict.actual is not None and verdict.expected is not None:
        lines.append(first_wrong(verdict.actual, verdict.expected, tolerance))
        lines.append(f"model:    {describe(verdict.actual)}")
        lines.append(f"expected: {describe(verdict.expected)}  ({verdict.source})")
    return lines
