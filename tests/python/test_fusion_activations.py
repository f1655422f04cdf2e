"""Activations written out become ONNX's own operators: exactly those, with the same numbers and all their sources."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from export_check import KEYS, check_export, metadata, op_types

from jax2onnx import onnx_function

X = np.array([[-9.5, -3.0, -1.0, -0.25], [0.0, 0.5, 2.5, 30.0]], np.float32)
EDGES = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-20, 88.0, -88.0, 1e30, -1e30], np.float32)


def tanh_gelu(x):
    inner = 0.7978845608 * (x + 0.044715 * x * x * x)
    return 0.5 * x * (1.0 + jnp.tanh(inner))


def erf_gelu(x):
    return x * 0.5 * (1.0 + jax.scipy.special.erf(x / np.float32(np.sqrt(2.0))))


ACTIVATIONS = [
    (jax.nn.relu, "Relu"),
    (lambda x: jnp.maximum(0.0, x), "Relu"),
    (jax.nn.relu6, "Clip"),
    (lambda x: jnp.clip(x, -1.0, 2.0), "Clip"),
    (lambda x: jnp.maximum(jnp.minimum(x, 2.0), -1.0), "Clip"),
    (jax.nn.hard_tanh, "Clip"),
    (jax.nn.leaky_relu, "LeakyRelu"),
    (lambda x: jax.nn.leaky_relu(x, 0.3), "LeakyRelu"),
    (jax.nn.elu, "Elu"),
    (lambda x: jax.nn.elu(x, 0.7), "Elu"),
    (jax.nn.selu, "Selu"),
    (jax.nn.celu, "Celu"),
    (lambda x: jax.nn.celu(x, 0.5), "Celu"),
    (jax.nn.softplus, "Softplus"),
    (jax.nn.mish, "Mish"),
    (jax.nn.soft_sign, "Softsign"),
    (jax.nn.hard_sigmoid, "HardSigmoid"),
    (jax.nn.hard_silu, "HardSwish"),
    (jax.nn.gelu, "Gelu"),
    (lambda x: jax.nn.gelu(x, approximate=False), "Gelu"),
    (erf_gelu, "Gelu"),
]


@pytest.mark.parametrize("fn,op", ACTIVATIONS)
def test_an_activation_is_one_node(fn, op):
    assert op_types(check_export(fn, [X], specs=[("B", 4)], more_args=[[X[:1]]])) == [op]


@pytest.mark.parametrize("fn,op", ACTIVATIONS)
def test_edge_values_are_kept(fn, op):
    # Gelu of -inf is NaN in the long form: 0 times infinity.
    with np.errstate(all="ignore"):
        assert op_types(check_export(fn, [EDGES])) == [op]


@pytest.mark.parametrize("fn,op", ACTIVATIONS)
def test_half_precision_is_no_less_accurate(fn, op):
    found = op_types(check_export(fn, [X.astype(np.float16)], rtol=8e-3))
    if op == "Celu" or fn is erf_gelu:  # without a kernel for it; and Erf, which is computed in single precision
        assert "Cast" in found
    else:
        assert found == [op]


def test_gelu_says_which_form_it_is():
    tanh = check_export(jax.nn.gelu, [X]).graph.node[0]
    assert [attribute.s for attribute in tanh.attribute] == [b"tanh"]
    assert not check_export(lambda x: jax.nn.gelu(x, approximate=False), [X]).graph.node[0].attribute


@pytest.mark.parametrize("opset", [17, 19])
def test_gelu_is_spelled_out_where_the_opset_lacks_it(opset):
    assert "Gelu" not in op_types(check_export(jax.nn.gelu, [X], opset=opset))
    assert "Erf" in op_types(check_export(lambda x: jax.nn.gelu(x, approximate=False), [X], opset=opset))


def test_double_precision_keeps_its_places():
    found = op_types(check_export(jax.nn.gelu, [X.astype(np.float64)], x64=True))
    assert "Gelu" not in found and "Tanh" in found


NEAR_MISSES = [
    (lambda x: jnp.maximum(x, 0.1), "Relu"),
    (lambda x: jnp.minimum(jnp.maximum(x, 2.0), jnp.flip(x)), "Clip"),
    (lambda x: jnp.maximum(jnp.minimum(x, -1.0), 2.0), "Clip"),
    (lambda x: jnp.where(x >= 0.5, x, 0.01 * x), "LeakyRelu"),
    (lambda x: jnp.where(x >= 0, x, 0.01 * jnp.flip(x)), "LeakyRelu"),
    (lambda x: jnp.where(x > 0, x, jnp.expm1(x / 2)), "Elu"),
    (lambda x: x / (2 + jnp.abs(x)), "Softsign"),
    (lambda x: x / (1 + jnp.abs(jnp.flip(x))), "Softsign"),
    (lambda x: jnp.clip(x + 3.0, 0.0, 5.0) / 6.0, "HardSigmoid"),
    (lambda x: jnp.flip(x) * jax.nn.hard_sigmoid(x), "HardSwish"),
    (lambda x: x * (jnp.clip(x + 2.0, 0.0, 6.0) / 6.0), "HardSwish"),
    (lambda x: jnp.flip(x) * jnp.tanh(jax.nn.softplus(x)), "Mish"),
    (lambda x: 0.5 * x * (1 + jnp.tanh(0.79 * (x + 0.044715 * (x * (x * x))))), "Gelu"),
    (lambda x: 0.5 * x * (1 + jax.scipy.special.erf(x * 0.7)), "Gelu"),
    (lambda x: 0.5 * x * (1 + jax.scipy.special.erf(jnp.flip(x) * 0.70710678)), "Gelu"),
]


@pytest.mark.parametrize("fn,op", NEAR_MISSES)
def test_near_misses_stay_as_they_are(fn, op):
    assert op not in op_types(check_export(fn, [X]))


def test_what_something_else_reads_stays():
    def both(x):
        inside = jnp.tanh(0.7978845608 * (x + 0.044715 * (x * (x * x))))
        return 0.5 * x * (1.0 + inside), inside

    found = op_types(check_export(both, [X]))
    assert "Gelu" not in found and found.count("Tanh") == 1


def test_an_operand_that_broadcasts_is_not_an_activation():
    wide = np.zeros((3, 2, 4), np.float32)
    assert "Relu" not in op_types(check_export(lambda x: jnp.maximum(x, wide), [X]))


def test_inside_a_loop():
    def fn(x):
        return jax.lax.fori_loop(0, 3, lambda i, y: jax.nn.gelu(y) + i, x)

    assert "Gelu" in op_types(check_export(fn, [X]))


def test_a_fused_node_names_all_its_lines():
    def spelled_out(x):
        cube = x * (x * x)
        inner = x + 0.044715 * cube
        bent = jnp.tanh(0.7978845608 * inner)
        half = 0.5 * (1.0 + bent)
        return x * half

    model = check_export(spelled_out, [X])
    assert op_types(model) == ["Gelu"]
    first = spelled_out.__code__.co_firstlineno
    said = metadata(model.graph.node[0])
    assert said[KEYS[0]] == f"test_a_fused_node_names_all_its_lines.<locals>.spelled_out:{first + 5}"
    assert said[KEYS[1]].startswith("fuse_activations:")
    for line in range(first + 1, first + 6):
        assert f":{line} (" in said[KEYS[3]], line
    primary = said[KEYS[3]].split("\n\n")[0]
    assert f":{first + 5} (" in primary and f":{first + 1} (" not in primary


def test_the_logarithm_of_a_sigmoid_far_below_zero():
    """ONNX Runtime's Sigmoid is 0 from -18 on."""
    x = np.array([-80, -30, -20, -17, -1, 0, 5, 30], np.float32)
    check_export(lambda x: jnp.log(jax.nn.sigmoid(x)), [x], rtol=1e-4, atol=1e-6)
    check_export(lambda x: jnp.log(1 / (1 + jnp.exp(-x))), [x], rtol=1e-4, atol=1e-6)


SWISHES = {
    "silu": (jax.nn.silu, None),
    "sigmoid": (lambda x: x * jax.nn.sigmoid(x), None),
    "sigmoid first": (lambda x: jax.nn.sigmoid(x) * x, None),
    "quotient": (lambda x: x / (1 + jnp.exp(-x)), None),
    "tanh": (lambda x: 0.5 * x * (1 + jnp.tanh(x / 2)), None),
    "factor": (lambda x: x * jax.nn.sigmoid(1.702 * x), 1.702),
    "divisor": (lambda x: jax.nn.sigmoid(x / 4) * x, 0.25),
    "quotient with a factor": (lambda x: x / (1 + jnp.exp(-1.5 * x)), 1.5),
    "turned": (lambda x: x * jax.nn.sigmoid(-x), -1.0),
}


@pytest.mark.parametrize("name", SWISHES)
def test_swish_from_the_opset_that_has_it(name):
    fn, alpha = SWISHES[name]
    with np.errstate(all="ignore"):
        model = check_export(fn, [EDGES], opset=24)
    assert op_types(model) == ["Swish"]
    attributes = [pytest.approx(attribute.f) for attribute in model.graph.node[0].attribute]
    assert attributes == ([] if alpha is None else [alpha])
    check_export(fn, [X], opset=24, specs=[("B", 4)], more_args=[[X[:1]]])
    assert op_types(check_export(fn, [X.astype(np.float16)], opset=24, rtol=4e-3, atol=4e-3)) == ["Swish"]
    assert "Swish" not in op_types(check_export(fn, [X], opset=23))
    assert "Swish" not in op_types(check_export(fn, [X], opset=25))  # which ONNX Runtime refuses
    assert "Swish" not in op_types(check_export(fn, [X], opset=24, target="onnxruntime-1.31"))


def test_swish_of_doubles_keeps_their_digits():
    x = X.astype(np.float64)
    assert op_types(check_export(jax.nn.silu, [x], opset=24, x64=True)) == ["Swish"]
    found = op_types(check_export(lambda x: x * jax.nn.sigmoid(1.702 * x), [x], opset=24, x64=True))
    assert found == ["Mul", "Sigmoid", "Mul"]  # the attribute is a single float


def test_swish_inside_loops_branches_and_functions():
    @onnx_function
    def gate(x):
        return jax.nn.silu(x) * 2

    def fn(x):
        x = jax.lax.scan(lambda carry, row: (carry + jax.nn.silu(row), jax.nn.silu(carry)), x[0], x)[1]
        return gate(jax.lax.cond(x[0, 0] > 0, jax.nn.silu, jnp.sin, x))

    assert "Swish" in op_types(check_export(fn, [X], opset=24))
