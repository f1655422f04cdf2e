"""Attention becomes one operator where the opset has it, and rows that are masked altogether give what JAX gives."""

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


def test_nothing_left_of_a_row():
    nothing = CAUSAL.copy()
    nothing[3] = False
    assert op_types(check_export(attention(nothing, -jnp.inf), [Q, K, V])) == ["Attention"]
    model = check_export(attention(nothing, -1e30), [Q, K, V])
    assert op_types(model) == ["Attention"] and len(model.graph.node[0].input) == 4


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


LOWEST = float(np.finfo(np.float32).min)
NOTHING = np.zeros((LENGTH, LENGTH), bool)


def masked_at_run_time(fill=LOWEST, inverted=False, shape=None):
    def fn(q, k, v, mask):
        mask = mask if shape is None else mask.reshape(shape)
        scores = q @ k.transpose(0, 1, 3, 2) / 2.0
        scores = jnp.where(mask, fill, scores) if inverted else jnp.where(mask, scores, fill)
        return jax.nn.softmax(scores, axis=-1) @ v

    return fn


@pytest.mark.parametrize("fill", [LOWEST, 0.7 * LOWEST, -1e30, -1e9])
@pytest.mark.parametrize("inverted", [False, True])
def test_a_mask_known_only_at_run_time_is_added(fill, inverted):
    mask = RNG.random((3, HEADS, LENGTH, LENGTH)) > 0.5
    model = check_export(masked_at_run_time(fill, inverted), [Q, K, V, mask], more_args=[[Q, K, V, mask * False]])
    assert op_types(model) == ["Where", "Attention"]


def test_rows_of_a_mask_are_shared():
    lengths = np.arange(LENGTH) < np.array([[6], [1], [0]])
    model = check_export(masked_at_run_time(shape=(3, 1, 1, LENGTH)), [Q, K, V, lengths])
    assert op_types(model) == ["Unsqueeze", "Where", "Attention"]
    one = op_types(check_export(masked_at_run_time(), [Q, K, V, lengths[0]], more_args=[[Q, K, V, lengths[2]]]))
    assert one == ["Where", "Attention"]


@pytest.mark.parametrize("fill", [-1e8, -1e4])
def test_a_number_that_leaves_no_weight_is_made_lower(fill):
    fn = masked_at_run_time(fill)
    model = check_export(fn, [Q, K, V, CAUSAL], more_args=[[Q, K, V, NOTHING]])
    assert op_types(model) == ["Where", "Attention"]


def test_a_row_of_nothing_but_infinity_is_nan():
    model = check_export(masked_at_run_time(-jnp.inf), [Q, K, V, CAUSAL], more_args=[[Q, K, V, NOTHING]])
    assert op_types(model) == ["Where", "ReduceMax", "Sub", "Attention"]


def test_a_run_time_mask_with_a_small_number_stays_outside():
    fn = masked_at_run_time(-1.0)
    assert "Attention" not in op_types(check_export(fn, [Q, K, V, CAUSAL], more_args=[[Q, K, V, NOTHING]]))


@pytest.mark.parametrize("library", [True, False])
def test_rows_of_nothing_that_are_put_out_again(library):
    def fn(q, k, v, mask):
        scores = q @ k.transpose(0, 1, 3, 2) / 2.0
        if library:
            return jax.nn.softmax(scores, axis=-1, where=mask) @ v
        weights = jax.nn.softmax(jnp.where(mask, scores, -1e9), axis=-1)
        return jnp.where(mask, weights, 0) @ v

    model = check_export(fn, [Q, K, V, CAUSAL], more_args=[[Q, K, V, NOTHING]])
    assert op_types(model) == ["Attention"]


def test_weights_put_out_by_another_mask_stay():
    def fn(q, k, v, mask, other):
        weights = jax.nn.softmax(jnp.where(mask, q @ k.transpose(0, 1, 3, 2), -1e9), axis=-1)
        return jnp.where(other, weights, 0) @ v

    found = op_types(check_export(fn, [Q, K, V, CAUSAL, ~CAUSAL], more_args=[[Q, K, V, NOTHING, CAUSAL]]))
    assert "Attention" not in found


def capped(q, k, v, *bias):
    return jax.nn.softmax(5.0 * jnp.tanh(q @ k.transpose(0, 1, 3, 2) / 10.0) + sum(bias), axis=-1) @ v


def test_a_cap_on_the_scores():
    model = check_export(capped, [Q, K, V])
    assert op_types(model) == ["Attention"] and attributes(model)["softcap"] == 5.0


def test_a_cap_on_masked_scores_stays():
    def fn(q, k, v, mask):
        scores = jnp.where(mask, q @ k.transpose(0, 1, 3, 2), -1e9)
        return jax.nn.softmax(5.0 * jnp.tanh(scores / 5.0), axis=-1) @ v

    assert "Attention" not in op_types(check_export(fn, [Q, K, V, CAUSAL]))


def test_a_quotient_after_the_product():
    def fn(q, k, v):
        scores = q @ k.transpose(0, 1, 3, 2)
        weights = jnp.exp(scores - scores.max(-1, keepdims=True))
        return (weights @ v).transpose(0, 2, 1, 3) / weights.sum(-1).transpose(0, 2, 1)[..., None]

    found = op_types(check_export(fn, [Q, K, V]))
    assert "Attention" in found and not {"Exp", "Div", "Softmax"} & set(found)


def test_a_quotient_by_the_sums_of_other_rows_stays():
    def fn(q, k, v):
        scores = q @ k.transpose(0, 1, 3, 2)
        weights = jnp.exp(scores - scores.max(-1, keepdims=True))
        return (weights @ v) / weights.sum(-2)[..., None]

    assert "Attention" not in op_types(check_export(fn, [Q, K, V]))


def biased(make):
    def fn(q, k, v, given):
        return jax.nn.softmax(q @ k.transpose(0, 1, 3, 2) / 2.0 + make(given), axis=-1) @ v

    return fn


def test_a_bias_that_is_known_to_be_finite():
    table = jnp.asarray(RNG.standard_normal((2 * LENGTH, HEADS)), jnp.float32)
    apart = (np.arange(LENGTH)[:, None] - np.arange(LENGTH) + LENGTH).astype(np.int32)
    model = check_export(biased(lambda i: table[jnp.clip(i, 0, 11)].transpose(2, 0, 1)), [Q, K, V, apart])
    assert op_types(model)[-1] == "Attention" and "Softmax" not in op_types(model)
    fn = biased(lambda mask: (1.0 - mask.astype(np.float32)) * -1e9)
    model = check_export(fn, [Q, K, V, CAUSAL], more_args=[[Q, K, V, NOTHING]])
    assert op_types(model)[-1] == "Attention"


@pytest.mark.parametrize("number", [-np.inf, LOWEST, LOWEST / 2, -1e9, 1e30, np.inf, np.nan])
def test_a_bias_that_might_be_anything(number):
    bias = np.where(CAUSAL, RNG.standard_normal(CAUSAL.shape), number).astype(np.float32)
    bias[2] = number
    found = op_types(check_export(biased(lambda bias: bias), [Q, K, V, bias]))
    assert found[-1] == "Attention" and not {"Softmax", "MatMul"} & set(found)


def test_bias_and_mask():
    bias = RNG.standard_normal((HEADS, LENGTH, LENGTH)).astype(np.float32)

    def fn(q, k, v, mask):
        scores = jnp.where(mask, q @ k.transpose(0, 1, 3, 2) / 2.0 + bias, LOWEST)
        return jax.nn.softmax(scores, axis=-1) @ v

    model = check_export(fn, [Q, K, V, CAUSAL], more_args=[[Q, K, V, NOTHING]])
    assert op_types(model) == ["Where", "Attention"]


@pytest.mark.parametrize("how", ["both", "keys", "divided"])
def test_scales_on_either_side(how):
    def fn(q, k, v):
        if how != "divided":
            k = k * 0.5
        q = q / 4.0 if how == "divided" else q * 0.25 if how == "both" else q
        return jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k), axis=-1) @ v

    q, k = (value.transpose(0, 2, 1, 3) for value in (Q, K))
    model = check_export(fn, [q, k, V])
    assert sorted(op_types(model)) == ["Attention", "Transpose", "Transpose"]


def test_causal_at_run_time():
    def fn(q, k, v):
        return jax.nn.dot_product_attention(q, k, v, is_causal=True)

    q, k, v = (value.transpose(0, 2, 1, 3) for value in (Q, K, V))
    more = [[q[:1, :1], k[:1, :1], v[:1, :1]]]
    model = check_export(fn, [q, k, v], specs=[("B", "T", HEADS, FEATURES)] * 3, more_args=more)
    assert sorted(op_types(model)) == ["Attention"] + ["Transpose"] * 4


def test_a_step_with_a_cache():
    def fn(x, position, keys, values):
        q, k, v = (part.reshape(3, 1, HEADS, FEATURES) for part in jnp.split(x, 3, axis=-1))
        keys = jax.lax.dynamic_update_slice(keys, k, (0, position, 0, 0))
        values = jax.lax.dynamic_update_slice(values, v, (0, position, 0, 0))
        seen = (jnp.arange(LENGTH) <= position)[None, None, None]
        return jax.nn.dot_product_attention(q, keys, values, mask=seen).reshape(3, 1, -1), keys, values

    x = RNG.standard_normal((3, 1, 3 * HEADS * FEATURES)).astype(np.float32)
    k, v = (value.transpose(0, 2, 1, 3) for value in (K, V))
    more = [[x, np.int32(at), k, v] for at in (0, 5, -1)]
    found = op_types(check_export(fn, [x, np.int32(2), k, v], more_args=more))
    assert found.count("Attention") == 1 and not {"Softmax", "MatMul", "Transpose"} & set(found)


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


GROUPED = [RNG.standard_normal((3, 4, LENGTH, FEATURES)).astype(np.float32), K, V]


@pytest.mark.parametrize("heads_first", [True, False])
def test_repeated_heads_are_left_to_the_operator(heads_first):
    axis = 1 if heads_first else 2
    order = (0, 1, 2, 3) if heads_first else (0, 2, 1, 3)

    def fn(q, k, v):
        k, v = (jnp.repeat(value, 2, axis=axis).transpose(order) for value in (k, v))
        return attention(CAUSAL)(q, k, v)

    q, k, v = GROUPED
    model = check_export(fn, [q, k.transpose(order), v.transpose(order)])
    assert sorted(op_types(model)) == ["Attention"] + ([] if heads_first else ["Transpose"] * 2)


@pytest.mark.parametrize("repeat", [lambda v: jnp.tile(v, (1, 2, 1, 1)), lambda v: jnp.repeat(v[:, ::-1], 2, axis=1)])
def test_other_orders_of_heads_give_what_jax_gives(repeat):
    check_export(lambda q, k, v: attention()(q, repeat(k), repeat(v)), GROUPED)


def test_keys_and_values_repeated_differently():
    def fn(q, k, v):
        return attention()(q, jnp.repeat(k, 2, axis=1), jnp.tile(v, (1, 2, 1, 1)))

    assert "Expand" in op_types(check_export(fn, GROUPED)) or "Tile" in op_types(check_export(fn, GROUPED))


# ---- several heads of queries to one of keys, as contractions ----


def rows(heads, length=LENGTH):
    return RNG.standard_normal((3, length, heads, FEATURES)).astype(np.float32)


@pytest.mark.parametrize("heads", [1, 2])
def test_grouped_queries_of_jax_nn(heads):
    q, k, v = rows(4), rows(heads), rows(heads)

    def fn(q, k, v):
        return jax.nn.dot_product_attention(q, k, v, is_causal=True)

    specs = [("B", "T", n, FEATURES) for n in (4, heads, heads)]
    more = [[value[:1, :2] for value in (q, k, v)]]
    for model in (check_export(fn, [q, k, v]), check_export(fn, [q, k, v], specs=specs, more_args=more)):
        moves = ["Transpose" if heads == 1 and op == "Reshape" else op for op in op_types(model)]  # one head: either
        assert sorted(moves) == ["Attention"] + ["Transpose"] * 4
        assert [a.i for node in model.graph.node for a in node.attribute if a.name == "is_causal"] == [1]


def test_grouped_queries_in_plain_operators_transpose_no_scores():
    q, k, v = rows(4), rows(2), rows(2)
    model = check_export(lambda q, k, v: jax.nn.dot_product_attention(q, k, v, is_causal=True), [q, k, v], opset=17)
    assert op_types(model).count("MatMul") == 2
    softmax = next(node for node in model.graph.node if node.op_type == "Softmax")
    reader = next(node for node in model.graph.node if softmax.output[0] in node.input)
    assert reader.op_type == "Reshape" and op_types(model).count("Transpose") == 4  # q, k, v and the result


def test_grouped_queries_with_a_mask_and_with_a_cache():
    q, k, v = rows(4), rows(2), rows(2)
    mask = RNG.random((3, 1, LENGTH, LENGTH)) > 0.5

    def masked(q, k, v, mask):
        return jax.nn.dot_product_attention(q, k, v, mask=mask).reshape(3, LENGTH, 4 * FEATURES)

    found = op_types(check_export(masked, [q, k, v, mask], more_args=[[q, k, v, mask * False]]))
    assert sorted(found) == ["Attention"] + ["Reshape"] * 3 + ["Where"]

    def step(q, k, v, position):
        seen = (jnp.arange(LENGTH) <= position)[None, None, None]
        return jax.nn.dot_product_attention(q, k, v, mask=seen)

    found = op_types(check_export(step, [q[:, :1], k, v, np.int32(3)], more_args=[[q[:, :1], k, v, np.int32(-1)]]))
    assert found.count("Attention") == 1 and not {"MatMul", "Softmax"} & set(found)


def grouped(groups_first=False, axis=-1, mask=CAUSAL):
    def fn(q, k, v):
        shape = (3, LENGTH, 2, 2, FEATURES)
        q = q.reshape(shape).transpose(0, 1, 3, 2, 4) if groups_first else q.reshape(shape)
        scores = jnp.where(mask, jnp.einsum("btkgh,bskh->bkgts", q, k) / 2.0, -1e30)
        mixed = jnp.einsum("bkgts,bskh->btkgh", jax.nn.softmax(scores, axis=axis), v)
        return mixed.reshape(3, LENGTH, 4 * FEATURES)

    return fn


def test_grouped_queries_by_hand():
    found = op_types(check_export(grouped(), [rows(4), rows(2), rows(2)]))
    assert sorted(found) == ["Attention"] + ["Reshape"] * 3


@pytest.mark.parametrize("fn", [grouped(groups_first=True), grouped(mask=RNG.random((2, 2, LENGTH, LENGTH)) > 0.3)])
def test_groups_before_heads_and_masks_for_each_head(fn):
    found = op_types(check_export(fn, [rows(4), rows(2), rows(2)]))
    assert found.count("Attention") == 1 and not {"Softmax", "MatMul"} & set(found)


def test_weights_over_the_queries_stay_as_they_are():
    assert "Attention" not in op_types(check_export(grouped(axis=-2), [rows(4), rows(2), rows(2)]))


def test_a_causal_mask_that_several_layers_share():
    weights = RNG.standard_normal((4 * FEATURES, 4 * FEATURES)).astype(np.float32) / 4

    def fn(q, k, v):
        for _ in range(2):
            mixed = jax.nn.dot_product_attention(q, k, v, is_causal=True)
            q = (mixed.reshape(*q.shape[:2], -1) @ weights).reshape(q.shape)
        return q

    args = [rows(4), rows(2), rows(2)]
    specs = [("B", "T", heads, FEATURES) for heads in (4, 2, 2)]
    found = op_types(check_export(fn, args, specs=specs, more_args=[[value[:1, :3] for value in args]]))
    assert found.count("Attention") == 2 and not {"Where", "Range", "GreaterOrEqual"} & set(found)


@pytest.mark.parametrize("length", [16, 64])
def test_a_batch_of_one_under_a_causal_mask(length):
    """Transposes and Reshapes around an axis of size 1 are moved by one pass and not moved back by another."""
    from flax import nnx

    attend = nnx.MultiHeadAttention(4, 32, decode=False, rngs=nnx.Rngs(0))
    x = np.random.default_rng(0).normal(size=(1, length, 32)).astype(np.float32)
    model = check_export(lambda x: attend(x, mask=nnx.make_causal_mask(jnp.ones(x.shape[:2]))), [x], rtol=1e-4)
    assert "Attention" in op_types(model) and "Softmax" not in op_types(model)


@pytest.mark.parametrize("length", [10, 80])
@pytest.mark.parametrize("how", ["where", "added", "product", "window"])
def test_masks_are_known_by_the_positions_they_compare(length, how):
    def fn(x):
        positions = jnp.arange(length)
        mask = positions[:, None] >= positions
        if how == "window":
            mask &= positions[:, None] - positions < 3
        scores = x @ x.T
        if how == "added":
            scores += jnp.where(mask, 0.0, -jnp.inf)
        elif how == "product":
            scores += (1 - mask.astype(jnp.float32)) * LOWEST
        else:
            scores = jnp.where(mask, scores, -jnp.inf)
        return jax.nn.softmax(scores, axis=-1) @ x

    model = check_export(fn, [RNG.standard_normal((length, FEATURES)).astype(np.float32)])
    found = op_types(model)
    node = next(node for node in model.graph.node if node.op_type == "Attention")
    assert "Softmax" not in found and len(node.input) == (4 if how == "window" else 3)


@pytest.mark.parametrize("shape", [(LENGTH, FEATURES), (LENGTH, HEADS, FEATURES), (HEADS, LENGTH, FEATURES)])
def test_fewer_axes(shape):
    order = (1, 0, 2) if shape == (LENGTH, HEADS, FEATURES) else tuple(range(len(shape)))

    def fn(q, k, v):
        q, k, v = (part.transpose(order) for part in (q, k, v))
        return (jax.nn.softmax(q @ jnp.swapaxes(k, -1, -2) / 2.0, axis=-1) @ v).transpose(order)

    q, k, v = (RNG.standard_normal(shape).astype(np.float32) for _ in range(3))
    found = op_types(check_export(fn, [q, k, v]))
    assert "Attention" in found and not {"Softmax", "MatMul", "Transpose"} & set(found)


def test_a_strict_mask_leaves_the_first_row_nothing():
    def fn(x):
        positions = jnp.arange(80)
        scores = jnp.where(positions[:, None] > positions, x @ x.T, -jnp.inf)
        return jax.nn.softmax(scores, axis=-1) @ x

    assert "Attention" in op_types(check_export(fn, [RNG.standard_normal((80, FEATURES)).astype(np.float32)]))


def test_halves():
    q, k, v = (value.astype(np.float16) for value in (Q, K, V))
    assert op_types(check_export(attention(CAUSAL), [q, k, v])) == ["Attention"]
