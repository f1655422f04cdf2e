"""Products of matrices: Gemm where there is a bias, and no transposes that a constant or an attribute can take."""

import jax.numpy as jnp
import numpy as np
import pytest
from export_check import KEYS, check_export, metadata, op_types

RNG = np.random.default_rng(0)
X = RNG.standard_normal((3, 8)).astype(np.float32)
W = RNG.standard_normal((8, 5)).astype(np.float32)
B = RNG.standard_normal(5).astype(np.float32)


def attributes(model):
    return {attribute.name: attribute.i for attribute in model.graph.node[0].attribute}


@pytest.mark.parametrize("fn", [lambda x: x @ W + B, lambda x: B + x @ W, lambda x: jnp.dot(x, W) + B[None]])
def test_a_product_with_a_bias_is_gemm(fn):
    model = check_export(fn, [X], specs=[("B", 8)], more_args=[[X[:1]]])
    assert op_types(model) == ["Gemm"] and not attributes(model)


def test_transposes_become_attributes():
    model = check_export(lambda x, w: x @ w.T + B, [X, W.T.copy()])
    assert op_types(model) == ["Gemm"] and attributes(model) == {"transB": 1}
    model = check_export(lambda x: x.T @ W + B, [X.T.copy()])
    assert op_types(model) == ["Gemm"] and attributes(model) == {"transA": 1}


def test_the_transpose_of_a_product_of_transposes():
    assert op_types(check_export(lambda x: (W.T @ x.T).T, [X])) == ["MatMul"]
    assert op_types(check_export(lambda x: (W.T @ x.T).T + B, [X])) == ["Gemm"]


def test_a_transpose_that_several_products_read():
    def fn(x):
        turned = x.T
        return (W.T @ turned).T, (W.T * 2 @ turned).T

    assert op_types(check_export(fn, [X])) == ["MatMul", "MatMul"]


def test_a_bias_over_split_axes_is_added_before_the_split():
    bias = RNG.standard_normal((5, 2)).astype(np.float32)
    weight = RNG.standard_normal((8, 10)).astype(np.float32)
    assert op_types(check_export(lambda x: (x @ weight).reshape(3, 5, 2) + bias, [X])) == ["Gemm", "Reshape"]
    found = op_types(check_export(lambda x: (x @ weight).reshape(3, 5, 2) + bias[:1], [X]))
    assert found == ["MatMul", "Reshape", "Add"]


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_other_types(dtype):
    args = [value.astype(dtype) for value in (X, W, B)]
    check_export(lambda x, w, b: x @ w + b, args, x64=dtype == np.float64, rtol=2e-2 if dtype == np.float16 else None)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x @ W + B[0],
        lambda x: x @ W + np.ones((3, 5), np.float32),
        lambda x: x @ W + X[:, :1],
        lambda x: x[None] @ W + B,
        lambda x: x @ W + np.ones((2, 1, 5), np.float32),
    ],
)
def test_near_misses_stay_as_they_are(fn):
    assert "Gemm" not in op_types(check_export(fn, [X]))


def test_integers_have_no_gemm():
    whole = np.arange(6, dtype=np.int32).reshape(2, 3)
    assert "Gemm" not in op_types(check_export(lambda x: x @ whole.T + whole[:, 0], [whole]))


def test_what_something_else_reads_stays():
    def both(x):
        product = x @ W
        return product + B, product

    assert op_types(check_export(both, [X])) == ["MatMul", "Add"]


def test_gemm_names_both_lines():
    def linear(x):
        product = x @ W
        return product + B

    said = metadata(check_export(linear, [X]).graph.node[0])
    first = linear.__code__.co_firstlineno
    assert said[KEYS[0]].endswith(f":{first + 2}")
    assert said[KEYS[1]].startswith("fuse_matmul:")
    assert f":{first + 1} (" in said[KEYS[3]] and f":{first + 2} (" in said[KEYS[3]]
