"""target=: forms that a runtime takes, and what it was seen not to run, told at export and by j2o check."""

import json
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import pytest
from export_check import check_export, op_types

from jax2onnx import _core, onnx_function, to_onnx

X = np.linspace(-2, 3, 24, dtype=np.float32).reshape(4, 6)


def opset_of(model):
    return next(entry.version for entry in model.opset_import if not entry.domain)


def test_the_default_is_the_newest_onnx_runtime(monkeypatch):
    plain = to_onnx(jnp.cumprod, [X]).SerializeToString()
    assert to_onnx(jnp.cumprod, [X], target="onnxruntime").SerializeToString() == plain
    monkeypatch.setenv("JAX2ONNX_TARGET", "tract")
    assert to_onnx(jnp.cumprod, [X]).SerializeToString() != plain
    assert to_onnx(jnp.cumprod, [X], target="onnxruntime").SerializeToString() == plain


@pytest.mark.parametrize("target", _core.TARGETS)
def test_what_is_made_for_a_target_runs_here_too(target):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check_export(lambda x: (jnp.cumprod(x, 1), jnp.any(x > 1, 0)), [X], opset="auto", target=target)


def test_no_negative_pads_where_they_are_refused():
    def lowest_pad(target):
        model = to_onnx(lambda x: jax.lax.cummax(x), [X], target=target)
        constants = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
        return min(constants[node.input[1]].min() for node in model.graph.node if node.op_type == "Pad")

    assert lowest_pad("onnxruntime") < 0
    assert lowest_pad("tract") == lowest_pad("portable") == 0


def test_functions_are_inlined_where_they_are_not_read():
    @onnx_function
    def block(x):
        return jnp.sin(x) * 2

    assert len(to_onnx(block, [X]).functions) == 1
    model = check_export(block, [X], target="openvino")
    assert not model.functions and op_types(model) == ["Sin", "Mul"]


def test_a_half_product_is_no_gemm_where_that_is_refused():
    w = np.arange(30.0).reshape(6, 5)

    def fn(x):
        return x @ w + w[0]

    wide = X.astype(np.float64)
    assert "Gemm" in op_types(check_export(fn, [wide], x64=True))
    assert "Gemm" not in op_types(check_export(fn, [wide], x64=True, target="tract"))


def test_a_version_has_the_opset_it_reads():
    def attention(x):
        return jax.nn.dot_product_attention(x, x, x)

    spec = [jax.ShapeDtypeStruct((2, 6, 4, 8), jnp.float32)]
    assert "Attention" in op_types(to_onnx(attention, spec, target="onnxruntime-1.24"))
    for target in ("onnxruntime", "onnxruntime-1.22", "onnxruntime-1.18", "portable"):
        model = to_onnx(attention, spec, target=target)
        assert "Attention" not in op_types(model) and opset_of(model) <= 21


def test_an_opset_that_a_target_does_not_read_is_told():
    with pytest.warns(UserWarning, match="ONNX Runtime 1.20 reads no opset above 21; the model has 23"):
        to_onnx(jnp.sin, [X], target="onnxruntime-1.20", opset=23)


def looped(x):
    x = jax.lax.fori_loop(0, 3, lambda i, x: x * 2, x)
    return jax.lax.while_loop(lambda x: x.max() < 99, lambda x: x * 2, x)


def test_all_that_a_target_lacks_is_told_with_its_line():
    with pytest.warns(UserWarning) as told:
        to_onnx(looped, [X], target="tract")
    texts = [str(warning.message) for warning in told if "tract" in str(warning.message)]
    assert len(texts) == 2 and all(text.startswith("tract: Loop is not implemented (") for text in texts)
    assert all(f"{__file__}:{looped.__code__.co_firstlineno + line}" in text for line, text in enumerate(texts, 1))


def test_a_model_is_checked_for_a_target(tmp_path):
    path = str(tmp_path / "m.onnx")
    onnx.save(to_onnx(looped, [X], stacktrace_metadata="full"), path)
    assert _core.tool_output(["j2o", "check", path])[0] == 0
    assert _core.tool_output(["j2o", "check", path, "--target", "onnxruntime-1.18"])[0] == 0
    code, text, _ = _core.tool_output(["j2o", "check", path, "--target", "tract", "--json"])
    faults = json.loads(text)["faults"]
    assert code == 1 and len(faults) == 2
    assert all("tract: Loop is not implemented" in fault["fault"] for fault in faults)
    assert faults[0]["callsite"] == f"looped:{looped.__code__.co_firstlineno + 1}"


def test_wrong_names(monkeypatch, tmp_path):
    with pytest.raises(ValueError, match=r"target must be one of 'onnxruntime', .*; got 'ort'"):
        to_onnx(jnp.sin, [X], target="ort")
    path = str(tmp_path / "m.onnx")
    onnx.save(to_onnx(jnp.sin, [X]), path)
    code, _, errors = _core.tool_output(["j2o", "check", path, "--target", "ort"])
    assert code != 0 and b"there is no target ort; there are onnxruntime, " in errors
    monkeypatch.setenv("JAX2ONNX_TARGET", "ort")
    with pytest.raises(ValueError, match="JAX2ONNX_TARGET must be one of"):
        to_onnx(jnp.sin, [X])


def test_a_record_keeps_the_target(tmp_path):
    record, again = str(tmp_path / "r.txt"), str(tmp_path / "again.onnx")
    made = to_onnx(jnp.cumprod, [X], target="onnxruntime-web", record=record).SerializeToString()
    made = to_onnx(jnp.cumprod, [X], target="tract", record=record).SerializeToString()
    assert _core.tool_output(["j2o", "convert", record, "-o", again])[0] == 0
    assert (tmp_path / "again.onnx").read_bytes() == made
