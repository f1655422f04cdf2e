"""Programs that change memory in place: references, kernels over them, variables of types that a library defines."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from export_check import check_export, op_types
from flax import nnx
from jax import lax
from jax.experimental import pallas as pl

from jax2onnx import UnsupportedError, to_onnx

X = np.array([1.5, -2.0, 0.0, 7.25], np.float32)
EDGES = np.array([np.nan, np.inf, -np.inf, -0.0], np.float32)
new_ref = jax.new_ref


@pytest.mark.parametrize("x", [X, EDGES])
def test_reads_and_writes_by_numbers_slices_and_arrays(x):
    def fn(x):
        r = new_ref(x)
        r[0] += 1.0
        r[1:3] = r[2:4]
        r[np.array([0, -1])] *= 2.0
        before = r[...]
        r[::2] = before[1::2]
        return jax.freeze(r), before

    check_export(fn, [x])


@pytest.mark.parametrize("index", [0, 3, -1, -4])
def test_an_index_known_at_run_time(index):
    def fn(x, i):
        r = new_ref(x)
        old = r[i]
        r[i] = 9.0
        return r[...], old

    check_export(fn, [X, np.int32(index)])


@pytest.mark.parametrize("dtype", [np.int32, np.bool_, np.float16, np.complex64])
def test_references_of_any_type(dtype):
    def fn(x):
        r = new_ref(x)
        r[1] = r[0]
        return r[...]

    check_export(fn, [np.array([1, 0, 3], dtype)])


def test_a_size_known_at_run_time():
    def fn(x):
        r = new_ref(x)
        r[:, 0] = jnp.zeros(x.shape[0])
        return r[...] + 1

    rows = np.arange(6, dtype=np.float32).reshape(2, 3)
    check_export(fn, [rows], specs=[("B", 3)], more_args=[[rows[:1]]])


def test_references_in_loops_and_branches():
    def fn(x, flag):
        r = new_ref(x)

        def step(carry, value):
            r[0] += value
            return carry + r[0], r[1]

        carry, seen = lax.scan(step, 0.0, jnp.arange(3.0))
        lax.fori_loop(0, 3, lambda i, none: r.__setitem__(i, r[i] * 2), None)
        count = lax.while_loop(lambda i: i < 2, lambda i: (r.__setitem__(3, i * 1.0), i + 1)[1], 0)
        lax.cond(flag, lambda: r.__setitem__(2, 5.0), lambda: None)
        return r[...], carry, seen, count

    for flag in (True, False):
        check_export(fn, [X, np.bool_(flag)])


def test_a_jitted_function_changes_its_argument():
    @jax.jit
    def add(r, value):
        r[...] += value

    def fn(x):
        r = new_ref(x)
        add(r, 2.0)
        add(r, 3.0)
        return r[...]

    check_export(fn, [X])


def test_transformations_of_functions_with_references():
    def total(x):
        r = new_ref(jnp.zeros(()))
        for i in range(3):
            r[...] += x[i] ** 2
        return r[...]

    check_export(jax.grad(total), [X])
    check_export(jax.vmap(total), [np.stack([X, 2 * X])])


def test_a_reference_from_outside_begins_with_what_it_holds():
    r = new_ref(jnp.arange(4.0))

    def fn(x):
        r[0] += x[0]
        return r[...] + x

    def expected(x):
        return np.array([2 * x[0], 1 + x[1], 2 + x[2], 3 + x[3]], np.float32)

    check_export(fn, [X], reference=expected)
    assert np.array_equal(r[...], np.arange(4.0)), "an export leaves it alone"


def test_every_node_has_the_line_that_changed_the_memory():
    def fn(x):
        r = new_ref(x)
        r[1:3] = jnp.sin(x[:2])  # here
        return r[...]

    model = to_onnx(fn, [X], stacktrace_metadata="full")
    written = [node for node in model.graph.node if node.op_type not in ("Identity",)]
    lines = {entry.value for node in written for entry in node.metadata_props if entry.key == "pkg.jax2onnx.callsite"}
    assert {line.rpartition(":")[2] for line in lines} == {str(fn.__code__.co_firstlineno + 2)}


# Kernels of Pallas


def add_kernel(x_ref, y_ref, o_ref):
    o_ref[...] = x_ref[...] + y_ref[...]


def test_a_kernel_of_a_single_block():
    def fn(x, y):
        return pl.pallas_call(add_kernel, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype), interpret=True)(x, y)

    model = check_export(fn, [X, EDGES])
    assert op_types(model) == ["Add"]


def test_a_kernel_on_a_grid():
    def kernel(x_ref, y_ref, o_ref):
        o_ref[...] = x_ref[...] @ y_ref[...] + pl.program_id(0)

    def fn(x, y):
        return pl.pallas_call(
            kernel,
            grid=(2, 2),
            in_specs=[pl.BlockSpec((4, 8), lambda i, j: (i, 0)), pl.BlockSpec((8, 4), lambda i, j: (0, j))],
            out_specs=pl.BlockSpec((4, 4), lambda i, j: (i, j)),
            out_shape=jax.ShapeDtypeStruct((8, 8), x.dtype),
            interpret=True,
        )(x, y)

    square = np.random.default_rng(0).normal(size=(8, 8)).astype(np.float32)
    check_export(fn, [square, square.T])


def test_a_kernel_that_adds_up_and_blocks_that_do_not_fit():
    def kernel(x_ref, o_ref):
        @pl.when(pl.program_id(0) == 0)
        def _():
            o_ref[...] = jnp.zeros_like(o_ref)

        o_ref[...] += x_ref[...]

    def total(x):
        return pl.pallas_call(
            kernel,
            grid=(3,),
            in_specs=[pl.BlockSpec((4,), lambda i: (i,))],
            out_specs=pl.BlockSpec((4,), lambda i: (0,)),
            out_shape=jax.ShapeDtypeStruct((4,), x.dtype),
            interpret=True,
        )(x)

    def double(x):
        return pl.pallas_call(
            lambda x_ref, o_ref: o_ref.__setitem__(..., x_ref[...] * 2),
            grid=(3,),
            in_specs=[pl.BlockSpec((4,), lambda i: (i,))],
            out_specs=pl.BlockSpec((4,), lambda i: (i,)),
            out_shape=jax.ShapeDtypeStruct((10,), x.dtype),
            interpret=True,
        )(x)

    check_export(total, [np.arange(12, dtype=np.float32)])
    check_export(double, [np.arange(10, dtype=np.float32)])


def test_a_kernel_that_only_its_device_can_run_is_refused():
    from jax.experimental.pallas import tpu

    def kernel(x_ref, o_ref):
        tpu.prng_seed(0)
        o_ref[...] = x_ref[...]

    def fn(x):
        return pl.pallas_call(kernel, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype))(x)

    with pytest.raises(UnsupportedError, match="prng_seed"):
        to_onnx(fn, [X])


# Variables of Flax NNX that are types of their own


class Counted(nnx.Module):
    def __init__(self, rngs):
        self.linear = nnx.Linear(4, 3, rngs=rngs)
        self.norm = nnx.BatchNorm(3, rngs=rngs)
        self.calls = nnx.Variable(jnp.array(0.0))

    def __call__(self, x):
        self.calls[...] += 1.0
        return self.norm(self.linear(x)) * self.calls[...]


@pytest.mark.parametrize("kind", ["hijax", "ref"])
def test_a_model_of_such_variables(kind):
    with nnx.var_defaults(**{kind: True}):
        model = Counted(nnx.Rngs(0))
    plain = Counted(nnx.Rngs(0))
    x = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    for mode in ("train", "eval"):
        getattr(model, mode)()
        getattr(plain, mode)()
        expected = np.asarray(nnx.clone(plain)(x))
        exported = check_export(model, [x], reference=lambda x, expected=expected: expected)
        assert float(model.calls[...]) == 0.0, "an export leaves the model alone"
    names = {tensor.name for tensor in exported.graph.initializer}
    assert any("linear" in name for name in names), names


def test_such_a_variable_in_a_jitted_function():
    variable = nnx.Variable(jnp.ones(()), hijax=True)

    @jax.jit
    def fn(variable, x):
        variable[...] += 1
        return x * variable[...]

    check_export(lambda x: fn(variable, x), [X], reference=lambda x: 2 * x)
