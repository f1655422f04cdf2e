"""Readable names for the arrays that a function closes over: the paths that lead to them from the function."""

from __future__ import annotations

import functools
import types
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from jax2onnx._door.jax_types import is_users_file, reference_class

# Attributes that hold a variable's array and would only lengthen its path.
_HOLDERS = {"value", "_value", "raw_value", "_raw_value"}
# Objects visited before the search gives up: a name is a convenience, not worth minutes.
_LIMIT = 400_000
# Types that hold nothing to search.
_LEAVES = frozenset((str, bytes, int, float, complex, bool, type(None), type, types.ModuleType, types.CodeType))


def name_parameters(fn: Any, arrays: list[Any]) -> tuple[list[str | None], Steps]:
    """For each array, the path from ``fn`` to that very array, or None if it cannot be reached; and the steps from
    ``fn`` to the model, which are not part of any path."""
    found = _search(fn, {array_identity(array) for array in arrays})
    shared = _way_to_the_model(list(found.values()), 1)
    names = {key: ".".join(step for step, _ in steps[len(shared) :]) or "constant" for key, steps in found.items()}
    return [names.get(array_identity(array)) for array in arrays], shared


def array_identity(array: Any) -> Hashable:
    """JAX keeps its own arrays as they are and makes new views of NumPy's, which are identified by their memory."""
    if isinstance(array, np.ndarray):
        return (array.__array_interface__["data"][0], array.shape, array.strides, array.dtype)
    return id(array)


# The way to an object: the way to the object that holds it, the last step, and whether that step is a variable of a
# function; None at the start.
Path = tuple[Any, str, bool] | None
Steps = tuple[tuple[str, bool], ...]


def _search(fn: Any, wanted: set[Hashable]) -> dict[Hashable, Steps]:
    """Breadth first, so that the shortest way gives the name; objects that know their own path come first."""
    found: dict[Hashable, Path] = {}
    seen: dict[int, Any] = {}  # by identity, and kept alive: containers make objects on the fly, and ids are reused
    queue: deque[tuple[Any, Path]] = deque([(fn, None)])
    while queue and len(found) < len(wanted) and len(seen) < _LIMIT:
        item, path = queue.popleft()
        if id(item) in seen or isinstance(item, type):
            continue
        seen[id(item)] = item
        children = _children(item)
        if children is None:
            identity = array_identity(item)
            if identity in wanted:
                found.setdefault(identity, path)
            continue
        is_variable = isinstance(item, types.FunctionType)
        for key, child in children:
            kind = type(child)
            if kind in _LEAVES or id(child) in seen:
                continue
            if key == "_state" and _is_bound_by_scope(type(item)):
                continue
            own = _own_path(child) if _may_know_its_path(kind) else None
            if own:
                queue.appendleft((child, (None, own, False)))
            elif key in _HOLDERS:
                queue.appendleft((child, path))
            else:
                queue.append((child, (path, key, is_variable) if key else path))
    return {key: _steps(path) for key, path in found.items()}


@functools.lru_cache(maxsize=4096)
def _may_know_its_path(kind: type) -> bool:
    return isinstance(getattr(kind, "path", None), property)


@functools.lru_cache(maxsize=4096)
def _is_bound_by_scope(kind: type) -> bool:
    """Linen modules keep their variables in a scope; what is under ``_state`` is left over from earlier calls."""
    return any(base.__module__ == "flax.linen.module" and base.__name__ == "Module" for base in kind.__mro__)


def _own_path(item: Any) -> str | None:
    """The path that a variable or layer itself reports (Keras), which is better than a path of attributes."""
    try:
        path = item.path
    except Exception:  # the user's own property may do anything
        return None
    return path if isinstance(path, str) else None


def own_module_path(item: Any) -> str | None:
    """The same for a module, with dots: Linen's paths are tuples; a Keras layer without weights has only a name."""
    if not _may_know_its_path(type(item)):
        return None
    try:
        path = item.path
    except Exception:
        return None
    if isinstance(path, tuple):
        return ".".join(map(str, path))
    if path is None:
        path = own_attribute(item, "name")
    return path.replace("/", ".") if isinstance(path, str) else None


def module_path(path: Path, shared: Steps) -> str:
    """The way to a module, written like the names of its parameters, without the steps that lead to the model."""
    steps = _steps(path)
    if steps[: len(shared)] == shared:
        steps = steps[len(shared) :]
    elif shared[: len(steps)] == steps:  # it holds the model
        steps = ()
    return ".".join(step for step, _ in steps)


def way_to_the_model(paths: Iterable[Path]) -> Steps:
    """The steps from the function to the model, found from the modules alone if there are no parameters."""
    return _way_to_the_model([_steps(path) for path in paths], 0)


def _steps(path: Path) -> Steps:
    steps = []
    while path is not None:
        path, step, is_variable = path
        steps.append((step, is_variable))
    return tuple(reversed(steps))


def _way_to_the_model(paths: list[Steps], kept: int) -> Steps:
    """The steps that all paths share on the way to the model; at least ``kept`` steps of each path remain."""
    shared = 0
    while paths and all(len(path) > shared + kept and path[shared] == paths[0][shared] for path in paths):
        if not _leads_to_the_model(*paths[0][shared]):
            break
        shared += 1
    return paths[0][:shared] if paths else ()


def _leads_to_the_model(step: str, is_variable: bool) -> bool:
    """Whether a step is not part of the model: a variable, a tuple index, a private name, the only collection."""
    return is_variable or step.isdigit() or step.startswith("_") or step == "params"


def find_parts(root: Any, is_part: Callable[[type], bool], start: Path, limit: int = _LIMIT) -> list[tuple[Any, Path]]:
    """The objects of a model, each with the shortest way to it. Objects of libraries that are not parts are searched
    only if they are near: what they hold is internal to them."""
    parts: list[tuple[Any, Path]] = []
    seen: dict[int, Any] = {}
    queue: deque[tuple[Any, Path, int]] = deque([(root, start, 0)])
    while queue and len(seen) < limit:
        item, path, strange = queue.popleft()
        if id(item) in seen:
            continue
        seen[id(item)] = item
        kind = type(item)
        if is_part(kind):
            parts.append((item, path))
            strange = 0
        elif not _is_plain_holder(kind):
            strange += 1
        if strange > 1 or (kind is types.FunctionType and item is not root and not _is_users_function(item)):
            continue
        is_variable = kind is types.FunctionType
        for key, child in _children(item) or ():
            if id(child) not in seen and not _is_array_or_leaf(type(child)):
                queue.append((child, (path, key, is_variable) if key else path, strange))
    return parts


def find_arrays(root: Any) -> Iterator[Hashable]:
    """The identities of all arrays that an object holds, at any depth."""
    seen: dict[int, Any] = {}
    queue = [root]
    while queue and len(seen) < _LIMIT // 100:
        item = queue.pop()
        if id(item) in seen or type(item) is types.FunctionType:
            continue
        children = _children(item)
        if children is None:
            yield array_identity(item)
        else:
            seen[id(item)] = item
            queue += [child for _, child in children if type(child) not in _LEAVES]


@functools.lru_cache(maxsize=4096)
def _is_array_or_leaf(kind: type) -> bool:
    return kind in _LEAVES or issubclass(kind, (type, jax.Array, np.ndarray, np.generic)) or is_variable_class(kind)


@functools.lru_cache(maxsize=4096)
def is_variable_class(kind: type) -> bool:
    """Whether objects of this class stand for an array."""
    return hasattr(kind, "__jax_array__") or (hasattr(kind, "shape") and hasattr(kind, "dtype"))


_PLAIN_HOLDERS = (Mapping, list, tuple, functools.partial, types.MethodType, types.FunctionType)


@functools.lru_cache(maxsize=4096)
def _is_plain_holder(kind: type) -> bool:
    return issubclass(kind, _PLAIN_HOLDERS)


def _is_users_function(function: types.FunctionType) -> bool:
    return is_users_file(function.__code__.co_filename)


_Children = Iterable[tuple[str, Any]]


def _children(item: Any) -> list[tuple[str, Any]] | None:
    """What an object holds, or None for an array; nothing where code of its class fails."""
    read = _reader(type(item))
    if read is None:
        return None
    try:
        return list(read(item))
    except Exception:
        return []


@functools.lru_cache(maxsize=4096)
def _reader(kind: type) -> Callable[[Any], _Children] | None:
    """How to read what an object of this type holds; None for an array."""
    if issubclass(kind, (jax.Array, np.ndarray, jax.core.Tracer, reference_class())):
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
    # A dataclass that is a mapping of its fields may have a field called items. A dict is read as one, even if its
    # class makes values (imports modules, say) when it is asked for them.
    pairs = list(dict.items(mapping)) if isinstance(mapping, dict) else [(key, mapping[key]) for key in mapping]
    return [(key if type(key) is str else str(key), child) for key, child in pairs]


def _elements(sequence: Sequence[Any]) -> _Children:
    names = getattr(sequence, "_fields", None) or map(str, range(len(sequence)))
    return zip(names, sequence, strict=False)


def _function_variables(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """What a function closes over, its defaults, and the globals that its code names."""
    if hasattr(function, "__onnx_function__"):  # our wrapper is not a step of the path
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


def own_attribute(item: Any, name: str) -> Any:
    """An attribute, or None, without the ``__getattr__`` of its class, which may import a module, or fail."""
    try:
        return object.__getattribute__(item, name)
    except Exception:  # a property may do anything
        return None


def _attributes(item: Any) -> _Children:
    state = own_attribute(item, "__dict__")
    found = _items(state) if isinstance(state, (dict, Mapping)) else []
    wrapped = own_attribute(item, "__wrapped__")
    if wrapped is not None:  # a jitted function
        found.insert(0, ("", wrapped))
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
