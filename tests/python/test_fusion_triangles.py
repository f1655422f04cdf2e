"""Triangles of matrices are one Trilu, whatever the size is known to be."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from export_check import KEYS, check_export, metadata, op_types

X = np.random.default_rng(0).standard_normal((2, 4, 5)).astype(np.float32)
X[0, 1, 3] = np.nan
SQUARE = np.ascontiguousarray(X[:, :, :4])


@pytest.mark.parametrize("cut", [jnp.tril, jnp.triu])
@pytest.mark.parametrize("offset", [0, 1, -1, 3, -2])
def test_known_sizes(cut, offset):
    assert op_types(check_export(lambda x: cut(x, offset), [X])) == ["Trilu"]


@pytest.mark.parametrize("cut", [jnp.tril, jnp.triu])
@pytest.mark.parametrize("offset", [0, 2, -1])
def test_sizes_of_the_run(cut, offset):
    model = check_export(lambda x: cut(x, offset), [SQUARE], specs=[("B", "T", "T")], more_args=[[SQUARE[:1, :1, :1]]])
    assert op_types(model) == ["Trilu"]


@pytest.mark.parametrize("dtype", [np.float64, np.int64, np.int32])
def test_other_types_give_what_jax_gives(dtype):
    check_export(lambda x: jnp.tril(x), [np.nan_to_num(X * 9).astype(dtype)], x64=True)


ODD = np.tril(np.ones((4, 5), bool))
ODD[0, 4] = True


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: jnp.where(np.tril(np.ones((4, 5), bool)), x, 1.0),
        lambda x: jnp.where(ODD, x, 0.0),
        lambda x: jnp.where(np.tril(np.ones((4, 5), bool)), x[0, 0], 0.0),
        lambda x: jnp.where(np.eye(4, 5, dtype=bool), x, 0.0),
        lambda x: jnp.where(np.tril(np.ones((2, 4), bool))[..., None], x, 0.0),
    ],
)
def test_near_misses_stay_as_they_are(fn):
    assert "Trilu" not in op_types(check_export(fn, [X]))


def test_numbers_that_do_not_count_one_by_one():
    def fn(x):
        row, column = (jax.lax.broadcasted_iota(jnp.int32, x.shape, axis) for axis in (1, 2))
        return jnp.where(row * 2 >= column, x, 0.0)

    specs = [("B", "T", "T")]
    assert "Trilu" not in op_types(check_export(fn, [SQUARE], specs=specs, more_args=[[SQUARE[:1, :1, :1]]]))


def test_it_names_its_line():
    def fn(x):
        return jnp.sin(jnp.tril(x))

    said = metadata(check_export(fn, [X]).graph.node[0])
    assert said[KEYS[0]].endswith(f"fn:{fn.__code__.co_firstlineno + 1}")
    assert said[KEYS[1]].startswith("fuse_triangles:")
