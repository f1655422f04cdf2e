"""Attention with caches: it joins new keys and values to those of earlier positions, and gives them back."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from export_check import check_export, op_types

RANDOM = np.random.default_rng(0)

CACHED = {
    "one new position": (2, 4, 4, 1, 5),
    "several": (2, 4, 4, 3, 5),
    "grouped heads": (2, 4, 2, 3, 5),
    "a batch of one": (1, 4, 4, 2, 5),
    "a single head": (2, 1, 1, 3, 5),
}


def joined(count, mask):
    """Keys and values of new positions, joined to those of earlier ones and given back."""

    def fn(q, k, v, past_k, past_v):
        k, v = jnp.concatenate([past_k, k], 2), jnp.concatenate([past_v, v], 2)
        full_k, full_v = (jnp.repeat(a, count // a.shape[1], 1) for a in (k, v))
        scores = q @ jnp.swapaxes(full_k, -1, -2) / math.sqrt(q.shape[-1])
        if mask == "causal":
            rows, columns = jnp.arange(q.shape[2])[:, None], jnp.arange(k.shape[2])
            scores = jnp.where(columns <= rows + past_k.shape[2], scores, -jnp.inf)
        elif mask == "first":  # counts queries from the first position
            scores = jnp.where(jnp.arange(k.shape[2]) <= jnp.arange(q.shape[2])[:, None], scores, -jnp.inf)
        return jax.nn.softmax(scores, axis=-1) @ full_v, k, v

    return fn


@pytest.mark.parametrize("mask", ["none", "causal", "first"])
@pytest.mark.parametrize("name", CACHED)
def test_attention_joins_its_caches(name, mask):
    batch, heads, groups, new, past = CACHED[name]
    shapes = [(batch, heads, new, 8), *[(batch, groups, new, 8)] * 2, *[(batch, groups, past, 8)] * 2]
    args = [RANDOM.standard_normal(shape).astype(np.float32) for shape in shapes]
    model = check_export(joined(heads, mask), args)
    assert op_types(model) == ["Attention"]
    (node,) = model.graph.node
    assert len(node.input) == 6 and len(node.output) == 3
    causal = [attribute.i for attribute in node.attribute if attribute.name == "is_causal"]
    assert causal == ([1] if mask == "causal" and new > 1 else [])
    halves = [arg.astype(np.float16) for arg in args]
    found = op_types(check_export(joined(heads, mask), halves, rtol=2e-2, atol=2e-2))
    assert "Attention" in found and ("Concat" not in found or new == 1)


@pytest.mark.parametrize("new", [2, "T"])
@pytest.mark.parametrize("mask", ["none", "causal"])
def test_caches_of_any_length(mask, new):
    specs = [("B", 4, new, 8)] * 3 + [("B", 4, "P", 8)] * 2
    lengths = ((2, 5, 2), (1, 0, 2), (3, 1, 2)) if new == 2 else ((2, 5, 3), (1, 0, 4), (3, 1, 1))
    shapes = [[(b, 4, t, 8)] * 3 + [(b, 4, p, 8)] * 2 for b, p, t in lengths]
    args = [[RANDOM.standard_normal(shape).astype(np.float32) for shape in one] for one in shapes]
    model = check_export(joined(4, mask), args[0], specs=specs, more_args=args[1:])
    assert op_types(model) == ["Attention"]
    assert any(attribute.name == "is_causal" for attribute in model.graph.node[0].attribute) == (mask == "causal")


def test_caches_with_heads_after_positions_are_joined_outside():
    def fn(q, k, v, past_k, past_v):
        k, v = jnp.concatenate([past_k, k], 1), jnp.concatenate([past_v, v], 1)
        return jax.nn.dot_product_attention(q, k, v), k, v

    shapes = [(2, 3, 4, 8)] * 3 + [(2, 5, 4, 8)] * 2
    found = op_types(check_export(fn, [RANDOM.standard_normal(shape).astype(np.float32) for shape in shapes]))
    assert found.count("Concat") == 2 and found.count("Attention") == 1


def test_a_layer_with_a_cache_has_its_heads_in_rows():
    weights = [RANDOM.standard_normal((8, 32)).astype(np.float32) for _ in range(3)]

    def fn(x, past_k, past_v):
        q, k, v = ((x @ w).reshape(2, -1, 4, 8).transpose(0, 2, 1, 3) for w in weights)
        mixed, k, v = joined(4, "causal")(q, k, v, past_k, past_v)
        return mixed.transpose(0, 2, 1, 3).reshape(2, -1, 32), k, v

    args = [RANDOM.standard_normal(shape).astype(np.float32) for shape in ((2, 3, 8), (2, 4, 5, 8), (2, 4, 5, 8))]
    assert sorted(op_types(check_export(fn, args))) == ["Attention", "MatMul", "MatMul", "MatMul"]


@pytest.mark.parametrize("fill", [-jnp.inf, -1e9])
def test_a_constant_mask_of_a_single_query(fill):
    def fn(q, k, v):
        scores = jnp.where(np.array([True, False, True, True, False]), q @ jnp.swapaxes(k, -1, -2), fill)
        return jax.nn.softmax(scores, axis=-1) @ v

    args = [RANDOM.standard_normal((2, 4, length, 8)).astype(np.float32) for length in (1, 5, 5)]
    assert op_types(check_export(fn, args)) == ["Attention"]
