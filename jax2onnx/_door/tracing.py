"""JAX's tracing of the user's function, and what is tried if JAX alone refuses it.

Two things that programs do at run time cannot be traced as they are. A Flax NNX model that changes its own state (batch
statistics, counters of random streams) may not be changed by a trace other than the one it was made in: in that case a
copy is traced, made from the same arrays inside the trace. And a function that branches in Python on a flag given in
``input_params`` needs the flag's value: in that case both values are traced, and the model chooses between them with
one ``If``.
"""

from __future__ import annotations

import functools
import inspect
import sys
import traceback
import types
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from jax2onnx._door.errors import warn_user
from jax2onnx._door.functions import calls_marked
from jax2onnx._door.jax_types import is_jax_file, is_users_file
from jax2onnx._door.modules import Recording
from jax2onnx._door.parameters import own_attribute
from jax2onnx._door.pure import made_pure

_MOST_BRANCHING = 3  # flags that are traced with both values: each of them doubles the program
_MOST_DEPTH = 4  # of nested functions that are searched for modules

# What JAX raises when Python needs the value of something that is traced.
_NEEDS_VALUE = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
)

Traced = tuple[Any, Any, Recording]


def trace(fn: Callable[..., Any], args: list[Any], kwargs: dict[str, Any], given: Mapping[str, Any] | None) -> Traced:
    """The jaxpr of ``fn``, the shapes of its results, and the parts of the model that were seen running.

    ``given`` holds the caller's values of the keyword arguments.
    """
    try:
        return _trace_state(fn, fn, args, kwargs)
    except _NEEDS_VALUE as error:
        flags = {name: np.asarray(value).item() for name, value in (given or {}).items() if _is_flag(value)}
        if not flags:
            raise
        try:
            return _trace_flags(fn, args, kwargs, flags)
        except _NotByFlags:
            raise error from None


class _NotByFlags(Exception):
    """Knowing the flags does not help."""


def _trace_once(recording: Recording, traced: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Traced:
    with calls_marked(), recording.around():
        jaxpr, shapes = jax.make_jaxpr(_hashable(traced), return_shape=True)(*args, **kwargs)
    return made_pure(jaxpr), shapes, recording


def _hashable(fn: Any) -> Any:
    """JAX must hash what it traces, and many modules that hold arrays cannot be. A partial can, and adds no frame."""
    return fn if isinstance(fn, types.FunctionType) else functools.partial(fn)


# Modules that change their state


def _trace_state(fn: Any, traced: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Traced:
    recording = Recording(fn)
    before = [(part, dict(vars(part))) for part in recording.originals() if _is_nnx_module(type(part))]
    try:
        return _trace_once(recording, traced, args, kwargs)
    except Exception as error:
        for part, attributes in before:  # Flax NNX leaves a module in pieces if it refuses to change it
            vars(part).clear()
            vars(part).update(attributes)
        if _had_returned(error, traced):
            return _trace_leaves(recording.again(), traced, args, kwargs, error)
        if not _changes_its_state(error):
            raise
    return _trace_once(recording.again(), _with_copies(traced), args, kwargs)


# Results of classes that hold nothing but arrays


def _had_returned(error: Exception, traced: Any) -> bool:
    """Whether something else than the function failed: JAX rebuilds its results with shapes in place of arrays."""
    code = getattr(function_of(traced), "__code__", None)
    frames = [frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)]
    inner = frames[frames.index(_trace_once.__code__) + 1 :] if _trace_once.__code__ in frames else []
    others = [frame for frame in inner if not is_jax_file(frame.co_filename)]
    return code is not None and bool(others) and code not in others


def function_of(fn: Any) -> Any:
    """The function of Python's that runs when this is called; if there is none, the object that is called."""
    while not isinstance(fn, types.FunctionType) or own_attribute(fn, "__wrapped__") is not None:
        if isinstance(fn, functools.partial):
            fn = fn.func
        elif isinstance(fn, types.MethodType):
            fn = fn.__func__
        elif own_attribute(fn, "__wrapped__") is not None:
            fn = inspect.unwrap(fn)
        elif isinstance(type(fn).__call__, types.FunctionType):
            fn = type(fn).__call__
        else:
            break
    return fn


def _trace_leaves(
    recording: Recording, traced: Callable[..., Any], args: list[Any], kwargs: dict[str, Any], error: Exception
) -> Traced:
    def leaves(*args: Any, **kwargs: Any) -> list[Any]:
        return jax.tree.leaves(traced(*args, **kwargs))

    try:
        return _trace_once(recording, leaves, args, kwargs)
    except Exception:
        raise error from None


@functools.lru_cache(maxsize=4096)
def _is_nnx_module(kind: type) -> bool:
    return any(base.__module__.startswith("flax.nnx.") and base.__name__ == "Module" for base in kind.__mro__)


def _changes_its_state(error: Exception) -> bool:
    """Whether Flax NNX refused to change or to split a module that was made outside the trace."""
    kind = type(error)
    if kind is ValueError and "graph node from different trace level" in str(error):
        return True
    return kind.__name__ == "TraceContextError" and kind.__module__.startswith("flax")


def _with_copies(fn: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        return _copied(fn, {}, 0)(*args, **kwargs)

    return call


def _copied(value: Any, copies: dict[int, Any], depth: int) -> Any:
    """The value with every Flax NNX module in it rebuilt from its own arrays; the value itself if there is none."""
    if id(value) in copies:
        return copies[id(value)]
    copy = _copy(value, copies, depth) if depth < _MOST_DEPTH else value
    copies[id(value)] = copy
    return copy


def _copy(value: Any, copies: dict[int, Any], depth: int) -> Any:
    from flax import nnx

    def again(inner: Any) -> Any:
        return _copied(inner, copies, depth + 1)

    if isinstance(value, (nnx.Module, nnx.Rngs, nnx.Variable)):
        return nnx.clone(value)
    if isinstance(value, functools.partial):
        keywords = {name: again(item) for name, item in value.keywords.items()}
        return functools.partial(again(value.func), *map(again, value.args), **keywords)
    if isinstance(value, types.MethodType):
        return types.MethodType(again(value.__func__), again(value.__self__))
    if type(value) in (list, tuple):
        return type(value)(map(again, value))
    if type(value) is dict:
        return {key: again(item) for key, item in value.items()}
    if isinstance(value, types.FunctionType) and is_users_file(value.__code__.co_filename):
        return _copied_function(value, again)
    inner = own_attribute(value, "__wrapped__")
    if isinstance(inner, types.FunctionType) and isinstance(value, type(jax.jit(abs))):
        return again(inner)  # without jit, whose cached program may hold the module
    return value


def _copied_function(function: types.FunctionType, again: Callable[[Any], Any]) -> types.FunctionType:
    cells = function.__closure__ or ()
    inner = tuple(cell if cell == types.CellType() else types.CellType(again(cell.cell_contents)) for cell in cells)
    named = {name: function.__globals__[name] for name in function.__code__.co_names if name in function.__globals__}
    copied = {name: again(value) for name, value in named.items()}
    held = {name: value for name, value in copied.items() if value is not named[name]}
    same = all(new == old or new.cell_contents is old.cell_contents for new, old in zip(inner, cells, strict=True))
    if same and not held:
        return function
    scope = {**function.__globals__, **held} if held else function.__globals__
    copy = types.FunctionType(function.__code__, scope, function.__name__, function.__defaults__, inner)
    copy.__kwdefaults__ = function.__kwdefaults__
    copy.__qualname__ = function.__qualname__
    return copy


# Flags that Python branches on


def _is_flag(value: Any) -> bool:
    """Whether this is a known number or boolean: not a type, and not an array with axes."""
    return isinstance(value, (bool, int, float, np.generic, np.ndarray, jax.Array)) and np.ndim(value) == 0


def _trace_flags(fn: Any, args: list[Any], kwargs: dict[str, Any], flags: Mapping[str, Any]) -> Traced:
    """Flags stay a choice of the model as far as possible; for the others the given value is used."""
    switches = [name for name, value in flags.items() if isinstance(value, bool)][:_MOST_BRANCHING]
    numbers = {name: value for name, value in flags.items() if name not in switches}
    reason: Exception | None = None
    for both, fixed in ((switches, {}), (switches, numbers), ([], dict(flags))):
        if fixed == {} and not both:
            continue
        try:
            found = _trace_state(fn, _told(fn, both, fixed), args, kwargs)
        except Exception as error:  # the function may do anything with the other value
            reason = reason or error
            continue
        for name, value in fixed.items():
            _warn_of_fixed(name, value, reason)
        return found
    raise _NotByFlags


def _warn_of_fixed(name: str, value: Any, reason: Exception | None) -> None:
    because = f" ({type(reason).__name__}: {str(reason).strip().splitlines()[0]})" if reason and str(reason) else ""
    warn_user(
        f"the function needs the value of {name!r} during tracing{because}: the model is made for "
        f"{name}={value!r}, and its input {name!r} has no effect"
    )


def _told(fn: Any, both: list[str], fixed: Mapping[str, Any]) -> Callable[..., Any]:
    """``fn`` with Python values for its flags: those of ``fixed``, and for each of ``both`` either value."""

    def call(*args: Any, **kwargs: Any) -> Any:
        chosen = [(name, kwargs.pop(name)) for name in both]
        rest = {name: value for name, value in kwargs.items() if name not in fixed}

        def choose(left: list[tuple[str, Any]], known: dict[str, Any]) -> Any:
            if not left:
                return _copied_where_needed(fn)(*args, **rest, **known)
            name, flag = left[0]
            return jax.lax.cond(
                flag, lambda: choose(left[1:], {**known, name: True}), lambda: choose(left[1:], {**known, name: False})
            )

        return choose(chosen, dict(fixed))

    return call


def _copied_where_needed(fn: Any) -> Any:
    """Each branch is a trace of its own, so a module that changes needs a copy in each."""
    return _copied(fn, {}, 0) if "flax.nnx" in sys.modules else fn
