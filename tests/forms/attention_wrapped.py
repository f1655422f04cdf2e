"""Attention inside of something else: rematerialised, in steps of a loop, over parts of the queries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from forms import Choices

Array = Any


def wrapped(choices: Choices, plan: Any, attend: Callable[..., Array]) -> Callable[..., Array]:
    """The same function of queries, keys, values and what is given for masks."""
    ways = ["nothing"] * 10 + ["checkpoint", "jit", "custom_vjp", "layers", "parts of the queries"]
    way = choices.take("inside", *ways)
    if way == "checkpoint":
        return jax.checkpoint(attend)
    if way == "jit":
        return jax.jit(attend)
    if way == "custom_vjp":
        return _with_gradient(attend)
    if way == "layers" and plan.dtype == "float32" and not plan.shared and plan.sizes["e"] == plan.sizes["d"]:
        return _layers(attend)
    at = plan.queries.index("t")
    even = "t" not in plan.symbols and plan.sizes["t"] % 2 == 0 and plan.sizes["t"] > 2
    if way == "parts of the queries" and even and plan.crossed and not plan.shared and _knows_no_position(choices):
        return _in_parts(attend, at, plan.sizes["t"] // 2)
    choices.made["inside"] = "nothing"
    return attend


def _knows_no_position(choices: Choices) -> bool:
    """Masks and biases are of all queries."""
    turned = choices.made["queries and keys"] == "turned"
    return choices.made["masks"] == 0 and choices.made["bias"] == "none" and not turned


def _with_gradient(attend: Callable[..., Array]) -> Callable[..., Array]:
    made = jax.custom_vjp(attend)
    made.defvjp(lambda *args: (attend(*args), args), lambda args, given: args)
    return made


def _layers(attend: Callable[..., Array]) -> Callable[..., Array]:
    """Two layers that share values, in a scan over their keys."""

    def layers(q: Array, k: Array, v: Array, *given: Array) -> Array:
        return jax.lax.scan(lambda q, k: (attend(q, k, v, *given), None), q, jnp.stack([k, jnp.sin(k)]))[0]

    return layers


def _in_parts(attend: Callable[..., Array], at: int, size: int) -> Callable[..., Array]:
    """Half of the queries after the other, as where all their scores would not fit."""

    def parts(q: Array, k: Array, v: Array, *given: Array) -> Array:
        halves = jnp.stack(
            [jax.lax.slice_in_dim(q, 0, size, axis=at), jax.lax.slice_in_dim(q, size, 2 * size, axis=at)]
        )
        mixed = jax.lax.map(lambda one: attend(one, k, v, *given), halves)
        return jnp.concatenate([mixed[0], mixed[1]], at)

    return parts
