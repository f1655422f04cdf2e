"""What ONNX cannot hold: dropped with a warning or refused with the reason, both at the user's line."""

from __future__ import annotations

import inspect
import warnings

import jax
import jax.experimental
import jax.numpy as jnp
import numpy as np
import pytest
from export_check import op_types

from jax2onnx import UnsupportedError, to_onnx

X = np.ones(3, np.float32)


def prints(x):
    y = x + 1
    jax.debug.print("y = {}", y)
    return y * 2


def line_of(fn, text):
    lines, first = inspect.getsourcelines(fn)
    return first + next(index for index, line in enumerate(lines) if text in line)


def test_debug_print_is_dropped_and_the_line_is_named():
    with pytest.warns(UserWarning, match="is left out of the model") as found:
        model = to_onnx(prints, [X])
    assert op_types(model) == ["Add", "Mul"]
    (warning,) = found
    assert (warning.filename, warning.lineno) == (__file__, line_of(prints, "jax.debug.print"))
    assert f":{warning.lineno} in prints" in str(warning.message)


def test_debug_callback_inside_control_flow_is_dropped():
    def fn(x):
        def step(carry, row):
            jax.debug.callback(lambda value: None, row)
            return carry + row, row

        return jax.lax.scan(step, jnp.float32(0), x)

    with pytest.warns(UserWarning, match="debug_callback"):
        assert "Scan" in op_types(to_onnx(fn, [X]))


def test_a_warning_that_is_an_error_stops_the_export():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning):
            to_onnx(prints, [X])


def test_no_warning_without_cause():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        to_onnx(lambda x: x + 1, [X])


def refused(fn, primitive, reason):
    with pytest.raises(UnsupportedError, match=reason) as error:
        to_onnx(fn, [X])
    (item,) = error.value.items
    assert item[0] == primitive and item[2] == __file__


def test_callbacks_are_refused():
    shape = jax.ShapeDtypeStruct((3,), np.float32)
    refused(lambda x: jax.pure_callback(np.sin, shape, x), "pure_callback", "calls back into Python")
    refused(lambda x: jax.experimental.io_callback(np.sin, shape, x), "io_callback", "calls back into Python")


def test_foreign_code_is_refused():
    shape = jax.ShapeDtypeStruct((3,), np.float32)
    refused(lambda x: jax.ffi.ffi_call("somewhere", shape)(x), "ffi_call", "foreign compiled code")


def test_every_refusal_is_listed_at_once():
    def fn(x):
        shape = jax.ShapeDtypeStruct((3,), np.float32)
        return jax.pure_callback(np.sin, shape, x) + jax.ffi.ffi_call("somewhere", shape)(x)

    with pytest.raises(UnsupportedError) as error:
        to_onnx(fn, [X])
    assert [item[0] for item in error.value.items] == ["pure_callback", "ffi_call"]


def test_the_forward_derivative_of_a_custom_vjp_is_refused_and_the_reverse_one_is_not():
    @jax.custom_vjp
    def fn(x):
        return jnp.sin(x)

    fn.defvjp(lambda x: (fn(x), x), lambda x, g: (g * jnp.cos(x),))
    with pytest.raises(UnsupportedError, match="custom_lin: it is the forward-mode derivative of"):
        to_onnx(lambda x: jax.jvp(fn, (x,), (x,))[1], [X])
    assert op_types(to_onnx(lambda x: jax.linearize(fn, x)[0], [X])) == ["Sin"]
    assert op_types(to_onnx(lambda x: jax.vjp(fn, x)[1](x)[0], [X])) == ["Cos", "Mul"]


@pytest.mark.parametrize("name", ["float8_e3m4", "float8_e4m3b11fnuz"])
def test_an_element_type_that_onnx_lacks(name):
    spec = jax.ShapeDtypeStruct((3,), jnp.dtype(name))
    with pytest.raises(UnsupportedError, match="input 1 has an element type that ONNX models cannot have"):
        to_onnx(lambda x, y: (x, y), [X, spec])
