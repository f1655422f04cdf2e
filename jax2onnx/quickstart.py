"""The small model used in the guide to web deployment."""

from __future__ import annotations

from typing import Any


def build_quickstart_web_model() -> Any:
    """Return a classifier of eight numbers in Flax NNX, the same on every call."""
    from flax import nnx

    class Classifier(nnx.Module):
        def __init__(self, rngs: nnx.Rngs) -> None:
            self.hidden = nnx.Linear(8, 16, rngs=rngs)
            self.head = nnx.Linear(16, 4, rngs=rngs)

        def __call__(self, x: Any) -> Any:
            return nnx.softmax(self.head(nnx.relu(self.hidden(x))))

    return Classifier(nnx.Rngs(0))
