"""Small work: matrices of a few rows and hashes of a few numbers take no loop, and give the numbers that JAX gives."""

from __future__ import annotations

import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import onnxruntime
import pytest
from export_check import all_nodes, check_export
from jax import lax
from jax.lax import linalg

LOOSE = {"rtol": 1e-3, "atol": 1e-4}  # where single precision is lost to the condition of the matrix


def loops(model):
    return [node.op_type for node in all_nodes(model) if node.op_type in ("Loop", "Scan", "If")]


def matrices(*shape):
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


def edges(n):
    """One matrix of each kind that a factorisation treats in its own way."""
    regular = matrices(n, n)
    singular = regular.copy()
    singular[-1] = 2 * singular[0]
    zero_pivot = regular.copy()
    zero_pivot[0, 0] = 0
    hilbert = 1 / (1 + np.add.outer(np.arange(n), np.arange(n)))
    nan, infinite = regular.copy(), regular.copy()
    nan[n // 2, 0], infinite[0, n // 2] = np.nan, np.inf
    ties = np.where(np.eye(n), 1, -1)  # elements of one size: the first is the pivot
    kinds = [
        regular,
        zero_pivot,
        hilbert,
        nan,
        ties,
        np.zeros((n, n)),
        np.eye(n)[::-1],
        1e30 * regular,
        1e-30 * regular,
    ]
    return np.stack([*kinds, singular, infinite]).astype(np.float32)


@pytest.mark.parametrize("n", [2, 3, 5])
def test_lu_of_every_kind_of_matrix(n):
    # Of a singular one the last row is rounding; how far a NaN or an infinity reaches is LAPACK's own affair.
    kinds = edges(n)[[0, 1, 2, 4, 5, 6, 7, 8]]
    assert not loops(check_export(lambda a: linalg.lu(a), [kinds], **LOOSE))


def test_a_nan_below_the_pivot_is_no_pivot():
    matrix = np.array([[0.5, 2], [np.nan, 1]], np.float32)
    check_export(lambda a: linalg.lu(a), [matrix])


@pytest.mark.parametrize("n", [2, 4])
@pytest.mark.parametrize("fn", [jnp.linalg.inv, jnp.linalg.det, lambda a: jnp.linalg.solve(a, a[..., :1] + 1)])
def test_what_lu_is_used_for(fn, n):
    kinds = edges(n)[[0, 1, 3, 4, 6]]
    assert not loops(check_export(fn, [kinds], **LOOSE))


@pytest.mark.parametrize("n", [2, 3, 8])
def test_cholesky_of_a_batch_that_is_made_symmetric_first(n):
    root = matrices(4, n, n)
    batch = root @ np.swapaxes(root, 1, 2) + n * np.eye(n, dtype=np.float32)
    batch[1] *= -1  # not positive definite: NaN
    assert not loops(check_export(jnp.linalg.cholesky, [batch]))


def test_qr_of_a_few_columns():
    assert not loops(check_export(jnp.linalg.qr, [matrices(3, 6, 3)], **LOOSE))


def test_a_batch_whose_size_is_not_known():
    more = [[matrices(1, 3, 3), matrices(1, 3)], [matrices(7, 3, 3), matrices(7, 3)]]
    model = check_export(
        lambda a, b: jnp.linalg.solve(a, b[..., None]),
        [matrices(2, 3, 3), matrices(2, 3)],
        specs=[("B", 3, 3), ("B", 3)],
        more_args=more,
        **LOOSE,
    )
    assert not loops(model)


def test_more_rows_take_a_loop():
    assert "Loop" in loops(check_export(lambda a: linalg.lu(a)[0], [matrices(12, 12)], **LOOSE))


@pytest.mark.parametrize("shape", [(), (3,), (16, 16)])
def test_few_random_numbers_take_no_loop(shape):
    draw = lambda key: jax.random.normal(jax.random.wrap_key_data(key), shape)  # noqa: E731
    assert not loops(check_export(draw, [np.array([3, 4], np.uint32)]))


def test_many_random_numbers_take_a_scan_of_the_rounds():
    draw = lambda key: jax.random.bits(jax.random.wrap_key_data(key), (257,))  # noqa: E731
    assert loops(check_export(draw, [np.array([3, 4], np.uint32)])) == ["Scan"]


def test_a_solve_in_a_loop_has_one_loop():
    def newton(x):
        residual = lambda x: jnp.array([x[0] ** 2 + x[1] - 2, x[1] ** 2 + x[0] - 2])  # noqa: E731
        step = lambda _, x: x - jnp.linalg.solve(jax.jacfwd(residual)(x), residual(x))  # noqa: E731
        return jax.lax.fori_loop(0, 5, step, x)

    assert loops(check_export(newton, [np.array([1.5, 0.7], np.float32)])) == ["Loop"]


def runs_of(model, args, op_type, tmp_path):
    """How often nodes of the operator are run."""
    options = onnxruntime.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "profile")
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    session.run(None, {i.name: a for i, a in zip(session.get_inputs(), args, strict=True)})
    events = json.loads(pathlib.Path(session.end_profiling()).read_text())
    return sum(
        e["args"].get("op_name") == op_type and e["name"].endswith("_kernel_time") for e in events if "args" in e
    )


@pytest.mark.parametrize("start", [1000.0, 3.0, 0.0, np.nan, np.inf])
def test_a_loop_ends_when_the_steps_that_are_left_do_nothing(start, tmp_path):
    def halve(x):
        step = lambda x: lax.cond(x.max() > 1, lambda x: jnp.floor(x / 2), lambda x: x, x)  # noqa: E731
        return lax.fori_loop(0, 40, lambda _, x: step(x), x)

    args = [np.array([start, 0.5], np.float32)]
    model = check_export(halve, args)
    assert runs_of(model, args, "If", tmp_path) == {1000.0: 10, 3.0: 2, np.inf: 40}.get(start, 1)


def test_a_loop_whose_counter_goes_on_takes_all_steps(tmp_path):
    def halve(x):
        step = lambda x, n: (lax.cond(x > 1, lambda x: x / 2, lambda x: x, x), n + x)  # noqa: E731
        return lax.fori_loop(0, 9, lambda _, c: step(*c), (x, jnp.float32(0)))

    args = [np.array(3, np.float32)]
    assert runs_of(check_export(halve, args), args, "If", tmp_path) == 9
