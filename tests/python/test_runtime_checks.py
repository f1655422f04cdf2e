"""Checks that raise an error while JAX runs: NaN in the model, or left out, as the user says."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import onnxruntime
import pytest
from export_check import check_export, op_types
from jax.experimental import checkify, io_callback

from jax2onnx import UnsupportedError, to_onnx
from jax2onnx._compare.sessions import complex_as_pairs

GOOD = np.array([1.0, 0.0, 4.0], np.float32)
BAD = np.array([1.0, -1.0, 4.0], np.float32)


def guarded(x):
    return jnp.sqrt(eqx.error_if(x, jnp.any(x < 0), "negative"))


def outputs(model, *arrays):
    session = onnxruntime.InferenceSession(model.SerializeToString())
    return session.run(
        None, dict(zip((value.name for value in model.graph.input), map(np.asarray, arrays), strict=True))
    )


def test_a_check_that_holds_changes_nothing():
    check_export(guarded, [GOOD])
    check_export(jax.vmap(guarded), [np.stack([GOOD, GOOD])])
    check_export(jax.grad(lambda x: guarded(x).sum()), [GOOD + 1])


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.complex64])
def test_a_check_that_fails_gives_nan(dtype):
    def fn(x, bad):
        return eqx.error_if(x, bad, "no")

    x = GOOD.astype(dtype)
    model = to_onnx(fn, [x, np.bool_(True)])
    given = complex_as_pairs(x)
    assert np.isnan(outputs(model, given, np.bool_(True))[0]).all()
    assert np.array_equal(outputs(model, given, np.bool_(False))[0], given)


def test_several_values_and_several_errors():
    def fn(x, n):
        return eqx.branched_error_if((x, n), n < 0, jnp.abs(n) - 1, ["one", "two"])

    model = to_onnx(fn, [GOOD, np.int32(1)])
    good = outputs(model, GOOD, np.int32(1))
    assert np.array_equal(good[0], GOOD) and good[1] == 1
    bad = outputs(model, GOOD, np.int32(-2))
    assert np.isnan(bad[0]).all() and bad[1] == -2


def test_checks_are_left_out_on_request(monkeypatch):
    with pytest.warns(UserWarning, match=r"runtime_check is left out of the model: .*checks are to be dropped"):
        model = to_onnx(guarded, [GOOD], runtime_checks="drop")
    assert op_types(model) == ["Sqrt"]
    monkeypatch.setenv("JAX2ONNX_RUNTIME_CHECKS", "drop")
    with pytest.warns(UserWarning, match="runtime_check is left out"):
        assert op_types(to_onnx(guarded, [GOOD])) == ["Sqrt"]
    assert "Where" in op_types(to_onnx(guarded, [GOOD], runtime_checks="nan"))


def test_integers_have_no_nan():
    with pytest.warns(UserWarning, match="have no NaN"):
        model = to_onnx(lambda n: eqx.error_if(n, n < 0, "negative") + 1, [np.int32(1)])
    assert op_types(model) == ["Add"]


def test_a_check_in_a_loop_and_a_branch():
    def fn(x, n):
        x = jax.lax.fori_loop(0, n, lambda i, x: eqx.error_if(x + 1, i > 5, "long"), x)
        return jax.lax.cond(n > 2, lambda x: eqx.error_if(x, x[0] > 100, "large"), lambda x: -x, x)

    for n in (1, 4):
        check_export(fn, [GOOD, np.int32(n)])


def test_a_check_of_the_users_own():
    def fail():
        raise ValueError

    def raising(x):
        return jax.pure_callback(fail, jax.ShapeDtypeStruct(x.shape, x.dtype))

    def fn(x):
        return jax.lax.cond(jnp.all(x >= 0), lambda x: x, raising, x) * 2

    model = to_onnx(fn, [GOOD])
    assert np.array_equal(outputs(model, GOOD)[0], GOOD * 2)
    assert np.isnan(outputs(model, BAD)[0]).all()


def test_a_callback_that_computes_is_still_refused():
    shape = jax.ShapeDtypeStruct((3,), np.float32)

    def computes(x):
        return jax.pure_callback(np.sin, shape, x)

    def other_branch_computes(x):
        return jax.lax.cond(x[0] > 0, computes, lambda x: x + 1, x)

    def part_of_a_result(x):
        return jax.lax.cond(x[0] > 0, lambda x: (computes(x), x), lambda x: (x, x), x)

    def one_branch_computes(x):
        return jax.lax.cond(x[0] > 0, computes, lambda x: x, x)

    for fn in (computes, one_branch_computes, other_branch_computes, part_of_a_result):
        with pytest.raises(UnsupportedError, match="calls back into Python"):
            to_onnx(fn, [GOOD])


def test_callbacks_without_results_are_left_out():
    def fn(x):
        io_callback(lambda value: None, None, x)
        jax.debug.callback(lambda value: None, x)
        return x * 2

    with pytest.warns(UserWarning, match="io_callback is left out"):
        assert op_types(to_onnx(fn, [GOOD])) == ["Mul"]


def test_checkify():
    def fn(x):
        checkify.check(jnp.all(x >= 0), "negative")
        return jnp.sqrt(x)

    def checked(x):
        _, y = checkify.checkify(fn, errors=checkify.user_checks | checkify.float_checks)(x)
        return y

    check_export(checked, [GOOD])
    with pytest.warns(UserWarning, match=r"check is left out of the model: .*checkify\.checkify"):
        assert op_types(to_onnx(fn, [GOOD])) == ["Sqrt"]


def test_the_setting_is_checked(monkeypatch):
    with pytest.raises(ValueError, match="runtime_checks must be 'nan' or 'drop'; got 'off'"):
        to_onnx(guarded, [GOOD], runtime_checks="off")
    monkeypatch.setenv("JAX2ONNX_RUNTIME_CHECKS", "raise")
    with pytest.raises(ValueError, match="JAX2ONNX_RUNTIME_CHECKS must be"):
        to_onnx(guarded, [GOOD])
