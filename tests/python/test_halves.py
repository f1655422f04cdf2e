"""Models in half precision: a region of float32 has a Cast where it begins and ends; roundings asked for stay."""

import collections

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from export_check import check_export

RANDOM = np.random.default_rng(0)


def array(dtype, *shape):
    return np.asarray(jnp.asarray(RANDOM.standard_normal(shape), dtype))


def operators(model):
    return collections.Counter(node.op_type for node in model.graph.node)


def normalised(x, scale, bias):
    """As libraries do it: statistics of halves in float32, and back."""
    wide = x.astype(jnp.float32)
    mean = wide.mean(-1, keepdims=True)
    variance = jnp.square(wide - mean).mean(-1, keepdims=True)
    return ((wide - mean) * jax.lax.rsqrt(variance + 1e-5) * scale + bias).astype(x.dtype)


def test_a_chain_in_bfloat16_is_cast_where_it_begins_and_ends():
    scale, bias, up, down = (array(jnp.bfloat16, *shape) for shape in ((8,), (8,), (8, 16), (16, 8)))

    def fn(x):
        y = normalised(x, scale, bias)
        return x + jax.nn.gelu(y @ up) @ down

    counts = operators(check_export(fn, [array(jnp.bfloat16, 4, 8)]))
    assert counts["Cast"] == 2, counts
    assert counts["LayerNormalization"] == counts["Gelu"] == 1, counts


def test_what_is_split_and_turned_between_products_is_moved_in_float32():
    first, second = array(jnp.bfloat16, 8, 24), array(jnp.bfloat16, 4, 6)

    def fn(x):
        parts = jnp.split(x @ first, 3, axis=-1)
        return sum(part.reshape(2, 2, 8).swapaxes(0, 2).reshape(8, 4) @ second for part in parts)

    counts = operators(check_export(fn, [array(jnp.bfloat16, 4, 8)]))
    assert counts["Cast"] == 2, counts


def test_a_normalisation_of_float16_has_no_casts():
    scale, bias = array(jnp.float16, 8), array(jnp.float16, 8)
    counts = operators(check_export(lambda x: normalised(x, scale, bias), [array(jnp.float16, 4, 8)]))
    assert counts == {"LayerNormalization": 1}


def test_the_scale_of_a_normalisation_is_rounded_to_the_half_that_its_result_has():
    scale, bias = array(jnp.float32, 8), array(jnp.float32, 8)
    counts = operators(check_export(lambda x: normalised(x, scale, bias), [array(jnp.float16, 4, 8)]))
    assert counts == {"LayerNormalization": 1}


def test_a_normalisation_whose_scale_no_half_holds_stays_in_float32():
    scale, bias = array(jnp.float32, 8) * 1e-9, array(jnp.float32, 8)
    counts = operators(check_export(lambda x: normalised(x, scale, bias), [array(jnp.float16, 4, 8)]))
    assert counts == {"Cast": 2, "LayerNormalization": 1}


MOVED = {"nothing": lambda y: y, "transpose": lambda y: y.T, "slice": lambda y: y[1:]}
CHOSEN = {"maximum": lambda y: jnp.maximum(y, 0), "where": lambda y: -jnp.where(y > 1, y, 0)}
# ONNX Runtime itself leaves out the roundings to float16 around what it has no kernels for.
READ_BACK = [(jnp.bfloat16, between) for between in (MOVED | CHOSEN)] + [(jnp.float16, between) for between in MOVED]


@pytest.mark.parametrize(("dtype", "between"), READ_BACK, ids=lambda value: getattr(value, "__name__", value))
def test_a_rounding_that_is_read_back_stays(dtype, between):
    """Exactly: the tolerance is that of float32."""
    moved = (MOVED | CHOSEN)[between]
    check_export(lambda x: moved(x.astype(dtype)).astype(jnp.float32) * 3, [array(jnp.float32, 3, 5)])


def test_a_large_weight_keeps_its_size_in_the_file():
    weight = array(jnp.bfloat16, 512, 1024)
    model = check_export(lambda x: x @ weight, [array(jnp.bfloat16, 2, 512)], rtol=0.1, atol=0.5)
    assert len(model.SerializeToString()) < 1.1 * weight.nbytes
    assert operators(model)["Cast"] == 3


def test_recurrent_layers_of_float16_have_no_casts():
    """ONNX Runtime computes them in float32; two biases are one, rounded."""
    sizes = ((6, 32), (8, 32), (32,), (32,))
    weights = [array(jnp.float16, *size) / 4 for size in sizes]

    def step(carry, x):
        state, memory = carry
        w, r, b, c = weights
        i, f, g, o = jnp.split(x @ w + b + (state @ r + c), 4, axis=-1)
        memory = jax.nn.sigmoid(f) * memory + jax.nn.sigmoid(i) * jnp.tanh(g)
        state = jax.nn.sigmoid(o) * jnp.tanh(memory)
        return (state, memory), state

    def fn(x):
        start = jnp.zeros((x.shape[0], 8), x.dtype)
        return jax.lax.scan(step, (start, start), jnp.swapaxes(x, 0, 1))[1]

    counts = operators(check_export(fn, [array(jnp.float16, 3, 5, 6)]))
    assert counts == {"Transpose": 1, "LSTM": 1, "Squeeze": 1}, counts


def test_means_and_sums_of_float16_have_no_casts():
    """What is added up is more than a half holds."""
    x = np.full((2, 4096), 100, np.float16)
    model = check_export(lambda x: (x.mean(-1), jax.nn.softmax(x.astype(jnp.float32)).astype(x.dtype)), [x])
    assert operators(model) == {"ReduceMean": 1, "Softmax": 1}


def test_rows_of_float16_turned_before_a_product_have_no_casts():
    weight = array(jnp.float16, 4, 3)
    model = check_export(lambda x: jnp.swapaxes(x, 0, 1) @ weight, [array(jnp.float16, 2, 5, 4)])
    assert operators(model) == {"MatMul": 1, "Transpose": 1}


MASKS = {
    "in place of it": lambda scores, keep, fill: jnp.where(keep, scores, jnp.asarray(fill, scores.dtype)),
    "added": lambda scores, keep, fill: scores + jnp.where(keep, 0, fill).astype(scores.dtype),
}


@pytest.mark.filterwarnings("ignore:overflow")  # -1e9 is -inf in float16
@pytest.mark.parametrize("fill", [-1e9, -1e4, -6.5e4, -np.inf])
@pytest.mark.parametrize("masked", MASKS)
@pytest.mark.parametrize("wide", [False, True], ids=["half", "float32"])
def test_a_row_that_is_masked_altogether_is_as_in_jax(wide, masked, fill):
    q, k, v = (array(jnp.float16, 1, 5, 2, 4) for _ in range(3))
    keep = np.tril(np.ones((5, 5), bool))
    keep[2] = False

    def fn(q, k, v, keep):
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / 2
        scores = MASKS[masked](scores.astype(jnp.float32) if wide else scores, keep, fill)
        return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores).astype(q.dtype), v)

    counts = operators(check_export(fn, [q, k, v, keep], opset=23, rtol=0.02, atol=0.02))
    assert counts["Attention"] == 1, counts


def test_numbers_that_are_added_to_attention_of_halves_are_added_in_float32():
    """ONNX Runtime has no kernel of halves for them and takes the operator apart."""
    q, k, v = (array(jnp.float16, 1, 5, 2, 4) for _ in range(3))
    bias = array(jnp.float32, 5, 5)
    model = check_export(lambda q, k, v, bias: jax.nn.dot_product_attention(q, k, v, bias), [q, k, v, bias], opset=23)
    types = {value.name: value.type.tensor_type.elem_type for value in model.graph.value_info}
    attention = next(node for node in model.graph.node if node.op_type == "Attention")
    assert {types[name] for name in attention.input[:3]} == {1}
