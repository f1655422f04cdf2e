"""What JAX itself does to a traced program before compiling it, if the program contains more than arrays.

Types that a library defines (``jax.experimental.hijax``, such as Flax's variables with ``hijax=True``) become the
arrays they are made of, and references (``jax.new_ref``) become values that are passed on. JAX and the library know
which primitives these are and what each of them means: their rules are applied, and the core sees a program of arrays.
Equations keep the lines they came from. References and variables that were made outside the function start with their
current content; what the function leaves in them is not a result of the model.
"""

from __future__ import annotations

from typing import Any

import jax.extend.core as jax_core


def made_pure(jaxpr: Any) -> Any:
    """The closed jaxpr with arrays only; the jaxpr itself if it already is, or if this JAX has no such rules."""
    try:
        from jax._src.interpreters import partial_eval, pxla
        from jax._src.state.types import AbstractRef, RefEffect

        if _open(jaxpr).is_high:
            jaxpr = _without_library_types(jaxpr, partial_eval)
        held = any(isinstance(var.aval, AbstractRef) for var in _open(jaxpr).constvars)
        if held or _changes_memory(jaxpr, RefEffect):
            jaxpr = _without_references(jaxpr, pxla)
    except (ImportError, AttributeError, TypeError, NotImplementedError):
        pass  # the core refuses what is left, by name and line
    return jaxpr


def _open(jaxpr: Any) -> Any:
    return jaxpr.jaxpr if hasattr(jaxpr, "jaxpr") else jaxpr


def _changes_memory(jaxpr: Any, reference_effect: type) -> bool:
    from jax._src.core import internal_mutable_array_effect

    effects = _open(jaxpr).effects
    return any(effect is internal_mutable_array_effect or isinstance(effect, reference_effect) for effect in effects)


def _without_library_types(jaxpr: Any, partial_eval: Any) -> Any:
    moved, boxes = partial_eval.convert_const_himutables(jaxpr)
    lowered = partial_eval.lower_jaxpr2(moved)
    pairs = zip(moved.in_aval_qdds, boxes, strict=False)  # the boxes are its first inputs
    held = [array for aval, box in pairs for array in aval.read_loval(box)]
    results = len(_open(lowered).outvars) - len(_open(jaxpr).outvars)  # preceded by what is left in the boxes
    return _holding(lowered, range(len(held)), held, slice(results, None))


def _without_references(jaxpr: Any, pxla: Any) -> Any:
    """JAX moves references that are closed over behind the inputs, and their last values behind the outputs."""
    pure, _, outside = pxla._discharge_refs(jaxpr)
    count = len(_open(pure).invars)
    held = list(outside.in_mut)  # the importer reads their content and names them by the path to them
    return _holding(pure, range(count - len(held), count), held, slice(0, len(_open(jaxpr).outvars)))


def _holding(jaxpr: Any, places: range, values: list[Any], results: slice) -> Any:
    """The jaxpr with some of its inputs as constants, and with only some of its results."""
    inner = _open(jaxpr)
    inputs = [var for place, var in enumerate(inner.invars) if place not in places]
    constants = [*inner.constvars, *(inner.invars[place] for place in places)]
    changed = inner.replace(
        constvars=constants,
        invars=inputs,
        outvars=inner.outvars[results],
        debug_info=inner.debug_info.with_unknown_names(),
    )
    return jax_core.ClosedJaxpr(changed, [*jaxpr.consts, *values])
