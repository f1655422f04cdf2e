"""The encoder of a vision transformer: patches, a class token, blocks of self-attention, logits (Flax NNX)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx
from precision import of_type

BATCH, SIZE, PATCH, WIDTH, HEADS, LAYERS, CLASSES = 2, 32, 8, 64, 4, 2, 10

# A block: two normalisations, six projections with a bias each, one Attention (which splits the heads itself), Gelu,
# two residual sums. Before: patches by a convolution (channels first for it), as a sequence, behind the class token,
# with positions. After: a last normalisation, the class token's row, the logits.
BLOCK = {"LayerNormalization": 2, "MatMul": 6, "Add": 8, "Attention": 1, "Gelu": 1}
EXPERT = {op: LAYERS * count for op, count in BLOCK.items()}
ONCE = ("Transpose", "Conv", "Reshape", "Transpose", "Concat", "Add", "LayerNormalization", "Gather", "Gemm")
for _op in ONCE:
    EXPERT[_op] = EXPERT.get(_op, 0) + 1


class Block(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.norm_1 = nnx.LayerNorm(WIDTH, epsilon=1e-6, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(HEADS, WIDTH, decode=False, deterministic=True, rngs=rngs)
        self.norm_2 = nnx.LayerNorm(WIDTH, epsilon=1e-6, rngs=rngs)
        self.up = nnx.Linear(WIDTH, 4 * WIDTH, rngs=rngs)
        self.down = nnx.Linear(4 * WIDTH, WIDTH, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        x = x + self.attention(self.norm_1(x))
        return x + self.down(nnx.gelu(self.up(self.norm_2(x)), approximate=False))


class VisionTransformer(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        count = (SIZE // PATCH) ** 2
        self.patches = nnx.Conv(3, WIDTH, (PATCH, PATCH), (PATCH, PATCH), padding="VALID", rngs=rngs)
        self.class_token = nnx.Param(jax.random.normal(rngs.params(), (1, 1, WIDTH)) * 0.02)
        self.positions = nnx.Param(jax.random.normal(rngs.params(), (1, count + 1, WIDTH)) * 0.02)
        self.blocks = nnx.List([Block(rngs) for _ in range(LAYERS)])
        self.norm = nnx.LayerNorm(WIDTH, epsilon=1e-6, rngs=rngs)
        self.head = nnx.Linear(WIDTH, CLASSES, rngs=rngs)

    def __call__(self, images: jax.Array) -> jax.Array:
        x = self.patches(images)
        x = x.reshape(x.shape[0], -1, WIDTH)
        first = jnp.broadcast_to(self.class_token[...], (x.shape[0], 1, WIDTH))
        x = jnp.concatenate([first, x], axis=1) + self.positions
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)[:, 0])


def build(dtype=jnp.float32):
    return of_type(VisionTransformer(nnx.Rngs(0)), dtype), [jax.ShapeDtypeStruct((BATCH, SIZE, SIZE, 3), dtype)]
