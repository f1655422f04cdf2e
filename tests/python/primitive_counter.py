"""Writes down which test exports which primitives, for tools/coverage.py: on when COUNT_PRIMITIVES names a file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from jax.extend.core import ClosedJaxpr, Jaxpr

from jax2onnx import _export


def primitives(jaxpr: Any, seen: set[int]) -> Iterator[str]:
    """The names of all primitives of a jaxpr and of those in its parameters."""
    if isinstance(jaxpr, ClosedJaxpr) and not isinstance(jaxpr, Jaxpr):
        jaxpr = jaxpr.jaxpr
    if id(jaxpr) in seen:
        return
    seen.add(id(jaxpr))
    for equation in jaxpr.eqns:
        yield equation.primitive.name
        for value in equation.params.values():
            for item in value if isinstance(value, (tuple, list)) else (value,):
                if isinstance(item, (Jaxpr, ClosedJaxpr)):
                    yield from primitives(item, seen)


@pytest.fixture(autouse=True)
def count_primitives(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    path = os.environ.get("COUNT_PRIMITIVES")
    if not path:
        return
    convert = _export._core.convert

    def counting(**arguments: Any) -> Any:
        names = sorted(set(primitives(arguments["jaxpr"], set())))
        with open(path, "a", encoding="utf-8") as record:
            record.write("\t".join([request.node.nodeid, *names]) + "\n")
        return convert(**arguments)

    monkeypatch.setattr(_export._core, "convert", counting)
