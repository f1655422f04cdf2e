"""``jax.shard_map`` over several devices as one device computes it: an axis of the arrays in place of each mesh axis.

JAX's rules for ``vmap`` over an axis with a name say what each primitive makes of such an axis, collectives included.
They know nothing of the marks that tell which values differ between devices: these are taken off first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from math import prod
from typing import Any

import jax
import jax.extend.core as jax_core
import jax.numpy as jnp
from jax import lax

# Primitives that only differ from others by their marks, and those that are nothing but marks.
_UNMARKED: dict[str, Callable[[], Any]] = {
    "psum_invariant": lambda: lax.psum_p,
    "all_gather_invariant": lambda: lax.all_gather_p,
}
_MARKS = ("pvary", "pcast")


def spans_devices(params: dict[str, Any]) -> bool:
    return any(size != 1 for size in params["mesh"].shape.values())


def on_one_device(*operands: Any, mesh: Any, in_specs: Any, out_specs: Any, jaxpr: Any, **params: Any) -> list[Any]:
    """All that the devices compute, from whole arrays to whole arrays."""
    manual = params.get("newly_manual_axes", params.get("manual_axes", mesh.axis_names))
    names = [name for name in mesh.axis_names if name in manual]
    sizes = dict(mesh.shape)
    body: Callable[..., Any] = jax_core.jaxpr_as_fun(jax_core.ClosedJaxpr(_without_marks(jaxpr, sizes), ()))
    for name in reversed(names):
        axes = tuple(0 if name in _names(spec) else None for spec in in_specs)
        body = jax.vmap(body, in_axes=axes, axis_name=name, axis_size=sizes[name])
    parts = [_split(value, spec, names, sizes) for value, spec in zip(operands, in_specs, strict=True)]
    return [_joined(value, spec, names) for value, spec in zip(body(*parts), out_specs, strict=True)]


def _of_axis(entry: Any) -> tuple[str, ...]:
    """The mesh axes that an axis of an array is divided by, the slowest first."""
    return () if entry is None else entry if isinstance(entry, tuple) else (entry,)


def _names(spec: Sequence[Any]) -> list[str]:
    return [name for entry in spec for name in _of_axis(entry)]


def _split(value: Any, spec: Sequence[Any], names: list[str], sizes: dict[str, int]) -> Any:
    """The parts that the devices get: the mesh axes that divide the array in front, in the order of the mesh."""
    shape: list[Any] = []
    local, places = [], {}
    for axis, size in enumerate(value.shape):
        entry = _of_axis(spec[axis]) if axis < len(spec) else ()
        for name in entry:
            places[name] = len(shape)
            shape.append(sizes[name])
        local.append(len(shape))
        shape.append(size // prod(sizes[name] for name in entry))
    front = [places[name] for name in names if name in places]
    return jnp.transpose(jnp.reshape(value, shape), front + local)


def _joined(value: Any, spec: Sequence[Any], names: list[str]) -> Any:
    """The array that the parts make up; along a mesh axis that does not divide it, all parts are the same."""
    used = _names(spec)
    value = value[tuple(slice(None) if name in used else 0 for name in names)]
    front = [name for name in names if name in used]
    order: list[int] = []
    shape: list[Any] = []
    for axis in range(value.ndim - len(front)):
        entry = _of_axis(spec[axis]) if axis < len(spec) else ()
        merged = [*(front.index(name) for name in entry), len(front) + axis]
        order += merged
        shape.append(prod(value.shape[place] for place in merged))
    return jnp.reshape(jnp.transpose(value, order), shape)


def _without_marks(jaxpr: Any, sizes: dict[str, int]) -> Any:
    """The jaxpr with types that say nothing of devices, in nested jaxprs too."""
    known: dict[Any, Any] = {}

    def plain(atom: Any) -> Any:
        if isinstance(atom, jax_core.Literal):
            return atom
        if atom not in known:
            aval = atom.aval
            known[atom] = type(atom)(jax.core.ShapedArray(aval.shape, aval.dtype, weak_type=aval.weak_type))
        return known[atom]

    equations = []
    for equation in jaxpr.eqns:
        inputs = [plain(atom) for atom in equation.invars]
        if equation.primitive.name in _MARKS:
            known.update(zip(equation.outvars, inputs, strict=True))
            continue
        meant = _meant(equation, sizes)
        params = {key: _plain_param(value, sizes) for key, value in meant.params.items()}
        outputs = [plain(var) for var in equation.outvars]
        equations.append(meant.replace(invars=inputs, outvars=outputs, params=params, ctx=_context()))
    return jaxpr.replace(
        constvars=[plain(var) for var in jaxpr.constvars],
        invars=[plain(var) for var in jaxpr.invars],
        outvars=[plain(atom) for atom in jaxpr.outvars],
        eqns=equations,
    )


def _meant(equation: Any, sizes: dict[str, int]) -> Any:
    """An equation that computes the same and that vmap has a rule for."""
    name, params = equation.primitive.name, equation.params
    if name in _UNMARKED:
        primitive = _UNMARKED[name]()
        return equation.replace(primitive=primitive, params={**params, "axis_index_groups": None})
    if name == "ppermute":
        count = prod(sizes[axis] for axis in params["axis_name"])
        if len(params["perm"]) < count:
            (call,) = _traced(partial(_permuted_in_part, count=count, **params), equation, sizes).eqns
            return equation.replace(primitive=call.primitive, params=call.params)
    return equation


def _permuted_in_part(x: Any, *, axis_name: Any, perm: Any, count: int) -> Any:
    """Who is sent nothing gets zeros."""
    sources, targets = (set(range(count)) - {pair[side] for pair in perm} for side in (0, 1))
    whole = [*perm, *zip(sorted(sources), sorted(targets), strict=True)]
    served = jnp.array([place not in targets for place in range(count)])[lax.axis_index(axis_name)]
    return jnp.where(served, lax.ppermute(x, axis_name, whole), 0)


def _traced(fn: Callable[..., Any], equation: Any, sizes: dict[str, int]) -> Any:
    aval = equation.invars[0].aval
    return jax.make_jaxpr(jax.jit(fn), axis_env=list(sizes.items()))(jax.ShapeDtypeStruct(aval.shape, aval.dtype))


@cache
def _context() -> Any:
    """The context of an equation outside of every mesh."""
    return jax.make_jaxpr(lax.sin)(0.0).eqns[0].ctx


def _plain_param(value: Any, sizes: dict[str, int]) -> Any:
    if isinstance(value, jax_core.ClosedJaxpr):
        return jax_core.ClosedJaxpr(_without_marks(value.jaxpr, sizes), value.consts)
    if isinstance(value, jax_core.Jaxpr):
        return _without_marks(value, sizes)
    if type(value) is tuple:
        return tuple(_plain_param(item, sizes) for item in value)
    return value
