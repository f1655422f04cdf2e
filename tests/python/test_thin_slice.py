"""The whole pipeline on the smallest program."""

import jax.numpy as jnp
import numpy as np
from export_check import check_export, metadata, op_types


def test_sin_times_two():
    def fn(x):
        return jnp.sin(x) * 2.0

    model = check_export(fn, [np.array([0.5, -1.0], np.float32)])
    assert op_types(model) == ["Sin", "Mul"]
    line = fn.__code__.co_firstlineno + 1
    for node in model.graph.node:
        assert metadata(node)["pkg.jax2onnx.callsite"] == f"{fn.__qualname__}:{line}"
