"""reduce with several operands and any computation."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from export_check import all_nodes, check_export, metadata, op_types
from jax import lax

NUMBERS = np.random.default_rng(0).normal(size=(3, 4, 2)).astype(np.float32)
PLACES = np.arange(24, dtype=np.int32).reshape(3, 4, 2)
COMPLEX = (NUMBERS + 1j * NUMBERS[::-1]).astype(np.complex64)


def larger_with_place(a, b):
    keep = a[0] >= b[0]
    return jnp.where(keep, a[0], b[0]), jnp.where(keep, a[1], b[1])


@pytest.mark.parametrize("axes", [(1,), (0, 2), (0, 1, 2), (2, 0)])
def test_two_operands(axes):
    start = (np.float32(-np.inf), np.int32(-1))
    check_export(lambda x, i: lax.reduce((x, i), start, larger_with_place, axes), [NUMBERS, PLACES])


def test_any_computation():
    check_export(lambda x: lax.reduce(x, np.float32(0), lambda a, b: jnp.hypot(a, b) + jnp.sin(a), (0, 1)), [NUMBERS])


def test_a_start_that_is_an_input():
    check_export(lambda x, start: lax.reduce(x, start, lambda a, b: a * 2 + b, (1,)), [PLACES, np.int32(5)])


@pytest.mark.parametrize("dtype", ["int8", "uint32", "float16", "bool"])
def test_types(dtype):
    x = np.asarray(jnp.asarray(PLACES % 3, dtype))
    body = (lambda a, b: a & ~b) if dtype == "bool" else (lambda a, b: jnp.maximum(a, b) + b)
    check_export(lambda x: lax.reduce(x, jnp.zeros((), x.dtype), body, (2,)), [x])


def test_nothing_to_reduce():
    empty = np.zeros((2, 0, 3), np.float32)
    check_export(lambda x: lax.reduce(x, np.float32(7), lambda a, b: a * b + a, (1,)), [empty])
    check_export(lambda x: lax.reduce(x, np.float32(7), lambda a, b: a * b + a, (0,)), [empty])


def test_a_symbolic_batch():
    def fn(x):
        return [lax.reduce(x, np.float32(1), lambda a, b: a * (b * 1), (axis,)) for axis in (0, 1)]

    check_export(fn, [NUMBERS], specs=[("B", 4, 2)], more_args=[[NUMBERS[:1]]])


@pytest.mark.parametrize("axes", [(0,), (1, 2), (2, 0), (0, 1, 2)])
def test_elements_are_folded_in_order(axes):
    """JAX asks for an associative computation; the order of others is XLA's on the CPU, and so are ties."""
    check_export(lambda x: lax.reduce(x, np.int32(1), lambda a, b: a * 2 - b, axes), [PLACES])
    start = (np.float32(-9), np.int32(-1))
    check_export(lambda x, i: lax.reduce((x, i), start, larger_with_place, axes), [np.round(NUMBERS), PLACES])


def test_nan_decides_as_in_jax():
    x = NUMBERS.copy()
    x[0, 1], x[1, 2, 0], x[2] = np.nan, np.inf, -np.inf
    start = (np.float32(-np.inf), np.int32(-1))
    check_export(lambda x, i: lax.reduce((x, i), start, larger_with_place, (1,)), [x, PLACES])
    for combine in (lax.add, lax.mul, lax.max, lax.min):
        check_export(lambda x, combine=combine: lax.reduce(x, np.float32(0.5), combine, (1,)), [x])


@pytest.mark.parametrize(
    ("body", "start", "operator"),
    [
        (lambda a, b: a + b, 0, "ReduceSum"),
        (lambda a, b: jnp.multiply(b, a), 3, "ReduceProd"),
        (lambda a, b: jnp.maximum(a, b), 0.25, "ReduceMax"),
        (lambda a, b: jax.jit(jnp.minimum)(b, a), np.inf, "ReduceMin"),
    ],
)
def test_known_reductions_are_operators(body, start, operator):
    model = check_export(lambda x: lax.reduce(x, np.float32(start), body, (0, 2)), [NUMBERS])
    assert operator in op_types(model)
    assert "Scan" not in op_types(model)


def test_known_reductions_side_by_side():
    def fn(x, i):
        start = (np.float32(0), np.int32(7))
        return lax.reduce((x, i), start, lambda a, b: (b[0] + a[0], jnp.maximum(a[1], b[1])), (1,))

    assert "Scan" not in op_types(check_export(fn, [NUMBERS, PLACES]))


def test_operands_that_cross_are_folded_together():
    def fn(x, y):
        return lax.reduce((x, y), (np.float32(1), np.float32(2)), lambda a, b: (a[0] + b[1], a[1] + b[0]), (1,))

    check_export(fn, [NUMBERS, NUMBERS + 1])


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint32"])
@pytest.mark.parametrize("body", [lambda a, b: a & b, lambda a, b: b | a, lambda a, b: a ^ b])
def test_bits(dtype, body):
    x = np.asarray(jnp.asarray(PLACES % 7 - 2, dtype))
    model = check_export(lambda x: lax.reduce(x, jnp.ones((), x.dtype), body, (0, 2)), [x])
    assert "Scan" not in op_types(model)


@pytest.mark.parametrize("body", [lambda a, b: a + b, lambda a, b: a * b + a, lambda a, b: a * 0.5 - jnp.conj(b)])
@pytest.mark.parametrize("axes", [(1,), (2, 0), (0, 1, 2)])
def test_complex_numbers(body, axes):
    check_export(lambda z: lax.reduce(z, np.complex64(2 + 1j), body, axes), [COMPLEX])


def test_complex_and_real_numbers_together():
    def body(a, b):
        larger = jnp.abs(a[0]) >= jnp.abs(b[0])
        return jnp.where(larger, a[0], b[0]), a[1] + b[1] * jnp.real(b[0])

    check_export(lambda z, x: lax.reduce((z, x), (np.complex64(0), np.float32(1)), body, (1,)), [COMPLEX, NUMBERS])


def test_a_computation_that_branches():
    def body(a, b):
        return lax.cond(a > b, lambda: a, lambda: b * 0.5)

    for axes in ((0,), (1, 2), (0, 1, 2)):
        check_export(lambda x, axes=axes: lax.reduce(x, np.float32(0), body, axes), [NUMBERS])


def test_a_computation_on_arrays():
    def body(a, b):
        return jnp.sum(jnp.stack([a, b * 0.5]))

    check_export(lambda x: lax.reduce(x, np.float32(0), body, (1,)), [NUMBERS])
    check_export(lambda z: lax.reduce(z, np.complex64(0), body, (1,)), [COMPLEX])


@pytest.mark.parametrize("body", [lambda a, b: jnp.float32(3), lambda a, b: a, lambda a, b: b])
def test_a_computation_that_ignores_operands(body):
    check_export(lambda x: lax.reduce(x, np.float32(0), body, (1,)), [NUMBERS])


@pytest.mark.parametrize("shape", [(0, 3), (1, 3), (1, 1)])
@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1)])
def test_empty_and_single_axes(shape, axes):
    x = np.full(shape, 2, np.float32)
    for body in (lambda a, b: a * 0.5 - b, lambda a, b: a + b, lambda a, b: lax.cond(a > b, lambda: a, lambda: b)):
        check_export(lambda x, body=body: lax.reduce(x, np.float32(3), body, axes), [x])


def test_transformed():
    def norm(x):
        return lax.reduce(x, np.float32(0), jnp.logaddexp, (0,))

    check_export(jax.vmap(jax.vmap(norm)), [NUMBERS])
    check_export(jax.jit(jax.vmap(norm, in_axes=1)), [NUMBERS])
    check_export(
        lambda x: lax.scan(lambda s, y: (lax.reduce(y, s, lambda a, b: a * 0.5 - b, (0, 1)), s), 0.0, x), [NUMBERS]
    )
    total = jax.grad(lambda x: lax.reduce(x, np.float32(0), lambda a, b: a + b, (0, 1, 2)) ** 2)
    check_export(total, [NUMBERS])


def test_nodes_of_the_body_carry_its_lines():
    def body(a, b):
        scaled = b * 3
        return jnp.sin(a) + scaled

    model = check_export(lambda x: lax.reduce(x, np.float32(0), body, (1,)), [NUMBERS])
    lines = {node.op_type: metadata(node)["pkg.jax2onnx.callsite"] for node in all_nodes(model)}
    first = body.__code__.co_firstlineno
    assert lines["Sin"].endswith(f":{first + 2}")
    assert lines["Mul"].endswith(f":{first + 1}")


def test_an_element_for_each_step_of_a_symbolic_size():
    def fn(x):
        return lax.reduce(x, np.float32(1), lambda a, b: lax.cond(a > b, lambda: a, lambda: b * 0.5), (1,))

    check_export(fn, [NUMBERS], specs=[("B", "N", 2)], more_args=[[NUMBERS[:1, :2]], [NUMBERS[:2, :3]]])
