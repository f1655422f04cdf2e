"""One decoding step of a GPT: a token, its position, and caches of keys and values that are updated (Flax NNX)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx
from models.gpt import Block
from precision import of_type

BATCH, LENGTH, WIDTH, HEADS, LAYERS, VOCABULARY = 2, 32, 64, 4, 2, 96

# A block: as of gpt.py, with the new keys and values split into heads (two Reshapes), written into the caches (two
# ScatterND), and the caches as rows for Attention (two Reshapes). Once: the position in bounds, the indices of what is
# written, the mask, the look-ups of token and position, their sum, a last normalisation, the logits.
BLOCK = {"LayerNormalization": 2, "MatMul": 4, "Add": 6, "Split": 1, "Attention": 1, "Gelu": 1}
BLOCK |= {"Reshape": 4, "ScatterND": 2}
EXPERT = {op: LAYERS * count for op, count in BLOCK.items()}
ONCE = ("Clip", "Add", "LessOrEqual", "Gather", "Gather", "Add", "LayerNormalization", "MatMul")
for _op in ONCE:
    EXPERT[_op] = EXPERT.get(_op, 0) + 1


class CachedBlock(Block):
    """The same weights; keys and values come from the caches, which it hands on."""

    def __call__(self, x, position, keys, values):
        batch, _, width = x.shape
        parts = jnp.split(self.qkv(self.norm_1(x)), 3, axis=-1)
        q, k, v = (part.reshape(batch, 1, self.heads, width // self.heads) for part in parts)
        keys = jax.lax.dynamic_update_slice(keys, k, (0, position, 0, 0))
        values = jax.lax.dynamic_update_slice(values, v, (0, position, 0, 0))
        seen = (jnp.arange(keys.shape[1]) <= position)[None, None, None, :]
        mixed = jax.nn.dot_product_attention(q, keys, values, mask=seen)
        x = x + self.out(mixed.reshape(batch, 1, width))
        return x + self.down(nnx.gelu(self.up(self.norm_2(x)))), keys, values


class Decoder(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.tokens = nnx.Embed(VOCABULARY, WIDTH, rngs=rngs)
        self.positions = nnx.Embed(LENGTH, WIDTH, rngs=rngs)
        self.blocks = nnx.List([CachedBlock(WIDTH, HEADS, rngs) for _ in range(LAYERS)])
        self.norm = nnx.LayerNorm(WIDTH, epsilon=1e-5, rngs=rngs)
        self.head = nnx.Linear(WIDTH, VOCABULARY, use_bias=False, rngs=rngs)

    def __call__(self, token, position, *caches):
        x = self.tokens(token) + self.positions(position)
        updated = []
        for at, block in enumerate(self.blocks):
            x, keys, values = block(x, position, caches[2 * at], caches[2 * at + 1])
            updated += [keys, values]
        return self.head(self.norm(x)), *updated


def build(dtype=jnp.float32):
    cache = jax.ShapeDtypeStruct((BATCH, LENGTH, HEADS, WIDTH // HEADS), dtype)
    token, position = jax.ShapeDtypeStruct((BATCH, 1), jnp.int32), jax.ShapeDtypeStruct((), jnp.int32)
    return of_type(Decoder(nnx.Rngs(0)), dtype), [token, position, *[cache] * (2 * LAYERS)]
