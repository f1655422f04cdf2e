"""Models without weights, with ``jax.ShapeDtypeStruct`` in place of arrays, as returned by ``jax.eval_shape`` and
similar functions. For the trace, such a model is rebuilt with traced values in these places; the model itself is never
changed."""

from __future__ import annotations

import copy
import functools
import sys
import types
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from jax2onnx._door.jax_types import is_users_file
from jax2onnx._door.modules import is_module_class
from jax2onnx._door.parameters import own_attribute

_DEEPEST = 200


def abstract_leaves(fn: Any) -> list[jax.ShapeDtypeStruct]:
    """The weights that a model lacks, in the order in which ``filled`` takes them."""
    found: list[jax.ShapeDtypeStruct] = []

    def note(leaf: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
        found.append(leaf)
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)  # a new one, so that its holder is rebuilt in both walks

    _Filling(note).rebuilt(fn)
    return found


def filled(fn: Any, values: list[Any]) -> Any:
    """The model with these values in place of the weights that it lacks."""
    left = iter(values)
    return _Filling(lambda leaf: next(left)).rebuilt(fn)


class _Filling:
    """One walk over what a callable holds. Objects without missing weights stay the same."""

    def __init__(self, value_for: Callable[[jax.ShapeDtypeStruct], Any]) -> None:
        self._value_for = value_for
        self._done: dict[int, tuple[Any, Any]] = {}  # by identity, with the object, which must not be freed meanwhile
        self._depth = 0

    def rebuilt(self, item: Any) -> Any:
        if isinstance(item, jax.ShapeDtypeStruct):
            return self._value_for(item)
        if isinstance(
            item, (jax.Array, np.ndarray, np.generic, str, bytes, int, float, complex, type, types.ModuleType)
        ):
            return item
        known = self._done.get(id(item))
        if known is not None:
            return known[1]
        if item is None or self._depth > _DEEPEST:
            return item
        self._done[id(item)] = (item, item)  # if it contains itself, it stays the same there
        self._depth += 1
        result = self._rebuilt(item)
        self._depth -= 1
        self._done[id(item)] = (item, result)
        return result

    def _rebuilt(self, item: Any) -> Any:
        if isinstance(item, types.FunctionType):
            return self._function(item)
        if isinstance(item, types.MethodType):
            owner = self.rebuilt(item.__self__)
            return item if owner is item.__self__ else types.MethodType(item.__func__, owner)
        if isinstance(item, functools.partial):
            return self._partial(item)
        if _is_nnx_module(item):
            return self._nnx_module(item)
        if _is_bound_linen_module(item):
            module, variables = item.unbind()
            new = self.rebuilt(variables)
            return item if new is variables else module.bind(new)
        leaves, structure = jax.tree_util.tree_flatten(
            item, is_leaf=lambda child: child is not item and _is_whole(child)
        )
        if len(leaves) != 1 or leaves[0] is not item:
            return self._tree(item, leaves, structure)
        wrapped = own_attribute(item, "__wrapped__")  # a jitted function: the program is the same without jit
        if callable(wrapped):
            new = self.rebuilt(wrapped)
            return item if new is wrapped else new
        return self._object(item) if is_module_class(type(item)) else item

    def _tree(self, item: Any, leaves: list[Any], structure: Any) -> Any:
        new = [self.rebuilt(leaf) for leaf in leaves]
        return item if _same(new, leaves) else structure.unflatten(new)

    def _partial(self, item: functools.partial) -> Any:
        old = [item.func, *item.args, *item.keywords.values()]
        new = [self.rebuilt(part) for part in old]
        if _same(new, old):
            return item
        count = 1 + len(item.args)
        return functools.partial(*new[:count], **dict(zip(item.keywords, new[count:], strict=True)))

    def _nnx_module(self, item: Any) -> Any:
        """Rebuilt with the library's own functions, which keep shared parts shared."""
        from flax import nnx

        definition, state = nnx.split(item)
        new = self.rebuilt(state)
        return item if new is state else nnx.merge(definition, new)

    def _function(self, item: types.FunctionType) -> Any:
        if not is_users_file(item.__code__.co_filename) and not item.__closure__:
            return item
        cells = item.__closure__ or ()
        old = [cell.cell_contents if cell != types.CellType() else None for cell in cells]
        new = [self.rebuilt(value) for value in old]
        changed = self._globals(item)
        defaults = self.rebuilt(item.__defaults__)
        if _same(new, old) and not changed and defaults is item.__defaults__:
            return item
        closure = tuple(
            cell if value is before else types.CellType(value)
            for cell, value, before in zip(cells, new, old, strict=True)
        )
        variables = {**item.__globals__, **changed} if changed else item.__globals__
        function = types.FunctionType(item.__code__, variables, item.__name__, defaults, closure)
        function.__kwdefaults__ = self.rebuilt(item.__kwdefaults__)
        function.__qualname__, function.__module__ = item.__qualname__, item.__module__
        return function

    def _globals(self, item: types.FunctionType) -> dict[str, Any]:
        if not is_users_file(item.__code__.co_filename):
            return {}
        changed = {}
        for name in _global_names(item.__code__):
            if name in item.__globals__:
                value = item.__globals__[name]
                new = self.rebuilt(value)
                if new is not value:
                    changed[name] = new
        return changed

    def _object(self, item: Any) -> Any:
        state = own_attribute(item, "__dict__")
        if not isinstance(state, dict):
            return item
        changed = {}
        for name, value in list(state.items()):
            new = self.rebuilt(value)
            if new is not value:
                changed[name] = new
        if not changed:
            return item
        result = copy.copy(item)
        result.__dict__.update(changed)
        return result


def _same(new: list[Any], old: list[Any]) -> bool:
    return all(one is other for one, other in zip(new, old, strict=True))


def _is_whole(item: Any) -> bool:
    """Whether it is rebuilt on its own, not as part of a tree."""
    return isinstance(item, (jax.ShapeDtypeStruct, functools.partial)) or _is_nnx_module(item)


def _is_nnx_module(item: Any) -> bool:
    nnx = sys.modules.get("flax.nnx")
    return nnx is not None and isinstance(item, nnx.Module)


def _is_bound_linen_module(item: Any) -> bool:
    linen = sys.modules.get("flax.linen")
    return linen is not None and isinstance(item, linen.Module) and item.scope is not None


def _global_names(code: types.CodeType) -> dict[str, None]:
    names = dict.fromkeys(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names.update(_global_names(constant))
    return names
