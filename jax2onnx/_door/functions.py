"""``onnx_function``: each call of the decorated function becomes one node that calls an ONNX function of its own.

While a program is traced for an export, a call leaves two marks in the jaxpr, one before and one after what it
computes; the core turns the equations between them into a function. Nothing is traced separately, so state, random keys
and parameters behave inside as they do without the decorator, and JAX's transformations see only two primitives that
pass their values through. Outside an export a decorated function is simply called.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import functools
import inspect
import types
from builtins import type as class_of
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar, overload

Target = TypeVar("Target", bound=Callable[..., Any])

DEFAULT_NAMESPACE = "custom"
_RESERVED = ("", "ai.onnx", "ai.onnx.ml", "ai.onnx.training", "ai.onnx.preview.training")
_SETTINGS = "__onnx_function__"  # the attribute of a decorated function that holds its settings

_exporting: contextvars.ContextVar[bool] = contextvars.ContextVar("jax2onnx_exporting", default=False)
_any_decorated = False


@dataclass
class _Settings:
    name: str
    namespace: str
    unique: bool
    is_class: bool = False


@overload
def onnx_function(
    target: None = None,
    *,
    unique: bool = False,
    namespace: str | None = None,
    name: str | None = None,
    type: str | None = None,
) -> Callable[[Target], Target]: ...


@overload
def onnx_function(
    target: Target,
    *,
    unique: bool = False,
    namespace: str | None = None,
    name: str | None = None,
    type: str | None = None,
) -> Target: ...


def onnx_function(
    target: Any = None,
    *,
    unique: bool = False,
    namespace: str | None = None,
    name: str | None = None,
    type: str | None = None,
) -> Any:
    """Make each call of a function, a method or a module class one node that calls an ONNX function of its own.

    Args:
        target: a function, or a class whose instances are called (a Flax NNX or Linen module, an Equinox module, a
            plain class with ``__call__``). The class stays the same object: only its ``__call__`` is wrapped.
        unique: whether calls that compute the same thing share one definition. Parameters are inputs of a function, so
            layers that differ only in their weights share it as well.
        namespace: the domain of the function, ``"custom"`` by default.
        name: the name of the function and the operator of its node; by default the name of the function or class.
        type: a synonym of ``name``, which takes precedence over it.

    Raises:
        TypeError: the target is not callable, or a setting has the wrong type.
        ValueError: the name or namespace is not valid, or the target is already decorated with another one.
    """
    given = _checked_text("name", name) if type is None else _checked_text("type", type)
    if _checked_text("namespace", namespace) in _RESERVED:
        raise ValueError(f"namespace {namespace!r} is reserved for ONNX; use another namespace")
    if target is None:
        return functools.partial(_decorate, unique=bool(unique), namespace=namespace, name=given)
    return _decorate(target, unique=bool(unique), namespace=namespace, name=given)


def _checked_text(argument: str, value: str | None) -> str | None:
    if value is not None and not isinstance(value, str):
        raise TypeError(f"{argument} must be a string; got {value!r}")
    if value is not None and (not value or not value.isprintable()):
        raise ValueError(f"{argument} must be a word; got {value!r}")
    return value


def _decorate(target: Any, *, unique: bool, namespace: str | None, name: str | None) -> Any:
    global _any_decorated
    if isinstance(target, (staticmethod, classmethod)):
        inner = _decorate(target.__func__, unique=unique, namespace=namespace, name=name)
        return class_of(target)(inner)
    if not callable(target):
        raise TypeError(f"onnx_function takes a function or a class; got {target!r}")
    if isinstance(target, class_of) and "__call__" not in dir(target):
        raise TypeError(f"onnx_function takes a class whose instances can be called; {target.__name__} has no __call__")
    known = _known_settings(target)
    if known is not None:
        _check_conflict(target, "name", known.name, name)
        _check_conflict(target, "namespace", known.namespace, namespace)
        known.unique = unique
        return target
    _any_decorated = True
    settings = _Settings(
        name or _default_name(target), namespace or DEFAULT_NAMESPACE, unique, isinstance(target, class_of)
    )
    if not isinstance(target, class_of):
        return _wrapped(target, settings)
    # If the base of a class is decorated too, the class becomes a function in place of its base, not around it.
    call = target.__call__
    setattr(target, "__call__", _wrapped(call.__wrapped__ if hasattr(call, _SETTINGS) else call, settings))  # noqa: B010
    return target


def _known_settings(target: Any) -> _Settings | None:
    if isinstance(target, class_of):
        return getattr(target.__call__, _SETTINGS, None) if "__call__" in vars(target) else None
    return getattr(target, _SETTINGS, None)


def _check_conflict(target: Any, setting: str, known: str, given: str | None) -> None:
    if given is not None and given != known:
        shown = getattr(target, "__qualname__", target)
        raise ValueError(
            f"{shown} is an ONNX function with the {setting} {known!r} already; it cannot be {given!r} too"
        )


def _default_name(target: Any) -> str:
    """A function's own name, or the name of its class for ``__call__``."""
    while isinstance(target, functools.partial):
        target = target.func
    words = getattr(target, "__qualname__", class_of(target).__qualname__).split(".")
    name = words[-2] if words[-1] == "__call__" and len(words) > 1 else words[-1].strip("<>")
    return "".join(letter if letter.isalnum() or letter == "_" else "_" for letter in name)


def _wrapped(function: Any, settings: _Settings) -> Any:
    @functools.wraps(function)
    def onnx_function_call(*args: Any, **kwargs: Any) -> Any:
        if not _exporting.get():
            return function(*args, **kwargs)
        return _marked_call(function, settings, args, kwargs)

    if isinstance(function, (types.FunctionType, types.BuiltinFunctionType)):
        setattr(onnx_function_call, _SETTINGS, settings)
        return onnx_function_call
    return _Callable(function, onnx_function_call, settings)


class _Callable:
    """Wraps a callable that is not a plain function, such as a jitted one; only the call is changed."""

    def __init__(self, target: Any, call: Callable[..., Any], settings: _Settings) -> None:
        functools.update_wrapper(self, target, updated=())
        self.__wrapped__ = target
        self._call = call
        setattr(self, _SETTINGS, settings)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._call(*args, **kwargs)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __getattr__(self, name: str) -> Any:
        if name == "__wrapped__":  # copying and unpickling ask for it before it is set
            raise AttributeError(name)
        return getattr(self.__wrapped__, name)

    def __reduce__(self) -> str | tuple[Any, ...]:
        """Pickled by name if it has one, like functions; otherwise as the wrapper of its target."""
        name = getattr(self, "__qualname__", None)
        return name or (_wrapped, (self.__wrapped__, getattr(self, _SETTINGS)))


def _marked_call(function: Any, settings: _Settings, args: Any, kwargs: Any) -> Any:
    from jax2onnx._door import function_marks

    tracers, names = _tracers(_named_arguments(function, settings.is_class, args, kwargs))
    token = function_marks.begin(
        tracers, name=settings.name, namespace=settings.namespace, unique=settings.unique, inputs=names
    )
    return _with_tracers(function(*args, **kwargs), lambda results: function_marks.end(token, results))


def _tracers(arguments: Iterable[tuple[str, Any]]) -> tuple[list[Any], tuple[str, ...]]:
    """The traced values among the arguments, which determine the order of the function's inputs, and their names."""
    import jax

    from jax2onnx._door.inputs import path_text

    tracers, names = [], []
    for name, value in arguments:
        try:
            leaves, _ = jax.tree_util.tree_flatten_with_path(value)
        except (TypeError, ValueError):  # JAX cannot flatten it: its values are found by their use
            continue
        for path, leaf in leaves:
            if isinstance(leaf, jax.core.Tracer):
                tracers.append(leaf)
                names.append(".".join(filter(None, (name, path_text(path)))).removesuffix(".value"))
    return tracers, tuple(names)


def _named_arguments(function: Any, is_class: bool, args: Any, kwargs: Any) -> Iterator[tuple[str, Any]]:
    """The arguments and their names; a method's own object comes last, without a name."""
    try:
        named = list(inspect.signature(function).bind(*args, **kwargs).arguments.items())
    except (TypeError, ValueError):  # no signature, or arguments that do not fit it: the call itself will report it
        named = [("", value) for value in (*args, *kwargs.values())]
    has_self = bool(named) and (is_class or named[0][0] == "self")
    yield from named[has_self:]
    if has_self:
        yield "", named[0][1]


def _is_kept_whole(item: Any) -> bool:
    """Containers without an identity of their own are rebuilt around their values; anything else is left alone."""
    frozen = dataclasses.is_dataclass(item) and getattr(getattr(item, "__dataclass_params__", None), "frozen", False)
    return not (item is None or isinstance(item, (tuple, list, dict)) or frozen)


def _with_tracers(result: Any, through: Callable[[list[Any]], list[Any]]) -> Any:
    import jax

    try:
        leaves, structure = jax.tree.flatten(result, is_leaf=_is_kept_whole)
    except (TypeError, ValueError):  # JAX cannot flatten it: its values leave the function all the same
        through([])
        return result
    places = [index for index, leaf in enumerate(leaves) if isinstance(leaf, jax.core.Tracer)]
    if not places:
        return result
    for index, value in zip(places, through([leaves[index] for index in places]), strict=True):
        leaves[index] = value
    return structure.unflatten(leaves)


@contextlib.contextmanager
def calls_marked() -> Iterator[None]:
    """Inside this block, calls of decorated functions leave their marks."""
    before = _exporting.set(True)
    try:
        with _own_traces() if _any_decorated else contextlib.nullcontext():  # without: what JAX traced before is valid
            yield
    finally:
        _exporting.reset(before)


def _own_traces() -> Any:
    """Part of the key of JAX's trace cache: programs with marks and programs without are not mixed up."""
    from jax.experimental.xla_metadata import set_xla_metadata

    return set_xla_metadata(jax2onnx="functions")
