"""Shape and data movement: every element type arrives where JAX puts it, in as few nodes as possible."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from export_check import check_export, op_types
from jax import lax

BF16 = ml_dtypes.bfloat16
DTYPES = [
    bool, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64,
    np.float16, BF16, np.float32, np.float64,
]  # fmt: skip


def numbers(*shape, dtype=np.float32):
    return (np.arange(np.prod(shape, dtype=int)).reshape(shape) % 7).astype(dtype)


X = numbers(2, 3, 4)

# What it takes to move data: function and the operators of the model.
MOVES = {
    "broadcast_leading_axis": (lambda x: jnp.broadcast_to(x, (5, 2, 3, 4)), ["Expand"]),
    "broadcast_axis_of_size_1": (lambda x: lax.broadcast_in_dim(x, (2, 1, 3, 4), (0, 2, 3)), ["Unsqueeze"]),
    "broadcast_inner_axis": (lambda x: lax.broadcast_in_dim(x, (2, 6, 3, 4), (0, 2, 3)), ["Unsqueeze", "Expand"]),
    "broadcast_around": (lambda x: lax.broadcast_in_dim(x, (5, 2, 3, 4, 6), (1, 2, 3)), ["Unsqueeze", "Expand"]),
    "broadcast_grown_axis": (lambda x: lax.broadcast_in_dim(x[:1], (9, 3, 4), (0, 1, 2)), ["Slice", "Expand"]),
    "broadcast_nothing": (lambda x: lax.broadcast_in_dim(x, (2, 3, 4), (0, 1, 2)), ["Identity"]),
    "reshape": (lambda x: x.reshape(6, 4), ["Reshape"]),
    "reshape_to_vector": (lambda x: x.reshape(-1), ["Reshape"]),
    "reshape_with_order": (lambda x: lax.reshape(x, (6, 4), (1, 0, 2)), ["Transpose", "Reshape"]),
    "transpose": (lambda x: x.transpose(2, 0, 1), ["Transpose"]),
    "transpose_nothing": (lambda x: lax.transpose(x, (0, 1, 2)), ["Identity"]),
    "squeeze": (lambda x: lax.squeeze(x[:1, :, 2:3], (0, 2)), ["Slice", "Squeeze"]),
    "expand_dims": (lambda x: jnp.expand_dims(x, (0, 2)), ["Unsqueeze"]),
    "concatenate": (lambda x: jnp.concatenate([x, x, x], 1), ["Concat"]),
    "concatenate_one": (lambda x: lax.concatenate([x], 1), ["Identity"]),
    "slice": (lambda x: lax.slice(x, (0, 1, 1), (2, 3, 4)), ["Slice"]),
    "slice_strided": (lambda x: lax.slice(x, (0, 0, 1), (2, 3, 4), (1, 2, 2)), ["Slice"]),
    "slice_nothing": (lambda x: lax.slice(x, (0, 0, 0), (2, 3, 4), (1, 1, 1)), ["Identity"]),
    "slice_to_empty": (lambda x: lax.slice(x, (0, 2, 0), (2, 2, 4)), ["Identity"]),
    "rev": (lambda x: lax.rev(x, (0, 2)), ["Slice"]),
    "rev_nothing": (lambda x: lax.rev(x, ()), ["Identity"]),
    "stack_first": (lambda x: jnp.stack([x, x, x], 0), ["Concat", "Reshape"]),
    "stack_inner": (lambda x: jnp.stack([x, x + 1], 1), ["Add", "Concat", "Reshape"]),
    "stack_last": (lambda x: jnp.stack([x, x], -1), None),
    "stack_one": (lambda x: jnp.stack([x], 1), ["Unsqueeze"]),
    "stack_scalars": (lambda x: jnp.stack([x[0, 0, 0], x[1, 0, 0]]), None),
    "unstack": (lambda x: jnp.unstack(x, axis=1), ["Gather"] * 3),
    "split_unequal": (lambda x: jnp.split(x, [1, 3], axis=2), ["Split"]),
    "split_with_empty_part": (lambda x: jnp.split(x, [0, 3], axis=2), ["Split"]),
    "split_one": (lambda x: lax.split(x, (4,), axis=2)[0], ["Identity"]),
    "tile": (lambda x: jnp.tile(x, (2, 1, 3)), ["Tile"]),
    "tile_more_axes": (lambda x: jnp.tile(x, (2, 1, 1, 3)), None),
    "tile_nothing": (lambda x: jnp.tile(x, (1, 1, 1)), ["Identity"]),
    "tile_to_empty": (lambda x: jnp.tile(x, (1, 0, 1)), None),
}  # fmt: skip


@pytest.mark.parametrize("name", MOVES)
def test_move(name):
    fn, operators = MOVES[name]
    model = check_export(fn, [X])
    if operators is not None:
        assert op_types(model) == operators


@pytest.mark.parametrize("dtype", DTYPES)
def test_element_type(dtype):
    def fn(x, fill):
        wide = lax.broadcast_in_dim(x, (3, 2, 2, 4), (0, 1, 3))
        joined = lax.concatenate([x, lax.rev(x, (1,))], 2)
        pieces = jnp.split(lax.slice(joined, (0, 0, 0), (3, 2, 7), (1, 1, 2)), [1], axis=2)
        edges = lax.pad(x, fill, ((1, -1, 1), (0, 2, 0), (-1, 0, 0)))
        return wide, joined, *pieces, edges, jnp.tile(x, (2, 1, 1)), jnp.stack([x, x], 1), *jnp.unstack(x, axis=0)[:1]

    check_export(fn, [numbers(3, 2, 4, dtype=dtype), np.asarray(3, dtype)], x64=True)


def test_empty_arrays():
    check_export(lambda x: (x.reshape(0, 6), jnp.concatenate([x, x], 1), x.T), [numbers(3, 0, 2)])
    check_export(lambda x: jnp.broadcast_to(x, (4, 0, 2)), [numbers(1, 0, 2)])
    check_export(lambda x: jnp.concatenate([x, jnp.zeros((0, 2), x.dtype)]), [numbers(3, 2)])
    check_export(lambda x: lax.pad(x, jnp.float32(5), ((1, 2, 3),)), [numbers(0)])


@pytest.mark.parametrize("dtype", [dtype for dtype in DTYPES if dtype is not bool])
def test_iota(dtype):
    def fn(x):
        ones = [lax.broadcasted_iota(dtype, (3, 4, 2), axis) for axis in range(3)]
        return (
            x + 1,
            lax.iota(dtype, 300),
            *ones,
            lax.broadcasted_iota(dtype, (50, 3, 60), 1),
            lax.iota(dtype, 5000)[-200:],
        )

    check_export(fn, [np.float32(1)], x64=True)


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64, np.uint32, np.float16, BF16, np.float32, np.float64])
def test_iota_of_symbolic_size(dtype):
    def fn(x):
        return (
            lax.iota(dtype, x.shape[0]),
            lax.broadcasted_iota(dtype, (2, x.shape[0], 3), 1),
            lax.broadcasted_iota(dtype, (x.shape[0], 3), 1),
        )

    more = [[numbers(7, 2, dtype=np.float64)], [numbers(1, 2, dtype=np.float64)]]
    model = check_export(fn, [numbers(4, 2, dtype=np.float64)], specs=[("B", 2)], more_args=more, x64=True)
    assert "Range" in op_types(model)


def test_small_constants_are_stored_and_large_ones_computed():
    model = check_export(
        lambda x: x + jnp.full((2, 3), 2.5) * lax.broadcasted_iota(jnp.float32, (2, 3), 1), [numbers(2, 3)]
    )
    assert not {"Expand", "Range"} & set(op_types(model))
    model = check_export(lambda x: x + jnp.zeros((100, 100)), [numbers(100)])
    assert op_types(model).count("Expand") == 1
    assert len(model.SerializeToString()) < 20_000


@pytest.mark.parametrize("dtype", [np.float32, np.int32, bool])
def test_empty(dtype):
    check_export(lambda x: (x, lax.empty((2, 3), dtype)), [numbers(2)])


PADDINGS = {
    "grow": (((1, 2, 0), (0, 3, 0)), ["Pad"]),
    "cut": (((-1, 0, 0), (-1, -1, 0)), ["Slice"]),
    "grow_and_cut": (((1, -1, 0), (-2, 3, 0)), ["Pad", "Slice"]),
    "cut_more_than_there_is": (((-5, 4, 0), (5, -7, 0)), ["Pad", "Slice"]),
    "gaps": (((0, 0, 2), (0, 0, 1)), ["Unsqueeze", "Pad", "Reshape", "Slice"]),
    "gaps_and_edges": (((2, 3, 1), (0, 4, 3)), ["Unsqueeze", "Pad", "Reshape", "Pad"]),
    "gaps_and_cuts": (((-2, 1, 1), (1, -3, 2)), ["Unsqueeze", "Pad", "Reshape", "Pad", "Slice"]),
    "nothing": (((0, 0, 0), (0, 0, 0)), ["Identity"]),
}


@pytest.mark.parametrize("name", PADDINGS)
def test_pad(name):
    config, operators = PADDINGS[name]
    model = check_export(lambda x, fill: lax.pad(x, fill, config), [numbers(3, 4) + 1, np.float32(-9)])
    assert op_types(model) == operators


def test_pad_of_axes_without_neighbours():
    check_export(lambda x: lax.pad(x, np.float32(np.nan), ((1, 1, 5), (0, 0, 2))), [numbers(1, 3)])
    check_export(lambda x: lax.pad(x, np.float32(2), ()), [np.float32(1)])


SYMBOLIC = {
    "broadcast": lambda x: jnp.broadcast_to(x[:, None, :], (x.shape[0], 2, 3)),
    "broadcast_scalar": lambda x: jnp.zeros((x.shape[0], 4), jnp.float32),
    "broadcast_new_axis": lambda x: jnp.broadcast_to(x, (2, *x.shape)),
    "flatten": lambda x: x.reshape(-1),
    "reshape_swapped": lambda x: x.reshape(3, x.shape[0]),
    "transpose": lambda x: x.T,
    "concatenate": lambda x: jnp.concatenate([x, x + 1]),
    "slice": lambda x: lax.slice(x, (0, 1), (x.shape[0], 3)),
    "slice_symbolic_start": lambda x: lax.slice(jnp.concatenate([x, x + 1]), (x.shape[0], 0), (2 * x.shape[0], 3)),
    "slice_strided": lambda x: lax.slice(x, (0, 0), (x.shape[0], 3), (2, 1)),
    "rev": lambda x: lax.rev(x, (0,)),
    "stack": lambda x: jnp.stack([x, x + 1], 0),
    "stack_last": lambda x: jnp.stack([x, x + 1], -1),
    "unstack": lambda x: jnp.unstack(x, axis=1),
    "split": lambda x: jnp.split(x, [1], axis=1),
    "tile": lambda x: jnp.tile(x, (2, 3)),
    "pad": lambda x: jnp.pad(x, ((1, 2), (0, 0))),
    "pad_symbolic": lambda x: jnp.pad(x, ((x.shape[0], 1), (0, 0))),
    "pad_gaps": lambda x: lax.pad(x, jnp.float32(1), ((1, -1, 2), (0, 0, 1))),
    "dim_as_value": lambda x: x * x.shape[0] + jnp.mean(x),
}  # fmt: skip


@pytest.mark.parametrize("name", SYMBOLIC)
def test_symbolic_size(name):
    more = [[numbers(5, 3)], [numbers(1, 3)]]
    check_export(SYMBOLIC[name], [numbers(4, 3)], specs=[("B", 3)], more_args=more)


def test_two_symbolic_sizes():
    def fn(x):
        b, t = x.shape[:2]
        heads = x.reshape(b, t, 2, 3).transpose(0, 2, 1, 3)
        return (
            heads,
            heads.transpose(0, 2, 1, 3).reshape(b * t, 6),
            jnp.stack([x, x]),
            jnp.broadcast_to(x[:, None], (b, 4, t, 6)),
        )

    check_export(fn, [numbers(2, 5, 6)], specs=[("B", "T", 6)], more_args=[[numbers(3, 1, 6)], [numbers(1, 4, 6)]])


@pytest.mark.parametrize("opset", [17, 20, 26])
def test_opset(opset):
    def fn(x):
        parts = jnp.split(jnp.tile(lax.rev(x, (0,)), (1, 1, 2)), [1, 3], axis=2)
        return (
            *parts,
            lax.pad(x, np.float32(1), ((1, 1, 1), (0, -1, 0), (0, 0, 0))),
            jnp.stack([x, x]),
            x[:, None, ..., None],
            jnp.arange(6000),
        )

    check_export(fn, [X], opset=opset)


def test_shapes_of_a_constant():
    table = jnp.asarray(numbers(4, 6))
    check_export(
        lambda x: x + table.T.reshape(6, 2, 2)[:, 1], [numbers(6, 2)], specs=[jax.ShapeDtypeStruct((6, 2), np.float32)]
    )
