"""Indexing: gather, scatter and dynamic slices against JAX, and the operators they become."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from export_check import check_export, op_types
from jax import lax

X = np.arange(5 * 6 * 7, dtype=np.float32).reshape(5, 6, 7)
I = np.array([0, 3, -1], np.int32)
J = np.array([4, -6, 2], np.int32)
WILD = np.array([-9, -6, -5, 4, 5, 100], np.int32)  # on both sides of the bounds of five


READS = {
    "rows": (lambda x, i, j: x[i], ["Gather"]),
    "axis 1": (lambda x, i, j: x[:, i], ["Gather"]),
    "last axis": (lambda x, i, j: x[..., i], ["Gather"]),
    "index array of rank 2": (lambda x, i, j: x[i[:, None] + jnp.zeros(2, jnp.int32)], None),
    "pairs": (lambda x, i, j: x[i, j], ["Unsqueeze", "Unsqueeze", "Concat", "Cast", "GatherND"]),
    "pairs behind an axis": (lambda x, i, j: x[:, i, j], None),
    "pairs around an axis": (lambda x, i, j: x[i, :, j], None),
    "outer product": (lambda x, i, j: x[i[:, None], j], None),
    "with a range": (lambda x, i, j: x[i, 1:3, j], None),
    "with a number": (lambda x, i, j: x[2, i], None),
    "triples": (lambda x, i, j: x[i, j, i], None),
    "scalar": (lambda x, i, j: x[i[1]], None),
    "scalar and range": (lambda x, i, j: x[..., i[0], 1:3], None),
    "two scalars": (lambda x, i, j: x[i[2], :, j[1]], None),
    "known rows": (lambda x, i, j: x[jnp.array([0, -2])], ["Gather"]),
    "known pairs": (lambda x, i, j: x[jnp.array([0, -2]), jnp.array([1, 1])], None),
    "strided": (lambda x, i, j: x[::2, ::-1], None),
    "new axis": (lambda x, i, j: x[i, None], None),
    "boolean mask": (lambda x, i, j: x[np.array([True, False, True, True, False])], None),
    "take": (lambda x, i, j: jnp.take(x, i, axis=1), ["Clip", "Equal", "Gather", "Unsqueeze", "Where"]),
    "take clip": (lambda x, i, j: jnp.take(x, i, axis=0, mode="clip"), ["Clip", "Gather"]),
    "take wrap": (lambda x, i, j: jnp.take(x, i, axis=0, mode="wrap"), None),
    "take flat": (lambda x, i, j: jnp.take(x, i), None),
    "take rank 2": (lambda x, i, j: jnp.take(x, i.reshape(3, 1), axis=2), None),
    "take scalar": (lambda x, i, j: jnp.take(x, i[0], axis=1), None),
    "get fill": (lambda x, i, j: x.at[i, j].get(mode="fill", fill_value=-3), None),
    "get clip": (lambda x, i, j: x.at[i, j].get(mode="clip"), None),
    "get window fill": (lambda x, i, j: x.at[i, 2:4].get(mode="fill"), None),
    "vmapped row": (lambda x, i, j: jax.vmap(lambda a, k: a[k])(x[:3], i), None),
    "vmapped rows": (lambda x, i, j: jax.vmap(lambda a, k: a[k])(x[:3], jnp.stack([i, j])[:, :].T), None),
    "vmapped inner": (lambda x, i, j: jax.vmap(lambda a, k: a[k], in_axes=(1, 0))(x[:, :3], i), None),
    "vmapped index only": (lambda x, i, j: jax.vmap(lambda k: x[k, j])(i), None),
    "vmapped twice": (
        lambda x, i, j: jax.vmap(jax.vmap(lambda a, k: a[k]))(x[:3, :3], i[:, None] + j[None]),
        None,
    ),
    "vmapped slice": (
        lambda x, i, j: jax.vmap(lambda a, k: lax.dynamic_slice(a, (k, 1), (2, 3)))(x[:3], i),
        None,
    ),
    "grad of a gather": (lambda x, i, j: jax.grad(lambda a: (a[i] ** 2).sum())(x), None),
}


@pytest.mark.parametrize("name", READS)
def test_read(name):
    fn, ops = READS[name]
    model = check_export(fn, [X, I, J])
    if ops is not None:
        assert op_types(model) == ops


ROWS = np.arange(3 * 6 * 7, dtype=np.float32).reshape(3, 6, 7) - 60

WRITES = {
    "set rows": (lambda x, i, j, u: x.at[i].set(u), None),
    "set rows unchecked": (lambda x, i, j, u: x.at[i].set(u, mode="promise_in_bounds"), ["Unsqueeze", "Cast", "ScatterND"]),
    "add rows": (lambda x, i, j, u: x.at[i].add(u, mode="promise_in_bounds"), None),
    "add rows twice": (lambda x, i, j, u: x.at[jnp.zeros_like(i)].add(u), None),
    "sub": (lambda x, i, j, u: x.at[i].subtract(u), None),
    "mul": (lambda x, i, j, u: x.at[i].multiply(u), None),
    "min": (lambda x, i, j, u: x.at[i].min(u), None),
    "max": (lambda x, i, j, u: x.at[i].max(u), None),
    "divide": (lambda x, i, j, u: x.at[i].divide(u + 100), None),
    "add clipped": (lambda x, i, j, u: x.at[i + 7].add(u, mode="clip"), None),
    "set axis 1": (lambda x, i, j, u: x.at[:, i].set(2.0), None),
    "add axis 1": (lambda x, i, j, u: x.at[:, j].add(x[:, :3]), None),
    "add last axis": (lambda x, i, j, u: x.at[..., j].add(x[..., :3]), None),
    "set last axis": (lambda x, i, j, u: x.at[..., i].set(x[..., 3:6], mode="promise_in_bounds"), None),
    "set pairs": (lambda x, i, j, u: x.at[i, j].set(u[:, 0]), None),
    "add pairs": (lambda x, i, j, u: x.at[i, j].add(u[:, 0]), None),
    "set pairs apart": (lambda x, i, j, u: x.at[i, :, j].set(u[:, :, 0]), None),
    "add outer": (lambda x, i, j, u: x.at[i[:, None], j].add(u[:, :3]), None),
    "set behind an axis": (lambda x, i, j, u: x.at[:, i, j].set(x[:, :3, 0]), None),
    "set scalar": (lambda x, i, j, u: x.at[i[2]].set(u[0]), None),
    "add scalar": (lambda x, i, j, u: x.at[:, i[2]].add(2.0), None),
    "set element": (lambda x, i, j, u: x.at[i[0], j[0], 3].set(-1.0), None),
    "set range": (lambda x, i, j, u: x.at[1:3].set(u[:2]), ["Slice", "ScatterND"]),
    "set inner range": (lambda x, i, j, u: x.at[:, 1:3].set(5.0), None),
    "add inner range": (lambda x, i, j, u: x.at[1:, 2:4, -3:].add(5.0), None),
    "set strided": (lambda x, i, j, u: x.at[:, ::2].set(7.0), None),
    "set all": (lambda x, i, j, u: x.at[:].set(7.0), None),
    "set known": (lambda x, i, j, u: x.at[jnp.array([1, 3, -1])].set(u), ["ScatterND"]),
    "vmapped set": (lambda x, i, j, u: jax.vmap(lambda a, k, v: a.at[k].set(v))(u, i, u[:, 0]), None),
    "vmapped add": (lambda x, i, j, u: jax.vmap(lambda a, k, v: a.at[k].add(v))(u, j, u[:, 0]), None),
    "vmapped update": (
        lambda x, i, j, u: jax.vmap(lambda a, k: lax.dynamic_update_slice(a, a[:2, :3], (k, 1)))(u, j),
        None,
    ),
    "vmapped along another axis": (
        lambda x, i, j, u: jax.vmap(lambda a, k: a.at[k].add(1.0), in_axes=(2, 0), out_axes=1)(x[..., :3], i),
        None,
    ),
    "put along axis": (
        lambda x, i, j, u: jnp.put_along_axis(x, jnp.argmax(x, 1, keepdims=True), 99.0, axis=1, inplace=False),
        None,
    ),
    "grad of take along axis": (
        lambda x, i, j, u: jax.grad(lambda a: (jnp.take_along_axis(a, jnp.argmin(x, 2, keepdims=True), 2) ** 2).sum())(x),
        None,
    ),
    "segment sum": (lambda x, i, j, u: jax.ops.segment_sum(u, i + 1, num_segments=3), None),
    "bincount": (lambda x, i, j, u: jnp.bincount(i + 1, length=6), None),
}


@pytest.mark.parametrize("name", WRITES)
def test_write(name):
    fn, ops = WRITES[name]
    model = check_export(fn, [X, I, J, ROWS])
    if ops is not None:
        assert op_types(model) == ops
