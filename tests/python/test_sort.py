"""Sorting against JAX: order of equals and of NaN, several keys, every element type."""

import jax.numpy as jnp
import numpy as np
import pytest
from export_check import check_export, op_types
from jax import lax

ODD = np.array([[3, np.inf, np.nan, 1, -0.0, 0.0, np.nan, -np.inf, np.inf, 1, 2], range(11)], np.float32)
DTYPES = ["bool", "int8", "int16", "int32", "uint8", "uint16", "uint32", "float16", "bfloat16", "float32"]
WIDE = ["int64", "uint64", "float64"]

SORTS = {
    "sort": (lambda x: jnp.sort(x), None),
    "sort axis 0": (lambda x: jnp.sort(x, axis=0), None),
    "descending": (lambda x: jnp.sort(x, descending=True), None),
    "argsort": (lambda x: jnp.argsort(x), ["IsNaN", "Min", "Where", "TopK", "Cast"]),
    "argsort axis 0": (lambda x: jnp.argsort(x, axis=0), None),
    "argsort descending": (lambda x: jnp.argsort(x, descending=True), None),
    "lexsort": (lambda x: jnp.lexsort((x[0], jnp.floor(x[1] / 3))), None),
    "two keys": (lambda x: lax.sort([jnp.floor(x / 3), x, x + 1], num_keys=2), None),
    "median": (lambda x: jnp.median(x), None),
    "top k": (lambda x: lax.top_k(x, 4), None),
    "top k of integers": (lambda x: lax.top_k(jnp.arange(11), 4), ["TopK", "Cast"]),
    "one element": (lambda x: jnp.sort(x[:, :1]), None),
    "nothing": (lambda x: jnp.sort(x[:, :0]), None),
}


@pytest.mark.parametrize("name", SORTS)
def test_sort(name):
    fn, ops = SORTS[name]
    model = check_export(fn, [ODD])
    if ops is not None:
        assert op_types(model) == ops


@pytest.mark.parametrize("dtype", DTYPES + WIDE)
def test_element_types(dtype):
    x = np.array([[5, 1, 1, 0, 7, 3], [-1, 2, -1, 0, 9, -128]]).astype(np.int64)
    x = x.astype(jnp.dtype(dtype))

    def fn(x):
        return jnp.sort(x), jnp.argsort(x, axis=1), jnp.sort(x, axis=0)

    check_export(fn, [x], x64=dtype in WIDE)
    if dtype != "bool":
        check_export(lambda x: lax.top_k(x, 3), [x], x64=dtype in WIDE)


@pytest.mark.parametrize("approximate", [lax.approx_max_k, lax.approx_min_k])
def test_approximate_top_k(approximate):
    check_export(lambda x: approximate(x, 3), [np.arange(12, dtype=np.float32).reshape(2, 6)])
    many = np.random.default_rng(0).permutation(600).astype(np.float32).reshape(2, 300)
    check_export(lambda x: approximate(x, 2, aggregate_to_topk=False), [many])


def test_symbolic_sizes():
    def fn(x):
        return jnp.sort(x, axis=0), jnp.argsort(x, axis=1), jnp.argsort(x, axis=0), lax.top_k(x, 1)

    arguments = [[np.random.default_rng(b).normal(size=(b, b + 2)).astype(np.float32)] for b in (2, 1, 7)]
    check_export(fn, arguments[0], specs=[("B", "T")], more_args=arguments[1:])
