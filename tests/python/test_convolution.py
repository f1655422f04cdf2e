"""Convolutions against JAX: layouts, strides, padding, dilations, groups, element types, symbolic sizes, gradients."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import onnxruntime
import pytest
from export_check import check_export, op_types
from jax import lax

NHWC = ("NHWC", "HWIO", "NHWC")
NCHW = ("NCHW", "OIHW", "NCHW")


def numbers(*shape, dtype=np.float32, seed=0):
    values = np.random.default_rng(seed).standard_normal(shape)
    if np.issubdtype(dtype, np.integer):
        return (values * 50).astype(np.int64).astype(dtype)
    return values.astype(dtype)


def convolution(strides, padding, dimension_numbers=NCHW, **options):
    def fn(x, kernel):
        return lax.conv_general_dilated(x, kernel, strides, padding, dimension_numbers=dimension_numbers, **options)

    return fn


# name: (x shape, kernel shape, strides, padding, options), all NCHW-like unless dimension_numbers say otherwise
CASES = {
    "plain": ((2, 3, 8, 7), (4, 3, 3, 3), (1, 1), "VALID", {}),
    "same strided": ((2, 3, 8, 7), (4, 3, 3, 2), (2, 3), "SAME", {}),
    "same lower": ((1, 2, 8, 7), (4, 2, 4, 2), (1, 2), "SAME_LOWER", {}),
    "explicit": ((1, 2, 5, 6), (3, 2, 3, 3), (1, 2), ((2, 0), (1, 4)), {}),
    "negative": ((1, 2, 8, 9), (3, 2, 3, 3), (1, 2), ((-1, -2), (-2, -1)), {}),
    "kernel dilation": ((1, 2, 9, 9), (3, 2, 3, 2), (2, 1), ((1, 1), (0, 2)), {"rhs_dilation": (2, 3)}),
    "input dilation": ((1, 2, 5, 4), (3, 2, 3, 3), (1, 1), ((2, 1), (1, 1)), {"lhs_dilation": (2, 3)}),
    "input dilation strided": ((1, 2, 5, 4), (3, 2, 3, 3), (2, 1), ((1, 1), (0, 0)), {"lhs_dilation": (3, 2)}),
    "input dilation beyond overlap": ((1, 2, 3, 4), (3, 2, 2, 1), (1, 1), ((4, 5), (3, 1)), {"lhs_dilation": (2, 2)}),
    "input dilation cut": ((1, 2, 5, 4), (3, 2, 2, 2), (1, 1), ((-2, -1), (0, -3)), {"lhs_dilation": (2, 2)}),
    "both dilations": (
        (1, 2, 5, 4),
        (3, 2, 2, 3),
        (1, 1),
        ((1, 2), (3, 4)),
        {"lhs_dilation": (2, 1), "rhs_dilation": (2, 2)},
    ),
    "groups": ((2, 6, 5, 5), (9, 2, 3, 3), (1, 1), "SAME", {"feature_group_count": 3}),
    "depthwise": ((2, 4, 5, 5), (8, 1, 3, 3), (1, 1), "SAME", {"feature_group_count": 4}),
    "grouped input dilation": (
        (1, 4, 4, 5),
        (6, 2, 3, 2),
        (1, 1),
        ((1, 2), (1, 1)),
        {"lhs_dilation": (2, 2), "feature_group_count": 2},
    ),
    "batch groups": ((6, 2, 5, 5), (9, 2, 3, 3), (1, 1), "VALID", {"batch_group_count": 3}),
    "batch groups whole": ((4, 3, 4, 4), (8, 3, 2, 2), (2, 1), "SAME", {"batch_group_count": 4}),
    "1d": ((2, 3, 9), (4, 3, 4), (2,), "SAME", {"dimension_numbers": ("NCH", "OIH", "NCH")}),
    "3d": ((1, 2, 4, 5, 6), (3, 2, 2, 3, 2), (1, 2, 1), "SAME", {"dimension_numbers": ("NCDHW", "OIDHW", "NCDHW")}),
    "3d input dilation": (
        (1, 3, 3, 4, 2),
        (2, 3, 2, 3, 2),
        (1, 1, 1),
        ((1, 1), (2, 2), (0, 1)),
        {"lhs_dilation": (2, 2, 2), "dimension_numbers": ("NCDHW", "OIDHW", "NCDHW")},
    ),
    "0d": ((4, 3), (5, 3), (), (), {"dimension_numbers": ("NC", "OI", "NC")}),
    "nhwc": ((2, 8, 7, 3), (3, 3, 3, 4), (1, 1), "SAME", {"dimension_numbers": NHWC}),
    "nwc": ((2, 8, 3), (3, 3, 4), (1,), "SAME", {"dimension_numbers": ("NWC", "WIO", "NWC")}),
    "odd layout": ((5, 2, 3, 6), (2, 4, 3, 3), (1, 1), "SAME", {"dimension_numbers": ("HNCW", "WOIH", "WCNH")}),
    "spatial order": ((1, 2, 5, 6), (3, 2, 3, 2), (1, 2), "SAME", {"dimension_numbers": ("NCHW", "OIWH", "CNWH")}),
    "empty result": ((2, 3, 2, 5), (4, 3, 3, 3), (1, 1), "VALID", {}),
    "empty batch": ((0, 3, 5, 5), (4, 3, 3, 3), (1, 1), "VALID", {}),
    "empty depth": ((2, 0, 5, 5), (4, 0, 3, 3), (1, 1), "VALID", {}),
}


@pytest.mark.parametrize("name", CASES)
def test_convolution(name):
    x, kernel, strides, padding, options = CASES[name]
    check_export(convolution(strides, padding, **options), [numbers(*x), numbers(*kernel, seed=1)])


DTYPE_CASES = [
    "same strided",
    "kernel dilation",
    "input dilation strided",
    "groups",
    "batch groups",
    "negative",
    "3d",
    "0d",
]


@pytest.mark.parametrize("name", DTYPE_CASES)
def test_double_precision(name):
    x, kernel, strides, padding, options = CASES[name]
    args = [numbers(*x, dtype=np.float64), numbers(*kernel, dtype=np.float64, seed=1)]
    model = check_export(convolution(strides, padding, **options), args, x64=True)
    assert "Conv" not in op_types(model)


def test_padding_on_one_side_and_cut_on_the_other():
    """In double precision: where the low edge is cut, XLA's strided float32 convolution on the CPU is wrong."""
    args = [numbers(1, 2, 8, 9, dtype=np.float64), numbers(3, 2, 3, 3, dtype=np.float64, seed=1)]
    check_export(convolution((1, 2), ((-1, 2), (3, -2))), args, x64=True)


INTEGERS = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_are_exact(dtype):
    x, kernel, strides, padding, options = CASES["groups"]
    args = [numbers(*x, dtype=dtype), numbers(*kernel, dtype=dtype, seed=1)]
    check_export(convolution(strides, padding, **options), args, x64=True)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_half_precision(dtype):
    args = [numbers(1, 2, 6, 5, dtype=dtype), numbers(3, 2, 3, 3, dtype=dtype, seed=1)]
    check_export(convolution((1, 2), "SAME"), args, rtol=3e-2, atol=6e-2)
    check_export(convolution((1, 1), ((1, 1), (2, 1)), lhs_dilation=(2, 2)), args, rtol=3e-2, atol=6e-2)


@pytest.mark.parametrize(
    "narrow,wide", [(np.float16, np.float32), (np.int8, np.int32), (ml_dtypes.bfloat16, np.float32)]
)
def test_preferred_element_type(narrow, wide):
    args = [numbers(1, 2, 6, 5, dtype=narrow), numbers(3, 2, 3, 3, dtype=narrow, seed=1)]
    check_export(convolution((1, 1), "SAME", preferred_element_type=wide), args)


def test_common_case_is_one_node():
    kernel = numbers(4, 3, 3, 3)
    model = check_export(lambda x: convolution((1, 1), "SAME")(x, kernel), [numbers(1, 3, 6, 6)])
    assert op_types(model) == ["Conv"]


def test_transposed_convolution_is_conv_transpose():
    def fn(x, kernel):
        return lax.conv_transpose(x, kernel, (2, 2), "SAME")

    model = check_export(fn, [numbers(2, 5, 4, 3), numbers(3, 4, 3, 2, seed=1)])
    assert op_types(model).count("ConvTranspose") == 1
    assert "Pad" not in op_types(model)


@pytest.mark.parametrize(
    "kernel,strides,padding", [((4, 4), (2, 2), "SAME"), ((3, 2), (3, 2), "VALID"), ((1, 2), (2, 3), "SAME")]
)
@pytest.mark.parametrize("dilation", [None, (2, 1)])
@pytest.mark.parametrize("flipped", [False, True])
def test_conv_transpose(kernel, strides, padding, dilation, flipped):
    def fn(x, k):
        return lax.conv_transpose(x, k, strides, padding, rhs_dilation=dilation, transpose_kernel=flipped)

    shape = (*kernel, 4, 3) if flipped else (*kernel, 3, 4)
    check_export(fn, [numbers(1, 4, 3, 3), numbers(*shape, seed=1)])


SYMBOLIC = {
    "same": ((1, 1), "SAME", {}),
    "same strided": ((2, 3), "SAME", {}),
    "same lower": ((1, 2), "SAME_LOWER", {}),
    "dilated same": ((1, 2), "SAME", {"rhs_dilation": (2, 2)}),
    "explicit": ((2, 1), ((2, 0), (-1, 1)), {}),
    "transposed": ((1, 1), ((2, 1), (1, 2)), {"lhs_dilation": (2, 2)}),
    "spread": ((2, 1), ((2, 1), (1, 2)), {"lhs_dilation": (2, 2)}),
}


@pytest.mark.parametrize("name", SYMBOLIC)
@pytest.mark.parametrize("x64", [False, True])
def test_symbolic_sizes(name, x64):
    strides, padding, options = SYMBOLIC[name]
    dtype = np.float64 if x64 else np.float32
    kernel = numbers(3, 3, 2, 4, dtype=dtype, seed=1)
    fn = convolution(strides, padding, NHWC, **options)
    args = [[numbers(*shape, 2, dtype=dtype)] for shape in ((1, 6, 6), (2, 7, 5), (7, 8, 12))]
    model = check_export(lambda x: fn(x, kernel), args[0], specs=[("B", "H", "W", 2)], more_args=args[1:], x64=x64)
    if name in ("same", "same strided", "same lower") and not x64:
        assert "Pad" not in op_types(model), "ONNX pads by itself"


@pytest.mark.parametrize("name", ["groups", "batch groups", "0d"])
def test_symbolic_batch(name):
    x, kernel, strides, padding, options = CASES[name]
    times = options.get("batch_group_count", 1)
    fn = convolution(strides, padding, **options)
    weights = numbers(*kernel, seed=1)
    args = [[numbers(times * batch, *x[1:])] for batch in (2, 1, 7)]
    spec = ("B" if times == 1 else f"{times}*B", *x[1:])
    check_export(lambda v: fn(v, weights), args[0], specs=[spec], more_args=args[1:])


@pytest.mark.parametrize("name", ["same strided", "groups", "kernel dilation", "nhwc", "input dilation"])
def test_gradients(name):
    x, kernel, strides, padding, options = CASES[name]
    fn = convolution(strides, padding, **options)
    gradient = jax.grad(lambda *args: jnp.sum(fn(*args) ** 2), (0, 1))
    check_export(gradient, [numbers(*x), numbers(*kernel, seed=1)], rtol=1e-4, atol=1e-4)


def test_gradients_with_symbolic_sizes():
    fn = convolution((2, 1), ((1, 1), (0, 2)), NHWC)
    gradient = jax.grad(lambda *args: jnp.sum(fn(*args)), (0, 1))
    kernel = numbers(3, 3, 2, 4, seed=1)
    args = [[numbers(*shape, 2), kernel] for shape in ((1, 7, 6), (2, 9, 5), (7, 11, 12))]
    spec = [("B", "2*H + 1", "W", 2), kernel.shape]
    check_export(gradient, args[0], specs=spec, more_args=args[1:], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("padding", [((-1, 2), (3, -2)), ((2, -1), (-3, 4))])
def test_single_precision_agrees_with_double_where_edges_are_cut(padding):
    """JAX is no reference here (see above), but the same model in double precision is."""
    args = [numbers(1, 2, 8, 9), numbers(3, 2, 3, 3, seed=1)]
    fn = convolution((1, 2), padding)
    single = onnxruntime.InferenceSession(check_export(fn, args, runs=False).SerializeToString())
    with jax.enable_x64(True):
        expected = np.asarray(fn(*(value.astype(np.float64) for value in args)))
    names = [value.name for value in single.get_inputs()]
    np.testing.assert_allclose(single.run(None, dict(zip(names, args, strict=True)))[0], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("opset", [17, 21, 26])
def test_opsets(opset):
    for name in ("same strided", "negative", "grouped input dilation", "batch groups"):
        x, kernel, strides, padding, options = CASES[name]
        check_export(convolution(strides, padding, **options), [numbers(*x), numbers(*kernel, seed=1)], opset=opset)
