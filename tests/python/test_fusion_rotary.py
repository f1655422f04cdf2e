"""Pairs of features turned by angles become RotaryEmbedding, in every order of axes that people write."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from export_check import KEYS, check_export, metadata, op_types

from jax2onnx._door.inputs import NamedShape

RNG = np.random.default_rng(0)
BATCH, HEADS, LENGTH, WIDTH = 2, 3, 5, 8
HEADS_FIRST = RNG.standard_normal((BATCH, HEADS, LENGTH, WIDTH)).astype(np.float32)
HEADS_LAST = np.ascontiguousarray(HEADS_FIRST.transpose(0, 2, 1, 3))
POSITIONS = np.array([[0, 1, 2, 3, 4], [7, 8, 9, 3, 1]], np.int32)


def angles(positions):
    return positions[..., None] * (1.0 / 100.0 ** (jnp.arange(0, WIDTH, 2) / WIDTH))


def halves(x, cos, sin):
    a, b = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


def sliced_halves(x, cos, sin):
    a, b = x[..., : WIDTH // 2], x[..., WIDTH // 2 :]
    return jnp.concatenate([cos * a - sin * b, sin * a + cos * b], axis=-1)


def half_turned(x, cos, sin):
    cos, sin = (jnp.concatenate([value, value], axis=-1) for value in (cos, sin))
    turned = jnp.concatenate([-x[..., WIDTH // 2 :], x[..., : WIDTH // 2]], axis=-1)
    return x * cos + turned * sin


def neighbours(x, cos, sin):
    a, b = x[..., ::2], x[..., 1::2]
    return jnp.stack([a * cos - b * sin, b * cos + a * sin], axis=-1).reshape(x.shape)


def pairs(x, cos, sin):
    apart = x.reshape(*x.shape[:-1], WIDTH // 2, 2)
    a, b = apart[..., 0], apart[..., 1]
    return jnp.stack([a * cos - b * sin, b * cos + a * sin], axis=-1).reshape(x.shape)


FORMS = [halves, sliced_halves, half_turned, neighbours, pairs]


def turned(form, heads_first=True, batched=False):
    def fn(x, positions=None):
        angle = angles(jnp.arange(LENGTH) if positions is None else positions)
        cos, sin = jnp.cos(angle), jnp.sin(angle)
        if batched and heads_first:
            cos, sin = cos[:, None], sin[:, None]
        if not heads_first:
            cos, sin = cos[..., None, :], sin[..., None, :]
        return form(x, cos, sin)

    return fn


def interleaved(model):
    node = next(node for node in model.graph.node if node.op_type == "RotaryEmbedding")
    return any(attribute.name == "interleaved" and attribute.i for attribute in node.attribute)


@pytest.mark.parametrize("form", FORMS)
def test_heads_before_positions(form):
    model = check_export(turned(form), [HEADS_FIRST])
    assert op_types(model) == ["RotaryEmbedding"] and interleaved(model) == (form in (neighbours, pairs))


@pytest.mark.parametrize("form", FORMS)
def test_heads_after_positions(form):
    model = check_export(turned(form, heads_first=False), [HEADS_LAST])
    assert op_types(model) == ["Reshape", "RotaryEmbedding", "Reshape"] and interleaved(model) == (
        form in (neighbours, pairs)
    )


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("heads_first", [True, False])
def test_positions_known_only_at_run_time(form, heads_first):
    x = HEADS_FIRST if heads_first else HEADS_LAST
    shape = ("B", HEADS, "T", WIDTH) if heads_first else ("B", "T", HEADS, WIDTH)
    small = x[:1, :, :1] if heads_first else x[:1, :1]
    found = op_types(
        check_export(
            turned(form, heads_first, batched=True),
            [x, POSITIONS],
            specs=[shape, NamedShape(("B", "T"), "int32")],
            more_args=[[small, POSITIONS[:1, 2:3]]],
        )
    )
    assert found.count("RotaryEmbedding") == 1 and not {"Sub", "Split", "Slice", "Neg"} & set(found)


def test_a_symbolic_batch_with_positions_in_order():
    spec, fewer = ("B", HEADS, LENGTH, WIDTH), [[HEADS_FIRST[:1]]]
    found = op_types(check_export(turned(halves), [HEADS_FIRST], specs=[spec], more_args=fewer))
    assert found == ["Shape", "Concat", "Expand", "RotaryEmbedding"]


@pytest.mark.parametrize("heads_first", [True, False])
def test_as_many_positions_in_order_as_there_are(heads_first):
    def fn(x):
        angle = angles(jnp.arange(x.shape[2 if heads_first else 1]))
        angle = angle if heads_first else angle[:, None]
        return halves(x, jnp.cos(angle), jnp.sin(angle))

    x, shape = (HEADS_FIRST, ("B", HEADS, "T", WIDTH)) if heads_first else (HEADS_LAST, ("B", "T", HEADS, WIDTH))
    small = x[:1, :, :1] if heads_first else x[:1, :1]
    found = op_types(check_export(fn, [x], specs=[shape], more_args=[[small]]))
    assert found.count("RotaryEmbedding") == 1 and not {"Sub", "Split"} & set(found)


def test_queries_and_keys_of_attention():
    def fn(x, positions):
        angle = angles(positions)[:, :, None]
        q, k, v = (part.reshape(BATCH, LENGTH, HEADS, WIDTH) for part in jnp.split(x, 3, axis=-1))
        q, k = (halves(part, jnp.cos(angle), jnp.sin(angle)) for part in (q, k))
        return jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(BATCH, LENGTH, HEADS * WIDTH)

    x = RNG.standard_normal((BATCH, LENGTH, 3 * HEADS * WIDTH)).astype(np.float32)
    found = op_types(check_export(fn, [x, POSITIONS]))
    assert found.count("RotaryEmbedding") == 2 and found.count("Attention") == 1
    assert not {"Transpose", "Reshape", "Concat"} & set(found)


def wrong_sign(x, cos, sin):
    a, b = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([a * cos + b * sin, b * cos + a * sin], axis=-1)


def wrong_order(x, cos, sin):
    a, b = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([b * cos + a * sin, a * cos - b * sin], axis=-1)


def unlike_halves(x, cos, sin):
    both = jnp.concatenate([cos, cos + 0.5], axis=-1)
    turned = jnp.concatenate([-x[..., WIDTH // 2 :], x[..., : WIDTH // 2]], axis=-1)
    return x * both + turned * jnp.concatenate([sin, sin], axis=-1)


def mixed_pairs(x, cos, sin):
    a, b = x[..., ::2], x[..., 1::2]
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


def uneven(x, cos, sin):
    a, b = x[..., :4], x[..., 1:5]
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


@pytest.mark.parametrize("form", [wrong_sign, wrong_order, unlike_halves, mixed_pairs, uneven])
def test_near_misses_stay_as_they_are(form):
    assert "RotaryEmbedding" not in op_types(check_export(turned(form), [HEADS_FIRST]))


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_tables_that_are_repeated_and_get_an_axis(dtype):
    def fn(x, positions):
        cos, sin = (one(angles(positions))[:, None].astype(x.dtype) for one in (jnp.cos, jnp.sin))
        turned = jnp.stack([-x[..., 1::2], x[..., ::2]], axis=-1).reshape(x.shape)
        return x * jnp.repeat(cos, 2, axis=-1) + turned * jnp.repeat(sin, 2, axis=-1)

    model = check_export(fn, [HEADS_FIRST.astype(dtype), POSITIONS], rtol=1e-2, atol=1e-2)
    assert "RotaryEmbedding" in op_types(model) and "Neg" not in op_types(model)


def test_other_angles_for_each_head_and_older_opsets():
    angle = RNG.standard_normal((HEADS, LENGTH, WIDTH // 2)).astype(np.float32)
    fn = lambda x: halves(x, jnp.cos(angle), jnp.sin(angle))  # noqa: E731
    assert "RotaryEmbedding" not in op_types(check_export(fn, [HEADS_FIRST]))
    assert "RotaryEmbedding" not in op_types(check_export(turned(halves), [HEADS_FIRST], opset=22))


def test_what_something_else_reads_stays():
    def fn(x):
        a, b = jnp.split(x, 2, axis=-1)
        cos, sin = jnp.cos(angles(jnp.arange(LENGTH))), jnp.sin(angles(jnp.arange(LENGTH)))
        first = a * cos - b * sin
        return jnp.concatenate([first, b * cos + a * sin], axis=-1), first

    assert "RotaryEmbedding" not in op_types(check_export(fn, [HEADS_FIRST]))


def test_it_names_all_its_lines():
    said = metadata(check_export(turned(halves), [HEADS_FIRST]).graph.node[0])
    first = halves.__code__.co_firstlineno
    assert said[KEYS[1]].startswith("fuse_rotary:")
    for line in (1, 2):
        assert f":{first + line} (halves)" in said[KEYS[3]]


@pytest.mark.parametrize("form", [halves, sliced_halves, half_turned])
@pytest.mark.parametrize("heads_first", [True, False])
def test_five_operators_where_there_is_none(form, heads_first):
    x = HEADS_FIRST if heads_first else HEADS_LAST
    model = check_export(turned(form, heads_first=heads_first), [x], opset=17)
    assert sorted(op_types(model)) == ["Add", "Concat", "Mul", "Mul", "Split"]


def test_queries_and_keys_share_what_they_are_turned_by():
    def fn(q, k, positions):
        angle = angles(positions)[:, None]
        return halves(q, jnp.cos(angle), jnp.sin(angle)), halves(k, jnp.cos(angle), jnp.sin(angle))

    found = op_types(check_export(fn, [HEADS_FIRST, HEADS_FIRST[:, :1], POSITIONS.astype(np.float32)], opset=17))
    assert found.count("Mul") <= 5 and found.count("Concat") == 4 and found.count("Neg") == 1
