"""``expect_graph`` as plugins and tests for the Python jax2onnx call it: patterns first, the model later.

    check = expect_graph(["Gemm:Bx256 -> Relu:Bx256"], must_absent=["Not"])
    assert check(model)

Operators that only pass a value on may occur between two operators of a pattern. ``jax2onnx.testing`` has this
package's own form, which lists every difference.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from jax2onnx.testing import graph_text

__all__ = ["expect_graph"]

_PASSED_OVER = {"Reshape", "Identity", "Cast", "CastLike", "Squeeze", "Unsqueeze", "Flatten", "Shape", "Gather"}
_PASSED_OVER |= {"Concat", "Add", "Where"}
_OPTIONS = frozenset(("attrs", "counts", "graph", "inputs", "must_absent", "symbols"))
_NUMBERED = re.compile(r"_\d+$")


def expect_graph(
    specs: Sequence[Any],
    *,
    mode: str = "all",
    must_absent: Iterable[str] = (),
    no_unused_inputs: bool = False,
    no_unused_function_inputs: bool = False,
    search_functions: bool = False,
    symbols: Mapping[str, int | None] | None = None,
    explain_on_fail: bool = True,
) -> Callable[[Any], bool]:
    """Return a function that tells whether a model is as described, and prints the graph if it is not.

    Each of ``specs`` is a path such as ``"Transpose -> Conv:Bx8x28x28"``, or a pair of that and a dict of ``attrs``,
    ``counts``, ``graph``, ``inputs``, ``must_absent`` and ``symbols``, or such a dict with the key ``path``.
    """
    if mode not in ("all", "any"):
        raise ValueError(f"mode must be 'all' or 'any'; got {mode!r}")
    wanted = [_spec(spec) for spec in specs]
    absent = list(must_absent)

    def check(model: Any) -> bool:
        proto = model if isinstance(model, onnx.ModelProto) else _proto_of(model)
        graphs = [_View(proto.graph, "top", proto.graph.initializer)]
        if search_functions:
            graphs += [_View(function, f"{function.domain}:{function.name}", ()) for function in proto.functions]
        shared = dict(symbols or {})
        found = [_fits(graphs, path, options, shared) for path, options in wanted]
        fits = (all(found) if mode == "all" else any(found)) and not any(view.has(absent) for view in graphs)
        checked = graphs if no_unused_function_inputs else graphs[:1] if no_unused_inputs else []
        fits = fits and not any(view.unused_inputs() for view in checked)
        if not fits and explain_on_fail:
            print(f"the graph is not as expected: {list(specs)}\n{graph_text(proto)}")
        return fits

    return check


def _proto_of(model: Any) -> onnx.ModelProto:
    import onnx_ir

    if isinstance(model, onnx_ir.Model):
        return onnx_ir.to_proto(model)
    raise TypeError(f"expected a ModelProto or an onnx_ir.Model; got {type(model).__name__}")


def _spec(spec: Any) -> tuple[str, dict[str, Any]]:
    if isinstance(spec, str):
        return spec, {}
    options = dict(spec) if isinstance(spec, Mapping) else dict(spec[1])
    path = options.pop("path", None) if isinstance(spec, Mapping) else spec[0]
    unknown = set(options) - _OPTIONS
    if not isinstance(path, str) or unknown:
        raise ValueError(f"{spec!r} is not a path with {', '.join(sorted(_OPTIONS))}")
    return path, options


class _View:
    """The nodes of one graph or function, the readers of each value, and the known shapes."""

    def __init__(self, graph: Any, name: str, initializers: Iterable[onnx.TensorProto]) -> None:
        self.name, self.nodes, self.graph = name, list(graph.node), graph
        self.constants = {tensor.name: tensor for tensor in initializers}
        self.readers: dict[str, list[onnx.NodeProto]] = {}
        for node in self.nodes:
            for value in node.input:
                self.readers.setdefault(value, []).append(node)
        inputs = [] if isinstance(graph, onnx.FunctionProto) else [*graph.input, *graph.output]
        self.shapes = {info.name: info.type.tensor_type.shape.dim for info in [*inputs, *graph.value_info]}

    def is_chosen(self, selector: str | None) -> bool:
        selected = (selector or self.name).removeprefix("fn:")
        known = {self.name, self.name.rpartition(":")[2], self.name.replace(":", ".")}
        return selected in known or _NUMBERED.sub("", selected) in known

    def has(self, operators: Iterable[str]) -> bool:
        return bool({node.op_type for node in self.nodes} & set(operators))

    def unused_inputs(self) -> bool:
        values = [value if isinstance(value, str) else value.name for value in self.graph.input]
        outputs = {value if isinstance(value, str) else value.name for value in self.graph.output}
        return any(value not in self.readers and value not in outputs for value in values)


def _fits(graphs: Sequence[_View], path: str, options: Mapping[str, Any], shared: dict[str, int | None]) -> bool:
    steps = [step.strip().partition(":")[::2] for step in path.split("->")]
    symbols = shared if "symbols" not in options else {**shared, **options["symbols"]}
    for view in (view for view in graphs if view.is_chosen(options.get("graph"))):
        counts = Counter(node.op_type for node in view.nodes)
        if any(counts[operator] != count for operator, count in options.get("counts", {}).items()):
            continue
        if view.has(options.get("must_absent", ())):
            continue
        if any(_follow(view, node, steps, options, symbols) for node in view.nodes):
            return True
    return False


def _follow(view: _View, node: Any, steps: Any, options: Mapping[str, Any], symbols: dict[str, int | None]) -> bool:
    (operator, shape), rest = steps[0], steps[1:]
    known = dict(symbols)
    if not _is_step(view, node, operator, shape, options, known):
        return False
    if not rest:
        symbols.update(known)
        return True
    waiting, seen = list(node.output), set()
    while waiting:
        for reader in view.readers.get(waiting.pop(), ()):
            if id(reader) in seen:
                continue
            seen.add(id(reader))
            if _follow(view, reader, rest, options, known):
                symbols.update(known)
                return True
            if reader.op_type in _PASSED_OVER:
                waiting.extend(reader.output)
    return False


def _is_step(
    view: _View, node: Any, operator: str, shape: str, options: Mapping[str, Any], symbols: dict[str, int | None]
) -> bool:
    if node.op_type not in (operator, _NUMBERED.sub("", operator)):
        return False
    attributes = {entry.name: onnx.helper.get_attribute_value(entry) for entry in node.attribute}
    for name, value in options.get("attrs", {}).get(operator, {}).items():
        actual = attributes.get(name)
        if (actual.decode() if isinstance(actual, bytes) else actual) != value:
            return False
    if not all(_is_input(view, node, index, wanted) for index, wanted in options.get("inputs", {}).items()):
        return False
    return not shape or _is_shape(view.shapes.get(node.output[0]), shape, symbols)


def _is_input(view: _View, node: Any, index: int, wanted: Mapping[str, Any]) -> bool:
    name = node.input[index] if index < len(node.input) else ""
    if "absent" in wanted:
        return bool(wanted["absent"]) == (not name)
    if "initializer_name" in wanted:
        return name in view.constants and name == wanted["initializer_name"]
    if name not in view.constants:
        return False
    value = onnx.numpy_helper.to_array(view.constants[name])
    expected = wanted["const_bool"] if "const_bool" in wanted else wanted["const"]
    return value.size == 1 and bool(np.isclose(float(value.reshape(())), float(expected)))


def _is_shape(dims: Any, text: str, symbols: dict[str, int | None]) -> bool:
    wanted = [] if text == "[]" else text.strip("[]").replace(",", "x").split("x")
    if dims is None or len(dims) != len(wanted):
        return False
    return all(_is_size(dim, size.strip(), symbols) for dim, size in zip(dims, wanted, strict=True))


def _is_size(dim: Any, size: str, symbols: dict[str, int | None]) -> bool:
    if size in ("?", dim.dim_param) or not size:
        return True
    if size.isdigit():
        return dim.HasField("dim_value") and dim.dim_value == int(size)
    if size not in symbols or not dim.HasField("dim_value"):
        return False
    if symbols[size] is None:
        symbols[size] = dim.dim_value
    return symbols[size] == dim.dim_value
