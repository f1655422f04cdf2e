"""Picking one position is one Gather, and indices that are known to be in bounds cost nothing more."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from export_check import KEYS, check_export, metadata, op_types

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


@pytest.mark.parametrize("pick", [np.s_[0], np.s_[:, 1], np.s_[..., -1], np.s_[:, -3]])
def test_one_position_is_a_gather(pick):
    assert op_types(check_export(lambda x: x[pick], [X])) == ["Gather"]


def test_a_symbolic_size():
    model = check_export(lambda x: x[:, 0], [X], specs=[("B", "T", 4)], more_args=[[X[:1, :1]]])
    assert op_types(model) == ["Gather"]


def test_it_picks_before_a_transpose():
    assert op_types(check_export(lambda x: x.transpose(1, 0, 2)[:, -1], [X])) == ["Gather"]
    assert op_types(check_export(lambda x: x.transpose(2, 1, 0)[0], [X])) == ["Gather", "Transpose"]

    def parts(x):
        first, *_, last = jnp.moveaxis(x, 1, 0)
        return jnp.sin(first), jnp.cos(last)

    assert op_types(check_export(parts, [X])) == ["Gather", "Gather", "Sin", "Cos"]
    turned = op_types(check_export(lambda x: (x.T[0], x.T[1]), [X]))
    assert turned == ["Transpose", "Gather", "Gather"]  # one Transpose for both


def test_it_picks_before_an_axis_is_turned_around():
    assert op_types(check_export(lambda x: x[:, ::-1][:, 0], [X])) == ["Gather"]
    assert op_types(check_export(lambda x: x[:, ::-1][0], [X])) == ["Slice", "Gather"]
    assert op_types(check_export(lambda x: jnp.sin(x[::-1][::-1]), [X])) == ["Sin"]
    assert op_types(check_export(lambda x: jnp.sin(x[::-1][:, ::-1]), [X])).count("Slice") == 2


@pytest.mark.parametrize("fn", [lambda x: x[:, 1:2], lambda x: x[:, ::2], lambda x: x[:, 1:3].reshape(4, 4)])
def test_near_misses_stay_slices(fn):
    assert "Gather" not in op_types(check_export(fn, [X]))


def test_what_something_else_reads_stays():
    def fn(x):
        part = x[:, 1:2]
        return part, part[:, 0]

    assert "Slice" in op_types(check_export(fn, [X]))


def test_it_names_both_lines():
    def fn(x):
        part = jax.lax.slice_in_dim(x, 1, 2, axis=1)
        return jnp.squeeze(part, 1)

    said = metadata(check_export(fn, [X]).graph.node[0])
    first = fn.__code__.co_firstlineno
    assert said[KEYS[1]].startswith("fuse_selection:")
    for line in (1, 2):
        assert f":{first + line} (" in said[KEYS[3]]


# ---- indices that are known to be in bounds ----

TABLE = jnp.asarray(np.random.default_rng(0).standard_normal((8, 3)), jnp.float32)
INTEGERS = np.array([0, 3, -9, 7, 100], np.int32)
SMALL = np.array([0, 3, 7, 255], np.uint8)


def look_up(make, mode=None):
    return lambda i: jnp.take(TABLE, make(i), axis=0, mode=mode)


@pytest.mark.parametrize("mode", [None, "clip", "wrap"])
def test_a_look_up_in_bounds_is_one_gather(mode):
    for make, count in ((lambda i: jnp.clip(i, 0, 7), 2), (lambda i: i % 8, None), (lambda i: jnp.argmax(i), 2)):
        found = op_types(check_export(look_up(make, mode), [INTEGERS]))
        assert found[-1] == "Gather" and "Where" not in found[-2:] and "Equal" not in found
        if count and mode != "wrap":
            assert len(found) == count


def test_a_type_too_small_to_be_out_of_bounds():
    large = jnp.asarray(np.random.default_rng(0).standard_normal((256, 2)), jnp.float32)
    assert op_types(check_export(lambda i: large[i], [SMALL]))[-1] == "Gather"
    found = op_types(check_export(lambda i: jnp.take(large, i, axis=0), [SMALL]))
    assert found[-1] == "Gather" and "Clip" not in found


@pytest.mark.parametrize("make", [lambda i: i, lambda i: jnp.clip(i, 0, 8), lambda i: i + 1])
def test_what_may_be_out_of_bounds_is_filled(make):
    assert "Where" in op_types(check_export(look_up(make), [INTEGERS]))


def test_comparisons_of_integers_that_are_decided():
    def fn(i, x):
        small = jnp.clip(i, 0, 7)
        return jnp.where(small < 8, x, 0.0), jnp.where(small >= 8, x, -x), jnp.where(small == 9, x, x + 1)

    x = np.arange(5, dtype=np.float32)
    assert not {"Less", "Equal", "GreaterOrEqual", "Where"} & set(op_types(check_export(fn, [INTEGERS, x])))
    undecided = op_types(check_export(lambda i, x: jnp.where(jnp.clip(i, 0, 7) < 7, x, 0.0), [INTEGERS, x]))
    assert "Where" in undecided
    floats = np.array([1, np.nan, 3, 4, 5], np.float32)
    assert "Where" in op_types(check_export(lambda x: jnp.where(x == x, x, 0.0), [floats]))
    assert "Where" in op_types(check_export(lambda x: jnp.where(jnp.tanh(x) < 2, x, 0.0), [floats]))


def test_integers_that_wrap_are_not_bounded():
    def fn(i):
        return jnp.where(jnp.clip(i, 100, 120).astype(jnp.int8) * jnp.int8(2) > 0, i, -i)

    found = op_types(check_export(fn, [np.array([100, 110, 60], np.int32)]))
    assert "Where" in found
