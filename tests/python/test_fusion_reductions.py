"""Means, lengths and kept axes: one reduction each."""

import jax.numpy as jnp
import numpy as np
import pytest
from export_check import KEYS, check_export, metadata, op_types

X = np.linspace(-3, 4, 48, dtype=np.float32).reshape(4, 2, 6)


@pytest.mark.parametrize("opset", [17, 18, 23])
@pytest.mark.parametrize(
    "fn,ops",
    [
        (lambda x: jnp.mean(x, axis=-1), ["ReduceMean"]),
        (lambda x: jnp.mean(x, axis=(1, 2), keepdims=True), ["ReduceMean"]),
        (lambda x: jnp.mean(x), ["ReduceMean"]),
        (lambda x: jnp.sum(x, axis=1) * 0.5, ["ReduceMean"]),
        (lambda x: jnp.sum(x, axis=1, keepdims=True), ["ReduceSum"]),
        (lambda x: jnp.sum(x, axis=2)[:, :, None], ["ReduceSum"]),
        (lambda x: jnp.sum(x * x, axis=-1), ["ReduceSumSquare"]),
        (lambda x: jnp.linalg.norm(x, axis=-1), ["ReduceL2"]),
        (lambda x: jnp.linalg.norm(x, axis=-1, keepdims=True), ["ReduceL2"]),
        (lambda x: jnp.var(x, axis=-1), ["ReduceMean", "Sub", "Mul", "ReduceMean"]),
    ],
)
def test_a_reduction_is_one_node(fn, ops, opset):
    assert op_types(check_export(fn, [X], opset=opset)) == ops


def test_a_mean_beside_a_symbolic_size():
    model = check_export(lambda x: jnp.mean(x, -1, keepdims=True), [X], specs=[("B", 2, 6)], more_args=[[X[:1]]])
    assert op_types(model) == ["ReduceMean"]


@pytest.mark.parametrize(
    "fn,op",
    [
        (lambda x: jnp.sum(x, axis=-1) / 5, "ReduceMean"),
        (lambda x: jnp.sum(x, axis=-1) / 6.001, "ReduceMean"),
        (lambda x: jnp.sum(x, axis=(0, 2)) / 6, "ReduceMean"),
        (lambda x: jnp.sum(x, axis=-1) / jnp.asarray([6.0, 7.0]), "ReduceMean"),
        (lambda x: jnp.sum(x * jnp.flip(x), axis=-1), "ReduceSumSquare"),
        (lambda x: jnp.sqrt(jnp.sum(x * jnp.flip(x), axis=-1) ** 2), "ReduceL2"),
    ],
)
def test_near_misses_stay_as_they_are(fn, op):
    assert op not in op_types(check_export(fn, [X]))


def test_integers_have_no_mean():
    whole = np.arange(8, dtype=np.int32).reshape(2, 4)
    assert "ReduceMean" not in op_types(check_export(lambda x: jnp.sum(x, axis=1) // 4, [whole]))


def test_other_axes_than_the_reduced_ones_do_not_come_back_with_it():
    square = np.arange(16, dtype=np.float32).reshape(4, 4)
    found = op_types(check_export(lambda x: jnp.sum(x, axis=0)[:, None], [square]))
    assert found in (["ReduceSum", "Unsqueeze"], ["ReduceSum", "Reshape"])


def test_what_something_else_reads_stays():
    def fn(x):
        total = jnp.sum(x, axis=-1)
        return total / 6.0, total

    assert op_types(check_export(fn, [X])) == ["ReduceSum", "Div"]


def test_a_mean_names_both_lines():
    def fn(x):
        total = jnp.sum(x, axis=-1)
        return total / 6.0

    said = metadata(check_export(fn, [X]).graph.node[0])
    first = fn.__code__.co_firstlineno
    assert said[KEYS[0]].endswith(f":{first + 2}")
    assert f":{first + 1} (" in said[KEYS[3]] and f":{first + 2} (" in said[KEYS[3]]
    assert said[KEYS[1]].startswith("fuse_reductions:")
