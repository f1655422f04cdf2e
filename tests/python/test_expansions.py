"""Primitives that JAX defines by a function of others are exported by that function."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from export_check import check_export, check_model, op_types
from jax import lax
from jax.experimental import hijax, sparse
from jax.lax import linalg

from jax2onnx import _core, to_onnx
from jax2onnx._door.expansions import defining_function

MATRIX = np.random.default_rng(0).normal(size=(4, 4)).astype(np.float32)


def test_linear_algebra():
    assert not {"qr", "symmetric_product"} & set(_core.plugins())
    check_export(lambda a: linalg.qr(a), [MATRIX], rtol=1e-4)
    check_export(lambda a: linalg.symmetric_product(a, a + a.T, alpha=2.0, beta=0.5, symmetrize_output=True), [MATRIX])


def test_a_ragged_product():
    groups = np.random.default_rng(1).normal(size=(2, 4, 3)).astype(np.float32)
    check_export(lax.ragged_dot, [MATRIX, groups, np.array([3, 1], np.int32)])


def test_the_users_line_is_the_one_that_uses_the_primitive():
    def fn(x):
        return lax.igamma(x, x + 1)  # here

    model = to_onnx(fn, [np.ones(3, np.float32)], stacktrace_metadata="full")
    check_model(model)
    line = fn.__code__.co_firstlineno + 1
    for node in model.graph.node:
        found = {entry.key: entry.value for entry in node.metadata_props}
        assert found["pkg.jax2onnx.callsite"].endswith(f":{line}")
        assert "jax2onnx/_door/expansions.py" not in found["pkg.jax2onnx.jax_traceback"]


def test_a_primitive_of_the_users_own_may_be_defined_by_a_function():
    from jax.extend.core import Primitive
    from jax.interpreters import mlir

    primitive = Primitive("cube_of_the_test")
    primitive.def_abstract_eval(lambda x, *, factor: x)
    mlir.register_lowering(primitive, mlir.lower_fun(lambda x, *, factor: x * x * x * factor, multiple_results=False))
    primitive.def_impl(lambda x, *, factor: x * x * x * factor)
    assert defining_function(primitive) is not None
    check_export(lambda x: jax.jit(lambda x: primitive.bind(x, factor=2.0))(x), [np.array([1.0, -2.0], np.float32)])


@pytest.mark.skipif(not hasattr(hijax, "HiPrim"), reason="this JAX has no primitives that are objects")
def test_a_primitive_that_is_an_object_says_what_it_is_made_of():
    class Scaled(hijax.HiPrim):
        def __init__(self, aval, *, factor):
            self.in_avals, self.out_aval, self.params = (aval,), aval, {"factor": factor}
            super().__init__()

        def expand(self, x):
            return jnp.sin(x) * self.factor

    model = check_export(lambda x: Scaled(jax.typeof(x), factor=3.0)(x + 1), [MATRIX])
    assert op_types(model) == ["Add", "Sin", "Mul"]


def test_sparse_arrays():
    dense = np.maximum(MATRIX, 0)
    closed_over = sparse.BCOO.fromdense(dense)
    check_export(lambda a: sparse.BCOO.fromdense(a, nse=12) @ a, [dense])
    check_export(lambda a: sparse.BCOO.fromdense(a, nse=12).sum_duplicates(nse=12).todense(), [dense])
    check_export(lambda a: sparse.BCSR.fromdense(a, nse=12) @ a, [dense])
    check_export(lambda x: closed_over @ x, [MATRIX])


def test_a_function_that_equinox_calls_back_is_in_line():
    import equinox as eqx

    square = eqx.internal.noinline(lambda x: jnp.sin(x) ** 2)
    check_export(lambda x: (square(x), jax.vmap(square)(x), jax.grad(lambda x: jnp.sum(square(x)))(x)), [MATRIX])
    check_export(lambda x: lax.scan(lambda c, _: (square(c), c), x, None, length=3), [MATRIX])
