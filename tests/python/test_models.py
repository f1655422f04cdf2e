"""Models as people write them, in Flax NNX, Flax Linen and Equinox: they export, run, and agree with JAX."""

import functools
import inspect
import re

import equinox as eqx
import flax.linen as linen
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from export_check import all_nodes, check_export, metadata
from flax import nnx

WIDTH, HEADS, LENGTH, LAYERS = 16, 2, 6, 12
# Rounding that a dozen layers may add up to: the runtime and JAX sum in different orders and widths.
MODEL_TOLERANCE = {"float32": 2e-5, "float16": 1e-2, "bfloat16": 6e-2}


def tokens(dtype, *shape):
    values = np.random.default_rng(0).standard_normal(shape or (2, LENGTH, WIDTH))
    return values.astype(jnp.dtype(dtype))


def attend(query, key, value):
    """Attention over (batch, length, heads, size)."""
    scores = jnp.einsum("bqhd,bkhd->bhqk", query, key) / jnp.sqrt(query.shape[-1]).astype(query.dtype)
    weights = jax.nn.softmax(scores, axis=-1)
    return jnp.einsum("bhqk,bkhd->bqhd", weights, value)


def split_heads(x):
    return x.reshape(*x.shape[:-1], HEADS, -1)


# Flax NNX


class NnxMlp(nnx.Module):
    def __init__(self, rngs, dtype):
        self.hidden = nnx.Linear(WIDTH, 32, rngs=rngs, dtype=dtype, param_dtype=dtype)
        self.last = nnx.Linear(32, 10, rngs=rngs, dtype=dtype, param_dtype=dtype)

    def __call__(self, x):
        x = nnx.relu(self.hidden(x))
        return self.last(x)


class NnxAttention(nnx.Module):
    def __init__(self, rngs, dtype):
        self.qkv = nnx.Linear(WIDTH, 3 * WIDTH, rngs=rngs, dtype=dtype, param_dtype=dtype)
        self.out = nnx.Linear(WIDTH, WIDTH, rngs=rngs, dtype=dtype, param_dtype=dtype)

    def __call__(self, x):
        query, key, value = jnp.split(self.qkv(x), 3, axis=-1)
        mixed = attend(split_heads(query), split_heads(key), split_heads(value))
        return self.out(mixed.reshape(x.shape))


class NnxBlock(nnx.Module):
    def __init__(self, rngs, dtype):
        self.norm1 = nnx.LayerNorm(WIDTH, rngs=rngs, dtype=dtype, param_dtype=dtype)
        self.attention = NnxAttention(rngs, dtype)
        self.norm2 = nnx.LayerNorm(WIDTH, rngs=rngs, dtype=dtype, param_dtype=dtype)
        self.up = nnx.Linear(WIDTH, 4 * WIDTH, rngs=rngs, dtype=dtype, param_dtype=dtype)
        self.down = nnx.Linear(4 * WIDTH, WIDTH, rngs=rngs, dtype=dtype, param_dtype=dtype)

    def __call__(self, x):
        x = x + self.attention(self.norm1(x))
        hidden = nnx.gelu(self.up(self.norm2(x)))
        return x + self.down(hidden)


class NnxTransformer(nnx.Module):
    def __init__(self, rngs, dtype):
        self.blocks = nnx.List([NnxBlock(rngs, dtype) for _ in range(LAYERS)])
        self.norm = nnx.LayerNorm(WIDTH, rngs=rngs, dtype=dtype, param_dtype=dtype)

    def __call__(self, x):
        for block in self.blocks:
            x = block(x)
        return self.norm(x)


def make_nnx(kind):
    return lambda dtype, x: kind(nnx.Rngs(0), dtype)


# Flax Linen


class LinenMlp(linen.Module):
    dtype: str

    @linen.compact
    def __call__(self, x):
        x = linen.relu(linen.Dense(32, dtype=self.dtype, param_dtype=self.dtype)(x))
        return linen.Dense(10, dtype=self.dtype, param_dtype=self.dtype)(x)


class LinenAttention(linen.Module):
    dtype: str

    @linen.compact
    def __call__(self, x):
        qkv = linen.Dense(3 * WIDTH, dtype=self.dtype, param_dtype=self.dtype, name="qkv")(x)
        query, key, value = jnp.split(qkv, 3, axis=-1)
        mixed = attend(split_heads(query), split_heads(key), split_heads(value))
        return linen.Dense(WIDTH, dtype=self.dtype, param_dtype=self.dtype, name="out")(mixed.reshape(x.shape))


class LinenBlock(linen.Module):
    dtype: str

    @linen.compact
    def __call__(self, x):
        normed = linen.LayerNorm(dtype=self.dtype, param_dtype=self.dtype)(x)
        x = x + LinenAttention(self.dtype, name="attention")(normed)
        normed = linen.LayerNorm(dtype=self.dtype, param_dtype=self.dtype)(x)
        hidden = linen.gelu(linen.Dense(4 * WIDTH, dtype=self.dtype, param_dtype=self.dtype, name="up")(normed))
        return x + linen.Dense(WIDTH, dtype=self.dtype, param_dtype=self.dtype, name="down")(hidden)


class LinenTransformer(linen.Module):
    dtype: str

    @linen.compact
    def __call__(self, x):
        for index in range(LAYERS):
            x = LinenBlock(self.dtype, name=f"blocks_{index}")(x)
        return linen.LayerNorm(dtype=self.dtype, param_dtype=self.dtype)(x)


def make_linen(kind):
    def make(dtype, x):
        module = kind(dtype)
        return module.bind(module.init(jax.random.key(0), x))

    return make


# Equinox


def each(layer, x):
    """Equinox layers take one vector."""
    return jax.vmap(jax.vmap(layer))(x)


class EquinoxMlp(eqx.Module):
    hidden: eqx.nn.Linear
    last: eqx.nn.Linear

    def __init__(self, key):
        keys = jax.random.split(key, 2)
        self.hidden = eqx.nn.Linear(WIDTH, 32, key=keys[0])
        self.last = eqx.nn.Linear(32, 10, key=keys[1])

    def __call__(self, x):
        x = jax.nn.relu(each(self.hidden, x))
        return each(self.last, x)


class EquinoxAttention(eqx.Module):
    qkv: eqx.nn.Linear
    out: eqx.nn.Linear

    def __init__(self, key):
        keys = jax.random.split(key, 2)
        self.qkv = eqx.nn.Linear(WIDTH, 3 * WIDTH, key=keys[0])
        self.out = eqx.nn.Linear(WIDTH, WIDTH, key=keys[1])

    def __call__(self, x):
        query, key, value = jnp.split(each(self.qkv, x), 3, axis=-1)
        mixed = attend(split_heads(query), split_heads(key), split_heads(value))
        return each(self.out, mixed.reshape(x.shape))


class EquinoxBlock(eqx.Module):
    norm1: eqx.nn.LayerNorm
    attention: EquinoxAttention
    norm2: eqx.nn.LayerNorm
    up: eqx.nn.Linear
    down: eqx.nn.Linear

    def __init__(self, key):
        keys = jax.random.split(key, 3)
        self.norm1 = eqx.nn.LayerNorm(WIDTH)
        self.attention = EquinoxAttention(keys[0])
        self.norm2 = eqx.nn.LayerNorm(WIDTH)
        self.up = eqx.nn.Linear(WIDTH, 4 * WIDTH, key=keys[1])
        self.down = eqx.nn.Linear(4 * WIDTH, WIDTH, key=keys[2])

    def __call__(self, x):
        x = x + self.attention(each(self.norm1, x))
        hidden = jax.nn.gelu(each(self.up, each(self.norm2, x)))
        return x + each(self.down, hidden)


class EquinoxTransformer(eqx.Module):
    blocks: list[EquinoxBlock]
    norm: eqx.nn.LayerNorm

    def __init__(self, key):
        self.blocks = [EquinoxBlock(each_key) for each_key in jax.random.split(key, LAYERS)]
        self.norm = eqx.nn.LayerNorm(WIDTH)

    def __call__(self, x):
        for block in self.blocks:
            x = block(x)
        return each(self.norm, x)


def make_equinox(kind):
    def make(dtype, x):
        module = kind(jax.random.key(0))
        return jax.tree.map(lambda leaf: leaf.astype(dtype) if eqx.is_inexact_array(leaf) else leaf, module)

    return make


MODELS = {
    "NNX MLP": make_nnx(NnxMlp),
    "NNX attention block": make_nnx(NnxBlock),
    "NNX transformer": make_nnx(NnxTransformer),
    "Linen MLP": make_linen(LinenMlp),
    "Linen attention block": make_linen(LinenBlock),
    "Linen transformer": make_linen(LinenTransformer),
    "Equinox MLP": make_equinox(EquinoxMlp),
    "Equinox attention block": make_equinox(EquinoxBlock),
    "Equinox transformer": make_equinox(EquinoxTransformer),
}
THIS_FILE = {
    f"{name}.__call__" for name, kind in list(globals().items()) if inspect.isclass(kind) and "__call__" in vars(kind)
} | {"attend", "split_heads", "each"}


@functools.cache
def made(name, dtype):
    return MODELS[name](dtype, tokens(dtype))


@pytest.mark.parametrize("dtype", MODEL_TOLERANCE)
@pytest.mark.parametrize("name", MODELS)
def test_model(name, dtype):
    x = tokens(dtype)
    module = made(name, dtype)
    tolerance = MODEL_TOLERANCE[dtype]
    model = check_export(module, [x], rtol=tolerance, atol=tolerance)
    functions = {metadata(node)["pkg.jax2onnx.callsite"].rsplit(":", 1)[0] for node in all_nodes(model)}
    assert functions <= THIS_FILE, "a node names a line of the framework's"
    assert not [tensor.name for tensor in model.graph.initializer if len(tensor.dims) == 2 and "const" in tensor.name]


@pytest.mark.parametrize("name", ["NNX transformer", "Linen transformer", "Equinox transformer"])
def test_any_batch_size(name):
    x = tokens("float32")
    more = [[tokens("float32", batch, LENGTH, WIDTH)] for batch in (1, 5)]
    module = made(name, "float32")
    check_export(module, [x], specs=[("B", LENGTH, WIDTH)], more_args=more, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("NNX transformer", {"blocks.3.attention.qkv.kernel", "blocks.11.down.bias", "norm.scale"}),
        ("Linen transformer", {"blocks_3.attention.qkv.kernel", "blocks_11.down.bias", "LayerNorm_0.scale"}),
        ("Equinox transformer", {"blocks.3.attention.qkv.weight", "blocks.11.down.bias", "norm.weight"}),
    ],
)
def test_parameters_keep_their_paths(name, expected):
    from jax2onnx import to_onnx

    x = tokens("float32")
    names = {tensor.name for tensor in to_onnx(made(name, "float32"), [x]).graph.initializer}
    # A weight that is turned or reshaped at export says so after its path.
    names = {re.sub("(_transposed|_reshaped)+$", "", name) for name in names}
    assert expected <= names
    parameters = {name for name in names if not name.startswith("const_")}
    assert len(parameters) == LAYERS * 12 + 2


@pytest.mark.parametrize("opset", [17, 18, 20, 21, 22, 24, 26])
def test_other_opsets(opset):
    x = tokens("float32")
    check_export(made("NNX attention block", "float32"), [x], opset=opset, rtol=2e-5, atol=2e-5)


# Attention as the frameworks themselves offer it


class NnxOwnAttention(nnx.Module):
    def __init__(self):
        self.attention = nnx.MultiHeadAttention(
            num_heads=HEADS, in_features=WIDTH, decode=False, deterministic=True, rngs=nnx.Rngs(0)
        )

    def __call__(self, x):
        return self.attention(x)


class LinenOwnAttention(linen.Module):
    @linen.compact
    def __call__(self, x):
        return linen.MultiHeadDotProductAttention(num_heads=HEADS)(x, x)


class EquinoxOwnAttention(eqx.Module):
    attention: eqx.nn.MultiheadAttention

    def __init__(self):
        self.attention = eqx.nn.MultiheadAttention(HEADS, WIDTH, key=jax.random.key(0))

    def __call__(self, x):
        return jax.vmap(lambda one: self.attention(one, one, one))(x)


@pytest.mark.parametrize("kind", [NnxOwnAttention, LinenOwnAttention, EquinoxOwnAttention])
def test_the_frameworks_own_attention(kind):
    x = tokens("float32")
    module = kind()
    if isinstance(module, linen.Module):
        module = module.bind(module.init(jax.random.key(0), x))
    model = check_export(module, [x], rtol=1e-4, atol=1e-5)
    for node in all_nodes(model):
        assert metadata(node)["pkg.jax2onnx.callsite"].startswith(kind.__name__ + ".__call__")
