"""Readable names for the arrays that a function closes over: the path by which they are reached from it."""

from __future__ import annotations

import functools
import types
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np

# Attributes that hold a variable's array and would only lengthen its path.
_HOLDERS = {"value", "_value", "raw_value", "_raw_value"}
# Objects looked at before the search gives up: a name is a convenience, not worth minutes.
_LIMIT = 400_000
# Types that lead nowhere.
_LEAVES = frozenset((str, bytes, int, float, complex, bool, type(None), type, types.ModuleType, types.CodeType))


def name_parameters(fn: Any, arrays: list[Any]) -> list[str | None]:
    """For each array the path from ``fn`` to that very array, or None when it is not reachable."""
    found = _search(fn, {_identity(array) for array in arrays})
    return [found.get(_identity(array)) for array in arrays]


def _identity(array: Any) -> Hashable:
    """JAX keeps its own arrays as they are, and makes new views of NumPy's: those are known by their memory."""
    if isinstance(array, np.ndarray):
        return (array.__array_interface__["data"][0], array.shape, array.strides, array.dtype)
    return id(array)


# The way to an object: the way to what holds it, the last step, and whether that is a function's variable; None at the
# start.
_Path = tuple[Any, str, bool] | None


def _search(fn: Any, wanted: set[Hashable]) -> dict[Hashable, str]:
    """Breadth first, so that the shortest way gives the name; what knows its own path comes before anything else."""
    found: dict[Hashable, _Path] = {}
    seen: dict[int, Any] = {}  # by identity, and kept: containers make objects on the fly, whose identity would return
    queue: deque[tuple[Any, _Path]] = deque([(fn, None)])
    while queue and len(found) < len(wanted) and len(seen) < _LIMIT:
        item, path = queue.popleft()
        if id(item) in seen or isinstance(item, type):
            continue
        seen[id(item)] = item
        children = _reader(type(item))
        if children is None:
            identity = _identity(item)
            if identity in wanted:
                found.setdefault(identity, path)
            continue
        is_variable = children is _function_variables
        for key, child in children(item):
            kind = type(child)
            if kind in _LEAVES or id(child) in seen:
                continue
            own = _own_path(child) if _may_know_its_path(kind) else None
            if own:
                queue.appendleft((child, (None, own, False)))
            elif key in _HOLDERS:
                queue.appendleft((child, path))
            else:
                queue.append((child, (path, key, is_variable) if key else path))
    return _joined({key: _steps(path) for key, path in found.items()})


@functools.lru_cache(maxsize=4096)
def _may_know_its_path(kind: type) -> bool:
    return isinstance(getattr(kind, "path", None), property)


def _own_path(item: Any) -> str | None:
    """Variables and layers that know where they are in their model (Keras') say it better than attributes do."""
    try:
        path = item.path
    except Exception:  # the user's own property may do anything
        return None
    return path if isinstance(path, str) else None


def _steps(path: _Path) -> tuple[tuple[str, bool], ...]:
    steps = []
    while path is not None:
        path, step, is_variable = path
        steps.append((step, is_variable))
    return tuple(reversed(steps))


def _joined(found: dict[Hashable, tuple[tuple[str, bool], ...]]) -> dict[Hashable, str]:
    """Paths as text, without what all of them share on the way to the model."""
    paths = list(found.values())
    shared = 0
    while paths and all(len(path) > shared + 1 and path[shared] == paths[0][shared] for path in paths):
        if not _leads_to_the_model(*paths[0][shared]):
            break
        shared += 1
    return {key: ".".join(step for step, _ in path[shared:]) or "constant" for key, path in found.items()}


def _leads_to_the_model(step: str, is_variable: bool) -> bool:
    """A function's variable, a place in a tuple, something private, the one collection: not a part of the model."""
    return is_variable or step.isdigit() or step.startswith("_") or step == "params"


_Children = Iterable[tuple[str, Any]]


@functools.lru_cache(maxsize=4096)
def _reader(kind: type) -> Callable[[Any], _Children] | None:
    """How to get at what an object of this type holds; None for an array."""
    if issubclass(kind, (jax.Array, np.ndarray)):
        return None
    if issubclass(kind, Mapping):
        return _items
    if issubclass(kind, (list, tuple)):
        return _elements
    if issubclass(kind, functools.partial):
        return lambda partial: (("", partial.func), ("", partial.args), ("", partial.keywords))
    if issubclass(kind, types.MethodType):
        return lambda method: (("", method.__self__), ("", method.__func__))
    if issubclass(kind, types.FunctionType):
        return _function_variables
    return _attributes


def _items(mapping: Mapping[Any, Any]) -> _Children:
    return [(key if type(key) is str else str(key), child) for key, child in list(mapping.items())]


def _elements(sequence: Sequence[Any]) -> _Children:
    names = getattr(sequence, "_fields", None) or map(str, range(len(sequence)))
    return zip(names, sequence, strict=False)


def _function_variables(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """What a function closes over, its defaults, and the globals that its code names."""
    if hasattr(function, "__onnx_function__"):  # our wrapper is no step of the path
        yield "", function.__wrapped__
        return
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        try:
            yield name, cell.cell_contents
        except ValueError:  # an empty cell
            continue
    if function.__defaults__:
        yield "", function.__defaults__
    if function.__kwdefaults__:
        yield "", function.__kwdefaults__
    for name in _global_names(function.__code__):
        if name in function.__globals__:
            yield name, function.__globals__[name]
    if hasattr(function, "__wrapped__"):
        yield "", function.__wrapped__


def _global_names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _global_names(constant)


def _attributes(item: Any) -> _Children:
    state = getattr(item, "__dict__", None)
    found = _items(state) if isinstance(state, (dict, Mapping)) else []
    if hasattr(item, "__wrapped__"):  # a jitted function
        found.insert(0, ("", item.__wrapped__))
    for name in _slots(type(item)):
        try:
            found.append((name, object.__getattribute__(item, name)))
        except AttributeError:
            continue
    return found


@functools.lru_cache(maxsize=4096)
def _slots(kind: type) -> tuple[str, ...]:
    names: list[str] = []
    for base in kind.__mro__:
        slots = base.__dict__.get("__slots__", ())
        names += (slots,) if isinstance(slots, str) else slots
    return tuple(name for name in names if name not in ("__weakref__", "__dict__"))
