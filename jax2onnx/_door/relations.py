"""Relations between sizes that a program takes for granted, found if JAX cannot trace it without them.

A library that gives every axis of every input a name of its own (as Keras does) says less than its model needs: that
two sequences have the same length, or that a sequence is no longer than a table of positions. JAX then fails with an
inconclusive comparison, or with shapes that do not fit. What it could not decide is assumed, the function is traced
again, and the user is told for which sizes the model is valid. A comparison on the user's own line is left to the user.
"""

from __future__ import annotations

import contextlib
import dis
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import TypeVar

from jax2onnx._door.errors import warn_user
from jax2onnx._door.jax_types import InconclusiveDimension, is_users_file

_MOST_TRACES = 12
_TABLE = 16  # a bound of at least this is more likely the length of a table than of a window
_COMPARISON = re.compile(r"comparison '(.+?)' (>=|<=|>|<) '(.+?)' is inconclusive")
_CHOICE = re.compile(r"\b(?:min|max)\(([^(),]+), ([^(),]+)\)")  # of sizes, one of which the program expects
_SHAPE = re.compile(r"[\[(]([^\[\]()]*)[\])]")
_NUMBER = re.compile(r"-?\d+")
_NAME = re.compile(r"[A-Za-z_]\w*")
# What JAX raises if sizes do not fit or cannot be compared.
_REFUSALS = (InconclusiveDimension, TypeError, ValueError)
_MIRRORED = {">=": "<=", "<=": ">=", ">": "<", "<": ">"}

Result = TypeVar("Result")


@dataclass(frozen=True)
class Relations:
    """Assumptions about dimension names: some are synonyms of others, some are bounded."""

    names: dict[str, str] = field(default_factory=dict)
    bounds: tuple[str, ...] = ()

    def renamed(self, text: str) -> str:
        return _NAME.sub(lambda match: self.names.get(match[0], match[0]), text)

    def same(self, name: str, other: str) -> Relations:
        """The relations with ``other`` renamed to ``name``."""
        names = {key: name if value == other else value for key, value in self.names.items()}
        merged = Relations({**names, other: name}, ())
        return Relations(merged.names, tuple(map(merged.renamed, self.bounds)))

    def bounded(self, bound: str) -> Relations:
        return Relations(self.names, (*self.bounds, bound))

    def __str__(self) -> str:
        said = [f"{other!r} is {name!r}" for other, name in self.names.items()]
        return ", ".join([*said, *self.bounds])


def with_relations(attempt: Callable[[Relations], Result], known: Sequence[str]) -> Result:
    """What ``attempt`` returns under as few relations as possible; its own error if none help.

    ``known`` lists the dimension names that the caller used, in the order of the inputs.
    """
    left = _MOST_TRACES

    def search(relations: Relations) -> tuple[Result, Relations]:
        nonlocal left
        left -= 1
        try:
            return attempt(relations), relations
        except _REFUSALS as error:
            if _is_users_question(error):
                raise
            for further in _candidates(str(error), relations, known):
                if left:
                    with contextlib.suppress(*_REFUSALS):
                        return search(further)
            raise

    result, relations = search(Relations())
    if relations != Relations():
        _warn(relations)
    return result


def _is_users_question(error: Exception) -> bool:
    """Whether one of the user's own lines compares sizes, whose result is for the user to decide."""
    found, traceback = None, error.__traceback__
    while traceback is not None:
        found = traceback if is_users_file(traceback.tb_frame.f_code.co_filename) else found
        traceback = traceback.tb_next
    if found is None or _COMPARISON.search(str(error)) is None:
        return False
    return dis.opname[found.tb_frame.f_code.co_code[found.tb_lasti]] == "COMPARE_OP"


def _warn(relations: Relations) -> None:
    warn_user(f"JAX cannot trace the function for all sizes of its inputs; the model is for those where {relations}")


def _candidates(message: str, relations: Relations, known: Sequence[str]) -> Iterator[Relations]:
    names = [name for name in known if name not in relations.names]
    comparison = _COMPARISON.search(message)
    if comparison is None:
        for name, other in _pairs_that_differ(_CHOICE.sub("?", message), names):
            yield relations.same(name, other)
        bounds = [text for choice in _CHOICE.finditer(message) for text in _bounds(choice[1], "<=", choice[2], 0)]
    else:
        left, sign, right = comparison.groups()
        if left in names and right in names:
            yield relations.same(*sorted((left, right), key=names.index))
        bounds = _bounds(left, sign, right, 1)
    for text in bounds:
        if text not in relations.bounds:
            yield relations.bounded(text)


def _bounds(left: str, sign: str, right: str, apart: int) -> list[str]:
    """That the comparison holds and that it fails, the likelier first; the two bounds differ by ``apart``."""
    if _NUMBER.fullmatch(left):
        return _bounds(right, _MIRRORED[sign], left, apart)
    at_least, strict = sign in (">=", ">"), sign in (">", "<")
    if not _NUMBER.fullmatch(right):
        low, high = (right, f"{right} - {apart}") if at_least != strict else (f"{right} + {apart}", right)
        texts = [f"{left} >= {low}", f"{left} <= {high}"]
        return texts if at_least else texts[::-1]
    low = int(right) + (apart if at_least == strict else 0)
    texts = [f"{left} >= {low}", f"{left} <= {low - apart}"]
    return texts[::-1] if low >= _TABLE else texts


def _pairs_that_differ(message: str, known: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Two names in the same position of two shapes of the message, aligned at their ends as in JAX."""
    shapes = [[size.strip() for size in text.split(",") if size.strip()] for text in _SHAPE.findall(message)]
    seen = set()
    for one, two in combinations(shapes, 2):
        for first, second in zip(reversed(one), reversed(two), strict=False):
            pair = tuple(sorted((first, second), key=lambda name: known.index(name) if name in known else -1))
            if first != second and first in known and second in known and pair not in seen:
                seen.add(pair)
                yield pair[0], pair[1]
