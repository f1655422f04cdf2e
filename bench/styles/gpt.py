"""The GPT of bench/models/gpt.py in Flax Linen, and by hand with einsum over stacked weights."""

from __future__ import annotations

from collections import Counter

import jax
import jax.numpy as jnp
from flax import linen
from models.gpt import BATCH, EXPERT, HEADS, LAYERS, LENGTH, VOCABULARY, WIDTH
from precision import converted

NAMES = ("gpt_linen", "gpt_einsum")


class Block(linen.Module):
    """The mask is one of numbers, and heads are split by the library."""

    @linen.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        y = linen.LayerNorm(epsilon=1e-5)(x)
        q, k, v = jnp.split(linen.Dense(3 * WIDTH)(y), 3, axis=-1)
        q, k, v = (part.reshape(*part.shape[:-1], HEADS, -1) for part in (q, k, v))
        mask = linen.make_causal_mask(jnp.zeros(x.shape[:2]))
        mixed = linen.dot_product_attention(q, k, v, mask=mask, deterministic=True)
        x = x + linen.Dense(WIDTH)(mixed.reshape(x.shape))
        y = linen.LayerNorm(epsilon=1e-5)(x)
        return x + linen.Dense(WIDTH)(linen.gelu(linen.Dense(4 * WIDTH)(y)))


class Gpt(linen.Module):
    @linen.compact
    def __call__(self, tokens: jax.Array) -> jax.Array:
        positions = self.param("positions", linen.initializers.normal(0.02), (LENGTH, WIDTH))
        x = linen.Embed(VOCABULARY, WIDTH)(tokens) + positions[: tokens.shape[1]]
        for _ in range(LAYERS):
            x = Block()(x)
        return linen.Dense(VOCABULARY, use_bias=False)(linen.LayerNorm(epsilon=1e-5)(x))


def normalised(x: jax.Array, scale: jax.Array, bias: jax.Array) -> jax.Array:
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) / jnp.sqrt(variance + 1e-5) * scale + bias


def block(x: jax.Array, w: dict[str, jax.Array]) -> jax.Array:
    """Weights have an axis of heads, as in the papers."""
    y = normalised(x, w["scale_1"], w["bias_1"])
    q, k, v = jnp.einsum("bld,tdhk->tblhk", y, w["qkv"]) + w["qkv_bias"][:, None, None]
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / jnp.sqrt(jnp.array(q.shape[-1], x.dtype))
    seen = jnp.tril(jnp.ones((x.shape[1], x.shape[1]), bool))
    weights = jax.nn.softmax(jnp.where(seen, scores, jnp.finfo(x.dtype).min), axis=-1)
    mixed = jnp.einsum("bhqk,bkhd->bqhd", weights, v)
    x = x + jnp.einsum("blhd,hdw->blw", mixed, w["out"]) + w["out_bias"]
    y = normalised(x, w["scale_2"], w["bias_2"])
    y = jax.nn.gelu(jnp.einsum("bld,df->blf", y, w["up"]) + w["up_bias"])
    return x + jnp.einsum("blf,fd->bld", y, w["down"]) + w["down_bias"]


SIZES = {
    "scale_1": (WIDTH,), "bias_1": (WIDTH,), "scale_2": (WIDTH,), "bias_2": (WIDTH,),
    "qkv": (3, WIDTH, HEADS, WIDTH // HEADS), "qkv_bias": (3, HEADS, WIDTH // HEADS),
    "out": (HEADS, WIDTH // HEADS, WIDTH), "out_bias": (WIDTH,),
    "up": (WIDTH, 4 * WIDTH), "up_bias": (4 * WIDTH,), "down": (4 * WIDTH, WIDTH), "down_bias": (WIDTH,),
}  # fmt: skip


def by_hand(dtype):
    keys = iter(jax.random.split(jax.random.key(0), 100))
    layers = [{name: jax.random.normal(next(keys), size) * 0.1 for name, size in SIZES.items()} for _ in range(LAYERS)]
    table, last = (jax.random.normal(next(keys), (VOCABULARY, WIDTH)) for _ in range(2))
    positions, scale, bias = (jax.random.normal(next(keys), (size, WIDTH)) for size in (LENGTH, 1, 1))
    weights = converted((layers, table, last * 0.1, positions, scale[0], bias[0]), dtype)

    def fn(tokens: jax.Array) -> jax.Array:
        layers, table, last, positions, scale, bias = weights
        x = table[tokens] + positions
        for layer in layers:
            x = block(x, layer)
        return jnp.einsum("bld,vd->blv", normalised(x, scale, bias), last)

    return fn


def expert(name: str) -> Counter[str]:
    return Counter(EXPERT)


def build(name: str, dtype=jnp.float32):
    tokens = jax.ShapeDtypeStruct((BATCH, LENGTH), jnp.int32)
    if name == "gpt_einsum":
        return by_hand(dtype), [tokens]
    model = Gpt()
    weights = converted(model.init(jax.random.key(0), jnp.zeros((BATCH, LENGTH), jnp.int32)), dtype)
    return (lambda tokens: model.apply(weights, tokens)), [tokens]
