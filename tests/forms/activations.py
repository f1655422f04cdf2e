"""Activations: by library functions and by hand, in every order of the formula."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from forms import Choices, Form

Array = Any


def make(choices: Choices) -> Form:
    name = choices.take("activation", *_FAMILIES)
    expected, ways = _FAMILIES[name]
    way = choices.take("written", *ways)
    dtype = choices.take("type", "float32", "float32", "float16", "bfloat16")
    shape = choices.take("shape", (7,), (3, 5), (2, 3, 4), ("B", 6))
    numbers = choices.normal([2 if isinstance(size, str) else size for size in shape], dtype, 3.0)
    before = choices.take("before", "nothing", "sum")

    def fn(x: Array) -> Array:
        return ways[way](x + 1 if before == "sum" else x).astype(dtype)

    specs = [jax.ShapeDtypeStruct(shape, numbers.dtype)] if "B" in shape else None
    most = 1 + (before == "sum") + (2 if dtype == "bfloat16" else 0)
    apart = "NaN becomes 0" if name == "relu" and way in ("where", "where at 0") else None
    if name == "sigmoid" and way in ("quotient", "reciprocal"):
        apart = "exact far below zero, where the runtime's Sigmoid is 0"
    wanted = {"Sigmoid": 1, "Mul": 1} if name == "silu" else {expected: 1}  # no kernel for Swish
    return Form(fn, [numbers], wanted, specs, most=most + (name == "silu"), apart=apart, dtype=dtype)


def _gelu_tanh(order: int) -> Callable[[Array], Array]:
    root = math.sqrt(2 / math.pi)

    def fn(x: Array) -> Array:
        cube = x**3 if order % 2 else x * x * x
        inner = root * (x + 0.044715 * cube) if order % 3 else (x + 0.044715 * cube) * root
        if order == 4:
            inner = root * x * (1 + 0.044715 * x * x)
        tanh = jnp.tanh(inner)
        if order == 1:
            return 0.5 * x * (1 + tanh)
        if order == 2:
            return x * 0.5 * (1 + tanh)
        return 0.5 * (x * (tanh + 1)) if order == 3 else x * (0.5 * (1 + tanh))

    return fn


def _gelu(order: int) -> Callable[[Array], Array]:
    def fn(x: Array) -> Array:
        if order == 1:
            return 0.5 * x * (1 + jax.lax.erf(x / math.sqrt(2)))
        if order == 2:
            return x * 0.5 * (1 + jax.lax.erf(x * (1 / math.sqrt(2))))
        if order == 3:
            return x * (0.5 * (jax.lax.erf(x / jnp.sqrt(2.0).astype(x.dtype)) + 1))
        return x * (1 + jax.lax.erf(x / math.sqrt(2))) / 2

    return fn


ROOT = math.sqrt(2 / math.pi)
ALPHA, GAMMA = 1.6732632423543772, 1.0507009873554805


def _cubic(x: Array) -> Array:
    return jnp.tanh(ROOT * (x + 0.044715 * jnp.power(x, 3)))


def _softplus(x: Array) -> Array:
    return jnp.maximum(x, 0) + jnp.log1p(jnp.exp(-jnp.abs(x)))


_FAMILIES: dict[str, tuple[str, dict[str, Callable[[Array], Array]]]] = {
    "gelu": (
        "Gelu",
        {
            "jax.nn": lambda x: jax.nn.gelu(x, approximate=False),
            "product first": _gelu(1),
            "half after x": _gelu(2),
            "sum first": _gelu(3),
            "quotient last": _gelu(4),
            "half of a sum": lambda x: 0.5 * (x + x * jax.lax.erf(x / math.sqrt(2))),
            "shifted curve": lambda x: x * (jax.lax.erf(x * math.sqrt(0.5)) * 0.5 + 0.5),
            "halved first": lambda x: x / 2 * (1 + jax.lax.erf(x / math.sqrt(2))),
            "erfc": lambda x: x * jax.lax.erfc(-x / math.sqrt(2)) / 2,
        },
    ),
    "gelu by tanh": (
        "Gelu",
        {
            "jax.nn": jax.nn.gelu,
            "product first": _gelu_tanh(1),
            "half after x": _gelu_tanh(2),
            "sum first": _gelu_tanh(3),
            "factored": _gelu_tanh(4),
            "two products": lambda x: 0.5 * x + 0.5 * x * _cubic(x),
            "spread out": lambda x: 0.5 * x * (1 + jnp.tanh(ROOT * x + ROOT * 0.044715 * x**3)),
            "step by step": lambda x: 0.5 * x * (1 + jnp.tanh(ROOT * (x + 0.044715 * x * x * x))),
            "cube last": lambda x: x * (jnp.tanh((x + x * x * x * 0.044715) * ROOT) + 1) * 0.5,
        },
    ),
    "silu": (
        "Swish",
        {
            "jax.nn": jax.nn.silu,
            "sigmoid": lambda x: x * jax.nn.sigmoid(x),
            "sigmoid first": lambda x: jax.nn.sigmoid(x) * x,
            "quotient": lambda x: x / (1 + jnp.exp(-x)),
            "product": lambda x: x * (1 / (1 + jnp.exp(-x))),
            "tanh": lambda x: 0.5 * x * (1 + jnp.tanh(x / 2)),
        },
    ),
    "sigmoid": (
        "Sigmoid",
        {
            "jax.nn": jax.nn.sigmoid,
            "tanh": lambda x: 0.5 * (jnp.tanh(0.5 * x) + 1),
            "quotient": lambda x: 1 / (1 + jnp.exp(-x)),
            "reciprocal": lambda x: jnp.reciprocal(jnp.exp(-x) + 1),
        },
    ),
    "softplus": (
        "Softplus",
        {
            "jax.nn": jax.nn.softplus,
            "logaddexp": lambda x: jnp.logaddexp(x, 0),
            "zero first": lambda x: jnp.logaddexp(0.0, x),
            "hand": _softplus,
            "log": lambda x: jax.nn.relu(x) + jnp.log(1 + jnp.exp(-jnp.abs(x))),
        },
    ),
    "mish": (
        "Mish",
        {
            "jax.nn": jax.nn.mish,
            "softplus": lambda x: x * jnp.tanh(jax.nn.softplus(x)),
            "tanh first": lambda x: jnp.tanh(jax.nn.softplus(x)) * x,
        },
    ),
    "relu": (
        "Relu",
        {
            "jax.nn": jax.nn.relu,
            "maximum": lambda x: jnp.maximum(x, 0),
            "zero first": lambda x: jnp.maximum(0.0, x),
            "where": lambda x: jnp.where(x > 0, x, 0),
            "where at 0": lambda x: jnp.where(x >= 0, x, 0),
            "where below": lambda x: jnp.where(x < 0, 0, x),
        },
    ),
    "relu6": (
        "Clip",
        {
            "jax.nn": jax.nn.relu6,
            "clip": lambda x: jnp.clip(x, 0, 6),
            "minimum": lambda x: jnp.minimum(jnp.maximum(x, 0), 6),
            "maximum": lambda x: jnp.maximum(jnp.minimum(x, 6), 0),
            "where": lambda x: jnp.where(x > 6, 6, jnp.where(x < 0, 0, x)),
        },
    ),
    "leaky relu": (
        "LeakyRelu",
        {
            "jax.nn": jax.nn.leaky_relu,
            "where": lambda x: jnp.where(x > 0, x, 0.2 * x),
            "where at 0": lambda x: jnp.where(x >= 0, x, x * 0.2),
            "where below": lambda x: jnp.where(x < 0, 0.2 * x, x),
            "maximum": lambda x: jnp.maximum(x, 0.2 * x),
            "where at most 0": lambda x: jnp.where(x <= 0, 0.2 * x, x),
            "parts": lambda x: jnp.maximum(x, 0) + 0.2 * jnp.minimum(x, 0),
        },
    ),
    "elu": (
        "Elu",
        {
            "jax.nn": jax.nn.elu,
            "jax.nn scaled": lambda x: jax.nn.elu(x, 0.5),
            "where": lambda x: jnp.where(x > 0, x, jnp.expm1(x)),
            "where at 0": lambda x: jnp.where(x >= 0, x, jnp.exp(x) - 1),
            "where below": lambda x: jnp.where(x < 0, 0.7 * (jnp.exp(x) - 1), x),
            "least": lambda x: jnp.where(x > 0, x, jnp.expm1(jnp.minimum(x, 0))),
            "parts": lambda x: jnp.maximum(x, 0) + jnp.minimum(0, jnp.expm1(x)),
        },
    ),
    "selu": (
        "Selu",
        {
            "jax.nn": jax.nn.selu,
            "hand": lambda x: GAMMA * jnp.where(x > 0, x, ALPHA * jnp.expm1(x)),
            "expanded": lambda x: GAMMA * jnp.where(x >= 0, x, ALPHA * jnp.exp(x) - ALPHA),
            "scale inside": lambda x: jnp.where(x > 0, GAMMA * x, GAMMA * ALPHA * jnp.expm1(x)),
        },
    ),
    "hard sigmoid": (
        "HardSigmoid",
        {
            "jax.nn": jax.nn.hard_sigmoid,
            "clip": lambda x: jnp.clip(x / 6 + 0.5, 0, 1),
            "clip of product": lambda x: jnp.clip(x * (1 / 6) + 0.5, 0, 1),
            "relu6": lambda x: jax.nn.relu6(x + 3) / 6,
            "clip of sum": lambda x: jnp.clip((x + 3) / 6, 0, 1),
        },
    ),
    "hard swish": (
        "HardSwish",
        {
            "jax.nn": jax.nn.hard_swish,
            "relu6": lambda x: x * (jax.nn.relu6(x + 3) / 6),
            "quotient last": lambda x: x * jax.nn.relu6(x + 3) / 6,
            "clip": lambda x: x * jnp.clip(x / 6 + 0.5, 0, 1),
            "product last": lambda x: x * jnp.clip(x + 3, 0, 6) * (1 / 6),
        },
    ),
    "softsign": (
        "Softsign",
        {"jax.nn": jax.nn.soft_sign, "hand": lambda x: x / (1 + jnp.abs(x)), "other": lambda x: x / (jnp.abs(x) + 1)},
    ),
}
