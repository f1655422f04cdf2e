"""Functions called in functions, sharded ones and exported ones among them: numbers against JAX."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from export_check import check_export, rows
from jax import lax

from jax2onnx import to_onnx

F32 = np.float32


@jax.custom_jvp
def with_jvp(x, y):
    return jnp.sin(x) * y


@with_jvp.defjvp
def _(primals, tangents):
    return with_jvp(*primals), tangents[0] * 3 + tangents[1]


@jax.custom_vjp
def with_vjp(x):
    return jnp.sin(x)


with_vjp.defvjp(lambda x: (with_vjp(x), x), lambda x, g: (g * x * 5,))


@jax.custom_jvp
def with_symbolic_zeros(x, y):
    return x * y


@lambda rule: with_symbolic_zeros.defjvp(rule, symbolic_zeros=True)
def _(primals, tangents):
    given = [t for t in tangents if not isinstance(t, jax.custom_derivatives.SymbolicZero)]
    return with_symbolic_zeros(*primals), sum(given) * 2


@jax.custom_batching.custom_vmap
def with_vmap(x):
    return jnp.sin(x)


@with_vmap.def_vmap
def _(size, batched, x):
    return jnp.sin(x) + 0.5, batched[0]


def solve_diagonal(x):
    return lax.custom_linear_solve(lambda y: y * 4, x, lambda matvec, b: b / 4 + 0 * matvec(b), symmetric=True)


def solve_with_constants_and_extra_result(x):
    scale = x * x + 1
    return lax.custom_linear_solve(
        lambda y: scale * y, x, lambda _, b: (b / scale, jnp.sum(b)), lambda _, b: (b / scale, jnp.sum(b)), has_aux=True
    )


def square_root(x):
    start = lax.stop_gradient(x) + 1

    def newton(residual, guess):
        return lax.fori_loop(0, 20, lambda _, y: y - residual(y) / (2 * y), guess)

    return lax.custom_root(lambda y: y * y - x * x - 1, start, newton, lambda linear, y: y / linear(jnp.ones_like(y)))


CALLS = {
    "jit": lambda x: jax.jit(lambda y: jnp.sin(y) + 1)(x),
    "jit in jit": lambda x: jax.jit(lambda y: jax.jit(jnp.sin)(y) + jax.jit(jnp.sin)(y + 1))(x),
    "checkpoint": lambda x: jax.checkpoint(lambda y: jnp.sin(y) * x)(x),
    "gradient of checkpoint": jax.grad(lambda x: jnp.sum(jax.checkpoint(lambda y: jnp.sin(jnp.sin(y)))(x))),
    "custom_jvp": lambda x: with_jvp(x, 2.0),
    "jvp of custom_jvp": lambda x: jax.jvp(with_jvp, (x, x), (x, x)),
    "gradient of custom_jvp": jax.grad(lambda x: jnp.sum(with_jvp(x, x))),
    "custom_vjp": lambda x: with_vjp(x),
    "gradient of custom_vjp": jax.grad(lambda x: jnp.sum(with_vjp(x))),
    "symbolic zeros": lambda x: with_symbolic_zeros(x, 2.0),
    "gradient with symbolic zeros": jax.grad(lambda x: jnp.sum(with_symbolic_zeros(x, 2.0))),
    "custom_vmap": lambda x: with_vmap(x),
    "vmap of custom_vmap": lambda x: jax.vmap(with_vmap)(x),
    "composite": lambda x: lax.composite(lambda y: jnp.sin(y) * 2, "test.twice_sine")(x),
    "linear_call": lambda x: jax.custom_derivatives.linear_call(lambda r, y: y * r, lambda r, y: y * r, x, x + 1),
    "custom_gradient": lambda x: jax.custom_gradient(lambda y: (y * 2, lambda g: g))(x),
    "custom_linear_solve": solve_diagonal,
    "custom_linear_solve with constants": solve_with_constants_and_extra_result,
    "gradient of custom_linear_solve": jax.grad(lambda x: jnp.sum(solve_diagonal(x * x))),
    "custom_root": square_root,
    "relu": lambda x: jax.nn.relu(x),
    "named call": lambda x: jax.named_call(lambda y: jnp.sin(y), name="inner")(x),
    "call inside scan": lambda x: lax.scan(lambda c, a: (with_jvp(c, a), with_vjp(a)), x[0], x),
}


@pytest.mark.parametrize("name", CALLS)
def test_call_is_inlined(name: str) -> None:
    check_export(CALLS[name], [rows(3)])


def one_device_mesh(names: tuple[str, ...]) -> jax.sharding.Mesh:
    return jax.sharding.Mesh(np.array(jax.devices()[:1]).reshape((1,) * len(names)), names)


@pytest.mark.parametrize("checked", [False, True])
def test_shard_map_over_one_device(checked: bool) -> None:
    spec = jax.sharding.PartitionSpec

    def local(x):
        return lax.psum(jnp.sin(x), "d") + lax.pmax(x, ("d", "m")), lax.all_gather(x, "d", tiled=True)

    def fn(x):
        specs = (spec(), spec(("m", "d"))) if not checked else (spec(("m", "d")), spec(("m", "d")))
        mesh = one_device_mesh(("d", "m"))
        return jax.shard_map(local, mesh=mesh, in_specs=spec(("m", "d")), out_specs=specs, check_vma=checked)(x)

    check_export(fn, [rows(4)])


def absent_mesh(sizes: tuple[int, ...], names: tuple[str, ...]) -> jax.sharding.AbstractMesh:
    return jax.sharding.AbstractMesh(sizes, names, axis_types=(jax.sharding.AxisType.Auto,) * len(sizes))


def collectives(a, b):
    ring = [(0, 1), (1, 2), (2, 3), (3, 0)]
    return (
        lax.psum(a @ b, "y"),
        lax.all_gather(a, "x", tiled=True),
        lax.ppermute(b, "y", ring),
        lax.axis_index("y") * jnp.ones((1,)),
        lax.pmax(a, ("x", "y")),
        lax.psum_scatter(a @ b, "y", scatter_dimension=1, tiled=True),
        lax.all_to_all(b, "y", 1, 0, tiled=True),
        lax.ppermute(b, "y", [(0, 1), (1, 2)]),
    )


def whole_arrays(a, b):
    tiles = a.reshape(2, 2, 4, 2)
    return (
        a @ b,
        jnp.tile(a, (2, 1)),
        jnp.roll(b, 2, 0),
        jnp.arange(4.0),
        tiles.max((0, 2)),
        a @ b,
        b,
        jnp.concatenate([jnp.zeros((2, 4)), b[:4], jnp.zeros((2, 4))]),
    )


@pytest.mark.parametrize("checked", [False, True])
def test_shard_map_over_devices_that_are_not_there(checked: bool) -> None:
    spec, mesh = jax.sharding.PartitionSpec, absent_mesh((2, 4), ("x", "y"))
    inputs = (spec("x", "y"), spec("y", None))
    results = (spec("x"), spec("x", "y"), spec("y"), spec("y"), spec(), spec("x", "y"), spec(None, "y"), spec("y"))
    fn = jax.shard_map(collectives, mesh=mesh, in_specs=inputs, out_specs=results, check_vma=checked)
    check_export(lambda a, b: fn(a, b), [rows(4, 8), rows(8, 4)], reference=whole_arrays)


def test_shard_map_with_collectives_in_loops_and_derivatives() -> None:
    spec, mesh = jax.sharding.PartitionSpec, absent_mesh((4,), ("d",))

    def local(x):
        def step(carry, _):
            total, block = carry
            block = lax.ppermute(block, "d", [(i, (i + 1) % 4) for i in range(4)])
            return (total + jnp.sin(block) * lax.psum(jnp.sum(block), "d"), block), None

        return lax.scan(step, (x * 0, x), None, length=3)[0][0]

    def whole(x):
        blocks = x.reshape(4, 2, 3)
        return sum(jnp.sin(jnp.roll(blocks, i, 0)) for i in (1, 2, 3)).reshape(8, 3) * jnp.sum(x)

    fn = jax.shard_map(local, mesh=mesh, in_specs=spec("d"), out_specs=spec("d"))
    check_export(lambda x: fn(x), [rows(8, 3)], reference=whole, rtol=1e-4, atol=1e-5)
    gradient = jax.grad(lambda x: jnp.sum(whole(x)))
    check_export(
        lambda x: jax.grad(lambda x: jnp.sum(fn(x)))(x), [rows(8, 3)], reference=gradient, rtol=1e-4, atol=1e-4
    )


NAMED_AXES = {
    "psum": lambda x: x - lax.pmean(x, "b"),
    "pmax": lambda x: lax.pmax(x, "b"),
    "pmin of integers": lambda x: lax.pmin((x * 9).astype(jnp.int32), "b"),
    "psum of integers": lambda x: lax.psum((x * 9).astype(jnp.int32), "b"),
    "psum of complex numbers": lambda x: jnp.abs(lax.psum(x + 1j * x, "b")),
    "psum of several": lambda x: lax.psum((x, x + 1), "b"),
    "all_gather": lambda x: lax.all_gather(x, "b"),
    "axis_index": lambda x: x + lax.axis_index("b"),
    "ppermute": lambda x: lax.ppermute(x, "b", [(0, 1), (1, 2), (2, 3), (3, 0)]),
}


@pytest.mark.parametrize("name", NAMED_AXES)
def test_collectives_over_an_axis_of_vmap(name: str) -> None:
    check_export(lambda x: jax.vmap(NAMED_AXES[name], axis_name="b")(x), [rows(4, 3)])
    check_export(lambda x: jax.vmap(NAMED_AXES[name], axis_name="b", in_axes=2, out_axes=1)(x), [rows(3, 2, 4)])


def test_an_exported_function_is_the_jaxpr_that_it_was_exported_from() -> None:
    exported = jax.export.export(jax.jit(lambda x, y: (jnp.sin(x) * 2, y)))(jax.ShapeDtypeStruct((3,), F32), 1)
    check_export(lambda x: exported.call(x, 2)[0] + 1, [rows(3)])


def test_an_exported_function_from_a_file_is_refused_with_the_reason() -> None:
    exported = jax.export.export(jax.jit(jnp.sin))(jax.ShapeDtypeStruct((3,), F32))
    read = jax.export.deserialize(exported.serialize())
    with pytest.raises(Exception, match="call_exported: it was read from a file, which holds compiled code"):
        to_onnx(lambda x: read.call(x), [rows(3)])
    symbolic = jax.export.export(jax.jit(jnp.sin))(jax.ShapeDtypeStruct(jax.export.symbolic_shape("n"), F32))
    with pytest.raises(Exception, match="or has symbolic sizes"):
        to_onnx(lambda x: symbolic.call(x), [rows(3)])
