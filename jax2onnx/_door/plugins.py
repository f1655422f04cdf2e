"""``plugin``: the user's own primitives, lowered by a Python function.

The function is called once for each equation of its primitive and calls ``ctx.emit`` for each node that takes its
place. What it emits is recorded here and read by the core; no ONNX object is made in Python.
"""

from __future__ import annotations

import linecache
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import jax.numpy as jnp
import numpy as np

from jax2onnx import _core
from jax2onnx._door.jax_types import is_users_file, jax_folders

Function = TypeVar("Function", bound=Callable[..., Any])

_PACKAGE = jax_folders()[-1] + os.sep
_registered: dict[str, Callable[..., Any]] = {}


class PluginError(RuntimeError):
    """A plugin failed; the message says which one, on which line of the exported program, and why."""


@dataclass(frozen=True, eq=False)
class Value:
    """A value of the graph: an input of the equation, or a result of ``ctx.emit`` and similar methods."""

    dtype: Any
    shape: tuple[Any, ...]
    number: int
    owner: Any  # the context it belongs to
    constant: np.ndarray | None = None  # its elements, if they are known during the export and take at most 64 KiB


@dataclass(frozen=True)
class Type:
    """The type of an output."""

    dtype: Any
    shape: tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class Equation:
    """What a plugin lowers: the name of the primitive, its inputs and parameters, and the types of its outputs."""

    primitive: str
    inputs: list[Value]
    outputs: list[Type]
    params: Mapping[str, Any]
    source: Any = None  # JAX's own equation


class LoweringContext:
    """Where a plugin emits its nodes."""

    def __init__(self, opset: int) -> None:
        self.opset = opset
        self.steps: list[tuple[Any, ...]] = []
        self._count = 0
        self._outputs: list[Type] = []

    def take(self, primitive: str, equation: Any, constants: list[bytes | None]) -> Equation:
        """JAX's equation as the plugin sees it."""
        avals = [atom.aval for atom in equation.invars]
        inputs = [
            self._new(aval.dtype, tuple(aval.shape), _known(aval, content))
            for aval, content in zip(avals, constants, strict=True)
        ]
        self._outputs = [Type(atom.aval.dtype, tuple(atom.aval.shape)) for atom in equation.outvars]
        return Equation(primitive, inputs, list(self._outputs), equation.params, equation)

    def emit(
        self,
        op_type: str,
        inputs: Sequence[Any],
        *,
        dtype: Any = None,
        shape: Sequence[Any] | None = None,
        outputs: Sequence[Any] | None = None,
        domain: str = "",
        version: int = 1,
        attributes: Mapping[str, Any] | None = None,
        **more_attributes: Any,
    ) -> Any:
        """Emit a node and return its output.

        Args:
            op_type: the operator.
            inputs: values, or None for an omitted optional input. Arrays become constants, and so do numbers, with the
                element type of the first input that has one.
            dtype, shape: those of the output; by default those of the equation's first output.
            outputs: the types of several outputs (anything with a dtype and a shape); a list of values is returned.
            domain, version: the domain and version of an operator that is not one of ONNX's own.
            attributes: the node's attributes; keyword arguments with other names are attributes as well.
        """
        self._check_operator(op_type, domain)
        types = self._types(dtype, shape, outputs)
        near = next((value.dtype for value in inputs if hasattr(value, "dtype")), None)
        numbers = tuple(-1 if value is None else self._value(value, "an input", near).number for value in inputs)
        given = {**(attributes or {}), **more_attributes}
        pairs = tuple((name, *_attribute(name, value)) for name, value in given.items())
        self.steps.append(("node", op_type, domain, version, numbers, types, pairs, _frames()))
        results = [self._new(*kind) for kind in types]
        return results[0] if outputs is None else results

    def constant(self, value: Any, dtype: Any = None) -> Value:
        """Return a constant; numbers without a dtype get the one that JAX gives them."""
        array = (
            np.asarray(value) if hasattr(value, "dtype") and dtype is None else np.asarray(jnp.asarray(value, dtype))
        )
        self.steps.append(("constant", array))
        return self._new(array.dtype, array.shape, array)

    def shape(self, dimensions: Sequence[Any]) -> Value:
        """Return a shape as a value (int64, one element per dimension), as for Reshape and Expand; may be symbolic."""
        self.steps.append(("shape", tuple(dimensions)))
        return self._new(np.dtype(np.int64), (len(dimensions),))

    def _new(self, dtype: Any, shape: tuple[Any, ...], constant: np.ndarray | None = None) -> Value:
        self._count += 1
        return Value(dtype, shape, self._count - 1, self, constant)

    def _value(self, value: Any, what: str, number_dtype: Any = None) -> Value:
        if isinstance(value, Value):
            if value.owner is not self:
                raise ValueError(f"{what} is a value of another equation")
            return value
        if hasattr(value, "__array__"):
            return self.constant(value)
        if isinstance(value, (bool, int, float)):
            return self.constant(value, number_dtype)
        raise TypeError(f"{what} must be a value, an array or a number; got {value!r}")

    def _check_operator(self, op_type: Any, domain: Any) -> None:
        if not isinstance(op_type, str) or not isinstance(domain, str):
            raise TypeError(f"an operator and its domain must be strings; got {op_type!r} and {domain!r}")
        if domain in ("", "ai.onnx") and not _core.operator_version(op_type, self.opset):
            raise ValueError(
                f"opset {self.opset} of ONNX has no operator {op_type!r}; operators of other domains need domain=..."
            )

    def _types(self, dtype: Any, shape: Any, outputs: Any) -> tuple[tuple[Any, tuple[Any, ...]], ...]:
        if outputs is not None:
            if dtype is not None or shape is not None:
                raise TypeError("pass either dtype and shape, or outputs")
            return tuple((_dtype(kind.dtype), tuple(kind.shape)) for kind in outputs)
        first = self._outputs[0] if self._outputs else None
        if first is None and (dtype is None or shape is None):
            raise TypeError("the equation has no output to take the type from; pass dtype and shape")
        return ((_dtype(first.dtype if dtype is None else dtype), tuple(first.shape if shape is None else shape)),)

    def results(self, returned: Any) -> tuple[int, ...]:
        """The numbers of the values that the plugin returned, which must be the equation's outputs."""
        expected = self._outputs
        several = isinstance(returned, (list, tuple))
        values = list(returned) if several else [] if returned is None else [returned]
        if len(values) != len(expected):
            raise ValueError(f"it returned {len(values)} values; the primitive has {len(expected)} outputs")
        numbers = []
        for index, (value, kind) in enumerate(zip(values, expected, strict=True)):
            value = self._value(value, f"output {index}")
            if value.dtype != kind.dtype or tuple(value.shape) != tuple(kind.shape):
                raise ValueError(f"output {index} is {_shown(value)}; the primitive returns {_shown(kind)}")
            numbers.append(value.number)
        return tuple(numbers)


def plugin(primitive: Any, *, replace: bool = False) -> Callable[[Function], Function]:
    """Register the decorated function as the lowering of a primitive, by its name or the primitive itself.

    ``lower(ctx, equation)`` emits nodes with ``ctx.emit`` and returns the values of the equation's outputs: one value,
    or a list. To refuse an equation, it raises ``NotImplementedError`` with the reason.

    Raises:
        ValueError: the primitive already has a lowering, and ``replace`` is not true.
    """
    name = getattr(primitive, "name", primitive)
    if not isinstance(name, str) or not name:
        raise TypeError(f"plugin takes the name of a primitive; got {primitive!r}")

    def register(function: Function) -> Function:
        if not callable(function):
            raise TypeError(f"a plugin is a function (ctx, equation); got {function!r}")
        known = _registered.get(name)
        if known is not None and not replace and not _is_same(known, function):
            raise ValueError(f"{name!r} is lowered by {_place(known)} already; pass replace=True to replace it")
        if known is None and not replace and name in _core.plugins():
            raise ValueError(f"{name!r} already has a lowering in jax2onnx; pass replace=True to replace it")
        _registered[name] = function
        return function

    return register


def registered_plugins() -> dict[str, Callable[..., Any]]:
    """The plugins that are registered now."""
    return dict(_registered)


def lower_equation(
    plugins: Mapping[str, Callable[..., Any]],
    primitive: str,
    equation: Any,
    opset: int,
    constants: list[bytes | None],
    place: tuple[str, str, int] | None,
) -> tuple[tuple[Any, ...], tuple[int, ...], str | None]:
    """Called by the core: what the plugin emits, which values are the outputs, and the reason if it refuses."""
    function = plugins[primitive]
    context = LoweringContext(opset)
    view = context.take(primitive, equation, constants)
    try:
        results = context.results(function(context, view))
    except NotImplementedError as error:
        return (), (), str(error) or f"the plugin {_place(function)} does not lower it"
    except Exception as error:
        raise PluginError(_described(primitive, function, error, place)) from error
    return tuple(context.steps), results, None


def _known(aval: Any, content: bytes | None) -> np.ndarray | None:
    if content is None or not isinstance(aval.dtype, np.dtype):
        return None
    return np.frombuffer(content, dtype=aval.dtype).reshape(aval.shape)


def _dtype(dtype: Any) -> Any:
    return jnp.dtype(dtype) if not hasattr(dtype, "itemsize") or isinstance(dtype, type) else dtype


_KINDS = ((bool, "i"), (int, "i"), (np.integer, "i"), (float, "f"), (np.floating, "f"), (str, "s"))


def _attribute(name: str, value: Any) -> tuple[str, Any]:
    """The core's letter for the kind of an attribute, and its value."""
    if hasattr(value, "__array__") and not isinstance(value, np.generic):
        return "t", np.asarray(value)
    for kind, letter in _KINDS:
        if isinstance(value, kind):
            return letter, int(value) if letter == "i" else float(value) if letter == "f" else value
    if isinstance(value, (list, tuple)):
        items = [_attribute(name, item) for item in value]
        letters = {letter for letter, _ in items} or {"i"}
        if letters == {"i", "f"}:
            letters, items = {"f"}, [("f", float(item)) for _, item in items]
        if len(letters) == 1 and letters <= {"i", "f", "s"}:
            return letters.pop().upper(), tuple(item for _, item in items)
    raise TypeError(
        f"attribute {name!r} must be a number, a string, an array, or a list of numbers or strings; got {value!r}"
    )


def _frames() -> tuple[tuple[str, str, int], ...]:
    """The plugin's frames that led to its call of ``ctx.emit``, outermost first."""
    frames = []
    frame = sys._getframe(2)
    while frame is not None and frame.f_code is not lower_equation.__code__:
        code = frame.f_code
        if not code.co_filename.startswith(_PACKAGE):  # frames that adapt another package's plugins are not theirs
            frames.append((code.co_filename, code.co_qualname, frame.f_lineno))
        frame = frame.f_back
    return tuple(reversed(frames))


def _is_same(known: Any, function: Any) -> bool:
    """Whether it is the same function defined again, as when a module is reloaded or a notebook cell is run twice."""
    return all(getattr(known, key, 0) == getattr(function, key, 1) for key in ("__module__", "__qualname__"))


def _shown(kind: Any) -> str:
    return f"{kind.dtype}[{','.join(map(str, kind.shape))}]"


def _place(function: Any) -> str:
    name = getattr(function, "__qualname__", type(function).__qualname__)
    code = getattr(function, "__code__", None)
    return f"{name} ({code.co_filename}:{code.co_firstlineno})" if code else name


def _described(primitive: str, function: Any, error: Exception, place: tuple[str, str, int] | None) -> str:
    lines = [f"the plugin {_place(function)} failed on {primitive}: {type(error).__name__}: {error}"]
    traceback, inside = error.__traceback__, None
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if is_users_file(code.co_filename):
            inside = (code.co_filename, code.co_qualname, traceback.tb_lineno)
        traceback = traceback.tb_next
    for title, frame in (("in the plugin", inside), (f"where {primitive} is used", place)):
        if frame is not None:
            file, name, line = frame
            lines.append(f'  {title}:\n    File "{file}", line {line}, in {name}')
            text = linecache.getline(file, line).strip()
            lines += [f"      {text}"] if text else []
    return "\n".join(lines)
