"""The trace of a model without weights, whose weights are the first inputs of its program, and their binding."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import jax

from jax2onnx._door.abstract import abstract_leaves, filled
from jax2onnx._door.functions import calls_marked
from jax2onnx._door.modules import Recording
from jax2onnx._door.pure import made_pure
from jax2onnx._door.tracing import Traced
from jax2onnx._door.weights import LATER, Missing, Reference, Rename, bound_weights, used_inputs


class AbstractRecording:
    """The parts of such a model. Weights that are inputs also count in finding the path to the model."""

    def __init__(self, recording: Recording, weights: tuple[Any, ...]) -> None:
        self._recording = recording
        self.weights = weights
        self.name_modules = recording.name_modules

    def name_parameters(self, arrays: list[Any]) -> list[str | None]:
        return self._recording.name_parameters([*arrays, *self.weights])[: len(arrays)]

    def names_of_weights(self) -> list[str]:
        names = self._recording.name_parameters(list(self.weights))
        return [name or f"weight_{index}" for index, name in enumerate(names)]


def trace_abstract(fn: Any, args: list[Any], kwargs: dict[str, Any]) -> Traced:
    leaves = abstract_leaves(fn)
    if not leaves:
        raise ValueError(
            "weights was given, but the model already has all its weights: it contains no jax.ShapeDtypeStruct"
        )
    seen: list[AbstractRecording] = []

    def run(weights: tuple[Any, ...], args: list[Any], kwargs: dict[str, Any]) -> Any:
        model = filled(fn, list(weights))
        recording = Recording(model)
        seen.append(AbstractRecording(recording, weights))
        with recording.around():
            return model(*args, **kwargs)

    with calls_marked():
        jaxpr, shapes = jax.make_jaxpr(run, return_shape=True)(tuple(leaves), args, kwargs)
    return made_pure(jaxpr), shapes, seen[-1]


def explain_missing_weights(error: TypeError, fn: Any) -> None:
    """Extend JAX's message if a model without weights is traced as if it had them."""
    if "ShapeDtypeStruct" in str(error) and abstract_leaves(fn):
        error.add_note('The model has no weights: pass weights=SOURCE, or weights="later" to add them later.')


class WeightSource(NamedTuple):
    """The caller's settings for the weights of a model that has none."""

    source: Any
    rename: Rename
    allow_surplus: bool
    by_reference: bool
    touch: bool
    path: str | None  # of the model

    @property
    def has_numbers(self) -> bool:
        return not self.by_reference and not (isinstance(self.source, str) and self.source == LATER)

    def bound(self, jaxpr: Any, recording: Any) -> list[tuple[str, Any]] | None:
        """For each of the program's first inputs, its name and its source; None for a model that has its weights."""
        if self.source is None:
            return None
        used = used_inputs(jaxpr.jaxpr, len(recording.weights))
        missing = [
            Missing(name, weight.aval.shape, weight.aval.dtype, is_used)
            for name, weight, is_used in zip(recording.names_of_weights(), recording.weights, used, strict=True)
        ]
        folder = None if self.path is None else os.path.dirname(os.path.abspath(self.path))
        reference = Reference(folder, self.touch) if self.by_reference else None
        return bound_weights(self.source, missing, self.rename, self.allow_surplus, reference)
