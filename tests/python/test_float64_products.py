"""Scales beside products of float64: ONNX Runtime's optimizer must not round them to float32."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import onnxruntime
import pytest

from jax2onnx import to_onnx

RNG = np.random.default_rng(0)
LEVELS = ["ORT_DISABLE_ALL", "ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED", "ORT_ENABLE_ALL"]
PROGRAMS = {
    "before": lambda a, b: (a * 0.1) @ b,
    "before the right one": lambda a, b: a @ (b / 3),
    "after": lambda a, b: (a @ b) * 0.1,
    "quotient": lambda a, b: (a @ b) / 0.7,
    "on all sides": lambda a, b: ((a / 3) @ (0.1 * b)) * 7.7,
    "behind a transpose": lambda a, b: ((a.T * 0.1).T @ b).T / 3,
    "in a chain": lambda a, b: jnp.tanh((a @ b) * 0.1) @ (b.T * 0.3) / 7,
    "of vectors": lambda a, b: (a[0] @ b) * 0.1,
    "batched": lambda a, b: jnp.einsum("nij,njk->nik", jnp.stack([a, a]) * 0.1, jnp.stack([b, b])) / 3,
}


def error(model, args, want, level):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    got = session.run(None, dict(zip([i.name for i in session.get_inputs()], args, strict=True)))[0]
    assert got.dtype == np.float64 and got.shape == want.shape
    return np.abs(got - want).max() / np.abs(want).max()


@pytest.mark.parametrize("sizes", ["known", "symbolic"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_scales_beside_products_keep_their_digits(name, sizes):
    with jax.enable_x64(True):
        args = [RNG.standard_normal((4, 5)), RNG.standard_normal((5, 6))]
        want = np.asarray(PROGRAMS[name](*args))
        specs = args
        if sizes == "symbolic":
            specs = [jax.ShapeDtypeStruct(shape, np.float64) for shape in (("A", "B"), ("B", "C"))]
        model = to_onnx(PROGRAMS[name], specs)
    for level in LEVELS:
        assert error(model, args, want, level) < 4e-15, level
