"""Attention as it stands in ports of well-known models: few operators around the one that it becomes."""

import collections

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from export_check import check_export, op_types

RNG = np.random.default_rng(0)
B, T, H, D = 2, 9, 4, 8
C = H * D


def normal(*shape):
    return RNG.standard_normal(shape).astype(np.float32) * 0.3


QKV, OUT = normal(C, 3 * C), normal(C, C)
Q, K, V = normal(C, H, D), normal(C, H, D), normal(C, H, D)
BACK = normal(H, D, C)
TABLE, PLACES = normal(17, H), np.add.outer(np.arange(T), -np.arange(T)) + 8
LENGTHS = np.arange(T)[None] < np.array([[T], [4]])


def buffered_causal_mask(x):
    """nanoGPT: the mask is a buffer for the longest text."""
    b, t, c = x.shape
    q, k, v = (a.reshape(b, t, H, D).transpose(0, 2, 1, 3) for a in jnp.split(x @ QKV, 3, axis=2))
    buffer = jnp.tril(jnp.ones((64, 64))).reshape(1, 1, 64, 64)
    scores = (q @ k.transpose(0, 1, 3, 2)) * (1.0 / np.sqrt(D))
    scores = jnp.where(buffer[:, :, :t, :t] == 0, float("-inf"), scores)
    return (jax.nn.softmax(scores, axis=-1) @ v).transpose(0, 2, 1, 3).reshape(b, t, c) @ OUT


def picked_from_joined(x):
    """timm's Swin: queries, keys and values by number, and a bias that is looked up."""
    b, t, c = x.shape
    qkv = (x @ QKV).reshape(b, t, 3, H, D).transpose(2, 0, 3, 1, 4)
    q, k, v = qkv[0], qkv[1], qkv[2]
    scores = (q * D**-0.5) @ k.transpose(0, 1, 3, 2) + jnp.asarray(TABLE)[PLACES].transpose(2, 0, 1)[None]
    return (jax.nn.softmax(scores, axis=-1) @ v).transpose(0, 2, 1, 3).reshape(b, t, c)


def pixels(x):
    """Diffusion: every pixel of an image looks at every other, both sides scaled."""
    b, h, w, c = x.shape
    qkv = (x.reshape(b, h * w, c) @ QKV).reshape(b, h * w, 3, H, D)
    q, k, v = qkv[:, :, 0] * D**-0.25, qkv[:, :, 1] * D**-0.25, qkv[:, :, 2]
    weights = jax.nn.softmax(jnp.einsum("bthc,bshc->bhts", q, k), axis=-1)
    return jnp.einsum("bhts,bshc->bthc", weights, v).reshape(b, h, w, c)


def heads_before_the_batch(x):
    q, k, v = (jnp.einsum("btc,chd->hbtd", x, weight) for weight in (Q, K, V))
    weights = jax.nn.softmax(jnp.einsum("hbtd,hbsd->hbts", q, k) * D**-0.5)
    return jnp.einsum("hbtd,hdc->btc", jnp.einsum("hbts,hbsd->hbtd", weights, v), BACK)


def mask_as_a_number(q, k, v, kept):
    """Keras: 1 - mask, times a large number, is added."""
    scores = q @ k.transpose(0, 1, 3, 2) / np.sqrt(D)
    scores = scores + (1.0 - kept[:, None, None, :].astype(scores.dtype)) * -1e9
    return jax.nn.softmax(scores) @ v


def mask_of_both_sides(q, k, v, kept):
    """Both positions are no padding: the product of two masks as numbers, which blends the scores."""
    number = kept.astype(jnp.float32)
    both = jnp.einsum("bi,bj->bij", number, number)[:, None]
    scores = q @ k.transpose(0, 1, 3, 2) / np.sqrt(D)
    return jax.nn.softmax(scores * both - 1e9 * (1 - both)) @ v


def logarithm_of_a_mask(q, k, v, kept):
    scores = q @ k.transpose(0, 1, 3, 2) / np.sqrt(D)
    return jax.nn.softmax(scores + jnp.log(kept.astype(jnp.float32))[:, None, None, :]) @ v


def times_the_mask(q, k, v, kept):
    kept = kept[:, None, None]
    return (jax.nn.softmax(jnp.where(kept, q @ k.swapaxes(-1, -2), -1e9)) * kept) @ v


def times_a_triangle(q, k, v):
    triangle = jnp.tril(jnp.ones((T, T)))
    return (jax.nn.softmax(q @ k.swapaxes(-1, -2) - 1e9 * (1 - triangle)) * triangle) @ v


def turned_heads_first(x):
    """Rotated where heads are before positions, from a joined projection."""
    b, t, c = x.shape
    q, k, v = (x @ QKV).reshape(b, t, 3, H, D).transpose(2, 0, 3, 1, 4)
    angles = jnp.arange(t)[:, None] * jnp.asarray([1.0, 0.3, 0.1, 0.03])

    def turned(a):
        one, other = jnp.split(a, 2, -1)
        cosine, sine = jnp.cos(angles), jnp.sin(angles)
        return jnp.concatenate([one * cosine - other * sine, other * cosine + one * sine], -1)

    weights = jax.nn.softmax(turned(q) @ turned(k).swapaxes(-1, -2) * D**-0.5)
    return (weights @ v).transpose(0, 2, 1, 3).reshape(b, t, c)


def latents(x):
    """Perceiver: the same few queries for all of a batch."""
    k, v = (jnp.einsum("btc,chd->bthd", x, weight) for weight in (K, V))
    weights = jax.nn.softmax(jnp.einsum("qhd,bshd->bhqs", Q[:3], k))
    return jnp.einsum("bhqs,bshd->bqhd", weights, v).reshape(x.shape[0], 3, C)


def one_head_of_keys(q, k, v):
    """Multi-query, with the axis of its one head in the products."""
    weights = jax.nn.softmax(jnp.einsum("thd,sgd->hts", q, k) / np.sqrt(D))
    return jnp.einsum("hts,sgd->thd", weights, v).reshape(T, C)


def repeated_heads(q, k, v):
    k, v = (jnp.repeat(a[:, :, None], 2, 2).reshape(1, H, T, D) for a in (k, v))
    return jax.nn.softmax(q @ k.swapaxes(2, 3) * D**-0.5) @ v


FOUR = [normal(B, H, T, D) for _ in range(3)]
PORTS = [
    (buffered_causal_mask, [normal(B, T, C)], {"MatMul": 2, "Split": 1}),
    (picked_from_joined, [normal(B, T, C)], {"MatMul": 1, "Split": 1}),
    (pixels, [normal(B, 3, 3, C)], {"MatMul": 1, "Split": 1, "Reshape": 2}),
    (heads_before_the_batch, [normal(B, T, C)], {"MatMul": 4}),
    (mask_as_a_number, [*FOUR, LENGTHS], {"Unsqueeze": 1, "Where": 1}),
    (mask_of_both_sides, [*FOUR, LENGTHS], {"And": 1, "Unsqueeze": 3, "Where": 1}),
    (times_the_mask, [*FOUR, LENGTHS], {"Unsqueeze": 1, "Where": 1}),
    (times_a_triangle, FOUR, {}),
    (turned_heads_first, [normal(B, T, C)], {"MatMul": 1, "Split": 1, "RotaryEmbedding": 2}),
    (latents, [normal(B, T, C)], {"MatMul": 2, "Reshape": 3, "Transpose": 3}),
    (one_head_of_keys, [normal(T, H, D), normal(T, 1, D), normal(T, 1, D)], {"Reshape": 3, "Unsqueeze": 1}),
    (repeated_heads, [normal(1, H, T, D), normal(1, 2, T, D), normal(1, 2, T, D)], {}),
]


@pytest.mark.parametrize("port", PORTS, ids=lambda port: port[0].__name__)
def test_little_is_left_around_it(port):
    fn, args, others = port
    more = [[*args[:3], np.zeros_like(LENGTHS)]] if len(args) == 4 else []
    model = check_export(fn, args, more_args=more, rtol=1e-4, atol=1e-5)
    assert collections.Counter(op_types(model)) == {"Attention": 1, **others}


def test_the_logarithm_of_a_mask_is_infinite():
    """A row of which nothing is kept is NaN."""
    model = check_export(logarithm_of_a_mask, [*FOUR, LENGTHS], more_args=[[*FOUR, np.zeros_like(LENGTHS)]])
    found = collections.Counter(op_types(model))
    assert found["Attention"] == 1 and not found["Log"] and not found["Softmax"]
