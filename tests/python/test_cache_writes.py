"""Caches that keep their size are written by TensorScatter from opset 24 on, wherever JAX writes them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from export_check import check_export, op_types
from jax import lax

RANDOM = np.random.default_rng(0)
SIZE = 6


def written(axis, rank):
    def fn(cache, new, position):
        starts = [0] * rank
        starts[axis] = position
        return lax.dynamic_update_slice(cache, new, starts)

    return fn


def arrays(shape, axis, length, dtype):
    update = [*shape[:axis], length, *shape[axis + 1 :]]
    return [(RANDOM.standard_normal(size) * 50).astype(dtype) for size in (shape, update)]


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int8, np.int32, np.bool_])
@pytest.mark.parametrize("length", [1, 2, SIZE - 1])
@pytest.mark.parametrize("shape,axis", [((2, 3, SIZE, 4), 2), ((1, SIZE, 3, 4), 1), ((2, SIZE), 1), ((3, 2, SIZE), 2)])
def test_at_every_position(shape, axis, length, dtype):
    """Also where the window does not fit: JAX moves it inside, and counts negative ones from the end."""
    cache, new = arrays(shape, axis, length, dtype)
    positions = [[cache, new, np.int32(at)] for at in range(-SIZE - 2, SIZE + 3)]
    model = check_export(written(axis, len(shape)), positions[0], more_args=positions[1:], opset=24)
    assert "TensorScatter" in op_types(model) and "ScatterND" not in op_types(model)


@pytest.mark.parametrize("batch", [5, 1])
@pytest.mark.parametrize("axis", [1, 2])
def test_each_of_a_batch_at_its_own_position(axis, batch):
    shape = (batch, SIZE, 3) if axis == 1 else (batch, 3, SIZE)
    cache, new = arrays(shape, axis, 2, np.float32)
    fn = jax.vmap(lambda cache, new, at: lax.dynamic_update_slice_in_dim(cache, new, at, axis - 1))
    positions = [np.array(at[-batch:], np.int32) for at in ([0, 1, 2, 3, 4], [-1, -6, -9, 5, 6], [99, 0, -99, 3, -3])]
    model = check_export(fn, [cache, new, positions[0]], more_args=[[cache, new, at] for at in positions], opset=24)
    assert op_types(model)[-1] == "TensorScatter"


def test_sizes_that_are_symbols():
    cache, new = arrays((2, 3, SIZE, 4), 2, 2, np.float32)
    more = [[*arrays((1, 3, size, 4), 2, 2, np.float32), np.int32(at)] for size in (2, 9) for at in (-1, 0, 5)]
    specs = [("B", 3, "L", 4), ("B", 3, 2, 4), jax.ShapeDtypeStruct((), np.int32)]
    model = check_export(written(2, 4), [cache, new, np.int32(3)], specs=specs, more_args=more, opset=24)
    assert "TensorScatter" in op_types(model)


STAYS = {
    "an older opset": (written(1, 3), (2, SIZE, 4), (2, 2, 4), {"opset": 23}),
    "a runtime that was asked for": (written(1, 3), (2, SIZE, 4), (2, 2, 4), {"target": "onnxruntime-1.31"}),
    "the first axis": (written(0, 3), (SIZE, 2, 4), (2, 2, 4), {}),
    "two axes": (lambda c, n, p: lax.dynamic_update_slice(c, n, (0, p, p)), (2, SIZE, 4), (2, 2, 3), {}),
    "a known position": (lambda c, n, p: lax.dynamic_update_slice(c, n, (0, 1, 0)), (2, SIZE, 4), (2, 2, 4), {}),
    "updates that are dropped": (lambda c, n, p: c.at[:, p].set(n), (2, SIZE, 4), (2, 4), {}),
    "a loop": (
        lambda c, n, p: lax.fori_loop(0, p % 3, lambda i, c: lax.dynamic_update_slice(c, n * i, (0, p + i, 0)), c),
        (2, SIZE, 4),
        (2, 1, 4),
        {},
    ),
}


@pytest.mark.parametrize("name", STAYS)
def test_what_stays_as_it_was(name):
    fn, of_cache, of_update, options = STAYS[name]
    args = [RANDOM.standard_normal(shape).astype(np.float32) for shape in (of_cache, of_update)]
    more = [[*args, np.int32(at)] for at in (-20, -1, 0, 5, 6, 20)]
    model = check_export(fn, [*args, np.int32(2)], more_args=more, **({"opset": 24} | options))
    assert "TensorScatter" not in op_types(model)


def test_a_step_of_decoding_writes_its_caches_and_attends():
    def fn(q, k, v, keys, values, position):
        keys, values = (lax.dynamic_update_slice(a, b, (0, 0, position, 0)) for a, b in ((keys, k), (values, v)))
        scores = jnp.where(jnp.arange(SIZE) <= position, q @ jnp.swapaxes(keys, -1, -2) / 2, -1e9)
        return jax.nn.softmax(scores, axis=-1) @ values, keys, values

    args = [RANDOM.standard_normal((2, 3, length, 4)).astype(np.float32) for length in (1, 1, 1, SIZE, SIZE)]
    more = [[*args, np.int32(at)] for at in (0, SIZE - 1, SIZE + 1)]
    found = op_types(check_export(fn, [*args, np.int32(2)], more_args=more, opset=24))
    assert found.count("TensorScatter") == 2 and found.count("Attention") == 1
