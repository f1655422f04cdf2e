"""The shared check: an export is right when it is valid, runs, agrees with JAX and says where each node came from."""

from __future__ import annotations

import contextlib
import linecache
import os
import re
import sysconfig
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
import onnx
import onnxruntime

from jax2onnx import _core, to_onnx
from jax2onnx._compare.sessions import complex_as_pairs, run_session

# Relative and absolute tolerance by element type: a few units in the last place of what a chain of operations keeps.
TOLERANCE = {
    "float64": (1e-9, 1e-10),
    "float32": (2e-5, 2e-6),
    "float16": (4e-3, 4e-3),
    "bfloat16": (3e-2, 3e-2),
}
KEYS = ("pkg.jax2onnx.callsite", "pkg.jax2onnx.plugin", "pkg.jax2onnx.stacktrace", "pkg.jax2onnx.jax_traceback")
_SITE = re.compile(r"^[^\s:].*:\d+$")
_TRACE_LINE = re.compile(r"^(?P<path>.*):(?P<line>\d+) \((?P<function>.*)\)$")
_LIBRARIES = tuple({sysconfig.get_paths()[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")})


def check_export(
    fn: Callable[..., Any],
    args: Sequence[Any],
    *,
    specs: Sequence[Any] | None = None,
    more_args: Sequence[Sequence[Any]] = (),
    rtol: float | None = None,
    atol: float | None = None,
    x64: bool = False,
    opset: int = 23,
    runs: bool = True,
    reference: Callable[..., Any] | None = None,
    **options: Any,
) -> onnx.ModelProto:
    """Export ``fn`` with full provenance, check the model in every way, run it against JAX, and return it.

    ``specs`` are the inputs given to ``to_onnx`` (default: the arguments themselves); ``more_args`` are further
    arguments to run the same model on, for models with symbolic dimensions. ``runs=False`` skips the comparison, for
    types that ONNX Runtime cannot run. ``reference`` gives the expected results in place of ``fn``.
    """
    with jax.enable_x64(True) if x64 else contextlib.nullcontext():
        args = [np.asarray(value) for value in args]
        export = {"opset": opset, "enable_double_precision": x64, **options}
        inputs = args if specs is None else specs
        model = to_onnx(fn, inputs, stacktrace_metadata="full", **export)
        plain = to_onnx(fn, inputs, stacktrace_metadata="off", **export)
    check_model(model, plain)
    if runs:
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        for values in (args, *more_args):
            try:
                compare(reference or fn, session, values, rtol, atol, x64)
            except AssertionError as error:
                error.add_note(described(model, str(error)))
                raise
    return model


def rows(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    """Small numbers of both signs, the same each time; for unsigned types and bool what they make of them."""
    values = np.arange(int(np.prod(shape)), dtype=np.float64).reshape(shape)
    values = (values * 7 % 11 - 5) / 4
    if np.dtype(dtype).kind in "iub":
        return np.abs(np.round(values * 4)).astype(dtype)
    return values.astype(dtype)


def described(model: onnx.ModelProto, message: str) -> str:
    """For a failing comparison: the line that the first output that differs came from, and the graph as text."""
    found = re.search(r"output (\d+)", message)
    name = model.graph.output[int(found[1]) if found else 0].name
    made = [node for node in model.graph.node if name in node.output]
    line = metadata(made[0]).get(KEYS[0], "?") if made else "?"
    plain = stripped(model)
    for tensor in plain.graph.initializer:
        del tensor.metadata_props[:]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.onnx")
        onnx.save(plain, path)
        _, text, _ = _core.tool_output(["j2o", "text", path])
    return f"the first output that differs is {name}, made by {line}\n{text.decode()}"


def first_difference(got: np.ndarray, want: np.ndarray, close: np.ndarray) -> str:
    """The place and the numbers of the first element that is not close."""
    place = tuple(int(index) for index in np.argwhere(~close)[0])
    return f"first at {list(place)}: {got[place]!r}, JAX has {want[place]!r}"


def check_model(model: onnx.ModelProto, plain: onnx.ModelProto | None = None) -> None:
    """Valid by the standard, provenance on every node, and the same graph as without provenance."""
    onnx.checker.check_model(model, full_check=True)
    check_provenance(model)
    if plain is not None:
        assert stripped(model).SerializeToString() == plain.SerializeToString(), "provenance changed the graph"


def compare(
    fn: Callable[..., Any],
    session: onnxruntime.InferenceSession,
    args: Sequence[Any],
    rtol: float | None = None,
    atol: float | None = None,
    x64: bool = False,
) -> None:
    """Run both and compare all outputs: shapes, types, and numbers (integers exactly)."""
    with jax.enable_x64(True) if x64 else contextlib.nullcontext():
        args = [jax.numpy.asarray(value) for value in args]
        expected = [np.asarray(jax.numpy.asarray(leaf)) for leaf in jax.tree.leaves(fn(*args))]
        args = [np.asarray(value) for value in args]
    names = [value.name for value in session.get_inputs()]
    actual = run_session(session, dict(zip(names, map(complex_as_pairs, args), strict=True)))
    expected = [complex_as_pairs(array) for array in expected]
    assert len(actual) == len(expected)
    for index, (want, got) in enumerate(zip(expected, actual, strict=True)):
        assert got.shape == want.shape, f"output {index}: shape {got.shape}, JAX has {want.shape}"
        assert got.dtype == want.dtype, f"output {index}: type {got.dtype}, JAX has {want.dtype}"
        if want.dtype.name in TOLERANCE:
            default = TOLERANCE[want.dtype.name]
            relative, absolute = default[0] if rtol is None else rtol, default[1] if atol is None else atol
            with np.errstate(invalid="ignore"):
                close = np.isclose(
                    got.astype(np.float64), want.astype(np.float64), rtol=relative, atol=absolute, equal_nan=True
                )
        else:
            close = np.asarray((got == want) | ((got != got) & (want != want)))
        if not np.all(close):
            where = first_difference(got, want, close)
            raise AssertionError(f"output {index}: {np.sum(~close)} of {close.size} elements differ, {where}")


def all_nodes(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """Every node: of the graph, of subgraphs, of functions."""
    yield from _nodes(model.graph.node)
    for function in model.functions:
        yield from _nodes(function.node)


def _nodes(nodes: Sequence[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    for node in nodes:
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _nodes(attribute.g.node)
            for graph in attribute.graphs:
                yield from _nodes(graph.node)


def all_initializers(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Every initializer: of the graph and of subgraphs."""
    yield from model.graph.initializer
    for node in all_nodes(model):
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from graph.initializer


def metadata(item: onnx.NodeProto | onnx.TensorProto | onnx.ModelProto) -> dict[str, str]:
    return {entry.key: entry.value for entry in item.metadata_props}


def expanded(model: onnx.ModelProto) -> onnx.ModelProto:
    """A compact model with the entries of a full one."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.onnx")
        onnx.save(model, path)
        code, _, errors = _core.tool_output(["j2o", "expand", path, "-o", path, "--no-sync"])
        assert code == 0, errors.decode()
        return onnx.load(path)


def stripped(model: onnx.ModelProto) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for item in (copy, *all_nodes(copy), *all_initializers(copy)):
        del item.metadata_props[:]
    opset = next(item.version for item in copy.opset_import if not item.domain)
    copy.ir_version = 8 if opset <= 18 else 9 if opset <= 20 else copy.ir_version  # raised for what went
    return copy


def op_types(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in all_nodes(model)]


def check_provenance(model: onnx.ModelProto) -> None:
    """Every node says which line of the user's it came from and which line of ours made it."""
    for node in all_nodes(model):
        found = metadata(node)
        label = f"{node.op_type} {node.name}"
        for key in KEYS:
            assert found.get(key), f"{label} lacks {key}"
        assert _SITE.match(found[KEYS[0]]), f"{label}: callsite {found[KEYS[0]]!r}"
        assert _SITE.match(found[KEYS[1]]), f"{label}: plugin {found[KEYS[1]]!r}"
        expected = expected_callsites(found[KEYS[3]])
        assert not expected or found[KEYS[0]] in expected, f"{label}: callsite {found[KEYS[0]]!r} is not the user's"
        last = found[KEYS[2]].splitlines()[-1]
        assert last.endswith(" in " + found[KEYS[1]].rsplit(":", 1)[0]), f"{label}: stacktrace ends in {last!r}"
        _check_our_line(last, found[KEYS[1]])


def expected_callsites(traceback: str) -> set[str]:
    """The user's frame of a joined trace, found here anew: the innermost outside libraries. Where all is a library's,
    any frame outside JAX: which of them is the module's, the tests of modules know.

    None when all frames are JAX's: a function of JAX's own was exported, and its definition is what can be named.
    """
    frames = [_TRACE_LINE.match(line) for line in traceback.split("\n\n")[0].splitlines()]
    assert all(frames), traceback
    outside = [frame for frame in frames if not _is_jax(frame["path"])]
    user = [frame for frame in outside if not frame["path"].startswith((*_LIBRARIES, "<frozen"))]
    return {f"{frame['function']}:{frame['line']}" for frame in user[:1] or outside}


_OURS = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "jax2onnx")
_JAX = tuple(os.path.dirname(os.path.abspath(module.__file__)) + os.sep for module in (jax, __import__("jaxlib")))


def _is_jax(path: str) -> bool:
    return path.startswith((*_JAX, _OURS + os.sep))


_FORMULA = "ADD|SUB|MUL|DIV|NEG|ABS|SQRT|EQUAL|LESS|WHERE"  # short names that complex_functions.c has for EMIT
_MAKES_NODES = re.compile(rf"EMIT|emit_|PLUGIN|lower_call|ORIGIN|EMITTER|graph_node|\.emit\(|\b({_FORMULA})\(")


def _check_our_line(frame: str, plugin: str) -> None:
    """The plugin's line is in our C source, or the user's plugin, and stands in code that can make a node."""
    path, line = re.match(r"^(.*):(\d+) in ", frame).groups()
    assert plugin.endswith(":" + line)
    source = os.path.join(os.path.dirname(_OURS), path)
    if os.path.exists(source):
        text = linecache.getline(source, int(line))
        assert _MAKES_NODES.search(text), f"{frame}: {text!r}"
