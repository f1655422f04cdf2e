"""Window reductions against JAX: pooling, other windows, element types, symbolic sizes, chosen elements, gradients."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from export_check import check_export, op_types
from jax import lax

REDUCTIONS = {"sum": (lax.add, 0.0), "max": (lax.max, -np.inf), "min": (lax.min, np.inf)}


def numbers(*shape, dtype=np.float32, seed=0):
    values = np.random.default_rng(seed).standard_normal(shape)
    if dtype == np.bool_:
        return values > 0.5
    if np.issubdtype(dtype, np.integer):
        return (values * 50).astype(np.int64).astype(dtype)
    return values.astype(dtype)


def identity(name, dtype):
    if name == "sum":
        return np.array(0, dtype)
    if np.issubdtype(dtype, np.integer):
        limits = np.iinfo(dtype)
        return np.array(limits.min if name == "max" else limits.max, dtype)
    return np.array(REDUCTIONS[name][1], dtype)


def windows(name, size, strides=None, padding="VALID", dtype=np.float32, base=None, dilation=None):
    def fn(x):
        return lax.reduce_window(x, identity(name, dtype), REDUCTIONS[name][0], size, strides, padding, base, dilation)

    return fn


# name: (shape, window, strides, padding, base dilation, window dilation)
CASES = {
    "nchw": ((2, 3, 7, 8), (1, 1, 2, 3), (1, 1, 2, 1), "VALID", None, None),
    "nhwc": ((2, 7, 8, 3), (1, 2, 3, 1), (1, 2, 1, 1), "SAME", None, None),
    "nwc": ((2, 7, 3), (1, 3, 1), (1, 2, 1), "SAME", None, None),
    "ndhwc": ((1, 4, 5, 6, 2), (1, 2, 3, 2, 1), (1, 2, 1, 2, 1), "SAME", None, None),
    "no channels": ((3, 7, 6), (1, 2, 3), (1, 2, 2), "SAME", None, None),
    "every axis": ((5, 6), (2, 3), (2, 1), "VALID", None, None),
    "vector": ((9,), (4,), (2,), "SAME", None, None),
    "batch too": ((4, 3, 5, 4), (2, 1, 2, 2), (2, 1, 1, 2), "VALID", None, None),
    "four axes": ((4, 4, 5, 4), (2, 2, 2, 2), (1, 1, 2, 1), "SAME", None, None),
    "many axes": ((2, 2, 2, 5, 2, 3), (1, 1, 1, 3, 1, 1), (1,) * 6, "SAME", None, None),
    "explicit": ((1, 2, 5, 6), (1, 1, 3, 3), None, ((0, 0), (0, 0), (2, 0), (1, 2)), None, None),
    "wide padding": ((1, 2, 3, 4), (1, 1, 2, 2), None, ((0, 0), (0, 0), (3, 0), (1, 4)), None, None),
    "negative": ((1, 2, 7, 8), (1, 1, 2, 2), None, ((0, 0), (0, 0), (-1, -2), (-2, 0)), None, None),
    "mixed": ((1, 2, 7, 8), (1, 1, 2, 2), None, ((0, 0), (0, 0), (-1, 1), (1, -3)), None, None),
    "dilated": ((1, 2, 9, 8), (1, 1, 2, 3), (1, 1, 1, 2), "VALID", None, (1, 1, 3, 2)),
    "dilated same": ((1, 2, 9, 8), (1, 1, 2, 3), (1, 1, 1, 1), "SAME", None, (1, 1, 2, 2)),
    "spread": ((1, 2, 4, 5), (1, 1, 2, 2), None, ((0, 0), (0, 0), (1, 0), (0, 2)), (1, 1, 2, 3), None),
    "stride only": ((2, 7, 3), (1, 1, 1), (1, 2, 1), "VALID", None, None),
    "nothing": ((2, 3), (1, 1), None, "VALID", None, None),
    "empty result": ((2, 3, 2, 4), (1, 1, 3, 2), None, "VALID", None, None),
    "empty batch": ((0, 3, 4, 4), (1, 1, 2, 2), None, "VALID", None, None),
}
POOLED = ["nchw", "nhwc", "nwc", "ndhwc", "no channels", "every axis", "batch too", "many axes", "explicit", "dilated"]


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("name", CASES)
def test_window_reduction(name, reduction):
    shape, size, strides, padding, base, dilation = CASES[name]
    fn = windows(reduction, size, strides, padding, base=base, dilation=dilation)
    model = check_export(fn, [numbers(*shape)])
    if name in POOLED:
        assert ("AveragePool" if reduction == "sum" else "MaxPool") in op_types(model)


def test_pooling_is_one_node_where_layouts_agree():
    assert op_types(check_export(windows("max", (1, 1, 2, 2), (1, 1, 2, 2)), [numbers(1, 2, 4, 4)])) == ["MaxPool"]
    model = check_export(windows("max", (1, 2, 2, 1), (1, 2, 2, 1)), [numbers(1, 4, 4, 2)])
    assert op_types(model) == ["Transpose", "MaxPool", "Transpose"]


DTYPES = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64, np.float64]


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["nhwc", "wide padding"])
def test_exact_types(name, dtype, reduction):
    shape, size, strides, padding, _, _ = CASES[name]
    check_export(windows(reduction, size, strides, padding, dtype), [numbers(*shape, dtype=dtype)], x64=True)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_half_precision(dtype, reduction):
    shape, size, strides, padding, _, _ = CASES["nhwc"]
    x = numbers(*shape, dtype=dtype)
    check_export(windows(reduction, size, strides, padding, dtype), [x], rtol=3e-2, atol=3e-2)


@pytest.mark.parametrize("opset", [17, 18, 21])
def test_older_opsets(opset):
    shape, size, strides, padding, _, dilation = CASES["dilated"]
    for reduction in REDUCTIONS:
        check_export(windows(reduction, size, strides, padding, dilation=dilation), [numbers(*shape)], opset=opset)


def test_extreme_values_outside_pooling():
    x = np.array([1, np.nan, -np.inf, -np.inf, np.inf, 2, 3, -0.0], np.float64)
    check_export(windows("max", (2,), None, ((2, 2),), np.float64), [x], x64=True)
    check_export(windows("min", (2,), None, ((2, 2),), np.float64), [x], x64=True)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize(
    "strides,padding", [((1, 2, 2, 1), "SAME"), ((1, 2, 1, 1), "VALID"), ((1, 1, 3, 1), "SAME_LOWER")]
)
@pytest.mark.parametrize("dtype", [np.float32, np.int64])
def test_symbolic_sizes(reduction, strides, padding, dtype):
    fn = windows(reduction, (1, 3, 2, 1), strides, padding, dtype)
    args = [[numbers(*shape, 2, dtype=dtype)] for shape in ((1, 6, 6), (2, 7, 5), (7, 8, 12))]
    model = check_export(
        fn,
        args[0],
        specs=[jax.ShapeDtypeStruct(s, dtype) for s in [jax.export.symbolic_shape("B,H,W,2")]],
        more_args=args[1:],
        x64=dtype == np.int64,
    )
    if dtype == np.float32 and strides != (1, 1, 3, 1):
        assert ("AveragePool" if reduction == "sum" else "MaxPool") in op_types(model)
        assert "Pad" not in op_types(model), "ONNX pads by itself"


BODIES = {
    "product": (lax.mul, 1.0),
    "sum from 2": (lax.add, 2.0),
    "max from 0": (lax.max, 0.0),
    "maximum": (jnp.maximum, -np.inf),
    "larger magnitude": (lambda a, b: jnp.where(jnp.abs(a) >= jnp.abs(b), a, b), 0.0),
    "log sum exp": (jnp.logaddexp, -np.inf),
}


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("case", ["nhwc", "spread"])
def test_general_reduction(name, case):
    shape, size, strides, padding, base, dilation = CASES[case]
    body, initial = BODIES[name]

    def fn(x):
        return lax.reduce_window(x, np.float32(initial), body, size, strides, padding, base, dilation)

    check_export(fn, [numbers(*shape)])


@pytest.mark.parametrize("body,initial", [(lax.bitwise_and, True), (lax.bitwise_or, False), (lax.bitwise_xor, False)])
def test_boolean_reduction(body, initial):
    def fn(x):
        return lax.reduce_window(x, np.bool_(initial), body, (2, 3), (1, 2), "SAME")

    check_export(fn, [numbers(5, 6, dtype=np.bool_)])


def test_reduction_of_several_operands():
    def fn(x, y):
        def larger(a, b):
            keep = a[0] >= b[0]
            return jnp.where(keep, a[0], b[0]), jnp.where(keep, a[1], b[1])

        return lax.reduce_window((x, y), (np.float32(-np.inf), np.int32(-1)), larger, (2, 2), (2, 1), "SAME")

    check_export(fn, [numbers(5, 6), np.arange(30, dtype=np.int32).reshape(5, 6)])


SLIDES = {
    "padded": ((2, 3), (1, 2), ((1, 0), (2, 1)), (1, 1), (1, 1)),
    "spread": ((2, 3), (1, 2), ((1, 1), (0, 2)), (2, 1), (1, 2)),
    "cut": ((2, 2), (1, 1), ((-1, 1), (-1, -1)), (1, 1), (1, 1)),
    "many elements": ((5, 7), (1, 1), ((2, 2), (3, 3)), (1, 1), (1, 1)),
}


@pytest.mark.parametrize("slides", SLIDES.values(), ids=SLIDES)
def test_padding_takes_no_part(slides):
    """Also where the initial value is not what changes nothing: it is folded in once, and padding never."""
    root = numbers(5, 6)
    check_export(lambda x: lax.reduce_window(x, np.float32(0.5), lambda a, b: jnp.sqrt(a * a + b * b), *slides), [root])
    check_export(lambda x: lax.reduce_window(x, np.float32(0.5), lambda a, b: b + a, *slides), [root])


@pytest.mark.parametrize("slides", SLIDES.values(), ids=SLIDES)
def test_complex_windows(slides):
    z = (numbers(5, 6) + 1j * numbers(5, 6, seed=1)).astype(np.complex64) * 0.5 + 0.75
    check_export(lambda z: lax.reduce_window(z, np.complex64(1), lax.mul, *slides), [z], rtol=1e-4, atol=1e-4)
    check_export(lambda z: lax.reduce_window(z, np.complex64(1j), lambda a, b: a + b, *slides), [z])


def test_complex_and_real_windows_together():
    def body(a, b):
        return a[0] + b[0], jnp.maximum(a[1], b[1] + 0 * jnp.real(b[0]))

    def fn(z, x):
        return lax.reduce_window((z, x), (np.complex64(0), np.float32(-9)), body, (2, 3), (1, 1), "SAME")

    check_export(fn, [numbers(5, 6).astype(np.complex64) * 1j, numbers(5, 6)])


@pytest.mark.parametrize("size", [(2, 2), (3, 3), (6, 6)])
def test_ties_and_order_are_those_of_jax(size):
    """Where nothing is padded: else XLA's own order depends on the sizes."""

    def larger(a, b):
        keep = a[0] >= b[0]
        return jnp.where(keep, a[0], b[0]), jnp.where(keep, a[1], b[1])

    x, places = np.round(numbers(7, 6)), np.arange(42, dtype=np.int32).reshape(7, 6)
    start = (np.float32(-9), np.int32(-1))
    check_export(lambda x, y: lax.reduce_window((x, y), start, larger, size, (1, 1), "VALID"), [x, places])
    check_export(lambda y: lax.reduce_window(y, np.int32(1), lambda a, b: a * 2 - b, size, (1, 1), "VALID"), [places])


def test_a_window_computation_that_branches():
    def body(a, b):
        return lax.cond(a > b, lambda: a, lambda: b)

    check_export(lambda x: lax.reduce_window(x, np.float32(-9), body, (2, 3), (1, 2), "SAME"), [numbers(5, 6)])
    batched = jax.vmap(lambda x: lax.reduce_window(x, np.float32(0), jnp.logaddexp, (2,), (1,), "VALID"))
    check_export(batched, [numbers(3, 5)])


def test_general_windows_of_symbolic_sizes():
    def fn(x):
        return lax.reduce_window(x, np.float32(0.5), lambda a, b: jnp.sqrt(a * a + b * b), (1, 3), (1, 2), "SAME")

    check_export(fn, [numbers(2, 7)], specs=[("B", "N")], more_args=[[numbers(1, 4)], [numbers(3, 1)]])


CHOICES = {
    "nhwc": ((2, 6, 7, 3), (1, 2, 3, 1), (1, 2, 2, 1), "SAME"),
    "overlapping": ((2, 6, 7), (1, 3, 3), (1, 1, 2), "VALID"),
    "explicit": ((7, 6), (2, 2), (2, 1), ((1, 0), (1, 1))),
}


@pytest.mark.parametrize("reduction", ["max", "min"])
@pytest.mark.parametrize("name", CHOICES)
def test_gradient(name, reduction):
    shape, size, strides, padding = CHOICES[name]
    fn = windows(reduction, size, strides, padding)
    check_export(jax.grad(lambda x: jnp.sum(fn(x) ** 2)), [numbers(*shape)])
    check_export(lambda x, t: jax.jvp(fn, (x,), (t,)), [numbers(*shape), numbers(*shape, seed=1)])


def test_gradient_of_ties_goes_to_the_first():
    fn = windows("max", (2, 2), (1, 1), "VALID")
    check_export(jax.grad(lambda x: jnp.sum(fn(x))), [np.array([[1, 1, 2], [1, 2, 2], [0, 2, 1]], np.float32)])


@pytest.mark.parametrize("dtype", [np.float64, ml_dtypes.bfloat16])
def test_gradient_types(dtype):
    shape, size, strides, padding = CHOICES["nhwc"]
    fn = windows("max", size, strides, padding, dtype)
    check_export(jax.grad(lambda x: jnp.sum(fn(x))), [numbers(*shape, dtype=dtype)], x64=dtype == np.float64)


def test_gradient_with_symbolic_sizes():
    _, size, strides, padding = CHOICES["nhwc"]
    fn = windows("max", size, strides, padding)
    args = [[numbers(*shape, 2)] for shape in ((1, 6, 6), (2, 7, 5), (7, 8, 12))]
    spec = ("B", "H", "W", 2)
    check_export(jax.grad(lambda x: jnp.sum(fn(x))), args[0], specs=[spec], more_args=args[1:])


@pytest.mark.parametrize("select", [lax.ge, lax.gt, lambda a, b: jnp.abs(a) >= jnp.abs(b)])
@pytest.mark.parametrize("scatter,initial", [(lax.add, 1.0), (lax.max, -1.0), (lax.mul, 1.0)])
def test_select_and_scatter(select, scatter, initial):
    from jax._src.lax import windowed_reductions

    def fn(x, source):
        return windowed_reductions._select_and_scatter(
            x, select, (2, 3), (2, 2), ((0, 0), (0, 0)), source, np.float32(initial), scatter
        )

    check_export(fn, [numbers(6, 7), numbers(3, 3, seed=1)])
