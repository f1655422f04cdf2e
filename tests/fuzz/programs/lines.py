"""Which lines of a program must be named by a node of its model, found anew from JAX's own program.

A line counts when one of its equations is needed for a result and computes something that no simplification can take
away. What may be simplified is left out on purpose: moving elements, an operand of 0 or 1 (or all bits, of and and or),
two equal operands, an axis of size 1, empty arrays, and everything that follows from a value that could be known at
export. Looked at are the statements of the program itself; nested ones are held to the rule that every frame is a real
line.
"""

from __future__ import annotations

import math
import pathlib
from typing import Any

import jax
import numpy as np
from jax.extend.core import Literal
from jax.interpreters import partial_eval
from scope import words

ELEMENTWISE = set(
    words(
        """
    sin cos tan tanh sinh cosh exp exp2 expm1 log log1p sqrt rsqrt cbrt asin acos atan asinh acosh atanh logistic erf
    erfc erf_inv lgamma digamma floor ceil is_finite abs sign add sub mul div pow atan2 max min eq ne lt le gt
    ge and or xor rem square population_count clz dot_general conv_general_dilated
    """
    )
)
ALONG_AXES = {
    # primitive: the parameter that names the axes
    "reduce_sum": "axes", "reduce_max": "axes", "reduce_min": "axes", "reduce_prod": "axes", "reduce_and": "axes",
    "reduce_or": "axes", "argmax": "axes", "argmin": "axes", "cumsum": "axis", "cumprod": "axis", "cummax": "axis",
    "cummin": "axis", "sort": "dimension",
}  # fmt: skip
# What these give depends on every element that they are given.
MOVING = {
    "neg",
    "not",
    "convert_element_type",
    "broadcast_in_dim",
    "copy",
    "expand_dims",
    "reshape",
    "squeeze",
    "stop_gradient",
    "transpose",
    "rev",
}
CALLS = {"jit": "jaxpr", "custom_jvp_call": "call_jaxpr", "remat2": "jaxpr", "checkpoint": "jaxpr"}


def required_lines(fn: Any, specs: list[Any], path: pathlib.Path) -> set[int]:
    closed = jax.make_jaxpr(fn)(*specs)
    jaxpr, _ = partial_eval.dce_jaxpr(closed.jaxpr, [True] * len(closed.jaxpr.outvars), instantiate=True)
    if "integer_pow[y=0]" in str(jaxpr):  # what led to x ** 0 is not needed, which JAX does not see
        return set()
    walk = _Walk(str(path))
    walk.jaxpr(jaxpr, [True] * len(jaxpr.invars), [True] * len(jaxpr.outvars), None)
    return walk.required


class _Walk:
    def __init__(self, path: str) -> None:
        self.path = path
        self.required: set[int] = set()

    def jaxpr(
        self, jaxpr: Any, varying_inputs: list[bool], needed_results: list[bool], caller: int | None
    ) -> list[bool]:
        """Which results vary with the inputs for sure; lines of what computes are added on the way."""
        needed = _needed(jaxpr, needed_results)
        varying = {var for var, varies in zip(jaxpr.invars, varying_inputs, strict=True) if varies}
        for equation in jaxpr.eqns:
            operands = [value for value in equation.invars if not isinstance(value, Literal)]
            varies = [not isinstance(value, Literal) and value in varying for value in equation.invars]
            line = caller or self._line(equation)
            name = equation.primitive.name
            if name in CALLS and CALLS[name] in equation.params:
                inner = equation.params[CALLS[name]]
                wanted = [var in needed for var in equation.outvars]
                results = self.jaxpr(getattr(inner, "jaxpr", inner), varies, wanted, line)
                varying.update(var for var, v in zip(equation.outvars, results, strict=True) if v)
            elif operands and all(value in varying for value in operands) and not _is_empty(equation):
                computes = _computes(equation)
                if computes and line and any(var in needed for var in equation.outvars):
                    self.required.add(line)
                if computes or name in MOVING:
                    varying.update(equation.outvars)
        return [not isinstance(value, Literal) and value in varying for value in jaxpr.outvars]

    def _line(self, equation: Any) -> int | None:
        traceback = equation.source_info.traceback
        for frame in traceback.frames if traceback else ():
            if frame.file_name == self.path:
                return frame.line_num
        return None


def _needed(jaxpr: Any, results: list[bool]) -> set[Any]:
    """What the results depend on for sure: not by way of what could do without some operand, as an index."""
    pairs = zip(jaxpr.outvars, results, strict=True)
    needed = {var for var, wanted in pairs if wanted and not isinstance(var, Literal)}
    for equation in reversed(jaxpr.eqns):
        wanted = [var in needed for var in equation.outvars]
        if not any(wanted) or _is_empty(equation):
            continue
        name = equation.primitive.name
        if name in CALLS and CALLS[name] in equation.params:
            inner = equation.params[CALLS[name]]
            inner = getattr(inner, "jaxpr", inner)
            read = _needed(inner, wanted)
            pairs = zip(equation.invars, inner.invars, strict=True)
            needed.update(value for value, var in pairs if var in read and not isinstance(value, Literal))
        elif name in MOVING or (_computes(equation) and len(equation.outvars) == 1):
            needed.update(value for value in equation.invars if not isinstance(value, Literal))
    return needed


def _is_empty(equation: Any) -> bool:
    return any(0 in value.aval.shape for value in (*equation.invars, *equation.outvars))


def _computes(equation: Any) -> bool:
    name = equation.primitive.name
    if name in ALONG_AXES:
        axes = equation.params[ALONG_AXES[name]]
        shape = equation.invars[0].aval.shape
        sizes = [shape[axis] for axis in (axes if isinstance(axes, tuple) else (axes,))]
        return not all(isinstance(size, int) for size in sizes) or math.prod(sizes) > 1
    if name not in ELEMENTWISE:
        return False
    if any(isinstance(value, Literal) and _simplifies(name, value) for value in equation.invars):
        return False
    return len({id(value) for value in equation.invars}) == len(equation.invars)


def _simplifies(name: str, literal: Any) -> bool:
    if np.all(np.isin(literal.val, (0, 1))):
        return True
    return name in ("and", "or") and np.all(np.invert(literal.val) == 0)
