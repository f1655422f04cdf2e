"""A program of halves computed in float32: what it gives where nothing is rounded on the way.

JAX rounds every step to halves, so that where many are added up it may be far from this; a graph that rounds less is
right as well, if it agrees with this.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

_HALVES = (jnp.float16, jnp.bfloat16)
_CALLS = ("jaxpr", "call_jaxpr", "fun_jaxpr")  # what they hold is computed in their place


class NotWidened(Exception):
    """A loop, a branch, or an operation on bits."""


def _is_half(dtype: Any) -> bool:
    return isinstance(dtype, (type, np.dtype)) and any(dtype == half for half in _HALVES)


def _wide(value: Any) -> Any:
    return jnp.asarray(value, jnp.float32) if hasattr(value, "dtype") and _is_half(value.dtype) else value


def widened(fn: Callable[..., Any], args: list[Any]) -> list[Any]:
    """The results of the function; NotWidened where it does more than compute one after the other."""
    traced = jax.make_jaxpr(fn)(*args)
    return _run(traced.jaxpr, traced.consts, args)


def _run(jaxpr: Any, consts: Any, args: Any) -> list[Any]:
    known: dict[Any, Any] = {}
    for variable, value in zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *args], strict=True):
        known[variable] = _wide(value)

    def read(atom: Any) -> Any:
        return _wide(np.asarray(atom.val, atom.aval.dtype)) if hasattr(atom, "val") else known[atom]

    for equation in jaxpr.eqns:
        results = _step(equation, [read(atom) for atom in equation.invars])
        known.update(zip(equation.outvars, results, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _step(equation: Any, inputs: list[Any]) -> list[Any]:
    primitive, params = equation.primitive, equation.params
    if primitive.name in ("scan", "while", "cond", "bitcast_convert_type", "reduce_precision"):
        raise NotWidened(primitive.name)
    inner = next((params[name] for name in _CALLS if name in params), None)
    if inner is not None:
        return _run(inner.jaxpr, inner.consts, inputs) if hasattr(inner, "consts") else _run(inner, [], inputs)
    params = {name: jnp.dtype("float32") if _is_half(value) else value for name, value in params.items()}
    results = primitive.bind(*inputs, **params)
    return results if primitive.multiple_results else [results]
