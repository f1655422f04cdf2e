"""A random program from a seed: types are asked of JAX statement by statement, so every program is a valid one.

A statement is drawn from a family, tried with ``jax.eval_shape``, and kept when JAX takes it and its result is small.
"""

from __future__ import annotations

import random
from typing import Any

import jax
from families import contraction, control, elementwise, indexing, randomness, reduction, shape
from scope import KINDS, NoFit, Scope, acceptable, same_shape

from program import SYMBOL, Body, Input, Program, Statement, names_in, trial, without_dead_statements

FAMILIES = (
    # family, weight at the top of a program, weight in a nested function
    (elementwise, 30, 45),
    (shape, 20, 15),
    (indexing, 14, 8),
    (reduction, 14, 8),
    (contraction, 10, 5),
    (randomness, 1, 0.5),
    (control, 11, 3),
)
TRIES = 60  # draws for one statement; most fail for want of a fitting value
DEEPEST = 2


class Generator:
    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.x64 = self.rng.random() < 0.25
        self.names = 0
        self.depth = 0
        self.errors: list[str] = []  # what JAX said to drafts; a healthy operator has few

    def program(self) -> Program:
        with jax.enable_x64(self.x64):
            inputs = self._inputs()
            types = self._input_types(inputs)
            statements = []
            for _ in range(self.rng.randint(3, 10)):
                statement = self._statement(types)
                if statement:
                    statements.append(statement)
        program = Program(self.seed, self.x64, inputs, statements, [])
        program.results = _unread(statements) or [inputs[0].name]
        return without_dead_statements(program)

    def _inputs(self) -> list[Input]:
        rng = self.rng
        symbolic = rng.random() < 0.25
        inputs: list[Input] = []
        base = [rng.choice([1, 2, 3, 4]) for _ in range(4)]
        for index in range(rng.randint(2, 5)):
            kind = rng.choice("ffffiiub" if index else "f")
            dtypes = [name for name in KINDS[kind] if self.x64 or not name.endswith("64")]
            if inputs and rng.random() < 0.4:
                dtypes = [value.dtype for value in inputs if value.dtype in dtypes] or dtypes
            rank = rng.choice([0, 1, 1, 2, 2, 2, 3, 3, 4])
            sizes: list[int | str] = list(base[4 - rank :])  # shared sizes, so that values go together
            sizes = [rng.choice([1, 2, 3]) if rng.random() < 0.1 else size for size in sizes]
            sizes = [0 if rng.random() < 0.01 else size for size in sizes]
            if symbolic and sizes and rng.random() < 0.7:
                sizes[0] = SYMBOL
            inputs.append(Input(f"x{index}", sizes, rng.choice([dtypes[0], *dtypes])))
        if rng.random() < 0.5:
            inputs.append(Input(f"x{len(inputs)}", rng.choice([[], [2], [3]]), "int32"))
        return inputs

    def _input_types(self, inputs: list[Input]) -> dict[str, Any]:
        (size,) = jax.export.symbolic_shape(SYMBOL)
        shapes = [[size if n == SYMBOL else n for n in value.shape] for value in inputs]
        pairs = zip(inputs, shapes, strict=True)
        return {value.name: jax.ShapeDtypeStruct(tuple(sizes), value.dtype) for value, sizes in pairs}

    def _statement(self, types: dict[str, Any]) -> Statement | None:
        """A statement over these values; its results are added to them."""
        scope = Scope(self.rng, types, self.x64, self._body)
        weights = [row[1 if self.depth == 0 else 2] for row in FAMILIES]
        for _ in range(TRIES):
            family = self.rng.choices(FAMILIES, weights)[0][0]
            if family is control and self.depth >= DEEPEST:
                continue
            try:
                statement = self.rng.choice(family.FAMILY)(scope)
                statement.targets = ["v0"]
                results = trial(statement, types)
            except NoFit:
                continue
            except Exception as error:  # JAX refuses the draft
                self.errors.append(f"{type(error).__name__}: {str(error).splitlines()[:1]}")
                continue
            if not 1 <= len(results) <= 4 or not all(acceptable(result) for result in results):
                continue
            statement.targets = [self._name("v") for _ in results]
            if len(results) == 1 and _is_sequence(statement.text):
                statement.text = f"({statement.text})[0]"
            types.update(zip(statement.targets, results, strict=True))
            return statement
        return None

    def _body(
        self, scope: Scope, param_types: list[Any], wanted: Any, count: int | None, prefix: str
    ) -> tuple[Body, Any]:
        """A nested function; it ends in a value of the wanted type, or in its last one."""
        self.depth += 1
        try:
            outer = {name: scope.types[name] for name in scope.types if self.rng.random() < 0.3}
            params = [self._name(prefix) for _ in param_types]
            types = {**outer, **dict(zip(params, param_types, strict=True))}
            statements = []
            for _ in range(count or self.rng.randint(1, 3)):
                statement = self._statement(types)
                if statement:
                    statements.append(statement)
            if not statements:
                raise NoFit
            if wanted is None:
                name = statements[-1].targets[-1]
                return Body(params, _needed(statements, name), name), types[name]
            last = self._ending(types, params, wanted)
            if isinstance(last, Statement):
                statements.append(last)
                last = last.targets[0]
            return Body(params, _needed(statements, last), last), wanted
        finally:
            self.depth -= 1

    def _ending(self, types: dict[str, Any], params: list[str], wanted: Any) -> str | Statement:
        fitting = [
            name
            for name, type_ in types.items()
            if type_.dtype == wanted.dtype and same_shape(type_.shape, wanted.shape)
        ]
        made = [name for name in fitting if name.startswith("v") and not name.startswith("x")]
        if made:
            return made[-1]
        scalars = [name for name, type_ in types.items() if len(type_.shape) == 0]
        base = [name for name in fitting if name in params] or fitting
        if not base:
            raise NoFit
        target = self._name("v")
        if scalars:
            text = "jnp.where({0} == {0}, {0}, {1}.astype({0}.dtype))"
            types[target] = wanted
            return Statement([target], text, [base[0], scalars[-1]], exact=True)
        types[target] = wanted
        return Statement([target], "-{0}" if str(wanted.dtype) != "bool" else "~{0}", [base[0]], exact=True)

    def _name(self, prefix: str) -> str:
        self.names += 1
        return f"{prefix}{self.names}"


def _is_sequence(text: str) -> bool:
    return text.startswith(("jnp.split", "lax.split"))


def _needed(statements: list[Statement], result: str) -> list[Statement]:
    """At least one statement stays, so that a nested function is never empty."""
    needed, kept = set(names_in(result)), []
    for statement in reversed(statements):
        if needed & set(statement.targets):
            kept.append(statement)
            needed |= statement.reads()
    return kept[::-1] or statements[-1:]


def _unread(statements: list[Statement]) -> list[str]:
    read = set().union(*(statement.reads() for statement in statements))
    return [name for statement in statements for name in statement.targets if name not in read]


def generate(seed: int) -> Program:
    return Generator(seed).program()


if __name__ == "__main__":
    import sys

    from program import Printer

    for seed in map(int, sys.argv[1:]):
        print(Printer().program(generate(seed)))
