"""The Llama of bench/models/llama.py in Flax Linen, with keys repeated for their heads, and by hand with einsum and
rotations of complex numbers written out."""

from __future__ import annotations

from collections import Counter

import jax
import jax.numpy as jnp
from flax import linen
from models.llama import BATCH, EXPERT, HEADS, KEY_HEADS, LAYERS, LENGTH, VOCABULARY, WIDTH
from precision import converted

NAMES = ("llama_linen", "llama_einsum")
SIZE = WIDTH // HEADS


def rotated(x: jax.Array) -> jax.Array:
    """As Hugging Face has it: the angles twice, and the halves exchanged."""
    frequencies = 10000.0 ** (-jnp.arange(0, SIZE, 2) / SIZE)
    angles = jnp.outer(jnp.arange(x.shape[1]), frequencies)
    angles = jnp.concatenate([angles, angles], axis=-1)[:, None]
    turned = jnp.concatenate([-x[..., SIZE // 2 :], x[..., : SIZE // 2]], axis=-1)
    return x * jnp.cos(angles).astype(x.dtype) + turned * jnp.sin(angles).astype(x.dtype)


class Block(linen.Module):
    @linen.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        y = linen.RMSNorm(epsilon=1e-5)(x)
        sizes = (HEADS, KEY_HEADS, KEY_HEADS)
        q, k, v = (linen.DenseGeneral((heads, SIZE), use_bias=False)(y) for heads in sizes)
        k, v = (jnp.repeat(part, HEADS // KEY_HEADS, axis=2) for part in (rotated(k), v))
        mask = linen.make_causal_mask(jnp.zeros(x.shape[:2]), dtype=bool)
        mixed = linen.dot_product_attention(rotated(q), k, v, mask=mask, deterministic=True)
        x = x + linen.DenseGeneral(WIDTH, axis=(-2, -1), use_bias=False)(mixed)
        y = linen.RMSNorm(epsilon=1e-5)(x)
        gate, up = (linen.Dense(2 * WIDTH, use_bias=False)(y) for _ in range(2))
        return x + linen.Dense(WIDTH, use_bias=False)(linen.silu(gate) * up)


class Llama(linen.Module):
    @linen.compact
    def __call__(self, tokens: jax.Array) -> jax.Array:
        x = linen.Embed(VOCABULARY, WIDTH)(tokens)
        for _ in range(LAYERS):
            x = Block()(x)
        return linen.Dense(VOCABULARY, use_bias=False)(linen.RMSNorm(epsilon=1e-5)(x))


def normalised(x: jax.Array, scale: jax.Array) -> jax.Array:
    wide = x.astype(jnp.float32)
    return (wide * jax.lax.rsqrt(jnp.mean(wide * wide, axis=-1, keepdims=True) + 1e-5)).astype(x.dtype) * scale


def block(x: jax.Array, w: dict[str, jax.Array], cos: jax.Array, sin: jax.Array) -> jax.Array:
    def turned(part: jax.Array) -> jax.Array:
        a, b = part[..., : SIZE // 2], part[..., SIZE // 2 :]
        return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)

    y = normalised(x, w["scale_1"])
    q = turned(jnp.einsum("blw,wkgd->blkgd", y, w["query"]).reshape(*x.shape[:2], HEADS, SIZE))
    q = q.reshape(*x.shape[:2], KEY_HEADS, -1, SIZE)
    k, v = turned(jnp.einsum("blw,wkd->blkd", y, w["key"])), jnp.einsum("blw,wkd->blkd", y, w["value"])
    scores = jnp.einsum("bqkgd,bskd->bkgqs", q, k).astype(jnp.float32) * SIZE**-0.5
    places = jnp.arange(x.shape[1])
    scores = jnp.where(places[:, None] >= places, scores, -1e30)
    mixed = jnp.einsum("bkgqs,bskd->bqkgd", jax.nn.softmax(scores).astype(x.dtype), v)
    x = x + mixed.reshape(x.shape) @ w["out"]
    y = normalised(x, w["scale_2"])
    gate = y @ w["gate"]
    return x + (gate / (1 + jnp.exp(-gate)) * (y @ w["up"])) @ w["down"]


SIZES = {"scale_1": (WIDTH,), "scale_2": (WIDTH,), "out": (WIDTH, WIDTH)}
SIZES |= {"query": (WIDTH, KEY_HEADS, HEADS // KEY_HEADS, SIZE)}
SIZES |= {"key": (WIDTH, KEY_HEADS, SIZE), "value": (WIDTH, KEY_HEADS, SIZE)}
SIZES |= {"gate": (WIDTH, 2 * WIDTH), "up": (WIDTH, 2 * WIDTH), "down": (2 * WIDTH, WIDTH)}


def by_hand(dtype):
    keys = iter(jax.random.split(jax.random.key(0), 100))
    layers = [{name: jax.random.normal(next(keys), size) * 0.1 for name, size in SIZES.items()} for _ in range(LAYERS)]
    table, last, scale = (jax.random.normal(next(keys), (size, WIDTH)) for size in (VOCABULARY, VOCABULARY, 1))
    layers, table, last, scale = converted((layers, table, last * 0.1, scale[0]), dtype)

    def fn(tokens: jax.Array) -> jax.Array:
        angles = jnp.arange(LENGTH)[:, None] / 10000.0 ** (jnp.arange(0, SIZE, 2) / SIZE)
        cos, sin = (turn(angles)[:, None].astype(dtype) for turn in (jnp.cos, jnp.sin))
        x = table[tokens]
        for layer in layers:
            x = block(x, layer, cos, sin)
        return normalised(x, scale) @ last.T

    return fn


def expert(name: str) -> Counter[str]:
    return Counter(EXPERT)


def build(name: str, dtype=jnp.float32):
    tokens = jax.ShapeDtypeStruct((BATCH, LENGTH), jnp.int32)
    if name == "llama_einsum":
        return by_hand(dtype), [tokens]
    model = Llama()
    weights = converted(model.init(jax.random.key(0), jnp.zeros((BATCH, LENGTH), jnp.int32)), dtype)
    return (lambda tokens: model.apply(weights, tokens)), [tokens]
