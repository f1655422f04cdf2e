"""The vision transformer of bench/models/vit.py in Equinox, an image at a time, and by hand with einsum."""

from __future__ import annotations

from collections import Counter

import equinox
import jax
import jax.numpy as jnp
from models.vit import BATCH, CLASSES, EXPERT, HEADS, LAYERS, PATCH, SIZE, WIDTH
from precision import converted

NAMES = ("vit_equinox", "vit_einsum")
COUNT = (SIZE // PATCH) ** 2


class Block(equinox.Module):
    norms: list[equinox.nn.LayerNorm]
    attention: equinox.nn.MultiheadAttention
    up: equinox.nn.Linear
    down: equinox.nn.Linear

    def __init__(self, key: jax.Array):
        keys = jax.random.split(key, 3)
        biases = dict.fromkeys(("query", "key", "value", "output"), True)
        self.norms = [equinox.nn.LayerNorm(WIDTH, eps=1e-6) for _ in range(2)]
        self.attention = equinox.nn.MultiheadAttention(
            HEADS, WIDTH, **{f"use_{name}_bias": flag for name, flag in biases.items()}, key=keys[0]
        )
        self.up = equinox.nn.Linear(WIDTH, 4 * WIDTH, key=keys[1])
        self.down = equinox.nn.Linear(4 * WIDTH, WIDTH, key=keys[2])

    def __call__(self, x: jax.Array) -> jax.Array:
        y = jax.vmap(self.norms[0])(x)
        x = x + self.attention(y, y, y)
        return x + jax.vmap(lambda row: self.down(jax.nn.gelu(self.up(self.norms[1](row)), approximate=False)))(x)


class VisionTransformer(equinox.Module):
    patches: equinox.nn.Conv2d
    class_token: jax.Array
    positions: jax.Array
    blocks: list[Block]
    norm: equinox.nn.LayerNorm
    head: equinox.nn.Linear

    def __init__(self, key: jax.Array):
        keys = jax.random.split(key, 4 + LAYERS)
        self.patches = equinox.nn.Conv2d(3, WIDTH, PATCH, PATCH, key=keys[0])
        self.class_token = jax.random.normal(keys[1], (1, WIDTH)) * 0.02
        self.positions = jax.random.normal(keys[2], (COUNT + 1, WIDTH)) * 0.02
        self.blocks = [Block(part) for part in keys[4:]]
        self.norm = equinox.nn.LayerNorm(WIDTH, eps=1e-6)
        self.head = equinox.nn.Linear(WIDTH, CLASSES, key=keys[3])

    def __call__(self, image: jax.Array) -> jax.Array:
        x = self.patches(image.transpose(2, 0, 1)).reshape(WIDTH, -1).T
        x = jnp.concatenate([self.class_token, x]) + self.positions
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x[0]))


def normalised(x: jax.Array, scale: jax.Array, bias: jax.Array) -> jax.Array:
    variance, mean = jnp.var(x, -1, keepdims=True), jnp.mean(x, -1, keepdims=True)
    return scale * (x - mean) / jnp.sqrt(variance + 1e-6) + bias


def block(x: jax.Array, w: dict[str, jax.Array]) -> jax.Array:
    y = normalised(x, w["scale_1"], w["bias_1"])
    q, k, v = (
        jnp.einsum("nlw,whd->nhld", y, w[name]) + w[f"{name}_bias"][:, None] for name in ("query", "key", "value")
    )
    scores = jnp.einsum("nhqd,nhkd->nhqk", q * (WIDTH // HEADS) ** -0.5, k)
    scores = jnp.exp(scores - scores.max(-1, keepdims=True))
    mixed = jnp.einsum("nhqk,nhkd->nqhd", scores / scores.sum(-1, keepdims=True), v)
    x = x + jnp.einsum("nqhd,hdw->nqw", mixed, w["out"]) + w["out_bias"]
    y = normalised(x, w["scale_2"], w["bias_2"]) @ w["up"] + w["up_bias"]
    return x + jax.nn.gelu(y, approximate=False) @ w["down"] + w["down_bias"]


PART = WIDTH // HEADS
SIZES = {name: (WIDTH, HEADS, PART) for name in ("query", "key", "value")}
SIZES |= {f"{name}_bias": (HEADS, PART) for name in ("query", "key", "value")}
SIZES |= {name: (WIDTH,) for name in ("scale_1", "bias_1", "scale_2", "bias_2", "out_bias", "down_bias")}
SIZES |= {"out": (HEADS, PART, WIDTH), "up": (WIDTH, 4 * WIDTH), "up_bias": (4 * WIDTH,), "down": (4 * WIDTH, WIDTH)}
AROUND = {
    "kernel": (PATCH, PATCH, 3, WIDTH), "kernel_bias": (WIDTH,), "class": (WIDTH,), "positions": (COUNT + 1, WIDTH),
    "scale": (WIDTH,), "bias": (WIDTH,), "head": (WIDTH, CLASSES), "head_bias": (CLASSES,),
}  # fmt: skip


def by_hand(dtype):
    keys = iter(jax.random.split(jax.random.key(0), 100))
    layers = [{name: jax.random.normal(next(keys), size) * 0.1 for name, size in SIZES.items()} for _ in range(LAYERS)]
    w = {name: jax.random.normal(next(keys), size) * 0.1 for name, size in AROUND.items()}
    layers, w = converted((layers, w), dtype)

    def fn(images: jax.Array) -> jax.Array:
        axes = ("NHWC", "HWIO", "NHWC")
        x = jax.lax.conv_general_dilated(images, w["kernel"], (PATCH, PATCH), "VALID", dimension_numbers=axes)
        x = (x + w["kernel_bias"]).reshape(images.shape[0], COUNT, WIDTH)
        first = jnp.tile(w["class"], (images.shape[0], 1, 1))
        x = jnp.concatenate((first, x), axis=1) + w["positions"]
        for layer in layers:
            x = block(x, layer)
        return normalised(x, w["scale"], w["bias"])[:, 0] @ w["head"] + w["head_bias"]

    return fn


def expert(name: str) -> Counter[str]:
    return Counter(EXPERT)


def build(name: str, dtype=jnp.float32):
    inputs = [jax.ShapeDtypeStruct((BATCH, SIZE, SIZE, 3), dtype)]
    if name == "vit_einsum":
        return by_hand(dtype), inputs
    arrays, rest = equinox.partition(VisionTransformer(jax.random.key(0)), equinox.is_array)
    return jax.vmap(equinox.combine(converted(arrays, dtype), rest)), inputs
