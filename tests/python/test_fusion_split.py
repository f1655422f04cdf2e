"""Slices that lie side by side and cover an axis are one Split."""

import jax.numpy as jnp
import numpy as np
import pytest
from export_check import KEYS, check_export, metadata, op_types

X = np.arange(48, dtype=np.float32).reshape(2, 3, 8)


def test_halves_and_uneven_parts():
    found = op_types(check_export(lambda x: jnp.sin(x[..., :4]) * x[..., 4:], [X]))
    assert found == ["Split", "Sin", "Mul"]
    found = op_types(check_export(lambda x: (x[..., 5:], jnp.sin(x[..., 2:5]), jnp.cos(x[..., :2])), [X]))
    assert sorted(found) == ["Cos", "Sin", "Split"]


def test_parts_of_something_computed_and_of_a_symbolic_batch():
    def fn(x):
        y = jnp.exp(x)
        return y[:, :1] + y[:, 1:]

    model = check_export(fn, [X], specs=[("B", 3, 8)], more_args=[[X[:1]]])
    assert op_types(model) == ["Exp", "Split", "Add"]


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: jnp.sin(x[..., :4]) * x[..., 3:7],
        lambda x: jnp.sin(x[..., :3]) + jnp.cos(x[..., 5:]),
        lambda x: jnp.sin(x[..., 1:4]).sum() + x[..., 4:],
        lambda x: jnp.sin(x[..., :4]).sum() + x[:, 1:],
        lambda x: x[..., ::2] + x[..., 1::2],
    ],
)
def test_near_misses_stay_slices(fn):
    assert "Split" not in op_types(check_export(fn, [X]))


def test_more_slices_than_needed():
    def fn(x):
        return x[..., :4] * x[..., 4:], x[..., 2:6]

    assert sorted(op_types(check_export(fn, [X]))) == ["Mul", "Slice", "Split"]


def test_it_names_all_its_lines():
    def fn(x):
        first = x[..., :4]
        second = x[..., 4:]
        return first * second

    said = metadata(check_export(fn, [X]).graph.node[0])
    line = fn.__code__.co_firstlineno
    assert said[KEYS[1]].startswith("fuse_split:")
    assert f":{line + 1} (" in said[KEYS[3]] and f":{line + 2} (" in said[KEYS[3]]
