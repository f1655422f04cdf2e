"""Of opset="auto" a model gets the lowest that holds its nodes without loss, and the IR version of it."""

import logging

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import pytest
from export_check import check_export, op_types, stripped

from jax2onnx import _core, to_onnx

X = np.linspace(-2, 3, 24, dtype=np.float32).reshape(4, 6)
INDICES = np.array([1, 1, 3])


def opset_of(model):
    return next(entry.version for entry in model.opset_import if not entry.domain)


LOWEST = {
    "an elementwise operator": (jnp.sin, 17, 8),
    "reductions, whose axes were an attribute": (lambda x: x.max(1) + x.mean(1) + x.prod(1), 17, 8),
    "log-sum-exp": (lambda x: jax.nn.logsumexp(x, 1), 17, 8),
    "a layer normalisation": (lambda x: jax.nn.standardize(x) * 2 + 1, 17, 8),
    "attention": (lambda x: jax.nn.softmax(x @ x.T) @ x, 17, 8),
    "a transform, whose axis was an attribute": (lambda x: jnp.abs(jnp.fft.fft(x[:, :4], axis=0)), 17, 8),
    "bitwise operators": (lambda x: x.astype(int) ^ 3, 18, 8),
    "scattering by the largest": (lambda x: x.at[INDICES].max(1.0), 18, 8),
    "gelu": (jax.nn.gelu, 20, 9),
    "swish, which 24 has": (jax.nn.silu, 17, 8),
    "a root mean square, which 23 has": (lambda x: x / jnp.sqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6), 17, 8),
}


@pytest.mark.parametrize("name", LOWEST)
def test_the_lowest_that_holds_the_nodes(name):
    fn, opset, ir_version = LOWEST[name]
    model = check_export(fn, [X], opset="auto")
    assert opset_of(model) == opset
    plain = stripped(model)
    assert plain.ir_version == ir_version and model.ir_version == 10  # provenance on nodes needs 10


def test_what_asked_for_it_is_logged_with_its_line(caplog):
    with caplog.at_level(logging.INFO, logger="jax2onnx"):
        to_onnx(lambda x: x ^ 1, [jax.ShapeDtypeStruct((3,), jnp.int32)], opset="auto")
        to_onnx(jnp.sin, [(3,)], opset="auto")
        to_onnx(jnp.sin, [(3,)], opset=19)
    first, second = (record.message for record in caplog.records)
    assert first.startswith("opset 18, the oldest with BitwiseXor (") and __file__ in first
    assert second == "opset 17"


@pytest.mark.parametrize("opset", range(13, 29))
def test_a_number_stays_what_it_says(opset):
    model = to_onnx(lambda x: x.max(1), [("B", 6)], opset=opset)
    assert opset_of(model) == opset
    assert model.ir_version == (8 if opset <= 18 else 9 if opset <= 20 else 10)


@pytest.mark.parametrize("opset", [13, 14])
def test_a_symbolic_size_before_a_shape_had_ends(opset):
    model = check_export(lambda x: x * x.shape[0], [X], specs=[("B", 6)], more_args=[[X[:2]]], opset=opset)
    assert "Slice" in op_types(model)


@pytest.mark.parametrize("level", ["minimal", "full", "compact"])
@pytest.mark.parametrize("fn", [jnp.sin, jax.nn.gelu])
def test_stripping_gives_the_plain_export(fn, level, tmp_path):
    whole, small = str(tmp_path / "whole.onnx"), str(tmp_path / "small.onnx")
    to_onnx(fn, [(3,)], opset="auto", stacktrace_metadata=level, return_mode="file", output_path=whole)
    code, _, errors = _core.tool_output(["j2o", "strip", whole, "-o", small])
    assert code == 0, errors
    with open(small, "rb") as file:
        assert file.read() == to_onnx(fn, [(3,)], opset="auto").SerializeToString()


def test_stripping_another_producers_model_keeps_its_version(tmp_path):
    model = to_onnx(jnp.sin, [(3,)], opset="auto", stacktrace_metadata="full")
    model.producer_name = "another"
    onnx.save(model, tmp_path / "whole.onnx")
    small = tmp_path / "small.onnx"
    assert _core.tool_output(["j2o", "strip", str(tmp_path / "whole.onnx"), "-o", str(small)])[0] == 0
    assert onnx.load(small).ir_version == 10


def test_wrong_words():
    with pytest.raises(TypeError, match="opset must be an integer or 'auto'; got 'newest'"):
        to_onnx(jnp.sin, [(3,)], opset="newest")
    assert opset_of(to_onnx(jnp.sin, [(3,)], opset="AUTO")) == 17


def test_a_loop_and_a_function_are_looked_into():
    from jax2onnx import onnx_function

    @onnx_function
    def block(x):
        return jax.nn.gelu(x)

    assert opset_of(check_export(lambda x: block(x) + 1, [X], opset="auto")) == 20

    def repeated(x):
        return jax.lax.fori_loop(0, 3, lambda i, x: x ^ (x + i), x)

    assert opset_of(check_export(repeated, [INDICES.astype(np.int32)], opset="auto")) == 18
