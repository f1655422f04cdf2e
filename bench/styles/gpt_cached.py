"""The decoding step of bench/models/gpt_cached.py in Flax Linen, and by hand with einsum."""

from __future__ import annotations

from collections import Counter

import jax
import jax.numpy as jnp
from flax import linen
from models.gpt_cached import BATCH, EXPERT, HEADS, LAYERS, LENGTH, VOCABULARY, WIDTH
from precision import converted

NAMES = ("gpt_cached_linen", "gpt_cached_einsum")
SIZE = WIDTH // HEADS
update = jax.lax.dynamic_update_index_in_dim


class Block(linen.Module):
    @linen.compact
    def __call__(self, x, position, keys, values):
        y = linen.Dense(3 * WIDTH)(linen.LayerNorm(epsilon=1e-5)(x))
        q, k, v = (part.reshape(*x.shape[:2], HEADS, SIZE) for part in jnp.split(y, 3, axis=-1))
        keys = jax.lax.dynamic_update_slice_in_dim(keys, k, position, axis=1)
        values = jax.lax.dynamic_update_slice_in_dim(values, v, position, axis=1)
        seen = (jnp.arange(keys.shape[1]) <= position)[None, None, None]
        mixed = linen.dot_product_attention(q, keys, values, mask=seen, deterministic=True)
        x = x + linen.Dense(WIDTH)(mixed.reshape(x.shape))
        y = linen.Dense(4 * WIDTH)(linen.LayerNorm(epsilon=1e-5)(x))
        return x + linen.Dense(WIDTH)(linen.gelu(y)), keys, values


class Decoder(linen.Module):
    @linen.compact
    def __call__(self, token, position, *caches):
        x = linen.Embed(VOCABULARY, WIDTH)(token) + linen.Embed(LENGTH, WIDTH)(position)
        updated = []
        for at in range(LAYERS):
            x, keys, values = Block()(x, position, *caches[2 * at : 2 * at + 2])
            updated += [keys, values]
        return linen.Dense(VOCABULARY, use_bias=False)(linen.LayerNorm(epsilon=1e-5)(x)), *updated


def normalised(x: jax.Array, scale: jax.Array, bias: jax.Array) -> jax.Array:
    return jax.nn.standardize(x, epsilon=1e-5) * scale + bias


def block(x, position, keys, values, w):
    y = normalised(x, w["scale_1"], w["bias_1"])
    q, k, v = jnp.moveaxis((y @ w["qkv"] + w["qkv_bias"]).reshape(BATCH, 3, HEADS, SIZE), 1, 0)
    keys, values = (update(cache, new, position, 1) for cache, new in ((keys, k), (values, v)))
    scores = jnp.einsum("bhd,blhd->bhl", q, keys) / SIZE**0.5
    scores = jnp.where(jnp.arange(LENGTH) > position, jnp.finfo(x.dtype).min, scores)
    mixed = jnp.einsum("bhl,blhd->bhd", jax.nn.softmax(scores), values)
    x = x + mixed.reshape(BATCH, WIDTH) @ w["out"] + w["out_bias"]
    y = normalised(x, w["scale_2"], w["bias_2"]) @ w["up"] + w["up_bias"]
    return x + jax.nn.gelu(y) @ w["down"] + w["down_bias"], keys, values


SIZES = {name: (WIDTH,) for name in ("scale_1", "bias_1", "scale_2", "bias_2", "out_bias", "down_bias")}
SIZES |= {"qkv": (WIDTH, 3 * WIDTH), "qkv_bias": (3 * WIDTH,), "out": (WIDTH, WIDTH)}
SIZES |= {"up": (WIDTH, 4 * WIDTH), "up_bias": (4 * WIDTH,), "down": (4 * WIDTH, WIDTH)}


def by_hand(dtype):
    keys = iter(jax.random.split(jax.random.key(0), 100))
    layers = [{name: jax.random.normal(next(keys), size) * 0.1 for name, size in SIZES.items()} for _ in range(LAYERS)]
    sizes = (VOCABULARY, LENGTH, VOCABULARY, 1, 1)
    table, positions, last, scale, bias = (jax.random.normal(next(keys), (size, WIDTH)) * 0.1 for size in sizes)
    layers, table, positions, last, scale, bias = converted((layers, table, positions, last, scale[0], bias[0]), dtype)

    def fn(token, position, *caches):
        x = table[token[:, 0]] + positions[position]
        updated = []
        for at, layer in enumerate(layers):
            x, keys, values = block(x, position, *caches[2 * at : 2 * at + 2], layer)
            updated += [keys, values]
        return (normalised(x, scale, bias) @ last.T)[:, None], *updated

    return fn


def expert(name: str) -> Counter[str]:
    return Counter(EXPERT)


def build(name: str, dtype=jnp.float32):
    cache = jax.ShapeDtypeStruct((BATCH, LENGTH, HEADS, SIZE), dtype)
    token, position = jax.ShapeDtypeStruct((BATCH, 1), jnp.int32), jax.ShapeDtypeStruct((), jnp.int32)
    inputs = [token, position, *[cache] * (2 * LAYERS)]
    if name == "gpt_cached_einsum":
        return by_hand(dtype), inputs
    model = Decoder()
    zeros = [jnp.zeros(spec.shape, jnp.float32 if spec.dtype == dtype else spec.dtype) for spec in inputs]
    weights = converted(model.init(jax.random.key(0), *zeros), dtype)
    return (lambda *arrays: model.apply(weights, *arrays)), inputs
