"""Attention becomes one operator where the opset has it and nothing is masked out altogether."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from export_check import KEYS, check_export, metadata, op_types

RNG = np.random.default_rng(0)
HEADS, LENGTH, FEATURES = 2, 6, 4
Q, K, V = (RNG.standard_normal((3, HEADS, LENGTH, FEATURES)).astype(np.float32) for _ in range(3))
CAUSAL = np.tril(np.ones((LENGTH, LENGTH), bool))


def attention(mask=None, fill=-jnp.inf, scale=0.5, axis=-1):
    def fn(q, k, v):
        scores = q @ k.transpose(0, 1, 3, 2) * scale
        if mask is not None:
            scores = jnp.where(mask, scores, fill)
        return jax.nn.softmax(scores, axis=axis) @ v

    return fn


def attributes(model):
    return {attribute.name: attribute.i or attribute.f for attribute in model.graph.node[0].attribute}


def test_heads_apart():
    model = check_export(attention(), [Q, K, V])
    assert op_types(model) == ["Attention"] and attributes(model) == {}
    model = check_export(attention(scale=0.3), [Q, K, V])
    assert op_types(model) == ["Attention"] and attributes(model) == {"scale": pytest.approx(0.3)}


def test_a_causal_mask_is_an_attribute():
    for fill in (-jnp.inf, -1e30):
        model = check_export(attention(CAUSAL, fill), [Q, K, V])
        assert op_types(model) == ["Attention"] and attributes(model) == {"is_causal": 1}


def test_another_mask_is_an_input():
    mask = RNG.random((HEADS, LENGTH, LENGTH)) > 0.5
    mask[..., 0] = True
    model = check_export(attention(mask), [Q, K, V])
    assert op_types(model) == ["Attention"] and len(model.graph.node[0].input) == 4
    added = RNG.standard_normal((LENGTH, LENGTH)).astype(np.float32)

    def fn(q, k, v):
        return jax.nn.softmax(q @ k.transpose(0, 1, 3, 2) / 3.0 + added, axis=-1) @ v

    model = check_export(fn, [Q, K, V])
    assert op_types(model) == ["Attention"] and len(model.graph.node[0].input) == 4


def test_heads_are_split_and_merged_by_the_operator():
    def fn(x):
        q, k, v = (part.reshape(3, LENGTH, HEADS, FEATURES).transpose(0, 2, 1, 3) for part in jnp.split(x, 3, -1))
        scores = jnp.where(CAUSAL, q @ k.transpose(0, 1, 3, 2) / 2.0, -jnp.inf)
        return (jax.nn.softmax(scores, axis=-1) @ v).transpose(0, 2, 1, 3).reshape(3, LENGTH, HEADS * FEATURES)

    model = check_export(fn, [RNG.standard_normal((3, LENGTH, 3 * HEADS * FEATURES)).astype(np.float32)])
    assert op_types(model) == ["Split", "Attention"]


def test_projections_to_heads_scaled_queries_and_mapped_scores():
    weights = [RNG.standard_normal((8, HEADS, FEATURES)).astype(np.float32) for _ in range(3)]
    biases = [RNG.standard_normal((HEADS, FEATURES)).astype(np.float32) for _ in range(3)]

    def fn(x):
        pairs = zip(weights, biases, strict=True)
        q, k, v = (jnp.einsum("btf,fhd->bthd", x, weight) + bias for weight, bias in pairs)
        scores = jnp.einsum("bqhd,bkhd->bhqk", q / 2.0, k)
        mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, axis=-1), v)
        return mixed.reshape(3, LENGTH, HEADS * FEATURES)

    found = op_types(check_export(fn, [RNG.standard_normal((3, LENGTH, 8)).astype(np.float32)], rtol=1e-4, atol=1e-5))
    assert sorted(found) == ["Add"] * 3 + ["Attention"] + ["MatMul"] * 3


def test_jax_nn_dot_product_attention():
    q, k, v = (value.transpose(0, 2, 1, 3) for value in (Q, K, V))
    found = op_types(check_export(lambda q, k, v: jax.nn.dot_product_attention(q, k, v, is_causal=True), [q, k, v]))
    assert sorted(found) == ["Attention"] + ["Transpose"] * 4


def test_a_symbolic_batch():
    check = check_export(
        attention(CAUSAL), [Q, K, V], specs=[("B", HEADS, LENGTH, FEATURES)] * 3, more_args=[[Q[:1], K[:1], V[:1]]]
    )
    assert op_types(check) == ["Attention"]


def test_nothing_left_of_a_row_is_not_attention():
    nothing = CAUSAL.copy()
    nothing[3] = False
    for fill in (-jnp.inf, -1e30):
        assert "Attention" not in op_types(check_export(attention(nothing, fill), [Q, K, V]))


NEAR_MISSES = [
    (attention(axis=2), 23),
    (attention(CAUSAL, fill=-1.0), 23),
    (attention(scale=-0.5), 23),
    (attention(), 22),
    (lambda q, k, v: jax.nn.softmax(q @ k.transpose(0, 1, 3, 2) * jnp.arange(1.0, 7.0)) @ v, 23),
    (lambda q, k, v: jax.nn.softmax(q @ k.transpose(0, 1, 3, 2)[:1]) @ v, 23),
]


@pytest.mark.parametrize("fn,opset", NEAR_MISSES)
def test_near_misses_stay_as_they_are(fn, opset):
    assert "Attention" not in op_types(check_export(fn, [Q, K, V], opset=opset))


def test_a_mask_known_only_at_run_time_stays_outside():
    def fn(q, k, v, mask):
        return jax.nn.softmax(jnp.where(mask, q @ k.transpose(0, 1, 3, 2), -jnp.inf), axis=-1) @ v

    assert "Attention" not in op_types(check_export(fn, [Q, K, V, CAUSAL]))


def test_what_something_else_reads_stays():
    def fn(q, k, v):
        weights = jax.nn.softmax(q @ k.transpose(0, 1, 3, 2), axis=-1)
        return weights @ v, weights

    assert "Attention" not in op_types(check_export(fn, [Q, K, V]))


def test_it_names_all_its_lines():
    fn = attention(CAUSAL)
    said = metadata(check_export(fn, [Q, K, V]).graph.node[0])
    first = fn.__code__.co_firstlineno
    assert said[KEYS[0]].endswith(f"fn:{first + 4}")
    assert said[KEYS[1]].startswith("fuse_attention:")
    for line in (1, 3, 4):
        assert f":{first + line} (" in said[KEYS[3]]
