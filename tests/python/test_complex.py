"""Complex numbers: real tensors with a last axis of 2 in the model, JAX's own results out of it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import pytest
from export_check import check_export, op_types
from jax import lax

from jax2onnx import UnsupportedError, allclose, onnx_function, plugin, to_onnx
from jax2onnx.__main__ import FAILED, OK, main
from jax2onnx._compare.verifier import Verifier
from jax2onnx._door import plugins

INF, NAN = np.inf, np.nan
rng = np.random.default_rng(0)


def numbers(*shape, dtype=np.complex64, scale=1.0):
    return ((rng.standard_normal(shape) + 1j * rng.standard_normal(shape)) * scale).astype(dtype)


A, B = numbers(3, 4), numbers(3, 4)
# Every pairing of small, large and opposite parts; far from where one unit in the last place decides.
SPREAD = np.concatenate([numbers(40, scale=scale) for scale in (1e-3, 0.3, 1, 8)])

UNARY = {
    "abs": lax.abs,
    "acos": lax.acos,
    "acosh": lax.acosh,
    "asin": lax.asin,
    "asinh": lax.asinh,
    "atan": lax.atan,
    "atanh": lax.atanh,
    "conj": lax.conj,
    "cos": lax.cos,
    "cosh": lax.cosh,
    "exp": lax.exp,
    "exp2": lax.exp2,
    "expm1": lax.expm1,
    "imag": lax.imag,
    "log": lax.log,
    "log1p": lax.log1p,
    "logistic": lax.logistic,
    "neg": lax.neg,
    "real": lax.real,
    "rsqrt": lax.rsqrt,
    "sign": lax.sign,
    "sin": lax.sin,
    "sinh": lax.sinh,
    "sqrt": lax.sqrt,
    "square": lax.square,
    "tan": lax.tan,
    "tanh": lax.tanh,
}


def apply_all(z):
    return [function(z) for function in UNARY.values()]


@pytest.mark.parametrize("name", UNARY)
def test_function(name):
    check_export(UNARY[name], [SPREAD])


def test_functions_in_double_precision():
    check_export(apply_all, [SPREAD.astype(np.complex128)], x64=True, rtol=1e-8, atol=1e-9)


def test_functions_at_the_oldest_opset():
    check_export(apply_all, [SPREAD[::8]], opset=17)


def pairs_of(parts):
    return np.array([complex(re, im) for re in parts for im in parts], np.complex64)


EDGES = pairs_of([0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 30.0, 3e38, INF, -INF])
HUGE = np.abs(EDGES) > 1e30


@pytest.mark.parametrize(
    "name",
    ["abs", "acos", "acosh", "asin", "asinh", "exp", "expm1", "log", "log1p", "sqrt", "square", "neg", "conj"],
)
def test_edges_and_branch_cuts(name):
    check_export(UNARY[name], [EDGES])


@pytest.mark.parametrize("name", ["atan", "atanh", "sign", "sin", "cos", "sinh", "cosh", "tan", "tanh", "logistic"])
def test_branch_cuts_of_finite_numbers(name):
    check_export(UNARY[name], [EDGES[~HUGE]])


@pytest.mark.parametrize("name", ["abs", "exp", "log", "sqrt", "tanh", "asin", "mul", "conj"])
def test_nan_stays(name):
    z = pairs_of([NAN, 1.0, -2.0])
    function = UNARY.get(name, lambda z: z * z)
    check_export(lambda z: jnp.isnan(function(z)), [z])


def test_no_overflow_on_the_way():
    z = np.array([3e38 + 3e38j, 1e-30 - 1e-30j, 2e30 + 1e-10j, -1e25j], np.complex64)
    check_export(lambda z: [jnp.log(z), jnp.sqrt(z), jnp.arcsin(z), jnp.arctan(z)], [z])
    check_export(jnp.abs, [z[1:]])


BINARY = {
    "add": lax.add,
    "atan2": lax.atan2,
    "sub": lax.sub,
    "mul": lax.mul,
    "div": lax.div,
    "pow": lax.pow,
    "max": lax.max,
    "min": lax.min,
    "eq": lax.eq,
    "ne": lax.ne,
}


@pytest.mark.parametrize("name", BINARY)
def test_binary(name):
    check_export(BINARY[name], [A, B])


def test_binary_in_double_precision():
    a, b = A.astype(np.complex128), B.astype(np.complex128)
    check_export(lambda a, b: [function(a, b) for function in BINARY.values()], [a, b], x64=True)


@pytest.mark.parametrize("name", ["add", "sub", "eq", "ne", "max", "min"])
def test_edges_of_binary(name):
    a, b = (grid.ravel() for grid in np.meshgrid(EDGES, EDGES[::3]))
    check_export(BINARY[name], [a, b])


def test_quotients_with_zero_and_infinity():
    parts = [0.0, -0.0, 1.5, -2.0, INF, -INF]
    a, b = (grid.ravel() for grid in np.meshgrid(pairs_of(parts), pairs_of(parts)))
    check_export(lax.div, [a, b])


def test_quotient_of_very_different_sizes():
    check_export(lax.div, [numbers(20, scale=1e30), numbers(20, scale=1e25)])
    check_export(lax.div, [numbers(20, scale=1e-30), numbers(20, scale=1e-25)])


def test_powers_of_zero():
    x = np.array([0, 0, 0, 2 + 1j, INF], np.complex64)
    y = np.array([0, 1, 2.5, 0, 0], np.complex64)
    check_export(lax.pow, [x, y])


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 7, -1, -3])
def test_integer_powers(exponent):
    check_export(lambda z: z**exponent, [A])


def test_real_and_complex_mix():
    x = rng.standard_normal((3, 4)).astype(np.float32)
    n = np.arange(12, dtype=np.int32).reshape(3, 4)

    def fn(z, x, n):
        return z * x + 2.0, x / z, z - n, lax.complex(x, x) * 1j, z / 3, z / 2j, z**x, z**2.5, 2.0**z, lax.conj(x)

    check_export(fn, [A, x, n])


def test_conversions():
    z = np.array([0, 1, 1j, 2.5 - 1j, -3.7], np.complex64)

    def fn(z):
        real = [lax.convert_element_type(z, dtype) for dtype in (np.float32, np.int32, np.bool_)]
        whole = [lax.convert_element_type(z.real > 0, np.complex64), lax.iota(np.int32, 5).astype(np.complex64)]
        return real + whole

    check_export(fn, [z])


def test_conversion_between_precisions():
    check_export(lambda z: (z.astype(np.complex128), z.astype(np.complex64)), [A], x64=True)


def test_literals_and_constants():
    weights = numbers(4, 2)
    large = numbers(64, 32)

    def fn(z):
        return z @ weights + (1 - 2j), jnp.sum(large * 2j), jnp.full((2, 2), 3j), z.at[0, 1].set(5j)

    check_export(fn, [A])


def test_double_literals():
    check_export(lambda z: z * (0.1 + 0.7j) - 0.3j, [A.astype(np.complex128)], x64=True)


# Moving


MOVES = {
    "broadcast": lambda z: (jnp.broadcast_to(z, (2, 3, 4)), lax.broadcast_in_dim(z, (3, 5, 4), (0, 2))),
    "concatenate": lambda z: (jnp.concatenate([z, 2 * z], 0), jnp.concatenate([z, z, z], 1)),
    "cumsum": lambda z: (jnp.cumsum(z, 0), lax.cumsum(z, 1, reverse=True)),
    "dynamic_slice": lambda z: lax.dynamic_slice(z, (jnp.argmax(z.real[:, 0]), 1), (2, 2)),
    "dynamic_update": lambda z: lax.dynamic_update_slice(z, z[:2, :2] * 1j, (jnp.argmax(z.real[:, 0]), 1)),
    "expand": lambda z: (z[:, None], z[..., None, :]),
    "flip": lambda z: jnp.flip(z, 1),
    "index": lambda z: (z[1], z[:, 2], z[::2, 1:], z[-1, -1], z[jnp.array([2, 0])]),
    "moveaxis": lambda z: jnp.moveaxis(z[None], 0, 2),
    "pad": lambda z: (jnp.pad(z, ((1, 0), (0, 2))), jnp.pad(z, 1, constant_values=2 - 1j)),
    "pad_inside": lambda z: lax.pad(z, jnp.asarray(1j, z.dtype), ((0, 1, 1), (-1, 0, 0))),
    "repeat": lambda z: (jnp.repeat(z, 2, axis=0), jnp.tile(z, (2, 1))),
    "reshape": lambda z: (z.reshape(4, 3), z.ravel(), z.reshape(2, 3, 2)),
    "reshape_in_order": lambda z: (z.reshape((4, 3), order="F"), lax.reshape(z * z, (12,), (1, 0))),
    "roll": lambda z: (jnp.roll(z, 1), jnp.roll(z, 2, axis=1)),
    "select": lambda z: (jnp.where(z.real > 0, z, 0), jnp.where(z.imag[0, 0] > 0, z, z + 1j)),
    "select_parts": lambda z: jnp.where(z.real > 0, jnp.exp(z), jnp.conj(z)),
    "sort": lambda z: (jnp.sort(z, 0), jnp.sort(jnp.round(z.real) + 1j * z.imag, 1), jnp.argsort(z, 1)),
    "split": lambda z: jnp.split(z, 2, axis=1),
    "squeeze": lambda z: z[:1].squeeze(0),
    "stack": lambda z: (jnp.stack([z, z * 1j], 0), jnp.stack([z, z], -1)),
    "sum": lambda z: (jnp.sum(z), jnp.sum(z, 0), jnp.mean(z, 1, keepdims=True), jnp.var(z)),
    "take": lambda z: (jnp.take(z, jnp.array([0, 2, 5]), axis=0), jnp.take_along_axis(z, jnp.argsort(z.real), 1)),
    "transpose": lambda z: (z.T, jnp.transpose(z[None], (2, 0, 1)), z.conj().T),
}


@pytest.mark.parametrize("name", MOVES)
def test_move(name):
    check_export(MOVES[name], [A])


def test_move_in_double_precision():
    moves = [move for name, move in MOVES.items() if name != "sort"]
    check_export(lambda z: [move(z) for move in moves], [A.astype(np.complex128)], x64=True)


def test_fill_of_what_is_out_of_bounds():
    def fn(z, at):
        return z.at[at].get(mode="fill"), z.at[at].get(mode="fill", fill_value=1 - 2j), z.at[at].get(mode="clip")

    check_export(fn, [A, np.array([0, 7, 2], np.int32)])


def test_scatter():
    def fn(z, at):
        moved = z.at[0].set(1j), z.at[1:, 2].set(z[0, 0]), z.at[at].set(z[:2]), z.at[at, 1].add(2 - 1j)
        return *moved, z.at[at].subtract(z[:2]), z.at[7].set(0, mode="drop")

    check_export(fn, [A, np.array([2, 0], np.int32)])


def test_scatter_by_products():
    def fn(z, at):
        real = z.at[1:3].multiply(2), z.at[jnp.array([0, 0])].multiply(z[:2].imag)
        return *real, z.at[at].multiply(z[:2], unique_indices=True), z.at[0].multiply(z[1])

    check_export(fn, [A, np.array([2, 0], np.int32)])


def coarse(*shape):
    """With equal real parts among them."""
    return (np.round(numbers(*shape, scale=2)) / 2).astype(np.complex64)


COMBINED = ["multiply", "min", "max"]


@pytest.mark.parametrize("how", COMBINED)
def test_scatter_where_updates_meet(how):
    def fn(z, at, new):
        def scattered(*where, values, **options):
            return getattr(z.at[where], how)(values, **options)

        rows = scattered(at, values=new), scattered(at, values=new, mode="clip"), scattered(slice(1, 4), values=new)
        points = scattered(at, at + 1, values=new[:, 0]), scattered(slice(None), at, values=new.T[:, :1] * z[0, 0])
        grid = scattered(at[:2, None] + jnp.array([0, 1, 0]), values=jnp.stack([new, new * 1j])[:, :, :4])
        return *rows, *points, grid, scattered(1, values=new[0]), scattered(at[:0], values=new[:0])

    check_export(fn, [coarse(4, 4), np.array([0, 2, 0], np.int32), coarse(3, 4)])
    check_export(lambda z, at, new: getattr(z.at[at], how)(new), [coarse(5), np.array([0, 7, 0], np.int32), coarse(3)])


@pytest.mark.parametrize("how", COMBINED)
def test_scatter_where_updates_meet_in_a_batch(how):
    def fn(z, at, new):
        own = jax.vmap(lambda z, at, new: getattr(z.at[at], how)(new))(z, at, new)
        return own, jax.vmap(lambda z, new: getattr(z.at[at[:, 0]], how)(new), in_axes=1)(z, new)

    at = rng.integers(0, 4, (4, 6)).astype(np.int32)
    check_export(fn, [coarse(4, 6), at, coarse(4, 6)])


@pytest.mark.parametrize("how", COMBINED)
def test_scatter_of_windows_that_overlap(how):
    combine = {"multiply": lax.scatter_mul, "min": lax.scatter_min, "max": lax.scatter_max}[how]
    numbers = lax.ScatterDimensionNumbers((1,), (), (0,))
    at = np.array([[0], [2], [1]], np.int32)
    check_export(lambda z, at, new: combine(z, at, new, numbers), [coarse(7), at, coarse(3, 3)])


def test_reductions_by_segment():
    def fn(z, segments):
        names = ("sum", "prod", "max", "min")
        return [getattr(jax.ops, f"segment_{name}")(z, segments, 3) for name in names]

    check_export(fn, [coarse(5, 2), np.array([0, 2, 0, 2, 2], np.int32)])


def test_nan_is_scattered_as_in_jax_where_no_updates_meet():
    z, new = coarse(4), coarse(4)
    z[0], z[1], new[2], new[3] = NAN, 1 + NAN * 1j, NAN, complex(NAN, 1)
    check_export(lambda z, new: (z.at[:].max(new), z.at[:].min(new), z.at[:].multiply(new)), [z, new])


def test_a_function_applied_at_indices():
    check_export(lambda z, at: z.at[at].apply(jnp.sin), [A, np.array([2, 0], np.int32)])


def test_sort_with_a_passenger():
    keys = np.round(numbers(3, 6, scale=2).real) + 1j * np.round(numbers(3, 6, scale=2).imag)
    values = np.arange(18, dtype=np.float32).reshape(3, 6)
    check_export(lambda k, v: lax.sort((k, v), dimension=1), [keys.astype(np.complex64), values])
    check_export(lambda k, v: lax.sort((v, k), dimension=1), [keys.astype(np.complex64), -values])


def test_scalars():
    def fn(z):
        return z * z, jnp.exp(z), z.real, jnp.broadcast_to(z, (3,)), z[None], jnp.stack([z, z])

    check_export(fn, [np.complex64(1 - 2j)])


def test_empty_arrays():
    check_export(lambda z: (z * 2j, jnp.exp(z), jnp.sum(z, 0), jnp.prod(z, 0), z.T), [np.zeros((0, 3), np.complex64)])


def test_comparisons():
    z = np.array([1 + 2j, 1 - 2j, 0, -1, NAN], np.complex64)
    check_export(lambda a, b: (a == b, a != b, jnp.isfinite(a), jnp.isnan(b), jnp.allclose(a, a)), [z, z[::-1].copy()])


# Products and reductions


def test_dot_products():
    a, b, v = numbers(3, 4), numbers(4, 5), numbers(4)

    def fn(a, b, v):
        return a @ b, a @ v, v @ b, jnp.vdot(v, v), jnp.outer(v, v), a @ jnp.conj(a).T, jnp.dot(v, v)

    check_export(fn, [a, b, v])


def test_batched_dot_products():
    a, b = numbers(2, 3, 4), numbers(2, 4, 5)

    def fn(a, b):
        return (
            a @ b,
            jnp.einsum("bij,bjk->bki", a, b),
            jnp.einsum("bij,cjk->bcik", a, b),
            jnp.tensordot(a, b, [[0], [0]]),
        )

    check_export(fn, [a, b])
    check_export(fn, [a.astype(np.complex128), b.astype(np.complex128)], x64=True)


def test_dot_product_is_one_matmul():
    weights = numbers(4, 5)
    model = check_export(lambda z: z @ weights, [A])
    assert op_types(model).count("MatMul") == 1
    assert len(model.graph.node) <= 4


@pytest.mark.parametrize("length", [1, 2, 3, 7, 8])
def test_product_of_all(length):
    z = numbers(2, length)
    check_export(lambda z: (jnp.prod(z, 1), jnp.prod(z), jnp.cumprod(z, 1), lax.cumprod(z, 1, reverse=True)), [z])


def test_products_of_unknown_length():
    z = numbers(5, 3)
    check_export(
        lambda z: (jnp.prod(z, 0), jnp.cumprod(z, 0), lax.cumprod(z, 0, reverse=True)),
        [z],
        specs=[jax.ShapeDtypeStruct(jax.export.symbolic_shape("B, 3"), np.complex64)],
        more_args=[[numbers(1, 3)], [numbers(8, 3)]],
    )


def test_extremes():
    z = np.round(numbers(4, 6, scale=2).real) + 1j * numbers(4, 6).imag
    check_export(lambda z: (jnp.max(z), jnp.max(z, 0), jnp.min(z, 1)), [z.astype(np.complex64)])


@pytest.mark.parametrize("reverse", [False, True])
def test_running_extremes_and_sums(reverse):
    def fn(z):
        running = (lax.cummax, lax.cummin, lax.cumlogsumexp, lax.cumprod)
        return [function(z, axis, reverse) for function in running for axis in (0, 1)]

    check_export(fn, [coarse(4, 5)], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "slides",
    [
        ((1, 2), (1, 1), "SAME", (1, 1), (1, 1)),
        ((3, 3), (1, 2), "VALID", (1, 1), (1, 1)),
        ((2, 3), (2, 1), ((1, 0), (2, 2)), (1, 2), (1, 2)),
    ],
)
def test_extremes_of_windows(slides):
    def fn(z):
        largest = lax.reduce_window(z, np.complex64(-INF), lax.max, *slides)
        return largest, lax.reduce_window(z, np.complex64(INF), lax.min, *slides)

    check_export(fn, [coarse(5, 6)])


def test_clamp():
    parts = (-1, 0, 1)
    values = np.array([a + 1j * b for a in parts for b in parts], np.complex64)
    least, z, most = (grid.ravel() for grid in np.meshgrid(values, values, values))
    check_export(lambda least, z, most: lax.clamp(least, z, most), [least, z, most])
    check_export(lambda z: lax.clamp(jnp.asarray(-1j, z.dtype), z, jnp.asarray(1j, z.dtype)), [values])


def test_a_real_result_of_complex_factors():
    dimensions = (((1,), (1,)), ((), ()))

    def fn(a, b):
        return [lax.dot_general(x, b, dimensions, preferred_element_type=jnp.float32) for x in (a, a.real)]

    check_export(fn, [A, B])


def test_convolution():
    check_export(lambda a, b: (jnp.convolve(a, b), jnp.correlate(a, b, mode="same")), [numbers(9), numbers(4)])


def test_convolution_of_images():
    def fn(x, w):
        return lax.conv_general_dilated(x, w, (2, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    check_export(fn, [numbers(2, 6, 5, 3), numbers(3, 3, 3, 4)])


def test_window_sums():
    check_export(lambda z: lax.reduce_window(z, np.complex64(0), lax.add, (2, 3), (1, 2), "SAME"), [numbers(5, 6)])


# Library functions


def test_library_functions():
    def fn(z):
        return (
            jnp.angle(z),
            jnp.linalg.norm(z),
            jnp.linalg.norm(z, axis=1),
            jnp.polyval(jnp.array([1, 2j, 0.5]), z),
            jnp.iscomplex(z),
            jnp.round(z, 1),
            jnp.trace(z),
            jnp.nan_to_num(z),
            jnp.kron(z[:2, :2], z[:2, :2]),
        )

    check_export(fn, [A])


def test_random_complex_numbers():
    check_export(lambda key: jax.random.normal(key, (3, 4), np.complex64), [np.array([1, 2], np.uint32)])


# Where complex numbers go


def test_symbolic_batch():
    def fn(z, w):
        y = jnp.exp(1j * z) @ w
        return y / jnp.sum(y), jnp.sort(y, 1), y.reshape(-1), jnp.where(y.real > 0, y, 0)

    specs = [
        jax.ShapeDtypeStruct(jax.export.symbolic_shape("B, 4"), np.complex64),
        jax.ShapeDtypeStruct((4, 2), np.complex64),
    ]
    w = numbers(4, 2)
    check_export(fn, [A, w], specs=specs, more_args=[[numbers(1, 4), w], [numbers(7, 4), w]])


def test_inside_jit_vmap_and_custom_derivatives():
    @jax.custom_jvp
    def inner(z):
        return jnp.exp(z) * z

    inner.defjvp(lambda p, t: (inner(*p), t[0]))
    check_export(lambda z: (jax.jit(inner)(z), jax.vmap(lambda row: row @ row)(z), jax.checkpoint(jnp.sin)(z)), [A])


def test_inside_scan():
    def fn(z):
        def step(carry, row):
            carry = carry * jnp.exp(1j * row.real) + row
            return carry, jnp.abs(carry) * row

        return lax.scan(step, z[0], z)

    check_export(fn, [A])


def test_inside_while():
    def fn(z):
        start = (jnp.zeros_like(z), jnp.int32(0))
        return lax.while_loop(
            lambda state: (jnp.max(jnp.abs(state[0])) < 2) & (state[1] < 9),
            lambda state: (state[0] ** 2 + z, state[1] + 1),
            start,
        )

    check_export(fn, [numbers(5, scale=0.5)])
    check_export(lambda z: lax.fori_loop(0, 4, lambda i, w: w * z + i, z), [numbers(5)])


def test_inside_cond():
    def fn(z):
        first = lax.cond(z[0, 0].real > 0, lambda z: z * 1j, lambda z: jnp.conj(z) + 1, z)
        return first, lax.switch(jnp.int32(1), [jnp.exp, jnp.log, lambda z: z], z)

    check_export(fn, [A])
    check_export(fn, [-A])


def test_parts_made_outside_a_body_are_used_inside():
    def fn(z):
        w = jnp.exp(z)
        return lax.fori_loop(0, 3, lambda i, s: s + w * jnp.conj(w), jnp.zeros_like(w)) * w.real

    check_export(fn, [A])


def test_parts_taken_inside_a_body_are_taken_again_outside():
    def fn(z):
        first = lax.cond(z[0, 0].real > 0, lambda: jnp.abs(z), lambda: jnp.angle(z))
        return first + jnp.imag(z)

    check_export(fn, [A])


def test_derivatives():
    def energy(x, w):
        z = jnp.exp(1j * x) @ w
        return jnp.sum(jnp.abs(z) ** 2 + z.real)

    x = rng.standard_normal((3, 4)).astype(np.float32)
    check_export(jax.grad(energy, argnums=(0, 1)), [x, numbers(4, 2)])
    check_export(jax.grad(lambda z: jnp.sin(z * z), holomorphic=True), [np.complex64(0.3 + 0.2j)])
    check_export(jax.grad(lambda z: jnp.sum(jnp.abs(z))), [A])


# The model's face


def test_inputs_and_outputs_have_a_last_axis_of_two():
    model = to_onnx(lambda z: (z + 1, jnp.abs(z)), [jax.ShapeDtypeStruct((3, 4), np.complex64)])
    shapes = {
        value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in (*model.graph.input, *model.graph.output)
    }
    assert shapes == {"in_0": [3, 4, 2], "out_0": [3, 4, 2], "out_1": [3, 4]}
    assert {value.type.tensor_type.elem_type for value in model.graph.input} == {onnx.TensorProto.FLOAT}


def test_a_constant_is_stored_as_it_lies():
    weights = numbers(64, 64)
    model = to_onnx(lambda z: z + weights, [weights])
    (tensor,) = model.graph.initializer
    assert list(tensor.dims) == [64, 64, 2] and tensor.raw_data == weights.tobytes()
    assert op_types(model) == ["Add"]


MIXED = {
    "matmul": lambda a, b: a @ b,
    "einsum": lambda a, b: jnp.einsum("ij,jk->ki", a, b),
    "the other way": lambda a, b: b.T @ a.T,
    "batched": lambda a, b: jnp.einsum("nij,njk->nik", jnp.stack([a, a]), jnp.stack([b, 2 * b])),
    "dot_general": lambda a, b: lax.dot_general(
        a, b, (((1,), (0,)), ((), ())), preferred_element_type=jnp.result_type(a, b)
    ),
}


@pytest.mark.parametrize("case", MIXED)
@pytest.mark.parametrize("complex_first", [False, True])
def test_products_of_real_and_complex_numbers(case, complex_first):
    real, other = np.real(numbers(3, 4)), numbers(4, 5)
    args = [real, other] if not complex_first else [numbers(3, 4), np.real(other)]
    check_export(MIXED[case], args, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shapes", [((3, 4), (3, 4)), ((3, 1), (1, 4)), ((3, 1), (3, 4)), ((1,), (4,)), ((), ())])
def test_parts_of_shapes_that_broadcast(shapes):
    args = [np.real(numbers(*shape)).reshape(shape) for shape in shapes]

    def fn(a, b):
        z = lax.complex(*jnp.broadcast_arrays(a, b))
        return z, jnp.real(z), jnp.abs(z * (1 + 2j))

    check_export(fn, args, rtol=1e-5, atol=1e-5)
    if len(shapes[0]) == 2:
        check_export(lambda a, b: lax.complex(a, b) * 2j, args, rtol=1e-5, atol=1e-5)


def test_a_chain_is_not_taken_apart_in_between():
    model = to_onnx(lambda z: jnp.abs(jnp.conj(z * z) * z), [A])
    assert op_types(model).count("Split") == 1
    assert "Concat" not in op_types(model)


def test_parts_are_moved_where_parts_are_read():
    model = to_onnx(lambda z: jnp.abs(jnp.exp(z)[None].T[::2].reshape(-1)), [A])
    assert op_types(model).count("Split") == 1
    assert "Concat" not in op_types(model)
    model = to_onnx(lambda z: jnp.exp(z).T, [A])
    assert op_types(model).count("Transpose") == 1


def test_layout_of_complex_images(tmp_path):
    def fn(z):
        return z * jnp.arange(4)

    z, path, layout = numbers(2, 3, 5, 4), tmp_path / "model.onnx", {"inputs_as_nchw": [0], "outputs_as_nchw": [0]}
    to_onnx(fn, [z], return_mode="file", output_path=path, **layout)
    (value,) = onnx.load(path).graph.input
    assert [dim.dim_value for dim in value.type.tensor_type.shape.dim] == [2, 4, 3, 5, 2]
    assert allclose(fn, path, [z], **layout)[0]


def test_command_line_takes_complex_inputs(tmp_path):
    path = str(tmp_path / "model.onnx")
    assert main(["export", f"{__file__}:oscillate", "--input", "c64[B,4]", "-o", path]) == OK
    (value,) = onnx.load(path).graph.input
    assert [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim] == ["B", 4, 2]


def test_allclose_feeds_and_compares_complex_arrays(tmp_path):
    path = tmp_path / "model.onnx"
    to_onnx(lambda z: z * 1j, [A], return_mode="file", output_path=path)
    assert allclose(lambda z: z * 1j, path, [A])[0]
    assert allclose(lambda z: z * 1j, path, [jax.ShapeDtypeStruct((3, 4), np.complex64)])[0]
    agree, message = allclose(lambda z: z * 1j + 1, path, [A])
    assert not agree and "12 of 12 elements differ" in message


def oscillate(z):
    turned = z * jnp.exp(1j * z.real)
    return turned / (1 + jnp.abs(turned))


def test_verify_takes_complex_inputs(tmp_path):
    path, inputs = str(tmp_path / "model.onnx"), str(tmp_path / "inputs.npz")
    to_onnx(oscillate, [A], return_mode="file", output_path=path, stacktrace_metadata="full")
    np.savez(inputs, A)
    target = f"{__file__}:oscillate"
    assert main(["verify", target, path, "--inputs", inputs]) == OK
    model = onnx.load(path)
    next(node for node in model.graph.node if node.op_type == "Cos").op_type = "Sin"
    onnx.save(model, path)
    assert main(["verify", target, path, "--inputs", inputs]) == FAILED


def test_verify_names_the_line_of_a_wrong_part():
    model = to_onnx(oscillate, [A], stacktrace_metadata="full")
    node = next(node for node in model.graph.node if node.op_type == "Cos")
    node.op_type = "Sin"
    for export in (True, False):
        verdict = Verifier(oscillate, [A], export=export).check(model)
        assert not verdict.agrees
        assert verdict.place.line == oscillate.__code__.co_firstlineno + 1


def test_inside_an_onnx_function():
    @onnx_function
    def rotate(z, angle):
        return z * jnp.exp(1j * angle)

    model = check_export(lambda z: rotate(rotate(z, z.real), z.imag) + 1j, [A])
    assert len(model.functions) == 2


def test_a_plugin_for_real_numbers_is_not_asked(monkeypatch):
    """A plugin in place of sin sees real numbers only; what a complex exp takes of sin is not its affair."""
    monkeypatch.setattr(plugins, "_registered", {})
    plugin("sin", replace=True)(lambda ctx, equation: ctx.emit("Cos", equation.inputs))
    assert op_types(to_onnx(jnp.sin, [A.real])) == ["Cos"]
    check_export(jnp.exp, [A])


def test_real_programs_are_as_before():
    x = rng.standard_normal((3, 4)).astype(np.float32)
    assert op_types(to_onnx(lambda x: jnp.sin(x) * 2, [x])) == ["Sin", "Mul"]


def test_what_is_not_supported_is_named_at_once():
    """JAX has none left that compute something; primitives of the names of real ones stand in for those to come."""
    later = [jax.extend.core.Primitive(name) for name in ("erf", "round")]
    for primitive in later:
        primitive.def_abstract_eval(lambda z: z)

    def fn(z):
        return later[0].bind(z), later[1].bind(z)

    with pytest.raises(UnsupportedError, match="not supported for complex numbers") as error:
        to_onnx(fn, [numbers(4, 4)])
    assert [item[0] for item in error.value.items] == ["erf", "round"]
    assert all(item[2] == __file__ for item in error.value.items)
