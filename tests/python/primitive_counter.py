"""Writes down which test exports which primitives, for tools/coverage.py: on when COUNT_PRIMITIVES names a file.

One line a test, so that runs of parts of the suite, or of several processes, add up in one file. Nothing is run or
compared meanwhile: only tracing and conversion are needed to count, and tests may fail for want of the rest.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from jax.extend.core import ClosedJaxpr, Jaxpr

from jax2onnx._door import export


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
def count_primitives(
    request: pytest.FixtureRequest, convert_only: None, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    convert = export._core.convert
    found: set[str] = set()
    seen: set[int] = set()
    programs = []  # kept until the test ends, so that no other one gets the number of a jaxpr that was seen

    def counting(**arguments: Any) -> Any:
        programs.append(arguments["jaxpr"])
        found.update(primitives(arguments["jaxpr"], seen))
        return convert(**arguments)

    monkeypatch.setattr(export._core, "convert", counting)
    monkeypatch.setenv("JAX2ONNX_CHECK_PASSES", "0")
    yield
    if found:
        with open(os.environ["COUNT_PRIMITIVES"], "a", encoding="utf-8") as record:
            record.write("\t".join([request.node.nodeid, *sorted(found)]) + "\n")
