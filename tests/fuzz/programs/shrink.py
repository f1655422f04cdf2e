"""Makes a failing program small: keeps every step after which it still fails in the same way."""

from __future__ import annotations

import copy
import dataclasses
import re
from collections.abc import Callable, Iterator
from typing import Any

import jax

from program import SYMBOL, Body, Input, Program, Statement, trial, without_dead_statements

MOST_TRIES = 250


def shrink(program: Program, still_fails: Callable[[Program], bool]) -> Program:
    tries = 0
    progress = True
    while progress and tries < MOST_TRIES:
        progress = False
        for candidate in _candidates(program):
            tries += 1
            if tries >= MOST_TRIES:
                break
            if still_fails(candidate):
                program, progress = candidate, True
                break
    return program


def _candidates(program: Program) -> Iterator[Program]:
    """Smaller programs, the boldest first. They need not be valid: one that is not does not fail in the same way."""
    for count in (1, 2):
        if len(program.results) > count:
            for start in range(0, len(program.results), count):
                yield _tidy(program, results=program.results[start : start + count])
    if len(program.results) > 2:
        for name in program.results:
            yield _tidy(program, results=[other for other in program.results if other != name])
    yield from _cut(program)
    yield from _without_bodies(program)
    yield from _smaller_inputs(program)
    if program.x64 and not re.search(r"64", str(program.to_data())):
        yield dataclasses.replace(program, x64=False)


def _tidy(program: Program, **changes: Any) -> Program:
    return without_dead_statements(dataclasses.replace(copy.deepcopy(program), **changes))


def _types(program: Program) -> dict[str, Any]:
    with jax.enable_x64(program.x64):
        (size,) = jax.export.symbolic_shape(SYMBOL)
        types = {
            value.name: jax.ShapeDtypeStruct(tuple(size if n == SYMBOL else n for n in value.shape), value.dtype)
            for value in program.inputs
        }
        for statement in program.statements:
            types.update(zip(statement.targets, trial(statement, types), strict=False))
    return types


def _cut(program: Program) -> Iterator[Program]:
    """A statement's result becomes an input, and what led to it goes."""
    try:
        types = _types(program)
    except Exception:
        return
    for index in range(len(program.statements) - 1, -1, -1):
        statement = program.statements[index]
        if set(statement.targets) & set(program.results):
            continue
        inputs = list(program.inputs)
        for target in statement.targets:
            shape = [n if isinstance(n, int) else str(n) for n in types[target].shape]
            if any(isinstance(n, str) and n != SYMBOL for n in shape):
                break
            inputs.append(Input(target, shape, str(types[target].dtype)))
        else:
            rest = program.statements[:index] + program.statements[index + 1 :]
            yield _tidy(program, inputs=inputs, statements=rest)


def _without_bodies(program: Program) -> Iterator[Program]:
    """Statements of nested functions go, their results read from a parameter or another value of the function."""
    bodies = _bodies(program.statements)
    for number, body in enumerate(bodies):
        for index in range(len(body.statements)):
            smaller = copy.deepcopy(program)
            inner = _bodies(smaller.statements)[number]
            statement = inner.statements.pop(index)
            earlier = [target for other in inner.statements[:index] for target in other.targets]
            for substitute in [*inner.params, *earlier, *statement.operands][:3]:
                replaced = copy.deepcopy(smaller)
                target = _bodies(replaced.statements)[number]
                for old in statement.targets:
                    _rename(target, old, substitute)
                yield _tidy(replaced)


def _bodies(statements: list[Statement]) -> list[Body]:
    found: list[Body] = []
    for statement in statements:
        for body in statement.bodies:
            found += [body, *_bodies(body.statements)]
    return found


def _rename(body: Body, old: str, new: str) -> None:
    body.result = re.sub(rf"\b{old}\b", new, body.result)
    for statement in body.statements:
        statement.operands = [new if name == old else name for name in statement.operands]
        for inner in statement.bodies:
            _rename(inner, old, new)


def _smaller_inputs(program: Program) -> Iterator[Program]:
    if program.symbolic():
        fixed = copy.deepcopy(program)
        for value in fixed.inputs:
            value.shape = [3 if n == SYMBOL else n for n in value.shape]
        yield fixed
    for number, value in enumerate(program.inputs):
        for axis, size in enumerate(value.shape):
            for smaller in (1, 2):
                if isinstance(size, int) and smaller < size:
                    changed = copy.deepcopy(program)
                    changed.inputs[number].shape[axis] = smaller
                    yield changed
        if value.dtype not in ("float32", "int32", "bool") and value.shape is not None:
            changed = copy.deepcopy(program)
            changed.inputs[number].dtype = "float32" if "float" in value.dtype else "int32"
            yield changed
