"""A decoder of the Llama kind: RMS norms, rotary positions, fewer heads of keys, gated linear units (Flax NNX)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx
from precision import of_type

BATCH, LENGTH, WIDTH, HEADS, KEY_HEADS, LAYERS, VOCABULARY = 2, 16, 64, 8, 2, 2, 96

# A block: two normalisations, four projections, two rotations and one Attention (which split the heads themselves),
# three more projections with x * sigmoid(x) and a product between them, two residual sums. Around the blocks: the
# look-up, a last normalisation, the logits.
BLOCK = {"RMSNormalization": 2, "MatMul": 7, "RotaryEmbedding": 2, "Attention": 1, "Sigmoid": 1, "Mul": 2, "Add": 2}
EXPERT = {op: LAYERS * count for op, count in BLOCK.items()}
for _op in ("Gather", "RMSNormalization", "MatMul"):
    EXPERT[_op] = EXPERT.get(_op, 0) + 1


def turned(x: jax.Array, cos: jax.Array, sin: jax.Array) -> jax.Array:
    first, second = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


class Block(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        size = WIDTH // HEADS
        linear = nnx.Linear
        self.norm_1 = nnx.RMSNorm(WIDTH, epsilon=1e-5, rngs=rngs)
        self.query = linear(WIDTH, HEADS * size, use_bias=False, rngs=rngs)
        self.key = linear(WIDTH, KEY_HEADS * size, use_bias=False, rngs=rngs)
        self.value = linear(WIDTH, KEY_HEADS * size, use_bias=False, rngs=rngs)
        self.out = linear(WIDTH, WIDTH, use_bias=False, rngs=rngs)
        self.norm_2 = nnx.RMSNorm(WIDTH, epsilon=1e-5, rngs=rngs)
        self.gate = linear(WIDTH, 2 * WIDTH, use_bias=False, rngs=rngs)
        self.up = linear(WIDTH, 2 * WIDTH, use_bias=False, rngs=rngs)
        self.down = linear(2 * WIDTH, WIDTH, use_bias=False, rngs=rngs)

    def __call__(self, x: jax.Array, cos: jax.Array, sin: jax.Array) -> jax.Array:
        batch, length, width = x.shape
        y = self.norm_1(x)
        q, k, v = (part(y).reshape(batch, length, -1, width // HEADS) for part in (self.query, self.key, self.value))
        mixed = jax.nn.dot_product_attention(turned(q, cos, sin), turned(k, cos, sin), v, is_causal=True)
        x = x + self.out(mixed.reshape(batch, length, width))
        y = self.norm_2(x)
        return x + self.down(nnx.silu(self.gate(y)) * self.up(y))


class Llama(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.tokens = nnx.Embed(VOCABULARY, WIDTH, rngs=rngs)
        self.blocks = nnx.List([Block(rngs) for _ in range(LAYERS)])
        self.norm = nnx.RMSNorm(WIDTH, epsilon=1e-5, rngs=rngs)
        self.head = nnx.Linear(WIDTH, VOCABULARY, use_bias=False, rngs=rngs)

    def __call__(self, tokens: jax.Array) -> jax.Array:
        size = WIDTH // HEADS
        angles = jnp.arange(tokens.shape[1])[:, None] / 10000.0 ** (jnp.arange(0, size, 2) / size)
        x = self.tokens(tokens)
        cos, sin = (turn(angles)[:, None].astype(x.dtype) for turn in (jnp.cos, jnp.sin))
        for block in self.blocks:
            x = block(x, cos, sin)
        return self.head(self.norm(x))


def build(dtype=jnp.float32):
    return of_type(Llama(nnx.Rngs(0)), dtype), [jax.ShapeDtypeStruct((BATCH, LENGTH), jnp.int32)]
