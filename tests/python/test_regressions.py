"""What random programs have found (tests/fuzz/programs), each in its smallest form."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from export_check import check_export, op_types
from jax import lax

from jax2onnx import onnx_function

X = np.linspace(-2, 2, 6, dtype=np.float32).reshape(2, 3)


def test_reading_past_a_reshape_that_stays_takes_its_sites_along():
    """The scale 1 of heads of size 1 went into a Reshape that two read; the one that no longer did lost it."""
    x = np.arange(12).reshape(4, 3, 1, 1).astype(ml_dtypes.bfloat16) / 8
    check_export(lambda x: jax.nn.dot_product_attention(x, x, x), [x])


def test_reading_past_a_cast_that_stays_takes_its_sites_along():
    i = np.array(1, np.int32)

    def fn(i):
        one_hot = jax.nn.one_hot(i, 3, dtype="bfloat16")
        return jnp.clip(one_hot, None, 10.0), jnp.nanmedian(one_hot, axis=0)

    check_export(fn, [i])


def test_bounds_of_clip_stay_scalars():
    """A Reshape of a run-time size to a scalar was moved from a bound of Clip to below it."""
    i = np.array(2, np.int32)
    x = np.arange(4, dtype=np.float32)
    check_export(lambda i, x: x.at[i].set(3.25), [i, x], specs=[i, ("B",)], more_args=[(np.int32(-1), x[:2])])


@pytest.mark.parametrize("axis", [0, 1])
def test_arrays_without_elements_are_constants(axis):
    """ONNX Runtime's Expand to an empty shape is not empty."""
    widths = [(0, 0), (0, 0)]
    widths[axis] = (0, 1)
    x = np.array([[7]], np.int32)
    check_export(lambda x: jnp.pad(x, widths, mode="edge"), [x])
    model = check_export(lambda x: jnp.sin(x[:, :0]) + 1, [X])
    assert op_types(model) == ["Identity"]


@pytest.mark.parametrize("step", [1, 2, 3])
def test_windows_larger_than_the_axis_are_none(step):
    x = np.arange(2, dtype=np.float32).reshape(1, 2, 1)
    for function, start in ((lax.max, -jnp.inf), (lax.min, jnp.inf), (lax.mul, 1.0)):
        check_export(lambda x, f=function, s=start: lax.reduce_window(x, s, f, [1, 3, 1], [1, step, 1], "VALID"), [x])


def test_a_float_that_is_broadcast_stays_a_scalar():
    """ONNX Runtime crashed on a filled float16 array of rank 4 behind a product."""

    def fn(x):
        return jax.nn.logsumexp(jnp.tensordot(x, x, axes=(0, 0)), axis=(1,), keepdims=True)

    model = check_export(fn, [np.ones((2, 1, 2), np.float16)])
    assert all(len(tensor.dims) == 0 for tensor in model.graph.initializer if tensor.data_type == 10)


def test_a_constant_behind_a_no_op_may_be_shrunk_at_once():
    """x * 1 on a constant left no node for its sites, and the constant was then replaced by a scalar."""
    check_export(lambda x: x + jnp.linspace(0, 1, 2), [np.array([1.0, 2.0], np.float32)])
    check_export(lambda x: jnp.linspace(0, 1, 2, dtype="float32"), [np.array(True)])


def test_a_value_beside_its_own_transpose_is_left_alone():
    """Two orders of axes were equally good, each seemed better than the other, and a trace was lost on the way."""
    i, x = np.array([[0], [1]], np.int32), np.arange(4, dtype=np.float32).reshape(2, 2)
    model = check_export(lambda i, x: jnp.einsum("abc,bac->a", x[:, i], x[:, i]), [i, x])
    assert op_types(model).count("Transpose") == 1


@pytest.mark.parametrize("dtype", ["float32", "float16", ml_dtypes.bfloat16])
def test_a_transpose_times_a_vector(dtype):
    """ONNX Runtime puts the Transpose into the product, and is wrong where the other operand is a vector."""
    x = (np.arange(24).reshape(2, 3, 4) / 8).astype(dtype)
    v = (np.arange(3) - 1).astype(dtype)
    model = check_export(lambda x, v: x[0].T @ v, [x, v])
    assert "Transpose" not in op_types(model)
    check_export(lambda x, v: jnp.swapaxes(x, 1, 2) @ v, [x, v])
    check_export(lambda x, v: (jnp.swapaxes(x, 1, 2) @ v, jnp.swapaxes(x, 1, 2)), [x, v])
    check_export(lambda x, v: v @ jnp.swapaxes(jnp.swapaxes(x, 1, 2), 1, 2), [x, v])
    check_export(lambda x, v: jnp.einsum("abc,b->c", x, v), [x, v])
    near_miss = check_export(lambda x, v: jnp.transpose(x, (2, 0, 1)) @ v, [x, v])
    assert op_types(near_miss).count("MatMul") == 1


@pytest.mark.parametrize("compare", [jnp.less, jnp.less_equal, jnp.greater, jnp.greater_equal])
def test_comparisons_of_booleans_broadcast(compare):
    check_export(compare, [np.array([[True], [False]]), np.array([True, False])])
    check_export(compare, [np.array([True, False]), np.array([[True], [False]])])


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "uint8", "uint32"])
def test_windows_of_integers_wrap_around(dtype):
    limits = np.iinfo(dtype)
    x = np.array([limits.min, limits.max, 2, 3, limits.max, 5], dtype)
    for function, start in ((lax.mul, 1), (lax.add, 0)):
        for window in (2, 3, 5):
            check_export(
                lambda x, f=function, s=start, w=window: lax.reduce_window(x, np.array(s, dtype), f, [w], [1], "SAME"),
                [x],
            )


def test_an_empty_array_backwards_is_empty():
    """Folding it read in front of the array."""
    a, b = np.zeros((1, 0), np.float32), np.ones((1, 1), np.float32)
    check_export(lambda a, b: jnp.sort(a + b, axis=1, descending=True), [a, b])
    check_export(lambda a, b: (a + b)[:, ::-1], [a, b])


@pytest.mark.parametrize("dtype", ["float16", ml_dtypes.bfloat16])
@pytest.mark.parametrize("order", [(1, 0, 2), (1, 2, 0), (1, 2, 0, 3), (1, 2, 3, 0)])
def test_narrow_types_are_cast_before_a_first_axis_is_moved(order, dtype):
    """ONNX Runtime crashed when it made such a Transpose a part of the product, through the Cast between them. Of
    float16, whose Casts it makes by itself, it is the product that is transposed."""
    x = (np.arange(np.prod(range(2, 2 + len(order)))) % 5 - 2).reshape(range(2, 2 + len(order))).astype(dtype)
    shape = [x.shape[axis] for axis in order]
    right, left = np.ones((shape[-1], 3), dtype), np.ones((3, shape[-2]), dtype)
    check_export(lambda x, w: jnp.tanh(jnp.matmul(w, jnp.transpose(x, order))), [x, left])
    ops = op_types(check_export(lambda x, w: jnp.transpose(x, order) @ w + jnp.ones(3, w.dtype), [x, right]))
    if order == (1, 0, 2):
        wanted = ["MatMul", "Transpose"] if dtype == "float16" else ["Cast", "Transpose", "MatMul"]
        assert sorted(wanted, key=ops.index) == wanted


def test_single_precision_needs_no_cast():
    x, w = np.ones((2, 3, 4), np.float32), np.ones((4, 5), np.float32)
    assert op_types(check_export(lambda x, w: jnp.swapaxes(x, 0, 1) @ w, [x, w])) == ["Transpose", "MatMul"]


def test_an_output_that_is_read_too_hands_its_sites_to_both():
    """Of two equal values that are both outputs, the second stayed as an Identity; who read it lost its line."""

    def fn(x):
        first = jnp.sin(x) * 2
        second = jnp.sin(x) * 2
        return second, second, first

    check_export(fn, [X])


@pytest.mark.parametrize("amount", [-1, -2, 0, 31, 32])
def test_shifts_by_amounts_out_of_range(amount):
    x = np.array([-(2**31), -5, -1, 0, 1, 2**31 - 1], np.int32)
    for shift in (lax.shift_right_arithmetic, lax.shift_right_logical, lax.shift_left):
        check_export(lambda x, shift=shift: shift(x, np.int32(amount)), [x])


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int16"])
@pytest.mark.parametrize("method", ["max", "min"])
def test_updates_out_of_bounds_change_nothing(dtype, method):
    indices = np.array([5, -7], np.int32)
    for old, new in ((0, 1), (1, 0)):
        x, update = np.full(2, old, dtype), np.full(2, new, dtype)
        check_export(lambda x, i, u: getattr(x.at[i], method)(u, mode="drop"), [x, indices, update])


@pytest.mark.parametrize("axis", [0, 1])
def test_log_softmax_in_double_precision_keeps_nan(axis):
    x = np.array([[1, np.inf, 2], [np.nan, 3, 4]])
    model = check_export(lambda x: jax.nn.log_softmax(x, axis=axis), [x], x64=True)
    assert "LogSoftmax" not in op_types(model)


@pytest.mark.parametrize("shift", [-4, 3])
def test_a_constant_beside_a_moved_axis_keeps_its_axes(shift):
    """An empty constant lost its leading axes of size 1 when the Concat's axes were put in another order."""

    def fn(x):
        return jax.vmap(lambda row: jnp.roll(row, shift, axis=1), in_axes=2, out_axes=-1)(x)

    model = check_export(fn, [np.arange(2, dtype=np.float32).reshape(1, 2, 1)])
    assert ("Identity" in op_types(model)) == (shift == -4)


def test_what_is_joined_to_nothing_stays_as_it_is():
    def fn(x):
        return jnp.concatenate([x[:, :0], x, jnp.sin(x[:, 3:])], axis=1) + 1

    assert op_types(check_export(fn, [np.ones((2, 3), np.float32)])) == ["Add"]


def test_a_constant_row_beside_a_moved_axis():
    """Concat and Gather do not broadcast: their constants keep axes of size 1."""

    def fn(x):
        moved = jnp.moveaxis(x, 1, 3)
        joined = jnp.concatenate([moved, jnp.full((1, 1, 4, 1), 7, x.dtype)], axis=1)
        return jnp.moveaxis(joined, 3, 1) * 2

    check_export(fn, [np.arange(12, dtype=np.float32).reshape(1, 1, 3, 4)])


@pytest.mark.parametrize("shape", [(1,), (3,), (2, 2)])
def test_the_gradient_of_plain_indexing_drops_what_is_out_of_bounds(shape):
    """Its scatter-add claims promised bounds; JAX clamps the read and drops the update, ONNX Runtime refused to run."""
    x, count = np.arange(8, dtype=np.float32).reshape(4, 2), int(np.prod(shape))
    sets = [np.resize(indices, shape).astype(np.int32) for indices in ([4, -1, 0, 9], [-5, 3, -4, -9], [1, 2, 3, 0])]

    def fn(x, i):
        return jax.value_and_grad(jax.checkpoint(lambda x: jnp.mean(x[i] ** 2)))(x)

    check_export(fn, [x, sets[0]], more_args=[[x, indices] for indices in sets[1:]])
    check_export(jax.grad(lambda x, i: jnp.sum(x[i, i] * x[i, 0])), [x, sets[0]], more_args=[[x, sets[1]]])
    known = check_export(jax.grad(lambda x: jnp.sum(x[np.resize([0, -1], count)] ** 2)), [x])
    assert "Clip" not in op_types(known)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("run", [lax.cummax, lax.cummin, lax.cumprod, lax.cumsum, lax.cumlogsumexp])
def test_running_reductions_of_nothing_along_a_symbolic_axis(run, reverse):
    """ONNX Runtime's Scan divides by the size of an element that it stacks along an axis other than the first."""
    x = np.zeros((0, 3), np.float32)
    model = check_export(lambda x: run(x, axis=1, reverse=reverse), [x], specs=[(0, "B")])
    assert "Scan" not in op_types(model)
    if run is lax.cumprod:
        check_export(lambda x: run(x + 1j, axis=1, reverse=reverse), [x], specs=[(0, "B")])


@pytest.mark.parametrize("order", [1, 2, 4])
def test_polygamma_below_zero(order):
    """JAX's own sum is right down to -7 and something else from there on; the model gives the same."""
    x = np.array([-0.25, -5.25, -6.75, -7.25, -7.75, -8.25, -8.75, -9.5, -10.25, -12.25, -20.75, -100.25])
    check_export(lambda x: lax.polygamma(np.float64(order), x), [x], x64=True)
    check_export(lambda x: lax.polygamma(np.float32(order), x), [x.astype(np.float32)], rtol=1e-5, atol=1e-5)


RUNNING = {
    "cummax": lambda x, **how: lax.cummax(x, **how),
    "cumlogsumexp": lambda x, **how: lax.cumlogsumexp(x, **how),
    "complex cumprod": lambda x, **how: lax.cumprod(x + 1j, **how),
}


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name", RUNNING)
def test_running_reductions_along_an_axis_that_turns_out_to_be_empty(name, reverse):
    """ONNX Runtime's Scan refuses to take no step, and crashes when it stacks nothing along a later axis."""
    x = np.arange(-6, 6, dtype=np.float32).reshape(2, 3, 2)
    for axis in (0, 1):

        def run(x, axis=axis):
            return RUNNING[name](x, axis=axis, reverse=reverse)

        spec, fewer = [("B", "C", 2)], [[x[:1]], [x[:, :1]], [x[:1, :1]]]
        model = check_export(lambda x, run=run: (run(x[:-1]), run(x[:, 1:])), [x], specs=spec, more_args=fewer)
        assert op_types(model).count("Scan") == 2
        near_miss = check_export(run, [x], specs=spec)
        assert not {"Pad", "Slice", "Transpose"} & set(op_types(near_miss))


def test_reductions_of_what_turns_out_to_be_empty():
    x = np.arange(-6, 6, dtype=np.float32).reshape(6, 2)

    def larger(a, b):
        return jnp.maximum(a[0], b[0]), jnp.where(a[0] >= b[0], a[1], b[1])

    def fn(x):
        part = x[:-1]
        largest = lax.reduce((part, part * 2), (np.float32(-np.inf), np.float32(7)), larger, (0,))
        return largest, jnp.prod(part.astype(np.int32), axis=0), jnp.prod(part + 1j, axis=0)

    check_export(fn, [x], specs=[("B", 2)], more_args=[[x[:1]], [x[:2]]])


@pytest.mark.parametrize("start, function", [(np.inf, lax.min), (-np.inf, lax.max), (0, lax.add), (1, lax.mul)])
@pytest.mark.parametrize("shape", [(2, 0, 1), (2, 3, 0)])
def test_windows_of_nothing_give_what_they_start_from(shape, start, function):
    """ONNX Runtime's MaxPool refuses an empty array; padding alone gives the starting number."""

    def fn(x):
        number = np.float32(start)
        return (
            lax.reduce_window(x, number, function, [1, 1, 2], [1, 1, 2], "SAME"),
            lax.reduce_window(x, number, function, [1, 1, 2], [1, 1, 1], [(0, 0), (0, 0), (1, 1)]),
        )

    check_export(fn, [np.zeros(shape, np.float32)], specs=[("B", *shape[1:])])


@pytest.mark.parametrize("bits", [(5, 7), (8, 2), (11, 3)])
def test_reduced_precision_where_denormals_are_zeros(bits, tmp_path):
    """A unit in the last place of the least numbers is a denormal: 0 divided by it was NaN for such a runtime."""
    x = np.array([0.0, 1.7, -2.2268, 1e-5, 3e-308, -1e300, np.inf, np.nan])
    model = check_export(lambda x: lax.reduce_precision(x, *bits), [x], x64=True)
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    code = """if True:
        import sys, numpy, onnxruntime
        options = onnxruntime.SessionOptions()
        options.add_session_config_entry("session.set_denormal_as_zero", "1")
        session = onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
        values = numpy.array(eval(sys.argv[2], {"inf": numpy.inf, "nan": numpy.nan}))
        print(session.run(None, {session.get_inputs()[0].name: values})[0].tolist())
    """
    command = [sys.executable, "-c", code, str(tmp_path / "model.onnx"), str(x.tolist())]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    with jax.enable_x64(True):
        wanted = np.asarray(lax.reduce_precision(x, *bits)).tolist()
    assert printed.strip() == str(wanted)


@pytest.mark.parametrize("mode", ["clip", "fill", "wrap"])
def test_unsigned_indices_beyond_31_bits(mode):
    """ONNX Runtime's Clip of int64 takes 4294967295 for -1."""
    x = np.arange(10, 14, dtype=np.float32)
    indices = np.array([0, 3, 4, 2**31 - 1, 2**31, 2**32 - 2, 2**32 - 1], np.uint32)
    check_export(lambda x, i: jnp.take(x, i, mode=mode), [x, indices])
    check_export(lambda x, i: x.at[i].add(1, mode="drop"), [x, indices])
    check_export(lambda x, i: jax.lax.dynamic_slice(x, (i[-1],), (2,)), [x, indices])


def test_a_value_that_is_widened_before_it_is_moved_keeps_the_sites_of_its_loop():
    """Seen where the loop's trace came from JAX's cache, so at the second export of the same function."""
    x, y = np.array([3], np.int32), np.array([1.5], ml_dtypes.bfloat16)

    def step(carry, y):
        chosen = jnp.where(carry == carry, carry, (y**2).astype(carry.dtype))
        return chosen, chosen

    def fn(x, y):
        def double(t):
            return t + t

        y = lax.fori_loop(0, 2, lambda _, t: onnx_function(double, unique=True)(t), y)
        turned = lax.cond(jnp.sum(y) > 0, lambda t: t, lambda t: -t, y)
        return lax.scan(step, x, y, unroll=2)[0], jnp.split(turned, [1])[1]

    for _ in range(2):
        check_export(fn, [x, y])


def test_a_step_that_carries_what_no_input_made():
    """What a function without inputs returns has no first input to look at."""
    x = np.linspace(-1, 1, 6, dtype=np.float32).reshape(3, 2)

    def fn(x):
        made = onnx_function(lambda: jnp.ones(2), unique=True)
        return lax.scan(lambda carry, row: (made() * 0.5 + carry * 0.5, carry + row), x[0], x)

    check_export(fn, [x])


def test_a_function_that_nothing_calls_any_more_is_accounted_for():
    """An index into an axis of size 1 does not matter, and so not the function that computes it."""
    x, i = np.array([[3]], np.int32), np.array([[0]], np.int32)
    check_export(lambda x, i: x[..., onnx_function(lambda i: -i, unique=True)(i)][:1, ...], [x, i], x64=True)


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
def test_an_inverse_beside_a_sum_with_zero(dtype):
    """ONNX Runtime made a Div of the product, of a sum that it had removed: what StudentT(df, 0, 1).sample does."""
    x = np.linspace(1, 2, 6).astype(dtype)
    check_export(lambda x: (jnp.sin(x) + 0.0) * (1.0 / jnp.sqrt(x)), [x], x64=dtype == "float64")


def test_results_of_a_loop_that_is_split_keep_the_lines_that_computed_them():
    def fn(x):
        loop = jax.checkpoint(lambda x: jnp.mean(lax.fori_loop(1, 3, lambda _, y: jnp.hypot(y, y), x)))
        return jax.grad(loop)(x)

    check_export(fn, [np.full((1, 1, 1, 1), 0.75, np.float32)])
