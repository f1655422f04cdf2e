"""Images taken apart into blocks: DepthToSpace, SpaceToDepth and means of blocks; rows by places in another shape."""

import jax.numpy as jnp
import numpy as np
from export_check import KEYS, check_export, metadata, op_types

RNG = np.random.default_rng(0)
DEEP = RNG.standard_normal((2, 12, 4, 5)).astype(np.float32)
WIDE = RNG.standard_normal((2, 3, 8, 10)).astype(np.float32)


def to_space(x):
    n, c, h, w = x.shape
    parts = x.reshape(n, c // 4, 2, 2, h, w)
    moved = parts.transpose(0, 1, 4, 2, 5, 3)
    return moved.reshape(n, c // 4, 2 * h, 2 * w)


def to_depth(x):
    n, c, h, w = x.shape
    return x.reshape(n, c, h // 2, 2, w // 2, 2).transpose(0, 3, 5, 1, 2, 4).reshape(n, 4 * c, h // 2, w // 2)


def test_channels_become_blocks():
    model = check_export(to_space, [DEEP])
    assert op_types(model) == ["DepthToSpace"]
    model = check_export(to_space, [DEEP], specs=[("B", 12, "H", "W")], more_args=[[DEEP[:1, :, :1]], [DEEP[:0]]])
    assert op_types(model) == ["DepthToSpace"]


def test_blocks_become_channels():
    assert op_types(check_export(to_depth, [WIDE])) == ["SpaceToDepth"]


def test_it_names_all_its_lines():
    said = metadata(check_export(to_space, [DEEP]).graph.node[0])
    first = to_space.__code__.co_firstlineno
    assert said[KEYS[1]].startswith("fuse_blocks:")
    for line in (first + 2, first + 3, first + 4):
        assert f":{line} (" in said[KEYS[3]]


def test_means_of_blocks():
    def fn(x):
        n, c, h, w = x.shape
        return x.reshape(n, c, h // 2, 2, w // 2, 2).mean((3, 5))

    assert op_types(check_export(fn, [WIDE], rtol=1e-5)) == ["AveragePool"]
    model = check_export(fn, [WIDE], specs=[("B", 3, 8, 10)], more_args=[[WIDE[:1]], [WIDE[:0]]], rtol=1e-5)
    assert op_types(model) == ["AveragePool"]
    odd = WIDE.copy()
    odd[0, 0, 0, 0], odd[1, 1, 1, 1], odd[1, 2, 3, 3] = np.nan, np.inf, -np.inf
    check_export(fn, [odd], rtol=1e-5)


def test_means_one_by_one():
    model = check_export(lambda x: x.mean(3).mean(2), [WIDE], rtol=1e-5, atol=1e-6)
    assert op_types(model) == ["ReduceMean"]


def test_rows_by_flat_places():
    table = RNG.standard_normal((7, 3)).astype(np.float32)
    places = np.array([[1, 6], [0, 9]], np.int32)
    model = check_export(lambda i: jnp.take(table, i.reshape(-1), axis=0, mode="clip").reshape(2, 2, 3), [places])
    assert op_types(model) == ["Clip", "Gather"]
