"""The user's inputs as abstract values, each with a name."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.export import SymbolicScope, symbolic_shape

from jax2onnx._door.relations import Relations


class InputSpecs:
    """Turns what the caller gave for ``inputs`` and ``input_params`` into ``jax.ShapeDtypeStruct`` trees."""

    def __init__(self, default_dtype: Any, relations: Relations) -> None:
        self._relations = relations
        self.places: dict[str, str] = {}  # each dimension name -> where it is first used
        self.narrowed: list[str] = []  # inputs of types that JAX narrows
        self._default_dtype = default_dtype

    @functools.cached_property
    def _scope(self) -> SymbolicScope:
        return SymbolicScope(self._relations.bounds)

    def positional(self, inputs: Any) -> list[Any]:
        if isinstance(inputs, (str, bytes, Mapping)) or not isinstance(inputs, Sequence):
            raise TypeError(
                "inputs must be a sequence with one entry per argument of the function "
                f"(jax.ShapeDtypeStruct, array, or shape tuple such as ('B', 128)); got {type(inputs).__name__}"
            )
        return [self._tree(spec, f"inputs[{index}]") for index, spec in enumerate(inputs)]

    def keyword(self, params: Any) -> dict[str, Any]:
        if params is None:
            return {}
        if not isinstance(params, Mapping) or not all(isinstance(name, str) for name in params):
            raise TypeError("input_params must be a dict of argument name -> value")
        return {name: self._tree(value, f"input_params[{name!r}]") for name, value in params.items()}

    def _tree(self, spec: Any, where: str) -> Any:
        """Every leaf of a tree as an abstract value; containers keep their type and None is kept, as in JAX."""
        if is_input_leaf(spec):
            return self._leaf(spec, where)
        leaves, structure = jax.tree_util.tree_flatten_with_path(spec, is_leaf=is_input_leaf)
        return structure.unflatten(self._leaf(leaf, where + jax.tree_util.keystr(path)) for path, leaf in leaves)

    def _leaf(self, spec: Any, where: str) -> jax.ShapeDtypeStruct:
        if _has_shape(spec):
            if isinstance(spec, np.ndarray) and spec.dtype.kind not in "biufcV":
                raise TypeError(f"{where} holds {spec.dtype}, a type that JAX does not have")
            return self._abstract(spec.shape, self._kept(spec.dtype, where), where)
        if isinstance(spec, (bool, int, float, complex)):
            return self._abstract((), jnp.asarray(spec).dtype, where)
        if _is_shape(spec):
            return self._abstract(spec, self._default_dtype, where)
        raise TypeError(
            f"{where} must be a jax.ShapeDtypeStruct, an array, or a shape tuple of integers and dimension names; "
            f"got {spec!r} of type {type(spec).__name__}"
        )

    def _kept(self, dtype: Any, where: str) -> Any:
        """The type that JAX traces with; one narrower than the given type is noted."""
        kept = jax.dtypes.canonicalize_dtype(dtype) if isinstance(dtype, np.dtype) else dtype
        if kept != dtype:
            self.narrowed.append(f"{where} ({dtype} to {kept})")
        return kept

    def _abstract(self, shape: Sequence[Any], dtype: Any, where: str) -> jax.ShapeDtypeStruct:
        if all(type(size) is int and size >= 0 for size in shape):
            return jax.ShapeDtypeStruct(tuple(shape), dtype)
        return jax.ShapeDtypeStruct(
            tuple(self._dimension(size, f"{where}, axis {axis}") for axis, size in enumerate(shape)), dtype
        )

    def _dimension(self, size: Any, where: str) -> Any:
        if isinstance(size, str):
            try:
                (dimension,) = symbolic_shape(self._relations.renamed(size), scope=self._scope)
            except Exception as error:
                raise ValueError(f"{where}: {size!r} is not a dimension name or expression: {error}") from error
            for name in re.findall(r"[A-Za-z_]\w*", size):
                self.places.setdefault(name, where)
            return dimension
        if size is None:
            raise ValueError(f"{where}: a dimension is None; give it a name instead, for example 'B'")
        if isinstance(size, (bool, float)):
            raise TypeError(f"{where}: a dimension must be an integer or a name; got {size!r}")
        if isinstance(size, (int, np.integer)):
            if size < 0:
                raise ValueError(f"{where}: a dimension cannot be negative; got {size}")
            return int(size)
        return size  # already one of JAX's symbolic dimensions


class NamedShape:
    """A shape with a type, as given on the command line; sizes may be names."""

    def __init__(self, shape: tuple[int | str, ...], dtype: str) -> None:
        self.shape = shape
        self.dtype = jnp.dtype(dtype)


def is_input_leaf(spec: Any) -> bool:
    """Whether this stands for one array: a value with a shape and a type, or only a shape."""
    return _has_shape(spec) or _is_shape(spec)


def _has_shape(spec: Any) -> bool:
    return hasattr(spec, "shape") and hasattr(spec, "dtype")


def _is_shape(spec: Any) -> bool:
    """Whether this is a tuple or list of sizes. An empty tuple is the shape of a scalar."""
    if not isinstance(spec, (tuple, list)) or hasattr(spec, "_fields"):
        return False
    return all(size is None or isinstance(size, (int, float, str, np.integer)) or _is_symbolic(size) for size in spec)


def _is_symbolic(size: Any) -> bool:
    return type(size).__name__ == "_DimExpr"


def path_text(path: Sequence[Any]) -> str:
    """A path into a tree as text: ``layers.0.kernel``."""
    parts = []
    for key in path:
        for attribute in ("key", "idx", "name"):
            if hasattr(key, attribute):
                parts.append(str(getattr(key, attribute)))
                break
        else:
            parts.append(str(key))
    return ".".join(parts)


def input_names(args: list[Any], kwargs: dict[str, Any], given: Sequence[str] | None) -> list[str]:
    """One name per flat input: those given, then ``in_<number>``; keyword inputs keep their own names."""
    positional = len(jax.tree.leaves(args))
    names = [f"in_{index}" for index in range(positional)]
    names += [path_text(path) for path, _ in jax.tree_util.tree_flatten_with_path(kwargs)[0]]
    if given is not None:
        names[: len(given)] = checked_names(given, "input_names", positional, len(names))
    for name in names:
        check_name("the name of an input", name)
    return names


def argument_names(fn: Any, count: int) -> list[str]:
    """The names of the function's first positional arguments; ``in_<number>`` if they are unknown."""
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    names = [each.name for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    rest = next((each.name for each in parameters if each.kind == each.VAR_POSITIONAL), "in")
    return (names + [f"{rest}_{index}" for index in range(len(names), count)])[:count]


def automatic_input_names(fn: Any, args: list[Any]) -> list[str]:
    """A name for each flat positional input: that of the argument, with keys and fields after a dot."""
    names = []
    for name, value in zip(argument_names(fn, len(args)), args, strict=True):
        for path, _ in jax.tree_util.tree_flatten_with_path(value)[0]:
            names.append(f"{name}.{path_text(path)}" if path else name)
    return names


def automatic_output_names(shapes: Any, taken: Sequence[str]) -> list[str]:
    """A name for each flat output: its keys and fields, or ``out_<number>`` if it has only a position."""
    names: list[str] = []
    for index, (path, _) in enumerate(jax.tree_util.tree_flatten_with_path(shapes)[0]):
        by_position = all(hasattr(key, "idx") for key in path)
        name = f"out_{index}" if by_position else path_text(path)
        while name in taken or name in names:
            name += "_out"
        names.append(name)
    return names


def checked_names(given: Any, argument: str, least: int, most: int) -> list[str]:
    """The names that the caller gave; raises an error that says what was expected."""
    if isinstance(given, str) or not isinstance(given, Sequence) or not all(isinstance(name, str) for name in given):
        raise TypeError(f"{argument} must be a sequence of strings; got {given!r}")
    if not least <= len(given) <= most:
        count = str(least) if least == most else f"{least} to {most}"
        raise ValueError(f"{argument} must have {count} name{'' if most == 1 else 's'}; got {len(given)}")
    if "" in given:
        raise ValueError(f"{argument} contains an empty name")
    for name in given:
        check_name(argument, name)
    return list(given)


def check_name(argument: str, name: str) -> None:
    """Check a name: names in a model are UTF-8, and many readers end them at a NUL."""
    try:
        valid = b"\0" not in name.encode()
    except UnicodeEncodeError:
        valid = False
    if not valid:
        raise ValueError(f"{argument}: {name!r} contains a character that is not allowed in names")
