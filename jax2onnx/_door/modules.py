"""Which module of a model was running when an equation was recorded."""

from __future__ import annotations

from typing import NamedTuple


class Part(NamedTuple):
    """A part of a model, as an element of JAX's name stack beside the scopes that users name."""

    name: str

    def wrap(self, stack: list[str]) -> None:
        """What JAX asks of an element when it prints a name stack."""
