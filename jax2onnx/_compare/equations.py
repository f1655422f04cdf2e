"""A JAX program run equation by equation, each with its value and its joined trace; loop bodies on demand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.extend.core as jax_core
import numpy as np

from jax2onnx._door.jax_types import is_users_file
from jax2onnx._door.origins import Frame


@dataclass
class Equation:
    primitive: str
    trace: tuple[Frame, ...]  # its own frames, then those of the calls around it, innermost first
    values: list[np.ndarray]
    inputs: list[Any]
    params: dict[str, Any]

    @property
    def place(self) -> Frame | None:
        return next((frame for frame in self.trace if is_users_file(frame.file or "")), None)


def run_program(closed: Any, arguments: Sequence[Any]) -> tuple[list[Equation], list[Any]]:
    """Every equation in order, with those of inlined calls in place of the call, and the results."""
    equations: list[Equation] = []
    results = _run(closed.jaxpr, closed.consts, arguments, (), equations)
    return equations, results


def run_for_results(closed: Any, arguments: Sequence[Any]) -> list[Any]:
    """Only the results; values are released once nothing reads them any more."""
    return _run(closed.jaxpr, closed.consts, arguments, (), None)


def steps(equation: Equation) -> Iterator[list[Equation]]:
    """The equations of each execution of the body of a loop or branch, in order; nothing for other equations."""
    walk = {"scan": _scan, "while": _while, "cond": _cond}.get(equation.primitive)
    if walk:
        yield from walk(equation)


def _scan(equation: Equation) -> Iterator[list[Equation]]:
    params, inputs = equation.params, equation.inputs
    closed = params["jaxpr"]
    consts, carried = _scan_counts(params)
    carry, rows = list(inputs[consts : consts + carried]), inputs[consts + carried :]
    order = range(params["length"])
    for index in reversed(order) if params["reverse"] else order:
        equations: list[Equation] = []
        arguments = [*inputs[:consts], *carry, *(array[index] for array in rows)]
        carry = _run(closed.jaxpr, closed.consts, arguments, equation.trace, equations)[:carried]
        yield equations


def _scan_counts(params: dict[str, Any]) -> tuple[int, int]:
    """The numbers of constants and carries. Up to JAX 0.10 they are numbers, later a tree (constants, carries, xs)."""
    if "num_consts" in params:
        return params["num_consts"], params["num_carry"]
    consts, carried, _ = (len(part) for part in params["ft_in"].unpack())
    return consts, carried


def _while(equation: Equation) -> Iterator[list[Equation]]:
    params, inputs = equation.params, equation.inputs
    test, body = params["cond_jaxpr"], params["body_jaxpr"]
    first, second = params["cond_nconsts"], params["cond_nconsts"] + params["body_nconsts"]
    carry = list(inputs[second:])
    while bool(_run(test.jaxpr, test.consts, [*inputs[:first], *carry], (), [])[0]):
        equations: list[Equation] = []
        carry = _run(body.jaxpr, body.consts, [*inputs[first:second], *carry], equation.trace, equations)
        yield equations


def _cond(equation: Equation) -> Iterator[list[Equation]]:
    branches = equation.params["branches"]
    chosen = branches[min(max(int(equation.inputs[0]), 0), len(branches) - 1)]
    equations: list[Equation] = []
    _run(chosen.jaxpr, chosen.consts, equation.inputs[1:], equation.trace, equations)
    yield equations


def _run(
    jaxpr: Any,
    consts: Sequence[Any],
    arguments: Sequence[Any],
    outer: tuple[Frame, ...],
    equations: list[Equation] | None,
) -> list[Any]:
    """Return the results; ``equations`` receives every equation."""
    last_read = {atom: eqn for eqn in jaxpr.eqns for atom in eqn.invars if not isinstance(atom, jax_core.Literal)}
    for atom in jaxpr.outvars:
        if not isinstance(atom, jax_core.Literal):
            last_read[atom] = None
    values: dict[Any, Any] = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *arguments), strict=True))

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, jax_core.Literal) else values[atom]

    for eqn in jaxpr.eqns:
        inputs = [read(atom) for atom in eqn.invars]
        trace = (*_frames(eqn.source_info.traceback), *outer)
        inlined = _inlined(eqn)
        if inlined is not None:
            results = _run(*inlined, inputs, trace, equations)
        else:
            results = _bind(eqn, inputs)
            results = list(results) if eqn.primitive.multiple_results else [results]
            if equations is not None:
                arrays = [_array(result) for result in results]
                equations.append(Equation(eqn.primitive.name, trace, arrays, inputs, eqn.params))
        values.update(zip(eqn.outvars, results, strict=True))
        for atom in {atom for atom in eqn.invars if not isinstance(atom, jax_core.Literal)}:
            if last_read[atom] is eqn:
                del values[atom]
    return [read(atom) for atom in jaxpr.outvars]


def _bind(eqn: Any, inputs: list[Any]) -> Any:
    params = eqn.primitive.get_bind_params(eqn.params)
    # Up to JAX 0.9 the functions among the parameters were separate from the rest.
    functions, params = params if isinstance(params, tuple) else ((), params)
    with eqn.ctx.manager:
        return eqn.primitive.bind(*functions, *inputs, **params)


def _inlined(eqn: Any) -> tuple[Any, Sequence[Any]] | None:
    """The program of a call (jit, custom_jvp_call, checkpoint, …), with the same inputs and outputs as the call."""
    if eqn.primitive.name in ("scan", "while", "cond"):
        return None
    for value in eqn.params.values():
        if isinstance(value, jax_core.ClosedJaxpr):
            jaxpr, consts = value.jaxpr, value.consts
        elif isinstance(value, jax_core.Jaxpr) and not value.constvars:
            jaxpr, consts = value, ()
        else:
            continue
        if _same_types(jaxpr.invars, eqn.invars) and _same_types(jaxpr.outvars, eqn.outvars):
            return jaxpr, consts
    return None


def _same_types(left: Sequence[Any], right: Sequence[Any]) -> bool:
    shapes = [
        [(getattr(var.aval, "shape", None), getattr(var.aval, "dtype", None)) for var in side] for side in (left, right)
    ]
    return shapes[0] == shapes[1]


def _frames(traceback: Any) -> tuple[Frame, ...]:
    if traceback is None:
        return ()
    return tuple(Frame(frame.file_name, frame.line_num, frame.function_name) for frame in traceback.frames)


def _array(value: Any) -> np.ndarray:
    if isinstance(value, jax.Array) and jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):
        value = jax.random.key_data(value)
    return np.asarray(value)
