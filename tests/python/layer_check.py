"""What the tests of layers share: one case for each layer, inputs written as text, every public name accounted for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import pytest
from export_check import check_export

from jax2onnx._commands.target import parse_input
from jax2onnx._door.inputs import NamedShape

# The size that stands for "B" in each run; the model is exported with the name.
BATCHES = (2, 1, 7)


class Case(NamedTuple):
    """A layer, as something to call, and what to call it with: ``Case(build, "f32[B,8]")``."""

    build: Callable[[], Callable[..., Any]]
    inputs: tuple[str, ...]
    options: dict[str, Any]


def case(build: Callable[[], Callable[..., Any]], *inputs: str, **options: Any) -> Case:
    return Case(build, inputs, options)


def sampled(cases: Mapping[str, Case], only_when_asked: tuple[str, ...] = ()) -> list[Any]:
    """Test parameters: one case of each layer by default; variants (a name of several words), and layers whose names
    begin so, when all are asked for."""
    later = [" " in name or name.startswith(only_when_asked) for name in cases]
    return [pytest.param(name, marks=[pytest.mark.full] * wait) for name, wait in zip(cases, later, strict=True)]


def check_case(chosen: Case) -> onnx.ModelProto:
    return check_layer(chosen.build(), *chosen.inputs, **chosen.options)


def check_layer(fn: Callable[..., Any], *inputs: str, **options: Any) -> onnx.ModelProto:
    """Export with the dimensions as named and compare at every batch size."""
    specs = [NamedShape(*parse_input(text)[1:]) for text in inputs]
    symbolic = any("B" in spec.shape for spec in specs)
    runs = [[numbers(text, batch) for text in inputs] for batch in (BATCHES if symbolic else BATCHES[:1])]
    # Compiled as a whole: one compilation for each batch size instead of one for each operation.
    compiled = jax.jit(lambda *args: fn(*args))
    return check_export(fn, runs[0], specs=specs, more_args=runs[1:], reference=compiled, **options)


def numbers(text: str, batch: int) -> np.ndarray:
    """Values for an input such as ``f32[B,8]``: normal numbers, small integers, or both truth values."""
    _, dimensions, dtype = parse_input(text)
    shape = tuple(batch if size == "B" else size for size in dimensions)
    generator = np.random.default_rng(batch)
    if dtype == "bool":
        return generator.integers(0, 2, shape).astype(bool)
    if "int" in dtype:
        return generator.integers(0, 5, shape).astype(dtype)
    return generator.standard_normal(shape).astype(jnp.dtype(dtype))


def varied(tree: Any) -> Any:
    """The same tree with every floating-point array moved a little, so that no parameter is all zeros or ones."""
    generator = np.random.default_rng(0)

    def vary(leaf: Any) -> Any:
        if not isinstance(leaf, jax.Array) or not jnp.issubdtype(leaf.dtype, jnp.floating):
            return leaf
        return leaf + jnp.asarray(generator.uniform(0.05, 0.3, leaf.shape), leaf.dtype)

    return jax.tree.map(vary, tree)


def check_coverage(public: Iterable[str], cases: Iterable[str], exceptions: Mapping[str, str]) -> None:
    """Every public name has a case or a reason to have none; a new release's layer fails here until it has either."""
    covered = {name.split(" ")[0] for name in cases}
    missing = set(public) - covered - set(exceptions)
    assert not missing, f"neither tested nor listed with a reason: {sorted(missing)}"
    assert not covered & set(exceptions), f"tested, so no exception: {sorted(covered & set(exceptions))}"
