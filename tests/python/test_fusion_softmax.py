"""Softmax, LogSoftmax and ReduceLogSumExp, however JAX guards the maximum."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from export_check import KEYS, check_export, metadata, op_types

X = np.random.default_rng(0).standard_normal((3, 4, 5)).astype(np.float32) * 4
EDGES = np.array(
    [[np.nan, 1, 2], [np.inf, 1, 2], [-np.inf, 1, 2], [-np.inf] * 3, [1000, 1001, 1002], [1e30, 0, -1e30]], np.float32
)


def spelled_out(x):
    largest = jnp.max(x, axis=-1, keepdims=True)
    raised = jnp.exp(x - largest)
    return raised / jnp.sum(raised, axis=-1, keepdims=True)


@pytest.mark.parametrize("opset", [17, 23])
@pytest.mark.parametrize(
    "fn,op",
    [
        (jax.nn.softmax, "Softmax"),
        (lambda x: jax.nn.softmax(x, axis=1), "Softmax"),
        (lambda x: jax.nn.softmax(x, axis=0), "Softmax"),
        (spelled_out, "Softmax"),
        (jax.nn.log_softmax, "LogSoftmax"),
        (lambda x: jax.nn.log_softmax(x, axis=0), "LogSoftmax"),
        (lambda x: jax.nn.logsumexp(x, axis=-1), "ReduceLogSumExp"),
        (lambda x: jax.nn.logsumexp(x, axis=(0, 2)), "ReduceLogSumExp"),
        (lambda x: jax.nn.logsumexp(x, axis=1, keepdims=True), "ReduceLogSumExp"),
    ],
)
def test_it_is_one_node(fn, op, opset):
    assert op_types(check_export(fn, [X], opset=opset)) == [op]


@pytest.mark.parametrize(
    "fn", [jax.nn.softmax, jax.nn.log_softmax, lambda x: jax.nn.logsumexp(x, axis=-1), spelled_out]
)
def test_edge_values_are_kept(fn):
    assert len(op_types(check_export(fn, [EDGES]))) == 1


@pytest.mark.parametrize("fn", [jax.nn.softmax, lambda x: jax.nn.logsumexp(x, axis=-1)])
def test_symbolic_sizes_and_other_types(fn):
    assert len(op_types(check_export(fn, [X], specs=[("B", 4, "T")], more_args=[[X[:1, :, :2]]]))) == 1
    assert len(op_types(check_export(fn, [X.astype(np.float64)], x64=True))) == 1
    check_export(fn, [X.astype(np.float16)])


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: jnp.exp(x) / jnp.sum(jnp.exp(x), axis=-1, keepdims=True),  # overflows where Softmax does not
        lambda x: jax.nn.softmax(x, axis=(1, 2)),
        lambda x: (
            jnp.exp(x - jnp.max(x, -1, keepdims=True))
            / jnp.sum(jnp.exp(x - jnp.max(x, -1, keepdims=True)), 1, keepdims=True)
        ),
        lambda x: (
            jnp.exp(x - jnp.max(x, 1, keepdims=True))
            / jnp.sum(jnp.exp(x - jnp.max(x, 1, keepdims=True)), -1, keepdims=True)
        ),
        lambda x: (
            jnp.exp(x - jnp.max(jnp.flip(x) * 2, -1, keepdims=True))
            / jnp.sum(jnp.exp(x - jnp.max(jnp.flip(x) * 2, -1, keepdims=True)), -1, keepdims=True)
        ),
    ],
)
def test_near_misses_stay_as_they_are(fn):
    assert "Softmax" not in op_types(check_export(fn, [X]))


def test_axes_of_one_size_are_told_apart():
    square = X[0, :4, :4]

    def crosswise(x):
        raised = jnp.exp(x - jnp.max(x, axis=0)[:, None])
        return raised / jnp.sum(raised, axis=0)[:, None]

    assert "Softmax" not in op_types(check_export(crosswise, [square]))


def test_what_something_else_reads_stays():
    def both(x):
        raised = jnp.exp(x - jnp.max(x, axis=-1, keepdims=True))
        return raised / jnp.sum(raised, axis=-1, keepdims=True), raised

    assert "Softmax" not in op_types(check_export(both, [X]))


def test_it_names_all_its_lines():
    said = metadata(check_export(spelled_out, [X]).graph.node[0])
    first = spelled_out.__code__.co_firstlineno
    assert said[KEYS[0]] == f"spelled_out:{first + 3}"
    assert said[KEYS[1]].startswith("fuse_softmax:")
    for line in range(first + 1, first + 4):
        assert f":{line} (spelled_out)" in said[KEYS[3]]
