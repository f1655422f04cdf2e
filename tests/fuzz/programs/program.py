"""A random program as data, and how it is printed as Python source.

A program is a list of statements, each on a line of its own: so every line of the source is one statement, a ``def``
or a ``return``, and a node of the exported model can be held to the statements' lines. The data can be stored as JSON,
and shortened by ``shrink.py``.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import pathlib
import re
from collections.abc import Callable, Iterator
from typing import Any

import jax

HEADER = """\
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax2onnx import onnx_function
"""
SYMBOL = "B"  # the size that is known only at run time


@dataclasses.dataclass
class Body:
    """A function nested in a statement; it may read names of the scopes around it."""

    params: list[str]
    statements: list[Statement]
    result: str  # an expression over names

    def reads(self) -> set[str]:
        inner = set(self.params).union(*(statement.targets for statement in self.statements))
        names = set(names_in(self.result)).union(*(statement.reads() for statement in self.statements))
        return names - inner


@dataclasses.dataclass
class Statement:
    """``targets = text``, where {0}, {1} … of the text are the operands and {f0}, {f1} … the bodies."""

    targets: list[str]
    text: str
    operands: list[str] = dataclasses.field(default_factory=list)
    bodies: list[Body] = dataclasses.field(default_factory=list)
    exact: bool = False  # computes no rounded number: nothing of it is perturbed (conditioning.py)

    def reads(self) -> set[str]:
        return set(self.operands).union(*(body.reads() for body in self.bodies))

    def expression(self, operand: Callable[[str], str] = str) -> str:
        functions = {f"f{index}": f"{self.targets[0]}_f{index}" for index in range(len(self.bodies))}
        return self.text.format(*(operand(name) for name in self.operands), **functions)


@dataclasses.dataclass
class Input:
    name: str
    shape: list[int | str]
    dtype: str


@dataclasses.dataclass
class Program:
    seed: int
    x64: bool
    inputs: list[Input]
    statements: list[Statement]
    results: list[str]

    def symbolic(self) -> bool:
        return any(SYMBOL in value.shape for value in self.inputs)

    def to_data(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @staticmethod
    def from_data(data: dict[str, Any]) -> Program:
        inputs = [Input(**value) for value in data["inputs"]]
        return Program(data["seed"], data["x64"], inputs, _statements(data["statements"]), list(data["results"]))


def _statements(data: list[dict[str, Any]]) -> list[Statement]:
    return [
        Statement(
            **{**item, "bodies": [Body(b["params"], _statements(b["statements"]), b["result"]) for b in item["bodies"]]}
        )
        for item in data
    ]


# Functions that are computed from series: near zero they are right to the last place of 1, not of their result.
_SPECIAL = re.compile(
    r"gamma|zeta|bessel|beta|psi|erf_inv|ndtri|\bi[01]e?\b|logaddexp|logistic|expit|nn\.sigmoid|silu|gelu"
)


def is_special(text: str) -> bool:
    return _SPECIAL.search(text) is not None


def names_in(expression: str) -> list[str]:
    return re.findall(r"\b[a-z]+\d+\b", expression)


class Printer:
    """Prints a program, and knows the function of every statement's line.

    ``noisy`` wraps the operands and the result of every statement (see conditioning.py).
    """

    def __init__(self, noisy: bool = False) -> None:
        self.lines = [*HEADER.splitlines(), "", ""]
        self.functions: dict[int, str] = {}  # line -> qualified name of the function it stands in
        self.statements: dict[int, Statement] = {}
        self.noisy = noisy
        self.noises = 0

    def program(self, program: Program) -> str:
        self.lines.append(f"def program({', '.join(value.name for value in program.inputs)}):")
        self.definition = len(self.lines)
        self.block(program.statements, 1, "program")
        self.lines.append(f"    return ({', '.join(program.results)},)")
        return "\n".join(self.lines) + "\n"

    def block(self, statements: list[Statement], depth: int, function: str) -> None:
        for statement in statements:
            for index, body in enumerate(statement.bodies):
                name = f"{statement.targets[0]}_f{index}"
                self.lines.append("    " * depth + f"def {name}({', '.join(body.params)}):")
                self.block(body.statements, depth + 1, f"{function}.<locals>.{name}")
                self.lines.append("    " * (depth + 1) + f"return {body.result}")
            self.lines.append("    " * depth + f"{', '.join(statement.targets)} = {self._right_side(statement)}")
            self.functions[len(self.lines)] = function
            self.statements[len(self.lines)] = statement

    def holds(self, line: int, function: str, copies: bool) -> bool:
        """Is this a line of a statement in this function? What only copies an input to a result names the program."""
        if copies and line == self.definition and function == "program":
            return True
        return self.functions.get(line) == re.sub(r"(\.<locals>\.<lambda>)+$", "", function)

    def _right_side(self, statement: Statement) -> str:
        if not self.noisy:
            return statement.expression()
        return self._noise(statement.expression(lambda name: self._noise(name, statement)), statement, result=True)

    def _noise(self, expression: str, statement: Statement, result: bool = False) -> str:
        self.noises += 1
        special = result and is_special(statement.text)
        return f"noise({expression}, {self.noises}, {not statement.exact}, {special}, {result})"


def trial(statement: Statement, types: dict[str, Any]) -> list[Any]:
    """The types of a statement's results; raises whatever JAX raises when it makes no sense."""
    names = sorted(statement.reads())
    printer = Printer()
    printer.lines = [f"def trial({', '.join(names)}):"]
    printer.block([statement], 1, "trial")
    printer.lines[-1] = "    return " + statement.expression()
    namespace = dict(_namespace())
    exec("\n".join(printer.lines), namespace)
    result = jax.eval_shape(namespace["trial"], *(types[name] for name in names))
    return list(result) if isinstance(result, (tuple, list)) else [result]


def _namespace() -> dict[str, Any]:
    if not _NAMESPACE:
        exec(HEADER, _NAMESPACE)
    return _NAMESPACE


_NAMESPACE: dict[str, Any] = {}


def load(source: str, path: pathlib.Path, **names: Any) -> Callable[..., Any]:
    """Writes the source to a real file and imports it from there, so that its lines are real lines."""
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    vars(module).update(names)
    spec.loader.exec_module(module)
    return module.program


def each_body(statements: list[Statement]) -> Iterator[Body]:
    for statement in statements:
        for body in statement.bodies:
            yield body
            yield from each_body(body.statements)


def without_dead_statements(program: Program) -> Program:
    """Statements and inputs that no result needs are left out."""
    needed = set(program.results)
    kept: list[Statement] = []
    for statement in reversed(program.statements):
        if needed & set(statement.targets):
            kept.append(statement)
            needed |= statement.reads()
    inputs = [value for value in program.inputs if value.name in needed]
    return dataclasses.replace(program, inputs=inputs, statements=kept[::-1])
