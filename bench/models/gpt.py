"""A GPT: pre-norm blocks with fused projections, causal attention and GELU, over whole sequences (Flax NNX)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx
from precision import of_type

BATCH, LENGTH, WIDTH, HEADS, LAYERS, VOCABULARY = 2, 16, 64, 4, 2, 96

# A block: two normalisations, four projections with a bias each, one Split, one Attention (which splits the heads
# itself), Gelu, two residual sums. Around the blocks: the look-up, the positions, a last normalisation, the logits.
BLOCK = {"LayerNormalization": 2, "MatMul": 4, "Add": 6, "Split": 1, "Attention": 1, "Gelu": 1}
EXPERT = {op: LAYERS * count for op, count in BLOCK.items()}
for _op in ("Gather", "Add", "LayerNormalization", "MatMul"):
    EXPERT[_op] = EXPERT.get(_op, 0) + 1


class Block(nnx.Module):
    def __init__(self, width: int, heads: int, rngs: nnx.Rngs):
        self.heads = heads
        self.norm_1 = nnx.LayerNorm(width, epsilon=1e-5, rngs=rngs)
        self.qkv = nnx.Linear(width, 3 * width, rngs=rngs)
        self.out = nnx.Linear(width, width, rngs=rngs)
        self.norm_2 = nnx.LayerNorm(width, epsilon=1e-5, rngs=rngs)
        self.up = nnx.Linear(width, 4 * width, rngs=rngs)
        self.down = nnx.Linear(4 * width, width, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        batch, length, width = x.shape
        parts = jnp.split(self.qkv(self.norm_1(x)), 3, axis=-1)
        q, k, v = (part.reshape(batch, length, self.heads, width // self.heads) for part in parts)
        mixed = jax.nn.dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.reshape(batch, length, width))
        return x + self.down(nnx.gelu(self.up(self.norm_2(x))))


class Gpt(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.tokens = nnx.Embed(VOCABULARY, WIDTH, rngs=rngs)
        self.positions = nnx.Param(jax.random.normal(rngs.params(), (LENGTH, WIDTH)) * 0.02)
        self.blocks = nnx.List([Block(WIDTH, HEADS, rngs) for _ in range(LAYERS)])
        self.norm = nnx.LayerNorm(WIDTH, epsilon=1e-5, rngs=rngs)
        self.head = nnx.Linear(WIDTH, VOCABULARY, use_bias=False, rngs=rngs)

    def __call__(self, tokens: jax.Array) -> jax.Array:
        x = self.tokens(tokens) + self.positions[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def build(dtype=jnp.float32):
    return of_type(Gpt(nnx.Rngs(0)), dtype), [jax.ShapeDtypeStruct((BATCH, LENGTH), jnp.int32)]
