"""How far a program's results may lie apart for no one's fault.

Two right computations round differently. A result may differ by the rounding of its own type, and by whatever the
program makes of rounding before it: after a cancellation much, after a floor or a comparison everything. That is
measured, not guessed: the program is run again with every operand and every result of a statement that rounds moved by
a few units in the last place, up or down at random, several times over. Where the runs lie apart, a difference of
that order is no error; where they agree, it is one, unless the model is right and the reference is not: a fused
operator that computes float16 in float32 does not overflow where JAX does. So results are last held against the same
program with all floats widened to float64.

Statements marked exact (moving, comparing, choosing, integers) are not perturbed: ties reach them as they are. Three
things change everywhere: the sign of a zero, because ONNX Runtime's Where does not keep it; numbers too small for full
precision, which XLA takes for zeros; and halves, which may stay in single precision from one operator to the next, in
ONNX Runtime or in the model itself. Special functions are right to the last place of 1, not of their result where that
is near zero: JAX's lgamma of 1 is 4.8e-7 in single precision.

And JAX has two answers: XLA simplifies what it compiles (a product with a boolean becomes a choice, which loses the
product's NaN), op by op it does not. Either is right.
"""

from __future__ import annotations

import dataclasses
import pathlib
import re
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from program import Printer, Program, Statement, load

RUNS = 24
# Units in the last place by which an operand or a result is moved.
ULPS = 4
# A result may be this many times further away than the runs lie apart.
SLACK = 8
# Relative tolerance of one rounding, in units in the last place; grows with the number of statements that round.
BASE_ULPS = 16
# ONNX Runtime keeps the factor of a product that it has fused in single precision, also of doubles.
EPSILON = {"float64": 2.0**-31, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
# Runs that are so many times as large have met a pole.
POLE = 4096
# What is less than the least float16, and so 0, or more than the greatest, and so infinite, need not be so in single
# precision.
LEAST_HALF, GREATEST_HALF = 2.0**-24, 65504.0
# Absolute tolerance, in units in the last place of 1: what a runtime's Sigmoid, Erf and Tanh are good for.
FLOOR_ULPS = 4
_FLOAT = re.compile(r"\bb?float(16|32)\b")


def base_tolerance(want: np.ndarray, depth: int) -> np.ndarray:
    """What the rounding of the type itself allows, after ``depth`` rounding statements."""
    name = want.dtype.name
    magnitude = np.abs(want.astype(np.float64))
    floor = FLOOR_ULPS / BASE_ULPS
    return BASE_ULPS * (1 + depth) * EPSILON[name] * (np.where(np.isfinite(magnitude), magnitude, 0.0) + floor)


def differs(want: np.ndarray, got: np.ndarray, tolerance: np.ndarray | None) -> np.ndarray:
    """Where two results are not the same; tolerance is None for exact types."""
    if tolerance is None:
        return want != got
    want, got = want.astype(np.float64), got.astype(np.float64)
    with np.errstate(invalid="ignore"):
        near = np.abs(want - got) <= tolerance
    return ~(near | (want == got) | (np.isnan(want) & np.isnan(got)))


class Perturbed:
    """A program whose rounding statements are moved at random, compiled once for a set of inputs."""

    def __init__(self, program: Program, path: pathlib.Path, options: dict[str, Any]) -> None:
        self.salt: Any = None
        printer = Printer(noisy=True)
        self.fn = load(printer.program(program), path, noise=self._noise)
        self.options = options
        self.compiled: dict[Any, Callable[..., Any]] = {}

    def runs(self, args: Sequence[np.ndarray]) -> list[list[np.ndarray]]:
        key = tuple(arg.shape for arg in args)
        if key not in self.compiled:
            lowered = jax.jit(self._with_salt).lower(np.uint32(0), *args)
            self.compiled[key] = lowered.compile(self.options)
        return [
            [np.asarray(leaf) for leaf in jax.tree.leaves(self.compiled[key](np.uint32(run), *args))]
            for run in range(RUNS)
        ]

    def _with_salt(self, salt: Any, *args: Any) -> Any:
        self.salt = salt
        return self.fn(*args)

    def _noise(self, value: Any, number: int, rounds: bool, special: bool, result: bool) -> Any:
        if isinstance(value, (tuple, list)):
            numbers = range(number * 31, number * 31 + len(value))
            return tuple(self._noise(*item, rounds, special, result) for item in zip(value, numbers, strict=True))
        value = jnp.asarray(value)
        name = value.dtype.name
        if name not in EPSILON:
            return value
        index = jax.lax.iota(jnp.uint32, max(int(np.prod(value.shape)), 1))[: int(np.prod(value.shape))]
        bits = (index + jnp.uint32(number * 7919 % 2**32)) * jnp.uint32(2654435761) + self.salt * jnp.uint32(40503)
        bits = (bits ^ (bits >> 15)) * jnp.uint32(2246822519)
        bits = (bits ^ (bits >> 13)) * jnp.uint32(3266489917)
        sign = ((bits >> 16) % 3).astype(jnp.int32).reshape(value.shape) - 1
        step = sign.astype(value.dtype) * jnp.asarray(ULPS * EPSILON[name], value.dtype)
        moved = value + value * step if rounds or name in ("float16", "bfloat16") else value
        moved = moved + step if special else moved
        moved = jnp.where(jnp.isfinite(moved), moved, value)
        if rounds and result and name == "float16":
            moved = moved + sign.astype(value.dtype) * LEAST_HALF
            moved = jnp.where(jnp.isinf(value) & (sign > 0), jnp.sign(value) * GREATEST_HALF, moved)
        if name != "float16":
            moved = jnp.where((jnp.abs(value) < jnp.finfo(value.dtype).tiny) & (sign > 0), value * 0, moved)
        return jnp.where((value == 0) & (moved == 0) & (sign < 0), -value, moved)


def widened(program: Program) -> Program:
    """The same program with float64 for every float."""

    def statements(items: list[Statement]) -> list[Statement]:
        return [
            dataclasses.replace(
                item,
                text=_FLOAT.sub("float64", item.text),
                bodies=[dataclasses.replace(body, statements=statements(body.statements)) for body in item.bodies],
            )
            for item in items
        ]

    inputs = [dataclasses.replace(value, dtype=_FLOAT.sub("float64", value.dtype)) for value in program.inputs]
    return dataclasses.replace(program, x64=True, inputs=inputs, statements=statements(program.statements))


def wide_results(
    program: Program, args: Sequence[np.ndarray], path: pathlib.Path, options: dict[str, Any]
) -> list | None:
    """What the widened program gives; None when it has no meaning, as with bitcasts."""
    try:
        with jax.enable_x64(True):
            fn = load(Printer().program(widened(program)), path)
            wide = [arg.astype(np.float64) if arg.dtype.name in EPSILON else arg for arg in args]
            results = jax.jit(fn).lower(*wide).compile(options)(*wide)
            return [np.asarray(leaf) for leaf in jax.tree.leaves(results)]
    except Exception:
        return None


def stepwise_results(fn: Callable[..., Any], args: Sequence[np.ndarray]) -> list[np.ndarray] | None:
    """What JAX gives op by op, nothing compiled together; None when it cannot."""
    try:
        with jax.disable_jit():
            return [np.asarray(leaf) for leaf in jax.tree.leaves(fn(*args))]
    except Exception:
        return None


def _kind(values: np.ndarray) -> np.ndarray:
    """Finite, infinite of either sign, or not a number."""
    return np.where(np.isnan(values), 3, np.where(np.isinf(values), np.sign(values), 0))


def excused(want: np.ndarray, got: np.ndarray, runs: Sequence[np.ndarray], tolerance: np.ndarray | None) -> np.ndarray:
    """Where the runs of the perturbed program lie so far apart that got may be right."""
    if tolerance is None:
        return np.any([run != want for run in runs], axis=0)
    wide = [run.astype(np.float64) for run in runs]
    center = want.astype(np.float64)
    unstable = np.any([_kind(run) != _kind(center) for run in wide], axis=0)
    with np.errstate(invalid="ignore", over="ignore"):
        spread = np.max([np.abs(run - center) for run in wide], axis=0)
        spread = np.where(np.isfinite(spread), spread, 0.0)
        near = np.abs(got.astype(np.float64) - center) <= SLACK * spread + tolerance
    return near | unstable | _beside_a_pole(center, got.astype(np.float64), wide)


def _beside_a_pole(center: np.ndarray, got: np.ndarray, runs: Sequence[np.ndarray]) -> np.ndarray:
    """Runs thousands of times as large as a number that is large say no more than that it is."""
    largest = np.max(np.abs(runs), axis=0)
    return (np.abs(center) > 1) & (largest > POLE * np.abs(center)) & (np.abs(got) > np.abs(center))
