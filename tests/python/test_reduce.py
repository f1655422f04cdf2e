"""reduce with several operands and any computation."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from export_check import check_export
from jax import lax

NUMBERS = np.random.default_rng(0).normal(size=(3, 4, 2)).astype(np.float32)
PLACES = np.arange(24, dtype=np.int32).reshape(3, 4, 2)


def larger_with_place(a, b):
    keep = a[0] >= b[0]
    return jnp.where(keep, a[0], b[0]), jnp.where(keep, a[1], b[1])


@pytest.mark.parametrize("axes", [(1,), (0, 2), (0, 1, 2), (2, 0)])
def test_two_operands(axes):
    start = (np.float32(-np.inf), np.int32(-1))
    check_export(lambda x, i: lax.reduce((x, i), start, larger_with_place, axes), [NUMBERS, PLACES])


def test_any_computation():
    check_export(lambda x: lax.reduce(x, np.float32(0), lambda a, b: jnp.hypot(a, b) + jnp.sin(a), (0, 1)), [NUMBERS])


def test_a_start_that_is_an_input():
    check_export(lambda x, start: lax.reduce(x, start, lambda a, b: a * 2 + b, (1,)), [PLACES, np.int32(5)])


@pytest.mark.parametrize("dtype", ["int8", "uint32", "float16", "bool"])
def test_types(dtype):
    x = np.asarray(jnp.asarray(PLACES % 3, dtype))
    body = (lambda a, b: a & ~b) if dtype == "bool" else (lambda a, b: jnp.maximum(a, b) + b)
    check_export(lambda x: lax.reduce(x, jnp.zeros((), x.dtype), body, (2,)), [x])


def test_nothing_to_reduce():
    empty = np.zeros((2, 0, 3), np.float32)
    check_export(lambda x: lax.reduce(x, np.float32(7), lambda a, b: a * b + a, (1,)), [empty])
    check_export(lambda x: lax.reduce(x, np.float32(7), lambda a, b: a * b + a, (0,)), [empty])


def test_a_symbolic_batch():
    def fn(x):
        return [lax.reduce(x, np.float32(1), lambda a, b: a * (b * 1), (axis,)) for axis in (0, 1)]

    check_export(fn, [NUMBERS], specs=[("B", 4, 2)], more_args=[[NUMBERS[:1]]])
