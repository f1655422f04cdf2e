"""The gamma function's family, Bessel functions, incomplete gamma and beta."""

from __future__ import annotations

import jax
import numpy as np
import onnxruntime
import pytest
from export_check import check_export
from jax import lax

from jax2onnx import to_onnx

POSITIVE = [0.1, 0.5, 1, 1.5, 2, 3.3, 7.9, 8.1, 20, 100, 1e5, 1e20, 1e-10]
POINTS = np.array([*POSITIVE, -0.5, -1.5, -3.2, -20.7, -1, -7, 0, -0.0, np.inf, -np.inf, np.nan, -1e-6])
A = np.array([0.1, 0.5, 1, 3, 20, 100, 2])
B = np.array([0.2, 1, 0.5, 4, 15, 120, 0])
X = np.array([0.1, 0.2, 0.5, 0.7, 0.9, 0.3, 1])
CASES = {
    "lgamma": (lax.lgamma, [POINTS]),
    "digamma": (lax.digamma, [POINTS[POINTS != 0]]),  # at 0 JAX 0.10 has NaN, later -infinity
    "bessel_i0e": (lax.bessel_i0e, [POINTS]),
    "bessel_i1e": (lax.bessel_i1e, [POINTS]),
    "zeta": (
        lax.zeta,
        [np.array([2, 3.5, 1, 0.5, 2, 20, 3, 5.5, 3, 4, 1.5]), np.array([1, 0.1, 2, 3, -1, 5, 100, -2.5, -1, 0, 0])],
    ),
    "polygamma": (lax.polygamma, [np.array([0, 1, 2, 3, 5, -1, 1.5]), np.array([0.5, 1, 2.5, 30, 4, 2, 2])]),
    "igamma": (lax.igamma, [A, B]),
    "igammac": (lax.igammac, [A, B]),
    "igamma_grad_a": (lax.igamma_grad_a, [A[:6], B[:6]]),
    "random_gamma_grad": (lax.random_gamma_grad, [A[:6], B[:6]]),
    "betainc": (lax.betainc, [A[:6], B[:6], X[:6]]),
}


@pytest.mark.parametrize("double", [False, True], ids=["float32", "float64"])
@pytest.mark.parametrize("name", CASES)
def test_values(name, double):
    fn, args = CASES[name]
    dtype = np.float64 if double else np.float32
    check_export(fn, [arg.astype(dtype) for arg in args], x64=double, rtol=1e-9 if double else 1e-5)


@pytest.mark.parametrize("name", ["lgamma", "digamma", "bessel_i1e"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision(name, dtype):
    check_export(CASES[name][0], [np.asarray(jax.numpy.asarray([0.3, 1.5, 4, -1.5], dtype))])


def test_shapes_and_a_known_order():
    x = np.linspace(0.5, 4, 6, dtype=np.float32).reshape(2, 3)
    check_export(lambda x: (lax.lgamma(x), jax.scipy.special.polygamma(0, x), jax.scipy.special.polygamma(2, x)), [x])
    check_export(lambda x: lax.zeta(x + 1, x), [x], specs=[("B", 3)], more_args=[[x[:1]]])
    check_export(lambda x: lax.digamma(x), [np.zeros((0, 2), np.float32)])


@pytest.mark.parametrize("name", [name for name, (_, args) in CASES.items() if len(args) > 1])
def test_a_number_beside_an_array(name):
    """JAX leaves one number that meets an array as it is: the operands then differ in rank."""
    fn, args = CASES[name]
    for operand in range(len(args)):
        arrays = [np.float32([1.5, 2.5, 0.7, 0.4]).reshape(2, 2) + index for index in range(len(args))]
        arrays = [array * 0.2 for array in arrays] if name == "betainc" else arrays
        arrays[operand] = arrays[operand][0, 0]
        check_export(fn, arrays)


def test_derivatives():
    x = np.linspace(0.5, 4, 6, dtype=np.float32)
    check_export(jax.vmap(jax.grad(lambda x: lax.lgamma(x) + lax.bessel_i0e(x) + lax.bessel_i1e(x))), [x])


def test_digamma_at_zero_is_as_in_the_newest_jax():
    model = to_onnx(lax.digamma, [(2,)])
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (values,) = session.run(None, {"in_0": np.array([0.0, -0.0], np.float32)})
    np.testing.assert_array_equal(values, [-np.inf, -np.inf])
