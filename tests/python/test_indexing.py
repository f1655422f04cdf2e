"""Indexing: gather, scatter and dynamic slices against JAX, and the operators they become."""

import jax
import jax.numpy as jnp
import numpy as np
import onnxruntime
import pytest
from export_check import check_export, check_model, op_types
from jax import lax

from jax2onnx import to_onnx

X = np.arange(5 * 6 * 7, dtype=np.float32).reshape(5, 6, 7)
FIRST = np.array([0, 3, -1], np.int32)
SECOND = np.array([4, -6, 2], np.int32)
WILD = np.array([-9, -6, -5, 4, 5, 100], np.int32)  # on both sides of the bounds of five
SMALL = X[:, :2, 0] - 50


READS = {
    "rows": (lambda x, i, j: x[i], ["Clip", "Gather"]),
    "axis 1": (lambda x, i, j: x[:, i], ["Clip", "Gather"]),
    "last axis": (lambda x, i, j: x[..., i], ["Clip", "Gather"]),
    "index array of rank 2": (lambda x, i, j: x[i[:, None] + jnp.zeros(2, jnp.int32)], None),
    "pairs": (lambda x, i, j: x[i, j], None),
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
    model = check_export(fn, [X, FIRST, SECOND])
    if ops is not None:
        assert op_types(model) == ops


ROWS = np.arange(3 * 6 * 7, dtype=np.float32).reshape(3, 6, 7) - 60

WRITES = {
    "set rows": (lambda x, i, j, u: x.at[i].set(u), None),
    "set rows unchecked": (
        lambda x, i, j, u: x.at[i].set(u, mode="promise_in_bounds"),
        ["Unsqueeze", "Cast", "ScatterND"],
    ),
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
    "set every second": (lambda x, i, j, u: x.at[..., ::2].set(-x[..., :4]), ["Slice", "Neg", "Concat", "Gather"]),
    "set every second backwards": (lambda x, i, j, u: x.at[:, ::-2].set(-x[:, :3]), None),
    "set known, from the end": (lambda x, i, j, u: x.at[:, jnp.array([-1, 0, 3, -2])].set(-x[:, :4]), None),
    "set known, one twice": (lambda x, i, j, u: x.at[:, jnp.array([1, 0, 3, 0])].set(2.0), None),
    "set known, one out of bounds": (lambda x, i, j, u: x.at[:, jnp.array([1, 6, 3, 0])].set(-x[:, :4]), None),
    "set known rows": (lambda x, i, j, u: x.at[::2].set(-x[:3]), None),
    "set the first half": (lambda x, i, j, u: x.at[:, :3].set(-x[:, 3:]), None),
    "set the last part": (lambda x, i, j, u: x.at[..., 2:].set(-x[..., :5]), None),
    "set the middle": (lambda x, i, j, u: x.at[:, 1:5].set(-x[:, :4]), None),
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
        lambda x, i, j, u: jax.grad(lambda a: (jnp.take_along_axis(a, jnp.argmin(x, 2, keepdims=True), 2) ** 2).sum())(
            x
        ),
        None,
    ),
    "segment sum": (lambda x, i, j, u: jax.ops.segment_sum(u, i + 1, num_segments=3), None),
    "bincount": (lambda x, i, j, u: jnp.bincount(i + 1, length=6), None),
}


@pytest.mark.parametrize("name", WRITES)
def test_write(name):
    fn, ops = WRITES[name]
    model = check_export(fn, [X, FIRST, SECOND, ROWS])
    if ops is not None:
        assert op_types(model) == ops


OUT_OF_RANGE = {
    "take": lambda x, i: jnp.take(x, i, axis=0),
    "take clip": lambda x, i: jnp.take(x, i, axis=0, mode="clip"),
    "take wrap": lambda x, i: jnp.take(x, i, axis=0, mode="wrap"),
    "get fill": lambda x, i: x.at[i].get(mode="fill", fill_value=7),
    "get fill pairs": lambda x, i: x.at[i, i].get(mode="fill", fill_value=7),
    "get clip pairs": lambda x, i: x.at[i, i].get(mode="clip"),
    "along": lambda x, i: jnp.take_along_axis(x, jnp.stack([i[:5], i[1:]]), axis=1) if x.shape[0] == 2 else x,
    "along 0": lambda x, i: jnp.take_along_axis(x, jnp.stack([i, i], 1), axis=0),
    "scalar": lambda x, i: tuple(x[i[k]] for k in range(6)),
    "known": lambda x, i: jnp.take(x, jnp.array([1, 9, -9]), axis=0),
    "known clip": lambda x, i: x.at[jnp.array([1, 9, -9])].get(mode="clip"),
    "set": lambda x, i: x.at[i].set(jnp.arange(12.0).reshape(6, 2)),
    "set clip": lambda x, i: x.at[i[:3]].set(jnp.arange(6.0).reshape(3, 2), mode="clip"),
    "set none": lambda x, i: x.at[i[-2:]].set(3.0),
    "set axis 1": lambda x, i: x.at[:, i].set(3.0),
    "set pairs": lambda x, i: x.at[i, jnp.zeros_like(i)].set(jnp.arange(6.0)),
    "set one": lambda x, i: x.at[i[0]].set(3.0),
    "add one": lambda x, i: x.at[:, i[5]].add(3.0) + x.at[:, i[3] - 3].add(3.0),
    "set known": lambda x, i: x.at[jnp.array([1, 9, -9])].set(8.0),
    "add": lambda x, i: x.at[i].add(jnp.arange(12.0).reshape(6, 2)),
    "add clip": lambda x, i: x.at[i].add(jnp.arange(12.0).reshape(6, 2), mode="clip"),
    "add axis 1": lambda x, i: x.at[:, i].add(3.0),
    "sub": lambda x, i: x.at[i].subtract(jnp.arange(12.0).reshape(6, 2)),
    "mul": lambda x, i: x.at[i].multiply(jnp.arange(12.0).reshape(6, 2)),
    "min": lambda x, i: x.at[i].min(jnp.arange(12.0).reshape(6, 2) - 70),
    "max": lambda x, i: x.at[i].max(jnp.arange(12.0).reshape(6, 2)),
    "slice": lambda x, i: tuple(lax.dynamic_slice(x, (i[k], i[5 - k]), (3, 1)) for k in range(6)),
    "slice of windows": lambda x, i: tuple(lax.dynamic_slice(x, (i[k], 0), (4, 2)) for k in range(6)),
    "update": lambda x, i: tuple(lax.dynamic_update_slice(x, x[:3, :1] + 1, (i[k], i[5 - k])) for k in range(6)),
    "update rows": lambda x, i: tuple(lax.dynamic_update_slice(x, x[:3] + 1, (i[k], 0)) for k in range(6)),
    "vmapped slice": lambda x, i: jax.vmap(lambda k: lax.dynamic_slice(x, (k, 1), (2, 1)))(i),
    "vmapped update": lambda x, i: jax.vmap(lambda k: lax.dynamic_update_slice(x, x[:2], (k, 0)))(i),
    "raw unsigned": lambda x, i: jnp.take(x, i.astype(jnp.uint32), axis=0),
    "raw int8": lambda x, i: jnp.take(x, i.astype(jnp.int8), axis=0),
}


@pytest.mark.parametrize("name", OUT_OF_RANGE)
def test_out_of_range(name):
    check_export(OUT_OF_RANGE[name], [SMALL, WILD])


DTYPES = ["bool", "int8", "int16", "int32", "uint8", "uint16", "uint32", "float16", "bfloat16", "float32"]
WIDE = ["int64", "uint64", "float64"]


@pytest.mark.parametrize("dtype", DTYPES + WIDE)
def test_element_types(dtype):
    x = (np.arange(15).reshape(5, 3) % (2 if dtype == "bool" else 100)).astype(jnp.dtype(dtype))

    def read(x, i):
        k = i[1]
        return (
            jnp.take(x, i, axis=0),
            x.at[i, i - 3].get(mode="fill"),
            jnp.take_along_axis(x, i[:5, None], 1),
            x[:, k],
            x[k, 1:],
        )

    def write(x, i):
        k = i[3]
        return x.at[i].set(x[0]), x.at[:, i].set(x[0, 0]), lax.dynamic_update_slice(x, x[:2, :2], (k, k))

    def combine(x, i):
        u = x[:, 0]
        return [getattr(x.at[:, i[1:4]], how)(u[:, None]) for how in ("add", "subtract", "multiply", "min", "max")] + [
            x.at[i[:5]].add(x),
            x.at[i[:5]].max(x[::-1]),
        ]

    i = np.array([-9, -5, 0, 2, 4, 7], np.int32)
    check_export(read, [x, i], x64=dtype in WIDE)
    check_export(write, [x, i], x64=dtype in WIDE)
    if dtype != "bool":
        check_export(combine, [x, i], x64=dtype in WIDE)


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"])
def test_index_types(dtype):
    def fn(x, i):
        return (
            x[i],
            jnp.take(x, i, axis=1),
            x.at[i].add(1.0),
            x.at[i, i].set(2.0),
            lax.dynamic_slice(x, (i[0], i[1]), (2, 1)),
        )

    check_export(fn, [X[..., 0], np.array([0, 4, 3], dtype)], x64=dtype.endswith("64"))


def dimension_numbers(offset, collapsed, mapped, batching=(), indices_batching=()):
    return lax.GatherDimensionNumbers(offset, collapsed, mapped, batching, indices_batching)


GATHERS = {
    "windows in two dimensions": (dimension_numbers((1, 2, 3), (), (0, 1)), (2, 3, 7), (4, 2)),
    "windows first": (dimension_numbers((0, 1, 2), (), (0, 2)), (2, 6, 3), (4, 2)),
    "order of columns": (dimension_numbers((1,), (0, 1), (1, 0)), (1, 1, 7), (4, 2)),
    "kept ones": (dimension_numbers((0, 2, 3), (), (1,)), (5, 1, 4), (4, 1)),
    "no column": (dimension_numbers((1, 2), (0,), ()), (1, 2, 3), (4, 0)),
    "batch of rank 2": (dimension_numbers((1, 3), (2,), (2, 0)), (3, 6, 1), (2, 3, 2)),
    "batched": (dimension_numbers((1, 2), (), (1,), (0,), (0,)), (1, 2, 7), (5, 1)),
    "batched crosswise": (dimension_numbers((2,), (1,), (1,), (2,), (1,)), (4, 1, 1), (3, 7, 1)),
    "batched with windows": (dimension_numbers((0, 2), (), (1, 2), (0,), (1,)), (1, 2, 3), (2, 5, 2)),
    "single": (dimension_numbers((0, 1, 2), (), (0, 1, 2)), (2, 1, 3), (3,)),
}


@pytest.mark.parametrize("mode", ["clip", "fill", "promise_in_bounds"])
@pytest.mark.parametrize("name", GATHERS)
def test_gather_dimension_numbers(name, mode):
    numbers, sizes, shape = GATHERS[name]
    high = 3 if mode == "promise_in_bounds" else 9
    i = np.random.default_rng(0).integers(0 if high == 3 else -3, high, shape).astype(np.int32)

    def fn(x, i):
        return lax.gather(x, i, numbers, sizes, mode=mode)

    check_export(fn, [X, i])


SCATTERS = {  # the transposes of the gathers above
    name: (
        lax.ScatterDimensionNumbers(
            numbers.offset_dims,
            numbers.collapsed_slice_dims,
            numbers.start_index_map,
            numbers.operand_batching_dims,
            numbers.start_indices_batching_dims,
        ),
        numbers,
        sizes,
        shape,
    )
    for name, (numbers, sizes, shape) in GATHERS.items()
}


@pytest.mark.parametrize("mode", ["clip", "drop"])
@pytest.mark.parametrize("name", SCATTERS)
def test_scatter_dimension_numbers(name, mode):
    numbers, gather, sizes, shape = SCATTERS[name]
    i = np.random.default_rng(0).integers(-3, 9, shape).astype(np.int32)
    u = np.asarray(lax.gather(X, i, gather, sizes, mode="clip")) * 0 + 1
    u = (np.arange(u.size).reshape(u.shape) % 50).astype(np.float32)

    def fn(x, i, u):
        return lax.scatter_add(x, i, u, numbers, mode=mode), lax.scatter_max(x, i, u, numbers, mode=mode)

    check_export(fn, [X, i, u])


def test_scatter_set_of_windows():
    numbers = lax.ScatterDimensionNumbers((1, 2), (1,), (0, 1, 2))
    i = np.array([[0, 1, 2], [3, 2, 1], [4, 0, 0], [1, 5, 4]], np.int32)
    u = -np.arange(4 * 2 * 3, dtype=np.float32).reshape(4, 2, 3)

    def fn(x, i, u):
        return [lax.scatter(x, i, u, numbers, mode=mode) for mode in ("clip", "drop")]

    check_export(fn, [X, i, u])


def test_dimension_numbers_that_are_ranges():
    numbers = lax.ScatterDimensionNumbers(range(1, 3), range(1, 2), range(3))
    u = -np.arange(2 * 3, dtype=np.float32).reshape(1, 2, 3)
    check_export(lambda x, i, u: lax.scatter(x, i, u, numbers), [X, np.array([[3, 2, 1]], np.int32), u])


SYMBOLIC = {
    "rows": lambda x, i: x[i],
    "last row": lambda x, i: x[-1],
    "take batch": lambda x, i: jnp.take(x, i, axis=0),
    "take": lambda x, i: jnp.take(x, i, axis=1),
    "along": lambda x, i: jnp.take_along_axis(x, i[:, None, None] + jnp.zeros((1, 1, 4), jnp.int32), axis=1),
    "along broadcast": lambda x, i: jnp.take_along_axis(x, i[:, None, None], axis=1),
    "vmapped": lambda x, i: jax.vmap(lambda a, k: a[k])(x, i),
    "vmapped fill": lambda x, i: jax.vmap(lambda a, k: a.at[k, k].get(mode="fill"))(x, i),
    "vmapped slice": lambda x, i: jax.vmap(lambda a, k: lax.dynamic_slice(a, (k, 0), (2, 3)))(x, i),
    "slice": lambda x, i: lax.dynamic_slice(x, (0, i[0], i[0]), (x.shape[0], 2, 1)),
    "slice in batch": lambda x, i: lax.dynamic_slice_in_dim(x, i[0], 1, 0),
    "row": lambda x, i: x[:, i[0]],
    "update": lambda x, i: lax.dynamic_update_slice(x, x[:, :2] + 1, (0, i[0], 0)),
    "update windows": lambda x, i: lax.dynamic_update_slice(x, x[:, :2, :3] + 1, (0, i[0], i[0])),
    "update one": lambda x, i: lax.dynamic_update_slice(x, x[:, :1] + 1, (0, i[0], 0)),
    "set row": lambda x, i: x.at[:, i[0]].set(1.0),
    "set last": lambda x, i: x.at[-1].set(1.0),
    "set range": lambda x, i: x.at[:, 1:3].set(1.0),
    "set rows": lambda x, i: x.at[i].set(1.0),
    "add rows": lambda x, i: x.at[i].add(1.0),
    "add inner": lambda x, i: x.at[:, i].add(1.0),
    "add pairs": lambda x, i: x.at[i, i].add(x[:, 0]),
    "set diagonal": lambda x, i: x.at[jnp.arange(x.shape[0]), i].set(9.0),
    "vmapped add": lambda x, i: jax.vmap(lambda a, k: a.at[k].add(1.0))(x, i),
    "vmapped set": lambda x, i: jax.vmap(lambda a, k: a.at[k].set(1.0))(x, i),
    "vmapped update": lambda x, i: jax.vmap(lambda a, k: lax.dynamic_update_slice(a, a[:2] + 1, (k, 0)))(x, i),
}


@pytest.mark.parametrize("name", SYMBOLIC)
def test_symbolic_batch(name):
    def arguments(batch):
        x = np.arange(batch * 20, dtype=np.float32).reshape(batch, 5, 4)
        return [x, (np.arange(batch) % 4 - (batch > 2)).astype(np.int32)]

    specs = [("B", 5, 4), jax.ShapeDtypeStruct(("B",), jnp.int32)]
    check_export(SYMBOLIC[name], arguments(2), specs=specs, more_args=[arguments(1), arguments(7)])


def test_empty():
    def fn(x, i, e):
        return x[i], x.at[i].set(1.0), jnp.take(x, i, axis=1), x[:, 2:2], x.at[2:2].add(1.0), jnp.take(e, i, axis=0)

    check_export(fn, [X[..., 0], np.zeros(0, np.int32), np.zeros((0, 3), np.float32)])


def test_many_duplicates_lose_no_update():
    """Large enough for the runtime to divide the work among threads."""
    i = np.zeros(200_000, np.int32)

    def fn(x, i):
        return x.at[i].add(1), x[:, None].at[i, i].add(1)

    check_export(fn, [np.zeros(4, np.int32), i])


@pytest.mark.parametrize("how", ["min", "max", "add", "multiply"])
def test_nan_and_infinity_in_combinations(how):
    def fn(x, i, u):
        return getattr(x.at[i], how)(u), getattr(x.at[i[0]], how)(u[1])

    x = np.array([1, np.nan, 3, -np.inf, 5], np.float32)
    u = np.array([np.nan, 2, 7, np.inf, -1, np.nan], np.float32)
    check_export(fn, [x, np.array([0, 0, 1, 3, 2, 9], np.int32), u])


def test_large_windows_are_spliced():
    def fn(x, i):
        return lax.dynamic_update_slice(x, x[:80, :80] * 2, (i, i)), x.at[:, 3:90].add(1.0)

    x = np.arange(10_000, dtype=np.float32).reshape(100, 100)
    check_export(fn, [x, np.int32(7)])


@pytest.mark.parametrize(
    "choose",
    [
        lambda x, i: x.at[i[0]],
        lambda x, i: x.at[i[0], 1],
        lambda x, i: x.at[i],
        lambda x, i: x.at[i, i],
        lambda x, i: x.at[:, 1:3],
        lambda x, i: x.at[..., i],
    ],
)
def test_a_function_is_applied_as_often_as_an_element_is_chosen(choose):
    def fn(x, i):
        return choose(x, i).apply(lambda v: v * 2 + 1), choose(x, i).apply(jnp.sin, mode="clip")

    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    for indices in ([2, 0], [1, 1, -1, 1], [7, 2, -9]):
        check_export(fn, [x, np.array(indices, np.int32)])


def test_a_function_is_applied_along_a_batch_and_for_a_size_known_at_run_time():
    def fn(x, i):
        return jax.vmap(lambda row, at: row.at[at].apply(jnp.square))(x, i)

    rows = [np.arange(3 * size, dtype=np.float32).reshape(size, 3) for size in (4, 1)]
    index = np.array([0, 0], np.int32)
    check_export(fn, [rows[0], np.arange(8, dtype=np.int32).reshape(4, 2) // 2])
    specs = [("B", 3), jax.ShapeDtypeStruct((2,), np.int32)]
    applied = lambda x, i: x.at[i].apply(jnp.square)  # noqa: E731
    check_export(applied, [rows[0], index], specs=specs, more_args=[[rows[1], index]])


def test_a_function_that_is_not_elementwise_is_applied_to_one_element_after_the_other():
    def fn(x, i):
        return x.at[i].apply(lambda v: jnp.sort(jnp.stack([v, 9 - v]))[0])

    model = to_onnx(fn, [X, FIRST], stacktrace_metadata="full")
    check_model(model)
    want = X.copy()  # XLA crashes when it compiles this for the CPU
    want[FIRST] = np.minimum(X[FIRST], 9 - X[FIRST])
    (got,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"in_0": X, "in_1": FIRST})
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("opset", [17, 18, 21])
def test_opsets(opset):
    def fn(x, i):
        return jnp.take(x, i, axis=1), x.at[i].add(1.0), x.at[i].set(1.0), lax.dynamic_slice(x, (i[0], 0, 0), (2, 2, 2))

    check_export(fn, [X, FIRST], opset=opset)


def test_combining_by_max_needs_opset_18():
    with pytest.raises(Exception, match="opset 18"):
        check_export(lambda x, i: x.at[i].max(1.0), [X, FIRST], opset=17)


RECOGNISED = {
    "embedding": (lambda x, i, k: x.at[i].get(mode="promise_in_bounds"), "Gather"),
    "take along axis": (
        lambda x, i, k: jnp.take_along_axis(
            x, i[:, None, None] + jnp.zeros((1, 6, 7), jnp.int32), axis=0, mode="promise_in_bounds"
        ),
        "GatherElements",
    ),
    "pairs": (lambda x, i, k: x[i, i], "GatherND"),
    "slice": (lambda x, i, k: lax.dynamic_slice(x, (0, k, 0), (5, 2, 7)), "Slice"),
    "position": (lambda x, i, k: x[k], "Gather"),
    "cache": (lambda x, i, k: lax.dynamic_update_slice(x, x[:, :1], (0, k, 0)), "ScatterND"),
    "rows": (lambda x, i, k: x.at[i].add(1.0, mode="promise_in_bounds"), "ScatterND"),
    "last axis": (lambda x, i, k: x.at[..., i].set(1.0, mode="promise_in_bounds"), "ScatterElements"),
}


@pytest.mark.parametrize("name", RECOGNISED)
def test_recognised(name):
    """Each is one such operator, and nothing transposes besides."""
    fn, op = RECOGNISED[name]
    found = op_types(check_export(fn, [X, np.array([1, 0, 3], np.int32), np.int32(2)]))
    assert found.count(op) == 1
    assert not {"Transpose", "Compress"} & set(found)


@pytest.mark.parametrize("fn", [lambda x, i: x[i], lambda x, i: x[:, i], lambda x, i: x[i, i], lambda x, i: x[i[0]]])
def test_plain_indices_out_of_range_are_clamped(fn):
    check_export(fn, [X, WILD])
