"""Primitives that JAX itself defines as a function of other primitives: the traced function takes their place.

JAX knows which primitives these are; there is no list here. Either their lowering rules were made by ``lower_fun``,
which keeps the function, or they are objects that expand themselves (JAX's "high" primitives, such as ``jnp.nonzero``
from JAX 0.12 on). Anything that cannot be found in this way has no expansion, and the core reports it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import jax
import jax.extend.core as jax_core
import numpy as np
from jax.export import is_symbolic_dim

from jax2onnx import _core
from jax2onnx._door.devices import on_one_device, spans_devices
from jax2onnx._door.pure import made_pure


@cache
def lowered_primitives() -> frozenset[str]:
    """The primitives that the core knows and that need no expansion."""
    known = {name for name, (kind, _) in _core.plugins().items() if kind != "refused"}
    return frozenset(known - set(_OF_KEYS) - {"shard_map"})  # of which some are expanded all the same


def expand(equation: Any) -> Any:
    """The jaxpr that computes what the equation does, or None."""
    if equation.primitive.name in _OF_KEYS:
        return _expand_keys(equation)
    if equation.primitive.name == "shard_map" and not spans_devices(equation.params):
        return None
    if equation.primitive.name == "call_exported":
        return _traced_before(equation.params["exported"])
    function = _in_line(equation) if equation.primitive.name == "noinline" else defining_function(equation.primitive)
    if function is None:
        return None
    avals = [_abstract(atom.aval) for atom in equation.invars]
    if None in avals:
        return None
    try:
        return made_pure(jax.make_jaxpr(partial(function, **equation.params))(*avals))
    except NotImplementedError:  # a kernel that JAX itself can run only on its device
        return None


def _bits(algorithm: Any, *, bit_width: int, shape: tuple[int, ...]) -> Callable[..., Any]:
    return lambda key: algorithm.random_bits(key, bit_width, shape)


def _split(algorithm: Any, *, shape: tuple[int, ...]) -> Callable[..., Any]:
    return lambda key: algorithm.split(key, shape)


# What to do with one key, by primitive; it is applied to all keys of an array.
_OF_KEYS: dict[str, Callable[..., Callable[..., Any]]] = {
    "random_bits": _bits,
    "random_split": _split,
    "random_fold_in": lambda algorithm: algorithm.fold_in,
    "random_seed": lambda algorithm, **_: algorithm.seed,
}


def _expand_keys(equation: Any) -> Any:
    """Keys of algorithms that the core does not know, expanded by the algorithm itself; their words are a last axis."""
    seeding = equation.primitive.name == "random_seed"
    keys = (equation.outvars if seeding else equation.invars)[0].aval
    impl = keys.dtype._impl
    if keys.dtype.name == "key<fry>":
        return None
    function = _OF_KEYS[equation.primitive.name](impl, **equation.params)
    operands = [jax.ShapeDtypeStruct(atom.aval.shape, atom.aval.dtype) for atom in equation.invars]
    axes = [operand.ndim for operand in operands]
    if not seeding:
        operands[0] = jax.ShapeDtypeStruct((*keys.shape, *impl.key_shape), np.uint32)
    for depth in range(max(axes), 0, -1):  # operands broadcast from the left, as JAX broadcasts a seed to many keys
        function = jax.vmap(function, in_axes=[0 if count >= depth else None for count in axes])
    return jax.make_jaxpr(function)(*operands)


def _interpreted(*operands: Any, interpret: Any, **params: Any) -> Any:
    """A Pallas kernel as JAX itself runs it if there is no device for it: a loop over the grid."""
    from jax._src.pallas.hlo_interpreter import pallas_call_hlo_interpret

    return pallas_call_hlo_interpret(*operands, **params)


def _in_line(equation: Any) -> Callable[..., Any] | None:
    """Equinox's ``noinline`` calls a function back by its number: a literal, with which its implementation can do."""
    number, *_ = equation.invars
    if not isinstance(number, jax_core.Literal):
        return None
    return lambda _, *operands, **params: equation.primitive.impl(np.asarray(number.val), *operands, **params)


def _traced_before(exported: Any) -> Any:
    """The jaxpr of a function that this process exported: JAX keeps it for the derivative. There is none in a file."""
    cells = getattr(exported._get_vjp, "__closure__", None) or ()
    known = not any(is_symbolic_dim(size) for aval in exported.in_avals for size in aval.shape)
    found = (cell.cell_contents for cell in cells if isinstance(cell.cell_contents, jax_core.ClosedJaxpr))
    return made_pure(next(found, None)) if known else None


# Primitives that JAX defines as a function that their lowering rules do not reveal.
_DEFINED: dict[str, Callable[..., Any]] = {"pallas_call": _interpreted, "shard_map": on_one_device}


def defining_function(primitive: Any) -> Callable[..., Any] | None:
    """The function that JAX lowers in place of the primitive, if it does so on every platform."""
    try:
        from jax._src.interpreters import mlir

        rule = mlir._lowerings.get(primitive)
    except (ImportError, AttributeError):  # another JAX: no expansions
        return None
    if primitive.name in _DEFINED:
        return _DEFINED[primitive.name]
    if primitive.name == "call_hi_primitive":
        return getattr(primitive, "to_lojax", None)
    rule = getattr(rule, "rule", rule)
    code = getattr(rule, "__code__", None)
    if code is None or not rule.__qualname__.startswith("lower_fun."):
        return None
    cells = dict(zip(code.co_freevars, rule.__closure__ or (), strict=True))
    return cells["fun"].cell_contents if "fun" in cells else None


def _abstract(aval: Any) -> jax.ShapeDtypeStruct | None:
    if not hasattr(aval, "shape") or not hasattr(aval, "dtype"):
        return None
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=getattr(aval, "weak_type", False))
