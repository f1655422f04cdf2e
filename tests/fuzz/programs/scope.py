"""What a random statement is made from: the values in scope, and choices among them."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp

from program import Body, Statement

KINDS = {
    "f": ("float32", "float16", "bfloat16", "float64"),
    "i": ("int8", "int16", "int32", "int64"),
    "u": ("uint8", "uint16", "uint32", "uint64"),
    "b": ("bool",),
}
KIND_OF = {dtype: kind for kind, dtypes in KINDS.items() for dtype in dtypes}
LARGEST = 512  # elements of a value


class NoFit(Exception):
    """No value in scope fits what an operator wants."""


class Scope:
    """The values a statement may read, with their types, and the random choices."""

    def __init__(self, rng: random.Random, types: dict[str, Any], x64: bool, make_body: Callable[..., Body]) -> None:
        self.rng = rng
        self.types = types
        self.x64 = x64
        self._make_body = make_body

    # Values

    def pick(self, kinds: str = "fiub", low: int = 0, high: int = 9, fits: Callable[[Any], bool] | None = None) -> str:
        """A value of one of these kinds, with a rank in the range; later ones are likelier."""
        names = [
            name
            for name, type_ in self.types.items()
            if self.kind(name) in kinds and low <= len(type_.shape) <= high and (fits is None or fits(type_))
        ]
        if not names:
            raise NoFit
        return names[max(self.rng.randrange(len(names)), self.rng.randrange(len(names)))]

    def partner(self, name: str) -> str:
        """A value of the same type that broadcasts with this one, or the value itself."""
        type_ = self.types[name]
        return self.pick(fits=lambda other: other.dtype == type_.dtype and _broadcasts(type_.shape, other.shape))

    def same(self, name: str) -> str:
        type_ = self.types[name]
        return self.pick(fits=lambda other: other.dtype == type_.dtype and same_shape(other.shape, type_.shape))

    def indices(self, low: int = 0, high: int = 2) -> str:
        return self.pick("iu", low, high, fits=lambda type_: all(isinstance(size, int) for size in type_.shape))

    def kind(self, name: str) -> str:
        return KIND_OF.get(str(self.types[name].dtype), "?")

    def rank(self, name: str) -> int:
        return len(self.types[name].shape)

    def shape(self, name: str) -> tuple[Any, ...]:
        return self.types[name].shape

    def dtype(self, name: str) -> str:
        return str(self.types[name].dtype)

    # Choices

    def axis(self, name: str) -> int:
        rank = self.rank(name)
        if rank == 0:
            raise NoFit
        return self.rng.randrange(-rank if self.chance(0.2) else 0, rank)

    def some_axes(self, name: str) -> tuple[int, ...]:
        rank = self.rank(name)
        if rank == 0:
            raise NoFit
        return tuple(sorted(self.rng.sample(range(rank), self.rng.randint(1, rank))))

    def constant_size(self, name: str, axis: int) -> int:
        size = self.shape(name)[axis]
        if not isinstance(size, int):
            raise NoFit
        return size

    def size_text(self, name: str, axis: int, operand: int = 0) -> str:
        """A size as source text: of operand number ``operand``, where it is known only at run time."""
        size = self.shape(name)[axis]
        return str(size) if isinstance(size, int) else f"{{{operand}}}.shape[{axis}]"

    def any_dtype(self, kinds: str = "fiub") -> str:
        kind = self.rng.choice([*kinds, *("f" if "f" in kinds else "")])
        return self.rng.choice([dtype for dtype in KINDS[kind] if self.x64 or not dtype.endswith("64")])

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def choice(self, options: Sequence[Any]) -> Any:
        return self.rng.choice(options)

    def literal(self, dtype: str) -> str:
        """A number of this type, as source text."""
        kind = KIND_OF[dtype]
        if kind == "f":
            return self.choice(["2.0", "0.5", "-1.5", "3.25", "0.0", "1.0", "-0.125", "10.0"])
        if kind == "b":
            return self.choice(["True", "False"])
        return self.choice(["0", "1", "2", "3", "7"] + (["-1", "-3"] if kind == "i" else []))

    def body(
        self, types: list[Any], wanted: Any = None, count: int | None = None, prefix: str = "p"
    ) -> tuple[Body, Any]:
        """A nested function with parameters of these types; its result has the wanted type, if one is."""
        return self._make_body(self, types, wanted, count, prefix)


def words(text: str) -> list[str]:
    return text.split()


def draft(text: str, *operands: str, exact: bool = False, bodies: Sequence[Body] = ()) -> Statement:
    """A statement that has no targets yet."""
    return Statement([], text, list(operands), list(bodies), exact)


def same_shape(a: Sequence[Any], b: Sequence[Any]) -> bool:
    return len(a) == len(b) and all(x is y or x == y for x, y in zip(a, b, strict=True))


def elements(type_: Any) -> int:
    count = 1
    for size in type_.shape:
        count *= size if isinstance(size, int) else 4
    return count


def acceptable(type_: Any) -> bool:
    """A result that later statements can use: small, of a supported type."""
    return (
        hasattr(type_, "dtype") and str(type_.dtype) in KIND_OF and len(type_.shape) <= 5 and elements(type_) <= LARGEST
    )


def _broadcasts(a: Sequence[Any], b: Sequence[Any]) -> bool:
    try:
        jnp.broadcast_shapes(tuple(a), tuple(b))
    except Exception:
        return False
    return True
