"""Models in the tools of the onnx package: renaming, cutting out, other versions. The numbers stay."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import onnxruntime
import pytest
from jax import lax
from onnx import compose, utils, version_converter

from jax2onnx import to_onnx

X = np.linspace(-1, 2, 12, dtype=np.float32).reshape(3, 4)
WEIGHTS = np.random.default_rng(0).normal(size=(4, 4)).astype(np.float32)
TABLE = jnp.arange(9.0)


def nested(x):
    def step(carry, row):
        return lax.fori_loop(0, 3, lambda i, c: c * 0.5 + TABLE[i] * row, carry), jnp.where(row > 0.5, row, 7.0)

    return lax.scan(step, jnp.zeros(4), x)


PROGRAMS = {
    "branches": lambda x: lax.cond(jnp.sum(x) > 1, lambda x: x * 3 + 1, lambda x: x - 2.5, x),
    "a choice of three": lambda x: lax.switch((x[0, 0] * 3).astype(int), [jnp.sin, lambda x: x * 2, jnp.exp], x),
    "a counted loop": lambda x: lax.fori_loop(0, 20, lambda i, c: c * 0.9 + i, x),
    "a loop that ends": lambda x: lax.while_loop(lambda c: jnp.sum(c) < 99, lambda c: c * 1.5 + 0.5, x + 2),
    "a scan with weights": lambda x: lax.scan(lambda c, r: (jnp.tanh(c @ WEIGHTS + r), c), jnp.zeros(4), x),
    "bodies in bodies": nested,
    "a factorisation": lambda x: jnp.linalg.cholesky(x @ x.T + jnp.eye(3) * 20),
    "random numbers": lambda x: x + jax.random.normal(jax.random.key(3), x.shape),
}


def results(model: onnx.ModelProto) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: X})


def extracted(model: onnx.ModelProto) -> onnx.ModelProto:
    names = [[value.name for value in values] for values in (model.graph.input, model.graph.output)]
    return utils.Extractor(model).extract_model(*names)


TOOLS = {
    "add_prefix": lambda model: compose.add_prefix(model, "some/"),
    "extract_model": extracted,
    "version_converter": lambda model: version_converter.convert_version(model, 21),
}


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_a_tool_makes_of_a_model_computes_the_same(name, tool):
    model = to_onnx(PROGRAMS[name], [X])
    expected = jax.tree.leaves(jax.jit(PROGRAMS[name])(X))
    for got, want in zip(results(TOOLS[tool](model)), expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_a_large_weight_of_a_loop_stays_outside():
    weights = np.random.default_rng(0).normal(size=(32, 32)).astype(np.float32)

    def fn(x):
        return lax.fori_loop(0, 20, lambda _, c: jnp.tanh(c @ weights) * 0.5, x)

    model = to_onnx(fn, [np.ones(32, np.float32)])
    (body,) = [attribute.g for node in model.graph.node for attribute in node.attribute if attribute.HasField("g")]
    assert [tuple(tensor.dims) for tensor in model.graph.initializer if len(tensor.dims) == 2] == [(32, 32)]
    assert [value.name for value in body.initializer] and all(not tensor.dims for tensor in body.initializer)
