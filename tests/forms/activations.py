"""Activations: by library functions and by hand, in every order of the formula."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from forms import Choices, Form

Array = Any


def make(choices: Choices) -> Form:
    name = choices.take("activation", *_FAMILIES, "gelu by parts", "gelu by parts", "gated", "gated")
    dtype = choices.take("type", "float32", "float32", "float16", "bfloat16")
    shape = choices.take("shape", (7,), (3, 5), (2, 3, 4), ("B", 6), ("B", "T", 4))
    before = choices.take("before", "nothing", "sum")
    if name == "gated":
        curve, wanted, nodes, apart = _gated(choices)
        shape = (*shape[:-1], 8)
    elif name == "gelu by parts":
        curve, wanted, nodes, apart = _gelu_by_parts(choices), {"Gelu": 1}, 1, None
    else:
        curve, wanted, nodes, apart = _known(choices, name)
    opset = choices.take("opset", 23, 23, 24)
    if opset == 24 and (name in _SWISHES or choices.made.get("gate") == "silu"):
        wanted = {"Swish": 1, "Sigmoid": 0} | ({"Split": 1, "Mul": 1} if name == "gated" else {})
        nodes = 3 if name == "gated" else 1
    numbers = choices.normal([2 if isinstance(size, str) else size for size in shape], dtype, 3.0)

    def fn(x: Array) -> Array:
        return curve(x + 1 if before == "sum" else x).astype(dtype)

    specs = [jax.ShapeDtypeStruct(shape, numbers.dtype)] if "B" in shape else None
    is_wide = dtype == "bfloat16" or (dtype == "float16" and name == "celu")  # the runtime has no kernel
    most = nodes + (before == "sum") + 2 * is_wide
    return Form(fn, [numbers], wanted, specs, most=most, apart=apart, dtype=dtype, opset=opset)


Made = tuple[Callable[[Array], Array], dict[str, int], int, str | None]  # with the nodes, and why it stays apart


def _slopes(x: Array) -> Array:
    return jnp.linspace(0.1, 0.4, x.shape[-1]).astype(x.dtype)


def _known(choices: Choices, name: str) -> Made:
    expected, ways = _FAMILIES[name]
    way = choices.take("written", *ways)
    apart = None
    if name == "relu" and way == "half of a sum":
        apart = "NaN of -inf, and infinite of large numbers"
    if name == "softplus" and way in ("exp", "log of exp"):
        apart = "infinite where exp is, which Softplus is not"
    wanted = {"Sigmoid": 1, "Mul": 1} if name == "silu" else {expected: 1}
    if name == "relu" and way in ("where", "where at 0", "select"):
        wanted = {"ThresholdedRelu": 1}  # which makes 0 of NaN as they do
    return ways[way], wanted, _NODES.get(name, 1), apart


def _gated(choices: Choices) -> Made:
    """One half weighs the other."""
    gate = choices.take("gate", "sigmoid", "silu", "gelu", "relu", "tanh", "library")
    halves = choices.take("halves", "split", "slices")
    first = choices.take("gate first", True, False)
    curve = {
        "sigmoid": jax.nn.sigmoid,
        "silu": jax.nn.silu,
        "gelu": jax.nn.gelu,
        "relu": jax.nn.relu,
        "tanh": jnp.tanh,
        "library": jax.nn.sigmoid,
    }[gate]

    def fn(x: Array) -> Array:
        if gate == "library":
            return jax.nn.glu(x, axis=-1)
        half = x.shape[-1] // 2
        a, b = jnp.split(x, 2, axis=-1) if halves == "split" else (x[..., :half], x[..., half:])
        return curve(a) * b if first else a * curve(b)

    operator = {"sigmoid": "Sigmoid", "silu": "Sigmoid", "gelu": "Gelu", "relu": "Relu", "tanh": "Tanh"}
    wanted = {"Split": 1, "Mul": 1 + (gate == "silu"), operator.get(gate, "Sigmoid"): 1}
    return fn, wanted, 3 + (gate == "silu"), None


# ---- GELU by free choice of its parts ----

_CUBES: dict[str, Callable[[Array], Array]] = {
    "power": lambda x: x**3,
    "jnp.power": lambda x: jnp.power(x, 3),
    "products": lambda x: x * x * x,
    "square first": lambda x: x * jnp.square(x),
    "real power": lambda x: x**3.0,
}
_INNERS: dict[str, Callable[[Array, Array], Array]] = {
    "root first": lambda x, cube: ROOT * (x + 0.044715 * cube),
    "root last": lambda x, cube: (x + cube * 0.044715) * ROOT,
    "spread out": lambda x, cube: ROOT * x + ROOT * 0.044715 * cube,
    "as numbers": lambda x, cube: 0.7978845608 * x + 0.0356774081 * cube,
    "jnp.sqrt": lambda x, cube: jnp.sqrt(2.0 / jnp.pi).astype(x.dtype) * (0.044715 * cube + x),
    "divided": lambda x, cube: (x + 0.044715 * cube) / math.sqrt(math.pi / 2),
}
_ERFS: dict[str, Callable[[Array], Array]] = {
    "quotient": lambda x: jax.lax.erf(x / math.sqrt(2)),
    "product": lambda x: jax.scipy.special.erf(x * math.sqrt(0.5)),
    "a number": lambda x: jax.lax.erf(x * 0.70710678),
    "jnp.sqrt": lambda x: jax.lax.erf(x / jnp.sqrt(2.0).astype(x.dtype)),
}
_OUTERS: dict[str, Callable[[Array, Array], Array]] = {
    "half first": lambda x, t: 0.5 * x * (1 + t),
    "half after x": lambda x, t: x * 0.5 * (t + 1.0),
    "half of the curve": lambda x, t: x * (0.5 * (1 + t)),
    "half of all": lambda x, t: 0.5 * (x * (t + 1)),
    "half last": lambda x, t: x * (1 + t) * 0.5,
    "quotient": lambda x, t: x * (1 + t) / 2,
    "spread out": lambda x, t: 0.5 * x + 0.5 * x * t,
    "half of a sum": lambda x, t: 0.5 * (x + x * t),
    "shifted": lambda x, t: (t * 0.5 + 0.5) * x,
}


def _gelu_by_parts(choices: Choices) -> Callable[[Array], Array]:
    outer = _OUTERS[choices.take("outer", *_OUTERS)]
    if choices.take("curve", "tanh", "erf") == "erf":
        erf = _ERFS[choices.take("erf", *_ERFS)]
        return lambda x: outer(x, erf(x))
    cube, inner = _CUBES[choices.take("cube", *_CUBES)], _INNERS[choices.take("inner", *_INNERS)]
    return lambda x: outer(x, jnp.tanh(inner(x, cube(x))))


ROOT = math.sqrt(2 / math.pi)
ALPHA, GAMMA = 1.6732632423543772, 1.0507009873554805


def _cubic(x: Array) -> Array:
    return jnp.tanh(ROOT * (x + 0.044715 * jnp.power(x, 3)))


def _keras_activation(name: str) -> Callable[[Array], Array]:
    os.environ.setdefault("KERAS_BACKEND", "jax")
    import keras

    return getattr(keras.activations, name)


def _softplus(x: Array) -> Array:
    return jnp.maximum(x, 0) + jnp.log1p(jnp.exp(-jnp.abs(x)))


def _by_size(x: Array, power: Array) -> Array:
    return jnp.where(x >= 0, 1 / (1 + power), power / (1 + power))


# What is Swish where the opset has it.
_SWISHES = ("silu", "quick gelu")
# Nodes where it is not one.
_NODES = {"silu": 2, "log sigmoid": 3, "quick gelu": 3, "relu squared": 2}
_FAMILIES: dict[str, tuple[str, dict[str, Callable[[Array], Array]]]] = {
    "gelu": (
        "Gelu",
        {
            "jax.nn": lambda x: jax.nn.gelu(x, approximate=False),
            "halved first": lambda x: x / 2 * (1 + jax.lax.erf(x / math.sqrt(2))),
            "erfc": lambda x: x * jax.lax.erfc(-x / math.sqrt(2)) / 2,
            "distribution": lambda x: x * jax.scipy.stats.norm.cdf(x.astype(jnp.float32)).astype(x.dtype),
        },
    ),
    "gelu by tanh": (
        "Gelu",
        {
            "jax.nn": jax.nn.gelu,
            "factored": lambda x: 0.5 * x * (1 + jnp.tanh(ROOT * x * (1 + 0.044715 * x * x))),
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
            "logistic": lambda x: x * jax.lax.logistic(x),
            "expit": lambda x: jax.scipy.special.expit(x) * x,
        },
    ),
    "sigmoid": (
        "Sigmoid",
        {
            "jax.nn": jax.nn.sigmoid,
            "careful": lambda x: jnp.where(x >= 0, 1 / (1 + jnp.exp(-x)), jnp.exp(x) / (1 + jnp.exp(x))),
            "careful, by size": lambda x: _by_size(x, jnp.exp(-jnp.abs(x))),
            "careful, of choices": lambda x: jnp.where(x < 0, jnp.exp(-jnp.abs(x)), 1) / (1 + jnp.exp(-jnp.abs(x))),
            "of its logarithm": lambda x: jnp.exp(jax.nn.log_sigmoid(x)),
            "tanh": lambda x: 0.5 * (jnp.tanh(0.5 * x) + 1),
            "logistic": jax.lax.logistic,
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
            "lax": lambda x: jax.lax.log1p(jax.lax.exp(-jax.lax.abs(x))) + jax.lax.max(x, jnp.zeros_like(x)),
            "log of sigmoid": lambda x: -jax.nn.log_sigmoid(-x),
            "exp": lambda x: jnp.log1p(jnp.exp(x)),
            "log of exp": lambda x: jnp.log(1 + jnp.exp(x)),
        },
    ),
    "mish": (
        "Mish",
        {
            "jax.nn": jax.nn.mish,
            "softplus": lambda x: x * jnp.tanh(jax.nn.softplus(x)),
            "tanh first": lambda x: jnp.tanh(jax.nn.softplus(x)) * x,
            "hand": lambda x: x * jnp.tanh(_softplus(x)),
            "logaddexp": lambda x: x * jnp.tanh(jnp.logaddexp(x, 0)),
            "keras": lambda x: _keras_activation("mish")(x),
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
            "where at most 0": lambda x: jnp.where(x <= 0, 0, x),
            "select": lambda x: jax.lax.select(x > 0, x, jnp.zeros_like(x)),
            "clip": lambda x: jnp.clip(x, min=0),
            "lax": lambda x: jax.lax.max(x, jax.lax.full_like(x, 0)),
            "half of a sum": lambda x: (x + jnp.abs(x)) / 2,
        },
    ),
    "thresholded relu": (
        "ThresholdedRelu",
        {
            "where": lambda x: jnp.where(x > 1.5, x, 0),
            "number first": lambda x: jnp.where(jnp.less(0.5, x), x, 0.0),
            "select": lambda x: jax.lax.select(x > 1, x, jnp.zeros_like(x)),
        },
    ),
    "shrink": (
        "Shrink",
        {
            "hard": lambda x: jnp.where(jnp.abs(x) > 0.5, x, 0),
            "hard by sides": lambda x: jnp.where(x > 0.5, x, jnp.where(x < -0.5, x, 0)),
            "hard keras": lambda x: _keras_activation("hard_shrink")(x),
            "soft": lambda x: jnp.where(x > 0.5, x - 0.5, jnp.where(x < -0.5, x + 0.5, 0)),
            "soft keras": lambda x: _keras_activation("soft_shrink")(x),
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
            "other where": lambda x: jnp.where(x < 0, 0, jnp.where(x > 6, 6, x)),
        },
    ),
    "parametric relu": (
        "PRelu",
        {
            "where": lambda x: jnp.where(x > 0, x, _slopes(x) * x),
            "where at 0": lambda x: jnp.where(x >= 0, x, x * _slopes(x)),
            "where below": lambda x: jnp.where(x < 0, _slopes(x) * x, x),
            "parts": lambda x: jnp.maximum(x, 0) + _slopes(x) * jnp.minimum(x, 0),
            "two relus": lambda x: jax.nn.relu(x) - _slopes(x) * jax.nn.relu(-x),
            "sum of relus": lambda x: jax.nn.relu(x) + -_slopes(x) * jax.nn.relu(-x),
            "lax": lambda x: jax.lax.select(x >= 0, x, _slopes(x) * x),
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
            "two relus": lambda x: jax.nn.relu(x) - 0.2 * jax.nn.relu(-x),
            "factor": lambda x: x * jnp.where(x > 0, 1.0, 0.2).astype(x.dtype),
            "lax": lambda x: jax.lax.select(x >= 0, x, 0.2 * x),
            "quotient": lambda x: jnp.where(x > 0, x, x / 5),
            "factor of the other": lambda x: jnp.where(x < 0, 0.2, 1.0).astype(x.dtype) * x,
            "largest first": lambda x: jnp.maximum(0.2 * x, x),
            "piecewise": lambda x: jax.lax.select_n(x > 0, x * 0.2, x),
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
            "scaled parts": lambda x: jax.nn.relu(x) + jnp.minimum(0, 0.7 * (jnp.exp(x) - 1)),
            "least of parts": lambda x: jax.nn.relu(x) + 0.7 * jnp.expm1(jnp.minimum(x, 0)),
            "select": lambda x: jax.lax.select(x > 0, x, jax.lax.expm1(x)),
            "where at most 0": lambda x: jnp.where(x <= 0, jnp.exp(x) - 1.0, x),
            "keras": lambda x: _keras_activation("elu")(x),
        },
    ),
    "selu": (
        "Selu",
        {
            "jax.nn": jax.nn.selu,
            "hand": lambda x: GAMMA * jnp.where(x > 0, x, ALPHA * jnp.expm1(x)),
            "expanded": lambda x: GAMMA * jnp.where(x >= 0, x, ALPHA * jnp.exp(x) - ALPHA),
            "scale inside": lambda x: jnp.where(x > 0, GAMMA * x, GAMMA * ALPHA * jnp.expm1(x)),
            "parts": lambda x: GAMMA * (jnp.maximum(x, 0) + jnp.minimum(0, ALPHA * (jnp.exp(x) - 1))),
            "elu": lambda x: GAMMA * jax.nn.elu(x, ALPHA),
            "keras": lambda x: _keras_activation("selu")(x),
        },
    ),
    "celu": (
        "Celu",
        {
            "jax.nn": lambda x: jax.nn.celu(x, 0.5),
            "where": lambda x: jnp.where(x > 0, x, 0.5 * jnp.expm1(x / 0.5)),
            "parts": lambda x: jnp.maximum(x, 0) + jnp.minimum(0, 0.5 * (jnp.exp(x / 0.5) - 1)),
            "product": lambda x: jnp.where(x >= 0, x, 0.5 * (jnp.exp(x * 2.0) - 1)),
        },
    ),
    "log sigmoid": (
        "Softplus",
        {
            "jax.nn": jax.nn.log_sigmoid,
            "softplus": lambda x: -jax.nn.softplus(-x),
            "hand": lambda x: jnp.minimum(x, 0) - jnp.log1p(jnp.exp(-jnp.abs(x))),
            "logaddexp": lambda x: -jnp.logaddexp(0.0, -x),
        },
    ),
    "hard tanh": (
        "Clip",
        {
            "jax.nn": jax.nn.hard_tanh,
            "clip": lambda x: jnp.clip(x, -1, 1),
            "minimum": lambda x: jnp.minimum(jnp.maximum(x, -1), 1),
            "where": lambda x: jnp.where(x > 1, 1, jnp.where(x < -1, -1, x)),
            "lax": lambda x: jax.lax.clamp(jnp.asarray(-1, x.dtype), x, jnp.asarray(1, x.dtype)),
        },
    ),
    "quick gelu": (
        "Sigmoid",
        {
            "sigmoid": lambda x: x * jax.nn.sigmoid(1.702 * x),
            "sigmoid first": lambda x: jax.nn.sigmoid(x * 1.702) * x,
            "quotient": lambda x: x / (1 + jnp.exp(-1.702 * x)),
            "product of a quotient": lambda x: x * (1 / (1 + jnp.exp(-1.702 * x))),
        },
    ),
    "relu squared": (
        "Relu",
        {
            "square": lambda x: jnp.square(jax.nn.relu(x)),
            "power": lambda x: jnp.maximum(x, 0) ** 2,
            "product": lambda x: jax.nn.relu(x) * jax.nn.relu(x),
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
            "hard sigmoid": lambda x: x * jax.nn.hard_sigmoid(x),
            "hard sigmoid first": lambda x: jnp.minimum(jnp.maximum(x + 3, 0), 6) / 6 * x,
            "keras": lambda x: _keras_activation("hard_silu")(x),
        },
    ),
    "tanh": ("Tanh", {"jax.nn": jax.nn.tanh, "lax": jax.lax.tanh, "sigmoid": lambda x: 2 * jax.nn.sigmoid(2 * x) - 1}),
    "softsign": (
        "Softsign",
        {
            "jax.nn": jax.nn.soft_sign,
            "hand": lambda x: x / (1 + jnp.abs(x)),
            "other": lambda x: x / (jnp.abs(x) + 1),
            "share": lambda x: x * (1 / (1 + jnp.abs(x))),
            "reciprocal": lambda x: jnp.reciprocal(jnp.abs(x) + 1) * x,
        },
    ),
}
