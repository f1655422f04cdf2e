"""Reshapes meet across operators that do not look at the shape, and cancel."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from export_check import KEYS, check_export, metadata, op_types

X = np.linspace(-2, 2, 24, dtype=np.float32).reshape(2, 3, 4)
ROW = np.array([1.0, 2.0, 3.0, 4.0], np.float32)


@pytest.mark.parametrize(
    "fn,ops",
    [
        (lambda x: jnp.exp(x.reshape(6, 4)).reshape(2, 3, 4), ["Exp"]),
        (lambda x: (jnp.tanh(x[None] * 2) - 1)[0], ["Mul", "Tanh", "Sub"]),
        (lambda x: (x.reshape(6, 4) * ROW).reshape(2, 3, 4), ["Mul"]),
        (lambda x: jax.nn.softmax(jnp.exp(x.reshape(6, 4)), axis=-1).reshape(2, 3, 4), ["Exp", "Softmax"]),
        (lambda x: jnp.exp(x[:, None]).transpose(1, 0, 3, 2)[0], ["Exp", "Transpose"]),
    ],
)
def test_they_cancel(fn, ops):
    assert op_types(check_export(fn, [X])) == ops


def test_sizes_known_at_run_time():
    def fn(x):
        return jnp.exp(x[:, None] * 2.0)[:, 0]

    assert op_types(check_export(fn, [X], specs=[("B", 3, 4)], more_args=[[X[:1]]])) == ["Mul", "Exp"]


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: (x.reshape(4, 6) * np.arange(6, dtype=np.float32)).reshape(2, 3, 4),
        lambda x: jax.nn.softmax(x.reshape(4, 6), axis=-1).reshape(2, 3, 4),
        lambda x: jax.nn.softmax(x.reshape(6, 4), axis=0).reshape(2, 3, 4),
        lambda x: x.reshape(6, 4).T.reshape(2, 3, 4),
        lambda x: (x[:, None] + np.ones((1, 5, 1, 1), np.float32)).reshape(2, 15, 4),
    ],
)
def test_they_stay_where_the_shape_matters(fn):
    found = op_types(check_export(fn, [X]))
    assert sum(op in ("Reshape", "Unsqueeze") for op in found) == 2


def test_axes_that_a_constant_brought_in_go_again():
    mask = np.random.default_rng(0).random((1, 2, 3, 4)) > 0.5

    def fn(x, y):
        return jnp.where(mask, jnp.exp(x), y.reshape(1, 2, 1, 1)).reshape(2, 3, 4)

    found = op_types(check_export(fn, [X, np.array([1, 2], np.float32)]))
    assert found == ["Exp", "Reshape", "Where"]


def test_nothing_moves_that_something_else_reads():
    def fn(x):
        flat = x.reshape(6, 4)
        return jnp.exp(flat).reshape(2, 3, 4), flat

    assert op_types(check_export(fn, [X])).count("Reshape") == 2


def test_no_line_is_lost():
    def fn(x):
        flat = x.reshape(6, 4)
        raised = jnp.exp(flat)
        return raised.reshape(2, 3, 4)

    model = check_export(fn, [X])
    first = fn.__code__.co_firstlineno
    assert op_types(model) == ["Exp"]
    said = metadata(model.graph.node[0])
    assert said[KEYS[0]].endswith(f":{first + 2}")
    for line in (1, 2, 3):
        assert f":{first + line} (" in said[KEYS[3]]
