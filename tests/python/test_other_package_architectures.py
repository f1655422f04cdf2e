"""The architectures that the documentation of the Python jax2onnx lists as examples, small, by the descriptions there:
GPT, vision transformers with and without registers, decoders with experts and sinks, decoders whose layers are scanned.
"""

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jax2onnx import allclose, onnx_function, to_onnx
from jax2onnx._door.inputs import NamedShape

RNG = np.random.default_rng(0)
WIDTH, HEADS, LENGTH, WORDS = 16, 4, 6, 20
TOKENS = RNG.integers(0, WORDS, (2, LENGTH)).astype(np.int32)
IMAGES = RNG.random((2, 8, 8, 3)).astype(np.float32)


def weights(*shape):
    return jnp.asarray(0.3 * RNG.standard_normal(shape), jnp.float32)


# ---- GPT: causal attention, functions of the model, a flag ----


@onnx_function
class Block(nnx.Module):
    def __init__(self, causal, rngs):
        self.first, self.second = nnx.LayerNorm(WIDTH, rngs=rngs), nnx.LayerNorm(WIDTH, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(HEADS, WIDTH, decode=False, rngs=rngs)
        self.wide, self.narrow = nnx.Linear(WIDTH, 32, rngs=rngs), nnx.Linear(32, WIDTH, rngs=rngs)
        self.drop = nnx.Dropout(0.1, rngs=rngs)
        self.causal = causal

    def __call__(self, x, deterministic=True):
        mask = nnx.make_causal_mask(x[..., 0]) if self.causal else None
        x = x + self.drop(self.attention(self.first(x), mask=mask), deterministic=deterministic)
        return x + self.drop(self.narrow(nnx.gelu(self.wide(self.second(x)))), deterministic=deterministic)


class Gpt(nnx.Module):
    def __init__(self, rngs):
        self.words, self.places = nnx.Embed(WORDS, WIDTH, rngs=rngs), nnx.Embed(LENGTH, WIDTH, rngs=rngs)
        self.blocks = nnx.List([Block(True, rngs) for _ in range(2)])
        self.norm, self.head = nnx.LayerNorm(WIDTH, rngs=rngs), nnx.Linear(WIDTH, WORDS, rngs=rngs)

    def __call__(self, tokens, deterministic=True):
        x = self.words(tokens) + self.places(jnp.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x, deterministic)
        return self.head(self.norm(x))


# ---- vision transformers: patches by a convolution, a class token ----


class Vision(nnx.Module):
    def __init__(self, rngs):
        self.patches = nnx.Conv(3, WIDTH, (4, 4), strides=(4, 4), padding="VALID", rngs=rngs)
        self.token = nnx.Param(weights(1, 1, WIDTH))
        self.places = nnx.Param(weights(1, 5, WIDTH))
        self.blocks = nnx.List([Block(False, rngs) for _ in range(2)])
        self.norm, self.head = nnx.LayerNorm(WIDTH, rngs=rngs), nnx.Linear(WIDTH, 7, rngs=rngs)

    def __call__(self, x):
        x = self.patches(x).reshape(x.shape[0], 4, WIDTH)
        x = jnp.concatenate([jnp.tile(self.token[...], (x.shape[0], 1, 1)), x], axis=1) + self.places[...]
        for block in self.blocks:
            x = block(x)
        return nnx.log_softmax(self.head(self.norm(x)[:, 0]))


def axial_angles(side, features):
    """Of rows for the first half of the pairs, of columns for the second."""
    rate = 100.0 ** -(np.arange(features // 4) / (features // 4))
    row, column = np.meshgrid(np.arange(side), np.arange(side), indexing="ij")
    return np.concatenate([row.reshape(-1, 1) * rate, column.reshape(-1, 1) * rate], axis=-1).astype(np.float32)


def turned(x, angles):
    first, second = jnp.split(x, 2, axis=-1)
    cos, sin = jnp.cos(angles), jnp.sin(angles)
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


class Registers(eqx.Module):
    """One image: a class token and registers, which keep their place, and patches, which are turned by theirs."""

    patches: eqx.nn.Conv2d
    tokens: jax.Array
    norms: list[eqx.nn.LayerNorm]
    joined: list[eqx.nn.Linear]
    out: list[eqx.nn.Linear]
    scales: list[jax.Array]

    def __init__(self, key):
        keys = iter(jax.random.split(key, 8))
        self.patches = eqx.nn.Conv2d(3, WIDTH, 4, stride=4, key=next(keys))
        self.tokens = weights(3, WIDTH)
        self.norms = [eqx.nn.LayerNorm(WIDTH) for _ in range(2)]
        self.joined = [eqx.nn.Linear(WIDTH, 3 * WIDTH, key=next(keys)) for _ in range(2)]
        self.out = [eqx.nn.Linear(WIDTH, WIDTH, key=next(keys)) for _ in range(2)]
        self.scales = [weights(WIDTH) for _ in range(2)]

    def __call__(self, image):
        x = self.patches(jnp.transpose(image, (2, 0, 1))).reshape(WIDTH, -1).T
        x = jnp.concatenate([self.tokens, x])
        angles, kept = axial_angles(2, WIDTH // HEADS), len(self.tokens)
        for norm, joined, out, scale in zip(self.norms, self.joined, self.out, self.scales, strict=True):
            q, k, v = jnp.split(jax.vmap(joined)(jax.vmap(norm)(x)), 3, axis=-1)
            q, k, v = (part.reshape(-1, HEADS, WIDTH // HEADS).transpose(1, 0, 2) for part in (q, k, v))
            q, k = (jnp.concatenate([part[:, :kept], turned(part[:, kept:], angles)], axis=1) for part in (q, k))
            share = jax.nn.softmax(q @ k.transpose(0, 2, 1) * (WIDTH // HEADS) ** -0.5)
            x = x + scale * jax.vmap(out)((share @ v).transpose(1, 0, 2).reshape(x.shape))
        return x[0], x[kept:].mean(axis=0)


# ---- a decoder with sinks, windows and experts ----

EXPERTS, CHOSEN, WINDOW, GROUPS = 4, 2, 3, 2
LAYERS = [
    {
        "norm": weights(WIDTH),
        "queries": weights(WIDTH, WIDTH),
        "keys": weights(WIDTH, WIDTH // GROUPS),
        "values": weights(WIDTH, WIDTH // GROUPS),
        "sinks": weights(HEADS),
        "out": weights(WIDTH, WIDTH),
        "router": weights(WIDTH, EXPERTS),
        "gates": weights(EXPERTS, WIDTH, 16),
        "down": weights(EXPERTS, 8, WIDTH),
    }
    for _ in range(2)
]
VOCABULARY = weights(WORDS, WIDTH)


def root_mean_square(x, scale):
    return x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-5) * scale


def attend_with_sinks(x, layer, window):
    batch, length, _ = x.shape
    place = jnp.arange(length)
    rate = 150.0 ** -(jnp.arange(2) / 2)
    angles = (place[:, None] * rate)[:, None]
    shape = (batch, length, -1, WIDTH // HEADS)
    q = turned((x @ layer["queries"]).reshape(shape), angles)
    k = turned((x @ layer["keys"]).reshape(shape), angles)
    v = (x @ layer["values"]).reshape(shape)
    k, v = jnp.repeat(k, GROUPS, axis=2), jnp.repeat(v, GROUPS, axis=2)
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(WIDTH // HEADS)
    seen = place[:, None] >= place
    if window:
        seen &= place[:, None] - place < window
    scores = jnp.where(seen, scores, -jnp.inf)
    sinks = jnp.broadcast_to(layer["sinks"][None, :, None, None], (*scores.shape[:3], 1))
    share = jax.nn.softmax(jnp.concatenate([scores, sinks], axis=-1), axis=-1)[..., :-1]
    return jnp.einsum("bhqk,bkhd->bqhd", share, v).reshape(x.shape) @ layer["out"]


def mix_experts(x, layer):
    best, which = jax.lax.top_k(x @ layer["router"], CHOSEN)
    both = jnp.einsum("btd,btedf->btef", x, layer["gates"][which])
    gate, linear = jnp.minimum(both[..., ::2], 7.0), jnp.clip(both[..., 1::2], -7.0, 7.0)
    hidden = gate * jax.nn.sigmoid(1.702 * gate) * (linear + 1)
    return jnp.einsum("btef,btefd,bte->btd", hidden, layer["down"][which], jax.nn.softmax(best))


def with_experts(tokens):
    x = VOCABULARY[tokens]
    for number, layer in enumerate(LAYERS):
        x = x + attend_with_sinks(root_mean_square(x, layer["norm"]), layer, WINDOW if number % 2 == 0 else 0)
        x = x + mix_experts(root_mean_square(x, layer["norm"]), layer)
    return x @ VOCABULARY.T


# ---- a decoder whose layers are scanned ----


class ScannedLayer(nn.Module):
    dtype: jnp.dtype

    @nn.compact
    def __call__(self, x, positions):
        y = nn.RMSNorm(dtype=self.dtype)(x)
        shape = (*x.shape[:2], -1, WIDTH // HEADS)
        q, k, v = (nn.Dense(n, use_bias=False, dtype=self.dtype)(y).reshape(shape) for n in (WIDTH, 8, 8))
        angles = positions[:, :, None, None] * 100.0 ** -(jnp.arange(2) / 2)
        q, k = turned(q, angles).astype(self.dtype), turned(k, angles).astype(self.dtype)
        y = jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(x.shape)
        x = x + nn.Dense(WIDTH, use_bias=False, dtype=self.dtype)(y)
        y = nn.RMSNorm(dtype=self.dtype)(x)
        gate, up = (nn.Dense(32, use_bias=False, dtype=self.dtype)(y) for _ in range(2))
        return x + nn.Dense(WIDTH, use_bias=False, dtype=self.dtype)(nn.silu(gate) * up), None


class Scanned(nn.Module):
    dtype: jnp.dtype = jnp.float32

    @nn.compact
    def __call__(self, tokens, positions):
        table = nn.Embed(WORDS, WIDTH, dtype=self.dtype)
        by_layer = {"variable_axes": {"params": 0}, "split_rngs": {"params": True}}
        layers = nn.scan(ScannedLayer, **by_layer, in_axes=nn.broadcast, length=3)(self.dtype)
        x, _ = layers(table(tokens), positions.astype(jnp.float32))
        logits = table.attend(nn.RMSNorm(dtype=self.dtype)(x)).astype(jnp.float32)
        return 30.0 * jnp.tanh(logits / 30.0)


def bound(module, *inputs):
    return module.bind(module.init(jax.random.key(0), *inputs))


POSITIONS = np.tile(np.arange(LENGTH, dtype=np.int32), (2, 1))
ARCHITECTURES = {
    "a GPT": (lambda: Gpt(nnx.Rngs(0)), [TOKENS], 1e-5),
    "a vision transformer": (lambda: Vision(nnx.Rngs(0)), [IMAGES], 1e-5),
    "a vision transformer with registers": (lambda: jax.vmap(Registers(jax.random.key(0))), [IMAGES], 1e-5),
    "a decoder with sinks and experts": (lambda: with_experts, [TOKENS], 1e-5),
    "a decoder of scanned layers": (lambda: bound(Scanned(), TOKENS, POSITIONS), [TOKENS, POSITIONS], 1e-5),
    "the same in bfloat16": (lambda: bound(Scanned(jnp.bfloat16), TOKENS, POSITIONS), [TOKENS, POSITIONS], 0.2),
}


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_an_architecture(name):
    make, inputs, tolerance = ARCHITECTURES[name]
    fn = make()
    model = to_onnx(fn, [NamedShape(("B", *x.shape[1:]), str(x.dtype)) for x in inputs])
    passed, message = allclose(fn, model, inputs, rtol=tolerance, atol=tolerance)
    assert passed, message


def test_a_flag_that_blocks_hand_on():
    fn, flag = Gpt(nnx.Rngs(0)), {"deterministic": True}
    model = to_onnx(fn, [jax.ShapeDtypeStruct(TOKENS.shape, TOKENS.dtype)], input_params=flag)
    assert [value.name for value in model.graph.input][1:] == ["deterministic"]
    passed, message = allclose(fn, model, [TOKENS], input_params=flag, rtol=1e-5, atol=1e-5)
    assert passed, message
