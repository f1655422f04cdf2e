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
    x = jax.lax.while_loop(lambda x: x.min() > -99, lambda x: x * 2 - 1, x)
    return jax.lax.while_loop(lambda x: x.max() < 99, lambda x: x * 2, x)


def test_all_that_a_target_lacks_is_told_with_its_line():
    with pytest.warns(UserWarning) as told:
        to_onnx(looped, [X], target="tract")
    texts = [str(warning.message) for warning in told if "tract" in str(warning.message)]
    assert len(texts) == 2 and all(text.startswith("tract: Loop is not implemented (") for text in texts)
    assert all(f"{__file__}:{looped.__code__.co_firstlineno + line}" in text for line, text in enumerate(texts, 1))


def told(fn, inputs, target):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        to_onnx(fn, inputs, target=target)
    return "\n".join(str(warning.message) for warning in caught)


@pytest.mark.parametrize(
    "fn, inputs, target, words",
    [
        (lambda x: x / x.shape[0], [("B", 6)], "mnn", "MNN: Div by a size"),
        (
            lambda x: x @ np.ones((6, 2), np.int32),
            [X.astype(np.int32)],
            "mnn",
            "MNN: MatMul of int32 gives wrong numbers",
        ),
        (lambda x: x.astype(jnp.uint8).astype(jnp.float32), [X], "mnn", "MNN: Cast to or from uint8"),
        (
            lambda x: jax.lax.scan(lambda c, b: ((c + b) * 3, None), 5, x)[0],
            [np.arange(4, dtype=np.int32)],
            "tract",
            "tract: Mul of integers by a constant is refused in most bodies of Scan",
        ),
        (lambda x: (x.at[1].set(0), x[0]), [X], "tinygrad", "tinygrad: ScatterND changes its data in place"),
        (lambda x: x.astype(jnp.uint32) < 9, [X.astype(np.int32)], "tinygrad", "tinygrad: Less of int32 takes sums"),
        (lambda x: x[::-1, 1::2], [X], "iree", "IREE: Slice is refused when it turns around"),
    ],
)
def test_what_fails_is_told(fn, inputs, target, words):
    text = told(fn, inputs, target)
    assert words in text and "test_targets.py" in text, text
    assert not told(fn, inputs, "onnxruntime")


@pytest.mark.parametrize(
    "fn, inputs, target",
    [
        (lambda x: x * x.shape[0], [("B", 6)], "mnn"),
        (lambda x: x / 4, [("B", 6)], "mnn"),
        (lambda x: jax.lax.scan(lambda c, b: ((c + b) * 3, None), 5.0, x)[0], [X[0]], "tract"),
        (lambda x: x.at[1].set(0), [X], "tinygrad"),
        (lambda x: x[::-1], [X], "iree"),
        (lambda x: x[:, 1::2], [X], "iree"),
    ],
)
def test_what_runs_is_not_told(fn, inputs, target):
    assert not told(fn, inputs, target)


def test_any_and_all_need_no_new_opset():
    model = check_export(lambda x: (jnp.any(x > 1, 0), jnp.all(x > 1)), [X], opset="auto")
    assert opset_of(model) == 17
    assert "uint8" not in onnx.printer.to_text(to_onnx(lambda x: jnp.any(x > 1, 0), [X], target="mnn"))


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


A = np.array([[0, 1, 2**31, 2**32 - 1, 40503, 7], [5, 2**31 - 1, 2654435769, 9, 3, 2**31 + 7]], np.uint32)
B = np.array([[1, 2**32 - 1, 3, 2**31, 7, 2]] * 2, np.uint32)
AMOUNTS = np.array([[0, 1, 5, 16, 31, 40]] * 2, np.uint32)

WORDS = {
    "arithmetic": lambda a, b, n: (a + b, a - b, a * b, -a, ~a, a ^ b, a & b, a | b),
    "quotients": lambda a, b, n: (a // b, a % b),
    "shifts": lambda a, b, n: (a << n, a >> n, a >> 3, a >> 16, a >> 31, a << 7),
    "order": lambda a, b, n: (a < b, a >= b, a == b, jnp.maximum(a, b), a.min(0), jnp.clip(a, np.uint32(5), b)),
    "casts": lambda a, b, n: (a.astype(jnp.float32), a.astype(jnp.int32), a.astype(jnp.uint8), a.astype(bool)),
    "sums": lambda a, b, n: (a.sum(0), a.prod(1), jnp.cumsum(a, 1), a @ b.T),
    "moves": lambda a, b, n: (a.T, a[:, ::-1], jnp.pad(a, 1), jnp.where(a > 3, a, b), jnp.sort(a, 1)),
    "loops": lambda a, b, n: jax.lax.scan(lambda c, x: (c * x + 1, c ^ x), a[0], b),
    "conditions": lambda a, b, n: jax.lax.cond(b[0, 0] > 0, lambda a: a + 1, lambda a: a * 2, a),
    "floats": lambda a, b, n: (a.astype(jnp.float32) * 0.5).astype(jnp.uint32),
    "keys": lambda a, b, n: jax.random.uniform(jax.random.split(jax.random.key(n[0, 2]))[1], (3,)),
}


def unsigned_values(model):
    kinds = (onnx.TensorProto.UINT32, onnx.TensorProto.UINT64)
    return [value.name for value in model.graph.value_info if value.type.tensor_type.elem_type in kinds]


@pytest.mark.parametrize("name", WORDS)
def test_unsigned_numbers_are_signed_ones_of_the_same_bits(name):
    model = check_export(WORDS[name], [A, B, AMOUNTS], opset="auto", target="openvino")
    assert not unsigned_values(model) and "BitShift" not in op_types(model)
    check_export(WORDS[name], [A, B, AMOUNTS], opset="auto", target="onnxruntime-1.18")


def test_halves_of_a_seed_are_not_put_together():
    """OpenVINO computes int64 as int32."""

    def fn(seed):
        return jax.random.uniform(jax.random.key(seed), (3,))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = check_export(fn, [np.int32(-7)], opset="auto", target="openvino")
    assert onnx.TensorProto.INT64 not in {value.type.tensor_type.elem_type for value in model.graph.value_info}


def test_large_numbers_of_int64_are_told_where_they_are_int32():
    with pytest.warns(UserWarning, match="OpenVINO: Mul of int64 is computed as of int32"):
        to_onnx(lambda x: x * 2**40, [np.arange(3)], target="openvino", enable_double_precision=True)


def counted(x):
    x, rows = jax.lax.scan(lambda c, row: (jnp.tanh(c + row), c * 2), x[0], x, reverse=True)
    return jax.lax.fori_loop(0, 3, lambda i, c: c * i + 1, x), rows


@pytest.mark.parametrize("target", ["tinygrad", "portable", "tract", "iree", "reference"])
def test_loops_of_known_length_are_written_out(target):
    model = check_export(counted, [X], opset="auto", target=target)
    kinds = set(op_types(model)) & {"Loop", "Scan"}
    assert kinds == {"tract": {"Scan"}, "iree": {"Loop"}, "reference": {"Loop"}}.get(target, set())


def test_a_long_loop_stays_one_and_is_told():
    def fn(x):
        return jax.lax.fori_loop(0, 10**6, lambda i, x: x * 0.5 + i, x)

    with pytest.warns(UserWarning, match="tinygrad: Loop is not implemented"):
        assert "Loop" in op_types(to_onnx(fn, [X], target="tinygrad"))


def conditions(x, number):
    """One beside another, and one inside another."""
    x = jax.lax.switch(number, [jnp.sin, lambda x: x * 2, lambda x: (x - x[0]) * number], x)
    first = jax.lax.cond(x[0, 0] > 0, jnp.exp, jnp.negative, x)
    return first, jax.lax.cond(number > 0, lambda x: jnp.sum(x), lambda x: x[0, 1], x)


@pytest.mark.parametrize("target", ["tract", "mnn", "portable", "openvino"])
def test_branches_that_cannot_be_kept_apart_are_both_computed(target):
    others = [[X, np.int32(number)] for number in (0, 2)]
    model = check_export(conditions, [X, np.int32(1)], opset="auto", target=target, more_args=others)
    ifs = {"tract": 1, "mnn": 3, "portable": 1, "openvino": 4}[target]
    assert [node.op_type for node in nodes_of(model.graph)].count("If") == ifs


def nodes_of(graph):
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from nodes_of(attribute.g)


def test_a_branch_that_may_not_end_stays_one_and_is_told():
    def fn(x):
        y = jax.lax.cond(x[0] > 0, jnp.sin, jnp.cos, x)
        return jax.lax.cond(x[1] > 0, lambda y: jax.lax.while_loop(lambda y: y[0] < 9, lambda y: y * 2, y), jnp.cos, y)

    with pytest.warns(UserWarning, match="tract: Loop is not implemented"):
        model = to_onnx(fn, [X[0]], target="tract")
    assert op_types(model).count("If") == 1


@pytest.mark.parametrize("length", [1, 2, 16, 24, 67, 128])
def test_transforms_without_their_operator(length):
    x = np.random.default_rng(0).standard_normal((2, length)).astype(np.float32)

    def fn(x):
        return jnp.fft.rfft(x).real, jnp.fft.fft(x).imag, jnp.fft.irfft(jnp.fft.rfft(x), length)

    assert "DFT" not in op_types(check_export(fn, [x], opset="auto", target="mnn", rtol=1e-4, atol=1e-4))


def test_forms_of_operators_that_are_missing():
    at = np.int32(1)
    model = check_export(lambda x, at: jax.lax.dynamic_slice(x, (at, 0), (2, 6)), [X, at], target="tract")
    assert "Slice" not in op_types(model)
    drops = check_export(lambda x, i: x.at[i].set(7), [X, np.array([1, 9, -2], np.int32)], target="tract")
    assert "Compress" not in op_types(drops)
    check_export(lambda x, i: x.at[i, i].add(7), [X, np.array([1, 9, -2], np.int32)], target="iree")
    assert "Unsqueeze" in op_types(check_export(lambda x: x[0] @ x[1], [X], target="tract"))
    asked = check_export(jnp.argmax, [X], target="mnn")
    assert "IsNaN" not in op_types(asked)


def test_guards_of_nan_are_left_out_on_demand(monkeypatch, tmp_path):
    def fn(x):
        return jnp.argmax(x, 1), x.max(0), jnp.sort(x, 1), x.astype(jnp.int32), jnp.isnan(x)

    record, again = str(tmp_path / "r.txt"), str(tmp_path / "again.onnx")
    guarded, plain = to_onnx(fn, [X]), check_export(fn, [X], nan_guards="drop", record=record)
    assert {"IsNaN", "ReduceL1"} & set(op_types(guarded)) and not {"IsNaN", "ReduceL1"} & set(op_types(plain))
    assert "Equal" in op_types(plain)  # what the program asks itself
    assert _core.tool_output(["j2o", "convert", record, "-o", again])[0] == 0
    assert op_types(onnx.load(again)) == op_types(plain)
    monkeypatch.setenv("JAX2ONNX_NAN_GUARDS", "drop")
    assert op_types(to_onnx(fn, [X])) == op_types(to_onnx(fn, [X], nan_guards="drop"))
    with pytest.raises(ValueError, match="nan_guards must be 'keep' or 'drop'; got 'off'"):
        to_onnx(fn, [X], nan_guards="off")


def test_a_version_that_cannot_read_provenance_is_told(tmp_path):
    path, text = str(tmp_path / "m.onnx"), "ONNX Runtime 1.16 reads no IR version above 9; the model has 10"
    with pytest.warns(UserWarning, match=text):
        onnx.save(to_onnx(jnp.sin, [X], target="onnxruntime-1.16", stacktrace_metadata="full"), path)
    code, output, _ = _core.tool_output(["j2o", "check", path, "--target", "onnxruntime-1.16"])
    assert code == 1 and text.encode() in output
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        to_onnx(jnp.sin, [X], target="onnxruntime-1.16")
