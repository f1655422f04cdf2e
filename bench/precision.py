"""Models in other precisions than they are initialised in."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx


def converted(tree: Any, dtype: Any) -> Any:
    """Every array of floating-point numbers in another type."""
    return jax.tree.map(lambda leaf: leaf.astype(dtype) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf, tree)


def of_type(module: nnx.Module, dtype: Any) -> nnx.Module:
    definition, state = nnx.split(module)
    module = nnx.merge(definition, converted(state, dtype))
    for _, part in nnx.iter_graph(module):
        if isinstance(part, nnx.Embed):
            part.dtype = dtype  # what it returns; others return what they are given
    return module
